//! Mounting: recovery, the state in core, what was open and unlinked at a crash. How calls enter a mounted volume, and
//! how it is unmounted, is in `kit::locked`; the calls are in `ops.rs`.

use crate::format::*;
use crate::recover::{self, Found};
use crate::volume::Core;
use crate::{options, superblock};
use arbor_base::device::{Device, WaryDevice};
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Clock, Devices, Error, MountOptions, Options, Result, Time};
use arbor_kit::calls::State as _;
use arbor_kit::locked::Locked;
use std::sync::Arc;

/// A mounted volume.
pub(crate) type Volume = Locked<Core>;

/// Mounts, after recovery if the log is not empty.
pub(crate) fn mount(devices: Devices, options: &MountOptions, clock: Arc<dyn Clock>) -> Result<Arc<Volume>> {
    let opts = options::Mount::parse(&options.options)?;
    let dev = WaryDevice::over(devices.main);
    let (sb, geom) = superblock::need(&*dev)?;
    let read_only = arbor_kit::options::read_only(arbor_kit::head::features(&sb), KNOWN, options, &*dev)?;
    let found = recover::read_log(&*dev, &geom, !sb.is_unmounted())?;
    if let Some(gap) = found.gaps.first() {
        return Err(gap.corrupt(&geom).into());
    }
    if read_only && found.records > 0 {
        return Err(Error::refused(
            "the volume was not unmounted and needs recovery: mount it for writing, or run fsck",
        ));
    }
    let mut core = Core::new(dev.clone(), (sb, geom), opts, clock.now());
    core.stay();
    core.take_log(&found)?;
    dev.confine(0..core.geom.byte(core.geom.blocks));
    if found.records > 0 || !read_only && !core.sb.is_unmounted() {
        // Where none counts, one may have been cut off, whose number is not used again (REISER-C4).
        core.replay(&found)?;
    } else if found.heads.is_torn && !read_only {
        core.write_log_head()?;
    }
    if !read_only {
        core.log.is_marked = !core.sb.is_unmounted();
        core.sb = core.sb.marked(false, false);
    }
    core.begin_read_ahead();
    Volume::mounted(core, dev, clock, read_only, Core::load_orphans)
}

/// The state of a volume that is not mounted, for those that only look: of one that was not unmounted as recovery would make
/// it.
pub(crate) fn look(devices: &Devices) -> Result<Core> {
    let dev: Arc<dyn Device> = devices.main.clone();
    let (sb, geom) = superblock::need(&*dev)?;
    let found = recover::read_log(&*dev, &geom, !sb.is_unmounted())?;
    let mut core = Core::new(dev, (sb, geom), options::Mount::parse(&Options::default())?, Time::default());
    core.stay();
    core.take_log(&found)?;
    core.log.copies = found.copies;
    Ok(core)
}

impl Core {
    /// Writes what the log holds in place, and empties it.
    pub fn replay(&mut self, found: &Found) -> Result<()> {
        self.log.seq = recover::replay(&*self.dev, &self.geom, found)?;
        (self.log.at, self.log.next_head) = (2, 1 - found.heads.next.min(1));
        Ok(())
    }

    /// The superblock and the map of object numbers as the log has them, or as they are in place.
    pub fn take_log(&mut self, found: &Found) -> Result<()> {
        self.take_super(found)?;
        self.take_ids(found)
    }

    /// The superblock.
    pub fn take_super(&mut self, found: &Found) -> Result<()> {
        (self.log.seq, self.log.at, self.log.next_head) = (found.seq, found.at, found.heads.next);
        let Some(first) = found.copies.get(&0) else { return Ok(()) };
        let bytes = first.get(..SECTOR).unwrap_or(&[]);
        match superblock::decode(bytes, 0, self.dev.geometry().size)? {
            // It may have grown.
            Some((sb, geom)) if geom == (Geom { blocks: geom.blocks.max(self.geom.blocks), ..self.geom }) => {
                (self.sb, self.geom) = (sb, geom);
            }
            _ => {
                let at = self.geom.byte(2);
                let expected = "the superblock of the volume";
                return Err(Corrupt::new("log record", "superblock", at, "another one", expected).into());
            }
        }
        Ok(())
    }

    /// The map of object numbers.
    pub fn take_ids(&mut self, found: &Found) -> Result<()> {
        self.ids = match found.copies.get(&0) {
            Some(first) => superblock::ids(&self.geom, first)?,
            None => superblock::read_ids(&*self.dev, &self.geom)?,
        };
        Ok(())
    }
}
