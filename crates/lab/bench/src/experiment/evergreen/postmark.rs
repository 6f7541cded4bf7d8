//! Figures 4 and 5, the same on other devices, with more or fewer log blocks, and beside other designs.

use super::{
    ASYNC, CE_PC, CHOOSES, COLUMNS, DATA, Filled, LOGGED, METADATA, OVERWRITE, POSTMARK, RELOCATE, SYNC, case,
    cross_over, points,
};
use crate::experiment::curves::{Axis, Chart, Charts, Host, Measured, Statement, mean};
use crate::experiment::{Case, Experiment, Load, Part, Quantity, Shape};

const UTILISATION: Axis = Axis { name: "file system utilisation", unit: "%", log: false };

/// Figure 4.
pub(in crate::experiment) const FIG4: Experiment = Experiment {
    name: "evergreen-fig4",
    about: "PostMark on a volume of 1 GB that is more or less full, overwriting or relocating what changes.",
    source: "Hyun and others, 2008, figure 4",
    columns: COLUMNS,
    others: &[LOGGED, CHOOSES],
    reference: OVERWRITE,
    log_bound: (&[], 0.0),
    host: CE_PC,
    cases: FIG4_CASES,
    series: COLUMNS,
    shape: Shape::Charts(&Charts { x: UTILISATION, charts: FIG4_CHARTS, statements: FIG4_SAYS }),
};

pub(in crate::experiment) const FIG4_DISK: Experiment = fig4_on("evergreen-fig4-disk", "st39140");
pub(in crate::experiment) const FIG4_HC310: Experiment = fig4_on("evergreen-fig4-hc310", "hc310");
pub(in crate::experiment) const FIG4_870EVO: Experiment = fig4_on("evergreen-fig4-870evo", "870evo-used");
pub(in crate::experiment) const FIG4_980PRO: Experiment = fig4_on("evergreen-fig4-980pro", "980pro-used");

const fn fig4_on(name: &'static str, disk: &'static str) -> Experiment {
    Experiment { name, about: ABOUT_SMALL, host: Host { disk, ..CE_PC }, cases: FEW_CASES, ..FIG4 }
}

const ABOUT_SMALL: &str = "The same PostMark on a volume of 256 MB, overwriting or relocating what changes.";

const FIG4_CASES: &[Case] = &[
    case("10% full", Filled::anew(10)),
    case("10% full", Filled::to(10, true)),
    case("20% full", Filled::anew(20)),
    case("20% full", Filled::to(20, true)),
    case("30% full", Filled::anew(30)),
    case("30% full", Filled::to(30, true)),
    case("40% full", Filled::anew(40)),
    case("40% full", Filled::to(40, true)),
    case("50% full", Filled::anew(50)),
    case("50% full", Filled::to(50, true)),
    case("60% full", Filled::anew(60)),
    case("60% full", Filled::to(60, true)),
    case("70% full", Filled::anew(70)),
    case("70% full", Filled::to(70, true)),
    case("80% full", Filled::anew(80)),
    case("80% full", Filled::to(80, true)),
    case("90% full", Filled::anew(90)),
    case("90% full", Filled::to(90, true)),
];

const FEW_CASES: &[Case] = &[
    case("20% full", Filled::anew(20).small()),
    case("20% full", Filled::to(20, true).small()),
    case("60% full", Filled::anew(60).small()),
    case("60% full", Filled::to(60, true).small()),
    case("80% full", Filled::anew(80).small()),
    case("80% full", Filled::to(80, true).small()),
    case("90% full", Filled::anew(90).small()),
    case("90% full", Filled::to(90, true).small()),
];

const FIG4_CHARTS: &[Chart] = &[
    Chart::new("PostMark, asynchronous mode", &[ASYNC], Quantity::Elapsed),
    Chart::new("PostMark, synchronous mode", &[SYNC], Quantity::Elapsed),
    Chart::new("bytes programmed for each written, asynchronous", &[ASYNC], Quantity::FlashWritten),
    Chart::new("the same, synchronous", &[SYNC], Quantity::FlashWritten),
];

