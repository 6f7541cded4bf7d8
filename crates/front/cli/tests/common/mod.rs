//! What the tests of the command share.

#![allow(dead_code)]

use assert_cmd::Command;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

pub const BINARY: &str = env!("CARGO_BIN_EXE_arbor");

pub fn arbor() -> Command {
    let mut command = Command::new(BINARY);
    command.env_remove("SOURCE_DATE_EPOCH").env_remove("NOTIFY_SOCKET");
    command
}

/// Runs `arbor` in `dir`; gives exit code, standard output and standard error.
pub fn run_in(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let out = arbor().current_dir(dir).args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap_or(-1), text(&out.stdout), text(&out.stderr))
}

/// Runs `arbor`, which must succeed and complain of nothing.
pub fn ok(dir: &Path, args: &[&str]) -> String {
    let (code, out, err) = run_in(dir, args);
    assert_eq!((code, err.as_str()), (0, ""), "arbor {args:?}: {out}");
    out
}

pub fn json(dir: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&ok(dir, args)).unwrap()
}

/// Runs a test on a fresh image of each engine, `x.img` of 64 MiB.
pub fn each_engine(test: impl Fn(&Path, &str)) {
    for engine in arboretum::engines() {
        let dir = tempfile::tempdir().unwrap();
        ok(dir.path(), &["mkfs", "-q", "-t", engine.name(), "-s", "64M", "-L", "name", "x.img"]);
        test(dir.path(), engine.name());
    }
}

/// A small tree of the host.
pub fn tree(dir: &Path) -> PathBuf {
    let root = dir.join("tree");
    fs::create_dir_all(root.join("sub/deep")).unwrap();
    fs::write(root.join("a.txt"), "alpha\n").unwrap();
    fs::write(root.join("sub/b.txt"), "beta\n").unwrap();
    fs::write(root.join(".hidden"), "").unwrap();
    std::os::unix::fs::symlink("sub/b.txt", root.join("link")).unwrap();
    root
}

fn can_open_fuse() -> bool {
    OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok()
}

/// Also where only an administrator looks for programs.
fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(sbin).any(|dir| dir.join(program).exists())
}

/// Whether mounts can be made here; says aloud if not.
pub fn can_mount() -> bool {
    let can = can_open_fuse() && (rustix::process::geteuid().is_root() || is_there("fusermount3"));
    if !can {
        eprintln!("NOT RUN: this test needs /dev/fuse, and fusermount3 where it is not run by root");
    }
    can
}

/// Whether root mounts here; says aloud if not.
pub fn root_can_mount() -> bool {
    root_can_mount_with(&[])
}

/// Whether root mounts here and these programs are there; says aloud if not.
pub fn root_can_mount_with(programs: &[&str]) -> bool {
    let missing: Vec<_> = programs.iter().filter(|program| !is_there(program)).collect();
    let can = missing.is_empty() && can_open_fuse() && rustix::process::geteuid().is_root();
    if !can {
        eprintln!("NOT RUN: this test needs root, /dev/fuse and {programs:?}, of which {missing:?} are missing");
    }
    can
}
