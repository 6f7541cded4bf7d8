//! Real mounts of a file system in memory, used through the kernel. Needs root and `/dev/fuse`;
//! where they are missing each test says so and does nothing.

mod guard;
mod memfs;
mod rings;

use arbor_base::device::{Device, FileDevice, OpenMode};
use arbor_base::vfs::{FileSystem, Options, SetAttr};
use arbor_fuse::{MountConfig, Session, Transport};
use guard::{Limit, can_mount};
use memfs::{MemFs, PAGE};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, StatxFlags, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::os::unix::thread::JoinHandleExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Held for writing by who drops the caches, for reading by who counts requests.
static CACHES: RwLock<()> = RwLock::new(());

/// Held for reading by who starts a process, which has all our descriptors until it runs its program, and
/// for writing by who ends a session while files are open: closing them there would wait for an answer
/// from a connection that is there as long as this process is.
static FORKS: RwLock<()> = RwLock::new(());

fn start(command: &mut Command) -> Child {
    let _forks = FORKS.read().unwrap_or_else(PoisonError::into_inner);
    command.spawn().unwrap()
}

fn output(command: &mut Command) -> std::io::Result<Output> {
    let _forks = FORKS.read().unwrap_or_else(PoisonError::into_inner);
    command.output()
}

/// A mount that is gone when the test is, however it ends: the session goes before the directory.
struct Mounted {
    session: Option<Session>,
    fs: Arc<MemFs>,
    dir: tempfile::TempDir,
}

impl Mounted {
    fn new() -> Option<Mounted> {
        Mounted::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut MountConfig)) -> Option<Mounted> {
        if !can_mount() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let fs = Arc::new(MemFs::new());
        let mut config = MountConfig { source: "/image, of\\ a test".into(), record: false, ..Default::default() };
        change(&mut config);
        let session = arbor_fuse::mount(fs.clone(), dir.path(), &config).unwrap();
        session.ready().unwrap();
        Some(Mounted { session: Some(session), fs, dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn requests(&self, kind: &str) -> u64 {
        self.session.as_ref().unwrap().counters().requests(kind)
    }

    fn end(mut self) -> Arc<MemFs> {
        let session = self.session.take().unwrap();
        // A child of another test may have our files open, from its fork to its exec.
        let busy = |done: &std::io::Result<()>| matches!(done, Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy);
        let ended = (0..20).map(|_| session.unmounter().unmount()).find(|done| !busy(done));
        ended.expect("nobody uses it").unwrap();
        session.wait().unwrap();
        assert!(!is_mounted(self.dir.path()));
        assert!(self.fs.unmounted.load(SeqCst));
        self.fs.clone()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.session.take());
    }
}

fn is_mounted(dir: &Path) -> bool {
    let dir = dir.canonicalize().unwrap_or(dir.to_path_buf());
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().any(|l| l.split(' ').nth(4) == dir.to_str())
}

fn names(dir: &Path) -> Vec<OsString> {
    fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect()
}

fn counting() -> impl Drop {
    CACHES.read().unwrap_or_else(PoisonError::into_inner)
}

fn dropping() -> impl Drop {
    CACHES.write().unwrap_or_else(PoisonError::into_inner)
}

/// Until it holds, at most ten seconds.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn files_are_made_read_renamed_and_removed() {
    let _caches = counting();
    let Some(m) = Mounted::new() else { return };
    let f = m.path("a");
    fs::write(&f, b"hello").unwrap();
    assert_eq!(fs::read(&f).unwrap(), b"hello");
    assert_eq!(fs::metadata(&f).unwrap().ino(), 1, "the engine's numbers are shown, also the root's on node 1");
    assert_eq!(fs::metadata(m.dir.path()).unwrap().ino(), 77);
    let big: Vec<u8> = (0..5_000_000u32).map(|i| (i / 7) as u8).collect();
    fs::write(m.path("big"), &big).unwrap();
    assert!(fs::read(m.path("big")).unwrap() == big);
    assert!(m.requests("write") < 30, "writes of 1 MiB");

    fs::create_dir(m.path("d")).unwrap();
    fs::rename(&f, m.path("d/b")).unwrap();
    assert_eq!(fs::metadata(&f).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(fs::read(m.path("d/b")).unwrap(), b"hello");
    assert_eq!(fs::rename(m.path("d"), m.path("d/e")).unwrap_err().raw_os_error(), Some(22));
    let renameat = |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, m.path(from), CWD, m.path(to), flags);
    assert_eq!(renameat("d/b", "big", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    renameat("d/b", "big", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(m.path("big")).unwrap(), b"hello");
    assert!(fs::read(m.path("d/b")).unwrap() == big);
    renameat("d/b", "moved", RenameFlags::WHITEOUT).unwrap();
    assert!(fs::symlink_metadata(m.path("d/b")).unwrap().file_type().is_char_device());
    assert_eq!(fs::remove_dir(m.path("d")).unwrap_err().raw_os_error(), Some(39));
    fs::remove_file(m.path("d/b")).unwrap();
    assert_eq!(fs::metadata(m.dir.path()).unwrap().nlink(), 3);
    fs::remove_dir(m.path("d")).unwrap();
    assert_eq!(fs::metadata(m.dir.path()).unwrap().nlink(), 2);
    fs::hard_link(m.path("big"), m.path("link")).unwrap();
    assert_eq!(fs::metadata(m.path("big")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(m.path("link")).unwrap().ino(), fs::metadata(m.path("big")).unwrap().ino());
    assert_eq!(fs::metadata(m.path(&"n".repeat(256))).unwrap_err().raw_os_error(), Some(36));
    fs::write(m.path(&"n".repeat(255)), b"").unwrap();
    for name in names(m.dir.path()) {
        fs::remove_file(m.dir.path().join(name)).unwrap();
    }
    eventually("removed files are forgotten", || m.fs.inodes() == 1);
    m.end();
}

#[test]
fn open_has_its_flags_right_without_open_requests() {
    let _caches = counting();
    let Some(m) = Mounted::new() else { return };
    let f = m.path("f");
    let open = |flags, mode| rustix::fs::open(&f, flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode)).map(File::from);
    let mut file = open(OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, 0o444).unwrap();
    file.write_all(b"0123456789").unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o444);
    assert_eq!(open(OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, 0o644).unwrap_err(), Errno::EXIST);
    assert_eq!(fs::metadata(&f).unwrap().len(), 10);
    assert!(open(OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY, 0o644).unwrap().metadata().unwrap().len() == 0);
    let mut log = open(OFlags::APPEND | OFlags::WRONLY, 0).unwrap();
    for i in 0..100 {
        let mut other = open(OFlags::APPEND | OFlags::WRONLY, 0).unwrap();
        writeln!(other, "other {i:04}").unwrap();
        writeln!(log, "mine  {i:04}").unwrap();
    }
    assert_eq!(fs::read_to_string(&f).unwrap().lines().count(), 200);
    for i in 0..200 {
        fs::write(m.path(&format!("x{i}")), b"x").unwrap();
        assert_eq!(fs::read(m.path(&format!("x{i}"))).unwrap(), b"x");
    }
    for once in ["open", "create", "opendir", "flush"] {
        assert!(m.requests(once) <= 1, "{once}: {}", m.requests(once));
    }
    let reads = m.requests("read");
    for i in 0..200 {
        assert_eq!(fs::read(m.path(&format!("x{i}"))).unwrap(), b"x");
    }
    // The kernel may drop a page whenever it likes.
    let again = m.requests("read") - reads;
    assert!(again < 20, "pages are kept, of 200 files {again} were read again");
    assert_eq!(m.requests("release") + m.requests("releasedir") + m.requests("access"), 0);
    drop((file, log));
    // Missing names are asked for once.
    let lookups = m.requests("lookup");
    for _ in 0..10 {
        assert!(fs::metadata(m.path("missing")).is_err());
    }
    assert!(m.requests("lookup") <= lookups + 1);
    m.end();
}

#[test]
fn large_directories_can_be_read_while_names_go() {
    let _caches = counting();
    let Some(m) = Mounted::new() else { return };
    fs::create_dir(m.path("d")).unwrap();
    let name = |i: usize| format!("a-name-of-some-length-{i:05}");
    for i in 0..5000 {
        fs::write(m.path("d").join(name(i)), b"").unwrap();
    }
    let all = names(&m.path("d"));
    assert_eq!(all.len(), 5000);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 5000);
    // Removes entries, seen and not yet seen, in the middle of the walk.
    let mut seen = BTreeSet::new();
    let mut gone = BTreeSet::new();
    for (n, entry) in fs::read_dir(m.path("d")).unwrap().enumerate() {
        let entry = entry.unwrap();
        assert!(seen.insert(entry.file_name()), "{:?} twice", entry.file_name());
        if n % 3 == 0 {
            // It may be gone already: names come in batches.
            let _ = fs::remove_file(entry.path());
            gone.insert(entry.file_name());
        }
        if n == 100 {
            for i in 4000..4100 {
                gone.insert(name(i).into());
                let _ = fs::remove_file(m.path("d").join(name(i)));
            }
        }
    }
    for i in 0..5000 {
        let name = OsString::from(name(i));
        assert!(seen.contains(&name) || gone.contains(&name), "{name:?} was missed");
    }
    let left: BTreeSet<_> = names(&m.path("d")).into_iter().collect();
    assert_eq!(left.len(), 5000 - gone.len());
    assert!(left.is_disjoint(&gone));
    // Attributes came with the names.
    let asked = || m.requests("getattr") + m.requests("lookup");
    let before = asked();
    for name in &left {
        fs::symlink_metadata(m.path("d").join(name)).unwrap();
    }
    let again = asked() - before;
    assert!(again < 100, "of {} names {again} were asked for again", left.len());
    fs::remove_dir_all(m.path("d")).unwrap();
    eventually("removed files are forgotten", || m.fs.inodes() == 1);
    m.end();
}

