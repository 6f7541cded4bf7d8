//! Phase 1: every inode, its blocks and its attributes. Each block gets its one owner (EVERGREEN-A1). Nothing is changed
//! before all of them are known.

use super::Checker;
use super::issue::{Issue, Node, TreeIssue};
use crate::decoded::Inode;
use crate::file::{roots, span};
use crate::format::*;
use crate::validate;
use crate::volume::{Core, SHAPE};
use arbor_base::cache::FileBlock;
use arbor_base::vfs::{Errno, Error, Ino, Result, mode};
use arbor_kit::blockmap::BlockMap;
use arbor_kit::inodes::{InodeStore as _, InodeTable as _};
use arbor_kit::pagecheck::DirPages;
use arbor_kit::treecheck::Rec;
use std::collections::BTreeSet;
use zerocopy::FromBytes;

/// What is mended of an inode once all owners are known.
pub(super) enum Mend {
    /// Frees an inode that is damaged.
    Clear(u32),
    /// Makes a pointer 0, and frees nothing.
    Cut(Ino, FileBlock),
    /// Stores an inode.
    Put(Box<Inode>),
}

/// What the walk through one inode's blocks found.
#[derive(Default)]
struct Tally {
    blocks: u32,
    /// Its pages, if it is a directory.
    pages: DirPages,
    cuts: Vec<FileBlock>,
    beyond: u64,
    bad: u64,
    first_bad: Option<(u32, &'static str)>,
    twice: Vec<u32>,
}

/// The damage that a read met, in words; `None` if there is none.
pub(super) fn is_damaged<T>(read: Result<T>) -> Result<Option<String>> {
    match read {
        Ok(_) => Ok(None),
        Err(Error::Corrupt(c)) => Ok(Some(c.to_string())),
        Err(e) => Err(e),
    }
}

impl Checker<'_> {
    pub(super) fn read_inodes(&mut self) -> Result<()> {
        self.check_end()?;
        for (ino, blocks) in self.special_blocks() {
            let mut i = self.core.special(ino);
            if i.d.size.get() > blocks << BLOCK_SHIFT || ino == IFILE && i.d.size.get() < blocks << BLOCK_SHIFT {
                self.f.note(Issue::SpecialSize {
                    ino: Node(ino.0),
                    found: i.d.size.get(),
                    expected: blocks << BLOCK_SHIFT,
                });
            }
            i.d.size = (blocks << BLOCK_SHIFT).into();
            let t = self.walk(&i)?;
            self.tell_pointers(ino, &t);
            for part in t.cuts {
                match part {
                    // With its inodes; that it leads elsewhere does not matter then.
                    FileBlock::Data(lbn) if ino == IFILE && lbn < blocks => {
                        self.lose_inodes(lbn as u32, "it leads elsewhere".into())
                    }
                    part => self.mends.push(Mend::Cut(ino, part)),
                }
            }
        }
        self.find_lost_inodes()?;
        let end = self.core.master.head.inode_end.get();
        let lost: BTreeSet<u32> = self.lost.iter().map(|lost| lost.1).collect();
        let there = (ROOT.0 as u32..end).filter(|ino| *ino < INODES || !lost.contains(&(ino / INODES)));
        for (n, ino) in there.enumerate() {
            if n % 1024 == 0 {
                (self.progress)(ino.into(), end.into(), "inodes");
            }
            self.read_inode(ino)?;
        }
        Ok(())
    }

    /// How many inodes were ever in use: as many as the ifile has blocks for. What lies behind more holes than blocks is
    /// none of it.
    fn check_end(&mut self) -> Result<()> {
        let lbns = self.core.inode_blocks()?;
        let last =
            lbns.iter().enumerate().rev().find(|(n, lbn)| **lbn <= 2 * *n as u64 + 64).map_or(0, |(_, lbn)| *lbn);
        let (found, blocks) = (self.core.master.head.inode_end.get(), last as u32 + 1);
        let may_be = found >= INODES && found.div_ceil(INODES) == blocks;
        let expected = if may_be { self.last_used(found)? } else { blocks * INODES };
        if found != expected {
            self.f.note(Issue::End { found, expected });
            self.core.master.head.inode_end = expected.into();
            self.core.touch_master();
        }
        Ok(())
    }

    /// The number after the last inode in use in the block of this one.
    fn last_used(&mut self, end: u32) -> Result<u32> {
        let (ifile, geom) = (self.core.special(IFILE), self.core.geom);
        let (mut last, n) = (end, (end - 1) / INODES);
        let page = self.core.part(&ifile, FileBlock::Data(n.into()));
        if n == 0 || is_damaged(page)?.is_some() {
            return Ok(end);
        }
        let page = self.core.part(&ifile, FileBlock::Data(n.into()))?;
        for (ino, bytes) in (n * INODES..).zip(page.iter().flat_map(|page| page.chunks_exact(INODE))) {
            let d = Dinode::read_from_bytes(bytes).unwrap_or_default();
            if ino >= end && d.in_use() && validate::inode(&geom, Ino(ino.into()), d).is_ok() {
                last = ino + 1;
            }
        }
        Ok(last)
    }

