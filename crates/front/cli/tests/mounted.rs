//! What a mount promises, tried on real mounts by the command. Where no mount can be made, each
//! test says so and does nothing. `cargo xtask show` tries the same at full scale.

#![cfg(target_os = "linux")]

mod common;
mod watch;

use common::{can_mount, root_can_mount};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use watch::Watch;

/// Runs `arbor`, which must succeed.
fn arbor(args: &[&str], paths: &[&Path]) -> Vec<u8> {
    let out = Command::new(env!("CARGO_BIN_EXE_arbor")).args(args).args(paths).stdin(Stdio::null()).output().unwrap();
    assert!(out.status.success(), "arbor {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

/// Runs `arbor`, which must fail; gives its exit code and what it said.
fn refused(args: &[&str], paths: &[&Path]) -> (Option<i32>, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_arbor")).args(args).args(paths).stdin(Stdio::null()).output().unwrap();
    assert!(!out.status.success(), "arbor {args:?}");
    (out.status.code(), String::from_utf8(out.stderr).unwrap())
}

/// Many names take their time, and tests run beside one another.
const LIMIT: Duration = Duration::from_secs(300);

/// An image with its mount, taken off when the value goes.
struct Volume {
    watch: Watch,
    dir: tempfile::TempDir,
}

impl Volume {
    /// Without the image.
    fn empty() -> Volume {
        let dir = tempfile::tempdir().unwrap();
        Volume { watch: Watch::lasting(dir.path(), LIMIT), dir }
    }

    fn new(engine: &str, size: &str) -> Volume {
        let volume = Volume::empty();
        arbor(&["mkfs", "-q", "-t", engine, "-s", size], &[&volume.image()]);
        volume.mount();
        volume
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("x.img")
    }

    /// Where it is mounted.
    fn root(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn engine(&self) -> String {
        let info: serde_json::Value = serde_json::from_slice(&arbor(&["info", "--json"], &[&self.image()])).unwrap();
        info["engine"].as_str().unwrap().to_string()
    }

    fn mount(&self) {
        arbor(&["mount"], &[&self.image(), &self.root()]);
    }

    fn umount(&self) {
        arbor(&["umount"], &[&self.root()]);
    }

    fn is_mounted(&self) -> bool {
        watch::is_mounted(&self.dir.path().canonicalize().unwrap().join("mnt"))
    }

    /// Sends a signal to the server and waits for its end.
    fn signal_server(&self, signal: Signal) {
        self.watch.signal(&self.dir.path().canonicalize().unwrap().join("mnt"), signal);
    }

    fn check(&self) {
        arbor(&["fsck", "-n", "-f"], &[&self.image()]);
    }
}

/// Runs a test once for each engine there is.
fn each_engine(size: &str, test: impl Fn(&Volume)) {
    if !can_mount() {
        return;
    }
    for engine in arboretum::engines() {
        test(&Volume::new(engine.name(), size));
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

#[test]
fn stats_of_a_mount() {
    if !can_mount() {
        return;
    }
    let volume = Volume::new("yfs", "64M");
    fs::write(volume.root().join("f"), [7; 5000]).unwrap();
    let text = String::from_utf8(arbor(&["stats"], &[&volume.root()])).unwrap();
    let number = |group: &str, name: &str| {
        let line = text.lines().find(|l| l.split_whitespace().take(2).eq([group, name])).expect(name);
        line.split_whitespace().last().unwrap().replace(',', "").parse::<u64>().unwrap()
    };
    assert_eq!(number("mount", "written_bytes"), 5000);
    assert!(number("volume", "cache_dirty_bytes") >= 5000);
    let json: serde_json::Value = serde_json::from_slice(&arbor(&["stats", "--json"], &[&volume.root()])).unwrap();
    assert_eq!(json["mount"]["written_bytes"], 5000);
    assert!(refused(&["stats"], &[Path::new("/")]).1.contains("not on a mount of arbor"));
    volume.umount();
}

#[test]
fn what_was_fsynced_survives_the_death_of_the_server() {
    each_engine("512M", |volume| {
        let content = |round: u64, i: u64| {
            let mut random = Random(round << 32 | i);
            let len = [0, 7, 900, 5000, 70_000][i as usize % 5];
            random.bytes(len)
        };
        let mut synced = Vec::new();
        for round in 0..3 {
            let root = volume.root();
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let mut done = Vec::new();
                    for i in 0.. {
                        let name = format!("{round}/{}/{i}", i % 7);
                        let path = root.join(&name);
                        let write = || {
                            fs::create_dir_all(path.parent().unwrap())?;
                            // Not synced, and free to be lost.
                            fs::write(path.with_extension("unsynced"), [1; 3000])?;
                            let mut file = File::create(&path)?;
                            file.write_all(&content(round, i))?;
                            file.sync_all()
                        };
                        if write().is_err() {
                            break;
                        }
                        done.push((round, i, name));
                    }
                    done
                });
                std::thread::sleep(Duration::from_millis(300 + 300 * round));
                volume.signal_server(Signal::KILL);
                synced.extend(writer.join().unwrap());
            });
            // The server's end takes a moment on a busy machine.
            let dead = (0..500).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                fs::write(root.join("after"), "").is_err()
            });
            assert!(dead, "the dead mount answers");
            volume.mount();
            for (round, i, name) in &synced {
                let found = fs::read(root.join(name)).map(|found| found == content(*round, *i));
                let last = synced.last();
                assert!(matches!(found, Ok(true)), "{}: {name} was fsynced: {found:?}; last {last:?}", volume.engine());
            }
        }
        assert!(synced.len() > 3, "only {} files were fsynced", synced.len());
        volume.umount();
        volume.check();
    });
}

