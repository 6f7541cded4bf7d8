//! Regular files: the map of extents, reading, delayed writing, truncation, holes (3.3, 3.4).
//!
//! A write that fits the inode goes there. Others go into pages of the cache and reserve space
//! ([`Delayed`]). Write-back decides then, when the size is known: inline in the inode, or extents, as
//! contiguous as the AG allows.
//! The size on disk follows the data: it is logged by the transaction that makes the data
//! reachable, whose record waits for the data (YFS-C2).

use crate::alloc::{Goal, Scope, extent_value, make_extent};
use crate::btree::{Node, NodeStore, Tree};
use crate::delayed::{DataWrites, Delayed, Which};
use crate::format::*;
use crate::inode::Inode;
use crate::planted::{Flaw, planted};
use crate::volume::{Core, Volume, Want};
use arbor_base::cache::windows::Window;
use arbor_base::cache::{Name, cluster};
use arbor_base::device::{Buf, Kind, Request, zeroed};
use arbor_base::vfs::{Errno, Error, FallocMode, Ino, Result, Seek, Time};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A file past this many blocks gets full blocks only (3.1).
const SMALL_BLOCKS: u64 = 12;
/// A read of no more bytes is served from a window, or fetches one, if it finds neighbours there.
const SMALL_READ: u64 = 64 << 10;
/// Extents that a preallocation makes at a time: no more nodes than it has asked for.
const UNWRITTEN_EXTENTS: u32 = 128;
/// Pages that are allocated at a time.
const RUN_PAGES: usize = 64;

type FileTree<'s, 'c> = Tree<'s, MapStore<'c>, EXTENT_VALUE>;

/// An extent of a file: first logical fragment, where it lies, flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub at: u64,
    pub start: Frag,
    pub len: u32,
    pub flags: u32,
}

impl Mapped {
    pub fn end(&self) -> u64 {
        self.at.saturating_add(u64::from(self.len))
    }
}

/// Store of a tree whose root lies in an inode.
pub(crate) struct MapStore<'a> {
    core: &'a mut Core,
    inode: &'a mut Inode,
    kind: BlockType,
}

impl<'a> MapStore<'a> {
    pub fn dir(core: &'a mut Core, inode: &'a mut Inode) -> Self {
        MapStore { core, inode, kind: BlockType::DirNode }
    }
    pub fn file(core: &'a mut Core, inode: &'a mut Inode) -> Self {
        MapStore { core, inode, kind: BlockType::ExtentNode }
    }
}

impl NodeStore for MapStore<'_> {
    fn read<R>(&mut self, node: Node, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        match node {
            Node::Root => self.core.area(self.inode, f),
            Node::Block(b) => {
                let bytes = self.core.block(Frag(b), self.kind, self.inode.ino.0)?;
                Ok(f(bytes.get(HEADER..).unwrap_or(&[])))
            }
        }
    }

    fn write(&mut self, node: Node, at: usize, bytes: &[u8]) -> Result<()> {
        match node {
            Node::Root => self.core.area_write(self.inode, at, bytes),
            Node::Block(b) => self.core.write(self.core.geom.daddr(Frag(b)), Seal::Block, HEADER + at, bytes),
        }
    }

    fn alloc(&mut self) -> Result<u64> {
        let near = self.core.inode_ag(self.inode);
        let block = self.core.alloc_block(near, self.kind, self.inode.ino.0)?;
        let frags = u64::from(self.core.geom.block_frags());
        self.inode.d.frags = (self.inode.d.frags.get() + frags).into();
        Ok(block.0)
    }

    fn free(&mut self, block: u64) -> Result<()> {
        let frags = self.core.geom.block_frags();
        self.inode.d.frags = self.inode.d.frags.get().saturating_sub(frags.into()).into();
        self.core.free_block(Frag(block), frags)
    }

    fn address(&self, node: Node) -> u64 {
        match node {
            Node::Root => self.inode.ino.0.saturating_mul(SECTOR),
            Node::Block(b) => self.core.geom.daddr(Frag(b)).byte(),
        }
    }
}

impl Core {
    /// Bytes in a page of the cache: 4 KiB, or a fragment if that is larger.
    pub fn page_size(&self) -> u64 {
        self.geom.frag_size().max(4096)
    }

    fn page_frags(&self) -> u64 {
        self.page_size() >> self.geom.frag_shift
    }

    /// Size of a file with delayed writes.
    pub fn size_of(&self, i: &Inode) -> u64 {
        self.delayed.get(&i.ino.0).map_or(i.d.size.get(), |d| d.size)
    }

    fn with_map<R>(&mut self, i: &mut Inode, f: impl FnOnce(&mut FileTree<'_, '_>) -> Result<R>) -> Result<R> {
        let mut store = MapStore::file(self, i);
        let mut tree = FileTree::new(&mut store);
        let r = f(&mut tree)?;
        let height = tree.height()?;
        i.d.format = if height > 1 { Format::Btree } else { Format::Extent } as u8;
        Ok(r)
    }

    fn checked(&self, i: &Inode, at: u64, v: &[u8; EXTENT_VALUE]) -> Result<Mapped> {
        let (start, len, flags) = extent_value(v);
        let most = (MAX_SIZE >> self.geom.frag_shift) + 1;
        if !self.geom.valid_run(start, len) || at.checked_add(len.into()).is_none_or(|end| end > most) {
            return Err(i.corrupt("extent", format_args!("{}+{len}", start.0), "a run inside an AG").into());
        }
        Ok(Mapped { at, start, len, flags })
    }

    /// The extent that holds logical fragment `at`, or the last one before it.
    fn extent_le(&mut self, i: &Inode, at: u64) -> Result<Option<Mapped>> {
        if i.format() == Format::Inline {
            return Ok(None);
        }
        let mut copy = *i;
        let found = FileTree::new(&mut MapStore::file(self, &mut copy)).last_le(at)?;
        found.map(|(k, v)| self.checked(i, k, &v)).transpose()
    }

    fn extent_ge(&mut self, i: &Inode, at: u64) -> Result<Option<Mapped>> {
        if i.format() == Format::Inline {
            return Ok(None);
        }
        let mut copy = *i;
        let found = FileTree::new(&mut MapStore::file(self, &mut copy)).first_ge(at)?;
        found.map(|(k, v)| self.checked(i, k, &v)).transpose()
    }

