//! What failed once: lines that `arbor torture --repeat` takes, and cases that were too long for one.

mod damage_kit;

use arbor_base::device::{FaultDevice, FaultOp, FaultTimes, MemDevice};
use arbor_base::vfs::*;
use arbor_reiserfs::ReiserFs;
use arbor_reiserfs::format::*;
use arbor_torture::{damage, faults};
use damage_kit::Knife;
use std::sync::Arc;

/// A commit that failed left what it had allocated in the superblock of the unmount; a truncation changed a tail in one node
/// before it met the damage of the other.
#[test]
fn faults_that_showed() {
    let lines = [
        "profile=Big size=25165824 format=log=1M mount=tails=none,cache=2M fault=Write:3:Once:Torn(1898849) \
         end=Unmount ops=mkdir /d0 493 0; create /d0/f1 493 0; write /d0/f1 0 4149 22; fsync /d0/f1 1",
        "profile=Big size=25165824 format=block=8K,log=4M mount=tails=all fault=Write:9:Once:Flipped(8081157) end=Unmount \
         ops=mkdir /d0 493 0; create /L0 384 0; create /d0/L2 0 0; create /d0/f0 384 0; create /d0/L3 420 0; \
         create /d0/f3 420 7; write /L0 2020785 13 28; write /d0/L2 57 423634 37; append /L0 2518 41; \
         write /d0/f0 91 91233 43; write /d0/L3 2097152 4000 44; write /d0/f3 4294971495 287 45; create /d0/f2 384 0; \
         remount; truncate /d0/f3 1779520",
        "profile=Churn size=25165824 format=block=1K,log=512K \
         mount=cache=1M,tails=all,ordering=preserve,layout=virtual,noreadahead fault=Read:20:FromThenOn:Error end=Cut \
         again=Flush:6 ops=mkdir /d0 493 0; mkdir /d1 493 0; create /d1/f4 420 0; append /d1/f4 52005 13; \
         write /d1/f4 143351 30119 18; write /d1/f4 106496 27857 22; write /d1/f4 45056 31847 47; \
         write /d1/f4 102395 2 49; remount; truncate /d1/f4 114990",
    ];
    let failed: Vec<String> = lines.iter().filter_map(|line| faults::repeat(&ReiserFs, line).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A repair was cut off while it wrote the first bitmap; the next one took the wrong superblock for the right one, since the only
/// witness it asked was that bitmap, and nothing that lay on the volume was the volume's any more.
#[test]
fn a_torn_bitmap_is_no_witness_for_a_wrong_superblock() {
    let line = "seed=230309158678648 profile=Sync size=67108864 image=some-2 repair=yes cuts=7:Seeded(3411732651) \
        damage=superblock 0+152=01000000 ops=";
    arbor_torture::machine::repeat(&ReiserFs, line).unwrap();
}

/// A small volume.
struct Volume {
    disk: MemDevice,
    fs: Arc<dyn FileSystem>,
}

fn mount(devices: Devices, options: &str) -> Arc<dyn FileSystem> {
    let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
    let options = MountOptions { options: Options::parse(options), ..MountOptions::default() };
    ReiserFs.mount(devices, &options, clock).unwrap()
}

impl Volume {
    fn new(options: &str) -> Volume {
        let disk = damage::format(&ReiserFs, 8 << 20, "");
        let fs = mount(Devices::single(disk.clone()), options);
        Volume { disk, fs }
    }

    fn create(&self, name: &[u8]) -> Ino {
        let new = New { mode: mode::IFREG | 0o644, ..New::default() };
        self.fs.create(&Cx { uid: 0, gid: 0 }, self.fs.root(), name, &new).unwrap().ino
    }

    /// Writes to a file until there is no space.
    fn fill(&self, ino: Ino) {
        let mut at = 0;
        while let Ok(n) = self.fs.write(ino, at, &[2; 4096]) {
            at += n as u64;
        }
    }

    fn check(self) {
        self.fs.unmount().unwrap();
        assert_eq!(damage::check(&ReiserFs, self.disk, Repair::No).issues, vec![]);
    }
}

/// A file was made ready to grow, found no space, and its last node said that all of it was in use.
#[test]
fn a_write_that_finds_no_space_leaves_the_end_as_it_was() {
    let volume = Volume::new("tails=none");
    let (small, large) = (volume.create(b"small"), volume.create(b"large"));
    volume.fs.write(small, 0, &[1; 100]).unwrap();
    volume.fill(large);
    assert_eq!(volume.fs.write(small, 5000, &[3; 100]).unwrap_err().errno(), Errno::ENOSPC);
    volume.check();
}

/// Attributes were taken out before they were put in anew; a full volume lost them.
#[test]
fn attributes_are_replaced_on_a_full_volume() {
    let volume = Volume::new("");
    let (file, large) = (volume.create(b"file"), volume.create(b"large"));
    let set = |name: &[u8], byte: u8| volume.fs.setxattr(file, name, &vec![byte; 30_000], XattrMode::Set);
    set(b"user.a", 1).unwrap();
    set(b"user.b", 2).unwrap();
    volume.fill(large);
    set(b"user.a", 4).unwrap();
    assert_eq!(volume.fs.getxattr(file, b"user.a").unwrap(), vec![4; 30_000]);
    volume.fs.removexattr(file, b"user.a").unwrap();
    assert_eq!(volume.fs.getxattr(file, b"user.b").unwrap(), vec![2; 30_000]);
    volume.check();
}

/// A list of attributes that cannot be read was met after the file's blocks were freed, and the volume turned read-only; with
/// the file on the list of those without names, at each mount.
#[test]
fn a_file_whose_attributes_are_lost_is_removed_alone() {
    let volume = Volume::new("");
    let file = volume.create(b"file");
    volume.fs.setxattr(file, b"user.a", &[1; 30_000], XattrMode::Set).unwrap();
    volume.fs.write(file, 0, &[2; 20_000]).unwrap();
    volume.fs.unmount().unwrap();
    let knife = Knife::new(volume.disk.clone());
    let at = |offset| knife.place(knife.key("/file", offset, Kind::Xattr)).leaf;
    assert_ne!(at(XATTR_OFFSET + 15_000), knife.place(knife.key("/file", 0, Kind::StatData)).leaf);
    knife.destroy(at(XATTR_OFFSET + 15_000));
    for _ in 0..2 {
        let fs = mount(Devices::single(volume.disk.clone()), "");
        let new = |name: &[u8]| fs.mknod(&Cx { uid: 0, gid: 0 }, fs.root(), name, mode::IFREG | 0o644, 0);
        if fs.lookup(fs.root(), b"file").is_ok() {
            fs.unlink(fs.root(), b"file").unwrap();
            fs.forget(file, 1);
        }
        let other = new(b"other").unwrap().ino;
        fs.fsync(other, false).unwrap();
        fs.unlink(fs.root(), b"other").unwrap();
        fs.unmount().unwrap();
    }
}

/// A number that the map has as free, and an object has, was given to a new file: a node with one key twice, which nobody could
/// read, and all that lay in it was lost.
#[test]
fn a_wrong_map_of_numbers_costs_no_node() {
    let volume = Volume::new("");
    for n in 0..20 {
        let ino = volume.create(format!("file {n}").as_bytes());
        volume.fs.write(ino, 0, &[n; 100]).unwrap();
    }
    volume.fs.unmount().unwrap();
    let knife = Knife::new(volume.disk.clone());
    knife.ids(|map| map[ID_MAP + 4..ID_MAP + 8].copy_from_slice(&[5, 0, 0, 0]));
    let fs = mount(Devices::single(volume.disk.clone()), "");
    let made = fs.mknod(&Cx { uid: 0, gid: 0 }, fs.root(), b"new", mode::IFREG | 0o644, 0);
    assert!(matches!(made, Err(Error::Corrupt(_))), "{made:?}");
    fs.mknod(&Cx { uid: 0, gid: 0 }, fs.root(), b"new", mode::IFREG | 0o644, 0).unwrap_err();
    fs.unlink(fs.root(), b"file 19").unwrap();
    fs.unmount().unwrap();
    damage::check(&ReiserFs, volume.disk.clone(), Repair::Yes);
    let fs = mount(Devices::single(volume.disk.clone()), "");
    for n in 0..19 {
        let ino = fs.lookup(fs.root(), format!("file {n}").as_bytes()).unwrap().ino;
        let mut bytes = [0; 100];
        fs.read(ino, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [n; 100]);
    }
    fs.mknod(&Cx { uid: 0, gid: 0 }, fs.root(), b"new", mode::IFREG | 0o644, 0).unwrap();
}

/// An object with the greatest number made a range of numbers that ends before it begins. (It was a mutant of an image whose
/// stat data were not dense.)
#[test]
fn an_object_with_the_greatest_number_is_no_panic() {
    let volume = Volume::new("");
    let file = volume.create(b"file");
    volume.fs.write(file, 0, &[1; 100]).unwrap();
    volume.fs.unmount().unwrap();
    let knife = Knife::new(volume.disk.clone());
    let (locality, number) = key_of(file);
    knife.leaf(Key::new(locality, number, 0, Kind::StatData), |items| {
        items.iter_mut().filter(|i| i.key.object() == number).for_each(|i| i.key = i.key.of(u32::MAX));
    });
    damage::check(&ReiserFs, volume.disk.clone(), Repair::Yes);
    assert_eq!(damage::check(&ReiserFs, volume.disk.clone(), Repair::No).issues, vec![]);
    let fs = mount(Devices::single(volume.disk.clone()), "");
    fs.mknod(&Cx { uid: 0, gid: 0 }, fs.root(), b"other", mode::IFREG | 0o644, 0).unwrap();
    fs.unmount().unwrap();
}

/// A volume on which damage was met said that it was clean after the next unmount, and `fsck -p` believed it.
#[test]
fn damage_that_was_met_stays_known() {
    let volume = Volume::new("");
    let file = volume.create(b"file");
    volume.fs.write(file, 0, &[1; 100]).unwrap();
    volume.fs.unmount().unwrap();
    let is_clean = || ReiserFs.probe(&volume.disk).unwrap().unwrap().clean;
    assert!(is_clean());
    Knife::new(volume.disk.clone()).stat("/file", |d| d.mode = 0.into());
    let fs = mount(Devices::single(volume.disk.clone()), "");
    fs.getattr(file).unwrap_err();
    fs.unmount().unwrap();
    assert!(!is_clean(), "nothing was changed but that");
    let fs = mount(Devices::single(volume.disk.clone()), "");
    fs.mknod(&Cx { uid: 0, gid: 0 }, fs.root(), b"other", mode::IFREG | 0o644, 0).unwrap();
    fs.unmount().unwrap();
    assert!(!is_clean(), "a mount that does not meet it");
    assert_eq!(damage::check(&ReiserFs, volume.disk.clone(), Repair::Preen).remaining(), 1);
    assert!(!is_clean());
    assert_eq!(damage::check(&ReiserFs, volume.disk.clone(), Repair::Yes).remaining(), 0);
    assert!(is_clean());
}

/// What a checkpoint could not write in place was read from there.
#[test]
fn a_checkpoint_that_fails_hides_nothing() {
    let disk = FaultDevice::new(damage::format(&ReiserFs, 24 << 20, ""));
    let fs = mount(Devices::single(disk.clone()), "cache=1M");
    let new = |name: &str| fs.mknod(&Cx { uid: 0, gid: 0 }, fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0);
    let large = new("large").unwrap().ino;
    fs.write(large, 0, &[1; 3 << 20]).unwrap();
    for n in 0..300 {
        fs.write(new(&format!("file {n}")).unwrap().ino, 0, &[7; 200]).unwrap();
    }
    fs.fsync(large, false).unwrap();
    disk.fail(FaultOp::Write, disk.count(FaultOp::Write), FaultTimes::FromThenOn);
    fs.trim(&TrimRange::ALL).unwrap_err();
    fs.read(large, 0, &mut vec![0; 3 << 20]).unwrap();
    for n in 0..300 {
        assert_eq!(fs.lookup(fs.root(), format!("file {n}").as_bytes()).unwrap().size, 200);
    }
}

/// A search for a free block failed for a bitmap that could not be read, after something was changed.
#[test]
fn a_lost_bitmap_keeps_nobody_from_making_files() {
    let disk = damage::format(&ReiserFs, 24 << 20, "block=1K,log=512K");
    let fs = mount(Devices::single(disk.clone()), "");
    let new = |fs: &dyn FileSystem, name: &str| {
        fs.mknod(&Cx { uid: 0, gid: 0 }, fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0).unwrap().ino
    };
    let large = new(&*fs, "large");
    fs.write(large, 0, &[1; 10 << 20]).unwrap();
    fs.unmount().unwrap();
    let knife = Knife::new(disk.clone());
    assert!(knife.sb().bitmaps.get() > 2);
    knife.destroy(knife.geom.bitmap(2));
    let fs = mount(Devices::single(disk.clone()), "");
    for n in 0..2000 {
        let ino = new(&*fs, &format!("file {n}"));
        fs.write(ino, 0, &[3; 3000]).unwrap();
    }
    fs.unmount().unwrap();
    damage::check(&ReiserFs, disk.clone(), Repair::Yes);
    assert_eq!(damage::check(&ReiserFs, disk.clone(), Repair::No).issues, vec![]);
    let fs = mount(Devices::single(disk), "");
    let ino = fs.lookup(fs.root(), b"file 1999").unwrap().ino;
    let mut bytes = [0; 3000];
    fs.read(ino, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [3; 3000]);
}

/// The last bitmap covered itself and the copy of the superblock, and its making was taken for damage.
#[test]
fn a_last_bitmap_that_covers_nothing_is_no_damage() {
    let covered = Geom { node_size: 1024, ..Geom::default() }.covered();
    let disk = damage::format(&ReiserFs, u64::from(17 * covered + 2) << 10, "block=1K,log=512K");
    let fs = mount(Devices::single(disk.clone()), "");
    let new = |name: &str| fs.mknod(&Cx { uid: 0, gid: 0 }, fs.root(), name.as_bytes(), mode::IFREG | 0o644, 0);
    let [first, large] = ["first", "large"].map(|name| new(name).unwrap().ino);
    fs.write(first, 0, &[8; 100_000]).unwrap();
    let (mut at, piece) = (0, vec![9; 1 << 20]);
    let mut fill = || loop {
        match fs.write(large, at, &piece) {
            Ok(n) => at += n as u64,
            Err(e) => break (at, e),
        }
    };
    let (full, why) = fill();
    assert_eq!(why.errno(), Errno::ENOSPC, "{why}");
    // Far from where the large file ends, and too little to be looked for as long as there is another bitmap.
    fs.unlink(fs.root(), b"first").unwrap();
    fs.forget(first, 1);
    let (more, why) = fill();
    assert_eq!(why.errno(), Errno::ENOSPC, "{why}");
    assert!(more > full + 50_000, "{more} after {full}");
    fs.unmount().unwrap();
    assert_eq!(damage::check(&ReiserFs, disk, Repair::No).issues, vec![]);
}

/// An unmounted image is no larger than what lies in it: the space of the log is given back.
#[test]
fn the_log_takes_no_space_after_an_unmount() {
    let volume = Volume::new("");
    for n in 0..200 {
        let ino = volume.create(format!("file {n}").as_bytes());
        volume.fs.write(ino, 0, &[1; 200]).unwrap();
        volume.fs.fsync(ino, false).unwrap();
    }
    let geom = Knife::new(volume.disk.clone()).geom;
    let used = || (2..=geom.log).filter(|n| damage::read(&volume.disk, geom.byte(*n), 4096) != [0; 4096]).count();
    assert!(used() > 100);
    volume.fs.unmount().unwrap();
    assert_eq!(used(), 0);
    volume.check();
}

/// Blocks are read together; what cannot be read beside the one that was asked for made that fail.
#[test]
fn a_block_is_read_though_the_next_cannot_be() {
    let volume = Volume::new("");
    let ino = volume.create(b"file");
    volume.fs.write(ino, 0, &[5; 8 * 4096]).unwrap();
    volume.fs.unmount().unwrap();
    let disk = FaultDevice::new(volume.disk);
    let fs = mount(Devices::single(disk.clone()), "");
    fs.getattr(ino).unwrap();
    disk.fail(FaultOp::Read, disk.count(FaultOp::Read) + 1, FaultTimes::Once);
    let mut page = [0; 4096];
    fs.read(ino, 0, &mut page).unwrap();
    assert_eq!(page, [5; 4096]);
    assert_eq!(disk.struck(), 1);
}
