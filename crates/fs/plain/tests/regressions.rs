//! What failed once: power cuts that a recovery has to get over, each the line that `arbor torture --repeat` takes.

use arbor_plain::Plain;
use arbor_torture::faults;
use arbor_torture::machine::repeat;

/// What recovery did wrong, and where it showed.
const FAILED: [(&str, &str); 3] = [
    ("it took the newest record only", "seed=1 profile=Big size=67108864 cuts=10:DropOne(1) ops=mkdir /d0 493 0"),
    (
        "it wrote the superblock, which called the volume clean, before the rest",
        "seed=3 profile=Sync size=67108864 cuts=10:DropOne(2),3:AllKept ops=mkdir /d1 493 0",
    ),
    (
        "it let a record count later that had not counted",
        "seed=2 profile=Dirs size=67108864 cuts=4:Seeded(1605837687),3:AllKept ops=create /f1169 0 0",
    ),
];

#[test]
fn what_failed_once_is_recovered_from() {
    let failed = |(what, line): &(&str, &str)| repeat(&Plain, line).err().map(|e| format!("{what}: {e}"));
    let failed: Vec<String> = FAILED.iter().filter_map(failed).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Of a long write the first piece was told to be all of it, though the one that met the error was in the log.
#[test]
fn a_write_that_fails_half_way_says_so() {
    let line = "profile=Full size=25165824 format=log=512K mount=cache=1M fault=Write:21:FromThenOn:Full end=Unmount \
        ops=mkdir /d1 493 0; create /d1/f8 420 0; write /d1/f8 0 481311 21";
    faults::repeat(&Plain, line).unwrap();
}

/// In a mount that had failed, an unsynced file whose pages had left the cache showed what another file had left there.
#[test]
fn a_failed_mount_shows_no_other_files_bytes() {
    let line = "profile=Big size=25165824 format=log=512K,inodes=5000 mount=cache=1M \
        fault=Flush:19:FromThenOn:Forgotten(8655743) end=Unmount ops=create /filler 420 0; write /filler 0 1310720 2; \
        unlink /filler; create /filler 420 0; write /filler 0 1310720 1";
    faults::repeat(&Plain, line).unwrap();
}
