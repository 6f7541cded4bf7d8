//! Reads of the device for one call, without the lock where possible.
//!
//! A call that misses the cache gives up with [`Error::Restart`]. Its caller takes the read that it wanted
//! ([`Reads::take_reason`]), drops the lock, reads ([`Fetch::read`]), and runs the call again, which gets the bytes
//! from [`Reads::begin`]. The device is read under the lock only if no other call is under way, if the call has
//! restarted too often, or after [`Reads::stay`], which precedes the call's first change. Bytes that were read without
//! the lock are dropped if a write or discard of the same range was submitted ([`Reads::submit`]) since.
//!
//! Called by `machine.rs` and by the engines that use it.

use arbor_base::device::{Device, Kind, Request, Ticket, zeroed};
use arbor_base::vfs::{Error, Result};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;

/// Number of writes that are remembered. Older reads count as overtaken.
const WRITES: usize = 256;

/// A read that a call wants.
#[derive(Clone, Debug)]
pub struct Fetch {
    kind: Kind,
    at: u64,
    len: usize,
    /// Number of the last write submitted before it.
    after: u64,
}

impl Fetch {
    fn meets(&self, range: &Range<u64>) -> bool {
        range.start < self.at.saturating_add(self.len as u64) && self.at < range.end
    }

    /// Reads it.
    pub fn read(self, device: &dyn Device) -> Arrived {
        let mut bytes = zeroed(self.len);
        let bytes = device.read_at(self.kind, self.at, &mut bytes).map(|()| bytes);
        Arrived { fetch: self, bytes }
    }
}

/// The bytes that were read.
#[derive(Debug)]
pub struct Arrived {
    fetch: Fetch,
    bytes: io::Result<Vec<u8>>,
}

/// The reads of the call that runs, and the writes that may overtake them.
#[derive(Debug, Default)]
pub struct Reads {
    lifts: bool,
    want: Option<Fetch>,
    arrived: Option<Arrived>,
    /// Newest last, with its number.
    writes: VecDeque<(u64, Range<u64>)>,
    count: u64,
}

impl Reads {
    /// Begins a call. `lifts`: it may restart, so it gives up rather than read under the lock.
    pub fn begin(&mut self, lifts: bool, arrived: Option<Arrived>) {
        self.lifts = lifts;
        self.want = None;
        self.arrived = arrived.filter(|a| !self.is_overtaken(&a.fetch));
    }

    /// Called before the first change: from here on the call does not restart.
    pub fn stay(&mut self) {
        self.lifts = false;
    }

    /// Ends the call; keeps the read that it gave up for, for [`take_reason`](Self::take_reason).
    pub fn end(&mut self) {
        self.lifts = false;
        self.arrived = None;
    }

    /// Whether the call may still restart.
    pub fn may_restart(&self) -> bool {
        self.lifts
    }

    /// The read for which the call has given up.
    pub fn take_reason(&mut self) -> Option<Fetch> {
        self.want.take()
    }

    /// Reads `len` bytes at byte `at`, or fails with [`Error::Restart`] to read them without the lock.
    pub fn read(&mut self, device: &dyn Device, kind: Kind, at: u64, len: usize) -> Result<Vec<u8>> {
        match self.arrived.take() {
            Some(a) if a.fetch.at == at && a.fetch.len == len => return Ok(a.bytes?),
            other => self.arrived = other,
        }
        if self.lifts {
            self.want = Some(Fetch { kind, at, len, after: self.count });
            return Err(Error::Restart);
        }
        self.read_now(device, kind, at, len)
    }

    /// Reads under the lock, whatever may have arrived: to reread a block that failed its checksum.
    pub fn read_now(&mut self, device: &dyn Device, kind: Kind, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = zeroed(len);
        device.read_at(kind, at, &mut bytes)?;
        Ok(bytes)
    }

    /// Submits writes and discards, which overtake reads that are under way.
    pub fn submit(&mut self, device: &dyn Device, batch: Vec<Request>) -> Ticket {
        batch.iter().for_each(|r| self.wrote(r.offset..r.offset.saturating_add(r.len())));
        device.submit(batch)
    }

    fn wrote(&mut self, range: Range<u64>) {
        self.arrived.take_if(|a| a.fetch.meets(&range));
        self.count += 1;
        self.writes.push_back((self.count, range));
        if self.writes.len() > WRITES {
            self.writes.pop_front();
        }
    }

    fn is_overtaken(&self, fetch: &Fetch) -> bool {
        let forgotten = self.writes.front().is_some_and(|w| w.0 > fetch.after + 1);
        forgotten || self.writes.iter().rev().take_while(|w| w.0 > fetch.after).any(|w| fetch.meets(&w.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arbor_base::device::{MemDevice, SECTOR};

    const LEN: usize = SECTOR;

    fn wants(reads: &mut Reads, dev: &MemDevice, at: u64) -> Arrived {
        reads.begin(true, None);
        assert!(matches!(reads.read(dev, Kind::Data, at, LEN), Err(Error::Restart)));
        reads.end();
        reads.take_reason().unwrap().read(dev)
    }

    #[test]
    fn what_has_arrived_is_read_once() {
        let (mut reads, dev) = (Reads::default(), MemDevice::new(1 << 16));
        dev.write_at(Kind::Data, 0, &[7; LEN]).unwrap();
        let arrived = wants(&mut reads, &dev, 0);
        reads.begin(true, Some(arrived));
        assert!(matches!(reads.read(&dev, Kind::Data, 4096, LEN), Err(Error::Restart)), "another place");
        assert_eq!(reads.read(&dev, Kind::Data, 0, LEN).unwrap(), [7; LEN]);
        assert!(matches!(reads.read(&dev, Kind::Data, 0, LEN), Err(Error::Restart)));
        reads.stay();
        assert_eq!(reads.read(&dev, Kind::Data, 0, LEN).unwrap(), [7; LEN]);
    }

    #[test]
    fn what_the_call_itself_has_overtaken_is_read_again() {
        let (mut reads, dev) = (Reads::default(), MemDevice::new(1 << 16));
        let arrived = wants(&mut reads, &dev, 0);
        reads.begin(true, Some(arrived));
        reads.stay();
        let batch = vec![Request::write(Kind::Data, 0, vec![vec![9; LEN].into()])];
        reads.submit(&dev, batch).wait_all().unwrap();
        assert_eq!(reads.read(&dev, Kind::Data, 0, LEN).unwrap(), [9; LEN]);
    }

    #[test]
    fn what_was_overtaken_by_a_write_is_read_again() {
        let (mut reads, dev) = (Reads::default(), MemDevice::new(1 << 16));
        for (range, overtaken) in [(4096..8192, false), (0..512, true), (100..101, true)] {
            let arrived = wants(&mut reads, &dev, 0);
            reads.wrote(range);
            reads.begin(true, Some(arrived));
            assert_eq!(reads.read(&dev, Kind::Data, 0, LEN).is_err(), overtaken);
        }
        let arrived = wants(&mut reads, &dev, 0);
        (0..=WRITES as u64).for_each(|n| reads.wrote(4096 * n + 512..4096 * n + 513));
        reads.begin(true, Some(arrived));
        assert!(reads.read(&dev, Kind::Data, 0, LEN).is_err(), "writes that are forgotten");
    }
}
