//! The graph of directories and inodes as a checker keeps it: which directory holds which, and link counts.

use crate::issue::{Node, Paths, Say};
use arbor_base::vfs::mode;
use std::ops::{Deref, DerefMut};

/// File type of a directory in entries and records: the mode's type bits, shifted by 12.
pub const DIR_KIND: u8 = (mode::IFDIR >> 12) as u8;
/// The directory in the root for inodes without names.
pub const LOST_FOUND: &str = "lost+found";
/// How many other names are tried if that one is taken.
const TRIES: u32 = 100;
/// Longest name.
const MAX_NAME: usize = 255;

/// `name`, and the names that are tried if it is taken.
pub fn spare_names(name: &str) -> impl Iterator<Item = String> {
    (0..TRIES).map(move |n| if n == 0 { name.to_string() } else { format!("{name}.{n}") })
}

/// Name of an inode in lost+found: the number, then what is known of its name.
pub fn lost_name(ino: u64, known: Option<&[u8]>) -> Vec<u8> {
    let mut out = format!("#{ino}").into_bytes();
    if let Some(name) = known {
        out.push(b' ');
        out.extend(name.iter().take(MAX_NAME.saturating_sub(out.len() + 4)));
    }
    out
}

/// The record of an inode in use. `K` is the type of an inode number; `C` that of the parent that a directory names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record<K, C = ()> {
    /// Its number.
    pub ino: K,
    /// For a directory, the one that holds its name; 0 if none does.
    pub parent: K,
    /// Names found; for a directory, subdirectories found.
    pub found: u32,
    /// Link count as it is stored.
    pub stored: u32,
    /// For a directory, the parent that it names.
    pub dotdot: C,
    /// File type.
    pub kind: u8,
    /// Flags.
    pub flags: u16,
}

const _: () = assert!(size_of::<Record<u32, u32>>() == 24 && size_of::<Record<u64>>() == 32);

impl<K, C> Record<K, C> {
    /// It is a file without bytes and attributes.
    pub const EMPTY: u16 = 1;
    /// It can be reached from the root.
    pub const REACHED: u16 = 2;
    /// It cannot be reached from the root.
    pub const LOST: u16 = 4;
    /// On the way that is being followed.
    const ON_PATH: u16 = 8;
    /// It was cleared.
    pub const GONE: u16 = 16;
    /// It is on a list of those without names.
    pub const LISTED: u16 = 32;
    /// Its names were read, so each of its blocks is there.
    pub const READ: u16 = 64;
    /// It has a name, though its parent may not say so.
    pub const NAMED: u16 = 128;
    /// It names another directory as its parent.
    pub const WRONG_PARENT: u16 = 256;
    /// It is a directory that was removed while it was in use: it has nothing, and no name may lead to it.
    pub const REMOVED: u16 = 512;

    /// Whether it is a directory that is still there.
    pub fn is_dir(&self) -> bool {
        self.kind == DIR_KIND && !self.has(Self::GONE)
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Sets or clears a flag.
    pub fn set(&mut self, flag: u16, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }

    /// Counts a name, or subdirectory, that was found.
    pub fn count(&mut self) {
        self.found = self.found.saturating_add(1);
    }

    /// Takes one back that was counted.
    pub fn uncount(&mut self) {
        self.found = self.found.saturating_sub(1);
    }

    /// The link count that it should have.
    pub fn links(&self) -> u32 {
        if self.is_dir() { self.found.saturating_add(2) } else { self.found }
    }
}

/// A second name of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extra<K> {
    /// The directory where it is.
    pub dir: K,
    /// Offset of the entry in it.
    pub offset: u64,
    /// The directory that it names.
    pub child: K,
}

/// Where the way up from a directory ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End<R> {
    /// At one from which the rest of the way is known.
    At(R),
    /// The one above is not in use, or there is none above.
    Nowhere,
    /// At one that was on the way already: a loop.
    Loop(R),
}

