//! Allocation of fragments and inodes (3.1 to 3.3): choice of the AG, then of the place in it.
//!
//! The bitmap blocks hold the truth and are logged. In core each AG that is worked on has its
//! bitmap in one piece with the binary-buddy encoding and the extent summary tree on top; both
//! are derived and never logged. Only [`MAPS`] AGs are loaded at a time.

use crate::btree::{Node, NodeStore, Tree};
use crate::buffers::What;
use crate::format::*;
use crate::space::{Map, log_run};
use crate::volume::{Core, Want};
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Errno, Error, Ino, Result};
use arbor_kit::buddy::{Summary, bitmap};
use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};
use zerocopy::{FromBytes, IntoBytes};

/// Whole blocks that data leave to directories, attributes and trees, while they find anything else.
const SPARE_BLOCKS: u32 = 16;
/// AGs whose bitmap may be in core at one time.
const MAPS: usize = 64;

/// Where an allocation would like to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    pub ag: u32,
    pub at: Option<Frag>,
}

/// How far the allocator may look (3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// `ALLOC_ANYWHERE`
    Anywhere,
    /// `ALLOC_GROUP`
    Group,
}

impl Core {
    /// Fragments an ordinary call may still take.
    pub fn available(&self) -> u64 {
        self.free.saturating_sub(self.reserved + self.pool)
    }

    /// Fails with `ENOSPC` unless `frags` can be had; asks for reclaim first if something is on
    /// its way to be free.
    pub fn need_space(&mut self, frags: u64) -> Result<()> {
        if self.available() >= frags {
            return Ok(());
        }
        // Delayed writes may have more reserved than they take.
        if self.is_freeing() || self.reserved > 0 {
            self.want = Some(Want::DiskSpace);
            return Err(Error::Restart);
        }
        Err(Errno::ENOSPC.into())
    }

    fn load_map(&mut self, ag: u32) -> Result<()> {
        if self.ags[ag as usize].map.is_some() {
            return Ok(());
        }
        let len = self.geom.ag_len(ag);
        let mut bits = Vec::with_capacity(len.div_ceil(8) as usize + self.geom.block_size());
        for n in 0..self.geom.bitmap_blocks {
            let block = self.geom.frag_of(self.geom.bitmap_block(ag, n));
            let bytes = self.meta_block(block, BlockType::Bitmap, u64::from(ag))?;
            bits.extend_from_slice(bytes.get(HEADER..).unwrap_or(&[]));
        }
        bits.truncate(len.div_ceil(32) as usize * 4);
        let summary = Summary::build(&bits, len);
        let free = bitmap::count_free(&bits, len);
        let known = self.ags[ag as usize].free;
        let own = self.geom.ag_meta_frags();
        if self.ags[ag as usize].used && !bitmap::all_used(&bits, 0, own.min(len)) {
            let at = self.geom.bitmap_block(ag, 0).byte();
            return Err(Corrupt::new("AG bitmap block", "bits", at, "free", "the AG's own structures in use").into());
        }
        if free != known {
            let at = self.geom.group_block(ag).byte();
            return Err(Corrupt::new("AG group block", "free", at, known, free).into());
        }
        if self.loaded.len() >= MAPS
            && let Some(old) = self.loaded.pop_front()
        {
            self.ags[old as usize].map = None;
        }
        self.loaded.push_back(ag);
        self.ags[ag as usize].map = Some(Box::new(Map { bits, summary }));
        Ok(())
    }

    /// A block of an AG's own structures, owner checked.
    pub fn meta_block(&mut self, frag: Frag, kind: BlockType, owner: u64) -> Result<&[u8]> {
        let (addr, len) = (self.geom.daddr(frag), self.geom.block_size());
        let bytes = self.buffer(addr, len, What::Block(kind))?;
        let found = BlockHeader::ref_from_prefix(bytes).map_or(u64::MAX, |(h, _)| h.owner.get());
        if found != owner {
            return Err(Corrupt::new(kind.name(), "owner", addr.byte(), found, owner).into());
        }
        Ok(bytes)
    }

    /// Drops the bitmap of an AG from core.
    pub fn forget_map(&mut self, ag: u32) {
        self.ags[ag as usize].map = None;
        self.loaded.retain(|a| *a != ag);
    }

    fn map(&mut self, ag: u32) -> Result<&mut Map> {
        self.load_map(ag)?;
        self.ags[ag as usize].map.as_deref_mut().ok_or_else(|| Error::refused("bug: no map"))
    }

