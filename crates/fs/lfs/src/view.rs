//! Reading an unmounted volume: its state in core as a mount would find it, and walks over its blocks.
//!
//! Nothing is written. Damage is passed over: the checker reports it. Called by `describe.rs`, `dump.rs` and
//! `structures.rs`.

use crate::format::*;
use crate::inode::{Inode, find_inode};
use crate::mount;
use crate::summary::Parsed;
use crate::superblock::read_super;
use crate::volume::Core;
use crate::{options, superblock};
use arbor_base::cache::FileBlock;
use arbor_base::device::Kind;
use arbor_base::layout::get_u32;
use arbor_base::vfs::{Devices, Error, Ino, Options, Result, Time, mode};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use zerocopy::FromBytes;

/// Opens a volume.
pub(crate) fn open(devices: &Devices) -> Result<(SuperBlock, Core)> {
    let sb = read_super(&*devices.main)?;
    arbor_kit::head::refuse_unknown(&sb, KNOWN, false)?;
    let opts = options::Mount::parse(&Options::parse("cache=16M"))?;
    let mut core = mount::open(devices.main.clone(), superblock::geometry(&sb, 0)?, opts, Time::default())?;
    core.cache.keep_all(true);
    Ok((sb, core))
}

/// `None` for damage, which is passed over.
fn unless_damaged<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(Error::Corrupt(_)) => Ok(None),
        other => other.map(Some),
    }
}

/// A block of a file on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub place: FileBlock,
    pub p: Pointer,
    pub frags: u32,
}

impl Piece {
    pub fn frag(&self) -> Frag {
        Frag(self.p.frag.get())
    }
}

/// The name of a piece of a file for people, and the kind of request that it takes.
pub(crate) fn piece_name(geom: &Geom, i: &Inode, place: FileBlock) -> (Kind, String) {
    match place {
        FileBlock::Data(lbn) if i.ino == IFILE && lbn < geom.lbn(MAP_AT) => (Kind::Group, "segment usage table".into()),
        FileBlock::Data(_) if i.ino == IFILE => (Kind::Inode, "inode map".into()),
        FileBlock::Data(_) => match i.d.kind() {
            mode::IFDIR => (Kind::Dir, "directory".into()),
            mode::IFLNK => (Kind::Data, "symbolic link".into()),
            _ => (Kind::Data, "data".into()),
        },
        FileBlock::Map { level, n: _ } => (Kind::Tree, format!("indirect block, level {level}")),
        FileBlock::Xattr(_) => (Kind::Xattr, "extended attributes".into()),
    }
}

/// The pointers of an indirect block.
fn pointers(bytes: &[u8]) -> impl Iterator<Item = Pointer> + '_ {
    bytes.chunks_exact(POINTER).map(|b| {
        let word = |at| get_u32(b, at).unwrap_or(0).into();
        Pointer { frag: word(0), crc: word(4) }
    })
}

/// Called with a block of a file, and its pointers if it is an indirect one.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(Piece, &[u8]);

/// A walk over the blocks of files. It enters no indirect block twice.
#[derive(Default)]
pub(crate) struct Walk {
    seen: FxHashSet<u32>,
}

impl Walk {
    /// Calls `f` with the blocks of a file that are on the device, an indirect one before those below it.
    pub fn pieces(&mut self, core: &mut Core, i: &Inode, f: Visit<'_>) -> Result<()> {
        if i.d.has_blocks() || i.ino == IFILE {
            for (lbn, p) in (0u64..).zip(i.d.db) {
                self.tree(core, i, (FileBlock::Data(lbn), p), f)?;
            }
            for (level, p) in (1u8..).zip(i.d.ib) {
                self.tree(core, i, (FileBlock::Map { level, n: 0 }, p), f)?;
            }
        }
        self.tree(core, i, (FileBlock::Xattr(0), i.d.xattr), f)
    }

    fn tree(&mut self, core: &mut Core, i: &Inode, (place, p): (FileBlock, Pointer), f: Visit<'_>) -> Result<()> {
        let geom = core.geom;
        let frags = match place {
            FileBlock::Data(lbn) => geom.lbn_frags(i.size(), lbn),
            FileBlock::Map { .. } => geom.block_frags(),
            FileBlock::Xattr(_) => geom.frags_for(i.d.xattr_len.get() as usize).min(geom.block_frags()),
        };
        let piece = Piece { place, p, frags };
        // A block that is not on disk yet has an address outside of the segments.
        if piece.frag().0 == 0 || !core.is_run(piece.frag(), frags) {
            return Ok(());
        }
        let FileBlock::Map { level, n: at } = place else {
            f(piece, &[]);
            return Ok(());
        };
        if !self.seen.insert(piece.frag().0) {
            return Ok(());
        }
        let found = unless_damaged(core.read_block((i, place), p, frags, Kind::Tree))?;
        let bytes = found.unwrap_or_default();
        f(piece, &bytes);
        for (k, p) in (0u64..).zip(pointers(&bytes)).filter(|(_, p)| p.frag.get() != 0) {
            self.tree(core, i, (geom.shape().child(level, at, k), p), f)?;
        }
        Ok(())
    }
}

