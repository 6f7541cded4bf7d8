//! Allocation groups: headers and trees of inode chunks at the beginning, bitmaps and counters at the end.

use super::issue::Issue;
use super::{Checker, Chunk, Group, tree};
use crate::format::*;
use crate::superblock;
use arbor_base::device::Kind;
use arbor_base::layout::get_u64;
use arbor_base::vfs::{Ino, Repair, Result};
use arbor_kit::buddy::bitmap;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::size_of;
use zerocopy::{FromBytes, IntoBytes};

/// Where the root of the chunk tree begins in the inode block.
pub(crate) const CHUNK_ROOT: usize = HEADER + size_of::<InodesBody>();
/// Chunks read at a time by the scan of an AG.
const SCAN: u32 = 16;

impl Checker<'_> {
    /// Reads the headers of all AGs in use; their structures, the log and the chunks get owners.
    pub(super) fn read_groups(&mut self) -> Result<()> {
        self.groups.resize_with(self.r.ags() as usize, Group::default);
        self.space.provide();
        for ag in 0..self.r.ags() {
            self.report(ag.into(), self.r.ags().into(), "allocation groups");
            self.read_group(ag)?;
        }
        Ok(())
    }

    fn read_group(&mut self, ag: u32) -> Result<()> {
        let mut records = Vec::new();
        let mut complete = true;
        match self.r.ag_block(BlockType::Inodes, ag, self.r.geom.inode_block(ag))? {
            Ok(bytes) => {
                let body = InodesBody::read_from_prefix(bytes.get(HEADER..).unwrap_or(&[])).map(|b| b.0);
                let head = body.unwrap_or_default().recovery.get();
                let root = bytes.get(CHUNK_ROOT..).unwrap_or(&[]);
                let block = self.r.geom.block_frags();
                let mut claim = |f| self.space.claim(f, block);
                let walk = tree::walk(&self.r, root, tree::Spec::chunks(ag), &mut claim)?;
                for why in walk.damage {
                    complete = false;
                    self.f.judge(Issue::ChunkTree { ag, why });
                }
                records = walk.records;
                if let Some(g) = self.groups.get_mut(ag as usize) {
                    g.head = head;
                    g.nodes = walk.nodes.iter().map(|n| n.0).collect();
                }
            }
            Err(why) => {
                complete = false;
                self.f.judge(Issue::InodeBlock { ag, why: why.to_string() });
                if let Some(g) = self.groups.get_mut(ag as usize) {
                    (g.lost, g.relink) = (true, true);
                }
            }
        }
        self.take_chunks(ag, records, complete)
    }

    /// The superblock copies, of which the second AG has one before it is used.
    pub(super) fn check_copies(&mut self) -> Result<()> {
        let geom = self.r.geom;
        let starts = (2..self.r.ags()).map(|ag| geom.daddr(geom.ag_start(ag)).byte());
        for at in geom.early_copies().chain(starts) {
            self.check_copy(at)?;
        }
        Ok(())
    }

    fn check_copy(&mut self, at: u64) -> Result<()> {
        let sb = self.r.sb;
        let good = matches!(superblock::read(&self.r.view, at), Ok(Some(c))
            if c.uuid == sb.uuid && c.ag_frags == sb.ag_frags && c.frag_shift == sb.frag_shift
                && c.block_shift == sb.block_shift && c.inode_shift == sb.inode_shift
                && c.log_start == sb.log_start && c.root == sb.root);
        if !good && self.f.judge(Issue::SuperCopy { at }) {
            let mut copy = SuperBlock { clean: 0.into(), ..sb }.as_bytes().to_vec();
            Seal::Super.seal(&mut copy, 0);
            self.write(Kind::Super, at, &copy)?;
        }
        Ok(())
    }

    /// Notes the chunks of an AG: those the tree names and, if the tree is damaged, those that a
    /// scan finds.
    fn take_chunks(&mut self, ag: u32, records: Vec<tree::Record>, complete: bool) -> Result<()> {
        let mut chunks: BTreeMap<u64, u64> = BTreeMap::new();
        let mut rebuild = !complete;
        for (start, value) in records {
            let mask = get_u64(&value, 0).unwrap_or(0);
            let frag = self.r.geom.frag_of(Daddr(start));
            let place = self.r.geom.inode_at(Ino(start)).filter(|p| p.0.0 == start && self.r.geom.ag_of(frag) == ag);
            let why = if place.is_none() {
                "cannot be there"
            } else if !self.space.claim(frag, self.r.geom.chunk_frags()) {
                "lies on something else"
            } else {
                chunks.insert(start, mask);
                continue;
            };
            self.f.judge(Issue::ChunkRecord { ag, chunk: start, why: why.into() });
            rebuild = true;
        }
        if rebuild {
            for chunk in self.scan(ag)? {
                let frag = self.r.geom.frag_of(Daddr(chunk));
                if !chunks.contains_key(&chunk) && self.space.claim(frag, self.r.geom.chunk_frags()) {
                    self.f.judge(Issue::ChunkFound { ag, chunk });
                    // Its mask follows from its inodes; no complaint about that.
                    let mask = self.mask_of(chunk)?;
                    chunks.insert(chunk, mask);
                }
            }
        }
        if let Some(g) = self.groups.get_mut(ag as usize) {
            g.rebuild = rebuild;
            g.chunks = chunks.into_iter().map(|(start, mask)| Chunk { start, mask }).collect();
        }
        Ok(())
    }

    fn mask_of(&self, chunk: u64) -> Result<u64> {
        let geom = &self.r.geom;
        let bytes = self.r.read(Kind::Inode, chunk.saturating_mul(SECTOR), geom.chunk_size())?;
        let mut mask = 0;
        for (i, inode) in bytes.chunks_exact(geom.inode_size()).enumerate() {
            let ino = chunk + (i * geom.inode_size()) as u64 / SECTOR;
            let free = Dinode::ref_from_prefix(inode).is_ok_and(|(d, _)| d.format == Format::Free as u8);
            if free && check_inode(ino, inode).is_ok() {
                mask |= 1 << i;
            }
        }
        Ok(mask)
    }

    /// Scans an AG for chunks with an inode in use. If the bitmap is readable, only what it shows in use is checked: a
    /// freed chunk may still look alive.
    fn scan(&mut self, ag: u32) -> Result<Vec<u64>> {
        let (bits, _) = self.read_bitmap(ag)?;
        let geom = self.r.geom;
        let (len, step) = (geom.ag_len(ag), geom.chunk_frags());
        let mut found = Vec::new();
        let mut at = geom.ag_meta_frags().next_multiple_of(step);
        while at.saturating_add(step) <= len {
            let places = (0..SCAN).map(|i| at.saturating_add(i * step)).filter(|p| p.saturating_add(step) <= len);
            for place in places {
                let known = bits.get(place as usize / 8..).is_some_and(|b| !b.is_empty());
                if known && !bitmap::all_used(&bits, place, step) {
                    continue;
                }
                let start = geom.daddr(Frag(geom.ag_start(ag).0 + u64::from(place)));
                let bytes = self.r.read(Kind::Inode, start.byte(), geom.chunk_size())?;
                if holds_inodes(&geom, start.0, &bytes) {
                    found.push(start.0);
                }
            }
            self.report(at.into(), len.into(), "searching for inodes");
            at = at.saturating_add(SCAN * step);
        }
        Ok(found)
    }

    /// The bitmap of an AG and which of its blocks are damaged. Bits of damaged ones are set.
    pub(super) fn read_bitmap(&self, ag: u32) -> Result<(Vec<u8>, BTreeMap<u32, String>)> {
        let mut bits = Vec::new();
        let mut damaged = BTreeMap::new();
        for n in 0..self.r.geom.bitmap_blocks {
            match self.r.ag_block(BlockType::Bitmap, ag, self.r.geom.bitmap_block(ag, n))? {
                Ok(bytes) => bits.extend_from_slice(bytes.get(HEADER..).unwrap_or(&[])),
                Err(why) => {
                    damaged.insert(n, why.to_string());
                    bits.resize(bits.len() + self.r.geom.block_size() - HEADER, 0xff);
                }
            }
        }
        Ok((bits, damaged))
    }

    /// Last phase: writes chunk trees, bitmaps and counters as found.
    pub(super) fn fix_groups(&mut self) -> Result<()> {
        for rec in self.recs.iter() {
            let ag = self.r.geom.ag_of(self.r.geom.frag_of(Daddr(rec.ino)));
            if let Some(g) = self.groups.get_mut(ag as usize).filter(|_| rec.is_dir()) {
                g.dirs += 1;
            }
        }
        let before = self.f.open();
        if before {
            self.f.revoke(&["FreeMask"]);
        } else if self.f.mode != Repair::No {
            for ag in 0..self.r.ags() {
                self.report(ag.into(), self.r.ags().into(), "inode masks");
                self.fix_chunk_tree(ag)?;
            }
            self.flush()?;
        }
        // While something is left unrepaired, its fragments are not known, and a bitmap made from what was found would
        // free them.
        let mode = self.f.mode;
        if before {
            self.f.mode = Repair::No;
        }
        for ag in 0..self.r.ags() {
            self.report(ag.into(), self.r.ags().into(), "bitmaps");
            self.fix_inode_counts(ag)?;
            self.fix_bitmap(ag)?;
        }
        self.f.mode = mode;
        Ok(())
    }

    /// Writes changed masks into the tree, or a new tree.
    fn fix_chunk_tree(&mut self, ag: u32) -> Result<()> {
        let Some(g) = self.groups.get(ag as usize) else { return Ok(()) };
        if g.rebuild {
            return self.rebuild_chunk_tree(ag);
        }
        let masks: BTreeMap<u64, u64> = g.chunks.iter().map(|c| (c.start, c.mask)).collect();
        let addr = self.r.geom.inode_block(ag);
        let Ok(mut block) = self.r.ag_block(BlockType::Inodes, ag, addr)? else { return Ok(()) };
        if patch_masks(block.get_mut(CHUNK_ROOT..).unwrap_or_default(), &masks) {
            self.write_block(BlockType::Inodes, addr, block)?;
        }
        for node in self.groups.get(ag as usize).map(|g| g.nodes.clone()).unwrap_or_default() {
            let kind = BlockType::ChunkNode;
            let Ok(mut block) = self.r.owned(kind, ag.into(), node, self.r.geom.block_frags())? else { continue };
            if patch_masks(block.get_mut(HEADER..).unwrap_or_default(), &masks) {
                self.write_block(kind, self.r.geom.daddr(node), block)?;
            }
        }
        Ok(())
    }

    fn rebuild_chunk_tree(&mut self, ag: u32) -> Result<()> {
        let geom = self.r.geom;
        let Some(g) = self.groups.get_mut(ag as usize) else { return Ok(()) };
        let old = std::mem::take(&mut g.nodes);
        let records: Vec<tree::Record> = g
            .chunks
            .iter()
            .map(|c| {
                let mut value = [0; EXTENT_VALUE];
                value[..8].copy_from_slice(&c.mask.to_le_bytes());
                (c.start, value)
            })
            .collect();
        for node in old {
            // In place of the old nodes, if it must be: the chunks are found by a scan again.
            self.space.release(node, geom.block_frags());
        }
        let root_len = geom.block_size() - CHUNK_ROOT;
        let built = tree::build(&geom, tree::Spec::chunks(ag), &records, root_len, &mut || self.space.alloc_block());
        let Some((root, nodes)) = built else {
            self.f.push(Issue::NoSpace { what: format!("the tree of inode chunks of AG {ag}") }, false);
            self.f.revoke(&["InodeBlock", "ChunkTree", "ChunkRecord", "ChunkFound", "FreeMask"]);
            return Ok(());
        };
        for (start, block) in nodes {
            self.write_block(BlockType::ChunkNode, geom.daddr(start), block)?;
        }
        self.flush()?;
        let addr = geom.inode_block(ag);
        let mut block = tree::new_block(&geom, BlockType::Inodes, ag.into(), geom.frag_of(addr), geom.block_size());
        let head = self.groups.get(ag as usize).map_or(0, |g| g.head);
        let body = InodesBody { recovery: head.into(), ..InodesBody::default() };
        for (to, from) in block.iter_mut().skip(HEADER).zip(body.as_bytes().iter().chain(&root)) {
            *to = *from;
        }
        self.write_block(BlockType::Inodes, addr, block)
    }

    fn fix_inode_counts(&mut self, ag: u32) -> Result<()> {
        let Some(g) = self.groups.get(ag as usize) else { return Ok(()) };
        let total = (g.chunks.len() as u64 * CHUNK_INODES) as u32;
        let free: u32 = g.chunks.iter().map(|c| c.mask.count_ones()).sum();
        let (head, rebuilt) = (g.recovery.first().copied().unwrap_or(0), g.rebuild);
        let relink = g.relink && !g.lost;
        let addr = self.r.geom.inode_block(ag);
        // Damage was reported when the AG was read.
        let Ok(mut block) = self.r.ag_block(BlockType::Inodes, ag, addr)? else { return Ok(()) };
        let old = InodesBody::read_from_prefix(block.get(HEADER..).unwrap_or(&[])).map(|b| b.0).unwrap_or_default();
        let mut new = old;
        if old.total.get() != total
            && (rebuilt || self.f.judge(Issue::InodeCount { ag, found: old.total.get(), expected: total }))
        {
            new.total = total.into();
        }
        if old.free.get() != free
            && (rebuilt || self.f.judge(Issue::FreeInodes { ag, found: old.free.get(), expected: free }))
        {
            new.free = free.into();
        }
        if relink || rebuilt {
            new.recovery = head.into();
        }
        if new.as_bytes() == old.as_bytes() || self.f.mode == Repair::No {
            return Ok(());
        }
        if let Some(place) = block.get_mut(HEADER..CHUNK_ROOT) {
            place.copy_from_slice(new.as_bytes());
        }
        self.write_block(BlockType::Inodes, addr, block)
    }

    /// The bitmap blocks and the group block.
    fn fix_bitmap(&mut self, ag: u32) -> Result<()> {
        let geom = self.r.geom;
        let (found, damaged) = self.read_bitmap(ag)?;
        let expected = self.space.bitmap(ag, found.len());
        let mut write: BTreeSet<u32> = BTreeSet::new();
        for (n, why) in &damaged {
            if self.f.judge(Issue::BitmapBlock { ag, n: *n, why: why.clone() }) {
                write.insert(*n);
            }
        }
        let per = geom.block_size() - HEADER;
        let blocks = found.chunks(per).zip(expected.chunks(per)).enumerate();
        let (mut free, mut used) = (Diff::default(), Diff::default());
        let mut differing = Vec::new();
        for (n, (f, e)) in blocks.filter(|(n, (f, e))| !damaged.contains_key(&(*n as u32)) && f != e) {
            for (i, (f, e)) in f.iter().zip(e).enumerate() {
                let base = geom.ag_start(ag).0 + ((n * per + i) * 8) as u64;
                free.add(e & !f, base);
                used.add(f & !e, base);
            }
            differing.push(n as u32);
        }
        let mut mend = Vec::new();
        if free.count > 0 {
            mend.push(self.f.judge(Issue::BitmapFree { ag, frags: free.count, first: free.first }));
        }
        if used.count > 0 {
            mend.push(self.f.judge(Issue::BitmapUsed { ag, frags: used.count, first: used.first }));
        }
        if mend.contains(&true) {
            write.extend(differing);
        }
        for n in write {
            let addr = geom.bitmap_block(ag, n);
            let mut block = tree::new_block(&geom, BlockType::Bitmap, ag.into(), geom.frag_of(addr), geom.block_size());
            let bits = expected.get(n as usize * per..).unwrap_or(&[]);
            for (to, from) in block.iter_mut().skip(HEADER).zip(bits) {
                *to = *from;
            }
            self.write_block(BlockType::Bitmap, addr, block)?;
        }
        self.fix_group_block(ag, bitmap::count_free(&expected, geom.ag_len(ag)))
    }

    fn fix_group_block(&mut self, ag: u32, free: u32) -> Result<()> {
        let geom = self.r.geom;
        let dirs = self.groups.get(ag as usize).map_or(0, |g| g.dirs);
        let addr = geom.group_block(ag);
        let new = GroupBody { free: free.into(), dirs: dirs.into(), frags: geom.ag_len(ag).into(), reserved: 0.into() };
        let mend = match self.r.ag_block(BlockType::Group, ag, addr)? {
            Ok(block) => {
                let old =
                    GroupBody::read_from_prefix(block.get(HEADER..).unwrap_or(&[])).map(|b| b.0).unwrap_or_default();
                let mut mend = false;
                if old.free.get() != free {
                    mend |= self.f.judge(Issue::FreeCount { ag, found: old.free.get(), expected: free });
                }
                if old.dirs.get() != dirs {
                    mend |= self.f.judge(Issue::DirCount { ag, found: old.dirs.get(), expected: dirs });
                }
                if old.frags != new.frags {
                    let why = format!("it gives the AG {} fragments instead of {}", old.frags, new.frags);
                    mend |= self.f.judge(Issue::GroupBlock { ag, why });
                }
                mend
            }
            Err(why) => self.f.judge(Issue::GroupBlock { ag, why: why.to_string() }),
        };
        if !mend {
            return Ok(());
        }
        let mut block = tree::new_block(&geom, BlockType::Group, ag.into(), geom.frag_of(addr), geom.block_size());
        if let Some(place) = block.get_mut(HEADER..HEADER + size_of::<GroupBody>()) {
            place.copy_from_slice(new.as_bytes());
        }
        self.write_block(BlockType::Group, addr, block)
    }
}

