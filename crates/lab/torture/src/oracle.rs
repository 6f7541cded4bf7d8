//! What a power cut may leave.
//!
//! *Names and attributes* are as after some prefix of the operations: not older than the last
//! promise of durability (fsync of anything, syncfs, unmount), not younger than the operation
//! under way.
//!
//! *Contents* follow a rule for each file, since they may lag behind names and attributes: each
//! byte is one that stood there in a state of that file between the last promise for it and the
//! cut (a byte not yet reached counts as zero), and the size is one of that time, where a write
//! may have got any part of the way. A file that has taken the name of another by a rename counts as promised with
//! the contents it had then.

use crate::compare::{Tree, expected, observe, pages_to_read, segments, show};
use crate::data::{Data, PAGE};
use crate::model::{Node, State};
use crate::ops::Op;
use crate::rng::whose;
use arbor_base::vfs::{CrashPromise, FileSystem, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

/// What an operation has made durable when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Nothing.
    None,
    /// The contents of this inode of the model, and all names and attributes.
    File(u64),
    /// Everything.
    All,
}

/// An operation and the events of the device at which it began and ended.
#[derive(Clone, Debug)]
pub struct Step {
    /// The operation.
    pub op: Op,
    /// Events before it began.
    pub start: usize,
    /// Events when it returned.
    pub end: usize,
    /// What it promised.
    pub promise: Promise,
    /// The file that took the name of another by it.
    pub replacer: Option<u64>,
}

/// The history of a run, against which the remains are held.
pub struct Oracle {
    steps: Vec<Step>,
    states: Vec<State>,
    fingerprints: Vec<OnceLock<u64>>,
    /// Which steps are parts of the operation of the next one.
    parts: Vec<usize>,
    promise: CrashPromise,
}

impl Oracle {
    /// A history that begins with `state`.
    pub fn new(state: State) -> Oracle {
        let fingerprints = vec![OnceLock::new()];
        let (steps, parts) = (Vec::new(), Vec::new());
        Oracle { steps, states: vec![state], fingerprints, parts, promise: CrashPromise::Prefix }
    }

    /// The history of an engine that promises so much.
    pub fn under(self, promise: CrashPromise) -> Oracle {
        Oracle { promise, ..self }
    }

    /// Adds a step and the state after it.
    pub fn push(&mut self, step: Step, state: State) {
        self.steps.push(step);
        self.states.push(state);
        self.fingerprints.push(OnceLock::new());
    }

    /// Adds a part of a step, and a state that an engine may go through in it.
    pub fn push_part(&mut self, step: Step, state: State) {
        self.parts.push(self.steps.len());
        self.push(step, state);
    }

    /// Operations among so many steps, begun or done.
    pub fn operations(&self, steps: usize) -> usize {
        steps - self.parts.iter().filter(|part| **part + 1 < steps).count()
    }

    /// The steps so far.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The state after so many operations.
    pub fn state(&self, operations: usize) -> &State {
        &self.states[operations]
    }

    /// Number of operations that a cut after `at` events can know of.
    pub fn newest(&self, at: usize) -> usize {
        self.steps.partition_point(|s| s.start <= at)
    }

    /// Number of operations that a cut after `at` events must know of.
    pub fn oldest(&self, at: usize) -> usize {
        self.last_promise(at, |p| p != Promise::None)
    }

    /// Number of operations whose effect on the contents of `ino` a cut after `at` events must know
    /// of.
    pub fn oldest_of(&self, ino: u64, at: usize) -> usize {
        self.last_promise(at, |p| p == Promise::All || p == Promise::File(ino))
    }

    /// Number of operations that had ended when `at` events had happened.
    pub fn done(&self, at: usize) -> usize {
        self.steps.partition_point(|s| s.end <= at)
    }

    /// Number of operations all of which a cut after `at` events must know of, by a promise for everything.
    pub fn oldest_all(&self, at: usize) -> usize {
        self.last_promise(at, |p| p == Promise::All)
    }

