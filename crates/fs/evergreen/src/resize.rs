//! Growing a volume: the device first, durably; then the copy of the superblock at the new end, a commit of the new size, and
//! the superblock, which decides: of a volume that it does not know yet no master block counts.
//!
//! Older commits have another size, so they are given up.

use crate::format::*;
use crate::mount;
use crate::planted::{Flaw, planted};
use crate::recover;
use crate::superblock;
use crate::volume::Core;
use arbor_base::cache::FileBlock;
use arbor_base::device::{Kind, Request};
use arbor_base::layout::put;
use arbor_base::vfs::{Clock, Devices, Error, MountOptions, Options, Result};
use arbor_kit::resize::make_room;
use std::sync::Arc;

/// See [`Engine::resize`](arbor_base::vfs::Engine::resize).
pub(crate) fn resize(devices: Devices, size: u64, clock: Arc<dyn Clock>) -> Result<()> {
    let dev = devices.main.clone();
    let (_, geom) = superblock::need(&*dev)?;
    let blocks = make_room(&*dev, byte(geom.blocks), size, BLOCK as u64)?;
    // What is relocated needs no copies, which might get places that only the new volume has.
    let options = MountOptions { options: Options::parse("modify=relocate"), ..MountOptions::default() };
    let volume = mount::mount(devices, &options, clock)?;
    dev.confine(0..byte(blocks));
    let grown = volume.run_once(|core| core.grow(blocks));
    volume.close()?;
    grown
}

impl Core {
    /// Makes the volume have so many blocks.
    fn grow(&mut self, blocks: u32) -> Result<()> {
        let (old, new) = (self.geom, Geom { blocks, ..self.geom });
        if blocks <= old.blocks {
            return Ok(());
        }
        self.write_whole()?;
        // If anything fails from here on the volume is not written to any more.
        self.touch_master();
        if self.master_at == new.copy() {
            self.write_commit()?;
        }
        let sb = SuperBlock { blocks: blocks.into(), ..self.sb };
        let copy = arbor_kit::head::encode(&sb.copy());
        self.write(vec![Request::write(Kind::Super, byte(new.copy()), vec![copy.into()])])?;
        for n in old.copy() / BITS..=(old.blocks - 1) / BITS {
            self.free_end(n, &new)?;
        }
        self.outnumber(&new)?;
        self.take_geometry(new)?;
        if planted(Flaw::GrownTooEarly) {
            self.sb = sb;
            self.write_super()?;
        }
        self.touch_master();
        self.write_commit()?;
        self.sb = sb;
        self.write_super()
    }

    /// Makes block `n` of the dBitmap, if there is one, say what is reserved at the old end of a volume that has grown.
    fn free_end(&mut self, n: u32, new: &Geom) -> Result<()> {
        if self.bitmap(DBITMAP, n)?.is_none() {
            return Ok(());
        }
        let (from, reserved) = (self.geom.copy().max(n.saturating_mul(BITS)) % BITS, new.reserved_bits(n));
        let (at, kept) = ((from / 8) as usize, (1u8 << (from % 8)) - 1);
        let mut dbitmap = self.special(DBITMAP);
        self.change(&mut dbitmap, FileBlock::Data(n.into()), |bytes| {
            let first = bytes.get(HEAD + at).copied().unwrap_or(0) & kept;
            put(bytes, HEAD + at, reserved.get(at..).unwrap_or(&[]));
            bytes.iter_mut().skip(HEAD + at).take(1).for_each(|byte| *byte |= first);
        })
    }

    /// Makes the next commit newer than those of the same size that an earlier growth has left, which was cut off.
    fn outnumber(&mut self, new: &Geom) -> Result<()> {
        if planted(Flaw::OldGrowthBelieved) {
            return Ok(());
        }
        let newest = match recover::scan(&*self.dev, new, u64::MAX) {
            Err(Error::Corrupt(_)) => return Ok(()),
            found => found?.0.head.seq,
        };
        self.master.head.seq = self.master.head.seq.max(newest);
        Ok(())
    }

    /// Goes on with another size: what can be had is found anew, but not what the last commit has.
    fn take_geometry(&mut self, new: Geom) -> Result<()> {
        self.geom = new;
        self.master.head.intact = self.master.head.seq;
        self.make_maps_anew()
    }
}
