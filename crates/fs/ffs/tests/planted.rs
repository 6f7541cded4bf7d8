//! Plants each mistake of [`planted`](arbor_ffs::planted) in turn and lets the crash explorer, or the fault machine,
//! look for it. Runs with `--features planted` only, and prints a table:
//!
//!     cargo test --release -p arbor-ffs --features planted --test planted -- --nocapture
//!
//! `ARBOR_SECONDS` is the time for the volume without a mistake, and the tenth of what each mistake has to be found
//! in; 10 unless it says otherwise. `ARBOR_FLAW` names one that is looked for alone.

use arbor_ffs::Ffs;
use arbor_ffs::planted::{Flaw, plant};
use arbor_torture::faults;
use arbor_torture::machine::{Plan, crash};
use arbor_torture::tally::Tally;
use std::time::{Duration, Instant};

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

fn name(flaw: Option<Flaw>) -> String {
    flaw.map_or_else(|| "none".to_string(), |f| format!("{f:?}"))
}

fn found(tally: &Tally) -> u64 {
    tally.failed_states + tally.failures.len() as u64
}

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
    let seconds = std::env::var("ARBOR_SECONDS").map_or(10, |s| s.parse().expect("ARBOR_SECONDS is a number"));
    let only = std::env::var("ARBOR_FLAW").ok();
    let all = [(None, "none is planted")].into_iter().chain(Flaw::ALL.iter().map(|f| (Some(f.0), f.1)));
    let is_asked = |flaw: Option<Flaw>| match &only {
        Some(only) => name(flaw) == *only,
        None => flaw.is_none_or(|f| !HIDDEN.contains(&f)),
    };
    let asked: Vec<_> = all.filter(|p| is_asked(p.0)).collect();
    assert!(!asked.is_empty(), "no such mistake: {}", only.unwrap_or_default());
    eprintln!("{:<20} {:>6} {:>8} {:>8}  what it does", "mistake", "found", "of", "seconds");
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for (flaw, text) in asked {
        plant(flaw);
        let began = Instant::now();
        let tally = look(flaw, Duration::from_secs(if flaw.is_none() { seconds } else { 10 * seconds }));
        let (n, tried) = (found(&tally), tally.distinct_states + tally.faults);
        eprintln!("{:<20} {n:>6} {tried:>8} {:>8.1} {text}", name(flaw), began.elapsed().as_secs_f64());
        if let Some(failure) = tally.failures.first().filter(|_| flaw.is_none()) {
            eprintln!("{failure}");
        }
        if (n == 0) != flaw.is_none() {
            missed.push(name(flaw));
        }
    }
    plant(None);
    std::panic::set_hook(hook);
    assert_eq!(missed, Vec::<String>::new(), "missed, or found where there is none");
}
