//! Changes of names in directories of chunks ([`chunkdir`](super::chunkdir)), for engines that make all changes of a
//! call durable together (LFS, plain).
//!
//! An engine that implements [`ChunkNames`] gets [`AtomicNames`] by it.

use crate::atomicnames::AtomicNames;
use crate::blockfile::{BlockFile, UsualFields};
use crate::chunkdir::{ChunkDirs, Found, Room};
use crate::dirent::{DOTDOT_AT, first_chunks};
use crate::inodes::InodeStore;
use crate::lifetimes::Orphans;
use crate::namespace::NewInode;
use arbor_base::vfs::{FileType, Ino, Result, Time};

/// Inodes that are made, for names in directories of chunks.
pub trait ChunkNames: ChunkDirs + Orphans + InodeStore<Inode: UsualFields> {
    /// Makes a new inode that is going to have a name in directory `dir`, and has none yet. A directory has two links.
    fn inew(&mut self, dir: Ino, mode: u32, owner: (u32, u32), now: Time) -> Result<Self::Inode>;

    /// See [`AtomicNames::note_moved`].
    fn note_moved(&mut self, _ino: Ino) {}

    /// Stores the target of a new symbolic link.
    fn store_target(&mut self, i: &mut Self::Inode, target: &[u8]) -> Result<()>;

    /// Fails with `ENOSPC` unless there is room for the first contents of an inode that is about to be made. An engine
    /// need not know it beforehand; the inode is freed again if its contents have no room.
    fn reserve_contents(&mut self, _new: &NewInode<'_>) -> Result<()> {
        Ok(())
    }
}

impl<C: ChunkNames> AtomicNames for C {
    type Vacancy = Room;

    fn vacancy(&mut self, dir: &mut C::Inode, name: &[u8], (): &()) -> Result<Room> {
        room_for(self, dir, name)
    }

    fn enter(&mut self, dir: &C::Inode, at: Room, name: &[u8], (ino, t): (Ino, FileType)) -> Result<()> {
        self.dir_insert(dir, at, name, ino, t).map(drop)
    }

    fn point(&mut self, dir: &C::Inode, slot: &Found, (ino, t): (Ino, FileType)) -> Result<()> {
        self.dir_replace(dir, slot.at, ino, t)
    }

    fn erase(&mut self, dir: &C::Inode, name: &[u8], slot: &Found) -> Result<()> {
        self.dir_remove(dir, name, slot.at, false)
    }

    fn set_parent(&mut self, dir: &C::Inode, to: Ino) -> Result<()> {
        self.dir_replace(dir, DOTDOT_AT as u64, to, FileType::Dir)
    }

    fn ready_parent(&mut self, dir: &C::Inode) -> Result<()> {
        self.dir_page(dir, 0).map(drop)
    }

    fn note_moved(&mut self, ino: Ino) {
        ChunkNames::note_moved(self, ino);
    }

    fn new_inode(&mut self, dir: Ino, mode: u32, owner: (u32, u32), now: Time) -> Result<C::Inode> {
        self.inew(dir, mode, owner, now)
    }

    fn begin_dir(&mut self, i: &mut C::Inode, parent: Ino) -> Result<()> {
        init_dir(self, i, parent)
    }

    fn put_target(&mut self, i: &mut C::Inode, target: &[u8]) -> Result<()> {
        self.store_target(i, target)
    }

    fn reserve_inode(&mut self, new: &NewInode<'_>) -> Result<()> {
        self.reserve_contents(new)
    }
}

/// Finds room for a name in a directory, which grows if there is none.
pub fn room_for<C: ChunkNames>(core: &mut C, dir: &mut C::Inode, name: &[u8]) -> Result<Room> {
    core.build_hash(dir)?;
    core.room_or_grow(dir, name)
}

/// Makes the first block of a new directory, of as many bytes as directories grow by.
pub fn init_dir<C: ChunkNames>(core: &mut C, i: &mut C::Inode, parent: Ino) -> Result<()> {
    let (ino, len) = (i.ino(), core.dir_step(0));
    core.dir_new_page(i, 0)?;
    core.balloc(i, 0, len as u64, &mut |buf, len| *buf = first_chunks(len, ino, parent))
}
