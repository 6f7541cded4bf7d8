//! Phase 2: every inode, its blocks and its attributes. Each block gets its one owner (DUALFS-A1). Nothing is changed before
//! all of them are known.

use super::Checker;
use super::contents::Damaged;
use super::issue::{Issue, Node, TreeIssue};
use crate::decoded::Inode;
use crate::describe::roots;
use crate::format::*;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::vfs::{Errno, Error, Ino, Result, mode};
use arbor_kit::blockmap::BlockMap as _;
use arbor_kit::inodes::{InodeStore as _, InodeTable as _};
use arbor_kit::pagecheck::DirPages;
use arbor_kit::treecheck::Rec;
use std::collections::BTreeSet;
use std::ops::Range;

/// What is mended of an inode once all owners are known.
pub(super) enum Mend {
    /// Frees an inode that is damaged.
    Clear(u32),
    /// Makes a pointer 0, and frees nothing.
    Cut(Ino, FileBlock),
    /// Stores an inode.
    Put(Box<Inode>),
    /// Makes holes of logical blocks, once the inode counts its blocks rightly.
    Holes(Ino, Range<u64>),
}

/// What the walk through one inode's blocks found.
#[derive(Default)]
struct Tally {
    data: u32,
    meta: u32,
    /// Its pages, if it is a directory.
    pages: DirPages,
    cuts: Vec<FileBlock>,
    beyond: u64,
    bad: u64,
    first_bad: Option<(u32, &'static str)>,
    twice: Vec<u32>,
    /// Contents without their checksums. Its own as long as nobody else has them.
    damaged: Damaged,
}

/// The damage that a read met, in words; `None` if there is none.
pub(super) fn is_damaged<T>(read: Result<T>) -> Result<Option<String>> {
    match read.map(drop) {
        Err(Error::Corrupt(c)) => Ok(Some(c.to_string())),
        other => other.map(|()| None),
    }
}

/// What is wrong with something of the log that nothing before its end has written.
pub(super) const AHEAD: &str = "lies where the log goes on";

impl Checker<'_> {
    /// Whether the log goes on over a metadata block: what lies there is of no set that counts, and will be written over. After
    /// a search the log has no place yet, and gets one where nothing lives.
    pub(super) fn is_ahead(&self, block: u32) -> bool {
        let (geom, log) = (&self.core.geom, &self.core.log);
        let is_behind = |seg: Seg| seg == log.seg && block < geom.seg_start(seg).0.saturating_add(log.offset);
        let is_busy = |seg: &Seg| log.busy().contains(&seg.0);
        self.anew.is_none() && geom.seg_of(MetaBlock(block)).filter(is_busy).is_some_and(|seg| !is_behind(seg))
    }

    /// Takes a metadata block for its owner.
    pub(super) fn own_meta(&mut self, block: u32) {
        self.owned.meta.insert(block);
        self.add_live(block, self.core.geom.block() as u32);
    }

    /// Counts an inode where it lies.
    pub(super) fn own_inode(&mut self, block: u32) {
        self.add_live(block, INODE as u32);
    }

    fn add_live(&mut self, block: u32, bytes: u32) {
        if let Some(seg) = self.core.geom.seg_of(MetaBlock(block)) {
            *self.owned.live.entry(seg.0).or_default() += bytes;
        }
    }

    pub(super) fn read_inodes(&mut self) -> Result<()> {
        let end = self.core.state.inodes;
        let order = self.anew.as_mut().map(|anew| std::mem::take(&mut anew.order));
        let order = match order {
            Some(order) => order,
            None => self.core.numbers()?.into_iter().map(|ino| ino.0 as u32).collect(),
        };
        for (n, ino) in order.into_iter().enumerate() {
            if n % 1024 == 0 {
                (self.progress)(ino.into(), end.into(), "inodes");
            }
            self.read_inode(ino)?;
        }
        if let Some(anew) = &mut self.anew {
            anew.recs.sort_unstable_by_key(|rec| rec.ino);
            anew.recs.drain(..).for_each(|rec| self.recs.put(rec));
        }
        Ok(())
    }

