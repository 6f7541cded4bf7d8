//! What the design promises beyond what every engine does: where data and metadata lie, what each of the three enhancements
//! does, what the cleaner leaves alone.

use arbor_base::device::{Device, Kind, MemDevice};
use arbor_base::vfs::*;
use arbor_dualfs::DualFs;
use arbor_dualfs::format::{CRC_AT, HEADS, SuperBlock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const BLOCK: usize = 4096;
const CX: Cx = Cx { uid: 0, gid: 0 };

struct Bench {
    dev: MemDevice,
    clock: Arc<ManualClock>,
}

impl Bench {
    fn new(size: u64, format: &str) -> Bench {
        let dev = MemDevice::new(size);
        let options = FormatOptions { uuid: [7; 16], options: Options::parse(format), ..FormatOptions::default() };
        DualFs.format(Devices::single(dev.clone()), &options).expect("format");
        Bench { dev, clock: Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 })) }
    }

    fn mount(&self, options: &str) -> Arc<dyn FileSystem> {
        let options = MountOptions { options: Options::parse(options), ..MountOptions::default() };
        DualFs.mount(Devices::single(self.dev.clone()), &options, self.clock.clone()).expect("mount")
    }

    /// Nothing happens but background work for so many seconds.
    fn rest(&self, fs: &dyn FileSystem, seconds: u64) {
        let end = self.clock.now().plus_ms(seconds * 1000);
        while self.clock.now() < end {
            let now = self.clock.now();
            let next = fs.background(now);
            self.clock.advance_ms(now.ms_until(next).max(1));
        }
    }

    /// The pieces of all files on the unmounted volume.
    fn regions(&self) -> Vec<Region> {
        let mut all = Vec::new();
        DualFs.describe(&Devices::single(self.dev.clone()), &mut |region| all.push(region)).expect("describe");
        all
    }

    fn is_sound(&self) {
        let options = CheckOptions { repair: Repair::No, force: true };
        let report = DualFs.check(Devices::single(self.dev.clone()), &options, &mut |_, _, _| ()).expect("check");
        assert_eq!(report.issues, vec![]);
    }
}

fn counter(fs: &dyn FileSystem, name: &str) -> u64 {
    fs.counters().iter().find(|c| c.0 == name).unwrap_or_else(|| panic!("no counter {name}")).1
}

fn mkdir(fs: &dyn FileSystem, dir: Ino, name: &str) -> Ino {
    fs.mkdir(&CX, dir, name.as_bytes(), 0o755).expect("mkdir").ino
}

fn file(fs: &dyn FileSystem, dir: Ino, name: &str, bytes: &[u8]) -> Ino {
    let ino = fs.mknod(&CX, dir, name.as_bytes(), mode::IFREG | 0o644, 0).expect("mknod").ino;
    assert_eq!(fs.write(ino, 0, bytes).expect("write"), bytes.len());
    ino
}

/// Directories with files of a block each.
fn tree(fs: &dyn FileSystem, dirs: u32, files: u32) -> Vec<Ino> {
    let of = |d: u32| {
        let dir = mkdir(fs, fs.root(), &format!("dir{d}"));
        for n in 0..files {
            file(fs, dir, &format!("file{n}"), &[n as u8 + 1; BLOCK]);
        }
        dir
    };
    (0..dirs).map(of).collect()
}

/// Reads all names and attributes, and the contents if they are wanted.
fn visit(fs: &dyn FileSystem, dir: Ino, contents: bool) {
    let mut found = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            found.push(entry.ino);
        }
        true
    })
    .expect("readdir");
    for ino in found {
        let attr = fs.getattr(ino).expect("getattr");
        if attr.mode & mode::IFMT == mode::IFDIR {
            visit(fs, ino, contents);
        } else if contents {
            let mut buf = vec![0; attr.size as usize];
            assert_eq!(fs.read(ino, 0, &mut buf).expect("read"), buf.len());
        }
    }
}

