//! A file system in memory, mounted by a test, and what the tests of mounts have in common.

#![allow(dead_code)]

use crate::guard::can_mount;
use crate::memfs::MemFs;
use crate::rings;
use arbor_fuse::{MountConfig, Session, Transport};
use std::ffi::OsString;
use std::fs::{self};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Held for writing by who drops the caches, for reading by who counts requests.
static CACHES: RwLock<()> = RwLock::new(());

/// Held for reading by who starts a process, which has all our descriptors until it runs its program, and
/// for writing by who ends a session while files are open: closing them there would wait for an answer
/// from a connection that is there as long as this process is.
pub static FORKS: RwLock<()> = RwLock::new(());

pub fn start(command: &mut Command) -> Child {
    let _forks = FORKS.read().unwrap_or_else(PoisonError::into_inner);
    command.spawn().unwrap()
}

pub fn output(command: &mut Command) -> std::io::Result<Output> {
    let _forks = FORKS.read().unwrap_or_else(PoisonError::into_inner);
    command.output()
}

/// A mount that is gone when the test is, however it ends: the session goes before the directory.
pub struct Mounted {
    pub session: Option<Session>,
    pub fs: Arc<MemFs>,
    pub dir: tempfile::TempDir,
}

impl Mounted {
    pub fn new() -> Option<Mounted> {
        Mounted::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut MountConfig)) -> Option<Mounted> {
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

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn requests(&self, kind: &str) -> u64 {
        self.session.as_ref().unwrap().counters().requests(kind)
    }

    pub fn end(mut self) -> Arc<MemFs> {
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

pub fn is_mounted(dir: &Path) -> bool {
    let dir = dir.canonicalize().unwrap_or(dir.to_path_buf());
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().any(|l| l.split(' ').nth(4) == dir.to_str())
}

pub fn names(dir: &Path) -> Vec<OsString> {
    fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect()
}

pub fn counting() -> impl Drop {
    CACHES.read().unwrap_or_else(PoisonError::into_inner)
}

pub fn dropping() -> impl Drop {
    CACHES.write().unwrap_or_else(PoisonError::into_inner)
}

/// Until it holds, at most ten seconds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether ordinary users may mount here; says so if not.
pub fn users_can_mount() -> bool {
    let everybodys = fs::metadata("/dev/fuse").is_ok_and(|st| st.mode() & 0o666 == 0o666);
    let can = everybodys && output(Command::new("fusermount3").arg("-V")).is_ok();
    if !can {
        eprintln!("NOT RUN: this needs fusermount3, and a /dev/fuse that is open to everybody");
    }
    can
}

/// Runs `script` in a shell as nobody.
pub fn as_nobody(script: &str) -> String {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).uid(65534).gid(65534).current_dir("/");
    let output = output(&mut shell).unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Every transport that this kernel has.
pub fn transports() -> Vec<Transport> {
    let parameter = fs::read_to_string("/sys/module/fuse/parameters/enable_uring").unwrap_or_default();
    match parameter.trim() {
        "Y" if rings::can_be_made() => vec![Transport::Classic, Transport::Uring],
        _ => vec![Transport::Classic],
    }
}
