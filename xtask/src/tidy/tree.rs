//! The texts that the rules look at.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Where texts are looked for, and of which kinds.
const PLACES: &[&str] = &["crates", "docs", "fuzz", "xtask", "README.md", "ARCHITECTURE.md", "Cargo.toml"];
const KINDS: &[&str] = &["rs", "toml", "txt", "md"];

/// The repository, with the texts in it by their paths.
pub struct Tree {
    pub root: PathBuf,
    pub files: Vec<Source>,
}

/// A file, with its path from the root.
pub struct Source {
    pub path: String,
    pub text: String,
}

impl Tree {
    pub fn read(root: &Path) -> Result<Tree> {
        let mut tree = Tree { root: root.to_path_buf(), files: Vec::new() };
        for place in PLACES {
            tree.add(Path::new(place)).with_context(|| place.to_string())?;
        }
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        let there = self.root.join(path);
        if there.is_dir() {
            for entry in fs::read_dir(&there)? {
                let name = entry?.file_name();
                if name != "target" && !name.to_string_lossy().starts_with('.') {
                    self.add(&path.join(name))?;
                }
            }
        } else if path.extension().is_some_and(|e| KINDS.iter().any(|k| e == *k)) && there.exists() {
            let text = fs::read_to_string(&there).with_context(|| path.display().to_string())?;
            self.files.push(Source { path: path.to_string_lossy().into_owned(), text });
        }
        Ok(())
    }

    /// The Rust sources below `dir`, a path that ends with `/`.
    pub fn rust<'a>(&'a self, dir: &str) -> impl Iterator<Item = &'a Source> + use<'a> {
        let dir = dir.to_string();
        self.files.iter().filter(move |f| f.path.starts_with(&dir) && f.path.ends_with(".rs"))
    }

    pub fn file(&self, path: &str) -> Option<&Source> {
        self.files.iter().find(|f| f.path == path)
    }

    /// The names of all engines.
    pub fn engines(&self) -> Vec<&str> {
        let of = |f: &'_ Source| f.path.strip_prefix("crates/fs/").is_some_and(|p| p.ends_with("/Cargo.toml"));
        self.files.iter().filter(|f| of(f)).filter_map(|f| f.path.split('/').nth(2)).collect()
    }
}

impl Source {
    /// The line, from 1, of the first place where `text` stands.
    pub fn line_of(&self, text: &str) -> usize {
        self.text.find(text).map_or(1, |at| line_at(&self.text, at))
    }
}

/// The line, from 1, of a position in `text`.
pub fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|b| *b == b'\n').count() + 1
}

/// A tree of these texts, in memory but for its root.
#[cfg(test)]
pub fn planted(files: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let tree = Tree::read(dir.path()).unwrap();
    (dir, tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_and_builds_are_not() {
        let (_dir, tree) = planted(&[
            ("crates/fs/yfs/Cargo.toml", ""),
            ("crates/fs/yfs/src/lib.rs", "one\ntwo\n"),
            ("crates/fs/yfs/tests/image.bin", ""),
            ("fuzz/target/debug/made.rs", ""),
        ]);
        let paths: Vec<&str> = tree.files.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(paths, ["crates/fs/yfs/Cargo.toml", "crates/fs/yfs/src/lib.rs"]);
        assert_eq!(tree.engines(), ["yfs"]);
        assert_eq!(tree.file("crates/fs/yfs/src/lib.rs").unwrap().line_of("two"), 2);
    }
}