    /// The ifile and the bitmaps, and how many blocks each has at most.
    fn special_blocks(&self) -> [(Ino, u64); 3] {
        let (end, blocks) = (self.core.master.head.inode_end.get(), self.core.geom.blocks);
        let [inodes, used] = [end.div_ceil(INODES), end.div_ceil(BITS)].map(u64::from);
        [(IFILE, inodes), (DBITMAP, blocks.div_ceil(BITS).into()), (IBITMAP, used)]
    }

    /// Mends the inodes of the ifile and the bitmaps, once nothing that has an owner is given away.
    pub(super) fn mend_specials(&mut self) -> Result<()> {
        for (ino, blocks) in self.special_blocks() {
            let d = self.core.master.inode_mut(ino).ok_or(Errno::EIO)?;
            let size = d.size.get().min(blocks << BLOCK_SHIFT);
            let size = if ino == IFILE { blocks << BLOCK_SHIFT } else { size };
            if d.size.get() != size {
                d.size = size.into();
                self.core.touch_master();
            }
        }
        let (special, other) = std::mem::take(&mut self.mends)
            .into_iter()
            .partition(|mend| matches!(mend, Mend::Cut(ino, _) if crate::volume::is_special(*ino)));
        self.mends = special;
        self.mend_inodes()?;
        self.mends = other;
        Ok(())
    }

    /// Checks the inode of a number, if it is in use.
    pub(super) fn read_inode(&mut self, ino: u32) -> Result<()> {
        match self.core.islot(Ino(ino.into())) {
            Ok(i) if i.d.in_use() => self.check_inode(i),
            Ok(_) | Err(Error::Errno(_)) => Ok(()),
            Err(Error::Corrupt(c)) => self.damaged(ino, c.to_string()),
            Err(e) => Err(e),
        }
    }

    /// Frees an inode that is damaged beyond use.
    fn damaged(&mut self, ino: u32, why: String) -> Result<()> {
        self.f.note(Issue::InodeDamaged { ino: Node(ino.into()), why });
        self.mends.push(Mend::Clear(ino));
        Ok(())
    }

    /// Goes through all pointers of an inode; the blocks of what can stay are its own then.
    fn walk(&mut self, i: &Inode) -> Result<Tally> {
        let mut t = Tally::default();
        for part in roots().collect::<Vec<_>>().into_iter().rev() {
            // The first block of the ifile is the master block.
            if i.ino != IFILE || part != FileBlock::Data(0) {
                let block = self.core.pointer(i, part)?;
                self.walk_pointer(i, (part, block), &mut t)?;
            }
        }
        Ok(t)
    }

    /// The same of the pointer to one block.
    fn walk_pointer(&mut self, i: &Inode, (part, block): (FileBlock, u32), t: &mut Tally) -> Result<()> {
        if block == 0 {
            return Ok(());
        }
        let is_inside = span(part).0 < blocks_of(i.d.size.get());
        let is_page = crate::volume::is_special(i.ino) && matches!(part, FileBlock::Data(_));
        if is_inside && is_page && is_damaged(self.core.part(i, part))?.is_some() {
            // It is made anew with the bitmaps.
            return Ok(());
        }
        let why = if !is_inside {
            t.beyond += 1;
            None
        } else if !self.core.geom.is_data(block) {
            Some("is no place for it")
        } else if self.owned.contains(block) {
            t.twice.push(block);
            None
        } else if let FileBlock::Map { .. } = part
            && is_damaged(self.core.part(i, part))?.is_some()
        {
            Some("holds no pointers of this inode")
        } else {
            self.owned.insert(block);
            t.blocks += 1;
            if let FileBlock::Data(lbn) = part {
                t.pages.count(lbn);
            }
            return self.walk_table(i, part, t);
        };
        if let Some(why) = why {
            t.bad += 1;
            t.first_bad.get_or_insert((block, why));
        }
        t.cuts.push(part);
        Ok(())
    }

    /// The same of all pointers in an indirect block, which was read before.
    fn walk_table(&mut self, i: &Inode, part: FileBlock, t: &mut Tally) -> Result<()> {
        let FileBlock::Map { level, n } = part else { return Ok(()) };
        let table = self.core.part(i, part)?.ok_or(Errno::EIO)?;
        for slot in 0..POINTERS {
            let block = Core::entry(&table, slot as usize);
            self.walk_pointer(i, (SHAPE.child(level, n, slot), block), t)?;
        }
        Ok(())
    }

