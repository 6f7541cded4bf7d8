//! A volume with something of everything, and what damages it.
#![allow(dead_code, reason = "each test uses a part")]

use arbor_base::device::{Device, Kind as Request, MemDevice};
use arbor_base::vfs::*;
use arbor_reiserfs::ReiserFs;
use arbor_reiserfs::format::*;
use arbor_reiserfs::item::entries;
use arbor_reiserfs::node::{Block, Content, Shape, head};
use arbor_torture::damage::{self, Tree, bytes};
use zerocopy::{FromBytes, IntoBytes};

const CX: Cx = Cx { uid: 0, gid: 0 };

pub struct ImageCorruptor {
    pub dev: MemDevice,
    pub geom: Geom,
}

/// An item in its node.
pub struct Found {
    /// The formatted node.
    pub leaf: Block,
    /// Byte of the device where its head begins.
    pub head: u64,
    /// Byte of the device where its body begins.
    pub body: u64,
    pub key: Key,
    pub bytes: Vec<u8>,
}

impl ImageCorruptor {
    pub fn new(dev: MemDevice) -> ImageCorruptor {
        let mut bytes = vec![0; SECTOR];
        dev.read_at(Request::Super, 0, &mut bytes).unwrap();
        ImageCorruptor { geom: Geom::of(&SuperBlock::read_from_bytes(&bytes).unwrap()), dev }
    }

    pub fn write(&self, at: u64, new: &[u8]) {
        damage::write(&self.dev, at, new);
    }

    pub fn flip(&self, at: u64) {
        damage::flip(&self.dev, at);
    }

