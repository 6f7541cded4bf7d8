//! The cleaner: what lives in segments that are mostly dead is written anew, so that they become clean.
//!
//! A segment is read whole. A block in it lives if the inode map has its file in the version of the summary, and the
//! file's map leads to it; an inode, if the inode map leads to it. What lives is marked as changed and goes out with the
//! next group.

use crate::format::*;
use crate::mount::{Core, inode_name, name_of};
use crate::planted::{Flaw, planted};
use crate::summary::Parsed;
use arbor_base::device::Kind;
use arbor_base::vfs::{Ino, Result};
use std::sync::Arc;

/// Segments that are read before what lives in them is written.
const BATCH: usize = 8;

impl Core {
    /// Cleans until so many segments are clean, or it gains nothing.
    pub fn clean_until(&mut self, wanted: u32) -> Result<()> {
        while (self.segs.clean.len() as u32) < wanted {
            let before = self.segs.clean.len();
            if !self.clean_some()? || self.segs.clean.len() <= before {
                break;
            }
        }
        Ok(())
    }

    /// Segments that are worth most (Rosenblum and Ousterhout 1992): what is gained, and for how long, against what it
    /// costs. Where few are clean, those that gain most.
    fn victims(&self) -> Vec<u32> {
        let size = 1u64 << self.geom.seg_shift;
        let busy = [self.log.seg.0, self.log.next_seg.0];
        let (now, is_short) = (self.now.secs, (self.segs.clean.len() as u32) < self.reserve());
        let worth = |u: crate::ifile::Use| {
            let live = u64::from(u.live).min(size) as f64 / size as f64;
            let age = now.saturating_sub(u.time).max(0) as f64 + 1.0;
            if is_short { 1.0 - live } else { (1.0 - live) * age / (1.0 + live) }
        };
        let gains = |u: &crate::ifile::Use| u64::from(u.live) < size / 64 * 62;
        let some = self.segs.dirty().filter(|(n, u)| !busy.contains(n) && u.live > 0 && gains(u));
        let mut all: Vec<(f64, u32)> = some.map(|(n, u)| (worth(u), n)).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        // What lives must find room before the first of them is clean.
        let room = (self.segs.clean.len() as u64).saturating_sub(2) * size / 8 * 7;
        let mut sum = 0;
        let fits = |n: &u32| {
            sum += u64::from(self.segs.get(*n).live);
            sum <= room
        };
        all.into_iter().map(|v| v.1).take(BATCH).take_while(fits).collect()
    }

    /// Cleans some segments; says whether there were any.
    pub fn clean_some(&mut self) -> Result<bool> {
        let victims = self.victims();
        for seg in &victims {
            self.revive(Seg(*seg))?;
        }
        self.counters.cleaned += victims.len() as u64;
        self.checkpoint(false)?;
        self.checkpoint(false)?;
        Ok(!victims.is_empty())
    }

    /// Marks what lives in a segment as changed.
    fn revive(&mut self, seg: Seg) -> Result<()> {
        let start = self.geom.seg_start(seg).0;
        let bytes = self.read_run(Frag(start), self.geom.seg_frags(), Kind::Log)?;
        self.counters.clean_read_bytes += bytes.len() as u64;
        self.counters.clean_live_bytes += u64::from(self.segs.get(seg.0).live);
        for (at, parsed) in self.summaries(seg)? {
            self.revive_blocks(start + at, start, &parsed, &bytes)?;
            for info in &parsed.inodes {
                let ino = Ino(info.ino.get().into());
                let lives = info.entry.frag.get() != 0 && self.map_entry(ino)?.frag == info.entry.frag;
                if lives && self.geom.seg_of(Frag(info.entry.frag.get())) == Some(seg) {
                    self.mark(ino)?;
                }
            }
        }
        if self.geom.seg_of(Frag(self.checkpoint.ifile.get())) == Some(seg) {
            self.mark(IFILE)?;
        }
        Ok(())
    }

    fn revive_blocks(&mut self, part: u32, start: u32, parsed: &Parsed, segment: &[u8]) -> Result<()> {
        for (file, block, at) in parsed.blocks() {
            let ino = Ino(file.ino.get().into());
            let Some(place) = Place::from_code(block.place.get()) else { continue };
            let here = Frag(part + at);
            let known = ino == IFILE || {
                let entry = self.map_entry(ino)?;
                entry.frag.get() != 0 && entry.version == file.version
            };
            if !known {
                continue;
            }
            let i = self.inode(ino)?;
            let p = self.pointer(&i, place)?;
            let is_dead = p.frag.get() != here.0 && !(planted(Flaw::DeadForLive) && p.frag.get() != 0);
            if is_dead || planted(Flaw::LiveForDead) && matches!(place, Place::Data(_)) {
                continue;
            }
            let name = name_of(ino, place);
            if !self.cache.contains(name) {
                let from = self.geom.bytes_of(here.0 - start);
                let found = segment.get(from..from + self.geom.bytes_of(block.frags.get())).unwrap_or(&[]);
                let bytes = match self.verify(p, found) {
                    Ok(()) => found.to_vec(),
                    Err(_) => self.read_block(p, block.frags.get(), Kind::Data)?,
                };
                self.cache.insert(name, Arc::new(bytes));
            }
            self.mark(ino)?;
            self.cache.modify(name, |_| ());
            self.cache.modify(inode_name(ino), |_| ());
        }
        Ok(())
    }
}
