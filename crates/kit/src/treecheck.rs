//! The check of directory trees: names, connectivity, link counts; of directories made of chunks
//! ([`dirent`](super::dirent)) also those ([`ChunkCheck`]), and the walk along one path of them ([`ChunkWay`]).
//!
//! An engine changes entries, link counts and inodes ([`TreeCheck`]), and notes the issues ([`TreeIssue`]); everything else
//! is here. Memory: the names of the directory that is being read, and the inode numbers on a way to
//! the root. Called by the checkers of FFS, LFS, plain and ReiserFS.

use crate::chunkrepair::{cut_chunk, dots, put_dots, set_ino, set_kind};
use crate::dirent::{DIRBLKSIZ, DOTDOT_AT, entries, entry};
use crate::forest::{End, Forest, Record, Spot, TreeIssue};
use crate::issue::{Node, show};
use crate::paths::{Tree, Way};
use arbor_base::vfs::{Ino, Result, is_name};
use rustc_hash::FxHashSet;

/// Names of the directory that is being read.
pub type Names = FxHashSet<Box<[u8]>>;
/// The record of an inode.
pub type Rec = Record<u32, u32>;

/// A number of an inode, as an engine has them.
pub trait Number: Copy + Ord + Default + Into<u64> + std::fmt::Display {
    /// The number of an inode that is there.
    fn of(ino: Ino) -> Self;
}

impl Number for u32 {
    fn of(ino: Ino) -> u32 {
        ino.0 as u32
    }
}

impl Number for u64 {
    fn of(ino: Ino) -> u64 {
        ino.0
    }
}
/// Why an entry cannot name an inode that is not in use.
pub const NOT_IN_USE: &str = "is not in use";

/// An entry in use.
#[derive(Clone, Debug)]
pub struct Named<N = u32> {
    /// Where it is in the directory: by byte, or as the engine counts.
    pub offset: u64,
    /// What it names.
    pub ino: N,
    /// Its name.
    pub name: Vec<u8>,
}

/// The inode that a name in these chunks names, with the file type of the entry.
pub fn find_name(chunks: &[u8], name: &[u8]) -> Option<(Ino, u8)> {
    let find = |chunk: &[u8]| {
        let all = entries(chunk).unwrap_or_default();
        all.iter().find(|e| e.ino.0 != 0 && e.name == name).map(|e| (e.ino, e.kind))
    };
    chunks.chunks_exact(DIRBLKSIZ).find_map(find)
}

/// The record of an inode, with the numbers of a checker.
type RecOf<C> = Record<<C as TreeCheck>::Number, <C as TreeCheck>::Number>;

/// A checker of a tree of directories.
pub trait TreeCheck: Sized {
    /// Numbers of inodes.
    type Number: Number;
    /// The root directory.
    const ROOT: Ino;
    /// Most links that an inode can count.
    const MOST_LINKS: u32;

    /// The inodes in use.
    fn forest(&mut self) -> &mut Forest<Self::Number, Self::Number>;

    /// The same, to be read.
    fn records(&self) -> &Forest<Self::Number, Self::Number>;

    /// Notes an issue.
    fn tell(&mut self, issue: TreeIssue);

    /// The entries in use of a directory that was checked, without its dots.
    fn names_in(&mut self, dir: Self::Number) -> Result<Vec<Named<Self::Number>>>;

    /// The same, for the search of names of files in issues, which passes over damage.
    fn names_for_paths(&mut self, dir: Self::Number) -> Result<Vec<Named<Self::Number>>> {
        Ok(self.names_in(dir).unwrap_or_default())
    }

    /// Changes the inode of the entry at an offset of a directory; 0 makes it free. At [`DOTDOT_AT`] is the parent.
    fn put_entry_ino(&mut self, dir: Self::Number, offset: u64, ino: Self::Number) -> Result<()>;

    /// Changes a link count.
    fn put_links(&mut self, ino: Self::Number, links: u32) -> Result<()>;

    /// Frees an inode.
    fn clear(&mut self, ino: Self::Number) -> Result<()>;

    /// Gives an inode a name in lost+found; returns that directory, 0 if there is no room.
    fn adopt(&mut self, ino: Self::Number, kind: u8) -> Result<Self::Number>;

    /// Whether inodes without names, that should have one, get one in lost+found.
    fn reconnects(&self) -> bool {
        true
    }

