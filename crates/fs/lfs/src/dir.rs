//! Directories: files of chunks (`kit::chunkdir`), whose pages are buffers. They grow by fragments, later by blocks, of
//! empty chunks, and do not shrink before they are removed.

use crate::format::*;
use crate::inode::Inode;
use crate::mount::Core;
use arbor_base::cache::Name;
use arbor_base::vfs::{Errno, Ino, Result};
use arbor_kit::chunkdir::{ChunkDirs, Hashes, Room};
use arbor_kit::dirent::empty_chunks;
use std::sync::Arc;

impl ChunkDirs for Core {
    type Dir = Inode;

    fn ino_of(dir: &Inode) -> Ino {
        dir.ino
    }

    fn size_of(dir: &Inode) -> u64 {
        dir.size()
    }

    fn page_shift(&self) -> u32 {
        self.geom.block_shift
    }

    fn dir_page(&mut self, dir: &Inode, lbn: u64) -> Result<Arc<Vec<u8>>> {
        self.whole_page(dir, lbn)
    }

    fn dir_modify(&mut self, dir: &Inode, index: u64, f: &mut dyn FnMut(&mut Vec<u8>)) -> Result<()> {
        self.mark(dir.ino)?;
        self.change_way(dir, Place::Data(index))?;
        Ok(self.cache.modify(Name::Page { file: dir.ino.0, index }, f).ok_or(Errno::EIO)?)
    }

    fn hashes(&mut self) -> &mut Hashes {
        &mut self.hashes
    }
}

impl Core {
    /// Room for an entry; the directory grows if there is none.
    pub fn dir_room(&mut self, dir: &mut Inode, name: &[u8]) -> Result<Room> {
        let need = dirent_len(name.len());
        self.build_hash(dir)?;
        if let Some(room) = self.find_room(dir, need)? {
            return Ok(room);
        }
        self.dir_grow(dir)?;
        self.find_room(dir, need)?.ok_or_else(|| dir.corrupt("size", dir.size(), "room for an entry").into())
    }

    fn dir_grow(&mut self, dir: &mut Inode) -> Result<()> {
        let geom = self.geom;
        let lbn = geom.lbn(dir.size());
        let step = if lbn < NDADDR as u64 { geom.frag_size() } else { geom.block_size() };
        let size = dir.size() + step as u64;
        if size > geom.max_size().min(1 << 32) {
            return Err(Errno::ENOSPC.into());
        }
        if dir.size() > lbn << geom.block_shift {
            self.whole_page(dir, lbn)?;
        } else {
            self.cache.insert(Name::Page { file: dir.ino.0, index: lbn }, Arc::new(Vec::new()));
        }
        self.alloc_block(dir, lbn, size, &mut |buf, len| {
            let more = len.saturating_sub(buf.len());
            buf.extend_from_slice(&empty_chunks(more));
        })?;
        self.hashes.grow(dir.ino, size);
        Ok(())
    }
}
