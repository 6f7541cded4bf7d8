//! Show 9: a volume is kept at 90 % of what it can hold under random overwrites; nobody waits long, nothing is lost.

use super::kit::{self, Kit, MIB, Random};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const FULL_PERCENT: u64 = 90;
const STALL_LIMIT_S: f64 = 2.0;
/// Size of a file, and of what is written at once.
const FILE: u64 = 4 * MIB;
const PIECE: u64 = 8 << 10;

pub(crate) fn run(kit: &Kit, quick: bool, seed: u64) -> Result<()> {
    let (size, time) = if quick { (64 * MIB, Duration::from_secs(5)) } else { (2048 * MIB, Duration::from_secs(600)) };
    println!(
        "show 9: a volume of {} MiB, {FULL_PERCENT} % full, overwritten at random for {} s; seed {seed}",
        size / MIB,
        time.as_secs()
    );
    let (image, _) = kit.mkfs("full.img", &size.to_string())?;
    let mount = kit.mount(&image, "mnt")?;
    let stat = rustix::fs::statvfs(mount.dir())?;
    let files = stat.f_bavail * stat.f_frsize / 100 * FULL_PERCENT / FILE;
    let mut load = Load::new(mount.dir(), files, seed)?;
    let done = load.overwrite(time)?;
    let stat = rustix::fs::statvfs(mount.dir())?;
    println!(
        "  {files} files of {} MiB, {:.1} % in use; {} overwrites of {} KiB ({:.1} MiB/s), an fsync after each 1000; \
         slowest write {:.3} s, slowest fsync {:.3} s",
        FILE / MIB,
        100.0 - stat.f_bavail as f64 / stat.f_blocks as f64 * 100.0,
        done.writes,
        PIECE >> 10,
        (done.writes * PIECE) as f64 / MIB as f64 / time.as_secs_f64(),
        done.slowest_write.as_secs_f64(),
        done.slowest_sync.as_secs_f64()
    );
    let slowest = done.slowest_write.max(done.slowest_sync).as_secs_f64();
    load.files.clear();
    let mount = mount.again(&image)?;
    load.verify(mount.dir())?;
    mount.umount()?;
    kit.check(&image)?;
    println!("  every piece is as it was written last, after another mount; fsck clean");
    kit::below("slowest call", slowest, STALL_LIMIT_S, "s")
}

/// Files, and what each piece of them holds.
struct Load {
    files: Vec<File>,
    versions: Vec<u32>,
    random: Random,
}

struct Done {
    writes: u64,
    slowest_write: Duration,
    slowest_sync: Duration,
}

const PIECES: u64 = FILE / PIECE;

fn content(piece: u64, version: u32) -> Vec<u8> {
    Random(piece << 32 | u64::from(version)).bytes(PIECE as usize)
}

impl Load {
    fn new(dir: &Path, count: u64, seed: u64) -> Result<Load> {
        let mut files = Vec::new();
        for n in 0..count {
            kit::go_on()?;
            let path = dir.join(format!("file-{n}"));
            let file = File::options().create_new(true).read(true).write(true).open(&path)?;
            for piece in 0..PIECES {
                file.write_all_at(&content(n * PIECES + piece, 0), piece * PIECE)
                    .with_context(|| path.display().to_string())?;
            }
            files.push(file);
        }
        Ok(Load { files, versions: vec![0; (count * PIECES) as usize], random: Random(seed) })
    }

    fn overwrite(&mut self, time: Duration) -> Result<Done> {
        let mut done = Done { writes: 0, slowest_write: Duration::ZERO, slowest_sync: Duration::ZERO };
        let begun = Instant::now();
        while begun.elapsed() < time {
            kit::go_on()?;
            let piece = self.random.below(self.versions.len() as u64);
            let version = &mut self.versions[piece as usize];
            *version += 1;
            let bytes = content(piece, *version);
            let file = &self.files[(piece / PIECES) as usize];
            let start = Instant::now();
            file.write_all_at(&bytes, piece % PIECES * PIECE)?;
            done.slowest_write = done.slowest_write.max(start.elapsed());
            done.writes += 1;
            if done.writes.is_multiple_of(1000) {
                let start = Instant::now();
                file.sync_all()?;
                done.slowest_sync = done.slowest_sync.max(start.elapsed());
            }
        }
        Ok(done)
    }

    fn verify(&self, dir: &Path) -> Result<()> {
        for (n, versions) in self.versions.chunks(PIECES as usize).enumerate() {
            kit::go_on()?;
            let bytes = fs::read(dir.join(format!("file-{n}")))?;
            for (piece, (found, version)) in bytes.chunks(PIECE as usize).zip(versions).enumerate() {
                let number = n as u64 * PIECES + piece as u64;
                ensure!(found == content(number, *version), "file-{n}: piece {piece} is not as written last");
            }
            ensure!(bytes.len() as u64 == FILE, "file-{n} has {} bytes", bytes.len());
        }
        Ok(())
    }
}
