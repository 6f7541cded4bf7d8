//! The B*-tree of section 3.4: fixed-size records under 64-bit keys, in a root that lives inside another structure and
//! in blocks.
//!
//! One implementation serves extents, directory-block descriptors and inode chunks. A body (the bytes of a node after
//! the engine's block header) is
//!
//! ```text
//! 0  count u16    2  level u8 (0 = leaf)    3..8  zero
//! 8  count records, ascending by key:  leaf  key u64, value [u8; V]
//!                                      inner key u64, child u64
//! ```
//!
//! A root of level 0 is the paper's EXTENT format, an array; a body of zeros is an empty tree. Bytes after the last
//! record mean nothing.
//!
//! Invariants, executed by [`Tree::check`]:
//!
//! * BT-I1 the keys of a node ascend strictly. The first key of an inner node is not looked at and stands for the lower
//!   bound of the node itself, so that a smaller key is inserted without touching any separator;
//! * BT-I2 a key lies at or above the separator to its left and below the one to its right, on every level;
//! * BT-I3 the level of a child is that of its parent less one, so no walk is endless;
//! * BT-I4 a block holds at least half of its capacity, unless it is the only child of the root; and no block is empty.
//!
//! `node.rs` reads a node, `balance.rs` makes room and keeps nodes full.
//!
//! Typical sequence: [`Tree::insert`] descends to a leaf; plans, from the leaf upward, how each full node makes room
//! (share with a neighbour, split, grow the root); allocates; only then writes. [`Tree::remove`] plans in the same way.
//! Every node to be changed has been read by the end of the plan, so an error of a read or of an allocation leaves the
//! tree untouched. An error of `write` or `free` may leave it half changed and is passed on: the caller gives the
//! transaction up.

mod balance;
mod node;
#[cfg(test)]
mod tests;

use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Errno, Error, Result};
use balance::{Fix, Place};
use node::{Match, View, leaf_record};

/// Bytes before the first record.
const HEAD: usize = 8;
/// Bytes of a key, and of a child address.
const WORD: usize = 8;
/// Bytes of a record of an inner node.
const INNER: usize = 2 * WORD;
/// The highest level of a root. With the smallest sensible nodes this is far beyond any volume.
const MAX_LEVEL: u8 = 15;
/// The structure named by errors.
const STRUCTURE: &str = "btree node";

/// A node: the root, which lives inside another structure (inode, AG inode block) and is smaller or
/// larger than the others, or a block by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// The root.
    Root,
    /// Any other node.
    Block(u64),
}

/// Where the nodes of one tree live.
///
/// The bodies of all blocks have one length, with room for four inner records at least; the root
/// has room for two inner records and one leaf record at least, and for no more than twice the
/// records of a block.
pub trait NodeStore {
    /// Calls `f` with the node's body (bytes after the engine's block header). Body length is the
    /// node's capacity.
    fn read<R>(&mut self, node: Node, f: impl FnOnce(&[u8]) -> R) -> Result<R>;
    /// Overwrites body bytes from `at`; the store logs exactly this range.
    fn write(&mut self, node: Node, at: usize, bytes: &[u8]) -> Result<()>;
    /// Allocates a block whose body is all zeros.
    fn alloc(&mut self) -> Result<u64>;
    /// Frees a block.
    fn free(&mut self, block: u64) -> Result<()>;
    /// Byte address for error messages.
    fn address(&self, node: Node) -> u64;
}

/// A tree of records with values of `V` bytes.
pub struct Tree<'s, S: NodeStore, const V: usize> {
    store: &'s mut S,
}

impl<'s, S: NodeStore, const V: usize> Tree<'s, S, V> {
    /// The tree whose nodes are in `store`.
    pub fn new(store: &'s mut S) -> Self {
        Tree { store }
    }

    /// The value under `key`.
    pub fn get(&mut self, key: u64) -> Result<Option<[u8; V]>> {
        Ok(self.find(key, Match::Exact)?.map(|(_, value)| value))
    }

    /// The last record whose key is `key` or smaller.
    pub fn last_le(&mut self, key: u64) -> Result<Option<(u64, [u8; V])>> {
        self.find(key, Match::AtMost)
    }