#[test]
fn forgotten_inodes_are_balanced() {
    let _caches = dropping();
    let Some(m) = Mounted::new() else { return };
    for i in 0..300 {
        fs::write(m.path(&format!("f{i}")), b"x").unwrap();
    }
    for _ in 0..3 {
        assert_eq!(names(m.dir.path()).len(), 300);
        // Names and inodes, not pages: other tests run.
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    }
    eventually("lookup counts go down", || {
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        m.fs.lookups() == 1
    });
    assert_eq!(m.fs.inodes(), 301);
    assert_eq!(fs::read(m.path("f7")).unwrap(), b"x");
    m.end();
}

#[test]
fn mapped_files_are_coherent() {
    let _caches = dropping();
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    let Some(m) = Mounted::new() else { return };
    let f = OpenOptions::new().read(true).write(true).create_new(true).open(m.path("map")).unwrap();
    const LEN: usize = 1 << 20;
    f.set_len(LEN as u64).unwrap();
    // SAFETY: a fresh mapping of a file that keeps its length, used through this pointer only
    // and unmapped at the end.
    unsafe {
        let p = mmap(std::ptr::null_mut(), LEN, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &f, 0).unwrap();
        let bytes = std::slice::from_raw_parts_mut(p.cast::<u8>(), LEN);
        for (i, b) in bytes.iter_mut().enumerate() {
            *b = (i % 251) as u8;
        }
        f.write_all_at(b"written", 5000).unwrap();
        assert_eq!(&bytes[5000..5007], b"written");
        msync(p, LEN, MsyncFlags::SYNC).unwrap();
        bytes[9000] = 99;
        munmap(p, LEN).unwrap();
    }
    drop(f);
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    let data = fs::read(m.path("map")).unwrap();
    assert_eq!(data.len(), LEN);
    assert_eq!(data[9000], 99);
    assert_eq!(&data[5000..5007], b"written");
    assert!(data.iter().enumerate().all(|(i, &b)| (5000..5007).contains(&i) || i == 9000 || b == (i % 251) as u8));
    m.end();
}

