//! The calls: changes of names and attributes.
//!
//! The rules of names are in `kit::namespace`, reading and writing in `kit::blockfile`. A call changes buffers;
//! `commit.rs` makes all of them durable when it ends.

use crate::format::*;
use crate::inode::Inode;
use crate::volume::Core;
use arbor_base::cache::Name;
use arbor_base::device::{Kind, Request};
use arbor_base::vfs::*;
use arbor_kit::chunkdir::{ChunkDirs, Found, Room};
use arbor_kit::dirent::{DOTDOT_AT, first_chunks};
use arbor_kit::inodes::InodeTable as _;
use arbor_kit::namespace::{Move, Namespace, NewInode, Node, Place, Target};
use arbor_kit::{blockfile::BlockFiles as _, lifetimes, locked};
use std::sync::Arc;

impl Namespace for Core {
    fn make(&mut self, dir: &Node, name: &[u8], (): (), new: &NewInode<'_>, now: Time) -> Result<Attr> {
        self.check_xattrs(new.xattrs)?;
        let room = self.dir_room(dir.ino, name)?;
        // Blocks for the rest; an inode may still be missing.
        self.need(2)?;
        let mut i = self.inew(new.mode, (new.uid, new.gid), now)?;
        self.init_contents(&mut i, new, dir.ino)?;
        self.enter(room, name, i.ino, new.file_type(), now)?;
        if i.is_dir() {
            self.add_links(dir.ino, 1, now)?;
        }
        Ok(self.attr_of(&i))
    }

    fn make_unnamed(&mut self, _dir: &Node, new: &NewInode<'_>, now: Time) -> Result<Attr> {
        let mut i = self.inew(new.mode, (new.uid, new.gid), now)?;
        i.d.nlink = 0.into();
        self.calls.lives.refs.add(i.ino);
        lifetimes::orphan(self, &mut i)?;
        self.calls.lives.set_unnamed(i.ino);
        Ok(self.attr_of(&i))
    }

    fn link(&mut self, dir: &Node, name: &[u8], (): (), node: &Node, now: Time) -> Result<Attr> {
        let room = self.dir_room(dir.ino, name)?;
        self.enter(room, name, node.ino, node.file_type(), now)?;
        let mut i = self.iget(node.ino)?;
        lifetimes::unorphan(self, &mut i)?;
        i.add_links(1, now);
        self.iput(&i)?;
        Ok(self.attr_of(&i))
    }

    fn remove(&mut self, dir: &Node, name: &[u8], slot: Found, node: &Node, now: Time) -> Result<()> {
        let parent = self.iget(dir.ino)?;
        self.dir_remove(&parent, name, slot.at, false)?;
        self.touch_dir(dir.ino, now)?;
        self.drop_name(node, dir.ino, now)
    }

    fn rename(&mut self, m: Move<'_, Found, ()>, now: Time) -> Result<()> {
        let (from, to, t) = (m.dir.ino, m.new_dir.ino, m.node.file_type());
        if m.whiteout.is_some() && self.sb.inodes.free.get() == 0 {
            return Err(Errno::ENOSPC.into());
        }
        match &m.target {
            Target::Free(()) => {
                let room = self.dir_room(to, m.new_name)?;
                self.enter(room, m.new_name, m.node.ino, t, now)?;
            }
            Target::Replaced(at, _) => {
                let dir = self.iget(to)?;
                self.dir_replace(&dir, at.at, m.node.ino, t)?;
            }
        }
        let white = m.whiteout.map(|cx| self.inew(mode::IFCHR, (cx.uid, cx.gid), now)).transpose()?;
        let dir = self.iget(from)?;
        match white {
            Some(w) => self.dir_replace(&dir, m.slot.at, w.ino, FileType::Char)?,
            None => self.dir_remove(&dir, m.name, m.slot.at, false)?,
        }
        self.reparent(&m.node, from, to, now)?;
        self.touch_dir(from, now)?;
        self.touch_dir(to, now)?;
        match &m.target {
            Target::Replaced(_, target) => self.drop_name(target, to, now),
            Target::Free(()) => Ok(()),
        }
    }

    fn exchange(&mut self, a: Place<Found>, b: Place<Found>, now: Time) -> Result<()> {
        for (place, comes, from) in [(&a, &b.node, &b.dir), (&b, &a.node, &a.dir)] {
            let dir = self.iget(place.dir.ino)?;
            self.dir_replace(&dir, place.slot.at, comes.ino, comes.file_type())?;
            self.reparent(comes, from.ino, place.dir.ino, now)?;
            self.touch_dir(place.dir.ino, now)?;
        }
        Ok(())
    }
}

impl Core {
    /// Finds room for a name in a directory, which grows if there is none.
    pub fn dir_room(&mut self, dir: Ino, name: &[u8]) -> Result<(Inode, Room)> {
        let mut dir = self.iget(dir)?;
        self.build_hash(&dir)?;
        let room = self.room_or_grow(&mut dir, name)?;
        Ok((dir, room))
    }

