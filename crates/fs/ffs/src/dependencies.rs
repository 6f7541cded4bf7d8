//! Dependencies between writes: of soft updates and, for pointers to data, of synchronous writes.
//!
//! (Ganger and Patt 1994; McKusick and Ganger 1999.) A *dependency* stands for one change of a buffer: the bytes before
//! the change, the dependencies whose changes must reach the disk before this one, and the actions to take when it has.
//! A dependency with nothing to undo is an *event*; it ends when the next write of its buffer is durable.
//!
//! A dependency is *ready* when none it waits for exists any more and the inode it lies in need not be rolled back for
//! another. A buffer is ready when all its dependencies are. A write of a buffer that is not ready rolls the others
//! back in the image: that is what breaks cycles between buffers.
//!
//! An entry written to a new directory block cannot be found after a crash until the pointer to the block is on disk
//! too. Until then the block's dependencies, though written, *wait for their parent pointer* (newdirblk of FreeBSD).
//! Several changes at one offset share one dependency, whose undo restores what is on disk; a removed entry that a
//! newer name must precede has one of its own. If an entry is removed before it was ever written, its dependency is
//! dropped and nothing is written: the fast path.
//!
//! Kept beside them: the *work list* of link counts to be lowered, and how much that takes from each inode's count
//! (`going`); the directories that cannot be reached from the root on disk (`under`, `below`); removed entries that a
//! rollback may bring back (`held`).
//!
//! Dependencies are made, rolled back and completed in `commit/soft*`; `synchronous.rs` uses those of pointers. Called
//! by `commit*` and `dir.rs`.

mod invariants;

use crate::buffers::Slot;
use crate::format::*;
use crate::planted::{Flaw, planted};
use arbor_base::cache::{FileBlock, Name};
use arbor_base::vfs::Ino;
pub(crate) use invariants::Freed;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::mem::offset_of;

/// The link counts to lower after a name was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkRelease {
    /// A name of this inode.
    Name(Ino),
    /// This directory, and its entry `..` in the other.
    Dir(Ino, Ino),
    /// An entry `..` in this directory.
    Parent(Ino),
}

/// How to undo a dependency in the image of its buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Undo {
    /// Nothing to undo: an event.
    None,
    /// The whole inode: on disk it is free.
    Inode([u8; INODE]),
    /// A block pointer, and if it lies in an inode, that inode's offset in the buffer and its old size.
    Pointer { old: u32, inode: Option<(usize, u64)> },
    /// A directory entry: the inode and kind that it has on disk, 0 if it is not there.
    Entry { ino: u32, kind: u8 },
    /// The old size of a directory whose last block cannot be reached from its inode yet, or of a file whose last block
    /// has bytes other than zero on disk past the old end.
    Size(u64),
    /// How much of a group's inode table was in use.
    Inited(u32),
}

/// The action to take when a dependency is on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum After {
    Free(Frag, u32),
    FreeInode(Ino, u32),
    Release(LinkRelease),
    /// Completes that dependency too: it was written, and waited for this one as its parent pointer.
    Dependency(u64),
    /// The slot of a removed entry may be reused.
    Vacant(Slot),
}

/// What is to be freed when dependencies are on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frees {
    pub runs: usize,
    pub frags: u64,
    pub inodes: u64,
}

impl Frees {
    fn add(&mut self, after: &After) {
        match after {
            After::Free(_, frags) => (self.runs, self.frags) = (self.runs + 1, self.frags + u64::from(*frags)),
            After::FreeInode(..) => self.inodes += 1,
            _ => {}
        }
    }

    fn take(&mut self, after: &After) {
        match after {
            After::Free(_, frags) => {
                self.runs = self.runs.saturating_sub(1);
                self.frags = self.frags.saturating_sub(u64::from(*frags));
            }
            After::FreeInode(..) => self.inodes = self.inodes.saturating_sub(1),
            _ => {}
        }
    }
}

