//! Gives an engine its worst days by the million: runs the parts side by side on all cores until
//! they are done or the time is up, and adds up what they did.

use crate::config::{Config, Failure, parse_cuts};
use crate::crash::{Base, Explored, From, Mender, Seen, try_sequence};
use crate::exhaust::{self, Kind, Spaces};
use crate::generate::Profile;
use crate::grow::{self, Grow};
use crate::line::{Again, one_of};
use crate::lives::{First, Lives};
use crate::repair::{self, Repairs};
use crate::rng::mix;
use crate::run;
use crate::share::{Numbers, Share};
use crate::tally::{Tally, Watch, on_all_cores};
use arbor_base::vfs::{Engine, Options};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Ends then, if it is not done before.
    pub time: Option<Duration>,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// The share of all of it that is run.
    pub share: Share,
    /// Sequences of one operation from each volume, and lists made by hand; all of them if there are fewer.
    pub singles: u64,
    /// Sequences of two operations from each volume.
    pub pairs: u64,
    /// Sequences of three operations from each volume.
    pub triples: u64,
    /// Sequences of two operations on names, and of three, from each aged volume.
    pub names: u64,
    /// Long sequences under power cuts.
    pub long: u64,
    /// Long sequences without.
    pub plain: u64,
    /// Lists of operations that follow a power cut, under power cuts.
    pub lives: u64,
    /// Volumes that grow under power cuts.
    pub grow: u64,
    /// Damaged volumes that are repaired under power cuts.
    pub repairs: u64,
    /// Counts failing states and goes on.
    pub keep_going: bool,
}

impl Plan {
    /// Everything, as far as one evening goes.
    pub fn whole(seed: u64) -> Plan {
        Plan {
            time: None,
            seed,
            share: Share::WHOLE,
            singles: u64::MAX,
            pairs: u64::MAX,
            triples: 100_000,
            names: 200_000,
            long: 4000,
            plain: 400,
            lives: 100_000,
            grow: 4000,
            repairs: 20_000,
            keep_going: false,
        }
    }
}

/// Hands out work until there is none left, does it, and says how it went.
type Source<'a> = Box<dyn Fn(&mut Explored) -> Option<Result<(), Box<Failure>>> + Sync + 'a>;

/// Long sequences in each shape of the engine and each profile in turn.
struct Long<'a> {
    engine: &'a dyn Engine,
    seed: u64,
    numbers: Numbers,
    /// Under power cuts, or compared with the model only.
    cuts: bool,
    keep_going: bool,
}

impl Long<'_> {
    fn config(&self, number: u64) -> Config {
        let shapes = self.engine.test_configurations();
        let profile = Profile::ALL[(number % Profile::ALL.len() as u64) as usize];
        let (format, mount) = shapes[(number / Profile::ALL.len() as u64 % shapes.len() as u64) as usize];
        let (format, mount) = (Options::parse(format), Options::parse(mount));
        let seed = mix(self.seed.wrapping_add(number)) >> 16;
        let base = if self.cuts { Config::crash(profile) } else { Config::new(profile) };
        let ops = match (self.cuts, profile) {
            (true, Profile::Dirs) => 600,
            (true, Profile::Churn) => 300,
            (true, _) => 40 + number as usize % 7 * 40,
            (false, _) => 3000,
        };
        // Every fifth volume has its log, or whatever else can lie apart, on a device of its own.
        let roles = self.engine.extra_devices().iter().filter(|_| number % 5 == 4);
        let extra_devices = roles.map(|role| (role.to_string(), 8 << 20)).collect();
        Config { seed, count: 1, ops, format, mount, extra_devices, keep_going: self.keep_going, ..base }
    }

    fn step(&self, done: &mut Explored) -> Option<Result<(), Box<Failure>>> {
        let number = self.numbers.take()?;
        let config = self.config(number);
        if !self.cuts {
            done.sequences += 1;
            return Some(run::try_sequences(self.engine, &config));
        }
        let base = match run::guarded(|| Base::fresh(self.engine, &config)) {
            Ok(base) => base,
            Err(e) => return Some(Err(Box::new(Failure::whole(self.engine, &config, e)))),
        };
        let ops = config.sequence(config.seed);
        Some(try_sequence(self.engine, &config, &base, &Seen::default(), &ops, config.seed, done))
    }
}

