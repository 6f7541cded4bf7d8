//! What all shows need: a work directory, volumes and mounts, each undone when its value goes.

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) const MIB: u64 = 1 << 20;

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From now on SIGINT and SIGTERM let the show tidy up; the second one ends it at once.
pub(crate) fn watch_signals() -> Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&INTERRUPTED))?;
        signal_hook::flag::register(signal, Arc::clone(&INTERRUPTED))?;
    }
    Ok(())
}

/// An error once a signal has come; loops ask it.
pub(crate) fn go_on() -> Result<()> {
    ensure!(!INTERRUPTED.load(Ordering::Relaxed), "interrupted");
    Ok(())
}

/// Where a show works, and with which `arbor`.
pub(crate) struct Kit {
    arbor: PathBuf,
    /// The engine of its volumes, if not the default.
    engine: Option<String>,
    /// Options of every mount.
    mount_options: Option<String>,
    work: tempfile::TempDir,
}

impl Kit {
    /// The work directory gets the name `what` with more after it.
    pub(crate) fn new(what: &str, arbor: &Path, below: Option<&Path>, keep: bool) -> Result<Kit> {
        let below = below.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let below = below.canonicalize().with_context(|| below.display().to_string())?;
        let work = tempfile::Builder::new().prefix(&format!("arbor-{what}-")).tempdir_in(&below)?;
        // The users of pjdfstest have to get through it.
        fs::set_permissions(work.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let mut kit = Kit { arbor: arbor.to_path_buf(), engine: None, mount_options: None, work };
        if keep {
            kit.keep(what);
        }
        Ok(kit)
    }

    /// The same with volumes of another engine than the default.
    pub(crate) fn with_engine(self, engine: Option<&str>) -> Kit {
        Kit { engine: engine.map(str::to_string), ..self }
    }

    /// The same with these options for every mount.
    pub(crate) fn with_mount_options(self, options: Option<&str>) -> Kit {
        Kit { mount_options: options.map(str::to_string), ..self }
    }

    /// The options of a mount: those of all, and `more`.
    fn options(&self, more: Option<&str>) -> Option<String> {
        let all: Vec<&str> = self.mount_options.as_deref().into_iter().chain(more).filter(|o| !o.is_empty()).collect();
        (!all.is_empty()).then(|| all.join(","))
    }

    /// Leaves the work directory for a look at it.
    pub(crate) fn keep(&mut self, what: &str) {
        self.work.disable_cleanup(true);
        println!("{what}: {} stays", self.work.path().display());
    }

    /// A path in the work directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// A new directory in the work directory.
    pub(crate) fn new_dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Fails early where the work directory lies on too small a disk.
    pub(crate) fn need_space(&self, bytes: u64) -> Result<()> {
        let stat = rustix::fs::statvfs(self.work.path())?;
        let free = stat.f_bavail * stat.f_frsize;
        ensure!(
            free >= bytes,
            "{} has {} MiB free and {} MiB are needed; choose another with --dir",
            self.work.path().display(),
            free / MIB,
            bytes / MIB
        );
        Ok(())
    }

    /// Runs `arbor`, which must succeed, and returns how long it took.
    pub(crate) fn arbor<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<Duration> {
        let mut command = Command::new(&self.arbor);
        command.args(args).stdin(Stdio::null());
        let start = Instant::now();
        // Its output goes to a file: a pipe would be held by the server of a mount.
        let said = tempfile::tempfile()?;
        let status = command.stdout(said.try_clone()?).stderr(said.try_clone()?).status().context("arbor")?;
        let took = start.elapsed();
        if !status.success() {
            let mut said = said;
            std::io::Seek::rewind(&mut said)?;
            let text = std::io::read_to_string(said)?;
            let args: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
            bail!("arbor {}: {status}: {}", args.join(" "), tail(&text, 20));
        }
        Ok(took)
    }

    /// What `arbor` prints, if it succeeds.
    pub(crate) fn output<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Option<String> {
        let out = Command::new(&self.arbor).args(args).stdin(Stdio::null()).output().ok()?;
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Makes a volume in a new image.
    pub(crate) fn mkfs(&self, name: &str, size: &str) -> Result<(PathBuf, Duration)> {
        let image = self.path(name);
        let engine = self.engine.iter().flat_map(|name| ["-t".as_ref(), OsStr::new(name)]);
        let rest = ["-q".as_ref(), "-s".as_ref(), size.as_ref(), image.as_os_str()];
        let took = self.arbor([OsStr::new("mkfs")].into_iter().chain(engine).chain(rest))?;
        Ok((image, took))
    }

    /// Mounts `image` on the directory `name`, where a dead mount may lie.
    pub(crate) fn mount(&self, image: &Path, name: &str) -> Result<Mount<'_>> {
        self.mount_with(image, name, None)
    }

    pub(crate) fn mount_with(&self, image: &Path, name: &str, options: Option<&str>) -> Result<Mount<'_>> {
        let dir = self.path(name);
        let mut args = vec!["mount".as_ref(), image.as_os_str(), dir.as_os_str()];
        let options = self.options(options);
        args.extend(options.iter().flat_map(|o| ["-o".as_ref(), OsStr::new(o)]));
        let took = self.arbor(args)?;
        let record = arbor_fuse::mounts().into_iter().find(|r| r.mountpoint == dir);
        let Some(pid) = record.and_then(|r| Pid::from_raw(r.pid as i32)) else {
            self.arbor(["umount".as_ref(), dir.as_os_str()])?;
            bail!("no record of the mount; is arbor of another version than xtask?");
        };
        let server = Some(rustix::process::pidfd_open(pid, PidfdFlags::empty())?);
        Ok(Mount { kit: self, dir, pid, server, took, child: Mutex::new(None) })
    }

