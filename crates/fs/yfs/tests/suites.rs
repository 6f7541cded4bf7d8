//! All suites of the laboratory.

mod heap;

use arbor_torture::suites::*;
use arbor_yfs::Yfs;

arbor_torture::engine_suites! {
    Yfs,
    variants: [""],
    run: {
        conformance(Conformance { write_back_ms: &[("", 5000)], fsync_takes_others: &[("", false)] }),
        model,
        crash,
        shapes(Shapes { sequences: 2 }),
        growing(Volumes { count: 24, states: 480, recoveries: 48 }),
        repair(Volumes { count: 40, states: 200, recoveries: 20 }),
        faults(Faults { format: "", files: 12, step: 3000, drawn: 3000 }),
        flips(Flips { reads: 6, bits: 40 }),
        mutants(Mutants { count: 2000, failed_once: include_str!("hostile.txt"), meter: Some(heap::meter) }),
        schedules(Schedules { count: 2000 }),
        failed_schedules(FailedSchedules { lines: SCHEDULES, schedules: 200 }),
        threads(Threads { programs: 100, format: "logsize=1M", mounts: &["cache=1M"] }),
    },
    skip: {
        fallocate: "yFS does not ask for the time while it looks for space; `schedules` puts other calls in between",
    },
}

/// In their order: attributes returned by setattr were those of a later moment; punching wrote
/// zeros past an end that had moved, and so moved it back; a block that was freed while it was
/// fetched passed for damaged; a file without a name got one again; a read mixed what was there
/// before and after a write.
const SCHEDULES: &str = "\
schedule=14057815425994 size=67108864 setup=create /a 420 0 tasks=chown @0 1 2 | chmod @0 384
schedule=130085627473718 size=67108864 setup=create /a 420 0; write /a 0 700 1 tasks=truncate @0 74 | fallocate @0 3 1 200000
schedule=177507157891607 size=67108864 setup=create /a 420 0; setxattr /a user.x0 200 4 0; remount tasks=setxattr @0 user.x0 3000 11 2 | setxattr @0 user.x0 20 12 0; background 40000
schedule=184363383526182 size=67108864 setup=create /a 420 0; mkdir /d 493 0; create /d/x 420 0 tasks=rename @2/x /a 0 | link @0 /c
schedule=166577739868193 size=67108864 format=block=1K,frag=512,logsize=704K mount=cache=1M from=Aged setup= tasks=read @0 0 200000 | write @0 0 60000 13; background 40000
";
