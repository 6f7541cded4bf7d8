//! The addresses of requests over time, the subjects one below the other on the same axes.

use super::addresses::Addresses;
use super::{CLASSES, class};
use crate::picture::Picture;
use crate::svg::{AXIS, Canvas, EDGE, GRID, WIDTH, fill, number, text_width, tick, ticks};
use std::collections::BTreeMap;
use std::fmt::Write;

const LEFT: f64 = 72.0;
const PANEL: (f64, f64) = (WIDTH - LEFT - EDGE, 190.0);
/// What all cells together may take, bytes. A file of twice that is still loaded at once.
const MOST_BYTES: usize = 72 << 10;
/// Sizes of a cell that are tried, pixels.
const CELLS: [f64; 5] = [1.25, 1.5, 2.0, 3.0, 4.0];

/// A panel for each picture; none if there are none.
pub(crate) fn seeks(name: &str, pictures: &[&Picture]) -> Option<String> {
    let end_s = pictures.iter().map(|p| p.end_s).fold(0.0, f64::max);
    let dots = || pictures.iter().flat_map(|p| &p.dots);
    let capacity_bytes = dots().next().and(pictures.iter().map(|p| p.capacity_bytes).max())?;
    let axis = Addresses::new(dots().map(|d| d.offset), capacity_bytes, PANEL.1);
    let drawn = |cell: f64| -> Vec<Vec<String>> {
        pictures.iter().map(|picture| paths(&cells(picture, end_s, &axis, cell))).collect()
    };
    let bytes = |all: &[Vec<String>]| all.iter().flatten().map(String::len).sum::<usize>();
    let (cell, all) = CELLS
        .into_iter()
        .map(|cell| (cell, drawn(cell)))
        .find(|(_, all)| bytes(all) <= MOST_BYTES)
        .unwrap_or_else(|| (CELLS[4], drawn(CELLS[4])));
    let case = pictures.first().filter(|p| !p.case.is_empty()).map(|p| format!(", {}", p.case)).unwrap_or_default();
    let title = format!("{name}{case}: requests over time");
    let what = "Address on the disk against virtual time; what no request went to is left out. A spot has the \
                colour of most requests there.";
    let mut canvas = Canvas::new(&title, &[what]);
    let used = |class: usize| all.iter().any(|paths| !paths[class].is_empty());
    let entries: Vec<(String, &str)> =
        CLASSES.iter().enumerate().filter(|(i, _)| used(*i)).map(|(_, c)| (fill(c.1), c.0)).collect();
    canvas.legend((LEFT, WIDTH), entries.iter().map(|(paint, name)| (&**paint, *name)));
    for (at, (picture, paths)) in pictures.iter().zip(&all).enumerate() {
        panel(&mut canvas, picture, paths, cell, (end_s, &axis), at + 1 == pictures.len());
    }
    Some(canvas.finish(&title))
}

/// The class that most requests in a cell have, by line and column.
fn cells(picture: &Picture, end_s: f64, axis: &Addresses, cell: f64) -> BTreeMap<(u32, u32), usize> {
    let mut counts: BTreeMap<(u32, u32), [u32; CLASSES.len()]> = BTreeMap::new();
    for dot in &picture.dots {
        let column = (dot.at_s / end_s).min(1.0) * (PANEL.0 - cell) / cell;
        let line = (axis.y(dot.offset) - cell).max(0.0) / cell;
        counts.entry((line as u32, column as u32)).or_default()[class(dot.kind)] += 1;
    }
    let most = |counts: [u32; CLASSES.len()]| (0..CLASSES.len()).max_by_key(|class| counts[*class]).unwrap_or(0);
    counts.into_iter().map(|(place, counts)| (place, most(counts))).collect()
}

/// A path for each class: strokes along the lines, each from where the last one ended.
fn paths(cells: &BTreeMap<(u32, u32), usize>) -> Vec<String> {
    let mut paths = vec![String::new(); CLASSES.len()];
    let mut pens = vec![(0i64, 0i64); CLASSES.len()];
    let mut cells = cells.iter().peekable();
    while let Some((&(line, first), &class)) = cells.next() {
        let mut end = first + 1;
        while cells.next_if(|(place, other)| **place == (line, end) && **other == class).is_some() {
            end += 1;
        }
        let (x, y) = (i64::from(first), i64::from(line));
        let (pen, len) = (&mut pens[class], end - first);
        // Writing to a string cannot fail.
        let _ = write!(paths[class], "m{} {}h{len}", x - pen.0, y - pen.1);
        *pen = (i64::from(end), y);
    }
    paths
}

fn panel(canvas: &mut Canvas, picture: &Picture, paths: &[String], cell: f64, axes: (f64, &Addresses), is_last: bool) {
    let (end_s, axis) = axes;
    canvas.y += 14.0;
    let requests = format!("{} requests in {} s", tick(picture.requests as f64), number(picture.end_s));
    canvas.heading(LEFT, &picture.subject, &requests);
    canvas.y += 8.0;
    let (top, bottom) = (canvas.y, canvas.y + PANEL.1);
    axis.draw(canvas, (LEFT, top), PANEL.0);
    for value in ticks(end_s, 10) {
        let x = LEFT + value / end_s * PANEL.0;
        canvas.vertical(x, top, bottom, &format!("stroke=\"{GRID}\""));
        if is_last {
            canvas.text(x, bottom + 16.0, "v m", &format!("{} s", tick(value)));
        }
    }
    canvas.put(format_args!(
        "<g transform=\"translate({LEFT} {:.2}) scale({cell})\" fill=\"none\" stroke-width=\"1.4\">",
        top + cell / 2.0
    ));
    // Data first and metadata over it, which is less.
    for ((_, colour), path) in CLASSES.iter().zip(paths).filter(|(_, path)| !path.is_empty()) {
        canvas.put(format_args!("<path d=\"M0 0{path}\" stroke=\"{colour}\"/>"));
    }
    canvas.put(format_args!("</g>\n"));
    phases(canvas, picture, (top, bottom), end_s);
    canvas.y = bottom + if is_last { 20.0 } else { 14.0 };
}

/// Where phases begin, and the end of the run; names where there is room for them.
fn phases(canvas: &mut Canvas, picture: &Picture, (top, bottom): (f64, f64), end_s: f64) {
    let x = |s: f64| LEFT + s / end_s * PANEL.0;
    let ends = picture.phases.iter().skip(1).map(|p| p.1).chain([picture.end_s]);
    for ((name, begun_s), phase_end_s) in picture.phases.iter().zip(ends) {
        canvas.vertical(x(*begun_s), top, bottom, &format!("stroke=\"{AXIS}\" stroke-dasharray=\"3 2\""));
        if x(phase_end_s) - x(*begun_s) > text_width(name, 11.0) + 6.0 {
            canvas.text(x(*begun_s) + 4.0, top + 12.0, "v o", name);
        }
    }
    canvas.vertical(x(picture.end_s), top, bottom, &format!("stroke=\"{AXIS}\""));
}
