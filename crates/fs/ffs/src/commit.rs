//! The order of writes; nobody else orders them.
//!
//! A buffer that was changed is *dirty*, with the time at which it is due. What else holds depends on how the
//! volume keeps its metadata ([`Keeping`]):
//!
//! * **async**: nothing. Buffers go to the disk when they are due, or the cache is full of them.
//! * **softupdates**: nothing waits. Each such dependency is a *patch* (`commit/soft.rs`): what must be on disk
//!   before it, and how the buffer was without it. A buffer that is written while a patch in it still waits is
//!   written without it (*rolled back*), and stays dirty.
//! * **sync**: what others are about to depend on is written, and waited for, at once: an inode before the
//!   first name of it, a removed name before the link count falls, a pointer that was cleared before its
//!   block is free, an indirect block before it is pointed to. Bitmaps, data and times are delayed; so pointers
//!   to data are patches as with soft updates.
//! * **journal**: metadata buffers belong to the running transaction and stay in core; when it commits, data are
//!   written first, then copies of all its buffers to the journal, then a commit fragment
//!   (`commit/journal.rs`). Buffers go to their places later.
//!
//! # Invariants
//!
//! * **FFS-C1** an inode is on disk before a name of it is.
//! * **FFS-C2** a name is gone from the disk, or names another inode, before the link count that it stood
//!   for is taken away, and the inode freed with the last one.
//! * **FFS-C3** a fragment or an inode is marked used on disk before a pointer to it, or its inode, is there; and
//!   no pointer to it is on disk when it is marked free (softupdates; sync: only the second).
//! * **FFS-C4** a block is written before a pointer to it; and zeros over what a power cut left behind the end of a
//!   file before a size that reaches over it (not async).
//! * **FFS-C5** what is freed by a transaction is not given away before it is durable (journal).
//! * **FFS-C6** a name counts as on disk, for what waits for it, when the pointers to its block are there too, with the
//!   size of its directory; and what is removed from a block counts as gone no earlier (softupdates and sync).
//! * **FFS-C7** the data that a file has when it takes the name of another are on disk before that name is, with the
//!   pointers to them (not async).

pub(crate) mod journal;
mod soft;

pub(crate) use soft::invariants::Freed;

use crate::file::Slot;
use crate::format::*;
use crate::inode::Inode;
use crate::mount::{Core, EARLIEST_MS, What};
use crate::planted::{Flaw, planted};
use arbor_base::cache::{FileBlock, Name, Write};
use arbor_base::device::{Buf, Request, Ticket};
use arbor_base::layout::crc_without;
use arbor_base::vfs::{Errno, Error, Ino, Result, Time};
use arbor_kit::calls::State as _;
use arbor_kit::inodes::InodeTable as _;
use rustc_hash::FxHashSet;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// What the removal of a name takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drop {
    /// A name of this inode.
    Name(Ino),
    /// This directory, and its entry `..` in the other.
    Dir(Ino, Ino),
    /// An entry `..` in this directory.
    Parent(Ino),
}

/// How metadata are kept.
pub(crate) struct Keep {
    pub mode: Keeping,
    /// Pages whose block was allocated since it was last written.
    pub fresh: FxHashSet<Name>,
    /// Pages with something else than zeros on disk behind the end of their file: what a power cut took back.
    pub tails: FxHashSet<Name>,
    /// Data were written, and the device was not flushed since.
    streamed: bool,
    soft: soft::Soft,
    journal: Option<journal::Journal>,
}

impl Keep {
    pub fn new(mode: Keeping) -> Keep {
        let (fresh, tails) = (FxHashSet::default(), FxHashSet::default());
        Keep { mode, fresh, tails, streamed: false, soft: soft::Soft::default(), journal: None }
    }

    /// Whether changes wait in their buffers for other writes.
    fn has_patches(&self) -> bool {
        matches!(self.mode, Keeping::SoftUpdates | Keeping::Sync)
    }

    /// All that waits for a write, for [`invariants`](crate::invariants).
    pub fn soft(&self) -> &soft::Soft {
        &self.soft
    }

    /// Whether nothing waits for a write any more.
    pub fn owes_nothing(&self) -> bool {
        self.soft.frees_nothing()
    }
}

fn names_of(writes: &[Write]) -> Vec<Name> {
    writes.iter().map(Write::name).collect()
}

/// Writes of data under way.
pub(crate) struct InFlight {
    ticket: Ticket,
    pub writes: Vec<Write>,
    /// Patches that they bring to the disk.
    included: Vec<u64>,
}

