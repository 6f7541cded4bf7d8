//! Cuts the power at the events of the device, recovers, and asks the [`oracle`](crate::oracle).
//!
//! A run is recorded once. Then, for each event and each fate of the pending writes that the
//! budget allows: build the disk, mount it (recovery), hold it against the history, use it a
//! little, unmount, check. At depth 2 the recovery of some states is recorded and cut again.

use crate::config::{BEGIN, Config, Cut, Failure};
use crate::ops::Op;
use crate::oracle::{Oracle, Promise, Step};
use crate::rng::{Rng, mix, pattern};
use crate::run::{self, World, check_clean, guarded, mount, opener};
use crate::shrink::shrink;
use arbor_base::device::{CrashChoice, Device, MemDevice, RecordingDevice};
use arbor_base::vfs::{Cx, Engine, Errno, FileSystem, ManualClock, Repair, mode};
use std::sync::Arc;

/// Pending writes whose single loss is planned at one event.
const SINGLES: usize = 12;

/// What an exploration did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Sequences recorded.
    pub sequences: u64,
    /// Events of the device in all of them.
    pub events: u64,
    /// Disks built, recovered and checked.
    pub states: u64,
    /// Those among them whose recovery was cut too.
    pub recoveries: u64,
}

/// Explores `config.count` sequences; panics with the line that repeats the first failure.
pub fn explore(engine: &dyn Engine, config: &Config) -> Explored {
    try_explore(engine, &config.from_env()).unwrap_or_else(|failure| panic!("{failure}"))
}

/// As [`explore`], but gives the failure back and leaves the environment alone.
pub fn try_explore(engine: &dyn Engine, config: &Config) -> Result<Explored, Box<Failure>> {
    let mut done = Explored::default();
    for seed in config.seed..config.seed + config.count {
        let ops = config.sequence(seed);
        if let Err(first) = explore_ops(engine, &ops, seed, config, &mut done) {
            return Err(Box::new(match config.cuts {
                Some(_) => failure(engine, ops, seed, config, first),
                None => smaller(engine, &ops, seed, config, first),
            }));
        }
    }
    Ok(done)
}

