//! A device whose changes are kept in memory only.

use super::check::{check_new_size, check_request};
use super::{Completion, Device, Geometry, Op, Request, SECTOR, Ticket};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// Unit in which changes are kept, in bytes.
const CHUNK: usize = 4096;

/// Wraps a device, keeps what is written in memory and never writes below: for a recovery that must leave the device as
/// it is. What it keeps is bounded; writes that need more fail.
pub struct OverlayDevice<D> {
    inner: D,
    chunks: RwLock<BTreeMap<u64, Box<[u8; CHUNK]>>>,
    most: usize,
}

impl<D: Device> OverlayDevice<D> {
    /// Wraps `inner`, which may be read-only, and keeps at most `most` bytes.
    pub fn new(inner: D, most: u64) -> OverlayDevice<D> {
        let most = usize::try_from(most / CHUNK as u64).unwrap_or(usize::MAX);
        OverlayDevice { inner, chunks: RwLock::default(), most }
    }

    /// Bytes of memory in use for what was written.
    pub fn kept(&self) -> u64 {
        (self.chunks.read().len() * CHUNK) as u64
    }

    fn run(&self, request: &Request) -> Completion {
        check_request(&self.geometry(), request)?;
        match &request.op {
            Op::Read(len) => self.read(request, *len),
            Op::Write(bufs) => {
                let mut at = request.offset;
                for buf in bufs {
                    self.write(request, at, buf.bytes())?;
                    at = at.saturating_add(buf.len() as u64);
                }
                Ok(Vec::new())
            }
            // The old bytes may be read from it.
            Op::Discard(_) => Ok(Vec::new()),
        }
    }

    fn read(&self, request: &Request, len: usize) -> Completion {
        let mut bytes = vec![0; len];
        self.inner.read_at(request.kind, request.offset, &mut bytes)?;
        let chunks = self.chunks.read();
        let end = request.offset.saturating_add(len as u64);
        let touched = request.offset / CHUNK as u64..end.div_ceil(CHUNK as u64);
        for (number, chunk) in chunks.range(touched) {
            let (into, from) = common(*number, request.offset..end);
            if let (Some(into), Some(from)) = (bytes.get_mut(into), chunk.get(from)) {
                into.copy_from_slice(from);
            }
        }
        Ok(bytes)
    }

    fn write(&self, request: &Request, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        let mut chunks = self.chunks.write();
        for number in offset / CHUNK as u64..end.div_ceil(CHUNK as u64) {
            if !chunks.contains_key(&number) {
                if chunks.len() >= self.most {
                    let text = format!("more than {} bytes would have to be kept in memory", self.most * CHUNK);
                    return Err(io::Error::new(io::ErrorKind::StorageFull, text));
                }
                chunks.insert(number, self.chunk_below(request, number)?);
            }
            let (from, into) = common(number, offset..end);
            let chunk = chunks.get_mut(&number).and_then(|chunk| chunk.get_mut(into));
            if let (Some(into), Some(from)) = (chunk, bytes.get(from)) {
                into.copy_from_slice(from);
            }
        }
        Ok(())
    }

    /// A chunk as it lies on the device, which may end in it.
    fn chunk_below(&self, request: &Request, number: u64) -> io::Result<Box<[u8; CHUNK]>> {
        let mut chunk = Box::new([0; CHUNK]);
        let offset = number * CHUNK as u64;
        let there = self.inner.geometry().size.saturating_sub(offset).min(CHUNK as u64) as usize;
        if let Some(part) = chunk.get_mut(..there).filter(|part| !part.is_empty()) {
            self.inner.read_at(request.kind, offset, part)?;
        }
        Ok(chunk)
    }
}

/// The intersection of a chunk and a range of the device, as positions in the range and in the chunk.
fn common(number: u64, range: Range<u64>) -> (Range<usize>, Range<usize>) {
    let chunk = number * CHUNK as u64;
    let (first, end) = (range.start.max(chunk), range.end.min(chunk + CHUNK as u64));
    let place = |start: u64| first.saturating_sub(start) as usize..end.saturating_sub(start) as usize;
    (place(range.start), place(chunk))
}

impl<D: Device> Device for OverlayDevice<D> {
    fn geometry(&self) -> Geometry {
        Geometry { discard_unit: 0, read_only: false, ..self.inner.geometry() }
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        Ticket::done(batch.iter().map(|request| self.run(request)).collect())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        check_new_size(&self.geometry(), size)?;
        match size == self.geometry().size {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::Unsupported, "a device in memory over another keeps its size")),
        }
    }
}

const _: () = assert!(CHUNK.is_multiple_of(SECTOR));
