//! Tables of what the long runs have counted. Each run leaves a file in `docs/figures`:
//! `torture-ENGINE-PART.json` by `arbor torture --json` (`torture-ENGINE-PART-K.json` of a share), `planted.json` by the test of planted mistakes,
//! `fuzz.json` by `cargo xtask fuzz --json`, `mounted.json`,
//! `mounted-engines.json` and `mounted-tree.json` by `cargo xtask bench --mounted --json`,
//! `small-files.json` by `cargo bench -- --json`, `instructions.json` by `cargo xtask instructions --json`, `growth.json`
//! (yFS) and `growth-ENGINE.json` by `cargo xtask growth --json`.

use crate::bench::{record::Record, report};
use crate::fuzz::Targets;
use crate::growth;
use crate::layout::Tables;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// As `arbor torture --json` writes it.
#[derive(Deserialize)]
struct Torture {
    engine: String,
    seed: u64,
    sequences: u64,
    crash_states: u64,
    distinct_states: u64,
    faults: u64,
    mutants: u64,
    schedules: u64,
    failures: u64,
    seconds: f64,
    #[serde(default)]
    interrupted: bool,
    /// One of several that add up: `2/8`.
    share: Option<String>,
}

impl Torture {
    /// Adds the counts of another share.
    fn add(&mut self, other: &Torture) {
        self.sequences += other.sequences;
        self.crash_states += other.crash_states;
        self.distinct_states += other.distinct_states;
        self.failures += other.failures;
        self.seconds += other.seconds;
    }
}

/// As the test of planted mistakes writes it.
#[derive(Deserialize)]
struct Planted {
    mistake: String,
    text: String,
    found: u64,
    tried: u64,
    what: String,
}

/// The tables of `docs/testing.md`.
pub(crate) fn tables(dir: &Path) -> Result<Tables> {
    Ok(Tables::from([
        ("torture".to_string(), torture(dir)?),
        ("fuzz".to_string(), fuzz(&read(&dir.join("fuzz.json"))?)?),
        ("planted".to_string(), planted(&read::<Vec<Planted>>(&dir.join("planted.json"))?)?),
    ]))
}

/// Seconds or bytes of the rounds, by phase, by store, by set of files: as the benchmark writes it.
type SmallFiles = BTreeMap<String, BTreeMap<String, BTreeMap<String, Vec<f64>>>>;

/// The tables of `docs/performance.md`.
pub(crate) fn performance(dir: &Path) -> Result<Tables> {
    let mounted: Record = read(&dir.join("mounted.json"))?;
    let engines: Record = read(&dir.join("mounted-engines.json"))?;
    let tree: Record = read(&dir.join("mounted-tree.json"))?;
    let growth: growth::record::Record = read(&dir.join("growth.json"))?;
    let mut siblings = vec![growth.clone()];
    for name in names(dir)?.iter().filter(|name| name.starts_with("growth-")) {
        siblings.push(read(&dir.join(name))?);
    }
    Ok(Tables::from([
        ("mounted".to_string(), format!("```text\n{}```\n", report::text(&mounted))),
        ("mounted-engines".to_string(), format!("```text\n{}```\n", report::text(&engines))),
        ("mounted-tree".to_string(), format!("```text\n{}```\n", report::text(&tree))),
        ("growth".to_string(), format!("```text\n{}```\n", growth::report::text(&growth))),
        ("growth-engines".to_string(), growth::report::side_by_side(&siblings)),
        ("instructions".to_string(), crate::instructions::table(&read(&dir.join("instructions.json"))?)),
        ("small-files".to_string(), small_files(&read(&dir.join("small-files.json"))?)?),
    ]))
}

fn small_files(sets: &SmallFiles) -> Result<String> {
    let mut out = String::new();
    for (set, stores) in sets {
        let names: Vec<&str> = stores.keys().map(String::as_str).collect();
        writeln!(out, "| {set} | {} |\n|---|{}", names.join(" | "), "---:|".repeat(names.len()))?;
        for phase in ["create", "stat, cold", "read, cold", "delete", "space"] {
            let value = |store: &&str| {
                let mut rounds = stores[*store].get(phase).cloned().unwrap_or_default();
                rounds.sort_by(f64::total_cmp);
                let median = rounds.get(rounds.len() / 2).copied().unwrap_or(f64::NAN);
                if phase == "space" { format!("{:.0} MB", median / 1e6) } else { report::figure(median) }
            };
            writeln!(out, "| {phase} | {} |", names.iter().map(value).collect::<Vec<_>>().join(" | "))?;
        }
        out.push('\n');
    }
    Ok(out)
}

