//! Files: the map from logical blocks to fragments, reading, writing, truncation.
//!
//! A write changes buffers named by file and logical block; their address they get when a segment is written
//! (`commit.rs`). What is changed has its place in the map before that: a pointer [`UNWRITTEN`], and indirect blocks on
//! the way to it, so that its space is counted. Bytes of a page behind the end of the file are zero. A page is as
//! long as its fragments.

use crate::format::*;
use crate::inode::Inode;
use crate::mount::{Core, indirect_name, inode_name, name_of};
use crate::planted::{Flaw, planted};
use arbor_base::cache::Name;
use arbor_base::device::Kind;
use arbor_base::layout::{Corrupt, Location, get_u32};
use arbor_base::vfs::{Errno, Error, Ino, Result};
use arbor_kit::blockfile::{self, BlockFiles, Fill};
use arbor_kit::inodes::InodeTable as _;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Files whose sequence of blocks is remembered.
const STREAMS: usize = 32;
/// Bytes of a cluster: largest read.
const CLUSTER: usize = 256 << 10;

/// Where the pointer to a block stands: in the inode, or in an indirect block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parent {
    Direct(usize),
    Root(usize),
    Xattr,
    Indirect(u8, u64, usize),
}

/// Where the pointer to a block stands; `None` for a block that no file can have.
pub(crate) fn parent(geom: &Geom, place: Place) -> Option<Parent> {
    let n = geom.nindir();
    let split = |level, at: u64| Parent::Indirect(level, at / n, (at % n) as usize);
    match place {
        Place::Xattr => Some(Parent::Xattr),
        Place::Data(lbn) if lbn < NDADDR as u64 => Some(Parent::Direct(lbn as usize)),
        Place::Data(lbn) if lbn < geom.max_blocks() => Some(split(1, lbn - NDADDR as u64)),
        Place::Data(_) => None,
        Place::Indirect(1, 0) => Some(Parent::Root(0)),
        Place::Indirect(1, k) if k <= n => Some(Parent::Indirect(2, 0, (k - 1) as usize)),
        Place::Indirect(1, k) => {
            let at = k - 1 - n;
            Some(Parent::Indirect(2, 1 + at / n, (at % n) as usize))
        }
        Place::Indirect(2, 0) => Some(Parent::Root(1)),
        Place::Indirect(2, k) if k <= n => Some(Parent::Indirect(3, 0, (k - 1) as usize)),
        Place::Indirect(3, 0) => Some(Parent::Root(2)),
        Place::Indirect(..) => None,
    }
}

/// What pointer `k` of an indirect block leads to.
pub(crate) fn child(geom: &Geom, level: u8, at: u64, k: u64) -> Place {
    let n = geom.nindir();
    match (level, at) {
        (1, _) => Place::Data(NDADDR as u64 + at * n + k),
        (2, 0) => Place::Indirect(1, 1 + k),
        (2, _) => Place::Indirect(1, 1 + n + (at - 1) * n + k),
        _ => Place::Indirect(2, 1 + k),
    }
}

impl Core {
    /// The pointer to a block of a file; fragment 0 if there is none.
    pub fn pointer(&mut self, i: &Inode, place: Place) -> Result<Pointer> {
        match parent(&self.geom, place) {
            None => Ok(Pointer::default()),
            Some(Parent::Direct(k)) => Ok(i.d.db.get(k).copied().unwrap_or_default()),
            Some(Parent::Root(k)) => Ok(i.d.ib.get(k).copied().unwrap_or_default()),
            Some(Parent::Xattr) => Ok(i.d.xattr),
            Some(Parent::Indirect(level, n, at)) => match self.indirect(i, level, n)? {
                None => Ok(Pointer::default()),
                Some(bytes) => {
                    let word = |k| get_u32(&bytes, at * POINTER + k).unwrap_or(0);
                    Ok(Pointer { frag: word(0).into(), crc: word(4).into() })
                }
            },
        }
    }

    /// Where the pointer to a block stands.
    fn pointer_location(&mut self, i: &Inode, place: Place) -> Result<Location> {
        let Some(Parent::Indirect(level, n, at)) = parent(&self.geom, place) else { return Ok(Location::inode(i.ino)) };
        match self.pointer(i, Place::Indirect(level, n))?.frag.get() {
            // It has no address yet.
            0 | UNWRITTEN => Ok(Location::inode(i.ino)),
            frag => Ok(Location::from(self.geom.byte(Frag(frag))).plus((at * POINTER) as u64)),
        }
    }

