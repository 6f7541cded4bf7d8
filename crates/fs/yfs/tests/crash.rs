//! What once failed under power cuts, as the lines that repeat it.

use arbor_torture::line::all_pass;
use arbor_yfs::Yfs;

/// The checker gave an inode with a wrong checksum a right one, and so believed a name in it that a torn
/// write had mixed from two.
#[test]
fn names_in_a_torn_inode_are_not_believed() {
    let line = "seed=165458673084801 profile=Sync size=67108864 image=some-4 repair=yes \
                cuts=12:Seeded(950944034) damage=superblock 0+176=00000080 ops=";
    all_pass(&Yfs, &[line]);
}

const WITNESSES: &[&str] = &[
    "seed=227918802077908 profile=Small size=67108864 format=block=64K,frag=16K,inode=2K,ag=16M mount=cache=2M \
     cuts=9:AllKept ops=mkdir /d2 448 0; create /d2/f0 420 0; append /d2/f0 77 18; fallocate /d2/f0 17 0 72",
    "seed=9334854331554 profile=Full size=25165824 cuts=8:AllKept ops=mkdir /d0 493 0; mkdir /d1 493 0; \
     create /d0/f6 493 0; link /d0/f6 /d1/a.name.of.middling.length.17; create /d0/a.name.of.middling.length.24 \
     420 7; write /d1/a.name.of.middling.length.17 906749 12 139; fallocate /d1/a.name.of.middling.length.17 3 \
     808853 214275; fsync /d0/a.name.of.middling.length.24 1",
    "seed=1 profile=Sync size=67108864 ops=create /a 420 0; write /a 0 4096 1; create /b 420 0; syncfs; \
     rename /a /b 0; truncate /b 1100; create /g 420 0; write /g 0 4096 3; fsync /g 0",
    "seed=1 profile=Sync size=67108864 ops=create /f 420 0; create /t 420 0; write /t 0 4096 1; rename /t /f 0; \
     create /t 420 0; write /t 0 4096 2; rename /t /f 0; create /g 420 0; fsync /g 0; background 6000; \
     create /h 420 0; write /h 0 8192 4; fsync /h 0; background 6000",
];

/// A record bore witness to bytes that were written over before it was written, and to data that it
/// made free again; the last two, all cuts of them, free a part of such data, and all of it twice.
#[test]
fn a_record_bears_witness_to_what_stays() {
    all_pass(&Yfs, WITNESSES);
}
