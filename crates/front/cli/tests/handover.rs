//! `arbor sync` makes durable what the kernel still keeps, tried by killing the server. Needs root and
//! /dev/fuse, and says so if they are not there.

#![cfg(target_os = "linux")]

mod watch;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use watch::{Watch, arbor, can_mount, run};

const FILES: usize = 100;
const LEN: usize = 5 * 4096;

/// A file in memory, shared.
struct Mapped(*mut std::ffi::c_void);

impl Mapped {
    fn of(file: &File) -> Mapped {
        let (how, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, where the kernel likes; the file has `LEN` bytes and is not truncated.
        Mapped(unsafe { mmap(std::ptr::null_mut(), LEN, how, flags, file, 0) }.unwrap())
    }

    fn fill(&self, byte: u8) {
        // SAFETY: the mapping is `LEN` bytes, and ours alone.
        unsafe { std::ptr::write_bytes(self.0.cast::<u8>(), byte, LEN) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nobody else has the address.
        let _ = unsafe { munmap(self.0, LEN) };
    }
}

fn name(root: &Path, i: usize) -> PathBuf {
    root.join(format!("f{i}"))
}

fn byte(i: usize) -> u8 {
    b'A' + (i % 26) as u8
}

/// A loop device of an image file; without, the image itself.
struct Disk {
    path: PathBuf,
    is_device: bool,
}

impl Disk {
    fn of(image: &Path, is_device: bool) -> Option<Disk> {
        if !is_device {
            return Some(Disk { path: image.to_path_buf(), is_device });
        }
        let made = run("losetup", &[Path::new("-f"), Path::new("--show"), image]);
        if made.code != Some(0) {
            eprintln!("NOT RUN: this test needs a loop device: {}", made.said);
            return None;
        }
        Some(Disk { path: made.out.trim().into(), is_device })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_device {
            run("losetup", &[Path::new("-d"), &self.path]);
        }
    }
}

/// Changes files by shared mappings, and others by calls while they stay open; has that synced by a program;
/// and kills the server.
fn check(engine: &str, options: &str, on_device: bool, sync: impl Fn(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("x.img");
    arbor(&["mkfs", "-q", "-t", engine, "-s", "64M"], &[&image]).well();
    let Some(disk) = Disk::of(&image, on_device) else { return };
    let watch = Watch::new(dir.path());
    let (image, root) = (&disk.path, dir.path().canonicalize().unwrap().join("mnt"));
    arbor(&["mount", "-o", options], &[image, &root]).well();
    let open = |i| OpenOptions::new().read(true).write(true).create(true).truncate(true).open(name(&root, i)).unwrap();
    let files: Vec<File> = (0..FILES).map(open).collect();
    let maps: Vec<Mapped> = files
        .iter()
        .map(|file| {
            file.write_all_at(&[b'.'; LEN], 0).unwrap();
            Mapped::of(file)
        })
        .collect();
    arbor(&["sync"], &[&root]).well();
    for (i, map) in maps.iter().enumerate() {
        map.fill(byte(i));
    }
    // These are mapped by nobody.
    let written: Vec<File> = (FILES..FILES + 20).map(open).collect();
    for (i, file) in (FILES..).zip(&written) {
        file.write_all_at(&[byte(i); LEN], 0).unwrap();
    }
    sync(&root);
    watch.signal(&root, Signal::KILL);
    drop((maps, files, written));
    arbor(&["umount"], &[&root]).well();
    arbor(&["mount"], &[image, &root]).well();
    let lost: Vec<usize> =
        (0..FILES + 20).filter(|i| fs::read(name(&root, *i)).unwrap_or_default() != [byte(*i); LEN]).collect();
    assert!(lost.is_empty(), "{engine}, {options}: {} lost: {lost:?}", lost.len());
    arbor(&["umount"], &[&root]).well();
    arbor(&["fsck", "-n", "-f"], &[image]).well();
}

fn sync_by_arbor(root: &Path) {
    arbor(&["sync"], &[root]).well();
}

fn sync_by_syncfs(root: &Path) {
    run("sync", &[Path::new("-f"), root]).well();
}

#[test]
fn a_sync_takes_what_the_kernel_keeps() {
    if !can_mount() {
        return;
    }
    for engine in arboretum::engines() {
        for options in ["transport=auto", "transport=classic", "writeback_cache"] {
            check(engine.name(), options, false, sync_by_arbor);
        }
        check(engine.name(), "writeback_cache", true, sync_by_arbor);
    }
}

/// So for these an fsync of the root is enough.
#[test]
fn a_close_and_the_end_of_a_mapping_hand_over() {
    if !can_mount() {
        return;
    }
    for options in ["transport=auto", "transport=classic", "writeback_cache"] {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::new(dir.path());
        let (image, root) = (dir.path().join("x.img"), dir.path().canonicalize().unwrap().join("mnt"));
        arbor(&["mkfs", "-q", "-s", "64M"], &[&image]).well();
        arbor(&["mount", "-o", options], &[&image, &root]).well();
        for i in 0..FILES {
            fs::write(name(&root, i), [byte(i); LEN]).unwrap();
            if i % 2 == 0 {
                let file = OpenOptions::new().read(true).write(true).open(name(&root, i)).unwrap();
                Mapped::of(&file).fill(byte(i + 1));
            }
        }
        File::open(&root).unwrap().sync_all().unwrap();
        watch.signal(&root, Signal::KILL);
        arbor(&["umount"], &[&root]).well();
        arbor(&["mount"], &[&image, &root]).well();
        for i in 0..FILES {
            let wanted = byte(if i % 2 == 0 { i + 1 } else { i });
            assert!(fs::read(name(&root, i)).unwrap() == [wanted; LEN], "{options}: file {i}");
        }
        arbor(&["umount"], &[&root]).well();
    }
}

/// The links by which root finds mapped files are for root alone.
#[test]
fn a_user_syncs_what_its_processes_have_mapped() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::new(dir.path());
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (image, root) = (dir.path().join("x.img"), dir.path().canonicalize().unwrap().join("mnt"));
    arbor(&["mkfs", "-q", "-s", "64M"], &[&image]).well();
    arbor(&["mount"], &[&image, &root]).well();
    let file = root.join("a file");
    fs::write(&file, [b'.'; LEN]).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    arbor(&["sync"], &[&root]).well();
    let as_user = |program: &Path| {
        let mut command = Command::new(program);
        command.uid(65534).gid(65534).stdin(Stdio::piped());
        command
    };
    // By copies that the user may read, wherever these programs lie.
    let copy = |program: &Path, name: &str| {
        let to = dir.path().join(name);
        fs::copy(program, &to).unwrap();
        to
    };
    let maps = copy(&std::env::current_exe().unwrap(), "maps");
    let arbor_copy = copy(Path::new(env!("CARGO_BIN_EXE_arbor")), "arbor");
    let mut mapping = as_user(&maps)
        .args(["--exact", "process_that_maps", "--ignored", "--nocapture"])
        .env("ARBOR_TEST_FILE", &file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(mapping.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("MAPPED")));
    let synced = as_user(&arbor_copy).arg("sync").arg(&root).status().unwrap();
    assert!(synced.success());
    watch.signal(&root, Signal::KILL);
    drop(mapping.stdin.take());
    let _ = mapping.wait();
    arbor(&["umount"], &[&root]).well();
    arbor(&["mount"], &[&image, &root]).well();
    assert!(fs::read(&file).unwrap() == [b'X'; LEN]);
}

/// What `a_user_syncs_what_its_processes_have_mapped` runs as another user.
#[test]
#[ignore = "run by another test"]
fn process_that_maps() {
    let Some(path) = std::env::var_os("ARBOR_TEST_FILE") else { return };
    let map = Mapped::of(&OpenOptions::new().read(true).write(true).open(path).unwrap());
    map.fill(b'X');
    println!("\nMAPPED");
    let _ = std::io::stdin().read(&mut [0]);
}

/// More than is promised, but as long as nothing of it is being written at that moment.
#[test]
fn syncfs_of_a_device_takes_what_the_kernel_keeps() {
    if !can_mount() {
        return;
    }
    for engine in arboretum::engines() {
        for options in ["transport=auto", "transport=classic", "writeback_cache"] {
            check(engine.name(), options, true, sync_by_syncfs);
        }
    }
}
