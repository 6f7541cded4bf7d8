//! `cargo xtask bench --mounted`: mounts compared with those of other file systems, and with what
//! FUSE itself costs.
//!
//! | module | what it does |
//! |---|---|
//! | `machine` | the machine, and the state of its idle processors |
//! | `system` | file systems: made, mounted, taken off |
//! | `work` | the workloads W1 to W7 |
//! | `record` | the figures, as JSON; medians |
//! | `report` | the table, and a page with charts |
//!
//! In each round each file system has its turn, one after another, and the order rotates, so that
//! what changes on the machine meanwhile meets all of them. `docs/performance.md` says how to read
//! the figures.

pub(crate) mod machine;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod system;
mod work;

pub(crate) use system::of_process;
pub(crate) use work::part;

use crate::show::{self, kit};
use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use kit::Kit;
use machine::{HaltPoll, Machine, State};
use record::{Record, Run, Settings};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use system::{Place, System, Volume};
use work::Scale;

/// What the floor can do best over /dev/fuse.
const TUNED: &str = "ttl=86400,rdplus,keep,noflush,noopendir,noopen,nocreate,spin=100";

/// Compare mounts: the engines of the house, other file systems, and a FUSE server that keeps all
/// in memory.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Args {
    /// Through mounts; the only kind so far.
    #[arg(long, required = true)]
    mounted: bool,
    /// Engines of the house; ratios are to the first.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "yfs")]
    engine: Vec<String>,
    /// Other file systems: ext2, ext3, ext4, xfs, btrfs (on a loop device), fuse2fs, tmpfs, memfs. What
    /// the machine lacks is left out.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "ext4")]
    peer: Vec<String>,
    /// A FUSE server that keeps all in memory, started as PROGRAM DIR OPTIONS with FLOOR_ONCE=1; it
    /// ends when DIR is unmounted.
    #[arg(long, value_name = "PROGRAM")]
    floor: Option<PathBuf>,
    /// Its options.
    #[arg(long, value_name = "OPTIONS", default_value = TUNED)]
    floor_options: String,
    /// W1 to W7.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "W1,W2", value_parser = work::ALL)]
    workload: Vec<String>,
    /// Files of W1, W2 and W7; the numbers of W3, W4 and W6 follow in proportion.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    files: u32,
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Idle processors of a virtual machine halt at once (h0) or poll a little first (h1); that is
    /// set for the run and put back after it.
    #[arg(long, value_enum, default_value_t = States::Both)]
    state: States,
    /// This `arbor`, instead of building it.
    #[arg(long, value_name = "PATH")]
    arbor: Option<PathBuf>,
    /// Options of the engines' mounts.
    #[arg(long, value_name = "OPTIONS")]
    mount_options: Option<String>,
    /// Work below this directory, instead of the system's for temporary files.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Size of the images, which are sparse.
    #[arg(long, value_name = "GIB", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    image: u64,
    /// W5: the tarball; by default that of Debian's package linux-source-6.1.
    #[arg(long, value_name = "FILE")]
    tar: Option<PathBuf>,
    /// A phase that takes longer is given up.
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    limit: u64,
    /// All figures.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A page with tables and charts.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum States {
    H0,
    H1,
    Both,
    /// Change nothing.
    Found,
}

/// Runs `cargo xtask bench` with `words` after it.
pub(crate) fn run<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let args = Args::parse_from(["bench"].into_iter().chain(words));
    kit::watch_signals()?;
    let arbor = match &args.arbor {
        Some(path) => path.canonicalize().with_context(|| path.display().to_string())?,
        None => show::build()?,
    };
    compare(&args, &arbor)
}

/// What show 7 asks for.
pub(crate) fn show(arbor: &Path, quick: bool, more: &[(&str, Option<&Path>)]) -> Result<()> {
    let mut words: Vec<&str> = vec!["bench", "--mounted"];
    if quick {
        words.extend(["--files", "5000", "--rounds", "1"]);
    }
    let paths = more.iter().filter_map(|(option, path)| Some((*option, path.as_ref()?.to_str()?)));
    words.extend(paths.flat_map(|(option, path)| [option, path]));
    compare(&Args::try_parse_from(words)?, arbor)
}

