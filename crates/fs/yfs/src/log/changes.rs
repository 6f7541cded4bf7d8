//! The compound transaction: changes of calls, until they are logged.

use crate::format::*;
use rustc_hash::FxHashMap;

/// The compound transaction: log items by buffer, free items. The transactions of successive calls become one: the
/// changes of all of them are logged once. They are all durable or none is.
#[derive(Default)]
pub(crate) struct Tx {
    /// A transaction is open: a call is changing something.
    pub open: bool,
    tid: u32,
    order: Vec<u64>,
    items: FxHashMap<u64, Item>,
    deleted: Vec<(u64, usize)>,
    marked: Vec<Extent>,
    unmarked: Vec<Extent>,
    /// What all of it takes in the log, or a little more.
    bytes: usize,
    /// How often something was changed.
    changes: u64,
    /// The same when the open transaction began.
    began_at: u64,
    /// Fragments in `marked`.
    marked_frags: u64,
    /// Lists of ranges of earlier items, to be reused.
    spare: Vec<Vec<(usize, usize)>>,
}

/// What is to be logged of a buffer.
#[derive(Default)]
pub(crate) struct Item {
    pub init: bool,
    pub seal: Option<Seal>,
    pub ranges: Vec<(usize, usize)>,
}

/// How many lists of ranges are kept for reuse.
const SPARE: usize = 64;

impl Tx {
    pub fn is_empty(&self) -> bool {
        self.order.is_empty() && self.deleted.is_empty() && self.marked.is_empty() && self.unmarked.is_empty()
    }

    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// What all of it takes in the log, or a little more.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A number that grows with each change.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Opens a transaction.
    pub fn begin(&mut self) {
        (self.open, self.began_at) = (true, self.changes);
    }

    /// Whether something was changed since the open transaction began.
    pub fn has_changed(&self) -> bool {
        self.open && self.changes != self.began_at
    }

    /// Notes that what is only in core is about to be changed.
    pub fn touch(&mut self) {
        self.changes += 1;
    }

    /// Adds changed ranges of a buffer; they are given relative to `at`.
    pub fn change(&mut self, addr: Daddr, seal: Seal, at: usize, ranges: &[(usize, usize)]) {
        let item = self.item(addr, seal);
        let mut more = 0;
        for &(lo, hi) in ranges {
            let (lo, hi) = (at + lo, at + hi);
            match item.ranges.iter_mut().rev().find(|(a, b)| lo <= *b + LOG_ENTRY && *a <= hi + LOG_ENTRY) {
                Some(r) => {
                    let joined = (r.0.min(lo), r.1.max(hi));
                    more += (joined.1 - joined.0) - (r.1 - r.0);
                    *r = joined;
                }
                None => {
                    more += hi - lo + LOG_ENTRY;
                    item.ranges.push((lo, hi));
                }
            }
        }
        self.bytes += more;
    }

    /// Notes that a buffer was initialised with zeros.
    pub fn init(&mut self, addr: Daddr, seal: Seal) {
        let item = self.item(addr, seal);
        item.init = true;
        item.ranges.clear();
    }

    fn item(&mut self, addr: Daddr, seal: Seal) -> &mut Item {
        debug_assert!(self.open, "metadata changes only inside a transaction");
        self.changes += 1;
        let item = self.items.entry(addr.0).or_default();
        if item.seal.is_none() {
            item.seal = Some(seal);
            item.ranges = self.spare.pop().unwrap_or_default();
            self.bytes += LOG_ENTRY;
            self.order.push(addr.0);
        }
        item
    }

    /// Notes that a buffer is deleted: nothing else of it is logged.
    pub fn delete(&mut self, addr: Daddr, len: usize) {
        self.changes += 1;
        if self.items.remove(&addr.0).is_some() {
            self.order.retain(|a| *a != addr.0);
        }
        self.bytes += LOG_ENTRY;
        self.deleted.push((addr.0, len));
    }

    /// Marks an extent free.
    pub fn mark(&mut self, extent: Extent) {
        self.changes += 1;
        // The bits that freeing it will log one day.
        self.bytes += LOG_ENTRY + extent.len as usize / 8;
        self.marked_frags += u64::from(extent.len);
        self.marked.push(extent);
    }

    /// Notes that an extent marked free is now free in the bitmap.
    pub fn unmark(&mut self, extent: Extent) {
        self.changes += 1;
        self.bytes += LOG_ENTRY;
        self.unmarked.push(extent);
    }

    /// Extents that are marked free, and their fragments.
    pub fn marked(&self) -> (usize, u64) {
        (self.marked.len(), self.marked_frags)
    }

    /// Buffers with changes: how each is sealed, and its changed ranges.
    pub fn changed(&self) -> impl ExactSizeIterator<Item = (u64, &Item)> {
        self.items.iter().map(|(addr, item)| (*addr, item))
    }

    /// Extents that are marked free.
    pub fn going(&self) -> impl Iterator<Item = Extent> + '_ {
        self.marked.iter().copied()
    }

    /// Buffers that are deleted.
    pub fn deleted(&self) -> impl Iterator<Item = u64> + '_ {
        self.deleted.iter().map(|d| d.0)
    }

    /// Buffers with changes, in the order of their first ones.
    pub fn take_order(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.order)
    }

    pub fn take_item(&mut self, addr: u64) -> Option<Item> {
        self.items.remove(&addr)
    }

    pub fn take_deleted(&mut self) -> Vec<(u64, usize)> {
        std::mem::take(&mut self.deleted)
    }

    pub fn drain_unmarked(&mut self) -> impl Iterator<Item = Extent> {
        self.unmarked.drain(..)
    }

    pub fn drain_marked(&mut self) -> impl Iterator<Item = Extent> {
        self.marked.drain(..)
    }

    /// Keeps the memory of a logged item for the next.
    pub fn reuse(&mut self, mut item: Item) {
        if self.spare.len() < SPARE {
            item.ranges.clear();
            self.spare.push(item.ranges);
        }
    }

    /// Ends the transaction, all of which is logged. `order` is what [`Tx::take_order`] returned.
    pub fn end(&mut self, mut order: Vec<u64>) {
        order.clear();
        self.order = order;
        (self.bytes, self.marked_frags) = (0, 0);
        self.tid = self.tid.wrapping_add(1);
    }
}

/// Ranges of bytes that one write changes, ascending; those close together are one.
#[derive(Default)]
pub(crate) struct Changed {
    all: [(usize, usize); 8],
    len: usize,
}

impl Changed {
    /// The ranges in which two slices of one length differ.
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
                let (first, beyond) = (differ.trailing_zeros() as usize / 8, 8 - differ.leading_zeros() as usize / 8);
                self.push(at + n * 8 + first, at + n * 8 + beyond);
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
