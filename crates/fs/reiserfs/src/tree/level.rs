//! Neighbouring nodes of one level, as a plan changes them.

use super::pack::size;
use super::plan::Place;
use super::{Nodes, Step, beside, check_place, last_key};
use crate::format::Key;
use crate::item::{Item, last_unit};
use crate::node::{Block, Content};
use arbor_base::vfs::{Error, Result};
use std::sync::Arc;

/// The contents of a node. A child may be a node that has no block yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// A formatted node as it is.
    Old(Arc<Content>),
    /// A formatted node.
    Leaf(Vec<Item>),
    /// An internal node.
    Internal(Vec<(Key, Place)>),
}

impl Work {
    fn of(content: Arc<Content>) -> Work {
        match &*content {
            Content::Leaf(_) => Work::Old(content),
            Content::Internal(all) => {
                Work::Internal(all.iter().map(|(key, block)| (*key, Place::Old(*block))).collect())
            }
        }
    }

    pub fn first_key(&self) -> Option<Key> {
        match self {
            Work::Old(content) => content.first_key(),
            Work::Leaf(items) => items.first().map(|i| i.key),
            Work::Internal(all) => all.first().map(|c| c.0),
        }
    }

    pub fn items(&self) -> &[Item] {
        match self {
            Work::Old(content) => content.items(),
            Work::Leaf(items) => items,
            Work::Internal(_) => &[],
        }
    }

    pub fn children(&self) -> &[(Key, Place)] {
        match self {
            Work::Old(_) | Work::Leaf(_) => &[],
            Work::Internal(all) => all,
        }
    }
}

/// One node of the level.
#[derive(Clone, Debug)]
pub struct Slot {
    pub place: Place,
    /// The way to it; of a new node, to the one that it comes after.
    pub way: Vec<Step>,
    work: Work,
    /// Bytes that its items take.
    pub used: usize,
    /// Its contents before the change; `None` for a new node.
    pub old: Option<Work>,
    /// Bytes that its items took then.
    pub old_used: usize,
    /// The block that it has left, and the one near which it goes.
    pub left: Option<Block>,
    pub near: Option<Block>,
    is_changed: bool,
    /// Its items were spread together with those of its neighbours.
    is_spread: bool,
    /// It has become smaller before this change, and nobody has looked yet whether it fits into fewer nodes with those beside it.
    pub is_sparse: bool,
    /// Whether it was in memory before this plan read it.
    pub was_cached: bool,
}

impl Slot {
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Takes its contents out.
    pub fn take(&mut self) -> Work {
        std::mem::replace(&mut self.work, Work::Internal(Vec::new()))
    }

    /// Whether it differs from what it was.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Gives it its share of the items of several nodes.
    pub fn spread(&mut self, items: Vec<Item>) {
        self.is_spread = true;
        self.set(Work::Leaf(items));
    }

    /// Whether some of its items went to a neighbour; the node to the right now begins with `next`.
    fn has_sent(&self, node_size: usize, next: Option<Key>) -> bool {
        let Some(old) = self.old.as_ref().filter(|_| self.is_spread && self.is_changed) else { return false };
        let last = old.items().last().map(|item| last_unit(item, node_size));
        old.first_key() < self.work.first_key() || last.zip(next).is_some_and(|(last, next)| next <= last)
    }

    /// Gives it other contents.
    pub fn set(&mut self, work: Work) {
        self.is_changed = match (&self.old, &work) {
            (Some(Work::Old(old)), Work::Leaf(new)) => old.items() != new,
            (old, new) => old.as_ref() != Some(new),
        };
        self.used = size(work.items());
        self.work = work;
    }
}

/// Nodes side by side, from left to right; more are read as they are asked for.
pub struct Level<'a, N: Nodes + ?Sized> {
    pub nodes: &'a mut N,
    pub number: u16,
    pub slots: Vec<Slot>,
    /// Nodes that are no longer needed.
    pub removed: Vec<Slot>,
}

