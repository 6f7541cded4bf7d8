//! The workloads W1 to W7, the same code for all file systems.
//!
//! | | what | phases |
//! |---|---|---|
//! | W1 | N files of 1 KiB in 100 directories | create + sync; stat, cold; read, cold; delete + sync |
//! | W2 | N files of 0 to 250 bytes in one directory | the same |
//! | W3 | a file of 1 GiB, 20,000 random blocks of 4 KiB | write + fsync; read, cold; overwrite + fsync; random read, cold |
//! | W4 | postmark: 20,000 files of 500 to 10,000 bytes, 50,000 transactions, 512 bytes a call | postmark |
//! | W5 | a tarball | untar + sync; image, cold; find, cold; tar, cold; rm -rf + sync |
//! | W6 | create, write 4 KiB, fsync, close, 2,000 times | fsync, median in microseconds |
//! | W7 | W1's create by four processes | create + sync |
//!
//! With N other than 100,000 the numbers of W3, W4 and W6 change in proportion.

use super::record::{Phase, Run, Settings, Spread};
use super::system::Volume;
use crate::show::kit::{self, Random, Running};
use anyhow::{Context, Result, ensure};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom};
use rustix::process::{Pid, PidfdFlags};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const ALL: [&str; 7] = ["W1", "W2", "W3", "W4", "W5", "W6", "W7"];

/// The size that the workloads are defined for.
const FULL: u64 = 100_000;
const BLOCK: usize = 4096;
const CHUNK: usize = 1 << 20;
/// Those of W7.
const PROCESSES: u32 = 4;
const SEED: u64 = 0x0A4B_012E;

pub(crate) struct Scale {
    pub(crate) files: u32,
    /// Longest time of a phase.
    pub(crate) limit: Duration,
    /// For W5, not compressed.
    pub(crate) tar: Option<PathBuf>,
}

impl Scale {
    fn of(&self, full: u64, least: u64) -> u64 {
        (full * u64::from(self.files) / FULL).max(least)
    }

    fn big_mib(&self) -> u64 {
        self.of(1024, 16)
    }

    fn random_blocks(&self) -> u64 {
        self.of(20_000, 100)
    }

    /// Files and transactions.
    fn postmark(&self) -> (u64, u64) {
        (self.of(20_000, 100), self.of(50_000, 100))
    }

    fn fsyncs(&self) -> u64 {
        self.of(2000, 50)
    }
}

/// Asked by loops: an error after an interrupt, or when the time is up.
struct Pace {
    end: Instant,
    limit: Duration,
    steps: u32,
}

impl Pace {
    fn new(limit: Duration) -> Pace {
        Pace { end: Instant::now() + limit, limit, steps: 0 }
    }

    fn step(&mut self) -> Result<()> {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(64) { self.check() } else { Ok(()) }
    }

    fn check(&self) -> Result<()> {
        kit::go_on()?;
        ensure!(Instant::now() < self.end, "more than {} s", self.limit.as_secs());
        Ok(())
    }

    /// Runs a command, whose output is of no interest, to its end.
    fn run(&self, command: &mut Command) -> Result<()> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.finish(Running(child.with_context(|| command.get_program().display().to_string())?))
    }

    fn finish(&self, mut child: Running) -> Result<()> {
        let process = rustix::process::pidfd_open(Pid::from_child(&child.0), PidfdFlags::empty())?;
        while !kit::has_ended(&process, Duration::from_millis(200))? {
            self.check()?;
        }
        let status = child.0.wait()?;
        kit::go_on()?;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}

/// A workload at work on a volume; what it measures goes into the run.
struct Work<'a, 'b> {
    volume: &'a mut Volume<'b>,
    scale: &'a Scale,
    run: &'a mut Run,
}

/// Runs the workload that `run` names. What was measured before an error is in `run`.
pub(crate) fn run(volume: &mut Volume<'_>, scale: &Scale, run: &mut Run) -> Result<()> {
    let name = run.workload.clone();
    let mut work = Work { volume, scale, run };
    let used = work.volume.used_bytes();
    let result = match name.as_str() {
        "W1" => work.small_files(Files { count: scale.files, dirs: 100, size: |_| 1024 }, used),
        "W2" => work.small_files(Files { count: scale.files, dirs: 1, size: tiny }, used),
        "W3" => work.big_file(used),
        "W4" => work.postmark(),
        "W5" => work.tree(used),
        "W6" => work.fsyncs(),
        _ => work.processes(used),
    };
    run.peak_memory = volume.peak_memory();
    result
}

