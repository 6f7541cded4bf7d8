//! Read-ahead: windows of the device as they were read, whichever file their bytes belong to.
//!
//! A window is an aligned piece of the device. Neighbours on it (the inodes, the entries and the small files of one
//! directory) come with one read, in whatever order they are asked for; and a file that is read from its beginning on
//! is read before it is asked for.
//!
//! Typical sequence, the engine's state locked: [`Windows::find`] for a read that the cache does not
//! serve, [`Streams::read`] for what comes next in the file, [`Windows::ahead`] for windows of it.
//! Unlocked: [`Window::start`], [`Window::bytes`].
//!
//! The writer calls [`Windows::forget`] with the state locked: before a write to the device begins, and again when it
//! has ended, before the bytes written may leave the cache. So the bytes of a window that is found are up to date.

use super::worth::Worth;
use crate::device::{Device, Kind, Request, Ticket, zeroed};
use crate::sync::{Mutex, Rank};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

/// Length of a window, if the limit allows for enough of them.
const MOST_BYTES: usize = 256 << 10;
const LEAST_BYTES: usize = 4096;
/// Windows that a limit should have room for.
const ENOUGH: usize = 8;
/// Most missed windows that are remembered.
const MISSED: usize = 32;

enum State {
    /// Not read yet; with a buffer that an older window had.
    Wanted(Option<Vec<u8>>),
    Reading(Ticket),
    Ready(Arc<Vec<u8>>),
    Failed,
}

/// A piece of the device, read or about to be.
pub struct Window {
    offset: u64,
    len: usize,
    /// Asked without the lock, which a reader holds as long as it waits.
    is_ready: AtomicBool,
    state: Mutex<State>,
}

impl Window {
    /// Starts the read, unless that has been done.
    pub fn start(&self, device: &dyn Device, kind: Kind) {
        let mut state = self.state.lock();
        if let State::Wanted(old) = &mut *state {
            if let Some(old) = old.take() {
                device.recycle(old);
            }
            *state = State::Reading(device.submit(vec![Request::read(kind, self.offset, self.len)]));
        }
    }

    /// Whether its bytes are there, or cannot be read: nobody has to wait.
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Acquire)
    }

    /// Waits for the bytes; `None` if they cannot be read.
    pub fn bytes(&self, device: &dyn Device, kind: Kind) -> Option<Arc<Vec<u8>>> {
        let mut state = self.state.lock();
        let read = match std::mem::replace(&mut *state, State::Failed) {
            State::Ready(bytes) => Some(bytes),
            State::Failed => None,
            State::Reading(ticket) => ticket.wait().pop().and_then(Result::ok).map(Arc::new),
            State::Wanted(old) => {
                let mut bytes = old.unwrap_or_else(|| zeroed(self.len));
                device.read_at(kind, self.offset, &mut bytes).ok().map(|()| Arc::new(bytes))
            }
        };
        let read = read.filter(|b| b.len() == self.len);
        if let Some(bytes) = &read {
            *state = State::Ready(bytes.clone());
        }
        self.is_ready.store(true, Release);
        let bytes = read?;
        Some(bytes)
    }

    /// Where `offset` of the device lies in it.
    pub fn place(&self, offset: u64) -> usize {
        offset.saturating_sub(self.offset) as usize
    }
}

struct Entry {
    turn: u64,
    window: Arc<Window>,
    /// Read because of the windows before it, and not used yet.
    is_ahead: bool,
    /// Bytes that were asked for since, counted where windows have to pay.
    used: u64,
}

/// How many windows are read ahead of a run of used ones, at least and, where there is memory for them, at most.
const RUN_ON: u64 = 2;
const RUN_FAR: u64 = 6;

/// The windows of a device; the oldest are dropped when there are too many.
pub struct Windows {
    rank: Rank,
    size: u64,
    len: u64,
    most: usize,
    map: FxHashMap<u64, Entry>,
    /// Numbers of windows with the turn they were made in; some are gone already.
    order: VecDeque<(u64, u64)>,
    turn: u64,
    missed: VecDeque<u64>,
    /// A window whose use announces the next ones, and how many.
    runs_on: Option<u64>,
    run: u64,
    /// Buffers of dropped windows.
    spare: Vec<Vec<u8>>,
    hits: u64,
    /// None is made because something beside it was read.
    only_ahead: bool,
    /// Set if they are made only as long as they are used.
    worth: Option<Worth>,
}

