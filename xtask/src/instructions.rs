//! `cargo xtask instructions`: what a small file costs each engine in instructions, which no other load of the machine
//! changes: made, looked up, read and deleted, by the library, without a mount.
//!
//! Each number is a difference of two runs under callgrind, this program once more (`instructions-part`), one with half
//! of the files: opening and closing, which do not go by files, drop out.

use crate::show::kit::{self, Kit, Running};
use anyhow::{Context, Result, bail, ensure};
use arboretum::Volume;
use clap::Parser;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Count the instructions of a created, looked-up, read and deleted small file. Needs valgrind.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask instructions", bin_name = "cargo xtask instructions")]
struct Args {
    /// Engines, instead of all.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    engine: Vec<String>,
    /// Files of each set.
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = clap::value_parser!(u32).range(100..))]
    files: u32,
    /// Work below this directory, instead of the system's for temporary files.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// All figures.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Files made or deleted between two syncs.
const SYNC: u32 = 1000;
const IMAGE: u64 = 1 << 30;
const SETS: [&str; 2] = ["0-250 bytes, one directory", "1 KiB, 100 a directory"];
const PHASES: [&str; 4] = ["create", "look up", "read", "delete"];

/// Instructions by phase, by engine, by set of files.
pub(crate) type Figures = BTreeMap<String, BTreeMap<String, BTreeMap<String, f64>>>;

/// Runs `cargo xtask instructions` with `words` after it.
pub(crate) fn run<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let mut args = Args::parse_from(["instructions"].into_iter().chain(words));
    if args.engine.is_empty() {
        args.engine = arboretum::engines().iter().map(|engine| engine.name().to_string()).collect();
    }
    ensure!(kit::in_path("valgrind").is_some(), "no valgrind: install it");
    for engine in &args.engine {
        ensure!(arboretum::engine(engine).is_some(), "no engine named {engine}");
    }
    kit::watch_signals()?;
    let kit = Kit::new("instructions", Path::new(""), args.dir.as_deref(), false)?;
    let mut all = Figures::new();
    for set in SETS {
        for engine in &args.engine {
            let figures = all.entry(set.into()).or_default().entry(engine.clone()).or_default();
            for phase in PHASES {
                let part = |files| Part { engine, set, phase, files, image: kit.path("image") };
                let count = a_file(&args, &part)?;
                eprintln!("{set}, {engine}, {phase}: {count:.0}");
                figures.insert(phase.into(), count);
            }
        }
    }
    print!("{}", table(&all));
    let json = serde_json::to_string_pretty(&all)? + "\n";
    args.json.map_or(Ok(()), |path| crate::write(&path, json.as_bytes()))
}

/// What one file of a phase takes. Phases after the first find all files.
fn a_file<'a>(args: &Args, part: &impl Fn(u32) -> Part<'a>) -> Result<f64> {
    let (all, half) = (args.files, args.files / 2);
    let counted = |files: u32| {
        let part = part(files);
        if part.phase != PHASES[0] {
            Part { phase: PHASES[0], files: all, ..part.clone() }.go()?;
        }
        part.under_callgrind()
    };
    Ok((counted(all)? as f64 - counted(half)? as f64) / f64::from(all - half))
}

/// One phase with some files of a set.
#[derive(Clone)]
struct Part<'a> {
    engine: &'a str,
    set: &'a str,
    phase: &'a str,
    files: u32,
    image: PathBuf,
}

