//! The report: one HTML file that needs nothing else.

use crate::charts::{curves, distinct, maps, ratios, seeks, times};
use crate::list;
use crate::picture::Picture;
use crate::rows::{Row, divisor, is_compared};
use crate::sheets::{Sheet, sheets, statements, with_half};
use crate::svg::{NAMESPACE, escape, number};
use std::fmt::Write;

const STYLE: &str = "body{font:14px/1.45 system-ui,-apple-system,'Segoe UI','Helvetica Neue',Arial,sans-serif;\
    max-width:1100px;margin:2em auto;padding:0 1em;color:#24292f;background:#fff}\
    .scroll{overflow-x:auto;margin:1em 0}table{border-collapse:collapse;font-size:13px;white-space:nowrap;\
    font-variant-numeric:tabular-nums}th,td{padding:.2em .6em;border-bottom:1px solid #e4e8ec;text-align:right}\
    th{vertical-align:bottom}th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:#fff}\
    .paper{color:#57606a}.no{color:#b03a00;font-weight:600}\
    h2{margin-top:2.5em}h3{margin-top:2em}svg{display:block;margin:1em 0;max-width:100%;height:auto}";

/// Makes the report. `title` says what was run, `setting` on what, `notes` what people should know of the figures.
pub fn report(title: &str, setting: &str, rows: &[Row], pictures: &[Picture], notes: &[String]) -> String {
    let mut page = Page(String::new());
    let (title, setting) = (escape(title), escape(setting));
    page.put(format_args!("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>"));
    page.put(format_args!("<style>{STYLE}</style></head><body><h1>{setting}</h1>"));
    page.put(format_args!(
        "<p>Times are virtual: what the simulated disk and the stated charge of the processor take. "
    ));
    page.put(format_args!("\u{201c}Processor, real\u{201d} is what the run took of this machine's. A ratio is the "));
    page.put(format_args!(
        "reference's figure over the subject's. After \u{b1} stands how far the 95% interval reaches. A dash "
    ));
    page.put(format_args!("stands where one of two figures is too small for a ratio.</p>"));
    notes.iter().for_each(|note| page.put(format_args!("<p>{}</p>", escape(note))));
    for experiment in distinct(rows.iter().map(|r| &*r.experiment)) {
        page.put(format_args!("<h2>{}</h2>", escape(experiment)));
        page.experiment(experiment, rows, pictures);
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

    /// Pictures before figures; of each workload first the subjects of the paper on the same axes, then the others,
    /// each on its own.
    fn experiment(&mut self, name: &str, rows: &[Row], pictures: &[Picture]) {
        let experiment = list().iter().find(|e| e.name == name);
        if let Some(e) = experiment {
            self.put(format_args!("<p>{} {}.</p>", escape(&e.about(divisor(rows))), escape(e.source)));
            self.drawings([curves(e, rows), ratios(e, rows), times(e, rows)]);
            statements(e, rows).into_iter().chain(sheets(e, rows)).for_each(|sheet| self.sheet(&sheet));
        }
        let rows: Vec<&Row> = rows.iter().filter(|r| r.experiment == name).collect();
        self.table(&rows);
        let here: Vec<&Picture> = pictures.iter().filter(|p| p.experiment == name).collect();
        for case in distinct(here.iter().map(|p| &*p.case)) {
            let of_case = here.iter().copied().filter(|p| p.case == case);
            let is_compared = |p: &&Picture| experiment.is_some_and(|e| e.column(&p.subject).is_some());
            let (compared, others): (Vec<_>, Vec<_>) = of_case.partition(is_compared);
            if !case.is_empty() {
                self.put(format_args!("<h3>{}</h3>", escape(case)));
            }
            self.drawings([seeks(name, &compared)]);
            self.drawings(others.iter().map(|p| seeks(name, &[*p])));
            self.drawings([maps(name, &compared.into_iter().chain(others).collect::<Vec<_>>())]);
        }
    }

    /// The name of the format, which a file needs, would look like an address elsewhere.
    fn drawings(&mut self, all: impl IntoIterator<Item = Option<String>>) {
        all.into_iter().flatten().for_each(|svg| self.0 += &svg.replacen(NAMESPACE, "", 1));
    }

    fn sheet(&mut self, sheet: &Sheet) {
        self.put(format_args!("<h3>{}</h3><div class=\"scroll\"><table><tr>", escape(&sheet.title)));
        sheet.heads.iter().for_each(|head| self.put(format_args!("<th>{}</th>", escape(head))));
        for line in &sheet.lines {
            self.put(format_args!("</tr><tr>"));
            line.iter().for_each(|cell| self.put(format_args!("<td>{}</td>", escape(cell))));
        }
        self.put(format_args!("</tr></table></div>"));
    }

    fn table(&mut self, rows: &[&Row]) {
        let subjects = distinct(rows.iter().map(|r| &*r.subject));
        self.put(format_args!("<div class=\"scroll\"><table><tr><th></th>"));
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
                self.cells(row.copied(), rows);
            }
            self.put(format_args!("</tr>"));
        }
        self.put(format_args!("</table></div>"));
    }

    fn cells(&mut self, row: Option<&Row>, all: &[&Row]) {
        let Some(row) = row else { return self.put(format_args!("<td></td><td></td><td></td>")) };
        self.put(format_args!("<td>{}</td>", with_half(row.interval())));
        self.put(format_args!("<td class=\"paper\">{}</td>", row.paper.map(number).unwrap_or_default()));
        let none = if is_compared(row, all.iter().copied()) { "-" } else { "" };
        let ours = row.our_ratio.map_or(none.into(), number);
        let paper =
            row.paper_ratio.map(|r| format!(" <span class=\"paper\">({})</span>", number(r))).unwrap_or_default();
        let class = if row.holds == Some(false) { " class=\"no\"" } else { "" };
        self.put(format_args!("<td{class}>{ours}{paper}</td>"));
    }
}