#[test]
fn a_directory_of_twenty_thousand_names() {
    const COUNT: usize = 20_000;
    each_engine("512M", |volume| {
        let dir = volume.root().join("many");
        fs::create_dir(&dir).unwrap();
        for i in 0..COUNT {
            File::create_new(dir.join(format!("file-{i:05}"))).unwrap();
        }
        volume.umount();
        volume.mount();
        let names: Vec<String> =
            fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        let different: BTreeSet<&String> = names.iter().collect();
        assert_eq!((names.len(), different.len()), (COUNT, COUNT));
        let mut random = Random(1);
        for _ in 0..1000 {
            assert!(dir.join(format!("file-{:05}", random.below(COUNT as u64))).exists());
        }
        assert!(!dir.join("file-20000").exists());
        for name in &names[..COUNT / 2] {
            fs::remove_file(dir.join(name)).unwrap();
        }
        volume.umount();
        volume.check();
        volume.mount();
        let left: BTreeSet<String> =
            fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(left, names[COUNT / 2..].iter().cloned().collect());
        fs::remove_dir_all(&dir).unwrap();
        volume.umount();
        volume.check();
    });
}

#[test]
fn a_tebibyte_lies_in_a_small_file() {
    each_engine("1T", |volume| {
        let on_host = || fs::metadata(volume.image()).unwrap().blocks() * 512;
        assert!(on_host() < 64 << 20, "{} bytes on the host", on_host());
        let path = volume.root().join("sparse");
        let file = File::create(&path).unwrap();
        // A file of DualFS ends at 513 GiB.
        let far_at = if volume.engine() == "dualfs" { 500u64 << 30 } else { 700 << 30 };
        file.write_all_at(b"far", far_at).unwrap();
        file.write_all_at(&[7; 1 << 20], 3).unwrap();
        file.sync_all().unwrap();
        drop(file);
        volume.umount();
        volume.mount();
        let file = File::open(&path).unwrap();
        assert_eq!(file.metadata().unwrap().len(), far_at + 3);
        let mut far = [1; 8];
        file.read_exact_at(&mut far, far_at - 5).unwrap();
        assert_eq!(&far, b"\0\0\0\0\0far");
        let mut near = vec![0; (1 << 20) + 6];
        file.read_exact_at(&mut near, 0).unwrap();
        assert!(near[3..(1 << 20) + 3].iter().all(|&b| b == 7));
        assert_eq!((&near[..3], &near[(1 << 20) + 3..]), (&[0; 3][..], &[0; 3][..]));
        drop(file);
        volume.umount();
        volume.check();
        assert!(on_host() < 72 << 20, "{} bytes on the host", on_host());
    });
}

#[test]
fn random_reads_writes_and_truncations_agree_with_a_vector() {
    const OPERATIONS: usize = 20_000;
    const LEN: u64 = 256 << 10;
    each_engine("64M", |volume| {
        let path = volume.root().join("file");
        let open = || OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path).unwrap();
        let mut file = open();
        let mut model: Vec<u8> = Vec::new();
        let mut random = Random(42);
        for k in 0..OPERATIONS {
            let at = random.below(LEN);
            let len = random.below(if k % 4 == 0 { 65_536 } else { 5000 }).min(LEN - at) as usize;
            match random.below(100) {
                0..=39 => {
                    let mut found = vec![0; len];
                    let n = file.read_at(&mut found, at).unwrap();
                    let from = model.len().min(at as usize);
                    let expected = &model[from..model.len().min(from + len)];
                    assert!(n <= expected.len() && found[..n] == expected[..n], "operation {k}: read {len} at {at}");
                    assert!(n == expected.len(), "operation {k}: {n} bytes read of {}", expected.len());
                }
                40..=84 => {
                    let bytes = vec![k as u8 | 1; len];
                    file.write_all_at(&bytes, at).unwrap();
                    let end = at as usize + len;
                    if len > 0 && model.len() < end {
                        model.resize(end, 0);
                    }
                    if len > 0 {
                        model[at as usize..end].copy_from_slice(&bytes);
                    }
                }
                85..=97 => {
                    file.set_len(at).unwrap();
                    model.resize(at as usize, 0);
                }
                98 => {
                    drop(file);
                    file = open();
                }
                _ if k % 20 == 0 => file.sync_data().unwrap(),
                _ => assert_eq!(file.metadata().unwrap().len(), model.len() as u64, "operation {k}"),
            }
            if k % 5000 == 4999 {
                drop(file);
                volume.umount();
                volume.mount();
                assert!(fs::read(&path).unwrap() == model, "after another mount at operation {k}");
                file = open();
            }
        }
        drop(file);
        volume.umount();
        volume.check();
    });
}

