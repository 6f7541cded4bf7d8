//! Full volumes stay usable.

use arbor_ffs::Ffs;
use arbor_torture::filled::{self, Filling};

const ALL: [Filling; 3] = [
    Filling { size: 8 << 20, format: "", mount: "", len: 0 },
    Filling { size: 16 << 20, format: "block=4K", mount: "keep=journal,cache=2M", len: 3000 },
    Filling { size: 16 << 20, format: "", mount: "keep=sync", len: 5000 },
];

#[test]
fn a_full_volume_takes_changes_of_inodes() {
    ALL.into_iter().zip(1..).for_each(|(how, seed)| filled::takes_changes_of_inodes(&Ffs, how, seed));
}

#[test]
fn a_full_volume_is_overwritten() {
    ALL.into_iter().zip(11..).for_each(|(how, seed)| filled::is_overwritten(&Ffs, how, seed));
}

#[test]
fn all_of_a_full_volume_can_be_removed() {
    ALL.into_iter().zip(21..).for_each(|(how, seed)| filled::is_emptied(&Ffs, how, seed));
}
