//! The process with the disk: mounts the file system and takes it off again.

use super::limit::Limit;
use super::orders::{Answer, Order};
use super::remote::trace_file;
use crate::args::LabDiskArgs;
use crate::interrupt;
use crate::lab::subjects::{PEERS, Peer};
use crate::lab::{disk, model_with};
use anyhow::{Context, Result, anyhow, bail};
use arbor_fuse::{MountConfig, Session};
use arbor_simdisk::{DISK_FILE, SimDevice};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Obeys until the standard input ends or a signal comes.
pub(in crate::lab) fn serve(args: &LabDiskArgs, name: &str) -> Result<u8> {
    let peer = PEERS.iter().find(|p| p.name == name).ok_or_else(|| anyhow!("no file system is called {name:?}"))?;
    let orders = orders()?;
    let mut stage = match Stage::new(args, peer, &orders) {
        Ok(stage) => stage,
        Err(e) => {
            tell(&Answer { error: Some(format!("{e:#}")), ..Answer::default() })?;
            return Ok(1);
        }
    };
    tell(&Answer { note: stage.note(), ..stage.answer() })?;
    while let Ok(Some(line)) = orders.recv() {
        let answer = serde_json::from_str(&line).map_err(|e| anyhow!(e)).and_then(|order| stage.obey(order));
        tell(&answer.unwrap_or_else(|e| Answer { error: Some(format!("{e:#}")), ..stage.answer() }))?;
    }
    Ok(0)
}

/// Lines of the standard input, and `None` when it ends or a signal comes.
fn orders() -> Result<Receiver<Option<String>>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let (lines, orders) = mpsc::channel();
    let ends = lines.clone();
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    thread::spawn(move || {
        signals.forever().next();
        let _ = ends.send(None);
    });
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            if lines.send(line.ok()).is_err() {
                return;
            }
        }
        let _ = lines.send(None);
    });
    Ok(orders)
}

fn tell(answer: &Answer) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(answer)?)?;
    Ok(out.flush()?)
}

/// A mounted file system with all that is below it. The fields are dropped in their order, the top first.
struct Stage {
    limit: io::Result<Limit>,
    mounted: Mounted,
    _loop_device: LoopDevice,
    _session: Session,
    _work: WorkDir,
    device: SimDevice,
    trace: Option<PathBuf>,
}

impl Stage {
    fn new(args: &LabDiskArgs, peer: &Peer, orders: &Receiver<Option<String>>) -> Result<Stage> {
        let missing = missing(peer);
        if !missing.is_empty() {
            bail!("not run, it needs {}", missing.join(", "));
        }
        let is_disk = model_with(&args.model, &args.queue)?.is_disk();
        let device = disk::open(args)?;
        let work = WorkDir::new(&args.dir)?;
        let config = MountConfig { record: false, ..disk::config(args) };
        let session = disk::mount(&device, &work.disk(), config)?;
        let loop_device = LoopDevice::new(&session.mountpoint().join(DISK_FILE), is_disk)?;
        let (program, rest) = peer.mkfs.split_first().context("a program")?;
        make(Command::new(found(program).context("a program")?).args(rest).arg(&loop_device.path), orders)?;
        let mut mounted = Mounted::new(peer, &loop_device, work.root(), args)?;
        mounted.mount()?;
        device.drain();
        device.reset_stats();
        device.set_tracing(args.trace.is_some());
        let caller = rustix::process::getppid().ok_or_else(|| io::Error::other("the caller is gone"));
        let limit = caller.and_then(|caller| Limit::new(caller, args.memory));
        let trace = args.trace.clone();
        Ok(Stage { limit, mounted, _loop_device: loop_device, _session: session, _work: work, device, trace })
    }

