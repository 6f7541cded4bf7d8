//! TPC-B (Transaction Processing Performance Council, "TPC Benchmark B", 1990) as Seltzer, Smith and others ran it,
//! "File System Logging Versus Clustering", USENIX 1995: what it asks of a file system.
//!
//! A transaction changes the record of an account and those of its teller and branch, and appends a record to the
//! history. For each branch there are 10 tellers and 100,000 accounts; records have 100 bytes, those of the history 50.
//! The data base keeps blocks in a cache of its own. Tellers, branches and the inner pages of the index stay there. So
//! what is left for each transaction is a block of accounts that is read, and another, changed some time ago, that is
//! written where it was because it leaves the cache; and a block of history when one is full.
//!
//! What the paper leaves open is chosen so:
//!
//! * Blocks leave the cache in the order of their last use.
//! * Locks and the data base's log do not occur: the paper's log is on another disk, and locks take no time there.
//! * Accounts are chosen evenly. A block is chosen, not one of its records, of which all have as many.

use crate::op::{Dir, Op, Program};
use arbor_torture::rng::Rng;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Size of a record of an account, a teller and a branch, bytes.
const RECORD_BYTES: u64 = 100;
/// Accounts of a branch, and tellers.
const PER_BRANCH: (u64, u64) = (100_000, 10);
/// Unit of the calls that load the data base, bytes.
const LOAD_BYTES: u32 = 64 << 10;
/// The phase in which nothing is asked for.
const IDLE: &str = "idle";

const FILLER: &str = "filler";
const ACCOUNT: &str = "account";
const HISTORY: &str = "history";

/// The parameters, with the paper's values as defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TpcB {
    /// Size of the account file with its index, bytes.
    pub account_bytes: u64,
    /// Size of a block of the data base, bytes.
    pub block_bytes: u32,
    /// The cache of the data base, bytes.
    pub cache_bytes: u64,
    /// Size of a record of the history, bytes.
    pub history_bytes: u32,
    /// Transactions that fill the cache of the data base and bring the file system to its steady state.
    pub warm_up: u64,
    /// Transactions that are measured.
    pub transactions: u64,
    /// Size of a file that lies there before and is not used, bytes.
    pub filler_bytes: u64,
    /// After so many transactions nothing is asked for so long, ns.
    pub idle: Option<(u64, u64)>,
}

impl Default for TpcB {
    fn default() -> TpcB {
        TpcB {
            account_bytes: 237_000_000,
            block_bytes: 4096,
            cache_bytes: 4 << 20,
            history_bytes: 50,
            warm_up: 10_000,
            transactions: 10_000,
            filler_bytes: 0,
            idle: None,
        }
    }
}

impl TpcB {
    /// The phases: loading, what comes before the measurement, the measurement.
    pub const PHASES: [&str; 3] = ["load", "warm-up", "transactions"];

    /// Makes the program.
    pub fn program(&self, seed: u64) -> Box<dyn Program> {
        let cached = (self.cache_bytes / u64::from(self.block_bytes.max(1))).max(1) as usize;
        let cache = Lru::new(cached);
        Box::new(Run { spec: *self, rng: Rng::new(seed), cache, at: At::Load, history: 0 })
    }

    fn blocks(&self) -> u64 {
        (self.account_bytes / u64::from(self.block_bytes.max(1))).max(1)
    }

    /// Sizes of the teller and the branch file.
    fn small_files(&self) -> [(&'static str, u64); 2] {
        let branches = (self.account_bytes / RECORD_BYTES).div_ceil(PER_BRANCH.0);
        [("teller", branches * PER_BRANCH.1 * RECORD_BYTES), ("branch", branches * RECORD_BYTES)]
    }
}

/// The data base's cache: which blocks it has, and when each was used last.
#[derive(Default)]
pub(super) struct Lru {
    room: usize,
    uses: u64,
    used: FxHashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
}

impl Lru {
    /// An empty cache with room for so many blocks.
    pub(super) fn new(room: usize) -> Lru {
        Lru { room, ..Lru::default() }
    }

