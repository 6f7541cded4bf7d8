//! A volume with something of everything, and a knife to damage it with.
//!
//! The knife works on the image of a volume that was unmounted: it finds nodes and items by their keys, changes them, and
//! makes their checksums; and it changes the tree as the engine does, by plans, with items that the engine would not make.

#![allow(dead_code, reason = "each test uses a part")]

use arbor_base::device::MemDevice;
use arbor_base::layout::{crc_without, get_u32, put};
use arbor_base::vfs::*;
use arbor_kit::buddy::bitmap;
use arbor_reiserfs::ReiserFs;
use arbor_reiserfs::format::*;
use arbor_reiserfs::item::{Item, entries};
use arbor_reiserfs::node::{Block, Content, Shape};
use arbor_reiserfs::stat;
use arbor_reiserfs::tree::{self, Nodes, Room, Taken};
use arbor_torture::damage;
pub use arbor_torture::damage::{Tree, bytes};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Where an item is.
pub struct Place {
    /// Its node.
    pub leaf: Block,
    /// Bytes of the device where its head and its body begin.
    pub head: u64,
    pub body: u64,
}

pub const CX: Cx = Cx { uid: 0, gid: 0 };

pub fn format(size: u64, options: &str) -> MemDevice {
    damage::format(&ReiserFs, size, options)
}

pub fn check(dev: &MemDevice, repair: Repair) -> CheckReport {
    damage::check(&ReiserFs, dev.clone(), repair)
}

pub fn mount(dev: &MemDevice) -> Arc<dyn FileSystem> {
    damage::mount(&ReiserFs, dev.clone())
}

/// All files of a volume.
pub fn tree(dev: &MemDevice) -> Tree {
    damage::tree(&ReiserFs, dev)
}

pub struct Knife {
    pub dev: MemDevice,
    pub geom: Geom,
    /// Which block is taken next, counted from the end of the volume.
    next: Cell<u32>,
}

impl Knife {
    pub fn new(dev: MemDevice) -> Knife {
        let sb = SuperBlock::read_from_bytes(&damage::read(&dev, 0, SECTOR)).unwrap();
        Knife { dev, geom: Geom::of(&sb), next: Cell::new(2) }
    }

    pub fn sb(&self) -> SuperBlock {
        SuperBlock::read_from_bytes(&damage::read(&self.dev, 0, SECTOR)).unwrap()
    }

    /// Changes a superblock, and makes its checksum.
    pub fn superblock(&self, block: Block, f: impl FnOnce(&mut SuperBlock)) {
        let at = self.geom.byte(block);
        let mut sb = SuperBlock::read_from_bytes(&damage::read(&self.dev, at, SECTOR)).unwrap();
        f(&mut sb);
        self.write(at, &arbor_kit::head::encode(&sb));
    }

    pub fn read(&self, block: Block) -> Vec<u8> {
        damage::read(&self.dev, self.geom.byte(block), self.geom.node_size)
    }

    pub fn write(&self, at: u64, new: &[u8]) {
        damage::write(&self.dev, at, new);
    }

    pub fn flip(&self, at: u64) {
        damage::flip(&self.dev, at);
    }

    /// Fills a block with what is nothing.
    pub fn destroy(&self, block: Block) {
        self.write(self.geom.byte(block), &vec![0xa5; self.geom.node_size]);
    }

    /// Changes a node or a bitmap, and makes its checksum.
    pub fn block(&self, block: Block, f: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.read(block);
        f(&mut bytes);
        seal(&mut bytes);
        self.write(self.geom.byte(block), &bytes);
    }

    /// Changes the map of object numbers, and makes its checksum.
    pub fn ids(&self, f: impl FnOnce(&mut Vec<u8>)) {
        let mut map = self.read(0).split_off(ID_MAP_AT);
        f(&mut map);
        seal(&mut map);
        self.write(ID_MAP_AT as u64, &map);
    }

