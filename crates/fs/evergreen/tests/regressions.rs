//! What failed once: lines that `arbor torture --repeat` takes.

use arbor_evergreen::Evergreen;
use arbor_torture::{faults, line};

/// A block that was to be overwritten whole got no place, since a bitmap could not be read: its page, made to be written,
/// stayed, with zeros.
#[test]
fn what_a_failed_device_made_of_calls() {
    let lines = [
        "profile=Churn size=25165824 format=stride=16 mount=retain=5 fault=Read:397:Once:Error end=Unmount \
         ops=mkdir /d1 493 0; create /d1/L5 0 0; write /d1/L5 0 2866 27; remount; write /d1/L5 0 29762 33",
        // No space where what says what is free is damaged; what was removed while it cannot be read stays in use.
        "profile=Small size=25165824 mount=modify=overwrite,cache=1M fault=Write:5:Once:Flipped(16411979) end=Unmount \
         ops=mkdir /d1 493 0; remount; create /d1/a.name.of.middling.length.3 420 0",
        "profile=Big size=25165824 format=stride=16 mount=cache=1M,buffers=32,data=overwrite,bitmaps=overwrite \
         fault=Read:17:Once:Error end=Unmount ops=create /filler 420 0; write /filler 0 1310720 2; unlink /filler",
        // What a commit had a copy of was being written in place when a flush failed, and was read from there.
        "profile=Churn size=25165824 format=stride=16 mount=cache=1M,buffers=32,data=overwrite,bitmaps=overwrite \
         fault=Flush:6:FromThenOn:Error end=Cut again=Read:10 ops=mkdir /d1 493 0; create /d1/f9 0 0; create /d1/f6 493 7; \
         create /d1/f3 384 0; write /d1/f6 49812 47705 27; background 40000; write /d1/f6 77824 55857 36; \
         write /d1/f9 135168 32743 37; syncfs; write /d1/f3 116026 98 39; clean 262144",
    ];
    let failed: Vec<String> = lines.iter().filter_map(|line| faults::repeat(&Evergreen, line).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The superblock said that a volume in use was unmounted. A repair laid only a part of the newest commit's redo list over it; one
/// that was cut off and repeated took all of it.
#[test]
fn a_repair_that_was_cut_off_takes_the_commit_that_the_other_takes() {
    let line = "seed=73315525963551 profile=Sync size=67108864 image=crashed-1 repair=yes cuts=7:Seeded(1190044371) \
                damage=superblock 0+28=01000000 ops=";
    line::repeat(&Evergreen, line).expect("a line").unwrap_or_else(|e| panic!("{e}"));
}
