//! Plants each mistake of [`planted`](arbor_evergreen::planted) in turn and lets the crash explorer look for it. Runs with
//! `--features planted` only, see [`arbor_torture::planted`]:
//!
//!     cargo test --release -p arbor-evergreen --features planted --test planted -- --nocapture

use arbor_evergreen::Evergreen;
use arbor_evergreen::planted::{Flaw, plant};
use arbor_torture::generate::Profile;
use arbor_torture::planted::{Planted, explore};

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

#[test]
fn every_planted_mistake_is_found() {
    PLANTED.each_is_found(|_| true, |flaw, time| explore(&Evergreen, mount(flaw), &PROFILES, time));
}
