//! Which blocks can be had, in core.

use crate::format::{BITS, byte};
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
    /// The free run out of which blocks are given away, one after the other.
    pub run: Range<u32>,
    /// How long it was.
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
