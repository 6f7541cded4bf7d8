//! Free space as a mounted volume knows it: the counts of the cylinder groups, and their sums.

use crate::format::*;
use arbor_kit::invariants::{Holds, ensure};

/// A cylinder group in core.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cg {
    pub nbfree: u32,
    pub nffree: u32,
    pub nifree: u32,
    pub ndir: u32,
    /// Directories made here one after another (Orlov).
    pub contigdirs: u8,
    /// Upper bound of the longest run of free blocks, from earlier searches.
    pub maxcluster: u32,
    /// Fragments that are free in the bitmap but must not be reallocated yet, laid out as in the bitmap; empty if there
    /// are none.
    pub held: Vec<u8>,
}

impl Cg {
    fn new(s: &Summary) -> Cg {
        Cg {
            nbfree: s.nbfree.get(),
            nffree: s.nffree.get(),
            nifree: s.nifree.get(),
            ndir: s.ndir.get(),
            maxcluster: u32::MAX,
            ..Cg::default()
        }
    }

    pub fn summary(&self) -> Summary {
        Summary {
            nbfree: self.nbfree.into(),
            nffree: self.nffree.into(),
            nifree: self.nifree.into(),
            ndir: self.ndir.into(),
        }
    }
}

/// The groups, and the sums of their counts.
pub(crate) struct Space {
    groups: Vec<Cg>,
    nbfree: u64,
    nffree: u64,
    nifree: u64,
    ndir: u64,
    /// Fragments that `minfree` keeps back, at least a block.
    reserve: u64,
    /// Groups with fragments that are held.
    holding: Vec<u32>,
    held_frags: u64,
    /// Fragments are placed to save space, not time.
    pub optimize_space: bool,
    /// The call has passed by a group that could not be read.
    pub unread: bool,
    /// State of the sequence that spreads directories of the root.
    drawn: u64,
}

impl Space {
    pub fn new(geom: &Geom, sb: &SuperBlock, summaries: &[Summary]) -> Space {
        let total = |f: fn(&Summary) -> u32| summaries.iter().map(|s| u64::from(f(s))).sum();
        let data = u64::from(geom.frags).saturating_sub(u64::from(geom.cg_count) * u64::from(geom.meta_frags()));
        Space {
            groups: summaries.iter().map(Cg::new).collect(),
            nbfree: total(|s| s.nbfree.get()),
            nffree: total(|s| s.nffree.get()),
            nifree: total(|s| s.nifree.get()),
            ndir: total(|s| s.ndir.get()),
            reserve: (data * u64::from(sb.minfree.get()) / 100).max(geom.block_frags().into()),
            holding: Vec::new(),
            held_frags: 0,
            optimize_space: false,
            unread: false,
            drawn: geom.fsid ^ sb.mounts.get(),
        }
    }

    pub fn group(&self, cgx: u32) -> &Cg {
        &self.groups[cgx as usize]
    }

    pub fn group_mut(&mut self, cgx: u32) -> &mut Cg {
        &mut self.groups[cgx as usize]
    }

    /// Summary of all groups, as the summary area has it.
    pub fn summaries(&self) -> impl Iterator<Item = Summary> {
        self.groups.iter().map(Cg::summary)
    }

    /// Sets a group's counts, and adjusts the sums (FFS-A2).
    pub fn set_counts(&mut self, cgx: u32, sum: &Summary) {
        let info = &mut self.groups[cgx as usize];
        self.nbfree = self.nbfree - u64::from(info.nbfree) + u64::from(sum.nbfree.get());
        self.nffree = self.nffree - u64::from(info.nffree) + u64::from(sum.nffree.get());
        self.nifree = self.nifree - u64::from(info.nifree) + u64::from(sum.nifree.get());
        self.ndir = self.ndir - u64::from(info.ndir) + u64::from(sum.ndir.get());
        (info.nbfree, info.nffree) = (sum.nbfree.get(), sum.nffree.get());
        (info.nifree, info.ndir) = (sum.nifree.get(), sum.ndir.get());
    }

    /// Counts a group as full from now on: what is free in it cannot be known.
    pub fn shut(&mut self, cgx: u32) {
        let ndir = self.group(cgx).ndir.into();
        self.set_counts(cgx, &Summary { nbfree: 0.into(), nffree: 0.into(), nifree: 0.into(), ndir });
    }

    pub fn nbfree(&self) -> u64 {
        self.nbfree
    }

    pub fn nffree(&self) -> u64 {
        self.nffree
    }

    pub fn nifree(&self) -> u64 {
        self.nifree
    }

    pub fn ndir(&self) -> u64 {
        self.ndir
    }

    /// Free fragments.
    pub fn free_frags(&self, geom: &Geom) -> u64 {
        self.nbfree * u64::from(geom.block_frags()) + self.nffree
    }

    /// Free space for data in fragments, without what `minfree` keeps back.
    pub fn available(&self, geom: &Geom) -> u64 {
        self.without_reserve(self.free_frags(geom))
    }

    /// So many fragments without what `minfree` keeps back.
    pub fn without_reserve(&self, frags: u64) -> u64 {
        frags.saturating_sub(self.reserve)
    }

    /// Lower bound of the free blocks that are not held.
    pub fn blocks_at_hand(&self) -> u64 {
        self.nbfree.saturating_sub(self.held_frags)
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Groups with fragments that are held, and how many fragments are.
    pub fn held(&self) -> (&[u32], u64) {
        (&self.holding, self.held_frags)
    }

    /// Checks that the sums are those of the groups (FFS-A2).
    pub fn check(&self) -> Holds {
        let all = self.groups.iter().map(|c| [c.nbfree, c.nffree, c.nifree, c.ndir].map(u64::from));
        let found = all.fold([0; 4], |sum, c| std::array::from_fn(|k| sum[k] + c[k]));
        let known = [self.nbfree, self.nffree, self.nifree, self.ndir];
        ensure(known == found, "FFS-A2", || format!("the groups hold {found:?}, core says {known:?}"))
    }

    #[cfg(test)]
    pub fn break_sums(&mut self, nbfree: u64, held_frags: u64) {
        (self.nbfree, self.held_frags) = (self.nbfree + nbfree, self.held_frags + held_frags);
    }

    pub fn holds_nothing(&self) -> bool {
        self.holding.is_empty()
    }

    /// Keeps free fragments from being reallocated.
    pub fn hold(&mut self, geom: &Geom, frag: Frag, frags: u32) {
        let (cgx, first, len) = (geom.cg_of(frag), 1 + geom.inode_sectors(), geom.block_size());
        let held = &mut self.groups[cgx as usize].held;
        if held.is_empty() {
            self.holding.push(cgx);
        }
        held.resize(len, 0);
        for i in frag.0 % geom.cg_frags..frag.0 % geom.cg_frags + frags {
            let (at, mask) = bit_place(first, i);
            if let Some(byte) = held.get_mut(at) {
                *byte |= mask;
            }
        }
        self.held_frags += u64::from(frags);
    }

    /// Takes the list of groups with held fragments, and sets the sum of held fragments to 0.
    pub fn take_holding(&mut self) -> Vec<u32> {
        self.held_frags = 0;
        std::mem::take(&mut self.holding)
    }

    /// The next group of the sequence that spreads directories of the root.
    pub fn draw(&mut self, groups: u32) -> u32 {
        self.drawn = self.drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.drawn >> 33) as u32 % groups
    }
}
