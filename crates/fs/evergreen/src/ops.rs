//! What calls ask of the whole volume: sync, statfs, labels, counters, trim. Changes of names are in `kit::chunknames`,
//! reading and writing in `kit::blockfile`.

use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::volume::Core;
use arbor_base::device::{Kind, Request};
use arbor_base::vfs::*;
use arbor_kit::buddy::bitmap;
use arbor_kit::calls::State as _;
use arbor_kit::locked;
use arbor_kit::machine::Machine as _;

/// Inodes of the volume itself, which are no files.
const OWN_INODES: u64 = 5;

impl locked::Core for Core {
    fn has_writeback_pressure(&self) -> bool {
        false
    }

    fn settle_frees(&mut self) -> Result<bool> {
        let some = self.has_pending();
        // The first makes usable what was freed, the second the copies of what the first has overwritten.
        self.sync_all()?;
        if some {
            self.touch_master();
            self.sync_all()?;
        }
        Ok(some)
    }

    fn background(&mut self, now: Time) -> Result<Time> {
        let (ms, limit) = (self.calls.ms_until(now), self.opts.commit_ms);
        if !self.calls.health.is_writable() {
            return Ok(now.plus_ms(limit));
        }
        let due = self.changes.since.map(|since| since + limit);
        if due.is_some_and(|due| due <= ms) {
            self.sync_all()?;
        }
        let soon = self.gather_in_background(ms)?.unwrap_or(limit);
        let wait = self.changes.since.map_or(limit, |since| (since + limit).saturating_sub(ms).max(1));
        Ok(now.plus_ms(wait.min(soon)))
    }

    /// Makes units free as a whole (`gather.rs`).
    fn clean(&mut self, budget: u64) -> Result<Cleaned> {
        self.calls.health.check_writable()?;
        self.stay();
        self.gather_now(budget).inspect_err(|e| self.give_up(e))
    }

    fn finish(&mut self) -> Result<()> {
        self.write_mark().inspect_err(|e| self.give_up(e))
    }

    fn sync_file(&mut self, _ino: Ino) -> Result<()> {
        self.sync_all()
    }

    fn sync_all(&mut self) -> Result<()> {
        self.write_commit().inspect_err(|e| self.give_up(e))
    }

    fn label(&mut self) -> Result<Vec<u8>> {
        Ok(label_of(&self.sb.label))
    }

    fn set_label(&mut self, field: [u8; 64]) -> Result<()> {
        self.note_change();
        self.sb.label = field;
        self.write_super()?;
        self.write_super_copy()
    }

    fn statfs(&mut self) -> Result<StatFs> {
        let (space, used) = (self.geom.space(), self.master.head.used.get());
        let inodes = u64::from(self.geom.blocks) * u64::from(INODES);
        Ok(StatFs {
            bsize: BLOCK as u32,
            frsize: BLOCK as u32,
            blocks: space.into(),
            bfree: u64::from(space.saturating_sub(used)).saturating_sub(self.kept()),
            bavail: self.available(),
            files: inodes.saturating_sub(OWN_INODES),
            ffree: inodes.saturating_sub(self.master.head.inodes.get().into()),
            namelen: 255,
            fsid: self.geom.fsid,
        })
    }

    /// Discards the free blocks that one block of the dBitmap covers, in each step. Everything is committed.
    fn trim_step(&mut self, range: &TrimRange, from: u64) -> Result<(u64, Option<u64>)> {
        range.check(byte(self.geom.blocks), BLOCK as u64, byte(BITS))?;
        if self.dev.geometry().discard_unit == 0 {
            return Ok((0, None));
        }
        let runs = self.free_runs(from as u32)?.into_iter().map(|(block, blocks)| (byte(block), byte(blocks)));
        let parts: Vec<(u64, u64)> = runs.filter_map(|run| range.part(run, BLOCK as u64)).collect();
        let requests = parts.iter().map(|part| Request::discard(Kind::Data, part.0, part.1)).collect();
        self.calls.reads.submit(&*self.dev, requests).wait_all()?;
        let next = (from + 1 < u64::from(self.geom.blocks.div_ceil(BITS))).then_some(from + 1);
        Ok((parts.iter().map(|part| part.1).sum(), next))
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let c = self.counts;
        let own = [
            ("commits", c.commits),
            ("relocated", c.relocated),
            ("overwritten", c.overwritten),
            ("logged", c.logged),
            ("gathered", self.gather.moved),
        ];
        self.cache.counters().into_iter().chain(self.io.named()).chain(own).collect()
    }
}

impl Core {
    /// Marks the volume clean.
    fn write_mark(&mut self) -> Result<()> {
        if !planted(Flaw::CleanTooEarly) {
            self.write_at_rest()?;
        }
        self.sb.clean = u32::from(!self.calls.health.has_met_damage()).into();
        self.sb.master = self.master_at.into();
        self.write_super()
    }

    /// Runs of blocks that can be had among those that block `n` of the dBitmap covers: the first one of each, and how many.
    pub fn free_runs(&mut self, n: u32) -> Result<Vec<(u32, u32)>> {
        let Some(bits) = self.can_be_had(n)? else { return Ok(Vec::new()) };
        let (mut runs, mut at) = (Vec::new(), 0);
        while let Some(free) = bitmap::next_free(&bits, at, BITS) {
            let len = bitmap::free_run(&bits, free, BITS, BITS);
            at = free + len;
            runs.push((n * BITS + free, len));
        }
        Ok(runs)
    }
}
