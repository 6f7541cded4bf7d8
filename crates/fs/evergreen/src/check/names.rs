//! Phase 3: directories, their chunks and entries; connectivity; link counts (`kit::treecheck`). Inodes without a name go to
//! lost+found. The check of one path.

use super::{Checker, start};
use crate::decoded::Inode;
use crate::format::*;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::device::Kind;
use arbor_base::vfs::{CheckReport, Devices, Ino, Repair, Result};
use arbor_kit::conclude::Concluded as _;
use arbor_kit::lostfound::LostFound as _;
use arbor_kit::pagecheck::{PageCheck, PageRead};
use std::sync::Arc;

impl Checker<'_> {
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

    fn dir_bytes(&mut self, dir: &Inode, lbn: u64) -> Result<PageRead> {
        let (name, block) = (Name::data(dir.ino, lbn), self.core.find_block(dir, lbn)?);
        if let Some(bytes) = self.core.cache.get(name) {
            return Ok(Some((bytes.clone(), byte(block))));
        }
        if block == 0 {
            return Ok(None);
        }
        let bytes = Arc::new(self.core.read(self.core.check_pointer(dir.ino, block)?, 1, Kind::Dir)?);
        self.core.cache.insert(name, bytes.clone());
        Ok(Some((bytes, byte(block))))
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

arbor_kit::page_checker!(Checker of Core, ROOT, u32::MAX);

/// Checks the file or directory at `path`, and what it takes to get there.
pub(crate) fn check_path(devices: Devices, path: &[u8]) -> Result<CheckReport> {
    let mut silent = |_: u64, _: u64, _: &str| ();
    match start::open(&devices, Repair::No, &mut silent)? {
        Ok(checker) => checker.run_along(path),
        Err(lost) => Ok(lost),
    }
}
