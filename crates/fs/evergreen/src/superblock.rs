//! Reading and checking the superblock.

use crate::format::*;
use arbor_base::device::Device;
use arbor_base::field;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Error, Result};
use arbor_kit::head;

/// Least blocks of a volume.
pub(crate) const LEAST_BLOCKS: u32 = 256;
/// The least and the greatest distance of reserved blocks.
pub(crate) const STRIDES: std::ops::RangeInclusive<u32> = 16..=1 << 20;

/// The superblock at byte `at`, checked, with its geometry; `None` if there is no magic. Rereads one whose checksum is
/// wrong.
pub(crate) fn read(dev: &dyn Device, at: u64) -> Result<Option<(SuperBlock, Geom)>> {
    head::read_checked(dev, at, checked)
}

/// The superblock at byte 0; it is an error if there is none.
pub(crate) fn need(dev: &dyn Device) -> Result<(SuperBlock, Geom)> {
    read(dev, 0)?.ok_or_else(|| Error::refused("no Evergreen superblock"))
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
    if geom.blocks < LEAST_BLOCKS {
        return bad(field!(SuperBlock, blocks), geom.blocks.into(), "the blocks of a volume");
    }
    if !STRIDES.contains(&sb.stride.get()) {
        return bad(field!(SuperBlock, stride), sb.stride.get().into(), "16 to 1048576");
    }
    if byte(geom.blocks) > size {
        let bytes = byte(geom.blocks);
        return Err(Error::refused(format!("the volume has {bytes} bytes, the device only {size}: truncated image?")));
    }
    Ok(Some((sb, geom)))
}
