//! Building the tree anew from its formatted nodes.
//!
//! A block is believed to be a formatted node of this tree if the bitmap says that it holds a node, and it carries the
//! volume's number, its own address, and a checksum that is right: so neither an image that lies in a file, nor what is left
//! of a node that was freed, gets mixed in. Where a bitmap is lost that may happen, and the later transaction counts: of two
//! nodes whose keys overlap the other one counts for nothing in the range of its keys; of two pointers to one block the other
//! one leads to nothing; and to what it points is no node. Formatted nodes stay where they are; internal nodes are made for
//! them.

use super::Checker;
use super::issue::{Issue, Node};
use super::space::unpoint;
use crate::format::*;
use crate::item::{Item, last_unit, ops, pointer};
use crate::node::{self, Block, Content};
use crate::planted::{Flaw, planted};
use crate::recent::Recent;
use crate::tree::{self, Nodes as _};
use arbor_base::cache::Name;
use arbor_base::device::Kind as Request;
use arbor_base::vfs::{Errno, Error, Result};
use arbor_kit::buddy::bitmap;
use arbor_kit::forest::TreeIssue;
use arbor_kit::runs::Runs;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A formatted node: its first key and the key after its last unit; its transaction; its address.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    first: Key,
    end: Key,
    generation: u64,
    block: Block,
}