    /// Checks an inode in use, and keeps it in mind if it can be used.
    fn check_inode(&mut self, found: Inode) -> Result<()> {
        let (mut i, ino) = (found, Node(found.ino.0));
        let mut t = self.walk(&found)?;
        self.check_xattr(&mut i, &mut t)?;
        let kept = t.pages.kept();
        if i.is_dir() && kept == 0 && i.d.size.get() > 0 {
            return self.damaged(ino.0 as u32, "it is a directory without blocks".into());
        }
        if i.is_dir() && kept < blocks_of(i.d.size.get()) {
            self.f.note(TreeIssue::DirHole { ino, offset: kept << BLOCK_SHIFT });
            i.d.size = (kept << BLOCK_SHIFT).into();
        }
        if i.d.kind() == mode::IFLNK && is_damaged(self.core.link_target(&i))?.is_some() {
            return self.damaged(ino.0 as u32, "it is a symbolic link without a target".into());
        }
        self.tell(&mut i, &t);
        self.mends.extend(t.cuts.iter().map(|part| Mend::Cut(i.ino, *part)));
        if i.d != found.d {
            self.mends.push(Mend::Put(Box::new(i)));
        }
        let empty = i.d.kind() == mode::IFREG && i.d.size.get() == 0 && i.d.xattr.get() == 0;
        let (stored, kind) = (i.d.nlink.get(), (i.d.kind() >> 12) as u8);
        let flags = if empty { Rec::EMPTY } else { 0 };
        self.recs.put(Rec { ino: ino.0 as u32, stored, kind, flags, ..Rec::default() });
        Ok(())
    }

    fn check_xattr(&mut self, i: &mut Inode, t: &mut Tally) -> Result<()> {
        if i.d.xattr.get() == 0 {
            return Ok(());
        }
        if let Some(why) = is_damaged(self.core.xattr_list(i))? {
            self.f.note(Issue::Xattr { ino: Node(i.ino.0), why });
            t.cuts.push(FileBlock::Xattr(0));
            return Ok(());
        }
        let mut blocks = Vec::new();
        for n in 0..self.core.xattr_blocks(i)? {
            blocks.push(self.core.pointer(i, FileBlock::Xattr(n))?);
        }
        match blocks.iter().find(|block| self.owned.contains(**block)) {
            Some(block) => {
                t.twice.push(*block);
                t.cuts.push(FileBlock::Xattr(0));
            }
            None => blocks.iter().for_each(|block| {
                self.owned.insert(*block);
                t.blocks += 1;
            }),
        }
        Ok(())
    }

    fn tell_pointers(&mut self, ino: Ino, t: &Tally) {
        let ino = Node(ino.0);
        if let Some((block, why)) = t.first_bad {
            self.f.note(Issue::Pointers { ino, count: t.bad, block, why });
        }
        if t.beyond > 0 {
            self.f.note(Issue::BeyondSize { ino, count: t.beyond });
        }
        for block in &t.twice {
            self.f.note(Issue::Duplicate { ino, block: *block });
        }
    }

    /// Notes the issues of a walk.
    fn tell(&mut self, i: &mut Inode, t: &Tally) {
        self.tell_pointers(i.ino, t);
        let (found, expected) = (i.d.blocks.get(), t.blocks);
        if found != expected && t.cuts.is_empty() {
            self.f.note(Issue::BlockCount { ino: Node(i.ino.0), found, expected });
        }
        i.d.blocks = expected.into();
    }

    /// Mends the inodes. What they lead to, and should not, stays in use until the next pass.
    pub(super) fn mend_inodes(&mut self) -> Result<()> {
        for mend in std::mem::take(&mut self.mends) {
            match mend {
                Mend::Clear(ino) => self.core.clear_slot(Ino(ino.into()))?,
                Mend::Cut(ino, part) => {
                    let mut i = self.core.any_inode(ino)?;
                    self.core.forget_part(&i, part);
                    self.core.set_pointer(&mut i, part, 0)?;
                }
                Mend::Put(i) => self.core.iput(&i)?,
            }
        }
        Ok(())
    }

    /// Checks the list of inodes without names, which mount follows. It is empty on a repaired volume: the inodes on it
    /// are cleared with all others that have no name.
    pub(super) fn check_orphans(&mut self) -> Result<()> {
        let (mut at, mut seen) = (self.core.master.head.orphan.get(), BTreeSet::new());
        if at == 0 {
            return Ok(());
        }
        self.f.note(Issue::Orphans { ino: Node(at.into()) });
        while at != 0 {
            let why = match self.recs.of(at) {
                _ if !seen.insert(at) => "is on it already",
                None => "is not in use",
                Some(rec) if rec.stored > 0 => "has a name",
                Some(_) => {
                    at = self.core.iget(Ino(at.into()))?.d.next_orphan.get();
                    continue;
                }
            };
            self.f.note(Issue::OrphanList { ino: Node(at.into()), why });
            break;
        }
        self.core.master.head.orphan = 0.into();
        self.core.touch_master();
        Ok(())
    }
}
