//! Mounting: reads the newest checkpoint, and rolls the log forward from it.

use crate::format::*;
use crate::volume::{Core, Volume};
use crate::{options, recover, superblock};
use arbor_base::device::{Device, WaryDevice};
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Clock, Devices, Error, MountOptions, Options, Result, Time, Utilisation};
use std::sync::Arc;

/// Mounts, after recovery if the volume was not unmounted.
pub(crate) fn mount(devices: Devices, options: &MountOptions, clock: Arc<dyn Clock>) -> Result<Arc<Volume>> {
    let opts = options::Mount::parse(&options.options)?;
    let dev = WaryDevice::over(devices.main);
    let sb = superblock::read_super(&*dev)?;
    let read_only = arbor_kit::options::read_only(superblock::features(&sb), KNOWN, options, &*dev)?;
    let geom = superblock::geometry(&sb, 0)?;
    let mut core = open(dev, geom, opts, clock.now())?;
    core.calls.health.set_read_only(read_only);
    // Where damage was met the last checkpoint does not say clean, although nothing follows it.
    if core.checkpoint.clean.get() == 0 && core.log.group != core.checkpoint.group.get() && read_only {
        return Err(Error::refused(
            "the volume was not unmounted and needs recovery: mount it for writing, or run fsck",
        ));
    }
    if !read_only {
        core.cache.keep_all(true);
        core.begin()?;
        core.load_orphans()?;
        core.cache.keep_all(false);
    }
    let dev = core.dev.clone();
    let volume = Volume::new(core, dev, clock);
    if !read_only {
        volume.drain_inactive()?;
    }
    Ok(Arc::new(volume))
}

/// Live bytes of each segment of an unmounted volume; nothing is written.
pub(crate) fn utilisation(devices: &Devices) -> Result<Utilisation> {
    let geom = superblock::geometry(&superblock::read_super(&*devices.main)?, 0)?;
    let opts = options::Mount::parse(&Options::default())?;
    let core = open(devices.main.clone(), geom, opts, Time::default())?;
    let live = core.segs.dirty().map(|(seg, u)| (seg.into(), u.live.into())).collect();
    Ok(Utilisation { segment_size: 1 << geom.seg_shift, count: core.segs.count().into(), live })
}

/// The state of the newest checkpoint, rolled forward; nothing is written.
pub(crate) fn open(dev: Arc<dyn Device>, geom: Geom, opts: options::Mount, now: Time) -> Result<Core> {
    let found = superblock::checkpoints(&*dev, &geom)?;
    let Some(first) = found.first().copied() else {
        let at = geom.checkpoints()[0];
        return Err(Corrupt::new("checkpoint", "crc", at, "none that is sound", "one of two").into());
    };
    let mut core = begin_at(dev, geom, opts, now, first)?;
    core.cache.keep_all(true);
    core.load(&mut |c| Err(c.into()))?;
    let from = if found.len() < 2 { recover::Start::Only } else { recover::Start::Newest };
    recover::recover(&mut core, from)?;
    core.cache.keep_all(false);
    Ok(core)
}

/// A core at a checkpoint, before the ifile is read.
pub(crate) fn begin_at(
    dev: Arc<dyn Device>,
    geom: Geom,
    opts: options::Mount,
    now: Time,
    (place, cp): (usize, Checkpoint),
) -> Result<Core> {
    let at = geom.checkpoints().get(place).copied().unwrap_or(0);
    superblock::check_checkpoint(&geom, dev.geometry().size, at, &cp)?;
    dev.confine(0..geom.byte(geom.seg_start(Seg(cp.segs.get()))));
    let mut core = Core::new(geom, dev, opts, now, cp.segs.get());
    (core.checkpoint, core.place) = (cp, 1 - place);
    Ok(core)
}
