//! Errors and lies of the device: every operation of it fails in its turn, in every way that the laboratory knows.
//!
//! `ARBOR_COUNT` and `ARBOR_SEED` say how many faults and which.

use arbor_base::device::{Device, FaultDevice, FaultOp, FaultTimes, MemDevice};
use arbor_base::vfs::*;
use arbor_lfs::Lfs;
use std::sync::Arc;

const FILES: usize = 8;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}: {v:?} is no number")))
}

#[test]
fn every_sort_of_fault() {
    let count = number("ARBOR_COUNT", 400);
    let tally = arbor_torture::faults::run(&Lfs, number("ARBOR_SEED", 1), count, &mut |_| true);
    assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n"));
    assert!(tally.faults >= count, "{tally:?}");
}

fn mount(dev: impl Device + 'static) -> Result<Arc<dyn FileSystem>> {
    let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
    Lfs.mount(Devices::single(dev), &MountOptions::default(), clock)
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

/// After a failure nothing is taken and nothing promised.
fn refuses(fs: &dyn FileSystem, what: &str) {
    assert!(fs.failure().is_some(), "{what}: the failure is told");
    let more = fs.mknod(&Cx::default(), fs.root(), b"more", mode::IFREG, 0);
    assert_eq!(more.unwrap_err().errno(), Errno::EROFS, "{what}: read-only");
    for synced in [fs.syncfs(), fs.fsync(fs.root(), false), fs.unmount()] {
        assert!(synced.is_err(), "{what}: a lost write is not forgotten");
    }
}

fn verify(dev: MemDevice, synced: usize) {
    let fs = mount(dev.clone()).unwrap();
    for n in 0..synced {
        let ino = fs.lookup(fs.root(), format!("f{n}").as_bytes()).unwrap().ino;
        let mut found = vec![0; bytes(n).len() + 1];
        assert_eq!(fs.read(ino, 0, &mut found).unwrap(), found.len() - 1);
        assert!(found[..found.len() - 1] == bytes(n), "file {n}");
    }
    fs.unmount().unwrap();
    let options = CheckOptions { repair: Repair::No, force: true };
    let report = Lfs.check(Devices::single(dev), &options, &mut |_, _, _| {}).unwrap();
    assert_eq!(report.issues, []);
}

fn fail_nth(op: FaultOp, times: FaultTimes) {
    for nth in 1.. {
        let dev = MemDevice::new(16 << 20);
        Lfs.format(Devices::single(dev.clone()), &FormatOptions { uuid: [7; 16], ..Default::default() }).unwrap();
        let faulty = FaultDevice::new(dev.clone());
        faulty.fail(op, nth, times);
        let mounted = mount(faulty.clone());
        let (synced, result) = mounted.as_ref().map_or((0, Ok(())), |fs| work(&**fs));
        let e = match (&mounted, result) {
            (Err(e), _) => e.errno(),
            (Ok(fs), Err(e)) => {
                // It is the unmount that fails in the end, and there is no other.
                if synced < FILES {
                    refuses(&**fs, &format!("{op:?} {nth}"));
                }
                e.errno()
            }
            (Ok(_), Ok(())) => {
                assert!(nth > 10, "{op:?}: only {nth} were met");
                return;
            }
        };
        assert_eq!(e, Errno::EIO, "{op:?} {nth}");
        drop(mounted);
        verify(dev, synced);
    }
}

#[test]
fn every_write_fails_once() {
    fail_nth(FaultOp::Write, FaultTimes::Once);
}

#[test]
fn every_write_fails_from_then_on() {
    fail_nth(FaultOp::Write, FaultTimes::FromThenOn);
}

#[test]
fn every_flush_fails_once() {
    fail_nth(FaultOp::Flush, FaultTimes::Once);
}
