//! `impl FileSystem`: names, checks and changes of every call. A call changes buffers; what it changed is written with all
//! else that is changed, so that a crash leaves all of it or nothing.

use crate::format::*;
use crate::inode::{Inode, LINK_MAX};
use crate::mount::{Core, SHARES, Volume};
use arbor_base::cache::Name;
use arbor_base::vfs::*;
use arbor_kit::chunkdir::{ChunkDirs, Found, Room};
use arbor_kit::dirent::{DOTDOT_AT, first_chunks};
use arbor_kit::xattr::{self, Xattrs};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Counters of the segments that the cleaner found, by the least part of them that lived, %.
const FOUND: [&str; SHARES] = [
    "found_00", "found_05", "found_10", "found_15", "found_20", "found_25", "found_30", "found_35", "found_40",
    "found_45", "found_50", "found_55", "found_60", "found_65", "found_70", "found_75", "found_80", "found_85",
    "found_90", "found_95",
];

/// Longest target of a symbolic link.
pub(crate) const MAX_TARGET: usize = 4095;

fn kind_of(i: &Inode) -> FileType {
    FileType::from_mode(i.d.kind()).unwrap_or(FileType::File)
}

/// A directory, an entry of it, and the inode that it names.
type Named = (Inode, Found, Inode);

impl Core {
    fn hold_entry(&mut self, i: &Inode) -> Entry {
        self.refs.add(i.ino);
        self.attr(i)
    }

    /// Room for the free name `name` in a directory. `EEXIST` if it is taken.
    fn vacant(&mut self, dir: &mut Inode, name: &[u8]) -> Result<Room> {
        if dir.d.nlink.get() == 0 {
            return Err(Errno::ENOENT.into());
        }
        match self.dir_lookup(dir, name)? {
            Some(_) => Err(Errno::EEXIST.into()),
            None => self.dir_room(dir, name),
        }
    }

    /// Makes an inode and its name; a symbolic link has `target`.
    fn create(
        &mut self,
        cx: &Cx,
        (parent, name): (Ino, &[u8]),
        (m, rdev): (u32, u32),
        (target, list): (&[u8], &Xattrs),
        now: Time,
    ) -> Result<Inode> {
        let mut dir = self.iget_dir(parent)?;
        let t = FileType::from_mode(m).ok_or(Errno::EINVAL)?;
        if t == FileType::Dir && dir.d.nlink.get() >= LINK_MAX {
            return Err(Errno::EMLINK.into());
        }
        let room = self.vacant(&mut dir, name)?;
        let (gid, m) = inherit(&dir, cx.gid, m);
        let mut i = self.inew(m, (cx.uid, gid), now)?;
        let furnished = self.furnish(&mut i, t, rdev, target, parent);
        if let Err(e) = furnished.and_then(|()| if list.is_empty() { Ok(()) } else { self.xattr_store(&mut i, list) }) {
            if e.errno() == Errno::ENOSPC {
                self.unmake(&mut i)?;
            }
            return Err(e);
        }
        self.dir_insert(&dir, room, name, i.ino, t)?;
        let more = u32::from(t == FileType::Dir);
        self.touch_dir(parent, now, more)?;
        Ok(i)
    }

    /// What a new inode begins with.
    fn furnish(&mut self, i: &mut Inode, t: FileType, rdev: u32, target: &[u8], parent: Ino) -> Result<()> {
        match t {
            FileType::Dir => {
                let (len, ino) = (self.geom.frag_size(), i.ino);
                self.cache.insert(Name::Page { file: ino.0, index: 0 }, Arc::new(Vec::new()));
                self.balloc(i, 0, len as u64, &mut |buf, len| *buf = first_chunks(len, ino, parent))
            }
            FileType::Symlink => self.store_target(i, target),
            FileType::Char | FileType::Block => {
                i.d.rdev = rdev.into();
                self.iput(i)
            }
            _ => Ok(()),
        }
    }

