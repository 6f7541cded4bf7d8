//! Changes of names for engines that make all changes of a call durable together (LFS, plain, ReiserFS): their order
//! within the call matters to nobody. Not for FFS, which orders them.
//!
//! An engine that implements [`AtomicNames`] gets [`Namespace`](namespace::Namespace), through which `namespace.rs`
//! calls. Directories of chunks do so by [`ChunkNames`](crate::chunknames::ChunkNames).

use crate::blockfile::{BlockFile, UsualFields};
use crate::calls::State;
use crate::inodes::{InodeStore, InodeTable};
use crate::lifetimes::{self, Orphans};
use crate::namespace::{Move, Names, Namespace, NewInode, Node, Place, Target};
use arbor_base::vfs::{Attr, Errno, FileType, Ino, Result, Time, mode};

/// Entries of directories, and new inodes for them.
pub trait AtomicNames: Names + State + Orphans + InodeTable + InodeStore<Inode: UsualFields> {
    /// Room for a name, in a directory that was searched for it and grew if need be.
    type Vacancy;

    /// Finds room for a name. `ENOSPC` leaves nothing changed that anybody sees.
    fn vacancy(&mut self, dir: &mut Self::Inode, name: &[u8], room: &Self::Room) -> Result<Self::Vacancy>;

    /// Enters a name.
    fn enter(&mut self, dir: &Self::Inode, at: Self::Vacancy, name: &[u8], to: (Ino, FileType)) -> Result<()>;

    /// Enters a name, and touches its directory, which gets so many links more.
    fn enter_now(
        &mut self,
        dir: &Self::Inode,
        at: Self::Vacancy,
        name: &[u8],
        to: (Ino, FileType),
        (now, links): (Time, i32),
    ) -> Result<()> {
        self.enter(dir, at, name, to)?;
        touch(self, dir.ino(), now, links)
    }

    /// Removes an entry, and touches its directory.
    fn erase_now(&mut self, dir: &Self::Inode, name: &[u8], slot: &Self::Slot, now: Time) -> Result<()> {
        self.erase(dir, name, slot)?;
        touch(self, dir.ino(), now, 0)
    }

    /// Makes an entry name another inode.
    fn point(&mut self, dir: &Self::Inode, slot: &Self::Slot, to: (Ino, FileType)) -> Result<()>;

    /// Removes an entry.
    fn erase(&mut self, dir: &Self::Inode, name: &[u8], slot: &Self::Slot) -> Result<()>;

    /// Changes the parent that a directory names.
    fn set_parent(&mut self, dir: &Self::Inode, to: Ino) -> Result<()>;

    /// Brings in what is changed then, before anything is.
    fn ready_parent(&mut self, _dir: &Self::Inode) -> Result<()> {
        Ok(())
    }

    /// Notes that an inode was given another name: what it holds has to be durable with that, at the latest.
    fn note_moved(&mut self, _ino: Ino) {}

    /// Makes a new inode in a directory, with no name yet. A directory has two links.
    fn new_inode(&mut self, dir: Ino, mode: u32, owner: (u32, u32), now: Time) -> Result<Self::Inode>;

    /// Whether [`new_file`](AtomicNames::new_file) takes so many bytes.
    fn takes_bytes(&self, _len: usize) -> bool {
        false
    }

