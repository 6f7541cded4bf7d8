//! Where a mount lies, by its number and not by its path: whoever may rename a directory above a mount point can make the
//! path lead to somebody else's mount at any time.
//!
//! The kernel's table says where the mount of a number is now. What is done there is done by the name of the mount point
//! in its directory, which is held open, and only after the number of what lies there was looked at through it.

use crate::host::kernel::{self, MountEntry, no_helper};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::mount::UnmountFlags;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Looks at the table until what it says holds: somebody may be renaming directories all the time.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// A mount of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    id: u64,
    /// Numbers are given again, but for this one, where the kernel has it (Linux 6.8).
    unique: Option<u64>,
    device: (u32, u32),
    source: PathBuf,
}

/// What the kernel tells of a descriptor without asking the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    mount: u64,
    unique: Option<u64>,
    inode: u64,
}

impl Mount {
    /// The mount of ours whose root `dir` is, links followed.
    pub(crate) fn at(dir: &Path) -> io::Result<Option<Mount>> {
        Mount::of(directory(CWD, dir.as_os_str(), OFlags::empty())?.as_fd())
    }

    /// The same of a directory that is open.
    pub(crate) fn of(dir: BorrowedFd<'_>) -> io::Result<Option<Mount>> {
        let found = found(dir)?;
        let Some(entry) = entry(|entry| entry.id == found.mount) else { return Ok(None) };
        let mount = Mount { id: entry.id, unique: found.unique, device: entry.device, source: entry.source };
        // It may lie below the root.
        Ok(mount.find().ok().filter(|(_, root)| *root == found).map(|_| mount))
    }

    /// The one that was made on a directory, which was open before.
    pub(crate) fn made(dir: BorrowedFd<'_>) -> io::Result<Mount> {
        let path = path(dir)?;
        let elsewhere = || io::Error::other(format!("{} was moved meanwhile", path.display()));
        // Directories above may be renamed, but not a mount point.
        let above = directory(dir, OsStr::new(".."), OFlags::empty())?;
        let name = path.file_name().ok_or_else(elsewhere)?;
        Mount::of(directory(above.as_fd(), name, OFlags::NOFOLLOW)?.as_fd())?.ok_or_else(elsewhere)
    }

