//! The superblock, or its copy; the newest master block.

use super::issue::Issue;
use super::{Checker, Core, Findings};
use crate::format::*;
use crate::{options, recover, superblock};
use arbor_base::device::Device;
use arbor_base::vfs::{CheckReport, Devices, Error, Options, Progress, Repair, Result, Time};
use arbor_kit::head;

/// Cache of the checker.
const CACHE: &str = "cache=64M";

/// The superblock to be used, and why that is the copy, if it is.
type Start = ((SuperBlock, Geom), Option<String>);

/// Opens a volume, recovered in place, or in memory if nothing is to be written; the report if there is none.
pub(super) fn open<'a>(
    devices: &Devices,
    repair: Repair,
    progress: Progress<'a>,
) -> Result<std::result::Result<Checker<'a>, CheckReport>> {
    let (dev, mut f) = (devices.main.clone(), Findings::new(Repair::No));
    let (found, damage) = match superblock(&*dev)? {
        Ok(start) => start,
        Err(lost) => return Ok(Err(f.end(lost))),
    };
    head::refuse_unknown(&found.0, KNOWN, repair != Repair::No)?;
    f.volume.unclean = !found.0.is_clean() && damage.is_none();
    f.volume.was_clean = found.0.is_clean();
    let opts = options::Mount::parse(&Options::parse(CACHE))?;
    let mut core = Core::new(dev, found, opts, Time::default());
    match core.take_newest() {
        Err(Error::Corrupt(c)) => match core.take_older() {
            Err(Error::Corrupt(_)) => return Ok(Err(f.end(Issue::MasterLost { why: c.to_string() }))),
            taken => f.note(Issue::MasterDamaged { why: c.to_string(), taken: taken? }),
        },
        taken => taken?,
    }
    if let Some(why) = is_not_newest(&core)? {
        core.master = Master::default();
        f.note(Issue::MasterDamaged { why, taken: core.take_older()? });
    }
    let (intact, seq) = (core.master.head.intact.get(), core.master.head.seq.get());
    if !core.load_history()? {
        f.note(Issue::History { intact, seq });
        core.touch_master();
    }
    // Preening leaves a damaged superblock as it is, and its copy never says that the volume was unmounted.
    let may_write = repair == Repair::Yes || repair == Repair::Preen && damage.is_none();
    if repair == Repair::Yes && !f.is_empty() {
        core.clear_impossible()?;
    }
    // What repairs write may go where the redo list of the newest commit lies, so that one ends first.
    let has_redo = repair == Repair::Yes && core.master.head.redo.get() != 0;
    if may_write && (!core.sb.is_clean() || has_redo) {
        core.begin()?;
    }
    let mut checker = Checker::new(core, f, progress);
    if let Some(why) = damage {
        checker.f.note(Issue::SuperDamaged { why });
        checker.super_damaged = true;
    }
    Ok(Ok(checker))
}

/// Why the master block that the superblock of an unmounted volume names is not the newest one, if it is not.
fn is_not_newest(core: &Core) -> Result<Option<String>> {
    if !core.sb.is_clean() {
        return Ok(None);
    }
    let (found, newest) = (core.master.head.seq, recover::scan(&*core.dev, &core.geom, u64::MAX)?.0.head.seq);
    Ok((newest > found).then(|| format!("the superblock leads to commit {found}, there is commit {newest}")))
}

/// A superblock that can be used, or why there is none.
fn superblock(dev: &dyn Device) -> Result<std::result::Result<Start, Issue>> {
    let at = (dev.geometry().size >> BLOCK_SHIFT).saturating_sub(2) << BLOCK_SHIFT;
    let copy = usable(dev, at)?.ok().filter(|(_, geom)| byte(geom.copy()) == at);
    let why = match usable(dev, 0)? {
        Ok(found) => match copy {
            Some((_, geom)) if geom != found.1 && !is_borne_out(dev, &found.1)? && is_borne_out(dev, &geom)? => {
                "what lies on the volume is not of it".to_string()
            }
            _ => return Ok(Ok((found, None))),
        },
        Err(why) => why,
    };
    match copy {
        Some(found) => Ok(Ok((found, Some(why)))),
        None => Ok(Err(Issue::SuperLost { why: format!("{why}, and there is no copy") })),
    }
}

/// Whether there is a master block of this volume.
fn is_borne_out(dev: &dyn Device, geom: &Geom) -> Result<bool> {
    match recover::scan(dev, geom, u64::MAX) {
        Err(Error::Corrupt(_)) => Ok(false),
        found => found.map(|_| true),
    }
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
        let (at, wanted) = (byte(self.core.geom.copy()), self.core.sb.copy());
        let found = head::sound(head::read::<SuperBlock>(&*self.core.dev, at))?;
        // A change of the label may have been cut off: the next mount writes the copy anew.
        let label = found.as_ref().filter(|_| self.f.volume.unclean).map_or(wanted.label, |found| found.label);
        let is_right = found.is_some_and(|found| head::encode(&found) == head::encode(&SuperBlock { label, ..wanted }));
        if !self.super_damaged && !is_right {
            self.f.note(Issue::SuperCopy { at });
            self.super_damaged = true;
        }
        Ok(())
    }
}
