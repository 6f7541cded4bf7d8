//! Space on real mounts: what `stat` says of it, what fstrim(8) gives back, and a volume that is smaller than its disk.
//! Where no mount or no loop device can be made each test says so and does nothing. Whatever touches a mount is a
//! process of its own that ends within a minute, so a test never hangs.

#![cfg(target_os = "linux")]

mod common;

use common::root_can_mount_with;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs a command of the shell, in which `arbor` is ours.
fn run(dir: &Path, script: &str) -> Output {
    let whole = format!("arbor() {{ {:?} \"$@\"; }}\n{script}", env!("CARGO_BIN_EXE_arbor"));
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "60", "sh", "-c", &whole]).current_dir(dir).stdin(Stdio::null());
    command.output().unwrap()
}

/// What it says; it must succeed.
fn sh(dir: &Path, script: &str) -> String {
    let out = run(dir, script);
    assert!(out.status.success(), "{script}: {:?} {}", out.status.code(), String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Why it fails.
fn fails(dir: &Path, script: &str) -> String {
    let out = run(dir, script);
    assert!(!out.status.success(), "{script}");
    String::from_utf8(out.stderr).unwrap()
}

/// A directory for an image `x.img` and its mount `mnt`, which is taken off with the value.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        fs::create_dir(place.dir().join("mnt")).unwrap();
        place
    }

    fn dir(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        run(self.dir(), "arbor umount mnt || umount -l mnt");
    }
}

#[test]
fn blocks_are_those_of_a_remount_after_a_sync() {
    if !root_can_mount_with(&["timeout"]) {
        return;
    }
    for engine in arboretum::engines() {
        let engine = engine.name();
        let place = Place::new();
        let all = "stat -c '%n %b' mnt/a mnt/b mnt/c";
        sh(place.dir(), &format!("arbor mkfs -q -t {engine} -s 64M x.img && arbor mount x.img mnt"));
        sh(
            place.dir(),
            "head -c 20000 /dev/urandom > mnt/a; head -c 600 /dev/urandom > mnt/b; head -c 1 mnt/a > mnt/c",
        );
        let written = sh(place.dir(), all);
        sh(place.dir(), "arbor sync mnt");
        let synced = sh(place.dir(), all);
        sh(place.dir(), "arbor umount mnt && arbor mount x.img mnt");
        assert_eq!(synced, sh(place.dir(), all), "{engine}; before the sync: {written}");
    }
}

#[test]
fn fstrim_takes_a_range() {
    if !root_can_mount_with(&["timeout", "fstrim", "fallocate"]) {
        return;
    }
    for engine in arboretum::engines() {
        let engine = engine.name();
        let place = Place::new();
        sh(place.dir(), &format!("arbor mkfs -q -t {engine} -s 64M x.img && arbor mount x.img mnt"));
        let trim = |args: &str| {
            let said = sh(place.dir(), &format!("PATH=$PATH:/usr/sbin:/sbin fstrim -v {args} mnt"));
            let bytes = said.split_once('(').and_then(|(_, rest)| rest.split_once(" bytes"));
            bytes.and_then(|(n, _)| n.parse::<u64>().ok()).unwrap_or_else(|| panic!("{said}"))
        };
        let all = trim("");
        let total: u64 = sh(place.dir(), "df -B1 --output=size mnt | tail -1").trim().parse().unwrap();
        assert!(all > 1 << 20 && all <= total, "{engine}: {all} of {total}");
        assert!(trim("-o 0 -l 8M") + trim("-o 8M") >= all, "{engine}");
        assert!(trim("-o 8M -l 1M") <= 1 << 20, "{engine}");
        assert_eq!(trim("-o 8M -l 1M -m 2M"), 0, "{engine}");
        for args in ["-l 1", "-o 1T", "-m 1T"] {
            let said = fails(place.dir(), &format!("PATH=$PATH:/usr/sbin:/sbin fstrim {args} mnt"));
            assert!(said.contains("Invalid argument"), "{engine} {args}: {said}");
        }
        sh(place.dir(), "arbor umount mnt && fallocate -l 64M x.img");
        let on_host = || fs::metadata(place.dir().join("x.img")).unwrap().blocks() * 512;
        let before = on_host();
        sh(place.dir(), "arbor trim x.img");
        assert!(on_host() + all / 2 <= before, "{engine}: {} of {before} on the host are left", on_host());
        sh(place.dir(), "arbor mount -o ro x.img mnt");
        let said = fails(place.dir(), "PATH=$PATH:/usr/sbin:/sbin fstrim mnt");
        assert!(said.contains("Read-only file system"), "{engine}: {said}");
    }
}

#[test]
fn arbor_trims_a_mount() {
    if !root_can_mount_with(&["timeout"]) {
        return;
    }
    for engine in arboretum::engines() {
        let engine = engine.name();
        let place = Place::new();
        sh(place.dir(), &format!("arbor mkfs -q -t {engine} -s 64M x.img && arbor mount -q x.img mnt && mkdir mnt/d"));
        let said = sh(place.dir(), "arbor trim mnt/d");
        assert!(said.starts_with("mnt/d: ") && said.ends_with(" MiB given back\n"), "{engine}: {said}");
        sh(place.dir(), "arbor umount mnt && arbor mount -q -o ro x.img mnt");
        let said = fails(place.dir(), "arbor trim mnt");
        assert!(said.ends_with("mnt: Read-only file system\n"), "{engine}: {said}");
        assert!(fails(place.dir(), "arbor trim .").contains("not on a mount of arbor"));
        // A short name may be a word of the reason.
        assert!(fails(place.dir(), "mkdir -p a && arbor trim a").contains("a: not on a mount of arbor"));
    }
}

/// A loop device of a file, detached with the value.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("timeout").args(["10", "losetup", "-d", &self.0]).status();
    }
}

#[test]
fn a_volume_may_be_smaller_than_its_disk() {
    if !root_can_mount_with(&["timeout", "losetup"]) {
        return;
    }
    for engine in arboretum::engines() {
        let engine = engine.name();
        let place = Place::new();
        fs::File::create(place.dir().join("disk")).unwrap().set_len(100 << 20).unwrap();
        let made = run(place.dir(), "losetup -f --show disk");
        if !made.status.success() {
            eprintln!("NOT RUN: this needs a loop device");
            return;
        }
        let device = Loop(String::from_utf8(made.stdout).unwrap().trim().to_string());
        let path = &device.0;
        let said = fails(place.dir(), &format!("arbor mkfs -q -t {engine} -s 101M {path}"));
        assert!(said.contains("size of a block device cannot change"), "{said}");
        sh(place.dir(), &format!("arbor mkfs -q -t {engine} -s 64M {path} && arbor mount {path} mnt"));
        let blocks: u64 =
            sh(place.dir(), "stat -f -c '%b %S' mnt | { read a b; echo $((a * b)); }").trim().parse().unwrap();
        assert!((40 << 20..=64 << 20).contains(&blocks), "{engine}: {blocks}");
        sh(place.dir(), "seq 100000 > mnt/f && arbor umount mnt");
        sh(place.dir(), &format!("arbor fsck -f {path} && arbor mount {path} mnt && seq 100000 | cmp - mnt/f"));
        sh(place.dir(), "arbor umount mnt");
    }
}
