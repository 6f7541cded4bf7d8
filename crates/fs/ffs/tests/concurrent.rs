//! Several threads on one volume, in all four ways to keep metadata.
//!
//! `ARBOR_COUNT` and `ARBOR_SEED` say how many programs and which.

use arbor_base::vfs::Options;
use arbor_ffs::Ffs;
use arbor_torture::concurrent;
use arbor_torture::config::Config;
use arbor_torture::generate::Profile;

const KEEPINGS: [&str; 4] = ["async", "sync", "softupdates", "journal"];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}: {v:?} is no number")))
}

/// What each call says is what some order of the calls gives, and so is the tree in the end.
#[test]
fn threads_see_an_order() {
    for keep in KEEPINGS {
        let config = Config { mount: Options::parse(&format!("keep={keep},cache=1M")), ..Config::new(Profile::Sync) };
        concurrent::threads(&Ffs, &config, number("ARBOR_SEED", 1), number("ARBOR_COUNT", 100));
    }
}

/// What failed once under chosen schedules; all of these when `Engine::overlaps_calls` says `true`.
#[test]
fn what_failed_once() {
    concurrent::regressions(
        &Ffs,
        "schedule=13788355865073 size=67108864 format=block=4K,cg=4M,journal=1M mount=keep=journal,cache=1M \
         setup=create /a 420 0; write /a 0 200000 1; syncfs; remount \
         tasks=background 40000 | truncate @0 0; background 40000",
        400,
    );
}

#[test]
fn threads_beside_the_daemon() {
    for keep in KEEPINGS {
        concurrent::beside_the_daemon(&Ffs, "block=4K,cg=8M", &format!("keep={keep},cache=1M"));
    }
}

/// Under chosen schedules: other calls come while the device reads for one.
#[test]
fn tasks_see_an_order() {
    let tally = concurrent::run(&Ffs, number("ARBOR_SEED", 1), 2_000, false, &mut |_| true);
    assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n"));
    eprintln!("{tally:?}");
    assert!(tally.schedules >= 2_000, "{tally:?}");
}

#[test]
fn reads_keep_nobody_waiting() {
    for keep in KEEPINGS {
        let mount = Options::parse(&format!("keep={keep},cache=1M"));
        arbor_torture::gate::reads_keep_nobody_waiting(&Ffs, &Config { mount, ..Config::new(Profile::Sync) });
    }
}