    /// The first record whose key is `key` or larger.
    pub fn first_ge(&mut self, key: u64) -> Result<Option<(u64, [u8; V])>> {
        self.find(key, Match::AtLeast)
    }

    /// The record with the largest key.
    pub fn last(&mut self) -> Result<Option<(u64, [u8; V])>> {
        self.find(u64::MAX, Match::AtMost)
    }

    /// Levels of the tree: 1 for a root without children.
    pub fn height(&mut self) -> Result<u8> {
        self.view(Node::Root, None, |v| v.level + 1)
    }

    /// The most blocks that one `insert`, or one `rekey`, allocates in a tree of this height.
    pub const fn max_new_blocks(height: u8) -> usize {
        height as usize + 1
    }

    /// Adds a record. `EEXIST` if the key is there already.
    pub fn insert(&mut self, key: u64, value: &[u8; V]) -> Result<()> {
        let path = self.descend(key)?;
        if path.last().is_some_and(|leaf| leaf.hit) {
            return Err(Errno::EEXIST.into());
        }
        let append = path.iter().all(|s| s.at + usize::from(s.level > 0) == s.count);
        let plan = self.plan_insert(&path, append)?;
        let mut fresh = self.alloc_for(&plan, &path)?.into_iter();

        let mut record = leaf_record(key, value);
        let mut at = path.last().map_or(0, |leaf| leaf.at);
        for (depth, fix) in (0..path.len()).rev().zip(plan) {
            let step = &path[depth];
            match fix {
                Fix::Alone => return self.insert_record(step, at, &record),
                Fix::Grow => return self.grow(at, &record, fresh.as_slice()),
                Fix::Group { first, nodes, split } => {
                    let new = if split { fresh.next() } else { None };
                    let place = Place { parent: &path[depth - 1], first, nodes, append };
                    match self.make_room(&place, step, at, &record, new)? {
                        Some(separator) => record = separator,
                        None => return Ok(()),
                    }
                    at = first + nodes;
                }
                Fix::Merge { .. } | Fix::Vanish => unreachable!("an insert takes no node away"),
            }
        }
        Ok(())
    }

    /// Overwrites the value under `key`, which must be there (`ENOENT`).
    pub fn set(&mut self, key: u64, value: &[u8; V]) -> Result<()> {
        let path = self.descend(key)?;
        match path.last() {
            Some(leaf) if leaf.hit => self.overwrite(leaf, &leaf_record(key, value)),
            _ => Err(Errno::ENOENT.into()),
        }
    }

    /// Gives the record under `old` another key and value; in place if no other record lies between
    /// the two keys. `ENOENT` without `old`, `EEXIST` if `new` is another record's key.
    pub fn rekey(&mut self, old: u64, new: u64, value: &[u8; V]) -> Result<()> {
        let path = self.descend(old)?;
        let Some(leaf) = path.last().filter(|leaf| leaf.hit) else {
            return Err(Errno::ENOENT.into());
        };
        let (from, to) = if new < old { (new, old.saturating_sub(1)) } else { (old.saturating_add(1), new) };
        let obstacle = if new == old { None } else { self.first_ge(from)?.filter(|r| r.0 <= to) };
        if obstacle.is_some() {
            self.insert(new, value)?;
            self.remove(old)?;
            return Ok(());
        }
        self.move_bounds(&path, old, new)?;
        self.overwrite(leaf, &leaf_record(new, value))
    }

    /// Removes the record under `key`; false if there is none.
    pub fn remove(&mut self, key: u64) -> Result<bool> {
        let path = self.descend(key)?;
        let Some(leaf) = path.last().filter(|leaf| leaf.hit) else {
            return Ok(false);
        };
        let plan = self.plan_remove(&path)?;
        let shrinks = plan.len() == path.len();
        let mut at = leaf.at;
        for (depth, fix) in (0..path.len()).rev().zip(plan) {
            let step = &path[depth];
            match fix {
                Fix::Group { first, nodes, .. } => {
                    let place = Place { parent: &path[depth - 1], first, nodes, append: false };
                    self.borrow(&place, step, at)?;
                }
                Fix::Merge { first } => {
                    let place = Place { parent: &path[depth - 1], first, nodes: 2, append: false };
                    self.merge(&place, step, at)?;
                    at = first + 1;
                }
                Fix::Vanish => {
                    if let Node::Block(block) = step.node {
                        self.store.free(block)?;
                    }
                    at = path[depth - 1].at;
                }
                Fix::Alone | Fix::Grow if depth == 0 && step.count == 1 => self.store.write(Node::Root, 0, &[0; 3])?,
                Fix::Alone | Fix::Grow => self.remove_record(step, at)?,
            }
        }
        if shrinks || path.first().is_some_and(|root| root.count == 1) {
            self.collapse()?;
        }
        Ok(true)
    }

