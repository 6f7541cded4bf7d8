//! A volume whose free blocks are in pieces, and idle time.

#![allow(dead_code, reason = "each test uses a part")]

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_evergreen::Evergreen;
use arbor_torture::damage::bytes;
use std::collections::BTreeSet;
use std::sync::Arc;

const SIZE: u64 = 24 << 20;
/// Units of 16 blocks.
pub const UNITS: &str = "place=units,device=64K";
const UNIT: u64 = 64 << 10;

pub fn mount(dev: &MemDevice, options: &str) -> Arc<dyn FileSystem> {
    let o = MountOptions { options: Options::parse(options), ..MountOptions::default() };
    Evergreen.mount(Devices::single(dev.clone()), &o, Arc::new(ManualClock::new(at(0)))).expect("mount")
}

/// So many seconds after the mount.
pub fn at(secs: i64) -> Time {
    Time { secs: 1_000_000 + secs, nanos: 0 }
}

pub fn make(fs: &dyn FileSystem, name: &str) -> Ino {
    fs.mknod(&Cx::default(), fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0).expect("mknod").ino
}

pub fn counter(fs: &dyn FileSystem, name: &str) -> u64 {
    fs.counters().into_iter().find(|counter| counter.0 == name).expect(name).1
}

pub fn name(n: u64) -> String {
    format!("f{n}")
}

/// A volume most of whose files are gone, so that what is free is in pieces.
pub fn scattered(files: u64, options: &str) -> (MemDevice, Arc<dyn FileSystem>) {
    let dev = MemDevice::new(SIZE);
    Evergreen.format(Devices::single(dev.clone()), &FormatOptions::default()).expect("format");
    let fs = mount(&dev, options);
    let root = fs.root();
    for n in 0..files {
        let made = make(&*fs, &name(n));
        fs.write(made, 0, &bytes(5000, n as u32)).expect("write");
        if n % 97 == 0 {
            fs.setxattr(made, b"user.long", &bytes(9000, 1), XattrMode::Set).expect("setxattr");
        }
        fs.forget(made, 1);
    }
    fs.syncfs().expect("syncfs");
    for n in (0..files).filter(|n| n % 5 != 0) {
        fs.unlink(root, name(n).as_bytes()).expect("unlink");
    }
    fs.syncfs().expect("syncfs");
    (dev, fs)
}

/// Units in which nothing lies but blocks that are reserved, before the last unit in use.
pub fn whole(dev: &MemDevice) -> u64 {
    let mut used = BTreeSet::new();
    let each = &mut |region: Region| {
        if !region.name.contains("reserved") && region.kind != arbor_base::device::Kind::Super {
            used.insert(region.offset / UNIT);
        }
    };
    Evergreen.describe(&Devices::single(dev.snapshot()), each).expect("describe");
    used.last().map_or(0, |last| last + 1 - used.len() as u64)
}

/// Background work for so many seconds; returns how often there was some.
pub fn idle(fs: &dyn FileSystem, from: i64, secs: i64) -> u64 {
    let (mut now, end, mut times) = (at(from), at(from + secs), 0);
    while now < end {
        now = fs.background(now);
        times += 1;
    }
    times
}
