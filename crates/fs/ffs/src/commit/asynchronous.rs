//! No order: buffers are written when they are due, or too many are dirty.

use super::ordering::MetadataOrdering;
use crate::format::Frag;
use crate::volume::Core;
use arbor_base::vfs::{CrashPromise, Result};

pub(super) struct Asynchronous;

impl MetadataOrdering for Asynchronous {
    fn crash_promise(&self) -> CrashPromise {
        CrashPromise::Repairable
    }

    fn table_block_made(&self, _core: &mut Core, _cgx: u32, _block: Frag, _old: u32) -> Result<()> {
        Ok(())
    }

    fn table_grown(&self, _core: &mut Core, _cgx: u32) -> Result<()> {
        Ok(())
    }

    fn round_written(&self, _core: &mut Core) -> Result<()> {
        Ok(())
    }
}
