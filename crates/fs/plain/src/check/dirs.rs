//! Phase 3: directories, their chunks and entries; connectivity; link counts (`kit::treecheck`).
//!
//! Inodes without a name go to lost+found. The check of one path: the inodes on it and the directories that lead on. Nothing is
//! repaired then, and nothing else is read.

use super::{Checker, start};
use crate::alloc::Of;
use crate::format::*;
use crate::inode::Inode;
use crate::volume::Core;
use arbor_base::cache::Name;
use arbor_base::device::Kind;
use arbor_base::vfs::{CheckReport, Devices, Ino, Result};
use arbor_kit::conclude::Concluded as _;
use arbor_kit::lostfound::LostFound as _;
use arbor_kit::pagecheck::{PageCheck, PageRead};
use std::sync::Arc;

const ROOT_INO: u32 = ROOT.0 as u32;

impl Checker<'_> {
    /// Finds the root directory, or makes a new one: the next inode allocated.
    pub(super) fn root(&mut self) -> Result<()> {
        self.find_root(|check| {
            while check.core.sb.inodes.end.get() < ROOT_INO {
                check.core.take(Of::Inodes)?;
            }
            let rover = std::mem::replace(&mut check.core.sb.inodes.rover, ROOT_INO.into());
            let made = check.core.need(1).and_then(|()| check.new_dir(0o755, ROOT));
            check.core.sb.inodes.rover = rover;
            made
        })
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
        self.core.change_page(dir, lbn, |buf| *buf = bytes)
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
    match start::open(&devices, false, &mut silent)? {
        Ok(checker) => checker.run_along(path),
        Err(lost) => Ok(lost),
    }
}
