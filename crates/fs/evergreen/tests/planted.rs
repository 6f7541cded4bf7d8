//! Plants each mistake of [`planted`](arbor_evergreen::planted) in turn and lets the crash explorer look for it. Runs with
//! `--features planted` only, see [`arbor_torture::planted`]:
//!
//!     cargo test --release -p arbor-evergreen --features planted --test planted -- --nocapture

mod damage_kit;
mod gather_kit;
mod history_kit;

use arbor_evergreen::Evergreen;
use arbor_evergreen::planted::{Flaw, plant};
use arbor_torture::crash::Explored;
use arbor_torture::damage;
use arbor_torture::generate::Profile;
use arbor_torture::grow::Grow;
use arbor_torture::planted::{Planted, counting, explore};
use arbor_torture::tally::Tally;

const PLANTED: Planted<Flaw> = Planted {
    engine: &Evergreen,
    all: Flaw::ALL,
    plant,
    hidden: &[],
    lines: include_str!("planted.txt"),
    note: |_| {},
};

const PROFILES: [Profile; 5] = [Profile::Small, Profile::Dirs, Profile::Sync, Profile::Full, Profile::Big];

/// Where blocks are overwritten the redo list is used.
fn mount(flaw: Option<Flaw>) -> &'static str {
    match flaw {
        Some(Flaw::CopiesReused) => "modify=overwrite,redo=all",
        Some(Flaw::NoRedo | Flaw::LaidForgotten | Flaw::BehindTheEnd) => "modify=overwrite",
        _ => "",
    }
}

/// What only a mount of an older commit shows.
fn older_commits() -> Tally {
    let failed = std::panic::catch_unwind(|| {
        let (dev, trees) = history_kit::lives(history_kit::TIGHT, &[history_kit::RETAIN]);
        history_kit::compare(&dev, &trees)
    });
    Tally { failures: failed.err().map(|_| "an older commit".to_string()).into_iter().collect(), ..Tally::default() }
}

/// What only an idle volume shows whose free blocks are in pieces.
fn idle_time() -> Tally {
    let failed = std::panic::catch_unwind(|| {
        let (dev, fs) = gather_kit::scattered(2500, gather_kit::UNITS);
        let tree = damage::tree_in(&*fs);
        gather_kit::idle(&*fs, 10, 60);
        fs.unmount().expect("unmount");
        drop(fs);
        assert_eq!(damage::tree(&Evergreen, &dev), tree);
    });
    Tally { failures: failed.err().map(|_| "gathered".to_string()).into_iter().collect(), ..Tally::default() }
}

/// What only a growth beside what another one has left shows.
fn another_growth() -> Tally {
    let failed = std::panic::catch_unwind(|| {
        let (cut, tree) = history_kit::grown_beside_another();
        assert_eq!(damage::tree(&Evergreen, &cut), tree);
    });
    Tally { failures: failed.err().map(|_| "a growth".to_string()).into_iter().collect(), ..Tally::default() }
}

#[test]
fn every_planted_mistake_is_found() {
    PLANTED.each_is_found(
        |flaw| !Flaw::GROWTH.contains(&flaw),
        |flaw, time| match flaw {
            Some(Flaw::HistoryReused) => older_commits(),
            Some(Flaw::GatheredBlank) => idle_time(),
            _ => explore(&Evergreen, mount(flaw), &PROFILES, time),
        },
    );
}

#[test]
fn mistakes_of_growing_are_found_by_volumes_that_grow() {
    PLANTED.each_is_found(
        |flaw| Flaw::GROWTH.contains(&flaw),
        |flaw, _| {
            if flaw == Some(Flaw::OldGrowthBelieved) {
                return another_growth();
            }
            let mut done = Explored::default();
            let grow = Grow::new(&Evergreen, 60, 1).expect("volumes that grow").keep_going(counting());
            let failures = std::iter::from_fn(|| grow.step(&mut done)).filter_map(Result::err).map(|f| f.to_string());
            let failures = if counting() { failures.collect() } else { failures.take(1).collect() };
            Tally { distinct_states: done.distinct, failed_states: done.failed, failures, ..Tally::default() }
        },
    );
}
