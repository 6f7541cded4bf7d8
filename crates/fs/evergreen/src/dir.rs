//! Directories: files of chunks (`kit::chunkdir`), whose pages are buffers. They grow by blocks of empty chunks, and do not
//! shrink before they are removed. An entry stays where it is, so that a walk's cookie can be its place (EVERGREEN-D1).

use crate::decoded::Inode;
use crate::format::*;
use crate::inode::LINK_MAX;
use crate::volume::Core;
use arbor_base::cache::FileBlock;
use arbor_base::field;
use arbor_base::layout::Location;
use arbor_base::vfs::{Ino, Result};
use arbor_kit::blockfile::BlockFiles as _;
use arbor_kit::chunkdir::{ChunkDirs, Hashes};
use arbor_kit::namespace::Node;
use std::sync::Arc;

impl ChunkDirs for Core {
    const ROOT: Ino = ROOT;

    fn facts(&self, i: &Inode) -> Node {
        let links = i.d.nlink.get();
        Node { ino: i.ino, mode: i.d.mode.get(), gid: i.d.gid.get(), links, is_full: links >= LINK_MAX }
    }

    fn dir_page(&mut self, dir: &Inode, index: u64) -> Result<Arc<Vec<u8>>> {
        self.page(dir, index)?.ok_or_else(|| dir.corrupt(field!(Dinode, map), index, "no hole in a directory").into())
    }

    fn inode_location(&self, dir: &Inode) -> Location {
        Location::inode(dir.ino)
    }

    fn dir_modify(&mut self, dir: &Inode, index: u64, f: &mut dyn FnMut(&mut Vec<u8>)) -> Result<()> {
        self.change(&mut dir.clone(), FileBlock::Data(index), f)
    }

    fn hashes(&mut self) -> &mut Hashes {
        &mut self.hashes
    }

    fn dir_step(&self, _lbn: u64) -> usize {
        BLOCK
    }
}
