//! First phases: the superblock, or one of its copies; the log.

use super::Findings;
use super::issue::Issue;
use super::view::{Reader, View, lay_replay, log_device};
use crate::format::*;
use crate::mount::{self, geometry, read_super};
use crate::recover;
use arbor_base::device::{Device, Kind, Request};
use arbor_base::layout::Access;
use arbor_base::vfs::{CheckOptions, Devices, Error, Repair, Result};
use zerocopy::FromBytes;

/// Farthest that the second search for copies goes, in bytes, and its step.
const SEARCH: u64 = 16 << 30;
const STEP: u64 = 32 << 10;

type Started<'a> = Option<(Reader<'a>, Option<&'a dyn Device>)>;

/// Finds the superblock and replays the log. `None` if that is all there is to do.
pub(super) fn start<'a>(devices: &'a Devices, options: &CheckOptions, f: &mut Findings) -> Result<Started<'a>> {
    let dev = &*devices.main;
    let (mut sb, geom, damaged) = match superblock(dev, f)? {
        Some(found) => found,
        None => return Ok(None),
    };
    match mount::features(&sb).access(KNOWN) {
        Access::ReadWrite => {}
        Access::ReadOnly(_) if options.repair == Repair::No => {}
        Access::ReadOnly(bits) | Access::Refused(bits) => {
            return Err(Error::refused(format!("unknown features {bits:#x}")));
        }
    }
    if sb.clean.get() != 0 && !options.force && !damaged {
        f.report.skipped = true;
        return Ok(None);
    }
    let log = log_device(devices, &sb)?;
    if damaged && f.mode != Repair::No {
        mount::write_super(dev, &sb)?;
        dev.flush()?;
    }
    let view = View::new(dev, f.mode == Repair::No);
    if damaged {
        let mut bytes = zerocopy::IntoBytes::as_bytes(&sb).to_vec();
        Seal::Super.seal(&mut bytes, 0);
        view.lay(0, &bytes);
    }
    if sb.clean.get() == 0 {
        replay(&view, log, &sb, &geom, f)?;
        match read_super(&view, 0) {
            Ok(Some(now)) => sb = now,
            _ if damaged => {}
            _ => return lost(f, "the log has overwritten it"),
        }
    }
    let Ok(geom) = geometry(&sb, dev.geometry().size) else {
        return lost(f, "the log has changed it to nonsense");
    };
    Ok(Some((Reader { view, sb, geom }, log)))
}

fn lost<T>(f: &mut Findings, why: &str) -> Result<Option<T>> {
    f.note(Issue::SuperLost { why: why.into() });
    Ok(None)
}

/// Replays the log in place or, without repair, in memory.
fn replay(view: &View<'_>, log: Option<&dyn Device>, sb: &SuperBlock, geom: &Geom, f: &mut Findings) -> Result<()> {
    let log: &dyn Device = log.unwrap_or(view);
    let end = sb.log_start.get().saturating_add(sb.log_sectors.get()).saturating_mul(SECTOR);
    if end > log.geometry().size {
        // No repair helps: the device is the wrong one, or cut.
        return Err(Error::refused("the log reaches past the end of its device"));
    }
    let replay = match recover::replay(view, log, sb, geom) {
        Ok(replay) => replay,
        Err(Error::Corrupt(why)) => {
            if f.note(Issue::LogDamaged { why: why.to_string() }) {
                empty_log(log, sb, geom)?;
            }
            return Ok(());
        }
        Err(e) => return Err(e),
    };
    if replay.anchors_lost {
        if f.note(Issue::LogAnchors { at: sb.log_start.get() }) {
            anchor(log, sb, geom, 0, replay.cycle)?;
        }
        return Ok(());
    }
    f.report.recovered = true;
    if f.mode == Repair::No {
        lay_replay(view, geom, replay);
        return Ok(());
    }
    let (seq, cycle) = (replay.anchor_seq, replay.cycle);
    recover::write_back(view, geom, replay)?;
    anchor(log, sb, geom, seq, cycle)
}

/// Writes an anchor behind everything that the log holds.
fn anchor(log: &dyn Device, sb: &SuperBlock, geom: &Geom, seq: u64, cycle: u32) -> Result<()> {
    // A cycle that no record has, also none behind a gap that the replay stopped at.
    let tail = Lsn::new(cycle.saturating_add(2), LOG_FIRST);
    let start = sb.log_start.get().saturating_mul(SECTOR);
    recover::write_anchor(log, start, geom.fsid, seq.wrapping_add(1), tail, Lsn(0), 0)?;
    Ok(log.flush()?)
}

