//! Damaged images with checksums that fit: each is mounted, used, checked and repaired.

use super::{Mutants, Suites, drawn};
use crate::mutate::{self, Image, Limits};
use std::time::Instant;

fn limits(given: &Mutants) -> Limits {
    Limits { meter: given.meter, ..Limits::default() }
}

fn images(s: &Suites) -> Vec<Image> {
    mutate::images(s.engine).expect("images")
}

/// Every field of every structure, and random changes.
pub fn mutants(s: &Suites, given: &Mutants) {
    let (seed, count) = drawn(given.count);
    let (begin, mut shown) = (Instant::now(), 0);
    let tally = mutate::run(s.engine, &images(s), seed, count, &limits(given), &mut |tally| {
        for failure in &tally.failures[shown..] {
            println!("after {} mutants in {:?}: {failure}", tally.mutants, begin.elapsed());
        }
        shown = tally.failures.len();
        true
    });
    println!("{} mutants in {:?}", tally.mutants, begin.elapsed());
    assert!(tally.failures.is_empty(), "{} failures:\n{}", tally.failures.len(), tally.failures.join("\n"));
    assert!(tally.mutants >= count, "{tally:?}");
}

/// Those that an engine has failed with.
pub fn mutants_that_failed_once(s: &Suites, given: &Mutants) {
    let images = images(s);
    let lines = given.failed_once.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    let repeat = |line| mutate::repeat(s.engine, &images, &limits(given), line).err();
    let failed: Vec<String> = lines.filter_map(repeat).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The images themselves pass, and each kind of structure is in one of them.
pub fn good_images(s: &Suites, given: &Mutants) {
    let images = images(s);
    for image in &images {
        let unchanged = format!("image={} changes=superblock 0+8=", image.name);
        mutate::repeat(s.engine, &images, &limits(given), &unchanged).expect("good");
    }
    let places: usize = images.iter().map(Image::places).sum();
    assert!(places > 300, "{places} fields");
}