/// Most spare buffers.
const SPARE: usize = 8;

impl Windows {
    /// Windows of a device of `size` bytes that take at most `limit` bytes; `rank` is that of their
    /// locks, above the lock of the state they are part of.
    pub fn new(rank: Rank, size: u64, limit: usize) -> Windows {
        let len = (limit / ENOUGH).checked_ilog2().map_or(0, |bits| 1 << bits).min(MOST_BYTES);
        let most = if len < LEAST_BYTES { 0 } else { limit / len };
        Windows {
            rank,
            size,
            len: len.max(LEAST_BYTES) as u64,
            most,
            map: FxHashMap::default(),
            order: VecDeque::new(),
            turn: 0,
            missed: VecDeque::new(),
            runs_on: None,
            run: RUN_ON,
            spare: Vec::new(),
            hits: 0,
            only_ahead: false,
            worth: None,
        }
    }

    /// From now on windows are made because something beside was read only while those so far have been used, and more of them
    /// are read ahead of a run.
    pub fn set_thrifty(&mut self) {
        self.worth = Some(Worth::new(self.most));
        self.run = (self.most as u64 / 8).clamp(RUN_ON, RUN_FAR);
    }

    /// Length of a window in bytes.
    pub fn window_len(&self) -> u64 {
        self.len
    }

    /// Bytes that are held, or on their way.
    pub fn bytes(&self) -> u64 {
        self.map.len() as u64 * self.len
    }

    /// Windows made since the beginning.
    pub fn made(&self) -> u64 {
        self.turn
    }

    /// Ranges that were found in a window since the beginning.
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// The window for a range that the cache does not have: an existing one, or a new one if this window was missed not
    /// long ago, or if one of those before it exists and the reader is `at_home` there (reads small files). A range
    /// that lies in two windows has none.
    pub fn find(&mut self, offset: u64, len: u64, at_home: bool) -> Option<Arc<Window>> {
        let number = offset / self.len;
        if self.most == 0 || len == 0 || offset.checked_add(len - 1)? / self.len != number {
            return None;
        }
        if self.only_ahead {
            return self.get(offset);
        }
        if let Some(window) = self.found(number, len) {
            return Some(window);
        }
        let missed = self.missed.iter().position(|m| *m == number);
        let follows = (1..=RUN_ON).any(|n| number.checked_sub(n).is_some_and(|n| self.map.contains_key(&n)));
        if (missed.is_some() || follows && at_home) && self.worth.as_mut().is_none_or(Worth::allows) {
            missed.map(|at| self.missed.remove(at));
            let goes_on = follows && self.worth.as_ref().is_none_or(Worth::pays);
            self.runs_on = goes_on.then_some(number);
            return self.add(number);
        }
        if missed.is_none() {
            if self.missed.len() >= MISSED {
                self.missed.pop_front();
            }
            self.missed.push_back(number);
        }
        None
    }

    /// An existing window, of which `len` bytes are asked for.
    fn found(&mut self, number: u64, len: u64) -> Option<Arc<Window>> {
        let entry = self.map.get_mut(&number)?;
        self.hits += 1;
        if std::mem::take(&mut entry.is_ahead) && self.worth.as_ref().is_none_or(Worth::pays) {
            self.runs_on = Some(number);
        }
        if let Some(worth) = &mut self.worth {
            let before = entry.used;
            entry.used += len;
            if !Worth::is_paid(before, self.len) && Worth::is_paid(entry.used, self.len) {
                worth.paid();
            }
        }
        Some(entry.window.clone())
    }

    /// Notes a new window, and looks at one whose time is over. One that was written over counts neither way.
    fn judge(&mut self, number: u64) {
        let Some(worth) = &mut self.worth else { return };
        if let Some((old, turn)) = worth.made(number, self.turn)
            && let Some(entry) = self.map.get(&old).filter(|entry| entry.turn == turn)
            && !Worth::is_paid(entry.used, self.len)
        {
            worth.wasted();
        }
    }

