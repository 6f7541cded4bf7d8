//! What a torture run counts, and how it is watched.

use crate::crash::Explored;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Most failures that are kept; after so many a run ends.
const MOST_FAILURES: usize = 10;

/// Counts of a run; runs of several parts are added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Sequences of operations carried out.
    pub sequences: u64,
    /// Disks that a power cut could leave, built and recovered.
    pub crash_states: u64,
    /// Those among them that differ in a byte, or in what was promised.
    pub distinct_states: u64,
    /// Those that failed, in a run that counts them and goes on.
    pub failed_states: u64,
    /// Faults of the device that were met.
    pub faults: u64,
    /// Mutated images that were mounted, walked and checked.
    pub mutants: u64,
    /// Interleavings of threads.
    pub schedules: u64,
    /// A text for each failure, with the line that repeats it.
    pub failures: Vec<String>,
}

impl Tally {
    /// Adds what an exploration did.
    pub(crate) fn explored(&mut self, done: &Explored) {
        self.sequences += done.sequences;
        self.crash_states += done.states;
        self.distinct_states += done.distinct;
        self.failed_states += done.failed;
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: Tally) {
        self.sequences += other.sequences;
        self.crash_states += other.crash_states;
        self.distinct_states += other.distinct_states;
        self.failed_states += other.failed_states;
        self.faults += other.faults;
        self.mutants += other.mutants;
        self.schedules += other.schedules;
        self.failures.extend(other.failures);
    }
}

/// Is told the counts again and again, and says whether to go on.
pub type Watch<'a> = &'a mut dyn FnMut(&Tally) -> bool;

/// Lets all cores take steps, and adds up what they did. A step that says `false`, for there is nothing
/// left to do, counts nothing and ends the work of its core; the steps that others are at go on to
/// their ends, as they do when `watch` says `false` or there are enough failures; then the flag is set that a long step may
/// heed.
pub(crate) fn on_all_cores(
    start: Tally,
    watch: Watch<'_>,
    step: impl Fn(&mut Tally, &AtomicBool) -> bool + Sync,
) -> Tally {
    let (whole, stop) = (Mutex::new(start), AtomicBool::new(false));
    let work = || {
        while !stop.load(Relaxed) {
            let mut tally = Tally::default();
            if !step(&mut tally, &stop) {
                break;
            }
            let mut whole = whole.lock();
            whole.add(tally);
            stop.fetch_or(whole.failures.len() >= MOST_FAILURES, Relaxed);
        }
    };
    std::thread::scope(|s| {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let workers: Vec<_> = (0..cores).map(|_| s.spawn(work)).collect();
        while !workers.iter().all(|w| w.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            let now = whole.lock().clone();
            stop.fetch_or(!watch(&now), Relaxed);
        }
    });
    whole.into_inner()
}
