//! The state in core, and its buffers: how blocks are read, changed and forgotten.
//!
//! Pages of files are buffers by file and page, everything else by address. Nodes of the tree are kept decoded beside
//! their buffers.

use crate::format::{self, *};
use crate::item::{Item, pointer};
use crate::node::{self, Block, Change, Content, Shape};
use crate::options::{Balance, Layout, Mount, Ordering};
use crate::recent::{Known, Recent, Spot};
use crate::space::Space;
use crate::superblock::Ids;
use crate::tree::{Nodes, size};
use crate::validate;
use arbor_base::cache::{Cache, Name, Place};
use arbor_base::device::{Device, Kind};
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Errno, Result, Time};
use arbor_kit::counters::Io;
use arbor_kit::machine::Machinery;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Free blocks below which no node moves: more than any step of a call may count on.
const LEAST_FREE: u64 = 512;

/// The running transaction, and what the log holds.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Number of the next record.
    pub seq: u64,
    /// Block of the log where it goes.
    pub at: u32,
    /// Which of the two heads of the log is written next.
    pub next_head: usize,
    /// Changed blocks of metadata.
    pub changed: BTreeMap<Block, Kind>,
    pub super_changed: bool,
    /// Nodes, of the changed ones, that are written to their places before the record, which does not have them.
    pub fresh: BTreeSet<Block>,
    /// Formatted nodes that may fit into fewer together with those beside them: that is made good before the record
    /// (REISER-T3).
    pub sparse: BTreeSet<Block>,
    /// Unformatted nodes that are written before the record, and the pages that they hold.
    pub data: BTreeMap<Block, Name>,
    /// Of records that count: the newest copies, which are not in place yet.
    pub copies: BTreeMap<Block, Arc<Vec<u8>>>,
    /// When the oldest change was made that is not durable, ms.
    pub since: Option<u64>,
    /// The superblock in place says that the volume is in use.
    pub is_marked: bool,
    /// A repair is one transaction, however much it changes.
    pub is_repair: bool,
    pub records: u64,
    pub bytes: u64,
    pub checkpoints: u64,
    /// Nodes that were written without a copy in the log, and those of them that had moved.
    pub fresh_nodes: u64,
    pub moved_nodes: u64,
}

impl Log {
    /// Blocks of which the next record has copies, but for the first of the volume.
    pub fn copied(&self) -> usize {
        self.changed.len().saturating_sub(self.fresh.len())
    }
}

/// Everything in core.
pub(crate) struct Core {
    pub geom: Geom,
    pub sb: SuperBlock,
    pub ids: Ids,
    pub opts: Mount,
    pub dev: Arc<dyn Device>,
    pub cache: Cache,
    pub calls: Machinery,
    pub log: Log,
    pub space: Space,
    pub io: Io,
    /// No other step follows in the call.
    pub ends_step: bool,
    pub recent: Recent,
    /// A directory whose stat data are stored when the transaction ends.
    pub late: Option<Known>,
    /// In which orders directories are being listed.
    pub orders: crate::orders::Orders,
    /// Where the last name was looked for.
    pub spot: Option<Spot>,
    /// Where the last object was looked at: a formatted node, and the index of an item.
    pub last_seen: (Block, usize),
    /// Decoded nodes, and where their buffers are.
    nodes: FxHashMap<Block, (Arc<Content>, Place)>,
    /// Formatted nodes that were found last, with the range of keys that lie in each, and the root from which they were found.
    found: [(Key, Key, Block); FOUND],
    found_from: (Block, u16),
    next_found: usize,
}

/// Windows of the device take this part of the memory for the cache.
const WINDOWS: usize = 8;
/// How far from the last item the next one is looked for: two small files have four.
const BESIDE: usize = 4;
/// Most formatted nodes whose place in the tree is remembered.
const FOUND: usize = 4;

impl Core {
    pub fn new(dev: Arc<dyn Device>, (sb, geom): (SuperBlock, Geom), opts: Mount, now: Time) -> Core {
        let windows = if opts.readahead { opts.cache_bytes / WINDOWS } else { 0 };
        let mut cache = Cache::new(opts.cache_bytes - windows);
        opts.dirty.limit(&mut cache);
        Core {
            geom,
            sb,
            ids: Ids::new(),
            opts,
            dev,
            cache,
            calls: Machinery::new(now),
            log: Log { at: 2, ..Log::default() },
            space: Space::default(),
            io: Io::default(),
            ends_step: false,
            recent: Recent::default(),
            late: None,
            orders: crate::orders::Orders::default(),
            spot: None,
            last_seen: (0, 0),
            nodes: FxHashMap::default(),
            found: [(Key::MOST, Key::LEAST, 0); FOUND],
            found_from: (0, 0),
            next_found: 0,
        }
    }

