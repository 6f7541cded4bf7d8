//! Files: the map from logical blocks to blocks of either area, reading, writing, truncation.
//!
//! A write changes pages named by file and logical block; they get their places when a set is written (`commit.rs`). Until
//! then a new block has a pointer with [`NO_PLACE`], and the indirect blocks above it, so that its space is counted. A
//! block of a regular file that has no place and no page reads as zeros: what fallocate promises costs no write.
//!
//! * **DUALFS-F1** bytes of a page in core after the end of the file are zero, whatever a block has there that is overwritten
//!   where it lies: a crash may have left what was written for a size that never came. Such a block is written again before a
//!   size says that it has more bytes.

use crate::decoded::Inode;
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::validate;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::device::Kind;
use arbor_base::layout::put;
use arbor_base::vfs::{Errno, Error, Result};
use arbor_kit::blockfile::{BlockFiles, Fill};
use arbor_kit::blockmap::{BlockMap, Mapped as _, Parent, Shape};
use arbor_kit::health::freed_before;
use arbor_kit::inodes::InodeStore as _;
use arbor_kit::reads::or_first;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Most bytes of a file that are read together.
const CLUSTER: u64 = 128 << 10;

/// What messages call contents of files.
pub(crate) const CONTENTS: &str = "contents";

/// A block without a place.
const PROMISED: Pointer =
    Pointer { block: arbor_base::layout::U32::new(NO_PLACE), crc: arbor_base::layout::U32::new(0) };

impl Core {
    /// Sets the pointer to a block. The block that holds it must exist.
    pub fn set_pointer(&mut self, i: &mut Inode, part: FileBlock, to: Pointer) -> Result<()> {
        let (above, at) = match self.shape().parent(part).ok_or(Errno::EFBIG)? {
            Parent::Map { level, n, slot } => (FileBlock::Map { level, n }, slot * POINTER),
            Parent::InXattr(slot) => (FileBlock::Xattr(0), XATTR_HEAD + slot * POINTER),
            own => {
                let slot = match own {
                    Parent::Direct(k) => i.d.db.get_mut(k),
                    Parent::Root(k) => i.d.ib.get_mut(k),
                    _ => Some(&mut i.d.xattr),
                };
                *slot.ok_or(Errno::EFBIG)? = to;
                return self.iput(i);
            }
        };
        self.mark(i.ino)?;
        self.change(i, above, |buf| put(buf, at, to.as_bytes()))
    }

    /// Makes the missing indirect blocks above a logical block, and a pointer without a place if it is a hole.
    pub fn ensure(&mut self, i: &mut Inode, lbn: u64) -> Result<()> {
        for (level, n) in self.missing(i, lbn)? {
            let part = FileBlock::Map { level, n };
            self.mark(i.ino)?;
            self.set_pointer(i, part, PROMISED)?;
            self.cache.insert(Name::File(i.ino, part), Arc::new(vec![0; self.geom.block()]));
            self.change(i, part, |_| ())?;
            self.count(i, 0, 1);
            self.iput(i)?;
        }
        if !self.is_mapped(i, lbn)? {
            self.set_pointer(i, FileBlock::Data(lbn), PROMISED)?;
        }
        self.dirty_above(i, FileBlock::Data(lbn))
    }

    /// A page of a directory or of a long target.
    pub fn meta_page(&mut self, i: &Inode, lbn: u64) -> Result<Option<Arc<Vec<u8>>>> {
        let name = Name::data(i.ino, lbn);
        if let Some(page) = self.cache.get(name) {
            return Ok(Some(page.clone()));
        }
        let Some(page) = self.part(i, FileBlock::Data(lbn))? else { return Ok(None) };
        if i.is_dir()
            && let Err(c) = validate::dir_block(i.ino, lbn, self.geom.block_shift, &page)
        {
            self.cache.remove(name);
            return Err(c.into());
        }
        Ok(Some(page))
    }

