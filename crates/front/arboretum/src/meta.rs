//! What is known about a file.

use arbor_base::vfs::{Attr, FileType, SetTime, Time};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Attributes of a file, as they were when it was asked for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(Attr);

impl From<Attr> for Metadata {
    fn from(attr: Attr) -> Metadata {
        Metadata(attr)
    }
}

impl Metadata {
    /// All attributes as the file system has them.
    pub fn attr(&self) -> &Attr {
        &self.0
    }

    /// Kind of file.
    pub fn file_type(&self) -> FileType {
        self.0.file_type()
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type() == FileType::Dir
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type() == FileType::File
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type() == FileType::Symlink
    }

    /// Size in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.0.ino.0
    }

    /// Type and permission bits.
    pub fn mode(&self) -> u32 {
        self.0.mode
    }

    /// Permission bits alone.
    pub fn permissions(&self) -> u32 {
        self.0.mode & 0o7777
    }

    /// Link count.
    pub fn nlink(&self) -> u32 {
        self.0.nlink
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Device number of a device node.
    pub fn rdev(&self) -> u32 {
        self.0.rdev
    }

    /// Allocated space in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }

    /// Time of the last change of the data.
    pub fn modified(&self) -> io::Result<SystemTime> {
        to_system(self.0.mtime)
    }

    /// Time of the last access.
    pub fn accessed(&self) -> io::Result<SystemTime> {
        to_system(self.0.atime)
    }

    /// Time of the last change of the inode.
    pub fn changed(&self) -> io::Result<SystemTime> {
        to_system(self.0.ctime)
    }

    /// Time of creation.
    pub fn created(&self) -> io::Result<SystemTime> {
        to_system(self.0.btime)
    }
}

fn to_system(t: Time) -> io::Result<SystemTime> {
    let whole = Duration::from_secs(t.secs.unsigned_abs());
    let base = if t.secs < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    base.and_then(|b| b.checked_add(Duration::from_nanos(t.nanos.into())))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("time {} is out of range", t.secs)))
}

fn from_system(t: SystemTime) -> Time {
    match t.duration_since(UNIX_EPOCH) {
        Ok(d) => Time { secs: d.as_secs() as i64, nanos: d.subsec_nanos() },
        Err(before) => {
            let d = before.duration();
            match d.subsec_nanos() {
                0 => Time { secs: -(d.as_secs() as i64), nanos: 0 },
                n => Time { secs: -(d.as_secs() as i64) - 1, nanos: 1_000_000_000 - n },
            }
        }
    }
}

/// Timestamps to set; those not named stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTimes {
    pub(crate) accessed: Option<SetTime>,
    pub(crate) modified: Option<SetTime>,
    pub(crate) created: Option<SetTime>,
}

impl FileTimes {
    /// Changes nothing yet.
    pub fn new() -> FileTimes {
        FileTimes::default()
    }

    /// Sets the time of the last access.
    pub fn set_accessed(mut self, t: SystemTime) -> FileTimes {
        self.accessed = Some(SetTime::At(from_system(t)));
        self
    }

    /// Sets the time of the last change of the data.
    pub fn set_modified(mut self, t: SystemTime) -> FileTimes {
        self.modified = Some(SetTime::At(from_system(t)));
        self
    }

    /// Sets the time of creation.
    pub fn set_created(mut self, t: SystemTime) -> FileTimes {
        self.created = Some(SetTime::At(from_system(t)));
        self
    }
}

#[cfg(not(unix))]
pub(crate) fn host_time(t: io::Result<SystemTime>) -> Option<Time> {
    t.ok().map(from_system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_survive_both_ways() {
        for t in [Time { secs: -2, nanos: 250_000_000 }, Time { secs: -1, nanos: 0 }, Time { secs: 5, nanos: 7 }] {
            assert_eq!(from_system(to_system(t).unwrap()), t);
        }
    }
}
