//! The balanced tree: searching it, and planning a change of it.
//!
//! A change is planned first (`plan.rs`): all nodes that it needs are read, their new contents are worked out, and how many
//! blocks are allocated and freed is known. Carrying it out ([`Plan::carry_out`]) cannot fail (paper, "Code Complexity":
//! `fix_nodes` is to decide what `do_balance` does).
//!
//! * **REISER-T1** all ways from the root to a formatted node are equally long.
//! * **REISER-T2** the key of a child is the first key of the first formatted node below it.
//! * **REISER-T3** no two neighbouring formatted nodes fit into one, and no three into two, when a transaction becomes durable;
//!   before, those may that are [put off](Nodes::put_off).
//! * **REISER-T4** an internal node other than the root is at least half full; the root has two children or more.
//! * **REISER-T5** a node holds at most one item of a kind and object, as far as their units follow one another.

mod alone;
mod level;
mod pack;
mod plan;
#[cfg(test)]
mod tests;

pub use alone::{Alone, Cut, Emptied, cut_alone, cut_leaf, is_sparse, put_alone};
pub use pack::{divide, size};
pub use plan::{Place, Plan, Room, Taken, cut, plan_compress, plan_edit, plan_growth, put};

use crate::format::{Key, NODE_HEAD};
use crate::item::{Item, last_unit, ops};
use crate::node::{Block, Content, Shape};
use arbor_base::layout::Corrupt;
use arbor_base::vfs::Result;
use std::sync::Arc;

/// The nodes of a tree.
pub trait Nodes {
    /// Size of nodes.
    fn shape(&self) -> Shape;

    /// The root, and its level; 1 if it is a formatted node.
    fn root(&self) -> (Block, u16);

    /// A node of this level.
    fn read(&mut self, block: Block, level: u16) -> Result<Arc<Content>>;

    /// A formatted node, and the bytes that its items take in it.
    fn leaf(&mut self, block: Block) -> Result<(Arc<Content>, usize)> {
        let content = self.read(block, 1)?;
        let used = size(content.items());
        Ok((content, used))
    }

    /// The bytes that the items of a formatted node take in it.
    fn used(&mut self, block: Block) -> Result<usize> {
        Ok(self.leaf(block)?.1)
    }

    /// Whether a node is in memory.
    fn is_cached(&self, block: Block) -> bool;

    /// Whether a node moves when items are shifted out of it.
    fn moves(&self, _block: Block) -> bool {
        false
    }

    /// Whether a full node is split before it is filled up together with both of its neighbours (decision 24).
    fn splits_early(&self) -> bool {
        false
    }

    /// Notes that a formatted node, and those beside it, may fit into fewer nodes once a change is made, and returns `true`; or
    /// returns `false`, and that is found out now.
    fn put_off(&mut self, _leaf: Block) -> bool {
        false
    }

    /// Where a node in a new place goes that has these items, if that is not near the one to the left, which has those.
    fn near(&self, _left: &[Item], _items: &[Item]) -> Option<Block> {
        None
    }

    /// The formatted node in which a key lies, and the first key after it, if that is known from a way down before.
    fn known(&mut self, _key: Key) -> Option<(Block, Key)> {
        None
    }

    /// Notes that keys from `from` on, before `to`, lie in this formatted node, as long as no internal node changes.
    fn learn(&mut self, _from: Key, _to: Key, _leaf: Block) {}

    /// A byte of the body of item `at` of a formatted node at which a unit begins, where all before it have keys less than `key`.
    fn spot(&self, _leaf: Block, _at: usize, _key: Key) -> usize {
        0
    }

    /// Notes that damage was met which does not keep the call from going on.
    fn note_damage(&mut self) {}
}

/// A step of a way down: a node, and which of its children is next.
///
/// Ways of one level are in the order of their nodes: where two part, both are in one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// Index of the child.
    pub index: usize,
    /// The internal node.
    pub block: Block,
}

/// The children of an internal node.
fn children<N: Nodes + ?Sized>(nodes: &mut N, block: Block, level: u16) -> Result<Arc<Content>> {
    let node = nodes.read(block, level)?;
    match &*node {
        Content::Internal(all) if !all.is_empty() => Ok(node),
        _ => {
            let at = u64::from(block) * nodes.shape().node_size as u64;
            Err(Corrupt::new("node", "count", at, "no children", "an internal node").into())
        }
    }
}

fn child(node: &Content, index: usize) -> Option<Block> {
    match node {
        Content::Internal(all) => all.get(index).map(|c| c.1),
        Content::Leaf(_) => None,
    }
}

fn count(node: &Content) -> usize {
    match node {
        Content::Internal(all) => all.len(),
        Content::Leaf(items) => items.len(),
    }
}

/// The greatest key of a node.
fn last_key(node: &Content, node_size: usize) -> Option<Key> {
    match node {
        Content::Leaf(items) => items.last().map(|item| last_unit(item, node_size)),
        Content::Internal(all) => all.last().map(|child| child.0),
    }
}

