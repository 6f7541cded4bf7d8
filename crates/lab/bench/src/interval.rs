//! How far a mean of several runs can be believed: its 95% interval (Student, "The Probable Error of a Mean", 1908).
//!
//! Runs differ in the seed of their workload alone, so the interval says what hangs on the workload's chance, and nothing of
//! how well the model is like a disk.

/// A mean, and how far its 95% interval reaches to each side; 0 for a single run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half of the interval's length.
    pub half: f64,
}

/// Of Student's distribution with one degree of freedom and more what leaves 2.5% on each side.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The same of so many runs.
fn student(runs: usize) -> f64 {
    let freedom = runs.saturating_sub(1);
    // Beyond the table it is within 0.1% of that.
    STUDENT.get(freedom.saturating_sub(1)).copied().unwrap_or(1.96 + 2.4 / freedom as f64)
}

impl Interval {
    /// A figure of one run.
    pub fn exact(mean: f64) -> Interval {
        Interval { mean, half: 0.0 }
    }

    /// Of the figures of some runs; `None` if there are none.
    pub fn of(runs: &[f64]) -> Option<Interval> {
        let mean = runs.iter().sum::<f64>() / runs.len() as f64;
        Some(Interval::with(mean, deviation(runs), runs.len())).filter(|_| !runs.is_empty())
    }

    /// Of the mean and the standard deviation of so many runs.
    pub fn with(mean: f64, deviation: f64, runs: usize) -> Interval {
        let half = if runs > 1 { student(runs) * deviation / (runs as f64).sqrt() } else { 0.0 };
        Interval { mean, half }
    }

    /// Its least and its greatest figure.
    pub fn ends(self) -> (f64, f64) {
        (self.mean - self.half, self.mean + self.half)
    }

    /// Whether all of it lies in a range, or all of it outside; `None` if that is not decided.
    pub fn is_in(self, (least, most): (f64, f64)) -> Option<bool> {
        let (low, high) = self.ends();
        match low >= least && high <= most {
            true => Some(true),
            false if high < least || low > most => Some(false),
            false => None,
        }
    }
}

/// Whether a figure, or a sentence of a paper, holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of the interval does.
    Holds,
    /// Nothing of it does.
    HoldsNot,
    /// A part of it does.
    Undecided,
    /// There was nothing to judge by.
    NotJudged,
}

impl Verdict {
    /// Of what an interval says ([`Interval::is_in`]), if there was one to be judged.
    pub fn new(is_in: Option<bool>, is_judged: bool) -> Verdict {
        match is_in {
            Some(true) => Verdict::Holds,
            Some(false) => Verdict::HoldsNot,
            None if is_judged => Verdict::Undecided,
            None => Verdict::NotJudged,
        }
    }

    /// In a table whose column says what it is of.
    pub fn in_table(self) -> &'static str {
        match self {
            Verdict::Holds => "yes",
            Verdict::HoldsNot => "no",
            Verdict::Undecided => "undecided",
            Verdict::NotJudged => "",
        }
    }

    /// How many of those that were judged hold, in words; nothing if none was.
    pub fn count(all: impl IntoIterator<Item = Verdict>) -> Option<String> {
        let judged: Vec<Verdict> = all.into_iter().filter(|v| *v != Verdict::NotJudged).collect();
        let of = |wanted| judged.iter().filter(|v| **v == wanted).count();
        let open = of(Verdict::Undecided);
        let open = if open > 0 { format!(", {open} undecided") } else { String::new() };
        (!judged.is_empty()).then(|| format!("{} of {} hold{open}", of(Verdict::Holds), judged.len()))
    }
}

/// The standard deviation of some runs, 0 of a single one.
pub(crate) fn deviation(runs: &[f64]) -> f64 {
    let n = runs.len() as f64;
    let mean = runs.iter().sum::<f64>() / n;
    let squares: f64 = runs.iter().map(|v| (v - mean).powi(2)).sum();
    let deviation = (squares / (n - 1.0).max(1.0)).sqrt();
    // What rounding leaves of equal figures is no deviation.
    if deviation > mean.abs() * 1e-9 { deviation } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against tables, and with the figures of five runs by hand: mean 10, deviation 1.5811, 2.776 * 1.5811 / sqrt(5).
    #[test]
    fn intervals_are_students() {
        for (runs, t) in [(2, 12.706), (5, 2.776), (8, 2.365), (31, 2.042), (41, 2.021), (61, 2.000), (121, 1.980)] {
            assert!((student(runs) - t).abs() < 0.002, "{runs}");
        }
        let of = Interval::of(&[8.0, 9.0, 10.0, 11.0, 12.0]).unwrap();
        assert!((of.mean - 10.0).abs() < 1e-12 && (of.half - 1.963).abs() < 0.001, "{of:?}");
        assert_eq!(Interval::of(&[3.0]), Some(Interval::exact(3.0)));
        assert_eq!(Interval::of(&[]), None);
        assert_eq!(Interval::of(&[0.1 + 0.2, 0.3]).unwrap().half, 0.0);
    }

    #[test]
    fn what_holds_is_counted() {
        use Verdict::{Holds, HoldsNot, NotJudged, Undecided};
        assert_eq!(Verdict::count([NotJudged]), None);
        assert_eq!(Verdict::count([Holds, NotJudged, HoldsNot]).unwrap(), "1 of 2 hold");
        assert_eq!(Verdict::count([Holds, Undecided, Holds]).unwrap(), "2 of 3 hold, 1 undecided");
        assert_eq!([Verdict::new(None, true), Verdict::new(None, false)], [Undecided, NotJudged]);
    }

    #[test]
    fn what_straddles_a_limit_is_not_decided() {
        let of = |mean, half| Interval { mean, half };
        assert_eq!(of(0.9, 0.05).is_in((0.0, 0.97)), Some(true));
        assert_eq!(of(0.95, 0.05).is_in((0.0, 0.97)), None);
        assert_eq!(of(1.1, 0.05).is_in((0.0, 0.97)), Some(false));
        assert_eq!(of(1.0, 2.0).is_in((0.9, 1.1)), None);
        assert_eq!(Interval::exact(0.97).is_in((0.0, 0.97)), Some(true));
    }
}