    /// Whether directory `a` is `b` or lies above it.
    fn is_above(&mut self, a: Ino, b: Ino) -> Result<bool> {
        let (mut at, mut steps) = (b, 0u32);
        while at != a {
            if at == ROOT {
                return Ok(false);
            }
            let i = self.iget_dir(at)?;
            steps += 1;
            if steps > 1 << 20 {
                return Err(i.corrupt("entry ..", at, "a path to the root").into());
            }
            at = self.parent_of(&i)?;
        }
        Ok(true)
    }

    /// The inode a rename of `i` would replace, if it may.
    fn replaceable(&mut self, i: &Inode, ino: Ino) -> Result<Inode> {
        let t = self.iget(ino)?;
        match (i.is_dir(), t.is_dir()) {
            (true, false) => Err(Errno::ENOTDIR.into()),
            (false, true) => Err(Errno::EISDIR.into()),
            (true, true) if !self.dir_is_empty(&t)? => Err(Errno::ENOTEMPTY.into()),
            _ => Ok(t),
        }
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
    fn drop_name(&mut self, i: &Inode, parent: Ino) -> Result<()> {
        if i.is_dir() {
            self.drop_parent(parent)?;
        }
        self.unlinked(i.ino, i.is_dir())
    }

    /// A directory lies in another one now.
    fn reparent(&mut self, i: &Inode, from: Ino, to: Ino) -> Result<()> {
        if !i.is_dir() || from == to {
            return Ok(());
        }
        self.dir_replace(i, DOTDOT_AT as u64, to, FileType::Dir)?;
        let mut dir = self.iget(to)?;
        dir.d.nlink = dir.d.nlink.get().saturating_add(1).into();
        self.iput(&dir)?;
        self.drop_parent(from)
    }

    /// Moves the name of `src` to `to` in `new_dir`, where `dst` may be.
    fn move_entry(
        &mut self,
        cx: &Cx,
        (dir, src, i): Named,
        from: &[u8],
        (mut new_dir, to): (Inode, &[u8]),
        dst: Option<Found>,
        whiteout: bool,
    ) -> Result<()> {
        let now = self.now;
        let target = dst.map(|d| self.replaceable(&i, d.ino)).transpose()?;
        if i.is_dir() && dir.ino != new_dir.ino && dst.is_none() && new_dir.d.nlink.get() >= LINK_MAX {
            return Err(Errno::EMLINK.into());
        }
        let room = if dst.is_none() { Some(self.vacant(&mut new_dir, to)?) } else { None };
        let white = match whiteout {
            true => Some(self.inew(mode::IFCHR, (cx.uid, cx.gid), now)?),
            false => None,
        };
        // It may have grown.
        let dir = self.iget_dir(dir.ino)?;
        match (dst, room) {
            (Some(d), _) => self.dir_replace(&new_dir, d.at, i.ino, kind_of(&i))?,
            (None, Some(room)) => drop(self.dir_insert(&new_dir, room, to, i.ino, kind_of(&i))?),
            (None, None) => return Err(Errno::EIO.into()),
        }
        match white {
            Some(w) => self.dir_replace(&dir, src.at, w.ino, FileType::Char)?,
            None => self.dir_remove(&dir, from, src.at, false)?,
        }
        self.reparent(&i, dir.ino, new_dir.ino)?;
        self.set_ctime(i.ino, now)?;
        if let Some(t) = target {
            self.set_ctime(t.ino, now)?;
            self.drop_name(&t, new_dir.ino)?;
        }
        self.touch_dir(dir.ino, now, 0)?;
        self.touch_dir(new_dir.ino, now, 0)
    }

    fn exchange(&mut self, (dir, a, i): Named, (new_dir, b, j): Named) -> Result<()> {
        if i.ino == j.ino {
            return Ok(());
        }
        let grows =
            |to: &Inode, i: &Inode, other: &Inode| i.is_dir() && !other.is_dir() && to.d.nlink.get() >= LINK_MAX;
        if dir.ino != new_dir.ino && (grows(&new_dir, &i, &j) || grows(&dir, &j, &i)) {
            return Err(Errno::EMLINK.into());
        }
        let now = self.now;
        self.dir_replace(&dir, a.at, j.ino, kind_of(&j))?;
        self.dir_replace(&new_dir, b.at, i.ino, kind_of(&i))?;
        self.reparent(&i, dir.ino, new_dir.ino)?;
        self.reparent(&j, new_dir.ino, dir.ino)?;
        self.set_ctime(i.ino, now)?;
        self.set_ctime(j.ino, now)?;
        self.touch_dir(dir.ino, now, 0)?;
        self.touch_dir(new_dir.ino, now, 0)
    }
}

fn inherit(dir: &Inode, gid: u32, m: u32) -> (u32, u32) {
    if dir.d.mode.get() & mode::ISGID == 0 {
        return (gid, m);
    }
    let bit = if m & mode::IFMT == mode::IFDIR { mode::ISGID } else { 0 };
    (dir.d.gid.get(), m | bit)
}

impl Volume {
    fn make(&self, cx: &Cx, at: (Ino, &[u8]), new: &New<'_>, target: &[u8]) -> Result<Entry> {
        check_name(at.1)?;
        let list = xattr::new_list(new.xattrs)?;
        self.change(|core, now| {
            core.check_xattrs(&list)?;
            let i = core.create(cx, at, (new.mode, new.rdev), (target, &list), now)?;
            Ok(core.hold_entry(&i))
        })
    }

