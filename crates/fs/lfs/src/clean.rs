//! The cleaner: copies live blocks out of mostly dead segments, which then become clean.
//!
//! A step writes what users have changed, reads some segments, and marks their live blocks dirty. A block is live if
//! its file has the version given in the summary and its map still points to the block; an inode, if the inode map
//! points to it. They are written as a group of their own, at the cold head of the log, sorted by age: old blocks are
//! likely to stay live together. With few clean segments there is no cold head, and the hot one serves. The summaries
//! carry the age of the blocks, so that a segment does not look young for having been cleaned. Live blocks of the ifile
//! are marked dirty, too, but written by the next checkpoint, so their segment becomes clean only after that.
//!
//! A cleaned segment may not be reused at once (LFS-C3): the cleaner writes the two checkpoints it takes
//! (`Core::settle`). Segments that stay live after cleaning, or cannot be read, are *stuck*: they are not chosen again
//! during this mount.
//!
//! Segments are chosen by what cleaning gains, and for how long, against its cost: `(1 - u) * age / (1 + u)` (Rosenblum
//! and Ousterhout 1992); or greedily, the emptiest first. Segments are grouped by utilisation in 64ths; of each group
//! only the oldest are considered (`kit::segments`).
//!
//! Called by `commit.rs`: [`Core::clean_in_background`] below the low water mark, or up to the high one while the
//! volume is idle; [`Core::make_room`] for a caller who finds too few clean segments, which falls back to greedy choice
//! when the other gains nothing. By `ops.rs`: [`Core::clean_segments`], on request.

use crate::format::*;
use crate::heads::{COLD, HOT, Head};
use crate::options::Policy;
use crate::plan::Batch;
use crate::planted::{Flaw, planted};
use crate::summary::Parsed;
use crate::volume::{Core, Gained};
use arbor_base::cache::{FileBlock, Name};
use arbor_base::device::Kind;
use arbor_base::vfs::{Cleaned, Ino, Result};
use arbor_kit::blockmap::BlockMap as _;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Bytes that a step reads unless the caller asks for more: other calls wait that long.
const STEP: u64 = 8 << 20;
/// Time without changes after which the volume counts as idle, milliseconds.
const IDLE_MS: u64 = 1000;
/// Pause between two steps on an idle volume, milliseconds.
const PAUSE_MS: u64 = 20;
/// Steps on an idle volume that gain nothing before the cleaner rests.
const IN_VAIN: u32 = 4;
/// Highest utilisation, in 64ths, of a segment that is cleaned in the background or on request.
const MOST_LIVE_IDLE: u64 = 56;
/// Highest utilisation, in 64ths, of a segment that is cleaned where clean segments are short.
const MOST_LIVE_SHORT: u64 = 62;
/// Of a segment that is live by less than 1/16, only the summaries and the live blocks are read.
const PARTLY: u64 = 16;
/// Clean segments that a caller who finds too few makes beyond the least.
const AHEAD: u32 = 8;

/// Live blocks and inodes found by a step.
#[derive(Default)]
struct Survivors {
    bytes: u64,
    /// When each block was written.
    written: FxHashMap<(u64, u64), i64>,
    /// Blocks that change with them: of the inode map, and indirect ones.
    others: FxHashSet<(u64, u64)>,
    /// Buffers that the cleaner has brought into the cache.
    brought: Vec<Name>,
}

/// The result of marking the live blocks of a segment.
struct Marked {
    read_bytes: u64,
    /// Bytes of the ifile: dead after the next checkpoint.
    ifile_bytes: u64,
    /// Everything readable was marked: it was not cut short for lack of room.
    complete: bool,
}

impl Core {
    /// Writes all changes while there is room for them, then cleans segments.
    pub fn make_room(&mut self) -> Result<()> {
        self.write_group()?;
        if !self.settle()? && self.cache.dirty_bytes() > 0 {
            self.write_checkpoint(false)?;
        }
        let mut greedy = self.opts.clean == Policy::Greedy;
        let goal = (self.least_clean() + AHEAD).min(self.reserve());
        loop {
            let clean = self.segs.clean.len() as u32;
            if clean >= goal {
                return Ok(());
            }
            self.clean_step(STEP, MOST_LIVE_SHORT, greedy)?;
            self.settle()?;
            match self.segs.clean.len() as u32 > clean {
                true => {}
                false if greedy => return Ok(()),
                false => greedy = true,
            }
        }
    }

