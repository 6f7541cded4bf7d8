//! Reading, checking and writing the superblock.

use crate::format::*;
use crate::log::Log;
use arbor_base::device::{Device, Kind};
use arbor_base::layout::{Corrupt, Features, crc_without};
use arbor_base::vfs::{Error, Result};
use std::mem::offset_of;
use zerocopy::{FromBytes, IntoBytes};

/// Reads and checks the superblock of AG 0, or of `at` (a byte address) for a copy. `None` if
/// there is no magic.
pub(crate) fn read(dev: &dyn Device, at: u64) -> Result<Option<SuperBlock>> {
    if dev.geometry().size < at.saturating_add(SECTOR) {
        return Ok(None);
    }
    let mut bytes = vec![0; SECTOR as usize];
    dev.read_at(Kind::Super, at, &mut bytes)?;
    let Ok(sb) = SuperBlock::read_from_bytes(&bytes) else { return Ok(None) };
    if sb.magic != SUPER_MAGIC {
        return Ok(None);
    }
    let crc = crc_without(&bytes, offset_of!(SuperBlock, crc)).unwrap_or(0);
    if sb.crc.get() != crc {
        let (found, expected) = (format!("{:#x}", sb.crc.get()), format!("{crc:#x}"));
        return Err(Corrupt::new("superblock", "crc", at, found, expected).into());
    }
    if sb.version.get() > VERSION {
        return Err(Error::refused(format!(
            "yFS format version {} is newer than this program knows ({VERSION})",
            sb.version.get()
        )));
    }
    Ok(Some(sb))
}

/// Writes a superblock or a copy of it, with its CRC. The caller flushes.
pub(crate) fn write(dev: &dyn Device, at: u64, sb: &SuperBlock) -> Result<()> {
    let mut bytes = sb.as_bytes().to_vec();
    Seal::Super.seal(&mut bytes, 0);
    Ok(dev.write_at(Kind::Super, at, &bytes)?)
}

/// Feature bits of a superblock.
pub(crate) fn features(sb: &SuperBlock) -> Features {
    Features { compat: sb.compat.get(), ro_compat: sb.ro_compat.get(), incompat: sb.incompat.get() }
}

/// The geometry a superblock describes, checked against nonsense.
pub(crate) fn geometry(sb: &SuperBlock, size: u64) -> Result<Geom> {
    let bad = |field, found: u64, expected: &str| Corrupt::new("superblock", field, 0, found, expected);
    let (fs, bs, is) = (sb.frag_shift.get(), sb.block_shift.get(), sb.inode_shift.get());
    if !(9..=14).contains(&fs) {
        return Err(bad("frag_shift", fs.into(), "9 to 14").into());
    }
    if !(10..=16).contains(&bs) || bs < fs {
        return Err(bad("block_shift", bs.into(), "10 to 16, and not below frag_shift").into());
    }
    if !(9..=11).contains(&is) {
        return Err(bad("inode_shift", is.into(), "9 to 11").into());
    }
    let geom = Geom {
        frag_shift: fs,
        block_shift: bs,
        inode_shift: is,
        ag_frags: sb.ag_frags.get(),
        frags: sb.frags.get(),
        ag_count: sb.ag_count.get(),
        bitmap_blocks: sb.bitmap_blocks.get(),
        fsid: fsid(sb),
        hash_seed: sb.hash_seed.get(),
    };
    let chunk = u64::from(geom.chunk_frags());
    if geom.ag_frags == 0 || geom.ag_frags > 1 << 24 || !geom.ag_frags.is_multiple_of(chunk) {
        return Err(bad("ag_frags", geom.ag_frags, "a multiple of an inode chunk, at most 2^24").into());
    }
    if geom.bitmap_blocks != (geom.ag_frags as u32).div_ceil(geom.bits_per_bitmap()) {
        return Err(bad("bitmap_blocks", geom.bitmap_blocks.into(), "as many as the AG size needs").into());
    }
    if geom.frags.div_ceil(geom.ag_frags) != u64::from(geom.ag_count) || geom.ag_count == 0 {
        return Err(bad("ag_count", geom.ag_count.into(), "the AGs that frags make").into());
    }
    let least = u64::from(geom.first_chunk() + geom.chunk_frags());
    if u64::from(geom.ag_len(geom.ag_count - 1)) < least {
        return Err(bad("frags", geom.frags, "a last AG that holds its own structures").into());
    }
    if geom.frags.checked_mul(geom.frag_size()).is_none_or(|b| b > size) {
        return Err(Error::refused(format!(
            "the volume has {} bytes, the device only {size}: truncated image?",
            u128::from(geom.frags) * u128::from(geom.frag_size())
        )));
    }
    if sb.ag_used.get() == 0 || sb.ag_used.get() > geom.ag_count {
        return Err(bad("ag_used", sb.ag_used.get().into(), "1 to ag_count").into());
    }
    check_log_area(sb, &geom)?;
    Ok(geom)
}

fn check_log_area(sb: &SuperBlock, geom: &Geom) -> Result<()> {
    let bytes = sb.log_sectors.get().saturating_mul(SECTOR);
    let (start, sectors) = (sb.log_start.get(), geom.frag_sectors());
    let inside = if sb.incompat.get() & INCOMPAT_EXTERNAL_LOG != 0 {
        start.checked_add(sb.log_sectors.get()).is_some()
    } else {
        // In one AG, behind its structures and its first chunk.
        let frags = u32::try_from(sb.log_sectors.get().div_ceil(sectors)).unwrap_or(u32::MAX);
        let frag = geom.frag_of(Daddr(start));
        start.is_multiple_of(sectors)
            && geom.valid_run(frag, frags)
            && frag.0 - geom.ag_start(geom.ag_of(frag)).0 >= u64::from(geom.first_chunk() + geom.chunk_frags())
    };
    if bytes < Log::min_bytes(geom) || bytes > 1 << 32 || !inside {
        return Err(
            Corrupt::new("superblock", "log_sectors", 0, sb.log_sectors.get(), "a log area of sensible size").into()
        );
    }
    Ok(())
}

/// First eight bytes of the UUID.
pub(crate) fn fsid(sb: &SuperBlock) -> u64 {
    u64::from_le_bytes([sb.uuid[0], sb.uuid[1], sb.uuid[2], sb.uuid[3], sb.uuid[4], sb.uuid[5], sb.uuid[6], sb.uuid[7]])
}
