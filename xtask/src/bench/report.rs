//! The figures as a table of text, and as one HTML page with charts.

use super::record::{Record, Spread, What};
use super::work;
use std::fmt::Write;

/// A number with three digits that count.
pub(crate) fn figure(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.0995 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

/// Rows of figures under a line of headings.
pub(crate) struct Table {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// A row before it is text.
struct Row<'a> {
    title: String,
    /// In the order of the systems.
    values: Vec<Option<Spread>>,
    workload: &'a str,
    what: What<'a>,
}

/// The row of one figure, if any file system has it.
fn row<'a>(record: &Record, state: &str, workload: &'a str, what: What<'a>) -> Option<Row<'a>> {
    let systems = record.settings.systems.iter();
    let values: Vec<_> = systems.map(|system| record.spread(state, system, workload, what)).collect();
    let title = match what {
        What::Time(phase) if workload == "W6" => format!("W6 {phase}, us"),
        What::Time(phase) => format!("{workload} {phase}"),
        What::PeakMemory => format!("{workload} server's peak memory"),
        What::Image => format!("{workload} image after the first phase"),
        What::Used => format!("{workload} used by the first phase"),
        What::Written(phase) => format!("{workload} written by {phase}"),
    };
    values.iter().any(Option::is_some).then_some(Row { title, values, workload, what })
}

/// The rows of times.
fn times<'a>(record: &'a Record, state: &str) -> Vec<Row<'a>> {
    let workloads = record.settings.workloads.iter();
    let row = |w: &'a str, phase| row(record, state, w, What::Time(phase));
    workloads.flat_map(|w| record.phases(w).into_iter().filter_map(move |phase| row(w, phase))).collect()
}

/// The rows of bytes, in MB.
fn bytes<'a>(record: &'a Record, state: &str) -> Vec<Row<'a>> {
    let of = |w: &'a String| {
        let written = record.phases(w).into_iter().filter(|name| writes(name)).map(What::Written);
        [What::PeakMemory, What::Image, What::Used].into_iter().chain(written).map(move |what| (w.as_str(), what))
    };
    record.settings.workloads.iter().flat_map(of).filter_map(|(w, what)| row(record, state, w, what)).collect()
}

fn writes(phase: &str) -> bool {
    !phase.ends_with(", cold")
}

/// How many times as long as `below` takes `above`.
fn ratio(above: Option<Spread>, below: Option<Spread>) -> String {
    match (above, below) {
        (Some(above), Some(below)) if below.median > 0.0 => format!("{:.2}", above.median / below.median),
        _ => "-".into(),
    }
}

fn cell(value: Option<Spread>, with_range: bool) -> String {
    match value {
        None => "-".into(),
        Some(s) if s.count > 1 && with_range => format!("{} ({}..{})", figure(s.median), figure(s.min), figure(s.max)),
        Some(s) => figure(s.median),
    }
}

/// Times with the ratios of the peers to the first system, and of that to the floor.
fn time_table(record: &Record, state: &str) -> Table {
    let systems = &record.settings.systems;
    let mut head = vec![String::new()];
    head.extend(systems.iter().cloned());
    let peers: Vec<usize> =
        (record.settings.engines.max(1)..systems.len()).filter(|&i| systems[i] != "floor").collect();
    let floor = systems.iter().position(|s| s == "floor").filter(|&i| i > 0);
    head.extend(peers.iter().map(|&i| format!("{}/{}", systems[i], systems[0])));
    head.extend(floor.map(|_| format!("{}/floor", systems[0])));
    let cells = |row: Row<'_>| {
        let mut cells = vec![row.title];
        cells.extend(row.values.iter().map(|&v| cell(v, true)));
        cells.extend(peers.iter().map(|&i| ratio(row.values[i], row.values[0])));
        cells.extend(floor.map(|i| ratio(row.values[0], row.values[i])));
        cells
    };
    Table { head, rows: times(record, state).into_iter().map(cells).collect() }
}

fn byte_table(record: &Record, state: &str) -> Table {
    let mut head = vec!["MB".to_owned()];
    head.extend(record.settings.systems.iter().cloned());
    let cells = |row: Row<'_>| std::iter::once(row.title).chain(row.values.iter().map(|&v| cell(v, false))).collect();
    Table { head, rows: bytes(record, state).into_iter().map(cells).collect() }
}

