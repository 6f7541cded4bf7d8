//! A volume made by hand from `format.rs`, a knife to damage it with, and a reader that knows nothing of the
//! checker.
#![allow(dead_code, reason = "each test uses a part")]

use arbor_base::device::{Device, Kind, MemDevice};
use arbor_base::layout::{crc, crc_without, get_u16, get_u32};
use arbor_base::vfs::*;
use arbor_ffs::Ffs;
use arbor_ffs::format::*;
use arbor_torture::damage;
pub use arbor_torture::damage::{Item, Tree, bytes};
use std::collections::BTreeMap;
use zerocopy::{FromBytes, IntoBytes};

pub fn format(size: u64, options: &str) -> MemDevice {
    damage::format(&Ffs, size, options)
}

pub fn check(dev: &MemDevice, repair: Repair) -> CheckReport {
    damage::check(&Ffs, dev.clone(), repair)
}

pub struct ImageCorruptor {
    pub dev: MemDevice,
    pub sb: SuperBlock,
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
            cg_count: sb.cg_count.get(),
            cg_frags: sb.cg_frags.get(),
            cg_inodes: sb.cg_inodes.get(),
            frags: sb.frags.get() as u32,
            fsid: arbor_kit::head::fsid(&sb.uuid),
        };
        ImageCorruptor { dev, sb, geom }
    }

    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        damage::read(&self.dev, at, len)
    }

    pub fn write(&self, at: u64, new: &[u8]) {
        damage::write(&self.dev, at, new);
    }

    /// Changes the superblock at a byte address and makes its checksum.
    pub fn super_at(&self, at: u64, f: impl FnOnce(&mut SuperBlock)) {
        let mut sb = SuperBlock::read_from_bytes(&self.read(at, SECTOR)).unwrap();
        f(&mut sb);
        sb.crc = crc_without(sb.as_bytes(), SUPER_CRC_AT).unwrap().into();
        self.write(at, sb.as_bytes());
    }

    pub fn crashed(&self, keeping: Keeping) {
        self.super_at(0, |sb| (sb.clean, sb.keeping) = (0.into(), (keeping as u32).into()));
    }

    /// Changes a group's structure and makes its checksums.
    pub fn cg(&self, cgx: u32, f: impl FnOnce(&mut Vec<u8>)) {
        let at = self.geom.byte(self.geom.cg_block(cgx));
        let mut cg = self.read(at, self.geom.block_size());
        f(&mut cg);
        seal_cg(&mut cg);
        self.write(at, &cg);
    }

    pub fn header(&self, cgx: u32, f: impl FnOnce(&mut CgHeader)) {
        self.cg(cgx, |cg| {
            let mut h = CgHeader::read_from_prefix(cg).unwrap().0;
            f(&mut h);
            cg[..SECTOR].copy_from_slice(h.as_bytes());
        });
    }

    pub fn inode_bit(&self, ino: u64, on: bool) {
        let i = (ino % u64::from(self.geom.cg_inodes)) as u32;
        self.cg(self.geom.cg_of_inode(Ino(ino)), |cg| set_bit(cg, 1, i, on));
    }

    pub fn frag_bit(&self, frag: u32, on: bool) {
        let first = 1 + self.geom.inode_sectors();
        self.cg(frag / self.geom.cg_frags, |cg| set_bit(cg, first, frag % self.geom.cg_frags, on));
    }

    /// Inodes that are free, and initialised.
    pub fn inodes_left(&self) -> u32 {
        let mut left = 0;
        for cgx in 0..self.geom.cg_count {
            self.header(cgx, |h| left += h.sum.nifree.get() + h.initediblk.get() - self.geom.cg_inodes);
        }
        left
    }

    pub fn inode_byte(&self, ino: u64) -> u64 {
        let (frag, at) = self.geom.inode_at(Ino(ino)).unwrap();
        self.geom.byte(frag) + at as u64
    }

    pub fn get(&self, ino: u64) -> Dinode {
        Dinode::read_from_bytes(&self.read(self.inode_byte(ino), INODE)).unwrap()
    }

    pub fn put(&self, ino: u64, d: Dinode) {
        self.write(self.inode_byte(ino), d.sealed(self.geom.fsid, Ino(ino)).as_bytes());
    }

    pub fn inode(&self, ino: u64, f: impl FnOnce(&mut Dinode)) {
        let mut d = self.get(ino);
        f(&mut d);
        self.put(ino, d);
    }

    fn pointers(&self, frag: u32, level: u32, lbn: u64, out: &mut Vec<(u64, u32)>) {
        let n = self.geom.nindir();
        for i in 0..n {
            let p = get_u32(&self.read(self.geom.byte(Frag(frag)) + i * 4, 4), 0).unwrap();
            let at = lbn + i * n.pow(level - 1);
            match (p, level) {
                (0, _) => {}
                (p, 1) => out.push((at, p)),
                (p, level) => self.pointers(p, level - 1, at, out),
            }
        }
    }

    /// Logical blocks and their fragments.
    pub fn map(&self, ino: u64) -> Vec<(u64, u32)> {
        let d = self.get(ino);
        let mut out: Vec<(u64, u32)> = (0..).zip(d.db).map(|(i, p)| (i, p.get())).filter(|p| p.1 != 0).collect();
        let mut lbn = NDADDR as u64;
        for level in 1..=3 {
            let p = d.ib[level as usize - 1].get();
            if p != 0 {
                self.pointers(p, level, lbn, &mut out);
            }
            lbn += self.geom.nindir().pow(level);
        }
        out
    }

    /// Contents: of a hole nothing, so each block is preceded by its number.
    fn content(&self, ino: u64) -> Vec<u8> {
        let d = self.get(ino);
        if d.is_fast_link() {
            return d.as_bytes()[FAST_LINK_AT..][..d.size.get() as usize].to_vec();
        }
        if !d.has_blocks() {
            return d.db[0].get().to_le_bytes().to_vec();
        }
        let mut all = Vec::new();
        for (lbn, p) in self.map(ino) {
            let len = (d.size.get() - (lbn << self.geom.block_shift)).min(self.geom.block_size() as u64);
            all.extend(lbn.to_le_bytes());
            all.extend(self.read(self.geom.byte(Frag(p)), len as usize));
        }
        all
    }

    /// Byte address of an offset of a file.
    pub fn byte_of(&self, ino: u64, offset: u64) -> u64 {
        let lbn = offset >> self.geom.block_shift;
        let p = self.map(ino).into_iter().find(|p| p.0 == lbn).unwrap().1;
        self.geom.byte(Frag(p)) + (offset - (lbn << self.geom.block_shift))
    }

    /// Entries of a directory: name, inode, byte address.
    pub fn list(&self, ino: u64) -> Vec<(String, u64, u64)> {
        let mut all = Vec::new();
        for offset in (0..self.get(ino).size.get()).step_by(512) {
            let byte = self.byte_of(ino, offset);
            let chunk = self.read(byte, 512);
            let mut at = 0;
            while at < 512 {
                let name = &chunk[at + 8..][..usize::from(chunk[at + 7])];
                let target = get_u32(&chunk, at).unwrap();
                if target != 0 {
                    all.push((String::from_utf8(name.to_vec()).unwrap(), target.into(), byte + at as u64));
                }
                at += usize::from(get_u16(&chunk, at + 4).unwrap());
            }
        }
        all
    }

    /// The inode at a path, and the byte address of its entry.
    pub fn find(&self, path: &str) -> (u64, u64) {
        let mut at = (ROOT.0, 0);
        for name in path.split('/').filter(|n| !n.is_empty()) {
            let found = self.list(at.0).into_iter().find(|e| e.0 == name);
            let (_, ino, byte) = found.unwrap_or_else(|| panic!("no {path}"));
            at = (ino, byte);
        }
        at
    }

    pub fn ino(&self, path: &str) -> u64 {
        self.find(path).0
    }

    pub fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        let mut todo = vec![(String::new(), ROOT.0)];
        while let Some((path, ino)) = todo.pop() {
            let d = self.get(ino);
            let dir = d.kind() == mode::IFDIR;
            if dir {
                let below = self.list(ino).into_iter().filter(|e| e.0 != "." && e.0 != "..");
                todo.extend(below.map(|(name, ino, _)| (format!("{path}/{name}"), ino)));
            }
            let content = if dir { Vec::new() } else { self.content(ino) };
            let (nlink, size) = if dir { (0, 0) } else { (d.nlink.get().into(), d.size.get()) };
            tree.insert(path, Item { mode: d.mode.get().into(), nlink, size, content });
        }
        tree
    }

    /// A fragment of data that nobody uses, aligned to a block, with a free block around it.
    pub fn free_block(&self, cgx: u32) -> u32 {
        let (bf, first) = (self.geom.block_frags(), 1 + self.geom.inode_sectors());
        let cg = self.read(self.geom.byte(self.geom.cg_block(cgx)), self.geom.block_size());
        let free = |b: &u32| (0..bf).all(|i| !bit(&cg, first, b + i));
        let found = (self.geom.meta_frags()..self.geom.cg_len(cgx)).step_by(bf as usize).find(free).unwrap();
        found + self.geom.cg_start(cgx).0
    }

    pub fn free_inode(&self, cgx: u32) -> u64 {
        let cg = self.read(self.geom.byte(self.geom.cg_block(cgx)), self.geom.block_size());
        let i = (0..self.geom.cg_inodes).find(|i| !bit(&cg, 1, *i)).unwrap();
        u64::from(cgx) * u64::from(self.geom.cg_inodes) + u64::from(i)
    }
}