#[derive(Debug)]
pub(crate) struct Dependency {
    pub buffer: Name,
    /// Byte in the buffer, for those that can be undone.
    pub at: usize,
    pub undo: Undo,
    pub waits: Vec<u64>,
    pub after: Vec<After>,
    /// The inode that a new entry names.
    pub names: u64,
    /// Directory and name of a removed entry that may have to come back.
    pub held: Option<(u64, Vec<u8>)>,
    /// Directory blocks, or indirect blocks above them, that can be reached once it is on disk.
    pub leads_to: Vec<Name>,
    /// Once written: the dependency of the pointer to its block, while that pointer is not on disk.
    /// Of an event whose buffer was dropped: the event that takes its place.
    pub waits_for_parent: Option<u64>,
    /// The entry was removed or changed again while the dependency waited for its parent pointer.
    pub gone: bool,
    /// It is the pointer to the first block of a new directory or symbolic link.
    pub first: bool,
}

impl Dependency {
    pub fn new(buffer: Name, at: usize, undo: Undo, waits: Vec<u64>) -> Dependency {
        let (after, leads_to) = (Vec::new(), Vec::new());
        Dependency {
            buffer,
            at,
            undo,
            waits,
            after,
            names: 0,
            held: None,
            leads_to,
            waits_for_parent: None,
            gone: false,
            first: false,
        }
    }

    /// The inode that the entry of this dependency names on disk.
    fn old_name(&self) -> Option<u64> {
        match self.undo {
            Undo::Entry { ino, .. } if ino != 0 => Some(ino.into()),
            _ => None,
        }
    }

    fn is_event(&self) -> bool {
        matches!(self.undo, Undo::None)
    }
}

/// All dependencies of a volume.
#[derive(Default)]
pub(crate) struct Dependencies {
    last: u64,
    all: FxHashMap<u64, Dependency>,
    of: FxHashMap<Name, Vec<u64>>,
    at: FxHashMap<(Name, usize), u64>,
    /// The event of the next write of a buffer.
    events: FxHashMap<Name, u64>,
    /// Pointers and sizes that are not on disk, by the directory blocks that cannot be reached without them.
    leads: FxHashMap<Name, u64>,
    /// New entries that are not on disk, by the inode that they name.
    adds: FxHashMap<u64, Vec<u64>>,
    /// Names of an inode on disk that have been removed or replaced.
    olds: FxHashMap<u64, Vec<u64>>,
    /// Inodes entered in directories that cannot be reached from the root on disk yet, with these directories.
    under: FxHashMap<u64, FxHashSet<u64>>,
    /// The inverse: by directory, the inodes entered in it.
    below: FxHashMap<u64, Vec<u64>>,
    /// Removed entries that may have to come back, by directory and name.
    held: FxHashMap<(u64, Vec<u8>), u64>,
    work: VecDeque<LinkRelease>,
    /// How much of each inode's link count on disk is for names that users see no more.
    going: FxHashMap<u64, u32>,
    frees: Frees,
}

/// Offset of a new inode's dependency in its inode: no other dependency has this offset.
pub(crate) const INODE_AT: usize = offset_of!(Dinode, crc);
/// Offset of the pointers in an inode.
const POINTERS_AT: usize = offset_of!(Dinode, db);
/// Offset of the size in an inode.
pub(crate) const SIZE_AT: usize = offset_of!(Dinode, size);

impl Dependencies {
    pub fn get(&self, id: u64) -> Option<&Dependency> {
        self.all.get(&id)
    }

    pub fn get_mut(&mut self, id: u64) -> Option<&mut Dependency> {
        self.all.get_mut(&id)
    }

    /// Whether a dependency is not on disk yet.
    pub fn is_open(&self, id: u64) -> bool {
        self.all.contains_key(&id)
    }

    /// The current dependency at an offset of a buffer.
    pub fn at_mut(&mut self, buffer: Name, at: usize) -> Option<&mut Dependency> {
        self.find(buffer, at).and_then(|id| self.all.get_mut(&id))
    }

    /// The dependencies in a buffer, the oldest first.
    pub fn of(&self, buffer: Name) -> &[u64] {
        self.of.get(&buffer).map_or(&[], |l| l)
    }

    /// Names of an inode that are not on disk.
    pub fn new_names(&self, ino: u64) -> &[u64] {
        self.adds.get(&ino).map_or(&[], |l| l)
    }

