//! Tables and pictures for documents.

use crate::charts::{Drawing, distinct, drawings, find, label, parts, subjects};
use crate::conditions::Conditions;
use crate::experiment::{Case, Experiment, Part, Quantity};
use crate::interval::Verdict;
use crate::list;
use crate::picture::Picture;
use crate::rows::{FACTOR, Row, compare, divisor, holds, is_compared, is_same_side, merge};
use crate::sheets::{sheets, statements, with_half};
use crate::svg::{count, number};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Figures and how they were measured: what can be kept, and made into tables and pictures again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// How the figures of each experiment were measured.
    pub settings: Vec<Setting>,
    /// Subjects that were measured elsewhere.
    pub elsewhere: Vec<String>,
    /// The figures.
    pub rows: Vec<Row>,
}

/// How some experiments were measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Their names.
    pub experiments: Vec<String>,
    /// Disk, seed, runs and whatever else is the same for all subjects.
    pub words: String,
    /// The same for programs. In the file it stands here, and not with each row.
    pub conditions: Option<Conditions>,
}

impl Figures {
    /// Of these rows, all measured in this setting, without the real time of the processor, which is not the same
    /// twice.
    pub fn new(setting: &str, rows: &[Row]) -> Figures {
        let is_virtual = |row: &&Row| !row.metric.ends_with(Quantity::Processor.name().0);
        let rows: Vec<Row> = rows.iter().filter(is_virtual).cloned().collect();
        let experiments = distinct(rows.iter().map(|r| &*r.experiment)).into_iter().map(String::from).collect();
        let conditions = rows.first().and_then(|row| row.conditions.clone());
        let setting = Setting { experiments, words: setting.into(), conditions };
        let settings = if setting.experiments.is_empty() { Vec::new() } else { vec![setting] };
        Figures { settings, elsewhere: Vec::new(), rows }
    }

    /// With rows that were measured elsewhere; all are compared again.
    pub fn with(mut self, more: &[Row]) -> Figures {
        let subjects = self.elsewhere.iter().map(|s| &**s).chain(more.iter().map(|r| &*r.subject));
        self.elsewhere = distinct(subjects).into_iter().map(String::from).collect();
        self.renewed(more)
    }

    /// With rows that were measured anew, here; all are compared again.
    pub fn renewed(mut self, more: &[Row]) -> Figures {
        let more = Figures::new("", more).rows;
        merge(&mut self.rows, more);
        list().iter().for_each(|experiment| compare(experiment, &mut self.rows));
        self
    }

    /// With other experiments, which take the place of those of the same name.
    pub fn join(mut self, other: Figures) -> Figures {
        let is_new = |name: &str| other.rows.iter().any(|r| r.experiment == name);
        self.rows.retain(|r| !is_new(&r.experiment));
        self.settings.iter_mut().for_each(|s| s.experiments.retain(|name| !is_new(name)));
        self.rows.extend(other.rows);
        for setting in other.settings {
            let same = |s: &&mut Setting| s.words == setting.words && s.conditions == setting.conditions;
            match self.settings.iter_mut().find(same) {
                Some(here) => here.experiments.extend(setting.experiments),
                None => self.settings.push(setting),
            }
        }
        self.settings.retain(|s| !s.experiments.is_empty());
        let subjects = self.elsewhere.iter().chain(&other.elsewhere).map(|s| &**s);
        self.elsewhere = distinct(subjects).into_iter().map(String::from).collect();
        self
    }

    /// How an experiment was measured.
    pub fn setting(&self, experiment: &str) -> Option<&Setting> {
        self.settings.iter().find(|s| s.experiments.iter().any(|name| name == experiment))
    }

    /// As JSON with a line for each row.
    pub fn to_json(&self) -> serde_json::Result<String> {
        let bare = |row: &Row| serde_json::to_string(&Row { conditions: None, ..row.clone() });
        let rows: Vec<String> = self.rows.iter().map(bare).collect::<Result<_, _>>()?;
        let settings: Vec<String> = self.settings.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        let elsewhere = serde_json::to_string(&self.elsewhere)?;
        let (settings, rows) = (settings.join(",\n    "), rows.join(",\n    "));
        Ok(format!(
            "{{\n  \"settings\": [\n    {settings}\n  ],\n  \"elsewhere\": {elsewhere},\n  \
             \"rows\": [\n    {rows}\n  ]\n}}\n"
        ))
    }

    /// What [`Figures::to_json`] made.
    pub fn from_json(text: &str) -> serde_json::Result<Figures> {
        let mut figures: Figures = serde_json::from_str(text)?;
        let settings = std::mem::take(&mut figures.settings);
        for setting in &settings {
            let here = figures.rows.iter_mut().filter(|row| setting.experiments.contains(&row.experiment));
            here.for_each(|row| row.conditions = setting.conditions.clone());
        }
        figures.settings = settings;
        Ok(figures)
    }

