//! Files: the map from logical blocks to fragments, reading, writing, truncation.
//!
//! A write changes buffers named by file and logical block; they get their addresses when a segment is written
//! (`commit.rs`). Until then a changed block has a pointer [`UNWRITTEN`], and indirect blocks above it, so that its
//! space is counted. Bytes of a page after the end of the file are zero. A page is as long as its fragments.

use crate::format::*;
use crate::inode::Inode;
use crate::planted::{Flaw, planted};
use crate::volume::Core;
use arbor_base::cache::{Edit, FileBlock, Name};
use arbor_base::device::Kind;
use arbor_base::layout::{Corrupt, Location, crc, put};
use arbor_base::vfs::{Errno, Error, Result};
use arbor_kit::blockfile::{BlockFiles, Fill};
use arbor_kit::blockmap::{BlockMap, Mapped as _, Parent, Shape};
use arbor_kit::inodes::InodeStore as _;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// How many sequentially read files are remembered.
const STREAMS: usize = 32;
/// Bytes of a cluster, the largest read.
const CLUSTER: usize = 256 << 10;

impl Core {
    /// Where the pointer to a block lies.
    fn pointer_location(&mut self, i: &Inode, block: FileBlock) -> Result<Location> {
        let Some(Parent::Map { level, n, slot }) = self.shape().parent(block) else {
            return Ok(Location::inode(i.ino));
        };
        match self.pointer(i, FileBlock::Map { level, n })?.frag.get() {
            // It has no address yet.
            0 | UNWRITTEN => Ok(Location::inode(i.ino)),
            frag => Ok(Location::from(self.geom.byte(Frag(frag))).plus((slot * POINTER) as u64)),
        }
    }

    /// Fails unless the pointer to a block points to `frags` fragments of one segment.
    pub fn check_pointer(&mut self, (i, block): (&Inode, FileBlock), p: Pointer, frags: u32) -> Result<()> {
        let frag = p.frag.get();
        if self.is_run(Frag(frag), frags) {
            return Ok(());
        }
        let (at, found) = (self.pointer_location(i, block)?, format!("{frag} (inode {}, {block:?})", i.ino));
        Err(Corrupt::new("pointer", "frag", at, found, "fragments of one segment").into())
    }

    /// Reads the block of a file that a pointer points to, and verifies it; rereads it if the checksum is wrong.
    pub fn read_block(&mut self, of: (&Inode, FileBlock), p: Pointer, frags: u32, kind: Kind) -> Result<Vec<u8>> {
        let frag = Frag(p.frag.get());
        self.check_pointer(of, p, frags)?;
        let bytes = self.read_run(frag, frags, kind)?;
        if crc(&bytes) == p.crc.get() { Ok(bytes) } else { self.read_block_again(of, p, frags, kind) }
    }

    /// Rereads a block whose checksum was wrong, under the lock.
    pub fn read_block_again(&mut self, of: (&Inode, FileBlock), p: Pointer, frags: u32, kind: Kind) -> Result<Vec<u8>> {
        let frag = Frag(p.frag.get());
        self.check_pointer(of, p, frags)?;
        let bytes = self.read_run_again(frag, frags, kind)?;
        self.verify(p, &bytes)?;
        Ok(bytes)
    }

    /// Counts the block that a pointer of a changed file points to as dead.
    pub fn mark_dead(&mut self, i: &Inode, place: FileBlock, p: Pointer) {
        let frag = p.frag.get();
        if frag == 0 || frag == UNWRITTEN {
            return;
        }
        let bytes = self.geom.bytes_of(self.disk_frags(i.ino, place)) as u32;
        self.mark_run_dead(Frag(frag), bytes);
    }

    /// Sets the pointer to a block. The indirect block that holds it must exist.
    pub fn set_pointer(&mut self, i: &mut Inode, block: FileBlock, to: Pointer) -> Result<()> {
        let slot = match self.shape().parent(block).ok_or(Errno::EFBIG)? {
            Parent::Direct(k) => i.d.db.get_mut(k),
            Parent::Root(k) => i.d.ib.get_mut(k),
            Parent::Xattr => Some(&mut i.d.xattr),
            Parent::InXattr(_) => None,
            Parent::Map { level, n, slot } => {
                self.mark(i.ino)?;
                return self.change(i, FileBlock::Map { level, n }, |buf| put(buf, slot * POINTER, to.as_bytes()));
            }
        };
        *slot.ok_or(Errno::EFBIG)? = to;
        self.iput(i)
    }

