//! The calls: what changes of names, attributes and data are made of. The rules of names stand in `kit::namespace`. A call changes
//! buffers; what it changed is written with all else that is changed, so that a crash leaves all of it or nothing.

use crate::format::*;
use crate::inode::{Inode, LINK_MAX};
use crate::mount::{self, Core, SHARES, Volume};
use arbor_base::cache::Name;
use arbor_base::vfs::*;
use arbor_kit::chunkdir::{ChunkDirs, Found};
use arbor_kit::dirent::{DOTDOT_AT, first_chunks};
use arbor_kit::health::Health;
use arbor_kit::namespace::{Lookup, Move, Named, Namespace, NewInode, Node, Place, Target, Walk, Walked};
use arbor_kit::served::{self, Inodes};
use arbor_kit::xattr::Xattrs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Counters of the segments that the cleaner found, by the least part of them that lived, %.
const FOUND: [&str; SHARES] = [
    "found_00", "found_05", "found_10", "found_15", "found_20", "found_25", "found_30", "found_35", "found_40",
    "found_45", "found_50", "found_55", "found_60", "found_65", "found_70", "found_75", "found_80", "found_85",
    "found_90", "found_95",
];

fn kind_of(i: &Inode) -> FileType {
    FileType::from_mode(i.d.kind()).unwrap_or(FileType::File)
}

impl Namespace for Core {
    type Slot = Found;
    type Room = ();

    fn root(&self) -> Ino {
        ROOT
    }

    fn node(&mut self, ino: Ino) -> Result<Node> {
        let d = self.iget(ino)?.d;
        let links = d.nlink.get();
        Ok(Node { ino, mode: d.mode.get(), gid: d.gid.get(), links, is_full: links >= LINK_MAX })
    }

    fn find(&mut self, dir: Ino, name: &[u8]) -> Result<Lookup<Found, ()>> {
        let dir = self.iget(dir)?;
        let found = self.dir_lookup(&dir, name)?;
        Ok(found.map_or(Lookup::Free(()), |slot| Lookup::Found(Named { ino: slot.ino, slot })))
    }

    fn parent(&mut self, dir: Ino) -> Result<Ino> {
        let dir = self.iget(dir)?;
        self.parent_of(&dir)
    }

    fn is_empty(&mut self, dir: Ino) -> Result<bool> {
        let dir = self.iget(dir)?;
        self.dir_is_empty(&dir)
    }

    fn attr(&mut self, ino: Ino) -> Result<Attr> {
        let i = self.iget(ino)?;
        Ok(self.attr_of(&i))
    }

    fn hold(&mut self, ino: Ino) {
        self.refs.add(ino);
    }

    fn may_be_named(&mut self, ino: Ino) -> bool {
        self.unnamed.contains(&ino.0)
    }

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
        self.iput(&i)?;
        self.refs.add(i.ino);
        self.orphan(&mut i)?;
        self.unnamed.insert(i.ino.0);
        Ok(self.attr_of(&i))
    }

    fn link(&mut self, dir: &Node, name: &[u8], (): (), node: &Node, now: Time) -> Result<Attr> {
        let mut parent = self.iget(dir.ino)?;
        let room = self.dir_room(&mut parent, name)?;
        let mut i = self.iget(node.ino)?;
        self.unorphan(&mut i)?;
        self.dir_insert(&parent, room, name, i.ino, kind_of(&i))?;
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

    fn walk(&mut self, dir: Ino, cookie: u64, _plus: bool, f: Walk<'_, Core>) -> Result<()> {
        let dir = self.iget(dir)?;
        self.dir_walk(&dir, cookie, &mut |core, found, name| {
            let file_type = FileType::from_mode(u32::from(found.kind) << 12).unwrap_or(FileType::File);
            f(core, Walked { ino: found.ino, file_type, cookie: found.at + 1 }, name)
        })
    }
}

