//! Years of a server's daily turnover, and how well files are created and read on what it leaves: the question of Seltzer,
//! Smith and others, "File System Logging Versus Clustering", USENIX 1995, section 5.
//!
//! The paper's authors took snapshots of the file systems of a university every day, and laid the free space of some of
//! them out on a test disk. The snapshots are not to be had; here the days are made from a seed. There are three
//! [`Purpose`]s of file systems, of those that the paper describes:
//!
//! * *news*: articles arrive in some two hundred groups, a directory each, and once a day the oldest leave, so many as
//!   space is needed for those that come, and those of some groups sooner than those of others; the whole file system is
//!   replaced every four weeks.
//! * *home*: users edit files, which makes a new one and removes the old, mostly such that were made lately; make and
//!   remove temporary ones; and make ever new ones. After half a year some users leave, and all in their directories goes.
//! * *software*: packages are installed; each month a few are replaced by a newer version.
//!
//! A program makes the days from one date to another, and then runs the sequential benchmark of the paper: files of one
//! size are created, 25 in a directory, then read with nothing cached, and removed; for each of three sizes. Programs of
//! dates that follow one another go on where the one before has ended. That of date 0 finds nothing but an empty volume:
//! what the others are compared with.
//!
//! What the paper leaves open is chosen so: sizes of news are lognormal with a mean of 3 KB; those of home and software
//! are of G. Irlam's survey of 12 million files on Unix systems, November 1993 (the time of the paper), without the
//! largest ones, of which the volume has no room; news are replaced every four weeks on average; of home a hundredth is
//! written each day; of software a fortieth of the packages is replaced each month. A month has 30 days.
//!
//! All directories are in the root. The file systems of the time put each new directory in the group with the fewest;
//! our FFS does so with those in the root, and puts others near their parent.

use crate::draw::{Classes, LogNormal, unit};
use crate::op::{Dir, Op, Program};
use arbor_torture::rng::Rng;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Days of a month.
const MONTH: u32 = 30;
/// Unit in which space is counted, bytes: a fragment.
const FRAGMENT: u64 = 1024;
/// Unit of the calls that write, bytes.
const IO_BYTES: u32 = 64 << 10;
/// Files in a directory of the benchmark.
const FILES_PER_DIR: u64 = 25;
/// The first number of the benchmark's directories.
const PROBE_DIR: u32 = 1 << 30;

/// Files by size, of 0, 1, 2, 4 ... bytes at most: G. Irlam, "Unix File Size Survey", 1993, up to 8 MiB.
const SURVEY: Classes = Classes(&[
    147_479, 3_288, 5_740, 10_234, 21_217, 67_144, 231_970, 282_079, 278_731, 512_897, 1_284_617, 1_808_526, 2_397_908,
    1_717_869, 1_144_688, 865_126, 574_651, 348_280, 194_864, 112_967, 58_644, 32_286, 16_140, 7_221, 2_475,
]);

/// What a file system is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Small files, rapidly replaced.
    News,
    /// The files of users.
    Home,
    /// Installed software.
    Software,
}

impl Purpose {
    /// The size of a file, bytes.
    fn size(self, rng: &mut Rng) -> u64 {
        match self {
            Purpose::News => LogNormal { mu: 7.5, sigma: 1.0 }.draw(rng) as u64 + 1,
            Purpose::Home | Purpose::Software => SURVEY.draw(rng),
        }
    }

    /// The largest size, bytes, if the volume has room for it.
    fn largest(self) -> u64 {
        match self {
            Purpose::News => 256 << 10,
            Purpose::Home | Purpose::Software => 8 << 20,
        }
    }

    /// Directories at the beginning.
    fn dirs(self) -> u32 {
        match self {
            Purpose::News => 200,
            Purpose::Home => 216,
            Purpose::Software => 0,
        }
    }
}

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turnover {
    /// What the file system is for.
    pub purpose: Purpose,
    /// What its files may fill altogether, bytes.
    pub capacity_bytes: u64,
    /// How full it gets, hundredths of that.
    pub full: u32,
    /// Months that have passed when the program begins. On the first day the volume is filled.
    pub from: u32,
    /// Months that have passed when the benchmark is run.
    pub to: u32,
    /// Days of a month that happen.
    pub days: u32,
    /// What the benchmark's files of each size hold, bytes.
    pub probe_bytes: u64,
}