/// Section 2.1: data blocks of regular files, and nothing else, are in the data area.
#[test]
fn data_and_metadata_are_apart() {
    let bench = Bench::new(64 << 20, "");
    let fs = bench.mount("");
    tree(&*fs, 3, 40);
    let big = file(&*fs, fs.root(), "big", &vec![5; 3 << 20]);
    fs.setxattr(big, b"user.long", &[6; 20_000], XattrMode::Set).expect("setxattr");
    fs.symlink(&CX, fs.root(), b"link", &[b'x'; 1000]).expect("symlink");
    fs.unmount().expect("unmount");
    let border = bench.regions().iter().filter(|r| r.kind == Kind::Data).map(|r| r.offset).min().expect("data");
    for region in bench.regions() {
        assert_eq!(region.kind == Kind::Data, region.offset >= border, "{region:?}");
    }
    bench.is_sound();
}

/// Section 2.1: data blocks of the files of a directory are in one group.
#[test]
fn files_of_a_directory_are_in_one_group() {
    let bench = Bench::new(64 << 20, "group=1M");
    let fs = bench.mount("affinity=off");
    tree(&*fs, 8, 30);
    fs.unmount().expect("unmount");
    let data: Vec<Region> = bench.regions().into_iter().filter(|r| r.kind == Kind::Data).collect();
    let border = data.iter().map(|r| r.offset).min().expect("data") / (1 << 20);
    let fs = bench.mount("");
    let mut groups: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for (d, dir) in (0..8).map(|d| (d, fs.lookup(fs.root(), format!("dir{d}").as_bytes()).expect("lookup").ino)) {
        for n in 0..30 {
            let ino = fs.lookup(dir, format!("file{n}").as_bytes()).expect("lookup").ino;
            let region = data.iter().find(|r| r.owner == Some(ino)).expect("a block");
            groups.entry(d).or_default().insert(region.offset / (1 << 20) - border);
        }
    }
    // A group may begin within a mebibyte of the volume.
    assert!(groups.values().all(|of| of.len() <= 2), "{groups:?}");
    assert!(groups.values().flatten().collect::<BTreeSet<_>>().len() >= 8, "{groups:?}");
}

/// Section 2.2: a new directory stays in the group of its parent unless another one has 10% more free blocks.
#[test]
fn directory_affinity_keeps_a_tree_together() {
    let groups_of = |affinity: &str| {
        let bench = Bench::new(64 << 20, "group=4M");
        let fs = bench.mount(affinity);
        tree(&*fs, 6, 5);
        fs.unmount().expect("unmount");
        let dump = DualFs.dump(&Devices::single(bench.dev.clone()), &["groups"]).expect("dump");
        let used = dump["ever_used"].as_array().expect("groups").clone();
        used.iter().filter(|group| group["dirs"].as_u64().expect("a number") > 0).count()
    };
    assert_eq!(groups_of("affinity=10"), 1);
    assert_eq!(groups_of("affinity=off"), 7, "each has its own, the root directory too");
    assert_eq!(groups_of("affinity=0"), groups_of("affinity=off"), "any better group is taken");
}

/// Section 2.2: a block of metadata is read with those around it, so that a cold walk needs few reads.
#[test]
fn prefetching_saves_reads() {
    let bench = Bench::new(256 << 20, "");
    let fs = bench.mount("");
    tree(&*fs, 100, 20);
    fs.unmount().expect("unmount");
    let reads = |mount: &str| {
        let fs = bench.mount(mount);
        let before = counter(&*fs, "reads");
        visit(&*fs, fs.root(), false);
        let reads = counter(&*fs, "reads") - before;
        fs.unmount().expect("unmount");
        reads
    };
    let (alone, together) = (reads("relocate=off,prefetch=1"), reads("relocate=off"));
    assert!(alone > 200, "{alone}");
    assert!(together * 8 < alone, "{together} reads with prefetching, {alone} without");
}

