//! The tests of the tests: a correct toy passes, and each flawed one is caught.

mod toy;

use arbor_torture::config::{Config, Failure};
use arbor_torture::generate::Profile;
use arbor_torture::{conformance, crash, run};
use toy::{Flaw, Toy};

#[test]
fn sequences_pass_on_the_sound_toy() {
    for profile in Profile::ALL {
        run::sequences(&Toy(Flaw::None), &Config { count: 2, ..Config::new(profile) });
    }
}

#[test]
fn exploration_passes_on_the_sound_toy() {
    for profile in [Profile::Sync, Profile::Small, Profile::Big, Profile::Dirs] {
        let done = crash::explore(&Toy(Flaw::None), &Config { count: 2, ..Config::crash(profile) });
        assert!(done.states > 100 && done.recoveries > 2, "{done:?}");
    }
}

/// The oracle must not complain of what the contract allows.
#[test]
fn exploration_passes_when_contents_lag() {
    for profile in [Profile::Sync, Profile::Small, Profile::Big] {
        crash::explore(&Toy(Flaw::Lag), &Config { count: 2, ..Config::crash(profile) });
    }
}

#[test]
fn exploration_passes_with_a_further_device() {
    let extra_devices = [("log".to_string(), 1 << 20)].into();
    crash::explore(&Toy(Flaw::None), &Config { count: 1, extra_devices, ..Config::crash(Profile::Sync) });
}

fn sequences_find(flaw: Flaw) -> Box<Failure> {
    let config = Config { count: 20, ops: 300, ..Config::new(Profile::Small) };
    run::try_sequences(&Toy(flaw), &config).expect_err("the flaw was not found")
}

fn walks_find(flaw: Flaw) -> Box<Failure> {
    let config = Config { ops: 2000, ..Config::new(Profile::Dirs) };
    run::try_sequences(&Toy(flaw), &config).expect_err("the flaw was not found")
}

fn exploration_finds(flaw: Flaw) -> Box<Failure> {
    let config = Config { count: 20, ..Config::crash(Profile::Sync) };
    crash::try_explore(&Toy(flaw), &config).expect_err("the flaw was not found")
}

macro_rules! found {
    ($($name:ident: $by:ident($flaw:ident), $most:literal operations, $text:literal;)*) => {
        $(#[test]
        fn $name() {
            let failure = $by(Flaw::$flaw);
            assert!(failure.ops.len() <= $most, "not shrunk: {failure}");
            assert!(failure.message.contains($text), "{failure}");
            assert_eq!(repeats(Flaw::$flaw, &failure), Some(failure.message.clone()), "{failure}");
        })*
    };
}

/// What happens when the line of a failure is followed.
fn repeats(flaw: Flaw, failure: &Failure) -> Option<String> {
    let list = arbor_torture::ops::print(&failure.ops);
    if failure.cuts.is_empty() {
        let config = Config { shrink_runs: 0, ..Config::new(Profile::Small).replaying(&list).unwrap() };
        return run::try_sequences(&Toy(flaw), &config).err().map(|f| f.message);
    }
    let cuts = Some(failure.cuts.clone());
    let config = Config { cuts, ..Config::crash(Profile::Sync).replaying(&list).unwrap() };
    crash::try_explore(&Toy(flaw), &config).err().map(|f| f.message)
}

found! {
    index_cookies_are_found: walks_find(IndexCookies), 12 operations, "walk";
    a_stale_tail_is_found: sequences_find(StaleTail), 6 operations, "";
    a_wrong_errno_is_found: sequences_find(WrongErrno), 6 operations, "should give Err(ENOTEMPTY";
    a_lost_target_is_found: sequences_find(LostTarget), 4 operations, "";
    a_short_write_is_found: sequences_find(ShortWrite), 4 operations, "";
    a_missing_flush_is_found: exploration_finds(NoFlush), 8 operations, "power cut";
    a_missing_sync_is_found: exploration_finds(NoSync), 8 operations, "power cut";
    a_torn_state_is_found: exploration_finds(OneSlot), 8 operations, "power cut";
    a_torn_rename_is_found: exploration_finds(TornRename), 8 operations, "match no prefix";
    foreign_data_is_found: exploration_finds(ForeignData), 14 operations, "the write with tag";
    a_lost_name_is_found: exploration_finds(LostName), 8 operations, "match no prefix";
    lost_data_is_found: exploration_finds(LostData), 8 operations, "could be one of";
    a_fragile_recovery_is_found: exploration_finds(FragileRecovery), 8 operations, "its recovery";
}

#[test]
fn the_sound_toy_conforms() {
    conformance::run(&Toy(Flaw::None));
    conformance::fsync_reaches_flush(&Toy(Flaw::None));
}

#[test]
#[should_panic(expected = "does not reach the device's flush")]
fn an_fsync_without_flush_does_not_conform() {
    conformance::fsync_reaches_flush(&Toy(Flaw::NoFlush));
}

#[test]
#[should_panic(expected = "cookies_survive_deletes_and_creates")]
fn index_cookies_do_not_conform() {
    conformance::run(&Toy(Flaw::IndexCookies));
}

#[test]
fn lists_replay_from_text() {
    let text = "create /a 420 0; write /a 0 5000 1\nfsync /a 0 # durable\n\nmkdir /d 493 0\nrename /d /e 0; syncfs\n";
    crash::regressions(&Toy(Flaw::None), &Config::crash(Profile::Sync), text);
    let lost = std::panic::catch_unwind(|| {
        crash::regressions(&Toy(Flaw::NoSync), &Config::crash(Profile::Sync), text);
    });
    assert!(lost.is_err());
}
