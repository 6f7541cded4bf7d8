//! What a server in the background has to say reaches syslog. Needs root, `/dev/fuse` and unshare(1); where they are
//! missing the tests say so and do nothing. `/dev/log` is made in a mount namespace of its own.

#![cfg(target_os = "linux")]

mod common;

use arbor_base::device::{FileDevice, OpenMode};
use arboretum::vfs::{Devices, Structure};
use common::root_can_mount_with;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Where a process that a test starts finds that it is to panic.
const PANICS: &str = "ARBOR_TEST_LOG_PANICS";

/// A `/dev` with these devices and a `log` that leads to the test's socket.
const OWN_DEV: &str = r#"
    set -e
    mkdir dev
    mount -t tmpfs none dev
    for device in fuse null; do
        touch dev/$device
        mount --bind /dev/$device dev/$device
    done
    ln -s "$PWD/log" dev/log
    mount --rbind dev /dev
"#;

/// Runs a script in a mount namespace of its own with such a `/dev`. It has a minute.
fn run(dir: &Path, script: &str) -> String {
    let text = format!("{OWN_DEV}\n{script}");
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "60", "unshare", "-m", "sh", "-c", &text]).current_dir(dir).stdin(Stdio::null());
    command.env("ARBOR", env!("CARGO_BIN_EXE_arbor")).env("TEST", std::env::current_exe().unwrap()).env(PANICS, "1");
    let out = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{script}: {:?} {said}", out.status.code());
    said
}

/// Whether root can mount in a namespace of its own; says aloud if not.
fn can_run() -> bool {
    let script = "mount -t tmpfs none /dev";
    let mut unshare = Command::new("timeout");
    unshare.args(["-k", "5", "10", "unshare", "-m", "sh", "-c", script]).stderr(Stdio::null());
    let can = root_can_mount_with(&["timeout", "unshare", "mount"]);
    let has_namespaces = can && unshare.status().is_ok_and(|status| status.success());
    if can && !has_namespaces {
        eprintln!("NOT RUN: this test needs a mount namespace of its own");
    }
    has_namespaces
}

fn listen(dir: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(dir.join("log")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket
}

fn next(socket: &UnixDatagram) -> String {
    let mut bytes = vec![0; 64 << 10];
    let len = socket.recv(&mut bytes).expect("no message in 30 s");
    String::from_utf8(bytes[..len].to_vec()).unwrap()
}

/// Flips a bit in each block of the file that was made of `pattern`.
fn damage(image: &Path, pattern: &[u8]) {
    let mut bytes = fs::read(image).unwrap();
    let mut count = 0;
    while let Some(at) = bytes.windows(pattern.len()).position(|window| window == pattern) {
        bytes[at] ^= 1;
        count += 1;
    }
    assert!(count > 0, "the file's data are not found in the image");
    fs::write(image, bytes).unwrap();
}

#[test]
fn a_damaged_file_is_told_to_syslog() {
    if !can_run() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().canonicalize().unwrap();
    let pattern = b"what a damaged block held";
    fs::create_dir(dir.join("from")).unwrap();
    fs::write(dir.join("from/file"), [pattern.as_slice(), &[b'.'; 40_000]].concat()).unwrap();
    let mut mkfs = Command::new(env!("CARGO_BIN_EXE_arbor"));
    mkfs.args(["mkfs", "-q", "-t", "lfs", "-s", "16M", "-d", "from", "x.img"]).current_dir(&dir);
    assert!(mkfs.status().unwrap().success());
    damage(&dir.join("x.img"), pattern);

    let log = listen(&dir);
    let said = run(
        &dir,
        r#"
        mkdir mnt
        trap '"$ARBOR" umount mnt' EXIT
        "$ARBOR" mount -q x.img mnt
        if cat mnt/file >/dev/null; then exit 9; fi
        "#,
    );
    assert!(said.contains("mnt/file"), "{said}");
    let told = next(&log);
    assert!(told.starts_with("<27>arbor["), "{told}");
    let volume = format!("]: {0}/x.img on {0}/mnt: read of node ", dir.display());
    assert!(told.contains(&volume), "{told}");
    assert!(!told.contains(char::is_control), "{told:?}");
}

/// A bitmap is damaged: files are made elsewhere, so that no call fails, and the log is told.
#[test]
fn damage_that_no_call_fails_by_is_told_to_syslog() {
    if !can_run() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().canonicalize().unwrap();
    let mut mkfs = Command::new(env!("CARGO_BIN_EXE_arbor"));
    mkfs.args(["mkfs", "-q", "-t", "ffs", "-s", "256M", "x.img"]).current_dir(&dir);
    assert!(mkfs.status().unwrap().success());
    let image = dir.join("x.img");
    let device = FileDevice::open(&image, OpenMode::ReadOnly).unwrap();
    let mut bitmap = None;
    let found = &mut |s: Structure| bitmap = bitmap.or((s.kind == "bitmap").then_some(s.offset));
    arboretum::engine("ffs").unwrap().structures(&Devices::single(device), found).unwrap();
    let mut bytes = fs::read(&image).unwrap();
    bytes[bitmap.expect("a bitmap") as usize + 5] ^= 1;
    fs::write(&image, bytes).unwrap();

    let log = listen(&dir);
    run(
        &dir,
        r#"
        mkdir mnt
        trap '"$ARBOR" umount mnt' EXIT
        "$ARBOR" mount -q x.img mnt
        echo made > mnt/file
        "$ARBOR" sync mnt
        test "$(cat mnt/file)" = made
        "#,
    );
    let told = next(&log);
    assert!(told.contains("damage was met, `arbor fsck` should look: damaged cylinder group: "), "{told}");
}

/// Not a test: what [`a_panic_is_told_to_syslog`] runs.
#[test]
#[ignore = "it is run by another test"]
fn panics() {
    if std::env::var_os(PANICS).is_some() {
        arbor_fuse::log_to_syslog("x.img on mnt");
        arbor_fuse::log_panics();
        assert!(std::panic::catch_unwind(|| panic!("two\nlines")).is_err());
    }
}

#[test]
fn a_panic_is_told_to_syslog() {
    if !can_run() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().canonicalize().unwrap();
    let log = listen(&dir);
    run(&dir, r#""$TEST" panics --exact --ignored"#);
    let told = next(&log);
    assert!(told.contains("]: x.img on mnt: panic at "), "{told}");
    assert!(told.contains("log.rs:") && told.ends_with(r": two\nlines"), "{told}");
}
