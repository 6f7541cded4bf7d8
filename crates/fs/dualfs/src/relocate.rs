//! On-line metadata relocation (section 2.2): what is read is written to the log again, with what is read at the same time,
//! so that it lies together when it is read the next time.
//!
//! Of a file that was read its indirect blocks and its inode are relocated, of a directory its blocks, too. It happens when
//! a set is written; what lies in the segment that is being filled stays, and what is no longer in memory. (In the paper an
//! inode is written because its access time changes. Here access times are those of the mount, and the inode is written as
//! it is.)

use crate::decoded::Inode;
use crate::format::*;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::vfs::{Error, Ino, Result};
use arbor_kit::blockmap::BlockMap as _;

/// Files that are noted as read at most, until the next set.
pub(crate) const MOST_FILES: usize = 4096;

impl Core {
    /// Makes dirty what is to be relocated, as far as there is room in the log.
    pub fn relocate_read(&mut self) -> Result<()> {
        let mut room = self.room_to_relocate();
        for ino in std::mem::take(&mut self.read) {
            if room == 0 {
                break;
            }
            if !self.cache.contains(Name::Inode(ino)) {
                continue;
            }
            match self.relocate(ino) {
                Ok(moved) => room = room.saturating_sub(moved),
                // Who reads it again is told.
                Err(Error::Corrupt(_) | Error::Errno(_) | Error::Io(_)) => self.calls.health.note_damage(),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Metadata blocks that may be relocated with the next set: not what the cleaner would have to make room for.
    fn room_to_relocate(&self) -> u64 {
        let clean = self.segs.clean.len().saturating_sub(u64::from(self.least_clean() + self.reserve() / 2));
        clean / 2 * u64::from(self.geom.seg_blocks())
    }

    /// Makes the metadata of a file dirty that lie elsewhere than where the log goes on; returns how many blocks.
    fn relocate(&mut self, ino: Ino) -> Result<u64> {
        let i = self.inode(ino)?;
        let mut parts: Vec<FileBlock> = Vec::new();
        if i.is_dir() {
            let pages = self.geom.blocks_for(i.size());
            parts.extend((0..pages.min(MOST_FILES as u64)).map(FileBlock::Data));
        }
        // What there is of its map is as long as it has blocks.
        if i.d.ib.iter().any(|p| p.block.get() != 0) {
            parts.extend(self.cache.map_of(ino));
        }
        let mut moved = 0;
        for part in parts {
            moved += u64::from(self.relocate_part(&i, part)?);
        }
        let entry = self.map_entry(ino)?;
        if moved > 0 || self.is_apart(MetaBlock(entry.block.get())) {
            self.mark(ino)?;
            moved += 1;
        }
        self.counters.relocated += moved;
        Ok(moved)
    }

    /// Whether a block lies in the log, but not in the segment that is being filled.
    fn is_apart(&self, block: MetaBlock) -> bool {
        self.geom.seg_of(block).is_some_and(|seg| seg != self.log.seg)
    }

    fn relocate_part(&mut self, i: &Inode, part: FileBlock) -> Result<bool> {
        let name = Name::File(i.ino, part);
        if !self.cache.contains(name) || self.cache.is_dirty(name) {
            return Ok(false);
        }
        let p = self.pointer(i, part)?;
        if !p.is_placed() || !self.is_apart(MetaBlock(p.block.get())) {
            return Ok(false);
        }
        self.mark(i.ino)?;
        self.change(i, part, |_| ())?;
        Ok(true)
    }
}
