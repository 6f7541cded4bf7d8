//! Bounded exhaustive exploration: every sequence of one and of two operations over a small name
//! space, and a sample of those of three, each operation followed or not by a promise of
//! durability, from an empty, from an aged and from a full volume. Nearly all known crash bugs of file systems
//! show with so few (CrashMonkey and ACE, OSDI 2018). Of operations on names alone there are those of three, too.

use crate::config::{Config, Failure};
use crate::crash::{Base, Explored, From, Seen, try_sequence};
use crate::generate::Profile;
use crate::ops::{Op, parse};
use crate::rng::mix;
use crate::share::{Numbers, Share};
use arbor_base::vfs::{CrashPromise, Engine, Options};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Operations, one a line. Slot 0 holds `/a` of the aged volume where a line says so; `/big` there is full, and grows
/// with the next long name.
const ALPHABET: &str = "
    create /a 420 0
    create /d/a 420 0
    create /L1 384 7
    mkdir /d 493 0
    mkdir /d/e 1533 7
    symlink /s 40 1
    symlink /s 600 1
    mkfifo /p
    tmpfile / 1
    hold /a 0
    drop 0
    write /a 0 100 1
    write /a 0 5000 2
    write /a 4090 20 3
    write /a 0 70000 4
    write /a 1048576 10 5
    write /d/a 0 3000 6
    write @0 300 900 7
    append /a 300 8
    append /a 9000 9
    append /b 2000 10
    truncate /a 0
    truncate /a 50
    truncate /a 5000
    truncate /a 200000
    truncate /b 1
    fallocate /a 0 0 20000
    fallocate /a 1 8192 40000
    fallocate /a 3 0 4096
    fallocate /a 3 100 9000
    fallocate /a 16 2000 9000
    copy /a 0 /b 100 6000
    link /a /l
    link /a /d/l
    link /b /d/a
    unlink /a
    unlink /b
    unlink /d/a
    unlink /l
    rmdir /d
    rmdir /e
    rename /a /b 0
    rename /a /n 0
    rename /a /d/a 0
    rename /d/a /a 0
    rename /a /b 2
    rename /a /d/a 2
    rename /d /e 0
    rename /d /n 0
    rename /d /e/n 0
    rename /d /e 2
    create /big/L90 420 0
    link /a /big/L91
    rename /a /big/L92 0
    rename /d /big/L93 0
    rename /big/L3 /big/L94 0
    unlink /big/L3
    chmod /a 384
    chown /a 1 70000
    chmod /d 448
    utimes /a 5
    setxattr /a user.x0 20 11 0
    setxattr /a user.x1 255 12 0
    setxattr /a user.x0 3000 13 0
    removexattr /a user.x0
";

/// What may follow an operation; the first is nothing.
const PROMISES: &[&str] = &[
    "",
    "fsync /a 0",
    "fsync /a 1",
    "fsync / 0",
    "fsync /d 0",
    "syncfs",
    "background 6000",
    "background 28500; background 1000",
    "background 40000",
];

/// Operations on names only, of which more follow each other: where a file has one name that is on disk and others that
/// are not yet, any of which goes again.
const NAMES: &str = "
    link /a /n
    link /a /d/l
    link /n /e/n
    link /d/l /n
    rename /a /n 0
    rename /n /a 0
    rename /a /d/l 0
    rename /d/l /a 0
    rename /a /e/n 0
    rename /n /d/l 0
    rename /d/a /a 0
    rename /b /a 0
    rename /b /n 0
    rename /a /b 2
    rename /n /d/a 2
    rename /a /big/L91 0
    rename /big/L91 /n 0
    rename /d/a /big/L91 0
    rename /d /e/k 0
    rename /e/f /d/f 0
    rename /d /e 2
    mkdir /k 493 0
    rename /k /d/f 0
    rename /k /e/f 0
    link /a /k/l
    rename /d/a /k/a 0
    unlink /a
    unlink /n
    unlink /d/l
    unlink /e/n
    unlink /d/a
    create /n 420 0
    rmdir /e/f
    rmdir /d
    rmdir /k
    rename /d/a /e/n 0
    rename /k/a /e/n 0
    rename /n /e/n 0
    rename /e/f /d/n 0
    rename /e /d 0
    rename /e /n 2
