//! What once failed, as the lines that repeat it.

use arbor_ffs::Ffs;
use arbor_torture::line::all_pass;

/// A range was zeroed in part, and then there was no space for the rest.
const ZEROED: &str = include_str!("regressions/zeroed.txt");

#[test]
fn zeroing_without_space_changes_nothing() {
    all_pass(&Ffs, &[ZEROED.trim()]);
}

const LINES: &[&str] = &[
    // A file took the name of another, and its data were cut off before they were written: what it had before came back
    // under the new name.
    "seed=123782767663422 profile=Dirs size=67108864 ops=mkdir /d0 493 0; mkdir /d1 493 0; mkdir /d2 493 0; \
     mkdir /d0/d2 448 0; create /d0/f1921 384 0; create /d2/f2928 0 0; create /d1/f928 0 7; write /d1/f928 0 2000 28; \
     fsync /d1/f928 0; write /d1/f928 0 2000 29; rename /d1/f928 /d2/f2928 0; fsync /d0/f1921 0; \
     create /d0/f1323 0 7; rename /d1 /d0/d2 2; fsync /d0/f1323 0; truncate /d2/f2928 0",
    // A directory was freed before the work that its own removals had left.
    "seed=1 profile=Dirs size=67108864 mount=keep=softupdates ops=mkdir /d2 1533 0; mkdir /d1 448 0; \
     mkdir /d0 493 0; rename /d2 /d0/d2 0; mkdir /d2 1023 0; rename /d2 /d0 2; rename /d2 /d0/d2 0; \
     mkdir /d2 448 0; rename /d0 /d2/d2 0",
    // The third name of an exchange vanished before it had been of any use.
    "seed=3 profile=Sync size=67108864 mount=keep=softupdates ops=mkdir /d0 493 0; mkdir /d1 493 0; \
     mkdir /d1/d0 1023 0; syncfs; rename /d0 /d1/d0 2; fsync /d0 0",
    // A name was made again while its removal could still be undone: the directory had it twice.
    "seed=3 profile=Dirs size=67108864 mount=keep=softupdates ops=mkdir /d2 448 0; mkdir /d1 493 0; \
     create /d2/f2528 493 7; mkdir /d1/d0 493 7; rename /d2/f2528 /d2/L0 0; rename /d1/d0 /d2/d2 1; \
     mkdir /d1/d0 493 0",
    // A file was synced, the directory that it lies in was not.
    "seed=4 profile=Dirs size=67108864 mount=keep=softupdates ops=mkdir /d0 493 0; mkdir /d1 493 0; \
     rename /d0 /d1 2; create /d0/f2791 0 0; fsync /d0/f2791 1",
    // The old place of attributes was given away before the inode that named it was written.
    "seed=3 profile=Full size=25165824 mount=keep=sync ops=mkdir /d2 493 0; create /d2/f23 384 7; \
     setxattr /d2/f23 user.x0 60 12 0; syncfs; setxattr /d2/f23 user.x1 256 38 0; mkdir /d2/d2 1023 0",
    // A directory and a link that were being removed had no length any more.
    "seed=1 profile=Dirs size=67108864 mount=keep=sync ops=mkdir /d2 493 7; mkdir /d2/d2 1023 0; rmdir /d2/d2",
    "seed=4 profile=Small size=67108864 mount=keep=sync ops=symlink /L5 4095 9; unlink /L5",
    // A file gave up fragments twice in its count: those that waited to be freed in an indirect block.
    "seed=1 profile=Big size=67108864 mount=keep=softupdates ops=create /f0 0 0; write /f0 677240 12288 357; \
     fallocate /f0 0 962560 243386; syncfs; truncate /f0 860157; write /f0 114688 394725 430; truncate /f0 140295",
    // A link without a target was taken for a good one.
    "seed=1 profile=Small size=67108864 mount=keep=async ops=mkdir /d0 493 0; symlink /d0/L4 127 50",
    // An older name went, waiting for nothing, when the newer one it had waited for was exchanged.
    "seed=1 profile=Dirs size=67108864 mount=keep=softupdates ops=mkdir /d0 493 0; mkdir /d1 493 0; \
     mkdir /d2 493 0; create /d0/f0 420 0; create /d2/f1 384 0; syncfs; rename /d0/f0 /d1/f2 0; \
     rename /d1/f2 /d2/f1 2; background 60000",
    // A directory's count fell for a subdirectory that was on its way to another one and had no name there yet.
    "seed=3 profile=Dirs size=67108864 mount=keep=softupdates ops=mkdir /d0 493 7; mkdir /d1 1533 0; \
     mkdir /d0/d2 448 7; mkdir /d1/d0 448 0; rename /d0/d2 /d1/d0 2; background 40000; background 40000",
    "seed=3 profile=Dirs size=67108864 mount=keep=softupdates ops=mkdir /d0 493 7; mkdir /d1 1533 0; syncfs; \
     mkdir /d0/d2 448 7; rename /d0/d2 /d1/d3 0; background 40000; background 40000",
    // The name that an exchange had put in a place was removed there before the older one might go.
    "seed=111885582703260 profile=Churn size=14680064 ops=mkdir /d0 493 0; mkdir /d1 493 0; create /d1/f1 420 0; \
     create /d0/f5 420 0; rename /d1/f1 /d0/f5 2; rename /d0/f5 /d0/a.name.of.middling.length.1 0; fsync /d1 0; \
     background 1",
    // What took the place of a name was removed, with the name, before the new one of that was there.
    "seed=3 profile=Small size=67108864 mount=keep=softupdates ops=mkdir /d0 493 0; mkdir /d1 493 0; \
     mkdir /d1/d2 493 0; mkdir /d0/d3 493 0; create /d0/d3/f1 420 0; syncfs; rename /d1/d2 /d0/d3 2; rmdir /d0/d3; \
     background 40000; background 40000",
    "seed=3 profile=Small size=67108864 mount=keep=softupdates ops=mkdir /d0 493 0; mkdir /d1 493 0; \
     create /d0/f1 420 0; syncfs; rename /d0/f1 /d1/f2 0; create /d0/f1 420 0; unlink /d0/f1; background 40000; \
     background 40000",
    "seed=47634382260246 profile=Big size=67108864 ops=mkdir /d0 1023 7; create /d0/f0 0 0; rename /d0/f0 /d0/f3 0; \
     create /d0/f0 493 0; unlink /d0/f0; create /d0/f0 420 0",
    // The new name of a directory was there, the name of the one that it moved to was not.
    "seed=92501988124621 profile=Dirs size=67108864 ops=mkdir /d1 448 0; create /d1/f2850 420 0; \
     fsync /d1/f2850 1; mkdir /d2 1533 0; rename /d1 /d2/a.name.of.middling.length.1092 0",
    "seed=3 profile=Dirs size=67108864 mount=keep=softupdates ops=mkdir /d1 448 0; create /d1/f1 420 0; \
     create /f2 420 0; syncfs; mkdir /d2 1533 0; rename /d1 /d2/d1 0; rename /f2 /d2/d1/f1 2; background 40000; \
     background 40000",
    // The only name of a file was in a block of a directory that the directory's inode did not lead to yet.
    "seed=3 profile=Dirs size=67108864 format=block=4K,cg=4M mount=keep=softupdates,cache=1M ops=mkdir /d0 493 0; \
     create /f1 420 0; create /d0/L1 420 0; syncfs; rename /f1 /d0/L2 0; fsync /d0/L2 0",
    "seed=3 profile=Dirs size=67108864 format=block=4K,cg=4M mount=keep=sync,cache=1M ops=mkdir /d0 493 0; \
     create /f1 420 0; create /d0/L1 420 0; syncfs; rename /f1 /d0/L2 0",
    // A block with the new name and without the old one was cut off: the sector of the new one was not written.
    "seed=96 profile=Sync size=16777216 mount=keep=sync from=Aged ops=rename /big/L3 /big/L94 0",
    "seed=2 profile=Sync size=16777216 from=Aged ops=link /a /big/L91; unlink /a; background 40000; background 40000",
    // What was replaced had another name, and that was not on disk yet.
    "seed=2 profile=Sync size=16777216 from=Aged ops=link /a /d/l; rename /d/a /a 0",
    "seed=2 profile=Sync size=16777216 from=Aged ops=link /a /big/L91; rename /b /a 0; fsync /a 0",
    // A new name vanished, and the old one that had waited for it went before another new one was there.
    "seed=2 profile=Sync size=16777216 from=Aged ops=rename /a /n 0; link /n /d/l; unlink /n",
    "seed=2 profile=Sync size=16777216 from=Aged ops=rename /a /e/n 0; link /e/n /d/l; rename /b /e/n 0; \
     create /q 420 0; fsync /q 0",
    // The newest name was on disk, in a directory that was not.
    "seed=2 profile=Sync size=16777216 from=Aged ops=mkdir /e/k 493 0; link /a /e/k/l; create /e/k/m 420 0; \
     background 39900; background 39900; unlink /a; create /q 420 0; fsync /q 0",
    // A directory that was removed took the only name on disk of a file that had been moved out of it.
    "seed=2 profile=Sync size=16777216 from=Aged ops=rename /d/a /e/n 0; rmdir /d; create /q 420 0; fsync /q 0",
    "seed=2 profile=Sync size=16777216 from=Aged ops=rename /d/a /e/n 0; rename /e /d 0; create /q 256 1; fsync \
     /q 0",
    "seed=2 profile=Sync size=16777216 from=Aged ops=rename /e/f /n 0; rmdir /e; create /q 256 1; fsync /q 0",
    "seed=2 profile=Sync size=16777216 from=Aged ops=tmpfile / 1; write @1 0 300 3; link @1 /d/n; fsync @1 0; \
     rename /d/n /e/n 0; unlink /d/a; rmdir /d; create /q 256 1; fsync /q 0",
    "seed=2 profile=Sync size=16777216 from=Aged ops=rename /d/a /e/n 4; unlink /d/a; rmdir /d; create /q 256 \
     1; fsync /q 0",
    "seed=2 profile=Sync size=16777216 from=Aged ops=rename /d/a /e/n 0; rename /d /k 0; rmdir /k; create /q \
     256 1; fsync /q 0",
    // A directory that was never on disk went, and with it what old names had waited for.
    "seed=2 profile=Sync size=16777216 from=Aged ops=mkdir /k 448 3; rename /a /k/a 0; rename /k/a /e/n 0; \
     rmdir /k; create /q 256 1; fsync /q 0",
    "seed=2 profile=Sync size=16777216 from=Aged ops=mkdir /k 448 3; rename /d /k/d 0; rename /k/d /e/d 0; \
     rmdir /k; create /q 256 1; fsync /q 0",
    // The newest name was one that was to go itself.
    "seed=2 profile=Sync size=16777216 from=Aged ops=link /d/a /big/x; rename /d/a /n 0; rename /n /e/n 0; \
     unlink /e/n; create /q 256 1; fsync /q 0; fsync /d 0",
    "seed=2 profile=Sync size=16777216 from=Aged ops=create /d/y 384 9; fsync /d/y 0; link /d/y /big/x; link \
     /d/y /n; unlink /d/y; link /n /e/n; unlink /n; unlink /e/n; create /q 256 1; fsync /q 0; fsync /d 0",
    // A directory grew twice, and the size was rolled back after the first growth.
    "seed=2 profile=Sync size=67108864 format=block=4K,cg=4M ops=mkdir /big 493 0; create /big/L0 420 0; create \
     /big/L1 420 0; create /big/L2 420 0; create /big/L3 420 0; create /big/L4 420 0; create /big/L5 420 0; \
     create /big/L6 420 0; create /a 384 3; write /a 0 3000 5; syncfs; create /big/L7 384 7; rename /a /big/L90 \
     0; syncfs",
    "seed=2 profile=Sync size=67108864 format=block=4K,cg=4M ops=mkdir /big 493 0; create /big/L0 420 0; create \
     /big/L1 420 0; create /big/L2 420 0; create /big/L3 420 0; create /big/L4 420 0; create /big/L5 420 0; \
     create /big/L6 420 0; create /a 384 3; write /a 0 3000 5; syncfs; create /big/L7 384 7; rename /a /big/L90 \
     0; fsync /big/L90 0; create /q 384 0; fsync /q 0",
    // A directory that was not on disk grew, and came there without its blocks.
    "seed=2 profile=Sync size=16777216 from=Aged ops=mkdir /k 448 3; background 28000; background 1000; create \
     /k/L1 384 1; create /k/L2 384 2; create /k/L3 384 2; create /k/L4 384 2; create /k/L5 384 2; create /k/L6 \
     384 2; create /k/L7 384 2; create /k/L8 384 2; create /k/L9 384 9; background 300; background 200; create \
     /q 256 1; fsync /q 0",
    "seed=2 profile=Sync size=67108864 format=block=4K,cg=4M ops=mkdir /k 448 3; background 28000; background \
     1000; create /k/L1 384 1; create /k/L2 384 2; create /k/L3 384 2; background 300; background 200; create \
     /q 256 1; fsync /q 0",
    // A name was twice in its directory: the old entry had not gone when the new one came, in another place.
    "seed=2 profile=Sync size=67108864 format=block=4K,cg=4M ops=mkdir /big 493 0; create /big/L0 420 0; create \
     /big/L1 420 0; create /big/L2 420 0; create /big/L3 420 0; create /big/L4 420 0; create /big/L5 420 0; \
     create /big/L6 420 0; create /big/L7 420 0; syncfs; unlink /big/L3; create /big/L90 420 1; create /big/L3 \
     420 2; fsync /big/L3 0",
    "seed=8500 profile=Sync size=16777216 from=Aged cuts=7:Seeded(3426500100) ops=unlink /l; rename /b /big/L4 \
     0; rename /big/L3 /big/L4 0; rename /d/a /e/d 0; rename /big/L4 /l 0",
    // A directory was moved and removed, and its old name or that of another was left.
    "seed=2 profile=Sync size=16777216 from=Aged ops=rename /e/f /d/n 0; background 28500; rmdir /d/n; \
     background 600",
    "seed=2 profile=Sync size=16777216 from=Aged ops=mkdir /k 448 2; syncfs; rename /k /e/k 0; rename /e /b 2; \
     background 28500; rmdir /b/k; background 28500",
    // A moved directory was removed while its old name was on disk.
    "seed=2 profile=Sync size=16777216 from=Aged ops=mkdir /k 485 101; syncfs; rename /k /d/e 0; fsync /d/e 0; \
     rmdir /d/e; background 200",
    "seed=2 profile=Sync size=16777216 from=Aged ops=rename /e/f /n 0; create /q1 257 1; fsync /q1 0; \
     background 27900; rmdir /n",
    "seed=2 profile=Sync size=16777216 from=Aged ops=mkdir /k 485 101; syncfs; rename /k /d/e 0; fsync /d/e 0; \
     rename /e/f /d/e 0; fsync /d/e 0; background 200",
    // Two directories lay in each other on disk, and neither in the root.
    "seed=2 profile=Sync size=16777216 from=Aged ops=rename /e /big/L90 0; rename /big/L90/f /big/L90/e 0; \
     rename /big/L90/e /big/L93 0; rename /big/L90 /big/L93/b 0",
    // A change of an entry was undone though a later one was not.
    "seed=2 profile=Sync size=16777216 from=Aged ops=create /z 384 1; create /y 384 2; syncfs; create /d/n 384 \
     5; hold /d/n 1; rename /a /d/n 0; rename /d/n /e/n 0; fsync /e 0; rename /y /d/n 0; fsync /z 0; background \
     40000",
    // The inode of a long symbolic link was on disk without its block.
    "seed=759 profile=Sync size=67108864 format=block=4K,cg=4M ops=symlink /n 1500 205; background 28000; \
     background 27900",
    // Fragments of a file that was truncated were free, and an image of its inode still had them.
    "seed=2 profile=Sync size=67108864 format=block=4K,cg=4M ops=create /w 420 0; write /w 0 1000 5; syncfs; \
     append /w 500 6; truncate /w 300; append /w 900 7; background 28500",
    // The first mount of a journal tore its tail, and the second one was not there yet.
    "seed=6 profile=Sync size=16777216 mount=keep=journal cuts=3:Seeded(1456556753) ops=",
    // Bytes of an append that a power cut took back were there again when the file grew over them: before its page was
    // written (soft updates), or for good if it grew after the block.
    "seed=2 profile=Sync size=16777216 from=Aged first=5@12:DropOne(0) ops=create /x 420 0; write /x 0 100 1; \
     syncfs; append /x 300 2; background 40000; truncate /x 110; background 40000; truncate /x 700; background 40000",
    "seed=2 profile=Sync size=16777216 from=Aged first=5@12:DropOne(0) ops=create /x 420 0; write /x 0 65236 1; \
     syncfs; append /x 200 2; background 40000; truncate /x 200000; fsync /x 0; background 40000",
    "seed=2 profile=Sync size=16777216 mount=keep=journal from=Aged first=5@8:AllKept ops=create /x 420 0; \
     write /x 0 65236 1; syncfs; append /x 200 2; background 40000; fallocate /x 0 70000 8000; syncfs",
    "seed=2 profile=Sync size=16777216 mount=keep=sync from=Aged first=5@8:AllKept ops=create /x 420 0; \
     write /x 0 65236 1; syncfs; append /x 200 2; background 40000; write /x 80000 10 5; fsync /x 0",
    "seed=2 profile=Sync size=16777216 from=Aged first=5@12:DropOne(0) ops=create /x 420 0; write /x 0 100 1; \
     syncfs; append /x 300 2; background 40000; write /x 0 100 3; truncate /x 110; background 40000",
    "seed=2 profile=Sync size=16777216 from=Aged first=5@12:DropOne(0) ops=create /x 420 0; write /x 0 65236 1; \
     syncfs; append /x 200 2; background 40000; write /x 0 65236 3; truncate /x 65300; background 40000",
];

