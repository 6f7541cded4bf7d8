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

/// Spreads items over `nodes` nodes; `None` if they do not fit. A node may get none.
pub fn pack(shape: Shape, items: &[Item], nodes: usize, fill: Fill) -> Option<Vec<Vec<Item>>> {
    match fill {
        Fill::Left => {
            let (mut out, mut rest) = (Vec::new(), items.to_vec());
            for _ in 0..nodes {
                let (node, more) = take_left(shape, &rest);
                out.push(node);
                rest = more;
            }
            rest.is_empty().then_some(out)
        }
        Fill::Right => {
            let (mut out, mut rest) = (Vec::new(), items.to_vec());
            for _ in 0..nodes {
                let (more, node) = take_right(shape, &rest);
                out.insert(0, node);
                rest = more;
            }
            rest.is_empty().then_some(out)
        }
        Fill::Outer => {
            let (left, rest) = take_left(shape, items);
            let (middle, right) = take_right(shape, &rest);
            (nodes == 3 && size(&middle) <= shape.room()).then(|| vec![left, middle, right])
        }
    }
}

/// What fits into a node from the left, and the rest.
fn take_left(shape: Shape, items: &[Item]) -> (Vec<Item>, Vec<Item>) {
    let (mut node, mut room) = (Vec::new(), shape.room());
    for (n, item) in items.iter().enumerate() {
        if Shape::cost(item) <= room {
            room -= Shape::cost(item);
            node.push(item.clone());
            continue;
        }
        let mut rest = items.get(n..).unwrap_or(&[]).to_vec();
        if let Some(ops) = ops(item.key, shape.node_size)
            && let most @ 1.. = ops.fitting(item, 0, room.saturating_sub(ITEM_HEAD))
        {
            node.push(item.part(ops, 0..most));
            rest.first_mut().into_iter().for_each(|first| *first = item.part(ops, most..ops.units(item)));
        }
        return (node, rest);
    }
    (node, Vec::new())
}

/// What fits into a node from the right, after the rest.
fn take_right(shape: Shape, items: &[Item]) -> (Vec<Item>, Vec<Item>) {
    let (mut node, mut room) = (Vec::new(), shape.room());
    for (n, item) in items.iter().enumerate().rev() {
        if Shape::cost(item) <= room {
            room -= Shape::cost(item);
            node.insert(0, item.clone());
            continue;
        }
        let mut rest = items.get(..=n).unwrap_or(&[]).to_vec();
        if let Some(ops) = ops(item.key, shape.node_size) {
            let units = ops.units(item);
            // The first unit from which on the others fit.
            let fits = |from: usize| item.body.len() - ops.start(item, from) <= room.saturating_sub(ITEM_HEAD);
            let (mut low, mut high) = (0, units);
            while low < high {
                let middle = (low + high) / 2;
                if fits(middle) { high = middle } else { low = middle + 1 }
            }
            if room > ITEM_HEAD && low < units {
                node.insert(0, item.part(ops, low..units));
                rest.last_mut().into_iter().for_each(|last| *last = item.part(ops, 0..low));
            }
        }
        return (rest, node);
    }
    (Vec::new(), node)
}