    /// The extent that holds `at`, else the first behind it.
    pub fn extent_at(&mut self, i: &Inode, at: u64) -> Result<Option<Mapped>> {
        match self.extent_le(i, at)? {
            Some(e) if e.end() > at => Ok(Some(e)),
            _ => self.extent_ge(i, at),
        }
    }

    /// Written extents within [lo, hi), clipped to it.
    fn written(&mut self, i: &Inode, lo: u64, hi: u64) -> Result<Vec<Mapped>> {
        let mut out = Vec::new();
        let mut at = lo;
        while at < hi {
            let Some(e) = self.extent_at(i, at)? else { break };
            if e.at >= hi {
                break;
            }
            if e.flags & UNWRITTEN == 0 {
                out.push(clip(e, lo, hi));
            }
            at = e.end();
        }
        Ok(out)
    }

    /// Enters an extent into the map, joined with its neighbours where they fit.
    fn insert_extent(&mut self, i: &mut Inode, mut e: Mapped) -> Result<()> {
        i.d.frags = (i.d.frags.get() + u64::from(e.len)).into();
        let joins = |a: &Mapped, b: &Mapped| {
            a.end() == b.at
                && a.start.0 + u64::from(a.len) == b.start.0
                && a.flags == b.flags
                && u64::from(a.len) + u64::from(b.len) < 1 << 24
        };
        let geom = self.geom;
        let same_ag = |a: &Mapped, b: &Mapped| geom.ag_of(a.start) == geom.ag_of(b.start);
        if let Some(next) = self.extent_ge(i, e.end())?
            && joins(&e, &next)
            && same_ag(&e, &next)
        {
            self.with_map(i, |t| t.remove(next.at))?;
            e.len += next.len;
        }
        if let Some(prev) = self.extent_le(i, e.at)?
            && joins(&prev, &e)
            && same_ag(&prev, &e)
        {
            let v = make_extent(prev.start, prev.len + e.len, prev.flags);
            return self.with_map(i, |t| t.set(prev.at, &v));
        }
        self.with_map(i, |t| t.insert(e.at, &make_extent(e.start, e.len, e.flags)))
    }

    /// Takes [lo, hi) of one extent out of the map, without freeing it.
    fn cut_extent(&mut self, i: &mut Inode, e: Mapped, lo: u64, hi: u64) -> Result<Mapped> {
        let cut = clip(e, lo, hi);
        self.versions.change(i.ino);
        i.d.frags = i.d.frags.get().saturating_sub(cut.len.into()).into();
        if e.at < cut.at {
            let v = make_extent(e.start, (cut.at - e.at) as u32, e.flags);
            self.with_map(i, |t| t.set(e.at, &v))?;
        } else {
            self.with_map(i, |t| t.remove(e.at))?;
        }
        if cut.end() < e.end() {
            let skip = cut.end() - e.at;
            let v = make_extent(Frag(e.start.0 + skip), (e.end() - cut.end()) as u32, e.flags);
            self.with_map(i, |t| t.insert(cut.end(), &v))?;
        }
        Ok(cut)
    }

    /// Frees what is mapped in [lo, hi), from its end, until the transaction is large enough.
    /// Returns where it stopped: `lo` when done.
    fn unmap(&mut self, i: &mut Inode, lo: u64, hi: u64) -> Result<u64> {
        let mut end = hi;
        while end > lo {
            let Some(e) = self.extent_le(i, end - 1)? else { return Ok(lo) };
            if e.end() <= lo {
                return Ok(lo);
            }
            if self.tx_full() {
                return Ok(e.end().min(end));
            }
            let cut = self.cut_extent(i, e, lo, end)?;
            self.mark_free(Extent { start: cut.start, len: cut.len });
            end = cut.at;
        }
        Ok(lo)
    }

    // Writing.

    /// Puts the data of an inline file into page 0 and dirties it, so that write-back may
    /// change the format.
    fn inline_to_page(&mut self, i: &Inode) -> Result<()> {
        let size = i.d.size.get() as usize;
        if i.format() != Format::Inline || size == 0 {
            return Ok(());
        }
        let name = Name::Page { file: i.ino.0, index: 0 };
        if !self.cache.contains(name) {
            let data = self.area(i, |a| a.get(..size).unwrap_or(&[]).to_vec())?;
            self.cache.insert(name, Arc::new(data));
        }
        self.cache.modify(name, |_| ());
        Ok(())
    }

