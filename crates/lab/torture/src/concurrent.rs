//! Several tasks on one volume: every result must be what some order of the calls gives.
//!
//! A [`Program`] of two or three tasks runs under `shuttle`, which decides at every lock of the
//! engine and at every operation of the device who goes on (see [`arbor_base::sync`]). What must
//! hold, for each schedule:
//!
//! * no deadlock, no panic, no end of the steps;
//! * *linearizability*: there is an order of the calls, each between its beginning and its end,
//!   in which the model gives the same results and ends with the same tree;
//! * the *oracle* holds for one of these orders when the power is cut at some event of the device;
//! * after unmounting, the checker finds nothing.
//!
//! Calls of several steps (see [`FileSystem`]) meet in some programs what lies in the same file:
//! there contents and the power cut are asked less.

mod daemon;
mod history;
mod program;
mod schedule;

pub use daemon::beside_the_daemon;
pub use history::Call;
pub use program::Program;

use crate::compare;
use crate::config::{self, BEGIN, Config, exact_shapes};
use crate::crash::{Base, From};
use crate::exec::{Outcome, Side, agree};
use crate::exhaust;
use crate::generate::Profile;
use crate::line::{Again, number, one_of};
use crate::model::{Model, State};
use crate::ops::{Op, parse};
use crate::rng::{Rng, mix};
use crate::run::{World, check_clean, guarded, mount, opener};
use crate::tally::{Tally, Watch, on_all_cores};
use arbor_base::device::{CrashChoice, MemDevice, RecordingDevice};
use arbor_base::sync::refereed;
use arbor_base::vfs::{Engine, FileSystem, ManualClock, Options, Repair};
use history::{Search, by_system_call, half_way, oracle};
use parking_lot::Mutex;
use schedule::{Leisurely, Picks, Shuttle};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Schedules of each program.
const SCHEDULES: u64 = 12;
/// Power cuts of each schedule.
const CUTS: usize = 2;
/// Schedules that a smaller program gets to fail in.
const SHRINK_SCHEDULES: u64 = 400;
/// Time after which a failing case is small enough: nobody who gave a run some seconds waits for minutes.
const SHRINK_TIME: Duration = Duration::from_secs(15);

/// A program on a volume under one schedule: all that repeats a failure.
#[derive(Clone, Debug)]
pub struct Case {
    /// Shape and size of the volume.
    pub config: Config,
    /// The volume it begins on.
    pub from: From,
    /// What the tasks do.
    pub program: Program,
    /// Seed of the schedule, and of the power cuts.
    pub schedule: u64,
}

/// The text that [`read`] reads.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { config, from, program, schedule } = self;
        let volume = config::volume_words(&config.format, &config.mount, &config.extra_devices, *from);
        write!(f, "schedule={schedule} size={}{volume} {program}", config.device_size)
    }
}

