//! Reading, checking and writing the superblock.

use crate::format::*;
use arbor_base::device::Device;
use arbor_base::field;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Error, Result};
use arbor_kit::head;
pub(crate) use arbor_kit::head::{encode, features, write};
use zerocopy::IntoBytes;

/// Reads and checks the superblock at byte `at`: 0, or that of a copy. `None` if there is none.
pub(crate) fn read(dev: &dyn Device, at: u64) -> Result<Option<SuperBlock>> {
    head::read(dev, at)
}

/// The same with its geometry.
pub(crate) fn found_at(dev: &dyn Device, at: u64) -> Result<Option<(SuperBlock, Geom)>> {
    read(dev, at)?.map(|sb| Ok((sb, geometry(&sb, at, dev.geometry().size)?))).transpose()
}

/// The superblock in these bytes, see [`read`].
pub(crate) fn decode(bytes: &[u8], at: u64) -> Result<Option<SuperBlock>> {
    head::decode(bytes, at)
}

/// Damage to a field of the superblock that was read at byte `at`.
fn bad(at: u64, (field, offset): (&'static str, u64), found: impl std::fmt::Display, expected: &str) -> Error {
    Corrupt::new("superblock", field, at.saturating_add(offset), found, expected).into()
}

/// A superblock as its copies hold it: without the fields that change.
pub(crate) fn as_copy(sb: SuperBlock) -> SuperBlock {
    SuperBlock {
        crc: 0.into(),
        clean: 0.into(),
        keeping: (Keeping::default() as u32).into(),
        summary_crc: 0.into(),
        orphan: 0.into(),
        mounts: 0.into(),
        ..sb
    }
}

/// Whether two superblocks, or copies, are of one volume. A power cut may leave them with two labels.
pub(crate) fn is_same(a: &SuperBlock, b: &SuperBlock) -> bool {
    let bare = |sb: &SuperBlock| SuperBlock { label: [0; 64], ..as_copy(*sb) };
    bare(a).as_bytes() == bare(b).as_bytes()
}

/// The geometry that the superblock at byte `at` describes, after a check of its values.
pub(crate) fn geometry(sb: &SuperBlock, at: u64, size: u64) -> Result<Geom> {
    let bad = |field, found: u64, expected: &str| bad(at, field, found, expected);
    let (bs, fs) = (sb.block_shift.get(), sb.frag_shift.get());
    if !(12..=16).contains(&bs) {
        return Err(bad(field!(SuperBlock, block_shift), bs.into(), "12 to 16"));
    }
    if fs > bs || bs - fs > 3 {
        return Err(bad(field!(SuperBlock, frag_shift), fs.into(), "an eighth of a block to a whole one"));
    }
    let frags =
        u32::try_from(sb.frags.get()).map_err(|_| bad(field!(SuperBlock, frags), sb.frags.get(), "less than 2^32"))?;
    let geom = Geom {
        block_shift: bs,
        frag_shift: fs,
        cg_count: sb.cg_count.get(),
        cg_frags: sb.cg_frags.get(),
        cg_inodes: sb.cg_inodes.get(),
        frags,
        fsid: head::fsid(&sb.uuid),
    };
    check_groups(&geom, at)?;
    if u64::from(frags) << fs > size {
        let bytes = u64::from(frags) << fs;
        return Err(Error::refused(format!("the volume has {bytes} bytes, the device only {size}: truncated image?")));
    }
    check_areas(sb, at, &geom)?;
    for (field, value, most) in [
        (field!(SuperBlock, minfree), sb.minfree.get(), 50),
        (field!(SuperBlock, maxcontig), sb.maxcontig.get(), 1024),
        (field!(SuperBlock, rotdelay), sb.rotdelay.get(), 64),
        (field!(SuperBlock, orphan), sb.orphan.get(), geom.inodes()),
    ] {
        if value > most {
            return Err(bad(field, value.into(), "a sensible value"));
        }
    }
    if sb.maxcontig.get() == 0 || sb.maxbpg.get() == 0 {
        return Err(bad(field!(SuperBlock, maxcontig), sb.maxcontig.get().into(), "at least one block, as maxbpg"));
    }
    Keeping::from_number(sb.keeping.get())
        .ok_or_else(|| bad(field!(SuperBlock, keeping), sb.keeping.get().into(), "1 to 4"))?;
    Ok(geom)
}

fn check_groups(geom: &Geom, at: u64) -> Result<()> {
    let bad = |field, found: u32, expected: &str| bad(at, field, found, expected);
    let (block, sectors) = (geom.block_frags(), (geom.block_size() / SECTOR) as u32);
    if geom.cg_inodes == 0 || !geom.cg_inodes.is_multiple_of(geom.inodes_per_block()) {
        return Err(bad(field!(SuperBlock, cg_inodes), geom.cg_inodes, "whole blocks of inodes"));
    }
    if geom.cg_frags == 0 || !geom.cg_frags.is_multiple_of(block) {
        return Err(bad(field!(SuperBlock, cg_frags), geom.cg_frags, "whole blocks"));
    }
    let bitmaps = u64::from(geom.inode_sectors()) + u64::from(geom.frag_sectors());
    if bitmaps + 1 > u64::from(sectors) {
        return Err(bad(field!(SuperBlock, cg_frags), geom.cg_frags, "a group whose bitmaps fit a block"));
    }
    if geom.cg_count == 0 || geom.frags.div_ceil(geom.cg_frags) != geom.cg_count || !geom.frags.is_multiple_of(block) {
        return Err(bad(field!(SuperBlock, cg_count), geom.cg_count, "the groups that frags make"));
    }
    if geom.cg_len(geom.cg_count - 1) < geom.meta_frags() + block || geom.cg_inodes.checked_mul(geom.cg_count).is_none()
    {
        return Err(bad(field!(SuperBlock, frags), geom.frags, "a last group that holds its own structures"));
    }
    Ok(())
}

/// Checks that the summary area and the journal lie in the data area of one group each, and do not overlap.
fn check_areas(sb: &SuperBlock, at: u64, geom: &Geom) -> Result<()> {
    let bad = |field, found: u32| bad(at, field, found, "a place inside a group");
    let summary = (sb.summary_start.get(), geom.summary_frags());
    if !geom.is_data(Frag(summary.0), summary.1) {
        return Err(bad(field!(SuperBlock, summary_start), summary.0));
    }
    let journal = (sb.journal_start.get(), sb.journal_frags.get());
    if journal == (0, 0) {
        return Ok(());
    }
    // The sums do not run over in a data area.
    let apart = || journal.0 >= summary.0 + summary.1 || journal.0 + journal.1 <= summary.0;
    if !geom.is_data(Frag(journal.0), journal.1) || !apart() || journal.1 < least_journal(geom) {
        return Err(bad(field!(SuperBlock, journal_start), journal.0));
    }
    Ok(())
}

/// Least fragments of a journal.
pub(crate) fn least_journal(geom: &Geom) -> u32 {
    128 * geom.block_frags()
}
