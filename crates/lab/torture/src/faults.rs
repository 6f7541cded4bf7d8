//! Faults of the device while the file system runs: every operation of the device fails in its
//! turn, in every way that [`Fault`] knows, and the file system has to bear it.
//!
//! A sequence runs once without faults, to count the operations of the device. Then it runs
//! again for each of them, with the model beside it, until a call fails. What must hold:
//!
//! * **Honest faults** (errors, torn writes, a full host, late writes, flushes that fail and
//!   forget): no call gives a wrong result. A call that fails because of the device fails with
//!   `EIO`, or with `EROFS` if [`FileSystem::failure`] says why, and it has been done, or not, or
//!   left each byte old or new. Late writes and refused discards show nowhere.
//! * Every fsync, syncfs and unmount that says yes is a promise, also after a failure: the
//!   medium has what it covers. So a lost write cannot be forgotten.
//! * What is read after a failure is what the file was since its last promise, or zeros, or an
//!   error: no bytes of another file.
//! * Once there is a failure, fsync and syncfs fail, changes fail with `EROFS`, unmount fails,
//!   and files that were synced and not changed since can be read.
//! * Without one, the file system goes on: what the failed call did not touch is there, and
//!   after a failed read syncfs says yes.
//! * When the device is well again, the checker finds nothing (but what was passed by, which it mends), recovery works (also when it
//!   meets a fault of its own first), and the [`oracle`](crate::oracle) holds, or as much of it as
//!   the engine promises of a power cut: then the checker may find what recovery mends, or, where
//!   nothing else is promised, has to mend it first. What an fsync or syncfs covers is there in
//!   any case.
//! * **Lies** (a bit flipped, a write that goes elsewhere or nowhere; file data is left out,
//!   which has no checksum): no panic, and the checker mends whatever is left so that it finds
//!   nothing more and the volume can be used. A flipped bit of metadata in place is seen where they
//!   have checksums ([`Engine::has_checksum`]): each call gives the right result or fails with
//!   `EUCLEAN`, and if the checker finds nothing, then nothing differs. A bit that flips while it is
//!   read leaves the volume whole.

mod against;

use crate::compare::{expected, observe, show};
use crate::config::{BEGIN, Config, Failure, volume_words};
use crate::crash::{From, hold_against, repair, use_it};
use crate::data::PAGE;
use crate::generate::Profile;
use crate::line::{Again, number, one_of, variant};
use crate::model::State;
use crate::ops::{Op, parse, print};
use crate::oracle::{Oracle, Promise, Step};
use crate::rng::{Rng, mix};
use crate::run::{World, check_clean, guarded, mount, opener};
use crate::shrink::shrink;
use crate::tally::{Tally, Watch, on_all_cores};
use against::{find, read_back, tolerable};
use arbor_base::device::{Device, Fault, FaultDevice, FaultOp, FaultTimes, Kind, MemDevice};
use arbor_base::invariants::OnDamage;
use arbor_base::vfs::{
    CheckOptions, CrashPromise, Cx, Engine, Errno, FallocMode, FileSystem, Ino, ManualClock, Options, RenameFlags,
    Repair, SetAttr, Severity, Time, XattrMode, mode,
};
use std::cell::Cell;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Fewer faults than this are a sample of several sequences, more are every fault of each.
const SAMPLE: u64 = 20_000;
/// Operations in a sequence.
const OPS: usize = 60;
/// A file that some sequences begin with, larger than the cache: whoever reads it drives out what is clean.
const FILLER: &str = "/filler";

/// A fault and the operation that it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Sort of operation.
    pub op: FaultOp,
    /// Its number, from 1 since before the mount.
    pub nth: u64,
    /// How often.
    pub times: FaultTimes,
    /// What happens.
    pub fault: Fault,
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The volume is unmounted when the sequence is through.
    Unmount,
    /// The power is cut when the sequence is through.
    Cut,
    /// The power is cut after the first promise of durability that follows the fault.
    Promise,
}

/// A run with a fault, and all that repeats it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Profile, shape and size of the volume.
    pub config: Config,
    /// The fault.
    pub planned: Planned,
    /// How it ends, if no call fails.
    pub end: End,
    /// The operation of the recovery after it that fails too.
    pub again: Option<(FaultOp, u64)>,
    /// The sequence.
    pub ops: Vec<Op>,
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{}:{:?}:{:?}", self.op, self.nth, self.times, self.fault)
    }
}

fn op_named(text: &str) -> Result<FaultOp, String> {
    one_of([FaultOp::Read, FaultOp::Write, FaultOp::Discard, FaultOp::Flush, FaultOp::SetSize], text)
}

impl FromStr for Planned {
    type Err = String;

