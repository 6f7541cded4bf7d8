//! Experiments with charts: what their lines and bars show, and what the paper says of them.
//!
//! A subject is a line, a workload a point on it ([`Case::x`](super::Case::x)); where there is one workload only, its
//! parts are bars. What the paper says is kept as [`Statement`]s, each with the figure that decides it, taken from the
//! rows.

use super::{Experiment, Part, Quantity};
use crate::interval::{Interval, Verdict};
use crate::rows::{Row, divisor, metric};
use std::cell::Cell;

/// The paper's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its driver and processor, a file of [`arbor_simdisk::Host`].
    pub machine: &'static str,
    /// Model of the disk.
    pub disk: &'static str,
    /// The size of the volume, bytes, if it is a part of the disk.
    pub partition_bytes: Option<u64>,
    /// What file systems of the kernel have as memory, and how much of it may be dirty, bytes, if not as on yFS's host.
    pub memory_bytes: Option<(u64, u64)>,
}

impl Host {
    /// The disk of the yFS paper, with a driver of today.
    pub const YFS: Host = Host { machine: "linux", disk: "st39140", partition_bytes: None, memory_bytes: None };
    /// Of "File System Logging Versus Clustering".
    pub const LFS: Host = Host { machine: "decstation", disk: "dsp3105", ..Host::YFS };
}

/// The charts of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Charts {
    /// What the workloads differ in.
    pub x: Axis,
    /// The charts, in their order.
    pub charts: &'static [Chart],
    /// What the paper says.
    pub statements: &'static [Statement],
}

/// An axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What it is.
    pub name: &'static str,
    /// Its unit, empty for counts.
    pub unit: &'static str,
    /// Whether it is logarithmic.
    pub log: bool,
}

/// A quantity of each subject.
#[derive(Clone, Copy, Debug)]
pub struct Chart {
    /// What it shows.
    pub title: &'static str,
    /// The parts of the workloads that it shows: a single one as lines over the workloads, several as bars.
    pub parts: &'static [&'static str],
    /// What is shown of them.
    pub quantity: Quantity,
    /// Whether its axis is logarithmic.
    pub log: bool,
    /// Whether all is shown as percent of the figure with the least `x`.
    pub relative: bool,
    /// Instead of a subject's figure: that of this one over it.
    pub over: Option<&'static str>,
    /// Instead of all workloads: one, over classes.
    pub classes: Option<Classes>,
}

/// How something is distributed with one workload.
#[derive(Clone, Copy, Debug)]
pub struct Classes {
    /// What the classes are of.
    pub axis: Axis,
    /// The workload.
    pub x: f64,
    /// Where each class lies on the axis, and what is shown of it.
    pub quantities: &'static [(f64, Quantity)],
}

impl Chart {
    /// Lines or bars of a quantity.
    pub const fn new(title: &'static str, parts: &'static [&'static str], quantity: Quantity) -> Chart {
        Chart { title, parts, quantity, log: false, relative: false, over: None, classes: None }
    }

    /// The unit of what it shows.
    pub fn unit(&self) -> &'static str {
        match (self.over, self.relative) {
            (Some(_), _) => "",
            (None, true) => "%",
            (None, false) => self.quantity.name().1,
        }
    }

    /// Whether it shows a quantity of a part.
    pub fn shows(&self, part: &str, quantity: Quantity) -> bool {
        let is_quantity = match self.classes {
            None => self.quantity == quantity,
            Some(classes) => classes.quantities.iter().any(|(_, q)| *q == quantity),
        };
        is_quantity && self.parts.contains(&part)
    }

    /// What its lines are over, where `usual` is what those of other charts are over.
    pub fn axis(&self, usual: Axis) -> Axis {
        self.classes.map_or(usual, |classes| classes.axis)
    }
}

/// What the paper says of the figures.
#[derive(Clone, Copy, Debug)]
pub struct Statement {
    /// In a sentence.
    pub text: &'static str,
    /// What the figure that decides is.
    pub what: &'static str,
    /// It; `None` if something was not measured.
    pub figure: fn(&Measured<'_>) -> Option<f64>,
    /// The least and the greatest figure with which the statement holds.
    pub range: (f64, f64),
    /// Why it does not hold, or what else is to be said; may be empty.
    pub why: &'static str,
}

/// A statement, and what was measured.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    /// The statement.
    pub statement: &'static Statement,
    /// Its figure: of several runs the mean of theirs, with its interval.
    pub figure: Option<Interval>,
    /// Whether it holds; not decided if the interval is in the range by a part. Divided runs and those of several programs decide nothing.
    pub holds: Option<bool>,
    /// Whether the runs could decide.
    pub is_whole: bool,
}

impl Judged {
    /// The same in a word.
    pub fn verdict(&self) -> Verdict {
        Verdict::new(self.holds, self.is_whole && self.figure.is_some())
    }
}

impl Experiment {
    /// The parts with their workloads that a chart's part names, in the order of `x`.
    pub fn points(&self, part: &str) -> impl Iterator<Item = (&'static super::Case, &'static Part)> {
        let of = move |case: &'static super::Case| case.parts.iter().find(|p| p.name == part).map(|p| (case, p));
        self.cases.iter().filter_map(of)
    }