    /// From now on windows are made by [`ahead`](Windows::ahead) only.
    pub fn set_only_ahead(&mut self, yes: bool) {
        self.only_ahead = yes;
    }

    /// Windows to be started because those before them have been found one after another.
    pub fn run_on(&mut self) -> Vec<Arc<Window>> {
        let Some(number) = self.runs_on.take() else { return Vec::new() };
        let mut out = Vec::new();
        for next in number + 1..=number + self.run {
            if !self.map.contains_key(&next)
                && let Some(window) = self.add(next)
            {
                self.map.entry(next).and_modify(|entry| entry.is_ahead = true);
                out.push(window);
            }
        }
        out
    }

    /// The window that holds the byte `offset`, if it is there.
    pub fn get(&mut self, offset: u64) -> Option<Arc<Window>> {
        let found = self.map.get(&(offset / self.len)).map(|entry| entry.window.clone());
        self.hits += u64::from(found.is_some());
        found
    }

    /// Makes the windows of a range that do not exist yet, for [`Window::start`].
    pub fn ahead(&mut self, range: Range<u64>) -> Vec<Arc<Window>> {
        if self.most == 0 || range.is_empty() {
            return Vec::new();
        }
        let numbers = range.start / self.len..=(range.end - 1) / self.len;
        numbers.take(self.most / 2).filter_map(|n| if self.map.contains_key(&n) { None } else { self.add(n) }).collect()
    }

    fn add(&mut self, number: u64) -> Option<Arc<Window>> {
        let offset = number * self.len;
        let len = self.size.checked_sub(offset).filter(|left| *left > 0)?.min(self.len) as usize;
        while self.map.len() >= self.most {
            let (old, turn) = self.order.pop_front()?;
            if self.map.get(&old).is_some_and(|entry| entry.turn == turn)
                && let Some(gone) = self.map.remove(&old)
            {
                self.keep_buffer(gone.window);
            }
        }
        let at = self.spare.iter().position(|b| b.len() == len);
        let old = at.map(|at| self.spare.swap_remove(at));
        let window = Arc::new(Window {
            offset,
            len,
            is_ready: AtomicBool::new(false),
            state: Mutex::new(self.rank, State::Wanted(old)),
        });
        self.turn += 1;
        self.map.insert(number, Entry { turn: self.turn, window: window.clone(), is_ahead: false, used: 0 });
        self.judge(number);
        self.order.push_back((number, self.turn));
        if self.order.len() > 4 * self.most {
            self.order.retain(|(n, turn)| self.map.get(n).is_some_and(|entry| entry.turn == *turn));
        }
        Some(window)
    }

    /// Keeps the buffer of a dropped window, unless a reader still uses it.
    fn keep_buffer(&mut self, gone: Arc<Window>) {
        if self.spare.len() < SPARE
            && let Ok(window) = Arc::try_unwrap(gone)
            && let State::Ready(bytes) = window.state.into_inner()
            && let Ok(buffer) = Arc::try_unwrap(bytes)
        {
            self.spare.push(buffer);
        }
    }

    /// Numbers of the windows that pieces of the device lie in, for [`Windows::forget`].
    pub fn numbers(&self, pieces: impl Iterator<Item = (u64, u64)>) -> Vec<u64> {
        let mut out: Vec<u64> = Vec::new();
        for (offset, len) in pieces.filter(|p| p.1 > 0) {
            for number in offset / self.len..=offset.saturating_add(len - 1) / self.len {
                if out.last() != Some(&number) {
                    out.push(number);
                }
            }
        }
        out
    }

    /// Drops these windows: their bytes, read or being read, are out of date.
    pub fn forget(&mut self, numbers: &[u64]) {
        if !self.map.is_empty() {
            for number in numbers {
                self.map.remove(number);
            }
        }
    }
}

/// Most files that are told apart.
const STREAMS: usize = 32;
/// How far from the expected place a read may begin: those of one sequence overtake each other.
const SLACK: u64 = 2 << 20;
/// A first read of so many bytes from the beginning of a file announces a sequence.
const FIRST: u64 = 64 << 10;

