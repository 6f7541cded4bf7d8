//! The plan of a change: what is done on each level, from the formatted nodes up to the root.
//!
//! Formatted nodes are spread by the priorities of the paper ("Node Balancing Optimizations"): the fewest nodes in the
//! tree, then the fewest nodes changed, then the fewest that have to be read, then as much shifted as goes. Internal nodes
//! share evenly with a neighbour.

use super::alone::put_change;
use super::level::{Level, Slot, Work};
use super::pack::{Fill, fits, flow, pack, size};
use super::{Nodes, Step, descend};
use crate::format::{ITEM_HEAD, Key};
use crate::item::{Item, ops};
use crate::node::{Block, Content, Shape};
use crate::planted::{Flaw, planted};
use arbor_base::vfs::Result;
use std::collections::BTreeMap;

/// Where a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On disk.
    Old(Block),
    /// Nowhere yet: the plan's new node of this number.
    New(usize),
}

/// A node that is written.
#[derive(Clone, Debug)]
struct Write {
    place: Place,
    level: u16,
    work: Work,
    /// The node to the left, for a new one.
    near: Option<Place>,
}

/// A change of the tree that was worked out.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    writes: Vec<Write>,
    freed: Vec<Block>,
    news: usize,
    moved: usize,
    root: Option<(Place, u16)>,
}

impl Place {
    /// Where on disk.
    pub fn old(self) -> Option<Block> {
        match self {
            Place::Old(block) => Some(block),
            Place::New(_) => None,
        }
    }
}

/// What carries out a plan.
pub trait Room {
    /// Gives a node new contents.
    fn write(&mut self, block: Block, level: u16, content: Content);

    /// Frees a node.
    fn free(&mut self, block: Block);

    /// Makes a node of this level the root.
    fn set_root(&mut self, block: Block, level: u16);
}

/// The blocks of the new nodes of a plan.
#[derive(Clone, Debug, Default)]
pub struct Taken(BTreeMap<usize, Block>);

impl Taken {
    fn block(&self, place: Place) -> Block {
        match place {
            Place::Old(block) => block,
            Place::New(n) => self.0.get(&n).copied().unwrap_or(0),
        }
    }

    /// All of them.
    pub fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        self.0.values().copied()
    }
}

impl Plan {
    /// Blocks that it takes.
    pub fn needs(&self) -> usize {
        self.writes.iter().filter(|w| w.place.old().is_none()).count()
    }

    /// Nodes that it moves.
    pub fn moved(&self) -> usize {
        self.moved
    }

    /// Nodes that it frees.
    pub fn freed(&self) -> &[Block] {
        &self.freed
    }

    /// Takes a block for each new node, near that of its left neighbour. What was taken before an error is in `taken`.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn allocate(&self, taken: &mut Taken, mut take: impl FnMut(Option<Block>) -> Result<Block>) -> Result<()> {
        for write in &self.writes {
            if let Place::New(n) = write.place {
                let block = take(write.near.map(|near| taken.block(near)))?;
                taken.0.insert(n, block);
            }
        }
        Ok(())
    }

    /// Carries it out. Cannot fail.
    pub fn carry_out(self, taken: &Taken, room: &mut impl Room) {
        for Write { place, level, work, .. } in self.writes {
            let content = match work {
                Work::Old(content) => Content::Leaf(content.items().to_vec()),
                Work::Leaf(items) => Content::Leaf(items),
                Work::Internal(all) => {
                    Content::Internal(all.into_iter().map(|(key, place)| (key, taken.block(place))).collect())
                }
            };
            room.write(taken.block(place), level, content);
        }
        self.freed.into_iter().for_each(|block| room.free(block));
        if let Some((place, level)) = self.root {
            room.set_root(taken.block(place), level);
        }
    }

    fn new_place(&mut self) -> Place {
        self.news += 1;
        Place::New(self.news - 1)
    }
}

/// Plans a change of the items of the formatted node in which `key` lies.
///
/// # Errors
/// Those of reading nodes. Nothing is changed.
pub fn plan_edit<N: Nodes + ?Sized>(nodes: &mut N, key: Key, edit: impl FnOnce(&mut Vec<Item>)) -> Result<Plan> {
    plan_growth(nodes, key, key, edit)
}

