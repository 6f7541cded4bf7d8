//! The structures of an unmounted volume with their fields, for tests of damage. Walks as `describe.rs` does.

use crate::check::view::{self, Reader};
use crate::describe::piece_name;
use crate::format::*;
use arbor_base::device::{Device, Kind};
use arbor_base::layout::{crc_without, get_u32};
use arbor_base::vfs::{Devices, Field, Ino, Meaning, Result, Structure, mode};
use arbor_kit::dirent::entry;
use arbor_kit::structures::Fields;
use arbor_kit::{fields, superblock_fields};
use std::mem::offset_of;

const SUPER: &[Field] = superblock_fields!(SuperBlock, clean, {
    block_shift: Number,
    frag_shift: Number,
    cg_count: Number,
    cg_frags: Number,
    cg_inodes: Number,
    keeping: Number,
    frags: Number,
    summary_start: Address,
    summary_crc: Number,
    journal_start: Address,
    journal_frags: Number,
    orphan: Address,
    avg_file_size: Number,
    avg_files_per_dir: Number,
    minfree: Number,
    maxcontig: Number,
    maxbpg: Number,
    rotdelay: Number,
    reserved0: Number,
    mounts: Number,
    created: Number,
    reserved: Bytes,
});
const GROUP: &[Field] = fields!(CgHeader {
    magic: Number,
    crc: Checksum,
    fsid: Number,
    cgx: Number,
    frags: Number,
    sum: Bytes,
    frsum: Bytes,
    rotor: Number,
    frotor: Number,
    irotor: Number,
    initediblk: Number,
    inodes: Number,
    reserved: Bytes,
});
const SUMMARY: &[Field] = fields!(Summary { nbfree: Number, nffree: Number, nifree: Number, ndir: Number });
const INODE_FIELDS: &[Field] = fields!(Dinode {
    mode: Number,
    nlink: Number,
    uid: Number,
    gid: Number,
    frags: Number,
    size: Number,
    atime: Number,
    mtime: Number,
    ctime: Number,
    btime: Number,
    db: Bytes,
    ib: Bytes,
    xattr: Address,
    generation: Number,
    crc: Checksum,
});
const XATTR: &[Field] = fields!(XattrHeader {
    magic: Number,
    crc: Checksum,
    fsid: Number,
    ino: Address,
    frags: Number,
    len: Number,
    reserved: Number,
});
const ENTRY: &[Field] = fields!(DirentHead { ino: Address, reclen: Number, kind: Number, namlen: Number });

/// See [`Engine::reseal`](arbor_base::vfs::Engine::reseal). Chunks of directories and indirect blocks have no
/// checksum.
pub(crate) fn reseal(device: &dyn Device, s: &Structure) -> Result<()> {
    let start = s.offset / SECTOR as u64 * SECTOR as u64;
    let within = (s.offset - start) as usize;
    let mut all = vec![0; (within + s.len).next_multiple_of(SECTOR)];
    device.read_at(Kind::Other, start, &mut all)?;
    let Some(bytes) = all.get_mut(within..within + s.len) else { return Ok(()) };
    match s.kind {
        "superblock" | "superblock copy" => seal(bytes, SUPER_CRC_AT),
        "group header" | "attributes" => seal(bytes, CRC_AT),
        "bitmap" => {
            // A sector of a group that is not its first.
            let mut cg = [&[0; SECTOR], &*bytes].concat();
            seal_cg(&mut cg);
            bytes.iter_mut().zip(cg.iter().skip(SECTOR)).for_each(|(b, new)| *b = *new);
        }
        kind if kind.starts_with("inode") => {
            let mut sb = vec![0; SECTOR];
            device.read_at(Kind::Super, 0, &mut sb)?;
            let fsid = arbor_base::layout::get_u64(&sb, offset_of!(SuperBlock, uuid)).unwrap_or(0);
            let crc = inode_crc(bytes, fsid, Ino(s.number));
            put_u32(bytes, offset_of!(Dinode, crc), crc);
        }
        _ => return Ok(()),
    }
    Ok(device.write_at(Kind::Other, start, &all)?)
}

fn seal(bytes: &mut [u8], at: usize) {
    if let Some(crc) = crc_without(bytes, at) {
        put_u32(bytes, at, crc);
    }
}

/// See [`Engine::structures`](arbor_base::vfs::Engine::structures).
pub(crate) fn structures(devices: &Devices, f: &mut dyn FnMut(Structure)) -> Result<()> {
    let r = view::open(devices)?;
    let mut a = Structures { r: &r, f };
    a.summary();
    (0..r.geom.cg_count).try_for_each(|cgx| a.group(cgx))
}

fn addresses(fields: Fields, name: &'static str, at: usize, n: usize) -> Fields {
    (0..n).fold(fields, |fields, i| fields.one(name, at + i * 4, 4, Meaning::Address))
}

struct Structures<'a, 'd> {
    r: &'a Reader<'d>,
    f: &'a mut dyn FnMut(Structure),
}

impl Structures<'_, '_> {
    fn emit(&mut self, kind: &'static str, number: u64, offset: u64, len: usize, addresses: Vec<u64>, fields: Fields) {
        let mut fields = fields.0;
        fields.retain(|f| u64::from(f.at) + u64::from(f.len) <= len as u64);
        (self.f)(Structure { offset, len, kind, number, addresses, fields, checksums: Vec::new() });
    }