    /// Holds the contents of a file against those of `known` from state `from` up to a cut.
    pub(crate) fn verify_contents(
        &self,
        fs: &dyn FileSystem,
        ino: Ino,
        size: u64,
        (known, from, at): (u64, usize, usize),
    ) -> Result<(), String> {
        self.past(known, from, at).verify(fs, ino, size).map_err(|wrong| wrong.text)
    }

    /// Holds what can be read of a file in a mount that has failed against what it has been since its last promise. What
    /// was lost may read as before, as zeros, or fail; nothing may show the bytes of another file.
    pub(crate) fn verify_survivor(&self, fs: &dyn FileSystem, ino: Ino, known: u64, at: usize) -> Result<(), String> {
        let zeros = Data::default();
        let mut past = self.past(known, 0, at);
        past.versions.push(&zeros);
        let size = fs.getattr(ino).map_err(|e| format!("getattr: {e}"))?.size;
        let pages = past.versions.iter().flat_map(|d| d.pages().keys().copied());
        for page in pages_to_read(&[], size, pages) {
            let Ok(bytes) = read_page(fs, ino, page, size) else { continue };
            past.verify_page(page, &bytes).map_err(|wrong| self.explain(&[], wrong))?;
        }
        Ok(())
    }

    fn last_promise(&self, at: usize, counts: impl Fn(Promise) -> bool) -> usize {
        self.steps[..self.done(at)].iter().rposition(|s| counts(s.promise)).map_or(0, |i| i + 1)
    }

    fn fingerprint(&self, state: usize) -> u64 {
        *self.fingerprints[state].get_or_init(|| expected(&self.states[state]).fingerprint())
    }

    /// Holds a recovered file system against the history up to event `at`.
    pub fn verify(&self, fs: &dyn FileSystem, at: usize) -> Result<(), String> {
        let tree = observe(fs)?;
        let (oldest, newest, print) = (self.oldest(at), self.newest(at), tree.fingerprint());
        let mut tried = BTreeSet::new();
        let mut failure = None;
        for state in (oldest..=newest).rev().filter(|s| self.fingerprint(*s) == print) {
            let files = expected(&self.states[state]).files;
            let inos: Vec<u64> = files.values().map(|f| f.1).collect();
            if !tried.insert(inos) {
                continue;
            }
            match self.verify_files(fs, &tree, &files, (state, at)) {
                Ok(()) => return Ok(()),
                Err(e) => failure = failure.or(Some(e)),
            }
        }
        Err(failure.unwrap_or_else(|| self.no_prefix(&tree, oldest, newest)))
    }

    fn no_prefix(&self, tree: &Tree, oldest: usize, newest: usize) -> String {
        let against = |s: usize| tree.difference(&expected(&self.states[s])).unwrap_or_else(|| "nothing".to_string());
        format!(
            "names and attributes match no prefix of {oldest} to {newest} operations; \
             against {oldest}: {}; against {newest}: {}",
            against(oldest),
            against(newest)
        )
    }

    fn verify_files(
        &self,
        fs: &dyn FileSystem,
        tree: &Tree,
        files: &BTreeMap<Vec<u8>, (u64, u64)>,
        (state, at): (usize, usize),
    ) -> Result<(), String> {
        for (path, (size, ino)) in &tree.files {
            let (_, known) = files.get(path).ok_or_else(|| format!("{} is no file", show(path)))?;
            let past = self.past(*known, self.replaced(*known, state), at);
            past.verify(fs, Ino(*ino), *size).map_err(|e| self.explain(path, e))?;
        }
        Ok(())
    }

    fn explain(&self, path: &[u8], wrong: Wrong) -> String {
        let Wrong { text, foreign } = wrong;
        let tags = (self.steps.len() as u64 + 1).max(1 << 16);
        let from = foreign.and_then(|(offset, bytes)| whose(&bytes, offset, tags));
        let from = from.map(|t| format!(" (the bytes of the write with tag {t})")).unwrap_or_default();
        format!("{}: {text}{from}", show(path))
    }

    /// The state up to `state` in which `ino` took the name of another file last; 0 if there is none.
    fn replaced(&self, ino: u64, state: usize) -> usize {
        self.steps[..state].iter().rposition(|s| s.replacer == Some(ino)).map_or(0, |i| i + 1)
    }