    fn note(&self) -> Option<String> {
        let memory = self.limit.as_ref().err().map(|e| format!("the kernel's memory was not limited: {e}"));
        let dirty = self.mounted.dirty.as_ref().err().map(|e| format!("its dirty memory was not limited: {e}"));
        let all: Vec<_> = memory.into_iter().chain(dirty).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    fn answer(&self) -> Answer {
        Answer { now_ns: self.device.clock().now_ns(), ..Answer::default() }
    }

    fn obey(&mut self, order: Order) -> Result<Answer> {
        let mut stats = None;
        match order {
            Order::Now => {}
            Order::Advance(ns) => self.device.clock().advance_ns(ns),
            Order::TakeStats => {
                stats = Some(self.device.stats());
                self.device.reset_stats();
            }
            Order::Unmount => {
                self.mounted.unmount()?;
                self.device.drain();
            }
            Order::Mount => self.mounted.mount()?,
            Order::WriteTrace => {
                self.limit = Err(io::Error::other("the workload is over"));
                let path = self.trace.as_ref().context("no trace was asked for")?;
                disk::write_trace(&self.device, File::create_new(path)?)?;
            }
        }
        Ok(Answer { stats, ..self.answer() })
    }
}

/// What a run needs and this machine does not have.
fn missing(peer: &Peer) -> Vec<String> {
    let mut missing = Vec::new();
    if !rustix::process::geteuid().is_root() {
        missing.push("root".to_string());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(device).exists() {
            missing.push(device.to_string());
        }
    }
    for (program, package) in [("losetup", "mount"), (peer.mkfs[0], peer.package)] {
        if found(program).is_none() {
            missing.push(format!("{program} (package {package})"));
        }
    }
    missing
}

/// Where a program is. Those of the administrator are not in everybody's path.
fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// What a program prints, if it succeeds.
fn output(command: &mut Command) -> Result<String> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let out = command.output().with_context(|| name.clone())?;
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        bail!("{name}: {}", text.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_string())
}

