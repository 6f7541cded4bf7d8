//! `cargo xtask duplicates`: lines that two engines have in common.
//!
//! Counted are runs of six code lines or more that are equal but for indentation, in two files. Blank lines, comments,
//! lines of only closing punctuation and `use` are no code lines: they neither count nor end a run. Of a pair, those
//! lines count that are in any run, of the engine that has fewer of them.

use crate::tidy::{Excess, Rule, Tree};
use anyhow::{Result, bail};
use std::collections::{HashMap, HashSet};

/// Shortest run that counts.
const RUN: usize = 6;
/// So many lines any two engines may have in common.
const LIMIT: usize = 100;

/// `cargo xtask duplicates [--list]`.
pub fn run(words: &[&str]) -> Result<()> {
    let list = match words {
        [] => false,
        ["--list"] => true,
        _ => bail!("usage: cargo xtask duplicates [--list]"),
    };
    let tree = Tree::read(&crate::root())?;
    for place in ["src", "tests"] {
        println!("{place}:");
        for pair in pairs(&tree, place) {
            println!("  {:<10} {:>6}", format!("{} {}", pair.one, pair.other), pair.lines);
            for run in pair.runs.iter().filter(|_| list) {
                println!("    {} {} {:>4} {}", run.one, run.other, run.lines, run.first);
            }
        }
    }
    Ok(())
}

/// Pairs of engines with more in common than they may.
pub fn measure(tree: &Tree) -> Vec<Excess> {
    let over = pairs(tree, "src").into_iter().filter(|pair| pair.lines > LIMIT);
    let excess = over.map(|Pair { one, other, lines, .. }| Excess {
        rule: Rule::Duplicates,
        name: format!("{one} {other}"),
        path: format!("crates/fs/{one}/src/lib.rs"),
        line: 1,
        value: lines,
        what: format!("{one} and {other} have {lines} lines in common, {LIMIT} are allowed (cargo xtask duplicates)"),
    });
    excess.collect()
}

/// What two engines have in common.
struct Pair {
    one: String,
    other: String,
    lines: usize,
    runs: Vec<Run>,
}

/// Equal lines: where they begin, how many they are, and the first.
#[derive(Debug, PartialEq)]
struct Run {
    one: String,
    other: String,
    lines: usize,
    first: String,
}

fn pairs(tree: &Tree, place: &str) -> Vec<Pair> {
    let engines: Vec<(&str, Code<'_>)> =
        tree.engines().into_iter().map(|e| (e, Code::read(tree, &format!("crates/fs/{e}/{place}/")))).collect();
    let mut pairs = Vec::new();
    for (n, (one, code)) in engines.iter().enumerate() {
        for (other, others) in engines.iter().skip(n + 1) {
            let (lines, runs) = compare(code, others);
            pairs.push(Pair { one: one.to_string(), other: other.to_string(), lines, runs });
        }
    }
    pairs
}

/// The code lines of an engine, file after file.
struct Code<'a> {
    lines: Vec<Line<'a>>,
}

struct Line<'a> {
    text: &'a str,
    path: &'a str,
    number: usize,
}

impl<'a> Code<'a> {
    fn read(tree: &'a Tree, dir: &str) -> Code<'a> {
        let mut lines = Vec::new();
        for file in tree.rust(dir) {
            let mut in_use = false;
            for (n, line) in file.text.lines().enumerate() {
                let text = line.trim();
                in_use |= !text.starts_with("//") && text.split_whitespace().take(2).any(|word| word == "use");
                if !in_use && is_code(text) {
                    lines.push(Line { text, path: &file.path, number: n + 1 });
                }
                in_use &= !text.ends_with(';');
            }
        }
        Code { lines }
    }

    /// The six lines from `at`, if they are of one file.
    fn window(&self, at: usize) -> Option<Vec<&'a str>> {
        let lines = self.lines.get(at..at + RUN)?;
        let path = lines.first()?.path;
        lines.iter().all(|l| l.path == path).then(|| lines.iter().map(|l| l.text).collect())
    }
}

fn is_code(text: &str) -> bool {
    !text.starts_with("//") && text.chars().any(|c| !matches!(c, '}' | ')' | ']' | ';' | ','))
}