    /// Why an entry cannot name an inode that is not in use.
    fn why_absent(&self, _ino: Ino) -> &'static str {
        NOT_IN_USE
    }

    /// Called with each entry that can stay: its directory, name, inode and file type.
    fn met(&mut self, _dir: Self::Number, _name: &[u8], _ino: Self::Number, _kind: u8) {}

    // Entries.

    /// The kind that an entry must have, `None` if it cannot stay. `e`: its name, its inode, its kind.
    fn check_entry(
        &mut self,
        (dir, offset): (Self::Number, u64),
        e: (&[u8], Self::Number, u8),
        names: &mut Names,
    ) -> Option<u8> {
        let (at, ino) = (Node(dir.into()), Node(e.1.into()));
        if !self.check_name(at, e.0, offset, names.contains(e.0)) {
            return None;
        }
        let rec = self.forest().of(e.1);
        let why = match rec {
            None => Some(self.why_absent(Ino(ino.0))),
            Some(_) if ino.0 == Self::ROOT.0 => Some("is the root directory"),
            Some(_) if e.1 == dir => Some("is the directory itself"),
            Some(rec) if rec.has(Record::<(), ()>::REMOVED) => Some("is a directory that was removed"),
            Some(_) => None,
        };
        if let Some(why) = why {
            self.tell(TreeIssue::EntryTarget { dir: at, name: show(e.0), ino, why });
            return None;
        }
        let kind = rec.map_or(0, |r| r.kind);
        if e.2 != kind {
            self.tell(TreeIssue::EntryKind { dir: at, name: show(e.0), ino });
        }
        self.met(dir, e.0, e.1, kind);
        names.insert(e.0.into());
        self.forest().name(dir, offset, e.1);
        Some(kind)
    }

    /// Whether a file can have this name: it is valid, and new in its directory.
    fn check_name(&mut self, dir: Node, name: &[u8], offset: u64, known: bool) -> bool {
        if !is_name(name) {
            self.tell(TreeIssue::EntryName { dir, name: show(name), offset });
        } else if known {
            self.tell(TreeIssue::DuplicateName { dir, name: show(name) });
        }
        is_name(name) && !known
    }

    // Connectivity.

    /// Called for progress: so much of the work on connectivity is done.
    fn step(&mut self, _done: u64, _total: u64) {}

    /// Gives each directory one parent, connects all of them to the root, and counts names. A directory without a name
    /// that says itself that it has none is cleared.
    fn connect(&mut self) -> Result<()> {
        self.step(0, 2);
        self.drop_extras()?;
        self.reach_dirs()?;
        let none = Self::Number::default();
        let lost = |r: &&RecOf<Self>| r.is_dir() && r.has(Rec::LOST) && r.parent == none;
        let lost: Vec<RecOf<Self>> = self.forest().there().filter(lost).copied().collect();
        for rec in lost {
            if rec.stored > 0 {
                self.reconnect(rec.ino, rec.kind)?;
                continue;
            }
            self.unnamed(rec.ino, "directory", "it was left over");
            for e in self.names_in(rec.ino)? {
                self.forest().lose_name(rec.ino, e.ino);
                self.put_entry_ino(rec.ino, e.offset, none)?;
            }
            self.clear(rec.ino)?;
        }
        self.check_dotdots()?;
        self.step(1, 2);
        self.count_links()
    }

    /// Removes the extra names of directories: the one in the parent that the directory names stays.
    fn drop_extras(&mut self) -> Result<()> {
        for extra in self.forest().take_extras() {
            let Some(rec) = self.forest().of(extra.child) else { continue };
            let swap = rec.dotdot == extra.dir && rec.parent != extra.dir;
            let (kept, dropped) = if swap { (extra.dir, rec.parent) } else { (rec.parent, extra.dir) };
            let ino = Node(extra.child.into());
            self.tell(TreeIssue::TwoParents { ino, kept: Node(kept.into()), dropped: Node(dropped.into()) });
            if swap {
                self.drop_name(dropped, extra.child)?;
            } else {
                self.put_entry_ino(extra.dir, extra.offset, Self::Number::default())?;
            }
            self.forest().set_parent(extra.child, kept);
        }
        Ok(())
    }

    /// Removes the first name of `ino` in a directory.
    fn drop_name(&mut self, dir: Self::Number, ino: Self::Number) -> Result<()> {
        match self.names_in(dir)?.into_iter().find(|e| e.ino == ino) {
            Some(e) => self.put_entry_ino(dir, e.offset, Self::Number::default()),
            None => Ok(()),
        }
    }

    /// Marks all directories by whether they can be reached from the root; cuts loops.
    fn reach_dirs(&mut self) -> Result<()> {
        for ino in self.forest().dirs() {
            self.reach(ino)?;
        }
        Ok(())
    }

    /// Follows the parents of a directory up to the root, or to one that has none.
    fn reach(&mut self, ino: Self::Number) -> Result<()> {
        let root = Self::Number::of(Self::ROOT);
        let known = |rec: &RecOf<Self>| rec.ino == root || rec.has(Rec::REACHED) || rec.has(Rec::LOST);
        let (way, end) = self.forest().climb(ino, known);
        let mut flag = Rec::LOST;
        match end {
            End::At(rec) if rec.ino == root => {
                flag = Rec::REACHED;
                self.forest().set_parent(root, root);
                self.forest().flag(root, flag, true);
            }
            End::At(rec) if rec.has(Rec::REACHED) => flag = Rec::REACHED,
            End::At(_) | End::Nowhere => {}
            End::Loop(rec) => {
                self.tell(TreeIssue::DirLoop { ino: Node(rec.ino.into()) });
                self.drop_name(rec.parent, rec.ino)?;
                self.forest().set_parent(rec.ino, Self::Number::default());
            }
        }
        way.into_iter().for_each(|ino| self.forest().flag(ino, flag, true));
        Ok(())
    }

    /// Gives a directory without a name one in lost+found.
    fn reconnect(&mut self, ino: Self::Number, kind: u8) -> Result<()> {
        self.unnamed(ino, "directory", "its place is lost+found");
        let parent = self.adopt(ino, kind)?;
        self.forest().set_parent(ino, parent);
        if parent != Self::Number::default() {
            self.one_link_more(parent)?;
            self.put_entry_ino(ino, DOTDOT_AT as u64, parent)?;
            self.forest().rec(ino).into_iter().for_each(|rec| rec.dotdot = parent);
        }
        Ok(())
    }

    /// Notes an inode without a name.
    fn unnamed(&mut self, ino: Self::Number, what: &'static str, why: &'static str) {
        self.tell(TreeIssue::Unnamed { ino: Node(ino.into()), what, why });
    }

    /// Counts a subdirectory that this run has added.
    fn one_link_more(&mut self, dir: Self::Number) -> Result<()> {
        let Some(rec) = self.forest().rec(dir) else { return Ok(()) };
        rec.stored = rec.stored.saturating_add(1).min(Self::MOST_LINKS);
        let links = rec.stored;
        self.put_links(dir, links)
    }

    /// Checks that the `..` of each directory whose names were read names the directory that holds it.
    fn check_dotdots(&mut self) -> Result<()> {
        for dir in self.forest().dirs() {
            let Some(rec) = self.forest().of(dir).filter(|rec| rec.has(Rec::READ)) else { continue };
            if rec.parent != Self::Number::default() && rec.parent != rec.dotdot {
                let (found, expected) = (Node(rec.dotdot.into()), Node(rec.parent.into()));
                self.tell(TreeIssue::DotDot { ino: Node(dir.into()), found, expected });
                self.put_entry_ino(dir, DOTDOT_AT as u64, rec.parent)?;
            }
        }
        Ok(())
    }

    // Names that were counted.

    /// Checks that each inode has a name, and that its link count is the number of its names.
    fn count_links(&mut self) -> Result<()> {
        let unnamed = |r: &&RecOf<Self>| !r.is_dir() && r.found == 0 && !r.has(Rec::LISTED);
        let unnamed: Vec<RecOf<Self>> = self.forest().there().filter(unnamed).copied().collect();
        for Record { ino, stored, kind, flags, .. } in unnamed {
            if !self.reconnects() || flags & Rec::EMPTY != 0 || stored == 0 {
                self.unnamed(ino, "inode", "it was left over");
                self.clear(ino)?;
                continue;
            }
            self.unnamed(ino, "inode", "its place is lost+found");
            if self.adopt(ino, kind)? != Self::Number::default()
                && let Some(rec) = self.forest().rec(ino)
            {
                rec.found = 1;
            }
        }
        self.forest().count_dirs();
        let expected = |r: &RecOf<Self>| r.links().min(Self::MOST_LINKS);
        let wrong = |r: &&RecOf<Self>| !r.has(Rec::LISTED) && expected(r) != r.stored && expected(r) != 0;
        let wrong: Vec<RecOf<Self>> = self.forest().there().filter(wrong).copied().collect();
        for rec in wrong {
            let (ino, expected) = (Node(rec.ino.into()), expected(&rec));
            self.tell(TreeIssue::LinkCount { ino, found: rec.stored, expected });
            self.put_links(rec.ino, expected)?;
        }
        Ok(())
    }
}

