//! Runs on a file system that is no engine: somebody mounts it on a simulated disk, and the workload runs on it by
//! system calls.
//!
//! The program computes and waits on the virtual clock of that disk alone. What the file system does by the real clock
//! follows it as far as it can be made to: after each [`SYNC_MS`] of virtual time everything is made durable. As with
//! an engine's background work, that passes as if the program waited for it, and what the program computes after it
//! costs nothing up to the time it took.

use crate::calls::SystemCalls;
use crate::experiment::{Case, END, MOUNT};
use crate::ground::{self, Event, Ground, Seen, Stoppable};
use crate::library::Charge;
use crate::measure::{PhaseSample, Sample, Settings, lanes_of, program, reads_ns};
use crate::op::Op;
use crate::picture::Picture;
use crate::record::{Kept, Recorder};
use arbor_simdisk::{Latencies, Stats, Trace};
use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

/// Virtual time between two syncs, ms: Linux writes back what has been dirty for so long (vm.dirty_expire_centisecs).
pub const SYNC_MS: u64 = 30_000;
/// The clock is looked at after so many operations.
const LOOK_OPS: u32 = 16;

/// A mounted file system, and the simulated disk below it.
pub trait Peer {
    /// Its root directory.
    fn root(&self) -> PathBuf;
    /// Virtual time since the disk was made, ns.
    fn now_ns(&mut self) -> io::Result<u64>;
    /// Virtual time goes on, because the program computes.
    fn advance_ns(&mut self, ns: u64) -> io::Result<()>;
    /// What the disk did since it was asked last, with the time.
    fn take_stats(&mut self) -> io::Result<(u64, Stats)>;
    /// Unmounts, and waits until the disk has nothing left to do.
    fn unmount(&mut self) -> io::Result<()>;
    /// Mounts it again, with nothing cached.
    fn mount(&mut self) -> io::Result<()>;
    /// The requests since it was mounted first, if they were asked for.
    fn take_trace(&mut self) -> io::Result<Trace>;
}

/// Makes the file system on a disk and mounts it, with nothing cached. The flag asks for a trace.
pub type Start<'a> = dyn Fn(&Settings, bool) -> Result<Box<dyn Peer>, String> + 'a;

/// As [`measure::sample`](crate::measure::sample).
pub(crate) fn sample(
    name: &str,
    start: &Start<'_>,
    cases: &[Case],
    settings: &Settings,
    seed: u64,
    kept: Kept,
    tell: &mut dyn FnMut(Event),
) -> Result<Sample, String> {
    if cases.iter().any(|case| case.load.volume_bytes(1).is_some()) {
        return Err("the volume has a size of its own, and a mount has the whole disk".into());
    }
    if lanes_of(cases, settings) > 1 {
        return Err("several programs at the same time run on engines only".into());
    }
    let text = |e: io::Error| e.to_string();
    // Before the kernel's memory is limited: this needs some of its own.
    let reads_ns = reads_ns(cases, settings, seed)?;
    let mut recorder = Recorder::new(kept);
    let meter = Rc::new(RefCell::new(Meter::new(start(settings, recorder.is_wanted())?).map_err(text)?));
    let mut program = program(cases, settings.scale(), seed, &reads_ns);
    let ground = Mounted::new(meter.clone(), settings.charge);
    let mut ground = Stoppable { ground, stop: &settings.stop };
    let mut event = |event: Event| {
        if let Event::Phase(name) = event {
            meter.borrow_mut().mark(name);
        }
        tell(event);
    };
    let outcome = ground::run(&mut *program, &mut ground, &mut event).map_err(|e| e.to_string())?;
    drop(ground);
    let mut meter = meter.borrow_mut();
    meter.mark(END);
    meter.peer.unmount().map_err(text)?;
    meter.mark("");
    let mut phases = meter.phases().map_err(text)?;
    // What came before the first mark is mounting.
    phases.remove(0);
    if recorder.is_wanted() {
        recorder.add(meter.peer.take_trace().map_err(text)?);
    }
    let seen = recorder.seen();
    recorder.finish().map_err(|e| format!("trace: {e}"))?;
    let picture = seen.map(|trace| Picture::new(name, cases, settings, &trace, &phases, Vec::new()));
    Ok(Sample { phases, outcome, has_kinds: false, picture })
}

/// What statfs says is used.
fn used_bytes(peer: &dyn Peer) -> Option<u64> {
    let stat = rustix::fs::statvfs(peer.root()).ok()?;
    Some(stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize)
}

