//! Draws operations from a seed.

use crate::line::one_of;
use crate::ops::{Op, Path};
use crate::rng::Rng;
use std::collections::VecDeque;
use std::fmt;

/// Slots for held references.
pub const SLOTS: u8 = 4;

/// What a sequence dwells on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Many small files, every operation.
    #[default]
    Small,
    /// A few files with many extents.
    Big,
    /// Directories with hundreds to thousands of names.
    Dirs,
    /// As `Big`, with more data than a small device holds.
    Full,
    /// As `Small` with every fourth operation a promise of durability, for the crash explorer.
    Sync,
    /// A few files whose blocks are written over, so that a log goes round and is cleaned.
    Churn,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 6] =
        [Profile::Small, Profile::Big, Profile::Dirs, Profile::Full, Profile::Sync, Profile::Churn];

    fn shape(self) -> Shape {
        match self {
            Profile::Small => Shape { dirs: 4, files: 8, region: 64 << 10, deep: true },
            Profile::Sync => Shape { dirs: 2, files: 6, region: 32 << 10, deep: true },
            Profile::Big => Shape { dirs: 1, files: 4, region: 2 << 20, deep: false },
            Profile::Dirs => Shape { dirs: 3, files: 3000, region: 4 << 10, deep: false },
            Profile::Churn => Shape { dirs: 2, files: 12, region: 160 << 10, deep: false },
            Profile::Full => Shape { dirs: 3, files: 30, region: 4 << 20, deep: false },
        }
    }
}

impl std::str::FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Profile, String> {
        one_of(Profile::ALL, text)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The name space and the part of each file that data falls into; together they bound what a
/// sequence can fill.
struct Shape {
    dirs: u64,
    files: u64,
    region: u64,
    deep: bool,
}

struct Draw {
    rng: Rng,
    shape: Shape,
    profile: Profile,
    /// Whether many names are long: directories grow with every few of them.
    long: bool,
    /// Whether many files are made with their contents.
    puts: bool,
    tag: u64,
    /// Names made lately, so that most operations meet a file.
    recent: VecDeque<Path>,
    /// Those among them that ought to be regular files.
    files: VecDeque<Path>,
    walks: [Path; 2],
    /// The file that got the last extended attribute.
    marked: Path,
}

/// Of so many operations of a list with scenes one begins a scene.
const SCENES: u64 = 10;
/// Lengths of files that are made with their contents.
const PUTS: &[usize] = &[0, 1, 20, 125, 250, 256, 257, 1000, 1024, 1025, 3000, 4096, 9000];
/// How many names are remembered as made lately.
const RECENT: usize = 24;

fn remember(list: &mut VecDeque<Path>, path: &Path) {
    list.push_back(path.clone());
    if list.len() > RECENT {
        list.pop_front();
    }
}

/// `count` operations of `profile` from `seed`. The same arguments give the same list.
pub fn generate(profile: Profile, seed: u64, count: usize) -> Vec<Op> {
    let (shape, recent, files) = (profile.shape(), VecDeque::new(), VecDeque::new());
    let walks = [Path::at(&[]), Path::at(&["d0"])];
    // Not drawn: lists of older seeds stay as they were, but for these names.
    let (long, scenes, puts) = (seed % 4 == 1, seed % 4 == 2, seed % 4 == 3);
    let mut draw =
        Draw { rng: Rng::new(seed), shape, profile, long, puts, tag: 0, recent, files, walks, marked: Path::at(&[]) };
    let dirs = (0..draw.shape.dirs).map(|d| Op::Mkdir { path: Path::at(&[&format!("d{d}")]), mode: 0o755, gid: 0 });
    let mut ops: Vec<Op> = dirs.collect();
    while ops.len() < count {
        if scenes && draw.rng.one_in(SCENES) {
            ops.extend(draw.scene());
        }
        let op = draw.op();
        ops.push(op);
    }
    ops.truncate(count);
    ops
}

impl Draw {
    fn op(&mut self) -> Op {
        self.tag += 1;
        if self.profile == Profile::Churn && self.rng.one_in(6) {
            return Op::Clean { bytes: *self.rng.pick(&[1, 256 << 10, 1 << 20]) };
        }
        let weights = match self.profile {
            Profile::Small => [26, 22, 8, 16, 8, 12, 8],
            Profile::Sync => [18, 22, 8, 16, 8, 2, 26],
            Profile::Big => [8, 60, 12, 4, 3, 3, 10],
            Profile::Dirs => [50, 4, 2, 24, 1, 14, 5],
            Profile::Churn => [10, 60, 4, 8, 2, 2, 14],
            Profile::Full => [16, 56, 8, 8, 3, 3, 6],
        };
        let mut at = self.rng.below(weights.iter().sum());
        let class = weights
            .iter()
            .position(|w| {
                at < *w || {
                    at -= w;
                    false
                }
            })
            .unwrap_or(0);
        match class {
            0 => self.make(),
            1 => self.write(),
            2 => self.reshape(),
            3 => self.names(),
            4 => self.attributes(),
            5 => self.look(),
            _ => self.sync(),
        }
    }