    /// Names of an inode on disk that have been removed or replaced.
    pub fn old_names(&self, ino: u64) -> &[u64] {
        self.olds.get(&ino).map_or(&[], |l| l)
    }

    /// The directories in which an inode was entered that cannot be reached from the root on disk.
    pub fn entered_in(&self, ino: u64) -> impl Iterator<Item = u64> {
        self.under.get(&ino).into_iter().flatten().copied()
    }

    /// Notes that the buffer `content` cannot be reached before `lead` is on disk.
    pub fn lead(&mut self, content: Name, lead: u64) {
        self.leads.insert(content, lead);
        if let Some(dependency) = self.all.get_mut(&lead) {
            dependency.leads_to.push(content);
        }
    }

    /// Adds to the work list.
    pub fn push_work(&mut self, release: LinkRelease) {
        self.work.push_back(release);
    }

    /// Called when an action has been taken.
    pub fn followed(&mut self, after: &After) {
        self.frees.take(after);
    }

    pub fn add(&mut self, dependency: Dependency) -> u64 {
        self.last += 1;
        let id = self.last;
        self.of.entry(dependency.buffer).or_default().push(id);
        match dependency.undo {
            Undo::None => self.events.insert(dependency.buffer, id),
            _ => self.at.insert((dependency.buffer, dependency.at), id),
        };
        if dependency.names != 0 {
            self.adds.entry(dependency.names).or_default().push(id);
            if let Name::File(Ino(file), FileBlock::Data(_)) = dependency.buffer
                && (self.adds.contains_key(&file) || self.under.contains_key(&file))
            {
                self.under.entry(dependency.names).or_default().insert(file);
                self.below.entry(file).or_default().push(dependency.names);
            }
        }
        if let Some(key) = &dependency.held {
            self.held.insert(key.clone(), id);
        }
        if let Some(old) = dependency.old_name() {
            self.olds.entry(old).or_default().push(id);
        }
        self.all.insert(id, dependency);
        id
    }

    pub fn remove(&mut self, id: u64) -> Option<Dependency> {
        let dependency = self.all.remove(&id)?;
        self.detach(id, &dependency);
        if let Some(key) = &dependency.held
            && self.held.get(key) == Some(&id)
        {
            self.held.remove(key);
        }
        if let Some(old) = dependency.old_name()
            && let Some(list) = self.olds.get_mut(&old)
        {
            list.retain(|p| *p != id);
            if list.is_empty() {
                self.olds.remove(&old);
            }
        }
        for content in &dependency.leads_to {
            if self.leads.get(content) == Some(&id) {
                self.leads.remove(content);
            }
        }
        if let Some(list) = self.adds.get_mut(&dependency.names) {
            list.retain(|p| *p != id);
            if list.is_empty() {
                self.adds.remove(&dependency.names);
                self.arrived(dependency.names);
            }
        }
        Some(dependency)
    }

    /// Takes a dependency from its buffer.
    fn detach(&mut self, id: u64, dependency: &Dependency) {
        if let Some(list) = self.of.get_mut(&dependency.buffer) {
            list.retain(|p| *p != id);
            if list.is_empty() {
                self.of.remove(&dependency.buffer);
            }
        }
        if self.events.get(&dependency.buffer) == Some(&id) {
            self.events.remove(&dependency.buffer);
        }
        if self.at.get(&(dependency.buffer, dependency.at)) == Some(&id) {
            self.at.remove(&(dependency.buffer, dependency.at));
        }
    }

    /// Called when a dependency was written. Returns the actions to take. If the pointer to its buffer is not on disk
    /// yet, returns none: the actions, and the dependencies that wait for this one, then wait for the pointer.
    pub fn written(&mut self, id: u64) -> Vec<After> {
        let Some(dependency) = self.all.get(&id) else { return Vec::new() };
        let (buffer, at, is_event) = (dependency.buffer, dependency.at, dependency.is_event());
        let lead = self.leads.get(&buffer).copied().filter(|_| !planted(Flaw::NamesUnreached));
        let mut after = match dependency.undo {
            Undo::Entry { .. } => self.remove_older(buffer, at, id),
            _ => Vec::new(),
        };
        let Some(lead) = lead else {
            after.extend(self.remove(id).map(|p| p.after).unwrap_or_default());
            return after;
        };
        if is_event {
            // The parent pointer waits for this event itself, so the event must not wait for the pointer.
            after.extend(self.remove(id).map(|p| p.after).unwrap_or_default());
        } else if let Some(mut dependency) = self.all.remove(&id) {
            self.detach(id, &dependency);
            dependency.waits_for_parent = Some(lead);
            dependency.after.append(&mut after);
            self.all.insert(id, dependency);
            after.push(After::Dependency(id));
        }
        self.hand_on(after, lead);
        Vec::new()
    }

