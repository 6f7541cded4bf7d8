//! Going through trees: removal as by `rm -rf`, and reading everything.

use crate::op::{Dir, Listed, Op, Program};
use arbor_base::vfs::FileType;
use std::collections::VecDeque;

/// What to do with a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    Remove,
    Read { io: u32 },
}

/// A walk through everything below the root, depth first. Numbers of directories are from `first` on.
pub struct Walk {
    aim: Aim,
    next: u32,
    stack: Vec<Level>,
    entered: bool,
    done: u64,
    expected: u64,
}

/// A directory under way, with what is left of it.
struct Level {
    dir: Dir,
    left: VecDeque<Listed>,
}

impl Walk {
    /// Removes everything as `rm -rf` does on BSD: a directory is listed to its end, then its entries go in that
    /// order, directories when they are empty; nothing is looked at before. About `expected` names.
    pub fn remove(first: u32, expected: u64) -> Walk {
        Walk::new(Aim::Remove, first, expected)
    }

    /// Looks at every file and directory and reads every file in units of `io` bytes, in the order of names, so
    /// that the digest does not depend on the file system.
    pub fn read(first: u32, expected: u64, io: u32) -> Walk {
        Walk::new(Aim::Read { io }, first, expected)
    }

    fn new(aim: Aim, first: u32, expected: u64) -> Walk {
        Walk { aim, next: first, stack: Vec::new(), entered: false, done: 0, expected }
    }

    fn enter(&mut self, dir: Dir, out: &mut Vec<Op>) {
        self.stack.push(Level { dir, left: VecDeque::new() });
        out.push(Op::List { dir });
    }

    fn visit(&mut self, parent: Dir, found: Listed, out: &mut Vec<Op>) {
        self.done += 1;
        let Listed { name, file_type } = found;
        if let Aim::Read { .. } = self.aim {
            out.push(Op::Stat { dir: parent, name: name.clone() });
        }
        match (file_type, self.aim) {
            (FileType::Dir, _) => {
                // A number is used again when its directory is gone, in a walk that is deep but not wide.
                let dir = Dir(self.next);
                self.next += 1;
                out.push(Op::Enter { parent, name, dir });
                self.enter(dir, out);
            }
            (_, Aim::Remove) => out.push(Op::Unlink { dir: parent, name }),
            (FileType::File, Aim::Read { io }) => {
                out.push(Op::Open { dir: parent, name });
                out.push(Op::Read { offset: 0, len: u64::MAX, io });
                out.push(Op::Close);
            }
            _ => {}
        }
    }

    fn leave(&mut self, dir: Dir, out: &mut Vec<Op>) {
        if dir != Dir::ROOT {
            self.next -= 1;
            out.push(if self.aim == Aim::Remove { Op::Rmdir { dir } } else { Op::Leave { dir } });
        }
    }
}

impl Program for Walk {
    fn step(&mut self, out: &mut Vec<Op>) -> bool {
        if !self.entered {
            self.entered = true;
            self.enter(Dir::ROOT, out);
            return true;
        }
        let Some(level) = self.stack.last_mut() else { return false };
        let dir = level.dir;
        match level.left.pop_front() {
            Some(found) => self.visit(dir, found, out),
            None => {
                self.stack.pop();
                self.leave(dir, out);
            }
        }
        true
    }

    fn listed(&mut self, names: &[Listed]) {
        let mut left = names.to_vec();
        if self.aim != Aim::Remove {
            left.sort_by(|a, b| a.name.cmp(&b.name));
        }
        if let Some(level) = self.stack.last_mut() {
            level.left = left.into();
        }
    }

    fn progress(&self) -> (u64, u64) {
        (self.done, self.expected.max(self.done))
    }
}
