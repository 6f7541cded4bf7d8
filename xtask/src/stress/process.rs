//! Tools as processes: each in a group of its own, with a limit of time, never left behind.

use crate::show::kit::{self, tail};
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(50);
/// So long tools have to notice by themselves that the server is gone.
const GRACE: Duration = Duration::from_secs(5);
/// So long killed processes have to be gone.
const DYING: Duration = Duration::from_secs(20);

/// What the threads that run tools on one mount have in common.
pub(crate) struct Control {
    server: Pid,
    /// When the server was killed on purpose: from then on failing is what tools have to do.
    killed: Mutex<Option<Instant>>,
    stop: AtomicBool,
    /// Reports of what hung.
    hangs: Mutex<Vec<String>>,
    running: Mutex<BTreeSet<String>>,
}

/// How a process ended.
pub(crate) enum End<S = ExitStatus> {
    Exited(S),
    /// Because of the kill, or of a signal to us.
    Stopped,
    Hung,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    pub(crate) fn new(server: Pid) -> Control {
        Control {
            server,
            killed: Mutex::default(),
            stop: AtomicBool::new(false),
            hangs: Mutex::default(),
            running: Mutex::default(),
        }
    }

    /// To be called before the server is killed.
    pub(crate) fn server_is_killed(&self) {
        *lock(&self.killed) = Some(Instant::now());
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Nothing new is begun from now on.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }

    pub(crate) fn is_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed) && kit::go_on().is_ok()
    }

    pub(crate) fn was_killed(&self) -> bool {
        lock(&self.killed).is_some()
    }

    pub(crate) fn hangs(&self) -> Vec<String> {
        lock(&self.hangs).clone()
    }

    pub(crate) fn running(&self) -> Vec<String> {
        lock(&self.running).iter().cloned().collect()
    }

    /// Runs `command` with its output in the file `log`.
    pub(crate) fn run(&self, name: &str, mut command: Command, log: &Path, limit: Duration) -> Result<End> {
        let out = File::create(log).with_context(|| log.display().to_string())?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).process_group(0);
        let mut child = command.spawn().with_context(|| name.to_string())?;
        let pid = Pid::from_child(&child);
        lock(&self.running).insert(name.to_string());
        let end = self.wait(name, pid, limit);
        lock(&self.running).remove(name);
        match end? {
            // Whether it failed by itself or because the server is gone cannot be told.
            End::Exited(()) => Ok(match child.wait()? {
                status if !status.success() && (self.was_killed() || kit::go_on().is_err()) => End::Stopped,
                status => End::Exited(status),
            }),
            End::Stopped => {
                child.wait()?;
                Ok(End::Stopped)
            }
            End::Hung => Ok(End::Hung),
        }
    }

    /// Waits for the end of the group of `pid`; its leader is still to be reaped then, so that the
    /// number of the group cannot have become another's.
    fn wait(&self, name: &str, pid: Pid, limit: Duration) -> Result<End<()>> {
        let start = Instant::now();
        while !has_exited(pid)? {
            let killed = lock(&self.killed).is_some_and(|at| at.elapsed() > GRACE);
            if killed || kit::go_on().is_err() {
                return self.end(name, pid, "killed").map(|gone| if gone { End::Stopped } else { End::Hung });
            }
            if start.elapsed() > limit {
                lock(&self.hangs).push(report(&format!("{name}: not ready after {limit:?}"), pid, self.server));
                self.end(name, pid, "killed because it hung")?;
                return Ok(End::Hung);
            }
            std::thread::sleep(POLL);
        }
        self.end(name, pid, "over").map(|gone| if gone { End::Exited(()) } else { End::Hung })
    }

    /// Ends the group and says whether it is gone.
    fn end(&self, name: &str, group: Pid, why: &str) -> Result<bool> {
        let start = Instant::now();
        while !group_is_gone(group) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
            if start.elapsed() > DYING {
                lock(&self.hangs).push(report(&format!("{name}: {why}, and does not end"), group, self.server));
                return Ok(false);
            }
            std::thread::sleep(POLL);
        }
        Ok(true)
    }
}

fn has_exited(pid: Pid) -> Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(rustix::process::waitid(WaitId::Pid(pid), options)?.is_some())
}

/// Whether all processes of a group have ended, reaped or not.
fn group_is_gone(group: Pid) -> bool {
    processes().values().all(|p| p.group != group.as_raw_nonzero().get() || p.has_ended())
}

/// A line of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Process {
    pid: i32,
    name: String,
    state: char,
    parent: i32,
    group: i32,
}

