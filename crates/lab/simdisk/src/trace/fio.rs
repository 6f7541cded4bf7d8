//! Logs of I/O in the formats of fio (its documentation, "Trace file format"; iolog.c for the unit of times, which is
//! the microsecond).

use super::{LATEST_NS, Lines, Trace, TraceOp, TraceRequest, parse_number, parse_range};
use std::fmt::Write;
use std::io::BufRead;

pub(super) fn read<R: BufRead>(mut lines: Lines<R>) -> Result<Trace, String> {
    let timed = match lines.next()?.as_deref().map(str::trim) {
        Some("fio version 2 iolog") => false,
        Some("fio version 3 iolog") => true,
        _ => return Err(lines.wrong("it should be \"fio version 2 iolog\" or \"fio version 3 iolog\"")),
    };
    let mut trace = Trace::default();
    let mut now_ns = 0;
    while let Some(line) = lines.next()? {
        let read = entry(&line, timed, &mut now_ns, trace.requests.len() as u64);
        trace.requests.extend(read.map_err(|e| lines.wrong(&e))?);
    }
    Ok(trace)
}

/// One line; none if it is not a request. Version 3 has the time in front, version 2 has waits between requests.
fn entry(line: &str, timed: bool, now_ns: &mut u64, number: u64) -> Result<Option<TraceRequest>, String> {
    let mut fields: Vec<&str> = line.split_whitespace().collect();
    if fields.is_empty() {
        return Ok(None);
    }
    if timed {
        *now_ns = nanoseconds(parse_number(fields.remove(0), "timestamp")?)?;
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
            let later = now_ns.saturating_add(nanoseconds(parse_number(offset, "wait")?)?);
            *now_ns = later.min(LATEST_NS);
            return Ok(None);
        }
        "read" => TraceOp::Read,
        "write" => TraceOp::Write,
        "trim" => TraceOp::Discard,
        "sync" | "datasync" | "sync_file_range" => TraceOp::Flush,
        _ => return Err(format!("no action is named {action:?}")),
    };
    let (offset, len) = if op == TraceOp::Flush { (0, 0) } else { parse_range(offset, len)? };
    Ok(Some(TraceRequest::bare(number, *now_ns, op, offset, len)))
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
