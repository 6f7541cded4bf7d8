//! Recovery at the mount: writes the copies that the log holds in place.
//!
//! Records count from the number in the head of the log on, as far as they follow one another and are whole. Of a block
//! that several hold the newest copy counts. It can be cut off at any point: the log is emptied last.
//!
//! Called by `mount.rs` and the checker.

use crate::format::*;
use crate::node::Block;
use crate::planted::{Flaw, planted};
use crate::validate;
use arbor_base::device::{Device, Kind};
use arbor_base::field;
use arbor_base::layout::{crc_without, get_u32, hash, put};
use arbor_base::vfs::{Error, Result};
use std::collections::BTreeMap;
use std::mem::offset_of;
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
    /// There was no head of the log.
    pub is_new: bool,
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
        (Ok(a), Err(Error::Corrupt(_))) => (a, 1),
        (Err(Error::Corrupt(_)), Ok(b)) => (b, 0),
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
    let head = Record::read_from_prefix(&bytes).map(|h| h.0).unwrap_or_default();
    Ok(Some(head).filter(|head| head.magic.get() == RECORD_MAGIC && head.fsid.get() == geom.fsid))
}

/// The highest number of a record that the log shows, whole or not.
pub(crate) fn highest_seq(dev: &dyn Device, geom: &Geom) -> Result<u64> {
    let mut highest = 0;
    for block in 2..=geom.log {
        let seq = record_head(dev, geom, block)?.map_or(0, |head| head.seq.get());
        highest = if seq < MOST_SEQ / 2 { seq.max(highest) } else { highest };
    }
    Ok(highest)
}

/// Numbers of records are less.
const MOST_SEQ: u64 = 1 << 62;

/// Reads the log.
pub(crate) fn read_log(dev: &dyn Device, geom: &Geom) -> Result<Found> {
    let heads = heads(dev, geom)?;
    let mut found = Found { heads, seq: heads.seq, at: 2, ..Found::default() };
    loop {
        let read = || record(dev, geom, found.seq, found.at);
        let Some((copies, blocks)) = read()?.map_or_else(read, |found| Ok(Some(found)))? else { return Ok(found) };
        found.copies.extend(copies);
        (found.seq, found.at, found.records) = (found.seq + 1, found.at + blocks, found.records + 1);
    }
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
    for (block, copy) in &found.copies {
        dev.write_at(Kind::Other, geom.byte(*block), copy)?;
    }
    dev.flush()?;
    let seq = found.seq + u64::from(geom.log);
    dev.write_at(Kind::Log, head_at(geom, found.heads.next), &log_head(geom, seq))?;
    dev.flush()?;
    Ok(seq)
}
