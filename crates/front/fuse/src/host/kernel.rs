//! The mount table: mounting and unmounting by system call (root) or by `fusermount3` (all others).

use crate::atime::Access;
use crate::host::blockdev;
use crate::host::place::{self, Mount};
use crate::options::MountConfig;
use crate::prompt::Promptly;
use arbor_base::vfs::Options;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Largest READ and WRITE.
pub(crate) const MAX_IO: u32 = 1 << 20;

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Mounts on `dir`, which must carry no dead mount, and returns the connection.
pub(crate) fn mount(dir: BorrowedFd<'_>, config: &MountConfig) -> io::Result<(OwnedFd, Mount)> {
    if is_root() {
        return mount_directly(dir, config);
    }
    let fd = mount_by_fusermount(&place::path(dir)?, config)?;
    Ok((fd, Mount::made(dir)?))
}

fn mount_directly(dir: BorrowedFd<'_>, config: &MountConfig) -> io::Result<(OwnedFd, Mount)> {
    match &config.block_device {
        Some(device) => blockdev::mount(device, dir, config),
        None => mount_as("fuse.arbor", &config.source, dir, config, ""),
    }
}

pub(crate) fn mount_as(
    kind: &str,
    source: &OsStr,
    dir: BorrowedFd<'_>,
    config: &MountConfig,
    more: &str,
) -> io::Result<(OwnedFd, Mount)> {
    let fd = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, config.read_only);
    flags.set(MountFlags::NOSUID, config.nosuid);
    flags.set(MountFlags::NODEV, config.nodev);
    flags.set(MountFlags::NOEXEC, config.noexec);
    // The server does these; the kernel shows them.
    flags.set(MountFlags::SYNCHRONOUS, config.promptly == Promptly::Everything);
    flags.set(MountFlags::DIRSYNC, config.promptly == Promptly::Names);
    flags.set(MountFlags::NOATIME, config.access_times.access == Access::Never);
    flags.set(MountFlags::STRICTATIME, config.access_times.access == Access::Strict);
    flags.set(MountFlags::NODIRATIME, !config.access_times.of_directories);
    flags.set(MountFlags::LAZYTIME, config.access_times.lazy);
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut data = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},default_permissions,max_read={MAX_IO}{more}",
        fd.as_raw_fd()
    );
    if config.allow_other.unwrap_or(true) {
        data += ",allow_other";
    }
    let data = CString::new(data).expect("no NUL in the options of a mount");
    rustix::mount::mount(source, place::link(dir), kind, flags, &*data)?;
    Ok((fd, Mount::made(dir)?))
}

/// Why `fusermount3` could not be run.
pub(crate) fn no_helper(e: io::Error) -> io::Error {
    let where_from =
        if e.kind() == io::ErrorKind::NotFound { " (package fuse3), which users other than root need" } else { "" };
    io::Error::new(e.kind(), format!("fusermount3{where_from}: {e}"))
}

