//! Where a worker of the classic way runs: on the processor of its caller, as long as it has one caller.
//!
//! A request and its answer are two wake-ups. On another processor, which halts when it has nothing to do, each
//! costs more than most requests. On the caller's own none has to be woken: the caller waits, and the worker has the
//! processor until it has answered. FUSE does not say where a caller runs; `/proc` does, so it is looked up now and
//! then. Callers that take turns are served from any processor, by a worker that polls (`-o spin`).

use rustix::thread::CpuSet;
use std::fs;

/// So many requests in a row make a caller worth following.
const FAITHFUL: u32 = 16;
/// After so many more it is looked up again: the scheduler may have moved it.
const AGAIN: u32 = 128;

/// What a worker knows of its caller.
pub(crate) struct Follower {
    /// Processors that we may run on; none if following is off.
    may: Option<CpuSet>,
    caller: u32,
    /// Requests of the caller in a row.
    run: u32,
    /// Where we are bound to.
    bound: Option<usize>,
}

impl Follower {
    /// One for the calling thread; `on` says whether it follows at all.
    pub(crate) fn new(on: bool) -> Follower {
        let may = rustix::thread::sched_getaffinity(None).ok().filter(|may| on && may.count() > 1);
        Follower { may, caller: 0, run: 0, bound: None }
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
        if caller != self.caller {
            (self.caller, self.run) = (caller, 0);
            if self.bound.is_some() {
                self.go(None);
            }
        }
        self.run += 1;
        if self.run == FAITHFUL {
            self.go(processor(caller));
        } else if self.run >= FAITHFUL + AGAIN {
            self.run = FAITHFUL;
            self.go(processor(caller));
        }
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
        assert_eq!(rustix::thread::sched_getaffinity(None).unwrap().count(), may.count());
        for _ in 0..2 * FAITHFUL {
            callers.iter().for_each(|(_, (thread, _))| follower.saw(*thread));
            assert!(!follower.is_there());
        }
        let mut off = Follower::new(false);
        (0..FAITHFUL).for_each(|_| off.saw(callers[0].1.0));
        assert!(!off.is_there());
    }
}
