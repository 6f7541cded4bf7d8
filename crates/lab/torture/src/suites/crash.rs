//! Power loss at every event of the device: recovery, the checker and the oracle agree.

use super::{Shapes, Suites, Volumes, drawn};
use crate::config::{Config, Failure};
use crate::crash::{Explored, explore};
use crate::generate::Profile;
use crate::grow::Grow;
use crate::repair::Repairs;
use arbor_base::vfs::Options;

fn power_loss(s: &Suites, profile: Profile) {
    for config in s.under(&Config::crash(profile)) {
        explore(s.engine, &config);
    }
}

/// Files that are fsynced often.
pub fn power_loss_fsync_heavy(s: &Suites, _: &()) {
    power_loss(s, Profile::Sync);
}

/// Small files.
pub fn power_loss_small_files(s: &Suites, _: &()) {
    power_loss(s, Profile::Small);
}

/// Big files.
pub fn power_loss_big_files(s: &Suites, _: &()) {
    power_loss(s, Profile::Big);
}

/// Directories.
pub fn power_loss_directories(s: &Suites, _: &()) {
    power_loss(s, Profile::Dirs);
}

/// A volume that is full most of the time.
pub fn power_loss_full_volume(s: &Suites, _: &()) {
    power_loss(s, Profile::Full);
}

/// In every shape of the engine.
pub fn power_loss_in_other_shapes(s: &Suites, given: &Shapes) {
    for (format, mount) in s.engine.test_configurations() {
        for profile in [Profile::Small, Profile::Big, Profile::Sync] {
            let (format, mount) = (Options::parse(format), Options::parse(mount));
            explore(s.engine, &Config { format, mount, count: given.sequences, ..Config::crash(profile) });
        }
    }
}

/// While a volume grows, and while it recovers from that.
pub fn power_loss_of_a_growing_volume(s: &Suites, given: &Volumes) {
    let (seed, count) = drawn(given.count);
    let grow = Grow::new(s.engine, count, seed).expect("the volumes");
    let done = each_volume(given, count, |done| grow.step(done));
    assert_eq!(done.sequences, count, "volumes that grew");
}

/// While the checker repairs, and while it repairs what that has left.
pub fn power_loss_of_a_repair(s: &Suites, given: &Volumes) {
    let (seed, count) = drawn(given.count);
    let repairs = Repairs::new(s.engine, count, seed);
    each_volume(given, count, |done| repairs.step(done));
}

/// Takes steps until there are none left; what was done has to come to as much as is wanted of so many.
fn each_volume(
    wanted: &Volumes,
    count: u64,
    mut step: impl FnMut(&mut Explored) -> Option<Result<(), Box<Failure>>>,
) -> Explored {
    let mut done = Explored::default();
    while let Some(result) = step(&mut done) {
        result.unwrap_or_else(|failure| panic!("{failure}"));
    }
    eprintln!("{done:?}");
    // Of few volumes it is a matter of luck.
    let enough = |n: u64, least: u64| count < wanted.count || n * wanted.count > least * count;
    assert!(enough(done.distinct, wanted.states) && enough(done.recoveries, wanted.recoveries), "{done:?}");
    done
}
