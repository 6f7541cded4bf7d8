//! Files: the map from logical blocks to blocks of the volume, reading, writing, truncation.
//!
//! Bytes after the end of a file are zero on disk too (EVERGREEN-F1): a change of the size and the block at the end are in
//! one commit.

use crate::decoded::Inode;
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::validate;
use crate::volume::{Core, SHAPE, is_special};
use arbor_base::cache::{FileBlock, Name};
use arbor_base::field;
use arbor_base::layout::get_u32;
use arbor_base::vfs::{Errno, Error, Result};
use arbor_kit::blockfile::{BlockFiles, Fill};
use arbor_kit::blockmap::{BlockMap, Mapped as _, Parent, Shape};
use arbor_kit::health::freed_before;
use arbor_kit::inodes::InodeStore as _;
use arbor_kit::reads::or_first;
use std::sync::Arc;

/// Most blocks of a file that are read together.
const CLUSTER: u64 = 32;

/// The blocks to which an inode points, the last ones first.
pub(crate) fn roots() -> impl Iterator<Item = FileBlock> {
    let maps = (1..=SHAPE.levels).rev().map(|level| FileBlock::Map { level, n: 0 });
    maps.chain((0..DIRECT).rev().map(FileBlock::Data))
}

/// The first logical block below a block of a file, and the one after the last.
pub(crate) fn span(part: FileBlock) -> (u64, u64) {
    match part {
        FileBlock::Map { level, n } => {
            let first = SHAPE.first(level, n);
            (first, first.saturating_add(SHAPE.reach(level)))
        }
        FileBlock::Data(lbn) => (lbn, lbn.saturating_add(1)),
        FileBlock::Xattr(_) => (u64::MAX, u64::MAX),
    }
}

impl Core {
    /// Where a logical block lies, 0 if it is a hole.
    pub fn find_block(&mut self, i: &Inode, lbn: u64) -> Result<u32> {
        let block = self.pointer(i, FileBlock::Data(lbn))?;
        if block == 0 { Ok(0) } else { self.check_pointer(i.ino, block) }
    }

    /// Makes the indirect blocks above a hole that are missing; `ENOSPC` before anything is changed.
    fn make_tables(&mut self, i: &mut Inode, lbn: u64) -> Result<()> {
        let missing = self.missing(i, lbn)?;
        self.need(1 + missing.len() as u64)?;
        for (level, n) in missing {
            let table = self.headed(INDIRECT_MAGIC, i.ino, n, level.into());
            self.make(i, FileBlock::Map { level, n }, table)?;
            i.count(1);
        }
        Ok(())
    }

    /// Reads a page; of a file that is read in order, also the next pages, as far as they follow on the volume.
    fn read_page(&mut self, i: &Inode, lbn: u64, block: u32) -> Result<Arc<Vec<u8>>> {
        let follows = lbn == 0 || self.cache.contains(Name::data(i.ino, lbn - 1));
        let most = if follows { blocks_of(i.d.size.get()).saturating_sub(lbn).clamp(1, CLUSTER) } else { 1 };
        let mut blocks = 1;
        while blocks < most && !self.cache.contains(Name::data(i.ino, lbn + blocks)) {
            match self.find_block(i, lbn + blocks) {
                Ok(next) if next == block + blocks as u32 => blocks += 1,
                Err(Error::Restart) => return Err(Error::Restart),
                // A damaged pointer fails the read of its own page.
                _ => break,
            }
        }
        let kind = Core::kind(i, FileBlock::Data(lbn));
        let bytes = or_first(blocks as usize, |n| self.read(block, n, kind))?;
        for (index, page) in (lbn..).zip(bytes.chunks_exact(BLOCK)) {
            match validate::dir_block(block + (index - lbn) as u32, page, index == 0) {
                Err(c) if i.is_dir() && index == lbn => return Err(c.into()),
                Err(_) if i.is_dir() => break,
                _ => {}
            }
            self.cache.insert(Name::data(i.ino, index), Arc::new(page.to_vec()));
        }
        Ok(self.cache.get(Name::data(i.ino, lbn)).cloned().ok_or(Errno::EIO)?)
    }

    /// Frees what is below a block of a file from logical block `keep` on, the last first, as much as a step may, and the
    /// block itself if nothing is left; `at` becomes the last logical block freed. Returns whether nothing is left.
    fn cut(&mut self, i: &mut Inode, part: FileBlock, keep: u64, at: &mut u64) -> Result<bool> {
        if self.pointer(i, part)? == 0 {
            return Ok(true);
        }
        let (first, _) = span(part);
        if let FileBlock::Map { level, n } = part {
            for slot in (0..POINTERS).rev() {
                let table = self.part(i, part)?.ok_or(Errno::EIO)?;
                if Core::entry(&table, slot as usize) == 0 {
                    continue;
                }
                let child = SHAPE.child(level, n, slot);
                if span(child).1 <= keep || !self.cut(i, child, keep, at)? {
                    return Ok(false);
                }
            }
        } else if first < keep {
            return Ok(false);
        }
        if !self.has_room() {
            return Ok(false);
        }
        self.drop_part(i, part)?;
        *at = (*at).min(first.max(keep));
        Ok(true)
    }

    /// Makes the page of a block dirty, which gets its place if it has none, and the file at least so long.
    fn ready_page(&mut self, i: &mut Inode, lbn: u64, size: u64, in_place: bool) -> Result<()> {
        if !self.is_mapped(i, lbn)? {
            self.make_tables(i, lbn)?;
            i.count(1);
        }
        i.d.size = i.d.size.get().max(size).into();
        self.ready_for(i, FileBlock::Data(lbn), in_place)
    }

