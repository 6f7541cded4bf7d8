//! All suites of the laboratory.

use arbor_lfs::Lfs;
use arbor_torture::suites::*;

arbor_torture::engine_suites! {
    Lfs,
    variants: [""],
    run: {
        conformance(Conformance { write_back_ms: &[("", 5000)], fsync_takes_others: &[("", true)] }),
        fallocate,
        model,
        crash,
        shapes(Shapes { sequences: 2 }),
        growing(Volumes { count: 16, states: 80, recoveries: 16 }),
        repair(Volumes { count: 40, states: 200, recoveries: 20 }),
        faults(Faults { format: "", files: 8, step: 9000, drawn: 400 }),
        flips(Flips { reads: 11, bits: 11 }),
        mutants(Mutants { count: 500, failed_once: include_str!("hostile.txt"), meter: None }),
        schedules(Schedules { count: 2000 }),
        threads(Threads {
            programs: 100,
            format: "block=4K,segment=64K",
            mounts: &["cache=1M", "cache=1M,clean=greedy"],
        }),
    },
    skip: {
        failed_schedules: "none has failed",
    },
}
