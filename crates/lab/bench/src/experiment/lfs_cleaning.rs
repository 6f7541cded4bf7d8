//! What the cleaner costs, by policy and by how full the disk is: the curves of Rosenblum and Ousterhout.

use super::curves::{Axis, Chart, Charts, Classes, Host, Measured, Statement, greatest, least, mean};
use super::{Case, Experiment, Load, Part, Quantity, Shape};
use crate::workload::overwrite::{Access, Overwrite};

/// The volume, bytes: 512 segments.
const VOLUME_BYTES: u64 = 256 << 20;
/// What is overwritten at once, bytes: a block.
const PIECE_BYTES: u32 = 16 << 10;

/// A log needs some segments to go round in.
const MOST_DIVIDED: u32 = 4;

/// Overwriting on a volume that is filled so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Size of the data by that of the volume, %.
    pub percent: u32,
    /// Which pieces are overwritten.
    pub access: Access,
}

impl Filled {
    pub(super) fn volume_bytes(divisor: u32) -> u64 {
        (VOLUME_BYTES / u64::from(divisor.min(MOST_DIVIDED))).next_multiple_of(1 << 20)
    }

    /// Until the measurement, three times as much is overwritten as the volume holds, and then as much again and a half.
    pub(super) fn spec(self, divisor: u32) -> Overwrite {
        let volume = Self::volume_bytes(divisor);
        Overwrite {
            data_bytes: volume / 100 * u64::from(self.percent),
            piece_bytes: PIECE_BYTES,
            is_files: false,
            access: self.access,
            warm_up_bytes: volume * 3,
            measured_bytes: volume / 2 * 3,
            idle_ns: 0,
        }
    }
}

const UNIFORM: &[Part] = &[Part::new("uniform", &["overwrite"]), Part::new("segments, uniform", &["overwrite"])];
const HOT: &[Part] = &[Part::new("hot and cold", &["overwrite"]), Part::new("segments, hot and cold", &["overwrite"])];

const fn uniform(name: &'static str, percent: u32) -> Case {
    let load = Load::Overwrite(Filled { percent, access: Access::Uniform });
    Case { name, load, x: percent as f64, parts: shown(UNIFORM, percent) }
}

const fn hot(name: &'static str, percent: u32) -> Case {
    let load = Load::Overwrite(Filled { percent, access: Access::HOT_AND_COLD });
    Case { name, load, x: percent as f64, parts: shown(HOT, percent) }
}

