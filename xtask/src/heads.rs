//! The heads of source files (`//!`), and the tables of rooms in `ARCHITECTURE.md` that are made from them.

use crate::layout::Tables;
use crate::tidy::Tree;
use std::fmt::Write as _;

/// The head of a source as one text, its paragraphs between empty lines.
pub fn head(text: &str) -> String {
    let mut head = String::new();
    for line in text.lines().map_while(|line| line.strip_prefix("//!")) {
        match line.trim() {
            "" => head.push_str("\n\n"),
            line if head.is_empty() || head.ends_with('\n') => head.push_str(line),
            line => head.extend([" ", line]),
        }
    }
    head
}

/// The first sentence of a head, with links as their words.
fn first_sentence(head: &str) -> String {
    let paragraph = head.split("\n\n").next().unwrap_or_default();
    let ends = paragraph.match_indices(". ").find(|(at, _)| {
        paragraph.get(at + 2..).and_then(|rest| rest.chars().next()).is_some_and(|c| !c.is_lowercase())
    });
    let sentence = ends.map_or(paragraph, |(at, _)| paragraph.get(..at).unwrap_or(paragraph));
    unlinked(sentence.trim_end_matches('.'))
}

/// `[words](target)` and `` [`Name`] `` as their words.
fn unlinked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        out.push_str(before);
        let Some((words, beyond)) = link.split_once(']') else {
            out.push('[');
            rest = link;
            continue;
        };
        out.push_str(words);
        rest = beyond.strip_prefix('(').and_then(|target| target.split_once(')')).map_or(beyond, |(_, rest)| rest);
    }
    out + rest
}

/// Tables of the rooms of each engine, of `kit` and of `base`.
pub fn tables(tree: &Tree) -> Tables {
    let mut tables = Tables::new();
    let sources = tree.engines().into_iter().map(|e| (e, format!("crates/fs/{e}/src/")));
    for (name, src) in sources.chain(["kit", "base"].map(|name| (name, format!("crates/{name}/src/")))) {
        let mut table = String::from("| file | what |\n|---|---|\n");
        for file in tree.rust(&src) {
            let Some(room) = file.path.strip_prefix(&src).and_then(room) else { continue };
            let sentence = first_sentence(&head(&file.text)).replace('|', "\\|");
            let _ = writeln!(table, "| `{room}` | {sentence} |");
        }
        tables.insert(format!("rooms {name}"), table);
    }
    tables
}

/// What the table shows for a file: one of the first floor, or a directory by its `mod.rs`. The files of a directory
/// are named by the head of its module, but those of `commit.rs`, which are rooms of their own.
fn room(path: &str) -> Option<&str> {
    match path.split_once('/') {
        None => Some(path),
        Some((_, "mod.rs")) => path.strip_suffix("mod.rs"),
        Some(("commit", _)) => Some(path),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::planted;

    #[test]
    fn a_head_ends_where_the_code_begins() {
        assert_eq!(head("//! One\n//! two.\n//!\n//! Three.\n\nuse x;\n//! four\n"), "One two.\n\nThree.");
        assert_eq!(head("use x;\n"), "");
    }

    #[test]
    fn a_sentence_ends_at_a_stop_before_a_capital() {
        let sentence = |text| first_sentence(&head(text));
        assert_eq!(
            sentence("//! Files (3.1 to\n//! 3.3), e.g. small ones. More.\n"),
            "Files (3.1 to 3.3), e.g. small ones"
        );
        assert_eq!(
            sentence("//! Chunks ([`dirent`](super::dirent)) of [`Name`].\n//!\n//! More.\n"),
            "Chunks (`dirent`) of `Name`"
        );
        assert_eq!(sentence("//! An array a[i\n"), "An array a[i");
    }

    #[test]
    fn tables_show_the_first_floor_and_what_orders_writes() {
        let (_dir, tree) = planted(&[
            ("crates/fs/yfs/Cargo.toml", ""),
            ("crates/fs/yfs/src/alloc.rs", "//! Free | used. More.\n"),
            ("crates/fs/yfs/src/check/dirs.rs", "//! Names.\n"),
            ("crates/fs/yfs/src/commit/soft.rs", "//! Soft updates.\n"),
            ("crates/base/src/vfs/mod.rs", "//! Seams.\n"),
            ("crates/base/src/vfs/acl.rs", "//! Lists.\n"),
        ]);
        let tables = tables(&tree);
        let table = |name: &str| tables.get(name).unwrap().lines().skip(2).collect::<Vec<_>>();
        assert_eq!(table("rooms yfs"), ["| `alloc.rs` | Free \\| used |", "| `commit/soft.rs` | Soft updates |"]);
        assert_eq!(table("rooms base"), ["| `vfs/` | Seams |"]);
        assert!(table("rooms kit").is_empty());
    }
}
