//! Names in documents: the paths, tests and items that they name are there.

use super::tree::{Source, line_at};
use super::{Tree, Violation};
use std::collections::HashSet;
use std::path::Path;

/// Places of the repository that a path may begin with.
const PLACES: &[&str] = &["crates/", "docs/", "xtask/", "fuzz/"];

pub fn check(tree: &Tree) -> Vec<Violation> {
    let (documents, sources): (Vec<&Source>, Vec<&Source>) = tree.files.iter().partition(|f| f.path.ends_with(".md"));
    let words: HashSet<&str> = sources.iter().flat_map(|f| f.text.split(|c: char| !is_word(c))).collect();
    let mut violations = Vec::new();
    for document in documents {
        let mut missing = |at: usize, what: String| {
            violations.push(Violation::new(&document.path, line_at(&document.text, at), what));
        };
        for (at, path) in paths(&document.text).filter(|(_, path)| !tree.root.join(path).exists()) {
            missing(at, format!("{path} is not there"));
        }
        let dir = Path::new(&document.path).parent().unwrap_or(Path::new(""));
        for (at, link) in links(&document.text).filter(|(_, link)| !tree.root.join(dir).join(link).exists()) {
            missing(at, format!("the link to {link} leads nowhere"));
        }
        for paragraph in paragraphs(&document.text).filter(|p| p.matches('`').count() % 2 == 1) {
            let last = paragraph.rfind('`').unwrap_or(0);
            missing(offset(&document.text, paragraph) + last, "the paragraph has an odd number of backquotes".into());
        }
        let engine = engine(tree, &document.path);
        for (at, name) in quoted(&document.text) {
            if is_file(name) {
                if !sources.iter().any(|f| is_meant(name, &f.path, engine)) {
                    missing(at, format!("there is no {name}"));
                }
            } else if let Some(word) = item(name).find(|word| !words.contains(word)) {
                missing(at, format!("`{name}`: no source has {word}"));
            }
        }
    }
    violations
}

fn is_from_root(path: &str) -> bool {
    PLACES.iter().any(|place| path.starts_with(place))
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Where a piece of `text` begins in it.
fn offset(text: &str, piece: &str) -> usize {
    piece.as_ptr() as usize - text.as_ptr() as usize
}

/// Paths from the root of the repository, as far as they say nothing general (`crates/fs/<engine>`, `docs/*.md`).
fn paths(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_end = |c: char| c.is_whitespace() || "`()[]\"'|,;#".contains(c);
    text.split(is_end).filter(|word| is_from_root(word)).map(|word| {
        let path = word.split(':').next().unwrap_or(word).trim_end_matches('.');
        let general = path.find(['<', '*', '{', '$']).or_else(|| path.find("ENGINE")).or_else(|| path.find("NNNN"));
        let known = general.and_then(|at| path.get(..at)).and_then(|path| path.rsplit_once('/')).map_or(path, |p| p.0);
        (offset(text, word), known)
    })
}

/// Targets of links to other files, without the place in them.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("](").filter_map(|(at, mark)| {
        let target = text.get(at + mark.len()..)?.split([')', '#']).next()?;
        let is_ours = !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:");
        is_ours.then_some((at, target))
    })
}

/// Paragraphs, but for blocks of code.
fn paragraphs(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").step_by(2).flat_map(|prose| prose.split("\n\n"))
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let names = paragraphs(text).flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    names.map(|name| (offset(text, name), name))
}

/// The engine that a document is about, by its name.
fn engine<'a>(tree: &'a Tree, path: &str) -> Option<&'a str> {
    let is_about = |e: &&str| ["formats", "papers"].iter().any(|dir| path == format!("docs/{dir}/{e}.md"));
    tree.engines().into_iter().find(is_about)
}

/// A file named by the end of its path.
fn is_file(name: &str) -> bool {
    !is_from_root(name) && name.ends_with(".rs") && name.chars().all(|c| is_word(c) || c == '/' || c == '.')
}