    /// Sets or clears bits of an AG, in core and in the bitmap blocks, and its free count.
    fn set_bits(&mut self, ag: u32, start: u32, len: u32, used: bool) -> Result<()> {
        let map = self.map(ag)?;
        let consistent =
            if used { bitmap::all_free(&map.bits, start, len) } else { bitmap::all_used(&map.bits, start, len) };
        if !consistent {
            let at = (self.geom.ag_start(ag).0 + u64::from(start)) * self.geom.frag_size();
            let (found, expected) = if used { ("used bits", "free bits") } else { ("free bits", "used bits") };
            return Err(Corrupt::new("AG bitmap block", "bits", at, found, expected).into());
        }
        if used {
            bitmap::set_used(&mut map.bits, start, len);
            map.summary.used(&map.bits, start, len);
            // No more than these, if the run began and ended inside of blocks.
            let blocks = len.div_ceil(self.geom.block_frags()) + 1;
            self.blocks_known = self.blocks_known.saturating_sub(blocks);
        } else {
            bitmap::set_free(&mut map.bits, start, len);
            map.summary.freed(&map.bits, start, len);
        }
        self.log_bits(ag, start, len)?;
        let a = &mut self.ags[ag as usize];
        if used {
            a.free -= len;
            self.free -= u64::from(len);
            a.last = start + len;
            if a.first_free >= start && a.first_free < start + len {
                a.first_free = start + len;
            }
        } else {
            a.free += len;
            self.free += u64::from(len);
            a.first_free = a.first_free.min(start);
        }
        self.log_group(ag)
    }

    fn log_bits(&mut self, ag: u32, start: u32, len: u32) -> Result<()> {
        let per = self.geom.bits_per_bitmap();
        for n in start / per..=(start + len - 1) / per {
            let (lo, hi) = (start.max(n * per), (start + len).min((n + 1) * per));
            let (a, b) = (lo as usize / 8, hi.div_ceil(8) as usize);
            let bytes: Vec<u8> = self.map(ag)?.bits.get(a..b).unwrap_or(&[]).to_vec();
            let block = self.geom.bitmap_block(ag, n);
            self.meta_block(self.geom.frag_of(block), BlockType::Bitmap, u64::from(ag))?;
            self.write(block, Seal::Block, HEADER + a - (n * per) as usize / 8, &bytes)?;
        }
        Ok(())
    }

    fn log_group(&mut self, ag: u32) -> Result<()> {
        let a = &self.ags[ag as usize];
        let body = GroupBody {
            free: a.free.into(),
            dirs: a.dirs.into(),
            frags: self.geom.ag_len(ag).into(),
            reserved: 0.into(),
        };
        let block = self.geom.group_block(ag);
        self.meta_block(self.geom.frag_of(block), BlockType::Group, u64::from(ag))?;
        self.write(block, Seal::Block, HEADER, body.as_bytes())
    }

    fn log_inodes_body(&mut self, ag: u32) -> Result<()> {
        let a = &self.ags[ag as usize];
        let body = InodesBody { total: a.inodes.into(), free: a.inodes_free.into(), recovery: a.recovery.into() };
        let block = self.geom.inode_block(ag);
        self.meta_block(self.geom.frag_of(block), BlockType::Inodes, u64::from(ag))?;
        self.write(block, Seal::Block, HEADER, body.as_bytes())
    }

    /// Reads the headers of an AG in use at mount.
    pub fn load_ag(&mut self, ag: u32) -> Result<()> {
        let (group, inodes) = (self.geom.group_block(ag), self.geom.inode_block(ag));
        let bytes = self.meta_block(self.geom.frag_of(group), BlockType::Group, ag.into())?;
        let body = GroupBody::read_from_prefix(bytes.get(HEADER..).unwrap_or(&[])).map(|b| b.0).unwrap_or_default();
        if body.free.get() > self.geom.ag_len(ag) || body.frags.get() != self.geom.ag_len(ag) {
            return Err(Corrupt::new("AG group block", "frags", group.byte(), body.frags, self.geom.ag_len(ag)).into());
        }
        let bytes = self.meta_block(self.geom.frag_of(inodes), BlockType::Inodes, ag.into())?;
        let ib = InodesBody::read_from_prefix(bytes.get(HEADER..).unwrap_or(&[])).map(|b| b.0).unwrap_or_default();
        if body.dirs.get() > self.geom.ag_len(ag) {
            return Err(Corrupt::new("AG group block", "dirs", group.byte(), body.dirs, "no more than fit").into());
        }
        let most = self.geom.ag_len(ag) / self.geom.chunk_frags() * CHUNK_INODES as u32;
        for (field, found, most) in [("total", ib.total, most), ("free", ib.free, ib.total.get())] {
            if found.get() > most {
                return Err(Corrupt::new("AG inode block", field, inodes.byte(), found, most).into());
            }
        }
        let a = &mut self.ags[ag as usize];
        a.used = true;
        (a.free, a.dirs) = (body.free.get(), body.dirs.get());
        (a.inodes, a.inodes_free, a.recovery) = (ib.total.get(), ib.free.get(), ib.recovery.get());
        self.inodes += u64::from(a.inodes);
        self.inodes_free += u64::from(a.inodes_free);
        Ok(())
    }

