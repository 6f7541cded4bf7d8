use super::{HEAD, INNER, MAX_LEVEL, Node, NodeStore, STRUCTURE, Tree, WORD};
use arbor_base::vfs::{Errno, Error, Result};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};

const V: usize = 8;

/// Nodes in memory; counts what a journal would have to carry.
#[derive(Clone)]
struct Mem {
    root: Vec<u8>,
    blocks: HashMap<u64, Vec<u8>>,
    body: usize,
    next: u64,
    logged: usize,
    writes: usize,
    allocs: usize,
    /// Blocks that may still be allocated.
    space: usize,
    written: HashSet<u64>,
    /// Blocks whose reading fails as if they were not in the cache.
    absent: HashSet<u64>,
}

impl Mem {
    /// Room for `root` and `block` records of 16 bytes.
    fn new(root: usize, block: usize) -> Mem {
        Mem {
            root: vec![0; HEAD + root * INNER],
            blocks: HashMap::new(),
            body: HEAD + block * INNER,
            next: 1,
            logged: 0,
            writes: 0,
            allocs: 0,
            space: usize::MAX,
            written: HashSet::new(),
            absent: HashSet::new(),
        }
    }

    fn body(&mut self, node: Node) -> Result<&mut Vec<u8>> {
        match node {
            Node::Root => Ok(&mut self.root),
            Node::Block(block) if self.absent.contains(&block) => Err(Error::Restart),
            Node::Block(block) => self.blocks.get_mut(&block).ok_or(Errno::EIO.into()),
        }
    }

    fn tree(&mut self) -> Tree<'_, Mem, V> {
        Tree::new(self)
    }

    /// Every allocated block is reachable, once.
    fn check(&mut self) {
        let mut seen = Vec::new();
        self.tree().check(&mut |node| seen.push(node)).unwrap();
        assert_eq!(seen.len(), self.blocks.len() + 1, "blocks leak");
        for block in self.blocks.keys() {
            assert!(seen.contains(&Node::Block(*block)));
        }
    }
}

impl NodeStore for Mem {
    fn read<R>(&mut self, node: Node, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        Ok(f(self.body(node)?))
    }

