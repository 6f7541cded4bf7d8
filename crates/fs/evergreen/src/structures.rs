//! Which structures lie on a volume that is not mounted and what their fields are, for tests of damage.

use crate::decoded::Inode;
use crate::format::*;
use crate::volume::Core;
use crate::{mount, superblock};
use arbor_base::cache::FileBlock;
use arbor_base::device::{Device, Kind};
use arbor_base::layout::{crc_without, put_u32};
use arbor_base::vfs::{Devices, Meaning, Result, Structure};
use arbor_kit::structures::{Fields, rewrite, seal_whole, some_pointers};
use std::mem::offset_of;
use zerocopy::FromBytes;

arbor_kit::fields! {
    SuperBlock {
        magic, crc: Checksum, version, compat, ro_compat, incompat, clean, uuid, label, blocks, stride, created,
        created_nanos, master: Address, reserved,
    }
    CheckPoint {
        magic, crc: Checksum, fsid, seq, block: Address, last, time, used, inodes, inode_end, orphan: Address,
        redo: Address, redo_count, blocks, stride, kept, intact, reserved,
    }
    Tail { seq, reserved }
    Head { magic, crc: Checksum, fsid, block: Address, owner: Address, index, len }
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
    })?;
    let block = s.offset >> BLOCK_SHIFT << BLOCK_SHIFT;
    if !geom.is_for_master((s.offset >> BLOCK_SHIFT) as u32) {
        return Ok(());
    }
    rewrite(device, block, BLOCK, |bytes| {
        let crc = crc_without(bytes, CRC_AT).unwrap_or(0);
        put_u32(bytes, CRC_AT, crc);
    })
}

/// See [`Engine::structures`](arbor_base::vfs::Engine::structures).
pub(crate) fn structures(devices: &Devices, f: &mut dyn FnMut(Structure)) -> Result<()> {
    let mut core = mount::look(devices)?;
    let (geom, at) = (core.geom, core.master_at);
    let mut a = Structures { f };
    for (kind, block) in [("superblock", 0), ("superblock copy", geom.copy())] {
        a.emit(kind, block, byte(block), SECTOR, Fields::default().of::<SuperBlock>(0));
    }
    let tail = TAIL as usize * INODE;
    a.emit("master block", at, byte(at), BLOCK, Fields::default().of::<CheckPoint>(0).of::<Tail>(tail));
    for ino in [IFILE, DBITMAP, IBITMAP] {
        let i = core.special(ino);
        a.inode(&mut core, &i)?;
    }
    core.each_inode(&mut |core, i| a.inode(core, i))?;
    // Of those that are free one stands for all.
    let free = core.numbers()?.into_iter().filter_map(|ino| core.islot(ino).ok()).find(|i| !i.d.in_use());
    if let Some(i) = free {
        a.table(&mut core, "inode, free", &i)?;
    }
    Ok(())
}

struct Structures<'a> {
    f: &'a mut dyn FnMut(Structure),
}

impl Structures<'_> {
    fn emit(&mut self, kind: &'static str, number: u32, offset: u64, len: usize, fields: Fields) {
        (self.f)(fields.structure(kind, number.into(), offset, len, vec![number.into()]));
    }

    fn table(&mut self, core: &mut Core, kind: &'static str, i: &Inode) -> Result<()> {
        let fields = Fields::default().of::<Dinode>(0).addresses("inode.map", offset_of!(Dinode, map), 15);
        let offset = core.inode_byte(i.ino)?;
        self.emit(kind, i.ino.0 as u32, offset, INODE, fields);
        Ok(())
    }

    fn inode(&mut self, core: &mut Core, i: &Inode) -> Result<()> {
        self.table(core, "inode", i)?;
        let mut all = Vec::new();
        core.pieces(i, &mut |part, block| all.push((part, block)))?;
        for (part, block) in all {
            let bytes = core.read(block, 1, Kind::Other)?;
            match (part, Core::kind(i, part)) {
                (FileBlock::Map { .. }, _) => {
                    let head = Fields::default().of::<Head>(0);
                    let fields = some_pointers(&bytes, HEAD, 4)
                        .fold(head, |fields, at| fields.one("indirect.pointer", at, 4, Meaning::Address));
                    self.emit("indirect block", block, byte(block), BLOCK, fields);
                }
                (FileBlock::Xattr(n), _) => {
                    let fields = Fields::default().of::<Head>(0);
                    let more = if n == 0 { core.xattr_blocks(i)?.saturating_sub(1) as usize } else { 0 };
                    let fields = (0..more)
                        .fold(fields, |fields, k| fields.one("attributes.pointer", entry_at(k), 4, Meaning::Address));
                    let fields = if n == 0 { fields.attributes(&bytes, entry_at(more)) } else { fields };
                    self.emit("attributes", block, byte(block), BLOCK, fields);
                }
                (_, Kind::Bitmap) => {
                    let fields = Fields::default().of::<Head>(0).bitmap(HEAD, BLOCK - HEAD);
                    self.emit("bitmap", block, byte(block), BLOCK, fields);
                }
                (_, Kind::Dir) => self.chunks(block, &bytes),
                _ => {}
            }
        }
        Ok(())
    }

    fn chunks(&mut self, block: u32, bytes: &[u8]) {
        for (offset, chunk) in (byte(block)..).step_by(DIRBLKSIZ).zip(bytes.chunks_exact(DIRBLKSIZ)) {
            let number = (offset / DIRBLKSIZ as u64) as u32;
            self.emit("directory chunk", number, offset, DIRBLKSIZ, Fields::default().chunk(chunk));
        }
    }
}
