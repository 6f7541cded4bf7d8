//! What is limited stays within its limits: dirty buffers, transactions; freed space goes back when it may.

use arbor_base::device::{CrashChoice, MemDevice, RecordingDevice};
use arbor_base::vfs::*;
use arbor_ffs::Ffs;
use std::sync::Arc;

const MODES: [&str; 4] = ["softupdates", "journal", "sync", "async"];

fn fresh(size: u64, format: &str) -> MemDevice {
    let dev = MemDevice::new(size);
    let options = FormatOptions { uuid: [9; 16], options: Options::parse(format), ..Default::default() };
    Ffs.format(Devices::single(dev.clone()), &options).unwrap();
    dev
}

fn mount(dev: &MemDevice, options: &str) -> Arc<dyn FileSystem> {
    let options = MountOptions { options: Options::parse(options), ..Default::default() };
    let clock = ManualClock::new(Time { secs: 1_000_000_000, nanos: 0 });
    Ffs.mount(Devices::single(dev.clone()), &options, Arc::new(clock)).unwrap()
}

fn make(fs: &dyn FileSystem, dir: Ino, name: &str) -> Ino {
    fs.mknod(&Cx::default(), dir, name.as_bytes(), mode::IFREG | 0o644, 0).unwrap().ino
}

fn clean(dev: &MemDevice) {
    let options = CheckOptions { repair: Repair::No, force: true };
    assert_eq!(Ffs.check(Devices::single(dev.clone()), &options, &mut |_, _, _| {}).unwrap().issues, []);
}

fn counter(fs: &dyn FileSystem, name: &str) -> u64 {
    fs.counters().iter().find(|c| c.0 == name).unwrap().1
}

#[test]
fn no_more_is_dirty_than_may_be() {
    for mode in MODES {
        let dev = fresh(64 << 20, "");
        let fs = mount(&dev, &format!("cache=16M,dirty=512K,keep={mode}"));
        let mut most = 0;
        for i in 0..400 {
            let ino = make(&*fs, fs.root(), &format!("file{i}"));
            fs.write(ino, 0, &vec![i as u8; 30_000]).unwrap();
            fs.forget(ino, 1);
            most = most.max(counter(&*fs, "cache_dirty_bytes"));
        }
        assert!((256 << 10..=512 << 10).contains(&most), "{mode}: {most}");
        fs.unmount().unwrap();
        clean(&dev);
    }
}

#[test]
fn no_more_buffers_are_dirty_than_may_be() {
    let most = |options: &str| {
        let dev = fresh(64 << 20, "");
        let fs = mount(&dev, &format!("cache=16M,keep=async,{options}"));
        let mut most = 0;
        for i in 0..400 {
            let ino = make(&*fs, fs.root(), &format!("file{i}"));
            fs.write(ino, 0, &[i as u8; 100]).unwrap();
            fs.forget(ino, 1);
            most = most.max(counter(&*fs, "cache_dirty_bytes"));
        }
        fs.unmount().unwrap();
        clean(&dev);
        most
    };
    let (any, few) = (most("dirty=4M"), most("dirty=4M,dirtybuffers=40"));
    assert!(few * 3 < any, "{few} of 40 buffers, {any} of any number");
}

/// Files in every group, removed and then freed all at once for want of space, change more metadata than the journal
/// has room for.
#[test]
fn what_is_freed_for_want_of_space_fits_the_journal() {
    let dev = fresh(256 << 20, "block=4K,cg=2M,journal=1M,minfree=0,density=8K");
    let fs = mount(&dev, "keep=journal,cache=32M");
    let mut held = Vec::new();
    for d in 0..256 {
        let dir = fs.mkdir(&Cx::default(), fs.root(), format!("dir{d}").as_bytes(), mode::IFDIR | 0o755).unwrap().ino;
        for f in 0..40 {
            let ino = make(&*fs, dir, &format!("file{f}"));
            fs.write(ino, 0, &[1; 4096]).unwrap();
            held.push((dir, f, ino));
        }
    }
    let large = make(&*fs, fs.root(), "large");
    let (chunk, mut end) = (vec![2; 1 << 20], 0);
    while let Ok(n) = fs.write(large, end, &chunk) {
        end += n as u64;
    }
    held.iter().for_each(|(dir, f, _)| fs.unlink(*dir, format!("file{f}").as_bytes()).unwrap());
    fs.syncfs().unwrap();
    // Users go without the background work that would free the files one after another.
    held.iter().for_each(|(_, _, ino)| fs.forget(*ino, 1));
    assert_eq!(fs.write(large, end, &chunk).unwrap(), chunk.len());
    fs.unmount().unwrap();
    clean(&dev);
}

