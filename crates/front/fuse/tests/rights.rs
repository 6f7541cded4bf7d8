//! Who may do what on a mount, and which rights go when others write. Needs root and
//! `/dev/fuse`; where they are missing each test says so and does nothing.

mod guard;
#[allow(dead_code)]
mod memfs;
mod mounts;
mod rings;

use arbor_base::vfs::{FileSystem, SetAttr};
use guard::Limit;
use mounts::*;
use rustix::fs::{CWD, Mode};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

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

/// A file of root in a directory that all may write to, which gets set-id bits again and again.
struct Program(PathBuf);

impl Program {
    fn new(m: &Mounted) -> Program {
        fs::set_permissions(m.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        Program(m.path("f"))
    }

    fn mode(&self) -> u32 {
        fs::metadata(&self.0).unwrap().mode() & 0o7777
    }

    fn again(&self, mode: u32) {
        fs::write(&self.0, vec![1u8; 100]).unwrap();
        fs::set_permissions(&self.0, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(self.mode(), mode);
    }
}

#[test]
fn setid_bits_go_when_others_write() {
    let _caches = counting();
    let _limit = Limit::minutes(1);
    let Some(m) = Mounted::new() else { return };
    let p = Program::new(&m);
    let (path, members) = (p.0.display(), groups_can_be_given());
    p.again(0o6777);
    fs::write(m.path("source"), b"source").unwrap();
    let (from, to) = (File::open(m.path("source")).unwrap(), File::options().write(true).open(&p.0).unwrap());
    as_nobody_here(|| assert_eq!(rustix::fs::copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 6), Ok(6)));
    assert_eq!(p.mode(), 0o777, "a copy");
    drop((from, to));
    p.again(0o6777);
    assert_eq!(as_nobody(&format!("printf x >> {path}; stat -c %a {path}")), "777\n");
    assert_eq!(p.mode(), 0o777, "a write");
    let directly = "dd if=/dev/zero of=$f bs=4096 count=1 conv=notrunc oflag=direct status=none";
    let other_ways = ["printf x >> $f", ": > $f", "truncate -s 5 $f", "fallocate -l 50000 $f", directly]
        .map(|way| way.replace("$f", &path.to_string()));
    for way in &other_ways {
        p.again(0o6767);
        assert_eq!(as_nobody(way), "");
        assert_eq!(p.mode(), 0o767, "{way} by one who is not in the group");
    }
    std::os::unix::fs::chown(&p.0, None, Some(77)).unwrap();
    for way in other_ways.iter().filter(|_| members) {
        p.again(0o6767);
        assert_eq!(as_one_of(77, way), "");
        assert_eq!(p.mode(), 0o2767, "{way} by one of the group, which may not execute");
        p.again(0o6777);
        assert_eq!(as_one_of(77, way), "");
        assert_eq!(p.mode(), 0o777, "{way} by one of the group, which may");
    }
    m.end();
}

#[test]
fn setid_bits_go_with_the_owner_and_stay_when_root_writes() {
    let _caches = counting();
    let _limit = Limit::minutes(1);
    let Some(m) = Mounted::new() else { return };
    let p = Program::new(&m);
    let path = p.0.display();
    p.again(0o6777);
    assert_eq!(as_nobody(&format!(": > {path}")), "");
    assert_eq!(p.mode(), 0o777, "a truncation");
    p.again(0o6777);
    assert_eq!(as_nobody(&format!("truncate -s 5 {path}")), "");
    assert_eq!(p.mode(), 0o777, "another truncation");
    p.again(0o6777);
    std::os::unix::fs::chown(&p.0, Some(5), None).unwrap();
    assert_eq!(p.mode(), 0o777, "a chown");
    p.again(0o6777);
    fs::OpenOptions::new().append(true).open(&p.0).unwrap().write_all(b"root").unwrap();
    assert_eq!(p.mode(), 0o6777, "root may");
    assert_eq!(as_nobody(&format!("fallocate -l 50000 {path}")), "");
    assert_eq!(p.mode(), 0o777, "fallocate");
    // And the kernel checks permissions.
    fs::set_permissions(&p.0, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(as_nobody(&format!("cat {path}")).contains("Permission denied"));
    m.end();
}

/// A file with capabilities loses them.
#[test]
fn writes_ask_for_capabilities_once() {
    let _caches = counting();
    let _limit = Limit::minutes(1);
    let Some(m) = Mounted::new() else { return };
    fs::write(m.path("plain"), b"").unwrap();
    let asked = m.requests("getxattr");
    let mut f = OpenOptions::new().append(true).open(m.path("plain")).unwrap();
    for _ in 0..50 {
        f.write_all(b"x").unwrap();
    }
    assert!(m.requests("getxattr") <= asked + 1);
    drop(f);
    m.end();
}

/// Without pages the kernel does not ask before a write, and says it with the write.
#[test]
fn setid_bits_go_with_a_write_without_pages() {
    let _limit = Limit::minutes(1);
    let Some(m) = Mounted::with(|c| c.direct_io = true) else { return };
    let p = Program::new(&m);
    p.again(0o6777);
    assert_eq!(as_nobody(&format!("printf x >> {}", p.0.display())), "");
    let stored = m.fs.getattr(m.fs.lookup(m.fs.root(), b"f").unwrap().ino).unwrap();
    assert_eq!(stored.mode & 0o7777, 0o777, "a write without pages");
    m.fs.forget(stored.ino, 1);
    m.end();
}