#[test]
fn links_nodes_and_unnamed_files() {
    let _caches = counting();
    let Some(m) = Mounted::new() else { return };
    let target = "t".repeat(4000);
    std::os::unix::fs::symlink(&target, m.path("s")).unwrap();
    for _ in 0..5 {
        assert_eq!(fs::read_link(m.path("s")).unwrap().to_str(), Some(&*target));
    }
    assert!(m.requests("readlink") < 5, "the kernel keeps targets");
    rustix::fs::mknodat(CWD, m.path("fifo"), rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    assert!(fs::metadata(m.path("fifo")).unwrap().file_type().is_fifo());
    let dev = rustix::fs::makedev(259, 70_000);
    rustix::fs::mknodat(CWD, m.path("dev"), rustix::fs::FileType::BlockDevice, Mode::from_raw_mode(0o600), dev)
        .unwrap();
    assert_eq!(fs::metadata(m.path("dev")).unwrap().rdev(), dev);
    assert!(File::open(m.path("dev")).is_err(), "mounted nodev");

    // Open-unlinked, then another file of that name.
    let mut f = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(m.path("u")).unwrap();
    f.write_all(b"old").unwrap();
    fs::remove_file(m.path("u")).unwrap();
    fs::write(m.path("u"), b"new one").unwrap();
    f.rewind().unwrap();
    f.write_all(b"OLD").unwrap();
    f.rewind().unwrap();
    let mut text = String::new();
    f.read_to_string(&mut text).unwrap();
    assert_eq!(text, "OLD");
    assert_eq!(f.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read(m.path("u")).unwrap(), b"new one");
    drop(f);

    // The root, the link, the fifo, the device and the new file.
    eventually("an unlinked file goes when it is closed", || m.fs.inodes() == 5);
    let open = || rustix::fs::open(m.dir.path(), OFlags::TMPFILE | OFlags::RDWR, Mode::from_raw_mode(0o640)).unwrap();
    let mut t = File::from(open());
    t.write_all(b"temporary").unwrap();
    assert_eq!(t.metadata().unwrap().nlink(), 0);
    let proc = format!("/proc/self/fd/{}", t.as_raw_fd());
    rustix::fs::linkat(CWD, proc, CWD, m.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    drop(t);
    assert_eq!(fs::read(m.path("named")).unwrap(), b"temporary");
    drop(open());
    eventually("an unnamed file goes when it is closed", || m.fs.inodes() == 6);
    m.end();
}

#[test]
fn extended_attributes() {
    let Some(m) = Mounted::new() else { return };
    let f = m.path("f");
    fs::write(&f, b"").unwrap();
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&f, name, value, flags);
    let get = |name: &str| {
        let mut buffer = vec![0u8; 1 << 16];
        rustix::fs::getxattr(&f, name, &mut buffer[..]).map(|n| buffer[..n].to_vec())
    };
    let large = vec![7u8; 60_000];
    set("user.a", b"1", XattrFlags::CREATE).unwrap();
    assert_eq!(set("user.a", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
    set("user.a", b"22", XattrFlags::REPLACE).unwrap();
    assert_eq!(set("user.b", b"2", XattrFlags::REPLACE), Err(Errno::NODATA));
    set("trusted.large", &large, XattrFlags::empty()).unwrap();
    set("user.empty", b"", XattrFlags::empty()).unwrap();
    assert_eq!(get("user.a").unwrap(), b"22");
    assert!(get("trusted.large").unwrap() == large);
    assert_eq!(get("user.empty").unwrap(), b"");
    assert_eq!(rustix::fs::getxattr(&f, "user.a", &mut [0u8; 1][..]), Err(Errno::RANGE));
    assert_eq!(rustix::fs::getxattr_query(&f, "user.a"), Ok(2));
    let mut list = [0u8; 100];
    let n = rustix::fs::listxattr(&f, &mut list[..]).unwrap();
    assert_eq!(&list[..n], b"trusted.large\0user.a\0user.empty\0");
    rustix::fs::removexattr(&f, "user.a").unwrap();
    assert_eq!(get("user.a"), Err(Errno::NODATA));
    assert_eq!(rustix::fs::removexattr(&f, "user.a"), Err(Errno::NODATA));
    // An ACL that nobody enforces is not taken.
    assert!(set("system.posix_acl_access", &[2, 0, 0, 0], XattrFlags::empty()).is_err());
    m.end();
}

#[test]
fn without_extended_attributes_nobody_asks_for_them() {
    let Some(m) = Mounted::with(|c| c.xattrs = false) else { return };
    for i in 0..50 {
        fs::write(m.path(&format!("f{i}")), b"x").unwrap();
    }
    assert!(m.requests("getxattr") <= 1);
    let set = rustix::fs::setxattr(m.path("f1"), "user.a", b"1", XattrFlags::empty());
    assert_eq!(set, Err(Errno::OPNOTSUPP));
    m.end();
}

#[test]
fn direct_io() {
    let Some(m) = Mounted::new() else { return };
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT;
    let f = File::from(rustix::fs::open(m.path("f"), flags, Mode::from_raw_mode(0o644)).unwrap());
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i % 253) as u8).collect();
    f.write_all_at(&data, 0).unwrap();
    let mut back = vec![0; data.len()];
    f.read_exact_at(&mut back, 0).unwrap();
    assert!(back == data);
    assert!(fs::read(m.path("f")).unwrap() == data);
    drop(f);
    m.end();
}

#[test]
fn space_is_allocated_punched_sought_and_copied() {
    let Some(m) = Mounted::new() else { return };
    let f = OpenOptions::new().read(true).write(true).create_new(true).open(m.path("f")).unwrap();
    rustix::fs::fallocate(&f, FallocateFlags::empty(), 0, 10 * PAGE).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 10 * PAGE);
    assert_eq!(f.metadata().unwrap().blocks(), 10 * PAGE / 512);
    rustix::fs::fallocate(&f, FallocateFlags::KEEP_SIZE, 10 * PAGE, PAGE).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 10 * PAGE);
    f.write_all_at(&[1; 10 * PAGE as usize], 0).unwrap();
    rustix::fs::fallocate(&f, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 2 * PAGE, 3 * PAGE).unwrap();
    rustix::fs::fallocate(&f, FallocateFlags::ZERO_RANGE, 100, 100).unwrap();
    assert_eq!(
        rustix::fs::fallocate(&f, FallocateFlags::COLLAPSE_RANGE, 0, PAGE),
        Err(Errno::OPNOTSUPP),
        "refused cleanly"
    );
    let mut expected = vec![1u8; 10 * PAGE as usize];
    expected[2 * PAGE as usize..5 * PAGE as usize].fill(0);
    expected[100..200].fill(0);
    assert!(fs::read(m.path("f")).unwrap() == expected);
    let seek = |to| rustix::fs::seek(&f, to);
    assert_eq!(seek(SeekFrom::Hole(0)), Ok(2 * PAGE));
    assert_eq!(seek(SeekFrom::Data(2 * PAGE)), Ok(5 * PAGE));
    assert_eq!(seek(SeekFrom::Hole(5 * PAGE)), Ok(10 * PAGE));
    assert_eq!(seek(SeekFrom::Data(10 * PAGE)), Err(Errno::NXIO));

    let to = OpenOptions::new().read(true).write(true).create_new(true).open(m.path("to")).unwrap();
    let (mut from_at, mut to_at) = (10, 5000);
    let copied = rustix::fs::copy_file_range(&f, Some(&mut from_at), &to, Some(&mut to_at), 30_000).unwrap();
    assert_eq!(copied, 30_000);
    let mut copy = vec![0u8; 30_000];
    to.read_exact_at(&mut copy, 5000).unwrap();
    assert!(copy == expected[10..30_010]);
    assert_eq!(to.metadata().unwrap().len(), 35_000);
    assert!(m.requests("copy_file_range") + m.requests("copy_file_range_64") >= 1);
    drop((f, to));
    m.end();
}

#[test]
fn attributes_are_set_and_shown() {
    let _caches = counting();
    let Some(m) = Mounted::new() else { return };
    let p = m.path("f");
    fs::write(&p, vec![3u8; 10_000]).unwrap();
    let f = OpenOptions::new().write(true).open(&p).unwrap();
    f.set_len(5000).unwrap();
    f.set_len(9000).unwrap();
    let data = fs::read(&p).unwrap();
    assert!(data.len() == 9000 && data[..5000].iter().all(|&b| b == 3) && data[5000..].iter().all(|&b| b == 0));
    let time = |secs, nanos| rustix::fs::Timespec { tv_sec: secs, tv_nsec: nanos };
    for (a, w) in [((-5, 999_999_999), (5_000_000_000, 1)), ((0, 0), (1, 2))] {
        let times = rustix::fs::Timestamps { last_access: time(a.0, a.1), last_modification: time(w.0, w.1) };
        rustix::fs::utimensat(CWD, &p, &times, AtFlags::empty()).unwrap();
        let st = fs::metadata(&p).unwrap();
        assert_eq!((st.atime(), st.atime_nsec()), a);
        assert_eq!((st.mtime(), st.mtime_nsec()), w);
    }
    let now = time(0, rustix::fs::UTIME_NOW as _);
    let times = rustix::fs::Timestamps { last_access: now, last_modification: time(0, rustix::fs::UTIME_OMIT as _) };
    rustix::fs::utimensat(CWD, &p, &times, AtFlags::empty()).unwrap();
    let st = fs::metadata(&p).unwrap();
    assert!(st.atime() > 1_000_000_000 && st.mtime() == 1);
    let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let sx = rustix::fs::statx(CWD, &p, AtFlags::empty(), flags).unwrap();
    assert!(StatxFlags::from_bits_retain(sx.stx_mask).contains(StatxFlags::BTIME));
    assert!(sx.stx_btime.tv_sec > 1_000_000_000);
    assert_eq!(sx.stx_size, 9000);
    assert_eq!(sx.stx_blksize, 65536);
    fs::set_permissions(&p, fs::Permissions::from_mode(0o4751)).unwrap();
    assert_eq!(fs::metadata(&p).unwrap().mode() & 0o7777, 0o4751);
    let st = rustix::fs::statfs(m.dir.path()).unwrap();
    assert_eq!((st.f_blocks, st.f_namelen), (1 << 20, 255));
    let calls = m.requests("getattr") + m.requests("statx");
    for _ in 0..10 {
        fs::metadata(&p).unwrap();
    }
    assert_eq!(m.requests("getattr") + m.requests("statx"), calls, "attributes are kept");
    drop(f);
    m.end();
}

/// Whether ordinary users may mount here; says so if not.
fn users_can_mount() -> bool {
    let everybodys = fs::metadata("/dev/fuse").is_ok_and(|st| st.mode() & 0o666 == 0o666);
    let can = everybodys && output(Command::new("fusermount3").arg("-V")).is_ok();
    if !can {
        eprintln!("NOT RUN: this needs fusermount3, and a /dev/fuse that is open to everybody");
    }
    can
}

/// Runs `script` in a shell as nobody.
fn as_nobody(script: &str) -> String {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).uid(65534).gid(65534).current_dir("/");
    let output = output(&mut shell).unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// What a thread of this process does as that user: rights are those of threads, as far as the kernel goes.
fn as_nobody_here(f: impl FnOnce() + Send) {
    let drop_rights = || {
        // SAFETY: nothing but numbers, and an empty list.
        let done = unsafe {
            [
                libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()),
                libc::syscall(libc::SYS_setresgid, 65534, 65534, 65534),
                libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534),
            ]
        };
        assert_eq!(done, [0; 3]);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop_rights();
            f();
        });
    });
}

