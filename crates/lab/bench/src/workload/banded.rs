//! Sets of files in bands of sizes: Reiser, "Trees Are Fast" (1998), benchmark results.
//!
//! The 80/20 set has one file in five in a higher order of magnitude than the others, one in five of these in the next
//! one, and so on. The paper gives the number of files and the bytes of each band, and says that sizes are "randomly
//! distributed within the size range": all bands begin at 0 bytes, as their averages show. Of the sizes themselves
//! nothing more is known but that its generator had the seed 1. Here they are drawn evenly from each band, and then
//! changed a little until band by band they have the paper's bytes.
//!
//! Files lie in the leaves of a tree of directories with ten branches, as many in each leaf, and are made leaf by leaf.
//! The paper's sets are in "one directory, 10 sub-directories, 100 sub-sub-directories, and 1000 sub-sub-sub-directories";
//! in which order it made them is not known.

use super::primitive::{Chain, Ops};
use super::tour::{Aim, PAGE, Together, Tour, name};
use crate::op::{Dir, Op, Program};
use arbor_torture::rng::Rng;
use std::rc::Rc;

/// Files of one order of magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// How many.
    pub files: u32,
    /// Least and greatest size, bytes.
    pub range: (u64, u64),
    /// Size of all together, bytes.
    pub bytes: u64,
}

impl Band {
    /// So many files of at most so many bytes.
    pub const fn new(files: u32, most: u64, bytes: u64) -> Band {
        Band { files, range: (0, most), bytes }
    }
}

/// The 80/20 banded file set: 16,000 files of 54,385,534 bytes. How many files the band of up to 10 MB has the paper does
/// not say: what is missing at 16,000.
pub const BANDED: &[Band] = &[
    Band::new(12_244, 100, 610_149),
    Band::new(3002, 1000, 1_479_559),
    Band::new(615, 10_000, 3_055_154),
    Band::new(113, 100_000, 6_193_394),
    Band::new(21, 1_000_000, 9_335_273),
    Band::new(5, 10_000_000, 33_712_005),
];

/// The set of 0 to 250 bytes: 16,000 files of 1,988,298 bytes.
pub const SMALL: &[Band] = &[Band::new(16_000, 250, 1_988_298)];

/// X11R6, "72.8mb in 4198 files, average 17k size". Assumption: the bands; the paper says no more.
pub const MEDIUM: &[Band] =
    &[Band::new(2800, 10_000, 14_000_000), Band::new(1300, 60_000, 39_000_000), Band::new(98, 400_000, 19_800_000)];

/// The source of a Linux kernel, "14k average file size, 38mb total". Assumption: the bands, as for X11R6.
pub const KERNEL: &[Band] =
    &[Band::new(1800, 10_000, 9_000_000), Band::new(870, 50_000, 21_000_000), Band::new(44, 400_000, 8_000_000)];

/// "files > 512k from /usr, 110 files, 84MB total". With that many bytes the average is 764 KB, and not the 634 KB that
/// the paper says. Assumption: evenly up to what gives the total.
pub const LARGE: &[Band] = &[Band { files: 110, range: (512 << 10, 1_003_000), bytes: 84_000_000 }];

/// The same, "153 files, 97MB total, 634k average size".
pub const LARGE_MANY: &[Band] = &[Band { files: 153, range: (512 << 10, 744_000), bytes: 97_000_000 }];

/// What is done with a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// That of the banded sets, which ends with `rm -rf`.
    Banded,
    /// That of medium and large sets, by one process.
    Alone,
    /// By three processes at a time.
    ByThree,
}

/// A set of files and what is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Banded {
    /// The files.
    pub bands: &'static [Band],
    /// Directories that have files: a power of ten.
    pub dirs: u32,
    /// What is done.
    pub course: Course,
    /// What it is divided by.
    pub divisor: u32,
}

/// What it takes to start a process, ns. The paper says that `find` with a process for each file was the bottleneck with
/// ReiserFS; it took 6.6 ms for each of the 32,000 files of 0 to 250 bytes to be looked at, and 5.75 ms to be copied (3:32
/// and 3:04). Assumption: 5.5 ms of that are the process's.
const PROCESS_NS: u64 = 5_500_000;
/// The directories of the set, and of its copies.
const TOP: &str = "testdir";
const COPIES: [&str; 3] = ["testdir2", "testdir3", "testdir4"];
/// The first number of directories that are gone through, and how far those of processes are apart.
const FIRST: u32 = 1 << 20;
const APART: u32 = 1 << 10;

impl Banded {
    /// A set in so many directories.
    pub const fn new(bands: &'static [Band], dirs: u32, course: Course) -> Banded {
        Banded { bands, dirs, course, divisor: 1 }
    }

    /// The same with fewer files; the shares of the bands stay as they are.
    pub fn divided_by(self, divisor: u32) -> Banded {
        Banded { divisor: divisor.max(1), ..self }
    }

