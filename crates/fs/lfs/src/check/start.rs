//! First phases: the superblock, or what serves instead of it; the checkpoints, and the ifile that one of them leads
//! to.

use super::issue::Issue;
use super::{Findings, log, words};
use crate::format::*;
use crate::mount::begin_at;
use crate::recover::Start;
use crate::superblock::{checkpoints, copies, found_at, fsid, geometry, is_same, read};
use crate::volume::Core;
use crate::{options, recover, superblock, validate};
use arbor_base::device::Device;
use arbor_base::vfs::{Error, Options, Result, Time};
use arbor_kit::head;
use std::collections::BTreeSet;
use std::sync::Arc;
use zerocopy::FromBytes;

/// A superblock that can be used.
pub(super) struct Found {
    pub sb: SuperBlock,
    pub geom: Geom,
    /// What is wrong with the superblock at byte 0, and what serves instead.
    pub damage: Option<(String, String)>,
}

/// Finds the superblock, or the reason why there is none.
pub(super) fn superblock(dev: &dyn Device) -> Result<std::result::Result<Found, Issue>> {
    let own = head::usable::<SuperBlock, _>(dev, 0, found_at(dev, 0))?;
    let (rank, why) = match &own {
        Ok((_, geom)) => (witnesses(dev, geom)?, "nothing bears it out".to_string()),
        Err(why) => (0, why.clone()),
    };
    // Both checkpoints agree with it.
    if let (Ok((sb, geom)), true) = (&own, rank >= MOST_WITNESSES) {
        return Ok(Ok(Found { sb: *sb, geom: *geom, damage: None }));
    }
    match (substitute(dev, rank)?, own) {
        (Some((from, sb, geom)), _) => Ok(Ok(Found { sb, geom, damage: Some((why, from)) })),
        (None, Ok((sb, geom))) => Ok(Ok(Found { sb, geom, damage: None })),
        (None, Err(_)) => Ok(Err(Issue::SuperLost { why: format!("{why}, and no copy is found") })),
    }
}

/// Whether there seems to be an LFS volume although byte 0 does not say so.
pub(crate) fn search(dev: &dyn Device) -> Result<bool> {
    Ok(substitute(dev, 0)?.is_some())
}

/// A superblock with more evidence than the one at byte 0: a copy, or else the fields at byte 0 in spite of their
/// checksum.
fn substitute(dev: &dyn Device, rank: u32) -> Result<Option<(String, SuperBlock, Geom)>> {
    let mut best = None;
    for at in copies() {
        let Some((sb, geom)) = head::sound(found_at(dev, at))? else { continue };
        if geom.copy_at() == at {
            let good = witnesses(dev, &geom)?;
            best = best.or(Some((good, format!("the copy at byte {at} is used"), sb, geom)));
        }
    }
    if let Some((sb, geom)) = own_fields(dev)? {
        let good = witnesses(dev, &geom)?;
        let from = "its own fields are used as they agree with the checkpoints".to_string();
        if best.as_ref().is_none_or(|b| b.0 < good) && good > 0 {
            best = Some((good, from, sb, geom));
        }
    }
    // A copy serves even if there is no checkpoint any more.
    let better = |b: &(u32, String, SuperBlock, Geom)| b.0 > rank || rank == 0;
    let own_is_sound = head::sound(found_at(dev, 0))?.is_some();
    Ok(best.filter(|b| better(b) && (b.0 > rank || !own_is_sound)).map(|(_, from, sb, geom)| (from, sb, geom)))
}

/// The superblock at byte 0 in spite of its checksum.
fn own_fields(dev: &dyn Device) -> Result<Option<(SuperBlock, Geom)>> {
    let Some(bytes) = head::bytes_at(dev, 0)? else { return Ok(None) };
    let Ok(mut sb) = SuperBlock::read_from_bytes(&bytes) else { return Ok(None) };
    // Any field may be damaged; these few hold nothing that cannot be found out.
    (sb.magic, sb.compat, sb.ro_compat) = (SUPER_MAGIC, 0.into(), 0.into());
    sb.incompat = superblock::incompat(&sb).into();
    sb.version = sb.version.get().min(VERSION).into();
    Ok(geometry(&sb, 0).ok().map(|geom| (sb, geom)))
}

