//! What years of use make of FFS.

use super::curves::{Axis, Chart, Charts, Host, Measured, Statement, least, mean};
use super::{Case, Experiment, Load, Part, Quantity, Shape};
use crate::workload::turnover::{Purpose, Turnover};

/// The volume, bytes.
const VOLUME_BYTES: u64 = 256 << 20;
/// What the benchmark's files of each size hold: a quarter of the paper's 32 MB, which would fill nearly all that is free.
const PROBE_BYTES: u64 = 8 << 20;
/// What each subject is used for, and how much of the volume its files take, %.
const USES: [(&str, Purpose, u32); 5] = [
    ("FFS-news", Purpose::News, 82),
    ("FFS-home-70", Purpose::Home, 70),
    ("FFS-home-80", Purpose::Home, 80),
    ("FFS-home-86", Purpose::Home, 86),
    ("FFS-software", Purpose::Software, 86),
];
const SUBJECTS: &[&str] = &[USES[0].0, USES[1].0, USES[2].0, USES[3].0, USES[4].0];

/// Turnover from one date to another, and then the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aged {
    /// Months that have passed before.
    pub from: u32,
    /// Months that have passed when the benchmark is run.
    pub to: u32,
    /// What the volume is used for.
    pub purpose: Purpose,
    /// How much of it files take, %.
    pub full: u32,
}

impl Aged {
    pub(super) fn on(self, subject: &str) -> Aged {
        let of_subject = USES.iter().find(|(name, ..)| *name == subject);
        of_subject.map_or(self, |(_, purpose, full)| Aged { purpose: *purpose, full: *full, ..self })
    }

    pub(super) fn volume_bytes(divisor: u32) -> u64 {
        (VOLUME_BYTES / u64::from(divisor)).next_multiple_of(1 << 20)
    }

    pub(super) fn spec(self, divisor: u32) -> Turnover {
        let Aged { from, to, purpose, full } = self;
        let usual = Turnover::default();
        let (capacity_bytes, probe_bytes) = (Self::volume_bytes(divisor), PROBE_BYTES / u64::from(divisor));
        Turnover { purpose, capacity_bytes, full, from, to, probe_bytes, ..usual }
    }
}

const PARTS: &[Part] = &[
    Part::new("create 16 KB", &["create 16 KB"]),
    Part::new("read 16 KB", &["read 16 KB"]),
    Part::new("create 64 KB", &["create 64 KB"]),
    Part::new("read 64 KB", &["read 64 KB"]),
    Part::new("create 1 MB", &["create 1 MB"]),
    Part::new("read 1 MB", &["read 1 MB"]),
];
const NAMES: [&str; 6] = [PARTS[0].name, PARTS[1].name, PARTS[2].name, PARTS[3].name, PARTS[4].name, PARTS[5].name];

const fn at(name: &'static str, from: u32, to: u32) -> Case {
    let load = Load::Turnover(Aged { from, to, purpose: Purpose::Home, full: 80 });
    Case { name, load, x: to as f64, parts: PARTS }
}

