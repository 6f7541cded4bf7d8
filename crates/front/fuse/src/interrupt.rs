//! INTERRUPT: the caller of a request got a signal while it waits for the reply.
//!
//! Each worker has a [`Desk`] that shows which request it serves. An INTERRUPT, read by whichever worker
//! of `/dev/fuse` comes first, looks for its request there and marks it; [`vfs::interrupted`] is how the
//! file system below gets to know, where it waits or between two steps. So nothing is ever given up at
//! a moment of our choosing. An INTERRUPT itself gets no answer.
//!
//! It may be read before the worker that has its request shows it. Then it is kept for the one who
//! will. The protocol's own way, to answer `EAGAIN` and get it anew, leads nowhere here: the kernel looks
//! for the request only among those read from the same descriptor, and each worker has its own.
//!
//! Not everybody who gets a signal is let go. Programs do not expect `EINTR` from a stat(2) or an open(2),
//! and whether the handler was installed with `SA_RESTART` is not to be seen from here. So that is
//!
//! | caller | let go from |
//! |---|---|
//! | that the signal ends: it sees no result | every request |
//! | that will run a handler | requests that may take long: fsync, syncfs, fallocate, copy_file_range, ioctls |
//! | that is only stopped, traced or frozen | none |
//!
//! The kernel sends one INTERRUPT a request, be it followed by SIGKILL, so a request that is marked
//! looks at its caller again and again. One that is not does so too, but seldom: nobody may be left to read
//! the INTERRUPT, and Linux 6.18 sends none if the signal came before a ring had the request.
//!
//! | transition | function |
//! |---|---|
//! | idle, or done with another -> serving | [`Desk::begin`] |
//! | serving -> marked | [`Interrupts::interrupt`], or [`Desk::begin`] if it came first |

use crate::proto::InHeader;
use crate::serve::takes_long;
use arbor_base::vfs;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// An INTERRUPT without a request is kept for so long. The request was read before it, so it shows within
/// microseconds, unless its worker has to wait for a processor ...
const KEPT: Duration = Duration::from_secs(1);
/// ... and so many are.
const MOST_KEPT: usize = 64;
/// Between two looks at a caller that has got a signal ...
const LOOK: Duration = Duration::from_millis(10);
/// ... and at one of whom nobody has said so.
const LOOK_UNASKED: Duration = Duration::from_secs(1);

/// What one worker does.
#[derive(Default)]
#[repr(align(64))]
struct Slot {
    /// Its last request, also when that is done: an INTERRUPT that comes too late finds it, and does no harm.
    serving: AtomicU64,
    /// The last of its requests that was interrupted.
    marked: AtomicU64,
}

#[derive(Default)]
struct State {
    slots: Vec<Arc<Slot>>,
    early: VecDeque<(u64, Instant)>,
}

/// All workers of a mount.
#[derive(Default)]
pub(crate) struct Interrupts {
    state: Mutex<State>,
    /// `State::early` may hold something.
    any_early: AtomicBool,
}

impl Interrupts {
    /// Marks request `unique`, or keeps that for who is about to serve it.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut state = self.state.lock();
        // Before it looks at the workers, and `Desk::begin` the other way round: one sees the other.
        self.any_early.store(true, SeqCst);
        match state.slots.iter().find(|slot| slot.serving.load(SeqCst) == unique) {
            Some(slot) => slot.marked.store(unique, Relaxed),
            None => {
                state.early.truncate(MOST_KEPT - 1);
                state.early.push_front((unique, Instant::now()));
            }
        }
        self.any_early.store(!state.early.is_empty(), SeqCst);
    }

    /// Marks the request of `slot` if it was interrupted before.
    fn catch_up(&self, slot: &Slot, unique: u64) {
        let mut state = self.state.lock();
        state.early.retain(|(early, since)| {
            if *early == unique {
                slot.marked.store(unique, Relaxed);
            }
            *early != unique && since.elapsed() < KEPT
        });
        self.any_early.store(!state.early.is_empty(), SeqCst);
    }
}

