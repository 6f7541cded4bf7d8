//! Files: the map from logical blocks to fragments, reading, writing, truncation.
//!
//! Blocks are allocated in the call that writes (`ffs_balloc`), so that a buffer of the cache, a *page* of one logical
//! block, always has an address. Bytes of a page past the end of the file are zero. A page is as long as its fragments.
//! Called by `kit::blockfile`, through [`BlockFiles`].

use crate::buffers::{BlockKind, PointerSet, Slot};
use crate::format::*;
use crate::inode::{Inode, XATTR};
use crate::planted::{Flaw, planted};
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::field;
use arbor_base::layout::{Corrupt, get_u32, put};
use arbor_base::vfs::{Errno, Error, Ino, Result};
use arbor_kit::blockfile::{self, BlockFiles, Fill};
use arbor_kit::blockmap::{BlockMap, Parent, Shape};
use arbor_kit::inodes::InodeStore as _;
use arbor_kit::reads::or_first;
use std::sync::Arc;

/// Most groups in which one step of a truncation frees: a transaction holds the structures of all of them.
const STEP_GROUPS: usize = 16;

impl Core {
    /// The run of so many fragments to which a pointer of a file points, checked; `None` for a hole.
    fn pointer_checked(&mut self, i: &Inode, block: FileBlock, frag: Frag, frags: u32) -> Result<Option<Frag>> {
        if frag.0 == 0 {
            return Ok(None);
        }
        let n = self.geom.block_frags();
        if !self.geom.is_data(frag, frags.max(1)) || frag.0 % n + frags > n {
            let what = format!("{} (inode {}, {block:?})", frag.0, i.ino);
            let at = self.pointer_byte(i, block)?;
            return Err(Corrupt::new("pointer", "frag", at, what, "fragments of a data area, in one block").into());
        }
        Ok(Some(frag))
    }

    /// The address of a logical block; `None` for a hole.
    pub fn bmap(&mut self, i: &Inode, lbn: u64) -> Result<Option<Frag>> {
        let n = self.geom.block_frags();
        let frags = if lbn < NDADDR as u64 { self.geom.lbn_frags(i.size(), lbn).clamp(1, n) } else { n };
        let block = FileBlock::Data(lbn);
        let frag = self.pointer(i, block)?;
        self.pointer_checked(i, block, frag, frags)
    }

    /// Byte address of the pointer to a block.
    fn pointer_byte(&mut self, i: &Inode, block: FileBlock) -> Result<u64> {
        let parent = self.shape().parent(block).ok_or(Errno::EFBIG)?;
        match self.slot_at(i, parent)? {
            (Name::Block(frag), at) => Ok(self.geom.byte(Frag(frag as u32)) + at as u64),
            _ => Ok(i.byte(&self.geom)),
        }
    }

    /// The slot of a logical block's pointer, its index in its array, and the pointer before it there; makes missing
    /// indirect blocks.
    fn slot(&mut self, i: &mut Inode, lbn: u64) -> Result<(Slot, u64, Frag)> {
        let missing = self.missing(i, lbn)?;
        self.need_blocks(1 + missing.len() as u64)?;
        for (level, n) in missing {
            self.make_indirect(i, FileBlock::Map { level, n }, lbn)?;
        }
        self.find_slot(i, lbn)
    }

    /// Makes an indirect block on the way to a logical one.
    fn make_indirect(&mut self, i: &mut Inode, block: FileBlock, lbn: u64) -> Result<()> {
        let parent = self.shape().parent(block).ok_or(Errno::EFBIG)?;
        let (slot, frags) = (self.slot_at(i, parent)?, self.geom.block_frags());
        let pref = self.blkpref(i.ino, lbn, 0, Frag(0));
        let at = self.alloc(i.ino, Some(pref), frags)?;
        self.make_block(at, BlockKind::Indirect, vec![0; self.geom.block_size()])?;
        let content = Name::Block(at.0.into());
        self.dirty.own(content, i.ino);
        i.add_frags(frags, 0);
        let root = if let Parent::Root(k) = parent { Some(k) } else { None };
        match root {
            Some(k) => i.set_pointer(NDADDR + k, at),
            None => self.set_entry(slot, at, i.ino)?,
        }
        self.iput(i)?;
        let inode = root.map(|_| (i.at, i.size()));
        let set = PointerSet { slot, old: (Frag(0), 0), new: (at, frags), content, inode };
        self.ordering().pointer_set(self, &set)?;
        if i.is_dir() { self.ordering().leads_to_names(self, slot, content, None) } else { Ok(()) }
    }

