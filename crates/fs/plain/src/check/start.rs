//! The superblock, or what serves instead of it.

use super::issue::Issue;
use super::{Checker, Core, Findings};
use crate::format::*;
use crate::{options, recover, superblock, validate};
use arbor_base::device::{Device, Kind};
use arbor_base::vfs::{CheckReport, Devices, Options, Progress, Repair, Result, Time};
use arbor_kit::head;

/// Cache of the checker.
const CACHE: &str = "cache=64M";

/// The superblock to be used, and the issue if that is not the one at byte 0.
struct Start {
    found: (SuperBlock, Geom),
    damage: Option<Issue>,
}

/// Opens a volume, recovered in place (`write`) or in memory; the report if there is none.
pub(super) fn open<'a>(
    devices: &Devices,
    write: bool,
    progress: Progress<'a>,
) -> Result<std::result::Result<Checker<'a>, CheckReport>> {
    let (dev, mut f) = (devices.main.clone(), Findings::new(Repair::No));
    let start = match superblock(&*dev)? {
        Ok(start) => start,
        Err(lost) => return Ok(Err(f.end(lost))),
    };
    head::refuse_unknown(&start.found.0, KNOWN, write)?;
    f.volume.unclean = start.found.0.clean.get() == 0 && start.damage.is_none();
    f.volume.was_clean = start.found.0.clean.get() != 0;
    let opts = options::Mount::parse(&Options::parse(CACHE))?;
    let mut core = Core::new(dev, start.found, opts, Time::default());
    if let Some(issue) = start.damage {
        f.note(issue);
        core.touch_super();
    }
    if write {
        core.begin_log()?
    } else {
        core.lay()?
    }
    Ok(Ok(Checker::new(core, f, progress)))
}

/// A superblock that can be used, or why there is none.
fn superblock(dev: &dyn Device) -> Result<std::result::Result<Start, Issue>> {
    let at = (dev.geometry().size >> BLOCK_SHIFT).saturating_sub(1) << BLOCK_SHIFT;
    let copy = usable(dev, at)?.ok().filter(|(_, geom)| byte(geom.copy()) == at);
    let why = match usable(dev, 0)? {
        Ok(found) => match copy {
            Some((_, geom)) if geom != found.1 && !is_borne_out(dev, &found.1)? && is_borne_out(dev, &geom)? => {
                "what lies on the volume is not of it".to_string()
            }
            _ => return Ok(Ok(Start { found, damage: None })),
        },
        Err(why) => why,
    };
    let Some((sb, geom)) = copy else {
        return Ok(Err(Issue::SuperLost { why: format!("{why}, and there is no copy") }));
    };
    let logged = recover::read_log(dev, &geom)?.1.remove(&0).unwrap_or_default();
    let logged = superblock::decode(logged.get(..SECTOR).unwrap_or(&[]), 0, dev.geometry().size).ok().flatten();
    let (found, from) = match logged {
        Some(found) => (found, "the one in the log is used"),
        None => ((sb, geom), "its copy is used"),
    };
    Ok(Ok(Start { found, damage: Some(Issue::SuperDamaged { why, from }) }))
}

/// The superblock at byte `at`, or why it cannot be used.
fn usable(dev: &dyn Device, at: u64) -> Result<std::result::Result<(SuperBlock, Geom), String>> {
    head::usable::<SuperBlock, _>(dev, at, superblock::read(dev, at))
}

/// Whether the first block of a bitmap is of this volume.
fn is_borne_out(dev: &dyn Device, geom: &Geom) -> Result<bool> {
    let mut bytes = vec![0; BLOCK];
    dev.read_at(Kind::Bitmap, byte(geom.inode_bitmap()), &mut bytes)?;
    Ok(validate::block(geom, geom.inode_bitmap(), Kind::Bitmap, &bytes).is_ok())
}

/// Whether a volume of ours seems to lie here although byte 0 does not say so.
pub(crate) fn search(dev: &dyn Device) -> Result<bool> {
    Ok(superblock(dev)?.is_ok())
}

impl Checker<'_> {
    /// The copy of the superblock.
    pub(super) fn check_copy(&mut self) -> Result<()> {
        let (at, wanted) = (self.core.geom.copy(), self.core.sb.copy());
        let bytes = self.core.block(at, Kind::Super)?;
        if bytes.get(..SECTOR) != Some(&head::encode(&wanted)[..]) {
            self.f.note(Issue::SuperCopy { at: byte(at) });
            self.core.put_super(at, wanted)?;
        }
        Ok(())
    }
}