    /// Reads a page of a regular file; of one that is read in order also the next pages, as far as they follow in the data
    /// area.
    fn read_pages(&mut self, i: &Inode, lbn: u64, p: Pointer) -> Result<Arc<Vec<u8>>> {
        let at = self.place_of(i, FileBlock::Data(lbn), p)?;
        let follows = lbn == 0 || self.cache.contains(Name::data(i.ino, lbn - 1));
        let rest = self.geom.blocks_for(i.size()).saturating_sub(lbn);
        let most = if follows { rest.clamp(1, (CLUSTER >> self.geom.block_shift).max(1)) } else { 1 };
        let mut all = vec![p];
        while (all.len() as u64) < most && !self.cache.contains(Name::data(i.ino, lbn + all.len() as u64)) {
            let next = self.pointer(i, FileBlock::Data(lbn + all.len() as u64));
            match next {
                Ok(q) if q.block.get() == p.block.get() + all.len() as u32 && self.geom.is_data(q.block.get()) => {
                    all.push(q);
                }
                Err(Error::Restart) => return Err(Error::Restart),
                // A damaged map fails the read of its own page.
                _ => break,
            }
        }
        let (first, len) = (DataBlock(p.block.get()), self.geom.block());
        let bytes = or_first(all.len(), |n| self.read_data(first, n as u32))?;
        let mut first = None;
        for (n, (q, bytes)) in (lbn..).zip(all.into_iter().zip(bytes.chunks_exact(len))) {
            let is_sound = q.has_no_sum() || Core::verify(CONTENTS, q, self.geom.location(at), bytes).is_ok();
            let mut page = match n == lbn {
                true if !is_sound => self.read_again(Kind::Data, at)?,
                false if !is_sound => break,
                _ => bytes.to_vec(),
            };
            if n == lbn && !is_sound {
                Core::verify(CONTENTS, q, self.geom.location(at), &page)?;
            }
            if q.has_no_sum() && !planted(Flaw::TailShown) {
                let valid = i.size().saturating_sub(n << self.geom.block_shift);
                page.iter_mut().skip(valid.min(len as u64) as usize).for_each(|b| *b = 0);
            }
            let page = Arc::new(page);
            if n == lbn {
                first = Some(page.clone());
            }
            self.cache.insert(Name::data(i.ino, n), page);
        }
        Ok(first.ok_or(Errno::EIO)?)
    }

    /// Zeros the bytes of the last block after the end of a file.
    fn zero_tail(&mut self, i: &mut Inode, to: u64) -> Result<()> {
        let (lbn, within) = (to >> self.geom.block_shift, (to % self.geom.block() as u64) as usize);
        if within == 0 || self.page(i, lbn)?.is_none() {
            return Ok(());
        }
        let (part, name) = (FileBlock::Data(lbn), Name::data(i.ino, lbn));
        let p = self.pointer(i, part)?;
        if self.stays(i, part, p) && !self.cache.is_dirty(name) {
            // Where it lies it keeps its bytes until the size is durable; whoever reads it sees zeros (DUALFS-F1).
            self.cache.remove(name);
            return Ok(());
        }
        self.mark(i.ino)?;
        self.change_page(i, lbn, false, |buf| {
            if let Some(rest) = buf.get_mut(within..) {
                rest.fill(0);
            }
        })
    }

    /// Frees a block of a file, if it is not a hole.
    fn free_block(&mut self, i: &mut Inode, part: FileBlock) -> Result<()> {
        let p = self.pointer(i, part)?;
        if p.block.get() == 0 {
            return Ok(());
        }
        if p.is_placed() {
            self.place_of(i, part, p)?;
        }
        self.mark(i.ino)?;
        let (data, meta) = if Core::is_data(i, part) { (-1, 0) } else { (0, -1) };
        self.check_counts(i, data, meta)?;
        self.drop_placed(i, part, p);
        self.uncount_page(i, part);
        self.cache.remove(Name::File(i.ino, part));
        self.count(i, data, meta);
        self.set_pointer(i, part, Pointer::default())
    }

    /// Fails if a file counts fewer blocks than it is about to lose.
    fn check_counts(&self, i: &Inode, data: i32, meta: i32) -> Result<()> {
        let (has_data, has_meta) = (i.d.data.get() as i64 + i64::from(data), i.d.meta.get() as i64 + i64::from(meta));
        if i.ino == IFILE || has_data >= 0 && has_meta >= 0 {
            return Ok(());
        }
        let (field, found) = if has_data < 0 { ("data", i.d.data) } else { ("meta", i.d.meta) };
        Err(i.corrupt(field, found, "as many blocks as its pointers lead to").into())
    }

    /// Frees the blocks below an indirect block from logical block `keep` on, and it itself if none is left; at most
    /// those of one lowest indirect block in a step. Returns the first logical block freed, `None` if there was none.
    fn cut(&mut self, i: &mut Inode, part: FileBlock, keep: u64, at: &mut u64) -> Result<Option<u64>> {
        let FileBlock::Map { level, n } = part else { return Ok(None) };
        let (shape, Some(table)) = (self.shape(), self.part(i, part)?) else { return Ok(None) };
        let used: Vec<u64> = (0..shape.fanout).filter(|k| Self::entry(&table, *k as usize).block.get() != 0).collect();
        let mut freed = None;
        for slot in used.iter().rev() {
            let child = shape.child(level, n, *slot);
            match child {
                FileBlock::Data(lbn) if lbn < keep => return Ok(freed),
                FileBlock::Data(lbn) => {
                    self.free_block(i, child)?;
                    *at = lbn.min(*at);
                    freed = Some(lbn);
                }
                _ => {
                    let below = self.cut(i, child, keep, at)?;
                    if below.is_none() && self.pointer(i, child)?.block.get() != 0 {
                        return Ok(freed);
                    }
                    if below.is_some() {
                        freed = below;
                        break;
                    }
                }
            }
        }
        let left = self.part(i, part)?.ok_or(Errno::EIO)?;
        if (0..shape.fanout).all(|k| Self::entry(&left, k as usize).block.get() == 0) {
            self.free_block(i, part)?;
            *at = shape.first(level, n).max(keep).min(*at);
            freed = freed.or(Some(shape.first(level, n).max(keep)));
        }
        Ok(freed)
    }

