//! A log on a device of its own.

use arbor_base::device::{CrashChoice, Device, Kind, MemDevice, OffsetDevice, RecordingDevice, SECTOR};
use arbor_base::vfs::*;
use arbor_torture::config::Config;
use arbor_torture::crash::explore;
use arbor_torture::generate::Profile;
use arbor_yfs::Yfs;
use std::sync::Arc;

const CX: Cx = Cx { uid: 0, gid: 0 };

#[test]
fn an_external_log() {
    let (device, log) = (MemDevice::new(8 << 20), MemDevice::new(4 << 20));
    let devices = || {
        let mut d = Devices::single(device.clone());
        d.extra.insert("log".into(), Arc::new(log.clone()));
        d
    };
    Yfs.format(devices(), &FormatOptions { uuid: [7; 16], ..FormatOptions::default() }).expect("format");
    let fs = Yfs.mount(devices(), &MountOptions::default(), Arc::new(SystemClock)).expect("mount");
    for n in 0..100 {
        fs.mkdir(&CX, fs.root(), format!("{n}").as_bytes(), 0o755).expect("mkdir");
    }
    fs.syncfs().expect("syncfs");
    let options = |repair| CheckOptions { repair, force: true };
    for repair in [Repair::No, Repair::Preen, Repair::No] {
        let report = Yfs.check(devices(), &options(repair), &mut |_, _, _| ()).expect("check");
        assert_eq!((report.issues, report.directories), (vec![], 101));
    }
    assert!(Yfs.check(Devices::single(device.clone()), &options(Repair::No), &mut |_, _, _| ()).is_err());
    Yfs.describe(&devices(), &mut |r| assert!(r.kind != Kind::Log)).expect("describe");
}

/// An external log of another time would lose what the right one holds, or destroy it for the newer copy of the volume.
#[test]
fn an_external_log_of_another_time() {
    let (device, log) = (MemDevice::new(8 << 20), MemDevice::new(4 << 20));
    let devices = |device: &MemDevice, log: &MemDevice| {
        let mut d = Devices::single(device.clone());
        d.extra.insert("log".into(), Arc::new(log.clone()));
        d
    };
    let mount = |device: &MemDevice, log: &MemDevice| {
        let options = MountOptions::default();
        Yfs.mount(devices(device, log), &options, Arc::new(SystemClock)).map_err(|e| e.to_string())
    };
    let use_it = |fs: &dyn FileSystem, name: &str| {
        fs.mkdir(&CX, fs.root(), name.as_bytes(), 0o755).expect("mkdir");
        fs.syncfs().expect("syncfs");
    };
    Yfs.format(devices(&device, &log), &FormatOptions { uuid: [7; 16], ..FormatOptions::default() }).expect("format");
    let fs = mount(&device, &log).expect("mount");
    use_it(&*fs, "one");
    fs.unmount().expect("unmount");
    let (old_device, old_log) = (device.snapshot(), log.snapshot());
    let fs = mount(&device, &log).expect("mount");
    use_it(&*fs, "two");
    drop(fs);
    let (cut_device, cut_log) = (device.snapshot(), log.snapshot());
    let says = mount(&cut_device, &old_log).err().expect("an older log is refused");
    assert!(says.contains("older copy of the log"), "{says}");
    let says = mount(&old_device, &cut_log).err().expect("an older volume is refused");
    assert!(says.contains("the volume is an older copy"), "{says}");
    let check = CheckOptions { repair: Repair::Preen, force: true };
    for (device, log) in [(&cut_device, &old_log), (&old_device, &cut_log)] {
        let before = [device.to_bytes(), log.to_bytes()];
        let report = Yfs.check(devices(device, log), &check, &mut |_, _, _| ()).expect("check");
        assert_eq!((report.issues[0].code, report.issues[0].repaired), ("LogTime", false));
        assert!([device.to_bytes(), log.to_bytes()] == before, "preening mixes them");
    }
    let short = MemDevice::from_bytes(&cut_log.to_bytes()[..100 << 10]);
    let says = mount(&cut_device, &short).err().expect("a short log is refused");
    assert!(says.contains("truncated log?"), "{says}");
    // Nothing of that has changed what is there.
    let fs = mount(&cut_device, &cut_log).expect("the right ones");
    assert!(fs.lookup(fs.root(), b"two").is_ok());
    fs.unmount().expect("unmount");
    // Of a volume that was unmounted any log will do.
    mount(&cut_device, &old_log).expect("nothing is in it");
}

