//! A device with sectors that cannot be read, for a checker.

use super::{Completion, Device, Geometry, Kind, Op, Pending, Request, SECTOR, Ticket};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Most sectors that are noted; if more cannot be read, reads fail.
const MOST: usize = 4096;

/// Wraps a device and notes sectors that cannot be read. For a checker that changes nothing they read as zeros, so that
/// it sees the rest; otherwise the read fails as it did. Clones are handles of the same device.
#[derive(Clone)]
pub struct PatientDevice {
    inner: Arc<dyn Device>,
    zeros: bool,
    unread: Arc<Mutex<BTreeMap<u64, String>>>,
}

/// Whether a read has failed because of the medium, not because the request was refused.
fn is_of_the_medium(e: &io::Error) -> bool {
    use io::ErrorKind as E;
    let others = [
        E::InvalidInput,
        E::PermissionDenied,
        E::UnexpectedEof,
        E::Unsupported,
        E::OutOfMemory,
        E::Interrupted,
        E::TimedOut,
        E::StaleNetworkFileHandle,
        E::NotFound,
    ];
    !others.contains(&e.kind())
}

impl PatientDevice {
    /// Wraps a device; with `zeros`, what cannot be read reads as zeros.
    pub fn new(inner: Arc<dyn Device>, zeros: bool) -> PatientDevice {
        PatientDevice { inner, zeros, unread: Arc::default() }
    }

    /// The runs that could not be read, in the order of their addresses, each with the error of its first sector.
    pub fn unread(&self) -> Vec<(Range<u64>, String)> {
        let mut runs: Vec<(Range<u64>, String)> = Vec::new();
        for (at, why) in self.unread.lock().iter() {
            match runs.last_mut() {
                Some((run, _)) if run.end == *at => run.end += SECTOR as u64,
                _ => runs.push((*at..at + SECTOR as u64, why.clone())),
            }
        }
        runs
    }

    /// Repeats a failed read in halves; notes the sectors that fail on their own.
    fn read_in_halves(&self, kind: Kind, offset: u64, buf: &mut [u8], e: io::Error) -> io::Result<()> {
        if !is_of_the_medium(&e) {
            return Err(e);
        }
        if buf.len() <= SECTOR {
            let mut unread = self.unread.lock();
            let is_noted = unread.contains_key(&offset) || unread.len() < MOST;
            if is_noted {
                unread.insert(offset, e.to_string());
            }
            buf.fill(0);
            return if self.zeros && is_noted { Ok(()) } else { Err(e) };
        }
        let (a, b) = buf.split_at_mut((buf.len() / SECTOR).div_ceil(2) * SECTOR);
        let second = offset + a.len() as u64;
        self.read_at(kind, offset, a)?;
        self.read_at(kind, second, b)
    }

    fn complete(&self, (kind, offset, len): (Kind, u64, Option<usize>), done: Completion) -> Completion {
        let (Err(e), Some(len)) = (&done, len) else { return done };
        let mut bytes = vec![0; len];
        let e = io::Error::new(e.kind(), e.to_string());
        self.read_in_halves(kind, offset, &mut bytes, e).map(|()| bytes)
    }
}

/// A batch under way, with what its reads were to read.
struct Reads {
    device: PatientDevice,
    ticket: Ticket,
    requests: Vec<(Kind, u64, Option<usize>)>,
}

impl Pending for Reads {
    fn wait(self: Box<Self>) -> Vec<Completion> {
        let Reads { device, ticket, requests } = *self;
        requests.into_iter().zip(ticket.wait()).map(|(r, done)| device.complete(r, done)).collect()
    }

    fn is_done(&self) -> bool {
        self.ticket.is_done()
    }
}

impl Device for PatientDevice {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let length = |r: &Request| if let Op::Read(len) = r.op { Some(len) } else { None };
        let requests = batch.iter().map(|r| (r.kind, r.offset, length(r))).collect();
        let ticket = self.inner.submit(batch);
        Ticket::pending(Box::new(Reads { device: self.clone(), ticket, requests }))
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn recycle(&self, buffer: Vec<u8>) {
        self.inner.recycle(buffer);
    }

    fn confine(&self, range: Range<u64>) {
        self.inner.confine(range);
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.inner.set_size(size)
    }

    fn read_at(&self, kind: Kind, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match self.inner.read_at(kind, offset, buf) {
            Err(e) => self.read_in_halves(kind, offset, buf, e),
            done => done,
        }
    }

    fn write_at(&self, kind: Kind, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.inner.write_at(kind, offset, buf)
    }
}
