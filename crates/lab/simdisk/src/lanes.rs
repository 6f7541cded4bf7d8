//! Several programs on one virtual clock.
//!
//! Each *lane* is a program on a thread of its own, but only one runs at a time: it has the processor. A lane that waits for a
//! simulated device gives the processor to the next one; time moves only when all wait, to the next thing that happens on a
//! device. A lane that finds a lock of the engine taken lets others run until it is released. Who is next depends on nothing
//! but the order of lanes, so a run repeats bit for bit.
//!
//! Where all lanes [meet](meet), the *conductor*, who started them, acts: it marks a phase, or mounts anew.
//!
//! What a lane computes ([`SimClock::advance_ns`](crate::SimClock)) it computes alone, as on one processor: requests of others go on
//! meanwhile.

use crate::device::SimDevice;
use crate::sim::Batch;
use arbor_base::sync::{Referee, refereed};
use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// What a lane does.
enum State {
    Ready,
    /// Waits for requests.
    Waits(SimDevice, Arc<Batch>),
    /// Found a lock taken, when so many had been released.
    Blocked(u64),
    Met,
    Ended,
}

/// Who runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Conductor,
    Lane(usize),
}

struct Table {
    turn: Turn,
    last: usize,
    lanes: Vec<State>,
    /// All wait for locks: nobody can go on.
    is_stuck: bool,
}

struct Shared {
    table: Mutex<Table>,
    changed: Condvar,
    /// Locks that were released so far.
    released: AtomicU64,
}

thread_local! {
    static LANE: RefCell<Option<(Arc<Shared>, usize)>> = const { RefCell::new(None) };
}

/// Runs `count` lanes to their ends, `lane(n)` each, and calls `meeting` whenever all that have not ended have met, also if some
/// have ended before. Returns what they return, in their order.
///
/// # Panics
///
/// If a lane panics, or if all wait for locks that nobody will release.
pub fn run<R: Send>(count: usize, lane: impl Fn(usize) -> R + Sync, mut meeting: impl FnMut()) -> Vec<R> {
    let lanes = (0..count).map(|_| State::Ready).collect();
    let table = Mutex::new(Table { turn: Turn::Conductor, last: count.saturating_sub(1), lanes, is_stuck: false });
    let shared = Arc::new(Shared { table, changed: Condvar::new(), released: AtomicU64::new(0) });
    thread::scope(|scope| {
        let start = |n: usize| {
            let (shared, lane) = (shared.clone(), &lane);
            scope.spawn(move || shared.lane(n, || lane(n)))
        };
        let threads: Vec<_> = (0..count).map(start).collect();
        while shared.conduct() {
            meeting();
        }
        let results = threads.into_iter().map(|thread| thread.join().and_then(|done| done));
        results.map(|done| done.unwrap_or_else(|e| resume_unwind(e))).collect()
    })
}

/// Waits until all lanes are here and the conductor has acted. Does nothing where there are no lanes.
pub fn meet() {
    if let Some((shared, me)) = LANE.with_borrow(Clone::clone) {
        shared.leave(me, State::Met);
    }
}

/// Waits for requests if this thread is a lane; says whether it is.
pub(crate) fn wait(device: &SimDevice, batch: &Arc<Batch>) -> bool {
    let Some((shared, me)) = LANE.with_borrow(Clone::clone) else { return false };
    if !batch.is_done() {
        shared.leave(me, State::Waits(device.clone(), batch.clone()));
    }
    device.clock().advance_to_ns(batch.end_ns());
    true
}

impl Shared {
    /// Runs a lane on this thread.
    fn lane<R>(self: &Arc<Shared>, me: usize, f: impl FnOnce() -> R) -> thread::Result<R> {
        LANE.set(Some((self.clone(), me)));
        self.wait_for_turn(me);
        let referee = Rc::new(Locks { shared: self.clone(), me });
        let done = catch_unwind(AssertUnwindSafe(|| refereed(referee, f)));
        LANE.set(None);
        // Locks that it held as it panicked are free now, and nobody has said so.
        self.released.fetch_add(1, Ordering::Relaxed);
        self.pass(me, State::Ended);
        done
    }

    fn leave(&self, me: usize, state: State) {
        self.pass(me, state);
        self.wait_for_turn(me);
    }

    fn pass(&self, me: usize, state: State) {
        let mut table = self.table.lock();
        if let Some(lane) = table.lanes.get_mut(me) {
            *lane = state;
        }
        self.choose(&mut table);
    }

    fn wait_for_turn(&self, me: usize) {
        let mut table = self.table.lock();
        self.changed.wait_while(&mut table, |table| table.turn != Turn::Lane(me) && !table.is_stuck);
        // One that unwinds goes on: a second panic would end the process.
        assert!(!table.is_stuck || thread::panicking(), "all lanes wait for locks");
    }

    /// Lets the lanes go on; returns when all of them have met, or, `false`, ended.
    fn conduct(&self) -> bool {
        let mut table = self.table.lock();
        table.lanes.iter_mut().filter(|lane| matches!(lane, State::Met)).for_each(|lane| *lane = State::Ready);
        self.choose(&mut table);
        self.changed.wait_while(&mut table, |table| table.turn != Turn::Conductor && !table.is_stuck);
        !table.is_stuck && table.lanes.iter().any(|lane| matches!(lane, State::Met))
    }

    /// Gives the processor to the next lane that can go on.
    fn choose(&self, table: &mut Table) {
        let count = table.lanes.len();
        table.turn = loop {
            let next = (1..=count).map(|n| (table.last + n) % count).find(|n| self.can_go_on(&table.lanes[*n]));
            if let Some(next) = next {
                table.last = next;
                table.lanes[next] = State::Ready;
                break Turn::Lane(next);
            }
            if table.lanes.iter().all(|lane| matches!(lane, State::Met | State::Ended)) {
                break Turn::Conductor;
            }
            if !move_time(&table.lanes) {
                table.is_stuck = true;
                break Turn::Conductor;
            }
        };
        self.changed.notify_all();
    }

    fn can_go_on(&self, lane: &State) -> bool {
        match lane {
            State::Ready => true,
            State::Blocked(seen) => *seen < self.released.load(Ordering::Relaxed),
            State::Waits(device, batch) => device.has_done(batch),
            State::Met | State::Ended => false,
        }
    }
}

/// Moves the clock to the next thing that happens on a device that somebody waits for; says whether anything does.
fn move_time(lanes: &[State]) -> bool {
    let mut events = BTreeMap::new();
    for lane in lanes {
        if let State::Waits(device, _) = lane {
            events.extend(device.next_event_ns().map(|at| (at, device)));
        }
    }
    match events.first_key_value() {
        Some((at, device)) => device.idle_until_ns(*at),
        None => return false,
    }
    true
}

/// What lanes do about locks.
struct Locks {
    shared: Arc<Shared>,
    me: usize,
}

impl Referee for Locks {
    fn acquire(&self, attempt: &mut dyn FnMut() -> bool) {
        loop {
            let seen = self.shared.released.load(Ordering::Relaxed);
            if attempt() {
                return;
            }
            self.shared.leave(self.me, State::Blocked(seen));
        }
    }

    fn released(&self) {
        self.shared.released.fetch_add(1, Ordering::Relaxed);
    }

    fn pause(&self) {}
}
