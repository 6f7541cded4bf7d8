//! A workload by several programs at once: the same one in as many lanes ([`arbor_simdisk::lanes`]), each in a directory of
//! its own and with a seed of its own.
//!
//! Phases begin when all lanes have come to them, and so does a remount. Counts of a phase are those of all lanes. The time of the
//! processor is not known then, since each lane has a thread of its own.

use crate::experiment::Case;
use crate::ground::{Event, Outcome, Phase, Stoppable, run};
use crate::library::{Charge, Leave, Library};
use crate::measure::program;
use arbor_base::vfs::{Cx, Errno, Error, FileSystem, Result};
use arbor_simdisk::{Latencies, SimClock, lanes};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How far the seeds of two lanes are apart: those of runs count up from the first, and there are fewer runs.
const SEEDS: u64 = 1 << 20;

/// What all lanes do.
pub(crate) struct Work<'a> {
    pub lanes: u32,
    pub cases: &'a [Case],
    pub divisor: u32,
    pub capacity_bytes: u64,
    pub seed: u64,
    /// How long each lane waits for each file of its source, which is on a disk of its own.
    pub reads_ns: &'a [Vec<u64>],
    pub charge: Charge,
    pub clock: Arc<SimClock>,
    pub stop: &'a AtomicBool,
}

/// What all lanes have come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// A phase begins.
    Phase(&'static str),
    /// The volume is to be mounted anew.
    Remount(Leave),
}

#[derive(Default)]
struct Common {
    fs: Mutex<Option<Arc<dyn FileSystem>>>,
    wishes: Mutex<Vec<Meeting>>,
    calls: Mutex<Latencies>,
    /// Something has failed: all end.
    failed: AtomicBool,
}

/// Does it on a mounted volume, which `acts` may mount anew; it is also told how long calls have taken since the last phase began.
/// Returns what the programs did, and the volume.
pub(crate) fn work(
    work: &Work<'_>,
    fs: Arc<dyn FileSystem>,
    acts: &mut dyn FnMut(Meeting, Arc<dyn FileSystem>, Latencies) -> Result<Arc<dyn FileSystem>>,
) -> std::result::Result<(Outcome, Arc<dyn FileSystem>, Latencies), String> {
    for lane in 0..work.lanes {
        fs.mkdir(&Cx::default(), fs.root(), home(lane as usize).as_bytes(), 0o755)
            .map(|made| fs.forget(made.ino, 1))
            .map_err(|e| format!("a directory for each lane: {e}"))?;
    }
    let common = Common { fs: Mutex::new(Some(fs)), ..Common::default() };
    let mut failure = None;
    let done = lanes::run(
        work.lanes as usize,
        |lane| work.lane(&common, lane),
        || {
            if let Err(e) = common.act(acts) {
                common.failed.store(true, Relaxed);
                failure.get_or_insert(e);
            }
        },
    );
    if let Some(e) = failure {
        return Err(e);
    }
    let all = done.into_iter().collect::<std::result::Result<Vec<Outcome>, String>>()?;
    let fs = held(&common.fs).take().ok_or("the volume is gone")?;
    let calls = std::mem::take(&mut *held(&common.calls));
    Ok((together(all), fs, calls))
}

/// The seed of a lane.
pub(crate) fn seed(of_run: u64, lane: u32) -> u64 {
    of_run.wrapping_add(SEEDS * u64::from(lane))
}

fn home(lane: usize) -> String {
    format!("lane{lane}")
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work<'_> {
    fn lane(&self, common: &Common, lane: usize) -> std::result::Result<Outcome, String> {
        let reads_ns = self.reads_ns.get(lane).map_or(&[][..], |all| all);
        let mut program =
            program(self.cases, (self.divisor, self.capacity_bytes), seed(self.seed, lane as u32), reads_ns);
        let remount = |fs: Arc<dyn FileSystem>, leave| {
            drop(fs);
            common.meet(Meeting::Remount(leave));
            common.fs()
        };
        let fs = common.fs().map_err(|e| e.to_string())?;
        let library = Library::new(fs, self.clock.clone(), self.charge, Box::new(remount)).at_home(home(lane));
        let calls = library.latencies();
        let ground = Stoppable { ground: library, stop: self.stop };
        let mut ground = Stoppable { ground, stop: &common.failed };
        let mut event = |event| {
            if let Event::Phase(name) = event {
                held(&common.calls).merge(&calls.take());
                common.meet(Meeting::Phase(name));
            }
        };
        let outcome = run(&mut *program, &mut ground, &mut event).map_err(|e| format!("lane {lane}: {e}"));
        held(&common.calls).merge(&calls.take());
        common.failed.fetch_or(outcome.is_err(), Relaxed);
        drop(ground.into_inner().into_inner().into_inner());
        outcome
    }
}

impl Common {
    fn fs(&self) -> Result<Arc<dyn FileSystem>> {
        held(&self.fs).clone().ok_or(Error::Errno(Errno::EIO))
    }

    fn meet(&self, wish: Meeting) {
        held(&self.wishes).push(wish);
        lanes::meet();
    }

    /// Does what all lanes that have met want.
    fn act(
        &self,
        acts: &mut dyn FnMut(Meeting, Arc<dyn FileSystem>, Latencies) -> Result<Arc<dyn FileSystem>>,
    ) -> std::result::Result<(), String> {
        let wishes = std::mem::take(&mut *held(&self.wishes));
        let Some(wish) = wishes.first().copied() else { return Ok(()) };
        if let Some(other) = wishes.iter().find(|other| **other != wish) {
            return Err(format!("lanes do not do the same: {wish:?} and {other:?}"));
        }
        let calls = match wish {
            Meeting::Phase(_) => std::mem::take(&mut *held(&self.calls)),
            Meeting::Remount(_) => Latencies::default(),
        };
        let Some(fs) = held(&self.fs).take() else { return Ok(()) };
        let fs = acts(wish, fs, calls).map_err(|e| e.to_string())?;
        *held(&self.fs) = Some(fs);
        Ok(())
    }
}

/// What all programs did, phase by phase.
fn together(all: Vec<Outcome>) -> Outcome {
    let mut all = all.into_iter();
    let mut sum = all.next().unwrap_or_default();
    for one in all {
        for (n, phase) in one.phases.into_iter().enumerate() {
            match sum.phases.get_mut(n) {
                Some(Phase { counts, .. }) => *counts += phase.counts,
                None => sum.phases.push(phase),
            }
        }
        sum.digest.add(&one.digest);
    }
    sum
}
