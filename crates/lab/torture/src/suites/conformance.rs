//! POSIX, and what this project promises of space, attributes and write-back.

use super::{Conformance, Suites, mounted};
use crate::config::Config;
use crate::conformance as checks;
use crate::damaged_file;
use crate::formatting;
use crate::generate::Profile;
use crate::shortwrite;
use std::path::Path;

/// The table of hand-written checks.
pub fn posix_checks(s: &Suites, _: &Conformance) {
    s.each(Profile::Small, checks::run_with);
}

/// File flags, ACLs and labels, also after power cuts.
pub fn flags_acls_and_labels(s: &Suites, _: &Conformance) {
    s.each(Profile::Small, checks::layers);
    s.each(Profile::Small, checks::layers_survive_cuts);
    s.each(Profile::Small, checks::lists_come_in_one_step);
}

/// No call that promises durability returns without a flush of the device.
pub fn fsync_reaches_the_device(s: &Suites, _: &Conformance) {
    s.each(Profile::Small, checks::fsync_reaches_flush_with);
}

/// Whether an fsync takes the data of other files with it is as the engine says.
pub fn fsync_and_the_data_of_other_files(s: &Suites, given: &Conformance) {
    for (mount, takes) in given.fsync_takes_others {
        checks::fsync_and_other_files(s.engine, &mounted(&Config::new(Profile::Small), mount), *takes);
    }
}

/// What has been given stays given on a full volume.
pub fn space(s: &Suites, _: &Conformance) {
    s.each(Profile::Small, checks::space_with);
}

/// The limits of a file are those that the documents have.
pub fn what_a_file_may_have(s: &Suites, _: &Conformance) {
    let row = checks::what_a_file_may_have(s.engine);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/semantics.md");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(text.contains(&row), "docs/semantics.md has not: {row}");
}

/// Attributes count what has no place yet, and are those of a remount after a sync.
pub fn attributes_settle(s: &Suites, _: &Conformance) {
    checks::attributes_settle(s.engine);
}

/// A directory has a limit of subdirectories or none, and says which.
pub fn subdirectories_are_limited(s: &Suites, _: &Conformance) {
    checks::subdirectories_are_limited(s.engine);
}

/// Nothing of the volume that lay there before is seen after a format.
pub fn an_older_volume_is_gone(s: &Suites, _: &Conformance) {
    checks::older_volume_is_gone(s.engine);
}

/// A format that loses the power leaves the older volume, none, or the new one.
pub fn a_cut_format_leaves_one_volume_or_none(s: &Suites, _: &Conformance) {
    s.under(&Config::new(Profile::Small))
        .iter()
        .for_each(|config| formatting::leaves_one_volume_or_none(s.engine, config));
}

/// A file whose map is damaged can be removed, and hinders nobody.
pub fn a_damaged_file_is_removed_alone(s: &Suites, _: &Conformance) {
    s.under(&Config::new(Profile::Small)).iter().for_each(|config| damaged_file::is_removed_alone(s.engine, config));
}

/// A write over the end that finds no space on the way leaves a file as long as it is said to be.
pub fn a_short_write_leaves_a_sound_file(s: &Suites, _: &Conformance) {
    s.under(&Config::new(Profile::Full)).iter().for_each(|config| shortwrite::leaves_a_sound_file(s.engine, config));
}

/// What was written is durable after the time that the mount gives it.
pub fn what_is_old_is_written(s: &Suites, given: &Conformance) {
    for (mount, ms) in given.write_back_ms {
        checks::write_back_by_age(s.engine, &mounted(&Config::new(Profile::Small), mount), *ms);
    }
}

/// A fallocate that finds no space leaves what others write meanwhile.
pub fn fallocate_leaves_what_others_write(s: &Suites, _: &()) {
    checks::fallocate_and_others(s.engine);
}
