//! The numbered invariants of an engine (`YFS-C1`): each is cited where the code relies on it, and what is cited is
//! one of them.

use super::{Tree, Violation};

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for engine in tree.engines() {
        let src = format!("crates/fs/{engine}/src/");
        let mut defined = Vec::new();
        let mut cited = Vec::new();
        for file in tree.rust(&src) {
            let definitions = defined.len();
            for (n, line) in file.text.lines().enumerate() {
                let head = line.strip_prefix("//! * **");
                defined.extend(head.and_then(|h| ids(h, engine).next()).map(|id| (id, &file.path, n + 1)));
            }
            let defines = defined.len() > definitions;
            let is_citing = |line: &str| !(line.starts_with("//!") && (defines || file.path.ends_with("/lib.rs")));
            // A planted mistake says what it is against, but relies on nothing.
            if !file.path.ends_with("/planted.rs") {
                for (n, line) in file.text.lines().enumerate().filter(|(_, line)| is_citing(line)) {
                    cited.extend(ids(line, engine).map(|id| (id, &file.path, n + 1)));
                }
            }
        }
        for (id, path, line) in &defined {
            if !cited.iter().any(|c| c.0 == *id) {
                violations.push(Violation::new(path, *line, format!("{id} is cited nowhere in the code")));
            }
        }
        for (id, path, line) in &cited {
            if !defined.iter().any(|d| d.0 == *id) {
                violations.push(Violation::new(path, *line, format!("{id} is no invariant of this engine")));
            }
        }
    }
    violations
}

/// What looks like the name of an invariant of this engine in `line`: `YFS-C1`.
fn ids<'a>(line: &'a str, engine: &str) -> impl Iterator<Item = &'a str> {
    let prefix = engine.to_uppercase() + "-";
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(move |word| {
        word.strip_prefix(&prefix)
            .and_then(|id| id.strip_prefix(|c: char| c.is_ascii_uppercase()))
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree::planted;
    use super::*;

    fn said(commit: &str, alloc: &str, flaws: &str) -> Vec<String> {
        let (_dir, tree) = planted(&[
            ("crates/fs/yfs/Cargo.toml", ""),
            ("crates/fs/yfs/src/lib.rs", "//! YFS-C1 to C5 stand in `commit.rs`.\n"),
            ("crates/fs/yfs/src/commit.rs", commit),
            ("crates/fs/yfs/src/alloc.rs", alloc),
            ("crates/fs/yfs/src/planted.rs", flaws),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    const COMMIT: &str = "//! The order.\n//!\n//! * **YFS-C1** first; with YFS-C1 all is well.\n";

    #[test]
    fn an_invariant_is_cited_outside_of_its_list() {
        assert!(said(COMMIT, "// YFS-C1\n", "").is_empty());
        assert!(said(&format!("{COMMIT}\n/// Holds YFS-C1.\n"), "", "").is_empty());
        for (alloc, flaws) in [("", ""), ("", "/// Against YFS-C1.\n"), ("// XYFS-C1, YFS-C1x\n", "")] {
            let missing = said(COMMIT, alloc, flaws);
            assert_eq!(missing, ["crates/fs/yfs/src/commit.rs:3: YFS-C1 is cited nowhere in the code"]);
        }
    }

    #[test]
    fn what_is_cited_is_an_invariant() {
        let unknown = said(COMMIT, "// YFS-C1\n\n// YFS-C12, YFS-4K\n", "");
        assert_eq!(unknown, ["crates/fs/yfs/src/alloc.rs:3: YFS-C12 is no invariant of this engine"]);
    }
}
