//! What failed once: lines that `arbor torture --repeat` takes, and cases that were too long for one.

use arbor_base::device::{FaultDevice, FaultOp, FaultTimes, MemDevice};
use arbor_base::vfs::*;
use arbor_reiserfs::ReiserFs;
use arbor_torture::{damage, faults};
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
    ];
    let failed: Vec<String> = lines.iter().filter_map(|line| faults::repeat(&ReiserFs, line).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
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
