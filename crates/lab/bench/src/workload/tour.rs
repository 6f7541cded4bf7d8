//! What `cp -r`, `find -exec`, `du` and `rm -rf` do to a tree, in the order in which the file system lists it.
//!
//! A file is copied as `cp` of the time did it: both are open, and a page is read and written after the other.

use crate::op::{Dir, Listed, Op, Program};
use arbor_base::vfs::FileType;
use arbor_torture::rng::Rng;
use std::collections::VecDeque;
use std::rc::Rc;

/// Most bytes of a call: `st_blksize` of Linux 2.0, a page.
pub(super) const PAGE: u32 = 4096;
/// Operations after which another process has its turn.
const TURN: usize = 16;
/// What copies beside their originals end in.
const COPY: &str = ".o";

/// Name of the file of a number.
pub(super) fn name(number: usize) -> String {
    format!("f{number:05}")
}

/// Name of the file of a number in a source tree. Some hashes keep numbers in order ("r5" of ReiserFS does), but not names of
/// people's making: who lists a directory by hashes finds the files in another order than that in which they were made.
pub(super) fn source_name(number: usize) -> String {
    format!("{}{number:05}", word(number as u64))
}

/// The same of a directory.
pub(super) fn source_dir(number: u32) -> String {
    format!("{}{number:03}", word(u64::from(number)))
}

fn word(seed: u64) -> String {
    let mut rng = Rng::new(seed);
    (0..3 + rng.below(5)).map(|_| char::from(b'a' + rng.below(26) as u8)).collect()
}

/// Number of a file, or of that of which it is a copy.
fn number(name: &str) -> Option<usize> {
    name.strip_suffix(COPY).unwrap_or(name).trim_start_matches(|c: char| c.is_ascii_lowercase()).parse().ok()
}

/// What is done to each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// `cp -r`: copied to the same place below another directory.
    Copy(&'static str),
    /// `find . -exec cp {} {}.o \;`
    CopyBeside,
    /// Read, without a process for each.
    Scan,
    /// `find . -exec ls -l {} \;`, and without processes `du -a`.
    Look,
    /// `find . -name '*.o' -exec rm {} \;`
    Weed,
    /// `rm -rf`.
    Remove,
}

/// A walk through a tree, depth first.
pub struct Tour {
    aim: Aim,
    /// What starting a process for each file takes, ns.
    process_ns: u64,
    /// Sizes of files by number.
    sizes: Rc<Vec<u64>>,
    /// The directory that it goes through, if not the root.
    top: Option<&'static str>,
    /// Number of the next directory.
    next: u32,
    stack: Vec<Level>,
    pending: VecDeque<Op>,
    begun: bool,
    done: u64,
    expected: u64,
}

/// A directory under way, where it is copied to, and what is left of it.
struct Level {
    dir: Dir,
    to: Dir,
    left: VecDeque<Listed>,
}

impl Tour {
    /// Through `top`, or all there is. Numbers of directories are from `first` on; about `expected` names.
    pub fn new(aim: Aim, top: Option<&'static str>, sizes: &Rc<Vec<u64>>, first: u32, expected: u64) -> Tour {
        let (stack, pending) = (Vec::new(), VecDeque::new());
        Tour {
            aim,
            process_ns: 0,
            sizes: sizes.clone(),
            top,
            next: first,
            stack,
            pending,
            begun: false,
            done: 0,
            expected,
        }
    }

    /// With a process for each file, which takes so long to start.
    pub fn by_processes(self, process_ns: u64) -> Tour {
        Tour { process_ns, ..self }
    }

    fn begin(&mut self) {
        self.begun = true;
        match (self.top, self.aim) {
            (None, _) => self.list(Dir::ROOT, Dir::ROOT),
            (Some(top), Aim::Copy(to)) => self.enter((Dir::ROOT, Dir::ROOT), top, to),
            (Some(top), _) => self.enter((Dir::ROOT, Dir::ROOT), top, top),
        }
    }

    /// Goes into a directory, and makes that for its copies.
    fn enter(&mut self, (parent, to_parent): (Dir, Dir), name: &str, to_name: &str) {
        let (dir, mut to) = (Dir(self.next), Dir::ROOT);
        self.pending.push_back(Op::Enter { parent, name: name.into(), dir });
        if let Aim::Copy(_) = self.aim {
            to = Dir(self.next + 1);
            self.pending.push_back(Op::Mkdir { parent: to_parent, name: to_name.into(), dir: to });
        }
        self.next += 2;
        self.list(dir, to);
    }

    fn list(&mut self, dir: Dir, to: Dir) {
        self.stack.push(Level { dir, to, left: VecDeque::new() });
        self.pending.push_back(Op::List { dir });
    }

    fn leave(&mut self, level: &Level) {
        if level.dir == Dir::ROOT {
            return;
        }
        self.next -= 2;
        let dir = level.dir;
        self.pending.push_back(if self.aim == Aim::Remove { Op::Rmdir { dir } } else { Op::Leave { dir } });
        if level.to != Dir::ROOT {
            self.pending.push_back(Op::Leave { dir: level.to });
        }
    }