fn compare(args: &Args, arbor: &Path) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "only root can mount peers and drop caches");
    let kit = Kit::new("bench", arbor, args.dir.as_deref(), false)?;
    let floor = match &args.floor {
        Some(path) => Some(path.canonicalize().with_context(|| path.display().to_string())?),
        None => None,
    };
    let (systems, mut notes) = systems(args)?;
    let memfs = match systems.contains(&System::Memfs) {
        true => Some(show::build_one("arbor-fuse", "--example", "memfs")?),
        false => None,
    };
    let (workloads, scale) = workloads(args, &kit, &mut notes)?;
    let place = Place {
        kit: &kit,
        image_gib: args.image,
        mount_options: args.mount_options.as_deref(),
        floor: floor.as_deref(),
        floor_options: &args.floor_options,
        memfs: memfs.as_deref(),
        has_stats: kit.output(["stats", "--help"]).is_some(),
    };
    let mut record = Record {
        machine: Machine::here(&kit.path("")),
        settings: Settings {
            files: args.files,
            rounds: args.rounds,
            image_gib: args.image,
            workloads,
            systems: systems.iter().map(|s| s.name().to_owned()).collect(),
            engines: args.engine.len(),
            mount_options: args.mount_options.clone(),
            floor_options: floor.is_some().then(|| args.floor_options.clone()),
        },
        states: Vec::new(),
        runs: Vec::new(),
        notes,
    };
    for note in &record.notes {
        eprintln!("NOTE {note}");
    }
    let result = in_all_states(args, &place, &systems, &scale, &mut record);
    if result.is_err() {
        record.notes.push("not run to its end".into());
    }
    print!("{}", report::text(&record));
    crate::write_figures(&record, args.json.as_deref(), report::html(&record), args.report.as_deref())?;
    result?;
    let ours = |run: &&Run| run.failure.is_some() && args.engine.contains(&run.system);
    let failed = record.runs.iter().filter(ours).count();
    ensure!(failed == 0, "{failed} runs of the house's engines failed");
    Ok(())
}

/// The file systems to compare, and what is left out.
fn systems(args: &Args) -> Result<(Vec<System>, Vec<String>)> {
    let mut systems: Vec<System> = args.engine.iter().cloned().map(System::Engine).collect();
    let mut notes = Vec::new();
    for name in args.peer.iter().filter(|name| !name.is_empty()) {
        let peer = System::peer(name)?;
        match peer.missing() {
            Some(what) => notes.push(format!("{name} is left out: {what}")),
            None => systems.push(peer),
        }
    }
    systems.extend(args.floor.is_some().then_some(System::Floor));
    Ok((systems, notes))
}

/// The workloads that can be run here.
fn workloads(args: &Args, kit: &Kit, notes: &mut Vec<String>) -> Result<(Vec<String>, Scale)> {
    let mut scale = Scale { files: args.files, limit: Duration::from_secs(args.limit), tar: None };
    let mut workloads = Vec::new();
    for name in &args.workload {
        let missing = match name.as_str() {
            "W4" if kit::in_path("postmark").is_none() => Some("no postmark; Debian's package brings it".to_owned()),
            "W5" => match show::tree::tarball(args.tar.as_deref()).and_then(|tar| unpacked(kit, &tar)) {
                Ok(tar) => {
                    scale.tar = Some(tar);
                    None
                }
                Err(e) if args.tar.is_some() => return Err(e),
                Err(e) => Some(format!("{e:#}")),
            },
            _ => None,
        };
        match missing {
            Some(what) => notes.push(format!("{name} is left out: {what}")),
            None => workloads.push(name.clone()),
        }
    }
    Ok((workloads, scale))
}

