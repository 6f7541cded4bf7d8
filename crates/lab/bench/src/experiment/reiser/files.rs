//! Files of medium size, and large ones, by one process and by three.

use super::{COLUMNS, EXT2, OTHERS, PC, UNKNOWN};
use crate::experiment::curves::{Axis, Chart, Charts, Host, Statement};
use crate::experiment::{Case, Experiment, Load, Part, Quantity, Shape};
use crate::workload::banded::{self, Band, Banded, Course};

/// Medium files.
pub(in crate::experiment) const MEDIUM: Experiment = Experiment {
    name: "reiser-medium",
    about: "A kernel's source by one process, and X11R6 by three at a time, are copied, read and removed.",
    source: "Reiser, Trees Are Fast, 1998, medium sized file benchmarks",
    columns: COLUMNS,
    others: OTHERS,
    reference: EXT2,
    log_bound: (&[], 0.0),
    // All copies of three processes take more than the banded sets' partition.
    host: Host { partition_bytes: None, ..PC },
    cases: &[case("one process", banded::KERNEL, Course::Alone), case("three", banded::MEDIUM, Course::ByThree)],
    series: &[],
    shape: Shape::Charts(&Charts { x: PROCESSES, charts: CHARTS, statements: MEDIUM_SAYS }),
};

/// Large files.
pub(in crate::experiment) const LARGE: Experiment = Experiment {
    name: "reiser-large",
    about: "110 files of more than 512 KB by one process, and 153 by three at a time, are copied, read and removed.",
    source: "Reiser, Trees Are Fast, 1998, large sized file benchmarks",
    cases: &[case("one process", banded::LARGE, Course::Alone), case("three", banded::LARGE_MANY, Course::ByThree)],
    shape: Shape::Charts(&Charts { x: PROCESSES, charts: CHARTS, statements: LARGE_SAYS }),
    ..MEDIUM
};

const PROCESSES: Axis = Axis { name: "processes", unit: "", log: false };

const fn case(name: &'static str, bands: &'static [Band], course: Course) -> Case {
    let (x, parts) = if matches!(course, Course::Alone) { (1.0, ALONE) } else { (3.0, BY_THREE) };
    Case { name, load: Load::Banded(Banded::new(bands, 100, course)), x, parts }
}

const ALONE: &[Part] = &[
    Part::new("cp -r", &["copy"]),
    Part::new("scan", &["scan"]),
    Part::new("stat", &["stat"]),
    Part::new("interleaved cp", &["interleaved copy"]),
    Part::new("scan afterwards", &["scan again"]),
    Part::new("interleaved rm", &["interleaved removal"]),
    Part::new("rm -rf", &["remove"]),
];
const BY_THREE: &[Part] = &[
    Part::new("three cp -r", &["copy"]),
    Part::new("three interleaved cp", &["interleaved copy"]),
    Part::new("three stats", &["stat"]),
    Part::new("three scans", &["scan"]),
    Part::new("three interleaved rm", &["interleaved removal"]),
    Part::new("three rm -rf", &["remove"]),
];

const NAMES_ALONE: &[&str] =
    &["cp -r", "scan", "stat", "interleaved cp", "scan afterwards", "interleaved rm", "rm -rf"];
const NAMES_BY_THREE: &[&str] =
    &["three cp -r", "three interleaved cp", "three stats", "three scans", "three interleaved rm", "three rm -rf"];

const CHARTS: &[Chart] = &[
    Chart::new("one process", NAMES_ALONE, Quantity::Elapsed),
    Chart::new("three processes", NAMES_BY_THREE, Quantity::Elapsed),
    Chart::new("one process, the disk's part alone", NAMES_ALONE, Quantity::Busy),
    Chart::new("three processes, the disk's part alone", NAMES_BY_THREE, Quantity::Busy),
];

const MEDIUM_SAYS: &[Statement] = ratios! {
    "cp -r", 1, "", 1.13, UNKNOWN;
    "scan", 1, "", 1.07, "";
    "stat", 1, "", 0.94, "";
    "interleaved cp", 1, "", 1.23, "";
    "interleaved rm", 1, "", 1.56, UNKNOWN;
    "rm -rf", 1, "", 10.1, UNKNOWN;
    "three cp -r", 3, "", 1.18, UNKNOWN;
    "three interleaved cp", 3, "", 1.25, "";
    "three stats", 3, "", 0.82, "";
    "three scans", 3, "", 0.89, UNKNOWN;
    "three rm -rf", 3, "", 1.37, UNKNOWN;
    ;
};

const LARGE_SAYS: &[Statement] = ratios! {
    "cp -r", 1, "", 1.26, UNKNOWN;
    "interleaved cp", 1, "", 1.64, "";
    "stat", 1, "", 1.14, UNKNOWN;
    "scan", 1, "", 1.14, "";
    "scan afterwards", 1, "", 1.02, "";
    "interleaved rm", 1, "", 11, UNKNOWN;
    "rm -rf", 1, "", 16, UNKNOWN;
    "three cp -r", 3, "", 1.21, "";
    "three interleaved cp", 3, "", 1.18, "";
    "three stats", 3, "", 1.19, UNKNOWN;
    "three scans", 3, "", 1.10, "";
    "three interleaved rm", 3, "", 8.0, UNKNOWN;
    "three rm -rf", 3, "", 8.5, UNKNOWN;
    ;
};
