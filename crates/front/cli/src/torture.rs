//! `arbor torture`: the worst days of an engine, by the million.

use crate::args::{TortureArgs, TorturePart};
use crate::exit::Exit;
use crate::interrupt::{self, INTERRUPTED};
use crate::show;
use anyhow::{Context, anyhow};
use arbor_torture::machine::{self, Plan};
use arbor_torture::share::Share;
use arbor_torture::tally::Tally;
use arbor_torture::{concurrent, faults, line, mutate};
use arboretum::vfs::Engine;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::json;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Faults, mutants and schedules of a run without a time.
const FAULTS: u64 = 100_000;
const MUTANTS: u64 = 1_000_000;
const SCHEDULES: u64 = 1_000_000;

/// The parts with their shares of the time. Crash states are the widest field.
const PARTS: [(TorturePart, f64); 4] =
    [(TorturePart::Crash, 0.4), (TorturePart::Fault, 0.2), (TorturePart::Fuzz, 0.2), (TorturePart::Concurrency, 0.2)];

pub(crate) fn run(args: &TortureArgs, out: &mut dyn Write) -> Result<u8, Exit> {
    arbor_base::invariants::execute_always(true);
    let name = args.engine.as_str();
    let engine = arboretum::engine(name).ok_or_else(|| anyhow!("no engine is called {name:?}"))?;
    if let Some(line) = &args.repeat {
        return repeat(engine, line, out);
    }
    if args.share.is_some() && !matches!(args.only, Some(TorturePart::Crash)) {
        return Err(anyhow!("--share: only the crash part has shares, so --only crash goes with it").into());
    }
    // Whether it can be written is better known before the hours than after them.
    let open = |path: &PathBuf| File::create(path).with_context(|| path.display().to_string());
    let mut file = args.json.as_ref().map(open).transpose()?;
    // The first signal ends the run with its table, the second at once.
    let stop = interrupt::flag()?;
    let seed = args.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0 >> 32);
    let share = args.share.map(|share| format!(", share {share}")).unwrap_or_default();
    writeln!(out, "{name}, seed {seed}{share}")?;
    out.flush()?;
    let began = Instant::now();
    let (rows, missing) = parts(engine, args, seed, &stop)?;
    let mut whole = Tally::default();
    rows.iter().for_each(|r| whole.add(r.1.clone()));
    table(&rows, &whole, began.elapsed(), out)?;
    let concurrent = rows.iter().any(|r| matches!(r.0, TorturePart::Concurrency));
    if concurrent && !engine.overlaps_calls() {
        writeln!(out, "\nconcurrency: calls of {name} hold one lock, there is nothing to schedule")?;
    }
    if let Some(missing) = &missing {
        writeln!(out, "\ninterrupted: {missing}")?;
    }
    if let Some((file, path)) = file.as_mut().zip(args.json.as_ref()) {
        let mut counts = as_json(engine.name(), seed, &whole, began.elapsed(), missing.is_some());
        if let Some(share) = args.share {
            counts["share"] = json!(share.to_string());
        }
        let text = serde_json::to_vec_pretty(&counts)?;
        file.write_all(&text).with_context(|| path.display().to_string())?;
    }
    Ok(if missing.is_some() { INTERRUPTED } else { u8::from(!whole.failures.is_empty()) })
}

/// A part, what it did, and how long it took.
type Row = (TorturePart, Tally, Duration);

/// Runs the parts, and says what is missing if it was interrupted.
fn parts(
    engine: &'static dyn Engine,
    args: &TortureArgs,
    seed: u64,
    stop: &AtomicBool,
) -> Result<(Vec<Row>, Option<String>), Exit> {
    let parts = args.only.map_or(PARTS.to_vec(), |only| vec![(only, 1.0)]);
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    // A panic of the engine is a finding like others; its text is in the failure.
    std::panic::set_hook(Box::new(|_| {}));
    for (at, (part, share)) in parts.iter().enumerate() {
        let began = Instant::now();
        let time = args.seconds.map(|s| Duration::from_secs_f64(f64::from(s) * share));
        let plan = Plan { time, share: args.share.unwrap_or(Share::WHOLE), ..Plan::whole(seed) };
        rows.push((*part, one(engine, *part, &plan, stop)?, began.elapsed()));
        if stop.load(Relaxed) {
            missing.push(format!("{} not finished", part_name(*part)));
            let left: Vec<String> = parts[at + 1..].iter().map(|p| part_name(p.0)).collect();
            if !left.is_empty() {
                missing.push(format!("{} not run", left.join(", ")));
            }
            break;
        }
    }
    drop(std::panic::take_hook());
    Ok((rows, (!missing.is_empty()).then(|| missing.join("; "))))
}