    /// Its root, of which nothing is asked.
    pub(crate) fn root(&self) -> io::Result<OwnedFd> {
        let ((above, name), known) = self.find()?;
        let root = directory(above.as_fd(), name.as_os_str(), OFlags::NOFOLLOW)?;
        if found(root.as_fd())? == known { Ok(root) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Its root, open, to sync it.
    pub(crate) fn open(&self) -> io::Result<fs::File> {
        fs::File::open(link(self.root()?.as_fd()))
    }

    /// What the kernel's table says of it, if it is still there.
    pub(crate) fn entry(&self) -> Option<MountEntry> {
        entry(|entry| entry.id == self.id && entry.device == self.device && entry.source == self.source)
    }

    /// Whether it refuses changes.
    pub(crate) fn is_read_only(&self) -> bool {
        self.entry().is_some_and(|entry| entry.options.iter().any(|word| word == "ro"))
    }

    /// Who has mounted it.
    pub(crate) fn user(&self) -> Option<u32> {
        self.entry()?.volume_options.iter().find_map(|word| word.strip_prefix("user_id=")?.parse().ok())
    }

    /// Number of the device that files on it have.
    pub(crate) fn device(&self) -> (u32, u32) {
        self.device
    }

    /// The mount's number: of the mounts that there are, no two have the same.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The number that no other mount has had or will have, if it is known.
    pub(crate) fn unique(&self) -> Option<u64> {
        self.unique
    }

    #[cfg(test)]
    pub(crate) fn with_numbers(id: u64, unique: Option<u64>) -> Mount {
        Mount { id, unique, device: (0, 0), source: PathBuf::new() }
    }

    /// The root of the mount of ours at `dir`, open, to ask its server by ioctls: on any other file their numbers may
    /// mean something else, and opening it may be something to somebody.
    pub(crate) fn server_at(dir: &Path) -> io::Result<fs::File> {
        Mount::at(dir)?.ok_or_else(kernel::not_ours)?.open()
    }

    /// Takes it off; `lazy` takes only the name away and leaves open files working.
    ///
    /// Errors: `ResourceBusy` if files are in use; `NotFound` if it is off already.
    pub(crate) fn detach(&self, lazy: bool) -> io::Result<()> {
        let ((above, name), _) = self.find()?;
        if !kernel::is_root() {
            return by_fusermount(&path(above.as_fd())?.join(name), lazy);
        }
        let flags = UnmountFlags::NOFOLLOW | if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        Ok(rustix::mount::unmount(link(above.as_fd()).join(name), flags)?)
    }

    /// The directory above it and its name there, and its root.
    fn above(&self) -> io::Result<((OwnedFd, PathBuf), Found)> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, "the mount is off");
        let entry = self.entry().ok_or_else(gone)?;
        let (Some(parent), Some(name)) = (entry.mountpoint.parent(), entry.mountpoint.file_name()) else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "a mount on the root directory"));
        };
        let above = directory(CWD, parent.as_os_str(), OFlags::empty())?;
        let root = found(directory(above.as_fd(), name, OFlags::NOFOLLOW)?.as_fd())?;
        let is_another = self.unique.zip(root.unique).is_some_and(|(ours, theirs)| ours != theirs);
        if root.mount != self.id || is_another {
            let why = format!("{} is not where the mount is", entry.mountpoint.display());
            return Err(io::Error::new(io::ErrorKind::Interrupted, why));
        }
        Ok(((above, name.into()), root))
    }

    /// The same, as often as it takes.
    fn find(&self) -> io::Result<((OwnedFd, PathBuf), Found)> {
        for _ in 1..TRIES {
            match self.above() {
                Err(e) if self.entry().is_some() && e.kind() != io::ErrorKind::Unsupported => std::thread::sleep(PAUSE),
                other => return other,
            }
        }
        self.above()
    }
}

fn entry(is_it: impl Fn(&MountEntry) -> bool) -> Option<MountEntry> {
    kernel::mount_table().into_iter().rfind(is_it)
}

/// A directory, of which nothing is asked.
pub(crate) fn directory(at: impl AsFd, name: &OsStr, more: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

/// A path that leads to what is open, and nowhere else.
pub(crate) fn link(fd: BorrowedFd<'_>) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

/// Where what is open lies now.
pub(crate) fn path(fd: BorrowedFd<'_>) -> io::Result<PathBuf> {
    fs::read_link(link(fd))
}

fn found(fd: BorrowedFd<'_>) -> io::Result<Found> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
    let number = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    let unknown = || io::Error::new(io::ErrorKind::Unsupported, "the kernel does not say on which mount a file lies");
    let (mount, inode) = (number("mnt_id:").ok_or_else(unknown)?, number("ino:").ok_or_else(unknown)?);
    Ok(Found { mount, unique: unique(fd), inode })
}

/// The number of the mount that is never given again, if we may know it.
fn unique(fd: BorrowedFd<'_>) -> Option<u64> {
    /// `STATX_MNT_ID_UNIQUE`
    const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    // Of nothing that the server would have to be asked for.
    let found = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, UNIQUE).ok()?;
    (found.stx_mask & UNIQUE.bits() != 0).then_some(found.stx_mnt_id)
}

/// For users other than root. It takes off what this user has mounted, and nothing else.
fn by_fusermount(dir: &Path, lazy: bool) -> io::Result<()> {
    let output = Command::new("fusermount3")
        .arg(if lazy { "-uqz" } else { "-u" })
        .arg("--")
        .arg(dir)
        .stdin(Stdio::null())
        .output()
        .map_err(no_helper)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    // It sees only the mounts of its user.
    let is_foreign = said.contains("not found in") || said.contains("Operation not permitted");
    Err(match (said.contains("busy"), is_foreign) {
        (true, _) => io::Error::new(io::ErrorKind::ResourceBusy, said),
        (_, true) => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "mounted by another user: only that user or root can unmount it",
        ),
        _ => io::Error::other(said.strip_prefix("fusermount3: ").unwrap_or(&said)),
    })
}
