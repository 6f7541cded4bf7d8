//! Phase 1: the blocks of the ifile. What cannot be read becomes a hole, and is filled by the phases that follow; the
//! inode map from the summaries of the log.

use super::Checker;
use super::inodes::{AHEAD, is_damaged};
use super::issue::Issue;
use super::log::Log;
use crate::format::*;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::vfs::{Errno, Result};
use arbor_kit::blockmap::BlockMap as _;
use std::ops::Range;

impl Checker<'_> {
    pub(super) fn check_ifile(&mut self) -> Result<()> {
        self.own_inode(self.core.checkpoint.ifile.get());
        for part in crate::describe::roots() {
            self.check_ifile_part(part)?;
        }
        let lost = std::mem::take(&mut self.lost_map);
        if !lost.is_empty() {
            let is_wanted = |ino: u32| lost.iter().any(|inodes| inodes.contains(&ino));
            let end = (self.core.log.epoch, self.core.log.set);
            Log::read(&self.core, Some(end), &is_wanted)?.fill(&mut self.core)?;
        }
        Ok(())
    }

    /// Checks a block of the ifile and those below it.
    fn check_ifile_part(&mut self, part: FileBlock) -> Result<()> {
        let i = self.core.inode(IFILE)?;
        let p = self.core.pointer(&i, part)?;
        if p.block.get() == 0 {
            return Ok(());
        }
        let wrong = match is_damaged(self.core.part(&i, part))? {
            None if p.is_placed() && self.owned.meta.contains(p.block.get()) => Some("its block is there twice".into()),
            None if p.is_placed() && self.is_ahead(p.block.get()) => Some(format!("its block {AHEAD}")),
            wrong => wrong,
        };
        if let Some(why) = wrong {
            return self.lose(part, why);
        }
        if p.is_placed() {
            self.own_meta(p.block.get());
        }
        let FileBlock::Map { level, n } = part else { return Ok(()) };
        let (shape, table) = (self.core.shape(), self.core.part(&i, part)?.ok_or(Errno::EIO)?);
        for slot in 0..shape.fanout {
            if crate::volume::Core::entry(&table, slot as usize).block.get() != 0 {
                self.check_ifile_part(shape.child(level, n, slot))?;
            }
        }
        Ok(())
    }

    /// Makes a block of the ifile a hole.
    fn lose(&mut self, part: FileBlock, why: String) -> Result<()> {
        let (mut i, geom) = (self.core.inode(IFILE)?, self.core.geom);
        let shape = geom.shape();
        let (first, end) = match part {
            FileBlock::Map { level, n } => (shape.first(level, n), shape.first(level, n) + shape.reach(level)),
            FileBlock::Data(lbn) => (lbn, lbn + 1),
            FileBlock::Xattr(_) => (0, 0),
        };
        let (from, to) = (first << geom.block_shift, end << geom.block_shift);
        if to > MAP_AT {
            let entry =
                |at: u64| (at.saturating_sub(MAP_AT) / MAP_ENTRY as u64).min(self.core.state.inodes.into()) as u32;
            let (first, end) = (entry(from), entry(to));
            if end > first {
                self.f.note(Issue::MapLost { first, count: end - first, why: why.clone() });
                self.lost_map.push(first..end);
            }
        }
        if from < MAP_AT {
            let what = match part {
                FileBlock::Data(lbn) if lbn << geom.block_shift < GROUPS_AT => "segment usage",
                FileBlock::Data(lbn) if lbn << geom.block_shift < BITMAPS_AT => "descriptors of groups",
                FileBlock::Data(_) => "bitmap of data blocks",
                _ => "indirect block",
            };
            self.f.note(Issue::IfileBlock { what, why });
        }
        self.forget_below(part, first..end);
        self.core.set_pointer(&mut i, part, Pointer::default())
    }

    /// Forgets a block of the ifile that is lost, and what is below it. What is known of segments and groups has to be
    /// stored again.
    fn forget_below(&mut self, part: FileBlock, blocks: Range<u64>) {
        let (shape, shift, core) = (self.core.shape(), self.core.geom.block_shift, &mut self.core);
        core.cache.remove(Name::File(IFILE, part));
        if let FileBlock::Map { level, .. } = part
            && let Some(last) = blocks.end.checked_sub(1)
        {
            core.cache.drop_parts(IFILE, FileBlock::Data(blocks.start)..=FileBlock::Data(last));
            for level in 1..level {
                core.cache.drop_parts(IFILE, shape.above(blocks.start, level)..=shape.above(last, level));
            }
        }
        let bytes = (blocks.start << shift)..(blocks.end << shift);
        let segs =
            core.segs.dirty().map(|(seg, _)| seg).filter(|seg| bytes.contains(&(u64::from(*seg) * USAGE as u64)));
        let segs: Vec<u32> = segs.collect();
        core.segs.changed.extend(segs);
        let groups = core.groups.each().map(|(group, _)| group.0);
        let here = groups.filter(|group| bytes.contains(&(GROUPS_AT + u64::from(*group) * GROUP_DESC as u64)));
        let here: Vec<u32> = here.collect();
        core.groups.unsaved.extend(here);
    }
}
