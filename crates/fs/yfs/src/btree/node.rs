//! Nodes as bytes: a count, a level, and records in the order of their keys.

use super::{HEAD, INNER, MAX_LEVEL, Node, STRUCTURE, WORD};
use arbor_base::layout::{Corrupt, get_u16, get_u64};

/// A node whose head has been checked.
pub(super) struct View<'a, const V: usize> {
    pub level: u8,
    pub cap: usize,
    size: usize,
    pub recs: &'a [u8],
}

impl<'a, const V: usize> View<'a, V> {
    /// Decodes a body. `level` is the one that the parent demands.
    pub(super) fn new(
        node: Node,
        address: u64,
        body: &'a [u8],
        level: Option<u8>,
    ) -> std::result::Result<Self, Corrupt> {
        let (Some(count), Some(&found)) = (get_u16(body, 0), body.get(2)) else {
            return Err(Corrupt::new(STRUCTURE, "body", address, body.len(), "a node"));
        };
        if found > level.unwrap_or(MAX_LEVEL) || level.is_some_and(|l| l != found) {
            return Err(Corrupt::new(STRUCTURE, "level", address, found, level.unwrap_or(MAX_LEVEL)));
        }
        let count = usize::from(count);
        let (size, cap) = (record_size::<V>(found), capacity::<V>(body.len(), found));
        let least = usize::from(node != Node::Root || found > 0);
        match body.get(HEAD..HEAD + count * size) {
            Some(recs) if count >= least => Ok(View { level: found, cap, size, recs }),
            _ => Err(Corrupt::new(STRUCTURE, "count", address, count, format_args!("{least} to {cap}"))),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.recs.len() / self.size
    }

    /// The key of record `i`, which the caller knows to exist.
    pub(super) fn key(&self, i: usize) -> u64 {
        get_u64(self.recs, i * self.size).unwrap_or(u64::MAX)
    }

    /// The child of record `i`, which the caller knows to exist.
    pub(super) fn child(&self, i: usize) -> u64 {
        get_u64(self.recs, i * self.size + WORD).unwrap_or(u64::MAX)
    }

    pub(super) fn children(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.count()).map(|i| self.child(i))
    }

    pub(super) fn record(&self, i: usize) -> Option<(u64, [u8; V])> {
        let at = i * self.size + WORD;
        let value = self.recs.get(at..at + V)?.try_into().ok()?;
        Some((self.key(i), value))
    }

    /// The first record from `low` on whose key is not `before` the place sought.
    fn partition(&self, mut low: usize, before: impl Fn(u64) -> bool) -> usize {
        let mut high = self.count();
        while low < high {
            let mid = low + (high - low) / 2;
            if before(self.key(mid)) { low = mid + 1 } else { high = mid }
        }
        low
    }

    /// Where `key` is in this node: the child that covers it, or its place in a leaf.
    pub(super) fn slot(&self, key: u64) -> usize {
        match self.level {
            0 => self.partition(0, |k| k < key),
            _ => self.partition(1, |k| k <= key) - 1,
        }
    }

    pub(super) fn pick(&self, key: u64, want: Match) -> Option<(u64, [u8; V])> {
        let i = self.slot(key);
        let hit = i < self.count() && self.key(i) == key;
        match want {
            Match::AtLeast => self.record(i),
            _ if hit => self.record(i),
            Match::AtMost => self.record(i.checked_sub(1)?),
            Match::Exact => None,
        }
    }
}

/// Which record a lookup wants.
#[derive(Clone, Copy)]
pub(super) enum Match {
    Exact,
    AtMost,
    AtLeast,
}

pub(super) fn record_size<const V: usize>(level: u8) -> usize {
    if level == 0 { WORD + V } else { INNER }
}

/// Records that a body of `len` bytes holds.
pub(super) fn capacity<const V: usize>(len: usize, level: u8) -> usize {
    (len.saturating_sub(HEAD) / record_size::<V>(level)).min(usize::from(u16::MAX))
}

pub(super) fn count_bytes(count: usize) -> [u8; 2] {
    u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes()
}

pub(super) fn leaf_record(key: u64, value: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(WORD + value.len());
    record.extend(key.to_le_bytes());
    record.extend(value);
    record
}

pub(super) fn inner_record(key: u64, child: u64) -> Vec<u8> {
    leaf_record(key, &child.to_le_bytes())
}