/// Bits that differ in one direction.
#[derive(Default)]
struct Diff {
    count: u32,
    first: u64,
}

impl Diff {
    fn add(&mut self, byte: u8, base: u64) {
        if byte != 0 && self.count == 0 {
            self.first = base + u64::from(byte.trailing_zeros());
        }
        self.count = self.count.saturating_add(byte.count_ones());
    }
}

/// Whether an inode in use, whole, has its place in these bytes.
fn holds_inodes(geom: &Geom, start: u64, bytes: &[u8]) -> bool {
    bytes.chunks_exact(geom.inode_size()).enumerate().any(|(i, inode)| {
        let ino = start + (i * geom.inode_size()) as u64 / SECTOR;
        let used = Dinode::ref_from_prefix(inode).is_ok_and(|(d, _)| d.magic.get() == INODE_MAGIC && d.format != 0);
        used && check_inode(ino, inode).is_ok()
    })
}

/// Sets the masks of a leaf's records. Whether one changed.
fn patch_masks(body: &mut [u8], masks: &BTreeMap<u64, u64>) -> bool {
    if tree::level(body) != 0 {
        return false;
    }
    let count = usize::from(arbor_base::layout::get_u16(body, 0).unwrap_or(0));
    let mut changed = false;
    for record in body.get_mut(NODE_HEADER..).unwrap_or_default().chunks_exact_mut(8 + CHUNK_VALUE).take(count) {
        let (Some(key), Some(old)) = (get_u64(record, 0), get_u64(record, 8)) else { continue };
        if let Some(mask) = masks.get(&key).filter(|m| **m != old) {
            record[8..].copy_from_slice(&mask.to_le_bytes());
            changed = true;
        }
    }
    changed
}