#[test]
fn sigterm_unmounts_cleanly() {
    each_engine("64M", |volume| {
        fs::create_dir(volume.root().join("dir")).unwrap();
        fs::write(volume.root().join("dir/file"), "kept").unwrap();
        volume.signal_server(Signal::TERM);
        assert!(!volume.is_mounted());
        assert_eq!(arbor(&["cat"], &[&volume.image(), Path::new("dir/file")]), b"kept");
        volume.check();
    });
}

#[test]
fn a_mount_that_fails_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "").unwrap();
    for (args, place, code, want) in [
        (&["mount", "--new", "64M"][..], "file", 32, "file: not a directory"),
        (&["mount", "--new", "64M"], "file/below", 32, "Not a directory"),
        (&["mount", "--new", "64K"], "a", 32, "is too small"),
        (&["mount", "--new", "64M"], "a/b", 32, "a/b: the mount point does not exist; it would be made if "),
        (&["mount", "--new", "64M", "-o", "nosuch"], "a", 1, "`arbor mount --help` lists them"),
        (&["mount"], "a", 32, "`arbor mount --new SIZE` makes it"),
    ] {
        let (got, said) = refused(args, &[&at("x.img"), &at(place)]);
        assert_eq!(got, Some(code), "{said}");
        assert!(said.contains(want) && said.lines().count() == 1, "{args:?}: {said}");
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["file"]);
    }
}

#[test]
fn what_to_do_after_a_crash_is_what_helps() {
    each_engine("64M", |volume| {
        fs::write(volume.root().join("file"), "kept").unwrap();
        arbor(&["sync"], &[&volume.root()]);
        volume.signal_server(Signal::KILL);
        if volume.engine() == "evergreen" {
            // A commit leaves nothing to recover.
            assert_eq!(arbor(&["ls"], &[&volume.image()]), b"file\n");
        } else {
            let (_, said) = refused(&["ls"], &[&volume.image()]);
            let advice = format!("`arbor fsck -p {}`", volume.image().display());
            assert!(said.contains(&advice) && said.contains("needs recovery") && !said.contains("log"), "{said}");
        }
        let state = String::from_utf8(arbor(&["info"], &[&volume.image()])).unwrap();
        assert!(state.contains("not unmounted cleanly") && !state.contains("in use"), "{state}");
        assert_eq!(refused(&["fsck", "-p"], &[&volume.image()]).0, Some(1), "corrected");
        assert_eq!(arbor(&["cat"], &[&volume.image(), Path::new("file")]), b"kept");
        watch::umount_dead(&volume.root());
    });
}

