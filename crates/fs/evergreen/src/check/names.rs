//! Phase 3: directories, their chunks and entries; connectivity; link counts (`kit::treecheck`). Inodes without a name go to
//! lost+found. The check of one path.

use super::{Checker, start};
use crate::decoded::Inode;
use crate::format::*;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::device::Kind;
use arbor_base::vfs::{CheckReport, Devices, Ino, Repair, Result, Time};
use arbor_kit::conclude::Concluded as _;
use arbor_kit::forest::{Forest, TreeIssue};
use arbor_kit::inodes::InodeStore as _;
use arbor_kit::lifetimes;
use arbor_kit::lostfound::{self, LostFound};
use arbor_kit::pagecheck::PageCheck;
use arbor_kit::treecheck::{Named, Rec, TreeCheck};
use std::sync::Arc;

impl Checker<'_> {
    /// The inode of a number in use.
    pub(super) fn inode(&mut self, ino: u32) -> Result<Inode> {
        self.core.iget(Ino(ino.into()))
    }

    /// Finds the root directory, or makes a new one.
    pub(super) fn root(&mut self) -> Result<()> {
        self.find_root(|check| check.core.need(1).and_then(|()| check.new_dir(0o755, ROOT)))
    }
}

impl PageCheck for Checker<'_> {
    fn slot(&mut self, ino: Ino) -> Result<Option<u8>> {
        Ok(Some(self.core.islot(ino)?.d).filter(Dinode::in_use).map(|d| (d.kind() >> 12) as u8))
    }

    fn check_slot(&mut self, ino: Ino) -> Result<()> {
        self.read_inode(ino.0 as u32)
    }

    fn dir_bytes(&mut self, dir: &Inode, lbn: u64) -> Result<(Arc<Vec<u8>>, u64)> {
        let (name, block) = (Name::data(dir.ino, lbn), self.core.find_block(dir, lbn)?);
        if let Some(bytes) = self.core.cache.get(name) {
            return Ok((bytes.clone(), byte(block)));
        }
        let bytes = Arc::new(self.core.read(self.core.check_pointer(dir.ino, block)?, 1, Kind::Dir)?);
        self.core.cache.insert(name, bytes.clone());
        Ok((bytes, byte(block)))
    }

    fn put_dir(&mut self, dir: &Inode, lbn: u64, bytes: Vec<u8>) -> Result<()> {
        self.core.change(&mut dir.clone(), FileBlock::Data(lbn), |buf| *buf = bytes)
    }

    fn names_read(&mut self, done: u64, total: u64) {
        (self.progress)(done, total, "names");
    }

    fn has_found_nothing(&self) -> bool {
        self.f.is_empty()
    }
}

impl TreeCheck for Checker<'_> {
    type Number = u32;
    const MOST_LINKS: u32 = u32::MAX;
    const ROOT: Ino = ROOT;

    fn forest(&mut self) -> &mut Forest<u32, u32> {
        &mut self.recs
    }

    fn records(&self) -> &Forest<u32, u32> {
        &self.recs
    }

    fn tell(&mut self, issue: TreeIssue) {
        self.f.note(issue);
    }

    fn met(&mut self, dir: u32, name: &[u8], ino: u32, _kind: u8) {
        self.f.met(dir.into(), name, ino.into());
    }

    fn names_in(&mut self, dir: u32) -> Result<Vec<Named>> {
        lostfound::names_in(&mut self.core, Ino(dir.into()))
    }

    fn put_entry_ino(&mut self, dir: u32, offset: u64, ino: u32) -> Result<()> {
        lostfound::put_entry_ino(&mut self.core, Ino(dir.into()), offset, Ino(ino.into()))
    }

    fn put_links(&mut self, ino: u32, links: u32) -> Result<()> {
        lostfound::put_links(&mut self.core, Ino(ino.into()), links)
    }

    fn step(&mut self, done: u64, total: u64) {
        (self.progress)(done, total, "links");
    }

    fn clear(&mut self, ino: u32) -> Result<()> {
        let mut i = self.inode(ino)?;
        self.recs.flag(ino, Rec::GONE, true);
        lifetimes::abandon(&mut self.core, &mut i)
    }

    fn adopt(&mut self, ino: u32, kind: u8) -> Result<u32> {
        self.name_it(ino, kind)
    }
}

impl LostFound for Checker<'_> {
    type Core = Core;

    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn now(&self) -> Time {
        Time { secs: self.core.sb.created.get(), nanos: 0 }
    }

    fn lost_found(&mut self) -> &mut u32 {
        &mut self.lost_found
    }
}

/// Checks the file or directory at `path`, and what it takes to get there.
pub(crate) fn check_path(devices: Devices, path: &[u8]) -> Result<CheckReport> {
    let mut silent = |_: u64, _: u64, _: &str| ();
    match start::open(&devices, Repair::No, &mut silent)? {
        Ok(checker) => checker.run_along(path),
        Err(lost) => Ok(lost),
    }
}
