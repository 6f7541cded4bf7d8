//! Events: from the host's queue to the drive and back.

use crate::drive::{Command, Done, Drive, Split};
use crate::host::{HostQueue, Queue, Queued};
use crate::model::Model;
use crate::stats::{SsdStats, Stats};
use crate::trace::{Answers, Trace, TraceOp, TraceRequest};
use arbor_base::device::Kind;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The requests that one ticket waits for. Changed only under the lock of the device.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    left: AtomicU64,
    end_ns: AtomicU64,
}

impl Batch {
    pub fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// When the last of them was complete.
    pub fn end_ns(&self) -> u64 {
        self.end_ns.load(Ordering::Acquire)
    }

    /// Whether this was the last.
    fn one_done(&self, at: u64) -> bool {
        self.end_ns.fetch_max(at, Ordering::AcqRel);
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// A submitted request, or a piece of one that was too large.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub kind: Kind,
    pub offset: u64,
    pub len: u64,
    pub issue: u64,
    pub batch: Arc<Batch>,
}

/// A request as submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submitted {
    pub kind: Kind,
    pub op: TraceOp,
    pub offset: u64,
    pub len: u64,
}

/// A request with the drive.
struct InFlight {
    id: u64,
    start: u64,
    queued: Queued,
}

pub(crate) struct Sim {
    now: u64,
    queue: Queue,
    drive: Drive,
    in_flight: Vec<InFlight>,
    depth: usize,
    handed_over: u64,
    busy_since: u64,
    stats: Stats,
    ssd_before: Option<SsdStats>,
    trace: Option<Trace>,
    /// How long whole requests took, if somebody wants to know.
    answers: Option<Answers>,
    /// Pieces of requests that are queued or under way, and what waits for them.
    pieces: u64,
    batches: u64,
    model: String,
    done: Vec<Done>,
}

impl Sim {
    pub fn new(model: &Model, queue: HostQueue) -> Sim {
        let drive = Drive::new(model);
        let depth = queue.depth.clamp(1, drive.tags());
        let ssd_before = drive.ssd_stats();
        Sim {
            now: 0,
            queue: Queue::new(queue),
            drive,
            in_flight: Vec::with_capacity(depth.min(64)),
            depth,
            handed_over: 0,
            busy_since: 0,
            stats: Stats::default(),
            ssd_before,
            trace: None,
            answers: None,
            pieces: 0,
            batches: 0,
            model: model.name().to_string(),
            done: Vec::new(),
        }
    }

    pub fn drive(&self) -> &Drive {
        &self.drive
    }

    pub fn set_tracing(&mut self, on: bool) {
        match (on, &self.trace) {
            (true, None) => self.trace = Some(Trace::new(&self.model)),
            (false, _) => self.trace = None,
            (true, Some(_)) => {}
        }
    }

    pub fn take_trace(&mut self) -> Trace {
        let empty = Trace::new(&self.model);
        match &mut self.trace {
            Some(trace) => std::mem::replace(trace, empty),
            None => empty,
        }
    }

    /// From now on it is noted how long requests take.
    pub fn watch(&mut self) {
        self.answers.get_or_insert_default();
    }

    pub fn take_answers(&mut self) -> Answers {
        self.answers.take().unwrap_or_default()
    }