/// Runs a program that takes its time; it is killed if the end comes first, and no order comes before it is done.
fn make(command: &mut Command, orders: &Receiver<Option<String>>) -> Result<()> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut errors = child.stderr.take().context("its errors")?;
    // Read beside it: a pipe that is full would stop it.
    let text = thread::spawn(move || {
        let mut text = Vec::new();
        errors.read_to_end(&mut text).map(|_| String::from_utf8_lossy(&text).into_owned())
    });
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if !matches!(orders.recv_timeout(Duration::from_millis(20)), Err(RecvTimeoutError::Timeout)) {
            child.kill()?;
            child.wait()?;
            bail!("{name}: {}", interrupt::WORD);
        }
    };
    let text = text.join().unwrap_or_else(|_| Ok(String::new()))?;
    if !status.success() {
        bail!("{name}: {}", text.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    Ok(())
}

/// The directories of a run, removed at the end.
struct WorkDir(PathBuf);

impl WorkDir {
    fn new(dir: &Path) -> Result<WorkDir> {
        fs::create_dir(dir).with_context(|| dir.display().to_string())?;
        let work = WorkDir(dir.canonicalize()?);
        fs::create_dir(work.disk())?;
        fs::create_dir(work.root())?;
        Ok(work)
    }

    fn disk(&self) -> PathBuf {
        self.0.join("disk")
    }

    fn root(&self) -> PathBuf {
        self.0.join("root")
    }
}

impl Drop for WorkDir {
    /// Never more than what was made: a mount that could not be taken off must not lose its files.
    fn drop(&mut self) {
        let _ = fs::remove_file(trace_file(&self.0));
        for dir in [self.disk(), self.root(), self.0.clone()] {
            let _ = fs::remove_dir(dir);
        }
    }
}

/// A loop device that hands requests on as they are.
struct LoopDevice {
    path: PathBuf,
    /// Its directory in `/sys/block`.
    about: PathBuf,
}

impl LoopDevice {
    fn new(file: &Path, is_disk: bool) -> Result<LoopDevice> {
        let losetup = found("losetup").context("losetup")?;
        let path = output(Command::new(losetup).args(["--find", "--show", "--direct-io=on"]).arg(file))?;
        let about = Path::new("/sys/block").join(Path::new(&path).file_name().context("a device")?);
        let device = LoopDevice { path: path.into(), about };
        if fs::read_to_string(device.about.join("loop/dio")).context("loop/dio")?.trim() != "1" {
            bail!("{}: the kernel refuses direct I/O", device.path.display());
        }
        // File systems ask, to choose between a disk and an SSD.
        let rotational = fs::write(device.about.join("queue/rotational"), if is_disk { "1" } else { "0" });
        rotational.context("queue/rotational").map(|()| device)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // The device stays, and so would the limit.
        let _ = set_dirty_limit(&self.about.join("bdi"), "0", "max_ratio", "100");
        if let Some(losetup) = found("losetup") {
            let _ = output(Command::new(losetup).arg("-d").arg(&self.path));
        }
    }
}

/// How much may be dirty on a device: `strict` asks for the limit at all times, and not only when the machine's memory
/// is scarce.
fn set_dirty_limit(bdi: &Path, strict: &str, limit: &str, value: &str) -> io::Result<()> {
    fs::write(bdi.join("strict_limit"), strict)?;
    fs::write(bdi.join(limit), value)
}

/// The mount of the kernel's file system.
struct Mounted {
    kind: &'static str,
    options: CString,
    source: PathBuf,
    about: PathBuf,
    dir: PathBuf,
    is_on: bool,
    flags: MountFlags,
    dirty_bytes: u64,
    /// Whether its dirty memory is limited.
    dirty: io::Result<()>,
}

impl Mounted {
    fn new(peer: &Peer, device: &LoopDevice, dir: PathBuf, args: &LabDiskArgs) -> Result<Mounted> {
        let (kind, options) = (peer.kind, CString::new(peer.mount)?);
        let (source, about) = (device.path.clone(), device.about.clone());
        let access_times = if args.access_times { MountFlags::STRICTATIME } else { MountFlags::empty() };
        let flags = MountFlags::NODEV | MountFlags::NOSUID | access_times;
        Ok(Mounted { kind, options, source, about, dir, is_on: false, flags, dirty_bytes: args.dirty, dirty: Ok(()) })
    }

    /// Where the kernel keeps what concerns write-back: with the device, but btrfs has its own.
    fn bdi(&self) -> PathBuf {
        let name = self.about.file_name().unwrap_or_default();
        let volumes = fs::read_dir("/sys/fs/btrfs").into_iter().flatten().flatten().map(|entry| entry.path());
        let mut own = volumes.filter(|volume| volume.join("devices").join(name).exists());
        own.next().unwrap_or(self.about.clone()).join("bdi")
    }

    fn mount(&mut self) -> Result<()> {
        let result = rustix::mount::mount(&self.source, &self.dir, self.kind, self.flags, &*self.options);
        result.with_context(|| format!("mounting {}", self.kind))?;
        self.is_on = true;
        self.dirty = set_dirty_limit(&self.bdi(), "1", "max_bytes", &self.dirty_bytes.to_string());
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        if self.is_on {
            rustix::mount::unmount(&self.dir, UnmountFlags::empty())
                .with_context(|| format!("unmounting {}", self.kind))?;
            self.is_on = false;
        }
        Ok(())
    }
}

impl Drop for Mounted {
    /// A caller that was killed may take a moment to close its files.
    fn drop(&mut self) {
        for _ in 0..100 {
            if self.unmount().is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        let _ = rustix::mount::unmount(&self.dir, UnmountFlags::DETACH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let peer = |mkfs| Peer { name: "none", about: "", kind: "none", mkfs, mount: "", package: "none-progs" };
        let missing_of = |mkfs| missing(&peer(mkfs)).join(", ");
        assert!(missing_of(&["mkfs.none"]).ends_with("mkfs.none (package none-progs)"));
        assert!(!missing_of(&["sh", "-q"]).contains("none-progs"));
    }

    #[test]
    fn a_program_that_fails_says_why_in_a_line() {
        let e = output(Command::new("sh").args(["-c", "echo a b >&2; echo c >&2; exit 3"])).unwrap_err();
        assert_eq!(e.to_string(), "sh: a b c");
        assert_eq!(output(Command::new("echo").arg("/dev/loop7")).unwrap(), "/dev/loop7");
    }

    #[test]
    fn what_takes_its_time_ends_with_the_orders() {
        let (lines, orders) = mpsc::channel();
        make(&mut Command::new("true"), &orders).unwrap();
        let e = make(Command::new("sh").args(["-c", "echo a b >&2; exit 3"]), &orders).unwrap_err();
        assert_eq!(e.to_string(), "sh: a b");
        let end = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            lines.send(None)
        });
        let begun = std::time::Instant::now();
        assert_eq!(make(Command::new("sleep").arg("60"), &orders).unwrap_err().to_string(), "sleep: interrupted");
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!(end.join().unwrap(), Ok(()));
    }
}
