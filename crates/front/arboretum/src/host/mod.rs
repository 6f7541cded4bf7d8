//! What a tree on the host is made of: the same facts on every platform, as far as it has them.
//!
//! A tree is walked and made from the descriptors of its directories: [`HostDir`] takes single names and follows no
//! link, and attributes go to what a [`Handle`] holds open. So whoever may write to such a directory can put another
//! file in the place of one, but leads nothing out of the tree.

#[cfg(not(unix))]
mod portable;
#[cfg(unix)]
mod unix;

#[cfg(not(unix))]
pub(crate) use portable::{Handle, HostDir, may_chown};
#[cfg(unix)]
pub(crate) use unix::{Handle, HostDir, may_chown};

use crate::trail::{Kept, Trail};
use arbor_base::vfs::{FileType, Time};
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
    /// What no other file has, where the platform tells.
    pub(crate) id: Option<(u64, u64)>,
    /// It may have further names.
    pub(crate) is_linked: bool,
}

impl HostFile {
    /// What its further names have in common, if it may have some.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        self.id.filter(|_| self.is_linked)
    }
}

/// The directory and the name that `path` leads to; no name where it leads to a directory itself: `/`, `..`, or a
/// directory with a slash after its name. The caller has named it, so links on the way are followed.
pub(crate) fn place(path: &Path) -> io::Result<(HostDir, Option<Vec<u8>>)> {
    let text = path.as_os_str().as_encoded_bytes();
    let name = path.file_name();
    if name.is_none() || text.ends_with(b"/") || text.ends_with(b"/.") {
        match HostDir::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && name.is_some() => {}
            opened => return Ok((opened?, None)),
        }
    }
    let above = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((HostDir::above(above)?, name.map(|name| crate::node::bytes_of(Path::new(name)).into_owned())))
}

/// Directories held open on the way down. A tree may be deeper than a process may have files open.
const HELD: usize = 128;

/// The way from a directory that the caller named down to the one at hand.
pub(crate) struct Descent {
    base: HostDir,
    below: Vec<Step>,
    trail: Trail,
}

struct Step {
    id: (u64, u64),
    /// Closed while others far below are open.
    dir: Option<HostDir>,
}

impl Descent {
    pub(crate) fn new(base: HostDir) -> Descent {
        Descent { base, below: Vec::new(), trail: Trail::default() }
    }

    /// The directory at hand.
    pub(crate) fn here(&self) -> &HostDir {
        self.below.last().and_then(|step| step.dir.as_ref()).unwrap_or(&self.base)
    }

    pub(crate) fn is_at_base(&self) -> bool {
        self.below.is_empty()
    }

    /// Goes down into `dir`, which has this name; the base itself has none.
    pub(crate) fn enter(&mut self, name: Option<&[u8]>, dir: HostDir) -> io::Result<()> {
        self.below.push(Step { id: dir.id()?, dir: Some(dir) });
        if let Some(name) = name {
            self.trail.enter(name);
        }
        let far = self.below.len().checked_sub(HELD + 1);
        if let Some(step) = far.and_then(|far| self.below.get_mut(far)) {
            step.dir = None;
        }
        Ok(())
    }

    /// Goes up; gives the directory that was left.
    pub(crate) fn leave(&mut self) -> io::Result<HostDir> {
        self.trail.leave();
        let left = self.below.pop().and_then(|step| step.dir).ok_or_else(swapped)?;
        if let Some(step) = self.below.last_mut().filter(|step| step.dir.is_none()) {
            let dir = left.parent()?;
            if dir.id()? != step.id {
                return Err(swapped());
            }
            step.dir = Some(dir);
        }
        Ok(left)
    }

    /// Keeps the directory at hand, to be reached later.
    pub(crate) fn keep(&mut self) -> Kept {
        self.trail.keep()
    }

    /// A directory that was kept, to be passed through.
    pub(crate) fn reach(&self, kept: Kept) -> io::Result<HostDir> {
        self.trail.names(kept).into_iter().try_fold(self.base.again()?, |dir, name| dir.through(name))
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
    match seek(file, SeekFrom::Hole(start)) {
        Ok(end) => Ok(Some((start, end))),
        // It has become shorter.
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The next stretch of data at or after `from`: all of it, where holes cannot be seen.
#[cfg(not(target_os = "linux"))]
pub(crate) fn next_data(_file: &fs::File, from: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    Ok((from < size).then_some((from, size)))
}

/// What was looked at is no longer there.
pub(crate) fn swapped() -> io::Error {
    io::Error::other("another file took its place meanwhile")
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
