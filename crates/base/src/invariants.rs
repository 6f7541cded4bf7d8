//! Whether mounted volumes execute the invariants of their engines: debug builds do, others when a laboratory says so.
//! A volume that is damaged on purpose breaks what no code broke, so whoever works on one says that too.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static ALWAYS: AtomicBool = AtomicBool::new(false);

thread_local! {
    static DAMAGED: Cell<u32> = const { Cell::new(0) };
}

/// Lets builds without debug assertions execute them too, or not any more.
pub fn execute_always(always: bool) {
    ALWAYS.store(always, Relaxed);
}

/// Whether they are executed now, on this thread.
pub fn are_executed() -> bool {
    (cfg!(debug_assertions) || ALWAYS.load(Relaxed)) && DAMAGED.get() == 0
}

/// While it lives, this thread works on volumes that are damaged on purpose.
#[derive(Debug)]
pub struct OnDamage(());

impl OnDamage {
    /// From now on.
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