/// Makes the log empty.
pub(super) fn empty_log(log: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<()> {
    let start = sb.log_start.get().saturating_mul(SECTOR);
    let old = recover::read_anchor(log, start, geom.fsid)?;
    // The anchor names the tail; records may go on for a cycle behind it.
    let (seq, cycle) = old.map_or((0, 1 << 30), |a| (a.seq.get(), Lsn(a.tail.get()).cycle().saturating_add(1)));
    anchor(log, sb, geom, seq, cycle)
}

type Found = Option<(SuperBlock, Geom, bool)>;

/// The superblock, its geometry, and whether the one at byte 0 is damaged.
fn superblock(dev: &dyn Device, f: &mut Findings) -> Result<Found> {
    let size = dev.geometry().size;
    let why = match read_super(dev, 0) {
        Ok(Some(sb)) => match geometry(&sb, size) {
            Ok(geom) => return Ok(Some((sb, geom, false))),
            Err(e @ Error::Refused(_)) => return Err(e),
            Err(e) => e.to_string(),
        },
        Ok(None) => "no magic".to_string(),
        Err(Error::Corrupt(c)) => c.to_string(),
        Err(e) => return Err(e),
    };
    let found = match copy_at_powers(dev)? {
        Some(sb) => Some(sb),
        None => match own_fields(dev)? {
            Some(sb) => Some(sb),
            None => copy_anywhere(dev)?,
        },
    };
    let Some(mut sb) = found else {
        f.note(Issue::SuperLost { why: format!("{why}, and no copy is found") });
        return Ok(None);
    };
    sb.clean = 0.into();
    let geom = geometry(&sb, size)?;
    sb.ag_used = ags_in_use(dev, &sb, &geom)?.into();
    f.note(Issue::SuperDamaged { why });
    Ok(Some((sb, geom, true)))
}

/// A superblock at `at` that describes AGs of which one starts there.
fn copy_at(dev: &dyn Device, at: u64) -> Option<SuperBlock> {
    let sb = read_super(dev, at).ok()??;
    let geom = geometry(&sb, dev.geometry().size).ok()?;
    let ag_bytes = geom.ag_frags.checked_mul(geom.frag_size())?;
    (at.checked_rem(ag_bytes)? == 0).then_some(sb)
}

/// AG sizes are powers of two unless somebody wanted it otherwise.
fn copy_at_powers(dev: &dyn Device) -> Result<Option<SuperBlock>> {
    Ok((15..48).map(|shift| 1u64 << shift).find_map(|at| copy_at(dev, at)))
}

fn copy_anywhere(dev: &dyn Device) -> Result<Option<SuperBlock>> {
    let end = dev.geometry().size.min(SEARCH);
    let mut at = STEP;
    while at < end {
        let places: Vec<u64> = (0..256).map(|i| at + i * STEP).filter(|p| *p + SECTOR <= end).collect();
        let batch = places.iter().map(|p| Request::read(Kind::Super, *p, SECTOR as usize)).collect();
        for (place, read) in places.into_iter().zip(dev.submit(batch).wait()) {
            let magic = read?.get(..8) == Some(&SUPER_MAGIC[..]);
            if magic && let Some(sb) = copy_at(dev, place) {
                return Ok(Some(sb));
            }
        }
        at += 256 * STEP;
    }
    Ok(None)
}

/// The superblock at byte 0 in spite of its checksum, if the first AG's headers bear it out.
fn own_fields(dev: &dyn Device) -> Result<Option<SuperBlock>> {
    if dev.geometry().size < SECTOR {
        return Ok(None);
    }
    let mut bytes = vec![0; SECTOR as usize];
    dev.read_at(Kind::Super, 0, &mut bytes)?;
    let Ok(sb) = SuperBlock::read_from_bytes(&bytes) else { return Ok(None) };
    // The magic may be what is damaged.
    let sb = SuperBlock { magic: SUPER_MAGIC, ..sb };
    let Ok(geom) = geometry(&sb, dev.geometry().size) else { return Ok(None) };
    let good = sb.version.get() <= VERSION && ag_in_use(dev, &geom, 0)?;
    Ok(good.then_some(sb))
}

/// Whether two of an AG's headers are there.
fn ag_in_use(dev: &dyn Device, geom: &Geom, ag: u32) -> Result<bool> {
    let mut good = 0;
    for (kind, addr) in [
        (BlockType::Group, geom.group_block(ag)),
        (BlockType::Inodes, geom.inode_block(ag)),
        (BlockType::Bitmap, geom.bitmap_block(ag, 0)),
    ] {
        let mut bytes = vec![0; geom.block_size()];
        dev.read_at(Kind::Group, addr.byte(), &mut bytes)?;
        good += u32::from(check_block(geom, kind, addr, &bytes).is_ok());
    }
    Ok(good >= 2)
}

/// A copy is as old as its AG, so the number of AGs in use is counted.
fn ags_in_use(dev: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<u32> {
    let mut ags = sb.ag_used.get().clamp(1, geom.ag_count);
    while ags < geom.ag_count && ag_in_use(dev, geom, ags)? {
        ags += 1;
    }
    Ok(ags)
}
