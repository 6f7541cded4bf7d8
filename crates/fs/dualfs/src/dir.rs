//! Directories: files of chunks (`kit::chunkdir`), whose pages are buffers. They grow by blocks, of empty chunks, and do not
//! shrink before they are removed.

use crate::decoded::Inode;
use crate::format::*;
use crate::inode::LINK_MAX;
use crate::volume::Core;
use arbor_base::cache::FileBlock;
use arbor_base::layout::Location;
use arbor_base::vfs::{Ino, Result};
use arbor_kit::chunkdir::{ChunkDirs, Hashes};
use arbor_kit::namespace::Node;
use std::sync::Arc;

/// The offset of an entry is the cookie of a walk, since entries do not move (DUALFS-D1).
impl ChunkDirs for Core {
    const ROOT: Ino = ROOT;

    fn facts(&self, i: &Inode) -> Node {
        let (mode, gid, links) = (i.d.mode.get(), i.d.gid.get(), i.d.nlink.get());
        Node { ino: i.ino, mode, gid, links, is_full: links >= LINK_MAX }
    }

    fn dir_page(&mut self, dir: &Inode, lbn: u64) -> Result<Arc<Vec<u8>>> {
        self.note_read(dir.ino);
        let page = self.meta_page(dir, lbn)?;
        Ok(page.ok_or_else(|| dir.corrupt("db", lbn, "a block, not a hole"))?)
    }

    fn inode_location(&self, dir: &Inode) -> Location {
        Location::inode(dir.ino)
    }

    fn dir_modify(&mut self, dir: &Inode, lbn: u64, f: &mut dyn FnMut(&mut Vec<u8>)) -> Result<()> {
        self.mark(dir.ino)?;
        self.change(dir, FileBlock::Data(lbn), f)
    }

    fn dir_step(&self, _lbn: u64) -> usize {
        self.geom.block()
    }

    fn hashes(&mut self) -> &mut Hashes {
        &mut self.hashes
    }
}
