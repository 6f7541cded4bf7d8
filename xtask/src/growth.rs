//! `cargo xtask growth`: what operations cost as volumes grow: with the files in them, the names of a
//! directory, the extents of a file, the size of the image, and the cache.
//!
//! | module | what it does |
//! |---|---|
//! | `series` | the series: sizes, and the stages that each point goes through |
//! | `point` | what the measuring of a point needs |
//! | `record` | the figures, as JSON; how a curve grows |
//! | `report` | tables, and a page with charts |
//!
//! It uses the library, without a mount. Each stage of each point is a process of its own, which is
//! this program once more (`growth-part`), because the peak of memory belongs to a process.

pub(crate) mod point;
pub(crate) mod record;
pub(crate) mod report;
mod series;

use crate::bench::machine::{self, Machine};
use crate::show::kit::{self, Kit, Running};
use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use point::{GIB, Point};
use record::{Figure, Record, Series};
use rustix::process::{Pid, PidfdFlags};
use series::{Def, Stage};
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Measure how costs grow with the number of files, of names in a directory, of extents in a file,
/// with the size of the image and of the cache.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask growth", bin_name = "cargo xtask growth", after_help = record::RULE)]
struct Args {
    /// Smaller sizes, in a minute.
    #[arg(long)]
    quick: bool,
    /// Only these series: files, directory, extents, image, cache.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = series::named_or_error)]
    only: Vec<&'static Def>,
    #[arg(long, value_name = "NAME", default_value = "yfs")]
    engine: String,
    /// Work below this directory, instead of the system's for temporary files. It needs 8 GiB, with
    /// --quick 1 GiB, and files of 10 TiB, which are sparse.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// All figures.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A page with tables and charts.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Runs `cargo xtask growth` with `words` after it.
pub(crate) fn run<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let args = Args::parse_from(["growth"].into_iter().chain(words));
    ensure!(arboretum::engine(&args.engine).is_some(), "no engine named {}", args.engine);
    kit::watch_signals()?;
    let kit = Kit::new("growth", Path::new(""), args.dir.as_deref(), false)?;
    kit.need_space(if args.quick { GIB } else { 8 * GIB })?;
    let mut record = Record {
        machine: Machine::here(&kit.path("")),
        engine: args.engine.clone(),
        quick: args.quick,
        load: machine::load(),
        series: Vec::new(),
        notes: Vec::new(),
    };
    let result = all(&args, &kit, &mut record);
    if result.is_err() {
        record.notes.push("not run to its end".into());
    }
    print!("{}", report::text(&record));
    crate::write_figures(&record, args.json.as_deref(), report::html(&record), args.report.as_deref())?;
    result?;
    ensure!(record.notes.is_empty(), "not complete: {}", record.notes.join("; "));
    Ok(())
}

