//! A simulated disk as a file: a [`FileSystem`] whose root shows one regular file, `disk`.
//!
//! Mounted, it lets programs and kernels that know nothing of us use the disk. Requests are carried out one after the
//! other. A read waits, on the virtual clock, until the drive has completed it; nobody waits in real time. A write is
//! given to the drive, and only a flush waits for it, or a later write when [`UNDER_WAY_BYTES`] are under way.

use crate::device::SimDevice;
use arbor_base::device::{Device, Kind, Request, SECTOR, Ticket};
use arbor_base::vfs::{
    Attr, Clock, Cx, DirEntry, Entry, Errno, Error, FallocMode, FileSystem, FileType, Ino, RenameFlags, Result, Seek,
    SetAttr, StatFs, Time, TrimRange, XattrMode, mode,
};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Name of the file.
pub const DISK_FILE: &str = "disk";

/// Writes under way hold at most so many bytes. A kernel that was told at once that a write is complete would go on
/// for ever, and the queue would sort more than any memory holds: this is a quarter of the 128 MiB of the yFS paper.
pub const UNDER_WAY_BYTES: u64 = 32 << 20;

const ROOT: Ino = Ino(1);
const DISK: Ino = Ino(2);

/// The file system with the disk in it.
pub struct DiskFs {
    device: SimDevice,
    made: Time,
    writes: Mutex<Writes>,
}

/// Writes that nobody has waited for yet, the oldest first.
#[derive(Default)]
struct Writes {
    under_way: VecDeque<(u64, Ticket)>,
    bytes: u64,
    /// Why none is taken any more.
    failed: Option<Arc<str>>,
}

impl Writes {
    fn check_writable(&self) -> Result<()> {
        if self.failed.is_none() { Ok(()) } else { Err(Errno::EROFS.into()) }
    }

