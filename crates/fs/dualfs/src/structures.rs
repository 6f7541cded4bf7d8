//! Structures of an unmounted volume and their fields, for tests of damage.
//!
//! A pointer holds the checksum of the block to which it leads, and the block with the pointer has a checksum elsewhere:
//! [`Checksum`]s go up to the inode, and to the summaries that cover the blocks changed on the way.

use crate::decoded::Inode;
use crate::describe::roots;
use crate::format::*;
use crate::summary::Parsed;
use crate::volume::Core;
use crate::{mount, superblock};
use arbor_base::cache::FileBlock;
use arbor_base::device::{Device, Kind, SECTOR as DEVICE_SECTOR};
use arbor_base::layout::get_u32;
use arbor_base::vfs::{Checksum, Devices, Error, Meaning, Result, Structure};
use arbor_kit::blockmap::{BlockMap as _, Parent};
use arbor_kit::structures::{Fields, seal, some_pointers};
use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};

arbor_kit::fields! {
    SuperBlock {
        magic, crc: Checksum, version, compat, ro_compat, incompat, salt, uuid, label, block_shift, seg_shift, group_blocks,
        segs, data_at, created, reserved,
    }
    Checkpoint {
        magic, crc: Checksum, data_blocks, fsid, serial, epoch, set, fill, seg, offset, next_seg, ifile: Address, clean,
        totals, time, segs, stamp, reserved,
    }
    DataHead { magic, crc: Checksum, reserved0, fsid, epoch, stamp, before, begun, reserved }
    Totals { inodes, free_ino: Address, used_inodes, orphan: Address, data, meta }
    Summary {
        magic, crc: Checksum, fsid, set, epoch, fill, index, flags, own, len, next_seg, data_crc: Checksum, blocks, inodes,
        segs, runs, groups, reserved, totals, time,
    }
    BlockInfo { ino: Address, version, place, crc }
    InodeInfo { ino: Address, entry }
    RunInfo { first: Address, count }
    GroupInfo { group, desc }
    GroupDesc { used, dirs }
    MapEntry { block: Address, version, next_free: Address, reserved }
    Pointer { block: Address, crc }
    Dinode {
        fsid, crc: Checksum, ino: Address, version, group, mode, uid, gid, nlink, rdev, size, data, meta, btime, ctime,
        mtime, atime, db, ib, xattr, next_orphan: Address, reserved,
    }
    XattrHead { magic, ino: Address, len, more }
}

/// See [`Engine::reseal`](arbor_base::vfs::Engine::reseal).
pub(crate) fn reseal(device: &dyn Device, s: &Structure) -> Result<()> {
    // Its own lengths may be what was changed.
    let seals = if s.kind == "summary" { summary_seals(device, s.offset)? } else { None };
    let all = seals.as_ref().map_or(&s.checksums[..], |seals| &seals[..]);
    all.iter().try_for_each(|one| seal(device, one))
}

/// Checksums of a summary by the lengths in it, if they are possible.
fn summary_seals(device: &dyn Device, offset: u64) -> Result<Option<[Checksum; 2]>> {
    let Ok(Some((_, geom))) = superblock::read(device, 0) else { return Ok(None) };
    let mut head = vec![0; DEVICE_SECTOR];
    device.read_at(Kind::Log, offset, &mut head)?;
    let bytes = |at| u64::from(get_u32(&head, at).unwrap_or(0)) << geom.block_shift;
    let (own, all) = (bytes(offset_of!(Summary, own)), bytes(offset_of!(Summary, len)));
    let inside = all <= 1 << geom.seg_shift && offset.saturating_add(all) <= device.geometry().size;
    Ok((own >= SUMMARY as u64 && own <= all && inside).then(|| seals_of(offset, own, all)))
}

/// Checksums of a partial segment: of what stands after the summary, and of the summary.
fn seals_of(offset: u64, own: u64, all: u64) -> [Checksum; 2] {
    let data = Checksum { at: offset + offset_of!(Summary, data_crc) as u64, offset: offset + own, len: all - own };
    [data, Checksum { at: offset + SUMMARY_CRC_AT as u64, offset, len: own }]
}

/// See [`Engine::structures`](arbor_base::vfs::Engine::structures).
pub(crate) fn structures(devices: &Devices, f: &mut dyn FnMut(Structure)) -> Result<()> {
    let mut core = mount::look(devices)?;
    let mut a = Structures { geom: core.geom, partials: BTreeMap::new(), infos: BTreeMap::new(), f };
    a.heads();
    core.each_summary(&mut |seg, at, parsed| a.summary(MetaBlock(a.geom.seg_start(seg).0 + at), parsed));
    core.each_inode(&mut |core, i, at| a.inode(core, i, at))
}

