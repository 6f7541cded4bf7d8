//! Allocation of data blocks: which group a directory gets, and which blocks a file.
//!
//! Data of the files of a directory go to one group, or near it if it is full (section 2.1). A new directory gets the
//! emptiest group; with *directory affinity* it stays in the group of its parent unless the emptiest one has at least so
//! many per cent more free blocks (section 2.2).
//!
//! Bitmaps are blocks of the ifile. What a set allocates and frees is in its summaries, too.

use crate::format::*;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::layout::{Corrupt, Location};
use arbor_base::vfs::{Errno, Error, Result};
use arbor_kit::blockmap::BlockMap as _;
use arbor_kit::buddy::bitmap;
use std::ops::Range;
use std::sync::Arc;

/// Runs of free blocks that a search compares before it takes the longest.
const LOOKED_AT: u32 = 32;

impl Core {
    /// The group of a new directory below one that has `parent`.
    pub fn group_for_dir(&mut self, parent: Group) -> Group {
        let best = self.groups.emptiest(&self.geom);
        let free = |group| u64::from(self.groups.free(&self.geom, group));
        match self.opts.affinity {
            Some(percent) if free(best) * 100 < free(parent) * (100 + u64::from(percent)) => parent,
            _ => best,
        }
    }

    /// Counts a directory of a group, or one less.
    pub fn count_dir(&mut self, group: Group, more: bool) {
        let desc = self.groups.get(group);
        let dirs = if more { desc.dirs.get().saturating_add(1) } else { desc.dirs.get().saturating_sub(1) };
        self.groups.set(&self.geom, group, GroupDesc { dirs: dirs.into(), ..desc });
    }

    /// The logical block of the ifile that holds the bitmap of a group.
    pub fn bitmap_lbn(&self, group: Group) -> u64 {
        (BITMAPS_AT >> self.geom.block_shift) + u64::from(group.0)
    }

    /// Free blocks that are neither promised to what has no place yet nor needed for what is dirty: how many more pages
    /// can become dirty before a set has to be written (DUALFS-S1).
    pub fn slack(&self) -> u64 {
        // What is overwritten in place has to move once.
        let moving = self.changes.pages as u64;
        let gone = u64::from(self.state.data) + self.changes.freed.len() + moving;
        u64::from(self.geom.file_blocks()).saturating_sub(gone)
    }

    /// Data blocks that calls may leave dirty at most, with some to spare: those that users cannot have are twice as many.
    pub fn data_of_call(&self) -> u64 {
        ((256 << 10) >> self.geom.block_shift) + 8
    }

    /// Data blocks that users can have.
    pub fn data_capacity(&self) -> u64 {
        self.capacity_of(&self.geom)
    }

    /// The same in another geometry.
    pub fn capacity_of(&self, geom: &Geom) -> u64 {
        u64::from(geom.file_blocks()).saturating_sub(2 * self.data_of_call())
    }

    /// Takes a run of at most `want` data blocks: those from `goal` on if they are free, else in the group, else near it.
    pub fn allocate(&mut self, group: Group, goal: Option<u32>, want: u32) -> Result<(DataBlock, u32)> {
        if let Some(run) = goal.map_or(Ok(None), |goal| self.take_at(goal, want))? {
            return Ok(run);
        }
        let mut damaged = None;
        while let Some(near) = self.groups.open.nearest(group.0).map(Group) {
            match self.take_in(near, want) {
                Ok(Some(run)) => return Ok(run),
                Ok(None) => {}
                // Its bitmap cannot be read: other groups serve.
                Err(Error::Corrupt(c)) => {
                    self.calls.health.note_damage();
                    damaged = Some(c);
                }
                Err(e) => return Err(e),
            }
            self.groups.open.remove(near.0);
        }
        Err(damaged.map_or(Errno::ENOSPC.into(), Error::Corrupt))
    }

    /// Finds a group that may have a free block, and whose bitmap can be read: who is told now that there is none has changed
    /// nothing.
    pub fn find_sound_group(&mut self) -> Result<()> {
        let mut damaged = None;
        while self.groups.sound.is_none_or(|group| !self.groups.open.contains(group)) {
            let Some(near) = self.groups.open.nearest(0) else {
                let none = self.calls.health.has_met_damage().then_some(Errno::ENOSPC.into());
                return damaged.or(none).map_or(Ok(()), Err);
            };
            match self.bitmap(Group(near)) {
                Err(e @ Error::Corrupt(_)) => {
                    self.calls.health.pass_by(&e);
                    self.groups.open.remove(near);
                    damaged = Some(e);
                }
                bitmap => {
                    bitmap?;
                    self.groups.sound = Some(near);
                }
            }
        }
        Ok(())
    }

    /// Takes the blocks from `goal` on, as many as are free in its group.
    fn take_at(&mut self, goal: u32, want: u32) -> Result<Option<(DataBlock, u32)>> {
        let group = self.geom.group_of(DataBlock(goal));
        if !self.geom.is_data(goal) || goal < self.groups.floor || !self.groups.open.contains(group.0) {
            return Ok(None);
        }
        let Ok(bits) = self.bitmap(group) else { return Ok(None) };
        let (at, len) = (goal - self.geom.group_start(group), self.geom.group_len(group));
        match bitmap::free_run(&bits, at, want, len) {
            0 => Ok(None),
            run => self.take(group, at, run).map(Some),
        }
    }

