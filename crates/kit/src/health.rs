//! The state of a volume as a whole: whether calls are served, may change it, and whether it is marked clean.

use arbor_base::vfs::{Errno, Error, PANICKED, Result};
use std::sync::Arc;

/// The state of a volume as a whole.
#[derive(Clone, Debug, Default)]
pub struct Health {
    failed: Option<Arc<str>>,
    unmounted: bool,
    read_only: bool,
    damage_met: bool,
    /// Damage that no call has failed by, in words.
    untold: Vec<String>,
}

/// The result of a step of a truncation. Where damage ends it after something was freed, that was a step of its own, `None`, and
/// the next one fails before it changes anything.
pub fn freed_before<T>(step: Result<T>, has_freed: bool) -> Result<Option<T>> {
    match step {
        Err(e) if e.is_damage() && has_freed => Ok(None),
        step => step.map(Some),
    }
}

/// How much damage waits to be told: the rest is much the same.
const UNTOLD: usize = 16;

impl Health {
    /// For a volume that is being mounted.
    pub fn new(read_only: bool) -> Health {
        Health { read_only, ..Health::default() }
    }

    /// Sets whether the volume is mounted for reading only.
    pub fn set_read_only(&mut self, read_only: bool) {
        self.read_only = read_only;
    }

    /// `EIO` if the volume was unmounted.
    pub fn check_alive(&self) -> Result<()> {
        if self.unmounted { Err(Errno::EIO.into()) } else { Ok(()) }
    }

    /// `EROFS` if nothing may be changed (any more).
    pub fn check_writable(&self) -> Result<()> {
        self.check_alive()?;
        if self.read_only || self.failed.is_some() { Err(Errno::EROFS.into()) } else { Ok(()) }
    }

    /// Fails once the volume has failed: nothing that depends on an order may be written after that.
    pub fn check_ordered(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |why| Err(Error::Failed(why.clone())))
    }

    /// Whether the volume may be changed.
    pub fn is_writable(&self) -> bool {
        self.check_writable().is_ok()
    }

    /// Whether the volume was mounted for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Turns the volume read-only for good. The first of several reasons is kept.
    pub fn fail(&mut self, why: &Error) {
        if !matches!(why, Error::Failed(_)) {
            self.failed.get_or_insert_with(|| why.to_string().into());
        }
    }

    /// Turns the volume read-only after a call has panicked: the state in core may be half changed.
    pub fn condemn(&mut self) {
        self.failed.get_or_insert_with(|| PANICKED.into());
    }

    /// Turns the volume read-only for a reason from outside; see
    /// [`FileSystem::fail`](arbor_base::vfs::FileSystem::fail).
    pub fn give_up(&mut self, why: &str) {
        self.failed.get_or_insert_with(|| why.into());
    }

    /// Why the volume has turned read-only, if it has.
    pub fn failure(&self) -> Option<String> {
        self.failed.as_ref().map(|why| why.to_string())
    }

    /// Whether the volume has failed.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Notes the error of a call; if it is damage, the volume is not marked clean, so that fsck looks at it.
    pub fn note(&mut self, e: &Error) {
        self.damage_met |= matches!(e, Error::Corrupt(_));
    }

    /// Notes that damage was met.
    pub fn note_damage(&mut self) {
        self.damage_met = true;
    }

    /// Notes damage that was met beside what a call has to do, and by which it does not fail.
    pub fn pass_by(&mut self, damage: impl std::fmt::Display) {
        self.damage_met = true;
        if self.untold.len() < UNTOLD {
            self.untold.push(damage.to_string());
        }
    }

    /// Whether something could be done, or damage kept from it, which is passed by then. Other errors are the caller's.
    pub fn passes(&mut self, done: Result<()>) -> Result<bool> {
        match done {
            Err(e) if e.is_damage() => {
                self.pass_by(e);
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }

    /// Takes what was passed by, to be told.
    pub fn take_untold(&mut self) -> Vec<String> {
        std::mem::take(&mut self.untold)
    }

    /// Notes that the damage met is repaired.
    pub fn damage_repaired(&mut self) {
        self.damage_met = false;
    }

    /// Whether damage was met.
    pub fn has_met_damage(&self) -> bool {
        self.damage_met
    }

    /// Ends service: further calls fail.
    pub fn unmount(&mut self) {
        self.unmounted = true;
    }

    /// Begins to unmount. Returns the result of unmounting if there is nothing to write, else `None`.
    pub fn begin_unmount(&mut self) -> Option<Result<()>> {
        let nothing = self.unmounted || self.read_only;
        if !nothing && !self.has_failed() {
            return None;
        }
        self.unmounted = true;
        // The state in core of a failed volume may be half changed.
        Some(if nothing { Ok(()) } else { self.check_ordered() })
    }

    /// Ends unmounting; `done` is the result of its last work.
    pub fn end_unmount(&mut self, done: Result<()>) -> Result<()> {
        self.unmounted = true;
        self.check_ordered().and(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno(r: Result<()>) -> Option<Errno> {
        r.err().map(|e| e.errno())
    }

    #[test]
    fn the_first_reason_stays() {
        let mut health = Health::new(false);
        assert_eq!((errno(health.check_writable()), errno(health.check_ordered())), (None, None));
        health.fail(&Errno::EIO.into());
        health.give_up("later");
        health.condemn();
        assert_eq!(health.failure().as_deref(), Some("Input/output error"));
        assert_eq!((errno(health.check_writable()), errno(health.check_alive())), (Some(Errno::EROFS), None));
        let why = health.check_ordered().unwrap_err();
        assert_eq!((why.errno(), why.to_string()), (Errno::EIO, "turned read-only: Input/output error".into()));
        let mut other = Health::new(false);
        other.fail(&why);
        assert!(!other.has_failed(), "what a failed volume says is no reason of its own");
    }

    #[test]
    fn unmounting_tells_of_a_failure() {
        let mut health = Health::new(false);
        assert!(health.begin_unmount().is_none() && health.check_alive().is_ok());
        health.give_up("why");
        assert_eq!(errno(health.end_unmount(Ok(()))), Some(Errno::EIO));
        assert_eq!(errno(health.check_alive()), Some(Errno::EIO));
        assert!(health.begin_unmount().is_some_and(|r| r.is_ok()), "once is enough");
        let mut failed = Health::new(false);
        failed.condemn();
        assert!(failed.begin_unmount().is_some_and(|r| r.is_err()));
        assert!(Health::new(true).begin_unmount().is_some_and(|r| r.is_ok()));
    }
}
