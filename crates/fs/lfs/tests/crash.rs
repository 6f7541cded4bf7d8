//! Power loss at every write: recovery, the checker and the oracle agree.

mod drills;

use arbor_base::vfs::Options;
use arbor_lfs::Lfs;
use arbor_torture::config::Config;
use arbor_torture::crash::{self, Explored};
use arbor_torture::generate::Profile;
use arbor_torture::grow::Grow;

fn explore(profile: Profile) {
    crash::explore(&Lfs, &Config::crash(profile));
}

/// What once failed.
#[test]
fn regressions() {
    // The indirect block above one that a truncation had changed was not written with it.
    let line = "seed=4 profile=Full size=6291456 format=segment=128K,block=4K ops=create /f22 384 0; \
                write /f22 3203234 51 13; background 6000; truncate /f22 2365467";
    arbor_torture::machine::repeat(&Lfs, line).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn power_loss_small_files() {
    explore(Profile::Small);
    explore(Profile::Sync);
}

#[test]
fn power_loss_big_files() {
    explore(Profile::Big);
}

#[test]
fn power_loss_directories() {
    explore(Profile::Dirs);
}

/// The log goes round a small volume.
#[test]
fn power_loss_where_segments_are_filled_again() {
    for profile in [Profile::Full, Profile::Small, Profile::Big] {
        let format = Options::parse("segment=128K,block=4K");
        crash::explore(&Lfs, &Config { device_size: 6 << 20, format, ops: 150, ..Config::crash(profile) });
    }
}

/// The log goes round between two checkpoints; the cleaner reads the inode map first; it works between all other calls.
#[test]
fn power_loss_where_the_cleaner_works() {
    crash::explore(&Lfs, &drills::over_and_over());
    crash::explore(&Lfs, &drills::many_inodes());
    let format = Options::parse("segment=64K,block=4K");
    crash::explore(&Lfs, &Config { device_size: 3 << 20, format, ops: 300, ..Config::crash(Profile::Churn) });
    explore(Profile::Churn);
}

#[test]
fn power_loss_full_volume() {
    explore(Profile::Full);
}

/// Power loss while a volume grows, and while it recovers from that.
#[test]
fn power_loss_of_a_growing_volume() {
    let number = |name: &str, default| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let (seed, count): (u64, u64) = (number("ARBOR_SEED", 1), number("ARBOR_COUNT", 16));
    let grow = Grow::new(&Lfs, count, seed).expect("the volumes");
    let mut done = Explored::default();
    while let Some(step) = grow.step(&mut done) {
        step.unwrap_or_else(|failure| panic!("{failure}"));
    }
    eprintln!("{done:?}");
    assert!(done.sequences == count && done.distinct > 5 * count && done.recoveries > count, "{done:?}");
}