    /// Notes that a file was read, so that its metadata are relocated with the next set (section 2.2).
    pub fn note_read(&mut self, ino: arbor_base::vfs::Ino) {
        if self.opts.relocate && self.calls.health.is_writable() && self.read.len() < crate::relocate::MOST_FILES {
            self.read.insert(ino);
        }
    }
}

impl BlockMap for Core {
    type Ptr = Pointer;

    fn indirect(&mut self, i: &Inode, level: u8, n: u64) -> Result<Option<Arc<Vec<u8>>>> {
        self.part(i, FileBlock::Map { level, n })
    }

    fn inode_pointer(&self, i: &Inode, at: Parent) -> Pointer {
        let found = match at {
            Parent::Direct(k) => i.d.db.get(k),
            Parent::Root(k) => i.d.ib.get(k),
            Parent::Xattr => Some(&i.d.xattr),
            _ => None,
        };
        found.copied().unwrap_or_default()
    }

    fn first_of_xattrs(&mut self, i: &Inode) -> Result<Option<Arc<Vec<u8>>>> {
        let first = self.part(i, FileBlock::Xattr(0))?;
        Ok(first.and_then(|first| Some(Arc::new(first.get(XATTR_HEAD..)?.to_vec()))))
    }

    fn entry(table: &[u8], slot: usize) -> Pointer {
        let bytes = table.get(slot * POINTER..(slot + 1) * POINTER);
        bytes.and_then(|bytes| Pointer::read_from_bytes(bytes).ok()).unwrap_or_default()
    }

    fn is_hole(p: Pointer) -> bool {
        p.block.get() == 0
    }

    fn shape(&self) -> Shape {
        self.geom.shape()
    }

    fn most_indirect(&self, i: &Inode) -> u64 {
        let all = u64::from(self.geom.segs) * u64::from(self.geom.seg_blocks());
        if i.ino == IFILE { all } else { i.d.meta.get().into() }
    }

    fn too_many_indirect(&self, i: &Inode) -> Error {
        i.corrupt("meta", i.d.meta, "as many blocks as its maps have").into()
    }
}

impl BlockFiles for Core {
    fn page(&mut self, i: &Inode, lbn: u64) -> Result<Option<Arc<Vec<u8>>>> {
        if !i.is_file() {
            return self.meta_page(i, lbn);
        }
        self.note_read(i.ino);
        if let Some(page) = self.cache.get(Name::data(i.ino, lbn)) {
            return Ok(Some(page.clone()));
        }
        let p = self.pointer(i, FileBlock::Data(lbn))?;
        match p.block.get() {
            0 => Ok(None),
            NO_PLACE => {
                let zeros = Arc::new(vec![0; self.geom.block()]);
                self.cache.insert(Name::data(i.ino, lbn), zeros.clone());
                Ok(Some(zeros))
            }
            _ => self.read_pages(i, lbn, p).map(Some),
        }
    }

    fn page_len(&self, _i: &Inode, _lbn: u64) -> usize {
        self.geom.block()
    }

    fn balloc(&mut self, i: &mut Inode, lbn: u64, size: u64, fill: Fill<'_>) -> Result<()> {
        let name = Name::data(i.ino, lbn);
        let done = self.balloc_page(i, lbn, size, fill);
        if done.is_err() && !self.cache.is_dirty(name) {
            // The page may have been made only to be written.
            self.cache.remove(name);
        }
        done
    }

    fn release_block(&mut self, i: &mut Inode, lbn: u64) -> Result<()> {
        self.free_block(i, FileBlock::Data(lbn))?;
        self.iput(i)
    }

    fn lengthen_tail(&mut self, i: &mut Inode, _from: u64, _size: u64) -> Result<()> {
        let (last, within) = (i.size() >> self.geom.block_shift, i.size() % self.geom.block() as u64);
        if within == 0 || planted(Flaw::TailShown) {
            return Ok(());
        }
        let p = self.pointer(i, FileBlock::Data(last))?;
        if !self.stays(i, FileBlock::Data(last), p) {
            return Ok(());
        }
        self.page(i, last)?;
        self.mark(i.ino)?;
        self.change_page(i, last, true, |_| ())
    }