const fn chart(title: &'static str, parts: &'static [&'static str]) -> Chart {
    Chart { relative: true, ..Chart::new(title, parts, Quantity::Throughput) }
}

/// The experiment.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ffs-aging",
    about: "Files are created and read on FFS in ten years of a server's turnover.",
    source: "Seltzer and others, USENIX 1995, effects of free space fragmentation on FFS performance",
    columns: SUBJECTS,
    others: &[],
    reference: "FFS-software",
    log_bound: (&[], 0.0),
    host: Host { disk: "m2694", ..Host::LFS },
    cases: &[
        at("empty", 0, 0),
        at("1 month", 0, 1),
        at("3 months", 1, 3),
        at("6 months", 3, 6),
        at("12 months", 6, 12),
        at("24 months", 12, 24),
        at("26 months", 24, 26),
        at("28 months", 26, 28),
        at("30 months", 28, 30),
        at("36 months", 30, 36),
        at("48 months", 36, 48),
        at("56 months", 48, 56),
        at("58 months", 56, 58),
        at("60 months", 58, 60),
        at("72 months", 60, 72),
        at("84 months", 72, 84),
        at("96 months", 84, 96),
        at("108 months", 96, 108),
        at("116 months", 108, 116),
        at("118 months", 116, 118),
        at("120 months", 118, 120),
    ],
    series: SUBJECTS,
    shape: Shape::Charts(&Charts {
        x: Axis { name: "age", unit: "months", log: false },
        charts: &[
            chart("create files of 16 KB", &[NAMES[0]]),
            chart("read files of 16 KB", &[NAMES[1]]),
            chart("create files of 64 KB", &[NAMES[2]]),
            chart("read files of 64 KB", &[NAMES[3]]),
            chart("create files of 1 MB", &[NAMES[4]]),
            chart("read files of 1 MB", &[NAMES[5]]),
        ],
        statements: &[
            Statement {
                text: "After two to three years active file systems have 85 to 95% of the performance of an empty one.",
                what: "mean of all sizes, home, 24 to 36 months",
                figure: |m| mean_of(m, &HOMES, &LATE, &NAMES),
                range: (0.85, 1.0),
                why: "Creating has 89%, reading 68%. Files of the empty volume lie one after the other and are read nearly at the speed of the disk, since the processor costs nothing. And the days are made up, not those of Harvard.",
            },
            Statement {
                text: "Small files that are rapidly replaced suffer most: news.",
                what: "news / home-80, mean of all sizes, 24 to 36 months",
                figure: |m| {
                    let of = |subject| mean_of(m, &[subject], &LATE, &NAMES);
                    Some(of("FFS-news")? / of("FFS-home-80")?)
                },
                range: (0.0, 1.0),
                why: "They suffer less than home directories that are as full. All articles of a group stay equally long here and leave at once.",
            },
            Statement {
                text: "Where little is replaced, performance is better than elsewhere.",
                what: "software / home-86, mean of all sizes, 24 to 36 months",
                figure: |m| {
                    let of = |subject| mean_of(m, &[subject], &LATE, &NAMES);
                    Some(of("FFS-software")? / of("FFS-home-86")?)
                },
                range: (1.0, f64::INFINITY),
                why: "",
            },
            Statement {
                text: "The fuller, the slower.",
                what: "home-86 / home-70, mean of all sizes, 24 to 36 months",
                figure: |m| {
                    let of = |subject| mean_of(m, &[subject], &LATE, &NAMES);
                    Some(of("FFS-home-86")? / of("FFS-home-70")?)
                },
                range: (0.0, 1.0),
                why: "",
            },
            Statement {
                text: "Performance is regained when some of the files are removed.",
                what: "home-86, mean of all sizes, a month after a removal (28, 58, 118 months) / before it (26, 56, 116)",
                figure: |m| {
                    let of = |dates| mean_of(m, &["FFS-home-86"], dates, &NAMES);
                    Some(of(&[28.0, 58.0, 118.0])? / of(&[26.0, 56.0, 116.0])?)
                },
                range: (1.0, f64::INFINITY),
                why: "It is 0.88, 1.09 and 1.05 for the three dates, which small changes of the engine move to either side of 1: new files go into the holes first.",
            },
            Statement {
                text: "The older, the slower: the paper's data speak for it, but leave it open.",
                what: "mean of all sizes, home, 108 to 120 months / 24 to 36 months",
                figure: |m| Some(mean_of(m, &HOMES, &LAST, &NAMES)? / mean_of(m, &HOMES, &LATE, &NAMES)?),
                range: (0.0, 1.0),
                why: "",
            },
            Statement {
                text: "Files of 64 KB suffer more than those of 16 KB and 1 MB.",
                what: "64 KB / the lower of 16 KB and 1 MB, all subjects, 24 to 36 months",
                figure: |m| {
                    let of = |parts| mean_of(m, SUBJECTS, &LATE, parts);
                    let others = vec![of(&NAMES[..2])?, of(&NAMES[4..])?];
                    Some(of(&NAMES[2..4])? / least(others))
                },
                range: (0.0, 1.0),
                why: "Reading 16 KB suffers most (65%), creating it least (94%), where the disk is busy with names and inodes.",
            },
        ],
    }),
};

/// After two to three years.
const LATE: [f64; 5] = [24.0, 26.0, 28.0, 30.0, 36.0];
/// After nine years and ten.
const LAST: [f64; 4] = [108.0, 116.0, 118.0, 120.0];
/// The subjects that are home directories.
const HOMES: [&str; 3] = ["FFS-home-70", "FFS-home-80", "FFS-home-86"];

/// The mean part of an empty file system's throughput that subjects have on some dates.
fn mean_of(m: &Measured<'_>, subjects: &[&str], dates: &[f64], parts: &[&str]) -> Option<f64> {
    let figure = |subject: &str, date: f64, part: &str| {
        let of = |date| m.figure(subject, date, part, Quantity::Throughput);
        Some(of(date)? / of(0.0)?)
    };
    let one = |subject: &&str| -> Option<Vec<f64>> {
        parts
            .iter()
            .flat_map(|part| dates.iter().map(move |date| (part, date)))
            .map(|(p, d)| figure(subject, *d, p))
            .collect()
    };
    let all: Option<Vec<Vec<f64>>> = subjects.iter().map(one).collect();
    all.map(|all| mean(all.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_one_another() {
        let mut before = 0;
        for case in EXPERIMENT.cases {
            let Load::Turnover(aged) = case.load else { panic!("{}", case.name) };
            assert_eq!((aged.from, case.x), (before, f64::from(aged.to)), "{}", case.name);
            before = aged.to;
        }
    }

    #[test]
    fn subjects_differ_in_their_use() {
        let usual = Aged { from: 0, to: 1, purpose: Purpose::Home, full: 1 };
        assert_eq!(usual.on("FFS-news").purpose, Purpose::News);
        assert_eq!((usual.on("FFS-home-70").full, usual.on("ext4")), (70, usual));
    }
}
