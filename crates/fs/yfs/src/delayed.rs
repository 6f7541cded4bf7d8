//! Delayed writes: files whose dirty pages have no place on the device yet, or whose size and times are not logged.

use arbor_base::cache::Write;
use arbor_base::vfs::{Error, Ino, Time};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Changes of an inode by delayed writes that no transaction has logged yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delayed {
    pub size: u64,
    pub mtime: Time,
    pub ctime: Time,
    /// Fragments reserved for its dirty pages.
    reserved: u64,
    /// Its dirty pages in unwritten space: each may split an extent in three.
    converting: u64,
    /// Tree nodes kept for its conversions, beside those that are counted by pages.
    nodes: u64,
    since: Time,
    order: u64,
    /// Write-back must make extents even if the data would fit the inode.
    pub no_inline: bool,
}

impl Delayed {
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    pub fn is_converting(&self) -> bool {
        self.converting > 0
    }
}

/// All files with delayed writes, and the space promised to all of them.
#[derive(Default)]
pub(crate) struct DelayedWrites {
    of: FxHashMap<u64, Delayed>,
    /// Files by [`Delayed::order`].
    order: BTreeMap<u64, u64>,
    seq: u64,
    reserved: u64,
    converting: u64,
    nodes: u64,
}

impl DelayedWrites {
    pub fn get(&self, ino: Ino) -> Option<&Delayed> {
        self.of.get(&ino.0)
    }

    pub fn get_mut(&mut self, ino: Ino) -> Option<&mut Delayed> {
        self.of.get_mut(&ino.0)
    }

    pub fn has(&self, ino: Ino) -> bool {
        self.of.contains_key(&ino.0)
    }

    /// The delayed state of a file; if there is none yet, makes it from the state on disk: size, and the times of
    /// changes of data and of the inode.
    pub fn entry(&mut self, ino: Ino, (size, mtime, ctime): (u64, Time, Time), now: Time) -> &mut Delayed {
        let (seq, order) = (&mut self.seq, &mut self.order);
        self.of.entry(ino.0).or_insert_with(|| {
            *seq += 1;
            order.insert(*seq, ino.0);
            let (reserved, converting, nodes) = (0, 0, 0);
            let (since, order) = (now, *seq);
            Delayed { size, mtime, ctime, reserved, converting, nodes, since, order, no_inline: false }
        })
    }

    /// Promises fragments to a file, and tree nodes for its pages in unwritten space.
    pub fn reserve(&mut self, ino: Ino, frags: u64, converting: u64, nodes: u64) {
        let Some(d) = self.of.get_mut(&ino.0) else { return };
        (d.reserved, d.converting, d.nodes) = (d.reserved + frags, d.converting + converting, d.nodes + nodes);
        (self.reserved, self.converting) = (self.reserved + frags, self.converting + converting);
        self.nodes += nodes;
    }

    /// Cancels the reservation for pages that are cut off.
    pub fn unreserve(&mut self, ino: Ino, frags: u64) {
        if let Some(d) = self.of.get_mut(&ino.0) {
            let frags = frags.min(d.reserved);
            d.reserved -= frags;
            self.reserved = self.reserved.saturating_sub(frags);
        }
    }

    /// Puts a file behind all others: it could not be written.
    pub fn postpone(&mut self, ino: Ino) {
        if let Some(d) = self.of.get_mut(&ino.0) {
            self.order.remove(&d.order);
            self.seq += 1;
            d.order = self.seq;
            self.order.insert(self.seq, ino.0);
        }
    }

    /// Drops the delayed state of a file; its pages are gone or clean.
    pub fn remove(&mut self, ino: Ino) {
        if let Some(d) = self.of.remove(&ino.0) {
            self.order.remove(&d.order);
            self.reserved = self.reserved.saturating_sub(d.reserved);
            self.converting = self.converting.saturating_sub(d.converting);
            self.nodes = self.nodes.saturating_sub(d.nodes);
        }
    }

    /// Fragments promised to delayed allocations.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Dirty pages in unwritten space.
    pub fn converting(&self) -> u64 {
        self.converting
    }

    /// Tree nodes that are promised, beside those counted by pages.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// The number for [`Which::UpTo`] that covers all files delayed now.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The file that was delayed first, if that was at or before `seq`.
    pub fn first_until(&self, seq: u64) -> Option<Ino> {
        self.order.range(..=seq).next().map(|(_, ino)| Ino(*ino))
    }

    /// Since when the oldest delayed write waits.
    pub fn oldest(&self) -> Option<Time> {
        self.order.values().next().and_then(|ino| self.of.get(ino)).map(|d| d.since)
    }
}

/// The files that write-back writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    One(Ino),
    /// Files that became dirty at or before this number of [`Delayed::order`].
    UpTo(u64),
}

/// Data to be written by one batch of write-back.
#[derive(Default)]
pub(crate) struct DataWrites {
    pub pieces: Vec<crate::buffers::Piece>,
    /// File and page of each piece.
    pub owners: Vec<(Ino, u64)>,
    pub pages: Vec<Write>,
    /// The last record bears witness to data of the next file: another record has to come first.
    pub blocked: bool,
    /// Why a file could not be written.
    pub unwritten: Option<Error>,
}