/// Records of all inodes in use, by number.
#[derive(Clone, Debug)]
pub struct Forest<K, C = ()> {
    recs: Vec<Record<K, C>>,
    extras: Vec<Extra<K>>,
}

impl<K, C> Default for Forest<K, C> {
    fn default() -> Forest<K, C> {
        Forest { recs: Vec::new(), extras: Vec::new() }
    }
}

impl<K, C> Deref for Forest<K, C> {
    type Target = [Record<K, C>];

    fn deref(&self) -> &[Record<K, C>] {
        &self.recs
    }
}

impl<K, C> DerefMut for Forest<K, C> {
    fn deref_mut(&mut self) -> &mut [Record<K, C>] {
        &mut self.recs
    }
}

impl<K: Copy + Ord + Default, C: Copy + Default> Forest<K, C> {
    /// Reserves memory for so many records.
    pub fn reserve(&mut self, records: usize) {
        self.recs.reserve_exact(records);
    }

    /// Appends a record; records must come in the order of their numbers.
    pub fn push(&mut self, rec: Record<K, C>) {
        self.recs.push(rec);
    }

    /// Inserts a record at its place; replaces one of the same number.
    pub fn put(&mut self, rec: Record<K, C>) {
        let at = self.recs.partition_point(|r| r.ino < rec.ino);
        match self.recs.get_mut(at).filter(|r| r.ino == rec.ino) {
            Some(old) => *old = rec,
            None => self.recs.insert(at, rec),
        }
    }

    /// Index of the record of an inode that is there.
    pub fn find(&self, ino: K) -> Option<usize> {
        let at = self.recs.binary_search_by_key(&ino, |r| r.ino).ok()?;
        self.recs.get(at).filter(|r| !r.has(Record::<K, C>::GONE)).map(|_| at)
    }

    /// The record of an inode that is there.
    pub fn of(&self, ino: K) -> Option<Record<K, C>> {
        self.find(ino).and_then(|at| self.recs.get(at)).copied()
    }

    /// The same, to be changed.
    pub fn rec(&mut self, ino: K) -> Option<&mut Record<K, C>> {
        let at = self.find(ino)?;
        self.recs.get_mut(at)
    }

    /// Sets or clears a flag of an inode that is there.
    pub fn flag(&mut self, ino: K, flag: u16, on: bool) {
        if let Some(rec) = self.rec(ino) {
            rec.set(flag, on);
        }
    }

    /// Notes which directory holds a directory.
    pub fn set_parent(&mut self, ino: K, parent: K) {
        if let Some(rec) = self.rec(ino) {
            rec.parent = parent;
        }
    }

    /// Those that were not cleared.
    pub fn there(&self) -> impl Iterator<Item = &Record<K, C>> {
        self.recs.iter().filter(|r| !r.has(Record::<K, C>::GONE))
    }

    /// Directories, as they are now.
    pub fn dirs(&self) -> Vec<K> {
        self.recs.iter().filter(|r| r.is_dir()).map(|r| r.ino).collect()
    }

    /// Counts a name in a directory. The first name of a directory decides which one holds it.
    pub fn name(&mut self, dir: K, offset: u64, ino: K) {
        let Some(rec) = self.rec(ino) else { return };
        if !rec.is_dir() {
            rec.count();
        } else if rec.parent == K::default() {
            rec.parent = dir;
        } else {
            self.extras.push(Extra { dir, offset, child: ino });
        }
    }

    /// Takes back the names in a directory that is cleared.
    pub fn lose_name(&mut self, dir: K, ino: K) {
        let Some(rec) = self.rec(ino) else { return };
        if !rec.is_dir() {
            rec.uncount();
        } else if rec.parent == dir {
            rec.parent = K::default();
        }
    }

    /// The further names of directories.
    pub fn take_extras(&mut self) -> Vec<Extra<K>> {
        std::mem::take(&mut self.extras)
    }

    /// Counts each directory for the one that holds it.
    pub fn count_dirs(&mut self) {
        for ino in self.dirs() {
            let parent = self.of(ino).map_or(K::default(), |rec| rec.parent);
            if let Some(parent) = self.rec(parent).filter(|p| p.ino != ino) {
                parent.count();
            }
        }
    }