impl Default for Turnover {
    fn default() -> Turnover {
        Turnover {
            purpose: Purpose::Home,
            capacity_bytes: 128 << 20,
            full: 80,
            from: 0,
            to: 1,
            days: MONTH,
            probe_bytes: 4 << 20,
        }
    }
}

/// Sizes of the benchmark's files, with the names of the phases in which they are created and read.
pub const PROBES: [(u64, &str, &str); 3] = [
    (16 << 10, "create 16 KB", "read 16 KB"),
    (64 << 10, "create 64 KB", "read 64 KB"),
    (1 << 20, "create 1 MB", "read 1 MB"),
];

impl Turnover {
    /// The phases of days, and of what is between those of [`PROBES`].
    pub const PHASES: [&str; 2] = ["days", "between"];

    /// Makes the program.
    pub fn program(&self, seed: u64) -> Box<dyn Program> {
        let all = Turnover { from: 0, to: 0, ..*self };
        let kept =
            PASSED.take().filter(|(of, seed_of, run)| (*of, *seed_of) == (all, seed) && run.day <= self.first_day());
        let mut run = kept.map_or_else(|| Run::new(*self, seed), |(.., run)| Run { spec: *self, ..run });
        let mut passed = Vec::new();
        while run.day < self.first_day() {
            run.day(&mut passed);
            passed.clear();
        }
        PASSED.set(Some((all, seed, run.clone())));
        Box::new(run)
    }

    fn first_day(&self) -> u32 {
        if self.from > 0 { self.from * self.days + 1 } else { 0 }
    }

    /// The day after the last.
    fn end_day(&self) -> u32 {
        if self.to > 0 { self.to * self.days + 1 } else { 0 }
    }
}

thread_local! {
    /// Where the program made last begins, so that the one of the next date need not make all days before it again.
    static PASSED: Cell<Option<(Turnover, u64, Run)>> = const { Cell::new(None) };
}

/// A file that is there.
#[derive(Clone, Copy, Debug)]
struct File {
    dir: u32,
    name: u64,
    bytes: u64,
}

/// The files in order of which is to go first.
#[derive(Clone, Default)]
struct Store {
    /// By the day and the number of the file.
    files: BTreeMap<(u32, u64), File>,
    /// Space that they take, bytes.
    used_bytes: u64,
}

impl Store {
    fn add(&mut self, key: u32, file: File) {
        self.used_bytes += space(file.bytes);
        self.files.insert((key, file.name), file);
    }

    fn remove(&mut self, key: (u32, u64)) -> Option<File> {
        let file = self.files.remove(&key)?;
        self.used_bytes -= space(file.bytes);
        Some(file)
    }

    fn first(&self) -> Option<(u32, u64)> {
        self.files.keys().next().copied()
    }
}

/// Space that so many bytes take.
fn space(bytes: u64) -> u64 {
    bytes.next_multiple_of(FRAGMENT)
}

#[derive(Clone)]
struct Run {
    spec: Turnover,
    rng: Rng,
    store: Store,
    /// Files in the order in which they were made, those of users that may be edited; some may be gone.
    known: Vec<(u32, u64)>,
    /// How long articles of each group stay, days.
    stays: Vec<u32>,
    files_made: u64,
    dirs_made: u32,
    packages: Vec<Package>,
    /// Days that have passed; the first is that on which the file system is filled.
    day: u32,
    /// The size of the benchmark that comes next.
    probe: usize,
}

/// A directory of software.
#[derive(Clone)]
struct Package {
    dir: u32,
    files: Vec<File>,
}

impl Run {
    fn new(spec: Turnover, seed: u64) -> Run {
        Run {
            spec,
            rng: Rng::new(seed),
            store: Store::default(),
            known: Vec::new(),
            stays: Vec::new(),
            files_made: 0,
            dirs_made: 0,
            packages: Vec::new(),
            day: 0,
            probe: 0,
        }
    }

    // The benchmark.