/// Where a worker shows what it does, and asks whether to go on.
pub(crate) struct Desk {
    all: Arc<Interrupts>,
    slot: Arc<Slot>,
    pid: Cell<u32>,
    opcode: Cell<u32>,
    looked: Cell<Option<(Instant, bool)>>,
}

impl Desk {
    /// Runs a worker with a desk of its own.
    pub(crate) fn with<R>(all: &Arc<Interrupts>, work: impl FnOnce(&Desk) -> R) -> R {
        let slot = Arc::new(Slot::default());
        all.state.lock().slots.push(slot.clone());
        let (pid, opcode, looked) = Default::default();
        let desk = Rc::new(Desk { all: all.clone(), slot, pid, opcode, looked });
        let asked = desk.clone();
        vfs::interruptible(move || asked.interrupted(), || work(&desk))
    }

    /// The worker begins with a request.
    pub(crate) fn begin(&self, head: &InHeader) {
        self.pid.set(head.pid);
        self.opcode.set(head.opcode);
        self.looked.set(None);
        self.slot.serving.store(head.unique, SeqCst);
        if self.all.any_early.load(SeqCst) {
            self.all.catch_up(&self.slot, head.unique);
        }
    }

    /// Whether the caller of the request is to be let go.
    fn interrupted(&self) -> bool {
        let serving = self.slot.serving.load(Relaxed);
        if serving == 0 {
            return false;
        }
        let marked = self.slot.marked.load(Relaxed) == serving;
        let pause = if marked { LOOK } else { LOOK_UNASKED };
        match self.looked.get() {
            Some((last, let_go)) if let_go || last.elapsed() < pause => let_go,
            before => {
                let let_go = (marked || before.is_some()) && self.look(marked);
                self.looked.set(Some((Instant::now(), let_go)));
                let_go
            }
        }
    }

    fn look(&self, marked: bool) -> bool {
        let is_long = takes_long(self.opcode.get());
        match Signals::of(self.pid.get()) {
            Some(signals) => signals.end_it() || is_long && signals.run_a_handler(),
            // It is not of our PID namespace, or gone.
            None => marked && is_long,
        }
    }
}

/// Signal number `n` is bit `n - 1`.
const fn set(signals: &[u32]) -> u64 {
    match signals {
        [] => 0,
        [first, rest @ ..] => 1 << (*first - 1) | set(rest),
    }
}

/// Signals of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Signals {
    /// Pending and not blocked.
    coming: u64,
    ignored: u64,
    caught: u64,
}

impl Signals {
    /// The kernel turns whatever ends a process into SIGKILL, but for what writes a core: QUIT, ILL, TRAP,
    /// ABRT, BUS, FPE, SEGV, XCPU, XFSZ and SYS.
    const DEADLY: u64 = set(&[9, 3, 4, 5, 6, 7, 8, 11, 24, 25, 31]);

