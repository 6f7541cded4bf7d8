//! The exceptions that `xtask/tidy.toml` records: what is beyond a limit today, by rule and name, with its number. What
//! has become smaller has to be recorded so (`--record`), so that it cannot grow again.

use super::Violation;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub const PATH: &str = "xtask/tidy.toml";

const HEAD: &str = "\
# What is beyond a limit of `cargo xtask tidy`, with its number (docs/testing.md). Nothing may be added here, and no
# number may rise; `cargo xtask tidy --record` lowers them, and removes what is within its limit.

";

/// Exceptions of one rule by name.
type Section = BTreeMap<String, usize>;

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct List {
    /// Lines of functions, by path and name.
    functions: Section,
    /// Lines of files.
    files: Section,
    /// Of each module in a circle, how many modules the circle has.
    circles: Section,
    /// Lines that the sources of two engines have in common.
    duplicates: Section,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    Functions,
    Files,
    Circles,
    Duplicates,
}

/// What is beyond the limit of a rule.
#[derive(Debug)]
pub struct Excess {
    pub rule: Rule,
    /// Names it in the list.
    pub name: String,
    pub path: String,
    pub line: usize,
    pub value: usize,
    /// The sentence, with the limit.
    pub what: String,
}

impl List {
    pub fn read(root: &Path) -> Result<List> {
        let text = fs::read_to_string(root.join(PATH)).context(PATH)?;
        toml::from_str(&text).context(PATH)
    }

    pub fn write(&self, root: &Path) -> Result<()> {
        fs::write(root.join(PATH), HEAD.to_string() + &toml::to_string(self)?).context(PATH)
    }

    fn section(&self, rule: Rule) -> &Section {
        match rule {
            Rule::Functions => &self.functions,
            Rule::Files => &self.files,
            Rule::Circles => &self.circles,
            Rule::Duplicates => &self.duplicates,
        }
    }

    /// What is larger than it is recorded, and what is recorded as larger than it is; `line` says where a name stands in
    /// the list.
    pub fn judge(&self, found: &[Excess], line: impl Fn(&str) -> usize) -> Vec<Violation> {
        let mut violations = Vec::new();
        for excess in found {
            match self.section(excess.rule).get(&excess.name) {
                None => violations.push(Violation::new(&excess.path, excess.line, &excess.what)),
                Some(&recorded) if excess.value > recorded => {
                    let what = format!("{}; {recorded} are recorded", excess.what);
                    violations.push(Violation::new(&excess.path, excess.line, what));
                }
                Some(_) => {}
            }
        }
        for rule in [Rule::Functions, Rule::Files, Rule::Circles, Rule::Duplicates] {
            for (name, &recorded) in self.section(rule) {
                let what = match largest(found, rule, name) {
                    Some(value) if value >= recorded => continue,
                    Some(value) => format!("{name}: record {value} now instead of {recorded}"),
                    None => format!("{name}: record nothing now, it is gone or within its limit"),
                };
                violations.push(Violation::new(PATH, line(name), what + " (cargo xtask tidy --record)"));
            }
        }
        violations
    }

    /// The list with what has become smaller as it is now.
    pub fn lowered(&self, found: &[Excess]) -> List {
        let lower = |rule| {
            let kept = self.section(rule).iter().filter_map(|(name, &recorded)| {
                largest(found, rule, name).map(|value| (name.clone(), value.min(recorded)))
            });
            kept.collect()
        };
        List {
            functions: lower(Rule::Functions),
            files: lower(Rule::Files),
            circles: lower(Rule::Circles),
            duplicates: lower(Rule::Duplicates),
        }
    }
}

/// Functions of different `impl` blocks may have one name: then the longest counts.
fn largest(found: &[Excess], rule: Rule, name: &str) -> Option<usize> {
    found.iter().filter(|e| e.rule == rule && e.name == name).map(|e| e.value).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excess(name: &str, value: usize) -> Excess {
        let what = format!("{name} has {value} lines");
        Excess { rule: Rule::Functions, name: name.into(), path: "a.rs".into(), line: 3, value, what }
    }

    fn list(functions: &[(&str, usize)]) -> List {
        List { functions: functions.iter().map(|(n, v)| (n.to_string(), *v)).collect(), ..List::default() }
    }

    fn said(list: &List, found: &[Excess]) -> Vec<String> {
        list.judge(found, |_| 5).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_recorded_may_stay_and_nothing_else() {
        assert!(said(&list(&[("f", 80)]), &[excess("f", 80)]).is_empty());
        assert_eq!(said(&list(&[]), &[excess("f", 80)]), ["a.rs:3: f has 80 lines"]);
        assert_eq!(said(&list(&[("f", 79)]), &[excess("f", 80)]), ["a.rs:3: f has 80 lines; 79 are recorded"]);
    }

    #[test]
    fn what_has_become_smaller_is_to_be_recorded() {
        let smaller = said(&list(&[("f", 90)]), &[excess("f", 80)]);
        assert_eq!(smaller, ["xtask/tidy.toml:5: f: record 80 now instead of 90 (cargo xtask tidy --record)"]);
        let gone = said(&list(&[("f", 90)]), &[]);
        assert!(gone.len() == 1 && gone.iter().all(|g| g.contains("f: record nothing now")), "{gone:?}");
    }

    #[test]
    fn recording_lowers_and_removes_and_never_raises_or_adds() {
        let before = list(&[("smaller", 90), ("larger", 80), ("gone", 75)]);
        let after = before.lowered(&[excess("smaller", 85), excess("larger", 99), excess("new", 71)]);
        assert_eq!(after, list(&[("smaller", 85), ("larger", 80)]));
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("xtask")).unwrap();
        after.write(dir.path()).unwrap();
        assert_eq!(List::read(dir.path()).unwrap(), after);
    }
}
