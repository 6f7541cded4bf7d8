//! Power loss at every write: recovery, the checker and the oracle agree.

use arbor_base::vfs::Engine;
use arbor_torture::config::Config;
use arbor_torture::crash::{self, Explored};
use arbor_torture::generate::Profile;
use arbor_torture::grow::Grow;
use arbor_torture::repair::Repairs;
use arbor_yfs::Yfs;

#[test]
fn power_loss_fsync_heavy() {
    crash::explore(&Yfs, &Config::crash(Profile::Sync));
}

#[test]
fn power_loss_small_files() {
    crash::explore(&Yfs, &Config::crash(Profile::Small));
}

#[test]
fn power_loss_big_files() {
    crash::explore(&Yfs, &Config::crash(Profile::Big));
}

#[test]
fn power_loss_directories() {
    crash::explore(&Yfs, &Config::crash(Profile::Dirs));
}

#[test]
fn power_loss_full_volume() {
    crash::explore(&Yfs, &Config::crash(Profile::Full));
}

fn with(profile: Profile, format: &str, mount: &str) -> Config {
    let format = arbor_base::vfs::Options::parse(format);
    let mount = arbor_base::vfs::Options::parse(mount);
    Config { format, mount, count: 2, ..Config::crash(profile) }
}

#[test]
fn power_loss_in_other_shapes() {
    for (format, mount) in Yfs.shapes() {
        for profile in [Profile::Small, Profile::Big, Profile::Sync] {
            crash::explore(&Yfs, &with(profile, format, mount));
        }
    }
}

#[test]
fn long_sequences_in_other_shapes() {
    for (format, mount) in Yfs.shapes() {
        for profile in [Profile::Small, Profile::Big, Profile::Dirs] {
            eprintln!("{format} {mount} {profile:?}");
            let c = with(profile, format, mount);
            arbor_torture::run::sequences(
                &Yfs,
                &Config { ops: 1500, ..Config { format: c.format, mount: c.mount, count: 2, ..Config::new(profile) } },
            );
        }
    }
}

/// Power loss while a volume grows, and while it recovers from that.
#[test]
fn power_loss_of_a_growing_volume() {
    let (seed, count) = (number("ARBOR_SEED", 1), number("ARBOR_COUNT", 24));
    let grow = Grow::new(&Yfs, count, seed).expect("the volumes");
    let mut done = Explored::default();
    while let Some(step) = grow.step(&mut done) {
        step.unwrap_or_else(|failure| panic!("{failure}"));
    }
    eprintln!("{done:?}");
    assert!(done.distinct > 20 * count && done.recoveries > 2 * count, "{done:?}");
}

/// Power loss while the checker repairs, and while it repairs what that has left.
#[test]
fn power_loss_of_a_repair() {
    let (seed, count) = (number("ARBOR_SEED", 1), number("ARBOR_COUNT", 40));
    let repairs = Repairs::new(&Yfs, count, seed);
    let mut done = Explored::default();
    while let Some(step) = repairs.step(&mut done) {
        step.unwrap_or_else(|failure| panic!("{failure}"));
    }
    eprintln!("{done:?}");
    assert!(done.distinct > 5 * count && done.recoveries > count / 2, "{done:?}");
}

fn number(key: &str, otherwise: u64) -> u64 {
    std::env::var(key).map_or(otherwise, |n| n.parse().expect("a number"))
}

/// The checker gave an inode with a wrong checksum a right one, and so believed a name in it that a torn
/// write had mixed from two.
#[test]
fn names_in_a_torn_inode_are_not_believed() {
    let line = "seed=165458673084801 profile=Sync size=67108864 image=some-4 repair=yes \
                cuts=12:Seeded(950944034) damage=superblock 0+176=00000080 ops=";
    arbor_torture::machine::repeat(&Yfs, line).unwrap_or_else(|e| panic!("{e}"));
}

/// A record bore witness to bytes that were written over before it was written, and to data that it
/// made free again; the last two, all cuts of them, free a part of such data, and all of it twice.
#[test]
fn a_record_bears_witness_to_what_stays() {
    for line in [
        "seed=227918802077908 profile=Small size=67108864 format=block=64K,frag=16K,inode=2K,ag=16M mount=cache=2M \
         cuts=9:AllKept ops=mkdir /d2 448 0; create /d2/f0 420 0; append /d2/f0 77 18; fallocate /d2/f0 17 0 72",
        "seed=9334854331554 profile=Full size=25165824 cuts=8:AllKept ops=mkdir /d0 493 0; mkdir /d1 493 0; \
         create /d0/f6 493 0; link /d0/f6 /d1/a.name.of.middling.length.17; create /d0/a.name.of.middling.length.24 \
         420 7; write /d1/a.name.of.middling.length.17 906749 12 139; fallocate /d1/a.name.of.middling.length.17 3 \
         808853 214275; fsync /d0/a.name.of.middling.length.24 1",
        "seed=1 profile=Sync size=67108864 ops=create /a 420 0; write /a 0 4096 1; create /b 420 0; syncfs; \
         rename /a /b 0; truncate /b 1100; create /g 420 0; write /g 0 4096 3; fsync /g 0",
        "seed=1 profile=Sync size=67108864 ops=create /f 420 0; create /t 420 0; write /t 0 4096 1; rename /t /f 0; \
         create /t 420 0; write /t 0 4096 2; rename /t /f 0; create /g 420 0; fsync /g 0; background 6000; \
         create /h 420 0; write /h 0 8192 4; fsync /h 0; background 6000",
    ] {
        arbor_torture::machine::repeat(&Yfs, line).unwrap_or_else(|e| panic!("{e}"));
    }
}
