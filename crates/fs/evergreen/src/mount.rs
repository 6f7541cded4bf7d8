//! Mounting: the newest commit, the state in core, what was open and unlinked at a crash. How calls enter a mounted volume,
//! and how it is unmounted, is in `kit::locked`; the calls are in `ops.rs`.

use crate::format::*;
use crate::options::Logging;
use crate::volume::Core;
use crate::{options, recover, superblock};
use arbor_base::device::{Device, Kind, WaryDevice};
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
    if opts.commit_at.is_some() && !read_only {
        return Err(Error::refused("option commit_at: an older commit is mounted read-only (option ro)"));
    }
    if sb.clean.get() == UNORDERED {
        return Err(Error::refused(
            "the volume was in use with redo=none and not unmounted: run fsck (`arbor fsck -p`), which looks at all of it",
        ));
    }
    dev.confine(0..byte(geom.blocks));
    let mut core = Core::new(dev.clone(), (sb, geom), opts, clock.now());
    core.stay();
    match (core.take_newest(), opts.commit_at) {
        // The one that a repair would begin with, and those before it, can be looked at.
        (Err(Error::Corrupt(_)), Some(_)) => core.find_older().map(drop)?,
        // The superblock may lead to another than the newest.
        (Ok(()), Some(seq)) if seq > core.master.head.seq.get() => {
            core.master = Master::default();
            core.find_older().map(drop)?;
        }
        (taken, _) => taken?,
    }
    // Where damage was met the superblock does not say clean, although all of the last commit is in place.
    if read_only && !sb.is_clean() && opts.commit_at.is_none() && !core.laid.is_empty() {
        return Err(Error::refused(
            "the volume was not unmounted and needs recovery: mount it for writing, or run fsck",
        ));
    }
    if let Some(seq) = opts.commit_at {
        core.take_commit(seq)?;
    }
    core.passes_damage = true;
    if !read_only {
        core.keep_history()?;
        core.begin()?;
    }
    Volume::mounted(core, dev, clock, read_only, Core::load_orphans)
}

/// The state of a volume that is not mounted, for those that only look: of one that was not unmounted as recovery would make
/// it.
pub(crate) fn look(devices: &Devices) -> Result<Core> {
    let dev: Arc<dyn Device> = devices.main.clone();
    let found = superblock::need(&*dev)?;
    let mut core = Core::new(dev, found, options::Mount::parse(&Options::default())?, Time::default());
    core.stay();
    core.take_newest()?;
    Ok(core)
}

impl Core {
    /// Takes the newest commit; what it has overwritten is laid over reads.
    pub fn take_newest(&mut self) -> Result<()> {
        (self.master, self.master_at) = recover::newest(&*self.dev, &self.sb, &self.geom)?;
        if !self.sb.is_clean() {
            self.laid = recover::redo(&*self.dev, &self.geom, &self.master.head)?;
        }
        Ok(())
    }

    /// Finds what older commits have; fails if the volume has too few reserved blocks for those that are to be retained.
    fn keep_history(&mut self) -> Result<()> {
        let (masters, retain) = (self.geom.masters().count() as u64, self.opts.retain);
        if retain >= masters {
            return Err(Error::refused(format!(
                "option retain: this volume can keep at most {} commits, since it has {masters} reserved blocks",
                masters.saturating_sub(1)
            )));
        }
        self.load_history().map(drop)
    }

    /// Takes the commit before the newest one for a repair, and returns which that is.
    pub fn take_older(&mut self) -> Result<u64> {
        let newest = self.find_older()?;
        let taken = self.master.head.seq.get();
        let end = self.geom.blocks.saturating_sub(1);
        self.master.head.last = self.master.head.last.get().min(end).into();
        // No master block that only seems to be damaged has the number of the next commit.
        self.master.head.seq = newest.max(taken).saturating_add(1).into();
        self.touch_master();
        Ok(taken)
    }

    /// Finds the commit before the newest one, whose master block or redo list is damaged: until the commit after it nothing
    /// was written that this one has. If no newest one was taken, it is the newest that is sound. Returns the number of the newest
    /// one, 0 if none was taken.
    fn find_older(&mut self) -> Result<u64> {
        let newest = self.master.head.seq.get();
        let before = if newest == 0 { u64::MAX } else { newest };
        let is_newest = newest == 0 && recover::impossible(&*self.dev, &self.geom)?.is_empty();
        (self.master, self.master_at) = recover::scan_followed(&*self.dev, &self.geom, before)?;
        self.laid.clear();
        let is_in_use = !self.sb.is_clean() || self.sb.master.get() == 0;
        if is_newest && is_in_use {
            // It is the newest one, of which only counts are wrong; or the superblock only says that it was unmounted.
            self.laid = match recover::redo(&*self.dev, &self.geom, &self.master.head) {
                Err(Error::Corrupt(_)) => return self.find_older(),
                laid => laid?,
            };
        } else {
            // What the newest one has overwritten again is in the copies only.
            self.laid = recover::redo_left(&*self.dev, &self.geom, &self.master.head)?;
            (self.master.head.redo, self.master.head.redo_count) = (0.into(), 0.into());
        }
        Ok(newest)
    }

    /// Clears the reserved blocks of master blocks whose numbers no commit can follow: they would be the newest for ever.
    pub fn clear_impossible(&mut self) -> Result<()> {
        for at in recover::impossible(&*self.dev, &self.geom)? {
            self.dev.write_at(Kind::Super, byte(at), &[0; BLOCK])?;
        }
        Ok(())
    }

    /// Makes the volume one that is in use: what the newest commit has overwritten is in place from here on.
    pub fn begin(&mut self) -> Result<()> {
        // An unmounted volume has no redo list.
        self.write_laid()?;
        let was_clean = self.sb.is_clean();
        self.is_twin = was_clean;
        let unordered = self.sb.clean.get() == UNORDERED || self.opts.redo == Logging::None;
        let clean = if unordered { UNORDERED } else { IN_USE };
        (self.sb.clean, self.sb.master) = (clean.into(), 0.into());
        self.write_super()?;
        if !was_clean {
            // A change of the label may have been cut off.
            self.write_super_copy()?;
        }
        if self.master.head.redo.get() != 0 {
            // The copies are free from here on.
            self.touch_master();
            self.write_commit()?;
        }
        Ok(())
    }
}
