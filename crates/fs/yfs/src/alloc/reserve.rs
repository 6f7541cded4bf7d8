//! Checks for space, before a transaction begins, for what a call or a delayed write will take.

use crate::format::*;
use crate::volume::{Core, RestartReason};
use arbor_base::vfs::{Errno, Error, Result};
use arbor_kit::buddy::bitmap;

impl Core {
    /// Fragments that an ordinary call may still take.
    pub fn available(&self) -> u64 {
        self.space.free().saturating_sub(self.delayed.reserved() + self.space.pool())
    }

    /// Why there is no space: where something could not be read nobody knows.
    pub(crate) fn no_space(&self) -> Error {
        if self.space.unread { Errno::EIO } else { Errno::ENOSPC }.into()
    }

    /// Fails with `ENOSPC` unless `frags` are available; if extents are still to be freed, gives the call up for that
    /// first.
    pub fn need_space(&mut self, frags: u64) -> Result<()> {
        if self.available() >= frags {
            return Ok(());
        }
        // Delayed writes may have reserved more than they take.
        if self.is_freeing() || self.delayed.reserved() > 0 {
            return Err(self.attempt.give_up(RestartReason::DiskSpace));
        }
        Err(self.no_space())
    }

    /// Fails with `ENOSPC` unless an inode can be made; asked before the transaction begins.
    pub fn need_inode(&mut self) -> Result<()> {
        if self.space.inodes_free() > 0 {
            return Ok(());
        }
        self.need_space(u64::from(self.geom.chunk_frags() + 4 * self.geom.block_frags()))?;
        let blocks = self.geom.chunk_frags().div_ceil(self.geom.block_frags());
        if self.has_chunk()? { self.need_runs(4 + blocks) } else { Err(self.no_space()) }
    }

    /// Whether some AG has an aligned run for an inode chunk.
    fn has_chunk(&mut self) -> Result<bool> {
        if self.sb.ag_used.get() < self.geom.ag_count {
            return Ok(true);
        }
        let order = self.geom.chunk_frags().trailing_zeros() as u8;
        for ag in 0..self.geom.ag_count {
            let enough = self.space[ag].free() >= self.geom.chunk_frags() && !self.space[ag].has_no_buddy(order);
            if enough && self.is_usable(ag)? {
                let map = self.map(ag)?;
                if map.summary.largest().is_some_and(|l| l >= order) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Fails with `ENOSPC` unless `n` metadata blocks are available, beside those that delayed writes will need: on a
    /// volume whose free space is in pieces, the count of free fragments does not tell.
    pub fn need_runs(&mut self, n: u32) -> Result<()> {
        if self.has_blocks(n.saturating_add(self.delayed_nodes()))? {
            return Ok(());
        }
        if self.is_freeing() || self.delayed.reserved() + self.delayed.converting() > 0 {
            return Err(self.attempt.give_up(RestartReason::DiskSpace));
        }
        Err(self.no_space())
    }

    /// Fails with `ENOSPC` unless there are nodes for the extents that `pages` more pages in unwritten space may be
    /// split into, and `nodes` more. They may be the last blocks of a full volume, but none that delayed data will
    /// take.
    pub fn need_nodes(&mut self, pages: u64, nodes: u64) -> Result<()> {
        let more = (2 * pages).div_ceil(self.extents_per_node()) + nodes;
        let all = u32::try_from(more).unwrap_or(u32::MAX).saturating_add(self.delayed_nodes());
        let left = self.space.free().saturating_sub(self.delayed.reserved()) / u64::from(self.geom.block_frags());
        if left >= u64::from(all) && self.has_blocks(all)? {
            return Ok(());
        }
        Err(self.attempt.give_up(RestartReason::DiskSpace))
    }

    /// Fails with `ENOSPC` unless one run of `frags` is available for metadata, beside what delayed writes will need.
    pub fn need_run(&mut self, frags: u32) -> Result<()> {
        self.need_runs(frags.div_ceil(self.geom.block_frags()))?;
        if self.has_run(frags)? {
            return Ok(());
        }
        if self.is_freeing() {
            return Err(self.attempt.give_up(RestartReason::DiskSpace));
        }
        Err(self.no_space())
    }

    /// Tree nodes that delayed writes may need: each fragment may be an extent of its own, and a page in
    /// unwritten space makes two more. Full nodes are counted beside.
    pub(super) fn delayed_nodes(&self) -> u32 {
        let extents = self.delayed.reserved() + 2 * self.delayed.converting();
        u32::try_from(extents / self.extents_per_node() + self.delayed.nodes()).unwrap_or(u32::MAX)
    }

    /// Extents in a node, which is at least half full.
    fn extents_per_node(&self) -> u64 {
        ((self.geom.block_size() - HEADER - NODE_HEADER) / (8 + EXTENT_VALUE) / 2).max(1) as u64
    }

    /// Whether the free runs hold `n` blocks, at whatever alignment. Counts a few more, so that it need not count again
    /// soon.
    pub(super) fn has_blocks(&mut self, n: u32) -> Result<bool> {
        let (len, used) = (self.geom.block_frags(), self.sb.ag_used.get());
        if len == 1 || used < self.geom.ag_count || n <= self.space.blocks_known() {
            return Ok(true);
        }
        let most = n.saturating_add(1024);
        let (mut found, from) = (0, self.space.blocks_at());
        for ag in (0..used).map(|i| (from + i) % used) {
            if found < most && self.space[ag].free() >= len {
                let here = if self.is_usable(ag)? { self.count_blocks(ag, most - found)? } else { 0 };
                if found == 0 && here > 0 {
                    self.space.set_blocks_at(ag);
                }
                found += here;
            }
        }
        self.space.set_blocks_known(found);
        Ok(found >= n)
    }

    /// Blocks in the free runs of an AG, counted up to `most`.
    fn count_blocks(&mut self, ag: u32, most: u32) -> Result<u32> {
        let (len, bits) = (self.geom.block_frags(), self.geom.ag_len(ag));
        let bytes = &self.map(ag)?.bits;
        let (mut found, mut at) = (0, 0);
        while found < most
            && let Some(start) = bitmap::next_free(bytes, at, bits)
        {
            let want = (most - found).saturating_mul(len).min(bits - start);
            let run = bitmap::free_run(bytes, start, want, bits);
            found += run / len;
            at = start + run.max(1);
        }
        Ok(found)
    }

    /// Whether some AG has `frags` free fragments in one run.
    fn has_run(&mut self, frags: u32) -> Result<bool> {
        if self.sb.ag_used.get() < self.geom.ag_count {
            return Ok(true);
        }
        for ag in 0..self.geom.ag_count {
            let enough = self.space[ag].free() >= frags && !self.space[ag].is_too_fragmented(frags);
            if enough && (self.find(ag, None, frags, true)?.is_some() || self.has_any_run(ag, frags)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_any_run(&mut self, ag: u32, frags: u32) -> Result<bool> {
        Ok(self.is_usable(ag)? && self.free_runs(ag)?.iter().any(|e| e.len >= frags))
    }
}
