//! Counters of a simulated device.

use crate::trace::KINDS;
use arbor_base::device::Kind;
use serde::{Deserialize, Serialize};

/// What was asked for one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindStats {
    /// Requests as the file system submitted them.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Service time in nanoseconds; that of a merged request is shared by bytes.
    pub service_ns: u64,
}

/// What an SSD's flash did, since the device was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SsdStats {
    /// Bytes that the host wrote, in whole units of the mapping.
    pub host_bytes: u64,
    /// Bytes programmed into flash, whole pages.
    pub flash_bytes: u64,
    /// Flash pages programmed.
    pub flash_pages: u64,
    /// Bytes that garbage collection and merges copied.
    pub moved_bytes: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Bytes that are mapped.
    pub mapped_bytes: u64,
}

impl SsdStats {
    /// Bytes programmed for each byte written, 1 before the first write.
    pub fn write_amplification(&self) -> f64 {
        if self.host_bytes == 0 { 1.0 } else { self.flash_bytes as f64 / self.host_bytes as f64 }
    }

    /// What happened after `earlier`.
    pub fn since(&self, earlier: &SsdStats) -> SsdStats {
        SsdStats {
            host_bytes: self.host_bytes - earlier.host_bytes,
            flash_bytes: self.flash_bytes - earlier.flash_bytes,
            flash_pages: self.flash_pages - earlier.flash_pages,
            moved_bytes: self.moved_bytes - earlier.moved_bytes,
            erases: self.erases - earlier.erases,
            mapped_bytes: self.mapped_bytes,
        }
    }
}

/// Counters since the device was made or [`SimDevice::reset_stats`](crate::SimDevice::reset_stats).
///
/// A *request* is what the driver hands over, after merging and splitting. In the terms of the yFS paper its service
/// time W runs from the handing over to completion, and its queueing time Z is what it spent in the driver's queue
/// before. The parts of the service time are overhead, seek, rotation and transfer; the rest it waited in the drive's
/// own queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Requests as the file system submitted them: reads, writes, and discards if the drive has TRIM.
    pub submitted: u64,
    /// Requests as the driver counts them, once complete.
    pub requests: u64,
    /// Of these, reads.
    pub reads: u64,
    /// Of these, writes.
    pub writes: u64,
    /// Of these, discards.
    pub discards: u64,
    /// Flushes that reached the drive.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Reads that the buffer of the drive served without a seek.
    pub cache_hits: u64,
    /// Service time of all requests, in nanoseconds.
    pub service_ns: u64,
    /// Time of all requests in the driver's queue, in nanoseconds.
    pub queue_ns: u64,
    /// Command overhead, part of the service time.
    pub overhead_ns: u64,
    /// Requests for which the arm moved or another head was chosen.
    pub seeks: u64,
    /// What that took, part of the service time.
    pub seek_ns: u64,
    /// Rotational delay, part of the service time.
    pub rotation_ns: u64,
    /// Transfer, part of the service time.
    pub transfer_ns: u64,
    /// Time during which the drive had at least one command.
    pub busy_ns: u64,
    /// Bytes written back from a disk's write cache.
    pub destaged_bytes: u64,
    /// Time the mechanism took for that, in nanoseconds; not part of the service time.
    pub destage_ns: u64,
    /// The flash, on an SSD.
    pub ssd: Option<SsdStats>,
    pub(crate) kinds: [KindStats; KINDS.len()],
}

impl Stats {
    /// The share of one kind.
    pub fn kind(&self, kind: Kind) -> KindStats {
        self.kinds[kind as usize]
    }

    /// W: from the handing over to completion, in milliseconds; 0 without requests.
    pub fn average_service_ms(&self) -> f64 {
        average_ms(self.service_ns, self.requests)
    }

    /// Z: in the driver's queue, in milliseconds; 0 without requests.
    pub fn average_queue_ms(&self) -> f64 {
        average_ms(self.queue_ns, self.requests)
    }
}

fn average_ms(ns: u64, n: u64) -> f64 {
    if n == 0 { 0.0 } else { ns as f64 / n as f64 / 1e6 }
}
