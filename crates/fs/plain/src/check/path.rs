//! The check of one path: the inodes on it and the directories that lead on (`kit::treecheck`). Nothing is repaired, and
//! nothing else is read.

use super::{Checker, start};
use crate::format::*;
use arbor_base::vfs::{CheckReport, Devices, Error, Ino, Result};
use arbor_kit::conclude::Concluded as _;
use arbor_kit::forest::Spot;
use arbor_kit::treecheck::{ChunkWay, Held};

/// Checks the file or directory at `path`, and what it takes to get there.
pub(crate) fn check_path(devices: Devices, path: &[u8]) -> Result<CheckReport> {
    let mut silent = |_: u64, _: u64, _: &str| ();
    match start::open(&devices, false, &mut silent)? {
        Ok(checker) => checker.run_along(path),
        Err(lost) => Ok(lost),
    }
}

impl ChunkWay for Checker<'_> {
    fn held(&mut self, ino: Ino) -> Result<Held> {
        match self.core.islot(ino) {
            Ok(i) if i.d.in_use() => Ok(Held::Kind((i.d.kind() >> 12) as u8)),
            Ok(_) | Err(Error::Errno(_)) => Ok(Held::Nothing),
            Err(Error::Corrupt(_)) => Ok(Held::Damage),
            Err(e) => Err(e),
        }
    }

    fn check_alone(&mut self, ino: Ino) -> Result<()> {
        self.read_inode(ino.0 as u32)
    }

    fn each_page(&mut self, dir: u32, f: &mut dyn FnMut(&mut Self, Spot, &[u8])) -> Result<()> {
        let i = self.inode(dir)?;
        for lbn in 0..blocks_of(i.d.size.get()) {
            let (bytes, at) = (self.dir_bytes(&i, lbn)?, byte(self.core.find_block(&i, lbn)?));
            f(self, Spot { dir, offset: lbn << BLOCK_SHIFT, byte: at }, &bytes);
        }
        Ok(())
    }

    fn is_sound(&self) -> bool {
        self.f.is_empty()
    }
}
