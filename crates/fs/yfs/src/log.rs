//! The log of a mounted volume: in-core buffers that become records, and the circular area on the device.
//!
//! `commit.rs` decides what is written when.
//!
//! | file | what |
//! |---|---|
//! | `changes.rs` | the compound transaction, before it is in a record |
//! | `dirty.rs` | buffers with changes that a record has, and their place on the device has not |
//! | `marked.rs` | extents that a record marks free and the bitmap does not |

mod changes;
mod dirty;
mod marked;

use crate::format::*;
use arbor_base::device::{Kind, Request};
use arbor_base::layout::crc_without;
use arbor_base::vfs::{Error, Ino, Result, Time};
pub(crate) use changes::{Changed, Item, Tx};
pub(crate) use dirty::DirtyBuffers;
pub(crate) use marked::Marked;
use std::collections::VecDeque;
use std::mem::offset_of;
use zerocopy::IntoBytes;

/// Number of a log record since mount; records become durable in this order.
pub(crate) type Rec = u64;

/// A piece of a file's data as it was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Witness {
    pub ino: Ino,
    pub page: u64,
    /// Where it lies, in bytes.
    pub offset: u64,
    pub len: u32,
    pub crc: u32,
}

impl Witness {
    pub fn lies_in(&self, offset: u64, len: u64) -> bool {
        self.offset >= offset && self.offset + u64::from(self.len) <= offset + len
    }

    pub fn meets(&self, offset: u64, len: u64) -> bool {
        self.offset < offset + len && offset < self.offset + u64::from(self.len)
    }
}

struct Sealed {
    rec: Rec,
    entries: Vec<u8>,
    count: u32,
}

/// The log: in-core buffers and the circular area on disk.
pub(crate) struct Log {
    /// Byte where the area starts on the log device.
    start: u64,
    sectors: u32,
    open: Vec<u8>,
    open_count: u32,
    open_rec: Rec,
    open_since: Option<Time>,
    active: VecDeque<Sealed>,
    idle: Vec<Vec<u8>>,
    cycle: u32,
    head: u32,
    prev: Lsn,
    /// Records on disk that may still be needed: number, LSN, LSN of the one before.
    on_disk: VecDeque<(Rec, Lsn, Lsn)>,
    durable: Rec,
    /// Its LSN, 0 before the first one.
    settled: Lsn,
    anchor_seq: u64,
    /// The tail in the durable anchor.
    anchor_tail: Lsn,
    /// Bytes of a record from which on a new one is begun.
    seal_at: usize,
    /// Most bytes that one transaction may log.
    pub max_tx: usize,
    /// Buffers that are deleted by a record that is not durable yet, each with the record.
    deleted: VecDeque<(Rec, u64)>,
    /// The data that the last durable record bears witness to.
    witnesses: Vec<Witness>,
    pub bytes_logged: u64,
    pub records: u64,
    pub transactions: u64,
}

impl Log {
    pub fn max_tx(geom: &Geom) -> usize {
        96 * 1024 + 16 * geom.block_size()
    }

    /// Smallest log area in bytes: YFS-C4 with room for a transaction of the greatest size.
    pub fn min_bytes(geom: &Geom) -> u64 {
        6 * Log::max_tx(geom) as u64
    }

    pub fn new(geom: &Geom, sb: &SuperBlock, cycle: u32, anchor_seq: u64) -> Log {
        let area = sb.log_sectors.get() * SECTOR;
        Log {
            start: sb.log_start.get() * SECTOR,
            sectors: sb.log_sectors.get() as u32,
            open: Vec::new(),
            open_count: 0,
            open_rec: 1,
            open_since: None,
            active: VecDeque::new(),
            idle: Vec::new(),
            cycle,
            head: LOG_FIRST,
            prev: Lsn(0),
            on_disk: VecDeque::new(),
            durable: 0,
            settled: Lsn(0),
            anchor_seq,
            anchor_tail: Lsn::new(cycle, LOG_FIRST),
            seal_at: (area as usize / 64).clamp(8 * 1024, 256 * 1024),
            max_tx: Log::max_tx(geom),
            deleted: VecDeque::new(),
            witnesses: Vec::new(),
            bytes_logged: 0,
            records: 0,
            transactions: 0,
        }
    }

