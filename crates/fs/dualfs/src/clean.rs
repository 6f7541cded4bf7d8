//! The cleaner of the metadata log: moves live blocks out of mostly dead segments, which then become clean. It never touches
//! data.
//!
//! A step reads some segments and makes their live blocks dirty; they are written with what users have changed. A block is
//! live if its file has the version given in the summary and its map still leads to the block, an inode if the inode map
//! leads to it. A cleaned segment may not be reused at once (DUALFS-C3): two checkpoints follow. Segments that stay live, or
//! cannot be read, are *stuck*: they are not chosen again during this mount.
//!
//! Segments are chosen by what cleaning gains, and for how long, against its cost: `(1 - u) * age / (1 + u)` (Rosenblum and
//! Ousterhout 1992). Segments are grouped by utilisation; of each group only the oldest are considered (`kit::segments`).
//!
//! The cleaner is started at two moments (section 2.1): every 5 seconds if clean segments are few, and when a caller finds
//! too few of them.

use crate::decoded::inodes_in;
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::summary;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::device::Kind;
use arbor_base::layout::crc;
use arbor_base::vfs::{Cleaned, Error, Ino, Result};
use arbor_kit::blockmap::BlockMap as _;
use arbor_kit::segments::Use;
use std::sync::Arc;

/// Time between two looks of the cleaner, milliseconds.
const EVERY_MS: u64 = 5000;
/// Bytes that a step reads unless the caller asks for more.
const STEP: u64 = 4 << 20;
/// Highest utilisation, in 64ths, of a segment that is cleaned in the background or on request.
const MOST_LIVE: u64 = 56;
/// Highest utilisation, in 64ths, of a segment that is cleaned where clean segments are short.
const MOST_LIVE_SHORT: u64 = 62;

impl Core {
    /// Clean segments below which the cleaner works.
    fn low_water(&self) -> u32 {
        (self.reserve() / 2).max(self.least_clean()).min(self.reserve())
    }

    /// Whether the cleaner should not wait for its time.
    pub fn wants_cleaning(&self) -> bool {
        (self.segs.clean.len() as u32) < self.least_clean()
    }

    /// Cleans if it is time and clean segments are few.
    pub fn clean_in_background(&mut self, at: u64) -> Result<()> {
        if at < self.cleaned_ms + EVERY_MS || (self.segs.clean.len() as u32) >= self.low_water() {
            return Ok(());
        }
        self.cleaned_ms = at;
        if !self.settle()? || (self.segs.clean.len() as u32) < self.low_water() {
            self.clean_step(STEP, MOST_LIVE)?;
        }
        Ok(())
    }

    /// Writes all changes while there is room for them, then cleans segments until there are enough, or none is gained.
    pub fn make_room(&mut self) -> Result<()> {
        self.write_set()?;
        if !self.settle()? && self.cache.dirty_bytes() > 0 {
            self.write_checkpoint(false)?;
        }
        let mut greedy = false;
        loop {
            let clean = self.segs.clean.len() as u32;
            if clean >= (self.least_clean() + 2).min(self.reserve()) {
                return Ok(());
            }
            let most = if greedy { MOST_LIVE_SHORT } else { MOST_LIVE };
            self.clean_step(STEP, most)?;
            match self.segs.clean.len() as u32 > clean {
                true => {}
                false if greedy => return Ok(()),
                false => greedy = true,
            }
        }
    }

    /// Cleans about `budget` bytes of segments. `more`: there are more clean segments than after any step since the last
    /// change, and others are worth cleaning. What a step writes is dead soon, so that there is always something to clean.
    pub fn clean_segments(&mut self, budget: u64) -> Result<Cleaned> {
        let undisturbed = self.counters.sets == self.cleaned_to.0 && self.changes.files.is_empty();
        self.write_set()?;
        self.settle()?;
        let before = self.segs.clean.len();
        let most = if undisturbed { before.max(self.cleaned_to.1) } else { before };
        let done = self.clean_step(budget, MOST_LIVE)?;
        let after = self.segs.clean.len();
        self.cleaned_to = (self.counters.sets, most.max(after));
        Ok(Cleaned { more: after > most && !self.victims(budget, MOST_LIVE).is_empty(), ..done })
    }

    /// The segments most worth cleaning, of those no more than `most_live` 64ths of which are live: as many as `budget` and
    /// the room for their live blocks allow.
    fn victims(&mut self, budget: u64, most_live: u64) -> Vec<u32> {
        let size = 1u64 << self.geom.seg_shift;
        let (busy, now, many) = (self.log.busy(), self.calls.now().secs, (budget / size).max(1) as usize);
        let stuck = &self.stuck;
        let is_one = |n: &u32| !busy.contains(n) && !stuck.contains(n);
        let some: Vec<u32> = self.segs.choice(size).oldest(many, &is_one).collect();
        let worth = |seg: u32| {
            let u = self.segs.get(seg);
            let live = u64::from(u.live).min(size) as f64 / size as f64;
            let age = now.saturating_sub(u.time).max(0) as f64 + 1.0;
            (1.0 - live) * age / (1.0 + live)
        };
        let live_of = |seg: u32| u64::from(self.segs.get(seg).live);
        let mut all: Vec<(f64, u32)> =
            some.into_iter().filter(|n| live_of(*n) * 64 <= size * most_live).map(|n| (worth(n), n)).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let (room, mut live) = (self.room_to_clean(), 0);
        let fits = |n: &u32| {
            live += live_of(*n);
            live <= room
        };
        all.into_iter().map(|v| v.1).take(many).take_while(fits).collect()
    }

