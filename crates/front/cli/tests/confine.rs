//! What a server that `arbor mount` starts may still do, as the kernel tells it. Needs root and /dev/fuse, and says so
//! if they are not there.

#![cfg(target_os = "linux")]

mod common;
mod watch;

use common::root_can_mount;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use watch::{Watch, arbor, for_users};

const SYS_PTRACE: u64 = 1 << 19;
const SYS_ADMIN: u64 = 1 << 21;
const DAC: u64 = 1 << 1 | 1 << 2;
const NOBODY: u32 = 65534;

/// Of each thread of a process: its name, what it is capable of now and ever, and whether it may gain by programs it runs.
fn threads(pid: u32) -> BTreeMap<String, (u64, u64, bool)> {
    let mut all = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let task = task.unwrap().path();
        let Ok(status) = fs::read_to_string(task.join("status")) else { continue };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
            line.unwrap_or_else(|| panic!("{name} in {status}")).to_string()
        };
        let caps = |name: &str| u64::from_str_radix(&field(name), 16).unwrap();
        // Threads of one kind differ in their last number.
        let name = field("Name").trim_end_matches(|c: char| c.is_ascii_digit()).to_string();
        let found = (caps("CapEff"), caps("CapPrm"), field("NoNewPrivs") == "1");
        let before = all.insert(name.clone(), found);
        assert!(before.is_none_or(|before| before == found), "{name}: {before:?} {found:?}");
    }
    all
}

fn server_of(mnt: &Path) -> u32 {
    arbor_fuse::mounts().into_iter().find(|r| r.mountpoint == mnt).expect("a record of the mount").pid
}

/// Soft and hard, as the kernel shows them.
fn limit_of(pid: u32, name: &str) -> [String; 2] {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    [words[0].into(), words[1].into()]
}

fn has_no_core(pid: u32) {
    assert_eq!(limit_of(pid, "Max core file size"), ["0", "0"]);
}

#[test]
fn a_server_of_root_keeps_what_unmounting_takes() {
    if !root_can_mount() {
        return;
    }
    let _turn = watch::turn();
    // In a container root may have less to begin with.
    let had = threads(std::process::id()).into_values().next().expect("a thread").1;
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().canonicalize().unwrap();
    let mut watch = Watch::new(&place);
    let (image, mnt) = (place.join("image"), place.join("mnt"));
    for transport in ["auto", "classic"] {
        arbor(&["mkfs", "-q", "-f", "-s", "64M"], &[&image]).well();
        arbor(&["mount", "-q", "-o", &format!("transport={transport}")], &[&image, &mnt]).well();
        // More than one batch, so that the device's threads run.
        fs::write(mnt.join("f"), vec![1; 8 << 20]).unwrap();
        arbor(&["sync"], &[&mnt]).well();
        let pid = server_of(&mnt);
        has_no_core(pid);
        let all = threads(pid);
        for (name, (effective, permitted, is_bound)) in &all {
            assert!(is_bound, "{transport}: {name} may gain privileges");
            assert_eq!(effective, permitted, "{transport}: {name}");
            let kept = match name.as_str() {
                "arbor" | "arbor-signals" => SYS_ADMIN | DAC,
                "arbor-looker" => SYS_PTRACE,
                _ => 0,
            } & had;
            assert_eq!(*effective, kept, "{transport}: {name} of {all:x?}");
        }
        for name in ["arbor", "arbor-signals", "arbor-backgroun", "arbor-looker", "arbor-fuse-", "device-"] {
            assert!(all.contains_key(name), "{transport}: {name} of {:?}", all.keys());
        }
        if transport == "auto" {
            watch.signal(&mnt, rustix::process::Signal::TERM);
        } else {
            arbor(&["umount"], &[&mnt]).well();
        }
        assert!(!watch::is_mounted(&mnt), "{transport}");
        arbor(&["fsck", "-f", "-n"], &[&image]).well();
    }
    watch.end();
}

#[test]
fn a_server_has_a_memory_limit() {
    if !root_can_mount() {
        return;
    }
    let _turn = watch::turn();
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().canonicalize().unwrap();
    let mut watch = Watch::new(&place);
    let (image, mnt) = (place.join("image"), place.join("mnt"));
    arbor(&["mkfs", "-q", "-s", "64M"], &[&image]).well();
    let info = rustix::system::sysinfo();
    let quarter = info.totalram as u64 * u64::from(info.mem_unit) / 4;
    let had = limit_of(std::process::id(), "Max data size").map(|limit| limit.parse().unwrap_or(u64::MAX))[1];
    for (options, limit) in [
        ("rw", Some((1536 << 20) + quarter)),
        ("cache=8M", Some((544 << 20) + quarter)),
        ("cache=8M,memory=200M", Some(200 << 20)),
        ("memory=none", None),
    ] {
        arbor(&["mount", "-q", "-o", options], &[&image, &mnt]).well();
        let limit = limit.unwrap_or(u64::MAX).min(had);
        let shown = if limit == u64::MAX { "unlimited".into() } else { limit.to_string() };
        assert_eq!(limit_of(server_of(&mnt), "Max data size"), [shown.clone(), shown], "{options}");
        arbor(&["umount"], &[&mnt]).well();
    }
    let refused = arbor(&["mount", "-o", "memory=640M"], &[&image, &mnt]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.said.contains("option memory: with cache=256M at least 1152M"), "{refused:?}");
    watch.end();
}