    /// The slot of a pointer. The indirect block that holds it must exist.
    fn slot_at(&mut self, i: &Inode, parent: Parent) -> Result<Slot> {
        Ok(match parent {
            Parent::Direct(k) => (i.name(), i.pointer_at(k)),
            Parent::Root(k) => (i.name(), i.pointer_at(NDADDR + k)),
            Parent::Xattr => (i.name(), i.pointer_at(XATTR)),
            Parent::InXattr(_) => return Err(Errno::EIO.into()),
            Parent::Map { level, n, slot } => {
                let frag = self.pointer(i, FileBlock::Map { level, n })?;
                (Name::Block(frag.0.into()), slot * 4)
            }
        })
    }

    /// The slot of a logical block's pointer, its index in its array, and the pointer before it there. The indirect
    /// blocks above it must exist.
    fn find_slot(&mut self, i: &Inode, lbn: u64) -> Result<(Slot, u64, Frag)> {
        let parent = self.shape().parent(FileBlock::Data(lbn)).ok_or(Errno::EFBIG)?;
        let index = if let Parent::Direct(k) | Parent::Map { slot: k, .. } = parent { k as u64 } else { 0 };
        let before = if index > 0 { self.pointer(i, FileBlock::Data(lbn - 1))? } else { Frag(0) };
        Ok((self.slot_at(i, parent)?, index, before))
    }

    /// Changes the pointer to a logical block, in the inode or in an indirect block.
    fn set_slot(&mut self, i: &mut Inode, lbn: u64, slot: Slot, to: Frag) -> Result<()> {
        if lbn < NDADDR as u64 {
            i.set_pointer(lbn as usize, to);
            return Ok(());
        }
        self.set_entry(slot, to, i.ino)
    }

    /// Fails with `ENOSPC` unless so many blocks can be allocated.
    fn need_blocks(&self, missing: u64) -> Result<()> {
        let frags = missing * u64::from(self.geom.block_frags());
        if self.space.blocks_at_hand() < missing || self.space.available(&self.geom) < frags {
            Err(Errno::ENOSPC.into())
        } else {
            Ok(())
        }
    }

    fn set_entry(&mut self, (name, at): Slot, to: Frag, ino: Ino) -> Result<()> {
        self.modify(name, |buf| put_u32(buf, at, to.0))?;
        self.dirty.own(name, ino);
        Ok(())
    }

    /// Gives logical block `lbn` the fragments that a file of `size` bytes has there, changes its page, which must be
    /// in the cache, and makes the file at least that long.
    pub fn alloc_block(&mut self, i: &mut Inode, lbn: u64, size: u64, kind: BlockKind, fill: Fill<'_>) -> Result<Frag> {
        let done = self.balloc_page(i, lbn, size, kind, fill);
        let name = Name::data(i.ino, lbn);
        if done.is_err() && !self.dirty.contains(name) {
            // The page may have been made to be overwritten.
            self.cache.remove(name);
        }
        done
    }

    fn balloc_page(&mut self, i: &mut Inode, lbn: u64, size: u64, kind: BlockKind, fill: Fill<'_>) -> Result<Frag> {
        let old_size = i.size();
        let size = size.max(old_size);
        let want = self.geom.lbn_frags(size, lbn);
        let present = self.bmap(i, lbn)?;
        let have = present.map_or(0, |_| self.geom.lbn_frags(old_size, lbn).max(1));
        let name = Name::data(i.ino, lbn);
        let direct = lbn < NDADDR as u64;
        let (slot, index, before) =
            if direct || present.is_some() { self.find_slot(i, lbn)? } else { self.slot(i, lbn)? };
        let frag = match present {
            Some(frag) if have >= want => frag,
            _ => {
                let pref = self.blkpref(i.ino, lbn, index, before);
                match present {
                    Some(frag) => self.realloc_frags(i.ino, frag, (have, want), Some(pref))?,
                    None => self.alloc(i.ino, Some(pref), want)?,
                }
            }
        };
        let len = self.geom.bytes_of(want.max(have));
        self.change(name, (frag, kind, i.ino.0), |buf| fill(buf, len))?;
        i.d.size = size.into();
        if have >= want {
            self.iput(i)?;
            if size > old_size {
                self.ordering().size_grown(self, i, old_size, name);
            }
            return Ok(frag);
        }
        i.add_frags(want, have);
        self.set_slot(i, lbn, slot, frag)?;
        self.iput(i)?;
        if present.is_none() {
            self.pages.note_fresh(name);
        }
        let inode = direct.then_some((i.at, old_size));
        let old = (present.unwrap_or(Frag(0)), have);
        let set = PointerSet { slot, old, new: (frag, want), content: name, inode };
        self.ordering().pointer_set(self, &set)?;
        if kind == BlockKind::Dir && old_size > 0 {
            self.ordering().leads_to_names(self, slot, name, (!direct).then_some(((i.name(), i.at), old_size)))?;
        }
        Ok(frag)
    }