    /// Whether full log buffers wait for the log daemon.
    pub fn has_full(&self) -> bool {
        !self.active.is_empty()
    }

    fn free_sectors(&self) -> u32 {
        let (tail, head) = (self.anchor_tail.sector(), self.head);
        if self.anchor_tail.cycle() == self.cycle {
            (self.sectors - head) + (tail - LOG_FIRST)
        } else {
            tail.saturating_sub(head)
        }
    }

    pub fn used_bytes(&self) -> u64 {
        u64::from(self.sectors - LOG_FIRST - self.free_sectors()) * SECTOR
    }

    pub fn area_bytes(&self) -> u64 {
        u64::from(self.sectors - LOG_FIRST) * SECTOR
    }

    /// Whether another transaction is sure to find room: beside what is in core, what it may add, and what wrapping
    /// around may waste.
    pub fn has_room(&self, beside: usize) -> bool {
        let pending: usize = self.open.len() + self.active.iter().map(|s| s.entries.len() + 1024).sum::<usize>();
        let need = pending + beside + self.max_tx / 2 + self.seal_at + self.max_tx + 4096 + WITNESSES * LOG_ENTRY;
        u64::from(self.free_sectors()) * SECTOR > need as u64
    }

    /// Bytes that joined transactions may log before no more are joined to them.
    pub fn compound(&self) -> usize {
        self.max_tx / 6
    }

    pub fn seal(&mut self) {
        if self.open_count > 0 {
            self.seal_anyway();
        }
    }

    pub fn seal_anyway(&mut self) {
        let fresh = self.idle.pop().unwrap_or_default();
        let entries = std::mem::replace(&mut self.open, fresh);
        self.active.push_back(Sealed { rec: self.open_rec, entries, count: self.open_count });
        self.open_rec += 1;
        self.open_count = 0;
        self.open_since = None;
    }

    pub fn entry(&mut self, head: LogEntry, data: &[u8]) {
        self.open.extend_from_slice(head.as_bytes());
        self.open.extend_from_slice(data);
        self.open_count += 1;
    }

    /// The record that transactions are logged to now.
    pub fn rec(&self) -> Rec {
        self.open_rec
    }

    /// Bytes of that record.
    pub fn open_len(&self) -> usize {
        self.open.len()
    }

    /// Since when the oldest transaction waits to be written.
    pub fn open_since(&self) -> Option<Time> {
        self.open_since
    }

    pub fn note_commit(&mut self, now: Time) {
        self.open_since.get_or_insert(now);
    }

    pub fn note_deleted(&mut self, addr: u64) {
        self.deleted.push_back((self.open_rec, addr));
    }

    pub fn end_tx(&mut self) {
        self.transactions += 1;
        if self.open.len() >= self.seal_at {
            self.seal();
        }
    }

    /// Whether only one record waits to be written.
    pub fn has_one_sealed(&self) -> bool {
        self.active.len() == 1
    }

    /// Adds witnesses to the record that waits to be written.
    pub fn bear_witness(&mut self, all: &[Witness]) {
        let Some(record) = self.active.front_mut() else { return };
        for w in all {
            let entry = LogEntry {
                kind: EntryType::Witness as u8,
                addr: (w.offset / SECTOR).into(),
                at: w.crc.into(),
                len: w.len.into(),
                ..LogEntry::default()
            };
            record.entries.extend_from_slice(entry.as_bytes());
            record.count += 1;
        }
    }

    /// Turns sealed buffers into writes at the head of the log.
    pub fn place(&mut self, fsid: u64, secs: i64) -> Result<(Vec<Request>, Rec)> {
        let mut writes = Vec::new();
        let mut last = self.durable;
        while let Some(s) = self.active.pop_front() {
            let total = RECORD_HEAD + s.entries.len();
            let sectors = (total.div_ceil(SECTOR as usize)) as u32;
            if self.head + sectors > self.sectors {
                self.cycle += 1;
                self.head = LOG_FIRST;
            }
            let lsn = Lsn::new(self.cycle, self.head);
            if self.cycle != self.anchor_tail.cycle() && self.head + sectors > self.anchor_tail.sector() {
                return Err(Error::refused("the log is full: a transaction exceeded its reservation"));
            }
            let bytes = record(&s, (lsn, self.prev, self.settled), fsid, secs);
            self.bytes_logged += bytes.len() as u64;
            self.records += 1;
            writes.push(Request::write(Kind::Log, self.start + u64::from(self.head) * SECTOR, vec![bytes.into()]));
            self.on_disk.push_back((s.rec, lsn, self.prev));
            self.prev = lsn;
            self.head += sectors;
            last = s.rec;
            let mut buf = s.entries;
            buf.clear();
            if self.idle.len() < 8 {
                self.idle.push(buf);
            }
        }
        Ok((writes, last))
    }

