//! The report: one HTML file that needs nothing else.

use crate::picture::{CELLS, Cell, Dot, Map, Picture};
use crate::rows::Row;
use arbor_simdisk::{KINDS, kind_name};
use std::fmt::Write;

/// A colour for each of [`KINDS`], and one more.
const COLOURS: [&str; 11] = [
    "#222222", "#d62728", "#8c564b", "#1f77b4", "#9467bd", "#2ca02c", "#e377c2", "#17becf", "#f0a030", "#808080",
    "#c0c0c0",
];

/// The picture of requests over time: where it begins, how wide and high it is.
const LEFT: f64 = 60.0;
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 320.0;

const STYLE: &str = "body{font:14px/1.4 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222;
background:#fff}table{border-collapse:collapse;margin:1em 0}th,td{padding:.2em .6em;border-bottom:1px solid #ddd;
text-align:right}th:first-child,td:first-child{text-align:left}.paper{color:#666}.no{color:#b00}
svg{display:block;margin:.5em 0;max-width:100%}svg text{font:11px system-ui,sans-serif;fill:#222}
h3{margin-top:2em}.key span{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em}";

/// Makes the report. `title` says what was run on what.
pub fn report(title: &str, rows: &[Row], pictures: &[Picture]) -> String {
    let mut page = Page(String::new());
    let title = escape(title);
    page.put(format_args!("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>"));
    page.put(format_args!("<style>{STYLE}</style></head><body><h1>{title}</h1>"));
    page.put(format_args!(
        "<p>Times are virtual: what the simulated disk and the stated charge of the processor take. "
    ));
    page.put(format_args!("\u{201c}Processor, real\u{201d} is what the run took of this machine's. A ratio is the "));
    page.put(format_args!("reference's figure over the subject's. Behind \u{b1} stands the standard deviation.</p>"));
    for experiment in distinct(rows.iter().map(|r| &*r.experiment)) {
        let rows: Vec<&Row> = rows.iter().filter(|r| r.experiment == experiment).collect();
        page.put(format_args!("<h2>{}</h2>", escape(experiment)));
        page.table(&rows);
        page.all_bars(&rows);
        for picture in pictures.iter().filter(|p| p.experiment == experiment) {
            page.picture(picture);
        }
    }
    page.put(format_args!("</body></html>\n"));
    page.0
}

struct Page(String);

impl Page {
    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(text);
    }

    fn table(&mut self, rows: &[&Row]) {
        let subjects = distinct(rows.iter().map(|r| &*r.subject));
        self.put(format_args!("<table><tr><th></th>"));
        for subject in &subjects {
            self.put(format_args!("<th>{}</th><th class=\"paper\">paper</th><th>ratio</th>", escape(subject)));
        }
        self.put(format_args!("</tr>"));
        for metric in distinct(rows.iter().map(|r| &*r.metric)) {
            let unit = rows.iter().find(|r| r.metric == metric).map_or("", |r| &*r.unit);
            let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
            self.put(format_args!("<tr><td>{}{}</td>", escape(metric), escape(&unit)));
            for subject in &subjects {
                let row = rows.iter().find(|r| r.metric == metric && r.subject == **subject);
                self.cells(row.copied());
            }
            self.put(format_args!("</tr>"));
        }
        self.put(format_args!("</table>"));
    }

    fn cells(&mut self, row: Option<&Row>) {
        let Some(row) = row else { return self.put(format_args!("<td></td><td></td><td></td>")) };
        let spread = if row.spread > 0.0 { format!(" \u{b1} {}", number(row.spread)) } else { String::new() };
        self.put(format_args!("<td>{}{spread}</td>", number(row.ours)));
        self.put(format_args!("<td class=\"paper\">{}</td>", row.paper.map(number).unwrap_or_default()));
        let ours = row.our_ratio.map(|r| format!("{r:.2}")).unwrap_or_default();
        let paper = row.paper_ratio.map(|r| format!(" <span class=\"paper\">({r:.2})</span>")).unwrap_or_default();
        let class = if row.holds == Some(false) { " class=\"no\"" } else { "" };
        self.put(format_args!("<td{class}>{ours}{paper}</td>"));
    }

    /// Bars for whatever the paper has figures of.
    fn all_bars(&mut self, rows: &[&Row]) {
        self.put(format_args!("<p class=\"key\"><span style=\"background:#1f77b4\"></span>ours"));
        self.put(format_args!("<span style=\"border:1px solid #222\"></span>paper</p>"));
        for metric in distinct(rows.iter().map(|r| &*r.metric)) {
            let rows: Vec<&Row> = rows.iter().filter(|r| r.metric == metric).copied().collect();
            if rows.iter().any(|r| r.paper.is_some()) || metric.contains("elapsed") {
                self.bars(metric, &rows);
            }
        }
    }

    fn bars(&mut self, metric: &str, rows: &[&Row]) {
        let most =
            rows.iter().map(|r| (r.ours + r.spread).max(r.paper.unwrap_or(0.0))).fold(f64::MIN_POSITIVE, f64::max);
        let (left, scale) = (150.0, 560.0 / most);
        let unit = rows.first().map_or("", |r| &*r.unit);
        self.put(format_args!("<svg width=\"800\" height=\"{}\" role=\"img\">", 20 + rows.len() * 30));
        self.put(format_args!("<text x=\"0\" y=\"12\">{} {}</text>", escape(metric), escape(unit)));
        for (i, row) in rows.iter().enumerate() {
            let y = 20 + i * 30;
            self.put(format_args!("<text x=\"0\" y=\"{}\">{}</text>", y + 15, escape(&row.subject)));
            let (width, middle) = (row.ours * scale, y + 7);
            self.put(format_args!(
                "<rect x=\"{left}\" y=\"{y}\" width=\"{width:.1}\" height=\"14\" fill=\"#1f77b4\"/>"
            ));
            if row.spread > 0.0 {
                let (from, to) = (left + (row.ours - row.spread) * scale, left + (row.ours + row.spread) * scale);
                let line = format!("M{from:.1} {middle}H{to:.1}M{from:.1} {y}v14M{to:.1} {y}v14");
                self.put(format_args!("<path d=\"{line}\" stroke=\"#222\" fill=\"none\"/>"));
            }
            let end = left + (row.ours + row.spread) * scale + 5.0;
            self.put(format_args!("<text x=\"{end:.1}\" y=\"{}\">{}</text>", y + 11, number(row.ours)));
            if let Some(paper) = row.paper {
                let width = paper * scale;
                let place = format!("x=\"{left}\" y=\"{}\" width=\"{width:.1}\" height=\"8\"", y + 16);
                self.put(format_args!("<rect {place} fill=\"none\" stroke=\"#222\"/>"));
                let end = left + width + 5.0;
                self.put(format_args!("<text x=\"{end:.1}\" y=\"{}\">{}</text>", y + 24, number(paper)));
            }
        }
        self.put(format_args!("</svg>"));
    }

    fn picture(&mut self, picture: &Picture) {
        let case = if picture.case.is_empty() { String::new() } else { format!(", {}", picture.case) };
        self.put(format_args!("<h3>{}{}</h3>", escape(&picture.subject), escape(&case)));
        self.put(format_args!(
            "<p>Requests over time: address upward, {} of {} shown; ",
            picture.dots.len(),
            picture.requests
        ));
        self.put(format_args!("reads are hollow.</p><p class=\"key\">"));
        for (at, kind) in KINDS.iter().enumerate() {
            self.put(format_args!("<span style=\"background:{}\"></span>{}", COLOURS[at], kind_name(*kind)));
        }
        self.put(format_args!("</p>"));
        self.dots(picture);
        self.put(format_args!("<p>Where the time of the disk went, in seconds:</p>"));
        let colour = |name: &str| KINDS.iter().position(|k| kind_name(*k) == name).unwrap_or(KINDS.len());
        let by_kind: Vec<_> = picture.by_kind.iter().map(|(name, s)| (*name, *s, COLOURS[colour(name)])).collect();
        if !by_kind.is_empty() {
            self.stack(&by_kind);
        }
        let by_work = picture.by_work.iter().enumerate();
        let by_work: Vec<_> = by_work.map(|(i, (name, s))| (*name, *s, COLOURS[[1, 8, 5, 10][i]])).collect();
        self.stack(&by_work);
        for map in &picture.maps {
            self.map(map);
        }
    }

    /// All requests, and once more those that are not of the log if they lie close together.
    fn dots(&mut self, picture: &Picture) {
        self.dots_between(picture, 0, picture.capacity_bytes);
        let log = KINDS.iter().position(|k| kind_name(*k) == "log");
        let offsets = || picture.dots.iter().filter(|d| Some(d.kind) != log).map(|d| d.offset);
        let (from, to) = (offsets().min().unwrap_or(0), offsets().max().unwrap_or(0));
        if to > from && to - from < picture.capacity_bytes / 2 {
            self.put(format_args!("<p>The part of the disk in use, without the log:</p>"));
            self.dots_between(picture, from, to);
        }
    }

    fn dots_between(&mut self, picture: &Picture, from: u64, to: u64) {
        let end = picture.end_s.max(f64::MIN_POSITIVE);
        let (x, bytes) = (|s: f64| LEFT + s / end * WIDTH, (to - from) as f64);
        let y = |offset: u64| HEIGHT + 20.0 - (offset - from) as f64 / bytes * HEIGHT;
        self.put(format_args!("<svg viewBox=\"0 0 1100 360\" width=\"1100\" role=\"img\">"));
        let size = format!("width=\"{WIDTH}\" height=\"{HEIGHT}\"");
        self.put(format_args!("<rect x=\"{LEFT}\" y=\"20\" {size} fill=\"none\" stroke=\"#999\"/>"));
        for i in 0..=4 {
            let part = f64::from(i) / 4.0;
            let (offset, s) = (from + (bytes * part) as u64, end * part);
            self.put(format_args!("<text x=\"0\" y=\"{:.0}\">{} MB</text>", y(offset) + 4.0, offset / 1_000_000));
            self.put(format_args!("<text x=\"{:.0}\" y=\"354\" text-anchor=\"middle\">{} s</text>", x(s), number(s)));
        }
        let ends = picture.phases.iter().skip(1).map(|p| p.1).chain([end]);
        for ((name, begun_s), end_s) in picture.phases.iter().zip(ends) {
            let at = x(*begun_s);
            // There is room for names of phases of some length only.
            let name = if end_s - begun_s > end / 15.0 { name } else { "" };
            self.put(format_args!("<path d=\"M{at:.1} 14V340\" stroke=\"#999\" stroke-dasharray=\"2 2\"/>"));
            self.put(format_args!("<text x=\"{:.1}\" y=\"14\">{name}</text>", at + 3.0));
        }
        for (kind, colour) in COLOURS.iter().enumerate().take(KINDS.len()) {
            for write in [true, false] {
                let here = |d: &&Dot| d.kind == kind && d.write == write && (from..=to).contains(&d.offset);
                let point = |d: &Dot| format!("M{:.1} {:.1}h0", x(d.at_s), y(d.offset));
                let points: String = picture.dots.iter().filter(here).map(point).collect();
                if !points.is_empty() {
                    self.points(&points, colour, write);
                }
            }
        }
        self.put(format_args!("</svg>"));
    }

    /// Round dots, those of reads with a hole.
    fn points(&mut self, points: &str, colour: &str, write: bool) {
        let dot = "stroke-linecap=\"round\"";
        self.put(format_args!("<path d=\"{points}\" {dot} stroke=\"{colour}\" stroke-width=\"3.4\"/>"));
        if !write {
            self.put(format_args!("<path d=\"{points}\" {dot} stroke=\"#fff\" stroke-width=\"1.8\"/>"));
        }
    }

    /// One bar of several pieces, with their names below.
    fn stack(&mut self, pieces: &[(&str, f64, &str)]) {
        let total = pieces.iter().map(|p| p.1).sum::<f64>().max(f64::MIN_POSITIVE);
        let mut x = 0.0;
        self.put(format_args!("<svg width=\"1000\" height=\"18\" role=\"img\">"));
        for (name, seconds, colour) in pieces {
            let width = seconds / total * 1000.0;
            let place = format!("x=\"{x:.1}\" y=\"0\" width=\"{width:.1}\" height=\"18\"");
            self.put(format_args!("<rect {place} fill=\"{colour}\"><title>{name} {seconds:.1} s</title></rect>"));
            x += width;
        }
        self.put(format_args!("</svg><p class=\"key\">"));
        for (name, seconds, colour) in pieces {
            self.put(format_args!("<span style=\"background:{colour}\"></span>{name} {}", number(*seconds)));
        }
        self.put(format_args!("</p>"));
    }

    /// Cells in lines, the first address at the top left; the fuller, the stronger the colour of what takes most.
    fn map(&mut self, map: &Map) {
        const COLUMNS: usize = 128;
        let rows = CELLS / COLUMNS;
        let mb = map.cell_bytes as f64 / 1e6;
        self.put(format_args!("<p>The disk {}: {COLUMNS} \u{d7} {rows} cells of {mb:.1} MB</p>", map.when));
        self.put(format_args!("<svg viewBox=\"0 0 1024 {0}\" width=\"1024\" height=\"{0}\" role=\"img\">", rows * 8));
        self.put(format_args!("<rect width=\"1024\" height=\"{}\" fill=\"#f4f4f4\"/>", rows * 8));
        for (at, cell) in map.cells.iter().enumerate() {
            if let Some((kind, full)) = shade(cell, map.cell_bytes) {
                let (x, y) = (at % COLUMNS * 8, at / COLUMNS * 8);
                let paint = format!("fill=\"{}\" fill-opacity=\"{full:.2}\"", COLOURS[kind]);
                self.put(format_args!("<rect x=\"{x}\" y=\"{y}\" width=\"8\" height=\"8\" {paint}/>"));
            }
        }
        self.put(format_args!("</svg>"));
    }
}

/// The kind that takes most of a cell, and how strong its colour is: a fifth for the first byte.
fn shade(cell: &Cell, cell_bytes: u64) -> Option<(usize, f64)> {
    let used: u64 = cell.bytes.iter().sum();
    let (kind, _) = cell.bytes.iter().enumerate().max_by_key(|(_, bytes)| **bytes)?;
    (used > 0).then(|| (kind, (0.2 + 0.8 * used as f64 / cell_bytes as f64).min(1.0)))
}

fn distinct<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    all.for_each(|one| {
        if !found.contains(&one) {
            found.push(one);
        }
    });
    found
}

/// Three digits, or all before the point.
fn number(n: f64) -> String {
    match n.abs() {
        100.0.. => format!("{n:.0}"),
        10.0.. => format!("{n:.1}"),
        _ => format!("{n:.2}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
