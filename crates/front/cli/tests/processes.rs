//! Several processes on one mount: every result must be what some order of their calls gives, see
//! [`arbor_torture::concurrent`]. Where no mount can be made, the test says so and does nothing.

#![cfg(target_os = "linux")]

mod common;

use arbor_torture::concurrent::{Call, explain};
use arbor_torture::exec::{Facts, Outcome};
use arbor_torture::ops::{Op, Path as Name, long_name, parse, print};
use arbor_torture::rng::{Rng, pattern};
use arboretum::vfs::{Errno, FileType};
use common::root_can_mount;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::process::umask;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Set for a process that works; it gets its work from its standard input.
const WORKER: &str = "ARBOR_TEST_WORKER";
const PROCESSES: usize = 3;
const ROUNDS: u64 = 400;

const SETUP: &str =
    "mkdir /d 493 0; mkdir /e 493 0; create /a 420 0; create /d/a 420 0; mkdir /e/a 493 0; create /s 420 0";
const NAMES: &[&str] = &["/a", "/b", "/d/a", "/d/b", "/e/a"];

fn draw(rng: &mut Rng) -> String {
    let (a, b) = (*rng.pick(NAMES), *rng.pick(NAMES));
    match rng.below(12) {
        0 | 1 => format!("create {a} 420 0"),
        2 => format!("mkdir {a} 493 0"),
        3 => format!("symlink {a} 20 7"),
        // A link is two calls in the kernel: it finds the file, another may move that, it makes the name. So the
        // file is one that nobody moves.
        4 => format!("link /s {b}"),
        5 | 6 => format!("unlink {a}"),
        7 => format!("rmdir {a}"),
        8 | 9 => format!("rename {a} {b} {}", rng.below(3)),
        _ => format!("stat {a}"),
    }
}

fn nanoseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn at(root: &Path, name: &Name) -> PathBuf {
    name.names.iter().fold(root.to_path_buf(), |path, n| path.join(std::ffi::OsStr::from_bytes(&long_name(n))))
}

fn facts(path: &Path) -> rustix::io::Result<Outcome> {
    let m = fs::symlink_metadata(path).map_err(|e| rustix::io::Errno::from_io_error(&e).unwrap())?;
    let size = if m.is_dir() { 0 } else { m.size() };
    let is = Facts { mode: m.mode(), nlink: m.nlink() as u32, uid: m.uid(), gid: m.gid(), rdev: 0, size };
    if m.is_symlink() {
        return match rustix::fs::readlink(path, Vec::new()) {
            // Another file has come to the path between the two calls.
            Err(rustix::io::Errno::INVAL) => facts(path),
            target => Ok(Outcome::Bytes(target?.into_bytes())),
        };
    }
    Ok(Outcome::File(is))
}

/// Carries an operation out by system calls.
fn apply(root: &Path, op: &Op) -> Outcome {
    let plain = |r: rustix::io::Result<()>| r.map(|()| Outcome::Done);
    let done = match op {
        Op::Create { path, mode, .. } => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
            rustix::fs::open(at(root, path), flags, Mode::from_raw_mode(*mode)).map(|_| Outcome::Done)
        }
        Op::Mkdir { path, mode, .. } => plain(rustix::fs::mkdir(at(root, path), Mode::from_raw_mode(*mode))),
        Op::Symlink { path, len, tag } => {
            let target = std::ffi::OsString::from_vec(pattern(*tag, 0, *len));
            plain(rustix::fs::symlink(target, at(root, path)))
        }
        Op::Link { from, to } => plain(rustix::fs::link(at(root, from), at(root, to))),
        Op::Unlink { path } => plain(rustix::fs::unlink(at(root, path))),
        Op::Rmdir { path } => plain(rustix::fs::rmdir(at(root, path))),
        Op::Rename { from, to, flags } => {
            let flags = RenameFlags::from_bits_retain(*flags);
            plain(rustix::fs::renameat_with(CWD, at(root, from), CWD, at(root, to), flags))
        }
        Op::Stat { path } => facts(&at(root, path)),
        Op::List { path, .. } => list(&at(root, path)),
        other => panic!("{other} is no operation for processes"),
    };
    done.unwrap_or_else(|e| Outcome::Err(Errno(e.raw_os_error())))
}

fn list(path: &Path) -> rustix::io::Result<Outcome> {
    let kind = |t: fs::FileType| match t {
        t if t.is_dir() => FileType::Dir,
        t if t.is_symlink() => FileType::Symlink,
        t if t.is_fifo() => FileType::Fifo,
        _ => FileType::File,
    };
    let mut names = vec![(b".".to_vec(), FileType::Dir), (b"..".to_vec(), FileType::Dir)];
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        names.push((entry.file_name().into_vec(), kind(entry.file_type().unwrap())));
    }
    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(Outcome::Names(names))
}

fn encode(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Err(e) => format!("E {}", e.0),
        Outcome::File(f) => format!("F {} {} {} {} {} {}", f.mode, f.nlink, f.uid, f.gid, f.rdev, f.size),
        Outcome::Bytes(b) => b.iter().fold("B".to_string(), |text, byte| text + &format!(" {byte}")),
        _ => "D".to_string(),
    }
}

