//! A volume with something of everything, and what damages it: structures are found as the engine tells of them, and what was
//! changed gets its checksums, up to the inode and the summary.

#![allow(dead_code, reason = "each test uses a part")]

use arbor_base::device::MemDevice;
use arbor_base::layout::{get_u16, get_u32};
use arbor_base::vfs::*;
use arbor_dualfs::DualFs;
use arbor_dualfs::format::*;
use arbor_torture::damage::{self, Tree, bytes};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

pub const CX: Cx = Cx { uid: 0, gid: 0 };

pub struct ImageCorruptor {
    pub dev: MemDevice,
    pub geom: Geom,
    all: Vec<Structure>,
}

impl ImageCorruptor {
    pub fn new(dev: MemDevice) -> ImageCorruptor {
        let mut all = Vec::new();
        DualFs.structures(&Devices::single(dev.clone()), &mut |s| all.push(s)).expect("structures");
        let sb = SuperBlock::read_from_bytes(&damage::read(&dev, 0, SECTOR)).expect("a superblock");
        let geom = Geom {
            block_shift: sb.block_shift.get(),
            seg_shift: sb.seg_shift.get(),
            group_blocks: sb.group_blocks.get(),
            segs: sb.segs.get(),
            data_at: sb.data_at.get(),
            data_blocks: 0,
            heads: 0,
            fsid: 0,
        };
        ImageCorruptor { dev, geom, all }
    }

    pub fn write(&self, at: u64, new: &[u8]) {
        damage::write(&self.dev, at, new);
    }

    pub fn flip(&self, at: u64) {
        damage::flip(&self.dev, at);
    }

    /// The first structure of a kind, which may be that of a number.
    pub fn of(&self, kind: &str, number: Option<u64>) -> &Structure {
        let is_it = |s: &&Structure| s.kind == kind && number.is_none_or(|n| s.number == n);
        self.all.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} {number:?}"))
    }

    /// Changes bytes of a structure, and makes its checksums.
    pub fn put(&self, s: &Structure, at: usize, new: &[u8]) {
        self.write(s.offset + at as u64, new);
        DualFs.reseal(&self.dev, s).expect("reseal");
    }

    /// The region of the newest checkpoint, and the checkpoint.
    pub fn newest(&self) -> (u64, Checkpoint) {
        let read = |n: u64| {
            let bytes = damage::read(&self.dev, self.of("checkpoint", Some(n)).offset, SECTOR);
            (n, Checkpoint::read_from_bytes(&bytes).expect("a checkpoint"))
        };
        [read(0), read(1)].into_iter().max_by_key(|(_, cp)| cp.serial.get()).expect("two")
    }

    /// Changes the newest checkpoint.
    pub fn checkpoint(&self, f: impl FnOnce(&mut Checkpoint)) {
        let (n, mut cp) = self.newest();
        f(&mut cp);
        self.put(self.of("checkpoint", Some(n)), 0, cp.as_bytes());
    }

    /// Makes the older checkpoint one that does not count.
    pub fn lose_older(&self) {
        self.write(self.of("checkpoint", Some(1 - self.newest().0)).offset, &[0; SECTOR]);
    }

    pub fn get(&self, ino: u64) -> Dinode {
        let at = self.of(if ino == IFILE.0 { "ifile inode" } else { "inode" }, Some(ino)).offset;
        Dinode::read_from_bytes(&damage::read(&self.dev, at, INODE)).expect("an inode")
    }

    pub fn inode(&self, ino: u64, f: impl FnOnce(&mut Dinode)) {
        let mut d = self.get(ino);
        f(&mut d);
        self.put(self.of(if ino == IFILE.0 { "ifile inode" } else { "inode" }, Some(ino)), 0, d.as_bytes());
    }

    /// Changes a byte of an inode, which its checksum shows then.
    pub fn flip_inode(&self, ino: u64) {
        self.flip(self.of("inode", Some(ino)).offset + 20);
    }

    /// Byte of a block to which an inode leads directly.
    pub fn block(&self, path: &str, lbn: usize) -> u64 {
        u64::from(self.get(self.ino(path)).db[lbn].block.get()) << self.geom.block_shift
    }

    /// Byte of the first indirect block of a file.
    pub fn table(&self, path: &str) -> u64 {
        u64::from(self.get(self.ino(path)).ib[0].block.get()) << self.geom.block_shift
    }

    /// Byte of a block to which the first indirect block of a file leads.
    pub fn in_table(&self, path: &str, slot: usize) -> u64 {
        let bytes = damage::read(&self.dev, self.table(path) + (slot * POINTER) as u64, POINTER);
        let p = Pointer::read_from_bytes(&bytes).expect("a pointer");
        u64::from(p.block.get()) << self.geom.block_shift
    }

    /// Changes a pointer of the first indirect block of a file.
    pub fn pointer(&self, path: &str, slot: usize, to: Pointer) {
        let number = u64::from(self.get(self.ino(path)).ib[0].block.get());
        self.put(self.of("indirect block", Some(number)), slot * POINTER, to.as_bytes());
    }

    /// Entries of the first blocks of a directory: name, inode, byte of the volume.
    fn list(&self, ino: u64) -> Vec<(String, u64, u64)> {
        let (mut all, size) = (Vec::new(), self.geom.block());
        for block in self.get(ino).db.iter().map(|p| u64::from(p.block.get())).filter(|block| *block != 0) {
            for base in (0..size / DIRBLKSIZ).map(|n| (block << self.geom.block_shift) + (n * DIRBLKSIZ) as u64) {
                let (chunk, mut at) = (damage::read(&self.dev, base, DIRBLKSIZ), 0);
                while at < DIRBLKSIZ {
                    let name = &chunk[at + 8..][..usize::from(chunk[at + 7])];
                    let target = u64::from(get_u32(&chunk, at).expect("an entry"));
                    if target != 0 {
                        all.push((String::from_utf8_lossy(name).into_owned(), target, base + at as u64));
                    }
                    at += usize::from(get_u16(&chunk, at + 4).expect("an entry"));
                }
            }
        }
        all
    }

    /// The inode of a path, and the byte where its entry begins.
    fn find(&self, path: &str) -> (u64, u64) {
        let down = |at: (u64, u64), name: &str| {
            let found = self.list(at.0).into_iter().find(|e| e.0 == name);
            found.map(|e| (e.1, e.2)).unwrap_or_else(|| panic!("no {path}"))
        };
        path.split('/').filter(|n| !n.is_empty()).fold((ROOT.0, 0), down)
    }

    pub fn ino(&self, path: &str) -> u64 {
        self.find(path).0
    }

    /// Changes bytes of a chunk of a directory, from a byte of the volume on.
    pub fn chunk(&self, at: u64, new: &[u8]) {
        let begin = at / DIRBLKSIZ as u64 * DIRBLKSIZ as u64;
        self.put(self.of("directory chunk", Some(begin)), (at - begin) as usize, new);
    }

    /// Changes bytes of the entry at a path, from its byte `at`.
    pub fn name(&self, path: &str, at: u64, new: &[u8]) {
        self.chunk(self.find(path).1 + at, new);
    }

    /// Changes an entry of the inode map.
    pub fn entry(&self, ino: u64, f: impl FnOnce(&mut MapEntry)) {
        let (s, at) = (self.of("inode map", None), ino as usize * MAP_ENTRY);
        let old = damage::read(&self.dev, s.offset + at as u64, MAP_ENTRY);
        let mut entry = MapEntry::read_from_bytes(&old).expect("an entry");
        f(&mut entry);
        self.put(s, at, entry.as_bytes());
    }
}