/// A checker of directories that are made of chunks.
pub trait ChunkCheck: TreeCheck<Number = u32> {
    /// Checks one chunk and mends it.
    fn check_chunk(&mut self, spot: Spot, chunk: &mut [u8], names: &mut Names) {
        if spot.offset == 0 {
            self.check_dots(spot, chunk);
        }
        let (mut at, mut last) = (0, None);
        while at < DIRBLKSIZ {
            let e = match entry(chunk, at) {
                Ok(e) => e,
                Err(why) => {
                    self.tell(TreeIssue::DirChunk { spot: spot.plus(at as u64), why });
                    cut_chunk(chunk, last);
                    return;
                }
            };
            let next = at + e.reclen;
            let is_dot = spot.offset == 0 && at <= DOTDOT_AT;
            if e.ino.0 != 0 && !is_dot {
                let place = (spot.dir, spot.offset + e.at as u64);
                match self.check_entry(place, (e.name, e.ino.0 as u32, e.kind), names) {
                    None => set_ino(chunk, at, Ino(0)),
                    Some(kind) => set_kind(chunk, at, kind),
                }
            }
            last = Some(at);
            at = next;
        }
    }

    /// The first two entries of a directory.
    fn check_dots(&mut self, spot: Spot, chunk: &mut [u8]) {
        let dir = Ino(spot.dir.into());
        let parent = match dots(dir, chunk) {
            Ok(parent) => parent,
            Err(why) => {
                self.tell(TreeIssue::Dots { spot, why });
                put_dots(dir, Self::ROOT, chunk)
            }
        };
        if let Some(rec) = self.forest().rec(spot.dir) {
            rec.dotdot = parent.0 as u32;
        }
    }

