//! Full volumes stay usable.

use arbor_evergreen::Evergreen;
use arbor_torture::filled::{self, Filling};

const ALL: [Filling; 5] = [
    Filling { size: 4 << 20, format: "", mount: "commit=3600", len: 3000 },
    Filling { size: 8 << 20, format: "", mount: "", len: 0 },
    Filling { size: 16 << 20, format: "", mount: "modify=relocate,cache=1M", len: 5000 },
    Filling { size: 16 << 20, format: "", mount: "modify=overwrite", len: 5000 },
    Filling { size: 32 << 20, format: "stride=16", mount: "retain=500,commit=3600", len: 5000 },
];

#[test]
fn a_full_volume_takes_changes_of_inodes() {
    ALL.into_iter().zip(1..).for_each(|(how, seed)| filled::takes_changes_of_inodes(&Evergreen, how, seed));
}

#[test]
fn a_full_volume_is_overwritten() {
    ALL.into_iter().zip(11..).for_each(|(how, seed)| filled::is_overwritten(&Evergreen, how, seed));
}

#[test]
fn all_of_a_full_volume_can_be_removed() {
    ALL.into_iter().zip(21..).for_each(|(how, seed)| filled::is_emptied(&Evergreen, how, seed));
}
