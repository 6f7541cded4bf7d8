//! A device in an image file or a block device.
//!
//! From the top: `FileDevice` sorts a batch into jobs; `pool` carries jobs out beside the caller;
//! `Core` carries out one request; `holes` fills holes before small durable writes; `raw` does
//! positioned I/O, direct or buffered; `claim` keeps others out, by `lock` where they are owners too.

mod claim;
mod holes;
mod lock;
mod medium;
mod pool;
mod raw;

use super::check::{Access, check_new_size, check_range, check_request, whole_sectors};
use super::{Completion, Device, Geometry, Kind, Medium, Op, Request, SECTOR, Ticket, zeroed};
pub use claim::{Claim, identities};
use holes::Holes;
use parking_lot::Mutex;
use pool::{Pool, Run};
use raw::RawFile;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Up to so many bytes a request is carried out by the caller: handing it over costs more.
const INLINE_LEN: u64 = 128 << 10;
/// Adjacent writes of a batch are put together up to so many bytes.
const COALESCE_LEN: u64 = 1 << 20;
/// Buffers that are kept to be used again.
const SPARE: usize = 8;
/// Block size of the file systems and disks an image usually lies on; smaller holes free nothing.
const DISCARD_UNIT: u64 = 4096;

/// How a device is opened, and with which lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reads only; shared with other readers.
    ReadOnly,
    /// Reads and writes; one owner.
    ReadWrite,
}

/// Options of [`FileDevice::open_with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// How it is opened.
    pub mode: OpenMode,
    /// Passes the host's page cache by (O_DIRECT, Linux only) wherever a request is aligned to
    /// 4096 bytes.
    pub direct: bool,
}

/// An image file or a block device. Small requests run in the caller's thread, the others in a
/// pool of threads that starts with the first batch in need of it and ends with the device.
/// A process that forks to become a daemon must do so before that batch.
#[derive(Debug)]
pub struct FileDevice {
    core: Arc<Core>,
    pool: Pool<Core>,
}

impl FileDevice {
    /// Opens an image file or a block device with the host's page cache. Fails with
    /// [`io::ErrorKind::ResourceBusy`] if another owner has it.
    pub fn open(path: impl AsRef<Path>, mode: OpenMode) -> io::Result<FileDevice> {
        FileDevice::open_with(path, FileOptions { mode, direct: false })
    }