/// Fails if a node at the end of a way does not lie where its parents say: it begins with the key that they have of it
/// (REISER-T2), and the greatest key that they may be told of it next lies before the node to the right. They would be out of
/// order otherwise.
pub fn check_place<N: Nodes + ?Sized>(
    nodes: &mut N,
    way: &[Step],
    (block, level): (Block, u16),
    (first, end): (Option<Key>, Option<Key>),
) -> Result<()> {
    let Some(last) = way.last() else { return Ok(()) };
    let shape = nodes.shape();
    let told = children(nodes, last.block, level + 1)?.children().get(last.index).map(|child| child.0);
    let next = next_key(nodes, way)?;
    if first == told && next.zip(end).is_none_or(|(next, end)| end < next) {
        return Ok(());
    }
    let (at, found) = (shape.byte(block) + NODE_HEAD as u64, format!("{first:?} to {end:?}"));
    let expected = format!("{told:?} to less than {next:?}, as its parents have");
    Err(Corrupt::new("node", "items", at, found, expected).into())
}

/// The formatted node in which `key` lies, or would lie, and the way to it.
pub fn descend<N: Nodes + ?Sized>(nodes: &mut N, key: Key) -> Result<(Block, Vec<Step>)> {
    let (mut block, height) = nodes.root();
    let mut way = Vec::with_capacity(usize::from(height));
    for level in (2..=height).rev() {
        let node = children(nodes, block, level)?;
        let Content::Internal(all) = &*node else { break };
        let index = all.partition_point(|c| c.0 <= key).saturating_sub(1);
        way.push(Step { block, index });
        block = child(&node, index).unwrap_or(0);
    }
    Ok((block, way))
}

/// The formatted node in which `key` lies, or would lie.
pub fn leaf_of<N: Nodes + ?Sized>(nodes: &mut N, key: Key) -> Result<Block> {
    Ok(leaf_and_end(nodes, key)?.0)
}

/// The formatted node in which `key` lies, or would lie, and the first key that lies after it.
pub fn leaf_and_end<N: Nodes + ?Sized>(nodes: &mut N, key: Key) -> Result<(Block, Key)> {
    if let Some(known) = nodes.known(key) {
        return Ok(known);
    }
    let (mut block, height) = nodes.root();
    let (mut from, mut to) = (Key::LEAST, Key::MOST);
    for level in (2..=height).rev() {
        let node = children(nodes, block, level)?;
        let Content::Internal(all) = &*node else { break };
        let index = all.partition_point(|c| c.0 <= key).saturating_sub(1);
        // Below the first child of all lies what is less than its key, too.
        from = all.get(index).map_or(from, |c| from.max(c.0)).min(key);
        to = all.get(index + 1).map_or(to, |c| to.min(c.0));
        block = child(&node, index).unwrap_or(0);
    }
    nodes.learn(from, to, block);
    Ok((block, to))
}

/// The node beside the one at the end of a way, on the same level, with the way to it.
pub fn beside<N: Nodes + ?Sized>(nodes: &mut N, way: &[Step], right: bool) -> Result<Option<(Block, Vec<Step>)>> {
    let (_, height) = nodes.root();
    for (depth, step) in way.iter().enumerate().rev() {
        let node = children(nodes, step.block, height - depth as u16)?;
        let next = if right { step.index + 1 } else { step.index.wrapping_sub(1) };
        let Some(mut block) = child(&node, next) else { continue };
        let mut to = way.get(..depth).unwrap_or(&[]).to_vec();
        to.push(Step { block: step.block, index: next });
        while to.len() < way.len() {
            let node = children(nodes, block, height - to.len() as u16)?;
            let index = if right { 0 } else { count(&node) - 1 };
            to.push(Step { block, index });
            block = child(&node, index).unwrap_or(0);
        }
        return Ok(Some((block, to)));
    }
    Ok(None)
}

/// The first key of the node to the right of the one at the end of a way, which is not read.
pub fn next_key<N: Nodes + ?Sized>(nodes: &mut N, way: &[Step]) -> Result<Option<Key>> {
    let (_, height) = nodes.root();
    for (depth, step) in way.iter().enumerate().rev() {
        let node = children(nodes, step.block, height - depth as u16)?;
        if let Content::Internal(all) = &*node
            && let Some((key, _)) = all.get(step.index + 1)
        {
            return Ok(Some(*key));
        }
    }
    Ok(None)
}

/// Whether items of a node have units with keys in a range.
pub fn has_units(shape: Shape, items: &[Item], from: Key, to: Key) -> bool {
    let first = items.partition_point(|i| i.key <= from).saturating_sub(1);
    let inside = items.get(first..).unwrap_or(&[]).iter().take_while(|i| i.key < to);
    inside.filter_map(|i| ops(i.key, shape.node_size)?.seek(i, from)).any(|(_, _, found)| found < to)
}

