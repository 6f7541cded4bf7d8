//! The border between the areas: the metadata area grows, on one device at the cost of the data area.

use arbor_base::device::{CrashChoice, Device, MemDevice, RecordingDevice};
use arbor_base::vfs::*;
use arbor_dualfs::DualFs;
use std::collections::BTreeMap;
use std::sync::Arc;

const BLOCK: usize = 4096;
const CX: Cx = Cx { uid: 0, gid: 0 };
const MIB: u64 = 1 << 20;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }))
}

fn format(devices: Devices, options: &str) {
    let options = FormatOptions { uuid: [7; 16], options: Options::parse(options), ..FormatOptions::default() };
    DualFs.format(devices, &options).expect("format");
}

fn mount(devices: Devices, options: &str) -> Arc<dyn FileSystem> {
    let options = MountOptions { options: Options::parse(options), ..MountOptions::default() };
    DualFs.mount(devices, &options, clock()).expect("mount")
}

fn is_sound(devices: Devices) {
    let options = CheckOptions { repair: Repair::No, force: true };
    let report = DualFs.check(devices, &options, &mut |_, _, _| ()).expect("check");
    assert_eq!(report.issues, vec![]);
}

fn fact(dev: &dyn Device, name: &str) -> u64 {
    let info = DualFs.probe(dev).expect("probe").expect("a volume");
    info.facts.iter().find(|(key, _)| *key == name).expect("the fact").1.parse().expect("a number")
}

/// Contents of the files that [`fill`] makes, by name.
type Files = BTreeMap<String, Vec<u8>>;

/// Small files, a larger one with a hole, one that was overwritten where it lies, one with blocks promised, in directories of
/// several groups.
fn fill(fs: &dyn FileSystem) -> Files {
    let mut files = Files::new();
    for d in 0..4 {
        let dir = fs.mkdir(&CX, fs.root(), format!("dir{d}").as_bytes(), 0o755).expect("mkdir").ino;
        for n in 0..6u8 {
            let (name, bytes) = (format!("file{n}"), vec![d * 16 + n + 1; BLOCK * (usize::from(n) + 1) - 100]);
            let ino = fs.mknod(&CX, dir, name.as_bytes(), mode::IFREG | 0o644, 0).expect("mknod").ino;
            fs.write(ino, 0, &bytes).expect("write");
            files.insert(format!("dir{d}/{name}"), bytes);
        }
        fs.syncfs().expect("sync");
    }
    let ino = fs.mknod(&CX, fs.root(), b"large", mode::IFREG | 0o644, 0).expect("mknod").ino;
    let (far, mut large) = (600 * BLOCK, vec![9; 40 * BLOCK]);
    fs.write(ino, 0, &large).expect("write");
    large.resize(far, 0);
    large.resize(far + 20 * BLOCK, 8);
    fs.write(ino, far as u64, &large[far..]).expect("write");
    fs.syncfs().expect("sync");
    // Twice, so that they have no checksums and stay where they are.
    for n in [5, 6] {
        large[BLOCK..3 * BLOCK].fill(n);
        fs.write(ino, BLOCK as u64, &large[BLOCK..3 * BLOCK]).expect("write");
        fs.syncfs().expect("sync");
    }
    fs.fallocate(ino, FallocMode::default(), large.len() as u64, 8 * BLOCK as u64).expect("fallocate");
    large.resize(large.len() + 8 * BLOCK, 0);
    files.insert("large".into(), large);
    files
}

fn has(fs: &dyn FileSystem, files: &Files) {
    for (path, bytes) in files {
        let look = |dir, name: &str| fs.lookup(dir, name.as_bytes()).map(|attr| attr.ino);
        let ino = path.split('/').try_fold(fs.root(), look).unwrap_or_else(|e| panic!("{path}: {e}"));
        let mut found = vec![0; bytes.len() + 1];
        let len = fs.read(ino, 0, &mut found).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert!(found[..len] == bytes[..], "{path} has other contents");
    }
}

fn one(dev: &MemDevice) -> Devices {
    Devices::single(dev.clone())
}

/// Contents in the way move, whatever they are; a power cut at any moment leaves the old border or the new one, and all files.
#[test]
fn the_border_moves_under_power_loss() {
    let dev = MemDevice::new(24 * MIB);
    format(one(&dev), "segment=64K,meta=4M,group=1M");
    let fs = mount(one(&dev), "");
    let files = fill(&*fs);
    fs.unmount().expect("unmount");
    let (old, old_size) = (fact(&dev, "metadata_size"), fact(&dev, "data_size"));
    let new = 9 * MIB + 64 * 1024;
    let recorded = RecordingDevice::new(dev.snapshot());
    DualFs.resize_metadata(Devices::single(recorded.clone()), new, clock()).expect("it moves");
    let mut borders = [0, 0];
    for at in 0..=recorded.events() {
        for choice in [CrashChoice::AllKept, CrashChoice::NoneKept, CrashChoice::Seeded(at as u64)] {
            let disk = recorded.crash_state(at, &choice);
            let border = fact(&disk, "metadata_size");
            assert!(border == old || border == new, "{at} {choice:?}: {border}");
            borders[usize::from(border == new)] += 1;
            is_sound(one(&disk));
            let fs = mount(one(&disk), "");
            has(&*fs, &files);
            fs.unmount().expect("unmount");
            DualFs.resize_metadata(one(&disk), new, clock()).expect("once more");
            assert_eq!((fact(&disk, "metadata_size"), fact(&disk, "data_size")), (new, old_size - (new - old)));
            is_sound(one(&disk));
        }
    }
    assert!(borders[0] > 20 && borders[1] > 0, "{borders:?}");
    let disk = recorded.crash_state(recorded.events(), &CrashChoice::AllKept);
    let mut data = Vec::new();
    let mut note = |r: Region| data.extend((r.kind == arbor_base::device::Kind::Data).then_some(r.offset));
    DualFs.describe(&one(&disk), &mut note).expect("describe");
    assert!(data.iter().all(|at| *at >= new), "contents lie in the metadata area");
    let fs = mount(one(&disk), "");
    has(&*fs, &files);
    let blocks = fs.statfs().expect("statfs").blocks;
    assert_eq!(blocks * BLOCK as u64, old_size - (new - old));
}

