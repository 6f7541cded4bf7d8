//! How calls run on the state of a volume: one after another under its lock, and again if something was missing.
//!
//! A call looks up and checks first, then changes. Until its first change it may give up with [`Error::Restart`]; what
//! it wants is provided without the lock, so that others go on meanwhile, and the call restarts. If a call fails after
//! its first change, the state in core is half changed, so the volume turns read-only and nothing more is written.
//! `ENOSPC` is never returned with a change half made. Called by `locked.rs`, and by engines with locks of their own.

use crate::health::Health;
use arbor_base::sync::MutexGuard;
use arbor_base::vfs::{Errno, Error, Result};

/// State in core, as calls see it.
pub trait State {
    /// The reasons for which a call may give up.
    type RestartReason;
    /// What has been provided so far for a call that gave up.
    type Tries;

    /// State of the volume.
    fn health(&mut self) -> &mut Health;

    /// Called when a call begins, or restarts.
    fn begin_call(&mut self, tries: &mut Self::Tries);

    /// Called before the first change: from here on the call does not restart.
    fn stay(&mut self) {}

    /// Whether the call has changed something, so that it cannot restart.
    fn has_changed(&mut self) -> bool;

    /// Called when a call has succeeded: makes its changes durable, in an engine that waits for that.
    fn commit(&mut self) -> Result<()> {
        Ok(())
    }

    /// Called when a call has ended with this result, or gives up in order to restart.
    fn end_call<R>(&mut self, done: &Result<R>);

    /// Whether the volume may go on after this error of a call that has changed something: an error that refuses a call
    /// leaves the state whole.
    fn is_refusal(&self, e: &Error) -> bool {
        matches!(e, Error::Errno(n) if *n != Errno::EIO)
    }

    /// Turns the volume read-only.
    fn fail(&mut self, why: &Error) {
        self.health().fail(why);
    }

    /// The reason for which the call has given up.
    fn take_reason(&mut self) -> Option<Self::RestartReason>;
}

/// A volume whose calls run in this way.
pub trait Calls {
    /// The state under the lock.
    type Core: State;

    /// The state of a new call's attempts.
    fn tries(&self) -> <Self::Core as State>::Tries;

    /// Takes the lock.
    fn lock(&self) -> MutexGuard<'_, Self::Core>;

    /// Called when a call has succeeded: notes how much work has piled up.
    fn note_pressure(&self, core: &mut Self::Core);

    /// Provides what a call wants.
    fn provide(
        &self,
        want: <Self::Core as State>::RestartReason,
        tries: &mut <Self::Core as State>::Tries,
    ) -> Result<()>;

    /// Called when a call found no space: makes freed space usable. Returns whether the call should be tried again.
    fn make_space(&self, _tries: &mut <Self::Core as State>::Tries) -> Result<bool> {
        Ok(false)
    }
}

/// Runs a call.
///
/// # Errors
///
/// Those of the call, and of providing what it wanted.
pub fn run<V: Calls, R>(volume: &V, mut f: impl FnMut(&mut V::Core) -> Result<R>) -> Result<R> {
    let mut tries = volume.tries();
    loop {
        let mut next = Next::End;
        let done = attempt(volume, &mut tries, &mut f, &mut next);
        match next {
            Next::End => return done,
            Next::Provide(want) => volume.provide(want, &mut tries)?,
            Next::MakeSpace if volume.make_space(&mut tries)? => {}
            Next::MakeSpace => return done,
        }
    }
}

/// What follows an attempt to run a call.
enum Next<W> {
    End,
    Provide(W),
    MakeSpace,
}

/// Runs a call once. What it returns is not moved any more until `run` returns it.
fn attempt<V: Calls, R>(
    volume: &V,
    tries: &mut <V::Core as State>::Tries,
    f: &mut impl FnMut(&mut V::Core) -> Result<R>,
    next: &mut Next<<V::Core as State>::RestartReason>,
) -> Result<R> {
    let core = &mut *volume.lock();
    core.health().check_alive()?;
    core.begin_call(tries);
    let mut done = f(core);
    if done.is_ok()
        && let Err(e) = core.commit()
    {
        done = Err(e);
    }
    match &done {
        Ok(_) => {
            core.end_call(&done);
            volume.note_pressure(core);
        }
        Err(e) => {
            core.health().note(e);
            if core.has_changed() && !core.is_refusal(e) {
                core.fail(e);
            }
            core.end_call(&done);
            match e {
                Error::Restart => *next = core.take_reason().map_or(Next::End, Next::Provide),
                Error::Errno(Errno::ENOSPC) if core.health().is_writable() => *next = Next::MakeSpace,
                _ => {}
            }
        }
    }
    done
}
