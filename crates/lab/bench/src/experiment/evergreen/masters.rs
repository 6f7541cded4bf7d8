//! How far the blocks lie apart that are reserved for master blocks, the paper's n: what a commit costs, and booting.

use super::{CE_PC, Filled, POSTMARK};
use crate::experiment::curves::{Axis, Chart, Charts, Host, Measured, Statement};
use crate::experiment::{Case, Experiment, Load, MOUNT, Part, Quantity, Shape};

pub(in crate::experiment) const MASTERS: Experiment = Experiment {
    name: "evergreen-masters",
    about: "A block in 64 to 16,384 of 256 MB is reserved for master blocks: synchronous PostMark, a power cut, booting.",
    source: "left open by Hyun and others, 2008, section III",
    columns: COLUMNS,
    others: &[],
    reference: USUAL,
    log_bound: (&[], 0.0),
    host: CE_PC,
    cases: &[case("20% full", 20), case("50% full", 50), case("80% full", 80)],
    series: COLUMNS,
    shape: Shape::Charts(&Charts {
        x: Axis { name: "file system utilisation", unit: "%", log: false },
        charts: &[
            Chart::new("synchronous PostMark", &["commits"], Quantity::Elapsed),
            Chart::new("seeks of it", &["commits"], Quantity::Seek),
            Chart { log: true, ..Chart::new("booting after a power cut", &["boot"], Quantity::Elapsed) },
            Chart { log: true, ..Chart::new("read requests of it", &["boot"], Quantity::Reads) },
        ],
        statements: &[
            Statement {
                text: "The lower n, the better the performance.",
                what: "synchronous PostMark, n = 64 / n = 16,384, 50% full",
                figure: |m| over(m, "commits", "Evergreen-n64", "Evergreen-n16384"),
                range: (0.0, 0.97),
                why: "",
            },
            Statement {
                text: "A higher n decreases the booting time.",
                what: "booting, n = 16,384 / n = 64, 50% full",
                figure: |m| over(m, "boot", "Evergreen-n16384", "Evergreen-n64"),
                range: (0.0, 0.5),
                why: "",
            },
            Statement {
                text: "Our question: is there anything to gain from an n below the paper's 1,024?",
                what: "synchronous PostMark, n = 64 / n = 1,024, 50% full",
                figure: |m| over(m, "commits", "Evergreen-n64", USUAL),
                range: (0.0, 0.97),
                why: "",
            },
        ],
    }),
};

pub(in crate::experiment) const MASTERS_DISK: Experiment =
    Experiment { name: "evergreen-masters-disk", host: Host { disk: "st39140", ..CE_PC }, ..MASTERS };

const USUAL: &str = "Evergreen-n1024";
const COLUMNS: &[&str] = &["Evergreen-n64", "Evergreen-n256", USUAL, "Evergreen-n4096", "Evergreen-n16384"];
const PARTS: &[Part] = &[Part::new("commits", POSTMARK), Part::new("boot", &[MOUNT])];

const fn case(name: &'static str, percent: u32) -> Case {
    let load = Load::Filled(Filled { is_cut: true, ..Filled::to(percent, true).small() });
    Case { name, load, x: percent as f64, parts: PARTS }
}

fn over(m: &Measured<'_>, part: &str, over: &str, under: &str) -> Option<f64> {
    m.ratio(over, under, 50.0, part, Quantity::Elapsed)
}