    /// Makes a new file in a directory, with no name yet, that holds `new.data`. `ENOSPC` leaves nothing changed.
    fn new_file(&mut self, _dir: Ino, _new: &NewInode<'_>, _now: Time) -> Result<Self::Inode> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// Makes the first contents of a new directory.
    fn begin_dir(&mut self, i: &mut Self::Inode, parent: Ino) -> Result<()>;

    /// Stores the target of a new symbolic link.
    fn put_target(&mut self, i: &mut Self::Inode, target: &[u8]) -> Result<()>;

    /// Fails with `ENOSPC` unless there is room for an inode that is about to be made, and for its first contents. An
    /// engine need not know it beforehand; the inode is freed again if its contents have no room.
    fn reserve_inode(&mut self, _new: &NewInode<'_>) -> Result<()> {
        Ok(())
    }
}

impl<C: AtomicNames> Namespace for C {
    fn make(&mut self, dir: &Node, name: &[u8], room: C::Room, new: &NewInode<'_>, now: Time) -> Result<Attr> {
        self.check_xattrs(new.xattrs)?;
        let mut parent = self.iget(dir.ino)?;
        self.reserve_inode(new)?;
        let at = self.vacancy(&mut parent, name, &room)?;
        let mut i = match new.data {
            [] => self.new_inode(dir.ino, new.mode, (new.uid, new.gid), now)?,
            _ => self.new_file(dir.ino, new, now)?,
        };
        let made = init_contents(self, &mut i, new, dir.ino);
        or_unmake(self, &mut i, made)?;
        self.enter_now(&parent, at, name, (i.ino(), i.file_type()), (now, i32::from(i.is_dir())))?;
        Ok(self.attr_of(&i))
    }

    fn takes_whole(&self, len: usize) -> bool {
        self.takes_bytes(len)
    }

    fn make_unnamed(&mut self, dir: &Node, new: &NewInode<'_>, now: Time) -> Result<Attr> {
        let mut i = self.new_inode(dir.ino, new.mode, (new.uid, new.gid), now)?;
        i.set_links(0);
        self.lives().refs.add(i.ino());
        lifetimes::orphan(self, &mut i)?;
        self.lives().set_unnamed(i.ino());
        Ok(self.attr_of(&i))
    }

    fn link(&mut self, dir: &Node, name: &[u8], room: C::Room, node: &Node, now: Time) -> Result<Attr> {
        let mut parent = self.iget(dir.ino)?;
        let at = self.vacancy(&mut parent, name, &room)?;
        let mut i = self.iget(node.ino)?;
        lifetimes::unorphan(self, &mut i)?;
        self.enter_now(&parent, at, name, (i.ino(), i.file_type()), (now, 0))?;
        i.set_links(i.links().saturating_add(1));
        i.set_changed(now);
        self.iput(&i)?;
        Ok(self.attr_of(&i))
    }

    fn remove(&mut self, dir: &Node, name: &[u8], slot: C::Slot, node: &Node, now: Time) -> Result<()> {
        let parent = self.iget(dir.ino)?;
        self.erase_now(&parent, name, &slot, now)?;
        drop_name(self, node, dir.ino, now)
    }

    fn rename(&mut self, m: Move<'_, C::Slot, C::Room>, now: Time) -> Result<()> {
        ready_move(self, &m.node, m.dir.ino, m.new_dir.ino)?;
        let mut new_dir = self.iget(m.new_dir.ino)?;
        let at = match &m.target {
            Target::Free(room) => Some(self.vacancy(&mut new_dir, m.new_name, room)?),
            Target::Replaced(..) => None,
        };
        // The target's directory may have grown in vain if no inode is left; that is no change which anybody sees.
        let white = m.whiteout.map(|cx| self.new_inode(m.dir.ino, mode::IFCHR, (cx.uid, cx.gid), now)).transpose()?;
        let moved = (m.node.ino, m.node.file_type());
        match (&m.target, at) {
            (Target::Replaced(slot, _), _) => self.point(&new_dir, slot, moved)?,
            (Target::Free(_), Some(at)) => self.enter(&new_dir, at, m.new_name, moved)?,
            (Target::Free(_), None) => return Err(Errno::EIO.into()),
        }
        // It may be the same directory, and have grown.
        let dir = self.iget(m.dir.ino)?;
        match white {
            Some(w) => self.point(&dir, &m.slot, (w.ino(), FileType::Char))?,
            None => self.erase(&dir, m.name, &m.slot)?,
        }
        reparent(self, &m.node, m.dir.ino, m.new_dir.ino, now)?;
        if let Target::Replaced(_, target) = &m.target {
            drop_name(self, target, m.new_dir.ino, now)?;
        }
        touch(self, m.dir.ino, now, 0)?;
        touch(self, m.new_dir.ino, now, 0)
    }

