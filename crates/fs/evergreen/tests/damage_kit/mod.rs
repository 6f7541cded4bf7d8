//! A volume with something of everything, and what damages it. Nothing but the superblock has a fixed place: the knife finds
//! the newest master block and follows its pointers.
#![allow(dead_code, reason = "each test uses a part")]

use arbor_base::device::{Device, Kind, MemDevice};
use arbor_base::layout::{get_u16, get_u32};
use arbor_base::vfs::*;
use arbor_evergreen::Evergreen;
use arbor_evergreen::format::*;
use arbor_torture::damage::{self, Tree, bytes};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

pub const CX: Cx = Cx { uid: 0, gid: 0 };
/// Files of the directory `crowd`. The inodes of the last ones are in blocks of the ifile behind an indirect block.
const CROWD: u32 = 110;

pub struct ImageCorruptor {
    pub dev: MemDevice,
    pub geom: Geom,
    /// Where the newest master block is.
    pub at: u32,
}

impl ImageCorruptor {
    pub fn new(dev: MemDevice) -> ImageCorruptor {
        let mut bytes = vec![0; SECTOR];
        dev.read_at(Kind::Super, 0, &mut bytes).unwrap();
        let geom = Geom::of(&SuperBlock::read_from_bytes(&bytes).unwrap());
        let mut k = ImageCorruptor { dev, geom, at: 0 };
        k.at = k.masters().last().unwrap().1;
        k
    }

    pub fn write(&self, at: u64, new: &[u8]) {
        damage::write(&self.dev, at, new);
    }

    pub fn flip(&self, at: u64) {
        damage::flip(&self.dev, at);
    }

    fn block_at(&self, block: u32) -> Vec<u8> {
        damage::read(&self.dev, byte(block), BLOCK)
    }

    /// Master blocks that are there: the number of the commit, and where; the newest one last.
    pub fn masters(&self) -> Vec<(u64, u32)> {
        let heads = self.geom.masters().map(|at| Master::read_from_bytes(&self.block_at(at)).unwrap().head);
        let sound = heads.filter(|head| head.magic.get() == MASTER_MAGIC && head.fsid.get() == self.geom.fsid);
        let mut all: Vec<(u64, u32)> = sound.map(|head| (head.seq.get(), head.block.get())).collect();
        all.sort_unstable();
        all
    }

    pub fn master(&self) -> Master {
        Master::read_from_bytes(&self.block_at(self.at)).unwrap()
    }

    /// Changes the newest master block, and makes all its checksums.
    pub fn change_master(&self, f: impl FnOnce(&mut Master)) {
        let mut master = self.master();
        f(&mut master);
        let is_used = |d: &&mut Dinode| **d != Dinode::default();
        master.inodes.iter_mut().filter(is_used).for_each(|d| d.crc = d.checksum(self.geom.fsid).into());
        let mut bytes = master.as_bytes().to_vec();
        seal(&mut bytes);
        self.write(byte(self.at), &bytes);
    }

    /// Changes the check-point.
    pub fn head(&self, f: impl FnOnce(&mut CheckPoint)) {
        self.change_master(|master| f(&mut master.head));
    }

    /// Changes a superblock, and makes its checksum.
    pub fn superblock(&self, block: u32, f: impl FnOnce(&mut SuperBlock)) {
        let mut sb = SuperBlock::read_from_bytes(&damage::read(&self.dev, byte(block), SECTOR)).unwrap();
        f(&mut sb);
        self.write(byte(block), &arbor_kit::head::encode(&sb));
    }

    /// The block of the volume where a block of a file lies.
    pub fn find_block(&self, d: &Dinode, lbn: u64) -> u32 {
        let entry = |table: u32, slot: u64| get_u32(&self.block_at(table), HEAD + slot as usize * 4).unwrap();
        if lbn < DIRECT {
            return d.map[lbn as usize].get();
        }
        match lbn - DIRECT {
            n if n < POINTERS => entry(d.map[12].get(), n),
            n => entry(entry(d.map[13].get(), (n - POINTERS) / POINTERS), (n - POINTERS) % POINTERS),
        }
    }

    /// An entry of the redo list.
    pub fn redo(&self, n: usize) -> Redo {
        let list = self.block_at(self.master().head.redo.get());
        Redo::read_from_bytes(&list[HEAD + n * size_of::<Redo>()..][..size_of::<Redo>()]).unwrap()
    }

    /// Byte of the indirect block of the ifile.
    pub fn ifile_table(&self) -> u64 {
        byte(self.get(IFILE.0).map[12].get())
    }

    pub fn inode_at(&self, ino: u64) -> u64 {
        let (lbn, within) = (ino / u64::from(INODES), ino % u64::from(INODES));
        let block = if lbn == 0 { self.at } else { self.find_block(self.master().inode(IFILE).unwrap(), lbn) };
        byte(block) + within * INODE as u64
    }