    fn from_str(text: &str) -> Result<Planned, String> {
        let words: Vec<&str> = text.split(':').collect();
        let [op, nth, times, fault] = words[..] else {
            return Err(format!("{text:?} is not OPERATION:NUMBER:TIMES:FAULT"));
        };
        let fault = variant(fault, |n| {
            [
                Fault::Error,
                Fault::Torn(n),
                Fault::Full,
                Fault::Late,
                Fault::Forgotten(n),
                Fault::Flipped(n),
                Fault::Misdirected(n),
                Fault::Lost,
            ]
        })?;
        let times = one_of([FaultTimes::Once, FaultTimes::FromThenOn], times)?;
        Ok(Planned { op: op_named(op)?, nth: number(nth)?, times, fault })
    }
}

/// The text that [`repeat`] reads.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { config, planned, end, again, ops } = self;
        let volume = volume_words(&config.format, &config.mount, &config.extra_devices, From::Empty);
        write!(f, "profile={} size={}{volume} fault={planned} end={end:?} ", config.profile, config.device_size)?;
        if let Some((op, nth)) = again {
            write!(f, "again={op:?}:{nth} ")?;
        }
        write!(f, "ops={}", print(ops))
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Case, String> {
        let (head, ops) = text.split_once("ops=").ok_or("the line has no ops=")?;
        let (mut config, mut planned, mut end, mut again) = (config(Profile::Sync), None, End::Cut, None);
        config.read(head, &["profile", "size", "format", "mount", "extra"], |key, value| {
            match key {
                "fault" => planned = Some(value.parse()?),
                "end" => end = one_of([End::Unmount, End::Cut, End::Promise], value)?,
                "again" => {
                    let (op, nth) =
                        value.split_once(':').ok_or_else(|| format!("{value:?} is not OPERATION:NUMBER"))?;
                    again = Some((op_named(op)?, number(nth)?));
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let planned = planned.ok_or("the line has no fault=")?;
        Ok(Case { config, planned, end, again, ops: parse(ops)? })
    }
}

fn config(profile: Profile) -> Config {
    Config { device_size: 24 << 20, ops: OPS, shrink_runs: 100, ..Config::crash(profile) }
}

/// Lets about `count` faults strike, on all cores; failures stand in the tally. Each sequence
/// with its faults is drawn from `seed` and its number alone.
pub fn run(engine: &dyn Engine, seed: u64, count: u64, watch: Watch<'_>) -> Tally {
    let sequences = Sequences::new(engine, seed, count);
    on_all_cores(Tally::default(), watch, |tally, stop| sequences.step(tally, stop))
}

/// Runs once more what the line of a failure says; the error is what goes wrong.
pub fn repeat(engine: &dyn Engine, line: &str) -> Result<(), String> {
    read(engine, line)?()
}

/// Reads the line of a failure.
pub(crate) fn read<'a>(engine: &'a dyn Engine, line: &str) -> Result<Again<'a>, String> {
    let case: Case = line.trim().parse()?;
    Ok(Box::new(move || {
        let base = Base::new(engine, &case.config)?;
        base.attempt(&case).map(drop).map_err(|e| e.message)
    }))
}

/// Sequences with their faults, handed out one by one; shared by threads.
pub struct Sequences<'a> {
    engine: &'a dyn Engine,
    seed: u64,
    next: AtomicU64,
    met: AtomicU64,
    total: u64,
    /// Most faults of one sequence.
    each: usize,
    lies: bool,
}

impl<'a> Sequences<'a> {
    /// About `count` faults.
    pub fn new(engine: &'a dyn Engine, seed: u64, count: u64) -> Sequences<'a> {
        let each = if count < SAMPLE { (count / 10).max(1) as usize } else { usize::MAX };
        Sequences { engine, seed, next: AtomicU64::new(0), met: AtomicU64::new(0), total: count, each, lies: true }
    }

    /// Honest faults only.
    pub fn without_lies(self) -> Sequences<'a> {
        Sequences { lies: false, ..self }
    }

    fn config(&self, number: u64) -> Config {
        const PROFILES: [Profile; 5] = [Profile::Sync, Profile::Small, Profile::Churn, Profile::Big, Profile::Full];
        let (shapes, kinds) = (self.engine.test_configurations(), PROFILES.len() as u64);
        let profile = PROFILES[(number % kinds) as usize];
        // A few sequences meet as many shapes, many meet all with each profile.
        let shape = (number / kinds + number % kinds).wrapping_add(self.seed) % shapes.len() as u64;
        let (format, mount) = shapes[shape as usize];
        let (format, mut mount) = (Options::parse(format), Options::parse(mount));
        // One of three meets a failure with a cache that can be driven empty.
        if number % 3 == 1 && mount.get("cache").is_none() {
            mount.0.push(("cache".to_string(), "1M".to_string()));
        }
        // The further devices are used by one sequence of five.
        let roles = self.engine.extra_devices().iter().filter(|_| number % 5 == 4);
        let extra_devices = roles.map(|role| (role.to_string(), 8 << 20)).collect();
        Config { seed: mix(self.seed.wrapping_add(number)) >> 16, format, mount, extra_devices, ..config(profile) }
    }