/// Section 2.2: what is read is written to the log again, with what is read at the same time; the next walk in the same order
/// finds it together.
#[test]
fn relocation_follows_the_order_of_reading() {
    let bench = Bench::new(256 << 20, "");
    let fs = bench.mount("relocate=off");
    let dirs = tree(&*fs, 400, 3);
    // Each directory is changed at another time, so that neighbours in the tree are not neighbours in the log.
    for step in 0..20 {
        for dir in dirs.iter().skip(step).step_by(20) {
            file(&*fs, *dir, "more", &[1; 10]);
        }
        fs.syncfs().expect("syncfs");
        tree_of_noise(&*fs, step);
    }
    fs.unmount().expect("unmount");
    let walk = |mount: &str, rests: bool| {
        let fs = bench.mount(mount);
        let before = counter(&*fs, "reads");
        visit(&*fs, fs.root(), false);
        let reads = counter(&*fs, "reads") - before;
        if rests {
            bench.rest(&*fs, 20);
        }
        fs.unmount().expect("unmount");
        reads
    };
    let scattered = walk("relocate=off", false);
    let first = walk("", true);
    let second = walk("", false);
    assert!(first.abs_diff(scattered) <= 3, "what is read is nearly the same until it was moved: {first}, {scattered}");
    assert!(second * 10 < scattered * 9, "{second} reads after relocation, {scattered} before");
    bench.is_sound();
}

fn tree_of_noise(fs: &dyn FileSystem, step: usize) {
    let dir = mkdir(fs, fs.root(), &format!("noise{step}"));
    for n in 0..200 {
        file(fs, dir, &format!("file{n}"), &[2; 10]);
    }
    fs.syncfs().expect("syncfs");
}

/// What is only read stays as it is, whatever is moved: a volume that nobody changes is written until all of it lies together,
/// and no more.
#[test]
fn relocation_ends() {
    let bench = Bench::new(64 << 20, "");
    let fs = bench.mount("");
    tree(&*fs, 20, 20);
    fs.syncfs().expect("syncfs");
    let mut written = Vec::new();
    for _ in 0..6 {
        visit(&*fs, fs.root(), true);
        let before = counter(&*fs, "relocated");
        bench.rest(&*fs, 10);
        written.push(counter(&*fs, "relocated") - before);
    }
    assert!(written[1..].iter().all(|n| *n <= written[0]), "{written:?}");
    fs.unmount().expect("unmount");
    bench.is_sound();
}

/// Section 2.1: the cleaner moves metadata only; and the log goes round.
#[test]
fn the_cleaner_never_touches_data() {
    let bench = Bench::new(32 << 20, "segment=64K");
    let fs = bench.mount("relocate=off");
    let dirs = tree(&*fs, 20, 20);
    fs.syncfs().expect("syncfs");
    let data = counter(&*fs, "data_blocks_written");
    for round in 0..400 {
        // It stays, among what does not.
        fs.mkdir(&CX, dirs[0], format!("kept{round}").as_bytes(), 0o755).expect("mkdir");
        for (n, dir) in dirs.iter().enumerate() {
            let mode = 0o600 + (round + n as u32) % 8;
            fs.setattr(*dir, &SetAttr { mode: Some(mode), ..SetAttr::default() }).expect("setattr");
            let name = format!("name{}", round % 7);
            fs.mknod(&CX, *dir, name.as_bytes(), mode::IFREG | 0o600, 0).map(|attr| fs.forget(attr.ino, 1)).ok();
            fs.unlink(*dir, format!("name{}", (round + 3) % 7).as_bytes()).ok();
        }
        fs.syncfs().expect("syncfs");
        bench.rest(&*fs, 6);
    }
    assert!(counter(&*fs, "cleaned_segments") > 50, "{:?}", fs.counters());
    assert_eq!(counter(&*fs, "data_blocks_written"), data, "no data was written since");
    fs.unmount().expect("unmount");
    bench.is_sound();
}

/// A volume that is full of data still takes changes of what is there, and removals.
#[test]
fn a_full_data_area_can_be_overwritten() {
    for mount in ["", "modify=relocate"] {
        let bench = Bench::new(32 << 20, "");
        let fs = bench.mount(mount);
        let ino = file(&*fs, fs.root(), "file", &[1; BLOCK]);
        let mut at = BLOCK as u64;
        while let Ok(n) = fs.write(ino, at, &[2; 1 << 16]) {
            at += n as u64;
        }
        assert_eq!(fs.statfs().expect("statfs").bavail, 0);
        for pass in 3..6 {
            for block in (0..at / BLOCK as u64).step_by(3) {
                assert_eq!(fs.write(ino, block * BLOCK as u64, &[pass; BLOCK]).expect("overwrite"), BLOCK);
            }
        }
        for block in (0..at / BLOCK as u64 - 64).step_by(64) {
            assert_eq!(fs.write(ino, block * BLOCK as u64, &[9; 64 * BLOCK]).expect("overwrite"), 64 * BLOCK);
        }
        fs.syncfs().expect("syncfs");
        fs.unlink(fs.root(), b"file").expect("unlink");
        fs.forget(ino, 1);
        fs.syncfs().expect("syncfs");
        assert!(fs.statfs().expect("statfs").bavail > 5000);
        fs.unmount().expect("unmount");
        bench.is_sound();
    }
}

