//! Which blocks can be had, in core.

use crate::format::{BITS, BLOCK, Geom, HEAD, byte};
use crate::units::Units;
use arbor_base::layout::Location;
use arbor_base::vfs::Ino;
use arbor_kit::buddy::{Summary, bitmap};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// A block of the ifile or a bitmap that is made anew: of which file, its number there, what it is to hold, and whether it
/// lies in a block of its own so far.
pub(crate) type Lost = (Ino, u32, Vec<u8>, bool);

/// A block of a bitmap file, by its place there: it moves.
pub(crate) fn bits_at(file: Ino, n: u32) -> Location {
    Location::file(file, byte(n))
}

/// Which blocks can be had.
#[derive(Default)]
pub(crate) struct Space {
    pub maps: FxHashMap<u32, Map>,
    pub units: Units,
    /// The free run or the unit out of which free blocks are given away, one after the other.
    pub run: Range<u32>,
    /// How many it had.
    pub run_len: u32,
    /// Since the last commit another one was looked for, in vain.
    pub looked: bool,
    /// Allocated since the last commit.
    pub fresh: FxHashSet<u32>,
    /// Freed since the last commit, which has them.
    pub pending: Vec<u32>,
    /// Copies of the redo list of the last commit.
    pub held: Vec<u32>,
    /// Blocks of the iBitmap without a free bit.
    pub full: FxHashSet<u32>,
    /// Blocks of the dBitmap that cannot be read: nothing of what they cover is given away or freed.
    pub shut: FxHashSet<u32>,
    /// One of them could not be read in this call.
    pub unread: bool,
}

/// What a block of the dBitmap covers: 1 for what cannot be had.
pub(crate) struct Map {
    pub bits: Vec<u8>,
    pub summary: Summary,
    pub free: u32,
}

impl Space {
    pub fn take_bit(&mut self, block: u32) {
        if let Some(map) = self.maps.get_mut(&(block / BITS)) {
            bitmap::set_used(&mut map.bits, block % BITS, 1);
            map.summary.used(&map.bits, block % BITS, 1);
            map.free = map.free.saturating_sub(1);
        }
    }

    pub fn give_bit(&mut self, block: u32) {
        if let Some(map) = self.maps.get_mut(&(block / BITS)) {
            bitmap::set_free(&mut map.bits, block % BITS, 1);
            map.summary.freed(&map.bits, block % BITS, 1);
            map.free += 1;
        }
    }
}

impl Geom {
    /// The bits of block `n` of the dBitmap where nothing is in use but what is reserved.
    pub fn reserved_bits(&self, n: u32) -> Vec<u8> {
        let mut bits = vec![0; BLOCK - HEAD];
        let first = n.saturating_mul(BITS);
        let mut mark = |block: u32| bitmap::set_used(&mut bits, block - first, 1);
        let end = first.saturating_add(BITS).min(self.blocks);
        let stride = self.stride;
        (first.div_ceil(stride)..end.div_ceil(stride)).map(|n| n * stride).for_each(&mut mark);
        [0, 1, self.copy(), self.blocks - 1].into_iter().filter(|b| (first..end).contains(b)).for_each(mark);
        if end < first.saturating_add(BITS) {
            bitmap::set_used(&mut bits, end.saturating_sub(first), BITS - end.saturating_sub(first));
        }
        bits
    }
}
