//! `arbor lab disk` mounted, and file systems of the kernel on it.
#![cfg(target_os = "linux")]

use arbor_base::device::{Device, Kind, MemDevice, Request};
use arbor_base::vfs::Time;
use arbor_simdisk::{HostQueue, Model, SimClock, SimDevice, Trace, TraceOp};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

fn arbor(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_arbor"));
    command.current_dir(dir).env("TMPDIR", dir).args(args).stdin(Stdio::null());
    command
}

/// Whether there is what a test needs; says so if not.
fn has(what: &[&str]) -> bool {
    let missing: Vec<_> = what.iter().filter(|path| !Path::new(path).exists()).collect();
    let root = rustix::process::geteuid().is_root();
    if !root || !missing.is_empty() {
        eprintln!("NOT RUN: this test needs root and {what:?}; root: {root}, missing: {missing:?}");
    }
    root && missing.is_empty()
}

const LOOP: &[&str] = &["/dev/fuse", "/dev/loop-control", "/usr/sbin/losetup", "/usr/sbin/mkfs.ext4"];

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        sleep(Duration::from_millis(20));
    }
}

/// Mounts and loop devices below `dir`.
fn left_behind(dir: &Path) -> Vec<String> {
    let below = dir.canonicalize().unwrap().display().to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let loops = fs::read_dir("/sys/block").unwrap().flatten();
    let loops = loops.filter_map(|e| fs::read_to_string(e.path().join("loop/backing_file")).ok());
    mounts.lines().map(str::to_string).chain(loops).filter(|line| line.contains(&below)).collect()
}

/// A disk that is shown, ended with the value.
struct Shown(Child);

impl Shown {
    fn new(dir: &Path, args: &[&str]) -> Shown {
        let args = [&["lab", "disk", "--json"], args, &["mnt"]].concat();
        let child = arbor(dir, &args).stdout(Stdio::piped()).spawn().unwrap();
        until("the disk is shown", || dir.join("mnt/disk").exists());
        Shown(child)
    }

