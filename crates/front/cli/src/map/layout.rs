//! A device as rows of cells of equal size, long empty stretches cut short.

use super::Class;
use arboretum::device::Kind;
use arboretum::vfs::{Ino, Region};
use std::collections::HashMap;

/// Smallest cell in bytes.
const MIN_UNIT: u64 = 4096;
/// Levels to which a cell is seen to be filled.
const STEPS: f64 = 6.0;

/// What a place in a row shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum What {
    /// Nothing is there.
    Free,
    /// So many bytes of nothing are left out.
    Gap(u64),
    /// Mostly this, filling that share of the cell; structures that are there too.
    Used { class: Class, share: f64, accent: Option<Kind> },
}

/// A run of equal cells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) column: usize,
    pub(crate) columns: usize,
    /// Where it begins on the device.
    pub(crate) offset: u64,
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// Where it begins on the device.
    pub(crate) offset: u64,
    pub(crate) runs: Vec<Run>,
}

#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Bytes a cell stands for.
    pub(crate) unit: u64,
    pub(crate) rows: Vec<Row>,
    /// Bytes left out, and in how many places.
    pub(crate) left_out: u64,
    /// Bytes of structures among them.
    pub(crate) hidden: u64,
    pub(crate) gaps: u64,
}

/// Cells from `first` to before `end` are drawn; what follows is left out.
struct Stretch {
    first: u64,
    end: u64,
}

/// Parts of the device worth drawing, and the cell size at which they fit.
struct Fit {
    unit: u64,
    gap_columns: usize,
    stretches: Vec<Stretch>,
}

/// How much room there is.
#[derive(Clone, Copy)]
struct Room {
    size: u64,
    columns: usize,
    rows: usize,
    gap_columns: usize,
}

impl Layout {
    /// At most about `max_rows` rows of `columns` cells; a gap takes `gap_columns` of them, or
    /// fewer where there are a great many.
    pub(crate) fn new(regions: &[Region], size: u64, columns: usize, max_rows: usize, gap_columns: usize) -> Layout {
        let room = Room { size, columns, rows: max_rows, gap_columns };
        let everything = room.fit(|_| occupied(regions, size, |_| true));
        let fit = if everything.unit > MIN_UNIT {
            // Bookkeeping of regions with no file in them may be left out if the rest gains by it.
            let lively = room.fit(|unit| lively(regions, room, unit));
            if lively.unit * 4 <= everything.unit { lively } else { everything }
        } else {
            everything
        };
        build(regions, size, columns, &fit)
    }
}

impl Room {
    fn fit(self, spans: impl Fn(u64) -> Vec<(u64, u64)>) -> Fit {
        let budget = (self.columns * self.rows) as u64;
        let mut unit = MIN_UNIT;
        loop {
            let cells = self.size.div_ceil(unit);
            // Cells twice as large are a fair price for leaving nothing out.
            if let Some(unit) = [unit, unit * 2].into_iter().find(|unit| self.size.div_ceil(*unit) <= budget) {
                let whole = Stretch { first: 0, end: self.size.div_ceil(unit) };
                return Fit { unit, gap_columns: self.gap_columns, stretches: vec![whole] };
            }
            let stretches = stretches(&spans(unit), unit, cells, self.columns as u64);
            let drawn: u64 = stretches.iter().map(|s| s.end - s.first).sum();
            let gaps = stretches.len() as u64;
            let wide = drawn + gaps * self.gap_columns as u64 <= budget;
            // Only a crowd of gaps is drawn without its lengths.
            let is_crowd = gaps * self.gap_columns as u64 > budget / 4;
            if wide || (is_crowd && drawn + gaps * 2 <= budget) {
                return Fit { unit, gap_columns: if wide { self.gap_columns } else { 2 }, stretches };
            }
            unit *= 2;
        }
    }
}

/// Spans of files, of what there is but once, and of the structures near to them.
fn lively(regions: &[Region], room: Room, unit: u64) -> Vec<(u64, u64)> {
    let is_lively = |r: &Region| r.owner.is_some() || matches!(r.kind, Kind::Super | Kind::Log | Kind::Data);
    let seeds = occupied(regions, room.size, is_lively);
    let reach = (room.columns as u64 / 2).saturating_mul(unit);
    let is_near = |r: &Region| {
        let after = seeds.partition_point(|seed| seed.1 <= r.offset);
        let below = after.checked_sub(1).and_then(|i| seeds.get(i)).is_some_and(|seed| r.offset - seed.1 < reach);
        let end = r.offset.saturating_add(r.len);
        below || seeds.get(after).is_some_and(|seed| seed.0 < end.saturating_add(reach))
    };
    occupied(regions, room.size, |r| is_lively(r) || is_near(r))
}

