//! The golden images of format version 1, which today's code reads and makes byte for byte: an empty volume; one of
//! every form of file, unmounted; and the same after a power cut, so that it has to be rolled forward and an open file
//! without a name is on the orphan list. Of both what a dump says of them, too.

use arbor_base::device::MemDevice;
use arbor_base::vfs::{Devices, Engine};
use arbor_lfs::Lfs;
use arbor_torture::golden::{CUT, EMPTY, Forms, Golden, Recorded, UNMOUNTED};

static GOLDEN: Golden = Golden::new(&Lfs, env!("CARGO_MANIFEST_DIR"), make, Vec::new);
const FORMS: Forms = Forms { far: [12 << 12, (12 + 512) << 12, (12 + 512 + 512 * 512) << 12] };

const SHAPE: &str = "block=4K,segment=64K";

/// What a dump says: the heads, the summaries of the first segments, and some inodes.
fn dumps(dev: &MemDevice) -> String {
    let paths =
        ["superblock", "checkpoints", "usage", "segment 0", "segment 1", "inode 1", "inode 2", "dir 2", "map 4"];
    let mut out = String::new();
    for path in paths {
        let what: Vec<&str> = path.split(' ').collect();
        let dump = Lfs.dump(&Devices::single(dev.clone()), &what).unwrap();
        out += &format!("{path}: {}\n", serde_json::to_string_pretty(&dump).unwrap());
    }
    out
}

fn make() -> Recorded {
    let (images, [unmounted, cut]) = GOLDEN.usual(SHAPE, &FORMS);
    let texts = [("v1.txt", dumps(&unmounted).into_bytes()), ("v1-cut.txt", dumps(&cut).into_bytes())];
    images.into_iter().chain(texts).collect()
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
fn a_log_is_rolled_forward() {
    GOLDEN.a_cut_volume_is_recovered(CUT, "", &FORMS);
}