/// Whether a file may be the one that is named: by the end of its path, and if `engine` is the one that is spoken of,
/// not among those of another.
fn is_meant(name: &str, path: &str, engine: Option<&str>) -> bool {
    let is_of_another =
        path.strip_prefix("crates/fs/").and_then(|p| p.split('/').next()).is_some_and(|e| engine != Some(e));
    let is_named = path == name || path.strip_suffix(name).is_some_and(|before| before.ends_with('/'));
    is_named && !(engine.is_some() && is_of_another)
}

/// The words of what looks like an item of a source: `name()`, `Type::name`, `a_name`, `TypeName`, a variable of ours.
/// Constants do not count: most that are named are those of the kernel.
fn item(name: &str) -> impl Iterator<Item = &str> {
    let path = name.split_once('(').map_or(name, |(path, _)| path);
    let is_call = name.len() > path.len() && name.ends_with(')');
    let is_constant = !path.contains(|c: char| c.is_ascii_lowercase());
    let is_type =
        path.starts_with(|c: char| c.is_ascii_uppercase()) && path.chars().skip(1).any(|c| c.is_ascii_uppercase());
    let is_name = !is_constant && (is_type || path.contains('_')) || path.starts_with("ARBOR_");
    let is_path = !path.is_empty() && path.split("::").all(|word| !word.is_empty() && word.chars().all(is_word));
    let is_item = is_path && (is_call || is_name || path.contains("::"));
    path.split("::").filter(move |_| is_item)
}

#[cfg(test)]
mod tests {
    use super::super::tree::planted;
    use super::*;

    fn said(path: &str, document: &str) -> Vec<String> {
        let (_dir, tree) = planted(&[
            (path, document),
            ("docs/options.md", ""),
            ("crates/fs/yfs/Cargo.toml", ""),
            ("crates/fs/yfs/src/commit.rs", "impl Core { fn flush_log() {} } fn what_is_lost_is_named() {}"),
            ("crates/fs/ffs/Cargo.toml", ""),
            ("crates/fs/ffs/src/bitmap.rs", "const OPTION: &str = \"no_key_at_all\";"),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_there_may_be_named() {
        let good = "See `crates/fs/yfs/src/commit.rs`, crates/fs/<engine>/none.rs, `docs/*.md`,\n\
            [a](docs/options.md#b), `Core::flush_log`, `flush_log(core, 3)`, `what_is_lost_is_named`,\n\
            `no_key_at_all`, `src/commit.rs`; `ls -l`,\n\
            `keep=journal`, `O_DIRECT`, `Debian`, `[x]`, `a(b`.\n\n```\n`no::such_thing`\n```\n";
        assert_eq!(said("README.md", good), [] as [&str; 0]);
    }

    #[test]
    fn what_is_not_there_is_found_with_its_line() {
        for (text, what) in [
            ("`crates/fs/yfs/src/none.rs`", "crates/fs/yfs/src/none.rs is not there"),
            ("docs/none.md.", "docs/none.md is not there"),
            ("crates/fs/none/<file>", "crates/fs/none is not there"),
            ("[a](none.md)", "the link to none.md leads nowhere"),
            ("`none.rs`", "there is no none.rs"),
            ("`ommit.rs`", "there is no ommit.rs"),
            ("`Core::none`", "`Core::none`: no source has none"),
            ("`none(a, b)`", "`none(a, b)`: no source has none"),
            ("one ` two", "the paragraph has an odd number of backquotes"),
            ("`no_key`", "`no_key`: no source has no_key"),
            ("`CoreDump`", "`CoreDump`: no source has CoreDump"),
            ("`ARBOR_NONE`", "`ARBOR_NONE`: no source has ARBOR_NONE"),
            ("`what_is_lost_is_kept`", "`what_is_lost_is_kept`: no source has what_is_lost_is_kept"),
        ] {
            assert_eq!(said("README.md", &format!("\n{text}\n")), [format!("README.md:2: {what}")]);
        }
    }

    #[test]
    fn a_document_about_an_engine_names_its_own_files() {
        assert!(said("docs/papers/ffs.md", "`bitmap.rs`, `crates/fs/yfs/src/commit.rs`").is_empty());
        let other = said("docs/papers/yfs.md", "`bitmap.rs`");
        assert_eq!(other, ["docs/papers/yfs.md:1: there is no bitmap.rs"]);
    }
}
