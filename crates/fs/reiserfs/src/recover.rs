//! Recovery at the mount: writes the copies that the log holds in place.
//!
//! Records count from the number in the head of the log on, as far as they follow one another and are whole. Of a block
//! that several hold the newest copy counts. It can be cut off at any point: the log is emptied last.
//!
//! One that is not whole ends the log, if its writing was cut off. Then none was written after it (REISER-C1). Where there is
//! one, the record is damaged ([`Gap`]): a mount refuses it, and the checker takes from it what is sound by itself.
//!
//! Called by `mount.rs` and the checker.

use crate::format::*;
use crate::node::Block;
use crate::planted::{Flaw, planted};
use crate::{superblock, validate};
use arbor_base::device::{Device, Kind};
use arbor_base::field;
use arbor_base::layout::{Corrupt, crc_without, get_u32, hash, put};
use arbor_base::vfs::Result;
use arbor_kit::reads::what_can_be_read;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Copies of blocks by their addresses.
pub(crate) type Copies = BTreeMap<Block, Arc<Vec<u8>>>;

/// What the log holds.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub copies: Copies,
    /// Number of the next record, and the block where it goes.
    pub seq: u64,
    pub at: u32,
    pub records: u64,
    pub heads: Heads,
    /// There was no head of the log: both are to be written.
    pub is_new: bool,
    /// Records that are damaged.
    pub gaps: Vec<Gap>,
    /// The highest number of what looks like a record and does not count.
    pub passed: u64,
}

impl Found {
    /// A number that is not less than `seq`, and greater than those of records that do not count.
    pub fn above(&self, seq: u64) -> u64 {
        let passed = if self.passed < MOST_SEQ / 2 { self.passed + 1 } else { 0 };
        seq.max(passed)
    }
}

/// A record that is not whole, though a later one is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    /// Its number, and the block where it begins.
    pub seq: u64,
    pub at: Block,
    /// The number of the next whole one.
    pub next: u64,
}

impl Gap {
    /// The damage.
    pub fn corrupt(&self, geom: &Geom) -> Corrupt {
        let (found, at) = (format!("that of no record, and record {} follows", self.next), geom.byte(self.at));
        Corrupt::new("log record", "hash", at, found, format!("that of record {}", self.seq))
    }
}

/// A head of the log, one sector.
pub(crate) fn log_head(geom: &Geom, seq: u64) -> Vec<u8> {
    let head = LogHead { magic: LOG_MAGIC.into(), crc: 0.into(), fsid: geom.fsid.into(), seq: seq.into() };
    let mut bytes = vec![0; SECTOR];
    put(&mut bytes, 0, head.as_bytes());
    let crc = crc_without(bytes.get(..LOG_HEAD).unwrap_or(&[]), CRC_AT).unwrap_or(0);
    put_u32(&mut bytes, CRC_AT, crc);
    bytes
}

/// Where the two heads of the log lie.
pub(crate) fn head_at(geom: &Geom, slot: usize) -> u64 {
    geom.byte(1) + (slot * SECTOR) as u64
}

/// The heads of the log: the number from which on records count, and the place of the next head.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heads {
    pub seq: u64,
    /// The one that is not the newest.
    pub next: usize,
    /// Only one of them is whole: its writing was cut off, or it is damaged.
    pub is_torn: bool,
}

/// One of the heads of the log.
fn head(dev: &dyn Device, geom: &Geom, slot: usize) -> Result<u64> {
    let (mut bytes, at) = (vec![0; SECTOR], head_at(geom, slot));
    dev.read_at(Kind::Log, at, &mut bytes)?;
    let head = LogHead::read_from_prefix(&bytes).map(|h| h.0).unwrap_or_default();
    let crc = crc_without(bytes.get(..LOG_HEAD).unwrap_or(&[]), CRC_AT).unwrap_or(0);
    let all = [
        (field!(LogHead, magic), head.magic.get().into(), LOG_MAGIC.into()),
        (field!(LogHead, crc), head.crc.get().into(), crc.into()),
        (field!(LogHead, fsid), head.fsid.get(), geom.fsid),
        // Numbers near their end would run over.
        (field!(LogHead, seq), head.seq.get(), head.seq.get().min(MOST_SEQ)),
    ];
    validate::numbers("log head", at, &all)?;
    Ok(head.seq.get())
}