/// A metadata area that is full refuses what would need more of it, and nothing else.
#[test]
fn a_full_metadata_area_refuses_new_files_and_takes_data() {
    let bench = Bench::new(64 << 20, "meta=4M,segment=64K");
    let fs = bench.mount("");
    let big = file(&*fs, fs.root(), "big", &[1; BLOCK]);
    let mut made = 0u32;
    let errno = loop {
        match fs.mkdir(&CX, fs.root(), format!("dir{made}").as_bytes(), 0o755) {
            Ok(attr) => fs.forget(attr.ino, 1),
            Err(e) => break e.errno(),
        }
        made += 1;
    };
    assert_eq!(errno, Errno::ENOSPC);
    assert!(made > 300, "{made} directories");
    assert_eq!(fs.statfs().expect("statfs").ffree, 0);
    assert_eq!(
        fs.write(big, BLOCK as u64, &[2; 8 * BLOCK]).expect("write"),
        8 * BLOCK,
        "direct blocks need no metadata"
    );
    for n in 0..made {
        fs.rmdir(fs.root(), format!("dir{n}").as_bytes()).expect("rmdir");
    }
    fs.syncfs().expect("syncfs");
    assert!(fs.statfs().expect("statfs").ffree > 5000, "{:?}", fs.statfs());
    fs.unmount().expect("unmount");
    bench.is_sound();
}

/// What fallocate promises costs no write of data.
#[test]
fn fallocate_writes_no_zeros() {
    let bench = Bench::new(64 << 20, "");
    let fs = bench.mount("");
    let ino = file(&*fs, fs.root(), "file", &[]);
    fs.fallocate(ino, FallocMode::empty(), 0, 20 << 20).expect("fallocate");
    fs.syncfs().expect("syncfs");
    let free = fs.statfs().expect("statfs").bavail;
    assert_eq!(counter(&*fs, "data_blocks_written"), 0);
    fs.unmount().expect("unmount");
    let fs = bench.mount("");
    assert_eq!(fs.statfs().expect("statfs").bavail, free, "it is still promised");
    let ino = fs.lookup(fs.root(), b"file").expect("lookup").ino;
    let mut buf = [1; BLOCK];
    assert_eq!(fs.read(ino, 10 << 20, &mut buf).expect("read"), BLOCK);
    assert_eq!(buf, [0; BLOCK]);
    fs.unmount().expect("unmount");
    bench.is_sound();
}

/// Damage to contents that were never overwritten is found, by reading and by a scrub.
#[test]
fn contents_have_checksums_until_they_are_overwritten() {
    let bench = Bench::new(64 << 20, "");
    let fs = bench.mount("");
    let ino = file(&*fs, fs.root(), "file", &[7; 4 * BLOCK]);
    fs.syncfs().expect("syncfs");
    fs.write(ino, BLOCK as u64, &[8; BLOCK]).expect("write");
    fs.unmount().expect("unmount");
    let block = |lbn: usize| {
        let is_it = |r: &Region| r.kind == Kind::Data && r.file_offset == (lbn * BLOCK) as u64;
        bench.regions().into_iter().find(is_it).expect("a block").offset
    };
    arbor_torture::damage::flip(&bench.dev, block(0) + 5);
    arbor_torture::damage::flip(&bench.dev, block(1) + 5);
    let fs = bench.mount("");
    let ino = fs.lookup(fs.root(), b"file").expect("lookup").ino;
    let mut buf = [0; BLOCK];
    assert_eq!(fs.read(ino, 0, &mut buf).expect_err("damage").errno(), Errno::EUCLEAN);
    assert_eq!(fs.read(ino, BLOCK as u64, &mut buf).expect("overwritten"), BLOCK);
    let (mut at, mut damage) = (0, Vec::new());
    loop {
        let done = fs.scrub(at).expect("scrub");
        damage.extend(done.damage);
        match done.next {
            Some(next) => at = next,
            None => break,
        }
    }
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(damage[0].contains(&format!("inode {ino}, data")), "{damage:?}");
}

