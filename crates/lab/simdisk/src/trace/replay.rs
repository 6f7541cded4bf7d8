//! The same requests on another model.

use super::{Trace, TraceOp, TraceRequest};
use crate::drive::SECTOR;
use crate::host::HostQueue;
use crate::latencies::Latencies;
use crate::model::Model;
use crate::sim::{Batch, Sim, Submitted};
use crate::stats::Stats;
use std::sync::Arc;

/// When the requests of a trace are issued again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// At the times of the trace.
    AsRecorded,
    /// As soon as the requests that were complete when it was issued are complete again: what waited for another
    /// waits for it still, but nobody thinks in between.
    AsFastAsPossible,
    /// Whatever the times were: so many are always under way, and the next is issued when one of them is complete.
    Closed {
        /// How many; at least 1.
        depth: usize,
    },
}

/// No request is as long: a trace that says so is damaged.
const LONGEST: u64 = 1 << 30;
/// Pieces of requests that may be under way: a disk that does not keep up with its trace has ever more.
const MOST_PIECES: u64 = 1 << 18;

/// How long requests took from being issued to their end, in the driver's queue and with the drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Reads.
    pub reads: Latencies,
    /// Writes.
    pub writes: Latencies,
    /// Discards.
    pub discards: Latencies,
    /// Flushes.
    pub flushes: Latencies,
    /// When the last of them ended.
    pub end_ns: u64,
}

impl Answers {
    /// One that was issued and has ended then.
    pub fn add(&mut self, op: TraceOp, issue_ns: u64, end_ns: u64) {
        let of = match op {
            TraceOp::Read => &mut self.reads,
            TraceOp::Write => &mut self.writes,
            TraceOp::Discard => &mut self.discards,
            TraceOp::Flush => &mut self.flushes,
        };
        of.add(end_ns - issue_ns);
        self.end_ns = self.end_ns.max(end_ns);
    }

    /// All of them.
    pub fn all(&self) -> Latencies {
        let mut all = self.reads.clone();
        [&self.writes, &self.discards, &self.flushes].into_iter().for_each(|more| all.merge(more));
        all
    }
}

/// What came of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// From the first issue to the last end.
    pub elapsed_ns: u64,
    /// What the disk did.
    pub stats: Stats,
    /// How long that took for whoever asked.
    pub answers: Answers,
}

/// A model that gets the requests of a trace one after the other. Ranges are rounded to whole sectors; a disk without a
/// write cache gets no flushes, as behind a [`SimDevice`](crate::SimDevice). With the times of the trace, requests with
/// the same number and time are issued together, so that they are merged again.
pub struct Replay {
    sim: Sim,
    timing: Timing,
    model: String,
    capacity_bytes: u64,
    max_transfer_bytes: u64,
    wraps: bool,
    begun_ns: Option<u64>,
    now: u64,
    /// Requests that are issued next, with their time and number.
    group: Vec<Submitted>,
    group_key: (u64, u64),
    /// Requests under way, with the time at which they were complete in the trace.
    under_way: Vec<(u64, Arc<Batch>)>,
}

impl Replay {
    /// Begins with a drive that nobody has used; `queue` is the driver's.
    pub fn new(model: &Model, queue: HostQueue, timing: Timing) -> Replay {
        let max_transfer_bytes = queue.max_transfer_bytes;
        let mut sim = Sim::new(model, queue);
        sim.watch();
        Replay {
            sim,
            timing,
            model: model.name().into(),
            capacity_bytes: model.capacity_bytes(),
            max_transfer_bytes,
            wraps: false,
            begun_ns: None,
            now: 0,
            group: Vec::new(),
            group_key: (0, 0),
            under_way: Vec::new(),
        }
    }

    /// Offsets past the end of the drive go on at its beginning; otherwise they are errors.
    pub fn wrapping(self, wraps: bool) -> Replay {
        Replay { wraps, ..self }
    }