    /// Initialises the next AG: its structures and its first inode chunk, in the open transaction.
    pub fn init_ag(&mut self) -> Result<u32> {
        let ag = self.sb.ag_used.get();
        let geom = self.geom;
        let bs = geom.block_size();
        self.sb.ag_used = (ag + 1).into();
        self.log_copy(geom.daddr(geom.ag_start(ag)))?;
        if ag > 0 {
            self.log_super()?;
        }
        self.init_block(geom.group_block(ag), BlockType::Group, ag.into(), bs)?;
        self.init_block(geom.inode_block(ag), BlockType::Inodes, ag.into(), bs)?;
        let per = geom.bits_per_bitmap();
        for n in 0..geom.bitmap_blocks {
            let block = geom.bitmap_block(ag, n);
            self.init_block(block, BlockType::Bitmap, ag.into(), bs)?;
            let end = geom.ag_len(ag).saturating_sub(n * per).min(per);
            let mut past = vec![0; bs - HEADER];
            bitmap::set_used(&mut past, end, per - end);
            self.write(block, Seal::Block, HEADER, &past)?;
        }
        let a = &mut self.ags[ag as usize];
        self.free -= u64::from(a.free);
        a.free = geom.ag_len(ag);
        self.free += u64::from(a.free);
        self.set_bits(ag, 0, geom.ag_meta_frags(), true)?;
        self.ags[ag as usize].used = true;
        self.set_bits(ag, geom.first_chunk(), geom.chunk_frags(), true)?;
        if let Some((start, len)) = log_run(&geom, &self.sb, ag) {
            self.set_bits(ag, start, len, true)?;
        }
        self.ags[ag as usize].last = 0;
        self.ags[ag as usize].chunks = Some(BTreeMap::new());
        self.add_chunk(ag, geom.first_chunk())?;
        Ok(ag)
    }

    /// Logs a copy of the superblock.
    pub fn log_copy(&mut self, addr: Daddr) -> Result<()> {
        self.init(addr, Seal::Super, SECTOR as usize);
        let copy = SuperBlock { clean: 0.into(), ..self.sb };
        self.write(addr, Seal::Super, 0, copy.as_bytes())
    }

    /// Logs the superblock's changed fields.
    pub fn log_super(&mut self) -> Result<()> {
        let sb = self.sb;
        if self.cache.peek(arbor_base::cache::Name::Block(0)).is_none() {
            let mut bytes = vec![0; SECTOR as usize];
            self.dev.read_at(arbor_base::device::Kind::Super, 0, &mut bytes)?;
            self.cache.insert(arbor_base::cache::Name::Block(0), std::sync::Arc::new(bytes));
        }
        for (at, field) in [
            (offset_of!(SuperBlock, ag_used), sb.ag_used.as_bytes()),
            (offset_of!(SuperBlock, ag_count), sb.ag_count.as_bytes()),
            (offset_of!(SuperBlock, frags), sb.frags.as_bytes()),
            (offset_of!(SuperBlock, label), &sb.label),
        ] {
            self.write(Daddr(0), Seal::Super, at, field)?;
        }
        Ok(())
    }

    /// Allocates a run of at most `want` fragments, longest first; `ENOSPC` if there is none.
    /// The order is that of 3.3: the hint, the first free fragment, behind the last allocation,
    /// the summary tree.
    pub fn alloc(&mut self, goal: Goal, want: u32, scope: Scope) -> Result<Extent> {
        debug_assert!(want > 0);
        let count = self.geom.ag_count;
        let goal_ag = goal.ag.min(count - 1);
        if scope == Scope::Anywhere
            && let Some(scrap) = self.alloc_scraps(goal_ag, want)?
        {
            return Ok(scrap);
        }
        for i in 0..count {
            let ag = (goal_ag + i) % count;
            if !self.ags[ag as usize].used || self.ags[ag as usize].free == 0 {
                if scope == Scope::Group {
                    break;
                }
                continue;
            }
            let at = goal.at.filter(|f| self.geom.ag_of(*f) == ag).map(|f| (f.0 - self.geom.ag_start(ag).0) as u32);
            // Far from full AGs serve whole requests only, so that a file does not crumble in a
            // full AG while the next is empty.
            let whole = scope == Scope::Anywhere && i + 1 < count && self.free > u64::from(want) * 4;
            if let Some((start, len)) = self.find(ag, at, want, whole)? {
                self.set_bits(ag, start, len, true)?;
                return Ok(Extent { start: Frag(self.geom.ag_start(ag).0 + u64::from(start)), len });
            }
        }
        if scope == Scope::Group {
            return Err(Errno::ENOSPC.into());
        }
        if self.sb.ag_used.get() < count {
            let ag = self.init_ag()?;
            return self.alloc(Goal { ag, at: None }, want, scope);
        }
        self.alloc_any(want)
    }