/// The same for an insertion, after which the node is expected to grow at the key `to`.
///
/// # Errors
/// Those of reading nodes. Nothing is changed.
pub fn plan_growth<N: Nodes + ?Sized>(
    nodes: &mut N,
    key: Key,
    to: Key,
    edit: impl FnOnce(&mut Vec<Item>),
) -> Result<Plan> {
    plan_from(nodes, key, to, |slot| {
        let mut items = slot.work().items().to_vec();
        edit(&mut items);
        slot.set(Work::Leaf(items));
    })
}

/// Plans that the formatted node in which `key` lies, and those beside it, become fewer if they fit (REISER-T3).
///
/// # Errors
/// Those of reading nodes. Nothing is changed.
pub fn plan_compress<N: Nodes + ?Sized>(nodes: &mut N, key: Key) -> Result<Plan> {
    plan_from(nodes, key, key, |slot| slot.is_sparse = true)
}

fn plan_from<N: Nodes + ?Sized>(nodes: &mut N, key: Key, to: Key, edit: impl FnOnce(&mut Slot)) -> Result<Plan> {
    let (shape, (_, height)) = (nodes.shape(), nodes.root());
    let (block, way) = descend(nodes, key)?;
    let mut plan = Plan::default();
    let mut level = Level::new(nodes, 1);
    let mut slot = level.slot(block, way)?;
    edit(&mut slot);
    level.slots.push(slot);
    balance_leaves(&mut level, shape, to, &mut plan)?;
    preserve(&mut level, &mut plan)?;
    while level.number < height {
        let parents = plan.record(&mut level);
        if parents.is_empty() {
            return Ok(plan);
        }
        level = Level::new(level.nodes, level.number + 1);
        for (way, (block, edits)) in parents {
            // A volume that breaks REISER-T4 may have nodes between them that do not change; what is merged has to be adjacent.
            while level.slots.last().is_some_and(|last| last.way < way) && level.more_right()? {}
            if level.slots.last().is_some_and(|last| last.way == way) {
                level.slots.pop();
            }
            let mut slot = level.slot(block, way)?;
            slot.set(Work::Internal(edited(slot.work().children(), edits)));
            level.slots.push(slot);
        }
        balance_internal(&mut level, shape, height, &mut plan)?;
    }
    plan.end(&mut level);
    Ok(plan)
}

/// What changes in a parent.
enum Edit {
    /// This child has another first key, or another place.
    Child(usize, Key, Place),
    Remove(usize),
    /// After this child.
    Insert(usize, Key, Place),
}

impl Edit {
    /// Of the children before. What is done with a child comes before what follows it.
    fn index(&self) -> (usize, bool) {
        match self {
            Edit::Child(at, ..) | Edit::Remove(at) => (*at, false),
            Edit::Insert(at, ..) => (*at, true),
        }
    }
}

/// The parents of a level by the ways to them, and what changes in each.
type Parents = BTreeMap<Vec<Step>, (Block, Vec<Edit>)>;

impl Plan {
    /// Writes down what is done on a level. Returns what that changes in the parents.
    fn record<N: Nodes + ?Sized>(&mut self, level: &mut Level<'_, N>) -> Parents {
        let mut parents = Parents::new();
        let mut tell = |slot: &Slot, edit: fn(usize, Key, Place) -> Edit, key: Key| {
            let Some((last, above)) = slot.way.split_last() else { return };
            let (_, edits) = parents.entry(above.to_vec()).or_insert_with(|| (last.block, Vec::new()));
            edits.push(edit(last.index, key, slot.place));
        };
        for slot in &level.removed {
            tell(slot, |index, _, _| Edit::Remove(index), Key::LEAST);
        }
        for slot in &level.slots {
            let key = slot.work().first_key().unwrap_or(Key::LEAST);
            match &slot.old {
                None => tell(slot, Edit::Insert, key),
                Some(_) if planted(Flaw::KeyNotTold) || planted(Flaw::MoveNotTold) && slot.left.is_some() => {}
                Some(old) if old.first_key() != Some(key) || slot.left.is_some() => tell(slot, Edit::Child, key),
                Some(_) => {}
            }
        }
        self.write_level(level);
        parents
    }

