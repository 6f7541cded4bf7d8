//! Plants each mistake of [`planted`](arbor_plain::planted) in turn and lets the crash explorer look for it. Runs with
//! `--features planted` only, see [`arbor_torture::planted`]:
//!
//!     cargo test --release -p arbor-plain --features planted --test planted -- --nocapture

use arbor_plain::Plain;
use arbor_plain::planted::{Flaw, plant};
use arbor_torture::config::Config;
use arbor_torture::crash::try_explore;
use arbor_torture::generate::Profile;
use arbor_torture::machine::repeat;
use arbor_torture::planted::Planted;
use arbor_torture::run::guarded;
use arbor_torture::tally::Tally;
use std::time::{Duration, Instant};

const PLANTED: Planted<Flaw> = Planted { all: Flaw::ALL, plant, hidden: &[], note: |_| {} };

/// Shows `NumbersGoOn`, which takes a record that was kept without its flush, beside a superblock that was not, and another
/// cut of the mount after that.
const SHOWN: &str = "seed=2 profile=Dirs size=67108864 cuts=4:Seeded(1605837687),3:AllKept ops=create /f1169 0 0";

/// Sequences of all kinds, until one fails or the time is up.
fn look(flaw: Option<Flaw>, time: Duration) -> Tally {
    let (began, mut tally) = (Instant::now(), Tally::default());
    if flaw == Some(Flaw::NumbersGoOn) {
        tally.failures.extend(repeat(&Plain, SHOWN).err());
        return tally;
    }
    for seed in 1.. {
        for profile in [Profile::Small, Profile::Dirs, Profile::Sync, Profile::Full, Profile::Big] {
            let config = Config { seed, count: 1, shrink_runs: 0, ..Config::crash(profile) };
            match guarded(|| try_explore(&Plain, &config).map_err(|failure| failure.to_string())) {
                Ok(done) => tally.distinct_states += done.distinct,
                Err(failure) => tally.failures.push(failure),
            }
            if !tally.failures.is_empty() || began.elapsed() > time {
                return tally;
            }
        }
    }
    tally
}

#[test]
fn every_planted_mistake_is_found() {
    PLANTED.each_is_found(|_| true, look);
}