    fn alloc_any(&mut self, want: u32) -> Result<Extent> {
        for ag in 0..self.sb.ag_used.get() {
            if self.ags[ag as usize].free > 0
                && let Some((start, len)) = self.find(ag, None, want, false)?
            {
                self.set_bits(ag, start, len, true)?;
                return Ok(Extent { start: Frag(self.geom.ag_start(ag).0 + u64::from(start)), len });
            }
        }
        Err(Errno::ENOSPC.into())
    }

    /// A run in one AG. `whole`: all of `want` or, at the hint, at least a part; else `None`.
    fn find(&mut self, ag: u32, hint: Option<u32>, want: u32, whole: bool) -> Result<Option<(u32, u32)>> {
        let bits = self.geom.ag_len(ag);
        let (first, last) = (self.ags[ag as usize].first_free, self.ags[ag as usize].last);
        let map = self.map(ag)?;
        if let Some(at) = hint {
            let run = bitmap::free_run(&map.bits, at, want, bits);
            if run > 0 {
                return Ok(Some((at, run)));
            }
        }
        let first = bitmap::next_free(&map.bits, first, bits);
        let at_once = [first, Some(last)].into_iter().flatten();
        let at_once = at_once.map(|at| (at, bitmap::free_run(&map.bits, at, want, bits))).find(|r| r.1 == want);
        let found = at_once
            .or_else(|| map.summary.find_run(&map.bits, want, last.min(bits - 1)).filter(|r| !whole || r.1 >= want));
        if let Some(f) = first {
            self.ags[ag as usize].first_free = f;
        }
        Ok(found.map(|(start, len)| (start, len.min(want))))
    }

    /// Allocates one metadata block near `near`.
    pub fn alloc_block(&mut self, near: u32, kind: BlockType, owner: u64) -> Result<Frag> {
        let want = self.geom.block_frags();
        let e = self.alloc_run(near, want)?;
        self.init_block(self.geom.daddr(e.start), kind, owner, self.geom.block_size())?;
        Ok(e.start)
    }

    /// Allocates exactly `want` fragments in one run, wherever there is one.
    pub fn alloc_run(&mut self, near: u32, want: u32) -> Result<Extent> {
        let count = self.geom.ag_count;
        for i in 0..count {
            let ag = (near.min(count - 1) + i) % count;
            if self.ags[ag as usize].used
                && self.ags[ag as usize].free >= want
                && let Some((start, len)) = self.find(ag, None, want, true)?
            {
                self.set_bits(ag, start, len, true)?;
                return Ok(Extent { start: Frag(self.geom.ag_start(ag).0 + u64::from(start)), len });
            }
        }
        if self.sb.ag_used.get() < count {
            let ag = self.init_ag()?;
            return self.alloc_run(ag, want);
        }
        // The summary tree knows aligned runs; on a volume this full any run will do.
        for ag in 0..count {
            if self.ags[ag as usize].free >= want
                && let Some(e) = self.free_runs(ag)?.into_iter().find(|e| e.len >= want)
            {
                self.free_run_taken(ag, e.start, want)?;
                return Ok(Extent { start: e.start, len: want });
            }
        }
        Err(Errno::ENOSPC.into())
    }

    fn free_run_taken(&mut self, ag: u32, start: Frag, len: u32) -> Result<()> {
        self.set_bits(ag, (start.0 - self.geom.ag_start(ag).0) as u32, len, true)
    }

    /// Deletes a metadata block: recovery forgets it, its fragments are marked free.
    pub fn free_block(&mut self, frag: Frag, len: u32) -> Result<()> {
        if !self.geom.valid_run(frag, len) {
            let at = frag.0.saturating_mul(self.geom.frag_size());
            return Err(Corrupt::new("metadata block", "addr", at, frag.0, "a block inside an AG").into());
        }
        self.delete_buffer(self.geom.daddr(frag), (u64::from(len) * self.geom.frag_size()) as usize);
        self.mark_free(Extent { start: frag, len });
        Ok(())
    }

    /// Clears an extent in the bitmap; the bitmap daemon calls it.
    pub fn free_now(&mut self, e: Extent) -> Result<()> {
        let ag = self.geom.ag_of(e.start);
        self.set_bits(ag, (e.start.0 - self.geom.ag_start(ag).0) as u32, e.len, false)
    }

    // Inodes.

