//! What a power cut may leave of an engine that keeps each thing in order, not all operations
//! ([`CrashPromise::Ordered`]).
//!
//! *Names*: each one that is there was there, for an inode of the same kind, in some state between the last
//! promise and the cut. A name that was the same in all of these states is there. A file that had a name in all
//! of them, or ever since it was synced, has one of those names.
//!
//! *Attributes*: owner, permissions, extended attributes and targets are those of one of these states.
//!
//! *Contents*: as the [`oracle`](crate::oracle) has them; under a name that a file took from another, with those it
//! had then or later.

use crate::compare::{join, show};
use crate::model::{Body, Node, ROOT, State};
use crate::oracle::{Oracle, Promise};
use arbor_base::vfs::{Attr, CrashPromise, FileSystem, FileType};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Names that an exchange may leave beside those it exchanged.
const THIRD: &[u8] = b".exchange-";

/// Where the checker puts what has no name.
const LOST: &[u8] = b"/lost+found";

/// What a directory or file that was found may be in the history.
struct Found {
    path: Vec<u8>,
    attr: Attr,
    candidates: BTreeSet<u64>,
    /// What the directory and the name in it may be.
    parents: BTreeSet<u64>,
    name: Vec<u8>,
}

struct Window<'a> {
    oracle: &'a Oracle,
    fs: &'a dyn FileSystem,
    at: usize,
    /// States that names may be of.
    states: RangeInclusive<usize>,
    /// The first state that attributes may be of.
    from: usize,
}

/// Holds a recovered file system against the history up to event `at`.
pub(crate) fn verify(oracle: &Oracle, fs: &dyn FileSystem, at: usize, promise: CrashPromise) -> Result<(), String> {
    let CrashPromise::Ordered { names } = promise else { return Err("no promise of order".to_string()) };
    let promised = oracle.oldest_all(at);
    let from = if names { oracle.done(at) } else { promised };
    let window = Window { oracle, fs, at, states: from..=oracle.newest(at), from: promised };
    let found = window.walk()?;
    window.must_exist(from, &found)?;
    let there: BTreeSet<u64> = found.values().flatten().copied().collect();
    let named = |ino: u64, s: usize| oracle.state(s).node(ino).is_ok_and(|n| n.nlink > 0);
    let lost = |ino: &&u64| window.states.clone().all(|s| named(**ino, s)) && !there.contains(*ino);
    if let Some(ino) = oracle.state(from).nodes.keys().find(lost) {
        return Err(format!("file {ino} of the history had a name all the time, and has none"));
    }
    for (i, step) in oracle.steps()[..oracle.done(at)].iter().enumerate() {
        let Promise::File(ino) = step.promise else { continue };
        if (i + 1..=*window.states.end()).all(|s| named(ino, s)) && !there.contains(&ino) {
            return Err(format!("a file that was synced by operation {i} is gone"));
        }
    }
    Ok(())
}

