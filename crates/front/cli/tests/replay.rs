//! `arbor lab replay` from outside.

mod common;

use common::{json, ok, run_in};
use std::fs;
use std::path::Path;

/// The same four requests, as each format has them.
const FIO_2: &str = "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb write 4096 512\n/dev/sdb wait 150 0\n\
                     /dev/sdb read 0 1024\n/dev/sdb wait 250 0\n/dev/sdb write 8192 4096\n/dev/sdb close\n";
const FIO_3: &str = "fio version 3 iolog\n0 f add\n0 f open\n0 f write 4096 512\n150 f read 0 1024\n\
                     400 f write 8192 4096\n401 f close\n";
const BLKPARSE: &str = "  8,16   1        1     5.000000000   697  Q   W 8 + 1 [a]\n\
                        \x20 8,16   1        2     5.000001829   697  D   W 8 + 1 [a]\n\
                        \x20 8,16   1        3     5.000150000   697  Q   R 0 + 2 [a]\n\
                        \x20 8,16   1        4     5.000400000   697  Q  WS 16 + 8 [a]\n\
                        \x20 8,16   1        5     5.000900000     0  C   W 8 + 1 [0]\n\
                        CPU1 (sdb):\n Reads Queued:           1,        1KiB\n";
const MSR: &str = "128166372003060000,usr,0,Write,4096,512,9000\n128166372003061500,usr,0,Read,0,1024,41286\n\
                   128166372003064000,usr,0,Write,8192,4096,1963\n";

fn write(dir: &Path, name: &str, text: &str) {
    fs::write(dir.join(name), text).unwrap();
}

#[test]
fn every_format_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let mut times = Vec::new();
    for (text, format) in [(FIO_2, "fio"), (FIO_3, "fio"), (BLKPARSE, "blkparse"), (MSR, "msr")] {
        write(dir.path(), "trace", text);
        let all = json(dir.path(), &["lab", "replay", "trace", "--disk", "870evo", "--json"]);
        let disk = &all["disks"][0];
        let counts = ["reads", "writes", "read_bytes", "write_bytes"].map(|name| disk["stats"][name].as_u64().unwrap());
        assert_eq!((all["format"].as_str().unwrap(), counts), (format, [1, 2, 1024, 4608]));
        assert_eq!(all["recorded"]["requests"], 3);
        assert_eq!(json(dir.path(), &["lab", "replay", "trace", "-d", "870evo", "-f", format, "--json"]), all);
        times.push((disk["elapsed_ns"].clone(), disk["latency_ns"].clone()));
    }
    assert!(times.iter().all(|time| *time == times[0]), "{times:?}");
    let recorded = |text: &str| {
        write(dir.path(), "trace", text);
        json(dir.path(), &["lab", "replay", "trace", "--disk", "870evo", "--json"])["recorded"].clone()
    };
    assert!(recorded(FIO_3)["elapsed_ns"].is_null(), "fio has no completions");
    assert_eq!(recorded(BLKPARSE)["latency_ns"]["writes"]["largest"], 900_000);
    assert_eq!(recorded(MSR)["latency_ns"]["reads"]["largest"], 4_128_600);
    assert_eq!(recorded(MSR)["elapsed_ns"], 150_000 + 4_128_600);
}

#[test]
fn a_table_has_a_column_for_each_disk() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "trace", MSR);
    let out = ok(dir.path(), &["lab", "replay", "trace", "--disk", "hc310,870evo", "--closed", "--depth", "2"]);
    assert!(out.starts_with("trace: msr, 3 requests, closed, 2 requests under way\n"), "{out}");
    let cells = |words: &str| -> Vec<String> {
        let line = out.lines().find(|l| l.trim_start().starts_with(words)).unwrap_or_else(|| panic!("{words}: {out}"));
        line.trim_start()[words.len()..]
            .split("  ")
            .map(str::trim)
            .filter(|c| !c.is_empty())
            .map(String::from)
            .collect()
    };
    assert_eq!(cells("in the trace"), ["hc310", "870evo"]);
    assert_eq!(cells("bytes written"), ["4,608"; 3]);
    assert_eq!(cells("latency of reads, median")[0], "4.13 ms");
    // What only one of them has.
    assert_eq!((&cells("seeks")[0], &cells("seeks")[2]), (&"-".to_string(), &"-".to_string()));
    assert_eq!(cells("blocks erased"), ["-", "-", "0"]);
}

