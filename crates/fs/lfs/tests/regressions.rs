//! Lines that once failed, of all sorts but power cuts.

use arbor_lfs::Lfs;

const LINES: &[&str] = &[
    // The size of the ifile was believed, and with it that its blocks have no fragments.
    "image=crashed-0 changes=inode, ifile 1+28=00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
    "image=some-0 changes=inode, ifile 1+128=0000000000000000000000000000000000000000000000000000000000000000bb050000b597172200000000000000000000000000000000000000000000000000000000000000000000000000000000",
    "image=some-2 changes=inode, ifile 1+32=0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
    // The ordinal number of the cleaner's filling was not looked at.
    "image=crashed-2 changes=checkpoint 0+120=ffffffffffffff7f",
    // The log went on with a number that a filling had had, or with another one than its segment has.
    "image=crowd changes=checkpoint 1+64=0100000000000000",
    "image=some-2 changes=checkpoint 1+64=0100000000000000",
    "image=crowd changes=summary 544+32=ffffffffffffff7f",
    // A large directory of size 0: its first block was not taken from the usage of its segment.
    "image=crowd changes=inode, directory 2+36=00000000000000000000000000000000000000000000000000000000000000000000",
    // A directory without links, which has names, ended within a fragment.
    "image=crashed-2 changes=inode, directory 4+24=00;inode, directory 4+40=0004000000000000",
    // A large directory was mended to end within a block.
    "image=crowd changes=inode, directory 2+40=ffcf000000000000",
    // A pointer to nothing that has a checksum kept an indirect block from being freed.
    "image=some-0 changes=indirect block 1169+20=00000080",
    // A directory without links or blocks, which has a name, was taken for one that was removed.
    "image=some-2 changes=inode, directory 6+24=0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
    // The inode map was as long as a checkpoint said, though an inode behind its end was in use.
    "image=some-2 changes=checkpoint 1+76=22000000",
    // Mended blocks of a directory were still going to be written when what leads to them had been cut off.
    "image=crowd changes=inode, directory 2+40=0000000000000080;inode, directory 2+144=660000008fb6c0b26e0000002cb71dec7600000073411eea7e000000edb459c086000000c918a71a8e0000005bb88e9d960000006d3cf673d50000009aecfeb2e5000000958ef3fc00000000000000000000",
];

/// A range was zeroed in part, and then there was no space for the rest.
const ZEROED: &str = include_str!("regressions/zeroed.txt");

#[test]
fn zeroing_without_space_changes_nothing() {
    arbor_torture::line::repeat(&Lfs, ZEROED.trim()).and_then(|done| done).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn lines() {
    for line in LINES {
        eprintln!("{line}");
        arbor_torture::line::repeat(&Lfs, line).and_then(|done| done).unwrap_or_else(|e| panic!("{e}"));
    }
}
