//! Volumes on block devices, mounted by the command: what root gets by a mount of type `fuseblk`, and
//! who is kept from the device when. Needs root, /dev/fuse and loop devices, and says so if they are
//! not there.

#![cfg(target_os = "linux")]

mod common;
mod watch;

use arbor_base::device::{Device, FileDevice, Kind, OpenMode, Request};
use common::root_can_mount;
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;
use std::time::Duration;
use watch::{Outcome, Watch, arbor, is_mounted, run};

/// A loop device of its own, and a directory to mount it on. In this order it goes: mounts, device, files.
struct Disk {
    watch: Watch,
    device: PathBuf,
    dir: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Disk {
    /// `None` where there are no loop devices.
    fn new(size: u64) -> Option<Disk> {
        let turn = watch::turn();
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("x.img");
        File::create(&image).unwrap().set_len(size).unwrap();
        let made = run("losetup", &[Path::new("-f"), Path::new("--show"), &image]);
        if made.code != Some(0) {
            eprintln!("NOT RUN: this test needs a loop device: {}", made.said);
            return None;
        }
        let device = PathBuf::from(made.out.trim());
        Some(Disk { watch: Watch::new(dir.path()), device, dir, _turn: turn })
    }

    /// With an empty volume on it.
    fn of(engine: &str) -> Option<Disk> {
        let disk = Disk::new(64 << 20)?;
        arbor(&["mkfs", "-q", "-t", engine], &[&disk.device]).well();
        Some(disk)
    }

    /// Where it is mounted.
    fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("mnt")
    }

    fn mount(&self, options: &[&str]) -> Outcome {
        self.mount_on(options, &self.root())
    }

    fn mount_on(&self, options: &[&str], dir: &Path) -> Outcome {
        let words: Vec<&str> = ["mount"].into_iter().chain(options.iter().copied()).collect();
        arbor(&words, &[&self.device, dir])
    }

    fn kind(&self) -> String {
        let found = run("findmnt", &[Path::new("-rno"), Path::new("FSTYPE,SOURCE"), &self.root()]);
        found.well().trim().to_string()
    }

    fn clean(&self) -> bool {
        let info: serde_json::Value = serde_json::from_str(arbor(&["info", "--json"], &[&self.device]).well()).unwrap();
        info["clean"].as_bool().unwrap()
    }

    /// Opens the device so that nobody else can have it, which fails while somebody has.
    fn hold(&self) -> std::io::Result<File> {
        let flags = rustix::fs::OFlags::EXCL.bits() as i32;
        OpenOptions::new().read(true).custom_flags(flags).open(&self.device)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.watch.end();
        run("losetup", &[Path::new("-d"), &self.device]);
    }
}

fn each_engine(test: impl Fn(&Disk)) {
    if !root_can_mount() {
        return;
    }
    for engine in arboretum::engines() {
        let Some(disk) = Disk::of(engine.name()) else { return };
        test(&disk);
    }
}

/// Makes files and directories of several sizes, and says what is there by a name.
fn fill(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut made = Vec::new();
    for i in 0..40usize {
        let dir = root.join(format!("d{}", i % 4));
        let _ = fs::create_dir(&dir);
        let data: Vec<u8> = (0..(i * 1777) % 90_000).map(|n| (n / 251 + i) as u8).collect();
        fs::write(dir.join("new"), &data).unwrap();
        let name = dir.join(format!("f{i}"));
        fs::rename(dir.join("new"), &name).unwrap();
        made.push((name.strip_prefix(root).unwrap().to_path_buf(), data));
    }
    made
}

fn look(root: &Path, made: &[(PathBuf, Vec<u8>)]) {
    for (name, data) in made {
        let found = fs::read(root.join(name)).unwrap_or_else(|e| panic!("{}: {e}", name.display()));
        assert!(found == *data, "{}: {} bytes of {}", name.display(), found.len(), data.len());
    }
}

