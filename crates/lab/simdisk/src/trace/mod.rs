//! Traces of requests.

mod blkparse;
mod fio;
mod lines;
mod msr;
mod own;
mod reader;
mod replay;

pub use own::TraceWriter;
pub use reader::{InOrder, TraceEntry, TraceFormat, TraceReader};
pub use replay::{Answers, Replay, Replayed, Timing, replay};

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
/// written by name. Among them there may be lines that begin with `#`, which are for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Name of the model that the times are of; empty for an imported trace.
    pub model: String,
    /// The requests.
    pub requests: Vec<TraceRequest>,
}

/// Later times, in nanoseconds, are taken for nonsense: 146 years.
const LATEST_NS: u64 = 1 << 62;

impl Trace {
    /// No requests yet, on this model.
    pub fn new(model: &str) -> Trace {
        Trace { model: model.to_string(), requests: Vec::new() }
    }

    /// Writes it as text.
    pub fn write_to(&self, to: impl Write) -> io::Result<()> {
        let mut writer = TraceWriter::new(to, &self.model)?;
        self.requests.iter().try_for_each(|r| writer.request(r))
    }

    /// Reads what [`Trace::write_to`] wrote; the error names the line and what is wrong with it.
    pub fn read_from(from: impl BufRead) -> Result<Trace, String> {
        Trace::import(from, TraceFormat::Own)
    }

    /// Reads a trace that somebody wrote, all of it; [`TraceReader`] reads it request by request.
    pub fn import(from: impl BufRead, format: TraceFormat) -> Result<Trace, String> {
        TraceReader::new(from, Some(format))?.collect_all()
    }

    /// Exports it as a log of I/O for fio (`read_iolog`), version 3, as requests of the file named `file`.
    pub fn to_fio(&self, file: &str) -> String {
        fio::write(self, file)
    }
}