/// What changes again and again stays where it is.
#[test]
fn contents_are_overwritten_where_they_lie() {
    for (mount, moves) in [("", 1), ("sums=off", 0)] {
        let bench = Bench::new(64 << 20, "");
        let mut places = BTreeSet::new();
        for round in 0..4 {
            let fs = bench.mount(mount);
            let ino = match fs.lookup(fs.root(), b"file") {
                Ok(attr) => attr.ino,
                Err(_) => file(&*fs, fs.root(), "file", &[7; 100 * BLOCK]),
            };
            fs.syncfs().expect("syncfs");
            fs.write(ino, 50 * BLOCK as u64, &[round + 1; BLOCK]).expect("write");
            fs.unmount().expect("unmount");
            let is_it = |r: &Region| r.kind == Kind::Data && r.file_offset == 50 * BLOCK as u64;
            places.extend(bench.regions().into_iter().find(is_it).map(|r| r.offset));
        }
        let first = bench.regions().into_iter().filter(|r| r.kind == Kind::Data).map(|r| r.offset).min();
        let at_first = first.expect("data") + 50 * BLOCK as u64;
        assert_eq!((places.len(), places.contains(&at_first)), (1, moves == 0), "{mount}: {places:?}");
        bench.is_sound();
    }
}

/// A volume on two devices.
struct Two {
    meta: MemDevice,
    data: MemDevice,
    clock: Arc<ManualClock>,
}

impl Two {
    fn new(uuid: u8) -> Two {
        let (meta, data) = (MemDevice::new(8 << 20), MemDevice::new(32 << 20));
        let two = Two { meta, data, clock: Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 })) };
        let options = FormatOptions { uuid: [uuid; 16], ..FormatOptions::default() };
        DualFs.format(two.devices(&two.meta, &two.data), &options).expect("format");
        two
    }

    fn devices(&self, meta: &MemDevice, data: &MemDevice) -> Devices {
        let extra =
            BTreeMap::from([("data".to_string(), Arc::new(data.clone()) as Arc<dyn arbor_base::device::Device>)]);
        Devices { main: Arc::new(meta.clone()), extra }
    }

    fn mount(&self, meta: &MemDevice, data: &MemDevice) -> Result<Arc<dyn FileSystem>> {
        DualFs.mount(self.devices(meta, data), &MountOptions::default(), self.clock.clone())
    }

    /// A mount with a file more, ended.
    fn use_it(&self, name: &str) {
        let fs = self.mount(&self.meta, &self.data).expect("mount");
        file(&*fs, fs.root(), name, &[7; 3 * BLOCK]);
        fs.unmount().expect("unmount");
    }
}

/// Section 2.1: a device for each.
#[test]
fn two_devices_hold_a_volume() {
    let two = Two::new(7);
    for name in ["one", "two", "three"] {
        two.use_it(name);
    }
    let fs = two.mount(&two.meta, &two.data).expect("mount");
    for name in ["one", "two", "three"] {
        let mut buf = vec![0; 4 * BLOCK];
        let ino = fs.lookup(fs.root(), name.as_bytes()).expect("lookup").ino;
        assert_eq!((fs.read(ino, 0, &mut buf).expect("read"), buf[0]), (3 * BLOCK, 7));
    }
    fs.unmount().expect("unmount");
    let options = CheckOptions { repair: Repair::No, force: true };
    let report = DualFs.check(two.devices(&two.meta, &two.data), &options, &mut |_, _, _| ()).expect("check");
    assert_eq!(report.issues, vec![]);
    let mut kinds = BTreeSet::new();
    let mut note = |r: Region| {
        kinds.insert((r.kind, r.offset >= 7 << 20));
    };
    DualFs.describe(&two.devices(&two.meta, &two.data), &mut note).expect("describe");
    assert!(kinds.contains(&(Kind::Data, true)) && !kinds.contains(&(Kind::Data, false)), "{kinds:?}");
}

