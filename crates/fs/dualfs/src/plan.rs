//! The plan of a set of partial segments: the address of everything, before anything is changed.
//!
//! Called by `commit.rs`, which writes what was planned.

use crate::format::*;
use arbor_base::cache::FileBlock;
use arbor_base::vfs::{Error, Ino, Result};
use arbor_kit::runs::Runs;
use std::collections::BTreeSet;
use std::mem::size_of;

/// Where the log ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogEnd {
    /// The segment that is being filled.
    pub seg: Seg,
    /// Blocks of it that are filled.
    pub offset: u32,
    pub next_seg: Seg,
    /// Ordinal number of this filling.
    pub fill: u64,
    /// Number of the next set.
    pub set: u64,
    /// Number of the mount.
    pub epoch: u64,
}

impl LogEnd {
    pub fn of(cp: &Checkpoint) -> LogEnd {
        LogEnd {
            seg: Seg(cp.seg.get()),
            offset: cp.offset.get(),
            next_seg: Seg(cp.next_seg.get()),
            fill: cp.fill.get(),
            set: cp.set.get(),
            epoch: cp.epoch.get(),
        }
    }

    /// The segment that is being filled, and the one to be filled next.
    pub fn busy(&self) -> [u32; 2] {
        [self.seg.0, self.next_seg.0]
    }

    /// In the next segment, from its start.
    pub fn advanced(self, next_seg: Seg) -> LogEnd {
        LogEnd { seg: self.next_seg, offset: 0, next_seg, fill: self.fill + 1, ..self }
    }
}

/// A metadata block to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub ino: Ino,
    pub version: u32,
    pub part: FileBlock,
}

/// What a set is to write.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub blocks: Vec<Block>,
    pub inodes: Vec<Ino>,
    /// Further entries of the inode map that have changed.
    pub entries: Vec<Ino>,
    pub deaths: Vec<SegInfo>,
    pub runs: Vec<RunInfo>,
    pub groups: Vec<GroupInfo>,
}

/// A partial segment that is planned.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub seg: Seg,
    pub at: u32,
    pub fill: u64,
    pub next_seg: Seg,
    pub batch: Batch,
}

impl Part {
    /// Blocks of its summary, and of all of it.
    pub fn lens(&self, geom: &Geom) -> (u32, u32) {
        let b = &self.batch;
        let infos = b.blocks.len() * size_of::<BlockInfo>()
            + (b.inodes.len() + b.entries.len()) * size_of::<InodeInfo>()
            + b.deaths.len() * size_of::<SegInfo>()
            + b.runs.len() * size_of::<RunInfo>()
            + b.groups.len() * size_of::<GroupInfo>();
        let own = geom.blocks_for((SUMMARY + infos) as u64) as u32;
        let blocks = b.blocks.len() + b.inodes.len().div_ceil(geom.inodes());
        (own, own + blocks as u32)
    }

    /// Live bytes of it.
    pub fn live(&self, geom: &Geom) -> u32 {
        (self.batch.blocks.len() * geom.block() + self.batch.inodes.len() * INODE) as u32
    }

    fn is_empty(&self) -> bool {
        let b = &self.batch;
        let parts = [b.blocks.is_empty(), b.inodes.is_empty(), b.entries.is_empty(), b.deaths.is_empty()];
        parts.iter().all(|empty| *empty) && b.runs.is_empty() && b.groups.is_empty()
    }
}

/// Gives addresses at the end of the log to what is to be written, without changing anything.
pub(crate) struct Planner<'a> {
    geom: Geom,
    clean: &'a Runs,
    taken: BTreeSet<u32>,
    end: LogEnd,
    part: Part,
    done: Vec<Part>,
}

