//! The B*-tree of section 3.4: fixed-size records under 64-bit keys, in a root that lives inside
//! another structure and in blocks.
//!
//! One implementation serves extents, directory-block descriptors and inode chunks. A body (the
//! bytes of a node behind the engine's block header) is
//!
//! ```text
//! 0  count u16    2  level u8 (0 = leaf)    3..8  zero
//! 8  count records, ascending by key:  leaf  key u64, value [u8; V]
//!                                      inner key u64, child u64
//! ```
//!
//! A root of level 0 is the paper's EXTENT format, an array; a body of zeros is an empty tree.
//! Bytes behind the last record mean nothing.
//!
//! Invariants, executed by [`Tree::check`]:
//!
//! * BT-I1 the keys of a node ascend strictly. The first key of an inner node is not looked at and
//!   stands for the lower bound of the node itself, so that a smaller key is inserted without
//!   touching any separator;
//! * BT-I2 a key lies at or above the separator to its left and below the one to its right, on
//!   every level;
//! * BT-I3 the level of a child is that of its parent less one, so no walk is endless;
//! * BT-I4 a block holds at least half of its capacity, unless it is the only child of the root;
//!   and no block is empty.
//!
//! Typical sequence: [`Tree::insert`] descends to a leaf; plans, from the leaf upward, how each
//! full node makes room (share with a neighbour, split, grow the root); allocates; only then
//! writes. [`Tree::remove`] plans in the same way. Every node to be changed has been read by the
//! end of the plan, so an error of a read or of an allocation leaves the tree untouched. An error
//! of `write` or `free` may leave it half changed and is passed on: the caller gives the
//! transaction up.

use arbor_base::layout::{Corrupt, get_u16, get_u64};
use arbor_base::vfs::{Errno, Error, Result};

#[cfg(test)]
mod tests;

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
    /// A new block whose body is all zeros.
    fn alloc(&mut self) -> Result<u64>;
    /// Gives a block back.
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
        Ok(self.find(key, Want::Exact)?.map(|(_, value)| value))
    }

    /// The last record whose key is `key` or smaller.
    pub fn last_le(&mut self, key: u64) -> Result<Option<(u64, [u8; V])>> {
        self.find(key, Want::AtMost)
    }

    /// The first record whose key is `key` or larger.
    pub fn first_ge(&mut self, key: u64) -> Result<Option<(u64, [u8; V])>> {
        self.find(key, Want::AtLeast)
    }

    /// The record with the largest key.
    pub fn last(&mut self) -> Result<Option<(u64, [u8; V])>> {
        self.find(u64::MAX, Want::AtMost)
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

/// Which record a lookup wants.
#[derive(Clone, Copy)]
enum Want {
    Exact,
    AtMost,
    AtLeast,
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

/// What is done to a node that gets or loses a record.
enum Fix {
    /// Nothing but that.
    Alone,
    /// Its records are spread evenly over the `nodes` children of its parent from `first` on, and
    /// over a new one behind them.
    Group { first: usize, nodes: usize, split: bool },
    /// The children `first` and `first + 1` of its parent become one.
    Merge { first: usize },
    /// It loses its last record and has no neighbour: it is freed.
    Vanish,
    /// The records of the root go to new children.
    Grow,
}

/// Adjacent children of a parent.
struct Place<'a> {
    parent: &'a Step,
    first: usize,
    nodes: usize,
    /// The change is at the very end of the tree.
    append: bool,
}

/// The records of a node as they are in the store, to find out what must be written.
struct Image {
    node: Node,
    level: u8,
    recs: Vec<u8>,
}

/// A node whose head has been checked.
struct View<'a, const V: usize> {
    level: u8,
    cap: usize,
    size: usize,
    recs: &'a [u8],
}

