//! What of its files has been given space: by fallocate, or by a write that was carried out. A write there may not be told
//! that the volume is full.

use crate::ops::Op;
use arbor_base::vfs::FallocMode;
use std::collections::BTreeMap;

/// Ranges of bytes by the number of the file in the model: start and end, apart from each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given(BTreeMap<u64, BTreeMap<u64, u64>>);

impl Given {
    /// `op` was done to file `ino`, which has `size` bytes now.
    pub fn done(&mut self, ino: u64, op: &Op, size: u64) {
        match op {
            Op::Write { offset, len, .. } => self.give(ino, *offset, offset.saturating_add(*len as u64)),
            Op::Append { len, .. } => self.give(ino, size.saturating_sub(*len as u64), size),
            Op::Fallocate { mode, offset, len, .. } => {
                let (mode, end) = (FallocMode::from_bits_retain(*mode), offset.saturating_add(*len));
                if mode.contains(FallocMode::PUNCH_HOLE) {
                    self.take(ino, *offset, end);
                } else {
                    // With both, what lies after the end may be left out.
                    let cut = mode.contains(FallocMode::ZERO_RANGE | FallocMode::KEEP_SIZE);
                    self.give(ino, *offset, if cut { end.min(size) } else { end });
                }
            }
            Op::Truncate { size, .. } => self.take(ino, *size, u64::MAX),
            _ => {}
        }
    }

    /// Whether all of a write to `ino` has space.
    pub fn covers(&self, ino: u64, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        let last = self.0.get(&ino).and_then(|all| all.range(..=offset).next_back());
        last.is_some_and(|(_, stop)| *stop >= end)
    }

    fn give(&mut self, ino: u64, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        let all = self.0.entry(ino).or_default();
        while let Some((from, to)) = all.range(..=end).next_back().map(|(a, b)| (*a, *b)).filter(|r| r.1 >= start) {
            all.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        all.insert(start, end);
    }

    fn take(&mut self, ino: u64, start: u64, end: u64) {
        let Some(all) = self.0.get_mut(&ino) else { return };
        while let Some((from, to)) = all.range(..end).next_back().map(|(a, b)| (*a, *b)).filter(|r| r.1 > start) {
            all.remove(&from);
            if from < start {
                all.insert(from, start);
            }
            if to > end {
                all.insert(end, to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ops: &str, size: u64) -> Given {
        let mut given = Given::default();
        for op in crate::ops::parse(ops).unwrap() {
            given.done(1, &op, size);
        }
        given
    }

    #[test]
    fn ranges_join_and_part() {
        let g = after("write /a 100 50 1; fallocate /a 0 150 100; write /a 300 10 1", 400);
        assert!(g.covers(1, 100, 150) && g.covers(1, 200, 50) && g.covers(1, 305, 5));
        assert!(!g.covers(1, 99, 10) && !g.covers(1, 200, 51) && !g.covers(1, 240, 70) && !g.covers(2, 100, 1));
        let g = after("fallocate /a 1 0 1000; fallocate /a 3 200 100; truncate /a 600", 600);
        assert!(g.covers(1, 0, 200) && g.covers(1, 300, 300));
        assert!(!g.covers(1, 0, 201) && !g.covers(1, 299, 2) && !g.covers(1, 500, 101));
        assert!(!after("fallocate /a 17 0 1000", 400).covers(1, 0, 401));
    }
}
