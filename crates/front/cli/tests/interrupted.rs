//! Commands that are interrupted, and say so.

#![cfg(target_os = "linux")]

mod common;

use common::{BINARY, each_engine, ok};
use serde_json::Value;
use std::fs;
use std::path::Path;

#[test]
fn an_interrupted_torture_says_what_is_missing() {
    use rustix::process::{Pid, Signal, kill_process};
    use std::io::{BufRead, Read};
    let dir = tempfile::tempdir().unwrap();
    for (only, signal, missing) in [
        (&[][..], Signal::INT, "interrupted: crash not finished; fault, fuzz, concurrency not run\n"),
        (&["--only", "fuzz"], Signal::TERM, "interrupted: fuzz not finished\n"),
    ] {
        let mut command = std::process::Command::new(BINARY);
        command.args(["torture", "--seconds", "600", "--json", "counts"]).args(only).current_dir(dir.path());
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut text = String::new();
        out.read_line(&mut text).unwrap();
        assert!(text.contains(", seed "), "{text}");
        kill_process(Pid::from_child(&child), signal).unwrap();
        out.read_to_string(&mut text).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{text}");
        assert!(text.ends_with(missing) && text.lines().all(|l| l == l.trim_end()), "{text}");
        let counts: Value = serde_json::from_slice(&fs::read(dir.path().join("counts")).unwrap()).unwrap();
        assert_eq!(counts["interrupted"], Value::from(true));
    }
}

/// Sends SIGINT to a process as soon as it catches it.
fn interrupt(child: &std::process::Child) {
    let catches = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim().to_string();
        u64::from_str_radix(&mask, 16).unwrap() & 2 != 0
    };
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !catches() {
        assert!(std::time::Instant::now() < limit, "it does not catch SIGINT");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
}

fn start(dir: &Path, args: &[&str]) -> std::process::Child {
    let mut command = std::process::Command::new(BINARY);
    let piped = std::process::Stdio::piped;
    command.args(args).current_dir(dir).stdin(piped()).stdout(piped()).stderr(piped()).spawn().unwrap()
}

/// Waits for the end of a process that was interrupted; gives what it said.
fn interrupted(child: std::process::Child) -> String {
    let out = child.wait_with_output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(130), "{err}");
    assert!(err.ends_with(": interrupted\n") && err.lines().count() == 1, "{err}");
    err
}

#[test]
fn an_interrupted_mkfs_leaves_no_image() {
    use std::io::Write;
    each_engine(|dir, engine| {
        fs::write(dir.join("big"), vec![7; 8 << 20]).unwrap();
        ok(dir, &["put", "x.img", "big", "/"]);
        ok(dir, &["tar", "--export", "x.tar", "x.img"]);
        let archive = fs::read(dir.join("x.tar")).unwrap();
        let mkfs = |image: &str| {
            let mut child = start(dir, &["mkfs", "-t", engine, "-s", "64M", "-d", "-", image]);
            let mut pipe = child.stdin.take().unwrap();
            pipe.write_all(&archive[..4 << 20]).unwrap();
            interrupt(&child);
            // It may be gone before all is written.
            let _ = pipe.write_all(&archive[4 << 20..]);
            drop(pipe);
            interrupted(child)
        };
        mkfs("new.img");
        assert!(!dir.join("new.img").exists());
        fs::File::create(dir.join("old.img")).unwrap().set_len(64 << 20).unwrap();
        let said = mkfs("old.img");
        assert!(said.starts_with("arbor mkfs: old.img: the new volume in it is incomplete: "), "{said}");
        assert_eq!(ok(dir, &["ls", "old.img"]), "");
    });
}

#[test]
fn interrupted_copies_say_so_and_leave_no_part_of_a_file() {
    each_engine(|dir, _| {
        fs::write(dir.join("big"), vec![7; 8 << 20]).unwrap();
        ok(dir, &["put", "x.img", "big", "/"]);
        fs::create_dir(dir.join("out")).unwrap();
        for (command, target) in [("get", "out"), ("put", "/")] {
            // The same again and again: it does not end by itself.
            let args = [&[command, "x.img"][..], &vec!["big"; 5000], &[target]].concat();
            let child = start(dir, &args);
            interrupt(&child);
            interrupted(child);
        }
        ok(dir, &["fsck", "-f", "x.img"]);
        assert!(fs::read_dir(dir.join("out")).unwrap().all(|entry| entry.unwrap().file_name() == "big"));
    });
}