    pub fn get(&self, ino: u64) -> Dinode {
        Dinode::read_from_bytes(&damage::read(&self.dev, self.inode_at(ino), INODE)).unwrap()
    }

    /// Changes an inode, and makes its checksum, and that of the master block if it is there.
    pub fn inode(&self, ino: u64, f: impl FnOnce(&mut Dinode)) {
        let mut d = self.get(ino);
        f(&mut d);
        d.crc = d.checksum(self.geom.fsid).into();
        self.write(self.inode_at(ino), d.as_bytes());
        self.seal_master();
    }

    /// Changes a byte of an inode, which its checksum shows then.
    pub fn flip_inode(&self, ino: u64) {
        self.flip(self.inode_at(ino) + 20);
        self.seal_master();
    }

    fn seal_master(&self) {
        let mut bytes = self.block_at(self.at);
        seal(&mut bytes);
        self.write(byte(self.at), &bytes);
    }

    /// Changes a block with a head, and makes its checksum.
    pub fn headed(&self, block: u32, f: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.block_at(block);
        f(&mut bytes);
        seal(&mut bytes);
        self.write(byte(block), &bytes);
    }

    /// A block of the attributes of a file, from 0 on.
    pub fn xattr(&self, ino: u64, n: usize) -> u32 {
        let first = self.get(ino).xattr.get();
        let pointer = |n: usize| u32::from_le_bytes(self.block_at(first)[HEAD + n * 4 - 4..][..4].try_into().unwrap());
        if n == 0 { first } else { pointer(n) }
    }

    /// Sets a pointer of an indirect block.
    pub fn pointer(&self, table: u32, slot: usize, to: u32) {
        self.headed(table, |bytes| bytes[HEAD + slot * 4..][..4].copy_from_slice(&to.to_le_bytes()));
    }

    /// Where the block of a bitmap lies that has a bit.
    pub fn bitmap(&self, file: Ino, n: u32) -> u32 {
        self.find_block(&self.get(file.0), (n / BITS).into())
    }

    /// Turns a bit of a bitmap over.
    pub fn bit(&self, file: Ino, n: u32) {
        self.headed(self.bitmap(file, n), |bytes| bytes[HEAD + (n % BITS) as usize / 8] ^= 1 << (n % 8));
    }

    /// The last block of files that is free.
    pub fn free_block(&self) -> u32 {
        let is_free =
            |n: &u32| self.block_at(self.bitmap(DBITMAP, *n))[HEAD + (n % BITS) as usize / 8] >> (n % 8) & 1 == 0;
        (0..self.geom.blocks).rev().filter(|n| self.geom.is_data(*n)).find(is_free).unwrap()
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

pub fn mount(dev: &MemDevice, options: &str) -> Arc<dyn FileSystem> {
    let options = MountOptions { options: Options::parse(options), ..MountOptions::default() };
    let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
    Evergreen.mount(Devices::single(dev.clone()), &options, clock).unwrap()
}

pub fn put(fs: &dyn FileSystem, dir: Ino, name: &str, at: u64, data: &[u8]) -> Ino {
    let ino = match fs.lookup(dir, name.as_bytes()) {
        Ok(e) => e.ino,
        Err(_) => fs.mknod(&CX, dir, name.as_bytes(), mode::IFREG | 0o644, 0).unwrap().ino,
    };
    assert_eq!(fs.write(ino, at, data).unwrap(), data.len());
    ino
}

/// A volume with something of everything; its last commit has made `/last` and nothing else.
pub fn build(size: u64, options: &str) -> MemDevice {
    let dev = damage::format(&Evergreen, size, options);
    let fs = mount(&dev, "");
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
    large(fs, b);
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
    let crowd = mkdir(root, "crowd");
    for i in 0..CROWD {
        put(fs, crowd, &i.to_string(), 0, &bytes(3, i + 1));
    }
    fs.syncfs().unwrap();
    put(fs, root, "last", 0, &bytes(50, 99));
    fs.unmount().unwrap();
    dev
}

/// Files with indirect blocks, and with attributes.
fn large(fs: &dyn FileSystem, b: Ino) {
    put(fs, b, "big", 0, &bytes(BLOCK * 30 - 5, 6));
    for (k, lbn) in (7..).zip([3, 14, DIRECT + POINTERS + 2, DIRECT + POINTERS + POINTERS * POINTERS + 7]) {
        put(fs, b, "sparse", lbn * BLOCK as u64, &bytes(BLOCK, k));
    }
    let heavy = put(fs, b, "heavy", 0, &bytes(10, 20));
    fs.setxattr(heavy, b"user.one", &bytes(300, 21), XattrMode::Set).unwrap();
    fs.setxattr(heavy, b"user.long", &bytes(2 * BLOCK, 22), XattrMode::Set).unwrap();
}

/// All files of a volume.
pub fn tree(dev: &MemDevice) -> Tree {
    damage::tree(&Evergreen, dev)
}
