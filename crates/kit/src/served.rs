//! A mounted volume as a [`FileSystem`]: where calls enter.
//!
//! The calls need no more of an engine than its names ([`Namespace`]), its inodes ([`Inodes`]) and a way to run a call
//! on them ([`Volume`]). Called by the front ends, as `dyn FileSystem`.

use crate::calls::State;
use crate::inodes::Attributes as _;
use crate::lifetimes::Lives as _;
use crate::namespace::{self as rules, Names as _, Namespace, TARGET_MAX, dir_node};
use crate::xattr::{self, Xattrs};
use arbor_base::vfs::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Inodes by their numbers, in core.
pub trait Inodes: Namespace + State {
    /// Changes attributes other than the size.
    fn set_attr(&mut self, ino: Ino, set: &SetAttr, now: Time) -> Result<()>;

    /// Does a step of resizing a file; returns whether the resize is done.
    fn set_size(&mut self, ino: Ino, to: u64, now: Time) -> Result<bool>;

    /// Whether another step of [`set_size`](Inodes::set_size) can follow in the same call.
    fn has_room_for_step(&mut self) -> bool {
        false
    }

    /// Target of a symbolic link; `EINVAL` for anything else.
    fn target(&mut self, ino: Ino) -> Result<Vec<u8>>;

    /// Extended attributes.
    fn xattrs(&mut self, ino: Ino) -> Result<Xattrs>;

    /// Stores a list of extended attributes, and changes attributes other than the size. The list has new values if it
    /// `grows`; else there is always room for it.
    fn set_xattrs(&mut self, ino: Ino, list: &Xattrs, grows: bool, set: &SetAttr, now: Time) -> Result<()>;
}

