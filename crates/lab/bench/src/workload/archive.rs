//! The archive workload of the yFS paper, section 6.3: `tar x` of the FreeBSD 4.5 ports, a mount with nothing
//! cached, `rm -rf`.
//!
//! # The archive
//!
//! The archive itself is not to be had; the paper says of it that it is 15,165,655 bytes long, compressed, and
//! holds 6,470 ports in 10,448 directories, the root among them, and 44,742 regular files; that 10,257 of the
//! directories and 24,368 of the files are small enough to lie in an inode of 512 bytes, which holds 420
//! (sections 6.2 and 6.3). A generated one has these counts exactly, in the shape of a ports tree of that time:
//!
//! * `ports/CATEGORY/PORT/` with `Makefile`, `distinfo`, `pkg-comment`, `pkg-descr` and `pkg-plist`, and for some
//!   ports a directory `files/` with patches; a few files and directories in `ports/` itself;
//! * 191 directories hold 20 entries or more (those of categories, `ports/` and some `files/`), all
//!   others at most 12 short names;
//! * no file is between 370 and 420 bytes long, so that an inode that holds a little less than the paper's has the
//!   same files inline.
//!
//! The paper says nothing about the sizes of larger files. They are lognormal above 420 bytes, with means
//! by kind that bring the total to about 42 MB: the compressed size less some 80 bytes for each of 55,190
//! headers, at a ratio of four for text. For comparison: S. Asami counted, in February 2000, 57,038 files in
//! 22,514 directories in a tar archive of 99 MB (freebsd-ports, 14 February 2000); headers and padding taken off
//! that leaves about 44 MB, 33,771 of the files being very small ones of CVS.
//!
//! # The programs
//!
//! `tar` makes directories and files in the order of the archive, in which a directory's files come before
//! its directories, writes in units of its record of 10 KiB, and sets the times of each file. It sets owner and
//! mode too; these calls are left out, as they change nothing. The archive is read from another disk.
//! For `rm` see [`Walk::remove`].

use super::primitive::{Chain, Ops};
use super::tree::Walk;
use crate::draw::{Exactly, LogNormal};
use crate::op::{Dir, Op, Program};
use arbor_torture::rng::Rng;

/// Bytes that fit into an inode of yFS (6.2); larger files are larger than this.
pub const INLINE_BYTES: u64 = 420;
/// Most bytes of a small file: an inode of 512 bytes that holds a little less has the same files inline.
const SMALL_BYTES: u64 = 370;
/// The record of `tar`, bytes.
const RECORD_BYTES: u32 = 10 << 10;
/// Times of files in the archive, seconds: the release of FreeBSD 4.5, 29 January 2002.
const RELEASE_SECS: u32 = 1_012_262_400;
/// Files in `ports/` itself: `INDEX` and smaller ones.
const TOP: [(&str, u64); 5] =
    [("CHANGES", 8_000), ("INDEX", 2_200_000), ("LEGAL", 20_000), ("Makefile", 2_500), ("README", 2_500)];
/// Directories in `ports/` that are no category, with the number of their files.
const TOOLS: [(&str, u32); 3] = [("Mk", 12), ("Templates", 2), ("Tools", 4)];
/// Most files of a `files/` that is not crowded, files of one that is, fewest ports of a category.
const SPARSE: u32 = 12;
const CROWDED: u32 = 24;
const CATEGORY: u32 = 30;

/// The files of each port: how many of them are small, how large small ones are, and by how much the others
/// exceed [`INLINE_BYTES`] on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Name of the file.
    pub name: &'static str,
    /// How many are at most [`INLINE_BYTES`] long.
    pub small: u32,
    /// Size of these, bytes, from the first to the second number.
    pub small_bytes: (u64, u64),
    /// How much longer than [`INLINE_BYTES`] the others are on average, bytes.
    pub excess_bytes: u32,
}

/// The parameters, with the paper's counts as defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// Ports.
    pub ports: u32,
    /// Categories.
    pub categories: u32,
    /// Ports with a directory `files/`.
    pub files_dirs: u32,
    /// How many of these have at least 20 files.
    pub crowded_dirs: u32,
    /// Files in all of them.
    pub patches: u32,
    /// The files of each port, and last those of `files/`.
    pub kinds: [Kind; 6],
}

impl Default for Archive {
    fn default() -> Archive {
        let kind = |name, small, small_bytes, excess_bytes| Kind { name, small, small_bytes, excess_bytes };
        Archive {
            ports: 6470,
            categories: 62,
            files_dirs: 3911,
            crowded_dirs: 128,
            patches: 12_307,
            kinds: [
                kind("Makefile", 700, (200, SMALL_BYTES), 600),
                kind("distinfo", 6050, (60, 160), 400),
                kind("pkg-comment", 6470, (20, 70), 0),
                kind("pkg-descr", 3300, (60, SMALL_BYTES), 400),
                kind("pkg-plist", 3300, (60, SMALL_BYTES), 2100),
                kind("patch", 4548, (200, SMALL_BYTES), 2100),
            ],
        }
    }
}

