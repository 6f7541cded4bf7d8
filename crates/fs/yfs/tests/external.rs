//! A log on a device of its own.

use arbor_base::device::{Kind, MemDevice};
use arbor_base::vfs::*;
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
