//! Where the time of the disk went.

use super::{CLASSES, find, label, parts, subjects};
use crate::experiment::{Case, Experiment, Part, Quantity};
use crate::rows::Row;
use crate::svg::{AXIS, Canvas, EDGE, GRID, WIDTH, fill, number, tick, ticks};
use arbor_base::device::Kind;

/// By what it was for, an index of [`CLASSES`] each. The rows put bitmaps with the other metadata.
const FOR: [(Quantity, usize); 5] = [
    (Quantity::Kind(Kind::Log), 4),
    (Quantity::Kind(Kind::Other), 3),
    (Quantity::Kind(Kind::Inode), 2),
    (Quantity::Kind(Kind::Dir), 1),
    (Quantity::Kind(Kind::Data), 0),
];

/// By what the disk did; the rest of its time is command overhead and waiting for its own cache.
const DID: [(Quantity, &str, &str); 3] = [
    (Quantity::Seek, "seek", "#08306b"),
    (Quantity::Rotation, "rotation", "#4292c6"),
    (Quantity::Transfer, "transfer", "#a6cee3"),
];
const REST: (&str, &str) = ("other", "#d0d7de");

const LEFT: f64 = 136.0;
const GAP: f64 = 84.0;
const COLUMN: f64 = (WIDTH - LEFT - GAP - 60.0 - EDGE) / 2.0;
const LINE: f64 = 19.0;
const HEADING: f64 = 26.0;

