//! Balancing: how a node and its neighbours make room for an insert, or stay full after a removal.
//!
//! It is planned first, so that every node is read and every block allocated before anything changes.

use super::node::{capacity, count_bytes, inner_record, record_size};
use super::{HEAD, INNER, MAX_LEVEL, Node, NodeStore, Step, Tree, WORD};
use arbor_base::layout::get_u64;
use arbor_base::vfs::{Errno, Error, Result};

/// What is done to a node that gets or loses a record.
pub(super) enum Fix {
    /// Nothing but that.
    Alone,
    /// Its records are spread evenly over the `nodes` children of its parent from `first` on, and
    /// over a new one after them.
    Group { first: usize, nodes: usize, split: bool },
    /// The children `first` and `first + 1` of its parent become one.
    Merge { first: usize },
    /// It loses its last record and has no neighbour: it is freed.
    Vanish,
    /// The records of the root go to new children.
    Grow,
}

/// Adjacent children of a parent.
pub(super) struct Place<'a> {
    pub parent: &'a Step,
    pub first: usize,
    pub nodes: usize,
    /// The change is at the very end of the tree.
    pub append: bool,
}

/// The records of a node as they are in the store, to find out what must be written.
pub(super) struct Image {
    node: Node,
    level: u8,
    recs: Vec<u8>,
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

    pub(super) fn plan_insert(&mut self, path: &[Step], append: bool) -> Result<Vec<Fix>> {
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

    pub(super) fn plan_remove(&mut self, path: &[Step]) -> Result<Vec<Fix>> {
        let mut plan = Vec::with_capacity(path.len());
        for (depth, step) in path.iter().enumerate().rev() {
            let left = step.count - 1;
            let parent = depth.checked_sub(1).and_then(|up| path.get(up));
            if left == 0 && parent.is_some_and(|parent| parent.count == 1) {
                // A tree that yFS wrote never comes to this: nodes are at least half full.
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

    /// Allocates the blocks that the plan needs. After a failure those already allocated are freed.
    pub(super) fn alloc_for(&mut self, plan: &[Fix], path: &[Step]) -> Result<Vec<u64>> {
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
    pub(super) fn insert_record(&mut self, step: &Step, at: usize, record: &[u8]) -> Result<()> {
        let from = at * record.len();
        let mut bytes = record.to_vec();
        self.view(step.node, Some(step.level), |v| bytes.extend_from_slice(v.recs.get(from..).unwrap_or(&[])))?;
        self.store.write(step.node, HEAD + from, &bytes)?;
        self.store.write(step.node, 0, &count_bytes(step.count + 1))
    }

    pub(super) fn remove_record(&mut self, step: &Step, at: usize) -> Result<()> {
        let size = record_size::<V>(step.level);
        let tail = self.view(step.node, Some(step.level), |v| v.recs.get((at + 1) * size..).unwrap_or(&[]).to_vec())?;
        if !tail.is_empty() {
            self.store.write(step.node, HEAD + at * size, &tail)?;
        }
        self.store.write(step.node, 0, &count_bytes(step.count - 1))
    }

    /// Replaces the record that `leaf` leads to.
    pub(super) fn overwrite(&mut self, leaf: &Step, record: &[u8]) -> Result<()> {
        let from = leaf.at * record.len();
        let old = self.view(leaf.node, Some(0), |v| v.recs.get(from..from + record.len()).map(<[u8]>::to_vec))?;
        self.write_changes(leaf.node, HEAD + from, &old.unwrap_or_default(), record)
    }

    fn set_key(&mut self, node: Node, i: usize, key: u64) -> Result<()> {
        self.store.write(node, HEAD + i * INNER, &key.to_le_bytes())
    }

    /// Moves the separators beside a leaf so that the record at the end of `path` may have the key
    /// `new`; the caller knows that no other record is in the way.
    pub(super) fn move_bounds(&mut self, path: &[Step], old: u64, new: u64) -> Result<()> {
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
    pub(super) fn make_room(
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
    pub(super) fn borrow(&mut self, place: &Place<'_>, step: &Step, at: usize) -> Result<()> {
        let (images, mut recs) = self.gather(place)?;
        let size = record_size::<V>(step.level);
        let from = Self::position(place, &images, step, at);
        recs.drain(from..from + size);
        let sizes = even(recs.len() / size, images.len());
        self.spread(place, &images, &recs, &sizes)
    }

    /// Removes record `at` of a node, moves the records of two nodes to the left one and frees the
    /// other.
    pub(super) fn merge(&mut self, place: &Place<'_>, step: &Step, at: usize) -> Result<()> {
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
    pub(super) fn grow(&mut self, at: usize, record: &[u8], fresh: &[u64]) -> Result<()> {
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
    pub(super) fn collapse(&mut self) -> Result<()> {
        loop {
            let root = self.load(Node::Root, None)?;
            let (Some(below), INNER) = (root.level.checked_sub(1), root.recs.len()) else { return Ok(()) };
            let block = get_u64(&root.recs, WORD).unwrap_or(u64::MAX);
            let room = self.store.read(Node::Root, |body| capacity::<V>(body.len(), below))?;
            let child = match self.load(Node::Block(block), Some(below)) {
                // Who looks for what is in it meets the damage.
                Err(Error::Corrupt(_) | Error::Io(_)) => return Ok(()),
                child => child?,
            };
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

/// `total` in `parts` parts that differ by one at most, the larger first.
pub(super) fn even(total: usize, parts: usize) -> Vec<usize> {
    (0..parts).map(|i| total / parts + usize::from(i < total % parts)).collect()
}