    /// Mounts with the server as a child of this process, whose complaints go to the end of the file
    /// `complaints`: a server in the background has nowhere to say them.
    pub(crate) fn mount_heard(&self, image: &Path, name: &str, options: &str, complaints: &Path) -> Result<Mount<'_>> {
        let dir = self.path(name);
        let to = fs::OpenOptions::new().create(true).append(true).open(complaints)?;
        let mut command = Command::new(&self.arbor);
        command.args(["mount", "--foreground"]);
        if let Some(options) = self.options(Some(options)) {
            command.args(["-o", &options]);
        }
        // A group of its own: the terminal's signals are not meant for the server.
        command.arg(image).arg(&dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(to).process_group(0);
        let start = Instant::now();
        let mut child = Running(command.spawn().context("arbor")?);
        let mut line = String::new();
        if let Some(said) = child.0.stdout.take() {
            BufReader::new(said).read_line(&mut line)?;
        }
        let took = start.elapsed();
        if line.is_empty() {
            let status = child.0.wait()?;
            bail!("arbor mount: {status}: {}", tail(&fs::read_to_string(complaints).unwrap_or_default(), 5));
        }
        let pid = Pid::from_child(&child.0);
        let server = Some(rustix::process::pidfd_open(pid, PidfdFlags::empty())?);
        Ok(Mount { kit: self, dir, pid, server, took, child: Mutex::new(Some(child)) })
    }

    /// `arbor fsck -n -f`, which must find nothing.
    pub(crate) fn check(&self, image: &Path) -> Result<Duration> {
        self.arbor(["fsck".as_ref(), "-n".as_ref(), "-f".as_ref(), image.as_os_str()]).context("the volume is damaged")
    }
}

/// A mount; taken off, by force if need be, when the value goes.
pub(crate) struct Mount<'a> {
    kit: &'a Kit,
    dir: PathBuf,
    pid: Pid,
    /// The process that serves it.
    server: Option<OwnedFd>,
    /// How long the mount command took.
    pub(crate) took: Duration,
    /// The same process, if it is a child of this one.
    child: Mutex<Option<Running>>,
}

