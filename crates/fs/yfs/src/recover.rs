//! What mount does after a crash (4.5): find the tail by the latest anchor, scan for deleted
//! metadata, redo in a second pass, free the extents that are marked free and not unmarked.
//!
//! Replay works on copies in memory ([`Replay::buffers`]); mount writes them in place and moves
//! the anchor only then, so a crash during recovery finds the same log again. The checker uses
//! the same copies without writing them.

use crate::format::*;
use arbor_base::device::{Device, Kind, Request};
use arbor_base::layout::{Corrupt, crc_without};
use arbor_base::vfs::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use zerocopy::FromBytes;

/// Result of a replay.
#[derive(Debug, Default)]
pub struct Replay {
    /// Buffers as they must be, by first sector; not sealed yet.
    pub buffers: BTreeMap<u64, (Seal, Vec<u8>)>,
    /// Records found.
    pub records: u64,
    /// Committed transactions among them.
    pub transactions: u64,
    /// Greatest cycle seen: new records need a greater one.
    pub cycle: u32,
    /// Counter of the anchor that was used.
    pub anchor_seq: u64,
    /// Both anchors were unreadable, the log was taken as empty.
    pub anchors_lost: bool,
}

/// Reads both anchors of the log area that starts at byte `start`; the one with the greater
/// counter wins. `None` if both are damaged.
pub fn read_anchor(log: &dyn Device, start: u64, fsid: u64) -> Result<Option<LogAnchor>> {
    let mut sectors = vec![0; 2 * SECTOR as usize];
    log.read_at(Kind::Log, start, &mut sectors)?;
    let valid = sectors.chunks_exact(SECTOR as usize).filter_map(|s| {
        let (a, _) = LogAnchor::read_from_prefix(s).ok()?;
        let crc = crc_without(s.get(..64)?, offset_of!(LogAnchor, crc))?;
        (a.magic.get() == ANCHOR_MAGIC && a.crc.get() == crc && a.fsid.get() == fsid).then_some(a)
    });
    Ok(valid.max_by_key(|a| a.seq.get()))
}

struct Entry<'a> {
    head: LogEntry,
    kind: EntryType,
    seal: Seal,
    data: &'a [u8],
}

/// Replays the log of a volume in memory.
pub fn replay(dev: &dyn Device, log: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<Replay> {
    let start = sb.log_start.get().saturating_mul(SECTOR);
    let Some(anchor) = read_anchor(log, start, geom.fsid)? else {
        return Ok(Replay { anchors_lost: true, cycle: 1 << 30, ..Replay::default() });
    };
    let mut out = Replay { anchor_seq: anchor.seq.get(), ..Replay::default() };
    let tail = Lsn(anchor.tail.get());
    let mut area = vec![0; sb.log_sectors.get() as usize * SECTOR as usize];
    read_area(log, start, &mut area)?;
    let records = records(&area, tail, Lsn(anchor.prev.get()), geom.fsid, &mut out);
    let entries = committed(&records, start, &mut out)?;
    redo(dev, geom, &entries, &mut out)?;
    free_marked(dev, geom, &entries, &mut out)?;
    Ok(out)
}

fn read_area(log: &dyn Device, start: u64, area: &mut [u8]) -> Result<()> {
    for (i, piece) in area.chunks_mut(1 << 20).enumerate() {
        log.read_at(Kind::Log, start + ((i as u64) << 20), piece)?;
    }
    Ok(())
}

/// The chain of valid records from the tail; each names the one before it.
fn records<'a>(area: &'a [u8], tail: Lsn, mut prev: Lsn, fsid: u64, out: &mut Replay) -> Vec<(Lsn, &'a [u8])> {
    let mut found = Vec::new();
    let mut at = tail;
    out.cycle = tail.cycle();
    loop {
        let wrapped = at.cycle().checked_add(1).map(|c| Lsn::new(c, LOG_FIRST));
        let next = record_at(area, at, prev, fsid)
            .or_else(|| wrapped.and_then(|w| record_at(area, w, prev, fsid)))
            .filter(|_| found.len() <= area.len() / SECTOR as usize);
        let Some((lsn, body, sectors)) = next else {
            return found;
        };
        found.push((lsn, body));
        out.records += 1;
        out.cycle = out.cycle.max(lsn.cycle());
        prev = lsn;
        at = Lsn::new(lsn.cycle(), lsn.sector().saturating_add(sectors));
    }
}