/// What is said leads out of it.
#[test]
fn a_damaged_root_is_refused_with_what_mends_it() {
    if !can_mount() {
        return;
    }
    let volume = Volume::new("evergreen", "64M");
    fs::write(volume.root().join("file"), "kept").unwrap();
    volume.umount();
    let map = arbor(&["dump", "--json"], &[&volume.image(), Path::new("map"), Path::new("2")]);
    let map: serde_json::Value = serde_json::from_slice(&map).unwrap();
    let block = map["blocks"][0]["block"].as_u64().unwrap();
    let image = File::options().write(true).open(volume.image()).unwrap();
    image.write_all_at(&[0xa5; 512], block * 4096).unwrap();
    let (code, said) = refused(&["mount"], &[&volume.image(), &volume.root()]);
    let advice = format!("the root directory is damaged; `arbor fsck {}` tells", volume.image().display());
    assert!(code == Some(32) && said.contains(&advice), "{code:?} {said}");
    assert_eq!(refused(&["fsck", "-p"], &[&volume.image()]).0, Some(5), "recovered, and more is to be mended");
    assert_eq!(refused(&["fsck", "-y"], &[&volume.image()]).0, Some(1));
    volume.mount();
    let found: Vec<_> = fs::read_dir(volume.root().join("lost+found")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(fs::read_to_string(&found[0]).unwrap(), "kept");
}

#[test]
fn the_checker_says_that_a_volume_was_not_unmounted() {
    if !can_mount() {
        return;
    }
    let ways = [("yfs", "rw"), ("lfs", "rw"), ("ffs", "keep=journal"), ("ffs", "keep=softupdates")];
    for (engine, options) in ways.into_iter().chain([("ffs", "keep=sync"), ("ffs", "keep=async")]) {
        let volume = Volume::empty();
        arbor(&["mkfs", "-q", "-t", engine, "-s", "64M"], &[&volume.image()]);
        arbor(&["mount", "-o", options], &[&volume.image(), &volume.root()]);
        arbor(&["sync"], &[&volume.root()]);
        volume.signal_server(Signal::KILL);
        watch::umount_dead(&volume.root());
        let fsck = |args: &[&str]| {
            let out = Command::new(env!("CARGO_BIN_EXE_arbor")).arg("fsck").args(args).arg(volume.image()).output();
            let out = out.unwrap();
            (out.status.code(), String::from_utf8(out.stdout).unwrap())
        };
        let (_, said) = fsck(&[]);
        assert!(said.contains("not unmounted cleanly, needs recovery"), "{engine} {options}: {said}");
        assert!(!said.contains(": clean") && !said.contains(" log "), "{engine} {options}: {said}");
        let (_, report) = fsck(&["--json"]);
        assert!(report.contains("\"clean\": false") && report.contains("\"unclean\": true"), "{report}");
        let (code, said) = fsck(&["-p"]);
        assert!(code == Some(1) && said.contains("not unmounted cleanly, recovered\n"), "{engine} {options}: {said}");
        assert!(said.contains(": clean") && !said.contains(" log "), "{engine} {options}: {said}");
        assert!(fsck(&[]).1.contains("marked clean"));
    }
}

#[test]
fn a_volume_that_was_not_unmounted_is_looked_at_and_stays_as_it_is() {
    each_engine("64M", |volume| {
        let (file, image) = (volume.root().join("file"), volume.image());
        fs::write(&file, "durable").unwrap();
        File::open(&file).unwrap().sync_all().unwrap();
        volume.signal_server(Signal::KILL);
        let before = fs::read(&image).unwrap();
        let (code, said) = refused(&["mount", "-o", "norecovery"], &[&image, &volume.root()]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("norecovery: it needs ro"), "{said}");
        if volume.engine() == "evergreen" {
            // Nothing is left to recover.
            arbor(&["mount", "-q", "-o", "ro"], &[&image, &volume.root()]);
            assert_eq!(fs::read_to_string(&file).unwrap(), "durable");
            volume.umount();
        } else {
            refused(&["mount", "-o", "ro"], &[&image, &volume.root()]);
        }
        arbor(&["mount", "-q", "-o", "ro,norecovery"], &[&image, &volume.root()]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "durable");
        assert!(fs::write(&file, "x").is_err());
        volume.umount();
        if volume.engine() == "evergreen" {
            let out = Command::new(env!("CARGO_BIN_EXE_arbor")).arg("dump").arg(&image).arg("master").output().unwrap();
            let master = String::from_utf8(out.stdout).unwrap();
            let seq = master.lines().find_map(|line| line.strip_prefix("seq ")).unwrap().trim();
            arbor(&["mount", "-q", "-o", &format!("ro,norecovery,commit_at={seq}")], &[&image, &volume.root()]);
            assert_eq!(fs::read_to_string(&file).unwrap(), "durable", "commit {seq}");
            volume.umount();
        }
        assert!(fs::read(&image).unwrap() == before, "{}: something was written", volume.engine());
        volume.mount();
        assert_eq!(fs::read_to_string(&file).unwrap(), "durable");
        volume.umount();
        arbor(&["mount", "-q", "-o", "ro,norecovery"], &[&image, &volume.root()]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "durable", "also one that was unmounted");
    });
}

/// A volume whose log is damaged is refused; before a repair one can look at what it would leave.
#[test]
fn what_a_repair_would_leave_is_looked_at_and_the_image_stays_as_it_is() {
    each_engine("64M", |volume| {
        if volume.engine() != "yfs" {
            return;
        }
        let image = volume.image();
        let file = |n: u32| volume.root().join(format!("file {n}"));
        for n in 0..8 {
            fs::write(file(n), format!("durable {n}")).unwrap();
            File::open(file(n)).unwrap().sync_all().unwrap();
        }
        volume.signal_server(Signal::KILL);
        let mut bytes = fs::read(&image).unwrap();
        let records = (0..bytes.len()).step_by(512).filter(|at| bytes[*at..].starts_with(b"yREC"));
        let first =
            records.min_by_key(|at| bytes[at + 16..at + 24].iter().rev().copied().collect::<Vec<u8>>()).unwrap();
        bytes[first + 100] ^= 9;
        fs::write(&image, &bytes).unwrap();
        let (_, said) = refused(&["mount"], &[&image, &volume.root()]);
        assert!(said.contains("log record"), "{said}");
        arbor(&["mount", "-q", "-o", "ro,norecovery"], &[&image, &volume.root()]);
        // It may have lost its name with the record.
        let found = |dir: &Path| fs::read_dir(dir).map_or(Vec::new(), |all| all.map(|e| e.unwrap().path()).collect());
        let all = [found(&volume.root()), found(&volume.root().join("lost+found"))].concat();
        assert!(all.iter().any(|path| fs::read_to_string(path).is_ok_and(|text| text == "durable 7")), "{all:?}");
        volume.umount();
        assert!(fs::read(&image).unwrap() == bytes, "something was written");
        fs::remove_file(&image).unwrap();
    });
}

#[test]
fn changes_survive_the_death_of_the_server_where_sync_says_so() {
    let change = |root: &Path| {
        fs::write(root.join("file"), "contents").unwrap();
        fs::write(root.join("moves"), "").unwrap();
        fs::write(root.join("goes"), "").unwrap();
        fs::create_dir(root.join("dir")).unwrap();
        std::os::unix::fs::symlink("file", root.join("symlink")).unwrap();
        fs::hard_link(root.join("file"), root.join("link")).unwrap();
        fs::rename(root.join("moves"), root.join("dir/moved")).unwrap();
        fs::remove_file(root.join("goes")).unwrap();
        fs::set_permissions(root.join("file"), std::os::unix::fs::PermissionsExt::from_mode(0o751)).unwrap();
    };
    each_engine("64M", |volume| {
        let ways: &[&str] = match volume.engine().as_str() {
            "ffs" => &["sync,keep=softupdates", "dirsync,keep=journal", "sync,keep=journal", "sync,keep=sync"],
            _ => &["sync", "dirsync"],
        };
        for (n, way) in ways.iter().enumerate() {
            volume.umount();
            arbor(&["mount", "-q", "-o", way], &[&volume.image(), &volume.root()]);
            let dir = volume.root().join(n.to_string());
            fs::create_dir(&dir).unwrap();
            change(&dir);
            volume.signal_server(Signal::KILL);
            volume.mount();
            let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            assert_eq!(names, ["dir", "file", "link", "symlink"], "{way}");
            assert!(dir.join("dir/moved").exists(), "{way}");
            assert_eq!(fs::metadata(dir.join("file")).unwrap().nlink(), 2, "{way}");
            assert_eq!(fs::read_link(dir.join("symlink")).unwrap(), Path::new("file"), "{way}");
            if way.starts_with("sync") {
                assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "contents", "{way}");
                assert_eq!(fs::metadata(dir.join("file")).unwrap().mode() & 0o777, 0o751, "{way}");
            }
        }
        volume.umount();
        volume.check();
    });
}

