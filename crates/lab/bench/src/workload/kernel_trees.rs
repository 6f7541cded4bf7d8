//! The microbenchmarks of the DualFS paper (Piernas, Cortes and García, "Traditional versus Next-Generation Journaling File
//! Systems: a Performance Comparison Approach", section 3.1): four copies of the source of Linux 2.4.19 are untarred,
//! searched, read, copied and removed, by one process or by four, each with a copy of its own.
//!
//! The source itself is not at hand. Assumed are 11,500 files in 680 directories, with lognormal sizes of 11.1 KB on average:
//! about 128 MB, the size of an archive of 32 MB at a ratio of four for text. Some directories have many files, most have few. No
//! hash keeps the names in the order in which they are made.
//!
//! `tar` makes a directory, its files, and then the directories in it, writes in units of its record of 10 KiB, and sets the
//! times of each file. The archive is on a disk that is not measured, and reading it takes no time here. `find`, `cp -r` and
//! `rm -rf` are those of [`Tour`].
//!
//! A phase ends when the program has ended; what it leaves to be written is a phase of its own.

use super::primitive::{Chain, Ops};
use super::tour::{Aim, PAGE, Tour, source_dir, source_name};
use crate::draw::LogNormal;
use crate::op::{Dir, Op, Program};
use arbor_torture::rng::Rng;
use std::rc::Rc;

/// The record of `tar`, bytes.
const RECORD_BYTES: u32 = 10 << 10;
/// Times of the files, seconds: the release of Linux 2.4.19, 3 August 2002.
const RELEASE_SECS: u32 = 1_028_332_800;
/// Copies of the tree.
const COPIES: u32 = 4;
pub(super) const TREES: [&str; COPIES as usize] = ["linux0", "linux1", "linux2", "linux3"];
const TARGETS: [&str; COPIES as usize] = ["copy0", "copy1", "copy2", "copy3"];
/// The first number of directories that are gone through, and how many numbers a tree has.
const FIRST: u32 = 1 << 20;
const APART: u32 = 1 << 12;

/// Which of the benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// Trees with contents: write-data-meta, read-data-meta, read-write-data-meta, delete.
    Full,
    /// Trees with contents: read-meta.
    Find,
    /// Trees of empty files: write-meta, read-write-meta.
    Empty,
    /// Not the paper's: one file as long as all of them is written and read.
    Whole,
}

/// The trees, and what is done with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelTrees {
    /// What is done.
    pub course: Course,
    /// By how many programs, 1, 2 or 4: all trees are done by each of them in turn.
    pub processes: u32,
    /// Files of a tree.
    pub files: u32,
    /// Directories of a tree.
    pub dirs: u32,
    /// Size of a file on average, bytes.
    pub mean_bytes: u32,
}

/// A directory of a tree: its number there, its parent's, and its files.
pub(super) struct Directory {
    pub(super) parent: u32,
    pub(super) files: Vec<u64>,
    below: Vec<u32>,
}

impl KernelTrees {
    /// With the paper's counts.
    pub const fn new(course: Course, processes: u32) -> KernelTrees {
        KernelTrees { course, processes, files: 11_500, dirs: 680, mean_bytes: 11_100 }
    }

    /// The same with fewer files and directories.
    pub fn divided_by(self, divisor: u32) -> KernelTrees {
        KernelTrees { files: self.files.div_ceil(divisor), dirs: self.dirs.div_ceil(divisor), ..self }
    }