/// A volume that was unmounted can be looked at without its log.
#[test]
fn a_clean_volume_is_read_without_its_log() {
    let (device, log) = (MemDevice::new(8 << 20), MemDevice::new(4 << 20));
    let mut both = Devices::single(device.clone());
    both.extra.insert("log".into(), Arc::new(log));
    let again = Devices { main: both.main.clone(), extra: both.extra.clone() };
    Yfs.format(both, &FormatOptions { uuid: [7; 16], ..FormatOptions::default() }).expect("format");
    let fs = Yfs.mount(again, &MountOptions::default(), Arc::new(SystemClock)).expect("mount");
    fs.mkdir(&CX, fs.root(), b"one", 0o755).expect("mkdir");
    fs.syncfs().expect("syncfs");
    let cut = device.snapshot();
    fs.unmount().expect("unmount");
    let alone = |device: &MemDevice, read_only| {
        let options = MountOptions { read_only, ..MountOptions::default() };
        Yfs.mount(Devices::single(device.clone()), &options, Arc::new(SystemClock))
    };
    let fs = alone(&device, true).expect("a mount that only looks");
    assert!(fs.lookup(fs.root(), b"one").is_ok());
    fs.unmount().expect("unmount");
    for (device, read_only) in [(&device, false), (&cut, true)] {
        assert!(alone(device, read_only).err().expect("refused").to_string().contains("option log=FILE is needed"));
    }
    // Zeros take its place.
    let mut both = Devices::single(device.clone());
    both.extra.insert("log".into(), Arc::new(MemDevice::new(4 << 20)));
    let fs = Yfs.mount(both, &MountOptions::default(), Arc::new(SystemClock)).expect("mount");
    assert!(fs.lookup(fs.root(), b"one").is_ok());
    fs.unmount().expect("unmount");
}

const MAIN: u64 = 8 << 20;
const LOG: u64 = 4 << 20;

