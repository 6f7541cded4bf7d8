//! The curves: what is kept of a run, written as JSON, and how a curve grows.

use crate::bench::machine::Machine;
use crate::bench::record::Spread;
use serde::{Deserialize, Serialize};
use std::fmt;

/// All curves of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) machine: Machine,
    pub(crate) engine: String,
    pub(crate) quick: bool,
    /// Of the last minute, at the begin: what others do here.
    #[serde(default)]
    pub(crate) load: Option<f64>,
    pub(crate) series: Vec<Series>,
    /// What is missing, and why.
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// In the order of the rows.
    pub(crate) metrics: Vec<Metric>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) unit: String,
    /// Sizes and values, by size.
    pub(crate) points: Vec<(u64, f64)>,
}

/// What is measured at one size: a metric, its unit and value.
pub(crate) type Figure = (String, String, f64);

impl Series {
    /// Adds what was measured at one size; sizes ascend.
    pub(crate) fn add(&mut self, size: u64, figures: Vec<Figure>) {
        for (name, unit, value) in figures {
            let known = self.metrics.iter_mut().find(|m| m.name == name);
            match known {
                Some(metric) => metric.points.push((size, value)),
                None => self.metrics.push(Metric { name, unit, points: vec![(size, value)] }),
            }
        }
    }

    pub(crate) fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.metrics.iter().flat_map(|m| m.points.iter().map(|p| p.0)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

impl Metric {
    pub(crate) fn at(&self, size: u64) -> Option<f64> {
        self.points.iter().find(|p| p.0 == size).map(|p| p.1)
    }

    pub(crate) fn growth(&self) -> Growth {
        Growth::of(&self.points)
    }
}

/// How a curve grows with the size n. What [`RULE`] says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Growth {
    /// Fewer than two points.
    Unknown,
    Flat,
    Falls,
    Log,
    /// These with the exponent of n in the upper half.
    Sublinear(f64),
    Linear(f64),
    More(f64),
}

pub(crate) const RULE: &str = "\
growth: flat: the greatest value is at most 1.5 times the least. \
falls: the greatest is at most 1.5 times the first, and the last less than the first. \
log: in the upper half of the sizes it rises per decade at most 1.5 times as much as in the lower half, \
or by at most a quarter of the least value, or there at most like n^0.15 and in the last step n^0.2, \
as a + b log n does; what is bounded counts as log too. \
sublinear: faster than that, at most like n^0.75; linear: at most like n^1.15; more: faster. \
With the last three stands the exponent of n between the middle size and the greatest.";

/// What noise does not reach.
const SAME: f64 = 1.5;
const LOG: f64 = 0.15;
const LOG_STEP: f64 = 0.2;
const SUBLINEAR: f64 = 0.75;
const LINEAR: f64 = 1.15;

impl Growth {
    pub(crate) fn of(points: &[(u64, f64)]) -> Growth {
        let [first, .., last] = points else { return Growth::Unknown };
        let least = points.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
        let most = points.iter().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max);
        if most <= SAME * least {
            return Growth::Flat;
        }
        if most <= SAME * first.1 && last.1 < first.1 {
            return Growth::Falls;
        }
        let middle = points[(points.len() - 1) / 2];
        let (lower, upper) = (per_decade(*first, middle), per_decade(middle, *last));
        // Of two points nothing can be said but the exponent.
        let is_log = points.len() > 2 && upper <= f64::max(SAME * lower, least / 4.0);
        let exponent = exponent(middle, *last);
        let step = points.iter().rev().nth(1).map_or(exponent, |p| self::exponent(*p, *last));
        match exponent {
            e if is_log || e <= LOG && step <= LOG_STEP => Growth::Log,
            e if e <= SUBLINEAR => Growth::Sublinear(e),
            e if e <= LINEAR => Growth::Linear(e),
            e => Growth::More(e),
        }
    }
}

fn decades(from: (u64, f64), to: (u64, f64)) -> f64 {
    (to.0 as f64 / from.0 as f64).log10()
}

/// Of n, if the value were a power of it between two points.
fn exponent(from: (u64, f64), to: (u64, f64)) -> f64 {
    (to.1 / from.1.max(f64::MIN_POSITIVE)).log10() / decades(from, to)
}

/// By how much the value rises per decade between two points.
fn per_decade(from: (u64, f64), to: (u64, f64)) -> f64 {
    (to.1 - from.1) / decades(from, to)
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Growth::Unknown => write!(f, "-"),
            Growth::Flat => write!(f, "flat"),
            Growth::Falls => write!(f, "falls"),
            Growth::Log => write!(f, "log"),
            Growth::Sublinear(e) => write!(f, "sublinear n^{e:.2}"),
            Growth::Linear(e) => write!(f, "linear n^{e:.2}"),
            Growth::More(e) => write!(f, "more n^{e:.2}"),
        }
    }
}

/// The middle of several samples.
pub(crate) fn median(samples: &[f64]) -> f64 {
    Spread::of(samples).map_or(f64::NAN, |spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(f: impl Fn(f64) -> f64) -> Growth {
        let points: Vec<(u64, f64)> = (1..7).map(|d| (10u64.pow(d), f(10f64.powi(d as i32)))).collect();
        Growth::of(&points)
    }

    #[test]
    fn curves_have_their_class() {
        assert_eq!(of(|_| 3.0), Growth::Flat);
        assert_eq!(of(|n| 3.0 + 0.2 * n.log10()), Growth::Flat);
        assert_eq!(of(|n| 2.0 * n.log10()), Growth::Log);
        assert_eq!(of(|n| 5.0 + 3.0 * n.log10()), Growth::Log);
        assert_eq!(of(|n| f64::min(n, 1000.0)), Growth::Log, "it is bounded");
        assert_eq!(of(|n| 1.0 + 1000.0 / n), Growth::Falls);
        assert!(matches!(of(|n| 7.0 * n), Growth::Linear(e) if (e - 1.0).abs() < 0.01));
        assert!(matches!(of(|n| 100.0 + n / 1e4), Growth::Sublinear(_)), "it begins late");
        assert!(matches!(of(f64::sqrt), Growth::Sublinear(e) if (e - 0.5).abs() < 0.01));
        assert!(matches!(of(|n| n * n), Growth::More(e) if (e - 2.0).abs() < 0.01));
        assert!(matches!(of(|n| n * n.powf(0.2)), Growth::More(_)));
    }

    #[test]
    fn few_points() {
        assert_eq!(Growth::of(&[]), Growth::Unknown);
        assert_eq!(Growth::of(&[(10, 1.0)]), Growth::Unknown);
        assert_eq!(Growth::of(&[(10, 1.0), (100, 1.2)]), Growth::Flat);
        assert_eq!(Growth::of(&[(10, 1.0), (100, 10.0)]), Growth::Linear(1.0));
        assert_eq!(Growth::of(&[(10, 1.0), (100, 2.0), (1000, 3.0)]), Growth::Log);
        assert_eq!(Growth::of(&[(10, 2.0), (100, 1.0), (1000, 4.0)]).to_string(), "sublinear n^0.60");
    }

    #[test]
    fn figures_become_metrics() {
        let mut series = Series { name: "files".into(), metrics: Vec::new() };
        series.add(10, vec![("open".into(), "ms".into(), 1.0), ("stat".into(), "us".into(), 2.0)]);
        series.add(100, vec![("stat".into(), "us".into(), 3.0)]);
        assert_eq!(series.sizes(), [10, 100]);
        assert_eq!(series.metrics[0].at(100), None);
        assert_eq!(series.metrics[1].points, [(10, 2.0), (100, 3.0)]);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    }
}
