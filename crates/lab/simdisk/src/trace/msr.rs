//! The traces of Microsoft Research Cambridge (SNIA IOTTA, README of "MSR Cambridge Traces"): lines of
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`. Times are those of Windows, in units of 100 ns,
//! offset and size are bytes.

use super::lines::{parse_number, parse_range};
use super::reader::{Parser, TraceEntry};
use super::{LATEST_NS, TraceOp, TraceRequest};
use std::collections::VecDeque;

const FIELDS: [&str; 7] = ["Timestamp", "Hostname", "DiskNumber", "Type", "Offset", "Size", "ResponseTime"];
const TICK_NS: u64 = 100;
/// Lines are about in the order of time: so much earlier than the first a request may have been issued.
const EARLIER_TICKS: u64 = 3600 * 1_000_000_000 / TICK_NS;

/// Virtual time begins an hour before the first line.
#[derive(Debug, Default)]
pub(super) struct Msr {
    begun_ticks: Option<u64>,
    requests: u64,
}

/// Whether a line looks like one of these.
pub(super) fn is_line(line: &str) -> bool {
    let fields: Vec<&str> = line.trim().split(',').collect();
    fields.len() == FIELDS.len() && (fields[0] == FIELDS[0] || fields[0].parse::<u64>().is_ok())
}

impl Parser for Msr {
    fn line(&mut self, line: &str, at: u64, out: &mut VecDeque<TraceEntry>) -> Result<bool, String> {
        let fields: Vec<&str> = line.trim().split(',').collect();
        if fields == [""] || (self.requests == 0 && fields == FIELDS) {
            return Ok(true);
        }
        let [issued, _, _, op, offset, size, took] = fields[..] else {
            return Err(format!("it has {} fields, not {}", fields.len(), FIELDS.len()));
        };
        let issued = parse_number(issued, FIELDS[0])?;
        let begun = *self.begun_ticks.get_or_insert(issued.saturating_sub(EARLIER_TICKS));
        let ticks = issued.checked_sub(begun).ok_or("it was issued more than an hour before the first line")?;
        let op = match op.to_ascii_lowercase().as_str() {
            "read" => TraceOp::Read,
            "write" => TraceOp::Write,
            _ => return Err(format!("the type should be Read or Write, not {op:?}")),
        };
        let (offset, len) = parse_range(offset, size)?;
        let issue_ns = nanoseconds(ticks, FIELDS[0])?;
        let end_ns = issue_ns + nanoseconds(parse_number(took, FIELDS[6])?, FIELDS[6])?;
        let request = TraceRequest { end_ns, ..TraceRequest::bare(self.requests, issue_ns, op, offset, len) };
        self.requests += 1;
        out.push_back(TraceEntry { line: at, request });
        Ok(true)
    }
}

fn nanoseconds(ticks: u64, name: &str) -> Result<u64, String> {
    // The sum of two of these is a time too.
    let ns = ticks.checked_mul(TICK_NS).filter(|ns| *ns <= LATEST_NS / 2);
    ns.ok_or(format!("{name} is too large: {ticks} units of 100 ns"))
}
