//! The tree by itself: texts, every sequence of small steps, and random ones, each step held against a plain map and
//! against the invariants.

use super::*;
use crate::format::{EntryHead, Kind, LEAST_NAME};
use crate::item::entries;
use arbor_base::vfs::Error;
use arbor_torture::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::IntoBytes;

/// The bytes of a node as they are written.
fn sealed(content: &Content, shape: Shape, block: Block, level: u16) -> Vec<u8> {
    let mut bytes = content.encode(shape, block, level, 1);
    crate::format::seal(&mut bytes);
    bytes
}

/// A tree in memory. Every node goes through its bytes.
#[derive(Clone)]
struct Tree {
    shape: Shape,
    nodes: BTreeMap<Block, Vec<u8>>,
    root: (Block, u16),
    next: Block,
    /// All of them if it is `None`.
    in_memory: Option<BTreeSet<Block>>,
    touched: BTreeSet<Block>,
    reads: usize,
    /// Of a tree whose nodes move: those that are not on disk.
    fresh: Option<BTreeSet<Block>>,
    /// Nodes are split early.
    early: bool,
    /// Of a tree that puts off what its nodes' sizes want: the nodes to be looked at.
    sparse: Option<BTreeSet<Block>>,
}

impl Tree {
    fn new(node_size: usize) -> Tree {
        let shape = Shape { node_size, fsid: 7 };
        let nodes = BTreeMap::from([(1, sealed(&Content::Leaf(Vec::new()), shape, 1, 1))]);
        let (in_memory, touched) = (None, BTreeSet::new());
        Tree {
            shape,
            nodes,
            root: (1, 1),
            next: 2,
            in_memory,
            touched,
            reads: 0,
            fresh: None,
            early: false,
            sparse: None,
        }
    }

    /// A tree of these formatted nodes, the first of which is block 1, and a root.
    fn of<const N: usize, const M: usize>(node_size: usize, leaves: [[Item; M]; N]) -> Tree {
        let mut tree = Tree::new(node_size);
        let all = (1..).zip(&leaves).map(|(block, items)| (items[0].key, block)).collect();
        for (block, items) in (1..).zip(leaves) {
            tree.nodes.insert(block, sealed(&Content::Leaf(items.into()), tree.shape, block, 1));
            tree.next = block + 1;
        }
        tree.nodes.insert(tree.next, sealed(&Content::Internal(all), tree.shape, tree.next, 2));
        (tree.root, tree.next) = ((tree.next, 2), tree.next + 1);
        tree.check();
        tree
    }

    fn content(&self, block: Block, level: u16) -> Content {
        Content::decode(self.shape, block, level, &self.nodes[&block].clone().into()).unwrap_or_else(|c| panic!("{c}"))
    }

    fn carry_out(&mut self, plan: Plan) {
        let (needs, before) = (plan.needs(), self.next);
        self.touched.clear();
        let mut taken = Taken::default();
        plan.allocate(&mut taken, |near| {
            assert!(near.is_none_or(|near| self.nodes.contains_key(&near) || near < self.next));
            self.next += 1;
            Ok(self.next - 1)
        })
        .unwrap();
        assert_eq!((self.next - before) as usize, needs, "blocks that were announced are taken");
        let (old, moved) = (self.nodes.clone(), plan.moved());
        plan.carry_out(&taken, self);
        assert!(moved == 0 || self.fresh.is_some());
        if let Some(mut fresh) = self.fresh.take() {
            self.check_places(&old, &fresh);
            fresh.extend(taken.blocks());
            self.fresh = Some(fresh);
        }
    }

