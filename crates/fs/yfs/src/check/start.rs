//! First phases: the superblock, or one of its copies; the log.

use super::Findings;
use super::issue::Issue;
use super::salvage::put_back;
use super::view::{Reader, View, lay_replay, log_device};
use crate::format::*;
use crate::recover;
use crate::superblock::{self, geometry};
use arbor_base::device::{Device, Kind, Request};
use arbor_base::vfs::{CheckOptions, Devices, Error, Repair, Result};
use arbor_kit::head;
use std::mem::offset_of;
use zerocopy::FromBytes;

/// Farthest that the second search for copies goes, in bytes, and its step.
const SEARCH: u64 = 16 << 30;
const STEP: u64 = 32 << 10;
/// Most AGs whose copies are compared.
const MAX_AGS: usize = 1 << 20;

type Started<'a> = Option<(Reader<'a>, Option<&'a dyn Device>)>;

/// Finds the superblock and replays the log. `None` if that is all there is to do.
pub(super) fn start<'a>(devices: &'a Devices, options: &CheckOptions, f: &mut Findings) -> Result<Started<'a>> {
    let dev = &*devices.main;
    let (mut sb, geom, damaged) = match superblock(dev, f)? {
        Some(found) => found,
        None => return Ok(None),
    };
    head::refuse_unknown(&sb, KNOWN, options.repair != Repair::No)?;
    if sb.clean.get() != 0 && !options.force && !damaged {
        f.report.skipped = true;
        return Ok(None);
    }
    let log = log_device(devices, &sb)?;
    if let Some(log) = log {
        recover::is_ours(log, &sb, &geom)?;
        match recover::is_of_this_time(log, &sb, &geom) {
            // It may be the superblock that is older than all else.
            Err(Error::Refused(why)) => {
                if f.judge(Issue::LogTime { why }) {
                    let start = sb.log_start.get().saturating_mul(SECTOR);
                    let of_log = recover::read_anchor(log, start, geom.fsid)?.map_or(0, |a| a.mounts.get());
                    (sb.mounts, sb.clean) = (of_log.max(sb.mounts.get()).into(), 0.into());
                    superblock::write(dev, 0, &sb)?;
                    dev.flush()?;
                }
            }
            found => found?,
        }
    }
    if damaged && f.mode != Repair::No {
        superblock::write(dev, 0, &sb)?;
        dev.flush()?;
    }
    let view = View::new(dev, f.mode == Repair::No);
    if damaged {
        let mut bytes = zerocopy::IntoBytes::as_bytes(&sb).to_vec();
        Seal::Super.seal(&mut bytes, 0);
        view.lay(0, &bytes);
    }
    f.report.unclean = sb.clean.get() == 0 && !damaged;
    let mut log_stays = false;
    if sb.clean.get() == 0 {
        log_stays = replay(&view, log, &sb, &geom, f)?;
        match superblock::read(&view, 0) {
            Ok(Some(now)) => sb = now,
            _ if damaged => {}
            _ => return lost(f, "the log has overwritten it"),
        }
    }
    let Ok(geom) = geometry(&sb, 0, dev.geometry().size) else {
        return lost(f, "the log has changed it to nonsense");
    };
    Ok(Some((Reader { view, sb, geom, log_stays }, log)))
}

fn lost<T>(f: &mut Findings, why: &str) -> Result<Option<T>> {
    f.judge(Issue::SuperLost { why: why.into() });
    Ok(None)
}

/// Replays the log in place or, without repair, in memory. Returns whether it is to be emptied in the end.
fn replay(view: &View<'_>, log: Option<&dyn Device>, sb: &SuperBlock, geom: &Geom, f: &mut Findings) -> Result<bool> {
    let log: &dyn Device = log.unwrap_or(view);
    let end = sb.log_start.get().saturating_add(sb.log_sectors.get()).saturating_mul(SECTOR);
    if end > log.geometry().size {
        // No repair helps: the device is the wrong one, or cut.
        return Err(Error::refused("the log reaches past the end of its device"));
    }
    let replay = match recover::replay_what_is_there(view, log, sb, geom) {
        Ok(replay) => replay,
        Err(Error::Corrupt(why)) => {
            if f.judge(Issue::LogDamaged { why: why.to_string() }) {
                empty_log(view, log, &mut { *sb }, geom)?;
            }
            return Ok(false);
        }
        Err(e) => return Err(e),
    };
    if replay.anchors_lost {
        if f.judge(Issue::LogAnchors { at: sb.log_start.get() }) {
            start_anew(view, log, &mut { *sb }, geom, (0, replay.cycle))?;
        }
        return Ok(false);
    }
    for gap in &replay.gaps {
        f.judge(Issue::LogGap { why: gap.to_string() });
    }
    for at in &replay.lost {
        f.judge(Issue::LogBlockLost { at: *at });
    }
    for at in &replay.suspect {
        f.judge(Issue::LogBlock { at: *at });
    }
    if f.mode == Repair::No {
        view.keep_in_memory();
        lay_replay(view, geom, &replay);
        return Ok(false);
    }
    f.report.recovered = true;
    recover::write_back(view, geom, &replay)?;
    if replay.gaps.is_empty() {
        let at = (replay.anchor_seq, replay.cycle);
        match superblock::read(view, 0) {
            Ok(Some(mut now)) => start_anew(view, log, &mut now, geom, at)?,
            _ => anchor(log, sb, geom, at)?,
        }
    }
    Ok(!replay.gaps.is_empty())
}

