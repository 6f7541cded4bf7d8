//! What failed once: lines that `arbor torture --repeat` takes, and cases that were too long for one.

mod damage_kit;

use arbor_base::device::{FaultDevice, FaultOp, FaultTimes, MemDevice};
use arbor_base::vfs::*;
use arbor_reiserfs::ReiserFs;
use arbor_reiserfs::format::*;
use arbor_torture::{damage, faults};
use damage_kit::{CX, Knife, file};
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

/// What looked like a record behind the end of the log got the number that the next one had after the log was emptied.
#[test]
fn no_number_of_a_record_comes_again() {
    let line = "seed=226203598909354 profile=Sync size=67108864 image=crashed-4 repair=yes \
        cuts=7:DropOne(1),22:NoneKept,32:AllKept damage=log record 8+16=4800000000000000 ops=";
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
        Volume::of(8 << 20, "", options)
    }

    fn of(size: u64, format: &str, options: &str) -> Volume {
        let disk = damage::format(&ReiserFs, size, format);
        let fs = mount(Devices::single(disk.clone()), options);
        Volume { disk, fs }
    }

    /// Unmounted, changed, and mounted again.
    fn hurt(self, hurt: impl FnOnce(&Knife)) -> Volume {
        self.fs.unmount().unwrap();
        hurt(&Knife::new(self.disk.clone()));
        Volume { fs: mount(Devices::single(self.disk.clone()), ""), ..self }
    }

    fn repaired(self) -> Volume {
        self.hurt(|knife| {
            damage::check(&ReiserFs, knife.dev.clone(), Repair::Yes);
            assert_eq!(damage::check(&ReiserFs, knife.dev.clone(), Repair::No).issues, vec![]);
        })
    }

    fn create(&self, name: &[u8]) -> Ino {
        let new = New { mode: mode::IFREG | 0o644, ..New::default() };
        self.fs.create(&CX, self.fs.root(), name, &new).unwrap().ino
    }

    fn file(&self, name: &str, data: &[u8]) -> Ino {
        file(&*self.fs, self.fs.root(), name, 0, data)
    }

    fn remove(&self, name: &str, ino: Ino) {
        self.fs.unlink(self.fs.root(), name.as_bytes()).unwrap();
        self.fs.forget(ino, 9);
    }

    fn assert_holds(&self, name: &str, data: &[u8]) {
        let found = self.fs.lookup(self.fs.root(), name.as_bytes()).unwrap();
        let mut bytes = vec![0; data.len() + 1];
        assert_eq!(self.fs.read(found.ino, 0, &mut bytes).unwrap(), data.len(), "{name}");
        assert!(bytes.starts_with(data), "{name}");
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
    let ino = volume.file("file", &[2; 20_000]);
    volume.fs.setxattr(ino, b"user.a", &[1; 30_000], XattrMode::Set).unwrap();
    let mut volume = volume.hurt(|knife| {
        let leaf = knife.place(knife.key("/file", XATTR_OFFSET + 15_000, Kind::Xattr)).leaf;
        assert_ne!(leaf, knife.place(knife.key("/file", 0, Kind::StatData)).leaf);
        knife.destroy(leaf);
    });
    volume.remove("file", ino);
    for _ in 0..2 {
        let other = volume.file("other", b"");
        volume.fs.fsync(other, false).unwrap();
        volume.remove("other", other);
        volume = volume.hurt(|_| ());
    }
}

/// A number that the map has as free, and an object has, was given to a new file: a node with one key twice, which nobody could
/// read, and all that lay in it was lost.
#[test]
fn a_wrong_map_of_numbers_costs_no_node() {
    let volume = Volume::new("");
    let names: Vec<String> = (0..20).map(|n| format!("file {n}")).collect();
    names.iter().for_each(|name| _ = volume.file(name, name.as_bytes()));
    let volume = volume.hurt(|knife| knife.ids(|map| map[ID_MAP + 4..ID_MAP + 8].copy_from_slice(&[5, 0, 0, 0])));
    for _ in 0..2 {
        let made = volume.fs.mknod(&CX, volume.fs.root(), b"new", mode::IFREG | 0o644, 0);
        assert!(matches!(made, Err(Error::Corrupt(_))), "{made:?}");
    }
    volume.fs.unlink(volume.fs.root(), b"file 19").unwrap();
    let volume = volume.repaired();
    names.iter().take(19).for_each(|name| volume.assert_holds(name, name.as_bytes()));
    volume.file("new", b"");
}

/// An object with the greatest number made a range of numbers that ends before it begins. (It was a mutant of an image whose
/// stat data were not dense.)
#[test]
fn an_object_with_the_greatest_number_is_no_panic() {
    let volume = Volume::new("");
    let (locality, number) = key_of(volume.file("file", &[1; 100]));
    let volume = volume.hurt(|knife| {
        knife.leaf(Key::new(locality, number, 0, Kind::StatData), |items| {
            items.iter_mut().filter(|i| i.key.object() == number).for_each(|i| i.key = i.key.of(u32::MAX));
        });
    });
    volume.repaired().file("other", b"");
}

/// A volume on which damage was met said that it was clean after the next unmount, and `fsck -p` believed it.
#[test]
fn damage_that_was_met_stays_known() {
    let volume = Volume::new("");
    let ino = volume.file("file", &[1; 100]);
    let is_clean = |knife: &Knife| ReiserFs.probe(&knife.dev).unwrap().unwrap().clean;
    let volume = volume.hurt(|knife| {
        assert!(is_clean(knife));
        knife.stat("/file", |d| d.mode = 0.into());
    });
    volume.fs.getattr(ino).unwrap_err();
    let volume = volume.hurt(|knife| assert!(!is_clean(knife), "nothing was changed but that"));
    volume.file("other", b"");
    volume.hurt(|knife| {
        assert!(!is_clean(knife), "a mount that does not meet it");
        assert_eq!(damage::check(&ReiserFs, knife.dev.clone(), Repair::Preen).remaining(), 1);
        assert!(!is_clean(knife));
        assert_eq!(damage::check(&ReiserFs, knife.dev.clone(), Repair::Yes).remaining(), 0);
        assert!(is_clean(knife));
    });
}

