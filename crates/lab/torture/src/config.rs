//! What a run is told, and the line that repeats it.

use crate::crash::{From, Mender};
use crate::generate::{Profile, generate};
use crate::line::{self, number, variant};
use crate::ops::{Op, parse, print};
use arbor_base::device::{CrashChoice, Device, MemDevice, OffsetDevice};
use arbor_base::vfs::{CrashPromise, Devices, Engine, FormatOptions, MountOptions, Options, Time};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Time at which every run begins.
pub const BEGIN: Time = Time { secs: 1_700_000_000, nanos: 0 };

/// A power cut: after so many events of the device, with this fate of what was pending.
pub type Cut = (usize, CrashChoice);

/// The shapes of an engine in which a power cut leaves the state after some prefix of the operations.
pub(crate) fn exact_shapes(engine: &dyn Engine) -> Vec<(&'static str, &'static str)> {
    let exact = |mount: &str| engine.crash_promise(&Options::parse(mount)) == CrashPromise::Prefix;
    engine.test_configurations().iter().copied().filter(|s| exact(s.1)).collect()
}

/// What a run is told. `ARBOR_SEED`, `ARBOR_COUNT`, `ARBOR_OPS` and `ARBOR_BUDGET` override it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of the first sequence; the following ones count up.
    pub seed: u64,
    /// Number of sequences.
    pub count: u64,
    /// Operations in a sequence.
    pub ops: usize,
    /// What the sequences dwell on.
    pub profile: Profile,
    /// Size of the main device in bytes.
    pub device_size: u64,
    /// Sizes of further devices by role. All are windows of one recorded device, so that one cut
    /// hits all of them; a flush of one counts for all.
    pub extra_devices: BTreeMap<String, u64>,
    /// Engine options of the format.
    pub format: Options,
    /// Engine options of each mount.
    pub mount: Options,
    /// Operations between two comparisons of the whole tree.
    pub compare_every: usize,
    /// Crash states to try for each sequence.
    pub budget: usize,
    /// How often the power may be cut in a row: with 2 the recovery of some states is cut, with 3
    /// the recovery from that too.
    pub depth: u32,
    /// Of so many states the recovery of one is cut again.
    pub cut_again: u64,
    /// The engine keeps what it has given to a file: a write there is never told that the volume is full.
    pub keeps_space: bool,
    /// Counts failing states and goes on, instead of shrinking the first.
    pub keep_going: bool,
    /// Runs that shrinking a failing list may take.
    pub shrink_runs: usize,
    /// This list instead of drawn ones.
    pub replay: Option<Vec<Op>>,
    /// These power cuts instead of planned ones.
    pub cuts: Option<Vec<Cut>>,
    /// Whose work the second of those cuts, and those after it, end.
    pub by: Mender,
}

impl Config {
    /// Defaults for `profile`, short enough for every test run.
    pub fn new(profile: Profile) -> Config {
        Config {
            seed: 1,
            count: 4,
            ops: if profile == Profile::Dirs { 4000 } else { 600 },
            profile,
            device_size: match profile {
                Profile::Churn => 14 << 20,
                Profile::Full => 24 << 20,
                _ => 64 << 20,
            },
            extra_devices: BTreeMap::new(),
            format: Options::default(),
            mount: Options::default(),
            compare_every: 200,
            budget: 300,
            depth: 3,
            cut_again: 16,
            keeps_space: true,
            keep_going: false,
            shrink_runs: 600,
            replay: None,
            cuts: None,
            by: Mender::Mount,
        }
    }

    /// Defaults for the crash explorer: short sequences, since each is recovered many times.
    pub fn crash(profile: Profile) -> Config {
        let ops = if profile == Profile::Dirs { 400 } else { 60 };
        Config { ops, compare_every: usize::MAX, shrink_runs: 150, ..Config::new(profile) }
    }