#[test]
fn how_requests_come_is_said() {
    each_engine("64M", |volume| {
        for (options, said) in [("transport=classic", "requests come from /dev/fuse\n"), ("transport=auto", "")] {
            volume.umount();
            let out = arbor(&["mount", "-v", "-o", options], &[&volume.image(), &volume.root()]);
            let out = String::from_utf8(out).unwrap();
            assert!(out.ends_with(said) && out.contains("requests come "), "{out}");
            fs::write(volume.root().join("f"), "x").unwrap();
            let stats = String::from_utf8(arbor(&["stats"], &[&volume.root()])).unwrap();
            assert_eq!(out.contains("by io_uring"), stats.contains("requests_by_ring"), "{out}{stats}");
        }
    });
}

#[test]
fn times_of_access_are_stored() {
    each_engine("64M", |volume| {
        let file = volume.root().join("file");
        let times = || {
            let m = fs::metadata(&file).unwrap();
            ((m.atime(), m.atime_nsec()), (m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec()))
        };
        fs::write(&file, "x").unwrap();
        let written = times();
        for options in ["noatime", "relatime", "strictatime,lazytime"] {
            volume.umount();
            arbor(&["mount", "-q", "-o", options], &[&volume.image(), &volume.root()]);
            let before = times();
            assert_eq!(fs::read_to_string(&file).unwrap(), "x");
            let after = times();
            assert_eq!(after.0 > before.0, options != "noatime", "{options}");
            assert_eq!((after.1, after.2), (written.1, written.2), "{options}: a read is no change");
            volume.umount();
            volume.mount();
            assert_eq!(times(), after, "{options}");
        }
        volume.umount();
        volume.check();
    });
}

