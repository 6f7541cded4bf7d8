//! The hand-written POSIX checks and generated sequences against the reference model.

use arbor_torture::config::Config;
use arbor_torture::generate::Profile;
use arbor_torture::{conformance, run};
use arbor_yfs::Yfs;

#[test]
fn posix_checks() {
    conformance::run(&Yfs);
}

#[test]
fn flags_acls_and_labels() {
    conformance::layers(&Yfs, &Config::new(Profile::Small));
    conformance::layers_survive_cuts(&Yfs, &Config::new(Profile::Small));
    conformance::lists_come_in_one_step(&Yfs, &Config::new(Profile::Small));
}

#[test]
fn fsync_reaches_the_device() {
    conformance::fsync_reaches_flush(&Yfs);
}

#[test]
fn fsync_leaves_the_data_of_other_files() {
    conformance::fsync_and_other_files(&Yfs, &Config::new(Profile::Small), false);
}

#[test]
fn space() {
    conformance::space(&Yfs);
}

#[test]
fn what_a_file_may_have() {
    let row = conformance::what_a_file_may_have(&Yfs);
    assert!(include_str!("../../../../docs/semantics.md").contains(&row), "docs/semantics.md has not: {row}");
}

#[test]
fn attributes_settle() {
    conformance::attributes_settle(&Yfs);
}

#[test]
fn subdirectories_are_limited() {
    conformance::subdirectories_are_limited(&Yfs);
}

#[test]
fn an_older_volume_is_gone() {
    conformance::older_volume_is_gone(&Yfs);
}

#[test]
fn what_is_old_is_written() {
    conformance::write_back_by_age(&Yfs, &Config::new(Profile::Small), 5000);
}

#[test]
fn sequences_small_files() {
    run::sequences(&Yfs, &Config::new(Profile::Small));
}

#[test]
fn sequences_big_files() {
    run::sequences(&Yfs, &Config::new(Profile::Big));
}

#[test]
fn sequences_directories() {
    run::sequences(&Yfs, &Config::new(Profile::Dirs));
}

#[test]
fn sequences_full_volume() {
    run::sequences(&Yfs, &Config::new(Profile::Full));
}