    /// Most nodes that are kept decoded: they take about an eighth of the cache's memory.
    fn most_decoded(&self) -> usize {
        (self.opts.cache_bytes / 16 / self.geom.node_size).max(32)
    }

    /// From here on what lies beside a block comes with it: a packing locality lies together.
    pub fn begin_read_ahead(&mut self) {
        if self.opts.readahead {
            self.calls.reads.read_ahead(&*self.dev, self.opts.cache_bytes / WINDOWS);
        }
    }

    /// Reads adjacent blocks.
    pub fn read(&mut self, block: Block, blocks: usize, kind: Kind) -> Result<Vec<u8>> {
        let at = self.geom.byte(block);
        let mut bytes = self.calls.reads.read(&*self.dev, kind, at, blocks * self.geom.node_size)?;
        self.io.count_read(bytes.len());
        if !self.log.copies.is_empty() {
            for (n, page) in (block..).zip(bytes.chunks_exact_mut(self.geom.node_size)) {
                self.log.copies.get(&n).into_iter().for_each(|copy| page.copy_from_slice(copy));
            }
        }
        Ok(bytes)
    }

    /// The buffer of a block of metadata. `check` looks at what was read; what it refuses is read once more.
    fn buffer<T>(
        &mut self,
        block: Block,
        kind: Kind,
        check: impl Fn(&Arc<Vec<u8>>) -> std::result::Result<T, Corrupt>,
    ) -> Result<(&Arc<Vec<u8>>, Option<T>)> {
        let name = Name::Block(block.into());
        let mut found = None;
        if !self.cache.contains(name) {
            let bytes = match self.log.copies.get(&block) {
                Some(copy) => copy.clone(),
                None => Arc::new(self.read(block, 1, kind)?),
            };
            let (bytes, checked) = match check(&bytes) {
                Ok(checked) => (bytes, checked),
                Err(c) if self.log.copies.contains_key(&block) => return Err(c.into()),
                Err(_) => {
                    let (at, len) = (self.geom.byte(block), self.geom.node_size);
                    let again = self.calls.reads.read_now(&*self.dev, kind, at, len)?;
                    let again = Arc::new(again);
                    let checked = check(&again)?;
                    (again, checked)
                }
            };
            found = Some(checked);
            self.cache.insert(name, bytes);
        }
        Ok((self.cache.get(name).ok_or(Errno::EIO)?, found))
    }

    /// A bitmap, checked.
    pub fn bitmap(&mut self, n: u32) -> Result<&Arc<Vec<u8>>> {
        let (geom, block) = (self.geom, self.geom.bitmap(n));
        Ok(self.buffer(block, Kind::Bitmap, |bytes| validate::bitmap(&geom, block, bytes))?.0)
    }

    /// A node of the tree, checked and decoded.
    pub fn node(&mut self, block: Block, level: u16) -> Result<Arc<Content>> {
        if let Some((content, place)) = self.nodes.get(&block)
            && content.is_leaf() == (level == 1)
            && self.cache.is_at(*place, Name::Block(block.into()))
        {
            return Ok(content.clone());
        }
        let shape = self.shape();
        if !self.geom.is_node(block) {
            let at = self.geom.byte(block);
            return Err(Corrupt::new("node", "children", at, block, "a block for nodes").into());
        }
        let (bytes, found) = self.buffer(block, Kind::Tree, |b| Content::decode(shape, block, level, b))?;
        let content = match found {
            Some(content) => content,
            None => Content::parse(shape, block, level, bytes)?,
        };
        let content = Arc::new(content);
        self.keep_decoded(block, content.clone());
        Ok(content)
    }

    /// A formatted node of the tree, if it is in memory and decoded.
    pub fn decoded(&mut self, leaf: Block) -> Option<&Arc<Content>> {
        let (content, place) = self.nodes.get(&leaf)?;
        let is_there = content.is_leaf() && self.cache.is_at(*place, Name::Block(leaf.into()));
        is_there.then_some(content)
    }