#[test]
fn freed_space_goes_back_to_the_device() {
    for mode in MODES {
        let dev = fresh(64 << 20, "");
        let fs = mount(&dev, &format!("discard,keep={mode}"));
        let ino = make(&*fs, fs.root(), "file");
        fs.write(ino, 0, &vec![1; 16 << 20]).unwrap();
        fs.fsync(ino, false).unwrap();
        fs.forget(ino, 1);
        let full = dev.allocated();
        fs.unlink(fs.root(), b"file").unwrap();
        fs.syncfs().unwrap();
        fs.syncfs().unwrap();
        assert!(dev.allocated() + (15 << 20) < full, "{mode}: {} of {full} bytes", dev.allocated());
        fs.unmount().unwrap();
        clean(&dev);
    }
}

#[test]
fn an_allocation_that_finds_no_space_leaves_the_file_as_long_as_it_was() {
    for mode in MODES {
        let dev = fresh(24 << 20, "minfree=0");
        let fs = mount(&dev, &format!("keep={mode}"));
        let ino = make(&*fs, fs.root(), "file");
        assert_eq!(fs.write(ino, 0, &[1; 5000]).unwrap(), 5000);
        let done = fs.fallocate(ino, FallocMode::empty(), 0, 64 << 20);
        assert_eq!(done.unwrap_err().errno(), Errno::ENOSPC, "{mode}");
        assert_eq!(fs.getattr(ino).unwrap().size, 5000, "{mode}");
        let free = fs.statfs().unwrap();
        assert!(free.bavail * u64::from(free.frsize) > 20 << 20, "{mode}: {free:?}");
        fs.unmount().unwrap();
        clean(&dev);
    }
}

/// A file that was open and unlinked at a crash is freed by the next mount, also by one that keeps no list of such files.
#[test]
fn orphans_of_a_journal_are_freed_by_every_mount() {
    for mode in MODES {
        let dev = fresh(64 << 20, "");
        let fs = mount(&dev, "keep=journal");
        let ino = make(&*fs, fs.root(), "file");
        fs.write(ino, 0, &vec![1; 1 << 20]).unwrap();
        fs.unlink(fs.root(), b"file").unwrap();
        fs.syncfs().unwrap();
        let crashed = dev.snapshot();
        for _ in 0..3 {
            let fs = mount(&crashed, &format!("keep={mode}"));
            make(&*fs, fs.root(), "new");
            fs.unlink(fs.root(), b"new").unwrap();
            fs.unmount().unwrap();
            clean(&crashed);
        }
    }
}

fn swap(fs: &dyn FileSystem, (a, x): (Ino, &str), (b, y): (Ino, &str)) {
    fs.rename(&Cx::default(), a, x.as_bytes(), b, y.as_bytes(), RenameFlags::EXCHANGE).unwrap();
}

#[test]
fn many_exchanges_between_two_syncs() {
    for count in [100, 700] {
        let dev = fresh(128 << 20, "density=2K");
        let fs = mount(&dev, "keep=softupdates,cache=32M");
        let dir = |parent, name: &str| fs.mkdir(&Cx::default(), parent, name.as_bytes(), 0o755).unwrap().ino;
        let (one, two) = (dir(fs.root(), "one"), dir(fs.root(), "two"));
        for n in 0..count {
            dir(one, &n.to_string());
            dir(two, &n.to_string());
        }
        fs.syncfs().unwrap();
        (0..count).for_each(|n| swap(&*fs, (one, &n.to_string()), (two, &n.to_string())));
        fs.syncfs().unwrap();
        fs.unmount().unwrap();
        clean(&dev);
    }
}

#[test]
fn link_counts_do_not_overflow_while_removals_wait() {
    let dev = fresh(512 << 20, "density=4K");
    let fs = mount(&dev, "keep=softupdates,cache=256M");
    let dir = |parent, name: &str| fs.mkdir(&Cx::default(), parent, name.as_bytes(), 0o755).map(|e| e.ino);
    let (full, other) = (dir(fs.root(), "full").unwrap(), dir(fs.root(), "other").unwrap());
    for n in 0..64_998 {
        dir(full, &n.to_string()).unwrap();
    }
    for n in 0..700 {
        dir(other, &n.to_string()).unwrap();
    }
    fs.syncfs().unwrap();
    (0..700).for_each(|n| swap(&*fs, (full, &n.to_string()), (other, &n.to_string())));
    assert_eq!(dir(full, "more").unwrap_err().errno(), Errno::EMLINK);
    fs.rmdir(full, b"5").unwrap();
    dir(full, "more").unwrap();
    fs.unmount().unwrap();
    clean(&dev);
}