#[test]
fn a_device_is_mounted_as_fuseblk() {
    each_engine(|disk| {
        let wanted = format!("fuseblk.arbor {}", disk.device.display());
        for options in [&[][..], &["-o", "ro"], &["-o", "transport=classic"], &["-o", "writeback_cache"]] {
            let said = disk.mount(options);
            said.well();
            assert_eq!(said.said, "", "{options:?}: nothing is to be said of it");
            assert_eq!(disk.kind(), wanted, "{options:?}");
            if options != ["-o", "ro"] {
                for way in ["remount,ro", "remount,rw"] {
                    run("mount", &[Path::new("-i"), Path::new("-o"), Path::new(way), &disk.root()]).well();
                    let written = fs::write(disk.root().join("f"), way);
                    assert_eq!(written.is_ok(), way == "remount,rw", "{options:?} {way}");
                }
            }
            arbor(&["umount"], &[&disk.root()]).well();
            disk.hold().expect("it is free");
        }
        arbor(&["fsck", "-n", "-f"], &[&disk.device]).well();
    });
}

#[test]
fn after_syncfs_a_killed_server_loses_nothing() {
    each_engine(|disk| {
        disk.mount(&[]).well();
        let root = disk.root();
        // syncfs(2) and sync(2).
        for (round, words) in [&[Path::new("-f"), &root][..], &[]].into_iter().enumerate() {
            let dir = root.join(format!("{round}"));
            fs::create_dir(&dir).unwrap();
            let made = fill(&dir);
            run("sync", words).well();
            disk.watch.signal(&root, Signal::KILL);
            // The dead mount on the same directory goes by itself.
            disk.mount(&[]).well();
            look(&dir, &made);
        }
        arbor(&["umount"], &[&root]).well();
        arbor(&["fsck", "-n", "-f"], &[&disk.device]).well();
    });
}

#[test]
fn umount_returns_when_all_is_written() {
    each_engine(|disk| {
        for round in 0..3 {
            disk.mount(&[]).well();
            let made = fill(&disk.root());
            fs::write(disk.root().join("big"), vec![round; 12 << 20]).unwrap();
            run("umount", &[&disk.root()]).well();
            // At once: nobody has waited for the server.
            let held = disk.hold().expect("the device is free");
            assert!(disk.clean(), "round {round}");
            let checked = arbor(&["fsck", "-n"], &[&disk.device]);
            checked.well();
            drop(held);
            disk.mount(&["-o", "ro"]).well();
            look(&disk.root(), &made);
            run("umount", &[&disk.root()]).well();
        }
    });
}

/// What is at the end released at once is all of the volume.
#[test]
fn umount_returns_when_the_log_is_free_too() {
    if !root_can_mount() {
        return;
    }
    let Some(disk) = Disk::new(64 << 20) else { return };
    let log = format!("log={}", disk.dir.path().join("log").display());
    arbor(&["mkfs", "-q", "-t", "yfs", "-o", &log], &[&disk.device]).well();
    for _ in 0..5 {
        disk.mount(&["-o", &log]).well();
        let made = fill(&disk.root());
        run("umount", &[&disk.root()]).well();
        arbor(&["fsck", "-n", "-o", &log], &[&disk.device]).well();
        disk.mount(&["-o", &log]).well();
        look(&disk.root(), &made);
        run("umount", &[&disk.root()]).well();
    }
}

#[test]
fn a_signal_unmounts_a_device() {
    each_engine(|disk| {
        disk.mount(&[]).well();
        let made = fill(&disk.root());
        // A file in use: the mount is taken off by name, ends after a while, and all is written.
        let open = File::open(disk.root().join("d1/f1")).unwrap();
        disk.watch.signal(&disk.root(), Signal::TERM);
        disk.hold().expect_err("the file in use keeps the device");
        drop(open);
        disk.hold().expect("it is free");
        assert!(disk.clean());
        disk.mount(&[]).well();
        look(&disk.root(), &made);
    });
}

#[test]
fn who_has_the_device_keeps_others_out() {
    each_engine(|disk| {
        let other = disk.dir.path().join("other");
        fs::create_dir(&other).unwrap();
        let refused = |options: &[&str], dir: &Path| {
            let said = disk.mount_on(options, dir);
            assert_eq!(said.code, Some(32), "{options:?}: {}", said.said);
            assert!(said.said.contains("in use"), "{options:?}: {}", said.said);
            assert!(!is_mounted(dir), "{options:?}");
            said.said
        };
        let held = disk.hold().unwrap();
        for options in [&[][..], &["-o", "ro"]] {
            refused(options, &other);
        }
        drop(held);
        disk.mount(&[]).well();
        disk.hold().expect_err("the mount has it");
        for options in [&[][..], &["-o", "ro"]] {
            let said = refused(options, &other);
            assert!(said.contains(&format!("mounted on {}", disk.root().display())), "{said}");
        }
        let said = arbor(&["mkfs", "-f"], &[&disk.device]);
        assert!(said.code != Some(0) && said.said.contains("in use"), "{}", said.said);
        fs::write(disk.root().join("f"), b"still here").unwrap();
        assert_eq!(fs::read(disk.root().join("f")).unwrap(), b"still here");
    });
}

