//! Which structures lie on an unmounted volume and what their fields are, for tests of damage.
//!
//! Walks as `describe.rs` does; on a volume with a log to be replayed the places are those after
//! the replay.

use crate::body;
use crate::check::view::{self, RawInode, Reader};
use crate::describe::{extent, is_dir};
use crate::dump::log_records;
use crate::format::*;
use arbor_base::device::{Device, Kind};
use arbor_base::layout::{crc_without, get_u16};
use arbor_base::vfs::{Devices, Field, Meaning, Result, Structure, mode};
use arbor_kit::{fields, superblock_fields};
use std::mem::offset_of;
use zerocopy::FromBytes;

const SUPER: &[Field] = superblock_fields!(SuperBlock, clean, {
    frag_shift: Number,
    block_shift: Number,
    inode_shift: Number,
    ag_count: Number,
    frags: Number,
    ag_frags: Number,
    ag_used: Number,
    bitmap_blocks: Number,
    log_start: Address,
    log_sectors: Number,
    root: Address,
    hash_seed: Number,
    avg_file_size: Number,
    avg_files_per_dir: Number,
    maxblkpg: Number,
    mounts: Number,
    created: Number,
    reserved: Bytes,
});
const BLOCK: &[Field] = fields!(BlockHeader {
    magic: Number,
    crc: Checksum,
    fsid: Number,
    addr: Address,
    owner: Address,
    len: Number,
    reserved: Number,
});
const GROUP: &[Field] = fields!(GroupBody { free: Number, dirs: Number, frags: Number, reserved: Number });
const INODES: &[Field] = fields!(InodesBody { total: Number, free: Number, recovery: Address });
const INODE: &[Field] = fields!(Dinode {
    magic: Number,
    crc: Checksum,
    ino: Address,
    generation: Number,
    mode: Number,
    uid: Number,
    gid: Number,
    nlink: Number,
    rdev: Number,
    size: Number,
    frags: Number,
    atime: Number,
    mtime: Number,
    ctime: Number,
    btime: Number,
    atime_ns: Number,
    mtime_ns: Number,
    ctime_ns: Number,
    btime_ns: Number,
    parent: Address,
    next: Address,
    xattr: Address,
    xattr_frags: Number,
    xattr_inline: Number,
    format: Number,
    reserved: Number,
});
const DIR: &[Field] = fields!(DirHead { first: Number, end: Number, count: Number, live: Number });
const ENTRY: &[Field] =
    fields!(DirEnt { next: Number, name_len: Number, kind: Number, hash: Number, seq: Number, ino: Address });
const ATTRIBUTE: &[Field] = fields!(XattrHead { name_len: Number, reserved: Number, value_len: Number });
const ANCHOR: &[Field] = fields!(LogAnchor {
    magic: Number,
    crc: Checksum,
    fsid: Number,
    seq: Number,
    tail: Address,
    prev: Address,
    time: Number,
    reserved: Bytes,
});
const RECORD: &[Field] = fields!(LogHeader {
    magic: Number,
    crc: Checksum,
    fsid: Number,
    lsn: Address,
    prev: Address,
    len: Number,
    count: Number,
    time: Number,
    reserved: Bytes,
});
const LOG: &[Field] = fields!(LogEntry {
    kind: Number,
    seal: Number,
    reserved: Number,
    tid: Number,
    addr: Address,
    at: Number,
    len: Number,
});

/// How structures of a kind carry their checksum.
enum Sealed {
    Super,
    Block,
    Inode,
    Anchor,
    Record,
}

fn sealed(kind: &str) -> Sealed {
    match kind {
        "superblock" | "superblock copy" => Sealed::Super,
        "log anchor" => Sealed::Anchor,
        "log record" => Sealed::Record,
        _ if kind.starts_with("inode") => Sealed::Inode,
        _ => Sealed::Block,
    }
}

