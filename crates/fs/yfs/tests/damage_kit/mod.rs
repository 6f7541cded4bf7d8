//! A good volume with something of everything, and a way to damage it with checksums right again.
#![allow(dead_code)]

use arbor_base::device::{Device, Kind, MemDevice};
use arbor_base::layout::get_u64;
use arbor_base::vfs::*;
use arbor_torture::damage;
use arbor_yfs::Yfs;
use arbor_yfs::format::*;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use zerocopy::{FromBytes, IntoBytes};

pub const CX: Cx = Cx { uid: 1000, gid: 100 };
/// Files of the full directory: enough that the tree of inode chunks has more than one node.
pub const CROWD: usize = 4200;

/// What lies at a path: kind and permissions, and a digest of the contents.
pub type Tree = BTreeMap<String, (u32, u64)>;

pub fn format(size: u64, options: &str) -> MemDevice {
    let device = MemDevice::new(size);
    let o = FormatOptions {
        label: "test".into(),
        uuid: *b"arboretum-yfs-tt",
        now: Time { secs: 1_000_000, nanos: 0 },
        options: Options::parse(options),
        ..FormatOptions::default()
    };
    Yfs.format(Devices::single(device.clone()), &o).expect("format");
    device
}

pub fn mount(device: &MemDevice) -> Arc<dyn FileSystem> {
    damage::mount(&Yfs, device.clone())
}

pub fn check(device: &MemDevice, repair: Repair) -> CheckReport {
    damage::check(&Yfs, device.clone(), repair)
}

pub fn bytes(n: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..n).map(|_| next()).collect()
}

fn file(fs: &dyn FileSystem, dir: Ino, name: &str, data: &[u8]) -> Ino {
    let ino = fs.mknod(&CX, dir, name.as_bytes(), mode::IFREG | 0o644, 0).expect("mknod").ino;
    let mut at = 0;
    while at < data.len() {
        at += fs.write(ino, at as u64, &data[at..]).expect("write");
    }
    ino
}

/// A file of many extents with holes between them.
fn holey(fs: &dyn FileSystem, dir: Ino, name: &str, pieces: u64) -> Ino {
    let ino = fs.mknod(&CX, dir, name.as_bytes(), mode::IFREG | 0o644, 0).expect("mknod").ino;
    for n in 0..pieces {
        fs.write(ino, n * 16384, &bytes(4096, n)).expect("write");
    }
    ino
}

/// Fills a volume with something of everything.
pub fn populate(fs: &dyn FileSystem) {
    let root = fs.root();
    let mkdir = |at, name: &str| fs.mkdir(&CX, at, name.as_bytes(), 0o755).expect("mkdir").ino;
    let (a, b) = (mkdir(root, "a"), mkdir(root, "b"));
    let deep = mkdir(mkdir(mkdir(a, "x"), "y"), "z");
    file(fs, deep, "leaf", b"at the end");
    file(fs, a, "inline", b"small");
    file(fs, a, "empty", b"");
    let linked = file(fs, a, "linked", &bytes(5000, 1));
    fs.link(linked, b, b"second").expect("link");
    file(fs, b, "large", &bytes(300_000, 2));
    file(fs, b, "odd", &bytes(5000, 7));
    holey(fs, b, "few", 4);
    holey(fs, b, "holey", 150);
    fs.symlink(&CX, a, b"short", b"inline").expect("symlink");
    fs.symlink(&CX, a, b"long", &[b'q'; 900]).expect("symlink");
    fs.mknod(&CX, a, b"pipe", mode::IFIFO | 0o600, 0).expect("mknod");
    fs.mknod(&CX, a, b"disk", mode::IFBLK | 0o600, 0x801).expect("mknod");
    let marked = file(fs, a, "marked", b"with attributes");
    fs.setxattr(marked, b"user.small", b"here", XattrMode::Set).expect("setxattr");
    let heavy = file(fs, a, "heavy", b"with many");
    fs.setxattr(heavy, b"user.big", &bytes(3000, 3), XattrMode::Set).expect("setxattr");
    let room = file(fs, b, "room", &bytes(9000, 4));
    fs.fallocate(room, FallocMode::KEEP_SIZE, 0, 100_000).expect("fallocate");
    let many = mkdir(root, "many");
    for n in 0..300 {
        file(fs, many, &format!("file number {n}"), format!("{n}").as_bytes());
    }
    let crowd = mkdir(root, "crowd");
    for n in 0..CROWD {
        fs.mknod(&CX, crowd, format!("{n}").as_bytes(), mode::IFREG | 0o644, 0).expect("mknod");
    }
    for n in 0..4 {
        file(fs, b, &format!("bulk{n}"), &bytes(1_500_000, 10 + n));
    }
    for n in 0..20 {
        let d = mkdir(b, &format!("dir{n}"));
        file(fs, d, "f", &bytes(2000, n));
    }
}

