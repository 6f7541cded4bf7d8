//! The file system as the workload sees it: a directory, and orders to the process with the disk.

use super::orders::{Answer, Order};
use crate::interrupt;
use crate::lab::Notes;
use arbor_bench::peer::{Peer, Start};
use arbor_simdisk::{Stats, Trace};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// What starts runs of the file system `name` on a disk given by the arguments `disk` of `lab disk`.
pub(in crate::lab) fn start(name: &'static str, disk: Vec<String>, notes: Notes) -> Rc<Start<'static>> {
    Rc::new(move |settings, with_trace| {
        let (remote, note) = Remote::new(name, &disk, with_trace, &settings.stop).map_err(|e| e.to_string())?;
        let note = note.map(|note| format!("{name}: {note}"));
        notes.borrow_mut().extend(note);
        Ok(Box::new(remote))
    })
}

/// The other process. Dropped, it takes everything off and ends.
struct Remote {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    dir: PathBuf,
    stop: Arc<AtomicBool>,
}

/// How soon a wait for an answer notices that the run is to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

impl Remote {
    fn new(
        name: &str,
        disk: &[String],
        with_trace: bool,
        stop: &Arc<AtomicBool>,
    ) -> io::Result<(Remote, Option<String>)> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let number = RUNS.fetch_add(1, Relaxed);
        let dir = std::env::temp_dir().join(format!("arbor-lab-{}-{number}", std::process::id()));
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["lab", "disk", "--peer", name]).args(disk);
        if with_trace {
            command.arg("--trace").arg(trace_file(&dir));
        }
        // The terminal's signals are not meant for it: it ends when we do.
        command.arg("--").arg(&dir).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let mut remote = Remote { child, orders, answers: BufReader::new(answers), dir, stop: stop.clone() };
        let note = remote.answer()?.note;
        Ok((remote, note))
    }

    /// Until there is an answer; no answer comes before the one that is waited for.
    fn wait(&self) -> io::Result<()> {
        while !self.stop.load(Relaxed) {
            let mut fds = [PollFd::new(self.answers.get_ref(), PollFlags::IN)];
            match poll(&mut fds, Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
        Err(io::Error::other(interrupt::WORD))
    }

    fn ask(&mut self, order: Order) -> io::Result<Answer> {
        let mut line = serde_json::to_string(&order)?;
        line.push('\n');
        self.orders.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(line.as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<Answer> {
        self.wait()?;
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the process with the disk has ended"));
        }
        let answer: Answer = serde_json::from_str(&line)?;
        answer.error.clone().map_or(Ok(answer), |e| Err(io::Error::other(e)))
    }
}

/// In the directory of the run, which the other process makes and removes: nobody else can have put anything there.
pub(super) fn trace_file(dir: &std::path::Path) -> PathBuf {
    dir.join("trace")
}

impl Peer for Remote {
    fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    fn now_ns(&mut self) -> io::Result<u64> {
        Ok(self.ask(Order::Now)?.now_ns)
    }

    fn advance_ns(&mut self, ns: u64) -> io::Result<()> {
        self.ask(Order::Advance(ns)).map(drop)
    }

    fn take_stats(&mut self) -> io::Result<(u64, Stats)> {
        let answer = self.ask(Order::TakeStats)?;
        Ok((answer.now_ns, answer.stats.unwrap_or_default()))
    }

    fn unmount(&mut self) -> io::Result<()> {
        self.ask(Order::Unmount).map(drop)
    }

    fn mount(&mut self) -> io::Result<()> {
        self.ask(Order::Mount).map(drop)
    }

    fn take_trace(&mut self) -> io::Result<Trace> {
        self.ask(Order::WriteTrace)?;
        let path = trace_file(&self.dir);
        let trace = Trace::read_from(BufReader::new(File::open(&path)?)).map_err(io::Error::other);
        std::fs::remove_file(&path)?;
        trace
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.child.wait();
    }
}
