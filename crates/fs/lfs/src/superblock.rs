//! Reading, checking and writing the superblock and the checkpoints.

use crate::format::*;
use crate::validate;
use arbor_base::device::{Device, Kind};
use arbor_base::field;
use arbor_base::layout::{Corrupt, crc_without};
use arbor_base::vfs::{Error, Result};
use arbor_kit::head;
pub(crate) use arbor_kit::head::{features, sealed};
use zerocopy::IntoBytes;

/// Smallest number of segments of a volume.
pub(crate) const LEAST_SEGS: u32 = 16;

/// Reads and checks the superblock at byte `at`: 0, or that of a copy. `None` if there is none.
pub(crate) fn read(dev: &dyn Device, at: u64) -> Result<Option<SuperBlock>> {
    head::read(dev, at)
}

/// The same with its geometry.
pub(crate) fn found_at(dev: &dyn Device, at: u64) -> Result<Option<(SuperBlock, Geom)>> {
    read(dev, at)?.map(|sb| Ok((sb, geometry(&sb, at)?))).transpose()
}

/// The superblock at byte 0.
pub(crate) fn read_super(dev: &dyn Device) -> Result<SuperBlock> {
    head::need(dev, 0)
}

/// Places where the copy of a superblock may be: block sizes may be 4 KiB to 64 KiB.
pub(crate) fn copies() -> impl Iterator<Item = u64> {
    (12..=16).map(|shift| 3 << shift)
}

/// Whether two superblocks, or copies, are of one volume. A power cut may leave them with two labels.
pub(crate) fn is_same(a: &SuperBlock, b: &SuperBlock) -> bool {
    let bare = |sb: &SuperBlock| SuperBlock { label: [0; 64], crc: 0.into(), ..*sb };
    bare(a).as_bytes() == bare(b).as_bytes()
}

/// The feature bits that follow from the other fields.
pub(crate) fn incompat(sb: &SuperBlock) -> u32 {
    if sb.salt.get() == 0 { 0 } else { INCOMPAT_SALT }
}

