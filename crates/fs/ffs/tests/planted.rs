//! Plants each mistake of [`planted`](arbor_ffs::planted) in turn and lets the crash explorer, or the fault machine,
//! look for it. Runs with `--features planted` only, see [`arbor_torture::planted`]:
//!
//!     cargo test --release -p arbor-ffs --features planted --test planted -- --nocapture

use arbor_ffs::Ffs;
use arbor_ffs::planted::{Flaw, plant};
use arbor_torture::faults;
use arbor_torture::machine::{Plan, crash};
use arbor_torture::planted::{Planted, found};
use arbor_torture::tally::Tally;
use std::time::{Duration, Instant};

const PLANTED: Planted<Flaw> = Planted { all: Flaw::ALL, plant, hidden: &HIDDEN, note: |_| {} };

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

/// Mistakes in the order of names, or at the end of files, with lists that are looked at first: among all lists those
/// that show them are few.
const LISTS: [(Flaw, &str); 9] = [
    (Flaw::NamesUnsettled, "ops=rename /a /n 0; rename /n /d/a 2; background 40000; background 40000"),
    (Flaw::NamesUnreached, "ops=rename /a /big/L91 0; fsync /big/L91 0"),
    (Flaw::ReplacedUnnamed, "ops=link /a /d/l; rename /d/a /a 0"),
    (Flaw::VanishedAwaited, "ops=rename /a /n 0; link /n /d/l; unlink /n"),
    (Flaw::DirectoryTakes, "ops=rename /d/a /e/n 0; rmdir /d; create /q 420 0; fsync /q 0"),
    (
        Flaw::WaysUnsettled,
        "ops=rename /e /big/L90 0; rename /big/L90/f /big/L90/e 0; rename /big/L90/e /big/L93 0; rename /big/L90 /big/L93/b 0",
    ),
    (
        Flaw::OlderRolledBack,
        "ops=create /z 384 1; create /y 384 2; syncfs; create /d/n 384 5; hold /d/n 1; rename /a /d/n 0; \
         rename /d/n /e/n 0; fsync /e 0; rename /y /d/n 0; fsync /z 0; background 40000",
    ),
    (
        Flaw::TailShown,
        "first=5@12:DropOne(0) ops=create /x 420 0; write /x 0 100 1; syncfs; append /x 300 2; background 40000; \
         truncate /x 110; background 40000; truncate /x 700; background 40000",
    ),
    (
        Flaw::TailShown,
        "first=5@12:DropOne(0) ops=create /x 420 0; write /x 0 65236 1; syncfs; append /x 200 2; background 40000; \
         truncate /x 200000; background 40000",
    ),
];

/// Crash states and faults, until one fails or the time is up.
fn look(flaw: Option<Flaw>, time: Duration) -> Tally {
    let mut tally = Tally::default();
    if flaw.is_none_or(|f| !Flaw::FAULTS.contains(&f)) {
        for (_, words) in LISTS.iter().filter(|l| Some(l.0) == flaw) {
            let line = format!("seed=2 profile=Sync size=16777216 from=Aged {words}");
            tally.failures.extend(arbor_torture::machine::repeat(&Ffs, &line).err());
        }
        if found(&tally) > 0 {
            return tally;
        }
        let plan = Plan { time: Some(time), keep_going: true, plain: 0, ..Plan::whole(1) };
        tally.add(crash(&Ffs, &plan, &mut |t| found(t) == 0));
    }
    if flaw.is_none_or(|f| Flaw::FAULTS.contains(&f)) {
        let began = Instant::now();
        tally.add(faults::run(&Ffs, 1, u64::MAX, &mut |t| found(t) == 0 && began.elapsed() < time));
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
    PLANTED.invariants_trip(&Ffs);
}
