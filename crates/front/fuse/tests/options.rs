//! What a mount does as its options say, seen through the kernel on a file system in memory. Needs root and
//! `/dev/fuse`; where they are missing each test says so and does nothing.

#[allow(dead_code)]
mod memfs;

use arbor_fuse::{MountConfig, Session, Transport};
use memfs::MemFs;
use rustix::fs::OFlags;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Whether mounts can be made here; says aloud if not.
fn can_mount() -> bool {
    let can =
        rustix::process::geteuid().is_root() && OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        eprintln!("NOT RUN: this test needs root and /dev/fuse");
    }
    can
}

/// Every transport that this kernel offers by itself.
fn transports() -> Vec<Transport> {
    let parameter = fs::read_to_string("/sys/module/fuse/parameters/enable_uring").unwrap_or_default();
    match parameter.trim() {
        "Y" => vec![Transport::Classic, Transport::Uring],
        _ => vec![Transport::Classic],
    }
}

/// Ends this process, and with it its mounts, if the test is not over in time.
struct Limit(Arc<AtomicBool>);

impl Limit {
    fn minutes(minutes: u64) -> Limit {
        let over = Arc::new(AtomicBool::new(false));
        let (watched, end) = (over.clone(), Instant::now() + Duration::from_secs(60 * minutes));
        std::thread::spawn(move || {
            while !watched.load(SeqCst) {
                if Instant::now() > end {
                    eprintln!("a test of a mount is not over after {minutes} minutes");
                    std::process::abort();
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Limit(over)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
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
