//! Changes of the tree: a plan is made, its blocks are allocated, and it is carried out.

use crate::format::*;
use crate::item::{Item, last_unit};
use crate::node::{Block, Change, Content};
use crate::options::Ordering;
use crate::planted::{Flaw, planted};
use crate::space::For;
use crate::tree::{self, Alone, Cut, Emptied, Nodes as _, Plan, Room, Step, Taken};
use crate::volume::Core;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Errno, Error, Result};

/// Carries out a plan on the volume.
struct Carry<'a> {
    core: &'a mut Core,
    failed: Option<Error>,
}

impl Room for Carry<'_> {
    fn write(&mut self, block: Block, level: u16, content: Content) {
        self.core.put_node(block, level, content);
    }

    fn free(&mut self, block: Block) {
        if let Err(e) = self.core.free_block(block, For::Tree) {
            self.failed = Some(e);
        }
        self.core.forget_block(block);
    }

    fn set_root(&mut self, block: Block, level: u16) {
        (self.core.sb.root, self.core.sb.height) = (block.into(), u32::from(level).into());
        self.core.touch_super();
    }
}

impl Core {
    /// Most blocks that one change of the tree takes: two beside the node that is divided, one on each level above, and a
    /// new root.
    pub fn most_taken(&self) -> u64 {
        u64::from(self.sb.height.get()) + 3
    }

    /// Fails unless units with keys in this range can be inserted: the formatted node in which they are to lie can be read, and
    /// nothing is there. Two units of one key make a node that nobody can read.
    pub fn check_unused(&mut self, from: Key, to: Key) -> Result<()> {
        let (leaf, end) = tree::leaf_and_end(self, from)?;
        let content = self.node(leaf, 1)?;
        if to > end || tree::has_units(self.shape(), content.items(), from, to) {
            let (at, found) = (self.geom.byte(leaf), format!("{from:?}"));
            return Err(Corrupt::new("node", "items", at, found, "a key that is not in use").into());
        }
        Ok(())
    }

    /// Changes the items of the formatted node in which `key` lies; `ENOSPC` before anything is changed.
    pub fn edit(&mut self, key: Key, f: impl FnOnce(&mut Vec<Item>)) -> Result<()> {
        let plan = tree::plan_edit(self, key, f)?;
        self.carry_out(plan)
    }

    fn carry_out(&mut self, plan: Plan) -> Result<()> {
        let taken = self.prepare(&plan)?;
        self.perform(plan, &taken)
    }

    /// Takes the blocks that a plan needs; fails before anything is changed.
    fn prepare(&mut self, plan: &Plan) -> Result<Taken> {
        self.has(plan.needs() as u64)?;
        for block in plan.freed() {
            self.check_used(*block, For::Tree)?;
        }
        let mut taken = Taken::default();
        if let Err(e) = plan.allocate(&mut taken, |near| self.alloc(near, For::Tree)) {
            for block in taken.blocks() {
                self.free_block(block, For::Tree)?;
            }
            return Err(e);
        }
        Ok(taken)
    }

    fn perform(&mut self, plan: Plan, taken: &Taken) -> Result<()> {
        if self.opts.ordering == Ordering::Preserve {
            self.log.fresh.extend(taken.blocks());
        }
        self.log.moved_nodes += plan.moved() as u64;
        let mut carry = Carry { core: self, failed: None };
        plan.carry_out(taken, &mut carry);
        carry.failed.map_or(Ok(()), Err)
    }

