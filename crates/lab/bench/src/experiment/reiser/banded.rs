//! The banded sets, in 1 to 1,000 directories.

use super::{COLUMNS, EXT2, OTHERS, PC, REISERFS};
use crate::experiment::curves::{Axis, Chart, Charts, Host, Measured, Statement};
use crate::experiment::{Case, Experiment, Load, Part, Quantity, Shape};
use crate::workload::banded::{self, Band, Banded, Course};

const ABOUT_BANDED: &str =
    "16,000 files of 0 bytes to 10 MB, four in five below 100 bytes, are made, copied, read and removed.";
const ABOUT_SMALL: &str = "16,000 files of 0 to 250 bytes are made, copied, read and removed.";

pub(in crate::experiment) const BANDED: Experiment = of_banded("reiser-banded", "st34310a", OTHERS);
pub(in crate::experiment) const BANDED_EX: Experiment = banded_on("reiser-banded-ex", "fireballex");
pub(in crate::experiment) const BANDED_SCSI: Experiment = banded_on("reiser-banded-scsi", "st39140");
pub(in crate::experiment) const SMALL: Experiment = of_small("reiser-small", "st34310a", OTHERS);
pub(in crate::experiment) const SMALL_EX: Experiment = small_on("reiser-small-ex", "fireballex");
pub(in crate::experiment) const SMALL_SCSI: Experiment = small_on("reiser-small-scsi", "st39140");

const fn of_banded(name: &'static str, disk: &'static str, others: &'static [&'static str]) -> Experiment {
    Experiment {
        name,
        about: ABOUT_BANDED,
        source: "Reiser, Trees Are Fast, 1998, 80/20 banded file set benchmarks",
        columns: COLUMNS,
        others,
        reference: EXT2,
        log_bound: (&[], 0.0),
        host: Host { disk, ..PC },
        cases: BANDED_CASES,
        series: &[],
        shape: Shape::Charts(&Charts { x: DIRECTORIES, charts: CHARTS, statements: BANDED_SAYS }),
    }
}

/// Only the paper's subjects, and no pictures.
const fn banded_on(name: &'static str, disk: &'static str) -> Experiment {
    let shape = Shape::Charts(&Charts { x: DIRECTORIES, charts: &[], statements: BANDED_SAYS });
    Experiment { shape, ..of_banded(name, disk, &[]) }
}

const fn small_on(name: &'static str, disk: &'static str) -> Experiment {
    let shape = Shape::Charts(&Charts { x: DIRECTORIES, charts: &[], statements: SMALL_SAYS });
    Experiment { shape, ..of_small(name, disk, &[]) }
}

const fn of_small(name: &'static str, disk: &'static str, others: &'static [&'static str]) -> Experiment {
    Experiment {
        about: ABOUT_SMALL,
        source: "Reiser, Trees Are Fast, 1998, 0-250 byte uniform distribution file set benchmarks",
        cases: SMALL_CASES,
        shape: Shape::Charts(&Charts { x: DIRECTORIES, charts: CHARTS, statements: SMALL_SAYS }),
        ..of_banded(name, disk, others)
    }
}

const DIRECTORIES: Axis = Axis { name: "directories", unit: "", log: true };

const BANDED_CASES: &[Case] = &[
    case("1 directory", banded::BANDED, 1),
    case("10 directories", banded::BANDED, 10),
    case("100 directories", banded::BANDED, 100),
    case("1,000 directories", banded::BANDED, 1000),
];
const SMALL_CASES: &[Case] = &[
    case("1 directory", banded::SMALL, 1),
    case("10 directories", banded::SMALL, 10),
    case("100 directories", banded::SMALL, 100),
    case("1,000 directories", banded::SMALL, 1000),
];

const fn case(name: &'static str, bands: &'static [Band], dirs: u32) -> Case {
    Case { name, load: Load::Banded(Banded::new(bands, dirs, Course::Banded)), x: dirs as f64, parts: PARTS }
}