    /// A page of a file whose block is not a hole, read if it is not in the cache.
    fn mapped_page(&mut self, i: &Inode, lbn: u64, frag: Frag) -> Result<Arc<Vec<u8>>> {
        let name = Name::data(i.ino, lbn);
        if let Some(bytes) = self.cache.get(name) {
            return Ok(bytes.clone());
        }
        self.read_cluster(i, lbn, frag)?;
        self.cache.get(name).cloned().ok_or_else(|| Errno::EIO.into())
    }

    /// Reads a block; if the file is read one block after another, those that lie after it as well, up to a
    /// cluster.
    fn read_cluster(&mut self, i: &Inode, lbn: u64, frag: Frag) -> Result<()> {
        let (geom, n) = (self.geom, self.geom.block_frags());
        let most = if self.streams.expects(i.ino, lbn) { u64::from(self.sb.maxcontig.get()) } else { 1 };
        let mut lens = vec![geom.bytes_of(geom.lbn_frags(i.size(), lbn))];
        while (lens.len() as u64) < most && lens.last() == Some(&geom.block_size()) {
            let next = lbn + lens.len() as u64;
            let name = Name::data(i.ino, next);
            let frags = geom.lbn_frags(i.size(), next);
            let next_frag = Frag(frag.0.saturating_add(lens.len() as u32 * n));
            if next << geom.block_shift >= i.size()
                || self.cache.contains(name)
                || self.bmap(i, next)? != Some(next_frag)
            {
                break;
            }
            lens.push(geom.bytes_of(frags));
        }
        let bytes = or_first(lens.len(), |n| self.read(frag, lens.iter().take(n).sum(), BlockKind::Data))?;
        let mut rest = &bytes[..];
        for (k, len) in lens.iter().enumerate() {
            let Some((head, tail)) = rest.split_at_checked(*len) else { break };
            let (name, mut page) = (Name::data(i.ino, lbn + k as u64), head.to_vec());
            if self.zero_past_end(i, lbn + k as u64, &mut page) {
                self.pages.note_tail(name);
            }
            self.cache.insert(name, Arc::new(page));
            rest = tail;
        }
        self.streams.note(i.ino, lbn + lens.len() as u64);
        Ok(())
    }

    /// Zeroes the bytes of a page past the end of its file, which a power cut may have left there. Returns whether
    /// there were any.
    fn zero_past_end(&self, i: &Inode, lbn: u64, page: &mut [u8]) -> bool {
        let valid = i.size().saturating_sub(lbn << self.geom.block_shift);
        let Some(rest) = page.get_mut(valid.min(page.len() as u64) as usize..) else { return false };
        let some = rest.iter().any(|b| *b != 0);
        rest.fill(0);
        some
    }

    /// Called when a file is going to have `size` bytes, new ones behind its last block: extends the fragments of that
    /// block to what such a file has there, and sees to zeros on disk past the old end.
    fn fill_tail(&mut self, i: &mut Inode, size: u64) -> Result<()> {
        let Some(last) = i.size().checked_sub(1).map(|at| self.geom.lbn(at)) else { return Ok(()) };
        let more = self.geom.lbn_frags(size, last) > self.geom.lbn_frags(i.size(), last);
        if !more && i.size().is_multiple_of(self.geom.block_size() as u64) {
            return Ok(());
        }
        let Some(frag) = self.bmap(i, last)? else { return Ok(()) };
        self.mapped_page(i, last, frag)?;
        let is_tail = self.pages.has_tail(Name::data(i.ino, last));
        if !more && (!is_tail || planted(Flaw::TailShown)) {
            return Ok(());
        }
        // The size stays inside the block until later bytes are written.
        let size = (last + 1) << self.geom.block_shift;
        self.alloc_block(i, last, size, BlockKind::Data, &mut |buf, len| buf.resize(len, 0)).map(drop)
    }