    /// Turns bits of a block over in its bitmap: whether it is in use, whether it is a node of the tree.
    pub fn bits(&self, block: Block, used: bool, is_tree: bool) {
        let (n, bit) = (block / self.geom.covered(), (block % self.geom.covered()) as usize);
        self.block(self.geom.bitmap(n), |bytes| {
            bytes[BITMAP_HEAD + bit / 8] ^= u8::from(used) << (bit % 8);
            bytes[BITMAP_HEAD + self.geom.bit_bytes() + bit / 8] ^= u8::from(is_tree) << (bit % 8);
        });
    }

    /// Changes a head of the log, and makes its checksum.
    pub fn log_head(&self, slot: u64, f: impl FnOnce(&mut LogHead)) {
        let at = self.geom.byte(1) + slot * SECTOR as u64;
        let mut head = LogHead::read_from_bytes(&damage::read(&self.dev, at, LOG_HEAD)).unwrap();
        f(&mut head);
        let crc = crc_without(head.as_bytes(), CRC_AT).unwrap();
        self.write(at, LogHead { crc: crc.into(), ..head }.as_bytes());
    }

    /// Which head of the log is the older one.
    pub fn older_head(&self) -> u64 {
        let seq = |slot| {
            let at = self.geom.byte(1) + slot * SECTOR as u64;
            LogHead::read_from_bytes(&damage::read(&self.dev, at, LOG_HEAD)).unwrap().seq.get()
        };
        u64::from(seq(0) > seq(1))
    }

    pub fn lose_log_head(&self, slot: u64) {
        self.write(self.geom.byte(1) + slot * SECTOR as u64, &[0x77; SECTOR]);
    }

    /// Puts a record of these copies into the log, as a crash leaves it.
    pub fn record(&self, copies: &[(Block, Vec<u8>)]) {
        let seq = damage::read(&self.dev, self.geom.byte(1) + (1 - self.older_head()) * SECTOR as u64, LOG_HEAD);
        let seq = LogHead::read_from_bytes(&seq).unwrap().seq.get();
        let (magic, count) = (RECORD_MAGIC.into(), (copies.len() as u32).into());
        let head = Record { magic, count, fsid: self.geom.fsid.into(), seq: seq.into(), hash: 0.into() };
        let mut bytes = head.as_bytes().to_vec();
        copies.iter().for_each(|(block, _)| bytes.extend(block.to_le_bytes()));
        bytes.resize(self.geom.node_size, 0);
        copies.iter().for_each(|(_, copy)| bytes.extend(copy));
        let hash = arbor_base::layout::hash((self.geom.fsid, seq), &bytes);
        put(&mut bytes, 0, Record { hash: hash.into(), ..head }.as_bytes());
        self.write(self.geom.byte(2), &bytes);
    }

    /// The first block of the volume with another superblock.
    pub fn first_block(&self, f: impl FnOnce(&mut SuperBlock)) -> Vec<u8> {
        let mut sb = self.sb();
        f(&mut sb);
        let mut bytes = self.read(0);
        put(&mut bytes, 0, &arbor_kit::head::encode(&sb));
        bytes
    }

    // The tree as it is on the image.

    pub fn content(&self, block: Block, level: u16) -> Content {
        Content::decode(self.shape(), block, level, &Arc::new(self.read(block))).unwrap()
    }

    /// All nodes of the tree: level and block, from the root on.
    pub fn nodes(&self) -> Vec<(u16, Block)> {
        let (root, height) = self.root();
        let (mut all, mut next) = (vec![(height, root)], 0);
        while let Some((level, block)) = all.get(next).copied() {
            if let Content::Internal(children) = self.content(block, level) {
                all.extend(children.iter().map(|c| (level - 1, c.1)));
            }
            next += 1;
        }
        all
    }

    /// Nodes of a level.
    pub fn level(&self, level: u16) -> Vec<Block> {
        self.nodes().into_iter().filter(|n| n.0 == level).map(|n| n.1).collect()
    }

    pub fn internal(&self) -> Vec<Block> {
        self.nodes().into_iter().filter(|n| n.0 > 1).map(|n| n.1).collect()
    }

