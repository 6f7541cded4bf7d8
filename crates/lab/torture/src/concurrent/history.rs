//! Whether what several tasks were told is what they would have been told one after the other: the
//! search of Wing and Gong ("Testing and verifying concurrent objects", 1993) for a linearization.
//!
//! A call may be put anywhere between its beginning and its end. For each order that agrees with
//! every result, `visit` is asked; it may want another one.

use crate::exec::{Facts, Outcome, Side, agree};
use crate::model::{Model, State};
use crate::ops::Op;
use crate::oracle::{Oracle, Promise, Step};
use arbor_base::vfs::Errno;
use std::sync::Arc;

/// A call as its task saw it.
#[derive(Clone, Debug)]
pub struct Call {
    /// The operation.
    pub op: Op,
    /// What it gave.
    pub outcome: Outcome,
    /// Moments at which it began and ended, in any unit.
    pub span: (u64, u64),
    /// Events of the device at these moments, where they are known.
    pub events: (usize, usize),
}

/// Where the search stands: the model, and how far each task is.
struct Place {
    model: Arc<Model>,
    sides: Vec<Side>,
    next: Vec<usize>,
}

impl Place {
    fn fork(&self) -> Place {
        let model = Arc::new(self.model.fork());
        let sides = self.sides.iter().map(|s| s.fork(model.clone())).collect();
        Place { model, sides, next: self.next.clone() }
    }
}

/// A call in its place of the order: the task, what it promised, and the state after it.
pub(super) struct Placed<'a> {
    pub(super) task: usize,
    pub(super) call: &'a Call,
    promise: Promise,
    state: State,
}

/// A search; see the module.
pub(super) struct Search<'a> {
    tasks: &'a [Vec<Call>],
    agrees: Agrees,
    order: Vec<Placed<'a>>,
    /// The longest order that agrees, for the report.
    pub(super) best: Vec<usize>,
    /// Bounds the work.
    left: u32,
}

/// Orders that are looked at before a search gives up; no history here comes near it.
const MOST: u32 = 200_000;

impl<'a> Search<'a> {
    pub(super) fn new(tasks: &'a [Vec<Call>], agrees: Agrees) -> Search<'a> {
        Search { tasks, agrees, order: Vec::new(), best: Vec::new(), left: MOST }
    }

    /// Whether `visit` is content with one of the orders. `model` and `sides` stand where the
    /// history begins.
    pub(super) fn run(
        &mut self,
        model: Arc<Model>,
        sides: Vec<Side>,
        visit: &mut dyn FnMut(&[Placed<'_>], &State) -> bool,
    ) -> bool {
        let next = vec![0; self.tasks.len()];
        self.step(Place { model, sides, next }, visit)
    }

    fn step(&mut self, place: Place, visit: &mut dyn FnMut(&[Placed<'_>], &State) -> bool) -> bool {
        let tasks = self.tasks;
        if self.order.len() > self.best.len() {
            self.best = self.order.iter().map(|p| p.task).collect();
        }
        let waiting: Vec<(usize, &Call)> =
            place.next.iter().enumerate().filter_map(|(t, n)| Some((t, tasks[t].get(*n)?))).collect();
        let Some(first_end) = waiting.iter().map(|(_, c)| c.span.1).min() else {
            return place.model.with_state(|state| visit(&self.order, state));
        };
        for (task, call) in waiting {
            // What began after another had ended cannot come before it.
            if call.span.0 > first_end || self.left == 0 {
                continue;
            }
            self.left -= 1;
            let mut place = place.fork();
            let promise = promise(call, &place.sides[task]);
            if !is_refused(call) {
                let told = place.sides[task].apply(&call.op);
                if !(self.agrees)(&call.op, &told, &call.outcome) {
                    continue;
                }
            }
            place.next[task] += 1;
            let state = place.model.state();
            self.order.push(Placed { task, call, promise, state });
            if self.step(place, visit) {
                return true;
            }
            self.order.pop();
        }
        false
    }
}

/// Whether what a call gave is what the model gives.
pub(super) type Agrees = fn(&Op, &Outcome, &Outcome) -> bool;

/// Whether two results differ at most in what a call of several steps shows half-way.
pub(super) fn half_way(op: &Op, told: &Outcome, saw: &Outcome) -> bool {
    match (told, saw) {
        (Outcome::File(a), Outcome::File(b)) => Facts { size: 0, ..*a } == Facts { size: 0, ..*b },
        (Outcome::Bytes(_), Outcome::Bytes(_)) | (Outcome::Count(_), Outcome::Count(_)) => true,
        _ => agree(op, told, saw),
    }
}

/// Whether they agree as far as a system call tells: one that makes something says only that it has,
/// and the links of what a path led to may be those of a later moment, when it leads there no more.
pub(super) fn by_system_call(op: &Op, told: &Outcome, saw: &Outcome) -> bool {
    match (told, saw) {
        (Outcome::File(a), Outcome::File(b)) => Facts { nlink: 0, ..*a } == Facts { nlink: 0, ..*b },
        (told, Outcome::Done) => !matches!(told, Outcome::Err(_)),
        _ => agree(op, told, saw),
    }
}

/// Whether the engine knows no such call, so that it did nothing.
fn is_refused(call: &Call) -> bool {
    matches!((&call.op, &call.outcome), (Op::Fallocate { mode, .. }, Outcome::Err(Errno::EOPNOTSUPP)) if *mode != 0)
}

fn promise(call: &Call, model: &Side) -> Promise {
    match (&call.op, &call.outcome) {
        (_, Outcome::Err(_)) => Promise::None,
        (Op::Fsync { path, .. }, _) => model.find(path).map_or(Promise::None, |held| Promise::File(held.ino.0)),
        (Op::Syncfs {}, _) => Promise::All,
        _ => Promise::None,
    }
}

/// The history of an order, for the power cut. What comes later in the order has begun later and
/// ended later as far as the oracle knows, which can only widen what it lets pass.
pub(super) fn oracle(begin: State, order: &[Placed<'_>]) -> Oracle {
    let mut oracle = Oracle::new(begin);
    let starts = order.iter().rev().scan(usize::MAX, |least, p| {
        *least = (*least).min(p.call.events.0);
        Some(*least)
    });
    let starts: Vec<usize> = starts.collect();
    let mut end = 0;
    for (placed, start) in order.iter().zip(starts.into_iter().rev()) {
        end = end.max(placed.call.events.1);
        let step = Step { op: placed.call.op.clone(), start, end, promise: placed.promise, replacer: None };
        oracle.push(step, placed.state.clone());
    }
    oracle
}
