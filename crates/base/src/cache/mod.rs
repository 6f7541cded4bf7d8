//! The buffer cache: one memory limit for data and metadata; read-ahead by windows of the device, and behind walks.
//!
//! A buffer is named by its device address or by (file, page), see [`Name`]. The cache is a plain
//! data structure without a lock of its own: an engine keeps it inside its state, and no call
//! waits for a device, so no lock is held across I/O.
//!
//! Typical sequence: [`Cache::get`]; if it misses, read from the device without holding anything
//! and [`Cache::insert`]; change with [`Cache::modify`], which marks the buffer dirty; write back:
//! [`Cache::begin_write`] hands out the bytes, [`cluster`] turns neighbours into large requests,
//! [`Cache::end_write`] makes the buffer clean unless it was changed meanwhile (the write in
//! flight keeps the old bytes: buffers are copied on write).
//!
//! What must be on disk before a buffer may go (write-ahead, data before metadata) is the
//! engine's to know: it pins the buffer ([`Cache::pin`]) until the condition holds; a pinned
//! buffer is neither written nor evicted.
//!
//! What was read ahead of its use is kept by device address, see [`windows`].
//!
//! Replacement is segmented LRU: a buffer enters the probation list and is promoted by a second
//! use, so one scan through a large file evicts only other scans. Dirty, pinned and in-flight
//! buffers are on no list.

pub mod walks;
pub mod windows;

use crate::device::{Buf, Kind, Request};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Name of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// By device address, in the engine's unit.
    Block(u64),
    /// By file and page number; it needs no device address yet (delayed allocation).
    Page {
        /// The file, in the engine's numbering.
        file: u64,
        /// Page number within the file.
        index: u64,
    },
}

/// Where a buffer is, until the cache is changed.
#[derive(Clone, Copy, Debug)]
pub struct Place(u32);

const NIL: u32 = u32::MAX;
/// What a buffer takes beside its bytes: its slot, its names in the indices, two allocations.
const OVERHEAD: usize = 256;

/// Memory that a buffer of so many bytes takes; an eighth is what the allocator loses between buffers of
/// all lengths.
const fn weight(len: usize) -> usize {
    len + len / 8 + OVERHEAD
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    None,
    Probation,
    Protected,
}

struct Slot {
    name: Name,
    data: Arc<Vec<u8>>,
    dirty: bool,
    redirtied: bool,
    writing: bool,
    pins: u32,
    list: List,
    prev: u32,
    next: u32,
}

#[derive(Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
    bytes: usize,
}

/// Counters since creation, and amounts now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lookups that found their buffer.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Buffers evicted.
    pub evictions: u64,
    /// Memory that is held now, in bytes.
    pub bytes: u64,
    /// Dirty bytes now.
    pub dirty_bytes: u64,
    /// Those of them that are pages of files.
    pub dirty_page_bytes: u64,
}

/// The buffer cache.
pub struct Cache {
    map: FxHashMap<Name, u32>,
    slots: Vec<Slot>,
    unused: Vec<u32>,
    probation: Ends,
    protected: Ends,
    dirty: BTreeSet<Name>,
    pages: BTreeSet<(u64, u64)>,
    limit: usize,
    dirty_limit: usize,
    /// Nothing is evicted now.
    keeps_all: bool,
    stats: Stats,
}

impl Cache {
    /// A cache that holds at most `limit` bytes of clean buffers; dirty and pinned ones count
    /// and push clean ones out, and the engine bounds them by writing back.
    pub fn new(limit: usize) -> Cache {
        let none = Ends { head: NIL, tail: NIL, bytes: 0 };
        Cache {
            map: FxHashMap::default(),
            slots: Vec::new(),
            unused: Vec::new(),
            probation: none,
            protected: none,
            dirty: BTreeSet::new(),
            pages: BTreeSet::new(),
            limit,
            dirty_limit: limit / 4,
            keeps_all: false,
            stats: Stats::default(),
        }
    }

    /// The memory limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that may be dirty before some are written back; a quarter of the memory limit, unless it was set.
    pub fn dirty_limit(&self) -> usize {
        self.dirty_limit
    }