/// Bars for every part, of each subject by purpose and by work, on one scale; none without figures.
pub(crate) fn times(experiment: &Experiment, rows: &[Row]) -> Option<String> {
    let subjects = subjects(experiment, rows);
    let of = |(case, part): (&'static Case, &'static Part)| {
        let bars: Vec<Bar<'_>> = subjects.iter().filter_map(|s| bar(experiment, rows, s, case, part)).collect();
        (!bars.is_empty()).then(|| (label(case, part, rows), bars))
    };
    let mut groups: Vec<(String, Vec<Bar<'_>>)> = parts(experiment).filter_map(of).collect();
    // Parts that share a name share these figures.
    groups.dedup_by(|a, b| a.0 == b.0);
    let most = scale_end(groups.iter().flat_map(|g| &g.1).map(|b| b.busy))?;
    let title = format!("{}: where the time of the disk went", experiment.name);
    let mut canvas = Canvas::new(
        &title,
        &["Seconds that the disk was busy. A bar with a gap does not fit; its pieces are in proportion."],
    );
    let second = LEFT + COLUMN + GAP;
    legends(&mut canvas, second);
    let top = canvas.y;
    let height = |bars: &[Bar<'_>]| HEADING + bars.len() as f64 * LINE;
    let bottom = top + groups.iter().map(|g| height(&g.1)).sum::<f64>() + 4.0;
    for left in [LEFT, second] {
        axis(&mut canvas, left, top, bottom, most);
    }
    for (heading, bars) in &groups {
        canvas.text(EDGE, canvas.y + 18.0, "h", heading);
        canvas.y += HEADING;
        for bar in bars {
            canvas.text(EDGE, canvas.y + 12.0, "s", bar.subject);
            bar.draw(&mut canvas, LEFT, &bar.purpose, most);
            bar.draw(&mut canvas, second, &bar.work, most);
            canvas.y += LINE;
        }
    }
    canvas.y = bottom + 18.0;
    Some(canvas.finish(&title))
}

/// A subject in a part.
struct Bar<'a> {
    subject: &'a str,
    busy: f64,
    /// Seconds and colours.
    purpose: Vec<(f64, &'static str)>,
    work: Vec<(f64, &'static str)>,
}

fn bar<'a>(experiment: &Experiment, rows: &[Row], subject: &'a str, case: &Case, part: &Part) -> Option<Bar<'a>> {
    let of = |quantity| find(experiment, rows, subject, (case, part, quantity)).map(|r| r.ours);
    let busy = of(Quantity::Busy)?;
    // Of many workloads there is no more than that.
    of(Quantity::Seek)?;
    let purpose = FOR.iter().map(|(q, class)| (of(*q).unwrap_or(0.0), CLASSES[*class].1)).collect();
    let mut work: Vec<_> = DID.iter().map(|(q, _, colour)| (of(*q).unwrap_or(0.0), *colour)).collect();
    work.push(((busy - work.iter().map(|w| w.0).sum::<f64>()).max(0.0), REST.1));
    Some(Bar { subject, busy, purpose, work })
}

/// Where the axis ends: at the longest bar, unless a few, at most a third, are more than three times as long as all the
/// others, which they would hide.
fn scale_end(seconds: impl Iterator<Item = f64>) -> Option<f64> {
    let mut all: Vec<f64> = seconds.filter(|s| *s > 0.0).collect();
    all.sort_by(f64::total_cmp);
    let few = (all.len() * 2).div_ceil(3).max(1);
    let end = (few..all.len()).find(|at| all[*at] > 3.0 * all[at - 1]).unwrap_or(all.len());
    all[..end].last().copied()
}

fn legends(canvas: &mut Canvas, second: f64) {
    let top = canvas.y;
    let purpose: Vec<(String, &str)> = FOR
        .iter()
        .map(|(_, class)| (fill(CLASSES[*class].1), if *class == 3 { "other metadata" } else { CLASSES[*class].0 }))
        .collect();
    canvas.text(LEFT, canvas.y + 12.0, "h", "by what it was for");
    canvas.text(second, canvas.y + 12.0, "h", "by what the disk did");
    canvas.y = top + 16.0;
    canvas.legend((LEFT, second), purpose.iter().map(|(paint, name)| (&**paint, *name)));
    let bottom = canvas.y;
    canvas.y = top + 16.0;
    let work: Vec<(String, &str)> =
        DID.iter().map(|d| (d.2, d.1)).chain([(REST.1, REST.0)]).map(|(c, name)| (fill(c), name)).collect();
    canvas.legend((second, WIDTH), work.iter().map(|(paint, name)| (&**paint, *name)));
    canvas.y = bottom.max(canvas.y);
}

fn axis(canvas: &mut Canvas, left: f64, top: f64, bottom: f64, most: f64) {
    for value in ticks(most, 6) {
        let x = left + value / most * COLUMN;
        canvas.vertical(x, top, bottom, &format!("stroke=\"{}\"", if value == 0.0 { AXIS } else { GRID }));
        let unit = if value == 0.0 { " s" } else { "" };
        canvas.text(x, bottom + 14.0, "v m", &format!("{}{unit}", tick(value)));
    }
}

impl Bar<'_> {
    fn draw(&self, canvas: &mut Canvas, left: f64, pieces: &[(f64, &str)], most: f64) {
        // Of a bar that does not fit each piece is shortened alike.
        let shown = self.busy.min(most * 1.08);
        let scale = shown / self.busy.max(f64::MIN_POSITIVE) * COLUMN / most;
        let mut x = left;
        for (seconds, colour) in pieces {
            let width = seconds * scale;
            if width > 0.05 {
                canvas.rect((x, canvas.y + 2.0), (width, LINE - 5.0), &fill(colour));
            }
            x += width;
        }
        let end = left + shown / most * COLUMN;
        if self.busy > most {
            let (from, to) = (canvas.y + LINE, canvas.y - 1.0);
            let gap = format!("M{:.1} {from:.1}L{:.1} {to:.1}", end - 22.0, end - 14.0);
            canvas.put(format_args!("<path d=\"{gap}\" stroke=\"#fff\" stroke-width=\"4\"/>"));
        }
        canvas.text(end + 5.0, canvas.y + 13.0, "v", &number(self.busy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_long_bars_do_not_hide_the_others() {
        let end = |all: &[f64]| scale_end(all.iter().copied());
        assert_eq!(end(&[8.0, 60.0, 30.0, 31.0, 9.0, 1500.0, 1100.0]), Some(60.0));
        assert_eq!(end(&[8.0, 1500.0]), Some(1500.0));
        assert_eq!(end(&[0.0]), None);
    }
}