/// A unit of an item, in its node.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The node's contents.
    content: Arc<Content>,
    /// The node.
    pub leaf: Block,
    /// Index of the item.
    pub at: usize,
    /// The unit.
    pub unit: usize,
    /// Bytes of the item's body before it.
    pub start: usize,
}

impl Unit {
    /// The item.
    pub fn item(&self) -> Option<&Item> {
        match &*self.content {
            Content::Leaf(items) => items.get(self.at),
            Content::Internal(_) => None,
        }
    }

    /// Its key.
    pub fn key(&self, shape: Shape) -> Key {
        let item = self.item();
        let found = item.and_then(|item| Some(ops(item.key, shape.node_size)?.key_of(item, self.unit)));
        found.unwrap_or(Key::MOST)
    }

    /// The node's contents.
    pub fn into_content(self) -> Arc<Content> {
        self.content
    }

    /// The items of the node from this one on.
    pub fn items(&self) -> &[Item] {
        match &*self.content {
            Content::Leaf(items) => items.get(self.at..).unwrap_or(&[]),
            Content::Internal(_) => &[],
        }
    }
}

/// The first unit whose key is not less than `key`; `None` if all are less.
pub fn seek<N: Nodes + ?Sized>(nodes: &mut N, key: Key) -> Result<Option<Unit>> {
    let shape = nodes.shape();
    let leaf = leaf_of(nodes, key)?;
    let content = nodes.read(leaf, 1)?;
    if let Content::Leaf(items) = &*content {
        let next = items.partition_point(|i| i.key <= key);
        if let Some(at) = next.checked_sub(1)
            && let Some(item) = items.get(at)
            && let Some(ops) = ops(item.key, shape.node_size)
            && let Some((unit, start, _)) = ops.seek(item, key)
        {
            return Ok(Some(Unit { content, leaf, at, unit, start }));
        }
        if next < items.len() {
            return Ok(Some(Unit { content, leaf, at: next, unit: 0, start: 0 }));
        }
    }
    let (_, way) = descend(nodes, key)?;
    let Some((leaf, _)) = beside(nodes, &way, true)? else { return Ok(None) };
    let content = nodes.read(leaf, 1)?;
    let Some(first) = content.first_key() else { return Ok(None) };
    if first < key {
        let (at, found) = (shape.byte(leaf) + NODE_HEAD as u64, format!("{first:?}"));
        return Err(Corrupt::new("node", "items", at, found, "keys after those of the node before it").into());
    }
    Ok(Some(Unit { content, leaf, at: 0, unit: 0, start: 0 }))
}

/// The last unit whose key is less than `key`; `None` if none is.
pub fn seek_back<N: Nodes + ?Sized>(nodes: &mut N, key: Key) -> Result<Option<Unit>> {
    let (leaf, way) = descend(nodes, key)?;
    if let Some(unit) = last_before(nodes, leaf, key)? {
        return Ok(Some(unit));
    }
    let Some((leaf, _)) = beside(nodes, &way, false)? else { return Ok(None) };
    last_before(nodes, leaf, key)?.map(Some).ok_or_else(|| {
        let at = nodes.shape().byte(leaf) + NODE_HEAD as u64;
        Corrupt::new("node", "items", at, "no lesser key", "keys before those of the node after it").into()
    })
}

/// The last unit of a formatted node whose key is less than `key`.
fn last_before<N: Nodes + ?Sized>(nodes: &mut N, leaf: Block, key: Key) -> Result<Option<Unit>> {
    let (shape, content) = (nodes.shape(), nodes.read(leaf, 1)?);
    let items = content.items();
    let Some(at) = items.partition_point(|i| i.key < key).checked_sub(1) else { return Ok(None) };
    let unit = items.get(at).and_then(|item| {
        let ops = ops(item.key, shape.node_size)?;
        let unit = ops.find(item, key).checked_sub(1)?;
        Some((unit, ops.start(item, unit)))
    });
    Ok(unit.map(|(unit, start)| Unit { content, leaf, at, unit, start }))
}

/// The unit `key`.
pub fn find<N: Nodes + ?Sized>(nodes: &mut N, key: Key) -> Result<Option<Unit>> {
    let shape = nodes.shape();
    let leaf = leaf_of(nodes, key)?;
    let content = nodes.read(leaf, 1)?;
    let Content::Leaf(items) = &*content else { return Ok(None) };
    let at = items.partition_point(|i| i.key <= key).checked_sub(1);
    let Some((at, item)) = at.and_then(|at| Some((at, items.get(at)?))).filter(|(_, i)| i.key.is_of_same(key)) else {
        return Ok(None);
    };
    let Some(ops) = ops(item.key, shape.node_size) else { return Ok(None) };
    let found = ops.seek(item, key).filter(|(_, _, found)| *found == key);
    Ok(found.map(|(unit, start, _)| Unit { content, leaf, at, unit, start }))
}
