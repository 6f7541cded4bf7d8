//! The buffer cache: one memory limit for data and metadata; read-ahead.
//!
//! A buffer is named by its device address, or by file and block in the file, see [`Name`]. The cache is a plain
//! data structure without a lock of its own: an engine keeps it inside its state. No method of the cache does I/O;
//! whether the engine's lock is held across I/O is the engine's choice.
//!
//! Typical sequence: [`Cache::get`]; if it misses, read from the device and [`Cache::insert`]. To change a buffer,
//! [`Cache::edit`] gives a handle that says whether it is dirty; a clean one becomes dirty by [`Cache::make_dirty`], or
//! by [`Cache::dirtied`] or [`Cache::dirtied_at`] where nothing else must become dirty first; [`Cache::modify`] changes
//! a dirty one. An engine calls these in few places, which also note the change in its own lists. Write back:
//! [`Cache::begin_write`] hands out the bytes, [`cluster`] turns neighbours into large requests, [`Cache::end_write`]
//! makes the buffer clean unless it was changed or got another address meanwhile (the write in flight keeps the old
//! bytes: buffers are copied on write).
//!
//! Only the engine knows what must be on disk before a buffer may be written (write-ahead, data before metadata). It
//! pins the buffer ([`Cache::pin`]) until the condition holds, or does not begin its write. A pinned buffer is neither
//! written nor evicted, a held one ([`Cache::hold`]) is not evicted: so one stays that was written and not flushed.
//!
//! Bytes that were read ahead are kept by device address, see [`windows`]; [`walks`] finds what a walk through
//! directories is about to need.
//!
//! Replacement is segmented LRU: a buffer enters the probation list and is promoted by a second use, so one scan
//! through a large file evicts only other scans. Dirty, pinned, held and in-flight buffers are on no list; a buffer
//! that leaves that state enters probation.

pub mod walks;
pub mod windows;
mod worth;

use crate::device::{Buf, Kind, Request};
use crate::vfs::Ino;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Name of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// By device address, in the engine's unit.
    Block(u64),
    /// The inode of a file.
    Inode(Ino),
    /// By file and block in it; it needs no device address yet (delayed allocation).
    File(Ino, FileBlock),
}

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileBlock {
    /// Its contents: the page or logical block of that number.
    Data(u64),
    /// A block of its map.
    Map {
        /// 1: its pointers point to data; 2: to blocks of level 1.
        level: u8,
        /// Number among the blocks of the level, in the order of the blocks that they point to.
        n: u64,
    },
    /// A block of its extended attributes, from 0 on.
    Xattr(u32),
}

impl Name {
    /// A page, or logical block, of a file.
    pub const fn data(ino: Ino, index: u64) -> Name {
        Name::File(ino, FileBlock::Data(index))
    }
}

/// Position of a buffer in the cache. Valid until the cache is changed.
#[derive(Clone, Copy, Debug)]
pub struct Place(u32);

/// A buffer that is not marked dirty.
#[derive(Clone, Copy, Debug)]
pub struct CleanRef(Name);

/// A dirty buffer. Valid until the cache is changed.
#[derive(Clone, Copy, Debug)]
pub struct DirtyRef(u32);

/// A buffer that is going to be changed.
#[derive(Clone, Copy, Debug)]
pub enum Edit {
    /// It must become dirty first ([`Cache::make_dirty`]).
    Clean(CleanRef),
    /// It can be changed.
    Dirty(DirtyRef),
}

/// A write that is under way: to be given back to [`Cache::end_write`].
#[derive(Debug)]
#[must_use]
pub struct Write {
    slot: u32,
    id: u64,
    name: Name,
    generation: u64,
    bytes: Arc<Vec<u8>>,
}

impl Write {
    /// The buffer, by the name that it had when the write began.
    pub fn name(&self) -> Name {
        self.name
    }