    /// Checks one chunk of a directory that lies in `parent`, without what the entries name. Nothing is mended.
    fn check_form(&mut self, spot: Spot, parent: u32, chunk: &[u8], names: &mut Names) {
        let (ino, expected) = (Node(spot.dir.into()), Node(parent.into()));
        if spot.offset == 0 {
            match dots(Ino(spot.dir.into()), chunk) {
                Err(why) => self.tell(TreeIssue::Dots { spot, why }),
                Ok(up) if up.0 != expected.0 => self.tell(TreeIssue::DotDot { ino, found: Node(up.0), expected }),
                Ok(_) => {}
            }
        }
        match entries(chunk) {
            Err(why) => self.tell(TreeIssue::DirChunk { spot, why }),
            Ok(all) => {
                for e in all.iter().filter(|e| e.ino.0 != 0 && (spot.offset > 0 || e.at > DOTDOT_AT)) {
                    if self.check_name(ino, e.name, spot.offset + e.at as u64, names.contains(e.name)) {
                        names.insert(e.name.into());
                    }
                }
            }
        }
    }
}

impl<C: TreeCheck<Number = u32>> ChunkCheck for C {}

/// What lies at the place of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// No inode in use.
    Nothing,
    /// An inode in use of this file type.
    Kind(u8),
    /// Something damaged.
    Damage,
}

/// A checker of the inodes on one path, which knows how to read them; the walk follows from that ([`Way`]).
pub trait ChunkWay: TreeCheck<Number = u32> {
    /// What lies at the place of an inode.
    fn held(&mut self, ino: Ino) -> Result<Held>;

    /// Checks an inode with its blocks and attributes, and records it if it can be used.
    fn check_alone(&mut self, ino: Ino) -> Result<()>;

    /// Calls `f` with where each page of a directory begins and its bytes; with none if it cannot be read.
    fn each_page(&mut self, dir: u32, f: &mut dyn FnMut(&mut Self, Spot, &[u8])) -> Result<()>;

