//! What a volume and its files are, asked for and changed on real mounts by the programs that people use: labels, file
//! flags, ACLs, shutting down, idmapped mounts. What is missing here is said aloud, and not run.

#![cfg(target_os = "linux")]
#![allow(unsafe_code)]

mod common;
mod watch;

use common::{root_can_mount, root_can_mount_with};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use watch::{Watch, is_mounted};

/// Longer than any command here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits for a child that this test has started, and kills it when its time is over.
fn finish(mut child: Child, what: &str) -> Output {
    let end = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{what}: not done after {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

fn run_as(uid: u32, program: &str, args: &[&str], paths: &[&Path]) -> Output {
    let mut command = Command::new(program);
    command.args(args).args(paths).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if uid != 0 {
        command.uid(uid).gid(uid);
    }
    finish(command.spawn().unwrap(), &format!("{program} {args:?}"))
}

fn run(program: &str, args: &[&str], paths: &[&Path]) -> Output {
    run_as(0, program, args, paths)
}

/// What a program says that must succeed.
#[track_caller]
fn said(out: Output) -> String {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Why a program fails that must.
#[track_caller]
fn refused(out: Output) -> String {
    assert!(!out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    String::from_utf8(out.stderr).unwrap()
}

const ARBOR: &str = env!("CARGO_BIN_EXE_arbor");
/// Users that are not root.
const ONE: u32 = 54_321;
const OTHER: u32 = 54_322;

/// Whether root may set the flags `i` and `a` here, in a container perhaps; says aloud if not.
fn may_set_immutable() -> bool {
    const LINUX_IMMUTABLE: u32 = 9;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let caps = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    let may = caps.is_some_and(|caps| caps >> LINUX_IMMUTABLE & 1 == 1);
    if !may {
        eprintln!("NOT RUN: this test needs CAP_LINUX_IMMUTABLE");
    }
    may
}

/// Whether a server may read the memory of this process; says aloud if not.
fn is_memory_seen() -> bool {
    let number = 7u8;
    let (from, at) = (format!("if=/proc/{}/mem", std::process::id()), format!("skip={}", &raw const number as u64));
    let out = run("dd", &["bs=1", "count=1", &from, &at], &[]);
    let is_seen = out.status.success() && out.stdout == [number];
    if !is_seen {
        eprintln!(
            "NOT RUN: other processes may not read the memory of this one: {}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
    is_seen
}

/// An image, its mount, and a directory for a second one. In this order it goes: mounts, files.
struct Volume {
    watch: Watch,
    dir: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Volume {
    fn new(engine: &str) -> Volume {
        let turn = watch::turn();
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let volume = Volume { watch: Watch::new(dir.path()), dir, _turn: turn };
        said(run(ARBOR, &["mkfs", "-q", "-t", engine, "-s", "64M", "-L", "first"], &[&volume.image()]));
        volume
    }

    fn mounted(engine: &str, options: &str) -> Volume {
        let volume = Volume::new(engine);
        volume.mount_with(options);
        volume
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("x.img")
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn second(&self) -> PathBuf {
        self.dir.path().join("second")
    }

    fn mount(&self) {
        self.mount_with("rw");
    }

    fn mount_with(&self, options: &str) {
        // The server keeps what it inherits open, and the pipe would not end.
        let mut command = Command::new(ARBOR);
        command.args(["mount", "-q", "-o", options]).arg(self.image()).arg(self.root()).stdin(Stdio::null());
        assert!(finish(command.spawn().unwrap(), "mount").status.success());
    }

    fn umount(&self) {
        said(run(ARBOR, &["umount"], &[&self.root()]));
    }

    fn check(&self) {
        said(run(ARBOR, &["fsck", "-n", "-f"], &[&self.image()]));
    }

    /// The program, run by a user.
    fn arbor_as(&self, uid: u32, args: &[&str], paths: &[&Path]) -> Output {
        let program = watch::for_users(Path::new(ARBOR), self.dir.path());
        run_as(uid, program.to_str().unwrap(), args, paths)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if is_mounted(&self.second()) {
            run("umount", &["-l"], &[&self.second()]);
        }
        self.watch.end();
    }
}

fn each_engine(test: impl Fn(&str)) {
    for engine in arboretum::engines() {
        eprintln!("{}", engine.name());
        test(engine.name());
    }
}

#[test]
fn labels_of_images_and_mounts() {
    if !root_can_mount() {
        return;
    }
    each_engine(|engine| {
        let volume = Volume::new(engine);
        let (image, root) = (volume.image(), volume.root());
        let label = |of: &Path| said(run(ARBOR, &["label"], &[of]));
        assert_eq!(label(&image), "first\n");
        said(run(ARBOR, &["label"], &[&image, Path::new("second")]));
        assert_eq!(label(&image), "second\n");
        volume.check();
        let long = "x".repeat(64);
        assert!(refused(run(ARBOR, &["label"], &[&image, Path::new(&long)])).contains("at most 63 bytes, not 64"));
        volume.mount();
        assert_eq!(label(&root), "second\n");
        assert!(refused(volume.arbor_as(ONE, &["label"], &[&root, Path::new("no")])).contains("only root"));
        assert!(refused(run(ARBOR, &["label"], &[&root, Path::new(&long)])).contains("at most 63 bytes"));
        said(run(ARBOR, &["label"], &[&root, Path::new("third")]));
        assert_eq!(label(&root), "third\n");
        said(run(ARBOR, &["mount", "-o", "remount,ro"], &[&image, &root]));
        assert!(refused(run(ARBOR, &["label"], &[&root, Path::new("fourth")])).contains("ead-only"));
        assert_eq!(label(&root), "third\n");
        // It is durable already, whatever becomes of the mount.
        said(run(ARBOR, &["shutdown", "--now"], &[&root]));
        volume.umount();
        volume.mount();
        assert_eq!(label(&root), "third\n");
        volume.umount();
        assert_eq!(label(&image), "third\n");
        volume.check();
    });
}

#[test]
fn flags_forbid_changes() {
    if !root_can_mount_with(&["chattr", "lsattr"]) || !may_set_immutable() {
        return;
    }
    each_engine(|engine| {
        let volume = Volume::mounted(engine, "rw");
        let root = volume.root();
        let (file, dir) = (root.join("file"), root.join("dir"));
        fs::write(&file, "one\n").unwrap();
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("in it"), "").unwrap();
        let chattr = |how: &str, path: &Path| said(run("chattr", &[how], &[path]));
        let shown = |path: &Path| said(run("lsattr", &["-d"], &[path])).split(' ').next().unwrap().replace('-', "");
        let refuses = |done: std::io::Result<()>, what: &str| {
            assert_eq!(done.expect_err(what).raw_os_error(), Some(libc::EPERM), "{what}");
        };
        chattr("+i", &file);
        assert_eq!(shown(&file), "i");
        // The same by the newer call.
        assert!(said(run("lsattr", &["-p"], &[&file])).contains("----i---"));
        refuses(fs::write(&file, "two"), "truncate");
        let write_at = |at, text: &str| OpenOptions::new().write(true).open(&file)?.write_all_at(text.as_bytes(), at);
        refuses(write_at(0, "two"), "write");
        refuses(fs::remove_file(&file), "unlink");
        refuses(fs::rename(&file, root.join("moved")), "rename");
        refuses(fs::hard_link(&file, root.join("second")), "link");
        refuses(fs::set_permissions(&file, fs::Permissions::from_mode(0o400)), "chmod");
        chattr("+i", &dir);
        refuses(fs::write(dir.join("new"), ""), "create");
        refuses(fs::remove_file(dir.join("in it")), "unlink");
        // Flags are there after another mount.
        volume.umount();
        volume.check();
        volume.mount();
        assert_eq!((shown(&file), shown(&dir)), ("i".to_string(), "i".to_string()));
        refuses(fs::remove_file(&file), "unlink");
        chattr("-i", &dir);
        chattr("=a", &file);
        let append = |text: &str| OpenOptions::new().append(true).open(&file)?.write_all(text.as_bytes());
        append("two\n").unwrap();
        refuses(fs::write(&file, "three"), "truncate");
        refuses(write_at(0, "three"), "write");
        refuses(fs::remove_file(&file), "unlink");
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\ntwo\n");
        chattr("=d", &file);
        assert_eq!(shown(&file), "d");
        fs::remove_file(&file).unwrap();
        // Only root may set these, an owner may set the rest, nobody else anything.
        fs::write(&file, "").unwrap();
        std::os::unix::fs::chown(&file, Some(ONE), Some(ONE)).unwrap();
        refused(run_as(ONE, "chattr", &["+i"], &[&file]));
        said(run_as(ONE, "chattr", &["+d"], &[&file]));
        refused(run_as(OTHER, "chattr", &["-d"], &[&file]));
        // What is not kept is refused.
        refused(run("chattr", &["+S"], &[&file]));
        volume.umount();
        volume.check();
    });
}

#[test]
fn acls_grant_and_are_inherited() {
    if !root_can_mount_with(&["setfacl", "getfacl"]) {
        return;
    }
    each_engine(|engine| {
        let volume = Volume::mounted(engine, "acl");
        let root = volume.root();
        let file = root.join("file");
        fs::write(&file, "text").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let chmod = |path: &Path, to| fs::set_permissions(path, fs::Permissions::from_mode(to)).unwrap();
        let shown = |path: &Path| said(run("getfacl", &["-cnpE"], &[path]));
        chmod(&file, 0o600);
        refused(run_as(ONE, "cat", &[], &[&file]));
        said(run("setfacl", &["-m", &format!("u:{ONE}:r")], &[&file]));
        assert_eq!(said(run_as(ONE, "cat", &[], &[&file])), "text");
        refused(run_as(OTHER, "cat", &[], &[&file]));
        // The mode's bits for the group are the mask, and the other way round.
        assert_eq!(mode(&file), 0o640);
        chmod(&file, 0o600);
        assert!(shown(&file).contains("mask::---"), "{}", shown(&file));
        refused(run_as(ONE, "cat", &[], &[&file]));
        said(run("setfacl", &["-b"], &[&file]));
        assert_eq!(shown(&file).lines().filter(|line| !line.is_empty()).count(), 3);
        // Handed down, and then the umask does not count.
        let dir = root.join("dir");
        fs::create_dir(&dir).unwrap();
        let script = |text: &str| said(run("sh", &["-c", text, "sh"], &[&dir]));
        script("umask 027; : >$1/plain");
        assert_eq!(mode(&dir.join("plain")), 0o640);
        said(run("setfacl", &["-d", "-m", &format!("u:{ONE}:rwx")], &[&dir]));
        script("umask 077; : >$1/new; mkdir $1/sub");
        assert_eq!(mode(&dir.join("new")), 0o664);
        assert!(shown(&dir.join("new")).contains(&format!("user:{ONE}:rwx")));
        assert!(shown(&dir.join("sub")).contains(&format!("default:user:{ONE}:rwx")));
        // Who is not in the group of a file loses its set-group-id bit with a list.
        let setgid = root.join("setgid");
        fs::write(&setgid, "").unwrap();
        std::os::unix::fs::chown(&setgid, Some(ONE), Some(OTHER)).unwrap();
        chmod(&setgid, 0o2770);
        said(run_as(ONE, "setfacl", &["-m", &format!("u:{OTHER}:r")], &[&setgid]));
        assert_eq!(mode(&setgid), 0o770);
        volume.umount();
        volume.check();
        // Without the option lists are neither heeded nor shown, and those that are there stay.
        volume.mount_with("noacl");
        assert!(refused(run("setfacl", &["-m", &format!("u:{ONE}:r")], &[&file])).contains("not supported"));
        assert!(!shown(&dir.join("new")).contains(&ONE.to_string()));
        volume.umount();
        volume.mount_with("acl");
        assert!(shown(&dir.join("new")).contains(&ONE.to_string()));
        volume.umount();
    });
}

/// Writes numbered files, one after the other, until told to stop or the mount fails; tells how many there are.
fn load(dir: &Path, stop: &AtomicBool, written: &AtomicU64) {
    for n in 0.. {
        let text = n.to_string().repeat(1 + n as usize % 3000);
        if stop.load(Ordering::Relaxed) || fs::write(dir.join(n.to_string()), text).is_err() {
            return;
        }
        written.store(n + 1, Ordering::Release);
    }
}

fn is_whole(dir: &Path, n: u64) -> bool {
    let text = n.to_string().repeat(1 + n as usize % 3000);
    fs::read_to_string(dir.join(n.to_string())).is_ok_and(|found| found == text)
}

/// An image when what had been submitted before the shutdown has arrived.
fn settled(image: &Path) -> Vec<u8> {
    let mut old = fs::read(image).unwrap();
    let end = Instant::now() + LIMIT;
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let new = fs::read(image).unwrap();
        if new == old {
            return new;
        }
        assert!(Instant::now() < end, "the image does not come to rest");
        old = new;
    }
}

/// One shutdown while two tasks write, and what is there after it.
fn shut_down_once(engine: &str, now: bool, wait: Duration) {
    let volume = Volume::mounted(engine, "rw");
    let root = volume.root();
    let dirs = ["a", "b"].map(|name| root.join(name));
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let (stop, written) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    let counts = || [0, 1].map(|i: usize| written[i].load(Ordering::Acquire));
    let promised = std::thread::scope(|s| {
        for (dir, written) in dirs.iter().zip(&written) {
            s.spawn(|| load(dir, &stop, written));
        }
        std::thread::sleep(wait);
        let mut promised = counts();
        said(run(ARBOR, &["sync"], &[&root]));
        std::thread::sleep(wait);
        if !now {
            promised = counts();
        }
        let args: &[&str] = if now { &["shutdown", "--now"] } else { &["shutdown"] };
        said(run(ARBOR, args, &[&root]));
        stop.store(true, Ordering::Relaxed);
        promised
    });
    let mut buf = [0];
    let eio = |done: std::io::Result<()>| assert_eq!(done.unwrap_err().raw_os_error(), Some(libc::EIO));
    eio(fs::write(root.join("late"), ""));
    eio(File::open(root.join("never looked at")).and_then(|mut f| f.read(&mut buf)).map(drop));
    let image = settled(&volume.image());
    volume.umount();
    assert!(fs::read(volume.image()).unwrap() == image, "{engine}: something was written after the shutdown");
    volume.mount();
    for (dir, promised) in dirs.iter().zip(promised) {
        let lost = (0..promised).find(|n| !is_whole(dir, *n));
        assert_eq!(lost, None, "{engine}: of {promised} files that were synced");
    }
    volume.umount();
    volume.check();
}

#[test]
fn shutdowns_under_load() {
    if !root_can_mount() {
        return;
    }
    let rounds = std::env::var("ARBOR_SHUTDOWNS").ok().and_then(|n| n.parse().ok()).unwrap_or(4u64);
    each_engine(|engine| {
        for n in 0..rounds {
            shut_down_once(engine, n % 2 == 0, Duration::from_millis(5 + n * 37 % 150));
        }
    });
}

#[test]
fn a_shutdown_now_makes_nothing_durable() {
    if !root_can_mount() {
        return;
    }
    each_engine(|engine| {
        for (args, is_kept) in [(&["shutdown"][..], true), (&["shutdown", "--now"], false)] {
            // Nothing is old enough to be written by itself.
            let volume = Volume::mounted(engine, "commit=3600");
            fs::write(volume.root().join("file"), "text").unwrap();
            said(run(ARBOR, args, &[&volume.root()]));
            volume.umount();
            volume.mount();
            assert_eq!(volume.root().join("file").exists(), is_kept, "{engine}: {args:?}");
            volume.umount();
        }
    });
}

#[test]
fn only_some_may_shut_down_or_trim() {
    if !root_can_mount() {
        return;
    }
    let volume = Volume::mounted("yfs", "rw");
    assert!(refused(volume.arbor_as(ONE, &["shutdown"], &[&volume.root()])).contains("only root"));
    assert!(refused(volume.arbor_as(ONE, &["trim"], &[&volume.root()])).contains("only root may trim"));
    volume.umount();
}

/// XFS_IOC_GOINGDOWN, as other programs ask for it; the root goes with it.
fn go_down(volume: &Volume, mut how: u32) -> i32 {
    let root = File::open(volume.root()).unwrap();
    // SAFETY: the number says that four bytes are written at most, and `how` has four.
    unsafe { libc::ioctl(root.as_raw_fd(), 0x8004_587d, &raw mut how) }
}

#[test]
fn other_programs_shut_down_by_three_flags() {
    if !root_can_mount_with(&["dd"]) || !is_memory_seen() {
        return;
    }
    for (how, is_kept) in [(0, true), (1, true), (2, false)] {
        let volume = Volume::mounted("yfs", "rw");
        fs::write(volume.root().join("file"), "text").unwrap();
        assert_eq!(go_down(&volume, 3), -1);
        assert_eq!(go_down(&volume, how), 0);
        assert!(fs::write(volume.root().join("late"), "").is_err());
        volume.umount();
        volume.mount();
        assert_eq!(fs::read_to_string(volume.root().join("file")).is_ok(), is_kept, "flag {how}");
        volume.umount();
    }
}

/// The table of the same name in `docs/semantics.md`.
#[test]
fn what_fuse_cannot_carry() {
    if !root_can_mount() {
        return;
    }
    let volume = Volume::mounted("yfs", "rw");
    let open =
        |name| OpenOptions::new().read(true).write(true).create(true).truncate(true).open(volume.root().join(name));
    let (mut a, b, root) = (open("a").unwrap(), open("b").unwrap(), File::open(volume.root()).unwrap());
    a.write_all(&[1; 200_000]).unwrap();
    let errno = || std::io::Error::last_os_error().raw_os_error();
    let mut map = [0u8; 64];
    // SAFETY: FICLONE and FIFREEZE take a number; FS_IOC_FIEMAP gets room for its head, which asks for no extents.
    let ioctls = unsafe {
        [
            ("FICLONE", libc::ioctl(b.as_raw_fd(), 0x4004_9409, a.as_raw_fd()), errno()),
            ("FS_IOC_FIEMAP", libc::ioctl(a.as_raw_fd(), 0xc020_660b, map.as_mut_ptr()), errno()),
            ("FIFREEZE", libc::ioctl(root.as_raw_fd(), 0xc004_5877, 0), errno()),
        ]
    };
    for (what, done, errno) in ioctls {
        assert_eq!((done, errno), (-1, Some(libc::EOPNOTSUPP)), "{what}");
    }
    for (what, mode) in [("collapse", libc::FALLOC_FL_COLLAPSE_RANGE), ("insert", libc::FALLOC_FL_INSERT_RANGE)] {
        // SAFETY: nothing but numbers.
        let done = unsafe { libc::fallocate(a.as_raw_fd(), mode, 0, 65_536) };
        assert_eq!((done, errno()), (-1, Some(libc::EOPNOTSUPP)), "{what}");
    }
    let mut format = [0u8; 64];
    // SAFETY: Q_GETFMT writes four bytes, and there are more.
    let done =
        unsafe { libc::syscall(libc::SYS_quotactl_fd, root.as_raw_fd(), 0x80_0004 << 8, 0, format.as_mut_ptr()) };
    assert_eq!((done, errno()), (-1, Some(libc::ENOSYS)), "quota");
}

/// `struct mount_attr` of mount_setattr(2).
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// Whether the kernel is this version or a later one.
fn is_linux(major: u32, minor: u32) -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

/// Mounts `from` once more on `to`, where ids are `by` higher; `false` if this kernel cannot.
fn mount_idmapped(from: &Path, to: &Path, by: u32) -> bool {
    use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
    let mut keeper = Command::new("unshare").args(["-U", "sleep", "30"]).stdin(Stdio::null()).spawn().unwrap();
    let maps = |what: &str| format!("/proc/{}/{what}", keeper.id());
    let mine = fs::read_link("/proc/self/ns/user").unwrap();
    let end = Instant::now() + LIMIT;
    while fs::read_link(maps("ns/user")).is_ok_and(|ns| ns == mine) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
    for what in ["uid_map", "gid_map"] {
        fs::write(maps(what), format!("0 {by} 1000\n")).unwrap();
    }
    let userns = File::open(maps("ns/user")).unwrap();
    let _ = keeper.kill();
    let _ = keeper.wait();
    let tree = open_tree(rustix::fs::CWD, from, OpenTreeFlags::OPEN_TREE_CLONE).unwrap();
    let attr = MountAttr { set: 0x0010_0000, clear: 0, propagation: 0, userns: userns.as_raw_fd() as u64 };
    // SAFETY: the path is empty and ends in NUL, and `attr` is read for as long as it is, and lives through the call.
    let done = unsafe {
        let size = size_of::<MountAttr>();
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size,
        )
    };
    if done != 0 {
        let why = std::io::Error::last_os_error();
        // Where the kernel can, it says so of a file system that has not asked for it.
        assert!(why.raw_os_error() != Some(libc::EINVAL) || !is_linux(6, 12), "the mount cannot be idmapped");
        eprintln!("NOT RUN: mount_setattr: {why}");
        return false;
    }
    move_mount(&tree, "", rustix::fs::CWD, to, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).unwrap();
    true
}

#[test]
fn idmapped_mounts() {
    const BY: u32 = 50_000;
    if !root_can_mount_with(&["unshare", "setfacl", "getfacl", "chattr"]) || !may_set_immutable() {
        return;
    }
    each_engine(|engine| {
        let volume = Volume::mounted(engine, "acl");
        let (root, second) = (volume.root(), volume.second());
        fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
        fs::create_dir(&second).unwrap();
        if !mount_idmapped(&root, &second, BY) {
            return;
        }
        said(run_as(
            BY + 5,
            "sh",
            &["-c", ": >$1/file; mkdir $1/dir; ln -s x $1/link; mv $1/file $1/moved", "sh"],
            &[&second],
        ));
        let owner = |path: PathBuf| fs::symlink_metadata(path).map(|m| (m.uid(), m.gid())).unwrap();
        for name in ["moved", "dir", "link"] {
            assert_eq!(owner(root.join(name)), (5, 5), "{name}");
            assert_eq!(owner(second.join(name)), (BY + 5, BY + 5), "{name}");
        }
        let moved = second.join("moved");
        std::os::unix::fs::chown(&moved, Some(BY + 7), Some(BY + 8)).unwrap();
        assert_eq!(owner(root.join("moved")), (7, 8));
        said(run("setfacl", &["-m", &format!("u:{}:r", BY + 9)], &[&moved]));
        assert!(said(run("getfacl", &["-cnp"], &[&root.join("moved")])).contains("user:9:r--"));
        // Root is known by its process, and so is who is not.
        said(run("chattr", &["+i"], &[&moved]));
        said(run("chattr", &["-i"], &[&moved]));
        said(run(ARBOR, &["label"], &[&second, Path::new("by root")]));
        refused(volume.arbor_as(BY + 5, &["label"], &[&second, Path::new("no")]));
        said(run("umount", &[], &[&second]));
        volume.umount();
        volume.check();
    });
}
