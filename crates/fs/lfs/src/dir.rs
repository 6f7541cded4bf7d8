//! Directories: files of chunks (`kit::chunkdir`), whose pages are buffers. They grow by fragments, later by blocks, of
//! empty chunks, and do not shrink before they are removed.

use crate::format::*;
use crate::inode::Inode;
use crate::mount::Core;
use arbor_base::cache::Name;
use arbor_base::layout::Location;
use arbor_base::vfs::{Errno, Result};
use arbor_kit::chunkdir::{ChunkDirs, Hashes, Room};
use std::sync::Arc;

impl ChunkDirs for Core {
    fn dir_page(&mut self, dir: &Inode, lbn: u64) -> Result<Arc<Vec<u8>>> {
        self.whole_page(dir, lbn)
    }

    fn inode_location(&self, dir: &Inode) -> Location {
        Location::inode(dir.ino)
    }

    fn dir_modify(&mut self, dir: &Inode, index: u64, f: &mut dyn FnMut(&mut Vec<u8>)) -> Result<()> {
        self.mark(dir.ino)?;
        self.change_way(dir, Place::Data(index))?;
        Ok(self.cache.modify(Name::Page { file: dir.ino.0, index }, f).ok_or(Errno::EIO)?)
    }

    fn dir_step(&self, lbn: u64) -> usize {
        if lbn < NDADDR as u64 { self.geom.frag_size() } else { self.geom.block_size() }
    }

    fn hashes(&mut self) -> &mut Hashes {
        &mut self.hashes
    }
}

impl Core {
    /// Room for an entry; the directory grows if there is none.
    pub fn dir_room(&mut self, dir: &mut Inode, name: &[u8]) -> Result<Room> {
        self.build_hash(dir)?;
        self.room_or_grow(dir, name)
    }
}
