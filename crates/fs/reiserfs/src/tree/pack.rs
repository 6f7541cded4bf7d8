//! How items are spread over formatted nodes, whose number is given (paper, "Node Balancing Optimizations").

use crate::format::ITEM_HEAD;
use crate::item::{Item, ops};
use crate::node::{Shape, joins};

/// Which nodes are filled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// The left ones: everything is shifted to the left as far as it goes.
    Left,
    /// The right ones.
    Right,
    /// The outer ones; what is left stays in the middle.
    Outer,
}

/// The items of several nodes, one after the other, with joined what belongs together.
pub fn flow<'a>(shape: Shape, nodes: impl IntoIterator<Item = &'a [Item]>) -> Vec<Item> {
    let mut all: Vec<Item> = Vec::new();
    for item in nodes.into_iter().flatten() {
        match all.last_mut() {
            Some(last) if joins(shape, last, item) => last.join(item),
            _ => all.push(item.clone()),
        }
    }
    all
}

/// Bytes that items take in a node.
pub fn size(items: &[Item]) -> usize {
    items.iter().map(Shape::cost).sum()
}

/// Whether items fit into `nodes` nodes if everything is shifted to the left, as [`pack`] would find out.
pub fn fits<'a>(shape: Shape, items: impl IntoIterator<Item = &'a Item>, nodes: usize) -> bool {
    let (mut room, mut nodes_left, mut last) = (0, nodes, None::<&Item>);
    for item in items {
        let Some(ops) = ops(item.key, shape.node_size) else { return true };
        // What goes on with the item before it needs no head of its own in the same node.
        let mut needs_head = !last.is_some_and(|last| joins(shape, last, item));
        last = Some(item);
        let mut from = 0;
        loop {
            let head = if needs_head { ITEM_HEAD } else { 0 };
            let rest = item.body.len() - ops.start(item, from);
            if head + rest <= room {
                room -= head + rest;
                break;
            }
            from += ops.fitting(item, from, room.saturating_sub(head));
            if nodes_left == 0 {
                return false;
            }
            (room, nodes_left, needs_head) = (shape.room(), nodes_left - 1, true);
        }
    }
    true
}

/// Spreads items over `nodes` nodes; `None` if they do not fit. A node may get none.
pub fn pack(shape: Shape, items: Vec<Item>, nodes: usize, fill: Fill) -> Option<Vec<Vec<Item>>> {
    match fill {
        Fill::Left => {
            let (mut out, mut rest) = (Vec::new(), items);
            for _ in 0..nodes {
                let (node, more) = take_left(shape, rest);
                out.push(node);
                rest = more;
            }
            rest.is_empty().then_some(out)
        }
        Fill::Right => {
            let (mut out, mut rest) = (Vec::new(), items);
            for _ in 0..nodes {
                let (more, node) = take_right(shape, rest);
                out.insert(0, node);
                rest = more;
            }
            rest.is_empty().then_some(out)
        }
        Fill::Outer => {
            let (left, rest) = take_left(shape, items);
            let (middle, right) = take_right(shape, rest);
            (nodes == 3 && size(&middle) <= shape.room()).then(|| vec![left, middle, right])
        }
    }
}

/// What fits into a node from the left, and the rest.
fn take_left(shape: Shape, items: Vec<Item>) -> (Vec<Item>, Vec<Item>) {
    divide(shape, items, shape.room())
}

/// What fits into so many bytes from the left, and the rest.
pub fn divide(shape: Shape, mut items: Vec<Item>, mut room: usize) -> (Vec<Item>, Vec<Item>) {
    let fits = |item: &Item| {
        let left = room.checked_sub(Shape::cost(item));
        room = left.unwrap_or(room);
        left.is_none()
    };
    let Some(n) = items.iter().position(fits) else { return (items, Vec::new()) };
    let mut rest = items.split_off(n);
    if let Some(first) = rest.first_mut()
        && let Some(ops) = ops(first.key, shape.node_size)
        && let most @ 1.. = ops.fitting(first, 0, room.saturating_sub(ITEM_HEAD))
    {
        items.push(first.part(ops, 0..most));
        *first = first.part(ops, most..ops.units(first));
    }
    (items, rest)
}

/// What fits into a node from the right, after the rest.
fn take_right(shape: Shape, mut items: Vec<Item>) -> (Vec<Item>, Vec<Item>) {
    let mut room = shape.room();
    let fits = |item: &Item| {
        let left = room.checked_sub(Shape::cost(item));
        room = left.unwrap_or(room);
        left.is_none()
    };
    let Some(n) = items.iter().rposition(fits) else { return (Vec::new(), items) };
    let mut node = items.split_off(n + 1);
    if let Some(last) = items.last_mut()
        && let Some(ops) = ops(last.key, shape.node_size)
    {
        let units = ops.units(last);
        // The first unit from which on the others fit.
        let low = ops.unit_from(last, last.body.len().saturating_sub(room.saturating_sub(ITEM_HEAD)));
        if room > ITEM_HEAD && low < units {
            node.insert(0, last.part(ops, low..units));
            *last = last.part(ops, 0..low);
        }
    }
    (items, node)
}