struct Stream {
    file: u64,
    /// Where the next read is expected.
    next: u64,
    /// The end of the read-ahead so far.
    until: u64,
    /// How many bytes to read ahead the next time.
    ahead: u64,
}

/// Tells which reads of files are sequences.
pub struct Streams {
    /// The latest first.
    all: VecDeque<Stream>,
    least: u64,
    most: u64,
}

impl Streams {
    /// Read-ahead of up to `most` bytes.
    pub fn new(most: u64) -> Streams {
        Streams { all: VecDeque::new(), least: (512 << 10).min(most), most }
    }

    /// Notes a read of a file; returns the range of the file to be read ahead now. The same range is returned again
    /// until [`Streams::started`].
    pub fn read(&mut self, file: u64, range: Range<u64>, size: u64) -> Range<u64> {
        let at = self.all.iter().position(|s| s.file == file);
        let known = at.and_then(|at| self.all.remove(at));
        let expected = known.as_ref().is_some_and(|s| s.next.abs_diff(range.start) <= SLACK);
        let mut stream = match known {
            Some(s) if expected => s,
            _ => Stream { file, next: range.end, until: range.end, ahead: self.least },
        };
        let announced = range.start == 0 && range.end >= FIRST;
        stream.next = stream.next.max(range.end);
        let from = stream.until.max(stream.next);
        let (to, wanted) = ((stream.next + stream.ahead).min(size), from < stream.next + stream.ahead / 2 + 1);
        self.all.push_front(stream);
        self.all.truncate(STREAMS);
        if (expected || announced) && wanted && from < to { from..to } else { 0..0 }
    }

