//! Plants each mistake of [`planted`](arbor_dualfs::planted) in turn and lets the crash explorer look for it. Runs with
//! `--features planted` only, see [`arbor_torture::planted`]:
//!
//!     cargo test --release -p arbor-dualfs --features planted --test planted -- --nocapture

use arbor_base::vfs::Options;
use arbor_dualfs::DualFs;
use arbor_dualfs::planted::{Flaw, plant};
use arbor_torture::config::Config;
use arbor_torture::generate::Profile;
use arbor_torture::machine::{Plan, crash};
use arbor_torture::planted::{Planted, explore_volumes, found};

const PLANTED: Planted<Flaw> = Planted {
    engine: &DualFs,
    all: Flaw::ALL,
    plant,
    hidden: &HIDDEN,
    lines: include_str!("planted.txt"),
    note: |_| {},
};

/// They were never found: looked for when they are named. After a power cut the newest checkpoint is always whole, so that the
/// other one, which a segment that is reused early takes from, is not needed. And a block that was kept fails its checksum and is
/// read again, unless it has an older copy of the same inode, which takes a cache that is too small for a volume of tests.
const HIDDEN: [Flaw; 2] = [Flaw::ReusedEarly, Flaw::PrefetchKept];

/// Volumes so small that the log goes round and is cleaned, and those of the usual size. Where blocks move they are freed.
fn volumes(flaw: Option<Flaw>) -> Vec<Config> {
    let mount = match flaw {
        Some(Flaw::FreedAtOnce | Flaw::FreedForgotten) => "modify=relocate",
        _ => "",
    };
    let mut all = Vec::new();
    for profile in [Profile::Churn, Profile::Small, Profile::Dirs, Profile::Sync, Profile::Full, Profile::Big] {
        let small = Options::parse("segment=64K,meta=1M");
        let mount = || Options::parse(mount);
        all.push(Config { device_size: 4 << 20, ops: 200, format: small, mount: mount(), ..Config::crash(profile) });
        all.push(Config { ops: 120, mount: mount(), ..Config::crash(profile) });
    }
    all
}

#[test]
fn every_planted_mistake_is_found() {
    PLANTED.each_is_found(
        |_| true,
        |flaw, time| match flaw {
            // Shows in what follows a power cut.
            Some(Flaw::TailShown) => {
                let none =
                    Plan { singles: 0, pairs: 0, triples: 0, names: 0, long: 0, plain: 0, grow: 0, ..Plan::whole(1) };
                let lives = Plan { time: Some(time), repairs: 0, ..none };
                crash(&DualFs, &lives, &mut |t| found(t) == 0)
            }
            _ => explore_volumes(&DualFs, &volumes(flaw), time),
        },
    );
}