const FIG4_SAYS: &[Statement] = &[
    Statement {
        text: "Asynchronous: relocation is faster where utilisation is low.",
        what: "elapsed time, relocation / overwriting, mean of 10% to 60% full",
        figure: |m| times(m, ASYNC, (10.0, 60.0)),
        range: (0.0, 0.97),
        why: "",
    },
    Statement {
        text: "Asynchronous: the curves cross between 70% and 80%.",
        what: "utilisation from which relocation is slower, %",
        figure: |m| cross_over(m, ASYNC),
        range: (70.0, 80.0),
        why: "",
    },
    Statement {
        text: "Asynchronous: beyond that overwriting is faster.",
        what: "elapsed time, relocation / overwriting, mean of 80% and 90% full",
        figure: |m| times(m, ASYNC, (80.0, 90.0)),
        range: (1.03, f64::INFINITY),
        why: "",
    },
    Statement {
        text: "Asynchronous: the gap increases with utilisation.",
        what: "the same ratio, 90% full / 80% full",
        figure: |m| gap(m, ASYNC),
        range: (1.0, f64::INFINITY),
        why: "",
    },
    Statement {
        text: "Synchronous: relocation is faster where utilisation is low.",
        what: "elapsed time, relocation / overwriting, mean of 10% to 60% full",
        figure: |m| times(m, SYNC, (10.0, 60.0)),
        range: (0.0, 0.97),
        why: "",
    },
    Statement {
        text: "Synchronous: the curves cross between 70% and 80%.",
        what: "utilisation from which relocation is slower, %",
        figure: |m| cross_over(m, SYNC),
        range: (70.0, 80.0),
        why: "",
    },
    Statement {
        text: "Synchronous: beyond that overwriting is faster.",
        what: "elapsed time, relocation / overwriting, mean of 80% and 90% full",
        figure: |m| times(m, SYNC, (80.0, 90.0)),
        range: (1.03, f64::INFINITY),
        why: "",
    },
    Statement {
        text: "Synchronous: the gap increases with utilisation.",
        what: "the same ratio, 90% full / 80% full",
        figure: |m| gap(m, SYNC),
        range: (1.0, f64::INFINITY),
        why: "",
    },
];

fn times(m: &Measured<'_>, part: &str, between: (f64, f64)) -> Option<f64> {
    let within = |x: &f64| (between.0..=between.1).contains(x);
    let ratio = |x| m.ratio(RELOCATE, OVERWRITE, x, part, Quantity::Elapsed);
    points(m, part).filter(within).map(ratio).collect::<Option<Vec<_>>>().map(mean)
}

fn gap(m: &Measured<'_>, part: &str) -> Option<f64> {
    let ratio = |x| m.ratio(RELOCATE, OVERWRITE, x, part, Quantity::Elapsed);
    Some(ratio(90.0)? / ratio(80.0)?)
}

/// Figure 5.
pub(in crate::experiment) const FIG5: Experiment = Experiment {
    name: "evergreen-fig5",
    about: "Read and write requests of the same PostMark.",
    source: "Hyun and others, 2008, figure 5",
    cases: FIG5_CASES,
    shape: Shape::Charts(&Charts { x: UTILISATION, charts: FIG5_CHARTS, statements: FIG5_SAYS }),
    ..FIG4
};

const FIG5_CASES: &[Case] = &[
    case("10% full", Filled::anew(10)),
    case("10% full", Filled::to(10, true)),
    case("50% full", Filled::anew(50)),
    case("50% full", Filled::to(50, true)),
    case("80% full", Filled::anew(80)),
    case("80% full", Filled::to(80, true)),
];