/// Called with entries of a directory, and with their attributes; returns whether they are taken.
pub type Take<'a> = &'a mut dyn FnMut(&DirEntry<'_>, Option<&Entry>) -> bool;

/// A mounted volume of an engine: how calls run, and what the engine does its own way. Methods named as those of
/// [`FileSystem`] do what is documented there.
#[allow(missing_docs)]
pub trait Volume: Send + Sync {
    /// The state under the lock.
    type Core: Inodes;

    /// The root directory.
    fn root(&self) -> Ino;

    /// Runs `f` on the state, outside of a call.
    fn peek<R>(&self, f: impl FnOnce(&mut Self::Core) -> R) -> R;

    /// Runs a call. It may restart as long as it has changed nothing.
    fn run<R>(&self, f: impl FnMut(&mut Self::Core) -> Result<R>) -> Result<R>;

    /// Runs a call that changes something now.
    fn change<R>(&self, f: impl FnMut(&mut Self::Core, Time) -> Result<R>) -> Result<R>;

    /// Called before a rename, without the lock.
    fn before_rename(&self, _from: (Ino, &[u8]), _to: (Ino, &[u8])) -> Result<()> {
        Ok(())
    }

    fn forget(&self, ino: Ino, count: u64);
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize>;
    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()>;
    fn syncfs(&self) -> Result<()>;
    fn fallocate(&self, ino: Ino, mode: FallocMode, offset: u64, len: u64) -> Result<()>;
    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64>;
    fn label(&self) -> Result<Vec<u8>>;
    /// Changes the label to this field of the superblock, durably.
    fn set_label(&self, field: [u8; 64]) -> Result<()>;
    fn statfs(&self) -> Result<StatFs>;
    fn trim(&self, range: &TrimRange) -> Result<u64>;
    fn background(&self, now: Time) -> Time;
    fn wants_background(&self) -> bool;
    fn counters(&self) -> Vec<(&'static str, u64)>;
    fn unmount(&self) -> Result<()>;

    /// Offers the entries of a directory, with attributes if `plus`.
    fn readdir(&self, ino: Ino, cookie: u64, plus: bool, f: Take<'_>) -> Result<()> {
        walk(self, ino, cookie, plus, f).1
    }

    fn clean(&self, _budget: u64) -> Result<Cleaned> {
        Err(Errno::EOPNOTSUPP.into())
    }

    fn scrub(&self, _at: u64) -> Result<Scrubbed> {
        Err(Errno::EOPNOTSUPP.into())
    }

    fn is_faster_by_number(&self) -> bool {
        false
    }

    fn read_ahead(&self) {}

    fn wants_read_ahead(&self) -> bool {
        false
    }
}

/// How a walk ended.
#[derive(Clone, Debug, Default)]
pub struct WalkEnd {
    /// Cookie of the last entry that was taken, if another one was refused.
    pub stopped: Option<u64>,
    /// Directories among those that were taken with attributes.
    pub dirs: Vec<u64>,
}

/// Walks a directory. If the call restarts, entries that were taken are not offered again.
pub fn walk<V: Volume + ?Sized>(volume: &V, ino: Ino, cookie: u64, plus: bool, f: Take<'_>) -> (WalkEnd, Result<()>) {
    let (root, mut at, mut end) = (volume.root(), cookie, WalkEnd::default());
    let done = volume.run(|core| {
        dir_node(core, ino)?;
        core.walk(ino, at, plus, &mut |core, walked, name| {
            let dots = name == b"." || name == b"..";
            let target = if ino == root && dots { root } else { walked.ino };
            let e = DirEntry { ino: target, file_type: walked.file_type, cookie: walked.cookie, name };
            let attr = match (plus && !dots).then(|| core.attr(walked.ino)).transpose() {
                // An inode that is damaged, or free, does not hide the others.
                Err(Error::Corrupt(_) | Error::Errno(Errno::ESTALE)) => {
                    core.health().note_damage();
                    None
                }
                attr => attr?,
            };
            if !f(&e, attr.as_ref()) {
                end.stopped = Some(at);
                return Ok(false);
            }
            at = walked.cookie;
            if let Some(attr) = attr {
                core.lives().refs.add(attr.ino);
                end.dirs.extend((walked.file_type == FileType::Dir).then_some(attr.ino.0));
            }
            Ok(true)
        })
    });
    (end, done)
}

/// A volume that is served.
pub struct Served<V> {
    volume: V,
    /// Counts moves and removals of directories, including ones that fail later.
    tree: AtomicU64,
}

impl<V: Volume> Served<Arc<V>> {
    /// Wraps a volume as a file system.
    pub fn serve(volume: Arc<V>) -> Arc<dyn FileSystem>
    where
        V: 'static,
    {
        Arc::new(Served { volume, tree: AtomicU64::new(0) })
    }

    fn make(&self, cx: &Cx, at: (Ino, &[u8]), new: &New<'_>, target: &[u8]) -> Result<Entry> {
        check_name(at.1)?;
        let list = xattr::new_list(new.xattrs)?;
        self.volume.change(|core, now| rules::make(core, cx, at, (new, target, &list), now))
    }

    fn remove(&self, parent: Ino, name: &[u8], want_dir: bool) -> Result<()> {
        rules::check_removed(name, want_dir)?;
        self.volume.change(|core, now| rules::remove(core, (parent, name), want_dir, now, || self.tree_moves()))
    }

    fn tree_moves(&self) {
        self.tree.fetch_add(1, Ordering::Release);
    }

    fn change_xattr(&self, ino: Ino, name: &[u8], value: Option<&[u8]>, how: XattrMode) -> Result<()> {
        check_xattr_name(name)?;
        self.volume.change(|core, now| {
            let mut list = core.xattrs(ino)?;
            xattr::change(&mut list, name, value, how)?;
            core.stay();
            core.set_xattrs(ino, &list, value.is_some(), &SetAttr::default(), now)
        })
    }
}

impl<V: Volume> FileSystem for Served<Arc<V>> {
    fn root(&self) -> Ino {
        self.volume.root()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry> {
        self.volume.run(|core| rules::lookup(core, parent, name))
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.volume.forget(ino, count);
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.volume.run(|core| core.attr(ino))
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let rest = SetAttr { size: None, ..*set };
        // The resize is done only once, even if the rest has to wait and restarts: others may have written by then.
        let mut sized = set.size.is_none();
        loop {
            let done = self.volume.change(|core, now| {
                if let Some(to) = set.size.filter(|_| !sized) {
                    core.stay();
                    sized = core.set_size(ino, to, now)?;
                    while !sized && core.has_room_for_step() {
                        let before = core.changes();
                        sized = match core.set_size(ino, to, now) {
                            // What was freed stays freed; the next call fails before it changes anything.
                            Err(e) if e.is_damage() && core.changes() == before => break,
                            done => done?,
                        };
                    }
                    if !sized {
                        return Ok(None);
                    }
                }
                if rest != SetAttr::default() {
                    core.stay();
                    core.set_attr(ino, &rest, now)?;
                }
                core.attr(ino).map(Some)
            })?;
            if let Some(attr) = done {
                return Ok(attr);
            }
        }
    }

    fn change(&self, ino: Ino, set: &SetAttr, xattrs: &[XattrChange<'_>]) -> Result<Attr> {
        self.volume.change(|core, now| {
            let list = xattr::changed(core.xattrs(ino)?, set, xattrs)?;
            core.stay();
            core.set_xattrs(ino, &list, true, set, now)?;
            core.attr(ino)
        })
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.volume.run(|core| core.target(ino))
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

    fn make_file(&self, cx: &Cx, parent: Ino, name: &[u8], m: u32, data: &[u8]) -> Result<()> {
        check_name(name)?;
        let at = (parent, name);
        match self.volume.change(|core, now| rules::make_file(core, cx, at, (m, data), now))? {
            true => Ok(()),
            false => make_by_steps(self, cx, at, m, data),
        }
    }

    fn symlink(&self, cx: &Cx, parent: Ino, name: &[u8], target: &[u8]) -> Result<Entry> {
        check_name(name)?;
        if target.is_empty() {
            return Err(Errno::ENOENT.into());
        }
        if target.len() > TARGET_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        self.make(cx, (parent, name), &New { mode: mode::IFLNK | 0o777, ..New::default() }, target)
    }

    fn tmpfile(&self, cx: &Cx, parent: Ino, m: u32) -> Result<Entry> {
        self.volume.change(|core, now| rules::make_unnamed(core, cx, parent, m, now))
    }

    fn link(&self, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<Entry> {
        check_name(new_name)?;
        self.volume.change(|core, now| rules::link(core, ino, (new_parent, new_name), now))
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
        rules::check_rename(name, new_name, flags)?;
        let (from, to) = ((parent, name), (new_parent, new_name));
        self.volume.before_rename(from, to)?;
        self.volume.change(|core, now| {
            self.tree_moves();
            rules::rename(core, cx, from, to, flags, now)
        })
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.volume.read(ino, offset, buf)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.volume.write(ino, offset, data)
    }

    fn readdir(&self, ino: Ino, cookie: u64, f: &mut dyn FnMut(&DirEntry<'_>) -> bool) -> Result<()> {
        self.volume.readdir(ino, cookie, false, &mut |e, _| f(e))
    }

    fn readdir_plus(
        &self,
        ino: Ino,
        cookie: u64,
        f: &mut dyn FnMut(&DirEntry<'_>, Option<&Entry>) -> bool,
    ) -> Result<()> {
        self.volume.readdir(ino, cookie, true, f)
    }

    fn getattr_each(&self, inos: &[Ino], f: &mut dyn FnMut(Result<Attr>)) {
        let mut rest = inos;
        while !rest.is_empty() {
            // Those before the one that fails, or restarts the call, are not asked for again.
            let done = self.volume.run(|core| {
                while let Some((ino, after)) = rest.split_first() {
                    let attr = core.attr(*ino)?;
                    rest = after;
                    f(Ok(attr));
                }
                Ok(())
            });
            if let (Err(e), Some((_, after))) = (done, rest.split_first()) {
                rest = after;
                f(Err(e));
            }
        }
    }

    fn is_faster_by_number(&self) -> bool {
        self.volume.is_faster_by_number()
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        self.volume.fsync(ino, data_only)
    }

    fn syncfs(&self) -> Result<()> {
        self.volume.syncfs()
    }

    fn fallocate(&self, ino: Ino, mode: FallocMode, offset: u64, len: u64) -> Result<()> {
        self.volume.fallocate(ino, mode, offset, len)
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        self.volume.seek(ino, offset, whence)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        check_xattr_name(name)?;
        self.volume.run(|core| {
            let found = core.xattrs(ino)?.into_iter().find(|(n, _)| n == name);
            found.map(|(_, v)| v).ok_or_else(|| Errno::ENODATA.into())
        })
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], how: XattrMode) -> Result<()> {
        check_xattr_name(name)?;
        if value.len() > xattr::VALUE_MAX {
            return Err(Errno::E2BIG.into());
        }
        self.change_xattr(ino, name, Some(value), how)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.volume.run(|core| Ok(core.xattrs(ino)?.into_iter().map(|(n, _)| n).collect()))
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.change_xattr(ino, name, None, XattrMode::Set)
    }

    fn label(&self) -> Result<Vec<u8>> {
        self.volume.label()
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        self.volume.set_label(label_field(label)?)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.volume.statfs()
    }

    fn trim(&self, range: &TrimRange) -> Result<u64> {
        self.volume.trim(range)
    }

    fn clean(&self, budget: u64) -> Result<Cleaned> {
        self.volume.clean(budget)
    }

    fn scrub(&self, at: u64) -> Result<Scrubbed> {
        self.volume.scrub(at)
    }

    fn background(&self, now: Time) -> Time {
        self.volume.background(now)
    }

    fn wants_background(&self) -> bool {
        self.volume.wants_background()
    }

    fn read_ahead(&self) {
        self.volume.read_ahead();
    }

    fn wants_read_ahead(&self) -> bool {
        self.volume.wants_read_ahead()
    }

    fn tree_version(&self) -> Option<u64> {
        Some(self.tree.load(Ordering::Acquire))
    }

    fn failure(&self) -> Option<String> {
        self.volume.peek(|core| core.health().failure())
    }

    fn damage_passed_by(&self) -> Vec<String> {
        self.volume.peek(|core| core.health().take_untold())
    }

    fn fail(&self, why: &str) {
        self.volume.peek(|core| core.health().give_up(why));
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.volume.counters()
    }

    fn unmount(&self) -> Result<()> {
        self.volume.unmount()
    }
}
