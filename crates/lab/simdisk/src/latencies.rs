//! How long many things took: enough to say the median and what only one in a thousand exceeds.

use std::collections::BTreeMap;

/// Binary digits that are told apart: what a figure says is at most a thousandth too long.
const DIGITS: u32 = 10;

/// Times by their length. Memory grows with how different they are, not with how many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    count: u64,
    largest_ns: u64,
    /// How many there are of each length, the less significant digits all ones.
    lengths: BTreeMap<u64, u64>,
}

impl Latencies {
    /// One more.
    pub fn add(&mut self, ns: u64) {
        self.count += 1;
        self.largest_ns = self.largest_ns.max(ns);
        *self.lengths.entry(rounded(ns)).or_default() += 1;
    }

    /// All of `others` too.
    pub fn merge(&mut self, others: &Latencies) {
        self.count += others.count;
        self.largest_ns = self.largest_ns.max(others.largest_ns);
        for (ns, count) in &others.lengths {
            *self.lengths.entry(*ns).or_default() += count;
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The largest, exactly.
    pub fn largest_ns(&self) -> u64 {
        self.largest_ns
    }

    /// The least time that so many thousandths of them did not exceed, the median with 500; `None` if there were none.
    pub fn within_ns(&self, thousandths: u32) -> Option<u64> {
        let rank = (u128::from(self.count) * u128::from(thousandths)).div_ceil(1000);
        let mut passed = 0;
        let found = self.lengths.iter().find(|(_, count)| {
            passed += u128::from(**count);
            passed >= rank
        });
        found.map(|(ns, _)| (*ns).min(self.largest_ns))
    }
}

fn rounded(ns: u64) -> u64 {
    let dropped = (u64::BITS - ns.leading_zeros()).saturating_sub(DIGITS + 1);
    ns | ((1 << dropped) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        all.into_iter().for_each(|ns| latencies.add(ns));
        latencies
    }

    #[test]
    fn ranks_are_those_of_a_sorted_list() {
        let all = of(1..=1000);
        assert_eq!([1, 500, 990, 999, 1000].map(|n| all.within_ns(n)), [1, 500, 990, 999, 1000].map(Some));
        assert_eq!((all.count(), all.largest_ns()), (1000, 1000));
        assert_eq!([500, 999].map(|n| of([7]).within_ns(n)), [Some(7); 2]);
        assert_eq!(of([1, 2]).within_ns(500), Some(1));
        assert_eq!(of([]).within_ns(500), None);
    }

    #[test]
    fn figures_are_at_most_a_thousandth_too_long() {
        for ns in [0, 2047, 2048, 1_000_003, 123_456_789_012, u64::MAX] {
            let shown = of([ns, u64::MAX]).within_ns(500).unwrap();
            assert!(shown >= ns && shown - ns <= ns / 1000, "{ns} {shown}");
        }
    }

    #[test]
    fn merged_they_are_as_if_added_one_by_one() {
        let (some, others) = (of((0..500).map(|n| n * n)), of((500..900).map(|n| n * n)));
        let mut both = some.clone();
        both.merge(&others);
        assert_eq!(both, of((0..900).map(|n| n * n)));
    }
}
