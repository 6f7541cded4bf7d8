//! Metadata buffers that differ from their places on the device.

use super::Rec;
use crate::format::*;
use crate::planted::{Flaw, planted};
use arbor_base::device::Kind;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// A metadata buffer that differs from its place on the device.
pub(crate) struct Dirty {
    seal: Seal,
    kind: Kind,
    /// First record with a change that is not in place.
    first: Rec,
    /// Last record with a change.
    last: Rec,
    lo: usize,
    hi: usize,
    /// First record with a change made since the last write began, and its range.
    again: Option<(Rec, usize, usize)>,
}

/// The part of a buffer that goes in place, and up to which change.
pub(crate) struct Going {
    pub seal: Seal,
    pub kind: Kind,
    /// First record with a change that is written.
    pub first: Rec,
    pub lo: usize,
    pub hi: usize,
}

/// All dirty metadata buffers, and the order in which their changes were logged.
#[derive(Default)]
pub(crate) struct DirtyBuffers {
    of: FxHashMap<u64, Dirty>,
    by_first: BTreeSet<(Rec, u64)>,
}

impl DirtyBuffers {
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Notes that a record has a change of `lo..hi` of a buffer.
    pub fn changed(&mut self, addr: u64, (seal, kind): (Seal, Kind), rec: Rec, (lo, hi): (usize, usize)) {
        let by_first = &mut self.by_first;
        let d = self.of.entry(addr).or_insert_with(|| {
            by_first.insert((rec, addr));
            Dirty { seal, kind, first: rec, last: rec, lo, hi, again: None }
        });
        d.last = rec;
        (d.lo, d.hi) = (d.lo.min(lo), d.hi.max(hi));
        if let Some((_, a, b)) = &mut d.again {
            (*a, *b) = ((*a).min(lo), (*b).max(hi));
        } else {
            d.again = Some((rec, lo, hi));
        }
    }

    /// Notes that a record deletes a buffer. The buffer may hold changes that were not logged: it must not reach its
    /// place before that record is durable, and then it is forgotten.
    pub fn deleted(&mut self, addr: u64, rec: Rec) {
        if let Some(d) = self.of.get_mut(&addr) {
            d.last = rec;
        }
    }

    pub fn forget(&mut self, addr: u64) {
        if let Some(d) = self.of.remove(&addr) {
            self.by_first.remove(&(d.first, addr));
        }
    }

    /// All of them, each with the first and the last record that has a change of it.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, Rec, Rec)> + '_ {
        self.of.iter().map(|(addr, d)| (*addr, d.first, d.last))
    }

    /// Whether each of them is in the order once, by its first record.
    pub fn is_in_order(&self) -> bool {
        let is_there = |(addr, first, _)| self.by_first.contains(&(first, addr));
        self.by_first.len() == self.of.len() && self.iter().all(is_there)
    }

    /// Last record with a change of a buffer.
    pub fn last(&self, addr: u64) -> Option<Rec> {
        self.of.get(&addr).map(|d| d.last)
    }

    /// First record with a change that is not in place.
    pub fn first(&self) -> Option<Rec> {
        self.by_first.first().map(|f| f.0)
    }

    /// Buffers that may go in place (YFS-C1), of those first changed by `until`; at most `most`.
    pub fn ready(&self, durable: Rec, until: Rec, most: usize) -> Vec<u64> {
        let mut addrs = Vec::new();
        for &(first, addr) in &self.by_first {
            if addrs.len() >= most || first > until {
                break;
            }
            // YFS-C1
            if self.last(addr).is_some_and(|last| last <= durable || planted(Flaw::WriteBeforeLog)) {
                addrs.push(addr);
            }
        }
        addrs
    }

    /// Begins the write of a buffer in place.
    pub fn begin_write(&mut self, addr: u64) -> Option<Going> {
        let d = self.of.get_mut(&addr)?;
        let going = Going { seal: d.seal, kind: d.kind, first: d.first, lo: d.lo, hi: d.hi };
        (d.lo, d.hi, d.again) = (usize::MAX, 0, None);
        Some(going)
    }

    /// Ends the write of a buffer, now in place up to the change of [`Going::first`]; returns whether it is clean. One
    /// that was changed meanwhile is not.
    pub fn end_write(&mut self, addr: u64, first: Rec) -> bool {
        let Some(d) = self.of.get_mut(&addr).filter(|d| d.first == first) else { return false };
        self.by_first.remove(&(first, addr));
        match d.again.take() {
            None => {
                self.of.remove(&addr);
                true
            }
            Some((rec, lo, hi)) => {
                (d.first, d.lo, d.hi, d.again) = (rec, lo, hi, Some((rec, lo, hi)));
                self.by_first.insert((rec, addr));
                false
            }
        }
    }
}
