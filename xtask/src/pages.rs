//! Documents with regions that are filled from the code. A region stands between
//! `<!-- generated: NAME -->` and `<!-- end -->`, each on a line of its own.

use crate::figures;
use crate::heads;
use crate::lab;
use crate::layout::{self, Tables};
use crate::tidy::Tree;
use anyhow::{Context, Result, ensure};
use arbor_cli::args::{MkfsCli, MountHelper};
use clap::CommandFactory;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- generated: ";
const END: &str = "<!-- end -->";

/// A document as it is and as it should be.
pub struct Page {
    pub path: PathBuf,
    pub old: String,
    pub new: String,
}

/// All documents with such regions below the repository's root.
pub fn filled(root: &Path) -> Result<Vec<Page>> {
    let mut pages = vec![
        page(root, Path::new("ARCHITECTURE.md"), &heads::tables(&Tree::read(root)?))?,
        page(root, Path::new("docs/options.md"), &options()?)?,
        page(root, Path::new("docs/lab.md"), &lab::tables(root)?)?,
        page(root, Path::new("docs/testing.md"), &figures::tables(&root.join("docs/figures"))?)?,
        page(root, Path::new("docs/performance.md"), &figures::performance(&root.join("docs/figures"))?)?,
    ];
    let mut engines: Vec<PathBuf> =
        fs::read_dir(root.join("crates/fs"))?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    engines.sort();
    for engine in engines {
        let source = engine.join("src/format.rs");
        if source.exists() {
            let mut source = fs::read_to_string(&source).with_context(|| source.display().to_string())?;
            if source.contains("arbor_kit::dirent::") {
                source += &fs::read_to_string(root.join("crates/kit/src/dirent.rs"))?;
            }
            if source.contains("arbor_kit::usage::") {
                source += &fs::read_to_string(root.join("crates/kit/src/usage.rs"))?;
            }
            if source.contains("arbor_kit::stamp::") {
                // Before what is made of it.
                source = fs::read_to_string(root.join("crates/kit/src/stamp.rs"))? + &source;
            }
            let name = engine.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let path = Path::new("docs/formats").join(name + ".md");
            pages.push(page(root, &path, &layout::tables(&source)?)?);
        }
    }
    Ok(pages)
}

fn page(root: &Path, path: &Path, tables: &Tables) -> Result<Page> {
    let old = fs::read_to_string(root.join(path)).with_context(|| path.display().to_string())?;
    let new = fill(&old, tables).with_context(|| path.display().to_string())?;
    Ok(Page { path: path.to_path_buf(), old, new })
}

/// Fills the regions of `text`; each table has to have one.
fn fill(text: &str, tables: &Tables) -> Result<String> {
    let mut out = String::new();
    let mut shown = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}")?;
        let Some(name) = line.strip_prefix(BEGIN).and_then(|l| l.strip_suffix(" -->")) else { continue };
        let table = tables.get(name).with_context(|| format!("the code has no {name}"))?;
        ensure!(lines.any(|l| l == END), "the region {name} does not end");
        write!(out, "\n{}\n\n{END}\n", table.trim_end())?;
        shown.push(name);
    }
    let missing: Vec<&String> = tables.keys().filter(|t| !shown.contains(&t.as_str())).collect();
    ensure!(missing.is_empty(), "no region shows {missing:?}");
    Ok(out)
}

/// Tables of the option lists that `--help` shows, by command.
fn options() -> Result<Tables> {
    [("mkfs", MkfsCli::command()), ("mount", MountHelper::command())]
        .into_iter()
        .map(|(name, command)| {
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            Ok((format!("options {name}"), option_tables(&help)?))
        })
        .collect()
}

fn option_tables(help: &str) -> Result<String> {
    let mut out = String::new();
    for line in help.lines() {
        if let Some(heading) = line.strip_suffix(':').filter(|l| !l.starts_with(' ')) {
            write!(out, "### {heading}\n\n| option | default | |\n|---|---|---|\n")?;
        } else if let Some(option) = line.strip_prefix("  ") {
            let (name, help) = option.split_once("  ").with_context(|| format!("no option: {line}"))?;
            let (help, default) = match help.trim().strip_suffix(']').and_then(|h| h.split_once(" [default: ")) {
                Some((help, default)) => (help, default),
                None => (help.trim(), ""),
            };
            writeln!(out, "| `{}` | {default} | {help} |", name.replace('|', "\\|"))?;
        } else {
            writeln!(out)?;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_filled_and_the_rest_stays() {
        let tables = Tables::from([("a".to_string(), "new\n".to_string())]);
        let text = "before\n<!-- generated: a -->\nold\n<!-- end -->\nbehind\n";
        let new = "before\n<!-- generated: a -->\n\nnew\n\n<!-- end -->\nbehind\n";
        assert_eq!(fill(text, &tables).unwrap(), new);
        assert_eq!(fill(new, &tables).unwrap(), new);
        assert!(fill("nothing", &tables).is_err(), "the table is shown nowhere");
        assert!(fill(&text.replace(": a", ": b"), &tables).is_err(), "there is no such table");
        assert!(fill(&text.replace(END, ""), &tables).is_err(), "the region does not end");
    }

    #[test]
    fn option_lists_become_tables() {
        let table =
            option_tables("Options (-o):\n\n  size=N  How much. [default: 1]\n  ro      Read-only.\n  by=a|b  How.\n")
                .unwrap();
        assert!(table.starts_with("### Options (-o)\n"));
        assert!(table.ends_with("| `size=N` | 1 | How much. |\n| `ro` |  | Read-only. |\n| `by=a\\|b` |  | How. |\n"));
    }
}
