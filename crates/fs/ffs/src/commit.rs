//! The order of writes; nobody else orders them.
//!
//! A buffer that was changed is *dirty*, with the time at which it is due. What else holds depends on how the volume
//! keeps its metadata. Each of the four ways is a [`MetadataOrdering`]: the rest of the engine tells it what a change
//! means (a pointer was set, an entry was added, blocks were freed). Here is what they have in common.
//!
//! | `keep=` | `async` | `sync` | `softupdates` | `journal` |
//! |---|---|---|---|---|
//! | in `commit/` | `asynchronous.rs` | `synchronous.rs` | `soft.rs` | `journal.rs` |
//! | what a change needs on disk first | nothing | is written at once | is waited for | is in its transaction |
//! | a buffer goes to its place | when due | when due or needed | when due, *rolled back* | after its transaction |
//! | what was freed is free | at once | when the disk knows | when the disk knows | after the transaction |
//! | a sync of a file writes | the file | the file | the file and what its names need | the transaction |
//! | what holds of FFS-C1 to C7 | nothing | all but C5, half of C3 | all but C5 | all, by transactions |
//! | a crash leaves | what fsck makes of it | every name of a call that is over | names of some moment | a prefix of the calls |
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
use arbor_kit::inodes::InodeTable as _;
use ordering::MetadataOrdering;
use rustc_hash::FxHashSet;
use std::sync::Arc;
use zerocopy::IntoBytes;

fn names_of(writes: &[Write]) -> Vec<Name> {
    writes.iter().map(Write::name).collect()
}

/// Writes of data under way, at most.
const IN_FLIGHT: usize = 16;
/// Milliseconds at least between two turns of background work that nothing presses for.
const LEAST_PAUSE_MS: u64 = 200;
/// Rounds without progress after which buffers that are still dirty are a mistake.
const MOST_ROUNDS: usize = 200;