/// The heads of the log; it is an error if none can be used.
///
/// Where one cannot, the other may be the older one. Then a record at the beginning of the log, which is only written after
/// the newer head, tells what that was.
pub(crate) fn heads(dev: &dyn Device, geom: &Geom) -> Result<Heads> {
    let twice = |slot| head(dev, geom, slot).or_else(|_| head(dev, geom, slot));
    let (seq, slot) = match (twice(0), twice(1)) {
        (Ok(a), Ok(b)) => return Ok(Heads { seq: a.max(b), next: usize::from(a > b), is_torn: false }),
        (Ok(a), Err(e)) if e.is_damage() => (a, 1),
        (Err(e), Ok(b)) if e.is_damage() => (b, 0),
        (Err(e), _) | (_, Err(e)) => return Err(e),
    };
    let newer = match record_head(dev, geom, 2)?.filter(|head| head.seq.get() > seq && head.seq.get() < MOST_SEQ) {
        Some(head) if record(dev, geom, head.seq.get(), 2)?.is_some() => head.seq.get(),
        _ => seq,
    };
    Ok(Heads { seq: newer, next: slot, is_torn: true })
}

/// The head of a record of this volume.
fn record_head(dev: &dyn Device, geom: &Geom, at: Block) -> Result<Option<Record>> {
    let mut bytes = vec![0; SECTOR];
    dev.read_at(Kind::Log, geom.byte(at), &mut bytes)?;
    Ok(own_head(geom, &bytes))
}

fn own_head(geom: &Geom, bytes: &[u8]) -> Option<Record> {
    let head = Record::read_from_prefix(bytes).map(|h| h.0).unwrap_or_default();
    Some(head).filter(|head| head.magic.get() == RECORD_MAGIC && head.fsid.get() == geom.fsid)
}

/// The highest number of a record that the log shows, whole or not. What cannot be read shows none.
pub(crate) fn highest_seq(dev: &dyn Device, geom: &Geom) -> u64 {
    let seq = |block| record_head(dev, geom, block).ok().flatten().map_or(0, |head| head.seq.get());
    (2..=geom.log).map(seq).filter(|seq| *seq < MOST_SEQ / 2).max().unwrap_or(0)
}

/// Numbers of records are less.
const MOST_SEQ: u64 = 1 << 62;

/// Reads the log. Of a volume that is in use (`search`) the rest is searched for records that show that one is damaged; the
/// others count.
pub(crate) fn read_log(dev: &dyn Device, geom: &Geom, search: bool) -> Result<Found> {
    read_log_from(dev, geom, heads(dev, geom)?, search)
}

/// Reads the log of a volume in use whose heads are lost. The first record of a log has the least number of those that count;
/// if none does any more, what it holds is in place (REISER-C3).
pub(crate) fn read_headless(dev: &dyn Device, geom: &Geom) -> Result<Option<Found>> {
    let first = record_head(dev, geom, 2)?.map(|head| head.seq.get()).filter(|seq| *seq < MOST_SEQ);
    let Some(seq) = first else { return Ok(None) };
    let found = read_log_from(dev, geom, Heads { seq, next: 0, is_torn: false }, true)?;
    Ok(Some(found).filter(|found| found.records > 0).map(|found| Found { is_new: true, ..found }))
}

fn read_log_from(dev: &dyn Device, geom: &Geom, heads: Heads, search: bool) -> Result<Found> {
    let mut found = Found { heads, seq: heads.seq, at: 2, ..Found::default() };
    loop {
        let read = || record(dev, geom, found.seq, found.at);
        if let Some((copies, blocks)) = read()?.map_or_else(read, |found| Ok(Some(found)))? {
            found.copies.extend(copies);
            (found.seq, found.at, found.records) = (found.seq + 1, found.at + blocks, found.records + 1);
            continue;
        }
        let may_search = search && found.gaps.len() < MOST_GAPS;
        let later = if may_search { later(dev, geom, found.seq, found.at, &mut found.passed) } else { None };
        let Some((next, at)) = later else { return Ok(found) };
        found.copies.extend(sound_copies(dev, geom, found.seq, found.at..at));
        found.gaps.push(Gap { seq: found.seq, at: found.at, next });
        (found.seq, found.at) = (next, at);
    }
}

/// More damaged records than that are no accident: the log ends there.
const MOST_GAPS: usize = 16;
/// Bytes of the log that are searched at a time.
const SEARCH: usize = 256 << 10;

/// The first whole record after `at` with a number greater than `seq`, and where it begins. What cannot be read is none. Notes
/// the highest number of the others.
fn later(dev: &dyn Device, geom: &Geom, seq: u64, at: Block, passed: &mut u64) -> Option<(u64, Block)> {
    let (size, end) = (geom.node_size, 1 + geom.log);
    let step = (SEARCH / size).max(1) as u32;
    // Whole ones lie one after the other; a log that was made to cost more is not searched to its end.
    let mut most = 4 * u64::from(geom.log);
    for first in (at..end).step_by(step as usize) {
        let mut bytes = vec![0; step.min(end - first) as usize * size];
        what_can_be_read(dev, Kind::Log, geom.byte(first), &mut bytes, size);
        for (block, bytes) in (first..).zip(bytes.chunks_exact(size)) {
            let head = own_head(geom, bytes).filter(|head| head.seq.get() > seq && head.seq.get() < MOST_SEQ);
            let Some(head) = head else { continue };
            *passed = head.seq.get().max(*passed);
            most = most.checked_sub(head.count.get().into())?;
            if block > at && matches!(record(dev, geom, head.seq.get(), block), Ok(Some(_))) {
                return Some((head.seq.get(), block));
            }
        }
    }
    None
}

