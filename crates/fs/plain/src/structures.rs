//! Which structures lie on a volume that is not mounted and what their fields are, for tests of damage.

use crate::describe::{XATTR_LEVEL, piece_name};
use crate::format::*;
use crate::inode::Inode;
use crate::volume::Core;
use crate::{mount, superblock};
use arbor_base::device::{Device, Kind};
use arbor_base::layout::get_u32;
use arbor_base::vfs::{Devices, Field, Meaning, Result, Structure};
use arbor_kit::dirent::{DIRENT_HEAD, DirentHead, entry};
use arbor_kit::structures::{Fields, seal as seal_at};
use arbor_kit::{fields, superblock_fields};
use std::mem::offset_of;
use zerocopy::FromBytes;

const POOL: &[Field] = fields!(Pool { count: Number, free: Number, end: Number, rover: Number });
const SUPER: &[Field] = superblock_fields!(SuperBlock, clean, {
    blocks: Number,
    log: Number,
    created: Number,
    created_nanos: Number,
    orphan: Address,
    inodes: Bytes,
    space: Bytes,
    reserved: Bytes,
});
const HEAD_FIELDS: &[Field] = fields!(Head {
    magic: Number,
    crc: Checksum,
    fsid: Number,
    block: Address,
    owner: Address,
    len: Number,
    reserved: Number,
});
const INODE_FIELDS: &[Field] = fields!(Dinode {
    crc: Checksum,
    ino: Address,
    generation: Number,
    mode: Number,
    nlink: Number,
    uid: Number,
    gid: Number,
    rdev: Number,
    size: Number,
    atime: Number,
    mtime: Number,
    ctime: Number,
    btime: Number,
    blocks: Number,
    xattr: Address,
    next_orphan: Address,
    map: Bytes,
    target: Bytes,
});
const ENTRY: &[Field] = fields!(DirentHead { ino: Address, reclen: Number, kind: Number, namlen: Number });

/// See [`Engine::reseal`](arbor_base::vfs::Engine::reseal). Chunks of directories have no checksum.
pub(crate) fn reseal(device: &dyn Device, s: &Structure) -> Result<()> {
    let len = s.len as u64;
    let crc_at = match s.kind {
        "superblock" | "superblock copy" => arbor_kit::head::CRC_AT,
        "bitmap" | "indirect block" | "attributes" => CRC_AT,
        "inode" | "inode, free" => return reseal_inode(device, s),
        _ => return Ok(()),
    };
    seal_at(device, &arbor_base::vfs::Checksum { at: s.offset + crc_at as u64, offset: s.offset, len })
}

fn reseal_inode(device: &dyn Device, s: &Structure) -> Result<()> {
    let Ok(Some((_, geom))) = superblock::read(device, 0) else { return Ok(()) };
    let (start, mut bytes) = (s.offset / SECTOR as u64 * SECTOR as u64, vec![0; SECTOR]);
    device.read_at(Kind::Inode, start, &mut bytes)?;
    let at = (s.offset - start) as usize;
    let d = Dinode::read_from_bytes(bytes.get(at..at + INODE).unwrap_or(&[])).unwrap_or_default();
    put_u32(&mut bytes, at, d.checksum(geom.fsid));
    Ok(device.write_at(Kind::Inode, start, &bytes)?)
}