impl Core {
    /// How this volume keeps its metadata.
    pub fn ordering(&self) -> &'static dyn MetadataOrdering {
        ordering::of(self.opts.keeping)
    }

    /// A file takes the name of another. Says whether its data have to be on disk before that is (FFS-C7); what was
    /// written of them already is then.
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

    /// Marks a run free, and lets nobody have it before that may be (FFS-C5).
    fn free_run(&mut self, frag: Frag, frags: u32) -> Result<()> {
        self.blkfree(frag, frags)?;
        self.ordering().run_freed(self, (frag, frags));
        Ok(())
    }

    /// Gives runs back to the device.
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

    /// Drops a buffer, and with it what waited to be written in it.
    pub fn drop_buffer(&mut self, name: Name) -> Result<()> {
        let runs = self.cancel_buffer(name)?;
        self.forget(name);
        runs.iter().try_for_each(|r| self.free_run(r.0, r.1))
    }

    // Writing.

    /// The bytes to write of a buffer, and whether something in it was rolled back.
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
                    // Zeros need no seal, and a damaged inode does not get a right one.
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

    /// Requests for buffers, neighbours in one, up to a cluster; with the buffers of each, and of all those that
    /// were rolled back.
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
            self.counters.io.write_bytes += len;
            match out.last_mut() {
                Some(last)
                    if last.kind == kind.kind() && last.offset + last.len() == at && last.len() + len <= most =>
                {
                    if let arbor_base::device::Op::Write(bufs) = &mut last.op {
                        bufs.push(Buf::new(bytes));
                    }
                }
                _ => out.push(Request::write(kind.kind(), at, vec![Buf::new(bytes)])),
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
        let included = self.deps.included(&names_of(&written));
        let done = self.calls.reads.submit(&*self.dev, batch).wait_all().map_err(Error::Io).and_then(|()| self.order());
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
            self.dirty.untouch(name);
        } else if let Some(d) = self.dirty.untouch(name) {
            self.touch(name, d.frag, d.kind, d.owner);
            if !whole && d.due > self.calls.now_ms() {
                // What was not written of it may be as old as what was.
                self.dirty.lower_due(name, d.due);
            }
        }
    }

    /// What was rolled back in a buffer though it was due is due again as soon as something of it waits no longer. Says
    /// whether that is earlier than it was.
    fn expedite(&mut self, name: Name) -> bool {
        let of = |buffer: &Name| self.dirty.get(*buffer).map_or(0, |d| d.due);
        let ready = self.deps.waited_for(name).map(|buffers| buffers.iter().map(of).max().unwrap_or(0));
        let due = ready.min().unwrap_or(0).max(self.calls.now_ms() + LEAST_PAUSE_MS);
        self.dirty.lower_due(name, due)
    }

    /// What was written is on disk before anything that is written after it.
    fn order(&mut self) -> Result<()> {
        if planted(Flaw::NoOrder) { Ok(()) } else { self.ordering().round_written(self) }
    }

    fn flush(&mut self) -> Result<()> {
        self.counters.io.flushes += 1;
        let done = self.dev.flush().map_err(Error::Io);
        if done.is_ok() {
            self.pages.flushed();
        }
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

    /// Waits for writes under way until at most `left` are.
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

    /// Writes what is dirty and not part of a running transaction, in such an order that nothing is rolled back
    /// as long as that is possible, until `wanted` has nothing more.
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

    /// Writes everything in its place, with what follows.
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

    /// Makes a file durable, with the names it was made by.
    pub fn flush_file(&mut self, ino: Ino) -> Result<()> {
        self.ordering().sync_file(self, ino)
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
        if self.dirty.contains(inode) { self.write_round(&[inode]) } else { Ok(()) }
    }

    fn inode_block(&self, ino: Ino) -> Result<Name> {
        let (block, _) = self.geom.inode_at(ino).ok_or(Errno::ESTALE)?;
        Ok(Name::Block(block.0.into()))
    }

    /// Makes a directory durable, and its old names are gone.
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

    /// Work that is due at `now`; returns when there is more.
    pub fn run_daemons(&mut self, now: Time) -> Result<Time> {
        let at = self.calls.ms_until(now);
        if self.calls.health.is_writable() {
            self.ordering().background(self, at)?;
            if self.has_much_dirty() {
                self.clean()?;
            }
        }
        // What is changed right after this is not due before then.
        let idle = at + self.opts.commit_ms.saturating_sub(EARLIEST_MS);
        let next = [self.dirty.first_due(), self.ordering().due(self)].into_iter().flatten().fold(idle, u64::min);
        Ok(now.plus_ms(next.saturating_sub(at).max(LEAST_PAUSE_MS)))
    }

    /// Writes buffers because of their age: as they are, rolled back where they have to be.
    fn write_some(&mut self, names: &[Name]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        self.gather_files(names)?;
        self.ordering().write_aged(self, names)
    }

    /// New blocks of files that are about to be written together lie together (`cluster_write`).
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

    /// After a call: what is dirty beyond the limit is written by who made it so.
    pub fn write_excess(&mut self) {
        if !self.calls.health.is_writable() {
            return;
        }
        let much = self.cache.dirty_bytes() > self.cache.dirty_limit();
        let done = if much { self.clean() } else { self.ordering().call_ended(self) };
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
        self.ordering().write_back(self)
    }

    /// Writes those buffers that were not changed for longest until half of what may be dirty is.
    fn write_oldest(&mut self) -> Result<()> {
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
            && let Some(next) = self.dirty.next_in_queue(|name| self.deps.is_ready(name))
        {
            let Some((turn, name)) = next else { continue };
            names.push((turn, name));
            sum += self.cache.peek(name).map_or(0, |b| b.len());
        }
        self.dirty.requeue(names.iter().copied());
        names.into_iter().map(|n| n.1).collect()
    }

    /// Writes everything if that frees something. Says whether it did.
    fn flush_what_frees(&mut self) -> Result<bool> {
        if self.deps.frees_nothing() { Ok(false) } else { self.flush_all().map(|()| true) }
    }

    /// Does what followed removals of names that are on disk now.
    fn run_work(&mut self) -> Result<bool> {
        let (mut some, mut later) = (false, Vec::new());
        while let Some(release) = self.deps.next_work() {
            // What was removed from a directory before it was removed itself comes first.
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
