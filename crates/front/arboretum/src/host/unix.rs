//! Directories and files by descriptor.
//!
//! Every name is one component and no link is followed, so what openat2(2) would refuse of a whole path cannot occur.

use super::{HostFile, device_number, device_parts, swapped};
use arbor_base::vfs::{FileType, Time, mode};
use rustix::fs::{self as sys, AtFlags, Mode, OFlags, Stat, Timespec, Timestamps};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A directory that is held open.
pub(crate) struct HostDir(OwnedFd);

/// Opens a directory that needs only be passed through.
#[cfg(target_os = "linux")]
const PASSED: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const PASSED: OFlags = OFlags::RDONLY;

const HERE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

impl HostDir {
    /// The directory at a path that the caller named.
    pub(crate) fn open(path: &Path) -> io::Result<HostDir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(HostDir(sys::open(path, flags, Mode::empty())?))
    }

    /// As [`open`](HostDir::open), for what lies in it.
    pub(crate) fn above(path: &Path) -> io::Result<HostDir> {
        Ok(HostDir(sys::open(path, PASSED | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// A directory in this one.
    pub(crate) fn dir(&self, name: &[u8]) -> io::Result<HostDir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | HERE;
        Ok(HostDir(sys::openat(&self.0, plain(name)?, flags, Mode::empty())?))
    }

    /// A directory in this one, for what lies in it.
    pub(crate) fn through(&self, name: &[u8]) -> io::Result<HostDir> {
        Ok(HostDir(sys::openat(&self.0, plain(name)?, PASSED | OFlags::DIRECTORY | HERE, Mode::empty())?))
    }

    /// The directory that holds this one now.
    pub(crate) fn parent(&self) -> io::Result<HostDir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | HERE;
        Ok(HostDir(sys::openat(&self.0, "..", flags, Mode::empty())?))
    }

    /// Another descriptor of it.
    pub(crate) fn again(&self) -> io::Result<HostDir> {
        Ok(HostDir(self.0.try_clone()?))
    }

    /// What no other directory has.
    pub(crate) fn id(&self) -> io::Result<(u64, u64)> {
        Ok(id(&sys::fstat(&self.0)?))
    }

    /// Makes a directory that is its owner's alone.
    pub(crate) fn make_dir(&self, name: &[u8]) -> io::Result<HostDir> {
        sys::mkdirat(&self.0, plain(name)?, Mode::RWXU)?;
        self.dir(name)
    }

    /// What this directory is.
    pub(crate) fn itself(&self) -> io::Result<HostFile> {
        host_file(&sys::fstat(&self.0)?)
    }

    /// What has that name, be it a link.
    pub(crate) fn look(&self, name: &[u8]) -> io::Result<HostFile> {
        host_file(&sys::statat(&self.0, plain(name)?, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// What the name leads to.
    pub(crate) fn look_behind(&self, name: &[u8]) -> io::Result<HostFile> {
        host_file(&sys::statat(&self.0, plain(name)?, AtFlags::empty())?)
    }

    /// What it holds, in no order.
    pub(crate) fn names(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for entry in sys::Dir::read_from(&self.0)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Opens a regular file to read it.
    pub(crate) fn open_file(&self, name: &[u8]) -> io::Result<(fs::File, HostFile)> {
        // A fifo or device that took its place must not be waited for.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | HERE;
        let fd = sys::openat(&self.0, plain(name)?, flags, Mode::empty())?;
        let file = host_file(&sys::fstat(&fd)?)?;
        if file.kind != FileType::File {
            return Err(swapped());
        }
        Ok((fd.into(), file))
    }

    /// Makes a regular file that is its owner's alone.
    pub(crate) fn create(&self, name: &[u8]) -> io::Result<fs::File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | HERE;
        Ok(sys::openat(&self.0, plain(name)?, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    pub(crate) fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        Ok(sys::renameat(&self.0, plain(from)?, &self.0, plain(to)?)?)
    }

    /// Removes what is not a directory.
    pub(crate) fn remove(&self, name: &[u8]) -> io::Result<()> {
        Ok(sys::unlinkat(&self.0, plain(name)?, AtFlags::empty())?)
    }

    /// Gives the file `name` another name, `new` in `dir`.
    pub(crate) fn link(&self, name: &[u8], dir: &HostDir, new: &[u8]) -> io::Result<()> {
        Ok(sys::linkat(&self.0, plain(name)?, &dir.0, plain(new)?, AtFlags::empty())?)
    }

    pub(crate) fn symlink(&self, target: &[u8], name: &[u8]) -> io::Result<()> {
        Ok(sys::symlinkat(target, &self.0, plain(name)?)?)
    }

    pub(crate) fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(sys::readlinkat(&self.0, plain(name)?, Vec::new())?.into_bytes())
    }

    /// Makes a fifo, socket or device node.
    #[cfg(target_os = "linux")]
    pub(crate) fn make_node(&self, name: &[u8], kind: FileType, permissions: u32, rdev: u32) -> io::Result<()> {
        let (major, minor) = device_parts(rdev);
        let kind = sys::FileType::from_raw_mode(kind.mode());
        let (mode, device) = (Mode::from_raw_mode(permissions), sys::makedev(major, minor));
        Ok(sys::mknodat(&self.0, plain(name)?, kind, mode, device)?)
    }

    /// Makes a fifo, socket or device node: not on this platform.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn make_node(&self, _name: &[u8], _kind: FileType, _permissions: u32, rdev: u32) -> io::Result<()> {
        let _ = device_parts(rdev);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// This directory, to ask for its attributes and to change them.
    pub(crate) fn handle(&self) -> io::Result<Handle> {
        Ok(Handle { fd: self.0.try_clone()?, of: Of::File })
    }

    /// What is neither file nor directory, likewise. It must be of that kind.
    #[cfg(target_os = "linux")]
    pub(crate) fn special(&self, name: &[u8], kind: FileType) -> io::Result<Handle> {
        let fd = sys::openat(&self.0, plain(name)?, OFlags::PATH | HERE, Mode::empty())?;
        match host_file(&sys::fstat(&fd)?)?.kind == kind {
            true => Ok(Handle { fd, of: Of::Path }),
            false => Err(swapped()),
        }
    }

    /// What is neither file nor directory, likewise. It must be of that kind.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn special(&self, name: &[u8], kind: FileType) -> io::Result<Handle> {
        match self.look(name)?.kind == kind {
            true => Ok(Handle { fd: self.0.try_clone()?, of: Of::Name(plain(name)?.to_vec()) }),
            false => Err(swapped()),
        }
    }
}

/// A name that leads nowhere but to an entry of its directory.
fn plain(name: &[u8]) -> io::Result<&[u8]> {
    match name {
        b"" | b"." | b".." => Err(io::ErrorKind::InvalidInput.into()),
        name if name.contains(&b'/') => Err(io::ErrorKind::InvalidInput.into()),
        name => Ok(name),
    }
}

#[allow(clippy::unnecessary_cast, reason = "the types are others on other systems")]
fn host_file(stat: &Stat) -> io::Result<HostFile> {
    let mode = stat.st_mode as u32;
    let kind = FileType::from_mode(mode & mode::IFMT).ok_or(io::ErrorKind::Unsupported)?;
    Ok(HostFile {
        kind,
        mode: mode & 0o7777,
        owner: Some((stat.st_uid, stat.st_gid)),
        rdev: device_number(sys::major(stat.st_rdev as _), sys::minor(stat.st_rdev as _)),
        size: stat.st_size as u64,
        atime: Some(Time { secs: stat.st_atime as i64, nanos: stat.st_atime_nsec as u32 }),
        mtime: Some(Time { secs: stat.st_mtime as i64, nanos: stat.st_mtime_nsec as u32 }),
        id: Some(id(stat)),
        is_linked: stat.st_nlink > 1 && kind != FileType::Dir,
    })
}

#[allow(clippy::unnecessary_cast, reason = "the types are others on other systems")]
fn id(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// A file whose attributes are asked for and changed.
pub(crate) struct Handle {
    fd: OwnedFd,
    of: Of,
}

/// What a descriptor is of.
enum Of {
    /// The file, opened.
    File,
    /// The file, but only its place is held.
    #[cfg(target_os = "linux")]
    Path,
    /// The directory that holds the name.
    #[cfg(not(target_os = "linux"))]
    Name(Vec<u8>),
}

impl From<fs::File> for Handle {
    fn from(file: fs::File) -> Handle {
        Handle { fd: file.into(), of: Of::File }
    }
}

impl Handle {
    /// Gives permissions and times. An owner is given before: that takes set-id bits away.
    pub(crate) fn set_attributes(&self, file: &HostFile) -> io::Result<()> {
        let spec = |t: Option<Time>| match t {
            Some(t) => Timespec { tv_sec: t.secs as _, tv_nsec: t.nanos as _ },
            None => Timespec { tv_sec: 0, tv_nsec: sys::UTIME_OMIT as _ },
        };
        let times = Timestamps { last_access: spec(file.atime), last_modification: spec(file.mtime) };
        if file.kind != FileType::Symlink {
            self.chmod(file.mode)?;
        }
        match &self.of {
            Of::File => Ok(sys::futimens(&self.fd, &times)?),
            #[cfg(target_os = "linux")]
            Of::Path => Ok(sys::utimensat(&self.fd, "", &times, AtFlags::EMPTY_PATH)?),
            #[cfg(not(target_os = "linux"))]
            Of::Name(name) => Ok(sys::utimensat(&self.fd, name, &times, AtFlags::SYMLINK_NOFOLLOW)?),
        }
    }

    /// Owner and group that it has.
    pub(crate) fn owner(&self) -> Option<(u32, u32)> {
        let stat = sys::fstat(&self.fd).ok()?;
        Some((stat.st_uid, stat.st_gid))
    }

    pub(crate) fn chown(&self, uid: u32, gid: u32) -> io::Result<()> {
        let (uid, gid) = (Some(sys::Uid::from_raw(uid)), Some(sys::Gid::from_raw(gid)));
        match &self.of {
            Of::File => Ok(sys::fchown(&self.fd, uid, gid)?),
            #[cfg(target_os = "linux")]
            Of::Path => Ok(sys::chownat(&self.fd, "", uid, gid, AtFlags::EMPTY_PATH)?),
            #[cfg(not(target_os = "linux"))]
            Of::Name(name) => Ok(sys::chownat(&self.fd, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?),
        }
    }

    /// Gives permissions alone.
    pub(crate) fn chmod(&self, permissions: u32) -> io::Result<()> {
        let mode = Mode::from_raw_mode(permissions as _);
        match &self.of {
            Of::File => Ok(sys::fchmod(&self.fd, mode)?),
            #[cfg(target_os = "linux")]
            Of::Path => Ok(sys::chmodat(sys::CWD, self.by_proc(), mode, AtFlags::empty())?),
            #[cfg(not(target_os = "linux"))]
            Of::Name(name) => Ok(sys::chmodat(&self.fd, name, mode, AtFlags::SYMLINK_NOFOLLOW)?),
        }
    }

    /// The way to the held file itself, for calls that take no descriptor without the file being opened.
    #[cfg(target_os = "linux")]
    fn by_proc(&self) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    /// Extended attributes; none where there are none to be had.
    #[cfg(target_os = "linux")]
    pub(crate) fn xattrs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut names = vec![0; 64 << 10];
        let listed = match self.of {
            Of::File => sys::flistxattr(&self.fd, &mut names[..]),
            Of::Path => sys::listxattr(self.by_proc(), &mut names[..]),
        };
        let Ok(len @ 1..) = listed else { return Vec::new() };
        names.truncate(len);
        let wanted = names.split(|b| *b == 0).filter(|n| !n.is_empty() && *n != b"security.selinux");
        let value_of = |name: &[u8]| {
            let mut value = vec![0; 64 << 10];
            let len = match self.of {
                Of::File => sys::fgetxattr(&self.fd, name, &mut value[..]).ok()?,
                Of::Path => sys::getxattr(self.by_proc(), name, &mut value[..]).ok()?,
            };
            value.truncate(len);
            Some((name.to_vec(), value))
        };
        wanted.filter_map(value_of).collect()
    }

    /// Extended attributes: not on this platform.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn xattrs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        Vec::new()
    }

    /// Sets an extended attribute.
    #[cfg(target_os = "linux")]
    pub(crate) fn set_xattr(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        let how = sys::XattrFlags::empty();
        match self.of {
            Of::File => Ok(sys::fsetxattr(&self.fd, name, value, how)?),
            Of::Path => Ok(sys::setxattr(self.by_proc(), name, value, how)?),
        }
    }

    /// Sets an extended attribute: not on this platform.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn set_xattr(&self, _name: &[u8], _value: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Whether this process may give files away.
pub(crate) fn may_chown() -> bool {
    rustix::process::geteuid().is_root()
}
