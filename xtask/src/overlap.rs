//! `cargo xtask overlap`: one process, then four, on a mount whose disk takes some milliseconds for each read.
//!
//! A volume that holds its lock while the disk reads serves four processes in four times the time of one. The disk is the
//! image behind `nbdkit`'s delay and `nbdfuse`; it takes many requests at once.

use crate::bench::system::{ServedMount, System, drop_caches};
use crate::show;
use crate::show::kit::{self, Kit, Random, Running};
use anyhow::{Context, Result, ensure};
use clap::Parser;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Files of each process.
const FILES: u32 = 300;
const FILE_BYTES: usize = 16 << 10;
const PROCESSES: u32 = 4;

/// Compare one process with four on a mount whose disk is slow. Needs root, nbdkit and nbdfuse.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask overlap", bin_name = "cargo xtask overlap")]
struct Args {
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "yfs,ffs,lfs")]
    engine: Vec<String>,
    /// What each read of the disk takes at least.
    #[arg(long, value_name = "MS", default_value_t = 4)]
    delay: u32,
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// These `arbor`s, in turns, instead of building one.
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    arbor: Vec<PathBuf>,
}

/// Seconds of one round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// One process reads its files.
    one: f64,
    /// Four processes read theirs.
    four: f64,
    /// Two processes read, two make files.
    mixed: f64,
}

/// Runs `cargo xtask overlap` with `words` after it.
pub(crate) fn run<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let args = Args::parse_from(["overlap"].into_iter().chain(words));
    ensure!(rustix::process::geteuid().is_root(), "only root can drop caches");
    for tool in ["nbdkit", "nbdfuse"] {
        ensure!(kit::in_path(tool).is_some(), "no {tool}: install nbdkit and libnbd-bin");
    }
    kit::watch_signals()?;
    let arbors = if args.arbor.is_empty() { vec![show::build()?] } else { args.arbor.clone() };
    let memfs = show::build_one("arbor-fuse", "--example", "memfs")?;
    println!(
        "{FILES} files of {} KiB a process, {} ms a read; seconds, medians of {}",
        FILE_BYTES >> 10,
        args.delay,
        args.rounds
    );
    println!("{:<8} {:>8} {:>8} {:>8}  arbor", "", "1 reads", "4 read", "2 + 2");
    for engine in &args.engine {
        let mut rounds = vec![Vec::new(); arbors.len()];
        for _ in 0..args.rounds {
            for (arbor, rounds) in arbors.iter().zip(&mut rounds) {
                rounds.push(on_slow_disk(arbor, engine, args.delay)?);
            }
        }
        for (arbor, rounds) in arbors.iter().zip(rounds) {
            tell(engine, &rounds, &arbor.display().to_string());
        }
    }
    let rounds: Result<Vec<Round>> = (0..args.rounds).map(|_| in_memory(&memfs)).collect();
    tell("memfs", &rounds?, "no disk");
    Ok(())
}

fn tell(name: &str, rounds: &[Round], arbor: &str) {
    let median = |of: fn(&Round) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default()
    };
    println!("{name:<8} {:>8.2} {:>8.2} {:>8.2}  {arbor}", median(|r| r.one), median(|r| r.four), median(|r| r.mixed));
}

fn on_slow_disk(arbor: &Path, engine: &str, delay: u32) -> Result<Round> {
    let kit = Kit::new("overlap", &arbor.canonicalize()?, None, false)?.with_engine(Some(engine));
    let (image, _) = kit.mkfs("image", "512M")?;
    let mount = kit.mount(&image, "mount")?;
    fill(mount.dir())?;
    mount.umount()?;
    let disk = SlowDisk::new(&kit, &image, delay)?;
    let measured = |work: &dyn Fn(&Path) -> Result<f64>| {
        drop_caches()?;
        let mount = kit.mount_with(&disk.file(), "mount", Some("cache=8M"))?;
        let took = work(mount.dir())?;
        mount.umount()?;
        anyhow::Ok(took)
    };
    let round = Round { one: measured(&one)?, four: measured(&four)?, mixed: measured(&mixed)? };
    drop(disk);
    kit.check(&image)?;
    Ok(round)
}