    /// REISER-C6: what a node on disk held, and another one holds now, was not written over.
    fn check_places(&self, old: &BTreeMap<Block, Vec<u8>>, fresh: &BTreeSet<Block>) {
        let leaf = |bytes: &Vec<u8>, block| match Content::decode(self.shape, block, 1, &bytes.clone().into()) {
            Ok(Content::Leaf(items)) => units(self.shape, &[items]),
            _ => BTreeMap::new(),
        };
        for (block, bytes) in old.iter().filter(|(block, _)| self.touched.contains(block) && !fresh.contains(block)) {
            let held = leaf(bytes, *block);
            for other in self.touched.iter().filter(|other| *other != block) {
                let holds = leaf(&self.nodes[other], *other);
                assert!(held.keys().all(|key| !holds.contains_key(key)), "{other} holds what {block} held");
            }
        }
    }

    /// The nodes that a change of one node alone writes, as it makes them.
    fn changed(&self, alone: Alone) -> BTreeMap<Block, Vec<u8>> {
        let mut nodes = BTreeMap::new();
        for (block, _, index) in alone.keys() {
            let mut bytes = self.nodes[&block].clone();
            assert!(crate::node::put_child_key(&mut bytes, index, alone.first.unwrap(), 1));
            nodes.insert(block, bytes);
        }
        let mut bytes = self.nodes[&alone.leaf].clone();
        assert!(alone.change.apply_to_bytes(&mut bytes, 1));
        nodes.insert(alone.leaf, bytes);
        nodes.values_mut().for_each(|bytes| crate::format::seal(bytes));
        nodes
    }

    /// What needs no plan is as a plan makes it.
    fn assert_written(&self, nodes: &BTreeMap<Block, Vec<u8>>) {
        assert_eq!(self.touched, nodes.keys().copied().collect());
        nodes.iter().for_each(|(block, bytes)| assert!(self.nodes[block] == *bytes, "node {block}"));
    }

    fn put(&mut self, piece: Item) {
        let (shape, key) = (self.shape, piece.key);
        let alone = put_alone(self, piece.clone()).unwrap().ok().map(|alone| self.changed(alone));
        let to = ops(key, shape.node_size).map_or(key, |ops| ops.key_of(&piece, ops.units(&piece) - 1)).next();
        let plan = plan_growth(self, key, to, |items| put(shape, items, piece)).unwrap();
        self.carry_out(plan);
        alone.iter().for_each(|nodes| self.assert_written(nodes));
    }

    /// Takes all units with keys in a range out of a tree that puts off the rest.
    fn cut_now(&mut self, from: Key, to: Key) {
        let mut at = from;
        loop {
            let (leaf, end) = leaf_and_end(self, at).unwrap();
            match cut_leaf(self, leaf, at, to).unwrap() {
                Cut::Nothing => {}
                Cut::Alone(alone) => self.nodes.extend(self.changed(alone)),
                Cut::Emptied(emptied) => self.take_out(&emptied),
                Cut::Plan => {
                    let shape = self.shape;
                    let plan = plan_edit(self, at, |items| drop(cut(shape, items, at, to))).unwrap();
                    self.carry_out(plan);
                    continue;
                }
            }
            if end >= to {
                return;
            }
            at = end;
        }
    }

    fn take_out(&mut self, emptied: &Emptied) {
        let Step { block, index } = emptied.place;
        let mut parent = self.content(block, 2);
        if let Content::Internal(all) = &mut parent {
            assert_eq!(all.remove(index).1, emptied.leaf);
        }
        let mut bytes = self.nodes[&block].clone();
        assert!(crate::node::remove_child(&mut bytes, index, 1));
        crate::format::seal(&mut bytes);
        assert_eq!(bytes, sealed(&parent, self.shape, block, 2));
        self.nodes.insert(block, bytes);
        for (block, _, index) in emptied.keys() {
            let bytes = self.nodes.get_mut(&block).unwrap();
            assert!(crate::node::put_child_key(bytes, index, emptied.first.unwrap(), 1));
            crate::format::seal(bytes);
        }
        self.touched.clear();
        Room::free(self, emptied.leaf);
    }