    /// The bytes that are written.
    pub fn bytes(&self) -> &Arc<Vec<u8>> {
        &self.bytes
    }
}

/// There is a buffer of that name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupied;

/// How much a cache holds before it evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Memory, in bytes.
    pub bytes: usize,
    /// Buffers; `usize::MAX` for any number.
    pub buffers: usize,
}

impl From<usize> for Limit {
    /// A limit of so many bytes, in any number of buffers.
    fn from(bytes: usize) -> Limit {
        Limit { bytes, buffers: usize::MAX }
    }
}

const NIL: u32 = u32::MAX;
/// Memory that a buffer takes beside its bytes: its slot, its names in the indices, two allocations.
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
    /// Changes with each change of its bytes or its name; 0 if there is no buffer.
    generation: u64,
    /// The write that is under way, 0 if none is.
    writing: u64,
    pins: u32,
    holds: u32,
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
    /// Those of them in buffers that are not named by address ([`Name::Block`]).
    pub dirty_page_bytes: u64,
    /// Dirty buffers now.
    pub dirty_buffers: u64,
    /// Those of them that are not named by address.
    pub dirty_page_buffers: u64,
}

/// The buffer cache.
pub struct Cache {
    map: FxHashMap<Name, u32>,
    slots: Vec<Slot>,
    unused: Vec<u32>,
    probation: Ends,
    protected: Ends,
    dirty: BTreeSet<Name>,
    /// Blocks of files that are in the cache.
    parts: BTreeSet<(Ino, FileBlock)>,
    limit: Limit,
    dirty_limit: Limit,
    /// Last number that was given to a generation or a write.
    last: u64,
    /// Eviction is suspended.
    keeps_all: bool,
    /// Dirty buffers do not count for the memory limit.
    limits_clean: bool,
    stats: Stats,
}

impl Cache {
    /// A cache that holds at most `limit` (of bytes, or of bytes and buffers) of clean buffers; dirty and pinned ones
    /// count and push clean ones out, and the engine bounds them by writing back.
    pub fn new(limit: impl Into<Limit>) -> Cache {
        let limit = limit.into();
        let none = Ends { head: NIL, tail: NIL, bytes: 0 };
        Cache {
            map: FxHashMap::default(),
            slots: Vec::new(),
            unused: Vec::new(),
            probation: none,
            protected: none,
            dirty: BTreeSet::new(),
            parts: BTreeSet::new(),
            limit,
            dirty_limit: (limit.bytes / 4).into(),
            last: 0,
            keeps_all: false,
            limits_clean: false,
            stats: Stats::default(),
        }
    }