    fn write(&mut self, node: Node, at: usize, bytes: &[u8]) -> Result<()> {
        self.logged += bytes.len();
        self.writes += 1;
        if let Node::Block(block) = node {
            self.written.insert(block);
        }
        self.body(node)?[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn alloc(&mut self) -> Result<u64> {
        self.space = self.space.checked_sub(1).ok_or(Errno::ENOSPC)?;
        self.next += 1;
        self.allocs += 1;
        self.blocks.insert(self.next, vec![0; self.body]);
        Ok(self.next)
    }

    fn free(&mut self, block: u64) -> Result<()> {
        self.space = self.space.saturating_add(1);
        self.blocks.remove(&block).map(drop).ok_or(Errno::EIO.into())
    }

    fn address(&self, node: Node) -> u64 {
        match node {
            Node::Root => 0,
            Node::Block(block) => block.wrapping_mul(4096),
        }
    }
}

fn value(n: u64) -> [u8; V] {
    n.to_le_bytes()
}

fn errno<T: std::fmt::Debug>(result: Result<T>) -> Errno {
    result.unwrap_err().errno()
}

/// Pseudo-random numbers from a seed.
fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Compares the whole tree and some lookups with the model.
fn compare(mem: &mut Mem, model: &BTreeMap<u64, u64>, probes: &[u64]) {
    let mut all = Vec::new();
    mem.tree()
        .for_each(0, &mut |k, v| {
            all.push((k, u64::from_le_bytes(*v)));
            true
        })
        .unwrap();
    assert!(all.iter().copied().eq(model.iter().map(|(k, v)| (*k, *v))));
    let pair = |(k, v): (&u64, &u64)| (*k, value(*v));
    assert_eq!(mem.tree().last().unwrap(), model.last_key_value().map(pair));
    assert_eq!(mem.tree().is_empty().unwrap(), model.is_empty());
    for probe in probes {
        assert_eq!(mem.tree().get(*probe).unwrap(), model.get(probe).map(|v| value(*v)));
        assert_eq!(mem.tree().last_le(*probe).unwrap(), model.range(..=probe).next_back().map(pair));
        assert_eq!(mem.tree().first_ge(*probe).unwrap(), model.range(probe..).next().map(pair));
        let mut first = None;
        mem.tree()
            .for_each(*probe, &mut |k, v| {
                first = Some((k, *v));
                false
            })
            .unwrap();
        assert_eq!(first, model.range(probe..).next().map(pair));
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, u64),
    Append(u64),
    Remove(u64),
    RemoveNext(u64),
    Set(u64, u64),
    Rekey(u64, u64, u64),
    Slide(u64, i8),
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    let key = || prop_oneof![9 => 0..120u64, 1 => Just(u64::MAX), 1 => any::<u64>()];
    prop_oneof![
        8 => (key(), any::<u64>()).prop_map(|(k, v)| Op::Insert(k, v)),
        3 => any::<u64>().prop_map(Op::Append),
        3 => key().prop_map(Op::Remove),
        5 => key().prop_map(Op::RemoveNext),
        1 => (key(), any::<u64>()).prop_map(|(k, v)| Op::Set(k, v)),
        2 => (key(), key(), any::<u64>()).prop_map(|(a, b, v)| Op::Rekey(a, b, v)),
        4 => (key(), any::<i8>()).prop_map(|(k, by)| Op::Slide(k, by)),
        1 => Just(Op::Clear),
    ]
}

fn rekey(mem: &mut Mem, model: &mut BTreeMap<u64, u64>, old: u64, new: u64, v: u64) {
    let got = mem.tree().rekey(old, new, &value(v));
    if !model.contains_key(&old) {
        assert_eq!(errno(got), Errno::ENOENT);
    } else if old != new && model.contains_key(&new) {
        assert_eq!(errno(got), Errno::EEXIST);
    } else {
        got.unwrap();
        model.remove(&old);
        model.insert(new, v);
    }
}

fn apply(mem: &mut Mem, model: &mut BTreeMap<u64, u64>, op: &Op) {
    match *op {
        Op::Insert(k, v) => {
            let (height, before) = (mem.tree().height().unwrap(), mem.allocs);
            let got = mem.tree().insert(k, &value(v));
            assert!(mem.allocs - before <= Tree::<Mem, V>::max_new_blocks(height));
            match model.get(&k) {
                Some(_) => assert_eq!(errno(got), Errno::EEXIST),
                None => {
                    got.unwrap();
                    model.insert(k, v);
                }
            }
        }
        Op::Append(v) => {
            let k = model.range(..1 << 40).next_back().map_or(0, |(k, _)| k + 1);
            mem.tree().insert(k, &value(v)).unwrap();
            model.insert(k, v);
        }
        Op::Remove(k) => assert_eq!(mem.tree().remove(k).unwrap(), model.remove(&k).is_some()),
        Op::RemoveNext(k) => {
            if let Some(k) = model.range(k..).next().map(|(k, _)| *k) {
                assert!(mem.tree().remove(k).unwrap());
                model.remove(&k);
            }
        }
        Op::Set(k, v) => match (mem.tree().set(k, &value(v)), model.get_mut(&k)) {
            (got, Some(slot)) => {
                got.unwrap();
                *slot = v;
            }
            (got, None) => assert_eq!(errno(got), Errno::ENOENT),
        },
        Op::Rekey(old, new, v) => rekey(mem, model, old, new, v),
        Op::Slide(k, by) => {
            if let Some(k) = model.range(k..).next().map(|(k, _)| *k) {
                rekey(mem, model, k, k.saturating_add_signed(i64::from(by % 4)), k);
            }
        }
        Op::Clear => {
            mem.tree().clear().unwrap();
            model.clear();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn behaves_like_a_map(root in 2..10usize, block in 5..9usize, ops in prop::collection::vec(op(), 1..200)) {
        let mut mem = Mem::new(root, block);
        let mut model = BTreeMap::new();
        for op in &ops {
            // A clear in every walk would keep the trees low.
            if matches!(op, Op::Clear) && ops.len() % 3 != 0 {
                continue;
            }
            apply(&mut mem, &mut model, op);
            mem.check();
        }
        let probes: Vec<u64> = (0..125).chain([u64::MAX - 1, u64::MAX]).collect();
        compare(&mut mem, &model, &probes);
    }

    #[test]
    fn damage_is_an_error_and_no_panic(
        root in 3..6usize,
        n in 0..300u64,
        flips in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u8>()), 1..6),
        keys in prop::collection::vec(0..400u64, 1..20),
    ) {
        let mut mem = Mem::new(root, 5);
        (0..n).for_each(|i| mem.tree().insert(mix(i) % 4096, &value(i)).or_else(
            |e| if e.errno() == Errno::EEXIST { Ok(()) } else { Err(e) }).unwrap());
        let mut ids: Vec<u64> = mem.blocks.keys().copied().collect();
        ids.sort_unstable();
        for (which, at, byte) in flips {
            let which = (which % (ids.len() as u64 + 1)) as usize;
            let body = match ids.get(which) {
                Some(id) => mem.blocks.get_mut(id).unwrap(),
                None => &mut mem.root,
            };
            // The heads are where most can go wrong.
            let len = if at % 3 == 0 { HEAD } else { body.len() } as u64;
            body[(at / 3 % len) as usize] ^= byte;
        }
        let _ = mem.tree().check(&mut |_| ());
        let _ = mem.tree().len();
        let _ = mem.tree().height();
        let _ = mem.tree().last();
        for key in &keys {
            let _ = mem.tree().get(*key);
            let _ = mem.tree().last_le(*key);
            let _ = mem.tree().first_ge(*key);
        }
        for key in keys {
            let _ = mem.tree().insert(key, &value(0));
            let _ = mem.tree().set(key, &value(1));
            let _ = mem.tree().rekey(key, key + 1, &value(2));
            let _ = mem.tree().remove(key + 1);
        }
        let _ = mem.tree().clear();
    }

    /// Where an allocation or a read fails, an insert or a removal has changed nothing.
    #[test]
    fn failed_calls_change_nothing(n in 1..400u64, space in 0..4usize, key in 0..4096u64, pick in any::<u64>()) {
        let mut mem = Mem::new(3, 5);
        for i in 0..n {
            let _ = mem.tree().insert(mix(i) % 4096, &value(i));
        }
        mem.space = space;
        let (blocks, root) = (mem.blocks.clone(), mem.root.clone());
        let mut ids: Vec<u64> = blocks.keys().copied().collect();
        ids.sort_unstable();
        if pick % 2 == 0 && !ids.is_empty() {
            mem.absent.insert(ids[pick as usize / 2 % ids.len()]);
        }
        let failed = if pick % 3 == 0 { mem.tree().remove(key).err() } else { mem.tree().insert(key, &value(0)).err() };
        if failed.is_some() {
            prop_assert_eq!(blocks, mem.blocks);
            prop_assert_eq!(root, mem.root);
        }
    }
}

/// Inserts `n` keys in the order given and removes them in another, with checks on the way.
fn grow_and_shrink(root: usize, block: usize, keys: &[u64], removed: &[u64]) {
    let mut mem = Mem::new(root, block);
    for (i, key) in keys.iter().enumerate() {
        mem.tree().insert(*key, &value(*key)).unwrap();
        if i % 10_007 == 0 {
            mem.check();
        }
    }
    mem.check();
    assert_eq!(mem.tree().len().unwrap(), keys.len());
    for (i, key) in removed.iter().enumerate() {
        assert!(mem.tree().remove(*key).unwrap());
        if i % 10_007 == 0 {
            mem.check();
        }
    }
    assert!(mem.tree().is_empty().unwrap());
    assert_eq!((mem.blocks.len(), mem.tree().height().unwrap()), (0, 1));
}

#[test]
fn a_hundred_thousand_keys() {
    let up: Vec<u64> = (0..100_000).collect();
    let down: Vec<u64> = up.iter().rev().copied().collect();
    let random: Vec<u64> = up.iter().map(|i| mix(*i)).collect();
    let mut random_down = random.clone();
    random_down.sort_unstable_by_key(|k| mix(*k));
    for (root, block) in [(15, 250), (22, 165), (250, 160), (4, 7)] {
        grow_and_shrink(root, block, &up, &up);
        grow_and_shrink(root, block, &up, &down);
        grow_and_shrink(root, block, &down, &up);
        grow_and_shrink(root, block, &random, &random_down);
    }
}

/// How full the blocks are, and how many bytes a record costs the log.
#[test]
fn appending_fills_blocks() {
    let mut mem = Mem::new(15, 250);
    for key in 0..100_000 {
        mem.tree().insert(key, &value(key)).unwrap();
    }
    assert!(mem.blocks.len() <= 100_000 / 250 + 6, "{} blocks", mem.blocks.len());
    mem.tree().insert(100_000, &value(0)).unwrap();
    let (logged, writes) = (mem.logged, mem.writes);
    assert!(logged / 100_000 < 64, "{} bytes a record", logged / 100_000);
    mem.tree().insert(100_001, &value(0)).unwrap();
    assert_eq!((mem.logged - logged, mem.writes - writes), (WORD + V + 2, 2), "one record and the count");

    let mut mem = Mem::new(15, 250);
    for key in 0..100_000 {
        mem.tree().insert(mix(key), &value(key)).unwrap();
    }
    assert!(mem.blocks.len() * 250 * 7 / 10 < 100_000, "{} blocks", mem.blocks.len());
}

#[test]
fn set_and_rekey_write_what_changes() {
    let mut mem = Mem::new(4, 8);
    for key in 0..200 {
        mem.tree().insert(key * 10, &value(0)).unwrap();
    }
    let logged = mem.logged;
    mem.tree().set(500, &value(7)).unwrap();
    assert_eq!(mem.logged - logged, 1);
    mem.tree().set(500, &value(7)).unwrap();
    assert_eq!(mem.logged - logged, 1);
    for key in 0..200 {
        let allocs = mem.allocs;
        mem.tree().rekey(key * 10, key * 10 + 9, &value(key)).unwrap();
        mem.check();
        mem.tree().rekey(key * 10 + 9, key * 10, &value(key)).unwrap();
        mem.check();
        assert_eq!(mem.allocs, allocs);
    }
    assert_eq!(mem.tree().len().unwrap(), 200);
}

#[test]
fn an_array_in_the_root_grows_and_shrinks_with_a_margin() {
    let mut mem = Mem::new(16, 100);
    for key in 0..16 {
        mem.tree().insert(key, &value(key)).unwrap();
    }
    assert_eq!((mem.tree().height().unwrap(), mem.allocs), (1, 0));
    mem.tree().insert(16, &value(16)).unwrap();
    assert_eq!((mem.tree().height().unwrap(), mem.allocs), (2, 1));
    for key in 0..4 {
        mem.tree().remove(key).unwrap();
        mem.check();
        assert_eq!(mem.tree().height().unwrap(), 2);
    }
    mem.tree().remove(4).unwrap();
    assert_eq!((mem.tree().height().unwrap(), mem.blocks.len()), (1, 0));
    mem.check();
}

#[test]
fn damage_is_named() {
    let mut mem = Mem::new(4, 8);
    (0..30).for_each(|key| mem.tree().insert(key, &value(key)).unwrap());
    let damaged = |change: &dyn Fn(&mut Mem), field: &str| {
        let mut mem = mem.clone();
        change(&mut mem);
        match mem.tree().check(&mut |_| ()) {
            Err(Error::Corrupt(c)) => assert_eq!((c.structure, c.field), (STRUCTURE, field)),
            other => panic!("{field}: {other:?}"),
        }
    };
    damaged(&|m| m.root[0] = 200, "count");
    damaged(&|m| m.root[2] = MAX_LEVEL + 1, "level");
    damaged(&|m| m.root[2] = 3, "level");
    damaged(&|m| m.root[5] = 1, "reserved");
    damaged(&|m| m.root[HEAD + INNER] = 0xff, "key");
    damaged(&|m| m.blocks.values_mut().next().unwrap()[0] = 0, "count");
    damaged(&|m| m.blocks.values_mut().next().unwrap()[0] = 1, "count");
    // Two entries of the root lead to one child.
    damaged(&|m| m.root.copy_within(HEAD + WORD..HEAD + INNER, HEAD + INNER + WORD), "key");
}
