//! What calls ask of the whole volume: sync, statfs, labels, counters, trim. Changes of names are in `kit::chunknames`.
//!
//! A call changes buffers; they are written with all other changes in a group, so that a crash leaves all of the call or
//! nothing.

use crate::format::*;
use crate::superblock;
use crate::volume::Core;
use arbor_base::vfs::*;
use arbor_kit::locked;
use arbor_kit::segments::SHARES;

/// Counters of the segments that the cleaner had to choose from, by the least utilisation of each class in %.
const FOUND: [&str; SHARES] = [
    "found_00", "found_05", "found_10", "found_15", "found_20", "found_25", "found_30", "found_35", "found_40",
    "found_45", "found_50", "found_55", "found_60", "found_65", "found_70", "found_75", "found_80", "found_85",
    "found_90", "found_95",
];

impl locked::Core for Core {
    fn has_writeback_pressure(&self) -> bool {
        self.has_much_dirty() || self.wants_cleaning()
    }

    fn background(&mut self, now: Time) -> Result<Time> {
        self.run_daemons(now)
    }

    fn finish(&mut self) -> Result<()> {
        self.end()
    }

    fn sync_file(&mut self, _ino: Ino) -> Result<()> {
        self.sync()
    }

    fn sync_all(&mut self) -> Result<()> {
        self.sync()
    }

    fn label(&mut self) -> Result<Vec<u8>> {
        Ok(label_of(&superblock::read_super(&*self.dev)?.label))
    }

    fn set_label(&mut self, field: [u8; 64]) -> Result<()> {
        self.write_label(field)
    }

    fn statfs(&mut self) -> Result<StatFs> {
        let (capacity, available) = (self.capacity(), self.available());
        // An inode needs its own bytes, and a map entry.
        let ffree = available.saturating_mul(self.geom.frag_size() as u64) / (INODE + MAP_ENTRY) as u64;
        Ok(StatFs {
            frsize: self.geom.frag_size() as u32,
            bsize: self.geom.block_size() as u32,
            blocks: capacity,
            bfree: available,
            bavail: available,
            files: ffree.saturating_add(self.state.used_inodes.into()),
            ffree,
            namelen: 255,
            fsid: self.geom.fsid,
        })
    }

    fn trim_step(&mut self, range: &TrimRange, _from: u64) -> Result<(u64, Option<u64>)> {
        Ok((self.trim(range)?, None))
    }

    fn clean(&mut self, budget: u64) -> Result<Cleaned> {
        self.calls.health.check_writable()?;
        self.calls.note_change();
        self.clean_segments(budget)
    }

    fn scrub(&mut self, at: u64) -> Result<Scrubbed> {
        self.scrub_some(at)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let c = self.counters;
        let mut all = self.cache.counters();
        all.extend(c.io.named());
        all.extend([
            ("groups", c.groups),
            ("partial_segments", c.partial_segments),
            ("checkpoints", c.checkpoints),
            ("segments", self.segs.count().into()),
            ("cleaned_segments", c.cleaned),
            ("clean_read_bytes", c.clean_read_bytes),
            ("clean_moved_bytes", c.clean_moved_bytes),
            ("clean_segments", self.segs.clean.len()),
        ]);
        all.extend(FOUND.into_iter().zip(c.found));
        all
    }
}