const FIG5_CHARTS: &[Chart] = &[
    Chart::new("write requests, asynchronous", &[ASYNC], Quantity::Writes),
    Chart::new("write requests, synchronous", &[SYNC], Quantity::Writes),
    Chart::new("read requests, asynchronous", &[ASYNC], Quantity::Reads),
    Chart::new("read requests, synchronous", &[SYNC], Quantity::Reads),
    Chart::new("written, asynchronous", &[ASYNC], Quantity::Written),
    Chart::new("written, synchronous", &[SYNC], Quantity::Written),
    Chart::new("of this to the redo list, asynchronous", &[ASYNC], Quantity::LogWritten),
    Chart::new("of this to the redo list, synchronous", &[SYNC], Quantity::LogWritten),
];

const FIG5_SAYS: &[Statement] = &[
    Statement {
        text: "Asynchronous: relocation has almost as many write requests.",
        what: "write requests, relocation / overwriting, mean",
        figure: |m| all(m, ASYNC, Quantity::Writes),
        range: (0.95, 1.05),
        why: "neighbours are one request here, and what is relocated lies side by side; counted in blocks it holds, see the next line",
    },
    Statement {
        text: "The same, with a request for each block.",
        what: "bytes written, relocation / overwriting, mean",
        figure: |m| all(m, ASYNC, Quantity::Written),
        range: (0.95, 1.05),
        why: "",
    },
    Statement {
        text: "Asynchronous: there is no notable difference in read requests.",
        what: "read requests, relocation / overwriting, mean",
        figure: |m| all(m, ASYNC, Quantity::Reads),
        range: (0.9, 1.1),
        why: "",
    },
    Statement {
        text: "Synchronous: relocation has about 5% more write requests.",
        what: "write requests, relocation / overwriting, mean",
        figure: |m| all(m, SYNC, Quantity::Writes),
        range: (1.0, 1.1),
        why: "as above, but counted in blocks relocation writes more than in the paper, see the next line",
    },
    Statement {
        text: "The same, with a request for each block.",
        what: "bytes written, relocation / overwriting, mean",
        figure: |m| all(m, SYNC, Quantity::Written),
        range: (1.0, 1.1),
        why: "not explained",
    },
];

fn all(m: &Measured<'_>, part: &str, quantity: Quantity) -> Option<f64> {
    points(m, part).map(|x| m.ratio(RELOCATE, OVERWRITE, x, part, quantity)).collect::<Option<Vec<_>>>().map(mean)
}

/// What the model of the paper's SSD assumes: how many places it has for overwrites.
pub(in crate::experiment) const LOGS: Experiment = Experiment {
    name: "evergreen-logs",
    about: "The same PostMark on a volume of 256 MB of SSDs with more or fewer log blocks.",
    source: "left open by Hyun and others, 2008",
    cases: LOGS_CASES,
    series: &[],
    shape: Shape::Charts(&Charts {
        x: Axis { name: "log blocks", unit: "", log: true },
        charts: LOGS_CHARTS,
        statements: LOGS_SAYS,
    }),
    ..FIG4
};

const LOW: &[Part] = &[Part::new("30% full", POSTMARK)];
const HIGH: &[Part] = &[Part::new("80% full", POSTMARK)];

const fn logs(name: &'static str, percent: u32, log_blocks: usize, parts: &'static [Part]) -> Case {
    let load = Load::Filled(Filled { log_blocks: Some(log_blocks), ..Filled::to(percent, false).small() });
    Case { name, load, x: log_blocks as f64, parts }
}

const LOGS_CASES: &[Case] = &[
    logs("8 log blocks", 30, 8, LOW),
    logs("32 log blocks", 30, 32, LOW),
    logs("128 log blocks", 30, 128, LOW),
    logs("8 log blocks", 80, 8, HIGH),
    logs("32 log blocks", 80, 32, HIGH),
    logs("128 log blocks", 80, 128, HIGH),
];