";

/// What may follow one of them.
const LATER: &[&str] = &["", "create /q 420 0; fsync /q 0", "background 28500; background 1000", "background 40000"];

/// What is on the aged volume: files in every format and with a past, directories of both sizes.
const AGED: &str = "
    mkdir /d 493 0; mkdir /e 493 0; mkdir /e/f 493 0; mkdir /big 493 0
    create /a 420 0; write /a 0 12000 100; syncfs; write /a 4096 3000 101; truncate /a 11000
    create /b 420 0; write /b 0 60 102; link /b /l
    create /d/a 420 0; write /d/a 0 300 103; append /d/a 4000 104; setxattr /d/a user.x0 30 105 0
    setxattr /a user.x0 200 106 0; setxattr /b user.x1 60 107 0
    create /gone 420 0; write /gone 0 150000 108; syncfs; unlink /gone; background 40000
";

/// What takes more than three operations. `repeat` makes so many long names, and a log record or
/// two with each dozen.
const LISTS: &[&str] = &[
    "create /x 420 0; setxattr /x user.x0 3000 1 0; syncfs; removexattr /x user.x0; background 6000; \
     write /x 0 3000 2; fsync /x 0; append /x 9000 3; fsync /x 0",
    "mkdir /x 493 0; repeat /x 60; rmdir /x; syncfs; background 6000; create /y 420 0; write /y 0 30000 1; fsync /y 0",
    "mkdir /x 493 0; repeat /x 40; fsync /x 0; repeat /x/L0 3; unlink /x/L7; syncfs",
    "create /x 420 0; write /x 0 60000 1; syncfs; truncate /x 0; background 6000; mkdir /y 493 0; repeat /y 30; \
     background 6000; syncfs",
    "mkdir /x 493 0; repeat /x 90; background 40000; write /x/L3 0 5000 1; write /x/L4 0 5000 2; fsync /x/L4 0",
    "create /x 420 0; write /x 0 9000 1; create /y 420 0; write /y 0 300 2; create /z 420 0; syncfs; \
     write /x 0 9000 3; rename /x /y 0; fsync /z 0; background 40000",
    "create /x 420 0; write /x 0 90000 1; create /y 420 0; mkdir /z 493 0; hold /x 1; hold /y 2; hold /z 3; syncfs; \
     unlink /x; unlink /y; rmdir /z; fsync / 0; drop 2; background 40000",
    "create /x 420 0; fallocate /x 1 0 90000; syncfs; write /x 20000 3000 1; background 6000; write /x 5000 9001 2; \
     fsync /x 0; write /x 60000 20000 3; background 40000; fallocate /x 0 100000 30000; write /x 0 120000 4; fsync /x 0",
    "tmpfile / 1; write @1 0 20000 1; fsync @1 0; link @1 /x; fsync / 0; unlink /x; drop 1; background 6000; syncfs",
];

/// Lists after which a file has, or once had, a little more in its last block than a power cut may leave.
const ENDS: &[&str] = &[
    "create /x 420 0; write /x 0 100 1; syncfs; append /x 300 2; background 40000",
    "create /x 420 0; write /x 0 100 1; syncfs; write /x 0 100 9; syncfs; append /x 3000 2; background 40000",
    "create /x 420 0; write /x 0 5000 1; syncfs; truncate /x 4200; syncfs; append /x 300 2; fsync /x 0",
    "create /x 420 0; write /x 0 65236 1; syncfs; append /x 200 2; background 40000",
    "create /x 420 0; write /x 0 65436 1; syncfs; truncate /x 65236; background 40000",
    "create /x 420 0; write /x 0 200000 1; syncfs; append /x 300 2; background 40000",
];

/// Operations by which it grows over that, and lists of such.
const GROWTHS: &[&str] = &[
    "append /x 30 3",
    "truncate /x 110; background 40000; truncate /x 700",
    "truncate /x 110; append /x 3000 7",
    "truncate /x 4300",
    "truncate /x 65300",
    "truncate /x 70000",
    "truncate /x 300000",
    "write /x 0 65400 4",
    "write /x 0 100 4; truncate /x 110",
    "write /x 0 65236 4; append /x 30 7",
    "write /x 80000 10 5",
    "write /x 400000 10 6",
    "fallocate /x 0 0 65300",
    "fallocate /x 0 70000 8000",
    "fallocate /x 16 200 100000",
];

