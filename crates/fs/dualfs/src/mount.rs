//! Mounting: reads the newest checkpoint, and rolls the log forward from it.

use crate::format::*;
use crate::volume::{Core, Volume};
use crate::{areas, options, recover, superblock};
use arbor_base::device::{Device, WaryDevice};
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Clock, Devices, Error, MountOptions, Options, Result, Time, Utilisation};
use arbor_kit::calls::State as _;
use arbor_kit::head;
use std::sync::Arc;

/// Mounts, after recovery if the volume was not unmounted.
pub(crate) fn mount(devices: Devices, options: &MountOptions, clock: Arc<dyn Clock>) -> Result<Arc<Volume>> {
    let opts = options::Mount::parse(&options.options)?;
    let (dev, found) = areas::open(devices)?;
    let dev = WaryDevice::over(dev);
    let read_only = arbor_kit::options::read_only(head::features(&found.0), KNOWN, options, &*dev)?;
    let mut core = open(dev.clone(), found, opts, clock.now())?;
    // Where damage was met the last checkpoint does not say clean, although nothing follows it.
    if core.checkpoint.clean.get() == 0 && core.log.set != core.checkpoint.set.get() && read_only {
        return Err(Error::refused(
            "the volume was not unmounted and needs recovery: mount it for writing, or run fsck",
        ));
    }
    core.stay();
    if !read_only {
        core.cache.keep_all(true);
        if core.checkpoint.clean.get() == 0 && core.copy_differs()? {
            // A change of the label, or of the border, was cut off.
            core.write_copy()?;
        }
        core.begin()?;
        core.cache.keep_all(false);
    }
    Volume::mounted(core, dev, clock, read_only, Core::load_orphans)
}

/// The state of the newest checkpoint, rolled forward; nothing is written.
pub(crate) fn open(dev: Arc<dyn Device>, found: (SuperBlock, Geom), opts: options::Mount, now: Time) -> Result<Core> {
    let checkpoints = superblock::checkpoints(&*dev, &found.1)?;
    let Some(first) = checkpoints.first().copied() else {
        let at = found.1.checkpoints()[0];
        return Err(Corrupt::new("checkpoint", "crc", at, "none that is sound", "one of two").into());
    };
    let alone = checkpoints.len() < 2;
    let mut core = begin_at(dev, found, opts, now, first, alone)?;
    core.stay();
    core.cache.keep_all(true);
    core.load(&mut |c| Err(c.into()))?;
    let from = if alone { recover::Start::Only } else { recover::Start::Newest };
    recover::recover(&mut core, from)?;
    core.cache.keep_all(false);
    Ok(core)
}

/// A core at a checkpoint, which may be the only one (`alone`), before the ifile is read.
pub(crate) fn begin_at(
    dev: Arc<dyn Device>,
    (sb, geom): (SuperBlock, Geom),
    opts: options::Mount,
    now: Time,
    (region, cp): (usize, Checkpoint),
    alone: bool,
) -> Result<Core> {
    let geom = superblock::with_checkpoint(&geom, dev.geometry().size, region, &cp)?;
    areas::is_of_one_time(&*dev, &geom, areas::Owner::of(&cp), alone)?;
    dev.confine(0..geom.end());
    let mut core = Core::new(dev, (sb, geom), opts, now);
    (core.checkpoint, core.region) = (cp, 1 - region);
    Ok(core)
}

/// Live bytes of each segment of the metadata log of an unmounted volume; nothing is written.
pub(crate) fn utilisation(devices: &Devices) -> Result<Utilisation> {
    let core = look(devices)?;
    let live = core.segs.dirty().map(|(seg, u)| (seg.into(), u.live.into())).collect();
    Ok(Utilisation { segment_size: 1 << core.geom.seg_shift, count: core.geom.segs.into(), live })
}

/// The state of a volume that is not mounted, for those that only look.
pub(crate) fn look(devices: &Devices) -> Result<Core> {
    let (dev, found) = areas::open(areas::same(devices))?;
    let mut core = open(dev, found, options::Mount::parse(&Options::default())?, Time::default())?;
    core.calls.health.set_read_only(true);
    Ok(core)
}