    /// Climbs from a directory to one that is `known`; returns those on the way, and how it ends.
    pub fn climb(&mut self, from: K, known: impl Fn(&Record<K, C>) -> bool) -> (Vec<K>, End<Record<K, C>>) {
        let (mut way, mut at) = (Vec::new(), from);
        let end = loop {
            match self.of(at) {
                None => break End::Nowhere,
                Some(rec) if known(&rec) => break End::At(rec),
                Some(rec) if rec.has(Record::<K, C>::ON_PATH) => break End::Loop(rec),
                Some(rec) => {
                    self.flag(at, Record::<K, C>::ON_PATH, true);
                    way.push(at);
                    at = rec.parent;
                }
            }
        };
        way.iter().for_each(|ino| self.flag(*ino, Record::<K, C>::ON_PATH, false));
        (way, end)
    }
}

/// A chunk of a directory, or a place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The directory.
    pub dir: u32,
    /// Where the chunk begins in the directory.
    pub offset: u64,
    /// Where it lies on the volume; 0 where nobody asks.
    pub byte: u64,
}

impl Spot {
    /// The place `len` bytes further.
    pub fn plus(self, len: u64) -> Spot {
        let byte = if self.byte == 0 { 0 } else { self.byte + len };
        Spot { offset: self.offset + len, byte, ..self }
    }
}

impl Say for Spot {
    fn say(&self, paths: &Paths) -> String {
        let place = format!("{}, offset {}", Node(self.dir.into()).say(paths), self.offset);
        if self.byte == 0 { place } else { format!("{place}, byte {}", self.byte) }
    }

    fn node(&self) -> Option<u64> {
        Some(self.dir.into())
    }
}

/// How grave an issue of the directory tree is; an engine says what that means for preening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// What is right follows from the rest of the tree.
    Count,
    /// A call that was cut off leaves it, in an engine that does not make calls atomic.
    CutOff,
    /// Mending it may lose something.
    Damage,
}