#[test]
fn a_mount_is_cleaned_while_it_is_used() {
    each_engine("64M", |volume| {
        let (root, is_lfs) = (volume.root(), volume.engine() == "lfs");
        if volume.engine() == "dualfs" {
            return a_metadata_log_is_cleaned_while_it_is_used(volume);
        }
        if !is_lfs {
            if volume.engine() == "evergreen" {
                let said = String::from_utf8(arbor(&["clean"], &[&root])).unwrap();
                assert_eq!(said, format!("{}: 0 stretches emptied, 0 B moved\n", root.display()));
            } else {
                let (code, said) = refused(&["clean"], &[&root]);
                let want = format!("arbor clean: {}: {} has nothing to clean\n", root.display(), volume.engine());
                assert_eq!((code, said), (Some(1), want));
            }
            let (code, said) = refused(&["scrub"], &[&root]);
            assert!(code == Some(8) && said.contains(" has no checksums on the contents of files; "), "{said}");
            return;
        }
        volume.umount();
        // Nothing but what is asked for.
        arbor(&["mount", "-o", "clean=off"], &[&volume.image(), &root]);
        let content = |n: u32| (0..75_000u32).flat_map(|i| (n << 20 | i).to_le_bytes()).collect::<Vec<u8>>();
        (0..100).for_each(|n| fs::write(root.join(n.to_string()), content(n)).unwrap());
        arbor(&["sync"], &[&root]);
        (0..100).step_by(2).for_each(|n| fs::remove_file(root.join(n.to_string())).unwrap());
        fs::create_dir(root.join("below")).unwrap();
        let said = std::thread::scope(|scope| {
            let cleaner = scope.spawn(|| String::from_utf8(arbor(&["clean"], &[&root.join("below")])).unwrap());
            (100..110).for_each(|n| fs::write(root.join(n.to_string()), content(n)).unwrap());
            cleaner.join().unwrap()
        });
        assert!(said.contains(" segments cleaned, ") && said.contains(" clean segments, "), "{said}");
        assert!(!said.contains(" 0 segments cleaned"), "{said}");
        let said = String::from_utf8(arbor(&["info"], &[&root.join("below")])).unwrap();
        assert!(said.contains(", mounted on ") && said.contains("\nby address; a cell is a segment, "), "{said}");
        for n in (1..100).step_by(2).chain(100..110) {
            assert!(fs::read(root.join(n.to_string())).unwrap() == content(n), "file {n}");
        }
        let said = String::from_utf8(arbor(&["scrub"], &[&root])).unwrap();
        assert!(said.contains(" MiB verified, no damage"), "{said}");
        volume.umount();
        volume.check();
    });
}

fn a_metadata_log_is_cleaned_while_it_is_used(volume: &Volume) {
    let root = volume.root();
    for round in 0..4 {
        (0..500).for_each(|n| fs::write(root.join(n.to_string()), format!("{n} in {round}")).unwrap());
        arbor(&["sync"], &[&root]);
    }
    fs::create_dir(root.join("below")).unwrap();
    let said = std::thread::scope(|scope| {
        let cleaner = scope.spawn(|| String::from_utf8(arbor(&["clean"], &[&root.join("below")])).unwrap());
        (500..1000).for_each(|n| fs::write(root.join(n.to_string()), format!("{n} in 3")).unwrap());
        cleaner.join().unwrap()
    });
    assert!(said.contains(" cleaned, ") && said.contains(" clean segments, "), "{said}");
    assert!(!said.contains(": 0 segments cleaned"), "{said}");
    let said = String::from_utf8(arbor(&["info"], &[&root.join("below")])).unwrap();
    assert!(said.contains(", mounted on ") && said.contains("\nby address; a cell is a segment, "), "{said}");
    for n in 0..1000 {
        assert_eq!(fs::read_to_string(root.join(n.to_string())).unwrap(), format!("{n} in 3"));
    }
    let said = String::from_utf8(arbor(&["scrub"], &[&root])).unwrap();
    assert!(said.contains(" verified, no damage"), "{said}");
    volume.umount();
    volume.check();
}

#[test]
fn why_it_cannot_be_unmounted_is_said() {
    each_engine("64M", |volume| {
        let busy = File::create(volume.root().join("open")).unwrap();
        let (code, said) = refused(&["umount"], &[&volume.root()]);
        assert_eq!(code, Some(1));
        assert!(said.contains(": busy: ") && said.contains("`fuser -vm "), "{said}");
        drop(busy);
        volume.umount();
        let (_, said) = refused(&["umount"], &[&volume.root()]);
        assert!(said.ends_with("mnt: not a mount point of arbor\n"), "{said}");
    });
}