    /// As [`FileDevice::open`], with all options.
    pub fn open_with(path: impl AsRef<Path>, options: FileOptions) -> io::Result<FileDevice> {
        let path = path.as_ref();
        let meta = fs::metadata(path).map_err(|e| named(path, e))?;
        let is_block_device = is_block_device(&meta);
        if !is_block_device && !meta.is_file() {
            let text = format!("{}: is neither a file nor a block device", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut how = OpenOptions::new();
        how.read(true).write(options.mode == OpenMode::ReadWrite);
        FileDevice::start(path, how, options, is_block_device)
    }

    /// Makes a new image file of `size` bytes, all holes, and opens it. It is its owner's alone: whoever
    /// can read it can read all that lies in it. Fails if there is something of that name.
    pub fn create(path: impl AsRef<Path>, size: u64) -> io::Result<FileDevice> {
        let path = path.as_ref();
        whole_sectors(size)?;
        let mut how = OpenOptions::new();
        how.read(true).write(true).create_new(true);
        private(&mut how);
        let options = FileOptions { mode: OpenMode::ReadWrite, direct: false };
        let device = FileDevice::start(path, how, options, false)?;
        device.set_size(size).and_then(|()| sync_parent(path)).inspect_err(|_| {
            let _ = fs::remove_file(path);
        })?;
        Ok(device)
    }

    fn start(path: &Path, mut how: OpenOptions, options: FileOptions, is_block_device: bool) -> io::Result<FileDevice> {
        let read_only = options.mode == OpenMode::ReadOnly;
        let (file, claim) = Claim::open(path, &mut how, options.mode, is_block_device)?;
        let size = raw::size_of(&file).map_err(|e| named(path, e))? / SECTOR as u64 * SECTOR as u64;
        let direct = if options.direct { Some(open_direct(path, !read_only)?) } else { None };
        let core = Arc::new(Core {
            raw: RawFile::new(file, direct),
            medium: claim.block_device().map_or(Medium::Unknown, medium::of),
            claim: Arc::new(claim),
            path: path.to_path_buf(),
            size: AtomicU64::new(size),
            read_only,
            is_block_device,
            can_discard: AtomicBool::new(raw::CAN_DISCARD),
            flush_failed: AtomicBool::new(false),
            spare: Mutex::default(),
            holes: Holes::default(),
        });
        Ok(FileDevice { pool: Pool::new(Arc::clone(&core)), core })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.core.path
    }
}

fn named(path: &Path, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}

#[cfg(unix)]
fn private(how: &mut OpenOptions) {
    std::os::unix::fs::OpenOptionsExt::mode(how, 0o600);
}

#[cfg(not(unix))]
fn private(_how: &mut OpenOptions) {}

#[cfg(unix)]
fn is_block_device(meta: &fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_block_device(&meta.file_type())
}

#[cfg(not(unix))]
fn is_block_device(_meta: &fs::Metadata) -> bool {
    false
}

/// Makes the name of a new file durable.
#[cfg(unix)]
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

#[cfg(not(unix))]
fn sync_parent(_path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(target_os = "linux")]
fn open_direct(path: &Path, write: bool) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    let opened = OpenOptions::new().read(true).write(write).custom_flags(flags).open(path);
    opened.map_err(|e| io::Error::new(e.kind(), format!("{}: direct I/O is not possible: {e}", path.display())))
}

#[cfg(not(target_os = "linux"))]
fn open_direct(path: &Path, _write: bool) -> io::Result<File> {
    let text = format!("{}: direct I/O is not supported on this system", path.display());
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

impl Device for FileDevice {
    fn geometry(&self) -> Geometry {
        self.core.geometry()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        if self.core.is_quick(&batch) {
            return Ticket::done(batch.iter().map(|r| self.core.run_one(r)).collect());
        }
        self.pool.submit(batch.len(), jobs(batch))
    }

    fn flush(&self) -> io::Result<()> {
        self.core.flush()
    }

    fn recycle(&self, buffer: Vec<u8>) {
        let mut spare = self.core.spare.lock();
        if spare.len() < SPARE {
            spare.push(buffer);
        }
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.core.set_size(size)
    }

    fn confine(&self, range: Range<u64>) {
        self.core.holes.confine(range);
    }

    fn claim(&self) -> Option<Arc<Claim>> {
        Some(self.core.claim.clone())
    }

    fn read_at(&self, _kind: Kind, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.core.read(offset, buf)
    }

    fn write_at(&self, _kind: Kind, offset: u64, buf: &[u8]) -> io::Result<()> {
        check_range(&self.core.geometry(), Access::Write, offset, buf.len() as u64)?;
        self.core.write(offset, &[buf])
    }
}

/// Sorts a batch into jobs, each with the places of its requests in the batch: adjacent writes
/// together, everything else alone.
fn jobs(batch: Vec<Request>) -> Vec<pool::Job> {
    let (mut writes, others): (Vec<_>, Vec<_>) =
        batch.into_iter().enumerate().partition(|(_, r)| matches!(r.op, Op::Write(_)));
    let mut jobs: Vec<pool::Job> = others.into_iter().map(|one| vec![one]).collect();
    writes.sort_by_key(|(_, r)| r.offset);
    let mut end = None;
    let mut job_len = 0;
    for (i, write) in writes {
        let len = write.len();
        let joins = end == Some(write.offset) && job_len + len <= COALESCE_LEN;
        job_len = if joins { job_len + len } else { len };
        end = write.offset.checked_add(len);
        match jobs.last_mut() {
            Some(job) if joins => job.push((i, write)),
            _ => jobs.push(vec![(i, write)]),
        }
    }
    jobs
}

/// The opened file; shared with the threads of the pool.
#[derive(Debug)]
struct Core {
    raw: RawFile,
    claim: Arc<Claim>,
    path: PathBuf,
    size: AtomicU64,
    read_only: bool,
    is_block_device: bool,
    medium: Medium,
    can_discard: AtomicBool,
    flush_failed: AtomicBool,
    /// Buffers to be used again.
    spare: Mutex<Vec<Vec<u8>>>,
    holes: Holes,
}

impl Drop for Core {
    fn drop(&mut self) {
        self.claim.release();
    }
}

impl Run for Core {
    fn run(&self, job: &[(usize, Request)]) -> Vec<Completion> {
        if job.len() > 1 && self.write_together(job).is_ok() {
            return job.iter().map(|_| Ok(Vec::new())).collect();
        }
        // One by one, so that each request fails or succeeds for itself.
        job.iter().map(|(_, r)| self.run_one(r)).collect()
    }
}

impl Core {
    fn geometry(&self) -> Geometry {
        let can_discard = self.can_discard.load(Ordering::Relaxed) && !self.read_only;
        Geometry {
            size: self.size.load(Ordering::Acquire),
            discard_unit: if can_discard { DISCARD_UNIT as u32 } else { 0 },
            read_only: self.read_only,
            medium: self.medium,
        }
    }

    /// Whether the caller had better do it itself: one small request, or writes into the page
    /// cache, which wait for no disk.
    fn is_quick(&self, batch: &[Request]) -> bool {
        let len = batch.iter().fold(0u64, |sum, r| sum.saturating_add(r.len()));
        let is_cached_write = |r: &Request| matches!(r.op, Op::Write(_)) && !self.raw.is_direct();
        len <= INLINE_LEN && (batch.len() <= 1 || batch.iter().all(is_cached_write))
    }

    fn run_one(&self, request: &Request) -> Completion {
        check_request(&self.geometry(), request)?;
        match &request.op {
            Op::Read(len) => {
                let mut bytes = self.buffer(*len);
                self.read(request.offset, &mut bytes)?;
                return Ok(bytes);
            }
            Op::Write(bufs) => {
                let parts: Vec<&[u8]> = bufs.iter().map(|b| b.bytes()).collect();
                self.write(request.offset, &parts)?;
            }
            Op::Discard(len) => self.discard(request.offset, *len)?,
        }
        Ok(Vec::new())
    }

    fn buffer(&self, len: usize) -> Vec<u8> {
        let mut spare = self.spare.lock();
        let found = spare.iter().position(|b| b.len() == len).map(|at| spare.swap_remove(at));
        drop(spare);
        found.unwrap_or_else(|| zeroed(len))
    }

    fn write_together(&self, job: &[(usize, Request)]) -> io::Result<()> {
        let mut parts = Vec::new();
        for (_, request) in job {
            check_request(&self.geometry(), request)?;
            if let Op::Write(bufs) = &request.op {
                parts.extend(bufs.iter().map(|b| b.bytes()));
            }
        }
        self.write(job[0].1.offset, &parts)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(&self.geometry(), Access::Read, offset, buf.len() as u64)?;
        let len = buf.len();
        self.raw.read(offset, buf).map_err(|e| self.failed("read", len as u64, offset, e))
    }

    /// The range was checked by the caller.
    fn write(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        self.claim.check()?;
        let len = parts.iter().map(|p| p.len() as u64).sum();
        if !self.is_block_device && !self.raw.is_direct() {
            self.holes.before_write(&self.raw, || self.size.load(Ordering::Acquire), offset, len);
        }
        let _change = self.holes.change();
        self.raw.write(offset, parts).map_err(|e| self.failed("write", len, offset, e))
    }

    /// A discard is a hint: its range shrinks to whole units, and a host that cannot do it is not
    /// asked again.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let from = offset.next_multiple_of(DISCARD_UNIT);
        let to = (offset + len) / DISCARD_UNIT * DISCARD_UNIT;
        if from >= to || !self.can_discard.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.claim.check()?;
        let change = self.holes.change();
        let discarded = self.raw.discard(from, to - from);
        drop(change);
        self.holes.made(from, to - from);
        match discarded {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                self.can_discard.store(false, Ordering::Relaxed);
                Ok(())
            }
            // Linux does not drop pages that wait to be written of a device that another open file holds, or a mount.
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && self.is_block_device => Ok(()),
            done => done.map_err(|e| self.failed("discard", len, offset, e)),
        }
    }

    /// A failed flush is final: the host may have thrown the unwritten pages away and report
    /// success the next time.
    fn flush(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        if self.flush_failed.load(Ordering::Acquire) {
            return Err(io::Error::other(format!("{}: an earlier flush failed", self.path.display())));
        }
        self.raw.sync_data().map_err(|e| {
            self.flush_failed.store(true, Ordering::Release);
            io::Error::new(e.kind(), format!("{}: flush: {e}", self.path.display()))
        })?;
        self.holes.flushed();
        Ok(())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        check_new_size(&self.geometry(), size)?;
        self.claim.check()?;
        if self.is_block_device {
            let text = format!("{}: the size of a block device cannot change", self.path.display());
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let _change = self.holes.change();
        let old = self.size.load(Ordering::Acquire);
        self.raw.set_len(old, size).map_err(|e| named(&self.path, e))?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    fn failed(&self, what: &str, len: u64, offset: u64, e: io::Error) -> io::Error {
        let path = self.path.display();
        io::Error::new(e.kind(), format!("{path}: {what} of {len} bytes at offset {offset}: {e}"))
    }
}
