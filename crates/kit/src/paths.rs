//! Paths, for checkers: those of files in issues, and the walk along one path that is checked alone.
//!
//! The paths of files in issues are looked up when everything else is done.

use crate::findings::Place;
use crate::issue::{Paths, readable};
use arbor_base::vfs::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Longest path that is shown, in bytes: no call of the kernel takes a longer one, and each issue has its own.
pub const LONGEST: usize = 4096;

/// The tree as a checker knows it.
pub trait Tree {
    /// Number of the root directory.
    fn root(&self) -> u64;

    /// Whether an inode is a directory; `None` if it is not in use.
    fn is_dir(&self, ino: u64) -> Option<bool>;

    /// All directories.
    fn dirs(&self) -> Vec<u64>;

    /// The directory above a directory, if that is known.
    fn above(&self, dir: u64) -> Option<u64>;

    /// Calls `f` with each name in a directory and the inode it names. Damage is skipped.
    fn each_name(&mut self, dir: u64, f: &mut dyn FnMut(&[u8], u64)) -> Result<()>;

    /// Called for progress: so many of all directories were searched for names.
    fn searched(&mut self, _done: u64, _total: u64) {}
}

/// Paths of files, as far as they can be known; `named` holds the place of those that were met in a directory.
pub fn paths(tree: &mut impl Tree, named: BTreeMap<u64, Option<Place>>) -> Result<Paths> {
    let (mut files, mut heads) = (BTreeMap::new(), BTreeSet::new());
    let mut missing = BTreeSet::new();
    for (ino, place) in named {
        match (tree.is_dir(ino), place) {
            // The place of a directory may have changed since: its record has it.
            (Some(true), _) => drop(heads.insert(ino)),
            (_, Some(place)) => drop(files.insert(ino, place)),
            (Some(false), None) => drop(missing.insert(ino)),
            (None, None) => {}
        }
    }
    name_files(tree, missing, &mut files)?;
    let wanted: Vec<u64> = heads.iter().chain(files.keys()).copied().collect();
    heads.extend(files.values().map(|place| place.0));
    let dirs = name_dirs(tree, heads)?;
    Ok(compose(tree.root(), &wanted, &files, &dirs))
}