/// What may follow one of those.
const SETTLED: &[&str] = &["", "fsync /x 0", "syncfs", "background 40000"];

/// The first halves and the second halves of what happens to the end of a file.
pub(crate) fn ends() -> (Vec<Vec<Op>>, Vec<Vec<Op>>) {
    let read = |text: &str| parse(text).unwrap_or_else(|e| panic!("the end of a file: {e}"));
    let growths = GROWTHS.iter().flat_map(|g| SETTLED.iter().map(move |s| format!("{g}; {s}")));
    (ENDS.iter().map(|e| read(e)).collect(), growths.map(|g| read(&g)).collect())
}

/// The lists of `LISTS`, with `repeat` written out.
fn lists() -> Vec<Vec<Op>> {
    let each = |list: &&str| {
        let words = list.split(';').map(str::trim).flat_map(|word| match word.strip_prefix("repeat ") {
            None => vec![word.to_string()],
            Some(rest) => {
                let (dir, count) = rest.split_once(' ').unwrap_or((rest, "1"));
                (0..count.parse::<usize>().unwrap_or(1)).map(|n| format!("create {dir}/L{n} 420 0")).collect()
            }
        });
        parse(&words.collect::<Vec<_>>().join(";")).unwrap_or_else(|e| panic!("a list: {e}"))
    };
    LISTS.iter().map(each).collect()
}

/// Each operation of an alphabet with each of what may follow it.
fn words(alphabet: &str, following: &[&str]) -> Vec<Vec<Op>> {
    let read = |text: &str| parse(text).unwrap_or_else(|e| panic!("the alphabet: {e}"));
    let following: Vec<Vec<Op>> = following.iter().map(|p| read(p)).collect();
    read(alphabet)
        .iter()
        .flat_map(|op| following.iter().map(move |p| [std::slice::from_ref(op), &p[..]].concat()))
        .collect()
}

/// Every operation of the alphabet with every promise after it.
pub(crate) fn steps() -> Vec<Vec<Op>> {
    words(ALPHABET, PROMISES)
}

/// What sequences are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// So many operations of all sorts.
    Any(u32),
    /// So many operations on names.
    Names(u32),
    /// The lists made by hand.
    Lists,
}

impl Kind {
    /// The parts of sequences, and how many each has.
    pub(crate) fn parts(self) -> (Vec<Vec<Op>>, u32) {
        match self {
            Kind::Any(len) => (steps(), len),
            Kind::Names(len) => (words(NAMES, LATER), len),
            Kind::Lists => (lists(), 1),
        }
    }
}

fn aged() -> Vec<Op> {
    let mut ops = parse(AGED).unwrap_or_else(|e| panic!("the aged volume: {e}"));
    // Long names, so that few files make a directory of several blocks.
    for n in 0..24 {
        let path = crate::ops::Path::at(&["big", &format!("L{n}")]);
        ops.push(Op::Create { path, mode: 0o644, gid: 0 });
    }
    ops
}

/// The volume that sequences begin on.
pub(crate) fn base(engine: &dyn Engine, config: &Config, from: From) -> Result<Base, String> {
    if from == From::Empty { Base::fresh(engine, config) } else { Base::used(engine, config, from, &aged()) }
}

fn config() -> Config {
    Config { device_size: 16 << 20, ..Config::crash(Profile::Sync) }
}

/// Volumes of one sort, in the format of the engine's first shape: one for each of its mounts. Of those that promise less than
/// a prefix of a power cut, one for each promise.
pub(crate) fn volumes(engine: &dyn Engine, from: From) -> Result<Vec<Volume>, String> {
    let mut known = Vec::new();
    let (first, _) = engine.test_configurations().first().ok_or("the engine has no shapes")?;
    let mounts = engine.test_configurations().iter().filter(|(format, _)| format == first).map(|s| Options::parse(s.1));
    let ways = mounts.filter(|mount| {
        let promise = engine.crash_promise(mount);
        let new = promise == CrashPromise::Prefix || !known.contains(&promise);
        known.push(promise);
        new
    });
    ways.map(|mount| Config { format: Options::parse(first), mount, ..config() })
        .map(|config| Ok(Volume { base: Arc::new(base(engine, &config, from)?), config }))
        .collect()
}

