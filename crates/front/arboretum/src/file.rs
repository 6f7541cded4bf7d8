//! Open files.

use crate::error::{Named, Result};
use crate::meta::{FileTimes, Metadata};
use crate::node::{Mount, Node, bytes_of};
use crate::volume::{CHUNK, Volume};
use arbor_base::vfs::{Errno, FallocMode, FileType, SetAttr, mode};
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// How a file is opened, in the manner of [`std::fs::OpenOptions`].
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Nothing is asked for yet; files are created with mode 0644.
    pub fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o644,
        }
    }

    /// Allows reading.
    pub fn read(&mut self, yes: bool) -> &mut OpenOptions {
        self.read = yes;
        self
    }

    /// Allows writing.
    pub fn write(&mut self, yes: bool) -> &mut OpenOptions {
        self.write = yes;
        self
    }

    /// Allows writing, always at the end.
    pub fn append(&mut self, yes: bool) -> &mut OpenOptions {
        self.append = yes;
        self
    }

    /// Empties the file.
    pub fn truncate(&mut self, yes: bool) -> &mut OpenOptions {
        self.truncate = yes;
        self
    }

    /// Creates the file if it is not there.
    pub fn create(&mut self, yes: bool) -> &mut OpenOptions {
        self.create = yes;
        self
    }

    /// Creates the file and fails if anything of that name is there.
    pub fn create_new(&mut self, yes: bool) -> &mut OpenOptions {
        self.create_new = yes;
        self
    }

    /// Permissions of a file that is created; no umask applies.
    pub fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.mode = mode;
        self
    }

    /// Opens `path` on `volume`.
    pub fn open(&self, volume: &Volume, path: impl AsRef<Path>) -> io::Result<File> {
        let path = bytes_of(path.as_ref());
        self.open_bytes(volume.mount(), &path).named("open", &path)
    }

    pub(crate) fn open_bytes(&self, mount: &Arc<Mount>, path: &[u8]) -> Result<File> {
        let writes = self.write || self.append;
        let makes = self.truncate || self.create || self.create_new;
        if !writes && (makes || !self.read) {
            return Err(Errno::EINVAL.into());
        }
        if writes && mount.read_only {
            return Err(Errno::EROFS.into());
        }
        let found = mount.walk(path, !self.create_new)?;
        let mut new = false;
        let node = match (&found.node, &found.parent) {
            (None, Some((dir, name))) if self.create || self.create_new => {
                if found.must_be_dir {
                    return Err(Errno::EISDIR.into());
                }
                let node = dir.mknod(name, mode::IFREG | (self.mode & 0o7777), 0)?;
                mount.changed();
                new = true;
                node
            }
            (Some(_), _) if self.create_new => return Err(Errno::EEXIST.into()),
            _ => found.existing()?,
        };
        self.admit(&node, writes)?;
        let file = File { node, read: self.read, write: writes, append: self.append, at: Mutex::new(0) };
        if self.truncate && !new {
            file.node.set(&SetAttr { size: Some(0), ..SetAttr::default() })?;
        }
        Ok(file)
    }

    fn admit(&self, node: &Node, writes: bool) -> Result<()> {
        match node.attr.file_type() {
            FileType::File => Ok(()),
            FileType::Dir if !writes => Ok(()),
            FileType::Dir => Err(Errno::EISDIR.into()),
            FileType::Symlink => Err(Errno::ELOOP.into()),
            _ => Err(Errno::ENXIO.into()),
        }
    }
}

/// The whole content of a file.
pub(crate) fn read_whole(node: &Node) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    loop {
        // The size is only a hint: a hostile one must not cost memory. A byte more than it, so that the
        // first read tells that this is all.
        let left = node.attr.size.saturating_sub(data.len() as u64).clamp(0, CHUNK as u64) as usize + 1;
        let at = data.len();
        data.resize(at + left, 0);
        let n = node.fs().read(node.ino(), at as u64, data.get_mut(at..).unwrap_or_default())?;
        data.truncate(at + n);
        if n < left {
            return Ok(data);
        }
    }
}

/// An open file. It keeps the volume mounted, and the file alive even when its last name is
/// removed. `&File` reads and writes too; the position is shared.
pub struct File {
    node: Node,
    read: bool,
    write: bool,
    append: bool,
    at: Mutex<u64>,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("ino", &self.node.ino().0).field("write", &self.write).finish_non_exhaustive()
    }
}