fn decode(text: &str) -> Outcome {
    let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
    let numbers: Vec<u64> = rest.split_whitespace().map(|w| w.parse().unwrap()).collect();
    match (kind, numbers.as_slice()) {
        ("E", [e]) => Outcome::Err(Errno(*e as i32)),
        ("F", [mode, nlink, uid, gid, rdev, size]) => Outcome::File(Facts {
            mode: *mode as u32,
            nlink: *nlink as u32,
            uid: *uid as u32,
            gid: *gid as u32,
            rdev: *rdev as u32,
            size: *size,
        }),
        ("B", bytes) => Outcome::Bytes(bytes.iter().map(|b| *b as u8).collect()),
        _ => Outcome::Done,
    }
}

/// Not a test: a process that the test below starts, which does what it is told line by line.
#[test]
fn worker() {
    if std::env::var_os(WORKER).is_none() {
        return;
    }
    umask(Mode::empty());
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (start, rest) = line.split_once('\t').unwrap();
        let (root, ops) = rest.split_once('\t').unwrap();
        let (start, root, ops) = (start.parse::<u64>().unwrap(), Path::new(root), parse(ops).unwrap());
        while nanoseconds() < start {
            std::hint::spin_loop();
        }
        let calls: Vec<String> = ops
            .iter()
            .map(|op| {
                let began = nanoseconds();
                let outcome = apply(root, op);
                format!("{began} {} {}", nanoseconds(), encode(&outcome))
            })
            .collect();
        println!("> {}", calls.join(";"));
        std::io::stdout().flush().unwrap();
    }
}

struct Worker {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Worker {
    fn start() -> Worker {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker", "--nocapture", "--test-threads=1"])
            .env(WORKER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Worker { child, said }
    }

    fn tell(&mut self, start: u64, root: &Path, ops: &[Op]) {
        let line = format!("{start}\t{}\t{}\n", root.display(), print(ops));
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    fn hear(&mut self, ops: &[Op]) -> Vec<Call> {
        let mut line = String::new();
        let calls = loop {
            line.clear();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "a worker has ended");
            // The test harness talks too, and not always on a line of its own.
            if let Some((_, calls)) = line.trim_end().split_once("> ") {
                break calls;
            }
        };
        let call = |(op, text): (&Op, &str)| {
            let mut words = text.splitn(3, ' ');
            let mut moment = || words.next().unwrap().parse().unwrap();
            let span = (moment(), moment());
            Call { op: op.clone(), outcome: decode(words.next().unwrap()), span, events: (0, 0) }
        };
        ops.iter().zip(calls.split(';')).map(call).collect()
    }
}

fn arbor(args: &[&str], paths: &[&Path]) {
    let out = Command::new(env!("CARGO_BIN_EXE_arbor")).args(args).args(paths).stdin(Stdio::null()).output().unwrap();
    assert!(out.status.success(), "arbor {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn processes_see_an_order() {
    if !root_can_mount() {
        return;
    }
    for engine in arboretum::engines() {
        on_a_mount(engine.name());
    }
}

fn on_a_mount(engine: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (image, root) = (dir.path().join("x.img"), dir.path().join("mnt"));
    arbor(&["mkfs", "-q", "-t", engine, "-s", "256M"], &[&image]);
    arbor(&["mount"], &[&image, &root]);
    // A failure must not leave the mount behind.
    let tried = std::panic::catch_unwind(|| rounds(&root));
    arbor(&["umount"], &[&root]);
    arbor(&["fsck", "-n", "-f"], &[&image]);
    tried.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn rounds(root: &Path) {
    let mut workers: Vec<Worker> = (0..PROCESSES).map(|_| Worker::start()).collect();
    let (mut rng, setup) = (Rng::new(1), parse(SETUP).unwrap());
    let last: Vec<Op> = parse("list / 9; list /d 9; stat /a; stat /d/a; stat /d; stat /e").unwrap();
    umask(Mode::empty());
    for round in 0..ROUNDS {
        let place = root.join(round.to_string());
        fs::create_dir(&place).unwrap();
        for op in &setup {
            assert!(!matches!(apply(&place, op), Outcome::Err(_)), "{op}");
        }
        let programs: Vec<Vec<Op>> =
            (0..PROCESSES).map(|_| (0..1 + rng.below(4)).map(|_| draw(&mut rng).parse().unwrap()).collect()).collect();
        let start = nanoseconds() + Duration::from_micros(300).as_nanos() as u64;
        workers.iter_mut().zip(&programs).for_each(|(w, ops)| w.tell(start, &place, ops));
        let mut tasks: Vec<Vec<Call>> = workers.iter_mut().zip(&programs).map(|(w, ops)| w.hear(ops)).collect();
        for op in &last {
            let began = nanoseconds();
            let outcome = apply(&place, op);
            tasks[0].push(Call { op: op.clone(), outcome, span: (began, nanoseconds()), events: (0, 0) });
        }
        explain(&setup, &tasks).unwrap_or_else(|e| panic!("round {round}: {e}"));
    }
    for worker in &mut workers {
        drop(worker.child.stdin.take());
        assert!(worker.child.wait().unwrap().success());
    }
}
