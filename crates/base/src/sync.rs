//! Locks as engines use them: those of `parking_lot`, with a checked order and a hook for schedulers.
//!
//! Debug builds check the order of locks ([`Rank`]). A thread that runs under a [`Referee`] never waits in the
//! operating system: it asks the referee, which lets other tasks run until the lock is free. So every interleaving that
//! the locks allow can be chosen, and repeated, with the code that ships. Without a referee the hook costs a load and a
//! branch.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Decides which task runs, for all tasks of one thread.
pub trait Referee {
    /// Calls `attempt` until it returns that the lock is taken. Other tasks may run before, and must run between two
    /// attempts.
    fn acquire(&self, attempt: &mut dyn FnMut() -> bool);

    /// Called when a lock was released: waiting tasks may try again.
    fn released(&self);

    /// Lets other tasks run although nobody waits for them.
    fn pause(&self);
}

/// Number of threads that have a referee.
static REFEREES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static REFEREE: RefCell<Option<Rc<dyn Referee>>> = const { RefCell::new(None) };
}

fn referee() -> Option<Rc<dyn Referee>> {
    if REFEREES.load(Relaxed) == 0 { None } else { REFEREE.with_borrow(Clone::clone) }
}

/// Lets other tasks run, if there is a referee.
pub fn pause() {
    if let Some(r) = referee() {
        r.pause();
    }
}

/// Runs `f` with a referee for the locks of this thread.
pub fn refereed<R>(referee: Rc<dyn Referee>, f: impl FnOnce() -> R) -> R {
    struct Undo(Option<Rc<dyn Referee>>);
    impl Drop for Undo {
        fn drop(&mut self) {
            REFEREE.set(self.0.take());
            REFEREES.fetch_sub(1, Relaxed);
        }
    }
    REFEREES.fetch_add(1, Relaxed);
    let _undo = Undo(REFEREE.replace(Some(referee)));
    f()
}

/// Takes a lock through the referee.
fn ask<G>(referee: &dyn Referee, mut attempt: impl FnMut() -> Option<G>) -> G {
    let mut got = None;
    loop {
        referee.acquire(&mut || {
            got = attempt();
            got.is_some()
        });
        if let Some(guard) = got.take() {
            return guard;
        }
    }
}

/// Tells the referee when it goes out of scope: after the guard of the lock beside it.
struct Release(Rank);

impl Drop for Release {
    fn drop(&mut self) {
        order::leave(self.0);
        // A task that unwinds must not be switched away from.
        if !std::thread::panicking()
            && let Some(r) = referee()
        {
            r.released();
        }
    }
}

/// Place of a lock in the order in which a thread may take locks: each one above all it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(pub u8);

#[cfg(debug_assertions)]
mod order {
    use super::{REFEREE, Rank};
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    /// Tasks of a referee share a thread, so theirs are not kept apart here.
    fn applies() -> bool {
        REFEREE.with_borrow(Option::is_none)
    }

    pub(super) fn enter(rank: Rank) {
        if applies() {
            HELD.with_borrow_mut(|held| {
                assert!(held.iter().all(|h| *h < rank), "a lock of {rank:?} is taken under {held:?}");
                held.push(rank);
            });
        }
    }

    pub(super) fn leave(rank: Rank) {
        if applies() {
            HELD.with_borrow_mut(|held| {
                if let Some(at) = held.iter().rposition(|h| *h == rank) {
                    held.remove(at);
                }
            });
        }
    }
}

#[cfg(not(debug_assertions))]
mod order {
    use super::Rank;
    pub(super) fn enter(_: Rank) {}
    pub(super) fn leave(_: Rank) {}
}

/// A mutex.
pub struct Mutex<T> {
    rank: Rank,
    /// Called on the value when a holder panics.
    condemn: fn(&mut T),
    inner: parking_lot::Mutex<T>,
}

/// Holds a [`Mutex`]. The order of the fields is the order in which they are dropped.
pub struct MutexGuard<'a, T> {
    inner: parking_lot::MutexGuard<'a, T>,
    condemn: fn(&mut T),
    /// Whether the thread was unwinding when it took the lock.
    was_panicking: bool,
    _release: Release,
}

impl<T> Mutex<T> {
    /// A mutex with its place in the order of locks. Its value stays sound even if a holder panics.
    pub fn new(rank: Rank, value: T) -> Mutex<T> {
        Mutex::condemning(rank, value, |_| ())
    }

    /// A mutex whose value may be left half changed by a holder that panics: `condemn` is called on it then, before the
    /// lock is taken again.
    pub fn condemning(rank: Rank, value: T, condemn: fn(&mut T)) -> Mutex<T> {
        Mutex { rank, condemn, inner: parking_lot::Mutex::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }

    /// Waits until it is free, and takes it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        order::enter(self.rank);
        let inner = match referee() {
            None => self.inner.lock(),
            Some(r) => ask(&*r, || self.inner.try_lock()),
        };
        let was_panicking = std::thread::panicking();
        MutexGuard { inner, condemn: self.condemn, was_panicking, _release: Release(self.rank) }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            (self.condemn)(&mut self.inner);
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mutex({:?})", self.rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[derive(Default)]
    struct Counting {
        asked: Cell<u32>,
        released: Cell<u32>,
    }

    impl Referee for Counting {
        fn acquire(&self, attempt: &mut dyn FnMut() -> bool) {
            self.asked.set(self.asked.get() + 1);
            assert!(attempt());
        }
        fn released(&self) {
            self.released.set(self.released.get() + 1);
        }
        fn pause(&self) {}
    }

    #[test]
    fn a_referee_is_asked_and_told() {
        let referee = Rc::new(Counting::default());
        let (lock, other) = (Mutex::new(Rank(0), 5), Mutex::new(Rank(1), ()));
        refereed(referee.clone(), || {
            let mut held = lock.lock();
            *held += 1;
            let _other = other.lock();
        });
        assert_eq!((referee.asked.get(), referee.released.get()), (2, 2));
        assert_eq!(*lock.lock(), 6);
        assert_eq!(referee.asked.get(), 2);
    }

    #[test]
    fn who_panics_condemns_what_it_held() {
        let lock = Mutex::condemning(Rank(0), (0, false), |v| v.1 = true);
        let panics = || {
            let _late = Late(&lock);
            panic!("outside of the lock");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(*lock.lock(), (1, false), "taken while unwinding, and left whole");
        let panics = || {
            let _held = lock.lock();
            panic!("inside");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(*lock.lock(), (1, true));
    }

    struct Late<'a>(&'a Mutex<(i32, bool)>);

    impl Drop for Late<'_> {
        fn drop(&mut self) {
            self.0.lock().0 += 1;
        }
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "is taken under")]
    fn the_order_is_checked() {
        let (first, second) = (Mutex::new(Rank(0), ()), Mutex::new(Rank(1), ()));
        let _second = second.lock();
        let _first = first.lock();
    }
}
