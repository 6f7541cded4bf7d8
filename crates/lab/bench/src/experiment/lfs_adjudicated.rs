//! Seltzer against Ousterhout: what the cleaner costs transactions, with the cleaner of either, and with idle time.
//!
//! Seltzer and others (USENIX 1995) measured BSD-LFS, whose cleaner chooses by cost and benefit and moves what lives as it lies.
//! Ousterhout ("A Critique of Seltzer's LFS Measurements", 1995, which is not among our papers) answered that a better cleaner, and the idle time
//! that systems have, make the cost vanish or depend on how full the disk is. Here the volume is one and the same, and what fills it is not used: the paper
//! does not say what filled its own.

use super::curves::{Axis, Chart, Charts, Host, Measured, Statement};
use super::{Case, Experiment, Load, Part, Quantity, Shape};
use crate::workload::tpcb::TpcB;

/// The subject whose cleaner never has to work, on the emptiest volume, as long as segments are clean.
const UNCLEANED: &str = "LFS-uncleaned";
/// Seltzer's: cost and benefit, and what lives is moved as it lies.
const PLAIN: &str = "LFS-cleaned-unsorted";
/// Rosenblum's and Ousterhout's: the same, sorted by age.
const SORTED: &str = "LFS-cleaned";
/// What lives least is cleaned.
const GREEDY: &str = "LFS-cleaned-greedy";
const FFS: &str = "FFS-4K";

/// How much of the volume the account file takes, %.
const EMPTIEST: u32 = 48;
/// Transactions that are measured.
const TRANSACTIONS: u64 = 20_000;
/// After so many transactions the system is idle so long, ns: longer than they take if nothing is cleaned, 11 s.
const IDLE: (u64, u64) = (500, 16_000_000_000);
/// A log needs some segments to go round in.
const MOST_DIVIDED: u32 = 2;

/// TPC-B on a volume of one size, which another file fills so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// How full the volume is, %.
    pub percent: u32,
    /// Whether there is idle time.
    pub is_idle: bool,
    /// Whether the log has gone round before anything is measured.
    pub is_steady: bool,
}

impl Shared {
    pub(super) fn on(self, subject: &str) -> Shared {
        if subject == UNCLEANED { Shared { percent: EMPTIEST, is_steady: false, ..self } } else { self }
    }

    pub(super) fn volume_bytes(divisor: u32) -> u64 {
        let account = TpcB::default().account_bytes / u64::from(divisor.min(MOST_DIVIDED));
        (account * 100 / u64::from(EMPTIEST)).next_multiple_of(1 << 20)
    }

    /// Until the measurement, twice as much is written as is free at the beginning.
    pub(super) fn spec(self, divisor: u32) -> TpcB {
        let (usual, volume) = (TpcB::default(), Self::volume_bytes(divisor));
        let divisor = u64::from(divisor.min(MOST_DIVIDED));
        let part = |percent: u32| volume / 100 * u64::from(percent);
        let cached = usual.cache_bytes / divisor / u64::from(usual.block_bytes);
        let free = part(100 - self.percent) / u64::from(usual.block_bytes);
        TpcB {
            account_bytes: usual.account_bytes / divisor,
            cache_bytes: usual.cache_bytes / divisor,
            warm_up: if self.is_steady { free * 2 } else { cached },
            transactions: TRANSACTIONS / divisor,
            filler_bytes: part(self.percent - EMPTIEST),
            idle: self.is_idle.then_some(IDLE),
            ..usual
        }
    }
}

const BUSY: &str = "busy";
const HALF: &str = "with idle time";

const fn case(name: &'static str, percent: u32, is_idle: bool) -> Case {
    let load = Load::Shared(Shared { percent, is_idle, is_steady: true });
    Case { name, load, x: percent as f64, parts: if is_idle { IDLE_PARTS } else { BUSY_PARTS } }
}

const BUSY_PARTS: &[Part] = &[Part::new(BUSY, &["transactions"])];
const IDLE_PARTS: &[Part] = &[Part::new(HALF, &["transactions"])];