    pub fn read(&self, block: Block) -> Vec<u8> {
        damage::read(&self.dev, self.geom.byte(block), self.geom.node_size)
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

    /// Changes the map of object numbers, and makes its checksum.
    pub fn ids(&self, f: impl FnOnce(&mut [u8])) {
        let mut map = self.read(0).split_off(ID_MAP_AT);
        f(&mut map);
        seal(&mut map);
        self.write(ID_MAP_AT as u64, &map);
    }

    /// Changes a block with a head, and makes its checksum.
    pub fn headed(&self, block: Block, f: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.read(block);
        f(&mut bytes);
        seal(&mut bytes);
        self.write(self.geom.byte(block), &bytes);
    }

    /// Turns the bit of a block over that says that it is in use.
    pub fn bit(&self, block: Block) {
        let (n, bit) = (block / self.geom.covered(), block % self.geom.covered());
        self.headed(self.geom.bitmap(n), |bytes| bytes[BITMAP_HEAD + bit as usize / 8] ^= 1 << (bit % 8));
    }

    pub fn root(&self) -> Block {
        self.sb().root.get()
    }

    /// All formatted nodes, in order.
    pub fn leaves(&self) -> Vec<Block> {
        let sb = self.sb();
        let mut all = vec![self.root()];
        for _ in 1..sb.height.get() {
            all = all.into_iter().flat_map(|block| self.children(block)).collect();
        }
        all
    }

    fn content(&self, block: Block) -> Content {
        let (bytes, shape) = (self.read(block), Shape { node_size: self.geom.node_size, fsid: self.geom.fsid });
        Content::decode(shape, block, head(&bytes).level.get(), &bytes).unwrap()
    }

    pub fn children(&self, block: Block) -> Vec<Block> {
        match self.content(block) {
            Content::Internal(all) => all.into_iter().map(|c| c.1).collect(),
            Content::Leaf(_) => Vec::new(),
        }
    }

    /// All items of a node.
    pub fn items(&self, leaf: Block) -> Vec<Found> {
        let Content::Leaf(items) = self.content(leaf) else { return Vec::new() };
        let (at, mut end) = (self.geom.byte(leaf), self.geom.node_size);
        let heads = (at + NODE_HEAD as u64..).step_by(ITEM_HEAD);
        let found = heads.zip(items).map(|(head, item)| {
            end -= item.body.len();
            Found { leaf, head, body: at + end as u64, key: item.key, bytes: item.body }
        });
        found.collect()
    }

    /// The items of an object, in order.
    pub fn items_of(&self, ino: Ino) -> Vec<Found> {
        let all = self.leaves().into_iter().flat_map(|leaf| self.items(leaf));
        all.filter(|i| (i.key.locality(), i.key.object()) == key_of(ino)).collect()
    }

    /// The first item of a kind that an object has.
    pub fn item(&self, ino: Ino, kind: Kind) -> Found {
        self.items_of(ino).into_iter().find(|i| i.key.kind() == Some(kind)).expect("such an item")
    }

    /// Writes into a formatted node at a byte of the device, and makes its checksum.
    pub fn patch(&self, leaf: Block, at: u64, new: &[u8]) {
        let at = (at - self.geom.byte(leaf)) as usize;
        self.headed(leaf, |bytes| bytes[at..at + new.len()].copy_from_slice(new));
    }

    /// Changes the stat data of an object; returns the byte of its item's head.
    pub fn stat(&self, ino: Ino, f: impl FnOnce(&mut StatData)) -> u64 {
        let item = self.item(ino, Kind::StatData);
        let mut d = StatData::read_from_bytes(&item.bytes).unwrap();
        f(&mut d);
        self.patch(item.leaf, item.body, d.as_bytes());
        item.head
    }

    /// Entries of a directory: name, what it names, offset, byte of the device, formatted node.
    pub fn list(&self, dir: Ino) -> Vec<(String, Ino, u64, u64, Block)> {
        let items = self.items_of(dir).into_iter().filter(|i| i.key.kind() == Some(Kind::Directory));
        let each = |i: Found| {
            let all = entries(&i.bytes).map(|(at, head, name)| {
                let ino = ino_of(head.locality.get(), head.object.get());
                let name = String::from_utf8(name.to_vec()).unwrap();
                (name, ino, head.offset.get(), i.body + at as u64, i.leaf)
            });
            all.collect::<Vec<_>>()
        };
        items.flat_map(each).collect()
    }

    /// The directory, and the entry, of a path.
    pub fn find(&self, path: &str) -> (Ino, (String, Ino, u64, u64, Block)) {
        let (above, name) = path.rsplit_once('/').unwrap();
        let dir = self.ino(above);
        let found = self.list(dir).into_iter().find(|e| e.0 == name);
        (dir, found.unwrap_or_else(|| panic!("no {path}")))
    }

    pub fn ino(&self, path: &str) -> Ino {
        if path.is_empty() { ROOT } else { self.find(path).1.1 }
    }
}

fn put(fs: &dyn FileSystem, dir: Ino, name: &str, at: u64, data: &[u8]) -> Ino {
    let ino = match fs.lookup(dir, name.as_bytes()) {
        Ok(e) => e.ino,
        Err(_) => fs.mknod(&CX, dir, name.as_bytes(), mode::IFREG | 0o644, 0).unwrap().ino,
    };
    assert_eq!(fs.write(ino, at, data).unwrap(), data.len());
    ino
}

/// Puts something of everything on a volume whose nodes have this size.
pub fn fill(fs: &dyn FileSystem, node: usize) {
    let root = fs.root();
    let mkdir = |dir, name: &str| fs.mkdir(&CX, dir, name.as_bytes(), 0o755).unwrap().ino;
    let (a, b) = (mkdir(root, "a"), mkdir(root, "b"));
    let small = put(fs, a, "small", 0, &bytes(100, 1));
    fs.link(small, b, b"hard").unwrap();
    put(fs, a, "tail", 0, &bytes(node + 100, 2));
    fs.symlink(&CX, a, b"fast", b"some/where/else").unwrap();
    fs.symlink(&CX, a, b"slow", &bytes(200, 4)).unwrap();
    fs.mknod(&CX, a, b"null", mode::IFCHR | 0o666, 0x103).unwrap();
    let subsub = mkdir(mkdir(a, "sub"), "subsub");
    put(fs, subsub, "leaf", 0, &bytes(5000, 5));
    put(fs, b, "big", 0, &bytes(node * 30 - 5, 6));
    for (k, lbn) in (7..).zip([3, 14, 1200, 70_000]) {
        put(fs, b, "sparse", lbn * node as u64, &bytes(node, k));
    }
    let heavy = put(fs, b, "heavy", 0, &bytes(10, 20));
    fs.setxattr(heavy, b"user.one", &bytes(300, 21), XattrMode::Set).unwrap();
    fs.setxattr(heavy, b"user.two", &bytes(2 * node, 22), XattrMode::Set).unwrap();
    let many = mkdir(root, "many");
    for i in 0..80 {
        put(fs, many, &format!("file number {i:-<60}"), 0, &bytes(i % 3, 1 + i as u32));
    }
    let wide = mkdir(root, "wide");
    (0..20).for_each(|i| assert!(mkdir(wide, &i.to_string()) > wide));
    for name in ["gone 1", "gone 2"] {
        let ino = put(fs, root, name, 0, &bytes(3000, 30));
        fs.unlink(root, name.as_bytes()).unwrap();
        fs.forget(ino, 3);
    }
}

/// A volume with something of everything.
pub fn build(size: u64, options: &str) -> MemDevice {
    let dev = damage::format(&ReiserFs, size, options);
    let node = ImageCorruptor::new(dev.clone()).geom.node_size;
    let fs = damage::mount(&ReiserFs, dev.clone());
    fill(&*fs, node);
    fs.unmount().unwrap();
    dev
}

/// All files of a volume.
pub fn tree(dev: &MemDevice) -> Tree {
    damage::tree(&ReiserFs, dev)
}
