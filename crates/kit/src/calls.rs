//! How calls run on the state of a volume: one after another under its lock, begun anew where something is missing.
//!
//! A call looks up and checks first, then changes. Until its first change it may give up with
//! [`Error::Restart`]; what it wants is provided without the lock, so that others go on meanwhile, and the call begins
//! anew. If a call fails after its first change, what is in core is half of it, so the volume turns read-only and nothing
//! more is written. `ENOSPC` never comes with a change half made.

use crate::health::Health;
use arbor_base::sync::MutexGuard;
use arbor_base::vfs::{Errno, Error, Result};

/// State in core, as calls see it.
pub trait State {
    /// What a call may give up for.
    type RestartReason;
    /// What was done for a call that has given up.
    type Tries;

    /// State of the volume.
    fn health(&mut self) -> &mut Health;

    /// A call begins, or begins anew.
    fn begin_call(&mut self, tries: &mut Self::Tries);

    /// From here on the call changes something, and does not begin anew.
    fn stay(&mut self) {}

    /// Whether the call has changed something, so that it cannot begin anew.
    fn has_changed(&mut self) -> bool;

    /// A call has succeeded: what it has changed becomes durable, in an engine that waits for that.
    fn commit(&mut self) -> Result<()> {
        Ok(())
    }

    /// A call has ended like this, or gives up for a while.
    fn end_call<R>(&mut self, done: &Result<R>);

    /// Whether the volume may live on after this error of a call that has changed something: whoever refuses a call has left
    /// the state whole.
    fn is_refusal(&self, e: &Error) -> bool {
        matches!(e, Error::Errno(n) if *n != Errno::EIO)
    }

    /// Turns the volume read-only.
    fn fail(&mut self, why: &Error) {
        self.health().fail(why);
    }

    /// What the call has given up for.
    fn take_reason(&mut self) -> Option<Self::RestartReason>;
}

/// A volume whose calls run so.
pub trait Calls {
    /// What the lock holds.
    type Core: State;

    /// What a call begins with.
    fn tries(&self) -> <Self::Core as State>::Tries;

    /// Takes the lock.
    fn lock(&self) -> MutexGuard<'_, Self::Core>;

    /// A call has succeeded: notes how much work has piled up.
    fn note_pressure(&self, core: &mut Self::Core);

    /// Provides what a call wants.
    fn provide(
        &self,
        want: <Self::Core as State>::RestartReason,
        tries: &mut <Self::Core as State>::Tries,
    ) -> Result<()>;

    /// A call had not enough space: makes what was freed usable. Says whether the call should try again.
    fn make_space(&self, _tries: &mut <Self::Core as State>::Tries) -> Result<bool> {
        Ok(false)
    }
}

/// Runs a call.
///
/// # Errors
///
/// Those of the call, and of what it wanted.
pub fn run<V: Calls, R>(volume: &V, mut f: impl FnMut(&mut V::Core) -> Result<R>) -> Result<R> {
    let mut tries = volume.tries();
    loop {
        let want = match attempt(volume, &mut tries, &mut f)? {
            Ended::Done(r) => return Ok(r),
            Ended::GaveUp(want) => want,
            Ended::NoSpace => {
                if volume.make_space(&mut tries)? {
                    continue;
                }
                return Err(Errno::ENOSPC.into());
            }
        };
        volume.provide(want, &mut tries)?;
    }
}

/// How an attempt to run a call has ended.
enum Ended<R, W> {
    Done(R),
    GaveUp(W),
    NoSpace,
}

type Attempt<V, R> = Result<Ended<R, <<V as Calls>::Core as State>::RestartReason>>;

fn attempt<V: Calls, R>(
    volume: &V,
    tries: &mut <V::Core as State>::Tries,
    f: &mut impl FnMut(&mut V::Core) -> Result<R>,
) -> Attempt<V, R> {
    let core = &mut *volume.lock();
    core.health().check_alive()?;
    core.begin_call(tries);
    let done = f(core).and_then(|r| core.commit().map(|()| r));
    if let Err(e) = &done {
        core.health().note(e);
        if core.has_changed() && !core.is_refusal(e) {
            core.fail(e);
        }
    }
    core.end_call(&done);
    match done {
        Ok(r) => {
            volume.note_pressure(core);
            Ok(Ended::Done(r))
        }
        Err(Error::Restart) => core.take_reason().map(Ended::GaveUp).ok_or(Error::Restart),
        Err(Error::Errno(Errno::ENOSPC)) if core.health().is_writable() => Ok(Ended::NoSpace),
        Err(e) => Err(e),
    }
}
