//! What a mount does as its options say, seen through the kernel on a file system in memory. Needs root and
//! `/dev/fuse`; where they are missing each test says so and does nothing.

mod guard;
#[allow(dead_code)]
mod memfs;
mod rings;

use arbor_base::vfs::{FileSystem, Ino, SetAttr, SetTime, Time};
use arbor_fuse::{Access, MountConfig, Promptly, Session, Transport};
use guard::{Limit, can_mount};
use memfs::MemFs;
use rustix::fs::{CWD, FallocateFlags, FlockOperation, OFlags, RenameFlags, XattrFlags};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Every transport that root can have here; says aloud if io_uring is not among them.
fn transports() -> Vec<Transport> {
    let is_known = OpenOptions::new().write(true).open(SWITCH).is_ok();
    if !is_known {
        eprintln!("NOT RUN: io_uring, of which this kernel knows nothing");
    }
    match is_known && rings::can_be_made() {
        true => vec![Transport::Classic, Transport::Uring],
        false => vec![Transport::Classic],
    }
}

/// A mount that is gone when the test is, however it ends: the session goes before the directory.
struct Mounted {
    session: Session,
    fs: Arc<MemFs>,
    dir: tempfile::TempDir,
    _limit: Limit,
}

impl Mounted {
    fn with(change: impl FnOnce(&mut MountConfig)) -> Mounted {
        let limit = Limit::minutes(2);
        let dir = tempfile::tempdir().unwrap();
        let fs = Arc::new(MemFs::new());
        let mut config = MountConfig { record: false, ..Default::default() };
        change(&mut config);
        let session = arbor_fuse::mount(fs.clone(), dir.path(), &config).unwrap();
        session.ready().unwrap();
        Mounted { session, fs, dir, _limit: limit }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn requests(&self, kind: &str) -> u64 {
        self.session.counters().requests(kind)
    }

    /// What the file system knows of a file, without what the mount has noted.
    fn stored(&self, path: &Path) -> (Time, Time) {
        let attr = self.fs.getattr(Ino(fs::metadata(path).unwrap().ino())).unwrap();
        (attr.atime, attr.ctime)
    }
}

/// Times of last access and of change.
fn times(path: &Path) -> (Time, Time) {
    let m = fs::symlink_metadata(path).unwrap();
    let time = |secs, nanos| Time { secs, nanos: nanos as u32 };
    (time(m.atime(), m.atime_nsec()), time(m.ctime(), m.ctime_nsec()))
}

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// What root locks while the switch is on for a mount.
const LOCK: &str = "/run/arbor/enable_uring.lock";

/// The switch of the kernel as it is while nobody is making a mount.
fn switch_at_rest() -> String {
    let lock = File::open(LOCK);
    lock.iter().for_each(|lock| rustix::fs::flock(lock, FlockOperation::LockShared).unwrap());
    fs::read_to_string(SWITCH).unwrap()
}

/// Whether root can turn it on here, and has to; says aloud if not. Other tests must not be disturbed by turning it
/// off for this.
fn can_offer() -> bool {
    let is_there = || OpenOptions::new().write(true).open(SWITCH).is_ok();
    let can = can_mount() && is_there() && switch_at_rest().trim() == "N" && rings::can_be_made();
    if !can {
        eprintln!("NOT RUN: this test needs a kernel with FUSE over io_uring that does not offer it by itself");
    }
    can
}

/// What other tests run in a process of its own: a mount that is never finished.
#[test]
#[ignore = "run by other tests, as a server"]
fn server_process() {
    let Some(dir) = std::env::var_os("ARBOR_FUSE_TEST_DIR") else { return };
    let fs = Arc::new(MemFs::new());
    fs.has_no_root_yet.store(true, SeqCst);
    let config = MountConfig { transport: Transport::Auto, record: false, ..Default::default() };
    drop(arbor_fuse::mount(fs, dir.as_ref(), &config));
}

/// A server that is in the middle of making its mount.
struct Unfinished {
    child: Child,
    dir: tempfile::TempDir,
}

impl Unfinished {
    fn start() -> Unfinished {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "server_process", "--ignored"]).env("ARBOR_FUSE_TEST_DIR", dir.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let started = Unfinished { child, dir };
        let mounted =
            || fs::read_to_string("/proc/self/mountinfo").unwrap().contains(started.dir.path().to_str().unwrap());
        eventually("it is mounted", mounted);
        started
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = rustix::mount::unmount(self.dir.path(), rustix::mount::UnmountFlags::DETACH);
    }
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
fn root_mounts_by_io_uring_and_leaves_the_switch_as_it_was() {
    if !can_offer() {
        return;
    }
    std::thread::scope(|scope| {
        for transport in [Transport::Auto, Transport::Uring, Transport::Auto, Transport::Uring] {
            scope.spawn(move || {
                for _ in 0..3 {
                    let m = Mounted::with(|c| c.transport = transport);
                    assert!(m.session.is_by_ring());
                    fs::write(m.path("f"), b"x").unwrap();
                    assert_eq!(fs::read(m.path("f")).unwrap(), b"x");
                    assert!(m.session.counters().get().iter().any(|c| c.0 == "requests_by_ring"));
                }
            });
        }
    });
    assert_eq!(switch_at_rest(), "N\n");
    let classic = Mounted::with(|c| c.transport = Transport::Classic);
    assert!(!classic.session.is_by_ring());
}

#[test]
fn the_switch_is_as_it_was_when_the_server_is_killed() {
    if !can_offer() {
        return;
    }
    let _limit = Limit::minutes(2);
    let mut killed = Unfinished::start();
    assert_eq!(fs::read_to_string(SWITCH).unwrap(), "Y\n", "in the middle of it");
    std::thread::scope(|scope| {
        // Comes in between, and has to wait.
        let other = scope.spawn(|| Mounted::with(|c| c.transport = Transport::Uring).session.is_by_ring());
        std::thread::sleep(Duration::from_millis(100));
        killed.kill();
        assert!(other.join().unwrap());
    });
    assert_eq!(switch_at_rest(), "N\n");
}

/// Everybody can open the switch for reading, and lock it.
#[test]
fn a_stranger_who_locks_the_switch_keeps_nobody_from_io_uring() {
    if !can_offer() {
        return;
    }
    let _limit = Limit::minutes(2);
    let stranger = File::open(SWITCH).unwrap();
    rustix::fs::flock(&stranger, FlockOperation::LockExclusive).unwrap();
    assert!(Mounted::with(|c| c.transport = Transport::Uring).session.is_by_ring());
    drop(stranger);
    assert_eq!(switch_at_rest(), "N\n");
    assert_eq!(fs::metadata(LOCK).unwrap().mode() & 0o777, 0o600, "nor can they lock what root locks");
}

fn open_direct(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.custom_flags(OFlags::DIRECT.bits() as i32).open(path).unwrap()
}

/// Native asynchronous I/O of the kernel, which no crate in use here has a name for.
mod aio {
    use std::ffi::c_long;

