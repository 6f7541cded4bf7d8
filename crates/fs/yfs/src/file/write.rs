//! Writing: into the inode if it fits there, else into pages, for which space is reserved.

use super::MapStore;
use super::map::FileTree;
use crate::delayed::Delayed;
use crate::format::*;
use crate::inode::Inode;
use crate::planted::{Flaw, planted};
use crate::validate::MAX_SIZE;
use crate::volume::{Core, RestartReason};
use arbor_base::cache::Name;
use arbor_base::vfs::{Errno, Ino, Result, Time};
use std::sync::Arc;

impl Core {
    /// Writes into pages. Everything that can fail comes before the first change.
    pub fn write_pages(&mut self, ino: Ino, offset: u64, data: &[u8], now: Time) -> Result<usize> {
        let i = self.iget(ino)?;
        if !i.is_file() {
            return Err(if i.is_dir() { Errno::EISDIR } else { Errno::EINVAL }.into());
        }
        let end = offset.checked_add(data.len() as u64).filter(|e| *e <= MAX_SIZE).ok_or(Errno::EFBIG)?;
        if data.is_empty() {
            return Ok(0);
        }
        let ps = self.page_size();
        let size = self.size_of(&i);
        let (first, last) = (offset / ps, (end - 1) / ps);
        if i.format() != Format::Inline {
            self.want_edges(&i, size, offset, end)?;
        } else if self.ways.inline && end <= self.area_len(&i) as u64 && !self.delayed.has(ino) {
            return self.write_inline(i, offset, data, now);
        }
        match self.reserve(&i, (first, last), (size, size.max(end)), offset, now) {
            Err(e) if e.errno() == Errno::ENOSPC && first < last => {
                let half = ((first + (last - first) / 2 + 1) * ps - offset) as usize;
                return self.write_pages(ino, offset, data.get(..half).unwrap_or(data), now);
            }
            r => r?,
        }
        // Dirty pages are not evicted: the edges must not make room for the pages between them.
        for index in [first, last] {
            self.modify(Name::data(ino, index), |_| ());
        }
        self.inline_to_page(&i)?;
        if offset > size && !size.is_multiple_of(ps) {
            self.page_write(ino, size, &[]);
        }
        for index in first..=last {
            let lo = (index * ps).max(offset);
            let hi = ((index + 1) * ps).min(end);
            let piece = data.get((lo - offset) as usize..(hi - offset) as usize).unwrap_or(&[]);
            self.page_write(ino, lo, piece);
        }
        self.touch_delayed(&i, size.max(end), now);
        if planted(Flaw::SizeBeforeData) && i.format() != Format::Inline {
            self.log_size(i, size.max(end), now)?;
        }
        Ok(data.len())
    }

    /// Writes into the inode: that is logged anyway, and there is nothing to decide later.
    fn write_inline(&mut self, mut i: Inode, offset: u64, data: &[u8], now: Time) -> Result<usize> {
        self.begin()?;
        let size = i.d.size.get();
        if offset > size {
            self.area_write(&i, size as usize, &vec![0; (offset - size) as usize])?;
        }
        self.area_write(&i, offset as usize, data)?;
        // A page of it would be used before the inode, also one that somebody is about to read in.
        self.cache.remove(Name::data(i.ino, 0));
        self.versions.change(i.ino);
        i.d.size = size.max(offset + data.len() as u64).into();
        i.d.set_mtime(now);
        i.d.set_ctime(now);
        self.iput(&i)?;
        self.commit(now);
        Ok(data.len())
    }

    /// Asks for the pages that are changed in part; also for the one at the old end of the file, whose rest becomes
    /// zeros that must reach the disk.
    fn want_edges(&mut self, i: &Inode, size: u64, offset: u64, end: u64) -> Result<()> {
        let ps = self.page_size();
        let (first, last) = (offset / ps, (end - 1) / ps);
        if !offset.is_multiple_of(ps) || end < size && end < (first + 1) * ps {
            self.want_page(i, first)?;
        }
        if !end.is_multiple_of(ps) && end < size {
            self.want_page(i, last)?;
        }
        if offset > size && !size.is_multiple_of(ps) {
            self.want_page(i, size / ps)?;
        }
        Ok(())
    }

    /// Asks for page `index` if it has bytes on disk that are not in the cache.
    pub(super) fn want_page(&mut self, i: &Inode, index: u64) -> Result<()> {
        if self.cache.get(Name::data(i.ino, index)).is_some() {
            return Ok(());
        }
        let lo = index * self.page_frags();
        if self.written(i, lo, lo + self.page_frags())?.is_empty() {
            return Ok(());
        }
        Err(self.attempt.give_up(RestartReason::Pages(i.ino, index, index)))
    }

