//! Power loss at every write: recovery, the checker and the oracle agree.

use arbor_lfs::Lfs;
use arbor_torture::config::Config;
use arbor_torture::crash;
use arbor_torture::generate::Profile;

fn explore(profile: Profile) {
    crash::explore(&Lfs, &Config::crash(profile));
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

#[test]
fn power_loss_full_volume() {
    explore(Profile::Full);
}
