//! `arbor lab replay`: a trace of requests on simulated disks.

use super::{model_with, plain, queue, right};
use crate::args::{LabReplayArgs, TraceSource};
use crate::show;
use anyhow::{Context, Result, anyhow, bail};
use arbor_simdisk::{
    Answers, HostQueue, Latencies, Model, Replay, Replayed, Stats, Timing, TraceFormat, TraceOp, TraceReader,
    TraceRequest,
};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

/// Instead of the name of a file.
const INPUT: &str = "-";

pub(super) fn run(args: &LabReplayArgs, out: &mut dyn Write) -> Result<()> {
    let models: Vec<Model> = args.disks.iter().map(|name| model_with(name, &args.queue)).collect::<Result<_>>()?;
    let is_input = args.trace == Path::new(INPUT);
    let name = if is_input { "standard input".into() } else { args.trace.display().to_string() };
    let reader = TraceReader::new(open(&args.trace)?, args.format.map(format)).map_err(|e| anyhow!("{name}: {e}"))?;
    let format = reader.format();
    let timing = if args.closed { Timing::Closed { depth: args.depth as usize } } else { Timing::AsRecorded };
    let begin = |model| Replay::new(model, queue(&HostQueue::default(), &args.queue), timing).wrapping(args.wrap);
    let mut replays: Vec<Replay> = models.iter().map(begin).collect();
    let mut recorded = Recorded::default();
    for entry in reader.in_order() {
        let entry = entry.map_err(|e| anyhow!("{name}: {e}"))?;
        recorded.add(&entry.request);
        for (replay, model) in replays.iter_mut().zip(&models) {
            let line = entry.line;
            let issued = replay.issue(&entry.request);
            issued.map_err(|e| anyhow!("{name}: line {line}: {e}{}", hint(args, &entry.request, model)))?;
        }
    }
    if recorded.requests() == 0 {
        bail!("{name}: there are no requests in it");
    }
    let done: Vec<Replayed> = replays.into_iter().map(Replay::finish).collect();
    if args.json {
        let disks: Vec<Value> = models.iter().zip(&done).map(|(model, done)| disk_json(model, done)).collect();
        let depth = args.closed.then_some(args.depth);
        let all = json!({ "format": format.name(), "depth": depth, "recorded": recorded.json(), "disks": disks });
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?);
    }
    let how = match timing {
        Timing::Closed { .. } => format!("closed, {} under way", show::of(args.depth.into(), "request", "requests")),
        _ => "at the times of the trace".into(),
    };
    writeln!(out, "{name}: {}, {}, {how}\n", format.name(), show::of(recorded.requests(), "request", "requests"))?;
    table(&models, &recorded, &done, out)
}

fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    if path == Path::new(INPUT) {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    let file = File::open(path).with_context(|| path.display().to_string())?;
    Ok(Box::new(BufReader::with_capacity(1 << 18, file)))
}

fn format(source: TraceSource) -> TraceFormat {
    match source {
        TraceSource::Arbor => TraceFormat::Own,
        TraceSource::Blkparse => TraceFormat::Blkparse,
        TraceSource::Fio => TraceFormat::Fio,
        TraceSource::Msr => TraceFormat::Msr,
    }
}

/// What to do about a request that goes past the end.
fn hint(args: &LabReplayArgs, request: &TraceRequest, model: &Model) -> &'static str {
    let is_past = request.offset.saturating_add(request.len) > model.capacity_bytes();
    if is_past && !args.wrap { " (--wrap goes on at its beginning)" } else { "" }
}

/// What the trace says of its own device.
#[derive(Default)]
struct Recorded {
    /// Reads, writes, discards and flushes.
    counts: [u64; 4],
    read_bytes: u64,
    write_bytes: u64,
    begun_ns: Option<u64>,
    /// Of those that have a completion.
    answers: Answers,
}

impl Recorded {
    fn add(&mut self, request: &TraceRequest) {
        let TraceRequest { op, len, issue_ns, end_ns, .. } = *request;
        self.begun_ns.get_or_insert(issue_ns);
        self.counts[op as usize] += 1;
        match op {
            TraceOp::Read => self.read_bytes = self.read_bytes.saturating_add(len),
            TraceOp::Write => self.write_bytes = self.write_bytes.saturating_add(len),
            TraceOp::Discard | TraceOp::Flush => {}
        }
        if end_ns > issue_ns {
            self.answers.add(op, issue_ns, end_ns);
        }
    }

