//! Files: the map from logical blocks to blocks of the volume, reading, writing, truncation.
//!
//! Blocks are given when they are written, and a page of the cache is one of them. On disk, too, bytes after the end of
//! a file are zero (PLAIN-F1), since a change of the size and the block at the end go in one record.

use crate::format::*;
use crate::inode::Inode;
use crate::validate;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::device::Kind;
use arbor_base::field;
use arbor_base::layout::{Corrupt, get_u32};
use arbor_base::vfs::{Errno, Error, Ino, Result};
use arbor_kit::blockfile::{BlockFiles, Fill};
use arbor_kit::blockmap::{BlockMap, Mapped as _, Parent, Shape};
use arbor_kit::health::freed_before;
use arbor_kit::inodes::InodeStore as _;
use arbor_kit::reads::or_first;
use std::collections::HashSet;
use std::sync::Arc;

/// Most blocks of a file that are read together.
const CLUSTER: u64 = 32;

/// How the map of a file is built.
const SHAPE: Shape = Shape { direct: DIRECT, levels: 3, fanout: POINTERS };

/// Offset of a pointer in an indirect block.
pub(crate) fn entry_at(index: u64) -> usize {
    HEAD + index as usize * 4
}

/// A block that a pointer of a file points to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// The indirect block that holds the pointer, `None` for the inode, and the pointer's index there.
    pub slot: (Option<u32>, usize),
    /// First logical block below it.
    pub lbn: u64,
    /// 0 for data, else how many pointers are between this block and data.
    pub level: u32,
    pub block: u32,
}

/// Called with pieces; returns whether to go on below.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&mut Core, &Piece) -> Result<bool>;

/// The pointers of an inode, each with the first logical block below it, and its number of indirect levels.
pub(crate) fn roots() -> impl DoubleEndedIterator<Item = (usize, u64, u32)> {
    let starts = [DIRECT, DIRECT + POINTERS, DIRECT + POINTERS + POINTERS.pow(2)];
    let all = (0..DIRECT).map(|lbn| (lbn, 0)).chain(starts.into_iter().zip(1..)).collect::<Vec<_>>();
    all.into_iter().enumerate().map(|(index, (first, level))| (index, first, level))
}

/// The kind of a file's data blocks.
fn data_kind(i: &Inode) -> Kind {
    if i.is_dir() { Kind::Dir } else { Kind::Data }
}

impl Core {
    /// The indirect block of a file at an address.
    pub fn table(&mut self, ino: Ino, block: u32) -> Result<&Arc<Vec<u8>>> {
        self.check_pointer(ino, block)?;
        let bytes = self.block(block, Kind::Tree)?;
        if Core::owner(bytes) == ino.0 {
            return Ok(bytes);
        }
        let found = format!("{} (in inode {ino})", Core::owner(bytes));
        Err(Corrupt::new("indirect block", "owner", byte(block), found, "the inode").into())
    }

    /// Where a logical block lies, 0 if it is a hole.
    pub fn find_block(&mut self, i: &Inode, lbn: u64) -> Result<u32> {
        let block = self.pointer(i, FileBlock::Data(lbn))?;
        if block == 0 { Ok(0) } else { self.check_pointer(i.ino, block) }
    }

    /// Sets the pointer to a block of a file, in the inode or in an indirect block, which must exist.
    fn set_pointer(&mut self, i: &mut Inode, part: FileBlock, to: u32) -> Result<()> {
        let index = match SHAPE.parent(part).ok_or(Errno::EFBIG)? {
            Parent::Map { level, n, slot } => {
                let block = self.pointer(i, FileBlock::Map { level, n })?;
                self.table(i.ino, block)?;
                return self.modify(block, Kind::Tree, |buf| put_u32(buf, entry_at(slot as u64), to));
            }
            Parent::Direct(k) => k,
            Parent::Root(k) => DIRECT as usize + k,
            Parent::Xattr | Parent::InXattr(_) => return Err(Errno::EIO.into()),
        };
        i.d.map.iter_mut().skip(index).take(1).for_each(|p| *p = to.into());
        Ok(())
    }

