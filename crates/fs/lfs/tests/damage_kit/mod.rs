//! A volume with something of everything, and a knife to damage it with.
#![allow(dead_code, unused_imports, reason = "each test uses a part")]

use arbor_base::device::{Device, Kind, MemDevice};
use arbor_base::layout::{crc, crc_without, get_u16, get_u32};
use arbor_base::vfs::*;
use arbor_kit::blockmap::Parent;
use arbor_lfs::Lfs;
use arbor_lfs::format::*;
use arbor_torture::damage;
pub use arbor_torture::damage::{Tree, bytes, codes};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

pub const CX: Cx = Cx { uid: 0, gid: 0 };

pub fn format(size: u64, options: &str) -> MemDevice {
    damage::format(&Lfs, size, options)
}

pub fn check(dev: &MemDevice, repair: Repair) -> CheckReport {
    damage::check(&Lfs, dev.clone(), repair)
}

pub fn mount<D: Device + 'static>(dev: D) -> Arc<dyn FileSystem> {
    damage::mount(&Lfs, dev)
}

pub fn tree(dev: &MemDevice) -> Tree {
    damage::tree(&Lfs, dev)
}

pub struct ImageCorruptor {
    pub dev: MemDevice,
    pub geom: Geom,
}

impl ImageCorruptor {
    pub fn new(dev: MemDevice) -> ImageCorruptor {
        let mut bytes = vec![0; SECTOR];
        dev.read_at(Kind::Super, 0, &mut bytes).unwrap();
        let sb = SuperBlock::read_from_bytes(&bytes).unwrap();
        let geom = Geom {
            block_shift: sb.block_shift.get(),
            frag_shift: sb.frag_shift.get(),
            seg_shift: sb.seg_shift.get(),
            first: sb.first.get(),
            fsid: u64::from_le_bytes(sb.uuid[..8].try_into().unwrap()),
        };
        ImageCorruptor { dev, geom }
    }

    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        damage::read(&self.dev, at, len)
    }

    pub fn write(&self, at: u64, new: &[u8]) {
        damage::write(&self.dev, at, new);
    }

    pub fn flip(&self, at: u64) {
        damage::flip(&self.dev, at);
    }

    /// Changes the superblock at a byte address and makes its checksum.
    pub fn super_at(&self, at: u64, f: impl FnOnce(&mut SuperBlock)) {
        let mut sb = SuperBlock::read_from_bytes(&self.read(at, SECTOR)).unwrap();
        f(&mut sb);
        sb.crc = crc_without(sb.as_bytes(), CRC_AT).unwrap().into();
        self.write(at, sb.as_bytes());
    }

    /// The checkpoints with their places, the newer one first.
    pub fn checkpoints(&self) -> Vec<(u64, Checkpoint)> {
        let all = self.geom.checkpoints().map(|at| (at, Checkpoint::read_from_bytes(&self.read(at, SECTOR)).unwrap()));
        let mut all = all.to_vec();
        all.sort_by_key(|(_, cp)| std::cmp::Reverse(cp.serial.get()));
        all
    }

    pub fn newest(&self) -> Checkpoint {
        self.checkpoints()[0].1
    }

    pub fn put_checkpoint(&self, at: u64, mut cp: Checkpoint) {
        cp.crc = crc_without(cp.as_bytes(), CRC_AT).unwrap().into();
        self.write(at, cp.as_bytes());
    }

    /// Changes the newer checkpoint.
    pub fn checkpoint(&self, f: impl FnOnce(&mut Checkpoint)) {
        let (at, mut cp) = self.checkpoints()[0];
        f(&mut cp);
        self.put_checkpoint(at, cp);
    }

    /// Where the log goes on from the older checkpoint.
    pub fn behind_older(&self) -> u64 {
        let (_, older) = self.checkpoints()[1];
        self.geom.byte(Frag(self.geom.seg_start(Seg(older.seg.get())).0 + older.offset.get()))
    }

    /// All summaries of the log, with their byte addresses.
    pub fn summaries(&self) -> Vec<(u64, Summary)> {
        let mut all = Vec::new();
        let found = &mut |s: Structure| all.extend((s.kind == "summary").then_some(s.offset));
        Lfs.structures(&Devices::single(self.dev.clone()), found).expect("structures");
        let read = |at: u64| (at, Summary::read_from_bytes(&self.read(at, SUMMARY)).expect("a summary"));
        all.into_iter().map(read).collect()
    }

    /// The older checkpoint is no help.
    pub fn lose_older(&self) {
        self.write(self.checkpoints()[1].0, &[0; SECTOR]);
    }

    /// Byte address of an inode.
    pub fn inode_byte(&self, ino: u64) -> u64 {
        let frag = if ino == IFILE.0 { self.newest().ifile.get() } else { self.entry(ino).frag.get() };
        let at = self.geom.byte(Frag(frag));
        let bytes = self.read(at, self.geom.frag_size());
        let found = bytes.chunks(INODE).rposition(|b| u64::from(Dinode::read_from_bytes(b).unwrap().ino.get()) == ino);
        at + (found.unwrap_or_else(|| panic!("no inode {ino}")) * INODE) as u64
    }

    pub fn get(&self, ino: u64) -> Dinode {
        Dinode::read_from_bytes(&self.read(self.inode_byte(ino), INODE)).unwrap()
    }

    pub fn inode(&self, ino: u64, f: impl FnOnce(&mut Dinode)) {
        let at = self.inode_byte(ino);
        let mut d = self.get(ino);
        f(&mut d);
        self.write(at, d.sealed().as_bytes());
    }

    /// The indirect block that a block's pointer stands in, and where; `None` if it is the inode.
    fn above(&self, block: FileBlock) -> Option<(FileBlock, usize)> {
        match self.geom.shape().parent(block)? {
            Parent::Map { level, n, slot } => Some((FileBlock::Map { level, n }, slot)),
            _ => None,
        }
    }

    pub fn pointer(&self, ino: u64, place: FileBlock) -> Pointer {
        match (self.above(place), place) {
            (Some((above, k)), _) => {
                let bytes = self.block(ino, above);
                if bytes.is_empty() {
                    return Pointer::default();
                }
                Pointer::read_from_bytes(&bytes[k * POINTER..][..POINTER]).unwrap()
            }
            (None, FileBlock::Data(lbn)) => self.get(ino).db[lbn as usize],
            (None, FileBlock::Map { level, .. }) => self.get(ino).ib[usize::from(level) - 1],
            (None, FileBlock::Xattr(_)) => self.get(ino).xattr,
        }
    }

    /// Sets a pointer, and makes the checksums above it right.
    pub fn set_pointer(&self, ino: u64, place: FileBlock, p: Pointer) {
        match (self.above(place), place) {
            (Some((above, k)), _) => {
                let mut bytes = self.block(ino, above);
                bytes[k * POINTER..][..POINTER].copy_from_slice(p.as_bytes());
                self.put_block(ino, above, &bytes);
            }
            (None, FileBlock::Data(lbn)) => self.inode(ino, |d| d.db[lbn as usize] = p),
            (None, FileBlock::Map { level, .. }) => self.inode(ino, |d| d.ib[usize::from(level) - 1] = p),
            (None, FileBlock::Xattr(_)) => self.inode(ino, |d| d.xattr = p),
        }
    }

    fn len(&self, ino: u64, place: FileBlock) -> usize {
        let d = self.get(ino);
        match place {
            FileBlock::Data(_) if ino == IFILE.0 => self.geom.block_size(),
            FileBlock::Data(lbn) => self.geom.bytes_of(self.geom.lbn_frags(d.size.get(), lbn)),
            FileBlock::Map { .. } => self.geom.block_size(),
            FileBlock::Xattr(_) => self.geom.bytes_of(self.geom.frags_for(d.xattr_len.get() as usize)),
        }
    }

    /// Byte address of a block.
    pub fn byte_of(&self, ino: u64, place: FileBlock) -> u64 {
        self.geom.byte(Frag(self.pointer(ino, place).frag.get()))
    }

    /// A block; nothing if there is none.
    pub fn block(&self, ino: u64, place: FileBlock) -> Vec<u8> {
        match self.pointer(ino, place).frag.get() {
            0 => Vec::new(),
            frag => self.read(self.geom.byte(Frag(frag)), self.len(ino, place)),
        }
    }

    /// Changes a block in its place, and makes the checksums above it right.
    pub fn put_block(&self, ino: u64, place: FileBlock, bytes: &[u8]) {
        let p = self.pointer(ino, place);
        self.write(self.geom.byte(Frag(p.frag.get())), bytes);
        self.set_pointer(ino, place, Pointer { crc: crc(bytes).into(), ..p });
    }

    fn entry_place(&self, ino: u64) -> (FileBlock, usize) {
        let at = MAP_AT + ino * MAP_ENTRY as u64;
        (FileBlock::Data(self.geom.lbn(at)), (at % self.geom.block_size() as u64) as usize)
    }

    /// Entry of the inode map.
    pub fn entry(&self, ino: u64) -> MapEntry {
        let (place, at) = self.entry_place(ino);
        MapEntry::read_from_bytes(&self.block(IFILE.0, place)[at..at + MAP_ENTRY]).unwrap()
    }

    pub fn map_block(&self) -> FileBlock {
        self.entry_place(2).0
    }

    pub fn put_entry(&self, ino: u64, f: impl FnOnce(&mut MapEntry)) {
        let (place, at) = self.entry_place(ino);
        let mut bytes = self.block(IFILE.0, place);
        let mut entry = self.entry(ino);
        f(&mut entry);
        bytes[at..at + MAP_ENTRY].copy_from_slice(entry.as_bytes());
        self.put_block(IFILE.0, place, &bytes);
    }

    /// Changes an entry of the segment usage table.
    pub fn usage(&self, seg: Seg, f: impl FnOnce(&mut Usage)) {
        let at = seg.0 as usize * USAGE;
        let place = FileBlock::Data((at / self.geom.block_size()) as u64);
        let (mut bytes, at) = (self.block(IFILE.0, place), at % self.geom.block_size());
        let mut usage = Usage::read_from_bytes(&bytes[at..at + USAGE]).unwrap();
        f(&mut usage);
        bytes[at..at + USAGE].copy_from_slice(usage.as_bytes());
        self.put_block(IFILE.0, place, &bytes);
    }

    pub fn seg_of(&self, ino: u64, place: FileBlock) -> Seg {
        self.geom.seg_of(Frag(self.pointer(ino, place).frag.get())).unwrap()
    }

    /// A free inode.
    pub fn free_inode(&self) -> u64 {
        self.newest().free_ino.get().into()
    }

    /// Entries of a directory: name, inode, offset.
    pub fn list(&self, ino: u64) -> Vec<(String, u64, u64)> {
        let mut all = Vec::new();
        let size = self.get(ino).size.get();
        for lbn in 0..size.div_ceil(self.geom.block_size() as u64) {
            for (n, chunk) in (0u64..).zip(self.block(ino, FileBlock::Data(lbn)).chunks(DIRBLKSIZ)) {
                let mut at = 0;
                while at < DIRBLKSIZ {
                    let name = &chunk[at + 8..][..usize::from(chunk[at + 7])];
                    let target = get_u32(chunk, at).unwrap();
                    let offset = (lbn << self.geom.block_shift) + n * DIRBLKSIZ as u64 + at as u64;
                    if target != 0 {
                        all.push((String::from_utf8(name.to_vec()).unwrap(), target.into(), offset));
                    }
                    at += usize::from(get_u16(chunk, at + 4).unwrap());
                }
            }
        }
        all
    }

    /// The directory of a path, the inode there, and the offset of its entry.
    pub fn find(&self, path: &str) -> (u64, u64, u64) {
        let mut at = (ROOT.0, ROOT.0, 0);
        for name in path.split('/').filter(|n| !n.is_empty()) {
            let found = self.list(at.1).into_iter().find(|e| e.0 == name);
            let (_, ino, offset) = found.unwrap_or_else(|| panic!("no {path}"));
            at = (at.1, ino, offset);
        }
        at
    }

    pub fn ino(&self, path: &str) -> u64 {
        self.find(path).1
    }

    /// Changes bytes of a directory, and the checksums above.
    pub fn dir(&self, ino: u64, offset: u64, new: &[u8]) {
        let place = FileBlock::Data(self.geom.lbn(offset));
        let (mut bytes, at) = (self.block(ino, place), offset as usize % self.geom.block_size());
        bytes[at..at + new.len()].copy_from_slice(new);
        self.put_block(ino, place, &bytes);
    }

    /// Changes bytes of the entry at a path, from its byte `at`.
    pub fn name(&self, path: &str, at: u64, new: &[u8]) {
        let (dir, _, offset) = self.find(path);
        self.dir(dir, offset + at, new);
    }

    /// Byte address of the summary that tells of the block at this byte.
    pub fn summary_before(&self, block: u64) -> u64 {
        let step = self.geom.frag_size() as u64;
        let magic = |at: &u64| get_u32(&self.read(*at, 4), 0) == Some(SUMMARY_MAGIC);
        (1..).map(|n| block - n * step).find(magic).unwrap()
    }

    /// Byte address of the first summary of a segment.
    pub fn summary(&self, seg: Seg) -> u64 {
        self.geom.byte(self.geom.seg_start(seg))
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

fn mkdir(fs: &dyn FileSystem, dir: Ino, name: &str) -> Ino {
    fs.mkdir(&CX, dir, name.as_bytes(), 0o755).unwrap().ino
}

/// A volume with something of everything.
pub fn build(size: u64, options: &str) -> MemDevice {
    let dev = format(size, options);
    let geom = ImageCorruptor::new(dev.clone()).geom;
    let block = geom.block_size();
    let fs = mount(dev.clone());
    let root = fs.root();
    let (a, b) = (mkdir(&*fs, root, "a"), mkdir(&*fs, root, "b"));
    let small = put(&*fs, a, "small", 0, &bytes(100, 1));
    fs.link(small, b, b"hard").unwrap();
    put(&*fs, a, "empty", 0, b"");
    put(&*fs, a, "tail", 0, &bytes(block + block / 8 + 7, 2));
    put(&*fs, a, "tail2", 0, &bytes(block / 8 * 3, 3));
    fs.symlink(&CX, a, b"fast", b"some/where/else").unwrap();
    fs.symlink(&CX, a, b"slow", &bytes(200, 4)).unwrap();
    fs.mknod(&CX, a, b"null", mode::IFCHR | 0o666, 0x103).unwrap();
    fs.mknod(&CX, a, b"pipe", mode::IFIFO | 0o600, 0).unwrap();
    let sub = mkdir(&*fs, a, "sub");
    let subsub = mkdir(&*fs, sub, "subsub");
    put(&*fs, subsub, "leaf", 0, &bytes(5000, 5));
    put(&*fs, b, "big", 0, &bytes(block * 30 - 5, 6));
    let n = geom.nindir();
    for (k, lbn) in [3, 14, 12 + n + 1, 12 + n + n + 2, 12 + n + n * n + 7].into_iter().enumerate() {
        put(&*fs, b, "sparse", lbn * block as u64, &bytes(block, 7 + k as u32));
    }
    let heavy = put(&*fs, b, "heavy", 0, &bytes(10, 20));
    fs.setxattr(heavy, b"user.one", b"1", XattrMode::Set).unwrap();
    fs.setxattr(heavy, b"user.two", &bytes(300, 21), XattrMode::Set).unwrap();
    fs.syncfs().unwrap();
    let many = mkdir(&*fs, root, "many");
    for i in 0..block / 60 {
        put(&*fs, many, &format!("file number {i:-<60}"), 0, &bytes(i % 3, 1 + i as u32));
    }
    let wide = mkdir(&*fs, root, "wide");
    for i in 0..20 {
        mkdir(&*fs, wide, &i.to_string());
    }
    let gone: Vec<String> = (0..5).map(|i| format!("gone {i}")).collect();
    for name in &gone {
        put(&*fs, root, name, 0, &bytes(3000, 30));
    }
    fs.syncfs().unwrap();
    gone.iter().for_each(|name| fs.unlink(root, name.as_bytes()).unwrap());
    // An older state of it has the same blocks.
    let twice = put(&*fs, b, "twice", 0, &bytes(block, 40));
    fs.syncfs().unwrap();
    fs.setattr(twice, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    fs.unmount().unwrap();
    dev
}