pub fn mount(dev: &MemDevice, options: &str) -> Arc<dyn FileSystem> {
    let options = MountOptions { options: Options::parse(options), ..MountOptions::default() };
    let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
    DualFs.mount(Devices::single(dev.clone()), &options, clock).expect("mount")
}

pub fn put(fs: &dyn FileSystem, dir: Ino, name: &str, at: u64, data: &[u8]) -> Ino {
    let ino = match fs.lookup(dir, name.as_bytes()) {
        Ok(e) => e.ino,
        Err(_) => fs.mknod(&CX, dir, name.as_bytes(), mode::IFREG | 0o644, 0).expect("mknod").ino,
    };
    assert_eq!(fs.write(ino, at, data).expect("write"), data.len());
    ino
}

/// A volume with something of everything.
pub fn build(size: u64, options: &str) -> MemDevice {
    let dev = damage::format(&DualFs, size, options);
    let fs = mount(&dev, "relocate=off");
    let (fs, root) = (&*fs, fs.root());
    let mkdir = |dir, name: &str| fs.mkdir(&CX, dir, name.as_bytes(), 0o755).expect("mkdir").ino;
    let (a, b) = (mkdir(root, "a"), mkdir(root, "b"));
    let small = put(fs, a, "small", 0, &bytes(100, 1));
    fs.link(small, b, b"hard").expect("link");
    put(fs, a, "tail", 0, &bytes(5000, 2));
    fs.symlink(&CX, a, b"fast", b"some/where/else").expect("symlink");
    fs.symlink(&CX, a, b"slow", &bytes(200, 4)).expect("symlink");
    fs.mknod(&CX, a, b"null", mode::IFCHR | 0o666, 0x103).expect("mknod");
    let subsub = mkdir(mkdir(a, "sub"), "subsub");
    put(fs, subsub, "leaf", 0, &bytes(5000, 5));
    let block = fs.statfs().expect("statfs").bsize as usize;
    put(fs, b, "big", 0, &bytes(block * 30 - 5, 6));
    for (k, lbn) in (7..).zip([3, 14, 12 + 1024 + 2, 600_000]) {
        put(fs, b, "sparse", lbn * block as u64, &bytes(block, k));
    }
    let heavy = put(fs, b, "heavy", 0, &bytes(10, 20));
    fs.setxattr(heavy, b"user.one", &bytes(300, 21), XattrMode::Set).expect("setxattr");
    fs.setxattr(heavy, b"user.long", &bytes(20_000, 22), XattrMode::Set).expect("setxattr");
    let many = mkdir(root, "many");
    for i in 0..150 {
        put(fs, many, &format!("file number {i:-<60}"), 0, &bytes(i % 3, 1 + i as u32));
    }
    let wide = mkdir(root, "wide");
    (0..20).for_each(|i| assert!(mkdir(wide, &i.to_string()) > wide));
    for name in ["gone 1", "gone 2"] {
        let ino = put(fs, root, name, 0, &bytes(3000, 30));
        fs.unlink(root, name.as_bytes()).expect("unlink");
        fs.forget(ino, 3);
    }
    fs.unmount().expect("unmount");
    dev
}

/// All files of a volume.
pub fn tree(dev: &MemDevice) -> Tree {
    damage::tree(&DualFs, dev)
}
