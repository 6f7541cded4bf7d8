//! Recovery at the mount: writes the copies that the log holds in place.
//!
//! Records count from the number in the head of the log on, as far as they follow one another and are whole. Of a block
//! that several hold the newest copy counts. It can be cut off at any point: the log is emptied last.
//!
//! Called by `mount.rs` and the checker.

use crate::format::*;
use crate::node::Block;
use crate::planted::{Flaw, planted};
use arbor_base::device::{Device, Kind};
use arbor_base::layout::{Corrupt, crc_without, get_u32, hash, put};
use arbor_base::vfs::Result;
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
}

/// The first sector of the log.
pub(crate) fn log_head(geom: &Geom, seq: u64) -> Vec<u8> {
    let head = LogHead { magic: LOG_MAGIC.into(), crc: 0.into(), fsid: geom.fsid.into(), seq: seq.into() };
    let mut bytes = vec![0; SECTOR];
    put(&mut bytes, 0, head.as_bytes());
    let crc = crc_without(bytes.get(..LOG_HEAD).unwrap_or(&[]), CRC_AT).unwrap_or(0);
    put_u32(&mut bytes, CRC_AT, crc);
    bytes
}

/// The number from which on records count.
pub(crate) fn first_seq(dev: &dyn Device, geom: &Geom) -> Result<u64> {
    let once = || {
        let mut bytes = vec![0; SECTOR];
        dev.read_at(Kind::Log, geom.byte(1), &mut bytes)?;
        let head = LogHead::read_from_prefix(&bytes).map(|h| h.0).unwrap_or_default();
        let crc = crc_without(bytes.get(..LOG_HEAD).unwrap_or(&[]), CRC_AT).unwrap_or(0);
        let bad = |f: (&'static str, u64), found: u64, expected: u64| {
            Err(Corrupt::new("log head", f.0, geom.byte(1) + f.1, found, expected).into())
        };
        if head.magic.get() != LOG_MAGIC {
            return bad(arbor_base::field!(LogHead, magic), head.magic.get().into(), LOG_MAGIC.into());
        }
        if head.crc.get() != crc {
            return bad(arbor_base::field!(LogHead, crc), head.crc.get().into(), crc.into());
        }
        if head.fsid.get() != geom.fsid {
            return bad(arbor_base::field!(LogHead, fsid), head.fsid.get(), geom.fsid);
        }
        // Numbers near their end would run over.
        if head.seq.get() >= MOST_SEQ {
            return bad(arbor_base::field!(LogHead, seq), head.seq.get(), MOST_SEQ);
        }
        Ok(head.seq.get())
    };
    once().or_else(|_| once())
}

/// Numbers of records are less.
const MOST_SEQ: u64 = 1 << 62;

/// Reads the log.
pub(crate) fn read_log(dev: &dyn Device, geom: &Geom) -> Result<Found> {
    let mut found = Found { seq: first_seq(dev, geom)?, at: 2, ..Found::default() };
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
    let mut bytes = vec![0; size];
    dev.read_at(Kind::Log, geom.byte(at), &mut bytes)?;
    let head = Record::read_from_prefix(&bytes).map(|h| h.0).unwrap_or_default();
    let count = head.count.get();
    let ours = head.magic.get() == RECORD_MAGIC && head.fsid.get() == geom.fsid && head.seq.get() == seq;
    if !ours || count == 0 || count >= geom.log {
        return Ok(None);
    }
    let heads = (RECORD + 4 * count as usize).div_ceil(size);
    let blocks = heads as u32 + count;
    if blocks > end - at {
        return Ok(None);
    }
    bytes.resize(blocks as usize * size, 0);
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
    let is_own = |block: Block| block == 0 || (block > geom.log && block <= geom.copy());
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
    let seq = if planted(Flaw::NumbersGoOn) { found.seq } else { found.seq + u64::from(geom.log) };
    dev.write_at(Kind::Log, geom.byte(1), &log_head(geom, seq))?;
    dev.flush()?;
    Ok(seq)
}
