//! Soft updates (Ganger and Patt 1994; McKusick and Ganger 1999): what is undone in a write, and until when.
//!
//! A *patch* stands for one change of a buffer: how the bytes were before, which patches must be on disk before
//! it may be, and what follows when it is. A patch without bytes to restore is an *event*: the next write of its
//! buffer. A patch is ready when none of those it waits for exist any more; a write includes what is ready and
//! rolls the rest back in the image that goes to the disk, never in the buffer. When that write is durable, the
//! patches that it included are gone, which makes others ready, and what follows them is done: fragments and
//! inodes are marked free, and link counts fall (the *work list*).
//!
//! In the terms of the papers: `soft_pointer` makes an allocdirect or allocindirect, with the events as its newblk
//! and the bmsafemap of its group; `soft_inode` an inodedep, `soft_added` a diradd, `soft_removed` a dirrem,
//! `soft_free_slot` freeblks and freefrags.
//!
//! What is written of a directory's block is not reached before the pointer to it is on disk: until then its
//! patches *hang* on the pointer's (newdirblk of FreeBSD). Changes of one place are merged: it is one patch, back
//! to what is on disk. What is removed before it was written vanishes with its patch, and nothing of it is ever
//! written: the fast path.

pub(super) mod invariants;

use super::{Drop, inode_bytes};
use crate::alloc::INITED_AT;
use crate::file::Slot;
use crate::format::*;
use crate::inode::{Inode, XATTR};
use crate::mount::Core;
use crate::planted::{Flaw, planted};
use arbor_base::cache::{FileBlock, Name};
use arbor_base::layout::get_u32;
use arbor_base::vfs::{Ino, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::mem::offset_of;

/// How to undo a patch in the image of its buffer.
#[derive(Clone, Copy, Debug)]
enum Undo {
    /// Nothing to undo: an event.
    None,
    /// The whole inode: on disk it is free.
    Inode([u8; INODE]),
    /// A pointer; of an inode that begins at the byte given, with the size it had.
    Pointer { old: u32, inode: Option<(usize, u64)> },
    /// Inode and kind of a directory entry that names one on disk, or 0.
    Entry { ino: u32, kind: u8 },
    /// The size of a directory whose last block is not reached from its inode yet, or of a file whose last block has
    /// something on disk behind the end that it had.
    Size(u64),
    /// How far the inode table is in use.
    Inited(u32),
}

/// What follows when a patch is on disk.
#[derive(Clone, Copy, Debug)]
enum After {
    Free(Frag, u32),
    FreeInode(Ino, u32),
    Drop(Drop),
    /// A patch that hung on this one is gone with it.
    Patch(u64),
    /// The place of a removed entry may be used again.
    Vacant(Slot),
}

impl After {
    /// Whether it frees something.
    fn frees(&self) -> bool {
        matches!(self, After::Free(..) | After::FreeInode(..))
    }
}

#[derive(Debug)]
struct Patch {
    buffer: Name,
    /// Byte in the buffer, for those that can be undone.
    at: usize,
    undo: Undo,
    waits: Vec<u64>,
    after: Vec<After>,
    /// The inode that a new entry names.
    names: u64,
    /// Directory and name of a removed entry that may have to come back.
    held: Option<(u64, Vec<u8>)>,
    /// Buffers with names, or with pointers to some, that are reached when it is on disk.
    leads_to: Vec<Name>,
    /// Once it is written: the patch that leads to it and is not on disk.
    hangs: Option<u64>,
    /// The entry was removed or changed again while the patch hung.
    gone: bool,
    /// It leads to the first block of a new directory or symbolic link.
    first: bool,
}

impl Patch {
    fn new(buffer: Name, at: usize, undo: Undo, waits: Vec<u64>) -> Patch {
        let (after, leads_to) = (Vec::new(), Vec::new());
        Patch { buffer, at, undo, waits, after, names: 0, held: None, leads_to, hangs: None, gone: false, first: false }
    }

    /// The inode that the entry of this patch names on disk.
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

/// All patches of a volume.
#[derive(Default)]
pub(crate) struct Soft {
    last: u64,
    patches: FxHashMap<u64, Patch>,
    of: FxHashMap<Name, Vec<u64>>,
    at: FxHashMap<(Name, usize), u64>,
    /// The event of the next write of a buffer.
    events: FxHashMap<Name, u64>,
    /// Pointers and sizes that are not on disk, by the buffers with names that they lead to.
    leads: FxHashMap<Name, u64>,
    /// New entries that are not on disk, by the inode that they name.
    adds: FxHashMap<u64, Vec<u64>>,
    /// Names of an inode on disk that have been removed or replaced.
    olds: FxHashMap<u64, Vec<u64>>,
    /// Inodes entered in directories that have no way to the root on disk yet, with these directories.
    under: FxHashMap<u64, FxHashSet<u64>>,
    /// The same the other way round.
    below: FxHashMap<u64, Vec<u64>>,
    /// Removed entries that may have to come back, by directory and name.
    held: FxHashMap<(u64, Vec<u8>), u64>,
    work: VecDeque<Drop>,
    /// Names that are gone for users and still counted.
    going: FxHashMap<u64, u32>,
    /// Fragments and inodes whose freeing waits.
    frees: usize,
}

/// Offset that a new inode's patch has in its inode: no other patch has it.
const INODE_AT: usize = offset_of!(Dinode, crc);
/// Offset of the pointers in an inode.
const POINTERS_AT: usize = offset_of!(Dinode, db);
/// Offset of the size in an inode.
const SIZE_AT: usize = offset_of!(Dinode, size);

impl Soft {
    fn add(&mut self, patch: Patch) -> u64 {
        self.last += 1;
        let id = self.last;
        self.of.entry(patch.buffer).or_default().push(id);
        match patch.undo {
            Undo::None => self.events.insert(patch.buffer, id),
            _ => self.at.insert((patch.buffer, patch.at), id),
        };
        if patch.names != 0 {
            self.adds.entry(patch.names).or_default().push(id);
            if let Name::File(Ino(file), FileBlock::Data(_)) = patch.buffer
                && (self.adds.contains_key(&file) || self.under.contains_key(&file))
            {
                self.under.entry(patch.names).or_default().insert(file);
                self.below.entry(file).or_default().push(patch.names);
            }
        }
        if let Some(key) = &patch.held {
            self.held.insert(key.clone(), id);
        }
        if let Some(old) = patch.old_name() {
            self.olds.entry(old).or_default().push(id);
        }
        self.patches.insert(id, patch);
        id
    }

    fn remove(&mut self, id: u64) -> Option<Patch> {
        let patch = self.patches.remove(&id)?;
        self.detach(id, &patch);
        if let Some(key) = &patch.held
            && self.held.get(key) == Some(&id)
        {
            self.held.remove(key);
        }
        if let Some(old) = patch.old_name()
            && let Some(list) = self.olds.get_mut(&old)
        {
            list.retain(|p| *p != id);
            if list.is_empty() {
                self.olds.remove(&old);
            }
        }
        for content in &patch.leads_to {
            if self.leads.get(content) == Some(&id) {
                self.leads.remove(content);
            }
        }
        if let Some(list) = self.adds.get_mut(&patch.names) {
            list.retain(|p| *p != id);
            if list.is_empty() {
                self.adds.remove(&patch.names);
                self.arrived(patch.names);
            }
        }
        Some(patch)
    }

    /// Takes a patch from its buffer.
    fn detach(&mut self, id: u64, patch: &Patch) {
        if let Some(list) = self.of.get_mut(&patch.buffer) {
            list.retain(|p| *p != id);
            if list.is_empty() {
                self.of.remove(&patch.buffer);
            }
        }
        if self.events.get(&patch.buffer) == Some(&id) {
            self.events.remove(&patch.buffer);
        }
        if self.at.get(&(patch.buffer, patch.at)) == Some(&id) {
            self.at.remove(&(patch.buffer, patch.at));
        }
    }

    /// A patch was written. Returns what follows, unless its buffer is not reached before another patch is on disk:
    /// then all that waits for it, and what follows, waits for that as well.
    fn written(&mut self, id: u64) -> Vec<After> {
        let Some(patch) = self.patches.get(&id) else { return Vec::new() };
        let (buffer, at, is_event) = (patch.buffer, patch.at, patch.is_event());
        let lead = self.leads.get(&buffer).copied().filter(|_| !planted(Flaw::NamesUnreached));
        let mut after = match patch.undo {
            Undo::Entry { .. } => self.remove_older(buffer, at, id),
            _ => Vec::new(),
        };
        let Some(lead) = lead else {
            after.extend(self.remove(id).map(|p| p.after).unwrap_or_default());
            return after;
        };
        if is_event {
            // The other waits for it.
            after.extend(self.remove(id).map(|p| p.after).unwrap_or_default());
        } else if let Some(mut patch) = self.patches.remove(&id) {
            self.detach(id, &patch);
            patch.hangs = Some(lead);
            patch.after.append(&mut after);
            self.patches.insert(id, patch);
            after.push(After::Patch(id));
        }
        self.hand_on(after, lead);
        Vec::new()
    }

    /// What followed one patch follows another.
    fn hand_on(&mut self, after: Vec<After>, to: u64) {
        for a in &after {
            if let After::Patch(id) = a
                && let Some(patch) = self.patches.get_mut(id)
            {
                patch.hangs = Some(to);
            }
        }
        if let Some(patch) = self.patches.get_mut(&to) {
            patch.after.extend(after);
        }
    }

    /// The buffer whose write a patch needs next.
    fn needs(&self, mut id: u64) -> Option<Name> {
        loop {
            let patch = self.patches.get(&id)?;
            match patch.hangs {
                Some(on) => id = on,
                None => return Some(patch.buffer),
            }
        }
    }

    /// The names of a directory are on disk: what is below it hangs on the directories above.
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

    /// What came before a change of an entry that is on disk now is of no account any more.
    fn remove_older(&mut self, buffer: Name, at: usize, than: u64) -> Vec<After> {
        let all = self.of.get(&buffer).map_or(&[][..], |l| l).iter();
        let same = |id: &&u64| **id < than && self.patches.get(*id).is_some_and(|p| p.at == at && !p.is_event());
        let older: Vec<u64> = all.filter(same).copied().collect();
        older.into_iter().filter_map(|id| self.remove(id)).flat_map(|p| p.after).collect()
    }

    /// The next write of a buffer.
    fn event(&mut self, buffer: Name) -> u64 {
        match self.events.get(&buffer) {
            Some(id) => *id,
            None => self.add(Patch::new(buffer, 0, Undo::None, Vec::new())),
        }
    }

    /// These buffers are on their way to the disk as they are: what changes from now on goes with another write.
    pub fn close_events(&mut self, buffers: &[Name]) {
        for b in buffers {
            self.events.remove(b);
        }
    }

    /// Of `size` bytes, how many a file may have on disk as long as its page `content` is not there.
    fn size_without(&mut self, place: Slot, content: Name, size: u64) -> u64 {
        let event = self.event(content);
        match self.find(place.0, place.1).and_then(|id| self.patches.get(&id)) {
            Some(Patch { undo: Undo::Size(old), waits, .. }) if waits.contains(&event) => size.min(*old),
            _ => size,
        }
    }

    /// The patch of a place.
    fn find(&self, buffer: Name, at: usize) -> Option<u64> {
        self.at.get(&(buffer, at)).copied()
    }

    fn follow(&mut self, id: u64, after: After) {
        if after.frees() {
            self.frees += 1;
        }
        if let Some(patch) = self.patches.get_mut(&id) {
            patch.after.push(after);
        }
    }

    /// Whether a patch is rolled back, by itself or because its inode is.
    fn waits(&self, patch: &Patch) -> bool {
        let alone = |p: &Patch| p.waits.iter().any(|w| self.patches.contains_key(w));
        let at = |at: usize| self.find(patch.buffer, at).and_then(|id| self.patches.get(&id));
        if alone(patch) {
            return true;
        }
        match patch.undo {
            // Not there before its first block.
            Undo::Inode(_) => at(patch.at - INODE_AT + POINTERS_AT).is_some_and(|p| p.first && alone(p)),
            Undo::Pointer { inode: Some((inode, _)), .. } if !patch.leads_to.is_empty() => self.lowers(inode, patch),
            Undo::Size(_) if !patch.leads_to.is_empty() => self.lowers(patch.at - SIZE_AT, patch),
            _ => false,
        }
    }

    /// Whether another patch of an inode that waits puts its size below what this one leads to, or is the inode's.
    fn lowers(&self, inode: usize, patch: &Patch) -> bool {
        let places = (0..NDADDR).map(|k| POINTERS_AT + 4 * k).chain([INODE_AT]);
        let others = places.filter(|at| inode + at != patch.at).filter_map(|at| self.find(patch.buffer, inode + at));
        others.filter_map(|id| self.patches.get(&id)).any(|p| p.waits.iter().any(|w| self.patches.contains_key(w)))
    }

    /// What has to be on disk for the names among these patches to be reached from the root, and the patches.
    fn ways(&self, mut all: Vec<u64>) -> Vec<u64> {
        let mut seen = FxHashSet::default();
        let mut at = 0;
        while let Some(patch) = all.get(at).map(|id| self.patches.get(id)) {
            at += 1;
            let Some(Patch { buffer: Name::File(Ino(file), FileBlock::Data(_)), names: 1.., .. }) = patch else {
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

    /// The newest name of an inode but the one in `slot` that is not there yet; if there is none, one of a directory on
    /// the way to one.
    fn newest_name(&self, slot: Slot, ino: u64) -> Option<u64> {
        let lives = |id: &u64| {
            self.patches.get(id).filter(|p| (p.buffer, p.at) != slot).is_some_and(|p| match p.hangs {
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

    /// The name of an inode in `slot` goes.
    fn leave(&mut self, slot: Slot, ino: u64) {
        for id in self.adds.get(&ino).map_or(&[][..], |l| l) {
            if let Some(patch) = self.patches.get_mut(id).filter(|p| (p.buffer, p.at) == slot) {
                patch.gone = true;
            }
        }
    }

    /// Whether an entry has never been on disk.
    pub fn is_unwritten(&self, slot: Slot) -> bool {
        let patch = self.find(slot.0, slot.1).and_then(|id| self.patches.get(&id));
        matches!(patch, Some(Patch { undo: Undo::Entry { ino: 0, .. }, .. }))
    }

    pub fn has_old_names(&self, dir: Ino) -> bool {
        self.olds.contains_key(&dir.0)
    }

    pub fn has_waiting_entries(&self, dir: Ino, pages: u64) -> bool {
        let waits = |id: &u64| self.patches.get(id).is_some_and(|p| !p.is_event() && self.waits(p));
        let page = |index| self.of.get(&Name::data(dir, index));
        (0..pages).filter_map(page).flatten().any(waits)
    }

    /// Whether something waits for the next write of a buffer.
    pub fn is_awaited(&self, buffer: Name) -> bool {
        self.events.contains_key(&buffer)
    }

    /// Whether nothing in a buffer would be rolled back.
    pub fn is_ready(&self, buffer: Name) -> bool {
        let all = self.of.get(&buffer).map_or(&[][..], |l| l);
        all.iter().all(|id| self.patches.get(id).is_none_or(|p| !self.waits(p)))
    }

    /// Of each patch in a buffer, the buffers of those that it waits for.
    pub fn waited_for(&self, buffer: Name) -> impl Iterator<Item = Vec<Name>> {
        let all = self.of.get(&buffer).map_or(&[][..], |l| l).iter().filter_map(|id| self.patches.get(id));
        all.map(|p| p.waits.iter().filter_map(|w| self.needs(*w)).collect())
    }

    /// What a write of these buffers includes.
    pub fn included(&self, buffers: &[Name]) -> Vec<u64> {
        let ready = |id: &&u64| self.patches.get(*id).is_some_and(|p| !self.waits(p));
        buffers.iter().filter_map(|b| self.of.get(b)).flat_map(|l| l.iter().filter(ready)).copied().collect()
    }

    pub fn going(&self, ino: Ino) -> u32 {
        self.going.get(&ino.0).copied().unwrap_or(0)
    }

    pub fn is_held(&self, page: Name, at: usize) -> bool {
        self.find(page, at).is_some()
    }

    /// Where a removed entry of this name waits.
    pub fn held_name(&self, dir: Ino, name: &[u8]) -> Option<Slot> {
        let id = self.held.get(&(dir.0, name.to_vec()))?;
        self.patches.get(id).map(|p| (p.buffer, p.at))
    }

    pub fn is_held_elsewhere(&self, dir: Ino, name: &[u8]) -> bool {
        let id = self.held.get(&(dir.0, name.to_vec()));
        id.and_then(|id| self.patches.get(id)).is_some_and(|p| p.hangs.is_some())
    }

    pub fn frees_nothing(&self) -> bool {
        self.frees == 0 && self.work.is_empty() && self.going.is_empty()
    }

    pub fn next_work(&mut self) -> Option<Drop> {
        let drop = self.work.pop_front()?;
        self.count_going(drop, false);
        Some(drop)
    }

    /// The work is for another time.
    pub fn put_off(&mut self, drops: Vec<Drop>) {
        self.work.extend(drops);
    }

    /// Counts what a removal takes away, until it is taken away.
    pub fn count_going(&mut self, drop: Drop, more: bool) {
        let (one, two) = match drop {
            Drop::Name(ino) | Drop::Parent(ino) => ((ino, 1), None),
            Drop::Dir(ino, parent) => ((ino, 1 << 20), Some((parent, 1))),
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

impl Core {
    fn soft(&mut self) -> &mut Soft {
        &mut self.keep.soft
    }

    /// A new inode must not be on disk before its bit is (FFS-C3).
    pub(super) fn soft_inode(&mut self, i: &Inode, old: Dinode) -> Result<()> {
        let cg = self.cg_name(self.geom.cg_of_inode(i.ino));
        let soft = self.soft();
        let mut waits = if planted(Flaw::InodeBeforeBit) { Vec::new() } else { vec![soft.event(cg)] };
        // Nor before the group says that this part of its table is in use.
        waits.extend(soft.find(cg, INITED_AT));
        let undo = Undo::Inode(inode_bytes(&old));
        soft.add(Patch::new(i.name(), i.at + INODE_AT, undo, waits));
        Ok(())
    }

    pub(super) fn soft_inited(&mut self, cgx: u32, block: Frag, old: u32) {
        let cg = self.cg_name(cgx);
        let soft = self.soft();
        let wait = soft.event(Name::Block(block.0.into()));
        if planted(Flaw::TableBeforeBlock) {
            return;
        }
        match soft.find(cg, INITED_AT).and_then(|id| soft.patches.get_mut(&id)) {
            Some(patch) => patch.waits.push(wait),
            None => {
                soft.add(Patch::new(cg, INITED_AT, Undo::Inited(old), vec![wait]));
            }
        }
    }

    pub(super) fn soft_links_raised(&mut self, i: &Inode) -> Vec<u64> {
        let mut waits = vec![self.soft().event(i.name())];
        waits.extend(self.soft_inode_ready(i));
        waits
    }

    /// A new directory or symbolic link is not on disk before its first block may be: without one it is none.
    pub(super) fn soft_first_block(&mut self, i: &Inode) {
        let pointer = self.keep.soft.find(i.name(), i.pointer_at(0));
        if let Some(patch) = pointer.and_then(|id| self.keep.soft.patches.get_mut(&id)) {
            patch.first = true;
        }
    }

    /// An inode with what it needs to be whole: of a directory, its first block; the attributes that it was made with.
    pub(super) fn soft_inode_ready(&mut self, i: &Inode) -> Vec<u64> {
        let pointers = (0..NDADDR).chain([XATTR]).filter_map(|k| self.keep.soft.find(i.name(), i.pointer_at(k)));
        pointers.chain(self.keep.soft.find(i.name(), i.at + INODE_AT)).collect()
    }

    /// The data of a file that are not on disk, with the pointers to them and the size.
    pub(super) fn soft_data_ready(&mut self, i: &Inode) -> Result<Vec<u64>> {
        let (inode, mut waits) = (i.name(), Vec::new());
        for name in self.buffers_of(i.ino)?.into_iter().filter(|n| *n != inode) {
            let soft = self.soft();
            if let Name::File(..) = name {
                waits.push(soft.event(name));
            }
            waits.extend(soft.of.get(&name).into_iter().flatten());
        }
        let places = (0..NDADDR + NIADDR).map(|k| i.pointer_at(k)).chain([i.at + SIZE_AT]);
        waits.extend(places.filter_map(|at| self.keep.soft.find(inode, at)));
        Ok(waits)
    }

    /// A pointer must not be on disk before its block is (FFS-C4), and the bits of its fragments (FFS-C3).
    pub(super) fn soft_pointer(
        &mut self,
        (buffer, at): Slot,
        old: (Frag, u32),
        new: (Frag, u32),
        content: Name,
        inode: Option<(usize, u64)>,
    ) -> Result<()> {
        let (mode, cg) = (self.keep.mode, self.cg_name(self.geom.cg_of(new.0)));
        let moved = old.0.0 != 0 && old.0 != new.0;
        let soft = self.soft();
        let mut waits = Vec::new();
        // With synchronous writes the bits are counted again after a crash.
        if mode != Keeping::Sync && !planted(Flaw::PointerBeforeBits) {
            waits.push(soft.event(cg));
        }
        if !planted(Flaw::PointerBeforeBlock) {
            waits.push(soft.event(content));
        }
        let Some(id) = soft.find(buffer, at) else {
            let inode = inode.map(|(i, size)| (i, soft.size_without((buffer, i + SIZE_AT), content, size)));
            let undo = Undo::Pointer { old: old.0.0, inode };
            let id = soft.add(Patch::new(buffer, at, undo, waits));
            if moved {
                soft.follow(id, After::Free(old.0, old.1));
            }
            return Ok(());
        };
        let Some(patch) = soft.patches.get_mut(&id) else { return Ok(()) };
        patch.waits = waits;
        let on_disk = matches!(patch.undo, Undo::Pointer { old: o, .. } if o == old.0.0);
        if moved && on_disk {
            soft.follow(id, After::Free(old.0, old.1));
        } else if moved {
            // No pointer to it has ever been on disk.
            return self.free_run(old.0, old.1);
        }
        Ok(())
    }

    /// See [`Core::leads_to_names`].
    pub(super) fn soft_leads(&mut self, (buffer, at): Slot, content: Name, inode: Option<(Slot, u64)>) {
        let soft = self.soft();
        let Some(pointer) = soft.find(buffer, at) else { return };
        let lead = match inode.map(|((buffer, at), old)| (buffer, at + SIZE_AT, old)) {
            None => pointer,
            Some((buffer, at, old)) => match soft.find(buffer, at) {
                Some(size) => size,
                None => soft.add(Patch::new(buffer, at, Undo::Size(old), vec![pointer])),
            },
        };
        soft.leads.insert(content, lead);
        if let Some(patch) = soft.patches.get_mut(&lead) {
            patch.leads_to.push(content);
            if lead != pointer && !patch.waits.contains(&pointer) {
                patch.waits.push(pointer);
            }
        }
    }

    /// The size that a file has now must not be on disk before its last page is.
    pub(super) fn soft_size_grown(&mut self, i: &Inode, old: u64, content: Name) {
        let (buffer, at) = (i.name(), i.at + SIZE_AT);
        let soft = self.soft();
        let event = soft.event(content);
        match soft.find(buffer, at).and_then(|id| soft.patches.get_mut(&id)) {
            Some(patch) if patch.waits.contains(&event) => {}
            Some(patch) => patch.waits.push(event),
            None => {
                soft.add(Patch::new(buffer, at, Undo::Size(old), vec![event]));
            }
        }
    }

    /// No image of its inode may reach behind the end of a file, where fragments are free soon.
    pub(super) fn soft_size_lowered(&mut self, i: &Inode) {
        let (name, size) = (i.name(), i.size());
        for at in (0..NDADDR + NIADDR).map(|k| i.pointer_at(k)).chain([i.at + SIZE_AT]) {
            let soft = self.soft();
            let patch = soft.find(name, at).and_then(|id| soft.patches.get_mut(&id));
            if let Some(Patch { undo: Undo::Pointer { inode: Some((_, old)), .. } | Undo::Size(old), .. }) = patch
                && !planted(Flaw::SizeNotRolledBack)
            {
                *old = size.min(*old);
            }
        }
    }

    /// A pointer was cleared.
    pub(super) fn soft_free_slot(&mut self, (buffer, at): Slot, runs: &[(Frag, u32)]) -> Result<()> {
        let soft = self.soft();
        let Some(patch) = soft.find(buffer, at).and_then(|id| soft.remove(id)) else {
            return self.soft_free_after(buffer, runs);
        };
        if matches!(patch.undo, Undo::Pointer { old: 0, .. }) {
            self.follow_on(patch.after)?;
            return runs.iter().try_for_each(|r| self.free_run(r.0, r.1));
        }
        let event = self.soft().event(buffer);
        self.soft().hand_on(patch.after, event);
        self.soft_free_after(buffer, runs)
    }

    pub(super) fn soft_free_after(&mut self, buffer: Name, runs: &[(Frag, u32)]) -> Result<()> {
        let event = if runs.is_empty() { return Ok(()) } else { self.soft().event(buffer) };
        if planted(Flaw::FragmentsTooEarly) {
            return runs.iter().try_for_each(|r| self.free_run(r.0, r.1));
        }
        for (frag, frags) in runs {
            self.soft().follow(event, After::Free(*frag, *frags));
        }
        Ok(())
    }

    pub(super) fn soft_free_inode(&mut self, i: &Inode, m: u32) -> Result<()> {
        // Pointers that were never written went with their blocks; what is left says how it was on disk.
        let places = (0..=NDADDR + NIADDR).map(|k| i.pointer_at(k)).chain([i.at + SIZE_AT]);
        let pending: Vec<u64> = places.filter_map(|at| self.keep.soft.find(i.name(), at)).collect();
        let mut after = Vec::new();
        for id in pending {
            after.extend(self.soft().remove(id).map(|p| p.after).unwrap_or_default());
        }
        let new = self.keep.soft.find(i.name(), i.at + INODE_AT).and_then(|id| self.soft().remove(id));
        if let Some(new) = new {
            // The disk has never seen it.
            after.extend(new.after);
            self.follow_on(after)?;
            return self.vfree(i.ino, m);
        }
        let event = self.soft().event(i.name());
        self.soft().follow(event, After::FreeInode(i.ino, m));
        self.soft().hand_on(after, event);
        Ok(())
    }

    /// What has to be on disk before the entry in `slot` may go: the newest name of the file `ino` that is not there yet,
    /// if this one is; or the entry itself, if what it takes the place of may not go yet.
    pub(super) fn soft_newer_name(&self, slot: Slot, file: Option<Ino>) -> Option<u64> {
        let soft = &self.keep.soft;
        let here = soft.find(slot.0, slot.1);
        let patch = here.and_then(|id| soft.patches.get(&id));
        let newer = || file.and_then(|ino| soft.newest_name(slot, ino.0));
        if matches!(patch, Some(Patch { undo: Undo::Entry { ino: 0, .. }, .. })) {
            // Names that are on disk may wait for this one.
            let some = file.is_some_and(|ino| soft.olds.contains_key(&ino.0)) && !planted(Flaw::VanishedAwaited);
            return if some { newer() } else { None };
        }
        newer().or(here.filter(|_| patch.is_some_and(|p| soft.waits(p))))
    }

    /// Whether names of an inode on disk wait to go for its new one in `slot`, and it has others that are not on disk.
    pub(super) fn soft_awaited(&self, slot: Slot, ino: Ino) -> bool {
        let soft = &self.keep.soft;
        let new = soft.find(slot.0, slot.1).and_then(|id| soft.patches.get(&id)).is_some_and(|p| p.names == ino.0);
        new && soft.olds.contains_key(&ino.0) && soft.newest_name(slot, ino.0).is_some()
    }

    /// A new entry must not be on disk before what it names (FFS-C1).
    pub(super) fn soft_added(&mut self, (page, at): Slot, ino: Ino, mut waits: Vec<u64>) -> u64 {
        let soft = self.soft();
        if planted(Flaw::NameBeforeInode) {
            waits.clear();
        }
        let (mut undo, mut after) = (Undo::Entry { ino: 0, kind: 0 }, Vec::new());
        if let Some(removed) = soft.find(page, at).and_then(|id| soft.remove(id)) {
            // The same name again, where the old one has not gone yet.
            waits.extend(removed.waits.into_iter().filter(|w| soft.patches.contains_key(w)));
            (undo, after) = (removed.undo, removed.after);
        }
        soft.add(Patch { after, names: ino.0, ..Patch::new(page, at, undo, waits) })
    }

    pub(super) fn soft_removed(
        &mut self,
        (page, at): Slot,
        ((ino, kind), name): ((Ino, u8), &[u8]),
        after: Option<u64>,
        drop: Drop,
    ) -> Result<()> {
        let soft = self.soft();
        soft.count_going(drop, true);
        soft.leave((page, at), ino.0);
        let held =
            if let Name::File(Ino(file), FileBlock::Data(_)) = page { Some((file, name.to_vec())) } else { None };
        let after = after.filter(|id| soft.patches.contains_key(id) && !planted(Flaw::OldNameFirst));
        if let Some(wait) = after {
            // What is on disk here may not go yet either, as long as the newer name of that is not there.
            let unwritten = |p: &Patch| !matches!(p.undo, Undo::Entry { ino: 0, .. });
            let older = soft.find(page, at).filter(|id| soft.patches.get(id).is_some_and(unwritten));
            let waits = soft.ways([Some(wait), older].into_iter().flatten().collect());
            // Whatever else waits for this entry to be on disk goes on waiting for that.
            let undo = Undo::Entry { ino: ino.0 as u32, kind };
            let after = vec![After::Drop(drop), After::Vacant((page, at))];
            soft.add(Patch { after, held, ..Patch::new(page, at, undo, waits) });
            return Ok(());
        }
        if planted(Flaw::DropBeforeName) {
            soft.work.push_back(drop);
            return self.run_work().map(|_| ());
        }
        let mut undo = Undo::Entry { ino: ino.0 as u32, kind };
        let mut after = vec![After::Drop(drop), After::Vacant((page, at))];
        if let Some(patch) = soft.find(page, at).and_then(|id| soft.remove(id)) {
            if let Undo::Entry { ino: 0, .. } = patch.undo {
                // It has never been on disk.
                soft.work.push_back(drop);
                self.slot_vacated((page, at));
                self.follow_on(patch.after)?;
                return self.run_work().map(|_| ());
            }
            undo = patch.undo;
            after.extend(patch.after);
        }
        // It waits for nothing, but the same name again goes to its place: elsewhere it might be there twice.
        soft.add(Patch { after, held, ..Patch::new(page, at, undo, Vec::new()) });
        Ok(())
    }

    pub(super) fn soft_changed(
        &mut self,
        (page, at): Slot,
        ((ino, kind), new): ((Ino, u8), Ino),
        mut waits: Vec<u64>,
        drop: Drop,
    ) -> Result<u64> {
        let soft = self.soft();
        soft.count_going(drop, true);
        soft.leave((page, at), ino.0);
        if let Drop::Name(old) = drop
            && !planted(Flaw::ReplacedUnnamed)
        {
            waits.extend(soft.newest_name((page, at), old.0));
        }
        waits = soft.ways(waits);
        let (undo, mut after) = match soft.find(page, at).and_then(|id| soft.remove(id)) {
            Some(patch) => {
                // The link count of the directory, above all, if the entry names one before and after.
                waits.extend(patch.waits.into_iter().filter(|w| soft.patches.contains_key(w)));
                (patch.undo, patch.after)
            }
            None => (Undo::Entry { ino: ino.0 as u32, kind }, Vec::new()),
        };
        let never_on_disk = matches!(undo, Undo::Entry { ino: 0, .. });
        if !never_on_disk {
            after.push(After::Drop(drop));
        }
        // Two dots are no name of the directory above.
        let names = if let Drop::Parent(_) = drop { 0 } else { new.0 };
        let id = soft.add(Patch { after, names, ..Patch::new(page, at, undo, waits) });
        if never_on_disk {
            soft.work.push_back(drop);
            self.run_work()?;
        }
        Ok(id)
    }

    /// Undoes in an image what must not be on disk yet. Says whether there was anything.
    pub(super) fn soft_roll_back(&self, name: Name, image: &mut [u8]) -> bool {
        let soft = &self.keep.soft;
        let mut inodes = Vec::new();
        let mut rolled = false;
        let mut ready = FxHashSet::default();
        // The newest first: an entry may have been entered and removed.
        for id in soft.of.get(&name).map_or(&[][..], |l| l).iter().rev() {
            let Some(patch) = soft.patches.get(id) else { continue };
            let is_entry = matches!(patch.undo, Undo::Entry { .. });
            if !soft.waits(patch) {
                // What came before it in its place is of no account.
                ready.extend(is_entry.then_some(patch.at));
                continue;
            }
            if is_entry && ready.contains(&patch.at) && !planted(Flaw::OlderRolledBack) {
                continue;
            }
            rolled = true;
            match patch.undo {
                Undo::None => {}
                Undo::Inode(old) => inodes.push((patch.at - INODE_AT, old)),
                Undo::Pointer { old, inode } => {
                    put_u32(image, patch.at, old);
                    if let Some((at, size)) = inode.filter(|_| !planted(Flaw::SizeNotRolledBack)) {
                        lower_size(image, at, size);
                    }
                }
                Undo::Entry { .. } if planted(Flaw::EntryNotRolledBack) => {}
                Undo::Entry { ino, kind } => {
                    put_u32(image, patch.at, ino);
                    if let Some(k) = image.get_mut(patch.at + 6).filter(|_| ino != 0) {
                        *k = kind;
                    }
                }
                Undo::Size(old) => lower_size(image, patch.at - SIZE_AT, old),
                Undo::Inited(old) => put_u32(image, patch.at, old),
            }
        }
        for (at, old) in inodes {
            if let Some(place) = image.get_mut(at..at + INODE) {
                place.copy_from_slice(&old);
            }
        }
        rolled
    }

    /// What was included in writes is on disk now.
    pub(super) fn soft_written(&mut self, included: Vec<u64>) -> Result<()> {
        let after: Vec<After> = included.into_iter().flat_map(|id| self.soft().written(id)).collect();
        self.follow_on(after)
    }

    /// Does what follows patches that are on disk now, or never will be.
    fn follow_on(&mut self, mut after: Vec<After>) -> Result<()> {
        after.reverse();
        while let Some(a) = after.pop() {
            if a.frees() {
                self.soft().frees = self.soft().frees.saturating_sub(1);
            }
            match a {
                After::Free(frag, frags) => self.free_run(frag, frags)?,
                After::FreeInode(ino, m) => self.vfree(ino, m)?,
                After::Drop(drop) => self.soft().work.push_back(drop),
                After::Vacant(slot) => self.slot_vacated(slot),
                After::Patch(id) => after.extend(self.soft().remove(id).into_iter().flat_map(|p| p.after).rev()),
            }
        }
        Ok(())
    }

    /// A buffer is dropped; what followed its patches happens, or is returned.
    pub(super) fn soft_cancel(&mut self, name: Name) -> Result<Vec<(Frag, u32)>> {
        let ids = self.keep.soft.of.get(&name).cloned().unwrap_or_default();
        let (mut runs, mut rest) = (Vec::new(), Vec::new());
        for id in ids {
            for a in self.soft().remove(id).map(|p| p.after).unwrap_or_default() {
                match a {
                    After::Free(frag, frags) => {
                        self.soft().frees = self.soft().frees.saturating_sub(1);
                        runs.push((frag, frags));
                    }
                    other => rest.push(other),
                }
            }
        }
        self.follow_on(rest)?;
        Ok(runs)
    }

    /// Buffers that have to be written until a file is durable with the names it was made by, as far as that can
    /// be seen now.
    pub(super) fn soft_needed(&mut self, ino: Ino) -> Result<Vec<Name>> {
        let mut out: FxHashSet<Name> = self.buffers_of(ino)?.into_iter().collect();
        // Its names, and the directories up to the root that are new as well.
        let (mut inos, mut seen) = (vec![ino.0], FxHashSet::default());
        while let Some(ino) = inos.pop() {
            if !seen.insert(ino) {
                continue;
            }
            let (block, at) = match self.geom.inode_at(Ino(ino)) {
                Some(place) => place,
                None => continue,
            };
            let name = Name::Block(block.0.into());
            let soft = &self.keep.soft;
            inos.extend(soft.under.get(&ino).into_iter().flatten());
            let pending = (at..at + INODE).step_by(4).any(|at| soft.find(name, at).is_some());
            if pending && self.dirty.contains_key(&name) {
                out.insert(name);
            }
            let forgets = planted(Flaw::SyncForgetsNames);
            for id in soft.adds.get(&ino).filter(|_| !forgets).map_or(&[][..], |l| l) {
                out.extend(soft.needs(*id));
                if let Some(Patch { buffer: Name::File(Ino(file), FileBlock::Data(_)), .. }) = soft.patches.get(id) {
                    inos.push(*file);
                }
            }
        }
        self.with_what_waits(out)
    }

    /// The same, until it has no other names than those that it is to have either.
    pub(super) fn soft_names_needed(&mut self, ino: Ino) -> Result<Vec<Name>> {
        let mut out: FxHashSet<Name> = self.soft_needed(ino)?.into_iter().collect();
        let soft = &self.keep.soft;
        out.extend(soft.olds.get(&ino.0).into_iter().flatten().filter_map(|id| soft.needs(*id)));
        self.with_what_waits(out)
    }

    /// Buffers, and those that their changes wait for; the dirty ones.
    fn with_what_waits(&self, mut out: FxHashSet<Name>) -> Result<Vec<Name>> {
        let mut todo: Vec<Name> = out.iter().copied().collect();
        while let Some(name) = todo.pop() {
            for id in self.keep.soft.of.get(&name).map_or(&[][..], |l| l) {
                let waits = self.keep.soft.patches.get(id).map_or(&[][..], |p| &p.waits);
                for buffer in waits.iter().filter_map(|w| self.keep.soft.needs(*w)) {
                    if out.insert(buffer) {
                        todo.push(buffer);
                    }
                }
            }
        }
        Ok(out.into_iter().filter(|n| self.dirty.contains_key(n)).collect())
    }
}

fn lower_size(image: &mut [u8], inode: usize, size: u64) {
    let at = inode + SIZE_AT;
    let lo = u64::from(get_u32(image, at).unwrap_or(0));
    let hi = u64::from(get_u32(image, at + 4).unwrap_or(0));
    if size < hi << 32 | lo {
        put_u32(image, at, size as u32);
        put_u32(image, at + 4, (size >> 32) as u32);
    }
}