pub fn set_bit(cg: &mut [u8], first: u32, i: u32, on: bool) {
    let (at, mask) = bit_place(first, i);
    cg[at] = if on { cg[at] | mask } else { cg[at] & !mask };
}

/// Fills an empty volume.
pub struct Builder {
    pub k: ImageCorruptor,
    inodes: BTreeMap<u64, Dinode>,
    used: Vec<Vec<u8>>,
    dirs: BTreeMap<u64, Vec<(String, u64)>>,
    spares: Vec<u64>,
}

impl Builder {
    pub fn new(dev: MemDevice) -> Builder {
        let k = ImageCorruptor::new(dev);
        let block = |cgx| k.read(k.geom.byte(k.geom.cg_block(cgx)), k.geom.block_size());
        let used: Vec<Vec<u8>> = (0..k.geom.cg_count).map(block).collect();
        let root = k.get(ROOT.0);
        Builder { k, inodes: [(ROOT.0, root)].into(), used, dirs: [(ROOT.0, vec![])].into(), spares: vec![] }
    }

    fn geom(&self) -> Geom {
        self.k.geom
    }

    fn take(&mut self, cgx: u32, frags: u32) -> u32 {
        self.try_take(cgx, frags).unwrap()
    }

    fn try_take(&mut self, cgx: u32, frags: u32) -> Option<u32> {
        let g = self.geom();
        let (bf, first) = (g.block_frags(), 1 + g.inode_sectors());
        let cg = &mut self.used[cgx as usize];
        let start = (g.meta_frags()..g.cg_len(cgx))
            .filter(|at| at % bf + frags <= bf)
            .find(|at| (0..frags).all(|i| !bit(cg, first, at + i)))?;
        (0..frags).for_each(|i| set_bit(cg, first, start + i, true));
        Some(start + g.cg_start(cgx).0)
    }

