//! The tests of the tests: a correct toy passes, and each flawed one is caught.

mod toy;

use arbor_torture::config::{Config, Failure};
use arbor_torture::faults::Sequences;
use arbor_torture::generate::Profile;
use arbor_torture::machine::Plan;
use arbor_torture::planted::Planted;
use arbor_torture::tally::Tally;
use arbor_torture::{conformance, crash, faults, line, machine, run};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use toy::{Flaw, Toy};

#[test]
fn sequences_pass_on_the_sound_toy() {
    for profile in Profile::ALL {
        run::sequences(&Toy(Flaw::None), &Config { count: 2, keeps_space: false, ..Config::new(profile) });
    }
}

/// The toy keeps no space for anybody.
#[test]
#[should_panic(expected = "ENOSPC from a write where the file has been given space")]
fn sequences_find_a_write_without_the_space_it_was_given() {
    run::sequences(&Toy(Flaw::None), &Config { count: 20, shrink_runs: 0, ..Config::new(Profile::Full) });
}

fn exploration_passes(flaw: Flaw) {
    for profile in [Profile::Sync, Profile::Small, Profile::Big, Profile::Dirs] {
        let done = crash::explore(&Toy(flaw), &Config { count: 2, ..Config::crash(profile) });
        assert!(done.states > 100 && done.recoveries > 2, "{done:?}");
    }
}

#[test]
fn exploration_passes_on_the_sound_toy() {
    exploration_passes(Flaw::None);
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
            let again = machine::repeat(&Toy(Flaw::$flaw), &failure.line()).expect_err("the line repeats it");
            assert!(again.contains(&failure.message), "{failure}\n{again}");
        })*
    };
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

/// Lists after a power cut, under power cuts, and nothing else.
fn lives_of(flaw: Flaw, lives: u64) -> Tally {
    let none =
        Plan { singles: 0, pairs: 0, triples: 0, names: 0, long: 0, plain: 0, grow: 0, repairs: 0, ..Plan::whole(1) };
    machine::crash(&Toy(flaw), &Plan { lives, ..none }, &mut |t| t.failures.is_empty())
}

#[test]
fn lives_pass_on_the_sound_toy() {
    let tally = lives_of(Flaw::None, 60);
    assert!(tally.failures.is_empty() && tally.distinct_states > 500, "{tally:?}");
}

/// What shares run one after the other adds up to the whole.
#[test]
fn shares_add_up_to_the_whole() {
    let few = Plan { singles: 0, pairs: 30, triples: 20, names: 10, long: 3, plain: 1, lives: 12, ..Plan::whole(1) };
    let plan = Plan { grow: 0, repairs: 0, ..few };
    let run = |plan| machine::crash(&Toy(Flaw::None), &plan, &mut |_| true);
    let whole = run(plan);
    let mut sum = Tally::default();
    for share in ["1/3", "2/3", "3/3"] {
        let part = run(Plan { share: share.parse().expect("a share"), ..plan });
        assert!(part.sequences * 2 < whole.sequences && part.failures.is_empty(), "{share}: {part:?} of {whole:?}");
        sum.add(part);
    }
    assert_eq!(sum.sequences, whole.sequences);
}

#[test]
fn what_shows_after_a_second_cut_only_is_found() {
    exploration_passes(Flaw::RecoveredSlot);
    let tally = lives_of(Flaw::RecoveredSlot, 300);
    let failure = tally.failures.first().expect("the flaw was not found");
    let (_, line) = failure.split_once("--repeat '").expect("a line to repeat it");
    let again = machine::repeat(&Toy(Flaw::RecoveredSlot), line.trim_end_matches('\'')).expect_err("it repeats");
    assert!(again.contains("power cut after event"), "{again}");
}

#[test]
fn the_sound_toy_conforms() {
    conformance::run(&Toy(Flaw::None));
    conformance::fsync_reaches_flush(&Toy(Flaw::None));
}

