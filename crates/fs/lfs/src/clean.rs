//! The cleaner: what lives in segments that are mostly dead is written anew, so that they become clean.
//!
//! A step writes what users have changed, reads some segments, and marks what lives in them as changed: a block whose
//! file's map leads to it, in the version that its summary names; an inode that the inode map leads to. That is written
//! as a group of its own, at the cold head of the log, sorted by age: what is old together is likely to stay. Its summaries have
//! the age of what they cover, so that a segment does not look young for having been cleaned. Blocks of the ifile
//! are left to the next checkpoint.
//!
//! Segments are chosen by what is gained, and for how long, against what it costs: `(1 - u) * age / (1 + u)` (Rosenblum and
//! Ousterhout 1992); or greedily, the emptiest first. Where very many are equal by
//! a 64th of a segment, only the oldest of them are looked at (`choice.rs`).

use crate::format::*;
use crate::heads::{COLD, HOT, Head};
use crate::options::Policy;
use crate::plan::Batch;
use crate::planted::{Flaw, planted};
use crate::summary::Parsed;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::device::Kind;
use arbor_base::vfs::{Cleaned, Ino, Result};
use arbor_kit::blockmap::BlockMap as _;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Bytes that a step reads when nobody has asked for more: callers wait that long.
const STEP: u64 = 8 << 20;
/// The volume is idle when nothing was changed for so long, milliseconds.
const IDLE_MS: u64 = 1000;
/// Pause between two steps on an idle volume, milliseconds.
const PAUSE_MS: u64 = 20;
/// 64ths of a segment that live at most if it is cleaned although nothing presses.
const WORTH: u64 = 56;
/// The same where room is short.
const GAIN: u64 = 62;
/// A segment of which less than this part lives is not read whole.
const PARTLY: u64 = 16;
/// Clean segments beyond the least that a caller makes who finds too few.
const AHEAD: u32 = 8;

/// What lives in the segments of a step.
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

/// What became of a segment.
struct Revived {
    read_bytes: u64,
    /// Bytes of the ifile: dead after the next checkpoint.
    ifile_bytes: u64,
    /// All that lives in it is marked.
    complete: bool,
}

