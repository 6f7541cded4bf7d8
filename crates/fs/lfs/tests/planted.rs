//! Plants each mistake of [`planted`](arbor_lfs::planted) in turn and lets the crash explorer look for it, on a small
//! volume so that the log goes round. Runs with `--features planted` only, and prints a table:
//!
//!     cargo test --release -p arbor-lfs --features planted --test planted -- --nocapture
//!
//! `ARBOR_SECONDS` is the tenth of the longest time that a mistake is looked for, 10 unless it says otherwise.
//! `ARBOR_FLAW` names one that is looked for alone, or `none`.

mod drills;

use arbor_base::vfs::Options;
use arbor_lfs::Lfs;
use arbor_lfs::planted::{Flaw, plant};
use arbor_torture::config::Config;
use arbor_torture::crash;
use arbor_torture::generate::Profile;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

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

/// Whether the explorer finds something wrong.
fn is_found(time: Duration) -> bool {
    let began = Instant::now();
    let mut seed = 1;
    while began.elapsed() < time {
        for config in volumes() {
            let config = Config { seed, count: config.count.min(2), shrink_runs: 0, ..config };
            if catch_unwind(AssertUnwindSafe(|| crash::explore(&Lfs, &config))).is_err() {
                return true;
            }
        }
        seed += 1000;
    }
    false
}

#[test]
fn every_planted_mistake_is_found() {
    let seconds = std::env::var("ARBOR_SECONDS").map_or(10, |s| s.parse().expect("ARBOR_SECONDS is a number"));
    let time = Duration::from_secs(10 * seconds);
    let only = std::env::var("ARBOR_FLAW").ok();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    let alone = only.as_deref() == Some("none");
    assert!(!is_found(if alone { time } else { Duration::from_secs(1) }), "found where there is none");
    let is_asked = |flaw: &Flaw| match &only {
        Some(only) => *only == format!("{flaw:?}"),
        None => !HIDDEN.contains(flaw),
    };
    for (flaw, text) in Flaw::ALL.iter().filter(|f| is_asked(&f.0)) {
        plant(Some(*flaw));
        let began = Instant::now();
        let found = is_found(time);
        eprintln!("{:<22} {:<5} {:>6.1} s {text}", format!("{flaw:?}"), found, began.elapsed().as_secs_f64());
        if !found {
            missed.push(format!("{flaw:?}"));
        }
    }
    plant(None);
    std::panic::set_hook(hook);
    assert_eq!(missed, Vec::<String>::new(), "missed");
}