/// Writes of data under way, at most.
const IN_FLIGHT: usize = 16;
/// Milliseconds at least between two turns of background work that nothing presses for.
const LEAST_PAUSE_MS: u64 = 200;
/// Rounds without progress after which buffers that are still dirty are a mistake.
const MOST_ROUNDS: usize = 200;

impl Core {
    // What the rest of the engine tells.

    /// An inode was allocated; `old` is what was in its place.
    pub fn inode_made(&mut self, i: &Inode, old: Dinode) -> Result<()> {
        if self.keep.mode == Keeping::SoftUpdates { self.soft_inode(i, old) } else { Ok(()) }
    }

    /// An inode was cleared; it is free when that is on disk.
    pub fn inode_freed(&mut self, i: &Inode, m: u32) -> Result<()> {
        match self.keep.mode {
            Keeping::SoftUpdates => self.soft_free_inode(i, m),
            Keeping::Sync => {
                self.soft_free_inode(i, m)?;
                self.write_awaited(i.name())
            }
            _ => self.vfree(i.ino, m),
        }
    }

    /// A link count was raised: returns what a name that it stands for has to wait for.
    pub fn links_raised(&mut self, i: &Inode) -> Result<Vec<u64>> {
        match self.keep.mode {
            Keeping::Sync => self.write_now(i.name()).map(|()| Vec::new()),
            Keeping::SoftUpdates => Ok(self.soft_links_raised(i)),
            _ => Ok(Vec::new()),
        }
    }

    /// What another name in a directory has to wait for, of a directory that it counts already: that count may be
    /// on its way. The directory's inode was changed in this call.
    pub fn dir_counted(&mut self, dir: &Inode) -> Result<Vec<u64>> {
        if self.holds_entries() { self.links_raised(dir) } else { Ok(Vec::new()) }
    }

