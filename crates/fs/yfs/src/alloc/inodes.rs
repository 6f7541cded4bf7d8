//! Allocation of inodes: their chunks, in a tree for each AG, and which inodes of a chunk are free.

use crate::btree::{Node, NodeStore, Tree};
use crate::format::*;
use crate::volume::Core;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Errno, Error, Ino, Result};
use std::collections::BTreeMap;
use std::mem::size_of;

impl Core {
    /// The AG for a new directory: its parent's while that has room for the directory's files
    /// to come (directory space reservation, 3.3); those under the root are spread.
    pub fn dirpref(&mut self, parent: Ino, root: Ino) -> u32 {
        let used = self.sb.ag_used.get();
        let geom = &self.geom;
        let home = geom.inode_at(parent).map_or(0, |(c, _)| geom.ag_of(geom.frag_of(c))).min(used - 1);
        let per_dir = u64::from(self.sb.avg_file_size.get()) * u64::from(self.sb.avg_files_per_dir.get());
        let reserve = (per_dir >> geom.frag_shift).min(u64::from(geom.ag_frags as u32) / 4) as u32;
        let free: u64 = self.space.ags().take(used as usize).map(|a| u64::from(a.free())).sum();
        let least = ((free / u64::from(used)) as u32 / 4 * 3).max(reserve);
        let from = if parent == root { self.draw_group(used) } else { home };
        (0..used).map(|i| (from + i) % used).find(|&ag| self.space[ag].free() >= least).unwrap_or(home)
    }

    /// The AG where a directory under the root would like to be. Where all are in use it is drawn, as the paper does
    /// (6.4): the count of directories is the seed.
    fn draw_group(&self, used: u32) -> u32 {
        let dirs = self.space.ags().map(|a| a.dirs).sum::<u32>();
        if used < self.geom.ag_count {
            return dirs % used;
        }
        let drawn =
            u64::from(dirs).wrapping_add(u64::from(self.geom.hash_seed) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((drawn ^ drawn >> 32) as u32) % used
    }

    /// Takes a free inode in `ag` if possible, else in another; and what lies in its place.
    pub fn alloc_inode(&mut self, ag: u32, dir: bool) -> Result<(Ino, Dinode)> {
        let count = self.geom.ag_count;
        for i in 0..count {
            let ag = (ag + i) % count;
            if !self.space[ag].used {
                continue;
            }
            let has_some = self.space[ag].inodes_free() > 0 && self.has_chunks(ag)?;
            if has_some || self.may_grow_inodes() && self.new_chunk(ag)? {
                let before = self.tx.changes();
                match self.take_inode(ag, dir) {
                    Err(Error::Io(_)) if self.tx.changes() == before => self.space.unread = true,
                    Ok(None) => {}
                    taken => return taken?.ok_or_else(|| Errno::EIO.into()),
                }
            }
        }
        if self.sb.ag_used.get() < count {
            let ag = self.init_ag()?;
            return self.take_inode(ag, dir)?.ok_or_else(|| Errno::EIO.into());
        }
        Err(self.no_space())
    }

    fn has_chunks(&mut self, ag: u32) -> Result<bool> {
        let chunks = self.load_chunks(ag);
        self.is_open(ag, chunks)
    }

    fn may_grow_inodes(&self) -> bool {
        self.available() >= u64::from(self.geom.chunk_frags())
    }

    /// Takes a free inode of an AG, if there is one that can be used. One that is damaged, or in use whatever the chunk's mask says,
    /// is taken too, and left alone until fsck looks.
    fn take_inode(&mut self, ag: u32, dir: bool) -> Result<Option<(Ino, Dinode)>> {
        self.load_chunks(ag)?;
        let step = self.geom.inode_size() as u64 / SECTOR;
        loop {
            let a = &self.space[ag];
            let chunks = a.chunks.as_ref();
            let found = chunks.and_then(|all| all.get_key_value(&a.last_chunk).or_else(|| all.first_key_value()));
            let Some((&chunk, &mask)) = found else { return Ok(None) };
            let n = mask.trailing_zeros();
            let ino = Ino(chunk + u64::from(n) * step);
            let old = self.free_slot(ino)?;
            self.take_slot(ag, chunk, mask & !(1 << n))?;
            let Some(old) = old else { continue };
            if dir {
                self.space[ag].dirs += 1;
                self.log_group(ag)?;
            }
            return Ok(Some((ino, old)));
        }
    }

    fn take_slot(&mut self, ag: u32, chunk: u64, mask: u64) -> Result<()> {
        self.tx.touch();
        let a = &mut self.space[ag];
        let chunks = a.chunks.get_or_insert_default();
        if mask == 0 {
            chunks.remove(&chunk);
        } else {
            chunks.insert(chunk, mask);
        }
        a.last_chunk = chunk;
        self.space.inode_taken(ag);
        self.set_mask(ag, chunk, mask)
    }

    /// Fails unless an inode can be freed, or put on the recovery list: asked before anything is changed.
    pub fn need_freeing(&mut self, ino: Ino) -> Result<()> {
        let ag = self.ag_of_number(ino)?;
        let at = self.geom.inode_block(ag);
        self.meta_block(self.geom.frag_of(at), BlockType::Inodes, ag.into())?;
        if self.space[ag].unknown {
            return Err(
                Corrupt::new("AG group block", "crc", self.geom.group_block(ag).byte(), "another", "one").into()
            );
        }
        self.load_chunks(ag)
    }

    /// Frees an inode; a chunk that is all free is freed too, unless it is the AG's last one with free inodes.
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
        self.tx.touch();
        self.space.inode_freed(ag);
        let chunks = self.space[ag].chunks.get_or_insert_default();
        chunks.insert(chunk.0, mask);
        if mask == u64::MAX && chunks.len() > 1 {
            chunks.remove(&chunk.0);
            self.space.chunk_gone(ag);
            let mut store = ChunkStore { core: self, ag };
            Tree::<_, CHUNK_VALUE>::new(&mut store).remove(chunk.0)?;
            self.log_inodes_body(ag)?;
            self.free_block(self.geom.frag_of(chunk), self.geom.chunk_frags())?;
        } else {
            self.set_mask(ag, chunk.0, mask)?;
        }
        if dir {
            let a = &mut self.space[ag];
            a.dirs = a.dirs.saturating_sub(1);
            self.log_group(ag)?;
        }
        Ok(())
    }

