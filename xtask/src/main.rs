//! Work on the repository itself: `cargo xtask docs [--check]`, `cargo xtask show N`,
//! `cargo xtask bench --mounted`, `cargo xtask growth`, `cargo xtask instructions`, `cargo xtask lab`,
//! `cargo xtask stress`, `cargo xtask fuzz`, `cargo xtask overlap`, `cargo xtask tidy [--record]`, `cargo xtask duplicates [--list]`.
//!
//! | module | what it makes |
//! |---|---|
//! | `layout` | tables of the structures, enumerations and constants of a `format.rs` |
//! | `pages` | the marked regions of the documents, from `layout`, the option lists, `figures` and `heads` |
//! | `figures` | tables of what the long runs have counted, from `docs/figures` |
//! | `heads` | tables of what each file is for, from its first sentence |
//! | `show` | demonstrations on real mounts |
//! | `bench` | mounts compared with those of other file systems |
//! | `overlap` | processes that wait for a slow disk at the same time |
//! | `growth` | how costs grow with files, names, extents, images and caches |
//! | `instructions` | what a small file costs each engine in instructions |
//! | `lab` | the laboratory's experiments, and the tables and pictures of them |
//! | `stress` | a mount under the load of other people's tools, its server killed again and again |
//! | `fuzz` | fuzzing guided by coverage |
//! | `tidy` | rules of the house, checked |
//! | `duplicates` | lines that two engines have in common |
//!
//! Man pages and completions come from `arbor_cli::docs`.
#![forbid(unsafe_code)]

mod bench;
mod duplicates;
mod figures;
mod fuzz;
mod growth;
mod heads;
mod instructions;
mod lab;
mod layout;
mod overlap;
mod pages;
mod show;
mod stress;
mod tidy;

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

const USAGE: &str = "usage: cargo xtask docs [--check], cargo xtask show N, cargo xtask bench --mounted, \
    cargo xtask growth, cargo xtask instructions, cargo xtask lab, cargo xtask stress, cargo xtask fuzz, cargo xtask overlap, \
    cargo xtask tidy, \
    cargo xtask duplicates (--help after one of them tells more)";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["docs"] => write_docs(),
        ["docs", "--check"] => match stale()?.as_slice() {
            [] => Ok(()),
            stale => bail!("not up to date, run `cargo xtask docs`: {stale:?}"),
        },
        ["show", words @ ..] => show::run(words.iter().copied()),
        ["bench", words @ ..] => bench::run(words.iter().copied()),
        ["bench-part", words @ ..] => bench::part(words),
        ["growth", words @ ..] => growth::run(words.iter().copied()),
        ["growth-part", words @ ..] => growth::part(words),
        ["instructions", words @ ..] => instructions::run(words.iter().copied()),
        ["instructions-part", words @ ..] => instructions::part(words),
        ["overlap", words @ ..] => overlap::run(words.iter().copied()),
        ["overlap-part", words @ ..] => overlap::part(words),
        ["lab", words @ ..] => lab::run(words.iter().copied()),
        ["stress", words @ ..] => stress::run(words.iter().copied()),
        ["fuzz", words @ ..] => fuzz::run(words.iter().copied()),
        ["tidy", words @ ..] => tidy::run(words),
        ["duplicates", words @ ..] => duplicates::run(words),
        ["--help" | "-h" | "help"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => bail!(USAGE),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Writes the man pages and completions, removes what is no longer made, and fills the documents.
fn write_docs() -> Result<()> {
    let docs = root().join("docs");
    for (path, text) in arbor_cli::docs::generate()? {
        let path = docs.join(path);
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        }
        write(&path, &text)?;
    }
    for path in arbor_cli::docs::stale(&docs)? {
        fs::remove_file(docs.join(&path)).with_context(|| path.display().to_string())?;
    }
    lab::write_drawings()?;
    write_pages()
}

/// Fills the documents.
fn write_pages() -> Result<()> {
    for page in pages::filled(&root())? {
        if page.new != page.old {
            write(&root().join(&page.path), page.new.as_bytes())?;
        }
    }
    Ok(())
}

/// Writes what a run has measured, as JSON and as a page, to the files that were asked for.
fn write_figures(
    figures: &impl serde::Serialize,
    json: Option<&Path>,
    page: String,
    report: Option<&Path>,
) -> Result<()> {
    if let Some(path) = json {
        write(path, (serde_json::to_string_pretty(figures)? + "\n").as_bytes())?;
    }
    report.map_or(Ok(()), |path| write(path, page.as_bytes()))
}

fn write(path: &Path, text: &[u8]) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// Documents that are not as [`write_docs`] makes them.
fn stale() -> Result<Vec<PathBuf>> {
    let mut stale: Vec<PathBuf> =
        arbor_cli::docs::stale(&root().join("docs"))?.into_iter().map(|p| Path::new("docs").join(p)).collect();
    stale.extend(pages::filled(&root())?.into_iter().filter(|p| p.new != p.old).map(|p| p.path));
    stale.extend(lab::stale()?);
    Ok(stale)
}

#[cfg(test)]
mod tests {
    /// `cargo xtask docs` writes them.
    #[test]
    fn the_documents_are_up_to_date() {
        let stale = super::stale().unwrap();
        assert!(stale.is_empty(), "run `cargo xtask docs`: {stale:?}");
    }
}
