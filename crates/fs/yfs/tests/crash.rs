//! Power loss at every write: recovery, the checker and the oracle agree.

use arbor_base::vfs::Engine;
use arbor_torture::config::Config;
use arbor_torture::crash;
use arbor_torture::generate::Profile;
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