    /// The experiments that there are figures of.
    fn experiments(&self) -> impl Iterator<Item = &'static Experiment> {
        list().iter().filter(|e| self.rows.iter().any(|r| r.experiment == e.name))
    }

    /// Those of them whose figures stand beside the paper's.
    fn tabular(&self) -> impl Iterator<Item = &'static Experiment> {
        self.experiments().filter(|e| e.charts().is_none())
    }

    /// Tables in Markdown by name. Of tables of a paper: `setting`, a sentence; `summary`, the times of the subjects of
    /// the paper; `others`, the times of all the other subjects; and by the name of an experiment all figures that the
    /// paper has of it. Of experiments with charts, by name: the setting, what the paper says, the figures.
    pub fn tables(&self) -> BTreeMap<String, String> {
        let of = |e: &'static Experiment| if e.charts().is_some() { self.charted(e) } else { self.details(e) };
        let mut tables: BTreeMap<String, String> = self.experiments().map(|e| (e.name.to_string(), of(e))).collect();
        if let Some(first) = self.tabular().next() {
            tables.insert("setting".into(), self.in_words(first));
            tables.insert("summary".into(), self.summary());
            tables.extend(self.totals().map(|text| ("totals".into(), text)));
            tables.extend(self.others().map(|text| ("others".into(), text)));
        }
        tables
    }

    /// Setting, statements and figures of an experiment with charts.
    fn charted(&self, experiment: &Experiment) -> String {
        let mut out = self.in_words(experiment);
        for sheet in statements(experiment, &self.rows).into_iter().chain(sheets(experiment, &self.rows)) {
            let mut table = Table::new(&sheet.heads);
            sheet.lines.iter().for_each(|line| table.line(line));
            out += &format!("\n{}:\n\n{}", sheet.title, table.0);
        }
        out
    }

    /// Pictures of all experiments, as far as there is something to show. Those of where the requests went need the
    /// pictures of a run.
    pub fn drawings(&self, pictures: &[Picture]) -> Vec<Drawing> {
        self.experiments().flat_map(|experiment| drawings(experiment, &self.rows, pictures)).collect()
    }

    /// All tables and pictures as one document, which shows files beside it.
    pub fn document(&self, drawings: &[Drawing]) -> String {
        let mut tables = self.tables();
        let mut take = |name: &str| tables.remove(name).unwrap_or_default();
        let mut out = "# Figures of the laboratory\n".to_string();
        if self.tabular().next().is_some() {
            out += &format!("\n{}\n{}\n{}\n{}", take("setting"), take("summary"), take("totals"), take("others"));
        }
        for experiment in self.experiments() {
            let about = experiment.about(divisor(&self.rows));
            out += &format!("\n## {}\n\n{about} {}.\n", experiment.name, experiment.source);
            for drawing in drawings.iter().filter(|d| d.name.starts_with(&format!("{}-", experiment.name))) {
                out += &format!("\n![{}]({}.svg)\n", drawing.title, drawing.name);
            }
            out += &format!("\n{}", take(experiment.name));
        }
        out
    }

    /// The setting of an experiment in a sentence.
    fn in_words(&self, experiment: &Experiment) -> String {
        let words = self.setting(experiment.name).map_or("", |s| &*s.words);
        let here =
            || self.rows.iter().filter(|r| r.experiment == experiment.name && self.elsewhere.contains(&r.subject));
        let elsewhere = distinct(here().map(|r| &*r.subject));
        let (all, names) = (self.setting(experiment.name).and_then(|s| s.conditions.as_ref()), elsewhere.join(", "));
        let is_once = all.is_some_and(|all| all.runs > 1) && here().all(|r| r.runs.is_empty());
        match &elsewhere[..] {
            [] => format!("{words}.\n"),
            _ if is_once => format!("{words}. Measured elsewhere, and in one run: {names}.\n"),
            _ => format!("{words}. Measured elsewhere: {names}.\n"),
        }
    }

    /// The times of the paper's subjects, a line for each part of an experiment.
    fn summary(&self) -> String {
        let Some(first) = self.tabular().next() else { return String::new() };
        let mut heads = vec!["experiment".to_string(), "seconds".into()];
        heads.extend(first.columns.iter().map(ToString::to_string));
        for subject in compared(first) {
            heads.extend([format!("{} / {subject}, paper", first.reference), "ours".into(), "holds".into()]);
        }
        let mut table = Table::new(&heads);
        for Timed { experiment, case, part, quantity, label } in self.timed() {
            let of = |subject: &str| find(experiment, &self.rows, subject, (case, part, quantity));
            let mut cells = vec![experiment.name.to_string(), label];
            cells.extend(experiment.columns.iter().map(|subject| of(subject).map(figure).unwrap_or_default()));
            for subject in compared(experiment) {
                let row = of(subject);
                cells.extend([ratio(row.and_then(|r| r.paper_ratio)), self.our_ratio(row), held(row)]);
            }
            table.line(&cells);
        }
        table.0
    }

    /// What of the paper is repeated on each host, by what is measured: of its ratios those on the same side of 1, and
    /// within a factor of 1.5; of its figures themselves those within that factor. Of divided runs there are none.
    fn totals(&self) -> Option<String> {
        self.rows.iter().find(|row| row.paper.is_some())?;
        let heads = ["host", "figure", "ratios", "same side of 1", "and within 1.5", "figures", "within 1.5"];
        let mut table = Table::new(&heads.map(String::from));
        for machine in distinct(self.tabular().map(|e| e.host.machine)) {
            let here: Vec<&str> = self.tabular().filter(|e| e.host.machine == machine).map(|e| e.name).collect();
            let rows: Vec<&Row> = self.rows.iter().filter(|row| here.contains(&&*row.experiment)).collect();
            for (what, quantities) in COUNTED {
                let of = || rows.iter().filter(|row| row.is_of(quantities));
                let ratios: Vec<_> = of().filter_map(|row| row.paper_ratio.zip(row.our_ratio)).collect();
                // Of the log the paper has a bound, and no figure.
                let figures = of().filter(|row| !row.is_of(&[Quantity::LogPerChange]));
                let figures: Vec<f64> = figures.filter_map(|row| row.paper.map(|paper| row.ours / paper)).collect();
                let counts = [
                    ratios.len(),
                    ratios.iter().filter(|(paper, ours)| is_same_side(*paper, *ours)).count(),
                    ratios.iter().filter(|(paper, ours)| holds(*paper, *ours)).count(),
                    figures.len(),
                    figures.iter().filter(|part| (1.0 / FACTOR..=FACTOR).contains(*part)).count(),
                ];
                let words = [machine, what].map(String::from);
                table.line(&words.into_iter().chain(counts.map(|n| n.to_string())).collect::<Vec<_>>());
            }
        }
        Some(table.0)
    }

    /// The times of parts whose time the paper gives, and those after them if counts were divided: then all may have
    /// stayed in memory before.
    fn timed(&self) -> impl Iterator<Item = Timed> {
        let has_time = |part: &Part| part.paper.iter().any(|p| p.0 == Quantity::Elapsed);
        let all = self.tabular().flat_map(|e| parts(e).map(move |(case, part)| (e, case, part)));
        all.flat_map(move |(experiment, case, part)| {
            let label = label(case, part, &self.rows);
            let words = [&*label, Quantity::ElapsedAfter.name().0].into_iter().filter(|w| !w.is_empty());
            let after = words.collect::<Vec<_>>().join(", ");
            let has_after = divisor(&self.rows) > 1 && !part.after.is_empty();
            let timed = |quantity, label| Timed { experiment, case, part, quantity, label };
            let first = has_time(part).then(|| timed(Quantity::Elapsed, label));
            first.into_iter().chain(has_after.then(|| timed(Quantity::ElapsedAfter, after)))
        })
    }

    /// A dash where there is no ratio because a figure is too small for one.
    fn our_ratio(&self, row: Option<&Row>) -> String {
        let none = |row| if is_compared(row, self.rows.iter()) { "-".into() } else { String::new() };
        row.map(|row| row.ratio().map_or_else(|| none(row), with_half)).unwrap_or_default()
    }

    /// Our ratio, and the paper's in brackets.
    fn ratios(&self, row: Option<&Row>) -> String {
        let paper = row.and_then(|r| r.paper_ratio).map(|r| format!(" ({})", number(r))).unwrap_or_default();
        self.our_ratio(row) + &paper
    }

    /// The times of the reference and of the subjects that the paper does not have, with the ratio after them.
    fn others(&self) -> Option<String> {
        let all = self.tabular().flat_map(|e| subjects(e, &self.rows).into_iter().map(move |s| (e, s)));
        let others = distinct(all.filter(|(e, subject)| e.column(subject).is_none()).map(|(_, subject)| subject));
        if others.is_empty() {
            return None;
        }
        let reference = self.tabular().next()?.reference;
        let heads = ["experiment", "seconds", reference].into_iter().chain(others.iter().copied());
        let mut table = Table::new(&heads.map(String::from).collect::<Vec<_>>());
        for Timed { experiment, case, part, quantity, label } in self.timed() {
            let mut cells = vec![experiment.name.to_string(), label];
            for subject in [&reference].into_iter().chain(&others) {
                let row = find(experiment, &self.rows, subject, (case, part, quantity));
                let ratio = row.and_then(|r| r.our_ratio).map(|r| format!(" ({})", number(r))).unwrap_or_default();
                cells.push(row.map(|row| ours(row) + &ratio).unwrap_or_default());
            }
            if cells.iter().skip(3).any(|cell| !cell.is_empty()) {
                table.line(&cells);
            }
        }
        Some(table.0)
    }

    /// Everything that the paper says of an experiment, and the log.
    fn details(&self, experiment: &Experiment) -> String {
        let mut heads = vec![String::new(), experiment.reference.into()];
        compared(experiment).for_each(|subject| heads.extend([subject.into(), "ratio".into(), "holds".into()]));
        let mut table = Table::new(&heads);
        for (case, part) in parts(experiment) {
            let has_names = part.paper.iter().any(|p| p.0 == Quantity::Elapsed);
            let log = has_names.then_some(Quantity::LogPerChange);
            for quantity in part.paper.iter().map(|p| p.0).chain(log) {
                let of = |subject: &str| find(experiment, &self.rows, subject, (case, part, quantity));
                let (name, unit) = quantity.name();
                let words = [&label(case, part, &self.rows), name, unit];
                let name = words.into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join(", ");
                let mut cells = vec![name, of(experiment.reference).map(figure).unwrap_or_default()];
                let is_measured = experiment.columns.iter().any(|subject| of(subject).is_some());
                for row in compared(experiment).map(of) {
                    cells.extend([row.map(figure).unwrap_or_default(), self.ratios(row), held(row)]);
                }
                if is_measured {
                    table.line(&cells);
                }
            }
        }
        let held = self.rows.iter().filter(|r| r.experiment == experiment.name).map(Row::verdict);
        let words = |e: &Experiment| self.setting(e.name).map(|s| &*s.words);
        let is_usual = self.tabular().next().is_some_and(|first| words(first) == words(experiment));
        let setting = if is_usual { String::new() } else { format!("{}\n", self.in_words(experiment)) };
        setting + &table.0 + &Verdict::count(held).map_or(String::new(), |count| format!("\n{count}.\n"))
    }
}

