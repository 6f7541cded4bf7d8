//! A device in memory.

use super::check::{Access, check_new_size, check_range, check_request};
use super::{Completion, Device, Geometry, Kind, Medium, Op, Request, SECTOR, Ticket, zeroed};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Unit of allocation and of copy-on-write, in bytes. Small, because a crash state copies one
/// for each scattered write that it applies.
const CHUNK: usize = 16 << 10;
/// Chunks in a node.
const FAN: u64 = 256;

type Chunk = Arc<[u8; CHUNK]>;
type Node = Vec<Option<Chunk>>;

/// A sparse device in memory that completes at once. Clones are handles of the same device;
/// [`MemDevice::snapshot`] makes an independent one and copies only what is written afterwards.
#[derive(Clone)]
pub struct MemDevice {
    space: Arc<RwLock<Space>>,
}

/// Two levels of shared pieces: a snapshot costs a pointer for each 4 MiB in use, the first
/// write after it a node of pointers and a chunk.
#[derive(Clone, Default)]
struct Space {
    size: u64,
    read_only: bool,
    nodes: BTreeMap<u64, Arc<Node>>,
}

impl MemDevice {
    /// A device of `size` bytes, rounded up to whole sectors, that reads as zeros.
    pub fn new(size: u64) -> MemDevice {
        let size = size.next_multiple_of(SECTOR as u64);
        MemDevice { space: Arc::new(RwLock::new(Space { size, ..Space::default() })) }
    }

    /// A device that holds `bytes`, padded with zeros to whole sectors.
    pub fn from_bytes(bytes: &[u8]) -> MemDevice {
        let device = MemDevice::new(bytes.len() as u64);
        let mut space = device.space.write();
        for (i, part) in bytes.chunks(CHUNK).enumerate() {
            if part.iter().any(|b| *b != 0) {
                space.write((i * CHUNK) as u64, part);
            }
        }
        drop(space);
        device
    }

    /// An independent device with the same content, made without copying it.
    pub fn snapshot(&self) -> MemDevice {
        MemDevice { space: Arc::new(RwLock::new(self.space.read().clone())) }
    }

    /// The whole content; for small devices and tests.
    pub fn to_bytes(&self) -> Vec<u8> {
        let space = self.space.read();
        let mut bytes = vec![0; space.size as usize];
        space.read(0, &mut bytes);
        bytes
    }

    /// Makes writes fail, or lets them through again, for all handles of this device.
    pub fn set_read_only(&self, read_only: bool) {
        self.space.write().read_only = read_only;
    }

    /// Memory in use for content, in bytes; snapshots may share it.
    pub fn allocated(&self) -> u64 {
        let space = self.space.read();
        let chunks: usize = space.nodes.values().map(|n| n.iter().flatten().count()).sum();
        (chunks * CHUNK) as u64
    }

    /// Carries out one request, as [`Device::submit`] does.
    pub(super) fn run(&self, request: &Request) -> Completion {
        if let Op::Read(len) = request.op {
            let space = self.space.read();
            check_request(&space.geometry(), request)?;
            let mut bytes = zeroed(len);
            space.read(request.offset, &mut bytes);
            return Ok(bytes);
        }
        let mut space = self.space.write();
        check_request(&space.geometry(), request)?;
        match &request.op {
            Op::Read(_) => {}
            Op::Write(bufs) => {
                let mut offset = request.offset;
                for buf in bufs {
                    space.write(offset, buf.bytes());
                    offset += buf.len() as u64;
                }
            }
            Op::Discard(len) => space.discard(request.offset, *len),
        }
        Ok(Vec::new())
    }
}

impl Device for MemDevice {
    fn geometry(&self) -> Geometry {
        self.space.read().geometry()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        Ticket::done(batch.iter().map(|r| self.run(r)).collect())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        let mut space = self.space.write();
        check_new_size(&space.geometry(), size)?;
        space.resize(size);
        Ok(())
    }