#[test]
fn what_became_of_a_mount_is_said_when_it_is_taken_off() {
    each_engine("64M", |volume| {
        let root = volume.root();
        let umount = || {
            let off = watch::arbor(&["umount"], &[&root]);
            assert!(!volume.is_mounted(), "{}", off.said);
            off
        };
        fs::write(root.join("file"), "kept").unwrap();
        arbor(&["sync"], &[&root]);
        volume.signal_server(Signal::KILL);
        watch::umount_dead(&root);
        assert!(!volume.is_mounted());
        for way in [&["shutdown"][..], &["shutdown", "--now"]] {
            volume.mount();
            arbor(way, &[&root]);
            let off = umount();
            let told = format!(
                "arbor umount: {}: unmounted; it had been shut down: nothing was written since; the next mount recovers\n",
                root.display()
            );
            assert_eq!((off.code, off.said), (Some(0), told));
        }
        volume.mount();
        assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "kept");
        let off = umount();
        assert_eq!((off.code, off.said.as_str()), (Some(0), ""), "nothing has happened to it");
        arbor(&["mount", "-q", "-o", "ro"], &[&volume.image(), &root]);
        volume.signal_server(Signal::KILL);
        let off = umount();
        assert!(off.code == Some(0) && off.said.contains("its server had died; nothing waited"), "{off:?}");
        volume.check();
    });
}

/// An open file keeps a server that has lost its mount, for as long as a test likes.
#[test]
fn a_mount_waits_for_the_server_of_the_last_one() {
    if !root_can_mount() {
        return;
    }
    each_engine("64M", |volume| {
        let (image, root, other) = (volume.image(), volume.root(), volume.dir.path().join("other"));
        let waiting = "waiting for the server of its last mount to end";
        let (code, said) = refused(&["mount", "-v"], &[&image, &other]);
        assert!(code == Some(32) && said.contains(", mounted on ") && !said.contains(waiting), "{said}");
        let open = File::create(root.join("open")).unwrap();
        rustix::mount::unmount(&root, rustix::mount::UnmountFlags::DETACH).unwrap();
        let (code, said) = refused(&["ls"], &[&image]);
        assert!(code == Some(1) && said.contains(" is off: it still writes, or files on it are open"), "{said}");
        let words = ["mount", "-v"].map(Path::new);
        let mut next = watch::start(env!("CARGO_BIN_EXE_arbor"), &[words[0], words[1], &image, &root]);
        let waits = next.has_said(waiting);
        drop(open);
        let next = watch::end(next);
        assert!(waits && next.code == Some(0), "{next:?}");
        assert!(root.join("open").exists());
        volume.umount();
        volume.check();
    });
}

#[test]
fn a_mount_does_not_wait_for_ever() {
    if !root_can_mount() {
        return;
    }
    let volume = Volume::new("yfs", "64M");
    let _open = File::create(volume.root().join("open")).unwrap();
    rustix::mount::unmount(volume.root(), rustix::mount::UnmountFlags::DETACH).unwrap();
    let (code, said) = refused(&["mount"], &[&volume.image(), &volume.root()]);
    assert!(code == Some(32) && said.contains("in use by process ") && said.contains(" is off: "), "{said}");
}

#[test]
fn a_mount_turns_read_only_and_back() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    each_engine("64M", |volume| {
        let file = volume.root().join("file");
        let remount = |options| {
            Command::new(env!("CARGO_BIN_EXE_arbor"))
                .args(["mount", "-o", options])
                .args([volume.image(), volume.root()])
                .output()
                .unwrap()
        };
        let open = File::create(&file).unwrap();
        let out = remount("remount,ro");
        assert!(String::from_utf8_lossy(&out.stderr).contains("open for writing"), "{out:?}");
        drop(open);
        assert!(remount("remount,ro").status.success());
        assert!(fs::write(&file, "x").is_err());
        assert!(remount("remount,rw").status.success());
        fs::write(&file, "x").unwrap();
        volume.umount();
        arbor(&["mount", "-q", "-o", "ro"], &[&volume.image(), &volume.root()]);
        let out = remount("remount,rw");
        assert!(String::from_utf8_lossy(&out.stderr).contains("opened read-only"), "{out:?}");
        volume.umount();
        let other = volume.dir.path().join("other.img");
        arbor(&["mkfs", "-q", "-s", "64M"], &[&other]);
        for name in ["noatime", "fsname=name"] {
            arbor(&["mount", "-q", "-o", name], &[&volume.image(), &volume.root()]);
            for another in [&other, &volume.dir.path().join("none.img")] {
                let (code, said) = refused(&["mount", "-o", "remount,ro"], &[another, &volume.root()]);
                assert_eq!(code, Some(32));
                assert!(said.contains(&format!(" is mounted there, not {}", another.display())), "{said}");
            }
            fs::write(&file, "y").unwrap();
            assert!(remount("remount,ro").status.success());
            assert!(fs::write(&file, "z").is_err());
            volume.umount();
        }
        volume.check();
    });
}

