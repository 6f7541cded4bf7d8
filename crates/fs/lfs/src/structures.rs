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
use crate::view::{self, Found, Piece, Walk, pointers};
use crate::volume::Core;
use arbor_base::cache::FileBlock;
use arbor_base::device::{Device, Kind, SECTOR as DEVICE_SECTOR};
use arbor_base::layout::get_u32;
use arbor_base::vfs::{Checksum, Devices, Field, Meaning, Result, Structure, mode};
use arbor_kit::blockmap::Parent;
use arbor_kit::dirent::entry;
use arbor_kit::structures::{Fields, seal};
use arbor_kit::{fields, superblock_fields};
use std::collections::BTreeMap;
use std::mem::offset_of;

const SUPER: &[Field] = superblock_fields!(SuperBlock, salt, {
    block_shift: Number,
    frag_shift: Number,
    seg_shift: Number,
    first: Number,
    created: Number,
    reserved: Bytes,
});
const CHECKPOINT: &[Field] = fields!(Checkpoint {
    magic: Bytes,
    crc: Checksum,
    clean: Number,
    fsid: Number,
    serial: Number,
    epoch: Number,
    group: Number,
    segs: Number,
    seg: Number,
    offset: Number,
    next_seg: Number,
    fill: Number,
    ifile: Address,
    inodes: Number,
    free_ino: Address,
    used_inodes: Number,
    file_frags: Number,
    time: Number,
    orphan: Address,
    cold_seg: Number,
    cold_offset: Number,
    cold_next: Number,
    cold_fill: Number,
    reserved: Bytes,
});
const SUMMARY_HEAD: &[Field] = fields!(Summary {
    magic: Number,
    crc: Checksum,
    fsid: Number,
    group: Number,
    epoch: Number,
    fill: Number,
    index: Number,
    flags: Number,
    summary_frags: Number,
    frags: Number,
    next_seg: Number,
    files: Number,
    inodes: Number,
    segs: Number,
    data_crc: Checksum,
    reserved: Number,
    time: Number,
    ninodes: Number,
    free_ino: Address,
    used_inodes: Number,
    orphan: Address,
    file_frags: Number,
});
const FILE: &[Field] = fields!(FileInfo { ino: Address, version: Number, blocks: Number, reserved: Number });
const BLOCK: &[Field] = fields!(BlockInfo { place: Number, frags: Number, crc: Number });
const DEATHS: &[Field] = fields!(SegInfo { seg: Number, died: Number });
const ENTRY: &[Field] = fields!(MapEntry { frag: Address, version: Number, next_free: Address, reserved: Number });
const USE: &[Field] = fields!(Usage { live: Number, flags: Number, time: Number });
const LEAD: &[Field] = fields!(Pointer { frag: Address, crc: Number });
const INODE_FIELDS: &[Field] = fields!(Dinode {
    fsid: Number,
    crc: Checksum,
    ino: Address,
    version: Number,
    mode: Number,
    nlink: Number,
    uid: Number,
    gid: Number,
    rdev: Number,
    size: Number,
    frags: Number,
    atime: Bytes,
    mtime: Bytes,
    ctime: Bytes,
    btime: Bytes,
    db: Bytes,
    ib: Bytes,
    xattr: Bytes,
    xattr_len: Number,
    next_orphan: Address,
    reserved: Bytes,
});
const XATTR: &[Field] =
    fields!(XattrHeader { magic: Number, ino: Address, len: Number, reserved: Number, reserved1: Number });
const DIRENT: &[Field] = fields!(DirentHead { ino: Address, reclen: Number, kind: Number, namlen: Number });

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

/// A structure to be reported.
struct Part {
    kind: &'static str,
    number: u64,
    offset: u64,
    len: usize,
    addresses: Vec<u64>,
}