fn record_at(area: &[u8], lsn: Lsn, prev: Lsn, fsid: u64) -> Option<(Lsn, &[u8], u32)> {
    let bytes = area.get((lsn.sector() as usize).checked_mul(SECTOR as usize)?..)?;
    let (h, _) = LogHeader::read_from_prefix(bytes).ok()?;
    let total = RECORD_HEAD.checked_add(h.len.get() as usize)?;
    let padded = total.checked_next_multiple_of(SECTOR as usize)?;
    let ok = h.magic.get() == RECORD_MAGIC
        && h.fsid.get() == fsid
        && h.lsn.get() == lsn.0
        && h.prev.get() == prev.0
        && crc_without(bytes.get(..total)?, offset_of!(LogHeader, crc)) == Some(h.crc.get());
    ok.then_some((lsn, bytes.get(RECORD_HEAD..total)?, (padded / SECTOR as usize) as u32))
}

/// Entries of committed transactions, in log order.
fn committed<'a>(records: &[(Lsn, &'a [u8])], start: u64, out: &mut Replay) -> Result<Vec<Entry<'a>>> {
    let mut done = Vec::new();
    let mut open: Vec<Entry<'a>> = Vec::new();
    for (lsn, body) in records {
        let mut rest = *body;
        while !rest.is_empty() {
            let bad = |field, found: u64| {
                let at = start.saturating_add(u64::from(lsn.sector()) * SECTOR);
                Corrupt::new("log entry", field, at, found, "a valid entry")
            };
            let (head, tail) = LogEntry::read_from_prefix(rest).map_err(|_| bad("head", rest.len() as u64))?;
            let kind = EntryType::from_disk(head.kind).ok_or_else(|| bad("kind", head.kind.into()))?;
            let seal = Seal::from_disk(head.seal).ok_or_else(|| bad("seal", head.seal.into()))?;
            let len = if kind == EntryType::Update { head.len.get() as usize } else { 0 };
            let data = tail.get(..len).ok_or_else(|| bad("len", head.len.get().into()))?;
            rest = tail.get(len..).unwrap_or(&[]);
            if kind == EntryType::Commit {
                let tid = head.tid.get();
                done.extend(open.drain(..).filter(|e| e.head.tid.get() == tid));
                out.transactions += 1;
            } else {
                open.push(Entry { head, kind, seal, data });
            }
        }
    }
    Ok(done)
}

/// Length of a buffer as found on the device.
fn buffer_len(geom: &Geom, seal: Seal, bytes: &[u8]) -> Option<usize> {
    match seal {
        Seal::Super => Some(SECTOR as usize),
        Seal::Inodes => Some(geom.chunk_size()),
        Seal::Block => {
            let (h, _) = BlockHeader::read_from_prefix(bytes).ok()?;
            let len = h.len.get() as usize;
            (len >= geom.block_size().min(1024) && len <= MAX_BUFFER && len.is_multiple_of(SECTOR as usize))
                .then_some(len)
        }
    }
}

/// Most bytes of new buffers that one replay makes: no log of ours holds that many, a hostile one
/// may.
const MAX_REPLAY: usize = 1 << 30;

/// Longest metadata buffer in bytes.
pub const MAX_BUFFER: usize = 256 * 1024;

