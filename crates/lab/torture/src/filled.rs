//! A volume that was filled to its end stays usable: what is changed, overwritten or removed on it is refused or done, it lasts, and
//! the volume can be mounted afterwards.

use crate::damage::{check, format};
use crate::rng::Rng;
use arbor_base::device::MemDevice;
use arbor_base::vfs::{
    Cx, Devices, Engine, FileSystem, Ino, ManualClock, MountOptions, Options, Repair, SetAttr, Time, mode,
};
use std::sync::Arc;

const CX: Cx = Cx { uid: 0, gid: 0 };
/// Seconds at which it begins.
const BEGIN: i64 = 1_000_000;

/// How a volume is made, mounted and filled.
#[derive(Clone, Copy, Debug)]
pub struct Filling {
    /// Its size, bytes.
    pub size: u64,
    /// Options of mkfs.
    pub format: &'static str,
    /// Options of mount.
    pub mount: &'static str,
    /// Bytes of each file.
    pub len: usize,
}

/// A full volume that is mounted.
struct Full<'a> {
    engine: &'a dyn Engine,
    how: Filling,
    dev: MemDevice,
    clock: Arc<ManualClock>,
    ms: u64,
    fs: Arc<dyn FileSystem>,
    files: Vec<(Ino, Vec<u8>, Ino)>,
    rng: Rng,
}

impl<'a> Full<'a> {
    fn new(engine: &'a dyn Engine, how: Filling, seed: u64) -> Full<'a> {
        let dev = format(engine, how.size, how.format);
        let clock = Arc::new(ManualClock::new(Time { secs: BEGIN, nanos: 0 }));
        let options = MountOptions { options: Options::parse(how.mount), ..MountOptions::default() };
        let fs = engine.mount(Devices::single(dev.clone()), &options, clock.clone()).expect("mount");
        let mut full = Full { engine, how, dev, clock, ms: 0, fs, files: Vec::new(), rng: Rng::new(seed) };
        let mut dir = full.fs.root();
        for n in 0..u32::MAX {
            if n % 500 == 0 {
                let Ok(made) = full.fs.mkdir(&CX, full.fs.root(), format!("d{n}").as_bytes(), 0o755) else { break };
                full.fs.forget(made.ino, 1);
                dir = made.ino;
            }
            let name = format!("{n}").into_bytes();
            let Ok(made) = full.fs.mknod(&CX, dir, &name, mode::IFREG | 0o644, 0) else { break };
            full.files.push((dir, name, made.ino));
            let written = full.fs.write(made.ino, 0, &vec![n as u8 | 1; how.len]);
            full.lives("write");
            if written.is_err() {
                break;
            }
            full.pass(10);
        }
        full
    }

    fn lives(&self, did: &str) {
        assert_eq!(self.fs.failure(), None, "{:?}: after {did}, {} files", self.how, self.files.len());
    }

    fn pass(&mut self, ms: u64) {
        self.ms += ms;
        self.clock.advance_ms(ms);
        self.fs.background(Time { secs: BEGIN + (self.ms / 1000) as i64, nanos: (self.ms % 1000) as u32 * 1_000_000 });
        self.lives("background");
    }

    fn some(&mut self) -> Ino {
        let n = self.rng.below(self.files.len() as u64);
        self.files[n as usize].2
    }

    fn synced(&mut self, ino: Ino) {
        self.fs.fsync(ino, false).unwrap_or_else(|e| panic!("{:?}: fsync: {e}", self.how));
        self.lives("fsync");
    }

    fn end(self) {
        self.fs.unmount().unwrap_or_else(|e| panic!("{:?}: unmount: {e}", self.how));
        drop(self.fs);
        let report = check(self.engine, self.dev.clone(), Repair::No);
        assert_eq!(report.issues.first(), None, "{:?}", self.how);
        let again = self.engine.mount(Devices::single(self.dev), &MountOptions::default(), self.clock);
        again.and_then(|fs| fs.unmount()).unwrap_or_else(|e| panic!("{:?}: mounted again: {e}", self.how));
    }
}

/// Attributes are changed, and made durable, here and there.
pub fn takes_changes_of_inodes(engine: &dyn Engine, how: Filling, seed: u64) {
    let mut full = Full::new(engine, how, seed);
    for n in 0..2000u32 {
        let ino = full.some();
        let set = SetAttr { mode: Some(0o600 + n % 0o100), ..SetAttr::default() };
        drop(full.fs.setattr(ino, &set));
        full.lives("setattr");
        if n % 3 > 0 {
            full.synced(ino);
        }
        full.pass(5);
    }
    full.end();
}

/// Files are overwritten, cut and made longer; what has no space is refused.
pub fn is_overwritten(engine: &dyn Engine, how: Filling, seed: u64) {
    let mut full = Full::new(engine, Filling { len: how.len.max(4096), ..how }, seed);
    for n in 0..1500u32 {
        let ino = full.some();
        match n % 8 {
            7 => drop(full.fs.setattr(ino, &SetAttr { size: Some(100), ..SetAttr::default() })),
            6 => drop(full.fs.write(ino, 8192, &[8; 4096])),
            _ => drop(full.fs.write(ino, 0, &[9; 4096])),
        }
        full.lives("overwriting");
        full.synced(ino);
        full.pass(5);
    }
    full.end();
}

/// All of it is removed, and takes as much again.
pub fn is_emptied(engine: &dyn Engine, how: Filling, seed: u64) {
    let mut full = Full::new(engine, how, seed);
    let before = full.files.len();
    for (dir, name, ino) in std::mem::take(&mut full.files) {
        full.fs.unlink(dir, &name).unwrap_or_else(|e| panic!("{how:?}: unlink: {e}"));
        full.fs.forget(ino, 1);
        full.lives("unlink");
        full.pass(1);
    }
    for n in (0..before).step_by(500) {
        let name = format!("d{n}");
        full.fs.rmdir(full.fs.root(), name.as_bytes()).unwrap_or_else(|e| panic!("{how:?}: rmdir {name}: {e}"));
        full.lives("rmdir");
    }
    let dir = full.fs.mkdir(&CX, full.fs.root(), b"again", 0o755).unwrap_or_else(|e| panic!("{how:?}: mkdir: {e}"));
    for n in 0..before / 2 {
        let made = full.fs.mknod(&CX, dir.ino, format!("{n}").as_bytes(), mode::IFREG | 0o644, 0);
        let made = made.unwrap_or_else(|e| panic!("{how:?}: the {n}th of {before} made again: {e}"));
        let written = full.fs.write(made.ino, 0, &vec![7; how.len]);
        assert!(written.is_ok(), "{how:?}: the {n}th of {before} written again");
        full.fs.forget(made.ino, 1);
        full.pass(1);
    }
    full.end();
}