    /// Hands the actions of one dependency on to another.
    pub fn hand_on(&mut self, after: Vec<After>, to: u64) {
        for a in &after {
            if let After::Dependency(id) = a
                && let Some(dependency) = self.all.get_mut(id)
            {
                dependency.waits_for_parent = Some(to);
            }
        }
        if let Some(dependency) = self.all.get_mut(&to) {
            dependency.after.extend(after);
        }
    }

    /// The buffer whose write a dependency needs next.
    pub fn needs(&self, mut id: u64) -> Option<Name> {
        loop {
            let dependency = self.all.get(&id)?;
            match dependency.waits_for_parent {
                Some(on) => id = on,
                None => return Some(dependency.buffer),
            }
        }
    }

    /// Called when the names of a directory are on disk: inodes entered in it now wait for the directories above it.
    fn arrived(&mut self, dir: u64) {
        let above = self.under.get(&dir).cloned().unwrap_or_default();
        for child in self.below.remove(&dir).unwrap_or_default() {
            let Some(dirs) = self.under.get_mut(&child) else { continue };
            dirs.remove(&dir);
            for d in above.iter().filter(|d| **d != child) {
                if dirs.insert(*d) {
                    self.below.entry(*d).or_default().push(child);
                }
            }
            if dirs.is_empty() {
                self.under.remove(&child);
            }
        }
    }

    /// Removes older dependencies at the same offset, superseded by the one just written; returns their actions.
    fn remove_older(&mut self, buffer: Name, at: usize, than: u64) -> Vec<After> {
        let all = self.of(buffer).iter();
        let same = |id: &&u64| **id < than && self.all.get(*id).is_some_and(|p| p.at == at && !p.is_event());
        let older: Vec<u64> = all.filter(same).copied().collect();
        older.into_iter().filter_map(|id| self.remove(id)).flat_map(|p| p.after).collect()
    }

    /// The event of the next write of a buffer.
    pub fn event(&mut self, buffer: Name) -> u64 {
        match self.events.get(&buffer) {
            Some(id) => *id,
            None => self.add(Dependency::new(buffer, 0, Undo::None, Vec::new())),
        }
    }

    /// Lets what waits for a write of a buffer that is about to be dropped wait for the next write of `instead`.
    pub fn await_instead(&mut self, buffer: Name, instead: Name) {
        let is_event = |id: &u64| self.all.get(id).is_some_and(Dependency::is_event);
        let events: Vec<u64> = self.of(buffer).iter().copied().filter(is_event).collect();
        for id in events {
            let on = self.event(instead);
            if let Some(mut event) = self.all.remove(&id) {
                self.detach(id, &event);
                event.waits_for_parent = Some(on);
                self.all.insert(id, event);
                self.follow(on, After::Dependency(id));
            }
        }
    }

    /// Called when buffers are on their way to the disk: later changes belong to another write.
    pub fn close_events(&mut self, buffers: &[Name]) {
        for b in buffers {
            self.events.remove(b);
        }
    }

    /// The size, at most `size`, that a file's inode may have on disk before page `content` is written.
    pub fn size_without(&mut self, place: Slot, content: Name, size: u64) -> u64 {
        let event = self.event(content);
        match self.find(place.0, place.1).and_then(|id| self.all.get(&id)) {
            Some(Dependency { undo: Undo::Size(old), waits, .. }) if waits.contains(&event) => size.min(*old),
            _ => size,
        }
    }

    /// The id of the current dependency at an offset of a buffer.
    pub fn find(&self, buffer: Name, at: usize) -> Option<u64> {
        self.at.get(&(buffer, at)).copied()
    }

