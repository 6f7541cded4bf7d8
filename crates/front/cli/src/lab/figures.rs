//! Tables and pictures as files, and rows from files.

use anyhow::{Context, Result};
use arbor_bench::picture::Picture;
use arbor_bench::{Experiment, Figures, Results, Row};
use std::fs;
use std::path::{Path, PathBuf};

/// The rows of these experiments in all these files, as `--json` writes them.
pub(super) fn read(files: &[PathBuf], wanted: &[&Experiment]) -> Result<Vec<Row>> {
    let one = |path: &PathBuf| -> Result<Vec<Row>> { Ok(serde_json::from_slice(&fs::read(path)?)?) };
    let all: Vec<Vec<Row>> =
        files.iter().map(|path| one(path).with_context(|| path.display().to_string())).collect::<Result<_>>()?;
    let is_wanted = |row: &Row| wanted.iter().any(|e| e.name == row.experiment);
    Ok(all.concat().into_iter().filter(is_wanted).collect())
}

/// Adds the given rows of an experiment to those that were measured.
pub(super) fn add(results: &mut Results, experiment: &Experiment, given: &[Row]) {
    let here = given.iter().filter(|r| r.experiment == experiment.name).cloned().collect();
    arbor_bench::rows::merge(&mut results.rows, here);
    arbor_bench::rows::compare(experiment, &mut results.rows);
}

/// Writes `figures.md`, `figures.json` and the pictures that the document shows.
pub(super) fn write(dir: &Path, figures: &Figures, pictures: &[Picture]) -> Result<()> {
    let drawings = figures.drawings(pictures);
    let mut files =
        vec![("figures.md".to_string(), figures.document(&drawings)), ("figures.json".to_string(), figures.to_json()?)];
    files.extend(drawings.into_iter().map(|d| (d.name + ".svg", d.svg)));
    for (name, text) in files {
        let path = dir.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
