//! Cuts the power at the events of the device, recovers, and asks the [`oracle`](crate::oracle).
//!
//! A run is recorded once. Then, for each event and each fate of the pending writes that the
//! budget allows: build the disk, mount it (recovery), hold it against the history, use it a
//! little, unmount, check. At a depth of 2 or more the recovery of some states is recorded and cut
//! again, and so on. A disk that was met before, with the same history, is not checked again.

use crate::config::{BEGIN, Config, Cut, Failure};
use crate::found;
use crate::model::State;
use crate::ops::{Op, Path};
use crate::oracle::{Oracle, Promise, Step};
use crate::ordered;
use crate::rng::{Rng, mix, pattern};
use crate::run::{self, Opener, World, check_clean, guarded, mount, opener};
use crate::shrink::shrink;
use arbor_base::device::{CrashChoice, Device, MemDevice, RecordingDevice};
use arbor_base::vfs::{
    CheckOptions, CrashPromise, Cx, Engine, Errno, FallocMode, FileSystem, ManualClock, Repair, Severity, mode,
};
use parking_lot::Mutex;
use rustc_hash::{FxHashSet, FxHasher};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// Pending writes whose single loss is planned at one event.
const SINGLES: usize = 12;
/// Bytes that are left free on a full volume.
const FREE: u64 = 192 << 10;

/// What an exploration did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Sequences recorded.
    pub sequences: u64,
    /// Events of the device in all of them.
    pub events: u64,
    /// Disks that were planned: every choice at every cut.
    pub states: u64,
    /// Those among them that were not met before: built, recovered and checked.
    pub distinct: u64,
    /// Those among them whose recovery was cut too.
    pub recoveries: u64,
    /// Those that failed, if the configuration says to go on.
    pub failed: u64,
}

impl Explored {
    /// Adds the counts of another exploration.
    pub fn add(&mut self, other: &Explored) {
        self.sequences += other.sequences;
        self.events += other.events;
        self.states += other.states;
        self.distinct += other.distinct;
        self.recoveries += other.recoveries;
        self.failed += other.failed;
    }
}

/// Disks with their history that were met before; shared by threads.
#[derive(Default)]
pub struct Seen([Mutex<FxHashSet<u64>>; 16]);

impl Seen {
    pub(crate) fn is_new(&self, print: u64) -> bool {
        self.0[(print >> 60) as usize].lock().insert(print)
    }
}

/// Where the sequences of an exploration begin: an unmounted volume and what is in it.
pub struct Base {
    disk: MemDevice,
    /// `None`: it is freshly formatted.
    state: Option<State>,
    from: From,
}

/// What kind of volume that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum From {
    /// Freshly formatted.
    #[default]
    Empty,
    /// With files and directories of every form.
    Aged,
    /// The same with next to no free space, so that what is freed is taken again at once.
    Full,
}

impl From {
    /// All of them.
    pub const ALL: [From; 3] = [From::Empty, From::Aged, From::Full];
}

impl Base {
    /// A volume just formatted.
    pub fn fresh(engine: &dyn Engine, config: &Config) -> Result<Base, String> {
        let disk = config.memory();
        engine.format(config.devices(&disk), &config.format_options()).map_err(|e| format!("format: {e}"))?;
        Ok(Base { disk, state: None, from: From::Empty })
    }

    /// A volume on which `ops` were done, all of which must succeed; `From::Full` fills the rest
    /// but for `FREE` bytes with space that is allocated and not written.
    pub fn used(engine: &dyn Engine, config: &Config, from: From, ops: &[Op]) -> Result<Base, String> {
        let Base { disk, .. } = Base::fresh(engine, config)?;
        let mut world = World::mount(engine, config, opener(config, disk.clone()))?;
        let mut step = |op: &Op| match world.step(op).map_err(|e| format!("{op}: {e}"))? {
            true => world.side.fs.statfs().map_err(|e| format!("statfs: {e}")),
            false => Err(format!("{op}: refused")),
        };
        ops.iter().try_for_each(|op| step(op).map(drop))?;
        let s = step(&Op::Remount {})?;
        if from == From::Full {
            let path = Path::at(&["fill"]);
            step(&Op::Create { path: path.clone(), mode: 0o600, gid: 0 })?;
            let frag = u64::from(s.frsize);
            let len = (s.bavail * frag).saturating_sub(FREE.max(64 * frag));
            let room = |mode: FallocMode| Op::Fallocate { path: path.clone(), mode: mode.bits(), offset: 0, len };
            // An engine may not carry space after the end of a file.
            step(&room(FallocMode::KEEP_SIZE)).or_else(|_| step(&room(FallocMode::empty())))?;
            step(&Op::Remount {})?;
        }
        let state = Some(world.model.state());
        world.side.fs.unmount().map_err(|e| format!("unmount: {e}"))?;
        Ok(Base { disk, state, from })
    }
}

