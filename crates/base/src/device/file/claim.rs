//! The claim on an image or block device: what keeps other owners out, and on a device all others, too.
//!
//! Linux gives a block device to one holder at a time: an open file with O_EXCL, or a mount. The
//! lock is for the whole time between opening and release; the device goes from hand to hand:
//!
//! | from | to | by |
//! |---|---|---|
//! | | ours | opening for writing |
//! | ours, nobody's | the kernel's | [`Claim::hand_over`] |
//! | ours | lost | [`Claim::hand_over`], if another holder comes between |
//! | the kernel's | ours | [`Claim::take_back`] after the mount is off |
//! | all | released | [`Claim::release`] |
//!
//! Nothing is written to a device that was lost or released.

use super::{OpenMode, lock};
use parking_lot::Mutex;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Attempts while the device is busy, and the time between them: a child that is being forked
/// holds an open file for a moment longer, and so does another owner that is being refused.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(10);

/// The claim of a [`FileDevice`](super::FileDevice) on its image.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    mode: OpenMode,
    /// Number of the device, if it is a block device.
    number: Option<u64>,
    /// Carries the lock.
    file: File,
    /// The file behind a loop device, with the lock of who opens it by its own name.
    behind: Option<File>,
    holder: Mutex<Holder>,
    /// Set when nothing may be written any more.
    is_over: AtomicBool,
}

/// Which open file or mount keeps others from a block device.
#[derive(Debug)]
#[allow(dead_code, reason = "the file is held, not used, and on Linux only")]
enum Holder {
    Nobody,
    Us(File),
    Kernel,
}

/// Numbers of which two files have one in common if they are the same, or one lies in the other: that of the host's file system
/// with that of the inode, of a block device its own, and of a loop device those of the file behind it. None where the platform
/// does not tell.
#[cfg(unix)]
pub fn identities(file: &Metadata) -> Vec<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let of_inode = |meta: &Metadata| (meta.dev(), meta.ino());
    let number = number_of(file);
    let behind = number.and_then(path_behind).and_then(|path| path.metadata().ok());
    let all = [Some(of_inode(file)), number.map(|number| (u64::MAX, number)), behind.as_ref().map(of_inode)];
    all.into_iter().flatten().collect()
}

/// No numbers: this platform does not tell.
#[cfg(not(unix))]
pub fn identities(_file: &Metadata) -> Vec<(u64, u64)> {
    Vec::new()
}

/// The file behind a loop device.
#[cfg(target_os = "linux")]
fn path_behind(number: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let path = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/loop/backing_file")).ok()?;
    Some(PathBuf::from(path.trim_end_matches('\n')))
}

#[cfg(all(unix, not(target_os = "linux")))]
fn path_behind(_number: u64) -> Option<PathBuf> {
    None
}

impl Claim {
    /// Opens `path` as `how` says and takes its lock.
    pub(super) fn open(
        path: &Path,
        how: &mut OpenOptions,
        mode: OpenMode,
        is_block_device: bool,
    ) -> io::Result<(File, Claim)> {
        // Before it is opened for writing: who watches devices takes the close of such a file for a change.
        let holder = match mode {
            OpenMode::ReadWrite if is_block_device => patiently(|| hold(path))?,
            _ => Holder::Nobody,
        };
        lock::prepare(how, mode);
        let file = how.open(path).map_err(|e| lock::open_failed(path, e))?;
        let number = device_number(&file)?;
        let is_other = matches!(&holder, Holder::Us(held) if device_number(held)? != number);
        if is_other || number.is_some() != is_block_device {
            return Err(other_device(path));
        }
        match number {
            // udev looks at a device, under its lock, whenever a file open for writing has been closed.
            Some(_) => patiently(|| lock::take(&file, path, mode))?,
            None => lock::take(&file, path, mode)?,
        }
        let behind = number.map_or(Ok(None), |number| lock_behind(number, mode))?;
        // For a device, a name that stays valid if this process changes its directory.
        let path = if is_block_device { std::fs::canonicalize(path)? } else { path.to_path_buf() };
        let claim = Claim {
            path,
            mode,
            number,
            file: file.try_clone()?,
            behind,
            holder: Mutex::new(holder),
            is_over: AtomicBool::new(false),
        };
        Ok((file, claim))
    }

