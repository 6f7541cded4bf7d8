//! Changes of one formatted node that need no balancing: what a plan would find out with much more work, for nearly all
//! changes.
//!
//! A node that grows and still has room is left alone by a plan. One that shrinks is, unless it and its neighbours may fit
//! into fewer nodes, which their sizes tell. Whatever is in doubt is planned ([`plan_edit`](super::plan_edit)).

use super::pack::{fits, size};
use super::{Nodes, Step, beside, check_place, children, descend, leaf_and_end, leaf_of};
use crate::format::{ITEM_HEAD, Key};
use crate::item::{Item, ops};
use crate::node::{Block, Change, Content, Shape, joins};
use arbor_base::vfs::{Error, Result};
use std::sync::Arc;

/// A change of one formatted node, which stays where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alone {
    /// The node.
    pub leaf: Block,
    /// What changes in it.
    pub change: Change,
    /// Its first key, if that changes.
    pub first: Option<Key>,
    /// The way to it, if its first key changes.
    pub way: Vec<Step>,
}

impl Alone {
    /// The children whose key becomes `first`: their nodes with their levels, and their indices there (REISER-T2).
    pub fn keys(&self) -> impl Iterator<Item = (Block, u16, usize)> + '_ {
        told(2, if self.first.is_some() { &self.way } else { &[] })
    }
}

/// Of a way from the root down to a node whose first key changes, and whose parent is of this level: the children that have
/// that key.
fn told(level: u16, way: &[Step]) -> impl Iterator<Item = (Block, u16, usize)> + '_ {
    let mut goes_on = true;
    (level..).zip(way.iter().rev()).map_while(move |(level, step)| {
        let is_told = goes_on;
        goes_on = step.index == 0;
        is_told.then_some((step.block, level, step.index))
    })
}

/// A formatted node that loses all of its items. It leaves its parent, which keeps enough children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emptied {
    /// The node.
    pub leaf: Block,
    /// Its parent, and its index there.
    pub place: Step,
    /// The first key of the parent, if that changes.
    pub first: Option<Key>,
    /// The way to the parent.
    way: Vec<Step>,
}

impl Emptied {
    /// The children whose key becomes `first`: their nodes with their levels, and their indices there (REISER-T2).
    pub fn keys(&self) -> impl Iterator<Item = (Block, u16, usize)> + '_ {
        told(3, if self.first.is_some() { &self.way } else { &[] })
    }
}

/// How units are taken out of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// There are none.
    Nothing,
    /// All of them are in one node, which needs no balancing.
    Alone(Alone),
    /// They are all that one node has.
    Emptied(Emptied),
    /// By plans.
    Plan,
}

/// Puts an item in its place, like [`put`](super::put); gives it back if that has to be planned.
///
/// # Errors
/// Those of reading nodes.
pub fn put_alone<N: Nodes + ?Sized>(nodes: &mut N, piece: Item) -> Result<std::result::Result<Alone, Item>> {
    let shape = nodes.shape();
    let leaf = leaf_of(nodes, piece.key)?;
    let (content, used) = nodes.leaf(leaf)?;
    let items = content.items();
    // Before the first item it changes the node's first key.
    if items.first().is_none_or(|first| piece.key < first.key) {
        return Ok(Err(piece));
    }
    let room = shape.room().saturating_sub(used);
    let spot = |n: usize, key: Key| nodes.spot(leaf, n, key);
    Ok(put_change(shape, items, piece, room, spot).map(|change| Alone { leaf, change, first: None, way: Vec::new() }))
}

/// How items change by a piece that goes between two items or into one and takes at most `room` bytes; else it is given
/// back. `spot`: see [`Nodes::spot`].
pub fn put_change(
    shape: Shape,
    items: &[Item],
    piece: Item,
    room: usize,
    spot: impl FnOnce(usize, Key) -> usize,
) -> std::result::Result<Change, Item> {
    let Some(ops) = ops(piece.key, shape.node_size) else { return Err(piece) };
    let at = items.partition_point(|i| i.key <= piece.key);
    if items.get(at).is_some_and(|right| joins(shape, &piece, right)) {
        return Err(piece);
    }
    let left = at.checked_sub(1).and_then(|n| Some((n, items.get(n)?)));
    let Some((n, left)) = left.filter(|(_, left)| left.key.is_of_same(piece.key)) else {
        return if Shape::cost(&piece) <= room { Ok(Change::Insert(at, piece)) } else { Err(piece) };
    };
    let byte = ops.start_from(left, spot(n, piece.key), piece.key);
    match ops.follows(left, &piece) {
        true if left.tail == 0 && piece.tail == 0 && piece.body.len() <= room => Ok(Change::Grow(n, byte, piece.body)),
        false if byte == left.body.len() && Shape::cost(&piece) <= room => Ok(Change::Insert(at, piece)),
        _ => Err(piece),
    }
}