    fn push(&mut self, bytes: u64, ticket: Ticket) -> Result<()> {
        self.under_way.push_back((bytes, ticket));
        self.bytes += bytes;
        while self.bytes > UNDER_WAY_BYTES || self.under_way.front().is_some_and(|(_, t)| t.is_done()) {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    fn wait_for_oldest(&mut self) -> Result<()> {
        let Some((bytes, ticket)) = self.under_way.pop_front() else { return Ok(()) };
        self.bytes -= bytes;
        Ok(ticket.wait_all()?)
    }

    fn wait_for_all(&mut self) -> Result<()> {
        while !self.under_way.is_empty() {
            self.wait_for_oldest()?;
        }
        Ok(())
    }
}

/// The sectors that a range of bytes lies in.
fn sectors(offset: u64, len: usize) -> Range<u64> {
    let sector = SECTOR as u64;
    offset / sector * sector..(offset + len as u64).next_multiple_of(sector)
}

impl DiskFs {
    /// Shows `device`; times of files are that of its clock now.
    pub fn new(device: SimDevice) -> DiskFs {
        let made = Clock::now(&**device.clock());
        DiskFs { device, made, writes: Mutex::default() }
    }

    fn size(&self) -> u64 {
        self.device.geometry().size
    }

    fn attr(&self, ino: Ino) -> Result<Attr> {
        let (mode, nlink, size) = match ino {
            ROOT => (mode::IFDIR | 0o755, 2, 0),
            DISK => (mode::IFREG | 0o600, 1, self.size()),
            _ => return Err(Errno::ESTALE.into()),
        };
        let (atime, mtime, ctime, btime) = (self.made, self.made, self.made, self.made);
        let (uid, gid) = (0, 0);
        let (generation, rdev, blocks, blksize, unsettled) = (0, 0, size / 512, 4096, false);
        Ok(Attr {
            ino,
            generation,
            mode,
            nlink,
            uid,
            gid,
            rdev,
            size,
            blocks,
            blksize,
            atime,
            mtime,
            ctime,
            btime,
            unsettled,
        })
    }

    fn flush(&self) -> Result<()> {
        let mut writes = self.writes.lock();
        if let Some(why) = &writes.failed {
            return Err(Error::Failed(why.clone()));
        }
        writes.wait_for_all()?;
        Ok(self.device.flush()?)
    }

    fn entries(&self) -> [(Ino, FileType, &'static [u8]); 3] {
        [(ROOT, FileType::Dir, b"."), (ROOT, FileType::Dir, b".."), (DISK, FileType::File, DISK_FILE.as_bytes())]
    }
}

/// Only the disk can be read and written.
fn disk_only(ino: Ino) -> Result<()> {
    match ino {
        DISK => Ok(()),
        ROOT => Err(Errno::EISDIR.into()),
        _ => Err(Errno::ESTALE.into()),
    }
}

fn refused<T>() -> Result<T> {
    Err(Errno::EPERM.into())
}

impl FileSystem for DiskFs {
    fn root(&self) -> Ino {
        ROOT
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry> {
        let found = self.entries().into_iter().find(|(_, _, known)| parent == ROOT && *known == name);
        found.map_or(Err(Errno::ENOENT.into()), |(ino, ..)| self.attr(ino))
    }

    fn forget(&self, _ino: Ino, _count: u64) {}

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.attr(ino)
    }

    /// Times and owners stay as they are, and so does the size of a disk.
    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let attr = self.attr(ino)?;
        self.writes.lock().check_writable()?;
        if set.size.is_some_and(|size| size != attr.size) { refused() } else { Ok(attr) }
    }

    fn readlink(&self, _ino: Ino) -> Result<Vec<u8>> {
        Err(Errno::EINVAL.into())
    }

    fn mknod(&self, _cx: &Cx, _parent: Ino, _name: &[u8], _mode: u32, _rdev: u32) -> Result<Entry> {
        refused()
    }

    fn mkdir(&self, _cx: &Cx, _parent: Ino, _name: &[u8], _mode: u32) -> Result<Entry> {
        refused()
    }

    fn symlink(&self, _cx: &Cx, _parent: Ino, _name: &[u8], _target: &[u8]) -> Result<Entry> {
        refused()
    }

    fn tmpfile(&self, _cx: &Cx, _parent: Ino, _mode: u32) -> Result<Entry> {
        refused()
    }

    fn link(&self, _ino: Ino, _new_parent: Ino, _new_name: &[u8]) -> Result<Entry> {
        refused()
    }

    fn unlink(&self, _parent: Ino, _name: &[u8]) -> Result<()> {
        refused()
    }

    fn rmdir(&self, _parent: Ino, _name: &[u8]) -> Result<()> {
        refused()
    }

    fn rename(
        &self,
        _cx: &Cx,
        _parent: Ino,
        _name: &[u8],
        _new_parent: Ino,
        _new_name: &[u8],
        _flags: RenameFlags,
    ) -> Result<()> {
        refused()
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        disk_only(ino)?;
        let len = self.size().saturating_sub(offset).min(buf.len() as u64) as usize;
        if len == 0 {
            return Ok(0);
        }
        let buf = &mut buf[..len];
        let whole = sectors(offset, len);
        let _one_at_a_time = self.writes.lock();
        if whole == (offset..offset + len as u64) {
            self.device.read_at(Kind::Other, offset, buf)?;
        } else {
            let mut bytes = vec![0; (whole.end - whole.start) as usize];
            self.device.read_at(Kind::Other, whole.start, &mut bytes)?;
            let from = (offset - whole.start) as usize;
            buf.copy_from_slice(&bytes[from..from + len]);
        }
        Ok(len)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        disk_only(ino)?;
        let len = self.size().saturating_sub(offset).min(data.len() as u64) as usize;
        if len == 0 {
            return if data.is_empty() { Ok(0) } else { Err(Errno::ENOSPC.into()) };
        }
        let whole = sectors(offset, len);
        let mut writes = self.writes.lock();
        writes.check_writable()?;
        let mut bytes = vec![0; (whole.end - whole.start) as usize];
        if bytes.len() != len {
            self.device.read_at(Kind::Other, whole.start, &mut bytes)?;
        }
        let from = (offset - whole.start) as usize;
        bytes[from..from + len].copy_from_slice(&data[..len]);
        let held = bytes.len() as u64;
        let ticket = self.device.submit(vec![Request::write(Kind::Other, whole.start, vec![bytes.into()])]);
        writes.push(held, ticket)?;
        Ok(len)
    }

    fn readdir(&self, ino: Ino, cookie: u64, f: &mut dyn FnMut(&DirEntry<'_>) -> bool) -> Result<()> {
        self.readdir_plus(ino, cookie, &mut |entry, _| f(entry))
    }

    fn readdir_plus(
        &self,
        ino: Ino,
        cookie: u64,
        f: &mut dyn FnMut(&DirEntry<'_>, Option<&Entry>) -> bool,
    ) -> Result<()> {
        if ino != ROOT {
            return Err(Errno::ENOTDIR.into());
        }
        for (at, (ino, file_type, name)) in self.entries().into_iter().enumerate().skip(cookie as usize) {
            let attr = if ino == DISK { Some(self.attr(ino)?) } else { None };
            if !f(&DirEntry { ino, file_type, cookie: at as u64 + 1, name }, attr.as_ref()) {
                break;
            }
        }
        Ok(())
    }

    fn fsync(&self, _ino: Ino, _data_only: bool) -> Result<()> {
        self.flush()
    }

    fn syncfs(&self) -> Result<()> {
        self.flush()
    }

    /// A hole is a discard, for a drive that has TRIM. Zeros have to be written.
    fn fallocate(&self, ino: Ino, mode: FallocMode, offset: u64, len: u64) -> Result<()> {
        disk_only(ino)?;
        if mode != FallocMode::PUNCH_HOLE | FallocMode::KEEP_SIZE || self.device.geometry().discard_unit == 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let end = offset.checked_add(len).ok_or(Errno::EINVAL)?.min(self.size());
        if !offset.is_multiple_of(SECTOR as u64) || !end.is_multiple_of(SECTOR as u64) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let mut writes = self.writes.lock();
        writes.check_writable()?;
        if offset < end {
            let ticket = self.device.submit(vec![Request::discard(Kind::Other, offset, end - offset)]);
            writes.push(0, ticket)?;
        }
        Ok(())
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        disk_only(ino)?;
        match whence {
            _ if offset >= self.size() => Err(Errno::ENXIO.into()),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(self.size()),
        }
    }

    fn copy_range(&self, _from: Ino, _from_offset: u64, _to: Ino, _to_offset: u64, _len: u64) -> Result<u64> {
        Err(Errno::EOPNOTSUPP.into())
    }

    fn getxattr(&self, _ino: Ino, _name: &[u8]) -> Result<Vec<u8>> {
        Err(Errno::ENODATA.into())
    }

    fn setxattr(&self, _ino: Ino, _name: &[u8], _value: &[u8], _mode: XattrMode) -> Result<()> {
        Err(Errno::EOPNOTSUPP.into())
    }

    fn listxattr(&self, _ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn removexattr(&self, _ino: Ino, _name: &[u8]) -> Result<()> {
        Err(Errno::ENODATA.into())
    }

    fn statfs(&self) -> Result<StatFs> {
        let blocks = self.size() / SECTOR as u64;
        Ok(StatFs { frsize: SECTOR as u32, bsize: 4096, blocks, files: 1, namelen: 255, ..StatFs::default() })
    }

    fn trim(&self, _range: &TrimRange) -> Result<u64> {
        Ok(0)
    }

    /// There is no work beside the callers'.
    fn background(&self, now: Time) -> Time {
        now.plus_ms(3_600_000)
    }

    fn failure(&self) -> Option<String> {
        self.writes.lock().failed.as_ref().map(ToString::to_string)
    }

    fn fail(&self, why: &str) {
        self.writes.lock().failed.get_or_insert_with(|| why.into());
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let stats = self.device.stats();
        vec![
            ("requests", stats.requests),
            ("reads", stats.reads),
            ("writes", stats.writes),
            ("discards", stats.discards),
            ("flushes", stats.flushes),
            ("read_bytes", stats.read_bytes),
            ("write_bytes", stats.write_bytes),
            ("busy_ns", stats.busy_ns),
            ("seek_ns", stats.seek_ns),
            ("rotation_ns", stats.rotation_ns),
            ("transfer_ns", stats.transfer_ns),
            ("elapsed_ns", self.device.clock().now_ns()),
        ]
    }

    /// Until nothing is left to do.
    fn unmount(&self) -> Result<()> {
        let flushed = self.flush();
        self.device.drain();
        flushed
    }
}