    fn truncate_step(&mut self, i: &mut Inode, to: u64) -> Result<u64> {
        let done = self.cut_step(i, to);
        self.changes.shorten(i.ino, to);
        done
    }

    fn undo_growth(&mut self, i: &mut Inode, to: u64) -> Result<()> {
        while self.truncate_step(i, to)? > to {}
        Ok(())
    }

    fn may_write_on(&self) -> bool {
        self.slack() > 1
    }

    fn max_size(&self) -> u64 {
        self.geom.max_size()
    }

    fn block_shift(&self) -> u32 {
        self.geom.block_shift
    }
}

impl Core {
    /// A step of a truncation: frees some of the blocks behind the new end, from the last one on.
    fn cut_step(&mut self, i: &mut Inode, to: u64) -> Result<u64> {
        // What zeroes the rest of the last block would have to read it after blocks were freed; it may be damaged.
        if to < i.size() && !to.is_multiple_of(self.geom.block() as u64) {
            self.page(i, to >> self.geom.block_shift)?;
            self.find_sound_group()?;
        }
        let (keep, end) = (self.geom.blocks_for(to), self.geom.blocks_for(i.size()));
        let mut at = end;
        if let Some(size) = freed_before(self.cut_some(i, to, keep, &mut at), at < end)? {
            return Ok(size);
        }
        i.d.size = (at.max(keep) << self.geom.block_shift).clamp(to, i.size().max(to)).into();
        self.cache.drop_pages(i.ino, at.max(keep));
        self.iput(i)?;
        Ok(i.size())
    }

    fn cut_some(&mut self, i: &mut Inode, to: u64, keep: u64, at: &mut u64) -> Result<u64> {
        for level in (1..=NIADDR as u8).rev() {
            if let Some(freed) = self.cut(i, FileBlock::Map { level, n: 0 }, keep, at)? {
                let size = (freed.max(keep) << self.geom.block_shift).clamp(to, i.size().max(to));
                i.d.size = size.into();
                self.iput(i)?;
                // Below the freed ones there may be more, also if all of them were behind the end.
                return Ok(if size > to { size } else { self.finish_cut(i, to, keep, at)? });
            }
        }
        self.finish_cut(i, to, keep, at)
    }

    /// The last step of a truncation: what is left of the indirect blocks goes, and the direct ones.
    fn finish_cut(&mut self, i: &mut Inode, to: u64, keep: u64, at: &mut u64) -> Result<u64> {
        for level in (1..=NIADDR as u8).rev() {
            while self.cut(i, FileBlock::Map { level, n: 0 }, keep, at)?.is_some() {}
        }
        for lbn in (keep..NDADDR as u64).rev() {
            self.free_block(i, FileBlock::Data(lbn))?;
            *at = lbn.min(*at);
        }
        if to < i.size() {
            self.zero_tail(i, to)?;
        }
        i.d.size = to.into();
        self.cache.drop_pages(i.ino, keep);
        self.iput(i)?;
        Ok(to)
    }

    /// Whether what a pointer leads to is overwritten where it lies, and the pointer stays as it is.
    pub fn stays(&self, i: &Inode, part: FileBlock, p: Pointer) -> bool {
        self.opts.overwrite && Core::is_data(i, part) && p.has_no_sum()
    }

    fn balloc_page(&mut self, i: &mut Inode, lbn: u64, size: u64, fill: Fill<'_>) -> Result<()> {
        let part = FileBlock::Data(lbn);
        let p = self.pointer(i, part)?;
        let (is_data, is_new, len) = (Core::is_data(i, part), Core::is_hole(p), self.geom.block());
        if self.stays(i, part, p) {
            self.mark(i.ino)?;
            i.d.size = size.max(i.size()).into();
            self.iput(i)?;
            return self.change_page(i, lbn, true, |buf| fill(buf, len));
        }
        if is_new {
            let tables = self.missing(i, lbn)?.len() as u32;
            self.need_data(u32::from(is_data))?;
            self.need_meta(tables + u32::from(!is_data))?;
        } else if is_data {
            self.find_sound_group()?;
        }
        self.mark(i.ino)?;
        self.ensure(i, lbn)?;
        if is_new {
            self.count(i, i32::from(is_data), i32::from(!is_data));
        }
        i.d.size = size.max(i.size()).into();
        self.iput(i)?;
        let is_zero = self.change_page(i, lbn, false, |buf| {
            fill(buf, len);
            buf.iter().take(16).all(|b| *b == 0) && buf.iter().all(|b| *b == 0)
        })?;
        if is_zero && is_data && !p.is_placed() {
            // As it reads without a place, so it needs none.
            self.uncount_page(i, part);
            self.cache.set_clean(Name::data(i.ino, lbn));
        }
        Ok(())
    }
}