    fn probe(&self, (size, create, read): (u64, &'static str, &'static str), out: &mut Vec<Op>) {
        let files = (self.spec.probe_bytes / size).max(1);
        let io = size as u32;
        let dir = |n: u64| Dir(PROBE_DIR + (n / FILES_PER_DIR) as u32);
        let name = |n: u64| n.to_string();
        out.push(Op::Phase(create));
        for n in 0..files {
            if n.is_multiple_of(FILES_PER_DIR) {
                let name = format!("probe{}", n / FILES_PER_DIR);
                out.push(Op::Mkdir { parent: Dir::ROOT, name, dir: dir(n) });
            }
            out.push(Op::Create { dir: dir(n), name: name(n) });
            out.extend([Op::Write { offset: 0, len: size, io, tag: n }, Op::Close]);
        }
        out.extend([Op::Sync, Op::Phase(Turnover::PHASES[1]), Op::Remount, Op::Phase(read)]);
        for n in 0..files {
            out.push(Op::Open { dir: dir(n), name: name(n) });
            out.extend([Op::Read { offset: 0, len: size, io }, Op::Close]);
        }
        out.push(Op::Phase(Turnover::PHASES[1]));
        for n in 0..files {
            out.push(Op::Unlink { dir: dir(n), name: name(n) });
            if (n + 1).is_multiple_of(FILES_PER_DIR) || n + 1 == files {
                out.push(Op::Rmdir { dir: dir(n) });
            }
        }
        out.push(Op::Sync);
    }

    // The days.

    fn size(&mut self) -> u64 {
        let largest = self.largest();
        loop {
            let size = self.spec.purpose.size(&mut self.rng);
            if size <= largest {
                return size;
            }
        }
    }

    fn largest(&self) -> u64 {
        self.spec.purpose.largest().min(self.spec.capacity_bytes / 32)
    }

    /// How much space the files may take today: that of users grows for half a year by a tenth, and at the beginning it
    /// has grown for a quarter, so that the ends of years lie between two removals.
    fn allowed_bytes(&self) -> u64 {
        let full = self.spec.capacity_bytes / 100 * u64::from(self.spec.full);
        match self.spec.purpose {
            Purpose::Home => {
                let period = 6 * self.spec.days.max(1);
                let passed = (self.day + period / 2) % period + 1;
                full / 10 * 9 + full / 10 * u64::from(passed) / u64::from(period)
            }
            Purpose::News | Purpose::Software => full,
        }
    }

    fn make_dirs(&mut self, out: &mut Vec<Op>) {
        for n in 0..self.spec.purpose.dirs() {
            self.mkdir(format!("d{n}"), out);
        }
        self.stays = (0..self.dirs_made).map(|_| 14 + self.rng.below(29) as u32).collect();
    }

    fn mkdir(&mut self, name: String, out: &mut Vec<Op>) -> u32 {
        self.dirs_made += 1;
        out.push(Op::Mkdir { parent: Dir::ROOT, name, dir: Dir(self.dirs_made) });
        self.dirs_made
    }

    fn create(&mut self, dir: u32, bytes: u64, out: &mut Vec<Op>) -> File {
        self.files_made += 1;
        let file = File { dir, name: self.files_made, bytes };
        out.push(Op::Create { dir: Dir(dir), name: file.name.to_string() });
        out.push(Op::Write { offset: 0, len: bytes, io: IO_BYTES, tag: file.name });
        out.push(Op::Close);
        file
    }

    fn day(&mut self, out: &mut Vec<Op>) {
        let is_first = self.day == 0;
        if is_first {
            self.make_dirs(out);
        }
        match self.spec.purpose {
            Purpose::News => self.news(is_first, out),
            Purpose::Home => self.home(is_first, out),
            Purpose::Software => self.software(is_first, out),
        }
        out.push(Op::Sync);
        self.day += 1;
    }

    /// What should leave first leaves at once, group by group, as a news server does once a day. Then articles arrive.
    fn news(&mut self, is_first: bool, out: &mut Vec<Op>) {
        let allowed = self.allowed_bytes();
        let arriving = if is_first { allowed } else { allowed / 28 };
        let mut arrived = 0;
        self.expire(allowed - arriving, out);
        while arrived < arriving {
            let bytes = self.size();
            // A few groups have most articles.
            let group = (unit(&mut self.rng) * unit(&mut self.rng) * self.stays.len() as f64) as usize;
            let group = group.min(self.stays.len() - 1);
            let file = self.create(group as u32 + 1, bytes, out);
            // Of what is there at the beginning, all ages are.
            let age = if is_first { self.rng.below(self.stays[group].into()) as u32 } else { 0 };
            self.store.add(self.day + self.stays[group] - age, file);
            arrived += space(bytes);
        }
    }

    /// Removes articles, so that others have room.
    fn expire(&mut self, allowed: u64, out: &mut Vec<Op>) {
        let mut gone = Vec::new();
        while self.store.used_bytes > allowed {
            let Some(key) = self.store.first() else { break };
            gone.extend(self.store.remove(key));
        }
        gone.sort_by_key(|file| (file.dir, file.name));
        out.extend(gone.iter().map(unlink));
    }