    /// Asks for page `index` if it has bytes on disk that are not in the cache.
    fn want_page(&mut self, i: &Inode, index: u64) -> Result<()> {
        if self.cache.get(Name::Page { file: i.ino.0, index }).is_some() {
            return Ok(());
        }
        let lo = index * self.page_frags();
        if self.written(i, lo, lo + self.page_frags())?.is_empty() {
            return Ok(());
        }
        self.want = Some(Want::Pages(i.ino, index, index));
        Err(Error::Restart)
    }

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
        } else if end <= self.area_len(&i) as u64 && !self.delayed.contains_key(&ino.0) {
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
            self.cache.modify(Name::Page { file: ino.0, index }, |_| ());
        }
        self.inline_to_page(&i)?;
        if offset > size && !size.is_multiple_of(ps) {
            self.page_write(ino, size, &[], now);
        }
        for index in first..=last {
            let lo = (index * ps).max(offset);
            let hi = ((index + 1) * ps).min(end);
            let piece = data.get((lo - offset) as usize..(hi - offset) as usize).unwrap_or(&[]);
            self.page_write(ino, lo, piece, now);
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
        // A page of it would be believed before the inode, also one that somebody is about to bring.
        self.cache.remove(Name::Page { file: i.ino.0, index: 0 });
        self.versions.change(i.ino);
        i.d.size = size.max(offset + data.len() as u64).into();
        i.d.set_mtime(now);
        i.d.set_ctime(now);
        self.iput(&i)?;
        self.commit(now);
        Ok(data.len())
    }

    /// Writes zeros to what of [a, b) lies in the file, however long it is by now.
    fn zero_pages(&mut self, ino: Ino, a: u64, b: u64, now: Time) -> Result<()> {
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

    /// Pages that are changed in part must be in the cache first; also the one at the old end
    /// of the file, whose rest becomes zeros that must reach the disk.
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

    fn page_write(&mut self, ino: Ino, at: u64, piece: &[u8], _now: Time) {
        let ps = self.page_size();
        let name = Name::Page { file: ino.0, index: at / ps };
        if !self.cache.contains(name) {
            self.cache.insert(name, Arc::new(Vec::new()));
        }
        let lo = (at % ps) as usize;
        self.cache.modify(name, |v| {
            if v.len() < lo + piece.len() {
                v.resize(lo + piece.len(), 0);
            }
            v[lo..lo + piece.len()].copy_from_slice(piece);
        });
    }

    /// Reserves space for pages that have none yet. What fallocate has given needs none, only perhaps nodes for the
    /// extents that it is cut into: they come from what is kept back.
    fn reserve(
        &mut self,
        i: &Inode,
        (first, last): (u64, u64),
        (size, grown): (u64, u64),
        offset: u64,
        now: Time,
    ) -> Result<()> {
        let (pf, fs) = (self.page_frags(), self.geom.frag_size());
        let known = self.delayed.get(&i.ino.0).is_some_and(|d| d.reserved > 0);
        let (mut need, mut converting) = (0, 0);
        let mut page = |core: &mut Core, index: u64| -> Result<()> {
            // Write-back takes what lies before the end; of a dirty page, what lay before the old one is reserved.
            let dirty = core.cache.is_dirty(Name::Page { file: i.ino.0, index });
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
        let d = self.delay(i, now);
        (d.reserved, d.converting, d.nodes) = (d.reserved + need, d.converting + converting, d.nodes + nodes);
        (self.reserved, self.converting) = (self.reserved + need, self.converting + converting);
        self.nodes += nodes;
        Ok(())
    }

    /// Tree nodes that a write into unwritten space may need where the nodes of its file are full: a first write those
    /// of one insert, and in a tree of several leaves any write one for each leaf that its ends lie in.
    fn converted_nodes(&mut self, i: &Inode, first: u64, last: u64) -> Result<u64> {
        let mut copy = *i;
        let height = FileTree::new(&mut MapStore::file(self, &mut copy)).height()?;
        let is_first = self.delayed.get(&i.ino.0).is_none_or(|d| d.converting == 0);
        let insert = if is_first { FileTree::max_new_blocks(height) as u64 } else { 0 };
        let goes_on = first > 0 && self.cache.is_dirty(Name::Page { file: i.ino.0, index: first - 1 });
        let leaves = if height > 1 { u64::from(!goes_on) + u64::from(first < last) } else { 0 };
        Ok(insert + leaves)
    }

    /// Fragments that are reserved for what dirty pages hold from `to` on.
    pub fn reserved_from(&mut self, i: &Inode, to: u64) -> Result<u64> {
        let (ps, pf, fs) = (self.page_size(), self.page_frags(), self.geom.frag_size());
        let (lo, hi) = (to.div_ceil(fs), self.size_of(i).div_ceil(fs));
        let pages: Vec<u64> = self.cache.dirty_pages(i.ino.0, to / ps).collect();
        let mut out = 0;
        for (a, b) in pages.into_iter().map(|p| (lo.max(p * pf), hi.min((p + 1) * pf))) {
            out += if a < b { self.holes(i, a, b)? } else { 0 };
        }
        Ok(out)
    }

    /// Gives back what is reserved for pages that are cut off.
    pub fn unreserve(&mut self, ino: Ino, frags: u64) {
        if let Some(d) = self.delayed.get_mut(&ino.0) {
            let frags = frags.min(d.reserved);
            d.reserved -= frags;
            self.reserved = self.reserved.saturating_sub(frags);
        }
    }

    /// The delayed state of an inode, made if there is none.
    pub fn delay(&mut self, i: &Inode, now: Time) -> &mut Delayed {
        let (seq, order) = (&mut self.delayed_seq, &mut self.delayed_order);
        self.delayed.entry(i.ino.0).or_insert_with(|| {
            *seq += 1;
            order.insert(*seq, i.ino.0);
            Delayed {
                size: i.d.size.get(),
                mtime: i.d.mtime(),
                ctime: i.d.ctime(),
                reserved: 0,
                converting: 0,
                nodes: 0,
                since: now,
                order: *seq,
                no_inline: false,
            }
        })
    }

    fn touch_delayed(&mut self, i: &Inode, size: u64, now: Time) {
        let d = self.delay(i, now);
        (d.size, d.mtime, d.ctime) = (size, now, now);
    }

    /// Drops what is delayed of an inode; its pages are gone or clean.
    pub fn undelay(&mut self, ino: Ino) {
        if let Some(d) = self.delayed.remove(&ino.0) {
            self.delayed_order.remove(&d.order);
            self.reserved = self.reserved.saturating_sub(d.reserved);
            self.converting = self.converting.saturating_sub(d.converting);
            self.nodes = self.nodes.saturating_sub(d.nodes);
        }
    }

    /// Whether the open transaction should end soon.
    pub fn tx_full(&self) -> bool {
        self.tx_bytes() > self.log.max_tx / 3
    }

    // Write-back.

    /// Allocates and collects the dirty pages of one file in the open transaction. Returns
    /// whether all of it was taken.
    pub fn flush_file(&mut self, ino: Ino, out: &mut DataWrites) -> Result<bool> {
        let Some(&Delayed { size, mtime, ctime, no_inline, .. }) = self.delayed.get(&ino.0) else {
            return Ok(true);
        };
        let mut i = self.iget(ino)?;
        i.d.set_mtime(mtime);
        i.d.set_ctime(ctime);
        if i.format() == Format::Inline {
            if size <= self.area_len(&i) as u64 && !no_inline {
                self.flush_inline(&mut i, size)?;
                self.undelay(ino);
                return Ok(true);
            }
            self.area_clear(&i)?;
            i.d.format = Format::Extent as u8;
            i.d.size = 0.into();
        }
        let mut from = 0;
        loop {
            let run = self.dirty_run(ino, from);
            let Some(&last) = run.last() else { break };
            // Never before the first run: an inline file's bytes have just left the inode.
            if from > 0 && self.tx_full() {
                let reached = run.first().copied().unwrap_or(0) * self.page_size();
                i.d.size = i.d.size.get().max(reached.min(size)).into();
                self.iput(&i)?;
                return Ok(false);
            }
            self.flush_run(&mut i, size, &run, out)?;
            from = last + 1;
        }
        i.d.size = size.into();
        self.iput(&i)?;
        self.undelay(ino);
        Ok(true)
    }

    fn flush_inline(&mut self, i: &mut Inode, size: u64) -> Result<()> {
        let name = Name::Page { file: i.ino.0, index: 0 };
        if let Some(page) = self.cache.peek(name).cloned() {
            let old = i.d.size.get().max(size) as usize;
            let mut bytes = page.get(..page.len().min(size as usize)).unwrap_or(&[]).to_vec();
            bytes.resize(old.min(self.area_len(i)), 0);
            self.area_write(i, 0, &bytes)?;
            // The inode's buffer has the data now.
            self.cache.remove(name);
        }
        i.d.size = size.into();
        self.iput(i)
    }

    /// Consecutive dirty pages from `from` on.
    fn dirty_run(&self, ino: Ino, from: u64) -> Vec<u64> {
        let mut run: Vec<u64> = Vec::new();
        for p in self.cache.dirty_pages(ino.0, from) {
            if run.last().is_some_and(|l| l + 1 != p) || run.len() >= RUN_PAGES {
                break;
            }
            run.push(p);
        }
        run
    }

    fn flush_run(&mut self, i: &mut Inode, size: u64, run: &[u64], out: &mut DataWrites) -> Result<()> {
        let pf = self.page_frags();
        let (Some(&a), Some(&b)) = (run.first(), run.last()) else { return Ok(()) };
        let used = size.div_ceil(self.geom.frag_size());
        let (lo, hi) = (a * pf, ((b + 1) * pf).min(used));
        let pieces = self.allocate(i, lo, hi, size)?;
        let (fs, ps) = (self.geom.frag_size(), self.page_size());
        let mut pages = Vec::with_capacity(run.len());
        for &p in run {
            let name = Name::Page { file: i.ino.0, index: p };
            let need = (hi.min((p + 1) * pf).saturating_sub(p * pf) * fs) as usize;
            if self.cache.peek(name).is_some_and(|v| v.len() < need) {
                self.cache.modify(name, |v| v.resize(need, 0));
            }
            match self.cache.begin_write(name) {
                Some(bytes) => {
                    pages.push(bytes);
                    out.pages.push(name);
                }
                None => return Err(Error::refused("bug: a page is written twice at once")),
            }
        }
        for piece in pieces {
            let mut at = piece.at * fs;
            let end = piece.end() * fs;
            while at < end {
                let n = (at / ps - a) as usize;
                let stop = end.min((at / ps + 1) * ps);
                let disk = piece.start.0 * fs + (at - piece.at * fs);
                if let Some(page) = pages.get(n) {
                    let buf = Buf::slice(page.clone(), (at % ps) as usize, (stop - at) as usize);
                    out.pieces.push((disk, Kind::Data, buf));
                    out.owners.push((i.ino, at / ps));
                }
                at = stop;
            }
        }
        Ok(())
    }

    /// Makes [lo, hi) mapped and written; returns where it lies, in order.
    fn allocate(&mut self, i: &mut Inode, lo: u64, hi: u64, size: u64) -> Result<Vec<Mapped>> {
        let small = size <= SMALL_BLOCKS << self.geom.block_shift;
        let mut out: Vec<Mapped> = Vec::new();
        let mut at = lo;
        while at < hi {
            let prev = self.extent_le(i, at)?;
            if let Some(e) = prev.filter(|e| e.end() > at) {
                let piece = clip(e, at, hi);
                if e.flags & UNWRITTEN != 0 {
                    self.cut_extent(i, e, piece.at, piece.end())?;
                    self.insert_extent(i, Mapped { flags: 0, ..piece })?;
                }
                out.push(Mapped { flags: 0, ..piece });
                at = piece.end();
                continue;
            }
            if small && self.move_tail_block(i, prev, at, lo, &mut out)? {
                at = out.last().map_or(lo, |p| p.end());
                continue;
            }
            let next = self.extent_ge(i, at)?.map_or(hi, |e| e.at.min(hi));
            let want = (next - at).min(u64::from(self.maxblkpg_frags(at))) as u32;
            let got = self.alloc(self.goal(i, prev, at), want, Scope::Anywhere)?;
            let piece = Mapped { at, start: got.start, len: got.len, flags: 0 };
            self.insert_extent(i, piece)?;
            out.push(piece);
            at = piece.end();
        }
        if !small {
            self.fill_block(i, hi, size)?;
        }
        Ok(out)
    }

    /// The last block of a small file is in one piece: if it cannot grow in place, it moves
    /// (fragment reallocation, 3.1). Only when all its pages are being written anyway, and space is
    /// not scarce.
    fn move_tail_block(
        &mut self,
        i: &mut Inode,
        prev: Option<Mapped>,
        at: u64,
        lo: u64,
        out: &mut Vec<Mapped>,
    ) -> Result<bool> {
        let bf = u64::from(self.geom.block_frags());
        let Some(e) = prev.filter(|e| e.end() == at && !at.is_multiple_of(bf)) else { return Ok(false) };
        let tail = e.at.max(at - at % bf);
        let behind = Frag(e.start.0 + u64::from(e.len));
        // What it leaves is free only later, and nobody has reserved what it takes.
        if tail < lo || self.available() < bf || self.is_free(behind)? {
            return Ok(false);
        }
        let want = (at - tail + 1).next_multiple_of(bf).min(bf) as u32;
        let got = self.alloc(self.goal(i, None, tail), want.max((at - tail) as u32 + 1), Scope::Anywhere)?;
        if u64::from(got.len) <= at - tail {
            self.free_now(got)?;
            return Ok(false);
        }
        let cut = self.cut_extent(i, e, tail, at)?;
        self.mark_free(Extent { start: cut.start, len: cut.len });
        while out.last().is_some_and(|p| p.end() > tail) {
            let Some(p) = out.pop() else { break };
            if p.at < tail {
                out.push(clip(p, p.at, tail));
            }
        }
        let piece = Mapped { at: tail, start: got.start, len: got.len.min((at - tail) as u32 + 1), flags: 0 };
        if got.len > piece.len {
            let rest = Extent { start: Frag(got.start.0 + u64::from(piece.len)), len: got.len - piece.len };
            self.free_now(rest)?;
        }
        self.insert_extent(i, piece)?;
        out.push(piece);
        Ok(true)
    }

    /// A large file has full blocks: what is left of its last one is allocated if it is free.
    fn fill_block(&mut self, i: &mut Inode, hi: u64, size: u64) -> Result<()> {
        let end = size.div_ceil(self.geom.block_size() as u64) * u64::from(self.geom.block_frags());
        if hi < size.div_ceil(self.geom.frag_size()) || hi >= end {
            return Ok(());
        }
        let end = self.extent_ge(i, hi)?.map_or(end, |e| e.at.min(end));
        let Some(prev) = self.extent_le(i, hi - 1)?.filter(|e| e.end() == hi && hi < end) else { return Ok(()) };
        let behind = Frag(prev.start.0 + u64::from(prev.len));
        if self.available() > end - hi && self.is_free(behind)? {
            let goal = Goal { ag: self.geom.ag_of(behind), at: Some(behind) };
            let got = self.alloc(goal, (end - hi) as u32, Scope::Anywhere)?;
            self.insert_extent(i, Mapped { at: hi, start: got.start, len: got.len, flags: UNWRITTEN })?;
        }
        Ok(())
    }

    fn is_free(&mut self, f: Frag) -> Result<bool> {
        if !self.geom.valid_run(f, 1) {
            return Ok(false);
        }
        let ag = self.geom.ag_of(f);
        if !self.ags[ag as usize].used { Ok(false) } else { self.frag_free(ag, f) }
    }

    /// Fragments until the file's next change of AG (maxblkpg, 3.3).
    fn maxblkpg_frags(&self, at: u64) -> u32 {
        let per = u64::from(self.sb.maxblkpg.get().max(1)) * u64::from(self.geom.block_frags());
        (per - at % per).min(1 << 20) as u32
    }

    /// Where the fragment `at` of a file should go: behind the extent before it, with room for
    /// the hole between them.
    fn goal(&self, i: &Inode, prev: Option<Mapped>, at: u64) -> Goal {
        let per = u64::from(self.sb.maxblkpg.get().max(1)) * u64::from(self.geom.block_frags());
        let home = self.inode_ag(i);
        match prev {
            None => Goal { ag: (home + (at / per) as u32) % self.sb.ag_used.get().max(1), at: None },
            Some(e) => {
                let ag = self.geom.ag_of(e.start);
                if at.is_multiple_of(per) {
                    return Goal { ag: (ag + 1) % self.geom.ag_count, at: None };
                }
                let want = e.start.0.saturating_add(at - e.at);
                let inside = want < self.geom.ag_start(ag).0 + u64::from(self.geom.ag_len(ag));
                Goal { ag, at: inside.then_some(Frag(want)) }
            }
        }
    }

    /// Fragments of [lo, hi) that have no space, and those that have it but are not written.
    fn space_in(&mut self, i: &Inode, lo: u64, hi: u64) -> Result<(u64, u64)> {
        let (mut have, mut unwritten, mut at) = (0, 0, lo);
        while at < hi
            && let Some(e) = self.extent_at(i, at)?.filter(|e| e.at < hi)
        {
            let len = u64::from(clip(e, lo, hi).len);
            have += len;
            unwritten += if e.flags & UNWRITTEN != 0 { len } else { 0 };
            at = e.end();
        }
        Ok(((hi - lo).saturating_sub(have), unwritten))
    }

    /// Fragments of [lo, hi) that have no space.
    fn holes(&mut self, i: &Inode, lo: u64, hi: u64) -> Result<u64> {
        self.space_in(i, lo, hi).map(|(holes, _)| holes)
    }

    /// The fragments that fallocate gives for a range of bytes: whole pages, as they are written.
    fn given_frags(&self, offset: u64, end: u64) -> (u64, u64) {
        let (ps, pf) = (self.page_size(), self.page_frags());
        (offset / ps * pf, end.div_ceil(ps) * pf)
    }

    /// Allocates what is a hole in [lo, hi) as unwritten extents, until the transaction is large
    /// enough; returns where it stopped.
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
            let got = self.alloc(self.goal(i, prev, at), want, Scope::Anywhere)?;
            self.insert_extent(i, Mapped { at, start: got.start, len: got.len, flags: UNWRITTEN })?;
            at += u64::from(got.len);
        }
        Ok(at)
    }

    /// Frees the blocks of a file from its end down to `to` bytes and sets its size, as far as
    /// one transaction goes. Returns how far it has come, in bytes.
    pub fn truncate_step(&mut self, i: &mut Inode, to: u64) -> Result<u64> {
        let fs = self.geom.frag_size();
        if i.format() == Format::Inline {
            let old = (i.d.size.get() as usize).min(self.area_len(i));
            if i.is_file() && (to as usize) < old {
                self.area_write(i, to as usize, &vec![0; old - to as usize])?;
            }
        } else {
            let lo = to.div_ceil(fs);
            let stopped = self.unmap(i, lo, u64::MAX)?;
            if stopped > lo {
                let reached = stopped.saturating_mul(fs);
                i.d.size = i.d.size.get().min(reached).into();
                self.iput(i)?;
                return Ok(reached);
            }
            if to == 0 {
                self.area_clear(i)?;
                i.d.format = Format::Inline as u8;
            }
        }
        i.d.size = to.into();
        self.iput(i)?;
        Ok(to)
    }

    /// Forgets pages past the new end of a file; the last one keeps what is before it.
    pub fn cut_pages(&mut self, ino: Ino, to: u64) {
        let ps = self.page_size();
        self.cache.drop_pages(ino.0, to.div_ceil(ps), u64::MAX);
        let name = Name::Page { file: ino.0, index: to / ps };
        let keep = (to % ps) as usize;
        if keep > 0 && self.cache.peek(name).is_some_and(|p| p.len() > keep) {
            let dirty = self.cache.is_dirty(name);
            self.cache.modify(name, |v| v.truncate(keep));
            if !dirty {
                self.cache.remove(name);
            }
        }
        self.versions.change(ino);
    }
}