/// The good image, made once.
pub fn good() -> MemDevice {
    static IMAGE: OnceLock<MemDevice> = OnceLock::new();
    let image = IMAGE.get_or_init(|| {
        let device = format(20 << 20, "ag=4M,block=1K,frag=512");
        let fs = mount(&device);
        populate(&*fs);
        fs.unmount().expect("unmount");
        device
    });
    image.snapshot()
}

/// A small good image, for tests that check thousands.
pub fn small() -> MemDevice {
    static IMAGE: OnceLock<MemDevice> = OnceLock::new();
    let image = IMAGE.get_or_init(|| {
        let device = format(4 << 20, "ag=2M,block=1K,frag=512,logsize=700K");
        let fs = mount(&device);
        let root = fs.root();
        let d = fs.mkdir(&CX, root, b"d", 0o755).expect("mkdir").ino;
        for n in 0..60 {
            file(&*fs, d, &format!("a file with a name {n}"), &bytes(n * 40, n as u64));
        }
        holey(&*fs, d, "holey", 60);
        let e = fs.mkdir(&CX, d, b"e", 0o755).expect("mkdir").ino;
        fs.symlink(&CX, e, b"long", &[b'q'; 900]).expect("symlink");
        let x = file(&*fs, e, "x", b"x");
        fs.setxattr(x, b"user.big", &bytes(3000, 3), XattrMode::Set).expect("setxattr");
        fs.unmount().expect("unmount");
        device
    });
    image.snapshot()
}

/// Everything that can be read, by path.
pub fn tree(fs: &dyn FileSystem) -> Tree {
    let mut out = Tree::new();
    let mut todo = vec![(fs.root(), String::new())];
    while let Some((dir, path)) = todo.pop() {
        let mut names = Vec::new();
        fs.readdir(dir, 0, &mut |e| {
            if e.name != b"." && e.name != b".." {
                names.push(e.name.to_vec());
            }
            true
        })
        .unwrap_or_else(|e| panic!("readdir {path}: {e}"));
        for name in names {
            let path = format!("{path}/{}", String::from_utf8_lossy(&name));
            let attr = fs.lookup(dir, &name).unwrap_or_else(|e| panic!("lookup {path}: {e}"));
            let digest = digest(fs, &attr, &path);
            if attr.file_type() == FileType::Dir {
                todo.push((attr.ino, path.clone()));
            }
            out.insert(path, (attr.mode, digest));
        }
    }
    out
}

fn digest(fs: &dyn FileSystem, attr: &Attr, path: &str) -> u64 {
    let mut data = match attr.file_type() {
        FileType::File => {
            // A damaged size may be anything.
            let mut data = vec![0; attr.size.min(4 << 20) as usize];
            let n = fs.read(attr.ino, 0, &mut data).unwrap_or_else(|e| panic!("read {path}: {e}"));
            assert_eq!(n, data.len(), "{path}");
            data
        }
        FileType::Symlink => fs.readlink(attr.ino).unwrap_or_else(|e| panic!("readlink {path}: {e}")),
        _ => Vec::new(),
    };
    let mut names = fs.listxattr(attr.ino).unwrap_or_else(|e| panic!("listxattr {path}: {e}"));
    names.sort();
    for name in names {
        data.extend(fs.getxattr(attr.ino, &name).unwrap_or_else(|e| panic!("getxattr {path}: {e}")));
        data.extend(name);
    }
    data.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

/// The tree of the good image.
pub fn good_tree() -> &'static Tree {
    static TREE: OnceLock<Tree> = OnceLock::new();
    TREE.get_or_init(|| tree(&*mount(&good())))
}