    /// Called when a block was written to its end: starts the write of its cluster, if it is the last in it.
    fn write_cluster(&mut self, i: &mut Inode, lbn: u64) -> Result<()> {
        let most = u64::from(self.sb.maxcontig.get());
        if most < 2 || !(lbn + 1).is_multiple_of(most) {
            return Ok(());
        }
        let first = lbn + 1 - most;
        let names: Vec<Name> = (first..=lbn).map(|index| Name::data(i.ino, index)).collect();
        if names.iter().all(|n| self.dirty.contains(*n)) {
            self.gather(i, first, lbn)?;
            self.start_writes(&names)?;
        }
        Ok(())
    }

    /// Moves new blocks that are not contiguous to a free cluster (`ffs_reallocblks`).
    pub fn gather(&mut self, i: &mut Inode, first: u64, last: u64) -> Result<()> {
        let (n, len) = (self.geom.block_frags(), (last + 1 - first) as u32);
        if !self.opts.reallocblks || len < 2 {
            return Ok(());
        }
        let direct = last < NDADDR as u64;
        let shape = self.shape();
        let array = |lbn| match shape.parent(FileBlock::Data(lbn)) {
            Some(Parent::Map { level, n, .. }) => Some((level, n)),
            _ => None,
        };
        let same_array = array(first) == array(last);
        let mut old = Vec::new();
        for lbn in first..=last {
            let name = Name::data(i.ino, lbn);
            let whole = self.geom.lbn_frags(i.size(), lbn) == n;
            match self.bmap(i, lbn)? {
                Some(frag) if same_array && whole && self.pages.is_fresh(name) => old.push(frag),
                _ => return Ok(()),
            }
        }
        if old.windows(2).all(|w| w[1].0 == w[0].0 + n) {
            return Ok(());
        }
        let (_, index, before) = self.find_slot(i, first)?;
        let pref = self.blkpref(i.ino, first, index, before);
        if pref.0 >= self.geom.frags {
            return Ok(());
        }
        let Some(start) = self.clusteralloc(pref, len)? else { return Ok(()) };
        self.counters.reallocs += 1;
        for (k, frag) in old.into_iter().enumerate() {
            let (lbn, to) = (first + k as u64, Frag(start.0 + k as u32 * n));
            let name = Name::data(i.ino, lbn);
            let (slot, ..) = self.find_slot(i, lbn)?;
            self.set_slot(i, lbn, slot, to)?;
            self.iput(i)?;
            self.touch(name, to, BlockKind::Data, i.ino.0);
            let inode = direct.then_some((i.at, i.size()));
            let set = PointerSet { slot, old: (frag, n), new: (to, n), content: name, inode };
            self.ordering().pointer_set(self, &set)?;
        }
        Ok(())
    }

    /// Frees blocks from the end of a file: all direct ones, or those of one indirect block, so that a step is bounded.
    /// Returns the new size.
    pub fn truncate_some(&mut self, i: &mut Inode, to: u64) -> Result<u64> {
        let (geom, shape) = (self.geom, self.shape());
        let keep = to.div_ceil(geom.block_size() as u64);
        for level in (0..NIADDR).rev() {
            let (first, reach) = (shape.first(level as u8 + 1, 0), shape.reach(level as u8 + 1));
            let root = i.pointer(NDADDR + level);
            if root.0 == 0 || keep >= first + reach {
                continue;
            }
            let mut cut = Cut { first, keep: keep.saturating_sub(first), at: 0, freed: 0 };
            let gone = self.cut_indirect(i, root, (level, 0), &mut cut)?;
            if cut.freed == 0 && gone.is_none() {
                continue;
            }
            let size = ((first + cut.at).max(keep) << geom.block_shift).max(to);
            i.d.size = i.size().min(size).into();
            self.size_lowered(i);
            self.drop_pages(i, size.div_ceil(geom.block_size() as u64))?;
            let slot = (i.name(), i.pointer_at(NDADDR + level));
            let Some(mut gone) = gone else {
                self.iput(i)?;
                return Ok(i.size().max(to));
            };
            gone.own((root, geom.block_frags()));
            i.set_pointer(NDADDR + level, Frag(0));
            i.add_frags(0, gone.counted);
            self.iput(i)?;
            self.ordering().pointer_cleared(self, slot, &gone.runs)?;
            return Ok(i.size().max(to));
        }
        self.truncate_direct(i, to)?;
        Ok(to)
    }