    /// Frees all blocks and empties the root. Leaves are freed unread.
    pub fn clear(&mut self) -> Result<()> {
        let mut blocks = Vec::new();
        let mut generation = vec![Node::Root];
        let mut level = self.view(Node::Root, None, |v| v.level)?;
        while level > 0 {
            let mut children = Vec::new();
            for node in generation {
                self.view(node, Some(level), |v| children.extend(v.children()))?;
            }
            children.sort_unstable();
            if let Some(pair) = children.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(self.damage(Node::Block(pair[0]), "parents", 2, 1));
            }
            generation = children.iter().copied().map(Node::Block).collect();
            blocks.extend(children);
            level -= 1;
        }
        self.store.write(Node::Root, 0, &[0; 3])?;
        blocks.into_iter().try_for_each(|block| self.store.free(block))
    }

    /// Calls `f` with each record from key `from` on, in order, until it returns false. After an
    /// error, `f` has seen the records up to it.
    pub fn for_each(&mut self, from: u64, f: &mut dyn FnMut(u64, &[u8; V]) -> bool) -> Result<()> {
        self.walk(Node::Root, None, from, &mut None, f).map(drop)
    }

    /// Number of records, by walking over them.
    pub fn len(&mut self) -> Result<usize> {
        let mut n = 0;
        self.for_each(0, &mut |_, _| {
            n += 1;
            true
        })?;
        Ok(n)
    }

    /// Whether there is no record.
    pub fn is_empty(&mut self) -> Result<bool> {
        self.view(Node::Root, None, |v| v.count() == 0)
    }

    /// Verifies BT-I1 to BT-I4 and calls `visit` with every node, parents first.
    pub fn check(&mut self, visit: &mut dyn FnMut(Node)) -> Result<()> {
        self.check_node(Node::Root, None, 0, None, true, visit)
    }
}

/// One node of the way from the root to a leaf.
struct Step {
    node: Node,
    level: u8,
    /// In an inner node the child taken; in a leaf the place of the key.
    at: usize,
    count: usize,
    cap: usize,
    /// The leaf holds the key.
    hit: bool,
}