fn redo(dev: &dyn Device, geom: &Geom, entries: &[Entry<'_>], out: &mut Replay) -> Result<()> {
    let mut deleted: BTreeMap<u64, usize> = BTreeMap::new();
    for (i, e) in entries.iter().enumerate() {
        if e.kind == EntryType::Deleted {
            deleted.insert(e.head.addr.get(), i);
        }
    }
    let live = |i: usize, addr: u64| deleted.get(&addr).is_none_or(|&d| d < i);
    load(dev, geom, entries, &live, out)?;
    let mut held = 0usize;
    for (i, e) in entries.iter().enumerate() {
        let addr = e.head.addr.get();
        if !matches!(e.kind, EntryType::Update | EntryType::Init) || !live(i, addr) {
            continue;
        }
        let bad = |field, found: u32| {
            Corrupt::new("log entry", field, addr.saturating_mul(SECTOR), found, "a place in the buffer")
        };
        if e.kind == EntryType::Init {
            let len = e.head.len.get() as usize;
            held = held.saturating_add(len);
            if len > MAX_BUFFER || held > MAX_REPLAY || !in_volume(geom, addr, len) {
                return Err(bad("len", e.head.len.get()).into());
            }
            out.buffers.insert(addr, (e.seal, vec![0; len]));
            continue;
        }
        let Some((_, bytes)) = out.buffers.get_mut(&addr) else { continue };
        let at = e.head.at.get() as usize;
        let Some(place) = at.checked_add(e.data.len()).and_then(|end| bytes.get_mut(at..end)) else {
            return Err(bad("at", e.head.at.get()).into());
        };
        place.copy_from_slice(e.data);
    }
    Ok(())
}

fn in_volume(geom: &Geom, addr: u64, len: usize) -> bool {
    let end = addr.checked_add(len as u64 / SECTOR);
    end.is_some_and(|e| e <= geom.frags.saturating_mul(geom.frag_sectors()))
}

/// Reads the buffers that updates refer to and no earlier entry initialises.
fn load(
    dev: &dyn Device,
    geom: &Geom,
    entries: &[Entry<'_>],
    live: &dyn Fn(usize, u64) -> bool,
    out: &mut Replay,
) -> Result<()> {
    let mut born = BTreeSet::new();
    let mut wanted = BTreeMap::new();
    for (i, e) in entries.iter().enumerate() {
        let addr = e.head.addr.get();
        if !live(i, addr) {
            continue;
        }
        match e.kind {
            EntryType::Init => drop(born.insert(addr)),
            EntryType::Update if !born.contains(&addr) => drop(wanted.insert(addr, e.seal)),
            _ => {}
        }
    }
    let wanted: Vec<_> = wanted.into_iter().collect();
    for group in wanted.chunks(256) {
        let batch = group.iter().map(|&(addr, seal)| {
            let len = match seal {
                Seal::Super => SECTOR as usize,
                Seal::Inodes => geom.chunk_size(),
                Seal::Block => geom.block_size(),
            };
            if in_volume(geom, addr, len) { Ok(Request::read(Kind::Other, addr * SECTOR, len)) } else { Err(addr) }
        });
        let batch: std::result::Result<Vec<_>, u64> = batch.collect();
        let batch = batch
            .map_err(|a| Corrupt::new("log entry", "addr", a.saturating_mul(SECTOR), a, "a sector of the volume"))?;
        for (&(addr, seal), read) in group.iter().zip(dev.submit(batch).wait()) {
            let mut bytes = read?;
            let len = buffer_len(geom, seal, &bytes).filter(|&l| in_volume(geom, addr, l)).ok_or_else(|| {
                Corrupt::new(
                    "metadata block",
                    "len",
                    addr.saturating_mul(SECTOR),
                    "nonsense",
                    "the length of a block in the log",
                )
            })?;
            if len != bytes.len() {
                bytes = vec![0; len];
                dev.read_at(Kind::Other, addr * SECTOR, &mut bytes)?;
            }
            out.buffers.insert(addr, (seal, bytes));
        }
    }
    Ok(())
}

/// Frees extents marked free without a later unmark, and counts the AGs concerned afresh: a
/// recovery that crashed may have written some of their blocks already.
fn free_marked(dev: &dyn Device, geom: &Geom, entries: &[Entry<'_>], out: &mut Replay) -> Result<()> {
    let mut marked: BTreeMap<(u64, u32), u32> = BTreeMap::new();
    for e in entries {
        let key = (e.head.addr.get(), e.head.len.get());
        match e.kind {
            EntryType::MarkFree => *marked.entry(key).or_default() += 1,
            EntryType::UnmarkFree => drop(marked.remove(&key)),
            _ => {}
        }
    }
    let mut ags = BTreeSet::new();
    for (start, len) in marked.into_keys() {
        if !geom.valid_run(Frag(start), len) {
            return Err(Corrupt::new(
                "log entry",
                "extent",
                start.saturating_mul(geom.frag_size()),
                len,
                "a run inside an AG",
            )
            .into());
        }
        let ag = geom.ag_of(Frag(start));
        ags.insert(ag);
        for frag in start..start + u64::from(len) {
            let bit = (frag - geom.ag_start(ag).0) as u32;
            let block = overlay(dev, geom, geom.bitmap_block(ag, bit / geom.bits_per_bitmap()), out)?;
            let bit = (bit % geom.bits_per_bitmap()) as usize;
            if let Some(byte) = block.get_mut(HEADER + bit / 8) {
                *byte &= !(1 << (bit % 8));
            }
        }
    }
    for ag in ags {
        let mut left = geom.ag_len(ag);
        let mut free = 0;
        for n in 0..geom.bitmap_blocks {
            let bits = left.min(geom.bits_per_bitmap());
            left -= bits;
            let block = overlay(dev, geom, geom.bitmap_block(ag, n), out)?;
            let used: u32 = block.get(HEADER..).unwrap_or(&[]).iter().map(|b| b.count_ones()).sum();
            free += geom.bits_per_bitmap().saturating_sub(used);
        }
        let group = overlay(dev, geom, geom.group_block(ag), out)?;
        if let Some(field) = group.get_mut(HEADER..HEADER + 4) {
            field.copy_from_slice(&free.to_le_bytes());
        }
    }
    Ok(())
}

fn overlay<'a>(dev: &dyn Device, geom: &Geom, addr: Daddr, out: &'a mut Replay) -> Result<&'a mut Vec<u8>> {
    use std::collections::btree_map::Entry as E;
    match out.buffers.entry(addr.0) {
        E::Occupied(o) => Ok(&mut o.into_mut().1),
        E::Vacant(v) => {
            let mut bytes = vec![0; geom.block_size()];
            dev.read_at(Kind::Bitmap, addr.byte(), &mut bytes)?;
            Ok(&mut v.insert((Seal::Block, bytes)).1)
        }
    }
}

/// Writes what was replayed in place and makes it durable. The caller moves the anchor after it.
pub fn write_back(dev: &dyn Device, geom: &Geom, replay: Replay) -> Result<()> {
    let pieces = replay.buffers.into_iter().map(|(addr, (seal, mut bytes))| {
        seal.seal(&mut bytes, geom.inode_size());
        (addr * SECTOR, Kind::Other, bytes.into())
    });
    dev.submit(arbor_base::cache::cluster(pieces.collect(), 1 << 20)).wait_all()?;
    dev.flush().map_err(Error::Io)
}

/// Writes an anchor into the slot that `seq` names. The caller flushes.
pub fn write_anchor(log: &dyn Device, start: u64, fsid: u64, seq: u64, tail: Lsn, prev: Lsn, secs: i64) -> Result<()> {
    let mut a = LogAnchor {
        magic: ANCHOR_MAGIC.into(),
        fsid: fsid.into(),
        seq: seq.into(),
        tail: tail.0.into(),
        prev: prev.0.into(),
        time: secs.into(),
        ..LogAnchor::default()
    };
    let crc = crc_without(zerocopy::IntoBytes::as_bytes(&a), offset_of!(LogAnchor, crc)).unwrap_or(0);
    a.crc = crc.into();
    let mut sector = vec![0; SECTOR as usize];
    sector[..size_of::<LogAnchor>()].copy_from_slice(zerocopy::IntoBytes::as_bytes(&a));
    log.write_at(Kind::Log, start + (seq % 2) * SECTOR, &sector)?;
    Ok(())
}