    /// Formatted nodes that were freed.
    pub fn stale(&self) -> Vec<Block> {
        let used: BTreeSet<Block> = self.level(1).into_iter().collect();
        let is_stale = |block: &Block| {
            let bytes = self.read(*block);
            !used.contains(block) && Content::decode(self.shape(), *block, 1, &Arc::new(bytes)).is_ok()
        };
        (self.geom.bitmap(0) + 1..self.geom.copy()).filter(is_stale).collect()
    }

    pub fn items_in(&self, leaf: Block) -> Vec<Item> {
        match self.content(leaf, 1) {
            Content::Leaf(items) => items,
            Content::Internal(_) => unreachable!(),
        }
    }

    /// All items, in order.
    pub fn items(&self) -> Vec<Item> {
        self.level(1).into_iter().flat_map(|leaf| self.items_in(leaf)).collect()
    }

    /// Changes the items of the node in which a key lies, in their place and as they come.
    pub fn leaf(&self, key: Key, f: impl FnOnce(&mut Vec<Item>)) {
        let block = tree::descend(&mut &*self, key).unwrap().0;
        let mut items = self.items_in(block);
        f(&mut items);
        let generation = self.sb().generation.get();
        assert!(items.iter().map(Shape::cost).sum::<usize>() <= self.shape().room(), "no room in node {block}");
        let mut bytes = Content::Leaf(items).encode(self.shape(), block, 1, generation);
        seal(&mut bytes);
        self.write(self.geom.byte(block), &bytes);
    }

    /// Changes the item of a key.
    pub fn item(&self, key: Key, f: impl FnOnce(&mut Item)) {
        self.leaf(key, |items| f(items.iter_mut().rfind(|i| i.key <= key && i.key.is_of_same(key)).unwrap()));
    }

    /// Where the item of a key is.
    pub fn place(&self, key: Key) -> Place {
        let (leaf, _) = tree::descend(&mut &*self, key).unwrap();
        let (items, at) = (self.items_in(leaf), self.geom.byte(leaf));
        let n = items.iter().rposition(|i| i.key <= key && i.key.is_of_same(key)).unwrap();
        let after: usize = items[..=n].iter().map(|i| i.body.len()).sum();
        let (head, body) = (NODE_HEAD + n * ITEM_HEAD, self.geom.node_size - after);
        Place { leaf, head: at + head as u64, body: at + body as u64 }
    }

    /// Writes into a node at a byte of the device, and makes its checksum.
    pub fn patch(&self, block: Block, at: u64, new: &[u8]) {
        let at = (at - self.geom.byte(block)) as usize;
        self.block(block, |bytes| bytes[at..at + new.len()].copy_from_slice(new));
    }

    fn plan(&self, key: Key, f: impl FnOnce(&mut Vec<Item>)) {
        let mut at = self;
        let plan = tree::plan_edit(&mut at, key, f).unwrap();
        let mut taken = Taken::default();
        plan.allocate(&mut taken, |_| Ok(self.take())).unwrap();
        plan.carry_out(&taken, &mut at);
    }

    /// Takes a free block.
    fn take(&self) -> Block {
        let is_free = |block: &Block| {
            let (n, bit) = (block / self.geom.covered(), block % self.geom.covered());
            n < self.sb().bitmaps.get()
                && self.geom.is_node(*block)
                && bitmap::is_free(&self.read(self.geom.bitmap(n))[BITMAP_HEAD..], bit)
        };
        let block = (0..self.geom.copy() - self.next.get()).rev().find(is_free).unwrap();
        self.bits(block, true, true);
        self.superblock(0, |sb| sb.free = (sb.free.get() - 1).into());
        block
    }

    pub fn insert(&self, piece: Item) {
        let shape = self.shape();
        self.plan(piece.key, |items| tree::put(shape, items, piece));
    }

    /// Removes the units from one key to before another one.
    pub fn cut(&self, from: Key, to: Key) {
        let shape = self.shape();
        while let Some(found) = tree::seek(&mut &*self, from).unwrap() {
            let item = found.item().unwrap();
            let key = arbor_reiserfs::item::ops(item.key, shape.node_size).unwrap().key_of(item, found.unit);
            if key >= to {
                return;
            }
            self.plan(key, |items| drop(tree::cut(shape, items, from, to)));
        }
    }

