//! What a power cut leaves, one case at a time, at each event of the device and with many fates of what was pending.

use arbor_base::device::{CrashChoice, Device, Kind, MemDevice, RecordingDevice};
use arbor_base::vfs::*;
use arbor_ffs::Ffs;
use arbor_ffs::format::{SECTOR, SuperBlock};
use std::sync::Arc;
use zerocopy::FromBytes;

const ORDERED: [&str; 3] = ["softupdates", "journal", "sync"];

fn fresh() -> MemDevice {
    let dev = MemDevice::new(16 << 20);
    Ffs.format(Devices::single(dev.clone()), &FormatOptions { uuid: [9; 16], ..Default::default() }).unwrap();
    dev
}

fn mount<D: Device + 'static>(dev: D, keep: &str) -> Result<Arc<dyn FileSystem>> {
    let options = MountOptions { options: Options::parse(&format!("keep={keep}")), ..Default::default() };
    let clock = ManualClock::new(Time { secs: 1_000_000_000, nanos: 0 });
    Ffs.mount(Devices::single(dev), &options, Arc::new(clock))
}

fn check<D: Device + 'static>(dev: D, repair: Repair) -> CheckReport {
    Ffs.check(Devices::single(dev), &CheckOptions { repair, force: true }, &mut |_, _, _| {}).unwrap()
}

fn make(fs: &dyn FileSystem, name: &str, bytes: &[u8]) -> Ino {
    let ino = fs.mknod(&Cx::default(), fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0).unwrap().ino;
    assert_eq!(fs.write(ino, 0, bytes).unwrap(), bytes.len());
    ino
}

