//! Phase 1: every inode, its blocks and its attributes. Each block gets its one owner (PLAIN-A1).

use super::Checker;
use super::issue::{Issue, Node, TreeIssue};
use crate::file::Piece;
use crate::format::*;
use crate::inode::Inode;
use crate::validate;
use arbor_base::device::Kind;
use arbor_base::vfs::{Error, Ino, Result, mode};
use arbor_kit::inodes::{InodeStore as _, InodeTable as _};
use arbor_kit::pagecheck::DirPages;
use arbor_kit::runs::Runs;
use arbor_kit::treecheck::Rec;
use std::collections::BTreeSet;

/// How many blocks past the known table are searched for inodes.
const LOOKED_AT: u32 = 8;

/// What the walk through one inode's blocks found.
#[derive(Default)]
struct Tally {
    /// Blocks that it owns.
    blocks: u32,
    /// Its pages, if it is a directory.
    pages: DirPages,
    /// Pointers to be made 0.
    cuts: Vec<(Option<u32>, usize)>,
    beyond: u64,
    bad: u64,
    first_bad: Option<(u32, &'static str)>,
    twice: Vec<u32>,
}

impl Tally {
    /// Whether to go on below a pointer that can stay.
    fn judge(&mut self, core: &mut super::Core, owned: &mut Runs, i: &Inode, p: &Piece) -> Result<bool> {
        let bit = p.block.wrapping_sub(core.geom.data());
        let why = if p.lbn >= blocks_of(i.d.size.get()) {
            self.beyond += 1;
            None
        } else if !core.geom.is_data(p.block) {
            Some("is no place for it")
        } else if owned.contains(bit) {
            self.twice.push(p.block);
            None
        } else if p.level > 0 && is_damaged(core.table(i.ino, p.block).map(drop))?.is_some() {
            Some("holds no pointers of this inode")
        } else {
            owned.insert(bit);
            self.blocks += 1;
            if p.level == 0 {
                self.pages.count(p.lbn);
            }
            return Ok(true);
        };
        if let Some(why) = why {
            self.bad += 1;
            self.first_bad.get_or_insert((p.block, why));
        }
        self.cuts.push(p.slot);
        Ok(false)
    }
}

/// The damage that a read met, in words; `None` if there is none.
pub(super) fn is_damaged(read: Result<()>) -> Result<Option<String>> {
    match read {
        Ok(()) => Ok(None),
        Err(Error::Corrupt(c)) => Ok(Some(c.to_string())),
        Err(e) => Err(e),
    }
}

impl Checker<'_> {
    pub(super) fn read_inodes(&mut self) -> Result<()> {
        let blocks = self.end_of_table()?;
        for n in 0..blocks {
            if n % 64 == 0 {
                (self.progress)(n.into(), blocks.into(), "inodes");
            }
            for ino in n * INODES..((n + 1) * INODES).min(self.core.geom.inodes) {
                if u64::from(ino) >= ROOT.0 {
                    self.read_inode(ino)?;
                }
            }
        }
        Ok(())
    }

    /// The number of blocks of inodes in use. An inode past those the superblock knows that was ever in use proves the
    /// superblock wrong.
    fn end_of_table(&mut self) -> Result<u32> {
        let (geom, known) = (self.core.geom, self.core.sb.inodes.end.get().div_ceil(INODES));
        let (mut end, mut n) = (known, known);
        while n < (end + LOOKED_AT).min(geom.inodes.div_ceil(INODES)) {
            let bytes = self.core.read(geom.table() + n, 1, Kind::Inode)?;
            let used = |(ino, b)| validate::inode(&geom, Ino(ino), b).is_ok_and(|d| d != Dinode::default());
            n += 1;
            if (u64::from((n - 1) * INODES)..).zip(bytes.chunks_exact(INODE)).any(used) {
                end = n;
            }
        }
        if end > known {
            let (found, expected) = (self.core.sb.inodes.end.get(), (end * INODES).min(geom.inodes));
            self.f.note(Issue::End { what: "inodes", found, expected });
            for n in known..end {
                // Inodes between them may be of an older volume.
                let mut bytes = self.core.read(geom.table() + n, 1, Kind::Inode)?;
                for (ino, b) in (u64::from(n * INODES)..).zip(bytes.chunks_exact_mut(INODE)) {
                    if validate::inode(&geom, Ino(ino), b).is_err() {
                        b.fill(0);
                    }
                }
                self.core.make_block(geom.table() + n, Kind::Inode, bytes)?;
            }
            self.core.sb.inodes.end = expected.into();
            self.core.touch_super();
        }
        Ok(end)
    }