    /// Zeros the bytes of the last block after the end of a file (EVERGREEN-F1).
    fn zero_tail(&mut self, i: &mut Inode, to: u64) -> Result<()> {
        let (lbn, within) = (to >> BLOCK_SHIFT, (to % BLOCK as u64) as usize);
        if within == 0 || self.page(i, lbn)?.is_none() {
            return Ok(());
        }
        self.change(i, FileBlock::Data(lbn), |buf| buf.iter_mut().skip(within).for_each(|b| *b = 0))
    }
}

impl BlockMap for Core {
    type Ptr = u32;

    fn shape(&self) -> Shape {
        SHAPE
    }

    fn inode_pointer(&self, i: &Inode, at: Parent) -> u32 {
        let index = match at {
            Parent::Direct(k) => k,
            Parent::Root(k) => DIRECT as usize + k,
            Parent::Xattr => return i.d.xattr.get(),
            Parent::InXattr(_) | Parent::Map { .. } => return 0,
        };
        let special = self.master.inode(i.ino).filter(|_| is_special(i.ino));
        special.unwrap_or(&i.d).map.get(index).map_or(0, |p| p.get())
    }

    fn indirect(&mut self, i: &Inode, level: u8, n: u64) -> Result<Option<Arc<Vec<u8>>>> {
        self.part(i, FileBlock::Map { level, n })
    }

    fn first_of_xattrs(&mut self, i: &Inode) -> Result<Option<Arc<Vec<u8>>>> {
        self.part(i, FileBlock::Xattr(0))
    }

    fn entry(table: &[u8], slot: usize) -> u32 {
        get_u32(table, entry_at(slot)).unwrap_or(0)
    }

    fn is_hole(p: u32) -> bool {
        p == 0
    }

    fn most_indirect(&self, _i: &Inode) -> u64 {
        self.geom.blocks.into()
    }

    fn too_many_indirect(&self, i: &Inode) -> Error {
        i.corrupt(field!(Dinode, map), "indirect blocks without end", "as many as the volume has").into()
    }
}

impl BlockFiles for Core {
    fn block_shift(&self) -> u32 {
        BLOCK_SHIFT
    }

    fn max_size(&self) -> u64 {
        MOST_BLOCKS << BLOCK_SHIFT
    }

    fn page(&mut self, i: &Inode, lbn: u64) -> Result<Option<Arc<Vec<u8>>>> {
        if let Some(page) = self.cache.get(Name::data(i.ino, lbn)) {
            return Ok(Some(page.clone()));
        }
        match self.find_block(i, lbn)? {
            0 => Ok(None),
            block => self.read_page(i, lbn, block).map(Some),
        }
    }

    fn page_len(&self, _i: &Inode, _lbn: u64) -> usize {
        BLOCK
    }

    fn balloc(&mut self, i: &mut Inode, lbn: u64, size: u64, fill: Fill<'_>) -> Result<()> {
        let part = FileBlock::Data(lbn);
        // EVERGREEN-F1: what the last commit has behind the end of the file has to stay zero.
        let committed = self.changes.sizes.get(&i.ino).copied().unwrap_or(i.d.size.get());
        let in_place = i.is_file() && ((lbn + 1) << BLOCK_SHIFT <= committed || planted(Flaw::BehindTheEnd));
        let name = Name::data(i.ino, lbn);
        let was_dirty = self.changes.parts.contains_key(&name);
        let ready = self.ready_page(i, lbn, size, in_place);
        if !self.changes.parts.contains_key(&name) {
            // The page may have been made only to be written.
            self.cache.remove(name);
        } else if ready.is_ok() || !was_dirty {
            self.change_ready(i.ino, part, |buf| fill(buf, BLOCK))?;
        }
        ready?;
        self.iput(i)
    }

    fn release_block(&mut self, i: &mut Inode, lbn: u64) -> Result<()> {
        self.drop_part(i, FileBlock::Data(lbn))?;
        self.iput(i)
    }

    fn lengthen_tail(&mut self, _i: &mut Inode, _from: u64, _size: u64) -> Result<()> {
        Ok(())
    }

    fn truncate_step(&mut self, i: &mut Inode, to: u64) -> Result<u64> {
        // What zeroes the rest of the last block would have to read it after blocks were freed; it may be damaged.
        if to < i.d.size.get() && !to.is_multiple_of(BLOCK as u64) {
            self.page(i, to >> BLOCK_SHIFT)?;
        }
        let (keep, end) = (blocks_of(to), blocks_of(i.d.size.get()));
        let mut at = end;
        let mut parts = roots().filter(|part| span(*part).1 > keep);
        let done = loop {
            let Some(part) = parts.next() else { break true };
            let is_cut = freed_before(self.cut(i, part, keep, &mut at), at < end)?;
            if is_cut.is_none_or(|is_cut| !is_cut && !self.has_room()) {
                break false;
            }
        };
        let size = if done { to } else { (at << BLOCK_SHIFT).clamp(to, i.d.size.get()) };
        if size < i.d.size.get() {
            self.zero_tail(i, size)?;
        }
        i.d.size = size.into();
        self.iput(i)?;
        Ok(size)
    }

    fn undo_growth(&mut self, i: &mut Inode, to: u64) -> Result<()> {
        // It has to come to its end in this call; what it frees is new.
        self.undoes = true;
        let mut size = i.d.size.get();
        let done = loop {
            match self.truncate_step(i, to) {
                Ok(now) if now > to && now < size => size = now,
                Ok(now) if now > to => break Err(Errno::EIO.into()),
                done => break done.map(drop),
            }
        };
        self.undoes = false;
        done
    }

    fn has_room_for_step(&mut self) -> bool {
        self.has_room()
    }

    fn may_write_on(&self) -> bool {
        self.has_room()
    }
}