    /// Uses a block. Says whether it had to be read, and which one had to leave for it.
    pub(super) fn touch(&mut self, block: u64) -> (bool, Option<u64>) {
        self.uses += 1;
        self.order.insert(self.uses, block);
        if let Some(before) = self.used.insert(block, self.uses) {
            self.order.remove(&before);
            return (false, None);
        }
        if self.used.len() <= self.room {
            return (true, None);
        }
        let oldest = self.order.pop_first().map(|(_, block)| block);
        if let Some(block) = oldest {
            self.used.remove(&block);
        }
        (true, oldest)
    }
}

enum At {
    Load,
    Transaction(u64),
    End,
}

struct Run {
    spec: TpcB,
    rng: Rng,
    cache: Lru,
    at: At,
    /// Bytes of the history's records.
    history: u64,
}

impl Run {
    fn load(&self, out: &mut Vec<Op>) {
        let create = |name: &str| Op::Create { dir: Dir::ROOT, name: name.into() };
        out.push(Op::Phase(TpcB::PHASES[0]));
        if self.spec.filler_bytes > 0 {
            let len = self.spec.filler_bytes;
            out.extend([create(FILLER), Op::Write { offset: 0, len, io: LOAD_BYTES, tag: 0 }, Op::Fsync, Op::Close]);
        }
        for (name, len) in self.spec.small_files() {
            out.extend([create(name), Op::Write { offset: 0, len, io: LOAD_BYTES, tag: 0 }, Op::Close]);
        }
        let len = self.spec.blocks() * u64::from(self.spec.block_bytes);
        out.extend([create(HISTORY), Op::Close]);
        out.extend([create(ACCOUNT), Op::Write { offset: 0, len, io: LOAD_BYTES, tag: 0 }, Op::Fsync, Op::Close]);
        out.extend([Op::Remount, Op::Phase(TpcB::PHASES[1])]);
        for (name, len) in self.spec.small_files() {
            out.extend([self.open(name), Op::Read { offset: 0, len, io: LOAD_BYTES }, Op::Close]);
        }
        out.push(self.open(ACCOUNT));
    }

    fn open(&self, name: &str) -> Op {
        Op::Open { dir: Dir::ROOT, name: name.into() }
    }

    fn transaction(&mut self, number: u64, out: &mut Vec<Op>) {
        let (io, len) = (self.spec.block_bytes, u64::from(self.spec.block_bytes));
        let (is_read, leaves) = self.cache.touch(self.rng.below(self.spec.blocks()));
        if let (true, Some(block)) = (is_read, self.cache.order.last_key_value()) {
            out.push(Op::Read { offset: block.1 * len, len, io });
        }
        // Whatever is in the cache was changed there.
        out.extend(leaves.map(|block| Op::Write { offset: block * len, len, io, tag: number }));
        let before = self.history / len;
        self.history += u64::from(self.spec.history_bytes);
        if self.history / len > before {
            let full = Op::Write { offset: before * len, len, io, tag: number };
            out.extend([Op::Close, self.open(HISTORY), full, Op::Close, self.open(ACCOUNT)]);
        }
        out.push(Op::Done);
    }
}

impl Program for Run {
    fn step(&mut self, out: &mut Vec<Op>) -> bool {
        let (warm_up, all) = (self.spec.warm_up, self.spec.warm_up + self.spec.transactions);
        match self.at {
            At::Load => {
                self.load(out);
                self.at = At::Transaction(0);
            }
            At::Transaction(n) if n < all => {
                if n == warm_up {
                    out.push(Op::Phase(TpcB::PHASES[2]));
                }
                self.transaction(n + 1, out);
                if let Some((_, ns)) = self.spec.idle.filter(|(each, _)| (n + 1).is_multiple_of(*each)) {
                    let is_measured = n >= warm_up;
                    out.extend(is_measured.then_some(Op::Phase(IDLE)));
                    out.push(Op::Think { ns });
                    out.extend(is_measured.then_some(Op::Phase(TpcB::PHASES[2])));
                }
                self.at = At::Transaction(n + 1);
            }
            At::Transaction(_) => {
                out.push(Op::Close);
                self.at = At::End;
            }
            At::End => return false,
        }
        true
    }

