//! Phase 4: directories, their chunks and entries; connectivity; link counts (`kit::treecheck`). Inodes without a name go to
//! lost+found. The check of one path.

use super::{Checker, start};
use crate::decoded::Inode;
use crate::format::*;
use crate::inode::LINK_MAX;
use crate::volume::Core;
use arbor_base::cache::FileBlock;
use arbor_base::vfs::{CheckReport, Devices, Ino, Repair, Result, Time};
use arbor_kit::blockmap::BlockMap as _;
use arbor_kit::conclude::Concluded as _;
use arbor_kit::inodes::InodeStore as _;
use arbor_kit::pagecheck::{PageCheck, PageRead};
use arbor_kit::treecheck::Rec;

impl Checker<'_> {
    /// Finds the root directory, or makes a new one.
    pub(super) fn root(&mut self) -> Result<()> {
        self.find_root(|check| {
            let core = &mut check.core;
            // The number of the root directory is on no list.
            let version = core.map_entry(ROOT)?.version.get().wrapping_add(1);
            let entry = MapEntry { block: NO_PLACE.into(), version: version.into(), ..MapEntry::default() };
            core.set_map_entry(ROOT, entry)?;
            core.state.used_inodes += 1;
            let now = Time { secs: core.sb.created.get(), nanos: 0 };
            let m = arbor_base::vfs::mode::IFDIR | 0o755;
            let mut root = core.put_new((ROOT, version), m, (0, 0), Group(0), now)?;
            arbor_kit::chunknames::init_dir(core, &mut root, ROOT)?;
            check.recs.put(Rec { ino: ROOT.0 as u32, stored: 2, kind: 4, ..Rec::default() });
            Ok(ROOT.0 as u32)
        })
    }
}

impl PageCheck for Checker<'_> {
    fn slot(&mut self, ino: Ino) -> Result<Option<u8>> {
        Ok(Some((self.core.iget(ino)?.d.kind() >> 12) as u8))
    }

    fn check_slot(&mut self, ino: Ino) -> Result<()> {
        self.read_inode(ino.0 as u32)
    }

    fn dir_bytes(&mut self, dir: &Inode, lbn: u64) -> Result<PageRead> {
        let part = FileBlock::Data(lbn);
        let p = self.core.pointer(dir, part)?;
        let byte = if p.is_placed() { self.core.place_of(dir, part, p)? } else { 0 };
        Ok(self.core.part(dir, part)?.map(|bytes| (bytes, byte)))
    }

    fn put_dir(&mut self, dir: &Inode, lbn: u64, bytes: Vec<u8>) -> Result<()> {
        self.core.mark(dir.ino)?;
        self.core.change(dir, FileBlock::Data(lbn), |buf| *buf = bytes)
    }

    fn names_read(&mut self, done: u64, total: u64) {
        (self.progress)(done, total, "names");
    }

    fn has_found_nothing(&self) -> bool {
        self.f.is_empty()
    }
}

arbor_kit::page_checker!(Checker of Core, ROOT, LINK_MAX);

/// Checks the file or directory at `path`, and what it takes to get there.
pub(crate) fn check_path(devices: Devices, path: &[u8]) -> Result<CheckReport> {
    let mut silent = |_: u64, _: u64, _: &str| ();
    match start::open(&devices, Repair::No, &mut silent)? {
        Ok(checker) => checker.run_along(path),
        Err(lost) => Ok(lost),
    }
}
