//! The log goes round: volumes are written over many times, at several fullness levels, with the cleaner at work.

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_lfs::Lfs;
use std::sync::Arc;

const BLOCK: usize = 8192;
const CX: Cx = Cx { uid: 0, gid: 0 };

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % n
    }
}

fn fresh(size: u64, options: &str) -> MemDevice {
    let dev = MemDevice::new(size);
    let options = FormatOptions { uuid: [7; 16], options: Options::parse(options), ..FormatOptions::default() };
    Lfs.format(Devices::single(dev.clone()), &options).expect("format");
    dev
}

fn mount(dev: &MemDevice, clock: &Arc<ManualClock>) -> Arc<dyn FileSystem> {
    let options = MountOptions { options: Options::parse("cache=8M"), ..MountOptions::default() };
    Lfs.mount(Devices::single(dev.clone()), &options, clock.clone()).expect("mount")
}

fn check(dev: &MemDevice) {
    let options = CheckOptions { repair: Repair::No, force: true };
    let report = Lfs.check(Devices::single(dev.clone()), &options, &mut |_, _, _| ()).expect("check");
    assert_eq!(report.issues, vec![]);
}

fn content(block: u64, version: u64) -> Vec<u8> {
    let word = (block << 32 | version).to_le_bytes();
    word.iter().copied().cycle().take(BLOCK).collect()
}

/// Fills a volume to some percentage of what it can hold, and writes its blocks over at random.
fn overwrite(percent: u64, rounds: u64) {
    let dev = fresh(64 << 20, "segment=512K");
    let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
    let fs = mount(&dev, &clock);
    let s = fs.statfs().expect("statfs");
    let blocks = s.bavail * u64::from(s.frsize) * percent / 100 / BLOCK as u64;
    let file = fs.mknod(&CX, fs.root(), b"file", mode::IFREG | 0o644, 0).expect("create").ino;
    let mut versions = vec![0; blocks as usize];
    for b in 0..blocks {
        assert_eq!(fs.write(file, b * BLOCK as u64, &content(b, 0)).expect("write"), BLOCK, "block {b}");
    }
    let mut random = Random(percent);
    for n in 0..rounds * blocks {
        let b = random.below(blocks);
        versions[b as usize] = n + 1;
        let done = fs.write(file, b * BLOCK as u64, &content(b, n + 1));
        assert_eq!(done.unwrap_or_else(|e| panic!("overwrite {n}: {e}, {:?}", fs.failure())), BLOCK);
        clock.advance_ms(10);
    }
    let counters = fs.counters();
    fs.unmount().expect("unmount");
    drop(fs);
    check(&dev);
    let fs = mount(&dev, &clock);
    let file = fs.lookup(fs.root(), b"file").expect("lookup").ino;
    let mut buf = vec![0; BLOCK];
    for b in 0..blocks {
        assert_eq!(fs.read(file, b * BLOCK as u64, &mut buf).expect("read"), BLOCK);
        assert!(buf == content(b, versions[b as usize]), "block {b}");
    }
    let of = |name: &str| counters.iter().find(|c| c.0 == name).map_or(0, |c| c.1);
    let written = of("write_bytes") as f64 / (rounds as f64 + 1.0) / (blocks * BLOCK as u64) as f64;
    eprintln!("{percent}%: {} segments cleaned, {written:.2} bytes written for one", of("cleaned_segments"));
}

#[test]
fn a_volume_that_is_half_full() {
    overwrite(50, 10);
}

#[test]
fn a_volume_that_is_nearly_full() {
    overwrite(90, 4);
}

#[test]
fn a_full_volume() {
    overwrite(99, 2);
}

/// Blocks after the direct ones, each in a file of its own: what is accepted brings an indirect block along for each.
#[test]
fn what_changes_indirect_blocks_has_room_for_them() {
    for clean in [24, 27] {
        one_byte_in_each(clean);
    }
}

/// Changes a byte of each file of a volume that has so many clean segments, and no cleaner.
fn one_byte_in_each(clean: usize) {
    const FILES: u64 = 920;
    const LEN: usize = 13 * BLOCK;
    let dev = fresh(128 << 20, "segment=512K");
    let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
    let options = MountOptions { options: Options::parse("cache=256M,clean=off"), ..MountOptions::default() };
    let fs = Lfs.mount(Devices::single(dev.clone()), &options, clock.clone()).expect("mount");
    let make = |n: u64| {
        let ino = fs.mknod(&CX, fs.root(), n.to_string().as_bytes(), mode::IFREG | 0o644, 0).expect("create").ino;
        assert_eq!(fs.write(ino, 0, &content(n, 0).repeat(13)).expect("write"), LEN);
        ino
    };
    let files: Vec<Ino> = (0..FILES).map(make).collect();
    let are_clean = || {
        fs.syncfs().expect("syncfs");
        let u = Lfs.utilisation(&Devices::single(dev.clone())).expect("utilisation").expect("segments");
        u.count as usize - u.live.len()
    };
    let mut some = (0..FILES).cycle().step_by(7);
    while are_clean() > clean {
        for n in some.by_ref().take(25) {
            assert_eq!(fs.write(files[n as usize], 0, &content(n, 0)).expect("write"), BLOCK);
        }
    }
    for ino in &files {
        assert_eq!(fs.write(*ino, 100_000, &[7]).expect("overwrite"), 1, "{clean} clean segments");
    }
    fs.unmount().expect("unmount");
    check(&dev);
    let fs = mount(&dev, &clock);
    for (n, ino) in (0..).zip(files) {
        let mut was = content(n, 0).repeat(13);
        was[100_000] = 7;
        let mut now = vec![0; LEN];
        assert_eq!(fs.read(ino, 0, &mut now).expect("read"), LEN);
        assert!(now == was, "file {n}");
    }
}