impl Base {
    /// What a power cut has left on `disk`, not recovered yet, with what recovery finds on it; `None` if the model
    /// cannot have that.
    pub(crate) fn found(
        engine: &dyn Engine,
        config: &Config,
        disk: MemDevice,
        from: From,
    ) -> Result<Option<Base>, String> {
        repair(engine, config, &disk)?;
        let fs = mount(engine, config, config.devices(&disk.snapshot()), &Arc::new(ManualClock::new(BEGIN)))?;
        Ok(found::state(&*fs)?.map(|state| Base { disk, state: Some(state), from }))
    }

    /// What kind of volume it is, or was before the power cut.
    pub(crate) fn from(&self) -> From {
        self.from
    }

    /// A copy of the disk.
    pub(crate) fn disk(&self) -> MemDevice {
        self.disk.snapshot()
    }

    /// Mounts a copy of the disk, which `open` gives, with the model beside it.
    pub(crate) fn world<'e>(&self, engine: &'e dyn Engine, config: &Config, open: Opener) -> Result<World<'e>, String> {
        match &self.state {
            None => World::mount(engine, config, open),
            Some(state) => World::resume(engine, config, open, state.clone()),
        }
    }
}

/// Explores `config.count` sequences; panics with the line that repeats the first failure.
pub fn explore(engine: &dyn Engine, config: &Config) -> Explored {
    try_explore(engine, &config.from_env()).unwrap_or_else(|failure| panic!("{failure}"))
}

/// As [`explore`], but gives the failure back and leaves the environment alone.
pub fn try_explore(engine: &dyn Engine, config: &Config) -> Result<Explored, Box<Failure>> {
    let mut done = Explored::default();
    let broken = |message| Box::new(Failure::whole(engine, config, message));
    let base = guarded(|| Base::fresh(engine, config)).map_err(broken)?;
    for seed in config.seed..config.seed + config.count {
        let ops = config.sequence(seed);
        try_sequence(engine, config, &base, &Seen::default(), &ops, seed, &mut done)?;
    }
    Ok(done)
}

/// Explores one sequence from `base`; a failure is shrunk.
pub fn try_sequence(
    engine: &dyn Engine,
    config: &Config,
    base: &Base,
    seen: &Seen,
    ops: &[Op],
    seed: u64,
    done: &mut Explored,
) -> Result<(), Box<Failure>> {
    let from = Start { engine, config, base };
    from.explore(ops, seed, seen, done).map_err(|first| {
        Box::new(match config.cuts {
            Some(_) => from.failure(ops.to_vec(), seed, first),
            None => from.smaller(ops, seed, first),
        })
    })
}

