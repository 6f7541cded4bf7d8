//! The superblock, or its copy; the checkpoint from which the log is followed.

use super::issue::Issue;
use super::{Anew, Checker, Core, Findings, log};
use crate::format::*;
use crate::recover::{self, Start};
use crate::{areas, mount, options, superblock};
use arbor_base::device::Device;
use arbor_base::vfs::{CheckReport, Devices, Error, Options, Progress, Repair, Result, Time};
use arbor_kit::calls::State as _;
use arbor_kit::head;
use std::sync::Arc;

/// Cache of the checker.
pub(super) const CACHE: &str = "cache=64M,relocate=off";

/// The superblock to be used, and why that is the copy, if it is.
type Found = ((SuperBlock, Geom), Option<String>);

/// Opens a volume in core; the report if there is none.
pub(super) fn open<'a>(
    devices: &Devices,
    repair: Repair,
    progress: Progress<'a>,
) -> Result<std::result::Result<Checker<'a>, CheckReport>> {
    let mut f = Findings::new(Repair::No);
    let (found, damage) = match superblock(&*devices.main)? {
        Ok(found) => found,
        Err(lost) => return Ok(Err(f.end(lost))),
    };
    let dev = areas::joined_for(areas::same(devices), &found)?;
    head::refuse_unknown(&found.0, KNOWN, repair != Repair::No)?;
    let state = match state(&dev, found, &mut f)? {
        Ok(state) => state,
        Err(lost) => return Ok(Err(f.end(lost))),
    };
    let was_clean = superblock::checkpoints(&*dev, &found.1)?.first().is_some_and(|(_, cp)| cp.clean.get() != 0);
    (f.volume.was_clean, f.volume.unclean) = (was_clean, !was_clean);
    let (geom, owner) = match &state {
        Begun::Led(core) => (core.geom, areas::Owner::of(&core.checkpoint)),
        Begun::Searched(rebuilt) => (rebuilt.core.geom, areas::Owner { epoch: rebuilt.end.epoch, stamp: 0 }),
    };
    let bad = areas::bad_heads(&*dev, &geom, owner)?;
    bad.into_iter().for_each(|at| f.note(Issue::DataHead { at: at.saturating_sub(geom.data_at) }));
    let mut checker = match state {
        Begun::Led(core) => Checker::new(*core, f, progress),
        Begun::Searched(rebuilt) => {
            let log::Rebuilt { core, order, end } = *rebuilt;
            let anew = Some(Anew { order, recs: Vec::new(), end });
            Checker { anew, ..Checker::new(core, f, progress) }
        }
    };
    if let Some(why) = damage {
        checker.f.note(Issue::SuperDamaged { why });
        checker.super_damaged = true;
    }
    Ok(Ok(checker))
}

/// The volume in core.
enum Begun {
    /// A checkpoint leads to it.
    Led(Box<Core>),
    /// The summaries of the log do.
    Searched(Box<log::Rebuilt>),
}

/// The state to which the newest checkpoint that can be used leads; if there is none, the summaries alone.
fn state(
    dev: &Arc<dyn Device>,
    found: (SuperBlock, Geom),
    f: &mut Findings,
) -> Result<std::result::Result<Begun, Issue>> {
    let all = superblock::checkpoints(&**dev, &found.1)?;
    let mut why = "there is none of this volume".to_string();
    for (n, checkpoint) in all.iter().enumerate() {
        let from = match (n, all.len()) {
            (1.., _) => Start::Older,
            (_, 2..) => Start::Newest,
            _ => Start::Only,
        };
        let once = at(dev, found, *checkpoint, from);
        let read = if matches!(once, Err(Error::Io(_))) { at(dev, found, *checkpoint, from) } else { once };
        match read {
            Ok(core) => {
                if n > 0 {
                    f.note(Issue::CheckpointUseless { why });
                } else if all.len() < 2 {
                    let at = found.1.checkpoints().get(1 - checkpoint.0).copied().unwrap_or(0);
                    f.note(Issue::CheckpointDamaged { at });
                }
                return Ok(Ok(Begun::Led(Box::new(core))));
            }
            // What cannot be read is not there: the summaries are, that can.
            Err(e @ (Error::Corrupt(_) | Error::Io(_))) => why = if n > 0 { why } else { e.to_string() },
            Err(e) => return Err(e),
        }
    }
    let Some(rebuilt) = log::rebuild(dev, found, &all)? else { return Ok(Err(Issue::CheckpointLost { why })) };
    f.note(Issue::IfileLost { why });
    Ok(Ok(Begun::Searched(Box::new(rebuilt))))
}

/// The state of a checkpoint, rolled forward; what of the ifile cannot be read is the business of a pass.
fn at(dev: &Arc<dyn Device>, found: (SuperBlock, Geom), cp: (usize, Checkpoint), from: Start) -> Result<Core> {
    let opts = options::Mount::parse(&Options::parse(CACHE))?;
    let mut core = mount::begin_at(dev.clone(), found, opts, Time::default(), cp, from != Start::Newest)?;
    core.stay();
    core.cache.keep_all(true);
    core.load(&mut |_| Ok(()))?;
    recover::recover(&mut core, from)?;
    core.cache.keep_all(false);
    Ok(core)
}

/// A superblock that can be used, or why there is none.
fn superblock(dev: &dyn Device) -> Result<std::result::Result<Found, Issue>> {
    let why = match usable(dev, 0)? {
        Ok(found) => return Ok(Ok((found, None))),
        Err(why) => why,
    };
    for at in superblock::copies() {
        if let Ok(found) = usable(dev, at)?
            && found.1.copy_at() == at
        {
            return Ok(Ok((found, Some(why))));
        }
    }
    Ok(Err(Issue::SuperLost { why: format!("{why}, and there is no copy") }))
}

/// The superblock at byte `at`, or why it cannot be used.
fn usable(dev: &dyn Device, at: u64) -> Result<std::result::Result<(SuperBlock, Geom), String>> {
    head::usable::<SuperBlock, _>(dev, at, superblock::read(dev, at))
}

/// Whether a volume of ours seems to lie here although byte 0 does not say so.
pub(crate) fn search(dev: &dyn Device) -> Result<bool> {
    Ok(superblock(dev)?.is_ok())
}

impl Checker<'_> {
    /// The copy of the superblock.
    pub(super) fn check_copy(&mut self) -> Result<()> {
        let found = self.core.copy()?;
        // A change of the label, or of the border, may have been cut off.
        let is_right = found.is_some_and(|copy| {
            let is_like = if self.f.volume.unclean { superblock::is_same } else { superblock::is_equal };
            is_like(&copy, &self.core.sb)
        });
        if !self.super_damaged && !is_right {
            self.f.note(Issue::SuperCopy { at: self.core.geom.copy_at() });
            self.super_damaged = true;
        }
        Ok(())
    }
}
