//! Changes of names in directories of chunks ([`chunkdir`](super::chunkdir)), for engines that make all changes of a
//! call durable together (LFS, plain): their order within the call matters to nobody. Not for FFS, which orders them.
//!
//! An engine that implements [`ChunkNames`] gets [`Namespace`](namespace::Namespace), through which `namespace.rs`
//! calls. The checkers make lost+found by the functions of this module (`lostfound.rs`).

use crate::blockfile::{BlockFile, UsualFields};
use crate::chunkdir::{ChunkDirs, Found, Room};
use crate::dirent::{DOTDOT_AT, first_chunks};
use crate::inodes::InodeStore;
use crate::lifetimes::{self, Orphans};
use crate::namespace::{Move, Namespace, NewInode, Node, Place, Target};
use arbor_base::vfs::{Attr, Errno, FileType, Ino, Result, Time, mode};

/// Inodes that are made, for names in directories of chunks.
pub trait ChunkNames: ChunkDirs + Orphans + InodeStore<Inode: UsualFields> {
    /// Makes a new inode, with no name yet. A directory has two links.
    fn inew(&mut self, mode: u32, owner: (u32, u32), now: Time) -> Result<Self::Inode>;

    /// Stores the target of a new symbolic link.
    fn store_target(&mut self, i: &mut Self::Inode, target: &[u8]) -> Result<()>;

    /// Fails with `ENOSPC` unless there is room for the first contents of an inode that is about to be made. An engine
    /// need not know it beforehand; the inode is freed again if its contents have no room.
    fn reserve_contents(&mut self) -> Result<()> {
        Ok(())
    }
}

impl<C: ChunkNames> Namespace for C {
    fn make(&mut self, dir: &Node, name: &[u8], (): (), new: &NewInode<'_>, now: Time) -> Result<Attr> {
        self.check_xattrs(new.xattrs)?;
        let mut parent = self.iget(dir.ino)?;
        let room = room_for(self, &mut parent, name)?;
        self.reserve_contents()?;
        let mut i = self.inew(new.mode, (new.uid, new.gid), now)?;
        let made = init_contents(self, &mut i, new, dir.ino);
        or_unmake(self, &mut i, made)?;
        self.dir_insert(&parent, room, name, i.ino(), i.file_type())?;
        touch(self, dir.ino, now, i32::from(i.is_dir()))?;
        Ok(self.attr_of(&i))
    }

    fn make_unnamed(&mut self, _dir: &Node, new: &NewInode<'_>, now: Time) -> Result<Attr> {
        let mut i = self.inew(new.mode, (new.uid, new.gid), now)?;
        i.set_links(0);
        self.lives().refs.add(i.ino());
        lifetimes::orphan(self, &mut i)?;
        self.lives().set_unnamed(i.ino());
        Ok(self.attr_of(&i))
    }

    fn link(&mut self, dir: &Node, name: &[u8], (): (), node: &Node, now: Time) -> Result<Attr> {
        let mut parent = self.iget(dir.ino)?;
        let room = room_for(self, &mut parent, name)?;
        let mut i = self.iget(node.ino)?;
        lifetimes::unorphan(self, &mut i)?;
        self.dir_insert(&parent, room, name, i.ino(), i.file_type())?;
        touch(self, dir.ino, now, 0)?;
        i.set_links(i.links().saturating_add(1));
        i.set_changed(now);
        self.iput(&i)?;
        Ok(self.attr_of(&i))
    }

    fn remove(&mut self, dir: &Node, name: &[u8], slot: Found, node: &Node, now: Time) -> Result<()> {
        let parent = self.iget(dir.ino)?;
        self.dir_remove(&parent, name, slot.at, false)?;
        touch(self, dir.ino, now, 0)?;
        drop_name(self, node, dir.ino, now)
    }

