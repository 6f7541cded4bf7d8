//! What must hold of a structure by itself: checked when it is read. Whether structures agree with each other is the
//! checker's business.

use crate::format::*;
use arbor_base::field;
use arbor_base::layout::{Corrupt, Location};
use arbor_base::vfs::{FileType, Ino};
use arbor_kit::dirent::check_chunks;
use arbor_kit::namespace::TARGET_MAX;

type Checked<T> = std::result::Result<T, Corrupt>;

/// Ordinal numbers that no volume reaches: one that is greater is damage, and would end in an overflow.
pub(crate) const MOST: u64 = 1 << 60;

/// Checks the ordinal numbers of a checkpoint; the field and the number that cannot be.
pub(crate) fn ordinals(cp: &Checkpoint) -> std::result::Result<(), (&'static str, u64)> {
    let all = [("serial", cp.serial), ("epoch", cp.epoch), ("set", cp.set), ("fill", cp.fill)];
    match all.into_iter().find(|(_, n)| n.get() >= MOST) {
        Some((field, n)) => Err((field, n.get())),
        None => Ok(()),
    }
}

/// Checks the numbers of a state; the field and the number that cannot be.
pub(crate) fn totals(geom: &Geom, t: &Totals) -> std::result::Result<(), (&'static str, u64)> {
    let (inodes, free, used) = (t.inodes.get(), t.free_ino.get(), t.used_inodes.get());
    let in_map = |ino: u32| ino == 0 || (u64::from(ino) > ROOT.0 && ino < inodes);
    let most = MAP_AT.saturating_add(u64::from(inodes) * MAP_ENTRY as u64);
    let all = [
        ("inodes", inodes, u64::from(inodes) > ROOT.0 && most <= geom.max_size()),
        ("free_ino", free, in_map(free)),
        ("used_inodes", used, used <= inodes),
        ("orphan", t.orphan.get(), in_map(t.orphan.get())),
        ("data", t.data.get(), t.data.get() <= geom.data_blocks),
        ("meta", t.meta.get(), t.meta.get() <= geom.segs.saturating_mul(geom.seg_blocks())),
    ];
    match all.into_iter().find(|(_, _, holds)| !holds) {
        Some((field, found, _)) => Err((field, found.into())),
        None => Ok(()),
    }
}

/// Checks an inode that was read as that of number `ino`.
pub(crate) fn inode(geom: &Geom, at: u64, ino: Ino, d: &Dinode) -> Checked<()> {
    let bad = |(field, offset): (_, u64), found: u64, expected: &str| {
        Err(Corrupt::new("inode", field, Location::from(at.saturating_add(offset)), found, expected))
    };
    if u64::from(d.ino.get()) != ino.0 {
        return bad(field!(Dinode, ino), d.ino.get().into(), &ino.to_string());
    }
    let (size, block) = (d.size.get(), geom.block() as u64);
    let fits = match FileType::from_mode(d.mode.get()) {
        None => return bad(field!(Dinode, mode), d.mode.get().into(), "a known type"),
        Some(FileType::File) => size <= geom.max_size(),
        // One that was removed may have nothing any more.
        Some(FileType::Dir) if size == 0 => d.nlink.get() == 0,
        Some(FileType::Dir) => size.is_multiple_of(block) && size >> geom.block_shift <= most_meta(geom),
        Some(FileType::Symlink) => size <= TARGET_MAX as u64,
        Some(_) => size == 0,
    };
    if !fits {
        return bad(field!(Dinode, size), size, "one that its type allows");
    }
    if ino != IFILE && u64::from(d.meta.get()) > most_meta(geom) {
        return bad(field!(Dinode, meta), d.meta.get().into(), "blocks of the metadata area");
    }
    if d.data.get() > geom.data_blocks {
        return bad(field!(Dinode, data), d.data.get().into(), "blocks of the data area");
    }
    if d.group.get() >= geom.groups() {
        return bad(field!(Dinode, group), d.group.get().into(), "a group of the data area");
    }
    Ok(())
}

fn most_meta(geom: &Geom) -> u64 {
    u64::from(geom.segs) * u64::from(geom.seg_blocks())
}

/// Checks a block of a directory.
pub(crate) fn dir_block(ino: Ino, lbn: u64, shift: u32, bytes: &[u8]) -> Checked<()> {
    let told = |(at, found, expected): (usize, _, _)| {
        let at = Location::file(ino, (lbn << shift).saturating_add(at as u64));
        Corrupt::new("directory", "entries", at, found, expected)
    };
    check_chunks(bytes, lbn == 0).map_err(told)
}