impl<'a> Mount<'a> {
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The process that serves it.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Takes it off; the server has ended on return.
    pub(crate) fn umount(mut self) -> Result<Duration> {
        let took = self.kit.arbor(["umount".as_ref(), self.dir.as_os_str()])?;
        self.wait_for_end(Duration::from_secs(60))?;
        self.server = None;
        Ok(took)
    }

    /// Takes it off and mounts it again, so that nothing comes from the kernel's caches.
    pub(crate) fn again(self, image: &Path) -> Result<Mount<'a>> {
        let kit = self.kit;
        let name = self.name();
        self.umount()?;
        kit.mount(image, &name)
    }

    /// Kills the server, if it has not ended. What it leaves is a dead mount.
    pub(crate) fn kill(&self) -> Result<()> {
        if let Some(server) = &self.server {
            match rustix::process::pidfd_send_signal(server, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.wait_for_end(Duration::from_secs(60))
    }

    /// Mounts the image of a killed server again.
    pub(crate) fn recover(mut self, image: &Path) -> Result<Mount<'a>> {
        let new = self.kit.mount(image, &self.name())?;
        self.server = None;
        Ok(new)
    }

    /// The same, as [`Kit::mount_heard`] does it.
    pub(crate) fn recover_heard(mut self, image: &Path, options: &str, complaints: &Path) -> Result<Mount<'a>> {
        let new = self.kit.mount_heard(image, &self.name(), options, complaints)?;
        self.server = None;
        Ok(new)
    }

    fn name(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn wait_for_end(&self, limit: Duration) -> Result<()> {
        let Some(server) = &self.server else { return Ok(()) };
        ensure!(has_ended(server, limit)?, "the server of {} does not end", self.dir.display());
        // A child is gone only when somebody has asked how it ended.
        drop(self.child.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(())
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let Some(server) = &self.server else { return };
        if self.kit.arbor(["umount".as_ref(), self.dir.as_os_str()]).is_ok() {
            let _ = self.wait_for_end(Duration::from_secs(60));
            return;
        }
        // Something is still at work there.
        let _ = rustix::mount::unmount(&self.dir, rustix::mount::UnmountFlags::DETACH);
        let _ = rustix::process::pidfd_send_signal(server, Signal::KILL);
        let _ = self.wait_for_end(Duration::from_secs(5));
    }
}

/// Whether a process ends within `limit`.
pub(crate) fn has_ended(process: &OwnedFd, limit: Duration) -> Result<bool> {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    let ready = rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, Some(&limit.try_into().unwrap())))?;
    Ok(ready > 0)
}

/// Where a program lies on the search path.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.is_file())
}

/// A child that does not outlive the value.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The last lines of `text`.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end().lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// What `image` takes on the host, in MiB.
pub(crate) fn mib_on_host(image: &Path) -> Result<f64> {
    Ok(fs::metadata(image)?.blocks() as f64 * 512.0 / MIB as f64)
}

/// A claim with a limit: printed, and an error if it does not hold.
pub(crate) fn below(what: &str, value: f64, limit: f64, unit: &str) -> Result<()> {
    println!("  {what}: {value:.2} {unit} (limit {limit} {unit})");
    ensure!(value < limit, "{what}: {value:.2} {unit}, and the limit is {limit}");
    Ok(())
}

/// A seed from the time of day.
pub(crate) fn drawn_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 & 0xffff_ffff
}

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }

    /// The numbers below `n` in a random order.
    pub(crate) fn shuffled(&mut self, n: u32) -> Vec<u32> {
        let mut all: Vec<u32> = (0..n).collect();
        for i in (1..all.len()).rev() {
            all.swap(i, self.below(i as u64 + 1) as usize);
        }
        all
    }
}