    /// Enters a name in the room found for it.
    pub fn enter(&mut self, (dir, room): (Inode, Room), name: &[u8], ino: Ino, t: FileType, now: Time) -> Result<()> {
        self.dir_insert(&dir, room, name, ino, t)?;
        self.touch_dir(dir.ino, now)
    }

    /// Makes the first contents of a new inode.
    fn init_contents(&mut self, i: &mut Inode, new: &NewInode<'_>, parent: Ino) -> Result<()> {
        match new.file_type() {
            FileType::Dir => self.init_dir(i, parent)?,
            FileType::Symlink => self.store_target(i, new.target)?,
            _ => i.d.rdev = new.rdev.into(),
        }
        self.xattr_store(i, new.xattrs)
    }

    /// Makes the first block of a directory.
    pub fn init_dir(&mut self, i: &mut Inode, parent: Ino) -> Result<()> {
        let ino = i.ino;
        self.cache.insert(Name::data(ino, 0), Arc::new(Vec::new()));
        self.balloc(i, 0, BLOCK as u64, &mut |buf, len| *buf = first_chunks(len, ino, parent))
    }

    /// Sets the times of a directory that was changed now.
    fn touch_dir(&mut self, dir: Ino, now: Time) -> Result<()> {
        let mut i = self.iget(dir)?;
        (i.d.mtime, i.d.ctime) = (now.into(), now.into());
        self.iput(&i)
    }

    /// Lowers the link counts for a removed name of an inode.
    fn drop_name(&mut self, node: &Node, parent: Ino, now: Time) -> Result<()> {
        if node.is_dir() {
            self.add_links(parent, -1, now)?;
        }
        self.unlinked(node.ino, now)
    }

    /// Adjusts link counts and the parent after an inode was moved to another directory, or in its own.
    fn reparent(&mut self, node: &Node, from: Ino, to: Ino, now: Time) -> Result<()> {
        self.add_links(node.ino, 0, now)?;
        if !node.is_dir() || from == to {
            return Ok(());
        }
        let i = self.iget(node.ino)?;
        self.dir_replace(&i, DOTDOT_AT as u64, to, FileType::Dir)?;
        self.add_links(to, 1, now)?;
        self.add_links(from, -1, now)
    }
}

impl locked::Core for Core {
    fn has_writeback_pressure(&self) -> bool {
        false
    }

    fn background(&mut self, now: Time) -> Result<Time> {
        // The changes of a call are durable when it returns.
        Ok(now.plus_ms(60_000))
    }

    fn finish(&mut self) -> Result<()> {
        self.sb.clean = u32::from(!self.calls.health.has_met_damage()).into();
        self.touch_super();
        self.write_changes()?;
        self.flush()
    }

    fn sync_file(&mut self, _ino: Ino) -> Result<()> {
        self.sync_all()
    }

    fn sync_all(&mut self) -> Result<()> {
        self.write_changes()?;
        self.flush()
    }

    fn label(&mut self) -> Result<Vec<u8>> {
        Ok(label_of(&self.sb.label))
    }

    fn set_label(&mut self, field: [u8; 64]) -> Result<()> {
        self.sb.label = field;
        self.touch_super();
        self.put_super(self.geom.copy(), self.sb.copy())
    }

    fn statfs(&mut self) -> Result<StatFs> {
        let (space, inodes) = (self.sb.space, self.sb.inodes);
        let free = space.free.get().into();
        Ok(StatFs {
            bsize: BLOCK as u32,
            frsize: BLOCK as u32,
            blocks: space.count.get().into(),
            bfree: free,
            bavail: free,
            files: u64::from(inodes.count.get()) - ROOT.0,
            ffree: inodes.free.get().into(),
            namelen: 255,
            fsid: self.geom.fsid,
        })
    }

    /// Discards the free blocks that one block of the bitmap covers, in each step.
    fn trim_step(&mut self, range: &TrimRange, from: u64) -> Result<(u64, Option<u64>)> {
        range.check(byte(self.geom.blocks), BLOCK as u64, byte(BITS))?;
        if self.dev.geometry().discard_unit == 0 {
            return Ok((0, None));
        }
        let runs = self.free_runs(from as u32)?.into_iter().map(|(block, blocks)| (byte(block), byte(blocks)));
        let parts: Vec<(u64, u64)> = runs.filter_map(|run| range.part(run, BLOCK as u64)).collect();
        let requests = parts.iter().map(|part| Request::discard(Kind::Data, part.0, part.1)).collect();
        self.calls.reads.submit(&*self.dev, requests).wait_all()?;
        let next = (from + 1 < u64::from(self.geom.space.div_ceil(BITS))).then_some(from + 1);
        Ok((parts.iter().map(|part| part.1).sum(), next))
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let own = [("log_records", self.log.records), ("log_bytes", self.log.bytes)];
        self.cache.counters().into_iter().chain(self.io.named()).chain(own).collect()
    }
}
