//! Plants each mistake of [`planted`](arbor_plain::planted) in turn and lets the crash explorer look for it. Runs with
//! `--features planted` only, see [`arbor_torture::planted`]:
//!
//!     cargo test --release -p arbor-plain --features planted --test planted -- --nocapture

use arbor_plain::Plain;
use arbor_plain::planted::{Flaw, plant};
use arbor_torture::generate::Profile;
use arbor_torture::planted::{Planted, explore};

const PLANTED: Planted<Flaw> =
    Planted { engine: &Plain, all: Flaw::ALL, plant, hidden: &[], lines: include_str!("planted.txt"), note: |_| {} };

const PROFILES: [Profile; 5] = [Profile::Small, Profile::Dirs, Profile::Sync, Profile::Full, Profile::Big];

#[test]
fn every_planted_mistake_is_found() {
    PLANTED.each_is_found(|_| true, |_, time| explore(&Plain, "", &PROFILES, time));
}