    /// Checks the inode of a number, if it is in use.
    pub(super) fn read_inode(&mut self, ino: u32) -> Result<()> {
        let block = self.core.map_entry(Ino(ino.into()))?.block.get();
        if block == 0 {
            return Ok(());
        }
        if self.is_ahead(block) {
            return self.damaged(ino, AHEAD.into());
        }
        match self.core.iget(Ino(ino.into())) {
            Ok(i) => {
                if block != NO_PLACE {
                    self.own_inode(block);
                }
                self.check_inode(i)
            }
            Err(Error::Corrupt(c)) => self.damaged(ino, c.to_string()),
            Err(Error::Errno(Errno::ESTALE)) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Frees an inode that is damaged beyond use.
    fn damaged(&mut self, ino: u32, why: String) -> Result<()> {
        self.f.note(Issue::InodeDamaged { ino: Node(ino.into()), why });
        self.mends.push(Mend::Clear(ino));
        Ok(())
    }

    /// Goes through the pointer to a block and those below it; the blocks of what can stay are the inode's own then.
    fn walk(&mut self, i: &Inode, part: FileBlock, t: &mut Tally) -> Result<()> {
        let p = self.core.pointer(i, part)?;
        let block = p.block.get();
        if block == 0 {
            return Ok(());
        }
        let (shape, is_data) = (self.core.shape(), Core::is_data(i, part));
        let first = match part {
            FileBlock::Map { level, n } => shape.first(level, n),
            FileBlock::Data(lbn) => lbn,
            FileBlock::Xattr(_) => 0,
        };
        let owned = if is_data { &self.owned.data } else { &self.owned.meta };
        let is_dirty = self.core.cache.is_dirty(Name::File(i.ino, part));
        let why = if first >= self.core.geom.blocks_for(i.size()) {
            t.beyond += 1;
            None
        } else if p.is_placed() && owned.contains(block) {
            t.twice.push(block);
            None
        } else if p.is_placed() && self.core.place_of(i, part, p).is_err() || !p.is_placed() && !is_data && !is_dirty {
            Some("is no place for it")
        } else if !is_data && self.is_ahead(block) {
            Some(AHEAD)
        } else if !is_data && is_damaged(self.core.part(i, part))?.is_some() {
            Some("is not what its pointer says")
        } else {
            self.own(i, (part, p), t)?;
            (t.data, t.meta) = if is_data { (t.data + 1, t.meta) } else { (t.data, t.meta + 1) };
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

    /// Takes what a pointer leads to for the inode's; contents only if they are what the pointer says.
    fn own(&mut self, i: &Inode, (part, p): (FileBlock, Pointer), t: &mut Tally) -> Result<()> {
        let block = p.block.get();
        match part {
            _ if !p.is_placed() => {}
            FileBlock::Data(_) if Core::is_data(i, part) && self.has_its_sum(p)? => {
                self.owned.data.insert(block);
            }
            FileBlock::Data(lbn) if Core::is_data(i, part) => {
                self.owned.damaged.insert(block);
                t.damaged.add(lbn, block);
            }
            _ => self.own_meta(block),
        }
        Ok(())
    }

    /// The same of all pointers in an indirect block, which was read before.
    fn walk_table(&mut self, i: &Inode, part: FileBlock, t: &mut Tally) -> Result<()> {
        let FileBlock::Map { level, n } = part else { return Ok(()) };
        let (shape, table) = (self.core.shape(), self.core.part(i, part)?.ok_or(Errno::EIO)?);
        for slot in (0..shape.fanout).filter(|slot| Core::entry(&table, *slot as usize).block.get() != 0) {
            self.walk(i, shape.child(level, n, slot), t)?;
        }
        Ok(())
    }

    /// Checks an inode in use, and keeps it in mind if it can be used.
    fn check_inode(&mut self, found: Inode) -> Result<()> {
        let (mut i, ino) = (found, Node(found.ino.0));
        let mut t = Tally::default();
        if i.d.has_blocks() {
            for part in roots() {
                self.walk(&found, part, &mut t)?;
            }
        }
        self.check_xattr(&i, &mut t)?;
        let (pages, kept) = (self.core.geom.blocks_for(i.size()), t.pages.kept());
        if i.is_dir() && kept == 0 && (pages > 0 || i.ino == ROOT) {
            return self.damaged(ino.0 as u32, "it is a directory without blocks".into());
        }
        if i.is_dir() && kept < pages {
            let offset = kept << self.core.geom.block_shift;
            self.f.note(TreeIssue::DirHole { ino, offset });
            i.d.size = offset.into();
        }
        if i.is_symlink() && is_damaged(self.core.link_target(&i))?.is_some() {
            return self.damaged(ino.0 as u32, "it is a symbolic link without a target".into());
        }
        self.tell(&mut i, &t);
        (self.owned.counted, self.owned.blocks) = (self.owned.counted + t.data, self.owned.blocks + t.meta);
        if i.is_dir() {
            *self.owned.dirs.entry(i.d.group.get()).or_default() += 1;
        }
        self.mends.extend(t.cuts.iter().map(|part| Mend::Cut(i.ino, *part)));
        if i.d != found.d {
            self.mends.push(Mend::Put(Box::new(i)));
        }
        self.mends.extend(t.damaged.runs.into_iter().map(|run| Mend::Holes(i.ino, run)));
        let is_empty = i.d.kind() == mode::IFREG && i.size() == 0 && i.d.xattr.block.get() == 0;
        let (stored, kind) = (i.d.nlink.get(), (i.d.kind() >> 12) as u8);
        let is_removed = i.is_dir() && i.size() == 0;
        let flags = if is_empty { Rec::EMPTY } else { 0 } | if is_removed { Rec::REMOVED } else { 0 };
        let rec = Rec { ino: ino.0 as u32, stored, kind, flags, ..Rec::default() };
        match &mut self.anew {
            Some(anew) => anew.recs.push(rec),
            None => self.recs.put(rec),
        }
        Ok(())
    }

    fn check_xattr(&mut self, i: &Inode, t: &mut Tally) -> Result<()> {
        if i.d.xattr.block.get() == 0 {
            return Ok(());
        }
        let first = FileBlock::Xattr(0);
        if let Some(why) = is_damaged(self.core.xattr_list(i))? {
            self.f.note(Issue::Xattr { ino: Node(i.ino.0), why });
            t.cuts.push(first);
            return Ok(());
        }
        let mut blocks = Vec::new();
        for n in 0..self.core.xattr_blocks(i)? {
            blocks.push(self.core.pointer(i, FileBlock::Xattr(n))?);
        }
        if blocks.iter().any(|p| self.is_ahead(p.block.get())) {
            self.f.note(Issue::Xattr { ino: Node(i.ino.0), why: AHEAD.into() });
            t.cuts.push(first);
            return Ok(());
        }
        let twice = blocks.iter().find(|p| p.is_placed() && self.owned.meta.contains(p.block.get()));
        if let Some(p) = twice {
            t.twice.push(p.block.get());
            t.cuts.push(first);
            return Ok(());
        }
        for p in blocks {
            self.own(i, (first, p), t)?;
            t.meta += 1;
        }
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
        self.tell_contents(i.ino, &t.damaged);
        for block in &t.twice {
            self.f.note(Issue::Duplicate { ino, block: *block });
        }
        let counts = [("data blocks", i.d.data.get(), t.data), ("metadata blocks", i.d.meta.get(), t.meta)];
        for (what, found, expected) in counts {
            if found != expected && t.cuts.is_empty() {
                self.f.note(Issue::BlockCount { ino, what, found, expected });
            }
        }
        (i.d.data, i.d.meta) = (t.data.into(), t.meta.into());
    }

    /// Mends the inodes. What they lead to, and should not, stays in use until the next pass.
    pub(super) fn mend_inodes(&mut self) -> Result<()> {
        for mend in std::mem::take(&mut self.mends) {
            match mend {
                Mend::Clear(ino) => self.core.clear_inode(Ino(ino.into()))?,
                Mend::Holes(ino, lbns) => self.make_holes(ino, lbns)?,
                Mend::Cut(ino, part) => {
                    let mut i = self.core.inode(ino)?;
                    self.core.cache.remove(Name::File(ino, part));
                    self.core.set_pointer(&mut i, part, Pointer::default())?;
                    self.core.iput(&i)?;
                }
                Mend::Put(i) => {
                    let now = self.core.inode(i.ino)?.d;
                    let d = Dinode { db: now.db, ib: now.ib, xattr: now.xattr, ..i.d };
                    let d = if i.d.is_fast_link() { i.d } else { d };
                    self.core.iput(&Inode { ino: i.ino, d })?;
                }
            }
        }
        Ok(())
    }

    /// Checks the list of inodes without names, which mount follows. A repaired volume has an empty one: what was on it is
    /// cleared with all else that has no name.
    pub(super) fn check_orphans(&mut self) -> Result<()> {
        let first = std::mem::take(&mut self.core.state.orphan);
        if first == 0 {
            return Ok(());
        }
        self.f.note(Issue::Orphans { ino: Node(first.into()) });
        let (mut at, mut seen) = (first, BTreeSet::new());
        while at != 0 {
            let rec = self.recs.of(at).map(|rec| rec.stored);
            let why = match rec {
                None => "is not in use",
                Some(1..) => "has a name",
                Some(0) if seen.contains(&at) => "is on it already",
                Some(0) => {
                    seen.insert(at);
                    at = self.core.iget(Ino(at.into()))?.d.next_orphan.get();
                    continue;
                }
            };
            self.f.note(Issue::OrphanList { ino: Node(at.into()), why });
            return Ok(());
        }
        Ok(())
    }
}

impl Core {
    /// Frees an inode that cannot be read, and nothing that it leads to.
    fn clear_inode(&mut self, ino: Ino) -> Result<()> {
        self.cache.drop_parts(ino, FileBlock::Data(0)..=FileBlock::Xattr(u32::MAX));
        self.changes.dead.retain(|_, died| *died > 0);
        let before = self.changes.dead.clone();
        self.forget_inode(ino)?;
        // Its bytes are counted again by the next pass.
        self.changes.dead = before;
        Ok(())
    }
}