impl<'a> Planner<'a> {
    pub fn new(geom: Geom, clean: &'a Runs, end: LogEnd) -> Planner<'a> {
        let mut planner = Planner { geom, clean, taken: BTreeSet::new(), end, part: Part::default(), done: Vec::new() };
        planner.open();
        planner
    }

    fn open(&mut self) {
        let LogEnd { seg, offset: at, fill, next_seg, .. } = self.end;
        self.part = Part { seg, at, fill, next_seg, ..Part::default() };
    }

    /// Ends the partial segment, if it is not empty.
    fn close(&mut self) {
        if !self.part.is_empty() {
            self.end.offset += self.part.lens(&self.geom).1;
            self.done.push(std::mem::take(&mut self.part));
        }
        self.open();
    }

    /// Goes on in the next segment (DUALFS-C1); the one after it is the next clean one above.
    fn advance(&mut self) -> Result<()> {
        let from = self.end.next_seg.0;
        let is_free = |n: &u32| !self.taken.contains(n);
        let next = self.clean.after(from).find(is_free).or_else(|| self.clean.before(from).find(is_free));
        let Some(next) = next else {
            return Err(Error::Io(std::io::Error::other("the log has no clean segment to go on in")));
        };
        self.taken.insert(next);
        self.end = self.end.advanced(Seg(next));
        self.open();
        Ok(())
    }

    /// Adds something to the partial segment, or to the next one if it does not fit.
    fn add<T>(&mut self, list: impl Fn(&mut Batch) -> &mut Vec<T>, one: T) -> Result<()> {
        list(&mut self.part.batch).push(one);
        if self.part.at + self.part.lens(&self.geom).1 <= self.geom.seg_blocks() {
            return Ok(());
        }
        let one = list(&mut self.part.batch).pop();
        self.close();
        self.advance()?;
        list(&mut self.part.batch).extend(one);
        Ok(())
    }

    /// Plans the partial segments of a set; returns them, and the end of the log after them.
    pub fn run(mut self, batch: Batch) -> Result<(Vec<Part>, LogEnd)> {
        for block in batch.blocks {
            self.add(|b| &mut b.blocks, block)?;
        }
        for ino in batch.inodes {
            self.add(|b| &mut b.inodes, ino)?;
        }
        for ino in batch.entries {
            self.add(|b| &mut b.entries, ino)?;
        }
        for death in batch.deaths {
            self.add(|b| &mut b.deaths, death)?;
        }
        for run in batch.runs {
            self.add(|b| &mut b.runs, run)?;
        }
        for group in batch.groups {
            self.add(|b| &mut b.groups, group)?;
        }
        self.close();
        Ok((self.done, self.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geom() -> Geom {
        let (block_shift, seg_shift, segs) = (12, 16, 32);
        Geom { block_shift, seg_shift, group_blocks: 1024, segs, data_at: 0, data_blocks: 4096, heads: 0, fsid: 1 }
    }

    fn blocks(n: u64) -> Vec<Block> {
        (0..n).map(|lbn| Block { ino: Ino(5), version: 1, part: FileBlock::Data(lbn) }).collect()
    }

    #[test]
    fn parts_fill_segments_in_order_and_never_leave_them() {
        let clean = Runs::below(32);
        let end = LogEnd { seg: Seg(3), offset: 10, next_seg: Seg(4), fill: 7, set: 1, epoch: 1 };
        let batch = Batch { blocks: blocks(40), inodes: (2..30).map(Ino).collect(), ..Batch::default() };
        let (parts, end) = Planner::new(geom(), &clean, end).run(batch).unwrap();
        let at: Vec<_> = parts.iter().map(|p| (p.seg.0, p.at, p.lens(&geom()).1, p.fill)).collect();
        assert_eq!(at, [(3, 10, 6, 7), (4, 0, 16, 8), (5, 0, 16, 9), (6, 0, 8, 10)]);
        assert_eq!((end.seg, end.offset, end.next_seg), (Seg(6), 8, Seg(7)));
        assert_eq!(parts.iter().map(|p| p.batch.blocks.len()).sum::<usize>(), 40);
    }

    #[test]
    fn a_log_without_a_clean_segment_ends() {
        let end = LogEnd { seg: Seg(0), offset: 15, next_seg: Seg(1), fill: 1, set: 1, epoch: 1 };
        let batch = Batch { blocks: blocks(3), ..Batch::default() };
        assert!(Planner::new(geom(), &Runs::default(), end).run(batch).is_err());
    }
}