/// A volume that sequences begin on, and how it is made.
#[derive(Clone)]
pub(crate) struct Volume {
    pub config: Config,
    pub base: Arc<Base>,
}

/// Sequences of a fixed length from volumes of one sort, of each in turn; shared by threads.
pub(crate) struct Spaces<'a> {
    all: Vec<Space<'a>>,
    turn: AtomicU64,
}

impl<'a> Spaces<'a> {
    /// At most `total` sequences of a kind from each of `volumes`, beginning with number `first`.
    pub fn new(
        engine: &'a dyn Engine,
        kind: Kind,
        (volumes, first): (&[Volume], u64),
        total: u64,
        seed: u64,
    ) -> Spaces<'a> {
        let budget = if kind == Kind::Lists { 3000 / volumes.len().max(1) } else { 64 };
        let space = |volume: &Volume| Space::new(engine, kind, volume.clone(), (total, budget), seed);
        let all = volumes.iter().map(space).collect();
        Spaces { all, turn: AtomicU64::new(first) }
    }

    /// Counts failing states instead of stopping at the first.
    pub fn keep_going(mut self, keep_going: bool) -> Spaces<'a> {
        self.all.iter_mut().for_each(|s| s.config.keep_going = keep_going);
        self
    }

    /// Explores a share of them only.
    pub fn share(mut self, share: Share) -> Spaces<'a> {
        self.all.iter_mut().for_each(|s| s.numbers.only(share));
        self
    }

    /// Explores the next sequence that nobody has taken; `None` when there is none left.
    pub fn step(&self, done: &mut Explored) -> Option<Result<(), Box<Failure>>> {
        let (turn, count) = (self.turn.fetch_add(1, Relaxed) as usize, self.all.len());
        (0..count).find_map(|i| self.all[(turn + i) % count].step(done))
    }
}

/// Sequences of a fixed length from one volume; shared by threads.
struct Space<'a> {
    engine: &'a dyn Engine,
    config: Config,
    base: Arc<Base>,
    seen: Seen,
    steps: Vec<Vec<Op>>,
    /// Steps in a sequence.
    len: u32,
    /// How many sequences there are.
    all: u64,
    /// Those to give out.
    numbers: Numbers,
    /// Between one and the next: has no factor in common with the number of sequences, so that
    /// every part of the whole is a fair sample.
    stride: u64,
}

impl<'a> Space<'a> {
    /// The sequences of a kind from a volume; at most `total` of them, spread evenly.
    fn new(
        engine: &'a dyn Engine,
        kind: Kind,
        Volume { config, base }: Volume,
        (total, budget): (u64, usize),
        seed: u64,
    ) -> Space<'a> {
        let config = Config { budget, seed, ..config };
        let (steps, len) = kind.parts();
        let all = (steps.len() as u64).saturating_pow(len);
        let mut stride = (all as f64 * 0.618) as u64 | 1;
        while gcd(stride, all) != 1 {
            stride += 2;
        }
        let numbers = Numbers::below(total.min(all));
        Space { engine, config, base, seen: Seen::default(), steps, len, all, numbers, stride }
    }

    /// The operations of sequence `number`.
    fn sequence(&self, number: u64) -> Vec<Op> {
        let each = self.steps.len() as u64;
        let start = u128::from(mix(self.config.seed)) + u128::from(number) * u128::from(self.stride);
        let mut at = (start % u128::from(self.all)) as u64;
        let mut ops = Vec::new();
        for _ in 0..self.len {
            ops.extend_from_slice(&self.steps[(at % each) as usize]);
            at /= each;
        }
        ops
    }

    fn step(&self, done: &mut Explored) -> Option<Result<(), Box<Failure>>> {
        let number = self.numbers.take()?;
        let ops = self.sequence(number);
        Some(try_sequence(self.engine, &self.config, &self.base, &self.seen, &ops, number, done))
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_parses_and_counts() {
        assert!(steps().len() > 400);
        assert!(words(NAMES, LATER).len() > 90);
        assert!(aged().len() > 40);
        assert!(lists().iter().all(|l| l.len() > 5));
    }
}
