//! Which fragments have an owner, and how much lives in each segment.

use crate::format::*;
use arbor_base::layout::hash;

/// What is claimed in a pass.
pub(super) struct Space {
    geom: Geom,
    /// Three bits for each fragment: it has an owner, a block begins there, it holds inodes.
    used: Vec<u64>,
    starts: Vec<u64>,
    inodes: Vec<u64>,
    /// Of each segment, the bytes that live.
    live: Vec<u64>,
    /// Of each segment, the sum of the prints of what lives there.
    sums: Vec<u64>,
    /// Of each segment, the fragment of it behind the last that has an owner.
    ends: Vec<u32>,
}

/// What tells a block in the log from others: where it lies, whose it is, which one, how long, its checksum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Print {
    pub frag: u32,
    pub ino: u32,
    pub version: u32,
    pub place: u64,
    pub frags: u32,
    pub crc: u32,
}

/// Which block an inode is, for its print.
const INODE_PLACE: u64 = 0xfe << 56;

impl Print {
    pub fn of_inode(frag: u32, ino: u32, version: u32) -> Print {
        Print { frag, ino, version, place: INODE_PLACE, frags: 1, crc: 0 }
    }

    /// As a number. A sum of such numbers tells sets of blocks from each other.
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

fn get(bits: &[u64], i: u32) -> bool {
    bits.get(i as usize / 64).is_some_and(|w| w >> (i % 64) & 1 == 1)
}

fn set(bits: &mut [u64], i: u32) {
    if let Some(w) = bits.get_mut(i as usize / 64) {
        *w |= 1 << (i % 64);
    }
}

impl Space {
    pub fn new(geom: Geom, segs: u32) -> Space {
        let words = (u64::from(segs) * u64::from(geom.seg_frags())).div_ceil(64) as usize;
        let bits = || vec![0; words];
        let each = segs as usize;
        Space {
            geom,
            used: bits(),
            starts: bits(),
            inodes: bits(),
            live: vec![0; each],
            sums: vec![0; each],
            ends: vec![0; each],
        }
    }

    /// Nothing is claimed.
    pub fn begin(&mut self) {
        for bits in [&mut self.used, &mut self.starts, &mut self.inodes, &mut self.live, &mut self.sums] {
            bits.fill(0);
        }
        self.ends.fill(0);
    }

    fn at(&self, frag: u32) -> u32 {
        frag.saturating_sub(self.geom.first)
    }

    /// First fragment of a run that has an owner.
    pub fn taken(&self, frag: u32, frags: u32) -> Option<u32> {
        (frag..frag.saturating_add(frags)).find(|f| get(&self.used, self.at(*f)))
    }

    /// A run of fragments of one segment gets its owner.
    pub fn claim(&mut self, p: Print) {
        let at = self.at(p.frag);
        (at..at.saturating_add(p.frags)).for_each(|f| set(&mut self.used, f));
        set(&mut self.starts, at);
        self.count(p.frag, p.frags, self.geom.bytes_of(p.frags) as u64, p.number());
    }

    /// Whether inodes may lie in a fragment.
    pub fn may_hold_inode(&self, frag: u32) -> bool {
        !get(&self.used, self.at(frag)) || get(&self.inodes, self.at(frag))
    }

    /// An inode lies in this fragment, which others may share. `sum`: summaries name it.
    pub fn claim_inode(&mut self, p: Print, sum: bool) {
        let at = self.at(p.frag);
        set(&mut self.used, at);
        set(&mut self.inodes, at);
        self.count(p.frag, 1, INODE as u64, if sum { p.number() } else { 0 });
    }

    fn count(&mut self, frag: u32, frags: u32, bytes: u64, number: u64) {
        let Some(seg) = self.geom.seg_of(Frag(frag)) else { return };
        let n = seg.0 as usize;
        if let (Some(live), Some(sum), Some(end)) = (self.live.get_mut(n), self.sums.get_mut(n), self.ends.get_mut(n)) {
            *live = live.saturating_add(bytes);
            *sum = sum.wrapping_add(number);
            *end = (*end).max(frag.saturating_sub(self.geom.seg_start(seg).0).saturating_add(frags));
        }
    }

    /// Whether a block that lives begins there.
    pub fn begins(&self, frag: u32) -> bool {
        get(&self.starts, self.at(frag))
    }

    pub fn live(&self, seg: u32) -> u64 {
        self.live.get(seg as usize).copied().unwrap_or(0)
    }

    pub fn sum(&self, seg: u32) -> u64 {
        self.sums.get(seg as usize).copied().unwrap_or(0)
    }

    pub fn end(&self, seg: u32) -> u32 {
        self.ends.get(seg as usize).copied().unwrap_or(0)
    }

    /// Bytes that live.
    pub fn total(&self) -> u64 {
        self.live.iter().sum()
    }
}
