//! Checks of single structures, done once, when they are read.
//!
//! Later code takes for granted what follows from them. Whether structures agree with each other is the checker's
//! business.

use crate::bitmap::{count, header};
use crate::format::*;
use arbor_base::field;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{FileType, Ino};
use arbor_kit::dirent::check_chunks;
use arbor_kit::namespace::TARGET_MAX;
use zerocopy::FromBytes;

/// Checks the structure of a group: checksums, header, and the counts against the bitmaps.
pub(crate) fn group(geom: &Geom, cgx: u32, bytes: &[u8]) -> Result<(), Corrupt> {
    let at = geom.byte(geom.cg_block(cgx));
    let bad = |(field, offset), found: String, expected: &str| {
        Err(Corrupt::new("cylinder group", field, at + offset, found, expected))
    };
    if let Some(sector) = unsealed_sector(bytes) {
        let found = format!("a wrong value in sector {sector}");
        return bad(("crc", (sector * SECTOR) as u64), found, "that of its bytes");
    }
    let h = header(bytes);
    if h.magic.get() != CG_MAGIC || h.fsid.get() != geom.fsid {
        let found = format!("{:#x}, fsid {:#x}", h.magic.get(), h.fsid.get());
        return bad(field!(CgHeader, magic), found, "a group of this volume");
    }
    if h.cgx.get() != cgx || h.frags.get() != geom.cg_len(cgx) {
        let found = format!("{} with {} fragments", h.cgx, h.frags);
        return bad(field!(CgHeader, cgx), found, "the number and length of this group");
    }
    if h.inodes.get() != geom.cg_inodes {
        return bad(field!(CgHeader, inodes), h.inodes.to_string(), "the superblock's inodes of a group");
    }
    let inited = h.initediblk.get();
    if inited > geom.cg_inodes || !inited.is_multiple_of(geom.inodes_per_block()) {
        return bad(field!(CgHeader, initediblk), inited.to_string(), "whole blocks of inodes");
    }
    let (sum, frsum) = count(geom, cgx, bytes);
    if (Summary { ndir: h.sum.ndir, ..sum }) != h.sum || frsum != h.frsum || h.sum.ndir.get() > geom.cg_inodes {
        return bad(field!(CgHeader, sum), format!("{:?}", h.sum), "what the bitmaps count");
    }
    Ok(())
}

/// Checks an inode as it was read. Free inodes pass.
pub(crate) fn inode(geom: &Geom, ino: Ino, bytes: &[u8]) -> Result<(), Corrupt> {
    let Ok(d) = Dinode::ref_from_bytes(bytes) else { return Ok(()) };
    if bytes.iter().all(|b| *b == 0) {
        return Ok(());
    }
    let at = geom.inode_at(ino).map_or(0, |(block, at)| geom.byte(block) + at as u64);
    let bad = |(field, offset), found: String, expected: &str| {
        Err(Corrupt::new("inode", field, at + offset, found, expected))
    };
    let crc = inode_crc(bytes, geom.fsid, ino);
    if d.crc.get() != crc {
        return bad(field!(Dinode, crc), format!("{:#x}", d.crc.get()), &format!("{crc:#x}"));
    }
    if !d.in_use() {
        return Ok(());
    }
    let Some(kind) = FileType::from_mode(d.kind()) else {
        return bad(field!(Dinode, mode), format!("{:#o}", d.mode.get()), "a known type");
    };
    let most = match kind {
        FileType::File | FileType::Dir => geom.max_size(),
        FileType::Symlink => TARGET_MAX as u64,
        _ => 0,
    };
    let size = d.size.get();
    if size > most {
        return bad(field!(Dinode, size), size.to_string(), "no more than its type allows");
    }
    if kind == FileType::Dir && (size == 0 || !size.is_multiple_of(geom.dir_unit(size))) {
        return bad(field!(Dinode, size), size.to_string(), "whole fragments of entries, or whole blocks");
    }
    Ok(())
}

/// Checks a block of a directory.
pub(crate) fn dir_block(at: u64, bytes: &[u8], first: bool) -> Result<(), Corrupt> {
    check_chunks(bytes, first)
        .map_err(|(within, found, expected)| Corrupt::new("directory", "entries", at + within as u64, found, expected))
}