    fn read_at(&self, _kind: Kind, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let space = self.space.read();
        check_range(&space.geometry(), Access::Read, offset, buf.len() as u64)?;
        space.read(offset, buf);
        Ok(())
    }

    fn write_at(&self, _kind: Kind, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut space = self.space.write();
        check_range(&space.geometry(), Access::Write, offset, buf.len() as u64)?;
        space.write(offset, buf);
        Ok(())
    }
}

impl fmt::Debug for MemDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemDevice").field("size", &self.geometry().size).field("allocated", &self.allocated()).finish()
    }
}

/// Ranges are checked by the caller.
impl Space {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size, discard_unit: SECTOR as u32, read_only: self.read_only, medium: Medium::Unknown }
    }

    fn chunk(&self, no: u64) -> Option<&Chunk> {
        self.nodes.get(&(no / FAN))?[(no % FAN) as usize].as_ref()
    }

    fn slot(&mut self, no: u64) -> &mut Option<Chunk> {
        let node = self.nodes.entry(no / FAN).or_insert_with(|| Arc::new(vec![None; FAN as usize]));
        &mut Arc::make_mut(node)[(no % FAN) as usize]
    }

    fn read(&self, offset: u64, mut buf: &mut [u8]) {
        let mut at = offset;
        while !buf.is_empty() {
            let (no, start, len) = piece(at, buf.len());
            let (part, rest) = buf.split_at_mut(len);
            match self.chunk(no) {
                Some(chunk) => part.copy_from_slice(&chunk[start..start + len]),
                None => part.fill(0),
            }
            at += len as u64;
            buf = rest;
        }
    }

    fn write(&mut self, offset: u64, mut buf: &[u8]) {
        let mut at = offset;
        while !buf.is_empty() {
            let (no, start, len) = piece(at, buf.len());
            let (part, rest) = buf.split_at(len);
            let chunk = self.slot(no).get_or_insert_with(|| Arc::new([0; CHUNK]));
            Arc::make_mut(chunk)[start..start + len].copy_from_slice(part);
            at += len as u64;
            buf = rest;
        }
    }

    /// Drops whole chunks and zeroes the parts of chunks at both ends.
    fn discard(&mut self, offset: u64, len: u64) {
        let end = offset + len;
        let first = offset.div_ceil(CHUNK as u64);
        let last = end / CHUNK as u64;
        self.zero_part(offset, end.min(first * CHUNK as u64));
        if first <= last {
            self.zero_part(last * CHUNK as u64, end);
            self.drop_chunks(first, last);
        }
    }

    /// Zeroes a range that lies in one chunk.
    fn zero_part(&mut self, from: u64, to: u64) {
        let no = from / CHUNK as u64;
        if from < to && self.chunk(no).is_some() {
            let start = (from % CHUNK as u64) as usize;
            if let Some(chunk) = self.slot(no) {
                Arc::make_mut(chunk)[start..start + (to - from) as usize].fill(0);
            }
        }
    }

    fn drop_chunks(&mut self, first: u64, last: u64) {
        if first == last {
            return;
        }
        let touched: Vec<u64> = self.nodes.range(first / FAN..=(last - 1) / FAN).map(|(no, _)| *no).collect();
        for no in touched {
            let from = first.saturating_sub(no * FAN) as usize;
            let to = (last - no * FAN).min(FAN) as usize;
            let Some(node) = self.nodes.get_mut(&no) else { continue };
            let outside_is_empty = node[..from].iter().chain(&node[to..]).all(Option::is_none);
            if outside_is_empty {
                self.nodes.remove(&no);
            } else {
                Arc::make_mut(node)[from..to].fill(None);
            }
        }
    }

    fn resize(&mut self, size: u64) {
        if size < self.size {
            self.discard(size, self.size - size);
        }
        self.size = size;
    }
}

/// Chunk number, start in it, and length of the first piece of a range.
fn piece(offset: u64, len: usize) -> (u64, usize, usize) {
    let start = (offset % CHUNK as u64) as usize;
    (offset / CHUNK as u64, start, len.min(CHUNK - start))
}