    /// Sizes of the files in the order in which they are made.
    pub fn sizes(&self, seed: u64) -> Vec<u64> {
        let mut rng = Rng::new(seed);
        let mut sizes: Vec<u64> = self.bands.iter().flat_map(|band| self.band(band, &mut rng)).collect();
        rng.shuffle(&mut sizes);
        sizes
    }

    fn band(&self, band: &Band, rng: &mut Rng) -> Vec<u64> {
        let ((least, most), files) = (band.range, band.files.div_ceil(self.divisor));
        let bytes = (u128::from(band.bytes) * u128::from(files) / u128::from(band.files.max(1))) as u64;
        let mut sizes: Vec<u64> = (0..files).map(|_| least + rng.below(most - least + 1)).collect();
        let mut sum: u64 = sizes.iter().sum();
        for (size, left) in sizes.iter_mut().zip((1..=u64::from(files)).rev()) {
            if sum < bytes {
                let more = (bytes - sum).div_ceil(left).min(most - *size);
                (*size, sum) = (*size + more, sum + more);
            } else {
                let less = (sum - bytes).div_ceil(left).min(*size - least);
                (*size, sum) = (*size - less, sum - less);
            }
        }
        sizes
    }

    /// Makes the program.
    pub fn program(&self, seed: u64) -> Box<dyn Program> {
        let sizes = Rc::new(self.sizes(seed));
        let mut all: Vec<Box<dyn Program>> = vec![phase("create"), Box::new(Ops::new(self.create(&sizes)))];
        match self.course {
            Course::Banded => banded(&sizes, &mut all),
            Course::Alone => alone(&sizes, &mut all),
            Course::ByThree => by_three(&sizes, &mut all),
        }
        Box::new(Chain::new(all))
    }

    fn create(&self, sizes: &[u64]) -> Vec<Op> {
        let dirs = self.dirs.clamp(1, (sizes.len() as u32).max(1));
        let per_dir = sizes.len().div_ceil(dirs as usize).max(1);
        let depth = self.dirs.max(1).ilog10();
        let mut ops = vec![mkdir(Dir::ROOT, TOP.into(), Dir(1))];
        let mut next = 2;
        // The directory of each level on the way to the leaf.
        let mut way = vec![Dir(1)];
        for (number, size) in sizes.iter().enumerate() {
            if number % per_dir == 0 {
                let leaf = (number / per_dir) as u32;
                for level in 0..depth {
                    let below = 10u32.pow(depth - level - 1);
                    if leaf.is_multiple_of(below) {
                        way.truncate(level as usize + 1);
                        let parent = way.last().copied().unwrap_or(Dir(1));
                        ops.push(mkdir(parent, format!("d{}", leaf / below % 10), Dir(next)));
                        way.push(Dir(next));
                        next += 1;
                    }
                }
            }
            let dir = way.last().copied().unwrap_or(Dir(1));
            ops.push(Op::Create { dir, name: name(number) });
            if *size > 0 {
                ops.push(Op::Write { offset: 0, len: *size, io: PAGE, tag: number as u64 });
            }
            ops.push(Op::Close);
        }
        ops.push(Op::Sync);
        ops
    }
}

fn mkdir(parent: Dir, name: String, dir: Dir) -> Op {
    Op::Mkdir { parent, name, dir }
}

fn phase(name: &'static str) -> Box<dyn Program> {
    Box::new(Ops::new(vec![Op::Phase(name)]))
}

/// With nothing cached, until all of it is durable.
fn cold(all: &mut Vec<Box<dyn Program>>, name: &'static str, program: Box<dyn Program>) {
    all.push(Box::new(Ops::new(vec![Op::Phase("remount"), Op::Remount])));
    all.extend([phase(name), program, Box::new(Ops::new(vec![Op::Sync]))]);
}

/// One process, through `top` or everything there is.
fn tour(aim: Aim, top: Option<&'static str>, sizes: &Rc<Vec<u64>>, process: u32) -> Tour {
    Tour::new(aim, top, sizes, FIRST + process * APART, sizes.len() as u64)
}

fn banded(sizes: &Rc<Vec<u64>>, all: &mut Vec<Box<dyn Program>>) {
    cold(all, "copy", Box::new(tour(Aim::Copy(COPIES[0]), Some(TOP), sizes, 0)));
    cold(all, "scan", Box::new(tour(Aim::Scan, None, sizes, 0)));
    cold(all, "stat", Box::new(tour(Aim::Look, None, sizes, 0).by_processes(PROCESS_NS)));
    cold(all, "interleaved copy", Box::new(tour(Aim::CopyBeside, None, sizes, 0).by_processes(PROCESS_NS)));
    cold(all, "du", Box::new(tour(Aim::Look, None, sizes, 0)));
    cold(all, "remove", Box::new(tour(Aim::Remove, None, sizes, 0)));
}

