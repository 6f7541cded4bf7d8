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
use arbor_base::layout::get_u16;
use arbor_base::vfs::{Checksum, Devices, Meaning, Result, Structure, mode};
use arbor_kit::structures::{Fields, rewrite, seal, seal_whole};
use std::mem::offset_of;
use zerocopy::FromBytes;

arbor_kit::fields! {
    SuperBlock {
        magic, crc: Checksum, version, compat, ro_compat, incompat, clean, uuid, label, frag_shift, block_shift,
        inode_shift, ag_count, frags, ag_frags, ag_used, bitmap_blocks, log_start: Address, log_sectors, root: Address,
        hash_seed, avg_file_size, avg_files_per_dir, maxblkpg, mounts, created, reserved,
    }
    BlockHeader { magic, crc: Checksum, fsid, addr: Address, owner: Address, len, reserved }
    GroupBody { free, dirs, frags, reserved }
    InodesBody { total, free, recovery: Address }
    Dinode {
        magic, crc: Checksum, ino: Address, generation, mode, uid, gid, nlink, rdev, size, frags, atime, mtime, ctime,
        btime, atime_ns, mtime_ns, ctime_ns, btime_ns, parent: Address, next: Address, xattr: Address, xattr_frags,
        xattr_inline, format, reserved,
    }
    DirHead { first, end, count, live }
    DirEnt { next, name_len, kind, hash, seq, ino: Address }
    XattrHead { name_len, reserved, value_len }
    LogAnchor { magic, crc: Checksum, fsid, seq, tail: Address, prev: Address, time, mounts, records }
    LogHeader { magic, crc: Checksum, fsid, lsn: Address, prev: Address, len, count, time, settled, reserved }
    LogEntry { kind, seal, reserved, tid, addr: Address, at, len }
}