    /// What the paper says, and whether the rows agree.
    pub fn judge(&self, rows: &[Row]) -> Vec<Judged> {
        let is_whole = rows.iter().filter(|r| r.experiment == self.name).all(Row::is_of_paper);
        let judge = |statement: &'static Statement| {
            let figure = over_runs(self, rows, statement.figure);
            let holds = figure.filter(|_| is_whole).and_then(|f| f.is_in(statement.range));
            Judged { statement, figure, holds, is_whole }
        };
        self.charts().map(|c| c.statements.iter().map(judge).collect()).unwrap_or_default()
    }
}

/// The rows of an experiment, to take figures from.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) rows: &'a [Row],
    /// Of which run; the means of all.
    pub(crate) run: Option<usize>,
    /// Set if a figure was taken of which there is one run, while others have several.
    pub(crate) is_single: &'a Cell<bool>,
}

/// A figure that is taken from rows, of each run, and its interval; `None` if something was not measured.
pub(crate) fn over_runs(
    experiment: &Experiment,
    rows: &[Row],
    figure: impl Fn(&Measured<'_>) -> Option<f64>,
) -> Option<Interval> {
    let is_single = Cell::new(false);
    let of = |run| figure(&Measured { experiment, rows, run, is_single: &is_single }).filter(|f| f.is_finite());
    let runs = rows.iter().filter(|r| r.experiment == experiment.name).map(|r| r.runs.len()).max().unwrap_or(0);
    if runs < 2 {
        return of(None).map(Interval::exact);
    }
    let all: Option<Vec<f64>> = (0..runs).map(|run| of(Some(run))).collect();
    let interval = Interval::of(&all?)?;
    // How far the single run lies from others nobody knows.
    Some(if is_single.get() { Interval::exact(interval.mean) } else { interval })
}

impl Measured<'_> {
    /// The figure of a subject with the workload at `x`, in a part.
    pub fn figure(&self, subject: &str, x: f64, part: &str, quantity: Quantity) -> Option<f64> {
        let (case, part) = self.experiment.points(part).find(|(case, _)| case.x == x)?;
        let of_experiment = || self.rows.iter().filter(|r| r.experiment == self.experiment.name);
        let divisor = of_experiment().next().map_or(1, |r| divisor(std::slice::from_ref(r)));
        let metric = metric(case, part, quantity, divisor);
        let row = of_experiment().find(|r| r.subject == subject && r.metric == metric)?;
        let of_run = self.run.and_then(|run| row.runs.get(run));
        if self.run.is_some() && of_run.is_none() {
            self.is_single.set(true);
        }
        Some(of_run.copied().unwrap_or(row.ours))
    }

    /// The figure of one subject over that of another.
    pub fn ratio(&self, over: &str, under: &str, x: f64, part: &str, quantity: Quantity) -> Option<f64> {
        let under = self.figure(under, x, part, quantity).filter(|f| *f > 0.0)?;
        Some(self.figure(over, x, part, quantity)? / under)
    }

    /// The ratios of all workloads from one `x` to another.
    pub fn ratios(
        &self,
        over: &str,
        under: &str,
        (from, to): (f64, f64),
        part: &str,
        quantity: Quantity,
    ) -> Option<Vec<f64>> {
        let here = self.experiment.cases.iter().map(|c| c.x).filter(|x| (from..=to).contains(x));
        here.map(|x| self.ratio(over, under, x, part, quantity))
            .collect::<Option<Vec<_>>>()
            .filter(|all| !all.is_empty())
    }
}

/// The least of some ratios.
pub fn least(ratios: Vec<f64>) -> f64 {
    ratios.into_iter().fold(f64::INFINITY, f64::min)
}

/// The greatest of some ratios.
pub fn greatest(ratios: Vec<f64>) -> f64 {
    ratios.into_iter().fold(f64::NEG_INFINITY, f64::max)
}

/// Their geometric mean.
pub fn mean(ratios: Vec<f64>) -> f64 {
    let n = ratios.len() as f64;
    libm::exp(ratios.into_iter().map(libm::log).sum::<f64>() / n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::from_json;

    #[test]
    fn what_was_run_once_has_no_interval() {
        let experiment = crate::list().iter().find(|e| e.name == "dualfs-table2").unwrap();
        let row = |subject: &str, runs: &str| {
            format!(
                r#"{{"experiment": "dualfs-table2", "subject": "{subject}", "metric": "one process searches, r-m, disk, disk busy",
                    "unit": "s", "paper": null, "ours": 2.0, "spread": 0.0, "runs": {runs}, "paper_ratio": null,
                    "our_ratio": null, "holds": null}}"#
            )
        };
        let all = [row("DualFS", "[1.0, 3.0]"), row("FFS-ext2", "[4.0, 6.0]"), row("ext2", "[]")].join(",");
        let rows = from_json(&format!("[{all}]")).unwrap();
        let over = |subject: &str| {
            over_runs(experiment, &rows, |m| m.ratio("FFS-ext2", subject, 1.0, "r-m, disk", Quantity::Busy)).unwrap()
        };
        assert_eq!(over("ext2"), Interval::exact(2.5));
        assert!(over("DualFS").mean == 3.0 && over("DualFS").half > 0.0);
    }
}
