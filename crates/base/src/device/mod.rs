//! Devices: image files, block devices, memory; windows, overlays, two as one, faults, power cuts, flushes that fail.
//!
//! # What a device promises
//!
//! * Offsets and lengths are multiples of [`SECTOR`] bytes.
//! * [`Device::submit`] starts a batch; requests of one batch, and of batches that overlap in
//!   time, may be carried out in any order. A write is visible to every read submitted after its
//!   ticket was waited for.
//! * [`Device::flush`] returns when every write completed before the call is durable. It is the
//!   only promise of durability.
//! * After a power cut each write that no flush covers may be there, be absent, or be torn: each
//!   of its sectors by itself holds the old or the new bytes, never a mixture. Writes covered by
//!   a flush are there, whole.
//! * A discarded range reads as zeros or as its old bytes until it is written again.
//! * A larger size ([`Device::set_size`]) is durable with the next flush. After a power cut before
//!   it the device may have the old size; then nothing that was written after it is there.
//!
//! [`RecordingDevice`] keeps what was written between flushes, so that every state this contract
//! allows can be built and recovered from.

mod check;
mod fault;
mod file;
mod gate;
mod joined;
mod mem;
mod overlay;
mod patient;
mod record;
#[cfg(test)]
mod tests;
mod view;
mod wary;

pub use fault::{Fault, FaultDevice, FaultOp, FaultTimes};
pub use file::{Claim, FileDevice, FileOptions, OpenMode, identities};
pub use gate::{Gate, GatedDevice};
pub use joined::JoinedDevice;
pub use mem::MemDevice;
pub use overlay::OverlayDevice;
pub use patient::PatientDevice;
pub use record::{CrashChoice, Event, Fate, RecordingDevice};
pub use view::OffsetDevice;
pub use wary::WaryDevice;

use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Smallest unit of I/O, and the unit at which writes tear, in bytes.
pub const SECTOR: usize = 512;

/// A buffer of zeros to read into. The allocator zeroes large ones by giving their pages back to the system, which
/// brings each page back when it is touched; writing the zeros costs a fifth of that.
pub fn zeroed(len: usize) -> Vec<u8> {
    // Hides the buffer from the optimiser, which would make both steps one call again.
    let mut bytes = std::hint::black_box(Vec::with_capacity(len));
    bytes.resize(len, 0);
    bytes
}

/// What a request is for; kept by traces and shown in pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Superblock or its copies.
    Super,
    /// Log records and anchors.
    Log,
    /// Allocation group headers.
    Group,
    /// Inodes.
    Inode,
    /// Free-space bitmaps.
    Bitmap,
    /// Directory blocks.
    Dir,
    /// Tree nodes, block maps.
    Tree,
    /// Extended attributes.
    Xattr,
    /// File data.
    Data,
    /// Anything else.
    Other,
}

/// What a device is good at, as far as it is known: what a layout may choose by that has no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// Nothing is known, as of an image file: what holds it may be of any kind.
    #[default]
    Unknown,
    /// Heads that move: what lies together costs less than what is apart.
    Disk,
    /// Flash whose every page may lie anywhere: a place costs as much as any other.
    Pages,
    /// Flash that is mapped by blocks: a few of them take writes at any time, and the first write to another one costs
    /// the copy of a block.
    Blocks {
        /// Size of a block, bytes.
        bytes: u32,
        /// So many blocks take writes at any time.
        open: u32,
    },
}

/// Size and units of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size in bytes, a multiple of [`SECTOR`].
    pub size: u64,
    /// Unit at which discards take effect, in bytes; 0 if the device cannot discard.
    pub discard_unit: u32,
    /// Writes fail.
    pub read_only: bool,
    /// What it is good at.
    pub medium: Medium,
}

/// A shared, immutable piece of memory to be written. The owner of the underlying `Vec` may
/// change it meanwhile with `Arc::make_mut`, which copies: a write in flight keeps its bytes.
#[derive(Clone, Debug)]
pub struct Buf {
    data: Arc<Vec<u8>>,
    start: usize,
    len: usize,
    tag: u64,
}

impl Buf {
    /// All of `data`.
    pub fn new(data: Arc<Vec<u8>>) -> Buf {
        let len = data.len();
        Buf { data, start: 0, len, tag: 0 }
    }

    /// `len` bytes of `data` from `start`; panics if they are not there (a bug of the caller).
    pub fn slice(data: Arc<Vec<u8>>, start: usize, len: usize) -> Buf {
        assert!(start <= data.len() && len <= data.len() - start);
        Buf { data, start, len, tag: 0 }
    }

    /// As contents of the file of this inode number, not 0. A host that writes buffer by buffer
    /// joins pieces of one file, and no others; what is neither a file's nor by itself goes with its request.
    pub fn of_file(self, ino: u64) -> Buf {
        Buf { tag: ino, ..self }
    }

    /// As a buffer by itself, in the same sense, at this address below 2^63.
    pub fn by_itself(self, at: u64) -> Buf {
        Buf { tag: 1 << 63 | at, ..self }
    }

