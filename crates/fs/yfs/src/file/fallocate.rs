//! `fallocate`: preallocation, and punching holes.

use super::map::Mapped;
use crate::format::*;
use crate::inode::Inode;
use crate::validate::MAX_SIZE;
use crate::volume::{Core, Volume};
use arbor_base::cache::FileBlock;
use arbor_base::vfs::{Errno, FallocMode, Ino, Result, Time};

/// Extents that a preallocation makes at a time: no more nodes than it has asked for.
const UNWRITTEN_EXTENTS: u32 = 128;

impl Volume {
    /// Preallocates, punches or zeroes; see [`arbor_base::vfs::FileSystem::fallocate`].
    pub(crate) fn falloc(&self, ino: Ino, mode: FallocMode, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).filter(|e| *e <= MAX_SIZE).ok_or(Errno::EFBIG)?;
        let punch = mode.contains(FallocMode::PUNCH_HOLE);
        let zero = mode.contains(FallocMode::ZERO_RANGE);
        if FallocMode::from_bits(mode.bits()).is_none() || punch && (zero || !mode.contains(FallocMode::KEEP_SIZE)) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if len == 0 {
            return Err(Errno::EINVAL.into());
        }
        let grows = !mode.contains(FallocMode::KEEP_SIZE);
        self.change(|core, now| {
            let i = core.iget(ino)?;
            if !i.is_file() {
                return Err(if i.is_dir() { Errno::EISDIR } else { Errno::ENODEV }.into());
            }
            if !punch {
                let (lo, hi) = core.given_frags(offset, end);
                let frags = if zero { hi - lo } else { core.holes(&i, lo, hi)? };
                core.need_space(frags + u64::from(4 * core.geom.block_frags()))?;
                core.need_runs(8)?;
            }
            if i.format() == Format::Inline && (!punch || core.size_of(&i) > 0) {
                core.inline_to_page(&i)?;
                let size = core.size_of(&i);
                core.touch_delayed(&i, size, now);
                core.delay(&i, now).no_inline = true;
            }
            Ok(())
        })?;
        self.flush_one(ino)?;
        if punch || zero {
            self.punch(ino, offset, end)?;
        }
        if !punch {
            let size = self.run(|core| core.iget(ino).map(|i| core.size_of(&i)))?;
            if offset > size && size > 0 {
                // A later write also writes zeros to the page at the old end.
                self.preallocate(ino, size - 1, size)?;
            }
            self.preallocate(ino, offset, end)?;
        }
        self.change(|core, now| {
            let i = core.iget(ino)?;
            let size = core.size_of(&i);
            if grows && end > size {
                core.extend(ino, end, now)
            } else {
                core.touch_delayed(&i, size, now);
                Ok(())
            }
        })?;
        self.flush_one(ino)
    }

    fn preallocate(&self, ino: Ino, offset: u64, end: u64) -> Result<()> {
        let (mut at, hi) = self.core.lock().given_frags(offset, end);
        while at < hi {
            self.go_on()?;
            at = self.change(|core, now| {
                let mut i = core.iget(ino)?;
                if i.format() == Format::Inline && i.d.size.get() > 0 {
                    // Truncated and written meanwhile: its contents are others now.
                    return Ok(hi);
                }
                let step = hi.min(at + (1 << 20));
                let holes = core.holes(&i, at, step)?;
                core.need_space(holes)?;
                core.need_runs(8)?;
                core.begin()?;
                let at = core.allocate_unwritten(&mut i, at, step)?;
                core.iput(&i)?;
                core.commit(now);
                Ok(at)
            })?;
        }
        Ok(())
    }

    /// Allocates space for bytes that were just written, instead of when they are written back. What fails here fails again,
    /// and is told, when they are: that has reserved what it needs.
    pub(crate) fn place(&self, ino: Ino, mut offset: u64, end: u64) {
        while offset < end {
            offset = self.change(|core, now| core.place_pages(ino, offset, end, now)).unwrap_or(end);
        }
    }

    /// Makes [offset, end) read as zeros: whole pages become a hole, the rest is overwritten.
    fn punch(&self, ino: Ino, offset: u64, end: u64) -> Result<()> {
        let (ps, size) = {
            let ps = self.core.lock().page_size();
            (ps, self.run(|core| core.iget(ino).map(|i| core.size_of(&i)))?)
        };
        let (lo, hi) = (offset.next_multiple_of(ps), end / ps * ps);
        let edges = if lo > hi { [(offset, end), (0, 0)] } else { [(offset, lo), (hi, end)] };
        for (a, b) in edges {
            if a < b.min(size) && self.is_mapped(ino, a, b.min(size))? {
                self.change(|core, now| core.zero_pages(ino, a, b, now))?;
            }
        }
        self.flush_one(ino)?;
        if lo >= hi {
            return Ok(());
        }
        let fs = self.core.lock().geom.frag_size();
        let (first, mut stop) = (lo / fs, hi / fs);
        while stop > first {
            self.go_on()?;
            stop = self.change(|core, now| {
                let mut i = core.iget(ino)?;
                if i.format() == Format::Inline {
                    return Ok(first);
                }
                core.need_runs(3)?;
                core.begin()?;
                // As in a truncation, pages are dropped only where the blocks are freed, and whole.
                let stop = core.unmap(&mut i, first, stop)?.next_multiple_of(core.page_frags());
                if let Some(last) = (hi / ps).checked_sub(1) {
                    core.cache.drop_parts(ino, FileBlock::Data(stop * fs / ps)..=FileBlock::Data(last));
                }
                core.versions.change(ino);
                i.d.set_mtime(now);
                i.d.set_ctime(now);
                core.iput(&i)?;
                core.commit(now);
                Ok(stop)
            })?;
        }
        Ok(())
    }

    fn is_mapped(&self, ino: Ino, a: u64, b: u64) -> Result<bool> {
        self.run(|core| {
            let i = core.iget(ino)?;
            let fs = core.geom.frag_size();
            Ok(i.format() == Format::Inline || !core.written(&i, a / fs, b.div_ceil(fs))?.is_empty())
        })
    }
}

