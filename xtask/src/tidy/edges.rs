//! Which crate may depend on which: an engine on `kit` and `base` only, and nobody but `front` and `xtask` on an
//! engine.

use super::{Tree, Violation};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// What a crate is, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Floor {
    Base,
    Kit,
    Fs,
    Lab,
    Front,
    Xtask,
}

impl Floor {
    fn of(path: &str) -> Option<Floor> {
        let dir = path.strip_suffix("/Cargo.toml")?;
        match dir.split('/').collect::<Vec<_>>().as_slice() {
            ["crates", "base"] => Some(Floor::Base),
            ["crates", "kit"] => Some(Floor::Kit),
            ["crates", "fs", _] => Some(Floor::Fs),
            ["crates", "lab", _] => Some(Floor::Lab),
            ["crates", "front", _] => Some(Floor::Front),
            ["xtask"] => Some(Floor::Xtask),
            _ => None,
        }
    }

    /// Whether a crate here may name one of `other`; `for_tests`: as a dev-dependency.
    fn may_name(self, other: Floor, for_tests: bool) -> bool {
        match self {
            Floor::Base => false,
            Floor::Kit => other == Floor::Base,
            Floor::Fs => matches!(other, Floor::Base | Floor::Kit) || for_tests && other == Floor::Lab,
            Floor::Lab => matches!(other, Floor::Base | Floor::Lab),
            Floor::Front => !matches!(other, Floor::Kit | Floor::Xtask),
            Floor::Xtask => true,
        }
    }
}

pub fn check(tree: &Tree) -> Result<Vec<Violation>> {
    let mut crates = Vec::new();
    let mut floors = BTreeMap::new();
    for file in &tree.files {
        let Some(floor) = Floor::of(&file.path) else { continue };
        let manifest: Table = toml::from_str(&file.text).with_context(|| file.path.clone())?;
        let name = manifest.get("package").and_then(|p| p.get("name")).and_then(Value::as_str);
        floors.insert(name.with_context(|| file.path.clone())?.to_string(), floor);
        crates.push((file, floor, manifest));
    }
    let mut violations = Vec::new();
    for (file, floor, manifest) in &crates {
        for (name, for_tests) in dependencies(manifest) {
            let Some(&other) = floors.get(name) else { continue };
            if !floor.may_name(other, for_tests) {
                let how = if for_tests { "dev-dependency" } else { "dependency" };
                let line = file.line_of(&format!("\n{name}")) + 1;
                let what = format!("{name} ({other:?}) as {how} of a crate in {floor:?}");
                violations.push(Violation::new(&file.path, line, what));
            }
        }
    }
    Ok(violations)
}

/// The packages that a manifest names, each with whether only tests use it.
fn dependencies(manifest: &Table) -> Vec<(&str, bool)> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let mut found = Vec::new();
    for table in targets.filter_map(Value::as_table).chain([manifest]) {
        for (section, for_tests) in [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
        {
            for (name, value) in table.get(section).and_then(Value::as_table).into_iter().flatten() {
                let package = value.get("package").and_then(Value::as_str).unwrap_or(name);
                found.push((package, for_tests));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tree::planted;
    use super::*;

    /// What is said of a crate of an engine with these dependencies.
    fn said(dependencies: &str) -> Vec<String> {
        let yfs = format!("[package]\nname = \"arbor-yfs\"\n{dependencies}");
        let named = |name: &str| format!("[package]\nname = \"{name}\"\n");
        let (_dir, tree) = planted(&[
            ("crates/base/Cargo.toml", &named("arbor-base")),
            ("crates/kit/Cargo.toml", &named("arbor-kit")),
            ("crates/lab/torture/Cargo.toml", &named("arbor-torture")),
            ("crates/front/fuse/Cargo.toml", &named("arbor-fuse")),
            ("crates/fs/ffs/Cargo.toml", &named("arbor-ffs")),
            ("crates/fs/yfs/Cargo.toml", &yfs),
        ]);
        check(&tree).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_engine_may_name_what_lies_below_it() {
        let good = "[dependencies]\narbor-kit.workspace = true\narbor-base.workspace = true\nserde = \"1\"\n\
                    [dev-dependencies]\narbor-torture.workspace = true\n";
        assert!(said(good).is_empty());
    }

    #[test]
    fn an_engine_may_not_name_another_even_in_tests_or_under_another_name() {
        let lab = said("[dependencies]\narbor-torture.workspace = true\n");
        assert_eq!(lab, ["crates/fs/yfs/Cargo.toml:4: arbor-torture (Lab) as dependency of a crate in Fs"]);
        assert_eq!(said("[dev-dependencies]\narbor-ffs.workspace = true\n").len(), 1);
        assert_eq!(said("[dependencies]\nfast = { package = \"arbor-ffs\", path = \"../ffs\" }\n").len(), 1);
        assert_eq!(said("[target.'cfg(unix)'.dependencies]\narbor-fuse.workspace = true\n").len(), 1);
    }

    #[test]
    fn the_laboratory_and_the_kit_name_no_engine() {
        for (floor, other) in [(Floor::Lab, Floor::Fs), (Floor::Kit, Floor::Fs), (Floor::Kit, Floor::Lab)] {
            assert!(!floor.may_name(other, true), "{floor:?} {other:?}");
        }
        assert!(!Floor::Front.may_name(Floor::Kit, false) && Floor::Front.may_name(Floor::Fs, false));
        assert!(!Floor::Base.may_name(Floor::Base, true) && Floor::Lab.may_name(Floor::Lab, false));
    }
}