/// An inode, and the byte of the device where it lies.
pub(crate) struct Found {
    pub i: Inode,
    pub at: u64,
}

impl Core {
    /// The inode of the ifile, as the newest checkpoint has it.
    pub fn ifile_on_disk(&mut self) -> Result<Found> {
        let frag = Frag(self.checkpoint.ifile.get());
        let d = self.read_inode(IFILE, frag)?.1;
        let bytes = self.read_run(frag, 1, Kind::Inode)?;
        let within = find_inode(&self.geom, IFILE, &bytes).map_or(0, |f| f.0);
        Ok(Found { i: Inode { ino: IFILE, d }, at: self.geom.byte(frag) + within as u64 })
    }

    /// The inode that a map entry points to; `None` if there is no sound one.
    pub fn inode_of(&mut self, ino: Ino, entry: MapEntry) -> Result<Option<Found>> {
        let frag = Frag(entry.frag.get());
        if frag.0 == 0 || !self.is_run(frag, 1) {
            return Ok(None);
        }
        let bytes = self.read_run(frag, 1, Kind::Inode)?;
        let found = find_inode(&self.geom, ino, &bytes).filter(|(_, d)| d.version == entry.version);
        Ok(found.map(|(at, d)| Found { i: Inode { ino, d }, at: self.geom.byte(frag) + at as u64 }))
    }

    /// Blocks of the ifile that hold the inode map: those on the device, and those that roll-forward has made.
    fn map_blocks(&mut self) -> Result<BTreeSet<u64>> {
        let first = self.geom.lbn(MAP_AT);
        let mut all: BTreeSet<u64> = self.cache.dirty_pages(IFILE, first).collect();
        let ifile = self.ifile_on_disk()?.i;
        Walk::default().pieces(self, &ifile, &mut |piece, _| match piece.place {
            FileBlock::Data(lbn) if lbn >= first => drop(all.insert(lbn)),
            _ => {}
        })?;
        Ok(all)
    }

    /// Calls `f` with all inodes that the map points to, but for the ifile's.
    pub fn each_inode(&mut self, f: &mut dyn FnMut(&mut Core, &Found) -> Result<()>) -> Result<()> {
        for lbn in self.map_blocks()? {
            let Some(page) = unless_damaged(self.ifile_page(lbn))? else { continue };
            let first = ((lbn << self.geom.block_shift) - MAP_AT) / MAP_ENTRY as u64;
            let entries = page.chunks_exact(MAP_ENTRY).filter_map(|b| MapEntry::read_from_bytes(b).ok());
            let end = u64::from(self.state.inodes);
            for (n, entry) in (first..end).zip(entries).filter(|(n, _)| *n >= ROOT.0) {
                if let Some(found) = self.inode_of(Ino(n), entry)? {
                    f(self, &found)?;
                }
            }
        }
        Ok(())
    }

    /// Segments that may hold valid summaries: the others are clean, and the log is not in them.
    pub fn written_segs(&self) -> BTreeSet<u32> {
        let heads = self.log.heads.iter().filter(|h| h.is_open()).map(|h| h.seg.0);
        heads.chain(self.segs.dirty().map(|(seg, _)| seg)).collect()
    }

    /// The valid summaries of a segment, each with its offset in the segment in fragments.
    pub fn valid_summaries(&self, seg: u32) -> Result<Vec<(u32, Parsed)>> {
        let mut heads = self.log.heads.iter().filter(|h| h.is_open());
        let end = match heads.clone().find(|h| h.seg.0 == seg) {
            // Summaries after a head of the log are of an earlier filling, or torn.
            Some(head) => head.offset,
            None if heads.any(|h| h.next_seg.0 == seg) || !self.segs.get(seg).dirty => 0,
            None => self.geom.seg_frags(),
        };
        let mut all = if end > 0 { self.summaries(Seg(seg), None)? } else { Vec::new() };
        all.retain(|(at, _)| *at < end);
        Ok(all)
    }
}
