//! The input is the beginning of the device: over nothing, or over a good image.
#![no_main]

use arbor_base::device::{Device, Kind, MemDevice};
use arbor_base::vfs::Options;
use arbor_torture::mutate::{self, Image, Limits};
use arbor_yfs::Yfs;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

fuzz_target!(|data: &[u8]| {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    let images = IMAGES.get_or_init(|| mutate::images(&Yfs).expect("images"));
    let Some((&which, data)) = data.split_first() else { return };
    let disk = match images.get(usize::from(which) % (images.len() + 1)) {
        Some(image) => image.disk(),
        None => MemDevice::new(16 << 20),
    };
    let mut bytes = vec![0; data.len().next_multiple_of(512).min(16 << 20)];
    disk.read_at(Kind::Other, 0, &mut bytes).expect("read");
    bytes.iter_mut().zip(data).for_each(|(to, from)| *to ^= from);
    disk.write_at(Kind::Other, 0, &bytes).expect("write");
    if let Err(why) = mutate::drive(&Yfs, &disk, &Options::default(), &Limits::default()) {
        panic!("{why}");
    }
});
