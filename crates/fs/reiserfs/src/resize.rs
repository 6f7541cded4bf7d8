//! Growing a volume: the device first, durably; then one transaction changes the superblock, the bitmap at the old end, and
//! the copy of the superblock at the new one.

use crate::format::*;
use crate::mount;
use crate::superblock;
use crate::volume::Core;
use arbor_base::device::Kind;
use arbor_base::vfs::{Clock, Devices, MountOptions, Result};
use arbor_kit::buddy::bitmap;
use arbor_kit::resize::make_room;
use std::sync::Arc;

/// See [`Engine::resize`](arbor_base::vfs::Engine::resize).
pub(crate) fn resize(devices: Devices, size: u64, clock: Arc<dyn Clock>) -> Result<()> {
    let dev = devices.main.clone();
    let (_, geom) = superblock::need(&*dev)?;
    let blocks = make_room(&*dev, geom.byte(geom.blocks), size, geom.node_size as u64)?;
    let volume = mount::mount(devices, &MountOptions::default(), clock)?;
    dev.confine(0..geom.byte(blocks));
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
        self.commit_transaction()?;
        self.empty_log()?;
        let ends = [(old.copy(), false), (new.copy(), true)];
        for (block, _) in ends {
            if block / new.covered() < self.sb.bitmaps.get() {
                self.bitmap(block / new.covered())?;
            }
        }
        for (block, used) in ends {
            let (n, bit) = (block / new.covered(), block % new.covered());
            if n < self.sb.bitmaps.get() && bit != 0 {
                let set = if used { bitmap::set_used } else { bitmap::set_free };
                self.change_bitmap(n, |bytes| set(bytes.get_mut(BITMAP_HEAD..).unwrap_or(&mut []), bit, 1))?;
            }
        }
        let more = (new.blocks - old.blocks).saturating_sub(new.bitmaps() - old.bitmaps());
        self.sb.free = self.sb.free.get().saturating_add(more).into();
        self.sb.blocks = blocks.into();
        self.geom = new;
        self.space = Default::default();
        self.touch_super();
        self.put_copy();
        self.commit_transaction()
    }

    /// Writes the copy of the superblock with the transaction.
    pub fn put_copy(&mut self) {
        let mut copy = arbor_kit::head::encode(&self.sb.copy());
        copy.resize(self.geom.node_size, 0);
        self.put_block(self.geom.copy(), Kind::Super, copy);
    }
}
