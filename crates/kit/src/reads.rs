//! Reads of the device for one call, without the lock where possible.
//!
//! A call that misses the cache gives up with [`Error::Restart`]. Its caller takes the read that it wanted
//! ([`Reads::take_reason`]), drops the lock, reads ([`Missing::read`]), and runs the call again, which finds all bytes
//! that were read for it so far ([`Reads::begin`]). The device is read under the lock only while no other call runs, if
//! the call has restarted too often, after [`Reads::stay`], which precedes the call's first change, and to look once more
//! at what is damaged ([`Reads::read_now`]). Bytes that were read without the lock are dropped if a write or discard of the same range was submitted ([`Reads::submit`]) since.
//!
//! Where an engine asks for it ([`Reads::read_ahead`]), what lies beside comes with what is read, in windows of the device.
//!
//! Called by `machine.rs` and by the engines that use it.

use arbor_base::cache::windows::{Window, Windows};
use arbor_base::device::{Device, Kind, Request, Ticket, zeroed};
use arbor_base::sync::Rank;
use arbor_base::vfs::{Error, Result};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Number of writes that are remembered. Older reads count as overtaken.
const WRITES: usize = 256;

/// A read that a call wants.
#[derive(Clone, Debug)]
struct Fetch {
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

    fn read(self, device: &dyn Device) -> Arrived {
        let mut bytes = zeroed(self.len);
        let bytes = device.read_at(self.kind, self.at, &mut bytes).map(|()| bytes);
        Arrived { fetch: self, bytes }
    }
}

/// The bytes that were read for a call.
#[derive(Debug)]
pub struct Arrived {
    fetch: Fetch,
    bytes: io::Result<Vec<u8>>,
}

impl Arrived {
    fn bytes(&self) -> io::Result<Vec<u8>> {
        self.bytes.as_ref().map(Vec::clone).map_err(|e| match e.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(e.kind(), e.to_string()),
        })
    }
}

/// The reason why a call has given up: the read that it wants, and those that were done for it before.
#[derive(Debug)]
pub struct Missing {
    fetch: Fetch,
    /// It lies in this window, which is read instead.
    window: Option<InWindow>,
    arrived: Vec<Arrived>,
}

/// A window to be waited for.
struct InWindow(Arc<Window>);

impl std::fmt::Debug for InWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a window")
    }
}

impl Missing {
    /// Does the missing read. Returns all bytes that were read for the call.
    pub fn read(mut self, device: &dyn Device) -> Vec<Arrived> {
        match self.window {
            // The call finds it, unless it is out of date by then.
            Some(InWindow(window)) => drop(window.bytes(device, WINDOW)),
            None => self.arrived.push(self.fetch.read(device)),
        }
        self.arrived
    }
}

/// Kind of the reads of windows: what is in them is checked by those that take it out.
const WINDOW: Kind = Kind::Data;

/// When a call gives up rather than read the device under the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// Never: it has changed something, or restarted too often.
    #[default]
    Never,
    /// It began alone: if another one is under way by then.
    NotAlone,
    /// Others were under way when it began.
    Always,
}

/// Reads so many blocks, or, where they cannot be read together, the first one: nobody has asked for the others.
pub fn or_first(blocks: usize, mut read: impl FnMut(usize) -> Result<Vec<u8>>) -> Result<Vec<u8>> {
    match read(blocks) {
        Err(Error::Io(_)) if blocks > 1 => read(1),
        found => found,
    }
}

/// Reads what can be read, a unit of so many bytes at a time where it has to be. What cannot is zeros; returns which units that are.
pub fn what_can_be_read(dev: &dyn Device, kind: Kind, at: u64, bytes: &mut [u8], unit: usize) -> Vec<usize> {
    if dev.read_at(kind, at, bytes).is_ok() {
        return Vec::new();
    }
    let mut unread = Vec::new();
    for (n, (at, one)) in (at..).step_by(unit).zip(bytes.chunks_mut(unit)).enumerate() {
        if dev.read_at(kind, at, one).is_err() {
            one.fill(0);
            unread.push(n);
        }
    }
    unread
}

/// The reads of the call that runs, and the writes that may overtake them.
#[derive(Default)]
pub struct Reads {
    restart: Restart,
    /// Calls that are under way.
    callers: Arc<AtomicUsize>,
    want: Option<(Fetch, Option<InWindow>)>,
    windows: Option<Windows>,
    arrived: Vec<Arrived>,
    /// Newest last, with its number.
    writes: VecDeque<(u64, Range<u64>)>,
    count: u64,
}

impl Reads {
    /// The number of calls that are under way, which those who make them keep.
    pub fn callers(&self) -> Arc<AtomicUsize> {
        self.callers.clone()
    }