    fn write_level<N: Nodes + ?Sized>(&mut self, level: &mut Level<'_, N>) {
        self.freed.extend(level.removed.iter().filter_map(|s| s.place.old()));
        self.freed.extend(level.slots.iter().filter_map(|s| s.left));
        let (mut left, mut nears): (Option<&Slot>, Vec<Option<Place>>) = (None, Vec::new());
        for slot in &level.slots {
            let other = left.filter(|_| slot.is_changed());
            let other = other.and_then(|left| level.nodes.near(left.work().items(), slot.work().items()));
            nears.push(other.map(Place::Old).or(left.map(|s| s.place)).or(slot.near.map(Place::Old)));
            left = Some(slot);
        }
        for (slot, near) in level.slots.iter_mut().zip(nears) {
            if slot.is_changed() {
                let (place, work) = (slot.place, slot.take());
                self.writes.push(Write { place, level: level.number, work, near });
            }
        }
    }

    /// Ends the plan with the level of the root.
    fn end<N: Nodes + ?Sized>(&mut self, level: &mut Level<'_, N>) {
        match level.slots.as_slice() {
            // The root has one child left: that becomes the root.
            [root] if let [(_, only)] = root.work().children() => {
                self.freed.extend(root.place.old());
                self.root = Some((*only, level.number - 1));
            }
            [_] => self.write_level(level),
            several => {
                let all = several.iter().filter_map(|s| Some((s.work().first_key()?, s.place))).collect();
                self.write_level(level);
                let place = self.new_place();
                self.writes.push(Write { place, level: level.number + 1, work: Work::Internal(all), near: None });
                self.root = Some((place, level.number + 1));
            }
        }
    }
}

/// The children of a node after these edits, whose indices are those before.
fn edited(old: &[(Key, Place)], mut edits: Vec<Edit>) -> Vec<(Key, Place)> {
    edits.sort_by_key(Edit::index);
    let (mut new, mut kept) = (Vec::with_capacity(old.len() + edits.len()), 0);
    for edit in edits {
        let (upto, more) = match edit {
            Edit::Remove(at) | Edit::Child(at, ..) => (at, 1),
            Edit::Insert(at, ..) => (at + 1, 0),
        };
        new.extend_from_slice(old.get(kept..upto).unwrap_or(&[]));
        kept = kept.max(upto + more);
        if let Edit::Child(_, key, place) | Edit::Insert(_, key, place) = edit {
            new.push((key, place));
        }
    }
    new.extend_from_slice(old.get(kept..).unwrap_or(&[]));
    new
}

// Formatted nodes.

/// Ways to spread the items of a full node over its neighbours too: how many to the left and to the right take part.
const TWO: &[(usize, usize, Fill)] = &[(1, 0, Fill::Left), (0, 1, Fill::Right)];
const THREE: &[(usize, usize, Fill)] = &[(1, 1, Fill::Outer), (2, 0, Fill::Left), (0, 2, Fill::Right)];

/// What three nodes have to have left of one for a node not to be split: else the next insertion needs the next plan.
const WORTH: usize = 8;

/// Spreads the items of the only node of a level, which were changed and are expected to grow at a key, over as few nodes as
/// can be; if nodes are split early, over one more where that makes room for what comes next.
fn balance_leaves<N: Nodes + ?Sized>(level: &mut Level<'_, N>, shape: Shape, to: Key, plan: &mut Plan) -> Result<()> {
    let (to, worth) = if level.nodes.splits_early() { (Some(to), shape.room() / WORTH) } else { (None, 0) };
    if level.slots.first().is_some_and(|s| s.used > shape.room())
        && !shift(level, shape, TWO, to, 0)?
        && !shift(level, shape, THREE, to, worth)?
    {
        split(level, shape, to, plan)?;
    }
    compress(level, shape)
}

/// The node that is too full.
fn full<N: Nodes + ?Sized>(level: &Level<'_, N>, shape: Shape) -> usize {
    level.slots.iter().position(|s| s.used > shape.room()).unwrap_or(0)
}

