//! The order of writes: group commit, metadata in place, the log's tail (section 4 of the paper).
//!
//! Mount and unmount, recovery and the checker order their own (`mount.rs`, `recover.rs`, `check.rs`). What is ordered
//! here is made elsewhere in this room:
//!
//! | file | what |
//! |---|---|
//! | `transaction.rs` | what calls change, until it is in the in-core log (`log.rs`) |
//! | `witness.rs` | data that a record bears witness to |
//! | `inplace.rs` | metadata buffers on their way to their places |
//! | `bitmaps.rs` | the bitmap daemon |
//! | `daemons.rs` | when all of this runs |
//!
//! | transition | function |
//! |---|---|
//! | clean buffer -> changed by the open transaction | `Core::write`, `Core::init` |
//! | transaction -> joined with those before it | `Core::commit` |
//! | compound transaction -> in the in-core log; its buffers may not go in place | `Core::close_tx` |
//! | committed in core -> on disk; its buffers may go in place | [`Volume::flush_log`] |
//! | logged and dirty -> in place, tail moves | [`Volume::checkpoint`] |
//! | marked free -> free in the bitmap | `Core::bitmap_daemon` |
//!
//! Called by `ops.rs` (fsync, sync), `calls.rs` (room in the log, free space), `daemons.rs` and `mount.rs`.
//!
//! Invariants:
//!
//! * **YFS-C1** a buffer is written in place only after the record with its last change is durable (write-ahead).
//! * **YFS-C2** a record counts only if the data that its transactions made reachable is durable (dependent data
//!   blocks): it is written after a flush of the data, or bears witness to them (`Core::bear_witness`). Then one flush
//!   makes both durable; replay checks the witnesses of the last record, which is the only one whose flush may be
//!   missing; and nobody overwrites the data that the last record bears witness to ([`Volume::part_from_witnesses`]).
//! * **YFS-C3** records become durable in the order of their transactions: a record names its predecessor, recovery
//!   follows the chain.
//! * **YFS-C4** log space is reused only after an anchor whose tail has passed it is durable.
//! * **YFS-C5** an extent can be allocated again only after the record that marked it free is durable.
//! * **YFS-C6** a buffer that was written in place stays in the cache until a flush: one that fails may have forgotten it, and
//!   what is durable in the log only is still to be read.

mod bitmaps;
mod daemons;
mod inplace;
mod transaction;
mod witness;

use crate::delayed::Which;
use crate::format::LogAnchor;
use crate::log::Anchor;
use crate::planted::{Flaw, planted};
use crate::recover;
use crate::volume::{Io, Unflushed, Volume};
use arbor_base::cache::cluster;
use arbor_base::vfs::{Error, Result};
use inplace::CHECKPOINT_BATCH;
use std::sync::atomic::Ordering::Relaxed;

impl Volume {
    /// Makes everything durable.
    pub(crate) fn sync_all(&self) -> Result<()> {
        let seq = {
            let core = self.core.lock();
            core.health.check_alive()?;
            core.health.check_ordered()?;
            if core.health.is_read_only() {
                return Ok(());
            }
            core.delayed.seq()
        };
        let mut io = self.order();
        self.write_back(&mut io, Which::UpTo(seq))?;
        self.flush_log(&mut io)
    }

    /// Group commit: makes every transaction committed so far durable, and the data before it (YFS-C2). The caller
    /// holds the commit lock `io`.
    pub(crate) fn flush_log(&self, io: &mut Io) -> Result<()> {
        let (placed, witnesses) = {
            let mut core = self.core.lock();
            core.health.check_alive()?;
            core.health.check_ordered()?;
            core.close_tx();
            core.log.seal();
            let witnesses = core.bear_witness(&io.unflushed);
            let secs = self.clock.now().secs;
            let fsid = core.geom.fsid;
            (core.log.place(fsid, secs), witnesses)
        };
        let (writes, last) = self.or_fail(placed)?;
        if witnesses.is_empty() && !matches!(io.unflushed, Unflushed::Nothing) && !planted(Flaw::NoDataFlush) {
            self.or_fail(self.dev.flush().map_err(Error::Io))?;
            self.counters.flushes.fetch_add(1, Relaxed);
            io.unflushed = Unflushed::Nothing;
        }
        if writes.is_empty() {
            return Ok(());
        }
        let log = self.log_dev();
        let done = log.submit(writes).wait_all();
        let done = if planted(Flaw::NoLogFlush) { done } else { done.and_then(|()| log.flush()) };
        self.or_fail(done.map_err(Error::Io))?;
        self.counters.flushes.fetch_add(1, Relaxed);
        if !witnesses.is_empty() {
            io.unflushed = Unflushed::Nothing;
        }
        let mut core = self.core.lock();
        for (rec, addr) in core.log.flushed(last, witnesses) {
            // Unless the block was initialised again since, its old contents are of no use to anyone.
            if core.dirty.last(addr).is_none_or(|last| last <= rec) {
                core.forget_buffer(addr);
            }
        }
        Ok(())
    }

