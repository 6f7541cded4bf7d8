//! What is compared: engines with their options, and file systems of the kernel.

use crate::show;
use anyhow::{Result, anyhow, bail};
use arbor_bench::{Experiment, Extra, Place, Setup, Subject, System};

/// A subject as `arbor lab list` shows it.
pub(super) struct Known {
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
    pub engine: &'static str,
    /// Options of `mkfs` and of `mount`.
    pub format: &'static str,
    pub mount: &'static str,
    /// Further devices by role with their sizes in bytes.
    pub extra: &'static [(&'static str, u64)],
}

/// The same paper's data base has blocks of 4 KB. Its LFS writes when about a segment is changed, and FFS each block that
/// is changed: here a few are written together, when 192 KB are changed, which is the least.
const LFS_DATABASE: &str = "block=4K,frag=1K,segment=1M";
/// Segments small enough that a volume has many, and indirect blocks that are few: the cleaner is measured.
const LFS_CLEANING: &str = "block=16K,frag=16K,segment=512K";
/// Groups of about 4.4BSD's 16 cylinders. The paper's benchmark was run by root, who may fill all; here `minfree` applies to
/// everybody.
const FFS_AGED: &str = "block=8K,frag=1K,cg=8M,maxcontig=8,minfree=4,journal=0";
/// "File System Logging Versus Clustering": blocks of 8 KB and fragments of 1 KB, clusters of 64 KB, which is what the
/// controller transfers. Assumption: 16 cylinders of the DSP3105 in a group.
const FFS_8K: &str = "block=8K,frag=1K,maxcontig=8,cg=6384K,journal=0";
/// The paper's FFS: what changes names waits for the disk, blocks stay where they were allocated, and a file goes on in
/// another group after its first twelve blocks.
const FFS_OF_THE_TIME: &str = "keep=sync,noreallocblks,spread,cache=8M";
/// The paper's host has not enough memory for the 32 MB that are written and read; how much it has is not known.
const LFS_CACHE: &str = "cache=8M";
const YFS: &str = "block=16K,frag=2K,ag=178M,logsize=32M";
const YFS_GROUPS: &str = "block=16K,frag=2K,ag=178M,logsize=32M,groups=all";
const FFS: &str = "block=16K,frag=2K,cg=178M,journal=0";
/// 128 MB of memory; of changed buffers, FreeBSD 4 keeps 390 of 16 KiB there: with nbuf = 50 + 65536 / 64 +
/// (131072 - 65536) * 2 / (64 * 5) = 1483 (i386/machdep.c), a quarter of them and 20 (kern/vfs_bio.c,
/// hidirtybuffers).
macro_rules! memory {
    () => {
        "cache=128M,dirty=6240K"
    };
}
const CACHE: &str = memory!();

/// A PC of 1998, and so in all its subjects. Assumption: of 64 MB half is for files, and of that up to 60% may be dirty before Linux 2.0 writes it
/// (bdflush, `nfract`).
const PC: &str = "cache=32M,dirty=19M";
/// Blocks and fragments that give files the space of ext2 with blocks of 1 KB, groups of its size, and as much kept
/// free. The paper says that 64,000 files of up to 250 bytes take 14% of 506 MB with ext2, 1 KB each and their inodes.
const EXT2: &str = "block=4K,frag=1K,cg=8M,minfree=5,journal=0";

/// A PC of 2002 with 256 MB. Assumption: of that 192 MB are for files, and of these up to half may be dirty before Linux
/// 2.4 writes them (bdflush, `nfract`, `nfract_sync`).
macro_rules! piii {
    () => {
        "cache=192M,dirty=96M"
    };
}
const PIII: &str = piii!();

