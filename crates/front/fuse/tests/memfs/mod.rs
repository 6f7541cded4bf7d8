//! A complete file system in memory, to have something to mount: data in pages, so that holes are
//! holes; directory cookies that only grow; inode numbers that are never used again. The root is
//! not inode 1, and inode 1 is an ordinary file, to test that the mount keeps them apart.

use arbor_base::vfs::*;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

pub const PAGE: u64 = 4096;
const ROOT: u64 = 77;
/// Looking up this name panics.
pub const PANICS: &[u8] = b"panics";
/// Looking up this name takes a second.
pub const SLEEPS: &[u8] = b"sleeps";
/// Looking up a name that begins so waits while the device hangs, as an fsync does, and a copy when it is done.
pub const HANGS: &[u8] = b"hangs";

#[derive(Default)]
struct Dir {
    by_name: HashMap<Vec<u8>, (u64, u64)>,
    by_cookie: BTreeMap<u64, (Vec<u8>, u64)>,
    next: u64,
    parent: u64,
}

struct Node {
    attr: Attr,
    pages: BTreeMap<u64, Box<[u8]>>,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    dir: Option<Dir>,
    lookups: u64,
}

struct State {
    nodes: HashMap<u64, Node>,
    next: u64,
}

pub struct MemFs {
    state: Mutex<State>,
    pub syncs: AtomicU64,
    pub background_calls: AtomicU64,
    pub unmounted: AtomicBool,
    /// Unmounting takes a while.
    pub unmounts_slowly: AtomicBool,
    pub dirty: AtomicBool,
    /// Files have space reserved that is going to be given back.
    pub unsettled: AtomicBool,
    pub failed: Mutex<Option<String>>,
    /// A change of attributes panics.
    pub panics: AtomicBool,
    /// Nothing becomes durable.
    pub fails_to_sync: AtomicBool,
    /// The device hangs.
    pub hangs: AtomicBool,
    /// Nobody is told the root, so that a mount is not finished.
    pub has_no_root_yet: AtomicBool,
    /// Calls that wait for it.
    pub waiting: AtomicU64,
    changes: AtomicU64,
}

fn err<T>(e: Errno) -> Result<T> {
    Err(e.into())
}

fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" | b"." | b".." => err(Errno::EINVAL),
        n if n.len() > 255 => err(Errno::ENAMETOOLONG),
        _ => Ok(()),
    }
}

impl State {
    fn node(&self, ino: Ino) -> Result<&Node> {
        self.nodes.get(&ino.0).ok_or(Errno::ESTALE.into())
    }

    fn node_mut(&mut self, ino: Ino) -> Result<&mut Node> {
        self.nodes.get_mut(&ino.0).ok_or(Errno::ESTALE.into())
    }

    fn dir(&self, ino: Ino) -> Result<&Dir> {
        self.node(ino)?.dir.as_ref().ok_or(Errno::ENOTDIR.into())
    }

    fn find(&self, parent: Ino, name: &[u8]) -> Result<u64> {
        self.dir(parent)?.by_name.get(name).map(|e| e.1).ok_or(Errno::ENOENT.into())
    }

    fn insert(&mut self, parent: Ino, name: &[u8], ino: u64) -> Result<()> {
        let now = SystemClock.now();
        let is_dir = self.node(Ino(ino))?.dir.is_some();
        let p = self.node_mut(parent)?;
        p.attr.mtime = now;
        p.attr.ctime = now;
        p.attr.nlink += u32::from(is_dir);
        let d = p.dir.as_mut().ok_or(Errno::ENOTDIR)?;
        let cookie = d.next;
        d.next += 1;
        d.by_name.insert(name.to_vec(), (cookie, ino));
        d.by_cookie.insert(cookie, (name.to_vec(), ino));
        if let Some(d) = &mut self.node_mut(Ino(ino))?.dir {
            d.parent = parent.0;
        }
        Ok(())
    }