    /// `struct iocb` of `linux/aio_abi.h`, little-endian.
    #[repr(C)]
    #[derive(Default)]
    pub struct Iocb {
        data: u64,
        key: u32,
        rw_flags: u32,
        opcode: u16,
        priority: i16,
        fd: u32,
        buf: u64,
        nbytes: u64,
        offset: i64,
        reserved: u64,
        flags: u32,
        resfd: u32,
    }

    const PWRITE: u16 = 1;

    /// Writes `pieces` at once, and returns when all of them are done.
    pub fn write_all(context: &Context, fd: i32, pieces: &[(u64, &[u8])]) {
        let mut blocks: Vec<Iocb> = pieces
            .iter()
            .map(|(offset, data)| Iocb {
                opcode: PWRITE,
                fd: fd as u32,
                buf: data.as_ptr().addr() as u64,
                nbytes: data.len() as u64,
                offset: *offset as i64,
                ..Iocb::default()
            })
            .collect();
        let pointers: Vec<*mut Iocb> = blocks.iter_mut().map(std::ptr::from_mut).collect();
        let count = pointers.len() as c_long;
        let mut events = vec![[0u64; 4]; pieces.len()];
        // SAFETY: the blocks and the data they point to outlive the wait for all of them, and there is room
        // for as many events.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_io_submit, context.0, count, pointers.as_ptr()), count);
            let none = std::ptr::null::<libc::timespec>();
            let got = libc::syscall(libc::SYS_io_getevents, context.0, count, count, events.as_mut_ptr(), none);
            assert_eq!(got, count);
        }
        for (event, (_, data)) in events.iter().zip(pieces) {
            assert_eq!(event[2], data.len() as u64, "a piece is written whole");
        }
    }