#[test]
fn many_renames_of_one_file_between_two_syncs() {
    let dev = fresh(64 << 20, "");
    let fs = mount(&dev, "keep=softupdates,cache=16M");
    let file = make(&*fs, fs.root(), "a");
    for n in 0..2000 {
        let (from, to) = if n % 2 == 0 { (b"a", b"b") } else { (b"b", b"a") };
        fs.rename(&Cx::default(), fs.root(), from, fs.root(), to, RenameFlags::empty()).unwrap();
    }
    assert_eq!(fs.getattr(file).unwrap().nlink, 1);
    fs.unmount().unwrap();
    clean(&dev);
}

/// A file that was fsynced, and its name, are there after the death of the server at once, wherever its directory
/// has grown: in a fragment, by a block, after the direct blocks.
#[test]
fn what_was_fsynced_is_there_at_once() {
    for mode in ["softupdates", "journal", "sync"] {
        let dev = fresh(64 << 20, "block=4K");
        let fs = mount(&dev, &format!("keep={mode}"));
        let dir = |i| fs.mkdir(&Cx::default(), fs.root(), format!("{i}").as_bytes(), mode::IFDIR | 0o755).unwrap().ino;
        let dirs: Vec<Ino> = (0..3).map(dir).collect();
        for i in 0..500 {
            let (dir, name) = (dirs[i % 3], format!("{i:0120}"));
            let ino = make(&*fs, dir, &name);
            let len = [0, 7, 900, 5000, 70_000][i % 5];
            fs.write(ino, 0, &vec![i as u8; len]).unwrap();
            make(&*fs, dirs[(i + 1) % 3], &format!("{i:0125}"));
            fs.fsync(ino, false).unwrap();
            fs.forget(ino, 1);
            let after = mount(&dev.snapshot(), "keep=journal");
            let dir = after.lookup(after.root(), format!("{}", i % 3).as_bytes()).unwrap().ino;
            let found = after.lookup(dir, name.as_bytes()).map(|f| f.size);
            assert_eq!(found.ok(), Some(len as u64), "{mode}: file {i}");
        }
        assert!(fs.getattr(dirs[0]).unwrap().size > 12 << 12, "after the direct blocks");
        fs.unmount().unwrap();
        clean(&dev);
    }
}

/// What an fsync has promised stays when the run of fragments that it lies in moves.
#[test]
fn what_was_fsynced_survives_a_move() {
    for mode in ["softupdates", "journal", "sync"] {
        let dev = fresh(64 << 20, "block=4K");
        let fs = mount(&dev, &format!("keep={mode}"));
        let files: Vec<Ino> = (0..40).map(|n| make(&*fs, fs.root(), &n.to_string())).collect();
        for (n, ino) in files.iter().enumerate() {
            fs.write(*ino, 0, &[n as u8 + 1; 300]).unwrap();
            fs.fsync(*ino, false).unwrap();
        }
        for (n, ino) in files.iter().enumerate() {
            fs.write(*ino, 300, &[0xee; 400]).unwrap();
            let after = mount(&dev.snapshot(), "");
            let found = after.lookup(after.root(), n.to_string().as_bytes()).unwrap().ino;
            let mut bytes = [0; 300];
            assert_eq!(after.read(found, 0, &mut bytes).unwrap(), 300, "{mode}: file {n}");
            assert!(bytes.iter().all(|b| *b == n as u8 + 1), "{mode}: file {n}");
        }
        fs.unmount().unwrap();
        clean(&dev);
    }
}

/// Names that come and go, of all lengths, find room where others were.
#[test]
fn a_directory_uses_its_space_again() {
    for (mode, syncs) in MODES.into_iter().flat_map(|mode| [(mode, 1), (mode, 2), (mode, 3)]) {
        let dev = fresh(64 << 20, "");
        let fs = mount(&dev, &format!("keep={mode}"));
        let dir = fs.mkdir(&Cx::default(), fs.root(), b"dir", mode::IFDIR | 0o755).unwrap().ino;
        let name = |n: usize| format!("{n:0len$}", len = 5 + n * 7919 % 190);
        let all = |n: usize| (0..100).map(move |k| name(n * 100 + k));
        all(0).for_each(|n| fs.forget(make(&*fs, dir, &n), 1));
        let mut most = 0;
        for round in 1..60 {
            if syncs & 1 != 0 {
                fs.syncfs().unwrap();
            }
            all(round - 1).for_each(|n| fs.unlink(dir, n.as_bytes()).unwrap());
            if syncs & 2 != 0 {
                fs.syncfs().unwrap();
            }
            all(round).for_each(|n| fs.forget(make(&*fs, dir, &n), 1));
            most = fs.getattr(dir).unwrap().size.max(most);
        }
        // Names of 110 bytes on average, in chunks that they fill in part; twice as many if they may have to come back.
        let limit = if mode == "softupdates" && syncs == 1 { 28 << 10 } else { 14 << 10 };
        assert!(most <= limit, "{mode}, {syncs}: {most}");
        fs.unmount().unwrap();
        clean(&dev);
    }
}

