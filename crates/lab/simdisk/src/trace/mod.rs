//! Traces of requests.

mod blkparse;
mod fio;
mod replay;

pub use replay::{Timing, replay};

use arbor_base::device::Kind;
use std::io::{self, BufRead, Write};

/// All kinds, in the order of their declaration.
pub const KINDS: [Kind; 10] = [
    Kind::Super,
    Kind::Log,
    Kind::Group,
    Kind::Inode,
    Kind::Bitmap,
    Kind::Dir,
    Kind::Tree,
    Kind::Xattr,
    Kind::Data,
    Kind::Other,
];

/// Its name in traces.
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Super => "super",
        Kind::Log => "log",
        Kind::Group => "group",
        Kind::Inode => "inode",
        Kind::Bitmap => "bitmap",
        Kind::Dir => "dir",
        Kind::Tree => "tree",
        Kind::Xattr => "xattr",
        Kind::Data => "data",
        Kind::Other => "other",
    }
}

/// What a traced request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TraceOp {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Discard, the TRIM of an SSD.
    Discard,
    /// Flush of the drive's write cache.
    Flush,
}

impl TraceOp {
    const ALL: [TraceOp; 4] = [TraceOp::Read, TraceOp::Write, TraceOp::Discard, TraceOp::Flush];

    /// Its name in traces.
    pub fn name(self) -> &'static str {
        match self {
            TraceOp::Read => "read",
            TraceOp::Write => "write",
            TraceOp::Discard => "discard",
            TraceOp::Flush => "flush",
        }
    }
}

/// One request as it was submitted. Times are virtual nanoseconds since the start of the clock.
///
/// The driver may have merged it with others: these have the same `number`, start and end, the first of them in the
/// order of addresses has the overhead, seek and rotation, and the transfer is shared by bytes. A request that was too
/// large for one transfer is several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// Number of the driver's request, in the order of handing over.
    pub number: u64,
    /// When it was submitted.
    pub issue_ns: u64,
    /// When it was handed to the drive.
    pub start_ns: u64,
    /// When it was complete.
    pub end_ns: u64,
    /// Command overhead.
    pub overhead_ns: u64,
    /// Seek time.
    pub seek_ns: u64,
    /// Rotational delay.
    pub rotation_ns: u64,
    /// Transfer time.
    pub transfer_ns: u64,
    /// What it was for.
    pub kind: Kind,
    /// What it did.
    pub op: TraceOp,
    /// Byte offset on the device.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl TraceRequest {
    /// A request of which only this is known; it takes no time and is for [`Kind::Other`].
    fn bare(number: u64, issue_ns: u64, op: TraceOp, offset: u64, len: u64) -> TraceRequest {
        TraceRequest {
            number,
            issue_ns,
            start_ns: issue_ns,
            end_ns: issue_ns,
            overhead_ns: 0,
            seek_ns: 0,
            rotation_ns: 0,
            transfer_ns: 0,
            kind: Kind::Other,
            op,
            offset,
            len,
        }
    }
}

/// The requests of a run.
///
/// As a file it is text. The first line is `arbor trace 1`, the second `model` and its name; then a line for each
/// request has the fields of [`TraceRequest`] in their order, separated by single spaces. Kinds and operations are
/// written by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Name of the model that the times are of; empty for an imported trace.
    pub model: String,
    /// The requests.
    pub requests: Vec<TraceRequest>,
}

const HEADER: &str = "arbor trace 1";

/// Later times, in nanoseconds, are taken for nonsense: 146 years.
const LATEST_NS: u64 = 1 << 62;

impl Trace {
    /// No requests yet, on this model.
    pub fn new(model: &str) -> Trace {
        Trace { model: model.to_string(), requests: Vec::new() }
    }

    /// Writes it as text.
    pub fn write_to(&self, mut to: impl Write) -> io::Result<()> {
        writeln!(to, "{HEADER}\nmodel {}", self.model)?;
        for r in &self.requests {
            let times = [r.issue_ns, r.start_ns, r.end_ns, r.overhead_ns, r.seek_ns, r.rotation_ns, r.transfer_ns];
            write!(to, "{}", r.number)?;
            for time in times {
                write!(to, " {time}")?;
            }
            writeln!(to, " {} {} {} {}", kind_name(r.kind), r.op.name(), r.offset, r.len)?;
        }
        Ok(())
    }

    /// Reads what [`Trace::write_to`] wrote; the error names the line and what is wrong with it.
    pub fn read_from(from: impl BufRead) -> Result<Trace, String> {
        let mut lines = Lines::new(from);
        if lines.next()?.as_deref() != Some(HEADER) {
            return Err(lines.wrong(&format!("it should be {HEADER:?}")));
        }
        let Some(model) = lines.next()?.and_then(|l| l.strip_prefix("model").map(|m| m.trim().to_string())) else {
            return Err(lines.wrong("it should be \"model\" and a name"));
        };
        let mut trace = Trace::new(&model);
        while let Some(line) = lines.next()? {
            trace.requests.push(parse_request(&line).map_err(|e| lines.wrong(&e))?);
        }
        Ok(trace)
    }

    /// Imports a log of I/O that fio wrote (`write_iolog`), version 2 or 3. It has no completions: requests end when
    /// they are issued. What belongs to files, such as `open`, is left out, and all files count as one device.
    pub fn from_fio(from: impl BufRead) -> Result<Trace, String> {
        fio::read(Lines::new(from))
    }

    /// Exports it as a log of I/O for fio (`read_iolog`), version 3, as requests of the file named `file`.
    pub fn to_fio(&self, file: &str) -> String {
        fio::write(self, file)
    }

    /// Imports what blkparse prints by default. Requests are issued by events Q, handed over by D and completed by C;
    /// a D without a Q issues the request itself. All devices in it count as one.
    pub fn from_blkparse(from: impl BufRead) -> Result<Trace, String> {
        blkparse::read(Lines::new(from))
    }
}

/// Lines with their numbers.
struct Lines<R> {
    from: R,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    fn new(from: R) -> Lines<R> {
        Lines { from, number: 0 }
    }

    /// The next line without its end; none at the end of the file.
    fn next(&mut self) -> Result<Option<String>, String> {
        let mut line = Vec::new();
        self.number += 1;
        let n = self.from.read_until(b'\n', &mut line).map_err(|e| self.wrong(&e.to_string()))?;
        if n == 0 {
            return Ok(None);
        }
        while matches!(line.last(), Some(b'\n' | b'\r')) {
            line.pop();
        }
        String::from_utf8(line).map(Some).map_err(|_| self.wrong("it is not text"))
    }

    fn wrong(&self, what: &str) -> String {
        format!("line {}: {what}", self.number)
    }
}

fn parse_request(line: &str) -> Result<TraceRequest, String> {
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

fn parse_number(text: &str, name: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{name} is not a number: {text:?}"))
}

fn parse_range(offset: &str, len: &str) -> Result<(u64, u64), String> {
    let (offset, len) = (parse_number(offset, "offset")?, parse_number(len, "len")?);
    match offset.checked_add(len) {
        Some(_) => Ok((offset, len)),
        None => Err(format!("{len} bytes at {offset} go past the end of all devices")),
    }
}
