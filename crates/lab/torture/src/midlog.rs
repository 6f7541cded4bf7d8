//! Damage of what recovery reads costs what is damaged: no power cut leaves it, since what follows was written later, and so it
//! is not the end of a log, nor a reason to forget what was promised since.

use crate::badsector::BadSector;
use crate::damage::{check, codes, flip, format, tree};
use arbor_base::device::{Device, FaultDevice, FaultOp, FaultTimes, MemDevice, SECTOR};
use arbor_base::vfs::{
    CheckOptions, Cx, Devices, Engine, FileSystem, Ino, ManualClock, MountOptions, Options, Repair, Time, mode,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const CX: Cx = Cx { uid: 0, gid: 0 };
/// Files that are made and synced one by one.
const FILES: usize = 12;
/// Of this one what was written is damaged.
const DAMAGED: usize = 3;
/// Bytes around a sector on which nothing was written either.
const BESIDE: usize = 32 << 10;
/// Most places that are damaged.
const PLACES: usize = 80;

/// How the history of the volume is: options of mkfs, options of mount, bytes of each file.
type History<'a> = (&'a str, &'a str, usize);

type Mounted = arbor_base::vfs::Result<Arc<dyn FileSystem>>;

fn try_mount(engine: &dyn Engine, dev: &(impl Device + Clone + 'static), options: &str) -> Mounted {
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
        if code.is_some_and(|code| is_told(engine, how, &damaged, code)) {
            told += 1;
            wrong.extend(cut_off(engine, how, &damaged).err().map(|e| format!("{how:?}, byte {at:#x}: {e}")));
        }
        if let Err(e) = used(engine, how, &damaged) {
            wrong.push(format!("{how:?}, byte {at:#x}: {e}"));
        }
    }
    assert!(code.is_none() || told > 0, "{how:?}: no place has {code:?}");
    if code.is_some() {
        wrong.extend(what_nobody_needs(engine, how, last).err());
    }
    assert!(wrong.is_empty(), "{} of them: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
}

/// Sectors on which nothing was ever written cannot be read: that keeps nobody from what is there. Only where the log goes on
/// nobody knows then whether it does.
fn what_nobody_needs(engine: &dyn Engine, how: History<'_>, last: &[u8]) -> Result<(), String> {
    // What is beside it may be of one block with it.
    let is_unused = |n: &usize| last[n * SECTOR / BESIDE * BESIDE..][..BESIDE].iter().all(|b| *b == 0);
    let unused: Vec<usize> = (0..last.len() / SECTOR).filter(is_unused).collect();
    let mut refused = false;
    for n in unused.iter().step_by(unused.len().div_ceil(2 * PLACES)) {
        let device = BadSector { inner: MemDevice::from_bytes(last), at: (n * SECTOR) as u64 };
        let wrong = |what: &str| format!("{how:?}, byte {:#x} cannot be read: {what}", device.at);
        let fs = match try_mount(engine, &device, how.1) {
            Ok(fs) => fs,
            Err(e) if std::mem::replace(&mut refused, true) => return Err(wrong(&format!("{e}, and one before"))),
            Err(_) => continue,
        };
        if there(&*fs, how.2).contains(&false) {
            return Err(wrong("files are missing"));
        }
    }
    Ok(())
}

/// Repairs that are cut off by the device: then a mount is refused, or all is there, and another repair ends as well.
fn cut_off(engine: &dyn Engine, how: History<'_>, damaged: &MemDevice) -> Result<(), String> {
    for nth in 1..12 {
        let disk = damaged.snapshot();
        let faulty = FaultDevice::new(disk.clone());
        faulty.fail(FaultOp::Flush, nth, FaultTimes::FromThenOn);
        let options = CheckOptions { repair: Repair::Yes, force: true };
        let done = engine.check(Devices::single(faulty.clone()), &options, &mut |_, _, _| ()).is_ok();
        if let Ok(fs) = try_mount(engine, &disk.snapshot(), how.1) {
            let all = there(&*fs, how.2);
            if !lost(&all).is_empty() {
                return Err(format!("after flush {nth} of a repair a mount goes on without files {:?}", lost(&all)));
            }
        }
        if done {
            return Ok(());
        }
        let left = check(engine, disk.clone(), Repair::Yes).remaining();
        let fs = try_mount(engine, &disk, how.1).map_err(|e| format!("mount after a second repair: {e}"))?;
        let all = there(&*fs, how.2);
        if left > 0 || !lost(&all).is_empty() {
            return Err(format!(
                "after flush {nth} a second repair leaves {left} issues and loses files {:?}",
                lost(&all)
            ));
        }
    }
    Ok(())
}

/// The files that are not there, but for the one whose promise was damaged. The record of the last promise may have bytes of an
/// older one; without it nobody knows that there was one.
fn lost(all: &[bool]) -> Vec<usize> {
    (0..FILES - 1).filter(|n| !all[*n] && *n != DAMAGED).collect()
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

/// Files that one sync makes durable.
const CROWD: usize = 1500;

/// Of each group these files are removed so many groups later.
const REMOVED_LATER: [(usize, usize); 2] = [(7, 1), (8, 2)];

/// What a crowd of files should be: names and contents. Those that were removed have none.
type Crowd = BTreeMap<String, Option<Vec<u8>>>;

/// Damages each summary of a log, of partial segments with many inodes, or makes it unreadable; after a repair all files are there
/// as they were written last, but those of the last sync, whose damage may be a write that was cut off.
pub fn a_summary_costs_no_inode(engine: &dyn Engine, format_options: &str) {
    let (dev, clock) =
        (format(engine, 64 << 20, format_options), Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 })));
    let fs = engine.mount(Devices::single(dev.clone()), &MountOptions::default(), clock.clone()).expect("mount");
    let mut crowd = Crowd::new();
    for (group, files) in [20, CROWD, 20, 20, CROWD, 20, 20, 0, 0].into_iter().enumerate() {
        clock.advance_ms(1000);
        write_group(&*fs, &mut crowd, group, files);
        fs.syncfs().expect("syncfs");
    }
    fs.mknod(&CX, fs.root(), b"the last", mode::IFREG | 0o644, 0).expect("mknod");
    fs.syncfs().expect("syncfs");
    let image = dev.snapshot();
    let all = summaries(engine, &image);
    assert!(all.len() > 6, "{} summaries", all.len());
    for at in all {
        let (damaged, unread) = (image.snapshot(), image.snapshot());
        flip(&damaged, at + 20);
        crowd_is_there(engine, damaged.clone(), &damaged, &crowd, &format!("summary at {at:#x}"));
        let bad = BadSector { inner: unread.clone(), at };
        crowd_is_there(engine, bad, &unread, &crowd, &format!("summary at {at:#x}, unreadable"));
    }
}

