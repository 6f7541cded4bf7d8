//! Buffers: what they hold; which are dirty, and which are being written.
//!
//! [`DirtyBuffers`] orders the dirty ones by the time at which they are due, and by their last change; [`Pages`] knows
//! the pages of data in flight. Called by `volume.rs` (changes) and `commit.rs` (writes).

use crate::format::*;
use crate::validate;
use arbor_base::cache::{Cache, Name, Write};
use arbor_base::device::{Kind, Ticket};
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Ino, Result};
use arbor_kit::invariants::{Holds, ensure};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The place of a pointer or an entry: a buffer, and the byte in it.
pub(crate) type Slot = (Name, usize);

/// A pointer that was set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointerSet {
    /// Its place.
    pub slot: Slot,
    /// The run that it pointed to; fragment 0 if to none.
    pub old: (Frag, u32),
    /// The run that it points to now.
    pub new: (Frag, u32),
    /// The buffer of that run.
    pub content: Name,
    /// If the pointer lies in an inode: the inode's offset in the buffer, and the size it had before.
    pub inode: Option<(usize, u64)>,
}

impl PointerSet {
    /// Whether it pointed to another run before.
    pub fn is_moved(&self) -> bool {
        self.old.0.0 != 0 && self.old.0 != self.new.0
    }
}

/// The kind of block in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Super,
    Cg,
    Inodes,
    Indirect,
    Xattr,
    Dir,
    Data,
}

impl BlockKind {
    pub fn kind(self) -> Kind {
        match self {
            BlockKind::Super => Kind::Super,
            BlockKind::Cg => Kind::Bitmap,
            BlockKind::Inodes => Kind::Inode,
            BlockKind::Indirect => Kind::Tree,
            BlockKind::Xattr => Kind::Xattr,
            BlockKind::Dir => Kind::Dir,
            BlockKind::Data => Kind::Data,
        }
    }
}

/// Checks a metadata block. Blocks of inodes pass: their inodes are checked one by one.
pub(crate) fn check_block(geom: &Geom, frag: Frag, kind: BlockKind, bytes: &[u8]) -> std::result::Result<(), Corrupt> {
    if kind == BlockKind::Cg { validate::group(geom, geom.cg_of(frag), bytes) } else { Ok(()) }
}

/// Whether a metadata block passes its checks, each inode included.
pub(crate) fn is_sound(geom: &Geom, frag: Frag, kind: BlockKind, bytes: &[u8]) -> bool {
    if kind != BlockKind::Inodes {
        return check_block(geom, frag, kind, bytes).is_ok();
    }
    inodes_of(geom, frag, bytes).all(|(ino, b)| validate::inode(geom, ino, b).is_ok())
}

/// The inodes of a block, with their numbers.
fn inodes_of<'a>(geom: &Geom, block: Frag, bytes: &'a [u8]) -> impl Iterator<Item = (Ino, &'a [u8])> {
    let first = geom.first_inode(block).0;
    (first..).map(Ino).zip(bytes.chunks_exact(INODE))
}

/// Inodes that failed their check when their block was read: they are refused, not the others in the block.
#[derive(Default)]
pub(crate) struct Damaged(FxHashMap<u64, Corrupt>);

impl Damaged {
    /// Remembers the damaged inodes of a block just read.
    pub fn note(&mut self, geom: &Geom, block: Frag, bytes: &[u8]) {
        for (ino, inode) in inodes_of(geom, block, bytes) {
            match validate::inode(geom, ino, inode) {
                Ok(()) => drop(self.0.remove(&ino.0)),
                Err(c) => drop(self.0.insert(ino.0, c)),
            }
        }
    }

    pub fn contains(&self, ino: Ino) -> bool {
        self.0.contains_key(&ino.0)
    }

    /// Fails for a damaged inode.
    pub fn refuse(&self, ino: Ino) -> Result<()> {
        self.0.get(&ino.0).map_or(Ok(()), |c| Err(c.clone().into()))
    }
}

/// By how much other metadata are due earlier than data, milliseconds.
pub(crate) const EARLIEST_MS: u64 = 2000;
/// By how much directories are due earlier than data, milliseconds.
const DIR_EARLIER_MS: u64 = 1000;

/// A dirty buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dirty {
    /// When it is due, milliseconds since the mount.
    pub due: u64,
    /// The fragment where it is written.
    pub frag: Frag,
    pub kind: BlockKind,
    /// The file it belongs to, 0 if to several.
    pub owner: u64,
    /// Its place in the queue.
    turn: u64,
    /// It was passed over once, since it would have been rolled back.
    deferred: bool,
}

