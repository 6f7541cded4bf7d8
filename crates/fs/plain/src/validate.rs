//! What must hold of a structure by itself: checked when it is read. Whether structures agree with each other is the
//! checker's business.

use crate::format::*;
use arbor_base::device::Kind;
use arbor_base::layout::{Corrupt, crc_without};
use arbor_base::vfs::{FileType, Ino};
use arbor_kit::dirent::check_chunks;
use arbor_kit::namespace::TARGET_MAX;
use zerocopy::FromBytes;

/// Checks a block of metadata.
pub(crate) fn block(geom: &Geom, block: u32, kind: Kind, bytes: &[u8]) -> std::result::Result<(), Corrupt> {
    let (what, magic) = match kind {
        Kind::Bitmap => ("bitmap", BITMAP_MAGIC),
        Kind::Tree => ("indirect block", INDIRECT_MAGIC),
        Kind::Xattr => ("attributes", XATTR_MAGIC),
        Kind::Inode => return table(geom, block, bytes),
        _ => return Ok(()),
    };
    let bad = |field, found: u64, expected: u64| Err(Corrupt::new(what, field, byte(block), found, expected));
    let Ok((head, _)) = Head::read_from_prefix(bytes) else { return bad("magic", 0, magic.into()) };
    let crc = crc_without(bytes, CRC_AT).unwrap_or(0);
    if head.magic.get() != magic {
        return bad("magic", head.magic.get().into(), magic.into());
    }
    if head.crc.get() != crc {
        return bad("crc", head.crc.get().into(), crc.into());
    }
    if head.fsid.get() != geom.fsid || head.block.get() != block {
        return bad("block", head.block.get().into(), block.into());
    }
    if head.len.get() as usize > BLOCK - HEAD {
        return bad("len", head.len.get().into(), (BLOCK - HEAD) as u64);
    }
    Ok(())
}

fn table(geom: &Geom, block: u32, bytes: &[u8]) -> std::result::Result<(), Corrupt> {
    let first = u64::from(block.saturating_sub(geom.table())) * u64::from(INODES);
    (first..).zip(bytes.chunks_exact(INODE)).try_for_each(|(ino, b)| inode(geom, Ino(ino), b).map(drop))
}

/// The inode in these bytes, checked.
pub(crate) fn inode(geom: &Geom, ino: Ino, bytes: &[u8]) -> std::result::Result<Dinode, Corrupt> {
    let d = Dinode::read_from_bytes(bytes).unwrap_or_default();
    let at = geom.inode_at(ino).map_or(0, |(block, at)| byte(block) + at as u64);
    let bad = |field, found: u64, expected: &str| Err(Corrupt::new("inode", field, at, found, expected));
    if d == Dinode::default() {
        return Ok(d);
    }
    if d.crc.get() != d.checksum(geom.fsid) {
        return bad("crc", d.crc.get().into(), "that of its bytes");
    }
    if u64::from(d.ino.get()) != ino.0 {
        return bad("ino", d.ino.get().into(), &ino.to_string());
    }
    if !d.in_use() {
        return Ok(d);
    }
    let size = d.size.get();
    let fits = match FileType::from_mode(d.mode.get()) {
        None => return bad("mode", d.mode.get().into(), "a known type"),
        Some(FileType::File) => size <= MOST_BLOCKS << BLOCK_SHIFT,
        // One that was removed may have nothing any more.
        Some(FileType::Dir) if size == 0 => d.nlink.get() == 0,
        Some(FileType::Dir) => size.is_multiple_of(BLOCK as u64) && size >> BLOCK_SHIFT <= geom.space.into(),
        Some(FileType::Symlink) => size <= TARGET_MAX as u64,
        Some(_) => size == 0,
    };
    if fits { Ok(d) } else { bad("size", size, "one that its type allows") }
}

/// Checks a block of a directory.
pub(crate) fn dir_block(block: u32, bytes: &[u8], first: bool) -> std::result::Result<(), Corrupt> {
    let told = |(at, found, expected)| Corrupt::new("directory", "entries", byte(block) + at as u64, found, expected);
    check_chunks(bytes, first).map_err(told)
}