/// Finds the names of files without a place: issues noted them after the directories had been read.
fn name_files(tree: &mut impl Tree, mut missing: BTreeSet<u64>, files: &mut BTreeMap<u64, Place>) -> Result<()> {
    let dirs = if missing.is_empty() { Vec::new() } else { tree.dirs() };
    for (n, dir) in (0u64..).zip(&dirs) {
        tree.searched(n, dirs.len() as u64);
        tree.each_name(*dir, &mut |name, ino| {
            if missing.remove(&ino) {
                files.insert(ino, (*dir, name.to_vec()));
            }
        })?;
        if missing.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Finds the places of all directories above, level by level; each parent is read once a level.
fn name_dirs(tree: &mut impl Tree, mut wanted: BTreeSet<u64>) -> Result<BTreeMap<u64, Place>> {
    let root = tree.root();
    let mut dirs: BTreeMap<u64, Place> = BTreeMap::new();
    for _ in 0..LONGEST {
        let mut by_parent: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for ino in wanted.iter().filter(|i| **i != root && !dirs.contains_key(i)) {
            if let Some(parent) = tree.above(*ino) {
                by_parent.entry(parent).or_default().insert(*ino);
            }
        }
        wanted.clear();
        if by_parent.is_empty() {
            break;
        }
        for (parent, children) in by_parent {
            tree.each_name(parent, &mut |name, ino| {
                if children.contains(&ino) {
                    dirs.entry(ino).or_insert_with(|| (parent, name.to_vec()));
                }
            })?;
            wanted.insert(parent);
        }
    }
    Ok(dirs)
}

/// Composes the paths that are wanted, and no others: those of all directories above would take the square of the
/// depth.
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

/// The path of a place; `None` if the way to the root is not known, or the path too long.
fn path(root: u64, place: &Place, dirs: &BTreeMap<u64, Place>) -> Option<String> {
    let mut names = vec![&place.1];
    let mut len = 1 + place.1.len();
    let mut at = place.0;
    while at != root {
        let above = dirs.get(&at)?;
        names.push(&above.1);
        len += 1 + above.1.len();
        if len > LONGEST {
            return None;
        }
        at = above.0;
    }
    Some(names.iter().rev().map(|name| format!("/{}", readable(name))).collect())
}

/// Checks the inodes and names on one path.
pub trait Way {
    /// An inode that can be used.
    type Inode;

    /// Number of the root directory.
    fn root(&self) -> u64;

    /// Checks an inode that lies in `parent`; `None` if it cannot be used.
    fn way_inode(&mut self, ino: u64, parent: u64) -> Result<Option<Self::Inode>>;

    /// Whether it can have entries.
    fn leads_on(&self, inode: &Self::Inode) -> bool;

    /// The inode that a name in a directory names.
    fn way_entry(&mut self, dir: &Self::Inode, name: &[u8]) -> Result<Option<u64>>;

    /// Whether nothing was found so far.
    fn is_sound(&self) -> bool;
}

/// Checks the inodes on a path, and notes the path of each. Returns the inode at its end, if that can be used.
pub fn follow<W: Way>(way: &mut W, path: &[u8], paths: &mut Paths) -> Result<Option<W::Inode>> {
    let (mut ino, mut parent) = (way.root(), way.root());
    let mut here = String::new();
    for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".") {
        paths.insert(ino, if here.is_empty() { "/".into() } else { here.clone() });
        let Some(inode) = way.way_inode(ino, parent)? else { return Ok(None) };
        here = format!("{here}/{}", readable(name));
        let missing = Error::refused(format!("there is no {here} on this volume"));
        if !way.leads_on(&inode) {
            return Err(missing);
        }
        let next = match way.way_entry(&inode, name)? {
            Some(next) => next,
            None if way.is_sound() => return Err(missing),
            None => return Ok(None),
        };
        (parent, ino) = (ino, next);
    }
    paths.insert(ino, if here.is_empty() { "/".into() } else { here });
    way.way_inode(ino, parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directory 0 is the root, each of the next lies in the one before it; the last holds a file.
    struct Chain {
        depth: u64,
        name: &'static [u8],
        reads: usize,
    }

    impl Tree for Chain {
        fn root(&self) -> u64 {
            0
        }
        fn is_dir(&self, ino: u64) -> Option<bool> {
            (ino <= self.depth + 1).then_some(ino <= self.depth)
        }
        fn dirs(&self) -> Vec<u64> {
            (0..=self.depth).collect()
        }
        fn above(&self, dir: u64) -> Option<u64> {
            dir.checked_sub(1)
        }
        fn each_name(&mut self, dir: u64, f: &mut dyn FnMut(&[u8], u64)) -> Result<()> {
            self.reads += 1;
            f(self.name, dir + 1);
            Ok(())
        }
    }

    #[test]
    fn a_path_is_told_up_to_the_longest() {
        for (depth, told) in [(0, true), (65, true), (LONGEST as u64 / 2 - 1, true), (LONGEST as u64 / 2, false)] {
            let mut chain = Chain { depth, name: b"d", reads: 0 };
            let found = paths(&mut chain, BTreeMap::from([(depth + 1, None), (depth + 2, None)])).unwrap();
            let path = told.then(|| "/d".repeat(depth as usize + 1));
            assert_eq!((found.get(&(depth + 1)), found.get(&(depth + 2))), (path.as_ref(), None), "{depth}");
        }
    }

    #[test]
    fn a_directory_is_read_once_a_level_and_a_place_that_is_known_is_not_searched() {
        let mut chain = Chain { depth: 9, name: b"d", reads: 0 };
        let found = paths(&mut chain, BTreeMap::from([(10, Some((3, b"f".to_vec())))])).unwrap();
        assert_eq!((found[&10].as_str(), chain.reads), ("/d/d/d/f", 3));
    }

    #[test]
    fn a_loop_ends() {
        let dirs = BTreeMap::from([(1, (2, b"a".to_vec())), (2, (1, b"b".to_vec()))]);
        assert_eq!(path(0, &(1, b"f".to_vec()), &dirs), None);
    }

    #[test]
    fn only_what_is_spoken_of_gets_a_path_and_none_without_end() {
        let dirs: BTreeMap<u64, Place> = (1..=2000).map(|ino| (ino, (ino - 1, vec![b'd'; 200]))).collect();
        let files = BTreeMap::from([(9000, (1, b"f".to_vec())), (9001, (2000, b"f".to_vec()))]);
        let paths = compose(0, &[10, 2000, 9000, 9001], &files, &dirs);
        assert_eq!(paths.keys().copied().collect::<Vec<_>>(), [0, 10, 9000]);
        assert_eq!((paths[&10].len(), &paths[&9000][201..]), (2010, "/f"));
    }
}