const LOGS_CHARTS: &[Chart] = &[
    Chart::new("PostMark, 30% full", &["30% full"], Quantity::Elapsed),
    Chart::new("PostMark, 80% full", &["80% full"], Quantity::Elapsed),
];

const LOGS_SAYS: &[Statement] = &[
    Statement {
        text: "Our question: is relocation faster on a volume that is 30% full, whatever the model assumes?",
        what: "elapsed time, relocation / overwriting, greatest of all counts",
        figure: |m| ratios(m, "30% full").map(crate::experiment::curves::greatest),
        range: (0.0, 1.0),
        why: "",
    },
    Statement {
        text: "Our question: is it slower on one that is 80% full, whatever the model assumes?",
        what: "elapsed time, relocation / overwriting, least of all counts",
        figure: |m| ratios(m, "80% full").map(crate::experiment::curves::least),
        range: (1.0, f64::INFINITY),
        why: "",
    },
];

fn ratios(m: &Measured<'_>, part: &str) -> Option<Vec<f64>> {
    points(m, part).map(|x| m.ratio(RELOCATE, OVERWRITE, x, part, Quantity::Elapsed)).collect()
}

/// Other designs on the same SSD with as much memory.
pub(in crate::experiment) const OTHERS: Experiment = Experiment {
    name: "evergreen-others",
    about: "PostMark on a volume of 256 MB: what changes overwritten or relocated by category; LFS with its cleaner; FFS.",
    source: "left open by Hyun and others, 2008",
    others: BESIDE,
    cases: OTHERS_CASES,
    series: &[OVERWRITE, RELOCATE, DATA, METADATA, LFS, FFS, "FFS-1M-SU"],
    shape: Shape::Charts(&Charts { x: UTILISATION, charts: OTHERS_CHARTS, statements: OTHERS_SAYS }),
    ..FIG4
};

const LFS: &str = "LFS-1M";
const FFS: &str = "FFS-1M";
const BESIDE: &[&str] = &[DATA, METADATA, LFS, FFS, "FFS-1M-SU"];

const OTHERS_CASES: &[Case] = &[
    case("10% full", Filled::to(10, false).small()),
    case("10% full", Filled::to(10, true).small()),
    case("30% full", Filled::to(30, false).small()),
    case("30% full", Filled::to(30, true).small()),
    case("50% full", Filled::to(50, false).small()),
    case("50% full", Filled::to(50, true).small()),
    case("70% full", Filled::to(70, false).small()),
    case("70% full", Filled::to(70, true).small()),
    case("80% full", Filled::to(80, false).small()),
    case("80% full", Filled::to(80, true).small()),
];

const OTHERS_CHARTS: &[Chart] = &[
    Chart::new("PostMark, asynchronous", &[ASYNC], Quantity::Elapsed),
    Chart::new("PostMark, synchronous", &[SYNC], Quantity::Elapsed),
    Chart::new("bytes programmed for each written, asynchronous", &[ASYNC], Quantity::FlashWritten),
    Chart::new("the same, synchronous", &[SYNC], Quantity::FlashWritten),
];

const OTHERS_SAYS: &[Statement] = &[
    Statement {
        text: "Our question: is relocation on a nearly empty volume as fast as LFS?",
        what: "elapsed time, Evergreen-relocate / LFS-1M, 10% full, asynchronous",
        figure: |m| m.ratio(RELOCATE, LFS, 10.0, ASYNC, Quantity::Elapsed),
        range: (0.0, 1.2),
        why: "",
    },
    Statement {
        text: "Our question: is overwriting on a full one as fast as FFS?",
        what: "elapsed time, Evergreen-overwrite / FFS-1M, 80% full, asynchronous",
        figure: |m| m.ratio(OVERWRITE, FFS, 80.0, ASYNC, Quantity::Elapsed),
        range: (0.0, 1.2),
        why: "",
    },
];
