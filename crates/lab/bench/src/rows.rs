//! Figures beside those of a paper.

use crate::conditions::Conditions;
use crate::experiment::{Case, Experiment, FOUND, NEXT, Part, Quantity, Rank};
use crate::ground::Event;
use crate::interval::{Interval, Verdict, deviation};
use crate::measure::{More, Sample, Settings, Subject, sample};
use crate::picture::Picture;
use crate::record::{Kept, Traced};
use arbor_base::device::Kind;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// One figure. Rows that were measured elsewhere, by real file systems say, can be added before [`compare`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the experiment.
    pub experiment: String,
    /// What was measured.
    pub subject: String,
    /// Workload, part of it and quantity.
    pub metric: String,
    /// Unit, empty for counts.
    pub unit: String,
    /// The paper's figure for this subject.
    pub paper: Option<f64>,
    /// Our figure, the mean of all runs.
    pub ours: f64,
    /// Standard deviation of the runs, 0 for a single one.
    pub spread: f64,
    /// The figure of each run, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<f64>,
    /// The paper's figure of the reference over that of this subject.
    pub paper_ratio: Option<f64>,
    /// Our figure of the reference over that of this subject.
    pub our_ratio: Option<f64>,
    /// How far its 95% interval reaches to each side, 0 for a single run: of the ratios of runs of the same seed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ratio_half: f64,
    /// Whether both ratios say the same, see [`holds`], everywhere in the interval of ours; none if its ends differ. Of the
    /// log, where the paper's figure is a bound, whether ours is below.
    pub holds: Option<bool>,
    /// Engine and options of a subject that is not known by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// Whether the settings asked for it, and not the experiment.
    #[serde(skip)]
    pub is_asked: bool,
    /// The settings it was measured with; rows of older versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Conditions>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // what serde calls
fn is_zero(n: &f64) -> bool {
    *n == 0.0
}

impl Row {
    /// Our figure with its 95% interval.
    pub fn interval(&self) -> Interval {
        let runs = self.conditions.as_ref().map_or(1, |c| c.runs) as usize;
        Interval::with(self.ours, self.spread, self.runs.len().max(runs))
    }

    /// Our ratio with its interval.
    pub fn ratio(&self) -> Option<Interval> {
        self.our_ratio.map(|mean| Interval { mean, half: self.ratio_half })
    }

    /// Whether it holds, in a word; it is judged if the paper and we have a ratio.
    pub fn verdict(&self) -> Verdict {
        Verdict::new(self.holds, self.paper_ratio.is_some() && self.our_ratio.is_some())
    }

    /// What counts of files and operations were divided by.
    pub fn divisor(&self) -> u32 {
        self.conditions.as_ref().map_or(1, |c| c.divisor)
    }

    /// Whether the workload is the paper's: one program, with undivided counts.
    pub fn is_of_paper(&self) -> bool {
        self.conditions.as_ref().is_none_or(|c| (c.divisor, c.lanes) == (1, 1))
    }

    /// Whether it belongs to the figures that are looked at first: the times. Of a divided run that also is what was
    /// left to be done after it, since all may have stayed in memory.
    pub fn is_headline(&self) -> bool {
        self.is_of(&[Quantity::Elapsed]) || (self.divisor() > 1 && self.is_of(&[Quantity::ElapsedAfter]))
    }

    /// Whether it is a figure of one of these quantities; of any, if there are none.
    pub fn is_of(&self, quantities: &[Quantity]) -> bool {
        let is = |quantity: &Quantity| {
            let before = self.metric.strip_suffix(quantity.name().0);
            before.is_some_and(|before| before.is_empty() || before.ends_with(", "))
        };
        quantities.is_empty() || quantities.iter().any(is)
    }
}

/// What counts were divided by in the run that these rows are of.
pub(crate) fn divisor(rows: &[Row]) -> u32 {
    rows.first().map_or(1, Row::divisor)
}