    fn progress(&self) -> (u64, u64) {
        let total = self.spec.warm_up + self.spec.transactions;
        match self.at {
            At::Load => (0, total),
            At::Transaction(n) => (n, total),
            At::End => (total, total),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_stays() {
        let mut cache = Lru::new(2);
        let touched: Vec<_> = [1, 2, 1, 3, 2, 2].map(|block| cache.touch(block)).into();
        let [hit, read] = [(false, None), (true, None)];
        assert_eq!(touched, [read, read, hit, (true, Some(2)), (true, Some(1)), hit]);
    }

    fn phases(spec: &TpcB) -> [Vec<Op>; 3] {
        let (mut program, mut ops) = (spec.program(1), Vec::new());
        while program.step(&mut ops) {}
        let (done, total) = program.progress();
        assert_eq!(done, total);
        let mut parts = ops.split(|op| matches!(op, Op::Phase(_))).skip(1).map(<[Op]>::to_vec);
        [0, 1, 2].map(|_| parts.next().unwrap())
    }

    #[test]
    fn a_transaction_reads_a_block_and_writes_another() {
        let spec = TpcB { account_bytes: 40 << 20, warm_up: 3000, transactions: 4000, ..TpcB::default() };
        let [load, _, measured] = phases(&spec);
        let loaded = load.iter().map(|op| if let Op::Write { len, .. } = op { *len } else { 0 }).max();
        assert_eq!(loaded, Some(40 << 20));
        let reads = measured.iter().filter(|op| matches!(op, Op::Read { len: 4096, .. })).count();
        let writes = measured.iter().filter(|op| matches!(op, Op::Write { len: 4096, .. })).count();
        // A tenth of the blocks is in the cache. 4096 bytes of history are full after 81.92 transactions.
        assert!((3500..3700).contains(&reads), "{reads}");
        assert!([48, 49].contains(&(writes - reads)), "{writes} writes, {reads} reads");
        assert_eq!(measured.iter().filter(|op| **op == Op::Done).count(), 4000);
        let offsets = |is_write: bool| {
            measured.iter().filter_map(move |op| match op {
                Op::Read { offset, .. } if !is_write => Some(*offset),
                Op::Write { offset, .. } if is_write => Some(*offset),
                _ => None,
            })
        };
        assert!(offsets(true).chain(offsets(false)).all(|at| at % 4096 == 0 && at < 40 << 20));
    }

    #[test]
    fn what_is_idle_is_not_measured() {
        let spec =
            TpcB { account_bytes: 1 << 20, warm_up: 20, transactions: 30, idle: Some((10, 7)), ..TpcB::default() };
        let (mut program, mut ops) = (spec.program(1), Vec::new());
        while program.step(&mut ops) {}
        let marks: Vec<_> = ops.iter().filter(|op| matches!(op, Op::Phase(_) | Op::Think { .. })).skip(2).collect();
        let [idle, busy, think] = [Op::Phase(IDLE), Op::Phase(TpcB::PHASES[2]), Op::Think { ns: 7 }];
        assert_eq!(marks[..4], [&think, &think, &busy, &idle]);
        assert_eq!(marks[4..], [&think, &busy, &idle, &think, &busy, &idle, &think, &busy]);
    }

    #[test]
    fn the_proportions_are_those_of_the_benchmark() {
        let spec = TpcB { account_bytes: 100 * 1_000_000, ..TpcB::default() };
        assert_eq!(spec.small_files(), [("teller", 10_000), ("branch", 1000)]);
    }
}
