//! The curves as tables of text, and as one HTML page with charts.

use super::record::{Metric, RULE, Record, Series};
use super::series::{self, Def};
use crate::bench::report::{STYLE, Table, escaped, figure};
use std::fmt::Write;

fn about(record: &Record) -> String {
    let machine = &record.machine;
    let load = record.load.map_or(String::new(), |load| format!("; load {load:.2} at the begin"));
    format!(
        "{} without a mount on {}, {}, {} processors, {} MiB of memory, images on {}; {}{load}{}",
        record.engine,
        machine.kernel,
        machine.processor,
        machine.processors,
        machine.memory_mib,
        machine.host,
        machine.date,
        if record.quick { "; quick" } else { "" }
    )
}

fn defined(record: &Record) -> impl Iterator<Item = (&'static Def, &Series)> {
    record.series.iter().filter_map(|series| Some((series::named(&series.name)?, series)))
}

fn table(def: &Def, series: &Series) -> Table {
    let sizes = series.sizes();
    let mut head = vec![String::new()];
    head.extend(sizes.iter().map(|&size| def.label(size)));
    head.push("growth".into());
    let row = |metric: &Metric| {
        let mut cells = vec![format!("{}, {}", metric.name, metric.unit)];
        cells.extend(sizes.iter().map(|&size| metric.at(size).map_or("-".into(), figure)));
        cells.push(metric.growth().to_string());
        cells
    };
    Table { head, rows: series.metrics.iter().map(row).collect() }
}

/// All there is to say, for a terminal.
pub(crate) fn text(record: &Record) -> String {
    let mut text = format!("{}\n", about(record));
    for (def, series) in defined(record) {
        let _ = write!(text, "\n{}: {}\n\n{}", def.name, def.about, table(def, series).text());
    }
    let _ = writeln!(text, "\n{}", RULE.replace(". ", ".\n"));
    for line in &record.notes {
        let _ = writeln!(text, "NOTE {line}");
    }
    text
}

/// One row for each metric, with what it is at the greatest size and how it grew there, beside one another for the
/// engines; without series that only one of them has.
pub(crate) fn side_by_side(records: &[Record]) -> String {
    let names: Vec<&str> = records.iter().map(|r| r.engine.as_str()).collect();
    let mut out = String::new();
    for def in series::ALL {
        let of: Vec<Option<&Series>> = records.iter().map(|r| r.series.iter().find(|s| s.name == def.name)).collect();
        if of.iter().flatten().count() < 2 {
            continue;
        }
        let Some(first) = of.iter().flatten().next() else { continue };
        let most = first.sizes().last().map_or(String::new(), |size| def.label(*size));
        let _ = writeln!(out, "| {}, {most} | {} |", def.name, names.join(" | "));
        let _ = writeln!(out, "|---|{}", "---|".repeat(names.len()));
        for metric in &first.metrics {
            let cell = |series: &Option<&Series>| {
                let same =
                    series.and_then(|s| s.metrics.iter().find(|m| m.name == metric.name && m.unit == metric.unit));
                let last = same.and_then(|m| Some((m.points.last()?.1, m.growth())));
                last.map_or("-".into(), |(value, growth)| format!("{}, {growth}", figure(value)))
            };
            let cells: Vec<String> = of.iter().map(cell).collect();
            let _ = writeln!(out, "| {}, {} | {} |", metric.name, metric.unit, cells.join(" | "));
        }
        out.push('\n');
    }
    out
}

/// One page that needs nothing else.
pub(crate) fn html(record: &Record) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\n\
         <title>Growth</title>\n<style>{STYLE}{MORE_STYLE}</style></head><body>\n\
         <h1>Growth</h1>\n<p>{}</p>\n<p>{}</p>\n",
        escaped(&about(record)),
        escaped(RULE)
    );
    for (def, series) in defined(record) {
        let _ = writeln!(page, "<h2>{}: {}</h2>\n<div class=charts>", def.name, escaped(def.about));
        series.metrics.iter().for_each(|metric| page += &chart(def, metric));
        let _ = writeln!(page, "</div>\n{}", table(def, series).html());
    }
    let notes: String = record.notes.iter().map(|line| format!("<li>{}</li>\n", escaped(line))).collect();
    if !notes.is_empty() {
        let _ = writeln!(page, "<h2>Notes</h2>\n<ul>\n{notes}</ul>");
    }
    page + "</body></html>\n"
}

