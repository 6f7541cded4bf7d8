//! The cleaner by itself: when it works, when it ends, what its policies cost.

use arbor_base::device::{FaultDevice, FaultOp, FaultTimes, MemDevice};
use arbor_base::vfs::*;
use arbor_lfs::Lfs;
use std::sync::Arc;

const BLOCK: usize = 8192;
const CX: Cx = Cx { uid: 0, gid: 0 };

struct Bench {
    dev: MemDevice,
    clock: Arc<ManualClock>,
    fs: Arc<dyn FileSystem>,
    file: Ino,
    blocks: u64,
    random: u64,
}

fn mounted(dev: &MemDevice, options: &str, clock: &Arc<ManualClock>) -> Arc<dyn FileSystem> {
    let options = MountOptions { options: Options::parse(options), ..MountOptions::default() };
    Lfs.mount(Devices::single(dev.clone()), &options, clock.clone()).expect("mount")
}

impl Bench {
    /// A volume of 64 MiB with a file that fills some percentage of what it can hold.
    fn new(mount: &str, percent: u64) -> Bench {
        let dev = MemDevice::new(64 << 20);
        let options =
            FormatOptions { uuid: [7; 16], options: Options::parse("segment=256K"), ..FormatOptions::default() };
        Lfs.format(Devices::single(dev.clone()), &options).expect("format");
        let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
        let fs = mounted(&dev, mount, &clock);
        let s = fs.statfs().expect("statfs");
        let blocks = s.bavail * u64::from(s.frsize) * percent / 100 / BLOCK as u64;
        let file = fs.mknod(&CX, fs.root(), b"file", mode::IFREG | 0o644, 0).expect("create").ino;
        let mut bench = Bench { dev, clock, fs, file, blocks, random: 88_172_645_463_325_252 };
        (0..blocks).for_each(|b| bench.write(b));
        bench
    }

    /// xorshift64*.
    fn below(&mut self, n: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) % n
    }

    fn write(&mut self, block: u64) {
        let bytes = [(block % 251) as u8; BLOCK];
        assert_eq!(self.fs.write(self.file, block * BLOCK as u64, &bytes).expect("write"), BLOCK);
        self.clock.advance_ms(100);
    }

    /// Writes so many blocks, drawn from all.
    fn churn(&mut self, times: u64) {
        for _ in 0..times {
            let block = self.below(self.blocks);
            self.write(block);
        }
    }

    /// Nothing happens but background work, so many times.
    fn rest(&self, times: u32) {
        for _ in 0..times {
            let now = self.clock.now();
            let next = self.fs.background(now);
            self.clock.advance_ms(now.ms_until(next).max(1));
        }
    }

    fn counter(&self, name: &str) -> u64 {
        self.fs.counters().iter().find(|c| c.0 == name).unwrap_or_else(|| panic!("no counter {name}")).1
    }

    /// Unmounts; the checker finds nothing, and every block is there.
    fn verify(self) {
        let mut buf = [0; BLOCK];
        for b in 0..self.blocks {
            assert_eq!(self.fs.read(self.file, b * BLOCK as u64, &mut buf).expect("read"), BLOCK);
            assert!(buf.iter().all(|x| u64::from(*x) == b % 251), "block {b}");
        }
        self.fs.unmount().expect("unmount");
        let options = CheckOptions { repair: Repair::No, force: true };
        let report = Lfs.check(Devices::single(self.dev), &options, &mut |_, _, _| ()).expect("check");
        assert_eq!(report.issues, vec![]);
    }
}

#[test]
fn cleaning_ends_and_makes_segments_clean() {
    let mut b = Bench::new("cache=8M,clean=off", 60);
    b.churn(b.blocks);
    b.fs.syncfs().expect("sync");
    let before = b.counter("clean_segments");
    let mut steps = 0;
    while b.fs.clean(1 << 20).expect("clean").more {
        steps += 1;
        assert!(steps < 1000, "cleaning does not end");
    }
    let after = b.counter("clean_segments");
    assert!(steps > 10 && after > before + 20, "{steps} steps, {before} segments clean before, {after} after");
    b.verify();
}

#[test]
fn an_idle_volume_is_cleaned() {
    let mut b = Bench::new("cache=8M", 90);
    b.churn(b.blocks * 2);
    let before = b.counter("clean_segments");
    b.rest(300);
    let after = b.counter("clean_segments");
    assert!(after >= before + 5, "{before} segments clean before, {after} after");
    b.verify();
}