/// Replays lists that failed once: paragraphs of `text`, each run and explored; panics on failure.
pub fn regressions(engine: &dyn Engine, config: &Config, text: &str) {
    for list in text.split("\n\n").filter(|p| !p.trim().is_empty()) {
        let config = config.replaying(list).unwrap_or_else(|e| panic!("{e}"));
        run::try_sequences(engine, &config).unwrap_or_else(|failure| panic!("{failure}"));
        try_explore(engine, &config).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Who mends what a power cut has left, and may be cut off too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mender {
    /// Recovery.
    #[default]
    Mount,
    /// The checker, as far as that is safe; then a mount.
    Preen,
    /// The checker; then a mount.
    Check,
}

impl Mender {
    pub(crate) const ALL: [Mender; 3] = [Mender::Mount, Mender::Preen, Mender::Check];
}

/// A failing cut.
#[derive(Debug)]
struct Crash {
    cuts: Vec<Cut>,
    by: Mender,
    /// Operations that had begun before the cut.
    needs: usize,
    message: String,
}

pub(crate) struct Start<'a> {
    pub engine: &'a dyn Engine,
    pub config: &'a Config,
    pub base: &'a Base,
}

impl Start<'_> {
    /// Shrinks the list of operations: first what came after the cut goes, then what does not
    /// matter.
    fn smaller(&self, ops: &[Op], seed: u64, first: Crash) -> Failure {
        let cut_again = if first.cuts.len() > 1 { 1 } else { self.config.cut_again };
        let quick = Config { budget: self.config.budget.min(300), cut_again, ..self.config.clone() };
        let quick = Start { config: &quick, ..*self };
        let fails = |ops: &[Op]| quick.explore(ops, seed, &Seen::default(), &mut Explored::default()).err();
        let head = &ops[..first.needs.min(ops.len())];
        let found = shrink(head, self.config.shrink_runs, fails);
        let (ops, crash) = found.unwrap_or_else(|| (ops.to_vec(), first));
        self.failure(ops, seed, crash)
    }

    fn failure(&self, ops: Vec<Op>, seed: u64, crash: Crash) -> Failure {
        let Crash { cuts, by, message, .. } = crash;
        let words = if by == Mender::Mount { String::new() } else { format!(" by={by:?}") };
        Failure { words, ops, seed, cuts, from: self.base.from, ..Failure::whole(self.engine, self.config, message) }
    }

    fn explore(&self, ops: &[Op], seed: u64, seen: &Seen, done: &mut Explored) -> Result<(), Crash> {
        let whole = |message| Crash { cuts: Vec::new(), by: Mender::Mount, needs: ops.len(), message };
        let (device, oracle) = guarded(|| self.record(ops)).map_err(whole)?;
        let history = prefix_prints(self.base.from as u64, ops);
        let run = Run { engine: self.engine, config: self.config, device, oracle, history };
        done.sequences += 1;
        done.events += run.device.events() as u64;
        if let Some(cuts) = &self.config.cuts {
            return run.try_cuts(cuts, self.config.by);
        }
        for (i, cut) in run.plan(seed).into_iter().enumerate() {
            done.states += 1;
            if !seen.is_new(run.print(&cut)) {
                continue;
            }
            done.distinct += 1;
            match run.try_cuts(std::slice::from_ref(&cut), Mender::Mount) {
                Err(_) if self.config.keep_going => {
                    done.failed += 1;
                    continue;
                }
                tried => tried?,
            }
            let turn = (i as u64).wrapping_add(seed);
            if self.config.depth > 1 && turn.is_multiple_of(self.config.cut_again) {
                let by = Mender::ALL[(turn / self.config.cut_again % 3) as usize];
                run.cut_recovery(&mut vec![cut], by, seed, seen, done)?;
            }
        }
        Ok(())
    }

    /// Runs `ops` on a recording device, and the model beside it.
    pub fn record(&self, ops: &[Op]) -> Result<(RecordingDevice, Oracle), String> {
        let device = RecordingDevice::new(self.base.disk());
        let mut world = self.base.world(self.engine, self.config, opener(self.config, device.clone()))?;
        let promise = self.engine.crash_promise(&self.config.mount);
        let mut oracle = Oracle::new(world.model.state()).under(promise);
        for (i, op) in ops.iter().chain([&Op::Remount {}]).enumerate() {
            let start = device.events();
            let file = if let Op::Fsync { path, .. } = op { world.identity(path) } else { None };
            let replacer = world.replacer(op);
            let done = world.step(op).map_err(|e| format!("operation {i} ({op}): {e}"))?;
            let promise = match (op, file) {
                (Op::Fsync { .. }, Some(ino)) if done => Promise::File(ino),
                (Op::Syncfs {} | Op::Remount {}, _) if done => Promise::All,
                _ => Promise::None,
            };
            let step =
                Step { op: op.clone(), start, end: device.events(), promise, replacer: replacer.filter(|_| done) };
            if let Op::Put { path, .. } = op {
                let half = if done { world.state_without(path) } else { world.model.state() };
                oracle.push_part(step.clone(), half);
            }
            oracle.push(step, world.model.state());
        }
        world.compare()?;
        Ok((device, oracle))
    }
}

