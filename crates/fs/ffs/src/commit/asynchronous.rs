//! No order: buffers are written when they are due, or too many are dirty.

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