#[test]
fn a_mounted_ext4_is_left_alone() {
    if !root_can_mount() {
        return;
    }
    let Some(disk) = Disk::new(16 << 20) else { return };
    let at = disk.dir.path().join("ext4");
    fs::create_dir(&at).unwrap();
    let made = run("mkfs.ext4", &[Path::new("-q"), &disk.device]);
    if made.code != Some(0) || run("mount", &[Path::new("-text4"), &disk.device, &at]).code != Some(0) {
        eprintln!("NOT RUN: this test needs mkfs.ext4 and a kernel that mounts it");
        return;
    }
    fs::write(at.join("f"), b"ext4").unwrap();
    for (words, paths) in [(&["mkfs", "-f"][..], vec![&*disk.device]), (&["mount"], vec![&disk.device, &disk.root()])] {
        let said = arbor(words, &paths);
        assert!(said.code != Some(0) && said.said.contains("in use"), "{words:?}: {}", said.said);
    }
    run("umount", &[&at]).well();
    run("mount", &[Path::new("-text4"), &disk.device, &at]).well();
    assert_eq!(fs::read(at.join("f")).unwrap(), b"ext4");
    run("umount", &[&at]).well();
}

/// Several at once, half of them by another name of the device, which does not share the lock.
#[test]
fn of_mounts_at_once_one_is_made() {
    each_engine(|disk| {
        let number = fs::metadata(&disk.device).unwrap().rdev();
        let (major, minor) = (rustix::fs::major(number).to_string(), rustix::fs::minor(number).to_string());
        let node = disk.dir.path().join("node");
        run("mknod", &[&node, Path::new("b"), Path::new(&major), Path::new(&minor)]).well();
        let node = if File::open(&node).is_ok() { node } else { disk.device.clone() };
        for round in 0..4 {
            let dirs: Vec<PathBuf> = (0..4).map(|i| disk.root().with_file_name(format!("m{i}"))).collect();
            let started: Vec<_> = dirs
                .iter()
                .enumerate()
                .map(|(i, dir)| {
                    let device = if i % 2 == 0 { &disk.device } else { &node };
                    watch::start(env!("CARGO_BIN_EXE_arbor"), &[Path::new("mount"), device, dir])
                })
                .collect();
            let ended: Vec<Outcome> = started.into_iter().map(watch::end).collect();
            let mounted: Vec<&PathBuf> = dirs.iter().filter(|dir| is_mounted(dir)).collect();
            for (outcome, dir) in ended.iter().zip(&dirs) {
                let fine = if is_mounted(dir) { outcome.code == Some(0) } else { outcome.said.contains("in use") };
                assert!(fine, "round {round}: {:?} {}", outcome.code, outcome.said);
            }
            // By two names none may win, never two.
            assert!(mounted.len() <= 1, "round {round}: {mounted:?}");
            for dir in mounted {
                fs::write(dir.join(format!("f{round}")), b"x").unwrap();
                arbor(&["umount"], &[dir]).well();
            }
            arbor(&["fsck", "-n", "-f"], &[&disk.device]).well();
        }
    });
}

#[test]
fn a_device_is_free_when_the_mount_of_a_killed_server_is_off() {
    each_engine(|disk| {
        let other = disk.dir.path().join("other");
        for way in [&["-l"][..], &[]] {
            disk.mount(&[]).well();
            disk.watch.signal(&disk.root(), Signal::KILL);
            let said = disk.mount_on(&[], &other);
            let help = format!("`arbor umount {}`", disk.root().display());
            assert!(said.code == Some(32) && said.said.contains(&help), "{}", said.said);
            let root = disk.root();
            match way {
                [] => watch::umount_dead(&root),
                way => drop(run("umount", &[Path::new(way[0]), &root]).well()),
            }
            disk.hold().expect("it is free");
        }
    });
}