/// A number for each beginning of a list of steps, the empty one first.
fn prefix_prints(base: u64, ops: &[Op]) -> Vec<u64> {
    let mut print = mix(base);
    let mut prints = vec![print];
    for op in ops.iter().chain([&Op::Remount {}]) {
        let mut hasher = FxHasher::default();
        (print, op).hash(&mut hasher);
        print = mix(hasher.finish());
        prints.extend(matches!(op, Op::Put { .. }).then_some(print));
        prints.push(print);
    }
    prints
}

struct Run<'a> {
    engine: &'a dyn Engine,
    config: &'a Config,
    device: RecordingDevice,
    oracle: Oracle,
    /// See [`prefix_prints`].
    history: Vec<u64>,
}

impl Run<'_> {
    /// Which cuts to try: half of the budget goes to the plain ones of each event, the rest to
    /// single losses, single survivors and random fates.
    fn plan(&self, seed: u64) -> Vec<Cut> {
        let mut rng = Rng::new(mix(seed));
        let (mut plain, mut fine) = (Vec::new(), Vec::new());
        for at in 0..=self.device.events() {
            let pending = self.device.pending_at(at);
            plain.push((at, CrashChoice::AllKept));
            if pending > 0 {
                plain.push((at, CrashChoice::NoneKept));
                fine.push((at, CrashChoice::Seeded(rng.next_u64() >> 32)));
            }
            // Of many pending writes some are drawn; of a few each is lost and kept alone.
            for i in 0..if pending > 1 { pending.min(SINGLES) } else { 0 } {
                let one = if pending > SINGLES { rng.below(pending as u64) as usize } else { i };
                fine.push((at, CrashChoice::DropOne(one)));
                fine.push((at, CrashChoice::KeepOne(one)));
                fine.push((at, CrashChoice::Seeded(rng.next_u64() >> 32)));
            }
        }
        rng.shuffle(&mut plain);
        rng.shuffle(&mut fine);
        let half = self.config.budget / 2;
        plain.truncate(half.max(self.config.budget.saturating_sub(fine.len())));
        fine.truncate(self.config.budget.saturating_sub(plain.len()));
        plain.extend(fine);
        // In order, because the recorder builds a later disk from an earlier one.
        plain.sort_by_key(|(at, _)| *at);
        plain
    }

    /// A number for the disk after `cut` and all that may be expected of it.
    fn print(&self, (at, choice): &Cut) -> u64 {
        let known = self.history[self.oracle.newest(*at).min(self.history.len() - 1)];
        mix(self.device.print(*at, choice) ^ known.rotate_left(17) ^ mix(self.oracle.done(*at) as u64))
    }

    fn crash(&self, cuts: &[Cut], by: Mender, message: String) -> Crash {
        let needs = cuts.first().map_or(usize::MAX, |c| self.oracle.operations(self.oracle.newest(c.0)));
        Crash { cuts: cuts.to_vec(), by, needs, message: self.describe(cuts, by, message) }
    }

    /// Cuts the power, and during each recovery again as the further cuts say; then verifies.
    fn try_cuts(&self, cuts: &[Cut], by: Mender) -> Result<(), Crash> {
        let Some((at, _)) = cuts.first() else { return Ok(()) };
        guarded(|| self.verify_mended(self.disk_after(cuts, by)?, *at, by)).map_err(|e| self.crash(cuts, by, e))
    }

    fn disk_after(&self, cuts: &[Cut], by: Mender) -> Result<MemDevice, String> {
        let Some(((at, choice), again)) = cuts.split_first() else { return Err("no cut".to_string()) };
        if *at > self.device.events() {
            return Err(format!("the run has only {} events", self.device.events()));
        }
        let mut disk = self.device.crash_state(*at, choice);
        for (at, choice) in again {
            let recovery = self.record_recovery(disk, by)?;
            disk = recovery.crash_state((*at).min(recovery.events()), choice);
        }
        Ok(disk)
    }

    fn describe(&self, cuts: &[Cut], by: Mender, message: String) -> String {
        let at = cuts.first().map_or(0, |c| c.0);
        let mending = match by {
            Mender::Mount => "recovery",
            Mender::Preen => "preening",
            Mender::Check => "repair",
        };
        let again: String = cuts.iter().skip(1).map(|c| format!(", its {mending} after event {}", c.0)).collect();
        let under_way = self.oracle.newest(at).checked_sub(1).and_then(|i| self.oracle.steps().get(i));
        let op = under_way.map(|s| format!(", last operation begun: {}", s.op)).unwrap_or_default();
        format!("power cut after event {at}{again}{op}: {message}")
    }

    fn record_recovery(&self, disk: MemDevice, by: Mender) -> Result<RecordingDevice, String> {
        let recovery = RecordingDevice::new(disk);
        if by != Mender::Mount {
            self.run_checker(&recovery, by)?;
            return Ok(recovery);
        }
        repair(self.engine, self.config, &recovery)?;
        let fs = self.mount(&recovery)?;
        fs.unmount().map_err(|e| format!("unmount after recovery: {e}"))?;
        Ok(recovery)
    }

    /// Lets the checker mend what a power cut has left, which is all that it finds unless nothing is promised.
    fn run_checker<D: Device + Clone + 'static>(&self, disk: &D, by: Mender) -> Result<(), String> {
        let repair = if by == Mender::Preen { Repair::Preen } else { Repair::Yes };
        let report =
            self.engine.check(self.config.devices(disk), &CheckOptions { repair, force: true }, &mut |_, _, _| {});
        let report = report.map_err(|e| format!("{by:?}: {e}"))?;
        let left = report.issues.iter().find(|i| !i.repaired && i.severity > Severity::Warning);
        match left.filter(|_| by == Mender::Check || self.promise() != CrashPromise::Repairable) {
            Some(i) => Err(format!("{by:?} leaves {}: {}", i.code, i.text)),
            None => Ok(()),
        }
    }

    /// Verifies what the power has left of a run or of a mender's work; a checker that was cut off runs once more, too.
    fn verify_mended(&self, disk: MemDevice, at: usize, by: Mender) -> Result<(), String> {
        if by != Mender::Mount {
            let again = disk.snapshot();
            self.run_checker(&again, by).map_err(|e| format!("again, {e}"))?;
            self.verify(again, at).map_err(|e| format!("{by:?} once more: {e}"))?;
        }
        self.verify(disk, at)
    }

    /// Cuts the recovery of a state at several places, and the recovery of some of those again, as
    /// deep as the configuration says.
    fn cut_recovery(
        &self,
        cuts: &mut Vec<Cut>,
        by: Mender,
        seed: u64,
        seen: &Seen,
        done: &mut Explored,
    ) -> Result<(), Crash> {
        let recovery = match guarded(|| self.record_recovery(self.disk_after(cuts, by)?, by)) {
            Err(_) if self.config.keep_going => return Ok(()),
            recorded => recorded.map_err(|e| self.crash(cuts, by, e))?,
        };
        done.recoveries += 1;
        let at = cuts[0].0;
        let mut rng = Rng::new(mix(seed ^ mix(at as u64 ^ mix(cuts.len() as u64))));
        // A checker has done all of its work once, too.
        for i in 0..if by == Mender::Mount { 4 } else { 3 } {
            let choice = [CrashChoice::NoneKept, CrashChoice::AllKept, CrashChoice::Seeded(rng.below(1 << 32))];
            let whole = by != Mender::Mount && i == 1 && cuts.len() == 1;
            let event = if whole { recovery.events() } else { rng.below(recovery.events() as u64 + 1) as usize };
            let again = (event, choice[i % 3].clone());
            done.states += 1;
            let print = recovery.print(again.0, &again.1) ^ mix(cuts.len() as u64 + 64 * by as u64);
            let print = self.print(&cuts[0]) ^ mix(print);
            if !seen.is_new(mix(print)) {
                continue;
            }
            done.distinct += 1;
            let disk = recovery.crash_state(again.0, &again.1);
            cuts.push(again);
            match guarded(|| self.verify_mended(disk, at, by)) {
                Err(_) if self.config.keep_going => done.failed += 1,
                verified => verified.map_err(|e| self.crash(cuts, by, e))?,
            }
            if i == 0 && cuts.len() < self.config.depth as usize {
                self.cut_recovery(cuts, by, seed, seen, done)?;
            }
            cuts.pop();
        }
        Ok(())
    }

    fn mount<D: Device + Clone + 'static>(&self, disk: &D) -> Result<Arc<dyn FileSystem>, String> {
        mount(self.engine, self.config, self.config.devices(disk), &Arc::new(ManualClock::new(BEGIN)))
    }

    fn check(&self, disk: &MemDevice) -> Result<(), String> {
        check_clean(self.engine, self.config.devices(disk), Repair::No)
    }

    fn hold_against(&self, fs: &dyn FileSystem, at: usize) -> Result<(), String> {
        hold_against(self.promise(), &self.oracle, fs, at)
    }

    fn promise(&self) -> CrashPromise {
        self.engine.crash_promise(&self.config.mount)
    }

    fn verify(&self, disk: MemDevice, at: usize) -> Result<(), String> {
        if self.promise() == CrashPromise::Prefix && at.is_multiple_of(4) {
            let untouched = disk.snapshot();
            untouched.set_read_only(true);
            self.check(&untouched).map_err(|e| format!("unmounted, {e}"))?;
        }
        repair(self.engine, self.config, &disk)?;
        let fs = self.mount(&disk)?;
        self.hold_against(&*fs, at)?;
        use_it(&*fs).map_err(|e| format!("in use after recovery: {e}"))?;
        fs.unmount().map_err(|e| format!("unmount after recovery: {e}"))?;
        drop(fs);
        self.check(&disk)?;
        let fs = self.mount(&disk)?;
        self.hold_against(&*fs, at).map_err(|e| format!("mounted again: {e}"))
    }
}

