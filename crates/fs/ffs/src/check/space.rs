//! Owners of fragments: each has at most one (FFS-A1).

use super::view::Reader;
use crate::format::*;

/// Words of a page of [`Bits`].
const PAGE: usize = 512;

/// A bit for each fragment, in pages; a page exists only if a bit of it was set. So the memory of a check depends on
/// the contents of a volume, not on its size.
#[derive(Default)]
struct Bits(Vec<Option<Box<[u64; PAGE]>>>);

impl Bits {
    /// Fragments from `64 * n` on.
    fn word(&self, n: u32) -> u64 {
        let page = self.0.get(n as usize / PAGE).and_then(|page| page.as_ref());
        page.and_then(|page| page.get(n as usize % PAGE)).copied().unwrap_or(0)
    }

    fn get(&self, i: u32) -> bool {
        self.word(i / 64) >> (i % 64) & 1 == 1
    }

    fn set(&mut self, i: u32) {
        let (page, word) = (i as usize / 64 / PAGE, i as usize / 64 % PAGE);
        if self.0.len() <= page {
            self.0.resize_with(page + 1, || None);
        }
        let page = self.0.get_mut(page).map(|page| page.get_or_insert_with(|| Box::new([0; PAGE])));
        if let Some(word) = page.and_then(|page| page.get_mut(word)) {
            *word |= 1 << (i % 64);
        }
    }

    fn unset(&mut self, i: u32) {
        let page = self.0.get_mut(i as usize / 64 / PAGE).and_then(|page| page.as_mut());
        if let Some(word) = page.and_then(|page| page.get_mut(i as usize / 64 % PAGE)) {
            *word &= !(1 << (i % 64));
        }
    }

    /// Those that are set from `from` up to, and without, `end`.
    fn ones(&self, from: u32, end: u32) -> impl Iterator<Item = u32> + '_ {
        let words = (from / 64..end.div_ceil(64)).map(|n| (n, self.word(n))).filter(|(_, word)| *word != 0);
        let ones = words.flat_map(|(n, word)| (0..64).filter(move |i| word >> i & 1 == 1).map(move |i| n * 64 + i));
        ones.filter(move |i| (from..end).contains(i))
    }

    fn count(&self) -> u64 {
        self.0.iter().flatten().flat_map(|page| page.iter()).map(|word| u64::from(word.count_ones())).sum()
    }
}

/// Owned fragments. The structures at the head of each group are known by arithmetic.
pub(super) struct Space {
    geom: Geom,
    /// The heads of groups have an owner.
    heads: bool,
    /// Other fragments that have one in this pass.
    owned: Bits,
    /// Those that had one in some pass: they are not reallocated as long as others are free.
    busy: Bits,
    /// Those that [`Space::alloc`] allocated.
    fresh: Bits,
    rotor: u32,
    /// A run of so many fragments was searched for in vain.
    full: u32,
}

impl Space {
    pub fn new(r: &Reader<'_>) -> Space {
        let bits = Bits::default;
        Space { geom: r.geom, heads: false, owned: bits(), busy: bits(), fresh: bits(), rotor: 0, full: u32::MAX }
    }

    /// Only the volume's own structures have an owner.
    pub fn begin(&mut self, r: &Reader<'_>) {
        self.owned = Bits::default();
        self.heads = true;
        self.full = u32::MAX;
        self.claim(Frag(r.sb.summary_start.get()), self.geom.summary_frags());
        self.claim(Frag(r.sb.journal_start.get()), r.sb.journal_frags.get());
    }

    fn is_head(&self, frag: u32) -> bool {
        self.heads && frag < self.geom.frags && frag % self.geom.cg_frags < self.geom.meta_frags()
    }

    fn run(frag: Frag, frags: u32) -> std::ops::Range<u32> {
        frag.0..frag.0.saturating_add(frags)
    }

    /// First fragment of a run that has an owner.
    pub fn taken(&self, frag: Frag, frags: u32) -> Option<u32> {
        Space::run(frag, frags).find(|i| self.owned(*i))
    }

    fn owned(&self, frag: u32) -> bool {
        self.owned.get(frag) || self.is_head(frag)
    }

    /// Fragments of a group that have an owner, counted from its first.
    pub fn owned_in(&self, cgx: u32) -> impl Iterator<Item = u32> + '_ {
        let (start, len) = (self.geom.cg_start(cgx).0, self.geom.cg_len(cgx));
        let heads = if self.heads { self.geom.meta_frags().min(len) } else { 0 };
        (0..heads).chain(self.owned.ones(start, start.saturating_add(len)).map(move |i| i - start))
    }

    /// Whether this run of the checker changed the owner of a fragment.
    pub fn touched(&self, frag: u32) -> bool {
        self.fresh.get(frag) || self.busy.get(frag) && !self.owned(frag)
    }

    pub fn is_fresh(&self, frag: Frag) -> bool {
        self.fresh.get(frag.0)
    }

    pub fn claim(&mut self, frag: Frag, frags: u32) {
        for i in Space::run(frag, frags).take_while(|i| *i < self.geom.frags) {
            self.owned.set(i);
            self.busy.set(i);
        }
    }

    pub fn release(&mut self, frag: Frag, frags: u32) {
        Space::run(frag, frags).for_each(|i| self.owned.unset(i));
    }

    /// Fragments with an owner.
    pub fn used(&self) -> u64 {
        let heads = if self.heads { self.geom.cg_count } else { 0 };
        self.owned.count().saturating_add(u64::from(heads) * u64::from(self.geom.meta_frags()))
    }

    /// Allocates a free run inside one block, a whole one if `frags` is a block; preferably one that had no owner in
    /// earlier passes either.
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
                let free = |at: &u32| Space::run(Frag(*at), frags).all(|i| !bits.get(i));
                let Some(at) = (first..=first + bf.saturating_sub(frags)).find(free) else { continue };
                if !self.geom.is_data(Frag(at), frags) {
                    continue;
                }
                self.rotor = block as u32;
                self.claim(Frag(at), frags);
                Space::run(Frag(at), frags).for_each(|i| self.fresh.set(i));
                return Some(Frag(at));
            }
        }
        self.full = frags;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn bits_behave_as_a_set() {
        let (mut bits, mut model, mut seed) = (Bits::default(), BTreeSet::new(), 1u32);
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed >> 15
        };
        for step in 0..3000 {
            let (on, i) = (next() % 3 > 0, next());
            // To unset, one that is there, if there is one after.
            let i = if on { i } else { model.range(i..).next().copied().unwrap_or(i) };
            if on {
                bits.set(i);
                model.insert(i);
            } else {
                bits.unset(i);
                model.remove(&i);
            }
            assert_eq!((bits.get(i), bits.count()), (on, model.len() as u64));
            if step % 100 == 0 {
                let (from, end) = (next(), next());
                let range = from.min(end)..end;
                assert!(bits.ones(from, end).eq(model.range(range).copied()), "{from} {end}");
            }
        }
    }

    #[test]
    fn one_bit_takes_one_page() {
        let mut bits = Bits::default();
        bits.unset(u32::MAX);
        assert_eq!(bits.0.len(), 0);
        bits.set(u32::MAX);
        assert_eq!((bits.0.iter().flatten().count(), bits.count(), bits.get(u32::MAX)), (1, 1, true));
        assert_eq!(bits.ones(0, u32::MAX).next(), None);
    }
}
