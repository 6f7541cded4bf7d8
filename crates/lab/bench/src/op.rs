//! Operations, and programs that give them.

use arbor_base::vfs::FileType;
use arbor_torture::rng::mix;
use std::fmt;

/// A directory, by a number that the program gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dir(pub u32);

impl Dir {
    /// The directory that the workload starts with.
    pub const ROOT: Dir = Dir(0);
}

/// One operation. [`Op::Create`] and [`Op::Open`] open a file under the number that [`Op::Use`] gave last, 0 without
/// one; [`Op::Write`], [`Op::Read`], [`Op::Fsync`] and [`Op::Close`] are about the file that is open under that.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    /// Makes a directory and calls it `dir` from now on.
    Mkdir { parent: Dir, name: String, dir: Dir },
    /// Calls a directory that is there `dir` from now on.
    Enter { parent: Dir, name: String, dir: Dir },
    /// Forgets the number `dir`; the directory stays.
    Leave { dir: Dir },
    /// Removes an empty directory.
    Rmdir { dir: Dir },
    /// Makes a file and opens it; there must be none of this name.
    Create { dir: Dir, name: String },
    /// Opens a file.
    Open { dir: Dir, name: String },
    /// Writes `len` bytes at `offset`, made from `tag` and their place, in calls of at most `io` bytes.
    Write { offset: u64, len: u64, io: u32, tag: u64 },
    /// Reads `len` bytes at `offset` in calls of at most `io` bytes, or up to the end if that comes first.
    Read { offset: u64, len: u64, io: u32 },
    /// Makes the open file durable.
    Fsync,
    /// Closes the open file.
    Close,
    /// From now on it is the open file of this number that is meant. Nothing is asked of the file system.
    Use { file: u32 },
    /// Sets the times of a file, in seconds since the epoch.
    SetTimes { dir: Dir, name: String, secs: u32 },
    /// Removes a file or a symbolic link.
    Unlink { dir: Dir, name: String },
    /// Moves a file.
    Rename { dir: Dir, name: String, to: Dir, to_name: String },
    /// Makes a symbolic link.
    Symlink { dir: Dir, name: String, target: String },
    /// Looks at the attributes of a file or directory.
    Stat { dir: Dir, name: String },
    /// Lists a directory; the program gets the names by [`Program::listed`].
    List { dir: Dir },
    /// Makes everything durable.
    Sync,
    /// Unmounts and mounts again with nothing cached. No file is open.
    Remount,
    /// The power fails and comes again: what was not durable is lost, and mounting recovers the rest. No file is open.
    PowerCut,
    /// Makes files, and removes some of them, until so many hundredths of the volume are in use.
    FillTo { percent: u32, seed: u64 },
    /// A phase of this name begins.
    Phase(&'static str),
    /// The program computes for so many nanoseconds.
    Think { ns: u64 },
    /// A transaction of the program is done. Nothing is asked of the file system.
    Done,
}

/// A line for each operation, the same for ever: digests are made of it.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Mkdir { parent, name, dir } => write!(f, "mkdir {}/{name} as {}", parent.0, dir.0),
            Op::Enter { parent, name, dir } => write!(f, "enter {}/{name} as {}", parent.0, dir.0),
            Op::Leave { dir } => write!(f, "leave {}", dir.0),
            Op::Rmdir { dir } => write!(f, "rmdir {}", dir.0),
            Op::Create { dir, name } => write!(f, "create {}/{name}", dir.0),
            Op::Open { dir, name } => write!(f, "open {}/{name}", dir.0),
            Op::Write { offset, len, io, tag } => write!(f, "write {offset} {len} by {io} tag {tag}"),
            Op::Read { offset, len, io } => write!(f, "read {offset} {len} by {io}"),
            Op::Fsync => write!(f, "fsync"),
            Op::Close => write!(f, "close"),
            Op::Use { file } => write!(f, "use {file}"),
            Op::SetTimes { dir, name, secs } => write!(f, "times {}/{name} {secs}", dir.0),
            Op::Unlink { dir, name } => write!(f, "unlink {}/{name}", dir.0),
            Op::Rename { dir, name, to, to_name } => write!(f, "rename {}/{name} {}/{to_name}", dir.0, to.0),
            Op::Symlink { dir, name, target } => write!(f, "symlink {}/{name} {target}", dir.0),
            Op::Stat { dir, name } => write!(f, "stat {}/{name}", dir.0),
            Op::List { dir } => write!(f, "list {}", dir.0),
            Op::Sync => write!(f, "sync"),
            Op::Remount => write!(f, "remount"),
            Op::PowerCut => write!(f, "power cut"),
            Op::FillTo { percent, seed } => write!(f, "fill to {percent} seed {seed}"),
            Op::Phase(name) => write!(f, "phase {name}"),
            Op::Think { ns } => write!(f, "think {ns}"),
            Op::Done => write!(f, "done"),
        }
    }
}

/// A name found in a directory, without `.` and `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: String,
    /// Kind of file.
    pub file_type: FileType,
}

/// Gives the operations of a workload. The same program gives the same operations, as far as it does not
/// follow the order of [`Program::listed`].
pub trait Program {
    /// Adds the next few operations to `out`; `false` if there are none left.
    fn step(&mut self, out: &mut Vec<Op>) -> bool;

    /// What the last [`Op::List`] found, in the order of the file system. It is called before the next
    /// [`Program::step`], and a step lists at most once.
    fn listed(&mut self, _names: &[Listed]) {}

    /// How much is done, and of how much, in units of the program.
    fn progress(&self) -> (u64, u64);
}

/// What tells one run from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Of the operations in their order.
    pub ordered: u64,
    /// Of the operations in any order.
    pub unordered: u64,
    /// Of the bytes read and of the lengths of files looked at.
    pub content: u64,
}

impl Digest {
    /// Adds an operation, given as its line.
    pub fn op(&mut self, line: &str) {
        let hash = fnv(line.as_bytes());
        self.ordered = mix(self.ordered ^ hash);
        self.unordered = self.unordered.wrapping_add(mix(hash));
    }

    /// Adds the digest of another program that ran beside.
    pub fn add(&mut self, other: &Digest) {
        self.ordered = mix(self.ordered ^ other.ordered);
        self.unordered = self.unordered.wrapping_add(other.unordered);
        self.content = mix(self.content ^ other.content);
    }

    /// Adds bytes read.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.content = mix(self.content ^ fnv(bytes));
    }
}

/// FNV-1a over words of 64 bits instead of bytes, for speed; the last word is padded with zeros.
fn fnv(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ bytes.len() as u64;
    for part in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3);
        hash ^= hash >> 32;
    }
    hash
}
