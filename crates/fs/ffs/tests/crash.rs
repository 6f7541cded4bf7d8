//! Power loss at every write: recovery, the checker and the oracle agree.

use arbor_base::vfs::Options;
use arbor_ffs::Ffs;
use arbor_torture::config::Config;
use arbor_torture::crash;
use arbor_torture::generate::Profile;

const PROFILES: [Profile; 5] = [Profile::Sync, Profile::Small, Profile::Big, Profile::Dirs, Profile::Full];

fn explore(keep: &str) {
    for profile in PROFILES {
        let config = Config { mount: Options::parse(&format!("keep={keep}")), ..Config::crash(profile) };
        crash::explore(&Ffs, &config);
    }
}

#[test]
fn power_loss_with_a_journal() {
    explore("journal");
}

#[test]
fn power_loss_with_soft_updates() {
    explore("softupdates");
}

#[test]
fn power_loss_with_synchronous_writes() {
    explore("sync");
}

#[test]
fn power_loss_without_order() {
    explore("async");
}
