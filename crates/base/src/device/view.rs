//! A window of a larger device.

use super::check::{Access, check_range, check_request, submit_admitted, whole_sectors};
use super::{Claim, Device, Geometry, Kind, Request, Ticket};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A part of another device, for a file system inside a larger file. Requests that leave the
/// window fail without reaching the device behind it.
#[derive(Clone, Debug)]
pub struct OffsetDevice<D> {
    inner: D,
    start: u64,
    len: u64,
}

impl<D: Device> OffsetDevice<D> {
    /// The `len` bytes of `inner` from `start`, both multiples of [`super::SECTOR`].
    pub fn new(inner: D, start: u64, len: u64) -> io::Result<OffsetDevice<D>> {
        whole_sectors(start)?;
        whole_sectors(len)?;
        let size = inner.geometry().size;
        if start.checked_add(len).is_none_or(|end| end > size) {
            let text = format!("a window of {len} bytes at {start} does not fit a device of {size} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(OffsetDevice { inner, start, len })
    }

    /// The device behind the window.
    pub fn into_inner(self) -> D {
        self.inner
    }
}

impl<D: Device> Device for OffsetDevice<D> {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.len, ..self.inner.geometry() }
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let geometry = self.geometry();
        submit_admitted(&self.inner, batch, |request| {
            check_request(&geometry, &request)?;
            Ok(Request { offset: self.start + request.offset, ..request })
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn recycle(&self, buffer: Vec<u8>) {
        self.inner.recycle(buffer);
    }

    fn confine(&self, range: Range<u64>) {
        self.inner.confine(self.start.saturating_add(range.start)..self.start.saturating_add(range.end));
    }

    fn claim(&self) -> Option<Arc<Claim>> {
        self.inner.claim()
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        let (start, len) = (self.start, self.len);
        let text = format!("a window of a larger device (offset {start}, {len} bytes) cannot become {size} bytes");
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    fn read_at(&self, kind: Kind, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(&self.geometry(), Access::Read, offset, buf.len() as u64)?;
        self.inner.read_at(kind, self.start + offset, buf)
    }

    fn write_at(&self, kind: Kind, offset: u64, buf: &[u8]) -> io::Result<()> {
        check_range(&self.geometry(), Access::Write, offset, buf.len() as u64)?;
        self.inner.write_at(kind, self.start + offset, buf)
    }
}