    /// Sets that limit, in bytes: at least 256 KiB and at most a quarter of the memory limit.
    pub fn set_dirty_limit(&mut self, bytes: usize) {
        self.dirty_limit = bytes.max(256 << 10).min(self.limit / 4);
    }

    /// Whether all that is there stays there, the limit notwithstanding: for a call that changes several buffers
    /// which it has read before. `false` evicts what is too much then.
    pub fn keep_all(&mut self, keep: bool) {
        self.keeps_all = keep;
        self.shrink();
    }

    /// Evicts what is too much, though all that is there is kept otherwise: what a call has used it needs no more.
    pub fn trim_clean(&mut self) {
        let keeps_all = std::mem::replace(&mut self.keeps_all, false);
        self.shrink();
        self.keeps_all = keeps_all;
    }

    /// Counters and amounts.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The counters with their names, as [`FileSystem::counters`](crate::vfs::FileSystem::counters) has them.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let s = &self.stats;
        vec![
            ("cache_hits", s.hits),
            ("cache_misses", s.misses),
            ("cache_evictions", s.evictions),
            ("cache_bytes", s.bytes),
            ("cache_dirty_bytes", s.dirty_bytes),
        ]
    }

    /// Bytes of dirty buffers.
    pub fn dirty_bytes(&self) -> usize {
        self.stats.dirty_bytes as usize
    }

    /// Bytes of dirty pages of files.
    pub fn dirty_page_bytes(&self) -> usize {
        self.stats.dirty_page_bytes as usize
    }

    /// What a dirty buffer counts for has changed from `before` to `after`.
    fn recount(&mut self, name: Name, before: u64, after: u64) {
        let is_page = matches!(name, Name::Page { .. });
        let stats = &mut self.stats;
        stats.dirty_bytes = stats.dirty_bytes + after - before;
        if is_page {
            stats.dirty_page_bytes = stats.dirty_page_bytes + after - before;
        }
    }

    /// The buffer, counted as a use.
    pub fn get(&mut self, name: Name) -> Option<&Arc<Vec<u8>>> {
        self.find(name).map(|place| self.at(place))
    }

    /// Where the buffer is, counted as a use.
    pub fn find(&mut self, name: Name) -> Option<Place> {
        let Some(&i) = self.map.get(&name) else {
            self.stats.misses += 1;
            return None;
        };
        self.stats.hits += 1;
        self.touch(i);
        Some(Place(i))
    }

    /// The buffer that was found there.
    pub fn at(&self, place: Place) -> &Arc<Vec<u8>> {
        &self.slots[place.0 as usize].data
    }

    /// Where the buffer is, not counted as a use.
    pub fn place(&self, name: Name) -> Option<Place> {
        self.map.get(&name).map(|&i| Place(i))
    }

    /// The buffer, not counted as a use.
    pub fn peek(&self, name: Name) -> Option<&Arc<Vec<u8>>> {
        self.map.get(&name).map(|&i| &self.slots[i as usize].data)
    }

    /// Whether the buffer is there.
    pub fn contains(&self, name: Name) -> bool {
        self.map.contains_key(&name)
    }

    /// Whether the buffer is there and dirty.
    pub fn is_dirty(&self, name: Name) -> bool {
        self.map.get(&name).is_some_and(|&i| self.slots[i as usize].dirty)
    }

    /// Puts in a clean buffer, unless there is one of that name already (which may be newer than
    /// what was read). Evicts others to stay within the limit.
    pub fn insert(&mut self, name: Name, data: Arc<Vec<u8>>) -> Place {
        if let Some(&i) = self.map.get(&name) {
            return Place(i);
        }
        self.stats.bytes += weight(data.len()) as u64;
        let slot = Slot {
            name,
            data,
            dirty: false,
            redirtied: false,
            writing: false,
            pins: 0,
            list: List::None,
            prev: NIL,
            next: NIL,
        };
        let i = match self.unused.pop() {
            Some(i) => {
                self.slots[i as usize] = slot;
                i
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.map.insert(name, i);
        if let Name::Page { file, index } = name {
            self.pages.insert((file, index));
        }
        // Others make room, never the buffer that is just wanted: the limit may be exceeded by it.
        self.shrink();
        self.push(i, List::Probation);
        Place(i)
    }

    /// Changes the buffer and marks it dirty; `None` if it is not there. The closure may change
    /// the length.
    pub fn modify<R>(&mut self, name: Name, f: impl FnOnce(&mut Vec<u8>) -> R) -> Option<R> {
        self.place(name).map(|place| self.modify_at(place, f))
    }

    /// [`Cache::modify`] of the buffer that was found there.
    pub fn modify_at<R>(&mut self, place: Place, f: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let i = place.0;
        self.mark_dirty(i);
        let slot = &mut self.slots[i as usize];
        let before = weight(slot.data.len()) as u64;
        let r = f(Arc::make_mut(&mut slot.data));
        let (name, after) = (slot.name, weight(slot.data.len()) as u64);
        self.stats.bytes = self.stats.bytes + after - before;
        self.recount(name, before, after);
        r
    }

    /// Keeps the buffer from being written or evicted.
    pub fn pin(&mut self, name: Name) {
        if let Some(&i) = self.map.get(&name) {
            self.unlist(i);
            self.slots[i as usize].pins += 1;
        }
    }

    /// Undoes one [`Cache::pin`].
    pub fn unpin(&mut self, name: Name) {
        if let Some(&i) = self.map.get(&name) {
            let slot = &mut self.slots[i as usize];
            slot.pins = slot.pins.saturating_sub(1);
            self.relist(i);
        }
    }

    /// Starts a write of a dirty, unpinned buffer: returns its bytes as they are now. `None` if
    /// there is nothing to write or a write is under way.
    pub fn begin_write(&mut self, name: Name) -> Option<Arc<Vec<u8>>> {
        let &i = self.map.get(&name)?;
        let slot = &mut self.slots[i as usize];
        if !slot.dirty || slot.pins > 0 || slot.writing {
            return None;
        }
        slot.writing = true;
        slot.redirtied = false;
        Some(slot.data.clone())
    }

    /// Ends a write. After success the buffer is clean unless it was modified meanwhile; after
    /// failure it stays dirty. Returns whether it is clean now.
    pub fn end_write(&mut self, name: Name, ok: bool) -> bool {
        let Some(&i) = self.map.get(&name) else { return true };
        let slot = &mut self.slots[i as usize];
        slot.writing = false;
        if !ok || slot.redirtied {
            return false;
        }
        if slot.dirty {
            slot.dirty = false;
            let size = weight(slot.data.len()) as u64;
            self.recount(name, size, 0);
            self.dirty.remove(&name);
        }
        self.relist(i);
        self.shrink();
        true
    }

    /// Makes a buffer clean without a write, because its contents have gone elsewhere.
    pub fn set_clean(&mut self, name: Name) {
        if let Some(&i) = self.map.get(&name)
            && self.slots[i as usize].dirty
        {
            self.slots[i as usize].redirtied = false;
            let writing = std::mem::replace(&mut self.slots[i as usize].writing, true);
            self.end_write(name, true);
            if let Some(&i) = self.map.get(&name) {
                self.slots[i as usize].writing = writing;
            }
        }
    }

    /// Forgets the buffer, dirty or not. A write in flight goes on; its `end_write` does nothing.
    pub fn remove(&mut self, name: Name) -> Option<Arc<Vec<u8>>> {
        let i = self.map.remove(&name)?;
        if let Name::Page { file, index } = name {
            self.pages.remove(&(file, index));
        }
        self.unlist(i);
        let slot = &mut self.slots[i as usize];
        let data = std::mem::take(&mut slot.data);
        let size = weight(data.len()) as u64;
        self.stats.bytes -= size;
        if slot.dirty {
            self.recount(name, size, 0);
            self.dirty.remove(&name);
        }
        self.unused.push(i);
        Some(data)
    }

    /// Gives the buffer another name, dirty or not; an older buffer of that name is forgotten.
    pub fn rename(&mut self, from: Name, to: Name) {
        let Some(i) = self.map.remove(&from) else { return };
        self.remove(to);
        self.map.insert(to, i);
        self.slots[i as usize].name = to;
        if let Name::Page { file, index } = from {
            self.pages.remove(&(file, index));
        }
        if let Name::Page { file, index } = to {
            self.pages.insert((file, index));
        }
        if self.dirty.remove(&from) {
            self.dirty.insert(to);
        }
    }

    /// Dirty pages of a file from page `from`, ascending.
    pub fn dirty_pages(&self, file: u64, from: u64) -> impl Iterator<Item = u64> + '_ {
        let range = Name::Page { file, index: from }..=Name::Page { file, index: u64::MAX };
        self.dirty.range(range).map(|n| match n {
            Name::Page { index, .. } => *index,
            Name::Block(b) => *b,
        })
    }

    /// Forgets the pages of a file from page `from` up to `to`, exclusive, dirty or not. Costs
    /// what is there, not the length of the range.
    pub fn drop_pages(&mut self, file: u64, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let found: Vec<u64> = self.pages.range((file, from)..(file, to)).map(|p| p.1).collect();
        for index in found {
            self.remove(Name::Page { file, index });
        }
    }

    fn mark_dirty(&mut self, i: u32) {
        self.unlist(i);
        let slot = &mut self.slots[i as usize];
        slot.redirtied = true;
        if !slot.dirty {
            slot.dirty = true;
            let (name, size) = (slot.name, weight(slot.data.len()) as u64);
            self.recount(name, 0, size);
            self.dirty.insert(name);
        }
    }

    fn shrink(&mut self) {
        while self.stats.bytes as usize > self.limit && !self.keeps_all {
            let i = if self.probation.tail != NIL { self.probation.tail } else { self.protected.tail };
            if i == NIL {
                return;
            }
            self.stats.evictions += 1;
            self.remove(self.slots[i as usize].name);
        }
    }

    fn touch(&mut self, i: u32) {
        match self.slots[i as usize].list {
            List::None => {}
            List::Probation | List::Protected => {
                self.unlist(i);
                self.push(i, List::Protected);
                while self.protected.bytes > self.limit / 4 * 3 {
                    let tail = self.protected.tail;
                    self.unlist(tail);
                    self.push(tail, List::Probation);
                }
            }
        }
    }

    fn relist(&mut self, i: u32) {
        let slot = &self.slots[i as usize];
        if !slot.dirty && slot.pins == 0 && !slot.writing && slot.list == List::None {
            self.push(i, List::Probation);
        }
    }

    fn ends(&mut self, list: List) -> &mut Ends {
        if list == List::Protected { &mut self.protected } else { &mut self.probation }
    }

    fn push(&mut self, i: u32, list: List) {
        let size = weight(self.slots[i as usize].data.len());
        let ends = self.ends(list);
        ends.bytes += size;
        let head = std::mem::replace(&mut ends.head, i);
        if head == NIL {
            ends.tail = i;
        } else {
            self.slots[head as usize].prev = i;
        }
        let slot = &mut self.slots[i as usize];
        (slot.list, slot.prev, slot.next) = (list, NIL, head);
    }

    fn unlist(&mut self, i: u32) {
        let slot = &mut self.slots[i as usize];
        let (list, prev, next, size) = (slot.list, slot.prev, slot.next, weight(slot.data.len()));
        if list == List::None {
            return;
        }
        (slot.list, slot.prev, slot.next) = (List::None, NIL, NIL);
        let ends = self.ends(list);
        ends.bytes -= size;
        if prev == NIL {
            ends.head = next;
        }
        if next == NIL {
            ends.tail = prev;
        }
        if prev != NIL {
            self.slots[prev as usize].next = next;
        }
        if next != NIL {
            self.slots[next as usize].prev = prev;
        }
    }
}

