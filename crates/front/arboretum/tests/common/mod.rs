//! A small file system in memory that counts lookup references, so that the library can be
//! tested without an engine and every reference it takes is seen to come back.
#![allow(dead_code)]

use arboretum::vfs::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

const PAGE: u64 = 4096;

struct Node {
    attr: Attr,
    parent: Ino,
    entries: BTreeMap<Vec<u8>, Ino>,
    pages: BTreeMap<u64, Vec<u8>>,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    lookups: u64,
}

struct State {
    nodes: BTreeMap<Ino, Node>,
    next: u64,
}

pub struct FakeFs {
    state: Mutex<State>,
    pub syncs: AtomicU64,
    pub unmounts: AtomicU64,
    pub backgrounds: AtomicU64,
    pub lookups: AtomicU64,
    /// Whether it says that no directory has left its place.
    counts: bool,
}

const NOW: Time = Time { secs: 1_700_000_000, nanos: 5 };

impl FakeFs {
    pub fn new() -> Arc<FakeFs> {
        let mut state = State { nodes: BTreeMap::new(), next: 1 };
        state.add(Cx::default(), Ino(1), mode::IFDIR | 0o755, 0);
        let zero = || AtomicU64::new(0);
        Arc::new(FakeFs {
            state: Mutex::new(state),
            syncs: zero(),
            unmounts: zero(),
            backgrounds: zero(),
            lookups: zero(),
            counts: false,
        })
    }

    /// One with a version of its tree.
    pub fn counting() -> Arc<FakeFs> {
        let mut fake = FakeFs::new();
        Arc::get_mut(&mut fake).unwrap().counts = true;
        fake
    }

    /// Gives a directory another name, as no file system does.
    pub fn enter_directory(&self, at: &str, name: &str, dir: &str) {
        let mut s = self.lock();
        let [at, dir] = [at, dir].map(|path| {
            let names = path.split('/').filter(|name| !name.is_empty());
            names.fold(Ino(1), |dir, name| s.named(dir, name.as_bytes()).unwrap())
        });
        s.dir(at).unwrap().entries.insert(name.as_bytes().to_vec(), dir);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// References that were taken and not given back.
    pub fn outstanding(&self) -> u64 {
        self.lock().nodes.values().map(|n| n.lookups).sum()
    }

    /// Inodes that exist, with or without a name.
    pub fn inodes(&self) -> usize {
        self.lock().nodes.len()
    }

    fn make(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32, rdev: u32) -> Result<Entry> {
        let mut s = self.lock();
        if name.len() > 255 {
            return Err(Errno::ENAMETOOLONG.into());
        }
        if s.dir(parent)?.entries.contains_key(name) {
            return Err(Errno::EEXIST.into());
        }
        let ino = s.add(*cx, parent, mode, rdev);
        s.dir(parent)?.entries.insert(name.to_vec(), ino);
        s.refer(ino)
    }
}

impl State {
    fn add(&mut self, cx: Cx, parent: Ino, mode: u32, rdev: u32) -> Ino {
        let ino = Ino(self.next);
        self.next += 1;
        let attr = Attr {
            ino,
            generation: 0,
            mode,
            nlink: 1,
            uid: cx.uid,
            gid: cx.gid,
            rdev,
            size: 0,
            blocks: 0,
            blksize: 4096,
            atime: NOW,
            mtime: NOW,
            ctime: NOW,
            btime: NOW,
            unsettled: false,
        };
        let node = Node {
            attr,
            parent,
            entries: BTreeMap::new(),
            pages: BTreeMap::new(),
            target: Vec::new(),
            xattrs: BTreeMap::new(),
            lookups: 0,
        };
        self.nodes.insert(ino, node);
        ino
    }

    fn get(&mut self, ino: Ino) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(Errno::ESTALE.into())
    }

    fn dir(&mut self, ino: Ino) -> Result<&mut Node> {
        let node = self.get(ino)?;
        if node.attr.file_type() == FileType::Dir { Ok(node) } else { Err(Errno::ENOTDIR.into()) }
    }

    fn named(&mut self, parent: Ino, name: &[u8]) -> Result<Ino> {
        let dir = self.dir(parent)?;
        match name {
            b"." => Ok(parent),
            b".." => Ok(dir.parent),
            _ => dir.entries.get(name).copied().ok_or(Errno::ENOENT.into()),
        }
    }

    fn refer(&mut self, ino: Ino) -> Result<Entry> {
        let node = self.get(ino)?;
        node.lookups += 1;
        Ok(node.attr)
    }