/// What a checkpoint could not write in place was read from there.
#[test]
fn a_checkpoint_that_fails_hides_nothing() {
    let disk = FaultDevice::new(damage::format(&ReiserFs, 24 << 20, ""));
    let fs = mount(Devices::single(disk.clone()), "cache=1M");
    let large = file(&*fs, fs.root(), "large", 0, &[1; 3 << 20]);
    (0..300).for_each(|n| _ = file(&*fs, fs.root(), &format!("file {n}"), 0, &[7; 200]));
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
    let volume = Volume::of(24 << 20, "block=1K,log=512K", "");
    volume.file("large", &[1; 10 << 20]);
    let volume = volume.hurt(|knife| {
        assert!(knife.sb().bitmaps.get() > 2);
        knife.destroy(knife.geom.bitmap(2));
    });
    (0..2000).for_each(|n| _ = volume.file(&format!("file {n}"), &[3; 3000]));
    volume.repaired().assert_holds("file 1999", &[3; 3000]);
}

/// The last bitmap covered itself and the copy of the superblock, and its making was taken for damage.
#[test]
fn a_last_bitmap_that_covers_nothing_is_no_damage() {
    let covered = Geom { node_size: 1024, ..Geom::default() }.covered();
    let volume = Volume::of(u64::from(17 * covered + 2) << 10, "block=1K,log=512K", "");
    let (first, large) = (volume.file("first", &[8; 100_000]), volume.file("large", b""));
    let (mut at, piece) = (0, vec![9; 1 << 20]);
    let mut fill = || loop {
        match volume.fs.write(large, at, &piece) {
            Ok(n) => at += n as u64,
            Err(e) => break (at, e.errno()),
        }
    };
    let (full, why) = fill();
    assert_eq!(why, Errno::ENOSPC);
    // Far from where the large file ends, and too little to be looked for as long as there is another bitmap.
    volume.remove("first", first);
    let (more, why) = fill();
    assert_eq!(why, Errno::ENOSPC);
    assert!(more > full + 50_000, "{more} after {full}");
    volume.check();
}

/// On a full volume stat data grow as long as there are blocks, then calls that ask for it are refused; names are removed all the
/// same, though times of what is above them and of what they name change then.
#[test]
fn stat_data_grow_on_a_full_volume() {
    let volume = Volume::new("");
    let files: Vec<(String, Ino)> =
        (0..12_000).map(|n| format!("file {n}")).map(|name| (name.clone(), volume.file(&name, &[4; 60]))).collect();
    let large = volume.file("large", b"");
    volume.fill(large);
    let time = Some(SetTime::At(Time { secs: -1_000_000_000_000, nanos: 1 }));
    let far = SetAttr { uid: Some(1 << 31), gid: Some(1 << 31), atime: time, btime: time, ..SetAttr::default() };
    let mut done = [0, 0];
    for (_, ino) in &files {
        match volume.fs.setattr(*ino, &far) {
            Ok(_) => done[0] += 1,
            Err(e) => {
                assert_eq!(e.errno(), Errno::ENOSPC);
                done[1] += 1;
            }
        }
    }
    assert!(done[0] > 100 && done[1] > 0, "{done:?}");
    files.iter().for_each(|(name, ino)| volume.remove(name, *ino));
    assert!(volume.fs.failure().is_none());
    volume.check();
}

/// An unmounted image is no larger than what lies in it: the space of the log is given back.
#[test]
fn the_log_takes_no_space_after_an_unmount() {
    let volume = Volume::new("");
    for n in 0..200 {
        volume.fs.fsync(volume.file(&format!("file {n}"), &[1; 200]), false).unwrap();
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

/// A node in a new place was clean before it was durable: the flush failed and forgot it, it was evicted, and what had been synced
/// could not be read.
#[test]
fn what_was_synced_is_read_after_a_flush_that_forgot() {
    let line = "profile=Full size=25165824 format=block=1K,log=512K \
                mount=cache=1M,tails=all,ordering=preserve,layout=virtual,noreadahead \
                fault=Flush:12:Once:Forgotten(13894185) end=Unmount ops=mkdir /d0 493 0; mkdir /d1 493 0; mkdir /d2 493 0; \
                create /d1/f6 384 0; rmdir /d0; create /d1/f16 420 0; create /d1/f23 384 7; write /d1/f6 147456 496808 18; \
                write /d1/f6 11 147261 19; write /d1/f23 1916924 3023 20; remount; create /d1/f20 420 0; create /d2/f25 384 \
                0; write /d1/f23 0 258823 31";
    faults::repeat(&ReiserFs, line).unwrap_or_else(|e| panic!("{e}"));
}

/// The only bitmap was damaged: there is no space, and syslog is told why.
#[test]
fn a_damaged_bitmap_counts_as_full() {
    let line = "profile=Sync size=25165824 format=log=1M mount=ordering=preserve,layout=areas \
                fault=Write:6:Once:Flipped(3760805) end=Unmount ops=mkdir /d1 493 0; create /d1/f3 493 7; \
                write /d1/f3 22455 2132 10; remount; mkdir /d1/d1 493 0";
    faults::repeat(&ReiserFs, line).unwrap_or_else(|e| panic!("{e}"));
}