/// Takes the units whose keys are in a range out, like [`cut`](super::cut).
///
/// # Errors
/// Those of reading the node in which `from` lies.
pub fn cut_alone<N: Nodes + ?Sized>(nodes: &mut N, from: Key, to: Key) -> Result<Cut> {
    let (leaf, end) = leaf_and_end(nodes, from)?;
    nodes.read(leaf, 1)?;
    if end < to { Ok(Cut::Plan) } else { cut_leaf(nodes, leaf, from, to) }
}

/// The same for those in the node in which `from` lies.
///
/// # Errors
/// Those of reading this node.
pub fn cut_leaf<N: Nodes + ?Sized>(nodes: &mut N, leaf: Block, from: Key, to: Key) -> Result<Cut> {
    let shape = nodes.shape();
    let (content, used) = nodes.leaf(leaf)?;
    let items = content.items();
    let change = match taken(shape, items, (from, to), |n| nodes.spot(leaf, n, from)) {
        Taken::Nothing => return Ok(Cut::Nothing),
        Taken::Many => return Ok(Cut::Plan),
        Taken::All => return Ok(emptied(nodes, from)?.map_or(Cut::Plan, Cut::Emptied)),
        Taken::One(change) => change,
    };
    let first = match &change {
        Change::Remove(range) if range.start == 0 => items.get(range.end).map(|i| i.key),
        Change::Behead(0, _, key) => Some(*key),
        _ => None,
    };
    let is_put_off = nodes.put_off(leaf);
    let way = if is_put_off && first.is_none() { Vec::new() } else { descend(nodes, from)?.1 };
    if first.is_some() {
        check_place(nodes, &way, (leaf, 1), (content.first_key(), first))?;
    }
    if !is_put_off {
        match is_dense(nodes, shape, &way, (items, used, Some(&change))) {
            Ok(true) => {}
            Ok(false) => return Ok(Cut::Plan),
            // The plan does without a neighbour that is damaged.
            Err(Error::Corrupt(_) | Error::Io(_)) => return Ok(Cut::Plan),
            Err(e) => return Err(e),
        }
    }
    Ok(Cut::Alone(Alone { leaf, change, first, way: if first.is_some() { way } else { Vec::new() } }))
}

/// How the node in which a key lies leaves its parent; `None` if that has to be planned.
fn emptied<N: Nodes + ?Sized>(nodes: &mut N, key: Key) -> Result<Option<Emptied>> {
    let (leaf, mut way) = descend(nodes, key)?;
    let Some(place) = way.pop() else { return Ok(None) };
    let parent = children(nodes, place.block, 2)?;
    let Content::Internal(all) = &*parent else { return Ok(None) };
    let least = if way.is_empty() { 2 } else { nodes.shape().least_children() };
    // Whatever fits into fewer nodes without this one, the node beside it is one of them.
    let beside = all.get(place.index + 1).or(all.get(place.index.wrapping_sub(1)));
    let Some((_, beside)) = beside.filter(|_| all.len() > least) else { return Ok(None) };
    let first = all.get(1).filter(|_| place.index == 0).map(|child| child.0);
    Ok(nodes.put_off(*beside).then_some(Emptied { leaf, place, first, way }))
}

/// Whether a formatted node, in which a key lies, and two on each side of it fit into fewer nodes (REISER-T3).
///
/// # Errors
/// Those of reading nodes.
pub fn is_sparse<N: Nodes + ?Sized>(nodes: &mut N, key: Key) -> Result<bool> {
    let (leaf, way) = descend(nodes, key)?;
    let (content, used) = nodes.leaf(leaf)?;
    Ok(!is_dense(nodes, nodes.shape(), &way, (content.items(), used, None))?)
}

/// What a cut takes of a node.
enum Taken {
    Nothing,
    /// Some of the items, or a part of one: this is all that changes.
    One(Change),
    /// All items.
    All,
    Many,
}