#[test]
fn closed_replay_takes_no_notice_of_the_times() {
    let dir = tempfile::tempdir().unwrap();
    let trace = |us: u64| {
        let line = |i: u64| format!("{} f read {} 4096\n", i * us, i * 7919 % 5000 * 65_536);
        "fio version 3 iolog\n".to_string() + &(0..300).map(line).collect::<String>()
    };
    write(dir.path(), "slow", &trace(100_000));
    write(dir.path(), "fast", &trace(10));
    let replay = |name: &str, more: &[&str]| {
        let args = [&["lab", "replay", name, "--disk", "st39140", "--json"][..], more].concat();
        let mut all = json(dir.path(), &args);
        all["recorded"].take();
        all
    };
    let elapsed = |name: &str, more: &[&str]| replay(name, more)["disks"][0]["elapsed_ns"].as_u64().unwrap();
    assert_eq!(replay("slow", &["--closed"]), replay("fast", &["--closed"]));
    assert!(elapsed("slow", &[]) > 29_900_000_000 && elapsed("fast", &[]) < 5_000_000_000);
    assert!(elapsed("fast", &["--closed", "--depth", "16"]) < elapsed("fast", &["--closed"]) * 4 / 5);
    // The driver's queue is the one that is asked for.
    assert!(elapsed("fast", &["--scheduler", "fifo"]) > elapsed("fast", &[]));
    assert_eq!(replay("fast", &["--closed", "--depth", "16"]), replay("fast", &["--closed", "--depth", "16"]));
}

#[test]
fn what_is_wrong_is_named_with_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let past = "fio version 3 iolog\n0 f read 0 512\n7 f read 9000000000000 512\n";
    for (text, more, want) in [
        ("", &[][..], "trace: line 1: there is nothing in it"),
        ("hello\n", &[], "trace: line 1: no trace of arbor, blkparse, fio, msr begins like this"),
        ("fio version 3 iolog\n0 f add\n", &[], "trace: there are no requests in it"),
        ("fio version 3 iolog\n0 f read 0 512\n0 f eat 0 512\n", &[], "trace: line 3: no action is named \"eat\""),
        (&MSR.replace("Read", "Raed"), &[], "trace: line 2: the type should be Read or Write, not \"Raed\""),
        (MSR, &["--format", "fio"], "trace: line 1: it should be \"fio version 2 iolog\" or \"fio version 3 iolog\""),
        (
            past,
            &[],
            "trace: line 3: a request ends at byte 9000000000512, but 870evo has 1000204886016 (--wrap goes on at its \
             beginning)",
        ),
        (
            "fio version 3 iolog\n0 f read 0 9000000000512\n",
            &["--wrap"],
            "trace: line 2: a request has 9000000000512 bytes, more than 1073741824",
        ),
        (&("x".repeat(70_000) + "\n"), &["-f", "blkparse"], "trace: line 1: it is longer than 65536 bytes"),
    ] {
        write(dir.path(), "trace", text);
        let (code, out, err) = run_in(dir.path(), &[&["lab", "replay", "trace", "-d", "870evo"], more].concat());
        assert_eq!((code, out.as_str(), err), (1, "", format!("arbor lab: {want}\n")));
    }
    write(dir.path(), "trace", past);
    assert!(ok(dir.path(), &["lab", "replay", "trace", "-d", "870evo", "--wrap"]).contains("2 requests"));
    let (code, _, err) = run_in(dir.path(), &["lab", "replay", "trace", "-d", "870evo,floppy"]);
    assert!(code == 1 && err.starts_with("arbor lab: no disk is called \"floppy\"; there are dsp3105, "), "{err}");
    for args in [&["trace"][..], &["trace", "-d", "hc310", "--depth", "3"], &["trace", "-d", "hc310", "-f", "x"]] {
        assert_eq!(run_in(dir.path(), &[&["lab", "replay"], args].concat()).0, 2, "{args:?}");
    }
}

