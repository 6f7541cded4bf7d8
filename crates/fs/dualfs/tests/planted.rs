//! Plants each mistake of [`planted`](arbor_dualfs::planted) in turn and lets the crash explorer look for it. Runs with
//! `--features planted` only, see [`arbor_torture::planted`]:
//!
//!     cargo test --release -p arbor-dualfs --features planted --test planted -- --nocapture

use arbor_dualfs::DualFs;
use arbor_dualfs::planted::{Flaw, plant};
use arbor_torture::generate::Profile;
use arbor_torture::planted::{Planted, explore};

const PLANTED: Planted<Flaw> =
    Planted { engine: &DualFs, all: Flaw::ALL, plant, hidden: &[], lines: include_str!("planted.txt"), note: |_| {} };

const PROFILES: [Profile; 5] = [Profile::Small, Profile::Dirs, Profile::Sync, Profile::Full, Profile::Big];

/// Where blocks move they are freed.
fn mount(flaw: Option<Flaw>) -> &'static str {
    match flaw {
        Some(Flaw::FreedAtOnce | Flaw::FreedForgotten) => "modify=relocate",
        _ => "",
    }
}

#[test]
fn every_planted_mistake_is_found() {
    PLANTED.each_is_found(|_| true, |flaw, time| explore(&DualFs, mount(flaw), &PROFILES, time));
}