impl Process {
    /// The name stands in parentheses and may itself hold some.
    fn parse(stat: &str) -> Option<Process> {
        let (pid, rest) = stat.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        Some(Process {
            pid: pid.parse().ok()?,
            name: name.to_string(),
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    Process::parse(&stat).is_some_and(|p| !p.has_ended())
}

fn processes() -> BTreeMap<i32, Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let numbers = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let all = numbers.filter_map(|n| Process::parse(&fs::read_to_string(format!("/proc/{n}/stat")).ok()?));
    all.map(|p| (p.pid, p)).collect()
}

/// The processes that `ancestor` has started, directly or not.
fn descendants(all: &BTreeMap<i32, Process>, ancestor: i32) -> Vec<Process> {
    let mut known = BTreeSet::from([ancestor]);
    loop {
        let more: Vec<i32> =
            all.values().filter(|p| known.contains(&p.parent) && !known.contains(&p.pid)).map(|p| p.pid).collect();
        if more.is_empty() {
            break;
        }
        known.extend(more);
    }
    known.remove(&ancestor);
    known.iter().filter_map(|pid| all.get(pid)).cloned().collect()
}

/// Orphans of our tools become our children, so that [`end_strays`] finds them.
pub(crate) fn adopt_orphans() -> Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Ends what tools have left, and says what that was. None may be running, and no child but `server`.
pub(crate) fn end_strays(server: Option<Pid>) -> Vec<String> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let server = server.map_or(0, |p| p.as_raw_nonzero().get());
    let start = Instant::now();
    let mut names = BTreeSet::new();
    loop {
        let left: Vec<Process> = descendants(&processes(), me).into_iter().filter(|p| p.pid != server).collect();
        if left.is_empty() || start.elapsed() > DYING {
            return names.into_iter().collect();
        }
        for process in left {
            let Some(pid) = Pid::from_raw(process.pid) else { continue };
            if process.has_ended() {
                let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
            } else {
                names.insert(format!("{} ({})", process.name, process.pid));
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        std::thread::sleep(POLL);
    }
}

/// Does `work`, which is over within `limit` or is reported as hanging; then the server is killed,
/// so that whoever waits for it goes on; without one, our children are.
pub(crate) fn watched<T>(
    what: &str,
    limit: Duration,
    server: Option<Pid>,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let watchdog = scope.spawn(move || {
            use std::sync::mpsc::RecvTimeoutError::Timeout;
            if is_done.recv_timeout(limit) != Err(Timeout) {
                return None;
            }
            let me = rustix::process::getpid();
            let text = report(&format!("{what}: not ready after {limit:?}"), me, server.unwrap_or(me));
            println!("{text}");
            match server {
                Some(pid) => drop(rustix::process::kill_process(pid, Signal::KILL)),
                // It is one of our children that hangs.
                None => drop(end_strays(None)),
            }
            Some(text)
        });
        let result = work();
        drop(done);
        match watchdog.join() {
            Ok(None) => result,
            _ => Err(anyhow::anyhow!("{what}: HANGS")),
        }
    })
}

/// What each thread of a group, of its descendants and of the server waits for.
pub(crate) fn report(what: &str, group: Pid, server: Pid) -> String {
    let mut text = format!("HANG {what}\n");
    let all = processes();
    let mut pids: BTreeSet<i32> = descendants(&all, group.as_raw_nonzero().get()).iter().map(|p| p.pid).collect();
    pids.extend(all.values().filter(|p| p.group == group.as_raw_nonzero().get()).map(|p| p.pid));
    pids.insert(server.as_raw_nonzero().get());
    for pid in pids {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let read = |name: &str| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            let Some(process) = Process::parse(&read("stat")) else { continue };
            text += &format!(
                "  {} ({pid}, thread {}), state {}, wchan {}\n",
                process.name,
                process.pid,
                process.state,
                read("wchan")
            );
            for line in read("stack").lines().take(12) {
                text += &format!("    {line}\n");
            }
        }
    }
    text
}

/// The end of what a tool has written.
pub(crate) fn said(log: &Path) -> String {
    tail(&String::from_utf8_lossy(&fs::read(log).unwrap_or_default()), 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_understood() {
        let line = "42 (a (strange) name) D 7 40 40 0 -1 4194304 1 2 3";
        let expected = Process { pid: 42, name: "a (strange) name".into(), state: 'D', parent: 7, group: 40 };
        assert_eq!(Process::parse(line), Some(expected));
        assert_eq!(Process::parse(""), None);
    }

    #[test]
    fn descendants_are_those_of_children_too() {
        let process = |pid, parent| Process { pid, name: String::new(), state: 'S', parent, group: 0 };
        let all = [(9, 1), (3, 9), (2, 3), (4, 1)].map(|(pid, parent)| (pid, process(pid, parent))).into();
        let found: Vec<i32> = descendants(&all, 9).iter().map(|p| p.pid).collect();
        assert_eq!(found, [2, 3]);
    }

    #[test]
    fn a_group_is_ended_with_its_leader() {
        let control = Control::new(rustix::process::getpid());
        let mut command = Command::new("sh");
        // The second child outlives the shell.
        command.args(["-c", "sleep 600 & exit 3"]);
        let log = tempfile::NamedTempFile::new().unwrap();
        let start = Instant::now();
        let end = control.run("sh", command, log.path(), Duration::from_secs(60)).unwrap();
        assert!(matches!(end, End::Exited(status) if status.code() == Some(3)));
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn what_takes_too_long_is_reported() {
        let control = Control::new(rustix::process::getpid());
        let mut command = Command::new("sleep");
        command.arg("600");
        let log = tempfile::NamedTempFile::new().unwrap();
        let end = control.run("a nap", command, log.path(), Duration::from_millis(200)).unwrap();
        assert!(matches!(end, End::Hung));
        let hangs = control.hangs();
        assert!(hangs[0].contains("a nap") && hangs[0].contains("sleep ("), "{hangs:?}");
    }
}