/// How many lines two engines have in common, and the runs of them.
fn compare(one: &Code<'_>, other: &Code<'_>) -> (usize, Vec<Run>) {
    let mut places: HashMap<Vec<&str>, Vec<usize>> = HashMap::new();
    for at in 0..other.lines.len() {
        if let Some(window) = other.window(at) {
            places.entry(window).or_default().push(at);
        }
    }
    let (mut covered, mut covered_there) = (HashSet::new(), HashSet::new());
    // Where the windows that were equal at the line before stand in `other`, with their runs.
    let mut open: HashMap<usize, usize> = HashMap::new();
    let mut runs: Vec<Run> = Vec::new();
    for at in 0..one.lines.len() {
        let mut next = HashMap::new();
        let found = one.window(at).and_then(|window| places.get(&window));
        for &there in found.into_iter().flatten() {
            covered.extend(at..at + RUN);
            covered_there.extend(there..there + RUN);
            let run = there.checked_sub(1).and_then(|before| open.get(&before)).copied();
            let run = run.unwrap_or_else(|| {
                runs.extend(begin(one, at).zip(begin(other, there)).map(|((one, first), (other, _))| Run {
                    one,
                    other,
                    lines: RUN - 1,
                    first: first.to_string(),
                }));
                runs.len() - 1
            });
            if let Some(run) = runs.get_mut(run) {
                run.lines += 1;
            }
            next.insert(there, run);
        }
        open = next;
    }
    (covered.len().min(covered_there.len()), runs)
}

/// The place of a line, and its text.
fn begin<'a>(code: &Code<'a>, at: usize) -> Option<(String, &'a str)> {
    code.lines.get(at).map(|line| (format!("{}:{}", line.path, line.number), line.text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted;

    fn code(lines: impl IntoIterator<Item = usize>) -> String {
        lines.into_iter().map(|n| format!("call({n});\n")).collect()
    }

    fn common(one: &str, other: &str) -> Vec<Pair> {
        let (_dir, tree) = planted(&[
            ("crates/fs/ffs/Cargo.toml", ""),
            ("crates/fs/ffs/src/a.rs", one),
            ("crates/fs/lfs/Cargo.toml", ""),
            ("crates/fs/lfs/src/b.rs", other),
        ]);
        pairs(&tree, "src")
    }

    fn lines(one: &str, other: &str) -> usize {
        common(one, other).iter().map(|p| p.lines).sum()
    }

    #[test]
    fn six_lines_count_and_five_do_not() {
        assert_eq!(lines(&code(0..6), &code(0..6)), 6);
        assert_eq!(lines(&code(0..5), &code(0..5)), 0);
        assert_eq!(lines(&code((0..5).chain(9..14)), &code((0..5).chain(20..25))), 0);
    }

    #[test]
    fn what_is_no_code_neither_counts_nor_ends_a_run() {
        let one = "use a;\npub use b::{\n    c,\n};\nf(1);\n\n// use f\nf(2);\n}\n});\npub(crate) use d::{\n    e,\n};\nf(3);\nf(4);\nf(5);\nf(6);\n";
        let other = "  f(1);\n  f(2);\n  f(3);\n  /// What.\n  f(4);\n  f(5);\n  f(6);\n";
        let pairs = common(one, other);
        let run = Run {
            one: "crates/fs/ffs/src/a.rs:5".into(),
            other: "crates/fs/lfs/src/b.rs:1".into(),
            lines: 6,
            first: "f(1);".into(),
        };
        assert_eq!(pairs.iter().map(|p| p.lines).collect::<Vec<_>>(), [6]);
        assert_eq!(pairs.first().unwrap().runs, [run]);
    }

    #[test]
    fn a_line_counts_once_and_the_smaller_side_counts() {
        let twice = code((0..7).chain(50..51).chain(0..7));
        let pairs = common(&code(0..7), &twice);
        assert_eq!(pairs.first().unwrap().lines, 7);
        assert_eq!(pairs.first().unwrap().runs.iter().map(|r| r.lines).collect::<Vec<_>>(), [7, 7]);
        assert_eq!(lines(&twice, &code(0..7)), 7);
    }

    #[test]
    fn a_run_ends_with_its_file() {
        let (_dir, tree) = planted(&[
            ("crates/fs/ffs/Cargo.toml", ""),
            ("crates/fs/ffs/src/a.rs", &code(0..3)),
            ("crates/fs/ffs/src/b.rs", &code(3..6)),
            ("crates/fs/lfs/Cargo.toml", ""),
            ("crates/fs/lfs/src/a.rs", &code(0..6)),
        ]);
        assert!(pairs(&tree, "src").iter().all(|p| p.lines == 0));
    }

    #[test]
    fn more_than_a_hundred_lines_in_common_are_too_many() {
        for (n, found) in [(100, 0), (101, 1)] {
            let (_dir, tree) = planted(&[
                ("crates/fs/ffs/Cargo.toml", ""),
                ("crates/fs/ffs/src/a.rs", &code(0..n)),
                ("crates/fs/lfs/Cargo.toml", ""),
                ("crates/fs/lfs/src/a.rs", &code(0..n)),
            ]);
            assert_eq!(measure(&tree).len(), found);
        }
    }
}
