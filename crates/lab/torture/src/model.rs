//! The reference model: a complete file system in memory, with exact results and errno values.
//!
//! [`State`] is the tree at one moment, cheap to clone because everything in it is shared until it
//! changes: the crash oracle keeps one for each operation. [`Model`] serves the state as a
//! [`FileSystem`], so that the harness treats it and an engine alike.
//!
//! Where POSIX leaves a choice the model does what Linux does.

use crate::data::Data;
use arbor_base::vfs::{
    Attr, Clock, Cx, DirEntry, Entry, Errno, Error, FallocMode, FileSystem, FileType, Ino, RenameFlags, Result, Seek,
    SetAttr, SetTime, StatFs, Time, TrimRange, XattrMode, mode,
};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of the root directory.
pub const ROOT: u64 = 1;
/// Longest name in bytes.
pub const NAME_MAX: usize = 255;
/// Largest size of a file in bytes.
pub const SIZE_MAX: u64 = i64::MAX as u64;
/// Largest value of an extended attribute in bytes.
pub const XATTR_MAX: usize = 64 << 10;

/// A name of a directory: the inode, and a stamp that no other name ever gets. The stamp is the
/// cookie, and tells a name from the same name made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// Inode it names.
    pub ino: u64,
    /// When it was made.
    pub stamp: u64,
}

/// Names of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dir {
    /// The directory it lies in.
    pub parent: u64,
    /// Its names.
    pub names: BTreeMap<Arc<[u8]>, Name>,
    order: BTreeMap<u64, Arc<[u8]>>,
}

impl Dir {
    /// Rebuilds a directory from its parts.
    pub fn from_parts(parent: u64, names: BTreeMap<Arc<[u8]>, Name>) -> Dir {
        let order = names.iter().map(|(name, entry)| (entry.stamp, name.clone())).collect();
        Dir { parent, names, order }
    }

    fn insert(&mut self, name: &[u8], ino: u64, stamp: u64) {
        let name: Arc<[u8]> = name.into();
        self.order.insert(stamp, name.clone());
        self.names.insert(name, Name { ino, stamp });
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some(n) = self.names.remove(name) {
            self.order.remove(&n.stamp);
        }
    }
}

/// What an inode holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A regular file.
    File(Data),
    /// A directory.
    Dir(Dir),
    /// A symbolic link.
    Symlink(Vec<u8>),
    /// A fifo, socket or device node.
    Special,
}

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Type and permissions.
    pub mode: u32,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Access, modification, change, creation.
    pub times: [Time; 4],
    /// A file without a name that may still get one.
    pub unnamed: bool,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Arc<Vec<u8>>>,
    /// Contents.
    pub body: Body,
}

impl Node {
    /// Contents, if it is a regular file.
    pub fn data(&self) -> Option<&Data> {
        if let Body::File(d) = &self.body { Some(d) } else { None }
    }

    /// Names, if it is a directory.
    pub fn dir(&self) -> Option<&Dir> {
        if let Body::Dir(d) = &self.body { Some(d) } else { None }
    }

    fn size(&self) -> u64 {
        match &self.body {
            Body::File(d) => d.size(),
            Body::Dir(d) => d.names.len() as u64,
            Body::Symlink(t) => t.len() as u64,
            Body::Special => 0,
        }
    }

    fn blocks(&self) -> u64 {
        self.data().map_or(0, |d| d.pages().len() as u64 * 8)
    }
}

/// The whole tree at one moment, with the inodes that have no name but are in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Inodes by number.
    pub nodes: BTreeMap<u64, Arc<Node>>,
    /// Inode numbers and stamps below this one have been used.
    pub next: u64,
}

impl State {
    /// An empty volume whose root belongs to `owner`.
    pub fn new(owner: (u32, u32), now: Time) -> State {
        let root = Node {
            mode: mode::IFDIR | 0o755,
            nlink: 2,
            uid: owner.0,
            gid: owner.1,
            rdev: 0,
            times: [now; 4],
            unnamed: false,
            xattrs: BTreeMap::new(),
            body: Body::Dir(Dir { parent: ROOT, ..Dir::default() }),
        };
        State { nodes: BTreeMap::from([(ROOT, Arc::new(root))]), next: 16 }
    }

