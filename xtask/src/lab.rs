//! `cargo xtask lab`: runs the laboratory's experiments, and makes the tables and pictures of `docs/lab.md` from them.
//!
//! The rows stay in `docs/figures/lab.json`, and `cargo xtask docs` makes from them what rows are enough for: the
//! tables and the pictures of ratios and times. Those of requests and of the disk, in `docs/lab` like the others, are
//! made by a run only.

use crate::{root, write, write_pages};
use anyhow::{Context, Result, anyhow, ensure};
use arbor_bench::rows::comparable;
use arbor_bench::{Figures, Row, from_json};
use clap::Parser;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run experiments of the laboratory, and fill docs/lab.md and docs/lab.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask lab", bin_name = "cargo xtask lab")]
struct Args {
    /// Run only these; the figures of all others stay as they are [default: all].
    #[arg(value_name = "EXPERIMENT", conflicts_with = "no_run")]
    experiments: Vec<String>,
    /// Add rows that were measured elsewhere, as `arbor lab run --json` writes them.
    #[arg(long, value_name = "FILE.json", num_args = 1..)]
    rows: Vec<PathBuf>,
    /// Take rows of some subjects, as `arbor lab run --json` writes them, in the place of those of an earlier run: for subjects
    /// that have changed.
    #[arg(long, value_name = "FILE.json", num_args = 1.., requires = "no_run")]
    renew: Vec<PathBuf>,
    /// Take whole experiments, with their pictures, in the place of those of an earlier run, as `arbor lab run --figures` writes them.
    #[arg(long, value_name = "DIR", num_args = 1.., requires = "no_run")]
    take: Vec<PathBuf>,
    /// Run nothing: take the rows of the last run. The pictures of requests and of the disk stay as they are.
    #[arg(long, conflicts_with = "more")]
    no_run: bool,
    /// Further arguments of `arbor lab run`, after `--`.
    #[arg(last = true, value_name = "ARGUMENTS")]
    more: Vec<OsString>,
}

/// Where the rows are kept.
const FIGURES: &str = "docs/figures/lab.json";
/// Where the pictures are.
const PICTURES: &str = "docs/lab";

/// Runs `cargo xtask lab` with `words` after it.
pub(crate) fn run<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let args = Args::parse_from(["lab"].into_iter().chain(words));
    let path = root().join(FIGURES);
    let mut kept = figures(&root())?;
    if args.no_run {
        for dir in &args.take {
            kept = kept.join(taken(dir)?);
        }
        kept = kept.clone().with(&rows(&args.rows, &kept)?).renewed(&rows(&args.renew, &kept)?);
        return write(&path, kept.to_json()?.as_bytes()).and_then(|()| drawn());
    }
    let all = ["all".to_string()];
    for name in if args.experiments.is_empty() { &all[..] } else { &args.experiments } {
        let made = tempfile::tempdir()?;
        measure(name, &args, made.path())?;
        kept = kept.join(taken(made.path())?);
        write(&path, kept.to_json()?.as_bytes())?;
    }
    drawn()
}

/// The figures in a directory of `arbor lab run --figures`; its pictures take the place of the old ones.
fn taken(dir: &Path) -> Result<Figures> {
    let file = dir.join("figures.json");
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let new = Figures::from_json(&text)?;
    replace_pictures(dir, &root().join(PICTURES), &new)?;
    Ok(new)
}

fn drawn() -> Result<()> {
    write_drawings()?;
    write_pages()
}

fn measure(experiment: &str, args: &Args, dir: &Path) -> Result<()> {
    let mut words: Vec<OsString> = ["arbor", "lab", "run", experiment, "--figures"].map(OsString::from).into();
    words.push(dir.into());
    words.extend(args.rows.iter().flat_map(|file| ["--rows".into(), file.clone().into_os_string()]));
    words.extend(args.more.iter().cloned());
    ensure!(arbor_cli::main(words) == ExitCode::SUCCESS, "not all was measured; nothing is changed");
    Ok(())
}