/// `fusermount3` opens the device and mounts as root, and hands us the descriptor over its
/// standard input, a socket.
fn mount_by_fusermount(dir: &Path, config: &MountConfig) -> io::Result<OwnedFd> {
    let mut options = OsString::from("nosuid,nodev,default_permissions,subtype=arbor");
    options.push(format!(",max_read={MAX_IO}"));
    for (on, name) in [
        (config.read_only, ",ro"),
        (config.noexec, ",noexec"),
        (config.promptly == Promptly::Everything, ",sync"),
        (config.promptly == Promptly::Names, ",dirsync"),
        (config.access_times.access == Access::Never, ",noatime"),
        (config.allow_other == Some(true), ",allow_other"),
    ] {
        if on {
            options.push(name);
        }
    }
    options.push(",fsname=");
    options.push(escape_commas(&config.source));
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut child = Command::new("fusermount3")
        .arg("-o")
        .arg(options)
        .arg("--")
        .arg(dir)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stderr(Stdio::piped())
        .spawn()
        .map_err(no_helper)?;
    let mut byte = [0u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(&ours, &mut [io::IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC);
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    // Its end of the socket is closed by now, so it says no more than fits into the pipe.
    let said = io::read_to_string(child.stderr.take().expect("piped")).unwrap_or_default();
    let status = child.wait()?;
    match (received, fd) {
        (Ok(_), Some(fd)) if status.success() => Ok(fd),
        _ => Err(io::Error::other(match said.trim() {
            "" => format!("fusermount3: {status}"),
            said => said.to_string(),
        })),
    }
}

fn escape_commas(text: &OsStr) -> OsString {
    let mut escaped = Vec::new();
    for &b in text.as_bytes() {
        if matches!(b, b',' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(b);
    }
    OsString::from_vec(escaped)
}

/// What a request gets when there is no server, and when it goes.
const DEAD: [Errno; 2] = [Errno::NOTCONN, Errno::CONNABORTED];

/// Whether looking at a directory fails because the server of its mount is gone.
pub(crate) fn is_dead(e: &io::Error) -> bool {
    DEAD.iter().any(|d| e.raw_os_error() == Some(d.raw_os_error()))
}

/// Takes dead mounts of ours off `dir`: those whose server is gone, so that everything on them says
/// `ENOTCONN`. Returns whether there was one. Leaves a mount that works alone, and all of others.
pub fn clean_stale(dir: &Path) -> io::Result<bool> {
    let mut cleaned = false;
    // Several may lie on one another; a bound, in case the kernel says yes and does nothing.
    for _ in 0..16 {
        let Ok(root) = place::directory(CWD, dir.as_os_str(), OFlags::empty()) else { return Ok(cleaned) };
        let Some(mount) = Mount::of(root.as_fd())? else { return Ok(cleaned) };
        if !is_stale(&root) {
            return Ok(cleaned);
        }
        drop(root);
        mount.detach(true)?;
        cleaned = true;
    }
    Ok(cleaned)
}

/// Whether the server of the mount with this root is gone.
fn is_stale(root: &OwnedFd) -> bool {
    let is_dead = |e: &Errno| DEAD.contains(e);
    // Its rings are going, and with them the server, if it is one of ours.
    for _ in 0..16 {
        match rustix::fs::fstatfs(root) {
            Err(Errno::CANCELED) => std::thread::sleep(std::time::Duration::from_millis(10)),
            Err(e) if is_dead(&e) => return true,
            // A server that ends may still be about to go.
            _ => return rustix::fs::fstat(root).is_err_and(|e| is_dead(&e)),
        }
    }
    false
}

/// Takes the mount off if its server is gone.
pub(crate) fn take_off_stale(mount: &Mount) {
    if mount.root().is_ok_and(|root| is_stale(&root)) {
        let _ = mount.detach(true);
    }
}

/// A mount of arbor as the kernel's table has it: all of them, whoever made them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The kernel's number of the mount.
    pub id: u64,
    /// What was mounted: the image, unless another name was asked for.
    pub source: PathBuf,
    /// Where.
    pub mountpoint: PathBuf,
    /// Options of the mount, such as `ro` and `nosuid`.
    pub options: Vec<String>,
    /// Options of what is mounted, such as `sync`.
    pub volume_options: Vec<String>,
    /// Number of the device that files on it have; of type `fuseblk` that of the block device.
    pub device: (u32, u32),
}

/// All mounts of arbor that this process can see, a later one after those it covers.
pub fn mount_table() -> Vec<MountEntry> {
    table_in(Path::new("/proc/self/mountinfo")).unwrap_or_default()
}

/// Those that another process can see.
pub(crate) fn mount_table_of(pid: u32) -> io::Result<Vec<MountEntry>> {
    table_in(Path::new(&format!("/proc/{pid}/mountinfo")))
}

fn table_in(file: &Path) -> io::Result<Vec<MountEntry>> {
    let table = std::fs::read(file)?;
    Ok(table.split(|&b| b == b'\n').filter_map(entry).collect())
}

/// `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [OPTIONAL...] - TYPE SOURCE OPTIONS`.
fn entry(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&b| b == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let mut fields = fields.skip(1);
    let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let mut fields = fields.skip(1);
    let path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescape(field)));
    let mountpoint = path(fields.next()?);
    let words = |field: &[u8]| String::from_utf8_lossy(field).split(',').map(str::to_string).collect();
    let options = words(fields.next()?);
    let mut fields = fields.skip_while(|f| *f != b"-").skip(1);
    let is_ours = matches!(fields.next()?, b"fuse.arbor" | b"fuseblk.arbor");
    let source = path(fields.next()?);
    let volume_options = words(fields.next()?);
    is_ours.then_some(MountEntry { id, source, mountpoint, options, volume_options, device })
}

impl MountEntry {
    /// Whether this word says of what the server does how it is already; any other word is none of that.
    fn keeps(&self, word: &str) -> bool {
        let is_now = |word: &str| self.options.iter().chain(&self.volume_options).any(|is| is == word);
        let is_strict = || !is_now("noatime") && !is_now("relatime");
        match word {
            "noatime" | "relatime" | "nodiratime" | "lazytime" | "sync" | "dirsync" => is_now(word),
            "atime" => !is_now("noatime"),
            "strictatime" => is_strict(),
            "nostrictatime" => !is_strict(),
            "diratime" => !is_now("nodiratime"),
            "nolazytime" => !is_now("lazytime"),
            "async" => !is_now("sync"),
            _ => true,
        }
    }
}