impl<'a, const V: usize> View<'a, V> {
    /// Decodes a body. `level` is the one that the parent demands.
    fn new(node: Node, address: u64, body: &'a [u8], level: Option<u8>) -> std::result::Result<Self, Corrupt> {
        let (Some(count), Some(&found)) = (get_u16(body, 0), body.get(2)) else {
            return Err(Corrupt::new(STRUCTURE, "body", address, body.len(), "a node"));
        };
        if found > level.unwrap_or(MAX_LEVEL) || level.is_some_and(|l| l != found) {
            return Err(Corrupt::new(STRUCTURE, "level", address, found, level.unwrap_or(MAX_LEVEL)));
        }
        let count = usize::from(count);
        let (size, cap) = (record_size::<V>(found), capacity::<V>(body.len(), found));
        let least = usize::from(node != Node::Root || found > 0);
        match body.get(HEAD..HEAD + count * size) {
            Some(recs) if count >= least => Ok(View { level: found, cap, size, recs }),
            _ => Err(Corrupt::new(STRUCTURE, "count", address, count, format_args!("{least} to {cap}"))),
        }
    }

    fn count(&self) -> usize {
        self.recs.len() / self.size
    }

    /// The key of record `i`, which the caller knows to exist.
    fn key(&self, i: usize) -> u64 {
        get_u64(self.recs, i * self.size).unwrap_or(u64::MAX)
    }

    /// The child of record `i`, which the caller knows to exist.
    fn child(&self, i: usize) -> u64 {
        get_u64(self.recs, i * self.size + WORD).unwrap_or(u64::MAX)
    }

