//! Plants each mistake of [`planted`](arbor_reiserfs::planted) in turn and lets the crash explorer look for it. Runs with
//! `--features planted` only, see [`arbor_torture::planted`]:
//!
//!     cargo test --release -p arbor-reiserfs --features planted --test planted -- --nocapture

mod damage_kit;

use arbor_reiserfs::ReiserFs;
use arbor_reiserfs::planted::{Flaw, plant};
use arbor_torture::generate::Profile;
use arbor_torture::planted::{Planted, explore, explore_faults};
use arbor_torture::tally::Tally;
use damage_kit::node_in_a_file;

const PLANTED: Planted<Flaw> =
    Planted { engine: &ReiserFs, all: Flaw::ALL, plant, hidden: &[], lines: include_str!("planted.txt"), note: |_| {} };
const PROFILES: [Profile; 6] =
    [Profile::Small, Profile::Dirs, Profile::Sync, Profile::Full, Profile::Big, Profile::Churn];

#[test]
fn every_planted_mistake_is_found() {
    PLANTED.each_is_found(
        |_| true,
        |flaw, time| match flaw {
            Some(Flaw::ForeignBelieved) => {
                let failed = std::panic::catch_unwind(node_in_a_file).is_err();
                Tally {
                    failures: failed.then(|| "a node in a file".to_string()).into_iter().collect(),
                    ..Tally::default()
                }
            }
            Some(Flaw::FreshAfterRecord | Flaw::PreservedEarly | Flaw::MoveNotTold | Flaw::WrittenOver) => {
                explore(&ReiserFs, "ordering=preserve", &PROFILES, time)
            }
            Some(Flaw::CleanUnflushed) => explore_faults(&ReiserFs, time),
            Some(_) => explore(&ReiserFs, "", &PROFILES, time),
            None => {
                node_in_a_file();
                let mut tally = explore(&ReiserFs, "", &PROFILES, time / 2);
                tally.add(explore(&ReiserFs, "ordering=preserve", &PROFILES, time / 2));
                tally
            }
        },
    );
}
