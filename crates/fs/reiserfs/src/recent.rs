//! Stat data that were used last, decoded: what is asked for again, in a call or by one that follows a walk, is decoded once.

use crate::format::{Key, StatData};
use crate::node::{Block, Change};

/// How many: more than a front end takes of a directory before it looks at what it has taken.
const RECENT: usize = 256;

/// Stat data, and where their item is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub key: Key,
    pub leaf: Block,
    /// Index of the item.
    pub index: usize,
    pub d: StatData,
}

/// Where the entries of a directory from an offset on begin: a byte of the body of an item of a formatted node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub leaf: Block,
    /// Index of the item.
    pub index: usize,
    pub byte: usize,
    /// Greater than the keys of all entries of the item before.
    pub key: Key,
}

impl Spot {
    /// Whether it is right after a change of its node, too.
    pub fn outlives(&self, change: &Change) -> bool {
        match change {
            Change::Grow(index, byte, _) => *index != self.index || *byte >= self.byte,
            Change::Shrink(index, bytes) => *index != self.index || bytes.start >= self.byte,
            Change::Behead(index, ..) => *index != self.index,
            Change::Insert(index, _) => *index > self.index,
            Change::Remove(range) => range.start > self.index,
        }
    }
}

/// The last ones, each in the place that its object's number gives it.
#[derive(Debug)]
pub(crate) struct Recent {
    all: Vec<Option<Known>>,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { all: vec![None; RECENT] }
    }
}

impl Recent {
    fn place(&mut self, key: Key) -> Option<&mut Option<Known>> {
        self.all.get_mut(key.object() as usize % RECENT)
    }

    pub fn find(&self, key: Key) -> Option<&Known> {
        self.all.get(key.object() as usize % RECENT)?.as_ref().filter(|known| known.key == key)
    }

    pub fn put(&mut self, known: Known) {
        self.place(known.key).into_iter().for_each(|place| *place = Some(known));
    }

    /// Forgets those whose keys are in this range.
    pub fn forget(&mut self, from: Key, to: Key) {
        let forget = |place: &mut Option<Known>| {
            if place.is_some_and(|known| (from..to).contains(&known.key)) {
                *place = None;
            }
        };
        if (from.locality(), from.object()) == (to.locality(), to.object()) {
            self.place(from).into_iter().for_each(forget);
        } else {
            self.all.iter_mut().for_each(forget);
        }
    }
}
