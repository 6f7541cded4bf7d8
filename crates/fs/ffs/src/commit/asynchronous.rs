//! No order: buffers go to the disk when they are due, or the cache is full of them.

use super::ordering::MetadataOrdering;
use crate::volume::Core;
use arbor_base::vfs::{CrashPromise, Result};

pub(super) struct Asynchronous;

impl MetadataOrdering for Asynchronous {
    fn crash_promise(&self) -> CrashPromise {
        CrashPromise::Repairable
    }

    fn round_written(&self, _core: &mut Core) -> Result<()> {
        Ok(())
    }
}