/// Writes an anchor after everything that the log holds, which had an anchor of this counter and records of this cycle.
fn anchor(log: &dyn Device, sb: &SuperBlock, geom: &Geom, (seq, cycle): (u64, u32)) -> Result<()> {
    // A cycle that no record has, also none after a gap that the replay stopped at.
    let tail = Lsn::new(cycle.saturating_add(2), LOG_FIRST);
    let start = sb.log_start.get().saturating_mul(SECTOR);
    let anchor = LogAnchor {
        fsid: geom.fsid.into(),
        seq: seq.wrapping_add(1).into(),
        tail: tail.0.into(),
        mounts: sb.mounts,
        ..LogAnchor::default()
    };
    recover::write_anchor(log, start, anchor)?;
    Ok(log.flush()?)
}

/// Like [`anchor`]; an external log goes to the next mount, as if this were one, and so does the superblock. That of a volume
/// that is marked clean the caller writes.
fn start_anew(
    dev: &dyn Device,
    log: &dyn Device,
    sb: &mut SuperBlock,
    geom: &Geom,
    (seq, cycle): (u64, u32),
) -> Result<()> {
    let seq = recover::hand_over(dev, log, sb, geom, seq)?;
    if sb.incompat.get() & INCOMPAT_EXTERNAL_LOG != 0 {
        sb.mounts = recover::next_mount(sb);
    }
    anchor(log, sb, geom, (seq, cycle))
}

/// Makes the log empty.
pub(super) fn empty_log(dev: &dyn Device, log: &dyn Device, sb: &mut SuperBlock, geom: &Geom) -> Result<()> {
    let start = sb.log_start.get().saturating_mul(SECTOR);
    let old = recover::read_anchor(log, start, geom.fsid)?;
    // The anchor names the tail; records may go on for a cycle after it.
    let lost = || (0, recover::highest_cycle(log, sb, geom));
    let at = old.map_or_else(lost, |a| (a.seq.get(), Lsn(a.tail.get()).cycle().saturating_add(1)));
    start_anew(dev, log, sb, geom, at)
}

/// A superblock that can be used, and where it comes from.
struct Candidate {
    sb: SuperBlock,
    /// Byte where it was read.
    at: u64,
    from: String,
}

/// The superblock, its geometry, and whether the one at byte 0 is damaged.
fn superblock(dev: &dyn Device, f: &mut Findings) -> Result<Option<(SuperBlock, Geom, bool)>> {
    let size = dev.geometry().size;
    let why = match superblock::read(dev, 0) {
        Ok(Some(sb)) => match geometry(&sb, 0, size) {
            Ok(geom) => return Ok(Some((sb, geom, false))),
            Err(e @ Error::Refused(_)) => return Err(e),
            Err(e) => e.to_string(),
        },
        Ok(None) => "no magic".to_string(),
        Err(Error::Corrupt(c)) => c.to_string(),
        Err(e) => return Err(e),
    };
    let Some(Candidate { mut sb, at, from }) = substitute(dev)? else {
        f.judge(Issue::SuperLost { why: format!("{why}, and no copy is found") });
        return Ok(None);
    };
    sb.clean = 0.into();
    let geom = geometry(&sb, at, size)?;
    sb.ag_used = ags_in_use(dev, &sb, &geom)?.into();
    f.judge(Issue::SuperDamaged { why, from });
    Ok(Some((sb, geom, true)))
}

/// What serves instead of a damaged superblock: itself with one byte put back, the newest of its
/// copies, or its own fields if the first AG bears them out.
fn substitute(dev: &dyn Device) -> Result<Option<Candidate>> {
    let Some(bytes) = head::bytes_at(dev, 0)? else { return Ok(None) };
    let mended = put_back(&bytes, offset_of!(SuperBlock, crc)).and_then(|(at, good)| {
        let sb = SuperBlock::read_from_bytes(&good).ok().filter(|sb| usable(dev, sb))?;
        Some(Candidate { sb, at: 0, from: format!("byte {at} of it is wrong, its checksum tells what it was") })
    });
    if let Some(found) = mended {
        return Ok(Some(found));
    }
    if let Some((at, sb)) = copy(dev)? {
        return Ok(Some(Candidate { sb, at, from: format!("the copy at byte {at} is used") }));
    }
    own_fields(dev, &bytes)
}

/// Whether a volume of ours seems to lie here although byte 0 does not say so.
pub(crate) fn search(dev: &dyn Device) -> Result<bool> {
    Ok(substitute(dev)?.is_some())
}