fn taken(shape: Shape, items: &[Item], (from, to): (Key, Key), spot: impl Fn(usize) -> usize) -> Taken {
    let begin = items.partition_point(|i| i.key <= from).saturating_sub(1);
    let mut found = Taken::Nothing;
    for (n, item) in items.iter().enumerate().skip(begin).take_while(|(_, i)| i.key < to) {
        let Some(ops) = ops(item.key, shape.node_size) else { return Taken::Many };
        let begin = ops.start_from(item, spot(n), from);
        let end = ops.start_from(item, begin, to);
        if begin >= end {
            continue;
        }
        let is_whole = begin == 0 && end == item.body.len();
        let rest = || ops.key_of(item, ops.find(item, to));
        found = match found {
            Taken::Nothing if is_whole => Taken::One(Change::Remove(n..n + 1)),
            Taken::One(Change::Remove(range)) if is_whole && range.end == n => {
                Taken::One(Change::Remove(range.start..n + 1))
            }
            Taken::Nothing if begin == 0 => Taken::One(Change::Behead(n, end, rest())),
            Taken::Nothing if item.tail == 0 => {
                let rest = Item { key: rest(), tail: 0, body: Vec::new().into() };
                if end < item.body.len() && !ops.follows(item, &rest) {
                    return Taken::Many;
                }
                Taken::One(Change::Shrink(n, begin..end))
            }
            _ => return Taken::Many,
        };
    }
    if let Taken::One(Change::Remove(range)) = &found {
        let left = range.start.checked_sub(1).and_then(|n| items.get(n));
        if range.len() == items.len() {
            return Taken::All;
        }
        if left.zip(items.get(range.end)).is_some_and(|(left, right)| joins(shape, left, right)) {
            return Taken::Many;
        }
    }
    found
}

/// Whether a node at the end of a way whose items change like this, if they do, and two on each side of it, do not fit into
/// fewer nodes then (REISER-T3).
fn is_dense<N: Nodes + ?Sized>(
    nodes: &mut N,
    shape: Shape,
    way: &[Step],
    (items, used, change): (&[Item], usize, Option<&Change>),
) -> Result<bool> {
    let [left, right] = [two_beside(nodes, way, false)?, two_beside(nodes, way, true)?];
    let less = match change {
        Some(Change::Remove(range)) => items.get(range.clone()).map_or(0, size),
        Some(Change::Shrink(_, bytes)) => bytes.len(),
        Some(Change::Behead(_, bytes, _)) => *bytes,
        Some(Change::Insert(..) | Change::Grow(..)) | None => 0,
    };
    let changed = Beside { size: used.saturating_sub(less), block: None };
    let [left1, left2] = left;
    let [right1, right2] = right;
    let all: Vec<Beside> = [left2, left1, Some(changed), right1, right2].into_iter().flatten().collect();
    let may_fit = |nodes: &[Beside]| {
        // Joining two items saves a head.
        nodes.iter().map(|n| n.size).sum::<usize>() <= (nodes.len() - 1) * (shape.room() + ITEM_HEAD)
    };
    let mut after: Option<Vec<Item>> = None;
    for many in [2, 3] {
        for some in all.windows(many).filter(|some| may_fit(some)) {
            let after = after.get_or_insert_with(|| {
                let mut items = items.to_vec();
                change.cloned().into_iter().for_each(|change| change.apply(&mut items));
                items
            });
            let contents = some.iter().map(|n| n.block.map(|block| nodes.read(block, 1)).transpose());
            let contents: Vec<Option<Arc<Content>>> = contents.collect::<Result<_>>()?;
            let items = contents.iter().flat_map(|c| c.as_ref().map_or(after.as_slice(), |c| c.items()));
            if fits(shape, items, many - 1) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// A node beside the one that changes, or that one.
struct Beside {
    size: usize,
    block: Option<Block>,
}

/// The two nodes beside one.
fn two_beside<N: Nodes + ?Sized>(nodes: &mut N, way: &[Step], right: bool) -> Result<[Option<Beside>; 2]> {
    let mut two = [None, None];
    let Some(step) = way.last() else { return Ok(two) };
    let of = |nodes: &mut N, block| -> Result<Option<Beside>> {
        Ok(Some(Beside { size: nodes.used(block)?, block: Some(block) }))
    };
    let parent = children(nodes, step.block, 2)?;
    let Content::Internal(all) = &*parent else { return Ok(two) };
    let mut met = 0;
    for found in &mut two {
        let index = if right { Some(step.index + met + 1) } else { step.index.checked_sub(met + 1) };
        let Some((_, block)) = index.and_then(|n| all.get(n)) else { break };
        *found = of(nodes, *block)?;
        met += 1;
    }
    if met == two.len() {
        return Ok(two);
    }
    // On into the next parent.
    let index = if right { step.index + met } else { step.index - met };
    let mut way = way.to_vec();
    way.last_mut().into_iter().for_each(|last| last.index = index);
    for found in two.iter_mut().skip(met) {
        let Some((block, next)) = beside(nodes, &way, right)? else { break };
        *found = of(nodes, block)?;
        way = next;
    }
    Ok(two)
}