    fn add_chunk(&mut self, ag: u32, at: u32) -> Result<u64> {
        let start = self.geom.daddr(Frag(self.geom.ag_start(ag).0 + u64::from(at)));
        self.init(start, Seal::Inodes, self.geom.chunk_size());
        // What was read of the place before was no chunk, or another.
        let end = start.0 + self.geom.chunk_size() as u64 / SECTOR;
        self.damaged.retain(|ino, _| !(start.0..end).contains(ino));
        let mut store = ChunkStore { core: self, ag };
        Tree::<_, CHUNK_VALUE>::new(&mut store).insert(start.0, &u64::MAX.to_le_bytes())?;
        let a = &mut self.ags[ag as usize];
        a.inodes += CHUNK_INODES as u32;
        a.inodes_free += CHUNK_INODES as u32;
        self.inodes += CHUNK_INODES;
        self.inodes_free += CHUNK_INODES;
        if let Some(c) = a.chunks.as_mut() {
            c.insert(start.0, u64::MAX);
        }
        self.log_inodes_body(ag)?;
        Ok(start.0)
    }

    /// Makes an inode chunk in an AG (ALLOC_GROUP): aligned, so that an inode's number tells it.
    fn new_chunk(&mut self, ag: u32) -> Result<bool> {
        let frags = self.geom.chunk_frags();
        if self.ags[ag as usize].free < frags {
            return Ok(false);
        }
        let order = frags.trailing_zeros() as u8;
        let from = self.ags[ag as usize].last.min(self.geom.ag_len(ag) - 1);
        let map = self.map(ag)?;
        let Some(at) = map.summary.find(&map.bits, order, from) else { return Ok(false) };
        // A large buddy may start before `from`; any multiple of the chunk inside it will do.
        let last = self.ags[ag as usize].last;
        self.set_bits(ag, at, frags, true)?;
        self.ags[ag as usize].last = last;
        self.add_chunk(ag, at)?;
        Ok(true)
    }

    fn load_chunks(&mut self, ag: u32) -> Result<()> {
        if self.ags[ag as usize].chunks.is_some() {
            return Ok(());
        }
        let mut found = BTreeMap::new();
        let (mut chunks, mut free, mut stray) = (0, 0, None);
        let geom = self.geom;
        let mut store = ChunkStore { core: self, ag };
        Tree::<_, CHUNK_VALUE>::new(&mut store).for_each(0, &mut |chunk, v| {
            let mask = u64::from_le_bytes(*v);
            if mask != 0 {
                found.insert(chunk, mask);
            }
            let place = geom.inode_at(Ino(chunk)).filter(|p| p.0.0 == chunk);
            if place.is_none_or(|p| geom.ag_of(geom.frag_of(p.0)) != ag) {
                stray = Some(chunk);
            }
            (chunks, free) = (chunks + 1u64, free + u64::from(mask.count_ones()));
            stray.is_none()
        })?;
        let at = geom.inode_block(ag).byte();
        if let Some(chunk) = stray {
            return Err(Corrupt::new("AG inode block", "chunks", at, chunk, "the place of an inode chunk").into());
        }
        // Inodes are counted down from these.
        let a = &self.ags[ag as usize];
        for (field, found, expected) in [("total", a.inodes, chunks * CHUNK_INODES), ("free", a.inodes_free, free)] {
            if u64::from(found) != expected {
                return Err(Corrupt::new("AG inode block", field, at, found, expected).into());
            }
        }
        self.ags[ag as usize].chunks = Some(found);
        Ok(())
    }

    /// Whether an inode can be made, before the transaction begins.
    pub fn need_inode(&mut self) -> Result<()> {
        if self.inodes_free > 0 {
            return Ok(());
        }
        self.need_space(u64::from(self.geom.chunk_frags() + 4 * self.geom.block_frags()))?;
        let blocks = self.geom.chunk_frags().div_ceil(self.geom.block_frags());
        if self.has_chunk()? { self.need_runs(4 + blocks) } else { Err(Errno::ENOSPC.into()) }
    }

