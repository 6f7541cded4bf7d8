//! Scrubbing finds what was damaged on the device behind the mounted volume, names it, and says nothing of what is dead.

use arbor_base::device::{Device, Kind, MemDevice};
use arbor_base::vfs::*;
use arbor_lfs::Lfs;
use std::sync::Arc;

const SIZE: u64 = 16 << 20;
const SEGMENT: u64 = 256 << 10;
const CX: Cx = Cx { uid: 1000, gid: 100 };
/// Superblock, its copy, two checkpoints.
const HEADS: u64 = 4 * 512;

fn volume() -> (MemDevice, Arc<dyn FileSystem>) {
    let dev = MemDevice::new(SIZE);
    let options = Options::parse("block=4K,segment=256K");
    let o = FormatOptions { uuid: *b"arboretum-golden", options, ..FormatOptions::default() };
    Lfs.format(Devices::single(dev.clone()), &o).unwrap();
    let clock = Arc::new(ManualClock::new(Time::default()));
    let fs = Lfs.mount(Devices::single(dev.clone()), &MountOptions::default(), clock).unwrap();
    for n in 0..40 {
        let e = fs.mknod(&CX, fs.root(), format!("name-{n}").as_bytes(), mode::IFREG | 0o644, 0).unwrap();
        fs.write(e.ino, 0, &[n; 60_000]).unwrap();
        fs.setxattr(e.ino, b"user.colour", b"green", XattrMode::Set).unwrap();
    }
    fs.syncfs().unwrap();
    for n in 0..10 {
        let e = fs.lookup(fs.root(), format!("name-{n}").as_bytes()).unwrap();
        fs.write(e.ino, 8192, &[n + 1; 4096]).unwrap();
    }
    fs.syncfs().unwrap();
    (dev, fs)
}

/// Everything, from segment to segment.
fn scrub(fs: &dyn FileSystem) -> (u64, Vec<String>, u64) {
    let (mut next, mut bytes, mut damage, mut calls) = (Some(0), 0, Vec::new(), 0);
    while let Some(at) = next {
        let s = fs.scrub(at).unwrap();
        assert!(s.verified_bytes <= SEGMENT + HEADS);
        assert!(s.next.is_none_or(|n| n > at));
        bytes += s.verified_bytes;
        damage.extend(s.damage);
        (next, calls) = (s.next, calls + 1);
    }
    (bytes, damage, calls)
}

fn regions(dev: &MemDevice) -> Vec<Region> {
    let mut all = Vec::new();
    Lfs.describe(&Devices::single(dev.snapshot()), &mut |r| all.push(r)).unwrap();
    all
}

fn flip(dev: &MemDevice, at: u64) {
    let start = at / 512 * 512;
    let mut sector = [0; 512];
    dev.read_at(Kind::Other, start, &mut sector).unwrap();
    sector[(at - start) as usize] ^= 0x10;
    dev.write_at(Kind::Other, start, &sector).unwrap();
}

#[test]
fn a_sound_volume_is_verified_whole() {
    let (dev, fs) = volume();
    let live: u64 = regions(&dev).iter().filter(|r| r.offset >= 4 << 12 && r.kind != Kind::Log).map(|r| r.len).sum();
    let (bytes, damage, calls) = scrub(&*fs);
    assert_eq!((bytes, damage), (live + HEADS, vec![]));
    // Segments without anything alive take no call.
    assert!(calls <= live / SEGMENT * 2 + 4, "{calls}");
    assert_eq!(fs.scrub(u64::MAX).unwrap(), Scrubbed::default());
    // What is changed in core, and not written, is no damage.
    let root = fs.root();
    let e = fs.lookup(root, b"name-20").unwrap();
    fs.write(e.ino, 100, b"other").unwrap();
    fs.setattr(e.ino, &SetAttr { size: Some(20_000), ..SetAttr::default() }).unwrap();
    fs.unlink(root, b"name-21").unwrap();
    fs.removexattr(fs.lookup(root, b"name-22").unwrap().ino, b"user.colour").unwrap();
    fs.mknod(&CX, root, b"new", mode::IFREG | 0o600, 0).unwrap();
    assert_eq!(scrub(&*fs).1, Vec::<String>::new());
    fs.unmount().unwrap();
    assert!(Lfs.probe(&dev).unwrap().unwrap().clean);
}

#[test]
fn damage_is_named() {
    let (dev, fs) = volume();
    let ino = fs.lookup(fs.root(), b"name-7").unwrap().ino;
    let all = regions(&dev);
    let of = |kind: Kind| all.iter().find(|r| r.kind == kind && r.owner == Some(ino)).unwrap();
    let block = all.iter().find(|r| r.owner == Some(ino) && r.file_offset == 3 << 12).unwrap();
    let dir = all.iter().find(|r| r.kind == Kind::Dir).unwrap();
    let map = all.iter().find(|r| r.name == "inode map").unwrap();
    let summary = all.iter().find(|r| r.name == "segment 1 summary").unwrap();
    let at = |r: &Region| format!("at byte {} of the device", r.offset);
    let frag = of(Kind::Inode).offset / 512 * 512;
    let cases = [
        (block.offset + 77, format!("inode {ino}, block 3, 4096 bytes {}", at(block))),
        (of(Kind::Xattr).offset + 20, format!("inode {ino}, extended attributes, 512 bytes {}", at(of(Kind::Xattr)))),
        (of(Kind::Inode).offset + 30, format!("inode {ino}, at byte {frag} of the device")),
        (dir.offset + 5, format!("inode 2, block 0, {} bytes {}", dir.len, at(dir))),
        (map.offset + 5, format!("the ifile, block 262144, 4096 bytes {}", at(map))),
        (summary.offset + 20, "segment 1 at byte 278528 of the device: summary damaged".to_string()),
        (100, "superblock at byte 0 of the device".to_string()),
        (3 << 12, "superblock copy at byte 12288 of the device: no magic".to_string()),
        ((2 << 12) + 8, "checkpoint 1 at byte 8192 of the device: not sound".to_string()),
    ];
    for (byte, should) in cases {
        flip(&dev, byte);
        let found = scrub(&*fs).1;
        assert!(found.len() == 1 && found[0].contains(&should), "{should}: {found:?}");
        flip(&dev, byte);
        assert_eq!(scrub(&*fs).1, Vec::<String>::new());
    }
    // The volume is left to the checker.
    fs.unmount().unwrap();
    assert!(!Lfs.probe(&dev).unwrap().unwrap().clean);
}

#[test]
fn what_is_dead_is_not_looked_at() {
    let (dev, fs) = volume();
    let all = regions(&dev);
    let free = |at: u64| all.iter().all(|r| at < r.offset || at >= r.offset + r.len);
    let mut some = 0;
    for at in (4 << 12..SIZE).step_by(512).filter(|at| free(*at)) {
        flip(&dev, at + 100);
        some += 1;
    }
    assert!(some > 100);
    assert_eq!(scrub(&*fs).1, Vec::<String>::new());
}