/// A volume and its log as windows of one device.
fn both(whole: &(impl Device + Clone + 'static)) -> Devices {
    let window = |start, len| Arc::new(OffsetDevice::new(whole.clone(), start, len).expect("it fits"));
    let mut devices = Devices::single(window(0, MAIN));
    devices.extra.insert("log".into(), window(MAIN, LOG));
    devices
}

/// The volume of one, the log of another.
fn mixed(volume: &MemDevice, log: &MemDevice) -> MemDevice {
    let (volume, log, main) = (volume.to_bytes(), log.to_bytes(), MAIN as usize);
    MemDevice::from_bytes(&[&volume[..main], &log[main..]].concat())
}

fn mounted(
    whole: &(impl Device + Clone + 'static),
    read_only: bool,
) -> std::result::Result<Arc<dyn FileSystem>, String> {
    let options = MountOptions { read_only, ..MountOptions::default() };
    Yfs.mount(both(whole), &options, Arc::new(SystemClock)).map_err(|e| e.to_string())
}

fn checked(whole: &(impl Device + Clone + 'static), repair: Repair) -> CheckReport {
    Yfs.check(both(whole), &CheckOptions { repair, force: true }, &mut |_, _, _| ()).expect("check")
}

const NAMES: [&[u8]; 3] = [b"one", b"two", b"three"];

fn has_all(fs: &dyn FileSystem) -> bool {
    NAMES.iter().all(|name| fs.lookup(fs.root(), name).is_ok())
}

/// A volume after a power cut: its log holds what was synced.
fn cut() -> MemDevice {
    let whole = MemDevice::new(MAIN + LOG);
    Yfs.format(both(&whole), &FormatOptions { uuid: [7; 16], ..FormatOptions::default() }).expect("format");
    let fs = mounted(&whole, false).expect("mount");
    for name in NAMES {
        fs.mkdir(&CX, fs.root(), name, 0o755).expect("mkdir");
    }
    fs.syncfs().expect("syncfs");
    whole.snapshot()
}

/// Who recovers a volume.
#[derive(Clone, Copy, Debug)]
enum By {
    Mount,
    MountAndUnmount,
    Check(Repair),
}

const ALL: [By; 4] = [By::Mount, By::MountAndUnmount, By::Check(Repair::Preen), By::Check(Repair::Yes)];

fn recover(whole: &(impl Device + Clone + 'static), by: By) {
    if let By::Check(repair) = by {
        assert!(checked(whole, repair).recovered);
        return;
    }
    let fs = mounted(whole, false).expect("mount");
    assert!(has_all(&*fs));
    if matches!(by, By::MountAndUnmount) {
        fs.unmount().expect("unmount");
    }
}

/// A log that was emptied went with a copy of the volume whose records it no longer held: what was synced was gone, and the right
/// log no longer helped.
#[test]
fn a_log_that_was_emptied_goes_with_no_older_copy() {
    for by in ALL {
        let before = cut();
        let after = before.snapshot();
        recover(&after, by);
        let wrong = mixed(&before, &after.snapshot());
        let bytes = wrong.to_bytes();
        for read_only in [false, true] {
            let says = mounted(&wrong, read_only).err().expect("an older volume is refused");
            assert!(
                says.contains("the volume is an older copy: the log is of mount 2, the volume of mount 1"),
                "{says}"
            );
            assert!(says.contains("whose records the log no longer holds"), "{says}");
        }
        for repair in [Repair::No, Repair::Preen] {
            let report = checked(&wrong, repair);
            assert_eq!((report.issues[0].code, report.issues[0].repaired), ("LogTime", false), "{by:?}");
        }
        assert!(wrong.to_bytes() == bytes, "{by:?}: it is left as it is");
        assert!(has_all(&*mounted(&mixed(&wrong, &before), false).expect("the right log")));
        let report = checked(&wrong, Repair::Yes);
        assert!(report.issues.iter().all(|i| i.repaired), "{:?}", report.issues);
        mounted(&wrong, false).expect("whoever wants to goes on without");
    }
}

/// Neither does that of a volume which was recovered and recovered again.
#[test]
fn a_log_that_was_emptied_twice_goes_with_no_older_copy() {
    for (first, then) in ALL.into_iter().flat_map(|first| ALL.map(|then| (first, then))) {
        let before = cut();
        let after = before.snapshot();
        recover(&after, first);
        let after = after.snapshot();
        let between = after.snapshot();
        if let By::Check(repair) = then {
            checked(&after, repair);
        } else {
            recover(&after, then);
        }
        let is_refused = |volume: &MemDevice| mounted(&mixed(volume, &after.snapshot()), false).is_err();
        assert!(is_refused(&before), "{first:?}, {then:?}");
        let in_use = matches!(first, By::Mount);
        assert!(!in_use || is_refused(&between), "{first:?}, {then:?}");
        assert!(has_all(&*mounted(&after, false).expect("the right ones")));
    }
}

/// A copy of the superblock, which may be of no mount, stands for a damaged one: what a log of a later mount lacks is told, and
/// the numbers of mounts do not go back, so that no older copy fits afterwards.
#[test]
fn a_damaged_superblock_does_not_make_a_volume_fit() {
    let damage = |volume: &MemDevice| volume.write_at(Kind::Super, 0, &[0; SECTOR]).expect("write");
    let before = cut();
    for by in ALL {
        let after = before.snapshot();
        recover(&after, by);
        let after = after.snapshot();
        let wrong = mixed(&before, &after);
        damage(&wrong);
        for repair in [Repair::No, Repair::Yes] {
            let report = checked(&wrong, repair);
            assert!(report.issues.iter().any(|i| i.code == "LogTime"), "{by:?}: {:?}", report.issues);
        }
    }
    let right = before.snapshot();
    for _ in 0..3 {
        mounted(&right, false).expect("mount").unmount().expect("unmount");
    }
    damage(&right);
    assert_eq!(checked(&right, Repair::Yes).remaining(), 0);
    assert!(mounted(&mixed(&before, &right.snapshot()), false).is_err(), "an older copy fits");
    assert!(has_all(&*mounted(&right, false).expect("the right ones")));
}

/// Volume and log go to the next mount in several writes: after a power cut between any two of them they still fit.
#[test]
fn the_power_fails_while_an_external_log_is_emptied() {
    for by in ALL {
        let before = cut();
        let recording = RecordingDevice::new(before.snapshot());
        recover(&recording, by);
        for event in 0..=recording.events() {
            for choice in [CrashChoice::NoneKept, CrashChoice::AllKept, CrashChoice::Seeded(event as u64)] {
                let state = recording.crash_state(event, &choice);
                let again = state.snapshot();
                recover_from(&state, &before, (by, event));
                let report = checked(&again, Repair::Preen);
                assert_eq!(report.issues, [], "{by:?}, event {event}");
                assert!(has_all(&*mounted(&again, false).expect("checked")), "{by:?}, event {event}");
            }
        }
    }
}

fn recover_from(state: &MemDevice, before: &MemDevice, at: (By, usize)) {
    let fs = mounted(state, false).unwrap_or_else(|e| panic!("{at:?}: {e}"));
    assert!(has_all(&*fs), "{at:?}");
    drop(fs);
    assert!(mounted(&mixed(before, &state.snapshot()), false).is_err(), "{at:?}: the copy still fits");
}

/// Cuts of whole sequences, and of the recoveries after them.
#[test]
fn power_loss_with_an_external_log() {
    for (profile, seed) in [(Profile::Sync, 1), (Profile::Small, 2)] {
        let extra_devices = [("log".to_string(), 8 << 20)].into();
        let config = Config { seed, count: 1, extra_devices, budget: 150, cut_again: 2, ..Config::crash(profile) };
        explore(&Yfs, &config);
    }
}