    /// What single operations seldom make in this order: a file that was synced is written over and takes the name of
    /// another; or files that are open are removed, and their names go from the disk.
    fn scene(&mut self) -> Vec<Op> {
        let (from, to, other) = (self.file(), self.file(), self.file());
        let (offset, len, tag, slot) = (self.near(), self.len(), self.tag, self.slot());
        let write = |tag| Op::Write { path: from.clone(), offset, len, tag };
        let sync = |path: &Path| Op::Fsync { path: path.clone(), data_only: 0 };
        if self.rng.one_in(3) {
            let hold = |path: &Path, slot| Op::Hold { path: path.clone(), slot };
            let unlink = |path: &Path| Op::Unlink { path: path.clone() };
            let holds = [hold(&from, slot), hold(&to, (slot + 1) % SLOTS)];
            return holds.into_iter().chain([unlink(&from), unlink(&to), sync(&Path::at(&[]))]).collect();
        }
        self.tag += 1;
        let rename = Op::Rename { from: from.clone(), to, flags: 0 };
        vec![write(tag), sync(&from), write(self.tag), rename, sync(&other)]
    }

    fn make(&mut self) -> Op {
        let (path, gid) = (self.name(), *self.rng.pick(&[0, 0, 7]));
        self.recall(&path);
        let heavy = matches!(self.profile, Profile::Big | Profile::Full | Profile::Churn);
        match self.rng.below(if heavy { 10 } else { 16 }) {
            0..=8 => {
                remember(&mut self.files, &path);
                let mode = *self.rng.pick(&[0o644, 0o600, 0o755, 0]);
                // Not drawn, for the same reason.
                match self.puts && self.tag % 2 == 1 {
                    true => Op::Put { path, mode, gid, len: PUTS[self.tag as usize / 2 % PUTS.len()], tag: self.tag },
                    false => Op::Create { path, mode, gid },
                }
            }
            9..=11 => Op::Mkdir { path: self.dir_name(), mode: *self.rng.pick(&[0o755, 0o700, 0o2775, 0o1777]), gid },
            12 | 13 => {
                Op::Symlink { path, len: *self.rng.pick(&[1, 5, 31, 59, 60, 61, 127, 255, 1023, 4095]), tag: self.tag }
            }
            14 => Op::Mkfifo { path },
            _ if self.rng.one_in(2) => Op::Mkdev { path, rdev: self.rng.below(1 << 20) as u32 },
            _ => Op::Tmpfile { dir: self.dir(), slot: self.slot() },
        }
    }

    fn write(&mut self) -> Op {
        let (path, tag) = (self.file(), self.tag);
        match self.rng.below(20) {
            0..=3 => Op::Append { path, len: self.len(), tag },
            4..=6 => Op::Read { path, offset: self.offset(), len: self.len() },
            _ => Op::Write { path, offset: self.offset(), len: self.len(), tag },
        }
    }

