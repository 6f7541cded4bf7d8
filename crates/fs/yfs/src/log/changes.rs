//! What a compound transaction has changed, until it is logged.

use crate::format::*;
use rustc_hash::FxHashMap;

/// The compound transaction: log items by buffer, free items. The transactions of several calls, one
/// after another, become one: what all of them change is logged once. They are all durable or none is.
#[derive(Default)]
pub(crate) struct Tx {
    /// A call is changing something.
    pub open: bool,
    pub tid: u32,
    pub order: Vec<u64>,
    pub items: FxHashMap<u64, Item>,
    pub deleted: Vec<(u64, usize)>,
    pub marked: Vec<Extent>,
    pub unmarked: Vec<Extent>,
    /// What all of it takes in the log, or a little more.
    pub bytes: usize,
    /// Fragments in `marked`.
    pub marked_frags: u64,
    /// Ranges of earlier items, to be used again.
    pub spare: Vec<Vec<(usize, usize)>>,
}

#[derive(Default)]
pub(crate) struct Item {
    pub init: bool,
    pub seal: Option<Seal>,
    pub ranges: Vec<(usize, usize)>,
}

/// Ranges that are kept for use again.
pub(crate) const SPARE: usize = 64;

impl Tx {
    pub fn is_empty(&self) -> bool {
        self.order.is_empty() && self.deleted.is_empty() && self.marked.is_empty() && self.unmarked.is_empty()
    }
}

/// Ranges of bytes that one write changes, ascending; those close together are one.
#[derive(Default)]
pub(crate) struct Changed {
    all: [(usize, usize); 8],
    len: usize,
}

impl Changed {
    /// What differs between two slices of one length.
    pub fn between(old: &[u8], new: &[u8]) -> Changed {
        let mut changed = Changed::default();
        let ((a, a_rest), (b, b_rest)) = (old.as_chunks::<LOG_ENTRY>(), new.as_chunks::<LOG_ENTRY>());
        // Most stays the same, and long pieces are compared fastest.
        for (n, (x, y)) in a.iter().zip(b).enumerate() {
            if x != y {
                changed.compare(n * LOG_ENTRY, x, y);
            }
        }
        changed.compare(a.len() * LOG_ENTRY, a_rest, b_rest);
        changed
    }

    fn compare(&mut self, at: usize, old: &[u8], new: &[u8]) {
        let ((a, a_rest), (b, b_rest)) = (old.as_chunks::<8>(), new.as_chunks::<8>());
        for (n, (x, y)) in a.iter().zip(b).enumerate() {
            let differ = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
            if differ != 0 {
                let (first, behind) = (differ.trailing_zeros() as usize / 8, 8 - differ.leading_zeros() as usize / 8);
                self.push(at + n * 8 + first, at + n * 8 + behind);
            }
        }
        for (n, _) in a_rest.iter().zip(b_rest).enumerate().filter(|(_, (x, y))| x != y) {
            let n = at + a.len() * 8 + n;
            self.push(n, n + 1);
        }
    }

    fn push(&mut self, lo: usize, hi: usize) {
        let full = self.len == self.all.len();
        match self.all[..self.len].last_mut() {
            Some(last) if full || lo <= last.1 + LOG_ENTRY => last.1 = hi,
            _ => {
                self.all[self.len] = (lo, hi);
                self.len += 1;
            }
        }
    }

    pub fn ranges(&self) -> &[(usize, usize)] {
        &self.all[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::{Changed, LOG_ENTRY};

    #[test]
    fn differences_are_exact() {
        for len in 0..80 {
            let old = vec![7; len];
            assert_eq!(Changed::between(&old, &old).ranges(), []);
            for (lo, hi) in (0..len).flat_map(|lo| (lo..len).map(move |hi| (lo, hi))) {
                let mut new = old.clone();
                (new[lo], new[hi]) = (8, 0);
                let expected =
                    if hi <= lo + 1 + LOG_ENTRY { vec![(lo, hi + 1)] } else { vec![(lo, lo + 1), (hi, hi + 1)] };
                assert_eq!(Changed::between(&old, &new).ranges(), expected);
            }
        }
    }

    #[test]
    fn many_differences_are_no_more_than_eight() {
        let old = vec![0; 4000];
        let mut new = old.clone();
        new.iter_mut().step_by(100).for_each(|b| *b = 1);
        let changed = Changed::between(&old, &new);
        assert_eq!(changed.ranges().len(), 8);
        assert_eq!((changed.ranges()[6], changed.ranges()[7]), ((600, 601), (700, 3901)));
    }
}