    /// Lets all faults of the next sequence strike; `false` when there were enough.
    pub fn step(&self, tally: &mut Tally, stop: &AtomicBool) -> bool {
        if self.met.load(Relaxed) >= self.total {
            return false;
        }
        let (config, before) = (self.config(self.next.fetch_add(1, Relaxed)), tally.faults);
        tally.sequences += 1;
        let base = match guarded(|| Base::new(self.engine, &config)) {
            Ok(base) => base,
            Err(e) => {
                tally.failures.push(Failure::whole(self.engine, &config, e).to_string());
                return true;
            }
        };
        let mut ops = config.sequence(config.seed);
        // A walk looks at one directory again and again; the whole tree is compared anyway.
        ops.retain(|op| !matches!(op, Op::Walk { .. }));
        ops.iter_mut().for_each(create_only);
        if let Ok(Some(cache)) = config.mount.size("cache") {
            ops.splice(0..0, filler(cache));
        }
        if let Err(text) = self.all_faults(&base, &ops, tally, stop) {
            tally.failures.push(text);
        }
        self.met.fetch_add(tally.faults - before, Relaxed);
        true
    }

    /// Tries the faults of a sequence; stops at the first failure.
    fn all_faults(&self, base: &Base<'_>, ops: &[Op], tally: &mut Tally, stop: &AtomicBool) -> Result<(), String> {
        let config = &base.config;
        let whole = |message| Failure { ops: ops.to_vec(), ..Failure::whole(self.engine, config, message) };
        let trace = base.trace(ops).map_err(|e| whole(e).to_string())?;
        let mut plan = plan(&trace, config.seed, |fault, op, kind| self.lies && may_lie(self.engine, fault, op, kind));
        Rng::new(config.seed).shuffle(&mut plan);
        plan.truncate(self.each);
        // There are more than somebody who has given a time waits for.
        for (planned, end, again) in plan.into_iter().take_while(|_| !stop.load(Relaxed)) {
            let case = Case { config: config.clone(), planned, end, again, ops: ops.to_vec() };
            match base.attempt(&case) {
                Ok(met) => tally.faults += u64::from(met),
                Err(first) => return Err(base.describe(base.smaller(case, first))),
            }
        }
        Ok(())
    }
}

/// What the device is asked during a sequence without faults.
struct Trace {
    requests: Vec<(FaultOp, Kind)>,
    /// How many of them before the unmount in the end.
    running: usize,
}

/// A case that went wrong.
struct Broken {
    /// Operations that had begun.
    begun: usize,
    message: String,
}

/// A freshly formatted volume, on which every sequence of a configuration begins.
struct Base<'a> {
    engine: &'a dyn Engine,
    config: Config,
    disk: MemDevice,
}

impl<'a> Base<'a> {
    fn new(engine: &'a dyn Engine, config: &Config) -> Result<Base<'a>, String> {
        let disk = config.memory();
        engine.format(config.devices(&disk), &config.format_options()).map_err(|e| format!("format: {e}"))?;
        Ok(Base { engine, config: config.clone(), disk })
    }

    fn trace(&self, ops: &[Op]) -> Result<Trace, String> {
        guarded(|| {
            let device = FaultDevice::new(self.disk.snapshot());
            device.record();
            let mut world = World::mount(self.engine, &self.config, opener(&self.config, device.clone()))?;
            for (i, op) in ops.iter().enumerate() {
                world.step(op).map_err(|e| format!("operation {i} ({op}): {e}"))?;
            }
            let running = device.recorded().len();
            world.side.fs.unmount().map_err(|e| format!("unmount: {e}"))?;
            Ok(Trace { requests: device.recorded(), running })
        })
    }

    fn describe(&self, (case, message): (Case, String)) -> String {
        let name = self.engine.name();
        format!("{name}: {message}\n  repeat with: arbor torture -t {name} --repeat '{case}'")
    }

    /// Shrinks the list of operations; the fault may strike at another number then.
    fn smaller(&self, case: Case, first: Broken) -> (Case, String) {
        let fails = |ops: &[Op]| {
            let trace = self.trace(ops).ok()?;
            let Planned { op, fault, .. } = case.planned;
            let sort = (1..).zip(trace.requests.iter().filter(|r| r.0 == op));
            let fitting = sort.filter(|(_, r)| !lies(fault) || may_lie(self.engine, fault, op, r.1));
            fitting.map(|(nth, _)| nth).find_map(|nth| {
                let planned = Planned { nth, ..case.planned };
                let tried = Case { planned, ops: ops.to_vec(), ..case.clone() };
                let broken = self.attempt(&tried).err()?;
                Some((tried, broken.message))
            })
        };
        let head = &case.ops[..first.begun.min(case.ops.len())];
        let found = shrink(head, self.config.shrink_runs, fails);
        found.map_or((case.clone(), first.message), |(_, found)| found)
    }

    /// Runs a case; says whether the fault was met.
    fn attempt(&self, case: &Case) -> Result<bool, Broken> {
        let mut attempt = Attempt::new(self, case);
        let _damaged = lies(case.planned.fault).then(OnDamage::begin);
        guarded(|| attempt.run()).map_err(|message| Broken { begun: attempt.begun, message })?;
        Ok(attempt.device.struck() > 0)
    }

    fn mount<D: Device + Clone + 'static>(&self, disk: &D) -> Result<Arc<dyn FileSystem>, String> {
        mount(self.engine, &self.config, self.config.devices(disk), &Arc::new(ManualClock::new(BEGIN)))
    }

