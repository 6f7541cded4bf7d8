//! Files that are read, written over, removed and made again under a cache that holds few of them:
//! what is read comes from the device most of the time, or was read ahead of its use.

use arbor_base::device::MemDevice;
use arbor_base::vfs::*;
use arbor_yfs::Yfs;
use std::sync::Arc;

const FILES: usize = 600;
const LARGE: usize = 8 << 20;

/// Numbers that look random, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ z >> 31) % n as u64) as usize
    }
}

fn contents(stamp: u32, len: usize) -> Vec<u8> {
    (0..len).map(|i| (stamp as usize * 31 + i / 7) as u8).collect()
}

struct Work {
    fs: Arc<dyn FileSystem>,
    clock: Arc<ManualClock>,
    /// Stamp and length of each file that there is.
    files: Vec<Option<(u32, usize)>>,
    large: Vec<u8>,
}

impl Work {
    fn find(&self, n: usize) -> Result<Ino> {
        let ino = self.fs.lookup(self.fs.root(), format!("file{n}").as_bytes())?.ino;
        self.fs.forget(ino, 1);
        Ok(ino)
    }

    fn make(&mut self, n: usize, stamp: u32, len: usize) -> Result<()> {
        let made = self.fs.mknod(&Cx::default(), self.fs.root(), format!("file{n}").as_bytes(), 0o644, 0)?;
        self.fs.write(made.ino, 0, &contents(stamp, len))?;
        self.fs.forget(made.ino, 1);
        self.files[n] = Some((stamp, len));
        Ok(())
    }

    fn step(&mut self, random: &mut Random, stamp: u32) -> Result<Option<String>> {
        // Neighbours are asked for together, as whoever walks a directory does.
        let n = random.below(FILES);
        match (random.below(10), self.files[n]) {
            (0, Some((_, len))) => {
                self.fs.write(self.find(n)?, 0, &contents(stamp, len))?;
                self.files[n] = Some((stamp, len));
            }
            (1, Some(_)) => {
                self.fs.unlink(self.fs.root(), format!("file{n}").as_bytes())?;
                self.files[n] = None;
            }
            (_, None) => self.make(n, stamp, 1 + random.below(6000))?,
            (2, _) => {
                let at = random.below(LARGE - 70_000);
                let piece = contents(stamp, 1 + random.below(70_000));
                self.fs.write(self.fs.lookup(self.fs.root(), b"large")?.ino, at as u64, &piece)?;
                self.large[at..at + piece.len()].copy_from_slice(&piece);
            }
            (3, _) => return self.read_large(random),
            (4, _) => {
                self.clock.advance_ms(6000);
                self.fs.background(self.clock.now());
            }
            _ => {
                for n in n..FILES.min(n + 8) {
                    let Some((stamp, len)) = self.files[n] else { continue };
                    let mut found = vec![0; len + 10];
                    let read = self.fs.read(self.find(n)?, 0, &mut found)?;
                    if found[..read] != contents(stamp, len) {
                        return Ok(Some(format!("file{n} is not as it was written")));
                    }
                }
            }
        }
        Ok(None)
    }

    fn read_large(&mut self, random: &mut Random) -> Result<Option<String>> {
        let ino = self.fs.lookup(self.fs.root(), b"large")?.ino;
        let mut at = random.below(LARGE);
        for _ in 0..6 {
            let mut found = vec![0; 1 + random.below(100_000)];
            let read = self.fs.read(ino, at as u64, &mut found)?;
            if found[..read] != self.large[at..at + read] {
                return Ok(Some(format!("large is not as it was written, within {read} bytes from {at}")));
            }
            at = (at + read).min(LARGE - 1);
        }
        Ok(None)
    }
}

/// So many steps; what was wrong, if something was.
pub fn run(seed: u64, steps: u32) -> Option<String> {
    let device = MemDevice::new(96 << 20);
    let devices = || Devices::single(device.clone());
    let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
    Yfs.format(devices(), &FormatOptions::default()).expect("a volume");
    let options = MountOptions { options: Options::parse("cache=1M"), ..MountOptions::default() };
    let fs = Yfs.mount(devices(), &options, clock.clone()).expect("a mount");
    let mut work = Work { fs, clock, files: vec![None; FILES], large: contents(0, LARGE) };
    let large = work.fs.mknod(&Cx::default(), work.fs.root(), b"large", 0o644, 0).expect("a file");
    work.fs.write(large.ino, 0, &work.large).expect("room for a file");
    let mut random = Random(seed);
    for stamp in 1..=steps {
        match work.step(&mut random, stamp) {
            Ok(None) => {}
            Ok(Some(wrong)) => return Some(format!("seed {seed}, step {stamp}: {wrong}")),
            Err(e) => return Some(format!("seed {seed}, step {stamp}: {e}")),
        }
    }
    work.fs.unmount().err().map(|e| e.to_string())
}
