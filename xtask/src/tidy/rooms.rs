//! The files that every engine has. Where a design has no such room, the head of `lib.rs` says so.

use super::{Tree, Violation};
use crate::heads::head;

const ROOMS: &[&str] = &[
    "lib.rs",
    "format.rs",
    "mkfs.rs",
    "mount.rs",
    "alloc.rs",
    "inode.rs",
    "file.rs",
    "dir.rs",
    "ops.rs",
    "commit.rs",
    "recover.rs",
    "check.rs",
    "options.rs",
    "describe.rs",
    "dump.rs",
];

pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for engine in tree.engines() {
        let src = format!("crates/fs/{engine}/src/");
        let lib = format!("{src}lib.rs");
        let head = tree.file(&lib).map(|f| head(&f.text).to_lowercase()).unwrap_or_default();
        for room in ROOMS {
            let is_there = tree.file(&format!("{src}{room}")).is_some();
            let is_named_missing = head.contains(&format!("there is no `{room}`"));
            if !is_there && !is_named_missing {
                violations.push(Violation::new(
                    &lib,
                    1,
                    format!("has no {room}, and does not say \"there is no `{room}`\""),
                ));
            } else if is_there && is_named_missing {
                violations.push(Violation::new(&lib, 1, format!("says that there is no `{room}`, but there is")));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::tree::planted;
    use super::*;

    fn said(lib: &str, missing: &str) -> Vec<String> {
        let path = |room: &str| format!("crates/fs/yfs/src/{room}");
        let mut files = vec![("crates/fs/yfs/Cargo.toml".to_string(), ""), (path("lib.rs"), lib)];
        files.extend(ROOMS.iter().filter(|r| **r != "lib.rs" && **r != missing).map(|r| (path(r), "")));
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let (_dir, tree) = planted(&files);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_room_may_be_missing_only_where_the_head_says_so() {
        assert!(said("//! An engine.\n", "").is_empty());
        assert!(said("//! There is no\n//! `alloc.rs`: the log is allocated in `plan.rs`.\n", "alloc.rs").is_empty());
        let missing = said("//! The log is allocated in `alloc.rs`.\n", "alloc.rs");
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(missing.iter().all(|m| m.starts_with("crates/fs/yfs/src/lib.rs:1: has no alloc.rs")));
    }

    #[test]
    fn the_head_does_not_deny_a_room_that_is_there() {
        assert_eq!(said("//! There is no `alloc.rs`.\n", "").len(), 1);
    }
}