fn clip(e: Mapped, lo: u64, hi: u64) -> Mapped {
    let (at, end) = (e.at.max(lo), e.end().min(hi));
    Mapped { at, start: Frag(e.start.0 + (at - e.at)), len: (end - at) as u32, flags: e.flags }
}

/// What a read has to fetch.
struct Fetch {
    /// Pages [first, last] that are missing.
    first: u64,
    last: u64,
    extents: Vec<Mapped>,
    /// The same in windows, if all of it is in some.
    windows: Vec<(Mapped, Arc<Window>)>,
}

/// What a read has to do without the lock.
struct Plan {
    /// Bytes of the file that are read.
    len: usize,
    fetches: Vec<Fetch>,
    /// To be read for those to come.
    ahead: Vec<Arc<Window>>,
    size: u64,
    version: u64,
    /// Bytes of a page and of a fragment.
    units: (u64, u64),
}

impl Volume {
    /// Reads file data; see [`arbor_base::vfs::FileSystem::read`]. What was read while the file was
    /// written in place may be of several moments, and is read again; in the end with the commit
    /// lock held, which nobody writes without.
    pub(crate) fn read_file(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        for attempt in 0.. {
            let order = (attempt >= 3).then(|| self.order());
            if let Some(n) = self.try_read(ino, offset, buf, order.is_some())? {
                return Ok(n);
            }
        }
        Ok(0)
    }