    /// Fails unless the pointer to a block leads to so many fragments of a segment.
    pub fn check_pointer(&mut self, (i, place): (&Inode, Place), p: Pointer, frags: u32) -> Result<()> {
        let frag = p.frag.get();
        if self.is_run(Frag(frag), frags) {
            return Ok(());
        }
        let (at, found) = (self.pointer_location(i, place)?, format!("{frag} (inode {}, {place:?})", i.ino));
        Err(Corrupt::new("pointer", "frag", at, found, "fragments of one segment").into())
    }

    /// Lets the pointer to a block lead elsewhere. The indirect block that it stands in is there.
    pub fn set_pointer(&mut self, i: &mut Inode, place: Place, to: Pointer) -> Result<()> {
        let slot = match parent(&self.geom, place).ok_or(Errno::EFBIG)? {
            Parent::Direct(k) => i.d.db.get_mut(k),
            Parent::Root(k) => i.d.ib.get_mut(k),
            Parent::Xattr => Some(&mut i.d.xattr),
            Parent::Indirect(level, n, at) => {
                self.change_way(i, place)?;
                return self.set_entry(i.ino, (level, n), at, to);
            }
        };
        *slot.ok_or(Errno::EFBIG)? = to;
        self.iput(i)
    }

    /// Indirect blocks above a block that is changed are going to be written with it: they count as changed from now on,
    /// so that there is room for them (`Core::wanted_segs`). They are there.
    pub fn change_way(&mut self, i: &Inode, mut at: Place) -> Result<()> {
        while let Some(Parent::Indirect(level, n, _)) = parent(&self.geom, at) {
            self.indirect(i, level, n)?.ok_or(Errno::EIO)?;
            let name = indirect_name(i.ino, level, n);
            if planted(Flaw::StalePointers) || self.cache.is_dirty(name) {
                break;
            }
            self.cache.modify(name, |_| ()).ok_or(Errno::EIO)?;
            at = Place::Indirect(level, n);
        }
        Ok(())
    }

    fn set_entry(&mut self, ino: Ino, (level, n): (u8, u64), at: usize, to: Pointer) -> Result<()> {
        self.mark(ino)?;
        let change = |buf: &mut Vec<u8>| {
            if let Some(place) = buf.get_mut(at * POINTER..(at + 1) * POINTER) {
                place.copy_from_slice(to.as_bytes());
            }
        };
        Ok(self.cache.modify(indirect_name(ino, level, n), change).ok_or(Errno::EIO)?)
    }

    /// An indirect block of a file, if there is one.
    pub fn indirect(&mut self, i: &Inode, level: u8, n: u64) -> Result<Option<Arc<Vec<u8>>>> {
        let name = indirect_name(i.ino, level, n);
        if let Some(bytes) = self.cache.get(name) {
            return Ok(Some(bytes.clone()));
        }
        let p = self.pointer(i, Place::Indirect(level, n))?;
        if p.frag.get() == 0 {
            return Ok(None);
        }
        let bytes =
            Arc::new(self.read_block((i, Place::Indirect(level, n)), p, self.geom.block_frags(), Kind::Tree)?);
        self.cache.insert(name, bytes.clone());
        Ok(Some(bytes))
    }

    /// Adds to the count of a file's fragments: of all that it is going to have (LFS-F2).
    pub fn count(&mut self, i: &mut Inode, more: u32, less: u32) {
        i.d.frags = (i.d.frags.get() + u64::from(more)).saturating_sub(less.into()).into();
        if i.ino != IFILE {
            self.state.file_frags = (self.state.file_frags + u64::from(more)).saturating_sub(less.into());
        }
    }

