//! Mounting and unmounting.
//!
//! The mounted volume itself is in `volume.rs`, recovery in `recover.rs`. Called by `lib.rs` (mount), and by `ops.rs`
//! (label, unmount).

use crate::commit::ordering;
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::volume::{Core, Volume};
use crate::{options, recover, superblock};
use arbor_base::device::{Device, Kind, WaryDevice};
use arbor_base::layout::{Corrupt, crc};
use arbor_base::vfs::{Clock, Devices, Error, MountOptions, Result};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Mounts, after recovery if the volume was not unmounted.
pub(crate) fn mount(devices: Devices, options: &MountOptions, clock: Arc<dyn Clock>) -> Result<Arc<Volume>> {
    let opts = options::Mount::parse(&options.options)?;
    let dev = WaryDevice::over(devices.main);
    let mut sb: SuperBlock = arbor_kit::head::need(&*dev, 0)?;
    let read_only = arbor_kit::options::read_only(superblock::features(&sb), KNOWN, options, &*dev)?;
    let geom = superblock::geometry(&sb, 0, dev.geometry().size)?;
    if !read_only {
        ordering::of(opts.keeping).check_volume(&*dev, &sb, &geom)?;
    }
    let mut passed_by: Vec<Error> = Vec::new();
    if sb.clean.get() == 0 {
        passed_by.extend(recover::recover(&dev, &mut sb, &geom, read_only)?);
    }
    // The journal may have held another superblock.
    let geom = superblock::geometry(&sb, 0, dev.geometry().size)?;
    dev.confine(0..geom.byte(Frag(geom.frags)));
    let summaries = match read_summaries(&*dev, &sb, &geom) {
        Err(e) if e.is_damage() => {
            let (counted, damage) = recover::count_groups(&*dev, &geom)?;
            passed_by.extend([e].into_iter().chain(damage));
            counted
        }
        found => found?,
    };
    let mut core = Core::new(geom, sb, dev, opts, clock.now(), &summaries);
    core.calls.health.set_read_only(read_only);
    passed_by.iter().for_each(|damage| core.calls.health.pass_by(damage));
    if core.sb.clean.get() == DAMAGE_MET {
        core.calls.health.note_damage();
    }
    let orphans = core.sb.orphan.get();
    if !read_only {
        if !core.ordering().lists_orphans() {
            // From now on the checker finds inodes without names.
            core.sb.orphan = 0.into();
        }
        core.sb.clean = 0.into();
        core.sb.keeping = (core.opts.keeping as u32).into();
        core.sb.mounts = core.sb.mounts.get().wrapping_add(1).into();
        superblock::write(&*core.dev, 0, &core.sb)?;
        if !planted(Flaw::MountUnmarked) {
            core.dev.flush()?;
        }
        core.ordering().mounted(&mut core)?;
    }
    let dev = core.dev.clone();
    let volume = Volume::new(core, dev, clock);
    if !read_only {
        volume.run_once(|core| core.load_orphans(orphans))?;
        volume.drain_inactive()?;
    }
    Ok(Arc::new(volume))
}

/// The free space of each group, from the summary area, which is valid on a clean volume.
fn read_summaries(dev: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<Vec<Summary>> {
    let len = geom.cg_count as usize * size_of::<Summary>();
    let mut area = vec![0; geom.bytes_of(geom.summary_frags())];
    let at = geom.byte(Frag(sb.summary_start.get()));
    dev.read_at(Kind::Group, at, &mut area)?;
    let bytes = area.get(..len).unwrap_or(&[]);
    if crc(bytes) != sb.summary_crc.get() {
        let (found, should) = (format!("{:#x}", crc(bytes)), format!("{:#x}", sb.summary_crc.get()));
        return Err(Corrupt::new("summary area", "summary_crc", at, found, should).into());
    }
    Ok(bytes.chunks_exact(size_of::<Summary>()).filter_map(|b| Summary::read_from_bytes(b).ok()).collect())
}

impl Core {
    /// Changes the label in the superblock, durably, then in its copies. The journal is emptied first: it may hold an
    /// older superblock. The one in core may be newer than both.
    pub fn write_label(&mut self, label: [u8; 64]) -> Result<()> {
        self.calls.note_change();
        self.ordering().emptied(self)?;
        self.sb.label = label;
        superblock::write(&*self.dev, 0, &self.sb)?;
        self.dev.flush()?;
        let copy = superblock::as_copy(self.sb);
        for cgx in 1..self.geom.cg_count {
            superblock::write(&*self.dev, self.geom.byte(self.geom.cg_start(cgx)), &copy)?;
        }
        Ok(self.dev.flush()?)
    }

    /// Marks the volume clean, unless something is left to be written.
    pub fn mark_clean(&mut self) -> Result<()> {
        self.calls.note_change();
        self.ordering().emptied(self)?;
        let mut sums: Vec<u8> = self.space.summaries().flat_map(|s| s.as_bytes().to_vec()).collect();
        self.sb.summary_crc = crc(&sums).into();
        sums.resize(self.geom.bytes_of(self.geom.summary_frags()), 0);
        self.dev.write_at(Kind::Group, self.geom.byte(Frag(self.sb.summary_start.get())), &sums)?;
        if !planted(Flaw::CleanTooEarly) {
            self.dev.flush()?;
        }
        let is_all = self.dirty.is_empty() && self.deps.frees_nothing();
        self.sb.clean = match self.calls.health.has_met_damage() {
            _ if !is_all => 0,
            true => DAMAGE_MET,
            false => UNMOUNTED,
        }
        .into();
        superblock::write(&*self.dev, 0, &self.sb)?;
        Ok(self.dev.flush()?)
    }
}