    fn remove(&mut self, parent: Ino, name: &[u8]) -> Result<u64> {
        let now = SystemClock.now();
        let ino = self.find(parent, name)?;
        let is_dir = self.node(Ino(ino))?.dir.is_some();
        let p = self.node_mut(parent)?;
        p.attr.mtime = now;
        p.attr.ctime = now;
        p.attr.nlink -= u32::from(is_dir);
        let d = p.dir.as_mut().unwrap();
        let (cookie, _) = d.by_name.remove(name).unwrap();
        d.by_cookie.remove(&cookie);
        Ok(ino)
    }

    fn drop_link(&mut self, ino: u64) {
        let n = self.nodes.get_mut(&ino).unwrap();
        n.attr.nlink -= 1;
        n.attr.ctime = SystemClock.now();
        if n.dir.is_some() {
            n.attr.nlink = 0;
        }
        self.reap(ino);
    }

    fn reap(&mut self, ino: u64) {
        if self.nodes.get(&ino).is_some_and(|n| n.attr.nlink == 0 && n.lookups == 0) {
            self.nodes.remove(&ino);
        }
    }

    fn make(&mut self, cx: &Cx, parent: Ino, mode: u32, rdev: u32) -> Result<u64> {
        let p = self.node(parent)?;
        if p.attr.nlink == 0 {
            return err(Errno::ENOENT);
        }
        let sgid = p.attr.mode & mode::ISGID != 0;
        let is_dir = mode & mode::IFMT == mode::IFDIR;
        let gid = if sgid { p.attr.gid } else { cx.gid };
        let mode = if sgid && is_dir { mode | mode::ISGID } else { mode };
        // The first file gets number 1, on purpose.
        let ino = self.next;
        self.next = if ino == 1 { 1000 } else { ino + 1 };
        let now = SystemClock.now();
        let attr = Attr {
            ino: Ino(ino),
            generation: 1,
            mode,
            nlink: if is_dir { 2 } else { 1 },
            uid: cx.uid,
            gid,
            rdev,
            size: 0,
            blocks: 0,
            blksize: 65536,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            unsettled: false,
        };
        let dir = is_dir.then(|| Dir { next: 3, parent: parent.0, ..Dir::default() });
        let node = Node { attr, pages: BTreeMap::new(), target: vec![], xattrs: BTreeMap::new(), dir, lookups: 0 };
        self.nodes.insert(ino, node);
        Ok(ino)
    }

    fn entry(&mut self, ino: u64) -> Result<Entry> {
        let n = self.node_mut(Ino(ino))?;
        n.lookups += 1;
        Ok(n.attr)
    }

    fn is_below(&self, mut ino: u64, ancestor: u64) -> bool {
        while ino != ROOT {
            if ino == ancestor {
                return true;
            }
            ino = self.nodes[&ino].dir.as_ref().unwrap().parent;
        }
        ancestor == ROOT
    }
}

impl Node {
    fn regular(&mut self) -> Result<&mut Node> {
        match self.attr.file_type() {
            FileType::File => Ok(self),
            FileType::Dir => err(Errno::EISDIR),
            _ => err(Errno::EINVAL),
        }
    }

    fn changed(&mut self) {
        let now = SystemClock.now();
        self.attr.mtime = now;
        self.attr.ctime = now;
        self.attr.blocks = self.pages.len() as u64 * (PAGE / 512);
    }

    fn zero(&mut self, from: u64, to: u64) {
        let mut at = from;
        while at < to {
            let (page, off) = (at / PAGE, at % PAGE);
            let n = (PAGE - off).min(to - at);
            if n == PAGE {
                self.pages.remove(&page);
            } else if let Some(p) = self.pages.get_mut(&page) {
                p[off as usize..(off + n) as usize].fill(0);
            }
            at += n;
        }
    }