/// All subjects. Sizes are those of the papers: of yFS in section 6.
pub(super) const KNOWN: &[Known] = &[
    Known {
        name: "yFS-inline",
        about: "yFS with its log on the same disk.",
        engine: "yfs",
        format: YFS,
        mount: CACHE,
        extra: &[],
    },
    Known {
        name: "yFS-external",
        about: "yFS with its log on a disk of its own.",
        engine: "yfs",
        format: YFS,
        mount: CACHE,
        extra: &[("log", 32 << 20)],
    },
    Known {
        name: "yFS-ours",
        about: "yFS as it is used: groups as they are needed, space allocated late, several calls in one log entry.",
        engine: "yfs",
        format: YFS,
        mount: CACHE,
        extra: &[],
    },
    Known {
        name: "yFS-paper",
        about: "yFS as its paper describes it: all groups in use, space allocated by each write, a log entry for each call.",
        engine: "yfs",
        format: YFS_GROUPS,
        mount: concat!(memory!(), ",nodelay,nowindows,nocompound"),
        extra: &[],
    },
    Known {
        name: "yFS-paper-noinline",
        about: "yFS as its paper describes it, but without data in inodes.",
        engine: "yfs",
        format: YFS_GROUPS,
        mount: concat!(memory!(), ",nodelay,nowindows,nocompound,noinline"),
        extra: &[],
    },
    Known {
        name: "yFS-groups",
        about: "yFS with all groups in use from the beginning.",
        engine: "yfs",
        format: YFS_GROUPS,
        mount: CACHE,
        extra: &[],
    },
    Known {
        name: "yFS-nodelay",
        about: "yFS that allocates space when files are written.",
        engine: "yfs",
        format: YFS,
        mount: concat!(memory!(), ",nodelay"),
        extra: &[],
    },
    Known {
        name: "yFS-nowindows",
        about: "yFS that does not read what lies beside metadata and small files.",
        engine: "yfs",
        format: YFS,
        mount: concat!(memory!(), ",nowindows"),
        extra: &[],
    },
    Known {
        name: "yFS-nocompound",
        about: "yFS that logs the transaction of each call by itself.",
        engine: "yfs",
        format: YFS,
        mount: concat!(memory!(), ",nocompound"),
        extra: &[],
    },
    Known {
        name: "yFS-noinline",
        about: "yFS without data in inodes.",
        engine: "yfs",
        format: YFS,
        mount: concat!(memory!(), ",noinline"),
        extra: &[],
    },
    Known {
        name: "FFS-SU",
        about: "FFS with soft updates, the reference of the yFS paper.",
        engine: "ffs",
        format: FFS,
        mount: concat!("keep=softupdates,", memory!()),
        extra: &[],
    },
    Known {
        name: "FFS-sync",
        about: "FFS that writes metadata at once and waits for them.",
        engine: "ffs",
        format: FFS,
        mount: concat!("keep=sync,", memory!()),
        extra: &[],
    },
    Known {
        name: "FFS-async",
        about: "FFS that writes metadata in any order.",
        engine: "ffs",
        format: FFS,
        mount: concat!("keep=async,", memory!()),
        extra: &[],
    },
    Known {
        name: "FFS-journal",
        about: "FFS with a journal of its metadata.",
        engine: "ffs",
        format: "block=16K,frag=2K,cg=178M,journal=32M",
        mount: concat!("keep=journal,", memory!()),
        extra: &[],
    },
    Known {
        name: "LFS",
        about: "LFS with blocks of 8 KB, as the paper compares it with FFS.",
        engine: "lfs",
        format: "block=8K,frag=1K,segment=1M",
        mount: LFS_CACHE,
        extra: &[],
    },
    Known {
        name: "LFS-4K",
        about: "LFS with blocks of 4 KB, as Rosenblum's Sprite LFS had.",
        engine: "lfs",
        format: "block=4K,frag=1K,segment=1M",
        mount: LFS_CACHE,
        extra: &[],
    },
    Known {
        name: "FFS",
        about: "4.4BSD's FFS, tuned for reading: clusters lie one after the other.",
        engine: "ffs",
        format: FFS_8K,
        mount: FFS_OF_THE_TIME,
        extra: &[],
    },
    Known {
        name: "FFS-rotdelay",
        about: "4.4BSD's FFS, tuned for writing: a gap between clusters, so that the next one is not missed.",
        // The paper loses two thirds of a rotation there; a track of its disk has three and a half blocks.
        engine: "ffs",
        format: "block=8K,frag=1K,maxcontig=8,rotdelay=2,cg=6384K,journal=0",
        mount: FFS_OF_THE_TIME,
        extra: &[],
    },
    Known {
        name: "LFS-uncleaned",
        about: "LFS with blocks of 4 KB that writes a segment when one is full; on a disk with clean segments.",
        engine: "lfs",
        format: LFS_DATABASE,
        mount: "cache=4M,dirty=1M,clean=off",
        extra: &[],
    },
    Known {
        name: "LFS-cleaned",
        about: "The same with its cleaner, on a disk that has been written on often.",
        engine: "lfs",
        format: LFS_DATABASE,
        mount: "cache=4M,dirty=1M",
        extra: &[],
    },
    Known {
        name: "LFS-cleaned-unsorted",
        about: "The same, which chooses by cost and benefit and does not sort what it moves by age, as BSD-LFS.",
        engine: "lfs",
        format: LFS_DATABASE,
        mount: "cache=4M,dirty=1M,agesort=off",
        extra: &[],
    },
    Known {
        name: "LFS-cleaned-greedy",
        about: "The same, which cleans what lives least and does not sort what it moves by age.",
        engine: "lfs",
        format: LFS_DATABASE,
        mount: "cache=4M,dirty=1M,clean=greedy,agesort=off",
        extra: &[],
    },
    Known {
        name: "FFS-4K",
        about: "4.4BSD's FFS with blocks of 4 KB, which writes data as soon as it may.",
        engine: "ffs",
        format: "block=4K,frag=1K,maxcontig=16,journal=0",
        mount: "keep=sync,noreallocblks,spread,cache=4M,dirty=256K",
        extra: &[],
    },
    Known {
        name: "LFS-greedy-unsorted",
        about: "LFS that cleans the emptiest segments, and writes what lives in the order in which it finds it.",
        engine: "lfs",
        format: LFS_CLEANING,
        mount: "cache=32M,dirty=4M,clean=greedy,agesort=off",
        extra: &[],
    },
    Known {
        name: "LFS-greedy",
        about: "LFS that cleans the emptiest segments, and writes what lives sorted by age.",
        engine: "lfs",
        format: LFS_CLEANING,
        mount: "cache=32M,dirty=4M,clean=greedy",
        extra: &[],
    },
    Known {
        name: "LFS-benefit-unsorted",
        about: "LFS that cleans by cost and benefit, and writes what lives in the order in which it finds it.",
        engine: "lfs",
        format: LFS_CLEANING,
        mount: "cache=32M,dirty=4M,agesort=off",
        extra: &[],
    },
    Known {
        name: "LFS-benefit",
        about: "LFS that cleans by cost and benefit, and writes what lives sorted by age: the default.",
        engine: "lfs",
        format: LFS_CLEANING,
        mount: "cache=32M,dirty=4M",
        extra: &[],
    },
    Known {
        name: "FFS-news",
        about: "FFS of a server of news, its files take 82% of the volume.",
        engine: "ffs",
        format: FFS_AGED,
        mount: FFS_OF_THE_TIME,
        extra: &[],
    },
    Known {
        name: "FFS-home-70",
        about: "FFS of a server of home directories, up to 70%.",
        engine: "ffs",
        format: FFS_AGED,
        mount: FFS_OF_THE_TIME,
        extra: &[],
    },
    Known {
        name: "FFS-home-80",
        about: "The same, up to 80%.",
        engine: "ffs",
        format: FFS_AGED,
        mount: FFS_OF_THE_TIME,
        extra: &[],
    },
    Known {
        name: "FFS-home-86",
        about: "The same, up to 86%.",
        engine: "ffs",
        format: FFS_AGED,
        mount: FFS_OF_THE_TIME,
        extra: &[],
    },
    Known {
        name: "FFS-software",
        about: "FFS with installed software, 86%.",
        engine: "ffs",
        format: FFS_AGED,
        mount: FFS_OF_THE_TIME,
        extra: &[],
    },
    Known {
        name: "ReiserFS-paper",
        about: "ReiserFS as in the paper: every tail that fits a node is in the tree, nodes move, no read-ahead.",
        engine: "reiserfs",
        format: "",
        mount: "listing=hash,tails=all,balance=least,noreadahead,ordering=preserve,commit=30,cache=32M,dirty=19M",
        extra: &[],
    },
    Known {
        name: "ReiserFS-ahead",
        about: "ReiserFS-paper, but with read-ahead of what lies together (the paper's next version).",
        engine: "reiserfs",
        format: "",
        mount: "listing=hash,tails=all,balance=least,readahead,ordering=preserve,commit=30,cache=32M,dirty=19M",
        extra: &[],
    },
    Known {
        name: "ReiserFS-log",
        about: "ReiserFS-paper, but with all nodes through the log (version 3.6).",
        engine: "reiserfs",
        format: "",
        mount: "listing=hash,tails=all,balance=least,noreadahead,commit=30,cache=32M,dirty=19M",
        extra: &[],
    },
    Known {
        name: "ReiserFS-first",
        about: "ReiserFS-paper, but with new blocks at the beginning of the volume.",
        engine: "reiserfs",
        format: "",
        mount: "listing=hash,tails=all,balance=least,noreadahead,ordering=preserve,layout=first,commit=30,cache=32M,dirty=19M",
        extra: &[],
    },
    Known {
        name: "ReiserFS-last",
        about: "ReiserFS-paper, but with new blocks behind the block that was taken last.",
        engine: "reiserfs",
        format: "",
        mount: "listing=hash,tails=all,balance=least,noreadahead,ordering=preserve,layout=last,commit=30,cache=32M,dirty=19M",
        extra: &[],
    },
    Known {
        name: "ReiserFS-up",
        about: "ReiserFS-paper, but with new blocks always behind the left neighbour, not before it.",
        engine: "reiserfs",
        format: "",
        mount: "listing=hash,tails=all,balance=least,noreadahead,ordering=preserve,layout=up,commit=30,cache=32M,dirty=19M",
        extra: &[],
    },
    Known {
        name: "ReiserFS-early",
        about: "ReiserFS-paper, but a node is split where it grows rather than filled up together with its neighbours.",
        engine: "reiserfs",
        format: "",
        mount: "listing=hash,tails=all,balance=early,noreadahead,ordering=preserve,commit=30,cache=32M,dirty=19M",
        extra: &[],
    },
    Known {
        name: "FFS-linear",
        about: "FFS in the place of ext2: nothing is ordered, and names are searched one after the other.",
        engine: "ffs",
        format: EXT2,
        mount: "keep=async,nodirhash,cache=32M,dirty=19M",
        extra: &[],
    },
    Known {
        name: "ReiserFS",
        about: "ReiserFS with read-ahead: tails that save much of their block are in the tree.",
        engine: "reiserfs",
        format: "",
        mount: "listing=hash,readahead,cache=32M,dirty=19M",
        extra: &[],
    },
    Known {
        name: "ReiserFS-notails",
        about: "ReiserFS without tails: each file begins with a block.",
        engine: "reiserfs",
        format: "",
        mount: "listing=hash,tails=none,readahead,cache=32M,dirty=19M",
        extra: &[],
    },
    Known {
        name: "FFS-hashed",
        about: "The FFS in the place of ext2, with a hash of names in memory.",
        engine: "ffs",
        format: EXT2,
        mount: "keep=async,cache=32M,dirty=19M",
        extra: &[],
    },
    Known {
        name: "yFS-PC",
        about: "yFS by its defaults, with the memory of that PC.",
        engine: "yfs",
        format: "",
        mount: PC,
        extra: &[],
    },
    Known {
        name: "LFS-PC",
        about: "LFS by its defaults, with the memory of that PC.",
        engine: "lfs",
        format: "",
        mount: PC,
        extra: &[],
    },
    Known {
        name: "DualFS",
        about: "DualFS as in its paper: metadata area of 10% on the outer tracks, prefetching of 16 blocks, relocation, affinity of 10%; no checksums of contents.",
        engine: "dualfs",
        format: "",
        mount: concat!(piii!(), ",sums=off"),
        extra: &[],
    },
    Known {
        name: "DualFS-noprefetch",
        about: "The same without prefetching of metadata.",
        engine: "dualfs",
        format: "",
        mount: concat!(piii!(), ",sums=off,prefetch=1"),
        extra: &[],
    },
    Known {
        name: "DualFS-norelocate",
        about: "The same, but metadata that were read stay where they are.",
        engine: "dualfs",
        format: "",
        mount: concat!(piii!(), ",sums=off,relocate=off"),
        extra: &[],
    },
    Known {
        name: "DualFS-30s",
        about: "The same, but changes wait for half a minute.",
        engine: "dualfs",
        format: "",
        mount: concat!(piii!(), ",sums=off,commit=30"),
        extra: &[],
    },
    Known {
        name: "DualFS-noaffinity",
        about: "The same, but a new directory always gets the emptiest group.",
        engine: "dualfs",
        format: "",
        mount: concat!(piii!(), ",sums=off,affinity=off"),
        extra: &[],
    },
    Known {
        name: "FFS-ext2",
        about: "FFS in the place of the ext2 of 2002: nothing is ordered, blocks of 4 KB, groups of 64 MB, directories apart.",
        engine: "ffs",
        format: "block=4K,frag=4K,cg=64M,minfree=5,journal=0",
        mount: concat!("keep=async,spreaddirs,", piii!()),
        extra: &[],
    },
    Known {
        name: "FFS-orlov",
        about: "The same, but directories are near their parents.",
        engine: "ffs",
        format: "block=4K,frag=4K,cg=64M,minfree=5,journal=0",
        mount: concat!("keep=async,", piii!()),
        extra: &[],
    },
    Known {
        name: "FFS-ext3",
        about: "FFS in the place of ext3: the same with a journal of metadata, which data come before.",
        engine: "ffs",
        format: "block=4K,frag=4K,cg=64M,minfree=5,journal=32M",
        mount: concat!("keep=journal,spreaddirs,", piii!()),
        extra: &[],
    },
    Known {
        name: "ReiserFS-3.6",
        about: "ReiserFS without tails, with a log and unformatted nodes in an area of their own, as version 3.6 with notail.",
        engine: "reiserfs",
        format: "",
        mount: concat!("listing=hash,tails=none,noreadahead,layout=areas,", piii!()),
        extra: &[],
    },
    Known {
        name: "ReiserFS-windows",
        about: "The same, but what lies beside a node or a block is read with it, as our default is.",
        engine: "reiserfs",
        format: "",
        mount: concat!("listing=hash,tails=none,readahead,layout=areas,", piii!()),
        extra: &[],
    },
    Known {
        name: "yFS-PIII",
        about: "yFS by its defaults, with the memory of that PC.",
        engine: "yfs",
        format: "",
        mount: PIII,
        extra: &[],
    },
    Known {
        name: "LFS-PIII",
        about: "LFS by its defaults, with the memory of that PC.",
        engine: "lfs",
        format: "",
        mount: PIII,
        extra: &[],
    },
    Known {
        name: "ReiserFS-PIII",
        about: "ReiserFS by its defaults, with the memory of that PC.",
        engine: "reiserfs",
        format: "",
        mount: PIII,
        extra: &[],
    },
    Known {
        name: "ReiserFS-PIII-noahead",
        about: "The same, but what lies beside a node or a block is not read with it.",
        engine: "reiserfs",
        format: "",
        mount: concat!("noreadahead,", piii!()),
        extra: &[],
    },
    Known {
        name: "ReiserFS-notails-PIII",
        about: "ReiserFS-PIII without tails.",
        engine: "reiserfs",
        format: "",
        mount: concat!("tails=none,", piii!()),
        extra: &[],
    },
    Known {
        name: "ReiserFS-notails-PIII-noahead",
        about: "The same, but what lies beside a node or a block is not read with it.",
        engine: "reiserfs",
        format: "",
        mount: concat!("tails=none,noreadahead,", piii!()),
        extra: &[],
    },
    Known {
        name: "Evergreen-overwrite",
        about: "Evergreen that overwrites what changes, in place and once, so that a crash needs fsck; a cache of 64 blocks.",
        engine: "evergreen",
        format: "",
        mount: "modify=overwrite,redo=none,cache=1216K,dirty=304K,buffers=64",
        extra: &[],
    },
    Known {
        name: "Evergreen-logged",
        about: "The same, but a redo list has the metadata: it lasts whole or not at all.",
        engine: "evergreen",
        format: "",
        mount: "modify=overwrite,redo=metadata,cache=1216K,dirty=304K,buffers=64",
        extra: &[],
    },
    Known {
        name: "Evergreen-adaptive",
        about: "The same, but it chooses block by block.",
        engine: "evergreen",
        format: "",
        mount: "modify=adaptive,cache=1216K,dirty=304K,buffers=64",
        extra: &[],
    },
    Known {
        name: "Evergreen-relocate",
        about: "The same, but all that changes is relocated.",
        engine: "evergreen",
        format: "",
        mount: "modify=relocate,cache=1216K,dirty=304K,buffers=64",
        extra: &[],
    },
    Known {
        name: "Evergreen-scattered",
        about: "The same, but free blocks stay where they are while the volume is idle.",
        engine: "evergreen",
        format: "",
        mount: "modify=relocate,gather=off,cache=1216K,dirty=304K,buffers=64",
        extra: &[],
    },
    Known {
        name: "Evergreen-data",
        about: "The same, but data are overwritten and all else is relocated.",
        engine: "evergreen",
        format: "",
        mount: "modify=relocate,data=overwrite,redo=none,cache=1216K,dirty=304K,buffers=64",
        extra: &[],
    },
    Known {
        name: "Evergreen-metadata",
        about: "The same, but data are relocated and all else is overwritten.",
        engine: "evergreen",
        format: "",
        mount: "modify=overwrite,data=relocate,redo=none,cache=1216K,dirty=304K,buffers=64",
        extra: &[],
    },
    Known {
        name: "Evergreen-n64",
        about: "Evergreen that relocates, with a block in 64 reserved for master blocks.",
        engine: "evergreen",
        format: "stride=64",
        mount: "modify=relocate,cache=1216K,dirty=304K,buffers=64",
        extra: &[],
    },
    Known {
        name: "Evergreen-n256",
        about: "Evergreen that relocates, with a block in 256 reserved for master blocks.",
        engine: "evergreen",
        format: "stride=256",
        mount: "modify=relocate,cache=1216K,dirty=304K,buffers=64",
        extra: &[],
    },
    Known {
        name: "Evergreen-n1024",
        about: "Evergreen that relocates, with a block in 1,024 reserved for master blocks.",
        engine: "evergreen",
        format: "stride=1024",
        mount: "modify=relocate,cache=1216K,dirty=304K,buffers=64",
        extra: &[],
    },
    Known {
        name: "Evergreen-n4096",
        about: "Evergreen that relocates, with a block in 4,096 reserved for master blocks.",
        engine: "evergreen",
        format: "stride=4096",
        mount: "modify=relocate,cache=1216K,dirty=304K,buffers=64",
        extra: &[],
    },
    Known {
        name: "Evergreen-n16384",
        about: "Evergreen that relocates, with a block in 16,384 reserved for master blocks.",
        engine: "evergreen",
        format: "stride=16384",
        mount: "modify=relocate,cache=1216K,dirty=304K,buffers=64",
        extra: &[],
    },
    Known {
        name: "LFS-1M",
        about: "LFS with blocks of 4 KB and segments of 512 KB, with as much memory.",
        engine: "lfs",
        format: "block=4K,frag=4K,segment=512K",
        mount: "cache=1216K,dirty=304K",
        extra: &[],
    },
    Known {
        name: "FFS-1M",
        about: "FFS with blocks of 4 KB that orders nothing, with as much memory.",
        engine: "ffs",
        format: "block=4K,frag=4K,density=8K,journal=0",
        mount: "keep=async,cache=1216K,dirty=304K",
        extra: &[],
    },
    Known {
        name: "FFS-1M-SU",
        about: "The same with soft updates.",
        engine: "ffs",
        format: "block=4K,frag=4K,density=8K,journal=0",
        mount: "keep=softupdates,cache=1216K,dirty=304K",
        extra: &[],
    },
];

