//! `cargo xtask fuzz`: the coverage-guided targets of `fuzz/` in turn, each with a share of the time,
//! and what came of it.

use crate::root;
use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

/// Fuzz what an engine reads from a device, guided by coverage.
///
/// Needs a nightly compiler and cargo-fuzz: `rustup toolchain install nightly`, `cargo install
/// cargo-fuzz`. What is found again and again is kept in `fuzz/corpus`, failures in
/// `fuzz/artifacts`.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask fuzz", bin_name = "cargo xtask fuzz")]
struct Args {
    /// For so long, all targets together.
    #[arg(long, value_name = "N", default_value_t = 600)]
    seconds: u64,
    /// So many targets at once [default: the number of cores].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Add the figures to those in this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Longest time of one process, in seconds: the targets take turns.
const TURN: u64 = 300;

/// What a target did, in all runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Time, one process beside another counted twice.
    pub(crate) seconds: u64,
    pub(crate) executions: u64,
    /// Edges of the code that were reached, in the run that reached most.
    pub(crate) coverage: u64,
    pub(crate) peak_mib: u64,
    pub(crate) failures: u64,
}

pub(crate) type Targets = BTreeMap<String, Figures>;

pub(crate) fn run<'a>(words: impl Iterator<Item = &'a str>) -> Result<()> {
    let args = Args::try_parse_from(["fuzz"].into_iter().chain(words)).unwrap_or_else(|e| e.exit());
    let dir = root().join("fuzz");
    let names = targets(&dir)?;
    let built = cargo(&dir, &["build"]).status().context("cargo")?;
    ensure!(built.success(), "the targets do not build; are nightly and cargo-fuzz installed? (see --help)");
    let share = (args.seconds / names.len() as u64).max(1);
    let turns = share.div_ceil(TURN);
    let queue: Vec<&String> = (0..turns).flat_map(|_| &names).collect();
    let (next, all) = (Mutex::new(queue.into_iter()), Mutex::new(Targets::new()));
    let lane = || -> Result<()> {
        loop {
            let Some(name) = next.lock().unwrap_or_else(|e| e.into_inner()).next() else { return Ok(()) };
            let did = fuzz(&dir, name, share.div_ceil(turns))?;
            println!(
                "{name}: {} executions in {} s, {} edges, {} MiB, {} failures",
                did.executions, did.seconds, did.coverage, did.peak_mib, did.failures
            );
            add(all.lock().unwrap_or_else(|e| e.into_inner()).entry(name.clone()).or_default(), &did);
        }
    };
    let lanes = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    std::thread::scope(|s| {
        let lanes: Vec<_> = (0..lanes.max(1)).map(|_| s.spawn(lane)).collect();
        lanes.into_iter().try_for_each(|l| l.join().unwrap_or_else(|_| bail!("a lane panicked")))
    })?;
    let all = all.into_inner().unwrap_or_else(|e| e.into_inner());
    if let Some(path) = &args.json {
        keep(path, &all)?;
    }
    let failures: u64 = all.values().map(|f| f.failures).sum();
    ensure!(failures == 0, "{failures} failures, see fuzz/artifacts");
    Ok(())
}

/// Names of the targets.
fn targets(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir.join("targets")).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        names.extend(path.file_stem().map(|n| n.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

fn cargo(dir: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    // No sanitizer: the engines forbid unsafe code, and without one it is several times as fast.
    command.args(["+nightly", "fuzz", words[0], "-s", "none"]).args(&words[1..]).current_dir(dir);
    command
}

fn fuzz(dir: &Path, name: &str, seconds: u64) -> Result<Figures> {
    let time = format!("-max_total_time={seconds}");
    let began = Instant::now();
    let out = cargo(dir, &["run", name, "--", &time, "-print_final_stats=1", "-timeout=60"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .context("cargo")?;
    let said = String::from_utf8_lossy(&out.stderr);
    let mut did = read(&said);
    did.seconds = began.elapsed().as_secs();
    if !out.status.success() {
        did.failures = 1;
        let lines: Vec<&str> = said.lines().collect();
        eprintln!("{}", lines[lines.len().saturating_sub(40)..].join("\n"));
    }
    Ok(did)
}

/// What libFuzzer says at its end.
fn read(said: &str) -> Figures {
    let stat = |key: &str| {
        let value = said.lines().rev().find_map(|l| l.strip_prefix(key)?.trim().parse().ok());
        value.unwrap_or(0)
    };
    let coverage = said.lines().rev().find_map(|l| l.split_once("cov: ")?.1.split(' ').next()?.parse().ok());
    Figures {
        executions: stat("stat::number_of_executed_units:"),
        peak_mib: stat("stat::peak_rss_mb:"),
        coverage: coverage.unwrap_or(0),
        ..Figures::default()
    }
}

fn add(to: &mut Figures, more: &Figures) {
    to.seconds += more.seconds;
    to.executions += more.executions;
    to.coverage = more.coverage.max(to.coverage);
    to.peak_mib = more.peak_mib.max(to.peak_mib);
    to.failures += more.failures;
}

/// Adds figures to a file.
fn keep(path: &Path, new: &Targets) -> Result<()> {
    let mut all: Targets = match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| path.display().to_string())?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Targets::new(),
        Err(e) => return Err(e).with_context(|| path.display().to_string()),
    };
    new.iter().for_each(|(name, figures)| add(all.entry(name.clone()).or_default(), figures));
    fs::write(path, serde_json::to_vec_pretty(&all)?).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libfuzzer_says_is_understood() {
        let said = "#8192 REDUCE cov: 1400 ft: 5000\n#9000 DONE cov: 1451 ft: 5210 corp: 9\n\
                    stat::number_of_executed_units: 9000\nstat::peak_rss_mb:              120\n";
        let read = read(said);
        assert_eq!((read.executions, read.coverage, read.peak_mib), (9000, 1451, 120));
    }

    #[test]
    fn figures_add_up_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.json");
        let one = Targets::from([("log".to_string(), Figures { seconds: 5, executions: 7, ..Figures::default() })]);
        keep(&path, &one).unwrap();
        keep(&path, &one).unwrap();
        let both: Targets = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!((both["log"].seconds, both["log"].executions), (10, 14));
    }
}
