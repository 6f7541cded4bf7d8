//! Which sets of partial segments count, told from all the summaries of a log where no checkpoint leads to its end.
//!
//! A set counts whole or not at all; a mount begins with the first set that the one before has not completed. Called by
//! the checkers of the log-structured engines, which have lost the ifile.

use arbor_base::vfs::Result;
use std::collections::BTreeMap;

/// A partial segment, as its summary tells of it.
#[derive(Clone, Copy, Debug)]
pub struct Part<P> {
    /// Where it is.
    pub at: P,
    /// Number of the mount.
    pub epoch: u64,
    /// Number of the set.
    pub set: u64,
    /// Place in the set, from 0.
    pub index: u32,
    /// It ends its set.
    pub is_last: bool,
    /// Ordinal number of the filling of its segment.
    pub fill: u64,
}

/// The ends of the log. First all summaries are [seen](Ends::see), then the last set is [judged](Ends::judge).
#[derive(Debug)]
pub struct Ends<P> {
    /// The first set of each mount.
    epochs: BTreeMap<u64, u64>,
    /// The last set of the last mount, and its parts.
    last: (u64, u64),
    parts: Vec<Part<P>>,
    is_whole: bool,
    fill: u64,
}

impl<P> Default for Ends<P> {
    fn default() -> Ends<P> {
        Ends { epochs: BTreeMap::new(), last: (0, 0), parts: Vec::new(), is_whole: false, fill: 0 }
    }
}

impl<P> Ends<P> {
    /// Notes a partial segment.
    pub fn see(&mut self, part: Part<P>) {
        let first = self.epochs.entry(part.epoch).or_insert(part.set);
        *first = (*first).min(part.set);
        self.fill = self.fill.max(part.fill);
        let of = (part.epoch, part.set);
        if of > self.last {
            self.last = of;
            self.parts.clear();
        }
        if of == self.last {
            self.parts.push(part);
        }
    }

    /// Judges whether the last set is complete; `is_sound` says it of one of its parts.
    pub fn judge(&mut self, is_sound: &mut dyn FnMut(&P) -> Result<bool>) -> Result<()> {
        let mut sound = BTreeMap::new();
        for part in &self.parts {
            if is_sound(&part.at)? {
                sound.insert(part.index, part.is_last);
            }
        }
        let in_a_row = sound.keys().enumerate().all(|(n, index)| n as u32 == *index);
        self.is_whole = in_a_row && sound.last_key_value().is_some_and(|(_, is_last)| *is_last);
        Ok(())
    }

    /// Whether a set counts: no later mount began before its end, and the last one is complete.
    pub fn counts(&self, epoch: u64, set: u64) -> bool {
        let cut = self.epochs.range(epoch.saturating_add(1)..).any(|(_, first)| *first <= set);
        !cut && ((epoch, set) < self.last || (epoch, set) == self.last && self.is_whole)
    }

    /// The last mount, and its last set; 0 and 0 if there is none.
    pub fn last(&self) -> (u64, u64) {
        self.last
    }

    /// The ordinal number of the last filling.
    pub fn fill(&self) -> u64 {
        self.fill
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(parts: &[(u64, u64, u32, bool)], torn: &[u32]) -> Ends<u32> {
        let mut ends = Ends::default();
        for (epoch, set, index, is_last) in parts.iter().copied() {
            ends.see(Part { at: index, epoch, set, index, is_last, fill: set });
        }
        ends.judge(&mut |at| Ok(!torn.contains(at))).unwrap();
        ends
    }

    #[test]
    fn a_set_counts_whole_or_not_at_all() {
        let two = [(1, 1, 0, true), (1, 2, 1, true), (1, 2, 0, false)];
        assert!(ends(&two, &[]).counts(1, 1) && ends(&two, &[]).counts(1, 2));
        for torn in [0, 1] {
            assert!(ends(&two, &[torn]).counts(1, 1) && !ends(&two, &[torn]).counts(1, 2), "{torn}");
        }
        assert!(!ends(&two[..1], &[]).counts(1, 2));
        assert!(!ends(&[(1, 2, 0, false)], &[]).counts(1, 2), "its end is missing");
        assert_eq!((ends(&two, &[]).last(), ends(&two, &[]).fill()), ((1, 2), 2));
    }

    #[test]
    fn a_later_mount_begins_where_the_one_before_was_cut_off() {
        let ends = ends(&[(1, 1, 0, true), (1, 2, 0, false), (2, 2, 0, true)], &[]);
        assert!(ends.counts(1, 1) && !ends.counts(1, 2) && ends.counts(2, 2));
    }
}