impl Table {
    pub(crate) fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&self.head]).map(|row| row[column].len());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let line = |cells: &Vec<String>| {
            let padded = cells.iter().zip(&widths).enumerate().map(|(i, (cell, &width))| match i {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            let padded: Vec<String> = padded.collect();
            format!("  {}\n", padded.join("  ").trim_end())
        };
        std::iter::once(&self.head).chain(&self.rows).map(line).collect()
    }

    pub(crate) fn html(&self) -> String {
        let row = |tag: &str, cells: &[String]| {
            let cells: String = cells.iter().map(|c| format!("<{tag}>{}</{tag}>", escaped(c))).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let rows: String = self.rows.iter().map(|r| row("td", r)).collect();
        format!("<div class=wide><table>\n{}{rows}</table></div>\n", row("th", &self.head))
    }
}

const HOW: &str = "Seconds, medians (least..greatest) of the rounds. \
                   PEER/OURS above 1 says that ours is faster, OURS/floor how far it is from what FUSE itself costs. \
                   Cold: after another mount and dropped caches; what lives in memory only stays mounted. \
                   The final sync is syncfs on kernel file systems, fsync of the root on FUSE mounts.";

fn about(record: &Record) -> String {
    let (machine, settings) = (&record.machine, &record.settings);
    let mut text = format!(
        "{}, {}, {} processors, {} MiB of memory, images of {} GiB on {}; {}; {} files, {} rounds",
        machine.kernel,
        machine.processor,
        machine.processors,
        machine.memory_mib,
        settings.image_gib,
        machine.host,
        machine.date,
        settings.files,
        settings.rounds
    );
    if let Some(options) = &settings.mount_options {
        let _ = write!(text, "; mounted with {options}");
    }
    if let Some(options) = &settings.floor_options {
        let _ = write!(text, "; floor with {options}");
    }
    text
}

fn state_line(state: &super::machine::State) -> String {
    format!(
        "State {}: pipe ping-pong {} us, load {:.2} at the begin",
        state.name,
        figure(state.ping_pong_us),
        state.load
    )
}

/// All there is to say, for a terminal.
pub(crate) fn text(record: &Record) -> String {
    let mut text = format!("{}\n", about(record));
    for state in &record.states {
        let _ = write!(text, "\n{}\n\n{}", state_line(state), time_table(record, &state.name).text());
        let _ = write!(text, "\n{}", byte_table(record, &state.name).text());
    }
    let _ = writeln!(text, "\n{}", HOW.replace(". ", ".\n"));
    for line in record.notes.iter().chain(&record.failures()) {
        let _ = writeln!(text, "NOTE {line}");
    }
    text
}

pub(crate) const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c1f23; --soft: #667; --line: #d5d8dd; --ground: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #9aa; --line: #3a3f46; --ground: #16181b } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 76rem;
       margin: 2rem auto; padding: 0 1rem }
h1, h2, h3 { line-height: 1.2 } p { color: var(--soft); max-width: 60rem }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0 }
th, td { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }
th:first-child, td:first-child { text-align: left }
.charts { display: flex; flex-wrap: wrap; gap: 1rem 2rem } figure { margin: 0 } figcaption { font-weight: 600 }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink) } svg .range { stroke: var(--ink); stroke-width: 1.5 }
";

/// One page that needs nothing else.
pub(crate) fn html(record: &Record) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\n\
         <title>Mounted file systems compared</title>\n<style>{STYLE}</style></head><body>\n\
         <h1>Mounted file systems compared</h1>\n<p>{}</p>\n<p>{}</p>\n",
        escaped(&about(record)),
        escaped(HOW)
    );
    for state in &record.states {
        let _ = writeln!(page, "<h2>{}</h2>", escaped(&state_line(state)));
        page += &time_table(record, &state.name).html();
        let rows = times(record, &state.name);
        for workload in &record.settings.workloads {
            let rows: Vec<&Row<'_>> = rows.iter().filter(|row| row.workload == workload).collect();
            if rows.is_empty() {
                continue;
            }
            let _ =
                writeln!(page, "<h3>{}</h3>\n<div class=charts>", escaped(&work::describe(workload, &record.settings)));
            for row in rows {
                page += &chart(record, row);
            }
            page += "</div>\n";
        }
        let _ = writeln!(page, "<h3>Memory, space and writes</h3>\n{}", byte_table(record, &state.name).html());
    }
    let notes = record.notes.iter().cloned().chain(record.failures());
    let notes: String = notes.map(|line| format!("<li>{}</li>\n", escaped(&line))).collect();
    if !notes.is_empty() {
        let _ = writeln!(page, "<h2>Notes</h2>\n<ul>\n{notes}</ul>");
    }
    page + "</body></html>\n"
}