/// The segments are looked at where the paper does so: 75% full.
const fn shown(parts: &'static [Part], percent: u32) -> &'static [Part] {
    if percent == 75 { parts } else { parts.split_at(1).0 }
}

/// The middle of each class of segments, % of a segment that lives.
const SEGMENTS: &[(f64, Quantity)] = &[
    (2.5, Quantity::Found(0)),
    (7.5, Quantity::Found(1)),
    (12.5, Quantity::Found(2)),
    (17.5, Quantity::Found(3)),
    (22.5, Quantity::Found(4)),
    (27.5, Quantity::Found(5)),
    (32.5, Quantity::Found(6)),
    (37.5, Quantity::Found(7)),
    (42.5, Quantity::Found(8)),
    (47.5, Quantity::Found(9)),
    (52.5, Quantity::Found(10)),
    (57.5, Quantity::Found(11)),
    (62.5, Quantity::Found(12)),
    (67.5, Quantity::Found(13)),
    (72.5, Quantity::Found(14)),
    (77.5, Quantity::Found(15)),
    (82.5, Quantity::Found(16)),
    (87.5, Quantity::Found(17)),
    (92.5, Quantity::Found(18)),
    (97.5, Quantity::Found(19)),
];

const fn segments(title: &'static str, parts: &'static [&'static str]) -> Chart {
    let axis = Axis { name: "live part of the segment", unit: "%", log: false };
    let classes = Some(Classes { axis, x: 75.0, quantities: SEGMENTS });
    Chart { classes, ..Chart::new(title, parts, Quantity::Found(0)) }
}

/// The experiment.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "lfs-cleaning",
    about: "Blocks are overwritten at random, evenly or 90% of the writes to 10% of the blocks; four cleaners of LFS.",
    source: "Rosenblum and Ousterhout, ACM TOCS 10(1), 1992, sections 3.4 to 3.6",
    columns: &["LFS-greedy-unsorted", "LFS-greedy", "LFS-benefit-unsorted", "LFS-benefit"],
    others: &[],
    reference: "LFS-greedy",
    log_bound: (&[], 0.0),
    host: Host::LFS,
    cases: &[
        uniform("20% full, even", 20),
        uniform("40% full, even", 40),
        uniform("60% full, even", 60),
        uniform("75% full, even", 75),
        uniform("80% full, even", 80),
        hot("20% full, hot and cold", 20),
        hot("40% full, hot and cold", 40),
        hot("60% full, hot and cold", 60),
        hot("75% full, hot and cold", 75),
        hot("80% full, hot and cold", 80),
    ],
    series: &[],
    shape: Shape::Charts(&Charts {
        x: Axis { name: "disk utilisation", unit: "%", log: false },
        charts: &[
            Chart::new("write cost, all blocks evenly", &["uniform"], Quantity::WriteCost),
            Chart::new("write cost, hot and cold blocks", &["hot and cold"], Quantity::WriteCost),
            Chart::new("live part of segments that are cleaned, evenly", &["uniform"], Quantity::Moved),
            Chart::new("the same, hot and cold", &["hot and cold"], Quantity::Moved),
            segments("segments that the cleaner finds, evenly, 75% full", &["segments, uniform"]),
            segments("the same, hot and cold", &["segments, hot and cold"]),
        ],
        statements: &[
            Statement {
                text: "Write cost is lower than if all segments were as full as the disk, since the emptiest are cleaned.",
                what: "write cost / (2 / (1 - u)), LFS-greedy, evenly, greatest of 20% to 75% full",
                figure: |m| {
                    let part = |x: f64| Some(cost(m, "LFS-greedy", x, "uniform")? * (1.0 - x / 100.0) / 2.0);
                    let parts: Option<Vec<f64>> = [20.0, 40.0, 60.0, 75.0].into_iter().map(part).collect();
                    parts.map(greatest)
                },
                range: (0.0, 1.0),
                why: "",
            },
            Statement {
                text: "With 75% of the disk full the segments that are cleaned are 55% full.",
                what: "live part, LFS-greedy, evenly, 75% full",
                figure: |m| m.figure("LFS-greedy", 75.0, "uniform", Quantity::Moved),
                range: (45.0, 65.0),
                why: "",
            },
            Statement {
                text: "Up to 20% full the write cost is below 2, since some segments have nothing live.",
                what: "write cost, LFS-greedy, evenly, 20% full",
                figure: |m| cost(m, "LFS-greedy", 20.0, "uniform"),
                range: (1.0, 2.0),
                why: "",
            },
            Statement {
                text: "A greedy cleaner gains nothing from hot and cold blocks, although it sorts by age; it is even worse.",
                what: "write cost hot and cold / evenly, LFS-greedy, mean of 60% to 80% full",
                figure: |m| {
                    let part =
                        |x| Some(cost(m, "LFS-greedy", x, "hot and cold")? / cost(m, "LFS-greedy", x, "uniform")?);
                    [60.0, 75.0, 80.0].into_iter().map(part).collect::<Option<Vec<f64>>>().map(mean)
                },
                range: (1.0, f64::INFINITY),
                why: "At 60% it is worse; fuller, sorting by age gains it a little.",
            },
            Statement {
                text: "Under greed cold segments linger just above the point where they would be cleaned: with hot and cold blocks more segments are there.",
                what: "segments of which 65 to 85% live, LFS-greedy, hot and cold / evenly, 75% full",
                figure: |m| {
                    let near = |part| found(m, "LFS-greedy", part, 13..17).map(|shares| shares.iter().sum::<f64>());
                    Some(near("segments, hot and cold")? / near("segments, uniform")?)
                },
                range: (1.05, f64::INFINITY),
                why: "",
            },
            Statement {
                text: "By cost and benefit there are two kinds of segments: cold ones, nearly full, and hot ones that are cleaned when little of them lives.",
                what: "least share of segments of a class from 40 to 80% / greatest below 40%, LFS-benefit, hot and cold, 75% full",
                figure: |m| {
                    let of = |classes| found(m, "LFS-benefit", "segments, hot and cold", classes);
                    Some(least(of(8..16)?) / greatest(of(0..8)?))
                },
                range: (0.0, 0.67),
                why: "",
            },
            Statement {
                text: "By cost and benefit write cost is reduced by as much as 50%, compared with the greedy cleaner.",
                what: "LFS-benefit / LFS-greedy, hot and cold, least of 60% to 80% full",
                figure: |m| {
                    m.ratios("LFS-benefit", "LFS-greedy", (60.0, 80.0), "hot and cold", Quantity::WriteCost).map(least)
                },
                range: (0.0, 0.67),
                why: "Compared with the greedy cleaner that does not sort it is 0.66 with 80% full: here sorting helps that one too.",
            },
            Statement {
                text: "So the write cost stays below 4, where FFS is at its best, although the disk is rather full.",
                what: "write cost, LFS-benefit, hot and cold, 75% full",
                figure: |m| cost(m, "LFS-benefit", 75.0, "hot and cold"),
                range: (0.0, 4.0),
                why: "",
            },
        ],
    }),
};

/// Shares of some classes of segments, of those that the cleaner found.
fn found(m: &Measured<'_>, subject: &str, part: &str, classes: std::ops::Range<usize>) -> Option<Vec<f64>> {
    classes.map(|class| m.figure(subject, 75.0, part, Quantity::Found(class))).collect()
}

fn cost(m: &Measured<'_>, subject: &str, x: f64, part: &str) -> Option<f64> {
    m.figure(subject, x, part, Quantity::WriteCost)
}