/// A file is written and synced, and again in the next set, whose summary is damaged. Which of its states is the newer one the
/// places tell: the clock may have been set back.
pub fn a_clock_that_was_set_back_costs_nothing(engine: &dyn Engine) {
    for secs in [1_000_100, 1_000_000, 999_900] {
        let (dev, clock) =
            (format(engine, 64 << 20, ""), Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 })));
        let fs = engine.mount(Devices::single(dev.clone()), &MountOptions::default(), clock.clone()).expect("mount");
        let make = |name: &str| fs.mknod(&CX, fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0).expect("mknod").ino;
        let write = |ino: Ino, bytes: &[u8]| {
            fs.write(ino, 0, bytes).expect("write");
            fs.syncfs().expect("syncfs");
        };
        let file = make("file");
        write(file, b"old");
        let before = summaries(engine, &dev);
        clock.set(Time { secs, nanos: 0 });
        let new = b"new bytes ".repeat(500);
        write(file, &new);
        let written = summaries(engine, &dev).into_iter().find(|at| !before.contains(at)).expect("a summary");
        write(make("behind"), b"x");
        write(make("the last"), b"x");
        let damaged = dev.snapshot();
        flip(&damaged, written + 20);
        assert_eq!(check(engine, damaged.clone(), Repair::Yes).remaining(), 0, "{secs}");
        assert!(tree(engine, &damaged)["/file"].content.ends_with(&new), "{secs}");
    }
}