impl<'a, N: Nodes + ?Sized> Level<'a, N> {
    pub fn new(nodes: &'a mut N, number: u16) -> Level<'a, N> {
        Level { nodes, number, slots: Vec::new(), removed: Vec::new() }
    }

    /// A node as it is on disk.
    pub fn slot(&mut self, block: Block, way: Vec<Step>) -> Result<Slot> {
        let was_cached = self.nodes.is_cached(block);
        let (content, used) = match self.number {
            1 => self.nodes.leaf(block)?,
            number => (self.nodes.read(block, number)?, 0),
        };
        let keys = (content.first_key(), last_key(&content, self.nodes.shape().node_size));
        check_place(self.nodes, &way, (block, self.number), keys)?;
        let work = Work::of(content);
        Ok(Slot {
            place: Place::Old(block),
            way,
            used,
            old: Some(work.clone()),
            old_used: used,
            work,
            left: None,
            near: None,
            is_changed: false,
            is_spread: false,
            is_sparse: false,
            was_cached,
        })
    }

    /// Reads the node to the left of the first; returns whether there is one. All indices grow by one then.
    pub fn more_left(&mut self) -> Result<bool> {
        let Some(slot) = self.beyond(false)? else { return Ok(false) };
        self.slots.insert(0, slot);
        Ok(true)
    }

    /// Reads the node to the right of the last; returns whether there is one.
    pub fn more_right(&mut self) -> Result<bool> {
        let Some(slot) = self.beyond(true)? else { return Ok(false) };
        self.slots.push(slot);
        Ok(true)
    }

    /// The node beside the outermost one. One that is damaged does not take part: it hinders no change of others.
    fn beyond(&mut self, right: bool) -> Result<Option<Slot>> {
        let Some(way) = self.outermost(right) else { return Ok(None) };
        let found = match beside(self.nodes, &way, right) {
            Ok(None) => return Ok(None),
            Ok(Some((block, way))) => self.slot(block, way).map(Some),
            Err(e) => Err(e),
        };
        if let Err(Error::Corrupt(_) | Error::Io(_)) = found {
            self.nodes.note_damage();
            return Ok(None);
        }
        found
    }

    /// The way to the outermost node that this level knows, of those that are on disk, removed or not.
    fn outermost(&self, right: bool) -> Option<Vec<Step>> {
        let ways = self.slots.iter().chain(&self.removed).map(|s| &s.way);
        if right { ways.max() } else { ways.min() }.cloned()
    }

    /// Takes a node out of the level.
    pub fn remove(&mut self, n: usize) {
        let slot = self.slots.remove(n);
        if slot.old.is_some() {
            self.removed.push(slot);
        }
    }

    /// Adds a new node after node `n`.
    pub fn insert_after(&mut self, n: usize, place: Place, work: Work) {
        let way = self.slots.get(n).map(|s| s.way.clone()).unwrap_or_default();
        let slot = Slot {
            place,
            way,
            used: size(work.items()),
            work,
            old: None,
            old_used: 0,
            left: None,
            near: None,
            is_changed: true,
            is_spread: false,
            is_sparse: false,
            was_cached: true,
        };
        self.slots.insert(n + 1, slot);
    }

    /// The nodes, of those that are to move, out of which items were shifted.
    pub fn senders(&self) -> Vec<(usize, Block)> {
        let node_size = self.nodes.shape().node_size;
        let next = |n: usize| self.slots.get(n + 1).and_then(|s| s.work().first_key());
        let sent = self.slots.iter().enumerate().filter(|(n, slot)| slot.has_sent(node_size, next(*n)));
        sent.filter_map(|(n, slot)| Some((n, slot.place.old()?)))
            .filter(|(_, block)| self.nodes.moves(*block))
            .collect()
    }

    /// The node to the left of node `n`, as far as its parent tells.
    pub fn left_of(&mut self, n: usize) -> Result<Option<Block>> {
        let Some(last) = self.slots.get(n).and_then(|s| s.way.last().copied()) else { return Ok(None) };
        let parent = self.nodes.read(last.block, self.number + 1)?;
        let Content::Internal(all) = &*parent else { return Ok(None) };
        Ok(last.index.checked_sub(1).and_then(|left| all.get(left)).map(|child| child.1))
    }
}