    pub fn follow(&mut self, id: u64, after: After) {
        self.frees.add(&after);
        if let Some(dependency) = self.all.get_mut(&id) {
            dependency.after.push(after);
        }
    }

    /// Whether a write must roll a dependency back, for itself or because its inode is rolled back.
    pub fn waits(&self, dependency: &Dependency) -> bool {
        let alone = |p: &Dependency| p.waits.iter().any(|w| self.all.contains_key(w));
        let at = |at: usize| self.find(dependency.buffer, at).and_then(|id| self.all.get(&id));
        if alone(dependency) {
            return true;
        }
        match dependency.undo {
            // A new directory or symbolic link is not on disk before its first block is.
            Undo::Inode(_) => at(dependency.at - INODE_AT + POINTERS_AT).is_some_and(|p| p.first && alone(p)),
            Undo::Pointer { inode: Some((inode, _)), .. } if !dependency.leads_to.is_empty() => {
                self.lowers(inode, dependency)
            }
            Undo::Size(_) if !dependency.leads_to.is_empty() => self.lowers(dependency.at - SIZE_AT, dependency),
            _ => false,
        }
    }

    /// Whether another dependency of the inode must be rolled back: that may lower the size on disk below the block
    /// that this one makes reachable, or undo the inode.
    fn lowers(&self, inode: usize, dependency: &Dependency) -> bool {
        let places = (0..NDADDR).map(|k| POINTERS_AT + 4 * k).chain([INODE_AT]);
        let others =
            places.filter(|at| inode + at != dependency.at).filter_map(|at| self.find(dependency.buffer, inode + at));
        others.filter_map(|id| self.all.get(&id)).any(|p| p.waits.iter().any(|w| self.all.contains_key(w)))
    }

    /// These dependencies, plus those that must be on disk for their names to be reachable from the root.
    pub fn ways(&self, mut all: Vec<u64>) -> Vec<u64> {
        let mut seen = FxHashSet::default();
        let mut at = 0;
        while let Some(dependency) = all.get(at).map(|id| self.all.get(id)) {
            at += 1;
            let Some(Dependency { buffer: Name::File(Ino(file), FileBlock::Data(_)), names: 1.., .. }) = dependency
            else {
                continue;
            };
            let mut dirs = vec![*file];
            while let Some(dir) = dirs.pop() {
                if !seen.insert(dir) {
                    continue;
                }
                all.extend(self.adds.get(&dir).into_iter().flatten());
                dirs.extend(self.under.get(&dir).into_iter().flatten());
            }
        }
        all
    }

    /// The newest entry naming `ino` that is not on disk yet, other than the one in `slot`; else the newest naming a
    /// directory above it that cannot be reached on disk.
    pub fn newest_name(&self, slot: Slot, ino: u64) -> Option<u64> {
        let lives = |id: &u64| {
            self.all.get(id).filter(|p| (p.buffer, p.at) != slot).is_some_and(|p| match p.waits_for_parent {
                Some(_) => !p.gone,
                None => self.find(p.buffer, p.at) == Some(*id),
            })
        };
        let newest = |ino: u64| self.adds.get(&ino).and_then(|l| l.iter().rev().copied().find(lives));
        let home = if let Name::File(Ino(file), FileBlock::Data(_)) = slot.0 { file } else { 0 };
        let (mut todo, mut seen) = (vec![ino], FxHashSet::default());
        while let Some(ino) = todo.pop() {
            if let Some(id) = newest(ino) {
                return Some(id);
            }
            let above = self.under.get(&ino).into_iter().flatten();
            todo.extend(above.copied().filter(|dir| *dir != home && seen.insert(*dir)));
        }
        None
    }

    /// Notes that the entry in `slot` names the inode no more.
    pub fn leave(&mut self, slot: Slot, ino: u64) {
        for id in self.adds.get(&ino).map_or(&[][..], |l| l) {
            if let Some(dependency) = self.all.get_mut(id).filter(|p| (p.buffer, p.at) == slot) {
                dependency.gone = true;
            }
        }
    }

