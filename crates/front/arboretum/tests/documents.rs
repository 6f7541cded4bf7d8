//! Documents that name a test behind each promise: the tests and files are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// What a document has in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Tests are called by sentences, which nothing else is that these documents name.
fn is_test(word: &str) -> bool {
    word.matches('_').count() >= 3 && word.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}

#[test]
fn tests_that_documents_name_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut files = Vec::new();
    sources(&root.join("crates"), &mut files);
    let code: Vec<String> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    // Some tests are made by macros, which are given a name.
    let words: BTreeSet<&str> = code
        .iter()
        .flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .filter(|word| is_test(word))
        .collect();
    for document in ["docs/semantics.md", "docs/security.md"] {
        let text = fs::read_to_string(root.join(document)).unwrap();
        let names: Vec<&str> = quoted(&text).filter(|word| is_test(word)).collect();
        assert!(names.len() > 20, "{document} names {} tests", names.len());
        let missing: Vec<_> = names.into_iter().filter(|name| !words.contains(name)).collect();
        assert!(missing.is_empty(), "{document} names tests that are not there: {missing:?}");
        let is_file = |word: &&str| word.starts_with("crates/") && word.ends_with(".rs") && !word.contains('*');
        let missing: Vec<_> = quoted(&text).filter(is_file).filter(|path| !root.join(path).exists()).collect();
        assert!(missing.is_empty(), "{document} names files that are not there: {missing:?}");
    }
}
