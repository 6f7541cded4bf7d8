//! Looks for the mistakes that an engine lets tests plant in it: each has to be found, and nothing where there is none.
//!
//! A mistake is first looked for with the lines of failures that have shown it before, and only then, or where failing
//! states are counted (`ARBOR_FIGURES`), at random. `ARBOR_SECONDS` is the share of time that a volume without a mistake
//! gets, 10 unless it says otherwise; each mistake gets ten shares at most. `ARBOR_FLAW` names one that is looked for
//! alone, or `none`. `ARBOR_LINES` names a file to which the line of each mistake that was found at random is added.

use crate::config::Config;
use crate::crash::try_explore;
use crate::faults;
use crate::generate::Profile;
use crate::line;
use crate::run;
use crate::tally::Tally;
use arbor_base::vfs::{Engine, Options};
use parking_lot::Mutex;
use std::fmt::{self, Debug};
use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant};

/// Mistakes are planted in the whole process.
static GARDEN: Mutex<()> = Mutex::new(());

/// The mistakes of an engine.
pub struct Planted<F: 'static> {
    /// The engine.
    pub engine: &'static dyn Engine,
    /// All of them, each with what it does.
    pub all: &'static [(F, &'static str)],
    /// Plants one, or none.
    pub plant: fn(Option<F>),
    /// Those that take longer than a test may: looked for at random only when they are named.
    pub hidden: &'static [F],
    /// Lines of failures that have shown a mistake, each after its name and a colon. Without a mistake none fails.
    pub lines: &'static str,
    /// Is told of each.
    pub note: fn(&Row),
}

/// What came of looking for one.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name, or `none`.
    pub mistake: String,
    /// What it does.
    pub text: &'static str,
    /// Failures.
    pub found: u64,
    /// What was tried, in all.
    pub tried: u64,
    /// States, schedules or faults.
    pub what: &'static str,
    /// The counts.
    pub tally: Tally,
}

/// Whether failing states are counted for the figures: then all are tried, and lines prove nothing.
pub fn counting() -> bool {
    std::env::var_os("ARBOR_FIGURES").is_some()
}

/// How often a list that shows a mistake may be run to make it shorter: where its line is recorded.
pub fn shrink_runs() -> usize {
    if std::env::var_os("ARBOR_LINES").is_some() { 300 } else { 0 }
}

impl<F> fmt::Debug for Planted<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planted").field("mistakes", &self.all.len()).finish_non_exhaustive()
    }
}

impl Row {
    fn new(mistake: String, text: &'static str, tally: Tally) -> Row {
        let tried = [(tally.distinct_states, "states"), (tally.faults, "faults"), (tally.schedules, "schedules")];
        let (tried, what) = tried.into_iter().find(|t| t.0 > 0).unwrap_or((0, "states"));
        Row { mistake, text, found: found(&tally), tried, what, tally }
    }

    /// Adds the line of the first failure to the file that `ARBOR_LINES` names.
    fn record(&self) {
        let line = self.tally.failures.iter().find_map(|f| Some(f.split_once("--repeat '")?.1.rsplit_once('\'')?.0));
        let (Some(path), Some(line)) = (std::env::var_os("ARBOR_LINES"), line) else { return };
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("ARBOR_LINES can be opened");
        writeln!(file, "{}: {line}", self.mistake).expect("ARBOR_LINES can be written");
    }
}

/// How many failures a tally has.
pub fn found(tally: &Tally) -> u64 {
    tally.failed_states + tally.failures.len() as u64
}

/// The number of the invariant that trips on a mistake, by its text.
fn tripped(text: &str) -> Option<&str> {
    text.split_once("Trips ")?.1.split('.').next()
}

/// Rounds of operations in which an invariant trips on a mistake, at most.
const ROUNDS: u64 = 4;