    /// Reads; `None` if the file changed on disk meanwhile, unless it is `settled`.
    fn try_read(&self, ino: Ino, offset: u64, buf: &mut [u8], settled: bool) -> Result<Option<usize>> {
        let plan = self.run(|core| {
            let i = core.iget(ino)?;
            if !i.is_file() {
                return Err(if i.is_dir() { Errno::EISDIR } else { Errno::EINVAL }.into());
            }
            let size = core.size_of(&i);
            let len = size.saturating_sub(offset).min(buf.len() as u64) as usize;
            let mut fetches = core.read_cached(&i, offset, &mut buf[..len])?;
            let ahead = core.read_ahead(&i, offset..offset + len as u64, size, &mut fetches)?;
            let units = (core.page_size(), core.geom.frag_size());
            Ok(Plan { len, fetches, ahead, size, version: core.versions.of(ino), units })
        })?;
        for window in &plan.ahead {
            window.start(&*self.dev, Kind::Data);
        }
        if plan.fetches.is_empty() {
            return Ok(Some(plan.len));
        }
        let mut direct = plan.fetches;
        direct.retain(|f| !self.copy_windows(f, offset, &mut buf[..plan.len], plan.units.1));
        let read = match self.fetch(&direct, plan.size, plan.units) {
            // What could not be read may be no part of the file any more.
            Err(_) if !settled && self.core.lock().versions.of(ino) != plan.version => return Ok(None),
            read => read?,
        };
        let ps = plan.units.0;
        for (f, bytes) in direct.iter().zip(&read) {
            let (lo, hi) = ((f.first * ps).max(offset), ((f.last + 1) * ps).min(offset + plan.len as u64));
            let from = (lo - f.first * ps) as usize;
            buf[(lo - offset) as usize..(hi - offset) as usize]
                .copy_from_slice(&bytes[from..from + (hi - lo) as usize]);
        }
        let same = self.keep_pages(ino, &direct, &read, plan.version);
        Ok((same || settled || planted(Flaw::MixedRead)).then_some(plan.len))
    }

