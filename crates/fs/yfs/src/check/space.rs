//! Who owns which fragment: one bit each.

use super::view::Reader;
use crate::format::*;
use arbor_kit::buddy::bitmap;

/// The fragments of all AGs in use.
pub(super) struct Space {
    geom: Geom,
    log: Option<(Frag, u32)>,
    /// A bitmap for each AG, 1 has an owner; empty until something asks for it.
    used: Vec<Vec<u8>>,
    /// Where to look for a free block, for each AG.
    next: Vec<u32>,
}

impl Space {
    /// Everything is free but the AGs' own structures and the log.
    pub fn new(r: &Reader<'_>) -> Space {
        let ags = r.ags() as usize;
        Space { geom: r.geom, log: r.log_run(), used: vec![Vec::new(); ags], next: vec![0; ags] }
    }

    /// Provides the bitmaps of all AGs.
    pub fn provide(&mut self) {
        (0..self.used.len()).for_each(|ag| self.provide_ag(ag));
    }

    fn provide_ag(&mut self, ag: usize) {
        let (geom, n) = (self.geom, ag as u32);
        let Some(bits) = self.used.get_mut(ag).filter(|b| b.is_empty()) else { return };
        let len = geom.ag_len(n);
        bits.resize((len as usize).div_ceil(64) * 8, 0);
        bitmap::set_used(bits, 0, geom.ag_meta_frags().min(len));
        if let Some((start, run)) = self.log.filter(|l| geom.ag_of(l.0) == n) {
            let at = (start.0.saturating_sub(geom.ag_start(n).0) as u32).min(len);
            bitmap::set_used(bits, at, run.min(len - at));
        }
    }

    fn bits(&mut self, start: Frag) -> Option<(&mut Vec<u8>, u32)> {
        let ag = self.geom.ag_of(start);
        self.provide_ag(ag as usize);
        let at = u32::try_from(start.0.checked_sub(self.geom.ag_start(ag).0)?).ok()?;
        Some((self.used.get_mut(ag as usize)?, at))
    }

    /// Gives a run an owner. `false` if it is no run, or a part of it has an owner already.
    pub fn claim(&mut self, start: Frag, len: u32) -> bool {
        if !self.geom.valid_run(start, len) {
            return false;
        }
        let Some((bits, at)) = self.bits(start) else { return false };
        let free = bitmap::all_free(bits, at, len);
        if free {
            bitmap::set_used(bits, at, len);
        }
        free
    }

    /// Gives back what was claimed.
    pub fn release(&mut self, start: Frag, len: u32) {
        if !self.geom.valid_run(start, len) {
            return;
        }
        if let Some((bits, at)) = self.bits(start) {
            bitmap::set_free(bits, at, len);
            let ag = self.geom.ag_of(start) as usize;
            if let Some(next) = self.next.get_mut(ag) {
                *next = at.min(*next);
            }
        }
    }

    /// Takes a block that nobody owns.
    pub fn alloc_block(&mut self) -> Option<Frag> {
        let len = self.geom.block_frags();
        for ag in 0..self.used.len() {
            let from = self.next.get(ag).copied().unwrap_or(0);
            if let Some(at) = self.find(ag, from, len, 1) {
                if let Some(next) = self.next.get_mut(ag) {
                    *next = at + len;
                }
                return self.take(ag, at, len);
            }
        }
        None
    }

    /// Takes the room of an inode chunk.
    pub fn alloc_chunk(&mut self) -> Option<Frag> {
        let len = self.geom.chunk_frags();
        let (ag, at) = (0..self.used.len()).find_map(|ag| Some((ag, self.find(ag, 0, len, len)?)))?;
        self.take(ag, at, len)
    }

    fn take(&mut self, ag: usize, at: u32, len: u32) -> Option<Frag> {
        bitmap::set_used(self.used.get_mut(ag)?, at, len);
        Some(Frag(self.geom.ag_start(ag as u32).0 + u64::from(at)))
    }

    fn find(&self, ag: usize, from: u32, len: u32, align: u32) -> Option<u32> {
        let (bits, end) = (self.used.get(ag)?, self.geom.ag_len(ag as u32));
        let mut at = from;
        while let Some(free) = bitmap::next_free(bits, at, end) {
            let run = bitmap::free_run(bits, free, end - free, end);
            let start = free.next_multiple_of(align);
            if u64::from(start) + u64::from(len) <= u64::from(free) + u64::from(run) {
                return Some(start);
            }
            at = free + run.max(1);
        }
        None
    }

    /// The bits of an AG's fragments that have an owner; none if nothing asked for them.
    pub fn claimed(&self, ag: u32) -> &[u8] {
        self.used.get(ag as usize).map_or(&[], |bits| bits)
    }

    /// Fragments of an AG that have an owner.
    pub fn used(&self, ag: u32) -> u32 {
        let len = self.geom.ag_len(ag);
        self.used.get(ag as usize).map_or(0, |bits| len - bitmap::count_free(bits, len).min(len))
    }

    /// What an AG's bitmap blocks must hold in `len` bytes: bits past the AG's end are set.
    pub fn bitmap(&self, ag: u32, len: usize) -> Vec<u8> {
        let mut bits = self.used.get(ag as usize).cloned().unwrap_or_default();
        bits.resize(len, 0xff);
        let end = self.geom.ag_len(ag);
        let past = (bits.len() * 8).saturating_sub(end as usize) as u32;
        bitmap::set_used(&mut bits, end, past);
        bits
    }
}
