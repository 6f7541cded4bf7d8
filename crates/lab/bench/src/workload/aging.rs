//! The aging workload of the yFS paper, section 6.4: creations and deletions that fill an empty file system.
//!
//! What the paper leaves open is chosen so:
//!
//! * The probability of a creation is one minus the utilisation: the bytes in files over `capacity_bytes`. It is
//!   computed from sizes, not asked for, so that every file system gets the same operations.
//! * Where the directory drawn holds no file, a deletion becomes a creation.
//! * Only regular files are deleted.
//! * A size above `largest_bytes`, that of the largest file in the paper's run, is drawn again.
//! * `133K` is 133 times 1024 bytes.
//! * Names have eight characters of the 62 letters and digits.

use crate::draw::{LogNormal, Pareto, unit};
use crate::op::{Dir, Op, Program};
use arbor_torture::rng::Rng;
use std::collections::BTreeMap;

const CHARACTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// The parameters, with the paper's values as defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aging {
    /// Creations and deletions.
    pub operations: u32,
    /// One creation in so many makes a directory.
    pub files_per_dir: u32,
    /// Sizes of most files, bytes.
    pub most: LogNormal,
    /// Sizes of the others, bytes.
    pub others: Pareto,
    /// Share of the others.
    pub others_share: f64,
    /// The largest size, bytes.
    pub largest_bytes: u64,
    /// The capacity of the volume, bytes, on which the probability of a creation depends.
    pub capacity_bytes: u64,
    /// Unit of the calls that write, bytes.
    pub io_bytes: u32,
    /// Characters of a name.
    pub name_len: usize,
}

impl Default for Aging {
    fn default() -> Aging {
        Aging {
            operations: 10_000,
            files_per_dir: 64,
            most: LogNormal { mu: 9.357, sigma: 1.318 },
            others: Pareto { kappa: 133.0 * 1024.0, alpha: 1.1 },
            others_share: 0.07,
            largest_bytes: 52_242_324,
            capacity_bytes: 9_100_000_000,
            io_bytes: 64 << 10,
            name_len: 8,
        }
    }
}

impl Aging {
    /// Makes the program.
    pub fn program(&self, seed: u64) -> Box<dyn Program> {
        let root = Directory::default();
        Box::new(Run { spec: *self, rng: Rng::new(seed), dirs: vec![root], used_bytes: 0, done: 0 })
    }
}

/// What is in a directory.
#[derive(Default)]
struct Directory {
    /// Size of each file, by name; of a directory `None`.
    names: BTreeMap<String, Option<u64>>,
    files: u64,
}

struct Run {
    spec: Aging,
    rng: Rng,
    dirs: Vec<Directory>,
    used_bytes: u64,
    done: u32,
}

impl Run {
    fn size(&mut self) -> u64 {
        loop {
            let size = match unit(&mut self.rng) <= self.spec.others_share {
                true => self.spec.others.draw(&mut self.rng),
                false => self.spec.most.draw(&mut self.rng),
            } as u64;
            if size <= self.spec.largest_bytes {
                return size;
            }
        }
    }

    fn name(&mut self, dir: usize) -> String {
        loop {
            let draw = |_| char::from(*self.rng.pick(CHARACTERS));
            let name: String = (0..self.spec.name_len).map(draw).collect();
            if !self.dirs[dir].names.contains_key(&name) {
                return name;
            }
        }
    }

    fn create(&mut self, at: usize, out: &mut Vec<Op>) {
        let name = self.name(at);
        if self.rng.one_in(u64::from(self.spec.files_per_dir)) {
            self.dirs[at].names.insert(name.clone(), None);
            out.push(Op::Mkdir { parent: Dir(at as u32), name, dir: Dir(self.dirs.len() as u32) });
            self.dirs.push(Directory::default());
            return;
        }
        let len = self.size();
        self.used_bytes += len;
        self.dirs[at].files += 1;
        self.dirs[at].names.insert(name.clone(), Some(len));
        out.push(Op::Create { dir: Dir(at as u32), name });
        out.push(Op::Write { offset: 0, len, io: self.spec.io_bytes, tag: u64::from(self.done) });
        out.push(Op::Close);
    }

    /// Deletes one of the files, counted in the order of names after the directory was listed.
    fn delete(&mut self, at: usize, out: &mut Vec<Op>) {
        let victim = self.rng.below(self.dirs[at].files) as usize;
        let files = self.dirs[at].names.iter().filter(|(_, size)| size.is_some());
        let Some((name, size)) = files.map(|(n, s)| (n.clone(), *s)).nth(victim) else { return };
        self.used_bytes -= size.unwrap_or(0);
        self.dirs[at].files -= 1;
        self.dirs[at].names.remove(&name);
        out.push(Op::List { dir: Dir(at as u32) });
        out.push(Op::Unlink { dir: Dir(at as u32), name });
    }
}

impl Program for Run {
    fn step(&mut self, out: &mut Vec<Op>) -> bool {
        if self.done == self.spec.operations {
            return false;
        }
        if self.done == 0 {
            out.push(Op::Phase("age"));
        }
        let at = self.rng.below(self.dirs.len() as u64) as usize;
        let utilisation = self.used_bytes as f64 / self.spec.capacity_bytes as f64;
        let create = unit(&mut self.rng) > utilisation;
        if create || self.dirs[at].files == 0 {
            self.create(at, out)
        } else {
            self.delete(at, out)
        }
        self.done += 1;
        true
    }

    fn progress(&self) -> (u64, u64) {
        (u64::from(self.done), u64::from(self.spec.operations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_of_two_kinds() {
        let spec = Aging::default();
        let mut run = Run { spec, rng: Rng::new(5), dirs: vec![Directory::default()], used_bytes: 0, done: 0 };
        let sizes: Vec<u64> = (0..100_000).map(|_| run.size()).collect();
        assert!(sizes.iter().all(|s| *s <= spec.largest_bytes));
        // Beyond 1 MiB there are practically Pareto sizes only: (133/1024)^1.1 of 7%.
        let large = sizes.iter().filter(|s| **s > 1 << 20).count() as f64 / 100_000.0;
        assert!((large / 0.007_43 - 1.0).abs() < 0.1, "{large}");
    }

    #[test]
    fn creations_become_fewer() {
        let spec = Aging { capacity_bytes: 50 << 20, operations: 2000, ..Aging::default() };
        let mut program = spec.program(1);
        let (mut ops, mut half) = (Vec::new(), Vec::new());
        while program.step(&mut ops) {
            half.extend(ops.drain(..).filter_map(|op| match op {
                Op::Create { .. } => Some(true),
                Op::Unlink { .. } => Some(false),
                _ => None,
            }));
        }
        let made = |part: &[bool]| part.iter().filter(|c| **c).count();
        assert!(made(&half[..half.len() / 2]) > made(&half[half.len() / 2..]));
        assert!(made(&half) < half.len());
    }
}