    fn new_inode(&mut self, cgx: u32, d: Dinode) -> u64 {
        let i = (0..self.geom().cg_inodes).find(|i| !bit(&self.used[cgx as usize], 1, *i)).unwrap();
        set_bit(&mut self.used[cgx as usize], 1, i, true);
        let ino = u64::from(cgx) * u64::from(self.geom().cg_inodes) + u64::from(i);
        self.inodes.insert(ino, Dinode { generation: 1.into(), ..d });
        ino
    }

    pub fn link(&mut self, dir: u64, name: &str, ino: u64) {
        self.dirs.get_mut(&dir).unwrap().push((name.into(), ino));
        let d = self.inodes.get_mut(&ino).unwrap();
        if d.kind() != mode::IFDIR {
            d.nlink = (d.nlink.get() + 1).into();
        }
    }

    pub fn special(&mut self, dir: u64, name: &str, kind: u32, rdev: u32) -> u64 {
        let mut d = Dinode { mode: ((kind | 0o644) as u16).into(), ..Dinode::default() };
        d.db[0] = rdev.into();
        let ino = self.new_inode(self.geom().cg_of_inode(Ino(dir)), d);
        self.link(dir, name, ino);
        ino
    }

    pub fn mkdir(&mut self, dir: u64, name: &str, cgx: u32) -> u64 {
        let d = Dinode { mode: ((mode::IFDIR | 0o755) as u16).into(), ..Dinode::default() };
        let ino = self.new_inode(cgx % self.geom().cg_count, d);
        self.dirs.insert(ino, vec![]);
        self.link(dir, name, ino);
        ino
    }

