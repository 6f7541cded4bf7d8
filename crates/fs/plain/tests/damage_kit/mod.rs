//! A volume with something of everything, and what damages it.
#![allow(dead_code, reason = "each test uses a part")]

use arbor_base::device::{Device, Kind, MemDevice};
use arbor_base::layout::{get_u16, get_u32};
use arbor_base::vfs::*;
use arbor_plain::Plain;
use arbor_plain::format::*;
use arbor_torture::damage::{self, Tree, bytes};
use zerocopy::{FromBytes, IntoBytes};

const CX: Cx = Cx { uid: 0, gid: 0 };

pub struct ImageCorruptor {
    pub dev: MemDevice,
    pub geom: Geom,
}

impl ImageCorruptor {
    pub fn new(dev: MemDevice) -> ImageCorruptor {
        let mut bytes = vec![0; SECTOR];
        dev.read_at(Kind::Super, 0, &mut bytes).unwrap();
        ImageCorruptor { geom: Geom::of(&SuperBlock::read_from_bytes(&bytes).unwrap()), dev }
    }

    pub fn write(&self, at: u64, new: &[u8]) {
        damage::write(&self.dev, at, new);
    }

    pub fn flip(&self, at: u64) {
        damage::flip(&self.dev, at);
    }

    /// Changes a superblock, and makes its checksum.
    pub fn superblock(&self, block: u32, f: impl FnOnce(&mut SuperBlock)) {
        let mut sb = SuperBlock::read_from_bytes(&damage::read(&self.dev, byte(block), SECTOR)).unwrap();
        f(&mut sb);
        self.write(byte(block), &arbor_kit::head::encode(&sb));
    }

    pub fn inode_at(&self, ino: u64) -> u64 {
        let (block, at) = self.geom.inode_at(Ino(ino)).unwrap();
        byte(block) + at as u64
    }

    pub fn get(&self, ino: u64) -> Dinode {
        Dinode::read_from_bytes(&damage::read(&self.dev, self.inode_at(ino), INODE)).unwrap()
    }

    /// Changes an inode, and makes its checksum.
    pub fn inode(&self, ino: u64, f: impl FnOnce(&mut Dinode)) {
        let mut d = self.get(ino);
        f(&mut d);
        d.crc = d.checksum(self.geom.fsid).into();
        self.write(self.inode_at(ino), d.as_bytes());
    }

    /// Changes a block with a head, and makes its checksum.
    pub fn headed(&self, block: u32, f: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = damage::read(&self.dev, byte(block), BLOCK);
        f(&mut bytes);
        seal(&mut bytes);
        self.write(byte(block), &bytes);
    }

    /// Turns a bit of a bitmap over.
    pub fn bit(&self, bitmap: u32, n: u32) {
        self.headed(bitmap + n / BITS, |bytes| bytes[HEAD + (n % BITS) as usize / 8] ^= 1 << (n % 8));
    }

    /// Entries of the first blocks of a directory: name, inode, byte of the volume.
    fn list(&self, ino: u64) -> Vec<(String, u64, u64)> {
        let mut all = Vec::new();
        for block in self.get(ino).map.iter().take(12).map(|p| p.get()).filter(|p| *p != 0) {
            for n in 0..(BLOCK / DIRBLKSIZ) as u64 {
                let base = byte(block) + n * DIRBLKSIZ as u64;
                let (chunk, mut at) = (damage::read(&self.dev, base, DIRBLKSIZ), 0);
                while at < DIRBLKSIZ {
                    let name = &chunk[at + 8..][..usize::from(chunk[at + 7])];
                    let target = get_u32(&chunk, at).unwrap().into();
                    if target != 0 {
                        all.push((String::from_utf8(name.to_vec()).unwrap(), target, base + at as u64));
                    }
                    at += usize::from(get_u16(&chunk, at + 4).unwrap());
                }
            }
        }
        all
    }

    /// The inode of a path, and the byte where its entry begins.
    pub fn find(&self, path: &str) -> (u64, u64) {
        let down = |at: (u64, u64), name: &str| {
            let found = self.list(at.0).into_iter().find(|e| e.0 == name);
            found.map(|e| (e.1, e.2)).unwrap_or_else(|| panic!("no {path}"))
        };
        path.split('/').filter(|n| !n.is_empty()).fold((ROOT.0, 0), down)
    }

    pub fn ino(&self, path: &str) -> u64 {
        self.find(path).0
    }

    /// Changes bytes of the entry at a path, from its byte `at`.
    pub fn name(&self, path: &str, at: u64, new: &[u8]) {
        self.write(self.find(path).1 + at, new);
    }

    /// Byte of a block of a file that has a direct pointer.
    pub fn block(&self, path: &str, lbn: usize) -> u64 {
        byte(self.get(self.ino(path)).map[lbn].get())
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

/// A volume with something of everything.
pub fn build(size: u64, options: &str) -> MemDevice {
    let dev = damage::format(&Plain, size, options);
    let fs = damage::mount(&Plain, dev.clone());
    let (fs, root) = (&*fs, fs.root());
    let mkdir = |dir, name: &str| fs.mkdir(&CX, dir, name.as_bytes(), 0o755).unwrap().ino;
    let (a, b) = (mkdir(root, "a"), mkdir(root, "b"));
    let small = put(fs, a, "small", 0, &bytes(100, 1));
    fs.link(small, b, b"hard").unwrap();
    put(fs, a, "tail", 0, &bytes(5000, 2));
    fs.symlink(&CX, a, b"fast", b"some/where/else").unwrap();
    fs.symlink(&CX, a, b"slow", &bytes(200, 4)).unwrap();
    fs.mknod(&CX, a, b"null", mode::IFCHR | 0o666, 0x103).unwrap();
    let subsub = mkdir(mkdir(a, "sub"), "subsub");
    put(fs, subsub, "leaf", 0, &bytes(5000, 5));
    put(fs, b, "big", 0, &bytes(BLOCK * 30 - 5, 6));
    for (k, lbn) in (7..).zip([3, 14, DIRECT + POINTERS + 2, DIRECT + POINTERS + POINTERS * POINTERS + 7]) {
        put(fs, b, "sparse", lbn * BLOCK as u64, &bytes(BLOCK, k));
    }
    let heavy = put(fs, b, "heavy", 0, &bytes(10, 20));
    fs.setxattr(heavy, b"user.one", &bytes(300, 21), XattrMode::Set).unwrap();
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
    fs.unmount().unwrap();
    dev
}

/// All files of a volume.
pub fn tree(dev: &MemDevice) -> Tree {
    damage::tree(&Plain, dev)
}