    /// Whether an entry has never been on disk.
    pub fn is_unwritten(&self, slot: Slot) -> bool {
        let dependency = self.find(slot.0, slot.1).and_then(|id| self.all.get(&id));
        matches!(dependency, Some(Dependency { undo: Undo::Entry { ino: 0, .. }, .. }))
    }

    pub fn has_old_names(&self, dir: Ino) -> bool {
        self.olds.contains_key(&dir.0)
    }

    pub fn has_waiting_entries(&self, dir: Ino, pages: u64) -> bool {
        let waits = |id: &u64| self.all.get(id).is_some_and(|p| !p.is_event() && self.waits(p));
        let page = |index| self.of.get(&Name::data(dir, index));
        (0..pages).filter_map(page).flatten().any(waits)
    }

    /// Whether something waits for the next write of a buffer.
    pub fn is_awaited(&self, buffer: Name) -> bool {
        self.events.contains_key(&buffer)
    }

    /// Whether nothing in a buffer would be rolled back.
    pub fn is_ready(&self, buffer: Name) -> bool {
        let all = self.of(buffer);
        all.iter().all(|id| self.all.get(id).is_none_or(|p| !self.waits(p)))
    }

    /// For each dependency in a buffer, the buffers of those that it waits for.
    pub fn waited_for(&self, buffer: Name) -> impl Iterator<Item = Vec<Name>> {
        let all = self.of(buffer).iter().filter_map(|id| self.all.get(id));
        all.map(|p| p.waits.iter().filter_map(|w| self.needs(*w)).collect())
    }

    /// The dependencies that a write of these buffers brings to the disk: the ready ones.
    pub fn included(&self, buffers: &[Name]) -> Vec<u64> {
        let ready = |id: &&u64| self.all.get(*id).is_some_and(|p| !self.waits(p));
        buffers.iter().filter_map(|b| self.of.get(b)).flat_map(|l| l.iter().filter(ready)).copied().collect()
    }

    pub fn going(&self, ino: Ino) -> u32 {
        self.going.get(&ino.0).copied().unwrap_or(0)
    }

    pub fn is_held(&self, page: Name, at: usize) -> bool {
        self.find(page, at).is_some()
    }

    /// The slot of a removed entry of this name that may come back.
    pub fn held_name(&self, dir: Ino, name: &[u8]) -> Option<Slot> {
        let id = self.held.get(&(dir.0, name.to_vec()))?;
        self.all.get(id).map(|p| (p.buffer, p.at))
    }

    pub fn is_held_elsewhere(&self, dir: Ino, name: &[u8]) -> bool {
        let id = self.held.get(&(dir.0, name.to_vec()));
        id.and_then(|id| self.all.get(id)).is_some_and(|p| p.waits_for_parent.is_some())
    }

    /// What is to be freed when dependencies are on disk.
    pub fn to_be_freed(&self) -> Frees {
        self.frees
    }

    /// Inodes with names on disk that users see no more.
    pub fn going_inodes(&self) -> impl Iterator<Item = Ino> + '_ {
        self.going.keys().copied().map(Ino)
    }

    pub fn frees_nothing(&self) -> bool {
        self.frees == Frees::default() && self.work.is_empty() && self.going.is_empty()
    }

    pub fn next_work(&mut self) -> Option<LinkRelease> {
        let release = self.work.pop_front()?;
        self.count_going(release, false);
        Some(release)
    }

    /// Puts work back on the list.
    pub fn put_off(&mut self, releases: Vec<LinkRelease>) {
        self.work.extend(releases);
    }

    /// Adds to, or takes from, the counts of pending decrements. A directory's own count falls to 0: more than any link
    /// count is subtracted from it.
    pub fn count_going(&mut self, release: LinkRelease, more: bool) {
        let (one, two) = match release {
            LinkRelease::Name(ino) | LinkRelease::Parent(ino) => ((ino, 1), None),
            LinkRelease::Dir(ino, parent) => ((ino, 1 << 20), Some((parent, 1))),
        };
        for (ino, n) in [Some(one), two].into_iter().flatten() {
            let count = self.going.entry(ino.0).or_default();
            *count = if more { *count + n } else { count.saturating_sub(n) };
            if *count == 0 {
                self.going.remove(&ino.0);
            }
        }
    }
}