/// Subjects that have other options where all is as the paper describes it, and the subject whose options these are.
const AS_DESCRIBED: (&[&str], &str) = (&["yFS-inline", "yFS-external"], "yFS-paper");

/// A file system of the kernel as `arbor lab list` shows it.
pub(in crate::lab) struct Peer {
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
    /// Its type for mount(2).
    pub kind: &'static str,
    /// The program that makes it, and its arguments before the device.
    pub mkfs: &'static [&'static str],
    /// Options of its mount.
    pub mount: &'static str,
    /// The package of Debian that has the program.
    pub package: &'static str,
}

/// All of them, made and mounted by the defaults of their tools. Tables of inodes and logs are cleared by mkfs: the
/// kernel would do it in the background, by the real clock.
pub(in crate::lab) const PEERS: &[Peer] = &[
    Peer {
        name: "ext2",
        about: "ext2, without a journal.",
        kind: "ext2",
        mkfs: &["mkfs.ext2", "-q", "-F"],
        mount: "",
        package: "e2fsprogs",
    },
    Peer {
        name: "ext2-1K",
        about: "ext2 as in 1998: blocks of 1 KB, small inodes, directories without a hash.",
        kind: "ext2",
        mkfs: &["mkfs.ext2", "-q", "-F", "-O", "none", "-b", "1024", "-I", "128"],
        mount: "",
        package: "e2fsprogs",
    },
    Peer {
        name: "ext2-2002",
        about: "ext2 with blocks of 4 KB, but as it was in 2002: small inodes, which are not read ahead, directories without a hash.",
        kind: "ext2",
        mkfs: &["mkfs.ext2", "-q", "-F", "-O", "none", "-b", "4096", "-I", "128"],
        mount: "inode_readahead_blks=0",
        package: "e2fsprogs",
    },
    Peer {
        name: "ext3",
        about: "ext3: ext2 with a journal.",
        kind: "ext3",
        mkfs: &["mkfs.ext3", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
        mount: "",
        package: "e2fsprogs",
    },
    Peer {
        name: "ext4",
        about: "ext4: extents, delayed allocation, a journal.",
        kind: "ext4",
        mkfs: &["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
        mount: "",
        package: "e2fsprogs",
    },
    Peer {
        name: "XFS",
        about: "XFS: extents in B+ trees, a log of changes.",
        kind: "xfs",
        mkfs: &["mkfs.xfs", "-q", "-f"],
        mount: "",
        package: "xfsprogs",
    },
    Peer {
        name: "btrfs",
        about: "btrfs: trees that are never changed in place.",
        kind: "btrfs",
        mkfs: &["mkfs.btrfs", "-q", "-f"],
        mount: "",
        package: "btrfs-progs",
    },
];

/// The subjects of these names, in any case, or else those that `experiment` is usually run on, as far as they are of
/// these engines; an empty list means all engines, and `peer` starts those of the kernel.
pub(super) fn chosen(
    experiment: &Experiment,
    names: &[String],
    engines: &[String],
    peer: &dyn Fn(&'static Peer) -> Result<System<'static>>,
) -> Result<Vec<Subject<'static>>> {
    let known = || KNOWN.iter().map(|k| k.name).chain(PEERS.iter().map(|p| p.name));
    if let Some(wrong) = names.iter().find(|name| !known().any(|k| k.eq_ignore_ascii_case(name))) {
        bail!("no subject is called {wrong:?}; there are {}", listed(known()));
    }
    if let Some(wrong) = engines.iter().find(|name| arboretum::engine(name).is_none()) {
        bail!("no engine is called {wrong:?}; there are {}", listed(arboretum::engines().iter().map(|e| e.name())));
    }
    let has = |list: &[String], name: &str| list.iter().any(|one| one.eq_ignore_ascii_case(name));
    let is_usual = |name: &str| experiment.columns.iter().chain(experiment.others).any(|usual| *usual == name);
    let is_named = |name: &str| if names.is_empty() { is_usual(name) } else { has(names, name) };
    let ours = KNOWN.iter().filter(|k| is_named(k.name) && (engines.is_empty() || has(engines, k.engine)));
    let peers = PEERS.iter().filter(|p| engines.is_empty() && has(names, p.name));
    let peers = peers.map(|p| Ok(Subject { name: p.name.into(), system: peer(p)?, setup: None }));
    ours.map(|known| subject(experiment, known)).chain(peers).collect()
}

fn subject(experiment: &Experiment, known: &Known) -> Result<Subject<'static>> {
    let (names, described) = AS_DESCRIBED;
    let is_described = experiment.is_as_described() && names.contains(&known.name);
    let options = KNOWN.iter().find(|k| is_described && k.name == described).unwrap_or(known);
    let setup = setup(&Known { format: options.format, mount: options.mount, ..*known })?;
    let words = is_described.then(|| in_words(&setup));
    Ok(Subject { name: known.name.into(), setup: words, system: System::Engine(setup) })
}

/// Engine and options.
pub(super) fn in_words(setup: &Setup<'_>) -> String {
    let mut words = vec![setup.engine.name().to_string()];
    let options = [("mkfs", &setup.format), ("mount", &setup.mount)];
    words.extend(options.iter().filter(|(_, o)| !o.is_empty()).map(|(what, options)| format!("{what} -o {options}")));
    words.extend(setup.extra.iter().map(|extra| {
        let place = match extra.place {
            Place::Own => "",
            Place::Before => " before the volume",
            Place::After => " after the volume",
        };
        format!("a {} of {}{place}", extra.role, show::bytes(extra.bytes))
    }));
    words.join(", ")
}

pub(super) fn setup(known: &Known) -> Result<Setup<'static>> {
    let engine = arboretum::engine(known.engine).ok_or_else(|| anyhow!("no engine is called {:?}", known.engine))?;
    let (format, mount) = (known.format.into(), known.mount.into());
    let own = |(role, bytes): &(&str, u64)| Extra { role: role.to_string(), bytes: *bytes, place: Place::Own };
    let extra = known.extra.iter().map(own).collect();
    Ok(Setup { engine, format, mount, extra })
}