    /// Changes a block of a file in the cache. If it was clean, the indirect blocks above it become dirty first, so
    /// that room for them is counted (LFS-B2, `Core::wanted_segs`); they must exist.
    pub fn change<R>(&mut self, i: &Inode, block: FileBlock, f: impl FnOnce(&mut Vec<u8>) -> R) -> Result<R> {
        let name = Name::File(i.ino, block);
        let dirty = match self.cache.edit(name).ok_or(Errno::EIO)? {
            Edit::Dirty(dirty) => dirty,
            Edit::Clean(clean) => {
                self.dirty_parents(i, block)?;
                self.cache.make_dirty(clean).ok_or(Errno::EIO)?
            }
        };
        self.calls.note_change();
        Ok(self.cache.modify(dirty, f))
    }

    /// Makes the indirect blocks above a block dirty (LFS-B2).
    pub fn dirty_parents(&mut self, i: &Inode, mut at: FileBlock) -> Result<()> {
        while let Some(Parent::Map { level, n, .. }) = self.shape().parent(at) {
            self.indirect(i, level, n)?.ok_or(Errno::EIO)?;
            at = FileBlock::Map { level, n };
            match self.cache.edit(Name::File(i.ino, at)).ok_or(Errno::EIO)? {
                Edit::Clean(clean) if !planted(Flaw::StalePointers) => drop(self.cache.make_dirty(clean)),
                _ => break,
            }
        }
        Ok(())
    }

    /// Adds `more` to the fragments that a file counts, and subtracts `less`: it counts all that it is going to have
    /// (LFS-F2).
    pub fn count(&mut self, i: &mut Inode, more: u32, less: u32) {
        i.d.frags = (i.d.frags.get() + u64::from(more)).saturating_sub(less.into()).into();
        if i.ino != IFILE {
            self.state.file_frags = (self.state.file_frags + u64::from(more)).saturating_sub(less.into());
        }
    }

    /// Makes the missing indirect blocks above a logical block, and an [`UNWRITTEN`] pointer if it is a hole.
    pub fn ensure(&mut self, i: &mut Inode, lbn: u64) -> Result<()> {
        for (level, n) in self.missing(i, lbn)? {
            let block = FileBlock::Map { level, n };
            self.mark(i.ino)?;
            self.set_pointer(i, block, Pointer { frag: UNWRITTEN.into(), crc: 0.into() })?;
            self.cache.insert(Name::File(i.ino, block), Arc::new(vec![0; self.geom.block_size()]));
            self.change(i, block, |_| ())?;
            self.count(i, self.geom.block_frags(), 0);
            self.iput(i)?;
        }
        if !self.is_mapped(i, lbn)? {
            self.set_pointer(i, FileBlock::Data(lbn), Pointer { frag: UNWRITTEN.into(), crc: 0.into() })?;
        }
        self.dirty_parents(i, FileBlock::Data(lbn))
    }

    /// Gives logical block `lbn` the fragments that a file of `size` bytes has there, changes its page, which is
    /// in the cache, and makes the file at least that long.
    pub fn alloc_block(&mut self, i: &mut Inode, lbn: u64, size: u64, fill: Fill<'_>) -> Result<()> {
        let name = Name::data(i.ino, lbn);
        let done = self.balloc_page(i, lbn, size, fill);
        if done.is_err() && !self.cache.is_dirty(name) {
            // The page may have been made only to be overwritten.
            self.cache.remove(name);
        }
        done
    }

