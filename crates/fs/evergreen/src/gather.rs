//! Gathering: work in the background that restores free runs. There is no cleaner: what moves leaves a free block where it
//! was, and in time what is free is in pieces, next to which nothing can be written together.
//!
//! A pass chooses units (`units.rs`) of which at least a quarter is free, the emptiest first, and moves what they still hold to
//! others, so that they become free as a whole. No block says to which file it belongs, so a pass goes through all inodes, a
//! few in each step. The moves are relocations like any others, and committed like them (EVERGREEN-A2, C1). While a pass goes
//! on nothing else is put into its units either. `pass.rs` has where it is.
//!
//! In the background a pass is worth while if less than a quarter of the free blocks are in units that are free as a whole.
//! Called by `ops.rs`: when the volume is idle, and on request.

use crate::decoded::Inode;
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::policy::How;
use crate::units::free_in;
use crate::volume::{Core, SHAPE, is_special};
use arbor_base::cache::{FileBlock, Name};
use arbor_base::vfs::{Cleaned, Errno, Error, Ino, Result};
use arbor_kit::blockfile::BlockFiles as _;
use arbor_kit::blockmap::{BlockMap as _, Mapped as _};

/// Time without changes after which the volume counts as idle, milliseconds.
const IDLE_MS: u64 = 1000;
/// Pause between two steps on an idle volume, milliseconds.
const PAUSE_MS: u64 = 20;
/// Blocks that a step moves: other calls wait that long.
const STEP: u64 = 64;
/// Steps of a call that asks for it.
const STEPS: u64 = 16;
/// Blocks of files, and inodes, that a step looks at.
const LOOK: u64 = 4096;
/// Blocks of the dBitmap that are looked at for units to be emptied.
const MOST_MAPS: usize = 64;
/// A unit is emptied if it has at most so many blocks in use for each that is free.
const MOST_USED: u32 = 3;
/// Blocks that a pass moves at most.
const PASS: u64 = 16 << 10;

/// What is free, as far as it was looked at.
#[derive(Default)]
struct Census {
    /// Blocks in units that are free as a whole.
    whole: u64,
    /// Blocks in others.
    pieces: u64,
    /// Units that can be emptied: blocks in use, blocks that are free, which.
    sparse: Vec<(u32, u32, u32)>,
}

impl Core {
    /// Does a step in the background if the volume is idle; returns the milliseconds until the next, if there may be more to
    /// do.
    pub fn gather_in_background(&mut self, now_ms: u64) -> Result<Option<u64>> {
        // Where something is damaged, a block that counts as free may be none.
        let may = self.opts.gather && !self.calls.health.has_met_damage();
        if !may || self.gather.in_vain == Some(self.gather.changed_ms) {
            return Ok(None);
        }
        let quiet_ms = self.gather.quiet_ms(now_ms);
        if quiet_ms < IDLE_MS {
            return Ok(Some(IDLE_MS - quiet_ms));
        }
        if !self.gather.is_on() {
            // What was freed counts when it is committed.
            self.write_commit()?;
            if !self.begin_pass(true)? {
                self.gather.in_vain = Some(self.gather.changed_ms);
                return Ok(None);
            }
        }
        self.gather_step(STEP)?;
        Ok(Some(PAUSE_MS))
    }

    /// Moves up to about `budget` bytes. What it tells of as segments are the units of a pass that has ended.
    pub fn gather_now(&mut self, budget: u64) -> Result<Cleaned> {
        self.write_commit()?;
        if !self.gather.is_on() && !self.begin_pass(false)? {
            return Ok(Cleaned::default());
        }
        let (units, before) = (self.gather.victims.len() as u64, self.gather.moved);
        for _ in 0..STEPS {
            self.gather_step(STEP)?;
            if !self.gather.is_on() || (self.gather.moved - before) << BLOCK_SHIFT >= budget {
                break;
            }
        }
        let segments = if self.gather.is_on() { 0 } else { units };
        self.write_commit()?;
        let moved_bytes = (self.gather.moved - before) << BLOCK_SHIFT;
        Ok(Cleaned { segments, read_bytes: moved_bytes, moved_bytes, more: true })
    }

    /// Chooses units to be emptied; says whether a pass is worth while, in the background or on request.
    fn begin_pass(&mut self, in_background: bool) -> Result<bool> {
        let mut census = self.census()?;
        let now = (self.gather.changed_ms, census.whole);
        let gained = self.gather.before.is_none_or(|before| before.0 != now.0 || before.1 < now.1);
        if in_background && census.whole >= census.pieces / 3 || !gained {
            return Ok(false);
        }
        census.sparse.sort_unstable();
        let room = self.usable().saturating_sub(self.reserve());
        let (mut live, mut free) = (0, 0);
        for (used, left, unit) in census.sparse {
            // What they hold has to have room in what stays.
            if live + u64::from(used) > PASS.min(room.saturating_sub(free + u64::from(left))) {
                break;
            }
            (live, free) = (live + u64::from(used), free + u64::from(left));
            self.gather.victims.insert(unit);
        }
        self.gather.before = Some(now);
        let is_worth = self.gather.victims.len() > 1 && live > 0;
        if !is_worth {
            self.gather.end();
        }
        Ok(is_worth)
    }