    /// This configuration as the environment wants it; panics on nonsense there.
    pub fn from_env(&self) -> Config {
        let mut config = self.clone();
        if let Some(seed) = number_from_env("ARBOR_SEED") {
            (config.seed, config.count) = (seed, 1);
        }
        config.count = number_from_env("ARBOR_COUNT").unwrap_or(config.count);
        config.budget = number_from_env("ARBOR_BUDGET").map_or(config.budget, |n| n as usize);
        if let Ok(text) = std::env::var("ARBOR_OPS") {
            match text.trim().parse() {
                Ok(n) => config.ops = n,
                Err(_) => config = config.replaying(&text).unwrap_or_else(|e| panic!("ARBOR_OPS: {e}")),
            }
        }
        if let Ok(text) = std::env::var("ARBOR_CUTS") {
            config.cuts = Some(parse_cuts(&text).unwrap_or_else(|e| panic!("ARBOR_CUTS: {e}")));
        }
        config
    }

    /// This configuration with the operations of `text` instead of drawn ones.
    pub fn replaying(&self, text: &str) -> Result<Config, String> {
        Ok(Config { replay: Some(parse(text)?), count: 1, ..self.clone() })
    }

    /// The operations of the sequence from `seed`.
    pub fn sequence(&self, seed: u64) -> Vec<Op> {
        self.replay.clone().unwrap_or_else(|| generate(self.profile, seed, self.ops))
    }

    /// Reads the words of a line that stand before what it repeats: the keys of `mine` here, the others
    /// with `own`, which says `false` if it does not know the key.
    pub(crate) fn read(
        &mut self,
        head: &str,
        mine: &[&str],
        mut own: impl FnMut(&str, &str) -> Result<bool, String>,
    ) -> Result<(), String> {
        line::words(head, |key, value| if mine.contains(&key) { self.take(key, value) } else { own(key, value) })
    }

    fn take(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "seed" => self.seed = number(value)?,
            "profile" => self.profile = value.parse()?,
            "size" => self.device_size = number(value)?,
            "format" => self.format = Options::parse(value),
            "mount" => self.mount = Options::parse(value),
            "extra" => {
                let (role, size) = value.split_once(':').ok_or_else(|| format!("{value:?} is not ROLE:SIZE"))?;
                self.extra_devices.insert(role.to_string(), number(size)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Memory for all devices together.
    pub(crate) fn memory(&self) -> MemDevice {
        MemDevice::new(self.device_size + self.extra_devices.values().sum::<u64>())
    }

    /// The devices of a volume as windows of `whole`.
    pub(crate) fn devices<D: Device + Clone + 'static>(&self, whole: &D) -> Devices {
        if self.extra_devices.is_empty() {
            return Devices::single(whole.clone());
        }
        let window = |start, len| OffsetDevice::new(whole.clone(), start, len).expect("windows fit");
        let mut devices = Devices::single(window(0, self.device_size));
        let mut start = self.device_size;
        for (role, len) in &self.extra_devices {
            devices.extra.insert(role.clone(), Arc::new(window(start, *len)));
            start += len;
        }
        devices
    }

    pub(crate) fn format_options(&self) -> FormatOptions {
        let options = self.format.clone();
        FormatOptions { label: "torture".to_string(), uuid: [7; 16], now: BEGIN, owner: (0, 0), options }
    }

    pub(crate) fn mount_options(&self) -> MountOptions {
        MountOptions { read_only: false, options: self.mount.clone() }
    }
}

/// What a variable of the environment says, if it is set; panics on nonsense there.
pub(crate) fn number_from_env(key: &str) -> Option<u64> {
    let text = std::env::var(key).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{key}: {text:?} is no number")))
}

/// A failure with all that repeats it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Name of the engine.
    pub engine: &'static str,
    /// Seed of the sequence.
    pub seed: u64,
    /// Profile of the sequence.
    pub profile: Profile,
    /// Size of the main device in bytes.
    pub device_size: u64,
    /// Options of format and of mount.
    pub options: (Options, Options),
    /// Sizes of further devices by role.
    pub extra_devices: BTreeMap<String, u64>,
    /// The volume it began on, see [`exhaust`](crate::exhaust).
    pub from: From,
    /// Operations, shrunk as far as the bound allowed.
    pub ops: Vec<Op>,
    /// Power cuts, if it takes any.
    pub cuts: Vec<Cut>,
    /// Further words of the line, each with a space before it.
    pub words: String,
    /// What went wrong.
    pub message: String,
}

impl Failure {
    /// A failure without operations and cuts.
    pub(crate) fn whole(engine: &dyn Engine, config: &Config, message: String) -> Failure {
        Failure {
            engine: engine.name(),
            seed: config.seed,
            profile: config.profile,
            device_size: config.device_size,
            options: (config.format.clone(), config.mount.clone()),
            extra_devices: config.extra_devices.clone(),
            from: From::Empty,
            ops: Vec::new(),
            cuts: Vec::new(),
            words: String::new(),
            message,
        }
    }

