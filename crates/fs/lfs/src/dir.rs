//! Directories: files of chunks (`kit::chunkdir`), whose pages are buffers. They grow by fragments, later by blocks, of
//! empty chunks, and do not shrink before they are removed.

use crate::format::*;
use crate::inode::{Inode, LINK_MAX};
use crate::volume::Core;
use arbor_base::cache::FileBlock;
use arbor_base::layout::Location;
use arbor_base::vfs::{Ino, Result};
use arbor_kit::chunkdir::{ChunkDirs, Hashes};
use arbor_kit::namespace::Node;
use std::sync::Arc;

/// The offset of an entry is the cookie of a walk, since entries do not move (LFS-D1).
impl ChunkDirs for Core {
    const ROOT: Ino = ROOT;

    fn facts(&self, i: &Inode) -> Node {
        let links = i.d.nlink.get();
        Node { ino: i.ino, mode: i.d.mode.get(), gid: i.d.gid.get(), links, is_full: links >= LINK_MAX }
    }

    fn dir_page(&mut self, dir: &Inode, lbn: u64) -> Result<Arc<Vec<u8>>> {
        self.whole_page(dir, lbn)
    }

    fn inode_location(&self, dir: &Inode) -> Location {
        Location::inode(dir.ino)
    }

    fn dir_modify(&mut self, dir: &Inode, index: u64, f: &mut dyn FnMut(&mut Vec<u8>)) -> Result<()> {
        self.mark(dir.ino)?;
        self.change(dir, FileBlock::Data(index), f)
    }

    fn dir_step(&self, lbn: u64) -> usize {
        if lbn < NDADDR as u64 { self.geom.frag_size() } else { self.geom.block_size() }
    }

    fn hashes(&mut self) -> &mut Hashes {
        &mut self.hashes
    }
}
