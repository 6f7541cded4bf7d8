//! Space of the two areas: what users can have, and what has to be kept for the log to go on.
//!
//! The areas are accounted apart. A call fails with `ENOSPC` before it changes anything if one of them has no room for what
//! it adds; what only removes, or changes what is there, always has room, in the blocks and segments that users cannot have.

use crate::format::*;
use crate::volume::Core;
use arbor_base::vfs::{Errno, Result};
use std::mem::size_of;

/// Smallest number of segments that users cannot fill, so that the cleaner always has room.
const LEAST_RESERVE: u32 = 8;
/// Segments that must stay clean when a set is written, beside those for tables: the cleaner needs them to begin.
const SPARE: u32 = 3;
/// A segment is emptied by two checkpoints, and a third may be written meanwhile.
const CHECKPOINTS: u32 = 3;

impl Core {
    /// Segments that users cannot fill: what the cleaner needs to begin, the two that the log is in, and a twelfth, so that
    /// it finds segments that are worth it.
    pub fn reserve(&self) -> u32 {
        LEAST_RESERVE.max(self.spare() + 2 + self.geom.segs / 12).min(self.geom.segs / 2)
    }

    /// Blocks of the inode map.
    fn map_blocks(&self) -> u64 {
        self.geom.blocks_for(u64::from(self.state.inodes) * MAP_ENTRY as u64) + 1
    }

    /// Blocks of the ifile that a checkpoint may write after some segments were cleaned.
    fn table_blocks(&self) -> u64 {
        let moved = u64::from(SPARE * self.geom.seg_blocks()) * self.geom.inodes() as u64;
        let usage = self.geom.blocks_for(u64::from(self.geom.segs) * USAGE as u64);
        self.map_blocks().min(moved) + usage.min(64) + 8
    }

    /// Segments that must stay clean when a set is written.
    fn spare(&self) -> u32 {
        let of_tables = self.table_blocks().div_ceil(u64::from(self.geom.seg_blocks() - 2));
        SPARE + CHECKPOINTS * of_tables.min(u64::from(self.geom.segs)) as u32
    }

    /// Bytes that can be moved before any segment has become clean. Each inode that moves may change another block of the map.
    pub fn room_to_clean(&self) -> u64 {
        let clean = (self.segs.clean.len() as u32).saturating_sub(self.wanted_segs());
        let room = (u64::from(clean) << self.geom.seg_shift) / 8 * 7;
        let (map, amplified) = (self.map_blocks() << self.geom.block_shift, (self.geom.block() / INODE + 1) as u64);
        let most = (self.cache.limit() as u64 / 4).max(1 << self.geom.seg_shift);
        room.saturating_sub(2 * map).max(room / amplified).min(most)
    }

    /// Metadata blocks that files can have in all. Summaries take the rest.
    pub fn meta_capacity(&self) -> u64 {
        let segs = u64::from(self.geom.segs - self.reserve());
        segs * u64::from(self.geom.seg_blocks()) / 16 * 15
    }

    /// Metadata blocks that are in use, with the inodes and the ifile.
    pub fn meta_used(&self) -> u64 {
        let (used, all) = (u64::from(self.state.used_inodes), u64::from(self.state.inodes));
        let tables = all * MAP_ENTRY as u64 + u64::from(self.geom.segs) * USAGE as u64;
        let groups = self.groups.count() as u64;
        // A bitmap a group; of inodes that were changed one by one a block holds fewer than it could.
        let ifile = self.geom.blocks_for(tables) + groups + groups / 256 + 8;
        u64::from(self.state.meta) + used.div_ceil(self.geom.inodes() as u64) + ifile + ifile / 64
    }

    /// None as long as cleaning gains too little.
    pub fn meta_available(&self) -> u64 {
        if self.is_tight {
            return 0;
        }
        self.meta_capacity().saturating_sub(self.meta_used())
    }

    pub fn data_available(&self) -> u64 {
        self.data_capacity().saturating_sub(self.state.data.into())
    }

    /// Fails with `ENOSPC` unless so many metadata blocks are available.
    pub fn need_meta(&self, blocks: u32) -> Result<()> {
        if blocks == 0 || self.meta_available() >= u64::from(blocks) { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    /// Fails with `ENOSPC` unless so many data blocks are available.
    pub fn need_data(&mut self, blocks: u32) -> Result<()> {
        if blocks == 0 {
            return Ok(());
        }
        if self.data_available() < u64::from(blocks) {
            return Err(Errno::ENOSPC.into());
        }
        self.find_sound_group()
    }

    /// Bytes of buffers that the next set writes to the log: all that is dirty but pages of regular files.
    fn dirty_meta(&self) -> usize {
        self.cache.dirty_bytes().saturating_sub(self.changes.pages << self.geom.block_shift)
    }

    /// An upper bound of the segments that writing all changes takes, with the checkpoint that follows.
    pub fn wanted_segs(&self) -> u32 {
        let block = self.geom.block();
        let (files, entries) = (self.changes.files.len(), self.changes.entries.len());
        let runs = self.groups.taken.len() + self.changes.freed.count_runs() + files;
        let infos =
            files * (INODE + size_of::<InodeInfo>()) + entries * size_of::<InodeInfo>() + runs * size_of::<RunInfo>();
        // Each inode's entry may lie in another block of the map, each run in another bitmap; usage in all blocks of its table.
        let map = (files + entries).min(self.state.inodes as usize * MAP_ENTRY / block + 1);
        let bitmaps = runs.min(self.groups.count() + 1);
        let tables = map + bitmaps + self.segs.changed.len().min(self.geom.segs as usize * USAGE / block + 1) + 8;
        // An eighth more for summaries, and what does not fit to the end of a segment.
        let bytes = (self.dirty_meta() + infos + tables * block) / 8 * 9;
        (bytes >> self.geom.seg_shift) as u32 + 2
    }

    /// Segments that have to be clean: what writing the changes takes, and what the cleaner needs to begin.
    pub fn least_clean(&self) -> u32 {
        self.wanted_segs() + self.spare()
    }
}