/// What the bars of a chart are measured in.
const LEFT: f64 = 70.0;
const LONGEST: f64 = 220.0;
const RIGHT: f64 = 60.0;
const STEP: f64 = 22.0;

/// Bars of one phase, on a scale of their own: medians, with a line from the least to the greatest.
fn chart(record: &Record, row: &Row<'_>) -> String {
    let What::Time(phase) = row.what else { return String::new() };
    let values = || row.values.iter().zip(&record.settings.systems).enumerate();
    let most = values().filter_map(|(_, (v, _))| Some((*v)?.max)).fold(f64::MIN_POSITIVE, f64::max);
    let mut bars = String::new();
    for (i, (value, system)) in values() {
        let (top, x) = (i as f64 * STEP, |value: f64| LEFT + value / most * LONGEST);
        let _ = write!(bars, "<text x=\"0\" y=\"{:.0}\">{}</text>", top + 15.0, escaped(system));
        let Some(s) = value else {
            let _ = write!(bars, "<text x=\"{LEFT}\" y=\"{:.0}\">-</text>", top + 15.0);
            continue;
        };
        let (y, width, colour) = (top + 3.0, x(s.median) - LEFT, colour(system, i));
        let _ = write!(
            bars,
            "<rect x=\"{LEFT}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"16\" rx=\"2\" fill=\"{colour}\"/>"
        );
        if s.count > 1 {
            let (from, to, y) = (x(s.min), x(s.max), top + 11.0);
            let _ = write!(bars, "<path class=range d=\"M{from:.1} {y:.0}H{to:.1}\"/>");
        }
        let after = x(if s.count > 1 { s.max } else { s.median }) + 5.0;
        let _ = write!(bars, "<text x=\"{after:.1}\" y=\"{:.0}\">{}</text>", top + 15.0, figure(s.median));
    }
    let (width, height) = (LEFT + LONGEST + RIGHT, row.values.len() as f64 * STEP + 2.0);
    let unit = work::unit(row.workload);
    let phase = escaped(phase);
    format!(
        "<figure><figcaption>{phase}, {unit}</figcaption>\n\
         <svg width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
         aria-label=\"{phase}\">{bars}</svg></figure>\n"
    )
}

/// The house is green, the floor grey.
fn colour(system: &str, index: usize) -> &'static str {
    const OTHERS: [&str; 6] = ["#c2703d", "#4a78b5", "#8a5fa8", "#b39a2f", "#b0506a", "#3d9aa3"];
    match (system, index) {
        ("floor", _) => "#8b9199",
        (_, 0) => "#3a8f52",
        (_, i) => OTHERS[(i - 1) % OTHERS.len()],
    }
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::sample;
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let of = [0.0, 0.01234, 0.1, 1.0, 9.994, 9.996, 12.34, 99.94, 99.96, 1234.5].map(figure);
        assert_eq!(of, ["0.000", "0.012", "0.10", "1.00", "9.99", "10.0", "12.3", "99.9", "100", "1234"]);
    }

    #[test]
    fn the_table_of_times() {
        let record = sample();
        let expected = "                            yfs              ext4             floor  ext4/yfs  yfs/floor\n  \
                          W1 create + sync  1.50 (1.00..2.00)  3.50 (3.00..4.00)  1.00 (1.00..1.00)      2.33       1.50\n  \
                          W1 stat, cold     0.10 (0.10..0.10)  0.10               0.10 (0.10..0.10)      1.00       1.00\n";
        let squeezed =
            |text: &str| text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>();
        let text = time_table(&record, "H0").text();
        assert_eq!(squeezed(&text), squeezed(expected));
        let ends: Vec<usize> = text.lines().map(str::len).collect();
        assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }

    #[test]
    fn the_text_names_state_bytes_and_failures() {
        let text = text(&sample());
        for part in ["State H0: pipe ping-pong 41.5 us", "server's peak memory", "12.0", "NOTE xfs is left out"] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(text.contains("NOTE H0 round 2 W1 ext4: stat, cold"));
        assert!(!text.contains("written by stat"));
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let page = html(&sample());
        assert!(page.contains("<svg") && page.contains("ext4/yfs") && page.contains("&lt;no&gt; such &amp; such"));
        assert!(!page.contains("http") && !page.contains("<script") && !page.contains("url("));
        assert_eq!(page.matches("<figure>").count(), 2);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }
}