const PARTS: &[Part] = &[
    Part::new("creation", &["create"]),
    Part::new("cp -r", &["copy"]),
    Part::new("scan", &["scan"]),
    Part::new("find -exec ls", &["stat"]),
    Part::new("find -exec cp", &["interleaved copy"]),
    Part::new("du", &["du"]),
    Part::new("rm -rf", &["remove"]),
];
const FULL: &str = "find -exec cp";

const CHARTS: &[Chart] = &[
    log("creation", &["creation"], Quantity::Elapsed),
    log("cp -r", &["cp -r"], Quantity::Elapsed),
    log("scan", &["scan"], Quantity::Elapsed),
    log("find -exec ls", &["find -exec ls"], Quantity::Elapsed),
    log("find -exec cp", &["find -exec cp"], Quantity::Elapsed),
    log("du", &["du"], Quantity::Elapsed),
    log("rm -rf", &["rm -rf"], Quantity::Elapsed),
    log("creation, the disk's part alone", &["creation"], Quantity::Busy),
    log("cp -r, the disk's part alone", &["cp -r"], Quantity::Busy),
    log("scan, the disk's part alone", &["scan"], Quantity::Busy),
    log("find -exec ls, the disk's part alone", &["find -exec ls"], Quantity::Busy),
    log("find -exec cp, the disk's part alone", &["find -exec cp"], Quantity::Busy),
    log("du, the disk's part alone", &["du"], Quantity::Busy),
    log("rm -rf, the disk's part alone", &["rm -rf"], Quantity::Busy),
    Chart::new("space used by the set and its three copies", &[FULL], Quantity::Used),
    Chart::new("names compared in du", &["du"], Quantity::Compared),
];

