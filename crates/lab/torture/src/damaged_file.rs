//! A file whose map is damaged can be removed, and hinders nobody: what others write becomes durable, the mount stays
//! writable, and so does the next one, until the checker frees what is left.

use crate::config::{BEGIN, Config};
use crate::damage;
use arbor_base::device::{Kind, MemDevice};
use arbor_base::vfs::*;
use std::sync::Arc;

/// Blocks of the file, each after a hole, so that its map is large.
const BLOCKS: u64 = 500;
const OTHER: &[u8] = b"another file";

/// Runs it on a volume of 48 MiB. Panics with what went wrong.
pub fn is_removed_alone(engine: &dyn Engine, config: &Config) {
    let good = volume(engine, config);
    for used in [true, false] {
        let disk = good.snapshot();
        damage_map(engine, &disk);
        let fs = mount(engine, config, &disk);
        let root = fs.root();
        if used {
            let big = fs.lookup(root, b"big").expect("lookup").ino;
            fs.unlink(root, b"big").expect("unlink of a file that is used");
            fs.forget(big, 1);
        } else {
            fs.unlink(root, b"big").expect("unlink of a file that nobody uses");
        }
        write(&*fs, b"other", &[(0, OTHER)]);
        fs.statfs().expect("statfs");
        assert_eq!(fs.failure(), None);
        fs.unmount().expect("unmount");
        match try_mount(engine, config, &disk) {
            // Volumes that keep no order want the checker first.
            Err(Error::Refused(_)) => {}
            mounted => holds_the_other(&*mounted.expect("mount with damage")),
        }

        damage::check(engine, disk.clone(), Repair::Yes);
        let left = damage::check(engine, disk.clone(), Repair::No);
        assert!(!left.issues.iter().any(|i| i.severity > Severity::Warning), "used: {used}: {:#?}", left.issues);
        holds_the_other(&*mount(engine, config, &disk));
    }
}

fn volume(engine: &dyn Engine, config: &Config) -> MemDevice {
    let disk = MemDevice::new(48 << 20);
    engine.format(Devices::single(disk.clone()), &config.format_options()).expect("format");
    let fs = mount(engine, config, &disk);
    // In a tree of items something follows the large one: what is made later lies there.
    let dir = fs.mkdir(&Cx { uid: 0, gid: 0 }, fs.root(), b"dir", 0o755).expect("mkdir").ino;
    fs.create(&Cx { uid: 0, gid: 0 }, dir, b"file", &New { mode: mode::IFREG | 0o644, ..New::default() })
        .expect("create");
    let blocks: Vec<_> = (0..BLOCKS).map(|n| (n << 20, &[1; 4096][..])).collect();
    write(&*fs, b"big", &blocks);
    fs.unmount().expect("unmount");
    disk
}

fn mount(engine: &dyn Engine, config: &Config, disk: &MemDevice) -> Arc<dyn FileSystem> {
    try_mount(engine, config, disk).expect("mount")
}

fn try_mount(engine: &dyn Engine, config: &Config, disk: &MemDevice) -> Result<Arc<dyn FileSystem>> {
    let clock = Arc::new(ManualClock::new(BEGIN));
    engine.mount(Devices::single(disk.clone()), &config.mount_options(), clock)
}

fn write(fs: &dyn FileSystem, name: &[u8], pieces: &[(u64, &[u8])]) {
    let new = New { mode: mode::IFREG | 0o644, ..New::default() };
    let ino = fs.create(&Cx { uid: 0, gid: 0 }, fs.root(), name, &new).expect("create").ino;
    for (at, bytes) in pieces {
        assert_eq!(fs.write(ino, *at, bytes).expect("write"), bytes.len());
    }
    fs.forget(ino, 1);
}

/// Flips a bit in each block of a map.
fn damage_map(engine: &dyn Engine, disk: &MemDevice) {
    let mut places = Vec::new();
    let mut map_block = |r: Region| {
        if r.kind == Kind::Tree && r.owner.is_some() {
            places.push(r.offset + r.len - 20);
        }
    };
    engine.describe(&Devices::single(disk.clone()), &mut map_block).expect("describe");
    assert!(places.len() > 1, "the map is too small");
    places.iter().for_each(|at| damage::flip(disk, *at));
}

fn holds_the_other(fs: &dyn FileSystem) {
    let ino = fs.lookup(fs.root(), b"other").expect("lookup").ino;
    let mut bytes = vec![0; 100];
    let n = fs.read(ino, 0, &mut bytes).expect("read");
    assert_eq!(&bytes[..n], OTHER);
    assert!(matches!(fs.lookup(fs.root(), b"big"), Err(Error::Errno(Errno::ENOENT))));
    fs.forget(ino, 1);
    fs.unmount().expect("unmount");
}