/// The files of a directory, sorted.
fn names(dir: &Path) -> Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .with_context(|| dir.display().to_string())?
        .map(|e| e.map(|e| e.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_, _>>()?;
    names.sort();
    Ok(names)
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&bytes).with_context(|| path.display().to_string())
}

fn torture(dir: &Path) -> Result<String> {
    let mut out = "| part | engine | seed | sequences | crash states | distinct | faults | mutants | schedules | \
                   failures | minutes |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        .to_string();
    for ((_, part, _), Runs { counts: t, shares }) in &runs(dir)? {
        let counts =
            [t.sequences, t.crash_states, t.distinct_states, t.faults, t.mutants, t.schedules, t.failures].map(number);
        let of = shares.first().and_then(|s| s.split_once('/')).map(|(_, of)| of);
        let shares = of.map(|of| format!(", {} of {of} shares", shares.len())).unwrap_or_default();
        writeln!(
            out,
            "| {part}{shares} | {} | {} | {} | {:.0} |",
            t.engine,
            t.seed,
            counts.join(" | "),
            (t.seconds / 60.0).ceil()
        )?;
    }
    Ok(out)
}

/// Runs that add up, and which shares they are if they are not the whole.
struct Runs {
    counts: Torture,
    shares: Vec<String>,
}

/// The runs by engine, part and seed.
fn runs(dir: &Path) -> Result<BTreeMap<(String, String, u64), Runs>> {
    let mut all = BTreeMap::<_, Runs>::new();
    for name in names(dir)? {
        let run = name.strip_prefix("torture-").and_then(|n| n.strip_suffix(".json"));
        let Some(part) = run.and_then(|run| run.split('-').nth(1)) else { continue };
        let t: Torture = read(&dir.join(&name))?;
        ensure!(!t.interrupted, "{name}: an interrupted run");
        match all.entry((t.engine.clone(), part.to_string(), t.seed)) {
            Entry::Vacant(new) => {
                new.insert(Runs { shares: Vec::from_iter(t.share.clone()), counts: t });
            }
            Entry::Occupied(mut known) => known.get_mut().add(&t).with_context(|| name)?,
        }
    }
    Ok(all)
}

impl Runs {
    fn add(&mut self, t: &Torture) -> Result<()> {
        let of = |share: &str| share.split_once('/').map(|(_, of)| of.to_string());
        let share = t.share.as_ref().context("the same run twice, and neither says which share it is")?;
        ensure!(
            self.shares.iter().all(|s| s != share && of(s) == of(share)),
            "share {share} does not go with the others"
        );
        self.shares.push(share.clone());
        self.counts.add(t);
        Ok(())
    }
}

fn fuzz(targets: &Targets) -> Result<String> {
    let mut out =
        "| target | minutes | executions | edges | peak MiB | failures |\n|---|---:|---:|---:|---:|---:|\n".to_string();
    let mut seconds = 0;
    for (name, f) in targets {
        seconds += f.seconds;
        let counts = [f.seconds / 60, f.executions, f.coverage, f.peak_mib, f.failures].map(number);
        writeln!(out, "| {name} | {} |", counts.join(" | "))?;
    }
    writeln!(out, "| all | {} | | | | |", seconds / 60)?;
    Ok(out)
}

fn planted(all: &[Planted]) -> Result<String> {
    let mut out = "| mistake | | found in | of |\n|---|---|---:|---:|\n".to_string();
    for p in all {
        writeln!(out, "| `{}` | {} | {} | {} {} |", p.mistake, p.text, number(p.found), number(p.tried), p.what)?;
    }
    Ok(out)
}

/// A number with commas.
pub(crate) fn number(n: u64) -> String {
    let digits = n.to_string();
    let head = digits.len() % 3;
    let mut out = digits[..head].to_string();
    for chunk in digits.as_bytes()[head..].chunks(3) {
        if !out.is_empty() {
            out.push(',');
        }
        out += &String::from_utf8_lossy(chunk);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        assert_eq!([0, 12, 123, 1234, 1_234_567].map(number), ["0", "12", "123", "1,234", "1,234,567"]);
    }
}