    /// Makes the program of one process.
    pub fn program(&self, seed: u64) -> Box<dyn Program> {
        let trees = (COPIES / self.processes.clamp(1, COPIES)) as usize;
        let tree = self.tree(&mut Rng::new(seed));
        let (sizes, made) = extraction(&tree, trees);
        let sizes = Rc::new(sizes);
        let tours = |aim: &dyn Fn(usize) -> Aim| {
            (0..trees).map(|n| tour(aim(n), TREES[n], &sizes)).collect::<Vec<Box<dyn Program>>>()
        };
        let mut all = Vec::new();
        match self.course {
            Course::Full => {
                step(&mut all, "w-dm", "w-dm, rest", vec![made], false);
                step(&mut all, "r-dm", "r-dm, rest", tours(&|_| Aim::Scan), true);
                step(&mut all, "rw-dm", "rw-dm, rest", tours(&|n| Aim::Copy(TARGETS[n])), true);
                step(&mut all, "del", "del, rest", tours(&|_| Aim::Remove), true);
            }
            Course::Find => {
                step(&mut all, "untar", "untar, rest", vec![made], false);
                step(&mut all, "r-m", "r-m, rest", tours(&|_| Aim::Look), true);
            }
            Course::Empty => {
                step(&mut all, "w-m", "w-m, rest", vec![made], false);
                step(&mut all, "rw-m", "rw-m, rest", tours(&|n| Aim::Copy(TARGETS[n])), true);
            }
            Course::Whole => {
                let [written, read] = whole(sizes.iter().sum::<u64>() * trees as u64);
                step(&mut all, "w-one", "w-one, rest", vec![written], false);
                step(&mut all, "r-one", "r-one, rest", vec![read], true);
            }
        }
        Box::new(Chain::new(all))
    }

    pub(super) fn tree(&self, rng: &mut Rng) -> Vec<Directory> {
        let mut dirs = vec![Directory { parent: 0, files: Vec::new(), below: Vec::new() }];
        for dir in 1..self.dirs.max(1) {
            let parent = if dir < 16 { 0 } else { rng.below(dir.into()) as u32 };
            dirs.push(Directory { parent, files: Vec::new(), below: Vec::new() });
            dirs[parent as usize].below.push(dir);
        }
        let sigma = 1.2;
        let size = LogNormal { mu: libm::log(f64::from(self.mean_bytes)) - sigma * sigma / 2.0, sigma };
        for _ in 0..self.files {
            let most = rng.below(dirs.len() as u64) + 1;
            let dir = rng.below(most) as usize;
            let bytes = if self.course == Course::Empty { 0 } else { size.draw(rng) as u64 };
            dirs[dir].files.push(bytes);
        }
        dirs
    }
}

/// Sizes of the files by number, and the program that untars so many trees.
pub(super) fn extraction(tree: &[Directory], trees: usize) -> (Vec<u64>, Box<dyn Program>) {
    let (mut sizes, mut ops) = (Vec::new(), Vec::new());
    for (n, top) in TREES.iter().take(trees).enumerate() {
        let base = 1 + n as u32 * APART;
        let mut number = 0;
        for dir in depth_first(tree) {
            let Directory { parent, files, .. } = &tree[dir as usize];
            let (parent, name_of) =
                if dir == 0 { (Dir::ROOT, top.to_string()) } else { (Dir(base + parent), source_dir(dir)) };
            ops.push(Op::Mkdir { parent, name: name_of, dir: Dir(base + dir) });
            for bytes in files {
                file(&mut ops, Dir(base + dir), number, *bytes);
                number += 1;
                sizes.extend((n == 0).then_some(*bytes));
            }
        }
        ops.extend((0..tree.len() as u32).map(|dir| Op::Leave { dir: Dir(base + dir) }));
    }
    (sizes, Box::new(Ops::new(ops)))
}

/// The directories of a tree, each before those in it.
pub(super) fn depth_first(tree: &[Directory]) -> Vec<u32> {
    let (mut stack, mut all) = (vec![0], Vec::with_capacity(tree.len()));
    while let Some(dir) = stack.pop() {
        all.push(dir);
        stack.extend(tree[dir as usize].below.iter().rev());
    }
    all
}