    /// The inode `ino`.
    pub fn node(&self, ino: u64) -> Result<&Node> {
        self.nodes.get(&ino).map(|n| &**n).ok_or(Errno::ESTALE.into())
    }

    fn node_mut(&mut self, ino: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).map(Arc::make_mut).ok_or(Errno::ESTALE.into())
    }

    /// The directory `ino`; `ENOTDIR` if it is something else.
    pub fn dir(&self, ino: u64) -> Result<&Dir> {
        self.node(ino)?.dir().ok_or(Errno::ENOTDIR.into())
    }

    fn dir_mut(&mut self, ino: u64) -> Result<&mut Dir> {
        match &mut self.node_mut(ino)?.body {
            Body::Dir(d) => Ok(d),
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    fn data(&self, ino: u64) -> Result<&Data> {
        let node = self.node(ino)?;
        node.data().ok_or_else(|| not_a_file(node))
    }

    fn data_mut(&mut self, ino: u64) -> Result<&mut Data> {
        self.data(ino)?;
        match &mut self.node_mut(ino)?.body {
            Body::File(d) => Ok(d),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    fn find(&self, parent: u64, name: &[u8]) -> Result<Option<u64>> {
        Ok(self.dir(parent)?.names.get(name).map(|n| n.ino))
    }

    fn is_dir(&self, ino: u64) -> Result<bool> {
        Ok(self.node(ino)?.dir().is_some())
    }

    /// Whether `above` is `ino` or a directory on its way to the root.
    pub fn is_above(&self, above: u64, mut ino: u64) -> bool {
        loop {
            if above == ino {
                return true;
            }
            match self.dir(ino) {
                Ok(d) if d.parent != ino => ino = d.parent,
                _ => return false,
            }
        }
    }

    fn attr(&self, ino: u64) -> Result<Attr> {
        let n = self.node(ino)?;
        let [atime, mtime, ctime, btime] = n.times;
        Ok(Attr {
            ino: Ino(ino),
            generation: 0,
            mode: n.mode,
            nlink: n.nlink,
            uid: n.uid,
            gid: n.gid,
            rdev: n.rdev,
            size: n.size(),
            blocks: n.blocks(),
            blksize: 4096,
            atime,
            mtime,
            ctime,
            btime,
            unsettled: false,
        })
    }

    fn touch(&mut self, ino: u64, now: Time, data_too: bool) -> Result<()> {
        let times = &mut self.node_mut(ino)?.times;
        times[2] = now;
        if data_too {
            times[1] = now;
        }
        Ok(())
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn put_name(&mut self, parent: u64, name: &[u8], ino: u64, now: Time) -> Result<()> {
        let stamp = self.fresh();
        self.dir_mut(parent)?.insert(name, ino, stamp);
        if self.is_dir(ino)? {
            self.dir_mut(ino)?.parent = parent;
        }
        self.touch(parent, now, true)
    }

    fn add_links(&mut self, ino: u64, by: i32) -> Result<()> {
        let node = self.node_mut(ino)?;
        node.nlink = node.nlink.saturating_add_signed(by);
        Ok(())
    }

    /// Takes `name` away with the links that it meant; the inode itself is left for the caller.
    fn take_name(&mut self, parent: u64, name: &[u8], now: Time) -> Result<u64> {
        let ino = self.find(parent, name)?.ok_or(Errno::ENOENT)?;
        self.dir_mut(parent)?.remove(name);
        self.touch(parent, now, true)?;
        self.touch(ino, now, false)?;
        if self.is_dir(ino)? {
            self.add_links(parent, -1)?;
            self.add_links(ino, -2)?;
        } else {
            self.add_links(ino, -1)?;
        }
        Ok(ino)
    }

    fn give_name(&mut self, parent: u64, name: &[u8], ino: u64, now: Time) -> Result<()> {
        self.put_name(parent, name, ino, now)?;
        self.touch(ino, now, false)?;
        if self.is_dir(ino)? {
            self.add_links(parent, 1)?;
            self.add_links(ino, 2)
        } else {
            self.add_links(ino, 1)
        }
    }

    /// Checks that `name` could be made in `parent`.
    fn vacant(&self, parent: u64, name: &[u8]) -> Result<()> {
        let taken = self.dir(parent)?;
        check_name(name)?;
        if taken.names.contains_key(name) {
            return Err(Errno::EEXIST.into());
        }
        match self.node(parent)?.nlink {
            0 => Err(Errno::ENOENT.into()),
            _ => Ok(()),
        }
    }

    fn check_rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: RenameFlags) -> Result<(u64, Option<u64>)> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let clash = RenameFlags::NOREPLACE | RenameFlags::WHITEOUT;
        if (exchange && flags.intersects(clash)) || !(flags - RenameFlags::all()).is_empty() {
            return Err(Errno::EINVAL.into());
        }
        self.dir(from.0)?;
        self.dir(to.0)?;
        check_name(from.1)?;
        check_name(to.1)?;
        let source = self.find(from.0, from.1)?.ok_or(Errno::ENOENT)?;
        let target = self.find(to.0, to.1)?;
        match target {
            Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(Errno::EEXIST.into()),
            None if exchange || self.node(to.0)?.nlink == 0 => return Err(Errno::ENOENT.into()),
            _ => {}
        }
        if self.is_above(source, to.0) {
            return Err(Errno::EINVAL.into());
        }
        if let Some(t) = target.filter(|t| *t != source) {
            self.check_replace(source, t, from.0, exchange)?;
        }
        Ok((source, target))
    }

    fn check_replace(&self, source: u64, target: u64, from: u64, exchange: bool) -> Result<()> {
        if self.is_above(target, from) {
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY }.into());
        }
        if exchange {
            return Ok(());
        }
        match (self.node(source)?.dir(), self.node(target)?.dir()) {
            (Some(_), None) => Err(Errno::ENOTDIR.into()),
            (None, Some(_)) => Err(Errno::EISDIR.into()),
            (Some(_), Some(t)) if !t.names.is_empty() => Err(Errno::ENOTEMPTY.into()),
            _ => Ok(()),
        }
    }
}

