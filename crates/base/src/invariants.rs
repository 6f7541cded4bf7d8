//! Whether mounted volumes check the invariants of their engines: in debug builds, else if a laboratory asks for it.
//!
//! On a volume that is damaged on purpose invariants fail through no fault of the code, so a test that works on one
//! says so ([`OnDamage`]).

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static ALWAYS: AtomicBool = AtomicBool::new(false);

thread_local! {
    static DAMAGED: Cell<u32> = const { Cell::new(0) };
}

/// Sets whether builds without debug assertions check them, too.
pub fn execute_always(always: bool) {
    ALWAYS.store(always, Relaxed);
}

/// Whether they are checked now, on this thread.
pub fn are_executed() -> bool {
    (cfg!(debug_assertions) || ALWAYS.load(Relaxed)) && DAMAGED.get() == 0
}

/// While it lives, this thread works on volumes that are damaged on purpose.
#[derive(Debug)]
pub struct OnDamage(());

impl OnDamage {
    /// Begins such work.
    #[must_use]
    pub fn begin() -> OnDamage {
        DAMAGED.set(DAMAGED.get() + 1);
        OnDamage(())
    }
}

impl Drop for OnDamage {
    fn drop(&mut self) {
        DAMAGED.set(DAMAGED.get() - 1);
    }
}
