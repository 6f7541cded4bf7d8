//! What must hold of a structure by itself: checked once, when it is read.
//!
//! Later code takes for granted what follows from it. Whether structures agree with each other is the checker's
//! business.

use crate::format::*;
use arbor_base::field;
use arbor_base::layout::{Corrupt, Location};
use arbor_base::vfs::{FileType, Ino};
use arbor_kit::dirent::check_chunks;
use arbor_kit::namespace::TARGET_MAX;

/// Longest directory in bytes.
pub(crate) const MAX_DIR: u64 = 1 << 32;
/// Limit of the numbers that are counted up for each mount, group, checkpoint or filling of a segment.
pub(crate) const MOST: u64 = 1 << 60;

/// Most inodes of the map: each had its bytes in the log at some time.
pub(crate) fn most_inodes(geom: &Geom, segs: u32) -> u64 {
    (u64::from(segs) << geom.seg_shift) / INODE as u64
}

/// Checks the numbers of a checkpoint, or of a group, that later code adds to and subtracts from: inodes in the map,
/// the first free one, those in use, fragments of files.
pub(crate) fn counts(
    geom: &Geom,
    segs: u32,
    (inodes, free, used): (u32, u32, u32),
    file_frags: u64,
) -> Result<(), (&'static str, u64)> {
    let frags = u64::from(segs) * u64::from(geom.seg_frags());
    let most = most_inodes(geom, segs);
    if u64::from(inodes) <= ROOT.0 || u64::from(inodes) > most {
        return Err(("inodes", inodes.into()));
    }
    if free >= inodes || free != 0 && u64::from(free) <= ROOT.0 {
        return Err(("free_ino", free.into()));
    }
    if used >= inodes {
        return Err(("used_inodes", used.into()));
    }
    if file_frags > frags {
        return Err(("file_frags", file_frags));
    }
    Ok(())
}

/// Checks the numbers of a checkpoint that only grow.
pub(crate) fn ordinals(cp: &Checkpoint) -> Result<(), (&'static str, u64)> {
    let all = [
        ("serial", cp.serial),
        ("epoch", cp.epoch),
        ("group", cp.group),
        ("fill", cp.fill),
        ("cold_fill", cp.cold_fill),
    ];
    all.into_iter().find(|(_, n)| n.get() > MOST).map_or(Ok(()), |(field, n)| Err((field, n.get())))
}

/// Checks an inode at byte `at` of a device with `segs` segments.
pub(crate) fn inode(geom: &Geom, segs: u32, at: u64, ino: Ino, d: &Dinode) -> Result<(), Corrupt> {
    let bad = |(field, offset): (_, u64), found: String, expected: &str| {
        Err(Corrupt::new("inode", field, at.saturating_add(offset), format!("{found} (inode {ino})"), expected))
    };
    let Some(kind) = FileType::from_mode(d.kind()) else {
        return bad(field!(Dinode, mode), format!("{:#o}", d.mode.get()), "a known type");
    };
    let most = match kind {
        FileType::File => geom.max_size(),
        FileType::Dir => MAX_DIR,
        FileType::Symlink => TARGET_MAX as u64,
        _ => 0,
    };
    let size = d.size.get();
    if size > most {
        return bad(field!(Dinode, size), size.to_string(), "no more than its type allows");
    }
    let removed = d.nlink.get() == 0;
    if kind == FileType::Dir && !removed && (size == 0 || !size.is_multiple_of(geom.dir_unit(size))) {
        return bad(field!(Dinode, size), size.to_string(), "whole fragments of entries, or whole blocks");
    }
    if kind == FileType::Symlink && !removed && size == 0 {
        return bad(field!(Dinode, size), size.to_string(), "a target");
    }
    if d.frags.get() > u64::from(segs) * u64::from(geom.seg_frags()) {
        return bad(field!(Dinode, frags), d.frags.to_string(), "no more than the volume has");
    }
    if !xattr_len(geom, d) {
        return bad(field!(Dinode, xattr_len), d.xattr_len.to_string(), "a block at most, and as many as there are");
    }
    Ok(())
}

/// Whether the length of an inode's attributes is possible.
pub(crate) fn xattr_len(geom: &Geom, d: &Dinode) -> bool {
    let len = d.xattr_len.get() as usize;
    match d.xattr.frag.get() {
        0 => len == 0,
        _ => (XATTR_HEADER..=geom.block_size()).contains(&len),
    }
}

/// Checks the block of a directory at offset `at`.
pub(crate) fn dir_block(ino: Ino, at: u64, bytes: &[u8]) -> Result<(), Corrupt> {
    check_chunks(bytes, at == 0).map_err(|(within, found, expected)| {
        let at = Location::file(ino, at.saturating_add(within as u64));
        Corrupt::new("directory", "entries", at, found, expected)
    })
}