/// The most evidence for a geometry, from two checkpoints.
const MOST_WITNESSES: u32 = 4;

/// The evidence for a geometry: checkpoints that are of this volume, and whose numbers fit.
fn witnesses(dev: &dyn Device, geom: &Geom) -> Result<u32> {
    let size = dev.geometry().size;
    if geom.copy_at() + SECTOR as u64 > size {
        return Ok(0);
    }
    let mut good = 0;
    for (_, cp) in checkpoints(dev, geom)? {
        good += 1 + u32::from(superblock::check_checkpoint(geom, size, 0, &cp).is_ok());
    }
    Ok(good)
}

/// Whether the volume says that it is clean, its superblock and checkpoints are sound, and it is all there.
pub(super) fn is_clean(dev: &dyn Device, found: &Found) -> Result<bool> {
    let all = checkpoints(dev, &found.geom)?;
    let sound = |cp: &Checkpoint| superblock::check_checkpoint(&found.geom, dev.geometry().size, 0, cp).is_ok();
    let clean = all.first().is_some_and(|(_, cp)| cp.clean.get() != 0 && sound(cp));
    Ok(found.damage.is_none() && all.len() == 2 && clean)
}

/// Notes what is wrong with the superblock or its copy; returns whether one of them has to be written.
pub(super) fn note_super(dev: &dyn Device, found: &Found, f: &mut Findings) -> Result<bool> {
    let at = found.geom.copy_at();
    let same = head::sound(read(dev, at))?.is_some_and(|copy| is_same(&copy, &found.sb));
    if !same {
        f.note(Issue::SuperCopy { at });
    }
    if let Some((why, from)) = found.damage.clone() {
        f.note(Issue::SuperDamaged { why, from });
    }
    Ok(!same || found.damage.is_some())
}

/// The volume in core.
pub(super) struct Begun {
    pub core: Core,
    /// The volume says that it was not unmounted.
    pub says_unclean: bool,
    /// The inode map comes from the summaries.
    pub rebuilt: bool,
}

