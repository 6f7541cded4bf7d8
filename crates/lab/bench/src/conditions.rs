//! What a figure depends on besides experiment and subject: only figures of the same conditions can be compared.

use crate::measure::Settings;
use arbor_simdisk::{Merge, Scheduler};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The settings of a run, as its rows carry them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// Name of the disk's model.
    pub disk: String,
    /// A hard disk's write cache, 0: off.
    pub write_cache_bytes: Option<u64>,
    /// Requests that a hard disk takes at once.
    pub tags: Option<u64>,
    /// The seed of the first run.
    pub seed: u64,
    /// Runs of each workload.
    pub runs: u32,
    /// Programs of each workload at the same time.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub lanes: u32,
    /// What counts of files and operations were divided by.
    pub divisor: u32,
    /// Charge of the processor for a call.
    pub cpu_call_ns: u64,
    /// Charge of the processor for a KiB.
    pub cpu_kib_ns: u64,
    /// Charge of the processor for a name compared.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpu_compare_ns: u64,
    /// Whether the host sets access times.
    #[serde(default, skip_serializing_if = "is_false")]
    pub access_times: bool,
    /// The size of the volume, bytes, if it is a part of the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_bytes: Option<u64>,
    /// The workloads, if not all of the experiment were run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<String>,
    /// Most dirty buffers, if they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirty_buffers: Option<u32>,
    /// What the driver joins.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub merge: Merge,
    /// Order of the driver's queue.
    pub scheduler: String,
    /// Most requests with the disk at once, if the driver limits them.
    pub queue_depth: Option<u64>,
    /// Largest request of the driver, 0: as they come.
    pub max_transfer_bytes: u64,
    /// Whether reads go before writes.
    pub prefer_reads: bool,
    /// When a write is due.
    pub deadline_ms: u64,
    /// Writes that go in a row when they are due.
    pub batch: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // what serde calls
fn is_usual(merge: &Merge) -> bool {
    *merge == Merge::default()
}

#[allow(clippy::trivially_copy_pass_by_ref)] // what serde calls
fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // what serde calls
fn is_false(is: &bool) -> bool {
    !*is
}

fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // what serde calls
fn is_one(n: &u32) -> bool {
    *n == 1
}

impl Conditions {
    /// Those of a run with these settings.
    pub fn new(settings: &Settings) -> Conditions {
        let (model, queue) = (&settings.model, &settings.queue);
        Conditions {
            disk: model.name().into(),
            write_cache_bytes: model.write_cache_bytes(),
            tags: model.tags().map(|n| n as u64),
            seed: settings.seed,
            runs: settings.runs.max(1),
            lanes: settings.lanes.max(1),
            divisor: settings.divisor.max(1),
            cpu_call_ns: settings.charge.call_ns,
            cpu_kib_ns: settings.charge.kib_ns,
            cpu_compare_ns: settings.charge.compare_ns,
            access_times: settings.charge.access_times,
            partition_bytes: settings.partition_bytes,
            cases: settings.cases.clone(),
            dirty_buffers: settings.dirty_buffers,
            merge: queue.merge,
            scheduler: match queue.scheduler {
                Scheduler::Clook => "clook",
                Scheduler::Fifo => "fifo",
                Scheduler::Sstf => "sstf",
            }
            .into(),
            queue_depth: (queue.depth < usize::MAX).then_some(queue.depth as u64),
            max_transfer_bytes: queue.max_transfer_bytes,
            prefer_reads: queue.prefer_reads,
            deadline_ms: queue.deadline_ms,
            batch: queue.batch,
        }
    }

    /// The first setting that is not as in `other`, in words.
    pub fn difference(&self, other: &Conditions) -> Option<String> {
        let (own, others) = (self.fields(), other.fields());
        let all = own.keys().chain(others.keys());
        let name = all.into_iter().find(|name| own.get(*name) != others.get(*name))?;
        let value = own.get(name);
        let words = |value: Option<&Value>| value.filter(|v| !v.is_null()).map_or("none".into(), Value::to_string);
        Some(format!("{name} is {}, not {}", words(value), words(others.get(name))))
    }

