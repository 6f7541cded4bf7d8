//! Reading, checking and writing the superblock and the checkpoints.

use crate::format::*;
use crate::validate;
use arbor_base::device::{Device, Kind};
use arbor_base::field;
use arbor_base::layout::{Corrupt, crc_without};
use arbor_base::vfs::{Error, Result};
use arbor_kit::head;
use std::cmp::Ordering;
use zerocopy::IntoBytes;

/// Smallest number of segments of a volume.
pub(crate) const LEAST_SEGS: u32 = 16;
/// Smallest number of data blocks.
pub(crate) const LEAST_DATA: u32 = 256;

/// The superblock at byte `at`, 0 or that of a copy, with its geometry but for the size of the data area; `None` if there
/// is none. Rereads one that is refused.
pub(crate) fn read(dev: &dyn Device, at: u64) -> Result<Option<(SuperBlock, Geom)>> {
    head::read_checked(dev, at, |sb, at, _| sb.map(|sb| Ok((sb, geometry(&sb, at)?))).transpose())
}

/// The superblock at byte 0; it is an error if there is none.
pub(crate) fn need(dev: &dyn Device) -> Result<(SuperBlock, Geom)> {
    read(dev, 0)?.ok_or_else(|| Error::refused("no DualFS superblock"))
}

/// Places where the copy of a superblock may be: block sizes may be 4 KiB to 64 KiB.
pub(crate) fn copies() -> impl Iterator<Item = u64> {
    (12..=16).map(|shift| 3 << shift)
}

/// Whether two superblocks, or copies, are of one volume. A power cut may leave them with two labels, or two borders.
pub(crate) fn is_same(a: &SuperBlock, b: &SuperBlock) -> bool {
    let bare = |sb: &SuperBlock| {
        let incompat = sb.incompat.get() & !INCOMPAT_BORDER;
        SuperBlock { label: [0; 64], crc: 0.into(), incompat: incompat.into(), segs: 0.into(), ..*sb }
    };
    bare(a).as_bytes() == bare(b).as_bytes()
}

/// Whether a superblock and its copy say the same.
pub(crate) fn is_equal(a: &SuperBlock, b: &SuperBlock) -> bool {
    is_same(a, b) && (a.label, a.segs, a.incompat) == (b.label, b.segs, b.incompat)
}