impl Window<'_> {
    fn states(&self) -> impl Iterator<Item = &State> {
        self.states.clone().map(|s| self.oracle.state(s))
    }

    /// What inode `ino` was in the states that names may be of.
    fn nodes(&self, ino: u64) -> impl Iterator<Item = &Node> {
        self.states().filter_map(move |s| s.node(ino).ok())
    }

    /// What it was since the last promise.
    fn past(&self, ino: u64) -> impl Iterator<Item = &Node> {
        (self.from..=*self.states.end()).filter_map(move |s| self.oracle.state(s).node(ino).ok())
    }

    /// Walks the tree that is there; returns what each path may be.
    fn walk(&self) -> Result<BTreeMap<Vec<u8>, BTreeSet<u64>>, String> {
        let (mut all, mut names) = (BTreeMap::new(), BTreeMap::<u64, (u32, u32)>::new());
        let root = self.fs.getattr(self.fs.root()).map_err(|e| format!("getattr of the root: {e}"))?;
        let mut todo = vec![Found {
            path: Vec::new(),
            attr: root,
            candidates: BTreeSet::from([ROOT]),
            parents: BTreeSet::new(),
            name: Vec::new(),
        }];
        let mut dirs = BTreeSet::new();
        while let Some(found) = todo.pop() {
            let kept = self.attributes(&found).map_err(|e| format!("{}: {e}", show(&found.path)))?;
            if found.attr.file_type() != FileType::Dir {
                names.entry(found.attr.ino.0).or_insert((found.attr.nlink, 0)).1 += 1;
            } else if dirs.insert(found.attr.ino.0) {
                // A rename may have left two names of it.
                todo.extend(self.children(&found)?);
            }
            all.insert(found.path, kept);
            if all.len() > 1 << 20 {
                return Err("the tree has no end".to_string());
            }
        }
        match names.iter().find(|(_, (links, names))| links != names) {
            Some((ino, (links, names))) => Err(format!("inode {ino} has {names} names and counts {links}")),
            None => Ok(all),
        }
    }

    fn children(&self, dir: &Found) -> Result<Vec<Found>, String> {
        let fail = |e| format!("{}: {e}", show(&dir.path));
        let mut out = Vec::new();
        let mut names = Vec::new();
        self.fs
            .readdir(dir.attr.ino, 0, &mut |e| {
                names.push((e.name.to_vec(), e.ino, e.file_type));
                true
            })
            .map_err(|e| fail(e.to_string()))?;
        for (name, ino, kind) in names.into_iter().filter(|n| n.0 != b"." && n.0 != b"..") {
            let path = join(&dir.path, &name);
            let attr = self.fs.lookup(dir.attr.ino, &name).map_err(|e| format!("{}: {e}", show(&path)))?;
            self.fs.forget(attr.ino, 1);
            if attr.ino != ino || attr.file_type() != kind {
                return Err(format!("{}: lookup and readdir disagree", show(&path)));
            }
            let dirs = dir.candidates.iter().flat_map(|d| self.nodes(*d)).filter_map(Node::dir);
            let named = dirs.filter_map(|d| d.names.get(&name[..])).map(|e| e.ino);
            let same = |ino: &u64| self.nodes(*ino).any(|n| FileType::from_mode(n.mode) == Some(kind));
            let mut candidates: BTreeSet<u64> = named.filter(same).collect();
            if name.starts_with(THIRD) {
                candidates = self.states().flat_map(|s| s.nodes.keys().copied()).filter(same).collect();
            }
            if candidates.is_empty() && (path == LOST || dir.path == LOST) {
                continue;
            }
            if candidates.is_empty() {
                return Err(format!("{} is there, and was not since the last promise", show(&path)));
            }
            out.push(Found { path, attr, candidates, parents: dir.candidates.clone(), name });
        }
        Ok(out)
    }

    /// Those of the candidates that have the attributes and contents of what is there.
    fn attributes(&self, found: &Found) -> Result<BTreeSet<u64>, String> {
        let mut why = "is like none of what it may be".to_string();
        let mut kept = BTreeSet::new();
        for ino in &found.candidates {
            match self.like(found, *ino) {
                Ok(()) => drop(kept.insert(*ino)),
                Err(e) => why = e,
            }
        }
        if kept.is_empty() { Err(why) } else { Ok(kept) }
    }

    fn like(&self, found: &Found, ino: u64) -> Result<(), String> {
        let a = &found.attr;
        if !self.past(ino).any(|n| (n.mode, n.uid, n.gid, n.rdev) == (a.mode, a.uid, a.gid, a.rdev)) {
            return Err(format!("has mode {:o}, owner {}:{}, which it had not", a.mode, a.uid, a.gid));
        }
        let mut xattrs = BTreeMap::new();
        for key in self.fs.listxattr(a.ino).map_err(|e| format!("listxattr: {e}"))? {
            let value = self.fs.getxattr(a.ino, &key).map_err(|e| format!("getxattr: {e}"))?;
            xattrs.insert(key, value);
        }
        let same = |n: &Node| {
            n.xattrs.len() == xattrs.len() && n.xattrs.iter().all(|(k, v)| xattrs.get(k).is_some_and(|x| x == &**v))
        };
        if !self.past(ino).any(same) {
            return Err("has extended attributes that it had not".to_string());
        }
        match a.file_type() {
            FileType::File => {
                let from = self.replaced(found, ino);
                self.oracle.verify_contents(self.fs, a.ino, a.size, (ino, from, self.at))
            }
            FileType::Symlink => {
                let target = self.fs.readlink(a.ino).map_err(|e| format!("readlink: {e}"))?;
                let same = self.past(ino).any(|n| matches!(&n.body, Body::Symlink(t) if *t == target));
                if same { Ok(()) } else { Err("is a link to where it did not lead".to_string()) }
            }
            _ => Ok(()),
        }
    }

    /// The state in which `ino` took the name under which it was found from another file; 0 if it had it otherwise.
    fn replaced(&self, found: &Found, ino: u64) -> usize {
        let named = |s: usize| {
            let dirs = found.parents.iter().filter_map(|d| self.oracle.state(s).node(*d).ok().and_then(Node::dir));
            dirs.into_iter().any(|d| d.names.get(&found.name[..]).is_some_and(|e| e.ino == ino))
        };
        let Some(mut since) = self.states.clone().find(|s| named(*s)) else { return 0 };
        while since > self.from && named(since - 1) {
            since -= 1;
        }
        let step = since.checked_sub(1).and_then(|i| self.oracle.steps().get(i));
        if since > self.from && step.is_some_and(|s| s.replacer == Some(ino)) { since } else { 0 }
    }

    /// Names that have been the same since state `from` are there.
    fn must_exist(&self, from: usize, found: &BTreeMap<Vec<u8>, BTreeSet<u64>>) -> Result<(), String> {
        let mut todo = vec![(Vec::new(), ROOT)];
        while let Some((path, ino)) = todo.pop() {
            let Some(dir) = self.oracle.state(from).node(ino).ok().and_then(Node::dir) else { continue };
            for (name, entry) in &dir.names {
                let stays = (from..=*self.states.end()).all(|s| {
                    let dir = self.oracle.state(s).node(ino).ok().and_then(Node::dir);
                    dir.and_then(|d| d.names.get(name)).is_some_and(|e| e.ino == entry.ino)
                });
                if !stays {
                    continue;
                }
                let path = join(&path, name);
                if !found.get(&path).is_some_and(|c| c.contains(&entry.ino)) {
                    return Err(format!("{} is missing, or another file", show(&path)));
                }
                todo.push((path, entry.ino));
            }
        }
        Ok(())
    }
}
