//! Lines over what workloads differ in, or bars where there is one workload: the charts of an experiment.

use super::subjects;
use crate::experiment::Experiment;
use crate::experiment::curves::{Axis, Chart, Charts};
use crate::interval::Interval;
use crate::rows::Row;
use crate::sheets::{lines, named, points, with_theory};
use crate::svg::{self, AXIS, Canvas, EDGE, GRID, WIDTH, fill, number, ticks};

/// Colours of Okabe and Ito, and two more, one for each subject.
const COLOURS: [&str; 9] =
    ["#d55e00", "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#cc79a7", "#2f2f2f", "#b8ae00", "#999999"];
/// Space for the figures of an axis, and between two charts.
const LEFT: f64 = 52.0;
const GAP: f64 = 24.0;
const PANEL: f64 = (WIDTH - 2.0 * EDGE - GAP) / 2.0;
const HEIGHT: f64 = 220.0;
const BAR: f64 = 16.0;
/// Half of what a mark is wide.
const MARK: f64 = 3.0;

/// All charts in one picture, two beside each other; none without figures.
pub(crate) fn curves(experiment: &Experiment, rows: &[Row]) -> Option<String> {
    let charts = experiment.charts()?;
    let subjects = subjects(experiment, rows);
    let shown: Vec<&Chart> =
        charts.charts.iter().filter(|chart| !lines(experiment, chart, rows, &subjects).is_empty()).collect();
    if shown.is_empty() {
        return None;
    }
    let subjects = with_theory(subjects, shown.iter().copied());
    let title = format!("{}: {}", experiment.name, experiment.about.trim_end_matches('.'));
    let mut canvas = Canvas::new(&title, &[]);
    let paints: Vec<String> = (0..subjects.len()).map(|at| fill(colour(at))).collect();
    canvas.legend((EDGE, WIDTH), paints.iter().map(String::as_str).zip(subjects.iter().copied()));
    for pair in shown.chunks(2) {
        let (top, mut bottom) = (canvas.y, canvas.y);
        for (at, chart) in pair.iter().enumerate() {
            canvas.y = top;
            let left = EDGE + at as f64 * (PANEL + GAP);
            match chart.parts {
                [part] => {
                    let points = points(experiment, chart, rows, &subjects, part);
                    Panel::new(charts, chart, &points, left, top + 34.0).draw(&mut canvas, &points);
                }
                _ => bars(&mut canvas, chart, &lines(experiment, chart, rows, &subjects), left),
            }
            bottom = bottom.max(canvas.y);
        }
        canvas.y = bottom + 22.0;
    }
    canvas.y -= 16.0;
    Some(canvas.finish(&title))
}

fn colour(at: usize) -> &'static str {
    COLOURS[at % COLOURS.len()]
}

/// From the least to the greatest figure on a piece of the picture.
#[derive(Clone, Copy)]
struct Scale {
    least: f64,
    most: f64,
    log: bool,
    from: f64,
    length: f64,
}

impl Scale {
    fn new(figures: impl Iterator<Item = f64>, log: bool, from: f64, length: f64) -> Scale {
        let (mut least, mut most) = (if log { f64::INFINITY } else { 0.0 }, 0f64);
        for figure in figures.filter(|f| f.is_finite() && (*f > 0.0 || !log)) {
            (least, most) = (least.min(figure), most.max(figure));
        }
        if !least.is_finite() || most <= least {
            (least, most) = (if log { most.max(1.0) / 2.0 } else { 0.0 }, most.max(1.0) * 2.0);
        }
        Scale { least, most, log, from, length }
    }

    fn at(&self, figure: f64) -> f64 {
        let share = if self.log {
            libm::log(figure.max(self.least) / self.least) / libm::log(self.most / self.least)
        } else {
            (figure - self.least) / (self.most - self.least)
        };
        self.from + share * self.length
    }

    fn ticks(&self) -> Vec<f64> {
        if !self.log {
            return ticks(self.most, 5);
        }
        let wide = self.most / self.least > 100.0;
        let factors: &[f64] = if wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let all = (-4..=7).flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
        all.filter(|t| (self.least * 0.999..=self.most * 1.001).contains(t)).collect()
    }
}

/// A chart with lines.
struct Panel<'a> {
    chart: &'a Chart,
    axis: Axis,
    x: Scale,
    y: Scale,
}

type Point = (f64, Vec<Option<Interval>>);

