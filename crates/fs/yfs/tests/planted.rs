//! Plants each mistake of [`planted`](arbor_yfs::planted) in turn and lets the crash explorer, tasks under chosen
//! schedules, a device that fails, or a small cache look for it. Runs with `--features planted` only, see [`arbor_torture::planted`]:
//!
//!     cargo test --release -p arbor-yfs --features planted --test planted -- --nocapture
//!
//! `ARBOR_FIGURES` names a file for the counts of the figures: of each mistake in how many of the states that a share of
//! the time allows it shows. Those of growing and repair have a number of volumes instead.

mod small_cache;

use arbor_torture::concurrent::run;
use arbor_torture::crash::Explored;
use arbor_torture::grow::Grow;
use arbor_torture::machine::{Plan, crash};
use arbor_torture::planted::{Planted, Row, counting, explore_faults, found};
use arbor_torture::repair::Repairs;
use arbor_torture::tally::Tally;
use arbor_yfs::Yfs;
use arbor_yfs::planted::{Flaw, plant};
use std::time::{Duration, Instant};

const PLANTED: Planted<Flaw> =
    Planted { engine: &Yfs, all: Flaw::ALL, plant, hidden: &[], lines: include_str!("planted.txt"), note };

/// Adds a line to the figures, a JSON list in the file that `ARBOR_FIGURES` names.
fn note(row: &Row) {
    let Some(path) = std::env::var_os("ARBOR_FIGURES") else { return };
    let Row { mistake, text, found, tried, what, tally } = row;
    // Growing, repair and small caches alone are not the whole run without a mistake.
    if mistake == "none" && tally.schedules == 0 {
        return;
    }
    let mut all: Vec<serde_json::Value> = match std::fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).expect("a list of figures"),
        Err(_) => Vec::new(),
    };
    all.retain(|one| one["mistake"] != **mistake);
    all.push(serde_json::json!({ "mistake": mistake, "text": text, "found": found, "tried": tried, "what": what }));
    std::fs::write(&path, serde_json::to_vec_pretty(&all).expect("JSON")).expect("ARBOR_FIGURES can be written");
}

/// Crash states until one fails; where they are counted all failures in a share of the time, then until one is met.
fn cuts(flaw: Option<Flaw>, time: Duration) -> Tally {
    if !counting() {
        let plan = Plan { time: Some(time), plain: 0, ..Plan::whole(1) };
        return crash(&Yfs, &plan, &mut |t| found(t) == 0);
    }
    let share = if flaw.is_none() { time } else { time / 10 };
    let plan = Plan { time: Some(share), keep_going: true, plain: 0, ..Plan::whole(1) };
    let mut tally = crash(&Yfs, &plan, &mut |_| true);
    if tally.failed_states == 0 && flaw.is_some() {
        let more = Plan { time: Some(time), seed: 2, ..plan };
        tally.add(crash(&Yfs, &more, &mut |t| t.failed_states == 0));
    }
    tally
}

/// Tasks at once, counted for a share of the time; some failures need several rare things to come together, and get four
/// times as long as others.
fn scheduled(flaw: Option<Flaw>, time: Duration) -> Tally {
    let began = Instant::now();
    let (share, most) = if flaw.is_none() { (time, time) } else { (time / 10, 4 * time) };
    run(&Yfs, 1, u64::MAX, counting(), &mut |t| {
        let took = began.elapsed();
        counting() && took < share || found(t) == 0 && took < most
    })
}

#[test]
fn every_planted_mistake_is_found() {
    PLANTED.each_is_found(
        |flaw| !Flaw::GROWTH_AND_REPAIR.contains(&flaw) && !Flaw::SMALL_CACHE.contains(&flaw),
        |flaw, time| {
            if flaw.is_some_and(|f| Flaw::FAULTS.contains(&f)) {
                return explore_faults(&Yfs, time);
            }
            let mut tally = Tally::default();
            if flaw.is_none_or(|f| !Flaw::CONCURRENT.contains(&f)) {
                tally.add(cuts(flaw, time));
            }
            if flaw.is_none_or(|f| Flaw::CONCURRENT.contains(&f)) {
                tally.add(scheduled(flaw, time));
            }
            tally
        },
    );
}

/// What only growing and repairing can meet is found by the sources made for it.
#[test]
fn mistakes_of_growing_and_repair_are_found_by_their_own_sources() {
    PLANTED.each_is_found(
        |flaw| Flaw::GROWTH_AND_REPAIR.contains(&flaw),
        |flaw, _| {
            let growing = flaw.is_none_or(|f| f as u8 <= Flaw::GrowthForgotten as u8);
            let repair = flaw.is_none_or(|f| f as u8 > Flaw::GrowthForgotten as u8);
            let (volumes, damages) = (if growing { 40 } else { 0 }, if repair { 200 } else { 0 });
            let mut done = Explored::default();
            let grow = Grow::new(&Yfs, volumes, 1).expect("volumes that grow").keep_going(counting());
            let repairs = Repairs::new(&Yfs, damages, 1).keep_going(counting());
            let next = || grow.step(&mut done).or_else(|| repairs.step(&mut done));
            let failures = std::iter::from_fn(next).filter_map(Result::err).map(|f| f.to_string());
            // A mistake has to be found by a cut.
            let failures = failures.filter(|f| flaw.is_none() || f.contains(" cuts="));
            let failures = if counting() { failures.collect() } else { failures.take(1).collect() };
            Tally { distinct_states: done.distinct, failed_states: done.failed, failures, ..Tally::default() }
        },
    );
}

/// What only a cache smaller than the files can meet is found by reading them.
#[test]
fn mistakes_of_read_ahead_are_found_by_a_small_cache() {
    PLANTED.each_is_found(
        |flaw| Flaw::SMALL_CACHE.contains(&flaw),
        |_, _| {
            let failures: Vec<String> = (1..=4).filter_map(|seed| small_cache::run(seed, 6000)).collect();
            Tally { distinct_states: 4, failures, ..Tally::default() }
        },
    );
}

/// Mistakes that core itself can see make a call panic with the number of the invariant that they break.
#[test]
fn invariants_trip_on_mistakes() {
    PLANTED.invariants_trip();
}