/// The kernel ends no process for want of memory here: it gives no more, and the server ends by itself.
#[test]
fn a_server_without_memory_loses_nothing_that_was_synced() {
    if !root_can_mount() {
        return;
    }
    let _turn = watch::turn();
    for engine in arboretum::engines() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let mut watch = Watch::new(&place);
        let (image, mnt) = (place.join("image"), place.join("mnt"));
        arbor(&["mkfs", "-q", "-s", "512M", "-t", engine.name()], &[&image]).well();
        arbor(&["mount", "-q"], &[&image, &mnt]).well();
        fs::write(mnt.join("synced"), vec![7; 1 << 20]).unwrap();
        arbor(&["sync"], &[&mnt]).well();
        let pid = rustix::process::Pid::from_raw(server_of(&mnt) as i32);
        let most = Some(32 << 20);
        let less = rustix::process::Rlimit { current: most, maximum: most };
        rustix::process::prlimit(pid, rustix::process::Resource::Data, less).unwrap();
        let ended = (0..256).find_map(|n| fs::write(mnt.join(format!("f{n}")), vec![n as u8; 1 << 20]).err());
        let ended = ended.unwrap_or_else(|| panic!("{}: 256 MiB went into 32", engine.name()));
        assert!(
            matches!(ended.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED | libc::EIO | libc::ENOMEM)),
            "{}: {ended}",
            engine.name()
        );
        watch::umount_dead(&mnt);
        arbor(&["mount", "-q"], &[&image, &mnt]).well();
        assert_eq!(fs::read(mnt.join("synced")).unwrap(), vec![7; 1 << 20], "{}", engine.name());
        arbor(&["umount"], &[&mnt]).well();
        arbor(&["fsck", "-f", "-n"], &[&image]).well();
        watch.end();
    }
}

#[test]
fn a_server_of_a_user_gains_nothing_where_it_reads_the_image() {
    if !root_can_mount() {
        return;
    }
    let _turn = watch::turn();
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = for_users(Path::new(env!("CARGO_BIN_EXE_arbor")), dir.path());
    let place = dir.path().canonicalize().unwrap();
    let mut watch = Watch::new(&place);
    let (image, mnt) = (place.join("image"), place.join("mnt"));
    fs::create_dir(&mnt).unwrap();
    arbor(&["mkfs", "-q", "-s", "64M"], &[&image]).well();
    for path in [&image, &mnt] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let as_nobody = |words: &[&str], paths: &[&Path]| {
        let mut command = Command::new(&program);
        command.args(words).args(paths).uid(NOBODY).gid(NOBODY).env_remove("XDG_RUNTIME_DIR");
        command.stdin(Stdio::null()).output().unwrap()
    };
    let mounted = as_nobody(&["mount", "-q"], &[&image, &mnt]);
    if !mounted.status.success() {
        let why = String::from_utf8_lossy(&mounted.stderr).into_owned();
        assert!(why.contains("fusermount3"), "{why}");
        eprintln!("NOT RUN: a user cannot mount here: {why}");
        return;
    }
    let entry = arbor_fuse::mount_table().into_iter().find(|e| e.mountpoint == mnt).unwrap();
    assert_eq!(entry.source, image);
    let servers = fs::read_dir("/proc").unwrap().filter_map(|e| e.unwrap().file_name().to_str()?.parse::<u32>().ok());
    let is_it = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let name = mnt.as_os_str().as_encoded_bytes();
        line.windows(name.len()).any(|bytes| bytes == name)
    };
    let pid = servers.into_iter().find(is_it).expect("its server");
    has_no_core(pid);
    for (name, (effective, permitted, is_bound)) in threads(pid) {
        assert_eq!((effective, permitted), (0, 0), "{name}");
        assert!(is_bound || ["arbor", "arbor-signals"].contains(&name.as_str()), "{name} may gain privileges");
    }
    // It takes its mount off by a program that is set-uid.
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid as i32).unwrap(), rustix::process::Signal::TERM)
        .unwrap();
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while watch::is_mounted(&mnt) {
        assert!(std::time::Instant::now() < limit, "it stays mounted");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    watch.end();
}