/// The volume has 21 segments in reserve: the cleaner works below half of that, and up to it when nothing changes.
const RESERVE: u64 = 256 / 12;

/// A data base is one file that is written all the time.
#[test]
fn a_file_that_is_written_all_the_time_is_not_idle() {
    let mut b = Bench::new("cache=8M", 60);
    let mut least = u64::MAX;
    for turn in 0.. {
        assert!(turn < 100_000, "nothing is ever cleaned");
        if b.counter("cleaned_segments") > 0 {
            break;
        }
        least = b.counter("clean_segments");
        b.churn(1);
        b.fs.background(b.clock.now());
    }
    assert!(least <= RESERVE / 2 + 1, "cleaned although {least} segments were clean");
    b.verify();
}

/// A single step may fill what it empties.
#[test]
fn an_idle_volume_is_cleaned_up_to_the_mark() {
    let mut b = Bench::new("cache=1M", 80);
    b.churn(b.blocks * 2);
    b.rest(3000);
    let after = b.counter("clean_segments");
    // A few wait for the next checkpoints.
    assert!(after + 4 >= RESERVE, "{after} segments are clean");
    b.verify();
}

#[test]
fn switched_off_nothing_is_cleaned_in_the_background() {
    for (mount, cleans) in [("cache=8M", true), ("cache=8M,clean=off", false)] {
        let mut b = Bench::new(mount, 90);
        b.churn(b.blocks * 2);
        let before = b.counter("cleaned_segments");
        b.rest(300);
        assert_eq!(b.counter("cleaned_segments") > before, cleans, "{mount}");
        b.verify();
    }
}

/// Nine of ten writes go to a tenth of the file; returns bytes that the cleaner has moved for each that was written.
fn hot_and_cold(mount: &str) -> f64 {
    let mut b = Bench::new(mount, 85);
    let hot = b.blocks / 10;
    let round = |b: &mut Bench| {
        for _ in 0..b.blocks * 3 {
            let block = if b.below(10) < 9 { b.below(hot) } else { hot + b.below(b.blocks - hot) };
            b.write(block);
        }
    };
    round(&mut b);
    let before = b.counter("clean_moved_bytes");
    round(&mut b);
    let moved = (b.counter("clean_moved_bytes") - before) as f64 / (b.blocks * 3 * BLOCK as u64) as f64;
    b.verify();
    moved
}

/// Rosenblum and Ousterhout 1992, section 3.6: greedily, cold segments stay just too full to be chosen, for long.
#[test]
fn cost_benefit_with_ages_costs_less_than_greed() {
    let (greedy, without, best) = (
        hot_and_cold("cache=2M,clean=greedy,agesort=off"),
        hot_and_cold("cache=2M,agesort=off"),
        hot_and_cold("cache=2M"),
    );
    eprintln!("moved for each byte written: greedy {greedy:.2}, cost-benefit {without:.2}, sorted by age {best:.2}");
    assert!(best < greedy, "greedy {greedy:.2}, cost-benefit with ages {best:.2}");
}

/// Any of the cleaner's reads fails: that is nobody's loss, and the volume goes on.
#[test]
fn what_the_cleaner_cannot_read_stays() {
    let mut b = Bench::new("cache=8M,clean=off", 60);
    b.churn(b.blocks);
    b.fs.unmount().expect("unmount");
    for n in 1.. {
        let dev = FaultDevice::new(b.dev.snapshot());
        let options = MountOptions { options: Options::parse("cache=8M,clean=off"), ..MountOptions::default() };
        let fs = Lfs.mount(Devices::single(dev.clone()), &options, b.clock.clone()).expect("mount");
        dev.fail(FaultOp::Read, dev.count(FaultOp::Read) + n, FaultTimes::Once);
        fs.clean(2 << 20).unwrap_or_else(|e| panic!("read {n}: {e}"));
        let struck = dev.struck() > 0;
        let file = fs.lookup(fs.root(), b"file").expect("lookup").ino;
        fs.write(file, 0, &[0; BLOCK]).unwrap_or_else(|e| panic!("after read {n}: {e}"));
        fs.unmount().unwrap_or_else(|e| panic!("after read {n}: {e}"));
        let fs = mounted(dev.inner(), "cache=8M,clean=off", &b.clock);
        Bench { dev: dev.inner().clone(), clock: b.clock.clone(), fs, file, ..b }.verify();
        if !struck {
            assert!(n > 5, "{n} reads");
            return;
        }
    }
}
