//! A mounted file system, called directly.

use crate::ground::{Ground, Seen};
use crate::op::{Dir, Listed, Op};
use arbor_base::vfs::{Attr, Cx, Errno, Error, FileSystem, FileType, Ino, Result, SetAttr, SetTime, Time, mode};
use arbor_base::vfs::{Clock, ManualClock};
use arbor_simdisk::Latencies;
use arbor_torture::rng::pattern;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// A clock that the ground can move on.
pub trait VirtualTime: Send + Sync {
    /// The time now.
    fn now(&self) -> Time;
    /// Moves it on by so many nanoseconds.
    fn advance_ns(&self, ns: u64);
}

/// Whole milliseconds only; what is less is dropped.
impl VirtualTime for ManualClock {
    fn now(&self) -> Time {
        Clock::now(self)
    }
    fn advance_ns(&self, ns: u64) {
        self.advance_ms(ns / 1_000_000);
    }
}

/// What the host adds to calls: time of the processor on the virtual clock, and access times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Nanoseconds for each call.
    pub call_ns: u64,
    /// Nanoseconds for each KiB read or written.
    pub kib_ns: u64,
    /// Nanoseconds for each name compared, as far as an engine counts them (`names_compared`).
    pub compare_ns: u64,
    /// What is read gets a new access time, if the last one is not of the same second, as kernels did before `relatime`.
    /// That costs the processor nothing; the engine has a changed inode.
    pub access_times: bool,
}

/// How a file system is left before it is mounted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It is unmounted.
    Unmount,
    /// It is not told.
    PowerCut,
}

/// Leaves the file system it is given and mounts it again with nothing cached.
pub type Remount<'a> = Box<dyn FnMut(Arc<dyn FileSystem>, Leave) -> Result<Arc<dyn FileSystem>> + 'a>;

/// A mounted file system, called as the kernel would call it: directories that the program knows keep their
/// inode, as in the kernel's cache of names, and so do open files; others are looked up.
///
/// Background work is done between two operations when its time has come. Its disk time passes as if the program
/// waited for it; but since it would run beside the program, charges and [`Op::Think`] that come after it cost nothing
/// up to the time it took: the program has computed meanwhile.
pub struct Library<'a> {
    fs: Arc<dyn FileSystem>,
    time: Arc<dyn VirtualTime>,
    charge: Charge,
    remount: Remount<'a>,
    dirs: FxHashMap<Dir, Place>,
    open: FxHashMap<u32, Open>,
    using: u32,
    deadline: Time,
    /// What is left of the time of the last background work, ns.
    credit_ns: u64,
    /// Names that the engine has compared, as far as they were charged.
    compared: u64,
    /// When the call that is made now began.
    begun: Time,
    latencies: Rc<RefCell<Latencies>>,
}

/// An open file, and the second of the access time that it got last.
#[derive(Clone, Copy)]
struct Open {
    ino: Ino,
    accessed: Option<i64>,
}

/// A directory the program knows: where its name is, and its inode with one lookup count, if it was needed
/// since the mount.
struct Place {
    parent: Dir,
    name: String,
    ino: Option<Ino>,
}