/// The archive without compression, which would be most of the work.
fn unpacked(kit: &Kit, tar: &Path) -> Result<PathBuf> {
    let tool = match tar.extension().and_then(|e| e.to_str()) {
        Some("xz" | "txz") => "xz",
        Some("gz" | "tgz") => "gzip",
        Some("bz2") => "bzip2",
        Some("zst") => "zstd",
        _ => return Ok(tar.to_path_buf()),
    };
    let plain = kit.path("plain.tar");
    let file = std::fs::File::create(&plain)?;
    let status = Command::new(tool).arg("-dc").arg(tar).stdout(file).status().context(tool)?;
    ensure!(status.success(), "{tool}: {status}");
    Ok(plain)
}

fn in_all_states(args: &Args, place: &Place<'_>, systems: &[System], scale: &Scale, record: &mut Record) -> Result<()> {
    const H0: (&str, u32) = ("H0", 0);
    const H1: (&str, u32) = ("H1", 200_000);
    let wanted: &[(&str, u32)] = match args.state {
        States::H0 => &[H0],
        States::H1 => &[H1],
        States::Both => &[H0, H1],
        States::Found => &[],
    };
    // Alive for as long as the states are to hold.
    let poll = if wanted.is_empty() { None } else { Some(HaltPoll::new()) };
    match poll {
        Some(Ok(poll)) => {
            for (name, ns) in wanted {
                poll.set(*ns)?;
                in_state(args, place, systems, scale, record, name)?;
            }
            Ok(())
        }
        Some(Err(e)) => {
            let note = format!("the state cannot be chosen: {e:#}");
            eprintln!("NOTE {note}");
            record.notes.push(note);
            in_state(args, place, systems, scale, record, "as found")
        }
        None => in_state(args, place, systems, scale, record, "as found"),
    }
}

fn in_state(
    args: &Args,
    place: &Place<'_>,
    systems: &[System],
    scale: &Scale,
    record: &mut Record,
    name: &str,
) -> Result<()> {
    let state = State::measured(name)?;
    eprintln!("state {name}: pipe ping-pong {} us, load {:.2}", report::figure(state.ping_pong_us), state.load);
    record.states.push(state);
    for round in 1..=args.rounds {
        for (nth, workload) in record.settings.workloads.clone().into_iter().enumerate() {
            for i in 0..systems.len() {
                kit::go_on()?;
                let system = &systems[(i + nth + round as usize - 1) % systems.len()];
                let run = one(place, system, scale, name, round, &workload);
                if let Some(failure) = &run.failure {
                    eprintln!("{name} round {round} {workload} {}: FAILED: {failure}", system.name());
                }
                record.runs.push(run);
            }
        }
    }
    kit::go_on()
}

/// One workload on a new file system.
fn one(place: &Place<'_>, system: &System, scale: &Scale, state: &str, round: u32, workload: &str) -> Run {
    let mut run = Run {
        state: state.into(),
        round,
        system: system.name().into(),
        workload: workload.into(),
        phases: Vec::new(),
        peak_memory: None,
        image_bytes: None,
        used_bytes: None,
        failure: None,
    };
    let result = Volume::new(place, system).and_then(|mut volume| {
        // What others have left to write is not to be measured.
        rustix::fs::sync();
        work::run(&mut volume, scale, &mut run)
    });
    run.failure = result.err().map(|e| format!("{e:#}"));
    run
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
        let args = |words: &str| Args::try_parse_from(words.split(' '));
        assert!(args("bench").is_err() && args("bench --mounted --workload W8").is_err());
        let args = args("bench --mounted --peer ext4,xfs --workload W1,W7 --state h0").unwrap();
        assert_eq!((args.peer.len(), args.workload.len(), args.state), (2, 2, States::H0));
        assert_eq!((args.files, args.rounds, args.engine), (100_000, 3, vec!["yfs".to_owned()]));
    }

    #[test]
    fn what_show_7_asks_for_is_understood() {
        let words =
            ["bench", "--mounted", "--files", "5000", "--rounds", "1", "--floor", "floor", "--report", "r.html"];
        let args = Args::try_parse_from(words).unwrap();
        assert_eq!(args.workload, ["W1", "W2"]);
        assert_eq!((args.peer, args.state), (vec!["ext4".to_owned()], States::Both));
    }
}
