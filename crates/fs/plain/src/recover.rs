//! What mount does after a crash: it writes the two records of the log to their places, the older one first. Those before
//! them are there already (PLAIN-C2), and one that is torn was never begun to be written there (PLAIN-C1). The newer one may
//! have reached the disk before its flush, and so before what the older one holds was durable in its places.

use crate::format::*;
use crate::planted::{Flaw, planted};
use arbor_base::device::{Device, Kind};
use arbor_base::layout::{get_u32, hash};
use arbor_base::vfs::Result;
use std::collections::BTreeMap;
use std::mem::offset_of;
use zerocopy::FromBytes;

/// What a record says: copies of blocks by their addresses.
pub(crate) type Copies = BTreeMap<u32, Vec<u8>>;

/// What the log says, with the number of its newest record, 0 if there is none. A half that is not whole is read once more: it
/// may have been read wrong.
pub(crate) fn read_log(dev: &dyn Device, geom: &Geom) -> Result<(u64, Copies)> {
    let (mut last, mut all) = (0, Copies::new());
    let half = |half| {
        let read = || record(dev, geom, half);
        read()?.map_or_else(read, |found| Ok(Some(found)))
    };
    let mut found: Vec<(u64, Copies)> = [half(0)?, half(1)?].into_iter().flatten().collect();
    found.sort_by_key(|record| record.0);
    for (seq, copies) in found {
        if last + 1 != seq || planted(Flaw::NewestOnly) {
            all.clear();
        }
        all.extend(copies);
        last = seq;
    }
    Ok((last, all))
}

/// The record in a half of the log, if it is whole.
fn record(dev: &dyn Device, geom: &Geom, half: u64) -> Result<Option<(u64, Copies)>> {
    let (at, most) = geom.half(half);
    let mut bytes = vec![0; BLOCK];
    dev.read_at(Kind::Log, byte(at), &mut bytes)?;
    let head = Record::read_from_prefix(&bytes).map(|h| h.0).unwrap_or_default();
    let (seq, count) = (head.seq.get(), head.count.get());
    let ours = head.magic.get() == RECORD_MAGIC && head.fsid.get() == geom.fsid && seq % 2 == half;
    if !ours || count > most {
        return Ok(None);
    }
    bytes.resize(BLOCK * (1 + count as usize), 0);
    dev.read_at(Kind::Log, byte(at), &mut bytes)?;
    if record_hash(geom, seq, &mut bytes) != head.hash.get() && !planted(Flaw::TornBelieved) {
        return Ok(None);
    }
    let address = |n| get_u32(&bytes, RECORD + 4 * n).unwrap_or(0);
    let copies: Copies =
        bytes.chunks_exact(BLOCK).skip(1).enumerate().map(|(n, copy)| (address(n), copy.to_vec())).collect();
    let inside = copies.keys().all(|block| *block < geom.blocks && !(1..=geom.log).contains(block));
    Ok(inside.then_some((seq, copies)))
}

/// The hash of a record, whose own field becomes zero.
pub(crate) fn record_hash(geom: &Geom, seq: u64, bytes: &mut [u8]) -> u64 {
    bytes.iter_mut().skip(offset_of!(Record, hash)).take(8).for_each(|b| *b = 0);
    hash((geom.fsid, seq), bytes)
}

/// Writes what the log says to its places, durably; the number of its newest record, and the superblock in it.
pub(crate) fn replay(dev: &dyn Device, geom: &Geom) -> Result<(u64, Option<Vec<u8>>)> {
    let (seq, mut copies) = read_log(dev, geom)?;
    // It may say that the volume was unmounted, and so is the last that counts.
    let superblock = if planted(Flaw::SuperTooEarly) { None } else { copies.remove(&0) };
    for (block, copy) in copies.into_iter().chain(superblock.clone().map(|copy| (0, copy))) {
        if block == 0 && !planted(Flaw::SuperTooEarly) {
            dev.flush()?;
        }
        dev.write_at(Kind::Other, byte(block), &copy)?;
    }
    dev.flush()?;
    Ok((seq, superblock))
}