/// Shifts items to neighbours, in the first of these ways that needs the fewest nodes which were not in memory; returns
/// whether one of them is enough and leaves so many bytes. Of two nodes the one with the key `to` gets what is left.
fn shift<N: Nodes + ?Sized>(
    level: &mut Level<'_, N>,
    shape: Shape,
    ways: &[(usize, usize, Fill)],
    to: Option<Key>,
    left_over: usize,
) -> Result<bool> {
    let mut best: Option<(usize, usize, Vec<Vec<Item>>)> = None;
    for (left, right, fill) in ways {
        while full(level, shape) < *left && level.more_left()? {}
        while level.slots.len() <= full(level, shape) + right && level.more_right()? {}
        let at = full(level, shape);
        let Some(from) = at.checked_sub(*left) else { continue };
        let Some(slots) = level.slots.get(from..=at + right) else { continue };
        // Joining two items saves a head.
        let most = slots.len() * (shape.room() + ITEM_HEAD) - ITEM_HEAD;
        if slots.iter().map(|s| s.used).sum::<usize>() + left_over > most {
            continue;
        }
        let uncached = slots.iter().filter(|s| !s.was_cached).count();
        let items = flow(shape, slots.iter().map(|s| s.work().items()));
        let packed = match to.filter(|_| slots.len() == 2) {
            Some(to) => roomy(shape, &items, to),
            None => pack(shape, items, slots.len(), *fill),
        };
        if let Some(packed) = packed
            && best.as_ref().is_none_or(|(least, ..)| uncached < *least)
        {
            best = Some((uncached, *left, packed));
        }
        // None needs fewer.
        if best.as_ref().is_some_and(|(least, ..)| *least == 0) {
            break;
        }
    }
    let Some((_, left, mut packed)) = best else { return Ok(false) };
    if planted(Flaw::ShiftedLost) {
        packed.first_mut().into_iter().for_each(|items| drop(items.pop()));
    }
    assign(level, full(level, shape) - left, packed);
    Ok(true)
}

/// Items in two nodes, of which the one with the key `to` has as much room as can be.
fn roomy(shape: Shape, items: &[Item], to: Key) -> Option<Vec<Vec<Item>>> {
    let both = [Fill::Left, Fill::Right].into_iter().filter_map(|fill| pack(shape, items.to_vec(), 2, fill));
    both.min_by_key(|nodes| {
        let is_before = |items: &&Vec<Item>| items.first().is_none_or(|first| first.key <= to);
        nodes.iter().rev().find(is_before).or(nodes.first()).map_or(0, |items| size(items))
    })
}

fn assign<N: Nodes + ?Sized>(level: &mut Level<'_, N>, from: usize, packed: Vec<Vec<Item>>) {
    for (slot, items) in level.slots.iter_mut().skip(from).zip(packed) {
        slot.spread(items);
    }
}

/// Moves the nodes out of which items were shifted, if the tree is one whose nodes move then: what was shifted is on disk
/// in their old place until it is in its new one (paper, "Buffering & the Preserve List").
fn preserve<N: Nodes + ?Sized>(level: &mut Level<'_, N>, plan: &mut Plan) -> Result<()> {
    for (n, block) in level.senders() {
        let near = level.left_of(n)?.unwrap_or(block);
        let place = plan.new_place();
        plan.moved += 1;
        if let Some(slot) = level.slots.get_mut(n) {
            (slot.place, slot.left, slot.near) = (place, Some(block), Some(near));
        }
    }
    Ok(())
}

/// Splits a node, before the key `to` if that is possible; into three if an item in its middle wants that.
fn split<N: Nodes + ?Sized>(level: &mut Level<'_, N>, shape: Shape, to: Option<Key>, plan: &mut Plan) -> Result<()> {
    let at = full(level, shape);
    let items = level.slots.get(at).map(|s| s.work().items().to_vec()).unwrap_or_default();
    let packed = to
        .and_then(|to| parted(shape, items.clone(), to))
        .or_else(|| (2..=4).find_map(|n| pack(shape, items.clone(), n, Fill::Left)))
        .ok_or(arbor_base::vfs::Errno::EFBIG)?;
    for n in 1..packed.len() {
        let place = plan.new_place();
        level.insert_after(at + n - 1, place, Work::Leaf(Vec::new()));
    }
    assign(level, at, packed);
    Ok(())
}