/// What is sound by itself in the record of this number, which lies there in part: nodes and bitmaps say whose and where they
/// are, and the superblock. Without its head nobody knows of what time it is.
fn sound_copies(dev: &dyn Device, geom: &Geom, seq: u64, blocks: Range<Block>) -> Copies {
    let mut copies = Copies::default();
    let head = record_head(dev, geom, blocks.start).ok().flatten();
    if head.is_none_or(|head| head.seq.get() != seq) {
        return copies;
    }
    let size = dev.geometry().size;
    for at in blocks {
        let mut bytes = vec![0; geom.node_size];
        if dev.read_at(Kind::Log, geom.byte(at), &mut bytes).is_err() {
            continue;
        }
        let node = crate::node::head(&bytes);
        let is_own = node.block.get() > geom.log && geom.byte(node.block.get()) < size;
        let is_sound = node.fsid.get() == geom.fsid && crc_without(&bytes, CRC_AT) == Some(node.crc.get());
        let sb = superblock::decode(bytes.get(..SECTOR).unwrap_or(&[]), 0, size);
        if is_own && is_sound && [NODE_MAGIC, BITMAP_MAGIC].contains(&node.magic.get()) {
            copies.insert(node.block.get(), Arc::new(bytes));
        } else if sb.is_ok_and(|found| found.is_some_and(|(_, g)| g.fsid == geom.fsid)) {
            copies.insert(0, Arc::new(bytes));
        }
    }
    copies
}

/// The record of this number, if it is there and whole, and how many blocks it has.
fn record(dev: &dyn Device, geom: &Geom, seq: u64, at: u32) -> Result<Option<(Copies, u32)>> {
    let (size, end) = (geom.node_size, 1 + geom.log);
    if at >= end {
        return Ok(None);
    }
    let Some(head) = record_head(dev, geom, at)?.filter(|head| head.seq.get() == seq) else { return Ok(None) };
    let count = head.count.get();
    if count == 0 || count >= geom.log {
        return Ok(None);
    }
    let blocks = geom.record_blocks(count) as u32;
    let heads = (blocks - count) as usize;
    if blocks > end - at {
        return Ok(None);
    }
    let mut bytes = vec![0; blocks as usize * size];
    dev.read_at(Kind::Log, geom.byte(at), &mut bytes)?;
    if record_hash(geom, seq, &mut bytes) != head.hash.get() && !planted(Flaw::TornBelieved) {
        return Ok(None);
    }
    let address = |n| get_u32(&bytes, RECORD + 4 * n).unwrap_or(0);
    let copies: Copies = bytes
        .chunks_exact(size)
        .skip(heads)
        .enumerate()
        .map(|(n, copy)| (address(n), Arc::new(copy.to_vec())))
        .collect();
    // Of a volume that grows, one has blocks after its old end.
    let end = dev.geometry().size / size as u64;
    let is_own = |block: Block| block == 0 || (block > geom.log && u64::from(block) < end);
    Ok(copies.keys().all(|block| is_own(*block)).then_some((copies, blocks)))
}

/// The hash of a record; sets its own field to zero.
pub(crate) fn record_hash(geom: &Geom, seq: u64, bytes: &mut [u8]) -> u64 {
    bytes.iter_mut().skip(offset_of!(Record, hash)).take(8).for_each(|b| *b = 0);
    hash((geom.fsid, seq), bytes)
}

/// Writes copies in place, durably, and empties the log; returns the number of the next record. A record after the last
/// one that counts may be there in part, and another one's place: the number is one that none of them has.
pub(crate) fn replay(dev: &dyn Device, geom: &Geom, found: &Found) -> Result<u64> {
    write_copies(dev, geom, found)?;
    let seq = found.above(found.seq + u64::from(geom.log));
    dev.write_at(Kind::Log, head_at(geom, found.heads.next), &log_head(geom, seq))?;
    dev.flush()?;
    Ok(seq)
}

/// Writes copies in place, durably.
pub(crate) fn write_copies(dev: &dyn Device, geom: &Geom, found: &Found) -> Result<()> {
    for (block, copy) in &found.copies {
        dev.write_at(Kind::Other, geom.byte(*block), copy)?;
    }
    Ok(dev.flush()?)
}