/// All dirty buffers.
#[derive(Default)]
pub(crate) struct DirtyBuffers {
    all: FxHashMap<Name, Dirty>,
    /// The buffers by the time at which they are due.
    ages: BTreeSet<(u64, Name)>,
    /// The buffers in the order of their last change, by a number that counts changes.
    queue: BTreeMap<u64, Name>,
    turns: u64,
    /// The buffers other than pages, by the file they belong to.
    owned: BTreeSet<(u64, Name)>,
    /// When set, changes are due no later than this: they serve an earlier change of a user.
    inherited_due: Option<u64>,
}

impl DirtyBuffers {
    pub fn get(&self, name: Name) -> Option<&Dirty> {
        self.all.get(&name)
    }

    pub fn contains(&self, name: Name) -> bool {
        self.all.contains_key(&name)
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn names(&self) -> Vec<Name> {
        self.all.keys().copied().collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Dirty)> {
        self.all.iter()
    }

    /// Checks that dirty buffers are dirty in the cache, and in each order once (FFS-B1).
    pub fn check(&self, cache: &Cache) -> Holds {
        let lens = [self.ages.len(), self.queue.len(), cache.dirty_names().len()];
        ensure(lens == [self.all.len(); 3], "FFS-B1", || {
            format!("{} dirty buffers, {lens:?} by age, by change and in the cache", self.all.len())
        })?;
        for (name, d) in &self.all {
            ensure(cache.is_dirty(*name), "FFS-B1", || format!("{name:?} is not dirty"))?;
            let listed = self.ages.contains(&(d.due, *name)) && self.queue.get(&d.turn) == Some(name);
            ensure(listed, "FFS-B1", || format!("{name:?}, {d:?}, is not where it belongs"))?;
        }
        Ok(())
    }

    #[cfg(test)]
    pub fn get_mut(&mut self, name: Name) -> Option<&mut Dirty> {
        self.all.get_mut(&name)
    }

    #[cfg(test)]
    pub fn break_queue(&mut self) {
        assert!(self.queue.pop_first().is_some());
    }

    /// Pages of data, or everything else.
    pub fn of_data(&self, data: bool) -> Vec<Name> {
        let wanted = |d: &(&Name, &Dirty)| (d.1.kind == BlockKind::Data) == data;
        self.all.iter().filter(wanted).map(|d| *d.0).collect()
    }

    /// Notes that a buffer was changed at `now`, and goes to `frag`; data are due after `commit_ms`.
    pub fn touch(&mut self, name: Name, (frag, kind, owner): (Frag, BlockKind, u64), now: u64, commit_ms: u64) {
        let early = match kind {
            BlockKind::Data => 0,
            BlockKind::Dir => DIR_EARLIER_MS,
            _ => EARLIEST_MS,
        };
        let wait = commit_ms.saturating_sub(early).max(1);
        let due = (now + wait).min(self.inherited_due.unwrap_or(u64::MAX));
        self.turns += 1;
        let d = self.all.entry(name).or_insert(Dirty { due, frag, kind, owner, turn: 0, deferred: false });
        self.queue.remove(&d.turn);
        self.queue.insert(self.turns, name);
        (d.frag, d.owner, d.turn) = (frag, owner, self.turns);
        self.ages.insert((d.due, name));
        self.lower_due(name, due);
        if owner != 0 && kind != BlockKind::Data && kind != BlockKind::Dir {
            self.owned.insert((owner, name));
        }
    }

    /// Removes a buffer that is clean now, or was dropped.
    pub fn untouch(&mut self, name: Name) -> Option<Dirty> {
        let d = self.all.remove(&name)?;
        self.ages.remove(&(d.due, name));
        self.queue.remove(&d.turn);
        self.owned.remove(&(d.owner, name));
        Some(d)
    }

    /// Makes a buffer due at `due`, unless it is due earlier. Returns whether that changed anything.
    pub fn lower_due(&mut self, name: Name, due: u64) -> bool {
        let Some(d) = self.all.get_mut(&name).filter(|d| d.due > due) else { return false };
        let old = std::mem::replace(&mut d.due, due);
        self.ages.remove(&(old, name));
        self.ages.insert((due, name));
        true
    }

    /// Makes changes from now on due no later than the buffer `name`; `None` ends that.
    pub fn inherit_due(&mut self, name: Option<Name>) {
        self.inherited_due = name.and_then(|name| self.all.get(&name)).map(|d| d.due);
    }

    /// Buffers that are due at `at`.
    pub fn due_by(&self, at: u64) -> Vec<Name> {
        self.ages.range(..(at + 1, Name::Block(0))).map(|a| a.1).collect()
    }

    /// When the first dirty buffer is due.
    pub fn first_due(&self) -> Option<u64> {
        self.ages.first().map(|a| a.0)
    }

    /// Makes a metadata buffer belong to a file: the file's fsync writes it.
    pub fn own(&mut self, name: Name, ino: Ino) {
        if let Some(d) = self.all.get_mut(&name) {
            self.owned.remove(&(d.owner, name));
            d.owner = ino.0;
            self.owned.insert((ino.0, name));
        }
    }

    /// Metadata buffers that belong to a file.
    pub fn owned_by(&self, ino: Ino) -> impl Iterator<Item = Name> {
        self.owned.range((ino.0, Name::Block(0))..(ino.0 + 1, Name::Block(0))).map(|o| o.1)
    }

    /// Takes the buffer changed longest ago from the queue, with its turn. One that is not `ready` goes to the end
    /// instead, but only once: `Some(None)` is returned for it. `None` at the end of the queue.
    pub fn next_in_queue(&mut self, ready: impl FnOnce(Name) -> bool) -> Option<Option<(u64, Name)>> {
        let (turn, name) = self.queue.pop_first()?;
        let Some(d) = self.all.get_mut(&name) else { return Some(None) };
        if d.deferred || ready(name) {
            return Some(Some((turn, name)));
        }
        self.turns += 1;
        (d.deferred, d.turn) = (true, self.turns);
        self.queue.insert(self.turns, name);
        Some(None)
    }

    /// Puts buffers back that were taken from the queue: a write removes them.
    pub fn requeue(&mut self, taken: impl Iterator<Item = (u64, Name)>) {
        self.queue.extend(taken);
    }
}

/// Writes of data under way.
pub(crate) struct InFlight {
    pub ticket: Ticket,
    pub writes: Vec<Write>,
    /// The dependencies that they bring to the disk.
    pub included: Vec<u64>,
}

/// State of pages that are not on disk yet.
#[derive(Default)]
pub(crate) struct Pages {
    /// Pages whose block was allocated since it was last written.
    fresh: FxHashSet<Name>,
    /// Pages with bytes other than zero on disk past the end of their file, which a power cut left there.
    tails: FxHashSet<Name>,
    /// Data were written since the last flush of the device.
    streamed: bool,
    in_flight: VecDeque<InFlight>,
}

impl Pages {
    pub fn is_fresh(&self, name: Name) -> bool {
        self.fresh.contains(&name)
    }

