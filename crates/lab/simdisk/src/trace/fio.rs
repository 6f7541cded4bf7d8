//! Logs of I/O in the formats of fio (its documentation, "Trace file format"; iolog.c for the unit of times, which is
//! the microsecond).

use super::lines::{parse_number, parse_range};
use super::reader::{Parser, TraceEntry};
use super::{LATEST_NS, Trace, TraceOp, TraceRequest};
use std::collections::VecDeque;
use std::fmt::Write;

const HEADERS: [&str; 2] = ["fio version 2 iolog", "fio version 3 iolog"];

/// Whether a line is the first of such a log.
pub(super) fn is_header(line: &str) -> bool {
    line.trim_start().starts_with("fio version")
}

/// Version 3 has the time in front, version 2 has waits between requests.
#[derive(Debug, Default)]
pub(super) struct Fio {
    /// Whether it is version 3; none before the first line.
    timed: Option<bool>,
    now_ns: u64,
    requests: u64,
}

impl Parser for Fio {
    fn line(&mut self, line: &str, at: u64, out: &mut VecDeque<TraceEntry>) -> Result<bool, String> {
        match self.timed {
            Some(timed) => {
                let request = self.entry(line, timed)?;
                self.requests += u64::from(request.is_some());
                out.extend(request.map(|request| TraceEntry { line: at, request }));
            }
            None if HEADERS.contains(&line.trim()) => self.timed = Some(line.trim() == HEADERS[1]),
            None => return Err(format!("it should be {:?} or {:?}", HEADERS[0], HEADERS[1])),
        }
        Ok(true)
    }
}

impl Fio {
    /// One line; none if it is not a request.
    fn entry(&mut self, line: &str, timed: bool) -> Result<Option<TraceRequest>, String> {
        let mut fields: Vec<&str> = line.split_whitespace().collect();
        if fields.is_empty() {
            return Ok(None);
        }
        if timed {
            self.now_ns = nanoseconds(parse_number(fields.remove(0), "timestamp")?)?;
        }
        let (action, offset, len) = match fields[..] {
            [_, action] => (action, "0", "0"),
            [_, action, offset, len] => (action, offset, len),
            [_, "wait", delay] => ("wait", delay, "0"),
            _ => return Err("it should be a file, an action, and for a request offset and length".into()),
        };
        let op = match action {
            "add" | "open" | "close" => return Ok(None),
            "wait" => {
                let later = self.now_ns.saturating_add(nanoseconds(parse_number(offset, "wait")?)?);
                self.now_ns = later.min(LATEST_NS);
                return Ok(None);
            }
            "read" => TraceOp::Read,
            "write" => TraceOp::Write,
            "trim" => TraceOp::Discard,
            "sync" | "datasync" | "sync_file_range" => TraceOp::Flush,
            _ => return Err(format!("no action is named {action:?}")),
        };
        let (offset, len) = if op == TraceOp::Flush { (0, 0) } else { parse_range(offset, len)? };
        Ok(Some(TraceRequest::bare(self.requests, self.now_ns, op, offset, len)))
    }
}

fn nanoseconds(us: u64) -> Result<u64, String> {
    us.checked_mul(1000).filter(|ns| *ns <= LATEST_NS).ok_or(format!("{us} microseconds are too long"))
}

pub(super) fn write(trace: &Trace, file: &str) -> String {
    let mut requests: Vec<&TraceRequest> = trace.requests.iter().collect();
    requests.sort_by_key(|r| r.issue_ns);
    let mut text = format!("fio version 3 iolog\n0 {file} add\n0 {file} open\n");
    for r in &requests {
        let action = match r.op {
            TraceOp::Read => "read",
            TraceOp::Write => "write",
            TraceOp::Discard => "trim",
            TraceOp::Flush => "sync",
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{} {file} {action} {} {}", r.issue_ns / 1000, r.offset, r.len);
    }
    let last = requests.last().map_or(0, |r| r.issue_ns / 1000);
    let _ = writeln!(text, "{last} {file} close");
    text
}
