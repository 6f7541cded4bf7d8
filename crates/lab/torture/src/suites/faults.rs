//! Errors and lies of the device: the call that meets one says so, and what was synced before is there after recovery.

use super::{Faults, Flips, Suite, Suites, drawn};
use crate::faults;
use crate::turns::Turns;
use arbor_base::device::{FaultOp, FaultTimes};

/// The volume under each of the variants.
fn each(s: &Suites, given: &Faults, test: impl Fn(&Turns<'_>)) {
    let Faults { format, files, step, .. } = *given;
    s.variants.iter().for_each(|mount| test(&Turns { engine: s.engine, format, mount, files, step }));
}

/// Each write in its turn, once.
pub fn every_write_fails_once(s: &Suites, given: &Faults) {
    each(s, given, |turns| turns.fail(FaultOp::Write, FaultTimes::Once));
}

/// Each write in its turn, and all that come after it.
pub fn every_write_fails_from_then_on(s: &Suites, given: &Faults) {
    each(s, given, |turns| turns.fail(FaultOp::Write, FaultTimes::FromThenOn));
}

/// Each flush in its turn.
pub fn every_flush_fails_once(s: &Suites, given: &Faults) {
    each(s, given, |turns| turns.fail(FaultOp::Flush, FaultTimes::Once));
}

/// Each write in its turn panics.
pub fn every_write_panics(s: &Suites, given: &Faults) {
    each(s, given, |turns| turns.panic(FaultOp::Write));
}

/// Each flush in its turn panics.
pub fn every_flush_panics(s: &Suites, given: &Faults) {
    each(s, given, |turns| turns.panic(FaultOp::Flush));
}

/// The fault machine, bounded: `arbor torture --only fault` runs more of it.
pub fn every_sort_of_fault(s: &Suites, given: &Faults) {
    let (seed, count) = drawn(given.drawn);
    let tally = faults::run(s.engine, seed, count, &mut |_| true);
    assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n"));
    assert!(tally.faults >= count, "{tally:?}");
}

/// Bits that flip while a mount reads.
pub fn a_bit_flipped_in_transfer_does_no_harm(s: &Suites, given: &Flips) {
    let Suite::Run(faults) = &s.faults else { panic!("the suite `flips` takes its volume from `faults`") };
    each(s, faults, |turns| turns.flip(given.reads, given.bits));
}