/// Cuts a run into phases.
struct Meter {
    peer: Box<dyn Peer>,
    name: &'static str,
    begun_ns: u64,
    /// What was used of the volume when it was new, bytes.
    empty_bytes: Option<u64>,
    phases: Vec<PhaseSample>,
    /// Why a phase could not be measured.
    failure: Option<io::Error>,
}

impl Meter {
    fn new(mut peer: Box<dyn Peer>) -> io::Result<Meter> {
        let (begun_ns, _) = peer.take_stats()?;
        let empty_bytes = used_bytes(&*peer);
        Ok(Meter { peer, name: MOUNT, begun_ns, empty_bytes, phases: Vec::new(), failure: None })
    }

    /// The phase ends here, and `next` begins.
    fn mark(&mut self, next: &'static str) {
        let (now_ns, disk) = match self.peer.take_stats() {
            Ok(taken) => taken,
            Err(e) => return self.failure = Some(e),
        };
        let (name, begun_ns, elapsed_ns) = (self.name, self.begun_ns, now_ns - self.begun_ns);
        let (processor_s, counters) = (None, Vec::new());
        // After an unmount there is another file system there; no part ends with one.
        let used = used_bytes(&*self.peer).zip(self.empty_bytes).map(|(used, empty)| used.saturating_sub(empty));
        let used_bytes = used.filter(|_| name != MOUNT && name != END);
        let calls = Latencies::default();
        self.phases.push(PhaseSample { name, begun_ns, elapsed_ns, processor_s, disk, counters, used_bytes, calls });
        (self.name, self.begun_ns) = (next, now_ns);
    }

    fn phases(&mut self) -> io::Result<Vec<PhaseSample>> {
        self.failure.take().map_or(Ok(std::mem::take(&mut self.phases)), Err)
    }

    fn remount(&mut self) -> io::Result<()> {
        self.peer.unmount()?;
        self.mark(MOUNT);
        self.peer.mount()
    }
}

/// The mounted file system as a ground, with charges and syncs on the virtual clock.
struct Mounted {
    calls: SystemCalls<'static>,
    meter: Rc<RefCell<Meter>>,
    /// What is left of the time of the last sync, ns.
    credit_ns: Rc<RefCell<u64>>,
    charge: Charge,
    ops: u32,
    synced_ns: u64,
}

impl Mounted {
    fn new(meter: Rc<RefCell<Meter>>, charge: Charge) -> Mounted {
        let (root, synced_ns) = (meter.borrow().peer.root(), meter.borrow().begun_ns);
        let credit_ns = Rc::new(RefCell::new(0));
        let (cooled, thought, credit) = (meter.clone(), meter.clone(), credit_ns.clone());
        let cool = Box::new(move || cooled.borrow_mut().remount());
        let think = move |ns| compute(&thought, &credit, ns);
        let calls = SystemCalls::new(root, cool).thinking(Box::new(think));
        Mounted { calls, meter, credit_ns, charge, ops: 0, synced_ns }
    }

    /// Syncs when its time has come.
    fn background(&mut self, op: &Op) -> io::Result<()> {
        self.ops += 1;
        if !self.ops.is_multiple_of(LOOK_OPS) && !matches!(op, Op::Think { .. }) {
            return Ok(());
        }
        let now_ns = self.meter.borrow_mut().peer.now_ns()?;
        if now_ns - self.synced_ns >= SYNC_MS * 1_000_000 {
            self.calls.sync()?;
            self.synced_ns = self.meter.borrow_mut().peer.now_ns()?;
            *self.credit_ns.borrow_mut() = self.synced_ns - now_ns;
        }
        Ok(())
    }
}

/// The program computes, unless it has done so during a sync.
fn compute(meter: &RefCell<Meter>, credit_ns: &RefCell<u64>, ns: u64) -> io::Result<()> {
    let mut credit = credit_ns.borrow_mut();
    let spent = ns.min(*credit);
    *credit -= spent;
    if ns > spent { meter.borrow_mut().peer.advance_ns(ns - spent) } else { Ok(()) }
}

impl Ground for Mounted {
    fn apply(&mut self, op: &Op, seen: &mut Seen) -> Result<(), String> {
        let before = (seen.calls, seen.read_bytes + seen.written_bytes);
        self.calls.apply(op, seen)?;
        let bytes = seen.read_bytes + seen.written_bytes - before.1;
        let ns = (seen.calls - before.0) * self.charge.call_ns + bytes * self.charge.kib_ns / 1024;
        compute(&self.meter, &self.credit_ns, ns).and_then(|()| self.background(op)).map_err(|e| e.to_string())
    }

    fn used_percent(&mut self) -> Result<f64, String> {
        self.calls.used_percent()
    }
}