    /// A queue of the kernel.
    pub struct Context(u64);

    impl Context {
        pub fn new() -> Context {
            let mut context = 0u64;
            // SAFETY: the kernel writes the number of the queue there.
            assert_eq!(unsafe { libc::syscall(libc::SYS_io_setup, 64, &raw mut context) }, 0);
            Context(context)
        }
    }

    impl Drop for Context {
        fn drop(&mut self) {
            // SAFETY: takes a number.
            unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
        }
    }
}

/// A piece of memory as direct I/O wants it.
#[repr(align(4096))]
#[derive(Clone)]
struct Page([u8; 4096]);

#[test]
fn direct_writes_leave_no_stale_pages() {
    const PAGES: u64 = 16;
    const ROUNDS: u32 = 300;
    if !can_mount() {
        return;
    }
    for transport in transports() {
        let m = Mounted::with(|c| c.transport = transport);
        let path = m.path("f");
        fs::write(&path, vec![0; PAGES as usize * 4096]).unwrap();
        let (direct, buffered) = (open_direct(&path), File::open(&path).unwrap());
        let context = aio::Context::new();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut page = vec![0; 4096];
                    while !stop.load(SeqCst) {
                        for n in 0..PAGES {
                            buffered.read_exact_at(&mut page, n * 4096).unwrap();
                        }
                    }
                });
            }
            for round in 1..=ROUNDS {
                let pages: Vec<Page> = (0..PAGES).map(|n| Page([(round as u64 * 7 + n) as u8; 4096])).collect();
                let pieces: Vec<(u64, &[u8])> = (0..).zip(&pages).map(|(n, p)| (n * 4096, &p.0[..])).collect();
                aio::write_all(&context, direct.as_raw_fd(), &pieces);
                // Nothing is under way now but reads.
                let mut page = Box::new(Page([0; 4096]));
                for (n, written) in (0..).zip(&pages) {
                    buffered.read_exact_at(&mut page.0, n * 4096).unwrap();
                    let stale = page.0 != written.0;
                    direct.read_exact_at(&mut page.0, n * 4096).unwrap();
                    if stale || page.0 != written.0 {
                        stop.store(true, SeqCst);
                        panic!("round {round}, page {n}: a buffered read finds what was there before (stale: {stale})");
                    }
                }
            }
            stop.store(true, SeqCst);
        });
    }
}

/// Reads that the kernel's pages do not answer.
fn read(path: &Path) {
    let file = OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path).unwrap();
    file.read_at(&mut Box::new(Page([0; 4096])).0, 0).unwrap();
}

/// Whether what it does sets the time of last access, and that it changes nothing else.
fn is_noticed(path: &Path, read: impl FnOnce()) -> bool {
    let before = times(path);
    std::thread::sleep(Duration::from_millis(2));
    read();
    let after = times(path);
    assert_eq!(after.1, before.1, "a read is no change");
    after.0 > before.0
}

#[test]
fn reads_set_the_time_of_access() {
    if !can_mount() {
        return;
    }
    let m = Mounted::with(|_| {});
    let (file, link, dir) = (m.path("f"), m.path("l"), m.path("d"));
    fs::write(&file, b"x").unwrap();
    fs::create_dir(&dir).unwrap();
    std::os::unix::fs::symlink("f", &link).unwrap();
    let list = || assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    assert!(is_noticed(&file, || read(&file)), "the first read after a change");
    assert!(!is_noticed(&file, || read(&file)), "no other");
    assert!(is_noticed(&link, || drop(fs::read_link(&link).unwrap())));
    assert!(is_noticed(&dir, list));
    fs::write(&file, b"xy").unwrap();
    assert!(is_noticed(&file, || read(&file)), "after a change");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(is_noticed(&file, || read(&file)), "of the inode too");
    let ago = |hours: u64| std::time::SystemTime::now() - Duration::from_secs(3600 * hours);
    for (hours, wanted) in [(23, false), (25, true)] {
        let open = File::options().write(true).open(&file).unwrap();
        let old = fs::FileTimes::new().set_accessed(ago(hours)).set_modified(ago(100));
        open.set_times(old).unwrap();
        // That was a change, which a read of another time has to be after.
        let ctime = SetAttr { ctime: Some(SetTime::At(Time { secs: 5, nanos: 0 })), ..SetAttr::default() };
        m.fs.setattr(Ino(fs::metadata(&file).unwrap().ino()), &ctime).unwrap();
        let before = fs::metadata(&file).unwrap().atime();
        read(&file);
        assert_eq!(fs::metadata(&file).unwrap().atime() > before, wanted, "{hours} hours old");
    }
}