/// The toy keeps no space for anybody, and trims nothing.
#[test]
#[should_panic(expected = "toy: 5 of 5 checks failed")]
fn an_engine_that_forgets_what_it_gave_is_found() {
    conformance::space(&Toy(Flaw::None));
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

/// Honest faults: the toy cannot tell a slot with a flipped bit from one that a power cut tore.
fn faults_of(flaw: Flaw, count: u64) -> Tally {
    let (toy, mut tally) = (Toy(flaw), Tally::default());
    let sequences = Sequences::new(&toy, 1, count).without_lies();
    while tally.failures.is_empty() && sequences.step(&mut tally, &AtomicBool::new(false)) {}
    tally
}

#[test]
fn faults_pass_on_the_sound_toy() {
    for flaw in [Flaw::None, Flaw::Lag] {
        let tally = faults_of(flaw, 400);
        assert_eq!(tally.failures, [""; 0], "{flaw:?}");
        assert!(tally.faults >= 400, "{tally:?}");
    }
}

fn faults_find(flaw: Flaw, text: &str) {
    let tally = faults_of(flaw, 4000);
    let [failure] = &tally.failures[..] else { panic!("{flaw:?} was not found: {tally:?}") };
    assert!(failure.contains(text), "{failure}");
    let line = failure.split('\'').nth(1).unwrap();
    let operations = line.split_once("ops=").unwrap().1.split(';').count();
    assert!(operations <= 6, "not shrunk: {failure}");
    let again = faults::repeat(&Toy(flaw), line).expect_err("the line repeats it");
    assert!(failure.contains(&again), "{again}");
    assert_eq!(faults::repeat(&Toy(Flaw::None), line), Ok(()));
}

#[test]
fn a_forgotten_error_is_found() {
    faults_find(Flaw::ForgetfulSync, "Write");
}

#[test]
fn a_page_that_is_clean_after_an_error_is_found() {
    faults_find(Flaw::CleanAfterError, "Write");
}

#[test]
fn an_ignored_flush_error_is_found() {
    faults_find(Flaw::FlushErrorIgnored, "Forgotten");
}

#[test]
fn an_ignored_write_error_is_found() {
    faults_find(Flaw::WriteErrorIgnored, "Write");
}

#[test]
fn faults_are_written_and_read() {
    let line = "profile=Big size=4096 format=frag=2K extra=log:512 fault=Flush:7:FromThenOn:Forgotten(9) end=Unmount again=Read:2 ops=syncfs";
    assert_eq!(line.parse::<faults::Case>().unwrap().to_string(), line);
    for (head, why) in [
        ("fault=Flush:x:Once:Error", "fault: \"x\" is no number"),
        ("fault=Flush:1:Once", "fault: \"Flush:1:Once\" is not OPERATION:NUMBER:TIMES:FAULT"),
        ("fault=Flash:1:Once:Error", "fault: \"Flash\" is none of Read, Write, Discard, Flush, SetSize"),
        ("end=Unmount", "the line has no fault="),
        ("seed=1", "unknown key \"seed\""),
    ] {
        assert_eq!(format!("{head} ops=").parse::<faults::Case>().map(drop), Err(why.to_string()));
    }
}

#[test]
fn each_kind_of_line_knows_its_keys() {
    let refused = |line: &str| line::repeat(&Toy(Flaw::None), line).expect_err(line);
    let kinds = refused("foo");
    for key in ["ops=", "fault=", "grow=", "damage=", "changes=", "schedule="] {
        assert!(kinds.contains(key), "{kinds}");
    }
    for line in [
        "seed=1 end=Cut ops=syncfs",
        "grow=99 extra=log:512 ops=syncfs",
        "repair=yes from=Aged damage=",
        "fault=Flush:1:Once:Error seed=1 ops=syncfs",
        "schedule=1 profile=Sync setup= tasks=syncfs",
        "seed=1 changes=",
    ] {
        assert!(refused(line).starts_with("unknown key "), "{line}: {}", refused(line));
    }
    assert_eq!(line::repeat(&Toy(Flaw::None), "seed=1 profile=Sync size=16777216 ops=syncfs"), Ok(Ok(())));
}

/// Mistakes that nothing plants.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    Seen,
    Unseen,
    Slow,
}

const MISTAKES: Planted<Mistake> = Planted {
    engine: &Toy(Flaw::None),
    all: &[(Mistake::Seen, " A."), (Mistake::Unseen, " B."), (Mistake::Slow, " C.")],
    plant: |_| {},
    hidden: &[Mistake::Slow],
    lines: "",
    note: |_| {},
};

fn finds(what: Mistake) -> impl Fn(Option<Mistake>, Duration) -> Tally {
    move |flaw, _| Tally { failed_states: u64::from(flaw == Some(what)), distinct_states: 7, ..Tally::default() }
}

/// What the search for mistakes says of itself.
fn said(search: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(search)).expect_err("a miss");
    panic.downcast_ref::<String>().cloned().expect("a text")
}

#[test]
fn a_planted_mistake_that_is_not_found_fails() {
    MISTAKES.each_is_found(|m| m == Mistake::Seen, finds(Mistake::Seen));
    let missed = said(|| MISTAKES.each_is_found(|_| true, finds(Mistake::Seen)));
    assert!(missed.contains("[\"Unseen\"]"), "{missed}");
    let everywhere =
        said(|| MISTAKES.each_is_found(|m| m == Mistake::Seen, |_, t| finds(Mistake::Seen)(Some(Mistake::Seen), t)));
    assert!(everywhere.contains("[\"none\"]"), "{everywhere}");
}

/// A line that shows a mistake spares the search for it, and one that fails without a mistake shows nothing.
#[test]
fn planted_mistakes_are_looked_for_with_their_lines_first() {
    let line = exploration_finds(Flaw::NoFlush).line();
    let lines: &'static str = format!("Seen: {line}\nSlow: {line}").leak();
    let flawed = Planted { engine: &Toy(Flaw::NoFlush), lines, ..MISTAKES };
    let found = said(|| flawed.each_is_found(|m| m != Mistake::Unseen, |flaw, _| panic!("looked for {flaw:?}")));
    assert!(found.contains("[\"none\"]"), "{found}");
    let sound = Planted { lines, ..MISTAKES };
    let missed = said(|| sound.each_is_found(|m| m != Mistake::Unseen, finds(Mistake::Seen)));
    assert!(
        missed.contains("[\"Slow\"]"),
        "the line says nothing any more, and it is not looked for at random: {missed}"
    );
    for (lines, why) in [("Sean: ops=", "no such mistake"), ("Seen: seed", "is no line")] {
        let wrong = said(|| Planted { lines, ..MISTAKES }.each_is_found(|_| true, finds(Mistake::Seen)));
        assert!(wrong.contains(why), "{wrong}");
    }
}

#[test]
fn hidden_mistakes_are_looked_for_when_they_are_named() {
    let asked = |only, here: fn(Mistake) -> bool| {
        let asked = MISTAKES.asked(only, here).into_iter();
        asked.map(|f| f.0.map_or_else(|| "none".to_string(), |m| format!("{m:?}"))).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(asked(None, |_| true), "none Seen Unseen");
    assert_eq!(asked(Some("Slow"), |_| true), "Slow");
    assert_eq!(asked(Some("none"), |_| true), "none");
    assert_eq!(asked(Some("Seen"), |mistake| mistake == Mistake::Slow), "");
    let unknown = said(|| drop(MISTAKES.asked(Some("Sean"), |_| true)));
    assert!(unknown.ends_with("known: none, Seen, Unseen, Slow"), "{unknown}");
}
