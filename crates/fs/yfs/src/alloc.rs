//! Allocation of fragments and inodes (3.1 to 3.3): choice of the AG, then of the run in it.
//!
//! The bitmap blocks hold the truth and are logged. In core each loaded AG has its bitmap in one piece, with the
//! binary-buddy encoding and the extent summary tree on top; both are derived and never logged. Only a few AGs are
//! loaded at a time (`space.rs`). An AG is initialised when it is first used.
//!
//! [`Core::alloc`] allocates for data, [`Core::alloc_block`] and [`Core::alloc_run`] for metadata. On a nearly full
//! volume, data leave whole blocks to metadata. Freeing is deferred: extents are marked free by a transaction
//! (`mark_free`) and freed in the bitmap by the bitmap daemon (`commit/bitmaps.rs`, YFS-C5).
//!
//! | file | what |
//! |---|---|
//! | `reserve.rs` | checks for space before a transaction begins |
//! | `inodes.rs` | inodes and their chunks |
//! | `groups.rs` | headers and bitmaps of the AGs |

mod groups;
mod inodes;
mod reserve;

use crate::format::*;
use crate::volume::Core;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::Result;
use arbor_kit::buddy::bitmap;

/// Free whole blocks kept for metadata as long as data can be put into smaller free runs.
const SPARE_BLOCKS: u32 = 16;

/// The preferred place of an allocation: its AG, and perhaps a fragment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    pub ag: u32,
    pub at: Option<Frag>,
}

impl Core {
    /// Allocates one run of 1 to `want` fragments of data; `ENOSPC` if there is none. In each AG from the goal's on:
    /// what is free at the hint; else `want` at the first free fragment or after the last allocation; else the summary
    /// tree's best run (3.3).
    pub fn alloc(&mut self, goal: Goal, want: u32) -> Result<Extent> {
        debug_assert!(want > 0);
        let count = self.geom.ag_count;
        let goal_ag = goal.ag.min(count - 1);
        if let Some(scrap) = self.alloc_scraps(goal_ag, want)? {
            return Ok(scrap);
        }
        for i in 0..count {
            let ag = (goal_ag + i) % count;
            if !self.space[ag].used || self.space[ag].free() == 0 {
                continue;
            }
            let at = goal.at.filter(|f| self.geom.ag_of(*f) == ag).map(|f| (f.0 - self.geom.ag_start(ag).0) as u32);
            // While the volume has plenty of free space, an AG serves only requests that it can serve whole, so that a
            // file is not fragmented in a full AG while the next is empty.
            let whole = i + 1 < count && self.space.free() > u64::from(want) * 4;
            if let Some((start, len)) = self.find(ag, at, want, whole)? {
                self.set_bits(ag, start, len, true)?;
                return Ok(Extent { start: Frag(self.geom.ag_start(ag).0 + u64::from(start)), len });
            }
        }
        if self.sb.ag_used.get() < count {
            let ag = self.init_ag()?;
            return self.alloc(Goal { ag, at: None }, want);
        }
        self.alloc_any(want)
    }

    fn alloc_any(&mut self, want: u32) -> Result<Extent> {
        for ag in 0..self.sb.ag_used.get() {
            if self.space[ag].free() > 0
                && let Some((start, len)) = self.find(ag, None, want, false)?
            {
                self.set_bits(ag, start, len, true)?;
                return Ok(Extent { start: Frag(self.geom.ag_start(ag).0 + u64::from(start)), len });
            }
        }
        Err(self.no_space())
    }

    /// For data, on a volume whose last whole blocks are needed for metadata: free fragments that are not part of a
    /// free whole block.
    fn alloc_scraps(&mut self, goal_ag: u32, want: u32) -> Result<Option<Extent>> {
        let (len, used) = (self.geom.block_frags(), self.sb.ag_used.get());
        let blocks = self.delayed_nodes().saturating_add(want.div_ceil(len) + SPARE_BLOCKS);
        if self.has_blocks(blocks)? {
            return Ok(None);
        }
        for ag in (0..used).map(|i| (goal_ag + i) % used) {
            if self.space[ag].free() == 0 || !self.is_usable(ag)? {
                continue;
            }
            if let Some(e) = self.free_runs(ag)?.into_iter().find(|e| !e.len.is_multiple_of(len)) {
                let odd = e.len % len;
                let scrap = Extent { start: Frag(e.start.0 + u64::from(e.len - odd)), len: odd.min(want) };
                self.take_run(ag, scrap.start, scrap.len)?;
                return Ok(Some(scrap));
            }
        }
        Ok(None)
    }

