//! Gathering: while a volume is idle, units most of which is free become free as a whole; files stay as they are.

mod gather_kit;

use arbor_base::vfs::*;
use arbor_evergreen::Evergreen;
use arbor_torture::damage::{self, codes};
use gather_kit::*;

#[test]
fn what_is_free_becomes_whole_and_files_stay() {
    let (dev, fs) = scattered(2500, UNITS);
    let (before, tree) = (whole(&dev), damage::tree_in(&*fs));
    idle(&*fs, 10, 60);
    let moved = counter(&*fs, "gathered");
    fs.syncfs().expect("syncfs");
    let after = whole(&dev);
    assert!(moved > 100 && after > before + 50, "{moved} moved, {before} whole units, then {after}");
    assert_eq!(damage::tree_in(&*fs), tree);
    // Then there is nothing worth while, until something changes.
    assert!(idle(&*fs, 1000, 60) < 20 && counter(&*fs, "gathered") == moved);
    fs.unmount().expect("unmount");
    assert!(codes(&damage::check(&Evergreen, dev.clone(), Repair::No)).is_empty());
    assert_eq!(damage::tree(&Evergreen, &dev), tree);
}

#[test]
fn nothing_moves_unless_it_is_idle() {
    let (_, fs) = scattered(2500, UNITS);
    let made = make(&*fs, "busy");
    for n in 0..100 {
        fs.write(made, 0, &[n; 10]).expect("write");
        fs.background(Time { nanos: u32::from(n) * 9_000_000, ..at(0) });
    }
    assert_eq!(counter(&*fs, "gathered"), 0);
}

#[test]
fn it_can_be_switched_off_and_asked_for() {
    let (dev, fs) = scattered(2500, &format!("{UNITS},gather=off"));
    let before = whole(&dev);
    idle(&*fs, 10, 60);
    assert_eq!(counter(&*fs, "gathered"), 0);
    let mut moved = 0;
    for _ in 0..1000 {
        let done = fs.clean(1 << 20).expect("clean");
        moved += done.moved_bytes;
        if !done.more {
            break;
        }
    }
    assert!(moved > 100 << 12 && !fs.clean(1 << 20).expect("clean").more);
    assert!(whole(&dev) > before + 50);
}

/// Idle time makes no commits that would take the place of those that are retained.
#[test]
fn commits_that_are_retained_are_not_pushed_out() {
    let (_, fs) = scattered(2500, &format!("{UNITS},retain=3"));
    let commits = counter(&*fs, "commits");
    idle(&*fs, 10, 60);
    assert_eq!((counter(&*fs, "gathered"), counter(&*fs, "commits")), (0, commits));
}

/// As on a disk, without options: a unit is 4 MiB, of which one with less than half in use is emptied.
#[test]
fn the_usual_mount_gathers_too() {
    let (dev, fs) = scattered(2500, "");
    let tree = damage::tree_in(&*fs);
    idle(&*fs, 10, 60);
    assert!(counter(&*fs, "gathered") > 0);
    fs.unmount().expect("unmount");
    assert_eq!(damage::tree(&Evergreen, &dev), tree);
}

/// The whole volume is looked at by steps: none is longer for all its files.
#[test]
fn a_step_is_short() {
    let (_, fs) = scattered(2500, UNITS);
    let (mut now, mut most) = (at(10), 0);
    while now < at(40) {
        let before = counter(&*fs, "gathered");
        now = fs.background(now);
        most = most.max(counter(&*fs, "gathered") - before);
    }
    assert!(most > 0 && most <= 64 + 32, "{most} blocks moved in a step");
}