    fn rename(&mut self, m: Move<'_, Found, ()>, now: Time) -> Result<()> {
        let mut new_dir = self.iget(m.new_dir.ino)?;
        let room = match &m.target {
            Target::Free(()) => Some(room_for(self, &mut new_dir, m.new_name)?),
            Target::Replaced(..) => None,
        };
        // The target's directory may have grown in vain if no inode is left; that is no change which anybody sees.
        let white = m.whiteout.map(|cx| self.inew(mode::IFCHR, (cx.uid, cx.gid), now)).transpose()?;
        let (moved, t) = (m.node.ino, m.node.file_type());
        match (&m.target, room) {
            (Target::Replaced(slot, _), _) => self.dir_replace(&new_dir, slot.at, moved, t)?,
            (Target::Free(()), Some(room)) => drop(self.dir_insert(&new_dir, room, m.new_name, moved, t)?),
            (Target::Free(()), None) => return Err(Errno::EIO.into()),
        }
        // It may be the same directory, and have grown.
        let dir = self.iget(m.dir.ino)?;
        match white {
            Some(w) => self.dir_replace(&dir, m.slot.at, w.ino(), FileType::Char)?,
            None => self.dir_remove(&dir, m.name, m.slot.at, false)?,
        }
        reparent(self, &m.node, m.dir.ino, m.new_dir.ino, now)?;
        if let Target::Replaced(_, target) = &m.target {
            drop_name(self, target, m.new_dir.ino, now)?;
        }
        touch(self, m.dir.ino, now, 0)?;
        touch(self, m.new_dir.ino, now, 0)
    }

    fn exchange(&mut self, a: Place<Found>, b: Place<Found>, now: Time) -> Result<()> {
        for (place, comes, from) in [(&a, &b.node, b.dir.ino), (&b, &a.node, a.dir.ino)] {
            let dir = self.iget(place.dir.ino)?;
            self.dir_replace(&dir, place.slot.at, comes.ino, comes.file_type())?;
            reparent(self, comes, from, place.dir.ino, now)?;
        }
        touch(self, a.dir.ino, now, 0)?;
        touch(self, b.dir.ino, now, 0)
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

/// Makes the first contents of a new inode.
fn init_contents<C: ChunkNames>(core: &mut C, i: &mut C::Inode, new: &NewInode<'_>, parent: Ino) -> Result<()> {
    match new.file_type() {
        FileType::Dir => init_dir(core, i, parent)?,
        FileType::Symlink => core.store_target(i, new.target)?,
        FileType::Char | FileType::Block => {
            i.set_rdev(new.rdev);
            core.iput(i)?;
        }
        _ => {}
    }
    if new.xattrs.is_empty() { Ok(()) } else { core.xattr_store(i, new.xattrs) }
}

/// Passes on how making the first contents of a new inode went; frees the inode again if there was no space.
pub fn or_unmake<C: ChunkNames, R>(core: &mut C, i: &mut C::Inode, made: Result<R>) -> Result<R> {
    if made.as_ref().is_err_and(|e| e.errno() == Errno::ENOSPC) {
        i.set_links(0);
        core.iput(i)?;
        lifetimes::abandon(core, i)?;
    }
    made
}

/// Sets mtime and ctime of a directory that was changed now, and adds to its link count, or subtracts.
fn touch<C: ChunkNames>(core: &mut C, dir: Ino, now: Time, by: i32) -> Result<()> {
    let mut i = core.iget(dir)?;
    i.set_modified(now);
    i.set_links(i.links().saturating_add_signed(by));
    core.iput(&i)
}

/// Lowers the link counts for a name of an inode that was removed, or replaced.
fn drop_name<C: ChunkNames>(core: &mut C, node: &Node, parent: Ino, now: Time) -> Result<()> {
    if node.is_dir() {
        touch(core, parent, now, -1)?;
    }
    let mut i = core.iget(node.ino)?;
    i.set_changed(now);
    // A directory's name was its last, and its dot goes with it.
    i.set_links(if node.is_dir() { 0 } else { i.links().saturating_sub(1) });
    if i.links() > 0 { core.iput(&i) } else { lifetimes::lost(core, &mut i) }
}

/// Adjusts link counts and the parent of an inode that was moved to another directory, or within its own.
fn reparent<C: ChunkNames>(core: &mut C, node: &Node, from: Ino, to: Ino, now: Time) -> Result<()> {
    let mut i = core.iget(node.ino)?;
    i.set_changed(now);
    core.iput(&i)?;
    if !node.is_dir() || from == to {
        return Ok(());
    }
    core.dir_replace(&i, DOTDOT_AT as u64, to, FileType::Dir)?;
    touch(core, to, now, 1)?;
    touch(core, from, now, -1)
}