    fn reshape(&mut self) -> Op {
        let path = self.file();
        match self.rng.below(12) {
            0..=4 => Op::Truncate { path, size: if self.rng.one_in(3) { 0 } else { self.offset() } },
            5..=8 => {
                let mode = *self.rng.pick(&[0, 1, 3, 3, 16, 17]);
                Op::Fallocate { path, mode, offset: self.near(), len: self.len() as u64 }
            }
            9 | 10 => {
                let (from_offset, to_offset, len) = (self.near(), self.near(), self.len() as u64);
                Op::Copy { from: path, from_offset, to: self.file(), to_offset, len }
            }
            _ => Op::Seek { path, offset: self.offset(), whence: self.rng.below(2) as u8 },
        }
    }

    fn names(&mut self) -> Op {
        let path = self.known();
        match self.rng.below(21) {
            0..=5 => Op::Unlink { path },
            6 | 7 => Op::Rmdir { path: self.dir_name() },
            8 | 9 => Op::Link { from: self.file(), to: self.target() },
            10 | 11 => Op::Rename { from: self.dir_name(), to: self.dir_name(), flags: self.flags() },
            12 => Op::Rename { from: self.dir_name(), to: path, flags: self.flags() },
            13..=16 => Op::Rename { from: path, to: self.target(), flags: self.flags() },
            17..=19 => Op::Hold { path, slot: self.slot() },
            _ => Op::Drop { slot: self.slot() },
        }
    }

    fn flags(&mut self) -> u32 {
        *self.rng.pick(&[0, 0, 0, 1, 2, 2])
    }

    fn attributes(&mut self) -> Op {
        let path = if self.rng.one_in(2) { self.marked.clone() } else { self.any() };
        let name = format!("user.x{}", self.rng.below(2));
        match self.rng.below(14) {
            0 | 1 => Op::Chmod { path, mode: *self.rng.pick(&[0o644, 0o600, 0o777, 0]) },
            2 | 3 => Op::Chown { path, uid: self.rng.below(3) as u32, gid: self.rng.below(70000) as u32 },
            4 => Op::Utimes { path, secs: *self.rng.pick(&[0, -1, 1 << 31, 1 << 33, 1_700_000_000]) },
            5..=10 => {
                let sizes = [0, 1, 8, 30, 60, 100, 255, 256, 1000, 3000, 4096, 4096, 60 << 10];
                let most = if self.rng.one_in(8) { 13 } else { 8 };
                let len = sizes[self.rng.below(most) as usize];
                self.marked = path.clone();
                Op::SetXattr { path, name, len, tag: self.tag, how: self.rng.below(6).saturating_sub(3) as u8 }
            }
            11 => Op::GetXattr { path, name },
            12 => Op::RemoveXattr { path, name },
            _ => Op::ListXattr { path },
        }
    }

    fn look(&mut self) -> Op {
        match self.rng.below(8) {
            0..=3 => self.walk(),
            4 | 5 => Op::List { path: self.dir(), chunk: *self.rng.pick(&[1, 7, 64, 100_000]) },
            _ => Op::Stat { path: self.any() },
        }
    }

    /// Goes on where a walk was left, mostly.
    fn walk(&mut self) -> Op {
        let walk = self.rng.below(2) as usize;
        if self.rng.one_in(24) {
            self.walks[walk] = self.dir();
        }
        let sizes = if self.profile == Profile::Dirs { [3, 17, 100, 400] } else { [1, 2, 3, 17] };
        let chunk = *self.rng.pick(&sizes);
        Op::Walk { walk: walk as u8, path: self.walks[walk].clone(), chunk }
    }

    fn sync(&mut self) -> Op {
        match self.rng.below(16) {
            0..=4 => Op::Fsync { path: self.file(), data_only: self.rng.below(2) as u8 },
            5 | 6 => Op::Fsync { path: self.dir(), data_only: 0 },
            7 | 8 => Op::Syncfs {},
            9 => Op::Remount {},
            _ => Op::Background { ms: *self.rng.pick(&[1, 100, 1000, 6000, 40_000]) },
        }
    }

