//! What lies where on the disk, before a run, in it and after it.

use super::{CLASSES, class};
use crate::picture::{CELLS, Cell, Map, Picture};
use crate::svg::{Canvas, EDGE, WIDTH, fill, number};
use std::collections::BTreeMap;
use std::fmt::Write;

const COLUMNS: usize = 64;
const GAP: f64 = 24.0;
/// Maps in a line.
const ACROSS: usize = 3;
const CELL: f64 = (WIDTH - 2.0 * EDGE - (ACROSS - 1) as f64 * GAP) / (ACROSS * COLUMNS) as f64;
/// Steps of a colour: the fuller a cell, the stronger.
const LEVELS: usize = 4;

/// A line of maps for each picture; none if there are none.
pub(crate) fn maps(name: &str, pictures: &[&Picture]) -> Option<String> {
    let cell_bytes = pictures.iter().find_map(|p| p.maps.first())?.cell_bytes;
    let case = pictures.first().filter(|p| !p.case.is_empty()).map(|p| format!(", {}", p.case)).unwrap_or_default();
    let title = format!("{name}{case}: the disk before and after");
    let lines = CELLS / COLUMNS;
    let what = format!(
        "{COLUMNS} by {lines} cells of {} MB, line by line from the first address. The colour is that of what takes \
         most of a cell; the less is in use, the paler.",
        number(cell_bytes as f64 / 1e6)
    );
    let mut canvas = Canvas::new(&title, &[&what]);
    let cells = || pictures.iter().flat_map(|p| &p.maps).flat_map(|m| &m.cells);
    let used = |at: usize| cells().any(|cell| shade(cell, cell_bytes).is_some_and(|s| s.0 == at));
    let entries: Vec<(String, &str)> =
        CLASSES.iter().enumerate().filter(|(at, _)| used(*at)).map(|(_, c)| (fill(c.1), c.0)).collect();
    canvas.legend((EDGE, WIDTH), entries.iter().map(|(paint, name)| (&**paint, *name)));
    for picture in pictures {
        for maps in picture.maps.chunks(ACROSS) {
            canvas.y += 14.0;
            let top = canvas.y + 8.0;
            for (at, map) in maps.iter().enumerate() {
                let left = EDGE + at as f64 * (COLUMNS as f64 * CELL + GAP);
                canvas.text(left, canvas.y, "h", &format!("{}, {}", picture.subject, map.when));
                draw(&mut canvas, map, left, top);
            }
            canvas.y = top + lines as f64 * CELL + 10.0;
        }
    }
    Some(canvas.finish(&title))
}

fn draw(canvas: &mut Canvas, map: &Map, left: f64, top: f64) {
    let size = (COLUMNS as f64 * CELL, (CELLS / COLUMNS) as f64 * CELL);
    canvas.rect((left, top), size, "fill=\"#f3f5f7\"");
    let mut paths: BTreeMap<(usize, usize), String> = BTreeMap::new();
    let shades: Vec<_> = map.cells.iter().map(|cell| shade(cell, map.cell_bytes)).collect();
    for (line, shades) in shades.chunks(COLUMNS).enumerate() {
        let mut column = 0;
        for run in shades.chunk_by(|a, b| a == b) {
            if let Some(shade) = run[0] {
                // Writing to a string cannot fail.
                let _ = write!(paths.entry(shade).or_default(), "M{column} {line}h{}v1h-{}z", run.len(), run.len());
            }
            column += run.len();
        }
    }
    canvas.put(format_args!("<g transform=\"translate({left:.1} {top:.1}) scale({CELL:.4})\">"));
    for ((class, level), path) in paths {
        let opacity = (level + 1) as f64 / LEVELS as f64;
        canvas.put(format_args!("<path d=\"{path}\" fill=\"{}\" fill-opacity=\"{opacity}\"/>", CLASSES[class].1));
    }
    canvas.put(format_args!("</g>\n"));
}

/// The class that takes most of a cell, and how full the cell is.
fn shade(cell: &Cell, cell_bytes: u64) -> Option<(usize, usize)> {
    let mut bytes = [0; CLASSES.len()];
    cell.bytes.iter().enumerate().for_each(|(kind, n)| bytes[class(kind)] += n);
    let used: u64 = bytes.iter().sum();
    let most = (0..bytes.len()).max_by_key(|class| bytes[*class]).filter(|_| used > 0)?;
    Some((most, ((used * LEVELS as u64 / cell_bytes.max(1)) as usize).min(LEVELS - 1)))
}