    /// Users edit and make files, and remove some.
    fn home(&mut self, is_first: bool, out: &mut Vec<Op>) {
        let allowed = self.allowed_bytes();
        let to_write = if is_first { allowed } else { allowed / 100 };
        let (mut written, mut passing, mut temporary) = (0, 0, Vec::new());
        while written < to_write {
            let bytes = self.size();
            let dir = 1 + self.rng.below(self.dirs_made.into()) as u32;
            self.make_room(allowed.saturating_sub(passing + space(bytes)), out);
            match self.rng.below(10) {
                _ if is_first => self.keep(dir, bytes, out),
                0..5 => self.edit(out),
                5..8 => {
                    passing += space(bytes);
                    temporary.push(self.create(dir, bytes, out));
                }
                _ => self.keep(dir, bytes, out),
            }
            written += space(bytes);
        }
        out.extend(temporary.iter().map(unlink));
    }

    fn keep(&mut self, dir: u32, bytes: u64, out: &mut Vec<Op>) {
        let file = self.create(dir, bytes, out);
        self.known.push((self.day, file.name));
        self.store.add(self.day, file);
    }

    /// A file is written anew, a little longer or shorter, before the old one is removed.
    fn edit(&mut self, out: &mut Vec<Op>) {
        let Some(old) = self.choose() else { return };
        let bytes = (old.bytes * (80 + self.rng.below(41)) / 100 + 1).min(self.largest());
        self.keep(old.dir, bytes, out);
        out.push(unlink(&old));
    }

    fn make_room(&mut self, allowed: u64, out: &mut Vec<Op>) {
        // After half a year users leave, and all that is in their directories goes.
        while self.store.used_bytes > allowed / 100 * 103 {
            let dir = 1 + self.rng.below(self.dirs_made.into()) as u32;
            let mine = self.store.files.iter().filter(|(_, file)| file.dir == dir).map(|(key, _)| *key);
            for key in mine.collect::<Vec<_>>() {
                out.extend(self.store.remove(key).iter().map(unlink));
            }
        }
        while self.store.used_bytes > allowed {
            let Some(file) = self.choose() else { break };
            out.push(unlink(&file));
        }
    }

    /// Takes a file out of the store, mostly one of those made lately.
    fn choose(&mut self) -> Option<File> {
        while !self.known.is_empty() {
            let all = self.known.len() as u64;
            let lately = (all / 10).max(1);
            let at = if self.rng.below(10) < 7 { all - 1 - self.rng.below(lately) } else { self.rng.below(all) };
            let key = self.known.remove(at as usize);
            if let Some(file) = self.store.remove(key) {
                return Some(file);
            }
        }
        None
    }

    /// Packages are installed, and on the first day of a month some replaced.
    fn software(&mut self, is_first: bool, out: &mut Vec<Op>) {
        let allowed = self.allowed_bytes();
        while is_first && self.has_room(allowed) {
            self.install(allowed, out);
        }
        if is_first || !self.day.is_multiple_of(self.spec.days) {
            return;
        }
        for _ in 0..self.packages.len().div_ceil(40) {
            let at = self.rng.below(self.packages.len() as u64) as usize;
            let old = self.packages.remove(at);
            for file in &old.files {
                self.store.remove((0, file.name));
                out.push(unlink(file));
            }
            out.push(Op::Rmdir { dir: Dir(old.dir) });
            while self.has_room(allowed) {
                self.install(allowed, out);
            }
        }
    }

    /// Whether most files would fit.
    fn has_room(&self, allowed: u64) -> bool {
        self.store.used_bytes + (64 << 10) <= allowed
    }

    /// Installs a package of 5 to 100 files, without those that are larger than what is left.
    fn install(&mut self, allowed: u64, out: &mut Vec<Op>) {
        let dir = self.mkdir(format!("p{}", self.dirs_made), out);
        let mut files = Vec::new();
        for _ in 0..5 + self.rng.below(96) {
            let bytes = self.size();
            if self.store.used_bytes + space(bytes) <= allowed {
                let file = self.create(dir, bytes, out);
                self.store.add(0, file);
                files.push(file);
            }
        }
        self.packages.push(Package { dir, files });
    }
}

fn unlink(file: &File) -> Op {
    Op::Unlink { dir: Dir(file.dir), name: file.name.to_string() }
}