    fn remove(&self, parent: Ino, name: &[u8], want_dir: bool) -> Result<()> {
        if want_dir && name == b"." {
            return Err(Errno::EINVAL.into());
        }
        if want_dir && name == b".." {
            return Err(Errno::ENOTEMPTY.into());
        }
        check_name(name)?;
        self.change(|core, now| {
            let dir = core.iget_dir(parent)?;
            let found = core.dir_find(&dir, name)?;
            let i = core.iget(found.ino)?;
            match (i.is_dir(), want_dir) {
                (true, false) => return Err(Errno::EISDIR.into()),
                (false, true) => return Err(Errno::ENOTDIR.into()),
                (true, true) if !core.dir_is_empty(&i)? => return Err(Errno::ENOTEMPTY.into()),
                _ => {}
            }
            core.dir_remove(&dir, name, found.at, false)?;
            core.touch_dir(parent, now, 0)?;
            core.set_ctime(i.ino, now)?;
            core.tree += u64::from(want_dir);
            core.drop_name(&i, parent)
        })
    }

    fn move_name(&self, cx: &Cx, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: RenameFlags) -> Result<()> {
        self.change(|core, _| {
            core.tree += 1;
            let dir = core.iget_dir(from.0)?;
            let new_dir = core.iget_dir(to.0)?;
            let src = core.dir_find(&dir, from.1)?;
            let i = core.iget(src.ino)?;
            let dst = core.dir_lookup(&new_dir, to.1)?;
            match (&dst, flags) {
                (Some(_), f) if f.contains(RenameFlags::NOREPLACE) => return Err(Errno::EEXIST.into()),
                (None, f) if f.contains(RenameFlags::EXCHANGE) => return Err(Errno::ENOENT.into()),
                _ => {}
            }
            if i.is_dir() && core.is_above(i.ino, to.0)? {
                return Err(Errno::EINVAL.into());
            }
            if let Some(d) = dst {
                if flags.contains(RenameFlags::EXCHANGE) {
                    let j = core.iget(d.ino)?;
                    if j.is_dir() && core.is_above(j.ino, from.0)? {
                        return Err(Errno::EINVAL.into());
                    }
                    return core.exchange((dir, src, i), (new_dir, d, j));
                }
                if d.ino == i.ino {
                    return Ok(());
                }
                if core.is_above(d.ino, from.0)? {
                    return Err(Errno::ENOTEMPTY.into());
                }
            }
            let whiteout = flags.contains(RenameFlags::WHITEOUT);
            core.move_entry(cx, (dir, src, i), from.1, (new_dir, to.1), dst, whiteout)
        })
    }