    /// The item of this key, and where it is, if its node is in memory and known: objects that were made one after another,
    /// and the items of each, lie side by side.
    pub fn at_hand(&mut self, key: Key) -> Option<(Block, usize, &Item)> {
        let (leaf, index) = match self.beside_last(key) {
            Some(place) => place,
            None => {
                let (leaf, _) = self.known(key)?;
                let found = self.decoded(leaf)?.items().binary_search_by_key(&key, |item| item.key);
                (leaf, found.ok()?)
            }
        };
        self.last_seen = (leaf, index);
        Some((leaf, index, self.nodes.get(&leaf)?.0.items().get(index)?))
    }

    fn beside_last(&mut self, key: Key) -> Option<(Block, usize)> {
        let (leaf, last) = self.last_seen;
        let beside = self.decoded(leaf)?.items().get(last..)?.iter().take(BESIDE);
        let index = last + beside.enumerate().find(|(_, item)| item.key == key)?.0;
        Some((leaf, index))
    }

    fn keep_decoded(&mut self, block: Block, content: Arc<Content>) {
        if self.nodes.len() >= self.most_decoded() {
            let cache = &self.cache;
            self.nodes.retain(|block, _| cache.contains(Name::Block((*block).into())));
            if self.nodes.len() >= self.most_decoded() {
                self.nodes.clear();
            }
        }
        if let Some(place) = self.cache.place(Name::Block(block.into())) {
            self.nodes.insert(block, (content, place));
        }
    }

    /// Drops what was decoded of a node that is full and will hardly change: its items, each with bytes of its own, take more
    /// memory than the node.
    pub fn keep_bytes_only(&mut self, block: Block) {
        self.nodes.remove(&block);
    }

    /// Called when an internal node changes.
    fn forget_found(&mut self) {
        self.found = [(Key::MOST, Key::LEAST, 0); FOUND];
        self.last_seen = (0, 0);
    }

    /// Called when the first key of a formatted node changes, and what its parents say of it.
    pub fn move_found(&mut self, leaf: Block, old: Key, new: Key) {
        for (from, to, at) in &mut self.found {
            if *at == leaf {
                *from = new.max(*from);
            }
            if *to == old {
                *to = new;
            }
        }
    }

    /// A child on the way to the first formatted node whose first key its parent does not have, as far as nodes are in core.
    pub fn first_key_broken(&self) -> Option<Block> {
        let (mut block, height) = self.root();
        for _ in 1..height {
            let Content::Internal(all) = &*self.nodes.get(&block)?.0 else { return Some(block) };
            let (key, child) = *all.first()?;
            if self.nodes.get(&child)?.0.first_key() != Some(key) {
                return Some(child);
            }
            block = child;
        }
        None
    }

    /// Notes a change at the present time.
    pub fn note_change(&mut self) {
        self.calls.note_change();
        let now = self.calls.now_ms();
        self.log.since.get_or_insert(now);
    }

    /// Called when the items of a formatted node change, or it is no longer one.
    fn forget_spot(&mut self, leaf: Block) {
        self.spot = self.spot.filter(|spot| spot.leaf != leaf);
    }

    /// Makes a block of metadata hold these bytes.
    pub fn put_block(&mut self, block: Block, kind: Kind, bytes: Vec<u8>) {
        self.forget_spot(block);
        let name = Name::Block(block.into());
        if !self.cache.contains(name) {
            self.cache.insert(name, Arc::new(Vec::new()));
        }
        if let Some(dirty) = self.cache.dirtied(name) {
            self.cache.modify(dirty, |buf| *buf = bytes);
        }
        self.note_change();
        self.log.changed.insert(block, kind);
    }

    /// Changes a bitmap that was read in the same call.
    pub fn change_bitmap(&mut self, n: u32, f: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let block = self.geom.bitmap(n);
        let dirty = self.cache.dirtied(Name::Block(block.into())).ok_or(Errno::EIO)?;
        self.cache.modify(dirty, f);
        self.note_change();
        self.log.changed.insert(block, Kind::Bitmap);
        Ok(())
    }

    /// Gives a node new contents.
    pub fn put_node(&mut self, block: Block, level: u16, mut content: Content) {
        let bytes = content.encode(self.shape(), block, level, self.sb.generation.get().saturating_add(1));
        self.put_block(block, Kind::Tree, bytes);
        if level > 1 {
            self.forget_found();
        }
        self.cache.peek(Name::Block(block.into())).into_iter().for_each(|bytes| content.share(bytes));
        self.keep_decoded(block, Arc::new(content));
    }

