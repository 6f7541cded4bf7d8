//! Every operation of the device fails in its turn, under a program that makes, writes and syncs one file after the other.
//!
//! ```text
//! Turns::fail -> fresh volume, fault at the nth operation -> work -> refuses -> verify; then the next n
//! ```

use arbor_base::device::{Device, Fault, FaultDevice, FaultOp, FaultTimes, MemDevice};
use arbor_base::vfs::{
    CheckOptions, CheckReport, CrashPromise, Cx, Devices, Engine, Errno, FileSystem, FormatOptions, ManualClock,
    MountOptions, Options, Repair, Result, SetAttr, Time, mode,
};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The volume and the program.
pub struct Turns<'a> {
    /// What is tested.
    pub engine: &'static dyn Engine,
    /// Options of `mkfs`.
    pub format: &'a str,
    /// Options of the mount.
    pub mount: &'a str,
    /// How many files the program makes.
    pub files: usize,
    /// Bytes of the first file; the second one has twice as many, and so on.
    pub step: usize,
}

impl fmt::Debug for Turns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Turns { engine, format, mount, files, step } = self;
        let name = engine.name();
        f.debug_struct("Turns")
            .field("engine", &name)
            .field("format", format)
            .field("mount", mount)
            .field("files", files)
            .field("step", step)
            .finish()
    }
}

