//! What SPECweb99 asks of the file system of a server (Standard Performance Evaluation Corporation, "SPECweb99", 1999), as far
//! as the DualFS paper ran it: its files, how popular they are, its logs.
//!
//! Each directory has nine files of each of four classes: of 102.4 bytes, 1, 10 and 100 KiB, times 1 to 9. There are 25
//! directories and two more for three connections; 35, 50, 14 and 1 of 100 requests are for a class, those within a class have
//! the shares that SPEC gives, directories are popular as the reciprocals of their ranks (Zipf). Three requests of ten are
//! dynamic, but read a file too; 4.8 of 100 add a record to the log of what was posted, and all a line to that of accesses.
//!
//! The paper does not say how many connections its server carried. Assumed are 100 with 2.7 requests a second each, which keep
//! the processor busy: 3.7 ms a request, by four servers of which each has a quarter of the directories.

use crate::draw::shared;
use crate::op::{Dir, Op, Program};
use arbor_torture::rng::Rng;

const CLASSES: u32 = 4;
const FILES: u32 = 9;
/// Directories of all servers: 25 and 0.66 a connection.
const DIRS: u32 = 91;
/// Requests a second of all servers.
const RATE: u64 = 270;
const REQUEST_NS: u64 = 3_700_000;
/// Per mille of the requests for each class.
const OF_CLASS: [u64; CLASSES as usize] = [350, 500, 140, 10];
/// Per mille of the requests within a class for each file.
const OF_FILE: [u64; FILES as usize] = [39, 59, 88, 178, 353, 118, 71, 50, 44];
const POSTED: u64 = 48;
const LINE_BYTES: u64 = 100;
const RECORD_BYTES: u64 = 600;

/// The servers, and how much they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Web {
    /// Servers; each has its part of the directories and of the requests.
    pub servers: u32,
    /// Requests of all servers before the measurement.
    pub warm_up: u64,
    /// Requests of all servers that are measured.
    pub requests: u64,
}

impl Web {
    /// Five minutes before, and twenty that are measured, divided.
    pub fn divided_by(servers: u32, divisor: u32) -> Web {
        let of = |minutes: u64| (RATE * 60 * minutes).div_ceil(divisor.into());
        Web { servers, warm_up: of(5), requests: of(20) }
    }

    /// Makes the program of one server.
    pub fn program(&self, seed: u64) -> Box<dyn Program> {
        let dirs = DIRS.div_ceil(self.servers.max(1));
        let ranks = (1..=u64::from(dirs)).scan(0, |sum, rank| {
            *sum += 1_000_000 / rank;
            Some(*sum)
        });
        Box::new(Run { spec: *self, rng: Rng::new(seed), ranks: ranks.collect(), logs: [0; 2], done: None })
    }
}

fn file_bytes(class: u32, file: u32) -> u64 {
    u64::from(file + 1) * 1024 * 10u64.pow(class) / 10
}

fn name(class: u32, file: u32) -> String {
    format!("class{class}_{file}")
}

/// The logs, as numbers of open files; what is served is number 0.
const ACCESSES: u32 = 1;
const POSTS: u32 = 2;

struct Run {
    spec: Web,
    rng: Rng,
    /// Sums of the shares of directories.
    ranks: Vec<u64>,
    /// Bytes of the logs.
    logs: [u64; 2],
    /// Requests done; `None` before the files are there.
    done: Option<u64>,
}

impl Run {
    fn dir(n: u32) -> Dir {
        Dir(1 + n)
    }

