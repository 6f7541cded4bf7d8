//! Reads of an unmounted volume, with the changes of a repair laid over the device in memory.
//!
//! The checker changes nothing but this view until all is known; then [`View::commit`] writes it in the
//! order of the stages. `describe`, `dump` and `structures` read through here too.

use super::start;
use crate::format::*;
use arbor_base::device::{Device, Kind, Request, zeroed};
use arbor_base::vfs::{Devices, Ino, Repair, Result};
use arbor_kit::head;
use arbor_kit::xattr::{self, Xattrs};
use std::collections::BTreeMap;
use zerocopy::{FromBytes, IntoBytes};

/// When a change is written: blocks that nothing points to yet come first, so that a repair that is cut off leaves
/// damage of the kind it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Blocks that were free.
    Fresh,
    /// Chunks of directories and indirect blocks.
    Blocks,
    /// Inodes.
    Inodes,
    /// Structures of cylinder groups.
    Groups,
    /// Copies of the superblock and the summary area.
    Rest,
}

type Sector = Box<[u8]>;

/// A device with sectors laid over it.
pub(crate) struct View<'a> {
    pub dev: &'a dyn Device,
    /// Sectors that a replay of the journal changes.
    replayed: BTreeMap<u64, Sector>,
    /// Sectors that a repair changes.
    over: BTreeMap<u64, (Stage, Kind, Sector)>,
}

impl<'a> View<'a> {
    pub fn new(dev: &'a dyn Device) -> View<'a> {
        View { dev, replayed: BTreeMap::new(), over: BTreeMap::new() }
    }

    /// Lays bytes of the journal's replay over the device; they are never written.
    pub fn lay(&mut self, at: u64, bytes: &[u8]) {
        for (n, sector) in (at / SECTOR as u64..).zip(bytes.chunks_exact(SECTOR)) {
            self.replayed.insert(n, sector.into());
        }
    }

    /// Bytes of the volume.
    pub fn read(&self, kind: Kind, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = zeroed(len);
        self.dev.read_at(kind, at, &mut bytes)?;
        let first = at / SECTOR as u64;
        let range = first..first.saturating_add((len / SECTOR) as u64);
        let replayed = self.replayed.range(range.clone());
        for (n, sector) in replayed.chain(self.over.range(range).map(|(n, s)| (n, &s.2))) {
            let lo = (n - first) as usize * SECTOR;
            if let Some(place) = bytes.get_mut(lo..lo + SECTOR) {
                place.copy_from_slice(sector);
            }
        }
        Ok(bytes)
    }

    /// Changes whole sectors; those that stay the same are left out.
    pub fn write(&mut self, stage: Stage, kind: Kind, at: u64, bytes: &[u8]) -> Result<()> {
        let old = self.read(kind, at, bytes.len())?;
        let both = bytes.chunks_exact(SECTOR).zip(old.chunks_exact(SECTOR));
        for (n, (new, _)) in (at / SECTOR as u64..).zip(both).filter(|(_, (new, old))| new != old) {
            self.over.insert(n, (stage, kind, new.into()));
        }
        Ok(())
    }

    /// Whether anything is to be written.
    pub fn changed(&self) -> bool {
        !self.over.is_empty()
    }

    /// Writes the changes, each stage durable before the next.
    pub fn commit(&mut self) -> Result<()> {
        let over = std::mem::take(&mut self.over);
        for stage in [Stage::Fresh, Stage::Blocks, Stage::Inodes, Stage::Groups, Stage::Rest] {
            let sectors: Vec<_> = over.iter().filter(|(_, s)| s.0 == stage).collect();
            for part in sectors.chunks(1024) {
                let write = |(n, s): &(&u64, &(Stage, Kind, Sector))| {
                    Request::write(s.1, n.saturating_mul(SECTOR as u64), vec![s.2.to_vec().into()])
                };
                self.dev.submit(part.iter().map(write).collect()).wait_all()?;
            }
            if !sectors.is_empty() {
                self.dev.flush()?;
            }
        }
        Ok(())
    }
}

/// An unmounted volume.
pub(crate) struct Reader<'a> {
    pub view: View<'a>,
    pub sb: SuperBlock,
    pub geom: Geom,
}

/// Opens a volume for reading.
pub(crate) fn open(devices: &Devices) -> Result<Reader<'_>> {
    let dev = &*devices.main;
    let sb: SuperBlock = head::need(dev, 0)?;
    head::refuse_unknown(&sb, KNOWN, false)?;
    let geom = crate::superblock::geometry(&sb, 0, dev.geometry().size)?;
    let mut r = Reader { view: View::new(dev), sb, geom };
    start::journal_view(&mut r, Repair::No, false)?;
    Ok(r)
}

/// Why an inode's bytes cannot be used.
pub(crate) type Damage = &'static str;

