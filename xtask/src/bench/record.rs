//! The figures: what is kept of a run, written as JSON, and what is made of several rounds.

use super::machine::{Machine, State};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All figures of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) machine: Machine,
    pub(crate) settings: Settings,
    pub(crate) states: Vec<State>,
    pub(crate) runs: Vec<Run>,
    /// What was left out, and why.
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) files: u32,
    pub(crate) rounds: u32,
    pub(crate) image_gib: u64,
    pub(crate) workloads: Vec<String>,
    /// In the order of the columns; those of the house come first.
    pub(crate) systems: Vec<String>,
    /// How many of them are engines of the house.
    pub(crate) engines: usize,
    pub(crate) mount_options: Option<String>,
    pub(crate) floor_options: Option<String>,
}

/// One workload on one new file system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) state: String,
    pub(crate) round: u32,
    pub(crate) system: String,
    pub(crate) workload: String,
    pub(crate) phases: Vec<Phase>,
    /// Of the process that serves the mount, over all its mounts.
    pub(crate) peak_memory: Option<u64>,
    /// What the image takes on the host after the first phase.
    pub(crate) image_bytes: Option<u64>,
    /// By how much the first phase raised what statfs calls used.
    pub(crate) used_bytes: Option<u64>,
    /// Why there are no more phases.
    pub(crate) failure: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Phase {
    pub(crate) name: String,
    /// Seconds; microseconds in W6.
    pub(crate) value: f64,
    /// Bytes written to the image.
    pub(crate) written: Option<u64>,
    /// FUSE requests by kind, where the server tells.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) requests: BTreeMap<String, u64>,
}

/// A figure over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) count: usize,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let count = sorted.len();
        let median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
        Some(Spread { median, min, max, count })
    }
}

/// Which figure of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum What<'a> {
    Time(&'a str),
    PeakMemory,
    Image,
    Used,
    Written(&'a str),
}

impl What<'_> {
    fn of(self, run: &Run) -> Option<f64> {
        let phase = |name: &str| run.phases.iter().find(|p| p.name == name);
        let bytes = match self {
            What::Time(name) => return Some(phase(name)?.value),
            What::PeakMemory => run.peak_memory,
            What::Image => run.image_bytes,
            What::Used => run.used_bytes,
            What::Written(name) => phase(name)?.written,
        };
        Some(bytes? as f64 / 1e6)
    }
}

impl Record {
    pub(crate) fn spread(&self, state: &str, system: &str, workload: &str, what: What<'_>) -> Option<Spread> {
        let is_asked = |run: &&Run| run.state == state && run.system == system && run.workload == workload;
        let values: Vec<f64> = self.runs.iter().filter(is_asked).filter_map(|run| what.of(run)).collect();
        Spread::of(&values)
    }

    /// The phases of a workload that some file system went through.
    pub(crate) fn phases(&self, workload: &str) -> Vec<&str> {
        let of_it = self.runs.iter().filter(|run| run.workload == workload);
        let longest = of_it.max_by_key(|run| run.phases.len());
        longest.map(|run| run.phases.iter().map(|p| p.name.as_str()).collect()).unwrap_or_default()
    }

    /// What the table and the report say of runs that did not end.
    pub(crate) fn failures(&self) -> Vec<String> {
        let line = |run: &Run| {
            let failure = run.failure.as_ref()?;
            Some(format!("{} round {} {} {}: {failure}", run.state, run.round, run.workload, run.system))
        };
        self.runs.iter().filter_map(line).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample() -> Record {
        let run = |round, system: &str, seconds: f64| Run {
            state: "H0".into(),
            round,
            system: system.into(),
            workload: "W1".into(),
            phases: vec![
                Phase {
                    name: "create + sync".into(),
                    value: seconds,
                    written: Some(5_000_000),
                    requests: BTreeMap::from([("MKNOD".into(), 3)]),
                },
                Phase { name: "stat, cold".into(), value: 0.1, written: None, requests: BTreeMap::new() },
            ],
            peak_memory: (system == "yfs").then_some(12_000_000),
            image_bytes: Some(7_000_000),
            used_bytes: None,
            failure: None,
        };
        let mut runs = vec![run(1, "yfs", 2.0), run(1, "ext4", 3.0), run(1, "floor", 1.0)];
        runs.extend([run(2, "yfs", 1.0), run(2, "ext4", 4.0), run(2, "floor", 1.0)]);
        runs[4].phases.pop();
        runs[4].failure = Some("stat, cold: <no> such & such".into());
        Record {
            machine: Machine {
                kernel: "Linux 6".into(),
                processor: "a processor".into(),
                processors: 2,
                memory_mib: 1024,
                host: "ext4".into(),
                date: "2026-11-21 02:00 UTC".into(),
            },
            settings: Settings {
                files: 2000,
                rounds: 2,
                image_gib: 8,
                workloads: vec!["W1".into()],
                systems: vec!["yfs".into(), "ext4".into(), "floor".into()],
                engines: 1,
                mount_options: None,
                floor_options: Some("ttl=1".into()),
            },
            states: vec![State { name: "H0".into(), ping_pong_us: 41.5, load: 0.25 }],
            runs,
            notes: vec!["xfs is left out: no mkfs.xfs".into()],
        }
    }

    #[test]
    fn spreads() {
        assert_eq!(Spread::of(&[]), None);
        let of = |values: &[f64]| Spread::of(values).map(|s| (s.median, s.min, s.max, s.count));
        assert_eq!(of(&[2.0]), Some((2.0, 2.0, 2.0, 1)));
        assert_eq!(of(&[9.0, 1.0, 2.0]), Some((2.0, 1.0, 9.0, 3)));
        assert_eq!(of(&[4.0, 1.0, 2.0, 9.0]), Some((3.0, 1.0, 9.0, 4)));
    }

    #[test]
    fn figures_over_the_rounds() {
        let record = sample();
        let median = |system, what| record.spread("H0", system, "W1", what).map(|s| s.median);
        assert_eq!(median("yfs", What::Time("create + sync")), Some(1.5));
        assert_eq!(median("yfs", What::PeakMemory), Some(12.0));
        assert_eq!(median("ext4", What::PeakMemory), None);
        assert_eq!(median("ext4", What::Written("create + sync")), Some(5.0));
        assert_eq!(record.spread("H0", "ext4", "W1", What::Time("stat, cold")).map(|s| s.count), Some(1));
        assert_eq!(record.spread("H1", "yfs", "W1", What::Time("create + sync")), None);
        assert_eq!(record.phases("W1"), ["create + sync", "stat, cold"]);
        assert_eq!(record.failures(), ["H0 round 2 W1 ext4: stat, cold: <no> such & such"]);
    }

    #[test]
    fn json_brings_it_all_back() {
        let record = sample();
        let text = serde_json::to_string_pretty(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }
}
