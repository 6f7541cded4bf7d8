//! Growing a volume: the device first, durably; then a checkpoint counts the new segments.
//!
//! The superblock does not record their number, so a crash leaves the old size or the new one.

use crate::format::*;
use crate::mount;
use crate::superblock::read_super;
use crate::superblock::{self, check_checkpoint, checkpoints, segs_in};
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Clock, Devices, Error, MountOptions, Result};
use std::sync::Arc;

pub(crate) fn resize(devices: Devices, size: u64, clock: Arc<dyn Clock>) -> Result<()> {
    let dev = devices.main.clone();
    let geom = superblock::geometry(&read_super(&*dev)?, 0)?;
    let old = dev.geometry().size;
    let none = || Corrupt::new("checkpoint", "crc", geom.checkpoints()[0], "none that is sound", "one of two");
    let (place, cp) = checkpoints(&*dev, &geom)?.first().copied().ok_or_else(none)?;
    check_checkpoint(&geom, old, geom.checkpoints().get(place).copied().unwrap_or(0), &cp)?;
    let have = geom.byte(geom.seg_start(Seg(cp.segs.get())));
    if size < have {
        return Err(Error::refused(format!("a volume of {have} bytes cannot shrink to {size}")));
    }
    superblock::check_size(&geom, size)?;
    if size > old {
        dev.set_size(size / SECTOR as u64 * SECTOR as u64)?;
        dev.flush()?;
    }
    let volume = mount::mount(devices, &MountOptions::default(), clock)?;
    let grown = volume.run_once(|core| {
        let (from, to) = (core.segs.count(), segs_in(&geom, size));
        if to <= from {
            return Ok(());
        }
        // Changes in core get addresses in the old segments.
        core.checkpoint(false)?;
        dev.confine(0..geom.byte(geom.seg_start(Seg(to))));
        core.segs.grow(to);
        core.checkpoint(false)
    });
    // The other checkpoint region counts them too.
    volume.close()?;
    grown
}