const fn log(title: &'static str, parts: &'static [&'static str], quantity: Quantity) -> Chart {
    Chart { log: true, ..Chart::new(title, parts, quantity) }
}

/// The part of the partition that the set and its three copies take, %. With ext2 inodes are made in advance; the paper
/// takes none more into account than there are files ("100% inode space utilization").
fn part_used(m: &Measured<'_>, subject: &str) -> Option<f64> {
    let all = PC.partition_bytes? as f64 / 1e6;
    let inodes = if subject == EXT2 { 4.0 * 16_000.0 * 128.0 / 1e6 } else { 0.0 };
    Some(100.0 * (m.figure(subject, 1.0, FULL, Quantity::Used)? + inodes) / all)
}

/// Reasons that several statements share.
const PRICE: &str = "Nearly all of it is the price of names compared, see below.";
const FEW_READS: &str = "Not explained. Our FFS needs a few seconds of the disk for all inodes, ext2 a minute or more.";
const FEW_WRITES: &str = "Not explained. What ext2's disk did in that time the paper does not say.";
const CALLS: &str = "The charge for calls hides the disk, whose part alone is further apart.";
const OWN_READS: &str = "The paper's reiserfs needs four times as long as ours to read the set; ext2 not.";

const BANDED_SAYS: &[Statement] = ratios! {
    "creation", 1, ", 1 directory", 26, PRICE;
    "creation", 10, ", 10 directories", 3.16, FEW_WRITES;
    "creation", 100, ", 100 directories", 1.68, FEW_WRITES;
    "creation", 1000, ", 1,000 directories", 1.34, FEW_WRITES;
    "cp -r", 1, ", 1 directory", 12, "";
    "cp -r", 10, ", 10 directories", 2.9, "";
    "cp -r", 100, ", 100 directories", 2.0, "";
    "cp -r", 1000, ", 1,000 directories", 2.13, "";
    "scan", 1, ", 1 directory", 6.83, "";
    "scan", 10, ", 10 directories", 2.9, "";
    "scan", 100, ", 100 directories", 2.5, "";
    "scan", 1000, ", 1,000 directories", 1.9, "";
    "find -exec ls", 1, ", 1 directory", 2.63, PRICE;
    "find -exec ls", 10, ", 10 directories", 1.44, "";
    "find -exec ls", 100, ", 100 directories", 1.17, "";
    "find -exec ls", 1000, ", 1,000 directories", 1.27, "";
    "find -exec cp", 1, ", 1 directory", 7.7, "";
    "find -exec cp", 10, ", 10 directories", 1.3, "";
    "find -exec cp", 100, ", 100 directories", 1.3, "";
    "find -exec cp", 1000, ", 1,000 directories", 1.5, "";
    "du", 1, ", 1 directory", 26, PRICE;
    "du", 10, ", 10 directories", 4.2, "";
    "du", 100, ", 100 directories", 2.08, FEW_READS;
    "du", 1000, ", 1,000 directories", 3.1, FEW_READS;
    "rm -rf", 1, ", 1 directory", 10, FEW_READS;
    "rm -rf", 10, ", 10 directories", 2.5, FEW_READS;
    "rm -rf", 100, ", 100 directories", 2.08, FEW_READS;
    "rm -rf", 1000, ", 1,000 directories", 4.0, FEW_READS;
    ;
    Statement {
        text: "The set and its three copies take 43% of the partition with reiserfs.",
        what: "space used, ReiserFS-paper, 1 directory, %",
        figure: |m| part_used(m, REISERFS),
        range: (38.7, 47.3),
        why: "",
    },
    Statement {
        text: "They take 58% with ext2.",
        what: "space used, with 128 bytes for each inode, FFS-linear, 1 directory, %",
        figure: |m| part_used(m, EXT2),
        range: (52.2, 63.8),
        why: "",
    },
};

const SMALL_SAYS: &[Statement] = ratios! {
    "creation", 1, ", 1 directory", 57, PRICE;
    "creation", 10, ", 10 directories", 5.9, "";
    "creation", 100, ", 100 directories", 2.11, "";
    "creation", 1000, ", 1,000 directories", 1.53, "";
    "cp -r", 1, ", 1 directory", 25, "";
    "cp -r", 10, ", 10 directories", 5.4, "";
    "cp -r", 100, ", 100 directories", 4.0, FEW_WRITES;
    "cp -r", 1000, ", 1,000 directories", 5.8, CALLS;
    "scan", 1, ", 1 directory", 10.4, OWN_READS;
    "scan", 10, ", 10 directories", 4.1, "";
    "scan", 100, ", 100 directories", 4.7, "";
    "scan", 1000, ", 1,000 directories", 4.1, "";
    "find -exec ls", 1, ", 1 directory", 2.6, PRICE;
    "find -exec ls", 10, ", 10 directories", 1.45, "";
    "find -exec ls", 100, ", 100 directories", 1.15, "";
    "find -exec ls", 1000, ", 1,000 directories", 1.14, "";
    "find -exec cp", 1, ", 1 directory", 10, PRICE;
    "find -exec cp", 10, ", 10 directories", 2.21, "";
    "find -exec cp", 100, ", 100 directories", 1.6, "";
    "find -exec cp", 1000, ", 1,000 directories", 2.02, FEW_READS;
    "du", 1, ", 1 directory", 145, PRICE;
    "du", 10, ", 10 directories", 24, FEW_READS;
    "du", 100, ", 100 directories", 12, FEW_READS;
    "du", 1000, ", 1,000 directories", 10, FEW_READS;
    "rm -rf", 1, ", 1 directory", 9.5, FEW_READS;
    "rm -rf", 10, ", 10 directories", 1.26, "";
    "rm -rf", 100, ", 100 directories", 0.67, "On the ST39140 it does not hold: not explained.";
    "rm -rf", 1000, ", 1,000 directories", 1.46, "";
    ;
    Statement {
        text: "The set and its three copies take 3% of the partition with reiserfs.",
        what: "space used, ReiserFS-paper, 1 directory, %",
        figure: |m| part_used(m, REISERFS),
        range: (2.5, 3.5),
        why: "Heads of items have 24 bytes here, stat data 40, with four times and attributes; how many the paper's have it does not say.",
    },
    Statement {
        text: "They take 14% with ext2.",
        what: "space used, with 128 bytes for each inode, FFS-linear, 1 directory, %",
        figure: |m| part_used(m, EXT2),
        range: (12.6, 15.4),
        why: "",
    },
};
