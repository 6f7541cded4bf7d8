//! Damaged images with checksums that fit: each is mounted, used, checked and repaired.
//!
//! `ARBOR_COUNT` and `ARBOR_SEED` say how many mutants and which.

use arbor_torture::mutate::{self, Image, Limits};
use arbor_yfs::Yfs;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Instant;

thread_local! {
    /// Bytes that this thread holds, and the most since the meter was read. What another thread
    /// frees makes no odds: one mutant lives in one thread.
    static HELD: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

struct Counting;

fn count(bytes: i64) {
    // There is none while the thread ends.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        let now = now + bytes;
        held.set((now, most.max(now)));
    });
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

fn meter() -> u64 {
    HELD.with(|held| {
        let (now, most) = held.get();
        held.set((now, now));
        (most - now) as u64
    })
}

fn limits() -> Limits {
    Limits { meter: Some(meter), ..Limits::default() }
}

fn images() -> Vec<Image> {
    mutate::images(&Yfs).expect("images")
}

fn number(key: &str, default: u64) -> u64 {
    std::env::var(key).map_or(default, |text| text.parse().expect(key))
}

#[test]
fn mutants() {
    let (seed, count) = (number("ARBOR_SEED", 1), number("ARBOR_COUNT", 2000));
    let begin = Instant::now();
    let mut shown = 0;
    let tally = mutate::run(&Yfs, &images(), seed, count, &limits(), &mut |tally| {
        for failure in &tally.failures[shown..] {
            println!("after {} mutants in {:?}: {failure}", tally.mutants, begin.elapsed());
        }
        shown = tally.failures.len();
        true
    });
    println!("{} mutants in {:?}", tally.mutants, begin.elapsed());
    assert!(tally.failures.is_empty(), "{} failures:\n{}", tally.failures.len(), tally.failures.join("\n"));
}

/// Mutants that failed once.
#[test]
fn regressions() {
    let images = images();
    let lines = include_str!("hostile.txt").lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    let failed: Vec<String> = lines.filter_map(|line| mutate::repeat(&Yfs, &images, &limits(), line).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The images themselves pass, and each kind of structure is in one of them.
#[test]
fn good_images() {
    let images = images();
    let mut places = 0;
    for image in &images {
        places += image.places();
        mutate::repeat(&Yfs, &images, &limits(), &format!("image={} changes=superblock 0+8=", image.name))
            .expect("good");
    }
    assert!(places > 300, "{places} fields");
}
