//! Structures of an unmounted volume and their fields, for tests of damage.
//!
//! Walks as `describe.rs` does; on a volume that was not unmounted the places are those after roll-forward.
//!
//! A pointer holds the checksum of the block that it points to, and the block with the pointer has a checksum
//! elsewhere: [`Checksum`]s go up to the inode, and to the summaries that cover the blocks changed on the way.

use crate::format::*;
use crate::inode::Inode;
use crate::summary::Parsed;
use crate::superblock;
use crate::view::{self, Found, Piece, Walk};
use crate::volume::Core;
use arbor_base::cache::FileBlock;
use arbor_base::device::{Device, Kind, SECTOR as DEVICE_SECTOR};
use arbor_base::layout::get_u32;
use arbor_base::vfs::{Checksum, Devices, Meaning, Result, Structure, mode};
use arbor_kit::blockmap::Parent;
use arbor_kit::fields::Fielded;
use arbor_kit::structures::{Fields, seal, some_pointers};
use std::collections::BTreeMap;
use std::mem::offset_of;

arbor_kit::fields! {
    SuperBlock {
        magic, crc: Checksum, version, compat, ro_compat, incompat, salt, uuid, label, block_shift, frag_shift,
        seg_shift, first, created, reserved,
    }
    Checkpoint {
        magic, crc: Checksum, clean, fsid, serial, epoch, group, segs, seg, offset, next_seg, fill, ifile: Address,
        inodes, free_ino: Address, used_inodes, file_frags, time, orphan: Address, cold_seg, cold_offset, cold_next,
        cold_fill, reserved,
    }
    Summary {
        magic, crc: Checksum, fsid, group, epoch, fill, index, flags, summary_frags, frags, next_seg, files, inodes,
        segs, data_crc: Checksum, reserved, time, ninodes, free_ino: Address, used_inodes, orphan: Address, file_frags,
    }
    FileInfo { ino: Address, version, blocks, reserved }
    BlockInfo { place, frags, crc }
    MapEntry { frag: Address, version, next_free: Address, reserved }
    Pointer { frag: Address, crc }
    Stamp { secs, nanos }
    Dinode {
        fsid, crc: Checksum, ino: Address, version, mode, nlink, uid, gid, rdev, size, frags, atime, mtime, ctime,
        btime, db, ib, xattr, xattr_len, next_orphan: Address, reserved,
    }
    XattrHeader { magic, ino: Address, len, reserved, reserved1 }
}

/// See [`Engine::reseal`](arbor_base::vfs::Engine::reseal).
pub(crate) fn reseal(device: &dyn Device, s: &Structure) -> Result<()> {
    if s.kind == "summary"
        && let Some(seals) = summary_seals(device, s.offset)?
    {
        return seals.iter().try_for_each(|one| seal(device, one));
    }
    s.checksums.iter().try_for_each(|one| seal(device, one))
}

/// Checksums of a summary by the lengths in it, if they are possible.
fn summary_seals(device: &dyn Device, offset: u64) -> Result<Option<[Checksum; 2]>> {
    let size = device.geometry().size;
    let Ok(Some(sb)) = superblock::read(device, 0) else { return Ok(None) };
    let Ok(geom) = superblock::geometry(&sb, 0) else { return Ok(None) };
    let mut head = vec![0; DEVICE_SECTOR];
    device.read_at(Kind::Log, offset, &mut head)?;
    let frags = |at| geom.bytes_of(get_u32(&head, at).unwrap_or(0)) as u64;
    let (own, all) = (frags(offset_of!(Summary, summary_frags)), frags(offset_of!(Summary, frags)));
    let end = offset.saturating_add(all);
    let inside = end <= size && end - offset <= 1 << geom.seg_shift;
    Ok((own >= SUMMARY as u64 && own <= all && inside).then(|| seals_of(offset, own, all)))
}

/// Checksums of a partial segment: of what stands after the summary, and of the summary.
fn seals_of(offset: u64, own: u64, all: u64) -> [Checksum; 2] {
    let data = Checksum { at: offset + offset_of!(Summary, data_crc) as u64, offset: offset + own, len: all - own };
    [data, Checksum { at: offset + SUMMARY_CRC_AT as u64, offset, len: own }]
}