    /// Notes a page of a directory that cannot be read, unless the check of the inode has done so.
    fn unreadable(&mut self, _spot: Spot) {}

    /// Whether nothing was found so far.
    fn is_sound(&self) -> bool;
}

impl<C: ChunkWay> Way for C {
    type Inode = Rec;

    fn root(&self) -> u64 {
        C::ROOT.0
    }

    /// With its blocks and attributes, and the chunks of a directory.
    fn way_inode(&mut self, ino: u64, parent: u64) -> Result<Option<Rec>> {
        match self.held(Ino(ino))? {
            Held::Nothing if ino == C::ROOT.0 => self.tell(TreeIssue::RootLost { ino, why: NOT_IN_USE }),
            Held::Nothing => {}
            Held::Kind(_) | Held::Damage => self.check_alone(Ino(ino))?,
        }
        let Some(rec) = self.records().of(ino as u32) else { return Ok(None) };
        if rec.is_dir() {
            let mut names = Names::default();
            self.each_page(rec.ino, &mut |c, spot, page| {
                if page.is_empty() {
                    c.unreadable(spot);
                }
                for (n, chunk) in (0..).step_by(DIRBLKSIZ).zip(page.chunks_exact(DIRBLKSIZ)) {
                    c.check_form(spot.plus(n), parent as u32, chunk, &mut names);
                }
            })?;
        }
        Ok(Some(rec))
    }

    fn leads_on(&self, rec: &Rec) -> bool {
        rec.is_dir()
    }

    fn way_entry(&mut self, rec: &Rec, name: &[u8]) -> Result<Option<u64>> {
        let mut found = None;
        self.each_page(rec.ino, &mut |_, _, page| found = found.or_else(|| find_name(page, name)))?;
        let Some((target, kind)) = found else { return Ok(None) };
        let (dir, ino, name) = (Node(rec.ino.into()), Node(target.0), show(name));
        match self.held(target)? {
            Held::Nothing => {
                self.tell(TreeIssue::EntryTarget { dir, name, ino, why: self.why_absent(target) });
                return Ok(None);
            }
            Held::Kind(held) if held != kind => self.tell(TreeIssue::EntryKind { dir, name, ino }),
            Held::Kind(_) | Held::Damage => {}
        }
        Ok(Some(target.0))
    }

    fn is_sound(&self) -> bool {
        ChunkWay::is_sound(self)
    }
}

impl<C: TreeCheck> Tree for C {
    fn root(&self) -> u64 {
        C::ROOT.0
    }

    fn is_dir(&self, ino: u64) -> Option<bool> {
        self.records().of(C::Number::of(Ino(ino))).filter(|rec| rec.ino.into() == ino).map(|rec| rec.is_dir())
    }

    fn dirs(&self) -> Vec<u64> {
        self.records().dirs().into_iter().map(Into::into).collect()
    }

    fn above(&self, dir: u64) -> Option<u64> {
        let rec = self.records().of(C::Number::of(Ino(dir))).filter(|rec| rec.ino.into() == dir && rec.is_dir())?;
        self.records().find(rec.parent).map(|_| rec.parent.into())
    }