/// See [`Engine::reseal`](arbor_base::vfs::Engine::reseal).
pub(crate) fn reseal(device: &dyn Device, s: &Structure) -> Result<()> {
    let mut bytes = vec![0; s.len];
    device.read_at(Kind::Other, s.offset, &mut bytes)?;
    match sealed(s.kind) {
        Sealed::Super => Seal::Super.seal(&mut bytes, 0),
        Sealed::Block => Seal::Block.seal(&mut bytes, 0),
        Sealed::Inode => Seal::Inodes.seal(&mut bytes, s.len),
        Sealed::Anchor => seal_head(&mut bytes, size_of::<LogAnchor>(), offset_of!(LogAnchor, crc)),
        Sealed::Record => {
            // Its length may have been changed to one past its end.
            let len = LogHeader::read_from_prefix(&bytes).map_or(0, |(h, _)| h.len.get() as usize);
            let total = RECORD_HEAD.saturating_add(len);
            let room = usize::try_from(device.geometry().size.saturating_sub(s.offset)).unwrap_or(usize::MAX);
            if total > s.len && total <= room.min(1 << 20) {
                bytes.resize(total.next_multiple_of(SECTOR as usize), 0);
                device.read_at(Kind::Other, s.offset, &mut bytes)?;
            }
            seal_head(&mut bytes, total, offset_of!(LogHeader, crc));
        }
    }
    Ok(device.write_at(Kind::Other, s.offset, &bytes)?)
}

fn seal_head(bytes: &mut [u8], len: usize, at: usize) {
    let crc = bytes.get(..len).and_then(|head| crc_without(head, at));
    if let (Some(crc), Some(field)) = (crc, bytes.get_mut(at..at + 4)) {
        field.copy_from_slice(&crc.to_le_bytes());
    }
}

/// See [`Engine::structures`](arbor_base::vfs::Engine::structures).
pub(crate) fn structures(devices: &Devices, f: &mut dyn FnMut(Structure)) -> Result<()> {
    let r = view::open(devices)?;
    let mut a = Structures { r: &r, f };
    a.log(devices)?;
    for ag in 0..r.ags() {
        a.group(ag)?;
    }
    Ok(())
}

/// Fields found so far.
#[derive(Default)]
struct Fields(Vec<Field>);

impl Fields {
    fn table(&mut self, table: &[Field], at: usize) {
        self.0.extend(table.iter().map(|f| Field { at: f.at + at as u32, ..*f }));
    }

    fn one(&mut self, name: &'static str, at: usize, len: usize, meaning: Meaning) {
        if let (Ok(at), Ok(len @ 1..)) = (u32::try_from(at), u32::try_from(len)) {
            self.0.push(Field { name, at, len, meaning });
        }
    }

    /// A node of a tree with values of `value` bytes, see `btree.rs`.
    fn node(&mut self, body: &[u8], at: usize, value: usize) {
        self.one("node.count", at, 2, Meaning::Number);
        self.one("node.level", at + 2, 1, Meaning::Number);
        let level = body.get(2).copied().unwrap_or(0);
        let size = 8 + if level == 0 { value } else { 8 };
        let room = body.len().saturating_sub(NODE_HEADER) / size;
        for n in 0..usize::from(get_u16(body, 0).unwrap_or(0)).min(room) {
            let at = at + NODE_HEADER + n * size;
            self.one("node.key", at, 8, Meaning::Number);
            match (level, value) {
                (0, EXTENT_VALUE) => {
                    self.one("extent.start", at + 8, 8, Meaning::Address);
                    self.one("extent.len", at + 16, 4, Meaning::Number);
                    self.one("extent.flags", at + 20, 4, Meaning::Number);
                }
                (0, _) => self.one("node.value", at + 8, value, Meaning::Address),
                _ => self.one("node.child", at + 8, 8, Meaning::Address),
            }
        }
    }

    fn entries(&mut self, body: &[u8], at: usize) {
        self.table(DIR, at);
        for e in body::parse(body).0 {
            self.table(ENTRY, at + e.at);
            self.one("entry.name", at + e.at + DIR_ENT, e.name.len(), Meaning::Bytes);
        }
    }