    /// Makes the way to a logical block: indirect blocks that are missing, and a pointer that says that it is there.
    pub fn ensure(&mut self, i: &mut Inode, lbn: u64) -> Result<()> {
        let place = Place::Data(lbn);
        let mut missing = Vec::new();
        let mut at = place;
        while let Some(Parent::Indirect(level, n, _)) = parent(&self.geom, at) {
            at = Place::Indirect(level, n);
            if self.indirect(i, level, n)?.is_some() {
                break;
            }
            missing.push((level, n));
        }
        for (level, n) in missing.into_iter().rev() {
            let name = indirect_name(i.ino, level, n);
            self.mark(i.ino)?;
            self.set_pointer(i, Place::Indirect(level, n), Pointer { frag: UNWRITTEN.into(), crc: 0.into() })?;
            self.cache.insert(name, Arc::new(vec![0; self.geom.block_size()]));
            self.cache.modify(name, |_| ());
            self.count(i, self.geom.block_frags(), 0);
            self.iput(i)?;
        }
        if self.pointer(i, place)?.frag.get() == 0 {
            self.set_pointer(i, place, Pointer { frag: UNWRITTEN.into(), crc: 0.into() })?;
        }
        self.change_way(i, place)
    }

    /// Indirect blocks that are missing on the way to a logical block.
    fn missing(&mut self, i: &Inode, lbn: u64) -> Result<u32> {
        let (mut at, mut missing) = (Place::Data(lbn), 0);
        while let Some(Parent::Indirect(level, n, _)) = parent(&self.geom, at) {
            at = Place::Indirect(level, n);
            if self.indirect(i, level, n)?.is_some() {
                break;
            }
            missing += 1;
        }
        Ok(missing)
    }

    /// Gives logical block `lbn` the fragments that a file of `size` bytes has there, changes its page, which is
    /// in the cache, and makes the file at least that long.
    pub fn alloc_block(&mut self, i: &mut Inode, lbn: u64, size: u64, fill: Fill<'_>) -> Result<()> {
        let name = Name::Page { file: i.ino.0, index: lbn };
        let done = self.balloc_page(i, lbn, size, fill);
        if done.is_err() && !self.cache.is_dirty(name) {
            // It may be one that was made to be written over.
            self.cache.remove(name);
        }
        done
    }

    fn balloc_page(&mut self, i: &mut Inode, lbn: u64, size: u64, fill: Fill<'_>) -> Result<()> {
        let (old_size, size) = (i.size(), size.max(i.size()));
        let want = self.geom.lbn_frags(size, lbn);
        let present = self.pointer(i, Place::Data(lbn))?.frag.get() != 0;
        let have = if present { self.geom.lbn_frags(old_size, lbn) } else { 0 };
        let more = if present { 0 } else { self.missing(i, lbn)? * self.geom.block_frags() };
        self.need(want.saturating_sub(have) + more)?;
        self.mark(i.ino)?;
        self.ensure(i, lbn)?;
        let len = self.geom.bytes_of(want.max(have));
        self.cache.modify(Name::Page { file: i.ino.0, index: lbn }, |buf| fill(buf, len)).ok_or(Errno::EIO)?;
        i.d.size = size.into();
        self.count(i, want, have.min(want));
        self.iput(i)
    }

    /// A page of a file whose block is not a hole, read if it is not in the cache.
    fn mapped_page(&mut self, i: &Inode, lbn: u64, p: Pointer) -> Result<Arc<Vec<u8>>> {
        let name = Name::Page { file: i.ino.0, index: lbn };
        if let Some(bytes) = self.cache.get(name) {
            return Ok(bytes.clone());
        }
        self.read_cluster(i, lbn, p)?;
        self.cache.get(name).cloned().ok_or_else(|| Errno::EIO.into())
    }

    /// Fragments of a block as it lies on disk.
    fn run_of(&self, i: &Inode, lbn: u64) -> u32 {
        let size = self.changed.get(&i.ino.0).map_or(i.size(), |c| c.disk_size);
        self.geom.lbn_frags(size, lbn)
    }

