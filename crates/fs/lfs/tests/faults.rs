//! Errors and lies of the device: every operation of it fails in its turn, in every way that the laboratory knows.
//!
//! `ARBOR_COUNT` and `ARBOR_SEED` say how many faults and which.

use arbor_lfs::Lfs;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}: {v:?} is no number")))
}

#[test]
fn every_sort_of_fault() {
    let count = number("ARBOR_COUNT", 400);
    let tally = arbor_torture::faults::run(&Lfs, number("ARBOR_SEED", 1), count, &mut |_| true);
    assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n"));
    assert!(tally.faults >= count, "{tally:?}");
}