/// Runs the crash explorer and the model.
pub fn crash(engine: &dyn Engine, plan: &Plan, watch: Watch<'_>) -> Tally {
    let mut whole = Tally::default();
    let (mut spaces, mut lists, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for (n, from) in (0..).zip(From::ALL) {
        let volumes = run::guarded(|| exhaust::volumes(engine, from)).unwrap_or_else(|e| {
            whole.failures.push(format!("{}: {e}", engine.name()));
            Vec::new()
        });
        // A short run meets each way to mount, too.
        let sized = |kind, turn: u64, most| {
            let spaces = Spaces::new(engine, kind, (&volumes, n + turn), most, plan.seed);
            spaces.keep_going(plan.keep_going).share(plan.share)
        };
        spaces.push(sized(Kind::Any(1), 1, plan.singles));
        spaces.push(sized(Kind::Any(2), 2, plan.pairs));
        spaces.push(sized(Kind::Any(3), 3, plan.triples));
        if from == From::Aged {
            spaces.push(sized(Kind::Names(2), 0, plan.names));
            spaces.push(sized(Kind::Names(3), 1, plan.names));
        }
        lists.push(sized(Kind::Lists, 0, plan.singles));
        all.extend(volumes);
    }
    let long = |total, cuts| {
        let mut numbers = Numbers::below(total);
        numbers.only(plan.share);
        Long { engine, seed: plan.seed, numbers, cuts, keep_going: plan.keep_going }
    };
    let (long, plain) = (long(plan.long, true), long(plan.plain, false));
    let lives = Lives::new(engine, all, plan.lives, plan.seed).keep_going(plan.keep_going).share(plan.share);
    let grow = run::guarded(|| Grow::new(engine, plan.grow, plan.seed));
    let grow = grow.map(|g| g.keep_going(plan.keep_going).share(plan.share));
    let grow = grow.inspect_err(|e| whole.failures.push(format!("{}: {e}", engine.name())));
    let repairs = Repairs::new(engine, plan.repairs, plan.seed).keep_going(plan.keep_going).share(plan.share);
    let mut sources: Vec<Source<'_>> = spaces.iter().map(|s| Box::new(|d: &mut _| s.step(d)) as Source<'_>).collect();
    sources.push(Box::new(|d| long.step(d)));
    sources.push(Box::new(|d| plain.step(d)));
    sources.push(Box::new(|d| lives.step(d)));
    // Each of these takes long: a short run should have begun all the rest before.
    sources.extend(lists.iter().map(|s| Box::new(|d: &mut _| s.step(d)) as Source<'_>));
    sources.push(Box::new(|d| repairs.step(d)));
    if let Ok(grow) = &grow {
        sources.push(Box::new(|d| grow.step(d)));
    }
    drive(&sources, plan.time, whole, watch)
}

/// Lets the cores work at the sources until all are dry, each always at the one that has had the
/// least time.
fn drive(sources: &[Source<'_>], time: Option<Duration>, start: Tally, watch: Watch<'_>) -> Tally {
    // Nanoseconds; `u64::MAX` if it is dry.
    let spent: Vec<AtomicU64> = sources.iter().map(|_| AtomicU64::new(0)).collect();
    let poorest = || {
        let at = (0..spent.len()).min_by_key(|i| spent[*i].load(Relaxed));
        at.filter(|i| spent[*i].load(Relaxed) < u64::MAX)
    };
    let until = time.map(|t| Instant::now() + t);
    on_all_cores(start, watch, |tally, _| {
        let Some(at) = poorest().filter(|_| until.is_none_or(|u| Instant::now() < u)) else { return false };
        let (mut done, began) = (Explored::default(), Instant::now());
        match sources[at](&mut done) {
            None => spent[at].store(u64::MAX, Relaxed),
            Some(Ok(())) => {}
            Some(Err(failure)) => tally.failures.push(failure.to_string()),
        }
        tally.explored(&done);
        let took = began.elapsed().as_nanos() as u64;
        let _ = spent[at].fetch_update(Relaxed, Relaxed, |s| Some(s.saturating_add(took)));
        true
    })
}

/// Does once more what the line of a failure says (see [`Failure::line`]): the list with its cuts,
/// or with the planned cuts if it has none, or against the model only.
pub fn repeat(engine: &dyn Engine, line: &str) -> Result<(), String> {
    read(engine, line)?()
}

/// Reads the line of a failure.
pub(crate) fn read<'a>(engine: &'a dyn Engine, line: &str) -> Result<Again<'a>, String> {
    let has = |key: &str| line.split_whitespace().any(|w| w.starts_with(key));
    if has("grow=") {
        return grow::read(engine, line);
    }
    if has("repair=") || has("damage=") {
        return repair::read(engine, line);
    }
    let (head, ops) = line.split_once("ops=").ok_or("the line has no ops=")?;
    let mut config = Config { shrink_runs: 0, count: 1, ..Config::new(Profile::Sync) };
    let (mut from, mut cuts, mut first, mut by) = (From::Empty, None, None, Mender::Mount);
    config.read(head, &["seed", "profile", "size", "format", "mount", "extra"], |key, value| {
        match key {
            "from" => from = one_of(From::ALL, value)?,
            "cuts" => cuts = Some(parse_cuts(value)?),
            "by" => by = one_of(Mender::ALL, value)?,
            "first" => first = Some(First::parse(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    (config.cuts, config.by) = (cuts, by);
    let config = config.replaying(ops)?;
    Ok(Box::new(move || {
        if from == From::Empty && config.cuts.is_none() && first.is_none() {
            run::try_sequences(engine, &config).map_err(|f| f.to_string())?;
        }
        let base = run::guarded(|| exhaust::base(engine, &config, from))?;
        let (mut done, ops) = (Explored::default(), config.sequence(config.seed));
        let (base, ops) = match &first {
            None => (Some(base), ops),
            Some(first) => run::guarded(|| first.after(engine, &config, &base, &ops))?,
        };
        let Some(base) = base else { return Ok(()) };
        try_sequence(engine, &config, &base, &Seen::default(), &ops, config.seed, &mut done).map_err(|f| f.to_string())
    }))
}