/// A directory of the archive; its number is its place in the list, and its parent comes before it.
#[derive(Debug)]
struct Directory {
    parent: u32,
    name: String,
    files: Vec<(String, u64)>,
}

impl Archive {
    /// The phases: extraction, the mount between, removal.
    pub const PHASES: [&str; 3] = ["extract", "remount", "remove"];

    /// An archive of about one `divisor`th of everything.
    pub fn divided_by(divisor: u32) -> Archive {
        let mut spec = Archive::default();
        let kinds = spec.kinds.iter_mut().map(|kind| &mut kind.small);
        let counts = [&mut spec.ports, &mut spec.categories, &mut spec.files_dirs, &mut spec.crowded_dirs];
        counts.into_iter().chain([&mut spec.patches]).chain(kinds).for_each(|n| *n = n.div_ceil(divisor));
        // Each directory has a file at least.
        spec.crowded_dirs = spec.crowded_dirs.min((spec.patches - spec.files_dirs) / CROWDED);
        spec
    }

    /// Makes the program.
    pub fn program(&self, seed: u64) -> Box<dyn Program> {
        let dirs = self.tree(&mut Rng::new(seed));
        let names = dirs.iter().map(|d| 1 + d.files.len() as u64).sum();
        let [extract, remount, remove] = Self::PHASES;
        let between = [Op::Phase(remount), Op::Remount, Op::Phase(remove)];
        Box::new(Chain::new(vec![
            Box::new(Ops::new(vec![Op::Phase(extract)])),
            Box::new(Extract { dirs, at: 0, file: 0, tag: 0, leave: Vec::new() }),
            Box::new(Ops::new(between.into())),
            Box::new(Walk::remove(1 << 30, names)),
        ]))
    }

    fn tree(&self, rng: &mut Rng) -> Vec<Directory> {
        let mut sizes = Sizes::new(self);
        let per_category = shares(rng, self.ports, self.categories, CATEGORY.min(self.ports / self.categories));
        let mut per_files_dir = self.files_per_dir(rng);
        let mut has_files = Exactly::new(self.files_dirs.into(), self.ports.into());
        let directory = |parent, name, files| Directory { parent, name, files };
        let top = TOP.iter().map(|(name, len)| (name.to_string(), *len)).collect();
        let mut dirs = vec![directory(0, "ports".into(), top)];
        for (name, files) in TOOLS {
            let file = |i| (format!("file{i:02}.mk"), 1000 + rng.below(20_000));
            dirs.push(directory(1, name.into(), (0..files).map(file).collect()));
        }
        for (category, ports) in (0..).zip(per_category) {
            let makefile = ("Makefile".into(), 500 + u64::from(ports) * 20);
            dirs.push(directory(1, word(rng, category), vec![makefile]));
            let category = dirs.len() as u32;
            for port in 0..ports {
                let files = (0..5).map(|kind| (self.kinds[kind].name.to_string(), sizes.draw(kind, rng))).collect();
                dirs.push(directory(category, word(rng, port), files));
                if has_files.next(rng) {
                    let (port, files) = (dirs.len() as u32, per_files_dir.pop().unwrap_or(1));
                    let file = |i| (patch_name(i), sizes.draw(5, rng));
                    dirs.push(directory(port, "files".into(), (0..files).map(file).collect()));
                }
            }
        }
        dirs
    }

    /// Number of files in each `files/`.
    fn files_per_dir(&self, rng: &mut Rng) -> Vec<u32> {
        let sparse = self.files_dirs - self.crowded_dirs;
        let mut counts = vec![1; sparse as usize];
        for _ in 0..self.patches - self.crowded_dirs * CROWDED - sparse {
            loop {
                let count = &mut counts[rng.below(sparse.into()) as usize];
                if *count < SPARSE {
                    *count += 1;
                    break;
                }
            }
        }
        counts.extend(vec![CROWDED; self.crowded_dirs as usize]);
        rng.shuffle(&mut counts);
        counts
    }
}

/// `total` in `parts` of at least `least`, the first ones larger than the last ones.
fn shares(rng: &mut Rng, total: u32, parts: u32, least: u32) -> Vec<u32> {
    let mut shares = vec![least; parts as usize];
    for _ in 0..total - parts * least {
        let at = rng.below(parts.into()).min(rng.below(parts.into()));
        shares[at as usize] += 1;
    }
    shares
}