impl Case {
    fn parse(line: &str) -> Result<Case, String> {
        let at = line.find("setup=").ok_or("the line has no setup=")?;
        let (head, program) = line.split_at(at);
        let mut case = Case { config: config(), from: From::Empty, program: program.parse()?, schedule: 0 };
        let (from, schedule) = (&mut case.from, &mut case.schedule);
        case.config.read(head, &["size", "format", "mount", "extra"], |key, value| {
            match key {
                "from" => *from = one_of(From::ALL, value)?,
                "schedule" => *schedule = number(value)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(case)
    }
}

fn config() -> Config {
    Config { compare_every: usize::MAX, ..Config::new(Profile::Sync) }
}

/// A volume of one shape, made once.
struct Ground {
    config: Config,
    from: From,
    base: Base,
}

/// Makes programs and tries each under a few schedules, on all cores, until `most` schedules are
/// through or `watch` says no.
pub fn run(engine: &'static dyn Engine, seed: u64, most: u64, keep_going: bool, watch: Watch<'_>) -> Tally {
    if !engine.overlaps_calls() {
        return Tally::default();
    }
    let mut grounds = Vec::new();
    for (format, mount) in exact_shapes(engine) {
        for from in [From::Empty, From::Aged] {
            let config = Config { format: Options::parse(format), mount: Options::parse(mount), ..config() };
            match guarded(|| exhaust::base(engine, &config, from)) {
                Ok(base) => grounds.push(Arc::new(Ground { config, from, base })),
                Err(e) => return Tally { failures: vec![format!("{}: {e}", engine.name())], ..Tally::default() },
            }
        }
    }
    let next = AtomicU64::new(0);
    on_all_cores(Tally::default(), watch, |tally, _| {
        let number = next.fetch_add(1, Relaxed);
        let more = number.saturating_mul(SCHEDULES) < most;
        if more {
            one(engine, &grounds, seed, number, keep_going, tally);
        }
        more
    })
}

/// One program under a few schedules.
fn one(
    engine: &'static dyn Engine,
    grounds: &[Arc<Ground>],
    seed: u64,
    number: u64,
    keep_going: bool,
    tally: &mut Tally,
) {
    // Half of the programs run on the plain volume, the others on each shape in turn.
    let ground = &grounds[if number.is_multiple_of(2) { 0 } else { (number / 2) as usize % grounds.len() }];
    let drawn = mix(seed.wrapping_add(mix(number))) >> 16;
    let program = Program::draw(drawn);
    let seeds = (0..SCHEDULES).map(|n| mix(drawn.wrapping_add(n)) >> 16).collect();
    tally.sequences += 1;
    if let Err((schedule, message)) = explore(engine, ground, &program, seeds, keep_going, tally) {
        let case = Case { config: ground.config.clone(), from: ground.from, program, schedule };
        tally.failures.push(report(engine, ground, case, message));
    }
}

/// Makes a failing case smaller and says how to repeat it.
fn report(engine: &'static dyn Engine, ground: &Arc<Ground>, mut case: Case, mut message: String) -> String {
    let began = Instant::now();
    'again: loop {
        for smaller in smaller(&case.program) {
            if began.elapsed() > SHRINK_TIME {
                break;
            }
            let seeds = (0..SHRINK_SCHEDULES).map(|n| mix(case.schedule.wrapping_add(n)) >> 16).collect();
            if let Err((schedule, text)) = explore(engine, ground, &smaller, seeds, false, &mut Tally::default()) {
                (case.program, case.schedule, message) = (smaller, schedule, text);
                continue 'again;
            }
        }
        let name = engine.name();
        return format!("{name}: {message}\n  repeat with: arbor torture -t {name} --repeat '{case}'");
    }
}

/// The program without one of its operations.
fn smaller(program: &Program) -> Vec<Program> {
    let mut all = Vec::new();
    for (t, task) in program.tasks.iter().enumerate() {
        for n in 0..task.len() {
            let mut less = program.clone();
            less.tasks[t].remove(n);
            less.tasks.retain(|t| !t.is_empty());
            if less.tasks.len() > 1 {
                all.push(less);
            }
        }
    }
    for n in 0..program.setup.len() {
        let mut less = program.clone();
        less.setup.remove(n);
        all.push(less);
    }
    all
}

/// Reads the line of a failure.
pub(crate) fn read(engine: &'static dyn Engine, line: &str) -> Result<Again<'static>, String> {
    let Case { config, from, program, schedule } = Case::parse(line)?;
    Ok(Box::new(move || {
        let base = guarded(|| exhaust::base(engine, &config, from))?;
        let ground = Arc::new(Ground { config, from, base });
        let done = explore(engine, &ground, &program, vec![schedule], false, &mut Tally::default());
        done.map_err(|(_, message)| message)
    }))
}

/// Runs the programs of lines that failed once, each under `schedules` schedules; panics on failure.
pub fn regressions(engine: &'static dyn Engine, lines: &str, schedules: u64) {
    for line in lines.lines().filter(|l| !l.trim().is_empty()) {
        let Case { config, from, program, schedule } = Case::parse(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let base = guarded(|| exhaust::base(engine, &config, from)).unwrap_or_else(|e| panic!("{line}: {e}"));
        let ground = Arc::new(Ground { config, from, base });
        let seeds = (0..schedules).map(|n| schedule.wrapping_add(n)).collect();
        let done = explore(engine, &ground, &program, seeds, false, &mut Tally::default());
        done.unwrap_or_else(|(seed, message)| panic!("schedule {seed} of {line}: {message}"));
    }
}

/// Runs `program` under the schedules of `seeds` until one fails, or counts those that fail.
fn explore(
    engine: &'static dyn Engine,
    ground: &Arc<Ground>,
    program: &Program,
    seeds: Vec<u64>,
    keep_going: bool,
    tally: &mut Tally,
) -> Result<(), (u64, String)> {
    let now = Arc::new(AtomicU64::new(0));
    let found: Arc<Mutex<Found>> = Arc::default();
    let picks = {
        let found = found.clone();
        Picks::new(seeds, now.clone(), move || found.lock().failure.is_some())
    };
    let mut limits = shuttle::Config::new();
    limits.stack_size = 512 << 10;
    limits.failure_persistence = shuttle::FailurePersistence::None;
    limits.max_steps = shuttle::MaxSteps::FailAfter(200_000);
    limits.silence_warnings = true;
    let execution = {
        let (ground, program, found, now) = (ground.clone(), Arc::new(program.clone()), found.clone(), now.clone());
        move || {
            let done = guarded(|| execute(engine, &ground, &program, now.load(Relaxed)));
            let mut found = found.lock();
            found.schedules += 1;
            match done {
                Ok(states) => found.crash_states += states,
                Err(_) if keep_going => found.failed += 1,
                Err(e) => found.failure = Some(e),
            }
        }
    };
    let ran = refereed(Rc::new(Shuttle), || {
        guarded(|| {
            shuttle::Runner::new(picks, limits).run(execution);
            Ok(())
        })
    });
    schedule::end();
    let mut found = found.lock();
    tally.schedules += found.schedules;
    tally.crash_states += found.crash_states;
    tally.failed_states += found.failed;
    match found.failure.take().or(ran.err()) {
        Some(message) => Err((now.load(Relaxed), message)),
        None => Ok(()),
    }
}

/// What has come of the schedules of a program.
#[derive(Default)]
struct Found {
    failure: Option<String>,
    schedules: u64,
    crash_states: u64,
    failed: u64,
}

/// What has come of the tasks.
struct Ran {
    calls: Vec<Vec<Call>>,
    /// The model and the sides as they stood before the tasks began.
    model: Arc<Model>,
    sides: Vec<Side>,
    begin: State,
}

/// One schedule, from mounting to the checks; says how many power cuts were tried.
fn execute(engine: &'static dyn Engine, ground: &Ground, program: &Program, seed: u64) -> Result<u64, String> {
    let recorder = RecordingDevice::new(ground.base.disk());
    let open = opener(&ground.config, Leisurely(recorder.clone()));
    let prepared = Prepared::new(ground.base.world(engine, &ground.config, open)?, program)?;
    let Prepared { world, tasks, sides, begin } = prepared;
    let fs = world.side.fs.clone();
    let began = recorder.events();
    // Before and after, one task is alone: no need to ask who goes on.
    schedule::begin();
    let calls = run_tasks(tasks, &world.clock, &recorder);
    schedule::end();
    let ran = Ran { begin, calls: calls?, model: world.model.clone(), sides };
    let cuts = draw_cuts(&recorder, began, recorder.events(), seed);
    Ends { engine, config: &ground.config, fs: &*fs, recorder: &recorder, cuts: &cuts }.all(program, &ran)?;
    Ok(cuts.len() as u64)
}

/// A volume on which a program may begin.
struct Prepared<'e> {
    world: World<'e>,
    /// What each task works with, and what it does.
    tasks: Vec<(Side, Vec<Op>)>,
    /// The same of the model, for each task.
    sides: Vec<Side>,
    begin: State,
}

impl<'e> Prepared<'e> {
    fn new(mut world: World<'e>, program: &Program) -> Result<Prepared<'e>, String> {
        for op in &program.setup {
            world.step(op).map_err(|e| format!("setup ({op}): {e}"))?;
        }
        // What the power cut may take begins here.
        world.step(&Op::Syncfs {})?;
        let (fs, model) = (world.side.fs.clone(), world.model.clone());
        let slots = parse(program::SLOTS)?;
        let held = |fs: Arc<dyn FileSystem>| {
            let mut side = Side::new(fs);
            slots.iter().for_each(|op| drop(side.apply(op)));
            side
        };
        let sides = program.tasks.iter().map(|_| held(model.clone())).collect();
        let tasks = program.tasks.iter().map(|ops| (held(fs.clone()), ops.clone())).collect();
        Ok(Prepared { begin: model.state(), world, tasks, sides })
    }
}

/// Lets the tasks run, and collects what each call was told.
fn run_tasks(
    tasks: Vec<(Side, Vec<Op>)>,
    clock: &Arc<ManualClock>,
    recorder: &RecordingDevice,
) -> Result<Vec<Vec<Call>>, String> {
    let moments = Arc::new(AtomicU64::new(0));
    let spawn = |(mut side, ops): (Side, Vec<Op>)| {
        let (moments, recorder, clock) = (moments.clone(), recorder.clone(), clock.clone());
        let one = move |side: &mut Side, op: Op| timed(side, op, &clock, &moments, &recorder);
        shuttle::thread::spawn(move || guarded(|| Ok(ops.into_iter().map(|op| one(&mut side, op)).collect())))
    };
    let handles: Vec<_> = tasks.into_iter().map(spawn).collect();
    handles.into_iter().map(|h| h.join().map_err(|_| "a task panicked".to_string())?).collect()
}

/// Lets programs run on threads of the system, `programs` of them on volumes of one shape: what they are told, the
/// tree and the checker have to be as under chosen schedules. Not repeatable; panics on failure.
pub fn threads(engine: &dyn Engine, config: &Config, seed: u64, programs: u64) {
    let base = guarded(|| exhaust::base(engine, config, From::Empty)).unwrap_or_else(|e| panic!("{e}"));
    for number in 0..programs {
        let program = Program::draw(mix(seed.wrapping_add(mix(number))) >> 16);
        guarded(|| on_threads(engine, config, &base, &program)).unwrap_or_else(|e| panic!("{e}\n  {program}"));
    }
}

fn on_threads(engine: &dyn Engine, config: &Config, base: &Base, program: &Program) -> Result<(), String> {
    let recorder = RecordingDevice::new(base.disk());
    let prepared = Prepared::new(base.world(engine, config, opener(config, recorder.clone()))?, program)?;
    let Prepared { world, tasks, sides, begin } = prepared;
    let (moments, clock) = (AtomicU64::new(0), &*world.clock);
    let calls: Result<_, String> = std::thread::scope(|s| {
        let run = |(mut side, ops): (Side, Vec<Op>)| {
            let (moments, recorder) = (&moments, &recorder);
            s.spawn(move || {
                let all = ops.into_iter().map(|op| timed(&mut side, op, clock, moments, recorder));
                guarded(|| Ok(all.collect::<Vec<_>>()))
            })
        };
        let handles: Vec<_> = tasks.into_iter().map(run).collect();
        handles.into_iter().map(|h| h.join().map_err(|_| "a thread panicked".to_string())?).collect()
    });
    let (fs, ran) = (world.side.fs.clone(), Ran { calls: calls?, model: world.model.clone(), sides, begin });
    drop(world);
    Ends { engine, config, fs: &*fs, recorder: &recorder, cuts: &[] }.all(program, &ran)
}

/// Carries a call of a task out.
fn timed(side: &mut Side, op: Op, clock: &ManualClock, moments: &AtomicU64, recorder: &RecordingDevice) -> Call {
    let (start, begin) = (moments.fetch_add(1, SeqCst), recorder.events());
    let outcome = apply(side, &op, clock);
    let (end, done) = (moments.fetch_add(1, SeqCst), recorder.events());
    Call { op, outcome, span: (start, end), events: (begin, done) }
}

fn apply(side: &mut Side, op: &Op, clock: &ManualClock) -> Outcome {
    use arbor_base::vfs::Clock;
    match op {
        Op::Background { ms } => {
            side.fs.background(clock.now().plus_ms(*ms));
            Outcome::Done
        }
        _ => side.apply(op),
    }
}

fn draw_cuts(recorder: &RecordingDevice, began: usize, ended: usize, seed: u64) -> Vec<(usize, CrashChoice)> {
    let mut rng = Rng::new(mix(seed));
    let mut cut = |n: usize| {
        // The end is where most has been promised.
        let at = if n == 0 { ended } else { began + rng.below((ended - began) as u64 + 1) as usize };
        let choice = match rng.below(4) {
            0 => CrashChoice::AllKept,
            1 => CrashChoice::Seeded(rng.next_u64() >> 32),
            _ => CrashChoice::NoneKept,
        };
        (at.min(recorder.events()), choice)
    };
    (0..CUTS).map(&mut cut).collect()
}

/// What a schedule leaves: the volume as it is, and after power cuts.
struct Ends<'a> {
    engine: &'a dyn Engine,
    config: &'a Config,
    fs: &'a dyn FileSystem,
    recorder: &'a RecordingDevice,
    cuts: &'a [(usize, CrashChoice)],
}

/// A power cut: after so many events, with this fate of what was pending; and what it leaves.
type Recovered<'a> = (usize, &'a CrashChoice, Arc<dyn FileSystem>);

impl Ends<'_> {
    /// All that has to hold, up to the unmount.
    fn all(&self, program: &Program, ran: &Ran) -> Result<(), String> {
        if let Some(why) = self.fs.failure() {
            return Err(format!("the engine has given up: {why}"));
        }
        if program.is_exact() { self.verify(ran) } else { self.verify_loosely(ran) }?;
        self.fs.unmount().map_err(|e| format!("unmount: {e}"))?;
        check_clean(self.engine, self.config.devices(self.recorder), Repair::No)
    }

    /// Looks for an order of the calls that explains everything.
    fn verify(&self, ran: &Ran) -> Result<(), String> {
        let mut left = self.recovered()?;
        let (mut explained, mut why) = (false, String::new());
        let mut search = Search::new(&ran.calls, agree);
        let content = search.run(ran.model.clone(), clones(ran), &mut |order, state| {
            if let Err(e) = compare::tree(self.fs, state) {
                if !explained {
                    why = e;
                }
                return false;
            }
            explained = true;
            let oracle = oracle(ran.begin.clone(), order);
            left.retain(|(at, choice, fs)| match oracle.verify(&**fs, *at) {
                Ok(()) => false,
                Err(e) => {
                    why = format!("power cut after event {at} ({choice:?}): {e}");
                    true
                }
            });
            left.is_empty()
        });
        let what = if explained { "no order explains the disk" } else { "no order of the calls explains the results" };
        if content { Ok(()) } else { Err(report_order(what, &why, &search, ran)) }
    }

    /// The volumes that the power cuts leave.
    fn recovered(&self) -> Result<Vec<Recovered<'_>>, String> {
        let recover = |(at, choice): &'_ (usize, CrashChoice)| {
            let disk = self.recorder.crash_state(*at, choice);
            self.check(&disk, (at, choice))?;
            let clock = Arc::new(ManualClock::new(BEGIN));
            mount(self.engine, self.config, self.config.devices(&disk), &clock).map_err(|e| format!("cut at {at}: {e}"))
        };
        self.cuts.iter().map(|cut| Ok((cut.0, &cut.1, recover(cut)?))).collect()
    }

    /// Whether the checker finds nothing after a power cut.
    fn check(&self, disk: &MemDevice, (at, choice): (&usize, &CrashChoice)) -> Result<(), String> {
        let checked = check_clean(self.engine, self.config.devices(disk), Repair::No);
        checked.map_err(|e| format!("power cut after event {at} ({choice:?}): {e}"))
    }

    /// The same for calls of several steps: names, attributes and lengths in the end, and that
    /// every power cut leaves a sound volume.
    fn verify_loosely(&self, ran: &Ran) -> Result<(), String> {
        for (at, choice) in self.cuts {
            self.check(&self.recorder.crash_state(*at, choice), (at, choice))?;
        }
        let is = compare::observe(self.fs)?;
        // How much is copied depends on how long the source is at each step.
        let copies = ran.calls.iter().flatten().any(|c| matches!(c.op, Op::Copy { .. }));
        let lengths = |tree: &compare::Tree| tree.files.values().map(|f| f.0).collect::<Vec<_>>();
        let mut why = String::new();
        let mut search = Search::new(&ran.calls, half_way);
        let content = search.run(ran.model.clone(), clones(ran), &mut |_, state| {
            let should = compare::expected(state);
            why = is.difference(&should).unwrap_or_default();
            if why.is_empty() && !copies && lengths(&is) != lengths(&should) {
                why = format!("files of {:?} bytes, should have {:?}", lengths(&is), lengths(&should));
            }
            why.is_empty()
        });
        let what = "no order of the calls explains names, attributes and lengths";
        if content { Ok(()) } else { Err(report_order(what, &why, &search, ran)) }
    }
}

