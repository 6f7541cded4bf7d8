//! What must hold of a structure by itself: checked when it is read. Nodes and their items are checked where they are decoded
//! (`node.rs`, `item.rs`).

use crate::format::*;
use arbor_base::field;
use arbor_base::layout::{Corrupt, crc_without};
use arbor_base::vfs::{FileType, mode};
use arbor_kit::namespace::TARGET_MAX;
use zerocopy::FromBytes;

/// Longest list of extended attributes, in bytes.
pub(crate) const MOST_XATTRS: usize = 128 << 10;

/// A number of a structure: the field and its offset, what was found, what was expected.
pub(crate) type Number = ((&'static str, u64), u64, u64);

/// Fails for the first number of a structure, which begins at byte `at`, that is not what was expected.
pub(crate) fn numbers(structure: &'static str, at: u64, all: &[Number]) -> Result<(), Corrupt> {
    match all.iter().find(|(_, found, expected)| found != expected) {
        None => Ok(()),
        Some(((field, offset), found, expected)) => {
            Err(Corrupt::new(structure, field, at.saturating_add(*offset), found, expected))
        }
    }
}

/// Checks a bitmap.
pub(crate) fn bitmap(geom: &Geom, block: u32, bytes: &[u8]) -> Result<(), Corrupt> {
    let head = BitmapHead::read_from_prefix(bytes).map(|h| h.0).unwrap_or_default();
    let crc = crc_without(bytes, CRC_AT).unwrap_or(0);
    numbers(
        "bitmap",
        geom.byte(block),
        &[
            (field!(BitmapHead, magic), head.magic.get().into(), BITMAP_MAGIC.into()),
            (field!(BitmapHead, crc), head.crc.get().into(), crc.into()),
            (field!(BitmapHead, fsid), head.fsid.get(), geom.fsid),
            (field!(BitmapHead, block), head.block.get().into(), block.into()),
        ],
    )
}

/// Most bytes that an object of this type has.
pub(crate) fn most_size_of(geom: &Geom, file_type: Option<FileType>) -> u64 {
    match file_type {
        Some(FileType::File) => geom.most_size(),
        Some(FileType::Dir) => u64::MAX,
        Some(FileType::Symlink) => TARGET_MAX as u64,
        _ => 0,
    }
}

/// The stat data in these bytes, checked; or the field that is wrong, what it holds, and what it should.
pub(crate) fn stat_data(geom: &Geom, body: &[u8]) -> Result<StatData, (&'static str, u64, &'static str)> {
    let d = crate::stat::decode(body).ok_or(("len", body.len() as u64, "that of stat data"))?;
    let (size, file_type) = (d.size.get(), FileType::from_mode(d.mode.get()));
    if file_type.is_none() {
        return Err(("mode", d.mode.get().into(), "a known type"));
    }
    if size > most_size_of(geom, file_type) {
        return Err(("size", size, "one that its type allows"));
    }
    let tail = u64::from(d.tail.get());
    let has_bytes = matches!(d.kind(), mode::IFREG | mode::IFLNK);
    if tail > 0
        && (!has_bytes || tail > size || tail > geom.most_direct() as u64 || (size - tail) % geom.node_size as u64 != 0)
    {
        return Err(("tail", tail, "the bytes after the last whole block, or 0"));
    }
    if d.xattr.get() as usize > MOST_XATTRS {
        return Err(("xattr", d.xattr.get().into(), "no more than a list can have"));
    }
    Ok(d)
}
