//! What a tree on the host is made of: the same facts on every platform, as far as it has them.

use crate::meta::host_time;
use arbor_base::vfs::{FileType, Time, mode};
use std::fs;
use std::io;
use std::path::Path;

/// What is known about a file of the host.
pub(crate) struct HostFile {
    pub(crate) kind: FileType,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) rdev: u32,
    pub(crate) size: u64,
    pub(crate) atime: Option<Time>,
    pub(crate) mtime: Option<Time>,
    /// What its further names have in common, if it may have some.
    pub(crate) identity: Option<(u64, u64)>,
}

impl HostFile {
    /// Looks at `path` itself, not at what a link leads to.
    pub(crate) fn of(path: &Path) -> io::Result<HostFile> {
        let meta = fs::symlink_metadata(path)?;
        let mut file = HostFile {
            kind: portable_kind(&meta),
            mode: if meta.is_dir() { 0o755 } else { 0o644 },
            owner: None,
            rdev: 0,
            size: meta.len(),
            atime: host_time(meta.accessed()),
            mtime: host_time(meta.modified()),
            identity: None,
        };
        file.refine(&meta);
        Ok(file)
    }

    #[cfg(unix)]
    fn refine(&mut self, meta: &fs::Metadata) {
        use std::os::unix::fs::MetadataExt;
        self.kind = FileType::from_mode(meta.mode() & mode::IFMT).unwrap_or(self.kind);
        self.mode = meta.mode() & 0o7777;
        self.owner = Some((meta.uid(), meta.gid()));
        self.rdev = device_number(rustix::fs::major(meta.rdev() as _), rustix::fs::minor(meta.rdev() as _));
        self.atime = Some(Time { secs: meta.atime(), nanos: meta.atime_nsec() as u32 });
        self.mtime = Some(Time { secs: meta.mtime(), nanos: meta.mtime_nsec() as u32 });
        self.identity = (meta.nlink() > 1 && !meta.is_dir()).then(|| (meta.dev(), meta.ino()));
    }

    #[cfg(not(unix))]
    fn refine(&mut self, _meta: &fs::Metadata) {
        let _ = mode::IFMT;
    }
}

fn portable_kind(meta: &fs::Metadata) -> FileType {
    if meta.is_dir() {
        FileType::Dir
    } else if meta.is_symlink() {
        FileType::Symlink
    } else {
        FileType::File
    }
}

/// A device number as Linux encodes it in 32 bits.
pub(crate) fn device_number(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12)
}

/// Major and minor of [`device_number`].
pub(crate) fn device_parts(rdev: u32) -> (u32, u32) {
    ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & !0xff))
}

/// The next stretch of data at or after `from`, as start and end.
#[cfg(target_os = "linux")]
pub(crate) fn next_data(file: &fs::File, from: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    use rustix::fs::{SeekFrom, seek};
    let start = match seek(file, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        // A host that knows no holes.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => {
            return Ok((from < size).then_some((from, size)));
        }
        Err(e) => return Err(e.into()),
    };
    let end = seek(file, SeekFrom::Hole(start))?;
    Ok(Some((start, end)))
}

/// The next stretch of data at or after `from`: all of it, where holes cannot be seen.
#[cfg(not(target_os = "linux"))]
pub(crate) fn next_data(_file: &fs::File, from: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    Ok((from < size).then_some((from, size)))
}

/// Extended attributes of a host's file, links not followed; none where there are none to be had.
#[cfg(target_os = "linux")]
pub(crate) fn xattrs(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0; 64 << 10];
    let Ok(len @ 1..) = rustix::fs::llistxattr(path, &mut names[..]) else { return Vec::new() };
    names.truncate(len);
    let wanted = names.split(|b| *b == 0).filter(|n| !n.is_empty() && *n != b"security.selinux");
    let value_of = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
        value.truncate(len);
        Some((name.to_vec(), value))
    };
    wanted.filter_map(value_of).collect()
}

/// Extended attributes of a host's file: not on this platform.
#[cfg(not(target_os = "linux"))]
pub(crate) fn xattrs(_path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    Vec::new()
}

/// Sets an extended attribute of a host's file, links not followed.
#[cfg(target_os = "linux")]
pub(crate) fn set_xattr(path: &Path, name: &[u8], value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty())?)
}

/// Sets an extended attribute of a host's file: not on this platform.
#[cfg(not(target_os = "linux"))]
pub(crate) fn set_xattr(_path: &Path, _name: &[u8], _value: &[u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Makes a symbolic link on the host.
pub(crate) fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::symlink(target, path);
    #[cfg(not(unix))]
    return Err(io::Error::new(io::ErrorKind::Unsupported, format!("{} -> {}", path.display(), target.display())));
}

/// Makes a fifo or device node on the host.
#[cfg(target_os = "linux")]
pub(crate) fn make_node(path: &Path, kind: FileType, permissions: u32, rdev: u32) -> io::Result<()> {
    let (major, minor) = device_parts(rdev);
    let kind = rustix::fs::FileType::from_raw_mode(kind.mode());
    let device = rustix::fs::makedev(major, minor);
    Ok(rustix::fs::mknodat(rustix::fs::CWD, path, kind, rustix::fs::Mode::from_raw_mode(permissions), device)?)
}

/// Makes a fifo or device node on the host: not on this platform.
#[cfg(not(target_os = "linux"))]
pub(crate) fn make_node(_path: &Path, _kind: FileType, _permissions: u32, _rdev: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Gives a host's file permissions, owner and times, in the order that keeps each of them.
#[cfg(unix)]
pub(crate) fn set_attributes(path: &Path, file: &HostFile) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, chmodat, utimensat};
    let is_link = file.kind == FileType::Symlink;
    if let Some((uid, gid)) = file.owner {
        std::os::unix::fs::lchown(path, Some(uid), Some(gid))?;
    }
    if !is_link {
        chmodat(CWD, path, Mode::from_raw_mode(file.mode as _), AtFlags::empty())?;
    }
    let spec = |t: Option<Time>| match t {
        Some(t) => Timespec { tv_sec: t.secs as _, tv_nsec: t.nanos as _ },
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT as _ },
    };
    let times = Timestamps { last_access: spec(file.atime), last_modification: spec(file.mtime) };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Gives a host's file what this platform can take: nothing so far.
#[cfg(not(unix))]
pub(crate) fn set_attributes(_path: &Path, _file: &HostFile) -> io::Result<()> {
    Ok(())
}

/// Whether this process may give files away.
pub(crate) fn may_chown() -> bool {
    #[cfg(unix)]
    return rustix::process::geteuid().is_root();
    #[cfg(not(unix))]
    return false;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_both_ways() {
        for (major, minor) in [(0, 0), (8, 1), (259, 300), (0xfff, 0xf_ffff)] {
            assert_eq!(device_parts(device_number(major, minor)), (major, minor));
        }
    }
}
