//! How fast a tree that was written in one go is searched and read with nothing in memory: no experiment of a paper, but what
//! those who keep source trees and packages in a volume do with it (`find`, `tar`, `grep -r`).
//!
//! What a search could reach is the speed at which all that is in use would be read from its beginning to its end: that of one
//! file, as long as all of them.

use super::curves::{Axis, Chart, Charts, Host, Measured, Statement};
use super::{Case, Experiment, Load, Part, Quantity, Shape};
use crate::workload::kernel_trees::{Course, KernelTrees};

const REISERFS: &str = "ReiserFS-PIII";
const YFS: &str = "yFS-PIII";

/// On the disk of the DualFS paper.
pub(super) const OLD: Experiment = Experiment {
    name: "cold-tree",
    about: "Four trees like that of Linux 2.4.19 are untarred in one go, and searched and read cold; so is one file as long as all.",
    source: "No paper's: what those do who keep trees of files in a volume",
    columns: &[REISERFS, YFS, "LFS-PIII", "DualFS", "FFS-orlov"],
    others: &["ReiserFS-PIII-noahead", "ReiserFS-notails-PIII", "ReiserFS-notails-PIII-noahead"],
    reference: REISERFS,
    log_bound: (&[], 0.0),
    host: Host {
        machine: "pentium3-noatime",
        disk: "st34310a",
        partition_bytes: None,
        memory_bytes: Some((256 << 20, 96 << 20)),
    },
    cases: &[
        case("the tree is read", Course::Full, &[Part::new("read", &["r-dm"])]),
        case("the tree is searched", Course::Find, &[Part::new("search", &["r-m"])]),
        case("one file is read", Course::Whole, &[Part::new("one file", &["r-one"])]),
    ],
    series: &[],
    shape: Shape::Charts(&Charts {
        x: Axis { name: "", unit: "", log: false },
        charts: &[
            Chart::new("cold", &["search", "read", "one file"], Quantity::Elapsed),
            Chart::new("space in use", &["search", "read", "one file"], Quantity::Used),
        ],
        statements: SAYS,
    }),
};

pub(super) const HC310: Experiment = on("cold-tree-hc310", "hc310");
pub(super) const SSD_980PRO: Experiment = on("cold-tree-980pro", "980pro");
pub(super) const SSD_870EVO: Experiment = on("cold-tree-870evo", "870evo");

/// On a drive of today.
const fn on(name: &'static str, disk: &'static str) -> Experiment {
    Experiment { name, host: Host { machine: "linux", disk, ..OLD.host }, ..OLD }
}

const JUMPS: &str = "On a disk of today each of some 130 internal nodes of the tree costs a way there and a way back.";

const fn case(name: &'static str, course: Course, parts: &'static [Part]) -> Case {
    Case { name, load: Load::KernelTrees(KernelTrees::new(course, 1)), x: 0.0, parts }
}

/// How long reading all that is in use takes at the speed of one file, over the time of a part.
fn share(m: &Measured<'_>, subject: &str, part: &str) -> Option<f64> {
    let of = |part, quantity| m.figure(subject, 0.0, part, quantity);
    let speed = of("one file", Quantity::Used)? / of("one file", Quantity::Elapsed)?;
    Some(of(part, Quantity::Used)? / speed / of(part, Quantity::Elapsed)?)
}

const MOST: (f64, f64) = (0.9, f64::INFINITY);

const SAYS: &[Statement] = &[
    Statement {
        text: "ReiserFS reads the tree at 90% of the speed at which it reads one file.",
        what: "time for what is in use at the speed of one file / time",
        figure: |m| share(m, REISERFS, "read"),
        range: MOST,
        why: JUMPS,
    },
    Statement {
        text: "Searching it takes no longer than reading all of it at that speed.",
        what: "time for what is in use at the speed of one file / time",
        figure: |m| share(m, REISERFS, "search"),
        range: MOST,
        why: JUMPS,
    },
    Statement {
        text: "Without tails a search takes no longer with read-ahead than without.",
        what: "time without read-ahead / with it",
        figure: |m| m.ratio("ReiserFS-notails-PIII-noahead", "ReiserFS-notails-PIII", 0.0, "search", Quantity::Elapsed),
        range: MOST,
        why: "On the slower SSD a window costs as much as twelve blocks, and is thought to cost four.",
    },
];