    /// Makes good what was put off.
    fn compress(&mut self) {
        while let Some(leaf) = self.sparse.as_mut().and_then(BTreeSet::pop_first) {
            let Some(key) = self.content(leaf, 1).first_key() else { continue };
            if is_sparse(self, key).unwrap() {
                let plan = plan_compress(self, key).unwrap();
                self.carry_out(plan);
            }
        }
    }

    /// Takes all units with keys in a range out, one node after the other; returns how many nodes that took.
    fn cut(&mut self, from: Key, to: Key) -> usize {
        let cut = cut_alone(self, from, to).unwrap();
        let is_nothing = cut == Cut::Nothing;
        let alone = if let Cut::Alone(alone) = cut { Some(self.changed(alone)) } else { None };
        let steps = self.cut_by_plans(from, to);
        alone.iter().for_each(|nodes| self.assert_written(nodes));
        assert!(steps == 0 || !is_nothing);
        assert!(alone.is_none() || steps == 1);
        steps
    }

    fn cut_by_plans(&mut self, from: Key, to: Key) -> usize {
        for steps in 0.. {
            let (shape, mut taken) = (self.shape, Vec::new());
            let plan = plan_edit(self, from, |items| taken = cut(shape, items, from, to)).unwrap();
            if !taken.is_empty() {
                self.carry_out(plan);
                continue;
            }
            // Perhaps the range begins in the next node.
            let (_, way) = descend(self, from).unwrap();
            let Some((next, _)) = beside(self, &way, true).unwrap() else { return steps };
            let first = self.content(next, 1).first_key().unwrap();
            if first >= to {
                return steps;
            }
            let plan = plan_edit(self, first, |items| taken = cut(shape, items, from, to)).unwrap();
            assert!(!taken.is_empty());
            self.carry_out(plan);
        }
        0
    }

    fn walk(&self, block: Block, level: u16, leaves: &mut Vec<Vec<Item>>, seen: &mut BTreeSet<Block>) -> Option<Key> {
        assert!(seen.insert(block), "block {block} is in the tree once");
        let content = self.content(block, level);
        let first = content.first_key();
        match content {
            Content::Leaf(items) => {
                assert!(pack::size(&items) <= self.shape.room());
                assert!(!items.is_empty() || self.root.1 == 1, "an empty node");
                leaves.push(items);
            }
            Content::Internal(all) => {
                let least = if block == self.root.0 { 2 } else { self.shape.least_children() };
                assert!((least..=self.shape.fanout()).contains(&all.len()), "REISER-T4: {} children", all.len());
                for (key, child) in all {
                    assert_eq!(self.walk(child, level - 1, leaves, seen), Some(key), "REISER-T2");
                }
            }
        }
        first
    }

    /// The invariants; returns the leaves.
    fn check(&self) -> Vec<Vec<Item>> {
        let leaves = self.check_all_but_sizes();
        for many in [2, 3] {
            for nodes in leaves.windows(many) {
                let items = pack::flow(self.shape, nodes.iter().map(Vec::as_slice));
                let fewer = pack::pack(self.shape, items, many - 1, pack::Fill::Left);
                assert!(fewer.is_none(), "REISER-T3: {many} nodes fit into {}: {nodes:?}", many - 1);
            }
        }
        leaves
    }

    fn check_all_but_sizes(&self) -> Vec<Vec<Item>> {
        let (mut leaves, mut seen) = (Vec::new(), BTreeSet::new());
        self.walk(self.root.0, self.root.1, &mut leaves, &mut seen);
        assert_eq!(seen.len(), self.nodes.len(), "no node is left over");
        let keys: Vec<Key> = leaves.iter().flatten().map(|i| i.key).collect();
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
        leaves
    }
}

impl Nodes for Tree {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn root(&self) -> (Block, u16) {
        self.root
    }

    fn read(&mut self, block: Block, level: u16) -> Result<Arc<Content>> {
        self.reads += 1;
        Ok(Arc::new(self.content(block, level)))
    }

