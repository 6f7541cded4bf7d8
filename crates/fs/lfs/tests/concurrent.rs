//! Several threads on one volume.
//!
//! `ARBOR_COUNT` and `ARBOR_SEED` say how many programs and which.

use arbor_base::vfs::Options;
use arbor_lfs::Lfs;
use arbor_torture::concurrent;
use arbor_torture::config::Config;
use arbor_torture::generate::Profile;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}: {v:?} is no number")))
}

/// What each call says is what some order of the calls gives, and so is the tree in the end.
#[test]
fn threads_see_an_order() {
    let config = Config { mount: Options::parse("cache=1M"), ..Config::new(Profile::Sync) };
    concurrent::threads(&Lfs, &config, number("ARBOR_SEED", 1), number("ARBOR_COUNT", 100));
}

#[test]
fn threads_beside_the_daemon() {
    concurrent::beside_the_daemon(&Lfs, "block=4K,segment=64K", "cache=1M");
    concurrent::beside_the_daemon(&Lfs, "block=4K,segment=64K", "cache=1M,clean=greedy");
}

/// Under chosen schedules: other calls come while the device reads for one.
#[test]
fn tasks_see_an_order() {
    let tally = concurrent::run(&Lfs, number("ARBOR_SEED", 1), 2_000, false, &mut |_| true);
    assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n"));
    eprintln!("{tally:?}");
    assert!(tally.schedules >= 2_000, "{tally:?}");
}

#[test]
fn reads_keep_nobody_waiting() {
    let config = Config { mount: Options::parse("cache=1M"), ..Config::new(Profile::Sync) };
    arbor_torture::gate::reads_keep_nobody_waiting(&Lfs, &config);
}