    fn promise(&self) -> CrashPromise {
        self.engine.crash_promise(&self.config.mount)
    }

    /// Mounts a volume whose last mount ended in some way.
    fn recover<D: Device + Clone + 'static>(&self, disk: &D) -> Result<Arc<dyn FileSystem>, String> {
        repair(self.engine, &self.config, disk)?;
        self.mount(disk)
    }

    /// Repairs a volume, so that what was removed and could not be freed is free.
    fn give_back(&self, disk: &MemDevice) -> Result<(), String> {
        let options = CheckOptions { repair: Repair::Yes, force: true };
        let report = self.engine.check(self.config.devices(disk), &options, &mut |_, _, _| {});
        match report.map_err(|e| format!("repair: {e}"))?.remaining() {
            0 => Ok(()),
            n => Err(format!("{n} issues remain after a repair")),
        }
    }

    fn check(&self, disk: &MemDevice) -> Result<(), String> {
        check_clean(self.engine, self.config.devices(disk), Repair::No)
    }
}

/// A fault, how the run ends, and the fault of the recovery after it.
type Choice = (Planned, End, Option<(FaultOp, u64)>);

/// A file that is put may be half there after a failure: it is only created.
fn create_only(op: &mut Op) {
    if let Op::Put { path, mode, gid, .. } = op {
        *op = Op::Create { path: path.clone(), mode: *mode, gid: *gid };
    }
}

/// Makes a file that is larger than the cache, where another was on disk.
fn filler(cache: u64) -> [Op; 7] {
    let path = || FILLER.parse().expect("a path");
    let create = || Op::Create { path: path(), mode: 0o644, gid: 0 };
    let write = |tag| Op::Write { path: path(), offset: 0, len: filled(cache) as usize, tag };
    [create(), write(2), Op::Syncfs {}, Op::Unlink { path: path() }, Op::Syncfs {}, create(), write(1)]
}

/// Bytes of the filler for a cache of this size.
fn filled(cache: u64) -> u64 {
    cache + cache / 4
}

/// Reads the files that have their names in any case: none shows the bytes of another.
fn survivors(fs: &dyn FileSystem, oracle: &Oracle, at: usize, (before, after): (&State, &State)) -> Result<(), String> {
    let will = expected(after).files;
    for (path, (_, number)) in expected(before).files {
        if will.get(&path).is_none_or(|f| f.1 != number) {
            continue;
        }
        let Ok(ino) = find(fs, &path) else { continue };
        let held = oracle.verify_survivor(fs, ino, number, at);
        fs.forget(ino, 1);
        held.map_err(|e| format!("{}, after the failure{e}", show(&path)))?;
    }
    Ok(())
}

/// Every fault of a sequence: for each operation of the device what its sort knows.
fn plan(trace: &Trace, seed: u64, may_lie: impl Fn(Fault, FaultOp, Kind) -> bool) -> Vec<Choice> {
    let mut rng = Rng::new(mix(seed ^ 5));
    let mut counts = [0; 5];
    let mut out = Vec::new();
    for (at, (op, kind)) in trace.requests.iter().enumerate() {
        let nth = &mut counts[*op as usize];
        *nth += 1;
        for (times, fault) in faults_of(*op, *nth, &mut rng) {
            if lies(fault) && !may_lie(fault, *op, *kind) {
                continue;
            }
            let planned = Planned { op: *op, nth: *nth, times, fault };
            // A bit flipped in place tells most when the log has not covered it.
            let unmount = at >= trace.running || rng.one_in(2) || matches!(fault, Fault::Flipped(_)) && rng.one_in(2);
            let second = *rng.pick(&[FaultOp::Read, FaultOp::Write, FaultOp::Flush]);
            let again = (!unmount && rng.one_in(2)).then(|| (second, 1 + rng.below(10)));
            let cut = if rng.one_in(3) { End::Cut } else { End::Promise };
            out.push((planned, if unmount { End::Unmount } else { cut }, again));
        }
    }
    out
}