/// The number that the volume's structures carry.
pub(crate) fn fsid(uuid: &[u8; 16], salt: u32) -> u64 {
    head::fsid(uuid) ^ u64::from(salt).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The geometry that the superblock at byte `at` describes; checks it for impossible values. No data blocks yet.
pub(crate) fn geometry(sb: &SuperBlock, at: u64) -> Result<Geom> {
    let bad = |(field, offset): (_, u64), found: u64, expected: &str| {
        Err(Corrupt::new("superblock", field, at.saturating_add(offset), found, expected).into())
    };
    let geom = Geom {
        block_shift: sb.block_shift.get(),
        seg_shift: sb.seg_shift.get(),
        group_blocks: sb.group_blocks.get(),
        segs: sb.segs.get(),
        data_at: sb.data_at.get(),
        data_blocks: 0,
        heads: if sb.incompat.get() & INCOMPAT_TWO_DEVICES != 0 { HEADS } else { 0 },
        fsid: fsid(&sb.uuid, sb.salt.get()),
    };
    if !(12..=16).contains(&geom.block_shift) {
        return bad(field!(SuperBlock, block_shift), geom.block_shift.into(), "12 to 16");
    }
    if geom.seg_shift > 26 || geom.seg_shift < geom.block_shift + 4 {
        return bad(field!(SuperBlock, seg_shift), geom.seg_shift.into(), "at least 16 blocks, and at most 64 MiB");
    }
    let most = 8 << geom.block_shift;
    if geom.group_blocks < 64 || geom.group_blocks > most || !geom.group_blocks.is_multiple_of(8) {
        return bad(
            field!(SuperBlock, group_blocks),
            geom.group_blocks.into(),
            "64 to the bits of a block, whole bytes",
        );
    }
    if geom.segs < LEAST_SEGS || geom.segs > most_segs(&geom) {
        return bad(field!(SuperBlock, segs), geom.segs.into(), "at least 16, and as many as the usage table counts");
    }
    let (end, features) = (geom.meta_byte(MetaBlock(geom.meta_end())), sb.incompat.get());
    let is_whole =
        geom.data_at.is_multiple_of(geom.block() as u64) && geom.data_at >> geom.block_shift < NO_PLACE.into();
    let may_be_there = match geom.data_at.cmp(&end) {
        Ordering::Equal => true,
        before if features & INCOMPAT_BORDER != 0 => (before == Ordering::Less) == (geom.heads == 0),
        // Who does not know all features is refused for that.
        _ => features & !KNOWN.incompat != 0,
    };
    if !is_whole || !may_be_there {
        return bad(field!(SuperBlock, data_at), geom.data_at, "the byte after the last segment");
    }
    Ok(geom)
}

/// The most segments: metadata blocks have 32-bit numbers, and the usage table ends before the descriptors.
pub(crate) fn most_segs(geom: &Geom) -> u32 {
    ((NO_PLACE - FIRST) / geom.seg_blocks()).min((GROUPS_AT / USAGE as u64) as u32)
}

/// Data blocks that fit on a device of `size` bytes: their numbers have 32 bits, and their bitmaps end before the inode
/// map.
pub(crate) fn data_blocks(geom: &Geom, size: u64) -> u32 {
    let groups = ((MAP_AT - BITMAPS_AT) >> geom.block_shift).min((BITMAPS_AT - GROUPS_AT) / GROUP_DESC as u64);
    let addresses = (NO_PLACE - 1).saturating_sub(geom.data_first());
    let most = groups.saturating_mul(geom.group_blocks.into()).min(addresses.into());
    (size.saturating_sub(geom.data_at) >> geom.block_shift).min(most) as u32
}

/// The sound checkpoints, the newer one first, each with its region.
pub(crate) fn checkpoints(dev: &dyn Device, geom: &Geom) -> Result<Vec<(usize, Checkpoint)>> {
    let is_ours = |cp: &Checkpoint| cp.magic == CHECKPOINT_MAGIC && cp.fsid.get() == geom.fsid;
    let is_sound = |cp: &Checkpoint, bytes: &[u8]| is_ours(cp) && crc_without(bytes, CRC_AT) == Some(cp.crc.get());
    arbor_kit::rollforward::checkpoints(dev, geom.checkpoints(), is_sound, |cp| cp.serial.get())
}

/// The geometry with the data area of a checkpoint, whose numbers are checked.
pub(crate) fn with_checkpoint(geom: &Geom, size: u64, region: usize, cp: &Checkpoint) -> Result<Geom> {
    let at = geom.checkpoints().get(region).copied().unwrap_or(0);
    let bad = |(field, offset): (_, u64), found: u64, expected: &str| {
        Err(Corrupt::new("checkpoint", field, at.saturating_add(offset), found, expected).into())
    };
    let (most_segs, geom) = (geom.segs, geom.told(cp));
    let end = geom.meta_byte(MetaBlock(geom.meta_end()));
    if !(LEAST_SEGS..=most_segs).contains(&geom.segs) || geom.heads == 0 && end < geom.data_at {
        return bad(field!(Checkpoint, segs), geom.segs.into(), "segments of the metadata area");
    }
    if geom.file_blocks() < LEAST_DATA - geom.heads || geom.data_blocks > data_blocks(&geom, u64::MAX) {
        return bad(field!(Checkpoint, data_blocks), geom.data_blocks.into(), "the blocks of a data area");
    }
    if geom.end() > size {
        let (end, size) = (geom.size(), size.saturating_sub(geom.gap()));
        return Err(Error::refused(format!("the volume has {end} bytes, the device only {size}: truncated image?")));
    }
    for (field, seg) in [(field!(Checkpoint, seg), cp.seg), (field!(Checkpoint, next_seg), cp.next_seg)] {
        if seg.get() >= geom.segs {
            return bad(field, seg.get().into(), "a segment of the volume");
        }
    }
    if cp.seg == cp.next_seg {
        return bad(field!(Checkpoint, next_seg), cp.next_seg.get().into(), "another segment than the present one");
    }
    if cp.offset.get() > geom.seg_blocks() {
        return bad(field!(Checkpoint, offset), cp.offset.get().into(), "blocks of a segment");
    }
    // The ifile's inode is the last thing that is written before a checkpoint.
    let end = geom.seg_start(Seg(cp.seg.get())).0 + cp.offset.get();
    if cp.ifile.get().checked_add(1) != Some(end) {
        return bad(field!(Checkpoint, ifile), cp.ifile.get().into(), "the last block of the log");
    }
    if let Err((field, found)) = validate::ordinals(cp).and(validate::totals(&geom, &cp.totals)) {
        return bad((field, 0), found, "a number that can be");
    }
    Ok(geom)
}

/// Writes a checkpoint to region 0 or 1. The caller flushes before and after.
pub(crate) fn write_checkpoint(dev: &dyn Device, geom: &Geom, region: usize, cp: &Checkpoint) -> Result<()> {
    let at = geom.checkpoints().get(region).copied().unwrap_or(0);
    Ok(dev.write_at(Kind::Super, at, &head::sealed(cp.as_bytes()))?)
}