/// What the disk of the operating system holds in the yFS paper: FFS with soft updates.
pub(super) fn source() -> Result<Option<Setup<'static>>> {
    KNOWN.iter().find(|k| k.name == "FFS-SU").map(setup).transpose()
}

/// Names with commas between.
pub(super) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(peer: &Peer) -> Result<System<'static>> {
        bail!("{} is not wanted", peer.name)
    }

    #[test]
    fn the_subjects_of_the_papers_are_there_once() {
        for experiment in arbor_bench::list() {
            let usual: Vec<&str> = experiment.columns.iter().chain(experiment.others).copied().collect();
            assert!(usual.contains(&experiment.reference), "{}", experiment.name);
            let mut all: Vec<String> =
                chosen(experiment, &[], &[], &none).unwrap().into_iter().map(|s| s.name).collect();
            assert_eq!(all.len(), usual.len(), "{}: {all:?}", experiment.name);
            all.retain(|name| !usual.contains(&&**name));
            assert!(all.is_empty(), "{}: {all:?}", experiment.name);
        }
    }

    #[test]
    fn names_and_engines_choose() {
        let of = |experiment: &str, names: &[&str], engines: &[&str]| {
            let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
            let experiment = arbor_bench::list().iter().find(|e| e.name == experiment).unwrap();
            chosen(experiment, &owned(names), &owned(engines), &none).map(|all| listed(all.iter().map(|s| &*s.name)))
        };
        let names = |names: &[&str], engines: &[&str]| of("yfs-table1", names, engines);
        assert_eq!(names(&[], &["yfs"]).unwrap(), "yFS-inline, yFS-external");
        assert_eq!(names(&["FFS-SU", "yFS-inline"], &[]).unwrap(), "yFS-inline, FFS-SU");
        assert_eq!(names(&["ffs-su", "YFS-inline"], &[]).unwrap(), "yFS-inline, FFS-SU");
        assert_eq!(of("lfs-small", &[], &["lfs"]).unwrap(), "LFS-4K");
        assert_eq!(of("lfs-small", &["yFS-inline"], &[]).unwrap(), "yFS-inline");
        assert_eq!(names(&["xfs"], &[]).unwrap_err().to_string(), "XFS is not wanted");
        assert_eq!(names(&["FFS-SU"], &["yfs"]).unwrap(), "");
        assert_eq!(names(&["FFS-SU", "ext4"], &[]).unwrap_err().to_string(), "ext4 is not wanted");
        assert_eq!(names(&["ext4"], &["yfs"]).unwrap(), "");
    }
}