    fn reap(&mut self, ino: Ino) {
        if self.nodes.get(&ino).is_some_and(|n| n.attr.nlink == 0 && n.lookups == 0) {
            self.nodes.remove(&ino);
        }
    }

    fn drop_name(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        let ino = self.named(parent, name)?;
        self.dir(parent)?.entries.remove(name);
        self.get(ino)?.attr.nlink -= 1;
        self.reap(ino);
        Ok(())
    }
}

impl FileSystem for FakeFs {
    fn root(&self) -> Ino {
        Ino(1)
    }

    fn tree_version(&self) -> Option<u64> {
        self.counts.then_some(1)
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let mut s = self.lock();
        let ino = s.named(parent, name)?;
        s.refer(ino)
    }

    fn forget(&self, ino: Ino, count: u64) {
        let mut s = self.lock();
        let node = s.get(ino).expect("forget of something alive");
        node.lookups = node.lookups.checked_sub(count).expect("no more than was taken");
        s.reap(ino);
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        Ok(self.lock().get(ino)?.attr)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let mut s = self.lock();
        let node = s.get(ino)?;
        let time = |t: Option<SetTime>, old: Time| match t {
            Some(SetTime::At(t)) => t,
            Some(SetTime::Now) => NOW,
            Some(SetTime::Kept) | None => old,
        };
        let a = &mut node.attr;
        a.mode = set.mode.map_or(a.mode, |m| (a.mode & mode::IFMT) | (m & 0o7777));
        a.uid = set.uid.unwrap_or(a.uid);
        a.gid = set.gid.unwrap_or(a.gid);
        a.atime = time(set.atime, a.atime);
        a.mtime = time(set.mtime, a.mtime);
        a.btime = time(set.btime, a.btime);
        if let Some(size) = set.size {
            a.size = size;
            node.pages.retain(|page, _| page * PAGE < size);
            if let Some(page) = node.pages.get_mut(&(size / PAGE)) {
                page[(size % PAGE) as usize..].fill(0);
            }
        }
        Ok(node.attr)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let mut s = self.lock();
        let node = s.get(ino)?;
        if node.target.is_empty() { Err(Errno::EINVAL.into()) } else { Ok(node.target.clone()) }
    }

    fn mknod(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32, rdev: u32) -> Result<Entry> {
        self.make(cx, parent, name, mode, rdev)
    }

    fn mkdir(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32) -> Result<Entry> {
        self.make(cx, parent, name, mode::IFDIR | mode, 0)
    }

    fn symlink(&self, cx: &Cx, parent: Ino, name: &[u8], target: &[u8]) -> Result<Entry> {
        let entry = self.make(cx, parent, name, mode::IFLNK | 0o777, 0)?;
        let mut s = self.lock();
        let node = s.get(entry.ino)?;
        node.target = target.to_vec();
        node.attr.size = target.len() as u64;
        Ok(node.attr)
    }

    fn tmpfile(&self, _cx: &Cx, _parent: Ino, _mode: u32) -> Result<Entry> {
        Err(Errno::EOPNOTSUPP.into())
    }

