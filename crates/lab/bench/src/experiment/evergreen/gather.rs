//! What idle time brings: free blocks are gathered to long runs, or stay where they are.

use super::{CE_PC, Pieces, RELOCATE, SMALL_BYTES};
use crate::experiment::curves::{Axis, Chart, Charts, Host, Measured, Statement};
use crate::experiment::{Case, Experiment, Load, Part, Quantity, Shape};
use crate::workload::overwrite::Access;

pub(in crate::experiment) const GATHER: Experiment = Experiment {
    name: "evergreen-gather",
    about: "Blocks of a file on 256 MB are overwritten, five minutes pass, and some more are overwritten.",
    source: "left open by Hyun and others, 2008",
    columns: &[SCATTERED, RELOCATE],
    others: &[],
    reference: SCATTERED,
    log_bound: (&[], 0.0),
    host: CE_PC,
    cases: &[
        case("20% full", 20),
        case("40% full", 40),
        case("60% full", 60),
        case("70% full", 70),
        case("80% full", 80),
        case("90% full", 90),
    ],
    series: &[],
    shape: Shape::Charts(&Charts {
        x: Axis { name: "file system utilisation", unit: "%", log: false },
        charts: &[
            Chart::new("elapsed time afterwards", &[AFTER], Quantity::Elapsed),
            Chart::new("written while idle", &[IDLE], Quantity::Written),
            Chart::new("write requests afterwards", &[AFTER], Quantity::Writes),
        ],
        statements: &[
            Statement {
                text: "What is written after an idle time is faster where free blocks were gathered.",
                what: "elapsed time, gathered / not, mean of 20% to 80% full",
                figure: |m| mean(m, &[20.0, 40.0, 60.0, 70.0, 80.0]),
                range: (0.0, 0.97),
                why: "",
            },
            Statement {
                text: "Nowhere is it slower.",
                what: "elapsed time, gathered / not, where it is greatest",
                figure: |m| {
                    super::points(m, AFTER).map(|x| over(m, x)).try_fold(0.0, |most: f64, x| Some(most.max(x?)))
                },
                range: (0.0, 1.03),
                why: "",
            },
        ],
    }),
};

pub(in crate::experiment) const GATHER_HC310: Experiment = on("evergreen-gather-hc310", "hc310");
pub(in crate::experiment) const GATHER_980PRO: Experiment = on("evergreen-gather-980pro", "980pro-used");

/// On another disk.
const fn on(name: &'static str, disk: &'static str) -> Experiment {
    Experiment { name, host: Host { disk, ..CE_PC }, ..GATHER }
}

const SCATTERED: &str = "Evergreen-scattered";
const AFTER: &str = "after the idle time";
const IDLE: &str = "idle";
const PARTS: &[Part] = &[Part::new(AFTER, &["overwrite"]), Part::new(IDLE, &["idle"])];

/// Until then a quarter as much is overwritten as the volume holds.
const fn case(name: &'static str, percent: u32) -> Case {
    let load = Load::Pieces(Pieces {
        volume_bytes: SMALL_BYTES,
        file_bytes: SMALL_BYTES / 100 * percent as u64,
        access: Access::Uniform,
        is_synced: false,
        blocks: (SMALL_BYTES / 4096 / 4, 2000),
        idle_secs: 300,
    });
    Case { name, load, x: percent as f64, parts: PARTS }
}

fn over(m: &Measured<'_>, x: f64) -> Option<f64> {
    m.ratio(RELOCATE, SCATTERED, x, AFTER, Quantity::Elapsed)
}

fn mean(m: &Measured<'_>, at: &[f64]) -> Option<f64> {
    let sum = at.iter().try_fold(0.0, |sum, x| Some(sum + over(m, *x)?))?;
    Some(sum / at.len() as f64)
}
