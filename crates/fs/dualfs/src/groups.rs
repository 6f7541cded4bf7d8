//! The groups of data blocks in core: their descriptors, which has most free blocks, which have any, what was given away.
//!
//! Descriptors are in core as far as groups were ever used; the ifile's table is a copy of them, brought up to date by each
//! checkpoint (`ifile.rs`). Who gives out blocks is `alloc.rs`.

use crate::format::*;
use arbor_kit::runs::Runs;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The groups in core.
pub(crate) struct Groups {
    /// Those that were ever used.
    all: BTreeMap<u32, GroupDesc>,
    /// The same by their free blocks, of equals by their directories.
    by_free: BTreeSet<(Reverse<u32>, u32, u32)>,
    /// The first that was never used, or one before it.
    untouched: u32,
    /// Those that may have a free block.
    pub open: Runs,
    /// The first data block that may be given out: those before it are being vacated (`resize.rs`).
    pub floor: u32,
    /// Data blocks in use.
    pub used: u64,
    /// Groups whose descriptors differ from those of the last set.
    pub changed: BTreeSet<u32>,
    /// Groups whose descriptors differ from the ifile's.
    pub unsaved: BTreeSet<u32>,
    /// What was allocated since the last set.
    pub taken: Vec<RunInfo>,
    /// One of those that may have a free block, whose bitmap was read.
    pub sound: Option<u32>,
}

impl Groups {
    pub fn new(geom: &Geom) -> Groups {
        Groups {
            all: BTreeMap::new(),
            by_free: BTreeSet::new(),
            untouched: 0,
            open: Runs::below(geom.groups()),
            floor: 0,
            used: 0,
            changed: BTreeSet::new(),
            unsaved: BTreeSet::new(),
            taken: Vec::new(),
            sound: None,
        }
    }

    /// Takes in the groups of a data area that has grown; the last one before may have become longer.
    pub fn grow(&mut self, geom: &Geom) {
        let all: Vec<(u32, GroupDesc)> = std::mem::take(&mut self.all).into_iter().collect();
        (self.by_free, self.used) = (BTreeSet::new(), 0);
        self.open = Runs::below(geom.groups());
        all.into_iter().for_each(|(n, desc)| self.set(geom, Group(n), desc));
    }

    pub fn get(&self, group: Group) -> GroupDesc {
        self.all.get(&group.0).copied().unwrap_or_default()
    }

    /// How many were ever used.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Groups that were ever used, with their descriptors.
    pub fn each(&self) -> impl Iterator<Item = (Group, GroupDesc)> + '_ {
        self.all.iter().map(|(n, desc)| (Group(*n), *desc))
    }

    /// Free blocks of a group by its descriptor.
    pub fn free(&self, geom: &Geom, group: Group) -> u32 {
        geom.group_len(group).saturating_sub(self.get(group).used.get())
    }

    pub fn set(&mut self, geom: &Geom, group: Group, desc: GroupDesc) {
        let free = |desc: GroupDesc| geom.group_len(group).saturating_sub(desc.used.get());
        let key = |desc: GroupDesc| (Reverse(free(desc)), desc.dirs.get(), group.0);
        let old = self.all.insert(group.0, desc);
        if let Some(old) = old {
            self.by_free.remove(&key(old));
        }
        self.by_free.insert(key(desc));
        self.used = (self.used + u64::from(desc.used.get())).saturating_sub(old.unwrap_or_default().used.get().into());
        if free(desc) > 0 {
            self.open.insert(group.0);
        } else {
            self.open.remove(group.0);
        }
        self.changed.insert(group.0);
        self.unsaved.insert(group.0);
    }

    /// The group with the most free blocks; of equals, since contents get their places late, that with the fewest directories.
    pub fn emptiest(&mut self, geom: &Geom) -> Group {
        while self.all.contains_key(&self.untouched) {
            self.untouched += 1;
        }
        let untouched = Some(Group(self.untouched)).filter(|g| g.0 < geom.groups());
        let untouched = untouched.map(|g| (Reverse(geom.group_len(g)), 0, g.0));
        let best = self.by_free.first().copied().into_iter().chain(untouched).min();
        best.map_or(Group(0), |best| Group(best.2))
    }

    /// Checks that the sum agrees with the descriptors.
    pub fn sum(&self) -> u64 {
        self.all.values().map(|desc| u64::from(desc.used.get())).sum()
    }
}