    /// Takes blocks of a group: the first run that is as long as wanted, else the longest of some.
    fn take_in(&mut self, group: Group, want: u32) -> Result<Option<(DataBlock, u32)>> {
        let (bits, len) = (self.bitmap(group)?, self.geom.group_len(group));
        let mut at = self.groups.floor.saturating_sub(self.geom.group_start(group)).min(len);
        let mut best = (0, 0);
        for _ in 0..LOOKED_AT {
            let Some(free) = bitmap::next_free(&bits, at, len) else { break };
            let run = bitmap::free_run(&bits, free, want, len);
            if run > best.1 {
                best = (free, run);
            }
            if run == want {
                break;
            }
            at = free + run;
        }
        match best {
            (_, 0) => Ok(None),
            (free, run) => self.take(group, free, run).map(Some),
        }
    }

    fn take(&mut self, group: Group, at: u32, run: u32) -> Result<(DataBlock, u32)> {
        let first = self.geom.group_start(group) + at;
        self.mark_run(RunInfo { first: first.into(), count: run.into() })?;
        self.groups.taken.push(RunInfo { first: first.into(), count: run.into() });
        Ok((DataBlock(first), run))
    }

    /// The bitmap of a group. What is changed with it can be read, too.
    pub fn bitmap(&mut self, group: Group) -> Result<Arc<Vec<u8>>> {
        let (lbn, i) = (self.bitmap_lbn(group), self.inode(IFILE)?);
        self.pointer(&i, FileBlock::Data(lbn))?;
        self.ifile_page(lbn)
    }

    /// Marks a run of data blocks of one group in its bitmap, and counts it. What is marked so already is damage.
    pub fn mark_run(&mut self, run: RunInfo) -> Result<()> {
        let (first, count, freed) = (run.first.get(), run.count.get() & !FREED, run.count.get() & FREED != 0);
        let group = self.geom.group_of(DataBlock(first));
        let (at, lbn) = (first - self.geom.group_start(group), self.bitmap_lbn(group));
        let bits = self.bitmap(group)?;
        let agrees = if freed { bitmap::all_used(&bits, at, count) } else { bitmap::all_free(&bits, at, count) };
        if !agrees {
            let (found, expected) = if freed { ("free", "in use") } else { ("in use", "free") };
            let found = format!("data blocks {first} to {} {found}", first + count - 1);
            let at = Location::file(IFILE, lbn << self.geom.block_shift);
            return Err(Corrupt::new("bitmap", "bits", at, found, expected).into());
        }
        self.ifile_change(lbn, |buf| match freed {
            true => bitmap::set_free(buf, at, count),
            false => bitmap::set_used(buf, at, count),
        })?;
        let desc = self.groups.get(group);
        let used = match freed {
            true => desc.used.get().saturating_sub(count),
            false => desc.used.get().saturating_add(count).min(self.geom.group_len(group)),
        };
        self.groups.set(&self.geom, group, GroupDesc { used: used.into(), ..desc });
        Ok(())
    }

    /// Marks what was freed since the last set as free; returns the runs, each in one group.
    pub fn free_runs(&mut self) -> Result<Vec<RunInfo>> {
        let mut runs = Vec::new();
        let freed: Vec<_> = self.changes.freed.runs().collect();
        for run in freed {
            let (mut first, end) = (*run.start(), *run.end() + 1);
            while first < end {
                let group = self.geom.group_of(DataBlock(first));
                let here = end.min(self.geom.group_start(group) + self.geom.group_len(group));
                self.used_runs(group, first..here, &mut runs)?;
                first = here.max(first + 1);
            }
        }
        runs.iter().try_for_each(|run| self.mark_run(*run))?;
        Ok(runs)
    }

    /// Adds those of these blocks of a group that are in use. What led to others was damaged. Where the bitmap is damaged, or
    /// cannot be read, they stay in use.
    fn used_runs(&mut self, group: Group, blocks: Range<u32>, runs: &mut Vec<RunInfo>) -> Result<()> {
        let (bits, start) = match self.bitmap(group) {
            Ok(bits) => (bits, self.geom.group_start(group)),
            Err(e @ (Error::Corrupt(_) | Error::Io(_))) => {
                self.calls.health.pass_by(e);
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let (mut at, end) = (blocks.start - start, blocks.end - start);
        while at < end {
            let free = bitmap::next_free(&bits, at, end).unwrap_or(end);
            if free > at {
                runs.push(RunInfo { first: (start + at).into(), count: ((free - at) | FREED).into() });
            } else {
                self.calls.health.note_damage();
            }
            at = free.max(at + 1);
        }
        Ok(())
    }

    /// Whether a bit of a bitmap that is in the cache says that a block is in use; for the invariants.
    pub fn peek_used(&self, block: u32) -> Option<bool> {
        let group = self.geom.group_of(DataBlock(block));
        let page = self.cache.peek(Name::File(IFILE, FileBlock::Data(self.bitmap_lbn(group))))?;
        Some(!bitmap::is_free(page, block - self.geom.group_start(group)))
    }
}
