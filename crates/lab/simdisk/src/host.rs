//! The driver's queue: which request goes to the drive next.

use crate::sim::Part;
use crate::trace::TraceOp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// The order in which queued requests are handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// One-way elevator: upward from the last address, then from the lowest again.
    #[default]
    Clook,
    /// In the order of arrival.
    Fifo,
    /// The nearest address first.
    Sstf,
}

/// What the host joins to one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Merge {
    /// Whatever is adjacent, as Linux does.
    #[default]
    Adjacent,
    /// A write is one buffer, or those of one file in a row ([`Buf::of_file`](arbor_base::device::Buf::of_file)), and
    /// nothing joins it in the queue: FreeBSD's clusters (`vfs_bio_awrite` and `cluster_wbuild` in its `sys/kern`). What
    /// an engine writes in one piece, as a log, stays whole.
    Buffers,
}

/// The host's queue in front of a drive.
///
/// With an elevator, reads go first, since somebody waits for them. Writes go when no read is queued, and when the
/// oldest of them has waited for [`deadline_ms`](HostQueue::deadline_ms): then a batch of them, and after it as many
/// reads before the next. So neither starves. The defaults are those of Linux (block/mq-deadline.c: 5 s for writes,
/// batches of 16).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostQueue {
    /// Order of handing over.
    pub scheduler: Scheduler,
    /// At most so many requests are with the drive at once; the drive's own tags limit it too.
    pub depth: usize,
    /// What is joined.
    pub merge: Merge,
    /// Requests are joined up to so many bytes, and larger ones are split. The default is 128 KiB, FreeBSD's MAXPHYS
    /// before version 13. 0: neither.
    pub max_transfer_bytes: u64,
    /// Reads go before writes.
    pub prefer_reads: bool,
    /// When a write has waited so long it is due, and with [`Scheduler::Sstf`] a read too, in milliseconds.
    pub deadline_ms: u64,
    /// When writes are due, so many go in a row.
    pub batch: u32,
}

impl Default for HostQueue {
    fn default() -> HostQueue {
        HostQueue {
            scheduler: Scheduler::Clook,
            depth: usize::MAX,
            merge: Merge::Adjacent,
            max_transfer_bytes: 128 << 10,
            prefer_reads: true,
            deadline_ms: 5000,
            batch: 16,
        }
    }
}

impl HostQueue {
    /// The default queue with another scheduler.
    pub fn with(scheduler: Scheduler) -> HostQueue {
        HostQueue { scheduler, ..HostQueue::default() }
    }
}

impl HostQueue {
    /// The lengths of the requests that a write becomes. `bufs`: tags and lengths of its pieces.
    pub(crate) fn parts(&self, bufs: impl Iterator<Item = (u64, u64)>) -> Vec<u64> {
        let (is_parted, mut out, mut last) = (self.merge == Merge::Buffers, Vec::new(), None);
        for (tag, len) in bufs {
            match out.last_mut().filter(|_| !is_parted || last == Some(tag)) {
                Some(sum) => *sum += len,
                None => out.push(len),
            }
            last = Some(tag);
        }
        out
    }
}

/// A queued request: the submitted parts that it was merged from, in the order of addresses.
#[derive(Debug)]
pub(crate) struct Queued {
    pub op: TraceOp,
    pub offset: u64,
    pub len: u64,
    /// When the first of its parts came.
    pub since: u64,
    pub parts: VecDeque<Part>,
}

/// Requests of one direction, by address and by age.
#[derive(Debug, Default)]
struct Direction {
    /// By offset, then by number of arrival.
    sorted: BTreeMap<(u64, u64), Queued>,
    /// By number of arrival: offset and time.
    aged: BTreeMap<u64, (u64, u64)>,
}

impl Direction {
    fn insert(&mut self, number: u64, queued: Queued) {
        self.aged.insert(number, (queued.offset, queued.since));
        self.sorted.insert((queued.offset, number), queued);
    }

    fn remove(&mut self, key: (u64, u64)) -> Option<Queued> {
        self.aged.remove(&key.1);
        self.sorted.remove(&key)
    }

    fn oldest(&self) -> Option<((u64, u64), u64)> {
        self.aged.iter().next().map(|(number, (offset, since))| ((*offset, *number), *since))
    }

    fn after(&self, offset: u64) -> Option<(u64, u64)> {
        self.sorted.range((offset, 0)..).next().map(|(k, _)| *k)
    }

    fn before(&self, offset: u64) -> Option<(u64, u64)> {
        self.sorted.range(..(offset, 0)).next_back().map(|(k, _)| *k)
    }

    /// Key of one whose end is `offset`, if it is the last that begins before it.
    fn ending_at(&self, offset: u64) -> Option<(u64, u64)> {
        let (key, queued) = self.sorted.range(..(offset, 0)).next_back()?;
        (queued.offset + queued.len == offset).then_some(*key)
    }

    fn choose(&self, scheduler: Scheduler, head: u64) -> Option<(u64, u64)> {
        match scheduler {
            Scheduler::Clook => self.after(head).or_else(|| self.after(0)),
            Scheduler::Fifo => self.oldest().map(|(key, _)| key),
            Scheduler::Sstf => match (self.before(head), self.after(head)) {
                (Some(below), Some(above)) if head - below.0 < above.0 - head => Some(below),
                (below, above) => above.or(below),
            },
        }
    }
}