impl File {
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// Reads at `offset` without moving the position; 0 bytes at the end of the file.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if !self.read {
            return self.fail("read", Errno::EBADF);
        }
        self.node.fs().read(self.node.ino(), offset, buf).map_err(Into::into).named("read", b"")
    }

    /// Writes at `offset` without moving the position.
    pub fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        if !self.write {
            return self.fail("write", Errno::EBADF);
        }
        let n = self.node.fs().write(self.node.ino(), offset, data).map_err(Into::into).named("write", b"")?;
        self.node.mount.changed();
        Ok(n)
    }

    /// Attributes as they are now.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.node.getattr().map(Metadata::from).named("stat", b"")
    }

    /// Truncates the file, or extends it with a hole.
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        self.change("truncate", &SetAttr { size: Some(size), ..SetAttr::default() })
    }

    /// Sets the permission bits.
    pub fn set_permissions(&self, mode: u32) -> io::Result<()> {
        self.change("chmod", &SetAttr { mode: Some(mode), ..SetAttr::default() })
    }

    /// Sets timestamps.
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        self.change("set times", &times.into())
    }

    /// Makes data and metadata durable, and the name the file was made with.
    pub fn sync_all(&self) -> io::Result<()> {
        self.node.fs().fsync(self.node.ino(), false).map_err(Into::into).named("fsync", b"")
    }

    /// Makes the data durable, and of the metadata what is needed to read it.
    pub fn sync_data(&self) -> io::Result<()> {
        self.node.fs().fsync(self.node.ino(), true).map_err(Into::into).named("fdatasync", b"")
    }

    /// Reserves space; the file grows to the end of the range unless `keep_size`.
    pub fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> io::Result<()> {
        self.fallocate("allocate", if keep_size { FallocMode::KEEP_SIZE } else { FallocMode::empty() }, offset, len)
    }

    /// Gives the space of a range back; it reads as zeros afterwards.
    pub fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.fallocate("punch hole", FallocMode::KEEP_SIZE | FallocMode::PUNCH_HOLE, offset, len)
    }

    /// The next byte at or after `offset` that lies in no hole; `None` if there is none.
    pub fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        next_data(&self.node, offset).named("seek", b"")
    }

    /// The next byte at or after `offset` that lies in a hole; the end of the file counts as one.
    pub fn next_hole(&self, offset: u64) -> io::Result<u64> {
        let hole = self.node.fs().seek(self.node.ino(), offset, arbor_base::vfs::Seek::Hole);
        hole.map_err(Into::into).named("seek", b"")
    }

    fn fallocate(&self, op: &'static str, mode: FallocMode, offset: u64, len: u64) -> io::Result<()> {
        if !self.write {
            return self.fail(op, Errno::EBADF);
        }
        self.node.fs().fallocate(self.node.ino(), mode, offset, len).map_err(Into::into).named(op, b"")?;
        self.node.mount.changed();
        Ok(())
    }

    fn change(&self, op: &'static str, set: &SetAttr) -> io::Result<()> {
        if self.node.mount.read_only || (set.size.is_some() && !self.write) {
            return self.fail(op, if self.node.mount.read_only { Errno::EROFS } else { Errno::EBADF });
        }
        self.node.set(set).map(drop).named(op, b"")
    }

    fn fail<T>(&self, op: &'static str, errno: Errno) -> io::Result<T> {
        Err(errno.into()).named(op, b"")
    }

    fn read_on(&self, buf: &mut [u8]) -> io::Result<usize> {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let n = self.read_at(buf, *at)?;
        *at += n as u64;
        Ok(n)
    }

    fn write_on(&self, data: &[u8]) -> io::Result<usize> {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let n = if self.append {
            let _whole = self.node.mount.append.lock().unwrap_or_else(PoisonError::into_inner);
            *at = self.node.getattr().named("write", b"")?.size;
            self.write_at(data, *at)?
        } else {
            self.write_at(data, *at)?
        };
        *at += n as u64;
        Ok(n)
    }

    fn seek_to(&self, to: SeekFrom) -> io::Result<u64> {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let target = match to {
            SeekFrom::Start(n) => Some(n),
            SeekFrom::Current(d) => at.checked_add_signed(d),
            SeekFrom::End(d) => self.metadata()?.len().checked_add_signed(d),
        };
        match target {
            Some(n) if i64::try_from(n).is_ok() => {
                *at = n;
                Ok(n)
            }
            _ => self.fail("seek", Errno::EINVAL),
        }
    }
}

/// The next byte at or after `offset` that lies in no hole.
pub(crate) fn next_data(node: &Node, offset: u64) -> Result<Option<u64>> {
    match node.fs().seek(node.ino(), offset, arbor_base::vfs::Seek::Data) {
        Ok(at) => Ok(Some(at)),
        Err(e) if e.errno() == Errno::ENXIO => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Writes all of `data`; a short write is followed by the error that made it short.
pub(crate) fn write_all(node: &Node, mut offset: u64, mut data: &[u8]) -> Result<()> {
    while !data.is_empty() {
        let n = node.fs().write(node.ino(), offset, data)?;
        if n == 0 {
            return Err(Errno::EIO.into());
        }
        offset += n as u64;
        data = data.get(n..).unwrap_or_default();
        node.mount.changed();
    }
    Ok(())
}

impl From<FileTimes> for SetAttr {
    fn from(t: FileTimes) -> SetAttr {
        SetAttr { atime: t.accessed, mtime: t.modified, btime: t.created, ..SetAttr::default() }
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_on(buf)
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_on(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.seek_to(to)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_on(buf)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_on(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.seek_to(to)
    }
}
