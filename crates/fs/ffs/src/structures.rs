//! The structures of an unmounted volume with their fields, for tests of damage. Walks as `describe.rs` does.

use crate::check::view::{self, Reader};
use crate::describe::piece_name;
use crate::format::*;
use arbor_base::device::{Device, Kind};
use arbor_base::vfs::{Devices, Ino, Meaning, Result, Structure, Time, mode};
use arbor_kit::fields::FieldType;
use arbor_kit::structures::{Fields, rewrite, seal_whole, some_pointers};
use serde_json::{Value, json};
use std::mem::offset_of;

arbor_kit::fields! {
    SuperBlock {
        magic, crc: Checksum, version, compat, ro_compat, incompat, clean, uuid, label, block_shift, frag_shift,
        cg_count, cg_frags, cg_inodes, keeping, frags, summary_start: Address, summary_crc, journal_start: Address,
        journal_frags, orphan: Address, avg_file_size, avg_files_per_dir, minfree, maxcontig, maxbpg, rotdelay,
        reserved0, mounts, created, reserved,
    }
    CgHeader {
        magic, crc: Checksum, fsid, cgx, frags, sum, frsum, rotor, frotor, irotor, initediblk, inodes, reserved,
    }
    Summary { nbfree, nffree, nifree, ndir }
    Dinode {
        mode, nlink, uid, gid, frags, size, atime, mtime, ctime, btime, db, ib, xattr: Address, generation,
        crc: Checksum,
    }
    XattrHeader { magic, crc: Checksum, fsid, ino: Address, frags, len, reserved }
    JournalHeader { magic, crc: Checksum, fsid, kind, seq, count, reserved }
    JournalTag { frag: Address, frags, hash }
}

impl FieldType for Stamp {
    const MEANING: Meaning = Meaning::Number;

    fn json(&self) -> Value {
        let t = Time::from(*self);
        json!({ "secs": t.secs, "nanos": t.nanos })
    }
}

/// See [`Engine::reseal`](arbor_base::vfs::Engine::reseal). Chunks of directories and indirect blocks have no
/// checksum.
pub(crate) fn reseal(device: &dyn Device, s: &Structure) -> Result<()> {
    match s.kind {
        "bitmap" => rewrite(device, s.offset, s.len, |bytes| {
            // A sector of a group that is not its first.
            let mut cg = [&[0; SECTOR], &*bytes].concat();
            seal_cg(&mut cg);
            bytes.iter_mut().zip(cg.iter().skip(SECTOR)).for_each(|(b, new)| *b = *new);
        }),
        kind if kind.starts_with("inode") => {
            let mut sb = vec![0; SECTOR];
            device.read_at(Kind::Super, 0, &mut sb)?;
            let fsid = arbor_base::layout::get_u64(&sb, offset_of!(SuperBlock, uuid)).unwrap_or(0);
            rewrite(device, s.offset, s.len, |bytes| {
                let crc = inode_crc(bytes, fsid, Ino(s.number));
                put_u32(bytes, offset_of!(Dinode, crc), crc);
            })
        }
        _ => seal_whole(device, s),
    }
}

/// See [`Engine::structures`](arbor_base::vfs::Engine::structures).
pub(crate) fn structures(devices: &Devices, f: &mut dyn FnMut(Structure)) -> Result<()> {
    let r = view::open(devices)?;
    let mut a = Structures { r: &r, f };
    a.summary();
    (0..r.geom.cg_count).try_for_each(|cgx| a.group(cgx))
}

struct Structures<'a, 'd> {
    r: &'a Reader<'d>,
    f: &'a mut dyn FnMut(Structure),
}

impl Structures<'_, '_> {
    fn emit(&mut self, kind: &'static str, number: u64, offset: u64, len: usize, addresses: Vec<u64>, fields: Fields) {
        (self.f)(fields.structure(kind, number, offset, len, addresses));
    }

    fn summary(&mut self) {
        let (start, n) = (self.r.sb.summary_start.get(), self.r.geom.cg_count as usize);
        let each = size_of::<Summary>();
        let fields = (0..n).fold(Fields::default(), |f, i| f.of::<Summary>(i * each));
        let len = self.r.geom.bytes_of(self.r.geom.summary_frags());
        self.emit("summary area", 0, self.r.geom.byte(Frag(start)), len, vec![start.into()], fields);
    }

    fn group(&mut self, cgx: u32) -> Result<()> {
        let (geom, number) = (self.r.geom, u64::from(cgx));
        let start = geom.cg_start(cgx);
        let kind = if cgx == 0 { "superblock" } else { "superblock copy" };
        let fields = Fields::default().of::<SuperBlock>(0);
        self.emit(kind, number, geom.byte(start), SECTOR, vec![start.0.into()], fields);
        let (block, head) = (geom.cg_block(cgx), offset_of!(CgHeader, sum));
        let fields = Fields::default().of::<CgHeader>(0).of::<Summary>(head);
        self.emit("group header", number, geom.byte(block), SECTOR, vec![block.0.into()], fields);
        for n in 1..=geom.inode_sectors() + geom.frag_sectors() {
            let fields = Fields::default().bitmap(0, SECTOR - 4);
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
                let fields = Fields::default().of::<Dinode>(0);
                self.emit("inode, free", ino, self.r.inode_byte(ino), INODE, vec![ino], fields);
            }
        }
        Ok(())
    }

    fn inode(&mut self, ino: u64, d: &Dinode) -> Result<()> {
        let kind = match d.kind() {
            mode::IFREG => "inode, file",
            mode::IFDIR => "inode, directory",
            mode::IFLNK => "inode, symbolic link",
            _ => "inode, device or pipe",
        };
        let mut fields = Fields::default().of::<Dinode>(0);
        if d.has_blocks() {
            fields = fields.addresses("inode.db", FAST_LINK_AT, NDADDR);
            fields = fields.addresses("inode.ib", FAST_LINK_AT + 4 * NDADDR, NIADDR);
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
            let offset = self.r.geom.byte(frag) + (i * DIRBLKSIZ) as u64;
            let fields = Fields::default().chunk(chunk);
            self.emit("directory chunk", offset, offset, DIRBLKSIZ, vec![frag.0.into()], fields);
        }
    }

    fn indirect(&mut self, frag: Frag, bytes: &[u8]) {
        let some = some_pointers(bytes, 0, 4);
        let fields = some.fold(Fields::default(), |f, at| f.one("indirect.pointer", at, 4, Meaning::Address));
        let offset = self.r.geom.byte(frag);
        self.emit("indirect block", frag.0.into(), offset, bytes.len(), vec![frag.0.into()], fields);
    }

    fn xattr(&mut self, ino: u64, frag: Frag) -> Result<()> {
        if frag.0 == 0 {
            return Ok(());
        }
        let Ok(frags) = self.r.xattr_frags(ino, frag)? else { return Ok(()) };
        let bytes = self.r.run(Kind::Xattr, frag, frags)?;
        let fields = Fields::default().of::<XattrHeader>(0).attributes(&bytes, XATTR_HEADER);
        self.emit("attributes", ino, self.r.geom.byte(frag), bytes.len(), vec![frag.0.into()], fields);
        Ok(())
    }
}