/// See [`Engine::structures`](arbor_base::vfs::Engine::structures).
pub(crate) fn structures(devices: &Devices, f: &mut dyn FnMut(Structure)) -> Result<()> {
    let mut core = mount::look(devices)?;
    let (geom, sb) = (core.geom, core.sb);
    let mut a = Structures { f };
    let pools = (offset_of!(SuperBlock, inodes), offset_of!(SuperBlock, space));
    for (kind, block) in [("superblock", 0), ("superblock copy", geom.copy())] {
        let fields = Fields::default().table(SUPER, 0).table(POOL, pools.0).table(POOL, pools.1);
        a.emit(kind, block, byte(block), SECTOR, fields);
    }
    for (first, end) in [(geom.inode_bitmap(), sb.inodes.end.get()), (geom.space_bitmap(), sb.space.end.get())] {
        for block in first..first + end.div_ceil(BITS) {
            // The beginning holds most that matters.
            let fields = Fields::default().table(HEAD_FIELDS, 0).one("bitmap.head", HEAD, 64, Meaning::Bytes);
            let fields = fields.one("bitmap.rest", HEAD + 64, BLOCK - HEAD - 64, Meaning::Bytes);
            a.emit("bitmap", block, byte(block), BLOCK, fields);
        }
    }
    core.each_inode(&mut |core, i| a.inode(core, i))?;
    // Of those that are free one stands for all.
    let free = (ROOT.0..sb.inodes.end.get().into()).map(arbor_base::vfs::Ino);
    let free = free.filter_map(|ino| core.islot(ino).ok()).find(|i| !i.d.in_use());
    free.iter().for_each(|i| a.table("inode, free", i));
    Ok(())
}

struct Structures<'a> {
    f: &'a mut dyn FnMut(Structure),
}

impl Structures<'_> {
    fn emit(&mut self, kind: &'static str, number: u32, offset: u64, len: usize, fields: Fields) {
        let (addresses, number) = (vec![number.into()], number.into());
        (self.f)(Structure { offset, len, kind, number, addresses, fields: fields.0, checksums: Vec::new() });
    }

    fn table(&mut self, kind: &'static str, i: &Inode) {
        let pointers = (0..15).map(|n| offset_of!(Dinode, map) + 4 * n);
        let fields = pointers.fold(Fields::default().table(INODE_FIELDS, 0), |fields, at| {
            fields.one("inode.map", at, 4, Meaning::Address)
        });
        self.emit(kind, i.ino.0 as u32, byte(i.place.0) + i.place.1 as u64, INODE, fields);
    }

    fn inode(&mut self, core: &mut Core, i: &Inode) -> Result<()> {
        self.table("inode", i);
        let mut all = Vec::new();
        core.pieces(i, &mut |p| all.extend((piece_name(i, p).0 != Kind::Data).then_some((p.level, p.block))))?;
        for (level, block) in all {
            let bytes = core.read(block, 1, Kind::Other)?;
            match level {
                0 => self.chunks(block, &bytes),
                XATTR_LEVEL => {
                    let fields = Fields::default().table(HEAD_FIELDS, 0).attributes(&bytes, HEAD);
                    self.emit("attributes", block, byte(block), BLOCK, fields);
                }
                _ => self.indirect(block, &bytes),
            }
        }
        Ok(())
    }

    /// The pointers of an indirect block that are set, and one that is not.
    fn indirect(&mut self, block: u32, bytes: &[u8]) {
        let is_set = |at: &usize| get_u32(bytes, *at).unwrap_or(0) != 0;
        let all = || (HEAD..BLOCK).step_by(4);
        let shown = all().filter(is_set).chain(all().find(|at| !is_set(at)));
        let fields = shown.fold(Fields::default().table(HEAD_FIELDS, 0), |fields, at| {
            fields.one("indirect.pointer", at, 4, Meaning::Address)
        });
        self.emit("indirect block", block, byte(block), BLOCK, fields);
    }

    fn chunks(&mut self, block: u32, bytes: &[u8]) {
        for (offset, chunk) in (byte(block)..).step_by(DIRBLKSIZ).zip(bytes.chunks_exact(DIRBLKSIZ)) {
            let (mut at, mut fields) = (0, Fields::default());
            while let Ok(e) = entry(chunk, at) {
                fields = fields.table(ENTRY, at).one("entry.name", at + DIRENT_HEAD, e.name.len(), Meaning::Bytes);
                at += e.reclen;
            }
            self.emit("directory chunk", (offset / DIRBLKSIZ as u64) as u32, offset, DIRBLKSIZ, fields);
        }
    }
}