    /// Copies a piece of a file out of its windows, as far as it lies in `buf`, which is at `offset`
    /// of the file; says whether it could.
    fn copy_windows(&self, f: &Fetch, offset: u64, buf: &mut [u8], fs: u64) -> bool {
        let end = offset + buf.len() as u64;
        for (e, window) in &f.windows {
            let Some(bytes) = window.bytes(&*self.dev, Kind::Data) else { return false };
            let (lo, hi) = ((e.at * fs).max(offset), (e.end() * fs).min(end));
            if lo >= hi {
                continue;
            }
            let from = window.place(e.start.0 * fs + (lo - e.at * fs));
            let Some(piece) = bytes.get(from..from + (hi - lo) as usize) else { return false };
            buf[(lo - offset) as usize..(hi - offset) as usize].copy_from_slice(piece);
        }
        !f.windows.is_empty()
    }

    /// Reads the missing pieces from the device, all at once. Takes no lock: what was mapped may be
    /// another file's by the time it is read, and its callers look at the version again.
    fn fetch(&self, fetches: &[Fetch], size: u64, (ps, fs): (u64, u64)) -> Result<Vec<Vec<u8>>> {
        let mut out: Vec<Vec<u8>> = fetches.iter().map(|f| zeroed(((f.last + 1 - f.first) * ps) as usize)).collect();
        let all: Vec<(usize, Mapped)> =
            fetches.iter().enumerate().flat_map(|(n, f)| f.extents.iter().map(move |e| (n, *e))).collect();
        let batch: Vec<Request> = all
            .iter()
            .map(|(_, e)| Request::read(Kind::Data, e.start.0 * fs, (u64::from(e.len) * fs) as usize))
            .collect();
        self.counters.data_reads.fetch_add(batch.len() as u64, Relaxed);
        self.counters.data_read_bytes.fetch_add(batch.iter().map(Request::len).sum(), Relaxed);
        let done = match <[_; 1]>::try_from(batch) {
            Ok([one]) => {
                let mut bytes = zeroed(one.len() as usize);
                vec![self.dev.read_at(Kind::Data, one.offset, &mut bytes).map(|()| bytes)]
            }
            Err(batch) => self.dev.submit(batch).wait(),
        };
        for ((n, e), bytes) in all.iter().zip(done) {
            let bytes = bytes?;
            let base = fetches[*n].first * ps;
            let at = (e.at * fs - base) as usize;
            // Past the end of the file the last fragment holds nothing that may be seen.
            let len = (bytes.len() as u64).min(size.saturating_sub(e.at * fs)) as usize;
            out[*n][at..at + len].copy_from_slice(&bytes[..len]);
        }
        Ok(out)
    }

