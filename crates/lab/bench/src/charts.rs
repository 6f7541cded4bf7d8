//! The pictures of an experiment, each an SVG file that needs nothing else.
//!
//! | module | what it shows |
//! |---|---|
//! | `curves` | lines or bars of an experiment with charts |
//! | `ratios` | the paper's ratio of each figure beside ours |
//! | `times` | where the time of the disk went, by what it was for and by what the disk did |
//! | `seeks` | the addresses of requests over time |
//! | `addresses` | the axis of addresses that `seeks` has |
//! | `maps` | what lies where on the disk |
//!
//! `curves`, `ratios` and `times` are made from [`Row`]s, so that they also show what was measured elsewhere; `seeks`
//! and `maps` from [`Picture`]s.

mod addresses;
mod curves;
mod maps;
mod ratios;
mod seeks;
mod times;

use crate::experiment::{Case, Experiment, Part, Quantity};
use crate::picture::Picture;
use crate::rows::{Row, divisor, metric};
use arbor_base::device::Kind;
use arbor_simdisk::KINDS;

pub(crate) use curves::curves;
pub(crate) use maps::maps;
pub(crate) use ratios::ratios;
pub(crate) use seeks::seeks;
pub(crate) use times::times;

/// A picture of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawing {
    /// Name of its file without an ending: experiment and what is shown.
    pub name: String,
    /// What it shows, in a sentence.
    pub title: String,
    /// The file.
    pub svg: String,
}

/// What is told apart by colour, with the colours of Okabe and Ito, which the colour-blind can tell apart as well.
pub(crate) const CLASSES: [(&str, &str); 6] = [
    ("data", "#e69f00"),
    ("directories", "#009e73"),
    ("inodes", "#0072b2"),
    ("bitmaps", "#cc79a7"),
    ("log", "#2f2f2f"),
    ("other metadata", "#d55e00"),
];

/// The class of each of [`KINDS`], an index of [`CLASSES`].
pub(crate) fn class(kind: usize) -> usize {
    match KINDS[kind] {
        Kind::Data => 0,
        Kind::Dir => 1,
        Kind::Inode => 2,
        Kind::Group | Kind::Bitmap => 3,
        Kind::Log => 4,
        _ => 5,
    }
}

/// All pictures of an experiment that the rows and pictures are enough for. Of several workloads `seeks` and `maps`
/// show the last one, and of the subjects those of the paper, if there are any.
pub(crate) fn drawings(experiment: &Experiment, rows: &[Row], pictures: &[Picture]) -> Vec<Drawing> {
    let shown = of_paper(experiment, pictures);
    let workload = shown.first().filter(|p| !p.case.is_empty()).map(|p| format!(", {}", p.case)).unwrap_or_default();
    let all = [
        ("curves", experiment.about.trim_end_matches('.').to_string(), curves(experiment, rows)),
        ("ratios", "the paper's ratios beside ours".to_string(), ratios(experiment, rows)),
        ("times", "where the time of the disk went".to_string(), times(experiment, rows)),
        ("seeks", format!("requests over time{workload}"), seeks(experiment.name, &shown)),
        ("maps", format!("the disk before and after{workload}"), maps(experiment.name, &shown)),
    ];
    let drawing = |(name, what, svg): (&str, String, Option<String>)| {
        Some(Drawing {
            name: format!("{}-{name}", experiment.name),
            title: format!("{}: {what}", experiment.name),
            svg: svg?,
        })
    };
    all.into_iter().filter_map(drawing).collect()
}

fn of_paper<'a>(experiment: &Experiment, pictures: &'a [Picture]) -> Vec<&'a Picture> {
    let all = || pictures.iter().filter(|p| p.experiment == experiment.name);
    let case = all().next_back().map_or("", |p| &*p.case);
    let here = || all().filter(move |p| p.case == case);
    let of_paper: Vec<_> = here().filter(|p| experiment.column(&p.subject).is_some()).collect();
    if of_paper.is_empty() { here().collect() } else { of_paper }
}

/// All parts of an experiment, each with its workload.
pub(crate) fn parts(experiment: &Experiment) -> impl Iterator<Item = (&'static Case, &'static Part)> {
    experiment.cases.iter().flat_map(|case| case.parts.iter().map(move |part| (case, part)))
}

/// Workload and part in words, with the counts of these rows.
pub(crate) fn label(case: &Case, part: &Part, rows: &[Row]) -> String {
    [&*case.title(divisor(rows)), part.name].into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join(", ")
}

/// The figure of a subject.
pub(crate) fn find<'a>(
    experiment: &Experiment,
    rows: &'a [Row],
    subject: &str,
    (case, part, quantity): (&Case, &Part, Quantity),
) -> Option<&'a Row> {
    let metric = metric(case, part, quantity, divisor(rows));
    rows.iter().find(|r| r.experiment == experiment.name && r.subject == subject && r.metric == metric)
}

/// Names of the subjects of an experiment in their order.
pub(crate) fn subjects<'a>(experiment: &Experiment, rows: &'a [Row]) -> Vec<&'a str> {
    distinct(rows.iter().filter(|r| r.experiment == experiment.name).map(|r| &*r.subject))
}

pub(crate) fn distinct<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    all.for_each(|one| {
        if !found.contains(&one) {
            found.push(one);
        }
    });
    found
}
