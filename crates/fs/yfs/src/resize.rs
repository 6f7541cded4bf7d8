//! Growing a volume: the device first, then the last AG, then new AGs.
//!
//! The device has its new size durably; then the last AG grows to its full length and new AGs follow, each step a
//! transaction. A crash leaves one of the sizes on the way.

use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::space::Ag;
use crate::volume::Volume;
use crate::{mount, superblock};
use arbor_base::vfs::{Clock, Devices, Errno, Error, MountOptions, Result};
use std::sync::Arc;

/// Fragments that one transaction adds to an AG in use: their bits are logged. So few that volumes of
/// a few megabytes grow in steps too.
const STEP: u64 = 1 << 14;

pub(crate) fn resize(devices: Devices, size: u64, clock: Arc<dyn Clock>) -> Result<()> {
    let dev = &devices.main;
    let sb = superblock::read(&**dev, 0)?.ok_or_else(|| Error::refused("no yFS superblock"))?;
    let old = dev.geometry().size;
    let geom = superblock::geometry(&sb, 0, old)?;
    let have = geom.frags * geom.frag_size();
    let refuse = |have: u64| Error::refused(format!("a volume of {have} bytes cannot shrink to {size}"));
    if size < have {
        return Err(refuse(have));
    }
    let late = planted(Flaw::GrowthBeforeDevice);
    if size > old && !late {
        dev.set_size(size / SECTOR * SECTOR)?;
        dev.flush()?;
    }
    let volume = mount::mount(devices, &MountOptions::default(), clock)?;
    // The log may have grown the volume.
    let have = volume.core.lock().geom.frags * geom.frag_size();
    if size < have {
        volume.close()?;
        return Err(refuse(have));
    }
    let grown = volume.grow(size >> geom.frag_shift);
    if size > old && late {
        volume.sync_all()?;
        volume.dev.set_size(size / SECTOR * SECTOR)?;
    }
    volume.close()?;
    grown
}

impl Volume {
    fn grow(&self, frags: u64) -> Result<()> {
        while self.change(|core, now| {
            let geom = core.geom;
            let last = geom.ag_count - 1;
            let len = u64::from(geom.ag_len(last));
            let least = u64::from(geom.first_chunk() + geom.chunk_frags());
            let room = frags.saturating_sub(geom.frags);
            let next = if len < geom.ag_frags {
                let step = if core.space[last].used { STEP } else { u64::MAX };
                geom.frags + room.min(geom.ag_frags - len).min(step)
            } else {
                let tail = frags % geom.ag_frags;
                frags - if tail < least { tail } else { 0 }
            };
            if next <= geom.frags {
                return Ok(false);
            }
            let count = u32::try_from(next.div_ceil(geom.ag_frags)).map_err(|_| Errno::EFBIG)?;
            core.begin()?;
            (core.geom.frags, core.geom.ag_count) = (next, count);
            (core.sb.frags, core.sb.ag_count) = (next.into(), count.into());
            core.log_super()?;
            if planted(Flaw::GrowthBeforeLog) {
                superblock::write(&*core.dev, 0, &core.sb)?;
            }
            // A copy older than an AG does not know that AG.
            for at in core.geom.early_copies() {
                core.log_copy(Daddr(at / SECTOR))?;
            }
            if last > 1 && core.space[last].used {
                core.log_copy(geom.daddr(geom.ag_start(last)))?;
            }
            if core.space[last].used {
                let added = core.geom.ag_len(last) - len as u32;
                core.space.forget_map(last);
                if added > 0 {
                    let start = Frag(geom.ag_start(last).0 + len);
                    core.free_now(Extent { start, len: added })?;
                }
            } else {
                core.space.put_unused(last, Ag::unused(&core.geom, &core.sb, last));
            }
            for ag in geom.ag_count..count {
                core.space.put_unused(ag, Ag::unused(&core.geom, &core.sb, ag));
            }
            core.commit(now);
            Ok(true)
        })? {}
        Ok(())
    }
}