    /// The low water mark, below which the cleaner works whatever users do, and the high one, up to which it works when
    /// they are idle: numbers of clean segments.
    fn water_marks(&self) -> (u32, u32) {
        let high = self.reserve();
        ((high / 2).max(self.least_clean()).min(high), high)
    }

    /// Whether the cleaner should work now, not only when the volume is idle.
    pub fn wants_cleaning(&self) -> bool {
        let few = (self.segs.clean.len() as u32) < self.water_marks().0;
        few && self.opts.clean != Policy::Off && !self.is_in_vain(false)
    }

    /// Does a step in the background, if one is due; returns the milliseconds until the next, if there is more to do.
    pub fn clean_in_background(&mut self, at: u64) -> Result<Option<u64>> {
        let is_idle = at >= self.changed_ms + IDLE_MS;
        if self.opts.clean == Policy::Off || self.is_in_vain(true) {
            return Ok(None);
        }
        if self.is_in_vain(is_idle) {
            return Ok(Some(IDLE_MS));
        }
        let (low, high) = self.water_marks();
        if (self.segs.clean.len() as u32) < low {
            self.settle()?;
        }
        if self.soon_clean() >= high {
            return Ok(None);
        }
        if !is_idle && self.segs.clean.len() as u32 >= low {
            return Ok(Some(IDLE_MS));
        }
        self.write_group()?;
        let before = self.soon_clean();
        self.clean_step(STEP, MOST_LIVE_IDLE, self.opts.clean == Policy::Greedy)?;
        self.note_gain(before);
        Ok(Some(PAUSE_MS))
    }

    /// Notes whether a step has gained anything; `before` segments were clean before it.
    fn note_gain(&mut self, before: u32) {
        let (begun_ms, after) = (self.begun_ms, self.soon_clean());
        let known = self.gained.filter(|gained| gained.begun_ms == begun_ms);
        let Gained { most_clean, steps, .. } = known.unwrap_or(Gained { begun_ms, most_clean: before, steps: 0 });
        let steps = if after > most_clean { 0 } else { steps + 1 };
        self.gained = Some(Gained { begun_ms, most_clean: most_clean.max(after), steps });
    }

    /// Whether steps gain nothing until users change something else. What a step moves fills whole segments and a part of one, so
    /// on an idle volume a single one says little.
    fn is_in_vain(&self, is_idle: bool) -> bool {
        let most = if is_idle { IN_VAIN } else { 1 };
        self.gained.is_some_and(|gained| gained.begun_ms == self.begun_ms && gained.steps >= most)
    }

    /// Segments that are clean, or will be after two checkpoints.
    fn soon_clean(&self) -> u32 {
        self.segs.clean.len() as u32 + (self.segs.pending_clean.len() + self.segs.empty(&self.log.busy()).len()) as u32
    }

    /// Cleans about `budget` bytes of segments, at least one. `more`: the step gained a segment, and others are worth
    /// cleaning.
    pub fn clean_segments(&mut self, budget: u64) -> Result<Cleaned> {
        let greedy = self.opts.clean == Policy::Greedy;
        self.write_group()?;
        self.settle()?;
        let before = self.segs.clean.len();
        let done = self.clean_step(budget, MOST_LIVE_IDLE, greedy)?;
        self.settle()?;
        let gained = self.segs.clean.len() > before;
        Ok(Cleaned { more: gained && !self.victims(budget, MOST_LIVE_IDLE, greedy).is_empty(), ..done })
    }