    /// A number that is the same for pieces that such a host joins.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.data[self.start..self.start + self.len]
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl From<Vec<u8>> for Buf {
    fn from(v: Vec<u8>) -> Buf {
        Buf::new(Arc::new(v))
    }
}

/// What a request does.
#[derive(Clone, Debug)]
pub enum Op {
    /// Reads this many bytes; completes with them.
    Read(usize),
    /// Writes the pieces one after the other; completes with an empty vector.
    Write(Vec<Buf>),
    /// Discards the range (length in bytes).
    Discard(u64),
}

/// One request of a batch.
#[derive(Clone, Debug)]
pub struct Request {
    /// What it is for.
    pub kind: Kind,
    /// Byte offset on the device.
    pub offset: u64,
    /// What to do.
    pub op: Op,
}

impl Request {
    /// A read of `len` bytes at `offset`.
    pub fn read(kind: Kind, offset: u64, len: usize) -> Request {
        Request { kind, offset, op: Op::Read(len) }
    }

    /// A write of `bufs`, one after the other, at `offset`.
    pub fn write(kind: Kind, offset: u64, bufs: Vec<Buf>) -> Request {
        Request { kind, offset, op: Op::Write(bufs) }
    }

    /// A discard of `len` bytes at `offset`.
    pub fn discard(kind: Kind, offset: u64, len: u64) -> Request {
        Request { kind, offset, op: Op::Discard(len) }
    }

    /// Length of the range it touches, in bytes.
    pub fn len(&self) -> u64 {
        match &self.op {
            Op::Read(n) => *n as u64,
            Op::Write(bufs) => bufs.iter().map(|b| b.len() as u64).sum(),
            Op::Discard(n) => *n,
        }
    }

    /// Whether the range is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Result of one request: the bytes of a read, nothing for the others.
pub type Completion = io::Result<Vec<u8>>;

/// Requests under way.
pub trait Pending: Send {
    /// Waits for all of them; completions stand in the order of the batch.
    fn wait(self: Box<Self>) -> Vec<Completion>;
    /// Whether [`Pending::wait`] would return at once.
    fn is_done(&self) -> bool;
}

/// A batch under way. Dropping it does not cancel the requests.
#[must_use = "a batch is complete only when its ticket was waited for"]
pub struct Ticket(Inner);

enum Inner {
    Done(Vec<Completion>),
    Pending(Box<dyn Pending>),
}

impl Ticket {
    /// A batch that is already complete.
    pub fn done(completions: Vec<Completion>) -> Ticket {
        Ticket(Inner::Done(completions))
    }

    /// A batch that completes later.
    pub fn pending(pending: Box<dyn Pending>) -> Ticket {
        Ticket(Inner::Pending(pending))
    }

    /// Waits for all requests; completions stand in the order of the batch.
    pub fn wait(self) -> Vec<Completion> {
        match self.0 {
            Inner::Done(c) => c,
            Inner::Pending(p) => p.wait(),
        }
    }

    /// Waits, and returns the first error if there was one.
    pub fn wait_all(self) -> io::Result<()> {
        self.wait().into_iter().try_for_each(|c| c.map(drop))
    }

    /// Whether waiting would return at once.
    pub fn is_done(&self) -> bool {
        match &self.0 {
            Inner::Done(_) => true,
            Inner::Pending(p) => p.is_done(),
        }
    }
}

/// A block device, an image file, memory, or something that wraps one of them. The module's
/// documentation says what it promises.
pub trait Device: Send + Sync {
    /// Size and units; the size changes only by [`Device::set_size`].
    fn geometry(&self) -> Geometry;

    /// Starts a batch of requests.
    fn submit(&self, batch: Vec<Request>) -> Ticket;

    /// Returns when every write completed before this call is durable.
    fn flush(&self) -> io::Result<()>;

    /// Takes back a buffer that a read has completed with, to use it again: a new one costs the zeros that
    /// are written over at once.
    fn recycle(&self, _buffer: Vec<u8>) {}

    /// Tells the device that this range belongs to the caller alone; ranges told before and lying elsewhere stay. A
    /// device may change bytes by itself (fill holes with zeros) only in these ranges.
    fn confine(&self, _range: Range<u64>) {}

    /// The claim that keeps others from the file or block device below, for the code that mounts the volume.
    fn claim(&self) -> Option<Arc<Claim>> {
        None
    }

    /// Changes the size in bytes; new bytes read as zeros. A larger size is durable after the next
    /// flush, a smaller one on return.
    fn set_size(&self, size: u64) -> io::Result<()>;

    /// Reads `buf.len()` bytes at `offset` and waits for them.
    fn read_at(&self, kind: Kind, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut done = self.submit(vec![Request::read(kind, offset, buf.len())]).wait();
        let bytes = done.pop().unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))?;
        if bytes.len() != buf.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buf.copy_from_slice(&bytes);
        Ok(())
    }

    /// Writes `buf` at `offset` and waits until reads see it (not until it is durable).
    fn write_at(&self, kind: Kind, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.submit(vec![Request::write(kind, offset, vec![buf.to_vec().into()])]).wait_all()
    }
}

impl<D: Device + ?Sized> Device for Arc<D> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }
    fn submit(&self, batch: Vec<Request>) -> Ticket {
        (**self).submit(batch)
    }
    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }
    fn recycle(&self, buffer: Vec<u8>) {
        (**self).recycle(buffer);
    }
    fn confine(&self, range: Range<u64>) {
        (**self).confine(range);
    }
    fn claim(&self) -> Option<Arc<Claim>> {
        (**self).claim()
    }
    fn set_size(&self, size: u64) -> io::Result<()> {
        (**self).set_size(size)
    }
    fn read_at(&self, kind: Kind, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        (**self).read_at(kind, offset, buf)
    }
    fn write_at(&self, kind: Kind, offset: u64, buf: &[u8]) -> io::Result<()> {
        (**self).write_at(kind, offset, buf)
    }
}