    /// Allocates a block for a hole, and the missing indirect blocks above it; `ENOSPC` before anything is changed.
    fn map_block(&mut self, i: &mut Inode, lbn: u64) -> Result<()> {
        let missing = self.missing(i, lbn)?;
        self.need(1 + missing.len() as u64)?;
        for (level, n) in missing {
            let block = self.alloc()?;
            self.make_headed(block, Kind::Tree, INDIRECT_MAGIC, i.ino)?;
            self.set_pointer(i, FileBlock::Map { level, n }, block)?;
            i.count(1);
        }
        let block = self.alloc()?;
        i.count(1);
        self.set_pointer(i, FileBlock::Data(lbn), block)
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
        let bytes = or_first(blocks as usize, |n| self.read(block, n, data_kind(i)))?;
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

    /// Changes the page of a block that is mapped.
    pub fn change_page(&mut self, i: &Inode, lbn: u64, f: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let block = self.find_block(i, lbn)?;
        self.change(Name::data(i.ino, lbn), self.check_pointer(i.ino, block)?, data_kind(i), f)
    }

    /// Frees a block of data of a file.
    fn free_data(&mut self, i: &mut Inode, lbn: u64, block: u32) -> Result<()> {
        self.free_block(i.ino, block)?;
        self.forget(Name::data(i.ino, lbn), block);
        i.count(-1);
        Ok(())
    }

    /// Frees the blocks below a pointer from logical block `keep` on, the last first, while there is room for that in
    /// the record. `first` is the first logical block below it. Returns whether none is left; `at` becomes the last one
    /// freed.
    fn cut(&mut self, i: &mut Inode, (block, level): (u32, u32), first: u64, keep: u64, at: &mut u64) -> Result<bool> {
        if block == 0 {
            return Ok(true);
        }
        if level == 0 {
            if first < keep || !self.has_room() {
                return Ok(false);
            }
            self.free_data(i, first, block)?;
            *at = first;
            return Ok(true);
        }
        let (mut is_empty, unit) = (true, POINTERS.pow(level - 1));
        for index in (0..POINTERS).rev() {
            let below = Core::entry(self.table(i.ino, block)?, index as usize);
            if below == 0 {
                continue;
            }
            let start = first + index * unit;
            if start + unit <= keep || !self.cut(i, (below, level - 1), start, keep, at)? {
                is_empty = false;
                break;
            }
            self.modify(block, Kind::Tree, |buf| put_u32(buf, entry_at(index), 0))?;
        }
        if is_empty && self.has_room() {
            self.free_block(i.ino, block)?;
            self.forget(Name::Block(block.into()), block);
            i.count(-1);
            return Ok(true);
        }
        Ok(false)
    }

    /// Zeros the bytes of the last block after the end of a file (PLAIN-F1).
    fn zero_tail(&mut self, i: &Inode, to: u64) -> Result<()> {
        let (lbn, within) = (to >> BLOCK_SHIFT, (to % BLOCK as u64) as usize);
        if within == 0 || self.page(i, lbn)?.is_none() {
            return Ok(());
        }
        self.change_page(i, lbn, |buf| buf.iter_mut().skip(within).for_each(|b| *b = 0))
    }

    /// Visits the pointers of a file that are not 0, each before those below it.
    pub fn walk_blocks(&mut self, i: &Inode, f: Visit<'_>) -> Result<()> {
        for ((index, lbn, level), p) in roots().zip(i.d.map) {
            self.walk_below(Piece { slot: (None, index), lbn, level, block: p.get() }, &mut HashSet::new(), f)?;
        }
        Ok(())
    }

    fn walk_below(&mut self, p: Piece, seen: &mut HashSet<u32>, f: Visit<'_>) -> Result<()> {
        if p.block == 0 || !f(self, &p)? || p.level == 0 || !seen.insert(p.block) {
            return Ok(());
        }
        let bytes = self.block(p.block, Kind::Tree)?.to_vec();
        for index in 0..POINTERS {
            let (block, level) = (get_u32(&bytes, entry_at(index)).unwrap_or(0), p.level - 1);
            let lbn = p.lbn + index * POINTERS.pow(level);
            self.walk_below(Piece { slot: (Some(p.block), index as usize), lbn, level, block }, seen, f)?;
        }
        Ok(())
    }
}

arbor_kit::usual_fields!(Inode);

impl BlockMap for Core {
    type Ptr = u32;

    fn shape(&self) -> Shape {
        SHAPE
    }

    fn inode_pointer(&self, i: &Inode, at: Parent) -> u32 {
        let index = match at {
            Parent::Direct(k) => k,
            Parent::Root(k) => DIRECT as usize + k,
            Parent::Xattr | Parent::InXattr(_) | Parent::Map { .. } => return 0,
        };
        i.d.map.get(index).map_or(0, |p| p.get())
    }

    fn indirect(&mut self, i: &Inode, level: u8, n: u64) -> Result<Option<Arc<Vec<u8>>>> {
        match self.pointer(i, FileBlock::Map { level, n })? {
            0 => Ok(None),
            block => self.table(i.ino, block).cloned().map(Some),
        }
    }

    fn entry(table: &[u8], slot: usize) -> u32 {
        get_u32(table, entry_at(slot as u64)).unwrap_or(0)
    }

    fn is_hole(p: u32) -> bool {
        p == 0
    }

    fn most_indirect(&self, _i: &Inode) -> u64 {
        self.geom.space.into()
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
        if !self.is_mapped(i, lbn)?
            && let Err(e) = self.map_block(i, lbn)
        {
            // The page was made only to be written.
            self.cache.remove(Name::data(i.ino, lbn));
            return Err(e);
        }
        i.d.size = i.d.size.get().max(size).into();
        self.change_page(i, lbn, |buf| fill(buf, BLOCK))?;
        self.iput(i)
    }

    fn release_block(&mut self, i: &mut Inode, lbn: u64) -> Result<()> {
        let block = self.find_block(i, lbn)?;
        self.free_data(i, lbn, block)?;
        self.set_pointer(i, FileBlock::Data(lbn), 0)?;
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
        let (mut at, mut done) = (end, true);
        for (index, first, level) in roots().rev() {
            let block = i.d.map.get(index).map_or(0, |p| p.get());
            let empty = freed_before(self.cut(i, (block, level), first, keep, &mut at), at < end)?;
            if empty == Some(true) {
                i.d.map.iter_mut().skip(index).take(1).for_each(|p| *p = 0.into());
            } else if empty.is_none() || first + POINTERS.pow(level) > keep && !self.has_room() {
                done = false;
                break;
            }
        }
        let size = if done { to } else { (at << BLOCK_SHIFT).clamp(to, i.d.size.get()) };
        if size < i.d.size.get() {
            self.zero_tail(i, size)?;
        }
        i.d.size = size.into();
        self.iput(i)?;
        Ok(size)
    }

    fn undo_growth(&mut self, i: &mut Inode, to: u64) -> Result<()> {
        self.truncate_step(i, to).map(drop)
    }

    fn has_room_for_step(&mut self) -> bool {
        self.has_room()
    }

    fn may_write_on(&self) -> bool {
        self.has_room()
    }
}