    /// The path it was opened by; for a block device absolute and without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of the device, if it is a block device.
    pub fn block_device(&self) -> Option<u64> {
        self.number
    }

    /// See [`identities`].
    pub fn identities(&self) -> Vec<(u64, u64)> {
        self.file.metadata().map(|meta| identities(&meta)).unwrap_or_default()
    }

    /// How it was opened.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }

    /// Hands the block device to the kernel: `mount` mounts it. If that fails the device is taken back; if that fails
    /// too it is lost, and nothing is written to it from then on.
    pub fn hand_over<T>(&self, mount: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let mut holder = self.holder.lock();
        *holder = Holder::Kernel;
        let mounted = patiently(mount);
        if mounted.is_err() {
            *holder = Holder::Nobody;
            if self.mode == OpenMode::ReadWrite {
                *holder =
                    patiently(|| self.hold_again()).inspect_err(|_| self.is_over.store(true, Ordering::Release))?;
            }
        }
        mounted
    }

    /// Takes the block device back from the kernel. A mount that is detached but has files in use still keeps others
    /// out; then the device stays the kernel's.
    pub fn take_back(&self) {
        let mut holder = self.holder.lock();
        if let (Holder::Kernel, OpenMode::ReadWrite) = (&*holder, self.mode)
            && let Ok(held) = patiently(|| self.hold_again())
        {
            *holder = held;
        }
    }

    fn hold_again(&self) -> io::Result<Holder> {
        let holder = hold(&self.path)?;
        match &holder {
            Holder::Us(held) if device_number(held)? != self.number => Err(other_device(&self.path)),
            _ => Ok(holder),
        }
    }

    /// Releases the image to others. Nothing is written to it from now on.
    pub fn release(&self) {
        self.is_over.store(true, Ordering::Release);
        lock::release(&self.file);
        self.behind.iter().for_each(lock::release);
        *self.holder.lock() = Holder::Nobody;
    }

    /// Fails if nothing may be written any more.
    pub fn check(&self) -> io::Result<()> {
        match self.is_over.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(lock::in_use(&self.path, None)),
        }
    }
}

fn other_device(path: &Path) -> io::Error {
    io::Error::other(format!("{}: another file took its place while it was opened", path.display()))
}

/// Tries again for a while if the device is busy.
fn patiently<T>(mut what: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..TRIES {
        match what() {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
    what()
}

/// Keeps everybody else from a block device: other programs that do so, and mounts.
#[cfg(target_os = "linux")]
fn hold(path: &Path) -> io::Result<Holder> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = (rustix::fs::OFlags::EXCL | rustix::fs::OFlags::NONBLOCK).bits() as i32;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    opened.map(Holder::Us).map_err(|e| lock::open_failed(path, e))
}

/// Locks the file behind a loop device. One that has been removed, or that this process does not see, nobody opens by
/// its name.
#[cfg(target_os = "linux")]
fn lock_behind(number: u64, mode: OpenMode) -> io::Result<Option<File>> {
    use std::os::unix::fs::OpenOptionsExt;
    let Some(path) = path_behind(number) else { return Ok(None) };
    let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY).bits() as i32;
    let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(&path) else { return Ok(None) };
    patiently(|| lock::take(&file, &path, mode))?;
    Ok(Some(file))
}

#[cfg(not(target_os = "linux"))]
fn lock_behind(_number: u64, _mode: OpenMode) -> io::Result<Option<File>> {
    Ok(None)
}

#[cfg(not(target_os = "linux"))]
fn hold(_path: &Path) -> io::Result<Holder> {
    Ok(Holder::Nobody)
}

#[cfg(unix)]
fn device_number(file: &File) -> io::Result<Option<u64>> {
    Ok(number_of(&file.metadata()?))
}

#[cfg(unix)]
fn number_of(file: &Metadata) -> Option<u64> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    file.file_type().is_block_device().then(|| file.rdev())
}

#[cfg(not(unix))]
fn device_number(_file: &File) -> io::Result<Option<u64>> {
    Ok(None)
}
