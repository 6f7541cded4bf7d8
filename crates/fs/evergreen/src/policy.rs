//! Policy: whether a block that goes from clean to dirty is overwritten or relocated (paper, III), and what of it is logged.
//!
//! A policy is chosen for each category. `adaptive` is announced by the paper, and not described. Here it weighs what each
//! way costs. Metadata that are overwritten are written twice, to the redo list and in place, and relocated ones once: they
//! move. Contents are written once in either way. They move where free runs are long, so that they are written in long
//! requests wherever they were before; and where runs are short those do that are hot, for they leave their places again
//! soon and so restore free runs (HyLog, reference 6 of the paper). What is cold stays.
//!
//! The decision itself is [`Core::decide`](crate::volume::Core::decide).

use arbor_base::cache::Name;
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
    pub fn note(&mut self, name: Name) -> bool {
        let hot = self.before.contains(&name) | !self.now.insert(name);
        if self.now.len() >= LATELY {
            self.before = std::mem::take(&mut self.now);
        }
        hot
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
