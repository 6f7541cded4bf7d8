//! All suites of the laboratory, in all four ways to keep metadata.

use arbor_ffs::Ffs;
use arbor_torture::suites::*;

arbor_torture::engine_suites! {
    Ffs,
    variants: ["keep=async", "keep=sync", "keep=softupdates", "keep=journal"],
    run: {
        conformance(Conformance {
            write_back_ms: &[
                ("keep=async", 30_000),
                ("keep=sync", 30_000),
                ("keep=softupdates", 32_000),
                ("keep=journal", 5000),
                ("keep=async,commit=2", 4000),
                ("keep=sync,commit=2", 4000),
                ("keep=softupdates,commit=2", 4000),
                ("keep=journal,commit=2", 4000),
            ],
            fsync_takes_others: &[("keep=sync", false), ("keep=journal", true)],
        }),
        fallocate,
        model,
        crash,
        repair(Volumes { count: 20, states: 100, recoveries: 10 }),
        faults(Faults { format: "block=4K,cg=4M", files: 8, step: 9000, drawn: 800 }),
        flips(Flips { reads: 11, bits: 11 }),
        mutants(Mutants { count: 500, failed_once: include_str!("hostile.txt"), meter: None }),
        schedules(Schedules { count: 2000 }),
        failed_schedules(FailedSchedules { lines: SCHEDULES, schedules: 400 }),
        threads(Threads {
            programs: 100,
            format: "block=4K,cg=8M",
            mounts: &["keep=async,cache=1M", "keep=sync,cache=1M", "keep=softupdates,cache=1M", "keep=journal,cache=1M"],
        }),
    },
    skip: {
        growing: "FFS has no resize",
        shapes: "they take a tenth of the time of all tests of FFS; `arbor torture` goes through them",
    },
}

/// Failed when calls overlapped.
const SCHEDULES: &str = "schedule=13788355865073 size=67108864 format=block=4K,cg=4M,journal=1M \
    mount=keep=journal,cache=1M setup=create /a 420 0; write /a 0 200000 1; syncfs; remount \
    tasks=background 40000 | truncate @0 0; background 40000";