/// Opens the volume in core, at the newest checkpoint with a sound ifile.
pub(super) fn begin(dev: Arc<dyn Device>, found: &Found, f: &mut Findings) -> Result<Begun> {
    let geom = found.geom;
    let mut all = checkpoints(&*dev, &geom)?;
    // One that was read badly may be read well the second time.
    if all.len() < 2 {
        all = checkpoints(&*dev, &geom)?;
    }
    let missing = (0..2).filter(|place| !all.iter().any(|(p, _)| p == place));
    let mut bad: Vec<(usize, String)> = missing.map(|p| (p, "it is damaged".to_string())).collect();
    let says_unclean = all.first().is_some_and(|(_, cp)| cp.clean.get() == 0);
    let mut damaged: Option<(Opened, usize)> = None;
    let mut end = 0;
    for (place, cp) in &all {
        let open = || open(&dev, geom, (*place, *cp), start(&all, &bad));
        let opened = match open() {
            Err(Error::Io(_)) => open(),
            opened => opened,
        };
        // What cannot be read is not there: the summaries are, that can.
        let opened = match opened {
            Err(Error::Io(e)) => Err(e.to_string()),
            opened => words(opened)?,
        };
        // Its last group but the ifile's, or what follows it, as far as that is known.
        end = end.max(cp.group.get().saturating_sub(1));
        match opened {
            Ok(opened) if opened.lost.is_empty() && (opened.core.log.group >= end || damaged.is_none()) => {
                note_bad(&geom, f, bad);
                if opened.core.log.group < end {
                    f.note(Issue::LogEnd { found: opened.core.log.group, expected: end });
                }
                return Ok(Begun { core: opened.core, says_unclean, rebuilt: false });
            }
            Ok(opened) if opened.lost.is_empty() => {
                bad.push((*place, "the log that follows it does not lead to its end".into()));
            }
            Ok(opened) => {
                let why = opened.lost.first().map_or("", |l| &l.1);
                bad.push((*place, format!("the ifile that it leads to is damaged: {why}")));
                let followed = opened.core.log.group;
                end = if followed > cp.group.get() { end.max(followed) } else { end };
                damaged = damaged.or(Some((opened, *place)));
            }
            Err(why) => bad.push((*place, why)),
        }
    }
    if let Some((Opened { mut core, lost, missing }, place)) = damaged {
        note_bad(&geom, f, bad.into_iter().filter(|b| b.0 != place).collect());
        for (lbn, why) in lost {
            f.note(Issue::IfileBlock { what: log::what(&geom, lbn), lbn, why });
        }
        let rebuilt = !missing.is_empty();
        core.cache.keep_all(true);
        // This reads the whole log.
        if rebuilt {
            log::fill_map(&mut core, missing)?;
        }
        // Which segments are clean is not known; see `check_usage`.
        core.segs.clean.clear();
        return Ok(Begun { core, says_unclean, rebuilt });
    }
    let why = bad.into_iter().map(|(place, why)| format!("checkpoint at byte {}: {why}", byte_of(&geom, place)));
    let why = why.collect::<Vec<_>>().join("; ");
    f.note(Issue::IfileLost { why });
    let now = Time { secs: found.sb.created.get(), nanos: 0 };
    let sound = all.iter().map(|a| a.1).find(|cp| validate::ordinals(cp).is_ok());
    let core = log::rebuild(dev, geom, sound.or(all.first().map(|a| a.1)), now)?;
    debug_assert_eq!(geom.fsid, fsid(&found.sb.uuid, found.sb.salt.get()));
    Ok(Begun { core, says_unclean, rebuilt: true })
}

/// From which of these checkpoints the log is followed next; `bad` ones cannot be used.
fn start(all: &[(usize, Checkpoint)], bad: &[(usize, String)]) -> Start {
    match all.len() {
        0 | 1 => Start::Only,
        _ if bad.is_empty() => Start::Newest,
        _ => Start::Older,
    }
}

fn note_bad(geom: &Geom, f: &mut Findings, bad: Vec<(usize, String)>) {
    for (place, why) in bad {
        f.note(Issue::Checkpoint { at: byte_of(geom, place), why });
    }
}

fn byte_of(geom: &Geom, place: usize) -> u64 {
    geom.checkpoints().get(place).copied().unwrap_or(0)
}

/// A volume opened at a checkpoint, and rolled forward.
struct Opened {
    core: Core,
    /// Blocks of the ifile that cannot be read, which are left out of it, and why.
    lost: Vec<(u64, String)>,
    /// Blocks of the inode map that are not there.
    missing: BTreeSet<u64>,
}

fn open(dev: &Arc<dyn Device>, geom: Geom, cp: (usize, Checkpoint), from: Start) -> Result<Opened> {
    let opts = options::Mount::parse(&Options::default())?;
    let now = Time { secs: cp.1.time.get(), nanos: 0 };
    let mut core = begin_at(dev.clone(), geom, opts, now, cp)?;
    core.cache.keep_all(true);
    core.load(&mut |_| Ok(()))?;
    let mut lost = log::read_ifile(&mut core)?;
    let missing = log::missing_map(&mut core)?;
    if let (true, Some(n)) = (lost.is_empty(), missing.first()) {
        lost.push((geom.lbn(MAP_AT) + n, "it is not there".into()));
    }
    recover::recover(&mut core, from)?;
    core.cache.keep_all(false);
    Ok(Opened { core, lost, missing })
}
