//! Where everything lies on a volume that is not mounted. Damage is passed over: the checker reports it.

use crate::format::*;
use crate::item::{Item, ops, pointer};
use crate::mount;
use crate::node::{Block, Content};
use crate::tree::Nodes as _;
use crate::volume::Core;
use arbor_base::device::Kind as Request;
use arbor_base::vfs::{Devices, Error, Ino, Region, Result};
use std::collections::HashSet;

/// Tells where each structure and each piece of each file lies.
pub(crate) fn describe(devices: &Devices, f: &mut dyn FnMut(Region)) -> Result<()> {
    let mut core = mount::look(devices)?;
    let g = core.geom;
    let mut tell = |block, blocks, kind, owner: Option<(Ino, u64)>, name: String| {
        let (owner, file_offset) = owner.map_or((None, 0), |(ino, offset)| (Some(ino), offset));
        f(Region { offset: g.byte(block), len: g.byte(blocks), kind, owner, file_offset, name });
    };
    tell(0, 1, Request::Super, None, "superblock".into());
    tell(1, g.log, Request::Log, None, "log".into());
    for n in 0..core.sb.bitmaps.get() {
        tell(g.bitmap(n), 1, Request::Bitmap, None, format!("bitmap {n}"));
    }
    tell(g.copy(), 1, Request::Super, None, "superblock copy".into());
    core.each_node(&mut |core, block, level, content| {
        let owner = sole_owner(content).map(|ino| (ino, 0));
        tell(block, 1, Request::Tree, owner, node_name(level));
        let Content::Leaf(items) = content else { return Ok(()) };
        for item in items {
            for (offset, block) in pointers(item, g.node_size).filter(|(_, block)| core.geom.is_node(*block)) {
                tell(block, 1, Request::Data, Some((owner_of(item), offset)), "data".into());
            }
        }
        Ok(())
    })
}

/// The name of a node of the tree for people.
fn node_name(level: u16) -> String {
    if level > 1 { format!("internal node, level {level}") } else { "formatted node".into() }
}

/// The object that an item belongs to.
pub(crate) fn owner_of(item: &Item) -> Ino {
    ino_of(item.key.locality(), item.key.object())
}

/// The object that all items of a formatted node belong to, if it is one. Stat data is what names lead to: a node that
/// has it is not the object's alone.
fn sole_owner(content: &Content) -> Option<Ino> {
    let Content::Leaf(items) = content else { return None };
    let owner = items.first().map(owner_of)?;
    let is_own = |item: &Item| owner_of(item) == owner && item.key.kind() != Some(Kind::StatData);
    items.iter().all(is_own).then_some(owner)
}

/// The pointers of an item that lead somewhere: the byte of the file where the unformatted node begins, and its block.
pub(crate) fn pointers(item: &Item, node_size: usize) -> impl Iterator<Item = (u64, Block)> {
    let ops = ops(item.key, node_size).filter(|_| item.key.kind() == Some(Kind::Indirect));
    let all = ops.into_iter().flat_map(move |ops| (0..ops.units(item)).map(move |n| (ops.key_of(item, n).offset(), n)));
    all.map(move |(offset, n)| (offset, pointer(item, n))).filter(|(_, block)| *block != 0)
}

/// What is done with a node of the tree: its block, its level, what it holds.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&mut Core, Block, u16, &Content) -> Result<()>;

impl Core {
    /// Calls `f` with each node of the tree that can be used, once: those above before those below, in the order of
    /// their keys.
    pub fn each_node(&mut self, f: Visit<'_>) -> Result<()> {
        let (root, height) = self.root();
        self.below(root, height, &mut HashSet::new(), f)
    }

    /// In a damaged tree two ways may lead to one node, or a way back to where it began.
    fn below(&mut self, block: Block, level: u16, seen: &mut HashSet<Block>, f: Visit<'_>) -> Result<()> {
        if level == 0 || seen.contains(&block) {
            return Ok(());
        }
        let content = match self.node(block, level) {
            Ok(content) => content,
            Err(Error::Corrupt(_) | Error::Errno(_)) => return Ok(()),
            Err(e) => return Err(e),
        };
        seen.insert(block);
        f(self, block, level, &content)?;
        let Content::Internal(children) = &*content else { return Ok(()) };
        children.iter().try_for_each(|(_, child)| self.below(*child, level.saturating_sub(1), seen, f))
    }
}