/// The experiment.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "lfs-adjudicated",
    about: "Transactions of TPC-B on a volume that unused data fill, with three cleaners, busy or with idle time.",
    source: "Seltzer and others, USENIX 1995; Ousterhout's critique of it, 1995",
    columns: &[UNCLEANED, PLAIN, SORTED, GREEDY, FFS],
    others: &[],
    reference: FFS,
    log_bound: (&[], 0.0),
    host: Host::LFS,
    cases: &[
        case("48% full", 48, false),
        case("60% full", 60, false),
        case("70% full", 70, false),
        case("80% full", 80, false),
        case("85% full", 85, false),
        case("48% full, idle", 48, true),
        case("60% full, idle", 60, true),
        case("70% full, idle", 70, true),
        case("80% full, idle", 80, true),
        case("85% full, idle", 85, true),
    ],
    series: &[],
    shape: Shape::Charts(&Charts {
        x: Axis { name: "disk utilisation", unit: "%", log: false },
        charts: &[
            Chart::new("transactions, busy", &[BUSY], Quantity::TransactionRate),
            Chart::new("transactions while not idle, with idle time", &[HALF], Quantity::TransactionRate),
            Chart::new("write cost of the cleaner, busy", &[BUSY], Quantity::WriteCost),
            Chart::new("live part of what is cleaned, busy", &[BUSY], Quantity::Moved),
        ],
        statements: &[
            Statement {
                text: "Seltzer: half full, the cleaner costs a third.",
                what: "cost and benefit, unsorted / no cleaner, busy, 48% full",
                figure: |m| rate(m, PLAIN, UNCLEANED, 48.0, BUSY),
                range: (0.57, 0.77),
                why: "",
            },
            Statement {
                text: "Seltzer: fuller, it costs up to 40%, almost independent of how full the disk is.",
                what: "cost and benefit, unsorted / no cleaner, busy, 80% full",
                figure: |m| rate(m, PLAIN, UNCLEANED, 80.0, BUSY),
                range: (0.55, 0.72),
                why: "It falls all the way with each cleaner.",
            },
            Statement {
                text: "Seltzer: with the cleaner LFS is not better than FFS any more, half full.",
                what: "cost and benefit, unsorted / FFS, busy, 48% full",
                figure: |m| rate(m, PLAIN, FFS, 48.0, BUSY),
                range: (0.0, 1.05),
                why: "",
            },
            Statement {
                text: "Ousterhout: the fuller the disk, the more the cleaner costs.",
                what: "cost and benefit, unsorted, busy, 80% full / 48% full",
                figure: |m| along(m, PLAIN, BUSY),
                range: (0.0, 0.9),
                why: "",
            },
            Statement {
                text: "Ousterhout: a better cleaner changes the picture.",
                what: "sorted by age / unsorted, busy, 80% full",
                figure: |m| rate(m, SORTED, PLAIN, 80.0, BUSY),
                range: (1.1, f64::INFINITY),
                why: "",
            },
            Statement {
                text: "Ousterhout: cleaning in idle time costs nothing.",
                what: "cost and benefit, sorted by age / no cleaner, with idle time, 60% full",
                figure: |m| rate(m, SORTED, UNCLEANED, 60.0, HALF),
                range: (0.95, f64::INFINITY),
                why: "",
            },
            Statement {
                text: "Ousterhout: also where the disk is fuller.",
                what: "cost and benefit, sorted by age / no cleaner, with idle time, 80% full",
                figure: |m| rate(m, SORTED, UNCLEANED, 80.0, HALF),
                range: (0.95, f64::INFINITY),
                why: "16 s are not enough to clean what 500 transactions need.",
            },
        ],
    }),
};

fn rate(m: &Measured<'_>, over: &str, under: &str, x: f64, part: &str) -> Option<f64> {
    m.ratio(over, under, x, part, Quantity::TransactionRate)
}

/// The rate at 80% by that of the emptiest volume.
fn along(m: &Measured<'_>, subject: &str, part: &str) -> Option<f64> {
    let rate = |x| m.figure(subject, x, part, Quantity::TransactionRate);
    Some(rate(80.0)? / rate(48.0)?)
}
