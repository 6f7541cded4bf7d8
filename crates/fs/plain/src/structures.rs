//! Which structures lie on a volume that is not mounted and what their fields are, for tests of damage.

use crate::describe::{XATTR_LEVEL, piece_name};
use crate::format::*;
use crate::inode::Inode;
use crate::volume::Core;
use crate::{mount, superblock};
use arbor_base::device::{Device, Kind};
use arbor_base::vfs::{Devices, Meaning, Result, Structure};
use arbor_kit::structures::{Fields, rewrite, seal_whole, some_pointers};
use std::mem::offset_of;
use zerocopy::FromBytes;

arbor_kit::fields! {
    Pool { count, free, end, rover }
    SuperBlock {
        magic, crc: Checksum, version, compat, ro_compat, incompat, clean, uuid, label, blocks, log, created,
        created_nanos, orphan: Address, inodes, space, reserved,
    }
    Head { magic, crc: Checksum, fsid, block: Address, owner: Address, len, reserved }
    Dinode {
        crc: Checksum, ino: Address, generation, mode, nlink, uid, gid, rdev, size, atime, mtime, ctime, btime, blocks,
        xattr: Address, next_orphan: Address, map, target,
    }
}

/// See [`Engine::reseal`](arbor_base::vfs::Engine::reseal). Chunks of directories have no checksum.
pub(crate) fn reseal(device: &dyn Device, s: &Structure) -> Result<()> {
    if !s.kind.starts_with("inode") {
        return seal_whole(device, s);
    }
    let Ok(Some((_, geom))) = superblock::read(device, 0) else { return Ok(()) };
    rewrite(device, s.offset, INODE, |bytes| {
        let d = Dinode::read_from_bytes(bytes).unwrap_or_default();
        put_u32(bytes, offset_of!(Dinode, crc), d.checksum(geom.fsid));
    })
}

/// See [`Engine::structures`](arbor_base::vfs::Engine::structures).
pub(crate) fn structures(devices: &Devices, f: &mut dyn FnMut(Structure)) -> Result<()> {
    let mut core = mount::look(devices)?;
    let (geom, sb) = (core.geom, core.sb);
    let mut a = Structures { f };
    let pools = (offset_of!(SuperBlock, inodes), offset_of!(SuperBlock, space));
    for (kind, block) in [("superblock", 0), ("superblock copy", geom.copy())] {
        let fields = Fields::default().of::<SuperBlock>(0).of::<Pool>(pools.0).of::<Pool>(pools.1);
        a.emit(kind, block, byte(block), SECTOR, fields);
    }
    for (first, end) in [(geom.inode_bitmap(), sb.inodes.end.get()), (geom.space_bitmap(), sb.space.end.get())] {
        for block in first..first + end.div_ceil(BITS) {
            let fields = Fields::default().of::<Head>(0).bitmap(HEAD, BLOCK - HEAD);
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
        (self.f)(fields.structure(kind, number.into(), offset, len, vec![number.into()]));
    }

    fn table(&mut self, kind: &'static str, i: &Inode) {
        let fields = Fields::default().of::<Dinode>(0).addresses("inode.map", offset_of!(Dinode, map), 15);
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
                    let fields = Fields::default().of::<Head>(0).attributes(&bytes, HEAD);
                    self.emit("attributes", block, byte(block), BLOCK, fields);
                }
                _ => self.indirect(block, &bytes),
            }
        }
        Ok(())
    }

    fn indirect(&mut self, block: u32, bytes: &[u8]) {
        let fields = some_pointers(bytes, HEAD, 4).fold(Fields::default().of::<Head>(0), |fields, at| {
            fields.one("indirect.pointer", at, 4, Meaning::Address)
        });
        self.emit("indirect block", block, byte(block), BLOCK, fields);
    }

    fn chunks(&mut self, block: u32, bytes: &[u8]) {
        for (offset, chunk) in (byte(block)..).step_by(DIRBLKSIZ).zip(bytes.chunks_exact(DIRBLKSIZ)) {
            let number = (offset / DIRBLKSIZ as u64) as u32;
            self.emit("directory chunk", number, offset, DIRBLKSIZ, Fields::default().chunk(chunk));
        }
    }
}