/// The number that the volume's structures carry: the first eight bytes of the UUID, changed by the salt.
pub(crate) fn fsid(uuid: &[u8; 16], salt: u32) -> u64 {
    head::fsid(uuid) ^ u64::from(salt).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The geometry that the superblock at byte `at` describes; checks it for impossible values.
pub(crate) fn geometry(sb: &SuperBlock, at: u64) -> Result<Geom> {
    let bad = |(field, offset): (_, u64), found: u32, expected: &str| {
        Error::from(Corrupt::new("superblock", field, at.saturating_add(offset), found, expected))
    };
    let (block_shift, frag_shift, seg_shift) = (sb.block_shift.get(), sb.frag_shift.get(), sb.seg_shift.get());
    if !(12..=16).contains(&block_shift) {
        return Err(bad(field!(SuperBlock, block_shift), block_shift, "12 to 16"));
    }
    if frag_shift > block_shift || block_shift - frag_shift > 3 {
        return Err(bad(field!(SuperBlock, frag_shift), frag_shift, "an eighth of a block to a whole one"));
    }
    if seg_shift > 26 || seg_shift < block_shift + 4 {
        return Err(bad(field!(SuperBlock, seg_shift), seg_shift, "at least 16 blocks, and at most 64 MiB"));
    }
    let geom = Geom { block_shift, frag_shift, seg_shift, first: sb.first.get(), fsid: fsid(&sb.uuid, sb.salt.get()) };
    if geom.first != 4 * geom.block_frags() {
        return Err(bad(field!(SuperBlock, first), geom.first, "the fragment after four blocks"));
    }
    Ok(geom)
}

/// Segments that fit into `size` bytes.
pub(crate) fn segs_in(geom: &Geom, size: u64) -> u32 {
    let fit = size.saturating_sub(geom.byte(Frag(geom.first))) >> geom.seg_shift;
    fit.min(most_segs(geom)) as u32
}

/// The most segments: fragments have 32-bit numbers, and the usage table ends before the inode map.
fn most_segs(geom: &Geom) -> u64 {
    (u64::from(UNWRITTEN - geom.first) / u64::from(geom.seg_frags())).min(MAP_AT / USAGE as u64)
}

/// Refuses a volume of which not all could be used.
pub(crate) fn check_size(geom: &Geom, size: u64) -> Result<()> {
    let most = geom.byte(Frag(geom.first)) + ((most_segs(geom) + 1) << geom.seg_shift);
    if size < most {
        return Ok(());
    }
    let (frag, seg) = (geom.frag_size(), 1u64 << geom.seg_shift);
    Err(Error::refused(format!(
        "{size} bytes are too many: with fragments of {frag} and segments of {seg} bytes a volume has less than {most} \
         (see block=, frag= and segment=)"
    )))
}

/// The sound checkpoints, the newer one first, each with its region.
pub(crate) fn checkpoints(dev: &dyn Device, geom: &Geom) -> Result<Vec<(usize, Checkpoint)>> {
    let is_ours = |cp: &Checkpoint| cp.magic == CHECKPOINT_MAGIC && cp.fsid.get() == geom.fsid;
    let is_sound = |cp: &Checkpoint, bytes: &[u8]| is_ours(cp) && crc_without(bytes, CRC_AT) == Some(cp.crc.get());
    arbor_kit::rollforward::checkpoints(dev, geom.checkpoints(), is_sound, |cp| cp.serial.get())
}

/// Checks the numbers of a checkpoint.
pub(crate) fn check_checkpoint(geom: &Geom, size: u64, at: u64, cp: &Checkpoint) -> Result<()> {
    let bad = |(field, offset): (_, u64), found: u64, expected: &str| {
        Err(Corrupt::new("checkpoint", field, at.saturating_add(offset), found, expected).into())
    };
    let end = geom.byte(Frag(geom.first)) + (u64::from(cp.segs.get()) << geom.seg_shift);
    if cp.segs.get() < LEAST_SEGS || u64::from(cp.segs.get()) > most_segs(geom) {
        return bad(
            field!(Checkpoint, segs),
            cp.segs.get().into(),
            "at least 16, and no more than the usage table and 32 bits count",
        );
    }
    if end > size {
        return Err(Error::refused(format!("the volume has {end} bytes, the device only {size}: truncated image?")));
    }
    let hot = [(field!(Checkpoint, seg), cp.seg.get()), (field!(Checkpoint, next_seg), cp.next_seg.get())];
    let cold = [(field!(Checkpoint, cold_seg), cp.cold_seg.get()), (field!(Checkpoint, cold_next), cp.cold_next.get())];
    let is_open = cp.cold_seg.get() != NO_SEG;
    let mut filled = Vec::new();
    for (field, seg) in hot.into_iter().chain(cold.into_iter().filter(|_| is_open)) {
        if seg >= cp.segs.get() {
            return bad(field, seg.into(), "a segment of the volume");
        }
        if filled.contains(&seg) {
            return bad(field, seg.into(), "a segment of its own");
        }
        filled.push(seg);
    }
    let offsets =
        [(field!(Checkpoint, offset), cp.offset.get()), (field!(Checkpoint, cold_offset), cp.cold_offset.get())];
    for (field, offset) in offsets {
        if offset > geom.seg_frags() {
            return bad(field, offset.into(), "fragments of a segment");
        }
    }
    let numbers = (cp.inodes.get(), cp.free_ino.get(), cp.used_inodes.get());
    let counts = validate::counts(geom, cp.segs.get(), numbers, cp.file_frags.get());
    if let Err((field, found)) = validate::ordinals(cp).and(counts) {
        return bad((field, 0), found, "a number that can be");
    }
    // The ifile's inode is the last thing written before a checkpoint.
    let end = geom.seg_start(Seg(cp.seg.get())).0.saturating_add(cp.offset.get());
    if end != cp.ifile.get().saturating_add(1) {
        return bad(field!(Checkpoint, ifile), cp.ifile.get().into(), "the last fragment of the log");
    }
    Ok(())
}

/// Writes a checkpoint to region 0 or 1. The caller flushes before and after.
pub(crate) fn write_checkpoint(dev: &dyn Device, geom: &Geom, place: usize, cp: &Checkpoint) -> Result<()> {
    let at = geom.checkpoints().get(place).copied().unwrap_or(0);
    Ok(dev.write_at(Kind::Super, at, &sealed(cp.as_bytes()))?)
}