/// See [`Engine::structures`](arbor_base::vfs::Engine::structures).
pub(crate) fn structures(devices: &Devices, f: &mut dyn FnMut(Structure)) -> Result<()> {
    let (_, mut core) = view::open(devices)?;
    let geom = core.geom;
    let mut a = Structures { geom, partials: BTreeMap::new(), infos: BTreeMap::new(), walk: Walk::default(), f };
    a.heads();
    for seg in core.written_segs() {
        let start = geom.seg_start(Seg(seg)).0;
        for (at, parsed) in core.valid_summaries(seg)? {
            a.summary(start + at, &parsed);
        }
    }
    let ifile = core.ifile_on_disk()?;
    a.inode(&mut core, &ifile)?;
    core.each_inode(&mut |core, found| a.inode(core, found))
}

struct Structures<'a> {
    geom: Geom,
    /// Checksums of partial segments by their first byte, and where each ends.
    partials: BTreeMap<u64, (u64, [Checksum; 2])>,
    /// Of each block that a summary names the byte where its [`BlockInfo`] stands, by the block's fragment.
    infos: BTreeMap<u32, u64>,
    walk: Walk,
    f: &'a mut dyn FnMut(Structure),
}

impl Structures<'_> {
    fn emit(&mut self, s: Structure, checksums: Vec<Checksum>) {
        (self.f)(Structure { checksums, ..s });
    }

    fn heads(&mut self) {
        let [first, second] = self.geom.checkpoints();
        let heads = [
            ("superblock", 0, 0),
            ("superblock copy", 1, self.geom.copy_at()),
            ("checkpoint", 0, first),
            ("checkpoint", 1, second),
        ];
        for (kind, number, offset) in heads {
            let fields = Fields::default();
            let fields = if kind == "checkpoint" { fields.of::<Checkpoint>(0) } else { fields.of::<SuperBlock>(0) };
            let own = Checksum { at: offset + CRC_AT as u64, offset, len: SECTOR as u64 };
            let addresses = vec![offset >> self.geom.frag_shift];
            self.emit(fields.structure(kind, number, offset, SECTOR, addresses), vec![own]);
        }
    }

    fn summary(&mut self, frag: u32, p: &Parsed) {
        let (offset, len) = (self.geom.byte(Frag(frag)), self.geom.bytes_of(p.head.summary_frags.get()));
        let (mut fields, mut at) = (Fields::default().of::<Summary>(0), SUMMARY);
        let mut frags = p.blocks().map(|(_, _, here)| frag.saturating_add(here));
        for (_, blocks) in &p.files {
            fields = fields.of::<FileInfo>(at);
            at += size_of::<FileInfo>();
            for _ in blocks {
                fields = fields.of::<BlockInfo>(at);
                self.infos.extend(frags.next().map(|block| (block, offset + at as u64)));
                at += size_of::<BlockInfo>();
            }
        }
        for _ in &p.inodes {
            fields = fields.one("InodeInfo.ino", at, 4, Meaning::Address).of::<MapEntry>(at + 4);
            at += size_of::<InodeInfo>();
        }
        for _ in &p.segs {
            fields = fields.of::<SegInfo>(at);
            at += size_of::<SegInfo>();
        }
        let all = self.geom.bytes_of(p.head.frags.get()) as u64;
        let seals = seals_of(offset, len as u64, all);
        self.partials.insert(offset, (offset + all, seals));
        self.emit(fields.structure("summary", frag.into(), offset, len, vec![frag.into()]), seals.to_vec());
    }

    /// Adds the checksums of the partial segment that covers a byte.
    fn covering(&self, byte: u64, seals: &mut Vec<Checksum>) {
        let found = self.partials.range(..=byte).next_back().filter(|(_, (end, _))| byte < *end);
        seals.extend(found.into_iter().flat_map(|(_, (_, both))| *both));
    }

    fn inode_seals(&self, at: u64) -> Vec<Checksum> {
        let mut seals = vec![Checksum { at: at + CRC_AT as u64, offset: at, len: INODE as u64 }];
        self.covering(at, &mut seals);
        seals
    }

    /// Checksums of a block: in its pointer, in the summary, and then of what the pointer stands in.
    fn block_seals(&self, found: &Found, indirect: &BTreeMap<(u8, u64), Piece>, piece: &Piece) -> Vec<Checksum> {
        let (mut seals, mut at) = (Vec::new(), *piece);
        loop {
            let (offset, len) = (self.geom.byte(at.frag()), self.geom.bytes_of(at.frags) as u64);
            let parent = self.geom.shape().parent(at.place);
            let above = match parent {
                Some(Parent::Map { level, n, slot: k }) => indirect.get(&(level, n)).map(|up| (*up, k)),
                _ => None,
            };
            let pointer = match (above, parent) {
                (Some((up, k)), _) => self.geom.byte(up.frag()) + (k * POINTER) as u64,
                (_, Some(Parent::Direct(k))) => found.at + (offset_of!(Dinode, db) + k * POINTER) as u64,
                (_, Some(Parent::Root(k))) => found.at + (offset_of!(Dinode, ib) + k * POINTER) as u64,
                _ => found.at + offset_of!(Dinode, xattr) as u64,
            };
            seals.push(Checksum { at: pointer + offset_of!(Pointer, crc) as u64, offset, len });
            if let Some(info) = self.infos.get(&at.frag().0) {
                seals.push(Checksum { at: info + offset_of!(BlockInfo, crc) as u64, offset, len });
            }
            self.covering(offset, &mut seals);
            match above {
                Some((up, _)) => at = up,
                None => break,
            }
        }
        seals.extend(self.inode_seals(found.at));
        seals
    }

    fn inode(&mut self, core: &mut Core, found: &Found) -> Result<()> {
        let i = found.i;
        let kind = match i.d.kind() {
            _ if i.ino == IFILE => "inode, ifile",
            mode::IFREG => "inode, file",
            mode::IFDIR => "inode, directory",
            mode::IFLNK => "inode, symbolic link",
            _ => "inode, device or pipe",
        };
        let mut fields = Fields::default().of::<Dinode>(0).of::<Pointer>(offset_of!(Dinode, xattr));
        if i.d.has_blocks() || i.ino == IFILE {
            fields = (0..NDADDR + NIADDR).fold(fields, |f, k| lead(f, offset_of!(Dinode, db) + k * POINTER));
        }
        let frag = found.at >> self.geom.frag_shift;
        let s = fields.structure(kind, i.ino.0, found.at, INODE, vec![i.ino.0, frag]);
        self.emit(s, self.inode_seals(found.at));
        let (mut indirect, mut blocks) = (BTreeMap::new(), Vec::new());
        self.walk.pieces(core, &i, &mut |piece, _| {
            if let FileBlock::Map { level, n } = piece.place {
                indirect.insert((level, n), piece);
            }
            blocks.push(piece);
        })?;
        for piece in blocks.iter().filter(|p| !(i.is_file() && i.ino != IFILE && matches!(p.place, FileBlock::Data(_))))
        {
            let bytes = core.read_run(piece.frag(), piece.frags, Kind::Other)?;
            let seals = self.block_seals(found, &indirect, piece);
            self.block(&i, piece, &bytes, seals);
        }
        Ok(())
    }

    fn block(&mut self, i: &Inode, piece: &Piece, bytes: &[u8], seals: Vec<Checksum>) {
        let (number, offset) = (u64::from(piece.frag().0), self.geom.byte(piece.frag()));
        let s = |kind, fields: Fields| fields.structure(kind, number, offset, bytes.len(), vec![number]);
        match piece.place {
            FileBlock::Map { .. } => {
                let kind = if i.ino == IFILE { "indirect block of the ifile" } else { "indirect block" };
                let fields = some_pointers(bytes, 0, POINTER).fold(Fields::default(), lead);
                self.emit(s(kind, fields), seals);
            }
            FileBlock::Xattr(_) => {
                let fields = Fields::default().of::<XattrHeader>(0).attributes(bytes, XATTR_HEADER);
                self.emit(s("attributes", fields), seals);
            }
            FileBlock::Data(lbn) if i.ino == IFILE && lbn < self.geom.lbn(MAP_AT) => {
                self.emit(s("usage block", array::<Usage>(bytes)), seals);
            }
            FileBlock::Data(_) if i.ino == IFILE => self.emit(s("inode map block", array::<MapEntry>(bytes)), seals),
            FileBlock::Data(_) if i.is_symlink() => {
                let fields = Fields::default().one("target", 0, i.size() as usize, Meaning::Bytes);
                self.emit(s("symbolic link block", fields), seals);
            }
            FileBlock::Data(_) => {
                for (k, chunk) in bytes.chunks_exact(DIRBLKSIZ).enumerate() {
                    let (offset, fields) = (offset + (k * DIRBLKSIZ) as u64, Fields::default().chunk(chunk));
                    let s = fields.structure("directory chunk", offset, offset, DIRBLKSIZ, vec![number]);
                    self.emit(s, seals.clone());
                }
            }
        }
    }
}

/// A pointer: its parts, and the whole of it, so that another block's can stand there with the checksum that fits.
fn lead(fields: Fields, at: usize) -> Fields {
    fields.of::<Pointer>(at).one("Pointer", at, POINTER, Meaning::Bytes)
}

/// A block full of `S`.
fn array<S: Fielded>(bytes: &[u8]) -> Fields {
    let each = size_of::<S>();
    (0..bytes.len() / each).fold(Fields::default(), |fields, k| fields.of::<S>(k * each))
}
