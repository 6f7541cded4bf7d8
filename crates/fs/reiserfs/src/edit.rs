//! Changes of the tree: a plan is made, its blocks are allocated, and it is carried out.

use crate::alloc::For;
use crate::format::*;
use crate::item::{Item, ops};
use crate::node::{Block, Content};
use crate::tree::{self, Nodes as _, Plan, Room, Taken, seek};
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

    /// Changes the items of the formatted node in which `key` lies; `ENOSPC` before anything is changed.
    pub fn edit(&mut self, key: Key, f: impl FnOnce(&mut Vec<Item>)) -> Result<()> {
        let plan = tree::plan_edit(self, key, f)?;
        self.carry_out(plan)
    }

    fn carry_out(&mut self, plan: Plan) -> Result<()> {
        self.need(plan.needs() as u64)?;
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
        let mut carry = Carry { core: self, failed: None };
        plan.carry_out(&taken, &mut carry);
        carry.failed.map_or(Ok(()), Err)
    }

    /// Inserts a piece of an item, none of whose units is there.
    pub fn insert(&mut self, piece: Item) -> Result<()> {
        let (shape, key) = (self.shape(), piece.key);
        self.edit(key, |items| tree::put(shape, items, piece))
    }

    /// Removes all units whose keys are in a range. What they lead to is not freed.
    pub fn cut_range(&mut self, from: Key, to: Key) -> Result<()> {
        let shape = self.shape();
        while let Some(found) = seek(self, from)? {
            let item = found.item().ok_or(Errno::EIO)?;
            let ops = ops(item.key, shape.node_size).ok_or(Errno::EIO)?;
            let key = ops.key_of(item, found.unit);
            if key >= to {
                break;
            }
            let leaf = found.leaf;
            drop(found);
            let mut is_there = false;
            let plan = tree::plan_edit(self, key, |items| is_there = !tree::cut(shape, items, from, to).is_empty())?;
            if !is_there {
                let at = shape.byte(leaf) + NODE_HEAD as u64;
                let expected = "the first key that the node above has";
                return Err(Corrupt::new("node", "items", at, format!("{key:?}"), expected).into());
            }
            self.carry_out(plan)?;
        }
        Ok(())
    }

    /// Changes an item, whose length stays the same.
    pub fn patch(&mut self, (leaf, at): (Block, usize), f: impl FnOnce(&mut Item)) -> Result<()> {
        self.patch_leaf(leaf, |items| {
            if let Some(item) = items.get_mut(at) {
                f(item);
            }
        })
    }
}