#[test]
fn lines() {
    all_pass(&Ffs, LINES);
}

/// Directories full of names that have two to a chunk, so that few make the last block move.
#[test]
fn full_directories() {
    let name = |short: &str| format!("/big/{short:n<248}");
    let make = |names: &[&str]| {
        names.iter().enumerate().map(|(i, n)| format!("create {} 420 {i}; ", name(n))).collect::<String>()
    };
    let head = "seed=2 profile=Sync size=67108864 format=block=4K,cg=4M";
    // The removal of a name waited for the pointer to its block, and the same name came into another block.
    let many: Vec<String> = (1..17).map(|n| format!("N{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let first = format!("mkdir /big 493 0; {}create /big/x 420 0; {}", make(&["N0"]), make(&many));
    let second = format!("write {} 0 300 5; create /a 384 3; create /z 384 3; syncfs; ", name("N1"));
    let third = format!("unlink {}; unlink {}; background 28500; ", name("N15"), name("N0"));
    let fourth = format!("create {} 420 0; background 600; unlink /big/x; rename /a {} 0; ", name("N17"), name("N15"));
    let line = format!("{head} ops={first}{second}{third}{fourth}fsync /z 0; background 40000");
    all_pass(&Ffs, &[&line]);
    // An exchange made the directory grow, and wrote to where its block had been.
    let names = ["p0", "p1", "q0", "q1", "q2", "q3"];
    let ops = format!("mkdir /big 493 0; {}write {} 0 300 5; syncfs; ", make(&names), name("p0"));
    let line = format!("{head} mount=keep=sync ops={ops}rename {} {} 2; fsync /big 0", name("q2"), name("q3"));
    all_pass(&Ffs, &[&line]);
}

const FAULTS: &[&str] = &[
    // A file that was not synced, and whose pages had left the cache, showed what another had had there.
    "profile=Churn size=25165824 format=block=4K,cg=4M,journal=1M mount=keep=journal,cache=1M \
     fault=Flush:21:FromThenOn:Forgotten(9549655) end=Cut again=Flush:4 ops=create /filler 420 0; \
     write /filler 0 1310720 2; unlink /filler; syncfs; create /filler 420 0; write /filler 0 1310720 1",
    // A file was removed while the device could not read its group.
    "profile=Full size=25165824 format=block=8K,frag=8K,minfree=0 mount=cache=2M,noreallocblks,spread,spreaddirs \
     fault=Read:7:FromThenOn:Error end=Unmount ops=create /filler 420 0; write /filler 0 2621440 2; unlink /filler; \
     create /filler 420 0; write /filler 0 2621440 1",
    // The files of a group could not be read any more when the group was damaged.
    "profile=Full size=25165824 format=block=4K,cg=4M,journal=1M mount=keep=journal,cache=1M \
     fault=Write:9:Once:Flipped(11009007) end=Unmount ops=mkdir /d0 493 0; mkdir /d1 493 0; create /d0/f23 493 7; \
     create /d1/f27 420 0; remount; write /d0/f23 3945813 411877 57",
    // An unmount after a failure wrote half of a call: a file without a name, a name without its inode.
    "profile=Sync size=25165824 mount=keep=journal fault=Read:8:FromThenOn:Error end=Unmount ops=mkdir /d0 493 0; \
     tmpfile /d0 2",
    "profile=Sync size=25165824 mount=keep=sync fault=Write:1:FromThenOn:Full end=Unmount ops=create /L1 493 0",
    "profile=Small size=25165824 mount=keep=sync fault=Flush:5:FromThenOn:Forgotten(10656329) end=Unmount \
     ops=mkdir /d3 493 0",
    // A superblock that was damaged on disk was read, and written back with a checksum that fits.
    "profile=Sync size=25165824 mount=keep=journal fault=Write:1:Once:Flipped(3962617) end=Cut \
     ops=mkdir /d0 493 0; create /d0/f3 0 7; tmpfile /d0 2; fsync /d0/f3 0",
    // A sector of an older transaction stood in a torn one, and no CRC saw it: both end in their own.
    "profile=Sync size=25165824 mount=keep=journal fault=Flush:18:Once:Forgotten(11007971) end=Unmount \
     ops=mkdir /d0 493 0; mkdir /d1 493 0; setxattr / user.x0 255 3 0; create /d1/f2 384 7; \
     setxattr /d1/f2 user.x1 1 12 1; fsync /d1/f2 1; create /d1/f1 0 0; create /d0/f4 0 0; remount; \
     create /d0/f0 493 0; unlink /d1/f1; background 6000; setxattr /d1/f2 user.x0 8 50 0; syncfs; \
     append /d0/f4 4021 53",
    // A transaction was lost in a journal written wrong: the list of inodes without names led to one with a name.
    "profile=Sync size=25165824 mount=keep=journal fault=Write:4:Once:Flipped(8782213) end=Cut again=Read:7 \
     ops=mkdir /d1 493 0; create /d1/L4 384 0; hold /d1/L4 3; fsync /d1/L4 1; unlink /d1/L4; fsync /d1 0; \
     background 6000",
    // A write said that it was short, and bytes after its end went to the disk.
    "profile=Full size=25165824 format=block=4K,cg=4M,journal=1M mount=keep=journal,cache=1M \
     fault=Read:18:Once:Error end=Promise ops=mkdir /d2 493 0; create /d2/f9 0 7; link /d2/f9 /d2/L5; \
     write /d2/f9 139 424350 22; remount; write /d2/L5 0 397448 27",
    // A large truncation that a fault ends has been done in part.
    "profile=Full size=25165824 mount=keep=sync fault=Read:16:Once:Error end=Promise again=Write:1 \
     ops=mkdir /d0 493 0; create /d0/f 493 7; write /d0/f 2392064 311982 21; remount; \
     write /d0/f 5368709974 329017 36; truncate /d0/f 3239936",
    // A recovery that a fault ended had cleared what a directory named, and not yet the directory.
    "profile=Full size=25165824 format=block=4K,cg=4M mount=cache=1M fault=Write:32:Once:Torn(14493473) \
     end=Promise again=Write:4 ops=mkdir /d0 493 0; mkdir /d1 493 0; mkdir /d2 493 0; rename /d1 /d2/d0 1; \
     create /f23 420 0; write /f23 0 282524 9; append /f23 451957 10; append /f23 438379 13; append /f23 264291 16",
];

/// Faults of the device.
#[test]
fn faults() {
    all_pass(&Ffs, FAULTS);
}
