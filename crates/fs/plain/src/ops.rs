//! What calls ask of the whole volume: sync, statfs, labels, counters, trim. Changes of names are in `kit::chunknames`,
//! reading and writing in `kit::blockfile`.
//!
//! A call changes buffers; `commit.rs` makes all of them durable when it ends.

use crate::format::*;
use crate::volume::Core;
use arbor_base::device::{Kind, Request};
use arbor_base::vfs::*;
use arbor_kit::locked;

impl locked::Core for Core {
    fn has_writeback_pressure(&self) -> bool {
        false
    }

    fn background(&mut self, now: Time) -> Result<Time> {
        // The changes of a call are durable when it returns.
        Ok(now.plus_ms(60_000))
    }

    fn finish(&mut self) -> Result<()> {
        self.sb.clean = u32::from(!self.calls.health.has_met_damage()).into();
        self.touch_super();
        self.write_changes()?;
        self.flush()
    }

    fn sync_file(&mut self, _ino: Ino) -> Result<()> {
        self.sync_all()
    }

    fn sync_all(&mut self) -> Result<()> {
        self.write_changes()?;
        self.flush()
    }

    fn label(&mut self) -> Result<Vec<u8>> {
        Ok(label_of(&self.sb.label))
    }

    fn set_label(&mut self, field: [u8; 64]) -> Result<()> {
        self.sb.label = field;
        self.touch_super();
        self.put_super(self.geom.copy(), self.sb.copy())
    }

    fn statfs(&mut self) -> Result<StatFs> {
        let (space, inodes) = (self.sb.space, self.sb.inodes);
        let free = space.free.get().into();
        Ok(StatFs {
            bsize: BLOCK as u32,
            frsize: BLOCK as u32,
            blocks: space.count.get().into(),
            bfree: free,
            bavail: free,
            files: u64::from(inodes.count.get()) - ROOT.0,
            ffree: inodes.free.get().into(),
            namelen: 255,
            fsid: self.geom.fsid,
        })
    }

    /// Discards the free blocks that one block of the bitmap covers, in each step.
    fn trim_step(&mut self, range: &TrimRange, from: u64) -> Result<(u64, Option<u64>)> {
        range.check(byte(self.geom.blocks), BLOCK as u64, byte(BITS))?;
        if self.dev.geometry().discard_unit == 0 {
            return Ok((0, None));
        }
        let runs = self.free_runs(from as u32)?.into_iter().map(|(block, blocks)| (byte(block), byte(blocks)));
        let parts: Vec<(u64, u64)> = runs.filter_map(|run| range.part(run, BLOCK as u64)).collect();
        let requests = parts.iter().map(|part| Request::discard(Kind::Data, part.0, part.1)).collect();
        self.calls.reads.submit(&*self.dev, requests).wait_all()?;
        let next = (from + 1 < u64::from(self.geom.space.div_ceil(BITS))).then_some(from + 1);
        Ok((parts.iter().map(|part| part.1).sum(), next))
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let own = [("log_records", self.log.records), ("log_bytes", self.log.bytes)];
        self.cache.counters().into_iter().chain(self.io.named()).chain(own).collect()
    }
}