#[test]
fn times_of_access_are_kept_as_told() {
    if !can_mount() {
        return;
    }
    for (access, of_directories, first, second) in [
        (Access::Never, true, false, false),
        (Access::Relative, false, true, false),
        (Access::Strict, true, true, true),
    ] {
        let m = Mounted::with(|c| {
            (c.access_times.access, c.access_times.of_directories) = (access, of_directories);
        });
        let (file, dir) = (m.path("f"), m.path("d"));
        fs::write(&file, b"x").unwrap();
        fs::create_dir(&dir).unwrap();
        let list = || assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        assert_eq!(is_noticed(&file, || read(&file)), first, "{access:?}");
        assert_eq!(is_noticed(&file, || read(&file)), second, "{access:?}");
        assert_eq!(is_noticed(&dir, list), access != Access::Never && of_directories, "{access:?}");
        let silent = || {
            let flags = (OFlags::NOATIME | OFlags::DIRECT).bits() as i32;
            let file = OpenOptions::new().read(true).custom_flags(flags).open(&file).unwrap();
            file.read_at(&mut Box::new(Page([0; 4096])).0, 0).unwrap();
        };
        assert!(!is_noticed(&file, silent), "O_NOATIME");
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|l| l.split(' ').nth(4) == m.dir.path().to_str()).unwrap();
        assert_eq!(line.contains("noatime"), access == Access::Never, "{line}");
        assert_eq!(line.contains("nodiratime"), !of_directories, "{line}");
    }
}

#[test]
fn the_file_system_is_told_of_accesses_later() {
    if !can_mount() {
        return;
    }
    for lazy in [false, true] {
        let m = Mounted::with(|c| c.access_times.lazy = lazy);
        let names: Vec<PathBuf> = (0..5).map(|n| m.path(&format!("f{n}"))).collect();
        let [fsynced, forgotten, by_hand, waits, at_the_end] = names.as_slice() else { panic!() };
        for name in &names {
            fs::write(name, b"x").unwrap();
        }
        let untold: Vec<(Time, Time)> = names.iter().map(|name| m.stored(name)).collect();
        std::thread::sleep(Duration::from_millis(2));
        names.iter().for_each(|name| read(name));
        for (name, untold) in names.iter().zip(&untold) {
            assert_eq!(m.stored(name), *untold, "reads do not wait for it");
            assert!(times(name).0 > untold.0);
        }
        File::open(fsynced).unwrap().sync_all().unwrap();
        assert_eq!(m.stored(fsynced), times(fsynced));
        let time = Time { secs: 1_000_000_000, nanos: 0 };
        let set = fs::FileTimes::new().set_accessed(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        File::options().write(true).open(by_hand).unwrap().set_times(set).unwrap();
        assert_eq!((m.stored(by_hand).0, times(by_hand).0), (time, time));
        let ino = Ino(fs::metadata(forgotten).unwrap().ino());
        fs::rename(forgotten, m.path("gone")).unwrap();
        fs::remove_file(m.path("gone")).unwrap();
        let begun = Instant::now();
        while m.fs.getattr(ino).is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(10), "it is forgotten");
            std::thread::sleep(Duration::from_millis(5));
        }
        let told = |limit: u64| {
            let end = Instant::now() + Duration::from_secs(limit);
            while m.stored(waits) != times(waits) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
            }
            m.stored(waits) == times(waits)
        };
        assert_eq!(told(if lazy { 6 } else { 30 }), !lazy, "lazy: {lazy}");
        read(at_the_end);
        let (shown, ino) = (times(at_the_end), Ino(fs::metadata(at_the_end).unwrap().ino()));
        let Mounted { session, fs, dir, _limit } = m;
        session.unmounter().unmount().unwrap();
        session.wait().unwrap();
        assert_eq!(fs.getattr(ino).unwrap().atime, shown.0, "unmounted");
        drop(dir);
    }
}

