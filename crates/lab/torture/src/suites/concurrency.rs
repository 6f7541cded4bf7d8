//! Several tasks on one volume, under chosen schedules and on threads of the system.

use super::{FailedSchedules, Schedules, Suites, Threads, drawn, mounted};
use crate::concurrent;
use crate::config::Config;
use crate::gate;
use crate::generate::Profile;

/// What each call says is what some order of the calls gives, and so is the tree in the end.
pub fn tasks_see_an_order(s: &Suites, given: &Schedules) {
    let (seed, count) = drawn(given.count);
    let tally = concurrent::run(s.engine, seed, count, false, &mut |_| true);
    assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n"));
    assert!(tally.schedules >= count && tally.crash_states >= count + count / 2, "{tally:?}");
}

/// Programs that failed once, under schedules that begin with the one that did.
pub fn what_failed_once(s: &Suites, given: &FailedSchedules) {
    concurrent::regressions(s.engine, given.lines, given.schedules);
}

/// The same on threads of the system.
pub fn threads_see_an_order(s: &Suites, given: &Threads) {
    let (seed, count) = drawn(given.programs);
    for mount in given.mounts {
        concurrent::threads(s.engine, &mounted(&Config::new(Profile::Sync), mount), seed, count);
    }
}

/// Threads that each have files of their own in a directory that all share, with the daemon beside them.
pub fn threads_beside_the_daemon(s: &Suites, given: &Threads) {
    for mount in given.mounts {
        concurrent::beside_the_daemon(s.engine, given.format, mount);
    }
}

/// A call that waits for the device keeps nobody waiting.
pub fn reads_keep_nobody_waiting(s: &Suites, given: &Threads) {
    for mount in given.mounts {
        gate::reads_keep_nobody_waiting(s.engine, &mounted(&Config::new(Profile::Sync), mount));
    }
}
