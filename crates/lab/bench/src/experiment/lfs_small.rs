//! Small files: Rosenblum's first benchmark, as Seltzer and others ran it to compare the two systems.

use super::curves::{Axis, Chart, Charts, Host, Measured, Statement};
use super::{Case, Experiment, Load, Part, Quantity, Shape};
use crate::workload::primitive::SmallFiles;

/// An order of magnitude.
pub(super) const MAGNITUDE: (f64, f64) = (5.0, 20.0);

/// The experiment.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "lfs-small",
    about: "10,000 files of 1 KB are made, read in the same order, and removed.",
    source: "Seltzer and others, USENIX 1995, validation, after Rosenblum and Ousterhout, SOSP 1991, section 5.1",
    columns: &["LFS-4K", "FFS-rotdelay", "FFS"],
    others: &[],
    reference: "FFS-rotdelay",
    log_bound: (&[], 0.0),
    host: Host::LFS,
    cases: &[Case {
        name: "",
        load: Load::SmallFiles(SmallFiles { files: 10_000, file_bytes: 1024, files_per_dir: 10_000, fsync: false }),
        x: 0.0,
        parts: &[Part::new("create", &["create"]), Part::new("read", &["read"]), Part::new("delete", &["delete"])],
    }],
    series: &[],
    shape: Shape::Charts(&Charts {
        x: Axis { name: "", unit: "", log: false },
        charts: &[Chart {
            title: "10,000 files of 1 KB",
            parts: &["create", "read", "delete"],
            quantity: Quantity::FileRate,
            log: false,
            relative: false,
            over: None,
            classes: None,
        }],
        statements: &[
            Statement {
                text: "LFS creates small files an order of magnitude faster than FFS.",
                what: "LFS-4K / FFS-rotdelay, create",
                figure: |m| over_ffs(m, "create"),
                range: MAGNITUDE,
                why: "It is more: FFS waits for a directory and an inode for each file, and the processor costs nothing.",
            },
            Statement {
                text: "Reading them is comparable.",
                what: "LFS-4K / FFS-rotdelay, read",
                figure: |m| over_ffs(m, "read"),
                range: (0.5, 2.0),
                why: "",
            },
            Statement {
                text: "LFS deletes them an order of magnitude faster.",
                what: "LFS-4K / FFS-rotdelay, delete",
                figure: |m| over_ffs(m, "delete"),
                range: MAGNITUDE,
                why: "It is more: FFS waits for a directory and an inode for each file, and the processor costs nothing.",
            },
        ],
    }),
};

fn over_ffs(m: &Measured<'_>, part: &str) -> Option<f64> {
    m.ratio("LFS-4K", "FFS-rotdelay", 0.0, part, Quantity::FileRate)
}
