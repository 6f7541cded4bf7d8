//! The file systems that are compared: how each is made, mounted and taken off again.

use crate::show::kit::{self, Kit, Running};
use anyhow::{Context, Result, bail, ensure};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Servers get so long to appear and to end.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum System {
    /// An engine of the house, mounted by `arbor`.
    Engine(String),
    /// A file system of the kernel, on a loop device.
    Kernel(String),
    Fuse2fs,
    Tmpfs,
    /// A FUSE server that keeps all in memory.
    Floor,
    /// Another, behind our own transport, with all that our mounts promise.
    Memfs,
}

impl System {
    pub(crate) fn peer(name: &str) -> Result<System> {
        Ok(match name {
            "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" => System::Kernel(name.into()),
            "fuse2fs" => System::Fuse2fs,
            "tmpfs" => System::Tmpfs,
            "memfs" => System::Memfs,
            _ => bail!("no peer {name}: ext2, ext3, ext4, xfs, btrfs, fuse2fs, tmpfs and memfs are known"),
        })
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            System::Engine(name) | System::Kernel(name) => name,
            System::Fuse2fs => "fuse2fs",
            System::Tmpfs => "tmpfs",
            System::Floor => "floor",
            System::Memfs => "memfs",
        }
    }

    /// What this machine lacks for it.
    pub(crate) fn missing(&self) -> Option<String> {
        let tools: &[&str] = match self {
            System::Engine(_) | System::Floor | System::Memfs | System::Tmpfs => &[],
            System::Kernel(kind) => &[&format!("mkfs.{kind}"), "mount"],
            System::Fuse2fs => &["mkfs.ext4", "fuse2fs"],
        };
        if let Some(tool) = tools.iter().find(|tool| kit::in_path(tool).is_none()) {
            return Some(format!("no {tool}"));
        }
        let System::Kernel(kind) = self else { return None };
        // Loads the module where there is one.
        let _ = Command::new("modprobe").arg(kind).stdin(Stdio::null()).stderr(Stdio::null()).status();
        let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let is_known = known.lines().any(|line| line.split_whitespace().last() == Some(kind));
        (!is_known).then(|| format!("the kernel has no {kind}"))
    }

    fn has_image(&self) -> bool {
        !matches!(self, System::Tmpfs | System::Floor | System::Memfs)
    }
}

/// What is the same for all of them.
pub(crate) struct Place<'a> {
    pub(crate) kit: &'a Kit,
    pub(crate) image_gib: u64,
    pub(crate) mount_options: Option<&'a str>,
    pub(crate) floor: Option<&'a Path>,
    pub(crate) floor_options: &'a str,
    pub(crate) memfs: Option<&'a Path>,
    /// `arbor stats` is there.
    pub(crate) has_stats: bool,
}

/// A new file system, mounted. All of it goes with the value.
pub(crate) struct Volume<'a> {
    place: &'a Place<'a>,
    system: System,
    image: PathBuf,
    dir: PathBuf,
    mounted: Option<Mounted<'a>>,
    peak: Option<u64>,
}