    /// Frees blocks from `cut.keep` on in the last of the lowest indirect blocks under `frag` that has any there. If
    /// `frag` itself has none left then, the caller frees the runs returned, and `frag`, with the pointer to it.
    fn cut_indirect(
        &mut self,
        i: &mut Inode,
        frag: Frag,
        (level, base): (usize, u64),
        cut: &mut Cut,
    ) -> Result<Option<Gone>> {
        let (n, block) = (self.geom.nindir(), self.geom.block_frags());
        let unit = self.shape().reach(level as u8);
        self.pointer_checked(i, self.shape().above(cut.first + base, level as u8 + 1), frag, block)?;
        let bytes = self.block(frag, BlockKind::Indirect)?.to_vec();
        let used: Vec<(u64, Frag)> =
            (0..n).map(|k| (k, Frag(get_u32(&bytes, k as usize * 4).unwrap_or(0)))).filter(|e| e.1.0 != 0).collect();
        let beyond = used.iter().filter(|(k, _)| base + (k + 1) * unit > cut.keep).count();
        let (stays, goes) = used.split_at(used.len() - beyond);
        cut.at = base.max(cut.keep);
        // Entries to be cleared, each with the runs to be freed.
        let mut freed: Vec<(u64, Gone)> = Vec::new();
        if level == 0 {
            let mut groups: Vec<u32> = Vec::new();
            for (k, f) in goes.iter().rev() {
                self.pointer_checked(i, FileBlock::Data(cut.first + base + k), *f, block)?;
                let cgx = self.geom.cg_of(*f);
                if !groups.contains(&cgx) {
                    groups.push(cgx);
                }
                if groups.len() > STEP_GROUPS {
                    break;
                }
                let mut gone = Gone::default();
                gone.own((*f, block));
                freed.push((*k, gone));
                cut.at = cut.keep.max(base + k);
            }
            if freed.len() == goes.len() {
                cut.at = base.max(cut.keep);
            }
        } else if let Some((k, child)) = goes.last()
            && let Some(mut gone) = self.cut_indirect(i, *child, (level - 1, base + k * unit), cut)?
        {
            gone.own((*child, block));
            freed.push((*k, gone));
        }
        cut.freed += freed.len();
        let name = Name::Block(frag.0.into());
        if stays.is_empty() && freed.len() == goes.len() {
            // The pointer to this block is cleared, so its contents do not matter.
            let mut gone = Gone { runs: self.cancel_buffer(name)?, counted: 0 };
            for (_, g) in freed {
                gone.runs.extend(g.runs);
                gone.counted += g.counted;
            }
            self.forget(name);
            return Ok(Some(gone));
        }
        for (k, gone) in freed {
            let slot = (name, k as usize * 4);
            i.add_frags(0, gone.counted);
            self.set_entry(slot, Frag(0), i.ino)?;
            self.ordering().pointer_cleared(self, slot, &gone.runs)?;
        }
        Ok(None)
    }