/// Damage on the device for data is told by its place there.
#[test]
fn damage_of_two_devices_names_the_device() {
    let two = Two::new(7);
    two.use_it("one");
    let at = two.data.to_bytes().chunks_exact(BLOCK).position(|b| b == [7; BLOCK]).expect("the contents") * BLOCK;
    arbor_torture::damage::flip(&two.data, at as u64 + 9);
    let fs = two.mount(&two.meta, &two.data).expect("mount");
    let ino = fs.lookup(fs.root(), b"one").expect("lookup").ino;
    let met = fs.read(ino, 0, &mut [0; BLOCK]).expect_err("damaged contents").to_string();
    assert!(met.contains(&format!("at byte {at:#x} of the data device")), "{met}");
}

#[test]
fn the_wrong_device_is_refused_by_name() {
    let (two, other) = (Two::new(7), Two::new(8));
    two.use_it("one");
    let (old_meta, old_data) = (two.meta.snapshot(), two.data.snapshot());
    two.use_it("two");
    two.use_it("three");
    let refused = |meta: &MemDevice, data: &MemDevice| match two.mount(meta, data) {
        Err(Error::Refused(why)) => why.to_string(),
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("it was mounted"),
    };
    assert!(refused(&two.meta, &other.data).contains("belongs to another volume"));
    assert!(refused(&two.meta, &MemDevice::new(32 << 20)).contains("is none of a DualFS volume"));
    assert!(refused(&two.meta, &old_data).contains("given as data is an older copy: mount"));
    assert!(refused(&old_meta, &two.data).contains("the metadata are an older copy: mount"));
    let alone = DualFs.mount(Devices::single(two.meta.clone()), &MountOptions::default(), two.clock.clone());
    assert!(alone.err().expect("refused").to_string().contains("option data=FILE is needed"));
    two.mount(&two.meta, &two.data).expect("the right ones");
}

/// Copies of a volume that were mounted as often, and data that are one mount newer than metadata that were unmounted.
#[test]
fn parts_of_two_copies_are_told_apart() {
    let two = Two::new(7);
    two.use_it("one");
    let (meta, data) = (two.meta.snapshot(), two.data.snapshot());
    two.clock.advance_ms(1000);
    two.use_it("two");
    let refused = |meta: &MemDevice, data: &MemDevice| two.mount(meta, data).err().expect("refused").to_string();
    let says = refused(&meta, &two.data);
    assert!(says.contains("the metadata are an older copy: mount"), "{says}");
    // The other copy has its second mount later.
    two.clock.advance_ms(1000);
    let fs = two.mount(&meta, &data).expect("mount");
    file(&*fs, fs.root(), "other", &[8; 3 * BLOCK]);
    fs.unmount().expect("unmount");
    for (meta, data) in [(&meta, &two.data), (&two.meta, &data)] {
        let says = refused(meta, data);
        assert!(says.contains("of another copy of the volume"), "{says}");
    }
    two.mount(&meta, &data).expect("its own");
    two.mount(&two.meta, &two.data).expect("its own");
}

/// The heads of a data device are two, and one of them is enough; preening writes the other one.
#[test]
fn one_head_of_the_data_device_is_enough() {
    let two = Two::new(7);
    two.use_it("one");
    let old = two.data.snapshot();
    two.use_it("two");
    two.use_it("three");
    let check = |repair| {
        let options = CheckOptions { repair, force: true };
        let report = DualFs.check(two.devices(&two.meta, &two.data), &options, &mut |_, _, _| ()).expect("check");
        report.issues.iter().map(|issue| issue.code).collect::<Vec<_>>()
    };
    for (head, lost) in (0..u64::from(HEADS)).flat_map(|head| [(head, true), (head, false)]) {
        let (at, mut bytes) = (head * BLOCK as u64, vec![0xab; BLOCK]);
        if !lost {
            old.read_at(Kind::Super, at, &mut bytes).expect("read");
        }
        two.data.write_at(Kind::Super, at, &bytes).expect("write");
        assert_eq!(check(Repair::No), ["DataHead"]);
        let fs = two.mount(&two.meta, &two.data).expect("mount");
        let damage = fs.scrub(0).expect("scrub").damage;
        assert!(damage.is_empty(), "a mount writes both: {damage:?}");
        drop(fs);
        two.data.write_at(Kind::Super, at, &bytes).expect("write");
        assert_eq!((check(Repair::Preen), check(Repair::No)), (vec!["DataHead"], vec![]));
    }
    for head in 0..u64::from(HEADS) {
        two.data.write_at(Kind::Super, head * BLOCK as u64, &[0; 512]).expect("write");
    }
    let refused = two.mount(&two.meta, &two.data).err().expect("refused").to_string();
    assert!(refused.contains("its heads are damaged"), "{refused}");
}