/// Lookups and walks.
impl<S: NodeStore, const V: usize> Tree<'_, S, V> {
    fn view<R>(&mut self, node: Node, level: Option<u8>, f: impl FnOnce(View<'_, V>) -> R) -> Result<R> {
        let address = self.store.address(node);
        let seen = self.store.read(node, |body| View::new(node, address, body, level).map(f))?;
        Ok(seen?)
    }

    fn damage(&self, node: Node, field: &'static str, found: u64, expected: u64) -> Error {
        Corrupt::new(STRUCTURE, field, self.store.address(node), found, expected).into()
    }

    fn find(&mut self, key: u64, want: Match) -> Result<Option<(u64, [u8; V])>> {
        let wanted = key;
        let (mut node, mut level, mut key) = (Node::Root, None, key);
        let mut beside = None;
        loop {
            let hop = self.view(node, level, |v| {
                if v.level == 0 {
                    return Err(v.pick(key, want));
                }
                let i = v.slot(key);
                let near = match want {
                    Match::AtMost => i.checked_sub(1),
                    Match::AtLeast => Some(i + 1).filter(|&n| n < v.count()),
                    Match::Exact => None,
                };
                Ok((v.level - 1, v.child(i), near.map(|n| v.child(n))))
            })?;
            match hop {
                Ok((below, child, near)) => {
                    (node, level) = (Node::Block(child), Some(below));
                    beside = near.map(|n| (n, below)).or(beside);
                }
                Err(Some(record)) => {
                    // Wrong separators must not lead the walk back.
                    let fits = match want {
                        Match::Exact => record.0 == wanted,
                        Match::AtMost => record.0 <= wanted,
                        Match::AtLeast => record.0 >= wanted,
                    };
                    return if fits { Ok(Some(record)) } else { Err(self.damage(node, "key", record.0, wanted)) };
                }
                // Nothing on this side of the key: the record is at the edge of the nearest
                // subtree, whose leaves are not empty.
                Err(None) => {
                    let Some((block, below)) = beside.take() else { return Ok(None) };
                    (node, level) = (Node::Block(block), Some(below));
                    key = if matches!(want, Match::AtMost) { u64::MAX } else { 0 };
                }
            }
        }
    }

    fn descend(&mut self, key: u64) -> Result<Vec<Step>> {
        let mut path = Vec::with_capacity(4);
        let (mut node, mut level) = (Node::Root, None);
        loop {
            let (step, child) = self.view(node, level, |v| {
                let at = v.slot(key);
                let hit = v.level == 0 && at < v.count() && v.key(at) == key;
                (Step { node, level: v.level, at, count: v.count(), cap: v.cap, hit }, v.child(at))
            })?;
            let below = step.level.checked_sub(1);
            path.push(step);
            if below.is_none() {
                return Ok(path);
            }
            (node, level) = (Node::Block(child), below);
        }
    }

    fn walk(
        &mut self,
        node: Node,
        level: Option<u8>,
        from: u64,
        last: &mut Option<u64>,
        f: &mut dyn FnMut(u64, &[u8; V]) -> bool,
    ) -> Result<bool> {
        let (level, children) = self.view(node, level, |v| {
            let children: Vec<u64> = if v.level > 0 { v.children().skip(v.slot(from)).collect() } else { Vec::new() };
            (v.level, children)
        })?;
        if level > 0 {
            for child in children {
                if !self.walk(Node::Block(child), Some(level - 1), from, last, f)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        // The order is verified on the way: otherwise a damaged tree whose blocks have several
        // parents would take for ever.
        let mut bad = None;
        let go_on = self.view(node, Some(0), |v| {
            for (key, value) in (v.slot(from)..v.count()).filter_map(|i| v.record(i)) {
                if last.is_some_and(|last| last >= key) {
                    bad = Some(key);
                    return false;
                }
                *last = Some(key);
                if !f(key, &value) {
                    return false;
                }
            }
            true
        })?;
        match (bad, *last) {
            (Some(key), Some(last)) => Err(self.damage(node, "key", key, last.saturating_add(1))),
            _ => Ok(go_on),
        }
    }

    fn check_node(
        &mut self,
        node: Node,
        level: Option<u8>,
        low: u64,
        high: Option<u64>,
        only: bool,
        visit: &mut dyn FnMut(Node),
    ) -> Result<()> {
        if self.store.read(node, |body| body.get(3..HEAD).is_none_or(|zero| zero.iter().any(|&b| b != 0)))? {
            return Err(self.damage(node, "reserved", 1, 0));
        }
        let (level, cap, keys, children) = self.view(node, level, |v| {
            let keys: Vec<u64> = (0..v.count()).map(|i| v.key(i)).collect();
            let children: Vec<u64> = if v.level > 0 { v.children().collect() } else { Vec::new() };
            (v.level, v.cap, keys, children)
        })?;
        visit(node);
        if keys.len() < cap / 2 && !only {
            return Err(self.damage(node, "count", keys.len() as u64, (cap / 2) as u64));
        }
        let mut least = low;
        for &key in keys.iter().skip(usize::from(level > 0)) {
            if key < least || high.is_some_and(|high| key >= high) {
                return Err(self.damage(node, "key", key, least));
            }
            // The last possible key has no successor; nothing may follow it.
            least = key.saturating_add(1);
        }
        if keys.windows(2).skip(usize::from(level > 0)).any(|pair| pair[0] >= pair[1]) {
            return Err(self.damage(node, "key", u64::MAX, least));
        }
        let only = node == Node::Root && children.len() == 1;
        for (i, child) in children.into_iter().enumerate() {
            let low = if i == 0 { low } else { keys.get(i).copied().unwrap_or(low) };
            let high = keys.get(i + 1).copied().or(high);
            self.check_node(Node::Block(child), level.checked_sub(1), low, high, only, visit)?;
        }
        Ok(())
    }
}
