//! Errors of the device, lies among them, in all four ways to keep metadata.
//!
//! `ARBOR_COUNT` and `ARBOR_SEED` say how many faults and which; `arbor torture -t ffs --only fault` runs more of them.

use arbor_base::device::{Device, Fault, FaultDevice, FaultOp, FaultTimes, MemDevice};
use arbor_base::vfs::*;
use arbor_ffs::Ffs;
use std::sync::Arc;

const KEEPINGS: [&str; 4] = ["async", "sync", "softupdates", "journal"];
const FILES: usize = 8;

fn fresh() -> MemDevice {
    let dev = MemDevice::new(16 << 20);
    let o = FormatOptions { uuid: [7; 16], options: Options::parse("block=4K,cg=4M"), ..FormatOptions::default() };
    Ffs.format(Devices::single(dev.clone()), &o).unwrap();
    dev
}

fn mount(dev: impl Device + 'static, keep: &str) -> Result<Arc<dyn FileSystem>> {
    let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
    let options = MountOptions { options: Options::parse(&format!("keep={keep}")), ..MountOptions::default() };
    Ffs.mount(Devices::single(dev), &options, clock)
}

fn check(dev: &MemDevice, repair: Repair) -> CheckReport {
    let options = CheckOptions { repair, force: true };
    Ffs.check(Devices::single(dev.clone()), &options, &mut |_, _, _| {}).unwrap()
}

fn bytes(n: usize) -> Vec<u8> {
    vec![n as u8 + 1; 9000 * (n + 1)]
}

/// Creates, writes and syncs files until something fails; returns how many were synced.
fn work(fs: &dyn FileSystem) -> (usize, Result<()>) {
    for n in 0..FILES {
        let step = || -> Result<()> {
            let e = fs.mknod(&Cx::default(), fs.root(), format!("f{n}").as_bytes(), mode::IFREG | 0o644, 0)?;
            fs.write(e.ino, 0, &bytes(n))?;
            fs.fsync(e.ino, false)
        };
        if let Err(e) = step() {
            return (n, Err(e));
        }
    }
    (FILES, fs.unmount())
}

/// What was synced is there after the recovery, and the volume is sound.
fn verify(dev: MemDevice, keep: &str, synced: usize) {
    if keep == "async" {
        // Only fsync's own buffers are sure, and names are not among them.
        assert_eq!(check(&dev, Repair::Yes).remaining(), 0);
        return;
    }
    let fs = mount(dev.clone(), keep).unwrap();
    for n in 0..synced {
        let e = fs.lookup(fs.root(), format!("f{n}").as_bytes()).unwrap();
        let mut buf = vec![0; bytes(n).len() + 1];
        assert_eq!(fs.read(e.ino, 0, &mut buf).unwrap(), buf.len() - 1);
        assert!(buf[..buf.len() - 1] == bytes(n));
    }
    fs.unmount().unwrap();
    assert_eq!(check(&dev, Repair::No).remaining(), 0);
}

/// The call that meets the error fails with EIO, and the volume turns read-only.
fn fail_each(op: FaultOp, times: FaultTimes, keep: &str) {
    for nth in 1.. {
        let dev = fresh();
        let faulty = FaultDevice::new(dev.clone());
        faulty.fail(op, nth, times);
        let (synced, result) = match mount(faulty.clone(), keep) {
            Ok(fs) => {
                let (n, r) = work(&*fs);
                if r.is_err() {
                    // An unmount says itself that it failed.
                    assert!(n == FILES || fs.failure().is_some(), "{keep} {op:?} {nth}: the failure is told");
                    let again = fs.mknod(&Cx::default(), fs.root(), b"more", mode::IFREG, 0);
                    assert!(again.is_err(), "{keep} {op:?} {nth}: read-only");
                    assert!(fs.syncfs().is_err(), "{keep} {op:?} {nth}: a lost write is not forgotten");
                }
                (n, r)
            }
            Err(e) => (0, Err(e)),
        };
        let Err(e) = result else {
            assert!(nth > 10, "{keep} {op:?}: faults were met");
            return;
        };
        assert_eq!(e.errno(), Errno::EIO, "{keep} {op:?} {nth}");
        verify(dev, keep, synced);
    }
}

#[test]
fn every_write_fails_once() {
    KEEPINGS.iter().for_each(|keep| fail_each(FaultOp::Write, FaultTimes::Once, keep));
}

#[test]
fn every_write_fails_from_then_on() {
    KEEPINGS.iter().for_each(|keep| fail_each(FaultOp::Write, FaultTimes::FromThenOn, keep));
}

#[test]
fn every_flush_fails_once() {
    KEEPINGS.iter().for_each(|keep| fail_each(FaultOp::Flush, FaultTimes::Once, keep));
}

/// A bit that flips while metadata with a checksum are read fails no call after the mount but for `EUCLEAN`, and nothing of it
/// reaches the device, though other inodes of the same block are written.
#[test]
fn a_bit_flipped_in_transfer_does_no_harm() {
    let good = fresh();
    assert_eq!(work(&*mount(good.clone(), "softupdates").unwrap()).0, FILES);
    let mut struck = 0;
    for keep in KEEPINGS {
        for (nth, seed) in (1..12).flat_map(|nth| (1..12).map(move |seed| (nth, seed))) {
            let dev = good.snapshot();
            let faulty = FaultDevice::new(dev.clone());
            faulty.inject(FaultOp::Read, nth, FaultTimes::Once, Fault::Flipped(seed));
            let fs = match mount(faulty.clone(), keep) {
                Ok(fs) => fs,
                Err(e) => {
                    assert_eq!((e.errno(), faulty.struck()), (Errno::EUCLEAN, 1), "{keep} {nth} {seed}: {e}");
                    continue;
                }
            };
            for n in (0..FILES).step_by(2) {
                let Ok(e) = fs.lookup(fs.root(), format!("f{n}").as_bytes()) else { continue };
                fs.setattr(e.ino, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
            }
            fs.mknod(&Cx::default(), fs.root(), b"g", mode::IFREG | 0o644, 0).unwrap();
            fs.unmount().unwrap();
            if faulty.struck_kind().is_some_and(|kind| !Ffs.has_checksum(kind)) {
                continue;
            }
            struck += faulty.struck();
            assert_eq!(check(&dev, Repair::No).remaining(), 0, "{keep} {nth} {seed}");
            verify(dev, "softupdates", FILES);
        }
    }
    assert!(struck > 0);
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}: {v:?} is no number")))
}

#[test]
fn every_sort_of_fault() {
    let count = number("ARBOR_COUNT", 800);
    let tally = arbor_torture::faults::run(&Ffs, number("ARBOR_SEED", 1), count, &mut |_| true);
    assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n"));
    assert!(tally.faults >= count, "{tally:?}");
}
