//! Hand-written checks of POSIX, below FUSE: each is a function, and an engine runs all of them by
//! [`run`]. A check works in the root of an empty volume of its own and panics when it fails.
//!
//! Where POSIX leaves a choice, a check takes what Linux does and what its manual pages allow.

mod data;
mod dirs;
mod layers;
mod limits;
mod names;
mod times;
mod wrong;
mod xattr;

use crate::config::{BEGIN, Config};
use crate::generate::Profile;
use crate::run::{check_clean, check_unmounted, guarded, mount};
use arbor_base::device::{CrashChoice, RecordingDevice};
use arbor_base::vfs::{
    Attr, CheckOptions, Clock, CrashPromise, Cx, Engine, Errno, FallocMode, FileSystem, FileType, Ino, ManualClock,
    MountOptions, New, Options, RenameFlags, Repair, Result, SetAttr, Time, TrimRange, mode, with_flags,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A check that needs nothing but a file system.
pub type Check = fn(&dyn FileSystem);
/// A check that moves the clock.
pub type TimeCheck = fn(&dyn FileSystem, &ManualClock);

pub use layers::{LAYERS, layers, layers_survive_cuts, lists_come_in_one_step};
pub use limits::what_a_file_may_have;
pub use times::TIME_CHECKS;

/// All checks that need nothing but a file system, by name.
pub const CHECKS: &[(&str, Check)] = &[
    ("read_and_write_refuse_other_types", wrong::read_and_write),
    ("truncate_refuses_other_types", wrong::truncate),
    ("fallocate_refuses_other_types", wrong::fallocate),
    ("seek_and_copy_refuse_other_types", wrong::seek_and_copy),
    ("readdir_refuses_other_types", wrong::readdir),
    ("readlink_refuses_other_types", wrong::readlink),
    ("a_file_is_no_parent", wrong::file_as_parent),
    ("a_fifo_and_a_link_are_no_parents", wrong::others_as_parent),
    ("absent_names", wrong::absent),
    ("taken_names", wrong::taken),
    ("bad_names", wrong::bad_names),
    ("unknown_inodes", wrong::unknown_inodes),
    ("mknod_refuses_bad_types", wrong::mknod_types),
    ("unlink_of_a_directory", wrong::unlink_dir),
    ("rmdir_of_a_file", wrong::rmdir_file),
    ("a_removed_directory_takes_nothing", wrong::removed_dir),
    ("names_of_255_and_256_bytes", names::lengths),
    ("names_of_any_bytes", names::any_bytes),
    ("lookup_of_dots", names::dots),
    ("every_type_keeps_its_mode", names::types),
    ("owner_and_group_of_new_files", names::owners),
    ("setgid_is_inherited", names::setgid),
    ("setattr_changes_what_it_is_told", names::setattr),
    ("hard_links_share_everything", names::hard_links),
    ("many_hard_links", names::many_links),
    ("link_of_a_directory", names::link_dir),
    ("symlinks_of_all_lengths", names::symlinks),
    ("rename_moves", names::rename_moves),
    ("rename_replaces_a_file", names::rename_replaces),
    ("rename_file_over_directory", names::rename_file_over_dir),
    ("rename_directory_over_file", names::rename_dir_over_file),
    ("rename_over_a_full_directory", names::rename_over_full),
    ("rename_over_an_empty_directory", names::rename_over_empty),
    ("rename_into_itself", names::rename_loop),
    ("rename_onto_its_ancestor", names::rename_ancestor),
    ("rename_of_two_names_of_one_file", names::rename_same_inode),
    ("rename_noreplace", names::rename_noreplace),
    ("rename_exchange", names::rename_exchange),
    ("rename_exchange_of_directories", names::rename_exchange_dirs),
    ("rename_exchange_loop", names::rename_exchange_loop),
    ("rename_bad_flags", names::rename_bad_flags),
    ("rename_whiteout", names::rename_whiteout),
    ("rename_replaces_an_open_file", names::rename_over_open),
    ("link_counts_of_directories", dirs::link_counts),
    ("dotdot_follows_a_move", dirs::dotdot),
    ("readdir_of_an_empty_directory", dirs::empty),
    ("a_removed_directory_has_no_names", dirs::removed),
    ("readdir_stops_when_told", dirs::stops),
    ("readdir_plus_counts_references", dirs::plus),
    ("cookies_survive_deletes_and_creates", dirs::cookies),
    ("cookies_one_entry_at_a_time", dirs::one_at_a_time),
    ("three_thousand_names_come_and_go", dirs::come_and_go),
    ("deep_directories", dirs::deep),
    ("read_and_write_everywhere", data::read_write),
    ("read_past_the_end", data::past_end),
    ("empty_writes", data::empty_write),
    ("holes_read_as_zeros", data::holes),
    ("seek_finds_data_and_holes", data::seek),
    ("seek_past_the_end", data::seek_end),
    ("truncate_cuts_and_extends_with_zeros", data::truncate),
    ("truncate_at_page_bounds", data::truncate_bounds),
    ("fallocate_extends", data::fallocate),
    ("fallocate_keeps_the_size", data::fallocate_keep),
    ("fallocate_punches", data::punch),
    ("fallocate_zeroes", data::zero_range),
    ("fallocate_bad_arguments", data::fallocate_bad),
    ("far_offsets", data::far),
    ("copy_range_copies", data::copy),
    ("copy_range_within_one_file", data::copy_same),
    ("unlinked_files_live_while_in_use", data::open_unlinked),
    ("a_name_can_be_used_again_at_once", data::unlinked_name_again),
    ("files_made_with_their_contents", data::made_whole),
    ("tmpfile_gets_a_name", data::tmpfile),
    ("tmpfile_vanishes", data::tmpfile_vanishes),
    ("blocks_follow_the_data", data::blocks),
    ("statfs_returns_to_what_it_was", data::statfs),
    ("random_overwrites_of_one_file", data::overwrites),
    ("xattr_set_get_remove", xattr::basic),
    ("xattr_create_and_replace", xattr::modes),
    ("xattr_bad_names", xattr::bad_names),
    ("xattr_sizes", xattr::sizes),
    ("xattr_on_every_type", xattr::types),
    ("xattr_many", xattr::many),
    ("xattr_belongs_to_the_inode", xattr::inode),
];

/// Checks of what an engine promises of space: what is given is kept on a full volume, what is free goes back.
pub const SPACE_CHECKS: &[(&str, Check)] = &[
    ("fallocated_space_takes_writes", data::fallocated_space_takes_writes),
    ("fallocated_space_in_many_pieces", data::fallocated_space_in_many_pieces),
    ("fallocated_space_of_many_files", data::fallocated_space_of_many_files),
    ("overwriting_needs_no_space", data::overwriting_needs_no_space),
    ("trim_takes_a_range", data::trim_takes_a_range),
];

/// Runs the checks of space as [`run`] does the others.
pub fn space(engine: &dyn Engine) {
    space_with(engine, &Config::new(Profile::Small));
}

/// As [`space`], with the device size and the options of `config`.
pub fn space_with(engine: &dyn Engine, config: &Config) {
    let all = SPACE_CHECKS.iter().map(|(name, check)| (*name, one(engine, config, |fs, _| check(fs))));
    report(engine, all.collect());
}

fn report(engine: &dyn Engine, all: Vec<(&str, std::result::Result<(), String>)>) {
    let count = all.len();
    let failed: Vec<String> =
        all.into_iter().filter_map(|(name, done)| done.err().map(|e| format!("  {name}: {e}"))).collect();
    assert!(failed.is_empty(), "{}: {} of {count} checks failed:\n{}", engine.name(), failed.len(), failed.join("\n"));
}

/// Runs all checks on `engine`, each on a volume of 64 MiB of its own, which is unmounted, checked
/// and mounted again afterwards; panics with the names and reasons of those that failed.
pub fn run(engine: &dyn Engine) {
    run_with(engine, &Config::new(crate::generate::Profile::Small));
}

/// As [`run`], with the device size and the options of `config`.
pub fn run_with(engine: &dyn Engine, config: &Config) {
    let plain = CHECKS.iter().map(|(name, check)| (*name, one(engine, config, |fs, _| check(fs))));
    let times = TIME_CHECKS.iter().map(|(name, check)| (*name, one(engine, config, |fs, clock| check(fs, clock))));
    report(engine, plain.chain(times).collect());
}

/// Runs one check by its name; for looking into a failure.
pub fn run_one(engine: &dyn Engine, config: &Config, name: &str) -> std::result::Result<(), String> {
    if let Some((_, check)) = CHECKS.iter().chain(SPACE_CHECKS).find(|c| c.0 == name) {
        return one(engine, config, |fs, _| check(fs));
    }
    let check = TIME_CHECKS.iter().find(|c| c.0 == name).ok_or_else(|| format!("no check {name:?}"))?.1;
    one(engine, config, |fs, clock| check(fs, clock))
}

fn one(
    engine: &dyn Engine,
    config: &Config,
    check: impl FnOnce(&dyn FileSystem, &ManualClock),
) -> std::result::Result<(), String> {
    guarded(|| {
        let open = crate::run::opener(config, config.memory());
        engine.format(open(), &config.format_options()).map_err(|e| format!("format: {e}"))?;
        let clock = Arc::new(ManualClock::new(BEGIN));
        // The checks hold with flags on top as well, and some ask for them.
        let fs = with_flags(mount(engine, config, open(), &clock)?);
        check(&*fs, &clock);
        let before = crate::compare::observe(&*fs)?;
        fs.unmount().map_err(|e| format!("unmount: {e}"))?;
        drop(fs);
        check_unmounted(engine, &open)?;
        let fs = with_flags(mount(engine, config, open(), &clock)?);
        let after = crate::compare::observe(&*fs)?;
        after.difference(&before).map_or(Ok(()), |d| Err(format!("after unmount and mount: {d}")))
    })
}

/// Checks that fsync, fsync of a directory, fdatasync, syncfs and unmount reach the flush of the
/// device after their last write; panics if one does not.
pub fn fsync_reaches_flush(engine: &dyn Engine) {
    fsync_reaches_flush_with(engine, &Config::new(crate::generate::Profile::Small));
}

/// As [`fsync_reaches_flush`], with the devices and the options of `config`.
pub fn fsync_reaches_flush_with(engine: &dyn Engine, config: &Config) {
    let memory = config.memory();
    engine.format(config.devices(&memory), &config.format_options()).expect("format");
    let device = RecordingDevice::new(memory);
    let clock = Arc::new(ManualClock::new(BEGIN));
    let fs = mount(engine, config, config.devices(&device), &clock).expect("mount");
    let file = create(&*fs, fs.root(), "file");
    let covered = |what: &str, before: usize| {
        let end = device.events();
        assert!(device.durable_at(end) > before, "{what} does not reach the device's flush");
        assert_eq!(device.pending_at(end), 0, "{what} leaves writes that no flush covers");
    };
    for (what, data_only) in [("fsync", false), ("fdatasync", true)] {
        let before = device.events();
        write(&*fs, file, 0, &crate::rng::pattern(before as u64, 0, 10_000));
        fs.fsync(file, data_only).expect(what);
        covered(what, before);
    }
    let before = device.events();
    create(&*fs, fs.root(), "another");
    fs.fsync(fs.root(), false).expect("fsync of a directory");
    covered("fsync of a directory", before);
    let before = device.events();
    create(&*fs, fs.root(), "a third");
    fs.syncfs().expect("syncfs");
    covered("syncfs", before);
    let before = device.events();
    create(&*fs, fs.root(), "a fourth");
    fs.unmount().expect("unmount");
    covered("unmount", before);
}

/// Checks whether an fsync of a file, or of a directory, makes durable what was written to another file before, as
/// `takes_it` says; panics if it is otherwise.
pub fn fsync_and_other_files(engine: &dyn Engine, config: &Config, takes_it: bool) {
    let bytes = crate::rng::pattern(7, 0, 200_000);
    for of_directory in [false, true] {
        let memory = config.memory();
        engine.format(config.devices(&memory), &config.format_options()).expect("format");
        let device = RecordingDevice::new(memory);
        let clock = Arc::new(ManualClock::new(BEGIN));
        let fs = mount(engine, config, config.devices(&device), &clock).expect("mount");
        let (other, file) = (create(&*fs, fs.root(), "other"), create(&*fs, fs.root(), "file"));
        fs.syncfs().expect("syncfs");
        write(&*fs, other, 0, &bytes);
        write(&*fs, file, 0, b"contents");
        fs.fsync(if of_directory { fs.root() } else { file }, false).expect("fsync");
        let crashed = device.crash_state(device.events(), &CrashChoice::NoneKept);
        let fs = mount(engine, config, config.devices(&crashed), &clock).expect("mount after the power cut");
        let there = |name: &str| read(&*fs, find(&*fs, fs.root(), name).expect(name), 0, 300_000);
        let told = format!("{}, {}, of a directory: {of_directory}", engine.name(), config.mount);
        assert_eq!(there("other") == bytes, takes_it, "{told}: another file's data");
        assert!(of_directory || there("file") == b"contents", "{told}: its own");
    }
}

/// Checks that what has no place yet is counted, that attributes which are said to be settled stay, and that after a syncfs
/// all are those that a remount shows; panics if not. A volume that is mounted for reading only trims nothing.
pub fn attributes_settle(engine: &dyn Engine) {
    for (format, mount_options) in engine.test_configurations() {
        let (format, mount_options) = (Options::parse(format), Options::parse(mount_options));
        let config = Config { format, mount: mount_options, ..Config::new(Profile::Small) };
        let memory = config.memory();
        engine.format(config.devices(&memory), &config.format_options()).expect("format");
        let clock = Arc::new(ManualClock::new(BEGIN));
        let fs = mount(engine, &config, config.devices(&memory), &clock).expect("mount");
        let files = [1usize, 60, 600, 5000, 20_000, 70_000, 1 << 20].map(|len| {
            let file = create(&*fs, fs.root(), &format!("{len}"));
            write(&*fs, file, 0, &crate::rng::pattern(7, 0, len));
            write(&*fs, file, (len / 2) as u64, b"again");
            file
        });
        fs.fallocate(files[2], FallocMode::empty(), 0, 50_000).expect("fallocate");
        truncate_to(&*fs, files[5], 30_001).expect("truncate");
        let told = format!("{}, {}, {}", engine.name(), config.format, config.mount);
        let before = files.map(|file| attr(&*fs, file));
        for a in &before {
            assert!(a.blocks * 512 >= a.size, "{told}: not all that is written is counted: {a:?}");
        }
        fs.syncfs().expect("syncfs");
        let after = files.map(|file| attr(&*fs, file));
        for (before, after) in before.iter().zip(&after) {
            assert!(!after.unsettled, "{told}: not settled by syncfs: {after:?}");
            assert!(before.unsettled || before == after, "{told}: {before:?} was settled, and is {after:?}");
        }
        fs.unmount().expect("unmount");
        let options = MountOptions { read_only: true, ..config.mount_options() };
        let fs = engine.mount(config.devices(&memory), &options, clock.clone()).expect("mount for reading");
        for after in after {
            let name = after.size.to_string();
            let found = fs.lookup(fs.root(), name.as_bytes()).or_else(|_| fs.getattr(after.ino)).expect("lookup");
            assert_eq!(found, after, "{told}: after a remount");
        }
        let refused = fs.trim(&TrimRange::ALL).expect_err("a trim of what is read only");
        assert_eq!(refused.errno(), Errno::EROFS, "{told}");
    }
}

/// Checks that what nobody has synced is on disk `ms` after it was changed, if background work is done when it is
/// asked for and not before; panics if it is not.
pub fn write_back_by_age(engine: &dyn Engine, config: &Config, ms: u64) {
    for quiet in [0, 10_000, 45_000] {
        let memory = config.memory();
        engine.format(config.devices(&memory), &config.format_options()).expect("format");
        let device = RecordingDevice::new(memory);
        let clock = Arc::new(ManualClock::new(BEGIN));
        let fs = mount(engine, config, config.devices(&device), &clock).expect("mount");
        let next = work_until(&*fs, &clock, BEGIN, BEGIN.plus_ms(quiet));
        let (mut dir, bytes) = (fs.root(), crate::rng::pattern(7, 0, 100_000));
        for depth in 0..5 {
            write(&*fs, create(&*fs, dir, "file"), 0, &bytes);
            write(&*fs, create(&*fs, dir, "large"), 0, &bytes.repeat(10));
            dir = mkdir(&*fs, dir, &format!("d{depth}"));
        }
        work_until(&*fs, &clock, next, BEGIN.plus_ms(quiet + ms));
        // Without any order nothing is flushed either.
        let ordered = engine.crash_promise(&config.mount) != CrashPromise::Repairable;
        let kept = if ordered { CrashChoice::NoneKept } else { CrashChoice::AllKept };
        let crashed = device.crash_state(device.events(), &kept);
        let options = CheckOptions { repair: Repair::Yes, force: true };
        engine.check(config.devices(&crashed), &options, &mut |_, _, _| ()).expect("check");
        let fs = mount(engine, config, config.devices(&crashed), &clock).expect("mount after the power cut");
        let mut dir = fs.root();
        for depth in 0..5 {
            let there = |name: &str| find(&*fs, dir, name).unwrap_or_else(|| panic!("{name} in depth {depth}: lost"));
            let file = there("file");
            assert!(read(&*fs, file, 0, 200_000) == bytes, "the file in depth {depth} after {quiet} ms has lost bytes");
            dir = there(&format!("d{depth}"));
        }
    }
}

/// Checks that a volume which is made where another one was, with the same UUID, at the same time and with the same
/// first changes, has nothing of that one after a power cut; panics if it has.
pub fn older_volume_is_gone(engine: &dyn Engine) {
    const ALL: usize = 12;
    for (format, mount_options) in engine.test_configurations() {
        let (format, mount_options) = (Options::parse(format), Options::parse(mount_options));
        let config = Config { format, mount: mount_options, ..Config::crash(Profile::Churn) };
        let memory = config.memory();
        let make = |files: usize| {
            engine.format(config.devices(&memory), &config.format_options()).expect("format");
            let clock = Arc::new(ManualClock::new(BEGIN));
            let fs = mount(engine, &config, config.devices(&memory), &clock).expect("mount");
            for n in 0..files {
                write(&*fs, create(&*fs, fs.root(), &format!("file {n}")), 0, &crate::rng::pattern(n as u64, 0, 5000));
                fs.syncfs().expect("syncfs");
            }
            fs
        };
        for files in 0..ALL {
            drop(make(ALL).unmount());
            let fs = make(files);
            let cut = memory.snapshot();
            drop(fs);
            let options = CheckOptions { repair: Repair::Yes, force: true };
            let report = engine.check(config.devices(&cut), &options, &mut |_, _, _| ()).expect("check");
            let clock = Arc::new(ManualClock::new(BEGIN));
            let fs = mount(engine, &config, config.devices(&cut), &clock).expect("mount after the power cut");
            let there = (0..ALL).filter(|n| find(&*fs, fs.root(), &format!("file {n}")).is_some());
            let found: Vec<usize> = there.collect();
            let (name, expected) = (engine.name(), (0..files).collect::<Vec<_>>());
            assert_eq!(found, expected, "{name}, {}, {}: {:?}", config.format, config.mount, report.issues);
            assert_eq!(report.issues, vec![], "{name}, {}, {}", config.format, config.mount);
        }
    }
}

/// Checks that a directory with as many subdirectories as there may be gets no more, by no call; panics if it does.
pub fn subdirectories_are_limited(engine: &dyn Engine) {
    const MOST: u32 = 64_998;
    let config = Config { device_size: 4 << 30, ..Config::new(Profile::Small) };
    let memory = config.memory();
    engine.format(config.devices(&memory), &config.format_options()).expect("format");
    let fs = mount(engine, &config, config.devices(&memory), &Arc::new(ManualClock::new(BEGIN))).expect("mount");
    let (full, other) = (mkdir(&*fs, fs.root(), "full"), mkdir(&*fs, fs.root(), "other"));
    for n in 0..MOST {
        let ino = mkdir(&*fs, full, &n.to_string());
        fs.forget(ino, 1);
    }
    for (dir, name) in [(full, "file"), (other, "file")] {
        let ino = create(&*fs, dir, name);
        fs.forget(ino, 1);
    }
    mkdir(&*fs, other, "dir");
    let errno = |r: Result<()>| r.expect_err("one directory more than there may be").errno();
    assert_eq!(errno(fs.mkdir(&CX, full, b"more", 0o755).map(drop)), Errno::EMLINK);
    assert_eq!(errno(fs.mkdir(&CX, full, b"7", 0o755).map(drop)), Errno::EEXIST, "a name that is there comes first");
    assert_eq!(errno(rename(&*fs, (other, "dir"), (full, "dir"), NONE)), Errno::EMLINK);
    assert_eq!(errno(rename(&*fs, (other, "dir"), (full, "file"), RenameFlags::EXCHANGE)), Errno::EMLINK);
    assert_eq!(errno(rename(&*fs, (full, "file"), (other, "dir"), RenameFlags::EXCHANGE)), Errno::EMLINK);
    for (name, with) in [("dir", "7"), ("file", "file"), ("file", "8")] {
        rename(&*fs, (other, name), (full, with), RenameFlags::EXCHANGE).expect("as many as before, or fewer");
    }
    assert_eq!(attr(&*fs, full).nlink, MOST - 1 + 2);
    fs.unmount().expect("unmount");
    check_clean(engine, config.devices(&memory), Repair::No).expect("a clean volume");
}

/// A clock that does something when it is asked for the time for the `n`-th time, as another thread would between two
/// steps of a call.
struct Meddler {
    clock: ManualClock,
    left: AtomicU64,
    deed: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Clock for Meddler {
    fn now(&self) -> Time {
        if self.left.fetch_sub(1, Relaxed) == 1 {
            let deed = self.deed.lock().expect("the clock's lock").take();
            deed.into_iter().for_each(|deed| deed());
        }
        self.clock.now()
    }
}

/// What another caller does to a file of [`LEN`] bytes while space for it is asked for in vain; returns how long the file
/// has to be then.
type Deed = fn(&dyn FileSystem, Ino, u64) -> u64;

const LEN: u64 = 10_000;

const DEEDS: [(&str, Deed); 5] = [
    ("a write after the end", |fs, file, _| {
        let size = attr(fs, file).size;
        fs.write(file, size, &[0xaa; 100]).map_or(LEN, |n| size + n as u64)
    }),
    ("a write before the end", |fs, file, _| {
        let size = attr(fs, file).size;
        write(fs, file, size - 100, &[0xaa; 100]);
        size
    }),
    ("a write at the start", |fs, file, _| {
        write(fs, file, 0, &[0xaa; 100]);
        LEN
    }),
    ("a truncation", |fs, file, _| {
        truncate_to(fs, file, 100).expect("truncate");
        100
    }),
    ("another fallocate", |fs, file, much| {
        fs.fallocate(file, FallocMode::empty(), 0, much).expect_err("more than there is");
        LEN
    }),
];

/// Checks that a fallocate which finds no space leaves what others write into the file meanwhile, and nothing of its own;
/// panics if not. For engines that ask for the time before they take a lock.
pub fn fallocate_and_others(engine: &dyn Engine) {
    for (format, mount_options) in engine.test_configurations() {
        let (format, mount_options) = (Options::parse(format), Options::parse(mount_options));
        let config = Config { format, mount: mount_options, ..Config::crash(Profile::Churn) };
        for (moment, (what, deed)) in [2, 3, 4, 5, 9, 30].into_iter().flat_map(|n| DEEDS.map(|d| (n, d))) {
            let memory = config.memory();
            engine.format(config.devices(&memory), &config.format_options()).expect("format");
            let clock = Meddler { clock: ManualClock::new(BEGIN), left: AtomicU64::new(0), deed: Mutex::default() };
            let clock = Arc::new(clock);
            let fs = engine.mount(config.devices(&memory), &config.mount_options(), clock.clone()).expect("mount");
            let (file, bytes) = (create(&*fs, fs.root(), "file"), crate::rng::pattern(7, 0, LEN as usize));
            write(&*fs, file, 0, &bytes);
            let free = fs.statfs().expect("statfs");
            let much = (free.bfree + 1) * u64::from(free.frsize) * 2;
            let falloc = || fs.fallocate(file, FallocMode::empty(), 0, much).expect_err("more than there is").errno();
            assert_eq!((falloc(), attr(&*fs, file).size), (Errno::ENOSPC, LEN), "{}: not undone", engine.name());
            let (other, end) = (fs.clone(), Arc::new(AtomicU64::new(0)));
            let report = end.clone();
            *clock.deed.lock().expect("the clock's lock") =
                Some(Box::new(move || report.store(deed(&*other, file, much), Relaxed)));
            clock.left.store(moment, Relaxed);
            assert_eq!(falloc(), Errno::ENOSPC);
            let (end, told) = (end.load(Relaxed), format!("{}, {what} at moment {moment}", engine.name()));
            assert!(end > 0 || moment > 5, "{told}: never done");
            if end > 0 {
                assert_eq!(attr(&*fs, file).size, end, "{told}: the size");
                if what.contains("end") && end > LEN {
                    assert!(read(&*fs, file, end - 100, 100) == [0xaa; 100], "{told}: lost");
                }
                assert!(read(&*fs, file, 100, 9000) == bytes[100..9100.min(end as usize)], "{told}: what was there");
            }
            fs.unmount().expect("unmount");
            check_clean(engine, config.devices(&memory), Repair::No).expect("a clean volume");
        }
    }
}

/// Does background work when it is asked for, first at `next`, until `end`; returns when it is wanted after that.
fn work_until(fs: &dyn FileSystem, clock: &ManualClock, mut next: Time, end: Time) -> Time {
    while next <= end {
        clock.advance_ms(clock.now().ms_until(next));
        let then = fs.background(next);
        assert!(then > next, "background work that never ends");
        next = then;
    }
    clock.advance_ms(clock.now().ms_until(end));
    next
}

/// The caller of most checks.
const CX: Cx = Cx { uid: 0, gid: 0 };
const NONE: RenameFlags = RenameFlags::empty();

/// Makes a file and keeps the reference.
fn create(fs: &dyn FileSystem, dir: Ino, name: &str) -> Ino {
    fs.mknod(&CX, dir, name.as_bytes(), mode::IFREG | 0o644, 0).unwrap_or_else(|e| panic!("create {name}: {e}")).ino
}

/// Makes a directory and keeps the reference.
fn mkdir(fs: &dyn FileSystem, dir: Ino, name: &str) -> Ino {
    fs.mkdir(&CX, dir, name.as_bytes(), 0o755).unwrap_or_else(|e| panic!("mkdir {name}: {e}")).ino
}

fn write(fs: &dyn FileSystem, ino: Ino, offset: u64, bytes: &[u8]) {
    let n = fs.write(ino, offset, bytes).unwrap_or_else(|e| panic!("write of {} at {offset}: {e}", bytes.len()));
    assert_eq!(n, bytes.len(), "short write at {offset}");
}

fn read(fs: &dyn FileSystem, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    let n = fs.read(ino, offset, &mut buf).unwrap_or_else(|e| panic!("read at {offset}: {e}"));
    buf.truncate(n);
    buf
}

fn attr(fs: &dyn FileSystem, ino: Ino) -> Attr {
    fs.getattr(ino).expect("getattr")
}

fn truncate_to(fs: &dyn FileSystem, ino: Ino, size: u64) -> Result<Attr> {
    fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() })
}

