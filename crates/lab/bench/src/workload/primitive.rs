//! Small workloads of one kind of work each, of which others are put together.

use super::tree::Walk;
use crate::op::{Dir, Op, Program};
use arbor_torture::rng::Rng;
use std::vec;

/// A list of operations as a program.
pub struct Ops {
    ops: vec::IntoIter<Op>,
    total: u64,
}

impl Ops {
    /// Gives `ops` one by one.
    pub fn new(ops: Vec<Op>) -> Ops {
        Ops { total: ops.len() as u64, ops: ops.into_iter() }
    }
}

impl Program for Ops {
    fn step(&mut self, out: &mut Vec<Op>) -> bool {
        let next = self.ops.next();
        let more = next.is_some();
        out.extend(next);
        more
    }

    fn progress(&self) -> (u64, u64) {
        (self.total - self.ops.len() as u64, self.total)
    }
}

/// Programs one after the other.
pub struct Chain {
    programs: Vec<Box<dyn Program>>,
    at: usize,
}

impl Chain {
    /// `programs` in their order.
    pub fn new(programs: Vec<Box<dyn Program>>) -> Chain {
        Chain { programs, at: 0 }
    }
}

impl Program for Chain {
    fn step(&mut self, out: &mut Vec<Op>) -> bool {
        while let Some(program) = self.programs.get_mut(self.at) {
            if program.step(out) {
                return true;
            }
            self.at += 1;
        }
        false
    }

    fn listed(&mut self, names: &[crate::op::Listed]) {
        if let Some(program) = self.programs.get_mut(self.at) {
            program.listed(names);
        }
    }

    fn progress(&self) -> (u64, u64) {
        self.programs.iter().map(|p| p.progress()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    }
}

/// Pieces of one big file: written in order, read in order, rewritten and read at random places, with a mount
/// without a cache before each reading (Rosenblum and Ousterhout, "The Design and Implementation of a
/// Log-Structured File System", SOSP 1991, section 5.1, figure 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BigFile {
    /// Size of the file, bytes.
    pub file_bytes: u64,
    /// Size of a piece, bytes.
    pub io_bytes: u32,
}

impl BigFile {
    /// Makes the program.
    pub fn program(&self, seed: u64) -> Box<dyn Program> {
        let mut rng = Rng::new(seed);
        let (io, count) = (self.io_bytes, self.file_bytes / u64::from(self.io_bytes.max(1)));
        let name = || "big".to_string();
        let write = |i: u64, tag| Op::Write { offset: i * u64::from(io), len: u64::from(io), io, tag };
        let read = |i: u64| Op::Read { offset: i * u64::from(io), len: u64::from(io), io };
        let mut order: Vec<u64> = (0..count).collect();
        let mut ops = vec![Op::Phase("sequential write"), Op::Create { dir: Dir::ROOT, name: name() }];
        ops.extend((0..count).map(|i| write(i, 1)));
        let cold = |ops: &mut Vec<Op>, phase| {
            ops.extend([Op::Fsync, Op::Close, Op::Phase("remount"), Op::Remount]);
            ops.extend([Op::Phase(phase), Op::Open { dir: Dir::ROOT, name: name() }]);
        };
        cold(&mut ops, "sequential read");
        ops.extend((0..count).map(read));
        cold(&mut ops, "random write");
        rng.shuffle(&mut order);
        ops.extend(order.iter().map(|i| write(*i, 2)));
        cold(&mut ops, "random read");
        rng.shuffle(&mut order);
        ops.extend(order.iter().map(|i| read(*i)));
        cold(&mut ops, "sequential reread");
        ops.extend((0..count).map(read));
        ops.push(Op::Close);
        Box::new(Ops::new(ops))
    }
}

/// Many small files: made, read in the same order, removed, with a mount without a cache between (Rosenblum and
/// Ousterhout, section 5.1, figure 8: 10,000 files of 1 KiB).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallFiles {
    /// Files.
    pub files: u32,
    /// Size of each, bytes.
    pub file_bytes: u64,
    /// Files in a directory.
    pub files_per_dir: u32,
    /// Make each file durable before the next one.
    pub fsync: bool,
}

impl SmallFiles {
    /// Makes the program. It draws nothing.
    pub fn program(&self) -> Box<dyn Program> {
        let per_dir = self.files_per_dir.max(1);
        let dir = |i: u32| Dir(1 + i / per_dir);
        let mut ops = vec![Op::Phase("create")];
        for i in 0..self.files {
            if i % per_dir == 0 {
                let name = format!("d{:05}", i / per_dir);
                ops.push(Op::Mkdir { parent: Dir::ROOT, name, dir: dir(i) });
            }
            ops.push(Op::Create { dir: dir(i), name: format!("f{i:07}") });
            ops.push(Op::Write { offset: 0, len: self.file_bytes, io: 8192, tag: u64::from(i) });
            ops.extend(self.fsync.then_some(Op::Fsync));
            ops.push(Op::Close);
        }
        ops.extend([Op::Sync, Op::Phase("remount"), Op::Remount, Op::Phase("read")]);
        for i in 0..self.files {
            ops.push(Op::Open { dir: dir(i), name: format!("f{i:07}") });
            ops.push(Op::Read { offset: 0, len: self.file_bytes, io: 8192 });
            ops.push(Op::Close);
        }
        ops.extend([Op::Phase("remount"), Op::Remount, Op::Phase("delete")]);
        ops.extend((0..self.files).map(|i| Op::Unlink { dir: dir(i), name: format!("f{i:07}") }));
        ops.push(Op::Sync);
        Box::new(Ops::new(ops))
    }
}

/// Reads everything there is, in the order of names: the digest tells two trees apart.
pub fn read_everything() -> Box<dyn Program> {
    Box::new(Walk::read(1 << 30, 0, 64 << 10))
}