    /// Reserves space for pages that have none yet. Pages in preallocated space need none, only perhaps nodes for the
    /// extents that it is split into: they come from the pool.
    pub(super) fn reserve(
        &mut self,
        i: &Inode,
        (first, last): (u64, u64),
        (size, grown): (u64, u64),
        offset: u64,
        now: Time,
    ) -> Result<()> {
        let (pf, fs) = (self.page_frags(), self.geom.frag_size());
        let known = self.delayed.get(i.ino).is_some_and(|d| d.reserved() > 0);
        let (mut need, mut converting) = (0, 0);
        let mut page = |core: &mut Core, index: u64| -> Result<()> {
            // Write-back allocates up to the end; of a dirty page, the part before the old end is reserved already.
            let dirty = core.cache.is_dirty(Name::data(i.ino, index));
            let lo = if dirty && (known || i.format() != Format::Inline) { size.div_ceil(fs) } else { 0 };
            let (lo, hi) = ((index * pf).max(lo), ((index + 1) * pf).min(grown.div_ceil(fs)));
            if lo < hi {
                let (holes, unwritten) = core.space_in(i, lo, hi)?;
                need += holes;
                converting += u64::from(unwritten > 0);
            }
            Ok(())
        };
        for index in first..=last {
            page(self, index)?;
        }
        if offset > size && !size.is_multiple_of(self.page_size()) {
            page(self, size / self.page_size())?;
        }
        if i.format() == Format::Inline && first > 0 {
            page(self, 0)?;
        }
        if need > 0 {
            if !known {
                need += u64::from(self.geom.block_frags());
            }
            self.need_space(need)?;
            self.need_runs(8)?;
        }
        let nodes = if converting > 0 { self.converted_nodes(i, first, last)? } else { 0 };
        if converting > 0 {
            self.need_nodes(converting, nodes)?;
        }
        self.delay(i, now);
        self.delayed.reserve(i.ino, need, converting, nodes);
        Ok(())
    }

    /// Tree nodes that a write into unwritten space may need if the nodes of its file are full: those of one insert for
    /// the first write; in a tree of several leaves, one for each leaf that its ends lie in.
    pub(super) fn converted_nodes(&mut self, i: &Inode, first: u64, last: u64) -> Result<u64> {
        let mut copy = *i;
        let height = FileTree::new(&mut MapStore::file(self, &mut copy)).height()?;
        let is_first = self.delayed.get(i.ino).is_none_or(|d| !d.is_converting());
        let insert = if is_first { FileTree::max_new_blocks(height) as u64 } else { 0 };
        let goes_on = first > 0 && self.cache.is_dirty(Name::data(i.ino, first - 1));
        let leaves = if height > 1 { u64::from(!goes_on) + u64::from(first < last) } else { 0 };
        Ok(insert + leaves)
    }

    /// Puts the data of an inline file into page 0 and dirties it, so that write-back may
    /// change the format.
    pub(super) fn inline_to_page(&mut self, i: &Inode) -> Result<()> {
        let size = i.d.size.get() as usize;
        if i.format() != Format::Inline || size == 0 {
            return Ok(());
        }
        let name = Name::data(i.ino, 0);
        if !self.cache.contains(name) {
            let data = self.area(i, |a| a.get(..size).unwrap_or(&[]).to_vec())?;
            self.cache.insert(name, Arc::new(data));
        }
        self.modify(name, |_| ());
        Ok(())
    }

    pub(super) fn page_write(&mut self, ino: Ino, at: u64, piece: &[u8]) {
        let ps = self.page_size();
        let name = Name::data(ino, at / ps);
        if !self.cache.contains(name) {
            self.cache.insert(name, Arc::new(Vec::new()));
        }
        let lo = (at % ps) as usize;
        self.modify(name, |v| {
            if v.len() < lo + piece.len() {
                v.resize(lo + piece.len(), 0);
            }
            v[lo..lo + piece.len()].copy_from_slice(piece);
        });
    }

    /// Writes zeros to the part of [a, b) that lies in the file, however long it is by now.
    pub(super) fn zero_pages(&mut self, ino: Ino, a: u64, b: u64, now: Time) -> Result<()> {
        let i = self.iget(ino)?;
        let b = b.min(self.size_of(&i));
        let zeros = vec![0; b.saturating_sub(a) as usize];
        self.write_pages(ino, a, &zeros, now).map(drop)
    }

    /// See [`Flaw::SizeBeforeData`].
    fn log_size(&mut self, mut i: Inode, size: u64, now: Time) -> Result<()> {
        self.begin()?;
        i.d.size = size.into();
        self.iput(&i)?;
        self.commit(now);
        Ok(())
    }
}

impl Core {
    /// The delayed state of an inode; makes it if there is none.
    pub fn delay(&mut self, i: &Inode, now: Time) -> &mut Delayed {
        self.delayed.entry(i.ino, (i.d.size.get(), i.d.mtime(), i.d.ctime()), now)
    }

    pub(super) fn touch_delayed(&mut self, i: &Inode, size: u64, now: Time) {
        let d = self.delay(i, now);
        (d.size, d.mtime, d.ctime) = (size, now, now);
    }

    /// Fragments that are reserved for what dirty pages hold from `to` on.
    pub fn reserved_from(&mut self, i: &Inode, to: u64) -> Result<u64> {
        let (ps, pf, fs) = (self.page_size(), self.page_frags(), self.geom.frag_size());
        let (lo, hi) = (to.div_ceil(fs), self.size_of(i).div_ceil(fs));
        let pages: Vec<u64> = self.cache.dirty_pages(i.ino, to / ps).collect();
        let mut out = 0;
        for (a, b) in pages.into_iter().map(|p| (lo.max(p * pf), hi.min((p + 1) * pf))) {
            out += if a < b { self.holes(i, a, b)? } else { 0 };
        }
        Ok(out)
    }
}