/// The programs that write and read one file.
fn whole(len: u64) -> [Box<dyn Program>; 2] {
    let (dir, name) = (Dir::ROOT, || "whole".to_string());
    let written = [Op::Create { dir, name: name() }, Op::Write { offset: 0, len, io: PAGE, tag: 0 }, Op::Close];
    let read = [Op::Open { dir, name: name() }, Op::Read { offset: 0, len, io: PAGE }, Op::Close];
    [Box::new(Ops::new(written.into())), Box::new(Ops::new(read.into()))]
}

fn file(ops: &mut Vec<Op>, dir: Dir, number: usize, bytes: u64) {
    ops.push(Op::Create { dir, name: source_name(number) });
    if bytes > 0 {
        ops.push(Op::Write { offset: 0, len: bytes, io: RECORD_BYTES, tag: number as u64 });
    }
    ops.extend([Op::Close, Op::SetTimes { dir, name: source_name(number), secs: RELEASE_SECS }]);
}

fn tour(aim: Aim, top: &'static str, sizes: &Rc<Vec<u64>>) -> Box<dyn Program> {
    Box::new(Tour::new(aim, Some(top), sizes, FIRST, sizes.len() as u64))
}

/// A benchmark: with nothing cached unless it is the first, and what it leaves to be written.
pub(super) fn step(
    all: &mut Vec<Box<dyn Program>>,
    phase: &'static str,
    rest: &'static str,
    programs: Vec<Box<dyn Program>>,
    is_cold: bool,
) {
    let begin =
        if is_cold { vec![Op::Phase("remount"), Op::Remount, Op::Phase(phase)] } else { vec![Op::Phase(phase)] };
    all.push(Box::new(Ops::new(begin)));
    all.extend(programs);
    all.push(Box::new(Ops::new(vec![Op::Phase(rest), Op::Sync])));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(spec: KernelTrees, trees: usize) -> (Vec<u64>, Vec<Op>) {
        let (sizes, mut program) = extraction(&spec.tree(&mut Rng::new(1)), trees);
        let mut ops = Vec::new();
        while program.step(&mut ops) {}
        (sizes, ops)
    }

    #[test]
    fn a_tree_has_its_counts() {
        let (sizes, ops) = made(KernelTrees::new(Course::Full, 1), 4);
        let count = |is: fn(&Op) -> bool| ops.iter().filter(|op| is(op)).count();
        assert_eq!(count(|op| matches!(op, Op::Create { .. })), 4 * 11_500);
        assert_eq!(count(|op| matches!(op, Op::Mkdir { .. })), 4 * 680);
        assert_eq!(sizes.len(), 11_500);
        let mb = sizes.iter().sum::<u64>() as f64 / 1e6;
        assert!((115.0..140.0).contains(&mb), "{mb} MB");
    }

    #[test]
    fn empty_trees_have_no_contents_and_four_processes_have_a_tree_each() {
        let (sizes, ops) = made(KernelTrees::new(Course::Empty, 4).divided_by(10), 1);
        assert!(sizes.iter().all(|bytes| *bytes == 0) && !ops.iter().any(|op| matches!(op, Op::Write { .. })));
        let steps = |processes| {
            let (mut ops, mut program) =
                (Vec::new(), KernelTrees::new(Course::Find, processes).divided_by(50).program(1));
            while program.step(&mut ops) {}
            ops.iter().filter(|op| matches!(op, Op::Create { .. })).count()
        };
        assert_eq!((steps(1), steps(4)), (4 * 230, 230));
    }

    /// Each directory comes after its parent, and its files before the directories in it.
    #[test]
    fn tar_goes_depth_first() {
        let ops = made(KernelTrees::new(Course::Full, 1).divided_by(10), 1).1;
        let mut there = std::collections::BTreeSet::from([Dir::ROOT]);
        let mut last = Dir::ROOT;
        for op in &ops {
            match op {
                Op::Mkdir { parent, dir, .. } => {
                    assert!(there.contains(parent) && there.insert(*dir));
                    last = *dir;
                }
                Op::Create { dir, .. } => assert_eq!(*dir, last),
                _ => {}
            }
        }
    }
}