#[test]
fn the_standard_input_is_read_once_and_bytes_that_are_no_text_are_refused() {
    let replay = |input: &[u8]| {
        let mut command = common::arbor();
        let out = command.args(["lab", "replay", "-", "-d", "hc310,980pro"]).write_stdin(input).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let (code, out, err) = replay(MSR.as_bytes());
    assert!(code == Some(0) && out.starts_with("standard input: msr, 3 requests"), "{out}{err}");
    let (code, _, err) = replay(&[0xff; 100]);
    assert_eq!((code, err.as_str()), (Some(1), "arbor lab: standard input: line 1: it is not text\n"));
}

/// Each engine's run has the same times again on the same disk: all of its requests, each to the nanosecond.
#[test]
fn a_run_that_is_replayed_on_its_disk_takes_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["lab", "run", "yfs-table2", "--divisor", "200", "--case", "50,000 files", "--alone"];
    for (engine, disk) in [("yfs", "870evo"), ("ffs::keep=sync", "st39140"), ("lfs", "hc310"), ("reiserfs", "dsp3105")]
    {
        let subject = format!("mine={engine}");
        let more = ["--subject", &subject, "--disk", disk, "--trace-out", "run.trace"];
        let (code, out, err) = run_in(dir.path(), &[&args[..], &more].concat());
        assert_eq!(code, 0, "{out}{err}");
        assert!(out.contains("\nwritten: run.trace\n"), "{out}");
        let replay = |more: &[&str]| {
            let args = ["lab", "replay", "run.trace", "--disk", disk, "--json"];
            json(dir.path(), &[&args[..], more].concat())
        };
        let timed = replay(&[]);
        let (recorded, again) = (&timed["recorded"], &timed["disks"][0]);
        assert_eq!(again["latency_ns"], recorded["latency_ns"], "{engine}");
        assert_eq!(again["elapsed_ns"], recorded["elapsed_ns"], "{engine}");
        // One after the other nothing is merged, nobody thinks and nothing waits in the queue; what is asked of the
        // disk is the same.
        let closed = &replay(&["--closed"])["disks"][0];
        for what in ["read_bytes", "write_bytes", "flushes"] {
            assert_eq!(closed["stats"][what], again["stats"][what], "{engine}, {what}");
        }
        assert_eq!(
            closed["stats"]["requests"].as_u64(),
            recorded["requests"].as_u64().map(|n| n - recorded["flushes"].as_u64().unwrap())
        );
        assert_eq!(closed["stats"]["queue_ns"], 0);
        if engine.contains("sync") {
            // Most requests wait for the one before them, and find the disk as it was.
            let service = [closed, again].map(|disk| disk["stats"]["service_ns"].as_f64().unwrap());
            assert!((service[0] / service[1] - 1.0).abs() < 0.15, "{service:?}");
        }
        assert_eq!(replay(&["--closed"])["disks"][0], *closed);
    }
}

/// The commands of a section of `docs/lab.md`, in their order, each with counts divided so that it takes a moment.
fn documented(section: &str) -> Vec<String> {
    let document = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/lab.md")).unwrap();
    let (_, text) = document.split_once(&format!("\n## {section}\n")).unwrap();
    let text = text.split("\n## ").next().unwrap();
    let commands = text.lines().filter_map(|line| line.strip_prefix("    ")).filter(|line| line.starts_with("arbor "));
    let divided = |command: &str| {
        let command = command.split(" #").next().unwrap_or_default().trim();
        if command.starts_with("arbor lab run ") { format!("{command} --divisor 200") } else { command.into() }
    };
    commands.map(divided).collect()
}

#[test]
fn the_commands_of_the_document_work() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "sda.txt", BLKPARSE);
    write(dir.path(), "job.log", FIO_3);
    write(dir.path(), "src1_0.csv", MSR);
    let commands = documented("Your own subjects and traces");
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands {
        let shell = format!("arbor() {{ {} \"$@\"; }}; {command}", common::BINARY);
        let out = std::process::Command::new("sh").current_dir(dir.path()).args(["-c", &shell]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && !out.stdout.is_empty(), "{command}: {said}");
    }
}
