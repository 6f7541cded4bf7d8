//! Compilation of a kernel as the DualFS paper has it (Piernas, Cortes and García, section 3.2): `make dep`, the kernel, the
//! modules, by one process or by four.
//!
//! The source is that of [`KernelTrees`], once; of four processes each has a quarter of it. Assumed, since the paper says
//! nothing of it:
//!
//! * three files of ten are headers, and a sixth of the others belong to the configuration;
//! * `make dep` reads all files, and writes a list of 200 bytes for each into each directory;
//! * a compiler reads its file and 30 headers, some of them far more often than others, and writes an object twice as long as
//!   its file and a file of flags of 300 bytes;
//! * the linker reads the objects of a directory and writes one that is as long as all of them;
//! * the processor has 330 ms to do for a file that is compiled, so that all of it takes some nine minutes on a Pentium III of
//!   450 MHz. The paper's machine has two of them, the laboratory one.

use super::kernel_trees::{Course, Directory, KernelTrees, TREES, depth_first, extraction, step};
use super::primitive::{Chain, Ops};
use super::tour::{PAGE, source_dir, source_name};
use crate::op::{Dir, Op, Program};
use arbor_torture::rng::Rng;

const FLAGS_BYTES: u64 = 300;
const DEPEND_BYTES: u64 = 200;
const HEADERS_READ: u32 = 30;
const COMPILE_NS: u64 = 330_000_000;

/// The source, and how many compile it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelBuild {
    /// Programs, 1 or more; each has its part of the source.
    pub processes: u32,
}

/// A file of the source.
#[derive(Clone, Copy)]
struct File {
    dir: Dir,
    number: usize,
    bytes: u64,
}

impl KernelBuild {
    /// Makes the program of one process.
    pub fn program(&self, seed: u64, divisor: u32) -> Box<dyn Program> {
        let parts = divisor.saturating_mul(self.processes.max(1));
        let mut rng = Rng::new(seed);
        let tree = KernelTrees::new(Course::Full, self.processes).divided_by(parts).tree(&mut rng);
        let (_, made) = extraction(&tree, 1);
        let (mut all, files) = (Vec::new(), files(&tree));
        step(&mut all, "untar", "untar, rest", vec![made], false);
        let ops = [enters(&tree), depend(&tree, &files), compile(&mut rng, &files)].concat();
        step(&mut all, "compile", "compile, rest", vec![Box::new(Ops::new(ops))], true);
        Box::new(Chain::new(all))
    }
}

fn at(dir: u32) -> Dir {
    Dir(1 + dir)
}

/// All files in the order in which they were untarred.
fn files(tree: &[Directory]) -> Vec<File> {
    let each = |dir: u32| tree[dir as usize].files.iter().map(move |bytes| (at(dir), *bytes));
    let all = depth_first(tree).into_iter().flat_map(each).enumerate();
    all.map(|(number, (dir, bytes))| File { dir, number, bytes }).collect()
}

fn enters(tree: &[Directory]) -> Vec<Op> {
    let enter = |dir: u32| match dir {
        0 => Op::Enter { parent: Dir::ROOT, name: TREES[0].into(), dir: at(0) },
        _ => Op::Enter { parent: at(tree[dir as usize].parent), name: source_dir(dir), dir: at(dir) },
    };
    depth_first(tree).into_iter().map(enter).collect()
}

fn read(dir: Dir, name: String) -> [Op; 3] {
    [Op::Open { dir, name }, Op::Read { offset: 0, len: u64::MAX, io: PAGE }, Op::Close]
}

fn write(dir: Dir, name: String, len: u64) -> [Op; 3] {
    [Op::Create { dir, name }, Op::Write { offset: 0, len, io: PAGE, tag: len }, Op::Close]
}

/// `make dep`.
fn depend(tree: &[Directory], files: &[File]) -> Vec<Op> {
    let mut ops: Vec<Op> = files.iter().flat_map(|f| read(f.dir, source_name(f.number))).collect();
    for dir in depth_first(tree) {
        let len = DEPEND_BYTES * tree[dir as usize].files.len() as u64;
        ops.extend((len > 0).then(|| write(at(dir), ".depend".into(), len)).into_iter().flatten());
    }
    ops
}

/// `make bzImage` and `make modules`.
fn compile(rng: &mut Rng, files: &[File]) -> Vec<Op> {
    let (headers, sources): (Vec<File>, Vec<File>) = files.iter().partition(|f| f.number % 10 < 3);
    let (mut ops, mut objects) = (Vec::new(), Vec::new());
    for (n, file) in sources.iter().enumerate() {
        if n.is_multiple_of(6) {
            ops.extend(read(file.dir, source_name(file.number)));
            for _ in 0..if headers.is_empty() { 0 } else { HEADERS_READ } {
                let most = rng.below(headers.len() as u64) + 1;
                let header = headers[rng.below(most) as usize];
                ops.extend(read(header.dir, source_name(header.number)));
            }
            ops.push(Op::Think { ns: COMPILE_NS });
            ops.extend(write(file.dir, format!("{}.o", source_name(file.number)), 2 * file.bytes));
            ops.extend(write(file.dir, format!(".{}.o.flags", source_name(file.number)), FLAGS_BYTES));
            objects.push(*file);
        }
        if sources.get(n + 1).is_none_or(|next| next.dir != file.dir) {
            link(&mut ops, &std::mem::take(&mut objects));
        }
    }
    ops
}

fn link(ops: &mut Vec<Op>, objects: &[File]) {
    let Some(first) = objects.first() else { return };
    ops.extend(objects.iter().flat_map(|file| read(file.dir, format!("{}.o", source_name(file.number)))));
    ops.extend(write(first.dir, "built-in.o".into(), objects.iter().map(|file| 2 * file.bytes).sum()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// What is read was made before, and the processor has nine minutes to do in all, by however many processes.
    #[test]
    fn what_is_read_is_there() {
        for processes in [1, 4] {
            let (mut ops, mut program) = (Vec::new(), KernelBuild { processes }.program(1, 1));
            while program.step(&mut ops) {}
            let (mut made, mut computed) = (BTreeSet::new(), 0);
            for op in &ops {
                match op {
                    Op::Create { dir, name } => assert!(made.insert((*dir, name.clone())), "{op}"),
                    Op::Open { dir, name } => assert!(made.contains(&(*dir, name.clone())), "{op}"),
                    Op::Think { ns } => computed += ns,
                    _ => {}
                }
            }
            let seconds = computed * u64::from(processes) / 1_000_000_000;
            assert!((430..460).contains(&seconds), "{seconds} s");
        }
    }
}