#[test]
fn a_size_that_waits_for_its_page_does_not_wait_for_other_blocks() {
    let dev = fresh(64 << 20, "block=16K");
    let fs = mount(&dev, "keep=softupdates");
    let ino = make(&*fs, fs.root(), "x");
    fs.write(ino, 0, &[1; 100]).unwrap();
    fs.unmount().unwrap();
    let recording = RecordingDevice::new(dev);
    let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000_000, nanos: 0 }));
    let options = MountOptions { options: Options::parse("keep=softupdates"), ..Default::default() };
    let fs = Ffs.mount(Devices::single(recording.clone()), &options, clock.clone()).unwrap();
    let ino = fs.lookup(fs.root(), b"x").unwrap().ino;
    // Nobody has read what is after the end: it may be what a power cut left.
    fs.write(ino, 0, &[2; 130]).unwrap();
    let mut next = clock.now();
    for block in 1..6 {
        let end = clock.now().plus_ms(25_000);
        while next <= end {
            clock.advance_ms(clock.now().ms_until(next));
            next = fs.background(next);
        }
        clock.advance_ms(clock.now().ms_until(end));
        fs.write(ino, block << 16, &[3; 10]).unwrap();
    }
    assert!(counter(&*fs, "rollbacks") < 25, "{} writes were rolled back", counter(&*fs, "rollbacks"));
    let left = recording.crash_state(recording.events(), &CrashChoice::NoneKept);
    let fs = Ffs.mount(Devices::single(left), &options, clock).unwrap();
    let size = fs.lookup(fs.root(), b"x").unwrap().size;
    assert!(size >= 3 << 16, "{size} bytes on disk 75 seconds after they were more");
}

/// With `nodirhash` the number of names that a lookup compares grows with the directory, and what it finds is the same.
#[test]
fn directories_without_a_hash_are_searched_from_their_beginning() {
    for (options, is_hashed) in [("cache=4M", true), ("cache=4M,nodirhash", false)] {
        let dev = fresh(16 << 20, "");
        let fs = mount(&dev, options);
        let name = |i: u32| format!("file{i:03}");
        let all: Vec<Ino> = (0..400).map(|i| make(&*fs, fs.root(), &name(i))).collect();
        let compared = || counter(&*fs, "names_compared");
        let lookup = |i: u32| {
            let before = compared();
            let found = fs.lookup(fs.root(), name(i).as_bytes()).map(|attr| attr.ino);
            if found.is_ok() {
                fs.forget(all[i as usize], 1);
            }
            (found, compared() - before)
        };
        let (first, last, none) = (lookup(0), lookup(399), lookup(400));
        assert_eq!((first.0.unwrap(), last.0.unwrap()), (all[0], all[399]));
        assert!(matches!(none.0, Err(Error::Errno(Errno::ENOENT))));
        // The dots come first, and at the end there is free space.
        let wanted = if is_hashed { (0, 0, 0..1) } else { (3, 402, 402..410) };
        assert_eq!((first.1, last.1), (wanted.0, wanted.1), "{options}");
        assert!(wanted.2.contains(&none.1), "{options}: {}", none.1);
        all.iter().for_each(|ino| fs.forget(*ino, 1));
        (0..400).for_each(|i| fs.unlink(fs.root(), name(i).as_bytes()).unwrap());
        fs.unmount().unwrap();
        clean(&dev);
    }
}

/// Directories in one are near it, and with `spreaddirs` each is in another cylinder group.
#[test]
fn with_spreaddirs_directories_go_apart() {
    let groups = |options| {
        let dev = fresh(64 << 20, "block=4K,cg=8M");
        let fs = mount(&dev, options);
        let mkdir = |dir, name: &str| fs.mkdir(&Cx::default(), dir, name.as_bytes(), 0o755).unwrap().ino;
        let parent = mkdir(fs.root(), "parent");
        let all: Vec<Ino> = (0..6).map(|n| mkdir(parent, &format!("d{n}"))).collect();
        fs.unmount().unwrap();
        let facts = Ffs.probe(&dev).unwrap().unwrap().facts;
        let inodes =
            facts.iter().find(|(name, _)| *name == "cg_inodes").map(|(_, n)| n.parse::<u64>().unwrap()).unwrap();
        all.iter().map(|ino| ino.0 / inodes).collect::<std::collections::BTreeSet<u64>>().len()
    };
    assert_eq!((groups(""), groups("spreaddirs")), (1, 6));
}

