//! The anchors of the log: which records are needed, and of which mount they are.

use super::{LogArea, record_at};
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::superblock;
use arbor_base::device::{Device, Kind};
use arbor_base::layout::{U64, crc_without};
use arbor_base::vfs::{Error, Result};
use std::mem::offset_of;
use zerocopy::FromBytes;

/// Whether it is the log device of a volume.
pub fn is_log(device: &dyn Device) -> Result<bool> {
    let is_long_enough = device.geometry().size >= 2 * SECTOR;
    Ok(is_long_enough && newest_anchor(device, 0, |_| true)?.is_some())
}

/// Reads both anchors of the log area that starts at byte `start`; the one with the greater
/// counter wins. `None` if both are damaged.
pub fn read_anchor(log: &dyn Device, start: u64, fsid: u64) -> Result<Option<LogAnchor>> {
    newest_anchor(log, start, |a| a.fsid.get() == fsid)
}

fn newest_anchor(log: &dyn Device, start: u64, is_wanted: impl Fn(&LogAnchor) -> bool) -> Result<Option<LogAnchor>> {
    let mut sectors = vec![0; 2 * SECTOR as usize];
    let mut failed = None;
    for (at, sector) in (start..).step_by(SECTOR as usize).zip(sectors.chunks_exact_mut(SECTOR as usize)) {
        failed = log.read_at(Kind::Log, at, sector).err().or(failed);
    }
    let valid = sectors.chunks_exact(SECTOR as usize).filter_map(|s| {
        let (a, _) = LogAnchor::read_from_prefix(s).ok()?;
        let crc = crc_without(s.get(..64)?, offset_of!(LogAnchor, crc))?;
        // Counters close to overflow are taken as damage.
        let sane = a.seq.get() < 1 << 62 && Lsn(a.tail.get()).cycle() < 1 << 31;
        (a.magic.get() == ANCHOR_MAGIC && a.crc.get() == crc && sane && is_wanted(&a)).then_some(a)
    });
    match (valid.max_by_key(|a| a.seq.get()), failed) {
        (None, Some(e)) => Err(e.into()),
        (found, _) => Ok(found),
    }
}

/// Refuses a log of an earlier mount than the last of a volume that is in use: what the right one holds would be lost. And the
/// log of a later mount, which a newer copy of the volume needs, or which no longer holds what this one needs.
pub fn is_of_this_time(log: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<()> {
    let start = sb.log_start.get().saturating_mul(SECTOR);
    let Some(anchor) = read_anchor(log, start, geom.fsid)?.filter(|a| a.mounts.get() != 0) else { return Ok(()) };
    let (of_log, of_volume, is_in_use) = (anchor.mounts.get(), sb.mounts.get(), sb.clean.get() == 0);
    if of_log < of_volume && is_in_use {
        let why = format!("mount {of_volume} of the volume has not ended, and this is its log from mount {of_log}");
        return Err(Error::refused(format!("option log: that is an older copy of the log: {why}")));
    }
    // A copy that stands for a damaged superblock may know of no mount.
    let is_handed_over = is_in_use && of_volume != 0 && anchor.records.get() == of_volume;
    if of_log <= of_volume || is_handed_over {
        return Ok(());
    }
    let is_empty = || has_records(log, sb, &anchor).map(|has| !has);
    // Of a volume that is not in use a mount tells the log first.
    if !is_in_use && of_log - of_volume == 1 && is_empty()? {
        return Ok(());
    }
    let lost = if is_in_use && is_empty().unwrap_or(false) { ", whose records the log no longer holds" } else { "" };
    let why = format!("the log is of mount {of_log}, the volume of mount {of_volume}{lost}");
    Err(Error::refused(format!("the volume is an older copy: {why}")))
}

fn has_records(log: &dyn Device, sb: &SuperBlock, anchor: &LogAnchor) -> Result<bool> {
    let start = sb.log_start.get().saturating_mul(SECTOR);
    let mut area = LogArea::new(log, start, sb.log_sectors.get() as usize);
    let tail = Lsn(anchor.tail.get());
    Ok(record_at(&mut area, tail, Lsn(anchor.prev.get()), anchor.fsid.get())?.is_some())
}

/// Before an external log is emptied of the records of a volume in use: the log and the volume go to the next mount while the
/// records are still there, so that no copy of the volume from before fits the empty log. A power cut in between leaves
/// a log that fits both ([`is_of_this_time`]). Returns the counter of the anchor.
pub fn hand_over(dev: &dyn Device, log: &dyn Device, sb: &SuperBlock, geom: &Geom, mut seq: u64) -> Result<u64> {
    if sb.incompat.get() & INCOMPAT_EXTERNAL_LOG == 0 || sb.clean.get() != 0 {
        return Ok(seq);
    }
    let start = sb.log_start.get().saturating_mul(SECTOR);
    let mounts = next_mount(sb);
    if let Some(anchor) = read_anchor(log, start, geom.fsid)? {
        seq = anchor.seq.get().wrapping_add(1);
        write_anchor(log, start, LogAnchor { seq: seq.into(), mounts, records: sb.mounts, ..anchor })?;
        log.flush()?;
    }
    superblock::write(dev, 0, &SuperBlock { mounts, ..*sb })?;
    dev.flush()?;
    Ok(seq)
}

/// The number of the next mount of a volume.
pub fn next_mount(sb: &SuperBlock) -> U64 {
    sb.mounts.get().wrapping_add(1).into()
}

/// Writes an anchor into the slot that `seq` names. The caller flushes.
pub fn write_anchor(log: &dyn Device, start: u64, anchor: LogAnchor) -> Result<()> {
    let (mut a, seq) = (LogAnchor { magic: ANCHOR_MAGIC.into(), ..anchor }, anchor.seq.get());
    let crc = crc_without(zerocopy::IntoBytes::as_bytes(&a), offset_of!(LogAnchor, crc)).unwrap_or(0);
    a.crc = crc.into();
    let mut sector = vec![0; SECTOR as usize];
    sector[..size_of::<LogAnchor>()].copy_from_slice(zerocopy::IntoBytes::as_bytes(&a));
    let slot = if planted(Flaw::OneAnchor) { 0 } else { seq % 2 };
    log.write_at(Kind::Log, start + slot * SECTOR, &sector)?;
    Ok(())
}
