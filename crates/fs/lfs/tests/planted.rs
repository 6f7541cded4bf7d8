//! Plants each mistake of [`planted`](arbor_lfs::planted) in turn and lets the crash explorer look for it, on a small
//! volume so that the log goes round. Runs with `--features planted` only, see [`arbor_torture::planted`]:
//!
//!     cargo test --release -p arbor-lfs --features planted --test planted -- --nocapture

mod drills;

use arbor_base::vfs::Options;
use arbor_lfs::Lfs;
use arbor_lfs::planted::{Flaw, plant};
use arbor_torture::config::Config;
use arbor_torture::generate::Profile;
use arbor_torture::planted::{Planted, explore_volumes};

const PLANTED: Planted<Flaw> =
    Planted { engine: &Lfs, all: Flaw::ALL, plant, hidden: &HIDDEN, lines: include_str!("planted.txt"), note: |_| {} };

/// They take longer (a minute on two cores): looked for when they are named.
const HIDDEN: [Flaw; 2] = [Flaw::EpochStays, Flaw::TableUncounted];

/// What it looks at: volumes so small that the log goes round and is cleaned, of the usual size, and with several blocks of
/// the usage table.
fn volumes() -> Vec<Config> {
    let sized = |profile, device_size, ops, format: &str| Config {
        device_size,
        ops,
        format: Options::parse(format),
        ..Config::crash(profile)
    };
    let mut all = vec![drills::over_and_over(), drills::many_inodes()];
    all.push(sized(Profile::Churn, 3 << 20, 300, "segment=64K,block=4K"));
    for profile in [Profile::Churn, Profile::Full, Profile::Small, Profile::Sync, Profile::Dirs, Profile::Big] {
        all.push(sized(profile, 6 << 20, 120, "segment=128K,block=4K"));
        all.push(Config { ops: 120, ..Config::crash(profile) });
        all.push(sized(profile, 64 << 20, 120, "segment=64K,block=4K"));
    }
    all
}

#[test]
fn every_planted_mistake_is_found() {
    PLANTED.each_is_found(|_| true, |_, time| explore_volumes(&Lfs, &volumes(), time));
}

/// Mistakes that core itself can see make a call panic with the number of the invariant that they break.
#[test]
fn invariants_trip_on_mistakes() {
    PLANTED.invariants_trip();
}
