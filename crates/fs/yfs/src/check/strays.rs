//! Stray blocks: directory blocks and leaves of extent trees whose tree or inode is lost.
//!
//! Their headers name their owner, and their contents their place, so they are given back to their owner, and a
//! directory that lost its inode is made again.
//!
//! Only blocks that the bitmap shows in use and no inode has claimed are considered: freed blocks may look alike, but
//! mean nothing. Without a bitmap everything unclaimed counts as in use.

use super::inodes::extent;
use super::issue::{Issue, Node};
use super::tree;
use super::view::RawInode;
use super::{Checker, MapEdit, record};
use crate::body;
use crate::format::*;
use arbor_base::device::Kind;
use arbor_base::layout::{get_u16, get_u32, get_u64};
use arbor_base::vfs::{Result, mode};
use std::collections::BTreeMap;

/// Fragments read at a time.
const PIECE: u32 = 256;
/// Most stray directory blocks without an owner that are kept for the names in them.
const KEPT: usize = 1 << 16;

impl Checker<'_> {
    /// Gives stray blocks back. Nothing is looked for on a volume without a fault.
    pub(super) fn adopt(&mut self) -> Result<()> {
        if self.f.is_empty() {
            return Ok(());
        }
        let mut strays = self.find_strays()?;
        let owners: Vec<u64> = self.maps.iter().map(|m| m.ino).collect();
        for (n, ino) in owners.into_iter().enumerate() {
            if let Some(leaves) = strays.leaves.remove(&ino) {
                self.adopt_leaves(n, ino, &leaves)?;
            }
        }
        for (ino, leaves) in strays.leaves {
            if self.gone.contains(&ino) && self.recs.find(ino).is_none() && self.make_again(ino, mode::IFREG | 0o600)? {
                self.maps.push(MapEdit { ino, records: Vec::new(), nodes: Vec::new() });
                self.adopt_leaves(self.maps.len() - 1, ino, &leaves)?;
            }
        }
        for (ino, blocks) in strays.dirs {
            let torn = self.edits.get(&ino).is_some_and(|e| e.owned.is_some());
            if torn || self.gone.contains(&ino) {
                self.adopt_dir(ino, &blocks)?;
            } else if self.recs.find(ino).is_none() && self.strays.len() < KEPT {
                self.strays.extend(blocks);
            }
        }
        Ok(())
    }

    fn find_strays(&mut self) -> Result<Strays> {
        let mut found = Strays::default();
        for ag in 0..self.r.ags() {
            let (mut bits, _) = self.read_bitmap(ag)?;
            for (bit, owned) in bits.iter_mut().zip(self.space.claimed(ag)) {
                *bit &= !owned;
            }
            let len = self.r.geom.ag_len(ag);
            let mut at = 0;
            while at < len {
                let end = at.saturating_add(PIECE).min(len);
                if (at..end).any(|i| is_set(&bits, i)) {
                    self.look_for_strays(ag, at..end, &bits, &mut found)?;
                    self.report(at.into(), len.into(), "searching for lost blocks");
                }
                at = end;
            }
        }
        Ok(found)
    }

    fn look_for_strays(&self, ag: u32, piece: std::ops::Range<u32>, bits: &[u8], found: &mut Strays) -> Result<()> {
        let geom = &self.r.geom;
        let first = geom.ag_start(ag).0.saturating_add(piece.start.into());
        let size = geom.frag_size() as usize;
        let bytes = self.r.read(Kind::Tree, geom.daddr(Frag(first)).byte(), piece.len() * size)?;
        for ((n, head), bit) in (0u64..).zip(bytes.chunks_exact(size)).zip(piece) {
            let kind = match get_u32(head, 0) {
                Some(m) if m == BlockType::Dir as u32 => BlockType::Dir,
                Some(m) if m == BlockType::ExtentNode as u32 => BlockType::ExtentNode,
                _ => continue,
            };
            let start = Frag(first + n);
            let owner = get_u64(head, 24).unwrap_or(0);
            if !is_set(bits, bit) || get_u64(head, 16) != Some(geom.daddr(start).0) {
                continue;
            }
            let Ok(block) = self.r.owned(kind, owner, start, geom.block_frags())? else { continue };
            match kind {
                BlockType::Dir => found.dirs.entry(owner).or_default().push(start),
                _ if tree::level(block.get(HEADER..).unwrap_or(&[])) == 0 => {
                    found.leaves.entry(owner).or_default().push(start);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Adopts the extents of leaves that a file's tree does not point to any more.
    fn adopt_leaves(&mut self, at: usize, ino: u64, leaves: &[Frag]) -> Result<()> {
        let len = self.r.geom.block_frags();
        let (mut records, mut nodes) = (Vec::new(), Vec::new());
        for start in leaves {
            let Ok(block) = self.r.owned(BlockType::ExtentNode, ino, *start, len)? else { continue };
            if self.space.claim(*start, len) {
                nodes.push(*start);
                records.extend(leaf_records(block.get(HEADER..).unwrap_or(&[])));
            }
        }
        let Some(edit) = self.maps.get_mut(at) else { return Ok(()) };
        let mut count = 0;
        let limit = (1 << 63) >> self.r.geom.frag_shift;
        for (key, value) in records {
            let (start, len, flags) = extent(&value);
            let end = key.saturating_add(len.into());
            let place = edit.records.partition_point(|r| r.0 < key);
            let before = place.checked_sub(1).and_then(|n| edit.records.get(n));
            let free = before.is_none_or(|r| r.0.saturating_add(extent(&r.1).1.into()) <= key)
                && edit.records.get(place).is_none_or(|r| r.0 >= end);
            let good = free && end <= limit && flags & !UNWRITTEN == 0 && self.r.valid_run(start, len);
            if good && self.space.claim(start, len) {
                edit.records.insert(place, (key, value));
                count += 1;
            }
        }
        edit.nodes.extend(nodes);
        if count > 0 {
            self.f.judge(Issue::ExtentsFound { ino: Node(ino), count });
        }
        Ok(())
    }

    /// Adopts blocks of a directory whose tree or inode is lost.
    fn adopt_dir(&mut self, ino: u64, blocks: &[Frag]) -> Result<()> {
        let len = self.r.geom.block_frags();
        let mine: Vec<Frag> = blocks.iter().copied().filter(|b| self.space.claim(*b, len)).collect();
        if mine.is_empty() || (self.recs.find(ino).is_none() && !self.make_again(ino, mode::IFDIR | 0o700)?) {
            mine.iter().for_each(|b| self.space.release(*b, len));
            return Ok(());
        }
        self.f.judge(Issue::DirBlocksFound { ino: Node(ino), count: mine.len() as u64 });
        let edit = self.edits.entry(ino).or_default();
        edit.rebuild = true;
        edit.owned.get_or_insert_default().extend(mine.iter().map(|b| (*b, len)));
        edit.found.extend(mine);
        Ok(())
    }

    /// Makes an inode again that was lost. It is written when its blocks are.
    fn make_again(&mut self, ino: u64, mode: u32) -> Result<bool> {
        if !self.gone.contains(&ino) {
            return Ok(false);
        }
        // Without repair the mask still says that it is in use.
        self.take_inode(ino);
        let old = self.r.inode_bytes(ino)?.and_then(|b| RawInode::decode(ino, &b));
        let i = self.new_inode(ino, 0, mode, old);
        self.recs.put(record(&i));
        self.fresh.insert(ino, i);
        Ok(true)
    }

    /// Names that stray directory blocks have for inodes without one.
    pub(super) fn read_stray_names(&mut self) -> Result<()> {
        let strays = std::mem::take(&mut self.strays);
        for start in strays {
            let bytes = self.r.blocks(BlockType::Dir, &[start])?.pop().unwrap_or_default();
            for e in body::parse(bytes.get(HEADER..).unwrap_or(&[])).0 {
                let ino = e.head.ino.get();
                let good = e.is_named(self.r.geom.hash_seed) && super::dirs::valid_name(e.name);
                let kind = self.recs.of(ino).map(|rec| rec.kind);
                if good && kind == Some(e.head.kind) {
                    self.stray_names.entry(ino).or_insert_with(|| e.name.to_vec());
                }
            }
        }
        Ok(())
    }
}

/// What was found, by owner.
#[derive(Default)]
struct Strays {
    dirs: BTreeMap<u64, Vec<Frag>>,
    leaves: BTreeMap<u64, Vec<Frag>>,
}

fn is_set(bits: &[u8], at: u32) -> bool {
    bits.get(at as usize / 8).is_some_and(|b| b >> (at % 8) & 1 != 0)
}

fn leaf_records(body: &[u8]) -> Vec<tree::Record> {
    let count = usize::from(get_u16(body, 0).unwrap_or(0));
    let records = body.get(NODE_HEADER..).unwrap_or(&[]).chunks_exact(8 + EXTENT_VALUE).take(count);
    records.filter_map(|r| Some((get_u64(r, 0)?, r.get(8..)?.try_into().ok()?))).collect()
}