impl<'a> Volume<'a> {
    pub(crate) fn new(place: &'a Place<'a>, system: &System) -> Result<Volume<'a>> {
        let name = system.name();
        let image = place.kit.path(&format!("{name}.img"));
        let dir = place.kit.path(name);
        let mut volume = Volume { place, system: system.clone(), image, dir, mounted: None, peak: None };
        if system.has_image() {
            volume.format()?;
        }
        fs::create_dir_all(&volume.dir)?;
        volume.mount()?;
        Ok(volume)
    }

    fn format(&self) -> Result<()> {
        let (size, image) = (format!("{}G", self.place.image_gib), self.image.as_os_str());
        let kind = match &self.system {
            System::Engine(name) => {
                let args = ["mkfs", "-q", "-t", name, "-s", &size].map(AsRef::as_ref);
                self.place.kit.arbor(args.into_iter().chain([image]))?;
                return Ok(());
            }
            System::Kernel(kind) => kind,
            _ => "ext4",
        };
        File::create(&self.image)?.set_len(self.place.image_gib << 30)?;
        let quiet = if kind.starts_with("ext") { "-qF" } else { "-q" };
        command_ok(Command::new(format!("mkfs.{kind}")).arg(quiet).arg(image))
    }

    fn mount(&mut self) -> Result<()> {
        let Place { kit, mount_options, .. } = self.place;
        self.mounted = Some(match &self.system {
            System::Engine(name) => Mounted::Ours(kit.mount_with(&self.image, name, *mount_options)?),
            System::Kernel(kind) => Mounted::Kernel(KernelMount::new(kind, Some(&self.image), &self.dir)?),
            System::Tmpfs => Mounted::Kernel(KernelMount::new("tmpfs", None, &self.dir)?),
            System::Fuse2fs => {
                let mut command = Command::new("fuse2fs");
                command.arg("-f").arg(&self.image).arg(&self.dir);
                Mounted::Served(ServedMount::new(command, &self.dir)?)
            }
            System::Floor => {
                let mut command = Command::new(self.place.floor.context("no floor")?);
                command.arg(&self.dir).arg(self.place.floor_options).env("FLOOR_ONCE", "1");
                Mounted::Served(ServedMount::new(command, &self.dir)?)
            }
            System::Memfs => {
                let mut command = Command::new(self.place.memfs.context("no memfs")?);
                command.arg(&self.dir).args(mount_options);
                Mounted::Served(ServedMount::new(command, &self.dir)?)
            }
        });
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        self.peak = self.peak_memory();
        match self.mounted.take() {
            Some(Mounted::Ours(mount)) => mount.umount().map(drop),
            Some(Mounted::Kernel(mut mount)) => mount.take_off(),
            Some(Mounted::Served(mut mount)) => mount.take_off(),
            None => Ok(()),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the kernel and the server forget all, by another mount and dropped caches. What lies in
    /// memory only stays mounted.
    pub(crate) fn cool(&mut self) -> Result<()> {
        if self.system.has_image() {
            self.unmount()?;
            self.mount()?;
        }
        drop_caches()
    }

    /// Makes all durable: FUSE does not pass syncfs(2) on, and an fsync of the root does as much in
    /// the servers compared here.
    pub(crate) fn sync(&self) -> Result<()> {
        let root = File::open(&self.dir)?;
        match self.mounted {
            Some(Mounted::Kernel(_)) => rustix::fs::syncfs(&root)?,
            _ => rustix::fs::fsync(&root)?,
        }
        Ok(())
    }

    /// Bytes written to the image since the mount, or since another moment. What a server has written is told by the host's disk: of
    /// a server the kernel counts a page of the page cache whole as soon as a byte of it is dirty, and such pages have up to
    /// 2 MiB.
    pub(crate) fn written(&self) -> Option<u64> {
        match self.mounted.as_ref()? {
            Mounted::Kernel(mount) => sectors_written(&format!("/sys/block/{}/stat", mount.device.as_ref()?)),
            Mounted::Served(_) if !self.system.has_image() => None,
            _ => self.host_written().or_else(|| of_process(self.server()?, "io", "write_bytes:")),
        }
    }

    /// Bytes written so far to the disk that the image lies on, if it is one.
    fn host_written(&self) -> Option<u64> {
        let dev = fs::metadata(&self.image).ok()?.dev();
        sectors_written(&format!("/sys/dev/block/{}:{}/stat", rustix::fs::major(dev), rustix::fs::minor(dev)))
    }

    /// The most memory that its server has had so far.
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        let now = self.server().and_then(|pid| of_process(pid, "status", "VmHWM:")).map(|kib| kib * 1024);
        self.peak.max(now)
    }

    fn server(&self) -> Option<Pid> {
        match self.mounted.as_ref()? {
            Mounted::Ours(mount) => Some(mount.pid()),
            Mounted::Served(mount) => Some(Pid::from_child(&mount.server.0)),
            Mounted::Kernel(_) => None,
        }
    }

    /// Its image, if it has one.
    pub(crate) fn image(&self) -> Option<PathBuf> {
        self.system.has_image().then(|| self.image.clone())
    }

    /// What the image takes on the host.
    pub(crate) fn image_bytes(&self) -> Option<u64> {
        self.system.has_image().then(|| fs::metadata(&self.image).ok().map(|m| m.blocks() * 512)).flatten()
    }

    /// What the file system says it uses.
    pub(crate) fn used_bytes(&self) -> Option<u64> {
        let stat =
            rustix::fs::statvfs(&self.dir).ok().filter(|_| !matches!(self.system, System::Floor | System::Memfs))?;
        Some((stat.f_blocks - stat.f_bfree) * stat.f_frsize)
    }

    /// FUSE requests so far, by kind, if the server counts them.
    pub(crate) fn requests(&self) -> BTreeMap<String, u64> {
        if !self.place.has_stats || !matches!(self.mounted, Some(Mounted::Ours(_))) {
            return BTreeMap::new();
        }
        let text = self.place.kit.output(["stats".as_ref(), self.dir.as_os_str()]).unwrap_or_default();
        text.lines().filter_map(kind_and_count).collect()
    }
}

