//! Reading and checking the superblock.

use crate::format::*;
use arbor_base::device::Device;
use arbor_base::field;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Error, Result};
use arbor_kit::head;

/// The superblock at byte `at`, checked, with its geometry; `None` if there is no magic. Rereads one whose checksum is
/// wrong.
pub(crate) fn read(dev: &dyn Device, at: u64) -> Result<Option<(SuperBlock, Geom)>> {
    head::read_checked(dev, at, checked)
}

/// The superblock at byte 0; it is an error if there is none.
pub(crate) fn need(dev: &dyn Device) -> Result<(SuperBlock, Geom)> {
    read(dev, 0)?.ok_or_else(|| Error::refused("no plain superblock"))
}

/// The superblock in these bytes, see [`read`].
pub(crate) fn decode(bytes: &[u8], at: u64, size: u64) -> Result<Option<(SuperBlock, Geom)>> {
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
