//! Where a worker of the classic way runs: on the processor of its caller, as long as it has one that stays there.
//!
//! A request and its answer are two wake-ups. On another processor, which halts when it has nothing to do, each
//! costs more than most requests. On the caller's own none has to be woken: the caller waits, and the worker has the
//! processor until it has answered. FUSE does not say where a caller runs; `/proc` does, so it is looked up now and
//! then. Callers that take turns are served from any processor, by a worker that polls (`-o spin`).
//!
//! Where the scheduler wakes the caller on another processor because the worker still has its own, which it does when that
//! one is idle and the caller has had less time than the worker, both are woken elsewhere each time, and that is worse
//! than polling. A caller that is found elsewhere twice is left alone for long.

use rustix::thread::CpuSet;
use std::fs;

/// So many requests in a row make a caller worth following.
const FAITHFUL: u32 = 16;
/// After so many more it is looked up again: the scheduler may have moved it.
const AGAIN: u32 = 128;
/// The same while it is not known whether it stays.
const TRIAL: u32 = 16;
/// Requests for which callers that did not stay are left alone, at first and at most.
const DISTRUST: (u32, u32) = (4096, 1 << 18);

/// What a worker knows of its caller.
pub(crate) struct Follower {
    /// Processors that we may run on; none if following is off.
    may: Option<CpuSet>,
    caller: u32,
    /// Requests of the caller in a row.
    run: u32,
    /// Of `run`, when it is looked up.
    look: u32,
    /// It was elsewhere when it was looked up last.
    strayed: bool,
    /// Requests left that are served from anywhere, and how many it will be the next time.
    distrust: u32,
    next_distrust: u32,
    /// Where we are bound to.
    bound: Option<usize>,
}

impl Follower {
    /// One for the calling thread; `on` says whether it follows at all.
    pub(crate) fn new(on: bool) -> Follower {
        let may = rustix::thread::sched_getaffinity(None).ok().filter(|may| on && may.count() > 1);
        let (caller, run, strayed, distrust) = Default::default();
        Follower { may, caller, run, look: FAITHFUL, strayed, distrust, next_distrust: DISTRUST.0, bound: None }
    }

    /// Whether it is where its caller is; then to poll would only keep the caller from running.
    pub(crate) fn is_there(&self) -> bool {
        self.bound.is_some()
    }

    /// A request of `caller` has come.
    pub(crate) fn saw(&mut self, caller: u32) {
        // The kernel's own.
        if self.may.is_none() || caller == 0 {
            return;
        }
        if self.distrust > 0 {
            self.distrust -= 1;
            return;
        }
        if caller != self.caller {
            self.begin_anew(caller);
        }
        self.run += 1;
        if self.run == self.look {
            self.look_up();
        }
    }

    fn begin_anew(&mut self, caller: u32) {
        (self.caller, self.run, self.look, self.strayed) = (caller, 0, FAITHFUL, false);
        self.go(None);
    }

    fn look_up(&mut self) {
        let there = processor(self.caller);
        let strays = self.bound.is_some() && there != self.bound;
        if strays && self.strayed {
            self.distrust = self.next_distrust;
            self.next_distrust = (2 * self.next_distrust).min(DISTRUST.1);
            return self.begin_anew(0);
        }
        let stays = self.bound.is_some() && !strays;
        if stays {
            self.next_distrust = DISTRUST.0;
        }
        self.strayed = strays;
        (self.run, self.look) = (0, if stays { AGAIN } else { TRIAL });
        self.go(there);
    }

    /// Goes there, or wherever the scheduler likes.
    fn go(&mut self, to: Option<usize>) {
        let Some(may) = &self.may else { return };
        let to = to.filter(|&cpu| cpu < CpuSet::MAX_CPU && may.is_set(cpu));
        if to == self.bound {
            return;
        }
        let mut there = CpuSet::new();
        let set = match to {
            Some(cpu) => {
                there.set(cpu);
                &there
            }
            None => may,
        };
        self.bound = rustix::thread::sched_setaffinity(None, set).ok().and(to);
    }
}

/// The processor on which a thread runs, or ran last: field 39 of `/proc/TID/stat`. The second may hold anything, in
/// parentheses.
fn processor(thread: u32) -> Option<usize> {
    let stat = fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn here() -> usize {
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        processor(me).unwrap()
    }

    /// A thread that stays on a processor, and its number.
    fn caller_on(cpu: usize) -> (u32, mpsc::Sender<()>) {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let mut there = CpuSet::new();
            there.set(cpu);
            rustix::thread::sched_setaffinity(None, &there).unwrap();
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            let _ = ended.recv();
        });
        (told.recv().unwrap(), end)
    }

    #[test]
    fn a_faithful_caller_is_followed_and_left_when_there_are_others() {
        let may = rustix::thread::sched_getaffinity(None).unwrap();
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| may.is_set(cpu)).collect();
        if cpus.len() < 2 {
            eprintln!("NOT RUN: one processor");
            return;
        }
        let mut follower = Follower::new(true);
        let callers: Vec<_> = cpus.iter().take(2).map(|&cpu| (cpu, caller_on(cpu))).collect();
        for (cpu, (thread, _)) in &callers {
            for _ in 0..FAITHFUL {
                follower.saw(*thread);
            }
            assert_eq!((follower.bound, here()), (Some(*cpu), *cpu));
            follower.saw(0);
            assert!(follower.is_there());
        }
        follower.saw(callers[0].1.0);
        assert!(!follower.is_there());
        assert_eq!(follower.distrust, 0);
        assert_eq!(rustix::thread::sched_getaffinity(None).unwrap().count(), may.count());
        for _ in 0..2 * FAITHFUL {
            callers.iter().for_each(|(_, (thread, _))| follower.saw(*thread));
            assert!(!follower.is_there());
        }
        let mut off = Follower::new(false);
        (0..FAITHFUL).for_each(|_| off.saw(callers[0].1.0));
        assert!(!off.is_there());
    }

    #[test]
    fn a_caller_that_does_not_stay_is_left_alone() {
        let may = rustix::thread::sched_getaffinity(None).unwrap();
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| may.is_set(cpu)).take(2).collect();
        if cpus.len() < 2 {
            eprintln!("NOT RUN: one processor");
            return;
        }
        let mut follower = Follower::new(true);
        let (thread, _end) = caller_on(cpus[0]);
        for expected in [DISTRUST.0, 2 * DISTRUST.0] {
            (0..FAITHFUL).for_each(|_| follower.saw(thread));
            for _ in 0..2 {
                assert!(follower.is_there());
                // As if it had been woken elsewhere since.
                follower.bound = Some(cpus[1]);
                (0..TRIAL).for_each(|_| follower.saw(thread));
            }
            assert_eq!((follower.is_there(), follower.distrust), (false, expected));
            assert_eq!(rustix::thread::sched_getaffinity(None).unwrap().count(), may.count());
            (0..expected).for_each(|_| follower.saw(thread));
            assert!(!follower.is_there());
        }
        (0..FAITHFUL + TRIAL).for_each(|_| follower.saw(thread));
        assert_eq!((follower.bound, follower.next_distrust), (Some(cpus[0]), DISTRUST.0));
    }
}