#[test]
fn readers_share_a_device() {
    each_engine(|disk| {
        disk.mount(&[]).well();
        let made = fill(&disk.root());
        arbor(&["umount"], &[&disk.root()]).well();
        let other = disk.root().with_file_name("other");
        disk.mount(&["-o", "ro"]).well();
        let second = disk.mount_on(&["-o", "ro"], &other);
        second.well();
        assert!(second.said.contains("no mount of type fuseblk"), "{}", second.said);
        for dir in [&disk.root(), &other] {
            look(dir, &made);
        }
        disk.hold().expect_err("the first mount has it");
        arbor(&["umount"], &[&disk.root()]).well();
        look(&other, &made);
        arbor(&["umount"], &[&other]).well();
        disk.hold().expect("it is free");
    });
}

/// In a user namespace the kernel mounts no block devices.
#[test]
fn where_fuseblk_is_refused_that_is_said() {
    each_engine(|disk| {
        let script = format!(
            "set -e; {arbor} mount {device} {root}; findmnt -rno FSTYPE {root}; echo x > {root}/f; {arbor} umount {root}",
            arbor = env!("CARGO_BIN_EXE_arbor"),
            device = disk.device.display(),
            root = disk.root().display()
        );
        fs::create_dir(disk.root()).unwrap();
        let words = ["-rm", "--propagation", "private", "sh", "-c", &script].map(Path::new);
        if run("unshare", &[Path::new("-rm"), Path::new("true")]).code != Some(0) {
            eprintln!("NOT RUN: this test needs user namespaces");
            return;
        }
        let said = run("unshare", &words);
        said.well();
        assert!(said.out.contains("fuse.arbor\n"), "{}", said.out);
        assert!(said.said.contains("no mount of type fuseblk (") && said.said.contains("arbor sync"), "{}", said.said);
        disk.hold().expect("it is free");
        arbor(&["fsck", "-n", "-f"], &[&disk.device]).well();
    });
}

/// Whoever waits for the server holds the mount meanwhile, and must not be waited for by the server.
#[test]
fn nobody_hangs_who_syncs_while_others_write() {
    each_engine(|disk| {
        let root = disk.root();
        let shell = |script: &str| {
            let script = script.replace("ROOT", &root.display().to_string());
            watch::start("sh", &[Path::new("-c"), Path::new(&script)])
        };
        let device = disk.device.display();
        let scripts = [
            "for i in $(seq 150); do head -c 70000 /dev/zero > ROOT/a$i && mv ROOT/a$i ROOT/b$i || exit 1; done".into(),
            "for i in $(seq 150); do mkdir ROOT/d$i && rmdir ROOT/d$i || exit 1; done".into(),
            "for i in $(seq 40); do sync -f ROOT || exit 1; done".into(),
            "for i in $(seq 40); do sync ROOT || exit 1; done".into(),
            format!("for i in $(seq 10); do blockdev --flushbufs {device} || exit 1; done"),
        ];
        for killed in [false, true] {
            disk.mount(&[]).well();
            let started: Vec<_> = scripts.iter().map(|script: &String| shell(script)).collect();
            if killed {
                std::thread::sleep(Duration::from_millis(150));
                disk.watch.signal(&root, Signal::KILL);
            }
            for outcome in started.into_iter().map(watch::end) {
                assert!(killed || outcome.code == Some(0), "{}: {}", outcome.words, outcome.said);
            }
            match killed {
                true => watch::umount_dead(&root),
                false => drop(run("umount", &[&root]).well()),
            }
            disk.hold().expect("it is free");
            arbor(&["fsck", "-p"], &[&disk.device]);
            arbor(&["fsck", "-n", "-f"], &[&disk.device]).well();
        }
    });
}