fn not_a_file(node: &Node) -> Error {
    if node.dir().is_some() { Errno::EISDIR.into() } else { Errno::EINVAL.into() }
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
        return Err(Errno::EINVAL.into());
    }
    Ok(())
}

fn check_xattr_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > 255 { Err(Errno::ERANGE.into()) } else { Ok(()) }
}

#[derive(Clone)]
struct Inner {
    state: State,
    counts: BTreeMap<u64, u64>,
    open: bool,
    failed: Option<Arc<str>>,
}

impl Inner {
    fn entry(&mut self, ino: u64) -> Result<Entry> {
        let attr = self.state.attr(ino)?;
        *self.counts.entry(ino).or_default() += 1;
        Ok(attr)
    }

    /// Drops `ino` if neither a name nor a user holds it.
    fn reap(&mut self, ino: u64) {
        let used = self.counts.get(&ino).is_some_and(|c| *c > 0);
        if !used && ino != ROOT && self.state.nodes.get(&ino).is_some_and(|n| n.nlink == 0) {
            self.state.nodes.remove(&ino);
        }
    }

    /// Nothing becomes durable once the file system has failed.
    fn check_durable(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |why| Err(Error::Failed(why.clone())))
    }

    fn reap_all(&mut self) {
        self.counts.clear();
        self.state.nodes.retain(|ino, n| n.nlink > 0 || *ino == ROOT);
    }

    fn make(&mut self, cx: &Cx, parent: u64, mode: u32, rdev: u32, body: Body, now: Time) -> Result<u64> {
        let dir = self.state.node(parent)?;
        let inherit = dir.mode & mode::ISGID != 0;
        let gid = if inherit { dir.gid } else { cx.gid };
        let pass_on = if inherit && matches!(body, Body::Dir(_)) { mode::ISGID } else { 0 };
        let ino = self.state.fresh();
        let node = Node {
            mode: mode | pass_on,
            nlink: 0,
            uid: cx.uid,
            gid,
            rdev,
            times: [now; 4],
            unnamed: false,
            xattrs: BTreeMap::new(),
            body,
        };
        self.state.nodes.insert(ino, Arc::new(node));
        Ok(ino)
    }
}

