//! Plants each mistake of [`planted`](arbor_plain::planted) in turn and lets the crash explorer look for it. Runs with
//! `--features planted` only, see [`arbor_torture::planted`]:
//!
//!     cargo test --release -p arbor-plain --features planted --test planted -- --nocapture

use arbor_plain::Plain;
use arbor_plain::planted::{Flaw, plant};
use arbor_torture::machine::{Plan, crash};
use arbor_torture::planted::{Planted, found};

const PLANTED: Planted<Flaw> = Planted { all: Flaw::ALL, plant, hidden: &[], note: |_| {} };

#[test]
fn every_planted_mistake_is_found() {
    PLANTED.each_is_found(
        |_| true,
        |_, time| {
            let plan = Plan { time: Some(time), keep_going: true, plain: 0, ..Plan::whole(1) };
            crash(&Plain, &plan, &mut |tally| found(tally) == 0)
        },
    );
}