/// A volume whose metadata area is full takes more files after the border has moved, all of the new area is used, and the
/// checker can search it for what the ifile has lost.
#[test]
fn a_full_metadata_area_grows() {
    let dev = MemDevice::new(64 * MIB);
    format(one(&dev), "segment=64K,meta=2M");
    let fill = |from: usize| {
        let fs = mount(one(&dev), "");
        let made = (from..).find(|n| fs.mknod(&CX, fs.root(), format!("{n:050}").as_bytes(), mode::IFREG, 0).is_err());
        fs.unmount().expect("unmount");
        made.expect("it is full at some time")
    };
    let first = fill(0);
    DualFs.resize_metadata(one(&dev), 8 * MIB, clock()).expect("it moves");
    is_sound(one(&dev));
    let second = fill(first);
    assert!(second > 3 * first, "{first}, then {second}");
    is_sound(one(&dev));
    // Without either checkpoint only the summaries of the log tell where everything is.
    dev.write_at(arbor_base::device::Kind::Super, BLOCK as u64, &[0; 2 * BLOCK]).expect("write");
    let options = CheckOptions { repair: Repair::Yes, force: true };
    DualFs.check(one(&dev), &options, &mut |_, _, _| ()).expect("check");
    is_sound(one(&dev));
    let fs = mount(one(&dev), "");
    let found = fs.lookup(fs.root(), format!("{:050}", second - 1).as_bytes());
    assert!(found.is_ok(), "the last file: {found:?}");
}

#[test]
fn what_cannot_be_is_refused() {
    let dev = MemDevice::new(24 * MIB);
    format(one(&dev), "segment=64K,meta=4M,group=1M");
    let fs = mount(one(&dev), "");
    let ino = fs.mknod(&CX, fs.root(), b"file", mode::IFREG | 0o644, 0).expect("mknod").ino;
    fs.write(ino, 0, &vec![1; 10 << 20]).expect("write");
    fs.unmount().expect("unmount");
    let before = dev.snapshot().to_bytes();
    let refused = |size: u64| match DualFs.resize_metadata(one(&dev), size, clock()) {
        Err(Error::Refused(why)) => why.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refused(2 * MIB).contains("cannot shrink to 2097152"));
    assert!(refused(14 * MIB).contains("bytes of contents: files have 10485760"));
    assert!(refused(1 << 50).contains("are too many for metadata"));
    DualFs.resize_metadata(one(&dev), 4 * MIB, clock()).expect("nothing to do");
    assert!(dev.to_bytes() == before, "something was written");
}

/// A device for metadata grows by itself, up to what addresses were kept for.
#[test]
fn a_device_for_metadata_grows() {
    let (meta, data) = (MemDevice::new(4 * MIB), MemDevice::new(24 * MIB));
    let devices = |meta: &MemDevice| Devices {
        main: Arc::new(meta.clone()),
        extra: BTreeMap::from([("data".to_string(), Arc::new(data.clone()) as Arc<dyn Device>)]),
    };
    format(devices(&meta), "segment=64K,group=1M");
    let fs = mount(devices(&meta), "");
    let files = fill(&*fs);
    fs.unmount().expect("unmount");
    let size = || DualFs.probe(&meta).expect("probe").expect("a volume").size;
    let (old, old_size) = (fact(&meta, "data_size"), size());
    assert!(old_size <= 28 * MIB, "{old_size}");
    DualFs.resize_metadata(devices(&meta), 12 * MIB, clock()).expect("it grows");
    assert_eq!((fact(&meta, "metadata_size"), fact(&meta, "data_size")), (12 * MIB, old));
    assert_eq!((meta.geometry().size, data.geometry().size), (12 * MIB + 4 * BLOCK as u64, 24 * MIB));
    is_sound(devices(&meta));
    let fs = mount(devices(&meta), "");
    has(&*fs, &files);
    fs.unmount().expect("unmount");
    DualFs.resize(devices(&meta), size() + 8 * MIB, clock()).expect("the other one grows");
    assert_eq!((data.geometry().size, fact(&meta, "data_size")), (32 * MIB, old + 8 * MIB));
    is_sound(devices(&meta));
    let refused = DualFs.resize_metadata(devices(&meta), 1 << 40, clock()).expect_err("too much").to_string();
    assert!(refused.contains("was made for at most") || refused.contains("too many"), "{refused}");
}