/// Where nothing is promised but that this helps, the checker comes before a mount.
pub(crate) fn repair<D>(engine: &dyn Engine, config: &Config, disk: &D) -> Result<(), String>
where
    D: Device + Clone + 'static,
{
    if engine.crash_promise(&config.mount) != CrashPromise::Repairable {
        return Ok(());
    }
    let options = CheckOptions { repair: Repair::Yes, force: true };
    let report = engine.check(config.devices(disk), &options, &mut |_, _, _| {});
    let report = report.map_err(|e| format!("repair: {e}"))?;
    match report.issues.iter().find(|i| !i.repaired && i.severity > Severity::Warning) {
        Some(i) => Err(format!("the repair leaves {}: {}", i.code, i.text)),
        None => Ok(()),
    }
}

/// Holds a mounted volume against the history, as far as the engine promises.
pub(crate) fn hold_against(
    promise: CrashPromise,
    oracle: &Oracle,
    fs: &dyn FileSystem,
    at: usize,
) -> Result<(), String> {
    match promise {
        CrashPromise::Prefix => oracle.verify(fs, at),
        CrashPromise::Ordered { .. } => ordered::verify(oracle, fs, at, promise),
        CrashPromise::Repairable => crate::compare::observe(fs).map(drop),
    }
}

/// A recovered volume has to take a file and give its space back. What it puts there must not
/// hurt the old files, which are compared again after the next mount.
pub(crate) fn use_it(fs: &dyn FileSystem) -> Result<(), String> {
    let name = b"made after recovery";
    let cx = Cx::default();
    let file = match fs.mknod(&cx, fs.root(), name, mode::IFREG | 0o644, 0) {
        Err(e) if e.errno() == Errno::ENOSPC => return Ok(()),
        made => made.map_err(|e| format!("mknod: {e}"))?.ino,
    };
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| pattern(u64::MAX, 0, 70_000));
    let mut back = vec![0; bytes.len()];
    let n = match fs.write(file, 0, bytes) {
        Err(e) if e.errno() == Errno::ENOSPC => 0,
        written => written.map_err(|e| format!("write: {e}"))?,
    };
    fs.fsync(file, false).map_err(|e| format!("fsync: {e}"))?;
    let m = fs.read(file, 0, &mut back).map_err(|e| format!("read: {e}"))?;
    fs.unlink(fs.root(), name).map_err(|e| format!("unlink: {e}"))?;
    fs.forget(file, 1);
    if m == n && back[..n] == bytes[..n] { Ok(()) } else { Err(format!("{n} bytes written, {m} read back, or others")) }
}