impl Core {
    /// Writes what is changed as long as there is room for it, and makes segments clean.
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
            self.clean_step(STEP, GAIN, greedy)?;
            self.settle()?;
            match self.segs.clean.len() as u32 > clean {
                true => {}
                false if greedy => return Ok(()),
                false => greedy = true,
            }
        }
    }

    /// Clean segments below which the cleaner works whatever users do, and up to which it works when they do nothing.
    fn water_marks(&self) -> (u32, u32) {
        let high = self.reserve();
        ((high / 2).max(self.least_clean()).min(high), high)
    }

    /// Whether the cleaner should not wait for an idle moment.
    pub fn wants_cleaning(&self) -> bool {
        let few = (self.segs.clean.len() as u32) < self.water_marks().0;
        few && self.opts.clean != Policy::Off && self.nothing_worth != Some(self.changed_ms)
    }

    /// A step in the background, if one is due; returns the milliseconds until the next, if there is more.
    pub fn clean_in_background(&mut self, at: u64) -> Result<Option<u64>> {
        if self.opts.clean == Policy::Off || self.nothing_worth == Some(self.changed_ms) {
            return Ok(None);
        }
        let (low, high) = self.water_marks();
        if (self.segs.clean.len() as u32) < low {
            self.settle()?;
        }
        let (clean, before) = (self.segs.clean.len() as u32, self.soon_clean());
        if before >= high {
            return Ok(None);
        }
        if at < self.changed_ms + IDLE_MS && clean >= low {
            return Ok(Some(IDLE_MS));
        }
        self.clean_step(STEP, WORTH, self.opts.clean == Policy::Greedy)?;
        if self.soon_clean() <= before {
            self.nothing_worth = Some(self.changed_ms);
            return Ok(None);
        }
        Ok(Some(PAUSE_MS))
    }

    /// Segments that are clean, or are so after two checkpoints.
    fn soon_clean(&self) -> u32 {
        self.segs.clean.len() as u32 + (self.segs.pending_clean.len() + self.segs.empty(&self.log.busy()).len()) as u32
    }

    /// As much of the cleaner's work as reading `budget` bytes is; at least a segment. There is more as long as it gains
    /// something: checkpoints leave dead blocks too.
    pub fn clean_segments(&mut self, budget: u64) -> Result<Cleaned> {
        let greedy = self.opts.clean == Policy::Greedy;
        self.settle()?;
        let before = self.segs.clean.len();
        let done = self.clean_step(budget, WORTH, greedy)?;
        self.settle()?;
        let gained = self.segs.clean.len() > before;
        Ok(Cleaned { more: gained && !self.victims(budget, WORTH, greedy).is_empty(), ..done })
    }

    /// Segments that are worth most, with no more in them than there is room for. Of those of which as much lives,
    /// by 64ths, the oldest.
    fn victims(&mut self, budget: u64, most: u64, greedy: bool) -> Vec<u32> {
        let size = 1u64 << self.geom.seg_shift;
        let (busy, now) = (self.log.busy(), self.calls.now().secs);
        let worth = |u: crate::segments::Use| {
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
            some.filter(|(_, u)| u64::from(u.live) * 64 <= size * most).map(|(n, u)| (worth(u), n)).collect();
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

    /// Bytes that can be moved before the first segment is clean.
    fn room_to_clean(&self) -> u64 {
        let size = 1u64 << self.geom.seg_shift;
        let clean = self.segs.clean.len().saturating_sub(2) * size;
        // That much more is clean when it begins (`Core::least_clean`).
        let clean = clean.saturating_sub(self.usage_bytes() as u64) / 8 * 7;
        clean.min((self.cache.limit() as u64 / 2).max(size))
    }

    /// Reads about `budget` bytes of segments, and writes what lives in them elsewhere.
    fn clean_step(&mut self, budget: u64, most: u64, greedy: bool) -> Result<Cleaned> {
        self.write_group()?;
        let victims = self.victims(budget, most, greedy);
        if victims.is_empty() {
            return Ok(Cleaned::default());
        }
        let head = if self.open_cold()? { COLD } else { HOT };
        self.count_found();
        let (room, changed_ms) = (self.room_to_clean(), self.changed_ms);
        let (mut done, mut found, mut left) = (Cleaned::default(), Survivors::default(), Vec::new());
        for seg in victims {
            let revived = self.revive(Seg(seg), room, &mut found)?;
            done.segments += 1;
            done.read_bytes += revived.read_bytes;
            if !revived.complete {
                break;
            }
            left.push((seg, revived.ifile_bytes));
        }
        let batch = self.survivors(&found)?;
        if !batch.blocks.is_empty() || !batch.inodes.is_empty() {
            self.write_batch(&batch, head)?;
        }
        self.changed_ms = changed_ms;
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

    /// Counts what there was to choose from.
    fn count_found(&mut self) {
        let size = 1u64 << self.geom.seg_shift;
        let shares = self.segs.choice(size).shares;
        self.counters.found.iter_mut().zip(shares).for_each(|(found, n)| *found += n);
    }

    /// A segment that counts more than what was found in it is not cleaned again.
    fn put_aside(&mut self, seg: u32, ifile_bytes: u64) {
        if planted(Flaw::LiveForDead) {
            self.segs.mark_dead(seg, u32::MAX);
        }
        if u64::from(self.segs.get(seg).live) > ifile_bytes {
            self.stuck.insert(seg);
        }
    }

    /// Gives the cleaner a head of the log, which a checkpoint has to say before it is used. Not where segments
    /// are few.
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

    /// What is marked, in the order in which it is written: by age, indirect blocks from below at the end.
    fn survivors(&mut self, found: &Survivors) -> Result<Batch> {
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

    /// Marks what lives in a segment as changed, as long as there is room for it.
    fn revive(&mut self, seg: Seg, room: u64, found: &mut Survivors) -> Result<Revived> {
        let size = 1u64 << self.geom.seg_shift;
        let before = self.counters.io.read_bytes;
        let whole = u64::from(self.segs.get(seg.0).live) * PARTLY >= size;
        let start = self.geom.seg_start(seg);
        // Where a sector cannot be read, what lives beside it can.
        let read = whole.then(|| self.read_run(start, self.geom.seg_frags(), Kind::Log).ok()).flatten();
        let (whole, bytes) = (read.is_some(), read.unwrap_or_default());
        let mut done = Revived { read_bytes: 0, ifile_bytes: 0, complete: true };
        let Ok(summaries) = self.summaries(seg, whole.then_some(&bytes[..])) else {
            self.leave(seg);
            return Ok(done);
        };
        for (at, parsed) in summaries {
            if !whole {
                done.read_bytes += self.geom.bytes_of(parsed.head.summary_frags.get()) as u64;
            }
            let part = (Frag(start.0 + at), bytes.get(self.geom.bytes_of(at)..).unwrap_or(&[]));
            done.complete = self.revive_part(part, &parsed, room, found, &mut done.ifile_bytes)?;
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

    /// Marks what lives in a partial segment; says whether there was room for all.
    fn revive_part(
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
            match self.revive_block((&file, &block, Frag(start.0 + at)), own, time, found) {
                Ok(true) if u64::from(file.ino.get()) == IFILE.0 => {
                    *ifile_bytes += self.geom.bytes_of(block.frags.get()) as u64;
                }
                Ok(_) => {}
                Err(_) => seg.into_iter().for_each(|seg| self.leave(seg)),
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
            let taken =
                self.map_entry(ino).and_then(|e| if e.frag.get() == frag.0 { self.take(ino, found) } else { Ok(()) });
            if taken.is_err() {
                seg.into_iter().for_each(|seg| self.leave(seg));
            }
        }
        Ok(true)
    }

    /// What cannot be read stays where it is, and its segment is not cleaned.
    fn leave(&mut self, seg: Seg) {
        self.calls.health.note_damage();
        self.stuck.insert(seg.0);
    }

    /// Bytes that writing these takes.
    fn cost(&self, found: &Survivors) -> u64 {
        found.bytes + found.others.len() as u64 * self.geom.block_size() as u64
    }

    /// An inode is written with what the cleaner moves.
    fn take(&mut self, ino: Ino, found: &mut Survivors) -> Result<()> {
        if !self.changed.contains_key(&ino.0) {
            self.mark(ino)?;
            found.bytes += INODE as u64;
            found.others.insert((IFILE.0, self.geom.lbn(MAP_AT + ino.0 * MAP_ENTRY as u64)));
        }
        Ok(())
    }

    /// Marks a block, if it lives; says whether it does. `segment` begins with it, if the segment was read.
    fn revive_block(
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
            // The ifile's stay until the checkpoint that writes them.
            if ino != IFILE || planted(Flaw::IfileDropped) {
                found.brought.push(name);
            }
        }
        if ino == IFILE {
            self.mark(IFILE)?;
        } else {
            self.take(ino, found)?;
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