    pub fn note_fresh(&mut self, name: Name) {
        self.fresh.insert(name);
    }

    pub fn has_tail(&self, name: Name) -> bool {
        self.tails.contains(&name)
    }

    pub fn note_tail(&mut self, name: Name) {
        self.tails.insert(name);
    }

    /// Called when the write of a buffer begins.
    pub fn begin_write(&mut self, name: Name) {
        self.fresh.remove(&name);
    }

    /// Called when a buffer was written.
    pub fn end_write(&mut self, name: Name) {
        self.tails.remove(&name);
    }

    /// Called when a buffer was dropped.
    pub fn forget(&mut self, name: Name) {
        self.fresh.remove(&name);
        self.tails.remove(&name);
    }

    /// Whether data were written since the last flush.
    pub fn is_streamed(&self) -> bool {
        self.streamed
    }

    pub fn note_streamed(&mut self) {
        self.streamed = true;
    }

    pub fn flushed(&mut self) {
        self.streamed = false;
    }

    pub fn start(&mut self, writes: InFlight) {
        self.in_flight.push_back(writes);
    }

    /// Takes the oldest writes under way, if there are more than `left`.
    pub fn next_done(&mut self, left: usize) -> Option<InFlight> {
        if self.in_flight.len() > left { self.in_flight.pop_front() } else { None }
    }

    /// Whether a buffer is being written.
    pub fn is_in_flight(&self, name: Name) -> bool {
        self.in_flight.iter().any(|w| w.writes.iter().any(|w| w.name() == name))
    }
}

/// Files that are read or written one block after another, with the next block.
#[derive(Default)]
pub(crate) struct Streams(VecDeque<(u64, u64)>);

impl Streams {
    /// Most files that are remembered.
    const MOST: usize = 32;

    /// Whether this block comes next.
    pub fn expects(&self, ino: Ino, lbn: u64) -> bool {
        lbn == 0 || self.0.contains(&(ino.0, lbn))
    }

    /// Notes that the blocks before `next` were read.
    pub fn note(&mut self, ino: Ino, next: u64) {
        self.0.retain(|s| s.0 != ino.0);
        self.0.push_front((ino.0, next));
        self.0.truncate(Self::MOST);
    }
}
