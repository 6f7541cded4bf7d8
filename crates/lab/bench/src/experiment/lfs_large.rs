//! A large file: Rosenblum's second benchmark, as Seltzer and others ran it to compare the two systems.

use super::curves::{Axis, Chart, Charts, Host, Measured, Statement};
use super::{Case, Experiment, Load, Part, Quantity, Shape};
use crate::workload::primitive::BigFile;

/// The experiment.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "lfs-large",
    about: "A file of 100 MB is written and read in order, and in units of 8 KB at random.",
    source: "Seltzer and others, USENIX 1995, validation, after Rosenblum and Ousterhout, SOSP 1991, section 5.1",
    columns: &["LFS-4K", "FFS-rotdelay", "FFS"],
    others: &[],
    reference: "FFS-rotdelay",
    log_bound: (&[], 0.0),
    host: Host::LFS,
    cases: &[Case {
        name: "",
        load: Load::BigFile(BigFile { file_bytes: 100 << 20, io_bytes: 8 << 10 }),
        x: 0.0,
        parts: &[
            Part::new(WRITE, &["sequential write"]),
            Part::new(READ, &["sequential read"]),
            Part::new(RANDOM_WRITE, &["random write"]),
            Part::new(RANDOM_READ, &["random read"]),
            Part::new(REREAD, &["sequential reread"]),
        ],
    }],
    series: &[],
    shape: Shape::Charts(&Charts {
        x: Axis { name: "", unit: "", log: false },
        charts: &[Chart {
            title: "a file of 100 MB",
            parts: &[WRITE, READ, RANDOM_WRITE, RANDOM_READ, REREAD],
            quantity: Quantity::Throughput,
            log: false,
            relative: false,
            over: None,
            classes: None,
        }],
        statements: &[
            Statement {
                text: "FFS tuned for writing writes in order somewhat faster than LFS.",
                what: "FFS-rotdelay / LFS-4K, sequential write",
                figure: |m| ratio(m, "FFS-rotdelay", "LFS-4K", WRITE),
                range: (1.0, 1.5),
                why: "",
            },
            Statement {
                text: "LFS, which clusters reads and reads ahead, reads in order as fast as FFS tuned for reading.",
                what: "LFS-4K / FFS, sequential read",
                figure: |m| ratio(m, "LFS-4K", "FFS", READ),
                range: (0.85, 1.18),
                why: "",
            },
            Statement {
                text: "LFS turns random writes into sequential ones.",
                what: "LFS-4K / FFS, random write",
                figure: |m| ratio(m, "LFS-4K", "FFS", RANDOM_WRITE),
                range: (1.2, f64::INFINITY),
                why: "",
            },
            Statement {
                text: "LFS reads at random more slowly than FFS: of two blocks of 4 KB the second looks like reading \
                       in order, and what is read ahead is of no use.",
                what: "LFS-4K / FFS, random read",
                figure: |m| ratio(m, "LFS-4K", "FFS", RANDOM_READ),
                range: (0.0, 0.95),
                why: "The paper's LFS went for the next block wherever it was. Ours reads ahead only what lies \
                      behind on the disk, so it loses nothing.",
            },
            Statement {
                text: "After random writes FFS, which overwrites, reads in order faster than LFS, which has written in \
                       the order of the writes.",
                what: "LFS-4K / FFS, sequential reread",
                figure: |m| ratio(m, "LFS-4K", "FFS", REREAD),
                range: (0.0, 0.8),
                why: "",
            },
        ],
    }),
};

const WRITE: &str = "sequential write";
const READ: &str = "sequential read";
const RANDOM_WRITE: &str = "random write";
const RANDOM_READ: &str = "random read";
const REREAD: &str = "sequential reread";

fn ratio(m: &Measured<'_>, over: &str, under: &str, part: &str) -> Option<f64> {
    m.ratio(over, under, 0.0, part, Quantity::Throughput)
}