/// What lies before a key, and what does not, in a node each; `None` if one of them has nothing or too much.
fn parted(shape: Shape, mut items: Vec<Item>, to: Key) -> Option<Vec<Vec<Item>>> {
    let right = cut(shape, &mut items, to, Key::MOST);
    let fits = |items: &[Item]| !items.is_empty() && size(items) <= shape.room();
    (fits(&items) && fits(&right)).then(|| vec![items, right])
}

/// Takes nodes out of the tree as long as two fit into one, or three into two (REISER-T3).
fn compress<N: Nodes + ?Sized>(level: &mut Level<'_, N>, shape: Shape) -> Result<()> {
    let has_shrunk = |s: &Slot| s.old.is_none() || s.used < s.old_used || s.is_sparse;
    while !level.removed.is_empty() || level.slots.iter().any(has_shrunk) {
        let changed = |s: &Slot| s.is_changed() || s.is_sparse;
        // Two on each side of what has changed.
        while level.slots.iter().position(changed).is_some_and(|n| n < 2) && level.more_left()? {}
        while level.slots.iter().rev().position(changed).is_some_and(|n| n < 2) && level.more_right()? {}
        if let Some(empty) =
            level.slots.iter().position(|s| s.work().items().is_empty()).filter(|_| level.slots.len() > 1)
        {
            level.remove(empty);
            continue;
        }
        let nodes = level.slots.len();
        let all = (0..nodes).flat_map(|n| [(n, 2), (n, 3)]).filter(|(n, many)| n + many <= nodes);
        let Some((at, many, packed)) =
            all.into_iter().find_map(|(n, many)| Some((n, many, fewer(level, shape, n, many)?)))
        else {
            return Ok(());
        };
        // A new one rather than one that is on disk.
        let goes = (at..at + many).find(|n| level.slots.get(*n).is_some_and(|s| s.old.is_none())).unwrap_or(at + 1);
        level.remove(goes);
        assign(level, at, packed);
    }
    Ok(())
}

/// The items of `many` nodes from `n` on in one node less, if they fit.
fn fewer<N: Nodes + ?Sized>(level: &Level<'_, N>, shape: Shape, n: usize, many: usize) -> Option<Vec<Vec<Item>>> {
    let slots = level.slots.get(n..n + many)?;
    // Joining two items saves a head.
    let least = slots.iter().map(|s| s.used).sum::<usize>().saturating_sub((many - 1) * ITEM_HEAD);
    if least > (many - 1) * shape.room() {
        return None;
    }
    let items = || slots.iter().map(|s| s.work().items());
    if !fits(shape, items().flatten(), many - 1) {
        return None;
    }
    pack(shape, flow(shape, items()), many - 1, Fill::Left)
}

// Internal nodes.

/// Divides and merges internal nodes until each has enough children and none too many.
fn balance_internal<N: Nodes + ?Sized>(
    level: &mut Level<'_, N>,
    shape: Shape,
    height: u16,
    plan: &mut Plan,
) -> Result<()> {
    loop {
        let count = |s: &Slot| s.work().children().len();
        if let Some(n) = level.slots.iter().position(|s| count(s) > shape.fanout()) {
            grow(level, shape, n, plan)?;
            continue;
        }
        let is_root = level.number == height && level.slots.len() == 1;
        let small = level.slots.iter().position(|s| count(s) < shape.least_children()).filter(|_| !is_root);
        match small {
            Some(n) if merge(level, shape, n)? => {}
            _ => return Ok(()),
        }
    }
}

fn children_of<N: Nodes + ?Sized>(level: &Level<'_, N>, n: usize) -> Vec<(Key, Place)> {
    level.slots.get(n).map(|s| s.work().children().to_vec()).unwrap_or_default()
}

/// Shares the children of two nodes between them.
fn share<N: Nodes + ?Sized>(level: &mut Level<'_, N>, left: usize) {
    let mut all = children_of(level, left);
    all.extend(children_of(level, left + 1));
    let right = all.split_off(all.len() - all.len() / 2);
    for (slot, all) in level.slots.iter_mut().skip(left).zip([all, right]) {
        slot.set(Work::Internal(all));
    }
}

