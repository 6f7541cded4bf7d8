//! Block-mapped translation with log blocks, after Kim et al. 2002 (BAST): a block's overwrites go to a log block of
//! its own until it is full or its place is needed; then both are merged.
//!
//! A block here is one erase block of every die, so that its pages are programmed in parallel. A log block that holds
//! the pages 0, 1, 2 ... in order becomes the data block (a switch, after the rest was copied to it); any other is
//! merged by copying every page to a new block. This is why such drives are slow with random writes.

use crate::stats::SsdStats;

const NONE: u32 = u32::MAX;

/// What one command cost the flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub programmed: u64,
    /// Pages read and programmed by merges.
    pub moved: u64,
    /// Blocks erased.
    pub erased: u64,
    /// Pages read because they are written in part.
    pub read: u64,
}

#[derive(Clone, Debug)]
struct Log {
    block: u64,
    /// The pages in the order of writing.
    pages: Vec<u32>,
    used: u64,
}

impl Log {
    fn in_order(&self) -> bool {
        self.pages.iter().enumerate().all(|(i, page)| *page == i as u32)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct LogBlocks {
    pages_per_block: u32,
    page_bytes: u64,
    /// Which pages of a block were ever written; nothing for blocks that never were.
    written: Vec<Option<Box<[u64]>>>,
    /// Whether a block has a data block besides what its log holds.
    has_data: Vec<bool>,
    logs: Vec<Log>,
    /// Which of `logs` a block has, [`NONE`] if it has none.
    log_of: Vec<u32>,
    log_blocks: usize,
    uses: u64,
    stats: SsdStats,
}

impl LogBlocks {
    pub fn new(capacity_bytes: u64, page_bytes: u64, pages_per_block: u32, log_blocks: usize) -> LogBlocks {
        let blocks = capacity_bytes.div_ceil(page_bytes * u64::from(pages_per_block)) as usize;
        LogBlocks {
            pages_per_block,
            page_bytes,
            written: vec![None; blocks],
            has_data: vec![false; blocks],
            logs: Vec::with_capacity(log_blocks),
            log_of: vec![NONE; blocks],
            log_blocks,
            uses: 0,
            stats: SsdStats::default(),
        }
    }

    pub fn stats(&self) -> SsdStats {
        self.stats
    }

    fn split(&self, page: u64) -> (u64, u32) {
        let per_block = u64::from(self.pages_per_block);
        (page / per_block, (page % per_block) as u32)
    }

    /// Whether a page was ever written.
    pub fn is_written(&self, page: u64) -> bool {
        let (block, page) = self.split(page);
        self.written[block as usize].as_ref().is_some_and(|w| w[page as usize / 64] >> (page % 64) & 1 == 1)
    }

    /// Writes one page.
    pub fn write(&mut self, page: u64, work: &mut Work) {
        let (block, page) = self.split(page);
        let i = self.log_for(block, work);
        self.uses += 1;
        self.logs[i].used = self.uses;
        self.logs[i].pages.push(page);
        let words = (self.pages_per_block as usize).div_ceil(64);
        let written = self.written[block as usize].get_or_insert_with(|| vec![0; words].into_boxed_slice());
        let bit = 1 << (page % 64);
        self.stats.mapped_bytes += if written[page as usize / 64] & bit == 0 { self.page_bytes } else { 0 };
        written[page as usize / 64] |= bit;
        work.programmed += 1;
        self.stats.host_bytes += self.page_bytes;
        self.count_programs(1);
    }

    fn count_programs(&mut self, pages: u64) {
        self.stats.flash_pages += pages;
        self.stats.flash_bytes += pages * self.page_bytes;
    }

    /// A log block of this block with room.
    fn log_for(&mut self, block: u64, work: &mut Work) -> usize {
        let i = self.log_of[block as usize] as usize;
        if i != NONE as usize {
            if self.logs[i].pages.len() < self.pages_per_block as usize {
                return i;
            }
            self.merge(i, work);
        } else if self.logs.len() == self.log_blocks {
            let oldest = self.logs.iter().enumerate().min_by_key(|(_, l)| l.used).map_or(0, |(i, _)| i);
            self.merge(oldest, work);
        }
        self.log_of[block as usize] = self.logs.len() as u32;
        self.logs.push(Log { block, pages: Vec::new(), used: 0 });
        self.logs.len() - 1
    }

    fn merge(&mut self, i: usize, work: &mut Work) {
        let log = self.logs.swap_remove(i);
        let block = log.block as usize;
        self.log_of[block] = NONE;
        if let Some(moved) = self.logs.get(i) {
            self.log_of[moved.block as usize] = i as u32;
        }
        let written: u64 =
            self.written[block].as_ref().map_or(0, |w| w.iter().map(|word| u64::from(word.count_ones())).sum());
        let (moved, erased) = if log.in_order() {
            (written - log.pages.len() as u64, u64::from(self.has_data[block]))
        } else {
            (written, 1 + u64::from(self.has_data[block]))
        };
        self.has_data[block] = true;
        work.moved += moved;
        work.erased += erased;
        self.count_programs(moved);
        self.stats.moved_bytes += moved * self.page_bytes;
        self.stats.erases += erased;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(logs: &mut LogBlocks, pages: impl IntoIterator<Item = u64>) -> Work {
        let mut work = Work::default();
        pages.into_iter().for_each(|p| logs.write(p, &mut work));
        work
    }

    #[test]
    fn sequential_rewrite_switches_without_a_copy() {
        let mut logs = LogBlocks::new(4 * 8 * 2048, 2048, 8, 2);
        write(&mut logs, 0..32);
        let work = write(&mut logs, 0..32);
        assert_eq!((work.moved, work.programmed), (0, 32));
        // A block of the first round and those of the second but for the two still in logs.
        assert_eq!(work.erased, 2);
        assert_eq!(logs.stats().mapped_bytes, 32 * 2048);
    }

    #[test]
    fn a_page_out_of_order_costs_a_full_merge() {
        let mut logs = LogBlocks::new(4 * 8 * 2048, 2048, 8, 1);
        write(&mut logs, 0..32);
        let first = write(&mut logs, [5]);
        assert_eq!((first.moved, first.erased), (0, 0), "the last block of the fill is switched");
        let work = write(&mut logs, [13]);
        assert_eq!((work.moved, work.erased), (8, 2), "all of block 0, and its log");
    }

    #[test]
    fn the_beginning_of_a_block_is_completed_by_a_copy() {
        let mut logs = LogBlocks::new(4 * 8 * 2048, 2048, 8, 1);
        write(&mut logs, 0..16);
        write(&mut logs, 0..3);
        let work = write(&mut logs, [8]);
        assert_eq!((work.moved, work.erased), (5, 1));
    }
}