    fn is_cached(&self, block: Block) -> bool {
        self.in_memory.as_ref().is_none_or(|all| all.contains(&block))
    }

    fn moves(&self, block: Block) -> bool {
        self.fresh.as_ref().is_some_and(|fresh| !fresh.contains(&block))
    }

    fn splits_early(&self) -> bool {
        self.early
    }

    fn put_off(&mut self, leaf: Block) -> bool {
        self.sparse.as_mut().map(|sparse| sparse.insert(leaf)).is_some()
    }
}

impl Room for Tree {
    fn write(&mut self, block: Block, level: u16, content: Content) {
        self.touched.insert(block);
        self.nodes.insert(block, sealed(&content, self.shape, block, level));
    }

    fn free(&mut self, block: Block) {
        assert!(self.nodes.remove(&block).is_some() && !self.touched.contains(&block));
        if let Some(sparse) = &mut self.sparse {
            sparse.remove(&block);
        }
    }

    fn set_root(&mut self, block: Block, level: u16) {
        self.root = (block, level);
    }
}

fn stat(object: u32, len: usize) -> Item {
    Item { key: Key::new(1, object, 0, Kind::StatData), tail: 0, body: vec![object as u8; len].into() }
}

fn direct(object: u32, from: u64, len: usize) -> Item {
    let body: Vec<u8> = (from..from + len as u64).map(|n| n as u8 ^ object as u8).collect();
    Item { key: Key::new(1, object, from, Kind::Direct), tail: 0, body: body.into() }
}

fn pointers(object: u32, from: u64, blocks: &[u32]) -> Item {
    let body: Vec<u8> = blocks.iter().flat_map(|b| b.to_le_bytes()).collect();
    Item { key: Key::new(1, object, from, Kind::Indirect), tail: 0, body: body.into() }
}

fn name(dir: u32, hash: u64, name: &str) -> Item {
    assert!(hash >= LEAST_NAME);
    let head = EntryHead { offset: hash.into(), locality: 1.into(), object: 9.into(), kind: 8, len: name.len() as u8 };
    let body = [head.as_bytes(), name.as_bytes()].concat();
    Item { key: Key::new(1, dir, hash, Kind::Directory), tail: 0, body: body.into() }
}

/// All units of the leaves by their keys.
fn units(shape: Shape, leaves: &[Vec<Item>]) -> BTreeMap<Key, Vec<u8>> {
    let mut all = BTreeMap::new();
    for item in leaves.iter().flatten() {
        let ops = ops(item.key, shape.node_size).unwrap();
        for n in 0..ops.units(item) {
            assert!(all.insert(ops.key_of(item, n), item.part(ops, n..n + 1).body.to_vec()).is_none());
        }
    }
    all
}

fn draw(leaves: &[Vec<Item>], node_size: usize) -> String {
    let item = |i: &Item| {
        let ops = ops(i.key, node_size).unwrap();
        format!("{} {}+{} {}", i.key.object(), i.key.offset(), i.body.len(), ops.name())
    };
    leaves.iter().map(|items| items.iter().map(item).collect::<Vec<_>>().join(", ") + "\n").collect()
}

#[test]
fn what_is_shifted_goes_as_far_as_it_can() {
    // Room for 128 bytes in a node.
    let mut tree = Tree::new(160);
    for (object, len) in [(1, 60), (3, 20), (5, 60), (7, 20)] {
        tree.put(stat(object, len));
    }
    assert_eq!(draw(&tree.check(), 160), "1 0+60 stat data, 3 0+20 stat data\n5 0+60 stat data, 7 0+20 stat data\n");
    // Neither neighbour has room for it, and both with it fill three nodes.
    tree.put(stat(4, 60));
    let drawn = draw(&tree.check(), 160);
    assert_eq!(drawn, "1 0+60 stat data, 3 0+20 stat data\n4 0+60 stat data\n5 0+60 stat data, 7 0+20 stat data\n");
}