    /// Changes an item of a formatted node, whose body keeps its length.
    pub fn patch(&mut self, (block, at): (Block, usize), f: impl FnOnce(&mut Item)) -> Result<()> {
        self.change_node(block, 1, |content, bytes, generation| {
            let Content::Leaf(items) = content else { return false };
            let Some(item) = items.get_mut(at) else { return false };
            f(item);
            node::patch_bytes(bytes, at, item, generation)
        })
    }

    /// Changes the items of a formatted node.
    pub fn change_items(&mut self, block: Block, changes: impl IntoIterator<Item = Change>) -> Result<()> {
        let mut spot = self.spot;
        self.change_node(block, 1, |content, bytes, generation| {
            let Content::Leaf(items) = content else { return false };
            let mut is_done = true;
            for change in changes {
                spot = spot.filter(|spot| spot.leaf != block || spot.outlives(&change));
                is_done &= change.apply_to_bytes(bytes, generation);
                change.apply(items);
            }
            is_done
        })?;
        self.spot = spot;
        Ok(())
    }

    /// Changes the key of a child.
    pub fn change_key(&mut self, block: Block, level: u16, index: usize, key: Key) -> Result<()> {
        self.change_node(block, level, |content, bytes, generation| {
            let Content::Internal(all) = content else { return false };
            all.get_mut(index).into_iter().for_each(|child| child.0 = key);
            node::put_child_key(bytes, index, key, generation)
        })
    }

    /// Makes a block a new formatted node, whose items hold on to no other node's bytes.
    pub fn put_leaf(&mut self, block: Block, items: Vec<Item>) {
        let content = Content::Leaf(items);
        let bytes = content.encode(self.shape(), block, 1, self.sb.generation.get().saturating_add(1));
        self.put_block(block, Kind::Tree, bytes);
        self.keep_decoded(block, Arc::new(content));
    }

    /// Inserts a child into an internal node that has room for it, as its child `index`.
    pub fn insert_child(&mut self, block: Block, level: u16, index: usize, child: (Key, Block)) -> Result<()> {
        self.forget_found();
        self.change_node(block, level, |content, bytes, generation| {
            let Content::Internal(all) = content else { return false };
            all.insert(index.min(all.len()), child);
            node::insert_child(bytes, index, child, generation)
        })
    }

    /// Takes a child out of an internal node.
    pub fn remove_child(&mut self, block: Block, level: u16, index: usize) -> Result<()> {
        self.forget_found();
        self.change_node(block, level, |content, bytes, generation| {
            let Content::Internal(all) = content else { return false };
            if index < all.len() {
                all.remove(index);
            }
            node::remove_child(bytes, index, generation)
        })
    }

    /// Makes a formatted node that was read in the same call dirty.
    pub fn dirty_node(&mut self, leaf: Block) -> Result<()> {
        self.change_node(leaf, 1, |_, bytes, generation| node::set_generation(bytes, generation))
    }

    /// Changes a node that was read in the same call: its contents, and its bytes. Where `f` returns `false` the bytes are
    /// made anew.
    fn change_node(
        &mut self,
        block: Block,
        level: u16,
        f: impl FnOnce(&mut Content, &mut [u8], u64) -> bool,
    ) -> Result<()> {
        let (shape, generation) = (self.shape(), self.sb.generation.get().saturating_add(1));
        if !self.nodes.contains_key(&block) {
            // Others have driven it out of those that are kept decoded.
            self.node(block, level)?;
        }
        let (content, place) = self.nodes.get_mut(&block).ok_or(Errno::EIO)?;
        let name = Name::Block(block.into());
        if !self.cache.is_at(*place, name) {
            return Err(Errno::EIO.into());
        }
        if !self.cache.is_dirty(name) {
            self.log.changed.insert(block, Kind::Tree);
        }
        debug_assert!(
            self.log.changed.contains_key(&block),
            "node {block} is dirty, and the next record is without it"
        );
        let dirty = self.cache.dirtied_at(*place);
        let changed = Arc::make_mut(content);
        self.cache.modify(dirty, |bytes| {
            if !f(changed, bytes, generation) {
                *bytes = changed.encode(shape, block, level, generation);
            }
            // But for what nothing reads, which a damaged volume may have.
            debug_assert!(same(shape, (block, level), bytes, &changed.encode(shape, block, level, generation)));
        });
        self.note_change();
        Ok(())
    }

    /// Notes that the superblock in core was changed.
    pub fn touch_super(&mut self) {
        self.note_change();
        self.log.super_changed = true;
    }

