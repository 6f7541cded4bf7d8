//! The bitmap daemon: frees marked extents in the bitmap once the mark is durable (4.4, YFS-C5), and discards them.

use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::volume::{Core, Io, Volume};
use arbor_base::device::{Kind, Request};
use arbor_base::vfs::{Errno, Error, Result, Time, TrimRange};

/// Bytes of log that freeing one marked extent takes, roughly.
pub(super) const MARKED_COST: usize = 4 * LOG_ENTRY + 16;
/// Most fragments of one "marked free" item: their bits are logged by one transaction.
const MARKED_FRAGS: u32 = 1 << 18;
/// Extents that the bitmap daemon discards and frees at a time; more when all must go, so that adjacent ones become one
/// discard.
const DAEMON_BATCH: usize = 1024;
const DAEMON_ALL: usize = 1 << 16;
/// Discards of a batch, the longest first.
const DISCARDS: usize = 256;

impl Core {
    /// Marks an extent free: the bitmap follows after this transaction is on disk (4.4).
    pub fn mark_free(&mut self, mut extent: Extent) {
        if planted(Flaw::ReuseAtOnce) {
            let _ = self.free_now(extent);
            return;
        }
        while extent.len > MARKED_FRAGS {
            self.tx.mark(Extent { start: extent.start, len: MARKED_FRAGS });
            extent = Extent { start: Frag(extent.start.0 + u64::from(MARKED_FRAGS)), len: extent.len - MARKED_FRAGS };
        }
        self.tx.mark(extent);
    }

    /// Whether some extents are marked free and not yet free in the bitmap.
    pub fn is_freeing(&self) -> bool {
        !self.marked.is_empty() || self.tx.marked().0 > 0 || self.lives.inactive() > 0
    }

    /// Fragments that are marked free and not yet free in the bitmap.
    pub fn marked_free(&self) -> u64 {
        self.marked.frags() + self.tx.marked().1
    }

    /// Clears from the bitmap extents whose "marked free" item is durable (YFS-C5), in one transaction with the "unmark
    /// free" items. At most `count`; returns how many.
    pub fn bitmap_daemon(&mut self, now: Time, count: usize) -> Result<usize> {
        let mut freed = 0;
        let durable = self.log.durable();
        if self.marked.front().is_none_or(|(rec, _)| rec > durable) {
            return Ok(freed);
        }
        self.begin_beside(0)?;
        let mut budget = self.log.max_tx / 2;
        while let Some((rec, e)) = self.marked.front() {
            let cost = 4 * LOG_ENTRY + 16 + e.len as usize / 8;
            if rec > durable || freed >= count || cost > budget && freed > 0 {
                break;
            }
            budget = budget.saturating_sub(cost);
            let (ag, before) = (self.geom.ag_of(e.start), self.tx.changes());
            let is_usable = self.is_usable(ag)?;
            if !is_usable && !self.space[ag].is_shut() {
                // It may be read later; the log keeps the mark.
                break;
            }
            self.marked.pop();
            // What cannot be freed stays in use until fsck looks.
            if is_usable {
                match self.free_now(e) {
                    Err(e @ Error::Corrupt(_)) if self.tx.changes() == before => self.shut(ag, &e),
                    freed => freed?,
                }
            }
            if !planted(Flaw::NoUnmark) {
                self.tx.unmark(e);
            }
            freed += 1;
        }
        self.commit(now);
        if freed == 0 { Err(Errno::EIO.into()) } else { Ok(freed) }
    }
}

impl Volume {
    /// Frees durably marked extents in the bitmap: all of them with `all`, else one transaction's worth. Discards are
    /// issued before the space can be allocated again.
    pub(crate) fn run_bitmap_daemon(&self, io: &mut Io, all: bool) -> Result<()> {
        loop {
            let todo: Vec<Extent> = {
                let core = self.core.lock();
                core.health.check_ordered()?;
                let durable = core.log.durable();
                let most = if all { DAEMON_ALL } else { DAEMON_BATCH };
                core.marked.until(durable).take(most).collect()
            };
            if todo.is_empty() {
                return Ok(());
            }
            self.core.lock().look_at_freed(&todo);
            self.discard(&todo);
            let mut left = todo.len();
            while left > 0 {
                let freed = self.free_marked(io, left)?;
                left = left.saturating_sub(freed);
                if !all {
                    return Ok(());
                }
            }
        }
    }

    /// One transaction of the bitmap daemon; 0 if it first had to make room in the log.
    fn free_marked(&self, io: &mut Io, count: usize) -> Result<usize> {
        let mut core = self.core.lock();
        match core.bitmap_daemon(self.clock.now(), count) {
            Err(Error::Restart) => {
                core.attempt.take_reason();
                drop(core);
                self.flush_log(io)?;
                self.checkpoint(io, true)?;
                Ok(0)
            }
            Err(e) if core.tx.has_changed() => {
                core.health.fail(&e);
                core.drop_tx();
                Err(e)
            }
            Err(e) => {
                core.tx.open = false;
                core.attempt.set_blocking(false);
                Err(e)
            }
            done => done,
        }
    }

    /// Discards extents, adjacent ones together. If the device refuses, that only costs space.
    fn discard(&self, extents: &[Extent]) {
        if !self.opts.discard || self.dev.geometry().discard_unit == 0 {
            return;
        }
        let fs = self.core.lock().geom.frag_size();
        let mut sorted: Vec<(u64, u64)> = extents.iter().map(|e| (e.start.0 * fs, u64::from(e.len) * fs)).collect();
        sorted.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (at, len) in sorted {
            match joined.last_mut() {
                Some(l) if l.0 + l.1 == at => l.1 += len,
                _ => joined.push((at, len)),
            }
        }
        let unit = u64::from(self.dev.geometry().discard_unit);
        joined.retain(|d| d.1 >= unit);
        // Each is a call to the host: the small pieces of a fragmented file are left to the next trim.
        joined.sort_unstable_by_key(|d| (std::cmp::Reverse(d.1), d.0));
        joined.truncate(DISCARDS);
        let batch = joined.into_iter().map(|(at, len)| Request::discard(Kind::Data, at, len)).collect();
        for done in self.dev.submit(batch).wait() {
            drop(done);
        }
    }

    /// Discards the free space of the AGs in use, as far as it is in `range`.
    pub(crate) fn trim_free(&self, range: &TrimRange) -> Result<u64> {
        let geom = self.core.lock().geom;
        let fs = geom.frag_size();
        range.check(geom.frags * fs, fs, u64::from(geom.ag_len(0)) * fs)?;
        let mut io = self.order();
        self.flush_log(&mut io)?;
        self.run_bitmap_daemon(&mut io, true)?;
        self.flush_log(&mut io)?;
        let used = self.core.lock().sb.ag_used.get();
        let mut bytes = 0;
        for ag in 0..used {
            self.go_on()?;
            // Nobody may allocate the space between the look and the discard.
            let mut core = self.core.lock();
            core.health.check_ordered()?;
            core.attempt.set_blocking(true);
            let runs = core.free_runs(ag);
            core.attempt.set_blocking(false);
            let runs = runs?;
            let parts = runs.iter().filter_map(|e| range.part((e.start.0 * fs, u64::from(e.len) * fs), fs));
            let batch: Vec<Request> = parts.map(|(at, len)| Request::discard(Kind::Data, at, len)).collect();
            bytes += batch.iter().map(Request::len).sum::<u64>();
            self.dev.submit(batch).wait_all()?;
        }
        Ok(bytes)
    }
}