    /// The text that [`machine::repeat`](crate::machine::repeat) reads.
    pub fn line(&self) -> String {
        let Failure { seed, profile, device_size, options, ops, .. } = self;
        let mut line = format!("seed={seed} profile={profile} size={device_size}");
        line += &volume_words(&options.0, &options.1, &self.extra_devices, self.from);
        if !self.cuts.is_empty() {
            line += &format!(" cuts={}", print_cuts(&self.cuts));
        }
        line + &self.words + " ops=" + &print(ops)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { engine, message, .. } = self;
        write!(f, "{engine}: {message}\n  repeat with: arbor torture -t {engine} --repeat '{}'", self.line())
    }
}

/// What a line says of its volume where that is not the usual; each word with a space before it.
pub(crate) fn volume_words(format: &Options, mount: &Options, extra: &BTreeMap<String, u64>, from: From) -> String {
    let mut words = String::new();
    for (key, options) in [("format", format), ("mount", mount)] {
        if !options.0.is_empty() {
            words += &format!(" {key}={options}");
        }
    }
    for (role, size) in extra {
        words += &format!(" extra={role}:{size}");
    }
    if from != From::Empty {
        words += &format!(" from={from:?}");
    }
    words
}

/// Writes cuts as `12:NoneKept,3:Seeded(5)`.
pub fn print_cuts(cuts: &[Cut]) -> String {
    cuts.iter().map(|(at, choice)| format!("{at}:{choice:?}")).collect::<Vec<_>>().join(",")
}

/// Reads what [`print_cuts`] wrote; lists of fates are not understood.
pub fn parse_cuts(text: &str) -> Result<Vec<Cut>, String> {
    text.split(',').map(|cut| parse_cut(cut.trim())).collect()
}

/// Reads one cut.
pub(crate) fn parse_cut(text: &str) -> Result<Cut, String> {
    let (at, fate) = text.split_once(':').ok_or_else(|| format!("{text:?} is not EVENT:FATE"))?;
    let fate = variant(fate, |n| {
        [
            CrashChoice::AllKept,
            CrashChoice::NoneKept,
            CrashChoice::DropOne(n as usize),
            CrashChoice::KeepOne(n as usize),
            CrashChoice::Prefix(n as usize),
            CrashChoice::Seeded(n),
        ]
    })?;
    Ok((number(at)?, fate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_parse_back() {
        let cuts = vec![(12, CrashChoice::NoneKept), (3, CrashChoice::Seeded(u64::MAX)), (0, CrashChoice::DropOne(4))];
        assert_eq!(parse_cuts(&print_cuts(&cuts)), Ok(cuts));
        assert!(parse_cuts("12").is_err_and(|e| e == "\"12\" is not EVENT:FATE"));
        assert!(
            parse_cuts("12:Kept").is_err_and(|e| e.starts_with("\"Kept\" is none of AllKept, NoneKept, DropOne, "))
        );
    }
}
