//! A set of numbers stored as runs: `0..n` takes as little memory as one number.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};

/// A set of numbers, as runs with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// First and last number of each.
    runs: BTreeMap<u32, u32>,
    len: u64,
}

impl Runs {
    /// All numbers below `end`.
    pub fn below(end: u32) -> Runs {
        let mut all = Runs::default();
        all.insert_run(0, end);
        all
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// How many runs they are.
    pub fn count_runs(&self) -> usize {
        self.runs.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        *self = Runs::default();
    }

    /// The run that a number is in.
    fn run_of(&self, n: u32) -> Option<(u32, u32)> {
        self.runs.range(..=n).next_back().map(|(first, last)| (*first, *last)).filter(|run| run.1 >= n)
    }

    /// Whether it is there.
    pub fn contains(&self, n: u32) -> bool {
        self.run_of(n).is_some()
    }

    /// Adds a number; false if it was in the set.
    pub fn insert(&mut self, n: u32) -> bool {
        if self.contains(n) {
            return false;
        }
        let before = n.checked_sub(1).and_then(|n| self.run_of(n));
        let follower = n.checked_add(1).and_then(|n| self.run_of(n));
        if let Some((first, _)) = follower {
            self.runs.remove(&first);
        }
        self.runs.insert(before.map_or(n, |run| run.0), follower.map_or(n, |run| run.1));
        self.len += 1;
        true
    }

    /// Adds the numbers from `from` up to, and without, `end`, which should come after all in the set.
    pub fn insert_run(&mut self, from: u32, end: u32) {
        let Some(last) = end.checked_sub(1).filter(|last| from <= *last && !self.contains(from)) else { return };
        if self.runs.last_key_value().is_some_and(|(first, _)| *first > from) {
            self.extend(from..end);
            return;
        }
        let before = from.checked_sub(1).and_then(|n| self.run_of(n));
        self.runs.insert(before.map_or(from, |run| run.0), last);
        self.len += u64::from(last - from) + 1;
    }

    /// Removes a number; false if it was not in the set.
    pub fn remove(&mut self, n: u32) -> bool {
        let Some((first, last)) = self.run_of(n) else { return false };
        self.runs.remove(&first);
        if first < n {
            self.runs.insert(first, n - 1);
        }
        if n < last {
            self.runs.insert(n + 1, last);
        }
        self.len -= 1;
        true
    }

    /// The runs, in order.
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = RangeInclusive<u32>> + '_ {
        self.runs.iter().map(|(first, last)| *first..=*last)
    }

    /// All numbers, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.runs().flatten()
    }

    /// The number nearest to `n`, the lower one of two.
    pub fn nearest(&self, n: u32) -> Option<u32> {
        let below = self.runs.range(..=n).next_back().map(|(_, last)| (*last).min(n));
        let above = self.runs.range(n..).next().map(|(first, _)| *first);
        below.into_iter().chain(above).min_by_key(|m| m.abs_diff(n))
    }

    /// Those after `n`, in order.
    pub fn after(&self, n: u32) -> impl Iterator<Item = u32> + '_ {
        let rest = self.run_of(n).into_iter().flat_map(move |(_, last)| n..=last).skip(1);
        let later = self.runs.range((Bound::Excluded(n), Bound::Unbounded)).flat_map(|(first, last)| *first..=*last);
        rest.chain(later)
    }

    /// Those before `n`, in order.
    pub fn before(&self, n: u32) -> impl Iterator<Item = u32> + '_ {
        self.runs.range(..n).flat_map(move |(first, last)| *first..(*last).saturating_add(1).min(n))
    }
}

impl Extend<u32> for Runs {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, numbers: I) {
        for n in numbers {
            self.insert(n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn same(runs: &Runs, model: &BTreeSet<u32>) {
        assert!(runs.iter().eq(model.iter().copied()), "{runs:?} {model:?}");
        assert!(runs.iter().rev().eq(model.iter().rev().copied()));
        assert_eq!((runs.len(), runs.is_empty()), (model.len() as u64, model.is_empty()));
        let apart = |pair: &[(u32, u32)]| pair[0].1 + 1 < pair[1].0;
        let all: Vec<(u32, u32)> = runs.runs.iter().map(|(a, b)| (*a, *b)).collect();
        assert!(all.windows(2).all(apart), "{runs:?}: runs that touch are one");
    }

    proptest! {
        #[test]
        fn behaves_as_a_set(steps in prop::collection::vec((0..5u8, 0..40u32, 0..20u32), 0..80), first in 0..30u32) {
            let (mut runs, mut model) = (Runs::below(first), (0..first).collect::<BTreeSet<u32>>());
            for (what, n, len) in steps {
                match what {
                    0 | 1 => assert_eq!(runs.insert(n), model.insert(n)),
                    2 | 3 => assert_eq!(runs.remove(n), model.remove(&n)),
                    _ => {
                        let from = model.last().map_or(0, |last| last + 1);
                        runs.insert_run(from, from + len / 4);
                        model.extend(from..from + len / 4);
                    }
                }
                same(&runs, &model);
                assert_eq!(runs.contains(n), model.contains(&n));
                assert!(runs.after(n).eq(model.range(n + 1..).copied()));
                assert!(runs.before(n).eq(model.range(..n).copied()));
                assert_eq!(runs.nearest(n), model.iter().copied().min_by_key(|m| m.abs_diff(n)));
            }
        }
    }

    #[test]
    fn the_ends_of_all_numbers() {
        let mut runs = Runs::below(u32::MAX);
        assert!(runs.insert(u32::MAX) && !runs.insert(u32::MAX));
        assert_eq!((runs.len(), runs.runs.len()), (1 << 32, 1));
        assert!(runs.remove(0) && runs.remove(u32::MAX) && !runs.contains(u32::MAX));
        assert_eq!(runs.after(u32::MAX).next(), None);
        assert_eq!(runs.before(3).collect::<Vec<_>>(), [1, 2]);
    }
}