#[test]
fn owners_can_be_shown_otherwise() {
    each_engine("64M", |volume| {
        let file = volume.root().join("file");
        fs::write(&file, "").unwrap();
        let stored = fs::metadata(&file).unwrap();
        volume.umount();
        arbor(&["mount", "-o", "uid=1234,gid=2345,umask=077"], &[&volume.image(), &volume.root()]);
        for path in [&file, &volume.root()] {
            let shown = fs::metadata(path).unwrap();
            assert_eq!((shown.uid(), shown.gid(), shown.mode() & 0o077), (1234, 2345, 0), "{}", path.display());
        }
        volume.umount();
        volume.mount();
        let now = fs::metadata(&file).unwrap();
        assert_eq!((now.uid(), now.gid(), now.mode()), (stored.uid(), stored.gid(), stored.mode()));
    });
}

#[test]
fn a_log_of_its_own_and_an_offset() {
    for engine in arboretum::engines().iter().filter(|e| can_mount() && e.extra_devices().contains(&"log")) {
        let volume = Volume::empty();
        let log = format!("log={},offset=3M", volume.dir.path().join("log.img").display());
        arbor(&["mkfs", "-q", "-t", engine.name(), "-s", "64M", "-o", &log], &[&volume.image()]);
        for round in 0..3u8 {
            arbor(&["mount", "-q", "-o", &log], &[&volume.image(), &volume.root()]);
            for earlier in 0..round {
                let name = volume.root().join(format!("file-{earlier}"));
                assert_eq!(fs::read(name).unwrap(), vec![earlier; 100_000]);
            }
            fs::write(volume.root().join(format!("file-{round}")), vec![round; 100_000]).unwrap();
            let info = String::from_utf8(arbor(&["info"], &[&volume.root()])).unwrap();
            assert!(info.contains(&volume.image().display().to_string()) && info.contains(", mounted on "), "{info}");
            if round == 1 {
                arbor(&["sync"], &[&volume.root()]);
                volume.signal_server(Signal::KILL);
                let (_, said) = refused(&["ls", "-o", &log], &[&volume.image()]);
                assert!(said.contains(&format!("-o {}", log.replace("3M", "3145728"))), "{said}");
            } else {
                volume.umount();
                arbor(&["fsck", "-n", "-f", "-o", &log], &[&volume.image()]);
            }
        }
        // To look at it nobody needs the log.
        let listed = String::from_utf8(arbor(&["ls", "-o", "offset=3M"], &[&volume.image()])).unwrap();
        assert!(listed.contains("file-2"), "{listed}");
        let (_, said) = refused(&["mkdir", "-o", "offset=3M"], &[&volume.image(), Path::new("/new")]);
        assert!(said.contains("option log=FILE"), "{said}");
    }
}

#[test]
fn a_device_that_fails_is_told_by_sync_and_umount() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    each_engine("64M", |volume| {
        volume.umount();
        // A host that is full stands for a disk that fails.
        let host = volume.dir.path().join("host");
        fs::create_dir(&host).unwrap();
        rustix::mount::mount("none", &host, "tmpfs", rustix::mount::MountFlags::empty(), c"size=8M").unwrap();
        let _host = Unmount(&host);
        let image = host.join("x.img");
        arbor(&["mount", "-q", "--new", "64M"], &[&image, &volume.root()]);
        let _ = fs::write(volume.root().join("big"), vec![1; 20 << 20]);
        let (_, said) = refused(&["sync"], &[&volume.root()]);
        assert!(said.contains("read-only since an error"), "{said}");
        let (code, said) = refused(&["umount"], &[&volume.root()]);
        assert_eq!(code, Some(1));
        assert!(said.contains("unmounted, but the volume has been read-only since an error"), "{said}");
        assert!(!volume.is_mounted());
    });
}

#[test]
fn the_server_holds_nothing_of_its_caller() {
    each_engine("64M", |volume| {
        volume.umount();
        let lock = volume.dir.path().join("lock");
        let shell = "exec 9>\"$1\"; flock -n 9 && \"$0\" mount -q \"$2\" \"$3\"";
        let mut command = Command::new("sh");
        command.args(["-c", shell, env!("CARGO_BIN_EXE_arbor")]).args([&lock, &volume.image(), &volume.root()]);
        assert!(command.status().unwrap().success());
        assert!(volume.is_mounted());
        let lock = File::open(&lock).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("the lock is free");
        volume.umount();
    });
}

/// Takes a mount that is not of arbor off at the end.
struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