/// Whether there is a figure of the reference for the same, so that a ratio which is not there could not be given.
pub fn is_compared<'a>(row: &Row, mut rows: impl Iterator<Item = &'a Row>) -> bool {
    let Some(experiment) = crate::list().iter().find(|e| e.name == row.experiment) else { return false };
    let is_reference =
        |r: &Row| r.subject == experiment.reference && r.experiment == row.experiment && r.metric == row.metric;
    row.subject != experiment.reference && rows.any(is_reference)
}

/// What runs brought.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The figures.
    pub rows: Vec<Row>,
    /// What there is to see, of the first run of each workload on each subject.
    pub pictures: Vec<Picture>,
    /// Figures that there are none of, and why.
    pub notes: Vec<String>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Name of the experiment.
    pub experiment: &'a str,
    /// Name of the subject.
    pub subject: &'a str,
    /// Name of the workload, empty if there is one only.
    pub case: &'a str,
    /// Number of the run, from 1 on.
    pub run: u32,
    /// The phase that it is in, empty before the first.
    pub phase: &'a str,
    /// So much is done.
    pub done: u64,
    /// Of so much.
    pub total: u64,
}

/// Quantities that are always given, besides those of the paper.
const ALWAYS: [Quantity; 31] = [
    Quantity::Elapsed,
    Quantity::RemovalRate,
    Quantity::FileRate,
    Quantity::Throughput,
    Quantity::TransactionRate,
    Quantity::WriteCost,
    Quantity::Moved,
    Quantity::Requests,
    Quantity::Reads,
    Quantity::Writes,
    Quantity::Written,
    Quantity::LogWritten,
    Quantity::FlashWritten,
    Quantity::RequestsAfter,
    Quantity::ElapsedAfter,
    Quantity::Service,
    Quantity::Queue,
    Quantity::Used,
    Quantity::Compared,
    Quantity::Busy,
    Quantity::Seek,
    Quantity::Rotation,
    Quantity::Transfer,
    Quantity::Kind(Kind::Log),
    Quantity::Kind(Kind::Inode),
    Quantity::Kind(Kind::Dir),
    Quantity::Kind(Kind::Data),
    Quantity::Kind(Kind::Other),
    Quantity::Transferred,
    Quantity::LogPerChange,
    Quantity::Processor,
];