/// Where one head was, a file has its contents where the second one would go.
#[test]
fn volumes_with_one_head_are_refused() {
    let two = Two::new(7);
    two.use_it("one");
    let mut bytes = vec![0; 512];
    two.meta.read_at(Kind::Super, 0, &mut bytes).expect("read");
    bytes[std::mem::offset_of!(SuperBlock, incompat)] = 1;
    let sum = arbor_base::layout::crc_without(&bytes, CRC_AT).expect("a checksum");
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&sum.to_le_bytes());
    two.meta.write_at(Kind::Super, 0, &bytes).expect("write");
    let before = two.data.to_bytes();
    let refused = two.mount(&two.meta, &two.data).err().expect("refused").to_string();
    assert!(refused.contains("unknown features 0x1"), "{refused}");
    let options = CheckOptions { repair: Repair::Yes, force: true };
    let checked = DualFs.check(two.devices(&two.meta, &two.data), &options, &mut |_, _, _| ());
    assert!(checked.expect_err("refused").to_string().contains("unknown features 0x1"));
    assert!(before == two.data.to_bytes());
}

/// Without a checkpoint the summaries say where inodes are. A file whose end none of them tells of any more does not get
/// back blocks that another file has since.
#[test]
fn a_search_of_the_log_gives_blocks_to_the_youngest_file() {
    let bench = Bench::new(32 << 20, "segment=64K");
    let fs = bench.mount("sums=off");
    let root = fs.root();
    for n in 0..40 {
        let ino = file(&*fs, root, &format!("old{n}"), &[1; 100 * BLOCK]);
        fs.forget(ino, 1);
    }
    fs.syncfs().expect("sync");
    (0..40).for_each(|n| fs.unlink(root, format!("old{n}").as_bytes()).expect("unlink"));
    fs.syncfs().expect("sync");
    let new: Vec<(String, Vec<u8>)> = (0..40u8).map(|n| (format!("new{n}"), vec![n + 2; 105 * BLOCK])).collect();
    for (name, bytes) in &new {
        file(&*fs, root, name, bytes);
    }
    fs.syncfs().expect("sync");
    while fs.clean(1 << 20).expect("clean").more {}
    fs.unmount().expect("unmount");
    bench.dev.write_at(Kind::Super, BLOCK as u64, &[0; 2 * BLOCK]).expect("write");
    let options = CheckOptions { repair: Repair::Yes, force: true };
    let report = DualFs.check(Devices::single(bench.dev.clone()), &options, &mut |_, _, _| ()).expect("check");
    assert!(report.issues.iter().any(|i| i.code == "IfileLost") && report.remaining() == 0, "{:#?}", report.issues);
    bench.is_sound();
    let fs = bench.mount("");
    for (name, bytes) in &new {
        let ino = fs.lookup(root, name.as_bytes()).expect("lookup").ino;
        let mut read = vec![0; bytes.len() + 1];
        assert_eq!(fs.read(ino, 0, &mut read).expect("read"), bytes.len(), "{name}");
        assert!(read[..bytes.len()] == bytes[..], "{name}");
    }
    fs.unmount().expect("unmount");
}