    // Objects.

    pub fn key(&self, path: &str, offset: u64, kind: Kind) -> Key {
        let (locality, object) = key_of(self.ino(path));
        Key::new(locality, object, offset, kind)
    }

    /// Names in a directory: name, object, key.
    pub fn names(&self, dir: Ino) -> Vec<(String, Ino, Key)> {
        let is_own = |item: &Item| ino_of(item.key.locality(), item.key.object()) == dir;
        let mut all = Vec::new();
        for item in self.items().iter().filter(|i| is_own(i) && i.key.kind() == Some(Kind::Directory)) {
            all.extend(entries(&item.body).map(|(_, head, name)| {
                let name = String::from_utf8(name.to_vec()).unwrap();
                (name, ino_of(head.locality.get(), head.object.get()), item.key.at(head.offset.get()))
            }));
        }
        all
    }

    /// The object of a path, and the key of its name.
    pub fn find(&self, path: &str) -> (Ino, Key) {
        let down = |at: (Ino, Key), name: &str| {
            let found = self.names(at.0).into_iter().find(|e| e.0 == name);
            found.map(|e| (e.1, e.2)).unwrap_or_else(|| panic!("no {path}"))
        };
        path.split('/').filter(|n| !n.is_empty()).fold((ROOT, Key::LEAST), down)
    }

    pub fn ino(&self, path: &str) -> Ino {
        self.find(path).0
    }

    pub fn stat_of(&self, ino: Ino) -> StatData {
        let (locality, object) = key_of(ino);
        let key = Key::new(locality, object, 0, Kind::StatData);
        let found = tree::find(&mut &*self, key).unwrap().unwrap();
        stat::decode(&found.item().unwrap().body).unwrap()
    }

    /// Changes stat data; as far as can be in their length, for the leaf may be full.
    pub fn stat(&self, path: &str, f: impl FnOnce(&mut StatData)) {
        self.item(self.key(path, 0, Kind::StatData), |item| {
            let mut d = stat::decode(&item.body).unwrap();
            f(&mut d);
            let mut body = stat::encode(&d, true, item.body.len());
            while body.len() > item.body.len() && body.last() == Some(&0) {
                body.pop();
            }
            item.body = body.into();
        });
    }

    /// Changes the head of an entry.
    pub fn entry(&self, path: &str, f: impl FnOnce(&mut EntryHead)) {
        let (_, key) = self.find(path);
        self.item(key, |item| {
            let (at, mut head, _) = entries(&item.body).find(|e| e.1.offset.get() == key.offset()).unwrap();
            f(&mut head);
            put(&mut item.body, at, head.as_bytes());
        });
    }

    /// Makes an entry for an object, and adds its length to the directory.
    pub fn name(&self, dir: &str, name: &[u8], ino: Ino, kind: u8) {
        let (first, known) = (self.geom.name_offset(name), self.names(self.ino(dir)));
        let offset = (first..first + 256).find(|offset| known.iter().all(|e| e.2.offset() != *offset)).unwrap();
        let (locality, object) = key_of(ino);
        let (locality, object) = (locality.into(), object.into());
        let head = EntryHead { offset: offset.into(), locality, object, kind, len: name.len() as u8 };
        let body = [head.as_bytes(), name].concat();
        self.stat(dir, |d| d.size = (d.size.get() + body.len() as u64).into());
        self.insert(Item { key: self.key(dir, offset, Kind::Directory), tail: 0, body: body.into() });
    }

    /// Removes the entry of a path.
    pub fn unname(&self, path: &str) {
        let (dir, name) = path.rsplit_once('/').unwrap();
        let (_, key) = self.find(path);
        self.cut(key, key.at(key.offset() + 1));
        self.stat(dir, |d| d.size = (d.size.get() - (ENTRY_HEAD + name.len()) as u64).into());
    }

    /// A pointer of a file.
    pub fn pointer(&self, path: &str, lbn: u64) -> Block {
        let key = self.key(path, self.geom.byte(lbn as u32), Kind::Indirect);
        let found = tree::find(&mut &*self, key).unwrap().unwrap();
        get_u32(&found.item().unwrap().body, found.unit * 4).unwrap()
    }