    fn attributes(&mut self, mut bytes: &[u8], mut at: usize) {
        while let Ok((head, rest)) = XattrHead::ref_from_prefix(bytes) {
            let (name, value) = (usize::from(head.name_len), head.value_len.get() as usize);
            let Some(tail) = rest.get(name.saturating_add(value)..).filter(|_| name > 0) else { break };
            self.table(ATTRIBUTE, at);
            self.one("attribute.name", at + XATTR_HEAD, name, Meaning::Bytes);
            at += XATTR_HEAD + name + value;
            bytes = tail;
        }
        // The end of the list.
        self.table(ATTRIBUTE, at);
    }
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

    /// A block with a header; `f` adds the fields of its body.
    fn block(&mut self, kind: &'static str, addr: Daddr, len: usize, f: impl FnOnce(&mut Fields, &[u8])) -> Result<()> {
        let bytes = self.r.read(Kind::Other, addr.byte(), len)?;
        let mut fields = Fields::default();
        fields.table(BLOCK, 0);
        f(&mut fields, bytes.get(HEADER..).unwrap_or(&[]));
        let frag = self.r.geom.frag_of(addr);
        self.emit(kind, addr.0, addr.byte(), len, vec![frag.0, addr.0], fields);
        Ok(())
    }

    fn log(&mut self, devices: &Devices) -> Result<()> {
        if self.r.log_run().is_none() {
            return Ok(());
        }
        let start = self.r.sb.log_start.get();
        for slot in 0..2 {
            let mut fields = Fields::default();
            fields.table(ANCHOR, 0);
            self.emit("log anchor", slot, (start + slot) * SECTOR, SECTOR as usize, vec![], fields);
        }
        for record in log_records(devices, self.r)? {
            let mut fields = Fields::default();
            fields.table(RECORD, 0);
            let mut at = 0;
            while let Some((head, _)) = record.body.get(at..).and_then(|b| LogEntry::ref_from_prefix(b).ok()) {
                fields.table(LOG, RECORD_HEAD + at);
                at += LOG_ENTRY;
                if head.kind == EntryType::Update as u8 {
                    fields.one("log.data", RECORD_HEAD + at, head.len.get() as usize, Meaning::Bytes);
                    at = at.saturating_add(head.len.get() as usize);
                }
            }
            let len = (RECORD_HEAD + record.body.len()).next_multiple_of(SECTOR as usize);
            let offset = (start + u64::from(record.lsn.sector())) * SECTOR;
            self.emit("log record", record.lsn.0, offset, len, vec![record.lsn.0], fields);
        }
        Ok(())
    }

    fn group(&mut self, ag: u32) -> Result<()> {
        let geom = self.r.geom;
        let size = geom.block_size();
        let start = geom.ag_start(ag);
        let mut fields = Fields::default();
        fields.table(SUPER, 0);
        let kind = if ag == 0 { "superblock" } else { "superblock copy" };
        let addr = geom.daddr(start);
        self.emit(kind, ag.into(), addr.byte(), SECTOR as usize, vec![start.0, addr.0], fields);
        self.block("AG group block", geom.group_block(ag), size, |f, _| f.table(GROUP, HEADER))?;
        self.block("AG inode block", geom.inode_block(ag), size, |f, body| {
            let root = size_of::<InodesBody>();
            f.table(INODES, HEADER);
            f.node(body.get(root..).unwrap_or(&[]), HEADER + root, CHUNK_VALUE);
        })?;
        for n in 0..geom.bitmap_blocks {
            self.block("AG bitmap block", geom.bitmap_block(ag, n), size, |f, body| {
                // The beginning holds the AG's own structures, and so most that matters.
                let head = body.len().min(64);
                f.one("bitmap.head", HEADER, head, Meaning::Bytes);
                f.one("bitmap.rest", HEADER + head, body.len() - head, Meaning::Bytes);
            })?;
        }
        let walk = self.r.chunk_tree(ag)?;
        for (node, _) in &walk.nodes {
            self.block("inode chunk tree node", geom.daddr(*node), size, |f, body| f.node(body, HEADER, CHUNK_VALUE))?;
        }
        for (start, _) in self.r.chunks(&walk) {
            self.chunk(start)?;
        }
        Ok(())
    }