/// What broken invariant the first panic of operations tells of: in each shape of the engine, in so many rounds.
fn first_panic(engine: &dyn Engine, rounds: u64) -> Option<String> {
    let profiles = [Profile::Big, Profile::Sync, Profile::Small, Profile::Churn];
    for (seed, profile) in (1..=rounds).zip(profiles) {
        for (format, mount) in engine.test_configurations() {
            let (format, mount) = (Options::parse(format), Options::parse(mount));
            let config = Config { seed, count: 1, ops: 400, shrink_runs: 0, format, mount, ..Config::new(profile) };
            let config = Config { device_size: config.device_size.min(24 << 20), ..config };
            let failure = run::try_sequences(engine, &config).err().map(|f| f.to_string());
            if let Some(found) = failure.filter(|f| f.contains("does not hold")) {
                return Some(found.lines().find(|l| l.contains("does not hold")).unwrap_or_default().to_string());
            }
        }
    }
    None
}

/// Lets the crash explorer look at sequences of all of these kinds, on a mount with these options, until one fails or the
/// time is up.
pub fn explore(engine: &dyn Engine, mount: &str, profiles: &[Profile], time: Duration) -> Tally {
    let (began, mut tally) = (Instant::now(), Tally::default());
    for seed in 1.. {
        for profile in profiles {
            let mount = Options::parse(mount);
            let config = Config { seed, count: 1, shrink_runs: shrink_runs(), mount, ..Config::crash(*profile) };
            match run::guarded(|| try_explore(engine, &config).map_err(|failure| failure.to_string())) {
                Ok(done) => tally.distinct_states += done.distinct,
                Err(failure) => tally.failures.push(failure),
            }
            if !tally.failures.is_empty() || began.elapsed() > time {
                return tally;
            }
        }
    }
    tally
}

/// Explores volumes of one's own from other seeds again and again, until a state fails or the time is up.
pub fn explore_volumes(engine: &dyn Engine, volumes: &[Config], time: Duration) -> Tally {
    let (began, mut tally, mut seed) = (Instant::now(), Tally::default(), 1);
    while began.elapsed() < time {
        for config in volumes {
            let config = Config { seed, count: config.count.min(2), shrink_runs: shrink_runs(), ..config.clone() };
            match run::guarded(|| try_explore(engine, &config).map_err(|failure| failure.to_string())) {
                Ok(done) => tally.distinct_states += done.distinct,
                Err(failure) => return Tally { failures: vec![failure], ..tally },
            }
        }
        seed += 1000;
    }
    tally
}

/// Lets faults of the device strike until one shows a mistake or the time is up.
pub fn explore_faults(engine: &dyn Engine, time: Duration) -> Tally {
    let began = Instant::now();
    faults::run(engine, 1, u64::MAX, &mut |tally| found(tally) == 0 && began.elapsed() < time)
}

fn name(flaw: Option<impl Debug>) -> String {
    flaw.map_or_else(|| "none".to_string(), |f| format!("{f:?}"))
}

impl<F: Copy + Debug + PartialEq> Planted<F> {
    /// Lets `look` look for none and for each mistake that is `here` and no line shows, for so long; panics with the names
    /// of those that were missed, and at lines that say nothing.
    pub fn each_is_found(&self, here: impl Fn(F) -> bool, look: impl Fn(Option<F>, Duration) -> Tally) {
        let _alone = GARDEN.lock();
        for (mistake, line) in self.lines() {
            assert!(self.all.iter().any(|f| format!("{:?}", f.0) == mistake), "{mistake}: no such mistake");
            let _: line::Again<'_> = line::read(self.engine, line).unwrap_or_else(|e| panic!("{mistake}: {line}: {e}"));
        }
        let share = Duration::from_secs(crate::config::number_from_env("ARBOR_SECONDS").unwrap_or(10));
        let asked = self.asked(std::env::var("ARBOR_FLAW").ok().as_deref(), here);
        if !asked.is_empty() {
            eprintln!("{:<20} {:>7} of {:>8} {:<9} {:>7}  what it does", "mistake", "failing", "tried", "", "seconds");
        }
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let missed: Vec<String> =
            asked.into_iter().filter_map(|(flaw, text)| self.missed(flaw, text, share, &look)).collect();
        (self.plant)(None);
        std::panic::set_hook(hook);
        assert_eq!(missed, Vec::<String>::new(), "missed, or found where there is none");
    }

