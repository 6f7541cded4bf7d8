//! What must hold of a structure by itself: checked when it is read. Whether structures agree with each other is the
//! checker's business.

use crate::format::*;
use arbor_base::cache::FileBlock;
use arbor_base::layout::{Corrupt, Location, crc_without};
use arbor_base::vfs::{FileType, Ino};
use arbor_kit::dirent::check_chunks;
use arbor_kit::namespace::TARGET_MAX;
use zerocopy::FromBytes;

type Checked<T> = std::result::Result<T, Corrupt>;

/// Checks a block of metadata of a file.
pub(crate) fn part(geom: &Geom, (ino, part): (Ino, FileBlock), block: u32, bytes: &[u8]) -> Checked<()> {
    let (what, index, len) = match part {
        FileBlock::Map { level, n } => (("indirect block", INDIRECT_MAGIC), Some(n), Some(u32::from(level))),
        FileBlock::Xattr(0) => (("attributes", XATTR_MAGIC), None, None),
        FileBlock::Xattr(n) => (("attributes", XATTR_MORE_MAGIC), Some(n.into()), None),
        FileBlock::Data(n) if ino == DBITMAP || ino == IBITMAP => (("bitmap", BITMAP_MAGIC), Some(n), Some(0)),
        FileBlock::Data(n) if ino == IFILE => return inodes(geom, n, bytes),
        FileBlock::Data(_) => return Ok(()),
    };
    let head = headed(geom, what, block, bytes)?;
    let bad = |field, found: u32, expected: u64| Err(Corrupt::new(what.0, field, byte(block), found, expected));
    if u64::from(head.owner.get()) != ino.0 {
        return bad("owner", head.owner.get(), ino.0);
    }
    let more = if index.is_none() { head.index.get() } else { 0 };
    if more > XATTR_MORE || index.is_some_and(|index| u64::from(head.index.get()) != index) {
        return bad("index", head.index.get(), index.unwrap_or(XATTR_MORE.into()));
    }
    let room = (BLOCK - entry_at(more as usize)) as u64;
    match len {
        Some(len) if len != head.len.get() => bad("len", head.len.get(), len.into()),
        None if u64::from(head.len.get()) > room => bad("len", head.len.get(), room),
        _ => Ok(()),
    }
}

/// Checks a block that begins with a head.
pub(crate) fn headed(geom: &Geom, (what, magic): (&'static str, u32), block: u32, bytes: &[u8]) -> Checked<Head> {
    let bad = |field, found: u64, expected: u64| Err(Corrupt::new(what, field, byte(block), found, expected));
    let Ok((head, _)) = Head::read_from_prefix(bytes) else { return bad("magic", 0, magic.into()) };
    let crc = crc_without(bytes, CRC_AT).unwrap_or(0);
    let all: [(&'static str, u64, u64); 4] = [
        ("magic", head.magic.get().into(), magic.into()),
        ("crc", head.crc.get().into(), crc.into()),
        ("fsid", head.fsid.get(), geom.fsid),
        ("block", head.block.get().into(), block.into()),
    ];
    match all.into_iter().find(|(_, found, expected)| found != expected) {
        Some((field, found, expected)) => bad(field, found, expected),
        None => Ok(head),
    }
}

fn inodes(geom: &Geom, lbn: u64, bytes: &[u8]) -> Checked<()> {
    let first = lbn.saturating_mul(INODES.into());
    let each = (first..).zip(bytes.chunks_exact(INODE));
    each.map(|(ino, b)| (Ino(ino), Dinode::read_from_bytes(b).unwrap_or_default()))
        .try_for_each(|(ino, d)| inode(geom, ino, d).map(drop))
}

/// An inode, checked.
pub(crate) fn inode(geom: &Geom, ino: Ino, d: Dinode) -> Checked<Dinode> {
    let bad =
        |field, found: u64, expected: &str| Err(Corrupt::new("inode", field, Location::inode(ino), found, expected));
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
        Some(FileType::Dir) => size.is_multiple_of(BLOCK as u64) && size >> BLOCK_SHIFT <= geom.blocks.into(),
        Some(FileType::Symlink) => size <= TARGET_MAX as u64,
        Some(_) => size == 0,
    };
    if fits { Ok(d) } else { bad("size", size, "one that its type allows") }
}

/// Checks a block of a directory.
pub(crate) fn dir_block(block: u32, bytes: &[u8], first: bool) -> Checked<()> {
    let told = |(at, found, expected)| Corrupt::new("directory", "entries", byte(block) + at as u64, found, expected);
    check_chunks(bytes, first).map_err(told)
}
