//! A device that trusts nothing that a failed flush was to make durable.

use super::check::submit_admitted;
use super::{Claim, Completion, Device, Geometry, Kind, Op, Pending, Request, Ticket};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Ranges of bytes; those that meet are one.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn insert(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        while let Some((&from, &to)) = self.0.range(..=end).next_back().filter(|(_, to)| **to >= start) {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    fn meet(&self, range: &Range<u64>) -> bool {
        self.0.range(..range.end).next_back().is_some_and(|(_, end)| *end > range.start)
    }
}

#[derive(Debug, Default)]
struct Written {
    /// Bytes written since the last flush.
    since: Ranges,
    /// Those of a flush that failed.
    lost: Ranges,
    /// Counts the flushes that have begun.
    flushes: u64,
}

#[derive(Debug, Default)]
struct State {
    written: Mutex<Written>,
    has_lost: AtomicBool,
}

impl State {
    /// Notes writes; returns how many flushes have begun before them.
    fn note(&self, ranges: &[Range<u64>]) -> u64 {
        let written = &mut *self.written.lock();
        ranges.iter().for_each(|range| written.since.insert(range.clone()));
        written.flushes
    }

    /// Notes them once more, now that they are complete: a flush that has begun meanwhile does not cover them.
    fn complete(&self, ranges: &[Range<u64>], before: u64) {
        if self.written.lock().flushes != before {
            self.note(ranges);
        }
    }

    fn admit(&self, request: Request) -> io::Result<Request> {
        match request.op {
            Op::Read(len) => self.check(request.kind, request.offset, len as u64).map(|()| request),
            _ => Ok(request),
        }
    }

    fn check(&self, kind: Kind, offset: u64, len: u64) -> io::Result<()> {
        let range = offset..offset.saturating_add(len);
        match kind == Kind::Data && self.has_lost.load(SeqCst) && self.written.lock().lost.meet(&range) {
            true => Err(io::Error::other(
                "the device may have lost these data: a flush of it failed after they were written",
            )),
            false => Ok(()),
        }
    }
}

/// Wraps a device. After a flush that failed, writes that had completed may be lost, and what is read in their place may
/// be what another file left there: what was written since the flush before it cannot be read as file data any more. Of
/// metadata engines keep what is not durable.
pub struct WaryDevice {
    inner: Arc<dyn Device>,
    state: Arc<State>,
}

impl WaryDevice {
    /// Wraps a device, for one mount.
    pub fn over(inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(WaryDevice { inner, state: Arc::default() })
    }
}

/// A batch with writes. What completes after a flush has begun is not covered by it.
struct Writes {
    ticket: Ticket,
    state: Arc<State>,
    ranges: Vec<Range<u64>>,
    flushes: u64,
}

impl Pending for Writes {
    fn wait(self: Box<Self>) -> Vec<Completion> {
        let done = self.ticket.wait();
        self.state.complete(&self.ranges, self.flushes);
        done
    }

    fn is_done(&self) -> bool {
        self.ticket.is_done()
    }
}

impl Device for WaryDevice {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let is_write = |r: &&Request| matches!(r.op, Op::Write(_));
        let range = |r: &Request| r.offset..r.offset.saturating_add(r.len());
        let ranges: Vec<Range<u64>> = batch.iter().filter(is_write).map(range).collect();
        if ranges.is_empty() {
            return submit_admitted(&*self.inner, batch, |r| self.state.admit(r));
        }
        let flushes = self.state.note(&ranges);
        let ticket = submit_admitted(&*self.inner, batch, |r| self.state.admit(r));
        Ticket::pending(Box::new(Writes { ticket, state: self.state.clone(), ranges, flushes }))
    }

    fn flush(&self) -> io::Result<()> {
        let covered = {
            let written = &mut *self.state.written.lock();
            written.flushes += 1;
            std::mem::take(&mut written.since)
        };
        self.inner.flush().inspect_err(|_| {
            // Those that came meanwhile may be lost as well.
            let written = &mut *self.state.written.lock();
            let all = covered.0.into_iter().chain(std::mem::take(&mut written.since).0);
            all.for_each(|(start, end)| written.lost.insert(start..end));
            self.state.has_lost.store(true, SeqCst);
        })
    }

    fn recycle(&self, buffer: Vec<u8>) {
        self.inner.recycle(buffer);
    }

    fn confine(&self, range: Range<u64>) {
        self.inner.confine(range);
    }

    fn claim(&self) -> Option<Arc<Claim>> {
        self.inner.claim()
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.inner.set_size(size)
    }

    fn read_at(&self, kind: Kind, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.state.check(kind, offset, buf.len() as u64)?;
        self.inner.read_at(kind, offset, buf)
    }

    fn write_at(&self, kind: Kind, offset: u64, buf: &[u8]) -> io::Result<()> {
        let range = offset..offset.saturating_add(buf.len() as u64);
        let flushes = self.state.note(std::slice::from_ref(&range));
        let done = self.inner.write_at(kind, offset, buf);
        self.state.complete(std::slice::from_ref(&range), flushes);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FaultDevice, FaultOp, FaultTimes, MemDevice, SECTOR};
    use super::*;

    fn read(device: &dyn Device, sector: usize) -> io::Result<u8> {
        let mut bytes = [0; SECTOR];
        device.read_at(Kind::Data, (sector * SECTOR) as u64, &mut bytes)?;
        let request = Request::read(Kind::Data, (sector * SECTOR) as u64, SECTOR);
        assert_eq!(device.submit(vec![request]).wait().remove(0)?, bytes);
        Ok(bytes[0])
    }

    fn write(device: &dyn Device, sector: usize) -> Ticket {
        let bytes = vec![9; SECTOR].into();
        device.submit(vec![Request::write(Kind::Data, (sector * SECTOR) as u64, vec![bytes])])
    }

    #[test]
    fn what_a_failed_flush_was_to_cover_cannot_be_read() {
        let faulty = FaultDevice::new(MemDevice::new(1 << 20));
        let device = WaryDevice::over(Arc::new(faulty.clone()));
        write(&*device, 0).wait_all().unwrap();
        device.flush().unwrap();
        let under_way = write(&*device, 3);
        device.flush().unwrap();
        under_way.wait_all().unwrap();
        device.write_at(Kind::Data, SECTOR as u64, &[9; SECTOR]).unwrap();
        assert_eq!(read(&*device, 1).unwrap(), 9);
        faulty.fail(FaultOp::Flush, 3, FaultTimes::Once);
        assert!(device.flush().is_err());
        device.flush().unwrap();
        assert_eq!([0, 2].map(|sector| read(&*device, sector).ok()), [Some(9), Some(0)], "flushed, or never written");
        assert_eq!([1, 3].map(|sector| read(&*device, sector).ok()), [None; 2], "written since");
    }

    #[test]
    fn ranges_that_meet_are_one() {
        let mut all = Ranges::default();
        [(8, 10), (0, 4), (20, 30), (4, 6), (5, 9), (18, 21)].iter().for_each(|(a, b)| all.insert(*a..*b));
        assert_eq!(all.0.into_iter().collect::<Vec<_>>(), [(0, 10), (18, 30)]);
        let mut all = Ranges::default();
        all.insert(4..8);
        assert_eq!([0..4, 3..5, 7..9, 8..12].map(|range| all.meet(&range)), [false, true, true, false]);
    }
}
