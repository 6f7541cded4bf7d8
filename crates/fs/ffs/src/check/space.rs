//! Which fragments have an owner.

use super::view::Reader;
use crate::format::*;

/// Two bits for each fragment.
pub(super) struct Space {
    geom: Geom,
    /// It has an owner in this pass.
    owned: Vec<u8>,
    /// It had one in some pass: what lies there stays as long as there is another place.
    busy: Vec<u8>,
    /// It was given away by [`Space::alloc`].
    fresh: Vec<u8>,
    rotor: u32,
    /// So many in a row were not found.
    full: u32,
}

fn get(bits: &[u8], i: u32) -> bool {
    bits.get(i as usize / 8).is_some_and(|b| b >> (i % 8) & 1 == 1)
}

fn set(bits: &mut [u8], i: u32, on: bool) {
    if let Some(b) = bits.get_mut(i as usize / 8) {
        *b = *b & !(1 << (i % 8)) | u8::from(on) << (i % 8);
    }
}

impl Space {
    pub fn new(r: &Reader<'_>) -> Space {
        let bytes = r.geom.frags.div_ceil(8) as usize;
        let bits = || vec![0; bytes];
        Space { geom: r.geom, owned: bits(), busy: bits(), fresh: bits(), rotor: 0, full: u32::MAX }
    }

    /// Only the volume's own structures have an owner.
    pub fn begin(&mut self, r: &Reader<'_>) {
        self.owned.fill(0);
        self.full = u32::MAX;
        for cgx in 0..self.geom.cg_count {
            self.claim(self.geom.cg_start(cgx), self.geom.meta_frags());
        }
        self.claim(Frag(r.sb.summary_start.get()), self.geom.summary_frags());
        self.claim(Frag(r.sb.journal_start.get()), r.sb.journal_frags.get());
    }

    fn run(frag: Frag, frags: u32) -> std::ops::Range<u32> {
        frag.0..frag.0.saturating_add(frags)
    }

    /// First fragment of a run that has an owner.
    pub fn taken(&self, frag: Frag, frags: u32) -> Option<u32> {
        Space::run(frag, frags).find(|i| get(&self.owned, *i))
    }

    pub fn owned(&self, frag: u32) -> bool {
        get(&self.owned, frag)
    }

    /// Whether this run changed who owns it.
    pub fn touched(&self, frag: u32) -> bool {
        get(&self.fresh, frag) || get(&self.busy, frag) && !get(&self.owned, frag)
    }

    pub fn is_fresh(&self, frag: Frag) -> bool {
        get(&self.fresh, frag.0)
    }

    pub fn claim(&mut self, frag: Frag, frags: u32) {
        for i in Space::run(frag, frags) {
            set(&mut self.owned, i, true);
            set(&mut self.busy, i, true);
        }
    }

    pub fn release(&mut self, frag: Frag, frags: u32) {
        Space::run(frag, frags).for_each(|i| set(&mut self.owned, i, false));
    }

    /// Fragments with an owner.
    pub fn used(&self) -> u64 {
        self.owned.iter().map(|b| u64::from(b.count_ones())).sum()
    }

    /// A free run inside one block, a whole one if `frags` is a block; preferably one that had no owner
    /// before either.
    pub fn alloc(&mut self, frags: u32) -> Option<Frag> {
        let bf = self.geom.block_frags();
        let blocks = self.geom.frags / bf;
        if frags >= self.full {
            return None;
        }
        for again in [false, true] {
            for i in 0..blocks {
                let block = (u64::from(self.rotor) + u64::from(i)) % u64::from(blocks);
                let first = block as u32 * bf;
                let bits = if again { &self.owned } else { &self.busy };
                let free = |at: &u32| Space::run(Frag(*at), frags).all(|i| !get(bits, i));
                let Some(at) = (first..=first + bf.saturating_sub(frags)).find(free) else { continue };
                if !self.geom.is_data(Frag(at), frags) {
                    continue;
                }
                self.rotor = block as u32;
                self.claim(Frag(at), frags);
                Space::run(Frag(at), frags).for_each(|i| set(&mut self.fresh, i, true));
                return Some(Frag(at));
            }
        }
        self.full = frags;
        None
    }
}