impl Part<'_> {
    fn under_callgrind(&self) -> Result<u64> {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(std::env::current_exe()?);
        command.args(["instructions-part", self.engine, self.set, self.phase, &self.files.to_string()]);
        command.arg(&self.image).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = Running(command.spawn().context("valgrind")?);
        let mut said = String::new();
        child.0.stderr.take().context("no output")?.read_to_string(&mut said)?;
        let status = child.0.wait()?;
        kit::go_on()?;
        ensure!(status.success(), "{}, {}: {status}: {}", self.engine, self.phase, kit::tail(&said, 5));
        collected(&said).with_context(|| format!("callgrind has counted nothing: {}", kit::tail(&said, 5)))
    }

    fn go(&self) -> Result<()> {
        let how = Volume::options().engine(self.engine).overwrite(true);
        match self.phase {
            "create" => {
                let volume = how.format(&self.image, IMAGE)?;
                let mut dir = String::new();
                self.each(&volume, |n| {
                    let path = self.path(n);
                    let parent = path.rsplit_once('/').map_or("", |p| p.0);
                    if dir != parent {
                        dir = parent.into();
                        volume.create_dir(parent)?;
                    }
                    Ok(volume.write(&path, self.contents(n))?)
                })?;
                Ok(volume.close()?)
            }
            "look up" => {
                let volume = how.read_only(true).open(&self.image)?;
                self.each(&volume, |n| {
                    let len = volume.metadata(self.path(n))?.len();
                    ensure!(len == self.contents(n).len() as u64, "{} has {len} bytes", self.path(n));
                    Ok(())
                })
            }
            "read" => {
                let volume = how.read_only(true).open(&self.image)?;
                self.each(&volume, |n| {
                    let found = volume.read(self.path(n))?;
                    ensure!(found == self.contents(n), "{} differs", self.path(n));
                    Ok(())
                })
            }
            "delete" => {
                let volume = how.open(&self.image)?;
                self.each(&volume, |n| Ok(volume.remove_file(self.path(n))?))?;
                Ok(volume.close()?)
            }
            other => bail!("no phase named {other}"),
        }
    }

    /// Calls for each file; what is changed is synced after some.
    fn each(&self, volume: &Volume, mut call: impl FnMut(u32) -> Result<()>) -> Result<()> {
        let changes = matches!(self.phase, "create" | "delete");
        for n in 0..self.files {
            call(n)?;
            if changes && (n + 1) % SYNC == 0 {
                volume.sync()?;
            }
        }
        Ok(())
    }

    fn path(&self, n: u32) -> String {
        match self.set == SETS[0] {
            true => format!("dir/file{n:07}"),
            false => format!("dir{:03}/file{n:07}", n / 100),
        }
    }

    fn contents(&self, n: u32) -> Vec<u8> {
        let len = if self.set == SETS[0] { n.wrapping_mul(2_654_435_761) % 251 } else { 1024 };
        (0..len).map(|at| (n * 31 + at * 7) as u8).collect()
    }
}

/// The instructions that callgrind says it has counted.
fn collected(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok())
}

/// One part, in a process of its own.
pub(crate) fn part(words: &[&str]) -> Result<()> {
    let [engine, set, phase, files, image] = words else {
        bail!("instructions-part ENGINE SET PHASE FILES IMAGE");
    };
    Part { engine, set, phase, files: files.parse()?, image: image.into() }.go()
}

/// The figures as the tables of a document.
pub(crate) fn table(all: &Figures) -> String {
    let mut out = String::new();
    for (set, engines) in all {
        let names: Vec<&str> = engines.keys().map(String::as_str).collect();
        out += &format!("| {set} | {} |\n|---|{}\n", names.join(" | "), "---:|".repeat(names.len()));
        for phase in PHASES {
            let value = |engine: &&str| {
                let count = engines.get(*engine).and_then(|e| e.get(phase));
                count.map_or("-".into(), |n| crate::figures::number((n / 100.0).round() as u64 * 100))
            };
            out += &format!("| {phase} | {} |\n", names.iter().map(value).collect::<Vec<_>>().join(" | "));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
        assert_eq!(collected("==7== \n==7== Collected : 1234\n"), Some(1234));
        assert_eq!(collected("==7== Fatal"), None);
    }

    /// Each phase finds what the ones before left, with every engine.
    #[test]
    fn the_phases_go_through_their_files() {
        let dir = tempfile::tempdir().unwrap();
        for set in SETS {
            for engine in arboretum::engines().iter().map(|engine| engine.name()) {
                for phase in PHASES {
                    let image = dir.path().join("image");
                    Part { engine, set, phase, files: 120, image }.go().unwrap();
                }
            }
        }
    }

    #[test]
    fn a_table_has_all_phases() {
        let count = |n| PHASES.iter().map(|p| (p.to_string(), n)).collect::<BTreeMap<_, _>>();
        let engines = BTreeMap::from([("lfs".to_string(), count(12_345.0)), ("yfs".to_string(), count(649.0))]);
        let text = table(&Figures::from([("set".into(), engines)]));
        assert!(text.starts_with("| set | lfs | yfs |\n|---|---:|---:|\n| create | 12,300 | 600 |\n"), "{text}");
        assert_eq!(text.lines().filter(|l| l.starts_with("| ")).count(), 5);
    }
}