    /// Finds a run in one AG. `whole`: all of `want` or, at the hint, at least a part; else `None`.
    fn find(&mut self, ag: u32, hint: Option<u32>, want: u32, whole: bool) -> Result<Option<(u32, u32)>> {
        if whole && hint.is_none() && self.space[ag].is_too_fragmented(want) || !self.is_usable(ag)? {
            return Ok(None);
        }
        let bits = self.geom.ag_len(ag);
        let (first, last) = (self.space[ag].first_free, self.space[ag].last);
        let map = self.map(ag)?;
        if let Some(at) = hint {
            let run = bitmap::free_run(&map.bits, at, want, bits);
            if run > 0 {
                return Ok(Some((at, run)));
            }
        }
        let first = bitmap::next_free(&map.bits, first, bits);
        let at_once = [first, Some(last)].into_iter().flatten();
        let at_once = at_once.map(|at| (at, bitmap::free_run(&map.bits, at, want, bits))).find(|r| r.1 == want);
        let found = at_once
            .or_else(|| map.summary.find_run(&map.bits, want, last.min(bits - 1)).filter(|r| !whole || r.1 >= want));
        if let Some(f) = first {
            self.space[ag].first_free = f;
        }
        Ok(found.map(|(start, len)| (start, len.min(want))))
    }

    /// Allocates one metadata block near `near`.
    pub fn alloc_block(&mut self, near: u32, kind: BlockType, owner: u64) -> Result<Frag> {
        let want = self.geom.block_frags();
        let e = self.alloc_run(near, want)?;
        self.init_block(self.geom.daddr(e.start), kind, owner, self.geom.block_size())?;
        Ok(e.start)
    }

    /// Allocates exactly `want` fragments in one run, in whatever AG has one.
    pub fn alloc_run(&mut self, near: u32, want: u32) -> Result<Extent> {
        let count = self.geom.ag_count;
        for i in 0..count {
            let ag = (near.min(count - 1) + i) % count;
            if self.space[ag].used
                && self.space[ag].free() >= want
                && let Some((start, len)) = self.find(ag, None, want, true)?
            {
                self.set_bits(ag, start, len, true)?;
                return Ok(Extent { start: Frag(self.geom.ag_start(ag).0 + u64::from(start)), len });
            }
        }
        if self.sb.ag_used.get() < count {
            let ag = self.init_ag()?;
            return self.alloc_run(ag, want);
        }
        // The summary tree knows aligned runs; on a volume this full any run will do.
        for ag in 0..count {
            if self.space[ag].free() >= want
                && !self.space[ag].is_too_fragmented(want)
                && self.is_usable(ag)?
                && let Some(e) = self.free_runs(ag)?.into_iter().find(|e| e.len >= want)
            {
                self.take_run(ag, e.start, want)?;
                return Ok(Extent { start: e.start, len: want });
            }
        }
        Err(self.no_space())
    }

    fn take_run(&mut self, ag: u32, start: Frag, len: u32) -> Result<()> {
        self.set_bits(ag, (start.0 - self.geom.ag_start(ag).0) as u32, len, true)
    }

    /// Deletes a metadata block: replay skips its earlier log entries, and its fragments are marked free.
    pub fn free_block(&mut self, frag: Frag, len: u32) -> Result<()> {
        if !self.geom.valid_run(frag, len) {
            let at = frag.0.saturating_mul(self.geom.frag_size());
            return Err(Corrupt::new("metadata block", "addr", at, frag.0, "a block inside an AG").into());
        }
        self.delete_buffer(self.geom.daddr(frag), (u64::from(len) * self.geom.frag_size()) as usize);
        self.mark_free(Extent { start: frag, len });
        Ok(())
    }

    /// Clears an extent in the bitmap. Called by the bitmap daemon.
    pub fn free_now(&mut self, e: Extent) -> Result<()> {
        let ag = self.geom.ag_of(e.start);
        self.set_bits(ag, (e.start.0 - self.geom.ag_start(ag).0) as u32, e.len, false)
    }

    /// Whether a fragment of an AG in use is free.
    pub fn frag_free(&mut self, ag: u32, f: Frag) -> Result<bool> {
        let bit = (f.0 - self.geom.ag_start(ag).0) as u32;
        Ok(bitmap::is_free(&self.map(ag)?.bits, bit))
    }

    /// Free runs of an AG.
    pub fn free_runs(&mut self, ag: u32) -> Result<Vec<Extent>> {
        let (bits, base) = (self.geom.ag_len(ag), self.geom.ag_start(ag).0);
        let map = self.map(ag)?;
        let mut out = Vec::new();
        let mut at = 0;
        while let Some(start) = bitmap::next_free(&map.bits, at, bits) {
            let len = bitmap::free_run(&map.bits, start, bits - start, bits);
            out.push(Extent { start: Frag(base + u64::from(start)), len });
            at = start + len.max(1);
        }
        Ok(out)
    }
}
