//! Units: blocks that the device writes together at about the price of one.
//!
//! Of flash that is mapped by blocks a unit is one of these, of a disk a stretch that its heads pass at once. So blocks get
//! places in the unit that has most free ones, wherever these lie in it: one price is then paid for many of them.
//!
//! Such flash has a few *open* units, which take writes to any of their blocks until as many were written as a unit has. The
//! copy that a unit costs is paid when it is closed, so what is written to an open one costs nothing more. A unit that was
//! free as a whole and is filled in order costs no copy at all, as long as nothing else is written to it.

use crate::format::{BITS, BLOCK};
use arbor_base::device::Medium;
use arbor_kit::buddy::bitmap;
use std::collections::VecDeque;
use std::ops::Range;

/// What the heads of a disk pass at once, blocks: a few tracks.
const STRETCH: u32 = 1024;
/// So many blocks begin at a byte of the dBitmap.
const ALIGN: u32 = 8;

/// Units of a device, and which are open.
#[derive(Debug, Default)]
pub(crate) struct Units {
    /// Blocks of a unit; 1 where each block has its own price.
    blocks: u32,
    /// Most that are open.
    most: usize,
    /// The one written last at the end.
    open: VecDeque<Open>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    unit: u32,
    written: u32,
    /// It was free, and is filled in order.
    is_ordered: bool,
}

impl Units {
    pub fn new(medium: Medium) -> Units {
        let (blocks, most) = match medium {
            Medium::Pages => (1, 0),
            Medium::Disk | Medium::Unknown => (STRETCH, 0),
            // Blocks are written in another order than they become dirty.
            Medium::Blocks { bytes, open } => (bytes / BLOCK as u32 / ALIGN * ALIGN, open - open / 8),
        };
        Units { blocks: blocks.max(1), most: most as usize, open: VecDeque::new() }
    }

    /// Blocks of a unit; `None` where each block has its own price.
    pub fn blocks(&self) -> Option<u32> {
        Some(self.blocks).filter(|blocks| *blocks > 1)
    }

    /// The blocks of the unit of a block.
    pub fn around(&self, block: u32) -> Range<u32> {
        let first = block / self.blocks * self.blocks;
        first..first.saturating_add(self.blocks)
    }

    /// The number of the unit of a block.
    pub fn number(&self, block: u32) -> u32 {
        block / self.blocks
    }

    /// Whether a block may be written at no further price.
    pub fn is_open(&self, block: u32) -> bool {
        let takes = |open: &Open| !open.is_ordered && open.written < self.blocks;
        self.open.iter().any(|open| open.unit == self.number(block) && takes(open))
    }

    /// The open units, the one written last first.
    pub fn open(&self) -> impl Iterator<Item = Range<u32>> {
        let takes = |open: &&Open| !open.is_ordered && open.written < self.blocks;
        self.open.iter().rev().filter(takes).map(|open| self.around(open.unit * self.blocks))
    }

    /// Notes that a block will be written.
    pub fn note(&mut self, block: u32) {
        if self.most == 0 {
            return;
        }
        let unit = self.number(block);
        let found = self.open.iter().position(|open| open.unit == unit).and_then(|at| self.open.remove(at));
        let open = found.filter(|open| open.written < self.blocks);
        let open = open.unwrap_or(Open { unit, written: 0, is_ordered: false });
        self.open.push_back(Open { written: open.written + 1, ..open });
        if self.open.len() > self.most {
            self.open.pop_front();
        }
    }

    /// Notes that a unit that is free as a whole will be filled.
    pub fn note_whole(&mut self, block: u32) {
        let unit = self.number(block);
        if self.most > 0 && self.open.iter().all(|open| open.unit != unit) {
            self.open.push_back(Open { unit, written: 0, is_ordered: true });
        }
    }

    /// The part of a unit that one block of the dBitmap covers with the most free blocks, and how many; from block `from` on,
    /// of units that `may` be taken.
    pub fn densest(&self, bits: &[u8], n: u32, from: u32, may: impl Fn(u32) -> bool) -> Option<(u32, Range<u32>)> {
        let (first, end) = (n.saturating_mul(BITS), n.saturating_add(1).saturating_mul(BITS));
        let mut best: Option<(u32, Range<u32>)> = None;
        let mut at = self.around(from).start.max(first);
        while at < end {
            let part = at..self.around(at).end.min(end);
            let free = free_in(bits, first, &part);
            if free > best.as_ref().map_or(0, |(most, _)| *most) && may(part.start) {
                best = Some((free, part.clone()));
            }
            if best.as_ref().is_some_and(|(most, _)| *most >= self.blocks) {
                break;
            }
            at = part.end;
        }
        best
    }
}

/// Free blocks of a part of what a block of the dBitmap covers, which begins with block `first`.
pub(crate) fn free_in(bits: &[u8], first: u32, part: &Range<u32>) -> u32 {
    let begin = (part.start.saturating_sub(first) / ALIGN) as usize;
    bitmap::count_free(bits.get(begin..).unwrap_or(&[]), part.end.saturating_sub(part.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flash() -> Units {
        Units::new(Medium::Blocks { bytes: 16 * BLOCK as u32, open: 3 })
    }

    #[test]
    fn a_unit_is_open_until_it_was_written_once_over_or_others_were() {
        let mut units = flash();
        assert!(!units.is_open(35));
        units.note(35);
        assert!(units.is_open(32) && units.is_open(47) && !units.is_open(31) && !units.is_open(48));
        (1..16).for_each(|_| units.note(40));
        assert!(!units.is_open(35), "it is full");
        units.note(40);
        assert!(units.is_open(35), "it was opened again");
        [0, 16].into_iter().for_each(|block| units.note(block));
        assert!(units.is_open(35));
        units.note(48);
        assert!(!units.is_open(35) && units.open().eq([48..64, 16..32, 0..16]));
    }

    #[test]
    fn a_unit_that_is_filled_in_order_is_left_alone() {
        let mut units = flash();
        units.note_whole(16);
        (16..24).for_each(|block| units.note(block));
        assert!(!units.is_open(16) && units.open().next().is_none());
        // It ends, and what comes then is out of order.
        (24..33).for_each(|block| units.note(block));
        units.note(16);
        assert!(units.is_open(16));
    }

    #[test]
    fn the_unit_with_most_free_blocks_is_found() {
        let units = flash();
        let mut bits = vec![0xff; BITS as usize / 8];
        bitmap::set_free(&mut bits, 40, 3);
        bitmap::set_free(&mut bits, 100, 5);
        bitmap::set_free(&mut bits, 1000, 5);
        assert_eq!(units.densest(&bits, 0, 0, |_| true), Some((5, 96..112)));
        assert_eq!(units.densest(&bits, 0, 113, |_| true), Some((5, 992..1008)));
        assert_eq!(units.densest(&bits, 0, 2000, |_| true), None);
        bitmap::set_free(&mut bits, 2000, 64);
        assert_eq!(units.densest(&bits, 0, 0, |_| true), Some((16, 2000..2016)), "one that is free as a whole");
        // The second block of the dBitmap begins amid no unit, but at a byte.
        assert_eq!(units.densest(&bits, 1, BITS, |_| true).map(|(free, _)| free), Some(16));
    }

    #[test]
    fn where_each_block_has_its_price_there_are_none() {
        for medium in [Medium::Pages, Medium::Blocks { bytes: 4096, open: 8 }] {
            let mut units = Units::new(medium);
            units.note(7);
            assert!(units.blocks().is_none() && !units.is_open(7));
        }
        assert_eq!(Units::new(Medium::Unknown).blocks(), Some(STRETCH));
    }
}
