//! The device: bytes go to the inner one at once, time passes here.

use crate::clock::SimClock;
use crate::host::HostQueue;
use crate::lanes;
use crate::model::Model;
use crate::sim::{Batch, Sim, Submitted};
use crate::stats::Stats;
use crate::trace::{Trace, TraceOp};
use arbor_base::device::{Completion, Device, Geometry, Kind, Medium, Op, Pending, Request, Ticket};
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A device that takes the time of a modelled drive. Clones are handles of the same device.
///
/// Requests that the inner device refuses take no time. Several devices may share a clock: each goes on with its own
/// work, up to the clock's time, when it is next asked for something.
#[derive(Clone)]
pub struct SimDevice {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Arc<dyn Device>,
    clock: Arc<SimClock>,
    capacity_bytes: u64,
    model: String,
    trim_unit: u32,
    medium: Medium,
    /// A flush without a volatile write cache has nothing to wait for.
    caches_writes: bool,
    queue: HostQueue,
    sim: Mutex<Sim>,
}

impl SimDevice {
    /// `inner` with the times of `model`; an error if it is larger than what is modelled.
    pub fn new(
        inner: Arc<dyn Device>,
        model: &Model,
        queue: HostQueue,
        clock: Arc<SimClock>,
    ) -> Result<SimDevice, String> {
        let (size, capacity_bytes) = (inner.geometry().size, model.capacity_bytes());
        if size > capacity_bytes {
            return Err(format!(
                "a device of {size} bytes does not fit on {}, which has {capacity_bytes}",
                model.name()
            ));
        }
        let mut sim = Sim::new(model, queue.clone());
        sim.catch_up(clock.now_ns());
        let (trim_unit, caches_writes) = (sim.drive().trim_unit(), sim.drive().caches_writes());
        let (model, medium) = (model.name().to_string(), model.medium());
        let sim = Mutex::new(sim);
        let shared = Shared { inner, clock, capacity_bytes, model, trim_unit, medium, caches_writes, queue, sim };
        Ok(SimDevice { shared: Arc::new(shared) })
    }

    /// The clock it was made with.
    pub fn clock(&self) -> &Arc<SimClock> {
        &self.shared.clock
    }

    /// Keeps every request from now on, or no longer.
    pub fn set_tracing(&self, on: bool) {
        self.present().set_tracing(on);
    }

    /// The requests that were completed since tracing began or the last call, in the order of completion.
    pub fn take_trace(&self) -> Trace {
        self.present().take_trace()
    }

    /// Counters since the device was made or the last reset.
    pub fn stats(&self) -> Stats {
        self.present().stats()
    }

    /// Counts from 0 again.
    pub fn reset_stats(&self) {
        self.present().reset_stats();
    }

    /// Virtual time goes on until nothing is queued, under way or waiting to be written back.
    pub fn drain(&self) {
        let at = self.present().drain();
        self.shared.clock.advance_to_ns(at);
    }

    /// Queued work goes on until `at`, in virtual nanoseconds, and the clock moves there.
    pub fn idle_until_ns(&self, at: u64) {
        self.shared.clock.advance_to_ns(at);
        drop(self.present());
    }

    /// The simulation, caught up with the clock.
    fn present(&self) -> parking_lot::MutexGuard<'_, Sim> {
        let mut sim = self.shared.sim.lock();
        sim.catch_up(self.shared.clock.now_ns());
        sim
    }

    fn start(&self, requests: &[Submitted]) -> Arc<Batch> {
        let now = self.shared.clock.now_ns();
        self.shared.sim.lock().submit(now, requests)
    }

    fn wait_for(&self, batch: &Arc<Batch>) {
        if !lanes::wait(self, batch) {
            let end = self.present().run_until_done(batch);
            self.shared.clock.advance_to_ns(end);
        }
    }

    /// Whether requests are complete by now.
    pub(crate) fn has_done(&self, batch: &Batch) -> bool {
        drop(self.present());
        batch.is_done()
    }

    /// When something happens next.
    pub(crate) fn next_event_ns(&self) -> Option<u64> {
        self.present().next_event()
    }
}

/// Requests whose bytes are there but whose time has not passed.
struct SimPending {
    device: SimDevice,
    batch: Arc<Batch>,
    completions: Vec<Completion>,
}

impl Pending for SimPending {
    fn wait(self: Box<Self>) -> Vec<Completion> {
        self.device.wait_for(&self.batch);
        self.completions
    }

    fn is_done(&self) -> bool {
        drop(self.device.present());
        self.batch.is_done()
    }
}

/// The requests that the host makes of one.
fn submitted(queue: &HostQueue, request: &Request) -> Vec<Submitted> {
    let (op, lens) = match &request.op {
        Op::Read(len) => (TraceOp::Read, vec![*len as u64]),
        Op::Discard(len) => (TraceOp::Discard, vec![*len]),
        Op::Write(bufs) => (TraceOp::Write, queue.parts(bufs.iter().map(|buf| (buf.tag(), buf.len() as u64)))),
    };
    let mut offset = request.offset;
    let each = |len| {
        let one = Submitted { kind: request.kind, op, offset, len };
        offset += len;
        one
    };
    lens.into_iter().map(each).collect()
}

impl Device for SimDevice {
    fn geometry(&self) -> Geometry {
        let inner = self.shared.inner.geometry();
        let discard_unit = match (inner.discard_unit, self.shared.trim_unit) {
            (0, _) | (_, 0) => 0,
            (inner, ours) => inner.max(ours),
        };
        Geometry { discard_unit, medium: self.shared.medium, ..inner }
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let requests: Vec<_> = batch.iter().map(|request| submitted(&self.shared.queue, request)).collect();
        let completions = self.shared.inner.submit(batch).wait();
        let carried_out = requests.into_iter().zip(&completions).filter(|(_, done)| done.is_ok());
        let requests: Vec<Submitted> = carried_out.flat_map(|(requests, _)| requests).collect();
        let batch = self.start(&requests);
        Ticket::pending(Box::new(SimPending { device: self.clone(), batch, completions }))
    }

    fn flush(&self) -> io::Result<()> {
        if self.shared.caches_writes {
            let now = self.shared.clock.now_ns();
            let batch = self.shared.sim.lock().flush(now);
            self.wait_for(&batch);
        }
        self.shared.inner.flush()
    }

    fn recycle(&self, buffer: Vec<u8>) {
        self.shared.inner.recycle(buffer);
    }

    fn confine(&self, range: Range<u64>) {
        self.shared.inner.confine(range);
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        if size > self.shared.capacity_bytes {
            let what = format!("{} has {} bytes", self.shared.model, self.shared.capacity_bytes);
            return Err(io::Error::new(io::ErrorKind::StorageFull, what));
        }
        self.shared.inner.set_size(size)
    }

    fn read_at(&self, kind: Kind, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.shared.inner.read_at(kind, offset, buf)?;
        let batch = self.start(&[Submitted { kind, op: TraceOp::Read, offset, len: buf.len() as u64 }]);
        self.wait_for(&batch);
        Ok(())
    }

    fn write_at(&self, kind: Kind, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.shared.inner.write_at(kind, offset, buf)?;
        let batch = self.start(&[Submitted { kind, op: TraceOp::Write, offset, len: buf.len() as u64 }]);
        self.wait_for(&batch);
        Ok(())
    }
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (model, size) = (&self.shared.model, self.geometry().size);
        f.debug_struct("SimDevice").field("model", model).field("size", &size).finish_non_exhaustive()
    }
}