/// Sorts pieces to be written by address and joins neighbours into requests of at most
/// `max` bytes and 512 pieces.
pub fn cluster(mut pieces: Vec<(u64, Kind, Buf)>, max: u64) -> Vec<Request> {
    pieces.sort_by_key(|p| p.0);
    let mut out: Vec<Request> = Vec::new();
    let mut len = 0;
    for (offset, kind, buf) in pieces {
        let size = buf.len() as u64;
        if let Some(Request { kind: k, offset: at, op: crate::device::Op::Write(bufs) }) = out.last_mut()
            && *k == kind
            && *at + len == offset
            && len + size <= max
            && bufs.len() < 512
        {
            bufs.push(buf);
            len += size;
            continue;
        }
        len = size;
        out.push(Request::write(kind, offset, vec![buf]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(index: u64) -> Name {
        Name::Page { file: 7, index }
    }

    fn buf(n: usize) -> Arc<Vec<u8>> {
        Arc::new(vec![0; n])
    }

    #[test]
    fn stays_within_its_limit_and_resists_scans() {
        let mut c = Cache::new(100 * weight(1000));
        for i in 0..50 {
            c.insert(Name::Block(i), buf(1000));
            c.get(Name::Block(i));
        }
        for i in 0..10_000 {
            c.insert(page(i), buf(1000));
            assert!(c.stats().bytes as usize <= c.limit() + weight(1000));
        }
        assert!((0..50).all(|i| c.contains(Name::Block(i))), "one scan does not evict what was used twice");
    }

    #[test]
    fn what_was_just_inserted_is_there() {
        let mut c = Cache::new(3 * weight(1000));
        for i in 0..100 {
            c.insert(page(i), buf(1000));
            assert!(c.modify(page(i), |d| d[0] = 1).is_some(), "even when everything else is dirty");
        }
    }

    #[test]
    fn dirty_and_pinned_buffers_stay() {
        let mut c = Cache::new(10 * weight(1000));
        c.insert(Name::Block(1), buf(1000));
        c.modify(Name::Block(1), |d| d[0] = 1);
        c.insert(Name::Block(2), buf(1000));
        c.pin(Name::Block(2));
        for i in 0..100 {
            c.insert(page(i), buf(1000));
        }
        assert!(c.is_dirty(Name::Block(1)) && c.contains(Name::Block(2)));
        c.unpin(Name::Block(2));
        for i in 100..200 {
            c.insert(page(i), buf(1000));
        }
        assert!(!c.contains(Name::Block(2)));
    }

    #[test]
    fn a_write_in_flight_keeps_its_bytes() {
        let mut c = Cache::new(1 << 20);
        c.insert(page(0), buf(4));
        c.modify(page(0), |d| d[0] = 1);
        let flying = c.begin_write(page(0)).unwrap();
        assert!(c.begin_write(page(0)).is_none());
        c.modify(page(0), |d| d[0] = 2);
        assert_eq!(flying[0], 1);
        assert!(!c.end_write(page(0), true), "it was changed meanwhile");
        assert_eq!(c.begin_write(page(0)).unwrap()[0], 2);
        assert!(c.end_write(page(0), true));
        assert_eq!(c.dirty_bytes(), 0);
        c.modify(page(0), |d| d[0] = 3);
        c.begin_write(page(0));
        assert!(!c.end_write(page(0), false) && c.is_dirty(page(0)), "a failed write leaves it dirty");
    }

    #[test]
    fn clusters_neighbours() {
        let piece = |at: u64| (at, Kind::Data, Buf::from(vec![0; 512]));
        let out = cluster(vec![piece(1024), piece(0), piece(512), piece(4096)], 1 << 20);
        assert_eq!(out.iter().map(|r| (r.offset, r.len())).collect::<Vec<_>>(), [(0, 1536), (4096, 512)]);
    }

    #[test]
    fn what_a_call_has_read_stays_until_it_ends() {
        let mut c = Cache::new(10_000);
        let name = |i| Name::Block(i);
        c.keep_all(true);
        for i in 0..100 {
            c.insert(name(i), Arc::new(vec![0; 1000]));
        }
        assert!((0..100).all(|i| c.contains(name(i))));
        c.keep_all(false);
        assert!(c.stats().bytes <= 10_000 && c.contains(name(99)) && !c.contains(name(0)));
    }
}
