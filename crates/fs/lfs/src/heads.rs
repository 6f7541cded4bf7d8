//! The heads of the log: where it goes on.

use crate::format::*;

/// The head of the log at which users' changes are written.
pub(crate) const HOT: usize = 0;
/// The one at which the cleaner writes.
pub(crate) const COLD: usize = 1;

/// A head of the log: the segment that it fills.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub seg: Seg,
    /// Fragments of the segment that are filled.
    pub offset: u32,
    pub next_seg: Seg,
    /// Ordinal number of this filling.
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
    /// When the ifile was written, milliseconds since the mount.
    pub checkpointed_ms: u64,
}

impl Default for LogHeads {
    fn default() -> LogHeads {
        LogHeads { heads: [Head::NONE; 2], group: 0, epoch: 0, checkpointed_ms: 0 }
    }
}

impl LogHeads {
    /// Where a checkpoint says it ends.
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

    /// Segments that are being filled, and those that come after them.
    pub fn busy(&self) -> Vec<u32> {
        self.heads.iter().filter(|h| h.is_open()).flat_map(|h| [h.seg.0, h.next_seg.0]).collect()
    }

    /// Ordinal number of the next filling of any segment.
    pub fn next_fill(&self) -> u64 {
        self.heads.iter().map(|h| h.fill).max().unwrap_or(0) + 1
    }
}