    fn truncate(&mut self, size: u64) {
        if size < self.attr.size {
            let end = self.pages.keys().next_back().map_or(0, |p| (p + 1) * PAGE);
            self.zero(size, end.max(size));
        }
        self.attr.size = size;
        self.changed();
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let end = (offset + buf.len() as u64).min(self.attr.size);
        let mut at = offset;
        while at < end {
            let (page, off) = (at / PAGE, (at % PAGE) as usize);
            let n = (PAGE - off as u64).min(end - at) as usize;
            let to = &mut buf[(at - offset) as usize..][..n];
            match self.pages.get(&page) {
                Some(p) => to.copy_from_slice(&p[off..off + n]),
                None => to.fill(0),
            }
            at += n as u64;
        }
        end.saturating_sub(offset) as usize
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let mut at = offset;
        while at < end {
            let (page, off) = (at / PAGE, (at % PAGE) as usize);
            let n = (PAGE - off as u64).min(end - at) as usize;
            let p = self.pages.entry(page).or_insert_with(|| vec![0; PAGE as usize].into());
            p[off..off + n].copy_from_slice(&data[(at - offset) as usize..][..n]);
            at += n as u64;
        }
        self.attr.size = self.attr.size.max(end);
        self.changed();
    }
}

impl MemFs {
    pub fn new() -> MemFs {
        let mut state = State { nodes: HashMap::new(), next: ROOT };
        let now = SystemClock.now();
        let attr = Attr {
            ino: Ino(ROOT),
            generation: 1,
            mode: mode::IFDIR | 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            blksize: 4096,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            unsettled: false,
        };
        let dir = Some(Dir { next: 3, parent: ROOT, ..Dir::default() });
        let root = Node { attr, pages: BTreeMap::new(), target: vec![], xattrs: BTreeMap::new(), dir, lookups: 1 };
        state.nodes.insert(ROOT, root);
        state.next = 1;
        MemFs {
            state: Mutex::new(state),
            syncs: AtomicU64::new(0),
            background_calls: AtomicU64::new(0),
            unmounted: AtomicBool::new(false),
            unmounts_slowly: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
            unsettled: AtomicBool::new(false),
            failed: Mutex::default(),
            panics: AtomicBool::new(false),
            fails_to_sync: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            has_no_root_yet: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        }
    }

    /// Inodes that exist, the root too.
    pub fn inodes(&self) -> usize {
        self.state.lock().nodes.len()
    }

    /// Sum of the lookup counts.
    pub fn lookups(&self) -> u64 {
        self.state.lock().nodes.values().map(|n| n.lookups).sum()
    }

    fn change(&self) -> parking_lot::MutexGuard<'_, State> {
        // Work piles up now and then.
        if self.changes.fetch_add(1, SeqCst).is_multiple_of(1024) {
            self.dirty.store(true, SeqCst);
        }
        self.state.lock()
    }

    /// Waits while the device hangs, or until the caller got a signal; not for ever, so that a test that
    /// fails ends.
    fn device(&self) -> Result<()> {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        self.waiting.fetch_add(1, SeqCst);
        let mut result = Ok(());
        while self.hangs.load(SeqCst) && result.is_ok() && std::time::Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(1));
            result = if interrupted() { err(Errno::EINTR) } else { Ok(()) };
        }
        self.waiting.fetch_sub(1, SeqCst);
        result
    }

    fn walk(
        &self,
        ino: Ino,
        cookie: u64,
        count: bool,
        f: &mut dyn FnMut(&DirEntry<'_>, Option<&Entry>) -> bool,
    ) -> Result<()> {
        let mut st = self.state.lock();
        let d = st.dir(ino)?;
        let parent = d.parent;
        let dot = |ino, cookie, name| DirEntry { ino, file_type: FileType::Dir, cookie, name };
        if cookie < 1 && !f(&dot(ino, 1, b"."), None) {
            return Ok(());
        }
        if cookie < 2 && !f(&dot(Ino(parent), 2, b".."), None) {
            return Ok(());
        }
        let mut taken = Vec::new();
        for (&c, (name, child)) in st.dir(ino)?.by_cookie.range(cookie.max(2) + 1..) {
            let attr = st.nodes[child].attr;
            let entry = DirEntry { ino: Ino(*child), file_type: attr.file_type(), cookie: c, name };
            if !f(&entry, Some(&attr)) {
                break;
            }
            taken.push(*child);
        }
        if count {
            for child in taken {
                st.nodes.get_mut(&child).unwrap().lookups += 1;
            }
        }
        Ok(())
    }
}

