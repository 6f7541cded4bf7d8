//! Policy: whether a block that goes from clean to dirty is overwritten or relocated (paper, III), and what of it is logged.
//!
//! A policy is chosen for each category. `adaptive` is announced by the paper, and not described. Here it weighs what each
//! way costs. Metadata that are overwritten are written twice, to the redo list and in place, and relocated ones once: they
//! move. Contents are written once in either way, but relocation changes the pointers to them, too, and what a place costs
//! depends on the device ([`Signs::say_move`]):
//!
//! | device | contents |
//! |---|---|
//! | SSD that maps pages | stay: a place costs as much as any other, and pointers that do not change are not written |
//! | flash that maps blocks | move, but for those in an open unit, which cost nothing more there |
//! | disk | move: most of a stretch that heads pass is cheaper than as many seeks |
//! | not known, as of an image file | as on a disk: where that is wrong it costs least |
//!
//! What moves pays for a unit with as many others as there are free blocks in it, and what stays pays alone. So where few
//! are free nothing moves but what is hot, for it leaves its place again soon and so restores free blocks (HyLog, reference
//! 6 of the paper). What is cold stays.
//!
//! The decision itself is [`Core::decide`](crate::volume::Core::decide).

use arbor_base::cache::Name;
use arbor_base::device::Medium;
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

/// What the choice for a block of contents is made from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signs {
    /// It was changed lately, too.
    pub is_hot: bool,
    /// Its unit takes writes at no further price.
    pub is_open: bool,
    /// So many blocks are free together where it would go.
    pub free: u32,
}

impl Signs {
    /// Whether the block had better move than be overwritten. `run`: so many free blocks are enough if it is cold.
    pub fn say_move(self, medium: Medium, run: u32) -> bool {
        let has_room = self.free >= if self.is_hot { (run / 4).max(1) } else { run };
        match medium {
            Medium::Pages => false,
            Medium::Blocks { .. } => has_room && !self.is_open,
            Medium::Disk | Medium::Unknown => has_room,
        }
    }
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
    const BLOCKS: Medium = Medium::Blocks { bytes: 512 << 10, open: 32 };

    #[test]
    fn where_places_cost_alike_contents_stay() {
        for free in [0, 4, 1024] {
            assert!(!Signs { free, is_hot: true, ..Signs::default() }.say_move(Medium::Pages, 4));
        }
    }

    #[test]
    fn elsewhere_they_move_while_there_is_room_and_hot_ones_a_while_longer() {
        for medium in [Medium::Disk, Medium::Unknown, BLOCKS] {
            let moves = |free, is_hot| Signs { free, is_hot, ..Signs::default() }.say_move(medium, 8);
            assert!(moves(8, false) && moves(8, true));
            assert!(!moves(7, false) && moves(7, true) && moves(2, true));
            assert!(!moves(1, true) && !moves(0, false));
        }
    }

    #[test]
    fn what_costs_nothing_where_it_is_stays() {
        let open = Signs { free: 100, is_open: true, ..Signs::default() };
        assert!(!open.say_move(BLOCKS, 4) && open.say_move(Medium::Disk, 4));
    }
}