/// Puts the pictures of a run in the place of those of the same experiments.
fn replace_pictures(from: &Path, to: &Path, new: &Figures) -> Result<()> {
    fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    let is_new = |picture: &&String| {
        let experiment = picture.rsplit_once('-').map_or("", |(name, _)| name);
        new.setting(experiment).is_some()
    };
    for old in pictures(to)?.iter().filter(is_new) {
        fs::remove_file(to.join(old)).with_context(|| old.clone())?;
    }
    for new in pictures(from)? {
        fs::copy(from.join(&new), to.join(&new)).context(new)?;
    }
    Ok(())
}

/// Names of the pictures in a directory.
fn pictures(dir: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let names = entries.map(|e| e.map(|e| e.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect::<Result<_, _>>()?;
    names.retain(|name| name.ends_with(".svg"));
    names.sort();
    Ok(names)
}

/// Rows of files, if they were measured as those that are kept.
fn rows(files: &[PathBuf], kept: &Figures) -> Result<Vec<Row>> {
    let one = |path: &PathBuf| -> Result<Vec<Row>> {
        let rows = from_json(&fs::read_to_string(path)?).map_err(|e| anyhow!(e))?;
        for row in &rows {
            let here = kept.setting(&row.experiment).and_then(|s| s.conditions.as_ref());
            let here = here.with_context(|| format!("{FIGURES} has nothing of {}", row.experiment))?;
            comparable(std::slice::from_ref(row), here).map_err(|e| anyhow!(e))?;
        }
        Ok(rows)
    };
    let all: Vec<Vec<Row>> =
        files.iter().map(|path| one(path).with_context(|| path.display().to_string())).collect::<Result<_>>()?;
    Ok(all.concat())
}

fn figures(root: &Path) -> Result<Figures> {
    let text = fs::read_to_string(root.join(FIGURES)).context(FIGURES)?;
    Figures::from_json(&text).context(FIGURES)
}

/// The tables of `docs/lab.md`.
pub(crate) fn tables(root: &Path) -> Result<BTreeMap<String, String>> {
    Ok(figures(root)?.tables())
}

/// The pictures that rows are enough for: path and content.
fn drawings() -> Result<Vec<(PathBuf, String)>> {
    let drawings = figures(&root())?.drawings(&[]);
    Ok(drawings.into_iter().map(|d| (Path::new(PICTURES).join(d.name + ".svg"), d.svg)).collect())
}

/// Writes the pictures that rows are enough for.
pub(crate) fn write_drawings() -> Result<()> {
    drawings()?.into_iter().try_for_each(|(path, svg)| write(&root().join(path), svg.as_bytes()))
}

/// Those of them that are not as [`write_drawings`] makes them.
pub(crate) fn stale() -> Result<Vec<PathBuf>> {
    let differs = |(path, svg): &(PathBuf, String)| fs::read(root().join(path)).ok().as_deref() != Some(svg.as_bytes());
    Ok(drawings()?.into_iter().filter(differs).map(|(path, _)| path).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
        let args = Args::try_parse_from(["lab", "--rows", "a", "b", "--", "--runs", "3"]).unwrap();
        assert_eq!((args.rows.len(), args.more.len()), (2, 2));
        assert!(Args::try_parse_from(["lab", "--no-run", "--", "--runs", "3"]).is_err());
        let args = Args::try_parse_from(["lab", "lfs-small", "lfs-large"]).unwrap();
        assert_eq!(args.experiments, ["lfs-small", "lfs-large"]);
    }

    /// The pictures of `docs/lab` that a document shows.
    fn shown(document: &str, below: &str) -> Vec<String> {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let begin = format!("]({below}");
        text.split(&begin).skip(1).map(|rest| rest.split(')').next().unwrap().to_string()).collect()
    }

    #[test]
    fn every_picture_is_shown_and_every_one_shown_is_there() {
        let there = pictures(&root().join(PICTURES)).unwrap();
        let mut used = [shown("docs/lab.md", "lab/"), shown("README.md", "docs/lab/")].concat();
        used.sort();
        used.dedup();
        assert_eq!(there, used);
    }

    #[test]
    fn pictures_are_small_and_whole() {
        for name in pictures(&root().join(PICTURES)).unwrap() {
            let svg = fs::read_to_string(root().join(PICTURES).join(&name)).unwrap();
            assert!(svg.len() < 100 << 10, "{name}: {} bytes", svg.len());
            assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{name}");
        }
    }
}