impl Checker<'_> {
    /// Builds the tree anew.
    pub(super) fn rebuild(&mut self) -> Result<()> {
        let (mut all, mut used) = (Vec::new(), Runs::default());
        for n in 0..self.count_bitmaps()? {
            self.find_leaves(n, &mut all)?;
        }
        // The copy of a superblock does not know it. What is written now is newer than all of them.
        let newest = all.iter().map(|leaf: &Leaf| leaf.generation).max().unwrap_or(0);
        self.core.sb.generation = self.core.sb.generation.get().max(newest).into();
        all.sort_by_key(|leaf| std::cmp::Reverse((leaf.generation, leaf.block)));
        let (mut kept, mut left): (BTreeMap<Key, Leaf>, Vec<Leaf>) = (BTreeMap::new(), Vec::new());
        for leaf in all {
            // What lies in a block of a file of which a newer node tells only looks like a node.
            if !used.insert(leaf.block) {
                continue;
            }
            self.claim(leaf.block, &mut used)?;
            match overlaps(&kept, leaf.first, leaf.end) {
                true => left.push(leaf),
                false => kept.extend([(leaf.first, leaf)]),
            }
        }
        self.build(&kept, &mut used)?;
        self.f.note(Issue::Rebuilt { leaves: kept.len() as u64, left: left.len() as u64 });
        if left.is_empty() {
            return Ok(());
        }
        // What they are made of takes blocks, and none that one of them needs.
        self.data.clear();
        self.data.extend(used.iter().filter(|block| !self.nodes.contains(*block)));
        self.check_space()?;
        self.take_rest(&kept, left)
    }

    /// How many bitmaps tell of nodes. The copy of a superblock does not know it: there may be one more after the last that
    /// is sound.
    fn count_bitmaps(&mut self) -> Result<u32> {
        let most = self.core.geom.bitmaps();
        if self.core.sb.bitmaps.get() > 0 {
            return Ok(self.core.sb.bitmaps.get());
        }
        let mut found = 1;
        for n in 0..most {
            if n % 1024 == 0 {
                (self.progress)(n.into(), most.into(), "bitmaps");
            }
            match self.core.bitmap(n) {
                Ok(_) => found = n + 1,
                Err(Error::Corrupt(_)) => {}
                Err(e) => return Err(e),
            }
        }
        self.core.sb.bitmaps = found.into();
        Ok(most.min(found + 1))
    }

    /// Formatted nodes among the blocks that bitmap `n` covers. Without a bitmap any of them may be one.
    fn find_leaves(&mut self, n: u32, all: &mut Vec<Leaf>) -> Result<()> {
        let (g, len) = (self.core.geom, self.core.geom.bit_bytes());
        let bits = match self.core.bitmap(n) {
            _ if planted(Flaw::ForeignBelieved) => vec![0xff; len],
            Ok(bytes) => bytes.get(BITMAP_HEAD + len..).unwrap_or(&[]).to_vec(),
            Err(Error::Corrupt(_)) => vec![0xff; len],
            Err(e) => return Err(e),
        };
        for bit in 0..g.covered() {
            let Some(block) = (n * g.covered()).checked_add(bit).filter(|block| g.is_node(*block)) else { continue };
            if bitmap::is_free(&bits, bit) {
                continue;
            }
            if let Some(leaf) = self.leaf(block)? {
                all.push(leaf);
            }
        }
        Ok(())
    }

    /// The formatted node in a block, if there is one with something in it.
    fn leaf(&mut self, block: Block) -> Result<Option<Leaf>> {
        let shape = self.core.shape();
        let (generation, content) = match self.core.cache.peek(Name::Block(block.into())) {
            Some(bytes) => (node::head(bytes).generation.get(), Content::parse(shape, block, 1, bytes)),
            None => {
                let bytes = Arc::new(self.core.read(block, 1, Request::Tree)?);
                (node::head(&bytes).generation.get(), Content::decode(shape, block, 1, &bytes))
            }
        };
        let Ok(Content::Leaf(items)) = content else { return Ok(None) };
        let (Some(first), Some(last)) = (items.first(), items.last()) else { return Ok(None) };
        let end = last_unit(last, shape.node_size);
        Ok(Some(Leaf { first: first.key, end, generation, block }))
    }

    /// Notes the blocks to which pointers of a formatted node lead. One to which a newer node leads was given away after
    /// the file that had it was removed.
    fn claim(&mut self, block: Block, used: &mut Runs) -> Result<()> {
        let content = self.core.node(block, 1)?;
        let Content::Leaf(items) = &*content else { return Ok(()) };
        let mut stale = Vec::new();
        for (at, item) in items.iter().enumerate().filter(|(_, item)| item.key.kind() == Some(Kind::Indirect)) {
            let ino = Node(ino_of(item.key.locality(), item.key.object()).0);
            for n in 0..item.body.len() / 4 {
                let block = pointer(item, n);
                if self.core.geom.is_node(block) && !used.insert(block) {
                    self.f.note(Issue::Duplicate { ino, block });
                    stale.push((at, n));
                }
            }
        }
        for (at, n) in stale {
            self.core.patch((block, at), |item| unpoint(item, n))?;
        }
        Ok(())
    }

    /// Makes internal nodes above formatted ones, and a root.
    fn build(&mut self, leaves: &BTreeMap<Key, Leaf>, used: &mut Runs) -> Result<()> {
        let mut row: Vec<(Key, Block)> = leaves.values().map(|leaf| (leaf.first, leaf.block)).collect();
        self.core.recent = Recent::default();
        self.nodes.clear();
        self.nodes.extend(leaves.values().map(|leaf| leaf.block));
        let mut level = 1u16;
        if row.is_empty() {
            let Some(block) = self.unused(used) else { return Ok(()) };
            self.core.put_node(block, 1, Content::Leaf(Vec::new()));
            row.push((Key::LEAST, block));
        }
        while row.len() > 1 {
            level += 1;
            let (shape, mut above) = (self.core.shape(), Vec::new());
            let nodes = row.len().div_ceil(shape.fanout());
            for n in 0..nodes {
                // As many in each, so that none is less than half full.
                let part = row.get(n * row.len() / nodes..(n + 1) * row.len() / nodes).unwrap_or(&[]);
                let Some(first) = part.first() else { continue };
                let Some(block) = self.unused(used) else { return Ok(()) };
                self.core.put_node(block, level, Content::Internal(part.to_vec()));
                above.push((first.0, block));
            }
            row = above;
        }
        if let Some((_, root)) = row.first() {
            (self.core.sb.root, self.core.sb.height) = ((*root).into(), u32::from(level).into());
            self.core.touch_super();
        }
        Ok(())
    }

    /// A block that nothing uses, whatever the bitmaps say.
    fn unused(&mut self, used: &mut Runs) -> Option<Block> {
        let g = self.core.geom;
        let after = used.iter().next_back().map_or(g.bitmap(0), |last| last + 1);
        let known = self.core.sb.bitmaps.get().saturating_mul(g.covered()).min(g.copy());
        let found = (after..known)
            .find(|block| g.is_node(*block))
            .or_else(|| (g.bitmap(0)..g.copy()).find(|block| g.is_node(*block) && !used.contains(*block)));
        match found {
            Some(block) => drop((used.insert(block), self.nodes.insert(block))),
            None => self.f.note(TreeIssue::NoSpace { what: "the tree".into() }),
        }
        found
    }

    /// Takes over units of nodes that were left out, as far as their keys lie between those of the others.
    fn take_rest(&mut self, kept: &BTreeMap<Key, Leaf>, left: Vec<Leaf>) -> Result<()> {
        let shape = self.core.shape();
        for leaf in left {
            let content = self.core.node(leaf.block, 1)?;
            let Content::Leaf(items) = &*content else { continue };
            for item in items {
                let Some(ops) = ops(item.key, shape.node_size) else { continue };
                let free = |n: &usize| !overlaps(kept, ops.key_of(item, *n), ops.key_of(item, *n));
                let units: Vec<Item> = (0..ops.units(item)).filter(free).map(|n| item.part(ops, n..n + 1)).collect();
                for unit in units {
                    if tree::find(&mut self.core, unit.key)?.is_some() {
                        continue;
                    }
                    match self.core.insert(unit) {
                        Err(Error::Errno(Errno::ENOSPC)) => {
                            self.f.note(TreeIssue::NoSpace { what: "an object".into() });
                        }
                        done => done?,
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether keys from `first` to `end` overlap those of a node.
fn overlaps(kept: &BTreeMap<Key, Leaf>, first: Key, end: Key) -> bool {
    kept.range(..=end).next_back().is_some_and(|(_, leaf)| leaf.end >= first)
}