impl Core {
    /// The fragments that fallocate gives for a range of bytes: whole pages, as they are written.
    fn given_frags(&self, offset: u64, end: u64) -> (u64, u64) {
        let (ps, pf) = (self.page_size(), self.page_frags());
        (offset / ps * pf, end.div_ceil(ps) * pf)
    }

    /// Allocates the holes in the dirty pages of [offset, end) as unwritten extents; returns where it stopped.
    fn place_pages(&mut self, ino: Ino, offset: u64, end: u64, now: Time) -> Result<u64> {
        let mut i = self.iget(ino)?;
        let (size, is_inline) = (self.size_of(&i), i.format() == Format::Inline);
        // What is in an inode leaves it only as it is written.
        if is_inline && (i.d.size.get() > 0 || self.ways.inline && size <= self.area_len(&i) as u64) {
            return Ok(end);
        }
        let (fs, (lo, hi)) = (self.geom.frag_size(), self.given_frags(offset, end));
        let hi = hi.min(size.div_ceil(fs));
        let holes = if lo < hi { self.holes(&i, lo, hi)? } else { 0 };
        if holes == 0 {
            return Ok(end);
        }
        self.need_space(holes)?;
        self.need_runs(8)?;
        let (first, last) = (offset / self.page_size(), (end - 1) / self.page_size());
        let (converting, nodes) = (last - first + 1, self.converted_nodes(&i, first, last)?);
        self.need_nodes(converting, nodes)?;
        self.begin()?;
        if is_inline {
            self.area_clear(&i)?;
            i.d.format = Format::Extent as u8;
        }
        let at = self.allocate_unwritten(&mut i, lo, hi)?;
        let placed = holes - if at < hi { self.holes(&i, at, hi)? } else { 0 };
        // Write-back needs no space for them any more, but perhaps nodes where it splits extents.
        self.delayed.unreserve(ino, placed);
        self.delayed.reserve(ino, 0, converting, nodes);
        self.iput(&i)?;
        self.commit(now);
        Ok(if at < hi { at * fs } else { end })
    }

    /// Allocates the holes in [lo, hi) as unwritten extents, until the transaction is large enough; returns where it
    /// stopped.
    fn allocate_unwritten(&mut self, i: &mut Inode, lo: u64, hi: u64) -> Result<u64> {
        let (mut at, mut left) = (lo, UNWRITTEN_EXTENTS);
        while at < hi && left > 0 && !self.tx_full() {
            left -= 1;
            let prev = self.extent_le(i, at)?;
            if let Some(e) = prev.filter(|e| e.end() > at) {
                at = e.end();
                continue;
            }
            let next = self.extent_ge(i, at)?.map_or(hi, |e| e.at.min(hi));
            let want = (next - at).min(u64::from(self.maxblkpg_frags(at))) as u32;
            let got = self.alloc(self.goal(i, prev, at), want)?;
            self.insert_extent(i, Mapped { at, start: got.start, len: got.len, flags: UNWRITTEN })?;
            at += u64::from(got.len);
        }
        Ok(at)
    }
}