    pub fn set_pointer(&self, path: &str, lbn: u64, to: Block) {
        let (key, node) = (self.key(path, self.geom.byte(lbn as u32), Kind::Indirect), self.geom.node_size as u64);
        self.item(key, |item| {
            let n = (key.offset() - item.key.offset()) / node;
            put_u32(&mut item.body, n as usize * 4, to);
        });
    }

    /// Where pointers of a formatted node lead.
    pub fn pointers_in(&self, leaf: Block) -> Vec<Block> {
        let is_indirect = |item: &Item| item.key.kind() == Some(Kind::Indirect);
        let words = |item: Item| (0..item.body.len() / 4).map(move |n| get_u32(&item.body, n * 4).unwrap());
        self.items_in(leaf).into_iter().filter(is_indirect).flat_map(words).filter(|to| *to != 0).collect()
    }

    /// Unformatted nodes of a file.
    pub fn blocks_of(&self, path: &str) -> BTreeSet<Block> {
        let (locality, object) = key_of(self.ino(path));
        let is_own = |item: &Item| (item.key.locality(), item.key.object()) == (locality, object);
        let own = self.items().into_iter().filter(|i| is_own(i) && i.key.kind() == Some(Kind::Indirect));
        own.flat_map(|i| (0..i.body.len() / 4).map(move |n| get_u32(&i.body, n * 4).unwrap()))
            .filter(|to| *to != 0)
            .collect()
    }

    /// Objects and names of which a formatted node holds something.
    pub fn held_by(&self, leaf: Block) -> (BTreeSet<Ino>, BTreeSet<(Ino, Vec<u8>)>) {
        let (mut objects, mut names) = (BTreeSet::new(), BTreeSet::new());
        for item in self.items_in(leaf) {
            let ino = ino_of(item.key.locality(), item.key.object());
            match item.key.kind() {
                Some(Kind::Directory) => names.extend(entries(&item.body).map(|e| (ino, e.2.to_vec()))),
                _ => drop(objects.insert(ino)),
            }
        }
        (objects, names)
    }
}

impl Nodes for &Knife {
    fn shape(&self) -> Shape {
        Shape { node_size: self.geom.node_size, fsid: self.geom.fsid }
    }

    fn root(&self) -> (Block, u16) {
        (self.sb().root.get(), self.sb().height.get() as u16)
    }

    fn read(&mut self, block: Block, level: u16) -> Result<Arc<Content>> {
        Ok(Arc::new(self.content(block, level)))
    }

    fn is_cached(&self, _block: Block) -> bool {
        true
    }
}

impl Room for &Knife {
    fn write(&mut self, block: Block, level: u16, content: Content) {
        let generation = self.sb().generation.get() + 1;
        let mut bytes = content.encode(self.shape(), block, level, generation);
        seal(&mut bytes);
        Knife::write(self, self.geom.byte(block), &bytes);
    }

    fn free(&mut self, block: Block) {
        self.bits(block, true, true);
        self.superblock(0, |sb| sb.free = (sb.free.get() + 1).into());
    }

    fn set_root(&mut self, block: Block, level: u16) {
        self.superblock(0, |sb| (sb.root, sb.height) = (block.into(), u32::from(level).into()));
    }
}

impl Knife {
    pub fn shape(&self) -> Shape {
        Nodes::shape(&self)
    }

    pub fn root(&self) -> (Block, u16) {
        Nodes::root(&self)
    }
}

/// Numbers that look drawn.
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

pub fn file(fs: &dyn FileSystem, dir: Ino, name: &str, at: u64, data: &[u8]) -> Ino {
    let ino = match fs.lookup(dir, name.as_bytes()) {
        Ok(e) => e.ino,
        Err(_) => fs.mknod(&CX, dir, name.as_bytes(), mode::IFREG | 0o644, 0).unwrap().ino,
    };
    assert_eq!(fs.write(ino, at, data).unwrap(), data.len());
    ino
}

