//! Plants each mistake of [`planted`](arbor_reiserfs::planted) in turn and lets the crash explorer look for it. Runs with
//! `--features planted` only, see [`arbor_torture::planted`]:
//!
//!     cargo test --release -p arbor-reiserfs --features planted --test planted -- --nocapture

use arbor_reiserfs::ReiserFs;
use arbor_reiserfs::planted::{Flaw, plant};
use arbor_torture::generate::Profile;
use arbor_torture::planted::{Planted, explore};

const PLANTED: Planted<Flaw> = Planted { all: Flaw::ALL, plant, hidden: &[], note: |_| {} };
const PROFILES: [Profile; 6] =
    [Profile::Small, Profile::Dirs, Profile::Sync, Profile::Full, Profile::Big, Profile::Churn];

#[test]
fn every_planted_mistake_is_found() {
    PLANTED.each_is_found(|_| true, |_, time| explore(&ReiserFs, &PROFILES, time));
}