/// Replays lists that failed once: paragraphs of `text`, each run and explored; panics on failure.
pub fn regressions(engine: &dyn Engine, config: &Config, text: &str) {
    for list in text.split("\n\n").filter(|p| !p.trim().is_empty()) {
        let config = config.replaying(list).unwrap_or_else(|e| panic!("{e}"));
        run::try_sequences(engine, &config).unwrap_or_else(|failure| panic!("{failure}"));
        try_explore(engine, &config).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Shrinks the list of operations: first what came after the cut goes, then what does not matter.
fn smaller(engine: &dyn Engine, ops: &[Op], seed: u64, config: &Config, first: Crash) -> Failure {
    let quick = Config { budget: config.budget.min(300), ..config.clone() };
    let fails = |ops: &[Op]| explore_ops(engine, ops, seed, &quick, &mut Explored::default()).err();
    let head = &ops[..first.needs.min(ops.len())];
    let found = shrink(head, config.shrink_runs, fails);
    let (ops, crash) = found.unwrap_or_else(|| (ops.to_vec(), first));
    failure(engine, ops, seed, config, crash)
}

fn failure(engine: &dyn Engine, ops: Vec<Op>, seed: u64, config: &Config, crash: Crash) -> Failure {
    let Crash { cuts, message, .. } = crash;
    Failure { engine: engine.name(), seed, profile: config.profile, ops, cuts, message }
}

/// A failing cut.
#[derive(Debug)]
struct Crash {
    cuts: Vec<Cut>,
    /// Operations that had begun before the cut.
    needs: usize,
    message: String,
}

fn explore_ops(engine: &dyn Engine, ops: &[Op], seed: u64, config: &Config, done: &mut Explored) -> Result<(), Crash> {
    let whole = |message| Crash { cuts: Vec::new(), needs: ops.len(), message };
    let (device, oracle) = guarded(|| record(engine, ops, config)).map_err(whole)?;
    let run = Run { engine, config, device, oracle };
    done.sequences += 1;
    done.events += run.device.events() as u64;
    if let Some(cuts) = &config.cuts {
        return run.try_cuts(cuts);
    }
    for (i, cut) in run.plan(seed).into_iter().enumerate() {
        done.states += 1;
        run.try_cuts(std::slice::from_ref(&cut))?;
        if config.depth > 1 && i % 16 == 5 {
            done.recoveries += 1;
            done.states += run.cut_recovery(&cut, seed)?;
        }
    }
    Ok(())
}

/// Runs `ops` on a recording device, and the model beside it.
fn record(engine: &dyn Engine, ops: &[Op], config: &Config) -> Result<(RecordingDevice, Oracle), String> {
    let memory = config.memory();
    engine.format(config.devices(&memory), &config.format_options()).map_err(|e| format!("format: {e}"))?;
    let device = RecordingDevice::new(memory);
    let mut world = World::mount(engine, config, opener(config, device.clone()))?;
    let mut oracle = Oracle::new(world.model.state());
    for (i, op) in ops.iter().chain([&Op::Remount {}]).enumerate() {
        let start = device.events();
        let file = if let Op::Fsync { path, .. } = op { world.identity(path) } else { None };
        let done = world.step(op).map_err(|e| format!("operation {i} ({op}): {e}"))?;
        let promise = match (op, file) {
            (Op::Fsync { .. }, Some(ino)) if done => Promise::File(ino),
            (Op::Syncfs {} | Op::Remount {}, _) if done => Promise::All,
            _ => Promise::None,
        };
        oracle.push(Step { op: op.clone(), start, end: device.events(), promise }, world.model.state());
    }
    world.compare()?;
    Ok((device, oracle))
}

struct Run<'a> {
    engine: &'a dyn Engine,
    config: &'a Config,
    device: RecordingDevice,
    oracle: Oracle,
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

    fn crash(&self, cuts: &[Cut], message: String) -> Crash {
        let needs = cuts.first().map_or(usize::MAX, |c| self.oracle.newest(c.0));
        Crash { cuts: cuts.to_vec(), needs, message }
    }

    /// Cuts the power, and during each recovery again as the further cuts say; then verifies.
    fn try_cuts(&self, cuts: &[Cut]) -> Result<(), Crash> {
        let Some(((at, choice), again)) = cuts.split_first() else { return Ok(()) };
        guarded(|| {
            if *at > self.device.events() {
                return Err(format!("the run has only {} events", self.device.events()));
            }
            let mut disk = self.device.crash_state(*at, choice);
            for (at, choice) in again {
                let recovery = self.record_recovery(disk)?;
                disk = recovery.crash_state((*at).min(recovery.events()), choice);
            }
            self.verify(disk, *at)
        })
        .map_err(|e| self.crash(cuts, self.describe(cuts, e)))
    }

    fn describe(&self, cuts: &[Cut], message: String) -> String {
        let at = cuts.first().map_or(0, |c| c.0);
        let again: String = cuts.iter().skip(1).map(|c| format!(", its recovery after event {}", c.0)).collect();
        let under_way = self.oracle.newest(at).checked_sub(1).and_then(|i| self.oracle.steps().get(i));
        let op = under_way.map(|s| format!(", last operation begun: {}", s.op)).unwrap_or_default();
        format!("power cut after event {at}{again}{op}: {message}")
    }

    fn record_recovery(&self, disk: MemDevice) -> Result<RecordingDevice, String> {
        let recovery = RecordingDevice::new(disk);
        let fs = self.mount(&recovery)?;
        fs.unmount().map_err(|e| format!("unmount after recovery: {e}"))?;
        Ok(recovery)
    }

    /// Cuts the recovery of one state at several places; returns how many disks that made.
    fn cut_recovery(&self, cut: &Cut, seed: u64) -> Result<u64, Crash> {
        let disk = self.device.crash_state(cut.0, &cut.1);
        let recovery = guarded(|| self.record_recovery(disk)).map_err(|e| self.crash(std::slice::from_ref(cut), e))?;
        let mut rng = Rng::new(mix(seed ^ mix(cut.0 as u64)));
        for i in 0..4 {
            let at = rng.below(recovery.events() as u64 + 1) as usize;
            let choice = [CrashChoice::NoneKept, CrashChoice::AllKept, CrashChoice::Seeded(rng.below(1 << 32))];
            let second = (at, choice[(i % 3) as usize].clone());
            let disk = recovery.crash_state(second.0, &second.1);
            let cuts = [cut.clone(), second];
            guarded(|| self.verify(disk, cut.0)).map_err(|e| self.crash(&cuts, self.describe(&cuts, e)))?;
        }
        Ok(4)
    }

    fn mount<D: Device + Clone + 'static>(&self, disk: &D) -> Result<Arc<dyn FileSystem>, String> {
        mount(self.engine, self.config, self.config.devices(disk), &Arc::new(ManualClock::new(BEGIN)))
    }

    fn check(&self, disk: &MemDevice) -> Result<(), String> {
        check_clean(self.engine, self.config.devices(disk), Repair::No)
    }

    fn verify(&self, disk: MemDevice, at: usize) -> Result<(), String> {
        if at.is_multiple_of(4) {
            let untouched = disk.snapshot();
            untouched.set_read_only(true);
            self.check(&untouched).map_err(|e| format!("unmounted, {e}"))?;
        }
        let fs = self.mount(&disk)?;
        self.oracle.verify(&*fs, at)?;
        use_it(&*fs).map_err(|e| format!("in use after recovery: {e}"))?;
        fs.unmount().map_err(|e| format!("unmount after recovery: {e}"))?;
        drop(fs);
        self.check(&disk)?;
        let fs = self.mount(&disk)?;
        self.oracle.verify(&*fs, at).map_err(|e| format!("mounted again: {e}"))
    }
}

/// A recovered volume has to take a file and give its space back. What it puts there must not
/// hurt the old files, which are compared again after the next mount.
fn use_it(fs: &dyn FileSystem) -> Result<(), String> {
    let name = b"made after recovery";
    let cx = Cx::default();
    let file = match fs.mknod(&cx, fs.root(), name, mode::IFREG | 0o644, 0) {
        Err(e) if e.errno() == Errno::ENOSPC => return Ok(()),
        made => made.map_err(|e| format!("mknod: {e}"))?.ino,
    };
    let bytes = pattern(u64::MAX, 0, 70_000);
    let mut back = vec![0; bytes.len()];
    let n = match fs.write(file, 0, &bytes) {
        Err(e) if e.errno() == Errno::ENOSPC => 0,
        written => written.map_err(|e| format!("write: {e}"))?,
    };
    fs.fsync(file, false).map_err(|e| format!("fsync: {e}"))?;
    let m = fs.read(file, 0, &mut back).map_err(|e| format!("read: {e}"))?;
    fs.unlink(fs.root(), name).map_err(|e| format!("unlink: {e}"))?;
    fs.forget(file, 1);
    if m == n && back[..n] == bytes[..n] { Ok(()) } else { Err(format!("{n} bytes written, {m} read back, or others")) }
}
