//! Policies against utilisation, with blocks that change alike or some more often than others: where a policy that chooses
//! for each block has something to gain.

use super::{CE_PC, CHOOSES, COLUMNS, LOGGED, OVERWRITE, Pieces, RELOCATE, SMALL_BYTES, points};
use crate::experiment::curves::{Axis, Chart, Charts, Host, Measured, Statement};
use crate::experiment::{Case, Experiment, Load, Part, Quantity, Shape};
use crate::workload::overwrite::Access;

pub(in crate::experiment) const ADAPTIVE: Experiment = Experiment {
    name: "evergreen-adaptive",
    about: "Blocks of a file on 256 MB are overwritten, evenly or 90% of the writes to 10% of the blocks; policies of Evergreen.",
    source: "left open by Hyun and others, 2008; the workload of Wang and others, FAST 2004",
    columns: COLUMNS,
    others: &[LOGGED, CHOOSES],
    reference: OVERWRITE,
    log_bound: (&[], 0.0),
    host: CE_PC,
    cases: &[
        case("10% full", 10, Access::Uniform, EVEN),
        case("20% full", 20, Access::Uniform, EVEN),
        case("40% full", 40, Access::Uniform, EVEN),
        case("60% full", 60, Access::Uniform, EVEN),
        case("80% full", 80, Access::Uniform, EVEN),
        case("90% full", 90, Access::Uniform, EVEN),
        case("93% full", 93, Access::Uniform, EVEN),
        case("10% full", 10, Access::HOT_AND_COLD, HOT),
        case("20% full", 20, Access::HOT_AND_COLD, HOT),
        case("40% full", 40, Access::HOT_AND_COLD, HOT),
        case("60% full", 60, Access::HOT_AND_COLD, HOT),
        case("80% full", 80, Access::HOT_AND_COLD, HOT),
        case("90% full", 90, Access::HOT_AND_COLD, HOT),
        case("93% full", 93, Access::HOT_AND_COLD, HOT),
    ],
    series: &[],
    shape: Shape::Charts(&Charts {
        x: Axis { name: "file system utilisation", unit: "%", log: false },
        charts: &[
            Chart::new("elapsed time, all blocks evenly", &["even"], Quantity::Elapsed),
            Chart::new("elapsed time, hot and cold blocks", &["hot and cold"], Quantity::Elapsed),
            Chart::new("bytes programmed for each written, evenly", &["even"], Quantity::FlashWritten),
            Chart::new("the same, hot and cold", &["hot and cold"], Quantity::FlashWritten),
        ],
        statements: &[
            Statement {
                text: "Relocation is faster where utilisation is low.",
                what: "elapsed time, relocation / overwriting, 20% full, evenly",
                figure: |m| over(m, 20.0, "even"),
                range: (0.0, 0.97),
                why: "",
            },
            Statement {
                text: "Overwriting is faster where it is high.",
                what: "elapsed time, relocation / overwriting, 90% full, evenly",
                figure: |m| over(m, 90.0, "even"),
                range: (1.03, f64::INFINITY),
                why: "",
            },
            Statement {
                text: "The same with hot and cold blocks: relocation is faster where utilisation is low.",
                what: "elapsed time, relocation / overwriting, 20% full, hot and cold",
                figure: |m| over(m, 20.0, "hot and cold"),
                range: (0.0, 0.97),
                why: "",
            },
            Statement {
                text: "Overwriting is faster where it is high.",
                what: "elapsed time, relocation / overwriting, 90% full, hot and cold",
                figure: |m| over(m, 90.0, "hot and cold"),
                range: (1.03, f64::INFINITY),
                why: "",
            },
            Statement {
                text: "A policy that chooses is nowhere slower than the better of both by more than 5%.",
                what: "elapsed time, adaptive / the better one, where it is greatest",
                figure: |m| over_better(m).map(|all| all.into_iter().fold(0.0, f64::max)),
                range: (0.0, 1.05),
                why: "",
            },
            Statement {
                text: "Somewhere it is faster than both.",
                what: "the same, where it is least",
                figure: |m| over_better(m).map(|all| all.into_iter().fold(f64::INFINITY, f64::min)),
                range: (0.0, 0.95),
                why: "",
            },
        ],
    }),
};

pub(in crate::experiment) const ADAPTIVE_HC310: Experiment = on("evergreen-adaptive-hc310", "hc310");
pub(in crate::experiment) const ADAPTIVE_980PRO: Experiment = on("evergreen-adaptive-980pro", "980pro-used");

/// On another disk.
const fn on(name: &'static str, disk: &'static str) -> Experiment {
    Experiment { name, host: Host { disk, ..CE_PC }, ..ADAPTIVE }
}

const EVEN: &[Part] = &[Part::new("even", &["overwrite"])];
const HOT: &[Part] = &[Part::new("hot and cold", &["overwrite"])];

/// Until the measurement a quarter as much is overwritten as the volume holds.
const fn case(name: &'static str, percent: u32, access: Access, parts: &'static [Part]) -> Case {
    let (blocks, file_bytes) = (SMALL_BYTES / 4096 / 4, SMALL_BYTES / 100 * percent as u64);
    let load = Load::Pieces(Pieces {
        volume_bytes: SMALL_BYTES,
        file_bytes,
        access,
        is_synced: false,
        blocks: (blocks, 20_000),
        idle_secs: 0,
    });
    Case { name, load, x: percent as f64, parts }
}

fn over(m: &Measured<'_>, x: f64, part: &str) -> Option<f64> {
    m.ratio(RELOCATE, OVERWRITE, x, part, Quantity::Elapsed)
}

/// The time of the policy that chooses over that of the better pure one, everywhere.
fn over_better(m: &Measured<'_>) -> Option<Vec<f64>> {
    let one = |part: &'static str, x: f64| {
        let over = |pure: &str| m.ratio(CHOOSES, pure, x, part, Quantity::Elapsed);
        Some(over(OVERWRITE)?.max(over(RELOCATE)?))
    };
    let of = |part: &'static str| points(m, part).map(move |x| one(part, x)).collect::<Vec<_>>();
    ["even", "hot and cold"].into_iter().flat_map(of).collect()
}
