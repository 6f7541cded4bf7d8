//! Damage of what recovery reads costs what is damaged: no power cut leaves it, since what follows was written later, and so it
//! is not the end of a log, nor a reason to forget what was promised since.

use crate::damage::{check, codes, flip, format};
use arbor_base::device::{MemDevice, SECTOR};
use arbor_base::vfs::{Cx, Devices, Engine, FileSystem, Ino, ManualClock, MountOptions, Options, Repair, Time, mode};
use std::sync::Arc;

const CX: Cx = Cx { uid: 0, gid: 0 };
/// Files that are made and synced one by one.
const FILES: usize = 12;
/// Of this one what was written is damaged.
const DAMAGED: usize = 3;
/// Most places that are damaged.
const PLACES: usize = 80;

/// How the history of the volume is: options of mkfs, options of mount, bytes of each file.
type History<'a> = (&'a str, &'a str, usize);

fn try_mount(engine: &dyn Engine, dev: &MemDevice, options: &str) -> arbor_base::vfs::Result<Arc<dyn FileSystem>> {
    let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
    let o = MountOptions { options: Options::parse(options), ..MountOptions::default() };
    engine.mount(Devices::single(dev.clone()), &o, clock)
}

fn contents(n: usize, len: usize) -> Vec<u8> {
    format!("contents {n:06} ").into_bytes().repeat(len / 16 + 1)[..len].to_vec()
}

fn name(n: usize) -> Vec<u8> {
    format!("file {n}").into_bytes()
}

/// The images after each promise, all in a mount that is never ended.
fn history(engine: &dyn Engine, how: History<'_>) -> Vec<Vec<u8>> {
    let dev = format(engine, 32 << 20, how.0);
    let fs = try_mount(engine, &dev, how.1).expect("mount");
    let dir = fs.mkdir(&CX, fs.root(), b"dir", 0o755).expect("mkdir").ino;
    fs.syncfs().expect("syncfs");
    let mut all = vec![dev.to_bytes()];
    for n in 0..FILES {
        let ino = fs.mknod(&CX, dir, &name(n), mode::IFREG | 0o644, 0).expect("mknod").ino;
        fs.write(ino, 0, &contents(n, how.2)).expect("write");
        fs.fsync(ino, false).expect("fsync");
        fs.fsync(dir, false).expect("fsync of the directory");
        all.push(dev.to_bytes());
    }
    all
}

/// Which files are there, as they were promised.
fn there(fs: &dyn FileSystem, len: usize) -> Vec<bool> {
    let whole = |dir: Ino, n: usize| {
        let mut read = vec![0; len + 1];
        let ino = fs.lookup(dir, &name(n)).ok()?.ino;
        let found = fs.read(ino, 0, &mut read).ok()?;
        (read[..found] == contents(n, len)).then_some(())
    };
    let dir = fs.lookup(fs.root(), b"dir").map(|a| a.ino);
    (0..FILES).map(|n| dir.as_ref().is_ok_and(|dir| whole(*dir, n).is_some())).collect()
}

/// Damages each sector that the promise of one file has written, and no later one; the others should be there after a
/// recovery, or after a repair of what refuses one. The checker calls a damaged record `code`, if the engine has records.
pub fn damage_is_not_the_end_of_the_log(engine: &dyn Engine, how: History<'_>, code: Option<&str>) {
    let images = history(engine, how);
    let last = images.last().expect("an image");
    let sectors = last.len() / SECTOR;
    let written: Vec<usize> = (0..sectors)
        .map(|n| n * SECTOR)
        .filter(|at| {
            let of = |image: &Vec<u8>| image[*at..*at + SECTOR].to_vec();
            of(&images[DAMAGED]) != of(&images[DAMAGED + 1]) && of(&images[DAMAGED + 1]) == of(last)
        })
        .collect();
    assert!(!written.is_empty(), "nothing was written for a promise");
    let (mut wrong, mut told) = (Vec::new(), 0);
    for at in written.iter().step_by(written.len().div_ceil(PLACES)) {
        let damaged = MemDevice::from_bytes(last);
        flip(&damaged, *at as u64 + 20);
        told += usize::from(code.is_some_and(|code| is_told(engine, how, &damaged, code)));
        if let Err(e) = used(engine, how, &damaged) {
            wrong.push(format!("{how:?}, byte {at:#x}: {e}"));
        }
    }
    assert!(code.is_none() || told > 0, "{how:?}: no place has {code:?}");
    assert!(wrong.is_empty(), "{} of them: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
}

/// Whether the checker calls it so; then a mount refuses the volume, and preening leaves it as it is.
fn is_told(engine: &dyn Engine, how: History<'_>, damaged: &MemDevice, code: &str) -> bool {
    if !codes(&check(engine, damaged.snapshot(), Repair::No)).contains(&code) {
        return false;
    }
    assert!(try_mount(engine, &damaged.snapshot(), how.1).is_err(), "a mount in spite of {code}");
    let preened = damaged.snapshot();
    assert!(check(engine, preened.clone(), Repair::Preen).remaining() > 0, "{code} was preened");
    assert!(preened.to_bytes() == damaged.to_bytes(), "preening has changed a volume with {code}");
    true
}

fn used(engine: &dyn Engine, how: History<'_>, damaged: &MemDevice) -> Result<(), String> {
    // The record of the last promise may have bytes of an older one; without it nobody knows that there was one.
    let lost = |all: &[bool]| (0..FILES - 1).filter(|n| !all[*n] && *n != DAMAGED).collect::<Vec<_>>();
    let recovered = damaged.snapshot();
    if let Ok(fs) = try_mount(engine, &recovered, how.1) {
        let all = there(&*fs, how.2);
        if !lost(&all).is_empty() {
            return Err(format!("a mount goes on without files {:?}", lost(&all)));
        }
        fs.unmount().map_err(|e| format!("unmount: {e}"))?;
    }
    for disk in [recovered, damaged.snapshot()] {
        let left = check(engine, disk.clone(), Repair::Yes).remaining();
        if left > 0 {
            return Err(format!("{left} issues remain after a repair"));
        }
        let fs = try_mount(engine, &disk, how.1).map_err(|e| format!("mount after a repair: {e}"))?;
        let all = there(&*fs, how.2);
        if !lost(&all).is_empty() {
            return Err(format!("a repair loses files {:?}", lost(&all)));
        }
    }
    Ok(())
}