/// The model as a mounted file system.
pub struct Model {
    inner: Mutex<Inner>,
    clock: Arc<dyn Clock>,
}

impl Model {
    /// Mounts `state`; inodes without a name are dropped.
    pub fn new(state: State, clock: Arc<dyn Clock>) -> Model {
        let mut inner = Inner { state, counts: BTreeMap::new(), open: true, failed: None };
        inner.reap_all();
        Model { inner: Mutex::new(inner), clock }
    }

    /// A copy, references included, that goes its own way.
    pub fn fork(&self) -> Model {
        Model { inner: Mutex::new(self.inner.lock().clone()), clock: self.clock.clone() }
    }

    /// The state now.
    pub fn state(&self) -> State {
        self.inner.lock().state.clone()
    }

    /// Calls `f` with the state, without a copy.
    pub fn with_state<T>(&self, f: impl FnOnce(&State) -> T) -> T {
        f(&self.inner.lock().state)
    }

    /// Number of inodes that somebody holds a reference to.
    pub fn references(&self) -> usize {
        self.inner.lock().counts.values().filter(|c| **c > 0).count()
    }

    /// Forgets all references, as unmounting and mounting again does.
    pub fn remount(&self) {
        let mut inner = self.inner.lock();
        inner.reap_all();
        inner.open = true;
        inner.failed = None;
    }

    fn lock(&self) -> Result<MutexGuard<'_, Inner>> {
        let inner = self.inner.lock();
        if inner.open { Ok(inner) } else { Err(Errno::EIO.into()) }
    }

    /// For a change, which a file system that has failed refuses.
    fn lock_writable(&self) -> Result<MutexGuard<'_, Inner>> {
        let inner = self.lock()?;
        if inner.failed.is_none() { Ok(inner) } else { Err(Errno::EROFS.into()) }
    }

    fn add(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32, rdev: u32, body: Body) -> Result<Entry> {
        let now = self.clock.now();
        let mut inner = self.lock_writable()?;
        inner.state.vacant(parent.0, name)?;
        let ino = inner.make(cx, parent.0, mode, rdev, body, now)?;
        inner.state.give_name(parent.0, name, ino, now)?;
        inner.entry(ino)
    }

    fn remove(&self, parent: Ino, name: &[u8], dir: bool) -> Result<()> {
        let now = self.clock.now();
        let mut inner = self.lock_writable()?;
        inner.state.dir(parent.0)?;
        check_name(name)?;
        let ino = inner.state.find(parent.0, name)?.ok_or(Errno::ENOENT)?;
        match inner.state.node(ino)?.dir() {
            Some(_) if !dir => return Err(Errno::EISDIR.into()),
            None if dir => return Err(Errno::ENOTDIR.into()),
            Some(d) if !d.names.is_empty() => return Err(Errno::ENOTEMPTY.into()),
            _ => {}
        }
        inner.state.take_name(parent.0, name, now)?;
        inner.reap(ino);
        Ok(())
    }

    fn walk(
        &self,
        ino: Ino,
        cookie: u64,
        count: bool,
        f: &mut dyn FnMut(&DirEntry<'_>, Option<&Entry>) -> bool,
    ) -> Result<()> {
        let state = self.lock()?.state.clone();
        let dir = state.dir(ino.0)?;
        let dots = [(1, b".".as_slice(), ino.0), (2, b"..".as_slice(), dir.parent)];
        for (dot, name, target) in dots.into_iter().filter(|d| d.0 > cookie) {
            let entry = DirEntry { ino: Ino(target), file_type: FileType::Dir, cookie: dot, name };
            if !f(&entry, None) {
                return Ok(());
            }
        }
        for (stamp, name) in dir.order.range(cookie.saturating_add(1)..) {
            let attr = state.attr(dir.names[name].ino)?;
            let entry = DirEntry { ino: attr.ino, file_type: attr.file_type(), cookie: *stamp, name };
            if !f(&entry, Some(&attr)) {
                return Ok(());
            }
            if count {
                *self.lock()?.counts.entry(attr.ino.0).or_default() += 1;
            }
        }
        Ok(())
    }
}