    /// Issues the next request, which was not issued before the last one; an error if it does not fit.
    pub fn issue(&mut self, request: &TraceRequest) -> Result<(), String> {
        let submitted = self.fitted(request)?;
        self.make_room(&submitted)?;
        match self.timing {
            Timing::AsRecorded => self.issue_as_recorded(request, submitted),
            Timing::AsFastAsPossible => {
                let (sim, mut now) = (&mut self.sim, self.now);
                self.under_way.retain(|(end, batch)| {
                    if *end <= request.issue_ns {
                        now = now.max(sim.run_until_done(batch));
                    }
                    *end > request.issue_ns
                });
                self.now = now;
                let batches = self.issue_now(&submitted);
                self.under_way.extend(batches.into_iter().map(|batch| (request.end_ns, batch)));
            }
            Timing::Closed { depth } => {
                self.now = self.now.max(self.sim.run_until_fewer(depth.max(1) as u64));
                self.issue_now(&submitted);
            }
        }
        Ok(())
    }

    /// Lets everything end.
    pub fn finish(mut self) -> Replayed {
        self.settle();
        let answers = self.sim.take_answers();
        let begun_ns = self.begun_ns.unwrap_or_default();
        Replayed { elapsed_ns: answers.end_ns.saturating_sub(begun_ns), stats: self.sim.stats(), answers }
    }

    fn settle(&mut self) {
        self.issue_group();
        self.sim.drain();
    }

    fn issue_as_recorded(&mut self, request: &TraceRequest, submitted: Submitted) {
        let key = (request.issue_ns, request.number);
        if key != self.group_key || request.op == TraceOp::Flush {
            self.issue_group();
        }
        self.group_key = key;
        self.group.push(submitted);
    }

    fn issue_group(&mut self) {
        if self.group.is_empty() {
            return;
        }
        self.now = self.group_key.0;
        self.begun_ns.get_or_insert(self.now);
        self.sim.submit_each(self.now, &self.group);
        self.group.clear();
    }

    fn issue_now(&mut self, submitted: &Submitted) -> Vec<Arc<Batch>> {
        self.begun_ns.get_or_insert(self.now);
        self.sim.submit_each(self.now, std::slice::from_ref(submitted))
    }

    /// The request in whole sectors of the drive.
    fn fitted(&self, request: &TraceRequest) -> Result<Submitted, String> {
        let TraceRequest { kind, op, len, .. } = *request;
        if len > LONGEST && matches!(op, TraceOp::Read | TraceOp::Write) {
            return Err(format!("a request has {len} bytes, more than {LONGEST}"));
        }
        let offset = request.offset / SECTOR * SECTOR;
        let end = request.offset.saturating_add(len);
        let whole = |end: u64| end.checked_next_multiple_of(SECTOR).map_or(u64::MAX, |end| end - offset);
        if end <= self.capacity_bytes {
            return Ok(Submitted { kind, op, offset, len: whole(end) });
        }
        let len = whole(end);
        if !self.wraps || len > self.capacity_bytes {
            return Err(format!("a request ends at byte {end}, but {} has {}", self.model, self.capacity_bytes));
        }
        Ok(Submitted { kind, op, offset: (offset % self.capacity_bytes).min(self.capacity_bytes - len), len })
    }

    fn make_room(&self, submitted: &Submitted) -> Result<(), String> {
        let pieces = match submitted.op {
            TraceOp::Discard | TraceOp::Flush => 1,
            TraceOp::Read | TraceOp::Write => submitted.len.checked_div(self.max_transfer_bytes).unwrap_or(1),
        };
        if self.sim.pieces() + pieces > MOST_PIECES {
            let model = &self.model;
            return Err(format!(
                "{model} is behind by {MOST_PIECES} pieces of requests: it cannot keep up with the trace"
            ));
        }
        Ok(())
    }
}

/// Replays a trace on a model; an error if it goes past the end of the drive.
pub fn replay(trace: &Trace, model: &Model, queue: HostQueue, timing: Timing) -> Result<Trace, String> {
    let mut requests: Vec<&TraceRequest> = trace.requests.iter().collect();
    requests.sort_by_key(|r| (r.issue_ns, r.number));
    let mut replay = Replay::new(model, queue, timing);
    replay.sim.set_tracing(true);
    requests.into_iter().try_for_each(|request| replay.issue(request))?;
    replay.settle();
    Ok(replay.sim.take_trace())
}
