//! What failed once: lines that `arbor torture --repeat` takes.

use arbor_dualfs::DualFs;
use arbor_torture::{faults, line};

/// Two checkpoints led to one inode of the ifile, whose write the device had lost; the data device had one head, whose write
/// was lost.
#[test]
fn what_a_failed_device_made_of_calls() {
    let lines = [
        "profile=Full size=25165824 format=block=8K,segment=256K mount=cache=2M,relocate=off,sums=off \
         extra=data:8388608 fault=Write:1:Once:Lost end=Unmount ops=",
        "profile=Churn size=25165824 format=block=8K,segment=256K mount=cache=2M,relocate=off \
         fault=Write:15:Once:Lost end=Promise ops=mkdir /d0 493 0; mkdir /d1 493 0; clean 1; create /d1/f8 420 0; \
         fsync /d1/f8 1; write /d1/f8 62933 2167 14; clean 262144; create /d0/a.name.of.middling.length.3 384 0; \
         rename /d1/f8 /f9 0; clean 1048576; write /d0/a.name.of.middling.length.3 90110 28519 26; clean 1; \
         write /d0/a.name.of.middling.length.3 65536 17679 29; clean 1",
        // No space where the bitmap of the only group is damaged.
        "profile=Big size=25165824 format=segment=64K,group=1M mount=sums=off fault=Write:12:Once:Flipped(9158453) \
         end=Unmount ops=mkdir /d0 493 0; remount; create /L2 493 0; link /L2 /d0/L3; create /f2 0 0; create /d0/L1 384 0; \
         fsync /d0 0; append /d0/L1 4037 23; write /d0/L3 1073143 4096 24; mkdir /d0/d0 1533 0; write /f2 153 377022 26; \
         remount; append /d0/L1 208 35; write /d0/L1 587877 81 41",
    ];
    let failed: Vec<String> = lines.iter().filter_map(|line| faults::repeat(&DualFs, line).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A wrong checksum of contents was left to a scrub; they become holes with the repair of whatever else there is.
#[test]
fn repairs_beside_contents_with_a_wrong_checksum() {
    let text = "seed=227699230053727 profile=Sync size=67108864 image=crashed-0 repair=yes \
                damage=indirect block 38+1572=feffffff ops=";
    line::repeat(&DualFs, text).expect("a line").unwrap_or_else(|failed| panic!("{failed}"));
}

/// Roll-forward ended at a summary that cannot be; the map, which was lost too, was made from sets after it, which were written over.
#[test]
fn a_search_of_the_log_ends_where_roll_forward_ends() {
    let lines = [
        "image=crashed-0 changes=ifile inode 1+108=00000000000000003f0000000a43cadb420000002778951b0000000000000000000000000\
         0000000000000000000000000000000;summary 86+372=0e000000",
        "image=crashed-0 changes=ifile inode 1+116=420000002778951b00000000000000000000000000000000000000000000000000000000;\
         summary 77+280=26000080",
    ];
    for text in lines {
        line::repeat(&DualFs, text).expect("a line").unwrap_or_else(|failed| panic!("{failed}"));
    }
}

/// A checkpoint whose inode map ends before the root directory; an inode that says it is its neighbour; a root of no bytes; a
/// block behind the end of the log; contents with a wrong checksum that a call met after it had changed something.
#[test]
fn what_damaged_images_made_of_repairs() {
    let lines = [
        "image=some-0 changes=checkpoint 0+76=02000000;ifile inode 1+52=599d006e9d0b3128b32606675b732388f68381ab198c3ce7a0043c339\
         2257cac941a986e6badd3dba152ca320e1cdfc1d9775cbc2501353a20b3cf7a6a128db346770940addcf4b63c4af22fbbc5a0379d2dbe244e35cbb3867\
         351ca1368b3b8a586bfde26b0eccec26f4c0a818572c197986bc7181310775b7a482db72b54892ee956c324a19e5cbcd4087187817bf59054889970088\
         193ecffee987e;summary 23+64=0e000000",
        "image=crashed-0 changes=inode 14+24=ed410000;inode 14+12=0f000000",
        "image=crowd changes=inode 2+36=000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
         0000000000000000000000000000000000000000000000000000",
        "image=crashed-1 changes=summary 82+64=03000000;inode 8+20=04000000ffa1000000000000000000000100000000000000ff03000000000000000000\
         000100000000f15365000000000000000000f15365000000000000000000f15365000000000000000000f153650000000000000000530000005f1b0beb0000\
         000000000000000000",
        "image=crashed-0 changes=inode 42+120=01000000",
    ];
    for text in lines {
        line::repeat(&DualFs, text).expect("a line").unwrap_or_else(|failed| panic!("{failed}"));
    }
}

/// Descriptors and inodes were lost together: bitmaps kept what nobody had, since no group seemed to have been used.
#[test]
fn bitmaps_of_groups_without_descriptors_are_checked() {
    let text =
        format!("image=crashed-0 changes=descriptors 58+0={};inode map 53+32={}", "00".repeat(199), "00".repeat(2042));
    line::repeat(&DualFs, &text).expect("a line").unwrap_or_else(|failed| panic!("{failed}"));
}

/// A file whose blocks were overwritten where they lay got another name, and a set had the name without them.
#[test]
fn a_name_is_no_older_than_what_it_names() {
    let lines = [
        "seed=80947056275318 profile=Churn size=14680064 format=block=8K,segment=256K mount=cache=2M,relocate=off,sums=off \
         cuts=11:AllKept ops=mkdir /d0 493 0; mkdir /d1 493 0; create /d0/L2 384 0; create /d1/f4 384 7; create /d1/f2 384 0; \
         write /d1/f2 4142 4076 202; fsync /d1/f2 0; write /d1/f2 4142 4076 203; rename /d1/f2 /d0/L2 0; fsync /d1/f4 0",
        "seed=107912945386082 profile=Churn size=14680064 format=block=8K,segment=256K mount=cache=2M,relocate=off,sums=off \
         cuts=11:AllKept ops=mkdir /d1 493 0; create /f5 384 0; create /d1/f5 420 0; write /f5 159479 25364 35; fsync /f5 0; \
         write /f5 159479 25364 36; rename /f5 /d1/f5 0; fsync /d1 0",
    ];
    for text in lines {
        line::repeat(&DualFs, text).expect("a line").unwrap_or_else(|failed| panic!("{failed}"));
    }
}

/// A part of a set that said it was the first one was taken for the whole set, in the next segment, since a repair had written over
/// the first one.
#[test]
fn a_repair_that_was_cut_off_keeps_what_one_without_a_cut_keeps() {
    let line = "seed=245785462177811 profile=Sync size=67108864 image=crashed-2 repair=yes cuts=3:AllKept \
        damage=summary 100+40=00000000 ops=";
    line::repeat(&DualFs, line).expect("a line").unwrap_or_else(|failed| panic!("{failed}"));
}