impl<'a> Panel<'a> {
    fn new(charts: &Charts, chart: &'a Chart, points: &[Point], left: f64, top: f64) -> Panel<'a> {
        let xs = || points.iter().map(|p| p.0);
        let axis = chart.axis(charts.x);
        let mut x = Scale::new(xs(), axis.log, left + LEFT, PANEL - LEFT - 12.0);
        if !axis.log {
            x.least = xs().fold(f64::INFINITY, f64::min).min(x.most - 1e-9);
        }
        let figures = points.iter().flat_map(|p| p.1.iter().flatten()).flat_map(|f| [f.mean, f.ends().1]);
        let y = Scale::new(figures, chart.log, top + HEIGHT, -HEIGHT + 10.0);
        Panel { chart, axis, x, y }
    }

    fn draw(&self, canvas: &mut Canvas, points: &[Point]) {
        let (left, right) = (self.x.from, self.x.from + self.x.length);
        let (top, bottom) = (self.y.from + self.y.length, self.y.from);
        canvas.text(left - LEFT, top - 20.0, "h", &named(self.chart.title, self.chart.unit()));
        for tick in self.y.ticks() {
            let y = self.y.at(tick);
            canvas.put(format_args!("<path d=\"M{left:.1} {y:.1}H{right:.1}\" fill=\"none\" stroke=\"{GRID}\"/>"));
            canvas.text(left - 6.0, y + 4.0, "v e", &svg::tick(tick));
        }
        self.x_axis(canvas, points, bottom);
        for at in 0..points.first().map_or(0, |p| p.1.len()) {
            self.line(canvas, points, at);
        }
        canvas.put(format_args!("<path d=\"M{left:.1} {bottom:.1}H{right:.1}\" fill=\"none\" stroke=\"{AXIS}\"/>"));
        canvas.y = bottom + 34.0;
    }

    /// Each workload has a mark, and its figure as far as there is room.
    fn x_axis(&self, canvas: &mut Canvas, points: &[Point], bottom: f64) {
        let mut free = f64::NEG_INFINITY;
        for (value, _) in points {
            let (x, text) = (self.x.at(*value), svg::tick(*value));
            canvas.vertical(x, bottom, bottom + 4.0, &format!("stroke=\"{AXIS}\""));
            let half = svg::text_width(&text, 11.0) / 2.0 + 2.0;
            if x - half >= free {
                canvas.text(x, bottom + 16.0, "v m", &text);
                free = x + half;
            }
        }
        let middle = self.x.from + self.x.length / 2.0;
        canvas.text(middle, bottom + 31.0, "v m", &named(self.axis.name, self.axis.unit));
    }

    fn line(&self, canvas: &mut Canvas, points: &[Point], at: usize) {
        let figures = points.iter().filter_map(|(x, figures)| Some((*x, (*figures.get(at)?)?)));
        let figures: Vec<(f64, Interval)> = figures.collect();
        let here: Vec<(f64, f64)> = figures.iter().map(|(x, y)| (self.x.at(*x), self.y.at(y.mean))).collect();
        if here.is_empty() {
            return;
        }
        let path: Vec<String> = here.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let colour = colour(at);
        canvas.put(format_args!(
            "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join("L")
        ));
        here.iter().for_each(|(x, y)| {
            canvas.put(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{MARK}\" fill=\"{colour}\"/>"));
        });
        let ends = figures.iter().map(|(x, f)| (self.x.at(*x), self.y.at(f.ends().0), self.y.at(f.ends().1)));
        // Those that the mark covers nobody would see.
        let seen = ends.filter(|(_, low, high)| (low - high).abs() > 2.0 * MARK);
        let bars: String = seen
            .map(|(x, low, high)| {
                let caps = [low, high].map(|y| format!("M{:.1} {y:.1}H{:.1}", x - MARK, x + MARK)).concat();
                format!("M{x:.1} {low:.1}V{high:.1}{caps}")
            })
            .collect();
        if !bars.is_empty() {
            error_bar(canvas, &bars, colour);
        }
    }
}

/// The 95% interval of a figure.
pub(super) fn error_bar(canvas: &mut Canvas, path: &str, colour: &str) {
    canvas.put(format_args!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1\"/>"));
}

/// A chart with bars, a group for each part.
fn bars(canvas: &mut Canvas, chart: &Chart, lines: &[(String, Vec<Option<Interval>>)], left: f64) {
    canvas.text(left, canvas.y + 14.0, "h", &named(chart.title, chart.unit()));
    canvas.y += 26.0;
    let figures = lines.iter().flat_map(|l| l.1.iter().flatten()).flat_map(|f| [f.mean, f.ends().1]);
    let scale = Scale::new(figures, chart.log, left + 128.0, PANEL - 128.0 - 56.0);
    let top = canvas.y;
    for (name, figures) in lines {
        canvas.text(left, canvas.y + 12.0, "s", name);
        for (at, figure) in figures.iter().enumerate() {
            if figure.is_none() && chart.over.is_some() {
                continue;
            }
            if let Some(figure) = figure {
                let end = scale.at(figure.mean);
                let width = (end - scale.from).max(1.5);
                canvas.rect((scale.from, canvas.y), (width, BAR - 3.0), &fill(colour(at)));
                let (low, high) = figure.ends();
                if figure.half > 0.0 {
                    let middle = canvas.y + (BAR - 3.0) / 2.0;
                    let (low, high) = (scale.at(low), scale.at(high));
                    error_bar(canvas, &format!("M{low:.1} {middle:.1}H{high:.1}"), AXIS);
                }
                let text = scale.from + width.max(scale.at(high) - scale.from) + 5.0;
                canvas.text(text, canvas.y + 10.5, "v", &number(figure.mean));
            }
            canvas.y += BAR;
        }
        canvas.y += 10.0;
    }
    if chart.over.is_some() {
        // Here both are equal.
        canvas.vertical(
            scale.at(1.0),
            top - 2.0,
            canvas.y - 6.0,
            &format!("stroke=\"{AXIS}\" stroke-dasharray=\"4 3\""),
        );
        canvas.text(scale.at(1.0), canvas.y + 6.0, "v m", "1");
        canvas.y += 12.0;
    }
}
