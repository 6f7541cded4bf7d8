//! A volume that lives through many commits, and what its tree was after each.

#![allow(dead_code, reason = "each test uses a part")]

use crate::damage_kit::ImageCorruptor;
use arbor_base::device::{Device as _, MemDevice};
use arbor_base::vfs::*;
use arbor_evergreen::Evergreen;
use arbor_evergreen::format::{BLOCK, byte};
use arbor_torture::damage::{self, Tree, bytes, tree_in};
use std::collections::BTreeMap;
use std::sync::Arc;

/// So many commits are retained by [`RETAIN`].
pub const RETAINED: usize = 20;
/// A volume in which there is hardly room for them.
pub const TIGHT: u64 = 3 << 20;
pub const RETAIN: &str = "retain=20";

pub fn mount(dev: &MemDevice, options: &str, read_only: bool) -> Result<Arc<dyn FileSystem>> {
    let options = MountOptions { read_only, options: Options::parse(options) };
    let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
    Evergreen.mount(Devices::single(dev.clone()), &options, clock)
}

/// Writes a whole file.
pub fn put(fs: &dyn FileSystem, name: &str, data: &[u8]) {
    let cx = Cx::default();
    let attr = match fs.lookup(fs.root(), name.as_bytes()) {
        Ok(attr) => attr,
        Err(_) => fs.mknod(&cx, fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0).expect("mknod"),
    };
    assert_eq!(fs.write(attr.ino, 0, data).expect("write"), data.len());
    fs.forget(attr.ino, 1);
}

/// The number of the newest commit.
pub fn newest(dev: &MemDevice) -> u64 {
    ImageCorruptor::new(dev.clone()).masters().last().expect("a master block").0
}

/// Many commits of a volume of `size` bytes in some mounts; the tree after each. Files live for 13 commits, and the volume
/// is so small that blocks are given away again within fewer than [`RETAINED`] if nothing keeps them.
pub fn lives(size: u64, mounts: &[&str]) -> (MemDevice, BTreeMap<u64, Tree>) {
    let (dev, mut trees) = (damage::format(&Evergreen, size, "stride=16"), BTreeMap::new());
    for (turn, options) in mounts.iter().enumerate() {
        let fs = mount(&dev, options, false).expect("mount");
        for n in 0..60u32 {
            let name = format!("f{}", n * 7 % 13);
            let _ = fs.unlink(fs.root(), name.as_bytes());
            put(&*fs, &name, &bytes(3000 + 30_000 * (n as usize % 4), n + 100 * turn as u32));
            fs.syncfs().expect("syncfs");
            trees.insert(newest(&dev), damage::tree(&Evergreen, &dev));
        }
        fs.unmount().expect("unmount");
        drop(fs);
        trees.insert(newest(&dev), damage::tree(&Evergreen, &dev));
    }
    (dev, trees)
}

/// Mounts each commit that is said to be there, and compares its tree with what it was; returns their numbers.
pub fn compare(dev: &MemDevice, trees: &BTreeMap<u64, Tree>) -> Vec<u64> {
    let info = Evergreen.probe(dev).expect("probe").expect("a volume");
    let (_, commits) = info.facts.iter().find(|(key, _)| *key == "commits").expect("commits");
    let (first, last) = commits.split_once(" to ").expect("two numbers");
    let (first, last): (u64, u64) = (first.parse().expect("a number"), last.parse().expect("a number"));
    for seq in first..=last {
        let fs = mount(dev, &format!("commit_at={seq}"), true).unwrap_or_else(|e| panic!("commit {seq}: {e}"));
        if let Some(tree) = trees.get(&seq) {
            assert_eq!(&tree_in(&*fs), tree, "commit {seq}");
        }
    }
    (first..=last).collect()
}

/// A size to grow to.
pub const GROWN: u64 = 24 << 20;

pub fn resize(dev: &MemDevice, size: u64) -> Result<()> {
    Evergreen.resize(Devices::single(dev.clone()), size, Arc::new(ManualClock::default()))
}

/// A volume that grows beside the master blocks which the growth of a later state has left, and is cut off in its next mount;
/// and its tree.
pub fn grown_beside_another() -> (MemDevice, Tree) {
    let dev = damage::format(&Evergreen, 16 << 20, "stride=16");
    let fs = mount(&dev, "", false).expect("mount");
    put(&*fs, "file", &bytes(30_000, 1));
    fs.unmount().expect("unmount");
    let (tree, later) = (damage::tree(&Evergreen, &dev), dev.snapshot());
    let fs = mount(&later, "", false).expect("mount");
    for n in 0..20 {
        put(&*fs, "file", &bytes(30_000, n));
        fs.syncfs().expect("syncfs");
    }
    fs.unmount().expect("unmount");
    resize(&later, GROWN).expect("resize");
    let (of_it, own) = (ImageCorruptor::new(later), ImageCorruptor::new(dev.clone()));
    dev.set_size(GROWN).expect("set_size");
    for (_, block) in of_it.masters().into_iter().filter(|(_, block)| *block != own.at) {
        damage::write(&dev, byte(block), &damage::read(&of_it.dev, byte(block), BLOCK));
    }
    resize(&dev, GROWN).expect("resize");
    let _fs = mount(&dev, "", false).expect("mount");
    (dev.snapshot(), tree)
}