    /// Whether some AG has an aligned run for an inode chunk.
    fn has_chunk(&mut self) -> Result<bool> {
        if self.sb.ag_used.get() < self.geom.ag_count {
            return Ok(true);
        }
        let order = self.geom.chunk_frags().trailing_zeros() as u8;
        for ag in 0..self.geom.ag_count {
            if self.ags[ag as usize].free >= self.geom.chunk_frags() {
                let map = self.map(ag)?;
                if map.summary.largest().is_some_and(|l| l >= order) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Fails with `ENOSPC` unless `n` metadata blocks can be had, beside those that delayed writes
    /// will need: free fragments alone do not tell on a volume whose free space is in pieces.
    pub fn need_runs(&mut self, n: u32) -> Result<()> {
        if self.has_blocks(n.saturating_add(self.delayed_nodes()))? {
            return Ok(());
        }
        if self.is_freeing() || self.reserved + self.converting > 0 {
            self.want = Some(Want::DiskSpace);
            return Err(Error::Restart);
        }
        Err(Errno::ENOSPC.into())
    }

    /// Fails with `ENOSPC` unless there are nodes for the extents that `pages` more pages in unwritten space may be cut
    /// into, and `nodes` beside. They may be the last blocks of a full volume, but none that delayed data will take.
    pub fn need_nodes(&mut self, pages: u64, nodes: u64) -> Result<()> {
        let more = (2 * pages).div_ceil(self.extents_per_node()) + nodes;
        let all = u32::try_from(more).unwrap_or(u32::MAX).saturating_add(self.delayed_nodes());
        let left = self.free.saturating_sub(self.reserved) / u64::from(self.geom.block_frags());
        if left >= u64::from(all) && self.has_blocks(all)? {
            return Ok(());
        }
        self.want = Some(Want::DiskSpace);
        Err(Error::Restart)
    }

    /// Fails with `ENOSPC` unless one run of `frags` can be had for metadata, beside what delayed writes
    /// will need.
    pub fn need_run(&mut self, frags: u32) -> Result<()> {
        self.need_runs(frags.div_ceil(self.geom.block_frags()))?;
        if self.has_run(frags)? {
            return Ok(());
        }
        if self.is_freeing() {
            self.want = Some(Want::DiskSpace);
            return Err(Error::Restart);
        }
        Err(Errno::ENOSPC.into())
    }

    /// Tree nodes that delayed writes may need: each fragment may be an extent of its own, and a page in
    /// unwritten space makes two more. Full nodes are counted beside.
    fn delayed_nodes(&self) -> u32 {
        let extents = self.reserved + 2 * self.converting;
        u32::try_from(extents / self.extents_per_node() + self.nodes).unwrap_or(u32::MAX)
    }

    /// Extents in a node, which is at least half full.
    fn extents_per_node(&self) -> u64 {
        ((self.geom.block_size() - HEADER - NODE_HEADER) / (8 + EXTENT_VALUE) / 2).max(1) as u64
    }

    /// Whether the free runs hold `n` blocks, wherever these begin. Counts some more, so that it need not
    /// count again soon.
    fn has_blocks(&mut self, n: u32) -> Result<bool> {
        let (len, used) = (self.geom.block_frags(), self.sb.ag_used.get());
        if len == 1 || used < self.geom.ag_count || n <= self.blocks_known {
            return Ok(true);
        }
        let most = n.saturating_add(1024);
        let (mut found, from) = (0, self.blocks_at);
        for ag in (0..used).map(|i| (from + i) % used) {
            if found < most && self.ags[ag as usize].free >= len {
                let here = match self.count_blocks(ag, most - found) {
                    // One that is damaged is for who allocates there.
                    Err(Error::Corrupt(_)) => 0,
                    here => here?,
                };
                if found == 0 && here > 0 {
                    self.blocks_at = ag;
                }
                found += here;
            }
        }
        self.blocks_known = found;
        Ok(found >= n)
    }

    /// Blocks in the free runs of an AG, as far as `most`.
    fn count_blocks(&mut self, ag: u32, most: u32) -> Result<u32> {
        let (len, bits) = (self.geom.block_frags(), self.geom.ag_len(ag));
        let bytes = &self.map(ag)?.bits;
        let (mut found, mut at) = (0, 0);
        while found < most
            && let Some(start) = bitmap::next_free(bytes, at, bits)
        {
            let want = (most - found).saturating_mul(len).min(bits - start);
            let run = bitmap::free_run(bytes, start, want, bits);
            found += run / len;
            at = start + run.max(1);
        }
        Ok(found)
    }

    /// For data on a volume whose last whole blocks are needed for metadata: fragments that are no part
    /// of one.
    fn alloc_scraps(&mut self, goal_ag: u32, want: u32) -> Result<Option<Extent>> {
        let (len, used) = (self.geom.block_frags(), self.sb.ag_used.get());
        let blocks = self.delayed_nodes().saturating_add(want.div_ceil(len) + SPARE_BLOCKS);
        if self.has_blocks(blocks)? {
            return Ok(None);
        }
        for ag in (0..used).map(|i| (goal_ag + i) % used) {
            if self.ags[ag as usize].free == 0 {
                continue;
            }
            let runs = match self.free_runs(ag) {
                Err(Error::Corrupt(_)) => continue,
                runs => runs?,
            };
            if let Some(e) = runs.into_iter().find(|e| !e.len.is_multiple_of(len)) {
                let odd = e.len % len;
                let scrap = Extent { start: Frag(e.start.0 + u64::from(e.len - odd)), len: odd.min(want) };
                self.free_run_taken(ag, scrap.start, scrap.len)?;
                return Ok(Some(scrap));
            }
        }
        Ok(None)
    }

    /// Takes a free inode in `ag` if possible, else in another.
    pub fn alloc_inode(&mut self, ag: u32, dir: bool) -> Result<Ino> {
        let count = self.geom.ag_count;
        for i in 0..count {
            let ag = (ag + i) % count;
            if !self.ags[ag as usize].used {
                continue;
            }
            if self.ags[ag as usize].inodes_free > 0 || self.may_grow_inodes() && self.new_chunk(ag)? {
                return self.take_inode(ag, dir);
            }
        }
        if self.sb.ag_used.get() < count {
            let ag = self.init_ag()?;
            return self.take_inode(ag, dir);
        }
        Err(Errno::ENOSPC.into())
    }

    fn may_grow_inodes(&self) -> bool {
        self.available() >= u64::from(self.geom.chunk_frags())
    }

    fn take_inode(&mut self, ag: u32, dir: bool) -> Result<Ino> {
        self.load_chunks(ag)?;
        let a = &mut self.ags[ag as usize];
        let at = self.geom.inode_block(ag).byte();
        let chunks = a.chunks.get_or_insert_default();
        let Some((&chunk, &mask)) = chunks.get_key_value(&a.last_chunk).or_else(|| chunks.first_key_value()) else {
            return Err(Corrupt::new("AG inode block", "free", at, a.inodes_free, 0).into());
        };
        let n = mask.trailing_zeros();
        let mask = mask & !(1 << n);
        if mask == 0 {
            chunks.remove(&chunk);
        } else {
            chunks.insert(chunk, mask);
        }
        a.last_chunk = chunk;
        a.inodes_free = a.inodes_free.saturating_sub(1);
        self.inodes_free = self.inodes_free.saturating_sub(1);
        self.set_mask(ag, chunk, mask)?;
        if dir {
            self.ags[ag as usize].dirs += 1;
            self.log_group(ag)?;
        }
        Ok(Ino(chunk + u64::from(n) * (self.geom.inode_size() as u64 / SECTOR)))
    }

    fn set_mask(&mut self, ag: u32, chunk: u64, mask: u64) -> Result<()> {
        let mut store = ChunkStore { core: self, ag };
        Tree::<_, CHUNK_VALUE>::new(&mut store).set(chunk, &mask.to_le_bytes())?;
        self.log_inodes_body(ag)
    }

    /// Gives an inode back; a chunk that is all free is given back too, unless it is the AG's
    /// last with free inodes.
    pub fn free_inode(&mut self, ino: Ino, dir: bool) -> Result<()> {
        let bad = || Corrupt::new("inode", "ino", ino.0.saturating_mul(SECTOR), ino.0, "an inode of a chunk");
        let (chunk, at) = self.geom.inode_at(ino).ok_or_else(bad)?;
        let ag = self.geom.ag_of(self.geom.frag_of(chunk));
        self.load_chunks(ag)?;
        let old = {
            let mut store = ChunkStore { core: self, ag };
            Tree::<_, CHUNK_VALUE>::new(&mut store).get(chunk.0)?.ok_or_else(bad)?
        };
        let n = at / self.geom.inode_size();
        let mask = u64::from_le_bytes(old) | 1 << n;
        let a = &mut self.ags[ag as usize];
        a.inodes_free += 1;
        self.inodes_free += 1;
        let chunks = a.chunks.get_or_insert_default();
        chunks.insert(chunk.0, mask);
        if mask == u64::MAX && chunks.len() > 1 {
            chunks.remove(&chunk.0);
            a.inodes_free -= CHUNK_INODES as u32;
            a.inodes -= CHUNK_INODES as u32;
            self.inodes_free -= CHUNK_INODES;
            self.inodes -= CHUNK_INODES;
            let mut store = ChunkStore { core: self, ag };
            Tree::<_, CHUNK_VALUE>::new(&mut store).remove(chunk.0)?;
            self.log_inodes_body(ag)?;
            self.free_block(self.geom.frag_of(chunk), self.geom.chunk_frags())?;
        } else {
            self.set_mask(ag, chunk.0, mask)?;
        }
        if dir {
            let a = &mut self.ags[ag as usize];
            a.dirs = a.dirs.saturating_sub(1);
            self.log_group(ag)?;
        }
        Ok(())
    }

    /// Changes the head of an AG's inode recovery list.
    pub fn set_recovery(&mut self, ag: u32, head: u64) -> Result<()> {
        self.ags[ag as usize].recovery = head;
        self.log_inodes_body(ag)
    }

    /// The AG for a new directory: its parent's while that has room for the directory's files
    /// to come (directory space reservation, 3.3); those under the root are spread.
    pub fn dirpref(&mut self, parent: Ino, root: Ino) -> u32 {
        let used = self.sb.ag_used.get();
        let geom = &self.geom;
        let home = geom.inode_at(parent).map_or(0, |(c, _)| geom.ag_of(geom.frag_of(c))).min(used - 1);
        let per_dir = u64::from(self.sb.avg_file_size.get()) * u64::from(self.sb.avg_files_per_dir.get());
        let reserve = (per_dir >> geom.frag_shift).min(u64::from(geom.ag_frags as u32) / 4) as u32;
        let free: u64 = self.ags.iter().take(used as usize).map(|a| u64::from(a.free)).sum();
        let least = ((free / u64::from(used)) as u32 / 4 * 3).max(reserve);
        let from = if parent == root { self.ags.iter().map(|a| a.dirs).sum::<u32>() % used } else { home };
        (0..used).map(|i| (from + i) % used).find(|&ag| self.ags[ag as usize].free >= least).unwrap_or(home)
    }

    /// Inodes that exist and are in use.
    pub fn inodes_used(&self) -> u64 {
        self.inodes.saturating_sub(self.inodes_free)
    }
}

/// Store of the tree of an AG's inode chunks: root behind the body of the AG inode block.
struct ChunkStore<'a> {
    core: &'a mut Core,
    ag: u32,
}

const CHUNK_ROOT: usize = HEADER + size_of::<InodesBody>();

impl NodeStore for ChunkStore<'_> {
    fn read<R>(&mut self, node: Node, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let owner = u64::from(self.ag);
        match node {
            Node::Root => {
                let block = self.core.geom.frag_of(self.core.geom.inode_block(self.ag));
                let bytes = self.core.meta_block(block, BlockType::Inodes, owner)?;
                Ok(f(bytes.get(CHUNK_ROOT..).unwrap_or(&[])))
            }
            Node::Block(b) => {
                let bytes = self.core.block(Frag(b), BlockType::ChunkNode, owner)?;
                Ok(f(bytes.get(HEADER..).unwrap_or(&[])))
            }
        }
    }

    fn write(&mut self, node: Node, at: usize, bytes: &[u8]) -> Result<()> {
        match node {
            Node::Root => self.core.write(self.core.geom.inode_block(self.ag), Seal::Block, CHUNK_ROOT + at, bytes),
            Node::Block(b) => self.core.write(self.core.geom.daddr(Frag(b)), Seal::Block, HEADER + at, bytes),
        }
    }

    fn alloc(&mut self) -> Result<u64> {
        Ok(self.core.alloc_block(self.ag, BlockType::ChunkNode, u64::from(self.ag))?.0)
    }

    fn free(&mut self, block: u64) -> Result<()> {
        self.core.free_block(Frag(block), self.core.geom.block_frags())
    }

    fn address(&self, node: Node) -> u64 {
        match node {
            Node::Root => self.core.geom.inode_block(self.ag).byte(),
            Node::Block(b) => self.core.geom.daddr(Frag(b)).byte(),
        }
    }
}

impl Core {
    /// Whether some AG has `frags` free fragments in one run.
    fn has_run(&mut self, frags: u32) -> Result<bool> {
        if self.sb.ag_used.get() < self.geom.ag_count {
            return Ok(true);
        }
        for ag in 0..self.geom.ag_count {
            let enough = self.ags[ag as usize].free >= frags;
            if enough && (self.find(ag, None, frags, true)?.is_some() || self.has_any_run(ag, frags)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Core {
    /// Whether a fragment of an AG in use is free.
    pub fn frag_free(&mut self, ag: u32, f: Frag) -> Result<bool> {
        let bit = (f.0 - self.geom.ag_start(ag).0) as u32;
        Ok(bitmap::is_free(&self.map(ag)?.bits, bit))
    }
}

impl Core {
    /// Free runs of an AG.
    pub fn free_runs(&mut self, ag: u32) -> Result<Vec<Extent>> {
        let (bits, base) = (self.geom.ag_len(ag), self.geom.ag_start(ag).0);
        let map = self.map(ag)?;
        let mut out = Vec::new();
        let mut at = 0;
        while let Some(start) = bitmap::next_free(&map.bits, at, bits) {
            let len = bitmap::free_run(&map.bits, start, bits - start, bits);
            out.push(Extent { start: Frag(base + u64::from(start)), len });
            at = start + len.max(1);
        }
        Ok(out)
    }
}

impl Core {
    fn has_any_run(&mut self, ag: u32, frags: u32) -> Result<bool> {
        Ok(self.free_runs(ag)?.iter().any(|e| e.len >= frags))
    }
}
