//! Several tasks at once under chosen schedules, see [`arbor_torture::concurrent`].

use arbor_base::vfs::Options;
use arbor_torture::concurrent::{regressions, run};
use arbor_torture::config::Config;
use arbor_torture::generate::Profile;
use arbor_yfs::Yfs;

#[test]
fn tasks_see_an_order() {
    let tally = run(&Yfs, 1, 2_000, false, &mut |_| true);
    assert!(tally.failures.is_empty(), "{}", tally.failures.join("\n"));
    assert!(tally.schedules >= 2_000 && tally.crash_states >= 3_000);
}

/// In their order: attributes returned by setattr were those of a later moment; punching wrote
/// zeros past an end that had moved, and so moved it back; a block that was freed while it was
/// fetched passed for damaged; a file without a name got one again; a read mixed what was there
/// before and after a write.
#[test]
fn what_failed_once() {
    regressions(
        &Yfs,
        "\
schedule=14057815425994 size=67108864 setup=create /a 420 0 tasks=chown @0 1 2 | chmod @0 384
schedule=130085627473718 size=67108864 setup=create /a 420 0; write /a 0 700 1 tasks=truncate @0 74 | fallocate @0 3 1 200000
schedule=177507157891607 size=67108864 setup=create /a 420 0; setxattr /a user.x0 200 4 0; remount tasks=setxattr @0 user.x0 3000 11 2 | setxattr @0 user.x0 20 12 0; background 40000
schedule=184363383526182 size=67108864 setup=create /a 420 0; mkdir /d 493 0; create /d/x 420 0 tasks=rename @2/x /a 0 | link @0 /c
schedule=166577739868193 size=67108864 format=block=1K,frag=512,logsize=704K mount=cache=1M from=Aged setup= tasks=read @0 0 200000 | write @0 0 60000 13; background 40000
",
        200,
    );
}

#[test]
fn reads_keep_nobody_waiting() {
    let config = Config { mount: Options::parse("cache=1M"), ..Config::new(Profile::Sync) };
    arbor_torture::gate::reads_keep_nobody_waiting(&Yfs, &config);
}