    fn balloc_page(&mut self, i: &mut Inode, lbn: u64, size: u64, fill: Fill<'_>) -> Result<()> {
        let (old_size, size) = (i.size(), size.max(i.size()));
        let want = self.geom.lbn_frags(size, lbn);
        let present = self.is_mapped(i, lbn)?;
        let have = if present { self.geom.lbn_frags(old_size, lbn) } else { 0 };
        let more = if present { 0 } else { self.missing(i, lbn)?.len() as u32 * self.geom.block_frags() };
        self.need(want.saturating_sub(have) + more)?;
        self.mark(i.ino)?;
        self.ensure(i, lbn)?;
        let len = self.geom.bytes_of(want.max(have));
        self.modify(Name::data(i.ino, lbn), |buf| fill(buf, len))?;
        i.d.size = size.into();
        self.count(i, want, have.min(want));
        self.iput(i)
    }

    /// The page of a block that is not a hole; reads it if it is not in the cache.
    fn mapped_page(&mut self, i: &Inode, lbn: u64, p: Pointer) -> Result<Arc<Vec<u8>>> {
        let name = Name::data(i.ino, lbn);
        if let Some(bytes) = self.cache.get(name) {
            return Ok(bytes.clone());
        }
        self.read_cluster(i, lbn, p)?;
        self.cache.get(name).cloned().ok_or_else(|| Errno::EIO.into())
    }

    /// The fragments that a block has on disk.
    fn run_of(&self, i: &Inode, lbn: u64) -> u32 {
        let size = self.changed.get(&i.ino.0).map_or(i.size(), |c| c.disk_size);
        self.geom.lbn_frags(size, lbn)
    }

    /// Reads a block; of a file that is read sequentially, also the adjacent blocks after it, up to a cluster.
    fn read_cluster(&mut self, i: &Inode, lbn: u64, p: Pointer) -> Result<()> {
        let expected = lbn == 0 || self.streams.contains(&(i.ino.0, lbn));
        let most = if expected { (CLUSTER >> self.geom.block_shift).max(1) } else { 1 };
        let n = self.geom.block_frags();
        let mut all = vec![(p, self.run_of(i, lbn))];
        while all.len() < most && all.last().is_some_and(|a| a.1 == n) {
            let next = lbn + all.len() as u64;
            let frags = self.run_of(i, next);
            if frags == 0 || self.cache.contains(Name::data(i.ino, next)) {
                break;
            }
            let q = self.pointer(i, FileBlock::Data(next))?;
            if q.frag.get() != p.frag.get().saturating_add(all.len() as u32 * n) {
                break;
            }
            all.push((q, frags));
        }
        let kind = if i.is_dir() { Kind::Dir } else { Kind::Data };
        let total = all.iter().map(|a| a.1).sum();
        // A damaged pointer may not point to a run of one segment.
        let together = self.is_run(Frag(p.frag.get()), total);
        let bytes = match together {
            // What cannot be read with others is read by itself.
            true => self.read_run(Frag(p.frag.get()), total, kind).or_else(|e| match e {
                Error::Io(_) => Ok(Vec::new()),
                e => Err(e),
            })?,
            false => Vec::new(),
        };
        let mut from = 0;
        for (k, (q, frags)) in (lbn..).zip(all) {
            let len = self.geom.bytes_of(frags);
            let mut page = bytes.get(from..from + len).unwrap_or(&[]).to_vec();
            from += len;
            if page.is_empty() || self.verify(q, &page).is_err() {
                if k > lbn {
                    break;
                }
                page = self.read_block_again((i, FileBlock::Data(k)), q, frags, kind)?;
            }
            match self.keep_page(i, k, page) {
                Err(_) if k > lbn => break,
                kept => kept?,
            }
        }
        self.streams.retain(|s| s.0 != i.ino.0);
        self.streams.push_front((i.ino.0, lbn + (from >> self.geom.block_shift).max(1) as u64));
        self.streams.truncate(STREAMS);
        Ok(())
    }

    /// Puts a page that was read into the cache, as long as the file has it now.
    fn keep_page(&mut self, i: &Inode, lbn: u64, mut page: Vec<u8>) -> Result<()> {
        let len = self.geom.bytes_of(self.geom.lbn_frags(i.size(), lbn));
        let valid = i.size().saturating_sub(lbn << self.geom.block_shift).min(len as u64) as usize;
        page.truncate(valid);
        page.resize(len, 0);
        if i.is_dir() {
            crate::validate::dir_block(i.ino, lbn << self.geom.block_shift, &page)?;
        }
        self.cache.insert(Name::data(i.ino, lbn), Arc::new(page));
        Ok(())
    }

