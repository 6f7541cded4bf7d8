//! Growing a volume: the device first, durably; then a checkpoint counts the new data blocks. The metadata area stays as it
//! is.

use crate::{areas, mount, superblock};
use arbor_base::vfs::{Clock, Devices, Error, MountOptions, Result};
use std::sync::Arc;

pub(crate) fn resize(devices: Devices, size: u64, clock: Arc<dyn Clock>) -> Result<()> {
    let (dev, _) = areas::open(areas::same(&devices))?;
    let core = mount::look(&devices)?;
    let (have, geom) = (core.geom.end(), core.geom);
    drop(core);
    let blocks = superblock::data_blocks(&geom, size);
    let most = geom.data_at + (u64::from(superblock::data_blocks(&geom, u64::MAX)) << geom.block_shift);
    if size >= most + geom.block() as u64 {
        let group = u64::from(geom.group_blocks) << geom.block_shift;
        return Err(Error::refused(format!(
            "{size} bytes are too many: with groups of {group} bytes a volume has at most {most} (see group=)"
        )));
    }
    arbor_kit::resize::make_room(&*dev, have, size, geom.block() as u64)?;
    let volume = mount::mount(devices, &MountOptions::default(), clock)?;
    let grown = volume.run_once(|core| {
        if blocks <= core.geom.data_blocks {
            return Ok(());
        }
        // Changes in core get places in the old area.
        core.checkpoint(false)?;
        core.geom.data_blocks = blocks;
        dev.confine(0..core.geom.end());
        core.groups.grow(&core.geom);
        core.checkpoint(false)
    });
    // The other checkpoint region counts them too.
    volume.close()?;
    grown
}
