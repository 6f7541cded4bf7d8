//! The input says which fields of a good image get which values; checksums are made right.
#![no_main]

use arbor_torture::mutate::{self, Image, Limits};
use arbor_yfs::Yfs;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

fuzz_target!(|data: &[u8]| {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    let images = IMAGES.get_or_init(|| mutate::images(&Yfs).expect("images"));
    if let Err(why) = mutate::fuzz(&Yfs, images, &Limits::default(), data) {
        panic!("{why}");
    }
});
