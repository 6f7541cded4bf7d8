//! `arbor sync` makes durable what the kernel still keeps, tried by killing the server. Needs root and
//! /dev/fuse, and says so if they are not there.

#![cfg(target_os = "linux")]

mod common;
mod watch;

use common::root_can_mount;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use watch::{Watch, arbor, run};

/// Files that are changed by mappings, and others that are written and stay open.
const MAPPED: usize = 100;
const OPEN: usize = 20;
const FILES: usize = MAPPED + OPEN;
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

/// What [`check`] runs in a process of its own: whoever starts another program hands over what he has open or
/// mapped, when the copies are closed.
#[test]
#[ignore = "run by other tests"]
fn process_that_keeps_files() {
    let Some(root) = std::env::var_os("ARBOR_TEST_ROOT") else { return };
    let open = |i| OpenOptions::new().read(true).write(true).open(name(Path::new(&root), i)).unwrap();
    let maps: Vec<Mapped> = (0..MAPPED).map(|i| Mapped::of(&open(i))).collect();
    let files: Vec<File> = (MAPPED..FILES).map(open).collect();
    for (i, file) in (MAPPED..).zip(&files) {
        file.write_all_at(&[byte(i); LEN], 0).unwrap();
    }
    for (i, map) in maps.iter().enumerate() {
        map.fill(byte(i));
    }
    println!("\nKEPT");
    let _ = std::io::stdin().read(&mut [0]);
}

/// The program for a user, who may not be allowed to read where it lies.
fn as_user(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(watch::for_users(program, dir));
    command.uid(65534).gid(65534);
    command
}

/// Starts [`process_that_keeps_files`], and returns when it keeps them. It ends when its input does.
fn keep(mut program: Command, root: &Path) -> (Child, impl Iterator<Item = String>) {
    program.args(["--exact", "process_that_keeps_files", "--ignored", "--nocapture"]).env("ARBOR_TEST_ROOT", root);
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line == "KEPT"));
    (child, said)
}

/// Has a sync made while another process, a user's perhaps, has changed files and keeps them; and kills the server.
fn check(engine: &str, options: &str, on_device: bool, is_user: bool, sync: impl Fn(&Path)) {
    let _turn = watch::turn();
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let image = dir.path().join("x.img");
    arbor(&["mkfs", "-q", "-t", engine, "-s", "64M"], &[&image]).well();
    let Some(disk) = Disk::of(&image, on_device) else { return };
    let watch = Watch::new(dir.path());
    let (image, root) = (&disk.path, dir.path().canonicalize().unwrap().join("mnt"));
    arbor(&["mount", "-o", options], &[image, &root]).well();
    for i in 0..FILES {
        fs::write(name(&root, i), [b'.'; LEN]).unwrap();
        fs::set_permissions(name(&root, i), fs::Permissions::from_mode(0o666)).unwrap();
    }
    arbor(&["sync"], &[&root]).well();
    let this = std::env::current_exe().unwrap();
    let (mut child, said) = keep(if is_user { as_user(&this, dir.path()) } else { Command::new(this) }, &root);
    sync(&root);
    watch.signal(&root, Signal::KILL);
    drop(child.stdin.take());
    let _ = child.wait();
    drop(said);
    watch::umount_dead(&root);
    arbor(&["mount"], &[image, &root]).well();
    let lost: Vec<usize> =
        (0..FILES).filter(|i| fs::read(name(&root, *i)).unwrap_or_default() != [byte(*i); LEN]).collect();
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
    if !root_can_mount() {
        return;
    }
    for engine in arboretum::engines() {
        for options in ["transport=auto", "transport=classic", "writeback_cache"] {
            check(engine.name(), options, false, false, sync_by_arbor);
        }
        check(engine.name(), "writeback_cache", true, false, sync_by_arbor);
    }
}

/// Of the watch of these tests: also what a shell has started.
#[test]
fn a_program_ends_with_its_value() {
    let _turn = watch::turn();
    let dir = tempfile::tempdir().unwrap();
    let note = dir.path().join("pid");
    let script = format!("sleep 100 & echo $! > {0}.new; mv {0}.new {0}; wait", note.display());
    let started = watch::start("sh", &[Path::new("-c"), Path::new(&script)]);
    let limit = Instant::now() + Duration::from_secs(20);
    let wait_for = |done: &dyn Fn() -> bool| {
        while !done() {
            assert!(Instant::now() < limit, "it does not come");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for(&|| note.exists());
    let stat = PathBuf::from(format!("/proc/{}/stat", fs::read_to_string(&note).unwrap().trim()));
    assert!(stat.exists());
    drop(started);
    // What nobody has waited for is no program any more.
    wait_for(&|| fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z ")));
}

/// So for these an fsync of the root is enough.
#[test]
fn a_close_and_the_end_of_a_mapping_hand_over() {
    if !root_can_mount() {
        return;
    }
    let _turn = watch::turn();
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
        watch::umount_dead(&root);
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
fn a_user_syncs_what_its_processes_keep() {
    if !root_can_mount() {
        return;
    }
    for options in ["transport=auto", "writeback_cache"] {
        check("yfs", options, false, true, |root| {
            let program = as_user(Path::new(env!("CARGO_BIN_EXE_arbor")), root.parent().unwrap());
            assert!({ program }.arg("sync").arg(root).status().unwrap().success());
        });
    }
}

/// More than is promised, but as long as nothing of it is being written at that moment.
#[test]
fn syncfs_of_a_device_takes_what_the_kernel_keeps() {
    if !root_can_mount() {
        return;
    }
    for engine in arboretum::engines() {
        for options in ["transport=auto", "transport=classic", "writeback_cache"] {
            check(engine.name(), options, true, false, sync_by_syncfs);
        }
    }
}