    /// Begins a call, or restarts it. `arrived`: the bytes that were read for it before.
    pub fn begin(&mut self, restart: Restart, mut arrived: Vec<Arrived>) {
        self.restart = restart;
        self.want = None;
        arrived.retain(|a| !self.is_overtaken(&a.fetch));
        self.arrived = arrived;
    }

    /// Called before the first change: from here on the call does not restart.
    pub fn stay(&mut self) {
        self.restart = Restart::Never;
    }

    /// Ends the call; keeps the read that it gave up for until [`take_reason`](Self::take_reason).
    pub fn end(&mut self) {
        self.restart = Restart::Never;
        if self.want.is_none() {
            self.arrived.clear();
        }
    }

    /// Whether the call may still restart.
    pub fn may_restart(&self) -> bool {
        self.restart != Restart::Never
    }

    /// Whether the call gives up rather than read now.
    fn gives_way(&self) -> bool {
        match self.restart {
            Restart::Never => false,
            Restart::NotAlone => self.callers.load(Relaxed) > 1,
            Restart::Always => true,
        }
    }

    /// Takes the read for which the call has given up, with the bytes that were read for it before.
    pub fn take_reason(&mut self) -> Option<Missing> {
        let (fetch, window) = self.want.take()?;
        Some(Missing { fetch, window, arrived: std::mem::take(&mut self.arrived) })
    }

    /// From here on windows of the device are read, which take at most `limit` bytes. For engines that wait for their writes
    /// with the state locked. All writes and discards have to be [submitted](Self::submit) here.
    pub fn read_ahead(&mut self, device: &dyn Device, limit: usize) {
        let mut windows = Windows::new(Rank(1), device.geometry().size, limit);
        windows.set_thrifty();
        self.windows = Some(windows);
    }

    /// How many bytes from `at` on lie in one window, or come with one read.
    pub fn at_once(&self, at: u64) -> u64 {
        self.windows.as_ref().map_or(u64::MAX, |windows| windows.window_len() - at % windows.window_len())
    }