    /// Reads segments, writes their live blocks elsewhere, and the two checkpoints that make them clean.
    fn clean_step(&mut self, budget: u64, most_live: u64) -> Result<Cleaned> {
        let victims = self.victims(budget, most_live);
        let mut done = Cleaned::default();
        if victims.is_empty() {
            return Ok(done);
        }
        for seg in &victims {
            done.moved_bytes += self.mark_live(Seg(*seg), &mut done)?;
            done.segments += 1;
        }
        if planted(Flaw::LiveForDead) {
            victims.iter().for_each(|seg| self.segs.set(*seg, Use { live: 0, ..self.segs.get(*seg) }));
        }
        self.write_checkpoint(false)?;
        self.settle()?;
        for seg in victims {
            if self.segs.get(seg).live > 0 {
                self.stuck.insert(seg);
            }
        }
        self.counters.cleaned += done.segments;
        self.counters.moved += done.moved_bytes;
        Ok(done)
    }

    /// Makes the live blocks and inodes of a segment dirty; returns their bytes. What cannot be read, or is damaged, stays.
    fn mark_live(&mut self, seg: Seg, done: &mut Cleaned) -> Result<u64> {
        let (geom, start) = (self.geom, self.geom.seg_start(seg));
        let mut bytes = vec![0; 1 << geom.seg_shift];
        if self.dev.read_at(Kind::Log, geom.meta_byte(start), &mut bytes).is_err() {
            return Ok(0);
        }
        self.counters.io.count_read(bytes.len());
        done.read_bytes += bytes.len() as u64;
        let at = |n: u32| (n as usize) << geom.block_shift..(n as usize + 1) << geom.block_shift;
        let mut moved = 0;
        for (begin, parsed) in summary::all_in(&geom, &bytes) {
            for (n, info) in parsed.placed() {
                let (block, place) = (MetaBlock(start.0 + begin + n), coded_block(info.place.get()));
                if let (Some(part), Some(bytes)) = (place, bytes.get(at(begin + n)))
                    && crc(bytes) == info.crc.get()
                    && self.move_block(Ino(info.ino.get().into()), info.version.get(), part, block, bytes)?
                {
                    moved += geom.block() as u64;
                }
            }
            for n in parsed.inode_blocks() {
                let block = MetaBlock(start.0 + begin + n);
                for (_, d) in bytes.get(at(begin + n)).into_iter().flat_map(|bytes| inodes_in(&geom, bytes)) {
                    moved += if self.move_inode(&d, block)? { INODE as u64 } else { 0 };
                }
            }
        }
        Ok(moved)
    }

    /// Makes a block dirty if it lives here.
    fn move_block(&mut self, ino: Ino, version: u32, part: FileBlock, at: MetaBlock, bytes: &[u8]) -> Result<bool> {
        if planted(Flaw::LiveForDead) && matches!(part, FileBlock::Map { .. }) {
            return Ok(false);
        }
        let lives = self.lives(ino, version, part, at);
        if !passed_over(lives)?.unwrap_or(false) {
            return Ok(false);
        }
        let i = self.inode(ino)?;
        self.mark(ino)?;
        self.cache.insert(Name::File(ino, part), Arc::new(bytes.to_vec()));
        self.change(&i, part, |_| ())?;
        Ok(true)
    }

    fn lives(&mut self, ino: Ino, version: u32, part: FileBlock, at: MetaBlock) -> Result<bool> {
        if ino != IFILE && self.map_entry(ino)?.version.get() != version {
            return Ok(false);
        }
        let i = self.inode(ino)?;
        if !i.d.has_blocks() && !matches!(part, FileBlock::Xattr(_)) || Core::is_data(&i, part) {
            return Ok(false);
        }
        let p = self.pointer(&i, part)?;
        Ok(p.block.get() == at.0)
    }

    fn move_inode(&mut self, d: &Dinode, at: MetaBlock) -> Result<bool> {
        let ino = Ino(d.ino.get().into());
        if ino == IFILE {
            // The checkpoint that follows writes it.
            if self.checkpoint.ifile.get() == at.0 {
                self.mark(IFILE)?;
            }
            return Ok(self.checkpoint.ifile.get() == at.0);
        }
        let entry = passed_over(self.map_entry(ino))?.unwrap_or_default();
        if entry.block.get() != at.0 || entry.version != d.version {
            return Ok(false);
        }
        let is_there = passed_over(self.inode(ino))?.is_some();
        if is_there {
            self.mark(ino)?;
        }
        Ok(is_there)
    }
}

/// What was read, or nothing if it is damaged or cannot be read: the checker reports it.
fn passed_over<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::Corrupt(_) | Error::Errno(_) | Error::Io(_)) => Ok(None),
        Err(e) => Err(e),
    }
}