    /// Drops the buffer of a block of metadata that was freed.
    pub fn forget_block(&mut self, block: Block) {
        self.log.changed.remove(&block);
        self.log.fresh.remove(&block);
        self.log.sparse.remove(&block);
        self.forget_spot(block);
        self.forget_found();
        self.nodes.remove(&block);
        self.cache.remove(Name::Block(block.into()));
    }

    /// Drops a page whose unformatted node was freed.
    pub fn forget_page(&mut self, name: Name, block: Block) {
        self.log.data.remove(&block);
        self.cache.remove(name);
    }
}

/// Whether the bytes of two nodes mean the same.
fn same(shape: Shape, (block, level): (Block, u16), left: &[u8], right: &[u8]) -> bool {
    let parse =
        |bytes: &[u8]| Content::parse(shape, block, level, &Arc::new(bytes.to_vec())).map_err(|c| c.to_string());
    node::head(left) == node::head(right) && parse(left) == parse(right)
}

impl Nodes for Core {
    fn shape(&self) -> Shape {
        Shape { node_size: self.geom.node_size, fsid: self.geom.fsid }
    }

    fn root(&self) -> (Block, u16) {
        (self.sb.root.get(), self.sb.height.get() as u16)
    }

    fn read(&mut self, block: Block, level: u16) -> Result<Arc<Content>> {
        self.node(block, level)
    }

    fn leaf(&mut self, block: Block) -> Result<(Arc<Content>, usize)> {
        let content = self.node(block, 1)?;
        let place = self.nodes.get(&block).map(|(_, place)| *place);
        let used = place.map_or_else(|| size(content.items()), |place| node::used(self.cache.at(place)));
        debug_assert_eq!(used, size(content.items()), "node {block}");
        Ok((content, used))
    }

    /// Of a node in memory without its items being told apart: it was looked at when it came there.
    fn used(&mut self, block: Block) -> Result<usize> {
        let bytes = self.cache.peek(Name::Block(block.into()));
        let found = bytes.filter(|bytes| node::is_leaf(bytes)).map(|bytes| node::used(bytes));
        found.map_or_else(|| Ok(self.leaf(block)?.1), Ok)
    }

    fn known(&mut self, key: Key) -> Option<(Block, Key)> {
        let (_, to, at) = *self.found.iter().find(|(from, to, _)| *from <= key && key < *to)?;
        (self.found_from == self.root()).then_some((at, to))
    }

    fn learn(&mut self, from: Key, to: Key, leaf: Block) {
        if self.found_from != self.root() {
            self.forget_found();
            self.found_from = self.root();
        }
        if let Some(place) = self.found.get_mut(self.next_found) {
            *place = (from, to, leaf);
        }
        self.next_found = (self.next_found + 1) % FOUND;
    }

    fn put_off(&mut self, leaf: Block) -> bool {
        let is_early = self.splits_early();
        if is_early {
            self.log.sparse.insert(leaf);
        }
        is_early
    }

    fn spot(&self, leaf: Block, at: usize, key: Key) -> usize {
        let found = self.spot.filter(|spot| (spot.leaf, spot.index) == (leaf, at) && spot.key <= key);
        found.map_or(0, |spot| spot.byte)
    }

    fn splits_early(&self) -> bool {
        self.opts.balance == Balance::Early
    }

    fn is_cached(&self, block: Block) -> bool {
        self.cache.contains(Name::Block(block.into()))
    }

    /// One that is on disk (REISER-C6), as long as there is space: where that is low it stays, and the log has it.
    fn moves(&self, block: Block) -> bool {
        self.opts.ordering == Ordering::Preserve && !self.log.fresh.contains(&block) && self.has_room_for(LEAST_FREE)
    }

    /// With `layout=virtual` a tail goes near the unformatted nodes of its file (paper, "Drops").
    fn near(&self, left: &[Item], items: &[Item]) -> Option<Block> {
        let (last, first) = (left.last()?, items.first()?);
        let is_tail = first.key.kind() == Some(format::Kind::Direct) && last.key.kind() == Some(format::Kind::Indirect);
        let is_of_one = (last.key.locality(), last.key.object()) == (first.key.locality(), first.key.object());
        let block = pointer(last, (last.body.len() / 4).checked_sub(1)?);
        (self.opts.layout == Layout::Virtual && is_tail && is_of_one && block != 0).then_some(block)
    }

    fn note_damage(&mut self) {
        self.calls.health.note_damage();
    }
}
