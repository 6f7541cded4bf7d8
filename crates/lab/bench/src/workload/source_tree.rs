//! The kernel build of the yFS paper, section 6.1: a copy of a source tree from another disk, and a build in it.
//!
//! The paper says that `/usr/src/sys` of FreeBSD 4.5 is copied and the generic kernel and all modules are built
//! from it, and how long that took on a processor of 500 MHz. No published count of its files and bytes was
//! found. Assumed are 4,500 files in 300 directories, of which 2,000 are sources of 22 KB and 2,000
//! headers of 8 KB on average, the others short: about 61 MB; 950 objects of the kernel and 150 modules of four; 40
//! headers read for each object, mostly the same ones; objects a little smaller than their sources. The time of
//! the processor is a stated charge, 700 seconds for the whole build: it hides what the disk does meanwhile, as in
//! the paper.
//!
//! Of the copy, this program has what happens on the file system that is measured. That the copying program waits for
//! the disk it reads from is [`Op::Think`], with the times of [`SourceTree::reader`] on that disk.

use super::primitive::{Chain, Ops};
use crate::draw::LogNormal;
use crate::op::{Dir, Op, Program};
use arbor_torture::rng::Rng;

/// Unit in which files are copied, read and written, bytes.
const IO_BYTES: u32 = 64 << 10;

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceTree {
    /// Directories.
    pub dirs: u32,
    /// Sources, 22 KB on average.
    pub sources: u32,
    /// Headers, 8 KB on average.
    pub headers: u32,
    /// Other files, 1 KB on average.
    pub others: u32,
    /// Objects of the kernel.
    pub kernel_objects: u32,
    /// Modules.
    pub modules: u32,
    /// Objects of each.
    pub module_objects: u32,
    /// Headers read for each object.
    pub object_headers: u32,
    /// Time of the processor for the whole build, milliseconds, divided equally among the objects.
    pub build_ms: u64,
}

impl Default for SourceTree {
    fn default() -> SourceTree {
        SourceTree {
            dirs: 300,
            sources: 2000,
            headers: 2000,
            others: 500,
            kernel_objects: 950,
            modules: 150,
            module_objects: 4,
            object_headers: 40,
            build_ms: 700_000,
        }
    }
}

/// A file of the tree.
#[derive(Clone, Debug)]
struct Source {
    dir: Dir,
    name: String,
    len: u64,
}

impl SourceTree {
    /// The phases.
    pub const PHASES: [&str; 2] = ["copy", "compile"];
    /// The phase of [`SourceTree::reader`] that counts.
    pub const READING: &str = "read";

    /// About one `divisor`th of everything but the directories.
    pub fn divided_by(divisor: u32) -> SourceTree {
        let mut spec = SourceTree::default();
        for n in [&mut spec.sources, &mut spec.headers, &mut spec.others, &mut spec.kernel_objects, &mut spec.modules] {
            *n = n.div_ceil(divisor);
        }
        spec.build_ms = spec.build_ms.div_ceil(divisor.into());
        spec
    }

    /// Makes the program. `reads_ns`: how long the copying program waits for each file that it reads, in order; none
    /// if it does not.
    pub fn program(&self, seed: u64, reads_ns: &[u64]) -> Box<dyn Program> {
        let (tree, rng) = self.tree(seed);
        let copy = tree.copy(reads_ns);
        let build =
            Build { spec: *self, rng, sources: tree.sources, headers: tree.headers, step: 0, objects: Vec::new() };
        Box::new(Chain::new(vec![Box::new(Ops::new(copy)), Box::new(build)]))
    }

    /// The other side of the copy, for the disk that is read: the tree is made, and after a mount with nothing cached
    /// each file is read. It is a file from one [`Op::Close`] to the next in the phase [`SourceTree::READING`].
    pub fn reader(&self, seed: u64) -> Box<dyn Program> {
        let tree = self.tree(seed).0;
        let mut ops = tree.copy(&[]);
        ops.extend([Op::Sync, Op::Remount, Op::Phase(Self::READING)]);
        tree.in_order().for_each(|file| read_file(&mut ops, file));
        Box::new(Ops::new(ops))
    }

    fn tree(&self, seed: u64) -> (Tree, Rng) {
        let mut rng = Rng::new(seed);
        let parents = (1..=self.dirs).map(|dir| if dir < 24 { 0 } else { rng.below(u64::from(dir)) as u32 }).collect();
        let sources = self.files(&mut rng, "c", self.sources, 22_000);
        let headers = self.files(&mut rng, "h", self.headers, 8_000);
        let others = self.files(&mut rng, "mk", self.others, 1_000);
        (Tree { parents, sources, headers, others }, rng)
    }

    fn objects(&self) -> u32 {
        self.kernel_objects + self.modules * self.module_objects
    }

    fn files(&self, rng: &mut Rng, kind: &str, count: u32, mean: u32) -> Vec<Source> {
        let sigma = 1.1;
        let size = LogNormal { mu: libm::log(f64::from(mean)) - sigma * sigma / 2.0, sigma };
        let file = |i| {
            let dir = Dir(1 + rng.below(self.dirs.into()) as u32);
            Source { dir, name: format!("source{i:04}.{kind}"), len: size.draw(rng) as u64 }
        };
        (0..count).map(file).collect()
    }
}

