//! Where a log of segments ends, as recovery finds it: what looks like the end may be damage.
//!
//! Partial segments are written in sets; each tells in its summary where the log goes on. Called by the log-structured
//! engines' `recover.rs`.

use crate::runs::Runs;
use arbor_base::device::Device;
use arbor_base::vfs::{Error, Result};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use zerocopy::FromBytes;

/// The checkpoint from which the log is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The newer of two.
    Newest,
    /// The older of two, since the newer one leads to nothing: later mounts may have written what follows.
    Older,
    /// The only one: the other is damaged, and may have been newer. No crash does that, since it is one sector.
    Only,
}

/// Where a log was followed to: a partial segment of the next set should be there, and none is.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// The segment that is being filled.
    pub seg: u32,
    /// Units of it that are filled.
    pub offset: u32,
    /// The segment in which the log goes on.
    pub next_seg: u32,
    /// Ordinal number of this filling.
    pub fill: u64,
}

/// The sound checkpoints of two regions, the one with the greater serial number first, each with its region. One that cannot be
/// read counts as damaged where the other is sound.
pub fn checkpoints<C: FromBytes>(
    dev: &dyn Device,
    regions: [u64; 2],
    is_sound: impl Fn(&C, &[u8]) -> bool,
    serial: impl Fn(&C) -> u64,
) -> Result<Vec<(usize, C)>> {
    let (mut found, mut unread) = (Vec::new(), None);
    for (region, at) in regions.into_iter().enumerate() {
        match crate::head::sector(dev, at, &is_sound) {
            Err(Error::Io(e)) => unread = Some(Error::Io(e)),
            checkpoint => found.extend(checkpoint?.map(|checkpoint| (region, checkpoint))),
        }
    }
    found.sort_by_key(|(_, checkpoint)| Reverse(serial(checkpoint)));
    unread.filter(|_| found.is_empty()).map_or(Ok(found), Err)
}

/// What a summary tells of its place in the log.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Number of its mount.
    pub epoch: u64,
    /// Number of its set.
    pub set: u64,
    /// Ordinal number of the filling of its segment.
    pub fill: u64,
    /// The segment in which the log goes on.
    pub next_seg: u32,
}

/// A log that has been followed to its end.
pub trait Log {
    /// Segments of the volume.
    fn segs(&self) -> u32;

    /// Units of a segment: what a partial segment may begin at.
    fn seg_units(&self) -> u32;

    /// The segments that may be filled.
    fn clean(&self) -> &Runs;

    /// Number of the mount that wrote the end, and of the set that should come next.
    fn next(&self) -> (u64, u64);

    /// A segment from a unit on; `None` if it cannot be read.
    fn read(&self, seg: u32, first: u32) -> Option<Vec<u8>>;

    /// The sound summary, if there is one, at a unit of what was read.
    fn summary(&self, bytes: &[u8], at: u32) -> Option<Place>;
}

impl Stop {
    /// Segment and unit where the partial segment begins, unless it is too long for the rest of its segment.
    pub fn place(&self, seg_units: u32) -> (u32, u32) {
        if self.offset < seg_units { (self.seg, self.offset) } else { (self.next_seg, 0) }
    }

    /// A set behind the one that should come next, and where the summary is missing: in the rest of the segment, in the next
    /// one, and in those where other parts of that set say that the log goes on. With a later epoch than the newest
    /// checkpoint's comes what a mount has left that was cut off before its own. What cannot be read is no evidence.
    pub fn behind(&self, log: &impl Log, from: Start) -> Option<(u64, (u32, u32))> {
        let (units, (epoch, next), mut seen) = (log.seg_units(), log.next(), BTreeSet::new());
        // Who has lost the name of the next segment would take the next clean one.
        let clean = log.clean();
        let guess = clean.after(self.next_seg).next().or_else(|| clean.before(self.next_seg).next());
        let mut todo = vec![(guess.unwrap_or(self.seg), 0), (self.next_seg, 0), (self.seg, self.offset)];
        let mut here = self.place(units);
        while let Some((seg, first)) = todo.pop() {
            if first >= units || seg >= log.segs() || !seen.insert(seg) {
                continue;
            }
            // Nothing was in the two segments where the next part may be.
            if Some(seg) == guess && todo.is_empty() {
                here = (self.next_seg, 0);
            }
            let Some(bytes) = log.read(seg, first) else { continue };
            for found in (0..units - first).filter_map(|at| log.summary(&bytes, at)) {
                let is_same = found.epoch == epoch || found.epoch > epoch && from != Start::Newest;
                if !is_same || found.fill < self.fill {
                    continue;
                }
                match found.set.cmp(&next) {
                    Ordering::Greater => return Some((found.set, here)),
                    Ordering::Equal => todo.push((found.next_seg, 0)),
                    Ordering::Less => {}
                }
            }
        }
        None
    }
}