    /// Makes another record durable after the one that bears witness to data which are about to be overwritten. Nothing
    /// else may have been committed whose data is still to be written.
    pub(crate) fn part_from_witnesses(&self, io: &mut Io) -> Result<()> {
        self.flush_log(io)?;
        let mut core = self.core.lock();
        if !core.log.witnesses().is_empty() {
            core.close_tx();
            core.log.seal_anyway();
        }
        drop(core);
        self.flush_log(io)
    }

    /// Writes in place metadata whose log records are durable, and moves the tail. `all` writes everything; otherwise
    /// the oldest, until the log is half empty.
    pub(crate) fn checkpoint(&self, io: &mut Io, all: bool) -> Result<()> {
        // "Unmark free" items must be durable before the tail passes what they unmark.
        if !planted(Flaw::WriteBeforeLog) {
            // Metadata in place must not depend on data that might still change under a witness.
            self.part_from_witnesses(io)?;
        }
        let mut in_place: Vec<u64> = Vec::new();
        loop {
            let (pieces, writes, windows) = {
                let mut core = self.core.lock();
                core.health.check_ordered()?;
                let (pieces, writes) = core.collect_metadata(all);
                let windows = core.writes(&pieces);
                (pieces, writes, windows)
            };
            let count = writes.len();
            if count == 0 {
                break;
            }
            in_place.extend(writes.iter().map(|w| w.0));
            let written = self.dev.submit(cluster(pieces, 1 << 20)).wait_all().map_err(Error::Io);
            let ok = written.is_ok();
            let mut core = self.core.lock();
            core.written_to(&windows);
            core.end_metadata(writes, ok);
            drop(core);
            self.or_fail(written)?;
            if !all && count < CHECKPOINT_BATCH {
                break;
            }
        }
        if !planted(Flaw::TailBeforeFlush) {
            self.or_fail(self.dev.flush().map_err(Error::Io))?;
        }
        self.core.lock().release_metadata(&in_place);
        io.unflushed = Unflushed::Nothing;
        self.counters.flushes.fetch_add(1, Relaxed);
        self.move_tail()
    }

    fn move_tail(&self) -> Result<()> {
        let anchor = {
            let mut core = self.core.lock();
            let mut tail = core.log.durable() + 1;
            tail = tail.min(core.dirty.first().unwrap_or(tail));
            if !planted(Flaw::TailPassesMarks) {
                tail = tail.min(core.marked.front().map_or(tail, |m| m.0));
            }
            let Some(anchor) = core.log.drop_before(tail) else { return Ok(()) };
            (anchor, core.geom.fsid, core.sb.mounts)
        };
        let (Anchor { start, seq, tail: first, prev }, fsid, mounts) = anchor;
        let log = self.log_dev();
        let anchor = LogAnchor {
            fsid: fsid.into(),
            seq: seq.into(),
            tail: first.0.into(),
            prev: prev.0.into(),
            time: self.clock.now().secs.into(),
            mounts,
            ..LogAnchor::default()
        };
        self.or_fail(recover::write_anchor(log, start, anchor))?;
        self.or_fail(log.flush().map_err(Error::Io))?;
        self.counters.flushes.fetch_add(1, Relaxed);
        self.core.lock().log.anchored(first);
        Ok(())
    }

    /// Makes the volume read-only after a failed write: what must follow that write is never written.
    pub(crate) fn or_fail<T>(&self, r: Result<T>) -> Result<T> {
        if let Err(e) = &r {
            self.core.lock().health.fail(e);
        }
        r
    }
}