    /// The segments most worth cleaning, of those no more than `most_live` 64ths of which are live: as many as `budget`
    /// and the room for their live blocks allow.
    fn victims(&mut self, budget: u64, most_live: u64, greedy: bool) -> Vec<u32> {
        let size = 1u64 << self.geom.seg_shift;
        let (busy, now) = (self.log.busy(), self.calls.now().secs);
        let worth = |u: arbor_kit::segments::Use| {
            let live = u64::from(u.live).min(size) as f64 / size as f64;
            let age = now.saturating_sub(u.time).max(0) as f64 + 1.0;
            if greedy { 1.0 - live } else { (1.0 - live) * age / (1.0 + live) }
        };
        let many = (budget / size).max(1) as usize * 4;
        let (stuck, choice) = (&self.stuck, self.segs.choice(size));
        let is_one = |n: &u32| !busy.contains(n) && !stuck.contains(n);
        let some: Vec<u32> = choice.oldest(many, &is_one).collect();
        let some = some.into_iter().map(|n| (n, self.segs.get(n)));
        let mut all: Vec<(f64, u32)> =
            some.filter(|(_, u)| u64::from(u.live) * 64 <= size * most_live).map(|(n, u)| (worth(u), n)).collect();
        let best_first = |a: &(f64, u32), b: &(f64, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if all.len() > many {
            all.select_nth_unstable_by(many, best_first);
            all.truncate(many);
        }
        all.sort_by(best_first);
        let (room, mut live, mut read) = (self.room_to_clean(), 0, 0);
        let fits = |n: &u32| {
            let bytes = u64::from(self.segs.get(*n).live);
            let is_first = read == 0;
            live += bytes;
            read += if bytes * PARTLY < size { bytes } else { size };
            live <= room && (is_first || read <= budget)
        };
        all.into_iter().map(|v| v.1).take_while(fits).collect()
    }

    /// Bytes that can be moved before any segment has become clean.
    fn room_to_clean(&self) -> u64 {
        let size = 1u64 << self.geom.seg_shift;
        let clean = self.segs.clean.len().saturating_sub(2) * size;
        // Set aside: the bytes of the usage table, which `Core::least_clean` counts for the checkpoint; and an eighth
        // for summaries.
        let clean = clean.saturating_sub(self.usage_bytes() as u64) / 8 * 7;
        clean.min((self.cache.limit() as u64 / 2).max(size))
    }

    /// Reads about `budget` bytes of segments, and writes their live blocks elsewhere. What users have changed has been written
    /// before: it takes segments, whatever the step gains.
    fn clean_step(&mut self, budget: u64, most_live: u64, greedy: bool) -> Result<Cleaned> {
        let victims = self.victims(budget, most_live, greedy);
        if victims.is_empty() {
            return Ok(Cleaned::default());
        }
        let head = if self.open_cold()? { COLD } else { HOT };
        self.count_found();
        let (room, begun_ms) = (self.room_to_clean(), self.begun_ms);
        let (mut done, mut found, mut left) = (Cleaned::default(), Survivors::default(), Vec::new());
        for seg in victims {
            self.is_writing = true;
            let marked = self.mark_live(Seg(seg), room, &mut found);
            self.is_writing = false;
            let marked = marked?;
            done.segments += 1;
            done.read_bytes += marked.read_bytes;
            if !marked.complete {
                break;
            }
            left.push((seg, marked.ifile_bytes));
        }
        let batch = self.live_batch(&found)?;
        if !batch.blocks.is_empty() || !batch.inodes.is_empty() {
            self.write_batch(&batch, head)?;
        }
        self.begun_ms = begun_ms;
        for name in found.brought {
            self.cache.remove(name);
        }
        for (seg, ifile_bytes) in left {
            self.put_aside(seg, ifile_bytes);
        }
        done.moved_bytes = found.bytes;
        self.counters.cleaned += done.segments;
        self.counters.clean_read_bytes += done.read_bytes;
        self.counters.clean_moved_bytes += done.moved_bytes;
        Ok(done)
    }

    /// Adds the segments that there were to choose from to the counters, by utilisation.
    fn count_found(&mut self) {
        let size = 1u64 << self.geom.seg_shift;
        let shares = self.segs.choice(size).shares;
        self.counters.found.iter_mut().zip(shares).for_each(|(found, n)| *found += n);
    }

    /// If the usage table counts more live bytes than were found, the count is wrong: the segment is not chosen again.
    fn put_aside(&mut self, seg: u32, ifile_bytes: u64) {
        if planted(Flaw::LiveForDead) {
            self.segs.mark_dead(seg, u32::MAX);
        }
        if u64::from(self.segs.get(seg).live) > ifile_bytes {
            self.stuck.insert(seg);
        }
    }

    /// Opens the cold head, if enough segments are clean; a checkpoint records it before it is used. Returns whether it
    /// is open.
    fn open_cold(&mut self) -> Result<bool> {
        if self.log.heads[COLD].is_open() {
            return Ok(true);
        }
        let last_two = {
            let mut clean = self.segs.clean.iter().rev();
            (clean.next(), clean.next())
        };
        let (Some(next), Some(seg), true) = (last_two.0, last_two.1, self.segs.clean.len() > 6) else {
            return Ok(false);
        };
        self.log.heads[COLD] = Head { seg: Seg(seg), offset: 0, next_seg: Seg(next), fill: self.log.next_fill() };
        self.segs.clean.remove(seg);
        self.segs.clean.remove(next);
        if !planted(Flaw::ColdHeadUnsaid) {
            self.write_checkpoint(false)?;
        }
        Ok(true)
    }

    /// The marked blocks and inodes, in the order in which they are written: by age, indirect blocks last, from the
    /// lowest level up.
    fn live_batch(&mut self, found: &Survivors) -> Result<Batch> {
        let mut batch = self.batch()?;
        for b in &mut batch.blocks {
            b.written = found.written.get(&(b.ino.0, block_code(b.place))).copied();
        }
        let level = |place| if let FileBlock::Map { level, n: _ } = place { level } else { 0 };
        let by_age = self.opts.agesort;
        let age = |written: Option<i64>| if by_age { written.unwrap_or(i64::MAX) } else { 0 };
        batch.blocks.sort_by_key(|b| (level(b.place), age(b.written)));
        Ok(batch)
    }

    /// Marks dirty what is live in a segment, until there is no room for more.
    fn mark_live(&mut self, seg: Seg, room: u64, found: &mut Survivors) -> Result<Marked> {
        let size = 1u64 << self.geom.seg_shift;
        let before = self.counters.io.read_bytes;
        let whole = u64::from(self.segs.get(seg.0).live) * PARTLY >= size;
        let start = self.geom.seg_start(seg);
        // If a sector cannot be read, the live blocks beside it still can.
        let read = whole.then(|| self.read_run(start, self.geom.seg_frags(), Kind::Log).ok()).flatten();
        let (whole, bytes) = (read.is_some(), read.unwrap_or_default());
        let mut done = Marked { read_bytes: 0, ifile_bytes: 0, complete: true };
        let Ok(summaries) = self.summaries(seg, whole.then_some(&bytes[..])) else {
            self.give_up_on(seg);
            return Ok(done);
        };
        for (at, parsed) in summaries {
            if !whole {
                done.read_bytes += self.geom.bytes_of(parsed.head.summary_frags.get()) as u64;
            }
            let part = (Frag(start.0 + at), bytes.get(self.geom.bytes_of(at)..).unwrap_or(&[]));
            done.complete = self.mark_live_part(part, &parsed, room, found, &mut done.ifile_bytes)?;
            if !done.complete {
                break;
            }
        }
        if self.geom.seg_of(Frag(self.checkpoint.ifile.get())) == Some(seg) {
            self.mark(IFILE)?;
            done.ifile_bytes += INODE as u64;
        }
        done.read_bytes += self.counters.io.read_bytes - before;
        Ok(done)
    }

    /// Marks dirty what is live in a partial segment; returns whether there was room for all.
    fn mark_live_part(
        &mut self,
        (start, bytes): (Frag, &[u8]),
        parsed: &Parsed,
        room: u64,
        found: &mut Survivors,
        ifile_bytes: &mut u64,
    ) -> Result<bool> {
        let seg = self.geom.seg_of(start);
        for (file, block, at) in parsed.blocks() {
            if self.cost(found) > room {
                return Ok(false);
            }
            let own = bytes.get(self.geom.bytes_of(at)..).unwrap_or(&[]);
            let time = parsed.head.time.get();
            match self.mark_live_block((&file, &block, Frag(start.0 + at)), own, time, found) {
                Ok(true) if u64::from(file.ino.get()) == IFILE.0 => {
                    *ifile_bytes += self.geom.bytes_of(block.frags.get()) as u64;
                }
                Ok(_) => {}
                Err(_) => seg.into_iter().for_each(|seg| self.give_up_on(seg)),
            }
        }
        for info in &parsed.inodes {
            if self.cost(found) > room {
                return Ok(false);
            }
            let (ino, frag) = (Ino(info.ino.get().into()), Frag(info.entry.frag.get()));
            if frag.0 == 0 || self.geom.seg_of(frag) != seg {
                continue;
            }
            let taken = self
                .map_entry(ino)
                .and_then(|e| if e.frag.get() == frag.0 { self.mark_inode(ino, found) } else { Ok(()) });
            if taken.is_err() {
                seg.into_iter().for_each(|seg| self.give_up_on(seg));
            }
        }
        Ok(true)
    }

    /// Gives up on a segment: a block that cannot be read stays where it is, and its segment is never chosen again.
    fn give_up_on(&mut self, seg: Seg) {
        self.calls.health.note_damage();
        self.stuck.insert(seg.0);
    }

    /// Bytes that writing the blocks found takes.
    fn cost(&self, found: &Survivors) -> u64 {
        found.bytes + found.others.len() as u64 * self.geom.block_size() as u64
    }

    /// Marks an inode as changed, so that it is written with the blocks that the cleaner moves.
    fn mark_inode(&mut self, ino: Ino, found: &mut Survivors) -> Result<()> {
        if !self.changed.contains_key(&ino.0) {
            self.mark(ino)?;
            found.bytes += INODE as u64;
            found.others.insert((IFILE.0, self.geom.lbn(MAP_AT + ino.0 * MAP_ENTRY as u64)));
        }
        Ok(())
    }

    /// Marks a block dirty if it is live; returns whether it is. `segment` begins with the block, if the segment was
    /// read.
    fn mark_live_block(
        &mut self,
        (file, block, here): (&FileInfo, &BlockInfo, Frag),
        segment: &[u8],
        time: i64,
        found: &mut Survivors,
    ) -> Result<bool> {
        let ino = Ino(file.ino.get().into());
        let Some(place) = coded_block(block.place.get()) else { return Ok(false) };
        if ino != IFILE {
            let entry = self.map_entry(ino)?;
            if entry.frag.get() == 0 || entry.version != file.version {
                return Ok(false);
            }
        }
        let i = self.inode(ino)?;
        let p = self.pointer(&i, place)?;
        let is_dead = p.frag.get() != here.0 && !(planted(Flaw::DeadForLive) && p.frag.get() != 0);
        if is_dead || planted(Flaw::LiveForDead) && ino != IFILE && matches!(place, FileBlock::Data(_)) {
            return Ok(false);
        }
        let (name, frags) = (Name::File(ino, place), block.frags.get());
        if !self.cache.contains(name) {
            let own = segment.get(..self.geom.bytes_of(frags)).unwrap_or(&[]);
            let is_it = self.verify(p, own).is_ok() || planted(Flaw::DeadForLive) && !own.is_empty();
            let bytes = if is_it { own.to_vec() } else { self.read_block((&i, place), p, frags, Kind::Data)? };
            self.cache.insert(name, Arc::new(bytes));
            // Those of the ifile stay until the checkpoint that writes them.
            if ino != IFILE || planted(Flaw::IfileDropped) {
                found.brought.push(name);
            }
        }
        if ino == IFILE {
            self.mark(IFILE)?;
        } else {
            self.mark_inode(ino, found)?;
            found.bytes += self.geom.bytes_of(frags) as u64;
            found.written.insert((ino.0, block.place.get()), time);
            if let FileBlock::Data(lbn @ 12..) = place {
                found.others.insert((ino.0, lbn / self.geom.nindir()));
            }
        }
        self.make_dirty(name)?;
        self.make_dirty(Name::Inode(ino))?;
        Ok(true)
    }
}
