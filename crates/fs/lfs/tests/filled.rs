//! Full volumes stay usable.

use arbor_lfs::Lfs;
use arbor_torture::filled::{self, Filling};

const ALL: [Filling; 5] = [
    Filling { size: 16 << 20, format: "", mount: "", len: 0 },
    Filling { size: 16 << 20, format: "", mount: "cache=2M", len: 3000 },
    Filling { size: 8 << 20, format: "block=4K,frag=4K,segment=64K", mount: "", len: 4096 },
    Filling { size: 12 << 20, format: "segment=128K", mount: "", len: 0 },
    Filling { size: 24 << 20, format: "", mount: "cache=8M", len: 0 },
];

#[test]
fn a_full_volume_takes_changes_of_inodes() {
    ALL.into_iter().zip(1..).for_each(|(how, seed)| filled::takes_changes_of_inodes(&Lfs, how, seed));
}

#[test]
fn a_full_volume_is_overwritten() {
    ALL.into_iter().zip(11..).for_each(|(how, seed)| filled::is_overwritten(&Lfs, how, seed));
}

#[test]
fn all_of_a_full_volume_can_be_removed() {
    ALL.into_iter().zip(21..).for_each(|(how, seed)| filled::is_emptied(&Lfs, how, seed));
}