fn read_all(fs: &dyn FileSystem, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0xee; fs.getattr(ino).unwrap().size as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Each event with everything kept, nothing kept, and some kept.
fn cuts(dev: &RecordingDevice) -> impl Iterator<Item = (usize, CrashChoice)> {
    let some = (0..6).map(CrashChoice::DropOne).chain((0..6).map(CrashChoice::Seeded));
    let choices: Vec<_> = [CrashChoice::AllKept, CrashChoice::NoneKept].into_iter().chain(some).collect();
    (0..=dev.events()).flat_map(move |at| choices.clone().into_iter().map(move |choice| (at, choice)))
}

/// A volume that lost its power with two files and a directory in use that were removed, and one file left.
fn with_orphans(keep: &str) -> MemDevice {
    let dev = fresh();
    let fs = mount(dev.clone(), keep).unwrap();
    make(&*fs, "left", &[3; 5000]);
    make(&*fs, "small", &[1; 300]);
    make(&*fs, "large", &[2; 300_000]);
    fs.mkdir(&Cx::default(), fs.root(), b"dir", 0o755).unwrap();
    fs.syncfs().unwrap();
    fs.unlink(fs.root(), b"small").unwrap();
    fs.unlink(fs.root(), b"large").unwrap();
    fs.rmdir(fs.root(), b"dir").unwrap();
    fs.fsync(fs.root(), false).unwrap();
    dev.snapshot()
}

fn only_the_other_is_left(dev: MemDevice, keep: &str, when: &str) {
    let fs = mount(dev.clone(), keep).unwrap_or_else(|e| panic!("{keep}, {when}: {e}"));
    let ino = fs.lookup(fs.root(), b"left").unwrap().ino;
    assert_eq!(read_all(&*fs, ino), [3; 5000]);
    for gone in ["small", "large", "dir"] {
        assert!(fs.lookup(fs.root(), gone.as_bytes()).is_err(), "{keep}, {when}: {gone}");
    }
    // Synchronous writes make names durable at once, and link counts later.
    assert!(keep == "sync" || fs.lookup(fs.root(), b"lost+found").is_err(), "{keep}, {when}");
    fs.unmount().unwrap();
    assert_eq!(check(dev, Repair::No).issues, [], "{keep}, {when}");
}

#[test]
fn preening_frees_what_was_removed_while_it_was_open() {
    for keep in ORDERED {
        for repair in [Repair::Preen, Repair::Yes] {
            let dev = with_orphans(keep);
            let report = check(dev.clone(), repair);
            assert_eq!(report.remaining(), 0, "{keep}: {report:?}");
            assert!(report.issues.iter().all(|i| i.severity <= Severity::Warning), "{keep}: {report:?}");
            only_the_other_is_left(dev, keep, "after the check");
        }
    }
}

#[test]
fn a_cut_while_the_checker_mends_what_a_crash_left_leaves_as_much() {
    for keep in ORDERED {
        for repair in [Repair::Preen, Repair::Yes] {
            let dev = RecordingDevice::new(with_orphans(keep));
            check(dev.clone(), repair);
            assert!(dev.events() > 3, "{keep}: the checker writes");
            for (at, choice) in cuts(&dev) {
                let when = format!("{repair:?} cut at {at} {choice:?}");
                only_the_other_is_left(dev.crash_state(at, &choice), keep, &when);
                let again = dev.crash_state(at, &choice);
                let report = check(again.clone(), Repair::Preen);
                assert_eq!(report.remaining(), 0, "{keep}, {when}: {report:?}");
                only_the_other_is_left(again, keep, &format!("{when}, and preened"));
            }
        }
    }
}

#[test]
fn a_volume_that_was_kept_in_no_order_is_refused_until_it_is_mended() {
    let dev = fresh();
    let fs = mount(dev.clone(), "async").unwrap();
    make(&*fs, "file", &[1; 5000]);
    fs.syncfs().unwrap();
    let dev = dev.snapshot();
    let is_refused = |keep| mount(dev.clone(), keep).is_err_and(|e| e.to_string().contains("run fsck"));
    assert!(is_refused("async") && is_refused("journal"));
    assert_eq!(check(dev.clone(), Repair::Yes).remaining(), 0);
    mount(dev, "async").unwrap().unmount().unwrap();
}

/// Whichever of the two tails of a journal is nonsense, the other one serves; one that a program has left behind that
/// knows of one only does not.
#[test]
fn either_tail_of_a_journal_is_enough() {
    let sb = |dev: &MemDevice| {
        let mut bytes = vec![0; SECTOR];
        dev.read_at(Kind::Super, 0, &mut bytes).unwrap();
        SuperBlock::read_from_bytes(&bytes).unwrap()
    };
    let byte = |sb: &SuperBlock, n: u32| u64::from(sb.journal_start.get() + n) << sb.frag_shift.get();
    let nonsense = |dev: &MemDevice, at: u64| dev.write_at(Kind::Other, at, &[0xab; SECTOR]).unwrap();
    let dev = with_orphans("journal");
    let volume = sb(&dev);
    let tails = [byte(&volume, 0), byte(&volume, volume.journal_frags.get() - 1)];
    for at in tails {
        for preened in [false, true] {
            let dev = dev.snapshot();
            nonsense(&dev, at);
            if preened {
                assert_eq!(check(dev.clone(), Repair::Preen).remaining(), 0);
            }
            only_the_other_is_left(dev, "journal", &format!("nonsense at {at}"));
        }
    }
    let both = dev.snapshot();
    tails.iter().for_each(|at| nonsense(&both, *at));
    assert!(mount(both, "journal").is_err_and(|e| e.to_string().contains("journal tail")));
    // The last tail is that of the mount before, and what the journal holds is newer.
    let frag = 1 << volume.frag_shift.get();
    let mut old = vec![0; frag];
    dev.read_at(Kind::Other, tails[1], &mut old).unwrap();
    only_the_other_is_left(dev.clone(), "journal", "as it is");
    let fs = mount(dev.clone(), "journal").unwrap();
    make(&*fs, "new", &[4; 100]);
    fs.fsync(fs.root(), false).unwrap();
    let dev = dev.snapshot();
    dev.write_at(Kind::Other, tails[1], &old).unwrap();
    let one = dev.snapshot();
    assert!(mount(one.clone(), "journal").is_ok_and(|fs| fs.lookup(fs.root(), b"new").is_ok()), "the newer of the two");
    nonsense(&dev, tails[0]);
    assert!(mount(dev, "journal").is_err_and(|e| e.to_string().contains("journal tail")));
}

/// A rename over a file, and an exchange, is durable no earlier than the data that the other file has by then, whether
/// its blocks are new or were written over in their places.
#[test]
fn a_rename_over_a_file_leaves_its_old_or_its_new_contents() {
    for keep in ORDERED {
        for (before, old, new) in
            [(0, 100, 300), (0, 5000, 70_000), (300, 100, 300), (70_000, 90, 70_000), (300_000, 9, 300_000)]
        {
            for flags in [RenameFlags::empty(), RenameFlags::EXCHANGE] {
                takes_the_name(keep, before, (vec![1; old], vec![2; new]), flags);
            }
        }
    }
}

fn takes_the_name(keep: &str, before: usize, (old, new): (Vec<u8>, Vec<u8>), flags: RenameFlags) {
    let disk = fresh();
    let fs = mount(disk.clone(), keep).unwrap();
    make(&*fs, "b", &old);
    make(&*fs, "c", &[]);
    if before > 0 {
        make(&*fs, "a", &vec![3; before]);
    }
    fs.unmount().unwrap();
    let dev = RecordingDevice::new(disk);
    let fs = mount(dev.clone(), keep).unwrap();
    let find = |name: &str| fs.lookup(fs.root(), name.as_bytes()).map(|e| e.ino);
    let a = find("a").unwrap_or_else(|_| make(&*fs, "a", &[]));
    fs.write(a, 0, &new).unwrap();
    fs.rename(&Cx::default(), fs.root(), b"a", fs.root(), b"b", flags).unwrap();
    fs.setattr(find("c").unwrap(), &SetAttr { mode: Some(0o600), ..Default::default() }).unwrap();
    fs.fsync(find("c").unwrap(), false).unwrap();
    fs.fsync(fs.root(), false).unwrap();
    let mut seen = [0, 0];
    for (at, choice) in cuts(&dev) {
        let fs = mount(dev.crash_state(at, &choice), keep).unwrap();
        let found = read_all(&*fs, fs.lookup(fs.root(), b"b").unwrap().ino);
        let first = found.first();
        let why = format!("{keep} {flags:?}, {before} bytes before, {at} {choice:?}: {} of {first:?}", found.len());
        assert!(found == old || found == new, "{why}");
        seen[usize::from(found == new)] += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{keep} {flags:?}, {before} bytes before: {seen:?}");
}

/// The blocks of a file that was removed are given to another one, whose bytes are written later than its names.
#[test]
fn blocks_of_a_removed_file_do_not_show_in_a_new_one() {
    for keep in ORDERED {
        let disk = fresh();
        let fs = mount(disk.clone(), keep).unwrap();
        make(&*fs, "secret", &vec![0x5e; 400_000]);
        fs.unmount().unwrap();
        let dev = RecordingDevice::new(disk);
        let fs = mount(dev.clone(), keep).unwrap();
        fs.unlink(fs.root(), b"secret").unwrap();
        fs.syncfs().unwrap();
        // Of the new ones' inodes and indirect blocks some are written for what else lies in their blocks.
        for n in 0..4 {
            make(&*fs, &format!("new{n}"), &vec![7; 90_000 + n * 40_000]);
        }
        fs.setattr(fs.root(), &SetAttr { mode: Some(0o700), ..Default::default() }).unwrap();
        fs.fsync(fs.root(), false).unwrap();
        let mut seen = 0;
        for (at, choice) in cuts(&dev) {
            let fs = mount(dev.crash_state(at, &choice), keep).unwrap();
            for n in 0..4 {
                let Ok(e) = fs.lookup(fs.root(), format!("new{n}").as_bytes()) else { continue };
                let found = read_all(&*fs, e.ino);
                seen += 1;
                assert!(found.iter().all(|b| [0, 7].contains(b)), "{keep}: {at} {choice:?} new{n}");
            }
        }
        assert!(seen > 0, "{keep}");
    }
}

/// What is cut off a file is free when that is on disk, and nothing of it is owed at the end.
#[test]
fn what_was_cut_off_is_free() {
    for keep in ORDERED {
        let disk = fresh();
        let fs = mount(disk.clone(), keep).unwrap();
        let free = || fs.statfs().unwrap().bfree;
        let x = make(&*fs, "x", &[]);
        fs.syncfs().unwrap();
        let before = free();
        for to in [0, 3000, 20_000] {
            fs.write(x, 0, &[1; 100_000]).unwrap();
            fs.syncfs().unwrap();
            fs.setattr(x, &SetAttr { size: Some(to), ..Default::default() }).unwrap();
            fs.syncfs().unwrap();
            assert!(free() + 12 > before, "{keep}, to {to}: {} of {before}", free());
        }
        fs.setattr(x, &SetAttr { size: Some(0), ..Default::default() }).unwrap();
        fs.syncfs().unwrap();
        assert_eq!(free(), before, "{keep}");
        fs.unmount().unwrap();
        assert!(Ffs.probe(&disk).unwrap().unwrap().clean, "{keep}");
    }
}