    fn falloc(&self, ino: Ino, how: FallocMode, offset: u64, len: u64) -> Result<()> {
        let known = FallocMode::KEEP_SIZE | FallocMode::PUNCH_HOLE | FallocMode::ZERO_RANGE;
        let punch = how.contains(FallocMode::PUNCH_HOLE);
        if !known.contains(how) || punch && how != FallocMode::PUNCH_HOLE | FallocMode::KEEP_SIZE {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let mut end =
            offset.checked_add(len).filter(|_| len > 0).ok_or(if len > 0 { Errno::EFBIG } else { Errno::EINVAL })?;
        let attr = self.getattr(ino)?;
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
            Some(keep) if core.iget(ino)?.size() > keep => core.set_size(ino, keep, now),
            _ => Ok(true),
        })? {}
        Ok(())
    }

    fn change_xattr(&self, ino: Ino, name: &[u8], value: Option<&[u8]>, how: XattrMode) -> Result<()> {
        self.change(|core, now| {
            let mut i = core.iget(ino)?;
            let list = core.xattr_change(&i, name, value, how)?;
            i.d.ctime = now.into();
            core.xattr_store(&mut i, &list)
        })
    }

    fn walk(
        &self,
        ino: Ino,
        cookie: u64,
        plus: bool,
        f: &mut dyn FnMut(&DirEntry<'_>, Option<&Entry>) -> bool,
    ) -> Result<()> {
        self.run(|core| {
            let dir = core.iget_dir(ino)?;
            core.dir_walk(&dir, cookie, &mut |core, found, name| {
                let file_type = FileType::from_mode(u32::from(found.kind) << 12).unwrap_or(FileType::File);
                let target = if ino == ROOT && name == b".." { ROOT } else { found.ino };
                // A cookie is a place, because entries do not move (LFS-D1).
                let e = DirEntry { ino: target, file_type, cookie: found.at + 1, name };
                let dots = name == b"." || name == b"..";
                let inode = match (plus && !dots).then(|| core.iget(found.ino)).transpose() {
                    // One that is damaged, or free, does not hide the others.
                    Err(Error::Corrupt(_) | Error::Errno(Errno::ESTALE)) => {
                        core.damage_met = true;
                        None
                    }
                    other => other?,
                };
                let attr = inode.as_ref().map(|i| core.attr(i));
                let accepted = f(&e, attr.as_ref());
                if let Some(i) = inode.filter(|_| accepted) {
                    core.refs.add(i.ino);
                }
                Ok(accepted)
            })
        })
    }
}

fn failure(core: &Core) -> Result<()> {
    match &core.failed {
        Some(why) => Err(Error::Io(std::io::Error::other(why.clone()))),
        None => Ok(()),
    }
}

impl FileSystem for Volume {
    fn root(&self) -> Ino {
        ROOT
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry> {
        if name.len() > 255 {
            return Err(Errno::ENAMETOOLONG.into());
        }
        self.run(|core| {
            let dir = core.iget_dir(parent)?;
            let ino = match name {
                b"." => parent,
                b".." if parent == ROOT => ROOT,
                // Its own parent may be gone, too.
                b".." if dir.d.nlink.get() == 0 => return Err(Errno::ENOENT.into()),
                b".." => core.parent_of(&dir)?,
                _ => core.dir_find(&dir, name)?.ino,
            };
            let i = core.iget(ino).map_err(|e| match e.errno() {
                Errno::ESTALE => dir.corrupt("entry", ino.0, "an inode in use").into(),
                _ => e,
            })?;
            Ok(core.hold_entry(&i))
        })
    }

    fn forget(&self, ino: Ino, count: u64) {
        let mut core = self.lock();
        if core.refs.release(ino, count) && core.orphans.contains_key(&ino.0) {
            core.inactive.push_back(ino.0);
        }
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.run(|core| {
            let i = core.iget(ino)?;
            Ok(core.attr(&i))
        })
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let rest = SetAttr { size: None, ..*set };
        self.change(|core, now| {
            if let Some(to) = set.size {
                while !core.set_size(ino, to, now)? {}
            }
            let mut i = core.iget(ino)?;
            if rest != SetAttr::default() {
                core.apply(&mut i, &rest, now);
                core.iput(&i)?;
            }
            Ok(core.attr(&i))
        })
    }

    fn change(&self, ino: Ino, set: &SetAttr, xattrs: &[XattrChange<'_>]) -> Result<Attr> {
        Volume::change(self, |core, now| {
            let mut i = core.iget(ino)?;
            let list = xattr::changed(core.xattrs(&i)?, set, xattrs)?;
            core.check_xattrs(&list)?;
            core.xattr_store(&mut i, &list)?;
            core.apply(&mut i, set, now);
            core.iput(&i)?;
            Ok(core.attr(&i))
        })
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.run(|core| {
            let i = core.iget(ino)?;
            if i.is_symlink() { core.link_target(&i) } else { Err(Errno::EINVAL.into()) }
        })
    }

    fn mknod(&self, cx: &Cx, parent: Ino, name: &[u8], m: u32, rdev: u32) -> Result<Entry> {
        self.make(cx, (parent, name), &New { mode: node_mode(m)?, rdev, xattrs: &[] }, b"")
    }

    fn mkdir(&self, cx: &Cx, parent: Ino, name: &[u8], m: u32) -> Result<Entry> {
        self.make(cx, (parent, name), &New { mode: mode::IFDIR | m & 0o7777, ..New::default() }, b"")
    }

    fn create(&self, cx: &Cx, parent: Ino, name: &[u8], new: &New<'_>) -> Result<Entry> {
        self.make(cx, (parent, name), &New { mode: new_mode(new.mode)?, ..*new }, b"")
    }

    fn symlink(&self, cx: &Cx, parent: Ino, name: &[u8], target: &[u8]) -> Result<Entry> {
        check_name(name)?;
        if target.is_empty() {
            return Err(Errno::ENOENT.into());
        }
        if target.len() > MAX_TARGET {
            return Err(Errno::ENAMETOOLONG.into());
        }
        self.make(cx, (parent, name), &New { mode: mode::IFLNK | 0o777, ..New::default() }, target)
    }

    fn tmpfile(&self, cx: &Cx, parent: Ino, m: u32) -> Result<Entry> {
        self.change(|core, now| {
            let dir = core.iget_dir(parent)?;
            let (gid, m) = inherit(&dir, cx.gid, mode::IFREG | m & 0o7777);
            let mut i = core.inew(m, (cx.uid, gid), now)?;
            i.d.nlink = 0.into();
            core.iput(&i)?;
            let entry = core.hold_entry(&i);
            core.orphan(&mut i)?;
            core.unnamed.insert(i.ino.0);
            Ok(entry)
        })
    }

    fn link(&self, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<Entry> {
        check_name(new_name)?;
        self.change(|core, now| {
            let mut i = core.iget(ino)?;
            if i.is_dir() {
                return Err(Errno::EPERM.into());
            }
            if i.d.nlink.get() >= LINK_MAX {
                return Err(Errno::EMLINK.into());
            }
            let mut dir = core.iget_dir(new_parent)?;
            if dir.d.nlink.get() == 0 {
                return Err(Errno::ENOENT.into());
            }
            if core.dir_lookup(&dir, new_name)?.is_some() {
                return Err(Errno::EEXIST.into());
            }
            if i.d.nlink.get() == 0 && !core.unnamed.contains(&ino.0) {
                return Err(Errno::ENOENT.into());
            }
            let room = core.dir_room(&mut dir, new_name)?;
            core.unorphan(&mut i)?;
            core.dir_insert(&dir, room, new_name, ino, kind_of(&i))?;
            core.touch_dir(new_parent, now, 0)?;
            let mut i = core.iget(ino)?;
            i.d.nlink = i.d.nlink.get().saturating_add(1).into();
            i.d.ctime = now.into();
            core.iput(&i)?;
            Ok(core.hold_entry(&i))
        })
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove(parent, name, false)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove(parent, name, true)
    }

    fn rename(
        &self,
        cx: &Cx,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        check_name(name)?;
        check_name(new_name)?;
        let known = RenameFlags::from_bits(flags.bits()).is_some();
        if !known || flags.contains(RenameFlags::EXCHANGE) && flags != RenameFlags::EXCHANGE {
            return Err(Errno::EINVAL.into());
        }
        self.move_name(cx, (parent, name), (new_parent, new_name), flags)
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

    fn readdir(&self, ino: Ino, cookie: u64, f: &mut dyn FnMut(&DirEntry<'_>) -> bool) -> Result<()> {
        self.walk(ino, cookie, false, &mut |e, _| f(e))
    }

    fn readdir_plus(
        &self,
        ino: Ino,
        cookie: u64,
        f: &mut dyn FnMut(&DirEntry<'_>, Option<&Entry>) -> bool,
    ) -> Result<()> {
        self.walk(ino, cookie, true, f)
    }

    fn fsync(&self, ino: Ino, _data_only: bool) -> Result<()> {
        self.run(|core| {
            failure(core)?;
            core.iget(ino)?;
            if core.read_only { Ok(()) } else { core.sync() }
        })
    }

    fn syncfs(&self) -> Result<()> {
        self.drain_inactive()?;
        self.run(|core| {
            failure(core)?;
            if core.read_only { Ok(()) } else { core.sync() }
        })
    }

    fn fallocate(&self, ino: Ino, mode: FallocMode, offset: u64, len: u64) -> Result<()> {
        self.falloc(ino, mode, offset, len)
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        self.run(|core| core.seek_file(ino, offset, whence))
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        check_xattr_name(name)?;
        self.run(|core| {
            let i = core.iget(ino)?;
            let found = core.xattrs(&i)?.into_iter().find(|(n, _)| n == name);
            found.map(|(_, v)| v).ok_or_else(|| Errno::ENODATA.into())
        })
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], how: XattrMode) -> Result<()> {
        check_xattr_name(name)?;
        if value.len() > 64 * 1024 {
            return Err(Errno::E2BIG.into());
        }
        self.change_xattr(ino, name, Some(value), how)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.run(|core| {
            let i = core.iget(ino)?;
            Ok(core.xattrs(&i)?.into_iter().map(|(n, _)| n).collect())
        })
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        check_xattr_name(name)?;
        self.change_xattr(ino, name, None, XattrMode::Set)
    }

    fn label(&self) -> Result<Vec<u8>> {
        self.run(|core| Ok(label_of(&crate::mount::read_super(&*core.dev)?.label)))
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        let field = label_field(label)?;
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
        self.lock().check_writable()?;
        self.syncfs()?;
        self.change(|core, _| core.trim(range))
    }

    fn clean(&self, budget: u64) -> Result<Cleaned> {
        self.drain_inactive()?;
        self.run(|core| {
            core.check_writable()?;
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
            core.fail(&e);
            now.plus_ms(60_000)
        });
        core.cache.keep_all(false);
        self.note_pressure(core);
        next
    }

    fn wants_background(&self) -> bool {
        self.pressed.load(Relaxed)
    }

    fn tree_version(&self) -> Option<u64> {
        Some(self.lock().tree)
    }

    fn failure(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    fn fail(&self, why: &str) {
        self.lock().fail(&Error::Io(std::io::Error::other(why)));
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