/// The number of nodes comes first: what one neighbour has no room for goes to both, or to the one after it.
#[test]
fn no_node_is_added_while_two_neighbours_have_room() {
    let mut both = Tree::of(160, [[direct(1, 1, 70)], [direct(2, 1, 104)], [direct(3, 1, 70)]]);
    both.put(direct(2, 105, 12));
    assert_eq!(
        draw(&both.check(), 160),
        "1 1+70 direct, 2 1+10 direct\n2 11+96 direct\n2 107+10 direct, 3 1+70 direct\n"
    );
    let mut left = Tree::of(160, [[direct(1, 1, 30)], [direct(2, 1, 104)], [direct(3, 1, 104)]]);
    left.put(direct(3, 105, 10));
    assert_eq!(
        draw(&left.check(), 160),
        "1 1+30 direct, 2 1+50 direct\n2 51+54 direct, 3 1+26 direct\n3 27+88 direct\n"
    );
    let mut right = Tree::of(160, [[direct(1, 1, 104)], [direct(2, 1, 104)], [direct(3, 1, 30)]]);
    right.put(direct(1, 105, 10));
    assert_eq!(
        draw(&right.check(), 160),
        "1 1+88 direct\n1 89+26 direct, 2 1+54 direct\n2 55+50 direct, 3 1+30 direct\n"
    );
}

/// A key that its parents do not expect would bring them out of order, once it is told to them.
#[test]
fn a_node_that_does_not_lie_where_its_parents_say_is_not_changed() {
    let is_damage = |e: Error| matches!(e, Error::Corrupt(_));
    for misplaced in [[direct(3, 1, 40), direct(5, 1, 40)], [direct(5, 1, 40), direct(9, 500, 40)]] {
        let mut tree = Tree::of(160, [[direct(1, 1, 104)], [direct(5, 1, 104)], [direct(9, 1, 104)]]);
        tree.nodes.insert(2, sealed(&Content::Leaf(misplaced.to_vec()), tree.shape, 2, 1));
        let (before, key) = (tree.nodes.clone(), direct(5, 1, 1).key);
        assert!(plan_edit(&mut tree, key, Vec::clear).is_err_and(is_damage));
        if misplaced[0].key == key {
            assert!(cut_alone(&mut tree, key, direct(6, 1, 1).key).is_err_and(is_damage));
        }
        // Nor does it take in what its neighbours might shift to it.
        let plan = plan_edit(&mut tree, direct(9, 1, 1).key, |items| items[0] = direct(9, 1, 20)).unwrap();
        tree.carry_out(plan);
        assert!(tree.nodes[&2] == before[&2] && tree.nodes[&3] != before[&3]);
    }
}

/// Of two neighbours that have room, the one that is in memory takes what is shifted.
#[test]
fn what_is_in_memory_is_changed_rather() {
    for cached in [1, 3] {
        let mut tree = Tree::of(160, [[direct(1, 1, 50)], [direct(2, 1, 104)], [direct(3, 1, 50)]]);
        tree.in_memory = Some([2, cached].into());
        tree.put(direct(2, 105, 4));
        tree.check();
        assert!(
            tree.touched.contains(&cached) && !tree.touched.contains(&(4 - cached)),
            "{cached}: {:?}",
            tree.touched
        );
    }
}

#[test]
fn a_tail_is_split_over_two_nodes_and_becomes_one_again() {
    let mut tree = Tree::new(160);
    tree.put(stat(1, 40));
    tree.put(stat(2, 40));
    tree.put(direct(2, 1, 60));
    let leaves = tree.check();
    assert_eq!(draw(&leaves, 160), "1 0+40 stat data, 2 0+40 stat data\n2 1+60 direct\n");
    tree.put(stat(3, 30));
    tree.put(direct(2, 61, 10));
    let leaves = tree.check();
    let parts = leaves.iter().flatten().filter(|i| i.key.kind() == Some(Kind::Direct)).count();
    assert!(parts <= 2, "{}", draw(&leaves, 160));
    tree.cut(stat(1, 0).key, direct(2, 1, 0).key);
    assert_eq!(draw(&tree.check(), 160), "2 1+70 direct\n3 0+30 stat data\n");
}

