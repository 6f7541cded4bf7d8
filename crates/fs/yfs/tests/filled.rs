//! Full volumes stay usable.

use arbor_torture::filled::{self, Filling};
use arbor_yfs::Yfs;

const ALL: [Filling; 3] = [
    Filling { size: 16 << 20, format: "", mount: "", len: 0 },
    Filling { size: 16 << 20, format: "", mount: "cache=2M", len: 3000 },
    Filling { size: 16 << 20, format: "block=1K,frag=512,ag=4M", mount: "", len: 600 },
];

#[test]
fn a_full_volume_takes_changes_of_inodes() {
    ALL.into_iter().zip(1..).for_each(|(how, seed)| filled::takes_changes_of_inodes(&Yfs, how, seed));
}

#[test]
fn a_full_volume_is_overwritten() {
    ALL.into_iter().zip(11..).for_each(|(how, seed)| filled::is_overwritten(&Yfs, how, seed));
}

#[test]
fn all_of_a_full_volume_can_be_removed() {
    ALL.into_iter().zip(21..).for_each(|(how, seed)| filled::is_emptied(&Yfs, how, seed));
}
