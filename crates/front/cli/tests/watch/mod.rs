//! For tests that mount: no program they run and no mount they make outlives its time.

#![allow(dead_code)]

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A program may run for so long, and a test be at work between two mounts.
const PROGRAM: Duration = Duration::from_secs(40);
const TEST: Duration = Duration::from_secs(120);

static TURN: Mutex<()> = Mutex::new(());

/// A child that one test starts has the open files of another for a moment, also of a program being copied: so one
/// is at work at a time.
pub fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a user may run a program: a copy in `dir`, as others may not be allowed to enter where it was built.
pub fn for_users(program: &Path, dir: &Path) -> PathBuf {
    let copy = dir.join(program.file_name().unwrap());
    if !copy.exists() {
        fs::copy(program, &copy).unwrap();
    }
    copy
}

/// What came of a program.
#[derive(Debug)]
pub struct Outcome {
    pub words: String,
    pub code: Option<i32>,
    pub out: String,
    pub said: String,
}

impl Outcome {
    /// What it wrote to standard output; it must have succeeded.
    pub fn well(&self) -> &str {
        assert_eq!(self.code, Some(0), "{}: {}{}", self.words, self.out, self.said);
        &self.out
    }
}

/// A program that has been started, and is killed with all it has started itself if it still runs when the value
/// goes. What it says goes to files: a server that it leaves behind may keep a pipe.
pub struct Started {
    child: Child,
    words: String,
    out: File,
    said: File,
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            // Where it waits for a mount the watch ends that.
            let _ = self.child.wait();
        }
    }
}

pub fn start(program: &str, args: &[&Path]) -> Started {
    let (out, said) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let mut command = Command::new(program);
    command.process_group(0);
    command.args(args).stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(said.try_clone().unwrap());
    let words = format!("{program} {args:?}");
    let child = command.spawn().unwrap_or_else(|e| panic!("{words}: {e}"));
    Started { child, words, out, said }
}

