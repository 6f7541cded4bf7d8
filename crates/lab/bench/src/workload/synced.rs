//! A program whose every change is durable before the next operation, on whatever file system: what a mount in
//! synchronous mode does.

use crate::op::{Listed, Op, Program};

/// Syncs after each operation of another program that changes something.
pub struct Synced {
    inner: Box<dyn Program>,
    ops: Vec<Op>,
}

impl Synced {
    /// `inner`, synced.
    pub fn new(inner: Box<dyn Program>) -> Synced {
        Synced { inner, ops: Vec::new() }
    }
}

fn changes(op: &Op) -> bool {
    matches!(
        op,
        Op::Mkdir { .. }
            | Op::Rmdir { .. }
            | Op::Create { .. }
            | Op::Write { .. }
            | Op::SetTimes { .. }
            | Op::Unlink { .. }
            | Op::Rename { .. }
            | Op::Symlink { .. }
    )
}

impl Program for Synced {
    fn step(&mut self, out: &mut Vec<Op>) -> bool {
        let more = self.inner.step(&mut self.ops);
        for op in self.ops.drain(..) {
            let sync = changes(&op).then_some(Op::Sync);
            out.push(op);
            out.extend(sync);
        }
        more
    }

    fn listed(&mut self, names: &[Listed]) {
        self.inner.listed(names);
    }

    fn progress(&self) -> (u64, u64) {
        self.inner.progress()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::postmark::PostMark;

    fn ops(mut program: Box<dyn Program>) -> Vec<Op> {
        let mut ops = Vec::new();
        while program.step(&mut ops) {}
        ops
    }

    #[test]
    fn every_change_is_followed_by_a_sync_and_nothing_else_is() {
        let post_mark = || PostMark { files: 50, transactions: 100, ..PostMark::default() }.program();
        let (plain, synced) = (ops(post_mark()), ops(Box::new(Synced::new(post_mark()))));
        let is_sync = |op: &Op| *op == Op::Sync;
        assert!(!plain.iter().any(is_sync));
        for pair in synced.windows(2).filter(|pair| !is_sync(&pair[0])) {
            let is_read = matches!(pair[0], Op::Open { .. } | Op::Read { .. } | Op::Close | Op::Phase(_));
            assert_eq!(is_sync(&pair[1]), !is_read, "{pair:?}");
        }
        assert!(synced.iter().filter(|op| is_sync(op)).count() > 250);
        assert!(synced.into_iter().filter(|op| !is_sync(op)).eq(plain));
    }
}