/// Reads what a sparse file has, from its beginning to its end: what is read of files in it cannot come faster.
fn read_data(path: &Path, pace: &mut Pace) -> Result<()> {
    let (file, mut chunk, mut at) = (File::open(path)?, vec![0; CHUNK], 0);
    loop {
        at = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(at) => at,
            Err(rustix::io::Errno::NXIO) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        let end = rustix::fs::seek(&file, SeekFrom::Hole(at))?;
        while at < end {
            pace.check()?;
            let len = (end - at).min(CHUNK as u64) as usize;
            file.read_exact_at(&mut chunk[..len], at)?;
            at += len as u64;
        }
    }
}

impl Work<'_, '_> {
    /// Does something and notes how long it took.
    fn timed(&mut self, name: &str, body: impl FnOnce(&Volume<'_>, &mut Pace) -> Result<()>) -> Result<()> {
        self.phase(name, |volume, pace| {
            let start = Instant::now();
            body(volume, pace)?;
            Ok(start.elapsed().as_secs_f64())
        })
    }

    fn phase(&mut self, name: &str, body: impl FnOnce(&Volume<'_>, &mut Pace) -> Result<f64>) -> Result<()> {
        let (written, mut before) = (self.volume.written(), self.volume.requests());
        let value = body(self.volume, &mut Pace::new(self.scale.limit)).with_context(|| name.to_owned())?;
        let written = self.volume.written().zip(written).map(|(now, before)| now.saturating_sub(before));
        let mut requests = self.volume.requests();
        requests.iter_mut().for_each(|(kind, n)| *n = n.saturating_sub(before.remove(kind).unwrap_or(0)));
        let Run { state, round, system, workload, .. } = &self.run;
        let unit = unit(workload);
        eprintln!("{state} round {round} {workload} {system}: {name} {} {unit}", super::report::figure(value));
        self.run.phases.push(Phase { name: name.into(), value, written, requests });
        Ok(())
    }

    /// Notes the space taken; `before` is what was used before the first phase.
    fn note_space(&mut self, before: Option<u64>) {
        self.run.image_bytes = self.volume.image_bytes();
        self.run.used_bytes = self.volume.used_bytes().zip(before).map(|(now, before)| now.saturating_sub(before));
    }

    fn small_files(&mut self, files: Files, used: Option<u64>) -> Result<()> {
        self.timed("create + sync", |volume, pace| {
            files.create(volume.dir(), 0..files.dirs, pace)?;
            volume.sync()
        })?;
        self.note_space(used);
        self.volume.cool()?;
        self.timed("stat, cold", |volume, pace| files.stat(volume.dir(), pace))?;
        self.volume.cool()?;
        self.timed("read, cold", |volume, pace| files.read(volume.dir(), pace))?;
        self.timed("delete + sync", |volume, pace| {
            files.delete(volume.dir(), pace)?;
            volume.sync()
        })
    }

    fn big_file(&mut self, used: Option<u64>) -> Result<()> {
        let chunks = self.scale.big_mib();
        let blocks = chunks * (CHUNK / BLOCK) as u64;
        let count = self.scale.random_blocks();
        let mut buffer = Random(SEED).bytes(CHUNK);
        let path = self.volume.dir().join("big");
        self.timed("write + fsync", |_, pace| {
            let file = File::create(&path)?;
            for chunk in 0..chunks {
                pace.check()?;
                for (i, block) in buffer.chunks_exact_mut(BLOCK).enumerate() {
                    stamp(block, chunk * (CHUNK / BLOCK) as u64 + i as u64);
                }
                file.write_all_at(&buffer, chunk * CHUNK as u64)?;
            }
            Ok(file.sync_all()?)
        })?;
        self.note_space(used);
        self.volume.cool()?;
        self.timed("read, cold", |_, pace| {
            let file = File::open(&path)?;
            for chunk in 0..chunks {
                pace.check()?;
                file.read_exact_at(&mut buffer, chunk * CHUNK as u64)?;
                for (i, block) in buffer.chunks_exact(BLOCK).enumerate() {
                    check_stamp(block, chunk * (CHUNK / BLOCK) as u64 + i as u64)?;
                }
            }
            Ok(())
        })?;
        let block = &mut buffer[..BLOCK];
        self.timed("overwrite + fsync", |_, pace| {
            let file = File::options().write(true).open(&path)?;
            let mut random = Random(SEED);
            for _ in 0..count {
                pace.step()?;
                let number = random.below(blocks);
                stamp(block, number);
                file.write_all_at(block, number * BLOCK as u64)?;
            }
            Ok(file.sync_all()?)
        })?;
        self.volume.cool()?;
        self.timed("random read, cold", |_, pace| {
            let file = File::open(&path)?;
            let mut random = Random(SEED + 1);
            for _ in 0..count {
                pace.step()?;
                let number = random.below(blocks);
                file.read_exact_at(block, number * BLOCK as u64)?;
                check_stamp(block, number)?;
            }
            Ok(())
        })
    }

    fn postmark(&mut self) -> Result<()> {
        let (files, transactions) = self.scale.postmark();
        let dir = self.volume.dir().join("postmark");
        fs::create_dir(&dir)?;
        let config = tempfile::NamedTempFile::new()?;
        let text = format!(
            "set number {files}\nset transactions {transactions}\nset size 500 10000\nset read 512\nset write 512\n\
             set location {}\nrun\nquit\n",
            dir.display()
        );
        fs::write(config.path(), text)?;
        self.timed("postmark", |_, pace| pace.run(Command::new("postmark").arg(config.path())))
    }

    fn tree(&mut self, used: Option<u64>) -> Result<()> {
        let tar = self.scale.tar.clone().context("no tarball")?;
        let dir = self.volume.dir().join("tree");
        fs::create_dir(&dir)?;
        // The disk under the archive is not to be measured.
        std::io::copy(&mut File::open(&tar)?, &mut std::io::sink())?;
        let tar = [OsStr::new("--extract"), "--file".as_ref(), tar.as_ref(), "--directory".as_ref(), dir.as_ref()];
        self.timed("untar + sync", |volume, pace| {
            pace.run(Command::new("tar").args(tar))?;
            volume.sync()
        })?;
        self.note_space(used);
        self.volume.cool()?;
        if let Some(image) = self.volume.image() {
            self.timed("image, cold", |_, pace| read_data(&image, pace))?;
            self.volume.cool()?;
        }
        self.timed("find, cold", |_, pace| pace.run(Command::new("find").arg(&dir).args(["-printf", "%s\n"])))?;
        self.volume.cool()?;
        self.timed("tar, cold", |_, pace| {
            // GNU tar reads nothing when it sees that /dev/null takes it.
            let script = "tar --create --file - --directory \"$1\" . | cat";
            pace.run(Command::new("sh").args(["-c", script, "sh"]).arg(&dir))
        })?;
        self.timed("rm -rf + sync", |volume, pace| {
            pace.run(Command::new("rm").arg("-rf").arg(&dir))?;
            volume.sync()
        })
    }

    fn fsyncs(&mut self) -> Result<()> {
        let count = self.scale.fsyncs();
        let bytes = Random(SEED).bytes(BLOCK);
        let dir = self.volume.dir().join("fsync");
        fs::create_dir(&dir)?;
        self.volume.sync()?;
        self.phase("create, write, fsync", |_, pace| {
            let dir = open_dir(CWD, &dir)?;
            let mut times = Vec::new();
            for i in 0..count {
                pace.step()?;
                let start = Instant::now();
                let file = create(&dir, &file_name(i as u32))?;
                write_all(&file, &bytes)?;
                rustix::fs::fsync(&file)?;
                drop(file);
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
            Ok(Spread::of(&times).context("no files")?.median)
        })
    }

    fn processes(&mut self, used: Option<u64>) -> Result<()> {
        let files = self.scale.files;
        self.timed("create + sync", |volume, pace| {
            let part = |i: u32| -> Result<Running> {
                let child = Command::new(std::env::current_exe()?)
                    .arg("bench-part")
                    .arg(volume.dir())
                    .args([files, i * 100 / PROCESSES, (i + 1) * 100 / PROCESSES].map(|n| n.to_string()))
                    .stdin(Stdio::null())
                    .spawn()?;
                Ok(Running(child))
            };
            let parts: Vec<Running> = (0..PROCESSES).map(part).collect::<Result<_>>()?;
            parts.into_iter().try_for_each(|part| pace.finish(part))?;
            volume.sync()
        })?;
        self.note_space(used);
        Ok(())
    }
}

/// The workload in words, as it was run.
pub(crate) fn describe(workload: &str, settings: &Settings) -> String {
    let files = settings.files;
    let scale = Scale { files, limit: Duration::MAX, tar: None };
    let text = match workload {
        "W1" => format!("{files} files of 1 KiB in 100 directories"),
        "W2" => format!("{files} files of 0 to 250 bytes in one directory"),
        "W3" => {
            let (mib, count) = (scale.big_mib(), scale.random_blocks());
            format!("a file of {mib} MiB, {count} random blocks of 4 KiB in it")
        }
        "W4" => {
            let (files, transactions) = scale.postmark();
            format!("postmark, {files} files of 500 to 10,000 bytes, {transactions} transactions, 512 bytes a call")
        }
        "W5" => "a tarball".into(),
        "W6" => format!("create, write 4 KiB, fsync, close; {} times, median", scale.fsyncs()),
        _ => format!("{files} files of 1 KiB in 100 directories, by {PROCESSES} processes"),
    };
    format!("{workload}: {text}")
}

/// What `value` of a phase counts.
pub(crate) fn unit(workload: &str) -> &'static str {
    if workload == "W6" { "us" } else { "s" }
}

/// One of the processes of W7: some of the directories of W1.
pub(crate) fn part(words: &[&str]) -> Result<()> {
    let [dir, count, first, end] = words else { anyhow::bail!("bench-part DIR FILES FIRST END") };
    let files = Files { count: count.parse()?, dirs: 100, size: |_| 1024 };
    // The parent ends it when the time is up.
    files.create(Path::new(dir), first.parse()?..end.parse()?, &mut Pace::new(Duration::from_secs(1 << 20)))
}

/// Files in directories, one directory after another. All follows from the numbers.
struct Files {
    count: u32,
    dirs: u32,
    size: fn(u32) -> usize,
}

/// The sizes of W2.
fn tiny(file: u32) -> usize {
    Random(SEED ^ (u64::from(file) << 8)).below(251) as usize
}

fn dir_name(dir: u32) -> String {
    format!("d{dir:02}")
}

fn file_name(file: u32) -> String {
    format!("f{file:07}")
}

impl Files {
    fn in_dir(&self, dir: u32) -> Range<u32> {
        let bound = |dir: u32| (u64::from(self.count) * u64::from(dir) / u64::from(self.dirs)) as u32;
        bound(dir)..bound(dir + 1)
    }

    /// Bytes of one file: some of `pool`, which is filled from the seed.
    fn content<'p>(&self, pool: &'p [u8], file: u32) -> &'p [u8] {
        let size = (self.size)(file);
        let start = Random(u64::from(file)).below((pool.len() - size) as u64) as usize;
        &pool[start..start + size]
    }

