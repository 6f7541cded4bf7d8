//! The virtual clock.

use arbor_base::vfs::{Clock, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const NANOS: u64 = 1_000_000_000;

/// Virtual time in nanoseconds since the run began; also the engine's clock. It moves only when somebody waits for
/// a simulated device or charges time to it, and never backward.
#[derive(Debug)]
pub struct SimClock {
    start: Time,
    ns: AtomicU64,
}

impl SimClock {
    /// A clock that shows `start` and stands at 0 ns.
    pub fn new(start: Time) -> Arc<SimClock> {
        Arc::new(SimClock { start, ns: AtomicU64::new(0) })
    }

    /// Virtual nanoseconds since the start.
    pub fn now_ns(&self) -> u64 {
        self.ns.load(Ordering::Acquire)
    }

    /// Moves on by `ns` nanoseconds: a charge for the CPU, or idle time.
    pub fn advance_ns(&self, ns: u64) {
        self.ns.fetch_add(ns, Ordering::AcqRel);
    }

    /// Moves on to `at` nanoseconds since the start, unless it is later already.
    pub fn advance_to_ns(&self, at: u64) {
        self.ns.fetch_max(at, Ordering::AcqRel);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Time {
        let ns = self.now_ns();
        let nanos = u64::from(self.start.nanos) + ns % NANOS;
        let secs = (ns / NANOS + nanos / NANOS) as i64;
        Time { secs: self.start.secs.saturating_add(secs), nanos: (nanos % NANOS) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_start_plus_elapsed_and_never_goes_back() {
        let clock = SimClock::new(Time { secs: 5, nanos: 999_999_999 });
        clock.advance_ns(1);
        assert_eq!(clock.now(), Time { secs: 6, nanos: 0 });
        clock.advance_to_ns(2_500_000_000);
        clock.advance_to_ns(10);
        assert_eq!(clock.now_ns(), 2_500_000_000);
        assert_eq!(clock.now(), Time { secs: 8, nanos: 499_999_999 });
    }
}
