//! Small programs for a few tasks that get in each other's way.

use crate::ops::{Op, parse, print};
use crate::rng::Rng;
use std::fmt;
use std::str::FromStr;

/// What the tasks do, and what is there before.
///
/// A task's operations are each one call of the file system, so that they can be put in an order:
/// what they name lies in the root, or in or at a slot. Slots 0, 1 and 2 of each task hold `/a`,
/// `/b` and `/d`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Done before, by one task alone.
    pub setup: Vec<Op>,
    /// Operations of each task.
    pub tasks: Vec<Vec<Op>>,
}

/// Makes what the slots hold; `N` is a length.
const FILES: &str = "create /a 420 0; write /a 0 N 1; create /b 420 0; write /b 0 N 2; mkdir /d 493 0; \
                     create /d/x 420 0; write /d/x 0 N 3";
/// Further past.
const PASTS: &[&str] = &[
    "setxattr /a user.x0 200 4 0",
    "fallocate /b 1 100000 50000",
    "create /e 420 0; write /e 0 90000 5; syncfs; unlink /e",
    "mkdir /e 493 0; link /a /e/l",
    "LONG /d",
    "LONG /",
];

const NAMES: &[&str] = &[
    "create /c 420 0",
    "create @2/y 420 0",
    "mkdir /c 493 0",
    "symlink /c 20 T",
    "link @0 /c",
    "link @0 @2/y",
    "unlink /a",
    "unlink /b",
    "unlink /c",
    "unlink @2/x",
    "unlink @2/y",
    "rmdir /d",
    "rmdir /c",
    "rename /a /b 0",
    "rename /a @2/y 0",
    "rename @2/x /a 0",
    "rename @2/x @2/y 0",
    "rename /a /b 2",
    "rename /a @2/x 2",
    "rename /a /c 1",
    "rename /d /c 0",
    "hold /a 3",
    "hold /c 3",
    "hold @2/x 3",
    "hold @2/y 3",
    "drop 3",
    "drop 0",
    "tmpfile / 4",
    "link @4 /c",
    "stat @2",
    "stat @0",
    "stat @3",
];
const DATA: &[&str] = &[
    "write @0 O N T",
    "write @0 O N T",
    "write @1 O N T",
    "write @3 O N T",
    "write @4 O N T",
    "read @0 O N",
    "read @0 O N",
    "read @1 O N",
    "read @3 O N",
    "truncate @0 O",
    "truncate @0 0",
    "truncate @1 O",
    "fallocate @0 0 O N",
    "fallocate @0 1 O N",
    "fallocate @0 3 O N",
    "fallocate @1 16 O N",
    "copy @0 0 @1 O N",
    "stat @0",
    "stat @1",
];
const ATTRIBUTES: &[&str] = &[
    "chmod @0 384",
    "chown @0 1 2",
    "utimes @0 5",
    "setxattr @0 user.x0 20 T 0",
    "setxattr @0 user.x0 3000 T 2",
    "setxattr @0 user.x1 255 T 1",
    "getxattr @0 user.x0",
    "removexattr @0 user.x0",
    "listxattr @0",
    "stat @0",
];
/// What is read while it is freed, written back or given away.
const CHURN: &[&str] = &[
    "read @0 0 200000",
    "read @0 0 200000",
    "read @1 0 200000",
    "truncate @0 0",
    "truncate @1 0",
    "write @0 0 60000 T",
    "write @1 0 60000 T",
    "setxattr @0 user.x0 3000 T 0",
    "removexattr @0 user.x0",
    "getxattr @0 user.x0",
    "hold @2/x 3",
    "create @2/y 420 0",
    "background 40000",
    "background 40000",
    "background 40000",
    "syncfs",
];
const SYNCS: &[&str] = &[
    "fsync @0 0",
    "fsync @0 1",
    "fsync @1 0",
    "fsync @2 0",
    "fsync / 0",
    "syncfs",
    "background 6000",
    "background 40000",
];

const LENGTHS: &[u64] = &[1, 60, 700, 4096, 5000, 20_000, 70_000, 200_000];

/// The slots that each task begins with.
pub(super) const SLOTS: &str = "hold /a 0; hold /b 1; hold /d 2";

