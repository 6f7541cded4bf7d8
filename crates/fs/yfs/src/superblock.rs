//! Reading, checking and writing the superblock.

use crate::format::*;
use crate::log::Log;
use arbor_base::device::Device;
use arbor_base::field;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Error, Result};
use arbor_kit::head;
pub(crate) use arbor_kit::head::{features, write};

/// Reads and checks the superblock at byte `at`: that of AG 0, or that of a copy. `None` if there is none.
pub(crate) fn read(dev: &dyn Device, at: u64) -> Result<Option<SuperBlock>> {
    head::read(dev, at)
}

/// The geometry that the superblock at byte `at` describes; checks it for impossible values.
pub(crate) fn geometry(sb: &SuperBlock, at: u64, size: u64) -> Result<Geom> {
    let bad = |f: (_, u64), n: u64, should: &str| Error::from(Corrupt::new("superblock", f.0, at + f.1, n, should));
    let (fs, bs, is) = (sb.frag_shift.get(), sb.block_shift.get(), sb.inode_shift.get());
    if !(9..=14).contains(&fs) {
        return Err(bad(field!(SuperBlock, frag_shift), fs.into(), "9 to 14"));
    }
    if !(10..=16).contains(&bs) || bs < fs {
        return Err(bad(field!(SuperBlock, block_shift), bs.into(), "10 to 16, and not below frag_shift"));
    }
    if !(9..=11).contains(&is) {
        return Err(bad(field!(SuperBlock, inode_shift), is.into(), "9 to 11"));
    }
    let geom = Geom {
        frag_shift: fs,
        block_shift: bs,
        inode_shift: is,
        ag_frags: sb.ag_frags.get(),
        frags: sb.frags.get(),
        ag_count: sb.ag_count.get(),
        bitmap_blocks: sb.bitmap_blocks.get(),
        fsid: head::fsid(&sb.uuid),
        hash_seed: sb.hash_seed.get(),
    };
    let chunk = u64::from(geom.chunk_frags());
    if geom.ag_frags == 0 || geom.ag_frags > 1 << 24 || !geom.ag_frags.is_multiple_of(chunk) {
        return Err(bad(field!(SuperBlock, ag_frags), geom.ag_frags, "a multiple of an inode chunk, at most 2^24"));
    }
    if geom.bitmap_blocks != (geom.ag_frags as u32).div_ceil(geom.bits_per_bitmap()) {
        return Err(bad(field!(SuperBlock, bitmap_blocks), geom.bitmap_blocks.into(), "as many as the AG size needs"));
    }
    if geom.frags.div_ceil(geom.ag_frags) != u64::from(geom.ag_count) || geom.ag_count == 0 {
        return Err(bad(field!(SuperBlock, ag_count), geom.ag_count.into(), "the AGs that frags make"));
    }
    let least = u64::from(geom.first_chunk() + geom.chunk_frags());
    if u64::from(geom.ag_len(geom.ag_count - 1)) < least {
        return Err(bad(field!(SuperBlock, frags), geom.frags, "a last AG that holds its own structures"));
    }
    if geom.frags.checked_mul(geom.frag_size()).is_none_or(|b| b > size) {
        return Err(Error::refused(format!(
            "the volume has {} bytes, the device only {size}: truncated image?",
            u128::from(geom.frags) * u128::from(geom.frag_size())
        )));
    }
    if sb.ag_used.get() == 0 || sb.ag_used.get() > geom.ag_count {
        return Err(bad(field!(SuperBlock, ag_used), sb.ag_used.get().into(), "1 to ag_count"));
    }
    check_log_area(sb, at, &geom)?;
    Ok(geom)
}

fn check_log_area(sb: &SuperBlock, at: u64, geom: &Geom) -> Result<()> {
    let bytes = sb.log_sectors.get().saturating_mul(SECTOR);
    let (start, sectors) = (sb.log_start.get(), geom.frag_sectors());
    let inside = if sb.incompat.get() & INCOMPAT_EXTERNAL_LOG != 0 {
        start.checked_add(sb.log_sectors.get()).is_some()
    } else {
        // In one AG, after its structures and its first chunk.
        let frags = u32::try_from(sb.log_sectors.get().div_ceil(sectors)).unwrap_or(u32::MAX);
        let frag = geom.frag_of(Daddr(start));
        start.is_multiple_of(sectors)
            && geom.valid_run(frag, frags)
            && frag.0 - geom.ag_start(geom.ag_of(frag)).0 >= u64::from(geom.first_chunk() + geom.chunk_frags())
    };
    if bytes < Log::min_bytes(geom) || bytes > 1 << 32 || !inside {
        let (field, offset) = field!(SuperBlock, log_sectors);
        let expected = "a log area of sensible size";
        return Err(Corrupt::new("superblock", field, at + offset, sb.log_sectors.get(), expected).into());
    }
    Ok(())
}

/// Refuses a log that was given for a volume that has its own, and the other way round.
pub(crate) fn check_log(sb: &SuperBlock, is_given: bool) -> Result<()> {
    match (sb.incompat.get() & INCOMPAT_EXTERNAL_LOG != 0, is_given) {
        (true, false) => Err(Error::refused("the volume's log is on another device: option log=FILE is needed")),
        (false, true) => Err(Error::refused("the volume's log is internal, but option log was given")),
        _ => Ok(()),
    }
}
