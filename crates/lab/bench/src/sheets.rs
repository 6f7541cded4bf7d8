//! The figures of charts, and what the paper says of them, as tables for documents and terminals.

use crate::charts::subjects;
use crate::experiment::Experiment;
use crate::experiment::curves::{Chart, Judged, Measured, greatest, least, over_runs};
use crate::interval::Interval;
use crate::rows::Row;
use crate::svg::{number, tick};

/// A table in words.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// What it shows, with the unit.
    pub title: String,
    /// The heads of its columns; the first is that of words, the others are of figures.
    pub heads: Vec<String>,
    /// Its lines.
    pub lines: Vec<Vec<String>>,
}

/// A sheet for each chart: a line for each workload or part, a column for each subject.
pub fn sheets(experiment: &Experiment, rows: &[Row]) -> Vec<Sheet> {
    let charts = experiment.charts().map_or(&[][..], |c| c.charts);
    charts.iter().filter_map(|chart| sheet(experiment, chart, rows)).collect()
}

fn sheet(experiment: &Experiment, chart: &Chart, rows: &[Row]) -> Option<Sheet> {
    let mut subjects = with_theory(subjects(experiment, rows), [chart]);
    subjects.retain(|subject| chart.over != Some(*subject));
    let lines: Vec<Vec<String>> = lines(experiment, chart, rows, &subjects)
        .into_iter()
        .map(|(name, figures)| {
            let cell = |figure: Option<Interval>| figure.map(with_half).unwrap_or_default();
            [vec![name], figures.into_iter().map(cell).collect()].concat()
        })
        .collect();
    let axis = experiment.charts().map(|c| chart.axis(c.x));
    let x = axis.map(|axis| named(axis.name, axis.unit)).unwrap_or_default();
    let heads = std::iter::once(x).chain(subjects.iter().map(ToString::to_string)).collect();
    (!lines.is_empty()).then(|| Sheet { title: named(chart.title, chart.unit()), heads, lines })
}

/// A figure, and after ± how far its 95% interval reaches, if it is one of several runs.
pub(crate) fn with_half(figure: Interval) -> String {
    let half = if figure.half > 0.0 { format!(" \u{b1} {}", number(figure.half)) } else { String::new() };
    number(figure.mean) + &half
}

/// The subjects, and as one of them what theory says of the charts.
pub(crate) fn with_theory<'a>(mut subjects: Vec<&'a str>, charts: impl IntoIterator<Item = &'a Chart>) -> Vec<&'a str> {
    for (name, _) in charts.into_iter().filter_map(|chart| chart.quantity.theory()) {
        if !subjects.contains(&name) {
            subjects.push(name);
        }
    }
    subjects
}

/// A figure of each subject.
type Line = (String, Vec<Option<Interval>>);

/// A line for each workload of a chart with lines, or for each part of one with bars.
pub(crate) fn lines(experiment: &Experiment, chart: &Chart, rows: &[Row], subjects: &[&str]) -> Vec<Line> {
    let has_figures = |line: &Line| line.1.iter().any(Option::is_some);
    let over_x = |part| {
        let points = points(experiment, chart, rows, subjects, part);
        points.into_iter().map(|(x, figures)| (tick(x), figures)).collect::<Vec<_>>()
    };
    match chart.parts {
        [part] => over_x(part).into_iter().filter(has_figures).collect(),
        parts => {
            let bars = parts.iter().flat_map(|part| over_x(part).into_iter().map(|(_, f)| (part.to_string(), f)));
            bars.filter(has_figures).collect()
        }
    }
}

/// A figure of each subject for each workload.
pub(crate) fn points(
    experiment: &Experiment,
    chart: &Chart,
    rows: &[Row],
    subjects: &[&str],
    part: &str,
) -> Vec<(f64, Vec<Option<Interval>>)> {
    let over_runs = |figure: &dyn Fn(&Measured<'_>) -> Option<f64>| over_runs(experiment, rows, figure);
    if let Some(classes) = chart.classes {
        let one = |s: &&str, quantity| over_runs(&|m| m.figure(s, classes.x, part, quantity));
        let all = |quantity| subjects.iter().map(|s| one(s, quantity)).collect();
        return classes.quantities.iter().map(|(at, quantity)| (*at, all(*quantity))).collect();
    }
    let mut all: Vec<f64> = experiment.points(part).map(|(case, _)| case.x).collect();
    all.sort_by(f64::total_cmp);
    let first = all.first().copied().unwrap_or_default();
    let figure = |x: f64, subject: &str| {
        if let Some((_, theory)) = chart.quantity.theory().filter(|(name, _)| *name == subject) {
            return Some(Interval::exact(theory(x)));
        }
        match chart.over {
            Some(over) if over == subject => None,
            Some(over) => over_runs(&|m| m.ratio(over, subject, x, part, chart.quantity)),
            None => over_runs(&|m| {
                let base = if chart.relative { m.figure(subject, first, part, chart.quantity)? / 100.0 } else { 1.0 };
                Some(m.figure(subject, x, part, chart.quantity)? / base)
            }),
        }
    };
    all.iter().map(|x| (*x, subjects.iter().map(|s| figure(*x, s)).collect())).collect()
}

/// What the paper says, with our figure and whether it holds; none if it says nothing. Where the same was run on other
/// disks, from which to which figure it went on all of them.
pub fn statements(experiment: &Experiment, rows: &[Row]) -> Option<Sheet> {
    let elsewhere: Vec<Vec<Judged>> = variants(experiment).map(|e| e.judge(rows)).collect();
    let has_others = elsewhere.iter().flatten().any(|judged| judged.figure.is_some());
    let says = if experiment.has_paper() { "what the paper says" } else { "what should be" };
    let mut heads: Vec<String> = [says, "figure", "ours", "holds if", "holds"].map(String::from).into();
    heads.extend(has_others.then(|| "on all disks".into()));
    heads.push("why".into());
    let line = |(at, judged): (usize, Judged)| {
        let s = judged.statement;
        let mut line = vec![
            s.text.into(),
            s.what.into(),
            with_half(judged.figure?),
            range(s.range),
            judged.verdict().in_table().into(),
        ];
        if has_others {
            let here = elsewhere.iter().filter_map(|all| all.get(at)?.figure).chain(judged.figure);
            let here = here.map(|f| f.mean).collect::<Vec<_>>();
            line.push(format!("{} to {}", number(least(here.clone())), number(greatest(here))));
        }
        line.push(s.why.into());
        Some(line)
    };
    let lines: Vec<Vec<String>> = experiment.judge(rows).into_iter().enumerate().filter_map(line).collect();
    (!lines.is_empty()).then(|| Sheet { title: says.into(), heads, lines })
}

/// The same experiment on other disks: its name has that of this one before a dash.
fn variants(experiment: &Experiment) -> impl Iterator<Item = &'static Experiment> {
    let is_variant = |name: &str| name.strip_prefix(experiment.name).is_some_and(|rest| rest.starts_with('-'));
    crate::list().iter().filter(move |e| is_variant(e.name))
}

fn range((least, most): (f64, f64)) -> String {
    match (least.is_finite(), most.is_finite()) {
        (true, true) => format!("{} to {}", number(least), number(most)),
        (true, false) => format!("at least {}", number(least)),
        _ => format!("at most {}", number(most)),
    }
}

/// A name and its unit.
pub(crate) fn named(name: &str, unit: &str) -> String {
    [name, unit].into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join(", ")
}
