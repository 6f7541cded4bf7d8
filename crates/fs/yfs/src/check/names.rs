//! Paths for the sentences of the issues: names met on the way, and those of the directories
//! above them, looked up when everything else is done.

use super::Checker;
use super::issue::Paths;
use crate::check::dirs::parse_body;
use arbor_base::vfs::Result;
use arbor_kit::issue::readable;
use std::collections::{BTreeMap, BTreeSet};

/// Directory and name in it.
type Place = (u64, Vec<u8>);

/// Deepest path that is told.
const DEPTH: usize = 4096;
/// Longest path that is told, in bytes: no call of the kernel takes a longer one, and each issue has its own.
const LONGEST: usize = 4096;

impl Checker<'_> {
    /// Paths of what the issues speak of, as far as they can be known.
    pub(super) fn paths(&mut self) -> Result<Paths> {
        let named = std::mem::take(&mut self.f.named);
        let (mut files, mut heads) = (BTreeMap::new(), BTreeSet::new());
        let mut missing = BTreeSet::new();
        for (ino, place) in named {
            let rec = self.find(ino).and_then(|at| self.recs.get(at));
            match (rec, place) {
                // Where a directory lies is known by its record, and may have changed.
                (Some(rec), _) if rec.is_dir() => drop(heads.insert(ino)),
                (_, Some(place)) => drop(files.insert(ino, place)),
                (Some(_), None) => drop(missing.insert(ino)),
                (None, None) => {}
            }
        }
        self.name_files(&missing, &mut files)?;
        let wanted: Vec<u64> = heads.iter().chain(files.keys()).copied().collect();
        heads.extend(files.values().map(|place| place.0));
        let dirs = self.name_dirs(heads)?;
        Ok(compose(self.r.sb.root.get(), &wanted, &files, &dirs))
    }

    /// Names of files that were spoken of after the directories had been read.
    fn name_files(&mut self, wanted: &BTreeSet<u64>, files: &mut BTreeMap<u64, Place>) -> Result<()> {
        if wanted.is_empty() {
            return Ok(());
        }
        let dirs: Vec<u64> = self.recs.iter().filter(|r| r.is_dir()).map(|r| r.ino).collect();
        for (n, dir) in (0u64..).zip(&dirs) {
            self.report(n, dirs.len() as u64, "paths");
            self.each_entry(*dir, &mut |name, ino| {
                if wanted.contains(&ino) {
                    files.entry(ino).or_insert_with(|| (*dir, name.to_vec()));
                }
            })?;
        }
        Ok(())
    }

    /// Where the directories above lie, level by level; each parent is read once a level.
    fn name_dirs(&mut self, mut wanted: BTreeSet<u64>) -> Result<BTreeMap<u64, Place>> {
        let root = self.r.sb.root.get();
        let mut dirs: BTreeMap<u64, Place> = BTreeMap::new();
        for _ in 0..DEPTH {
            let mut by_parent: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
            for ino in wanted.iter().filter(|i| **i != root && !dirs.contains_key(i)) {
                if let Some(rec) = self.find(*ino).and_then(|at| self.recs.get(at)) {
                    by_parent.entry(rec.parent()).or_default().insert(*ino);
                }
            }
            wanted.clear();
            if by_parent.is_empty() {
                break;
            }
            for (parent, children) in by_parent {
                self.each_entry(parent, &mut |name, ino| {
                    if children.contains(&ino) {
                        dirs.entry(ino).or_insert_with(|| (parent, name.to_vec()));
                    }
                })?;
                wanted.insert(parent);
            }
        }
        Ok(dirs)
    }

    /// Calls `f` with each name in a directory and what it names. Damage is passed over.
    fn each_entry(&self, dir: u64, f: &mut dyn FnMut(&[u8], u64)) -> Result<()> {
        let i = match self.fresh.get(&dir) {
            None => self.r.inode(dir)?,
            fresh => fresh.cloned(),
        };
        let Some(i) = i else { return Ok(()) };
        for group in self.bodies(&i, self.edits.get(&dir))?.chunks(super::dirs::BLOCKS) {
            for (body, _) in self.read_bodies(&i, group)? {
                for e in parse_body(body.as_deref().unwrap_or(&[])).0 {
                    f(e.name, e.head.ino.get());
                }
            }
        }
        Ok(())
    }
}

/// Paths of what is wanted only: those of all directories above would grow by the square of the depth.
fn compose(root: u64, wanted: &[u64], files: &BTreeMap<u64, Place>, dirs: &BTreeMap<u64, Place>) -> Paths {
    let mut paths = Paths::new();
    for ino in wanted {
        if let Some(path) = files.get(ino).or_else(|| dirs.get(ino)).and_then(|place| path(root, place, dirs)) {
            paths.insert(*ino, path);
        }
    }
    paths.insert(root, "/".into());
    paths
}

/// The path of what lies at a place; `None` if the way to the root is not known, or too long to be told.
fn path(root: u64, place: &Place, dirs: &BTreeMap<u64, Place>) -> Option<String> {
    let mut names = vec![&place.1];
    let mut len = 1 + place.1.len();
    let mut at = place.0;
    while at != root {
        let above = dirs.get(&at).filter(|_| names.len() < DEPTH)?;
        names.push(&above.1);
        len += 1 + above.1.len();
        if len > LONGEST {
            return None;
        }
        at = above.0;
    }
    Some(names.iter().rev().map(|name| format!("/{}", readable(name))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_spoken_of_gets_a_path_and_none_without_end() {
        let dirs: BTreeMap<u64, Place> = (1..=2000).map(|ino| (ino, (ino - 1, vec![b'd'; 200]))).collect();
        let files = BTreeMap::from([(9000, (1, b"f".to_vec())), (9001, (2000, b"f".to_vec()))]);
        let paths = compose(0, &[10, 2000, 9000, 9001], &files, &dirs);
        assert_eq!(paths.keys().copied().collect::<Vec<_>>(), [0, 10, 9000]);
        assert_eq!((paths[&10].len(), &paths[&9000][201..]), (2010, "/f"));
    }
}