    fn census(&mut self) -> Result<Census> {
        let mut census = Census::default();
        let known: Vec<u32> = self.maps_in_use().take(MOST_MAPS).collect();
        for n in known {
            let (first, reserved) = (n * BITS, self.geom.reserved_bits(n));
            let Some(bits) = self.can_be_had(n)? else { continue };
            let end = first.saturating_add(BITS).min(self.geom.blocks);
            let mut at = self.gather.units.around(first).start;
            while at < end {
                let unit = self.gather.units.around(at);
                at = unit.end;
                // One that two blocks of the dBitmap cover is left alone.
                if unit.start < first || unit.end > end {
                    continue;
                }
                let (free, most) = (free_in(&bits, first, &unit), free_in(&reserved, first, &unit));
                match most - free {
                    0 => census.whole += u64::from(free),
                    used => {
                        census.pieces += u64::from(free);
                        if used <= free.saturating_mul(MOST_USED) {
                            census.sparse.push((used, free, self.gather.units.number(unit.start)));
                        }
                    }
                }
            }
        }
        Ok(census)
    }

    /// Finds what blocks are given out of during a pass: the unit with the most free blocks of those that stay. Without one
    /// the pass ends.
    pub fn find_gathering_place(&mut self) -> Result<bool> {
        let blocks = self.gather.units.blocks().unwrap_or(1);
        let best = self.densest_unit(blocks, |core, bits, n, from| {
            core.gather.units.densest(bits, n, from, |block| !core.gather.is_victim(block))
        })?;
        let Some((free, run)) = best else {
            self.gather.end();
            return Ok(false);
        };
        (self.space.run_len, self.space.run) = (free, run);
        Ok(true)
    }

    /// Moves up to `most` blocks of the units that are being emptied.
    fn gather_step(&mut self, most: u64) -> Result<()> {
        self.gather.works = true;
        let done = self.gather_some(most);
        self.gather.works = false;
        done
    }

    fn gather_some(&mut self, most: u64) -> Result<()> {
        if self.gather.is_victim(self.space.run.start) {
            self.space.run = 0..0;
        }
        let goal = self.gather.moved + most;
        let mut looked = 0;
        while self.gather.moved < goal && looked < LOOK && self.gather.is_on() {
            if !self.has_room() || self.usable() < self.reserve() / 2 + most {
                // What a commit makes usable is enough, or there is no room for a pass.
                let has_pending = self.has_pending();
                self.write_commit()?;
                if !has_pending {
                    self.gather.end();
                }
                return Ok(());
            }
            let ino = self.gather.at.0;
            if self.gather_inode(ino, goal, &mut looked)? {
                self.gather.at = (Ino(ino.0 + 1), 0);
            }
            if self.gather.at.0.0 >= u64::from(self.master.head.inode_end.get()) {
                self.gather.end();
            }
        }
        arbor_kit::machine::Machine::commit(self)
    }

    /// Moves blocks of an inode; says whether it is done with it.
    fn gather_inode(&mut self, ino: Ino, goal: u64, looked: &mut u64) -> Result<bool> {
        *looked += 1;
        let found = if is_special(ino) { Ok(self.special(ino)) } else { self.islot(ino) };
        let Some(mut i) = self.readable(found)?.filter(|i| i.d.in_use() && !i.d.is_fast_link()) else {
            return Ok(true);
        };
        let xattrs = self.xattr_blocks(&i);
        for n in 0..self.readable(xattrs)?.unwrap_or(0) {
            self.gather_part(&mut i, FileBlock::Xattr(n))?;
        }
        let (end, mut table) = (blocks_of(i.d.size.get()), None);
        loop {
            let next = self.next_block(&i, self.gather.at.1, end, false);
            let Some(lbn) = self.readable(next)?.flatten() else { return Ok(true) };
            if self.gather.moved >= goal || *looked >= LOOK {
                return Ok(false);
            }
            *looked += 1;
            let above = SHAPE.above(lbn, 1);
            if table.replace(above) != Some(above) {
                self.gather_tables(&mut i, lbn)?;
            }
            self.gather_part(&mut i, FileBlock::Data(lbn))?;
            self.gather.at.1 = lbn + 1;
        }
    }

    /// Moves the indirect blocks above a logical block.
    fn gather_tables(&mut self, i: &mut Inode, lbn: u64) -> Result<()> {
        for level in (1..=SHAPE.levels).rev() {
            if let table @ FileBlock::Map { level: at, .. } = SHAPE.above(lbn, level)
                && at == level
            {
                self.gather_part(i, table)?;
            }
        }
        Ok(())
    }

    /// What was read before anything was changed for it; `None` of what cannot be read, which stays where it is.
    fn readable<T>(&mut self, read: Result<T>) -> Result<Option<T>> {
        match read {
            Ok(found) => Ok(Some(found)),
            Err(Error::Errno(Errno::ESTALE)) => Ok(None),
            Err(e @ (Error::Corrupt(_) | Error::Io(_) | Error::Errno(Errno::EIO))) => {
                self.calls.health.note(&e);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Moves a block of an inode if it lies in a unit that is being emptied.
    fn gather_part(&mut self, i: &mut Inode, part: FileBlock) -> Result<()> {
        let (name, found) = (Name::File(i.ino, part), self.pointer(i, part));
        let Some(block) = self.readable(found)? else { return Ok(()) };
        if block == 0 || !self.gather.is_victim(block) || self.changes.parts.contains_key(&name) {
            return Ok(());
        }
        let read = match part {
            FileBlock::Data(lbn) if !is_special(i.ino) => self.page(i, lbn),
            _ => self.part(i, part),
        };
        let read = read.and_then(|_| self.check_in_use(i.ino, block));
        if self.readable(read)?.is_none() {
            return Ok(());
        }
        if planted(Flaw::GatheredBlank) {
            self.cache.remove(name);
            self.cache.insert(name, std::sync::Arc::new(vec![0; BLOCK]));
        }
        self.become_dirty(i, part, (block, How::Moved))?;
        self.gather.moved += 1;
        Ok(())
    }
}
