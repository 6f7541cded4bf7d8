//! What calls ask of the whole volume: sync, statfs, labels, counters, trim, background work. Changes of names are in
//! `kit::atomicnames`, reading and writing in `kit::blockfile`.

use crate::format::*;
use crate::volume::Core;
use arbor_base::device::{Kind, Request};
use arbor_base::vfs::*;
use arbor_kit::locked;

impl locked::Core for Core {
    const IS_FASTER_BY_NUMBER: bool = true;
    const READS_AT_HAND: bool = true;

    fn read_at_hand(&mut self, ino: Ino, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let f = self.recent_inode(ino).filter(|f| f.is_file())?;
        let len = f.size().saturating_sub(offset).min(buf.len() as u64) as usize;
        self.read_item(&f, offset, buf.get_mut(..len)?).then_some(len)
    }

    fn has_writeback_pressure(&self) -> bool {
        false
    }

    /// What is held back can be allocated once the transaction is durable and the log empty.
    fn settle_frees(&mut self) -> Result<bool> {
        self.compress()?;
        let held = self.space.held();
        if held == 0 {
            return Ok(false);
        }
        self.commit_transaction()?;
        if self.space.held() > 0 {
            self.empty_log()?;
        }
        Ok(self.space.held() < held)
    }

    fn background(&mut self, now: Time) -> Result<Time> {
        let now_ms = self.calls.ms_until(now);
        if let Some(since) = self.log.since {
            let due = since + self.opts.commit_ms;
            if due > now_ms {
                return Ok(now.plus_ms(due - now_ms));
            }
            self.commit_transaction()?;
        }
        // An idle volume needs no recovery.
        if self.log.at > self.geom.log / 2 {
            self.empty_log()?;
        }
        Ok(now.plus_ms(self.opts.commit_ms))
    }

    fn finish(&mut self) -> Result<()> {
        let met = self.calls.health.has_met_damage();
        let is_news = met && self.sb.clean.get() & DAMAGED == 0;
        if self.log.is_marked || self.log.since.is_some() || self.log.super_changed || is_news {
            self.commit_transaction()?;
            self.sb = self.sb.marked(true, met);
            self.touch_super();
            self.commit_transaction()?;
            self.empty_log()?;
            self.discard_log()?;
        }
        Ok(())
    }

    fn sync_file(&mut self, _ino: Ino) -> Result<()> {
        self.commit_transaction()
    }

    fn sync_all(&mut self) -> Result<()> {
        self.commit_transaction()
    }

    fn label(&mut self) -> Result<Vec<u8>> {
        Ok(label_of(&self.sb.label))
    }

    fn set_label(&mut self, field: [u8; 64]) -> Result<()> {
        self.sb.label = field;
        self.touch_super();
        self.put_copy();
        self.commit_transaction()
    }

    fn statfs(&mut self) -> Result<StatFs> {
        let g = self.geom;
        let free = u64::from(self.sb.free.get());
        // Two numbers are nobody's.
        let used =
            self.ids.iter().map(|(first, end)| u64::from(end - first)).sum::<u64>().saturating_sub(ROOT_OBJECT.into());
        let stat = if g.dense { crate::stat::LEAST } else { STAT_DATA };
        // As many more as there is room for: each takes its stat data and its name.
        let more =
            (free * g.node_size as u64 / (stat + ITEM_HEAD + ENTRY_HEAD + 8) as u64).min(u64::from(u32::MAX) - used);
        Ok(StatFs {
            bsize: g.node_size as u32,
            frsize: g.node_size as u32,
            blocks: u64::from(g.blocks.saturating_sub(g.own_blocks())),
            bfree: free,
            bavail: free,
            files: used + more,
            ffree: more,
            namelen: 255,
            fsid: g.fsid,
        })
    }

    /// Discards the free blocks that one bitmap covers, in each step.
    fn trim_step(&mut self, range: &TrimRange, from: u64) -> Result<(u64, Option<u64>)> {
        let g = self.geom;
        range.check(g.byte(g.blocks), g.node_size as u64, g.byte(g.covered()))?;
        if self.dev.geometry().discard_unit == 0 {
            return Ok((0, None));
        }
        if from == 0 {
            // What recovery would write is not discarded.
            self.commit_transaction()?;
            self.empty_log()?;
        }
        let runs = self.free_runs(from as u32)?.into_iter().map(|(block, blocks)| (g.byte(block), g.byte(blocks)));
        let parts: Vec<(u64, u64)> = runs.filter_map(|run| range.part(run, g.node_size as u64)).collect();
        let requests = parts.iter().map(|part| Request::discard(Kind::Data, part.0, part.1)).collect();
        self.calls.reads.submit(&*self.dev, requests).wait_all()?;
        let next = (from + 1 < u64::from(g.bitmaps())).then_some(from + 1);
        Ok((parts.iter().map(|part| part.1).sum(), next))
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let own = [
            ("log_records", self.log.records),
            ("log_bytes", self.log.bytes),
            ("checkpoints", self.log.checkpoints),
            ("fresh_nodes", self.log.fresh_nodes),
            ("moved_nodes", self.log.moved_nodes),
        ];
        self.cache.counters().into_iter().chain(self.io.named()).chain(self.calls.reads.counters()).chain(own).collect()
    }
}
