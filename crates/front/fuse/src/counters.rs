//! What was asked of a mount.

use crate::proto::Op;
use arbor_base::vfs::FileSystem;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The extended attribute of a mount's root that holds its counters: lines of a group, a name and a
/// number. No list names it, and only the server can set it.
pub const STATS: &str = "arbor.stats";

/// Counters as they are: group, name, number.
pub type Stats = Vec<(String, String, u64)>;

/// The counters of the mount at `root`: of requests and of the file system below.
pub fn stats(root: &Path) -> io::Result<Stats> {
    let mut text = vec![0; 16 << 10];
    let len = rustix::fs::getxattr(root, STATS, &mut text[..]).map_err(|e| match e {
        rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NODATA => io::Error::other("not a mount of arbor"),
        e => e.into(),
    })?;
    let text = String::from_utf8_lossy(&text[..len]).into_owned();
    let line = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_string(), words.next()?.to_string(), words.next()?.parse().ok()?))
    };
    Ok(text.lines().filter_map(line).collect())
}

/// What the attribute holds.
pub(crate) fn stats_text(counters: &Counters, fs: &dyn FileSystem) -> String {
    let lines = |group: &'static str, all: Vec<(&'static str, u64)>| {
        all.into_iter().map(move |(name, n)| format!("{group} {name} {n}\n"))
    };
    lines("mount", counters.get()).chain(lines("volume", fs.counters())).collect()
}

/// Request counters of a mount; they only grow.
#[derive(Debug)]
pub struct Counters {
    requests: [AtomicU64; 64],
    pub(crate) errors: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) undelivered: AtomicU64,
    pub(crate) handed_over: AtomicU64,
    pub(crate) slow: AtomicU64,
    pub(crate) queued: AtomicU64,
    pub(crate) by_ring: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters {
            requests: [const { AtomicU64::new(0) }; 64],
            errors: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            undelivered: AtomicU64::new(0),
            handed_over: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            queued: AtomicU64::new(0),
            by_ring: AtomicU64::new(0),
        }
    }

    pub(crate) fn count(&self, opcode: u32) {
        self.requests[opcode as usize % 64].fetch_add(1, Relaxed);
    }

    /// How many requests of that kind came, by the protocol's name in lower case (`"lookup"`).
    pub fn requests(&self, kind: &str) -> u64 {
        let op = Op::ALL.iter().find(|op| op.name() == kind);
        op.map_or(0, |&op| self.requests[op as usize].load(Relaxed))
    }

    /// All requests together.
    pub fn total(&self) -> u64 {
        self.requests.iter().map(|n| n.load(Relaxed)).sum()
    }

    /// Every counter that is not zero: requests by kind, then the sums.
    pub fn get(&self) -> Vec<(&'static str, u64)> {
        let requests = Op::ALL.iter().map(|&op| (op.name(), self.requests[op as usize].load(Relaxed)));
        let sums = [
            ("read_bytes", &self.read_bytes),
            ("written_bytes", &self.written_bytes),
            ("error_replies", &self.errors),
            ("panics", &self.panics),
            ("undelivered_replies", &self.undelivered),
            ("handed_over", &self.handed_over),
            ("slow_requests", &self.slow),
            ("queued_requests", &self.queued),
            ("requests_by_ring", &self.by_ring),
        ];
        requests.chain(sums.map(|(name, n)| (name, n.load(Relaxed)))).filter(|&(_, n)| n > 0).collect()
    }
}
