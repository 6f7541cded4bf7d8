//! Runs a program on a ground.

use crate::fill::Filler;
use crate::op::{Digest, Listed, Op, Program};
use std::fmt::Write;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use thiserror::Error;

/// Where operations are carried out.
pub trait Ground {
    /// Carries out one operation; what it brings to light goes to `seen`. An error says what went wrong.
    fn apply(&mut self, op: &Op, seen: &mut Seen) -> Result<(), String>;

    /// How much of the volume is in use, %.
    fn used_percent(&mut self) -> Result<f64, String>;
}

/// A ground on which nothing is carried out any more once the flag is set.
pub(crate) struct Stoppable<'a, G> {
    pub ground: G,
    pub stop: &'a AtomicBool,
}

impl<G> Stoppable<'_, G> {
    pub(crate) fn into_inner(self) -> G {
        self.ground
    }
}

impl<G: Ground> Ground for Stoppable<'_, G> {
    fn apply(&mut self, op: &Op, seen: &mut Seen) -> Result<(), String> {
        if self.stop.load(Relaxed) { Err("interrupted".into()) } else { self.ground.apply(op, seen) }
    }

    fn used_percent(&mut self) -> Result<f64, String> {
        self.ground.used_percent()
    }
}

/// What operations bring to light.
#[derive(Debug, Default)]
pub struct Seen {
    /// Names of the directory listed last.
    pub listed: Vec<Listed>,
    /// Room for the bytes of one call.
    pub buffer: Vec<u8>,
    /// Digest of what was read and done.
    pub digest: Digest,
    /// Calls of the file system's interface so far.
    pub calls: u64,
    /// Bytes read so far.
    pub read_bytes: u64,
    /// Bytes written so far.
    pub written_bytes: u64,
}

/// Why a run ended early.
#[derive(Debug, Error)]
#[error("operation {index}, {op}: {why}")]
pub struct Failure {
    /// Number of the operation, from 0.
    pub index: u64,
    /// Its line.
    pub op: String,
    /// What went wrong.
    pub why: String,
}

/// What a phase did. A phase ends where the next one begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations.
    pub ops: u64,
    /// Calls of the file system's interface: a write of 4 KiB in units of 512 bytes is eight.
    pub calls: u64,
    /// Files made, symbolic links too.
    pub files_made: u64,
    /// Directories made.
    pub dirs_made: u64,
    /// Files opened that were there.
    pub files_opened: u64,
    /// Files removed.
    pub files_removed: u64,
    /// Directories removed.
    pub dirs_removed: u64,
    /// Files renamed.
    pub renamed: u64,
    /// Transactions.
    pub transactions: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.ops += other.ops;
        self.calls += other.calls;
        self.files_made += other.files_made;
        self.dirs_made += other.dirs_made;
        self.files_opened += other.files_opened;
        self.files_removed += other.files_removed;
        self.dirs_removed += other.dirs_removed;
        self.renamed += other.renamed;
        self.transactions += other.transactions;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }
}

/// A phase and what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its name, `"start"` for what comes before the first mark.
    pub name: &'static str,
    /// What it did.
    pub counts: Counts,
}

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Its phases in order.
    pub phases: Vec<Phase>,
    /// Tells it from other runs.
    pub digest: Digest,
}

impl Outcome {
    /// The counts of the first phase called `name`.
    pub fn phase(&self, name: &str) -> Option<&Counts> {
        self.phases.iter().find(|p| p.name == name).map(|p| &p.counts)
    }
}

/// What the caller of [`run`] is told meanwhile.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A phase is about to begin.
    Phase(&'static str),
    /// So much is done, of so much.
    Progress(u64, u64),
}

/// Runs `program` to its end.
pub fn run(
    program: &mut dyn Program,
    ground: &mut dyn Ground,
    tell: &mut dyn FnMut(Event),
) -> Result<Outcome, Failure> {
    let mut seen = Seen::default();
    let mut phases = vec![Phase { name: "start", counts: Counts::default() }];
    let (mut ops, mut line, mut index) = (Vec::new(), String::new(), 0);
    let mut filler = None;
    while program.step(&mut ops) {
        for op in ops.drain(..) {
            line.clear();
            // Writing to a string cannot fail.
            let _ = write!(line, "{op}");
            seen.digest.op(&line);
            if let Op::Phase(name) = op {
                tell(Event::Phase(name));
                phases.push(Phase { name, counts: Counts::default() });
                continue;
            }
            if op == Op::Done {
                if let Some(phase) = phases.last_mut() {
                    phase.counts.transactions += 1;
                }
                continue;
            }
            let done = match (&op, phases.last_mut()) {
                (Op::FillTo { percent, seed }, phase) => {
                    let filler = filler.get_or_insert_with(|| Filler::new(*seed));
                    fill(filler, *percent, ground, &mut seen, phase)
                }
                (op, phase) => apply(op, ground, &mut seen, phase),
            };
            done.map_err(|why| Failure { index, op: line.clone(), why })?;
            if matches!(op, Op::List { .. }) {
                program.listed(&seen.listed);
            }
            index += 1;
        }
        let (done, total) = program.progress();
        tell(Event::Progress(done, total));
    }
    Ok(Outcome { phases, digest: seen.digest })
}

/// Carries out one operation, and counts it.
fn apply(op: &Op, ground: &mut dyn Ground, seen: &mut Seen, phase: Option<&mut Phase>) -> Result<(), String> {
    let before = (seen.calls, seen.read_bytes, seen.written_bytes);
    ground.apply(op, seen)?;
    if let Some(phase) = phase {
        count(&mut phase.counts, op, seen, before);
    }
    Ok(())
}

/// Carries out the operations of the filler, up to so many hundredths.
fn fill(
    filler: &mut Filler,
    percent: u32,
    ground: &mut dyn Ground,
    seen: &mut Seen,
    mut phase: Option<&mut Phase>,
) -> Result<(), String> {
    loop {
        let ops = filler.step(ground, percent)?;
        if ops.is_empty() {
            return Ok(());
        }
        for op in &ops {
            apply(op, ground, seen, phase.as_deref_mut()).map_err(|why| format!("{op}: {why}"))?;
        }
    }
}

fn count(counts: &mut Counts, op: &Op, seen: &Seen, before: (u64, u64, u64)) {
    counts.ops += 1;
    counts.calls += seen.calls - before.0;
    counts.read_bytes += seen.read_bytes - before.1;
    counts.written_bytes += seen.written_bytes - before.2;
    match op {
        Op::Mkdir { .. } => counts.dirs_made += 1,
        Op::Rmdir { .. } => counts.dirs_removed += 1,
        Op::Create { .. } | Op::Symlink { .. } => counts.files_made += 1,
        Op::Open { .. } => counts.files_opened += 1,
        Op::Unlink { .. } => counts.files_removed += 1,
        Op::Rename { .. } => counts.renamed += 1,
        _ => {}
    }
}
