//! What blkparse prints by default (blkparse(1)): device, CPU, sequence number, time in seconds, process, action,
//! RWBS, and for requests `sector + sectors`.

use super::{LATEST_NS, Lines, Trace, TraceOp, TraceRequest, parse_number};
use crate::drive::SECTOR;
use std::collections::BTreeMap;
use std::io::BufRead;

/// A parsed event.
struct Event<'a> {
    at_ns: u64,
    action: &'a str,
    op: TraceOp,
    offset: u64,
    len: u64,
}

pub(super) fn read<R: BufRead>(mut lines: Lines<R>) -> Result<Trace, String> {
    let mut open = Open::default();
    while let Some(line) = lines.next()? {
        // The summary at the end begins with the name of a CPU or the total.
        if line.starts_with("CPU") || line.starts_with("Total") {
            break;
        }
        if let Some(event) = parse(&line).map_err(|e| lines.wrong(&e))? {
            open.apply(&event);
        }
    }
    Ok(open.finish())
}

/// None for what is not a request's Q, D or C.
fn parse(line: &str) -> Result<Option<Event<'_>>, String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (time, action, rwbs, rest) = match fields[..] {
        [] => return Ok(None),
        [_, _, _, time, _, action, rwbs, ref rest @ ..] => (time, action, rwbs, rest),
        // Messages and the like have fewer fields.
        [_, _, _, _, _, action, ..] if !matches!(action, "Q" | "D" | "C") => return Ok(None),
        _ => return Err(format!("it has {} fields, too few for an event", fields.len())),
    };
    if !matches!(action, "Q" | "D" | "C") {
        return Ok(None);
    }
    let at_ns = seconds(time)?;
    let op = match rwbs {
        _ if rwbs.contains('D') => TraceOp::Discard,
        _ if rwbs.contains('R') => TraceOp::Read,
        _ if rwbs.contains('W') => TraceOp::Write,
        _ if rwbs.contains('F') => TraceOp::Flush,
        _ => return Ok(None),
    };
    let (sector, sectors) = match rest {
        [sector, "+", sectors, ..] => (parse_number(sector, "sector")?, parse_number(sectors, "sectors")?),
        _ if op == TraceOp::Flush || rwbs.contains('F') => (0, 0),
        _ => return Err("it should have a sector, +, and the number of sectors".into()),
    };
    let op = if sectors == 0 { TraceOp::Flush } else { op };
    let range = sector.checked_mul(SECTOR).zip(sectors.checked_mul(SECTOR));
    match range.filter(|(offset, len)| offset.checked_add(*len).is_some()) {
        Some((offset, len)) => Ok(Some(Event { at_ns, action, op, offset, len })),
        None => Err(format!("{sectors} sectors at {sector} go past the end of all devices")),
    }
}

/// `seconds.nanoseconds`
fn seconds(text: &str) -> Result<u64, String> {
    let (secs, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 {
        return Err(format!("the time has more than nanoseconds: {text:?}"));
    }
    let secs = parse_number(secs, "time")?;
    let nanos = if fraction.is_empty() { 0 } else { parse_number(&format!("{fraction:0<9}"), "time")? };
    let ns = secs.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(nanos));
    ns.filter(|ns| *ns <= LATEST_NS).ok_or(format!("the time is too large: {text:?}"))
}

/// Requests that are not complete, by operation and offset, then by their place in the trace.
#[derive(Default)]
struct Open {
    waiting: BTreeMap<(TraceOp, u64, usize), u64>,
    trace: Trace,
}

impl Open {
    fn apply(&mut self, event: &Event) {
        match event.action {
            "Q" => self.issue(event),
            "D" => {
                let inside = self.inside(event);
                if inside.is_empty() {
                    self.issue(event);
                }
                for (_, _, i) in inside {
                    let request = &mut self.trace.requests[i];
                    request.start_ns = event.at_ns.max(request.issue_ns);
                    request.end_ns = request.start_ns;
                }
            }
            _ => {
                for key in self.inside(event) {
                    let request = &mut self.trace.requests[key.2];
                    request.end_ns = event.at_ns.max(request.start_ns);
                    self.waiting.remove(&key);
                }
            }
        }
    }

    fn issue(&mut self, event: &Event) {
        let i = self.trace.requests.len();
        self.waiting.insert((event.op, event.offset, i), event.len);
        self.trace.requests.push(TraceRequest::bare(i as u64, event.at_ns, event.op, event.offset, event.len));
    }

    /// Those that lie in the range of the event: the driver may have merged them.
    fn inside(&self, event: &Event) -> Vec<(TraceOp, u64, usize)> {
        let end = event.offset + event.len;
        let from = self.waiting.range((event.op, event.offset, 0)..=(event.op, end, usize::MAX));
        from.filter(|((_, offset, _), len)| offset + **len <= end).map(|(key, _)| *key).collect()
    }

    fn finish(self) -> Trace {
        self.trace
    }
}
