//! Power loss on volumes so small that the log goes round, and where the cleaner works.

mod drills;

use arbor_base::vfs::Options;
use arbor_lfs::Lfs;
use arbor_torture::config::Config;
use arbor_torture::crash;
use arbor_torture::generate::Profile;

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
    crash::explore(&Lfs, &Config::crash(Profile::Churn));
}
