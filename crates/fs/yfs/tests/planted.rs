//! Plants each mistake of [`planted`](arbor_yfs::planted) in turn and lets the crash explorer look
//! for it. Runs with `--features planted` only, and prints a table:
//!
//!     cargo test --release -p arbor-yfs --features planted --test planted -- --nocapture
//!
//! `ARBOR_SECONDS` is the time for each mistake, 10 unless it says otherwise; those of growing and
//! repair have a number of volumes instead. `ARBOR_FLAW` names one that is looked for alone.

mod small_cache;

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

/// A mistake or none, and what it does.
type Plant = (Option<Flaw>, &'static str);

fn name(flaw: Option<Flaw>) -> String {
    flaw.map_or_else(|| "none".to_string(), |f| format!("{f:?}"))
}

/// None and the mistakes that are `here`, but only the one that `ARBOR_FLAW` names, if it does;
/// prints the head of their table.
fn asked(here: impl Fn(Flaw) -> bool) -> Vec<Plant> {
    let all: Vec<Plant> =
        [(None, "none is planted")].into_iter().chain(Flaw::ALL.iter().map(|f| (Some(f.0), f.1))).collect();
    let only = std::env::var("ARBOR_FLAW").ok();
    let is_asked = |plant: &Plant| only.as_ref().is_none_or(|only| name(plant.0) == *only);
    if !all.iter().any(is_asked) {
        let known: Vec<String> = all.iter().map(|p| name(p.0)).collect();
        panic!("no such mistake: {}, known: {}", only.unwrap_or_default(), known.join(", "));
    }
    let asked: Vec<Plant> = all.into_iter().filter(|p| p.0.is_none_or(&here) && is_asked(p)).collect();
    if !asked.is_empty() {
        eprintln!("{:<20} {:>8} of {:>8} {:<9} what it does", "mistake", "failing", "tried", "");
    }
    asked
}

/// Plants each and lets `look` look for it; each has to be found, and nothing where there is none.
fn each_is_found(plants: Vec<Plant>, look: impl Fn(Option<Flaw>) -> Tally) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for (flaw, text) in plants {
        plant(flaw);
        let tally = look(flaw);
        let found = tally.failed_states + tally.failures.len() as u64;
        let scheduled = flaw.is_some_and(|f| Flaw::CONCURRENT.contains(&f));
        let (tried, what) = if scheduled { (tally.schedules, "schedules") } else { (tally.distinct_states, "states") };
        eprintln!("{:<20} {found:>8} of {tried:>8} {what:<9} {text}", name(flaw));
        if let Some(failure) = tally.failures.first().filter(|_| flaw.is_none()) {
            eprintln!("{failure}");
        }
        // Growing and repair alone are not the whole run without a mistake.
        if flaw.is_some() || tally.schedules > 0 {
            note(&name(flaw), text, found, tried, what);
        }
        if (found == 0) != flaw.is_none() {
            missed.push(name(flaw));
        }
    }
    plant(None);
    std::panic::set_hook(hook);
    assert_eq!(missed, Vec::<String>::new(), "missed, or found where there is none");
}

#[test]
fn every_planted_mistake_is_found() {
    let _alone = GARDEN.lock();
    let seconds = std::env::var("ARBOR_SECONDS").map_or(10, |s| s.parse().expect("ARBOR_SECONDS is a number"));
    let plan = Plan { time: Some(Duration::from_secs(seconds)), keep_going: true, plain: 0, ..Plan::whole(1) };
    each_is_found(
        asked(|flaw| !Flaw::GROWTH_AND_REPAIR.contains(&flaw) && !Flaw::SMALL_CACHE.contains(&flaw)),
        |flaw| {
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
            tally
        },
    );
}

/// What only growing and repairing can meet is found by the sources made for it.
#[test]
fn mistakes_of_growing_and_repair_are_found_by_their_own_sources() {
    let _alone = GARDEN.lock();
    each_is_found(asked(|flaw| Flaw::GROWTH_AND_REPAIR.contains(&flaw)), |flaw| {
        let growing = flaw.is_none_or(|f| f as u8 <= Flaw::GrowthForgotten as u8);
        let repair = flaw.is_none_or(|f| f as u8 > Flaw::GrowthForgotten as u8);
        let (volumes, damages) = (if growing { 40 } else { 0 }, if repair { 200 } else { 0 });
        let mut done = Explored::default();
        let grow = Grow::new(&Yfs, volumes, 1).expect("volumes that grow").keep_going(true);
        let repairs = Repairs::new(&Yfs, damages, 1).keep_going(true);
        let next = || grow.step(&mut done).or_else(|| repairs.step(&mut done));
        let failures = std::iter::from_fn(next).filter_map(Result::err).map(|f| f.to_string()).collect();
        // A mistake has to be found by a cut.
        let failures = if flaw.is_none() { failures } else { Vec::new() };
        Tally { distinct_states: done.distinct, failed_states: done.failed, failures, ..Tally::default() }
    });
}

/// What only a cache smaller than the files can meet is found by reading them.
#[test]
fn mistakes_of_read_ahead_are_found_by_a_small_cache() {
    let _alone = GARDEN.lock();
    each_is_found(asked(|flaw| Flaw::SMALL_CACHE.contains(&flaw)), |_| {
        let failures: Vec<String> = (1..=4).filter_map(|seed| small_cache::run(seed, 6000)).collect();
        Tally { distinct_states: 4, failures, ..Tally::default() }
    });
}