    fn visit(&mut self, dir: Dir, to: Dir, found: Listed) {
        self.done += 1;
        let Listed { name, file_type } = found;
        let is_dir = file_type == FileType::Dir;
        if self.process_ns > 0 && (self.aim != Aim::Weed || name.ends_with(COPY)) {
            self.pending.push_back(Op::Think { ns: self.process_ns });
        }
        if self.aim == Aim::Look {
            self.pending.push_back(Op::Stat { dir, name: name.clone() });
        }
        if is_dir {
            return self.enter((dir, to), &name, &name);
        }
        match self.aim {
            Aim::Copy(_) => self.copy(dir, &name, to, name.clone()),
            Aim::CopyBeside => self.copy(dir, &name, dir, name.clone() + COPY),
            Aim::Scan => {
                let read = Op::Read { offset: 0, len: u64::MAX, io: PAGE };
                self.pending.extend([Op::Open { dir, name }, read, Op::Close]);
            }
            Aim::Look => {}
            Aim::Weed if !name.ends_with(COPY) => {}
            Aim::Weed | Aim::Remove => self.pending.push_back(Op::Unlink { dir, name }),
        }
    }

    fn copy(&mut self, dir: Dir, name: &str, to: Dir, to_name: String) {
        let number = number(name).unwrap_or(usize::MAX);
        let (size, tag) = (self.sizes.get(number).copied().unwrap_or(0), number as u64);
        let [source, copy] = [0, 1].map(|file| Op::Use { file });
        let open = Op::Open { dir, name: name.into() };
        self.pending.extend([open, copy.clone(), Op::Create { dir: to, name: to_name }, source.clone()]);
        for offset in (0..size).step_by(PAGE as usize) {
            let len = (size - offset).min(PAGE.into());
            let write = Op::Write { offset, len, io: PAGE, tag };
            let read = Op::Read { offset, len: PAGE.into(), io: PAGE };
            self.pending.extend([read, copy.clone(), write, source.clone()]);
        }
        self.pending.extend([Op::Close, copy, Op::Close, source]);
    }
}

impl Program for Tour {
    fn step(&mut self, out: &mut Vec<Op>) -> bool {
        while self.pending.is_empty() {
            if !self.begun {
                self.begin();
                continue;
            }
            let Some(level) = self.stack.last_mut() else { return false };
            let (dir, to) = (level.dir, level.to);
            match level.left.pop_front() {
                Some(found) => self.visit(dir, to, found),
                None => {
                    let level = self.stack.pop();
                    level.iter().for_each(|level| self.leave(level));
                }
            }
        }
        out.extend(self.pending.drain(..self.pending.len().min(TURN)));
        true
    }

    fn listed(&mut self, names: &[Listed]) {
        if let Some(level) = self.stack.last_mut() {
            level.left = names.to_vec().into();
        }
    }

    fn progress(&self) -> (u64, u64) {
        (self.done, self.expected.max(self.done))
    }
}

/// Programs that run beside each other, each for a few operations at a time.
pub struct Together {
    programs: Vec<Beside>,
    at: usize,
    is_over: bool,
}

/// One of them.
struct Beside {
    program: Box<dyn Program>,
    /// What it has opened goes by numbers from here on.
    files: u32,
    /// The number that it used last.
    using: u32,
    is_over: bool,
}

/// Numbers of open files of a program.
const FILES: u32 = 2;

impl Together {
    /// These programs, each with [`FILES`] open files at most.
    pub fn new(programs: Vec<Box<dyn Program>>) -> Together {
        let one = |(files, program)| Beside { program, files, using: files, is_over: false };
        Together { programs: (0..).step_by(FILES as usize).zip(programs).map(one).collect(), at: 0, is_over: false }
    }
}

impl Program for Together {
    fn step(&mut self, out: &mut Vec<Op>) -> bool {
        for _ in 0..self.programs.len() {
            self.at = (self.at + 1) % self.programs.len();
            let Some(one) = self.programs.get_mut(self.at).filter(|one| !one.is_over) else { continue };
            let begin = out.len();
            out.push(Op::Use { file: one.using });
            if one.program.step(out) {
                for op in out.iter_mut().skip(begin + 1) {
                    if let Op::Use { file } = op {
                        *file += one.files;
                        one.using = *file;
                    }
                }
                return true;
            }
            one.is_over = true;
            out.truncate(begin);
        }
        // Whoever comes next finds it as it was.
        if !self.is_over {
            self.is_over = true;
            out.push(Op::Use { file: 0 });
            return true;
        }
        false
    }

    fn listed(&mut self, names: &[Listed]) {
        if let Some(one) = self.programs.get_mut(self.at) {
            one.program.listed(names);
        }
    }

    fn progress(&self) -> (u64, u64) {
        self.programs.iter().map(|one| one.program.progress()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_name() {
        for n in [0, 17, 11_499, 123_456] {
            assert_eq!(number(&name(n)), Some(n));
            assert_eq!(number(&format!("{}{COPY}", source_name(n))), Some(n));
        }
        let mut names: Vec<String> = (0..1000).map(source_name).collect();
        names.sort();
        let in_order = names.windows(2).filter(|pair| number(&pair[0]) < number(&pair[1])).count();
        assert!((400..600).contains(&in_order), "{in_order}");
    }
}