    /// Records on disk that may still be needed: number, LSN, LSN of the one before.
    pub fn on_disk(&self) -> impl Iterator<Item = (Rec, Lsn, Lsn)> + '_ {
        self.on_disk.iter().copied()
    }

    /// The record on disk that was placed last.
    pub fn last_placed(&self) -> Lsn {
        self.prev
    }

    /// Records that wait to be written, in their order.
    pub fn waiting(&self) -> impl Iterator<Item = Rec> + '_ {
        self.active.iter().map(|s| s.rec).chain([self.open_rec])
    }

    /// Buffers that are deleted by a record that is not durable yet.
    pub fn deleted(&self) -> impl Iterator<Item = u64> + '_ {
        self.deleted.iter().map(|d| d.1)
    }

    /// The last record that is durable.
    pub fn durable(&self) -> Rec {
        self.durable
    }

    /// What it bears witness to.
    pub fn witnesses(&self) -> &[Witness] {
        &self.witnesses
    }

    /// Notes that records up to `last` are durable, and that this one bears witness to `witnesses`. Returns the buffers
    /// that they delete, each with its record.
    pub fn flushed(&mut self, last: Rec, witnesses: Vec<Witness>) -> Vec<(Rec, u64)> {
        (self.durable, self.witnesses) = (last, witnesses);
        self.settled = self.on_disk.iter().rfind(|r| r.0 == last).map_or(self.settled, |r| r.1);
        let count = self.deleted.partition_point(|(rec, _)| *rec <= last);
        self.deleted.drain(..count).collect()
    }

    /// The newest record of the older half of those on disk.
    pub fn middle(&self) -> Rec {
        self.durable.saturating_sub(self.on_disk.len() as u64 / 2)
    }

    /// Drops records before `tail`. Returns the anchor for that, unless the durable one has this tail.
    pub fn drop_before(&mut self, tail: Rec) -> Option<Anchor> {
        while self.on_disk.front().is_some_and(|r| r.0 < tail) {
            self.on_disk.pop_front();
        }
        let end = (Lsn::new(self.cycle, self.head), self.prev);
        let (tail, prev) = self.on_disk.front().map_or(end, |&(_, lsn, prev)| (lsn, prev));
        if tail == self.anchor_tail {
            return None;
        }
        self.anchor_seq += 1;
        Some(Anchor { start: self.start, seq: self.anchor_seq, tail, prev })
    }

    /// Notes that an anchor with this tail is durable (YFS-C4).
    pub fn anchored(&mut self, tail: Lsn) {
        self.anchor_tail = tail;
    }
}

/// An anchor to be written: where it goes, and its contents.
pub(crate) struct Anchor {
    pub start: u64,
    pub seq: u64,
    pub tail: Lsn,
    pub prev: Lsn,
}

fn record(s: &Sealed, (lsn, prev, settled): (Lsn, Lsn, Lsn), fsid: u64, secs: i64) -> Vec<u8> {
    let head = LogHeader {
        magic: RECORD_MAGIC.into(),
        fsid: fsid.into(),
        lsn: lsn.0.into(),
        prev: prev.0.into(),
        len: (s.entries.len() as u32).into(),
        count: s.count.into(),
        time: secs.into(),
        settled: settled.0.into(),
        ..LogHeader::default()
    };
    let total = RECORD_HEAD + s.entries.len();
    let mut bytes = Vec::with_capacity(total.next_multiple_of(SECTOR as usize));
    bytes.extend_from_slice(head.as_bytes());
    bytes.extend_from_slice(&s.entries);
    let at = offset_of!(LogHeader, crc);
    let crc = crc_without(&bytes, at).unwrap_or(0);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    bytes.resize(total.next_multiple_of(SECTOR as usize), 0);
    bytes
}
