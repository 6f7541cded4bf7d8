//! Plants each mistake of [`planted`](arbor_ffs::planted) in turn and lets the crash explorer, or the fault machine,
//! look for it. Runs with `--features planted` only, see [`arbor_torture::planted`]:
//!
//!     cargo test --release -p arbor-ffs --features planted --test planted -- --nocapture

use arbor_ffs::Ffs;
use arbor_ffs::planted::{Flaw, plant};
use arbor_torture::machine::{Plan, crash};
use arbor_torture::planted::{Planted, explore_faults, found};
use arbor_torture::tally::Tally;
use std::time::Duration;

const PLANTED: Planted<Flaw> =
    Planted { engine: &Ffs, all: Flaw::ALL, plant, hidden: &HIDDEN, lines: include_str!("planted.txt"), note: |_| {} };

/// Mistakes that nothing here has found yet, in 10,000 to 30,000 states each, or (`NumbersAgain`) once in 28,000.
/// They are looked for when they are named.
const HIDDEN: [Flaw; 8] = [
    Flaw::TableBeforeBlock,
    Flaw::HalfBelieved,
    Flaw::ReuseAtOnce,
    Flaw::GrowIntoHeld,
    Flaw::PlaceBeforeCommit,
    Flaw::NumbersAgain,
    Flaw::ClustersForgotten,
    Flaw::DamageSealed,
];

/// Crash states and faults, until one fails or the time is up.
fn look(flaw: Option<Flaw>, time: Duration) -> Tally {
    let mut tally = Tally::default();
    if flaw.is_none_or(|f| !Flaw::FAULTS.contains(&f)) {
        let plan = Plan { time: Some(time), plain: 0, ..Plan::whole(1) };
        tally.add(crash(&Ffs, &plan, &mut |t| found(t) == 0));
    }
    if flaw.is_none_or(|f| Flaw::FAULTS.contains(&f)) {
        tally.add(explore_faults(&Ffs, time));
    }
    tally
}

#[test]
fn every_planted_mistake_is_found() {
    PLANTED.each_is_found(|_| true, look);
}

/// Mistakes that core itself can see make a call panic with the number of the invariant that they break.
#[test]
fn invariants_trip_on_mistakes() {
    PLANTED.invariants_trip();
}