/// The same with a further group, where setpriv is there to give it one.
fn as_one_of(group: u32, script: &str) -> String {
    let ids = ["--reuid=65534", "--regid=65534", &format!("--groups={group}")];
    let output = output(Command::new("setpriv").args(ids).args(["sh", "-c", script]).current_dir("/")).unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Whether there is setpriv of util-linux; says so if not.
fn groups_can_be_given() -> bool {
    let can = output(Command::new("setpriv").arg("--version")).is_ok();
    if !can {
        eprintln!("NOT RUN: members of groups need setpriv");
    }
    can
}

#[test]
fn who_is_shown_as_the_owner_gives_no_rights_of_the_stored_one() {
    let _limit = Limit::minutes(1);
    let Some(m) = Mounted::with(|c| c.uid = Some(65534)) else { return };
    fs::set_permissions(m.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let stored = |name: &str| m.fs.getattr(m.fs.lookup(m.fs.root(), name.as_bytes()).unwrap().ino).unwrap();
    let p = m.path("roots");
    let store = |mode| {
        fs::write(&p, b"of root").unwrap();
        let (ino, set) = (stored("roots").ino, SetAttr { mode: Some(mode), ..SetAttr::default() });
        m.fs.setattr(ino, &set).unwrap();
    };
    let path = p.display();
    store(0o755);
    assert_eq!(stored("roots").uid, 0);
    let evil = format!("cp /bin/true {path}; chmod 4755 {path} 2>&1 | grep -c 'not permitted'; chmod 700 {path}");
    assert_eq!(as_nobody(&evil), "1\n");
    assert_eq!(stored("roots").mode & 0o7777, 0o700);
    for way in ["printf x >> $f", ": > $f", "truncate -s 5 $f", "fallocate -l 50000 $f"] {
        store(0o6755);
        assert_eq!(as_nobody(&way.replace("$f", &path.to_string())), "");
        assert_eq!(stored("roots").mode & 0o7777, 0o755, "{way}");
    }
    // New files are stored as those of who makes them.
    let made = m.path("made");
    let made = made.display();
    assert_eq!(as_nobody(&format!(": > {made}; chmod 4755 {made} 2>&1")), "");
    assert_eq!((stored("made").uid, stored("made").mode & 0o7777), (65534, 0o4755));
    let new = |mode| rustix::fs::mknodat(CWD, m.path("new"), rustix::fs::FileType::RegularFile, mode, 0);
    assert_eq!(new(Mode::from_raw_mode(0o4755)), Err(Errno::PERM));
    new(Mode::from_raw_mode(0o755)).unwrap();
    m.end();
}

#[test]
fn setid_bits_go_when_others_write() {
    let _caches = counting();
    let _limit = Limit::minutes(1);
    let Some(m) = Mounted::new() else { return };
    fs::set_permissions(m.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let p = m.path("f");
    let mode = || fs::metadata(&p).unwrap().mode() & 0o7777;
    let again = |mode| {
        fs::write(&p, vec![1u8; 100]).unwrap();
        fs::set_permissions(&p, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(fs::metadata(&p).unwrap().mode() & 0o7777, mode);
    };
    let (path, members) = (p.display(), groups_can_be_given());
    again(0o6777);
    fs::write(m.path("source"), b"source").unwrap();
    let (from, to) = (File::open(m.path("source")).unwrap(), File::options().write(true).open(&p).unwrap());
    as_nobody_here(|| assert_eq!(rustix::fs::copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 6), Ok(6)));
    assert_eq!(mode(), 0o777, "a copy");
    drop((from, to));
    again(0o6777);
    assert_eq!(as_nobody(&format!("printf x >> {path}; stat -c %a {path}")), "777\n");
    assert_eq!(mode(), 0o777, "a write");
    let directly = "dd if=/dev/zero of=$f bs=4096 count=1 conv=notrunc oflag=direct status=none";
    let other_ways = ["printf x >> $f", ": > $f", "truncate -s 5 $f", "fallocate -l 50000 $f", directly]
        .map(|way| way.replace("$f", &path.to_string()));
    for way in &other_ways {
        again(0o6767);
        assert_eq!(as_nobody(way), "");
        assert_eq!(mode(), 0o767, "{way} by one who is not in the group");
    }
    std::os::unix::fs::chown(&p, None, Some(77)).unwrap();
    for way in other_ways.iter().filter(|_| members) {
        again(0o6767);
        assert_eq!(as_one_of(77, way), "");
        assert_eq!(mode(), 0o2767, "{way} by one of the group, which may not execute");
        again(0o6777);
        assert_eq!(as_one_of(77, way), "");
        assert_eq!(mode(), 0o777, "{way} by one of the group, which may");
    }
    std::os::unix::fs::chown(&p, None, Some(0)).unwrap();
    again(0o6777);
    assert_eq!(as_nobody(&format!(": > {path}")), "");
    assert_eq!(mode(), 0o777, "a truncation");
    again(0o6777);
    assert_eq!(as_nobody(&format!("truncate -s 5 {path}")), "");
    assert_eq!(mode(), 0o777, "another truncation");
    again(0o6777);
    std::os::unix::fs::chown(&p, Some(5), None).unwrap();
    assert_eq!(mode(), 0o777, "a chown");
    again(0o6777);
    fs::OpenOptions::new().append(true).open(&p).unwrap().write_all(b"root").unwrap();
    assert_eq!(mode(), 0o6777, "root may");
    assert_eq!(as_nobody(&format!("fallocate -l 50000 {path}")), "");
    assert_eq!(mode(), 0o777, "fallocate");
    // And the kernel checks permissions.
    fs::set_permissions(&p, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(as_nobody(&format!("cat {path}")).contains("Permission denied"));
    // A file with capabilities loses them, and writes ask for them once.
    fs::write(m.path("plain"), b"").unwrap();
    let asked = m.requests("getxattr");
    let mut f = OpenOptions::new().append(true).open(m.path("plain")).unwrap();
    for _ in 0..50 {
        f.write_all(b"x").unwrap();
    }
    assert!(m.requests("getxattr") <= asked + 1);
    drop(f);
    m.end();
    // Without pages the kernel does not ask before a write, and says it with the write.
    let Some(m) = Mounted::with(|c| c.direct_io = true) else { return };
    let p = m.path("f");
    fs::set_permissions(m.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(&p, b"1").unwrap();
    fs::set_permissions(&p, fs::Permissions::from_mode(0o6777)).unwrap();
    assert_eq!(as_nobody(&format!("printf x >> {}", p.display())), "");
    let stored = m.fs.getattr(m.fs.lookup(m.fs.root(), b"f").unwrap().ino).unwrap();
    assert_eq!(stored.mode & 0o7777, 0o777, "a write without pages");
    m.fs.forget(stored.ino, 1);
    m.end();
}

#[test]
fn trims_say_what_range() {
    let _limit = Limit::minutes(1);
    const EINVAL: i32 = 22;
    let Some(m) = Mounted::new() else { return };
    let root = File::open(m.dir.path()).unwrap();
    let trim = |start: u64, len: u64, minlen: u64| {
        let mut range = [start, len, minlen];
        // SAFETY: FITRIM reads and writes a `struct fstrim_range`, which is three 64-bit numbers.
        match unsafe { libc::ioctl(root.as_raw_fd(), 0xc018_5879, range.as_mut_ptr()) } {
            0 => Ok(range),
            _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
        }
    };
    assert_eq!(trim(0, u64::MAX, 0), Ok([0, 12345, 0]));
    assert_eq!(trim(4096, 8192, 4096), Ok([4096, 8192, 4096]), "the range, with what was given back in it");
    for (start, len, minlen) in [(0, 0, 0), (1 << 20, 4096, 0), (0, u64::MAX, 1 << 40)] {
        assert_eq!(trim(start, len, minlen), Err(EINVAL), "{start} {len} {minlen}");
    }
    drop(root);
    m.end();
}

#[test]
fn the_kernel_asks_again_for_what_changes_by_itself() {
    let _caches = counting();
    let _limit = Limit::minutes(1);
    let Some(m) = Mounted::new() else { return };
    let p = m.path("f");
    fs::write(&p, vec![1u8; 5000]).unwrap();
    let blocks = |p: &Path| fs::metadata(p).unwrap().blocks();
    let told = blocks(&p);
    m.fs.unsettled.store(true, SeqCst);
    rustix::fs::utimensat(CWD, &p, &later(), AtFlags::empty()).unwrap();
    assert_eq!(blocks(&p), told + 8, "what is reserved counts");
    m.fs.unsettled.store(false, SeqCst);
    assert_eq!(blocks(&p), told, "and is asked for again");
    let asked = m.requests("getattr") + m.requests("statx");
    assert_eq!((blocks(&p), m.requests("getattr") + m.requests("statx")), (told, asked), "once it is settled no more");
    m.end();
}

/// Any two times.
fn later() -> rustix::fs::Timestamps {
    let time = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 1 };
    rustix::fs::Timestamps { last_access: time, last_modification: time }
}

#[test]
fn syncs_reach_the_file_system() {
    let Some(m) = Mounted::new() else { return };
    let f = File::create(m.path("f")).unwrap();
    f.sync_all().unwrap();
    f.sync_data().unwrap();
    fs::create_dir(m.path("d")).unwrap();
    File::open(m.path("d")).unwrap().sync_all().unwrap();
    drop(f);
    assert_eq!(m.fs.syncs.load(SeqCst), 3);
    File::open(m.dir.path()).unwrap().sync_all().unwrap();
    assert_eq!(m.fs.syncs.load(SeqCst), 1_000_003, "fsync of the root is a sync of everything");
    eventually("work that piled up is done", || !m.fs.dirty.load(SeqCst));
    assert!(m.fs.background_calls.load(SeqCst) >= 1);
    m.end();
}

#[test]
fn a_panic_is_eio_and_a_slow_request_stops_nobody() {
    let Some(m) = Mounted::new() else { return };
    for _ in 0..3 {
        assert_eq!(fs::metadata(m.path("panics")).unwrap_err().raw_os_error(), Some(5));
    }
    // In a directory of its own: the kernel locks a directory while it looks up.
    fs::create_dir(m.path("d")).unwrap();
    let slow = m.path("d/sleeps");
    let sleeper = std::thread::spawn(move || fs::metadata(slow).is_err());
    std::thread::sleep(Duration::from_millis(100));
    let begun = Instant::now();
    for i in 0..100 {
        fs::write(m.path(&format!("f{i}")), b"x").unwrap();
    }
    assert!(begun.elapsed() < Duration::from_millis(700), "{:?}", begun.elapsed());
    assert!(sleeper.join().unwrap());
    // A caller killed while it waits leaves nothing behind.
    let mut cat = start(Command::new("cat").arg(m.path("d/sleeps")).stderr(Stdio::null()));
    std::thread::sleep(Duration::from_millis(100));
    cat.kill().unwrap();
    cat.wait().unwrap();
    assert!(fs::metadata(m.path("f7")).is_ok());
    m.end();
}

#[test]
fn many_threads_at_once() {
    let Some(m) = Mounted::with(|c| c.threads = 6) else { return };
    std::thread::scope(|scope| {
        for t in 0..8u8 {
            let m = &m;
            scope.spawn(move || {
                let dir = m.path(&format!("t{t}"));
                fs::create_dir(&dir).unwrap();
                for i in 0..200 {
                    let data = vec![t; 1 + i * 97];
                    fs::write(dir.join(format!("{i}")), &data).unwrap();
                    if i % 10 == 0 {
                        File::open(dir.join(format!("{i}"))).unwrap().sync_all().unwrap();
                    }
                    assert!(fs::read(dir.join(format!("{i}"))).unwrap() == data);
                }
                assert_eq!(names(&dir).len(), 200);
                fs::remove_dir_all(&dir).unwrap();
            });
        }
    });
    eventually("removed files are forgotten", || m.fs.inodes() == 1);
    m.end();
}

/// Every other test mounts with `offered`, and so tests io_uring where the kernel offers it by itself.
#[test]
fn requests_come_as_the_mount_is_told() {
    let use_it = |transport| {
        let m = Mounted::with(|c| c.transport = transport)?;
        let data = vec![7; 3 << 20];
        fs::write(m.path("f"), &data).unwrap();
        fs::rename(m.path("f"), m.path("g")).unwrap();
        let mut direct =
            OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(m.path("g")).unwrap();
        let mut read = Vec::new();
        direct.read_to_end(&mut read).unwrap();
        drop(direct);
        assert!(read == data);
        let counters = m.session.as_ref().unwrap().counters().get();
        m.end();
        Some(counters.iter().any(|c| c.0 == "requests_by_ring"))
    };
    let Some(offered) = use_it(Transport::Offered) else { return };
    assert_eq!(use_it(Transport::Classic), Some(false));
    let parameter = "/sys/module/fuse/parameters/enable_uring";
    if !rings::can_be_made() {
        assert!(!offered);
        return;
    }
    assert_eq!(offered, fs::read_to_string(parameter).unwrap_or_default().trim() == "Y");
    if offered || OpenOptions::new().write(true).open(parameter).is_ok() {
        assert_eq!((use_it(Transport::Uring), use_it(Transport::Auto)), (Some(true), Some(true)));
    } else {
        eprintln!("NOT RUN: io_uring, which this kernel does not offer");
        let dir = tempfile::tempdir().unwrap();
        let config = MountConfig { transport: Transport::Uring, record: false, ..Default::default() };
        let error = arbor_fuse::mount(Arc::new(MemFs::new()), dir.path(), &config).map(drop).unwrap_err();
        assert!(error.to_string().contains("enable_uring"), "{error}");
        assert!(!is_mounted(dir.path()));
    }
}

/// Lets the system call that brings rings to the kernel fail with `EPERM`, as containers do, in the process
/// that `command` starts; `uid` is given up to last, so that `fusermount3` still gets its rights.
fn refuse_rings(command: &mut Command, uid: u32) {
    let code = |code: u32, k: u32, jf| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let (load, jump, ret) = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ, libc::BPF_RET);
    let program = [
        code(load, std::mem::offset_of!(libc::seccomp_data, nr) as u32, 0),
        code(jump, libc::SYS_io_uring_enter as u32, 1),
        code(ret, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0),
        code(ret, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let install = move || {
        let mut program = program;
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the kernel copies a program of that length; the other calls take numbers.
        let done = unsafe {
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) == 0
                && libc::setgid(uid) == 0
                && libc::setuid(uid) == 0
        };
        if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec it makes system calls only, and takes no memory.
    unsafe { command.pre_exec(install) };
}

/// Whether rings are offered, so that they can be refused; says aloud if not.
fn can_refuse_rings() -> bool {
    let can = can_mount() && transports().contains(&Transport::Uring);
    if !can {
        eprintln!("NOT RUN: io_uring is not offered, so it cannot be refused");
    }
    can
}

#[test]
fn refused_rings_are_done_without() {
    if !can_refuse_rings() {
        return;
    }
    const NOBODY: u32 = 65534;
    for uid in [0, NOBODY] {
        if uid == NOBODY && !users_can_mount() {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(dir.path(), Some(uid), Some(uid)).unwrap();
        let mut server = Server::start(dir.path(), |c| {
            refuse_rings(c.env_remove("XDG_RUNTIME_DIR"), uid);
        });
        let said = server.said.join("\n");
        assert!(said.contains("io_uring was refused") && said.contains("not permitted"), "{said}");
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(table.lines().filter(|l| l.split(' ').nth(4) == dir.path().to_str()).count(), 1);
        if uid == 0 {
            fs::write(dir.path().join("f"), b"x").unwrap();
            assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"x");
            assert!(arbor_fuse::mounts().iter().any(|r| r.mountpoint == dir.path()));
        }
        server.signal(rustix::process::Signal::TERM);
        let served = server.expect("served");
        assert!(!served.contains("by_ring"), "{served}");
        assert_eq!(server.expect("UNMOUNTED"), "UNMOUNTED true synced 0");
        assert!(server.child.wait().unwrap().success());
        assert!(!is_mounted(dir.path()));
    }
}

#[test]
fn refused_rings_are_an_error_where_they_were_asked_for() {
    if !can_refuse_rings() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = Server::command(dir.path());
    refuse_rings(command.env("ARBOR_FUSE_TEST_OPTIONS", "transport=uring"), 0);
    let output = output(&mut command).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("transport=uring: FUSE over io_uring was refused: Operation not permitted"), "{said}");
    assert!(!is_mounted(dir.path()));
}

#[test]
fn the_kernels_write_back_cache() {
    let _caches = dropping();
    let Some(m) = Mounted::with(|c| c.writeback_cache = true) else { return };
    let p = m.path("f");
    let mut f = OpenOptions::new().create_new(true).append(true).open(&p).unwrap();
    for i in 0..1000 {
        writeln!(f, "line {i:05}").unwrap();
    }
    assert_eq!(fs::metadata(&p).unwrap().len(), 11_000);
    f.sync_all().unwrap();
    assert!(m.requests("write") < 100);
    drop(f);
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    assert_eq!(fs::read_to_string(&p).unwrap().lines().nth(999), Some("line 00999"));
    let st = fs::metadata(&p).unwrap();
    assert!(st.mtime() > 1_000_000_000);
    fs::write(m.path("g"), b"unsynced").unwrap();
    let fs = m.end();
    use arbor_base::vfs::Ino;
    let g = fs.lookup(fs.root(), b"g").unwrap().ino;
    let mut data = [0u8; 8];
    assert_eq!((fs.read(g, 0, &mut data).unwrap(), &data), (8, b"unsynced"), "unmounting writes it back");
    assert!(fs.getattr(Ino(77)).is_ok());
}

/// Data that the kernel keeps back is no hole: found by stress-ng's `seek`.
#[test]
fn data_that_is_not_written_back_is_found_by_seeks() {
    let _caches = dropping();
    let Some(m) = Mounted::with(|c| c.writeback_cache = true) else { return };
    let f = OpenOptions::new().read(true).write(true).create_new(true).open(m.path("f")).unwrap();
    f.write_all_at(&[1; PAGE as usize], 0).unwrap();
    assert_eq!(rustix::fs::seek(&f, SeekFrom::Data(0)), Ok(0));
    assert_eq!(rustix::fs::seek(&f, SeekFrom::Hole(0)), Ok(PAGE));
    f.set_len(100 * PAGE).unwrap();
    f.sync_all().unwrap();
    f.write_all_at(&[1; PAGE as usize], 50 * PAGE).unwrap();
    assert!(rustix::fs::seek(&f, SeekFrom::Data(PAGE)).unwrap() <= 50 * PAGE);
    drop(f);
    m.end();
}

#[test]
fn the_root_tells_the_counters() {
    let Some(m) = Mounted::new() else { return };
    fs::write(m.path("f"), "abc").unwrap();
    let stats = arbor_fuse::stats(m.dir.path()).unwrap();
    let find = |name: &str| stats.iter().find(|(group, n, _)| group == "mount" && n == name).map(|s| s.2);
    assert_eq!((find("write"), find("written_bytes")), (Some(m.requests("write")), Some(3)));
    // It is the root's alone, is not listed, and nobody can set it.
    assert!(arbor_fuse::stats(&m.path("f")).is_err());
    assert_eq!(rustix::fs::listxattr(m.dir.path(), &mut [0u8; 64][..]), Ok(0));
    let set = rustix::fs::setxattr(m.dir.path(), arbor_fuse::STATS, b"1", rustix::fs::XattrFlags::empty());
    assert_eq!(set, Err(rustix::io::Errno::OPNOTSUPP));
    m.end();
}

#[test]
fn what_a_mount_looks_like() {
    let Some(m) = Mounted::with(|c| {
        c.read_only = true;
        c.nfs_export = true;
    }) else {
        return;
    };
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|l| l.split(' ').nth(4) == m.dir.path().to_str()).unwrap();
    assert!(line.contains("- fuse.arbor /image,\\040of\\134\\040a\\040test ro"), "{line}");
    assert!(line.contains("ro,nosuid,nodev") && line.contains("default_permissions,allow_other"), "{line}");
    let st = fs::metadata(m.dir.path()).unwrap();
    let (major, minor) = (rustix::fs::major(st.dev()), rustix::fs::minor(st.dev()));
    let ahead = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).unwrap();
    assert_eq!(ahead.trim(), "1024");
    assert_eq!(fs::write(m.path("f"), b"").unwrap_err().raw_os_error(), Some(30));
    // A second mount there is refused, and a failed test leaves this one.
    let other = Arc::new(MemFs::new());
    let again = arbor_fuse::mount(other.clone(), m.dir.path(), &MountConfig::default());
    assert_eq!(again.err().unwrap().kind(), std::io::ErrorKind::ResourceBusy);
    assert!(other.unmounted.load(SeqCst), "what could not be mounted is unmounted");
    m.end();
}

#[test]
fn a_busy_mount_is_not_unmounted_but_can_be_detached_and_aborted() {
    let _forks = FORKS.write().unwrap_or_else(PoisonError::into_inner);
    let Some(mut m) = Mounted::new() else { return };
    let mut f = File::create(m.path("f")).unwrap();
    let session = m.session.take().unwrap();
    let unmounter = session.unmounter();
    assert_eq!(unmounter.unmount().unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    assert_eq!(arbor_fuse::unmount(m.dir.path(), true).unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    unmounter.detach().unwrap();
    assert!(!is_mounted(m.dir.path()));
    f.write_all(b"still works").unwrap();
    unmounter.abort();
    session.wait().unwrap();
    assert!(f.write_all(b"no more").is_err());
    assert!(m.fs.unmounted.load(SeqCst));
}

/// Every transport that this kernel has.
fn transports() -> Vec<Transport> {
    let parameter = fs::read_to_string("/sys/module/fuse/parameters/enable_uring").unwrap_or_default();
    match parameter.trim() {
        "Y" if rings::can_be_made() => vec![Transport::Classic, Transport::Uring],
        _ => vec![Transport::Classic],
    }
}

/// With a mount whose device hangs; it must work when it no longer does.
fn while_it_hangs(test: impl Fn(&Mounted)) {
    for transport in transports() {
        let Some(m) = Mounted::with(|c| c.transport = transport) else { return };
        fs::create_dir(m.path("d")).unwrap();
        fs::write(m.path("f"), b"before").unwrap();
        m.fs.hangs.store(true, SeqCst);
        test(&m);
        assert!(m.requests("interrupt") > 0);
        m.fs.hangs.store(false, SeqCst);
        eventually("nobody waits for ever", || m.fs.waiting.load(SeqCst) == 0);
        fs::write(m.path("f"), b"after").unwrap();
        File::open(m.path("f")).unwrap().sync_all().unwrap();
        assert_eq!(fs::read(m.path("f")).unwrap(), b"after");
        let counters = m.session.as_ref().unwrap().counters().get();
        assert!(!counters.iter().any(|c| c.0 == "panics"), "{counters:?}");
        m.end();
    }
}

/// SIGUSR1 runs a handler that does nothing, without `SA_RESTART`.
fn catch_sigusr1() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: zeros are an empty set and no flags, and the handler does nothing at all.
    let installed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut())
    };
    assert_eq!(installed, 0);
}

fn send_sigusr1<T>(to: &std::thread::JoinHandle<T>) {
    // SAFETY: a thread that was not joined, so its handle is good even if it has ended.
    unsafe { libc::pthread_kill(to.as_pthread_t(), libc::SIGUSR1) };
}

/// Runs `call` until it waits for the device, then sends its thread SIGUSR1.
fn signalled<T: Send + 'static>(m: &Mounted, call: impl FnOnce() -> T + Send + 'static) -> std::thread::JoinHandle<T> {
    catch_sigusr1();
    let waiting = m.fs.waiting.load(SeqCst);
    let caller = std::thread::spawn(call);
    eventually("it waits", || m.fs.waiting.load(SeqCst) > waiting);
    send_sigusr1(&caller);
    caller
}

