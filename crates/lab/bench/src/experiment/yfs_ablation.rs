//! What each mechanism brings to yFS: those of the paper, and those that are ours.

use super::curves::{Axis, Chart, Charts, Host, Measured, Statement, least, mean};
use super::{Case, Experiment, Load, POSTMARK, Part, Quantity, Shape};

const OURS: &str = "yFS-ours";
const PAPER: &str = "yFS-paper";
const NOINLINE: &str = "yFS-paper-noinline";
const REFERENCE: &str = "FFS-SU";

const PARTS: [Part; 5] = [
    Part::new("copy", &["copy"]),
    Part::new("PostMark", POSTMARK),
    Part::new("extraction", &["extract"]),
    Part::new("deletion", &["remove"]),
    Part::new("aging", &["age"]),
];
const NAMES: &[&str] = &[PARTS[0].name, PARTS[1].name, PARTS[2].name, PARTS[3].name, PARTS[4].name];

/// The experiment.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "yfs-ablation",
    about: "yFS without one of its mechanisms each, and as its paper describes it, with the workloads of the paper.",
    source: "yFS, FAST 2003, sections 6 and 7",
    columns: &[
        REFERENCE,
        PAPER,
        NOINLINE,
        OURS,
        "yFS-groups",
        "yFS-nodelay",
        "yFS-nowindows",
        "yFS-nocompound",
        "yFS-noinline",
    ],
    others: &[],
    reference: REFERENCE,
    log_bound: (&[], 0.0),
    host: Host { machine: "freebsd4", ..Host::YFS },
    cases: &[
        Case { name: "build", load: Load::KernelBuild, x: 1.0, parts: &[PARTS[0]] },
        Case { name: "50,000 files", load: Load::PostMark(50_000), x: 2.0, parts: &[PARTS[1]] },
        Case { name: "archive", load: Load::Archive, x: 3.0, parts: &[PARTS[2], PARTS[3]] },
        Case { name: "20,000 operations", load: Load::Aging(20_000), x: 4.0, parts: &[PARTS[4]] },
    ],
    series: &[],
    shape: Shape::Charts(&Charts {
        x: Axis { name: "table of the paper", unit: "", log: false },
        charts: &[Chart {
            over: Some(REFERENCE),
            ..Chart::new("elapsed time of FFS-SU / that of the subject", NAMES, Quantity::Elapsed)
        }],
        statements: &[
            Statement {
                text: "yFS works better than soft updates even without a dedicated logging device.",
                what: "elapsed time, FFS-SU / yFS as the paper describes it, the least of five",
                figure: |m| ratios(m, REFERENCE, PAPER, NAMES).map(least),
                range: (1.0, f64::INFINITY),
                why: "The copy is level here. It has fewer small files that fit an inode than the archive, and waits for the source's disk most of the time.",
            },
            Statement {
                text: "That FFS-SU allocates space for what yFS has inline is a major reason for the gap (6.3).",
                what: "elapsed time, without inline data / with, extraction and deletion, geometric mean",
                figure: |m| ratios(m, NOINLINE, PAPER, &NAMES[2..4]).map(mean),
                range: (1.2, f64::INFINITY),
                why: "",
            },
            Statement {
                text: "Inline data do not help in PostMark, whose files are larger (6.2).",
                what: "elapsed time, without inline data / with, PostMark",
                figure: |m| ratios(m, NOINLINE, PAPER, &NAMES[1..2]).map(mean),
                range: (0.95, 1.05),
                why: "",
            },
        ],
    }),
};

/// How much more time one subject takes than another, in each of some parts.
fn ratios(m: &Measured<'_>, over: &str, under: &str, parts: &[&str]) -> Option<Vec<f64>> {
    let x = |part: &str| m.experiment.points(part).next().map(|(case, _)| case.x);
    parts.iter().map(|part| m.ratio(over, under, x(part)?, part, Quantity::Elapsed)).collect()
}