/// A name of 5 to 14 characters that ends in `number` and so is the only one.
fn word(rng: &mut Rng, number: u32) -> String {
    let len = 2 + rng.below(9);
    let letters: String = (0..len).map(|_| char::from(b'a' + rng.below(26) as u8)).collect();
    format!("{letters}{number:03}")
}

/// `patch-aa`, `patch-ab` and so on.
fn patch_name(i: u32) -> String {
    let letter = |i: u32| char::from(b'a' + (i % 26) as u8);
    format!("patch-{}{}", letter(i / 26), letter(i))
}

/// Sizes of each kind of file.
struct Sizes {
    kinds: [Kind; 6],
    small: [Exactly; 6],
}

impl Sizes {
    fn new(spec: &Archive) -> Sizes {
        let small = |kind: Kind| {
            let total = if kind.name == spec.kinds[5].name { spec.patches } else { spec.ports };
            Exactly::new(kind.small.into(), total.into())
        };
        Sizes { kinds: spec.kinds, small: spec.kinds.map(small) }
    }

    fn draw(&mut self, kind: usize, rng: &mut Rng) -> u64 {
        let Kind { small_bytes: (low, high), excess_bytes, .. } = self.kinds[kind];
        if self.small[kind].next(rng) {
            return low + rng.below(high - low + 1);
        }
        // The mean of a lognormal distribution is exp(mu + sigma^2 / 2).
        let sigma = 1.2;
        let mu = libm::log(f64::from(excess_bytes.max(1))) - sigma * sigma / 2.0;
        INLINE_BYTES + 1 + LogNormal { mu, sigma }.draw(rng) as u64
    }
}

/// `tar x`. Directories that it has left behind are left.
struct Extract {
    dirs: Vec<Directory>,
    at: usize,
    file: usize,
    tag: u64,
    leave: Vec<Dir>,
}

impl Extract {
    fn directory(&mut self, out: &mut Vec<Op>) {
        let Directory { parent, name, .. } = &self.dirs[self.at];
        // What was made after the parent is behind us.
        while self.leave.last().is_some_and(|last| last.0 > *parent) {
            out.extend(self.leave.pop().map(|dir| Op::Leave { dir }));
        }
        let dir = Dir(self.at as u32 + 1);
        out.push(Op::Mkdir { parent: Dir(*parent), name: name.clone(), dir });
        self.leave.push(dir);
    }
}

impl Program for Extract {
    fn step(&mut self, out: &mut Vec<Op>) -> bool {
        if self.at == self.dirs.len() {
            return false;
        }
        if self.file == 0 {
            self.directory(out);
        }
        let (dir, files) = (Dir(self.at as u32 + 1), &self.dirs[self.at].files);
        if let Some((name, len)) = files.get(self.file) {
            self.tag += 1;
            out.push(Op::Create { dir, name: name.clone() });
            out.push(Op::Write { offset: 0, len: *len, io: RECORD_BYTES, tag: self.tag });
            out.push(Op::Close);
            out.push(Op::SetTimes { dir, name: name.clone(), secs: RELEASE_SECS });
        }
        self.file += 1;
        if self.file >= files.len() {
            (self.at, self.file) = (self.at + 1, 0);
        }
        true
    }

    fn progress(&self) -> (u64, u64) {
        (self.at as u64, self.dirs.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_size_can_be_made() {
        for divisor in [2, 3, 10, 77, 200, 1000, 100_000] {
            let spec = Archive::divided_by(divisor);
            let files: usize = spec.tree(&mut Rng::new(1)).iter().map(|d| d.files.len()).sum();
            assert_eq!(files as u32, spec.ports * 5 + spec.patches + spec.categories + 5 + 18);
        }
    }

    #[test]
    fn counts_are_the_papers() {
        let dirs = Archive::default().tree(&mut Rng::new(1));
        let files = || dirs.iter().flat_map(|d| &d.files);
        // The root is not in the list.
        assert_eq!(dirs.len() + 1, 10_448);
        assert_eq!(files().count(), 44_742);
        assert_eq!(files().filter(|f| f.1 <= SMALL_BYTES).count(), 24_368);
        assert_eq!(files().filter(|f| f.1 <= INLINE_BYTES).count(), 24_368);
        let mut entries = vec![0; dirs.len() + 1];
        for (at, dir) in (1..).zip(&dirs) {
            entries[dir.parent as usize] += 1;
            entries[at] += dir.files.len();
        }
        assert!(entries.iter().all(|n| *n <= 12 || *n >= 20));
        assert_eq!(entries.iter().filter(|n| **n <= 12).count(), 10_257);
        let total: u64 = files().map(|f| f.1).sum();
        assert!((40_000_000..44_000_000).contains(&total), "{total}");
    }
}