    /// What `ino` may look like after a cut at `at`, as far as that is of state `from` or later.
    fn past(&self, ino: u64, from: usize, at: usize) -> Past<'_> {
        let from = self.oldest_of(ino, at).max(from);
        let mut past = Past { sizes: Vec::new(), versions: Vec::new() };
        let mut last: Option<&Arc<Node>> = None;
        for state in from..=self.newest(at) {
            let Some(node) = self.states[state].nodes.get(&ino) else { continue };
            let Some(data) = node.data() else { continue };
            if last.is_some_and(|l| Arc::ptr_eq(l, node)) {
                continue;
            }
            let before = last.and_then(|n| n.data()).map(Data::size);
            let truncates = || matches!(self.steps[state - 1].op, Op::Truncate { .. });
            past.sizes.push(match before {
                Some(b) if b < data.size() && !truncates() => b..=data.size(),
                Some(b) if b > data.size() && self.promise != CrashPromise::Prefix && truncates() => data.size()..=b,
                _ => data.size()..=data.size(),
            });
            past.versions.push(data);
            last = Some(node);
        }
        past
    }
}

/// The states of one file between its last promise and the cut.
struct Past<'a> {
    sizes: Vec<RangeInclusive<u64>>,
    versions: Vec<&'a Data>,
}

struct Wrong {
    text: String,
    /// Bytes that should not be there, and their offset.
    foreign: Option<(u64, Vec<u8>)>,
}

impl From<String> for Wrong {
    fn from(text: String) -> Wrong {
        Wrong { text, foreign: None }
    }
}

impl Past<'_> {
    fn verify(&self, fs: &dyn FileSystem, ino: Ino, size: u64) -> Result<(), Wrong> {
        if !self.sizes.iter().any(|s| s.contains(&size)) {
            let sizes: BTreeSet<_> = self.sizes.iter().map(|r| (*r.start(), *r.end())).collect();
            return Err(format!("has {size} bytes, could have {sizes:?}").into());
        }
        let segments = segments(fs, ino, size)?;
        let known = self.versions.iter().flat_map(|d| d.pages().keys().copied());
        for page in pages_to_read(&segments, size, known) {
            self.verify_page(page, &read_page(fs, ino, page, size)?)?;
        }
        Ok(())
    }

    fn verify_page(&self, page: u64, bytes: &[u8]) -> Result<(), Wrong> {
        let mut candidates: Vec<&[u8]> = Vec::new();
        for version in &self.versions {
            let could = version.pages().get(&page).map_or(&ZEROS[..], |p| &p[..]);
            if !candidates.iter().any(|c| std::ptr::eq(*c, could)) {
                candidates.push(could);
            }
        }
        if candidates.iter().any(|c| c[..bytes.len()] == *bytes) {
            return Ok(());
        }
        let start = page * PAGE;
        match (0..bytes.len()).find(|i| !candidates.iter().any(|c| c[*i] == bytes[*i])) {
            None => Ok(()),
            Some(i) => Err(Wrong {
                text: wrong_byte(start + i as u64, bytes[i], candidates.iter().map(|c| c[i])),
                foreign: Some((start + i as u64, bytes[i..].to_vec())),
            }),
        }
    }
}

/// Reads a page of a file, up to its end.
fn read_page(fs: &dyn FileSystem, ino: Ino, page: u64, size: u64) -> Result<Vec<u8>, String> {
    let start = page * PAGE;
    let mut buf = vec![0xee; PAGE.min(size - start) as usize];
    match fs.read(ino, start, &mut buf).map_err(|e| format!("read at {start}: {e}"))? {
        n if n == buf.len() => Ok(buf),
        n => Err(format!("read at {start} gives {n} bytes, should give {}", buf.len())),
    }
}

static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

fn wrong_byte(offset: u64, is: u8, could: impl Iterator<Item = u8>) -> String {
    let could: BTreeSet<u8> = could.collect();
    format!("byte {offset} is {is:#04x}, could be one of {could:02x?}")
}
