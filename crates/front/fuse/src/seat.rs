//! Who waits for the kernel: one worker at a time, the *leader*; the others follow.
//!
//! Waking a thread costs more than most requests, and a request that every waiting worker is
//! woken for costs it many times. So only the leader waits on the device (it spins for a moment,
//! then sleeps), and while requests are short and come one by one it serves them all by itself.
//! It gives the seat away *before* it serves a request when
//!
//! * the kind of request is long (fsync and the like),
//! * requests have lately been long (a read that waits for the disk), or
//! * requests queue up.
//!
//! A worker without the seat goes on as long as requests are queued, and then follows. What all
//! this misses is a request that is long by surprise: one follower, the *watcher*, looks every
//! [`WATCH_MS`] whether the leader is still at the same request, and if so takes the seat. It goes
//! to sleep for good when nothing has happened for [`WATCH_ROUNDS`] looks, and the leader wakes one
//! when it starts to serve without being watched. So a request that hangs never stops the mount
//! as long as a worker is left.
//!
//! | transition | function |
//! |---|---|
//! | follower, watcher -> leader | [`Seat::take`] |
//! | leader serves and keeps the seat | [`Seat::begin`], [`Seat::end`] |
//! | leader -> worker without the seat | [`Seat::give`] |
//! | everything -> end | [`Seat::stop`] |

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Between two looks of the watcher.
const WATCH_MS: u64 = 5;
/// Looks without a request after which the watcher sleeps.
const WATCH_ROUNDS: u32 = 20;

#[derive(Default)]
struct State {
    leader: Option<usize>,
    watcher: bool,
}

/// The seat of the leader.
#[derive(Default)]
pub(crate) struct Seat {
    state: Mutex<State>,
    changed: Condvar,
    /// Odd while the leader serves a request, and never the same for two of them.
    beat: AtomicU64,
    /// Copy of `State::watcher`.
    watched: AtomicBool,
    stopped: AtomicBool,
}

impl Seat {
    /// Waits until worker `me` leads; `false` at the end.
    pub(crate) fn take(&self, me: usize) -> bool {
        let mut state = self.state.lock();
        loop {
            if self.stopped() {
                return false;
            }
            match state.leader {
                Some(leader) if leader != me => {}
                _ => {
                    state.leader = Some(me);
                    return true;
                }
            }
            if state.watcher {
                self.changed.wait(&mut state);
                continue;
            }
            state.watcher = true;
            self.watched.store(true, Ordering::Relaxed);
            let mut quiet = 0;
            let mut seen = self.beat.load(Ordering::Relaxed);
            while !self.stopped() && state.leader.is_some() && quiet < WATCH_ROUNDS {
                self.changed.wait_for(&mut state, Duration::from_millis(WATCH_MS));
                let beat = self.beat.load(Ordering::Relaxed);
                if beat != seen {
                    quiet = 0;
                } else if beat % 2 == 1 {
                    self.beat.store(beat.wrapping_add(1), Ordering::Relaxed);
                    state.leader = None;
                } else {
                    quiet += 1;
                }
                seen = beat;
            }
            state.watcher = false;
            self.watched.store(false, Ordering::Relaxed);
            if quiet >= WATCH_ROUNDS && state.leader.is_some() && !self.stopped() {
                self.changed.wait(&mut state);
            }
        }
    }

    /// Whether `me` leads. Only a hint: the watcher may take the seat at any time.
    pub(crate) fn led_by(&self, me: usize) -> bool {
        self.state.lock().leader == Some(me)
    }

    /// The leader starts to serve a request and keeps the seat. Returns the mark for [`Seat::end`].
    pub(crate) fn begin(&self) -> u64 {
        let mark = self.beat.fetch_or(1, Ordering::Relaxed) | 1;
        if !self.watched.load(Ordering::Relaxed) {
            let _state = self.state.lock();
            self.changed.notify_one();
        }
        mark
    }

    /// The request is done. If the seat was taken meanwhile the mark is another leader's by now,
    /// and is left alone.
    pub(crate) fn end(&self, mark: u64) {
        let next = mark.wrapping_add(1);
        let _ = self.beat.compare_exchange(mark, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Gives the seat away, if `me` has it.
    pub(crate) fn give(&self, me: usize) {
        let mut state = self.state.lock();
        if state.leader == Some(me) {
            state.leader = None;
            self.changed.notify_one();
        }
    }

    /// Ends all waiting.
    pub(crate) fn stop(&self) {
        let _state = self.state.lock();
        self.stopped.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Whether [`Seat::stop`] was called.
    pub(crate) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Instant;

    /// Lets the threads of a test that failed end.
    struct Stop<'a>(&'a Seat);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.stop();
        }
    }

    #[test]
    fn a_hanging_leader_loses_the_seat_and_a_quiet_one_keeps_it() {
        let seat = Seat::default();
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            let _stop = Stop(&seat);
            assert!(seat.take(0));
            for me in 1..4 {
                let (seat, tell) = (&seat, tell.clone());
                scope.spawn(move || {
                    while seat.take(me) {
                        tell.send(me).unwrap();
                        // Serves something that never ends, until the test is over.
                        let mark = seat.begin();
                        while seat.led_by(me) && !seat.stopped() {
                            std::thread::yield_now();
                        }
                        seat.end(mark);
                    }
                });
            }
            // Waiting for requests, longer than the watcher stays awake.
            assert!(told.recv_timeout(Duration::from_millis(300)).is_err());
            assert!(seat.led_by(0));
            // Serving one after the other is no reason either.
            let mut longest = Duration::ZERO;
            for _ in 0..30 {
                let begun = Instant::now();
                let mark = seat.begin();
                std::thread::sleep(Duration::from_micros(500));
                seat.end(mark);
                longest = longest.max(begun.elapsed());
            }
            // On a machine with other things to do one of them may have been long after all.
            if longest < Duration::from_millis(WATCH_MS) {
                assert!(told.try_recv().is_err());
            }
            while told.try_recv().is_ok() {}
            // But hanging is; and so on, in turn.
            if seat.led_by(0) {
                seat.begin();
            }
            for _ in 0..5 {
                told.recv_timeout(Duration::from_secs(5)).unwrap();
            }
            assert!(!seat.led_by(0));
        });
        assert!(!seat.take(0));
    }

    #[test]
    fn the_seat_is_given_at_once() {
        let seat = Seat::default();
        std::thread::scope(|scope| {
            let _stop = Stop(&seat);
            assert!(seat.take(0));
            let follower = scope.spawn(|| seat.take(1));
            std::thread::sleep(Duration::from_millis(20));
            seat.give(1);
            assert!(seat.led_by(0), "only the leader can give");
            seat.give(0);
            assert!(follower.join().unwrap());
            assert!(seat.led_by(1));
        });
    }
}
