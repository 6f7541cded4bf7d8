//! Nodes of the tree, decoded and encoded. What is decoded keeps what the balancing relies on: items in order that can be
//! divided as their lengths say, children in order.

use crate::format::*;
use crate::item::{Item, ops};
use crate::validate::numbers;
use arbor_base::field;
use arbor_base::layout::{Corrupt, crc_without, put};
use zerocopy::{FromBytes, IntoBytes};

/// Number of a node's block.
pub type Block = u32;

/// What a node holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A formatted node: items.
    Leaf(Vec<Item>),
    /// An internal node: the first key below each child, and the child.
    Internal(Vec<(Key, Block)>),
}

/// What a volume says of all its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a node.
    pub node_size: usize,
    /// The volume's number.
    pub fsid: u64,
}

impl Shape {
    /// Bytes that a formatted node has for items and their heads.
    pub fn room(self) -> usize {
        self.node_size - NODE_HEAD
    }

    /// Most children of an internal node.
    pub fn fanout(self) -> usize {
        self.room() / CHILD
    }

    /// Least children of an internal node other than the root: it is at least half full.
    pub fn least_children(self) -> usize {
        self.fanout() / 2
    }

    /// Byte of the device where a block begins.
    pub fn byte(self, block: Block) -> u64 {
        u64::from(block) * self.node_size as u64
    }

    /// Bytes that an item takes.
    pub fn cost(item: &Item) -> usize {
        ITEM_HEAD + item.body.len()
    }
}

impl Content {
    /// The first key; `None` if the node is empty.
    pub fn first_key(&self) -> Option<Key> {
        match self {
            Content::Leaf(items) => items.first().map(|i| i.key),
            Content::Internal(all) => all.first().map(|c| c.0),
        }
    }

    /// The bytes of the node, without its checksum, which [`seal`] makes.
    pub fn encode(&self, shape: Shape, block: Block, level: u16, generation: u64) -> Vec<u8> {
        let mut bytes = vec![0; shape.node_size];
        let count = match self {
            Content::Leaf(items) => put_items(items, &mut bytes),
            Content::Internal(all) => {
                for (n, (key, block)) in all.iter().enumerate() {
                    let child = Child { key: (*key).into(), block: (*block).into() };
                    put(&mut bytes, NODE_HEAD + n * CHILD, child.as_bytes());
                }
                all.len()
            }
        };
        let head = NodeHead {
            magic: NODE_MAGIC.into(),
            crc: 0.into(),
            fsid: shape.fsid.into(),
            generation: generation.into(),
            block: block.into(),
            level: level.into(),
            count: (count as u16).into(),
        };
        put(&mut bytes, 0, head.as_bytes());
        bytes
    }

    /// Items of a formatted node.
    pub fn items(&self) -> &[Item] {
        match self {
            Content::Leaf(items) => items,
            Content::Internal(_) => &[],
        }
    }

    /// Whether it is a formatted node.
    pub fn is_leaf(&self) -> bool {
        matches!(self, Content::Leaf(_))
    }

    /// The node in these bytes, which were read from `block`.
    ///
    /// # Errors
    /// Says what is damaged, and where.
    pub fn decode(shape: Shape, block: Block, level: u16, bytes: &[u8]) -> Result<Content, Corrupt> {
        let crc = crc_without(bytes, CRC_AT).unwrap_or(0);
        let head = head(bytes);
        let found = u64::from(head.crc.get());
        if head.magic.get() == NODE_MAGIC && found != u64::from(crc) {
            let (name, at) = field!(NodeHead, crc);
            return Err(Corrupt::new("node", name, shape.byte(block) + at, found, u64::from(crc)));
        }
        Content::parse(shape, block, level, bytes)
    }

