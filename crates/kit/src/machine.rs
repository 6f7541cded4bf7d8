//! The state that calls share on a volume with one lock.
//!
//! [`Machinery`] is what an engine keeps in its state; it implements [`Machine`], and gets [`State`] and [`Lives`] by
//! that. Called by `locked.rs`.

use crate::calls::State;
use crate::growth::PendingGrowth;
use crate::health::Health;
use crate::invariants::{self, Invariants, Turns};
use crate::lifetimes::{Lifetimes, Lives};
use crate::reads::{Arrived, Missing, Reads, Restart};
use arbor_base::cache::Cache;
use arbor_base::device::Device;
use arbor_base::vfs::{Error, Result, Time};

/// Most reads without the lock for one call; then it reads under the lock, since others may keep writing there.
const MOST_FETCHES: u32 = 64;

/// What has been provided so far for a call that gave up.
#[derive(Debug, Default)]
pub struct Tries {
    arrived: Vec<Arrived>,
    fetches: u32,
    restart: Restart,
    /// Space was made for it already, or it needs none.
    no_space: bool,
}

impl Tries {
    /// For a call that restarts or not, and may want space to be made.
    pub(crate) fn new(restart: Restart, needs_space: bool) -> Tries {
        Tries { restart, no_space: !needs_space, ..Tries::default() }
    }

    /// Whether space may be made for it, which happens only once.
    pub(crate) fn takes_space(&mut self) -> bool {
        !std::mem::replace(&mut self.no_space, true)
    }

    /// For [`Reads::begin`](crate::reads::Reads::begin): when to give up, and what has arrived.
    pub fn reads(&mut self) -> (Restart, Vec<Arrived>) {
        let restart = if self.fetches < MOST_FETCHES { self.restart } else { Restart::Never };
        (restart, std::mem::take(&mut self.arrived))
    }

    /// Does the read that a call wants.
    pub(crate) fn fetch(&mut self, want: Missing, device: &dyn Device) {
        self.fetches += 1;
        self.arrived = want.read(device);
    }
}

/// State that calls need, and keep, on a volume with one lock.
pub struct Machinery {
    /// State of the volume.
    pub health: Health,
    /// Lookup counts, orphans and inodes to be freed.
    pub lives: Lifetimes,
    /// Files that a call of several steps works on.
    pub growth: PendingGrowth,
    /// Reads of the call that runs.
    pub reads: Reads,
    begin: Time,
    now: Time,
    now_ms: u64,
    changes: u64,
    turns: Turns,
}

impl Machinery {
    /// For a volume that is mounted at `now`.
    pub fn new(now: Time) -> Machinery {
        Machinery {
            health: Health::default(),
            lives: Lifetimes::default(),
            growth: PendingGrowth::default(),
            reads: Reads::default(),
            begin: now,
            now,
            now_ms: 0,
            changes: 0,
            turns: Turns::default(),
        }
    }

    /// The present time, at which the lock was taken.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The same in milliseconds since the mount; it never goes back.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Milliseconds from the mount until `now`, not before the present time.
    pub fn ms_until(&self, now: Time) -> u64 {
        self.begin.ms_until(now).max(self.now_ms)
    }

    pub(crate) fn set_now(&mut self, now: Time) {
        (self.now, self.now_ms) = (now, self.ms_until(now));
    }

    /// Notes that the running call changes something.
    pub fn note_change(&mut self) {
        debug_assert!(!self.reads.may_restart(), "a call that changes something does not begin anew");
        self.changes += 1;
    }

    /// Whether the call that runs has changed something.
    pub fn has_changed(&self) -> bool {
        self.changes > 0
    }

    /// Whether invariants have to hold: a failed call may be half done, and damage is no mistake of the code.
    fn is_whole(&self) -> bool {
        !self.health.has_failed() && !self.health.has_met_damage()
    }
}

/// State that has this machinery.
pub trait Machine: Invariants {
    /// The machinery.
    fn calls(&mut self) -> &mut Machinery;

    /// The cache.
    fn cache(&mut self) -> &mut Cache;

    /// Called when a call has succeeded: makes its changes durable, in an engine that waits for that.
    fn commit(&mut self) -> Result<()> {
        Ok(())
    }

    /// After a call: if there is more dirty than the limit, the caller writes some back (throttling).
    fn throttle(&mut self) {}

    /// Checks the invariants, if something was changed since the call began and a check is due.
    fn look(&mut self) {
        let calls = self.calls();
        if !calls.has_changed() || !calls.is_whole() {
            return;
        }
        let mut turns = std::mem::take(&mut calls.turns);
        if turns.is_due(|| self.extent()) {
            invariants::execute(self);
        }
        self.calls().turns = turns;
    }

    /// Turns the volume read-only.
    fn give_up(&mut self, why: &Error) {
        self.calls().health.fail(why);
    }
}

impl<M: Machine> Lives for M {
    fn lives(&mut self) -> &mut Lifetimes {
        &mut self.calls().lives
    }

    fn changes(&mut self) -> u64 {
        self.calls().changes
    }

    fn note_damage_met(&mut self) {
        self.calls().health.note_damage();
    }

    fn pass_by(&mut self, damage: &arbor_base::vfs::Error) {
        self.calls().health.pass_by(damage);
    }
}

impl<M: Machine> State for M {
    type RestartReason = Missing;
    type Tries = Tries;

    fn health(&mut self) -> &mut Health {
        &mut self.calls().health
    }

    fn begin_call(&mut self, tries: &mut Tries) {
        self.cache().keep_all(true);
        let (restart, arrived) = tries.reads();
        let calls = self.calls();
        calls.changes = 0;
        calls.reads.begin(restart, arrived);
    }

    fn stay(&mut self) {
        self.calls().reads.stay();
    }

    fn has_changed(&mut self) -> bool {
        self.calls().has_changed()
    }

    fn commit(&mut self) -> Result<()> {
        Machine::commit(self)
    }

    fn end_call<R>(&mut self, done: &Result<R>) {
        self.calls().reads.end();
        if done.is_ok() {
            self.throttle();
            self.look();
        }
        self.cache().keep_all(false);
    }

    fn fail(&mut self, why: &Error) {
        self.give_up(why);
    }

    fn take_reason(&mut self) -> Option<Missing> {
        self.calls().reads.take_reason()
    }
}