impl Reader<'_> {
    /// A run of fragments, which the caller knows to lie in the volume.
    pub fn run(&self, kind: Kind, frag: Frag, frags: u32) -> Result<Vec<u8>> {
        self.view.read(kind, self.geom.byte(frag), self.geom.bytes_of(frags))
    }

    /// A group's structure.
    pub fn group(&self, cgx: u32) -> Result<Vec<u8>> {
        self.run(Kind::Group, self.geom.cg_block(cgx), self.geom.block_frags())
    }

    /// A group's header, if it is sound.
    pub fn header(&self, cgx: u32, cg: &[u8]) -> std::result::Result<CgHeader, &'static str> {
        check_header(&self.geom, cgx, cg)
    }

    /// First inode of a group.
    pub fn first_inode(&self, cgx: u32) -> u64 {
        u64::from(cgx) * u64::from(self.geom.cg_inodes)
    }

    /// Block `n` of a group's inodes.
    pub fn inode_block(&self, cgx: u32, n: u32) -> Result<(Frag, Vec<u8>)> {
        let bf = self.geom.block_frags();
        let frag = Frag(self.geom.cg_start(cgx).0.saturating_add(n.saturating_add(2).saturating_mul(bf)));
        Ok((frag, self.run(Kind::Inode, frag, bf)?))
    }

    /// An inode as it is on the volume, or why it cannot be used; `None` if there is no such inode.
    pub fn inode(&self, ino: u64) -> Result<Option<std::result::Result<Dinode, Damage>>> {
        let Some((frag, at)) = self.geom.inode_at(Ino(ino)) else { return Ok(None) };
        let sector = (at / SECTOR * SECTOR) as u64;
        let bytes = self.view.read(Kind::Inode, self.geom.byte(frag).saturating_add(sector), SECTOR)?;
        let at = at % SECTOR;
        Ok(bytes.get(at..at + INODE).map(|b| decode_inode(&self.geom, ino, b)))
    }

    /// The bytes of the inode at a byte address.
    pub fn inode_bytes(&self, at: u64) -> Result<Vec<u8>> {
        let sector = at / SECTOR as u64 * SECTOR as u64;
        let bytes = self.view.read(Kind::Inode, sector, SECTOR)?;
        Ok(bytes.get((at - sector) as usize..).unwrap_or(&[]).iter().take(INODE).copied().collect())
    }

    /// Byte address of an inode.
    pub fn inode_byte(&self, ino: u64) -> u64 {
        self.geom.inode_at(Ino(ino)).map_or(0, |(frag, at)| self.geom.byte(frag).saturating_add(at as u64))
    }

    /// Changes an inode, and sets its checksum.
    pub fn put_inode(&mut self, ino: u64, d: Dinode) -> Result<()> {
        let at = self.inode_byte(ino);
        let sector = at / SECTOR as u64 * SECTOR as u64;
        let mut bytes = self.view.read(Kind::Inode, sector, SECTOR)?;
        let within = (at - sector) as usize;
        if let Some(place) = bytes.get_mut(within..within + INODE) {
            place.copy_from_slice(d.sealed(self.geom.fsid, Ino(ino)).as_bytes());
        }
        self.view.write(Stage::Inodes, Kind::Inode, sector, &bytes)
    }

    /// Whether a pointer may point to a run: it lies in a group's data, inside one block, and is aligned if it is a
    /// block.
    pub fn place(&self, frag: Frag, frags: u32) -> bool {
        let bf = self.geom.block_frags();
        let inside = (frag.0 % bf).saturating_add(frags) <= bf;
        inside && self.geom.is_data(frag, frags)
    }
}

/// See [`Reader::header`].
pub(crate) fn check_header(geom: &Geom, cgx: u32, cg: &[u8]) -> std::result::Result<CgHeader, &'static str> {
    let sector = cg.get(..SECTOR).unwrap_or(&[]);
    let head = CgHeader::read_from_bytes(sector).unwrap_or_default();
    if head.magic.get() != CG_MAGIC {
        return Err("it has no magic");
    }
    if unsealed_sector(sector).is_some() {
        return Err("its checksum is wrong");
    }
    let size = (geom.cg_len(cgx), geom.cg_inodes);
    if head.fsid.get() != geom.fsid || head.cgx.get() != cgx || (head.frags.get(), head.inodes.get()) != size {
        return Err("it belongs to another group or volume");
    }
    Ok(head)
}

/// The inode in these bytes, if its checksum is right.
pub(crate) fn decode_inode(geom: &Geom, ino: u64, bytes: &[u8]) -> std::result::Result<Dinode, Damage> {
    let d = Dinode::read_from_bytes(bytes).map_err(|_| "it is cut off")?;
    if d.crc.get() != inode_crc(bytes, geom.fsid, Ino(ino)) && bytes.iter().any(|b| *b != 0) {
        return Err("its checksum is wrong");
    }
    Ok(d)
}

impl Reader<'_> {
    /// Fragments of a run of attributes, as its head says.
    pub fn xattr_frags(&self, ino: u64, frag: Frag) -> Result<std::result::Result<u32, &'static str>> {
        if !self.place(frag, 1) {
            return Ok(Err("they lie at no place for data"));
        }
        let bytes = self.run(Kind::Xattr, frag, 1)?;
        let Ok((head, _)) = XattrHeader::read_from_prefix(&bytes) else { return Ok(Err("they are cut off")) };
        let frags = head.frags.get();
        Ok(if head.magic.get() != XATTR_MAGIC {
            Err("their head has no magic")
        } else if head.fsid.get() != self.geom.fsid || u64::from(head.ino.get()) != ino {
            Err("they belong to another inode or volume")
        } else if !self.place(frag, frags) {
            Err("their length is impossible")
        } else {
            Ok(frags)
        })
    }

    /// The attributes in such a run.
    pub fn xattrs(&self, frag: Frag, frags: u32) -> Result<std::result::Result<Xattrs, &'static str>> {
        let bytes = self.run(Kind::Xattr, frag, frags)?;
        let head = XattrHeader::read_from_prefix(&bytes).map(|h| h.0).unwrap_or_default();
        if arbor_base::layout::crc_without(&bytes, CRC_AT) != Some(head.crc.get()) {
            return Ok(Err("their checksum is wrong"));
        }
        let end = XATTR_HEADER.saturating_add(head.len.get() as usize);
        Ok(bytes.get(XATTR_HEADER..end).and_then(xattr::parse).ok_or("their list is broken"))
    }
}
