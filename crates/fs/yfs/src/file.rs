//! Regular files: the map of extents, reading, delayed writing, truncation, holes (3.3, 3.4).
//!
//! | file | what |
//! |---|---|
//! | `map.rs` | the map: which logical fragment lies where |
//! | `read.rs` | from the cache, else from the device; looking for data and holes |
//! | `write.rs` | into the inode or into pages, with space reserved |
//! | `writeback.rs` | dirty pages get their addresses and are written there |
//! | `size.rs` | truncation and growth |
//! | `fallocate.rs` | preallocation, and punching holes |
//! | `target.rs` | symbolic links |
//!
//! A write that fits the inode goes there. Others go into pages of the cache and reserve space
//! ([`crate::delayed::Delayed`]). Write-back decides, once the size is known: inline in the inode, or extents, as
//! contiguous as the AG allows. The size on disk follows the data: it is logged by the transaction that makes the data
//! reachable, whose record waits for the data (YFS-C2).

mod fallocate;
mod map;
mod read;
mod size;
mod target;
mod write;
mod writeback;

pub(crate) use map::MapStore;

use crate::inode::Inode;
use crate::volume::Core;

impl Core {
    /// Bytes in a page of the cache: 4 KiB, or a fragment if that is larger.
    pub fn page_size(&self) -> u64 {
        self.geom.frag_size().max(4096)
    }

    fn page_frags(&self) -> u64 {
        self.page_size() >> self.geom.frag_shift
    }

    /// Size of a file with delayed writes.
    pub fn size_of(&self, i: &Inode) -> u64 {
        self.delayed.get(i.ino).map_or(i.d.size.get(), |d| d.size)
    }
}
