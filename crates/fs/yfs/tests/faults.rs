//! Errors of the device: the call that meets one fails with EIO, the volume turns read-only, and
//! what was synced before is there after the device has recovered.

use arbor_base::device::{FaultDevice, FaultOp, FaultTimes, MemDevice};
use arbor_base::vfs::*;
use arbor_yfs::Yfs;
use std::sync::Arc;

const SIZE: u64 = 16 << 20;

fn fresh() -> MemDevice {
    let dev = MemDevice::new(SIZE);
    Yfs.format(Devices::single(dev.clone()), &FormatOptions { uuid: [7; 16], ..Default::default() }).unwrap();
    dev
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }))
}

fn mount(dev: impl arbor_base::device::Device + 'static) -> Result<Arc<dyn FileSystem>> {
    Yfs.mount(Devices::single(dev), &MountOptions::default(), clock())
}

/// Creates, writes and syncs files until something fails; returns how many were synced.
fn work(fs: &dyn FileSystem) -> (usize, Result<()>) {
    for n in 0..12 {
        let step = || -> Result<()> {
            let e = fs.mknod(&Cx::default(), fs.root(), format!("f{n}").as_bytes(), mode::IFREG | 0o644, 0)?;
            fs.write(e.ino, 0, &vec![n as u8 + 1; 3000 * (n + 1)])?;
            fs.fsync(e.ino, false)
        };
        if let Err(e) = step() {
            return (n, Err(e));
        }
    }
    (12, fs.unmount())
}

fn verify(dev: MemDevice, synced: usize) {
    let report = Yfs.check(
        Devices::single(dev.snapshot()),
        &CheckOptions { repair: Repair::No, force: true },
        &mut |_, _, _| {},
    );
    assert_eq!(report.unwrap().remaining(), 0);
    let fs = mount(dev).unwrap();
    for n in 0..synced {
        let e = fs.lookup(fs.root(), format!("f{n}").as_bytes()).unwrap();
        let mut buf = vec![0; 3000 * (n + 1) + 1];
        assert_eq!(fs.read(e.ino, 0, &mut buf).unwrap(), buf.len() - 1);
        assert!(buf[..buf.len() - 1].iter().all(|b| *b == n as u8 + 1));
    }
}

fn fail_nth(op: FaultOp, times: FaultTimes) {
    for nth in 1.. {
        let dev = fresh();
        let faulty = FaultDevice::new(dev.clone());
        faulty.fail(op, nth, times);
        let (synced, result) = match mount(faulty.clone()) {
            Ok(fs) => {
                let (n, r) = work(&*fs);
                if r.is_err() {
                    assert!(fs.failure().is_some(), "{op:?} {nth}: the failure is told");
                    let again = fs.mknod(&Cx::default(), fs.root(), b"more", mode::IFREG, 0);
                    assert!(again.is_err(), "{op:?} {nth}: read-only");
                    assert!(fs.syncfs().is_err(), "{op:?} {nth}: a lost write is not forgotten");
                }
                (n, r)
            }
            Err(e) => (0, Err(e)),
        };
        let Err(e) = result else {
            assert!(nth > 10, "{op:?}: faults were met");
            return;
        };
        assert_eq!(e.errno(), Errno::EIO, "{op:?} {nth}");
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

#[test]
fn a_failed_read_is_an_error_and_no_more() {
    let dev = fresh();
    let fs = mount(dev.clone()).unwrap();
    assert_eq!(work(&*fs).0, 12);
    let faulty = FaultDevice::new(dev);
    let fs = mount(faulty.clone()).unwrap();
    faulty.fail(FaultOp::Read, faulty.count(FaultOp::Read) + 1, FaultTimes::Once);
    let mut errors = 0;
    for _ in 0..2 {
        for n in 0..12usize {
            let read = fs.lookup(fs.root(), format!("f{n}").as_bytes()).and_then(|e| fs.read(e.ino, 0, &mut [0; 100]));
            errors += usize::from(read.is_err_and(|e| e.errno() == Errno::EIO));
        }
    }
    assert_eq!(errors, 1);
    fs.unmount().unwrap();
}