const MORE_STYLE: &str = "
svg .curve { fill: none; stroke: #3a8f52; stroke-width: 2 } svg .dot { fill: #3a8f52 }
svg .grid { stroke: var(--line); stroke-width: 1 } svg .size { text-anchor: middle }
figcaption small { font-weight: 400 }
";

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 24.0;
/// Below it nothing is to be told apart; zero has no place on a logarithmic axis.
const LEAST: f64 = 1e-3;

/// Positions on a logarithmic axis.
struct Axis {
    from: f64,
    to: f64,
    at: f64,
    length: f64,
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        self.at + (value.max(LEAST).log10() - self.from) / (self.to - self.from) * self.length
    }
}

/// A curve, both axes logarithmic: what is linear rises with the diagonal of the decades.
fn chart(def: &Def, metric: &Metric) -> String {
    let (Some(first), Some(last)) = (metric.points.first(), metric.points.last()) else { return String::new() };
    let values = || metric.points.iter().map(|p| p.1.max(LEAST).log10());
    let from = values().fold(f64::INFINITY, f64::min).floor();
    let to = values().fold(f64::NEG_INFINITY, f64::max).ceil().max(from + 1.0);
    let y = Axis { from, to, at: HEIGHT - BOTTOM, length: TOP + BOTTOM - HEIGHT };
    let sizes = (first.0 as f64).log10();
    let x = Axis { from: sizes, to: (last.0 as f64).log10().max(sizes + 0.1), at: LEFT, length: WIDTH - LEFT - RIGHT };
    let mut inside = String::new();
    for decade in from as i32..=to as i32 {
        let (value, end) = (10f64.powi(decade), WIDTH - RIGHT);
        let at = y.place(value);
        let _ = write!(inside, "<path class=grid d=\"M{LEFT} {at:.1}H{end:.0}\"/>");
        let _ = write!(inside, "<text x=0 y=\"{:.1}\">{value}</text>", at + 4.0);
    }
    let place = |p: &(u64, f64)| (x.place(p.0 as f64), y.place(p.1));
    let line: Vec<String> = metric.points.iter().map(|p| format!("{:.1} {:.1}", place(p).0, place(p).1)).collect();
    let _ = write!(inside, "<path class=curve d=\"M{}\"/>", line.join("L"));
    for point in &metric.points {
        let ((x, y), label) = (place(point), escaped(&short(def, point.0)));
        let _ = write!(inside, "<circle class=dot cx=\"{x:.1}\" cy=\"{y:.1}\" r=3 />");
        let _ = write!(inside, "<text class=size x=\"{x:.1}\" y=\"{:.1}\">{}</text>", y - 7.0, figure(point.1));
        let _ = write!(inside, "<text class=size x=\"{x:.1}\" y=\"{:.1}\">{label}</text>", HEIGHT - 6.0);
    }
    let (name, unit) = (escaped(&metric.name), escaped(&metric.unit));
    format!(
        "<figure><figcaption>{name}, {unit} <small>{}</small></figcaption>\n\
         <svg width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{name}\">{inside}</svg></figure>\n",
        metric.growth()
    )
}

/// A size below a chart, where there is little room.
fn short(def: &Def, size: u64) -> String {
    let label = def.label(size);
    label
        .strip_suffix(",000,000")
        .map(|n| format!("{n}M"))
        .or(label.strip_suffix(",000").map(|n| format!("{n}k")))
        .unwrap_or(label.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> Record {
        let path = crate::root().join("docs/figures/growth.json");
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn what_is_recorded_is_shown() {
        let record = recorded();
        assert!(!record.quick && record.series.len() == series::ALL.len());
        let text = text(&record);
        let rows: usize = record.series.iter().map(|s| s.metrics.len()).sum();
        for (def, series) in defined(&record) {
            assert!(text.contains(def.about));
            assert!(series.metrics.iter().all(|m| text.contains(&m.name)));
            assert_eq!(series.sizes(), def.sizes);
        }
        let page = html(&record);
        assert_eq!(page.matches("<figure>").count(), rows);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(!page.contains("http") && !page.contains("<script") && !page.contains("url(") && !page.contains("NaN"));
    }

    #[test]
    fn a_curve_keeps_to_its_frame() {
        let def = series::named("files").unwrap();
        let metric = Metric { name: "<a>".into(), unit: "us".into(), points: vec![(1000, 0.5), (1_000_000, 500.0)] };
        let chart = chart(def, &metric);
        assert!(chart.contains("class=curve d=\"M48.0 140.5L330.0 31.0\""), "{chart}");
        assert!(chart.contains(">1k<") && chart.contains(">1M<") && chart.contains("&lt;a&gt;"), "{chart}");
    }
}
