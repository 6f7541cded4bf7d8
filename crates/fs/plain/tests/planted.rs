//! Plants each mistake of [`planted`](arbor_plain::planted) in turn and lets the crash explorer look for it. Runs with
//! `--features planted` only, see [`arbor_torture::planted`]:
//!
//!     cargo test --release -p arbor-plain --features planted --test planted -- --nocapture

use arbor_plain::Plain;
use arbor_plain::planted::{Flaw, plant};
use arbor_torture::generate::Profile;
use arbor_torture::machine::repeat;
use arbor_torture::planted::{Planted, explore};
use arbor_torture::tally::Tally;

const PLANTED: Planted<Flaw> = Planted { all: Flaw::ALL, plant, hidden: &[], note: |_| {} };

/// Shows `NumbersGoOn`, which takes a record that was kept without its flush, beside a superblock that was not, and another
/// cut of the mount after that.
const SHOWN: &str = "seed=2 profile=Dirs size=67108864 cuts=4:Seeded(1605837687),3:AllKept ops=create /f1169 0 0";

const PROFILES: [Profile; 5] = [Profile::Small, Profile::Dirs, Profile::Sync, Profile::Full, Profile::Big];

#[test]
fn every_planted_mistake_is_found() {
    PLANTED.each_is_found(
        |_| true,
        |flaw, time| match flaw {
            Some(Flaw::NumbersGoOn) => {
                Tally { failures: repeat(&Plain, SHOWN).err().into_iter().collect(), ..Tally::default() }
            }
            _ => explore(&Plain, "", &PROFILES, time),
        },
    );
}
