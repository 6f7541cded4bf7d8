//! What must hold of a structure by itself, beyond its checksum: checked once, when it is read.
//!
//! Later code takes for granted what follows from it. Whoever crafts an image can make its checksums right, so nothing
//! here is a matter of luck: counts that would overflow, names with a slash, trees without order. Whether structures
//! agree with each other is the checker's business.

use crate::body;
use crate::format::*;
use arbor_base::layout::{Corrupt, get_u16, get_u64};
use arbor_base::vfs::{FileType, is_name, mode};
use std::fmt::Display;
use zerocopy::FromBytes;

/// Largest size of a file.
pub(crate) const MAX_SIZE: u64 = i64::MAX as u64;
/// Longest target of a symbolic link.
const MAX_TARGET: u64 = 4095;

/// Checks an inode read from its place. Free ones pass.
pub(crate) fn inode(geom: &Geom, ino: u64, bytes: &[u8]) -> Result<(), Corrupt> {
    check_inode(ino, bytes)?;
    let Ok((d, area)) = Dinode::ref_from_prefix(bytes) else { return Ok(()) };
    let bad = |field, found: &dyn Display, expected: &str| {
        Err(Corrupt::new("inode", field, ino.saturating_mul(SECTOR), found, expected))
    };
    let Some(format) = d.format().filter(|f| *f != Format::Free) else { return Ok(()) };
    let Some(area) = area.len().checked_sub(d.xattr_inline.get().into()).and_then(|n| area.get(..n)) else {
        return bad("xattr_inline", &d.xattr_inline, "no more than the area");
    };
    let Some(kind) = FileType::from_mode(d.mode.get()) else {
        return bad("mode", &d.mode, "a known type");
    };
    if d.frags.get() > geom.frags {
        return bad("frags", &d.frags, "no more than the volume has");
    }
    let size = d.size.get();
    let most = match (kind, format) {
        (FileType::File, Format::Inline) => area.len() as u64,
        (FileType::File, _) => MAX_SIZE,
        (FileType::Symlink, Format::Inline) => MAX_TARGET.min(area.len() as u64),
        (FileType::Symlink, Format::Extent) => MAX_TARGET,
        (FileType::Dir, _) => u64::MAX,
        (_, Format::Inline) => 0,
        _ => return bad("format", &d.format, "one that its type may have"),
    };
    if size > most {
        return bad("size", &size, "no more than its type and format allow");
    }
    if format == Format::Inline {
        return if kind == FileType::Dir { entries("inode", ino.saturating_mul(SECTOR), area) } else { Ok(()) };
    }
    let value = if d.mode.get() & mode::IFMT == mode::IFDIR { DIR_VALUE } else { EXTENT_VALUE };
    node("inode", ino.saturating_mul(SECTOR), area, value)
}

/// Checks a block that has passed [`check_block`].
pub(crate) fn block(kind: BlockType, addr: Daddr, bytes: &[u8]) -> Result<(), Corrupt> {
    let body = bytes.get(HEADER..).unwrap_or(&[]);
    let inodes = size_of::<InodesBody>();
    match kind {
        BlockType::Dir => entries(kind.name(), addr.byte(), body),
        BlockType::ExtentNode => node(kind.name(), addr.byte(), body, EXTENT_VALUE),
        BlockType::DirNode => node(kind.name(), addr.byte(), body, DIR_VALUE),
        BlockType::ChunkNode => node(kind.name(), addr.byte(), body, CHUNK_VALUE),
        BlockType::Inodes => node(kind.name(), addr.byte(), body.get(inodes..).unwrap_or(&[]), CHUNK_VALUE),
        BlockType::Group | BlockType::Bitmap | BlockType::Xattr | BlockType::Symlink => Ok(()),
    }
}

fn entries(what: &'static str, at: u64, body: &[u8]) -> Result<(), Corrupt> {
    let bad = |found: &dyn Display, expected: &str| Err(Corrupt::new(what, "entries", at, found, expected));
    let (entries, damage) = body::parse(body);
    if let Some(why) = damage {
        return bad(&why, "a list in the order of the hashes");
    }
    match entries.iter().find(|e| !is_name(e.name)) {
        Some(e) => bad(&format_args!("{:?}", String::from_utf8_lossy(e.name)), "a name"),
        None => Ok(()),
    }
}

/// Checks that a node has room for its records, and that their keys ascend.
fn node(what: &'static str, at: u64, body: &[u8], value: usize) -> Result<(), Corrupt> {
    let count = usize::from(get_u16(body, 0).unwrap_or(0));
    let inner = body.get(2).is_some_and(|level| *level > 0);
    let size = 8 + if inner { 8 } else { value };
    let Some(records) = body.get(NODE_HEADER..).and_then(|b| b.get(..count * size)) else {
        return Err(Corrupt::new(what, "count", at, count, "as many as there is room for"));
    };
    // The first key of an inner node stands for nothing.
    let mut keys = records.chunks_exact(size).skip(usize::from(inner)).map(|r| get_u64(r, 0));
    let mut last = None;
    match keys.find(|key| last.replace(*key).is_some_and(|last| last >= *key)) {
        Some(key) => Err(Corrupt::new(what, "key", at, key.unwrap_or(0), "keys in ascending order")),
        None => Ok(()),
    }
}