    pub fn pieces(&self) -> u64 {
        self.pieces
    }

    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        if !self.in_flight.is_empty() {
            stats.busy_ns += self.now - self.busy_since;
        }
        stats.ssd = self.drive.ssd_stats().map(|now| now.since(&self.ssd_before.unwrap_or_default()));
        stats
    }

    pub fn reset_stats(&mut self) {
        self.stats = Stats::default();
        self.ssd_before = self.drive.ssd_stats();
        self.busy_since = self.now;
    }

    /// Puts requests into the queue at time `now`. A drive without TRIM is not told of discards.
    pub fn submit(&mut self, now: u64, requests: &[Submitted]) -> Arc<Batch> {
        self.catch_up(now);
        let batch = self.enqueue(now, requests);
        self.hand_over();
        batch
    }

    /// The same, each with a batch of its own, and flushes too where the drive has something to flush.
    pub fn submit_each(&mut self, now: u64, requests: &[Submitted]) -> Vec<Arc<Batch>> {
        self.catch_up(now);
        let each = |request: &Submitted| match request.op {
            TraceOp::Flush if self.drive.caches_writes() => self.flush(now),
            TraceOp::Flush => Arc::default(),
            _ => self.enqueue(now, std::slice::from_ref(request)),
        };
        let batches = requests.iter().map(each).collect();
        self.hand_over();
        batches
    }

    fn enqueue(&mut self, now: u64, requests: &[Submitted]) -> Arc<Batch> {
        let batch = Arc::new(Batch::default());
        batch.end_ns.store(now, Ordering::Release);
        let trims = self.drive.trim_unit() > 0;
        for request in requests.iter().filter(|r| r.len > 0 && (trims || r.op != TraceOp::Discard)) {
            self.stats.submitted += 1;
            let kind = &mut self.stats.kinds[request.kind as usize];
            kind.requests += 1;
            kind.bytes += request.len;
            self.split(request, now, &batch);
        }
        self.batches += u64::from(!batch.is_done());
        batch
    }

    fn split(&mut self, request: &Submitted, now: u64, batch: &Arc<Batch>) {
        let limit = match self.queue.settings().max_transfer_bytes {
            0 => u64::MAX,
            _ if request.op == TraceOp::Discard => u64::MAX,
            limit => limit,
        };
        let mut done = 0;
        while done < request.len {
            let len = limit.min(request.len - done);
            let offset = request.offset + done;
            batch.left.fetch_add(1, Ordering::AcqRel);
            self.pieces += 1;
            let part = Part { kind: request.kind, offset, len, issue: now, batch: batch.clone() };
            self.queue.push(request.op, part, now);
            done += len;
        }
    }

    /// A flush goes to the drive past the queue: it covers what is complete, and that is with the drive already.
    pub fn flush(&mut self, now: u64) -> Arc<Batch> {
        self.catch_up(now);
        let batch = Arc::new(Batch::default());
        batch.end_ns.store(now, Ordering::Release);
        batch.left.store(1, Ordering::Release);
        self.pieces += 1;
        self.batches += 1;
        let part = Part { kind: Kind::Other, offset: 0, len: 0, issue: now, batch: batch.clone() };
        let queued = Queued { op: TraceOp::Flush, offset: 0, len: 0, since: now, parts: VecDeque::from([part]) };
        self.start(queued);
        batch
    }

    /// When something happens next.
    pub fn next_event(&self) -> Option<u64> {
        self.drive.next_event()
    }

    /// Everything up to `to` happens.
    pub fn catch_up(&mut self, to: u64) {
        while let Some(at) = self.drive.next_event().filter(|at| *at <= to) {
            self.event(at);
        }
        self.now = self.now.max(to);
    }

    /// Time goes on until the batch is complete; returns when that was.
    pub fn run_until_done(&mut self, batch: &Batch) -> u64 {
        while !batch.is_done() {
            let Some(at) = self.drive.next_event() else {
                unreachable!("a request is under way, so something happens");
            };
            self.event(at);
        }
        batch.end_ns()
    }

    /// Time goes on until fewer batches than this are under way; returns what it is then.
    pub fn run_until_fewer(&mut self, than: u64) -> u64 {
        while self.batches >= than {
            let Some(at) = self.drive.next_event() else {
                unreachable!("requests are under way, so something happens");
            };
            self.event(at);
        }
        self.now
    }

    /// Time goes on until nothing is left to do; returns when that is.
    pub fn drain(&mut self) -> u64 {
        while let Some(at) = self.drive.next_event() {
            self.event(at);
        }
        debug_assert!(self.queue.is_empty() && self.in_flight.is_empty());
        self.now.max(self.drive.idle_at())
    }

    fn event(&mut self, at: u64) {
        self.now = self.now.max(at);
        let mut done = std::mem::take(&mut self.done);
        self.drive.advance(self.now, &mut done);
        for done in done.drain(..) {
            self.complete(done);
        }
        self.done = done;
        let destaged = self.drive.take_destaged();
        self.stats.destaged_bytes += destaged.bytes;
        self.stats.destage_ns += destaged.ns;
        self.hand_over();
    }

    fn hand_over(&mut self) {
        while self.in_flight.len() < self.depth {
            let Some(queued) = self.queue.take(self.now) else { break };
            self.start(queued);
        }
    }

    fn start(&mut self, queued: Queued) {
        let id = self.handed_over;
        self.handed_over += 1;
        if self.in_flight.is_empty() {
            self.busy_since = self.now;
        }
        self.drive.start(self.now, Command { id, op: queued.op, offset: queued.offset, len: queued.len });
        self.in_flight.push(InFlight { id, start: self.now, queued });
    }

    fn complete(&mut self, done: Done) {
        let Some(i) = self.in_flight.iter().position(|f| f.id == done.id) else {
            unreachable!("the drive completes what it was given, once");
        };
        let request = self.in_flight.swap_remove(i);
        if self.in_flight.is_empty() {
            self.stats.busy_ns += done.at - self.busy_since;
        }
        self.count(&request, &done);
        let mut split = done.split;
        let (len, mut left) = (request.queued.len.max(1), done.split.transfer);
        for part in &request.queued.parts {
            let service = done.at - request.start;
            let share = |ns: u64| (u128::from(ns) * u128::from(part.len) / u128::from(len)) as u64;
            self.stats.kinds[part.kind as usize].service_ns += share(service);
            let transfer = share(done.split.transfer).min(left);
            left -= transfer;
            if let Some(trace) = &mut self.trace {
                let part_split = Split { transfer, ..split };
                trace.requests.push(traced(&request, part, &part_split, done.at));
                (split.overhead, split.seek, split.rotation) = (0, 0, 0);
            }
            self.pieces -= 1;
            if part.batch.one_done(done.at) {
                self.batches -= 1;
                let end_ns = part.batch.end_ns();
                self.answers.iter_mut().for_each(|answers| answers.add(request.queued.op, part.issue, end_ns));
            }
        }
    }

    fn count(&mut self, request: &InFlight, done: &Done) {
        let stats = &mut self.stats;
        let queued = &request.queued;
        match queued.op {
            TraceOp::Flush => {
                stats.flushes += 1;
                return;
            }
            TraceOp::Read => {
                stats.reads += 1;
                stats.read_bytes += queued.len;
            }
            TraceOp::Write => {
                stats.writes += 1;
                stats.write_bytes += queued.len;
            }
            TraceOp::Discard => stats.discards += 1,
        }
        stats.requests += 1;
        stats.cache_hits += u64::from(done.split.hit);
        stats.service_ns += done.at - request.start;
        stats.queue_ns += request.start - queued.since;
        stats.overhead_ns += done.split.overhead;
        stats.seeks += u64::from(done.split.seek > 0);
        stats.seek_ns += done.split.seek;
        stats.rotation_ns += done.split.rotation;
        stats.transfer_ns += done.split.transfer;
    }
}

fn traced(request: &InFlight, part: &Part, split: &Split, end: u64) -> TraceRequest {
    TraceRequest {
        number: request.id,
        issue_ns: part.issue,
        start_ns: request.start,
        end_ns: end,
        overhead_ns: split.overhead,
        seek_ns: split.seek,
        rotation_ns: split.rotation,
        transfer_ns: split.transfer,
        kind: part.kind,
        op: request.queued.op,
        offset: part.offset,
        len: part.len,
    }
}