    fn load(&self, out: &mut Vec<Op>) {
        out.push(Op::Phase("load"));
        let dirs = self.ranks.len() as u32;
        for dir in 0..dirs {
            out.push(Op::Mkdir { parent: Dir::ROOT, name: format!("dir{dir:05}"), dir: Run::dir(dir) });
            for (class, file) in (0..CLASSES).flat_map(|class| (0..FILES).map(move |file| (class, file))) {
                let len = file_bytes(class, file);
                out.push(Op::Create { dir: Run::dir(dir), name: name(class, file) });
                out.extend([Op::Write { offset: 0, len, io: 8192, tag: len }, Op::Close]);
            }
        }
        let logs = ["access_log", "post_log"];
        for name in logs {
            out.extend([Op::Create { dir: Dir::ROOT, name: name.into() }, Op::Close]);
        }
        out.extend([Op::Sync, Op::Remount, Op::Phase("warm-up")]);
        let enter = |dir| Op::Enter { parent: Dir::ROOT, name: format!("dir{dir:05}"), dir: Run::dir(dir) };
        out.extend((0..dirs).map(enter));
        for (file, name) in [ACCESSES, POSTS].into_iter().zip(logs) {
            out.extend([Op::Use { file }, Op::Open { dir: Dir::ROOT, name: name.into() }]);
        }
    }

    fn append(&mut self, out: &mut Vec<Op>, log: u32, len: u64) {
        let at = &mut self.logs[(log - ACCESSES) as usize];
        out.extend([Op::Use { file: log }, Op::Write { offset: *at, len, io: 8192, tag: *at }]);
        *at += len;
    }

    fn request(&mut self, out: &mut Vec<Op>) {
        let rank = self.rng.below(self.ranks.last().copied().unwrap_or(1));
        let dir = Run::dir(self.ranks.partition_point(|sum| *sum <= rank) as u32);
        let (class, file) = (shared(&mut self.rng, &OF_CLASS) as u32, shared(&mut self.rng, &OF_FILE) as u32);
        out.extend([Op::Think { ns: REQUEST_NS }, Op::Use { file: 0 }, Op::Open { dir, name: name(class, file) }]);
        out.extend([Op::Read { offset: 0, len: u64::MAX, io: 8192 }, Op::Close]);
        if self.rng.below(1000) < POSTED {
            self.append(out, POSTS, RECORD_BYTES);
        }
        self.append(out, ACCESSES, LINE_BYTES);
        out.push(Op::Done);
    }

    fn counts(&self) -> (u64, u64) {
        let of = |all: u64| all / u64::from(self.spec.servers.max(1));
        (of(self.spec.warm_up), of(self.spec.warm_up) + of(self.spec.requests))
    }
}

impl Program for Run {
    fn step(&mut self, out: &mut Vec<Op>) -> bool {
        let (warm_up, all) = self.counts();
        match self.done {
            None => self.load(out),
            Some(n) if n < all => {
                out.extend((n == warm_up).then_some(Op::Phase("requests")));
                self.request(out);
            }
            Some(n) if n == all => {
                out.extend([ACCESSES, POSTS].into_iter().flat_map(|file| [Op::Use { file }, Op::Close]));
                out.extend([Op::Phase("requests, rest"), Op::Sync]);
            }
            Some(_) => return false,
        }
        self.done = Some(self.done.map_or(0, |n| n + 1));
        true
    }

    fn progress(&self) -> (u64, u64) {
        let all = self.counts().1;
        (self.done.unwrap_or(0).min(all), all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory has five megabytes, and a request is for 14.7 KB on average, as SPEC says.
    #[test]
    fn it_is_what_it_says() {
        let of_class = |class| (0..FILES).map(|file| file_bytes(class, file)).sum::<u64>();
        let dir: u64 = (0..CLASSES).map(of_class).sum();
        assert!((5_000_000..5_200_000).contains(&dir), "{dir} bytes");
        let (mut ops, mut program) = (Vec::new(), Web::divided_by(4, 10).program(1));
        while program.step(&mut ops) {}
        let (mut bytes, mut requests) = (0, 0);
        for op in ops.iter().skip_while(|op| **op != Op::Remount) {
            if let Op::Open { name, .. } = op
                && let Some((class, file)) = name.strip_prefix("class").and_then(|rest| rest.split_once('_'))
            {
                bytes += file_bytes(class.parse().unwrap(), file.parse().unwrap());
                requests += 1;
            }
        }
        assert_eq!(requests, (RATE * 60 * 25 / 10) / 4);
        let mean = bytes / requests;
        assert!((13_500..16_500).contains(&mean), "{mean} bytes");
    }
}