fn at(set: SetTime, old: Time, now: Time) -> Time {
    match set {
        SetTime::Now => now,
        SetTime::At(t) => t,
        SetTime::Kept => old,
    }
}

fn end_of(offset: u64, len: u64) -> Result<u64> {
    offset.checked_add(len).filter(|e| *e <= SIZE_MAX).ok_or(Errno::EFBIG.into())
}

impl FileSystem for Model {
    fn root(&self) -> Ino {
        Ino(ROOT)
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry> {
        let mut inner = self.lock()?;
        let dir = inner.state.dir(parent.0)?;
        let ino = match name {
            b"." => parent.0,
            b".." if inner.state.node(parent.0)?.nlink == 0 => return Err(Errno::ENOENT.into()),
            b".." => dir.parent,
            _ => {
                check_name(name)?;
                dir.names.get(name).ok_or(Errno::ENOENT)?.ino
            }
        };
        inner.entry(ino)
    }

    fn forget(&self, ino: Ino, count: u64) {
        let mut inner = self.inner.lock();
        if let Some(c) = inner.counts.get_mut(&ino.0) {
            *c = c.saturating_sub(count);
            if *c == 0 {
                inner.counts.remove(&ino.0);
            }
        }
        inner.reap(ino.0);
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.lock()?.state.attr(ino.0)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let now = self.clock.now();
        let mut inner = self.lock_writable()?;
        let state = &mut inner.state;
        state.node(ino.0)?;
        if let Some(size) = set.size {
            state.data(ino.0)?;
            end_of(size, 0)?;
            state.data_mut(ino.0)?.truncate(size);
            state.touch(ino.0, now, true)?;
        }
        let node = state.node_mut(ino.0)?;
        if let Some(m) = set.mode {
            node.mode = (node.mode & mode::IFMT) | (m & 0o7777);
        }
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        let changed = Some(set.ctime.unwrap_or(SetTime::Now));
        for (i, t) in [set.atime, set.mtime, changed, set.btime].into_iter().enumerate() {
            if let Some(t) = t {
                node.times[i] = at(t, node.times[i], now);
            }
        }
        state.attr(ino.0)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        match &self.lock()?.state.node(ino.0)?.body {
            Body::Symlink(t) => Ok(t.clone()),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    fn mknod(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32, rdev: u32) -> Result<Entry> {
        let body = match FileType::from_mode(mode) {
            Some(FileType::File) => Body::File(Data::default()),
            Some(FileType::Dir | FileType::Symlink) | None => return Err(Errno::EINVAL.into()),
            Some(_) => Body::Special,
        };
        self.add(cx, parent, name, mode, rdev, body)
    }

    fn mkdir(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32) -> Result<Entry> {
        let body = Body::Dir(Dir { parent: parent.0, ..Dir::default() });
        self.add(cx, parent, name, mode::IFDIR | (mode & 0o7777), 0, body)
    }

    fn symlink(&self, cx: &Cx, parent: Ino, name: &[u8], target: &[u8]) -> Result<Entry> {
        match target.len() {
            0 => Err(Errno::EINVAL.into()),
            1..=4095 => self.add(cx, parent, name, mode::IFLNK | 0o777, 0, Body::Symlink(target.to_vec())),
            _ => Err(Errno::ENAMETOOLONG.into()),
        }
    }

    fn tmpfile(&self, cx: &Cx, parent: Ino, mode: u32) -> Result<Entry> {
        let now = self.clock.now();
        let mut inner = self.lock_writable()?;
        inner.state.dir(parent.0)?;
        if inner.state.node(parent.0)?.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        let mode = mode::IFREG | (mode & 0o7777);
        let ino = inner.make(cx, parent.0, mode, 0, Body::File(Data::default()), now)?;
        inner.state.node_mut(ino)?.unnamed = true;
        inner.entry(ino)
    }

    fn link(&self, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<Entry> {
        let now = self.clock.now();
        let mut inner = self.lock_writable()?;
        let node = inner.state.node(ino.0)?;
        if node.dir().is_some() {
            return Err(Errno::EPERM.into());
        }
        let gone = node.nlink == 0 && !node.unnamed;
        inner.state.vacant(new_parent.0, new_name)?;
        if gone {
            return Err(Errno::ENOENT.into());
        }
        inner.state.give_name(new_parent.0, new_name, ino.0, now)?;
        inner.state.node_mut(ino.0)?.unnamed = false;
        inner.entry(ino.0)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove(parent, name, false)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove(parent, name, true)
    }

    fn rename(&self, cx: &Cx, from: Ino, name: &[u8], to: Ino, new_name: &[u8], flags: RenameFlags) -> Result<()> {
        let now = self.clock.now();
        let mut inner = self.lock_writable()?;
        let (source, target) = inner.state.check_rename((from.0, name), (to.0, new_name), flags)?;
        if target == Some(source) {
            return Ok(());
        }
        inner.state.take_name(from.0, name, now)?;
        if let Some(t) = target {
            inner.state.take_name(to.0, new_name, now)?;
            match flags.contains(RenameFlags::EXCHANGE) {
                true => inner.state.give_name(from.0, name, t, now)?,
                false => inner.reap(t),
            }
        }
        inner.state.give_name(to.0, new_name, source, now)?;
        if flags.contains(RenameFlags::WHITEOUT) {
            let white = inner.make(cx, from.0, mode::IFCHR, 0, Body::Special, now)?;
            inner.state.give_name(from.0, name, white, now)?;
        }
        Ok(())
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(self.lock()?.state.data(ino.0)?.read(offset, buf))
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let now = self.clock.now();
        let mut inner = self.lock_writable()?;
        let file = inner.state.data_mut(ino.0)?;
        end_of(offset, data.len() as u64)?;
        file.write(offset, data);
        if !data.is_empty() {
            inner.state.touch(ino.0, now, true)?;
        }
        Ok(data.len())
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
        let inner = self.lock()?;
        inner.state.node(ino.0)?;
        inner.check_durable()
    }

    fn syncfs(&self) -> Result<()> {
        self.lock()?.check_durable()
    }

    fn fallocate(&self, ino: Ino, mode: FallocMode, offset: u64, len: u64) -> Result<()> {
        let now = self.clock.now();
        let mut inner = self.lock_writable()?;
        let file = inner.state.data_mut(ino.0)?;
        let keep = mode.contains(FallocMode::KEEP_SIZE);
        let (punch, zero) = (mode.contains(FallocMode::PUNCH_HOLE), mode.contains(FallocMode::ZERO_RANGE));
        if len == 0 {
            return Err(Errno::EINVAL.into());
        }
        if (punch && (zero || !keep)) || !(mode - FallocMode::all()).is_empty() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let end = end_of(offset, len)?;
        if punch || zero {
            file.zero(offset, len);
        }
        if !keep && end > file.size() {
            file.truncate(end);
        }
        inner.state.touch(ino.0, now, true)
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        let inner = self.lock()?;
        let file = inner.state.data(ino.0)?;
        if offset >= file.size() {
            return Err(Errno::ENXIO.into());
        }
        let here = |at: u64| file.pages().contains_key(&(at / crate::data::PAGE));
        match whence {
            Seek::Data if here(offset) => Ok(offset),
            Seek::Data => {
                let next = file.pages().range(offset / crate::data::PAGE..).next();
                next.map(|(n, _)| n * crate::data::PAGE).ok_or(Errno::ENXIO.into())
            }
            Seek::Hole => {
                let mut at = offset;
                while at < file.size() && here(at) {
                    at = (at / crate::data::PAGE + 1) * crate::data::PAGE;
                }
                Ok(at.min(file.size()))
            }
        }
    }

    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
        let now = self.clock.now();
        let mut inner = self.lock_writable()?;
        let source = inner.state.data(from.0)?;
        inner.state.data(to.0)?;
        let len = len.min(source.size().saturating_sub(from_offset));
        if from == to && from_offset < to_offset.saturating_add(len) && to_offset < from_offset.saturating_add(len) {
            return Err(Errno::EINVAL.into());
        }
        end_of(to_offset, len)?;
        if len == 0 {
            return Ok(0);
        }
        let mut buf = vec![0; len as usize];
        source.read(from_offset, &mut buf);
        inner.state.data_mut(to.0)?.write(to_offset, &buf);
        inner.state.touch(to.0, now, true)?;
        Ok(len)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        check_xattr_name(name)?;
        let inner = self.lock()?;
        inner.state.node(ino.0)?.xattrs.get(name).map(|v| v.to_vec()).ok_or(Errno::ENODATA.into())
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let now = self.clock.now();
        check_xattr_name(name)?;
        let mut inner = self.lock_writable()?;
        if value.len() > XATTR_MAX {
            return Err(Errno::E2BIG.into());
        }
        let xattrs = &mut inner.state.node_mut(ino.0)?.xattrs;
        match (mode, xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(Errno::EEXIST.into()),
            (XattrMode::Replace, false) => return Err(Errno::ENODATA.into()),
            _ => xattrs.insert(name.to_vec(), Arc::new(value.to_vec())),
        };
        inner.state.touch(ino.0, now, false)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.lock()?.state.node(ino.0)?.xattrs.keys().cloned().collect())
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let now = self.clock.now();
        check_xattr_name(name)?;
        let mut inner = self.lock_writable()?;
        if !inner.state.node(ino.0)?.xattrs.contains_key(name) {
            return Err(Errno::ENODATA.into());
        }
        inner.state.node_mut(ino.0)?.xattrs.remove(name);
        inner.state.touch(ino.0, now, false)
    }

    fn statfs(&self) -> Result<StatFs> {
        let inner = self.lock()?;
        let blocks = 1 << 30;
        let used: u64 = inner.state.nodes.values().map(|n| 1 + n.blocks() / 8).sum();
        let files = inner.state.nodes.len() as u64;
        let (bfree, ffree) = (blocks - used, (1 << 30) - files);
        Ok(StatFs {
            frsize: 4096,
            bsize: 4096,
            blocks,
            bfree,
            bavail: bfree,
            files: 1 << 30,
            ffree,
            namelen: 255,
            fsid: 0,
        })
    }

    fn trim(&self, _range: &TrimRange) -> Result<u64> {
        self.lock_writable().map(|_| 0)
    }

    fn background(&self, now: Time) -> Time {
        now.plus_ms(1000)
    }

    fn failure(&self) -> Option<String> {
        self.inner.lock().failed.as_ref().map(ToString::to_string)
    }

    fn fail(&self, why: &str) {
        self.inner.lock().failed.get_or_insert_with(|| why.into());
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("references", self.references() as u64)]
    }

    fn unmount(&self) -> Result<()> {
        let mut inner = self.lock()?;
        inner.reap_all();
        inner.open = false;
        inner.check_durable()
    }
}
