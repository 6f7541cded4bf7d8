//! Errors and lies of the device: every operation of it fails in its turn, in every way that the laboratory knows.
//!
//! `ARBOR_COUNT` and `ARBOR_SEED` say how many faults and which.

use arbor_base::device::{FaultOp, FaultTimes};
use arbor_lfs::Lfs;
use arbor_torture::turns::Turns;

const TURNS: Turns<'_> = Turns { engine: &Lfs, format: "", mount: "", files: 8, step: 9000 };

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

#[test]
fn every_write_fails_once() {
    TURNS.fail(FaultOp::Write, FaultTimes::Once);
}

#[test]
fn every_write_fails_from_then_on() {
    TURNS.fail(FaultOp::Write, FaultTimes::FromThenOn);
}

#[test]
fn every_flush_fails_once() {
    TURNS.fail(FaultOp::Flush, FaultTimes::Once);
}

#[test]
fn every_write_panics() {
    TURNS.panic(FaultOp::Write);
}

#[test]
fn every_flush_panics() {
    TURNS.panic(FaultOp::Flush);
}
