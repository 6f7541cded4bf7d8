//! Files with many indirect blocks, of which the paper expects that relocating them costs more.

use super::{ASYNC, CE_PC, COLUMNS, OVERWRITE, Pieces, RELOCATE, SYNC, VOLUME_BYTES};
use crate::experiment::curves::{Axis, Chart, Charts, Measured, Statement};
use crate::experiment::{Case, Experiment, Load, Part, Quantity, Shape};
use crate::workload::overwrite::Access;

pub(in crate::experiment) const LARGE: Experiment = Experiment {
    name: "evergreen-large",
    about: "Blocks of one file of up to 512 MB are overwritten at random places.",
    source: "left open by Hyun and others, 2008, section IV",
    columns: COLUMNS,
    others: &[],
    reference: OVERWRITE,
    log_bound: (&[], 0.0),
    host: CE_PC,
    cases: &[
        case("4 MB", 4 << 20, false),
        case("64 MB", 64 << 20, false),
        case("512 MB", 512 << 20, false),
        case("48 KB", 48 << 10, true),
        case("4 MB", 4 << 20, true),
        case("64 MB", 64 << 20, true),
        case("512 MB", 512 << 20, true),
    ],
    series: &[],
    shape: Shape::Charts(&Charts {
        x: Axis { name: "size of the file", unit: "MB", log: true },
        charts: &[
            Chart::new("elapsed time, asynchronous", &[ASYNC], Quantity::Elapsed),
            Chart::new("elapsed time, synchronous", &[SYNC], Quantity::Elapsed),
            Chart::new("write requests, asynchronous", &[ASYNC], Quantity::Writes),
            Chart::new("write requests, synchronous", &[SYNC], Quantity::Writes),
            Chart::new("written, asynchronous", &[ASYNC], Quantity::Written),
            Chart::new("written, synchronous", &[SYNC], Quantity::Written),
        ],
        statements: &[
            Statement {
                text: "If a large file is modified, relocation writes more.",
                what: "written, relocation / overwriting, 512 MB, asynchronous",
                figure: |m| over(m, 512.0, ASYNC, Quantity::Written),
                range: (1.03, f64::INFINITY),
                why: "",
            },
            Statement {
                text: "Its overhead is higher than that of a small file, of one indirect block.",
                what: "the same ratio, 512 MB / 4 MB, asynchronous",
                figure: |m| {
                    Some(over(m, 512.0, ASYNC, Quantity::Written)? / over(m, SMALL_MB, ASYNC, Quantity::Written)?)
                },
                range: (1.03, f64::INFINITY),
                why: "",
            },
            Statement {
                text: "The same in synchronous mode.",
                what: "the same, synchronous",
                figure: |m| {
                    Some(over(m, 512.0, SYNC, Quantity::Written)? / over(m, SMALL_MB, SYNC, Quantity::Written)?)
                },
                range: (1.03, f64::INFINITY),
                why: "",
            },
        ],
    }),
};

const SMALL_MB: f64 = 4.0;

const fn case(name: &'static str, file_bytes: u64, is_synced: bool) -> Case {
    let blocks = (0, if is_synced { 4000 } else { 20_000 });
    let load = Load::Pieces(Pieces {
        volume_bytes: VOLUME_BYTES,
        file_bytes,
        access: Access::Uniform,
        is_synced,
        blocks,
        idle_secs: 0,
    });
    let parts = if is_synced { IN_SYNC } else { IN_ASYNC };
    Case { name, load, x: file_bytes as f64 / 1_048_576.0, parts }
}

const IN_ASYNC: &[Part] = &[Part::new(ASYNC, &["overwrite"])];
const IN_SYNC: &[Part] = &[Part::new(SYNC, &["overwrite"])];

fn over(m: &Measured<'_>, x: f64, part: &str, quantity: Quantity) -> Option<f64> {
    m.ratio(RELOCATE, OVERWRITE, x, part, quantity)
}
