//! Plants each mistake of [`planted`](arbor_reiserfs::planted) in turn and lets the crash explorer, the model and the
//! checker look for it. Runs with `--features planted` only, see [`arbor_torture::planted`]:
//!
//!     cargo test --release -p arbor-reiserfs --features planted --test planted -- --nocapture

use arbor_reiserfs::ReiserFs;
use arbor_reiserfs::planted::{Flaw, plant};
use arbor_torture::config::Config;
use arbor_torture::crash::try_explore;
use arbor_torture::generate::Profile;
use arbor_torture::machine::repeat;
use arbor_torture::planted::Planted;
use arbor_torture::run::guarded;
use arbor_torture::tally::Tally;
use std::time::{Duration, Instant};

const PLANTED: Planted<Flaw> = Planted { all: Flaw::ALL, plant, hidden: &[], note: |_| {} };

/// Lines that show a mistake for which a search takes long.
const SHOWN: &[(Flaw, &str)] = &[];

/// Sequences of all kinds, until one fails or the time is up.
fn look(flaw: Option<Flaw>, time: Duration) -> Tally {
    let (began, mut tally) = (Instant::now(), Tally::default());
    if let Some((_, line)) = SHOWN.iter().find(|(shown, _)| Some(*shown) == flaw) {
        tally.failures.extend(repeat(&ReiserFs, line).err());
        return tally;
    }
    for seed in 1.. {
        for profile in [Profile::Small, Profile::Dirs, Profile::Sync, Profile::Full, Profile::Big, Profile::Churn] {
            let config = Config { seed, count: 1, shrink_runs: 0, ..Config::crash(profile) };
            match guarded(|| try_explore(&ReiserFs, &config).map_err(|failure| failure.to_string())) {
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
