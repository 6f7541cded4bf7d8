//! `cargo xtask tidy`: rules of the house that a program can check. What breaks one is printed as `file:line: what`.
//!
//! | module | what it demands |
//! |---|---|
//! | `edges` | a crate depends only on what lies below it |
//! | `rooms` | each engine has the same files, or says which one it has not |
//! | `sizes` | functions of at most 70 lines, files of at most 900 |
//! | `invariants` | each numbered invariant of an engine is cited where its code relies on it |
//! | `documents` | the paths, tests and items that documents name are there |
//! | `circles` | no module of an engine uses one that uses it |
//! | `duplicates` (beside this one) | two engines have at most 100 lines in common |
//!
//! What breaks a rule with a number today is in `xtask/tidy.toml` with that number (`list`): it may become smaller, and
//! is recorded anew then, but never larger.

mod circles;
mod documents;
mod edges;
mod invariants;
mod list;
mod rooms;
mod sizes;
mod tree;

pub use list::{Excess, Rule};
pub use tree::Tree;
#[cfg(test)]
pub use tree::planted;

use crate::duplicates;
use anyhow::{Result, bail};
use list::List;
use std::fmt;

/// What breaks a rule, and where.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    path: String,
    line: usize,
    what: String,
}

impl Violation {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Violation {
        Violation { path: path.to_string(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// `cargo xtask tidy [--record]`.
pub fn run(words: &[&str]) -> Result<()> {
    let tree = Tree::read(&crate::root())?;
    let list = List::read(&tree.root)?;
    match words {
        [] => {}
        ["--record"] => return list.lowered(&excesses(&tree)?).write(&tree.root),
        _ => bail!("usage: cargo xtask tidy [--record]"),
    }
    let mut violations = edges::check(&tree)?;
    violations.extend(rooms::check(&tree));
    violations.extend(invariants::check(&tree));
    violations.extend(documents::check(&tree));
    let line = |name: &str| tree.file(list::PATH).map_or(1, |file| file.line_of(&format!("\"{name}\"")));
    violations.extend(list.judge(&excesses(&tree)?, line));
    violations.sort();
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => Ok(()),
        n => bail!("{n} places are not tidy"),
    }
}

/// What is beyond a limit, whether it is recorded or not.
fn excesses(tree: &Tree) -> Result<Vec<Excess>> {
    let mut found = sizes::measure(tree)?;
    found.extend(circles::measure(tree)?);
    found.extend(duplicates::measure(tree));
    Ok(found)
}