#[test]
fn entries_are_one_item_of_each_node() {
    let mut tree = Tree::new(256);
    let hashes: Vec<u64> = (0..40).map(|n| (1 + n * 17 % 41) << 8).collect();
    hashes.iter().for_each(|h| tree.put(name(5, *h, &format!("name{h}"))));
    let leaves = tree.check();
    assert!(leaves.iter().all(|items| items.len() == 1), "{}", draw(&leaves, 256));
    let found: Vec<u64> = leaves
        .iter()
        .flatten()
        .flat_map(|i| entries(&i.body).map(|(_, head, _)| head.offset.get()).collect::<Vec<_>>())
        .collect();
    assert!(found.len() == 40 && found.is_sorted());
    let unit = find(&mut tree, Key::new(1, 5, 7 << 8, Kind::Directory)).unwrap().unwrap();
    assert_eq!(entries(&unit.item().unwrap().body).nth(unit.unit).unwrap().2, b"name1792");
    assert!(find(&mut tree, Key::new(1, 5, 7, Kind::Directory)).unwrap().is_none());
    hashes.iter().for_each(|h| {
        assert_eq!(tree.cut(Key::new(1, 5, *h, Kind::Directory), Key::new(1, 5, h + 1, Kind::Directory)), 1)
    });
    assert_eq!((tree.check().concat().len(), tree.nodes.len(), tree.root.1), (0, 1, 1));
}

#[test]
fn a_file_that_grows_in_order_fills_its_nodes() {
    let mut tree = Tree::new(1024);
    (0..2000u32).for_each(|n| tree.put(pointers(3, 1 + u64::from(n) * 1024, &[n + 1])));
    let leaves = tree.check();
    // Heads take 32 and 24 bytes.
    assert_eq!(leaves.len(), 2000usize.div_ceil((1024 - 32 - 24) / 4));
    let cut = tree.cut(Key::new(1, 3, 0, Kind::Indirect), Key::new(1, 3, u64::MAX, Kind::Indirect));
    assert!(cut <= leaves.len() + 1, "{cut} steps for {} nodes", leaves.len());
    assert_eq!(tree.check(), [vec![]]);
}

/// A node that loses all it holds has its neighbours looked at, and no others.
#[test]
fn emptying_a_node_reads_no_other() {
    let mut tree = Tree::new(1024);
    (0..100_000u32).for_each(|n| tree.put(pointers(3, 1 + u64::from(n) * 1024, &[n + 1])));
    let leaves = tree.check();
    assert!(leaves.len() > 300);
    let shape = tree.shape;
    let first = leaves[200][0].key;
    tree.reads = 0;
    let plan = plan_edit(&mut tree, first, Vec::clear).unwrap();
    assert!(tree.reads < 60, "{} reads", tree.reads);
    tree.carry_out(plan);
    assert_eq!((shape.node_size, tree.check().len()), (1024, leaves.len() - 1));
}