    fn each_name(&mut self, dir: u64, f: &mut dyn FnMut(&[u8], u64)) -> Result<()> {
        for e in self.names_for_paths(C::Number::of(Ino(dir)))? {
            f(&e.name, e.ino.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunkrepair::insert_into;
    use crate::dirent::{Dirent, first_chunks, put_entry};
    use crate::forest::{DIR_KIND, lost_name};
    use std::collections::BTreeMap;

    const LOST: u32 = 3;

    /// Directories of one chunk each, in memory. Directory 3 is lost+found.
    #[derive(Default)]
    struct Toy {
        dirs: BTreeMap<u32, Vec<u8>>,
        links: BTreeMap<u32, u32>,
        forest: Forest<u32, u32>,
        told: Vec<TreeIssue>,
    }

    impl Toy {
        fn of(dirs: &[(u32, u32)], files: &[u32]) -> Toy {
            let mut tree = Toy::default();
            for (ino, parent) in [(2, 2), (LOST, 2)].iter().chain(dirs) {
                tree.dirs.insert(*ino, first_chunks(DIRBLKSIZ, Ino((*ino).into()), Ino((*parent).into())));
                tree.links.insert(*ino, 2);
            }
            tree.links.extend(files.iter().map(|ino| (*ino, 1)));
            tree.enter(2, b"lost+found", LOST);
            tree
        }

        fn kind(&self, ino: u32) -> u8 {
            if self.dirs.contains_key(&ino) { DIR_KIND } else { 8 }
        }

        fn enter(&mut self, dir: u32, name: &[u8], ino: u32) {
            let kind = self.kind(ino);
            assert!(insert_into(self.dirs.get_mut(&dir).unwrap(), name, Ino(ino.into()), kind));
            if kind == DIR_KIND {
                *self.links.get_mut(&dir).unwrap() += 1;
            }
        }

        /// A pass; what it tells.
        fn pass(&mut self) -> Vec<TreeIssue> {
            self.forest = Forest::default();
            for (ino, links) in &self.links {
                self.forest.put(Rec { ino: *ino, stored: *links, kind: self.kind(*ino), ..Rec::default() });
            }
            for dir in self.forest.dirs() {
                let (mut chunk, mut names) = (self.dirs[&dir].clone(), Names::default());
                self.check_chunk(Spot { dir, offset: 0, byte: 0 }, &mut chunk, &mut names);
                self.dirs.insert(dir, chunk);
                self.forest.flag(dir, Rec::READ, true);
            }
            self.drop_extras().unwrap();
            self.reach_dirs().unwrap();
            for dir in self.forest.dirs() {
                if self.forest.of(dir).is_some_and(|rec| rec.has(Rec::LOST) && rec.parent == 0) {
                    self.reconnect(dir, DIR_KIND).unwrap();
                }
            }
            self.check_dotdots().unwrap();
            self.count_links().unwrap();
            std::mem::take(&mut self.told)
        }
    }

    impl TreeCheck for Toy {
        type Number = u32;
        const ROOT: Ino = Ino(2);
        const MOST_LINKS: u32 = 5;

        fn forest(&mut self) -> &mut Forest<u32, u32> {
            &mut self.forest
        }

        fn records(&self) -> &Forest<u32, u32> {
            &self.forest
        }

        fn tell(&mut self, issue: TreeIssue) {
            self.told.push(issue);
        }

        fn names_in(&mut self, dir: u32) -> Result<Vec<Named>> {
            let all = entries(&self.dirs[&dir]).unwrap();
            let used = all.iter().filter(|e| e.ino.0 != 0 && e.at > DOTDOT_AT);
            let named = |e: &Dirent<'_>| Named { offset: e.at as u64, ino: e.ino.0 as u32, name: e.name.to_vec() };
            Ok(used.map(named).collect())
        }

        fn put_entry_ino(&mut self, dir: u32, offset: u64, ino: u32) -> Result<()> {
            set_ino(self.dirs.get_mut(&dir).unwrap(), offset as usize, Ino(ino.into()));
            Ok(())
        }

        fn put_links(&mut self, ino: u32, links: u32) -> Result<()> {
            self.links.insert(ino, links);
            Ok(())
        }

        fn clear(&mut self, ino: u32) -> Result<()> {
            self.links.remove(&ino);
            self.forest.flag(ino, Rec::GONE, true);
            Ok(())
        }

        fn adopt(&mut self, ino: u32, kind: u8) -> Result<u32> {
            let chunk = self.dirs.get_mut(&LOST).unwrap();
            assert!(insert_into(chunk, &lost_name(ino.into(), None), Ino(ino.into()), kind));
            Ok(LOST)
        }
    }

    fn node(ino: u64) -> Node {
        Node(ino)
    }

    #[test]
    fn a_sound_tree_is_left_alone() {
        let mut tree = Toy::of(&[(4, 2), (5, 4)], &[9]);
        for (dir, name, ino) in [(2, b"a", 4), (4, b"b", 5), (5, b"c", 9)] {
            tree.enter(dir, name, ino);
        }
        assert_eq!(tree.pass(), []);
        let up = TreeIssue::DotDot { ino: node(5), found: node(4), expected: node(2) };
        let chunk = tree.dirs[&5].clone();
        tree.check_form(Spot { dir: 5, offset: 0, byte: 0 }, 2, &chunk, &mut Names::default());
        assert_eq!((tree.told, find_name(&chunk, b"c"), find_name(&chunk, b"d")), (vec![up], Some((Ino(9), 8)), None));
    }

    #[test]
    fn of_two_names_the_one_stays_that_the_directory_agrees_with() {
        for (parent, kept, dropped) in [(4, 4, 5), (5, 5, 4), (2, 4, 5)] {
            let mut tree = Toy::of(&[(4, 2), (5, 2), (6, parent)], &[]);
            for (dir, name, ino) in [(2, b"a", 4), (2, b"b", 5), (4, b"c", 6), (5, b"d", 6)] {
                tree.enter(dir, name, ino);
            }
            let told = tree.pass();
            assert_eq!(told[0], TreeIssue::TwoParents { ino: node(6), kept: node(kept), dropped: node(dropped) });
            assert!(tree.names_in(dropped as u32).unwrap().is_empty());
            assert_eq!(told.iter().any(|v| matches!(v, TreeIssue::DotDot { .. })), parent == 2);
            assert_eq!(tree.pass(), []);
        }
    }

    #[test]
    fn loops_and_what_has_no_name_go_to_lost_and_found() {
        let mut tree = Toy::of(&[(4, 5), (5, 4), (6, 2)], &[9, 10]);
        tree.enter(4, b"a", 5);
        tree.enter(5, b"b", 4);
        tree.links.insert(10, 0);
        let told = tree.pass();
        assert_eq!(told[0], TreeIssue::DirLoop { ino: node(4) });
        let unnamed = |v: &TreeIssue| match v {
            TreeIssue::Unnamed { ino, why, .. } => Some((ino.0, *why == "it was left over")),
            _ => None,
        };
        let unnamed: Vec<_> = told.iter().filter_map(unnamed).collect();
        assert_eq!(unnamed, [(4, false), (6, false), (9, false), (10, true)]);
        let lost: Vec<_> = tree.names_in(LOST).unwrap().into_iter().map(|e| e.name).collect();
        assert_eq!((lost, tree.links.contains_key(&10)), (vec![b"#4".to_vec(), b"#6".to_vec(), b"#9".to_vec()], false));
        assert_eq!(tree.pass(), []);
    }

    #[test]
    fn entries_that_cannot_stay_go_and_links_are_counted() {
        let mut tree = Toy::of(&[(4, 2)], &[9, 10]);
        let names =
            [(2, &b"a"[..], 4), (4, b"root", 2), (4, b"own", 4), (4, b"gone", 77), (4, b"f/g", 9), (4, b"f", 9)];
        names.into_iter().for_each(|(dir, name, ino)| tree.enter(dir, name, ino));
        tree.enter(4, b"f", 9);
        (0..6).for_each(|n| tree.enter(4, format!("link{n}").as_bytes(), 9));
        tree.links.insert(4, 2);
        tree.enter(2, b"b", 10);
        tree.links.insert(10, 3);
        let told = tree.pass();
        let why = |v: &TreeIssue| match v {
            TreeIssue::EntryTarget { why, .. } => *why,
            TreeIssue::EntryName { .. } => "name",
            TreeIssue::DuplicateName { .. } => "twice",
            TreeIssue::LinkCount { expected: 5, .. } => "too low",
            TreeIssue::LinkCount { expected: 1, .. } => "too high",
            _ => "",
        };
        let entries = ["is the root directory", "is the directory itself", NOT_IN_USE, "name", "twice"];
        assert_eq!(told.iter().map(why).collect::<Vec<_>>(), [&entries[..], &["too low", "too high"]].concat());
        assert_eq!((tree.links[&9], tree.pass()), (5, vec![]));
    }

    #[test]
    fn a_broken_chunk_is_cut_where_it_breaks() {
        let mut tree = Toy::of(&[(4, 2)], &[9]);
        tree.enter(2, b"a", 4);
        tree.enter(4, b"f", 9);
        tree.enter(4, b"g", 9);
        put_entry(&mut tree.dirs.get_mut(&4).unwrap()[36..], Ino(9), 6, 8, b"g");
        set_ino(tree.dirs.get_mut(&4).unwrap(), 0, Ino(5));
        let told = tree.pass();
        assert!(matches!(told[0], TreeIssue::Dots { spot: Spot { dir: 4, .. }, .. }), "{told:?}");
        assert!(matches!(told[1], TreeIssue::DirChunk { spot: Spot { dir: 4, offset: 36, .. }, .. }), "{told:?}");
        assert_eq!((told.len(), tree.pass()), (2, vec![]));
    }
}