impl Structures<'_> {
    fn emit(&mut self, s: Part, fields: Fields, checksums: Vec<Checksum>) {
        let Part { kind, number, offset, len, addresses } = s;
        let mut fields = fields.0;
        fields.retain(|f| u64::from(f.at) + u64::from(f.len) <= len as u64);
        (self.f)(Structure { offset, len, kind, number, addresses, fields, checksums });
    }

    fn heads(&mut self) {
        let [first, second] = self.geom.checkpoints();
        let heads = [
            ("superblock", 0, 0, SUPER),
            ("superblock copy", 1, self.geom.copy_at(), SUPER),
            ("checkpoint", 0, first, CHECKPOINT),
            ("checkpoint", 1, second, CHECKPOINT),
        ];
        for (kind, number, offset, table) in heads {
            let own = Checksum { at: offset + CRC_AT as u64, offset, len: SECTOR as u64 };
            let head = Part { kind, number, offset, len: SECTOR, addresses: vec![offset >> self.geom.frag_shift] };
            self.emit(head, Fields::default().table(table, 0), vec![own]);
        }
    }

    fn summary(&mut self, frag: u32, p: &Parsed) {
        let (offset, len) = (self.geom.byte(Frag(frag)), self.geom.bytes_of(p.head.summary_frags.get()));
        let (mut fields, mut at) = (Fields::default().table(SUMMARY_HEAD, 0), SUMMARY);
        let mut frags = p.blocks().map(|(_, _, here)| frag.saturating_add(here));
        for (_, blocks) in &p.files {
            fields = fields.table(FILE, at);
            at += size_of::<FileInfo>();
            for _ in blocks {
                fields = fields.table(BLOCK, at);
                self.infos.extend(frags.next().map(|block| (block, offset + at as u64)));
                at += size_of::<BlockInfo>();
            }
        }
        for _ in &p.inodes {
            fields = fields.one("InodeInfo.ino", at, 4, Meaning::Address).table(ENTRY, at + 4);
            at += size_of::<InodeInfo>();
        }
        for _ in &p.segs {
            fields = fields.table(DEATHS, at);
            at += size_of::<SegInfo>();
        }
        let all = self.geom.bytes_of(p.head.frags.get()) as u64;
        let seals = seals_of(offset, len as u64, all);
        self.partials.insert(offset, (offset + all, seals));
        let s = Part { kind: "summary", number: frag.into(), offset, len, addresses: vec![frag.into()] };
        self.emit(s, fields, seals.to_vec());
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
        let mut fields = Fields::default().table(INODE_FIELDS, 0).table(LEAD, offset_of!(Dinode, xattr));
        if i.d.has_blocks() || i.ino == IFILE {
            fields = (0..NDADDR + NIADDR).fold(fields, |f, k| lead(f, offset_of!(Dinode, db) + k * POINTER));
        }
        let frag = found.at >> self.geom.frag_shift;
        let s = Part { kind, number: i.ino.0, offset: found.at, len: INODE, addresses: vec![i.ino.0, frag] };
        self.emit(s, fields, self.inode_seals(found.at));
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
        let s = |kind| Part { kind, number, offset, len: bytes.len(), addresses: vec![number] };
        match piece.place {
            FileBlock::Map { .. } => {
                let kind = if i.ino == IFILE { "indirect block of the ifile" } else { "indirect block" };
                // Pointers that are set, and one that is not.
                let all = || pointers(bytes).enumerate();
                let set = all().filter(|(_, p)| p.frag.get() != 0).chain(all().find(|(_, p)| p.frag.get() == 0));
                let fields = set.fold(Fields::default(), |f, (k, _)| lead(f, k * POINTER));
                self.emit(s(kind), fields, seals);
            }
            FileBlock::Xattr => self.emit(s("attributes"), attributes(bytes), seals),
            FileBlock::Data(lbn) if i.ino == IFILE => {
                let (kind, table, each) = if lbn < self.geom.lbn(MAP_AT) {
                    ("usage block", USE, USAGE)
                } else {
                    ("inode map block", ENTRY, MAP_ENTRY)
                };
                let fields = (0..bytes.len() / each).fold(Fields::default(), |f, k| f.table(table, k * each));
                self.emit(s(kind), fields, seals);
            }
            FileBlock::Data(_) if i.is_symlink() => {
                let fields = Fields::default().one("target", 0, i.size() as usize, Meaning::Bytes);
                self.emit(s("symbolic link block"), fields, seals);
            }
            FileBlock::Data(_) => {
                for (k, chunk) in bytes.chunks_exact(DIRBLKSIZ).enumerate() {
                    let number = offset + (k * DIRBLKSIZ) as u64;
                    let addresses = vec![piece.frag().0.into()];
                    let s = Part { kind: "directory chunk", number, offset: number, len: DIRBLKSIZ, addresses };
                    self.emit(s, entries(chunk), seals.clone());
                }
            }
        }
    }
}

/// A pointer: its parts, and the whole of it, so that another block's can stand there with the checksum that fits.
fn lead(fields: Fields, at: usize) -> Fields {
    fields.table(LEAD, at).one("Pointer", at, POINTER, Meaning::Bytes)
}

fn entries(chunk: &[u8]) -> Fields {
    let (mut at, mut fields) = (0, Fields::default());
    while let Ok(e) = entry(chunk, at) {
        fields = fields.table(DIRENT, at).one("entry.name", at + DIRENT_HEAD, e.name.len(), Meaning::Bytes);
        at += e.reclen;
    }
    fields
}

fn attributes(bytes: &[u8]) -> Fields {
    Fields::default().table(XATTR, 0).attributes(bytes, XATTR_HEADER)
}