impl Program for Run {
    fn step(&mut self, out: &mut Vec<Op>) -> bool {
        if self.day < self.spec.end_day() {
            if self.day == self.spec.first_day() {
                out.push(Op::Phase(Turnover::PHASES[0]));
            }
            self.day(out);
            return true;
        }
        let probe = PROBES.get(self.probe);
        probe.iter().for_each(|probe| self.probe(**probe, out));
        self.probe += 1;
        probe.is_some()
    }

    fn progress(&self) -> (u64, u64) {
        let (first, end) = (self.spec.first_day(), self.spec.end_day());
        let days = |from: u32, to: u32| u64::from(to.saturating_sub(from));
        let probes = PROBES.len() as u64;
        (days(first, self.day) + (self.probe as u64).min(probes), days(first, end) + probes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustc_hash::FxHashMap;

    fn ops(purpose: Purpose) -> Vec<Op> {
        let mut ops = Vec::new();
        for (from, to) in [(0, 0), (0, 1), (1, 3)] {
            let (capacity_bytes, probe_bytes) = (20 << 20, 2 << 20);
            let spec = Turnover { purpose, capacity_bytes, from, to, days: 10, probe_bytes, ..Turnover::default() };
            let mut program = spec.program(1);
            while program.step(&mut ops) {}
            let (done, total) = program.progress();
            assert_eq!(done, total);
        }
        ops
    }

    /// The space that files take after each operation, with whether the benchmark runs; what is removed must be there.
    fn replay(ops: &[Op]) -> Vec<(bool, u64)> {
        let mut files = FxHashMap::default();
        let (mut open, mut used, mut probes, mut states) = (None, 0, true, Vec::new());
        for op in ops {
            match op {
                Op::Phase(name) => probes = *name != Turnover::PHASES[0],
                Op::Create { dir, name } => {
                    open = Some((*dir, name.clone()));
                    assert!(files.insert((*dir, name.clone()), 0).is_none());
                }
                Op::Write { len, .. } => {
                    used += space(*len);
                    files.insert(open.clone().unwrap(), space(*len));
                }
                Op::Unlink { dir, name } => used -= files.remove(&(*dir, name.clone())).unwrap(),
                _ => {}
            }
            states.push((probes, used));
        }
        states
    }

    #[test]
    fn it_is_as_full_as_it_should_be() {
        for purpose in [Purpose::News, Purpose::Home, Purpose::Software] {
            let ops = ops(purpose);
            let states = replay(&ops);
            let most = states.iter().filter(|s| !s.0).map(|s| s.1).max().unwrap() as f64 / (20 << 20) as f64;
            let at_the_end = states.last().unwrap().1 as f64 / (20 << 20) as f64;
            assert!((0.75..0.95).contains(&most), "{purpose:?}: at most {most}");
            assert!((0.70..0.92).contains(&at_the_end), "{purpose:?}: at the end {at_the_end}");
        }
    }

    #[test]
    fn turnover_is_that_of_the_kind() {
        let written = |purpose: Purpose| {
            let (mut is_day, mut sum) = (false, 0);
            for op in ops(purpose) {
                match op {
                    Op::Phase(name) => is_day = name == Turnover::PHASES[0],
                    Op::Write { len, .. } if is_day => sum += space(len),
                    _ => {}
                }
            }
            sum as f64 / (16 << 20) as f64
        };
        // Once to fill it, and then 30 days.
        let (news, home, software) = (written(Purpose::News), written(Purpose::Home), written(Purpose::Software));
        assert!((news - (1.0 + 30.0 / 28.0)).abs() < 0.2, "{news}");
        assert!((1.2..1.5).contains(&home), "{home}");
        assert!((1.0..1.35).contains(&software), "{software}");
    }

    #[test]
    fn the_benchmark_is_run_on_each_date() {
        let ops = ops(Purpose::Home);
        for (size, create, read) in PROBES {
            let parts: Vec<&[Op]> = ops.split(|op| matches!(op, Op::Phase(_))).skip(1).collect();
            let names: Vec<&str> =
                ops.iter().filter_map(|op| if let Op::Phase(name) = op { Some(*name) } else { None }).collect();
            let of = |wanted: &str| -> Vec<&[Op]> {
                names.iter().zip(&parts).filter(|(name, _)| **name == wanted).map(|(_, part)| *part).collect()
            };
            assert_eq!((of(create).len(), of(read).len()), (3, 3));
            for part in of(read) {
                let reads = part.iter().filter(|op| matches!(op, Op::Read { len, .. } if *len == size)).count() as u64;
                assert_eq!(reads * size, 2 << 20);
            }
        }
    }
}