/// Occupied spans, merged and sorted.
fn occupied(regions: &[Region], size: u64, wanted: impl Fn(&Region) -> bool) -> Vec<(u64, u64)> {
    let inside = |r: &Region| (r.offset.min(size), r.offset.saturating_add(r.len).min(size));
    let mut spans: Vec<(u64, u64)> =
        regions.iter().filter(|r| wanted(r)).map(inside).filter(|(from, to)| from < to).collect();
    spans.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, to) in spans {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// Parts of the device that are drawn: what is occupied, with a little of the emptiness after it.
fn stretches(spans: &[(u64, u64)], unit: u64, cells: u64, columns: u64) -> Vec<Stretch> {
    // A gap must save more than a row, or it is not worth the break.
    let shortest_gap = columns + columns / 2;
    let margin = 4;
    let mut out: Vec<Stretch> = Vec::new();
    for (from, to) in spans {
        let (first, end) = (from / unit, to.div_ceil(unit).min(cells));
        match out.last_mut() {
            Some(last) if first < last.end + shortest_gap => last.end = last.end.max(end),
            Some(last) => {
                last.end = (last.end + margin).min(cells);
                out.push(Stretch { first, end });
            }
            None if first < shortest_gap => out.push(Stretch { first: 0, end }),
            None => out.extend([Stretch { first: 0, end: margin }, Stretch { first, end }]),
        }
    }
    match out.last_mut() {
        Some(last) if cells < last.end + shortest_gap => last.end = cells,
        Some(last) => last.end += margin,
        None => out.push(Stretch { first: 0, end: cells.min(columns) }),
    }
    out
}

/// What lies in one cell.
#[derive(Default)]
struct Cell {
    bytes: HashMap<Class, u64>,
}

impl Cell {
    fn show(&self, unit: u64) -> What {
        let all: u64 = self.bytes.values().sum();
        // Ties go to the lesser class, so that the same image gives the same picture.
        let most = |a: &(&Class, &u64), b: &(&Class, &u64)| a.1.cmp(b.1).then(b.0.cmp(a.0));
        let Some((class, _)) = self.bytes.iter().max_by(most) else { return What::Free };
        let structures = self.bytes.iter().filter(|(other, _)| *other != class);
        let accent = structures.filter(|(other, _)| matches!(other, Class::Meta(_))).max_by(most);
        let accent = accent.and_then(|(other, _)| if let Class::Meta(kind) = other { Some(*kind) } else { None });
        // Few steps, so that neighbours look the same and become one run.
        let share = ((all.min(unit) as f64 / unit as f64) * STEPS).ceil() / STEPS;
        What::Used { class: *class, share, accent }
    }
}

fn build(regions: &[Region], size: u64, columns: usize, fit: &Fit) -> Layout {
    let Fit { unit, gap_columns, stretches } = fit;
    let unit = *unit;
    let mut cells: HashMap<u64, Cell> = HashMap::new();
    for region in regions {
        fill(&mut cells, region, size, unit);
    }
    let is_drawn = |r: &&Region| {
        let at = r.offset / unit;
        let next = stretches.partition_point(|s| s.end <= at);
        stretches.get(next).is_some_and(|s| s.first <= at)
    };
    let hidden = regions.iter().filter(|r| r.offset < size && !is_drawn(r)).map(|r| r.len).sum();
    let mut layout = Layout { unit, rows: Vec::new(), left_out: 0, hidden, gaps: 0 };
    let mut pen = Pen { layout: &mut layout, columns, column: 0 };
    for (i, stretch) in stretches.iter().enumerate() {
        for at in stretch.first..stretch.end {
            let what = cells.get(&at).map_or(What::Free, |cell| cell.show(unit));
            pen.put(at * unit, what, 1);
        }
        let next = stretches.get(i + 1).map_or(size, |next| next.first * unit);
        let from = (stretch.end * unit).min(size);
        if next > from {
            pen.put(from, What::Gap(next - from), *gap_columns);
        }
    }
    layout
}

fn fill(cells: &mut HashMap<u64, Cell>, region: &Region, size: u64, unit: u64) {
    let class = Class::of(region);
    let end = region.offset.saturating_add(region.len).min(size);
    let mut at = region.offset;
    while at < end {
        let cell_end = (at / unit + 1).saturating_mul(unit);
        let part = cell_end.min(end) - at;
        *cells.entry(at / unit).or_default().bytes.entry(class).or_default() += part;
        at += part;
    }
}

struct Pen<'a> {
    layout: &'a mut Layout,
    columns: usize,
    column: usize,
}

