//! Policy: whether a block that goes from clean to dirty is overwritten or relocated (paper, III), and what of it is logged.
//!
//! A policy is chosen for each category. `adaptive` is announced by the paper, and not described. Here it weighs what each
//! way costs. Metadata that are overwritten are written twice, to the redo list and in place, and relocated ones once: they
//! move. Contents are written once in either way. They move where free runs are long, so that they are written in long
//! requests wherever they were before; and where runs are short those do that are hot, for they leave their places again
//! soon and so restore free runs (HyLog, reference 6 of the paper). What is cold stays.

use crate::format::BITS;
use crate::options::{Logging, Modify};
use crate::volume::Core;
use arbor_base::cache::Name;
use arbor_base::device::Kind;
use arbor_base::vfs::Result;
use rustc_hash::FxHashSet;

/// So many changes of other blocks later a block is not hot any more, or twice as many.
const LATELY: usize = 8192;

/// What becomes of a dirty buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// It gets a new block.
    Moved,
    /// The commit's redo list has it; in place it is written after the commit.
    Logged,
    /// It is written in place before the commit is durable.
    InPlace,
}

/// Blocks that were changed lately.
#[derive(Debug, Default)]
pub(crate) struct Heat {
    now: FxHashSet<Name>,
    before: FxHashSet<Name>,
}

impl Heat {
    /// Notes a change of a block, and says whether there was another one lately.
    fn note(&mut self, name: Name) -> bool {
        let hot = self.before.contains(&name) | !self.now.insert(name);
        if self.now.len() >= LATELY {
            self.before = std::mem::take(&mut self.now);
        }
        hot
    }
}

impl Core {
    /// What becomes of a block that the last commit has. `in_place`: nothing of the last commit is lost if its bytes are
    /// written over.
    pub fn decide(&mut self, name: Name, kind: Kind, in_place: bool) -> Result<How> {
        let in_place = match self.opts.redo {
            Logging::All => false,
            Logging::Metadata => in_place,
            Logging::None => true,
        };
        let over = match self.opts.modify(kind) {
            Modify::Relocate => false,
            Modify::Overwrite => true,
            Modify::Adaptive => in_place && !self.is_worth_moving(name)?,
        };
        Ok(match (over, in_place) {
            (false, _) => How::Moved,
            (true, true) => How::InPlace,
            (true, false) if self.has_copies() => How::Logged,
            (true, false) => How::Moved,
        })
    }

    /// Whether a block had better move than be overwritten.
    fn is_worth_moving(&mut self, name: Name) -> Result<bool> {
        let (hot, run) = (self.heat.note(name), self.run_ahead()?);
        let least = self.opts.run;
        Ok(run >= least || hot && run >= (least / 4).max(1))
    }

    /// How long the free run is that relocated blocks get.
    fn run_ahead(&mut self) -> Result<u32> {
        if self.space.run.is_empty() && !self.space.looked {
            self.space.looked = true;
            self.find_run()?;
        }
        // A run that is nearly used up is as good as it was.
        Ok(if self.space.run.is_empty() { 0 } else { self.space.run_len.min(BITS) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arbor_base::vfs::Ino;

    #[test]
    fn heat_cools_down() {
        let (mut heat, name) = (Heat::default(), |n| Name::data(Ino(7), n));
        assert!(!heat.note(name(0)) && heat.note(name(0)));
        (1..LATELY as u64).for_each(|n| assert!(!heat.note(name(n))));
        assert!(heat.note(name(0)), "it was changed lately");
        for n in 1..=2 * LATELY as u64 {
            heat.note(name(n << 32));
        }
        assert!(!heat.note(name(0)), "it was changed long ago");
        assert!(heat.now.len() + heat.before.len() < 2 * LATELY, "memory has a bound");
    }
}
