//! Recovery at the mount: writes the two records of the log in place, the older one first.
//!
//! Records before them are in place already (PLAIN-C2), and the in-place writes of a torn one never began (PLAIN-C1).
//! Both are needed: the newer one may have reached the disk before its flush, and so before the older one's blocks were
//! durable in place.
//!
//! Called by `mount.rs` and the checker.

use crate::format::*;
use crate::planted::{Flaw, planted};
use arbor_base::device::{Device, Kind};
use arbor_base::layout::{get_u32, hash};
use arbor_base::vfs::Result;
use std::collections::BTreeMap;
use std::mem::offset_of;
use zerocopy::FromBytes;

/// The contents of a record: copies of blocks by their addresses.
pub(crate) type Copies = BTreeMap<u32, Vec<u8>>;

/// The copies in the log, and the number of its newest record, 0 if there is none. Rereads a half without a sound
/// record: the read may have failed.
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

/// The record in a half of the log, if it is sound.
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

/// The hash of a record; sets its own field to zero.
pub(crate) fn record_hash(geom: &Geom, seq: u64, bytes: &mut [u8]) -> u64 {
    bytes.iter_mut().skip(offset_of!(Record, hash)).take(8).for_each(|b| *b = 0);
    hash((geom.fsid, seq), bytes)
}

/// Writes the copies in the log in place, durably; returns the number of its newest record, and the superblock in it.
pub(crate) fn replay(dev: &dyn Device, geom: &Geom) -> Result<(u64, Option<Vec<u8>>)> {
    let (seq, mut copies) = read_log(dev, geom)?;
    // It may say that the volume was unmounted, and so is written last.
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