impl<'a> Library<'a> {
    /// A ground on `fs`, whose root is the program's.
    pub fn new(
        fs: Arc<dyn FileSystem>,
        time: Arc<dyn VirtualTime>,
        charge: Charge,
        remount: Remount<'a>,
    ) -> Library<'a> {
        Library {
            fs,
            time,
            charge,
            remount,
            dirs: FxHashMap::default(),
            open: FxHashMap::default(),
            using: 0,
            compared: 0,
            begun: Time::default(),
            latencies: Rc::default(),
            deadline: Time::default(),
            credit_ns: 0,
        }
    }

    /// The same in a directory of the root, which is the program's root.
    pub fn at_home(mut self, name: String) -> Library<'a> {
        self.dirs.insert(Dir::ROOT, Place { parent: Dir::ROOT, name, ino: None });
        self
    }

    /// How long calls take, on the virtual clock; whoever has this may take them out.
    pub fn latencies(&self) -> Rc<RefCell<Latencies>> {
        self.latencies.clone()
    }

    /// Gives the file system back, with no inode of it held.
    pub fn into_inner(mut self) -> Arc<dyn FileSystem> {
        for place in self.dirs.values_mut() {
            if let Some(ino) = place.ino.take() {
                self.fs.forget(ino, 1);
            }
        }
        for (_, open) in self.open.drain() {
            self.fs.forget(open.ino, 1);
        }
        self.fs
    }

    fn background(&mut self) {
        let now = self.time.now();
        if now >= self.deadline || self.fs.wants_background() {
            self.deadline = self.fs.background(now);
            self.credit_ns = ns_until(now, self.time.now());
        }
    }

    /// One call has been made; what it took counts from the one before it, or from the background work between them.
    fn charge(&mut self, seen: &mut Seen, bytes: u64) {
        self.pay(seen, bytes);
        let now = self.time.now();
        self.latencies.borrow_mut().add(ns_until(std::mem::replace(&mut self.begun, now), now));
    }

    /// What a call costs the processor.
    fn pay(&mut self, seen: &mut Seen, bytes: u64) {
        seen.calls += 1;
        let names_ns = if self.charge.compare_ns > 0 { self.compared_since() * self.charge.compare_ns } else { 0 };
        let ns = self.charge.call_ns + bytes * self.charge.kib_ns / 1024 + names_ns;
        let left = ns - self.spend_credit(ns);
        self.time.advance_ns(left);
    }

    /// Names that the engine has compared since this was asked last.
    fn compared_since(&mut self) -> u64 {
        let all = self.fs.counters().iter().find(|(name, _)| *name == "names_compared").map_or(0, |(_, n)| *n);
        all.saturating_sub(std::mem::replace(&mut self.compared, all))
    }

    fn dir(&mut self, dir: Dir) -> Result<Ino> {
        let place = match self.dirs.get(&dir) {
            Some(place) => place,
            None if dir == Dir::ROOT => return Ok(self.fs.root()),
            None => return Err(Error::Errno(Errno::EBADF)),
        };
        if let Some(ino) = place.ino {
            return Ok(ino);
        }
        let (parent, name) = (place.parent, place.name.clone());
        let parent = if dir == Dir::ROOT { self.fs.root() } else { self.dir(parent)? };
        let ino = self.fs.lookup(parent, name.as_bytes())?.ino;
        if let Some(place) = self.dirs.get_mut(&dir) {
            place.ino = Some(ino);
        }
        Ok(ino)
    }

    fn enter(&mut self, parent: Dir, name: &str, dir: Dir, entry: &Attr) {
        self.dirs.insert(dir, Place { parent, name: name.to_string(), ino: Some(entry.ino) });
    }

    fn leave(&mut self, dir: Dir) {
        if let Some(Place { ino: Some(ino), .. }) = self.dirs.remove(&dir) {
            self.fs.forget(ino, 1);
        }
    }

    fn opened(&self) -> Result<Ino> {
        self.open.get(&self.using).map(|open| open.ino).ok_or(Error::Errno(Errno::EBADF))
    }

    /// Gives the open file an access time.
    fn accessed(&mut self) -> Result<()> {
        let now = self.time.now().secs;
        match self.open.get_mut(&self.using) {
            Some(open) if self.charge.access_times && open.accessed != Some(now) => {
                open.accessed = Some(now);
                let ino = open.ino;
                self.set_access_time(ino, now)
            }
            _ => Ok(()),
        }
    }

    fn set_access_time(&self, ino: Ino, secs: i64) -> Result<()> {
        let atime = Some(SetTime::At(Time { secs, nanos: 0 }));
        self.fs.setattr(ino, &SetAttr { atime, ..SetAttr::default() }).map(drop)
    }

    /// Looks `name` up, does something with its inode, forgets it.
    fn with<R>(&mut self, dir: Dir, name: &str, f: impl FnOnce(&dyn FileSystem, &Attr) -> Result<R>) -> Result<R> {
        let dir = self.dir(dir)?;
        let entry = self.fs.lookup(dir, name.as_bytes())?;
        let result = f(&*self.fs, &entry);
        self.fs.forget(entry.ino, 1);
        result
    }

    fn op(&mut self, op: &Op, seen: &mut Seen) -> Result<()> {
        self.begun = self.time.now();
        match op {
            Op::Mkdir { parent, name, dir } => {
                let ino = self.dir(*parent)?;
                let entry = self.fs.mkdir(&Cx::default(), ino, name.as_bytes(), 0o755 | mode::IFDIR)?;
                self.enter(*parent, name, *dir, &entry);
            }
            Op::Enter { parent, name, dir } => {
                let ino = self.dir(*parent)?;
                let entry = self.fs.lookup(ino, name.as_bytes())?;
                self.enter(*parent, name, *dir, &entry);
            }
            Op::Leave { dir } => {
                self.leave(*dir);
                return Ok(());
            }
            Op::Rmdir { dir } => {
                let place = self.dirs.get(dir).ok_or(Error::Errno(Errno::EBADF))?;
                let (parent, name) = (place.parent, place.name.clone());
                let parent = self.dir(parent)?;
                self.fs.rmdir(parent, name.as_bytes())?;
                self.leave(*dir);
            }
            Op::Sync => self.fs.syncfs()?,
            Op::Remount | Op::PowerCut => {
                self.remount(if *op == Op::Remount { Leave::Unmount } else { Leave::PowerCut })?;
                self.pay(seen, 0);
                return Ok(());
            }
            Op::Think { ns } => {
                self.think(*ns);
                return Ok(());
            }
            Op::Use { file } => {
                self.using = *file;
                return Ok(());
            }
            Op::Write { .. } | Op::Read { .. } | Op::Fsync | Op::Close => return self.file_op(op, seen),
            _ => self.name_op(op, seen)?,
        }
        self.charge(seen, 0);
        Ok(())
    }

    /// Operations on a name in a directory.
    fn name_op(&mut self, op: &Op, seen: &mut Seen) -> Result<()> {
        let cx = Cx::default();
        match op {
            Op::Create { dir, name } => {
                let dir = self.dir(*dir)?;
                // The kernel looks before it creates.
                match self.fs.lookup(dir, name.as_bytes()) {
                    Err(Error::Errno(Errno::ENOENT)) => {}
                    Err(e) => return Err(e),
                    Ok(entry) => {
                        self.fs.forget(entry.ino, 1);
                        return Err(Error::Errno(Errno::EEXIST));
                    }
                }
                let ino = self.fs.mknod(&cx, dir, name.as_bytes(), 0o644 | mode::IFREG, 0)?.ino;
                self.open.insert(self.using, Open { ino, accessed: None });
            }
            Op::Open { dir, name } => {
                let dir = self.dir(*dir)?;
                let ino = self.fs.lookup(dir, name.as_bytes())?.ino;
                self.open.insert(self.using, Open { ino, accessed: None });
            }
            Op::SetTimes { dir, name, secs } => self.with(*dir, name, |fs, entry| {
                let at = Some(SetTime::At(Time { secs: i64::from(*secs), nanos: 0 }));
                fs.setattr(entry.ino, &SetAttr { atime: at, mtime: at, ..SetAttr::default() }).map(drop)
            })?,
            Op::Unlink { dir, name } => {
                let dir = self.dir(*dir)?;
                self.fs.unlink(dir, name.as_bytes())?;
            }
            Op::Rename { dir, name, to, to_name } => {
                let (from, to) = (self.dir(*dir)?, self.dir(*to)?);
                self.fs.rename(&cx, from, name.as_bytes(), to, to_name.as_bytes(), Default::default())?;
            }
            Op::Symlink { dir, name, target } => {
                let dir = self.dir(*dir)?;
                let entry = self.fs.symlink(&cx, dir, name.as_bytes(), target.as_bytes())?;
                self.fs.forget(entry.ino, 1);
            }
            Op::Stat { dir, name } => {
                let attr = self.with(*dir, name, |fs, entry| fs.getattr(entry.ino))?;
                if attr.file_type() == FileType::File {
                    seen.digest.bytes(&attr.size.to_le_bytes());
                }
            }
            Op::List { dir } => self.list(*dir, seen)?,
            _ => {}
        }
        Ok(())
    }

    /// Operations on the open file; each call is charged.
    fn file_op(&mut self, op: &Op, seen: &mut Seen) -> Result<()> {
        let ino = self.opened()?;
        match op {
            Op::Write { offset, len, io, tag } => {
                for (at, len) in pieces(*offset, *len, *io) {
                    let bytes = pattern(*tag, at, len);
                    if self.fs.write(ino, at, &bytes)? != len {
                        return Err(Error::Errno(Errno::ENOSPC));
                    }
                    seen.written_bytes += len as u64;
                    self.charge(seen, len as u64);
                }
            }
            Op::Read { offset, len, io } => {
                for (at, len) in pieces(*offset, *len, *io) {
                    seen.buffer.resize(len, 0);
                    let got = self.fs.read(ino, at, &mut seen.buffer)?;
                    seen.digest.bytes(&seen.buffer[..got]);
                    seen.read_bytes += got as u64;
                    self.accessed()?;
                    self.charge(seen, got as u64);
                    if got < len {
                        break;
                    }
                }
            }
            Op::Fsync => {
                self.fs.fsync(ino, false)?;
                self.charge(seen, 0);
            }
            _ => {
                self.open.remove(&self.using);
                self.fs.forget(ino, 1);
                self.charge(seen, 0);
            }
        }
        Ok(())
    }

    fn list(&mut self, dir: Dir, seen: &mut Seen) -> Result<()> {
        let ino = self.dir(dir)?;
        seen.listed.clear();
        let listed = &mut seen.listed;
        self.fs.readdir(ino, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                let name = String::from_utf8_lossy(entry.name).into_owned();
                listed.push(Listed { name, file_type: entry.file_type });
            }
            true
        })?;
        if self.charge.access_times { self.set_access_time(ino, self.time.now().secs) } else { Ok(()) }
    }

    fn remount(&mut self, leave: Leave) -> Result<()> {
        for ino in self.dirs.values_mut().filter_map(|place| place.ino.take()) {
            if leave == Leave::Unmount {
                self.fs.forget(ino, 1);
            }
        }
        self.fs = (self.remount)(self.fs.clone(), leave)?;
        self.compared = 0;
        self.deadline = Time::default();
        Ok(())
    }

    /// The program computes for `ns`; background work falls due meanwhile.
    fn think(&mut self, mut ns: u64) {
        while ns > 0 {
            self.background();
            ns -= self.spend_credit(ns);
            // Work that does not end soon is asked for again after a millisecond.
            let step = ns_until(self.time.now(), self.deadline).max(1_000_000).min(ns);
            self.time.advance_ns(step);
            ns -= step;
        }
    }

    /// How much of `ns` the program has computed while the background work before it ran.
    fn spend_credit(&mut self, ns: u64) -> u64 {
        let spent = self.credit_ns.min(ns);
        self.credit_ns -= spent;
        spent
    }
}

impl Ground for Library<'_> {
    fn apply(&mut self, op: &Op, seen: &mut Seen) -> std::result::Result<(), String> {
        self.background();
        self.op(op, seen).map_err(|e| e.to_string())
    }

    fn used_percent(&mut self) -> std::result::Result<f64, String> {
        let stat = self.fs.statfs().map_err(|e| e.to_string())?;
        Ok(100.0 * stat.blocks.saturating_sub(stat.bfree) as f64 / stat.blocks.max(1) as f64)
    }
}

/// The calls that a transfer is made in: offset and length of each.
pub(crate) fn pieces(offset: u64, len: u64, io: u32) -> impl Iterator<Item = (u64, usize)> {
    let io = u64::from(io.max(1));
    (0..len.div_ceil(io)).map(move |i| (offset + i * io, (len - i * io).min(io) as usize))
}

fn ns_until(from: Time, to: Time) -> u64 {
    if to <= from {
        return 0;
    }
    let secs = to.secs.abs_diff(from.secs);
    (secs * 1_000_000_000 + u64::from(to.nanos)).saturating_sub(u64::from(from.nanos))
}
