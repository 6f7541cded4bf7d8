//! The checker of a volume that was not unmounted: what the log mends is no damage, and what it does not is told.

mod damage_kit;

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_yfs::Yfs;
use arbor_yfs::format::*;
use damage_kit::*;
use std::sync::Arc;

/// The small image, with changes that are in the log only.
fn crashed() -> MemDevice {
    let image = small();
    let fs = mount(&image);
    let d = fs.lookup(fs.root(), b"d").expect("lookup").ino;
    for n in 0..30 {
        fs.unlink(d, format!("a file with a name {n}").as_bytes()).expect("unlink");
        fs.mknod(&CX, d, format!("new {n}").as_bytes(), mode::IFREG | 0o644, 0).expect("mknod");
    }
    fs.syncfs().expect("syncfs");
    image.snapshot()
}

/// Byte address of the first block of a directory of the small image, on disk.
fn first_block(k: &ImageCorruptor, path: &str) -> u64 {
    let fs = mount(&small());
    let parts = path.split('/').filter(|p| !p.is_empty());
    k.dir_block(parts.fold(fs.root(), |dir, name| fs.lookup(dir, name.as_bytes()).expect("lookup").ino).0)
}

#[test]
fn what_a_power_loss_tears_is_no_damage() {
    let image = crashed();
    let k = ImageCorruptor::new(image.clone());
    let at = first_block(&k, "d");
    let mended = image.snapshot();
    assert_eq!(check(&mended, Repair::Yes).issues, vec![]);
    let (old, new) = (k.read(at, 1024), ImageCorruptor::new(mended).read(at, 1024));
    assert!(old != new, "the log changes this block");
    k.write(at, &[&new[..512], &old[512..]].concat());
    for repair in [Repair::No, Repair::Preen] {
        assert_eq!(check(&image, repair).issues, vec![], "{repair:?}");
    }
    // With the checksum in the half that was not written, this cannot be told from damage.
    let image = crashed();
    ImageCorruptor::new(image.clone()).write(at, &[&old[..512], &new[512..]].concat());
    let report = check(&image, Repair::Preen);
    assert_eq!((report.issues.len(), report.issues[0].code, report.remaining()), (1, "LogBlock", 0));
    assert_eq!(check(&image, Repair::No).issues, vec![]);
}

#[test]
fn a_replay_does_not_cover_damage() {
    let image = crashed();
    let k = ImageCorruptor::new(image.clone());
    let at = first_block(&k, "d");
    // A letter of a name in the block: replay makes the checksum, the hash tells.
    k.change(at, 1024, None, |b| b[700] ^= 0x55);
    let found = check(&image, Repair::No);
    assert!(found.issues.iter().any(|i| i.code == "LogBlock"), "{:#?}", found.issues);
    let report = check(&image, Repair::Yes);
    assert_eq!(report.remaining(), 0, "{:#?}", report.issues);
    assert_eq!(check(&image, Repair::No).issues, vec![]);
    // The head of a block is gone: the rest of the log is replayed.
    let image = crashed();
    ImageCorruptor::new(image.clone()).write(at, &[0xee; 512]);
    assert!(Yfs.mount(Devices::single(image.snapshot()), &MountOptions::default(), Arc::new(SystemClock)).is_err());
    for repair in [Repair::No, Repair::Preen] {
        let image = image.snapshot();
        let report = check(&image, repair);
        assert_eq!((report.issues[0].code, report.issues[0].repaired), ("LogBlockLost", false), "{repair:?}");
        assert!(report.issues.iter().all(|i| i.code != "LogDamaged"));
    }
    let report = check(&image, Repair::Yes);
    assert_eq!((report.issues[0].code, report.remaining()), ("LogBlockLost", 0));
    assert_eq!(check(&image, Repair::No).issues, vec![]);
    mount(&image).unmount().expect("unmount");
}

/// An inode is one sector and never torn: a wrong checksum stays wrong until somebody has looked,
/// whatever else the log changes in its chunk.
#[test]
fn a_replay_does_not_seal_damaged_inodes() {
    let image = crashed();
    let k = ImageCorruptor::new(image.clone());
    let fs = mount(&small());
    let d = fs.lookup(fs.root(), b"d").expect("lookup").ino;
    let kept = fs.lookup(d, b"a file with a name 50").expect("lookup").ino.0;
    k.change(kept * SECTOR, 512, None, |b| b[200..204].fill(0xee));
    let report = check(&image, Repair::No);
    assert_eq!(report.issues.iter().map(|i| i.code).collect::<Vec<_>>(), ["InodeChecksum"]);
    let fs = mount(&image);
    let e = fs.getattr(Ino(kept)).expect_err("damaged");
    assert!(e.to_string().contains("crc"), "{e}");
    drop(fs);
    let report = check(&image, Repair::Yes);
    assert_eq!((report.issues[0].code, report.remaining()), ("InodeChecksum", 0));
    assert_eq!(check(&image, Repair::No).issues, vec![]);
}

#[test]
fn a_crashed_volume_is_preened() {
    let device = format(20 << 20, "ag=4M,block=1K,frag=512");
    let fs = mount(&device);
    populate(&*fs);
    let open = fs.lookup(fs.root(), b"b").expect("lookup").ino;
    let large = fs.lookup(open, b"large").expect("lookup").ino;
    let gone = fs.lookup(open, b"dir3").expect("lookup").ino;
    fs.unlink(gone, b"f").expect("unlink");
    fs.rmdir(open, b"dir3").expect("rmdir");
    fs.unlink(open, b"large").expect("unlink");
    fs.syncfs().expect("syncfs");
    let _ = large;
    let crashed = device.snapshot();
    for repair in [Repair::No, Repair::Preen, Repair::Yes] {
        let image = crashed.snapshot();
        let report = check(&image, repair);
        assert_eq!(report.issues, vec![], "{repair:?}");
        assert_eq!((report.recovered, report.unclean), (repair != Repair::No, true));
        if repair != Repair::No {
            assert_eq!(check(&image, Repair::No), CheckReport { recovered: false, unclean: false, ..report });
        }
        let fs = mount(&image);
        let now = tree(&*fs);
        assert!(!now.contains_key("/b/large") && now.contains_key("/b/room"));
        fs.unmount().expect("unmount");
        assert_eq!(check(&image, Repair::No).issues, vec![]);
    }
}