    /// Makes fewer of the formatted nodes that were cut from and fit into fewer with those beside them (REISER-T3), as far as
    /// the log has room. Where damage is in the way they stay.
    pub fn compress(&mut self) -> Result<()> {
        self.calls.reads.stay();
        while self.has_room()
            && let Some(leaf) = self.log.sparse.pop_first()
        {
            match self.plan_of_sparse(leaf) {
                Ok(None) => {}
                Ok(Some((plan, taken))) => self.perform(plan, &taken)?,
                Err(Error::Corrupt(_) | Error::Io(_)) => self.calls.health.note_damage(),
                Err(Error::Errno(Errno::ENOSPC)) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn plan_of_sparse(&mut self, leaf: Block) -> Result<Option<(Plan, Taken)>> {
        let Some(key) = self.node(leaf, 1)?.first_key() else { return Ok(None) };
        if !tree::is_sparse(self, key)? {
            return Ok(None);
        }
        let plan = tree::plan_compress(self, key)?;
        let taken = self.prepare(&plan)?;
        Ok(Some((plan, taken)))
    }

    /// Changes a node that needs no balancing.
    fn change_alone(&mut self, alone: Alone) -> Result<()> {
        // What cannot be read fails before anything is changed.
        for (block, level, _) in alone.keys() {
            self.node(block, level)?;
        }
        if let Some(first) = alone.first.filter(|_| !planted(Flaw::KeyNotTold)) {
            let old = self.node(alone.leaf, 1)?.first_key();
            for (block, level, index) in alone.keys() {
                self.change_key(block, level, index, first)?;
            }
            old.into_iter().for_each(|old| self.move_found(alone.leaf, old, first));
        }
        self.change_items(alone.leaf, [alone.change])
    }

    /// Takes a node that loses all of its items out of the tree.
    fn drop_leaf(&mut self, emptied: &Emptied) -> Result<()> {
        self.check_used(emptied.leaf, For::Tree)?;
        // What cannot be read fails before anything is changed.
        for (block, level, _) in emptied.keys() {
            self.node(block, level)?;
        }
        self.remove_child(emptied.place.block, 2, emptied.place.index)?;
        if let Some(first) = emptied.first.filter(|_| !planted(Flaw::KeyNotTold)) {
            for (block, level, index) in emptied.keys() {
                self.change_key(block, level, index, first)?;
            }
        }
        self.free_block(emptied.leaf, For::Tree)?;
        self.forget_block(emptied.leaf);
        Ok(())
    }

    /// Inserts a piece of an item, none of whose units is there.
    pub fn insert(&mut self, piece: Item) -> Result<()> {
        let bytes = match piece.key.kind() {
            Some(Kind::Direct | Kind::Xattr) => piece.body.len().saturating_sub(1) as u64,
            _ => 0,
        };
        let to = piece.key.at(piece.key.offset().saturating_add(bytes)).next();
        self.check_unused(piece.key, to)?;
        self.insert_unused(piece, to)
    }

    /// The same where that was checked in the same call; `to`: greater than the keys of its units.
    pub fn insert_unused(&mut self, piece: Item, to: Key) -> Result<()> {
        self.recent.forget(piece.key, to);
        let piece = match tree::put_alone(self, piece)? {
            Ok(alone) => return self.change_alone(alone),
            Err(piece) => piece,
        };
        let (shape, key) = (self.shape(), piece.key);
        let plan = tree::plan_growth(self, key, to, |items| tree::put(shape, items, piece))?;
        self.carry_out(plan)
    }

    /// Inserts the items of a new object, for which there is room in no more nodes than for one of them alone. It was checked
    /// in the same call that nothing is there.
    pub fn insert_object(&mut self, object: Vec<Item>) -> Result<()> {
        let (Some(first), Some(last)) = (object.first(), object.last()) else { return Ok(()) };
        let (shape, key, to) = (self.shape(), first.key, last_unit(last, self.geom.node_size).next());
        self.recent.forget(key, to);
        let leaf = tree::leaf_of(self, key)?;
        let (content, used) = self.leaf(leaf)?;
        let at = content.items().partition_point(|i| i.key <= key);
        drop(content);
        if at > 0 && used + tree::size(&object) <= shape.room() {
            return self.change_items(leaf, (at..).zip(object).map(|(at, item)| Change::Insert(at, item)));
        }
        let object = match self.insert_behind(leaf, at, object)? {
            None => return Ok(()),
            Some(object) => object,
        };
        let put = |items: &mut Vec<Item>| object.into_iter().for_each(|piece| tree::put(shape, items, piece));
        let plan = tree::plan_growth(self, key, to, put)?;
        self.carry_out(plan)
    }

    /// The same where the object goes behind all items of a full node, `at` of them: what the node has no room for goes to a
    /// new one. Gives the object back if that has to be planned.
    fn insert_behind(&mut self, leaf: Block, at: usize, object: Vec<Item>) -> Result<Option<Vec<Item>>> {
        let (shape, Some(key)) = (self.shape(), object.first().map(|i| i.key)) else { return Ok(None) };
        let (content, used) = self.leaf(leaf)?;
        let is_small = at > 0 && at == content.items().len() && tree::size(&object) + ITEM_HEAD <= shape.room();
        if !is_small || !self.splits_early() {
            return Ok(Some(object));
        }
        let Some(Step { block, index }) = tree::descend(self, key)?.1.pop() else { return Ok(Some(object)) };
        if self.node(block, 2)?.children().len() >= shape.fanout() {
            return Ok(Some(object));
        }
        drop(content);
        let new = self.alloc(Some(leaf), For::Tree)?;
        if self.opts.ordering == Ordering::Preserve {
            self.log.fresh.insert(new);
        }
        let (stays, goes) = tree::divide(shape, object, shape.room().saturating_sub(used));
        let first = goes.first().map_or(key, |item| item.key);
        if !stays.is_empty() {
            self.change_items(leaf, (at..).zip(stays).map(|(at, item)| Change::Insert(at, item)))?;
        }
        self.put_leaf(new, goes);
        self.insert_child(block, 2, index + 1, (first, new))?;
        // It has less than it would have if its items were spread over its neighbours.
        self.log.sparse.insert(new);
        self.keep_bytes_only(leaf);
        Ok(None)
    }

    /// Gives an item that is never divided a longer body; `ENOSPC` before anything is changed.
    pub fn lengthen(&mut self, key: Key, (leaf, at): (Block, usize), body: Vec<u8>) -> Result<()> {
        let (room, (content, used)) = (self.shape().room(), self.leaf(leaf)?);
        let len = content.items().get(at).map_or(0, |item| item.body.len());
        drop(content);
        if used + body.len().saturating_sub(len) <= room {
            let more = vec![0; body.len().saturating_sub(len)];
            self.change_items(leaf, [Change::Grow(at, len, more.into())])?;
            return self.patch((leaf, at), |item| item.body = body.into());
        }
        self.edit(key, |items| {
            if let Some(item) = items.get_mut(at) {
                item.body = body.into();
            }
        })
    }

    /// Removes all units whose keys are in a range. What they lead to is not freed. Reads no node that has none of them, but
    /// for balancing; fails for one that is damaged before it changes anything.
    pub fn cut_range(&mut self, from: Key, to: Key) -> Result<()> {
        if self.late.is_some_and(|late| (from..to).contains(&late.key)) {
            self.put_late()?;
        }
        self.recent.forget(from, to);
        match tree::cut_alone(self, from, to)? {
            Cut::Nothing => return Ok(()),
            Cut::Alone(alone) => return self.change_alone(alone),
            Cut::Emptied(emptied) => return self.drop_leaf(&emptied),
            Cut::Plan => {}
        }
        let mut at = from;
        loop {
            let (leaf, end) = tree::leaf_and_end(self, at)?;
            self.node(leaf, 1)?;
            if end >= to {
                return self.cut_sound(from, to);
            }
            at = end;
        }
    }

    fn cut_sound(&mut self, from: Key, to: Key) -> Result<()> {
        let (shape, mut at, mut planned) = (self.shape(), from, None);
        loop {
            let (leaf, end) = tree::leaf_and_end(self, at)?;
            match tree::cut_leaf(self, leaf, at, to)? {
                Cut::Nothing => {}
                Cut::Alone(alone) => self.change_alone(alone)?,
                Cut::Emptied(emptied) => self.drop_leaf(&emptied)?,
                // It may shift some of what is left to be cut into this node: greater keys, or this comes to no end.
                Cut::Plan => {
                    let first = tree::seek(self, at)?.map(|unit| unit.key(shape));
                    if planned.is_some() && first <= planned {
                        let at = self.geom.byte(leaf) + NODE_HEAD as u64;
                        return Err(Corrupt::new("node", "items", at, "what was removed", "keys in order").into());
                    }
                    planned = first;
                    self.edit(at, |items| drop(tree::cut(shape, items, at, to)))?;
                    continue;
                }
            }
            if end >= to {
                return Ok(());
            }
            at = end;
        }
    }
}
