//! What the process with the disk is told, and what it answers: a line of JSON each.

use arbor_simdisk::Stats;
use serde::{Deserialize, Serialize};

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// What is the time?
    Now,
    /// So many nanoseconds pass.
    Advance(u64),
    /// What did the disk do since this was asked last?
    TakeStats,
    /// Unmount the file system, and wait for the disk.
    Unmount,
    /// Mount it.
    Mount,
    /// Write the trace to its file. The workload is over: its memory is not limited any longer.
    WriteTrace,
}

/// An answer. The first comes without an order, when the file system is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Why it could not be done.
    pub error: Option<String>,
    /// Virtual time, ns.
    pub now_ns: u64,
    /// Of [`Order::TakeStats`].
    pub stats: Option<Stats>,
    /// What people should know of the run.
    pub note: Option<String>,
}
