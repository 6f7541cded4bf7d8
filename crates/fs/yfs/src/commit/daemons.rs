//! When write-back, group commit, the bitmap daemon and checkpoints run: by age, or because much has piled up.

use crate::delayed::Which;
use crate::planted::{Flaw, planted};
use crate::volume::{Core, Io, Volume};
use arbor_base::vfs::{Result, Time};
use std::sync::atomic::Ordering::Relaxed;

/// Longest time before metadata goes in place, milliseconds: it bounds recovery.
const CHECKPOINT_MS: u64 = 30_000;

impl Volume {
    /// Does the daemons' work due at `now`. Returns when the next is due.
    pub(crate) fn daemon(&self, now: Time) -> Time {
        let later = now.plus_ms(self.opts.commit_ms);
        if !self.core.lock().health.is_writable() || self.drain_inactive().is_err() {
            return later;
        }
        let mut io = self.order();
        // Errors have turned the volume read-only by now; fsync reports them.
        let _ = self.daemon_turn(&mut io, now);
        let core = self.core.lock();
        self.note_pressure(&core);
        let oldest = core.delayed.oldest();
        let ms = self.opts.commit_ms;
        [oldest, core.log.open_since()].into_iter().flatten().map(|t| t.plus_ms(ms)).fold(later, Time::min)
    }

    fn daemon_turn(&self, io: &mut Io, now: Time) -> Result<()> {
        if planted(Flaw::WriteBeforeLog) {
            self.checkpoint(io, true)?;
        }
        let ms = self.opts.commit_ms;
        let due = |t: Option<Time>| t.is_some_and(|t| t.plus_ms(ms) <= now);
        let (seq, data, log) = {
            let core = self.core.lock();
            let oldest = core.delayed.oldest();
            (
                core.delayed.seq(),
                due(oldest) || core.data_pressure(),
                due(core.log.open_since()) || core.log.has_full() || core.marked.len() > 1000,
            )
        };
        if data {
            self.write_back(io, Which::UpTo(seq))?;
        }
        if data || log {
            self.flush_log(io)?;
        }
        if !planted(Flaw::TailPassesMarks) {
            self.run_bitmap_daemon(io, true)?;
        }
        let checkpoint = {
            let core = self.core.lock();
            let idle = io.checkpointed_at.plus_ms(CHECKPOINT_MS) <= now && !core.dirty.is_empty();
            core.log.used_bytes() > core.log.area_bytes() / 2 || core.metadata_pressure() || idle
        };
        if checkpoint {
            self.flush_log(io)?;
            self.checkpoint(io, true)?;
            io.checkpointed_at = now;
        }
        Ok(())
    }

    /// Makes a writer that outruns the device do some of the writing.
    pub(crate) fn throttle(&self) -> Result<()> {
        if !self.full.load(Relaxed) {
            return Ok(());
        }
        self.counters.stalls.fetch_add(1, Relaxed);
        let mut io = self.order();
        if !self.core.lock().pressure().1 {
            return Ok(());
        }
        let seq = self.core.lock().delayed.seq();
        self.write_back(&mut io, Which::UpTo(seq))?;
        let core = self.core.lock();
        let metadata = core.metadata_pressure();
        drop(core);
        if metadata {
            self.flush_log(&mut io)?;
            self.checkpoint(&mut io, true)?;
        }
        self.note_pressure(&self.core.lock());
        Ok(())
    }

    /// Notes, after a call, whether there is work that should not wait for the timer.
    pub(crate) fn note_pressure(&self, core: &Core) {
        let (soon, now) = core.pressure();
        self.pressed.store(soon, Relaxed);
        self.full.store(now, Relaxed);
    }
}

impl Core {
    fn pressure(&self) -> (bool, bool) {
        let much = self.data_pressure() || self.metadata_pressure();
        let soon = much || self.log.has_full() || self.marked.len() > 1000 || self.lives.inactive() > 256;
        (soon, self.cache.dirty_load() > self.cache.dirty_limit() * 2)
    }

    fn data_pressure(&self) -> bool {
        self.cache.dirty_loads().0 > self.cache.dirty_limit() / 2
    }

    /// Whether there is so much dirty metadata that it should go in place.
    pub fn metadata_pressure(&self) -> bool {
        self.cache.dirty_loads().1 > self.cache.dirty_limit() / 2
    }
}