    /// What the first name of a new inode has to wait for (FFS-C1).
    pub fn inode_ready(&mut self, i: &Inode) -> Result<Vec<u64>> {
        match self.keep.mode {
            Keeping::SoftUpdates => {
                if i.is_dir() || i.is_symlink() {
                    self.soft_first_block(i);
                }
                Ok(self.soft_inode_ready(i))
            }
            Keeping::Sync => {
                let pages: Vec<u64> = self.cache.dirty_pages(i.ino, 0).collect();
                for index in pages {
                    self.write_now(Name::data(i.ino, index))?;
                }
                if planted(Flaw::SyncNameFirst) {
                    return Ok(Vec::new());
                }
                self.write_now(i.name()).map(|()| Vec::new())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// What a name has to wait for that a file takes from another: who writes a new file and renames it over the old
    /// one, and syncs neither, finds one of the two after a crash (FFS-C7).
    pub fn data_ready(&mut self, i: &Inode) -> Result<Vec<u64>> {
        if !i.is_file() || !self.keep.has_patches() || planted(Flaw::ReplacedBeforeData) {
            return Ok(Vec::new());
        }
        self.reap(0)?;
        if self.keep.streamed {
            self.flush()?;
        }
        match self.keep.mode {
            Keeping::Sync => self.write_whole(i.ino).map(|()| Vec::new()),
            _ => self.soft_data_ready(i),
        }
    }

    /// A pointer was set, from `old` (fragment 0: none) to `new`, whose content is the buffer `content`;
    /// `inode`: where the pointer's inode begins in the buffer and the size it had before, if it lies in one.
    pub fn pointer_set(
        &mut self,
        slot: Slot,
        old: (Frag, u32),
        new: (Frag, u32),
        content: Name,
        inode: Option<(usize, u64)>,
    ) -> Result<()> {
        let moved = old.0.0 != 0 && old.0 != new.0;
        match self.keep.mode {
            Keeping::SoftUpdates => return self.soft_pointer(slot, old, new, content, inode),
            Keeping::Sync if planted(Flaw::SyncPointerFirst) => {}
            Keeping::Sync => match self.dirty.get(&content).map(|d| d.what) {
                Some(What::Data) => return self.soft_pointer(slot, old, new, content, inode),
                Some(_) => self.write_now(content)?,
                None => {}
            },
            _ => {}
        }
        if moved { self.free_after(slot.0, &[old]) } else { Ok(()) }
    }

    /// A pointer that was set leads to a directory's block, or to pointers to some: what is written there is not
    /// reached before the pointer is on disk (FFS-C6). `inode`: behind the direct blocks, where the directory's inode begins in
    /// its buffer, and the size it had before.
    pub fn leads_to_names(&mut self, slot: Slot, content: Name, inode: Option<(Slot, u64)>) -> Result<()> {
        match self.keep.mode {
            Keeping::SoftUpdates => self.soft_leads(slot, content, inode),
            Keeping::Sync if !planted(Flaw::NamesUnreached) => {
                self.write_now(slot.0)?;
                inode.map_or(Ok(()), |i| self.write_now(i.0.0))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A file is shorter than it was.
    pub fn size_lowered(&mut self, i: &Inode) {
        if self.keep.has_patches() {
            self.soft_size_lowered(i);
        }
    }

    /// A file grew from `old` bytes over what its last page `content` had on disk behind the end (FFS-C4).
    pub fn size_grown(&mut self, i: &Inode, old: u64, content: Name) {
        if self.keep.has_patches() && self.keep.tails.contains(&content) && !planted(Flaw::TailShown) {
            self.soft_size_grown(i, old, content);
        }
    }

    /// A pointer was cleared: the runs are free when that is on disk (FFS-C3).
    pub fn free_slot(&mut self, slot: Slot, runs: &[(Frag, u32)]) -> Result<()> {
        match self.keep.mode {
            Keeping::SoftUpdates => self.soft_free_slot(slot, runs),
            Keeping::Sync if !planted(Flaw::SyncFreeFirst) => {
                self.soft_free_slot(slot, runs)?;
                self.write_awaited(slot.0)
            }
            _ => self.free_after(slot.0, runs),
        }
    }

    /// The runs are free when this buffer is on disk.
    pub fn free_after(&mut self, name: Name, runs: &[(Frag, u32)]) -> Result<()> {
        match self.keep.mode {
            Keeping::SoftUpdates => self.soft_free_after(name, runs),
            Keeping::Sync if !planted(Flaw::SyncFreeFirst) => {
                self.soft_free_after(name, runs)?;
                self.write_awaited(name)
            }
            _ => runs.iter().try_for_each(|r| self.free_run(r.0, r.1)),
        }
    }

    /// A name was entered; returns what waits for it has to wait for.
    pub fn entry_added(&mut self, slot: Slot, ino: Ino, waits: Vec<u64>) -> Result<u64> {
        match self.keep.mode {
            Keeping::SoftUpdates => Ok(self.soft_added(slot, ino, waits)),
            Keeping::Sync => {
                self.write_now(slot.0)?;
                if planted(Flaw::SyncNameFirst) {
                    let inode = self.inode_block(ino)?;
                    self.write_now(inode)?;
                }
                Ok(0)
            }
            _ => Ok(0),
        }
    }

    /// See [`Core::entry_first`].
    pub fn entry_alone(&mut self, slot: Slot) -> Result<()> {
        if self.keep.mode == Keeping::Sync && !planted(Flaw::SyncNameFirst) { self.write_now(slot.0) } else { Ok(()) }
    }

    /// A name of `old` was removed: what it stood for goes later (FFS-C2). `after`: a name that has to be on disk before
    /// (of a rename).
    pub fn entry_removed(&mut self, slot: Slot, old: ((Ino, u8), &[u8]), after: Option<u64>, drop: Drop) -> Result<()> {
        match self.keep.mode {
            Keeping::SoftUpdates => return self.soft_removed(slot, old, after, drop),
            Keeping::Sync if planted(Flaw::SyncDropFirst) => {}
            Keeping::Sync => self.write_now(slot.0)?,
            _ => {}
        }
        self.run_drop(drop)
    }

    /// An entry names another inode than `old`; returns what waits for it has to wait for.
    pub fn entry_changed(
        &mut self,
        (page, at): Slot,
        (old, new): ((Ino, u8), Ino),
        waits: Vec<u64>,
        drop: Drop,
    ) -> Result<u64> {
        match self.keep.mode {
            Keeping::SoftUpdates => return self.soft_changed((page, at), (old, new), waits, drop),
            Keeping::Sync => self.write_now(page)?,
            _ => {}
        }
        self.run_drop(drop).map(|()| 0)
    }

    /// The group says that a further block of its inode table is in use; `old`: how much was before.
    pub fn before_inited(&mut self, cgx: u32, block: Frag, old: u32) -> Result<()> {
        match self.keep.mode {
            Keeping::SoftUpdates => {
                self.soft_inited(cgx, block, old);
                Ok(())
            }
            Keeping::Journal => Ok(()),
            _ => self.write_now(Name::Block(block.0.into())),
        }
    }

    /// A group says that more of its inode table is in use: what it did not say is not looked for after a crash.
    pub fn inited(&mut self, cgx: u32) -> Result<()> {
        match self.keep.mode {
            Keeping::Sync | Keeping::Async => self.write_now(self.cg_name(cgx)),
            _ => Ok(()),
        }
    }

    /// Names of an inode that are gone for users, and still counted.
    pub fn links_going(&self, ino: Ino) -> u32 {
        self.keep.soft.going(ino)
    }

    /// Whether the bytes of a removed entry may have to come back.
    pub fn is_held(&self, page: Name, at: usize) -> bool {
        self.keep.soft.is_held(page, at)
    }

    /// Whether an entry of this name was removed in a block that the disk has elsewhere yet.
    pub fn is_held_elsewhere(&self, dir: Ino, name: &[u8]) -> bool {
        self.holds_entries() && self.keep.soft.is_held_elsewhere(dir, name)
    }

    /// Where an entry of this name was that is removed, and may have to come back.
    pub fn held_name(&self, dir: Ino, name: &[u8]) -> Option<Slot> {
        if self.holds_entries() { self.keep.soft.held_name(dir, name) } else { None }
    }

    /// A name that must be on disk before the one in `slot` may go, or a file would be there without one: of the file that
    /// it names, or of what it took the place of.
    pub fn newer_name(&self, slot: Slot, file: Option<Ino>) -> Option<u64> {
        if self.holds_entries() { self.soft_newer_name(slot, file) } else { None }
    }

    /// Whether `ino` has lost names that are still on disk, and would have none for a while if the one in `slot` were
    /// replaced as things are.
    pub fn is_awaited(&self, slot: Slot, ino: Ino) -> bool {
        self.holds_entries() && self.soft_awaited(slot, ino)
    }

    /// Whether an entry in `slot` is kept, as one without a name, when it is removed: one that is on disk, or waits for
    /// `after`.
    pub fn is_kept_removed(&self, slot: Slot, after: Option<u64>) -> bool {
        self.holds_entries() && (after.is_some() || !self.keep.soft.is_unwritten(slot))
    }

    /// Whether a directory has names on disk that it is not to have.
    pub fn has_old_names(&self, dir: Ino) -> bool {
        self.holds_entries() && self.keep.soft.has_old_names(dir)
    }

    /// Whether changes in a directory of so many blocks wait for others.
    pub fn has_waiting_entries(&self, dir: Ino, pages: u64) -> bool {
        self.holds_entries() && self.keep.soft.has_waiting_entries(dir, pages)
    }

    /// Whether the removal of an entry leaves its bytes alone.
    pub fn holds_entries(&self) -> bool {
        self.keep.mode == Keeping::SoftUpdates
    }

    /// Marks a run free, and lets nobody have it before that may be (FFS-C5).
    fn free_run(&mut self, frag: Frag, frags: u32) -> Result<()> {
        self.blkfree(frag, frags)?;
        if self.keep.mode == Keeping::Journal {
            if !planted(Flaw::ReuseAtOnce) {
                self.hold(frag, frags);
            }
            self.revoke(frag, frags);
        } else if self.opts.discard {
            // It is advice: nothing depends on it.
            let _ = self.discard(&[(frag, frags)]);
        }
        Ok(())
    }

    /// Gives runs back to the device.
    pub fn discard(&mut self, runs: &[(Frag, u32)]) -> Result<()> {
        if self.dev.geometry().discard_unit == 0 {
            return Ok(());
        }
        let request = |(frag, frags): &(Frag, u32)| {
            Request::discard(What::Data.kind(), self.geom.byte(*frag), self.geom.bytes_of(*frags) as u64)
        };
        let batch = runs.iter().map(request).collect();
        Ok(self.calls.reads.submit(&*self.dev, batch).wait_all()?)
    }

    /// A dirty metadata buffer joins the running transaction.
    pub fn join_transaction(&mut self, name: Name, what: What) {
        if self.keep.mode == Keeping::Journal && what != What::Data {
            self.journal_join(name);
        }
    }

    /// A buffer is dropped.
    pub fn leave_transaction(&mut self, name: Name) {
        self.keep.fresh.remove(&name);
        self.keep.tails.remove(&name);
        if self.keep.mode == Keeping::Journal {
            self.journal_leave(name);
        }
    }

    /// Drops a buffer, and with it what waited to be written in it.
    pub fn drop_buffer(&mut self, name: Name) -> Result<()> {
        let runs = self.cancel_buffer(name)?;
        self.forget(name);
        runs.iter().try_for_each(|r| self.free_run(r.0, r.1))
    }

    /// Nothing of a buffer will be written. Returns runs whose freeing waited for it.
    pub fn cancel_buffer(&mut self, name: Name) -> Result<Vec<(Frag, u32)>> {
        if self.keep.has_patches() { self.soft_cancel(name) } else { Ok(Vec::new()) }
    }

    // Writing.

    /// The bytes to write of a buffer, and whether something in it was rolled back.
    fn image(&self, name: Name, what: What, bytes: Arc<Vec<u8>>) -> (Arc<Vec<u8>>, bool) {
        if what == What::Data || what == What::Xattr {
            return (bytes, false);
        }
        let mut image = bytes.as_ref().clone();
        let rolled = self.keep.has_patches() && self.soft_roll_back(name, &mut image);
        self.seal(name, what, &mut image);
        (Arc::new(image), rolled)
    }

    fn seal(&self, name: Name, what: What, image: &mut [u8]) {
        match what {
            What::Cg => seal_cg(image),
            What::Super => {
                let crc = image.get(..SECTOR).and_then(|b| crc_without(b, SUPER_CRC_AT)).unwrap_or(0);
                put_u32(image, SUPER_CRC_AT, crc);
            }
            What::Inodes => {
                let Name::Block(at) = name else { return };
                let first = self.geom.first_inode(Frag(at as u32)).0;
                for (i, inode) in image.chunks_exact_mut(INODE).enumerate() {
                    let ino = Ino(first + i as u64);
                    // Zeros need no seal, and a damaged inode does not get a right one.
                    let damaged = self.damaged.contains_key(&ino.0) && !planted(Flaw::DamageSealed);
                    if inode.iter().any(|b| *b != 0) && !damaged {
                        let crc = inode_crc(inode, self.geom.fsid, ino);
                        put_u32(inode, INODE - 4, crc);
                    }
                }
            }
            What::Indirect | What::Xattr | What::Dir | What::Data => {}
        }
    }

    /// Requests for buffers, neighbours in one, up to a cluster; with the buffers of each, and of all those that
    /// were rolled back.
    fn requests(&mut self, names: &[Name]) -> (Vec<Request>, Vec<Write>, FxHashSet<Name>) {
        let mut all: Vec<(Frag, Name, What)> =
            names.iter().filter_map(|n| self.dirty.get(n).map(|d| (d.frag, *n, d.what))).collect();
        all.sort_unstable_by_key(|a| a.0);
        let most = self.geom.block_size() as u64 * u64::from(self.sb.maxcontig.get());
        let (mut out, mut written, mut rolled): (Vec<Request>, _, _) = (Vec::new(), Vec::new(), FxHashSet::default());
        for (frag, name, what) in all {
            let Some(write) = self.cache.begin_write(name) else { continue };
            let (bytes, back) = self.image(name, what, write.bytes().clone());
            if back {
                rolled.insert(name);
            }
            written.push(write);
            self.keep.fresh.remove(&name);
            let (at, len) = (self.geom.byte(frag), bytes.len() as u64);
            self.counters.io.write_bytes += len;
            match out.last_mut() {
                Some(last)
                    if last.kind == what.kind() && last.offset + last.len() == at && last.len() + len <= most =>
                {
                    if let arbor_base::device::Op::Write(bufs) = &mut last.op {
                        bufs.push(Buf::new(bytes));
                    }
                }
                _ => out.push(Request::write(what.kind(), at, vec![Buf::new(bytes)])),
            }
        }
        self.counters.io.writes += out.len() as u64;
        (out, written, rolled)
    }

    /// Writes buffers as they may be written now, and makes them durable. What had to be rolled back in them
    /// leaves them dirty.
    fn write_round(&mut self, names: &[Name]) -> Result<()> {
        self.reap(0)?;
        let (batch, written, rolled) = self.requests(names);
        let included = self.keep.soft.included(&names_of(&written));
        let done = self.calls.reads.submit(&*self.dev, batch).wait_all().map_err(Error::Io).and_then(|()| self.order());
        if let Err(e) = done {
            self.unwritten(written);
            self.fail(&e);
            return Err(e);
        }
        let is_late = |name: &&Name| self.dirty.get(name).is_some_and(|d| d.due <= self.calls.now_ms());
        let late: Vec<Name> = rolled.iter().filter(is_late).copied().collect();
        for write in written {
            self.keep.tails.remove(&write.name());
            let whole = !rolled.contains(&write.name());
            self.end_write(write, whole);
        }
        self.soft_written(included)?;
        // They may wait for each other.
        while late.iter().filter(|name| self.hasten(**name)).count() > 0 {}
        Ok(())
    }

    /// A write failed: its buffers stay dirty.
    fn unwritten(&mut self, writes: Vec<Write>) {
        for write in writes {
            self.cache.end_write(write, false);
        }
    }

    fn end_write(&mut self, write: Write, whole: bool) {
        let name = write.name();
        if !whole {
            self.counters.rollbacks += 1;
        }
        if self.cache.end_write(write, whole) {
            self.untouch(name);
        } else if let Some(d) = self.untouch(name) {
            self.touch(name, d.frag, d.what, d.owner);
            if !whole && d.due > self.calls.now_ms() {
                // What was not written of it may be as old as what was.
                self.lower_due(name, d.due);
            }
        }
    }

    /// What was rolled back in a buffer though it was due is due again as soon as something of it waits no longer. Says
    /// whether that is earlier than it was.
    fn hasten(&mut self, name: Name) -> bool {
        let of = |buffer: &Name| self.dirty.get(buffer).map_or(0, |d| d.due);
        let ready = self.keep.soft.waited_for(name).map(|buffers| buffers.iter().map(of).max().unwrap_or(0));
        let due = ready.min().unwrap_or(0).max(self.calls.now_ms() + LEAST_PAUSE_MS);
        self.lower_due(name, due)
    }

    /// What was written is on disk before anything that is written after it.
    fn order(&mut self) -> Result<()> {
        if self.keep.mode == Keeping::Async || planted(Flaw::NoOrder) { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<()> {
        self.counters.io.flushes += 1;
        let done = self.dev.flush().map_err(Error::Io);
        self.keep.streamed &= done.is_err();
        // What was written may be lost, though its buffers are clean.
        done.inspect_err(|e| self.fail(e))
    }

    /// Writes one buffer and waits for it (the original FFS's `bwrite`).
    fn write_now(&mut self, name: Name) -> Result<()> {
        self.counters.sync_writes += 1;
        self.write_round(&[name])
    }

    /// Writes a buffer if something waits for its next write; what is on disk as it is in core was written.
    fn write_awaited(&mut self, name: Name) -> Result<()> {
        if !self.keep.soft.is_awaited(name) {
            return Ok(());
        }
        if self.dirty.contains_key(&name) {
            return self.write_now(name);
        }
        let done = self.keep.soft.included(&[name]);
        self.keep.soft.close_events(&[name]);
        self.soft_written(done)
    }

    /// Starts to write pages of data, without waiting (`bawrite`).
    pub fn start_writes(&mut self, names: &[Name]) -> Result<()> {
        self.reap(IN_FLIGHT - 1)?;
        let (batch, written, _) = self.requests(names);
        let names = names_of(&written);
        let included = self.keep.soft.included(&names);
        self.keep.soft.close_events(&names);
        let ticket = self.calls.reads.submit(&*self.dev, batch);
        self.in_flight.push_back(InFlight { ticket, writes: written, included });
        Ok(())
    }

    /// Waits for writes under way until at most `left` are.
    pub fn reap(&mut self, left: usize) -> Result<()> {
        let (mut done, mut included) = (Vec::new(), Vec::new());
        while self.in_flight.len() > left {
            let Some(InFlight { ticket, writes, included: more }) = self.in_flight.pop_front() else { break };
            if let Err(e) = ticket.wait_all().map_err(Error::Io) {
                self.unwritten(writes);
                self.fail(&e);
                return Err(e);
            }
            done.extend(writes);
            included.extend(more);
        }
        self.keep.streamed |= !done.is_empty();
        let tails = self.keep.has_patches() && done.iter().any(|w: &Write| self.keep.tails.contains(&w.name()));
        if !included.is_empty() || tails {
            self.flush()?;
        }
        for write in done {
            self.keep.tails.remove(&write.name());
            self.end_write(write, true);
        }
        self.soft_written(included)
    }

    /// Writes what is dirty and not part of a running transaction, in such an order that nothing is rolled back
    /// as long as that is possible, until `wanted` has nothing more.
    fn write_out(&mut self, wanted: &mut dyn FnMut(&mut Core) -> Result<Vec<Name>>) -> Result<()> {
        let (mut least, mut rounds) = (usize::MAX, 0);
        while rounds < MOST_ROUNDS {
            let names = wanted(self)?;
            if names.is_empty() {
                return Ok(());
            }
            let left = self.keep.soft.pending() + self.dirty.len();
            rounds = if left < least { 0 } else { rounds + 1 };
            least = least.min(left);
            let ready: Vec<Name> = names.iter().copied().filter(|n| self.keep.soft.is_ready(*n)).collect();
            self.write_round(if ready.is_empty() { &names } else { &ready })?;
        }
        let e = Error::Io(std::io::Error::other("buffers wait for each other"));
        self.fail(&e);
        Err(e)
    }

    /// Makes everything durable.
    pub fn flush_all(&mut self) -> Result<()> {
        if self.keep.mode == Keeping::Journal {
            return self.commit_journal();
        }
        loop {
            self.write_out(&mut |core| Ok(core.dirty.keys().copied().collect()))?;
            self.reap(0)?;
            if !self.run_work()? && self.dirty.is_empty() {
                break;
            }
        }
        self.flush()
    }

    /// Makes a file durable, with the names it was made by.
    pub fn flush_file(&mut self, ino: Ino) -> Result<()> {
        match self.keep.mode {
            Keeping::Journal => return self.commit_journal(),
            Keeping::SoftUpdates => {
                self.reap(0)?;
                self.write_out(&mut |core| core.soft_needed(ino))?;
            }
            Keeping::Sync | Keeping::Async => self.write_whole(ino)?,
        }
        self.flush()
    }

    /// Writes what a file has in pages and indirect blocks, then its inode: as it is, with what else lies in that block.
    fn write_whole(&mut self, ino: Ino) -> Result<()> {
        self.reap(0)?;
        let inode = self.inode_block(ino)?;
        self.write_out(&mut |core| {
            let mut names = core.buffers_of(ino)?;
            names.retain(|n| *n != inode);
            Ok(names)
        })?;
        if self.dirty.contains_key(&inode) { self.write_round(&[inode]) } else { Ok(()) }
    }

    fn inode_block(&self, ino: Ino) -> Result<Name> {
        let (block, _) = self.geom.inode_at(ino).ok_or(Errno::ESTALE)?;
        Ok(Name::Block(block.0.into()))
    }

    /// The same with soft updates, and the old names of a directory are gone.
    pub fn sync_dir_names(&mut self, dir: Ino) -> Result<()> {
        self.reap(0)?;
        self.write_out(&mut |core| core.soft_names_needed(dir))?;
        self.flush()
    }

    /// Dirty buffers of a file: pages, indirect blocks, its inode.
    fn buffers_of(&mut self, ino: Ino) -> Result<Vec<Name>> {
        let mut out: Vec<Name> = self.cache.dirty_pages(ino, 0).map(|index| Name::data(ino, index)).collect();
        let owned = self.owned.range((ino.0, Name::Block(0))..(ino.0 + 1, Name::Block(0)));
        out.extend(owned.map(|o| o.1));
        out.push(self.inode_block(ino)?);
        out.retain(|n| self.dirty.contains_key(n));
        Ok(out)
    }

    /// Work that is due at `now`; returns when there is more.
    pub fn run_daemons(&mut self, now: Time) -> Result<Time> {
        let at = self.calls.ms_until(now);
        if self.calls.health.is_writable() {
            if self.keep.mode == Keeping::Journal {
                self.journal_daemon(at)?;
            } else {
                let due: Vec<Name> = self.ages.range(..(at + 1, Name::Block(0))).map(|a| a.1).collect();
                self.write_some(&due)?;
                self.run_work()?;
            }
            if self.has_much_dirty() {
                self.clean()?;
            }
        }
        // What is changed right after this is not due before then.
        let idle = at + self.opts.commit_ms.saturating_sub(EARLIEST_MS);
        let oldest = self.ages.first().map(|a| a.0);
        let next = [oldest, self.journal_due()].into_iter().flatten().fold(idle, u64::min);
        Ok(now.plus_ms(next.saturating_sub(at).max(LEAST_PAUSE_MS)))
    }

    /// Writes buffers because of their age: as they are, rolled back where they have to be.
    fn write_some(&mut self, names: &[Name]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        self.gather_files(names)?;
        let is_data = |name: &Name| self.dirty.get(name).is_some_and(|d| d.what == What::Data);
        let (data, rest): (Vec<Name>, Vec<Name>) = names.iter().partition(|name| is_data(name));
        if self.keep.mode != Keeping::Sync || data.is_empty() || rest.is_empty() {
            return self.write_round(names);
        }
        // Nobody is to wait longer for the pointers than for the data.
        self.write_round(&data)?;
        self.write_round(&rest)
    }

    /// New blocks of files that are about to be written together lie together (`cluster_write`).
    fn gather_files(&mut self, names: &[Name]) -> Result<()> {
        let done = self.gather_runs(names);
        self.settling = None;
        done
    }

    fn gather_runs(&mut self, names: &[Name]) -> Result<()> {
        let mut pages: Vec<(Ino, u64)> = names
            .iter()
            .filter(|n| self.keep.fresh.contains(n) && self.dirty.get(n).is_some_and(|d| d.what == What::Data))
            .filter_map(|n| if let Name::File(ino, FileBlock::Data(index)) = n { Some((*ino, *index)) } else { None })
            .collect();
        pages.sort_unstable();
        let most = u64::from(self.sb.maxcontig.get());
        for run in pages.chunk_by(|a, b| a.0 == b.0 && a.1 + 1 == b.1) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let mut i = self.iget(first.0)?;
            self.settling = self.dirty.get(&i.name()).map(|d| d.due);
            let whole = |core: &Core, lbn| core.geom.lbn_frags(i.size(), lbn) == core.geom.block_frags();
            let last = if whole(self, last.1) { last.1 + 1 } else { last.1 };
            let mut at = first.1;
            while at < last {
                // The direct blocks and those of an indirect block are arrays of their own.
                let border = if at < NDADDR as u64 { NDADDR as u64 } else { u64::MAX };
                let end = last.min(at + most).min(border);
                self.gather(&mut i, at, end - 1)?;
                at = end;
            }
        }
        Ok(())
    }

    /// After a call: what is dirty beyond the limit is written by who made it so.
    pub fn write_excess(&mut self) {
        if !self.calls.health.is_writable() {
            return;
        }
        let much = self.cache.dirty_bytes() > self.cache.dirty_limit();
        let done = if much { self.clean() } else { self.bound_transaction() };
        if let Err(e) = done {
            self.fail(&e);
        }
    }

    /// Whether so much is dirty that it should be written in the background: half way from where that ends to the
    /// limit.
    pub fn has_much_dirty(&self) -> bool {
        self.cache.dirty_bytes() > self.cache.dirty_limit() / 4 * 3
    }

    /// Writes until half of what may be dirty is (the buffer daemon).
    fn clean(&mut self) -> Result<()> {
        if self.keep.mode == Keeping::Journal {
            return self.clean_journal();
        }
        let (limit, mut rounds) = (self.cache.dirty_limit(), 0);
        while self.cache.dirty_bytes() > limit / 2 && rounds < MOST_ROUNDS && !self.calls.health.has_failed() {
            rounds += 1;
            let names = self.next_in_queue(limit / 4);
            self.write_some(&names)?;
            self.run_work()?;
        }
        Ok(())
    }

    /// Buffers of about so many bytes that were not changed for longest. One in which something would be rolled back
    /// goes to the end of the queue, but only once (`flushbufqueues` of FreeBSD 4).
    fn next_in_queue(&mut self, bytes: usize) -> Vec<Name> {
        let (mut names, mut sum) = (Vec::new(), 0);
        while sum < bytes
            && let Some((turn, name)) = self.queue.pop_first()
        {
            let Some(d) = self.dirty.get_mut(&name) else { continue };
            if d.deferred || self.keep.soft.is_ready(name) {
                names.push((turn, name));
                sum += self.cache.peek(name).map_or(0, |b| b.len());
            } else {
                self.turns += 1;
                (d.deferred, d.turn) = (true, self.turns);
                self.queue.insert(self.turns, name);
            }
        }
        // What is written leaves the queue by that.
        self.queue.extend(names.iter().copied());
        names.into_iter().map(|n| n.1).collect()
    }

    /// Space that was freed and may not be used yet is made usable. Says whether that can have helped.
    pub fn settle_held(&mut self) -> Result<bool> {
        match self.keep.mode {
            Keeping::Journal if !self.holding.is_empty() => self.commit_journal().map(|()| true),
            Keeping::SoftUpdates | Keeping::Sync if !self.keep.soft.frees_nothing() => self.flush_all().map(|()| true),
            _ => Ok(false),
        }
    }

    fn run_work(&mut self) -> Result<bool> {
        let (mut some, mut later) = (false, Vec::new());
        while let Some(drop) = self.keep.soft.next_work() {
            // What was removed from a directory before it was removed itself comes first.
            if let Drop::Dir(ino, _) = drop
                && self.links_going(ino) > 0
            {
                later.push(drop);
                self.keep.soft.count_going(drop, true);
                continue;
            }
            some = true;
            self.counters.work_items += 1;

            self.run_drop(drop)?;
        }
        self.keep.soft.put_off(later);
        Ok(some)
    }
}

/// The bytes of an inode.
fn inode_bytes(d: &Dinode) -> [u8; INODE] {
    let mut out = [0; INODE];
    out.copy_from_slice(d.as_bytes());
    out
}