fn ends_soon<T>(caller: std::thread::JoinHandle<T>) -> T {
    eventually("the caller is let go", || caller.is_finished());
    caller.join().unwrap()
}

#[test]
fn a_killed_caller_is_let_go_from_everything() {
    while_it_hangs(|m| {
        for name in ["d/hangs", "f"] {
            let mut caller = Command::new("sh");
            caller.arg("-c").arg("[ -d \"$1\" ] || exec sync \"$1\"").arg("sh").arg(m.path(name));
            let mut caller = start(caller.stderr(Stdio::null()));
            eventually("it waits", || m.fs.waiting.load(SeqCst) == 1);
            caller.kill().unwrap();
            eventually("a killed caller goes", || caller.try_wait().unwrap().is_some());
            assert_eq!(m.fs.waiting.load(SeqCst), 0);
        }
    });
}

/// Nobody reads an INTERRUPT then, or only when the first are let go.
#[test]
fn killed_callers_are_let_go_when_every_worker_waits() {
    for transport in transports() {
        let change = |c: &mut MountConfig| (c.transport, c.threads) = (transport, 2);
        let Some(m) = Mounted::with(change) else { return };
        fs::create_dir(m.path("d")).unwrap();
        m.fs.hangs.store(true, SeqCst);
        let call =
            |i| start(Command::new("sh").args(["-c", "[ -e \"$1\" ]", "sh"]).arg(m.path(&format!("d/hangs{i}"))));
        let mut callers: Vec<Child> = (0..12).map(call).collect();
        eventually("they wait", || m.fs.waiting.load(SeqCst) >= 2);
        std::thread::sleep(Duration::from_millis(100));
        for caller in &mut callers {
            caller.kill().unwrap();
        }
        eventually("they go", || callers.iter_mut().all(|caller| caller.try_wait().unwrap().is_some()));
        assert_eq!(m.fs.waiting.load(SeqCst), 0);
        m.fs.hangs.store(false, SeqCst);
        fs::write(m.path("f"), b"x").unwrap();
        m.end();
    }
}

