//! Mounting: recovery, the state in core, what was open and unlinked at a crash. How calls enter a mounted volume, and
//! how it is unmounted, is in `kit::locked`; the calls are in `ops.rs`.

use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::volume::Core;
use crate::{options, recover, superblock};
use arbor_base::device::{Device, WaryDevice};
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Clock, Devices, Error, MountOptions, Options, Result, Time};
use arbor_kit::calls::State as _;
use arbor_kit::locked::Locked;
use std::sync::Arc;

/// A mounted volume.
pub(crate) type Volume = Locked<Core>;

/// Mounts, after recovery if the volume was not unmounted.
pub(crate) fn mount(devices: Devices, options: &MountOptions, clock: Arc<dyn Clock>) -> Result<Arc<Volume>> {
    let opts = options::Mount::parse(&options.options)?;
    let dev = WaryDevice::over(devices.main);
    let (sb, geom) = superblock::need(&*dev)?;
    let read_only = arbor_kit::options::read_only(arbor_kit::head::features(&sb), KNOWN, options, &*dev)?;
    if read_only && sb.clean.get() == 0 {
        return Err(Error::refused(
            "the volume was not unmounted and needs recovery: mount it for writing, or run fsck",
        ));
    }
    dev.confine(0..byte(geom.blocks));
    let mut core = Core::new(dev.clone(), (sb, geom), opts, clock.now());
    if !read_only {
        core.begin_log()?;
        core.sb.clean = 0.into();
        core.touch_super();
    }
    Volume::mounted(core, dev, clock, read_only, Core::load_orphans)
}

/// The state of a volume that is not mounted, for those that only look: of one that was not unmounted as recovery would make
/// it.
pub(crate) fn look(devices: &Devices) -> Result<Core> {
    let dev: Arc<dyn Device> = devices.main.clone();
    let found = superblock::need(&*dev)?;
    let mut core = Core::new(dev, found, options::Mount::parse(&Options::default())?, Time::default());
    core.lay()?;
    Ok(core)
}

impl Core {
    /// Recovers if the volume was not unmounted; the next record goes where the newest one does not lie then. What the log
    /// of a volume holds that was unmounted does not count, nor does it later: no record of it comes right before the next.
    pub fn begin_log(&mut self) -> Result<()> {
        self.stay();
        if self.sb.clean.get() != 0 {
            let step = if planted(Flaw::NumbersGoOn) { 1 } else { 2 };
            self.log.seq = recover::read_log(&*self.dev, &self.geom)?.0 + step;
            return Ok(());
        }
        let (seq, copies) = recover::read_log(&*self.dev, &self.geom)?;
        self.take_super(copies.get(&0))?;
        self.log.seq = seq + 1;
        recover::replay(&*self.dev, copies)
    }

    /// Lays the copies that recovery would write over reads; nothing is written.
    pub fn lay(&mut self) -> Result<()> {
        self.stay();
        if self.sb.clean.get() != 0 {
            return Ok(());
        }
        self.laid = recover::read_log(&*self.dev, &self.geom)?.1;
        let copy = self.laid.get(&0).cloned();
        self.take_super(copy.as_ref())
    }

    /// The superblock as the log has it.
    fn take_super(&mut self, block: Option<&Vec<u8>>) -> Result<()> {
        let bytes = block.and_then(|bytes| bytes.get(..SECTOR)).unwrap_or(&[]);
        match superblock::decode(bytes, 0, self.dev.geometry().size)? {
            Some((sb, geom)) if geom == self.geom => self.sb = sb,
            Some(_) => {
                let at = byte(self.geom.half(0).0);
                let expected = "the areas of the superblock in place";
                return Err(
                    Corrupt::new("log record", "superblock", at, "another layout of the volume", expected).into()
                );
            }
            None => {}
        }
        Ok(())
    }
}