/// The node and its neighbours, with what is read for that; where the node is then.
fn with_neighbours<N: Nodes + ?Sized>(level: &mut Level<'_, N>, n: usize) -> Result<usize> {
    let n = if n == 0 && level.more_left()? { 1 } else { n };
    if n + 1 == level.slots.len() {
        level.more_right()?;
    }
    Ok(n)
}

/// Gives children of a node with too many to a neighbour, or to a new node.
fn grow<N: Nodes + ?Sized>(level: &mut Level<'_, N>, shape: Shape, n: usize, plan: &mut Plan) -> Result<()> {
    let n = with_neighbours(level, n)?;
    let both = |level: &Level<'_, N>, left: usize| children_of(level, left).len() + children_of(level, left + 1).len();
    if n > 0 && both(level, n - 1) <= 2 * shape.fanout() {
        share(level, n - 1);
    } else if n + 1 < level.slots.len() && both(level, n) <= 2 * shape.fanout() {
        share(level, n);
    } else {
        let place = plan.new_place();
        level.insert_after(n, place, Work::Internal(Vec::new()));
        share(level, n);
    }
    Ok(())
}

/// Merges a node with too few children with a neighbour, or takes some of the neighbour's; `false` if it has none.
fn merge<N: Nodes + ?Sized>(level: &mut Level<'_, N>, shape: Shape, n: usize) -> Result<bool> {
    let n = with_neighbours(level, n)?;
    let lefts = [n.checked_sub(1), (n + 1 < level.slots.len()).then_some(n)];
    let sum = |left: usize| children_of(level, left).len() + children_of(level, left + 1).len();
    let fits = lefts.into_iter().flatten().find(|left| sum(*left) <= shape.fanout());
    let Some(left) = fits.or(lefts.into_iter().flatten().next()) else { return Ok(false) };
    share(level, left);
    if fits.is_some() {
        let mut all = children_of(level, left);
        all.extend(children_of(level, left + 1));
        let is_new = level.slots.get(left).is_some_and(|s| s.old.is_none());
        level.remove(if is_new { left } else { left + 1 });
        level.slots.get_mut(left).into_iter().for_each(|s| s.set(Work::Internal(all.clone())));
    }
    Ok(true)
}

// What is done with the items of a node.

/// Puts an item in its place; it becomes part of the one that it belongs to. None of its units is there yet.
pub fn put(shape: Shape, items: &mut Vec<Item>, piece: Item) {
    let piece = match put_change(shape, items, piece, usize::MAX, |_, _| 0) {
        Ok(change) => return change.apply(items),
        Err(piece) => piece,
    };
    let mut at = items.partition_point(|i| i.key <= piece.key);
    if let Some(left) = at.checked_sub(1).and_then(|n| items.get(n)).filter(|i| i.key.is_of_same(piece.key))
        && let Some(ops) = ops(left.key, shape.node_size)
        && let unit = ops.find(left, piece.key)
        && unit < ops.units(left)
    {
        let (before, after) = (left.part(ops, 0..unit), left.part(ops, unit..ops.units(left)));
        items.splice(at - 1..at, [before, after]);
    }
    at = items.partition_point(|i| i.key <= piece.key);
    items.insert(at, piece);
    *items = flow(shape, [items.as_slice()]);
}

/// Takes the units whose keys are in a range out of a node; returns them.
pub fn cut(shape: Shape, items: &mut Vec<Item>, from: Key, to: Key) -> Vec<Item> {
    let (mut kept, mut taken) = (Vec::new(), Vec::new());
    for item in items.drain(..) {
        let Some(ops) = ops(item.key, shape.node_size) else {
            kept.push(item);
            continue;
        };
        let (a, b, units) = (ops.find(&item, from), ops.find(&item, to), ops.units(&item));
        for (range, out) in [(0..a, true), (a..b.max(a), false), (b.max(a)..units, true)] {
            if !range.is_empty() {
                if out { &mut kept } else { &mut taken }.push(item.part(ops, range));
            }
        }
    }
    *items = flow(shape, [kept.as_slice()]);
    taken
}