/// Free fragments and inodes, as `df` shows them.
fn free(fs: &dyn FileSystem) -> (u64, u64, u64) {
    let s = fs.statfs().unwrap();
    (s.bfree, s.bavail, s.ffree)
}

fn filled(fs: &dyn FileSystem, name: &str, len: usize) -> Ino {
    let ino = make(fs, fs.root(), name);
    assert_eq!(fs.write(ino, 0, &vec![1; len]).unwrap(), len);
    fs.syncfs().unwrap();
    ino
}

/// What was removed was used for up to a minute, as `df` had it, though whoever needed it got it.
#[test]
fn what_is_removed_counts_as_free_at_once() {
    for mode in MODES {
        let fs = mount(&fresh(64 << 20, ""), &format!("keep={mode}"));
        let root = fs.root();
        fs.syncfs().unwrap();
        let before = free(&*fs);
        let (a, b) = (filled(&*fs, "a", 9_000_000), filled(&*fs, "b", 300));
        let used = free(&*fs);
        assert!(used < before);
        fs.setattr(a, &SetAttr { size: Some(0), ..Default::default() }).unwrap();
        fs.unlink(root, b"b").unwrap();
        assert_eq!(free(&*fs).2, used.2, "{mode}: an inode in use");
        fs.forget(b, 1);
        assert_eq!(free(&*fs), (before.0, before.1, before.2 - 1), "{mode}");
        fs.unlink(root, b"a").unwrap();
        fs.forget(a, 1);
        assert_eq!(free(&*fs), before, "{mode}");
        fs.syncfs().unwrap();
        assert_eq!(free(&*fs), before, "{mode}: synced");
        let dir = fs.mkdir(&Cx::default(), root, b"d", 0o755).unwrap().ino;
        fs.syncfs().unwrap();
        fs.rmdir(root, b"d").unwrap();
        fs.forget(dir, 1);
        assert_eq!(free(&*fs), before, "{mode}: a directory");
    }
}

/// The first freed the names, and the space only the second.
#[test]
fn one_sync_frees_all_that_was_removed() {
    for mode in MODES {
        let dev = fresh(64 << 20, "");
        let fs = mount(&dev, &format!("keep={mode}"));
        let used = |dev: MemDevice| {
            let options = CheckOptions { repair: Repair::No, force: true };
            let report = Ffs.check(Devices::single(dev), &options, &mut |_, _, _| {}).unwrap();
            assert_eq!(report.issues, [], "{mode}");
            report.used_bytes
        };
        fs.syncfs().unwrap();
        let before = used(dev.snapshot());
        let a = filled(&*fs, "a", 20_000_000);
        fs.forget(a, 1);
        fs.unlink(fs.root(), b"a").unwrap();
        fs.syncfs().unwrap();
        assert_eq!(used(dev.snapshot()), before, "{mode}");
    }
}

/// What `df` shows as free can be had at once.
#[test]
fn a_full_volume_takes_as_much_as_was_removed() {
    for mode in MODES {
        let fs = mount(&fresh(32 << 20, ""), &format!("keep={mode}"));
        let root = fs.root();
        let fill = |name: &str| {
            let (ino, mut at) = (make(&*fs, root, name), 0);
            let full = loop {
                match fs.write(ino, at, &vec![2; 100_000]) {
                    Ok(n) => at += n as u64,
                    Err(e) => break e.errno(),
                }
            };
            assert_eq!(full, Errno::ENOSPC);
            let s = fs.statfs().unwrap();
            assert!(s.bavail < u64::from(s.bsize / s.frsize), "{mode}: {}", s.bavail);
            (ino, at)
        };
        let (ino, first) = fill("a");
        assert!(first > 20 << 20, "{mode}: {first}");
        for name in ["b", "c"] {
            fs.syncfs().unwrap();
            fs.forget(ino, 1);
            fs.unlink(root, if name == "b" { b"a" } else { b"b" }).unwrap();
            let (again, took) = fill(name);
            assert_eq!(took, first, "{mode}");
            fs.forget(again, 1);
        }
        fs.unmount().unwrap();
    }
}