    /// Plants each mistake whose text says which numbered invariant trips on it (`Trips FFS-A2.`), and lets the engine run
    /// operations in each of its shapes, with its invariants executed, until one panics with that number. None trips
    /// without a mistake.
    pub fn invariants_trip(&self) {
        let _alone = GARDEN.lock();
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        arbor_base::invariants::execute_always(true);
        let mut missed = Vec::new();
        for (flaw, number) in self.all.iter().filter_map(|(flaw, text)| Some((*flaw, tripped(text)?))) {
            (self.plant)(Some(flaw));
            let tripped = first_panic(self.engine, ROUNDS);
            if !tripped.as_ref().is_some_and(|found| found.contains(&format!("{number} does not hold"))) {
                missed.push(format!("{flaw:?}: {tripped:?} instead of {number}"));
            }
        }
        (self.plant)(None);
        missed.extend(first_panic(self.engine, 1));
        arbor_base::invariants::execute_always(false);
        std::panic::set_hook(hook);
        assert_eq!(missed, Vec::<String>::new(), "mistakes on which no invariant trips");
    }

    /// None and the mistakes that are `here` and not hidden, or shown by a line; the one that is named, if one is.
    pub fn asked(&self, only: Option<&str>, here: impl Fn(F) -> bool) -> Vec<(Option<F>, &'static str)> {
        let mistakes = self.all.iter().map(|f| (Some(f.0), f.1));
        let all: Vec<_> = [(None, "none is planted")].into_iter().chain(mistakes).collect();
        if let Some(only) = only
            && !all.iter().any(|f| name(f.0) == only)
        {
            let known: Vec<String> = all.iter().map(|f| name(f.0)).collect();
            panic!("no such mistake: {only}, known: {}", known.join(", "));
        }
        let lined = |f: F| self.lines().any(|l| l.0 == format!("{f:?}"));
        let is_asked = |flaw: Option<F>| match only {
            Some(only) => name(flaw) == only,
            None => flaw.is_none_or(|f| !self.hidden.contains(&f) || lined(f)),
        };
        all.into_iter().filter(|(flaw, _)| flaw.is_none_or(&here) && is_asked(*flaw)).collect()
    }

    /// Names of mistakes, each with a line that shows it.
    fn lines(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.lines.lines().filter(|l| !l.starts_with('#')).filter_map(|l| l.split_once(": "))
    }

    /// What the lines of a mistake show; without one all of them are repeated.
    fn shown(&self, flaw: Option<F>) -> Tally {
        let mine = self.lines().filter(|(mistake, _)| flaw.is_none() || *mistake == name(flaw));
        let failure = mine.filter_map(|(_, line)| line::repeat(self.engine, line).unwrap_or_else(Err).err()).next();
        Tally { failures: failure.into_iter().collect(), ..Tally::default() }
    }

    /// Plants one and looks for it; its name, if that does not end as it should.
    fn missed(
        &self,
        flaw: Option<F>,
        text: &'static str,
        share: Duration,
        look: impl Fn(Option<F>, Duration) -> Tally,
    ) -> Option<String> {
        (self.plant)(flaw);
        let (began, named) = (Instant::now(), std::env::var_os("ARBOR_FLAW").is_some());
        let shown = if counting() { Tally::default() } else { self.shown(flaw) };
        let row = if found(&shown) > 0 {
            Row { tried: 1, what: "line", ..Row::new(name(flaw), text, shown) }
        } else if flaw.is_some_and(|f| self.hidden.contains(&f)) && !named {
            Row { what: "line", ..Row::new(name(flaw), text, shown) }
        } else {
            let tally = look(flaw, if flaw.is_none() { share } else { 10 * share });
            let row = Row::new(name(flaw), text, tally);
            row.record();
            row
        };
        let Row { mistake, found, tried, what, .. } = &row;
        let seconds = began.elapsed().as_secs_f64();
        eprintln!("{mistake:<20} {found:>7} of {tried:>8} {what:<9} {seconds:>7.1} {text}");
        if let Some(failure) = row.tally.failures.first().filter(|_| flaw.is_none()) {
            eprintln!("{failure}");
        }
        (self.note)(&row);
        ((row.found == 0) != flaw.is_none()).then_some(row.mistake)
    }
}