    /// A file of `size` bytes that has the blocks `lbns`.
    pub fn file(&mut self, dir: u64, name: &str, size: u64, lbns: &[u64], kind: u32) -> u64 {
        let d = Dinode { mode: ((kind | 0o644) as u16).into(), size: size.into(), ..Dinode::default() };
        let cgx = self.geom().cg_of_inode(Ino(dir));
        let ino = self.new_inode(cgx, d);
        self.link(dir, name, ino);
        for lbn in lbns {
            let frags = self.geom().lbn_frags(size, *lbn);
            let frag = self.take(cgx, frags);
            let data = bytes(self.geom().bytes_of(frags), ino as u32 * 31 + *lbn as u32);
            self.k.write(self.geom().byte(Frag(frag)), &data);
            self.set(ino, *lbn, frag, frags);
        }
        ino
    }

    pub fn fast_link(&mut self, dir: u64, name: &str, target: &str) -> u64 {
        let mut d = Dinode { mode: ((mode::IFLNK | 0o777) as u16).into(), ..Dinode::default() };
        d.size = (target.len() as u64).into();
        d.as_mut_bytes()[FAST_LINK_AT..][..target.len()].copy_from_slice(target.as_bytes());
        let ino = self.new_inode(self.geom().cg_of_inode(Ino(dir)), d);
        self.link(dir, name, ino);
        ino
    }

    /// Files in the root directory that take what is free in the end.
    pub fn fill_up(&mut self) {
        for n in 0..130 {
            let ino = self.file(ROOT.0, &format!("full {n}"), 0, &[], mode::IFREG);
            self.spares.push(ino);
        }
    }

    fn fill_spares(&mut self) {
        let bf = self.geom().block_frags();
        for ino in std::mem::take(&mut self.spares) {
            for lbn in 0..NDADDR as u64 {
                let whole = self.try_take(0, bf).map(|f| (f, bf));
                let found = whole.or_else(|| (lbn == 0).then(|| self.try_take(0, 1).map(|f| (f, 1))).flatten());
                let Some((frag, frags)) = found else { break };
                self.set(ino, lbn, frag, frags);
                let size = (lbn << self.geom().block_shift) + self.geom().bytes_of(frags) as u64;
                self.inodes.get_mut(&ino).unwrap().size = size.into();
                if frags == 1 {
                    break;
                }
            }
        }
    }

    /// Sets the pointer of a block, with the indirect ones it takes.
    fn set(&mut self, ino: u64, lbn: u64, frag: u32, frags: u32) {
        let (g, cgx) = (self.geom(), self.geom().cg_of_inode(Ino(ino)));
        let mut d = self.inodes[&ino];
        d.frags = (d.frags.get() + frags).into();
        if lbn < NDADDR as u64 {
            d.db[lbn as usize] = frag.into();
            self.inodes.insert(ino, d);
            return;
        }
        let n = g.nindir();
        let (mut rest, mut level) = (lbn - NDADDR as u64, 0);
        while rest >= n.pow(level + 1) {
            rest -= n.pow(level + 1);
            level += 1;
        }
        let mut at = d.ib[level as usize].get();
        if at == 0 {
            at = self.zeros(cgx, &mut d);
            d.ib[level as usize] = at.into();
        }
        for l in (0..=level).rev() {
            let byte = g.byte(Frag(at)) + rest / n.pow(l) % n * 4;
            let mut next = get_u32(&self.k.read(byte, 4), 0).unwrap();
            if l == 0 {
                next = frag;
            } else if next == 0 {
                next = self.zeros(cgx, &mut d);
            }
            self.k.write(byte, &next.to_le_bytes());
            at = next;
        }
        self.inodes.insert(ino, d);
    }

    fn zeros(&mut self, cgx: u32, d: &mut Dinode) -> u32 {
        let bf = self.geom().block_frags();
        let frag = self.take(cgx, bf);
        self.k.write(self.geom().byte(Frag(frag)), &vec![0; self.geom().block_size()]);
        d.frags = (d.frags.get() + bf).into();
        frag
    }

