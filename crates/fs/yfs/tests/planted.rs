//! Plants each mistake of [`planted`](arbor_yfs::planted) in turn and lets the crash explorer look
//! for it. Runs with `--features planted` only, and prints a table:
//!
//!     cargo test --release -p arbor-yfs --features planted --test planted -- --nocapture
//!
//! `ARBOR_SECONDS` is the time for each mistake, 10 unless it says otherwise; `ARBOR_FLAW` names
//! one that is looked for alone.

use arbor_torture::concurrent::run;
use arbor_torture::crash::Explored;
use arbor_torture::grow::Grow;
use arbor_torture::machine::{Plan, crash};
use arbor_torture::repair::Repairs;
use arbor_torture::tally::Tally;
use arbor_yfs::Yfs;
use arbor_yfs::planted::{Flaw, plant};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Tasks at once, for so long, or forty times as long if it takes that to meet a failure: some need
/// several rare things to come together.
fn scheduled(seconds: u64) -> Tally {
    let began = Instant::now();
    run(&Yfs, 1, u64::MAX, true, &mut |t| {
        let took = began.elapsed().as_secs();
        took < seconds || t.failed_states == 0 && took < 40 * seconds
    })
}

/// Adds a line to the figures, a JSON list in the file that `ARBOR_FIGURES` names.
fn note(mistake: &str, text: &str, found: u64, tried: u64, what: &str) {
    let Some(path) = std::env::var_os("ARBOR_FIGURES") else { return };
    let mut all: Vec<serde_json::Value> = match std::fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).expect("a list of figures"),
        Err(_) => Vec::new(),
    };
    all.retain(|one| one["mistake"] != mistake);
    all.push(serde_json::json!({ "mistake": mistake, "text": text, "found": found, "tried": tried, "what": what }));
    std::fs::write(&path, serde_json::to_vec_pretty(&all).expect("JSON")).expect("ARBOR_FIGURES can be written");
}

/// Mistakes are planted in the whole process.
static GARDEN: Mutex<()> = Mutex::new(());

#[test]
fn every_planted_mistake_is_found() {
    let _alone = GARDEN.lock();
    let seconds = std::env::var("ARBOR_SECONDS").map_or(10, |s| s.parse().expect("ARBOR_SECONDS is a number"));
    let plan = Plan { time: Some(Duration::from_secs(seconds)), keep_going: true, plain: 0, ..Plan::whole(1) };
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    eprintln!("{:<20} {:>8} of {:>8} {:<9} what it does", "mistake", "failing", "tried", "");
    let only = std::env::var("ARBOR_FLAW").ok();
    for (flaw, text) in [(None, "none is planted")].into_iter().chain(Flaw::ALL.iter().map(|f| (Some(f.0), f.1))) {
        if only.as_ref().is_some_and(|only| flaw.is_none_or(|f| format!("{f:?}") != *only)) {
            continue;
        }
        if flaw.is_some_and(|f| Flaw::GROWTH_AND_REPAIR.contains(&f)) {
            continue;
        }
        plant(flaw);
        let mut tally = Tally::default();
        if flaw.is_none_or(|f| !Flaw::CONCURRENT.contains(&f)) {
            tally.add(crash(&Yfs, &plan, &mut |_| true));
            // Rare ones get more time, until they are met.
            if tally.failed_states == 0 && flaw.is_some() {
                let more = Plan { time: plan.time.map(|t| t * 10), seed: 2, ..plan };
                tally.add(crash(&Yfs, &more, &mut |t| t.failed_states == 0));
            }
        }
        if flaw.is_none_or(|f| Flaw::CONCURRENT.contains(&f)) {
            tally.add(scheduled(seconds));
        }
        let found = tally.failed_states + tally.failures.len() as u64;
        let name = flaw.map_or_else(|| "-".to_string(), |f| format!("{f:?}"));
        let tried = [(tally.distinct_states, "states"), (tally.schedules, "schedules")];
        let (tried, what) = if flaw.is_some_and(|f| Flaw::CONCURRENT.contains(&f)) { tried[1] } else { tried[0] };
        eprintln!("{name:<20} {found:>8} of {tried:>8} {what:<9} {text}");
        note(if flaw.is_some() { &name } else { "none" }, text, found, tried, what);
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

/// What only growing and repairing can meet is found by the sources made for it.
#[test]
fn mistakes_of_growing_and_repair_are_found_by_their_own_sources() {
    let _alone = GARDEN.lock();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    let flaws = Flaw::GROWTH_AND_REPAIR.map(Some);
    for flaw in [None].into_iter().chain(flaws) {
        let growing = flaw.is_none_or(|f| f as u8 <= Flaw::GrowthForgotten as u8);
        let repair = flaw.is_none_or(|f| f as u8 > Flaw::GrowthForgotten as u8);
        let (volumes, damages) = (if growing { 40 } else { 0 }, if repair { 200 } else { 0 });
        plant(flaw);
        let (mut growing, mut repair) = (Explored::default(), Explored::default());
        let grow = Grow::new(&Yfs, volumes, 1).expect("volumes that grow").keep_going(true);
        let repairs = Repairs::new(&Yfs, damages, 1).keep_going(true);
        let broken = std::iter::from_fn(|| grow.step(&mut growing)).filter(Result::is_err).count()
            + std::iter::from_fn(|| repairs.step(&mut repair)).filter(Result::is_err).count();
        let name = flaw.map_or_else(|| "-".to_string(), |f| format!("{f:?}"));
        let (a, b) = (growing, repair);
        eprintln!(
            "{name:<20} growing {} of {}, repair {} of {} states, {broken} without a cut",
            a.failed, a.distinct, b.failed, b.distinct
        );
        if let Some((_, text)) = Flaw::ALL.iter().find(|f| Some(f.0) == flaw) {
            note(&name, text, a.failed + b.failed, a.distinct + b.distinct, "states");
        }
        if (a.failed + b.failed == 0) != flaw.is_none() || flaw.is_none() && broken > 0 {
            missed.push(name);
        }
    }
    plant(None);
    std::panic::set_hook(hook);
    assert_eq!(missed, Vec::<String>::new(), "missed, or found where there is none");
}