    fn of(pid: u32) -> Option<Signals> {
        Signals::parse(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Signals> {
        let set = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            u64::from_str_radix(line.trim_start_matches(':').trim(), 16).ok()
        };
        let coming = (set("SigPnd")? | set("ShdPnd")?) & !set("SigBlk")?;
        Some(Signals { coming, ignored: set("SigIgn")?, caught: set("SigCgt")? })
    }

    fn end_it(self) -> bool {
        self.coming & Signals::DEADLY & !self.ignored & !self.caught != 0
    }

    fn run_a_handler(self) -> bool {
        self.coming & self.caught != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Op;
    use zerocopy::FromZeros;

    fn begin(desk: &Desk, unique: u64, op: Op) {
        // No process has that number, so long requests are let go and the others are not.
        desk.begin(&InHeader { unique, opcode: op as u32, pid: u32::MAX, ..InHeader::new_zeroed() });
    }

    #[test]
    fn an_interrupt_meets_its_request_and_no_other() {
        let all = Arc::new(Interrupts::default());
        Desk::with(&all, |desk| {
            let serve = |unique, op| {
                begin(desk, unique, op);
                vfs::interrupted()
            };
            assert!(!vfs::interrupted(), "nothing is served");
            assert!(!serve(2, Op::Fsync));
            all.interrupt(2);
            std::thread::sleep(LOOK);
            assert!(vfs::interrupted());
            assert!(vfs::interrupted(), "and is so until the end");
            assert!(!serve(4, Op::Fsync));
            // Too late, for a request that nobody knows, and too early.
            all.interrupt(2);
            all.interrupt(77);
            all.interrupt(6);
            assert!(!vfs::interrupted());
            assert!(serve(6, Op::Syncfs));
            assert!(!serve(8, Op::Fsync));
            all.interrupt(10);
            assert!(!serve(10, Op::Lookup), "who lives on expects no EINTR there");
        });
        assert!(!vfs::interrupted());
    }

    #[test]
    fn a_caller_of_whom_nobody_speaks_is_looked_at_too() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        Desk::with(&Arc::default(), |desk| {
            let looks = |pid: u32| {
                desk.begin(&InHeader { unique: 2, opcode: Op::Lookup as u32, pid, ..InHeader::new_zeroed() });
                assert!(!vfs::interrupted());
                std::thread::sleep(LOOK_UNASKED);
                vfs::interrupted()
            };
            rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
            assert!(!looks(child.id()), "stopped, it lives");
            assert!(!looks(u32::MAX));
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_nobody_serves_is_dropped() {
        let all = Arc::new(Interrupts::default());
        for unique in 1..1000 {
            all.interrupt(unique);
        }
        assert_eq!(all.state.lock().early.len(), MOST_KEPT);
        Desk::with(&all, |desk| {
            begin(desk, 1, Op::Fsync);
            assert!(!vfs::interrupted());
            begin(desk, 999, Op::Fsync);
            assert!(vfs::interrupted(), "the latest are kept");
            std::thread::sleep(KEPT);
            begin(desk, 998, Op::Fsync);
        });
        assert!(all.state.lock().early.is_empty());
        assert!(!all.any_early.load(SeqCst));
    }

    /// Whoever comes first, the request or its INTERRUPT.
    #[test]
    fn no_interrupt_is_lost_between_two_threads() {
        let all = Arc::new(Interrupts::default());
        let turn = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for unique in 1..20_000 {
                    turn.wait();
                    all.interrupt(unique);
                    turn.wait();
                }
            });
            Desk::with(&all, |desk| {
                for unique in 1..20_000 {
                    turn.wait();
                    begin(desk, unique, Op::Fsync);
                    turn.wait();
                    assert!(vfs::interrupted(), "{unique}");
                }
            });
        });
    }

    #[test]
    fn signals_as_the_kernel_shows_them() {
        let of = |pending: &str, blocked: &str, ignored: &str, caught: &str| {
            let status = format!(
                "Name:\tSigPnd:\nSigQ:\t0/1\nSigPnd:\t{pending}\nShdPnd:\t0000000000000000\nSigBlk:\t{blocked}\n\
                 SigIgn:\t{ignored}\nSigCgt:\t{caught}\n"
            );
            let signals = Signals::parse(&status).unwrap();
            (signals.end_it(), signals.run_a_handler())
        };
        let (none, kill, usr1, quit, stop) = ("0", "100", "200", "4", "40000");
        assert_eq!(of(none, none, none, none), (false, false));
        assert_eq!(of(kill, none, none, usr1), (true, false));
        assert_eq!(of(usr1, none, none, usr1), (false, true));
        assert_eq!(of(usr1, usr1, none, usr1), (false, false), "blocked");
        assert_eq!(of(quit, none, none, none), (true, false));
        assert_eq!(of(quit, none, quit, none), (false, false), "ignored");
        assert_eq!(of(quit, none, none, quit), (false, true));
        assert_eq!(of(stop, none, none, usr1), (false, false));
        assert!(Signals::parse("SigPnd:\t0\n").is_none());
        assert!(Signals::of(std::process::id()).is_some());
    }
}