/// The queue itself.
#[derive(Debug)]
pub(crate) struct Queue {
    settings: HostQueue,
    reads: Direction,
    writes: Direction,
    arrivals: u64,
    /// Where the request handed over last ends.
    head: u64,
    /// Due writes still to be handed over in a row.
    writes_owed: u32,
    /// Reads to be handed over before writes may be due again.
    reads_owed: u32,
}

const NS_PER_MS: u64 = 1_000_000;

impl Queue {
    pub fn new(settings: HostQueue) -> Queue {
        let (reads, writes) = (Direction::default(), Direction::default());
        Queue { settings, reads, writes, arrivals: 0, head: 0, writes_owed: 0, reads_owed: 0 }
    }

    pub fn settings(&self) -> &HostQueue {
        &self.settings
    }

    pub fn is_empty(&self) -> bool {
        self.reads.sorted.is_empty() && self.writes.sorted.is_empty()
    }

    /// Adds a request, merged with its neighbours if it may be.
    pub fn push(&mut self, op: TraceOp, part: Part, now: u64) {
        let limit = if self.settings.merge == Merge::Adjacent { self.settings.max_transfer_bytes } else { 0 };
        let direction = if op == TraceOp::Read { &mut self.reads } else { &mut self.writes };
        let (offset, len) = (part.offset, part.len);
        let mut queued = Queued { op, offset, len, since: now, parts: VecDeque::from([part]) };
        self.arrivals += 1;
        let mut number = self.arrivals;
        let fits = |other: &Queued, len: u64| other.op == op && op != TraceOp::Discard && other.len + len <= limit;
        if let Some(key) = direction.ending_at(offset).filter(|k| fits(&direction.sorted[k], queued.len))
            && let Some(mut below) = direction.remove(key)
        {
            below.parts.append(&mut queued.parts);
            below.len += queued.len;
            (queued, number) = (below, key.1);
        }
        let end = queued.offset + queued.len;
        let above = direction.after(end).filter(|k| k.0 == end && fits(&direction.sorted[k], queued.len));
        if let Some(mut above) = above.and_then(|key| direction.remove(key).map(|q| (key, q))) {
            queued.parts.append(&mut above.1.parts);
            queued.len += above.1.len;
            number = number.min(above.0.1);
            queued.since = queued.since.min(above.1.since);
        }
        direction.insert(number, queued);
    }

    /// Takes the request that goes to the drive now.
    pub fn take(&mut self, now: u64) -> Option<Queued> {
        let (read, key) = self.choose(now)?;
        let direction = if read { &mut self.reads } else { &mut self.writes };
        let queued = direction.remove(key)?;
        self.head = queued.offset + queued.len;
        Some(queued)
    }

    /// Direction (true: reads) and key.
    fn choose(&mut self, now: u64) -> Option<(bool, (u64, u64))> {
        let (Some((read, _)), Some((write, since))) = (self.reads.oldest(), self.writes.oldest()) else {
            (self.writes_owed, self.reads_owed) = (0, 0);
            let reads = self.pick(&self.reads, now).map(|key| (true, key));
            return reads.or_else(|| self.pick(&self.writes, now).map(|key| (false, key)));
        };
        if self.settings.scheduler == Scheduler::Fifo {
            return Some(if read.1 < write.1 { (true, read) } else { (false, write) });
        }
        if !self.settings.prefer_reads {
            return self.either(now);
        }
        if self.writes_owed > 0 {
            self.writes_owed -= 1;
            return self.pick(&self.writes, now).map(|key| (false, key));
        }
        if self.reads_owed == 0 && self.expired(since, now) {
            self.writes_owed = self.settings.batch.saturating_sub(1);
            self.reads_owed = self.settings.batch;
            return Some((false, write));
        }
        self.reads_owed = self.reads_owed.saturating_sub(1);
        self.pick(&self.reads, now).map(|key| (true, key))
    }

    fn expired(&self, since: u64, now: u64) -> bool {
        now.saturating_sub(since) > self.settings.deadline_ms * NS_PER_MS
    }

    /// The next of one direction. A sweep of the elevator passes everything, but the nearest first may pass some by
    /// for ever.
    fn pick(&self, direction: &Direction, now: u64) -> Option<(u64, u64)> {
        let late = direction.oldest().filter(|(_, since)| self.expired(*since, now));
        match self.settings.scheduler {
            Scheduler::Sstf if late.is_some() => late.map(|(key, _)| key),
            scheduler => direction.choose(scheduler, self.head),
        }
    }

    /// The elevator over both directions.
    fn either(&self, now: u64) -> Option<(bool, (u64, u64))> {
        let (read, write) = (self.pick(&self.reads, now)?, self.pick(&self.writes, now)?);
        let rank = |key: (u64, u64)| match self.settings.scheduler {
            Scheduler::Clook => (u64::from(key.0 < self.head), key.0, key.1),
            Scheduler::Fifo | Scheduler::Sstf => (key.0.abs_diff(self.head), key.0, key.1),
        };
        Some(if rank(read) <= rank(write) { (true, read) } else { (false, write) })
    }
}
