//! The segment usage of a log in core: live bytes of each segment, which may be filled, and what a cleaner chooses from.
//!
//! An ifile's table is a copy of it, brought up to date by each checkpoint. Called by the log-structured engines.

mod choice;

use crate::invariants::{Holds, ensure};
use crate::runs::Runs;
pub use choice::Choice;
use std::collections::{BTreeMap, BTreeSet};

/// Classes of segments by utilisation, for the counters.
pub const SHARES: usize = 20;

/// The usage of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Live bytes.
    pub live: u32,
    /// It holds something, or is being filled.
    pub dirty: bool,
    /// When its youngest block was written, seconds.
    pub time: i64,
}

/// Entries of a page of [`Segments`].
const PAGE: u32 = 256;

struct Page(Box<[Use; PAGE as usize]>);

/// The usage of all segments, in pages; a missing page holds segments that were never written. So memory goes by what a
/// volume holds, not by its size.
pub struct Segments {
    pages: BTreeMap<u32, Page>,
    count: u32,
    /// Segments that may be filled.
    pub clean: Runs,
    /// Segments that the newest checkpoint records as clean, and the one before did not.
    pub pending_clean: Vec<u32>,
    /// Segments whose entries differ from the ifile's.
    pub changed: BTreeSet<u32>,
    /// Live bytes of all segments.
    pub live: u64,
    /// Dirty segments with no live bytes.
    empty: BTreeSet<u32>,
    /// The other dirty segments, once the cleaner has asked for them.
    choice: Option<Choice>,
}

impl Segments {
    /// So many clean segments.
    pub fn new(count: u32) -> Segments {
        Segments {
            pages: BTreeMap::new(),
            count,
            clean: Runs::below(count),
            pending_clean: Vec::new(),
            changed: BTreeSet::new(),
            live: 0,
            empty: BTreeSet::new(),
            choice: None,
        }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Adds clean segments, up to `count`. The ifile has no entries for them, or zeros, which mean the same.
    pub fn grow(&mut self, count: u32) {
        self.clean.insert_run(self.count, count);
        self.count = self.count.max(count);
    }

    /// The usage of a segment.
    pub fn get(&self, seg: u32) -> Use {
        let page = self.pages.get(&(seg / PAGE));
        page.and_then(|page| page.0.get((seg % PAGE) as usize)).copied().unwrap_or_default()
    }

    /// Changes the usage of a segment.
    pub fn set(&mut self, seg: u32, to: Use) {
        if seg >= self.count {
            return;
        }
        let page = self.pages.entry(seg / PAGE).or_insert_with(|| Page(Box::new([Use::default(); PAGE as usize])));
        if let Some(at) = page.0.get_mut((seg % PAGE) as usize) {
            self.live = self.live + u64::from(to.live) - u64::from(at.live);
            if let Some(choice) = &mut self.choice {
                choice.change(seg, *at, to);
            }
            *at = to;
            self.changed.insert(seg);
            if to.dirty {
                self.clean.remove(seg);
            }
            if to.dirty && to.live == 0 {
                self.empty.insert(seg);
            } else {
                self.empty.remove(&seg);
            }
        }
    }

    /// Subtracts dead bytes, down to 0: the checker reports counts that do not agree.
    pub fn mark_dead(&mut self, seg: u32, bytes: u32) {
        let old = self.get(seg);
        self.set(seg, Use { live: old.live.saturating_sub(bytes), ..old });
    }

    /// Adds live bytes, written at `time`.
    pub fn add(&mut self, seg: u32, bytes: u32, time: i64) {
        let old = self.get(seg);
        self.set(seg, Use { live: old.live.saturating_add(bytes), dirty: true, time: old.time.max(time) });
    }

    /// Dirty segments with no live bytes, but for those that the log is in.
    pub fn empty(&self, busy: &[u32]) -> Vec<u32> {
        self.empty.iter().copied().filter(|n| !busy.contains(n)).collect()
    }

    /// Segments with an entry that is not zero, in the order of their addresses.
    pub fn said(&self) -> impl Iterator<Item = (u32, Use)> + '_ {
        said(&self.pages)
    }

    /// The first segment with live bytes, from number `from` on.
    pub fn first_live(&self, from: u32) -> Option<u32> {
        let pages = self.pages.range(from / PAGE..);
        numbered(pages).find(|(seg, u)| *seg >= from && u.live > 0).map(|(seg, _)| seg)
    }

    /// Dirty segments with their usage, in the order of their addresses.
    pub fn dirty(&self) -> impl Iterator<Item = (u32, Use)> + '_ {
        dirty(&self.pages)
    }

    /// The size of a walk over all of them, in items of `kit::invariants`.
    pub fn extent(&self) -> usize {
        self.pages.len() * PAGE as usize / 16
    }

    /// Checks that the sum and the set of empty segments agree with the table; `number` is the engine's invariant of it.
    pub fn check_sums(&self, number: &'static str) -> Holds {
        let live: u64 = self.said().map(|(_, u)| u64::from(u.live)).sum();
        ensure(live == self.live, number, || format!("{live} bytes live, {} in all", self.live))?;
        let empty = self.dirty().filter(|(_, u)| u.live == 0).map(|d| d.0);
        ensure(empty.eq(self.empty.iter().copied()), number, || format!("not empty: {:?}", self.empty))
    }

    /// The segments that the cleaner chooses from; a segment has `size` bytes.
    pub fn choice(&mut self, size: u64) -> &Choice {
        let pages = &self.pages;
        self.choice.get_or_insert_with(|| Choice::new(size, dirty(pages)))
    }
}

fn said(pages: &BTreeMap<u32, Page>) -> impl Iterator<Item = (u32, Use)> + '_ {
    numbered(pages.iter()).filter(|(_, u)| *u != Use::default())
}

fn numbered<'a>(pages: impl Iterator<Item = (&'a u32, &'a Page)>) -> impl Iterator<Item = (u32, Use)> {
    pages.flat_map(|(page, uses)| (page * PAGE..=page * PAGE + (PAGE - 1)).zip(*uses.0))
}

fn dirty(pages: &BTreeMap<u32, Page>) -> impl Iterator<Item = (u32, Use)> + '_ {
    said(pages).filter(|(_, u)| u.dirty)
}