/// Bytes written to a block device, by its statistics.
fn sectors_written(stat: &str) -> Option<u64> {
    Some(fs::read_to_string(stat).ok()?.split_whitespace().nth(6)?.parse::<u64>().ok()? * 512)
}

/// A line of `arbor stats` about what the mount was asked.
fn kind_and_count(line: &str) -> Option<(String, u64)> {
    let mut words = line.split_whitespace();
    let (of, kind, count) = (words.next()?, words.next()?, words.next()?);
    (of == "mount").then_some((kind.into(), count.replace(',', "").parse().ok()?))
}

impl Drop for Volume<'_> {
    fn drop(&mut self) {
        self.mounted = None;
        let _ = fs::remove_file(&self.image);
        let _ = fs::remove_dir(&self.dir);
    }
}

enum Mounted<'a> {
    Ours(kit::Mount<'a>),
    Kernel(KernelMount),
    Served(ServedMount),
}

struct KernelMount {
    dir: PathBuf,
    /// The loop device, as `loop0`. It is freed with the mount.
    device: Option<String>,
    is_on: bool,
}

impl KernelMount {
    fn new(kind: &str, image: Option<&Path>, dir: &Path) -> Result<KernelMount> {
        let mut command = Command::new("mount");
        command.args(["-t", kind]);
        match image {
            Some(image) => command.args(["-o", "loop"]).arg(image),
            None => command.arg(kind),
        };
        command_ok(command.arg(dir))?;
        let source = mounted_at(dir).map(|m| m.source).unwrap_or_default();
        let device = source.strip_prefix("/dev/").filter(|_| image.is_some()).map(str::to_owned);
        Ok(KernelMount { dir: dir.into(), device, is_on: true })
    }