/// Runs an experiment on all subjects.
pub fn run(
    experiment: &Experiment,
    subjects: &[Subject<'_>],
    settings: &Settings,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Results, String> {
    let mut results = Results::default();
    // Of many workloads nobody wants to see the disk.
    let with_pictures = experiment.charts().is_none() || experiment.cases.len() == 1;
    for subject in subjects {
        let goes_on = experiment.series.contains(&&*subject.name);
        let wanted = experiment.cases.iter().filter(|case| settings.has_case(case.name));
        let all: Vec<Case> = wanted.map(|case| Case { load: case.load.on(&subject.name), ..*case }).collect();
        for cases in all.chunk_by(|_, next| goes_on && !next.load.begins_anew()) {
            let mut samples: Vec<Vec<Sample>> = cases.iter().map(|_| Vec::new()).collect();
            let titles: Vec<String> = cases.iter().map(|case| case.title(settings.divisor)).collect();
            let kept = |run: u32, seed: u64| -> Result<Kept, String> {
                if run > 1 {
                    return Ok(Kept::default());
                }
                let cases = cases.iter().map(|case| case.name).filter(|name| !name.is_empty()).collect();
                let of = Traced { experiment: experiment.name, subject: &subject.name, cases };
                let kept = Kept::traced(&of, settings, seed).map_err(|e| format!("{}: trace: {e}", subject.name))?;
                Ok(Kept { picture: with_pictures, ..kept })
            };
            for run in 1..=settings.runs.max(1) {
                let (mut phase, mut at) = ("", 0);
                let mut tell = |event: Event| match event {
                    Event::Phase(name) => {
                        phase = name;
                        at += usize::from(name == NEXT);
                    }
                    Event::Progress(done, total) => {
                        let case = titles.get(at).map_or("", String::as_str);
                        let (experiment, subject) = (experiment.name, &*subject.name);
                        progress(&Progress { experiment, subject, case, run, phase, done, total });
                    }
                };
                let seed = settings.seed.wrapping_add(u64::from(run) - 1);
                let measured = sample(subject, cases, settings, seed, kept(run, seed)?, &mut tell)?;
                for (all, mut sample) in samples.iter_mut().zip(measured) {
                    let picture = sample.picture.take();
                    results.pictures.extend(picture.map(|p| Picture { experiment: experiment.name, ..p }));
                    all.push(sample);
                }
            }
            for (case, samples) in cases.iter().zip(&samples) {
                results.rows.extend(rows(experiment, subject, case, settings, samples));
                results.notes.extend(too_short(experiment, subject, case, settings, samples));
                results.notes.extend(unknown_latency(experiment, subject, case, settings, samples));
            }
        }
    }
    compare(experiment, &mut results.rows);
    Ok(results)
}

fn rows(
    experiment: &Experiment,
    subject: &Subject<'_>,
    case: &Case,
    settings: &Settings,
    samples: &[Sample],
) -> Vec<Row> {
    let column = experiment.column(&subject.name).filter(|_| settings.divisor == 1 && settings.lanes <= 1);
    let mut rows = Vec::new();
    for part in case.parts {
        for (quantity, is_asked) in quantities(experiment, (case, part), settings, samples) {
            let values: Vec<f64> = samples.iter().filter_map(|s| s.quantity(part, quantity)).collect();
            let given = part.paper.iter().find(|p| p.0 == quantity);
            let Some(Interval { mean: ours, .. }) = Interval::of(&values) else { continue };
            let (spread, runs) = (deviation(&values), values.iter().copied().map(seven_digits).collect::<Vec<_>>());
            let bound = log_bound(experiment, subject, quantity).filter(|_| column.is_some());
            rows.push(Row {
                experiment: experiment.name.into(),
                subject: subject.name.clone(),
                metric: metric(case, part, quantity, settings.divisor),
                unit: quantity.name().1.into(),
                paper: given.zip(column).map(|(given, column)| given.1[column]).or(bound),
                ours,
                spread,
                runs: if runs.len() > 1 { runs } else { Vec::new() },
                paper_ratio: None,
                our_ratio: None,
                ratio_half: 0.0,
                holds: bound.map(|bound| ours < bound),
                setup: subject.setup.clone(),
                is_asked,
                conditions: Some(Conditions::new(settings)),
            });
        }
    }
    rows
}

/// What is given of a part: what belongs to it, also if only a chart or the paper has it, and what only the settings ask
/// for.
fn quantities(
    experiment: &Experiment,
    (case, part): (&Case, &Part),
    settings: &Settings,
    samples: &[Sample],
) -> Vec<(Quantity, bool)> {
    let classes = (0..FOUND.len()).map(Quantity::Found);
    let charts = experiment.charts().map_or(&[][..], |charts| charts.charts);
    let shown = charts.iter().map(|chart| chart.quantity).chain(part.paper.iter().map(|p| p.0));
    let usual = ALWAYS.into_iter().chain(classes).chain(shown).filter(|q| belongs(experiment, part, *q));
    let counters = || samples.iter().take(1).flat_map(|sample| sample.counters(part)).map(Quantity::Counter);
    // Where two parts have one name, their rows would too.
    let is_first = case.parts.iter().find(|p| p.name == part.name).is_some_and(|first| std::ptr::eq(first, part));
    let asked = settings.more.iter().filter(|_| is_first).flat_map(|more| match more {
        More::Latency => Rank::ALL.map(Quantity::Latency).into(),
        More::Amplification => vec![Quantity::WriteAmplification, Quantity::FlashWritten],
        More::Counters => counters().collect(),
    });
    let mut all: Vec<(Quantity, bool)> = Vec::new();
    for (quantity, is_asked) in usual.map(|q| (q, false)).chain(asked.map(|q| (q, true))) {
        match all.iter_mut().find(|(there, _)| *there == quantity) {
            Some((_, there)) => *there |= is_asked,
            None => all.push((quantity, is_asked)),
        }
    }
    all
}

/// Rates that could not be measured, since no virtual time passed.
fn too_short(
    experiment: &Experiment,
    subject: &Subject<'_>,
    case: &Case,
    settings: &Settings,
    samples: &[Sample],
) -> Vec<String> {
    let is_missing =
        |part: &Part, rate| belongs(experiment, part, rate) && samples.iter().all(|s| s.quantity(part, rate).is_none());
    let rates = case.parts.iter().flat_map(|part| RATES.map(|rate| (part, rate)));
    let missing = rates.filter(|(part, rate)| is_missing(part, *rate));
    let words = |part, rate| metric(case, part, rate, settings.divisor);
    let note =
        |(part, rate)| format!("{}, {}: {}: too short to measure", experiment.name, subject.name, words(part, rate));
    missing.map(note).collect()
}

/// That nobody looked how long calls took, although it was asked for.
fn unknown_latency(
    experiment: &Experiment,
    subject: &Subject<'_>,
    case: &Case,
    settings: &Settings,
    samples: &[Sample],
) -> Option<String> {
    let has_latency = |part: &Part| samples.iter().any(|s| s.quantity(part, Quantity::Latency(Rank::Median)).is_some());
    let is_missing = settings.more.contains(&More::Latency) && !case.parts.iter().any(has_latency);
    is_missing.then(|| format!("{}, {}: latency of calls: not known", experiment.name, subject.name))
}

/// What the paper says a figure is below.
fn log_bound(experiment: &Experiment, subject: &Subject<'_>, quantity: Quantity) -> Option<f64> {
    let (subjects, bytes) = experiment.log_bound;
    (quantity == Quantity::LogPerChange && subjects.contains(&&*subject.name)).then_some(bytes)
}

/// Quantities for a second.
const RATES: [Quantity; 3] = [Quantity::RemovalRate, Quantity::FileRate, Quantity::Throughput];
/// Quantities that are given only where a chart shows them.
const ASKED: [Quantity; 11] = [
    Quantity::WriteAmplification,
    Quantity::TransactionRate,
    Quantity::WriteCost,
    Quantity::Moved,
    Quantity::Used,
    Quantity::Compared,
    Quantity::Reads,
    Quantity::Writes,
    Quantity::Written,
    Quantity::LogWritten,
    Quantity::FlashWritten,
];

/// Whether it is one of these, or one of many of a sort.
fn is_asked(quantity: Quantity) -> bool {
    let is_of_many = matches!(quantity, Quantity::Found(_) | Quantity::Latency(_) | Quantity::Counter(_));
    ASKED.contains(&quantity) || is_of_many
}

/// Of many workloads only this is given besides what the charts show.
const FEW: [Quantity; 4] = [Quantity::Elapsed, Quantity::Requests, Quantity::Busy, Quantity::Processor];

/// Whether a quantity is given for a part: what its charts show; the rate of removal where the paper has it, and there
/// nothing else.
fn belongs(experiment: &Experiment, part: &Part, quantity: Quantity) -> bool {
    if let Some(charts) = experiment.charts() {
        let of_part = || charts.charts.iter().filter(|c| c.parts.contains(&part.name));
        let is_shown = of_part().any(|c| c.shows(part.name, quantity));
        let is_in_classes = of_part().next().is_some() && of_part().all(|c| c.classes.is_some());
        if is_in_classes || is_asked(quantity) {
            return is_shown;
        }
        let is_usual = if experiment.cases.len() > 1 { FEW.contains(&quantity) } else { !RATES.contains(&quantity) };
        let is_after = matches!(quantity, Quantity::RequestsAfter | Quantity::ElapsedAfter);
        return is_shown || (is_usual && (!is_after || !part.after.is_empty()));
    }
    let has_removal = part.paper.iter().any(|p| p.0 == Quantity::RemovalRate);
    match quantity {
        Quantity::RemovalRate => has_removal,
        Quantity::FileRate | Quantity::Throughput => false,
        _ if is_asked(quantity) => part.paper.iter().any(|p| p.0 == quantity),
        Quantity::RequestsAfter | Quantity::ElapsedAfter => !part.after.is_empty(),
        _ => !has_removal,
    }
}

/// How the quantity of a part is called in a run whose counts are divided.
pub(crate) fn metric(case: &Case, part: &Part, quantity: Quantity, divisor: u32) -> String {
    let words = [&*case.title(divisor), part.name, quantity.name().0];
    words.iter().filter(|w| !w.is_empty()).copied().collect::<Vec<_>>().join(", ")
}

/// Adds rows that were measured elsewhere or anew, in the place of those of the same experiment, subject and metric.
pub fn merge(rows: &mut Vec<Row>, more: Vec<Row>) {
    let name = |r: &Row| (r.experiment.clone(), r.subject.clone(), r.metric.clone());
    let mut places: FxHashMap<_, usize> = rows.iter().enumerate().map(|(at, row)| (name(row), at)).collect();
    for row in more {
        let at = *places.entry(name(&row)).or_insert(rows.len());
        match rows.get_mut(at) {
            Some(place) => *place = row,
            None => rows.push(row),
        }
    }
}

/// Fills in the ratios: figures of the reference over those of each other subject.
pub fn compare(experiment: &Experiment, rows: &mut [Row]) {
    let of_reference = |r: &&Row| r.experiment == experiment.name && r.subject == experiment.reference;
    let reference: FxHashMap<String, Row> =
        rows.iter().filter(of_reference).map(|r| (r.metric.clone(), r.clone())).collect();
    for row in rows.iter_mut().filter(|r| r.experiment == experiment.name && r.subject != experiment.reference) {
        let ratio = |a: f64, b: f64| (!is_negligible(a) && !is_negligible(b)).then_some(a / b);
        row.paper_ratio = row.paper.zip(paper_reference(experiment, &row.metric)).and_then(|(own, r)| ratio(r, own));
        let other = reference.get(&row.metric);
        row.our_ratio = other.and_then(|r| ratio(r.ours, row.ours));
        let of_runs = other.filter(|r| r.runs.len() == row.runs.len()).map_or(&[][..], |r| &r.runs);
        let ratios: Option<Vec<f64>> = of_runs.iter().zip(&row.runs).map(|(r, own)| ratio(*r, *own)).collect();
        row.ratio_half = ratios.and_then(|all| Interval::of(&all)).map_or(0.0, |of| of.half);
        row.holds = match row.paper_ratio.zip(row.ratio()) {
            Some((paper, ours)) => ours.is_in(accepted(paper)),
            None => row.holds,
        };
    }
}

/// Whether a figure is shown as 0.00: a ratio with it would say nothing.
pub fn is_negligible(figure: f64) -> bool {
    figure.abs() < 0.005
}

/// What the paper says of the reference.
fn paper_reference(experiment: &Experiment, wanted: &str) -> Option<f64> {
    let column = experiment.column(experiment.reference)?;
    let parts = experiment.cases.iter().flat_map(|case| case.parts.iter().map(move |part| (case, part)));
    let mut figures =
        parts.flat_map(|(case, part)| part.paper.iter().map(move |(q, f)| (metric(case, part, *q, 1), f)));
    figures.find(|(name, _)| name == wanted).map(|(_, figures)| figures[column])
}

/// Whether our ratio says what the paper's says: it is on the same side of 1, and within a factor of 1.5 of it. A
/// ratio within 3% of 1, the usual deviation of the paper's figures, is on both sides.
pub fn holds(paper: f64, ours: f64) -> bool {
    let (least, most) = accepted(paper);
    (least..=most).contains(&ours)
}

/// Whether our ratio is on the same side of 1 as the paper's, however far it is from it.
pub fn is_same_side(paper: f64, ours: f64) -> bool {
    let near = |ratio: f64| (ratio - 1.0).abs() <= NEAR;
    near(paper) || near(ours) || (paper > 1.0) == (ours > 1.0)
}

/// The least and the greatest of our ratios that [`holds`].
fn accepted(paper: f64) -> (f64, f64) {
    let (least, most) = (paper / FACTOR, paper * FACTOR);
    match paper {
        _ if (paper - 1.0).abs() <= NEAR => (least, most),
        _ if paper > 1.0 => (least.max(1.0 - NEAR), most),
        _ => (least, most.min(1.0 + NEAR)),
    }
}

/// So far from 1 a ratio is on both sides of it, since the paper's figures deviate so much.
const NEAR: f64 = 0.03;
/// So far our ratio may be from the paper's.
pub(crate) const FACTOR: f64 = 1.5;

/// What is kept of the figure of a run.
fn seven_digits(figure: f64) -> f64 {
    format!("{figure:.6e}").parse().unwrap_or(figure)
}

/// Refuses rows that were measured with other settings than `here`, but for fewer runs, and fewer workloads where each begins
/// anew; the error names the row and the setting.
pub fn comparable(rows: &[Row], here: &Conditions) -> Result<(), String> {
    for row in rows {
        let name = || format!("row {}, {}, {:?}", row.experiment, row.subject, row.metric);
        let Some(there) = &row.conditions else {
            return Err(format!("{}: it does not say on which disk and with which settings it was measured", name()));
        };
        let goes_on = crate::list().iter().any(|e| e.name == row.experiment && e.series.contains(&&*row.subject));
        if let Some(difference) = there.hindrance(here, !goes_on) {
            return Err(format!("{}: measured with other settings: {difference} as here", name()));
        }
    }
    Ok(())
}

/// The rows as JSON, an array of objects, a line each.
pub fn to_json(rows: &[Row]) -> serde_json::Result<String> {
    let lines: Vec<String> = rows.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    Ok(if lines.is_empty() { "[]".into() } else { format!("[\n  {}\n]", lines.join(",\n  ")) })
}

/// The rows that [`to_json`] made; the error says what is expected.
pub fn from_json(text: &str) -> Result<Vec<Row>, String> {
    let expected = "rows of the laboratory are expected, a JSON array as `arbor lab run --json` writes it";
    serde_json::from_str(text).map_err(|e| format!("{expected}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::ALL;

    fn plain() -> Row {
        Row {
            experiment: "e".into(),
            subject: "s".into(),
            metric: "m".into(),
            unit: "s".into(),
            paper: None,
            ours: 1.0,
            spread: 0.0,
            runs: Vec::new(),
            paper_ratio: None,
            our_ratio: None,
            ratio_half: 0.0,
            holds: None,
            setup: None,
            is_asked: false,
            conditions: None,
        }
    }

    fn conditions(disk: &str) -> Conditions {
        Conditions::new(&Settings::new(arbor_simdisk::Model::named(disk).unwrap()))
    }

    #[test]
    fn rows_of_other_settings_are_refused() {
        let row = |disk: &str| Row { conditions: Some(conditions(disk)), ..plain() };
        let here = conditions("870evo");
        assert_eq!(comparable(&[row("870evo"), row("870evo")], &here), Ok(()));
        let wanted = "row e, s, \"m\": measured with other settings: disk is \"st39140\", not \"870evo\" as here";
        assert_eq!(comparable(&[row("870evo"), row("st39140")], &here).unwrap_err(), wanted);
        let e = comparable(&[plain()], &here).unwrap_err();
        assert!(e.starts_with("row e, s, \"m\": it does not say"), "{e}");
    }

    #[test]
    fn what_is_no_list_of_rows_is_refused() {
        for text in ["", "{}", "[{}]", "[1]", "[{\"experiment\": \"e\"}]", "\u{0}"] {
            let e = from_json(text).unwrap_err();
            assert!(e.starts_with("rows of the laboratory are expected"), "{e}");
        }
        assert_eq!(from_json(&to_json(&[]).unwrap()), Ok(Vec::new()));
        let rows = [Row { conditions: Some(conditions("980pro")), ..plain() }, plain()];
        assert_eq!(from_json(&to_json(&rows).unwrap()).unwrap(), rows);
    }

    #[test]
    fn rows_of_the_same_name_keep_their_place() {
        let row = |subject: &str, ours| Row { subject: subject.into(), ours, ..plain() };
        let mut rows = vec![row("a", 1.0), row("b", 2.0), row("c", 3.0)];
        merge(&mut rows, vec![row("d", 6.0), row("b", 5.0)]);
        assert_eq!(rows, [row("a", 1.0), row("b", 5.0), row("c", 3.0), row("d", 6.0)]);
    }

    #[test]
    fn sides_and_factors() {
        assert!(holds(1.27, 1.1) && holds(1.27, 1.9) && !holds(1.27, 0.9) && !holds(1.27, 2.0));
        assert!(holds(0.996, 1.2) && holds(1.2, 0.99) && !holds(0.8, 1.1));
    }

    #[test]
    fn ratios_are_those_of_the_issue() {
        let row = |e: &Experiment, subject: &str, metric: &str| {
            let part = e.cases.iter().flat_map(|c| c.parts.iter().map(move |p| (c, p)));
            let mut all = part.flat_map(|(c, p)| p.paper.iter().map(move |f| (super::metric(c, p, f.0, 1), f.1)));
            let paper = all.find(|f| f.0 == metric).map(|f| f.1[e.column(subject).unwrap()]);
            let (subject, metric, experiment) = (subject.to_string(), metric.to_string(), e.name.to_string());
            Row { experiment, subject, metric, paper, ..plain() }
        };
        let wanted = [
            (0, "yFS-inline", "copy, elapsed time", 1.25),
            (1, "yFS-inline", "50,000 files, elapsed time", 1.27),
            (1, "yFS-inline", "150,000 files, elapsed time", 1.44),
            (1, "yFS-external", "50,000 files, elapsed time", 1.49),
            (1, "yFS-external", "150,000 files, elapsed time", 1.73),
            (2, "yFS-inline", "extraction, elapsed time", 5.2),
            (2, "yFS-external", "extraction, elapsed time", 5.6),
            (2, "yFS-inline", "deletion, elapsed time", 3.4),
            (2, "yFS-external", "deletion, elapsed time", 4.0),
            (3, "yFS-external", "10,000 operations, elapsed time", 1.43),
            (3, "yFS-external", "40,000 operations, elapsed time", 1.97),
        ];
        for (at, subject, metric, ratio) in wanted {
            let mut rows = vec![row(&ALL[at], subject, metric), row(&ALL[at], "FFS-SU", metric)];
            compare(&ALL[at], &mut rows);
            let got = rows[0].paper_ratio.unwrap();
            assert!((got - ratio).abs() < 0.06, "{subject}, {metric}: {got}");
            assert_eq!((rows[0].our_ratio, rows[1].our_ratio), (Some(1.0), None));
        }
    }

    #[test]
    fn who_asks_gets_figures() {
        const ASKED: Quantity = Quantity::Latency(Rank::P99);
        const PARTS: &[Part] = &[
            Part { paper: &[(ASKED, [1.0; 3])], ..Part::new("a", &["extract"]) },
            Part::new("b", &["remove"]),
            Part::new("b", &["remove"]),
        ];
        let experiment = Experiment { cases: &[], ..ALL[2] };
        let case = Case { parts: PARTS, ..ALL[2].cases[0] };
        let given = |at: usize, more: &[More]| {
            let settings = Settings::new(arbor_simdisk::Model::named("st39140").unwrap());
            quantities(&experiment, (&case, &PARTS[at]), &Settings { more: more.into(), ..settings }, &[])
        };
        assert_eq!(given(0, &[]).iter().filter(|(q, _)| is_asked(*q)).collect::<Vec<_>>(), [&(ASKED, false)]);
        assert!(given(1, &[]).iter().all(|(q, is_asked_for)| !is_asked(*q) && !is_asked_for));
        let latencies = Rank::ALL.map(|rank| (Quantity::Latency(rank), true));
        assert!(latencies.iter().all(|wanted| given(1, &[More::Latency, More::Latency]).contains(wanted)));
        assert!(given(0, &[More::Latency]).contains(&(ASKED, true)));
        assert!(given(1, &[More::Amplification]).contains(&(Quantity::WriteAmplification, true)));
        // Another part has the name, and the rows.
        assert_eq!(given(2, &[More::Latency]), given(2, &[]));
    }

    #[test]
    fn nothing_is_compared_with_nothing() {
        let row = |subject: &str, ours: f64| Row {
            experiment: "yfs-table3".into(),
            subject: subject.into(),
            metric: "extraction, disk time, log".into(),
            ours,
            ..plain()
        };
        for (own, reference, wanted) in [(2.0, 3.0, Some(1.5)), (2.0, 0.0, None), (0.0, 3.0, None), (0.001, 6.6, None)]
        {
            let mut rows = vec![row("yFS-inline", own), row("FFS-SU", reference)];
            compare(&ALL[2], &mut rows);
            assert_eq!(rows[0].our_ratio, wanted);
            assert!(is_compared(&rows[0], rows.iter()) && !is_compared(&rows[1], rows.iter()));
            assert!(!is_compared(&rows[0], rows[..1].iter()));
        }
    }

    #[test]
    fn an_interval_decides() {
        let row = |subject: &str, runs: &[f64]| Row {
            experiment: "yfs-table2".into(),
            subject: subject.into(),
            metric: "50,000 files, elapsed time".into(),
            ours: runs.iter().sum::<f64>() / runs.len() as f64,
            runs: runs.to_vec(),
            ..plain()
        };
        let reference = paper_reference(&ALL[1], "50,000 files, elapsed time").unwrap();
        // The paper's ratio is 1.27: from 0.97 to 1.9 ours holds.
        for (own, wanted) in [
            ([1.0, 1.01, 0.99], Verdict::Holds),
            ([1.4, 1.2, 1.35], Verdict::Undecided),
            ([1.5, 1.51, 1.52], Verdict::HoldsNot),
        ] {
            let mut rows = vec![row("yFS-inline", &own), row("FFS-SU", &[1.3, 1.3, 1.3])];
            rows[0].paper = Some(reference / 1.27);
            compare(&ALL[1], &mut rows);
            assert!(rows[0].ratio_half > 0.0 && (rows[0].paper_ratio.unwrap() - 1.27).abs() < 1e-9);
            assert_eq!(rows[0].verdict(), wanted, "{own:?}");
        }
    }

    #[test]
    fn times_come_first() {
        let row = |metric: &str, divisor| {
            let conditions = Some(Conditions { divisor, ..conditions("st39140") });
            Row { metric: metric.into(), conditions, ..plain() }.is_headline()
        };
        assert!(row("elapsed time", 1) && row("extraction, elapsed time", 20));
        assert!(row("extraction, time afterwards", 20) && !row("extraction, time afterwards", 1));
        assert!(!row("extraction, requests", 20) && !row("unelapsed time", 1));
    }

    #[test]
    fn the_papers_workload_is_one_program_with_its_counts() {
        let row = |divisor, lanes| {
            let conditions = Some(Conditions { divisor, lanes, ..conditions("st39140") });
            Row { conditions, ..plain() }.is_of_paper()
        };
        assert!(row(1, 1) && plain().is_of_paper());
        assert!(!row(2, 1) && !row(1, 2));
    }

    #[test]
    fn json_has_a_field_for_each_column() {
        let row = Row { paper: Some(2.0), ours: 1.5, conditions: Some(conditions("st39140")), ..plain() };
        let json: serde_json::Value = serde_json::from_str(&to_json(&[row]).unwrap()).unwrap();
        let wanted = serde_json::json!([{"experiment": "e", "subject": "s", "metric": "m", "unit": "s", "paper": 2.0,
            "ours": 1.5, "spread": 0.0, "paper_ratio": null, "our_ratio": null, "holds": null,
            "conditions": {"disk": "st39140", "write_cache_bytes": 0, "tags": 2, "seed": 1, "runs": 1, "divisor": 1,
            "cpu_call_ns": 0, "cpu_kib_ns": 0, "scheduler": "clook", "queue_depth": null, "max_transfer_bytes": 131072,
            "prefer_reads": true, "deadline_ms": 5000, "batch": 16}}]);
        assert_eq!(json, wanted);
    }
}