fn find(fs: &dyn FileSystem, dir: Ino, name: &str) -> Option<Ino> {
    match fs.lookup(dir, name.as_bytes()) {
        Ok(entry) => {
            fs.forget(entry.ino, 1);
            Some(entry.ino)
        }
        Err(e) => {
            assert_eq!(e.errno(), Errno::ENOENT, "lookup of {name}");
            None
        }
    }
}

fn rename(fs: &dyn FileSystem, from: (Ino, &str), to: (Ino, &str), flags: RenameFlags) -> Result<()> {
    fs.rename(&CX, from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), flags)
}

/// All names but the dots, with types, in the order of the directory.
fn list(fs: &dyn FileSystem, dir: Ino) -> Vec<(String, FileType)> {
    let mut names = Vec::new();
    fs.readdir(dir, 0, &mut |e| {
        names.push((String::from_utf8_lossy(e.name).into_owned(), e.file_type));
        true
    })
    .expect("readdir");
    names.retain(|n| n.0 != "." && n.0 != "..");
    names
}

/// The call must fail with one of these.
#[track_caller]
fn fails<T: std::fmt::Debug>(what: &str, done: Result<T>, with: &[Errno]) {
    match done {
        Err(e) if with.contains(&e.errno()) => {}
        Err(e) => panic!("{what}: gives {:?}, should give {with:?}", e.errno()),
        Ok(v) => panic!("{what}: gives {v:?}, should fail with {with:?}"),
    }
}

/// A directory with one of each type: file, directory, link, fifo.
struct Zoo {
    dir: Ino,
    file: Ino,
    sub: Ino,
    link: Ino,
    fifo: Ino,
}

impl Zoo {
    fn new(fs: &dyn FileSystem) -> Zoo {
        let dir = mkdir(fs, fs.root(), "zoo");
        let file = create(fs, dir, "file");
        let sub = mkdir(fs, dir, "sub");
        let link = fs.symlink(&CX, dir, b"link", b"target").expect("symlink").ino;
        let fifo = fs.mknod(&CX, dir, b"fifo", mode::IFIFO | 0o644, 0).expect("mknod").ino;
        Zoo { dir, file, sub, link, fifo }
    }

    fn all(&self) -> [Ino; 4] {
        [self.file, self.sub, self.link, self.fifo]
    }
}
