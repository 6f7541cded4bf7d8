//! The same requests on another model.

use super::{Trace, TraceOp, TraceRequest};
use crate::drive::SECTOR;
use crate::host::HostQueue;
use crate::model::Model;
use crate::sim::{Batch, Sim, Submitted};
use std::sync::Arc;

/// When the requests of a trace are issued again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// At the times of the trace.
    AsRecorded,
    /// As soon as the requests that were complete when it was issued are complete again: what waited for another
    /// waits for it still, but nobody thinks in between.
    AsFastAsPossible,
}

/// Replays a trace on a model; an error if it goes past the end of the drive. Ranges are rounded to whole sectors.
pub fn replay(trace: &Trace, model: &Model, queue: HostQueue, timing: Timing) -> Result<Trace, String> {
    let mut requests: Vec<&TraceRequest> = trace.requests.iter().collect();
    requests.sort_by_key(|r| r.issue_ns);
    if let Some(r) = requests.iter().find(|r| r.offset.saturating_add(r.len) > model.capacity_bytes()) {
        let (end, capacity) = (r.offset.saturating_add(r.len), model.capacity_bytes());
        return Err(format!("a request ends at byte {end}, but {} has {capacity}", model.name()));
    }
    let mut sim = Sim::new(model, queue);
    sim.set_tracing(true);
    let mut now = 0;
    // Requests under way, with the time at which they were complete in the trace.
    let mut under_way: Vec<(u64, Arc<Batch>)> = Vec::new();
    for request in requests {
        match timing {
            Timing::AsRecorded => now = request.issue_ns,
            Timing::AsFastAsPossible => under_way.retain(|(end, batch)| {
                if *end <= request.issue_ns {
                    now = now.max(sim.run_until_done(batch));
                }
                *end > request.issue_ns
            }),
        }
        let batch = issue(&mut sim, request, now);
        if timing == Timing::AsFastAsPossible {
            under_way.push((request.end_ns, batch));
        }
    }
    sim.drain();
    Ok(sim.take_trace())
}

fn issue(sim: &mut Sim, request: &TraceRequest, now: u64) -> Arc<Batch> {
    if request.op == TraceOp::Flush {
        return sim.flush(now);
    }
    let offset = request.offset / SECTOR * SECTOR;
    let len = (request.offset + request.len).next_multiple_of(SECTOR) - offset;
    sim.submit(now, &[Submitted { kind: request.kind, op: request.op, offset, len }])
}
