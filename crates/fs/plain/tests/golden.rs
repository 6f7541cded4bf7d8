//! The golden images of format version 1, which today's code reads and makes byte for byte: an empty volume; one of every
//! form of file, unmounted; and the same after a power cut, with an open file without a name on the list of these.

use arbor_plain::Plain;
use arbor_torture::golden::{CUT, EMPTY, Forms, Golden, Recorded, UNMOUNTED};

static GOLDEN: Golden = Golden::new(&Plain, env!("CARGO_MANIFEST_DIR"), make, Vec::new);
const POINTERS: u64 = arbor_plain::format::POINTERS;
const FORMS: Forms = Forms { far: [12 << 12, (12 + POINTERS) << 12, (12 + POINTERS + POINTERS * POINTERS) << 12] };

const SHAPE: &str = "log=512K";

fn make() -> Recorded {
    GOLDEN.usual(SHAPE, &FORMS).0
}

#[test]
fn the_same_bytes_are_made() {
    GOLDEN.same_bytes_are_made();
}

#[test]
fn an_empty_volume_is_read() {
    GOLDEN.an_empty_volume_is_read(EMPTY, &FORMS);
}

#[test]
fn an_unmounted_volume_is_read() {
    GOLDEN.an_unmounted_volume_is_read(UNMOUNTED, &FORMS);
}

#[test]
fn a_log_is_replayed() {
    GOLDEN.a_cut_volume_is_recovered(CUT, "", &FORMS);
}
