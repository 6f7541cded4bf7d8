//! The golden images of format version 1: an empty volume; one of every form of file, unmounted; and the same after a power
//! cut, with an open file without a name on the list of these. Today's code reads all of them, and makes those with
//! `INCOMPAT_DENSE` byte for byte.

use arbor_reiserfs::ReiserFs;
use arbor_torture::golden::{CUT, EMPTY, Forms, Golden, Recorded, UNMOUNTED};

static GOLDEN: Golden = Golden::new(&ReiserFs, env!("CARGO_MANIFEST_DIR"), make, Vec::new);
/// In the first indirect item, in a later one, and far beyond.
const FORMS: Forms = Forms { far: [12 << 12, 5000 << 12, 1 << 40] };

const SHAPE: &str = "log=1M";
/// With `INCOMPAT_DENSE`.
const DENSE: [&str; 3] = ["v1-dense-empty.bin", "v1-dense.bin", "v1-dense-cut.bin"];

fn make() -> Recorded {
    let made = GOLDEN.usual(SHAPE, &FORMS).0;
    DENSE.into_iter().zip(made).map(|(name, (_, bytes))| (name, bytes)).collect()
}

#[test]
fn the_same_bytes_are_made() {
    GOLDEN.same_bytes_are_made();
}

#[test]
fn empty_volumes_are_read() {
    [EMPTY, DENSE[0]].iter().for_each(|name| GOLDEN.an_empty_volume_is_read(name, &FORMS));
}

#[test]
fn unmounted_volumes_are_read() {
    [UNMOUNTED, DENSE[1]].iter().for_each(|name| GOLDEN.an_unmounted_volume_is_read(name, &FORMS));
}

#[test]
fn logs_are_replayed() {
    [CUT, DENSE[2]].iter().for_each(|name| GOLDEN.a_cut_volume_is_recovered(name, "", &FORMS));
}
