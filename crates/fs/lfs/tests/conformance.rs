//! The hand-written POSIX checks and generated sequences against the reference model.

use arbor_lfs::Lfs;
use arbor_torture::config::Config;
use arbor_torture::generate::Profile;
use arbor_torture::{conformance, run};

#[test]
fn posix_checks() {
    conformance::run(&Lfs);
}

#[test]
fn flags_acls_and_labels() {
    conformance::layers(&Lfs, &Config::new(Profile::Small));
    conformance::layers_survive_cuts(&Lfs, &Config::new(Profile::Small));
    conformance::lists_come_in_one_step(&Lfs, &Config::new(Profile::Small));
}

#[test]
fn fsync_reaches_the_device() {
    conformance::fsync_reaches_flush(&Lfs);
}

#[test]
fn fsync_takes_the_data_of_other_files() {
    conformance::fsync_and_other_files(&Lfs, &Config::new(Profile::Small), true);
}

#[test]
fn fallocate_leaves_what_others_write() {
    conformance::fallocate_and_others(&Lfs);
}

#[test]
fn space() {
    conformance::space(&Lfs);
}

#[test]
fn what_a_file_may_have() {
    let row = conformance::what_a_file_may_have(&Lfs);
    assert!(include_str!("../../../../docs/semantics.md").contains(&row), "docs/semantics.md has not: {row}");
}

#[test]
fn attributes_settle() {
    conformance::attributes_settle(&Lfs);
}

#[test]
fn subdirectories_are_limited() {
    conformance::subdirectories_are_limited(&Lfs);
}

#[test]
fn an_older_volume_is_gone() {
    conformance::older_volume_is_gone(&Lfs);
}

#[test]
fn what_is_old_is_written() {
    conformance::write_back_by_age(&Lfs, &Config::new(Profile::Small), 5000);
}

#[test]
fn sequences_small_files() {
    run::sequences(&Lfs, &Config::new(Profile::Small));
}

#[test]
fn sequences_big_files() {
    run::sequences(&Lfs, &Config::new(Profile::Big));
}

#[test]
fn sequences_directories() {
    run::sequences(&Lfs, &Config::new(Profile::Dirs));
}

#[test]
fn sequences_full_volume() {
    run::sequences(&Lfs, &Config::new(Profile::Full));
}