/// Every sequence of so many steps, each of which puts or takes one of a few items.
#[test]
fn every_short_sequence() {
    fn go(tree: &Tree, model: &BTreeMap<Key, Vec<u8>>, all: &[Item], left: u32, seen: &mut u64) {
        *seen += 1;
        assert_eq!(&units(tree.shape, &tree.check()), model);
        if left == 0 {
            return;
        }
        for item in all {
            let (mut tree, mut model) = (tree.clone(), model.clone());
            if model.contains_key(&item.key) {
                let ops = ops(item.key, tree.shape.node_size).unwrap();
                let last = ops.key_of(item, ops.units(item) - 1);
                let end = last.at(last.offset() + 1);
                tree.cut(item.key, end);
                model.retain(|key, _| !(item.key..end).contains(key));
            } else {
                tree.put(item.clone());
                model.extend(units(tree.shape, &[vec![item.clone()]]));
            }
            go(&tree, &model, all, left - 1, seen);
        }
    }
    let sets: [Vec<Item>; 3] = [
        // Nodes for 128 bytes: whole items that fill a third, a half, nearly all.
        [(1, 20), (2, 40), (3, 100), (4, 20), (5, 60)].map(|(object, len)| stat(object, len)).into(),
        vec![stat(1, 30), direct(1, 1, 90), stat(2, 30), direct(2, 1, 50), stat(3, 80)],
        vec![
            name(1, 301, "a"),
            name(1, 302, "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"),
            name(1, 303, "c"),
            stat(2, 70),
            name(1, 304, "ddddddddddddddddd"),
        ],
    ];
    for (fresh, early) in [(None, false), (Some(BTreeSet::new()), false), (Some(BTreeSet::new()), true)] {
        let mut seen = 0;
        let tree = Tree { fresh, early, ..Tree::new(160) };
        sets.iter().for_each(|set| go(&tree, &BTreeMap::new(), set, 6, &mut seen));
        assert_eq!(seen, 3 * (5u64.pow(7) - 1) / 4);
    }
}

fn random_item(random: &mut Rng, room: usize) -> Item {
    // Kinds of one object do not lie among each other: a file has no names.
    let object = 1 + random.below(40) as u32;
    let (kind, object) = (random.below(4), object * 4);
    let object = object + kind as u32;
    match kind {
        0 => stat(object, 1 + random.below(room as u64 / 2) as usize),
        1 => direct(object, 1 + 500 * random.below(4), 1 + random.below(room as u64 - 30) as usize),
        2 => name(
            object,
            LEAST_NAME + random.below(1 << 16),
            &"n".repeat(1 + random.below((room as u64 / 3).min(255)) as usize),
        ),
        _ => pointers(object, 1 + 1024 * random.below(64), &[random.below(1 << 20) as u32]),
    }
}

#[test]
fn random_steps() {
    let ways = [(false, false), (true, false), (false, true), (true, true)];
    let eager = ways.map(|(moves, early)| (moves, early, false));
    let ways = [&eager[..], &[(false, true, true), (true, true, true)]].concat();
    let sizes = [(160, 3000), (256, 3000), (512, 3000), (1024, 2000)];
    let trees = sizes.into_iter().flat_map(|size| ways.iter().map(move |way| (size, *way)));
    for ((node_size, steps), (moves, early, lazy)) in trees {
        let mut random = Rng::new(node_size as u64);
        let (mut tree, mut model) = (Tree::new(node_size), BTreeMap::new());
        (tree.fresh, tree.early, tree.sparse) = (moves.then(BTreeSet::new), early, lazy.then(BTreeSet::new));
        for step in 0..steps {
            if random.below(20) == 0 {
                tree.fresh.iter_mut().for_each(BTreeSet::clear);
            }
            tree.in_memory = (random.below(2) == 0).then(|| (0..tree.next).filter(|_| random.below(2) == 0).collect());
            // It grows, then shrinks, again and again.
            let grows = random.below(10) < if step / 500 % 2 == 0 { 8 } else { 3 };
            if grows {
                let item = random_item(&mut random, tree.shape.room());
                let new = units(tree.shape, &[vec![item.clone()]]);
                if new.keys().any(|key| model.contains_key(key)) {
                    continue;
                }
                tree.put(item);
                model.extend(new);
            } else if let Some((from, _)) = model.range(random_item(&mut random, 300).key..).next() {
                let (from, len) = (*from, 1 + random.below(80));
                let to = from.at(from.offset() + len);
                if lazy {
                    tree.cut_now(from, to);
                } else {
                    tree.cut(from, to);
                }
                model.retain(|key, _| !(from..to).contains(key));
            }
            if lazy && step % 7 == 0 {
                assert_eq!(units(tree.shape, &tree.check_all_but_sizes()), model, "{node_size}, step {step}");
            }
            if step % if lazy { 49 } else { 7 } == 0 {
                tree.compress();
                assert_eq!(units(tree.shape, &tree.check()), model, "node size {node_size}, step {step}");
            }
        }
        tree.compress();
        tree.sparse = None;
        assert!(tree.root.1 >= 3, "a tree of {} levels", tree.root.1);
        tree.cut(Key::LEAST, Key::MOST);
        assert_eq!((tree.check(), tree.root.1), (vec![vec![]], 1));
    }
}

