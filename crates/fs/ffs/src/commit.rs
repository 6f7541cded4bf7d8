//! The order of writes; no other module decides it.
//!
//! A changed buffer is *dirty*, and has a time at which it is due. The rest depends on how the volume keeps its
//! metadata (the mount option `keep`). Each of the four ways is a [`MetadataOrdering`]: the rest of the engine tells it
//! what a change means (a pointer was set, an entry was added, blocks were freed). This file holds what they share.
//!
//! | `keep=` | `async` | `sync` | `softupdates` | `journal` |
//! |---|---|---|---|---|
//! | in `commit/` | `asynchronous.rs` | `synchronous.rs` | `soft.rs` | `journal.rs` |
//! | what a change depends on | nothing | is written at once | is a dependency | is in the same transaction |
//! | a buffer is written | when due | at once or when due | when due, *rolled back* | after its transaction |
//! | freed space is reusable | at once | once its pointer is cleared on disk | as with `sync` | after the transaction |
//! | fsync writes | the file | the file | the file and what its names need | the running transaction |
//! | FFS-C1 to C7 that hold | none | all but C5, half of C3 | all but C5 | all, by transactions |
//! | a crash leaves | what fsck can repair | names of completed calls | names (see below) | a prefix of the calls |
//!
//! With `sync` data are delayed: pointers to them are dependencies, and are rolled back as long as the data are not on
//! disk. With `softupdates` a crash leaves each name as of some moment since its last sync, not all the same one.
//!
//! `write_round` writes buffers and waits for them, rolled back as needed; `write_out` repeats it, ready buffers first;
//! `start_writes` and `reap` begin and complete writes of data without waiting in between. Called by `ops.rs` (syncs,
//! and `run_daemons` from the timer), `volume.rs` (`write_excess`, after a call) and `file.rs` (clusters of data).
//!
//! # Invariants
//!
//! * **FFS-C1** an inode is on disk before a name of it is.
//! * **FFS-C2** a name is gone from the disk, or names another inode, before the link count is decremented for it, and
//!   before the inode is freed if it was the last name.
//! * **FFS-C3** the bitmap on disk marks a fragment used before a pointer to it is on disk, and an inode used before
//!   the inode is (softupdates); and the bitmap marks a fragment free only after no pointer to it is on disk, and an
//!   inode only after it is cleared on disk (softupdates and sync).
//! * **FFS-C4** a block is written before a pointer to it; and zeros over bytes that a power cut left past the end of a
//!   file before a size that covers them (not async).
//! * **FFS-C5** fragments freed by a transaction are not reallocated before that transaction is durable (journal).
//! * **FFS-C6** a name counts as being on disk only once its block, the pointers to that block, and a directory size
//!   that covers it are; a removal counts as done only then, too (softupdates and sync).
//! * **FFS-C7** when a file takes the name of another, its data and the pointers to them are on disk before that name
//!   is (not async).

pub(crate) mod ordering;

mod asynchronous;
mod journal;
mod soft;
mod synchronous;

use crate::buffers::{BlockKind, EARLIEST_MS, InFlight};
use crate::dependencies::LinkRelease;
use crate::format::*;
use crate::inode::Inode;
use crate::planted::{Flaw, planted};
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name, Write};
use arbor_base::device::{Buf, Request};
use arbor_base::layout::crc_without;
use arbor_base::vfs::{Errno, Error, Ino, Result, Time};
use arbor_kit::calls::State as _;
use arbor_kit::inodes::InodeStore as _;
use ordering::MetadataOrdering;
use rustc_hash::FxHashSet;
use std::sync::Arc;
use zerocopy::IntoBytes;

fn names_of(writes: &[Write]) -> Vec<Name> {
    writes.iter().map(Write::name).collect()
}

/// A buffer on its way to byte `at`: contents are the file's, all others are by themselves.
fn buf(bytes: Arc<Vec<u8>>, name: Name, kind: BlockKind, at: u64) -> Buf {
    match name {
        Name::File(ino, _) if kind == BlockKind::Data => Buf::new(bytes).of_file(ino.0),
        _ => Buf::new(bytes).by_itself(at),
    }
}

/// Most writes of data under way.
const IN_FLIGHT: usize = 16;
/// Least time between two turns of background work that is not urgent, milliseconds.
const LEAST_PAUSE_MS: u64 = 200;
/// Rounds without progress after which the remaining dirty buffers are taken to wait for each other: a bug.
const MOST_ROUNDS: usize = 200;

