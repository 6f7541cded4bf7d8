//! ReiserFS against ext2, as its author measured it (Reiser, "Trees Are Fast", 1998, benchmark results).
//!
//! The paper gives times, ext2's over reiserfs's, on a disk and a memory that it does not name, and a Pentium Pro of 200
//! MHz. Each ratio is a statement here, which holds if ours is on the same side of 1 and within a factor of 1.5.
//!
//! In the place of ext2 stands FFS with as little order as ext2 keeps, blocks and fragments that give files of the same
//! space, and directories that are searched from their beginning. What that takes the processor is charged for each name
//! that is compared. The kernel's own ext2 can be run beside it.

use super::Quantity;
use super::curves::{Host, Measured};

/// A statement for each ratio of the paper: what is done, with which workload, and the reason if there is one to give;
/// and then further ones.
macro_rules! ratios {
    ($($part:literal, $x:literal, $where:literal, $paper:literal, $why:expr;)+ ; $($more:expr),* $(,)?) => {
        &[
            $(crate::experiment::curves::Statement {
                text: concat!($part, $where, ": ext2 takes ", $paper, " times as long."),
                what: concat!("FFS-linear / ReiserFS-paper, ", $part, $where),
                figure: |m| $crate::experiment::reiser::times(m, $x as f64, $part),
                range: $crate::experiment::reiser::within($paper as f64),
                why: $why,
            },)+
            $($more,)*
        ]
    };
}

mod banded;
mod files;

pub(super) use banded::{BANDED, BANDED_EX, BANDED_SCSI, SMALL, SMALL_EX, SMALL_SCSI};
pub(super) use files::{LARGE, MEDIUM};

/// The host, of 1998 the disk and the memory (see the subjects).
const PC: Host = Host {
    machine: "pentiumpro",
    disk: "st34310a",
    partition_bytes: Some(506 << 20),
    memory_bytes: Some((32 << 20, 19 << 20)),
};

/// The paper's two, as they are played here.
const REISERFS: &str = "ReiserFS-paper";
const EXT2: &str = "FFS-linear";
const COLUMNS: &[&str] = &[REISERFS, EXT2];
/// ReiserFS as it is by default, without tails, with the log of its later version, with the layouts that the paper has tried;
/// FFS with its hash, and the other engines.
const OTHERS: &[&str] = &[
    "ReiserFS",
    "ReiserFS-notails",
    "ReiserFS-ahead",
    "ReiserFS-log",
    "ReiserFS-first",
    "ReiserFS-last",
    "ReiserFS-up",
    "ReiserFS-early",
    "FFS-hashed",
    "yFS-PC",
    "LFS-PC",
];

/// The reason of what does not hold and was not looked into.
const UNKNOWN: &str = "Not explained.";

/// Figures with which a ratio of the paper holds.
pub(super) const fn within(paper: f64) -> (f64, f64) {
    let (least, most) = (paper / 1.5, paper * 1.5);
    if paper > 1.03 {
        (if least < 0.97 { 0.97 } else { least }, most)
    } else if paper < 0.97 {
        (least, if most > 1.03 { 1.03 } else { most })
    } else {
        (least, most)
    }
}

/// ext2's time over that of ReiserFS.
fn times(m: &Measured<'_>, x: f64, part: &str) -> Option<f64> {
    m.ratio(EXT2, REISERFS, x, part, Quantity::Elapsed)
}