    /// Checks the inode of a number, if it is in use.
    pub(super) fn read_inode(&mut self, ino: u32) -> Result<()> {
        if ino >= self.core.sb.inodes.end.get() {
            return Ok(());
        }
        match self.core.islot(Ino(ino.into())) {
            Ok(i) if i.d.in_use() => self.check_inode(i),
            Ok(_) => Ok(()),
            Err(Error::Corrupt(c)) => self.damaged(ino, c.to_string()),
            Err(e) => Err(e),
        }
    }

    /// Frees an inode that is damaged beyond use.
    fn damaged(&mut self, ino: u32, why: String) -> Result<()> {
        self.f.note(Issue::InodeDamaged { ino: Node(ino.into()), why });
        let Some((block, at)) = self.core.geom.inode_at(Ino(ino.into())) else { return Ok(()) };
        self.core.modify(block, Kind::Inode, |buf| buf.iter_mut().skip(at).take(INODE).for_each(|b| *b = 0))
    }

    /// Checks an inode in use, and keeps it in mind if it can be used.
    fn check_inode(&mut self, found: Inode) -> Result<()> {
        let (mut i, mut t, ino) = (found, Tally::default(), Node(found.ino.0));
        let owned = &mut self.owned;
        self.core.walk_blocks(&found, &mut |core, p| t.judge(core, owned, &found, p))?;
        for (above, index) in &t.cuts {
            match above {
                None => i.d.map.iter_mut().skip(*index).take(1).for_each(|p| *p = 0.into()),
                Some(block) => {
                    self.core.block(*block, Kind::Tree)?;
                    let at = crate::file::entry_at(*index as u64);
                    self.core.modify(*block, Kind::Tree, |buf| put_u32(buf, at, 0))?;
                }
            }
        }
        self.check_xattr(&mut i, &mut t)?;
        let kept = t.pages.kept();
        if i.is_dir() && kept == 0 && i.d.size.get() > 0 {
            return self.damaged(ino.0 as u32, "it is a directory without blocks".into());
        }
        if i.is_dir() && kept < blocks_of(i.d.size.get()) {
            self.f.note(TreeIssue::DirHole { ino, offset: kept << BLOCK_SHIFT });
            i.d.size = (kept << BLOCK_SHIFT).into();
        }
        if i.d.kind() == mode::IFLNK && is_damaged(self.core.link_target(&i).map(drop))?.is_some() {
            return self.damaged(ino.0 as u32, "it is a symbolic link without a target".into());
        }
        self.tell(&mut i, &t);
        if i.d != found.d {
            self.core.iput(&i)?;
        }
        let empty = i.d.kind() == mode::IFREG && i.d.size.get() == 0 && i.d.xattr.get() == 0;
        let (stored, kind) = (i.d.nlink.get(), (i.d.kind() >> 12) as u8);
        self.recs.put(Rec {
            ino: ino.0 as u32,
            stored,
            kind,
            flags: if empty { Rec::EMPTY } else { 0 },
            ..Rec::default()
        });
        Ok(())
    }

    fn check_xattr(&mut self, i: &mut Inode, t: &mut Tally) -> Result<()> {
        let (block, bit) = (i.d.xattr.get(), i.d.xattr.get().wrapping_sub(self.core.geom.data()));
        if block == 0 {
            return Ok(());
        }
        match is_damaged(self.core.xattr_list(i).map(drop))? {
            Some(why) => self.f.note(Issue::Xattr { ino: Node(i.ino.0), why }),
            None if self.owned.contains(bit) => t.twice.push(block),
            None => {
                self.owned.insert(bit);
                t.blocks += 1;
                return Ok(());
            }
        }
        i.d.xattr = 0.into();
        // The inode no longer owns its other blocks.
        i.d.blocks = i.d.blocks.get().saturating_sub(1).into();
        Ok(())
    }

    /// Notes the issues of a walk.
    fn tell(&mut self, i: &mut Inode, t: &Tally) {
        let ino = Node(i.ino.0);
        if let Some((block, why)) = t.first_bad {
            self.f.note(Issue::Pointers { ino, count: t.bad, block, why });
        }
        if t.beyond > 0 {
            self.f.note(Issue::BeyondSize { ino, count: t.beyond });
        }
        for block in &t.twice {
            self.f.note(Issue::Duplicate { ino, block: *block });
        }
        let (found, expected) = (i.d.blocks.get(), t.blocks);
        if found != expected && t.cuts.is_empty() {
            self.f.note(Issue::BlockCount { ino, found, expected });
        }
        i.d.blocks = expected.into();
    }

    /// Checks the list of inodes without names, which mount follows. It is empty on a repaired volume: the inodes on it
    /// are cleared with all others that have no name.
    pub(super) fn check_orphans(&mut self) -> Result<()> {
        let (mut at, mut seen) = (self.core.sb.orphan.get(), BTreeSet::new());
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
        self.core.sb.orphan = 0.into();
        self.core.touch_super();
        Ok(())
    }
}