    fn chunk(&mut self, start: u64) -> Result<()> {
        let (len, size) = (self.r.geom.chunk_size(), self.r.geom.inode_size());
        let bytes = self.r.read(Kind::Inode, start.saturating_mul(SECTOR), len)?;
        for (n, inode) in bytes.chunks_exact(size).enumerate() {
            let ino = start.saturating_add((n * size) as u64 / SECTOR);
            match RawInode::decode(ino, inode) {
                Some(i) if i.in_use() => self.inode(&i)?,
                // Of those that are free the first few stand for all.
                _ if n % 16 == 0 => {
                    let mut fields = Fields::default();
                    fields.table(INODE, 0);
                    self.emit("inode, free", ino, ino.saturating_mul(SECTOR), size, vec![ino], fields);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn inode(&mut self, i: &RawInode) -> Result<()> {
        let mut fields = Fields::default();
        fields.table(INODE, 0);
        let kind = i.d.mode.get() & mode::IFMT;
        match i.d.format() {
            Some(Format::Extent | Format::Btree) => {
                fields.node(i.area(), DINODE, if is_dir(i) { DIR_VALUE } else { EXTENT_VALUE });
            }
            _ if is_dir(i) => fields.entries(i.area(), DINODE),
            _ if kind == mode::IFLNK => fields.one("target", DINODE, i.d.size.get() as usize, Meaning::Bytes),
            _ => {}
        }
        let attributes = i.inline_xattrs();
        if !attributes.is_empty() {
            fields.attributes(attributes, i.bytes.len() - attributes.len());
        }
        let name = match (kind, i.d.format()) {
            (mode::IFREG, Some(Format::Inline)) => "inode, inline file",
            (mode::IFREG, Some(Format::Btree)) => "inode, file with a tree",
            (mode::IFREG, _) => "inode, file with extents",
            (mode::IFDIR, Some(Format::Inline)) => "inode, inline directory",
            (mode::IFDIR, Some(Format::Btree)) => "inode, directory with a tree",
            (mode::IFDIR, _) => "inode, directory with blocks",
            (mode::IFLNK, Some(Format::Inline)) => "inode, inline symbolic link",
            (mode::IFLNK, _) => "inode, symbolic link with a block",
            _ => "inode, device or pipe",
        };
        self.emit(name, i.ino, i.ino.saturating_mul(SECTOR), i.bytes.len(), vec![i.ino], fields);
        self.blocks_of(i)
    }

    fn blocks_of(&mut self, i: &RawInode) -> Result<()> {
        let geom = self.r.geom;
        let (size, walk) = (geom.block_size(), self.r.map(i)?);
        let (kind, value) = match is_dir(i) {
            true => ("directory tree node", DIR_VALUE),
            false => ("extent tree node", EXTENT_VALUE),
        };
        for (node, _) in &walk.nodes {
            self.block(kind, geom.daddr(*node), size, |f, body| f.node(body, HEADER, value))?;
        }
        for (start, frags, _) in walk.records.iter().map(extent) {
            let addr = geom.daddr(start);
            if is_dir(i) {
                self.block("directory block", addr, size, |f, body| f.entries(body, HEADER))?;
            } else if i.d.mode.get() & mode::IFMT == mode::IFLNK {
                let len = (u64::from(frags) * geom.frag_size()) as usize;
                let target = i.d.size.get() as usize;
                self.block("symbolic link block", addr, len, |f, _| f.one("target", HEADER, target, Meaning::Bytes))?;
            }
        }
        let (start, frags) = (Frag(i.d.xattr.get()), i.d.xattr_frags.get());
        if start.0 != 0 && self.r.valid_run(start, frags) {
            let len = (u64::from(frags) * geom.frag_size()) as usize;
            self.block("extended attribute block", geom.daddr(start), len, |f, body| f.attributes(body, HEADER))?;
        }
        Ok(())
    }
}
