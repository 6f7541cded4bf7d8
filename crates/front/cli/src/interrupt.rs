//! The interrupt from the keyboard during long work: the first one ends it in order, the second at once.

use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What a shell shows for a process that SIGINT ended.
pub(crate) const INTERRUPTED: u8 = 130;
/// Why work that was interrupted is not done.
pub(crate) const WORD: &str = "interrupted";

/// A flag that is set by the first interrupt from now on.
pub(crate) fn flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
