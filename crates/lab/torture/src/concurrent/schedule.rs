//! Tasks under `shuttle`: the referee of the engine's locks, the scheduler that draws who goes
//! next, and a device that lets others in while it works.

use crate::rng::{Rng, mix};
use arbor_base::device::{Device, Geometry, Op, Request, SECTOR, Ticket};
use arbor_base::sync::{self, Referee};
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::sync::{Condvar, Mutex};
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What tasks of one execution wait on; all locks share it.
pub(super) struct Turn {
    lock: Mutex<()>,
    changed: Condvar,
}

thread_local! {
    static TURN: RefCell<Option<Arc<Turn>>> = const { RefCell::new(None) };
}

/// Begins an execution: the locks of this thread are shuttle's business from now on.
pub(super) fn begin() {
    TURN.set(Some(Arc::new(Turn { lock: Mutex::new(()), changed: Condvar::new() })));
}

/// Ends it.
pub(super) fn end() {
    TURN.set(None);
}

/// Hands the engine's locks to shuttle while an execution is under way.
pub(super) struct Shuttle;

fn turn() -> Option<Arc<Turn>> {
    TURN.with_borrow(Clone::clone)
}

impl Referee for Shuttle {
    fn acquire(&self, attempt: &mut dyn FnMut() -> bool) {
        let Some(turn) = turn() else {
            // Outside of an execution there is one task only, and nobody to wait for.
            assert!(attempt(), "deadlock: a lock is held for ever");
            return;
        };
        drop(turn.lock.lock());
        if attempt() {
            return;
        }
        // Whoever releases a lock takes this one before it wakes the others, so that the news
        // cannot come between the attempt and the wait.
        let mut held = turn.lock.lock().unwrap_or_else(|e| e.into_inner());
        while !attempt() {
            held = turn.changed.wait(held).unwrap_or_else(|e| e.into_inner());
        }
    }

    fn released(&self) {
        if let Some(turn) = turn() {
            let _held = turn.lock.lock();
            turn.changed.notify_all();
        }
    }

    fn pause(&self) {
        if let Some(turn) = turn() {
            drop(turn.lock.lock());
        }
    }
}

/// Draws schedules: each from a seed of its own, and each with its own inclination to let a task
/// go on. In half of them one task is slow, so that the others get far while it is in the middle of
/// something.
pub(super) struct Picks {
    seeds: std::vec::IntoIter<u64>,
    rng: Rng,
    /// Percent of the decisions at which the task goes on.
    stay: u64,
    slow: Option<TaskId>,
    /// The seed of the execution under way, for whoever reports.
    now: Arc<AtomicU64>,
    stop: Box<dyn Fn() -> bool>,
}

impl Picks {
    /// A schedule from each of `seeds`, until `stop` says so.
    pub(super) fn new(seeds: Vec<u64>, now: Arc<AtomicU64>, stop: impl Fn() -> bool + 'static) -> Picks {
        Picks { seeds: seeds.into_iter(), rng: Rng::new(0), stay: 0, slow: None, now, stop: Box::new(stop) }
    }
}

impl Scheduler for Picks {
    fn new_execution(&mut self) -> Option<Schedule> {
        let seed = self.seeds.next().filter(|_| !(self.stop)())?;
        self.now.store(seed, Relaxed);
        self.rng = Rng::new(mix(seed));
        self.stay = *self.rng.pick(&[0, 50, 75, 90, 97]);
        // Task 0 is the one that waits for the others.
        self.slow = self.rng.one_in(2).then(|| TaskId::from(1 + self.rng.below(3) as usize));
        Some(Schedule::new(seed))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, yielding: bool) -> Option<TaskId> {
        let fast: Vec<&Task> = runnable.iter().filter(|t| Some(t.id()) != self.slow).copied().collect();
        let runnable = if fast.is_empty() || self.rng.one_in(24) { runnable } else { &fast };
        let on = runnable.iter().find(|t| Some(t.id()) == current && !yielding);
        match on {
            Some(task) if self.rng.below(100) < self.stay => Some(task.id()),
            _ => Some(self.rng.pick(runnable).id()),
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.rng.next_u64()
    }
}

/// A device during whose operations other tasks may run: before, after, and in the middle of a
/// transfer, so that who reads beside a write may see a part of it.
#[derive(Clone)]
pub(super) struct Leisurely<D>(pub(super) D);

impl<D: Device> Leisurely<D> {
    fn carry_out(&self, request: Request) -> io::Result<Vec<u8>> {
        let (kind, at, sectors) = (request.kind, request.offset, request.len() / SECTOR as u64);
        // Somewhere inside, but at the same place when the run is repeated.
        let cut = if sectors > 1 { 1 + mix(at ^ sectors) % (sectors - 1) } else { 0 } as usize * SECTOR;
        match request.op {
            Op::Read(len) if cut > 0 => {
                let mut bytes = vec![0; len];
                let (head, tail) = bytes.split_at_mut(cut);
                self.0.read_at(kind, at, head)?;
                sync::pause();
                self.0.read_at(kind, at + cut as u64, tail)?;
                Ok(bytes)
            }
            Op::Write(pieces) if cut > 0 => {
                let bytes: Vec<u8> = pieces.iter().flat_map(|b| b.bytes().iter().copied()).collect();
                self.0.write_at(kind, at, &bytes[..cut])?;
                sync::pause();
                self.0.write_at(kind, at + cut as u64, &bytes[cut..])?;
                Ok(Vec::new())
            }
            op => {
                let done = self.0.submit(vec![Request { kind, offset: at, op }]).wait().pop();
                done.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))
            }
        }
    }
}

impl<D: Device> Device for Leisurely<D> {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        sync::pause();
        let done = batch.into_iter().map(|request| self.carry_out(request)).collect();
        sync::pause();
        Ticket::done(done)
    }

    fn flush(&self) -> io::Result<()> {
        sync::pause();
        let done = self.0.flush();
        sync::pause();
        done
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.0.set_size(size)
    }
}