fn usable(dev: &dyn Device, sb: &SuperBlock) -> bool {
    sb.magic == SUPER_MAGIC && sb.version.get() <= VERSION && geometry(sb, 0, dev.geometry().size).is_ok()
}

/// Where copies are looked for first: after the superblock and, as AG sizes are powers of two
/// unless somebody wanted it otherwise, there.
pub(crate) fn copy_places() -> impl Iterator<Item = u64> {
    [SECTOR].into_iter().chain((15..48).map(|shift| 1u64 << shift))
}

/// The copy that the volume's other structures bear out best, the newest of several.
fn copy(dev: &dyn Device) -> Result<Option<(u64, SuperBlock)>> {
    let mut found = None;
    for at in copy_places() {
        best(dev, at, &mut found)?;
    }
    if found.is_none() {
        copies_anywhere(dev, &mut found)?;
    }
    let Some((rank, at, sb)) = found else { return Ok(None) };
    // An AG's copy is as old as the AG: later ones know more of a volume that has grown.
    let mut newest = Some((rank, at, sb));
    let ag = sb.ag_frags.get().saturating_mul(1 << sb.frag_shift.get());
    let starts = (1u64..).map_while(|n| n.checked_mul(ag)).take_while(|at| *at < dev.geometry().size);
    for at in starts.take(MAX_AGS) {
        best(dev, at, &mut newest)?;
    }
    Ok(newest.map(|(_, at, sb)| (at, sb)))
}

/// How well a copy is borne out: by the headers of the first AG, by those of its own; then how new
/// it is.
type Rank = (bool, bool, i64, u64, u32);

/// Takes the superblock at `at` if it is better than what was found.
fn best(dev: &dyn Device, at: u64, found: &mut Option<(Rank, u64, SuperBlock)>) -> Result<()> {
    let Ok(Some(sb)) = superblock::read(dev, at) else { return Ok(()) };
    let Ok(geom) = geometry(&sb, at, dev.geometry().size) else { return Ok(()) };
    let ag = at / geom.ag_frags.saturating_mul(geom.frag_size());
    if at != SECTOR && at != ag.saturating_mul(geom.ag_frags).saturating_mul(geom.frag_size()) {
        return Ok(());
    }
    let Some(ag) = u32::try_from(ag).ok().filter(|ag| *ag < geom.ag_count) else { return Ok(()) };
    let own = ag_in_use(dev, &geom, ag)?;
    let rank = (ag_in_use(dev, &geom, 0)?, own, sb.created.get(), sb.frags.get(), sb.ag_used.get());
    let stranger = found.as_ref().is_some_and(|f| f.2.uuid != sb.uuid && f.0.0);
    if !stranger && found.as_ref().is_none_or(|f| f.0 < rank) {
        *found = Some((rank, at, sb));
    }
    Ok(())
}

fn copies_anywhere(dev: &dyn Device, found: &mut Option<(Rank, u64, SuperBlock)>) -> Result<()> {
    let end = dev.geometry().size.min(SEARCH);
    let mut at = STEP;
    while at < end && found.is_none() {
        let places: Vec<u64> = (0..256).map(|i| at + i * STEP).filter(|p| *p + SECTOR <= end).collect();
        let batch = places.iter().map(|p| Request::read(Kind::Super, *p, SECTOR as usize)).collect();
        for (place, read) in places.into_iter().zip(dev.submit(batch).wait()) {
            if read?.starts_with(&SUPER_MAGIC) {
                best(dev, place, found)?;
            }
        }
        at += 256 * STEP;
    }
    Ok(())
}

/// The superblock at byte 0 in spite of its checksum, if the first AG's headers bear it out.
fn own_fields(dev: &dyn Device, bytes: &[u8]) -> Result<Option<Candidate>> {
    let Ok(mut sb) = SuperBlock::read_from_bytes(bytes) else { return Ok(None) };
    // Any field may be what is damaged; these few say nothing that cannot be found out.
    (sb.magic, sb.compat, sb.ro_compat) = (SUPER_MAGIC, 0.into(), 0.into());
    sb.incompat = (sb.incompat.get() & KNOWN.incompat).into();
    sb.version = sb.version.get().min(VERSION).into();
    let Ok(geom) = geometry(&sb, 0, dev.geometry().size) else { return Ok(None) };
    let from = "no copy is found, its own fields are used as they agree with the first allocation group".into();
    Ok(ag_in_use(dev, &geom, 0)?.then_some(Candidate { sb, at: 0, from }))
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

/// A copy is as old as its AG, so the AGs in use are looked for; one of them may have lost its
/// headers.
fn ags_in_use(dev: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<u32> {
    let known = sb.ag_used.get().clamp(1, geom.ag_count);
    let mut ags = known;
    for ag in known..geom.ag_count {
        if ag_in_use(dev, geom, ag)? {
            ags = ag + 1;
        }
    }
    Ok(ags)
}