/// What ratios are counted apart; those without a quantity are all.
const COUNTED: [(&str, &[Quantity]); 4] = [
    ("times and rates", &[Quantity::Elapsed, Quantity::RemovalRate]),
    ("requests", &[Quantity::Requests, Quantity::RequestsAfter]),
    ("service and queueing times", &[Quantity::Service, Quantity::Queue]),
    ("all", &[]),
];

/// A line of a table of times.
struct Timed {
    experiment: &'static Experiment,
    case: &'static Case,
    part: &'static Part,
    quantity: Quantity,
    label: String,
}

/// The subjects of the paper that are compared with the reference.
fn compared(experiment: &Experiment) -> impl Iterator<Item = &'static str> {
    let reference = experiment.reference;
    experiment.columns.iter().copied().filter(move |subject| *subject != reference)
}

fn ours(row: &Row) -> String {
    let of = |n: f64| if row.unit.is_empty() && n.fract() == 0.0 { count(n) } else { number(n) };
    let half = row.interval().half;
    let half = if half > 0.0 { format!(" \u{b1} {}", number(half)) } else { String::new() };
    of(row.ours) + &half
}

/// Ours, and the paper's in brackets.
fn figure(row: &Row) -> String {
    let paper = |n: f64| if row.unit.is_empty() { count(n) } else { number(n) };
    ours(row) + &row.paper.map(|n| format!(" ({})", paper(n))).unwrap_or_default()
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map(number).unwrap_or_default()
}

fn held(row: Option<&Row>) -> String {
    row.map_or("", |row| row.verdict().in_table()).into()
}

/// Heads of columns with words, as the first one always is.
const WORDS: [&str; 4] = ["seconds", "figure", "holds if", "why"];

/// In Markdown; figures stand to the right.
struct Table(String);

impl Table {
    fn new(heads: &[String]) -> Table {
        let mut table = Table(String::new());
        table.line(heads);
        let is_left = |(at, head): (usize, &String)| at == 0 || WORDS.contains(&&**head);
        let columns = heads.iter().enumerate().map(|head| if is_left(head) { "---|" } else { "---:|" });
        table.0 += &format!("|{}\n", columns.collect::<String>());
        table
    }

    fn line(&mut self, cells: &[String]) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "| {} |", cells.join(" | "));
    }
}
