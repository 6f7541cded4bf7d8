//! Growing: what it gives, and what it refuses. Power cuts are in `suites.rs`.

use arbor_base::device::{Device, Kind, MemDevice};
use arbor_base::vfs::*;
use arbor_lfs::Lfs;
use std::sync::Arc;

const OLD: u64 = 6 << 20;
const NEW: u64 = 20 << 20;
const SEGMENT: u64 = 128 << 10;
const HEADS: u64 = 4 << 12;
const CX: Cx = Cx { uid: 1000, gid: 100 };

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Time::default()))
}

fn mount(dev: &MemDevice) -> Arc<dyn FileSystem> {
    Lfs.mount(Devices::single(dev.clone()), &MountOptions::default(), clock()).unwrap()
}

fn resize(dev: &MemDevice, size: u64) -> Result<()> {
    Lfs.resize(Devices::single(dev.clone()), size, clock())
}

fn write(fs: &dyn FileSystem, name: &[u8], len: usize) -> Result<usize> {
    let ino = fs.mknod(&CX, fs.root(), name, mode::IFREG | 0o644, 0)?.ino;
    fs.write(ino, 0, &vec![7; len])
}

/// A volume that has a file, on a device that is larger and full of other things.
fn volume() -> MemDevice {
    let dev = MemDevice::new(OLD);
    let options = Options::parse("block=4K,segment=128K");
    let o = FormatOptions { uuid: *b"arboretum-golden", options, ..FormatOptions::default() };
    Lfs.format(Devices::single(dev.clone()), &o).unwrap();
    let fs = mount(&dev);
    write(&*fs, b"file", 300_000).unwrap();
    fs.unmount().unwrap();
    dev.set_size(NEW).unwrap();
    dev.write_at(Kind::Other, OLD, &vec![0xee; (NEW - OLD) as usize]).unwrap();
    dev
}

#[test]
fn a_volume_grows() {
    let dev = volume();
    let fs = mount(&dev);
    let before = fs.statfs().unwrap();
    fs.unmount().unwrap();
    let old = Lfs.probe(&dev).unwrap().unwrap().size;
    resize(&dev, NEW).unwrap();
    let info = Lfs.probe(&dev).unwrap().unwrap();
    let segs = (NEW - HEADS) / SEGMENT;
    assert_eq!((info.size, info.clean), (HEADS + segs * SEGMENT, true));
    assert!(old <= OLD && info.size > NEW - SEGMENT);
    let checkpoints = Lfs.dump(&Devices::single(dev.clone()), &["checkpoints"]).unwrap();
    assert_eq!((&checkpoints[0]["segs"], &checkpoints[1]["segs"]), (&segs.into(), &segs.into()));
    let fs = mount(&dev);
    let after = fs.statfs().unwrap();
    let more = (after.blocks - before.blocks) * u64::from(after.frsize);
    assert!(more > (NEW - OLD) / 8 * 7, "{more} bytes more");
    // All of it can be had, and what was there is still there.
    let len = after.bavail as usize * after.frsize as usize / 10 * 9;
    assert_eq!(write(&*fs, b"large", len).unwrap(), len);
    let e = fs.lookup(fs.root(), b"file").unwrap();
    let mut buf = vec![0; 300_000];
    assert_eq!(fs.read(e.ino, 0, &mut buf).unwrap(), buf.len());
    assert!(buf.iter().all(|b| *b == 7));
    fs.unmount().unwrap();
    let options = CheckOptions { repair: Repair::No, force: true };
    let report = Lfs.check(Devices::single(dev), &options, &mut |_, _, _| {}).unwrap();
    assert_eq!(report.issues, []);
}

#[test]
fn what_is_smaller_is_refused() {
    let dev = volume();
    let before = dev.to_bytes();
    let have = Lfs.probe(&dev).unwrap().unwrap().size;
    let e = resize(&dev, have - 1).unwrap_err();
    assert!(e.to_string().contains("cannot shrink"), "{e}");
    assert!(before == dev.to_bytes());
    // Less than a segment more changes nothing, and is no error.
    resize(&dev, have + SEGMENT - 1).unwrap();
    assert_eq!(Lfs.probe(&dev).unwrap().unwrap().size, have);
}

/// A volume that was not unmounted is recovered first.
#[test]
fn after_a_power_cut() {
    let dev = volume();
    let fs = mount(&dev);
    write(&*fs, b"synced", 40_000).unwrap();
    fs.syncfs().unwrap();
    let cut = dev.snapshot();
    resize(&cut, NEW).unwrap();
    assert_eq!(Lfs.probe(&cut).unwrap().unwrap().size, HEADS + (NEW - HEADS) / SEGMENT * SEGMENT);
    let fs = mount(&cut);
    assert_eq!(fs.lookup(fs.root(), b"synced").unwrap().size, 40_000);
}