    fn summary(&mut self) {
        let (start, n) = (self.r.sb.summary_start.get(), self.r.geom.cg_count as usize);
        let each = size_of::<Summary>();
        let fields = (0..n).fold(Fields::default(), |f, i| f.table(SUMMARY, i * each));
        let len = self.r.geom.bytes_of(self.r.geom.summary_frags());
        self.emit("summary area", 0, self.r.geom.byte(Frag(start)), len, vec![start.into()], fields);
    }

    fn group(&mut self, cgx: u32) -> Result<()> {
        let (geom, number) = (self.r.geom, u64::from(cgx));
        let start = geom.cg_start(cgx);
        let kind = if cgx == 0 { "superblock" } else { "superblock copy" };
        let fields = Fields::default().table(SUPER, 0);
        self.emit(kind, number, geom.byte(start), SECTOR, vec![start.0.into()], fields);
        let (block, head) = (geom.cg_block(cgx), offset_of!(CgHeader, sum));
        let fields = Fields::default().table(GROUP, 0).table(SUMMARY, head);
        self.emit("group header", number, geom.byte(block), SECTOR, vec![block.0.into()], fields);
        for n in 1..=geom.inode_sectors() + geom.frag_sectors() {
            // The beginning holds most of what matters.
            let fields = Fields::default().one("bitmap.head", 0, 64, Meaning::Bytes);
            let fields = fields.one("bitmap.rest", 64, SECTOR - 68, Meaning::Bytes);
            let at = geom.byte(block) + u64::from(n) * SECTOR as u64;
            self.emit("bitmap", number << 16 | u64::from(n), at, SECTOR, vec![], fields);
        }
        for n in 0..self.r.inited_blocks(cgx)? {
            let first = self.r.first_inode(cgx) + u64::from(n * geom.inodes_per_block());
            let used = self.r.inodes_in(cgx, n)?;
            used.iter().try_for_each(|(ino, d)| self.inode(*ino, d))?;
            // One free inode stands for all.
            let free = (first.max(ROOT.0)..).take(geom.inodes_per_block() as usize);
            if let Some(ino) = free.into_iter().find(|i| used.iter().all(|u| u.0 != *i)) {
                let fields = Fields::default().table(INODE_FIELDS, 0);
                self.emit("inode, free", ino, self.r.inode_byte(ino), INODE, vec![ino], fields);
            }
        }
        Ok(())
    }

    fn inode(&mut self, ino: u64, d: &Dinode) -> Result<()> {
        let (kind, mut fields) = match d.kind() {
            mode::IFREG => ("inode, file", Fields::default()),
            mode::IFDIR => ("inode, directory", Fields::default()),
            mode::IFLNK => ("inode, symbolic link", Fields::default()),
            _ => ("inode, device or pipe", Fields::default()),
        };
        fields = fields.table(INODE_FIELDS, 0);
        if d.has_blocks() {
            fields = addresses(fields, "inode.db", FAST_LINK_AT, NDADDR);
            fields = addresses(fields, "inode.ib", FAST_LINK_AT + 4 * NDADDR, NIADDR);
        }
        self.emit(kind, ino, self.r.inode_byte(ino), INODE, vec![ino], fields);
        let mut blocks = Vec::new();
        self.r.pieces(d, &mut |p| blocks.extend((piece_name(d, p).0 != Kind::Data).then_some(*p)))?;
        for p in blocks {
            let bytes = self.r.run(Kind::Other, p.frag, p.frags)?;
            match p.level {
                0 => self.chunks(p.frag, &bytes),
                _ => self.indirect(p.frag, &bytes),
            }
        }
        self.xattr(ino, Frag(d.xattr.get()))
    }

    fn chunks(&mut self, frag: Frag, bytes: &[u8]) {
        for (i, chunk) in bytes.chunks_exact(DIRBLKSIZ).enumerate() {
            let (mut at, mut fields) = (0, Fields::default());
            while let Ok(e) = entry(chunk, at) {
                fields = fields.table(ENTRY, at).one("entry.name", at + DIRENT_HEAD, e.name.len(), Meaning::Bytes);
                at += e.reclen;
            }
            let offset = self.r.geom.byte(frag) + (i * DIRBLKSIZ) as u64;
            self.emit("directory chunk", offset, offset, DIRBLKSIZ, vec![frag.0.into()], fields);
        }
    }

    /// The pointers of an indirect block that are set, and one that is not.
    fn indirect(&mut self, frag: Frag, bytes: &[u8]) {
        let pointers = || bytes.chunks_exact(4).map(|b| get_u32(b, 0).unwrap_or(0)).enumerate();
        let set = pointers().filter(|(_, p)| *p != 0).chain(pointers().find(|(_, p)| *p == 0));
        let fields = set.fold(Fields::default(), |f, (i, _)| addresses(f, "indirect.pointer", i * 4, 1));
        let offset = self.r.geom.byte(frag);
        self.emit("indirect block", frag.0.into(), offset, bytes.len(), vec![frag.0.into()], fields);
    }

    fn xattr(&mut self, ino: u64, frag: Frag) -> Result<()> {
        if frag.0 == 0 {
            return Ok(());
        }
        let Ok(frags) = self.r.xattr_frags(ino, frag)? else { return Ok(()) };
        let bytes = self.r.run(Kind::Xattr, frag, frags)?;
        let fields = Fields::default().table(XATTR, 0).attributes(&bytes, XATTR_HEADER);
        self.emit("attributes", ino, self.r.geom.byte(frag), bytes.len(), vec![frag.0.into()], fields);
        Ok(())
    }
}