    /// Makes an inode chunk in an AG: aligned, so that the chunk's address follows from an inode's number.
    fn new_chunk(&mut self, ag: u32) -> Result<bool> {
        let frags = self.geom.chunk_frags();
        if self.space[ag].free() < frags {
            return Ok(false);
        }
        let order = frags.trailing_zeros() as u8;
        if self.space[ag].has_no_buddy(order) || !self.is_usable(ag)? {
            return Ok(false);
        }
        let from = self.space[ag].last.min(self.geom.ag_len(ag) - 1);
        let map = self.map(ag)?;
        let Some(at) = map.summary.find(&map.bits, order, from) else { return Ok(false) };
        if !self.has_chunks(ag)? {
            return Ok(false);
        }
        // A large buddy may start before `from`; any multiple of the chunk inside it will do.
        let last = self.space[ag].last;
        self.set_bits(ag, at, frags, true)?;
        self.space[ag].last = last;
        self.add_chunk(ag, at)?;
        Ok(true)
    }

    pub(super) fn add_chunk(&mut self, ag: u32, at: u32) -> Result<u64> {
        let start = self.geom.daddr(Frag(self.geom.ag_start(ag).0 + u64::from(at)));
        self.init(start, Seal::Inodes, self.geom.chunk_size());
        // Whatever was read of this place before was another chunk's, or none.
        let end = start.0 + self.geom.chunk_size() as u64 / SECTOR;
        self.damaged.forget(start.0..end);
        let mut store = ChunkStore { core: self, ag };
        Tree::<_, CHUNK_VALUE>::new(&mut store).insert(start.0, &u64::MAX.to_le_bytes())?;
        self.space.chunk_made(ag);
        if let Some(c) = self.space[ag].chunks.as_mut() {
            c.insert(start.0, u64::MAX);
        }
        self.log_inodes_body(ag)?;
        Ok(start.0)
    }

    fn load_chunks(&mut self, ag: u32) -> Result<()> {
        if self.space[ag].chunks.is_some() {
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
        let a = &self.space[ag];
        for (field, found, expected) in
            [("total", a.inodes(), chunks * CHUNK_INODES), ("free", a.inodes_counted(), free)]
        {
            if u64::from(found) != expected {
                return Err(Corrupt::new("AG inode block", field, at, found, expected).into());
            }
        }
        self.space[ag].chunks = Some(found);
        Ok(())
    }

    fn set_mask(&mut self, ag: u32, chunk: u64, mask: u64) -> Result<()> {
        let mut store = ChunkStore { core: self, ag };
        Tree::<_, CHUNK_VALUE>::new(&mut store).set(chunk, &mask.to_le_bytes())?;
        self.log_inodes_body(ag)
    }
}

/// Store of the tree of an AG's inode chunks: root after the body of the AG inode block.
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
