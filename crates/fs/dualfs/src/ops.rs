//! What calls ask of the whole volume: sync, statfs, labels, counters, trim. Changes of names are in `kit::chunknames`,
//! reading and writing in `kit::blockfile`.

use crate::format::*;
use crate::volume::Core;
use arbor_base::device::{Kind, Request};
use arbor_base::vfs::*;
use arbor_kit::buddy::bitmap;
use arbor_kit::locked;

impl locked::Core for Core {
    fn has_writeback_pressure(&self) -> bool {
        self.has_much_dirty() || self.wants_cleaning()
    }

    fn settle_frees(&mut self) -> Result<bool> {
        let some = !self.changes.freed.is_empty() || !self.changes.dead.is_empty();
        if some {
            self.sync()?;
        }
        Ok(some)
    }

    fn sync_all(&mut self) -> Result<()> {
        self.sync()
    }

    fn sync_file(&mut self, ino: Ino) -> Result<()> {
        self.sync_one(ino)
    }

    fn finish(&mut self) -> Result<()> {
        self.end()
    }

    fn background(&mut self, now: Time) -> Result<Time> {
        self.run_daemons(now)
    }

    fn set_label(&mut self, field: [u8; 64]) -> Result<()> {
        self.write_label(field)
    }

    fn label(&mut self) -> Result<Vec<u8>> {
        Ok(label_of(&self.sb.label))
    }

    /// Blocks are those of the data area; inodes are as many as the metadata area has room for.
    fn statfs(&mut self) -> Result<StatFs> {
        let (blocks, available) = (self.geom.file_blocks(), self.data_available());
        let ffree = self.meta_available() * self.geom.block() as u64 / (INODE + MAP_ENTRY) as u64;
        Ok(StatFs {
            frsize: self.geom.block() as u32,
            bsize: self.geom.block() as u32,
            blocks: blocks.into(),
            bfree: blocks.saturating_sub(self.state.data).into(),
            bavail: available,
            files: ffree + u64::from(self.state.used_inodes),
            ffree,
            namelen: 255,
            fsid: self.geom.fsid,
        })
    }

    /// Discards the free blocks of a group in each step, and the clean segments in the first. Everything is durable.
    fn trim_step(&mut self, range: &TrimRange, from: u64) -> Result<(u64, Option<u64>)> {
        let block = self.geom.block() as u64;
        range.check(self.geom.end(), block, self.geom.end())?;
        if self.dev.geometry().discard_unit == 0 {
            return Ok((0, None));
        }
        let mut runs = self.free_data(Group(from as u32))?;
        let discarded: u64 = runs.iter().filter_map(|run| range.part(*run, block)).map(|part| part.1).sum();
        if from == 0 {
            runs.extend(self.clean_runs());
        }
        let parts = runs.into_iter().filter_map(|run| range.part(run, block));
        let requests = parts.map(|part| Request::discard(Kind::Data, part.0, part.1)).collect();
        self.calls.reads.submit(&*self.dev, requests).wait_all()?;
        Ok((discarded, Some(from + 1).filter(|next| *next < self.geom.groups().into())))
    }

    fn clean(&mut self, budget: u64) -> Result<Cleaned> {
        self.calls.health.check_writable()?;
        self.calls.note_change();
        self.clean_segments(budget).inspect_err(|e| self.calls.health.fail(e))
    }

    fn scrub(&mut self, at: u64) -> Result<Scrubbed> {
        self.scrub_some(at)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let c = self.counters;
        let own = [
            ("sets", c.sets),
            ("checkpoints", c.checkpoints),
            ("data_blocks_written", c.data_blocks),
            ("prefetched", c.prefetched),
            ("relocated", c.relocated),
            ("cleaned_segments", c.cleaned),
            ("clean_moved_bytes", c.moved),
            ("segments", self.geom.segs.into()),
            ("clean_segments", self.segs.clean.len()),
        ];
        self.cache.counters().into_iter().chain(c.io.named()).chain(own).collect()
    }
}

impl Core {
    /// Runs of free blocks of a group, as bytes: where each begins, and its length.
    fn free_data(&mut self, group: Group) -> Result<Vec<(u64, u64)>> {
        let (bits, len, start) = (self.bitmap(group)?, self.geom.group_len(group), self.geom.group_start(group));
        let (mut runs, mut at) = (Vec::new(), 0);
        while let Some(free) = bitmap::next_free(&bits, at, len) {
            let run = bitmap::free_run(&bits, free, len, len);
            runs.push((self.geom.data_byte(DataBlock(start + free)), u64::from(run) << self.geom.block_shift));
            at = free + run;
        }
        Ok(runs)
    }

    /// Runs of clean segments, as bytes.
    fn clean_runs(&self) -> Vec<(u64, u64)> {
        let of = |run: std::ops::RangeInclusive<u32>| {
            let start = self.geom.meta_byte(self.geom.seg_start(Seg(*run.start())));
            (start, u64::from(run.end() - run.start() + 1) << self.geom.seg_shift)
        };
        self.segs.clean.runs().map(of).collect()
    }
}