impl Core {
    /// What a new inode begins with.
    fn init_contents(&mut self, i: &mut Inode, new: &NewInode<'_>, parent: Ino) -> Result<()> {
        match new.file_type() {
            FileType::Dir => {
                let (len, ino) = (self.geom.frag_size(), i.ino);
                self.cache.insert(Name::Page { file: ino.0, index: 0 }, Arc::new(Vec::new()));
                self.balloc(i, 0, len as u64, &mut |buf, len| *buf = first_chunks(len, ino, parent))?;
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

    /// A directory was changed now, and has so many subdirectories more.
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

    /// A removed name, or one that names something else now, stood for this.
    fn drop_name(&mut self, node: &Node, parent: Ino) -> Result<()> {
        if node.is_dir() {
            self.drop_parent(parent)?;
        }
        self.unlinked(node.ino, node.is_dir())
    }

    /// A directory lies in another one now.
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

impl Inodes for Core {
    fn health(&mut self) -> &mut Health {
        &mut self.health
    }

    fn set_attr(&mut self, ino: Ino, set: &SetAttr, now: Time) -> Result<()> {
        let mut i = self.iget(ino)?;
        self.apply(&mut i, set, now);
        self.iput(&i)
    }

    fn set_size(&mut self, ino: Ino, to: u64, now: Time) -> Result<bool> {
        self.step_size(ino, to, now)
    }

    fn has_room_for_step(&mut self) -> bool {
        true
    }

    fn target(&mut self, ino: Ino) -> Result<Vec<u8>> {
        let i = self.iget(ino)?;
        if i.is_symlink() { self.link_target(&i) } else { Err(Errno::EINVAL.into()) }
    }

    fn xattrs(&mut self, ino: Ino) -> Result<Xattrs> {
        let i = self.iget(ino)?;
        self.xattr_list(&i)
    }

    fn set_xattrs(&mut self, ino: Ino, list: &Xattrs, _grows: bool, set: &SetAttr, now: Time) -> Result<()> {
        self.check_xattrs(list)?;
        let mut i = self.iget(ino)?;
        self.xattr_store(&mut i, list)?;
        self.apply(&mut i, set, now);
        self.iput(&i)
    }
}

impl Volume {
    fn falloc(&self, ino: Ino, how: FallocMode, offset: u64, len: u64) -> Result<()> {
        let known = FallocMode::KEEP_SIZE | FallocMode::PUNCH_HOLE | FallocMode::ZERO_RANGE;
        let punch = how.contains(FallocMode::PUNCH_HOLE);
        if !known.contains(how) || punch && how != FallocMode::PUNCH_HOLE | FallocMode::KEEP_SIZE {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let mut end =
            offset.checked_add(len).filter(|_| len > 0).ok_or(if len > 0 { Errno::EFBIG } else { Errno::EINVAL })?;
        let attr = self.run(|core| core.attr(ino))?;
        if attr.file_type() != FileType::File {
            let e = if attr.file_type() == FileType::Dir { Errno::EISDIR } else { Errno::ENODEV };
            return Err(e.into());
        }
        if how.contains(FallocMode::KEEP_SIZE) {
            // The length of the last block follows the size, so there is nothing behind it.
            if how == FallocMode::KEEP_SIZE && end > attr.size {
                return Err(Errno::EOPNOTSUPP.into());
            }
            end = end.min(attr.size);
        }
        self.change(|core, now| {
            if end > core.geom.max_size() {
                return Err(Errno::EFBIG.into());
            }
            let mut i = core.iget(ino)?;
            (i.d.mtime, i.d.ctime) = (now.into(), now.into());
            core.iput(&i)?;
            core.watch.begin(ino, i.size());
            Ok(())
        })?;
        // What is missing first: without space nothing is zeroed.
        let mut done = self.falloc_steps(ino, how - FallocMode::ZERO_RANGE, offset, end);
        if done.is_ok() && how.contains(FallocMode::ZERO_RANGE) {
            done = self.falloc_steps(ino, how, offset, end);
        }
        let grown = (!how.contains(FallocMode::KEEP_SIZE)).then_some(end);
        self.lock().watch.done(ino, done.as_ref().map_or(None, |()| grown), done.is_err());
        // The error is that of the call, whether it could be undone or not.
        let undone = self.falloc_undo(ino);
        self.lock().watch.end(ino);
        done.and(undone)
    }

    fn falloc_steps(&self, ino: Ino, how: FallocMode, mut at: u64, end: u64) -> Result<()> {
        while at < end {
            if interrupted() {
                return Err(Errno::EINTR.into());
            }
            at = self.change(|core, now| core.falloc_step(ino, how, at, end, now))?;
        }
        Ok(())
    }

    /// What calls that failed could have is given back by the last of them, so that the file ends where others want it to.
    fn falloc_undo(&self, ino: Ino) -> Result<()> {
        while !self.change(|core, now| match core.watch.to_undo(ino) {
            Some(keep) if core.iget(ino)?.size() > keep => core.step_size(ino, keep, now),
            _ => Ok(true),
        })? {}
        Ok(())
    }
}

impl served::Volume for Volume {
    type Core = Core;

    fn root(&self) -> Ino {
        ROOT
    }

    fn look<R>(&self, f: impl FnOnce(&mut Core) -> R) -> R {
        f(&mut self.lock())
    }

    fn run<R>(&self, f: impl FnMut(&mut Core) -> Result<R>) -> Result<R> {
        Volume::run(self, f)
    }

    fn change<R>(&self, f: impl FnMut(&mut Core, Time) -> Result<R>) -> Result<R> {
        Volume::change(self, f)
    }

    fn forget(&self, ino: Ino, count: u64) {
        let mut core = self.lock();
        if core.refs.release(ino, count) && core.orphans.contains_key(&ino.0) {
            core.inactive.push_back(ino.0);
        }
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.run(|core| core.read_file(ino, offset, buf))
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let mut done = 0;
        loop {
            let rest = data.get(done..).unwrap_or(&[]);
            let piece = rest.get(..rest.len().min(256 << 10)).unwrap_or(&[]);
            let at = offset.checked_add(done as u64).ok_or(Errno::EFBIG)?;
            match self.change(|core, now| core.write_file(ino, at, piece, now)) {
                Ok(n) => {
                    done += n;
                    if n < piece.len() && !self.free_inactive()? {
                        return Ok(done);
                    }
                }
                Err(_) if done > 0 => return Ok(done),
                Err(e) => return Err(e),
            }
            if done >= data.len() {
                return Ok(done);
            }
        }
    }

    fn fsync(&self, ino: Ino, _data_only: bool) -> Result<()> {
        self.run(|core| {
            core.health.check_ordered()?;
            core.iget(ino)?;
            if core.health.is_read_only() { Ok(()) } else { core.sync() }
        })
    }

    fn syncfs(&self) -> Result<()> {
        self.drain_inactive()?;
        self.run(|core| {
            core.health.check_ordered()?;
            if core.health.is_read_only() { Ok(()) } else { core.sync() }
        })
    }

    fn fallocate(&self, ino: Ino, mode: FallocMode, offset: u64, len: u64) -> Result<()> {
        self.falloc(ino, mode, offset, len)
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        self.run(|core| core.seek_file(ino, offset, whence))
    }

    fn label(&self) -> Result<Vec<u8>> {
        self.run(|core| Ok(label_of(&mount::read_super(&*core.dev)?.label)))
    }

    fn set_label(&self, field: [u8; 64]) -> Result<()> {
        self.change(|core, _| core.set_label(field))
    }

    fn statfs(&self) -> Result<StatFs> {
        self.drain_inactive()?;
        self.run(|core| {
            let (capacity, available) = (core.capacity(), core.available());
            // An inode needs its own bytes, and an entry of the map.
            let ffree = available.saturating_mul(core.geom.frag_size() as u64) / (INODE + MAP_ENTRY) as u64;
            Ok(StatFs {
                frsize: core.geom.frag_size() as u32,
                bsize: core.geom.block_size() as u32,
                blocks: capacity,
                bfree: available,
                bavail: available,
                files: ffree.saturating_add(core.state.used_inodes.into()),
                ffree,
                namelen: 255,
                fsid: core.geom.fsid,
            })
        })
    }

    fn trim(&self, range: &TrimRange) -> Result<u64> {
        self.lock().health.check_writable()?;
        self.syncfs()?;
        self.change(|core, _| core.trim(range))
    }

    fn clean(&self, budget: u64) -> Result<Cleaned> {
        self.drain_inactive()?;
        self.run(|core| {
            core.health.check_writable()?;
            core.touched = true;
            core.clean(budget)
        })
    }

    fn scrub(&self, at: u64) -> Result<Scrubbed> {
        self.run(|core| core.scrub(at))
    }

    fn background(&self, now: Time) -> Time {
        // Errors are for who syncs; the volume says what it failed of.
        let _ = self.drain_inactive();
        let core = &mut *self.lock();
        core.cache.keep_all(true);
        let next = core.background(now).unwrap_or_else(|e| {
            core.health.fail(&e);
            now.plus_ms(60_000)
        });
        core.cache.keep_all(false);
        self.note_pressure(core);
        next
    }

    fn wants_background(&self) -> bool {
        self.pressed.load(Relaxed)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let core = self.lock();
        let (s, c) = (core.cache.stats(), core.counters);
        let mut all = vec![
            ("cache_hits", s.hits),
            ("cache_misses", s.misses),
            ("cache_evictions", s.evictions),
            ("cache_bytes", s.bytes),
            ("cache_dirty_bytes", s.dirty_bytes),
            ("flushes", c.flushes),
            ("reads", c.reads),
            ("read_bytes", c.read_bytes),
            ("writes", c.writes),
            ("write_bytes", c.write_bytes),
            ("groups", c.groups),
            ("partial_segments", c.partial_segments),
            ("checkpoints", c.checkpoints),
            ("segments", core.segs.count().into()),
            ("cleaned_segments", c.cleaned),
            ("clean_read_bytes", c.clean_read_bytes),
            ("clean_moved_bytes", c.clean_moved_bytes),
            ("clean_segments", core.segs.clean.len()),
        ];
        all.extend(FOUND.into_iter().zip(c.found));
        all
    }

    fn unmount(&self) -> Result<()> {
        self.close()
    }
}
