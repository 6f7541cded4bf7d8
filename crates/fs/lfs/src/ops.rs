//! The calls: changes of names, attributes and data.
//!
//! The rules of names are in `kit::namespace`. A call changes buffers; they are written with all other changes in a
//! group, so that a crash leaves all of the call or nothing.

use crate::format::*;
use crate::inode::Inode;
use crate::segments::SHARES;
use crate::superblock;
use crate::volume::Core;
use arbor_base::cache::Name;
use arbor_base::vfs::*;
use arbor_kit::chunkdir::{ChunkDirs, Found};
use arbor_kit::dirent::{DOTDOT_AT, first_chunks};
use arbor_kit::inodes::InodeTable as _;
use arbor_kit::lifetimes;
use arbor_kit::locked;
use arbor_kit::namespace::{Move, Namespace, NewInode, Node, Place, Target};
use std::sync::Arc;

/// Counters of the segments that the cleaner had to choose from, by the least utilisation of each class in %.
const FOUND: [&str; SHARES] = [
    "found_00", "found_05", "found_10", "found_15", "found_20", "found_25", "found_30", "found_35", "found_40",
    "found_45", "found_50", "found_55", "found_60", "found_65", "found_70", "found_75", "found_80", "found_85",
    "found_90", "found_95",
];

impl Namespace for Core {
    fn make(&mut self, dir: &Node, name: &[u8], (): (), new: &NewInode<'_>, now: Time) -> Result<Attr> {
        self.check_xattrs(new.xattrs)?;
        let mut parent = self.iget(dir.ino)?;
        let room = self.dir_room(&mut parent, name)?;
        let mut i = self.inew(new.mode, (new.uid, new.gid), now)?;
        if let Err(e) = self.init_contents(&mut i, new, dir.ino) {
            if e.errno() == Errno::ENOSPC {
                self.abort_create(&mut i)?;
            }
            return Err(e);
        }
        self.dir_insert(&parent, room, name, i.ino, new.file_type())?;
        self.touch_dir(dir.ino, now, u32::from(i.is_dir()))?;
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
        let mut parent = self.iget(dir.ino)?;
        let room = self.dir_room(&mut parent, name)?;
        let mut i = self.iget(node.ino)?;
        lifetimes::unorphan(self, &mut i)?;
        self.dir_insert(&parent, room, name, i.ino, i.file_type())?;
        self.touch_dir(dir.ino, now, 0)?;
        i.d.nlink = i.d.nlink.get().saturating_add(1).into();
        i.d.ctime = now.into();
        self.iput(&i)?;
        Ok(self.attr_of(&i))
    }

    fn remove(&mut self, dir: &Node, name: &[u8], slot: Found, node: &Node, now: Time) -> Result<()> {
        let parent = self.iget(dir.ino)?;
        self.dir_remove(&parent, name, slot.at, false)?;
        self.touch_dir(dir.ino, now, 0)?;
        self.set_ctime(node.ino, now)?;
        self.drop_name(node, dir.ino)
    }

    fn rename(&mut self, m: Move<'_, Found, ()>, now: Time) -> Result<()> {
        let mut new_dir = self.iget(m.new_dir.ino)?;
        let room = match &m.target {
            Target::Free(()) => Some(self.dir_room(&mut new_dir, m.new_name)?),
            Target::Replaced(..) => None,
        };
        let white = m.whiteout.map(|cx| self.inew(mode::IFCHR, (cx.uid, cx.gid), now)).transpose()?;
        // It may have grown.
        let dir = self.iget(m.dir.ino)?;
        match (&m.target, room) {
            (Target::Replaced(at, _), _) => self.dir_replace(&new_dir, at.at, m.node.ino, m.node.file_type())?,
            (Target::Free(()), Some(room)) => {
                self.dir_insert(&new_dir, room, m.new_name, m.node.ino, m.node.file_type())?;
            }
            (Target::Free(()), None) => return Err(Errno::EIO.into()),
        }
        match white {
            Some(w) => self.dir_replace(&dir, m.slot.at, w.ino, FileType::Char)?,
            None => self.dir_remove(&dir, m.name, m.slot.at, false)?,
        }
        self.reparent(&m.node, m.dir.ino, m.new_dir.ino)?;
        self.set_ctime(m.node.ino, now)?;
        if let Target::Replaced(_, target) = &m.target {
            self.set_ctime(target.ino, now)?;
            self.drop_name(target, m.new_dir.ino)?;
        }
        self.touch_dir(m.dir.ino, now, 0)?;
        self.touch_dir(m.new_dir.ino, now, 0)
    }

    fn exchange(&mut self, a: Place<Found>, b: Place<Found>, now: Time) -> Result<()> {
        let (dir, new_dir) = (self.iget(a.dir.ino)?, self.iget(b.dir.ino)?);
        self.dir_replace(&dir, a.slot.at, b.node.ino, b.node.file_type())?;
        self.dir_replace(&new_dir, b.slot.at, a.node.ino, a.node.file_type())?;
        self.reparent(&a.node, dir.ino, new_dir.ino)?;
        self.reparent(&b.node, new_dir.ino, dir.ino)?;
        self.set_ctime(a.node.ino, now)?;
        self.set_ctime(b.node.ino, now)?;
        self.touch_dir(dir.ino, now, 0)?;
        self.touch_dir(new_dir.ino, now, 0)
    }
}

