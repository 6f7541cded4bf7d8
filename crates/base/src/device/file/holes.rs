//! Fills holes of a sparse image before small writes that are made durable one by one.
//!
//! The host gives a hole its blocks when something is written there, and the flush then has to make
//! that durable too: a commit of the host's journal for each. Where one small write after another is
//! flushed, the hole around the write is filled with zeros, so that the next ones find blocks.
//!
//! Nothing changes by it: only zeros are written over zeros, while nobody else writes, and only within
//! the volume. What the host calls a hole is read before it is believed.

use super::raw::RawFile;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rustc_hash::FxHashSet;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Filled at a time, and aligned to it.
const CHUNK: u64 = 256 << 10;
/// Flushes with at most so many bytes written since the one before are small ...
const SMALL_FLUSH: u64 = 128 << 10;
/// ... and after so many of them in a row holes are filled ...
const STREAK: u32 = 4;
/// ... around writes up to this length.
const SMALL_WRITE: u64 = 64 << 10;
/// Chunks known to be filled; forgotten all at once when they are more.
const MOST_KNOWN: usize = 1 << 16;

/// State of the holes of a file, and of how it is written.
#[derive(Debug, Default)]
pub(super) struct Holes {
    /// Shared by writes, exclusive for filling.
    writing: RwLock<()>,
    known: Mutex<FxHashSet<u64>>,
    since_flush: AtomicU64,
    streak: AtomicU32,
    /// Where holes may be filled.
    within: Mutex<Vec<Range<u64>>>,
    /// A range that has no holes.
    solid: Mutex<Range<u64>>,
    /// Filling has failed, and is not tried again.
    failed: AtomicBool,
}

fn fill_hole(file: &RawFile, start: u64, end: u64) -> io::Result<()> {
    let mut bytes = vec![0; end.saturating_sub(start) as usize];
    file.read(start, &mut bytes)?;
    if bytes.iter().any(|b| *b != 0) {
        return Ok(());
    }
    // Space left on the host must go to bytes that were really written.
    file.write(start, &[&bytes]).inspect_err(|_| drop(file.discard(start, end - start)))
}

impl Holes {
    /// Holes may be filled in this range, and others that were given; one inside of another takes its place.
    pub(super) fn confine(&self, range: Range<u64>) {
        let mut within = self.within.lock();
        within.retain(|r| r.start > range.start || range.end > r.end);
        within.push(range);
    }

    /// Must be held during anything that changes the file.
    pub(super) fn change(&self) -> RwLockReadGuard<'_, ()> {
        self.writing.read()
    }

    /// Called before a write, with [`Holes::change`] not held yet. Fills the holes around it, if it is likely to be
    /// flushed on its own. Errors are ignored.
    pub(super) fn before_write(&self, file: &RawFile, size: impl Fn() -> u64, offset: u64, len: u64) {
        let since = self.since_flush.fetch_add(len, Relaxed).saturating_add(len);
        if self.streak.load(Relaxed) < STREAK || since > SMALL_FLUSH || len == 0 || len > SMALL_WRITE {
            return;
        }
        for chunk in offset / CHUNK..=(offset + len - 1) / CHUNK {
            if !self.known.lock().contains(&chunk) {
                let _alone = self.writing.write();
                if self.failed.load(Relaxed) || self.fill(file, size(), chunk).is_err() {
                    self.failed.store(true, Relaxed);
                    return;
                }
                let mut known = self.known.lock();
                if known.len() >= MOST_KNOWN {
                    known.clear();
                }
                known.insert(chunk);
            }
        }
    }

    fn fill(&self, file: &RawFile, size: u64, chunk: u64) -> io::Result<()> {
        let (mut at, end) = (chunk * CHUNK, ((chunk + 1) * CHUNK).min(size));
        let within = self.within.lock();
        // The last chunk of a volume may be somebody else's in part.
        if !within.iter().any(|r| r.start <= at && end <= r.end) {
            return Ok(());
        }
        drop(within);
        while at < end {
            let solid = self.solid.lock().clone();
            if solid.contains(&at) {
                at = solid.end;
                continue;
            }
            let Some(hole) = file.next_hole(at)? else { break };
            if hole.start >= end {
                *self.solid.lock() = at..hole.start;
                break;
            }
            if hole.end <= at {
                // The host contradicts itself.
                break;
            }
            at = hole.end.min(end);
            fill_hole(file, hole.start, at)?;
        }
        Ok(())
    }

    /// Called when the file was flushed, with success.
    pub(super) fn flushed(&self) {
        match self.since_flush.swap(0, Relaxed) {
            0 => {}
            1..=SMALL_FLUSH => {
                self.streak.fetch_add(1, Relaxed);
            }
            _ => self.streak.store(0, Relaxed),
        }
    }

    /// Called when a hole was made.
    pub(super) fn made(&self, offset: u64, len: u64) {
        *self.solid.lock() = 0..0;
        let mut known = self.known.lock();
        let (first, last) = (offset / CHUNK, offset.saturating_add(len) / CHUNK);
        if last - first > known.len() as u64 {
            known.retain(|chunk| *chunk < first || *chunk > last);
        } else {
            (first..=last).for_each(|chunk| {
                known.remove(&chunk);
            });
        }
    }
}