    fn exchange(&mut self, a: Place<C::Slot>, b: Place<C::Slot>, now: Time) -> Result<()> {
        ready_move(self, &a.node, a.dir.ino, b.dir.ino)?;
        ready_move(self, &b.node, b.dir.ino, a.dir.ino)?;
        for (place, comes, from) in [(&a, &b.node, b.dir.ino), (&b, &a.node, a.dir.ino)] {
            let dir = self.iget(place.dir.ino)?;
            self.point(&dir, &place.slot, (comes.ino, comes.file_type()))?;
            reparent(self, comes, from, place.dir.ino, now)?;
        }
        touch(self, a.dir.ino, now, 0)?;
        touch(self, b.dir.ino, now, 0)
    }
}

/// Makes the first contents of a new inode.
fn init_contents<C: AtomicNames>(core: &mut C, i: &mut C::Inode, new: &NewInode<'_>, parent: Ino) -> Result<()> {
    match new.file_type() {
        FileType::Dir => core.begin_dir(i, parent)?,
        FileType::Symlink => core.put_target(i, new.target)?,
        FileType::Char | FileType::Block => {
            i.set_rdev(new.rdev);
            core.iput(i)?;
        }
        _ => {}
    }
    if new.xattrs.is_empty() { Ok(()) } else { core.xattr_store(i, new.xattrs) }
}

/// Passes on how making the first contents of a new inode went; frees the inode again if there was no space.
pub fn or_unmake<C: AtomicNames, R>(core: &mut C, i: &mut C::Inode, made: Result<R>) -> Result<R> {
    if made.as_ref().is_err_and(|e| e.errno() == Errno::ENOSPC) {
        i.set_links(0);
        core.iput(i)?;
        lifetimes::abandon(core, i)?;
    }
    made
}

/// Sets mtime and ctime of a directory that was changed now, and adds to its link count, or subtracts.
fn touch<C: AtomicNames>(core: &mut C, dir: Ino, now: Time, by: i32) -> Result<()> {
    let mut i = core.iget(dir)?;
    i.set_modified(now);
    i.set_links(i.links().saturating_add_signed(by));
    core.iput(&i)
}

/// Lowers the link counts for a name of an inode that was removed, or replaced.
fn drop_name<C: AtomicNames>(core: &mut C, node: &Node, parent: Ino, now: Time) -> Result<()> {
    if node.is_dir() {
        touch(core, parent, now, -1)?;
    }
    let mut i = core.iget(node.ino)?;
    i.set_changed(now);
    // A directory's name was its last, and its dot goes with it.
    i.set_links(if node.is_dir() { 0 } else { i.links().saturating_sub(1) });
    if i.links() > 0 { core.iput(&i) } else { lifetimes::lost(core, &mut i) }
}

/// Brings in what moving an inode to another directory changes of it, before anything is changed.
fn ready_move<C: AtomicNames>(core: &mut C, node: &Node, from: Ino, to: Ino) -> Result<()> {
    let i = core.iget(node.ino)?;
    if node.is_dir() && from != to { core.ready_parent(&i) } else { Ok(()) }
}

/// Adjusts link counts and the parent of an inode that was moved to another directory, or within its own.
fn reparent<C: AtomicNames>(core: &mut C, node: &Node, from: Ino, to: Ino, now: Time) -> Result<()> {
    let mut i = core.iget(node.ino)?;
    i.set_changed(now);
    core.iput(&i)?;
    core.note_moved(node.ino);
    if !node.is_dir() || from == to {
        return Ok(());
    }
    core.set_parent(&i, to)?;
    touch(core, to, now, 1)?;
    touch(core, from, now, -1)
}
