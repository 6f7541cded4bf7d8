//! `cargo xtask show N`: the demonstrations, on real mounts, for anyone to repeat.
//!
//! | module | what it shows |
//! |---|---|
//! | `copy` | 2: a source tree extracted, compared after another mount, put under git |
//! | `crash` | 3: the server killed during an extraction, again and again |
//! | `names` | 4: a directory of a million names |
//! | `sparse` | 5: a volume of 1 TiB in a small file |
//! | `suites` | 6: pjdfstest and fsx |
//! | `crate::bench` | 7: small files, compared with ext4 and with what FUSE itself costs |
//! | `kit` | volumes and mounts that go away whatever happens, the interrupt, random numbers |
//! | `tree` | archives extracted, trees compared |
//!
//! Each works as a user does: by the `arbor` command, built for release, and system calls on the
//! mount. It prints what it measures, and ends with `show N: ok`, or `show N: FAILED` and why.

mod copy;
pub(crate) mod crash;
mod full;
pub(crate) mod kit;
mod names;
mod sparse;
pub(crate) mod suites;
pub(crate) mod tree;
mod wrap;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use kit::Kit;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Show on real mounts that it works.
///
/// 2: a large source tree, extracted, compared, put under git.
/// 3: the server killed during an extraction, twenty times.
/// 4: a directory of a million names.
/// 5: a volume of 1 TiB in a small file.
/// 6: pjdfstest and fsx.
/// 7: small files, compared with ext4.
/// 8: LFS, or another engine, on a volume that is written over ten times; with the server killed too.
/// 9: the same engine on a volume that is 90 % full.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask show", bin_name = "cargo xtask show", verbatim_doc_comment)]
struct Args {
    /// 2 to 9, or "all".
    #[arg(value_parser = which)]
    which: Which,
    /// A small scale: minutes become seconds, and 2 and 3 need no tarball.
    #[arg(long)]
    quick: bool,
    /// This `arbor`, instead of building it.
    #[arg(long, value_name = "PATH")]
    arbor: Option<PathBuf>,
    /// Work below this directory, instead of the system's for temporary files. Most shows need
    /// 6 to 8 GiB there.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Leave the work directory, with the image, for a look at it.
    #[arg(long)]
    keep: bool,
    /// 3 to 6, 8, 9: where the random numbers start; otherwise drawn, and printed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Volumes of this engine [default: the default of mkfs; 8 and 9: lfs].
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// Options of every mount, such as `transport=classic`.
    #[arg(long, value_name = "OPTIONS")]
    mount_options: Option<String>,
    /// 2, 3, 8: the tarball to extract; by default that of Debian's package linux-source-6.1.
    #[arg(long, value_name = "FILE")]
    tar: Option<PathBuf>,
    /// 3: how many times the server is killed [default: 20, or 3 with --quick].
    /// 8: how many times the volume is written over [default: 10, or 2 with --quick].
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// 8: only one half of it.
    #[arg(long)]
    half: Option<wrap::Half>,
    /// 4: how many names [default: 1000000, or 20000 with --quick].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1000..=10_000_000))]
    names: Option<u32>,
    /// 6: how many operations of fsx [default: 1000000, or 10000 with --quick].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..))]
    fsx_ops: Option<u32>,
    /// 6: where `pjdfstest` and `fsx` are; otherwise they are looked for in PATH, and installed
    /// below the user's cache directory if they are not there.
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,
    /// 7: a FUSE server that keeps all in memory, to compare with; see `cargo xtask bench --help`.
    #[arg(long, value_name = "PROGRAM")]
    floor: Option<PathBuf>,
    /// 7: write a page with tables and charts.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
enum Which {
    One(u32),
    All,
}

const FIRST: u32 = 2;
const LAST: u32 = 9;

fn which(text: &str) -> Result<Which, String> {
    if text == "all" {
        return Ok(Which::All);
    }
    match text.parse() {
        Ok(n @ FIRST..=LAST) => Ok(Which::One(n)),
        _ => Err(format!("not a number from {FIRST} to {LAST}, and not \"all\"")),
    }
}

/// Runs `cargo xtask show` with `words` after it.
pub(crate) fn run<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let args = Args::parse_from(["show"].into_iter().chain(words));
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    opened.context("/dev/fuse: the shows need FUSE")?;
    kit::watch_signals()?;
    let arbor = match &args.arbor {
        Some(path) => path.canonicalize().with_context(|| path.display().to_string())?,
        None => build()?,
    };
    let chosen = match args.which {
        Which::One(n) => n..=n,
        Which::All => FIRST..=LAST,
    };
    let mut failed = Vec::new();
    for number in chosen {
        let start = Instant::now();
        match show(number, &args, &arbor) {
            Ok(()) => println!("show {number}: ok ({:.0} s)", start.elapsed().as_secs_f64()),
            Err(e) => {
                println!("show {number}: FAILED: {e:#}");
                failed.push(number);
            }
        }
        if kit::go_on().is_err() {
            break;
        }
    }
    kit::go_on()?;
    ensure!(failed.is_empty(), "failed: {failed:?}");
    Ok(())
}

fn show(number: u32, args: &Args, arbor: &std::path::Path) -> Result<()> {
    if number == 7 {
        println!("show 7: small files, compared with ext4");
        let paths = [("--dir", &args.dir), ("--floor", &args.floor), ("--report", &args.report)];
        return crate::bench::show(arbor, args.quick, &paths.map(|(option, path)| (option, path.as_deref())));
    }
    let seed = args.seed.unwrap_or_else(kit::drawn_seed);
    let kit = Kit::new(&format!("show-{number}"), arbor, args.dir.as_deref(), args.keep)?;
    let engine = args.engine.as_deref().or((number >= 8).then_some("lfs"));
    let kit = kit.with_engine(engine).with_mount_options(args.mount_options.as_deref());
    match number {
        2 => copy::run(&kit, args.quick, args.tar.as_deref()),
        3 => {
            let rounds = args.rounds.unwrap_or(if args.quick { 3 } else { 20 });
            crash::run(&kit, args.quick, args.tar.as_deref(), rounds, seed)
        }
        4 => names::run(&kit, args.names.unwrap_or(if args.quick { 20_000 } else { 1_000_000 }), seed),
        5 => sparse::run(&kit, args.quick, seed),
        6 => {
            let operations = args.fsx_ops.unwrap_or(if args.quick { 10_000 } else { 1_000_000 });
            suites::run(&kit, args.tools.as_deref(), operations, seed)
        }
        8 => wrap::run(&kit, (args.quick, args.half), args.tar.as_deref(), args.rounds, seed),
        9 => full::run(&kit, args.quick, seed),
        _ => bail!("no such show"),
    }
}

/// Builds `arbor` and returns where it lies.
pub(crate) fn build() -> Result<PathBuf> {
    build_one("arbor-cli", "--bin", "arbor")
}

/// Builds a program of a package for release and returns where it lies.
pub(crate) fn build_one(package: &str, kind: &str, name: &str) -> Result<PathBuf> {
    println!("building {name} for release");
    let out = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["build", "--release", "--package", package, kind, name])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(crate::root())
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    ensure!(out.status.success(), "{name} does not build");
    let messages = String::from_utf8(out.stdout)?;
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut paths = artifacts.filter(|m| m["target"]["name"] == name).filter_map(|m| {
        let path = m["executable"].as_str()?;
        Some(PathBuf::from(path))
    });
    paths.next().context("cargo names no program")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
        assert!(which("1").is_err() && which("10").is_err() && which("all").is_ok());
    }
}