    /// Counters, as [`FileSystem::counters`](arbor_base::vfs::FileSystem::counters) has them.
    pub fn counters(&self) -> [(&'static str, u64); 2] {
        let of = |f: fn(&Windows) -> u64| self.windows.as_ref().map_or(0, f);
        [("windows_read", of(Windows::made)), ("windows_hits", of(Windows::hits))]
    }

    /// The bytes of a range out of its window, if it has one.
    fn in_window(&mut self, device: &dyn Device, fetch: &Fetch) -> Result<Option<Vec<u8>>> {
        let Some(windows) = &mut self.windows else { return Ok(None) };
        let window = windows.find(fetch.at, fetch.len as u64, true);
        windows.run_on().iter().for_each(|next| next.start(device, WINDOW));
        let Some(window) = window else { return Ok(None) };
        if self.gives_way() && !window.is_ready() {
            self.want = Some((fetch.clone(), Some(InWindow(window))));
            return Err(Error::Restart);
        }
        let place = window.place(fetch.at);
        let bytes = window.bytes(device, WINDOW);
        // What cannot be read with others is read by itself.
        Ok(bytes.and_then(|bytes| bytes.get(place..place + fetch.len).map(<[u8]>::to_vec)))
    }

    /// Reads `len` bytes at byte `at`, or fails with [`Error::Restart`] to read them without the lock.
    pub fn read(&mut self, device: &dyn Device, kind: Kind, at: u64, len: usize) -> Result<Vec<u8>> {
        // It stays there: the call may restart for another read after this one.
        if let Some(a) = self.arrived.iter().find(|a| a.fetch.at == at && a.fetch.len == len) {
            return Ok(a.bytes()?);
        }
        let fetch = Fetch { kind, at, len, after: self.count };
        if let Some(bytes) = self.in_window(device, &fetch)? {
            return Ok(bytes);
        }
        if self.gives_way() {
            self.want = Some((fetch, None));
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
        self.arrived.retain(|a| !a.fetch.meets(&range));
        if let Some(windows) = &mut self.windows {
            let numbers = windows.numbers([(range.start, range.end - range.start)].into_iter());
            windows.forget(&numbers);
        }
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

    fn wants(reads: &mut Reads, dev: &MemDevice, at: u64) -> Vec<Arrived> {
        reads.begin(Restart::Always, Vec::new());
        assert!(matches!(reads.read(dev, Kind::Data, at, LEN), Err(Error::Restart)));
        reads.end();
        reads.take_reason().unwrap().read(dev)
    }

    #[test]
    fn all_that_has_arrived_is_there_until_the_call_ends() {
        let (mut reads, dev) = (Reads::default(), MemDevice::new(1 << 16));
        dev.write_at(Kind::Data, 0, &[7; LEN]).unwrap();
        let arrived = wants(&mut reads, &dev, 0);
        reads.begin(Restart::Always, arrived);
        assert_eq!(reads.read(&dev, Kind::Data, 0, LEN).unwrap(), [7; LEN]);
        assert!(matches!(reads.read(&dev, Kind::Data, 0, 2 * LEN), Err(Error::Restart)), "more of it");
        reads.end();
        let arrived = reads.take_reason().unwrap().read(&dev);
        reads.begin(Restart::Always, arrived);
        assert_eq!(reads.read(&dev, Kind::Data, 0, LEN).unwrap(), [7; LEN], "the first of two");
        assert_eq!(reads.read(&dev, Kind::Data, 0, 2 * LEN).unwrap()[..LEN], [7; LEN]);
        reads.end();
        reads.begin(Restart::Always, Vec::new());
        assert!(matches!(reads.read(&dev, Kind::Data, 0, LEN), Err(Error::Restart)), "another call");
        reads.stay();
        assert_eq!(reads.read(&dev, Kind::Data, 0, LEN).unwrap(), [7; LEN]);
    }

    /// One that began alone keeps those waiting that come later no longer than for the read that it does.
    #[test]
    fn a_call_gives_way_as_soon_as_another_one_waits() {
        let (mut reads, dev) = (Reads::default(), MemDevice::new(1 << 16));
        reads.callers().store(1, Relaxed);
        reads.begin(Restart::NotAlone, Vec::new());
        assert_eq!(reads.read(&dev, Kind::Data, 0, LEN).unwrap(), [0; LEN]);
        reads.callers().store(2, Relaxed);
        assert!(matches!(reads.read(&dev, Kind::Data, 0, LEN), Err(Error::Restart)));
    }

    #[test]
    fn what_the_call_itself_has_overtaken_is_read_again() {
        let (mut reads, dev) = (Reads::default(), MemDevice::new(1 << 16));
        let arrived = wants(&mut reads, &dev, 0);
        reads.begin(Restart::Always, arrived);
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
            reads.begin(Restart::Always, arrived);
            assert_eq!(reads.read(&dev, Kind::Data, 0, LEN).is_err(), overtaken);
        }
        let arrived = wants(&mut reads, &dev, 0);
        (0..=WRITES as u64).for_each(|n| reads.wrote(4096 * n + 512..4096 * n + 513));
        reads.begin(Restart::Always, arrived);
        assert!(reads.read(&dev, Kind::Data, 0, LEN).is_err(), "writes that are forgotten");
    }

    #[test]
    fn neighbours_come_with_the_second_read_of_a_window_and_are_never_out_of_date() {
        let (mut reads, dev) = (Reads::default(), MemDevice::new(1 << 20));
        dev.write_at(Kind::Data, 0, &[7; 8 * LEN]).unwrap();
        reads.read_ahead(&dev, 1 << 19);
        let at_once = reads.at_once(0) as usize;
        let read = |reads: &mut Reads, n: usize| reads.read(&dev, Kind::Tree, (n * LEN) as u64, LEN).unwrap();
        reads.begin(Restart::Never, Vec::new());
        assert_eq!([read(&mut reads, 0), read(&mut reads, 1)], [[7; LEN], [7; LEN]]);
        assert_eq!(reads.counters(), [("windows_read", 1), ("windows_hits", 0)]);
        // Behind its back, to see that it is the window.
        dev.write_at(Kind::Data, 2 * LEN as u64, &[8; LEN]).unwrap();
        assert_eq!(read(&mut reads, 2), [7; LEN]);
        let batch = vec![Request::write(Kind::Data, 3 * LEN as u64, vec![vec![9; LEN].into()])];
        reads.submit(&dev, batch).wait_all().unwrap();
        assert_eq!([read(&mut reads, 2), read(&mut reads, 3)], [[8; LEN], [9; LEN]]);
        // A range in two windows is read by itself; a call that may restart waits without the lock.
        assert_eq!(reads.read(&dev, Kind::Data, (at_once - LEN) as u64, 2 * LEN).unwrap().len(), 2 * LEN);
        reads.end();
        reads.begin(Restart::Always, Vec::new());
        assert!(matches!(reads.read(&dev, Kind::Tree, at_once as u64, LEN), Err(Error::Restart)), "the next window");
        reads.end();
        let arrived = reads.take_reason().unwrap().read(&dev);
        assert!(arrived.is_empty());
        reads.begin(Restart::Always, arrived);
        assert_eq!(reads.read(&dev, Kind::Tree, at_once as u64, LEN).unwrap(), [0; LEN]);
    }
}