    /// Notes that the read-ahead up to `until` is under way.
    pub fn started(&mut self, file: u64, until: u64) {
        if let Some(s) = self.all.iter_mut().find(|s| s.file == file) {
            s.until = s.until.max(until);
            s.ahead = (s.ahead * 2).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemDevice;

    const KIND: Kind = Kind::Data;

    fn windows(device: &MemDevice) -> Windows {
        Windows::new(Rank(1), device.geometry().size, 8 * LEAST_BYTES)
    }

    #[test]
    fn the_second_miss_fetches_the_window() {
        let device = MemDevice::new(1 << 20);
        let mut all = windows(&device);
        assert!(all.find(8192 + 512, 512, false).is_none());
        device.write_at(KIND, 8192, &[7; 512]).unwrap();
        let window = all.find(8192, 512, false).unwrap();
        let bytes = window.bytes(&device, KIND).unwrap();
        assert_eq!((bytes.len(), bytes[window.place(8192)]), (LEAST_BYTES, 7));
        assert!(Arc::ptr_eq(&all.find(8192 + 1024, 512, false).unwrap(), &window));
        assert!(all.find(8192 + 3584, 1024, false).is_none(), "it lies in two windows");
    }

    #[test]
    fn nothing_is_fetched_for_what_lies_beside_if_only_ahead() {
        let device = MemDevice::new(1 << 20);
        let mut all = windows(&device);
        all.set_only_ahead(true);
        assert!((0..3).all(|_| all.find(8192, 512, true).is_none()));
        assert_eq!(all.ahead(8192..9000).len(), 1);
        assert!(all.find(8192, 512, true).is_some() && all.run_on().is_empty());
    }

    #[test]
    fn what_was_written_over_is_forgotten() {
        let device = MemDevice::new(1 << 20);
        let mut all = windows(&device);
        for window in all.ahead(0..3 * LEAST_BYTES as u64) {
            window.start(&device, KIND);
        }
        let touched = all.numbers([(4096 + 512, 512), (4096 + 1024, 512)].into_iter());
        assert_eq!(touched, [1]);
        all.forget(&touched);
        assert!(all.get(0).is_some() && all.get(4096).is_none() && all.get(8192).is_some());
    }

    #[test]
    fn the_oldest_go_and_the_end_of_the_device_is_kept() {
        let device = MemDevice::new(10 * LEAST_BYTES as u64 + 512);
        let mut all = windows(&device);
        for n in 0..11 {
            all.ahead(n * 4096..n * 4096 + 1);
        }
        assert_eq!((0..11).filter(|n| all.get(n * 4096).is_some()).count(), 8);
        let last = all.get(10 * 4096).unwrap();
        assert_eq!(last.bytes(&device, KIND).unwrap().len(), 512);
        assert!(all.ahead(11 * 4096..12 * 4096).is_empty(), "after the end");
    }

    #[test]
    fn windows_one_after_another_bring_those_behind_them() {
        let device = MemDevice::new(8 * LEAST_BYTES as u64);
        let mut all = windows(&device);
        let numbers = |all: &mut Windows| -> Vec<u64> {
            let on = all.run_on();
            on.iter().map(|w| w.offset / LEAST_BYTES as u64).collect()
        };
        let touch = |all: &mut Windows, n: u64| (0..2).for_each(|at| drop(all.find(n * 4096 + at * 512, 512, false)));
        touch(&mut all, 4);
        assert_eq!(numbers(&mut all), [0; 0], "one says nothing");
        touch(&mut all, 1);
        assert_eq!(numbers(&mut all), [0; 0], "nor do two that are apart");
        touch(&mut all, 2);
        assert_eq!(numbers(&mut all), [3]);
        touch(&mut all, 2);
        assert_eq!(numbers(&mut all), [0; 0]);
        // The first use of one that was brought brings more, up to the end of the device.
        touch(&mut all, 3);
        assert_eq!(numbers(&mut all), [5]);
        touch(&mut all, 5);
        assert_eq!(numbers(&mut all), [6, 7]);
        touch(&mut all, 7);
        assert_eq!(numbers(&mut all), [0; 0]);
    }

    /// Three blocks are asked for of each window, as a search does it, and then all, as one does who reads everything.
    #[test]
    fn windows_that_nobody_uses_are_no_longer_made() {
        let device = MemDevice::new(1 << 30);
        let mut all = Windows::new(Rank(1), device.geometry().size, 8 * MOST_BYTES);
        all.set_thrifty();
        let len = MOST_BYTES as u64;
        let touch = |all: &mut Windows, n: u64, blocks: u64| {
            for block in 0..blocks {
                all.find(n * len + block * 4096, 4096, true);
                all.run_on();
            }
        };
        (0..200).for_each(|n| touch(&mut all, 3 * n, 3));
        let few = all.made();
        assert!((8..40).contains(&few), "{few} made of 200");
        (0..200).for_each(|n| touch(&mut all, 1000 + 3 * n, 64));
        let many = all.made() - few;
        assert!(many > 180, "{many} made of 200");
    }

    #[test]
    fn too_little_memory_means_none() {
        let mut none = Windows::new(Rank(1), 1 << 20, 4096);
        assert!((0..4).all(|_| none.find(0, 512, true).is_none()) && none.ahead(0..4096).is_empty());
    }

    #[test]
    fn sequences_are_read_ahead_further_and_further() {
        let mut s = Streams::new(4 << 20);
        let mib = 1u64 << 20;
        assert_eq!(s.read(1, 5 * mib..6 * mib, 100 * mib), 0..0, "one read says nothing");
        assert_eq!(s.read(1, 6 * mib..7 * mib, 100 * mib), 7 * mib..7 * mib + mib / 2);
        s.started(1, 7 * mib + mib / 2);
        let (mut at, mut until) = (7 * mib, 7 * mib + mib / 2);
        for _ in 0..20 {
            let ahead = s.read(1, at..at + mib, 100 * mib);
            at += mib;
            if !ahead.is_empty() {
                assert!(ahead.start == until.max(at) && ahead.end <= at + 4 * mib);
                until = ahead.end;
                s.started(1, until);
            }
        }
        assert!(until >= at + 2 * mib, "at least half of the distance is kept");
        assert_eq!(s.read(1, 90 * mib..91 * mib, 100 * mib), 0..0, "a jump begins anew");
        assert_eq!(s.read(2, 0..FIRST, FIRST + 5), FIRST..FIRST + 5, "no further than the file");
    }
}