/// A volume with something of everything; with small nodes its tree has three levels.
pub fn build(size: u64, options: &str) -> MemDevice {
    let dev = format(size, options);
    let fs = mount(&dev);
    fill(&*fs, Knife::new(dev.clone()).geom.node_size);
    fs.unmount().unwrap();
    dev
}

/// Puts something of everything on a volume whose nodes have this size.
pub fn fill(fs: &dyn FileSystem, node: usize) {
    let root = fs.root();
    let mkdir = |dir, name: &str| fs.mkdir(&CX, dir, name.as_bytes(), 0o755).unwrap().ino;
    let (a, b) = (mkdir(root, "a"), mkdir(root, "b"));
    let small = file(fs, a, "small", 0, &bytes(100, 1));
    fs.link(small, b, b"hard").unwrap();
    file(fs, a, "empty", 0, b"");
    file(fs, a, "tail", 0, &bytes(node + node / 8, 2));
    fs.symlink(&CX, a, b"fast", b"some/where/else").unwrap();
    fs.symlink(&CX, a, b"slow", &bytes(200, 4)).unwrap();
    fs.mknod(&CX, a, b"null", mode::IFCHR | 0o666, 0x103).unwrap();
    fs.mknod(&CX, a, b"pipe", mode::IFIFO | 0o600, 0).unwrap();
    let subsub = mkdir(mkdir(a, "sub"), "subsub");
    file(fs, subsub, "leaf", 0, &bytes(5000, 5));
    file(fs, b, "big", 0, &bytes(node * 30 - 5, 6));
    for (k, lbn) in (7..).zip([3u64, 14, 700, 1 << 30]) {
        file(fs, b, "sparse", lbn * node as u64, &bytes(node, k));
    }
    let heavy = file(fs, b, "heavy", 0, &bytes(10, 20));
    fs.setxattr(heavy, b"user.one", &bytes(300, 21), XattrMode::Set).unwrap();
    fs.setxattr(heavy, b"user.two", b"2", XattrMode::Set).unwrap();
    let laden = file(fs, b, "laden", 0, b"");
    fs.setxattr(laden, b"user.long", &bytes(2 * node, 22), XattrMode::Set).unwrap();
    let many = mkdir(root, "many");
    for i in 0..node / 3 {
        file(fs, many, &format!("file number {i:-<60}"), 0, &bytes(i % 3, 1 + i as u32));
    }
    let wide = mkdir(root, "wide");
    (0..20).for_each(|i| assert!(mkdir(wide, &i.to_string()) > wide));
    // Some of what is freed leaves nodes of the tree behind, which hold it still.
    let gone: Vec<String> = (0..40).map(|i| format!("gone {i}")).collect();
    let dir = mkdir(root, "gone");
    for name in &gone {
        file(fs, dir, name, 0, &bytes(700, 30));
    }
    fs.syncfs().unwrap();
    for name in &gone {
        let ino = fs.lookup(dir, name.as_bytes()).unwrap().ino;
        fs.unlink(dir, name.as_bytes()).unwrap();
        fs.forget(ino, 9);
    }
}

/// The block of a file holds a node that was once there, so that all but the bitmap speaks for it.
pub fn node_in_a_file() {
    for bitmap in [false, true] {
        let image = build(12 << 20, "block=1K,log=512K");
        let k = Knife::new(image.clone());
        let (stale, old) = (k.stale()[0], k.pointer("/b/big", 12));
        k.bits(stale, true, false);
        k.bits(old, true, false);
        k.set_pointer("/b/big", 12, stale);
        assert_eq!(check(&image, Repair::No).issues, vec![]);
        let good = tree(&image);
        k.destroy(k.root().0);
        if bitmap {
            k.destroy(k.geom.bitmap(0));
        }
        let report = check(&image, Repair::Yes);
        assert_eq!(report.remaining(), 0, "{:#?}", report.issues);
        assert_eq!(check(&image, Repair::No).issues, vec![], "{:#?}", report.issues);
        let now = tree(&image);
        assert!(good.iter().all(|(path, item)| now.get(path) == Some(item)), "{bitmap}: {:#?}", report.issues);
        assert!(bitmap || now == good, "{:#?}", report.issues);
    }
}