#[test]
fn a_caller_with_a_handler_gets_eintr_where_calls_are_long() {
    while_it_hangs(|m| {
        let file = File::open(m.path("f")).unwrap();
        assert_eq!(ends_soon(signalled(m, move || rustix::fs::fsync(&file))), Err(Errno::INTR));
        let root = File::open(m.dir.path()).unwrap();
        m.fs.hangs.store(false, SeqCst);
        rustix::fs::fsync(root).unwrap();
        m.fs.hangs.store(true, SeqCst);
    });
}

/// Nobody looks for `EINTR` behind stat(2). SIGKILL is heeded though, of which the kernel says no more.
#[test]
fn a_caller_with_a_handler_waits_where_calls_are_short_until_it_is_killed() {
    while_it_hangs(|m| {
        let hangs = m.path("d/hangs");
        let caller = signalled(m, move || fs::metadata(hangs).unwrap_err().kind());
        eventually("the server knows", || m.requests("interrupt") > 0);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!caller.is_finished());
        m.fs.hangs.store(false, SeqCst);
        assert_eq!(ends_soon(caller), std::io::ErrorKind::NotFound);
        m.fs.hangs.store(true, SeqCst);

        let before = m.requests("interrupt");
        let mut shell = Command::new("sh");
        shell.arg("-c").arg("trap : USR1; [ -e \"$1\" ]").arg("sh").arg(m.path("d/hangs too"));
        let mut shell = start(&mut shell);
        eventually("it waits", || m.fs.waiting.load(SeqCst) == 1);
        rustix::process::kill_process(rustix::process::Pid::from_child(&shell), rustix::process::Signal::USR1).unwrap();
        eventually("the server knows", || m.requests("interrupt") > before);
        std::thread::sleep(Duration::from_millis(50));
        assert!(shell.try_wait().unwrap().is_none());
        shell.kill().unwrap();
        eventually("a killed caller goes", || shell.try_wait().unwrap().is_some());
    });
}

