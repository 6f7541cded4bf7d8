//! Nodes of the tree, decoded and encoded. What is decoded keeps what the balancing relies on: items in order that can be
//! divided as their lengths say, children in order.

use crate::body::Body;
use crate::format::*;
use crate::item::{Item, ops};
use crate::validate::numbers;
use arbor_base::field;
use arbor_base::layout::{Corrupt, crc_without, put};
use std::ops::Range;
use std::sync::Arc;
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

/// A change of the items of a formatted node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An item more, of this number.
    Insert(usize, Item),
    /// Without these items.
    Remove(Range<usize>),
    /// Bytes more in the body of an item, before this one of them.
    Grow(usize, usize, Body),
    /// Without these bytes of the body of an item.
    Shrink(usize, Range<usize>),
    /// Without so many bytes at the beginning of the body of an item, which has this key then.
    Behead(usize, usize, Key),
}

impl Change {
    /// Changes items.
    pub fn apply(self, items: &mut Vec<Item>) {
        match self {
            Change::Insert(at, item) => items.insert(at.min(items.len()), item),
            Change::Remove(range) => drop(items.drain(range.start.min(items.len())..range.end.min(items.len()))),
            Change::Grow(at, byte, more) => {
                if let Some(item) = items.get_mut(at) {
                    let byte = byte.min(item.body.len());
                    item.body.edit(|body| drop(body.splice(byte..byte, more.iter().copied())));
                }
            }
            Change::Shrink(at, bytes) => {
                if let Some(item) = items.get_mut(at) {
                    let len = item.body.len();
                    item.body.edit(|body| drop(body.drain(bytes.start.min(len)..bytes.end.min(len))));
                }
            }
            Change::Behead(at, bytes, key) => {
                if let Some(item) = items.get_mut(at) {
                    item.body = item.body.part(bytes.min(item.body.len())..item.body.len());
                    item.key = key;
                }
            }
        }
    }