    /// Puts pages read from the device into the cache, unless the file has changed on disk since it
    /// had this version; says whether it has not.
    fn keep_pages(&self, ino: Ino, fetches: &[Fetch], read: &[Vec<u8>], version: u64) -> bool {
        let mut core = self.core.lock();
        if core.versions.of(ino) != version && !planted(Flaw::StalePages) {
            return false;
        }
        let ps = core.page_size() as usize;
        for (f, bytes) in fetches.iter().zip(read) {
            for (n, page) in bytes.chunks(ps).enumerate() {
                let name = Name::Page { file: ino.0, index: f.first + n as u64 };
                if !core.cache.contains(name) {
                    core.cache.insert(name, Arc::new(page.to_vec()));
                }
            }
        }
        true
    }

    /// Brings pages of a file into the cache, for a change of a part of them. Does nothing if the file
    /// changes on disk meanwhile: who still wants them asks again, in the end `settled`, with the
    /// commit lock held.
    pub(crate) fn fill_pages(&self, ino: Ino, first: u64, last: u64, settled: bool) -> Result<()> {
        let _order = settled.then(|| self.order());
        let (fetches, size, version, units) = self.run(|core| {
            let i = core.iget(ino)?;
            let lo = first * core.page_frags();
            let extents = core.written(&i, lo, (last + 1) * core.page_frags())?;
            let units = (core.page_size(), core.geom.frag_size());
            let all = Fetch { first, last, extents, windows: Vec::new() };
            // It may have become inline since: its bytes are in the inode, and a page would hide them.
            let all = if i.format() == Format::Inline { Vec::new() } else { vec![all] };
            Ok((all, core.size_of(&i), core.versions.of(ino), units))
        })?;
        let ps = units.0;
        let mut read = match self.fetch(&fetches, size, units) {
            Err(_) if !settled && self.core.lock().versions.of(ino) != version => return Ok(()),
            read => read?,
        };
        if let Some(bytes) = read.first_mut() {
            let keep = size.saturating_sub(first * ps) as usize;
            bytes.truncate(keep.max(1));
        }
        self.keep_pages(ino, &fetches, &read, version);
        Ok(())
    }

    /// Writes dirty data to the device: of one file, or of all that became dirty by `until`.
    pub(crate) fn write_back(&self, io: &mut crate::volume::Io, which: Which) -> Result<()> {
        loop {
            let step = {
                let mut core = self.core.lock();
                core.health.check_ordered()?;
                let collected = core.collect_data(which, self.clock.now());
                collected.map(|(out, more)| (core.writes(&out.pieces), out, more))
            };
            let (windows, out, more) = match step {
                Ok(s) => s,
                Err(Error::Restart) => {
                    self.core.lock().want = None;
                    self.flush_log(io)?;
                    self.run_bitmap_daemon(io, false)?;
                    self.checkpoint(io, true)?;
                    continue;
                }
                Err(e) => return Err(e),
            };
            if !out.pages.is_empty() {
                self.counters.data_writes.fetch_add(out.pieces.len() as u64, Relaxed);
                let bytes: u64 = out.pieces.iter().map(|p| p.2.len() as u64).sum();
                self.counters.data_write_bytes.fetch_add(bytes, Relaxed);
                io.note_data(&out);
                let done = self.dev.submit(cluster(out.pieces, 1 << 20)).wait_all().map_err(Error::Io);
                let mut core = self.core.lock();
                core.written_to(&windows);
                for name in &out.pages {
                    core.cache.end_write(*name, done.is_ok());
                }
                drop(core);
                self.or_fail(done)?;
            }
            if out.blocked {
                self.part_from_witnesses(io)?;
            } else if !more {
                return Ok(());
            }
        }
    }

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
                // A write behind it writes the page of the old end too, with zeros.
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

    /// Writes back one file, so that its map is the whole truth.
    pub(crate) fn flush_one(&self, ino: Ino) -> Result<()> {
        if !self.core.lock().delayed.contains_key(&ino.0) {
            return Ok(());
        }
        let mut io = self.order();
        self.write_back(&mut io, Which::One(ino))
    }

