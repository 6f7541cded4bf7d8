//! Power loss at every write: recovery, the checker and the oracle agree.

use arbor_base::vfs::Options;
use arbor_lfs::Lfs;
use arbor_torture::config::Config;
use arbor_torture::crash;
use arbor_torture::generate::Profile;

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

#[test]
fn power_loss_full_volume() {
    explore(Profile::Full);
}
