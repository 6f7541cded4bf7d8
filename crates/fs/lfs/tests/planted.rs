//! Plants each mistake of [`planted`](arbor_lfs::planted) in turn and lets the crash explorer look for it, on a small
//! volume so that the log goes round. Runs with `--features planted` only, and prints a table:
//!
//!     cargo test --release -p arbor-lfs --features planted --test planted -- --nocapture
//!
//! `ARBOR_FLAW` names one that is looked for alone, or `none`.

use arbor_base::vfs::Options;
use arbor_lfs::Lfs;
use arbor_lfs::planted::{Flaw, plant};
use arbor_torture::config::Config;
use arbor_torture::crash;
use arbor_torture::generate::Profile;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Not found: too little is written for the log to go from one block of the usage table to the next. Looked for when it
/// is named.
const HIDDEN: [Flaw; 1] = [Flaw::TableUncounted];

/// Longest that one mistake is looked for.
const TIME: Duration = Duration::from_secs(60);

/// Whether the explorer finds something wrong.
fn is_found(time: Duration) -> bool {
    let began = Instant::now();
    let mut seed = 1;
    while began.elapsed() < time {
        for profile in [Profile::Full, Profile::Small, Profile::Sync, Profile::Dirs, Profile::Big] {
            let base = Config::crash(profile);
            let small =
                Config { device_size: 6 << 20, format: Options::parse("segment=128K,block=4K"), ..base.clone() };
            // The usage table has several blocks.
            let many = Config { device_size: 64 << 20, format: Options::parse("segment=64K,block=4K"), ..base.clone() };
            for config in [small, base, many] {
                let config = Config { seed, count: 2, shrink_runs: 0, ops: 120, ..config };
                if catch_unwind(AssertUnwindSafe(|| crash::explore(&Lfs, &config))).is_err() {
                    return true;
                }
            }
        }
        seed += 1000;
    }
    false
}

#[test]
fn every_planted_mistake_is_found() {
    let only = std::env::var("ARBOR_FLAW").ok();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    let alone = only.as_deref() == Some("none");
    assert!(!is_found(if alone { TIME } else { Duration::from_secs(1) }), "found where there is none");
    let is_asked = |flaw: &Flaw| match &only {
        Some(only) => *only == format!("{flaw:?}"),
        None => !HIDDEN.contains(flaw),
    };
    for (flaw, text) in Flaw::ALL.iter().filter(|f| is_asked(&f.0)) {
        plant(Some(*flaw));
        let began = Instant::now();
        let found = is_found(TIME);
        eprintln!("{:<22} {:<5} {:>6.1} s {text}", format!("{flaw:?}"), found, began.elapsed().as_secs_f64());
        if !found {
            missed.push(format!("{flaw:?}"));
        }
    }
    plant(None);
    std::panic::set_hook(hook);
    assert_eq!(missed, Vec::<String>::new(), "missed");
}