    /// A page of a directory, or of anything else that is read whole.
    pub fn whole_page(&mut self, i: &Inode, lbn: u64) -> Result<Arc<Vec<u8>>> {
        match self.pointer(i, FileBlock::Data(lbn))? {
            p if p.frag.get() == 0 => Err(i.corrupt("db", lbn, "a block, not a hole").into()),
            p => self.mapped_page(i, lbn, p),
        }
    }

    /// Extends the last block of a file, if it is a run of fragments, to what a file of `size` bytes has there.
    fn fill_tail(&mut self, i: &mut Inode, size: u64) -> Result<()> {
        let Some(last) = i.size().checked_sub(1).map(|at| self.geom.lbn(at)) else { return Ok(()) };
        let (old, new) = (self.geom.lbn_frags(i.size(), last), self.geom.lbn_frags(size, last));
        if last >= NDADDR as u64 || new <= old || self.geom.lbn(size - 1) == last {
            return Ok(());
        }
        let p = self.pointer(i, FileBlock::Data(last))?;
        if p.frag.get() == 0 {
            return Ok(());
        }
        self.mapped_page(i, last, p)?;
        // The size stays inside the block until a block after it is written.
        let size = (last + 1) << self.geom.block_shift;
        self.alloc_block(i, last, size, &mut |buf, len| buf.resize(len, 0))
    }

    /// Frees blocks from the end of a file: those below one lowest indirect block, or all direct ones, so that a step
    /// is bounded. Returns the new size.
    pub fn truncate_some(&mut self, i: &mut Inode, to: u64) -> Result<u64> {
        let keep = to.div_ceil(self.geom.block_size() as u64).max(NDADDR as u64);
        let Some(n) = self.last_leaf(i, keep)? else {
            self.truncate_direct(i, to)?;
            return Ok(to);
        };
        let (first, per) = (self.shape().first(1, n), self.shape().fanout);
        let table = self.indirect(i, 1, n)?.ok_or(Errno::EIO)?;
        let pointers = table.chunks_exact(POINTER).map(|p| Pointer::read_from_bytes(p).unwrap_or_default());
        self.check_freed(i, (first..).zip(pointers).filter(|(lbn, _)| *lbn >= keep))?;
        self.mark(i.ino)?;
        if keep <= first {
            self.free_leaf(i, n)?;
        }
        for at in (keep.max(first) - first..per).rev().filter(|_| keep > first) {
            self.free_block(i, FileBlock::Data(first + at))?;
        }
        let size = (keep.max(first) << self.geom.block_shift).max(to);
        i.d.size = i.size().min(size).into();
        self.cache.drop_pages(i.ino, keep.max(first));
        self.iput(i)?;
        Ok(i.size().max(to))
    }

    /// The last lowest indirect block of a file, if it points to blocks from `keep` on.
    fn last_leaf(&mut self, i: &Inode, keep: u64) -> Result<Option<u64>> {
        let Some(n) = self.last_indirect(i)? else { return Ok(None) };
        let first = self.shape().first(1, n);
        let table = self.indirect(i, 1, n)?.ok_or(Errno::EIO)?;
        let used = (0..self.shape().fanout).rev().find(|k| !Self::is_hole(Self::entry(&table, *k as usize)));
        let goes = first >= keep || used.is_some_and(|k| first + k >= keep);
        Ok(goes.then_some(n))
    }

    /// Fails unless blocks that are about to be freed lie in segments, and the file counts them.
    fn check_freed(&mut self, i: &Inode, blocks: impl Iterator<Item = (u64, Pointer)>) -> Result<()> {
        let changed = self.changed.contains_key(&i.ino.0);
        let mut frags = 0;
        for (lbn, p) in blocks.filter(|(_, p)| !Self::is_hole(*p)) {
            let place = FileBlock::Data(lbn);
            let counted = self.geom.lbn_frags(i.size(), lbn);
            frags += u64::from(counted);
            if p.frag.get() != UNWRITTEN {
                let on_disk = if changed { self.disk_frags(i.ino, place) } else { counted };
                self.check_pointer((i, place), p, on_disk.max(1))?;
            }
        }
        if i.d.frags.get() < frags { Err(Self::wrong_count(i)) } else { Ok(()) }
    }

