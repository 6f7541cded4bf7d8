//! Tables and pictures as files, and rows from files.

use anyhow::{Context, Result, anyhow, bail};
use arbor_bench::picture::Picture;
use arbor_bench::{Conditions, Experiment, Figures, Results, Row, from_json, rows};
use std::fs;
use std::path::{Path, PathBuf};

/// Rows of a file.
pub(super) struct Given {
    path: PathBuf,
    rows: Vec<Row>,
}

/// The rows of these experiments in all these files, as `--json` writes them, if they were measured in the same
/// setting.
pub(super) fn read(files: &[PathBuf], wanted: &[(&Experiment, Conditions)]) -> Result<Vec<Given>> {
    let one = |path: &PathBuf| {
        let rows = rows_of(path, wanted).with_context(|| path.display().to_string())?;
        Ok(Given { path: path.clone(), rows })
    };
    files.iter().map(one).collect()
}

fn rows_of(path: &Path, wanted: &[(&Experiment, Conditions)]) -> Result<Vec<Row>> {
    let mut rows = from_json(&fs::read_to_string(path)?).map_err(|e| anyhow!(e))?;
    rows.retain(|row| wanted.iter().any(|(e, _)| e.name == row.experiment));
    if rows.is_empty() {
        bail!("it has no rows of {}", super::listed(wanted.iter().map(|(e, _)| e.name)));
    }
    for (experiment, here) in wanted {
        let of: Vec<Row> = rows.iter().filter(|r| r.experiment == experiment.name).cloned().collect();
        rows::comparable(&of, here).map_err(|e| anyhow!(e))?;
    }
    Ok(rows)
}

/// Adds the given rows of an experiment to those that were measured, and gives back what was added: of a subject that
/// there are rows of, no others are taken. The notes say so.
pub(super) fn add(results: &mut Results, experiment: &Experiment, given: &[Given], notes: &super::Notes) -> Vec<Row> {
    let mut added = Vec::new();
    for file in given {
        let has = |subject: &str| results.rows.iter().any(|r| r.subject == subject);
        let here: Vec<&Row> = file.rows.iter().filter(|r| r.experiment == experiment.name).collect();
        let (taken, left): (Vec<&Row>, Vec<&Row>) = here.into_iter().partition(|r| !has(&r.subject));
        let mut subjects: Vec<&str> = left.iter().map(|r| &*r.subject).collect();
        subjects.dedup();
        if !subjects.is_empty() {
            let (path, name, subjects) = (file.path.display(), experiment.name, subjects.join(", "));
            let note = format!("{path}: its rows of {subjects} in {name} are not used, there are others");
            notes.borrow_mut().push(note);
        }
        let taken: Vec<Row> = taken.into_iter().cloned().collect();
        results.rows.extend(taken.iter().cloned());
        added.extend(taken);
    }
    rows::compare(experiment, &mut results.rows);
    added
}

/// Writes `figures.md`, `figures.json` and the pictures that the document shows; gives their paths.
pub(super) fn write(dir: &Path, figures: &Figures, pictures: &[Picture]) -> Result<Vec<PathBuf>> {
    let drawings = figures.drawings(pictures);
    let mut files =
        vec![("figures.md".to_string(), figures.document(&drawings)), ("figures.json".to_string(), figures.to_json()?)];
    files.extend(drawings.into_iter().map(|d| (d.name + ".svg", d.svg)));
    let write = |(name, text): (String, String)| {
        let path = dir.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string()).map(|()| path)
    };
    files.into_iter().map(write).collect()
}
