//! Transactions, and what the cleaner costs them as the disk fills.

use super::curves::{Axis, Chart, Charts, Host, Measured, Statement, greatest, least};
use super::{Case, Experiment, Load, Part, Quantity, Shape};
use crate::workload::tpcb::TpcB;

/// The subject whose cleaner never has to work: it is measured where the disk is emptiest, as long as segments are clean,
/// and the paper projects that on all others.
const UNCLEANED: &str = "LFS-uncleaned";
/// How full the disk is where that is measured, %.
const EMPTIEST: u32 = 30;
/// Transactions that are measured; of the subject without a cleaner, before which it is loaded only.
const TRANSACTIONS: u64 = 20_000;

/// A log needs some segments to go round in.
const MOST_DIVIDED: u32 = 2;

/// TPC-B on a volume that the account file fills so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Database {
    /// Size of the account file by that of the volume, %.
    pub percent: u32,
    /// Whether the log has gone round before anything is measured.
    pub is_steady: bool,
}

impl Database {
    pub(super) fn on(self, subject: &str) -> Database {
        if subject == UNCLEANED { Database { percent: EMPTIEST, is_steady: false } } else { self }
    }

    pub(super) fn volume_bytes(self, divisor: u32) -> u64 {
        (self.spec(divisor).account_bytes * 100 / u64::from(self.percent)).next_multiple_of(1 << 20)
    }

    /// Until the measurement, twice as much is written as is free at the beginning.
    pub(super) fn spec(self, divisor: u32) -> TpcB {
        let (usual, divisor) = (TpcB::default(), divisor.min(MOST_DIVIDED));
        let account_bytes = usual.account_bytes / u64::from(divisor);
        let free = account_bytes * u64::from(100 - self.percent) / u64::from(self.percent);
        let blocks = free / u64::from(usual.block_bytes);
        let cached = usual.cache_bytes / u64::from(divisor) / u64::from(usual.block_bytes);
        TpcB {
            account_bytes,
            cache_bytes: usual.cache_bytes / u64::from(divisor),
            warm_up: if self.is_steady { blocks * 2 } else { cached },
            transactions: TRANSACTIONS / u64::from(divisor),
            ..usual
        }
    }
}

const PARTS: &[Part] = &[Part::new("", &["transactions"])];

const fn at(name: &'static str, percent: u32) -> Case {
    Case { name, load: Load::TpcB(Database { percent, is_steady: true }), x: percent as f64, parts: PARTS }
}

/// The experiment.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "lfs-tpcb",
    about: "Transactions of TPC-B on a disk that is more or less full.",
    source: "Seltzer and others, USENIX 1995, transaction processing performance",
    columns: &[UNCLEANED, "LFS-cleaned", "FFS-4K"],
    others: &[],
    reference: "FFS-4K",
    log_bound: (&[], 0.0),
    host: Host::LFS,
    cases: &[
        at("30% full", 30),
        at("40% full", 40),
        at("50% full", 50),
        at("60% full", 60),
        at("70% full", 70),
        at("80% full", 80),
    ],
    series: &[],
    shape: Shape::Charts(&Charts {
        x: Axis { name: "disk utilisation", unit: "%", log: false },
        charts: &[
            Chart {
                title: "transactions a second",
                parts: &[""],
                quantity: Quantity::TransactionRate,
                log: false,
                relative: false,
                over: None,
                classes: None,
            },
            Chart {
                title: "write cost of the cleaner",
                parts: &[""],
                quantity: Quantity::WriteCost,
                log: false,
                relative: false,
                over: None,
                classes: None,
            },
        ],
        statements: &[
            Statement {
                text: "Without the cleaner LFS is faster than FFS, since it writes at random places sequentially.",
                what: "LFS-uncleaned / FFS-4K, 30% full",
                figure: |m| over(m, UNCLEANED, "FFS-4K", 30.0),
                range: (1.2, f64::INFINITY),
                why: "",
            },
            Statement {
                text: "FFS does not depend on how full the disk is.",
                what: "FFS-4K, slowest / fastest",
                figure: |m| {
                    let rate = |case: &Case| m.figure("FFS-4K", case.x, "", Quantity::TransactionRate);
                    let all: Vec<f64> = EXPERIMENT.cases.iter().map(rate).collect::<Option<_>>()?;
                    Some(least(all.clone()) / greatest(all))
                },
                range: (0.9, 1.0),
                why: "The larger the volume, the further FFS spreads the file: every 4 MB it goes on in another group (maxbpg).",
            },
            Statement {
                text: "With the disk half full the cleaner costs LFS a third of its performance and more.",
                what: "LFS-cleaned / LFS-uncleaned, 50% full",
                figure: |m| over(m, "LFS-cleaned", UNCLEANED, 50.0),
                range: LOSS,
                why: "",
            },
            Statement {
                text: "Then LFS has no advantage over FFS any more.",
                what: "LFS-cleaned / FFS-4K, 50% full",
                figure: |m| over(m, "LFS-cleaned", "FFS-4K", 50.0),
                range: (0.0, 1.05),
                why: "The curves cross between 30% and 40%.",
            },
            Statement {
                text: "Fuller it costs hardly more, up to 40%.",
                what: "LFS-cleaned / LFS-uncleaned, 80% full",
                figure: |m| over(m, "LFS-cleaned", UNCLEANED, 80.0),
                range: LOSS,
                why: "",
            },
            Statement {
                text: "The answer to the paper (Ousterhout, 1995): the fuller the disk, the more the cleaner costs.",
                what: "LFS-cleaned, 80% full / 50% full",
                figure: |m| {
                    let rate = |x| m.figure("LFS-cleaned", x, "", Quantity::TransactionRate);
                    Some(rate(80.0)? / rate(50.0)?)
                },
                range: (0.0, 0.95),
                why: "",
            },
        ],
    }),
};

/// What is left where a third to 40% is lost, a twentieth more or less.
const LOSS: (f64, f64) = (0.55, 0.72);

fn over(m: &Measured<'_>, over: &str, under: &str, x: f64) -> Option<f64> {
    m.ratio(over, under, x, "", Quantity::TransactionRate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_file_fills_the_volume_so_far() {
        for divisor in [1, 20] {
            for percent in [30, 50, 80] {
                let database = Database { percent, is_steady: true };
                let part = database.spec(divisor).account_bytes as f64 / database.volume_bytes(divisor) as f64;
                assert!((part * 100.0 - f64::from(percent)).abs() < 5.0, "{divisor} {percent} {part}");
            }
        }
        let alone = Database { percent: 70, is_steady: true }.on(UNCLEANED);
        assert_eq!((alone.percent, alone.spec(1).warm_up), (30, 1024));
    }
}