    fn slot(&mut self) -> u8 {
        self.rng.below(u64::from(SLOTS)) as u8
    }

    fn dir(&mut self) -> Path {
        let dirs = self.shape.dirs;
        match self.rng.below(8) {
            0 => Path::at(&[]),
            1 if self.shape.deep => self.dir_name(),
            2 if self.rng.one_in(8) => Path::held(self.slot()),
            _ => Path::at(&[&format!("d{}", self.rng.below(dirs))]),
        }
    }

    fn dir_name(&mut self) -> Path {
        let mut path = match self.rng.one_in(3) {
            true => Path::at(&[]),
            false => Path::at(&[&format!("d{}", self.rng.below(self.shape.dirs))]),
        };
        path.names.push(format!("d{}", self.rng.below(self.shape.dirs)));
        path
    }

    fn name(&mut self) -> Path {
        let mut path = self.dir();
        let n = self.rng.below(self.shape.files);
        path.names.push(match self.rng.below(60) {
            30.. if self.long => format!("L{n}"),
            0..=4 => format!("L{}", n % 9),
            5 => "X1".to_string(),
            6..=12 => format!("a.name.of.middling.length.{n}"),
            _ => format!("f{n}"),
        });
        path
    }

    fn file(&mut self) -> Path {
        match self.rng.below(10) {
            0 => Path::held(self.slot()),
            1 => self.known(),
            _ if self.files.is_empty() => self.known(),
            _ => self.files[self.rng.below(self.files.len() as u64) as usize].clone(),
        }
    }

    fn recall(&mut self, path: &Path) {
        remember(&mut self.recent, path);
    }

    /// A name that is likely to be there.
    fn known(&mut self) -> Path {
        if self.recent.is_empty() || self.rng.one_in(6) {
            return self.name();
        }
        self.recent[self.rng.below(self.recent.len() as u64) as usize].clone()
    }

    /// A name that a file is given.
    fn target(&mut self) -> Path {
        let path = if self.rng.one_in(3) { self.known() } else { self.name() };
        self.recall(&path);
        if self.rng.one_in(3) {
            remember(&mut self.files, &path);
        }
        path
    }

    fn any(&mut self) -> Path {
        if self.rng.one_in(3) { self.dir() } else { self.file() }
    }

    /// An offset where data mostly falls, sometimes straddling a page or far out.
    fn offset(&mut self) -> u64 {
        match self.rng.below(24) {
            0 => (1 << self.rng.below(34)) + self.rng.below(3),
            1 => *self.rng.pick(&[1 << 20, 5 << 20, 1 << 30, (4 << 30) - 5, 5 << 30]) + self.rng.below(8000),
            _ => self.near(),
        }
    }

    fn near(&mut self) -> u64 {
        let region = self.shape.region;
        match self.rng.below(8) {
            0 | 1 => 0,
            2 => (self.rng.below(region / 4096) * 4096).saturating_sub(self.rng.below(10)),
            3 | 4 => self.rng.below(region / 4096) * 4096,
            5 => self.rng.below(300),
            _ => self.rng.below(region),
        }
    }

    fn len(&mut self) -> usize {
        let most = match self.profile {
            Profile::Small | Profile::Sync => 40 << 10,
            Profile::Dirs => 2000,
            Profile::Churn => 64 << 10,
            Profile::Big | Profile::Full => 500 << 10,
        };
        let classes = if matches!(self.profile, Profile::Full | Profile::Churn) { 14 } else { 10 };
        let len = match self.rng.below(classes) {
            0..=2 => 1 + self.rng.below(100),
            3..=5 => 1 + self.rng.below(5000),
            6 | 7 => (1 + self.rng.below(4)) * 4096,
            8 => 4000 + self.rng.below(200),
            _ => 1 + self.rng.below(most),
        };
        len.min(most) as usize
    }
}