impl Core {
    /// Makes the first contents of a new inode.
    fn init_contents(&mut self, i: &mut Inode, new: &NewInode<'_>, parent: Ino) -> Result<()> {
        match new.file_type() {
            FileType::Dir => {
                let (len, ino) = (self.geom.frag_size(), i.ino);
                self.cache.insert(Name::data(ino, 0), Arc::new(Vec::new()));
                self.alloc_block(i, 0, len as u64, &mut |buf, len| *buf = first_chunks(len, ino, parent))?;
            }
            FileType::Symlink => self.store_target(i, new.target)?,
            FileType::Char | FileType::Block => {
                i.d.rdev = new.rdev.into();
                self.iput(i)?;
            }
            _ => {}
        }
        if new.xattrs.is_empty() { Ok(()) } else { self.xattr_store(i, new.xattrs) }
    }

    /// Sets the times of a directory that was changed now, and adds `more` subdirectories.
    fn touch_dir(&mut self, ino: Ino, now: Time, more: u32) -> Result<()> {
        let mut dir = self.iget(ino)?;
        (dir.d.mtime, dir.d.ctime) = (now.into(), now.into());
        dir.d.nlink = dir.d.nlink.get().saturating_add(more).into();
        self.iput(&dir)
    }

    fn set_ctime(&mut self, ino: Ino, now: Time) -> Result<()> {
        let mut i = self.iget(ino)?;
        i.d.ctime = now.into();
        self.iput(&i)
    }

    /// Lowers the link counts for a name of an inode that was removed, or replaced.
    fn drop_name(&mut self, node: &Node, parent: Ino) -> Result<()> {
        if node.is_dir() {
            self.drop_parent(parent)?;
        }
        self.unlinked(node.ino, node.is_dir())
    }

    /// Adjusts link counts and the parent of a directory that was moved.
    fn reparent(&mut self, node: &Node, from: Ino, to: Ino) -> Result<()> {
        if !node.is_dir() || from == to {
            return Ok(());
        }
        let i = self.iget(node.ino)?;
        self.dir_replace(&i, DOTDOT_AT as u64, to, FileType::Dir)?;
        let mut dir = self.iget(to)?;
        dir.d.nlink = dir.d.nlink.get().saturating_add(1).into();
        self.iput(&dir)?;
        self.drop_parent(from)
    }
}

impl locked::Core for Core {
    fn has_writeback_pressure(&self) -> bool {
        self.has_much_dirty() || self.wants_cleaning()
    }

    fn background(&mut self, now: Time) -> Result<Time> {
        self.run_daemons(now)
    }

    fn finish(&mut self) -> Result<()> {
        self.end()
    }

    fn sync_file(&mut self, _ino: Ino) -> Result<()> {
        self.sync()
    }

    fn sync_all(&mut self) -> Result<()> {
        self.sync()
    }

    fn label(&mut self) -> Result<Vec<u8>> {
        Ok(label_of(&superblock::read_super(&*self.dev)?.label))
    }

    fn set_label(&mut self, field: [u8; 64]) -> Result<()> {
        self.write_label(field)
    }

    fn statfs(&mut self) -> Result<StatFs> {
        let (capacity, available) = (self.capacity(), self.available());
        // An inode needs its own bytes, and a map entry.
        let ffree = available.saturating_mul(self.geom.frag_size() as u64) / (INODE + MAP_ENTRY) as u64;
        Ok(StatFs {
            frsize: self.geom.frag_size() as u32,
            bsize: self.geom.block_size() as u32,
            blocks: capacity,
            bfree: available,
            bavail: available,
            files: ffree.saturating_add(self.state.used_inodes.into()),
            ffree,
            namelen: 255,
            fsid: self.geom.fsid,
        })
    }

    fn trim_step(&mut self, range: &TrimRange, _from: u64) -> Result<(u64, Option<u64>)> {
        Ok((self.trim(range)?, None))
    }

    fn clean(&mut self, budget: u64) -> Result<Cleaned> {
        self.calls.health.check_writable()?;
        self.calls.note_change();
        self.clean_segments(budget)
    }

    fn scrub(&mut self, at: u64) -> Result<Scrubbed> {
        self.scrub_some(at)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let c = self.counters;
        let mut all = self.cache.counters();
        all.extend(c.io.named());
        all.extend([
            ("groups", c.groups),
            ("partial_segments", c.partial_segments),
            ("checkpoints", c.checkpoints),
            ("segments", self.segs.count().into()),
            ("cleaned_segments", c.cleaned),
            ("clean_read_bytes", c.clean_read_bytes),
            ("clean_moved_bytes", c.clean_moved_bytes),
            ("clean_segments", self.segs.clean.len()),
        ]);
        all.extend(FOUND.into_iter().zip(c.found));
        all
    }
}