    fn create(&self, root: &Path, dirs: Range<u32>, pace: &mut Pace) -> Result<()> {
        let pool = pool();
        let root = open_dir(CWD, root)?;
        for dir in dirs {
            let name = dir_name(dir);
            rustix::fs::mkdirat(&root, &name, Mode::from_raw_mode(0o755))?;
            let at = open_dir(&root, &name)?;
            for file in self.in_dir(dir) {
                pace.step()?;
                let new = create(&at, &file_name(file))?;
                write_all(&new, self.content(&pool, file))?;
            }
        }
        Ok(())
    }

    fn stat(&self, root: &Path, pace: &mut Pace) -> Result<()> {
        let (mut count, mut bytes) = (0, 0);
        for dir in 0..self.dirs {
            let path = root.join(dir_name(dir));
            let at = open_dir(CWD, &path)?;
            for entry in fs::read_dir(&path)? {
                pace.step()?;
                count += 1;
                // As `ls` and `find` ask. Who asks for the time of birth too, as the standard library does, costs
                // a FUSE mount a request more, the first time.
                bytes += rustix::fs::statat(&at, entry?.file_name(), AtFlags::SYMLINK_NOFOLLOW)?.st_size as u64;
            }
        }
        let expected: u64 = (0..self.count).map(|file| (self.size)(file) as u64).sum();
        ensure!((count, bytes) == (self.count, expected), "{count} files, {bytes} bytes are there");
        Ok(())
    }