    /// Changes the bytes of a node to what [`Content::encode`] would make of the changed items. Returns whether it could: if
    /// not, nothing is changed.
    pub fn apply_to_bytes(&self, bytes: &mut [u8], generation: u64) -> bool {
        let done = match self {
            Change::Insert(at, item) => insert_bytes(bytes, *at, item),
            Change::Remove(range) => remove_bytes(bytes, range.clone()),
            Change::Grow(at, byte, more) => resize_body(bytes, *at, *byte..*byte, more),
            Change::Shrink(at, range) => resize_body(bytes, *at, range.clone(), &[]),
            Change::Behead(at, len, key) => behead_bytes(bytes, *at, *len, *key),
        };
        done.is_some() && set_generation(bytes, generation)
    }
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
                let (children, _) = bytes.get_mut(NODE_HEAD..).unwrap_or_default().as_chunks_mut::<CHILD>();
                for (place, (key, block)) in children.iter_mut().zip(all) {
                    *place = zerocopy::transmute!(Child { key: (*key).into(), block: (*block).into() });
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

    /// Lets the items of a formatted node share the bytes that were [encoded](Content::encode): else they hold on to those of
    /// the nodes out of which they were shifted.
    pub fn share(&mut self, bytes: &Arc<Vec<u8>>) {
        let (mut end, Content::Leaf(items)) = (bytes.len(), self) else { return };
        for item in items {
            let from = end.saturating_sub(item.body.len());
            item.body = Body::of(bytes, from..end);
            end = from;
        }
    }

    /// Items of a formatted node.
    pub fn items(&self) -> &[Item] {
        match self {
            Content::Leaf(items) => items,
            Content::Internal(_) => &[],
        }
    }

    /// Children of an internal node.
    pub fn children(&self) -> &[(Key, Block)] {
        match self {
            Content::Internal(all) => all,
            Content::Leaf(_) => &[],
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
    pub fn decode(shape: Shape, block: Block, level: u16, bytes: &Arc<Vec<u8>>) -> Result<Content, Corrupt> {
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
    pub fn parse(shape: Shape, block: Block, level: u16, bytes: &Arc<Vec<u8>>) -> Result<Content, Corrupt> {
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

/// Whether these bytes say that they are a formatted node.
pub fn is_leaf(bytes: &[u8]) -> bool {
    let head = head(bytes);
    head.magic.get() == NODE_MAGIC && head.level.get() == 1
}

/// Bytes that the items of a formatted node take in these bytes of it.
pub fn used(bytes: &[u8]) -> usize {
    let count = usize::from(head(bytes).count.get());
    let last = count.checked_sub(1).and_then(|last| {
        ItemHead::ref_from_prefix(bytes.get(NODE_HEAD + last * ITEM_HEAD..)?).ok().map(|(head, _)| head.at.get())
    });
    last.map_or(0, |at| bytes.len().saturating_sub(at.into()) + count * ITEM_HEAD)
}

/// Lays items out in a node; returns their number.
fn put_items(items: &[Item], bytes: &mut [u8]) -> usize {
    let mut end = bytes.len();
    for item in items {
        end -= item.body.len();
        put(bytes, end, &item.body);
    }
    let mut end = bytes.len();
    let (heads, _) = bytes.get_mut(NODE_HEAD..).unwrap_or_default().as_chunks_mut::<ITEM_HEAD>();
    for (place, item) in heads.iter_mut().zip(items) {
        end -= item.body.len();
        *place = zerocopy::transmute!(item_head(item, end));
    }
    items.len()
}

/// The head of an item whose body begins at byte `at` of its node.
fn item_head(item: &Item, at: usize) -> ItemHead {
    ItemHead {
        key: item.key.into(),
        len: (item.body.len() as u16).into(),
        at: (at as u16).into(),
        tail: item.tail.into(),
        reserved: 0.into(),
    }
}

// Changes of a node's bytes in place. `None`: it cannot be done, and nothing was done.

/// Says that a node was changed; its checksum is made later ([`seal`]).
pub fn set_generation(bytes: &mut [u8], generation: u64) -> bool {
    match NodeHead::mut_from_prefix(bytes) {
        Ok((head, _)) => {
            (head.generation, head.crc) = (generation.into(), 0.into());
            true
        }
        Err(_) => false,
    }
}

fn item_heads(bytes: &mut [u8]) -> Option<&mut [ItemHead]> {
    let count = head(bytes).count.get().into();
    let heads = bytes.get_mut(NODE_HEAD..)?.get_mut(..count * ITEM_HEAD)?;
    <[ItemHead]>::mut_from_bytes_with_elems(heads, count).ok()
}

fn set_count(bytes: &mut [u8], count: usize) {
    if let Ok((head, _)) = NodeHead::mut_from_prefix(bytes) {
        head.count = (count as u16).into();
    }
}

/// Where the body of the item before item `n` begins, which is where that of item `n` ends.
fn end_of(heads: &[ItemHead], n: usize, size: usize) -> Option<usize> {
    n.checked_sub(1).map_or(Some(size), |before| heads.get(before).map(|h| h.at.get().into()))
}

/// Adds to the places of bodies.
fn move_heads(heads: &mut [ItemHead], by: isize) {
    for head in heads {
        head.at = head.at.get().wrapping_add_signed(by as i16).into();
    }
}

fn insert_bytes(bytes: &mut [u8], at: usize, item: &Item) -> Option<()> {
    let (size, len) = (bytes.len(), item.body.len());
    let heads = item_heads(bytes)?;
    let (count, end, low) = (heads.len(), end_of(heads, at, size)?, end_of(heads, heads.len(), size)?);
    let heads_end = NODE_HEAD + (count + 1) * ITEM_HEAD;
    if low > end || end > size || low.checked_sub(len)? < heads_end {
        return None;
    }
    move_heads(heads.get_mut(at..)?, -(len as isize));
    bytes.copy_within(low..end, low - len);
    put(bytes, end - len, &item.body);
    let place = NODE_HEAD + at * ITEM_HEAD;
    bytes.copy_within(place..heads_end - ITEM_HEAD, place + ITEM_HEAD);
    put(bytes, place, item_head(item, end - len).as_bytes());
    set_count(bytes, count + 1);
    Some(())
}

fn remove_bytes(bytes: &mut [u8], range: Range<usize>) -> Option<()> {
    let size = bytes.len();
    let heads = item_heads(bytes)?;
    let (count, low) = (heads.len(), end_of(heads, heads.len(), size)?);
    let (end, begin) = (end_of(heads, range.start, size)?, end_of(heads, range.end, size)?);
    if low > begin || begin > end || end > size || range.start > range.end {
        return None;
    }
    let len = end - begin;
    move_heads(heads.get_mut(range.end..)?, len as isize);
    bytes.copy_within(low..begin, low + len);
    bytes.get_mut(low..low + len)?.fill(0);
    let heads_end = NODE_HEAD + count * ITEM_HEAD;
    let (to, from) = (NODE_HEAD + range.start * ITEM_HEAD, NODE_HEAD + range.end * ITEM_HEAD);
    bytes.copy_within(from..heads_end, to);
    bytes.get_mut(heads_end - range.len() * ITEM_HEAD..heads_end)?.fill(0);
    set_count(bytes, count - range.len());
    Some(())
}

/// Replaces some bytes of the body of item `n`.
fn resize_body(bytes: &mut [u8], n: usize, old: Range<usize>, new: &[u8]) -> Option<()> {
    let size = bytes.len();
    let heads = item_heads(bytes)?;
    let (count, low) = (heads.len(), end_of(heads, heads.len(), size)?);
    let (begin, end) = (end_of(heads, n + 1, size)?, end_of(heads, n, size)?);
    let (from, to) = (begin + old.start, begin + old.end);
    let new_low = (low + old.len()).checked_sub(new.len())?;
    if low > begin || from > to || to > end || end > size || new_low < NODE_HEAD + count * ITEM_HEAD {
        return None;
    }
    let by = old.len() as isize - new.len() as isize;
    let head = heads.get_mut(n)?;
    head.len = head.len.get().wrapping_add_signed(-(by as i16)).into();
    move_heads(heads.get_mut(n..)?, by);
    bytes.copy_within(low..from, new_low);
    put(bytes, to - new.len(), new);
    if new_low > low {
        bytes.get_mut(low..new_low)?.fill(0);
    }
    Some(())
}

fn behead_bytes(bytes: &mut [u8], n: usize, len: usize, key: Key) -> Option<()> {
    resize_body(bytes, n, 0..len, &[])?;
    item_heads(bytes)?.get_mut(n)?.key = key.into();
    Some(())
}

/// Writes item `n` over the one that a node has, if its body is as long.
pub fn patch_bytes(bytes: &mut [u8], n: usize, item: &Item, generation: u64) -> bool {
    let Some(head) = item_heads(bytes).and_then(|heads| heads.get_mut(n)) else { return false };
    if usize::from(head.len.get()) != item.body.len() || Key::from(head.key) != item.key {
        return false;
    }
    head.tail = item.tail.into();
    let at = head.at.get().into();
    put(bytes, at, &item.body);
    set_generation(bytes, generation)
}

/// Changes the key of child `n` of an internal node.
pub fn put_child_key(bytes: &mut [u8], n: usize, key: Key, generation: u64) -> bool {
    let is_there = n < head(bytes).count.get().into();
    is_there && set_generation(bytes, generation) && {
        put(bytes, NODE_HEAD + n * CHILD, DiskKey::from(key).as_bytes());
        true
    }
}

/// Inserts a child into an internal node that has room for it, as its child `n`.
pub fn insert_child(bytes: &mut [u8], n: usize, child: (Key, Block), generation: u64) -> bool {
    let count = usize::from(head(bytes).count.get());
    let (from, end) = (NODE_HEAD + n * CHILD, NODE_HEAD + count * CHILD);
    if n > count || end + CHILD > bytes.len() {
        return false;
    }
    bytes.copy_within(from..end, from + CHILD);
    put(bytes, from, Child { key: child.0.into(), block: child.1.into() }.as_bytes());
    set_count(bytes, count + 1);
    set_generation(bytes, generation)
}

/// Takes child `n` out of an internal node.
pub fn remove_child(bytes: &mut [u8], n: usize, generation: u64) -> bool {
    let count = usize::from(head(bytes).count.get());
    let (from, end) = (NODE_HEAD + (n + 1) * CHILD, NODE_HEAD + count * CHILD);
    if n >= count || end > bytes.len() {
        return false;
    }
    bytes.copy_within(from..end, from - CHILD);
    bytes.get_mut(end - CHILD..end).unwrap_or(&mut []).fill(0);
    set_count(bytes, count - 1);
    set_generation(bytes, generation)
}

/// Damage in a node: its byte, and what is wrong.
type Damage = (u64, &'static str);

fn items(shape: Shape, count: usize, bytes: &Arc<Vec<u8>>) -> Result<Content, Damage> {
    let (mut all, mut end) = (Vec::with_capacity(count.min(shape.room() / ITEM_HEAD)), shape.node_size);
    let mut last_unit = None;
    let (heads, _) = bytes.get(NODE_HEAD..).unwrap_or(&[]).as_chunks::<ITEM_HEAD>();
    for n in 0..count {
        let bad = |why| ((NODE_HEAD + n * ITEM_HEAD) as u64, why);
        let head: ItemHead = zerocopy::transmute!(*heads.get(n).ok_or(bad("more items than have room"))?);
        let (key, from, len) = (Key::from(head.key), usize::from(head.at.get()), usize::from(head.len.get()));
        if from.checked_add(len) != Some(end) || from < NODE_HEAD + count * ITEM_HEAD {
            return Err(bad("a body that does not end where the next one begins"));
        }
        let item = Item { key, tail: head.tail.get(), body: Body::of(bytes, from..end) };
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
    let (children, _) = bytes.get(NODE_HEAD..).unwrap_or(&[]).as_chunks::<CHILD>();
    for (n, child) in children.iter().take(count).enumerate() {
        let child: Child = zerocopy::transmute!(*child);
        let key = Key::from(child.key);
        if child.block.get() == 0 || all.last().is_some_and(|last| last.0 >= key) {
            return Err(((NODE_HEAD + n * CHILD) as u64, "a key that is not greater, or no child"));
        }
        all.push((key, child.block.get()));
    }
    Ok(Content::Internal(all))
}

/// Whether two items that lie side by side in a node have to be one.
pub fn joins(shape: Shape, left: &Item, right: &Item) -> bool {
    left.key.is_of_same(right.key) && ops(left.key, shape.node_size).is_some_and(|ops| ops.follows(left, right))
}