/// The same in memory behind the same transport.
fn in_memory(memfs: &Path) -> Result<Round> {
    let kit = Kit::new("overlap", Path::new(""), None, false)?;
    let dir = kit.new_dir("mount")?;
    let mut command = Command::new(memfs);
    command.arg(&dir);
    let _mount = ServedMount::new(command, &dir).with_context(|| System::Memfs.name().to_owned())?;
    fill(&dir)?;
    let measured = |work: &dyn Fn(&Path) -> Result<f64>| drop_caches().and_then(|()| work(&dir));
    Ok(Round { one: measured(&one)?, four: measured(&four)?, mixed: measured(&mixed)? })
}

fn fill(dir: &Path) -> Result<()> {
    (1..=PROCESSES).try_for_each(|n| part(&["make", &n.to_string(), &dir.display().to_string()]))
}

fn one(dir: &Path) -> Result<f64> {
    together(dir, &[("read", 1)])
}

fn four(dir: &Path) -> Result<f64> {
    together(dir, &[("read", 1), ("read", 2), ("read", 3), ("read", 4)])
}

fn mixed(dir: &Path) -> Result<f64> {
    together(dir, &[("read", 1), ("read", 2), ("make", 5), ("make", 6)])
}

/// Seconds until all processes have ended.
fn together(dir: &Path, parts: &[(&str, u32)]) -> Result<f64> {
    let start = Instant::now();
    let mut all = Vec::new();
    for (what, n) in parts {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["overlap-part", what, &n.to_string()]).arg(dir).stdin(Stdio::null());
        all.push(Running(command.spawn()?));
    }
    for child in &mut all {
        let status = child.0.wait()?;
        ensure!(status.success(), "{status}");
    }
    kit::go_on()?;
    Ok(start.elapsed().as_secs_f64())
}

/// One of the processes: `make N DIR` or `read N DIR`. Files are read in a random order, so that reading ahead is no use.
pub(crate) fn part(words: &[&str]) -> Result<()> {
    let [what, n, dir] = words else { anyhow::bail!("overlap-part make|read N DIR") };
    let (n, dir) = (n.parse()?, Path::new(dir).join(format!("d{n}")));
    let mut random = Random(n);
    if *what == "make" {
        fs::create_dir(&dir)?;
        return (0..FILES).try_for_each(|f| Ok(fs::write(dir.join(f.to_string()), random.bytes(FILE_BYTES))?));
    }
    for f in random.shuffled(FILES) {
        let bytes = fs::read(dir.join(f.to_string()))?;
        ensure!(bytes.len() == FILE_BYTES, "{} has {} bytes", f, bytes.len());
    }
    Ok(())
}

/// A file whose reads take their time.
struct SlowDisk {
    dir: PathBuf,
    _server: Running,
    mount: ServedMount,
}

impl SlowDisk {
    fn new(kit: &Kit, image: &Path, delay: u32) -> Result<SlowDisk> {
        let (socket, dir) = (kit.path("socket"), kit.new_dir("disk")?);
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--threads=16", "--unix"]).arg(&socket).arg("file").arg(image);
        command.args(["--filter=delay", &format!("rdelay={delay}ms")]).stdin(Stdio::null()).stderr(Stdio::null());
        let server = Running(command.spawn().context("nbdkit")?);
        let start = Instant::now();
        while !socket.exists() {
            ensure!(start.elapsed() < Duration::from_secs(20), "nbdkit does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut command = Command::new("nbdfuse");
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        command.args(["--connections=8"]).arg(dir.join("disk")).arg(uri);
        // It mounts on the directory of the file.
        let mount = ServedMount::new(command, &dir)?;
        let dev = fs::metadata(dir.join("disk"))?.dev();
        let bdi = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
        fs::write(format!("/sys/class/bdi/{bdi}/read_ahead_kb"), "0")?;
        Ok(SlowDisk { dir, _server: server, mount })
    }

    fn file(&self) -> PathBuf {
        self.dir.join("disk")
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // Before the server that it reads from is ended.
        let _ = self.mount.take_off();
    }
}