    fn read(&self, root: &Path, pace: &mut Pace) -> Result<()> {
        let pool = pool();
        let mut buffer = vec![0; 64 << 10];
        let mut count = 0;
        for dir in 0..self.dirs {
            let path = root.join(dir_name(dir));
            let at = open_dir(CWD, &path)?;
            for entry in fs::read_dir(&path)? {
                pace.step()?;
                let name = entry?.file_name();
                let file = rustix::fs::openat(&at, &name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
                let mut len = 0;
                loop {
                    match rustix::io::read(&file, &mut buffer[len..])? {
                        0 => break,
                        n => len += n,
                    }
                }
                let number = name.to_str().and_then(|n| n.strip_prefix('f')?.parse().ok());
                let number = number.with_context(|| format!("{}: strange name", name.display()))?;
                ensure!(buffer[..len] == *self.content(&pool, number), "{}: wrong content", name.display());
                count += 1;
            }
        }
        ensure!(count == self.count, "{count} files are there");
        Ok(())
    }

    fn delete(&self, root: &Path, pace: &mut Pace) -> Result<()> {
        for dir in 0..self.dirs {
            let path = root.join(dir_name(dir));
            // Collected first: not every file system bears deletes while it is read.
            let names: Vec<_> = fs::read_dir(&path)?.map(|e| Ok(e?.file_name())).collect::<Result<_>>()?;
            let at = open_dir(CWD, &path)?;
            for name in &names {
                pace.step()?;
                rustix::fs::unlinkat(&at, name, AtFlags::empty())?;
            }
            fs::remove_dir(&path)?;
        }
        Ok(())
    }
}

fn pool() -> Vec<u8> {
    Random(SEED).bytes(64 << 10)
}

fn open_dir(at: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd> {
    Ok(rustix::fs::openat(at, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn create(at: &OwnedFd, name: &str) -> Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, name, flags, Mode::from_raw_mode(0o644))?)
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let n = rustix::io::write(file, bytes)?;
        bytes = &bytes[n..];
    }
    Ok(())
}

/// Marks a block of the big file with its number.
fn stamp(block: &mut [u8], number: u64) {
    block[..8].copy_from_slice(&number.to_le_bytes());
}

fn check_stamp(block: &[u8], number: u64) -> Result<()> {
    ensure!(block[..8] == number.to_le_bytes(), "block {number} is another one");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_contents_follow_from_the_numbers() {
        let sizes: Vec<usize> = (0..10_000).map(tiny).collect();
        assert_eq!(sizes, (0..10_000).map(tiny).collect::<Vec<_>>());
        assert_eq!((sizes.iter().min(), sizes.iter().max()), (Some(&0), Some(&250)));
        let mean = sizes.iter().sum::<usize>() as f64 / 10_000.0;
        assert!((mean - 125.0).abs() < 3.0, "{mean}");
        // A change here makes older figures another workload.
        assert_eq!(sizes[..4], [167, 198, 248, 38]);
        let files = Files { count: 10, dirs: 1, size: |_| 1024 };
        let pool = pool();
        assert_ne!(files.content(&pool, 1), files.content(&pool, 2));
    }

    #[test]
    fn directories_share_all_files() {
        for count in [1, 99, 100, 101, 2000, 4_000_000_000] {
            let files = Files { count, dirs: 100, size: |_| 1024 };
            assert_eq!((files.in_dir(0).start, files.in_dir(99).end), (0, count));
            assert!((0..99).all(|dir| files.in_dir(dir).end == files.in_dir(dir + 1).start));
        }
        assert_eq!(Files { count: 2000, dirs: 100, size: |_| 1024 }.in_dir(7), 140..160);
    }

    /// The host's own file system will do.
    #[test]
    fn small_files_are_written_found_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut pace = Pace::new(Duration::from_secs(60));
        for files in [Files { count: 250, dirs: 100, size: |_| 1024 }, Files { count: 250, dirs: 1, size: tiny }] {
            files.create(dir.path(), 0..files.dirs, &mut pace).unwrap();
            files.stat(dir.path(), &mut pace).unwrap();
            files.read(dir.path(), &mut pace).unwrap();
            let number = (0..2).find(|&i| (files.size)(i) > 0).unwrap();
            let victim = dir.path().join("d00").join(file_name(number));
            let bytes = fs::read(&victim).unwrap();
            fs::write(&victim, vec![b'x'; bytes.len()]).unwrap();
            assert!(files.read(dir.path(), &mut pace).unwrap_err().to_string().contains("wrong content"));
            fs::remove_file(&victim).unwrap();
            assert!(files.stat(dir.path(), &mut pace).is_err());
            files.delete(dir.path(), &mut pace).unwrap();
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn time_is_limited() {
        let pace = Pace::new(Duration::from_millis(300));
        let late = pace.run(Command::new("sleep").arg("60")).unwrap_err();
        assert!(late.to_string().contains("more than"), "{late}");
        assert!(Pace::new(Duration::from_secs(60)).run(&mut Command::new("false")).is_err());
    }

    #[test]
    fn numbers_change_in_proportion() {
        let scale = |files| Scale { files, limit: Duration::ZERO, tar: None };
        assert_eq!(scale(100_000).of(20_000, 100), 20_000);
        assert_eq!(scale(2000).of(20_000, 100), 400);
        assert_eq!(scale(1).of(20_000, 100), 100);
    }
}
