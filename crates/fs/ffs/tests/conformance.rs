//! The hand-written POSIX checks and generated sequences against the reference model, in all four ways to keep
//! metadata.

use arbor_base::vfs::Options;
use arbor_ffs::Ffs;
use arbor_torture::config::Config;
use arbor_torture::generate::Profile;
use arbor_torture::{conformance, run};

const KEEPINGS: [&str; 4] = ["async", "sync", "softupdates", "journal"];

fn with(profile: Profile, keep: &str) -> Config {
    Config { mount: Options::parse(&format!("keep={keep}")), ..Config::new(profile) }
}

#[test]
fn posix_checks() {
    for keep in KEEPINGS {
        conformance::run_with(&Ffs, &with(Profile::Small, keep));
    }
}

#[test]
fn flags_acls_and_labels() {
    for keep in KEEPINGS {
        conformance::layers(&Ffs, &with(Profile::Small, keep));
        conformance::layers_survive_cuts(&Ffs, &with(Profile::Small, keep));
        conformance::lists_come_in_one_step(&Ffs, &with(Profile::Small, keep));
    }
}

#[test]
fn fsync_reaches_the_device() {
    for keep in KEEPINGS {
        conformance::fsync_reaches_flush_with(&Ffs, &with(Profile::Small, keep));
    }
}

#[test]
fn fsync_takes_the_data_of_other_files_with_a_journal() {
    for (keep, takes_it) in [("sync", false), ("journal", true)] {
        conformance::fsync_and_other_files(&Ffs, &with(Profile::Small, keep), takes_it);
    }
}

#[test]
fn fallocate_leaves_what_others_write() {
    conformance::fallocate_and_others(&Ffs);
}

#[test]
fn space() {
    for keep in KEEPINGS {
        conformance::space_with(&Ffs, &with(Profile::Small, keep));
    }
}

#[test]
fn what_a_file_may_have() {
    let row = conformance::what_a_file_may_have(&Ffs);
    assert!(include_str!("../../../../docs/semantics.md").contains(&row), "docs/semantics.md has not: {row}");
}

#[test]
fn attributes_settle() {
    conformance::attributes_settle(&Ffs);
}

#[test]
fn subdirectories_are_limited() {
    conformance::subdirectories_are_limited(&Ffs);
}

#[test]
fn an_older_volume_is_gone() {
    conformance::older_volume_is_gone(&Ffs);
}

#[test]
fn what_is_old_is_written() {
    for (keep, seconds) in [("async", 30), ("sync", 30), ("softupdates", 32), ("journal", 5)] {
        eprintln!("{keep}");
        conformance::write_back_by_age(&Ffs, &with(Profile::Small, keep), seconds * 1000);
        let short = Config { mount: Options::parse(&format!("keep={keep},commit=2")), ..Config::new(Profile::Small) };
        conformance::write_back_by_age(&Ffs, &short, 4000);
    }
}

fn sequences(profile: Profile) {
    for keep in KEEPINGS {
        eprintln!("{keep}");
        run::sequences(&Ffs, &with(profile, keep));
    }
}

#[test]
fn sequences_small_files() {
    sequences(Profile::Small);
}

#[test]
fn sequences_big_files() {
    sequences(Profile::Big);
}

#[test]
fn sequences_directories() {
    sequences(Profile::Dirs);
}

#[test]
fn sequences_full_volume() {
    sequences(Profile::Full);
}