    fn link(&self, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<Entry> {
        let mut s = self.lock();
        if s.dir(new_parent)?.entries.contains_key(new_name) {
            return Err(Errno::EEXIST.into());
        }
        s.get(ino)?.attr.nlink += 1;
        s.dir(new_parent)?.entries.insert(new_name.to_vec(), ino);
        s.refer(ino)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let mut s = self.lock();
        let ino = s.named(parent, name)?;
        if s.get(ino)?.attr.file_type() == FileType::Dir {
            return Err(Errno::EISDIR.into());
        }
        s.drop_name(parent, name)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let mut s = self.lock();
        let ino = s.named(parent, name)?;
        if !s.dir(ino)?.entries.is_empty() {
            return Err(Errno::ENOTEMPTY.into());
        }
        s.drop_name(parent, name)
    }

    fn rename(&self, _: &Cx, parent: Ino, name: &[u8], to: Ino, new: &[u8], flags: RenameFlags) -> Result<()> {
        let mut s = self.lock();
        let ino = s.named(parent, name)?;
        if s.named(to, new).is_ok() {
            if flags.contains(RenameFlags::NOREPLACE) {
                return Err(Errno::EEXIST.into());
            }
            s.drop_name(to, new)?;
        }
        s.dir(parent)?.entries.remove(name);
        s.dir(to)?.entries.insert(new.to_vec(), ino);
        s.get(ino)?.parent = to;
        Ok(())
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut s = self.lock();
        let node = s.get(ino)?;
        if node.attr.file_type() == FileType::Dir {
            return Err(Errno::EISDIR.into());
        }
        let n = node.attr.size.saturating_sub(offset).min(buf.len() as u64);
        for (at, byte) in (offset..offset + n).zip(buf) {
            *byte = node.pages.get(&(at / PAGE)).map_or(0, |page| page[(at % PAGE) as usize]);
        }
        Ok(n as usize)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let mut s = self.lock();
        let node = s.get(ino)?;
        for (at, byte) in (offset..).zip(data) {
            let page = node.pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE as usize]);
            page[(at % PAGE) as usize] = *byte;
        }
        node.attr.size = node.attr.size.max(offset + data.len() as u64);
        node.attr.blocks = node.pages.len() as u64 * (PAGE / 512);
        Ok(data.len())
    }

    fn readdir(&self, ino: Ino, cookie: u64, f: &mut dyn FnMut(&DirEntry<'_>) -> bool) -> Result<()> {
        let entries: Vec<_> = {
            let mut s = self.lock();
            let names = s.dir(ino)?.entries.clone();
            names.into_iter().map(|(name, ino)| (s.nodes[&ino].attr, name)).collect()
        };
        let dots = [(b".".to_vec(), 1), (b"..".to_vec(), 2)];
        let dots = dots.iter().map(|(name, cookie)| (ino, FileType::Dir, *cookie, name.as_slice()));
        let named = entries.iter().map(|(attr, name)| (attr.ino, attr.file_type(), attr.ino.0 + 2, name.as_slice()));
        let mut all: Vec<_> = dots.chain(named).collect();
        all.sort_by_key(|e| e.2);
        for (ino, file_type, cookie, name) in all.into_iter().filter(|e| e.2 > cookie) {
            if !f(&DirEntry { ino, file_type, cookie, name }) {
                break;
            }
        }
        Ok(())
    }

    fn readdir_plus(
        &self,
        ino: Ino,
        cookie: u64,
        f: &mut dyn FnMut(&DirEntry<'_>, Option<&Entry>) -> bool,
    ) -> Result<()> {
        self.readdir(ino, cookie, &mut |entry| {
            let attr = (!matches!(entry.name, b"." | b"..")).then(|| self.getattr(entry.ino).unwrap());
            let taken = f(entry, attr.as_ref());
            if taken && attr.is_some() {
                self.lock().refer(entry.ino).unwrap();
            }
            taken
        })
    }

    fn fsync(&self, _ino: Ino, _data_only: bool) -> Result<()> {
        self.syncfs()
    }

    fn syncfs(&self) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn fallocate(&self, ino: Ino, mode: FallocMode, offset: u64, len: u64) -> Result<()> {
        let mut s = self.lock();
        let node = s.get(ino)?;
        if mode.contains(FallocMode::PUNCH_HOLE) {
            node.pages.retain(|page, _| page * PAGE < offset || (page + 1) * PAGE > offset + len);
        } else if !mode.contains(FallocMode::KEEP_SIZE) {
            node.attr.size = node.attr.size.max(offset + len);
        }
        Ok(())
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        let mut s = self.lock();
        let node = s.get(ino)?;
        if offset >= node.attr.size {
            return Err(Errno::ENXIO.into());
        }
        let mut at = offset;
        while at < node.attr.size {
            if node.pages.contains_key(&(at / PAGE)) == (whence == Seek::Data) {
                return Ok(at);
            }
            at = (at / PAGE + 1) * PAGE;
        }
        if whence == Seek::Hole { Ok(node.attr.size) } else { Err(Errno::ENXIO.into()) }
    }

    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
        let mut buf = vec![0; len as usize];
        let n = self.read(from, from_offset, &mut buf)?;
        self.write(to, to_offset, &buf[..n]).map(|n| n as u64)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.lock().get(ino)?.xattrs.get(name).cloned().ok_or(Errno::ENODATA.into())
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], _mode: XattrMode) -> Result<()> {
        self.lock().get(ino)?.xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.lock().get(ino)?.xattrs.keys().cloned().collect())
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.lock().get(ino)?.xattrs.remove(name).map(drop).ok_or(Errno::ENODATA.into())
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs { frsize: 4096, bsize: 4096, namelen: 255, ..StatFs::default() })
    }

    fn trim(&self, _range: &TrimRange) -> Result<u64> {
        Ok(0)
    }

    fn background(&self, now: Time) -> Time {
        self.backgrounds.fetch_add(1, Ordering::Relaxed);
        now.plus_ms(1000)
    }

    fn failure(&self) -> Option<String> {
        None
    }

    fn fail(&self, _why: &str) {}

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn unmount(&self) -> Result<()> {
        self.unmounts.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