    /// The node in these bytes, whose checksum is right, or not made yet.
    ///
    /// # Errors
    /// Says what is damaged, and where.
    pub fn parse(shape: Shape, block: Block, level: u16, bytes: &[u8]) -> Result<Content, Corrupt> {
        let bad = |(name, at): (&'static str, u64), found: String, expected: String| {
            Corrupt::new("node", name, shape.byte(block) + at, found, expected)
        };
        let head = head(bytes);
        let all = [
            (field!(NodeHead, magic), head.magic.get().into(), NODE_MAGIC.into()),
            (field!(NodeHead, fsid), head.fsid.get(), shape.fsid),
            (field!(NodeHead, block), head.block.get().into(), block.into()),
            (field!(NodeHead, level), head.level.get().into(), level.into()),
        ];
        numbers("node", shape.byte(block), &all)?;
        let count = usize::from(head.count.get());
        if level > 1 {
            return children(shape, count, bytes)
                .map_err(|(at, why)| bad(("children", at), why.into(), "keys in order".into()));
        }
        items(shape, count, bytes).map_err(|(at, why)| bad(("items", at), why.into(), "items in order".into()))
    }
}

/// The head of a node.
pub fn head(bytes: &[u8]) -> NodeHead {
    NodeHead::read_from_prefix(bytes).map(|(head, _)| head).unwrap_or_default()
}

/// Lays items out in a node; returns their number.
fn put_items(items: &[Item], bytes: &mut [u8]) -> usize {
    let mut end = bytes.len();
    for (n, item) in items.iter().enumerate() {
        end -= item.body.len();
        put(bytes, end, &item.body);
        let head = ItemHead {
            key: item.key.into(),
            len: (item.body.len() as u16).into(),
            at: (end as u16).into(),
            tail: item.tail.into(),
            reserved: 0.into(),
        };
        put(bytes, NODE_HEAD + n * ITEM_HEAD, head.as_bytes());
    }
    items.len()
}

/// Damage in a node: its byte, and what is wrong.
type Damage = (u64, &'static str);

fn items(shape: Shape, count: usize, bytes: &[u8]) -> Result<Content, Damage> {
    let (mut all, mut end) = (Vec::with_capacity(count.min(shape.room() / ITEM_HEAD)), shape.node_size);
    let mut last_unit = None;
    for n in 0..count {
        let at = NODE_HEAD + n * ITEM_HEAD;
        let bad = |why| (at as u64, why);
        let head = bytes.get(at..at + ITEM_HEAD).and_then(|b| ItemHead::read_from_bytes(b).ok());
        let head = head.ok_or(bad("more items than have room"))?;
        let (key, from, len) = (Key::from(head.key), usize::from(head.at.get()), usize::from(head.len.get()));
        if from.checked_add(len) != Some(end) || from < NODE_HEAD + count * ITEM_HEAD {
            return Err(bad("a body that does not end where the next one begins"));
        }
        let item = Item { key, tail: head.tail.get(), body: bytes.get(from..end).unwrap_or(&[]).to_vec() };
        let ops = ops(key, shape.node_size).ok_or(bad("an unknown kind of item"))?;
        let last = ops.check(&item).map_err(bad)?;
        if last_unit.is_some_and(|last| last >= key) || all.last().is_some_and(|last| joins(shape, last, &item)) {
            return Err(bad("a key that is not greater, or an item that belongs to the one before it"));
        }
        if last.offset() >= MOST_OFFSET {
            return Err(bad("a key that is too great"));
        }
        last_unit = Some(last);
        all.push(item);
        end = from;
    }
    Ok(Content::Leaf(all))
}

fn children(shape: Shape, count: usize, bytes: &[u8]) -> Result<Content, Damage> {
    if count > shape.fanout() {
        return Err((0, "more children than have room"));
    }
    let mut all: Vec<(Key, Block)> = Vec::with_capacity(count);
    for at in (NODE_HEAD..).step_by(CHILD).take(count) {
        let child = bytes.get(at..at + CHILD).and_then(|b| Child::read_from_bytes(b).ok()).unwrap_or_default();
        let key = Key::from(child.key);
        if child.block.get() == 0 || all.last().is_some_and(|last| last.0 >= key) {
            return Err((at as u64, "a key that is not greater, or no child"));
        }
        all.push((key, child.block.get()));
    }
    Ok(Content::Internal(all))
}

/// Whether two items that lie side by side in a node have to be one.
pub fn joins(shape: Shape, left: &Item, right: &Item) -> bool {
    left.key.is_of_same(right.key) && ops(left.key, shape.node_size).is_some_and(|ops| ops.follows(left, right))
}
