//! The golden images of format version 1: an empty volume; one of every form of file, unmounted; the same after a power cut,
//! with an open file without a name on the list of these. Today's code reads all of them, and makes them byte for byte.

use arbor_dualfs::DualFs;
use arbor_torture::golden::{CUT, EMPTY, Forms, Golden, Recorded, UNMOUNTED};

static GOLDEN: Golden = Golden::new(&DualFs, env!("CARGO_MANIFEST_DIR"), make, Vec::new);
/// In a direct block, and below each root of the map.
const FORMS: Forms = Forms { far: [12 << 12, (12 + 512) << 12, (12 + 512 + 512 * 512) << 12] };

fn make() -> Recorded {
    GOLDEN.usual("segment=64K", &FORMS).0
}

#[test]
fn the_same_bytes_are_made() {
    GOLDEN.same_bytes_are_made();
}

#[test]
fn empty_volumes_are_read() {
    GOLDEN.an_empty_volume_is_read(EMPTY, &FORMS);
}

#[test]
fn unmounted_volumes_are_read() {
    GOLDEN.an_unmounted_volume_is_read(UNMOUNTED, &FORMS);
}

#[test]
fn the_log_is_rolled_forward() {
    GOLDEN.a_cut_volume_is_recovered(CUT, "", &FORMS);
}
