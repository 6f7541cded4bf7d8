//! The numbered invariants, executed after calls (`kit::invariants`): a function each. What is not executed, and why:
//!
//! | number | why it cannot be seen in core |
//! |---|---|
//! | EVERGREEN-C1 to C4 | they are about the order of writes; the crash explorer |
//! | EVERGREEN-A1 | owners are known by going through all inodes; the checker |
//! | EVERGREEN-H1 | older commits are on disk; `tests/history.rs` mounts them |
//! | EVERGREEN-F1 | which pages are the last of their files their inodes say, on disk; `conformance::data` |
//! | EVERGREEN-D1 | where an entry was before nobody knows; `conformance::names` |

use crate::policy::How;
use crate::volume::Core;
use arbor_kit::invariants::{Holds, Invariants, ensure};
use std::collections::BTreeSet;

impl Invariants for Core {
    fn extent(&self) -> usize {
        1 + self.changes.parts.len()
    }

    fn check_invariants(&self) -> Holds {
        self.check_a2()?;
        self.check_r1()
    }
}

impl Core {
    /// EVERGREEN-A2: what is relocated goes to blocks that were allocated since the last commit.
    fn check_a2(&self) -> Holds {
        let moved = self.changes.parts.values().filter(|dirty| dirty.how == How::Moved);
        let bad = moved.map(|dirty| dirty.block).find(|block| !self.is_fresh(*block));
        ensure(bad.is_none(), "EVERGREEN-A2", || format!("a dirty block goes to {bad:?}, which a commit may have"))
    }

    /// EVERGREEN-R1: what is dirty has a place of its own.
    fn check_r1(&self) -> Holds {
        let places: BTreeSet<u32> = self.changes.parts.values().map(|dirty| dirty.block).collect();
        let (dirty, parts) = (self.cache.dirty_names().len(), self.changes.parts.len());
        let holds =
            places.len() == parts && dirty == parts && self.changes.parts.keys().all(|n| self.cache.is_dirty(*n));
        ensure(holds, "EVERGREEN-R1", || format!("{dirty} dirty, {parts} parts, {} places", places.len()))
    }
}
