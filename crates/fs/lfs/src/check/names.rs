//! The paths of what issues speak of.

use super::issue::Paths;
use super::{Checker, Rec};
use crate::format::*;
use arbor_base::vfs::Result;
use arbor_kit::issue::readable;
use std::collections::{BTreeMap, BTreeSet};

/// Files whose paths are looked for, at most.
const WANTED: usize = 10_000;
/// Longest path in names.
const DEEPEST: usize = 64;

/// Directory and name in it.
type Place = (u32, Vec<u8>);

impl Checker<'_> {
    /// Paths of the files that were found to be damaged, as far as they have any now.
    pub(super) fn paths(&mut self) -> Result<Paths> {
        let wanted: BTreeSet<u64> = self.f.issues.iter().flat_map(|i| i.nodes()).take(WANTED).collect();
        let mut places = BTreeMap::new();
        self.find_files(&wanted, &mut places)?;
        let mut dirs: BTreeSet<u32> = wanted.iter().filter_map(|i| u32::try_from(*i).ok()).collect();
        dirs.extend(places.values().map(|(dir, _): &Place| *dir));
        for ino in dirs {
            self.find_dirs(ino, &mut places)?;
        }
        Ok(wanted.iter().filter_map(|ino| Some((*ino, path(*ino, &places)?))).collect())
    }

    /// Names of wanted inodes that are no directories.
    fn find_files(&mut self, wanted: &BTreeSet<u64>, places: &mut BTreeMap<u64, Place>) -> Result<()> {
        let is_file = |ino: &u64| u32::try_from(*ino).is_ok_and(|i| self.find(i).is_some_and(|k| !self.at(k).is_dir()));
        let mut files: BTreeSet<u64> = wanted.iter().filter(|i| is_file(i)).copied().collect();
        for dir in self.dirs() {
            if files.is_empty() {
                break;
            }
            for e in self.names_in(dir).unwrap_or_default() {
                if files.remove(&e.ino.into()) {
                    places.insert(e.ino.into(), (dir, e.name));
                }
            }
            self.breathe();
        }
        Ok(())
    }

    /// The name of a directory and of those above it.
    fn find_dirs(&mut self, ino: u32, places: &mut BTreeMap<u64, Place>) -> Result<()> {
        let mut at = ino;
        for _ in 0..DEEPEST {
            let rec: Rec = match self.find(at).map(|k| self.at(k)) {
                Some(rec) if rec.is_dir() && at != ROOT.0 as u32 && !places.contains_key(&at.into()) => rec,
                _ => return Ok(()),
            };
            if self.find(rec.parent).is_none() {
                return Ok(());
            }
            let names = self.names_in(rec.parent).unwrap_or_default();
            let Some(e) = names.into_iter().find(|e| e.ino == at) else { return Ok(()) };
            places.insert(at.into(), (rec.parent, e.name));
            at = rec.parent;
        }
        Ok(())
    }
}

fn path(ino: u64, places: &BTreeMap<u64, Place>) -> Option<String> {
    let (mut at, mut path) = (ino, String::new());
    for _ in 0..DEEPEST {
        if at == ROOT.0 {
            return Some(if path.is_empty() { "/".into() } else { path });
        }
        let (dir, name) = places.get(&at)?;
        path = format!("/{}{path}", readable(name));
        at = (*dir).into();
    }
    None
}