/// A metadata area that is filled with small files to the last of them is cleaned, mounted and emptied.
#[test]
fn a_metadata_area_full_of_files_can_be_emptied() {
    for (size, format, name) in [
        (8, "", "file-with-some-name-of-medium-length-".into()),
        (32, "meta=10%", "f".into()),
        (64, "meta=2M", "f".into()),
        (64, "meta=4M,segment=128K", "file".into()),
        (64, "", "n".repeat(240)),
    ] {
        let bench = Bench::new(size << 20, format);
        let fs = bench.mount("");
        let root = fs.root();
        let keep = file(&*fs, root, "keep", &[5; 9 * BLOCK]);
        fs.fsync(keep, false).expect("fsync");
        let mut made = 0u32;
        let errno = loop {
            match fs.mknod(&CX, root, format!("{name}{made}").as_bytes(), mode::IFREG | 0o644, 0) {
                Ok(attr) => fs.forget(attr.ino, 1),
                Err(e) => break e.errno(),
            }
            made += 1;
        };
        assert_eq!(errno, Errno::ENOSPC, "{size} {format}: {made} files");
        fs.syncfs().expect("syncfs");
        fs.unmount().expect("unmount");
        bench.is_sound();
        let fs = bench.mount("");
        // Each removal cleans as long as there is too little.
        for n in 0..made / 3 {
            fs.unlink(root, format!("{name}{n}").as_bytes()).unwrap_or_else(|e| panic!("{size} {format}: {n}: {e}"));
        }
        fs.syncfs().expect("syncfs");
        let stat = fs.statfs().expect("statfs");
        assert!(stat.ffree > u64::from(made) / 8, "{size} {format}: {made} files, {stat:?}");
        fs.unmount().expect("unmount");
        bench.is_sound();
    }
}

/// Cleaning on request ends, although each step leaves something that is dead soon.
#[test]
fn cleaning_ends() {
    let bench = Bench::new(64 << 20, "");
    for round in 0..2 {
        let fs = bench.mount("");
        let dirs = tree(&*fs, 40, 90);
        fs.syncfs().expect("syncfs");
        if round == 0 {
            for (d, dir) in dirs.into_iter().enumerate() {
                (0..90).for_each(|n| fs.unlink(dir, format!("file{n}").as_bytes()).expect("unlink"));
                fs.rmdir(fs.root(), format!("dir{d}").as_bytes()).expect("rmdir");
            }
        }
        fs.unmount().expect("unmount");
    }
    let fs = bench.mount("");
    let (mut steps, mut in_vain) = (0, 0);
    while in_vain < 3 {
        let done = fs.clean(1 << 20).expect("clean");
        in_vain = if done.more { 0 } else { in_vain + 1 };
        steps += 1;
        assert!(steps < 40, "{done:?}");
    }
    fs.unmount().expect("unmount");
    bench.is_sound();
}

/// An fsync writes the blocks of its file, and the metadata of all; blocks of others that lie where they lay wait for their
/// time. A cut loses no more of them than what was not made durable.
#[test]
fn an_fsync_leaves_overwritten_blocks_of_other_files() {
    const BLOCKS: usize = 100;
    let bench = Bench::new(64 << 20, "");
    let fs = bench.mount("");
    let (one, two) = (file(&*fs, fs.root(), "one", &[1; BLOCKS * BLOCK]), file(&*fs, fs.root(), "two", &[1; BLOCK]));
    let write = |ino, n| assert_eq!(fs.write(ino, 0, &vec![n; BLOCKS * BLOCK]).expect("write"), BLOCKS * BLOCK);
    let written = || counter(&*fs, "data_blocks_written");
    for n in [2, 3] {
        write(one, n);
        fs.syncfs().expect("sync");
    }
    let before = written();
    write(one, 4);
    fs.write(two, 0, &[5; BLOCK]).expect("write");
    fs.fsync(two, false).expect("fsync");
    assert_eq!(written() - before, 1, "of the other file nothing");
    let cut = Bench { dev: bench.dev.snapshot(), clock: bench.clock.clone() };
    bench.rest(&*fs, 6);
    assert_eq!(written() - before, 1 + BLOCKS as u64, "after the time that changes wait");
    write(one, 6);
    fs.fsync(two, false).expect("fsync");
    fs.fsync(one, false).expect("fsync");
    assert_eq!(written() - before, 1 + 2 * BLOCKS as u64, "when it is asked for");
    let byte = |fs: &dyn FileSystem, name: &str| {
        let (ino, mut buf) = (fs.lookup(fs.root(), name.as_bytes()).expect("lookup").ino, [0]);
        fs.read(ino, 50 * BLOCK as u64 * u64::from(name == "one"), &mut buf).expect("read");
        buf[0]
    };
    let after = cut.mount("");
    assert_eq!((byte(&*after, "one"), byte(&*after, "two")), (3, 5));
}