impl Started {
    /// Waits until it has said this; false if it has ended without.
    pub fn has_said(&mut self, text: &str) -> bool {
        let limit = Instant::now() + PROGRAM;
        loop {
            let has_ended = self.child.try_wait().unwrap().is_some();
            // The place in the file is that at which the program writes.
            let mut bytes = vec![0; 1 << 16];
            let len = self.said.read_at(&mut bytes, 0).unwrap();
            if String::from_utf8_lossy(&bytes[..len]).contains(text) {
                return true;
            }
            if has_ended || Instant::now() > limit {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Waits for its end, and kills it if that does not come.
pub fn end(mut started: Started) -> Outcome {
    let limit = Instant::now() + PROGRAM;
    let status = loop {
        match started.child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > limit => panic!("{}: does not end", started.words),
            None => thread::sleep(Duration::from_millis(5)),
        }
    };
    let text = |mut file: &File| {
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let words = std::mem::take(&mut started.words);
    Outcome { words, code: status.code(), out: text(&started.out), said: text(&started.said) }
}

/// Runs a program to its end; one that is not there has failed.
pub fn run(program: &str, args: &[&Path]) -> Outcome {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|d| d.join(program).exists());
    match found || program.contains('/') {
        true => end(start(program, args)),
        false => {
            let said = format!("{program} is not installed");
            Outcome { words: program.into(), code: None, out: String::new(), said }
        }
    }
}

/// Takes off the mount of a server that was killed, which is told, and is no success.
pub fn umount_dead(root: &Path) {
    let off = arbor(&["umount"], &[root]);
    assert_eq!(off.code, Some(1), "{}: {}", off.words, off.said);
    let told = "unmounted, but its server had died: what was not synced is lost; the next mount recovers\n";
    assert!(off.said.ends_with(told), "{}", off.said);
}

pub fn arbor(words: &[&str], paths: &[&Path]) -> Outcome {
    let args: Vec<&Path> = words.iter().map(Path::new).chain(paths.iter().copied()).collect();
    run(env!("CARGO_BIN_EXE_arbor"), &args)
}

/// Mount points at or below `dir`, those that cover others first. Asks no mount.
fn mounts_below(dir: &Path) -> Vec<(PathBuf, String)> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let entry = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        Some((PathBuf::from(fields.get(4)?), fields.get(2)?.to_string()))
    };
    let mut found: Vec<_> = table.lines().filter_map(entry).filter(|(at, _)| at.starts_with(dir)).collect();
    found.reverse();
    found
}

pub fn is_mounted(dir: &Path) -> bool {
    mounts_below(dir).iter().any(|(at, _)| at == dir)
}

/// Looks after the mounts below a directory of its own.
pub struct Watch {
    dir: PathBuf,
    over: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Watch {
    pub fn new(dir: &Path) -> Watch {
        Watch::lasting(dir, TEST)
    }

    pub fn lasting(dir: &Path, limit: Duration) -> Watch {
        let dir = dir.canonicalize().unwrap();
        let (tell, told) = mpsc::channel::<()>();
        let watched = dir.clone();
        let thread = thread::spawn(move || {
            if told.recv_timeout(limit).is_err_and(|e| e == mpsc::RecvTimeoutError::Timeout) {
                eprintln!("the test hangs: its mounts are aborted");
                abort(&watched);
            }
        });
        Watch { dir, over: Some((tell, thread)) }
    }

    /// Sends a signal to the server of a mount and waits for its end.
    pub fn signal(&self, root: &Path, signal: Signal) {
        let record = arbor_fuse::mounts().into_iter().find(|r| r.mountpoint == root).expect("a record of the mount");
        let server = pidfd_open(Pid::from_raw(record.pid as i32).unwrap(), PidfdFlags::empty()).unwrap();
        pidfd_send_signal(&server, signal).unwrap();
        use rustix::event::{PollFd, PollFlags, poll};
        let limit = PROGRAM.try_into().unwrap();
        let wait = || poll(&mut [PollFd::new(&server, PollFlags::IN)], Some(&limit));
        assert_eq!(rustix::io::retry_on_intr(wait).unwrap(), 1, "the server does not end");
    }

    /// Takes off whatever is mounted still.
    pub fn end(&mut self) {
        let Some((tell, thread)) = self.over.take() else { return };
        let left = mounts_below(&self.dir);
        for (at, _) in &left {
            // The watch still runs, so this ends.
            let _ = Command::new(env!("CARGO_BIN_EXE_arbor")).arg("umount").arg(at).stderr(Stdio::null()).status();
        }
        if !mounts_below(&self.dir).is_empty() {
            abort(&self.dir);
        }
        let _ = tell.send(());
        let _ = thread.join();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ends the connections of all mounts below `dir`, their servers, and the mounts.
fn abort(dir: &Path) {
    let control = tempfile::tempdir().unwrap();
    let to = control.path();
    let has_control = rustix::mount::mount("fusectl", to, "fusectl", rustix::mount::MountFlags::empty(), None).is_ok();
    let left = mounts_below(dir);
    for (_, device) in &left {
        let numbers = device.split_once(':').and_then(|(a, b)| Some((a.parse::<u64>().ok()?, b.parse::<u64>().ok()?)));
        if let Some((major, minor)) = numbers {
            let _ = fs::write(to.join((major << 20 | minor).to_string()).join("abort"), b"1");
        }
    }
    for record in arbor_fuse::mounts().into_iter().filter(|record| record.mountpoint.starts_with(dir)) {
        let server = Pid::from_raw(record.pid as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let _ = server.map(|server| pidfd_send_signal(server, Signal::KILL));
    }
    for (at, _) in &left {
        let _ = rustix::mount::unmount(at, rustix::mount::UnmountFlags::DETACH);
    }
    if has_control {
        let _ = rustix::mount::unmount(to, rustix::mount::UnmountFlags::DETACH);
    }
}
