//! The numbered invariants, executed after calls (`kit::invariants`): a function each. What is not executed, and why:
//!
//! | number | why it cannot be seen in core |
//! |---|---|
//! | REISER-C1 | what is durable only the device knows; the crash explorer |
//! | REISER-C3 | when a record is written over nothing is left of it in core; the crash explorer |
//! | REISER-C4 | numbers that a log on disk holds are not read again; the crash explorer |
//! | REISER-C5 | where a call began nothing in core says; the crash explorer |
//! | REISER-T1, T3 to T5 | need all of the tree; the checker, and the tests of the tree |
//! | REISER-F1, F2 | need all items of a file; the checker |
//! | REISER-D1 | where an entry was before nobody knows; `conformance::names` |
//! | REISER-A1 | owners are known by going through the tree; the checker |

use crate::volume::Core;
use arbor_base::cache::Name;
use arbor_base::device::Kind;
use arbor_kit::invariants::{Holds, Invariants, ensure};

impl Invariants for Core {
    fn extent(&self) -> usize {
        1 + self.log.changed.len() + self.log.data.len() + self.ids.len()
    }

    fn check_invariants(&self) -> Holds {
        self.check_c2()?;
        self.check_c6()?;
        self.check_a2()?;
        self.check_a3()?;
        self.check_t2()
    }
}

impl Core {
    /// REISER-C2: what is dirty is going to be in a record, or is data that goes before it.
    fn check_c2(&self) -> Holds {
        let blocks = self.log.changed.keys().map(|block| Name::Block((*block).into()));
        let waits = blocks.chain(self.log.data.values().copied()).all(|name| self.cache.is_dirty(name));
        let (dirty, known) = (self.cache.dirty_names().len(), self.log.changed.len() + self.log.data.len());
        ensure(waits && dirty == known, "REISER-C2", || format!("{dirty} buffers are dirty, {known} are to be written"))
    }

    /// REISER-C6, as far as is seen in core: what goes straight to its place is a changed node of the tree.
    fn check_c6(&self) -> Holds {
        let odd = self.log.fresh.iter().find(|block| self.log.changed.get(block) != Some(&Kind::Tree));
        ensure(odd.is_none(), "REISER-C6", || format!("block {} is fresh and no changed node", odd.unwrap_or(&0)))
    }

    /// REISER-A2: ranges of object numbers are in order and do not touch.
    fn check_a2(&self) -> Holds {
        let apart = self.ids.windows(2).all(|pair| matches!(pair, [a, b] if a.1 < b.0));
        let whole = self.ids.iter().all(|(first, end)| first < end) && self.ids.len() <= self.geom.most_ranges();
        ensure(apart && whole, "REISER-A2", || format!("ranges of object numbers: {:?}", self.ids))
    }

    /// REISER-A3, as far as numbers tell: what is held back is free.
    fn check_a3(&self) -> Holds {
        let (held, free) = (self.space.held(), self.sb.free.get());
        ensure(held <= free, "REISER-A3", || format!("{held} blocks are held back, {free} are free"))
    }

    /// REISER-T2, for the way to the first formatted node, as far as it is in core.
    fn check_t2(&self) -> Holds {
        let broken = self.first_key_broken();
        ensure(broken.is_none(), "REISER-T2", || format!("the first key of node {}", broken.unwrap_or(0)))
    }
}
