//! Power loss at every write: recovery, the checker and the oracle agree.

use arbor_torture::config::Config;
use arbor_torture::crash;
use arbor_torture::generate::Profile;
use arbor_yfs::Yfs;

#[test]
fn power_loss_fsync_heavy() {
    crash::explore(&Yfs, &Config::crash(Profile::Sync));
}

#[test]
fn power_loss_small_files() {
    crash::explore(&Yfs, &Config::crash(Profile::Small));
}

#[test]
fn power_loss_big_files() {
    crash::explore(&Yfs, &Config::crash(Profile::Big));
}

#[test]
fn power_loss_directories() {
    crash::explore(&Yfs, &Config::crash(Profile::Dirs));
}

#[test]
fn power_loss_full_volume() {
    crash::explore(&Yfs, &Config::crash(Profile::Full));
}
