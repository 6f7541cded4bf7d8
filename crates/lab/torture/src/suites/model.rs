//! Generated sequences against the reference model.

use super::{Shapes, Suites};
use crate::config::Config;
use crate::generate::Profile;
use crate::run::sequences;
use arbor_base::vfs::Options;

/// Small files.
pub fn sequences_small_files(s: &Suites, _: &()) {
    s.each(Profile::Small, sequences);
}

/// Big files.
pub fn sequences_big_files(s: &Suites, _: &()) {
    s.each(Profile::Big, sequences);
}

/// Directories.
pub fn sequences_directories(s: &Suites, _: &()) {
    s.each(Profile::Dirs, sequences);
}

/// A volume that is full most of the time.
pub fn sequences_full_volume(s: &Suites, _: &()) {
    s.each(Profile::Full, sequences);
}

/// Longer ones in every shape of the engine.
pub fn long_sequences_in_other_shapes(s: &Suites, given: &Shapes) {
    for (format, mount) in s.engine.test_configurations() {
        for profile in [Profile::Small, Profile::Big, Profile::Dirs] {
            eprintln!("{format} {mount} {profile:?}");
            let (format, mount) = (Options::parse(format), Options::parse(mount));
            sequences(s.engine, &Config { format, mount, count: given.sequences, ops: 1500, ..Config::new(profile) });
        }
    }
}