fn report_order(what: &str, why: &str, search: &Search<'_>, ran: &Ran) -> String {
    let longest: Vec<String> = search.best.iter().map(usize::to_string).collect();
    format!("{what}: {why}\n{}  longest order that agrees, by task: {}", told(&ran.calls), longest.join(" "))
}

fn clones(ran: &Ran) -> Vec<Side> {
    ran.sides.iter().map(|s| s.fork(ran.model.clone())).collect()
}

/// Whether some order of `tasks` gives what they were told, on an empty volume after `setup`; for
/// calls that were made elsewhere, as by processes on a mount. Of calls that make something it is
/// enough that they say so.
pub fn explain(setup: &[Op], tasks: &[Vec<Call>]) -> Result<(), String> {
    let model = Arc::new(Model::new(State::new((0, 0), BEGIN), Arc::new(ManualClock::new(BEGIN))));
    let mut first = Side::new(model.clone());
    setup.iter().for_each(|op| drop(first.apply(op)));
    let sides = tasks.iter().map(|_| Side::new(model.clone())).collect();
    match Search::new(tasks, by_system_call).run(model, sides, &mut |_, _| true) {
        true => Ok(()),
        false => Err(format!("no order of the calls explains the results:\n{}", told(tasks))),
    }
}

/// What each task saw, for a report.
fn told(calls: &[Vec<Call>]) -> String {
    let mut text = String::new();
    for (task, calls) in calls.iter().enumerate() {
        for call in calls {
            let (start, end) = call.span;
            text += &format!(
                "  task {task}, {start:>2} to {end:>2}: {} -> {}\n",
                call.op,
                crate::run::brief(&call.outcome)
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_parse_back() {
        let mut case = Case { config: config(), from: From::Aged, program: Program::draw(3), schedule: 77 };
        case.config.mount = Options::parse("cache=1M");
        assert_eq!(Case::parse(&case.to_string()).map(|c| c.to_string()), Ok(case.to_string()));
        assert!(Case::parse("schedule=1").is_err());
    }
}
