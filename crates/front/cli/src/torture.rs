//! `arbor torture`: the worst days of an engine, by the million.

use crate::args::{TortureArgs, TorturePart};
use crate::exit::Exit;
use crate::show;
use anyhow::{Context, anyhow};
use arbor_torture::machine::{self, Plan};
use arbor_torture::tally::Tally;
use arbor_torture::{concurrent, faults, mutate};
use arboretum::vfs::Engine;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
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
    let name = args.engine.as_str();
    let engine = arboretum::engine(name).ok_or_else(|| anyhow!("no engine is called {name:?}"))?;
    if let Some(line) = &args.repeat {
        return repeat(engine, line, out);
    }
    let seed = args.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0 >> 32);
    writeln!(out, "{name}, seed {seed}")?;
    // A panic of the engine is a finding like others; its text is in the failure.
    std::panic::set_hook(Box::new(|_| {}));
    // The first interrupt ends the run with its table, the second ends it at once.
    let stop = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let began = Instant::now();
    let parts: Vec<(TorturePart, f64)> = match args.only {
        Some(only) => vec![(only, 1.0)],
        None => PARTS.to_vec(),
    };
    let mut rows = Vec::new();
    for (part, share) in parts.iter().take_while(|_| !stop.load(Relaxed)) {
        let began = Instant::now();
        let time = args.seconds.map(|s| Duration::from_secs_f64(s as f64 * share));
        rows.push((*part, one(engine, *part, seed, time, &stop)?, began.elapsed()));
    }
    drop(std::panic::take_hook());
    let mut whole = Tally::default();
    rows.iter().for_each(|r| whole.add(r.1.clone()));
    table(&rows, &whole, began.elapsed(), out)?;
    if let Some(path) = &args.json {
        let text = serde_json::to_vec_pretty(&as_json(engine.name(), seed, &whole, began.elapsed()))?;
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    Ok(u8::from(!whole.failures.is_empty()))
}

fn one(
    engine: &'static dyn Engine,
    part: TorturePart,
    seed: u64,
    time: Option<Duration>,
    stop: &AtomicBool,
) -> Result<Tally, Exit> {
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
            eprintln!("{} s: {}", began.elapsed().as_secs(), brief(part, tally));
        }
        !stop.load(Relaxed) && time.is_none_or(|t| began.elapsed() < t)
    };
    let endless = |count: u64| if time.is_some() { u64::MAX } else { count };
    let tally = match part {
        TorturePart::Crash => machine::crash(engine, &Plan { time, ..Plan::whole(seed) }, &mut watch),
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

fn table(
    rows: &[(TorturePart, Tally, Duration)],
    whole: &Tally,
    took: Duration,
    out: &mut dyn Write,
) -> std::io::Result<()> {
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
        row(&format!("{part:?}").to_lowercase(), tally, *took);
    }
    row("all", whole, took);
    writeln!(out, "{table}")?;
    whole.failures.iter().try_for_each(|f| writeln!(out, "\n{f}"))
}

fn as_json(engine: &str, seed: u64, t: &Tally, took: Duration) -> serde_json::Value {
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
    })
}

/// Does once more what the line of a failure says.
fn repeat(engine: &'static dyn Engine, line: &str, out: &mut dyn Write) -> Result<u8, Exit> {
    let again = if line.contains("changes=") {
        let images = mutate::images(engine).map_err(|e| anyhow!("{e}"))?;
        mutate::repeat(engine, &images, &mutate::Limits::default(), line)
    } else if line.contains("schedule=") {
        concurrent::repeat(engine, line)
    } else if line.contains("fault=") {
        faults::repeat(engine, line)
    } else {
        machine::repeat(engine, line)
    };
    match &again {
        Ok(()) => writeln!(out, "it does not fail any more")?,
        Err(e) => writeln!(out, "{e}")?,
    }
    Ok(u8::from(again.is_err()))
}
