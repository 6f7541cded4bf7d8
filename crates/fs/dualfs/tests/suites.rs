//! All suites of the laboratory.

use arbor_dualfs::DualFs;
use arbor_torture::suites::*;

arbor_torture::engine_suites! {
    DualFs,
    variants: ["", "modify=relocate,relocate=off"],
    run: {
        conformance(Conformance { write_back_ms: &[("", 5000)], fsync_takes_others: &[("", true)] }),
        fallocate,
        model,
        crash,
        shapes(Shapes { sequences: 1 }),
        growing(Volumes { count: 16, states: 80, recoveries: 16 }),
        repair(Volumes { count: 20, states: 40, recoveries: 4 }),
        faults(Faults { format: "", files: 8, step: 9000, drawn: 200 }),
        flips(Flips { reads: 11, bits: 11 }),
        mutants(Mutants { count: 300, failed_once: include_str!("hostile.txt"), meter: None }),
        schedules(Schedules { count: 500 }),
        threads(Threads { programs: 30, format: "", mounts: &["cache=1M"] }),
    },
    skip: {
        failed_schedules: "none has failed",
    },
}