    fn end(mut self, signal: Signal) -> Value {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(self.0.wait().unwrap().success());
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

const PIECE: usize = 64 << 10;
const PIECES: u64 = 16;

/// What the requests of the test below take without mount and kernel.
fn wanted_ns(model: &Model) -> u64 {
    let memory = Arc::new(MemDevice::new(64 << 20));
    let sim = SimDevice::new(memory, model, HostQueue::default(), SimClock::new(Time::default())).unwrap();
    let write = |i: u64| Request::write(Kind::Other, (1 << 20) + i * PIECE as u64, vec![vec![1; PIECE].into()]);
    let tickets: Vec<_> = (0..PIECES).map(|i| sim.submit(vec![write(i)])).collect();
    tickets.into_iter().for_each(|t| t.wait_all().unwrap());
    sim.flush().unwrap();
    sim.read_at(Kind::Other, 1 << 20, &mut [0; 4096]).unwrap();
    sim.flush().unwrap();
    sim.drain();
    sim.clock().now_ns()
}

#[test]
fn a_disk_takes_what_its_model_says() {
    if !has(&["/dev/fuse"]) {
        return;
    }
    for (model, flushes) in [("st39140", 0), ("870evo", 2)] {
        let dir = tempfile::tempdir().unwrap();
        let shown = Shown::new(dir.path(), &["--model", model, "--size", "64M", "--trace", "trace"]);
        let path = dir.path().join("mnt/disk");
        assert_eq!(fs::metadata(&path).unwrap().len(), 64 << 20);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let bytes = |i: u64| vec![i as u8 + 1; PIECE];
        for i in 0..PIECES {
            file.write_all_at(&bytes(i), (1 << 20) + i * PIECE as u64).unwrap();
        }
        file.sync_all().unwrap();
        let mut found = [0; 4096];
        file.read_exact_at(&mut found, 1 << 20).unwrap();
        assert_eq!(found, [1; 4096]);
        assert!(fs::write(dir.path().join("mnt/other"), "").is_err());
        drop(file);
        let stats = shown.end(Signal::TERM);
        let count = |name: &str| stats[name].as_u64().unwrap();
        assert_eq!((count("write_bytes"), count("read_bytes"), count("reads")), (1 << 20, 4096, 1), "{stats}");
        assert_eq!((count("flushes"), count("elapsed_ns")), (flushes, wanted_ns(&Model::named(model).unwrap())));
        assert_eq!(count("requests"), count("reads") + count("writes"));
        let trace = Trace::read_from(BufReader::new(File::open(dir.path().join("trace")).unwrap())).unwrap();
        assert_eq!(trace.model, model);
        let len = |op| trace.requests.iter().filter(|r| r.op == op).map(|r| r.len).sum::<u64>();
        assert_eq!((len(TraceOp::Read), len(TraceOp::Write)), (4096, 1 << 20));
        assert_eq!(left_behind(dir.path()), [""; 0]);
    }
}

#[test]
fn an_image_keeps_the_bytes() {
    if !has(&["/dev/fuse"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let args = ["--size", "1M", "--keep", "image"];
    let shown = Shown::new(dir.path(), &args);
    File::options().write(true).open(dir.path().join("mnt/disk")).unwrap().write_all_at(b"kept", 5000).unwrap();
    shown.end(Signal::INT);
    assert_eq!(&fs::read(dir.path().join("image")).unwrap()[5000..5004], b"kept");
    let shown = Shown::new(dir.path(), &args);
    assert_eq!(&fs::read(dir.path().join("mnt/disk")).unwrap()[5000..5004], b"kept");
    drop(shown);
    let out = arbor(dir.path(), &["lab", "disk", "--size", "2M", "--keep", "image", "mnt"]).output().unwrap();
    assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("it has 1048576 bytes"));
}

#[test]
fn ext4_gives_rows_beside_ours() {
    if !has(LOOP) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let args = ["lab", "run", "yfs-table3", "--subject", "FFS-SU,ext4", "--divisor", "200"];
    let out = arbor(dir.path(), &[&args[..], &["--json", "rows", "--report", "page"]].concat()).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{said}");
    let rows: Vec<Value> = serde_json::from_slice(&fs::read(dir.path().join("rows")).unwrap()).unwrap();
    let row = |subject: &str, metric: &str| {
        rows.iter().find(|r| r["subject"] == subject && r["metric"] == metric).unwrap_or(&Value::Null)
    };
    for part in ["extraction", "deletion"] {
        for metric in ["elapsed time", "requests", "disk busy", "transferred"] {
            let (ours, theirs) =
                (row("FFS-SU", &format!("{part}, {metric}")), row("ext4", &format!("{part}, {metric}")));
            assert!(ours["ours"].is_f64() && theirs["ours"].is_f64(), "{part}, {metric}: {said}");
        }
        for metric in ["disk time, log", "disk time, data", "processor, real"] {
            assert!(row("ext4", &format!("{part}, {metric}")).is_null());
        }
    }
    // Files of a two-hundredth of the archive have to get to the disk, at the latest with the unmount between.
    let number = |metric: &str| row("ext4", metric)["ours"].as_f64().unwrap();
    let requests = number("extraction, requests") + number("extraction, requests afterwards");
    assert!(requests > 10.0 && number("deletion, elapsed time") > 0.0, "{said}");
    assert!(row("ext4", "deletion, elapsed time")["our_ratio"].is_f64());
    let page = fs::read_to_string(dir.path().join("page")).unwrap();
    assert!(page.contains(">ext4<") && !page.contains("NaN"));
    assert_eq!(left_behind(dir.path()), [""; 0]);
}

/// One signal: the run ends within seconds even on a machine that is busy, however long the subject would take, and the
/// processes take everything off before.
#[test]
fn an_interrupted_run_ends_soon_and_leaves_nothing() {
    if !has(LOOP) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (subject, wait, ms) in [("ext4", " - ext4 ", 700), ("ext4", "arbor-lab", 50), ("FFS-sync", "", 700)] {
        let mut run = arbor(dir.path(), &["lab", "run", "yfs-table4", "--subject", subject]);
        let mut run = run.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (mut out, mut text) = (BufReader::new(run.stdout.take().unwrap()), String::new());
        out.read_line(&mut text).unwrap();
        until("it runs", || wait.is_empty() || left_behind(dir.path()).iter().any(|line| line.contains(wait)));
        sleep(Duration::from_millis(ms));
        let begun = Instant::now();
        kill_process(Pid::from_child(&run), Signal::INT).unwrap();
        out.read_to_string(&mut text).unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(130), "{text}");
        let took = begun.elapsed();
        eprintln!("{subject}: ended after {took:?}");
        assert!(took < Duration::from_secs(5), "{subject}: {took:?}");
        assert!(text.ends_with(&format!("missing: yfs-table4, {subject}: interrupted\n")), "{text}");
        assert_eq!(left_behind(dir.path()), [""; 0]);
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
        assert_eq!(processes(dir.path()), [""; 0]);
    }
}

#[test]
fn a_kernel_file_system_is_mounted_with_its_options_and_the_access_times_of_the_host() {
    if !has(LOOP) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (flag, all_times) in [(&["--access-times"][..], true), (&[], false)] {
        let args = [&["lab", "disk", "--peer", "ext2-2002", "--size", "64M"], flag, &["peer"]].concat();
        let mut child = arbor(dir.path(), &args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut out, mut line) = (BufReader::new(child.stdout.take().unwrap()), String::new());
        out.read_line(&mut line).unwrap();
        let mounts = left_behind(dir.path());
        let mount = mounts.iter().find(|line| line.contains(" - ext2 ")).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(!mount.contains("relatime"), all_times, "{mount}");
        assert!(mount.contains("inode_readahead_blks=0"), "{mount}");
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        assert_eq!(left_behind(dir.path()), [""; 0]);
    }
}

/// Processes with this directory in their arguments.
fn processes(dir: &Path) -> Vec<String> {
    let dir = dir.display().to_string();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|e| fs::read(e.path().join("cmdline")).ok());
    lines.map(|l| String::from_utf8_lossy(&l).into_owned()).filter(|line| line.contains(&dir)).collect()
}

/// The second signal ends the run at once, and the process with the disk takes everything off.
#[test]
fn nothing_stays_behind_an_interrupted_run() {
    if !has(LOOP) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut run = arbor(dir.path(), &["lab", "run", "yfs-table2", "--subject", "ext4"]);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let is_mounted = |kind: &str| left_behind(dir.path()).iter().any(|line| line.contains(kind));
    until("ext4 is mounted", || is_mounted(" - ext4 "));
    sleep(Duration::from_millis(500));
    for _ in 0..2 {
        kill_process(Pid::from_child(&run), Signal::INT).unwrap();
        sleep(Duration::from_millis(100));
    }
    assert_eq!(run.wait().unwrap().code(), Some(130));
    until("everything is off", || left_behind(dir.path()).is_empty());
    until("the directories are gone", || fs::read_dir(dir.path()).unwrap().next().is_none());
}