#[test]
fn a_mount_that_was_made_read_only_notes_no_access() {
    if !can_mount() {
        return;
    }
    let m = Mounted::with(|c| c.access_times.access = Access::Strict);
    let file = m.path("f");
    fs::write(&file, b"x").unwrap();
    arbor_fuse::remount(m.dir.path(), &arbor_base::vfs::Options::parse("ro")).unwrap();
    let stored = m.stored(&file);
    std::thread::sleep(Duration::from_millis(2));
    read(&file);
    File::open(&file).unwrap().sync_all().unwrap();
    assert_eq!(m.stored(&file), stored);
}

#[test]
fn changes_are_durable_when_the_mount_is_told_so() {
    if !can_mount() {
        return;
    }
    for promptly in [Promptly::Asked, Promptly::Names, Promptly::Everything] {
        let m = Mounted::with(|c| c.promptly = promptly);
        let (a, b) = (m.path("a"), m.path("b"));
        let file = |path: &Path| File::options().write(true).create(true).truncate(false).open(path).unwrap();
        let is_durable = |what: &str, is_name: bool, change: &dyn Fn()| {
            let (syncs, requests) = (m.fs.syncs.load(SeqCst), m.requests("fsync"));
            change();
            let by_us = m.fs.syncs.load(SeqCst) - syncs - (m.requests("fsync") - requests);
            let wanted = promptly >= if is_name { Promptly::Names } else { Promptly::Everything };
            assert_eq!(by_us > 0, wanted, "{what}, {promptly:?}");
        };
        let rename = |flags| rustix::fs::renameat_with(CWD, &a, CWD, m.path("d/a"), flags).unwrap();
        is_durable("create", true, &|| drop(file(&a)));
        is_durable("mkdir", true, &|| fs::create_dir(m.path("d")).unwrap());
        is_durable("symlink", true, &|| std::os::unix::fs::symlink("a", m.path("s")).unwrap());
        is_durable("link", true, &|| fs::hard_link(&a, &b).unwrap());
        is_durable("write", false, &|| file(&a).write_all_at(b"x", 0).unwrap());
        is_durable("truncate", false, &|| file(&a).set_len(5000).unwrap());
        is_durable("fallocate", false, &|| {
            rustix::fs::fallocate(file(&a), FallocateFlags::empty(), 0, 9000).unwrap();
        });
        is_durable("copy", false, &|| {
            let (from, to) = (File::open(&a).unwrap(), file(&m.path("s")));
            assert_eq!(rustix::fs::copy_file_range(from, Some(&mut 0), to, Some(&mut 20_000), 100), Ok(100));
        });
        is_durable("setxattr", false, &|| {
            rustix::fs::setxattr(&a, "user.x", b"1", XattrFlags::empty()).unwrap();
        });
        is_durable("removexattr", false, &|| rustix::fs::removexattr(&a, "user.x").unwrap());
        is_durable("rename", true, &|| rename(RenameFlags::NOREPLACE));
        is_durable("unlink", true, &|| fs::remove_file(m.path("d/a")).unwrap());
        is_durable("rmdir", true, &|| fs::remove_dir(m.path("d")).unwrap());
    }
}

#[test]
fn a_change_that_is_not_durable_fails_and_is_made() {
    if !can_mount() {
        return;
    }
    for (promptly, is_told) in [(Promptly::Asked, false), (Promptly::Everything, true)] {
        let m = Mounted::with(|c| c.promptly = promptly);
        let (file, dir) = (m.path("f"), m.path("d"));
        fs::write(&file, b"old").unwrap();
        m.fs.fails_to_sync.store(true, SeqCst);
        let fails = |done: std::io::Result<()>| {
            assert_eq!(done.err().and_then(|e| e.raw_os_error()), is_told.then_some(libc::EIO), "{promptly:?}");
        };
        fails(File::options().write(true).open(&file).unwrap().write_all_at(b"new", 0));
        fails(fs::create_dir(&dir));
        m.fs.fails_to_sync.store(false, SeqCst);
        let root = m.fs.root();
        let ino = m.fs.lookup(root, b"f").unwrap().ino;
        let mut found = [0; 3];
        assert_eq!(m.fs.read(ino, 0, &mut found).unwrap(), 3);
        assert_eq!(&found, b"new");
        m.fs.forget(ino, 1);
        let ino = m.fs.lookup(root, b"d").unwrap().ino;
        m.fs.forget(ino, 1);
    }
}
