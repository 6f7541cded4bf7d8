//! The paper's ratio of each figure beside ours.

use super::curves::error_bar;
use super::{find, label, parts};
use crate::experiment::Experiment;
use crate::rows::Row;
use crate::svg::{self, AXIS, Canvas, EDGE, GRID, WIDTH, fill, number};

const PAPER: &str = "#aab2bb";
const HOLDS: &str = "#0072b2";
const HOLDS_NOT: &str = "#d55e00";
/// Where the bars begin, and the space between two subjects.
const LEFT: f64 = 176.0;
const GAP: f64 = 28.0;
/// A figure is a line with two bars.
const LINE: f64 = 30.0;
const BAR: f64 = 11.0;
const HEADING: f64 = 26.0;

/// A bar for each ratio that the paper has, or could have; none if nothing was compared.
pub(crate) fn ratios(experiment: &Experiment, rows: &[Row]) -> Option<String> {
    let compared = |name: &&str| *name != experiment.reference;
    let subjects: Vec<&str> = experiment.columns.iter().copied().filter(compared).collect();
    let lines = lines(experiment, rows, &subjects);
    let all = || lines.iter().flat_map(|l| &l.rows).flatten().flat_map(|r| [r.our_ratio, r.paper_ratio]).flatten();
    let scale = Scale::new(all(), (WIDTH - LEFT - EDGE - GAP) / 2.0)?;
    let title = format!("{}: the paper's ratios beside ours", experiment.name);
    let reference = experiment.reference;
    let what =
        format!("Figure of {reference} over that of the other: right of 1 {reference} has more, left of 1 less.");
    let mut canvas = Canvas::new(&title, &[&what]);
    let (paper, holds, not) = (fill(PAPER), fill(HOLDS), fill(HOLDS_NOT));
    let has = |held: Option<bool>| lines.iter().flat_map(|l| &l.rows).flatten().any(move |r| r.holds == held);
    let entries = [
        (lines.iter().flat_map(|l| &l.rows).flatten().any(|r| r.paper_ratio.is_some()), &*paper, "paper"),
        (has(Some(true)), &*holds, "ours, holds"),
        (has(Some(false)), &*not, "ours, does not hold"),
        (!has(Some(true)) && !has(Some(false)), &*holds, "ours"),
    ];
    canvas.legend((EDGE, WIDTH), entries.into_iter().filter(|e| e.0).map(|(_, paint, name)| (paint, name)));
    let panel = |at: usize| LEFT + at as f64 * (scale.width + GAP);
    canvas.y += 12.0;
    for (at, subject) in subjects.iter().enumerate() {
        canvas.text(panel(at), canvas.y, "h", &format!("{reference} / {subject}"));
    }
    canvas.y += 8.0;
    let top = canvas.y;
    let bottom = top + lines.iter().map(|l| LINE + if l.heading.is_some() { HEADING } else { 0.0 }).sum::<f64>();
    (0..subjects.len()).for_each(|at| axis(&mut canvas, &scale, panel(at), top, bottom));
    for line in &lines {
        draw(&mut canvas, &scale, line, panel);
    }
    canvas.y = bottom + 16.0;
    Some(canvas.finish(&title))
}

/// A figure, of each subject if it was measured.
struct Line<'a> {
    heading: Option<String>,
    name: &'static str,
    rows: Vec<Option<&'a Row>>,
}

fn lines<'a>(experiment: &Experiment, rows: &'a [Row], subjects: &[&str]) -> Vec<Line<'a>> {
    let mut lines: Vec<Line<'a>> = Vec::new();
    let mut last = String::new();
    for (case, part) in parts(experiment) {
        for (quantity, _) in part.paper {
            let of = |subject: &&str| find(experiment, rows, subject, (case, part, *quantity));
            let found: Vec<_> = subjects.iter().map(of).collect();
            if found.iter().flatten().all(|r| r.our_ratio.is_none()) {
                continue;
            }
            let label = label(case, part, rows);
            let heading = (label != last).then(|| label.clone());
            last = label;
            lines.push(Line { heading, name: quantity.name().0, rows: found });
        }
    }
    lines
}

/// Logarithmic, so that twice and half are equally far from 1.
struct Scale {
    least: f64,
    most: f64,
    width: f64,
}

/// Room for the figure at the end of a bar.
const ROOM: f64 = 38.0;

impl Scale {
    fn new(ratios: impl Iterator<Item = f64>, width: f64) -> Option<Scale> {
        let (mut least, mut most) = (f64::INFINITY, 0f64);
        for ratio in ratios.filter(|r| *r > 0.0 && r.is_finite()) {
            (least, most) = (least.min(ratio), most.max(ratio));
        }
        (most > 0.0).then(|| Scale { least: least.min(0.9), most: most.max(1.2), width })
    }

    fn x(&self, ratio: f64) -> f64 {
        let all = libm::log(self.most / self.least);
        ROOM + libm::log(ratio / self.least) / all * (self.width - 2.0 * ROOM)
    }
}

fn axis(canvas: &mut Canvas, scale: &Scale, left: f64, top: f64, bottom: f64) {
    let is_wide = scale.most / scale.least > 100.0;
    let factors: &[f64] = if is_wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let ticks = (-3..=5).flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
    for tick in ticks.filter(|t| (scale.least..=scale.most).contains(t)) {
        let x = left + scale.x(tick);
        canvas.vertical(x, top, bottom, &format!("stroke=\"{}\"", if tick == 1.0 { AXIS } else { GRID }));
        canvas.text(x, bottom + 14.0, "v m", &svg::tick(tick));
    }
}

fn draw(canvas: &mut Canvas, scale: &Scale, line: &Line<'_>, panel: impl Fn(usize) -> f64) {
    if let Some(heading) = &line.heading {
        canvas.text(EDGE, canvas.y + 18.0, "h", heading);
        canvas.y += HEADING;
    }
    canvas.text(EDGE, canvas.y + 19.0, "s", line.name);
    for (at, row) in line.rows.iter().enumerate() {
        let Some(row) = row else { continue };
        let colour = if row.holds == Some(false) { HOLDS_NOT } else { HOLDS };
        bar(canvas, scale, panel(at), canvas.y + 3.0, row.paper_ratio, PAPER);
        let y = canvas.y + 4.0 + BAR;
        bar(canvas, scale, panel(at), y, row.our_ratio, colour);
        if let Some(ratio) = row.ratio().filter(|r| r.half > 0.0 && r.ends().0 > 0.0) {
            let [low, high] = [ratio.ends().0, ratio.ends().1].map(|r| panel(at) + scale.x(r));
            error_bar(canvas, &format!("M{low:.1} {0:.1}H{high:.1}", y + BAR / 2.0), AXIS);
        }
    }
    canvas.y += LINE;
}

/// From 1 to the ratio, which stands at its end.
fn bar(canvas: &mut Canvas, scale: &Scale, left: f64, y: f64, ratio: Option<f64>, colour: &str) {
    let Some(ratio) = ratio.filter(|r| *r > 0.0 && r.is_finite()) else { return };
    let (one, end) = (left + scale.x(1.0), left + scale.x(ratio));
    canvas.rect((one.min(end), y), ((end - one).abs().max(1.5), BAR), &fill(colour));
    let (x, class) = if end < one { (end - 4.0, "v e") } else { (end + 5.0, "v") };
    canvas.text(x, y + 9.5, class, &number(ratio));
}