fn faults_of(op: FaultOp, nth: u64, rng: &mut Rng) -> Vec<(FaultTimes, Fault)> {
    use FaultTimes::{FromThenOn, Once};
    let mut out = vec![(Once, Fault::Error), (FromThenOn, Fault::Error)];
    let mut seed = || rng.next_u64() >> 40 | 1;
    match op {
        FaultOp::Read => out.push((Once, Fault::Flipped(seed()))),
        FaultOp::Write => {
            out.extend([(Once, Fault::Torn(seed())), (FromThenOn, Fault::Torn(seed())), (FromThenOn, Fault::Full)]);
            if nth % 8 == 1 {
                out.extend([(Once, Fault::Late), (FromThenOn, Fault::Late)]);
            }
            let lies = [Fault::Flipped(seed()), Fault::Flipped(seed()), Fault::Misdirected(seed()), Fault::Lost];
            out.extend(lies.map(|f| (Once, f)));
        }
        FaultOp::Flush => {
            let forgotten = [(Once, 0), (Once, seed()), (FromThenOn, seed())];
            out.extend(forgotten.map(|(times, seed)| (times, Fault::Forgotten(seed))));
        }
        FaultOp::Discard | FaultOp::SetSize => {}
    }
    out
}

/// What remains to be verified when the file system is gone.
enum Remains {
    /// The oracle of the whole run.
    History,
    /// Everything: the state before the call that failed, or after it, or between.
    Everything(Oracle),
}

/// One run of a case.
struct Attempt<'a> {
    base: &'a Base<'a>,
    case: &'a Case,
    device: FaultDevice<MemDevice>,
    begun: usize,
    /// The mount passed something by that it could not read: what was removed there is in use until a repair.
    passed_by: Cell<bool>,
}

/// Which faults the engine cannot know of.
fn lies(fault: Fault) -> bool {
    matches!(fault, Fault::Flipped(_) | Fault::Misdirected(_) | Fault::Lost)
}

/// Whether a lie about what was for this is to be tried: what is read wrong without a checksum can do any harm.
fn may_lie(engine: &dyn Engine, fault: Fault, op: FaultOp, kind: Kind) -> bool {
    let unseen = op == FaultOp::Read && matches!(fault, Fault::Flipped(_)) && !engine.has_checksum(kind);
    kind != Kind::Data && !unseen
}