    fn requests(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// None without completions.
    fn elapsed_ns(&self) -> Option<u64> {
        self.begun_ns.filter(|_| self.answers.end_ns > 0).map(|begun| self.answers.end_ns - begun)
    }

    fn json(&self) -> Value {
        json!({
            "requests": self.requests(),
            "reads": self.counts[TraceOp::Read as usize],
            "writes": self.counts[TraceOp::Write as usize],
            "discards": self.counts[TraceOp::Discard as usize],
            "flushes": self.counts[TraceOp::Flush as usize],
            "read_bytes": self.read_bytes,
            "write_bytes": self.write_bytes,
            "elapsed_ns": self.elapsed_ns(),
            "latency_ns": answers_json(&self.answers),
        })
    }
}

fn disk_json(model: &Model, done: &Replayed) -> Value {
    let mut stats = serde_json::to_value(&done.stats).unwrap_or_default();
    if let Value::Object(fields) = &mut stats {
        // Most traces do not say what requests are for.
        fields.remove("kinds");
    }
    json!({
        "name": model.name(),
        "elapsed_ns": done.elapsed_ns,
        "latency_ns": answers_json(&done.answers),
        "stats": stats,
    })
}

fn answers_json(answers: &Answers) -> Value {
    let one = |of: &Latencies| {
        let [median, p99, p999] = PARTS.map(|part| of.within_ns(part));
        let largest = (of.count() > 0).then_some(of.largest_ns());
        json!({ "count": of.count(), "median": median, "p99": p99, "p999": p999, "largest": largest })
    };
    let Answers { reads, writes, discards, flushes, .. } = answers;
    json!({
        "all": one(&answers.all()),
        "reads": one(reads),
        "writes": one(writes),
        "discards": one(discards),
        "flushes": one(flushes),
    })
}

/// Thousandths that latencies are given for.
const PARTS: [u32; 3] = [500, 990, 999];

/// A row of the table: words, and a cell for the trace and for each disk.
type Line = (String, Vec<String>);

fn table(models: &[Model], recorded: &Recorded, done: &[Replayed], out: &mut dyn Write) -> Result<()> {
    let heads: Vec<&str> = ["", "in the trace"].into_iter().chain(models.iter().map(Model::name)).collect();
    let mut table = plain(&heads);
    right(&mut table, 1..heads.len());
    let mut lines = counts(recorded, done);
    lines.extend(latencies(recorded, done));
    lines.extend(mechanics(done));
    for (words, cells) in lines.into_iter().filter(|(_, cells)| cells.iter().any(|cell| cell != NONE)) {
        table.add_row([words].into_iter().chain(cells));
    }
    Ok(writeln!(out, "{}", table.trim_fmt())?)
}

/// Where there is no such thing.
const NONE: &str = "-";

fn counts(recorded: &Recorded, done: &[Replayed]) -> Vec<Line> {
    let of = |op: TraceOp| show::count(recorded.counts[op as usize]);
    let line = |words: &str, trace: String, figure: &dyn Fn(&Replayed) -> String| -> Line {
        (words.into(), [trace].into_iter().chain(done.iter().map(figure)).collect())
    };
    let elapsed = recorded.elapsed_ns().map_or(NONE.into(), time);
    let average = |ns: u64, stats: &Stats| ns.checked_div(stats.requests).map_or(NONE.into(), time);
    vec![
        line("requests of the driver", NONE.into(), &|d| show::count(d.stats.requests)),
        line("  reads", of(TraceOp::Read), &|d| show::count(d.stats.reads)),
        line("  writes", of(TraceOp::Write), &|d| show::count(d.stats.writes)),
        line("  discards", of(TraceOp::Discard), &|d| show::count(d.stats.discards)),
        line("flushes", of(TraceOp::Flush), &|d| show::count(d.stats.flushes)),
        line("bytes read", show::count(recorded.read_bytes), &|d| show::count(d.stats.read_bytes)),
        line("bytes written", show::count(recorded.write_bytes), &|d| show::count(d.stats.write_bytes)),
        line("elapsed time", elapsed, &|d| time(d.elapsed_ns)),
        line("disk busy", NONE.into(), &|d| time(d.stats.busy_ns)),
        line("service time, average", NONE.into(), &|d| average(d.stats.service_ns, &d.stats)),
        line("queueing time, average", NONE.into(), &|d| average(d.stats.queue_ns, &d.stats)),
    ]
}

/// Of all requests, and of each kind where there are several.
fn latencies(recorded: &Recorded, done: &[Replayed]) -> Vec<Line> {
    let answers: Vec<&Answers> = [&recorded.answers].into_iter().chain(done.iter().map(|d| &d.answers)).collect();
    let kinds = recorded.counts.iter().filter(|count| **count > 0).count();
    let mut groups: Vec<(&str, Vec<Latencies>)> = vec![("latency", answers.iter().map(|a| a.all()).collect())];
    if kinds > 1 {
        groups.push(("latency of reads", answers.iter().map(|a| a.reads.clone()).collect()));
        groups.push(("latency of writes", answers.iter().map(|a| a.writes.clone()).collect()));
        groups.push(("latency of flushes", answers.iter().map(|a| a.flushes.clone()).collect()));
    }
    let within = |part: u32, of: &Latencies| of.within_ns(part).map_or(NONE.into(), time);
    let largest = |of: &Latencies| if of.count() > 0 { time(of.largest_ns()) } else { NONE.into() };
    let lines = groups.iter().flat_map(|(words, all)| {
        let line = |what: &str, cell: &dyn Fn(&Latencies) -> String| (what.into(), all.iter().map(cell).collect());
        [
            line(&format!("{words}, median"), &|of| within(PARTS[0], of)),
            line("  99%", &|of| within(PARTS[1], of)),
            line("  99.9%", &|of| within(PARTS[2], of)),
            line("  largest", &largest),
        ]
    });
    lines.collect()
}

/// What only disks, or only SSDs have.
fn mechanics(done: &[Replayed]) -> Vec<Line> {
    let line = |words: &str, cell: &dyn Fn(&Stats) -> String| -> Line {
        (words.into(), [NONE.into()].into_iter().chain(done.iter().map(|d| cell(&d.stats))).collect())
    };
    let disk = |stats: &Stats, text: String| if stats.ssd.is_none() { text } else { NONE.into() };
    vec![
        line("seeks", &|s| disk(s, show::count(s.seeks))),
        line("  time", &|s| disk(s, time(s.seek_ns))),
        line("rotational delay", &|s| disk(s, time(s.rotation_ns))),
        line("blocks erased", &|s| s.ssd.map_or(NONE.into(), |ssd| show::count(ssd.erases))),
        line("bytes programmed", &|s| s.ssd.map_or(NONE.into(), |ssd| show::count(ssd.flash_bytes))),
        line("  for each written", &|s| s.ssd.map_or(NONE.into(), |ssd| format!("{:.2}", ssd.write_amplification()))),
    ]
}

fn time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        ..1e6 => format!("{:.1} us", ns / 1e3),
        ..1e9 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.3} s", ns / 1e9),
    }
}
