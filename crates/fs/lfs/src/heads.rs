//! The heads of the log: the segments that are being filled, and where the log goes on.
//!
//! `plan.rs` moves them, `commit.rs` stores them with each group and in each checkpoint.

use crate::format::*;

/// The head of the log at which users' changes are written (hot).
pub(crate) const HOT: usize = 0;
/// The head at which the cleaner writes (cold).
pub(crate) const COLD: usize = 1;

/// A head of the log: the segment that it fills.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub seg: Seg,
    /// How many of its fragments are filled.
    pub offset: u32,
    pub next_seg: Seg,
    /// Ordinal number of this filling: no two fillings of any segment have the same.
    pub fill: u64,
}

impl Head {
    /// One that was never used.
    pub const NONE: Head = Head { seg: Seg(NO_SEG), offset: 0, next_seg: Seg(NO_SEG), fill: 0 };

    /// Whether it fills a segment.
    pub fn is_open(&self) -> bool {
        self.seg.0 != NO_SEG
    }
}

/// Where the log ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogHeads {
    pub heads: [Head; 2],
    pub group: u64,
    pub epoch: u64,
    /// When the last checkpoint was written, milliseconds since the mount; not a part of the log.
    pub checkpointed_ms: u64,
}

impl Default for LogHeads {
    fn default() -> LogHeads {
        LogHeads { heads: [Head::NONE; 2], group: 0, epoch: 0, checkpointed_ms: 0 }
    }
}

impl LogHeads {
    /// The end of the log as a checkpoint records it.
    pub fn new(cp: &Checkpoint) -> LogHeads {
        let hot = Head {
            seg: Seg(cp.seg.get()),
            offset: cp.offset.get(),
            next_seg: Seg(cp.next_seg.get()),
            fill: cp.fill.get(),
        };
        let cold = Head {
            seg: Seg(cp.cold_seg.get()),
            offset: cp.cold_offset.get(),
            next_seg: Seg(cp.cold_next.get()),
            fill: cp.cold_fill.get(),
        };
        LogHeads { heads: [hot, cold], group: cp.group.get(), epoch: cp.epoch.get(), checkpointed_ms: 0 }
    }

    /// The segments that are being filled, and the ones to be filled next.
    pub fn busy(&self) -> Vec<u32> {
        self.heads.iter().filter(|h| h.is_open()).flat_map(|h| [h.seg.0, h.next_seg.0]).collect()
    }

    /// Ordinal number of the next filling of any segment.
    pub fn next_fill(&self) -> u64 {
        self.heads.iter().map(|h| h.fill).max().unwrap_or(0) + 1
    }
}