    /// What keeps figures from standing beside others: the first setting that is not as theirs. Fewer runs do not, nor do some
    /// of the workloads where each begins anew (`is_apart`).
    pub fn hindrance(&self, others: &Conditions, is_apart: bool) -> Option<String> {
        let runs = if self.runs < others.runs { others.runs } else { self.runs };
        let cases = if others.cases.is_empty() && is_apart { Vec::new() } else { self.cases.clone() };
        Conditions { runs, cases, ..self.clone() }.difference(others)
    }

    fn fields(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arbor_simdisk::{HostQueue, Model};

    #[test]
    fn a_part_of_the_runs_and_workloads_stands_beside_all() {
        let one = Conditions::new(&settings());
        let five = Conditions { runs: 5, ..one.clone() };
        let part = Conditions { cases: vec!["one".into()], ..one.clone() };
        assert_eq!((part.hindrance(&five, true), one.hindrance(&one, false)), (None, None));
        assert_eq!(five.hindrance(&one, true).unwrap(), "runs is 5, not 1");
        assert!(one.hindrance(&part, true).unwrap().starts_with("cases is none"));
        assert!(part.hindrance(&one, false).unwrap().starts_with("cases is [\"one\"]"));
        assert!(Conditions { seed: 2, ..part }.hindrance(&five, true).unwrap().starts_with("seed is 2"));
    }

    fn settings() -> Settings {
        Settings::new(Model::named("st39140").unwrap())
    }

    #[test]
    fn every_setting_makes_a_difference() {
        let usual = Conditions::new(&settings());
        assert_eq!(usual.difference(&Conditions::new(&settings())), None);
        let model = |name: &str| Model::named(name).unwrap();
        let queue = |change: &dyn Fn(&mut HostQueue)| {
            let mut queue = HostQueue::default();
            change(&mut queue);
            Settings { queue, ..settings() }
        };
        let charge = |call_ns, kib_ns, compare_ns| {
            let charge = crate::library::Charge { call_ns, kib_ns, compare_ns, access_times: false };
            Settings { charge, ..settings() }
        };
        for (other, wanted) in [
            (Settings { seed: 2, ..settings() }, "seed is 2, not 1"),
            (Settings { runs: 3, ..settings() }, "runs is 3, not 1"),
            (Settings { lanes: 2, ..settings() }, "lanes is 2, not none"),
            (Settings { divisor: 20, ..settings() }, "divisor is 20, not 1"),
            (Settings::new(model("st39140").with_write_cache(1 << 20)), "write_cache_bytes is 1048576, not 0"),
            (Settings::new(model("st39140").with_tags(1)), "tags is 1, not "),
            (charge(5, 0, 0), "cpu_call_ns is 5, not 0"),
            (charge(0, 5, 0), "cpu_kib_ns is 5, not 0"),
            (charge(0, 0, 5), "cpu_compare_ns is 5, not none"),
            (
                Settings { charge: crate::library::Charge { access_times: true, ..settings().charge }, ..settings() },
                "access_times is true, not none",
            ),
            (Settings { partition_bytes: Some(5), ..settings() }, "partition_bytes is 5, not none"),
            (Settings { cases: vec!["a".into()], ..settings() }, "cases is [\"a\"], not none"),
            (Settings { dirty_buffers: Some(5), ..settings() }, "dirty_buffers is 5, not none"),
            (queue(&|q| q.merge = Merge::Buffers), "merge is \"buffers\", not none"),
            (queue(&|q| q.scheduler = Scheduler::Sstf), "scheduler is \"sstf\", not \"clook\""),
            (queue(&|q| q.depth = 4), "queue_depth is 4, not none"),
            (queue(&|q| q.max_transfer_bytes = 0), "max_transfer_bytes is 0, not 131072"),
            (queue(&|q| q.prefer_reads = false), "prefer_reads is false, not true"),
            (queue(&|q| q.deadline_ms = 1), "deadline_ms is 1, not 5000"),
            (queue(&|q| q.batch = 1), "batch is 1, not 16"),
        ] {
            let found = Conditions::new(&other).difference(&usual).unwrap();
            assert!(found.starts_with(wanted), "{found}");
        }
        let other = Conditions { disk: "870evo".into(), ..usual.clone() };
        assert_eq!(other.difference(&usual).unwrap(), "disk is \"870evo\", not \"st39140\"");
    }
}
