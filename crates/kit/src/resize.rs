//! Growing a volume that is not mounted: what comes before the engine's own part. Called by `resize.rs` of ReiserFS,
//! Evergreen and DualFS.

use arbor_base::device::{Device, SECTOR};
use arbor_base::vfs::{Error, Result};

/// How many blocks of `block` bytes a volume of `size` bytes has that has `have` bytes so far. A device that is smaller gets
/// that size, durably.
pub fn make_room(dev: &dyn Device, have: u64, size: u64, block: u64) -> Result<u32> {
    if size < have {
        return Err(Error::refused(format!("a volume of {have} bytes cannot shrink to {size}")));
    }
    let blocks = u32::try_from(size / block).map_err(|_| {
        let most = block.saturating_mul(1 << 32) >> 40;
        Error::refused(format!(
            "{size} bytes are too many: with blocks of {block} bytes a volume has less than {most} TiB"
        ))
    })?;
    if size > dev.geometry().size {
        dev.set_size(size / SECTOR as u64 * SECTOR as u64)?;
        dev.flush()?;
    }
    Ok(blocks)
}