impl Pen<'_> {
    fn put(&mut self, offset: u64, what: What, width: usize) {
        if self.column + width > self.columns || self.layout.rows.is_empty() {
            self.layout.rows.push(Row { offset, runs: Vec::new() });
            self.column = 0;
        }
        let Some(row) = self.layout.rows.last_mut() else { return };
        if let What::Gap(len) = what {
            self.layout.left_out += len;
            self.layout.gaps += 1;
        }
        match row.runs.last_mut() {
            Some(run) if run.what == what && !matches!(what, What::Gap(_)) => run.columns += width,
            _ => row.runs.push(Run { column: self.column, columns: width, offset, what }),
        }
        self.column += width;
    }
}

/// The file of a run, if it shows one.
pub(crate) fn file_of(what: &What) -> Option<Ino> {
    match what {
        What::Used { class: Class::File(ino), .. } => *ino,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{region, sample};
    use super::*;

    fn cells(layout: &Layout) -> usize {
        layout.rows.iter().flat_map(|r| &r.runs).map(|r| r.columns).sum()
    }

    #[test]
    fn a_small_device_is_drawn_whole() {
        let regions = [region(0, 4096, Kind::Super, None, 0), region(8192, 8192, Kind::Data, Some(3), 0)];
        let layout = Layout::new(&regions, 64 * 4096, 16, 8, 6);
        assert_eq!((layout.unit, layout.rows.len(), cells(&layout)), (4096, 4, 64));
        assert_eq!((layout.gaps, layout.left_out), (0, 0));
        let first: Vec<(usize, usize)> = layout.rows[0].runs.iter().map(|r| (r.column, r.columns)).collect();
        assert_eq!(first, [(0, 1), (1, 1), (2, 2), (4, 12)]);
        assert_eq!(layout.rows[1].offset, 16 * 4096);
    }

    #[test]
    fn a_terabyte_of_nothing_is_a_gap() {
        let regions = [region(0, 65536, Kind::Log, None, 0), region(1 << 39, 65536, Kind::Data, Some(3), 0)];
        let layout = Layout::new(&regions, 1 << 40, 64, 32, 6);
        assert_eq!((layout.unit, layout.gaps), (4096, 2));
        assert!(layout.left_out > (1 << 40) - (1 << 20));
        assert!(layout.rows.len() <= 2);
        assert!(layout.rows.iter().flat_map(|r| &r.runs).all(|r| r.column + r.columns <= 64));
    }

    #[test]
    fn large_pictures_stay_within_their_rows() {
        let facts = sample(8192, 128 << 20);
        let layout = Layout::new(&facts.regions, facts.size, 160, 90, 6);
        assert!(layout.rows.len() <= 91, "{}", layout.rows.len());
        assert!(layout.unit >= 4096);
    }

    #[test]
    fn groups_without_files_make_way_for_those_with_some() {
        let facts = sample(8192, 128 << 20);
        let layout = Layout::new(&facts.regions, facts.size, 160, 90, 6);
        assert!(layout.unit <= 64 << 10, "{}", layout.unit);
        assert!(layout.hidden > 0 && layout.left_out > facts.size / 2);
        let shown = |kind| {
            let mut runs = layout.rows.iter().flat_map(|r| &r.runs);
            runs.any(|r| matches!(r.what, What::Used { class: Class::Meta(k), .. } if k == kind))
        };
        assert!(shown(Kind::Inode) && shown(Kind::Bitmap), "structures near files are drawn");
    }

    #[test]
    fn structures_show_beside_data() {
        let regions = [
            region(0, 8192, Kind::Data, Some(3), 0),
            region(8192, 4096, Kind::Inode, None, 0),
            region(16384, 4096, Kind::Data, Some(4), 0),
        ];
        let mut cells = HashMap::new();
        regions.iter().for_each(|r| fill(&mut cells, r, 1 << 20, 16384));
        let class = Class::File(Some(Ino(3)));
        assert_eq!(cells[&0].show(16384), What::Used { class, share: 5.0 / 6.0, accent: Some(Kind::Inode) });
        assert_eq!(file_of(&cells[&1].show(16384)), Some(Ino(4)));
    }

    #[test]
    fn an_empty_device_is_drawn_too() {
        assert_eq!(Layout::new(&[], 0, 16, 8, 6).rows.len(), 0);
        assert_eq!(cells(&Layout::new(&[], 4096, 16, 8, 6)), 1);
        assert_eq!(Layout::new(&[], 1 << 40, 16, 8, 6).gaps, 1);
    }
}
