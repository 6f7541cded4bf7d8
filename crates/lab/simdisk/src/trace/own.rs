//! Our own format, see [`Trace`](super::Trace).

use super::lines::{parse_number, parse_range};
use super::reader::{Parser, TraceEntry};
use super::{KINDS, LATEST_NS, TraceOp, TraceRequest, kind_name};
use std::collections::VecDeque;
use std::io::{self, Write};

pub(super) const HEADER: &str = "arbor trace 1";
const COMMENT: char = '#';

/// Writes a trace request by request.
#[derive(Debug)]
pub struct TraceWriter<W> {
    to: W,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace of requests to this model.
    pub fn new(mut to: W, model: &str) -> io::Result<TraceWriter<W>> {
        writeln!(to, "{HEADER}\nmodel {model}")?;
        Ok(TraceWriter { to })
    }

    /// Adds lines for people.
    pub fn comment(&mut self, text: &str) -> io::Result<()> {
        text.lines().try_for_each(|line| writeln!(self.to, "{COMMENT} {line}"))
    }

    /// Adds a request.
    pub fn request(&mut self, r: &TraceRequest) -> io::Result<()> {
        write!(self.to, "{}", r.number)?;
        for time in [r.issue_ns, r.start_ns, r.end_ns, r.overhead_ns, r.seek_ns, r.rotation_ns, r.transfer_ns] {
            write!(self.to, " {time}")?;
        }
        writeln!(self.to, " {} {} {} {}", kind_name(r.kind), r.op.name(), r.offset, r.len)
    }

    /// Writes what is still in memory.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// What is expected next.
#[derive(Debug, Default)]
pub(super) enum Own {
    #[default]
    Header,
    Model,
    Requests {
        model: String,
    },
}

impl Parser for Own {
    fn line(&mut self, line: &str, at: u64, out: &mut VecDeque<TraceEntry>) -> Result<bool, String> {
        match self {
            Own::Header if line == HEADER => *self = Own::Model,
            Own::Header => return Err(format!("it should be {HEADER:?}")),
            Own::Model => {
                let model = line.strip_prefix("model").ok_or("it should be \"model\" and a name")?;
                *self = Own::Requests { model: model.trim().into() };
            }
            Own::Requests { .. } if line.starts_with(COMMENT) => {}
            Own::Requests { .. } => out.push_back(TraceEntry { line: at, request: request(line)? }),
        }
        Ok(true)
    }

    fn end(&mut self, _out: &mut VecDeque<TraceEntry>) -> Result<(), String> {
        match self {
            Own::Header | Own::Model => self.line("", 0, &mut VecDeque::new()).map(drop),
            Own::Requests { .. } => Ok(()),
        }
    }

    fn model(&self) -> &str {
        if let Own::Requests { model } = self { model } else { "" }
    }
}

fn request(line: &str) -> Result<TraceRequest, String> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [number, issue, start, end, overhead, seek, rotation, transfer, kind, op, offset, len] = fields[..] else {
        return Err(format!("it has {} fields, not 12", fields.len()));
    };
    let time = |text: &str, name: &str| {
        let ns = parse_number(text, name)?;
        if ns > LATEST_NS { Err(format!("{name} is too large: {ns}")) } else { Ok(ns) }
    };
    let (offset, len) = parse_range(offset, len)?;
    let request = TraceRequest {
        number: parse_number(number, "number")?,
        issue_ns: time(issue, "issue_ns")?,
        start_ns: time(start, "start_ns")?,
        end_ns: time(end, "end_ns")?,
        overhead_ns: time(overhead, "overhead_ns")?,
        seek_ns: time(seek, "seek_ns")?,
        rotation_ns: time(rotation, "rotation_ns")?,
        transfer_ns: time(transfer, "transfer_ns")?,
        kind: *KINDS.iter().find(|k| kind_name(**k) == kind).ok_or(format!("no kind is named {kind:?}"))?,
        op: *TraceOp::ALL.iter().find(|o| o.name() == op).ok_or(format!("no operation is named {op:?}"))?,
        offset,
        len,
    };
    if !(request.issue_ns <= request.start_ns && request.start_ns <= request.end_ns) {
        return Err("issue_ns, start_ns and end_ns are not in order".into());
    }
    Ok(request)
}