/// Signals that come before, during and after requests.
#[test]
fn signals_at_any_time_do_no_harm() {
    while_it_hangs(|m| {
        m.fs.hangs.store(false, SeqCst);
        catch_sigusr1();
        let (path, new) = (m.path("f"), m.path("d/new"));
        let caller = std::thread::spawn(move || {
            let file = File::open(&path).unwrap();
            for _ in 0..200 {
                assert!(matches!(rustix::fs::fsync(&file), Ok(()) | Err(Errno::INTR)));
                fs::write(&new, b"x").unwrap();
                assert_eq!(fs::read(&new).unwrap(), b"x");
                fs::remove_file(&new).unwrap();
            }
        });
        for round in 0.. {
            if caller.is_finished() {
                break;
            }
            m.fs.hangs.store(true, SeqCst);
            send_sigusr1(&caller);
            std::thread::sleep(Duration::from_micros(round % 16 * 300));
            m.fs.hangs.store(false, SeqCst);
            send_sigusr1(&caller);
            std::thread::sleep(Duration::from_micros(200));
        }
        caller.join().unwrap();
    });
}

#[test]
fn a_large_copy_is_whole_or_what_was_done_before_a_signal() {
    while_it_hangs(|m| {
        const PIECE: usize = 8 << 20;
        m.fs.hangs.store(false, SeqCst);
        let data: Vec<u8> = (0..3 * PIECE as u32).map(|i| (i / 251) as u8).collect();
        for size in [3 * PIECE, 2 * PIECE + 5] {
            fs::write(m.path("from"), &data[..size]).unwrap();
            let (from, to) = (File::open(m.path("from")).unwrap(), File::create(m.path("to")).unwrap());
            let copy = move || rustix::fs::copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 1 << 30);
            assert_eq!(copy(), Ok(size));
            assert!(fs::read(m.path("to")).unwrap() == data[..size]);
            m.fs.hangs.store(true, SeqCst);
            assert_eq!(ends_soon(signalled(m, copy)), Ok(PIECE));
            m.fs.hangs.store(false, SeqCst);
        }
    });
}

/// What [`Server`] runs in a process of its own.
#[test]
#[ignore = "run by other tests, as a server"]
fn server_process() {
    let Some(dir) = std::env::var_os("ARBOR_FUSE_TEST_DIR") else { return };
    let options = std::env::var("ARBOR_FUSE_TEST_OPTIONS").unwrap_or("transport=offered".into());
    let (mut config, rest) = arbor_fuse::parse_options(&Options::parse(&options)).unwrap();
    assert_eq!(rest, Options::default());
    config.source = "image".into();
    config.handle_signals = true;
    let opened;
    if let Some(device) = std::env::var_os("ARBOR_FUSE_TEST_DEVICE") {
        opened = FileDevice::open(&device, OpenMode::ReadWrite).unwrap();
        config.block_device = opened.claim();
        config.claims.extend(opened.claim());
    }
    let fs = Arc::new(MemFs::new());
    // Slow enough that who does not wait would notice.
    fs.unmounts_slowly.store(true, SeqCst);
    let session = arbor_fuse::mount(fs.clone(), dir.as_ref(), &config).unwrap();
    session.ready().unwrap();
    let counters = session.counters();
    eprintln!("READY");
    session.wait().unwrap();
    eprintln!("served {:?}", counters.get());
    eprintln!("UNMOUNTED {} synced {}", fs.unmounted.load(SeqCst), fs.syncs.load(SeqCst));
}

/// A server in another process, which is killed if the test takes longer than a minute.
struct Server {
    child: Child,
    _limit: std::sync::mpsc::Sender<()>,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
    /// What it has said until it was ready, and between two things that were expected.
    said: Vec<String>,
    dir: PathBuf,
}