fn all(args: &Args, kit: &Kit, record: &mut Record) -> Result<()> {
    for def in series::ALL.iter().filter(|def| args.only.is_empty() || args.only.iter().any(|o| o.name == def.name)) {
        record.series.push(Series { name: def.name.into(), metrics: Vec::new() });
        for &size in if args.quick { def.quick } else { def.sizes } {
            let start = Instant::now();
            let mut point = Point {
                image: kit.path("image"),
                size,
                engine: args.engine.clone(),
                is_quick: args.quick,
                cache_mib: (def.name == "cache").then_some(size),
                figures: Vec::new(),
            };
            let result = measure(def, &mut point);
            kit::go_on()?;
            if let Some(series) = record.series.last_mut() {
                series.add(size, point.figures);
            }
            let outcome = match result {
                Ok(()) => "done".into(),
                Err(e) => {
                    record.notes.push(format!("{}, {}: {e:#}", def.name, def.label(size)));
                    format!("FAILED: {e:#}")
                }
            };
            eprintln!("{}, {}: {outcome} in {:.1} s", def.name, def.label(size), start.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

/// All stages of one point; what was measured before an error is in the point.
fn measure(def: &Def, point: &mut Point) -> Result<()> {
    let result = def.stages.iter().try_for_each(|stage| {
        let figures = in_child(def, stage, point).with_context(|| stage.name)?;
        point.figures.extend(figures);
        Ok(())
    });
    match fs::remove_file(&point.image) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => result.and(Err(e.into())),
        _ => result,
    }
}

/// Runs a stage in a process that does not outlive an interrupt.
fn in_child(def: &Def, stage: &Stage, point: &Point) -> Result<Vec<Figure>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(part_words(point, def.name, stage.name)).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = Running(command.spawn()?);
    let process = rustix::process::pidfd_open(Pid::from_child(&child.0), PidfdFlags::empty())?;
    while !kit::has_ended(&process, Duration::from_millis(200))? {
        kit::go_on()?;
    }
    let status = child.0.wait()?;
    if stage.dies {
        ensure!(status.signal() == Some(rustix::process::Signal::KILL.as_raw()), "{status}");
        return Ok(Vec::new());
    }
    ensure!(status.success(), "{status}");
    let mut said = String::new();
    child.0.stdout.take().context("no output")?.read_to_string(&mut said)?;
    Ok(serde_json::from_str(&said)?)
}

/// How this program is told to go through a stage.
fn part_words(point: &Point, series: &str, stage: &str) -> [std::ffi::OsString; 7] {
    let quick = if point.is_quick { "quick" } else { "full" };
    let image = point.image.clone().into_os_string();
    [
        "growth-part".into(),
        series.into(),
        stage.into(),
        point.size.to_string().into(),
        point.engine.clone().into(),
        quick.into(),
        image,
    ]
}

/// One stage of one point; prints what it has measured.
pub(crate) fn part(words: &[&str]) -> Result<()> {
    let [series, stage, size, engine, quick, image] = words else {
        bail!("growth-part SERIES STAGE SIZE ENGINE quick|full IMAGE")
    };
    let def = series::named(series).context("no such series")?;
    let stage = def.stages.iter().find(|s| s.name == *stage).context("no such stage")?;
    let size = size.parse()?;
    let mut point = Point {
        image: image.into(),
        size,
        engine: (*engine).into(),
        is_quick: *quick == "quick",
        cache_mib: (def.name == "cache").then_some(size),
        figures: Vec::new(),
    };
    (stage.run)(&mut point)?;
    println!("{}", serde_json::to_string(&point.figures)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
        let args = |words: &str| Args::try_parse_from(words.split(' '));
        assert!(args("growth --only nothing").is_err());
        let args = args("growth --quick --only files,cache").unwrap();
        assert_eq!(args.only.iter().map(|d| d.name).collect::<Vec<_>>(), ["files", "cache"]);
    }

    #[test]
    fn sizes_ascend_and_stages_have_names_of_their_own() {
        for def in series::ALL {
            assert!(def.sizes.is_sorted() && def.quick.is_sorted() && def.quick.len() > 2, "{}", def.name);
            let mut names: Vec<&str> = def.stages.iter().map(|s| s.name).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{}", def.name);
        }
    }

    /// The smallest sizes, each stage in this process.
    #[test]
    fn points_are_measured() {
        let dir = tempfile::tempdir().unwrap();
        for (name, size) in [("directory", 10), ("extents", 10), ("image", 1)] {
            let def = series::named(name).unwrap();
            let image = dir.path().join(name);
            let mut point =
                Point { image, size, engine: "yfs".into(), is_quick: true, cache_mib: None, figures: Vec::new() };
            for stage in def.stages {
                (stage.run)(&mut point).unwrap();
            }
            assert!(point.figures.len() > 10, "{name}");
            assert!(point.figures.iter().all(|(_, _, value)| *value >= 0.0), "{:?}", point.figures);
        }
    }
}