    fn wrong_count(i: &Inode) -> Error {
        i.corrupt("frags", i.d.frags, "as many fragments as its blocks have").into()
    }

    /// Frees a block of a file, if it is not a hole.
    fn free_block(&mut self, i: &mut Inode, place: FileBlock) -> Result<()> {
        let p = self.pointer(i, place)?;
        if p.frag.get() == 0 {
            return Ok(());
        }
        let frags = match place {
            FileBlock::Data(lbn) => self.geom.lbn_frags(i.size(), lbn),
            _ => self.geom.block_frags(),
        };
        self.count_less(i, frags)?;
        self.mark_dead(i, place, p);
        self.cache.remove(Name::File(i.ino, place));
        self.set_pointer(i, place, Pointer::default())
    }

    /// Frees a lowest indirect block of a file, with all blocks that it points to; the caller drops their pages.
    fn free_leaf(&mut self, i: &mut Inode, n: u64) -> Result<()> {
        let bytes = self.indirect(i, 1, n)?.ok_or(Errno::EIO)?;
        let first = self.shape().first(1, n);
        let mut frags = 0;
        for (lbn, p) in (first..).zip(bytes.chunks_exact(POINTER)) {
            let Ok(p) = Pointer::read_from_bytes(p) else { continue };
            if p.frag.get() != 0 {
                frags += self.geom.lbn_frags(i.size(), lbn);
                self.mark_dead(i, FileBlock::Data(lbn), p);
            }
        }
        self.count_less(i, frags)?;
        self.free_empty(i, FileBlock::Map { level: 1, n })
    }

    /// Subtracts fragments from those that a file counts.
    fn count_less(&mut self, i: &mut Inode, frags: u32) -> Result<()> {
        if i.d.frags.get() < frags.into() {
            return Err(Self::wrong_count(i));
        }
        self.count(i, 0, frags);
        Ok(())
    }

    /// Frees an indirect block that has become empty, and those above it that become so.
    fn free_empty(&mut self, i: &mut Inode, mut place: FileBlock) -> Result<()> {
        loop {
            self.free_block(i, place)?;
            let Some(Parent::Map { level, n, .. }) = self.shape().parent(place) else { return Ok(()) };
            let bytes = self.indirect(i, level, n)?.ok_or(Errno::EIO)?;
            if (0..bytes.len() / POINTER).any(|k| !Self::is_hole(Self::entry(&bytes, k))) {
                return Ok(());
            }
            place = FileBlock::Map { level, n };
        }
    }

    /// Frees direct blocks, and fragments of the last one, from byte `to` on.
    pub fn truncate_direct(&mut self, i: &mut Inode, to: u64) -> Result<()> {
        let keep = to.div_ceil(self.geom.block_size() as u64);
        let direct = i.d.db;
        self.check_freed(i, (0..).zip(direct).filter(|(lbn, _)| *lbn >= keep))?;
        self.cut_last(i, to)?;
        self.mark(i.ino)?;
        for lbn in keep.min(NDADDR as u64)..NDADDR as u64 {
            self.free_block(i, FileBlock::Data(lbn))?;
        }
        i.d.size = to.into();
        self.cache.drop_pages(i.ino, keep);
        self.iput(i)
    }

    /// Zeros the last block from byte `to` on, and shortens its page to its fragments.
    fn cut_last(&mut self, i: &mut Inode, to: u64) -> Result<()> {
        let (lbn, within) = (self.geom.lbn(to.saturating_sub(1)), to as usize % self.geom.block_size());
        if to == 0 || to >= i.size() || !i.is_file() {
            return Ok(());
        }
        let p = self.pointer(i, FileBlock::Data(lbn))?;
        if p.frag.get() == 0 {
            return Ok(());
        }
        let (old, new) = (self.geom.lbn_frags(i.size(), lbn), self.geom.lbn_frags(to, lbn));
        if within == 0 && old == new {
            return Ok(());
        }
        self.mapped_page(i, lbn, p)?;
        self.mark(i.ino)?;
        let len = self.geom.bytes_of(new);
        self.change(i, FileBlock::Data(lbn), |buf| {
            buf.resize(len, 0);
            if let Some(rest) = buf.get_mut(within..).filter(|_| within > 0) {
                rest.fill(0);
            }
        })?;
        self.count(i, new, old);
        Ok(())
    }

