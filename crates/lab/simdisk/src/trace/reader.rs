//! Traces line by line, whoever wrote them.

use super::blkparse::{self, Blkparse};
use super::fio::{self, Fio};
use super::lines::{Lines, in_line};
use super::msr::{self, Msr};
use super::own::{HEADER, Own};
use super::{Trace, TraceRequest};
use std::collections::{BTreeMap, VecDeque};
use std::io::BufRead;

/// So many requests are held back until their order is certain; one that is later than that is refused.
pub const WINDOW: usize = 1 << 16;

/// Who wrote a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// We, see [`Trace`].
    Own,
    /// blkparse, its default output. Requests are issued by events Q, handed over by D and completed by C; a D without a
    /// Q issues the request itself. All devices in it count as one.
    Blkparse,
    /// fio (`write_iolog`), version 2 or 3. It has no completions: requests end when they are issued. What belongs to
    /// files, such as `open`, is left out, and all files count as one device.
    Fio,
    /// Microsoft Research Cambridge, see `msr`. All disks in it count as one.
    Msr,
}

impl TraceFormat {
    /// All of them.
    pub const ALL: [TraceFormat; 4] = [TraceFormat::Own, TraceFormat::Blkparse, TraceFormat::Fio, TraceFormat::Msr];

    /// Its name in the command line.
    pub fn name(self) -> &'static str {
        match self {
            TraceFormat::Own => "arbor",
            TraceFormat::Blkparse => "blkparse",
            TraceFormat::Fio => "fio",
            TraceFormat::Msr => "msr",
        }
    }

    /// What a file is that begins with this line.
    fn of(line: &str) -> Option<TraceFormat> {
        match line {
            HEADER => Some(TraceFormat::Own),
            _ if fio::is_header(line) => Some(TraceFormat::Fio),
            _ if msr::is_line(line) => Some(TraceFormat::Msr),
            _ if blkparse::is_line(line) => Some(TraceFormat::Blkparse),
            _ => None,
        }
    }

    fn parser(self) -> Box<dyn Parser> {
        match self {
            TraceFormat::Own => Box::new(Own::default()),
            TraceFormat::Blkparse => Box::new(Blkparse::default()),
            TraceFormat::Fio => Box::new(Fio::default()),
            TraceFormat::Msr => Box::new(Msr::default()),
        }
    }
}

/// A request, and where it stands in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// Number of the line, from 1 on.
    pub line: u64,
    /// The request.
    pub request: TraceRequest,
}

/// Makes requests of lines.
pub(super) trait Parser {
    /// Takes a line with its number; requests that are whole now go to `out`. `false` if no more of them follow.
    fn line(&mut self, line: &str, at: u64, out: &mut VecDeque<TraceEntry>) -> Result<bool, String>;

    /// The file has ended.
    fn end(&mut self, _out: &mut VecDeque<TraceEntry>) -> Result<(), String> {
        Ok(())
    }

    /// Name of the model that the times are of, if it is said.
    fn model(&self) -> &str {
        ""
    }
}

/// The requests of a file in its order. An error names the line, and is the end.
pub struct TraceReader<R> {
    lines: Lines<R>,
    format: TraceFormat,
    parser: Box<dyn Parser>,
    ready: VecDeque<TraceEntry>,
    is_over: bool,
}

impl<R: BufRead> TraceReader<R> {
    /// Begins to read; without a format, the first line that is not empty says which it is.
    pub fn new(from: R, format: Option<TraceFormat>) -> Result<TraceReader<R>, String> {
        let mut lines = Lines::new(from);
        let mut first = None;
        if format.is_none() {
            loop {
                let line = lines.next()?.ok_or_else(|| lines.wrong("there is nothing in it"))?;
                if !line.trim().is_empty() {
                    first = Some(line);
                    break;
                }
            }
        }
        let found = format.or_else(|| first.as_deref().and_then(TraceFormat::of));
        let names = TraceFormat::ALL.map(TraceFormat::name).join(", ");
        let format = found.ok_or_else(|| lines.wrong(&format!("no trace of {names} begins like this")))?;
        let (parser, ready, is_over) = (format.parser(), VecDeque::new(), false);
        let mut reader = TraceReader { lines, format, parser, ready, is_over };
        first.map_or(Ok(()), |line| reader.feed(&line))?;
        Ok(reader)
    }

    /// Who wrote it.
    pub fn format(&self) -> TraceFormat {
        self.format
    }

    /// The same in the order of time, and those of one time in the order of their numbers.
    pub fn in_order(self) -> InOrder<R> {
        InOrder { from: self, held: BTreeMap::new(), last_ns: 0 }
    }

    /// All of it.
    pub(super) fn collect_all(mut self) -> Result<Trace, String> {
        let mut requests = Vec::new();
        for entry in self.by_ref() {
            requests.push(entry?.request);
        }
        Ok(Trace { model: self.parser.model().into(), requests })
    }

    fn feed(&mut self, line: &str) -> Result<(), String> {
        let more = self.parser.line(line, self.lines.number(), &mut self.ready).map_err(|e| self.lines.wrong(&e))?;
        if more { Ok(()) } else { self.end() }
    }

    fn end(&mut self) -> Result<(), String> {
        self.is_over = true;
        self.parser.end(&mut self.ready).map_err(|e| self.lines.wrong(&e))
    }

    fn advance(&mut self) -> Result<(), String> {
        match self.lines.next()? {
            Some(line) => self.feed(&line),
            None => self.end(),
        }
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<TraceEntry, String>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.is_over {
            if let Err(e) = self.advance() {
                self.is_over = true;
                return Some(Err(e));
            }
        }
        self.ready.pop_front().map(Ok)
    }
}

/// The requests of a file in the order of time. Memory is needed for [`WINDOW`] of them.
pub struct InOrder<R> {
    from: TraceReader<R>,
    /// By time, number and line.
    held: BTreeMap<(u64, u64, u64), TraceEntry>,
    last_ns: u64,
}

impl<R: BufRead> Iterator for InOrder<R> {
    type Item = Result<TraceEntry, String>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.held.len() < WINDOW {
            match self.from.next() {
                Some(Ok(entry)) => {
                    self.held.insert((entry.request.issue_ns, entry.request.number, entry.line), entry);
                }
                Some(Err(e)) => return Some(Err(e)),
                None => break,
            }
        }
        let (_, entry) = self.held.pop_first()?;
        if entry.request.issue_ns < self.last_ns {
            let late = format!("it was issued before one that stands more than {WINDOW} requests above it");
            return Some(Err(in_line(entry.line, &late)));
        }
        self.last_ns = entry.request.issue_ns;
        Some(Ok(entry))
    }
}