crate::issues! {
    pub enum TreeIssue;
    RootLost { ino: u64, why: &'static str } Error Damage "the root directory, inode {ino}, {why}";
    DirHole { ino: Node, offset: u64 } Error Damage "directory {ino} has no block at offset {offset}";
    /// A chunk of a directory, from a place in it on.
    DirChunk { spot: Spot, why: &'static str } Error Damage "directory {spot}: {why}";
    /// The first two entries of a directory.
    Dots { spot: Spot, why: &'static str } Error Damage "directory {spot}: {why}";
    DotDot { ino: Node, found: Node, expected: Node } Error Count
        "directory {ino} calls {found} its parent, it lies in {expected}";
    EntryName { dir: Node, name: String, offset: u64 } Error Damage
        "directory {dir}, offset {offset}: {name} is no valid name";
    EntryTarget { dir: Node, name: String, ino: Node, why: &'static str } Error Damage
        "directory {dir}: entry {name} names inode {ino}, which {why}";
    EntryKind { dir: Node, name: String, ino: Node } Error Count
        "directory {dir}: entry {name} has not the file type of inode {ino}";
    DuplicateName { dir: Node, name: String } Error Damage "directory {dir} has the name {name} twice";
    TwoParents { ino: Node, kept: Node, dropped: Node } Error CutOff
        "directory {ino} lies in directory {kept} and has another name in {dropped}";
    DirLoop { ino: Node } Error Damage "directory {ino} lies below itself";
    /// In use without a name: it was made or removed when the volume was not unmounted, or its directory is lost.
    Unnamed { ino: Node, what: &'static str, why: &'static str } Warning CutOff "{what} {ino} has no name: {why}";
    LinkCount { ino: Node, found: u32, expected: u32 } Error Count
        "inode {ino} has link count {found}, should have {expected}";
    NoSpace { what: String } Error Damage "no space to repair {what}";
}

impl TreeIssue {
    /// Whether files, names or contents may be lost.
    pub fn loses(&self) -> bool {
        let kept = matches!(self, TreeIssue::Dots { .. } | TreeIssue::DirLoop { .. } | TreeIssue::NoSpace { .. });
        self.class() == Class::Damage && !kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rec = Record<u64>;

    fn forest(dirs: &[(u64, u64)]) -> Forest<u64> {
        let mut forest = Forest::default();
        dirs.iter().for_each(|(ino, parent)| {
            forest.put(Rec { ino: *ino, parent: *parent, kind: DIR_KIND, ..Rec::default() });
        });
        forest
    }

    #[test]
    fn a_climb_ends_where_enough_is_known_or_nowhere_or_at_a_loop() {
        let wide = 0xff << 56;
        let mut f = forest(&[(2, 2), (3, 2), (4, 3), (5, 9), (6, 7), (7, 8), (8, 7), (wide | 1, 4)]);
        let mut ends = |from| {
            let (way, end) = f.climb(from, |r| r.ino == 2);
            let told = match end {
                End::At(rec) => ("at", rec.ino),
                End::Nowhere => ("nowhere", 0),
                End::Loop(rec) => ("loop", rec.ino),
            };
            (way, told)
        };
        assert_eq!(ends(wide | 1), (vec![wide | 1, 4, 3], ("at", 2)));
        assert_eq!(ends(5), (vec![5], ("nowhere", 0)));
        assert_eq!(ends(6), (vec![6, 7, 8], ("loop", 7)));
        assert_eq!(ends(6), (vec![6, 7, 8], ("loop", 7)), "a climb leaves no mark");
        f.flag(3, Rec::GONE, true);
        assert_eq!(f.climb(4, |r| r.ino == 2), (vec![4], End::Nowhere));
    }

    #[test]
    fn names_are_counted_and_the_second_of_a_directory_is_extra() {
        let mut f = forest(&[(4, 0), (3, 0), (2, 2)]);
        f.put(Rec { ino: 9, kind: 8, stored: 1, ..Rec::default() });
        for (dir, offset, ino) in [(2, 12, 3), (2, 24, 4), (3, 36, 4), (3, 48, 9), (2, 60, 9), (2, 72, 77)] {
            f.name(dir, offset, ino);
        }
        assert_eq!(f.take_extras(), [Extra { dir: 3, offset: 36, child: 4 }]);
        f.count_dirs();
        let links: Vec<_> = f.iter().map(|r| (r.ino, r.parent, r.links())).collect();
        assert_eq!(links, [(2, 2, 4), (3, 2, 2), (4, 2, 2), (9, 0, 2)]);
        f.lose_name(2, 9);
        f.lose_name(3, 4);
        f.lose_name(2, 3);
        assert_eq!((f.of(9).unwrap().found, f.of(4).unwrap().parent, f.of(3).unwrap().parent), (1, 2, 0));
    }

    #[test]
    fn a_record_takes_the_place_of_one_that_was_cleared() {
        let mut f = forest(&[(2, 2), (3, 2)]);
        f.flag(2, Rec::GONE, true);
        assert_eq!((f.find(2), f.dirs(), f.there().count(), f.len()), (None, vec![3], 1, 2));
        f.put(Rec { ino: 2, parent: 2, kind: DIR_KIND, ..Rec::default() });
        assert_eq!((f.find(2), f.len()), (Some(0), 2));
    }

    #[test]
    fn names_in_lost_and_found() {
        assert_eq!(lost_name(7, None), b"#7");
        assert_eq!(lost_name(7, Some(b"name")), b"#7 name");
        assert_eq!(lost_name(7, Some(&[b'x'; 300])).len(), 251);
        let names: Vec<String> = spare_names(LOST_FOUND).take(3).collect();
        assert_eq!(
            (names, spare_names("#7").count()),
            (vec!["lost+found".into(), "lost+found.1".into(), "lost+found.2".into()], 100)
        );
    }
}