/// A directory that grows at its end, with items of other objects behind it in the same node: they part, and from then on there
/// is room. Filled up with its neighbours, that node is full again at the next name.
#[test]
fn a_node_is_split_where_it_grows() {
    let names = |early| {
        let mut tree = Tree { early, ..Tree::new(1024) };
        (1..40).for_each(|object| tree.put(stat(object * 3, 90)));
        let mut changed = 0;
        for n in 0..60 {
            tree.touched.clear();
            tree.put(name(31, LEAST_NAME + n, "some name"));
            changed += tree.touched.len();
        }
        (tree.check().len(), changed)
    };
    assert_eq!((names(false), names(true)), ((7, 104), (7, 65)));
}

/// A node that is split moves, one that takes in an item does not, and one that has moved moves no more.
#[test]
fn a_node_moves_when_items_are_shifted_out_of_it() {
    let mut tree = Tree { fresh: Some(BTreeSet::new()), ..Tree::new(160) };
    tree.put(stat(1, 20));
    tree.put(stat(3, 20));
    assert_eq!(tree.root, (1, 1));
    tree.put(stat(2, 40));
    assert!(!tree.nodes.contains_key(&1), "it moved: {:?}", tree.nodes.keys());
    let fresh = tree.fresh.clone().unwrap();
    assert_eq!(fresh.len(), 3, "two formatted nodes and a root");
    tree.put(stat(4, 60));
    tree.put(stat(5, 60));
    assert!(fresh.iter().all(|block| tree.nodes.contains_key(block)), "those stay");
}

#[test]
fn damage_of_a_node_is_told_with_its_place() {
    let mut tree = Tree::new(160);
    tree.put(stat(1, 30));
    tree.put(stat(2, 30));
    let good = tree.nodes[&1].clone();
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        let told = Content::decode(tree.shape, 1, 1, &bytes.clone().into()).unwrap_err().to_string();
        assert!(told.contains("node"), "{told}");
        // Whatever a node with a right checksum says, it is no panic.
        if !(4..8).contains(&at) {
            let crc = arbor_base::layout::crc_without(&bytes, crate::format::CRC_AT).unwrap();
            arbor_base::layout::put_u32(&mut bytes, crate::format::CRC_AT, crc);
            let _ = Content::decode(tree.shape, 1, 1, &bytes.into());
        }
    }
}

/// A hostile tree: the key of the second child is too great for what lies below the first one, and that is there many times.
#[test]
fn a_search_to_the_left_ends() {
    let mut tree = Tree::new(1024);
    let leaf = |object| {
        Content::Leaf(vec![Item { key: Key::new(1, object, 0, Kind::StatData), tail: 0, body: vec![1].into() }])
    };
    tree.nodes.insert(1, sealed(&leaf(1000), tree.shape, 1, 1));
    let all = (1..30).map(|n| (Key::new(1, n, 0, Kind::StatData), 1)).collect();
    tree.nodes.insert(2, sealed(&Content::Internal(all), tree.shape, 2, 2));
    tree.root = (2, 2);
    tree.reads = 0;
    let found = seek_back(&mut tree, Key::new(1, 29, 1, Kind::StatData));
    assert!(matches!(found, Err(arbor_base::vfs::Error::Corrupt(_))), "{found:?}");
    assert!(tree.reads < 10, "{} nodes were read", tree.reads);
}
