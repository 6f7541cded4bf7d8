//! What a cleaner chooses from: dirty segments, ordered so that a choice need not look at all of them.

use super::{SHARES, Use};
use std::collections::BTreeSet;

/// Classes of segments by utilisation.
const CLASSES: u64 = 64;

/// Dirty segments with live bytes.
#[derive(Debug, Default)]
pub struct Choice {
    /// By class, then by the time of the youngest block.
    all: BTreeSet<(u8, i64, u32)>,
    /// How many there are, by utilisation in twentieths.
    pub shares: [u64; SHARES],
    /// Bytes of a segment.
    size: u64,
}

impl Choice {
    /// Of segments of `size` bytes.
    pub fn new(size: u64, segs: impl Iterator<Item = (u32, Use)>) -> Choice {
        let mut choice = Choice { size, ..Choice::default() };
        segs.for_each(|(n, u)| choice.add(n, u));
        choice
    }

    fn key(&self, seg: u32, u: Use) -> Option<((u8, i64, u32), usize)> {
        let live = u64::from(u.live).min(self.size);
        let share = (live * SHARES as u64 / self.size) as usize;
        let class = (live * CLASSES / self.size) as u8;
        (u.dirty && live > 0).then_some(((class, u.time, seg), share.min(SHARES - 1)))
    }

    fn add(&mut self, seg: u32, u: Use) {
        if let Some((key, share)) = self.key(seg, u) {
            self.all.insert(key);
            self.shares[share] += 1;
        }
    }

    /// Moves a segment whose usage has changed to its new class.
    pub fn change(&mut self, seg: u32, from: Use, to: Use) {
        if let Some((key, share)) = self.key(seg, from) {
            self.all.remove(&key);
            self.shares[share] -= 1;
        }
        self.add(seg, to);
    }

    /// The oldest segments of each class that `is_one` accepts, at most `many` of each.
    pub fn oldest<'a>(&'a self, many: usize, is_one: &'a impl Fn(&u32) -> bool) -> impl Iterator<Item = u32> + 'a {
        let class = |c: u8| self.all.range((c, i64::MIN, 0)..=(c, i64::MAX, u32::MAX)).map(|k| k.2);
        (0..=CLASSES as u8).flat_map(move |c| class(c).filter(is_one).take(many))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_what_changes() {
        let u = |live, time| Use { live, dirty: live > 0, time };
        let segs = [u(0, 0), u(64, 9), u(1, 5), u(65, 3), u(4096, 1), u(66, 7)];
        let mut choice = Choice::new(4096, (0..).zip(segs));
        let all = |c: &Choice, many| c.oldest(many, &|_: &u32| true).collect::<Vec<_>>();
        assert_eq!(all(&choice, 9), [2, 3, 5, 1, 4]);
        assert_eq!(all(&choice, 1), [2, 3, 4]);
        assert_eq!(choice.oldest(1, &|n: &u32| *n != 3).collect::<Vec<_>>(), [2, 5, 4]);
        assert_eq!((choice.shares[0], choice.shares[19]), (4, 1));
        choice.change(4, segs[4], u(2048, 2));
        choice.change(3, segs[3], u(0, 3));
        choice.change(0, segs[0], u(1, 9));
        assert_eq!(all(&choice, 9), [2, 0, 5, 1, 4]);
        assert_eq!((choice.shares[0], choice.shares[10], choice.shares[19]), (4, 1, 0));
    }
}