struct Structures<'a> {
    geom: Geom,
    /// Checksums of partial segments by their first byte, and where each ends.
    partials: BTreeMap<u64, (u64, [Checksum; 2])>,
    /// Of each block that a summary names the byte where the checksum in its [`BlockInfo`] stands.
    infos: BTreeMap<u64, u64>,
    f: &'a mut dyn FnMut(Structure),
}

impl Structures<'_> {
    fn emit(&mut self, s: Structure, checksums: Vec<Checksum>) {
        (self.f)(Structure { checksums, ..s });
    }

    fn heads(&mut self) {
        let [first, second] = self.geom.checkpoints();
        let sb = || Fields::default().of::<SuperBlock>(0);
        let cp = || Fields::default().of::<Checkpoint>(0).of::<Totals>(offset_of!(Checkpoint, totals));
        self.head("superblock", 0, 0, sb());
        self.head("superblock copy", 1, self.geom.copy_at(), sb());
        self.head("checkpoint", 0, first, cp());
        self.head("checkpoint", 1, second, cp());
        for (number, offset) in (0..).zip(self.geom.heads_at()) {
            self.head("data head", number, offset, Fields::default().of::<DataHead>(0));
        }
    }

    /// A structure of one sector whose checksum stands where that of a superblock does.
    fn head(&mut self, kind: &'static str, number: u64, offset: u64, fields: Fields) {
        let own = Checksum { at: offset + CRC_AT as u64, offset, len: SECTOR as u64 };
        self.emit(fields.structure(kind, number, offset, SECTOR, vec![offset >> self.geom.block_shift]), vec![own]);
    }

    fn summary(&mut self, block: MetaBlock, p: &Parsed) {
        let (offset, own) = (self.geom.meta_byte(block), u64::from(p.head.own.get()) << self.geom.block_shift);
        let all = u64::from(p.head.len.get()) << self.geom.block_shift;
        let mut fields = Fields::default().of::<Summary>(0).of::<Totals>(offset_of!(Summary, totals));
        let mut at = SUMMARY;
        for (place, _) in p.placed() {
            fields = fields.of::<BlockInfo>(at);
            let byte = self.geom.meta_byte(MetaBlock(block.0 + place));
            self.infos.insert(byte, offset + (at + offset_of!(BlockInfo, crc)) as u64);
            at += size_of::<BlockInfo>();
        }
        for _ in &p.inodes {
            fields = fields.of::<InodeInfo>(at).of::<MapEntry>(at + offset_of!(InodeInfo, entry));
            at += size_of::<InodeInfo>();
        }
        for _ in &p.segs {
            fields = fields.of::<SegInfo>(at);
            at += size_of::<SegInfo>();
        }
        for _ in &p.runs {
            fields = fields.of::<RunInfo>(at);
            at += size_of::<RunInfo>();
        }
        for _ in &p.groups {
            fields = fields.of::<GroupInfo>(at);
            at += size_of::<GroupInfo>();
        }
        let seals = seals_of(offset, own, all);
        self.partials.insert(offset, (offset + all, seals));
        self.emit(
            fields.structure("summary", block.0.into(), offset, own as usize, vec![block.0.into()]),
            seals.to_vec(),
        );
    }

    /// The checksums of the partial segment that covers this byte.
    fn partial(&self, at: u64) -> Vec<Checksum> {
        let found = self.partials.range(..=at).next_back();
        found.filter(|(_, (end, _))| at < *end).map_or_else(Vec::new, |(_, (_, seals))| seals.to_vec())
    }

    fn inode(&mut self, core: &mut Core, i: &Inode, at: u64) -> Result<()> {
        let own = Checksum { at: at + CRC_AT as u64, offset: at, len: INODE as u64 };
        let seals: Vec<Checksum> = [vec![own], self.partial(at)].concat();
        let mut fields = Fields::default().of::<Dinode>(0);
        for k in 0..NDADDR + NIADDR {
            fields = fields.of::<Pointer>(offset_of!(Dinode, db) + k * POINTER);
        }
        let fields = fields.of::<Pointer>(offset_of!(Dinode, xattr));
        let kind = if i.ino == IFILE { "ifile inode" } else { "inode" };
        self.emit(fields.structure(kind, i.ino.0, at, INODE, vec![i.ino.0]), seals.clone());
        if i.d.has_blocks() {
            for part in roots() {
                let field = match core.shape().parent(part) {
                    Some(Parent::Direct(k)) => offset_of!(Dinode, db) + k * POINTER,
                    Some(Parent::Root(k)) => offset_of!(Dinode, ib) + k * POINTER,
                    _ => continue,
                };
                self.block(core, i, part, (at + field as u64 + 4, &seals))?;
            }
        }
        let blocks = core.xattr_blocks(i).unwrap_or(0);
        for part in (0..blocks.min(1)).map(FileBlock::Xattr) {
            self.block(core, i, part, (at + (offset_of!(Dinode, xattr) + 4) as u64, &seals))?;
        }
        Ok(())
    }

    /// A block of a file, and those below it; the pointer's checksum stands at a byte that `seals` cover.
    fn block(
        &mut self,
        core: &mut Core,
        i: &Inode,
        part: FileBlock,
        (crc_at, seals): (u64, &[Checksum]),
    ) -> Result<()> {
        let p = core.pointer(i, part)?;
        if !p.is_placed() || Core::is_data(i, part) {
            return Ok(());
        }
        let Ok(at) = core.place_of(i, part, p) else { return Ok(()) };
        let bytes = match core.part(i, part) {
            Err(Error::Corrupt(_)) => return Ok(()),
            bytes => bytes?.unwrap_or_default(),
        };
        let len = self.geom.block();
        let pointer = Checksum { at: crc_at, offset: at, len: len as u64 };
        let info = self.infos.get(&at).map(|place| Checksum { at: *place, offset: at, len: len as u64 });
        let mut all = vec![pointer];
        all.extend(info);
        all.extend(self.partial(at));
        all.extend_from_slice(seals);
        if i.is_dir() && matches!(part, FileBlock::Data(_)) {
            for (offset, chunk) in (at..).step_by(DIRBLKSIZ).zip(bytes.chunks_exact(DIRBLKSIZ)) {
                let fields = Fields::default().chunk(chunk);
                let s = fields.structure("directory chunk", offset, offset, DIRBLKSIZ, vec![p.block.get().into()]);
                self.emit(s, all.clone());
            }
            return Ok(());
        }
        let (kind, fields) = self.fields_of(core, i, part, &bytes);
        self.emit(fields.structure(kind, p.block.get().into(), at, len, vec![p.block.get().into()]), all.clone());
        let FileBlock::Map { level, n } = part else { return Ok(()) };
        let shape = core.shape();
        for slot in 0..shape.fanout {
            if Core::entry(&bytes, slot as usize).is_placed() {
                let crc_at = at + slot * POINTER as u64 + 4;
                self.block(core, i, shape.child(level, n, slot), (crc_at, &all))?;
            }
        }
        Ok(())
    }

    fn fields_of(&self, core: &Core, i: &Inode, part: FileBlock, bytes: &[u8]) -> (&'static str, Fields) {
        let fields = Fields::default();
        let table = |len: usize| (0..bytes.len() / len).take(16).map(move |k| k * len);
        let lbn_at = |lbn: u64| lbn << core.geom.block_shift;
        match part {
            FileBlock::Map { .. } => {
                ("indirect block", some_pointers(bytes, 0, POINTER).fold(fields, |f, at| f.of::<Pointer>(at)))
            }
            FileBlock::Xattr(_) => {
                let pointers = (bytes.len().saturating_sub(XATTR_HEAD) / POINTER) as u32;
                let more = get_u32(bytes, offset_of!(XattrHead, more)).unwrap_or(0).min(pointers);
                let fields = (0..more as usize)
                    .fold(fields.of::<XattrHead>(0), |f, k| f.of::<Pointer>(XATTR_HEAD + k * POINTER));
                ("attributes", fields.attributes(bytes, crate::xattrs::list_at(more)))
            }
            FileBlock::Data(lbn) if i.ino == IFILE => match lbn_at(lbn) {
                at if at < GROUPS_AT => ("segment usage", table(USAGE).fold(fields, |f, at| f.of::<Usage>(at))),
                at if at < BITMAPS_AT => ("descriptors", table(GROUP_DESC).fold(fields, |f, at| f.of::<GroupDesc>(at))),
                at if at < MAP_AT => ("bitmap", fields.bitmap(0, bytes.len())),
                _ => ("inode map", table(MAP_ENTRY).fold(fields, |f, at| f.of::<MapEntry>(at))),
            },
            FileBlock::Data(_) => ("target", fields.one("target", 0, bytes.len().min(64), Meaning::Bytes)),
        }
    }
}