/// Changes a mount that works: `ro`, `rw`, `suid`, `dev`, `exec` and their opposites among
/// `options`. The others mean nothing now, and a flag that is not named stays as it is.
///
/// Errors: `InvalidInput` if no mount of ours lies there, `ResourceBusy` if it is to become
/// read-only while files are open for writing, `ReadOnlyFilesystem` if it is to become writable
/// but the volume was opened read-only, `Unsupported` for times of access, `sync` and `dirsync`, which stay as they are.
pub fn remount(dir: &Path, options: &Options) -> io::Result<()> {
    let root = place::directory(CWD, dir.as_os_str(), OFlags::empty())?;
    let mount = Mount::of(root.as_fd())?.ok_or_else(not_ours)?;
    let now = mount.entry().ok_or_else(not_ours)?;
    // The server does these, and hears nothing of a remount.
    if let Some((key, _)) = options.0.iter().find(|(key, _)| !now.keeps(key)) {
        let why = format!("remount: {key} cannot be changed; unmount, and mount again");
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    let mut flags = MountFlags::empty();
    // What stays as it is has to be said again.
    let stays =
        [("sync", MountFlags::SYNCHRONOUS), ("dirsync", MountFlags::DIRSYNC), ("lazytime", MountFlags::LAZYTIME)];
    for (_, flag) in stays.iter().filter(|(word, _)| now.volume_options.iter().any(|is| is == word)) {
        flags |= *flag;
    }
    for word in now.options.iter().map(String::as_str).chain(options.0.iter().map(|(key, _)| key.as_str())) {
        match word {
            "ro" => flags |= MountFlags::RDONLY,
            "rw" => flags -= MountFlags::RDONLY,
            "nosuid" => flags |= MountFlags::NOSUID,
            "suid" => flags -= MountFlags::NOSUID,
            "nodev" => flags |= MountFlags::NODEV,
            "dev" => flags -= MountFlags::NODEV,
            "noexec" => flags |= MountFlags::NOEXEC,
            "exec" => flags -= MountFlags::NOEXEC,
            _ => {}
        }
    }
    if flags.contains(MountFlags::RDONLY) {
        // The kernel's own sync does not reach a plain FUSE mount.
        crate::host::record::sync(&place::link(root.as_fd()))?;
    } else if crate::host::record::mounts().iter().any(|record| record.is_of(&mount) && record.read_only) {
        let why = "the volume was opened read-only: unmount it and mount it for writing";
        return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, why));
    }
    Ok(rustix::mount::mount_remount(place::link(root.as_fd()), flags, c"")?)
}

pub(crate) fn not_ours() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a mount point of arbor")
}

/// Undoes the `\ooo` of the mount table.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = field;
    while let Some((&b, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| b == b'\\');
        let code = octal.and_then(|o| std::str::from_utf8(o).ok()).and_then(|o| u8::from_str_radix(o, 8).ok());
        match code {
            Some(code) => {
                out.push(code);
                rest = &tail[3..];
            }
            None => {
                out.push(b);
                rest = tail;
            }
        }
    }
    out
}

/// Lets the kernel read that far ahead on a mount. Needs root, and is no matter.
pub(crate) fn raise_read_ahead(mount: &Mount, bytes: u32) {
    let (major, minor) = mount.device();
    let _ = std::fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), (bytes >> 10).to_string());
}

/// Waits until `fd` can be read or has ended, or `other` can be read.
pub(crate) fn wait_readable(fd: impl AsFd, other: impl AsFd) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::new(&fd, PollFlags::IN), PollFd::new(&other, PollFlags::IN)];
    match poll(&mut fds, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_mount_table() {
        let line = b"36 35 0:40 / /m\\040nt rw,nosuid shared:1 - fuse.arbor /a\\040b.img rw,user_id=0";
        let mount = entry(line).unwrap();
        assert_eq!((mount.id, mount.source, mount.mountpoint), (36, "/a b.img".into(), "/m nt".into()));
        assert_eq!((mount.options, mount.device), (vec!["rw".into(), "nosuid".into()], (0, 40)));
        assert_eq!(mount.volume_options, ["rw", "user_id=0"]);
        assert_eq!(entry(b"36 35 0:40 / /mnt rw - ext4 /dev/sda rw"), None);
        assert_eq!(entry(b""), None);
    }

    #[test]
    fn a_remount_changes_nothing_that_the_server_does() {
        let of = |options: &str, volume: &str| {
            entry(format!("36 35 0:40 / /mnt {options} - fuse.arbor a.img {volume}").as_bytes()).unwrap()
        };
        let all = [
            "noatime",
            "relatime",
            "atime",
            "strictatime",
            "nostrictatime",
            "nodiratime",
            "diratime",
            "lazytime",
            "nolazytime",
            "sync",
            "async",
            "dirsync",
            "ro",
            "nosuid",
        ];
        let refused =
            |mount: MountEntry| all.into_iter().filter(|word| !mount.keeps(word)).collect::<Vec<_>>().join(" ");
        assert_eq!(refused(of("rw,relatime", "rw")), "noatime strictatime nodiratime lazytime sync dirsync");
        assert_eq!(refused(of("rw", "rw,sync")), "noatime relatime nostrictatime nodiratime lazytime async dirsync");
        assert_eq!(
            refused(of("rw,noatime,nodiratime", "rw,lazytime,dirsync")),
            "relatime atime strictatime diratime nolazytime sync"
        );
    }

    #[test]
    fn names_in_tables_and_options() {
        assert_eq!(unescape(b"/a\\040b\\134c\\"), b"/a b\\c\\");
        assert_eq!(escape_commas(OsStr::new("a,b\\c")), OsStr::new("a\\,b\\\\c"));
    }
}