    pub fn xattrs(&mut self, ino: u64, list: &[(&str, &[u8])]) {
        let g = self.geom();
        let mut body = Vec::new();
        for (name, value) in list {
            body.extend([name.len() as u8, 0]);
            body.extend((value.len() as u16).to_le_bytes());
            body.extend(name.as_bytes());
            body.extend(*value);
        }
        let frags = g.frags_for(XATTR_HEADER + body.len());
        let frag = self.take(g.cg_of_inode(Ino(ino)), frags);
        let head = XattrHeader {
            magic: XATTR_MAGIC.into(),
            fsid: g.fsid.into(),
            ino: (ino as u32).into(),
            frags: frags.into(),
            len: (body.len() as u32).into(),
            ..XattrHeader::default()
        };
        let mut run = [head.as_bytes(), &body].concat();
        run.resize(g.bytes_of(frags), 0);
        seal_run(&mut run);
        self.k.write(g.byte(Frag(frag)), &run);
        let d = self.inodes.get_mut(&ino).unwrap();
        (d.xattr, d.frags) = (frag.into(), (d.frags.get() + frags).into());
    }

    /// Writes everything; the volume is clean then.
    pub fn finish(mut self) -> MemDevice {
        let dirs = std::mem::take(&mut self.dirs);
        let parent = |ino: u64| {
            let holds = |(_, all): &(&u64, &Vec<(String, u64)>)| all.iter().any(|e| e.1 == ino);
            dirs.iter().find(holds).map_or(ROOT.0, |d| *d.0)
        };
        for (ino, all) in &dirs {
            let mut entries = vec![(".".to_string(), *ino), ("..".to_string(), parent(*ino))];
            entries.extend(all.iter().cloned());
            let subdirs = all.iter().filter(|e| dirs.contains_key(&e.1)).count();
            self.write_dir(*ino, &entries);
            self.inodes.get_mut(ino).unwrap().nlink = (2 + subdirs as u16).into();
        }
        self.fill_spares();
        self.write_inodes();
        let sums: Vec<u8> = (0..self.geom().cg_count).flat_map(|cgx| self.write_group(cgx, &dirs)).collect();
        self.k.write(self.geom().byte(Frag(self.k.sb.summary_start.get())), &sums);
        self.k.super_at(0, |sb| sb.summary_crc = crc(&sums).into());
        self.k.dev
    }

    fn write_dir(&mut self, ino: u64, entries: &[(String, u64)]) {
        let g = self.geom();
        let mut chunks: Vec<Vec<u8>> = vec![vec![]];
        let mut last = 0;
        for (name, target) in entries {
            let need = (8 + name.len()).next_multiple_of(4);
            let chunk = chunks.last_mut().unwrap();
            if chunk.len() + need > 512 {
                fill(chunk, last);
                chunks.push(vec![]);
            }
            let chunk = chunks.last_mut().unwrap();
            last = chunk.len();
            chunk.extend((*target as u32).to_le_bytes());
            chunk.extend((need as u16).to_le_bytes());
            chunk.extend([(self.inodes[target].kind() >> 12) as u8, name.len() as u8]);
            chunk.extend(name.as_bytes());
            chunk.resize(last + need, 0);
        }
        fill(chunks.last_mut().unwrap(), last);
        while !(chunks.len() * 512).is_multiple_of(g.frag_size()) {
            let mut empty = vec![0; 8];
            fill(&mut empty, 0);
            chunks.push(empty);
        }
        let all = chunks.concat();
        let size = all.len() as u64;
        let d = self.inodes.get_mut(&ino).unwrap();
        d.size = size.into();
        if ino == ROOT.0 {
            // The fragment that mkfs gave it.
            d.frags = 0.into();
            let old = d.db[0].get();
            set_bit(&mut self.used[0], 1 + g.inode_sectors(), old, false);
        }
        for (lbn, block) in (0u64..).zip(all.chunks(g.block_size())) {
            let frags = g.lbn_frags(size, lbn);
            let frag = self.take(g.cg_of_inode(Ino(ino)), frags);
            self.k.write(g.byte(Frag(frag)), block);
            self.set(ino, lbn, frag, frags);
        }
    }

    fn write_inodes(&self) {
        let g = self.geom();
        for cgx in 0..g.cg_count {
            for n in 0..self.inited(cgx) / g.inodes_per_block() {
                let frag = g.cg_start(cgx).0 + (2 + n) * g.block_frags();
                self.k.write(g.byte(Frag(frag)), &vec![0; g.block_size()]);
            }
        }
        self.inodes.iter().for_each(|(ino, d)| self.k.put(*ino, *d));
    }

    fn inited(&self, cgx: u32) -> u32 {
        let g = self.geom();
        let own = self.inodes.keys().filter(|i| g.cg_of_inode(Ino(**i)) == cgx).max();
        own.map_or(0, |i| ((i % u64::from(g.cg_inodes)) as u32 + 1).next_multiple_of(g.inodes_per_block()))
    }