/// Between our hands and the kernel's somebody else may take the device.
#[test]
fn what_was_lost_is_not_written() {
    if !root_can_mount() {
        return;
    }
    let Some(disk) = Disk::new(1 << 20) else { return };
    let open = || FileDevice::open(&disk.device, OpenMode::ReadWrite).unwrap();
    let fails = || Err::<(), _>(std::io::Error::from(std::io::ErrorKind::InvalidInput));
    let device = open();
    let claim = device.claim().unwrap();
    assert!(claim.hand_over(fails).is_err());
    disk.hold().expect_err("it was taken back");
    device.write_at(Kind::Super, 0, &[1; 512]).unwrap();
    claim.hand_over(|| Ok(())).unwrap();
    let other = disk.hold().expect("the kernel was told to have it");
    claim.take_back();
    drop(other);
    claim.take_back();
    disk.hold().expect_err("it was taken back");
    let mut other = None;
    let lost = claim.hand_over(|| {
        other = Some(disk.hold()?);
        fails()
    });
    assert_eq!(lost.unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    assert!(device.write_at(Kind::Super, 0, &[2; 512]).is_err());
    drop(other);
    assert!(device.write_at(Kind::Super, 0, &[3; 512]).is_err(), "others may have written to it");
    drop(device);
    let mut found = [0; 512];
    open().read_at(Kind::Super, 0, &mut found).unwrap();
    assert_eq!(found, [1; 512]);
}

/// The claim is another open file than that of the I/O, which makes a difference to Linux.
#[test]
fn what_waits_to_be_written_may_be_discarded() {
    if !root_can_mount() {
        return;
    }
    let Some(disk) = Disk::new(1 << 20) else { return };
    let device = FileDevice::open(&disk.device, OpenMode::ReadWrite).unwrap();
    let discard = || device.submit(vec![Request::discard(Kind::Data, 65536, 65536)]).wait_all();
    device.write_at(Kind::Data, 65536, &[7; 65536]).unwrap();
    discard().unwrap();
    device.flush().unwrap();
    discard().unwrap();
    let mut found = [1; 4096];
    device.read_at(Kind::Data, 65536, &mut found).unwrap();
    assert_eq!(found, [0; 4096], "what was written is gone");
}

#[test]
fn a_loop_device_and_its_file_have_one_owner() {
    if !root_can_mount() {
        return;
    }
    let Some(disk) = Disk::of("yfs") else { return };
    let (image, other) = (disk.dir.path().join("x.img"), disk.dir.path().join("other"));
    let refused = |outcome: Outcome| {
        assert!(outcome.code != Some(0) && outcome.said.contains("in use"), "{:?} {}", outcome.code, outcome.said);
    };
    disk.mount(&[]).well();
    refused(arbor(&["mount"], &[&image, &other]));
    refused(arbor(&["mkfs", "-f"], &[&image]));
    refused(arbor(&["fsck", "-p"], &[&image]));
    arbor(&["umount"], &[&disk.root()]).well();
    arbor(&["mount"], &[&image, &other]).well();
    refused(disk.mount(&[]));
    arbor(&["umount"], &[&other]).well();
    disk.mount(&[]).well();
    arbor(&["umount"], &[&disk.root()]).well();
    arbor(&["fsck", "-n", "-f"], &[&image]).well();
}

#[test]
fn the_file_behind_a_loop_device_is_overwritten_by_nothing() {
    if !root_can_mount() {
        return;
    }
    let Some(disk) = Disk::of("yfs") else { return };
    let (file, behind) = (disk.dir.path().join("f"), disk.dir.path().join("x.img"));
    fs::write(&file, "kept").unwrap();
    arbor(&["put"], &[&disk.device, &file, Path::new("/")]).well();
    for out in [
        arbor(&["get"], &[&disk.device, Path::new("f"), &behind]),
        arbor(&["tar", "--export"], &[&behind, &disk.device]),
        arbor(&["tar", "--export"], &[&disk.device, &disk.device]),
        arbor(&["tar", "--export"], &[&disk.device, &behind]),
        arbor(&["tar", "--import"], &[&behind, &disk.device]),
        arbor(&["map", "-o"], &[&disk.device, &behind]),
    ] {
        assert!(out.code == Some(1) && out.said.contains("the volume itself is in this file"), "{}", out.said);
    }
    let out = arbor(&["get"], &[&behind, Path::new("f"), &disk.device]);
    assert!(out.code == Some(1) && out.said.contains("no regular file"), "{}", out.said);
    arbor(&["get"], &[&disk.device, Path::new("f"), &disk.dir.path().join("out")]).well();
    assert_eq!(fs::read(disk.dir.path().join("out")).unwrap(), b"kept");
}