/// Where the summaries of a log are.
fn summaries(engine: &dyn Engine, dev: &MemDevice) -> Vec<u64> {
    let mut all = Vec::new();
    let devices = Devices::single(dev.snapshot());
    engine.structures(&devices, &mut |s| all.extend((s.kind == "summary").then_some(s.offset))).expect("structures");
    all
}

/// Makes files, writes some of the last groups again, and removes some.
fn write_group(fs: &dyn FileSystem, crowd: &mut Crowd, group: usize, files: usize) {
    let earlier = (0..group).rev().take(2).flat_map(|earlier| (0..4).map(move |n| (earlier, n)));
    let again: Vec<_> =
        earlier.filter(|(of, n)| crowd.get(&format!("{of} {n}")).is_some_and(Option::is_some)).collect();
    for (of, n) in again.into_iter().chain((0..files).map(|n| (group, n))) {
        let (name, contents) = (format!("{of} {n}"), format!("{of} {n} by {group} ").repeat(5).into_bytes());
        let ino = match of == group {
            true => fs.mknod(&CX, fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0).expect("mknod").ino,
            false => fs.lookup(fs.root(), name.as_bytes()).expect("lookup").ino,
        };
        fs.write(ino, 0, &contents).expect("write");
        fs.forget(ino, 1);
        crowd.insert(name, Some(contents));
    }
    let earlier = REMOVED_LATER.map(|(n, later)| (group.checked_sub(later), n));
    let removed = [(Some(group), files / 2)].into_iter().chain(earlier);
    for name in removed.filter_map(|(of, n)| Some(format!("{} {n}", of?))) {
        if crowd.insert(name.clone(), None).flatten().is_some() {
            fs.unlink(fs.root(), name.as_bytes()).expect("unlink");
        }
    }
}

/// Repairs what is on `device`; then the files are in the image.
fn crowd_is_there(engine: &dyn Engine, device: impl Device + 'static, image: &MemDevice, crowd: &Crowd, what: &str) {
    let options = CheckOptions { repair: Repair::Yes, force: true };
    let report = engine.check(Devices::single(device), &options, &mut |_, _, _| ());
    let left = report.unwrap_or_else(|e| panic!("{what}: {e}")).remaining();
    assert_eq!(left, 0, "{what}");
    let fs = try_mount(engine, image, "").unwrap_or_else(|e| panic!("{what}: mount after a repair: {e}"));
    let wrong = |(name, contents): &(&String, &Option<Vec<u8>>)| {
        let mut read = [0; 200];
        let found = fs.lookup(fs.root(), name.as_bytes()).and_then(|a| fs.read(a.ino, 0, &mut read));
        found.ok().map(|n| &read[..n]) != contents.as_deref()
    };
    let wrong: Vec<&String> = crowd.iter().filter(wrong).map(|(name, _)| name).collect();
    assert!(wrong.is_empty(), "{what}: {} files are not as they were: {wrong:?}", wrong.len());
    let back = removals_forgotten(&*fs);
    assert!(back.len() <= 1, "{what}: files that were removed in groups {back:?} come back");
}

/// In which groups files were removed that are back, without a name: that may be those of one group, whose summary told of it.
fn removals_forgotten(fs: &dyn FileSystem) -> BTreeSet<usize> {
    let (mut inos, mut groups) = (Vec::new(), BTreeSet::new());
    let Ok(found) = fs.lookup(fs.root(), b"lost+found") else { return groups };
    let listed = fs.readdir(found.ino, 0, &mut |e| {
        inos.extend((!e.name.starts_with(b".")).then_some(e.ino));
        true
    });
    listed.expect("lost+found");
    for ino in inos {
        let mut read = [0; 200];
        let n = fs.read(ino, 0, &mut read).expect("read");
        // Others have its block.
        if read.iter().all(|byte| *byte == 0) {
            continue;
        }
        let text = String::from_utf8_lossy(&read[..n]).into_owned();
        let numbers: Vec<usize> = text.split(' ').map_while(|word| word.parse().ok()).collect();
        let [of, n] = numbers[..] else { panic!("in lost+found: {text:?}") };
        groups.insert(REMOVED_LATER.iter().find(|(of_it, _)| *of_it == n).map_or(of, |(_, later)| of + later));
    }
    groups
}