    /// Counts by going through the fragments one by one.
    fn write_group(&self, cgx: u32, dirs: &BTreeMap<u64, Vec<(String, u64)>>) -> Vec<u8> {
        let g = self.geom();
        let (mut cg, bf, first) = (self.used[cgx as usize].clone(), g.block_frags(), 1 + g.inode_sectors());
        let mut h = CgHeader::read_from_prefix(&cg).unwrap().0;
        let (mut nbfree, mut nffree, mut frsum) = (0, 0, [0u32; 8]);
        for b in (0..g.cg_len(cgx)).step_by(bf as usize) {
            let mut run = 0;
            for i in 0..=bf {
                if i < bf && !bit(&cg, first, b + i) {
                    run += 1;
                    continue;
                }
                if run == bf {
                    nbfree += 1;
                } else if run > 0 {
                    nffree += run;
                    frsum[run as usize] += 1;
                }
                run = 0;
            }
        }
        h.frsum = frsum.map(Into::into);
        h.sum = Summary {
            nbfree: nbfree.into(),
            nffree: nffree.into(),
            nifree: ((0..g.cg_inodes).filter(|i| !bit(&cg, 1, *i)).count() as u32).into(),
            ndir: (dirs.keys().filter(|i| g.cg_of_inode(Ino(**i)) == cgx).count() as u32).into(),
        };
        h.initediblk = self.inited(cgx).into();
        cg[..SECTOR].copy_from_slice(h.as_bytes());
        seal_cg(&mut cg);
        self.k.write(g.byte(g.cg_block(cgx)), &cg);
        h.sum.as_bytes().to_vec()
    }
}

/// The last entry of a chunk takes the rest of it.
fn fill(chunk: &mut Vec<u8>, last: usize) {
    let rest = (512 - last) as u16;
    chunk.resize(512, 0);
    chunk[last + 4..last + 6].copy_from_slice(&rest.to_le_bytes());
}

pub fn seal_run(run: &mut [u8]) {
    let sum = crc_without(run, CRC_AT).unwrap();
    put_u32(run, CRC_AT, sum);
}

/// A volume with something of everything.
pub fn build(size: u64, options: &str) -> MemDevice {
    let mut b = Builder::new(format(size, options));
    let (root, block) = (ROOT.0, b.k.geom.block_size() as u64);
    let (a, deep) = (b.mkdir(root, "a", 1), b.mkdir(root, "b", 2));
    let small = b.file(a, "small", 100, &[0], mode::IFREG);
    b.link(deep, "hard", small);
    b.file(a, "empty", 0, &[], mode::IFREG);
    b.file(a, "tail", block + block / 8 + 7, &[0, 1], mode::IFREG);
    b.file(a, "tail2", block / 8 * 3, &[0], mode::IFREG);
    b.fast_link(a, "fast", "some/where/else");
    b.file(a, "slow", 200, &[0], mode::IFLNK);
    b.special(a, "null", mode::IFCHR, 0x103);
    b.special(a, "pipe", mode::IFIFO, 0);
    let sub = b.mkdir(a, "sub", 0);
    let subsub = b.mkdir(sub, "subsub", 3);
    b.file(subsub, "leaf", 5000, &(0..5000u64.div_ceil(block)).collect::<Vec<_>>(), mode::IFREG);
    b.file(deep, "big", block * 30 - 5, &(0..30).collect::<Vec<_>>(), mode::IFREG);
    let n = b.k.geom.nindir();
    let far = [3, 14, 12 + n + 1, 12 + n + n + 2, 12 + n + n * n + 7];
    b.file(deep, "sparse", (far[4] + 1) * block, &far, mode::IFREG);
    let heavy = b.file(deep, "heavy", 10, &[0], mode::IFREG);
    b.xattrs(heavy, &[("user.one", b"1"), ("user.two", &bytes(300, 4))]);
    let many = b.mkdir(root, "many", 1);
    for i in 0..block / 60 {
        b.file(many, &format!("file number {i:-<60}"), i % 3, if i % 3 == 0 { &[] } else { &[0] }, mode::IFREG);
    }
    let wide = b.mkdir(root, "wide", 2);
    for i in 0..20 {
        b.mkdir(wide, &format!("{i}"), i);
    }
    b.finish()
}