/// See [`Engine::reseal`](arbor_base::vfs::Engine::reseal).
pub(crate) fn reseal(device: &dyn Device, s: &Structure) -> Result<()> {
    let (at, len) = match s.kind {
        "log anchor" => (offset_of!(LogAnchor, crc), size_of::<LogAnchor>() as u64),
        "log record" => {
            let mut head = vec![0; SECTOR as usize];
            device.read_at(Kind::Log, s.offset, &mut head)?;
            let len = LogHeader::read_from_prefix(&head).map_or(0, |(h, _)| h.len.get());
            (offset_of!(LogHeader, crc), RECORD_HEAD as u64 + u64::from(len))
        }
        kind if kind.starts_with("inode,") => {
            return rewrite(device, s.offset, s.len, |bytes| Seal::Inodes.seal(bytes, s.len));
        }
        _ => return seal_whole(device, s),
    };
    // The length of a record may have been changed to one past its end.
    let room = device.geometry().size.saturating_sub(s.offset).min(1 << 20);
    if len > room.max(s.len as u64) {
        return Ok(());
    }
    seal(device, &Checksum { at: s.offset + at as u64, offset: s.offset, len })
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

/// Adds a node of a tree with values of `value` bytes, see `btree.rs`.
fn node(fields: Fields, body: &[u8], at: usize, value: usize) -> Fields {
    let mut fields = fields.one("node.count", at, 2, Meaning::Number).one("node.level", at + 2, 1, Meaning::Number);
    let level = body.get(2).copied().unwrap_or(0);
    let size = 8 + if level == 0 { value } else { 8 };
    let room = body.len().saturating_sub(NODE_HEADER) / size;
    for n in 0..usize::from(get_u16(body, 0).unwrap_or(0)).min(room) {
        let at = at + NODE_HEADER + n * size;
        fields = fields.one("node.key", at, 8, Meaning::Number);
        fields = match (level, value) {
            (0, EXTENT_VALUE) => fields
                .one("extent.start", at + 8, 8, Meaning::Address)
                .one("extent.len", at + 16, 4, Meaning::Number)
                .one("extent.flags", at + 20, 4, Meaning::Number),
            (0, _) => fields.one("node.value", at + 8, value, Meaning::Address),
            _ => fields.one("node.child", at + 8, 8, Meaning::Address),
        };
    }
    fields
}

fn entries(fields: Fields, body: &[u8], at: usize) -> Fields {
    body::parse(body).0.iter().fold(fields.of::<DirHead>(at), |fields, e| {
        let fields = fields.of::<DirEnt>(at + e.at);
        fields.one("entry.name", at + e.at + DIR_ENT, e.name.len(), Meaning::Bytes)
    })
}

fn attributes(mut fields: Fields, mut bytes: &[u8], mut at: usize) -> Fields {
    while let Ok((head, rest)) = XattrHead::ref_from_prefix(bytes) {
        let (name, value) = (usize::from(head.name_len), head.value_len.get() as usize);
        let Some(tail) = rest.get(name.saturating_add(value)..).filter(|_| name > 0) else { break };
        fields = fields.of::<XattrHead>(at).one("attribute.name", at + XATTR_HEAD, name, Meaning::Bytes);
        at += XATTR_HEAD + name + value;
        bytes = tail;
    }
    // The end of the list.
    fields.of::<XattrHead>(at)
}

struct Structures<'a, 'd> {
    r: &'a Reader<'d>,
    f: &'a mut dyn FnMut(Structure),
}

impl Structures<'_, '_> {
    fn emit(&mut self, kind: &'static str, number: u64, offset: u64, len: usize, addresses: Vec<u64>, fields: Fields) {
        (self.f)(fields.structure(kind, number, offset, len, addresses));
    }

    /// A block with a header; `f` adds the fields of its body.
    fn block<F>(&mut self, kind: &'static str, addr: Daddr, len: usize, f: F) -> Result<()>
    where
        F: FnOnce(Fields, &[u8]) -> Fields,
    {
        let bytes = self.r.read(Kind::Other, addr.byte(), len)?;
        let fields = f(Fields::default().of::<BlockHeader>(0), bytes.get(HEADER..).unwrap_or(&[]));
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
            let fields = Fields::default().of::<LogAnchor>(0);
            self.emit("log anchor", slot, (start + slot) * SECTOR, SECTOR as usize, vec![], fields);
        }
        for record in log_records(devices, self.r)? {
            let (mut fields, mut at) = (Fields::default().of::<LogHeader>(0), 0);
            while let Some((head, _)) = record.body.get(at..).and_then(|b| LogEntry::ref_from_prefix(b).ok()) {
                fields = fields.of::<LogEntry>(RECORD_HEAD + at);
                at += LOG_ENTRY;
                if head.kind == EntryType::Update as u8 {
                    let len = head.len.get() as usize;
                    fields = fields.one("log.data", RECORD_HEAD + at, len, Meaning::Bytes);
                    at = at.saturating_add(len);
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
        let fields = Fields::default().of::<SuperBlock>(0);
        let kind = if ag == 0 { "superblock" } else { "superblock copy" };
        let addr = geom.daddr(start);
        self.emit(kind, ag.into(), addr.byte(), SECTOR as usize, vec![start.0, addr.0], fields);
        self.block("AG group block", geom.group_block(ag), size, |f, _| f.of::<GroupBody>(HEADER))?;
        self.block("AG inode block", geom.inode_block(ag), size, |f, body| {
            let root = size_of::<InodesBody>();
            node(f.of::<InodesBody>(HEADER), body.get(root..).unwrap_or(&[]), HEADER + root, CHUNK_VALUE)
        })?;
        for n in 0..geom.bitmap_blocks {
            self.block("AG bitmap block", geom.bitmap_block(ag, n), size, |f, body| f.bitmap(HEADER, body.len()))?;
        }
        let walk = self.r.chunk_tree(ag)?;
        for (at, _) in &walk.nodes {
            self.block("inode chunk tree node", geom.daddr(*at), size, |f, body| node(f, body, HEADER, CHUNK_VALUE))?;
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
                    let fields = Fields::default().of::<Dinode>(0);
                    self.emit("inode, free", ino, ino.saturating_mul(SECTOR), size, vec![ino], fields);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn inode(&mut self, i: &RawInode) -> Result<()> {
        let kind = i.d.mode.get() & mode::IFMT;
        let fields = Fields::default().of::<Dinode>(0);
        let mut fields = match i.d.format() {
            Some(Format::Extent | Format::Btree) => {
                node(fields, i.area(), DINODE, if is_dir(i) { DIR_VALUE } else { EXTENT_VALUE })
            }
            _ if is_dir(i) => entries(fields, i.area(), DINODE),
            _ if kind == mode::IFLNK => fields.one("target", DINODE, i.d.size.get() as usize, Meaning::Bytes),
            _ => fields,
        };
        let xattrs = i.inline_xattrs();
        if !xattrs.is_empty() {
            fields = attributes(fields, xattrs, i.bytes.len() - xattrs.len());
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
        for (at, _) in &walk.nodes {
            self.block(kind, geom.daddr(*at), size, |f, body| node(f, body, HEADER, value))?;
        }
        for (start, frags, _) in walk.records.iter().map(extent) {
            let addr = geom.daddr(start);
            if is_dir(i) {
                self.block("directory block", addr, size, |f, body| entries(f, body, HEADER))?;
            } else if i.d.mode.get() & mode::IFMT == mode::IFLNK {
                let len = (u64::from(frags) * geom.frag_size()) as usize;
                let target = i.d.size.get() as usize;
                self.block("symbolic link block", addr, len, |f, _| f.one("target", HEADER, target, Meaning::Bytes))?;
            }
        }
        let (start, frags) = (Frag(i.d.xattr.get()), i.d.xattr_frags.get());
        if start.0 != 0 && self.r.valid_run(start, frags) {
            let len = (u64::from(frags) * geom.frag_size()) as usize;
            self.block("extended attribute block", geom.daddr(start), len, |f, body| attributes(f, body, HEADER))?;
        }
        Ok(())
    }
}