/// Numbers of the inodes of the good image, by path.
pub fn ino(path: &str) -> u64 {
    let fs = mount(&good());
    let parts = path.split('/').filter(|p| !p.is_empty());
    parts.fold(fs.root(), |dir, name| fs.lookup(dir, name.as_bytes()).expect("lookup").ino).0
}

/// An image under the knife.
pub struct ImageCorruptor {
    pub dev: MemDevice,
    pub sb: SuperBlock,
    pub geom: Geom,
}

impl ImageCorruptor {
    pub fn new(dev: MemDevice) -> ImageCorruptor {
        let mut bytes = vec![0; 512];
        dev.read_at(Kind::Super, 0, &mut bytes).expect("read");
        let sb = SuperBlock::read_from_bytes(&bytes).expect("superblock");
        let geom = Geom {
            frag_shift: sb.frag_shift.get(),
            block_shift: sb.block_shift.get(),
            inode_shift: sb.inode_shift.get(),
            ag_frags: sb.ag_frags.get(),
            frags: sb.frags.get(),
            ag_count: sb.ag_count.get(),
            bitmap_blocks: sb.bitmap_blocks.get(),
            fsid: get_u64(&sb.uuid, 0).expect("uuid"),
            hash_seed: sb.hash_seed.get(),
        };
        ImageCorruptor { dev, sb, geom }
    }

    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        damage::read(&self.dev, at, len)
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        damage::write(&self.dev, at, bytes);
    }

    /// Changes bytes; `seal` makes the checksum right again.
    pub fn change(&self, at: u64, len: usize, seal: Option<Seal>, f: impl FnOnce(&mut [u8])) {
        let mut bytes = self.read(at, len);
        f(&mut bytes);
        if let Some(seal) = seal {
            seal.seal(&mut bytes, self.geom.inode_size());
        }
        self.write(at, &bytes);
    }

    pub fn block(&self, at: u64, f: impl FnOnce(&mut [u8])) {
        self.change(at, self.geom.block_size(), Some(Seal::Block), f);
    }

    pub fn raw_inode(&self, ino: u64, f: impl FnOnce(&mut [u8])) {
        self.change(ino * SECTOR, self.geom.inode_size(), Some(Seal::Inodes), f);
    }

    pub fn inode(&self, ino: u64, f: impl FnOnce(&mut Dinode)) {
        self.raw_inode(ino, |b| f(Dinode::mut_from_prefix(b).expect("inode").0));
    }

    pub fn get(&self, ino: u64) -> (Dinode, Vec<u8>) {
        let bytes = self.read(ino * SECTOR, self.geom.inode_size());
        (Dinode::read_from_prefix(&bytes).expect("inode").0, bytes[DINODE..].to_vec())
    }

    pub fn super_block(&self, f: impl FnOnce(&mut SuperBlock)) {
        self.change(0, 512, Some(Seal::Super), |b| f(SuperBlock::mut_from_bytes(b).expect("superblock")));
    }

    /// Byte address of a fragment.
    pub fn byte(&self, frag: u64) -> u64 {
        frag * self.geom.frag_size()
    }

    /// Byte address of the child `n` of a node body.
    pub fn child(&self, body: &[u8], n: usize) -> u64 {
        assert!(body[2] > 0, "an inner node");
        self.byte(get_u64(body, 8 + 16 * n + 8).expect("child"))
    }

    /// Byte address of the first directory block of a directory.
    pub fn dir_block(&self, ino: u64) -> u64 {
        let mut body = self.get(ino).1;
        while body[2] > 0 {
            body = self.read(self.child(&body, 0), self.geom.block_size())[HEADER..].to_vec();
        }
        self.byte(get_u64(&body, 16).expect("block"))
    }

    pub fn ag_of(&self, ino: u64) -> u32 {
        self.geom.ag_of(self.geom.frag_of(Daddr(ino)))
    }

    pub fn super_bytes(&self) -> Vec<u8> {
        self.sb.as_bytes().to_vec()
    }
}