/// A tree to be copied.
struct Tree {
    /// The directory that each is in, 0 the root; they count from 1.
    parents: Vec<u32>,
    sources: Vec<Source>,
    headers: Vec<Source>,
    others: Vec<Source>,
}

impl Tree {
    /// The files of each directory.
    fn inside(&self) -> Vec<Vec<&Source>> {
        let mut inside = vec![Vec::new(); self.parents.len() + 1];
        for file in [&self.sources, &self.headers, &self.others].into_iter().flatten() {
            inside[file.dir.0 as usize].push(file);
        }
        inside
    }

    /// The files as they are copied.
    fn in_order(&self) -> impl Iterator<Item = &Source> {
        self.inside().into_iter().flatten()
    }

    /// `cp -R`: a directory, its files, its directories.
    fn copy(&self, reads_ns: &[u64]) -> Vec<Op> {
        let mut ops = vec![Op::Phase(SourceTree::PHASES[0])];
        let (inside, mut reads_ns) = (self.inside(), reads_ns.iter());
        for (dir, parent) in (1..).zip(&self.parents) {
            ops.push(Op::Mkdir { parent: Dir(*parent), name: format!("dir{dir:03}"), dir: Dir(dir) });
            for file in &inside[dir as usize] {
                let tag = ops.len() as u64;
                ops.extend(reads_ns.next().map(|ns| Op::Think { ns: *ns }));
                write_file(&mut ops, file.dir, &file.name, file.len, tag);
            }
        }
        ops
    }
}

fn write_file(ops: &mut Vec<Op>, dir: Dir, name: &str, len: u64, tag: u64) {
    ops.push(Op::Create { dir, name: name.to_string() });
    ops.push(Op::Write { offset: 0, len, io: IO_BYTES, tag });
    ops.push(Op::Close);
}

fn read_file(ops: &mut Vec<Op>, file: &Source) {
    ops.push(Op::Open { dir: file.dir, name: file.name.clone() });
    ops.push(Op::Read { offset: 0, len: u64::MAX, io: IO_BYTES });
    ops.push(Op::Close);
}

/// `make`: objects, and what is linked of them. The kernel's objects lie in one directory, as `config` makes it,
/// those of a module in one each.
struct Build {
    spec: SourceTree,
    rng: Rng,
    sources: Vec<Source>,
    headers: Vec<Source>,
    step: u32,
    objects: Vec<Source>,
}

impl Build {
    const KERNEL: Dir = Dir(1 << 20);

    fn compile(&mut self, dir: Dir, out: &mut Vec<Op>) {
        let source = self.rng.pick(&self.sources).clone();
        read_file(out, &source);
        for _ in 0..self.spec.object_headers {
            // The smaller of two: some headers are read for nearly every object.
            let count = self.headers.len() as u64;
            let at = self.rng.below(count).min(self.rng.below(count));
            read_file(out, &self.headers[at as usize]);
        }
        out.push(Op::Think { ns: self.spec.build_ms * 1_000_000 / u64::from(self.spec.objects()) });
        let object = Source { dir, name: format!("object{:04}.o", self.step), len: source.len * 4 / 5 };
        write_file(out, dir, &object.name, object.len, u64::from(self.step));
        self.objects.push(object);
    }

    /// Reads the objects, writes `name` by way of a temporary file.
    fn link(&mut self, dir: Dir, name: &str, out: &mut Vec<Op>) {
        let objects = std::mem::take(&mut self.objects);
        objects.iter().for_each(|object| read_file(out, object));
        let len = objects.iter().map(|o| o.len).sum::<u64>() / 2;
        let partial = Source { dir, name: format!("{name}.kld"), len };
        write_file(out, dir, &partial.name, len, u64::from(self.step));
        read_file(out, &partial);
        write_file(out, dir, name, len, u64::from(self.step));
        out.push(Op::Unlink { dir, name: partial.name });
    }

    /// The directory of the object that is next, and whether it is the first and the last one there.
    fn place(&self) -> (Dir, bool, bool) {
        match self.step.checked_sub(self.spec.kernel_objects) {
            None => (Self::KERNEL, self.step == 0, self.step + 1 == self.spec.kernel_objects),
            Some(n) => {
                let (module, object) = (n / self.spec.module_objects, n % self.spec.module_objects);
                (Dir(Self::KERNEL.0 + 1 + module), object == 0, object + 1 == self.spec.module_objects)
            }
        }
    }
}

impl Program for Build {
    fn step(&mut self, out: &mut Vec<Op>) -> bool {
        if self.step == self.spec.objects() {
            return false;
        }
        if self.step == 0 {
            out.push(Op::Phase(SourceTree::PHASES[1]));
        }
        let (dir, first, last) = self.place();
        let name = format!("module{:03}", dir.0 - Self::KERNEL.0);
        if first {
            out.push(Op::Mkdir { parent: Dir(1), name: name.clone(), dir });
        }
        self.compile(dir, out);
        if last {
            self.link(dir, &format!("{name}.ko"), out);
        }
        self.step += 1;
        true
    }

    fn progress(&self) -> (u64, u64) {
        (self.step.into(), self.spec.objects().into())
    }
}
