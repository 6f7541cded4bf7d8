//! Full volumes stay usable.

use arbor_reiserfs::ReiserFs;
use arbor_torture::filled::{self, Filling};

const ALL: [Filling; 3] = [
    Filling { size: 16 << 20, format: "", mount: "", len: 0 },
    Filling { size: 16 << 20, format: "block=1K", mount: "cache=2M", len: 3000 },
    Filling { size: 16 << 20, format: "", mount: "ordering=preserve", len: 5000 },
];

#[test]
fn a_full_volume_takes_changes_of_inodes() {
    ALL.into_iter().zip(1..).for_each(|(how, seed)| filled::takes_changes_of_inodes(&ReiserFs, how, seed));
}

#[test]
fn a_full_volume_is_overwritten() {
    ALL.into_iter().zip(11..).for_each(|(how, seed)| filled::is_overwritten(&ReiserFs, how, seed));
}

#[test]
fn all_of_a_full_volume_can_be_removed() {
    ALL.into_iter().zip(21..).for_each(|(how, seed)| filled::is_emptied(&ReiserFs, how, seed));
}