    /// The memory limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit.bytes
    }

    /// Bytes that may be dirty before some are written back; a quarter of the memory limit, unless it was set.
    pub fn dirty_limit(&self) -> usize {
        self.dirty_limit.bytes
    }

    /// Sets that limit, in bytes: at least 256 KiB and at most a quarter of the memory limit.
    pub fn set_dirty_limit(&mut self, bytes: usize) {
        self.dirty_limit.bytes = bytes.max(256 << 10).min(self.limit.bytes / 4);
    }

    /// Limits the number of dirty buffers too, of whatever length.
    pub fn set_dirty_buffers(&mut self, buffers: usize) {
        self.dirty_limit.buffers = buffers.max(1);
    }

    /// Suspends eviction, whatever the limit: for a call that changes several buffers which it has read before.
    /// `false` resumes it, and evicts down to the limit.
    pub fn keep_all(&mut self, keep: bool) {
        self.keeps_all = keep;
        self.shrink();
    }

    /// Makes the memory limit one of clean buffers alone: for a checker, whose changes all stay in core until they are written
    /// together.
    pub fn limit_clean(&mut self) {
        self.limits_clean = true;
    }

    /// Evicts down to the limit once, even while eviction is suspended: for a call that is done with the buffers it
    /// used.
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

    /// What is dirty, beside [`dirty_limit`](Cache::dirty_limit): its bytes, or of a limited number of buffers the same
    /// part of the bytes that may be dirty, whichever is more.
    pub fn dirty_load(&self) -> usize {
        self.load(self.stats.dirty_bytes, self.stats.dirty_buffers)
    }

    /// The same of buffers that are not named by address ([`Name::Block`]), and of the others.
    pub fn dirty_loads(&self) -> (usize, usize) {
        let s = &self.stats;
        let others = self.load(s.dirty_bytes - s.dirty_page_bytes, s.dirty_buffers - s.dirty_page_buffers);
        (self.load(s.dirty_page_bytes, s.dirty_page_buffers), others)
    }

    /// What a buffer adds to it if it is dirty; 0 if it is not in the cache.
    pub fn load_of(&self, name: Name) -> usize {
        self.peek(name).map_or(0, |b| self.load(b.len() as u64, 1))
    }

    fn load(&self, bytes: u64, buffers: u64) -> usize {
        let Limit { bytes: most, buffers: of } = self.dirty_limit;
        let part = if of == usize::MAX { 0 } else { (buffers as usize).saturating_mul(most) / of };
        part.max(bytes as usize)
    }

    /// Adjusts the dirty totals for a buffer whose weight changed from `before` to `after`.
    fn recount(&mut self, name: Name, before: u64, after: u64) {
        let is_page = !matches!(name, Name::Block(_));
        let (came, left) = (u64::from(before == 0), u64::from(after == 0));
        let stats = &mut self.stats;
        stats.dirty_bytes = stats.dirty_bytes + after - before;
        stats.dirty_buffers = stats.dirty_buffers + came - left;
        if is_page {
            stats.dirty_page_bytes = stats.dirty_page_bytes + after - before;
            stats.dirty_page_buffers = stats.dirty_page_buffers + came - left;
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

    /// Whether the buffer of that name is still at a position, counted as a use: cheaper than to [`find`](Cache::find) it.
    pub fn is_at(&mut self, place: Place, name: Name) -> bool {
        let is_there = self.slots.get(place.0 as usize).is_some_and(|slot| slot.name == name && slot.generation != 0);
        if is_there {
            self.stats.hits += 1;
            self.touch(place.0);
        }
        is_there
    }

    /// The buffer at a position.
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
            generation: self.count(),
            writing: 0,
            pins: 0,
            holds: 0,
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
        if let Name::File(ino, part) = name {
            self.parts.insert((ino, part));
        }
        // Others make room, never the buffer that is just wanted: the limit may be exceeded by it.
        self.shrink();
        self.push(i, List::Probation);
        Place(i)
    }

    /// A handle to change the buffer; `None` if it is not in the cache. Not counted as a use.
    pub fn edit(&self, name: Name) -> Option<Edit> {
        let &i = self.map.get(&name)?;
        let is_dirty = self.slots[i as usize].dirty;
        Some(if is_dirty { Edit::Dirty(DirtyRef(i)) } else { Edit::Clean(CleanRef(name)) })
    }

    /// Makes a buffer dirty; `None` if it has gone meanwhile.
    pub fn make_dirty(&mut self, clean: CleanRef) -> Option<DirtyRef> {
        let &i = self.map.get(&clean.0)?;
        Some(self.make_dirty_at(i))
    }

    fn make_dirty_at(&mut self, i: u32) -> DirtyRef {
        let slot = &mut self.slots[i as usize];
        if !slot.dirty {
            slot.dirty = true;
            let (name, size) = (slot.name, weight(slot.data.len()) as u64);
            self.unlist(i);
            self.recount(name, 0, size);
            self.dirty.insert(name);
        }
        DirtyRef(i)
    }

    /// Makes a buffer dirty if it is clean: for buffers before which nothing else has to become dirty.
    /// `None` if it is not in the cache.
    pub fn dirtied(&mut self, name: Name) -> Option<DirtyRef> {
        match self.edit(name)? {
            Edit::Dirty(dirty) => Some(dirty),
            Edit::Clean(clean) => self.make_dirty(clean),
        }
    }

    /// The same for the buffer at a position.
    pub fn dirtied_at(&mut self, place: Place) -> DirtyRef {
        self.make_dirty_at(place.0)
    }

    /// Changes a dirty buffer. The closure may change the length.
    pub fn modify<R>(&mut self, dirty: DirtyRef, f: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let generation = self.count();
        let slot = &mut self.slots[dirty.0 as usize];
        debug_assert!(slot.dirty, "{:?} has become clean meanwhile", slot.name);
        slot.generation = generation;
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

    /// Keeps the buffer from being evicted; it may be written, which makes it clean.
    pub fn hold(&mut self, name: Name) {
        if let Some(&i) = self.map.get(&name) {
            self.unlist(i);
            self.slots[i as usize].holds += 1;
        }
    }

    /// Undoes one [`Cache::hold`].
    pub fn release(&mut self, name: Name) {
        if let Some(&i) = self.map.get(&name) {
            let slot = &mut self.slots[i as usize];
            slot.holds = slot.holds.saturating_sub(1);
            self.relist(i);
            self.shrink();
        }
    }

    /// Starts a write of a dirty, unpinned buffer, with its bytes as they are now. `None` if
    /// there is nothing to write or a write is under way.
    pub fn begin_write(&mut self, name: Name) -> Option<Write> {
        let &slot = self.map.get(&name)?;
        let id = self.count();
        let s = &mut self.slots[slot as usize];
        if !s.dirty || s.pins > 0 || s.writing != 0 {
            return None;
        }
        s.writing = id;
        Some(Write { slot, id, name, generation: s.generation, bytes: s.data.clone() })
    }

    /// Ends a write. After success the buffer is clean unless it was changed or got another name meanwhile; after
    /// failure it stays dirty. Returns whether it is clean now, or gone.
    pub fn end_write(&mut self, write: Write, ok: bool) -> bool {
        let slot = &mut self.slots[write.slot as usize];
        if slot.writing != write.id {
            return true;
        }
        slot.writing = 0;
        if slot.dirty && (!ok || slot.generation != write.generation) {
            return false;
        }
        self.clean(write.slot);
        true
    }

    /// Makes a buffer clean without a write, because its contents have gone elsewhere.
    pub fn set_clean(&mut self, name: Name) {
        if let Some(&i) = self.map.get(&name) {
            self.clean(i);
        }
    }

    fn clean(&mut self, i: u32) {
        let slot = &mut self.slots[i as usize];
        if std::mem::take(&mut slot.dirty) {
            let (name, size) = (slot.name, weight(slot.data.len()) as u64);
            self.recount(name, size, 0);
            self.dirty.remove(&name);
        }
        self.relist(i);
        self.shrink();
    }

    /// Removes the buffer, dirty or not. A write in flight goes on; its `end_write` does nothing.
    pub fn remove(&mut self, name: Name) -> Option<Arc<Vec<u8>>> {
        let i = self.map.remove(&name)?;
        if let Name::File(ino, part) = name {
            self.parts.remove(&(ino, part));
        }
        self.unlist(i);
        let slot = &mut self.slots[i as usize];
        (slot.writing, slot.generation) = (0, 0);
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

    /// Gives the buffer another name, dirty or not, as when its contents get another address. A write that is under
    /// way goes to the old address, and does not make it clean. Does nothing if there is no such buffer.
    ///
    /// # Errors
    /// There is a buffer of the new name already.
    pub fn readdress(&mut self, from: Name, to: Name) -> Result<(), Occupied> {
        let Some(&i) = self.map.get(&from).filter(|_| from != to) else { return Ok(()) };
        if self.map.contains_key(&to) {
            return Err(Occupied);
        }
        self.map.remove(&from);
        self.map.insert(to, i);
        let generation = self.count();
        let slot = &mut self.slots[i as usize];
        (slot.name, slot.generation) = (to, generation);
        let (is_dirty, size) = (slot.dirty, weight(slot.data.len()) as u64);
        if let Name::File(ino, part) = from {
            self.parts.remove(&(ino, part));
        }
        if let Name::File(ino, part) = to {
            self.parts.insert((ino, part));
        }
        if is_dirty {
            self.dirty.remove(&from);
            self.dirty.insert(to);
            self.recount(from, size, 0);
            self.recount(to, 0, size);
        }
        Ok(())
    }

    /// Dirty buffers, by name.
    pub fn dirty_names(&self) -> impl ExactSizeIterator<Item = Name> + '_ {
        self.dirty.iter().copied()
    }

    /// Dirty pages of a file from page `from`, ascending.
    pub fn dirty_pages(&self, ino: Ino, from: u64) -> impl Iterator<Item = u64> + '_ {
        let range = Name::data(ino, from)..=Name::data(ino, u64::MAX);
        self.dirty
            .range(range)
            .filter_map(|n| if let Name::File(_, FileBlock::Data(index)) = n { Some(*index) } else { None })
    }

    /// Dirty blocks of a file's map, by level and number.
    pub fn dirty_map(&self, ino: Ino) -> impl Iterator<Item = (u8, u64)> + '_ {
        let at = |level, n| Name::File(ino, FileBlock::Map { level, n });
        let range = at(0, 0)..=at(u8::MAX, u64::MAX);
        self.dirty
            .range(range)
            .filter_map(|n| if let Name::File(_, FileBlock::Map { level, n }) = n { Some((*level, *n)) } else { None })
    }

    /// Blocks of a file's map that are here, by level and number.
    pub fn map_of(&self, ino: Ino) -> impl Iterator<Item = FileBlock> + '_ {
        let at = |level, n| (ino, FileBlock::Map { level, n });
        self.parts.range(at(0, 0)..=at(u8::MAX, u64::MAX)).map(|p| p.1)
    }

    /// Removes the pages of a file from page `from` on, dirty or not.
    pub fn drop_pages(&mut self, ino: Ino, from: u64) {
        self.drop_parts(ino, FileBlock::Data(from)..=FileBlock::Data(u64::MAX));
    }

    /// Removes a range of a file's blocks, dirty or not. The cost depends on the buffers found, not on the range.
    pub fn drop_parts(&mut self, ino: Ino, parts: RangeInclusive<FileBlock>) {
        if parts.is_empty() {
            return;
        }
        let range = (ino, *parts.start())..=(ino, *parts.end());
        let found: Vec<FileBlock> = self.parts.range(range).map(|p| p.1).collect();
        for part in found {
            self.remove(Name::File(ino, part));
        }
    }

    /// The next number for a generation or a write.
    fn count(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn shrink(&mut self) {
        let clean = |c: &Cache| c.probation.bytes + c.protected.bytes <= c.limit.bytes;
        let over = |c: &Cache| c.stats.bytes as usize > c.limit.bytes || c.map.len() > c.limit.buffers;
        let over = |c: &Cache| over(c) && !(c.limits_clean && clean(c));
        while !self.keeps_all && over(self) {
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
            List::Protected if self.protected.head == i => {}
            List::Probation | List::Protected => {
                self.unlist(i);
                self.push(i, List::Protected);
                while self.protected.bytes > self.limit.bytes / 4 * 3 {
                    let tail = self.protected.tail;
                    self.unlist(tail);
                    self.push(tail, List::Probation);
                }
            }
        }
    }

    fn relist(&mut self, i: u32) {
        let slot = &self.slots[i as usize];
        if !slot.dirty && slot.pins == 0 && slot.holds == 0 && slot.writing == 0 && slot.list == List::None {
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
mod tests;
