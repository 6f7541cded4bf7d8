//! What blkparse prints by default (blkparse(1)): device, CPU, sequence number, time in seconds, process, action,
//! RWBS, and for requests `sector + sectors`.

use super::lines::parse_number;
use super::reader::{Parser, TraceEntry, WINDOW};
use super::{LATEST_NS, TraceOp, TraceRequest};
use crate::drive::SECTOR;
use std::collections::{BTreeMap, VecDeque};

/// A parsed event.
struct Event<'a> {
    at_ns: u64,
    action: &'a str,
    op: TraceOp,
    offset: u64,
    len: u64,
}

/// Whether a line looks like one of these: it begins with the numbers of a device.
pub(super) fn is_line(line: &str) -> bool {
    let mut fields = line.split_whitespace();
    let device = fields.next().and_then(|device| device.split_once(','));
    let is_device = device.is_some_and(|(major, minor)| major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok());
    is_preface(line) || (is_device && fields.count() >= 5)
}

/// What blkparse may say first of the files that it reads.
fn is_preface(line: &str) -> bool {
    line.starts_with("Input file")
}

impl Parser for Blkparse {
    fn line(&mut self, line: &str, at: u64, out: &mut VecDeque<TraceEntry>) -> Result<bool, String> {
        // The summary at the end begins with the name of a CPU or the total.
        if line.starts_with("CPU") || line.starts_with("Total") {
            return Ok(false);
        }
        if !is_preface(line)
            && let Some(event) = parse(line)?
        {
            self.apply(&event, at);
        }
        self.release(WINDOW, out);
        Ok(true)
    }

    fn end(&mut self, out: &mut VecDeque<TraceEntry>) -> Result<(), String> {
        self.release(0, out);
        Ok(())
    }
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

/// No driver merges as many.
const MOST_MERGED: usize = 4096;

/// Operation, offset, and the request's number.
type Key = (TraceOp, u64, u64);

/// Requests wait for their completion, which may never come: then the first go when too many wait.
#[derive(Debug, Default)]
pub(super) struct Blkparse {
    /// Those that are not complete, and their lengths.
    waiting: BTreeMap<Key, u64>,
    /// All from the first that is not complete.
    held: VecDeque<TraceEntry>,
    /// How many went before these.
    gone: u64,
}

impl Blkparse {
    fn apply(&mut self, event: &Event, at: u64) {
        let touched = if event.action == "Q" { Vec::new() } else { self.touched(event) };
        match event.action {
            "D" if !touched.is_empty() => {
                for (_, _, number) in touched {
                    if let Some(request) = self.request(number) {
                        request.start_ns = event.at_ns.max(request.issue_ns);
                        request.end_ns = request.start_ns;
                    }
                }
            }
            "Q" | "D" => self.issue(event, at),
            _ => {
                for key in touched {
                    if let Some(request) = self.request(key.2) {
                        request.end_ns = event.at_ns.max(request.start_ns);
                    }
                    // The last piece of one that was split completes it.
                    if self.waiting.get(&key).is_some_and(|len| key.1 + len <= event.offset + event.len) {
                        self.waiting.remove(&key);
                    }
                }
            }
        }
    }

    fn issue(&mut self, event: &Event, line: u64) {
        let number = self.gone + self.held.len() as u64;
        self.waiting.insert((event.op, event.offset, number), event.len);
        let request = TraceRequest::bare(number, event.at_ns, event.op, event.offset, event.len);
        self.held.push_back(TraceEntry { line, request });
    }

    fn request(&mut self, number: u64) -> Option<&mut TraceRequest> {
        self.held.get_mut((number - self.gone) as usize).map(|entry| &mut entry.request)
    }

    /// Those that wait in the range of the event: the driver may have merged them, or split one.
    fn touched(&self, event: &Event) -> Vec<Key> {
        let (begin, end) = ((event.op, event.offset, 0), event.offset + event.len);
        let before = self.waiting.range((event.op, 0, 0)..begin).next_back();
        let before = before.filter(|((_, offset, _), len)| offset + **len > event.offset);
        let from = self.waiting.range(begin..=(event.op, end, u64::MAX));
        let inside = from.filter(|((_, offset, _), _)| *offset < end || event.len == 0);
        before.into_iter().chain(inside).map(|(key, _)| *key).take(MOST_MERGED).collect()
    }

    /// Gives those that are complete, as far as none before them waits, and more if there are more than `most`.
    fn release(&mut self, most: usize, out: &mut VecDeque<TraceEntry>) {
        while let Some(entry) = self.held.front() {
            let key = (entry.request.op, entry.request.offset, self.gone);
            if self.waiting.contains_key(&key) && self.held.len() <= most {
                break;
            }
            self.waiting.remove(&key);
            out.extend(self.held.pop_front());
            self.gone += 1;
        }
    }
}
