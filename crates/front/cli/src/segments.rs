//! How much of each segment of a log-structured volume lives: as a histogram, as a row of cells in the order of the
//! addresses, and as JSON.

use crate::show;
use arboretum::vfs::Utilisation;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Classes of the histogram, 5 % each; a segment that lives as a whole belongs to the last one.
const CLASSES: usize = 20;
/// Columns of the longest bar.
const BAR: usize = 40;
/// Columns and rows of the picture.
const COLUMNS: usize = 64;
const MAX_ROWS: usize = 8;
/// Cells by the share that lives, an eighth each.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const CLEAN: char = '·';

/// Segments in each class, clean ones left out.
fn histogram(u: &Utilisation) -> [u64; CLASSES] {
    let mut classes = [0; CLASSES];
    for (_, live) in &u.live {
        let class = live.saturating_mul(CLASSES as u64) / u.segment_size.max(1);
        classes[(class as usize).min(CLASSES - 1)] += 1;
    }
    classes
}

fn clean(u: &Utilisation) -> u64 {
    u.count - u.live.len() as u64
}

fn live_bytes(u: &Utilisation) -> u64 {
    u.live.iter().map(|(_, live)| live).sum()
}

pub(crate) fn as_json(u: &Utilisation) -> Value {
    json!({
        "segment_size": u.segment_size,
        "count": u.count,
        "clean": clean(u),
        "live_bytes": live_bytes(u),
        "histogram": histogram(u),
    })
}

pub(crate) fn draw(u: &Utilisation) -> String {
    let mut out = String::new();
    let (count, clean) = (u.count, clean(u));
    let of = show::of(count, "segment", "segments");
    let _ = writeln!(out, "{of} of {}, {} clean", show::bytes(u.segment_size), show::count(clean));
    if clean < count {
        let written = (count - clean).saturating_mul(u.segment_size).max(1);
        let percent = u128::from(live_bytes(u)) * 100 / u128::from(written);
        let _ = writeln!(out, "{percent} % of the others is live:\n");
        draw_histogram(&histogram(u), &mut out);
        out.push('\n');
        draw_cells(u, &mut out);
    }
    out
}

fn draw_histogram(classes: &[u64; CLASSES], out: &mut String) {
    let most = classes.iter().copied().max().unwrap_or(0).max(1);
    let digits = show::count(most).len();
    for (i, n) in classes.iter().enumerate() {
        let (from, to) = (i * 100 / CLASSES, (i + 1) * 100 / CLASSES);
        // What is there shows.
        let columns = (*n * BAR as u64).div_ceil(most) as usize;
        let line = format!("{from:>4} - {to:>3} %  {:>digits$}  {}", show::count(*n), "█".repeat(columns));
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// A cell for each segment, or for several where there are many.
fn draw_cells(u: &Utilisation, out: &mut String) {
    let fold = u.count.div_ceil((COLUMNS * MAX_ROWS) as u64).max(1);
    let mut live: Vec<Option<u64>> = vec![None; u.count.div_ceil(fold) as usize];
    for (seg, bytes) in &u.live {
        if let Some(cell) = live.get_mut((seg / fold) as usize) {
            *cell = Some(cell.unwrap_or(0) + bytes);
        }
    }
    let bytes = |n: usize| (u.count - n as u64 * fold).min(fold).saturating_mul(u.segment_size);
    let cells: Vec<char> = live.iter().enumerate().map(|(n, live)| cell(*live, bytes(n))).collect();
    let each = if fold == 1 { "a segment".to_string() } else { format!("{} segments", show::count(fold)) };
    let _ = writeln!(out, "by address; a cell is {each}, · clean, ▁ little to █ all of it live");
    for row in cells.chunks(COLUMNS) {
        let _ = writeln!(out, "  {}", row.iter().collect::<String>());
    }
}

/// What lives in segments of so many bytes, `None` if all of them are clean.
fn cell(live: Option<u64>, bytes: u64) -> char {
    let Some(live) = live else { return CLEAN };
    let level = live.saturating_mul(LEVELS.len() as u64) / bytes.max(1);
    LEVELS[(level as usize).min(LEVELS.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(live: &[Option<u64>]) -> Utilisation {
        let live_only = (0..).zip(live).filter_map(|(n, live)| live.map(|live| (n, live)));
        Utilisation { segment_size: 1000, count: live.len() as u64, live: live_only.collect() }
    }

    #[test]
    fn segments_are_counted_by_what_lives() {
        let u = of(&[None, Some(0), Some(49), Some(50), Some(999), Some(1000), None]);
        let classes = histogram(&u);
        assert_eq!((classes[0], classes[1], classes[19]), (2, 1, 2));
        assert_eq!(classes.iter().sum::<u64>(), 5);
        let json = as_json(&u);
        assert_eq!((json["count"].as_u64(), json["clean"].as_u64()), (Some(7), Some(2)));
        assert_eq!(json["live_bytes"].as_u64(), Some(2098));
    }

    #[test]
    fn the_picture_shows_each_segment_or_folds_them() {
        let text = draw(&of(&[None, Some(0), Some(500), Some(1000)]));
        assert!(text.starts_with("4 segments of 1000 B, 1 clean\n50 % of the others is live:\n"), "{text}");
        assert!(text.ends_with("a cell is a segment, · clean, ▁ little to █ all of it live\n  ·▁▅█\n"), "{text}");
        assert_eq!(text.lines().filter(|l| l.ends_with("  1  ████████████████████████████████████████")).count(), 3);
        let many: Vec<Option<u64>> = (0..10_000).map(|n| (n >= 5000).then_some(1000)).collect();
        let text = draw(&of(&many));
        let rows: Vec<&str> = text.lines().skip_while(|l| !l.contains("a cell is 20 segments")).skip(1).collect();
        assert_eq!(rows.len(), 8, "{text}");
        assert!(rows[0].ends_with("····") && rows[7].ends_with("████"), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        assert_eq!(draw(&of(&[None])), "1 segment of 1000 B, 1 clean\n");
    }
}