fn alone(sizes: &Rc<Vec<u64>>, all: &mut Vec<Box<dyn Program>>) {
    cold(all, "copy", Box::new(tour(Aim::Copy(COPIES[0]), Some(TOP), sizes, 0)));
    cold(all, "scan", Box::new(tour(Aim::Scan, None, sizes, 0).by_processes(PROCESS_NS)));
    cold(all, "stat", Box::new(tour(Aim::Look, None, sizes, 0).by_processes(PROCESS_NS)));
    cold(all, "interleaved copy", Box::new(tour(Aim::CopyBeside, None, sizes, 0).by_processes(PROCESS_NS)));
    cold(all, "scan again", Box::new(tour(Aim::Scan, None, sizes, 0).by_processes(PROCESS_NS)));
    cold(all, "interleaved removal", Box::new(tour(Aim::Weed, None, sizes, 0).by_processes(PROCESS_NS)));
    cold(all, "remove", Box::new(tour(Aim::Remove, None, sizes, 0)));
}

fn by_three(sizes: &Rc<Vec<u64>>, all: &mut Vec<Box<dyn Program>>) {
    let three = |f: &dyn Fn(&'static str, u32) -> Tour| -> Box<dyn Program> {
        let one = |(at, to): (u32, &&'static str)| Box::new(f(to, at)) as Box<dyn Program>;
        Box::new(Together::new((0..).zip(&COPIES).map(one).collect()))
    };
    let each = |aim: Aim, ns: u64| three(&move |top, at| tour(aim, Some(top), sizes, at).by_processes(ns));
    cold(all, "copy", three(&|to, at| tour(Aim::Copy(to), Some(TOP), sizes, at)));
    cold(all, "interleaved copy", each(Aim::CopyBeside, PROCESS_NS));
    cold(all, "stat", each(Aim::Look, PROCESS_NS));
    cold(all, "scan", each(Aim::Scan, PROCESS_NS));
    cold(all, "interleaved removal", each(Aim::Weed, PROCESS_NS));
    cold(all, "remove", each(Aim::Remove, 0));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bands: &'static [Band]) -> (usize, u64) {
        let sizes = Banded::new(bands, 1, Course::Banded).sizes(1);
        (sizes.len(), sizes.iter().sum())
    }

    #[test]
    fn sets_have_the_papers_counts() {
        assert_eq!(whole(BANDED), (16_000, 54_385_534));
        assert_eq!(whole(SMALL), (16_000, 1_988_298));
        assert_eq!(whole(MEDIUM), (4198, 72_800_000));
        assert_eq!(whole(KERNEL), (2714, 38_000_000));
        assert_eq!(whole(LARGE), (110, 84_000_000));
        assert_eq!(whole(LARGE_MANY), (153, 97_000_000));
    }

    /// Band by band, and spread over all of each band.
    #[test]
    fn bands_have_theirs() {
        let set = Banded::new(BANDED, 1, Course::Banded);
        for band in BANDED {
            let mut sizes = set.band(band, &mut Rng::new(1));
            sizes.sort_unstable();
            assert_eq!((sizes.len() as u32, sizes.iter().sum::<u64>()), (band.files, band.bytes));
            assert!(sizes.iter().all(|size| *size <= band.range.1));
            let quarter = |at: usize| sizes[sizes.len() * at / 4] as f64 / band.range.1 as f64;
            assert!(band.files < 100 || (1..4).all(|at| (quarter(at) - at as f64 / 4.0).abs() < 0.1), "{band:?}");
        }
        let fifth = BANDED.iter().skip(1).map(|band| band.files).sum::<u32>();
        assert!((0.2..0.25).contains(&(f64::from(fifth) / 16_000.0)), "one in five is promoted");
    }

    #[test]
    fn directories_are_a_tree_of_ten_branches() {
        for (dirs, made, deepest) in [(1, 1, 0), (10, 11, 1), (100, 111, 2), (1000, 1111, 3)] {
            let set = Banded::new(SMALL, dirs, Course::Banded);
            let ops = set.create(&set.sizes(1));
            let mkdirs = ops.iter().filter(|op| matches!(op, Op::Mkdir { .. })).count();
            let mut depth = std::collections::BTreeMap::from([(Dir::ROOT, 0)]);
            let mut leaves = std::collections::BTreeMap::new();
            for op in &ops {
                match op {
                    Op::Mkdir { parent, dir, .. } => drop(depth.insert(*dir, depth[parent] + 1)),
                    Op::Create { dir, .. } => *leaves.entry(*dir).or_insert(0) += 1,
                    _ => {}
                }
            }
            assert_eq!((mkdirs, leaves.len() as u32), (made, dirs));
            assert!(leaves.iter().all(|(dir, files)| depth[dir] == deepest + 1 && *files == 16_000 / dirs));
        }
    }

    #[test]
    fn divided_sets_keep_their_shape() {
        let sizes = Banded::new(SMALL, 1000, Course::Banded).divided_by(100).sizes(1);
        assert_eq!((sizes.len(), sizes.iter().sum::<u64>()), (160, 19_882));
        let sizes = Banded::new(BANDED, 10, Course::Banded).divided_by(20).sizes(1);
        assert_eq!(sizes.len(), 613 + 151 + 31 + 6 + 2 + 1);
    }
}