    fn preallocate(&self, ino: Ino, offset: u64, end: u64) -> Result<()> {
        let (mut at, hi) = self.core.lock().given_frags(offset, end);
        while at < hi {
            self.go_on()?;
            at = self.change(|core, now| {
                let mut i = core.iget(ino)?;
                if i.format() == Format::Inline && i.d.size.get() > 0 {
                    // Truncated and written meanwhile: it is another file now.
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
                // As in a truncation, pages go only where the blocks are gone, and whole.
                let stop = core.unmap(&mut i, first, stop)?.next_multiple_of(core.page_frags());
                core.cache.drop_pages(ino.0, stop * fs / ps, hi / ps);
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

    /// Next data or hole; see [`arbor_base::vfs::FileSystem::seek`].
    pub(crate) fn seek_file(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        self.flush_one(ino)?;
        self.run(|core| {
            let i = core.iget(ino)?;
            if !i.is_file() {
                return Err(if i.is_dir() { Errno::EISDIR } else { Errno::EINVAL }.into());
            }
            let size = core.size_of(&i);
            if offset >= size {
                return Err(Errno::ENXIO.into());
            }
            if i.format() == Format::Inline {
                return Ok(if whence == Seek::Data { offset } else { size });
            }
            let fs = core.geom.frag_size();
            let mut at = offset / fs;
            while at * fs < size {
                let e = core.extent_at(&i, at)?;
                let data = e.filter(|e| e.flags & UNWRITTEN == 0);
                let inside = data.is_some_and(|e| e.at <= at);
                if inside == (whence == Seek::Data) {
                    return Ok((at * fs).max(offset));
                }
                at = match e {
                    Some(e) if e.at <= at => e.end(),
                    Some(e) => e.at,
                    None => break,
                };
            }
            if whence == Seek::Data { Err(Errno::ENXIO.into()) } else { Ok(size) }
        })
    }
}

/// Data bytes of one batch of write-back.
const BATCH_BYTES: usize = 16 << 20;

impl Core {
    fn collect_data(&mut self, which: Which, now: Time) -> Result<(DataWrites, bool)> {
        self.health.check_alive()?;
        let mut out = DataWrites::default();
        let next = |core: &Core| match which {
            Which::One(ino) => core.delayed.contains_key(&ino.0).then_some(ino),
            Which::UpTo(seq) => core.delayed_order.range(..=seq).next().map(|(_, i)| Ino(*i)),
        };
        if next(self).is_none() {
            return Ok((out, false));
        }
        self.health.check_writable()?;
        self.begin()?;
        let mut more = false;
        while let Some(ino) = next(self) {
            if self.is_witnessed(ino) && !planted(Flaw::WitnessesForgotten) {
                out.blocked = true;
                break;
            }
            // Who has mapped pages of it reads beside the writes that follow.
            self.versions.change(ino);
            let r = self.flush_file(ino, &mut out);
            let done = match r {
                Ok(done) => done,
                Err(e) => {
                    self.health.fail(&e);
                    self.tx = Default::default();
                    self.blocking = false;
                    return Err(e);
                }
            };
            let bytes: usize = out.pages.len() * self.page_size() as usize;
            if !done || self.tx_full() || bytes >= BATCH_BYTES {
                more = true;
                break;
            }
        }
        self.commit(now);
        Ok((out, more))
    }

    /// Copies what the cache has into `buf`; returns what is missing. `buf` ends at the end of
    /// the file at the latest.
    fn read_cached(&mut self, i: &Inode, offset: u64, buf: &mut [u8]) -> Result<Vec<Fetch>> {
        buf.fill(0);
        let mut out: Vec<Fetch> = Vec::new();
        if buf.is_empty() {
            return Ok(out);
        }
        let ps = self.page_size();
        let end = offset + buf.len() as u64;
        for index in offset / ps..=(end - 1) / ps {
            let (lo, hi) = ((index * ps).max(offset), ((index + 1) * ps).min(end));
            let place = &mut buf[(lo - offset) as usize..(hi - offset) as usize];
            if let Some(page) = self.cache.get(Name::Page { file: i.ino.0, index }) {
                let page = page.get((lo % ps) as usize..).unwrap_or(&[]);
                let n = page.len().min(place.len());
                place[..n].copy_from_slice(&page[..n]);
                continue;
            }
            if i.format() == Format::Inline {
                let have = (i.d.size.get() as usize).min(self.geom.area());
                self.area(i, |a| {
                    let a = a.get(..have).unwrap_or(&[]);
                    let a = a.get(lo as usize..).unwrap_or(&[]);
                    let n = a.len().min(place.len());
                    place[..n].copy_from_slice(&a[..n]);
                })?;
                continue;
            }
            match out.last_mut() {
                Some(f) if f.last + 1 == index => f.last = index,
                _ => out.push(Fetch { first: index, last: index, extents: Vec::new(), windows: Vec::new() }),
            }
        }
        let pf = self.page_frags();
        for f in &mut out {
            f.extents = self.written(i, f.first * pf, (f.last + 1) * pf)?;
        }
        out.retain(|f| !f.extents.is_empty());
        Ok(out)
    }

    /// Finds windows for what a read has to fetch; returns those that should be read for the reads
    /// to come.
    fn read_ahead(
        &mut self,
        i: &Inode,
        range: std::ops::Range<u64>,
        size: u64,
        fetches: &mut [Fetch],
    ) -> Result<Vec<Arc<Window>>> {
        if fetches.is_empty() {
            return Ok(Vec::new());
        }
        for f in fetches {
            f.windows = self.windows_of(&f.extents, size <= SMALL_READ).unwrap_or_default();
        }
        let mut out = self.windows.run_on();
        let fs = self.geom.frag_size();
        let next = self.streams.read(i.ino.0, range, size);
        if next.is_empty() {
            return Ok(out);
        }
        // What lies ahead may be damaged, or not in the cache: that is for who comes there.
        let Ok(extents) = self.written(i, next.start / fs, next.end.div_ceil(fs)) else { return Ok(out) };
        for e in extents {
            let (at, len) = (e.start.0 * fs, u64::from(e.len) * fs);
            if len >= SMALL_READ {
                out.extend(self.windows.ahead(at..at + len));
            }
        }
        self.streams.started(i.ino.0, next.end);
        Ok(out)
    }

    /// Extents cut at the bounds of windows, each with its window; `None` unless all have one.
    fn windows_of(&mut self, extents: &[Mapped], at_home: bool) -> Option<Vec<(Mapped, Arc<Window>)>> {
        let fs = self.geom.frag_size();
        let small = extents.iter().map(|e| u64::from(e.len)).sum::<u64>() * fs <= SMALL_READ;
        let per = (self.windows.window_len() / fs).max(1);
        let mut out = Vec::new();
        for e in extents {
            let mut at = e.at;
            while at < e.end() {
                let start = e.start.0 + (at - e.at);
                let piece = clip(*e, at, at + (per - start % per));
                let len = u64::from(piece.len) * fs;
                let found =
                    if small { self.windows.find(start * fs, len, at_home) } else { self.windows.get(start * fs) };
                out.push((piece, found?));
                at = piece.end();
            }
        }
        Some(out)
    }

    /// Grows a file by a hole; the page at its old end is written back with zeros behind it.
    pub fn extend(&mut self, ino: Ino, to: u64, now: Time) -> Result<()> {
        if to > MAX_SIZE {
            return Err(Errno::EFBIG.into());
        }
        let i = self.iget(ino)?;
        let (size, ps) = (self.size_of(&i), self.page_size());
        if size % ps != 0 && i.format() != Format::Inline {
            self.want_page(&i, size / ps)?;
            self.reserve(&i, (size / ps, size / ps), (size, to), 0, now)?;
            if self.cache.contains(Name::Page { file: ino.0, index: size / ps }) {
                self.page_write(ino, size, &[], now);
            }
        } else if i.format() == Format::Inline {
            if to > self.area_len(&i) as u64 {
                self.reserve(&i, (0, 0), (size, to), 0, now)?;
            }
            self.inline_to_page(&i)?;
        }
        self.touch_delayed(&i, to, now);
        Ok(())
    }
}
