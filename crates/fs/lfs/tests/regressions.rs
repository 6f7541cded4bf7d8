//! What once failed, as the lines that repeat it.

use arbor_lfs::Lfs;
use arbor_torture::line::all_pass;

/// A range was zeroed in part, and then there was no space for the rest.
const ZEROED: &str = include_str!("regressions/zeroed.txt");

#[test]
fn zeroing_without_space_changes_nothing() {
    all_pass(&Lfs, &[ZEROED.trim()]);
}

const LINES: &[&str] = &[
    // The indirect block above one that a truncation had changed was not written with it.
    "seed=4 profile=Full size=6291456 format=segment=128K,block=4K ops=create /f22 384 0; \
     write /f22 3203234 51 13; background 6000; truncate /f22 2365467",
];

#[test]
fn lines() {
    all_pass(&Lfs, LINES);
}
