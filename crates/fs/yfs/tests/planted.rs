//! Plants each mistake of [`planted`](arbor_yfs::planted) in turn and lets the crash explorer look
//! for it. Runs with `--features planted` only, and prints a table:
//!
//!     cargo test --release -p arbor-yfs --features planted --test planted -- --nocapture
//!
//! `ARBOR_SECONDS` is the time for each mistake, 10 unless it says otherwise; `ARBOR_FLAW` names
//! one that is looked for alone.

use arbor_torture::machine::{Plan, crash};
use arbor_yfs::Yfs;
use arbor_yfs::planted::{Flaw, plant};
use std::time::Duration;

#[test]
fn every_planted_mistake_is_found() {
    let seconds = std::env::var("ARBOR_SECONDS").map_or(10, |s| s.parse().expect("ARBOR_SECONDS is a number"));
    let plan = Plan { time: Some(Duration::from_secs(seconds)), keep_going: true, plain: 0, ..Plan::whole(1) };
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    eprintln!("{:<20} {:>8} of {:>8} states  {}", "mistake", "failing", "distinct", "what it does");
    let only = std::env::var("ARBOR_FLAW").ok();
    for (flaw, text) in [(None, "none is planted")].into_iter().chain(Flaw::ALL.iter().map(|f| (Some(f.0), f.1))) {
        if only.as_ref().is_some_and(|only| flaw.is_none_or(|f| format!("{f:?}") != *only)) {
            continue;
        }
        plant(flaw);
        let mut tally = crash(&Yfs, &plan, &mut |_| true);
        // Rare ones get more time, until they are met.
        if tally.failed_states == 0 && flaw.is_some() {
            let more = Plan { time: plan.time.map(|t| t * 10), seed: 2, ..plan };
            tally.add(crash(&Yfs, &more, &mut |t| t.failed_states == 0));
        }
        let found = tally.failed_states + tally.failures.len() as u64;
        let name = flaw.map_or_else(|| "-".to_string(), |f| format!("{f:?}"));
        eprintln!("{name:<20} {found:>8} of {:>8} states {text}", tally.distinct_states);
        if let Some(failure) = tally.failures.first().filter(|_| flaw.is_none()) {
            eprintln!("{failure}");
        }
        if (found == 0) != flaw.is_none() {
            missed.push(name);
        }
    }
    drop(std::panic::take_hook());
    assert_eq!(missed, Vec::<String>::new(), "missed, or found where there is none");
}