    fn children(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.count()).map(|i| self.child(i))
    }

    fn record(&self, i: usize) -> Option<(u64, [u8; V])> {
        let at = i * self.size + WORD;
        let value = self.recs.get(at..at + V)?.try_into().ok()?;
        Some((self.key(i), value))
    }

    /// The first record from `low` on whose key is not `before` the wanted place.
    fn partition(&self, mut low: usize, before: impl Fn(u64) -> bool) -> usize {
        let mut high = self.count();
        while low < high {
            let mid = low + (high - low) / 2;
            if before(self.key(mid)) { low = mid + 1 } else { high = mid }
        }
        low
    }

    /// Where `key` is in this node: the child that covers it, or its place in a leaf.
    fn slot(&self, key: u64) -> usize {
        match self.level {
            0 => self.partition(0, |k| k < key),
            _ => self.partition(1, |k| k <= key) - 1,
        }
    }

    fn pick(&self, key: u64, want: Want) -> Option<(u64, [u8; V])> {
        let i = self.slot(key);
        let hit = i < self.count() && self.key(i) == key;
        match want {
            Want::AtLeast => self.record(i),
            _ if hit => self.record(i),
            Want::AtMost => self.record(i.checked_sub(1)?),
            Want::Exact => None,
        }
    }
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

    fn find(&mut self, key: u64, want: Want) -> Result<Option<(u64, [u8; V])>> {
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
                    Want::AtMost => i.checked_sub(1),
                    Want::AtLeast => Some(i + 1).filter(|&n| n < v.count()),
                    Want::Exact => None,
                };
                Ok((v.level - 1, v.child(i), near.map(|n| v.child(n))))
            })?;
            match hop {
                Ok((below, child, near)) => {
                    (node, level) = (Node::Block(child), Some(below));
                    beside = near.map(|n| (n, below)).or(beside);
                }
                Err(Some(record)) => {
                    // Separators that lie about what is below them must not lead anyone back.
                    let fits = match want {
                        Want::Exact => record.0 == wanted,
                        Want::AtMost => record.0 <= wanted,
                        Want::AtLeast => record.0 >= wanted,
                    };
                    return if fits { Ok(Some(record)) } else { Err(self.damage(node, "key", record.0, wanted)) };
                }
                // Nothing on this side of the key: the record is at the edge of the nearest
                // subtree, whose leaves are not empty.
                Err(None) => {
                    let Some((block, below)) = beside.take() else { return Ok(None) };
                    (node, level) = (Node::Block(block), Some(below));
                    key = if matches!(want, Want::AtMost) { u64::MAX } else { 0 };
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

/// Plans: everything is read here, nothing written.
impl<S: NodeStore, const V: usize> Tree<'_, S, V> {
    /// Record counts of the neighbours of the child that `parent` leads to.
    fn neighbours(&mut self, parent: &Step) -> Result<(Option<usize>, Option<usize>)> {
        let at = parent.at;
        let (left, right) = self.view(parent.node, Some(parent.level), |v| {
            (at.checked_sub(1).map(|i| v.child(i)), Some(at + 1).filter(|&i| i < v.count()).map(|i| v.child(i)))
        })?;
        let below = parent.level.checked_sub(1);
        let mut count = |block: Option<u64>| match block {
            Some(block) => self.view(Node::Block(block), below, |v| v.count()).map(Some),
            None => Ok(None),
        };
        Ok((count(left)?, count(right)?))
    }

    fn plan_insert(&mut self, path: &[Step], append: bool) -> Result<Vec<Fix>> {
        let mut plan = Vec::with_capacity(path.len());
        for (depth, step) in path.iter().enumerate().rev() {
            if step.count < step.cap {
                plan.push(Fix::Alone);
                break;
            }
            let Some(parent) = depth.checked_sub(1).and_then(|up| path.get(up)) else {
                plan.push(Fix::Grow);
                break;
            };
            let (left, right) = self.neighbours(parent)?;
            let (l, r) = (left.unwrap_or(usize::MAX), right.unwrap_or(usize::MAX));
            if l.min(r) < step.cap {
                plan.push(Fix::Group { first: parent.at - usize::from(l <= r), nodes: 2, split: false });
                break;
            }
            // Two full nodes become three, except at the end of the tree: there the left one shall
            // stay full.
            plan.push(match (left, right) {
                (_, Some(_)) => Fix::Group { first: parent.at, nodes: 2, split: true },
                (Some(_), None) if !append => Fix::Group { first: parent.at - 1, nodes: 2, split: true },
                _ => Fix::Group { first: parent.at, nodes: 1, split: true },
            });
        }
        Ok(plan)
    }

    fn plan_remove(&mut self, path: &[Step]) -> Result<Vec<Fix>> {
        let mut plan = Vec::with_capacity(path.len());
        for (depth, step) in path.iter().enumerate().rev() {
            let left = step.count - 1;
            let parent = depth.checked_sub(1).and_then(|up| path.get(up));
            if left == 0 && parent.is_some_and(|parent| parent.count == 1) {
                // No tree of ours comes to this: nodes are at least half full.
                plan.push(Fix::Vanish);
                continue;
            }
            let Some(parent) = parent.filter(|parent| left < step.cap / 2 && parent.count > 1) else {
                plan.push(Fix::Alone);
                break;
            };
            let (before, after) = self.neighbours(parent)?;
            let (b, a) = (before.unwrap_or(usize::MAX), after.unwrap_or(usize::MAX));
            if b.min(a).saturating_add(left) <= step.cap {
                plan.push(Fix::Merge { first: parent.at - usize::from(b <= a) });
                continue;
            }
            let first = parent.at - usize::from(before.is_some_and(|b| b >= after.unwrap_or(0)));
            plan.push(Fix::Group { first, nodes: 2, split: false });
            break;
        }
        Ok(plan)
    }

    /// Allocates all that the plan needs. What was got before a failure is given back.
    fn alloc_for(&mut self, plan: &[Fix], path: &[Step]) -> Result<Vec<u64>> {
        let mut fresh = Vec::new();
        match self.alloc_all(plan, path, &mut fresh) {
            Ok(()) => Ok(fresh),
            Err(e) => {
                fresh.into_iter().try_for_each(|block| self.store.free(block))?;
                Err(e)
            }
        }
    }

    fn alloc_all(&mut self, plan: &[Fix], path: &[Step], fresh: &mut Vec<u64>) -> Result<()> {
        for fix in plan {
            match fix {
                Fix::Group { split: true, .. } => fresh.push(self.store.alloc()?),
                Fix::Grow => {
                    let Some(root) = path.first().filter(|root| root.level < MAX_LEVEL) else {
                        return Err(Errno::EFBIG.into());
                    };
                    let block = self.store.alloc()?;
                    fresh.push(block);
                    let cap = self.store.read(Node::Block(block), |body| capacity::<V>(body.len(), root.level))?;
                    let children = (root.count + 1).div_ceil(cap.max(1));
                    let room = self.store.read(Node::Root, |body| capacity::<V>(body.len(), root.level + 1))?;
                    if children > room {
                        return Err(Errno::EFBIG.into());
                    }
                    for _ in 1..children {
                        fresh.push(self.store.alloc()?);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Changes of nodes.
impl<S: NodeStore, const V: usize> Tree<'_, S, V> {
    fn insert_record(&mut self, step: &Step, at: usize, record: &[u8]) -> Result<()> {
        let from = at * record.len();
        let mut bytes = record.to_vec();
        self.view(step.node, Some(step.level), |v| bytes.extend_from_slice(v.recs.get(from..).unwrap_or(&[])))?;
        self.store.write(step.node, HEAD + from, &bytes)?;
        self.store.write(step.node, 0, &count_bytes(step.count + 1))
    }

    fn remove_record(&mut self, step: &Step, at: usize) -> Result<()> {
        let size = record_size::<V>(step.level);
        let tail = self.view(step.node, Some(step.level), |v| v.recs.get((at + 1) * size..).unwrap_or(&[]).to_vec())?;
        if !tail.is_empty() {
            self.store.write(step.node, HEAD + at * size, &tail)?;
        }
        self.store.write(step.node, 0, &count_bytes(step.count - 1))
    }

    /// Replaces the record that `leaf` leads to.
    fn overwrite(&mut self, leaf: &Step, record: &[u8]) -> Result<()> {
        let from = leaf.at * record.len();
        let old = self.view(leaf.node, Some(0), |v| v.recs.get(from..from + record.len()).map(<[u8]>::to_vec))?;
        self.write_changes(leaf.node, HEAD + from, &old.unwrap_or_default(), record)
    }

    fn set_key(&mut self, node: Node, i: usize, key: u64) -> Result<()> {
        self.store.write(node, HEAD + i * INNER, &key.to_le_bytes())
    }

    /// Moves the separators beside a leaf so that the record at the end of `path` may have the key
    /// `new`; the caller knows that no other record is in the way.
    fn move_bounds(&mut self, path: &[Step], old: u64, new: u64) -> Result<()> {
        let inner = || path.iter().rev().skip(1);
        if let Some(s) = inner().find(|s| s.at > 0).filter(|_| new < old)
            && self.view(s.node, Some(s.level), |v| v.key(s.at))? > new
        {
            self.set_key(s.node, s.at, new)?;
        }
        if let Some(s) = inner().find(|s| s.at + 1 < s.count).filter(|_| new > old)
            && self.view(s.node, Some(s.level), |v| v.key(s.at + 1))? <= new
        {
            // The right neighbour's records are all above `new`.
            self.set_key(s.node, s.at + 1, new.saturating_add(1))?;
        }
        Ok(())
    }

    fn load(&mut self, node: Node, level: Option<u8>) -> Result<Image> {
        self.view(node, level, |v| Image { node, level: v.level, recs: v.recs.to_vec() })
    }

    /// The nodes of a group and all their records. A first key of an inner node, which may be
    /// stale, gets the value of the separator that it stands for.
    fn gather(&mut self, place: &Place<'_>) -> Result<(Vec<Image>, Vec<u8>)> {
        let parent = place.parent;
        let entries: Vec<(u64, u64)> = self.view(parent.node, Some(parent.level), |v| {
            (place.first..place.first + place.nodes).map(|i| (v.key(i), v.child(i))).collect()
        })?;
        let mut images = Vec::with_capacity(place.nodes + 1);
        let mut recs = Vec::new();
        for (i, (separator, child)) in entries.into_iter().enumerate() {
            let image = self.load(Node::Block(child), parent.level.checked_sub(1))?;
            let from = recs.len();
            recs.extend_from_slice(&image.recs);
            if i > 0 && image.level > 0 {
                recs.splice(from..from + WORD, separator.to_le_bytes());
            }
            images.push(image);
        }
        Ok((images, recs))
    }

    /// Where record `at` of the node that `step` names is among the records of its group.
    fn position(place: &Place<'_>, images: &[Image], step: &Step, at: usize) -> usize {
        let before = images.iter().take(place.parent.at - place.first);
        at * record_size::<V>(step.level) + before.map(|image| image.recs.len()).sum::<usize>()
    }

    /// Lays the records out over `images`, `sizes` records each, and sets the separators of all but
    /// the first and those that the parent has not yet.
    fn spread(&mut self, place: &Place<'_>, images: &[Image], recs: &[u8], sizes: &[usize]) -> Result<()> {
        let Some(level) = images.first().map(|image| image.level) else { return Ok(()) };
        let mut rest = recs;
        for (i, (image, &n)) in images.iter().zip(sizes).enumerate() {
            let part;
            (part, rest) = rest.split_at((n * record_size::<V>(level)).min(rest.len()));
            self.store_image(image, level, part)?;
            if i > 0 && i < place.nodes {
                self.set_key(place.parent.node, place.first + i, get_u64(part, 0).unwrap_or(u64::MAX))?;
            }
        }
        Ok(())
    }

    /// Inserts `record` into a full node of a group whose nodes have room together, or get it from
    /// the block `new`, whose record for the parent is returned.
    fn make_room(
        &mut self,
        place: &Place<'_>,
        step: &Step,
        at: usize,
        record: &[u8],
        new: Option<u64>,
    ) -> Result<Option<Vec<u8>>> {
        let (mut images, mut recs) = self.gather(place)?;
        let from = Self::position(place, &images, step, at);
        recs.splice(from..from, record.iter().copied());
        if let Some(block) = new {
            images.push(Image { node: Node::Block(block), level: 0, recs: Vec::new() });
        }
        let total = recs.len() / record.len();
        let mut sizes = even(total, images.len());
        if let [left, right] = &mut sizes[..]
            && place.append
        {
            // Nothing will be inserted into the left node again: fill it.
            *right = (step.cap / 2).max(total.saturating_sub(step.cap));
            *left = total - *right;
        }
        self.spread(place, &images, &recs, &sizes)?;
        let first = sizes.iter().take(place.nodes).sum::<usize>() * record.len();
        Ok(new.map(|block| inner_record(get_u64(&recs, first).unwrap_or(u64::MAX), block)))
    }

    /// Removes record `at` of a node and evens it out with its neighbour.
    fn borrow(&mut self, place: &Place<'_>, step: &Step, at: usize) -> Result<()> {
        let (images, mut recs) = self.gather(place)?;
        let size = record_size::<V>(step.level);
        let from = Self::position(place, &images, step, at);
        recs.drain(from..from + size);
        let sizes = even(recs.len() / size, images.len());
        self.spread(place, &images, &recs, &sizes)
    }

    /// Removes record `at` of a node, moves the records of two nodes to the left one and frees the
    /// other.
    fn merge(&mut self, place: &Place<'_>, step: &Step, at: usize) -> Result<()> {
        let (images, mut recs) = self.gather(place)?;
        let size = record_size::<V>(step.level);
        let from = Self::position(place, &images, step, at);
        recs.drain(from..from + size);
        let [left, right] = &images[..] else { return Ok(()) };
        self.store_image(left, left.level, &recs)?;
        match right.node {
            Node::Block(block) => self.store.free(block),
            Node::Root => Ok(()),
        }
    }

    /// Moves the records of the full root, with one more, to new children.
    fn grow(&mut self, at: usize, record: &[u8], fresh: &[u64]) -> Result<()> {
        let root = self.load(Node::Root, None)?;
        let mut recs = root.recs.clone();
        let from = at * record.len();
        recs.splice(from..from, record.iter().copied());
        let mut entries = Vec::with_capacity(fresh.len() * INNER);
        let mut rest = &recs[..];
        for (&block, n) in fresh.iter().zip(even(recs.len() / record.len(), fresh.len())) {
            let part;
            (part, rest) = rest.split_at(n * record.len());
            let empty = Image { node: Node::Block(block), level: 0, recs: Vec::new() };
            self.store_image(&empty, root.level, part)?;
            entries.extend(inner_record(get_u64(part, 0).unwrap_or(0), block));
        }
        self.store_image(&root, root.level + 1, &entries)
    }

    /// Takes the records of an only child into the root when they fill three quarters of it or
    /// less: the margin keeps a tree at the edge from changing its height with every change.
    fn collapse(&mut self) -> Result<()> {
        loop {
            let root = self.load(Node::Root, None)?;
            let (Some(below), INNER) = (root.level.checked_sub(1), root.recs.len()) else { return Ok(()) };
            let block = get_u64(&root.recs, WORD).unwrap_or(u64::MAX);
            let room = self.store.read(Node::Root, |body| capacity::<V>(body.len(), below))?;
            let child = self.load(Node::Block(block), Some(below))?;
            if child.recs.len() / record_size::<V>(below) > room - room / 4 {
                return Ok(());
            }
            self.store_image(&root, below, &child.recs)?;
            self.store.free(block)?;
        }
    }

    /// Turns the node of `image` into one with `level` and `recs`, writing what differs.
    fn store_image(&mut self, image: &Image, level: u8, recs: &[u8]) -> Result<()> {
        self.write_changes(image.node, HEAD, &image.recs, recs)?;
        let count = recs.len() / record_size::<V>(level);
        if level != image.level {
            let [low, high] = count_bytes(count);
            return self.store.write(image.node, 0, &[low, high, level]);
        }
        if recs.len() != image.recs.len() {
            return self.store.write(image.node, 0, &count_bytes(count));
        }
        Ok(())
    }

    /// Overwrites `old` at `at` with `new`, from the first to the last byte that differs. Where
    /// `new` is shorter, the rest of `old` stays behind.
    fn write_changes(&mut self, node: Node, at: usize, old: &[u8], new: &[u8]) -> Result<()> {
        let from = old.iter().zip(new).take_while(|(a, b)| a == b).count();
        let mut to = new.len();
        if to <= old.len() {
            to -= old[from..to].iter().rev().zip(new[from..].iter().rev()).take_while(|(a, b)| a == b).count();
        }
        if from < to { self.store.write(node, at + from, &new[from..to]) } else { Ok(()) }
    }
}

fn record_size<const V: usize>(level: u8) -> usize {
    if level == 0 { WORD + V } else { INNER }
}

/// Records that a body of `len` bytes holds.
fn capacity<const V: usize>(len: usize, level: u8) -> usize {
    (len.saturating_sub(HEAD) / record_size::<V>(level)).min(usize::from(u16::MAX))
}

fn count_bytes(count: usize) -> [u8; 2] {
    u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes()
}

fn leaf_record(key: u64, value: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(WORD + value.len());
    record.extend(key.to_le_bytes());
    record.extend(value);
    record
}

fn inner_record(key: u64, child: u64) -> Vec<u8> {
    leaf_record(key, &child.to_le_bytes())
}

/// `total` in `parts` parts that differ by one at most, the larger first.
fn even(total: usize, parts: usize) -> Vec<usize> {
    (0..parts).map(|i| total / parts + usize::from(i < total % parts)).collect()
}