fn part_name(part: TorturePart) -> String {
    format!("{part:?}").to_lowercase()
}

fn one(engine: &'static dyn Engine, part: TorturePart, plan: &Plan, stop: &AtomicBool) -> Result<Tally, Exit> {
    let Plan { time, seed, .. } = *plan;
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
    bar.set_style(indicatif::ProgressStyle::with_template("{elapsed}  {msg}").unwrap_or_else(|_| bar.style()));
    let began = Instant::now();
    let mut said = began;
    let mut watch = |tally: &Tally| {
        bar.set_message(brief(part, tally));
        bar.tick();
        // Whoever reads a file wants to know how far it is, too.
        if !std::io::stderr().is_terminal() && said.elapsed() > Duration::from_secs(60) {
            said = Instant::now();
            show::tell(format_args!("{} s: {}", began.elapsed().as_secs(), brief(part, tally)));
        }
        !stop.load(Relaxed) && time.is_none_or(|t| began.elapsed() < t)
    };
    let endless = |count: u64| if time.is_some() { u64::MAX } else { count };
    let tally = match part {
        TorturePart::Crash => machine::crash(engine, plan, &mut watch),
        TorturePart::Concurrency => concurrent::run(engine, seed, endless(SCHEDULES), false, &mut watch),
        TorturePart::Fault => faults::run(engine, seed, endless(FAULTS), &mut watch),
        TorturePart::Fuzz => {
            let images = mutate::images(engine).map_err(|e| anyhow!("{e}"))?;
            mutate::run(engine, &images, seed, endless(MUTANTS), &mutate::Limits::default(), &mut watch)
        }
    };
    bar.finish_and_clear();
    Ok(tally)
}

fn brief(part: TorturePart, t: &Tally) -> String {
    let failures = format!("{} failures", t.failures.len());
    match part {
        TorturePart::Crash => format!(
            "{} sequences, {} crash states, {} distinct, {failures}",
            show::count(t.sequences),
            show::count(t.crash_states),
            show::count(t.distinct_states)
        ),
        TorturePart::Fault => format!("{} faults, {failures}", show::count(t.faults)),
        TorturePart::Fuzz => format!("{} mutants, {failures}", show::count(t.mutants)),
        TorturePart::Concurrency => format!("{} schedules, {failures}", show::count(t.schedules)),
    }
}

fn table(rows: &[Row], whole: &Tally, took: Duration, out: &mut dyn Write) -> std::io::Result<()> {
    let heads =
        ["part", "sequences", "crash states", "distinct", "faults", "mutants", "schedules", "failures", "seconds"];
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(heads);
    table.column_iter_mut().skip(1).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    let mut row = |name: &str, t: &Tally, took: Duration| {
        let failures = t.failures.len() as u64;
        let counts = [t.sequences, t.crash_states, t.distinct_states, t.faults, t.mutants, t.schedules, failures];
        let mut cells = vec![name.to_string()];
        cells.extend(counts.map(show::count));
        cells.push(format!("{:.1}", took.as_secs_f64()));
        table.add_row(cells);
    };
    for (part, tally, took) in rows {
        row(&part_name(*part), tally, *took);
    }
    row("all", whole, took);
    writeln!(out, "{}", table.trim_fmt())?;
    whole.failures.iter().try_for_each(|f| writeln!(out, "\n{f}"))
}

fn as_json(engine: &str, seed: u64, t: &Tally, took: Duration, interrupted: bool) -> serde_json::Value {
    json!({
        "engine": engine,
        "seed": seed,
        "sequences": t.sequences,
        "crash_states": t.crash_states,
        "distinct_states": t.distinct_states,
        "faults": t.faults,
        "mutants": t.mutants,
        "schedules": t.schedules,
        "failures": t.failures.len(),
        "seconds": took.as_secs_f64(),
        "interrupted": interrupted,
    })
}

/// Does once more what the line of a failure says.
fn repeat(engine: &'static dyn Engine, line: &str, out: &mut dyn Write) -> Result<u8, Exit> {
    let again = line::repeat(engine, line).map_err(|e| anyhow!("--repeat: {e}"))?;
    match &again {
        Ok(()) => writeln!(out, "it does not fail any more")?,
        Err(e) => writeln!(out, "{e}")?,
    }
    Ok(u8::from(again.is_err()))
}