impl<'a> Attempt<'a> {
    fn new(base: &'a Base<'a>, case: &'a Case) -> Attempt<'a> {
        let device = FaultDevice::new(base.disk.snapshot());
        let Planned { op, nth, times, fault } = case.planned;
        device.inject(op, nth, times, fault);
        Attempt { base, case, device, begun: 0, passed_by: Cell::new(false) }
    }

    fn run(&mut self) -> Result<(), String> {
        let Base { engine, config, .. } = self.base;
        let mut world = match World::mount(*engine, config, opener(config, self.device.clone())) {
            Ok(world) => world,
            Err(e) => {
                self.excused(&e)?;
                let fresh = self.fresh_state()?;
                return self.verify(&Oracle::new(fresh.clone()), &Remains::History, 0, &[fresh], false);
            }
        };
        world.device_fails = true;
        let mut oracle = Oracle::new(world.model.state()).under(self.base.promise());
        for (i, op) in self.case.ops.iter().enumerate() {
            self.begun = i + 1;
            let before = world.model.state();
            let file = if let Op::Fsync { path, .. } = op { world.identity(path) } else { None };
            let stepped = world.step(op);
            let promise = match (op, file, &stepped) {
                (Op::Fsync { .. }, Some(ino), Ok(true)) => Promise::File(ino),
                (Op::Syncfs {} | Op::Remount {}, _, Ok(true)) => Promise::All,
                // It was unmounted, and could not be mounted again.
                (Op::Remount {}, _, Err(e)) if e.starts_with("mount:") => Promise::All,
                _ => Promise::None,
            };
            let end = if stepped.is_ok() || promise != Promise::None { 2 * i + 1 } else { usize::MAX };
            oracle.push(Step { op: op.clone(), start: 2 * i, end, promise, replacer: None }, world.model.state());
            if let Err(e) = stepped {
                let what = format!("operation {i} ({op}): {e}");
                self.blamed(&world, &e).map_err(|wrong| format!("{what}: {wrong}"))?;
                return self.after_failure(world, &oracle, (op, before), 2 * i + 1).map_err(|e| {
                    let fault = self.case.planned;
                    format!("fault {fault} shows at {what}; then {e}")
                });
            }
            if self.case.end == End::Promise && promise != Promise::None && self.device.struck() > 0 {
                break;
            }
        }
        let fault = self.case.planned;
        self.end(world, oracle).map_err(|e| format!("fault {fault}, at the end: {e}"))
    }

    /// The state of the volume that every run begins with.
    fn fresh_state(&self) -> Result<State, String> {
        let disk = self.base.disk.snapshot();
        let world = World::mount(self.base.engine, &self.base.config, opener(&self.base.config, disk))?;
        Ok(world.model.state())
    }

    /// A mount that fails needs a fault.
    fn excused(&self, text: &str) -> Result<(), String> {
        match self.device.struck() > 0 && self.may_fail() && !text.starts_with("panic") {
            true => Ok(()),
            false => Err(text.to_string()),
        }
    }

    /// Whether a call may fail because of this fault at all.
    fn may_fail(&self) -> bool {
        self.case.planned.fault != Fault::Late && self.case.planned.op != FaultOp::Discard
    }

    /// Whether the fault leaves metadata that nothing tells from good ones.
    fn unseen(&self) -> bool {
        match self.case.planned.fault {
            Fault::Misdirected(_) | Fault::Lost => true,
            Fault::Flipped(_) => self.device.struck_kind().is_some_and(|k| !self.base.engine.has_checksum(k)),
            _ => false,
        }
    }

    /// Whether the fault explains that an operation did not do what the model did.
    fn blamed(&self, world: &World<'_>, text: &str) -> Result<(), String> {
        if self.device.struck() == 0 || !self.may_fail() {
            return Err("without a fault".to_string());
        }
        if self.unseen() {
            return Ok(());
        }
        let failed = world.side.fs.failure();
        match world.refused {
            Some(Errno::EIO) => Ok(()),
            Some(Errno::EROFS) if failed.is_some() => Ok(()),
            Some(Errno::EUCLEAN) if lies(self.case.planned.fault) => Ok(()),
            // What says what is free counts as full where it is damaged.
            Some(Errno::ENOSPC) if lies(self.case.planned.fault) && self.has_passed_by(&*world.side.fs) => Ok(()),
            Some(e) if !text.starts_with("statfs") => Err(format!("the device does not explain {e:?}")),
            None if text.starts_with("gives") => Err("the device does not explain it".to_string()),
            _ => Ok(()),
        }
    }

    fn has_passed_by(&self, fs: &dyn FileSystem) -> bool {
        self.passed_by.set(self.passed_by.get() || !fs.damage_passed_by().is_empty());
        self.passed_by.get()
    }

    /// The device as it is without faults from now on.
    fn healed(&self) -> MemDevice {
        self.device.heal();
        self.device.inner().clone()
    }

    /// A call has failed: tries what must work and what must not, ends the mount, verifies.
    fn after_failure(
        &self,
        world: World<'_>,
        oracle: &Oracle,
        (op, before): (&Op, State),
        at: usize,
    ) -> Result<(), String> {
        let mut after = world.model.state();
        let fs = world.side.fs.clone();
        if matches!(op, Op::Remount {}) {
            self.has_passed_by(&*fs);
            drop((world, fs));
            return self.verify(oracle, &Remains::History, at, &[before], false);
        }
        let mut remains = Remains::History;
        let mut well = false;
        match fs.failure() {
            Some(why) => {
                if self.case.planned.op == FaultOp::Read {
                    self.device.heal();
                }
                self.given_up(&*fs, oracle, at, (&before, &after)).map_err(|e| format!("{e} (failure: {why})"))?;
            }
            None => {
                self.device.heal();
                let mut short = Oracle::new(before.clone()).under(self.base.promise());
                // Half a copy or write is a shorter one.
                let step = Step { op: op.clone(), start: 0, end: usize::MAX, promise: Promise::None, replacer: None };
                short.push(step, after.clone());
                let lied = lies(self.case.planned.fault);
                if !lied || self.case.planned.op == FaultOp::Read {
                    short.verify(&*fs, 0).map_err(|e| format!("the call left more than a part of itself: {e}"))?;
                }
                match fs.syncfs() {
                    Ok(()) => (remains, well) = (Remains::Everything(short), true),
                    Err(e) if self.case.planned.op == FaultOp::Read => return Err(format!("syncfs: {e}")),
                    Err(_) => {}
                }
            }
        }
        if self.case.end == End::Unmount {
            match (fs.unmount(), fs.failure()) {
                (Ok(()), Some(why)) => return Err(format!("unmount says yes, the failure was: {why}")),
                (Ok(()), None) if !matches!(remains, Remains::Everything(_)) => after = before.clone(),
                (Err(e), None) if well => return Err(format!("unmount: {e}")),
                _ => {}
            }
        }
        self.has_passed_by(&*fs);
        drop((world, fs));
        let unmounted = self.case.end == End::Unmount && well;
        self.verify(oracle, &remains, at, &[before, after], unmounted)
    }

    /// What must hold while the file system is read-only for a failure.
    fn given_up(
        &self,
        fs: &dyn FileSystem,
        oracle: &Oracle,
        at: usize,
        (before, after): (&State, &State),
    ) -> Result<(), String> {
        if fs.syncfs().is_ok() {
            return Err("syncfs says yes".to_string());
        }
        fs.background(Time { secs: BEGIN.secs + 1_000_000, nanos: 0 });
        for (what, done) in changes(fs, fs.root()) {
            if done != Err(Errno::EROFS) {
                return Err(format!("{what} of the root gives {done:?}, should give EROFS"));
            }
        }
        if self.unseen() {
            return Ok(());
        }
        // Where a power cut may take anything, so may a flush that fails.
        if self.base.promise() != CrashPromise::Repairable {
            self.drive_out(fs);
            if !lies(self.case.planned.fault) {
                survivors(fs, oracle, at, (before, after))?;
            }
        }
        for (path, (_, number)) in expected(before).files.iter().take(8) {
            let promised = oracle.state(oracle.oldest_of(*number, at));
            let [was, is, will] = [promised, before, after].map(|s| s.nodes.get(number));
            let (Some(was), Some(is), Some(will)) = (was, is, will) else { continue };
            let stays =
                [promised, before, after].iter().all(|s| expected(s).files.get(path).is_some_and(|f| f.1 == *number));
            if !stays || !Arc::ptr_eq(was, is) || !Arc::ptr_eq(is, will) {
                continue;
            }
            let wrong = |e: String| format!("{}, synced before the failure: {e}", show(path));
            let ino = find(fs, path).map_err(|e| wrong(format!("lookup: {e:?}")))?;
            let read = was.data().map_or(Ok(()), |d| read_back(fs, ino, d, None, &[]));
            read.map_err(wrong)?;
            for (what, done) in changes_of_file(fs, ino, path) {
                if done != Err(Errno::EROFS) {
                    return Err(wrong(format!("{what} gives {done:?}, should give EROFS")));
                }
            }
            let synced = fs.fsync(ino, false).is_ok();
            fs.forget(ino, 1);
            if synced {
                return Err(wrong("fsync says yes".to_string()));
            }
        }
        match fs.fsync(fs.root(), false) {
            Ok(()) => Err("fsync of the root says yes".to_string()),
            Err(_) => Ok(()),
        }
    }

    /// Leaves nothing of other files in the cache that can be evicted: what is read afterwards is as the device has it.
    fn drive_out(&self, fs: &dyn FileSystem) {
        let cache = self.base.config.mount.size("cache").ok().flatten().unwrap_or(0);
        let Ok(ino) = find(fs, FILLER.as_bytes()) else { return };
        let mut page = [0; PAGE as usize];
        for at in (0..filled(cache)).step_by(PAGE as usize) {
            // What was used once gives way to what was used twice. Whether it is right does not matter: it may be lost.
            for _ in 0..2 {
                drop(fs.read(ino, at, &mut page));
            }
        }
        fs.forget(ino, 1);
    }

    /// The sequence is through.
    fn end(&self, world: World<'_>, mut oracle: Oracle) -> Result<(), String> {
        let (state, at) = (world.model.state(), 2 * self.begun);
        let honest = !lies(self.case.planned.fault);
        let mut unmounted = false;
        if self.case.end == End::Unmount {
            let done = world.side.fs.unmount();
            unmounted = done.is_ok();
            if let Err(e) = done {
                self.excused(&format!("unmount: {e}"))?;
            }
            if unmounted {
                let step = Step { op: Op::Remount {}, start: at, end: at, promise: Promise::All, replacer: None };
                oracle.push(step, state.clone());
            }
        } else if honest || self.case.planned.op == FaultOp::Read {
            self.device.heal();
            world.compare().map_err(|e| format!("in the running mount: {e}"))?;
        }
        self.has_passed_by(&*world.side.fs);
        drop(world);
        self.verify(&oracle, &Remains::History, at, &[state], unmounted)
    }

    /// Recovers what is left and holds it against what must be there. `states` are those that a
    /// volume that was `unmounted` may be in.
    fn verify(
        &self,
        oracle: &Oracle,
        remains: &Remains,
        at: usize,
        states: &[State],
        unmounted: bool,
    ) -> Result<(), String> {
        let disk = self.healed();
        let stored = lies(self.case.planned.fault) && self.case.planned.op != FaultOp::Read;
        if stored && self.device.struck() > 0 {
            return self.verify_after_lie(&disk, if unmounted && !self.unseen() { states } else { &[] });
        }
        if self.passed_by.get() {
            self.base.give_back(&disk)?;
        }
        if let Some((op, nth)) = self.case.again {
            let faulty = FaultDevice::new(disk.clone());
            faulty.fail(op, nth, FaultTimes::Once);
            match self.base.recover(&faulty) {
                Err(e) if faulty.struck() == 0 => return Err(format!("{e} (recovery, without a fault)")),
                // Such a list of files without names is passed by.
                Ok(fs) if op == FaultOp::Read && !fs.damage_passed_by().is_empty() => {
                    faulty.heal();
                    drop(fs);
                    self.base.give_back(&disk)?;
                }
                _ => faulty.heal(),
            }
        }
        let holds = |fs: &dyn FileSystem| match remains {
            Remains::History => hold_against(self.base.promise(), oracle, fs, at),
            Remains::Everything(short) => short.verify(fs, 0),
        };
        if self.base.promise() == CrashPromise::Prefix {
            let untouched = disk.snapshot();
            untouched.set_read_only(true);
            self.base.check(&untouched).map_err(|e| format!("unmounted, {e}"))?;
        }
        let fs = self.base.recover(&disk)?;
        holds(&*fs)?;
        use_it(&*fs).map_err(|e| format!("in use after recovery: {e}"))?;
        fs.unmount().map_err(|e| format!("unmount after recovery: {e}"))?;
        drop(fs);
        self.base.check(&disk)?;
        let fs = self.base.mount(&disk)?;
        holds(&*fs).map_err(|e| format!("mounted again: {e}"))
    }

    /// The medium is not as the engine left it. With `states` the volume was unmounted and a bit
    /// is wrong, so that it must be in one of them but for what fails with `EUCLEAN`.
    fn verify_after_lie(&self, disk: &MemDevice, states: &[State]) -> Result<(), String> {
        let Base { engine, config, .. } = self.base;
        let check = |disk: &MemDevice, repair| {
            let options = CheckOptions { repair, force: true };
            engine.check(config.devices(disk), &options, &mut |_, _, _| {})
        };
        let found = check(&disk.snapshot(), Repair::No).map_or(true, |report| report.remaining() > 0);
        match self.base.mount(&disk.snapshot()) {
            Err(e) if !found && self.base.promise() != CrashPromise::Repairable => {
                return Err(format!("the checker finds nothing, but {e}"));
            }
            Err(_) => {}
            Ok(fs) => {
                let mut wrong = Ok(());
                for (n, state) in states.iter().enumerate() {
                    // A call that met the damage may have been done in part: of contents each byte is old or new.
                    wrong = tolerable(&*fs, state, states.get(1 - n.min(1)), found);
                    if wrong.is_ok() {
                        break;
                    }
                }
                wrong.map_err(|e| format!("the checker finds {}: {e}", if found { "something" } else { "nothing" }))?;
                let _ = observe(&*fs);
                let _ = fs.unmount();
            }
        }
        let mended = check(disk, Repair::Yes).map_err(|e| format!("repair: {e}"))?;
        let left = check(disk, Repair::No).map_err(|e| format!("check after repair: {e}"))?;
        if let Some(issue) = left.issues.iter().find(|i| !i.repaired && i.severity > Severity::Warning) {
            let first = mended.issues.first().map_or("nothing", |i| i.code);
            return Err(format!("after repair ({first} ...) there is {}: {}", issue.code, issue.text));
        }
        let fs = self.base.mount(disk).map_err(|e| format!("after repair: {e}"))?;
        observe(&*fs).map_err(|e| format!("after repair: {e}"))?;
        use_it(&*fs).map_err(|e| format!("in use after repair: {e}"))?;
        fs.unmount().map_err(|e| format!("unmount after repair: {e}"))?;
        drop(fs);
        self.base.check(disk).map_err(|e| format!("used after repair: {e}"))
    }
}

/// Changes of a directory, each of which must be refused; what they give.
fn changes(fs: &dyn FileSystem, dir: Ino) -> Vec<(&'static str, Result<(), Errno>)> {
    let (cx, name) = (Cx::default(), b"after the failure");
    let bits = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    vec![
        ("mknod", fs.mknod(&cx, dir, name, mode::IFREG | 0o600, 0).map(drop)),
        ("mkdir", fs.mkdir(&cx, dir, name, 0o700).map(drop)),
        ("symlink", fs.symlink(&cx, dir, name, b"x").map(drop)),
        ("tmpfile", fs.tmpfile(&cx, dir, 0o600).map(drop)),
        ("unlink", fs.unlink(dir, name)),
        ("rmdir", fs.rmdir(dir, name)),
        ("chmod", fs.setattr(dir, &bits).map(drop)),
        ("setxattr", fs.setxattr(dir, b"user.after", b"x", XattrMode::Set)),
    ]
    .into_iter()
    .map(|(what, done)| (what, done.map_err(|e| e.errno())))
    .collect()
}

fn changes_of_file(fs: &dyn FileSystem, ino: Ino, path: &[u8]) -> Vec<(&'static str, Result<(), Errno>)> {
    let cut = SetAttr { size: Some(1), ..SetAttr::default() };
    let (root, flags) = (fs.root(), RenameFlags::empty());
    let top = path.split(|b| *b == b'/').nth(1).unwrap_or_default();
    vec![
        ("write", fs.write(ino, 0, b"x").map(drop)),
        ("truncate", fs.setattr(ino, &cut).map(drop)),
        ("link", fs.link(ino, root, b"after the failure").map(drop)),
        ("rename", fs.rename(&Cx::default(), root, top, root, b"after the failure", flags)),
        ("fallocate", fs.fallocate(ino, FallocMode::empty(), 0, 1)),
        ("copy", fs.copy_range(ino, 0, ino, 1 << 40, 1).map(drop)),
    ]
    .into_iter()
    .map(|(what, done)| (what, done.map_err(|e| e.errno())))
    // A copy of nothing changes nothing.
    .filter(|(what, done)| !(*what == "copy" && done.is_ok()))
    .collect()
}