impl Turns<'_> {
    /// A new volume of 16 MiB.
    pub fn fresh(&self) -> MemDevice {
        let dev = MemDevice::new(16 << 20);
        let options = FormatOptions { uuid: [7; 16], options: Options::parse(self.format), ..FormatOptions::default() };
        self.engine.format(Devices::single(dev.clone()), &options).expect("format");
        dev
    }

    /// Mounts it, by a clock that stands still.
    pub fn mount(&self, dev: impl Device + 'static) -> Result<Arc<dyn FileSystem>> {
        let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
        let options = MountOptions { options: Options::parse(self.mount), ..MountOptions::default() };
        self.engine.mount(Devices::single(dev), &options, clock)
    }

    /// The checker's report.
    pub fn check(&self, dev: &MemDevice, repair: Repair) -> CheckReport {
        let options = CheckOptions { repair, force: true };
        self.engine.check(Devices::single(dev.clone()), &options, &mut |_, _, _| {}).expect("check")
    }

    fn bytes(&self, n: usize) -> Vec<u8> {
        vec![n as u8 + 1; self.step * (n + 1)]
    }

    /// Makes, writes and syncs files until something fails, and unmounts; returns how many were synced.
    pub fn work(&self, fs: &dyn FileSystem) -> (usize, Result<()>) {
        let synced = AtomicUsize::new(0);
        let done = self.work_counted(fs, &synced);
        (synced.into_inner(), done)
    }

    fn work_counted(&self, fs: &dyn FileSystem, synced: &AtomicUsize) -> Result<()> {
        for n in 0..self.files {
            let e = fs.mknod(&Cx::default(), fs.root(), format!("f{n}").as_bytes(), mode::IFREG | 0o644, 0)?;
            fs.write(e.ino, 0, &self.bytes(n))?;
            fs.fsync(e.ino, false)?;
            synced.store(n + 1, Relaxed);
        }
        fs.unmount()
    }

    /// What was synced is there after the recovery, and the volume is sound; with no order in what is written, it can
    /// be mended. Panics if that fails.
    pub fn verify(&self, dev: MemDevice, synced: usize) {
        let promise = self.engine.crash_promise(&Options::parse(self.mount));
        if promise == CrashPromise::Repairable {
            assert_eq!(self.check(&dev, Repair::Yes).remaining(), 0);
            return;
        }
        if promise == CrashPromise::Prefix {
            assert_eq!(self.check(&dev.snapshot(), Repair::No).remaining(), 0);
        }
        self.verify_files(dev, synced);
    }

    fn verify_files(&self, dev: MemDevice, synced: usize) {
        let fs = self.mount(dev.clone()).expect("mount");
        for n in 0..synced {
            let e = fs.lookup(fs.root(), format!("f{n}").as_bytes()).unwrap_or_else(|e| panic!("file {n}: {e}"));
            let wanted = self.bytes(n);
            let mut found = vec![0; wanted.len() + 1];
            assert_eq!(fs.read(e.ino, 0, &mut found).expect("read"), wanted.len(), "file {n}");
            assert!(found[..wanted.len()] == wanted, "file {n}");
            fs.forget(e.ino, 1);
        }
        fs.unmount().expect("unmount");
        assert_eq!(self.check(&dev, Repair::No).issues, []);
    }

    /// Lets the first operation of the device fail, on another volume the second, and so on: the call that meets the
    /// error fails with EIO, the volume turns read-only and says why, and what was synced before is there. Panics if
    /// not.
    pub fn fail(&self, op: FaultOp, times: FaultTimes) {
        for nth in 1.. {
            let what = format!("{} {} {op:?} {nth}", self.engine.name(), self.mount);
            let dev = self.fresh();
            let faulty = FaultDevice::new(dev.clone());
            faulty.fail(op, nth, times);
            let (synced, result) = match self.mount(faulty) {
                Ok(fs) => {
                    let (synced, result) = self.work(&*fs);
                    if result.is_err() {
                        self.refuses(&*fs, synced, &what);
                    }
                    (synced, result)
                }
                Err(e) => (0, Err(e)),
            };
            let Err(e) = result else {
                assert!(nth > 10, "{what}: hardly any faults were met");
                return;
            };
            assert_eq!(e.errno(), Errno::EIO, "{what}");
            self.verify(dev, synced);
        }
    }

    /// Lets the first operation of the device panic inside of the call that it serves, on another volume the second,
    /// and so on: whoever catches it finds the volume read-only, nothing is written from then on, and what was synced
    /// before is there. Panics if not.
    pub fn panic(&self, op: FaultOp) {
        for nth in 1.. {
            let what = format!("{} {} {op:?} {nth}", self.engine.name(), self.mount);
            let dev = self.fresh();
            let faulty = FaultDevice::new(dev.clone());
            faulty.inject(op, nth, FaultTimes::Once, Fault::Panic);
            let mounted = catch_unwind(AssertUnwindSafe(|| self.mount(faulty.clone())));
            // A mount that panics leaves no volume.
            let Ok(mounted) = mounted else {
                self.verify(dev, 0);
                continue;
            };
            let fs = mounted.expect("mount");
            let synced = AtomicUsize::new(0);
            let work = || self.work_counted(&*fs, &synced).expect("nothing fails");
            if catch_unwind(AssertUnwindSafe(work)).is_ok() {
                assert!(nth > 10, "{what}: hardly any panics were met");
                return;
            }
            let writes = faulty.count(FaultOp::Write);
            let synced = synced.load(Relaxed);
            if synced < self.files {
                // Others go on before anybody has been told.
                let _ = fs.mknod(&Cx::default(), fs.root(), b"between", mode::IFREG, 0);
                fs.background(Time { secs: 2_000_000, nanos: 0 });
                assert!(fs.syncfs().is_err(), "{what}: what is half done is not made durable");
                fs.fail("a panic");
                self.refuses(&*fs, synced, &what);
            }
            assert_eq!(faulty.count(FaultOp::Write), writes, "{what}: nothing is written after it");
            self.verify(dev, synced);
        }
    }

    /// Flips a bit in each of the first `reads` of a mount, `bits` different ones. Of blocks with a checksum no such read
    /// fails a call after the mount, and nothing of it reaches the device, though other inodes of the same block are
    /// written; of the others none does harm to the engine. Panics if not.
    pub fn flip(&self, reads: u64, bits: u64) {
        let good = self.fresh();
        assert_eq!(self.work(&*self.mount(good.clone()).expect("mount")).0, self.files);
        let mut struck = 0;
        for (nth, seed) in (1..=reads).flat_map(|nth| (1..=bits).map(move |seed| (nth, seed))) {
            let what = format!("{} {} read {nth}, {seed}", self.engine.name(), self.mount);
            let dev = good.snapshot();
            let faulty = FaultDevice::new(dev.clone());
            faulty.inject(FaultOp::Read, nth, FaultTimes::Once, Fault::Flipped(seed));
            let fs = match self.mount(faulty.clone()) {
                Ok(fs) => fs,
                Err(e) => {
                    assert_eq!((e.errno(), faulty.struck()), (Errno::EUCLEAN, 1), "{what}: {e}");
                    continue;
                }
            };
            let found: Vec<_> = (0..self.files).map(|n| fs.lookup(fs.root(), format!("f{n}").as_bytes())).collect();
            for e in found.iter().flatten().skip(1).step_by(2) {
                fs.setattr(e.ino, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).expect("setattr");
            }
            fs.mknod(&Cx::default(), fs.root(), b"g", mode::IFREG | 0o644, 0).expect("mknod");
            fs.unmount().expect("unmount");
            if faulty.struck_kind().is_some_and(|kind| !self.engine.has_checksum(kind)) {
                continue;
            }
            struck += faulty.struck();
            for e in found {
                e.unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            assert_eq!(self.check(&dev, Repair::No).remaining(), 0, "{what}");
            self.verify_files(dev, self.files);
        }
        assert!(struck > 0, "no read was struck");
    }

    /// After a failure nothing is taken and nothing promised.
    fn refuses(&self, fs: &dyn FileSystem, synced: usize, what: &str) {
        let more = fs.mknod(&Cx::default(), fs.root(), b"more", mode::IFREG, 0);
        assert!(more.is_err(), "{what}: changes are refused");
        assert!(fs.syncfs().is_err(), "{what}: a lost write is not forgotten");
        assert!(fs.failure().is_some(), "{what}: the failure is told");
        // An unmount says itself that it failed.
        if synced < self.files {
            assert_eq!(more.map(|_| ()).map_err(|e| e.errno()), Err(Errno::EROFS), "{what}: read-only");
            assert!(fs.failure().is_some(), "{what}: the failure is told");
            for again in [fs.fsync(fs.root(), false), fs.unmount()] {
                assert!(again.is_err(), "{what}: a lost write is not forgotten");
            }
        }
    }
}
