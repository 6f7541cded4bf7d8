//! Stat data that were used last, decoded: what is asked for again in one call is decoded once.

use crate::format::{Key, StatData};
use crate::node::Block;

/// How many.
const RECENT: usize = 4;

/// Stat data, and where their item is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub key: Key,
    pub leaf: Block,
    /// Index of the item.
    pub index: usize,
    pub d: StatData,
}

/// The last ones.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    all: [Option<Known>; RECENT],
    next: usize,
}

impl Recent {
    pub fn find(&self, key: Key) -> Option<Known> {
        self.all.iter().flatten().find(|known| known.key == key).copied()
    }

    pub fn put(&mut self, known: Known) {
        self.forget(known.key, known.key.next());
        self.next = (self.next + 1) % RECENT;
        self.all.get_mut(self.next).into_iter().for_each(|place| *place = Some(known));
    }

    /// Forgets those whose keys are in this range.
    pub fn forget(&mut self, from: Key, to: Key) {
        let is_in = |place: &&mut Option<Known>| place.is_some_and(|known| (from..to).contains(&known.key));
        self.all.iter_mut().filter(is_in).for_each(|place| *place = None);
    }
}