    /// Reads the target of a symbolic link.
    pub fn read_target(&mut self, i: &Inode) -> Result<Vec<u8>> {
        let size = i.size() as usize;
        let bytes = if i.d.is_fast_link() {
            i.d.as_bytes().get(FAST_LINK_AT..FAST_LINK_AT + size).map(<[u8]>::to_vec)
        } else {
            self.whole_page(i, 0)?.get(..size).map(<[u8]>::to_vec)
        };
        let bytes = bytes.filter(|b| !b.contains(&0));
        bytes.ok_or_else(|| i.corrupt("size", size, "a target without NUL, within its block").into())
    }
}

arbor_kit::usual_fields!(Inode);

impl BlockMap for Core {
    type Ptr = Pointer;

    fn shape(&self) -> Shape {
        self.geom.shape()
    }

    fn inode_pointer(&self, i: &Inode, at: Parent) -> Pointer {
        match at {
            Parent::Direct(k) => i.d.db.get(k).copied().unwrap_or_default(),
            Parent::Root(k) => i.d.ib.get(k).copied().unwrap_or_default(),
            Parent::Xattr => i.d.xattr,
            Parent::InXattr(_) | Parent::Map { .. } => Pointer::default(),
        }
    }

    fn indirect(&mut self, i: &Inode, level: u8, n: u64) -> Result<Option<Arc<Vec<u8>>>> {
        let name = Name::File(i.ino, FileBlock::Map { level, n });
        if let Some(bytes) = self.cache.get(name) {
            return Ok(Some(bytes.clone()));
        }
        let p = self.pointer(i, FileBlock::Map { level, n })?;
        if Self::is_hole(p) {
            return Ok(None);
        }
        let bytes = self.read_block((i, FileBlock::Map { level, n }), p, self.geom.block_frags(), Kind::Tree)?;
        let bytes = Arc::new(bytes);
        self.cache.insert(name, bytes.clone());
        Ok(Some(bytes))
    }

    fn entry(table: &[u8], slot: usize) -> Pointer {
        let p = table.get(slot * POINTER..(slot + 1) * POINTER);
        p.and_then(|p| Pointer::read_from_bytes(p).ok()).unwrap_or_default()
    }

    fn is_hole(p: Pointer) -> bool {
        p.frag.get() == 0
    }

    fn most_indirect(&self, i: &Inode) -> u64 {
        // The ifile counts its indirect blocks only, and nobody relies on it.
        let all = u64::from(self.segs.count()) * u64::from(self.geom.seg_frags());
        (if i.ino == IFILE { all } else { i.d.frags.get() }) / u64::from(self.geom.block_frags())
    }

    fn too_many_indirect(&self, i: &Inode) -> Error {
        i.corrupt("frags", i.d.frags, "as many fragments as its blocks have").into()
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
        match self.pointer(i, FileBlock::Data(lbn))? {
            p if p.frag.get() == 0 => Ok(None),
            p => self.mapped_page(i, lbn, p).map(Some),
        }
    }

    fn page_len(&self, i: &Inode, lbn: u64) -> usize {
        self.geom.bytes_of(self.geom.lbn_frags(i.size(), lbn))
    }

    fn balloc(&mut self, i: &mut Inode, lbn: u64, size: u64, fill: Fill<'_>) -> Result<()> {
        self.alloc_block(i, lbn, size, fill)
    }

    fn release_block(&mut self, i: &mut Inode, lbn: u64) -> Result<()> {
        self.mark(i.ino)?;
        self.free_block(i, FileBlock::Data(lbn))?;
        self.iput(i)
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
}
