//! The device under a damaged image: counts what is asked of it and notes what goes astray.

use arbor_base::device::{Device, Geometry, Kind, MemDevice, Op, Request, SECTOR, Ticket};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that cost as much as a request.
const UNIT: u64 = 4096;

/// What is noted across all devices of one mutant.
#[derive(Debug)]
pub(super) struct Account {
    left: AtomicU64,
    astray: Mutex<Option<String>>,
}

impl Account {
    /// Allows so many requests, a long one counting for several; more are taken for a hang.
    pub fn new(requests: u64) -> Account {
        Account { left: AtomicU64::new(requests), astray: Mutex::new(None) }
    }

    /// The first request that no engine may make.
    pub fn astray(&self) -> Option<String> {
        self.astray.lock().clone()
    }

    fn note(&self, geometry: &Geometry, what: &str, offset: u64, len: u64) {
        let inside = offset.checked_add(len).is_some_and(|end| end <= geometry.size);
        let aligned = (offset | len).is_multiple_of(SECTOR as u64);
        if !inside || !aligned || (geometry.read_only && what != "read") {
            self.astray.lock().get_or_insert_with(|| format!("{what} of {len} bytes at byte {offset:#x}"));
        }
        let cost = 1 + if what == "discard" { 0 } else { len / UNIT };
        if self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(cost)).is_err() {
            panic!("more requests to the device than any image of this size needs");
        }
    }
}

/// A disk whose requests are noted.
pub(super) struct Guard {
    pub disk: MemDevice,
    pub account: Arc<Account>,
}

impl Device for Guard {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let geometry = self.disk.geometry();
        for r in &batch {
            let what = match r.op {
                Op::Read(_) => "read",
                Op::Write(_) => "write",
                Op::Discard(_) => "discard",
            };
            self.account.note(&geometry, what, r.offset, r.len());
        }
        self.disk.submit(batch)
    }

    fn flush(&self) -> io::Result<()> {
        self.account.note(&self.disk.geometry(), "read", 0, 0);
        self.disk.flush()
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.disk.set_size(size)
    }

    fn read_at(&self, kind: Kind, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.account.note(&self.disk.geometry(), "read", offset, buf.len() as u64);
        self.disk.read_at(kind, offset, buf)
    }

    fn write_at(&self, kind: Kind, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.account.note(&self.disk.geometry(), "write", offset, buf.len() as u64);
        self.disk.write_at(kind, offset, buf)
    }
}