    /// Reads a block; if the file is read one block after another, those that lie behind it as well, up to a
    /// cluster.
    fn read_cluster(&mut self, i: &Inode, lbn: u64, p: Pointer) -> Result<()> {
        let expected = lbn == 0 || self.streams.contains(&(i.ino.0, lbn));
        let most = if expected { (CLUSTER >> self.geom.block_shift).max(1) } else { 1 };
        let n = self.geom.block_frags();
        let mut all = vec![(p, self.run_of(i, lbn))];
        while all.len() < most && all.last().is_some_and(|a| a.1 == n) {
            let next = lbn + all.len() as u64;
            let frags = self.run_of(i, next);
            if frags == 0 || self.cache.contains(Name::Page { file: i.ino.0, index: next }) {
                break;
            }
            let q = self.pointer(i, Place::Data(next))?;
            if q.frag.get() != p.frag.get().saturating_add(all.len() as u32 * n) {
                break;
            }
            all.push((q, frags));
        }
        let kind = if i.is_dir() { Kind::Dir } else { Kind::Data };
        let total = all.iter().map(|a| a.1).sum();
        // Blocks of a cluster may lie in two segments that follow each other.
        let together = self.is_run(Frag(p.frag.get()), total);
        let bytes = if together { self.read_run(Frag(p.frag.get()), total, kind)? } else { Vec::new() };
        let mut from = 0;
        for (k, (q, frags)) in (lbn..).zip(all) {
            let len = self.geom.bytes_of(frags);
            let mut page = bytes.get(from..from + len).unwrap_or(&[]).to_vec();
            from += len;
            if page.is_empty() || self.verify(q, &page).is_err() {
                if k > lbn {
                    break;
                }
                page = self.read_block_again((i, Place::Data(k)), q, frags, kind)?;
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

    /// Takes a page that was read into the cache, as long as the file has it now.
    fn keep_page(&mut self, i: &Inode, lbn: u64, mut page: Vec<u8>) -> Result<()> {
        let len = self.geom.bytes_of(self.geom.lbn_frags(i.size(), lbn));
        let valid = i.size().saturating_sub(lbn << self.geom.block_shift).min(len as u64) as usize;
        page.truncate(valid);
        page.resize(len, 0);
        if i.is_dir() {
            crate::sound::dir_block(i.ino, lbn << self.geom.block_shift, &page)?;
        }
        self.cache.insert(Name::Page { file: i.ino.0, index: lbn }, Arc::new(page));
        Ok(())
    }

    /// A page of a directory, or of anything else that is read whole.
    pub fn whole_page(&mut self, i: &Inode, lbn: u64) -> Result<Arc<Vec<u8>>> {
        match self.pointer(i, Place::Data(lbn))? {
            p if p.frag.get() == 0 => Err(i.corrupt("db", lbn, "a block, not a hole").into()),
            p => self.mapped_page(i, lbn, p),
        }
    }

    /// Makes the last block of a file, if it is a run of fragments, as long as a file of `size` bytes has it.
    fn fill_tail(&mut self, i: &mut Inode, size: u64) -> Result<()> {
        let Some(last) = i.size().checked_sub(1).map(|at| self.geom.lbn(at)) else { return Ok(()) };
        let (old, new) = (self.geom.lbn_frags(i.size(), last), self.geom.lbn_frags(size, last));
        if last >= NDADDR as u64 || new <= old || self.geom.lbn(size - 1) == last {
            return Ok(());
        }
        let p = self.pointer(i, Place::Data(last))?;
        if p.frag.get() == 0 {
            return Ok(());
        }
        self.mapped_page(i, last, p)?;
        // The size stays inside the block until there is something behind it.
        let size = (last + 1) << self.geom.block_shift;
        self.alloc_block(i, last, size, &mut |buf, len| buf.resize(len, 0))
    }

    /// Frees blocks from the end of a file: those that one lowest indirect block leads to, or all direct ones, so that a
    /// step is bounded. Returns the size that the file has then.
    pub fn truncate_some(&mut self, i: &mut Inode, to: u64) -> Result<u64> {
        self.mark(i.ino)?;
        let keep = to.div_ceil(self.geom.block_size() as u64).max(NDADDR as u64);
        let Some((level, n)) = self.last_indirect(i, keep)? else {
            self.truncate_direct(i, to)?;
            return Ok(to);
        };
        let per = self.geom.nindir();
        let first = NDADDR as u64 + n * per;
        debug_assert!(level == 1);
        if keep <= first {
            self.free_leaf(i, n)?;
        }
        for at in (keep.max(first) - first..per).rev().filter(|_| keep > first) {
            self.free_block(i, Place::Data(first + at))?;
        }
        let size = (keep.max(first) << self.geom.block_shift).max(to);
        i.d.size = i.size().min(size).into();
        self.cache.drop_pages(i.ino.0, keep.max(first), u64::MAX);
        self.iput(i)?;
        Ok(i.size().max(to))
    }

    /// The last lowest indirect block of a file that leads to blocks from `keep` on.
    fn last_indirect(&mut self, i: &Inode, keep: u64) -> Result<Option<(u8, u64)>> {
        for root in (0..NIADDR).rev() {
            let level = root as u8 + 1;
            if i.d.ib.get(root).is_none_or(|p| p.frag.get() == 0) {
                continue;
            }
            let Some(found) = self.last_below(i, level, 0)? else { continue };
            let per = self.geom.nindir();
            let first = NDADDR as u64 + found * per;
            let bytes = self.indirect(i, 1, found)?.ok_or(Errno::EIO)?;
            let used = (0..per).rev().find(|k| get_u32(&bytes, *k as usize * POINTER).unwrap_or(0) != 0);
            let goes = first >= keep || used.is_some_and(|k| first + k >= keep);
            return Ok(goes.then_some((1, found)));
        }
        Ok(None)
    }

    /// The last block of level 1 below this indirect block.
    fn last_below(&mut self, i: &Inode, level: u8, n: u64) -> Result<Option<u64>> {
        if level == 1 {
            return Ok(Some(n));
        }
        let per = self.geom.nindir();
        let bytes = self.indirect(i, level, n)?.ok_or(Errno::EIO)?;
        let used = (0..per).rev().find(|k| get_u32(&bytes, *k as usize * POINTER).unwrap_or(0) != 0);
        match used {
            None => Ok(None),
            // Behind the first, which stands in the inode.
            Some(k) if n == 0 => self.last_below(i, level - 1, 1 + k),
            Some(k) if level == 2 => Ok(Some(1 + per + (n - 1) * per + k)),
            Some(_) => Ok(None),
        }
    }

    /// Takes a block from a file, if it is there.
    fn free_block(&mut self, i: &mut Inode, place: Place) -> Result<()> {
        let p = self.pointer(i, place)?;
        if p.frag.get() == 0 {
            return Ok(());
        }
        let frags = match place {
            Place::Data(lbn) => self.geom.lbn_frags(i.size(), lbn),
            _ => self.geom.block_frags(),
        };
        self.count_less(i, frags)?;
        self.bury(i, place, p);
        self.cache.remove(name_of(i.ino, place));
        self.set_pointer(i, place, Pointer::default())
    }

    /// Takes a lowest indirect block from a file, with all that it leads to; their pages are for the caller to drop.
    fn free_leaf(&mut self, i: &mut Inode, n: u64) -> Result<()> {
        let bytes = self.indirect(i, 1, n)?.ok_or(Errno::EIO)?;
        let first = NDADDR as u64 + n * self.geom.nindir();
        let mut frags = 0;
        for (lbn, p) in (first..).zip(bytes.chunks_exact(POINTER)) {
            let Ok(p) = Pointer::read_from_bytes(p) else { continue };
            if p.frag.get() != 0 {
                frags += self.geom.lbn_frags(i.size(), lbn);
                self.bury(i, Place::Data(lbn), p);
            }
        }
        self.count_less(i, frags)?;
        self.free_empty(i, Place::Indirect(1, n))
    }

    /// Takes fragments from those that a file counts.
    fn count_less(&mut self, i: &mut Inode, frags: u32) -> Result<()> {
        if i.d.frags.get() < frags.into() {
            return Err(i.corrupt("frags", i.d.frags, "as many fragments as its blocks have").into());
        }
        self.count(i, 0, frags);
        Ok(())
    }

    /// Frees an indirect block that leads nowhere any more, and those above it that do not either.
    fn free_empty(&mut self, i: &mut Inode, mut place: Place) -> Result<()> {
        loop {
            self.free_block(i, place)?;
            let Some(Parent::Indirect(level, n, _)) = parent(&self.geom, place) else { return Ok(()) };
            let bytes = self.indirect(i, level, n)?.ok_or(Errno::EIO)?;
            if bytes.chunks_exact(POINTER).any(|p| get_u32(p, 0) != Some(0)) {
                return Ok(());
            }
            place = Place::Indirect(level, n);
        }
    }

    /// Frees direct blocks, and fragments of the last one, behind byte `to`.
    pub fn truncate_direct(&mut self, i: &mut Inode, to: u64) -> Result<()> {
        let geom = self.geom;
        self.mark(i.ino)?;
        let keep = to.div_ceil(geom.block_size() as u64);
        self.cut_last(i, to)?;
        for lbn in keep.min(NDADDR as u64)..NDADDR as u64 {
            self.free_block(i, Place::Data(lbn))?;
        }
        i.d.size = to.into();
        self.cache.drop_pages(i.ino.0, keep, u64::MAX);
        self.iput(i)
    }

    /// Zeros behind byte `to` of its block, whose page gets as short as the fragments.
    fn cut_last(&mut self, i: &mut Inode, to: u64) -> Result<()> {
        let (lbn, within) = (self.geom.lbn(to.saturating_sub(1)), to as usize % self.geom.block_size());
        if to == 0 || to >= i.size() || !(i.is_file() || i.is_dir()) {
            return Ok(());
        }
        let p = self.pointer(i, Place::Data(lbn))?;
        if p.frag.get() == 0 {
            return Ok(());
        }
        let (old, new) = (self.geom.lbn_frags(i.size(), lbn), self.geom.lbn_frags(to, lbn));
        if within == 0 && old == new {
            return Ok(());
        }
        self.mapped_page(i, lbn, p)?;
        let len = self.geom.bytes_of(new);
        self.change_way(i, Place::Data(lbn))?;
        self.cache.modify(Name::Page { file: i.ino.0, index: lbn }, |buf| {
            buf.resize(len, 0);
            if let Some(rest) = buf.get_mut(within..).filter(|_| within > 0) {
                rest.fill(0);
            }
        });
        self.count(i, new, old);
        Ok(())
    }

    /// The first logical block of a file from `lbn` on that is a hole, or is none.
    pub fn find_block(&mut self, i: &Inode, mut lbn: u64, hole: bool) -> Result<Option<u64>> {
        let end = i.size().div_ceil(self.geom.block_size() as u64);
        let is_it = |frag: Option<u32>| (frag == Some(0)) == hole;
        // The ifile counts its indirect blocks only, and nobody relies on it.
        let all = u64::from(self.segs.count()) * u64::from(self.geom.seg_frags());
        let (most, mut met) = (if i.ino == IFILE { all } else { i.d.frags.get() }, 0u64);
        while lbn < end {
            let Some(Parent::Indirect(_, n, at)) = parent(&self.geom, Place::Data(lbn)) else {
                if is_it(Some(self.pointer(i, Place::Data(lbn))?.frag.get())) {
                    return Ok(Some(lbn));
                }
                lbn += 1;
                continue;
            };
            let Some(bytes) = self.indirect(i, 1, n)? else {
                if hole {
                    return Ok(Some(lbn));
                }
                lbn = self.behind_lost(i, lbn)?;
                continue;
            };
            met += u64::from(self.geom.block_frags());
            if met > most {
                return Err(i.corrupt("frags", i.d.frags, "as many fragments as its blocks have").into());
            }
            if !self.calls.has_changed() {
                // What was looked at is not needed any more.
                self.cache.trim_clean();
            }
            let (first, per) = (lbn - at as u64, self.geom.nindir());
            match (at..per as usize).find(|k| is_it(get_u32(&bytes, k * POINTER))) {
                Some(k) => return Ok(Some(first + k as u64).filter(|lbn| *lbn < end)),
                None => lbn = first + per,
            }
        }
        Ok(None)
    }

    /// The first logical block behind those that the highest indirect block above `lbn` that is missing, or cannot be
    /// read, would lead to.
    pub fn behind_lost(&mut self, i: &Inode, lbn: u64) -> Result<u64> {
        let (mut at, mut reach) = (Place::Data(lbn), 1u64);
        while let Some(Parent::Indirect(level, n, _)) = parent(&self.geom, at) {
            match self.indirect(i, level, n) {
                Ok(Some(_)) => break,
                Ok(None) | Err(Error::Corrupt(_)) => at = Place::Indirect(level, n),
                Err(e) => return Err(e),
            }
            reach = reach.saturating_mul(self.geom.nindir());
        }
        Ok(first_of(&self.geom, at).unwrap_or(lbn).saturating_add(reach))
    }

    /// Target of a symbolic link.
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

    /// Stores the target of a new symbolic link.
    pub fn store_target(&mut self, i: &mut Inode, target: &[u8]) -> Result<()> {
        if target.len() <= FAST_LINK {
            i.d.size = (target.len() as u64).into();
            self.iput(i)?;
            self.cache.modify(inode_name(i.ino), |buf| {
                if let Some(place) = buf.get_mut(FAST_LINK_AT..FAST_LINK_AT + target.len()) {
                    place.copy_from_slice(target);
                }
            });
            // The copy in hand is what is written back by others.
            *i = self.iget(i.ino)?;
            return Ok(());
        }
        blockfile::store_target(self, i, target)
    }
}

arbor_kit::block_file!(Inode);

impl BlockFiles for Core {
    fn block_shift(&self) -> u32 {
        self.geom.block_shift
    }

    fn max_size(&self) -> u64 {
        self.geom.max_size()
    }

    fn is_mapped(&mut self, i: &Inode, lbn: u64) -> Result<bool> {
        Ok(self.pointer(i, Place::Data(lbn))?.frag.get() != 0)
    }

    fn page(&mut self, i: &Inode, lbn: u64) -> Result<Option<Arc<Vec<u8>>>> {
        match self.pointer(i, Place::Data(lbn))? {
            p if p.frag.get() == 0 => Ok(None),
            p => self.mapped_page(i, lbn, p).map(Some),
        }
    }

    fn page_len(&self, i: &Inode, lbn: u64) -> usize {
        self.geom.bytes_of(self.geom.lbn_frags(i.size(), lbn))
    }

    fn next_block(&mut self, i: &Inode, lbn: u64, hole: bool) -> Result<Option<u64>> {
        self.find_block(i, lbn, hole)
    }

    fn balloc(&mut self, i: &mut Inode, lbn: u64, size: u64, fill: Fill<'_>) -> Result<()> {
        self.alloc_block(i, lbn, size, fill)
    }

    fn release_block(&mut self, i: &mut Inode, lbn: u64) -> Result<()> {
        self.mark(i.ino)?;
        self.free_block(i, Place::Data(lbn))?;
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

/// First logical block that lies below an indirect block.
pub(crate) fn first_of(geom: &Geom, place: Place) -> Option<u64> {
    let n = geom.nindir();
    let base = NDADDR as u64;
    match place {
        Place::Data(lbn) => Some(lbn),
        Place::Indirect(1, k) => Some(base + k * n),
        Place::Indirect(2, 0) => Some(base + n),
        Place::Indirect(2, k) => Some(base + n + n * n + (k - 1) * n * n),
        Place::Indirect(3, _) => Some(base + n + n * n),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_to_blocks() {
        let geom = Geom { block_shift: 12, frag_shift: 9, seg_shift: 18, first: 32, fsid: 0 };
        let (n, up) = (512, |p| parent(&geom, p));
        assert_eq!(up(Place::Data(11)), Some(Parent::Direct(11)));
        assert_eq!(up(Place::Data(12)), Some(Parent::Indirect(1, 0, 0)));
        assert_eq!(up(Place::Data(12 + n + 3)), Some(Parent::Indirect(1, 1, 3)));
        assert_eq!(up(Place::Indirect(1, 0)), Some(Parent::Root(0)));
        assert_eq!(up(Place::Indirect(1, 1)), Some(Parent::Indirect(2, 0, 0)));
        assert_eq!(up(Place::Indirect(1, n)), Some(Parent::Indirect(2, 0, 511)));
        assert_eq!(up(Place::Indirect(1, n + 1)), Some(Parent::Indirect(2, 1, 0)));
        assert_eq!(up(Place::Indirect(2, 0)), Some(Parent::Root(1)));
        assert_eq!(up(Place::Indirect(2, 1)), Some(Parent::Indirect(3, 0, 0)));
        assert_eq!(up(Place::Indirect(3, 0)), Some(Parent::Root(2)));
        assert_eq!(up(Place::Data(geom.max_blocks())), None);
        for lbn in [12, 12 + n - 1, 12 + n, 12 + n + n * n, geom.max_blocks() - 1] {
            let mut at = Place::Data(lbn);
            while let Some(Parent::Indirect(level, k, _)) = up(at) {
                at = Place::Indirect(level, k);
                assert!(first_of(&geom, at).is_some_and(|first| first <= lbn), "{lbn} {at:?}");
            }
            assert!(matches!(up(at), Some(Parent::Root(_))));
            let mut at = Place::Data(lbn);
            while let Some(Parent::Indirect(level, k, slot)) = up(at) {
                assert_eq!(child(&geom, level, k, slot as u64), at);
                at = Place::Indirect(level, k);
            }
        }
    }
}
