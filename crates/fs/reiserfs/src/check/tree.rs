//! Phase 1: every node of the tree, from the root on (REISER-T1, T2, T5). The items go on to phase 2 in their order.

use super::Checker;
use super::issue::Issue;
use super::objects::Object;
use crate::format::*;
use crate::item::{Item, last_unit};
use crate::node::{Block, Content};
use crate::tree::Nodes as _;
use arbor_base::vfs::{Errno, Error, Result};
use arbor_kit::forest::Forest;

/// A node that is to be visited: its address and level, and the keys between which its own must lie.
#[derive(Clone, Copy, Debug)]
struct Visit {
    block: Block,
    level: u16,
    /// Its first key, unless it is the root.
    first: Option<Key>,
    /// Greater than all of its keys.
    end: Key,
}

impl Checker<'_> {
    /// Reads the tree, and builds it anew if a node cannot be used.
    pub(super) fn read_tree(&mut self) -> Result<()> {
        self.begin_tree();
        if !self.visit_all()? {
            self.rebuild()?;
            self.begin_tree();
            if !self.visit_all()? {
                // What was just read cannot be read any more.
                return Err(Errno::EIO.into());
            }
        }
        Ok(())
    }

    fn begin_tree(&mut self) {
        self.recs = Forest::default();
        self.nodes.clear();
        self.data.clear();
        self.mends.clear();
    }

    /// Visits all nodes; returns whether all can be used.
    fn visit_all(&mut self) -> Result<bool> {
        let (block, level) = self.core.root();
        let root = Visit { block, level, first: None, end: Key::MOST };
        // The copy of a superblock knows of no tree.
        if level == 0 || !self.find_nodes(root)? {
            return Ok(false);
        }
        let (mut ways, mut sound, mut object) = (vec![root], true, None);
        let mut visited = 0u64;
        while let Some(visit) = ways.pop() {
            visited += 1;
            if visited.is_multiple_of(1024) {
                let all = self.core.geom.blocks.saturating_sub(self.core.sb.free.get());
                (self.progress)(visited.min(all.into()), all.into(), "nodes");
            }
            match self.usable(visit)? {
                Err(why) => {
                    self.damaged(visit, why);
                    sound = false;
                }
                Ok(content) => match &*content {
                    Content::Internal(all) => ways.extend(children(all, visit).rev()),
                    Content::Leaf(items) => {
                        for item in items.iter().filter(|_| sound) {
                            self.take_item(&mut object, item)?;
                        }
                    }
                },
            }
        }
        if sound {
            self.end_object(object)?;
        }
        Ok(sound)
    }

    /// Notes the blocks of all nodes before any of them is looked into: no pointer of a file may lead to one. Returns
    /// whether all internal nodes can be used.
    fn find_nodes(&mut self, root: Visit) -> Result<bool> {
        let (mut ways, mut sound) = (vec![root], true);
        while let Some(v) = ways.pop() {
            let why = match () {
                _ if !self.core.geom.is_node(v.block) => "no node can be there".into(),
                _ if !self.nodes.insert(v.block) => "it is in the tree twice".into(),
                _ if v.level <= 1 => continue,
                _ => match self.usable(v)? {
                    Err(why) => why,
                    Ok(content) => {
                        if let Content::Internal(all) = &*content {
                            ways.extend(children(all, v));
                        }
                        continue;
                    }
                },
            };
            self.damaged(v, why);
            sound = false;
        }
        Ok(sound)
    }

    fn damaged(&mut self, v: Visit, why: String) {
        self.f.note(Issue::Damaged { at: self.core.geom.byte(v.block), level: v.level.into(), why });
    }

    /// A node that can be used, or why it cannot.
    fn usable(&mut self, v: Visit) -> Result<std::result::Result<std::sync::Arc<Content>, String>> {
        let content = match self.core.node(v.block, v.level) {
            Ok(content) => content,
            Err(Error::Corrupt(c)) => return Ok(Err(c.to_string())),
            Err(e) => return Err(e),
        };
        let is_root = v.first.is_none();
        let why = match (content.first_key(), last_key(&content, self.core.geom.node_size)) {
            (None, _) if is_root && v.level == 1 => None,
            (None, _) => Some("it is empty"),
            (Some(first), _) if v.first.is_some_and(|key| key != first) => {
                Some("its first key is not that of its parent")
            }
            (_, Some(last)) if last >= v.end => Some("a key belongs to its right neighbour"),
            _ => None,
        };
        Ok(why.map_or(Ok(content), |why| Err(why.into())))
    }

    /// Goes on with the next item of the tree.
    fn take_item(&mut self, object: &mut Option<Object>, item: &Item) -> Result<()> {
        let ino = ino_of(item.key.locality(), item.key.object());
        if object.as_ref().is_none_or(|object| object.ino != ino) {
            self.end_object(object.take())?;
        }
        let object = object.get_or_insert_with(|| Object::new(ino));
        object.take(&self.core.geom, item);
        Ok(())
    }
}

/// The key of the last unit, or of the last child.
fn last_key(content: &Content, node_size: usize) -> Option<Key> {
    match content {
        Content::Leaf(items) => items.last().map(|i| last_unit(i, node_size)),
        Content::Internal(all) => all.last().map(|c| c.0),
    }
}

/// Visits of the children of a node.
fn children(all: &[(Key, Block)], v: Visit) -> impl DoubleEndedIterator<Item = Visit> + '_ {
    let ends = all.iter().skip(1).map(|c| c.0).chain([v.end]).collect::<Vec<_>>();
    let level = v.level.saturating_sub(1);
    all.iter().zip(ends).map(move |((key, block), end)| Visit { block: *block, level, first: Some(*key), end })
}