impl Program {
    /// Draws one.
    pub fn draw(seed: u64) -> Program {
        let mut rng = Rng::new(seed);
        let churn = rng.one_in(3);
        let n = if churn { 60_000 } else { *rng.pick(LENGTHS) };
        let mut setup = fill(FILES, &mut rng, 0).replace('N', &n.to_string());
        for past in PASTS {
            if rng.one_in(3) {
                setup = format!("{setup}; {}", long_names(past));
            }
        }
        // A volume mounted anew has nothing in its cache.
        if churn || rng.one_in(2) {
            setup += "; remount";
        }
        let tasks = if rng.one_in(3) { 3 } else { 2 };
        let most = if tasks == 3 { 3 } else { 4 };
        let focus = if churn { CHURN } else { *rng.pick(&[NAMES, DATA, DATA, ATTRIBUTES]) };
        let mut tag = 10;
        let mut op = |rng: &mut Rng| {
            tag += 1;
            let list = match rng.below(10) {
                0..2 if !churn => SYNCS,
                2 if !churn => *rng.pick(&[NAMES, DATA, ATTRIBUTES]),
                _ => focus,
            };
            let template = *rng.pick::<&str>(list);
            fill(template, rng, tag)
        };
        let tasks = (0..tasks).map(|_| (0..1 + rng.below(most)).map(|_| op(&mut rng)).collect::<Vec<_>>().join(";"));
        let mut program = Program { setup: read(&setup), tasks: tasks.map(|t| read(&t)).collect() };
        if !rng.one_in(8) {
            program.keep_apart();
        }
        program
    }

    /// Whether all its calls are such that happen at one moment, as far as the others can tell.
    pub fn is_exact(&self) -> bool {
        let slow = self.slow_task();
        let meets = |(t, ops): (usize, &Vec<Op>)| slow.is_some_and(|s| s != t) && ops.iter().any(touches_contents);
        !self.tasks.iter().enumerate().any(meets)
    }

    /// The first task with a call of several steps.
    fn slow_task(&self) -> Option<usize> {
        self.tasks.iter().position(|ops| ops.iter().any(takes_steps))
    }

    /// Takes away what would meet a call of several steps half-way.
    fn keep_apart(&mut self) {
        let slow = self.slow_task();
        for (t, ops) in self.tasks.iter_mut().enumerate() {
            if slow.is_some_and(|s| s != t) {
                ops.retain(|op| !touches_contents(op));
                if ops.is_empty() {
                    *ops = read("fsync @0 0");
                }
            }
        }
    }
}

/// See [`FileSystem`](arbor_base::vfs::FileSystem), "Calls at the same time".
fn takes_steps(op: &Op) -> bool {
    matches!(op, Op::Fallocate { .. } | Op::Copy { .. }) || matches!(op, Op::Write { len, .. } if *len > 64 << 10)
}

/// Whether it changes the contents of a file, or sees them or their length.
fn touches_contents(op: &Op) -> bool {
    let data = matches!(op, Op::Write { .. } | Op::Read { .. } | Op::Truncate { .. });
    let length =
        matches!(op, Op::Stat { .. } | Op::Link { .. } | Op::Chmod { .. } | Op::Chown { .. } | Op::Utimes { .. });
    takes_steps(op) || data || length
}

/// Writes numbers for the letters of a template.
fn fill(template: &str, rng: &mut Rng, tag: u64) -> String {
    let mut word = |w: &str| match w {
        "N" => rng.pick(LENGTHS).to_string(),
        "O" if rng.one_in(3) => "0".to_string(),
        "O" => {
            let most = 2 * *rng.pick(LENGTHS);
            rng.below(most).to_string()
        }
        "T" => tag.to_string(),
        _ => w.to_string(),
    };
    template.split(' ').map(&mut word).collect::<Vec<_>>().join(" ")
}

/// Writes out enough long names to fill a directory block.
fn long_names(past: &str) -> String {
    match past.strip_prefix("LONG ") {
        None => past.to_string(),
        Some(dir) => {
            let dir = dir.trim_end_matches('/');
            (0..20).map(|n| format!("create {dir}/L{n} 420 0")).collect::<Vec<_>>().join("; ")
        }
    }
}

fn read(text: &str) -> Vec<Op> {
    parse(text).unwrap_or_else(|e| panic!("a program: {e}"))
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks = self.tasks.iter().map(|t| print(t)).collect::<Vec<_>>();
        write!(f, "setup={} tasks={}", print(&self.setup), tasks.join(" | "))
    }
}

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Program, String> {
        let rest = text.strip_prefix("setup=").ok_or("the line has no setup=")?;
        let (setup, tasks) = rest.split_once("tasks=").ok_or("the line has no tasks=")?;
        let tasks = tasks.split('|').map(parse).collect::<Result<_, _>>()?;
        Ok(Program { setup: parse(setup)?, tasks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_parse_back() {
        for seed in 0..2000 {
            let program = Program::draw(seed);
            assert_eq!(program.to_string().parse(), Ok(program));
        }
        assert!("setup=syncfs".parse::<Program>().is_err());
    }
}