    fn take_off(&mut self) -> Result<()> {
        unmount(&self.dir)?;
        self.is_on = false;
        // The device is let go a moment later.
        let Some(device) = &self.device else { return Ok(()) };
        let start = Instant::now();
        while Path::new(&format!("/sys/block/{device}/loop/backing_file")).exists() {
            ensure!(start.elapsed() < PATIENCE, "{device} is not let go");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if self.is_on && self.take_off().is_err() {
            let _ = rustix::mount::unmount(&self.dir, UnmountFlags::DETACH);
        }
    }
}

/// A mount whose server is a child, and ends with it.
pub(crate) struct ServedMount {
    dir: PathBuf,
    server: Running,
}

impl ServedMount {
    pub(crate) fn new(mut command: Command, dir: &Path) -> Result<ServedMount> {
        let name = command.get_program().to_string_lossy().into_owned();
        // Of its own group: an interrupt is ours alone.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let server = Running(command.spawn().with_context(|| name.clone())?);
        let mut mount = ServedMount { dir: dir.into(), server };
        let start = Instant::now();
        while mounted_at(dir).is_none() {
            kit::go_on()?;
            if let Some(status) = mount.server.0.try_wait()? {
                bail!("{name}: {status}");
            }
            ensure!(start.elapsed() < PATIENCE, "{name} mounts nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
        // Answered once the server is at work.
        fs::metadata(dir).with_context(|| name)?;
        Ok(mount)
    }

    pub(crate) fn take_off(&mut self) -> Result<()> {
        unmount(&self.dir)?;
        let server = rustix::process::pidfd_open(Pid::from_child(&self.server.0), PidfdFlags::empty())?;
        ensure!(kit::has_ended(&server, PATIENCE)?, "the server of {} does not end", self.dir.display());
        Ok(())
    }
}

impl Drop for ServedMount {
    fn drop(&mut self) {
        if mounted_at(&self.dir).is_some() && self.take_off().is_err() {
            let _ = rustix::mount::unmount(&self.dir, UnmountFlags::DETACH);
        }
    }
}

/// Something may still look into it for a moment.
fn unmount(dir: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        match rustix::mount::unmount(dir, UnmountFlags::empty()) {
            Err(rustix::io::Errno::BUSY) if start.elapsed() < Duration::from_secs(5) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result.with_context(|| format!("unmount of {}", dir.display())),
        }
    }
}

/// A line of mountinfo.
pub(crate) struct MountLine {
    pub(crate) kind: String,
    pub(crate) source: String,
    dir: PathBuf,
}

/// What is mounted on `dir` itself.
pub(crate) fn mounted_at(dir: &Path) -> Option<MountLine> {
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    text.lines().rev().filter_map(mount_line).find(|line| line.dir == dir)
}

fn mount_line(line: &str) -> Option<MountLine> {
    let (before, after) = line.split_once(" - ")?;
    let dir = before.split(' ').nth(4)?.replace("\\040", " ");
    let mut after = after.split(' ');
    let (kind, source) = (after.next()?.to_owned(), after.next()?.to_owned());
    Some(MountLine { kind, source, dir: dir.into() })
}

/// Drops what the kernel keeps of all file systems, dirty pages written first.
pub(crate) fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("drop_caches")
}

/// A number from `/proc/PID/FILE`.
pub(crate) fn of_process(pid: Pid, file: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/{file}", pid.as_raw_nonzero())).ok()?;
    number_behind(&text, key)
}

fn number_behind(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn command_ok(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).output().with_context(|| name.clone())?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{name}: {}: {}", out.status, kit::tail(&said, 5));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_requests_are_read() {
        assert_eq!(kind_and_count("mount   lookup     160,336"), Some(("lookup".into(), 160_336)));
        assert_eq!(kind_and_count("volume  flushes          3"), None);
    }

    #[test]
    fn lines_of_mountinfo() {
        let line = "36 35 98:0 / /a\\040b rw,noatime shared:1 master:2 - ext3 /dev/loop7 rw,errors=continue";
        let found = mount_line(line).unwrap();
        assert_eq!((found.kind.as_str(), found.source.as_str()), ("ext3", "/dev/loop7"));
        assert_eq!(found.dir, Path::new("/a b"));
        assert!(mount_line("").is_none());
    }

    #[test]
    fn numbers_of_processes() {
        assert_eq!(number_behind("a: 1\nVmHWM:\t  123 kB\n", "VmHWM:"), Some(123));
        assert_eq!(number_behind("a: 1\n", "VmHWM:"), None);
    }

    #[test]
    fn peers_have_names() {
        for name in ["ext2", "ext4", "xfs", "btrfs", "fuse2fs", "tmpfs", "memfs"] {
            assert_eq!(System::peer(name).unwrap().name(), name);
        }
        assert!(System::peer("ntfs").is_err());
    }
}