impl Server {
    fn command(dir: &Path) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "server_process", "--ignored", "--nocapture"]);
        command.env("ARBOR_FUSE_TEST_DIR", dir).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    fn start(dir: &Path, change: impl FnOnce(&mut Command)) -> Server {
        let mut command = Server::command(dir);
        change(&mut command);
        let mut child = start(&mut command);
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let pid = rustix::process::Pid::from_child(&child);
        let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let (_limit, end) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            if end.recv_timeout(Duration::from_secs(60)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                eprintln!("a server hangs");
                let _ = rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL);
            }
        });
        let mut server = Server { child, _limit, lines, said: Vec::new(), dir: dir.to_path_buf() };
        server.expect("READY");
        server
    }

    fn expect(&mut self, text: &str) -> String {
        for line in &mut self.lines {
            let line = line.unwrap();
            if line.starts_with(text) {
                return line;
            }
            self.said.push(line);
        }
        panic!("the server did not say {text}: {}", self.said.join("\n"));
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|s| s.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let _ = arbor_fuse::clean_stale(&self.dir);
    }
}

#[test]
fn sigterm_unmounts() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), |_| {});
    fs::write(dir.path().join("f"), b"x").unwrap();
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.expect("UNMOUNTED"), "UNMOUNTED true synced 0");
    assert!(server.child.wait().unwrap().success());
    assert!(!is_mounted(dir.path()));
}

#[test]
fn a_classic_worker_goes_to_the_processor_of_its_only_caller() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let may = sched_getaffinity(None).unwrap();
    let two: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| may.is_set(cpu)).take(2).collect();
    if !can_mount() || two.len() < 2 {
        eprintln!("NOT RUN: it takes a mount and two processors");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (options, follows) in [("transport=classic", true), ("transport=classic,spin=100", false)] {
        let mut server = Server::start(dir.path(), |command| {
            command.env("ARBOR_FUSE_TEST_OPTIONS", options);
        });
        for &cpu in &two {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut here = CpuSet::new();
                    here.set(cpu);
                    sched_setaffinity(None, &here).unwrap();
                    let call = || (0..200).for_each(|_| fs::write(dir.path().join("f"), b"x").unwrap());
                    if follows {
                        eventually("a worker is where its caller is", || {
                            call();
                            processors_of_workers(server.child.id()).contains(&cpu.to_string())
                        });
                    } else {
                        call();
                        let may = processors_of_workers(server.child.id());
                        assert!(may.iter().all(|list| list.parse::<usize>().is_err()), "{may:?}");
                    }
                });
            });
        }
        server.signal(rustix::process::Signal::TERM);
        server.expect("UNMOUNTED");
        server.child.wait().unwrap();
    }
}

/// Where the workers of a server may run, as the kernel lists it.
fn processors_of_workers(server: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{server}/task")).unwrap().flatten().map(|thread| thread.path());
    let workers =
        threads.filter(|t| fs::read_to_string(t.join("comm")).is_ok_and(|name| name.starts_with("arbor-fuse")));
    let list =
        |status: String| status.lines().find_map(|l| Some(l.strip_prefix("Cpus_allowed_list:")?.trim().to_string()));
    workers.filter_map(|thread| list(fs::read_to_string(thread.join("status")).ok()?)).collect()
}

#[test]
fn two_sigterms_end_a_busy_mount() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), |_| {});
    let f = File::create(dir.path().join("f")).unwrap();
    server.signal(rustix::process::Signal::TERM);
    server.expect("arbor: ");
    eventually("it is detached", || !is_mounted(dir.path()));
    f.write_all_at(b"grace", 0).unwrap();
    server.signal(rustix::process::Signal::INT);
    assert_eq!(server.expect("UNMOUNTED"), "UNMOUNTED true synced 1000000");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn unmount_waits_for_the_server() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), |_| {});
    fs::write(dir.path().join("f"), b"x").unwrap();
    let record = arbor_fuse::mounts().into_iter().find(|r| r.mountpoint == dir.path()).unwrap();
    assert_eq!((record.pid, record.image.to_str()), (server.child.id(), Some("image")));
    arbor_fuse::unmount(dir.path(), true).unwrap();
    assert!(!arbor_fuse::mounts().iter().any(|r| r.mountpoint == dir.path()), "the server is at work still");
    assert_eq!(server.expect("UNMOUNTED"), "UNMOUNTED true synced 1000000", "and it syncs first");
    assert!(!is_mounted(dir.path()));
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn a_stale_mount_is_taken_off() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let mut server = Server::start(dir.path(), |_| {});
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        let error = fs::read_dir(dir.path()).unwrap_err().raw_os_error();
        // ENOTCONN; ECONNABORTED or ECANCELED for who asks while the kernel is still taking it down.
        assert!(matches!(error, Some(107 | 103 | 125)), "{error:?}");
        if round == 0 {
            // The next round's mount cleans, and makes the directory too.
            std::mem::forget(server);
        } else {
            assert!(arbor_fuse::clean_stale(dir.path()).unwrap());
            assert!(!arbor_fuse::clean_stale(dir.path()).unwrap());
        }
    }
    assert!(!is_mounted(dir.path()));
    let missing = dir.path().join("a/b");
    let mut server = Server::start(&missing, |_| {});
    server.signal(rustix::process::Signal::TERM);
    server.expect("UNMOUNTED true");
}

#[test]
fn ordinary_users_mount_by_fusermount() {
    if !can_mount() {
        return;
    }
    if !users_can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
    let mut server = Server::start(dir.path(), |c| {
        c.uid(65534).gid(65534).env_remove("XDG_RUNTIME_DIR");
    });
    let at = dir.path().display();
    assert_eq!(as_nobody(&format!("cat {at}/f 2>/dev/null; ls {at} | wc -l")), "0\n");
    assert_eq!(fs::read_dir(dir.path()).unwrap_err().raw_os_error(), Some(13), "not even root may look");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|l| l.split(' ').nth(4) == dir.path().to_str()).unwrap();
    assert!(line.contains("nosuid,nodev") && line.contains("- fuse.arbor image "), "{line}");
    server.signal(rustix::process::Signal::TERM);
    server.expect("UNMOUNTED true");
    assert!(server.child.wait().unwrap().success());
    assert!(!is_mounted(dir.path()));
}

#[test]
fn block_devices_get_syncfs_and_a_umount_that_waits() {
    if !can_mount() {
        return;
    }
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    let losetup = output(Command::new("losetup").args(["-f", "--show"]).arg(image.path()));
    let Some(made) = losetup.ok().filter(|o| o.status.success()) else {
        eprintln!("NOT RUN: this test needs a loop device");
        return;
    };
    struct Loop(String);
    impl Drop for Loop {
        fn drop(&mut self) {
            let _ = output(Command::new("losetup").arg("-d").arg(&self.0));
        }
    }
    let device = Loop(String::from_utf8(made.stdout).unwrap().trim().to_string());
    // Also where the first mount of the device had to be given up.
    for refuse in [false, true] {
        if refuse && !can_refuse_rings() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut server = Server::start(dir.path(), |c| {
            c.env("ARBOR_FUSE_TEST_DEVICE", &device.0);
            if refuse {
                refuse_rings(c, 0);
            }
        });
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|l| l.split(' ').nth(4) == dir.path().to_str()).unwrap();
        assert!(line.contains(&format!("- fuseblk.arbor {} ", device.0)), "{line}");
        // A child of another test would keep the file open.
        let forks = FORKS.write().unwrap_or_else(PoisonError::into_inner);
        let f = File::create(dir.path().join("f")).unwrap();
        rustix::fs::syncfs(&f).unwrap();
        drop(f);
        rustix::mount::unmount(dir.path(), rustix::mount::UnmountFlags::empty()).unwrap();
        drop(forks);
        let said = server.expect("UNMOUNTED true synced ");
        assert!(said.rsplit(' ').next().unwrap().parse::<u64>().unwrap() >= 1_000_000, "{said}");
        assert!(server.child.wait().unwrap().success());
    }
}