impl MemFs {
    fn told(&self, a: Attr) -> Attr {
        let unsettled = self.unsettled.load(SeqCst);
        Attr { unsettled, blocks: a.blocks + 8 * u64::from(unsettled), ..a }
    }
}

impl FileSystem for MemFs {
    fn root(&self) -> Ino {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while self.has_no_root_yet.load(SeqCst) && std::time::Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ino(ROOT)
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry> {
        match name {
            PANICS => panic!("as the test wants it"),
            SLEEPS => std::thread::sleep(std::time::Duration::from_secs(1)),
            n if n.starts_with(HANGS) => self.device()?,
            _ => {}
        }
        let mut st = self.state.lock();
        let ino = match name {
            b"." => parent.0,
            b".." => st.dir(parent)?.parent,
            n if n.len() > 255 => return err(Errno::ENAMETOOLONG),
            n => st.find(parent, n)?,
        };
        st.entry(ino)
    }

    fn forget(&self, ino: Ino, count: u64) {
        let mut st = self.state.lock();
        if let Some(n) = st.nodes.get_mut(&ino.0) {
            assert!(n.lookups >= count, "forget of more than was looked up");
            n.lookups -= count;
            st.reap(ino.0);
        }
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        Ok(self.told(self.state.lock().node(ino)?.attr))
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        assert!(!self.panics.load(SeqCst), "as the test wants it");
        let mut st = self.change();
        let n = st.node_mut(ino)?;
        let now = SystemClock.now();
        if let Some(size) = set.size {
            n.regular()?.truncate(size);
        }
        let a = &mut n.attr;
        a.ctime = if set.ctime == Some(SetTime::Kept) { a.ctime } else { now };
        if let Some(m) = set.mode {
            a.mode = a.mode & mode::IFMT | m & 0o7777;
        }
        a.uid = set.uid.unwrap_or(a.uid);
        a.gid = set.gid.unwrap_or(a.gid);
        for (to, from) in
            [(&mut a.atime, set.atime), (&mut a.mtime, set.mtime), (&mut a.ctime, set.ctime), (&mut a.btime, set.btime)]
        {
            match from {
                Some(SetTime::Now) => *to = now,
                Some(SetTime::At(t)) => *to = t,
                Some(SetTime::Kept) | None => {}
            }
        }
        Ok(self.told(*a))
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let st = self.state.lock();
        match st.node(ino)? {
            n if n.attr.file_type() == FileType::Symlink => Ok(n.target.clone()),
            _ => err(Errno::EINVAL),
        }
    }

    fn mknod(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32, rdev: u32) -> Result<Entry> {
        check_name(name)?;
        let mut st = self.change();
        if st.dir(parent)?.by_name.contains_key(name) {
            return err(Errno::EEXIST);
        }
        let ino = st.make(cx, parent, mode, rdev)?;
        st.insert(parent, name, ino)?;
        st.entry(ino)
    }

    fn mkdir(&self, cx: &Cx, parent: Ino, name: &[u8], mode: u32) -> Result<Entry> {
        self.mknod(cx, parent, name, mode & 0o7777 | mode::IFDIR, 0)
    }

    fn symlink(&self, cx: &Cx, parent: Ino, name: &[u8], target: &[u8]) -> Result<Entry> {
        let entry = self.mknod(cx, parent, name, mode::IFLNK | 0o777, 0)?;
        let mut st = self.state.lock();
        let n = st.node_mut(entry.ino)?;
        n.target = target.to_vec();
        n.attr.size = target.len() as u64;
        Ok(n.attr)
    }

    fn tmpfile(&self, cx: &Cx, parent: Ino, mode: u32) -> Result<Entry> {
        let mut st = self.change();
        let ino = st.make(cx, parent, mode & 0o7777 | mode::IFREG, 0)?;
        st.node_mut(Ino(ino))?.attr.nlink = 0;
        st.entry(ino)
    }

    fn link(&self, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<Entry> {
        check_name(new_name)?;
        let mut st = self.change();
        if st.node(ino)?.dir.is_some() {
            return err(Errno::EPERM);
        }
        if st.dir(new_parent)?.by_name.contains_key(new_name) {
            return err(Errno::EEXIST);
        }
        st.node_mut(ino)?.attr.nlink += 1;
        st.node_mut(ino)?.attr.ctime = SystemClock.now();
        st.insert(new_parent, new_name, ino.0)?;
        st.entry(ino.0)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let mut st = self.change();
        let ino = st.find(parent, name)?;
        if st.node(Ino(ino))?.dir.is_some() {
            return err(Errno::EISDIR);
        }
        st.remove(parent, name)?;
        st.drop_link(ino);
        Ok(())
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let mut st = self.change();
        let ino = st.find(parent, name)?;
        if !st.dir(Ino(ino))?.by_name.is_empty() {
            return err(Errno::ENOTEMPTY);
        }
        st.remove(parent, name)?;
        st.drop_link(ino);
        Ok(())
    }

    fn rename(&self, cx: &Cx, parent: Ino, name: &[u8], to: Ino, new_name: &[u8], flags: RenameFlags) -> Result<()> {
        check_name(new_name)?;
        let mut st = self.change();
        let ino = st.find(parent, name)?;
        let old = st.find(to, new_name).ok();
        let is_dir = |st: &State, ino: u64| st.nodes[&ino].dir.is_some();
        if is_dir(&st, ino) && st.is_below(to.0, ino) {
            return err(Errno::EINVAL);
        }
        if flags.contains(RenameFlags::EXCHANGE) {
            let old = old.ok_or(Errno::ENOENT)?;
            st.remove(parent, name)?;
            st.remove(to, new_name)?;
            st.insert(parent, name, old)?;
            return st.insert(to, new_name, ino);
        }
        match old {
            Some(_) if flags.contains(RenameFlags::NOREPLACE) => return err(Errno::EEXIST),
            Some(old) if old == ino => return Ok(()),
            Some(old) => {
                match (is_dir(&st, ino), is_dir(&st, old)) {
                    (true, false) => return err(Errno::ENOTDIR),
                    (false, true) => return err(Errno::EISDIR),
                    (true, true) if !st.dir(Ino(old))?.by_name.is_empty() => return err(Errno::ENOTEMPTY),
                    _ => {}
                }
                st.remove(to, new_name)?;
                st.drop_link(old);
            }
            None => {}
        }
        st.remove(parent, name)?;
        st.insert(to, new_name, ino)?;
        st.node_mut(Ino(ino))?.attr.ctime = SystemClock.now();
        if flags.contains(RenameFlags::WHITEOUT) {
            let white = st.make(cx, parent, mode::IFCHR, 0)?;
            st.insert(parent, name, white)?;
        }
        Ok(())
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut st = self.state.lock();
        let n = st.node_mut(ino)?.regular()?;
        Ok(n.read(offset, buf))
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.change().node_mut(ino)?.regular()?.write(offset, data);
        Ok(data.len())
    }

    fn readdir(&self, ino: Ino, cookie: u64, f: &mut dyn FnMut(&DirEntry<'_>) -> bool) -> Result<()> {
        self.walk(ino, cookie, false, &mut |entry, _| f(entry))
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
        if self.fails_to_sync.load(SeqCst) {
            return err(Errno::EIO);
        }
        self.device()?;
        self.state.lock().node(ino)?;
        self.syncs.fetch_add(1, SeqCst);
        Ok(())
    }

    fn syncfs(&self) -> Result<()> {
        self.syncs.fetch_add(1_000_000, SeqCst);
        Ok(())
    }

    fn fallocate(&self, ino: Ino, mode: FallocMode, offset: u64, len: u64) -> Result<()> {
        let mut st = self.change();
        let n = st.node_mut(ino)?.regular()?;
        let end = offset + len;
        if mode.intersects(FallocMode::PUNCH_HOLE | FallocMode::ZERO_RANGE) {
            n.zero(offset, end);
        }
        if !mode.contains(FallocMode::PUNCH_HOLE) {
            for page in offset / PAGE..end.div_ceil(PAGE) {
                n.pages.entry(page).or_insert_with(|| vec![0; PAGE as usize].into());
            }
        }
        if !mode.contains(FallocMode::KEEP_SIZE) {
            n.attr.size = n.attr.size.max(end);
        }
        n.changed();
        Ok(())
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        let mut st = self.state.lock();
        let n = st.node_mut(ino)?.regular()?;
        if offset >= n.attr.size {
            return err(Errno::ENXIO);
        }
        let mut at = offset;
        while at < n.attr.size {
            if n.pages.contains_key(&(at / PAGE)) == (whence == Seek::Data) {
                return Ok(at);
            }
            at = (at / PAGE + 1) * PAGE;
        }
        if whence == Seek::Hole { Ok(n.attr.size) } else { err(Errno::ENXIO) }
    }

    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
        let mut st = self.change();
        let size = st.node(from)?.attr.size;
        let mut data = vec![0; len.min(size.saturating_sub(from_offset)) as usize];
        st.node_mut(from)?.regular()?.read(from_offset, &mut data);
        st.node_mut(to)?.regular()?.write(to_offset, &data);
        drop(st);
        // What is copied is copied.
        let _ = self.device();
        Ok(data.len() as u64)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.state.lock().node(ino)?.xattrs.get(name).cloned().ok_or(Errno::ENODATA.into())
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let mut st = self.change();
        let n = st.node_mut(ino)?;
        match (mode, n.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return err(Errno::EEXIST),
            (XattrMode::Replace, false) => return err(Errno::ENODATA),
            _ => {}
        }
        n.xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.state.lock().node(ino)?.xattrs.keys().cloned().collect())
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let removed = self.change().node_mut(ino)?.xattrs.remove(name);
        removed.map(|_| ()).ok_or(Errno::ENODATA.into())
    }

    fn statfs(&self) -> Result<StatFs> {
        let used = self.state.lock().nodes.values().map(|n| n.pages.len() as u64).sum::<u64>();
        Ok(StatFs {
            frsize: 4096,
            bsize: 4096,
            blocks: 1 << 20,
            bfree: (1 << 20) - used,
            bavail: (1 << 20) - used,
            files: 1 << 20,
            ffree: (1 << 20) - self.inodes() as u64,
            namelen: 255,
            fsid: 7,
        })
    }

    fn trim(&self, range: &TrimRange) -> Result<u64> {
        range.check(1 << 20, 4096, 1 << 20)?;
        Ok(range.len.min(12345))
    }

    fn background(&self, now: Time) -> Time {
        self.background_calls.fetch_add(1, SeqCst);
        self.dirty.store(false, SeqCst);
        now.plus_ms(3_600_000)
    }

    fn wants_background(&self) -> bool {
        self.dirty.load(SeqCst)
    }

    fn failure(&self) -> Option<String> {
        self.failed.lock().clone()
    }

    fn fail(&self, why: &str) {
        self.failed.lock().get_or_insert_with(|| why.to_string());
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![]
    }

    fn unmount(&self) -> Result<()> {
        if self.unmounts_slowly.load(SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        match self.unmounted.swap(true, SeqCst) {
            false => Ok(()),
            true => err(Errno::EIO),
        }
    }
}
