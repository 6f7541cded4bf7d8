//! What must hold of a structure by itself: looked at when it is read. Whether structures agree with each other is the
//! checker's business.

use crate::format::*;
use arbor_base::device::{Device, Kind};
use arbor_base::field;
use arbor_base::layout::{Corrupt, crc_without};
use arbor_base::vfs::{Error, FileType, Ino, Result};
use arbor_kit::dirent::check_chunks;
use arbor_kit::head;
use arbor_kit::namespace::TARGET_MAX;
use zerocopy::FromBytes;

/// The superblock at byte `at`, checked, with where things lie then; `None` if there is no magic. What was read wrong is
/// read once more.
pub(crate) fn read_super(dev: &dyn Device, at: u64) -> Result<Option<(SuperBlock, Geom)>> {
    let size = dev.geometry().size;
    let read = || checked(head::read(dev, at)?, at, size);
    match read() {
        Ok(None) | Err(Error::Corrupt(_)) => read(),
        found => found,
    }
}

/// The superblock in these bytes, see [`read_super`].
pub(crate) fn superblock(bytes: &[u8], at: u64, size: u64) -> Result<Option<(SuperBlock, Geom)>> {
    checked(head::decode(bytes, at)?, at, size)
}

fn checked(sb: Option<SuperBlock>, at: u64, size: u64) -> Result<Option<(SuperBlock, Geom)>> {
    let Some(sb) = sb else { return Ok(None) };
    let bad = |f: (_, u64), found: u64, expected: &str| {
        Err(Corrupt::new("superblock", f.0, at.saturating_add(f.1), found, expected).into())
    };
    let geom = Geom::of(&sb);
    if geom.log < 128 || !geom.log.is_multiple_of(2) || geom.inodes < INODES || !geom.adds_up() {
        return bad(field!(SuperBlock, blocks), geom.blocks.into(), "the sum of what is on the volume");
    }
    if byte(geom.blocks) > size {
        let bytes = byte(geom.blocks);
        return Err(Error::refused(format!("the volume has {bytes} bytes, the device only {size}: truncated image?")));
    }
    for (field, p) in [(field!(SuperBlock, inodes), sb.inodes), (field!(SuperBlock, space), sb.space)] {
        let [count, free, end, rover] = [p.count, p.free, p.end, p.rover].map(|n| n.get());
        if end > count || rover > end || free > count || free < count - end {
            return bad(field, free.into(), "as many as its other numbers allow");
        }
    }
    if sb.orphan.get() >= geom.inodes {
        return bad(field!(SuperBlock, orphan), sb.orphan.get().into(), "an inode");
    }
    Ok(Some((sb, geom)))
}

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