    /// Frees direct blocks, and fragments of the last one, from byte `to` on.
    fn truncate_direct(&mut self, i: &mut Inode, to: u64) -> Result<()> {
        let geom = self.geom;
        let keep = to.div_ceil(geom.block_size() as u64);
        let old_size = i.size();
        let mut freed = Vec::new();
        for lbn in keep.min(NDADDR as u64)..NDADDR as u64 {
            let frags = geom.lbn_frags(old_size, lbn).max(1);
            if let Some(frag) = self.pointer_checked(i, FileBlock::Data(lbn), i.pointer(lbn as usize), frags)? {
                freed.push((lbn, frag, frags));
            }
        }
        let mut tail: Option<(Frag, u32)> = None;
        if let Some(last) = keep.checked_sub(1).filter(|l| *l < NDADDR as u64 && to < old_size) {
            let (old, new) = (geom.lbn_frags(old_size, last), geom.lbn_frags(to, last));
            tail = self.bmap(i, last)?.filter(|_| new < old).map(|frag| (Frag(frag.0 + new), old - new));
        }
        self.cut_last(i, to)?;
        for (lbn, _, frags) in &freed {
            i.set_pointer(*lbn as usize, Frag(0));
            i.add_frags(0, *frags);
        }
        i.add_frags(0, tail.map_or(0, |t| t.1));
        i.d.size = to.into();
        self.size_lowered(i);
        self.drop_pages(i, keep)?;
        self.iput(i)?;
        for (lbn, frag, frags) in freed {
            self.ordering().pointer_cleared(self, (i.name(), i.pointer_at(lbn as usize)), &[(frag, frags)])?;
        }
        match tail {
            Some(run) => self.ordering().blocks_freed(self, i.name(), &[run]),
            None => Ok(()),
        }
    }

    /// Zeroes the block that holds byte `to` from there on, and shortens its page to the fragments that stay.
    fn cut_last(&mut self, i: &Inode, to: u64) -> Result<()> {
        let (lbn, within) = (self.geom.lbn(to), (to % self.geom.block_size() as u64) as usize);
        if within == 0 || to >= i.size() || !i.is_file() {
            return Ok(());
        }
        let Some(frag) = self.bmap(i, lbn)? else { return Ok(()) };
        self.mapped_page(i, lbn, frag)?;
        let len = self.geom.bytes_of(self.geom.lbn_frags(to, lbn));
        let name = Name::data(i.ino, lbn);
        self.change(name, (frag, BlockKind::Data, i.ino.0), |buf| {
            buf.resize(len, 0);
            if let Some(rest) = buf.get_mut(within..) {
                rest.fill(0);
            }
        })
    }

    /// Drops the pages of a file from block `from` on.
    fn drop_pages(&mut self, i: &Inode, from: u64) -> Result<()> {
        let dirty: Vec<u64> = self.cache.dirty_pages(i.ino, from).collect();
        for index in dirty {
            let page = Name::data(i.ino, index);
            if i.d.nlink.get() > 0 {
                // A name that waits for these data waits until they are gone on disk too (FFS-C7).
                self.deps.await_instead(page, i.name());
            }
            self.drop_buffer(page)?;
        }
        self.cache.drop_pages(i.ino, from);
        Ok(())
    }

    /// Target of a symbolic link.
    pub fn read_target(&mut self, i: &Inode) -> Result<Vec<u8>> {
        let size = i.size() as usize;
        if i.d.is_fast_link() {
            let bytes = self.block(i.block, BlockKind::Inodes)?;
            let at = i.at + FAST_LINK_AT;
            return Ok(bytes.get(at..at + size).unwrap_or(&[]).to_vec());
        }
        let geom = self.geom;
        let hole = || i.corrupt(&geom, field!(Dinode, db), 0, "the target's block");
        let frag = self.bmap(i, 0)?.ok_or_else(hole)?;
        let page = self.mapped_page(i, 0, frag)?;
        let long = || i.corrupt(&geom, field!(Dinode, size), size, "a target within its block");
        let target = page.get(..size).ok_or_else(long)?;
        if target.contains(&0) {
            return Err(Corrupt::new("symbolic link", "target", self.geom.byte(frag), "NUL", "a path").into());
        }
        Ok(target.to_vec())
    }

    /// Stores the target of a new symbolic link.
    pub fn store_target(&mut self, i: &mut Inode, target: &[u8]) -> Result<()> {
        if target.len() <= FAST_LINK {
            i.d.size = (target.len() as u64).into();
            self.iput(i)?;
            let at = i.at + FAST_LINK_AT;
            self.modify(i.name(), |buf| put(buf, at, target))?;
            // The caller stores its copy later.
            *i = self.iget(i.ino)?;
            return Ok(());
        }
        blockfile::store_target(self, i, target)
    }
}

arbor_kit::block_file!(Inode);

impl BlockMap for Core {
    type Ptr = Frag;

    fn shape(&self) -> Shape {
        self.geom.shape()
    }

    fn inode_pointer(&self, i: &Inode, at: Parent) -> Frag {
        match at {
            Parent::Direct(k) => i.pointer(k),
            Parent::Root(k) => i.pointer(NDADDR + k),
            Parent::Xattr => i.pointer(XATTR),
            Parent::InXattr(_) | Parent::Map { .. } => Frag(0),
        }
    }