impl Core {
    /// How this volume keeps its metadata.
    pub fn ordering(&self) -> &'static dyn MetadataOrdering {
        ordering::of(self.opts.keeping)
    }

    /// Called when a file takes the name of another. Returns whether its data have to be on disk before the name is
    /// (FFS-C7); data written before are made durable.
    fn begin_replacement(&mut self, i: &Inode) -> Result<bool> {
        if !i.is_file() || planted(Flaw::ReplacedBeforeData) {
            return Ok(false);
        }
        self.reap(0)?;
        if self.pages.is_streamed() {
            self.flush()?;
        }
        Ok(true)
    }

    /// Marks a run free, and keeps it from being reallocated for as long as FFS-C5 asks.
    fn free_run(&mut self, frag: Frag, frags: u32) -> Result<()> {
        self.blkfree(frag, frags)?;
        self.ordering().run_freed(self, (frag, frags));
        Ok(())
    }

    /// Discards runs on the device.
    pub fn discard(&mut self, runs: &[(Frag, u32)]) -> Result<()> {
        if self.dev.geometry().discard_unit == 0 {
            return Ok(());
        }
        let request = |(frag, frags): &(Frag, u32)| {
            Request::discard(BlockKind::Data.kind(), self.geom.byte(*frag), self.geom.bytes_of(*frags) as u64)
        };
        let batch = runs.iter().map(request).collect();
        Ok(self.calls.reads.submit(&*self.dev, batch).wait_all()?)
    }

    /// Drops a buffer with its dependencies: what followed their writes happens now.
    pub fn drop_buffer(&mut self, name: Name) -> Result<()> {
        let runs = self.cancel_buffer(name)?;
        self.forget(name);
        runs.iter().try_for_each(|r| self.free_run(r.0, r.1))
    }

    // Writing.

    /// The image of a buffer to be written, and whether something in it was rolled back.
    fn image(&self, name: Name, kind: BlockKind, bytes: Arc<Vec<u8>>) -> (Arc<Vec<u8>>, bool) {
        if kind == BlockKind::Data || kind == BlockKind::Xattr {
            return (bytes, false);
        }
        let mut image = bytes.as_ref().clone();
        let rolled = self.roll_back(name, &mut image);
        self.seal(name, kind, &mut image);
        (Arc::new(image), rolled)
    }

    fn seal(&self, name: Name, kind: BlockKind, image: &mut [u8]) {
        match kind {
            BlockKind::Cg => seal_cg(image),
            BlockKind::Super => {
                let crc = image.get(..SECTOR).and_then(|b| crc_without(b, SUPER_CRC_AT)).unwrap_or(0);
                put_u32(image, SUPER_CRC_AT, crc);
            }
            BlockKind::Inodes => {
                let Name::Block(at) = name else { return };
                let first = self.geom.first_inode(Frag(at as u32)).0;
                for (i, inode) in image.chunks_exact_mut(INODE).enumerate() {
                    let ino = Ino(first + i as u64);
                    // Zeros need no checksum, and a damaged inode must not get a matching one.
                    let damaged = self.damaged.contains(ino) && !planted(Flaw::DamageSealed);
                    if inode.iter().any(|b| *b != 0) && !damaged {
                        let crc = inode_crc(inode, self.geom.fsid, ino);
                        put_u32(inode, INODE - 4, crc);
                    }
                }
            }
            BlockKind::Indirect | BlockKind::Xattr | BlockKind::Dir | BlockKind::Data => {}
        }
    }

    /// Requests that write buffers, neighbours joined up to a cluster; with the writes, and the names of the buffers
    /// that were rolled back.
    fn requests(&mut self, names: &[Name]) -> (Vec<Request>, Vec<Write>, FxHashSet<Name>) {
        let mut all: Vec<(Frag, Name, BlockKind)> =
            names.iter().filter_map(|n| self.dirty.get(*n).map(|d| (d.frag, *n, d.kind))).collect();
        all.sort_unstable_by_key(|a| a.0);
        let most = self.geom.block_size() as u64 * u64::from(self.sb.maxcontig.get());
        let (mut out, mut written, mut rolled): (Vec<Request>, _, _) = (Vec::new(), Vec::new(), FxHashSet::default());
        for (frag, name, kind) in all {
            let Some(write) = self.cache.begin_write(name) else { continue };
            let (bytes, back) = self.image(name, kind, write.bytes().clone());
            if back {
                rolled.insert(name);
            }
            written.push(write);
            self.pages.begin_write(name);
            let (at, len) = (self.geom.byte(frag), bytes.len() as u64);
            let buf = buf(bytes, name, kind, at);
            self.counters.io.write_bytes += len;
            match out.last_mut() {
                Some(last)
                    if last.kind == kind.kind() && last.offset + last.len() == at && last.len() + len <= most =>
                {
                    if let arbor_base::device::Op::Write(bufs) = &mut last.op {
                        bufs.push(buf);
                    }
                }
                _ => out.push(Request::write(kind.kind(), at, vec![buf])),
            }
        }
        self.counters.io.writes += out.len() as u64;
        (out, written, rolled)
    }

    /// Writes buffers, rolled back as needed, and makes them durable. A buffer that was rolled back stays dirty.
    fn write_round(&mut self, names: &[Name]) -> Result<()> {
        self.reap(0)?;
        let (batch, written, rolled) = self.requests(names);
        let included = self.deps.included(&names_of(&written));
        let done =
            self.calls.reads.submit(&*self.dev, batch).wait_all().map_err(Error::Io).and_then(|()| self.barrier());
        if let Err(e) = done {
            self.unwritten(written);
            self.fail(&e);
            return Err(e);
        }
        let is_late = |name: &&Name| self.dirty.get(**name).is_some_and(|d| d.due <= self.calls.now_ms());
        let late: Vec<Name> = rolled.iter().filter(is_late).copied().collect();
        for write in written {
            self.pages.end_write(write.name());
            let whole = !rolled.contains(&write.name());
            self.end_write(write, whole);
        }
        self.dependencies_written(included)?;
        // They may wait for each other.
        while late.iter().filter(|name| self.expedite(**name)).count() > 0 {}
        Ok(())
    }

    /// Ends failed writes: their buffers stay dirty.
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
            self.dirty.untouch(name);
        } else if let Some(d) = self.dirty.untouch(name) {
            self.touch(name, d.frag, d.kind, d.owner);
            if !whole && d.due > self.calls.now_ms() {
                // A change that was rolled back may be as old as those that were written.
                self.dirty.lower_due(name, d.due);
            }
        }
    }

    /// Reschedules a due buffer that was rolled back: for when the first of its dependencies can become ready. Returns
    /// whether that is sooner.
    fn expedite(&mut self, name: Name) -> bool {
        let of = |buffer: &Name| self.dirty.get(*buffer).map_or(0, |d| d.due);
        let ready = self.deps.waited_for(name).map(|buffers| buffers.iter().map(of).max().unwrap_or(0));
        let due = ready.min().unwrap_or(0).max(self.calls.now_ms() + LEAST_PAUSE_MS);
        self.dirty.lower_due(name, due)
    }

    /// A write barrier: what was written is on disk before anything that is written later.
    fn barrier(&mut self) -> Result<()> {
        if planted(Flaw::NoOrder) { Ok(()) } else { self.ordering().round_written(self) }
    }

    fn flush(&mut self) -> Result<()> {
        self.counters.io.flushes += 1;
        let done = self.dev.flush().map_err(Error::Io);
        if done.is_ok() {
            self.pages.flushed();
        }
        // Completed writes may be lost, though their buffers are clean.
        done.inspect_err(|e| self.fail(e))
    }

    /// Writes one buffer and waits for it (the original FFS's `bwrite`).
    fn write_now(&mut self, name: Name) -> Result<()> {
        self.counters.sync_writes += 1;
        self.write_round(&[name])
    }

    /// Writes a buffer if something waits for its next write; a clean buffer counts as written.
    fn write_awaited(&mut self, name: Name) -> Result<()> {
        if !self.deps.is_awaited(name) {
            return Ok(());
        }
        if self.dirty.contains(name) {
            return self.write_now(name);
        }
        let done = self.deps.included(&[name]);
        self.deps.close_events(&[name]);
        self.dependencies_written(done)
    }

    /// Starts to write pages of data, without waiting (`bawrite`).
    pub fn start_writes(&mut self, names: &[Name]) -> Result<()> {
        self.reap(IN_FLIGHT - 1)?;
        let (batch, written, _) = self.requests(names);
        let names = names_of(&written);
        let included = self.deps.included(&names);
        self.deps.close_events(&names);
        let ticket = self.calls.reads.submit(&*self.dev, batch);
        self.pages.start(InFlight { ticket, writes: written, included });
        Ok(())
    }

    /// Completes writes under way until at most `left` remain.
    pub fn reap(&mut self, left: usize) -> Result<()> {
        let (mut done, mut included) = (Vec::new(), Vec::new());
        while let Some(InFlight { ticket, writes, included: more }) = self.pages.next_done(left) {
            if let Err(e) = ticket.wait_all().map_err(Error::Io) {
                self.unwritten(writes);
                self.unwritten(done);
                self.fail(&e);
                return Err(e);
            }
            done.extend(writes);
            included.extend(more);
        }
        if !done.is_empty() {
            self.pages.note_streamed();
        }
        let tails = self.ordering().waits_for_data() && done.iter().any(|w: &Write| self.pages.has_tail(w.name()));
        if !included.is_empty() || tails {
            self.flush()?;
        }
        for write in done {
            self.pages.end_write(write.name());
            self.end_write(write, true);
        }
        self.dependencies_written(included)
    }

    /// Writes the buffers that `wanted` names until it names no more: ready ones first, so that nothing is rolled back
    /// as long as that can be avoided.
    fn write_out(&mut self, wanted: &mut dyn FnMut(&mut Core) -> Result<Vec<Name>>) -> Result<()> {
        let (mut least, mut rounds) = (usize::MAX, 0);
        while rounds < MOST_ROUNDS {
            let names = wanted(self)?;
            if names.is_empty() {
                return Ok(());
            }
            let left = self.deps.pending() + self.dirty.len();
            rounds = if left < least { 0 } else { rounds + 1 };
            least = least.min(left);
            let ready: Vec<Name> = names.iter().copied().filter(|n| self.deps.is_ready(*n)).collect();
            self.write_round(if ready.is_empty() { &names } else { &ready })?;
        }
        let e = Error::Io(std::io::Error::other("buffers wait for each other"));
        self.fail(&e);
        Err(e)
    }

    /// Makes everything durable.
    pub fn flush_all(&mut self) -> Result<()> {
        self.ordering().sync_all(self)
    }

    /// Writes all dirty buffers, and does the work that follows, until nothing is left.
    fn write_everything(&mut self) -> Result<()> {
        loop {
            self.write_out(&mut |core| Ok(core.dirty.names()))?;
            self.reap(0)?;
            if !self.run_work()? && self.dirty.is_empty() {
                break;
            }
        }
        self.flush()
    }

    /// Makes a file durable (fsync), with its names as far as the ordering promises it.
    pub fn flush_file(&mut self, ino: Ino) -> Result<()> {
        self.ordering().sync_file(self, ino)
    }

    /// Writes the dirty pages and indirect blocks of a file, then the block of its inode, which is rolled back as
    /// needed.
    fn write_whole(&mut self, ino: Ino) -> Result<()> {
        self.reap(0)?;
        let inode = self.inode_block(ino)?;
        self.write_out(&mut |core| {
            let mut names = core.buffers_of(ino)?;
            names.retain(|n| *n != inode);
            Ok(names)
        })?;
        if self.dirty.contains(inode) { self.write_round(&[inode]) } else { Ok(()) }
    }

    fn inode_block(&self, ino: Ino) -> Result<Name> {
        let (block, _) = self.geom.inode_at(ino).ok_or(Errno::ESTALE)?;
        Ok(Name::Block(block.0.into()))
    }

    /// Makes a directory durable, and the removal of its old names.
    pub fn sync_dir_names(&mut self, dir: Ino) -> Result<()> {
        self.reap(0)?;
        self.write_out(&mut |core| core.needed_by_names(dir))?;
        self.flush()
    }

    /// Dirty buffers of a file: pages, indirect blocks, its inode.
    fn buffers_of(&mut self, ino: Ino) -> Result<Vec<Name>> {
        let mut out: Vec<Name> = self.cache.dirty_pages(ino, 0).map(|index| Name::data(ino, index)).collect();
        out.extend(self.dirty.owned_by(ino));
        out.push(self.inode_block(ino)?);
        out.retain(|n| self.dirty.contains(*n));
        Ok(out)
    }

    /// Does the background work due at `now`; returns the time of the next.
    pub fn run_daemons(&mut self, now: Time) -> Result<Time> {
        let at = self.calls.ms_until(now);
        if self.calls.health.is_writable() {
            self.ordering().background(self, at)?;
            if self.has_much_dirty() {
                self.write_back()?;
            }
        }
        // A change right after this is not due earlier.
        let idle = at + self.opts.commit_ms.saturating_sub(EARLIEST_MS);
        let next = [self.dirty.first_due(), self.ordering().due(self)].into_iter().flatten().fold(idle, u64::min);
        Ok(now.plus_ms(next.saturating_sub(at).max(LEAST_PAUSE_MS)))
    }

    /// Writes buffers because of their age, rolled back as needed.
    fn write_some(&mut self, names: &[Name]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        self.gather_files(names)?;
        self.ordering().write_aged(self, names)
    }

    /// Moves new blocks of files that are about to be written next to each other (`cluster_write`).
    fn gather_files(&mut self, names: &[Name]) -> Result<()> {
        let done = self.gather_runs(names);
        self.dirty.inherit_due(None);
        done
    }

    fn gather_runs(&mut self, names: &[Name]) -> Result<()> {
        let mut pages: Vec<(Ino, u64)> = names
            .iter()
            .filter(|n| self.pages.is_fresh(**n) && self.dirty.get(**n).is_some_and(|d| d.kind == BlockKind::Data))
            .filter_map(|n| if let Name::File(ino, FileBlock::Data(index)) = n { Some((*ino, *index)) } else { None })
            .collect();
        pages.sort_unstable();
        let most = u64::from(self.sb.maxcontig.get());
        for run in pages.chunk_by(|a, b| a.0 == b.0 && a.1 + 1 == b.1) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let mut i = self.iget(first.0)?;
            self.dirty.inherit_due(Some(i.name()));
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

    /// After a call: if there is more dirty than the limit, the caller writes some back (throttling).
    pub fn write_excess(&mut self) {
        if !self.calls.health.is_writable() {
            return;
        }
        let much = self.cache.dirty_load() > self.cache.dirty_limit();
        let done = if much { self.write_back() } else { self.ordering().call_ended(self) };
        if let Err(e) = done {
            self.fail(&e);
        }
    }

    /// Whether so much is dirty that it should be written in the background: three quarters of the limit, half way
    /// between where background writing stops and the limit.
    pub fn has_much_dirty(&self) -> bool {
        self.cache.dirty_load() > self.cache.dirty_limit() / 4 * 3
    }

    /// Writes back until at most half of the dirty limit is dirty (the buffer daemon).
    fn write_back(&mut self) -> Result<()> {
        self.ordering().write_back(self)
    }

    /// Writes back the buffers changed longest ago until at most half of the dirty limit is dirty.
    fn write_oldest(&mut self) -> Result<()> {
        let (limit, mut rounds) = (self.cache.dirty_limit(), 0);
        while self.cache.dirty_load() > limit / 2 && rounds < MOST_ROUNDS && !self.calls.health.has_failed() {
            rounds += 1;
            let names = self.next_in_queue(limit / 4);
            self.write_some(&names)?;
            self.run_work()?;
        }
        Ok(())
    }

    /// The buffers changed longest ago, about so many bytes of them. One that would be rolled back goes to the end of
    /// the queue, but only once (`flushbufqueues` of FreeBSD 4).
    fn next_in_queue(&mut self, bytes: usize) -> Vec<Name> {
        let (mut names, mut sum) = (Vec::new(), 0);
        while sum < bytes
            && let Some(next) = self.dirty.next_in_queue(|name| self.deps.is_ready(name))
        {
            let Some((turn, name)) = next else { continue };
            names.push((turn, name));
            sum += self.cache.load_of(name);
        }
        self.dirty.requeue(names.iter().copied());
        names.into_iter().map(|n| n.1).collect()
    }

    /// Writes everything if that frees something. Returns whether it did.
    fn flush_what_frees(&mut self) -> Result<bool> {
        if self.deps.frees_nothing() { Ok(false) } else { self.flush_all().map(|()| true) }
    }

    /// Runs the work list: lowers the link counts for removed names whose removal is on disk.
    fn run_work(&mut self) -> Result<bool> {
        let (mut some, mut later) = (false, Vec::new());
        while let Some(release) = self.deps.next_work() {
            // Removals from a directory precede its own.
            if let LinkRelease::Dir(ino, _) = release
                && self.deps.going(ino) > 0
            {
                later.push(release);
                self.deps.count_going(release, true);
                continue;
            }
            some = true;
            self.counters.work_items += 1;

            self.release_links(release)?;
        }
        self.deps.put_off(later);
        Ok(some)
    }
}

/// The bytes of an inode.
fn inode_bytes(d: &Dinode) -> [u8; INODE] {
    let mut out = [0; INODE];
    out.copy_from_slice(d.as_bytes());
    out
}
