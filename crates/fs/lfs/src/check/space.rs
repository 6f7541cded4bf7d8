//! Owners of fragments, and live bytes of each segment.

use crate::format::*;
use arbor_base::layout::hash;
use std::collections::BTreeMap;

/// The claims of a pass.
pub(super) struct Space {
    geom: Geom,
    /// Segments of the volume.
    count: u32,
    /// Segments with claims: the memory of a check goes by what a volume holds, not by its size.
    segs: BTreeMap<u32, Claims>,
}

/// The claims in a segment.
#[derive(Default)]
struct Claims {
    /// Three bits for each fragment up to the last one claimed, 64 at a time: [`USED`], [`STARTS`], [`INODES`].
    bits: Vec<[u64; 3]>,
    /// Live bytes.
    live: u64,
    /// The sum of the prints of live blocks and inodes.
    sum: u64,
    /// The fragment after the last one with an owner.
    end: u32,
}

/// A fragment has an owner.
const USED: usize = 0;
/// A block begins there.
const STARTS: usize = 1;
/// It holds inodes.
const INODES: usize = 2;

impl Claims {
    fn get(&self, what: usize, at: u32) -> bool {
        let word = self.bits.get(at as usize / 64).and_then(|words| words.get(what));
        word.is_some_and(|w| w >> (at % 64) & 1 == 1)
    }

    fn set(&mut self, what: usize, at: u32) {
        let n = at as usize / 64;
        if self.bits.len() <= n {
            self.bits.resize(n + 1, [0; 3]);
        }
        if let Some(w) = self.bits.get_mut(n).and_then(|words| words.get_mut(what)) {
            *w |= 1 << (at % 64);
        }
    }
}

/// The identity of a block in the log: its address, its file, which block of it, its length, its checksum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Print {
    pub frag: u32,
    pub ino: u32,
    pub version: u32,
    pub place: u64,
    pub frags: u32,
    pub crc: u32,
}

/// The block code of an inode, for its print.
const INODE_PLACE: u64 = 0xfe << 56;

impl Print {
    pub fn of_inode(frag: u32, ino: u32, version: u32) -> Print {
        Print { frag, ino, version, place: INODE_PLACE, frags: 1, crc: 0 }
    }

    /// The print as a number. A sum of such numbers tells sets of blocks from each other.
    pub fn number(&self) -> u64 {
        let mut bytes = [0; 24];
        let parts = [u64::from(self.ino) << 32 | u64::from(self.version), self.place];
        for (place, n) in bytes.chunks_exact_mut(8).zip(parts) {
            place.copy_from_slice(&n.to_le_bytes());
        }
        bytes[16..].copy_from_slice(&(u64::from(self.frag) << 32 | u64::from(self.crc)).to_le_bytes());
        hash((0x4c46_5320, self.frags.into()), &bytes)
    }
}

impl Space {
    pub fn new(geom: Geom, count: u32) -> Space {
        Space { geom, count, segs: BTreeMap::new() }
    }

    /// Drops all claims.
    pub fn begin(&mut self) {
        self.segs.clear();
    }

    /// The segment of a fragment, and its offset there.
    fn at(&self, frag: u32) -> Option<(u32, u32)> {
        let seg = self.geom.seg_of(Frag(frag)).filter(|seg| seg.0 < self.count)?;
        Some((seg.0, frag - self.geom.seg_start(seg).0))
    }

    fn get(&self, what: usize, frag: u32) -> bool {
        self.at(frag).is_some_and(|(seg, at)| self.segs.get(&seg).is_some_and(|claims| claims.get(what, at)))
    }

    /// First fragment of a run that has an owner.
    pub fn taken(&self, frag: u32, frags: u32) -> Option<u32> {
        (frag..frag.saturating_add(frags)).find(|f| self.get(USED, *f))
    }

    /// Claims a run of fragments of one segment.
    pub fn claim(&mut self, p: Print) {
        self.count(p.frag, p.frags, self.geom.bytes_of(p.frags) as u64, p.number(), STARTS);
    }

    /// Whether inodes may lie in a fragment.
    pub fn may_hold_inode(&self, frag: u32) -> bool {
        !self.get(USED, frag) || self.get(INODES, frag)
    }

    /// Claims a fragment for an inode; other inodes may share it. `sum`: summaries name the inode.
    pub fn claim_inode(&mut self, p: Print, sum: bool) {
        self.count(p.frag, 1, INODE as u64, if sum { p.number() } else { 0 }, INODES);
    }

    fn count(&mut self, frag: u32, frags: u32, bytes: u64, number: u64, what: usize) {
        let Some((seg, at)) = self.at(frag) else { return };
        let end = at.saturating_add(frags).min(self.geom.seg_frags());
        let claims = self.segs.entry(seg).or_default();
        (at..end).for_each(|f| claims.set(USED, f));
        claims.set(what, at);
        claims.live = claims.live.saturating_add(bytes);
        claims.sum = claims.sum.wrapping_add(number);
        claims.end = claims.end.max(end);
    }

    /// Whether a live block begins there.
    pub fn begins(&self, frag: u32) -> bool {
        self.get(STARTS, frag)
    }

    /// Segments with claims, ascending.
    pub fn segs(&self) -> impl Iterator<Item = u32> + '_ {
        self.segs.keys().copied()
    }

    pub fn live(&self, seg: u32) -> u64 {
        self.segs.get(&seg).map_or(0, |claims| claims.live)
    }

    pub fn sum(&self, seg: u32) -> u64 {
        self.segs.get(&seg).map_or(0, |claims| claims.sum)
    }

    pub fn end(&self, seg: u32) -> u32 {
        self.segs.get(&seg).map_or(0, |claims| claims.end)
    }

    /// Live bytes of all segments.
    pub fn total(&self) -> u64 {
        self.segs.values().map(|claims| claims.live).fold(0, u64::saturating_add)
    }
}