    fn indirect(&mut self, i: &Inode, level: u8, n: u64) -> Result<Option<Arc<Vec<u8>>>> {
        let frag = self.pointer(i, FileBlock::Map { level, n })?;
        match self.pointer_checked(i, FileBlock::Map { level, n }, frag, self.geom.block_frags())? {
            None => Ok(None),
            Some(frag) => self.block(frag, BlockKind::Indirect).cloned().map(Some),
        }
    }

    fn entry(table: &[u8], slot: usize) -> Frag {
        Frag(get_u32(table, slot * 4).unwrap_or(0))
    }

    fn is_hole(p: Frag) -> bool {
        p.0 == 0
    }

    fn most_indirect(&self, _i: &Inode) -> u64 {
        u64::from(self.geom.frags / self.geom.block_frags())
    }

    fn too_many_indirect(&self, i: &Inode) -> Error {
        i.corrupt(&self.geom, field!(Dinode, ib), "indirect blocks without end", "as many as it has room for").into()
    }
}

impl BlockFiles for Core {
    fn block_shift(&self) -> u32 {
        self.geom.block_shift
    }

    fn max_size(&self) -> u64 {
        self.geom.max_size()
    }

    fn page(&mut self, i: &Inode, lbn: u64) -> Result<Option<Arc<Vec<u8>>>> {
        match self.bmap(i, lbn)? {
            None => Ok(None),
            Some(frag) => self.mapped_page(i, lbn, frag).map(Some),
        }
    }

    fn page_len(&self, i: &Inode, lbn: u64) -> usize {
        self.geom.bytes_of(self.geom.lbn_frags(i.size(), lbn).max(1))
    }

    fn balloc(&mut self, i: &mut Inode, lbn: u64, size: u64, fill: Fill<'_>) -> Result<()> {
        let kind = if i.is_dir() { BlockKind::Dir } else { BlockKind::Data };
        self.alloc_block(i, lbn, size, kind, fill).map(drop)
    }

    fn release_block(&mut self, i: &mut Inode, lbn: u64) -> Result<()> {
        let Some(frag) = self.bmap(i, lbn)? else { return Ok(()) };
        let frags = self.geom.lbn_frags(i.size(), lbn);
        self.drop_buffer(Name::data(i.ino, lbn))?;
        i.add_frags(0, frags);
        let (slot, ..) = self.find_slot(i, lbn)?;
        self.set_slot(i, lbn, slot, Frag(0))?;
        self.iput(i)?;
        self.ordering().pointer_cleared(self, slot, &[(frag, frags)])
    }

    fn lengthen_tail(&mut self, i: &mut Inode, _from: u64, size: u64) -> Result<()> {
        self.fill_tail(i, size)
    }

    fn truncate_step(&mut self, i: &mut Inode, to: u64) -> Result<u64> {
        self.truncate_some(i, to)
    }

    fn undo_growth(&mut self, i: &mut Inode, to: u64) -> Result<()> {
        self.truncate_direct(i, to)
    }

    fn block_filled(&mut self, i: &mut Inode, lbn: u64) -> Result<()> {
        self.write_cluster(i, lbn)
    }

    fn tail_unseen(&mut self, i: &Inode, lbn: u64) {
        self.pages.note_tail(Name::data(i.ino, lbn));
    }

    fn has_room_for_step(&mut self) -> bool {
        self.ordering().joins_steps(self)
    }

    fn may_write_on(&self) -> bool {
        self.ordering().may_write_on(self)
    }
}

/// Runs to be freed, and how many of their fragments the inode still counts: runs that it gave up before, and whose
/// freeing waits, are not counted.
#[derive(Default)]
struct Gone {
    runs: Vec<(Frag, u32)>,
    counted: u32,
}

impl Gone {
    fn own(&mut self, run: (Frag, u32)) {
        self.runs.push(run);
        self.counted += run.1;
    }
}

/// A step of a truncation, in the area that one of the inode's indirect blocks covers.
struct Cut {
    /// First block of the area.
    first: u64,
    /// Blocks of the area that stay.
    keep: u64,
    /// Block of the area from which on nothing is left.
    at: u64,
    /// Pointers that were freed.
    freed: usize,
}
