//! Mounts below directories that others may rename: only what is ours is taken off, wherever the path leads. Needs root
//! and `/dev/fuse`; where they are missing each test says so and does nothing.

mod guard;
#[allow(dead_code)]
mod memfs;

use arbor_fuse::{MountConfig, Session, Transport};
use guard::{Limit, can_mount};
use memfs::MemFs;
use rustix::fs::{CWD, RenameFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs::{self, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A file system of somebody else, which has to stay.
struct Foreign(PathBuf);

impl Foreign {
    fn on(dir: PathBuf) -> Foreign {
        fs::create_dir_all(&dir).unwrap();
        rustix::mount::mount("foreign", &dir, "tmpfs", MountFlags::empty(), c"size=64k").unwrap();
        fs::write(dir.join("kept"), b"x").unwrap();
        Foreign(dir)
    }

    fn stays(&self) -> bool {
        self.0.join("kept").exists()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
}

/// Exchanges two names until dropped.
struct Swapping {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<u64>>,
}

impl Swapping {
    fn start(a: PathBuf, b: PathBuf) -> Swapping {
        let over = Arc::new(AtomicBool::new(false));
        let watched = over.clone();
        let swap = move || {
            let mut swaps = 0;
            while !watched.load(SeqCst) {
                rustix::fs::renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
                swaps += 1;
            }
            swaps
        };
        Swapping { over, thread: Some(std::thread::spawn(swap)) }
    }
}

impl Drop for Swapping {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        let swaps = self.thread.take().unwrap().join();
        assert!(std::thread::panicking() || swaps.unwrap() > 100, "names were hardly exchanged");
    }
}

fn mount(dir: &Path) -> std::io::Result<Session> {
    let config = MountConfig {
        record: false,
        transport: Transport::Classic,
        source: dir.as_os_str().into(),
        ..Default::default()
    };
    arbor_fuse::mount(Arc::new(MemFs::new()), dir, &config)
}

/// A mount whose server has gone.
fn dead_mount(dir: &Path) {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let options = std::ffi::CString::new(options).unwrap();
    rustix::mount::mount("dead", dir, "fuse.arbor", MountFlags::empty(), &*options).unwrap();
}

fn is_mounted(dir: &Path) -> bool {
    arbor_fuse::mount_table().iter().any(|mount| mount.mountpoint == dir)
}

#[test]
fn a_server_takes_its_own_mount_off_when_a_directory_above_it_was_replaced() {
    if !can_mount() {
        return;
    }
    let _limit = Limit::minutes(2);
    let top = tempfile::tempdir().unwrap();
    let top_path = top.path().canonicalize().unwrap();
    let path = |name: &str| top_path.join(name);
    fs::create_dir_all(path("a/m")).unwrap();
    let session = mount(&path("a/m")).unwrap();
    session.ready().unwrap();
    fs::rename(path("a"), path("moved")).unwrap();
    let foreign = Foreign::on(path("other/m"));
    symlink("other", path("a")).unwrap();
    session.unmounter().unmount().unwrap();
    session.wait().unwrap();
    assert!(foreign.stays());
    assert!(!is_mounted(&path("moved/m")));
}

#[test]
fn a_link_that_flips_leads_to_no_foreign_mount() {
    if !can_mount() {
        return;
    }
    let _limit = Limit::minutes(2);
    let top = tempfile::tempdir().unwrap();
    let path = |name: &str| top.path().join(name);
    let foreign = Foreign::on(path("foreign"));
    fs::create_dir(path("ours")).unwrap();
    symlink("ours", path("link")).unwrap();
    symlink("foreign", path("other")).unwrap();
    let swapping = Swapping::start(path("link"), path("other"));
    for _ in 0..400 {
        dead_mount(&path("ours"));
        let mut cleaned = false;
        while !cleaned {
            // The link may have led to the other one.
            cleaned = arbor_fuse::clean_stale(&path("link")).unwrap();
            assert!(foreign.stays(), "a mount of somebody else was taken off");
        }
        assert!(!is_mounted(&path("ours").canonicalize().unwrap()));
    }
    for _ in 0..20 {
        let session = mount(&path("ours")).unwrap();
        while arbor_fuse::unmount(&path("link"), false).is_err() {
            assert!(foreign.stays(), "a mount of somebody else was taken off");
        }
        session.wait().unwrap();
    }
    drop(swapping);
    assert!(foreign.stays());
}

#[test]
fn a_mount_lies_on_the_directory_that_was_looked_at() {
    if !can_mount() {
        return;
    }
    let _limit = Limit::minutes(2);
    let top = tempfile::tempdir().unwrap();
    let path = |name: &str| top.path().join(name);
    let foreign = Foreign::on(path("elsewhere"));
    fs::create_dir_all(path("a/m")).unwrap();
    symlink("elsewhere", path("b")).unwrap();
    fs::create_dir(path("elsewhere/m")).unwrap();
    let swapping = Swapping::start(path("a"), path("b"));
    for _ in 0..50 {
        // On either of the two, and then taken off there.
        let session = mount(&path("a/m")).unwrap();
        session.unmounter().unmount().unwrap();
        session.wait().unwrap();
    }
    drop(swapping);
    assert!(foreign.stays());
    let left = arbor_fuse::mount_table().into_iter().filter(|mount| mount.mountpoint.starts_with(top.path())).count();
    assert_eq!(left, 0);
}

/// The ioctls that ask a server go to mounts of ours only, and nothing else is even opened.
#[test]
fn no_other_file_is_asked_for_what_a_server_does() {
    if !can_mount() {
        return;
    }
    let _limit = Limit::minutes(1);
    let dir = tempfile::tempdir().unwrap();
    let foreign = Foreign::on(dir.path().join("foreign"));
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let device = Path::new("/dev/null");
    for place in [&fifo, &foreign.0, device, dir.path()] {
        let asked = [
            arbor_fuse::clean(place, 1).map(|_| ()),
            arbor_fuse::scrub(place, 0).map(|_| ()),
            arbor_fuse::trim(place).map(|_| ()),
            arbor_fuse::label(place).map(|_| ()),
            arbor_fuse::set_label(place, b"x"),
            arbor_fuse::shutdown(place, true),
        ];
        for (n, done) in asked.into_iter().enumerate() {
            let e = done.expect_err("it is no mount of ours");
            // ENOTTY would be the file's own answer.
            assert_ne!(e.raw_os_error(), Some(libc::ENOTTY), "{} {n}: {e}", place.display());
        }
    }
    assert!(foreign.stays());
}
