//! Recovery: replays the log after a crash (4.5).
//!
//! The latest anchor gives the tail. A first pass collects deletions of metadata blocks, whose earlier entries must not
//! be redone; a second one redoes; then extents with a MarkFree but no later UnmarkFree entry are freed. Entries of
//! transactions without a commit are skipped. The last record is dropped if the data that it bears witness to are not
//! there (YFS-C2): its flush never ended. If the volume was being grown, the log may go beyond the size in the
//! superblock.
//!
//! Replay works on copies in memory ([`Replay::buffers`]). Mount writes them in place and moves the anchor only then,
//! so a crash during recovery finds the same log again. The checker uses the same copies without writing them.
//!
//! A block may be torn: the power failed during its in-place write, which happens only after its record is durable. Its
//! sectors are then old or new. Every byte in which they differ is in the log, since the tail is at or before the first
//! change not yet in place; so replay gives every such byte its last value, and the checksum is computed again, except
//! those of damaged inodes, which must stay wrong. A block that is damaged otherwise looks much alike; [`Unit`] tells
//! how the two are told apart.
//!
//! A record that is not whole ends the log if it was being written. Where a later one says that it was durable
//! ([`LogHeader::settled`]), it is damaged ([`Replay::gaps`]): a mount refuses the volume, and the checker goes on with the next.
//!
//! Called by `mount.rs` and the checker. If both anchors are lost nothing is replayed, and the caller must refuse the
//! volume ([`Replay::anchors_lost`]). Orphans are loaded and freed by `mount.rs`.

mod anchors;

pub use anchors::{hand_over, is_log, is_of_this_time, next_mount, read_anchor, write_anchor};

use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::superblock::geometry;
use arbor_base::device::{Device, Kind, Request, zeroed};
use arbor_base::layout::{Corrupt, Location, Role, crc, crc_without, get_u32};
use arbor_base::vfs::{Error, Result};
use arbor_kit::buddy::bitmap;
use arbor_kit::reads::what_can_be_read;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::ops::Range;
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
    /// Both anchors were damaged: nothing was replayed, and the caller must refuse the volume.
    pub anchors_lost: bool,
    /// Blocks that were damaged before the replay, not provably by a torn write, by first sector. They are replayed all
    /// the same.
    pub suspect: BTreeSet<u64>,
    /// Blocks whose header is too damaged to tell their length: nothing was replayed into them.
    pub lost: BTreeSet<u64>,
    /// Inodes that were damaged before the replay: their checksums stay wrong.
    pub rotten: BTreeSet<u64>,
    /// AGs of which extents marked free stay in use, since a bitmap block or the header is damaged.
    pub shut: BTreeSet<u32>,
    /// Records that are damaged, though they were durable: where each should be.
    pub gaps: Vec<Corrupt>,
    /// Byte of data that cannot be read and to which the last record bears witness, and why.
    pub unread: Option<(u64, std::io::Error)>,
    watch: BTreeMap<u64, Vec<Unit>>,
}

/// A part of a buffer, with the stored checksum that was wrong before the replay. If the write was torn, that is the
/// checksum of the state being written, which replay reaches: it then matches. (Not if the sector holding the checksum
/// is the one that was not written.)
#[derive(Debug)]
struct Unit {
    at: usize,
    len: usize,
    crc: u32,
}

impl Unit {
    fn right(&self, buffer: &[u8]) -> bool {
        let bytes = self.at.checked_add(self.len).and_then(|end| buffer.get(self.at..end));
        bytes.and_then(|b| crc_without(b, CRC_AT)) == Some(self.crc)
    }
}

impl Replay {
    /// The buffers with their checksums, to be written in place.
    pub fn sealed(&self, geom: &Geom) -> impl Iterator<Item = (u64, Vec<u8>)> {
        let size = geom.inode_size();
        self.buffers.iter().map(move |(addr, (seal, bytes))| {
            let mut sealed = bytes.clone();
            seal.seal(&mut sealed, size);
            if *seal == Seal::Inodes {
                for (n, (new, old)) in sealed.chunks_exact_mut(size).zip(bytes.chunks_exact(size)).enumerate() {
                    if self.rotten.contains(&(addr + (n * size) as u64 / SECTOR)) {
                        new.copy_from_slice(old);
                    }
                }
            }
            (addr * SECTOR, sealed)
        })
    }

    /// Notes the units of a buffer, as it was read, whose checksums are wrong.
    fn note_damage(&mut self, geom: &Geom, addr: u64, seal: Seal, bytes: &[u8]) {
        let len = match seal {
            Seal::Super => return,
            Seal::Block => bytes.len(),
            Seal::Inodes => geom.inode_size(),
        };
        for (n, piece) in bytes.chunks_exact(len.max(1)).enumerate() {
            let crc = get_u32(piece, CRC_AT).unwrap_or(0);
            let unit = Unit { at: n * len, len, crc };
            let unused = seal == Seal::Inodes && get_u32(piece, 0) == Some(0);
            if !unused && !unit.right(bytes) {
                self.watch.entry(addr).or_default().push(unit);
            }
        }
    }

    /// After a change of a buffer: a unit whose checksum now matches was torn, and is repaired.
    fn note_change(&mut self, addr: u64) {
        if let (Some(units), Some((_, bytes))) = (self.watch.get_mut(&addr), self.buffers.get(&addr)) {
            units.retain(|u| !u.right(bytes));
        }
    }

    /// Notes the damage that is left unexplained after the replay.
    fn note_rest(&mut self, geom: &Geom) {
        for (addr, units) in std::mem::take(&mut self.watch) {
            let inodes = self.buffers.get(&addr).is_some_and(|b| b.0 == Seal::Inodes);
            for unit in units {
                // A single sector is written whole or not at all.
                if inodes && geom.inode_size() as u64 <= SECTOR {
                    self.rotten.insert(addr.saturating_add(unit.at as u64 / SECTOR));
                } else {
                    self.suspect.insert(addr);
                }
            }
        }
    }
}

/// The location `offset` bytes from the start of the log area.
pub fn log_location(sb: &SuperBlock, offset: u64) -> Location {
    let external = sb.incompat.get() & INCOMPAT_EXTERNAL_LOG != 0;
    let role = if external { Role::Extra("log") } else { Role::Main };
    Location::on(role, sb.log_start.get().saturating_mul(SECTOR)).plus(offset)
}

/// Refuses a log device that is another volume's, too short, or holds something else. An empty one passes, and one with damaged
/// anchors if its first records are of this volume.
pub fn is_ours(log: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<()> {
    let start = sb.log_start.get().saturating_mul(SECTOR);
    let (end, size) = (start.saturating_add(sb.log_sectors.get().saturating_mul(SECTOR)), log.geometry().size);
    if end > size {
        let why = format!("option log: the volume's log has {end} bytes, the device only {size}: truncated log?");
        return Err(Error::refused(why));
    }
    holds_ours(log, sb, geom)
}

fn holds_ours(log: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<()> {
    /// How far anchors and records are looked for.
    const LOOK: u64 = 64 << 10;
    let len = LOOK.min(sb.log_sectors.get().saturating_mul(SECTOR));
    let mut bytes = vec![0; len as usize];
    log.read_at(Kind::Log, sb.log_start.get().saturating_mul(SECTOR), &mut bytes)?;
    let mut others = false;
    for sector in bytes.chunks_exact(SECTOR as usize) {
        let Ok((a, _)) = LogAnchor::read_from_prefix(sector) else { continue };
        if [ANCHOR_MAGIC, RECORD_MAGIC].contains(&a.magic.get()) {
            if a.fsid.get() == geom.fsid {
                return Ok(());
            }
            others = true;
        }
    }
    if others {
        return Err(Error::refused("option log: that is the log of another volume"));
    }
    match bytes.iter().all(|b| *b == 0) {
        true => Ok(()),
        false => Err(Error::refused("option log: that is no log of this volume, but holds something else")),
    }
}

struct Entry<'a> {
    head: LogEntry,
    kind: EntryType,
    seal: Seal,
    data: &'a [u8],
    /// Where the entry lies in the log.
    location: Location,
}

/// Replays the log of a volume in memory. Fails if a block that it changes has a header too damaged to tell its length, or if
/// data cannot be read to which the last record bears witness: whether it counts is not known then.
pub fn replay(dev: &dyn Device, log: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<Replay> {
    let replay = replay_what_is_there(dev, log, sb, geom)?;
    if let Some((at, why)) = replay.unread {
        let why = format!("data at byte {at:#x}, to which the log's last record bears witness, cannot be read: {why}");
        return Err(Error::Io(std::io::Error::other(why)));
    }
    if let Some(addr) = replay.lost.first() {
        let at = addr.saturating_mul(SECTOR);
        return Err(Corrupt::new("metadata block", "len", at, "nonsense", "the length of a block in the log").into());
    }
    match replay.gaps.first() {
        Some(gap) => Err(gap.clone().into()),
        None => Ok(replay),
    }
}

/// The greatest cycle of a log without anchors, of any time: new records need a greater one.
pub(crate) fn highest_cycle(log: &dyn Device, sb: &SuperBlock, geom: &Geom) -> u32 {
    let area = LogArea::new(log, sb.log_start.get().saturating_mul(SECTOR), sb.log_sectors.get() as usize);
    let mut highest = 1 << 30;
    for n in 0..area.loaded.len() {
        let (piece, _) = area.look(n);
        let heads = piece.chunks_exact(SECTOR as usize).filter_map(|s| LogHeader::read_from_prefix(s).ok());
        let ours = heads.filter(|(h, _)| h.magic.get() == RECORD_MAGIC && h.fsid.get() == geom.fsid);
        let cycles = ours.map(|(h, _)| Lsn(h.lsn.get()).cycle()).filter(|cycle| *cycle < 1 << 31);
        highest = cycles.fold(highest, u32::max);
    }
    highest
}

/// Like [`replay`], but passes over damaged blocks and unread data: the last record counts then.
pub fn replay_what_is_there(dev: &dyn Device, log: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<Replay> {
    let start = sb.log_start.get().saturating_mul(SECTOR);
    let Some(anchor) = read_anchor(log, start, geom.fsid)? else {
        return Ok(Replay { anchors_lost: true, cycle: highest_cycle(log, sb, geom), ..Replay::default() });
    };
    let mut out = Replay { anchor_seq: anchor.seq.get(), ..Replay::default() };
    let tail = Lsn(anchor.tail.get());
    let mut area = LogArea::new(log, start, sb.log_sectors.get() as usize);
    let mut found = find_records(&mut area, tail, Lsn(anchor.prev.get()), (sb, geom.fsid), &mut out)?;
    let last = found.last().and_then(|(_, body)| area.bytes.get(body.clone()));
    if last.is_some_and(|last| !borne_out(dev, geom, last, &mut out)) {
        found.pop();
        out.records -= 1;
    }
    let records: Vec<(Lsn, &[u8])> =
        found.into_iter().filter_map(|(lsn, body)| Some((lsn, area.bytes.get(body)?))).collect();
    let entries = committed(&records, log_location(sb, 0), &mut out)?;
    let geom = &if planted(Flaw::GrowthForgotten) { *geom } else { grown(dev, geom, &entries)? };
    redo(dev, geom, &entries, &mut out)?;
    free_marked(dev, geom, &entries, &mut out)?;
    out.note_rest(geom);
    Ok(out)
}

/// Whether the data that the last record bears witness to are there (YFS-C2), as far as they can be read; notes what cannot.
fn borne_out(dev: &dyn Device, geom: &Geom, body: &[u8], out: &mut Replay) -> bool {
    let mut rest = body;
    let (mut count, mut sum) = (0, 0usize);
    while let Ok((head, tail)) = LogEntry::read_from_prefix(rest) {
        let kind = EntryType::from_disk(head.kind);
        let len = head.len.get() as usize;
        rest = tail.get(if kind == Some(EntryType::Update) { len } else { 0 }..).unwrap_or(&[]);
        if kind != Some(EntryType::Witness) || planted(Flaw::WitnessesBelieved) {
            continue;
        }
        (count, sum) = (count + 1, sum.saturating_add(len));
        let within = count <= WITNESSES && sum <= WITNESSED_BYTES && len.is_multiple_of(SECTOR as usize);
        if !within || !in_volume(geom, head.addr.get(), len) {
            return false;
        }
        let (at, mut bytes) = (head.addr.get().saturating_mul(SECTOR), vec![0; len]);
        let mut read = || dev.read_at(Kind::Data, at, &mut bytes);
        match read().or_else(|_| read()) {
            Ok(()) if crc(&bytes) != head.at.get() => return false,
            Ok(()) => {}
            Err(why) => out.unread = Some((at, why)),
        }
    }
    true
}

/// The log area, read piece by piece as the scan comes to it.
struct LogArea<'a> {
    log: &'a dyn Device,
    start: u64,
    bytes: Vec<u8>,
    loaded: Vec<bool>,
    /// Sectors of the area that cannot be read.
    unread: BTreeSet<usize>,
}

impl<'a> LogArea<'a> {
    const PIECE: usize = 128 << 10;

    fn new(log: &'a dyn Device, start: u64, sectors: usize) -> LogArea<'a> {
        let len = sectors.saturating_mul(SECTOR as usize);
        LogArea {
            log,
            start,
            bytes: vec![0; len],
            loaded: vec![false; len.div_ceil(Self::PIECE)],
            unread: BTreeSet::new(),
        }
    }

    /// A piece of the area, sector by sector where it has to be: what cannot be read is zeros. Also those sectors of the area.
    fn look(&self, n: usize) -> (Vec<u8>, Vec<usize>) {
        let (first, len) = (n * Self::PIECE, Self::PIECE.min(self.bytes.len().saturating_sub(n * Self::PIECE)));
        let (mut piece, at) = (zeroed(len), self.start.saturating_add(first as u64));
        let unread = what_can_be_read(self.log, Kind::Log, at, &mut piece, SECTOR as usize);
        let unread = unread.into_iter().map(|n| first / SECTOR as usize + n).collect();
        (piece, unread)
    }

    /// `len` bytes at `at`, fewer at the end of the area; `None` past it.
    fn get(&mut self, at: usize, len: usize) -> Result<Option<&[u8]>> {
        let end = at.saturating_add(len).min(self.bytes.len());
        if at >= end {
            return Ok(None);
        }
        for n in at / Self::PIECE..end.div_ceil(Self::PIECE) {
            if self.loaded.get(n) != Some(&false) {
                continue;
            }
            let (read, unread) = self.look(n);
            self.unread.extend(unread);
            self.loaded.get_mut(n).into_iter().for_each(|loaded| *loaded = true);
            if let Some(piece) = self.bytes.get_mut(n * Self::PIECE..n * Self::PIECE + read.len()) {
                piece.copy_from_slice(&read);
            }
        }
        match self.unread.range(at / SECTOR as usize..end.div_ceil(SECTOR as usize)).next() {
            Some(sector) => {
                let byte = self.start.saturating_add(*sector as u64 * SECTOR);
                Err(Error::Io(std::io::Error::other(format!("the log cannot be read at byte {byte:#x}"))))
            }
            None => Ok(self.bytes.get(at..end)),
        }
    }
}

/// The chain of valid records from the tail; each names the one before it (YFS-C3). Returns where the entries of each
/// lie in the area.
fn find_records(
    area: &mut LogArea<'_>,
    tail: Lsn,
    mut prev: Lsn,
    (sb, fsid): (&SuperBlock, u64),
    out: &mut Replay,
) -> Result<Vec<(Lsn, Range<usize>)>> {
    let mut found = Vec::new();
    let mut at = tail;
    out.cycle = tail.cycle();
    loop {
        let mut next = record_at(area, at, prev, fsid)?;
        if next.is_none()
            && let Some(cycle) = at.cycle().checked_add(1)
        {
            next = record_at(area, Lsn::new(cycle, LOG_FIRST), prev, fsid)?;
        }
        if next.is_none() && planted(Flaw::GapIgnored) {
            next = after_gap(area, at, fsid)?;
        }
        if next.is_none()
            && out.gaps.len() < MOST_GAPS
            && let Some((lsn, body)) = past_damage(area, at, fsid)
        {
            let location = log_location(sb, u64::from(at.sector()) * SECTOR);
            let why = format!("no record, and one at sector {} says that it was durable", lsn.sector());
            out.gaps.push(Corrupt::new("log record", "crc", location, why, "a record"));
            next = Some((lsn, body));
        }
        let Some((lsn, body)) = next else {
            return Ok(found);
        };
        let sectors = body.end.div_ceil(SECTOR as usize) - lsn.sector() as usize;
        found.push((lsn, body));
        out.records += 1;
        out.cycle = out.cycle.max(lsn.cycle());
        prev = lsn;
        at = Lsn::new(lsn.cycle(), lsn.sector().saturating_add(sectors as u32));
    }
}

/// The next record at or after `at`, whatever its predecessor was.
fn after_gap(area: &mut LogArea<'_>, at: Lsn, fsid: u64) -> Result<Option<(Lsn, Range<usize>)>> {
    for sector in at.sector()..at.sector().saturating_add(256) {
        let lsn = Lsn::new(at.cycle(), sector);
        let head = area.get(sector as usize * SECTOR as usize, SECTOR as usize)?;
        let prev = head.and_then(|h| LogHeader::read_from_prefix(h).ok()).map(|(h, _)| Lsn(h.prev.get()));
        if let Some(prev) = prev
            && let Some(found) = record_at(area, lsn, prev, fsid)?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// More damaged records than that are no accident: the log ends there.
const MOST_GAPS: usize = 16;

/// The record that comes after a damaged one, which should begin at `at`: if any that is whole says that records were durable as
/// far as that. What cannot be read is no record.
fn past_damage(area: &mut LogArea<'_>, at: Lsn, fsid: u64) -> Option<(Lsn, Range<usize>)> {
    let (mut first, mut is_settled) = (None, false);
    // Whole ones lie one after the other; a log that was made to cost more is not searched to its end.
    let mut most = area.bytes.len().saturating_mul(4);
    for n in 0..area.loaded.len() {
        let (piece, begin) = (area.look(n).0, n * LogArea::PIECE / SECTOR as usize);
        for (sector, head) in (begin..).zip(piece.chunks_exact(SECTOR as usize)) {
            let Ok((h, _)) = LogHeader::read_from_prefix(head) else { continue };
            let lsn = Lsn(h.lsn.get());
            if h.magic.get() != RECORD_MAGIC || lsn.sector() as usize != sector || lsn <= at {
                continue;
            }
            most = most.checked_sub(h.len.get() as usize)?;
            let Ok(Some(found)) = record_at(area, lsn, Lsn(h.prev.get()), fsid) else { continue };
            is_settled |= Lsn(h.settled.get()) >= at;
            if first.as_ref().is_none_or(|(first, _)| lsn < *first) {
                first = Some(found);
            }
        }
    }
    first.filter(|_| is_settled)
}

fn record_at(area: &mut LogArea<'_>, lsn: Lsn, prev: Lsn, fsid: u64) -> Result<Option<(Lsn, Range<usize>)>> {
    let at = (lsn.sector() as usize).saturating_mul(SECTOR as usize);
    let Some(head) = area.get(at, SECTOR as usize)? else { return Ok(None) };
    let Ok((h, _)) = LogHeader::read_from_prefix(head) else { return Ok(None) };
    let total = RECORD_HEAD.saturating_add(h.len.get() as usize);
    if h.magic.get() != RECORD_MAGIC || h.fsid.get() != fsid || h.lsn.get() != lsn.0 || h.prev.get() != prev.0 {
        return Ok(None);
    }
    let Some(bytes) = area.get(at, total)?.filter(|b| b.len() == total) else { return Ok(None) };
    let valid = crc_without(bytes, offset_of!(LogHeader, crc)) == Some(h.crc.get());
    Ok((valid || planted(Flaw::TornRecordsBelieved)).then_some((lsn, at + RECORD_HEAD..at + total)))
}

/// Entries of committed transactions, in log order.
fn committed<'a>(records: &[(Lsn, &'a [u8])], area: Location, out: &mut Replay) -> Result<Vec<Entry<'a>>> {
    let (mut done, mut before_last) = (Vec::new(), 0);
    let mut open: Vec<Entry<'a>> = Vec::new();
    for (lsn, body) in records {
        let mut rest = *body;
        while !rest.is_empty() {
            let within = (RECORD_HEAD + body.len() - rest.len()) as u64;
            let location = area.plus(u64::from(lsn.sector()) * SECTOR + within);
            let bad = |field, found: u64| Corrupt::new("log entry", field, location, found, "a valid entry");
            let (head, tail) = LogEntry::read_from_prefix(rest).map_err(|_| bad("head", rest.len() as u64))?;
            let kind = EntryType::from_disk(head.kind).ok_or_else(|| bad("kind", head.kind.into()))?;
            let seal = Seal::from_disk(head.seal).ok_or_else(|| bad("seal", head.seal.into()))?;
            let len = if kind == EntryType::Update { head.len.get() as usize } else { 0 };
            let data = tail.get(..len).ok_or_else(|| bad("len", head.len.get().into()))?;
            rest = tail.get(len..).unwrap_or(&[]);
            // Sector 0 is the superblock's.
            let of_buffer = matches!(kind, EntryType::Update | EntryType::Init);
            if of_buffer && head.addr.get() == 0 && seal != Seal::Super {
                return Err(bad("addr", 0).into());
            }
            if kind == EntryType::Witness {
                continue;
            }
            if kind == EntryType::Commit {
                let tid = head.tid.get();
                before_last = done.len();
                done.extend(open.drain(..).filter(|e| e.head.tid.get() == tid));
                out.transactions += 1;
            } else {
                open.push(Entry { head, kind, seal, data, location });
            }
        }
    }
    if planted(Flaw::ReplayStopsShort) {
        done.truncate(before_last);
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

/// Most bytes of buffers that one replay makes: only a crafted log asks for more.
const MAX_REPLAY: u64 = 1 << 30;

/// Longest metadata buffer in bytes.
pub const MAX_BUFFER: usize = 256 * 1024;

fn redo(dev: &dyn Device, geom: &Geom, entries: &[Entry<'_>], out: &mut Replay) -> Result<()> {
    let mut deleted: BTreeMap<u64, usize> = BTreeMap::new();
    for (i, e) in entries.iter().enumerate() {
        if e.kind == EntryType::Deleted && !planted(Flaw::DeletedIgnored) {
            deleted.insert(e.head.addr.get(), i);
        }
    }
    let live = |i: usize, addr: u64| deleted.get(&addr).is_none_or(|&d| d < i);
    load(dev, geom, entries, &live, out)?;
    // In a log that yFS wrote, buffers do not overlap; in a crafted one they may.
    let most = geom.frags.saturating_mul(geom.frag_size()).min(MAX_REPLAY);
    let mut held: u64 = out.buffers.values().map(|b| b.1.len() as u64).sum();
    for (i, e) in entries.iter().enumerate() {
        let addr = e.head.addr.get();
        if !matches!(e.kind, EntryType::Update | EntryType::Init) || !live(i, addr) {
            continue;
        }
        let bad = |field, found: u32| Corrupt::new("log entry", field, e.location, found, "a place in the buffer");
        if e.kind == EntryType::Init {
            let len = e.head.len.get() as usize;
            held = held.saturating_add(len as u64);
            if len > MAX_BUFFER || !len.is_multiple_of(SECTOR as usize) || held > most || !in_volume(geom, addr, len) {
                return Err(bad("len", e.head.len.get()).into());
            }
            if let Some((_, old)) = out.buffers.insert(addr, (e.seal, vec![0; len])) {
                held = held.saturating_sub(old.len() as u64);
            }
            out.watch.remove(&addr);
            continue;
        }
        let Some((_, bytes)) = out.buffers.get_mut(&addr) else { continue };
        let at = e.head.at.get() as usize;
        let Some(place) = at.checked_add(e.data.len()).and_then(|end| bytes.get_mut(at..end)) else {
            return Err(bad("at", e.head.at.get()).into());
        };
        place.copy_from_slice(e.data);
        out.note_change(addr);
    }
    Ok(())
}

/// The geometry after the replay: if the volume was being grown, the log may hold addresses beyond the size in the
/// on-disk superblock.
fn grown(dev: &dyn Device, geom: &Geom, entries: &[Entry<'_>]) -> Result<Geom> {
    let mut bytes = vec![0; SECTOR as usize];
    dev.read_at(Kind::Super, 0, &mut bytes)?;
    for e in entries.iter().filter(|e| e.kind == EntryType::Update && e.head.addr.get() == 0) {
        let at = e.head.at.get() as usize;
        if let Some(place) = at.checked_add(e.data.len()).and_then(|end| bytes.get_mut(at..end)) {
            place.copy_from_slice(e.data);
        }
    }
    let new = SuperBlock::read_from_bytes(&bytes).ok().and_then(|sb| geometry(&sb, 0, dev.geometry().size).ok());
    let grown = |new: &Geom| Geom { frags: geom.frags, ag_count: geom.ag_count, ..*new } == *geom;
    Ok(new.filter(|new| new.frags > geom.frags && grown(new)).unwrap_or(*geom))
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
            EntryType::Update if !born.contains(&addr) => drop(wanted.insert(addr, (e.seal, e.location))),
            _ => {}
        }
    }
    let wanted: Vec<_> = wanted.into_iter().collect();
    for group in wanted.chunks(256) {
        let batch = group.iter().map(|&(addr, (seal, location))| {
            let len = match seal {
                Seal::Super => SECTOR as usize,
                Seal::Inodes => geom.chunk_size(),
                Seal::Block => geom.block_size(),
            };
            if in_volume(geom, addr, len) {
                Ok(Request::read(Kind::Other, addr * SECTOR, len))
            } else {
                Err((location, addr))
            }
        });
        let batch: std::result::Result<Vec<_>, (Location, u64)> = batch.collect();
        let batch =
            batch.map_err(|(at, found)| Corrupt::new("log entry", "addr", at, found, "a sector of the volume"))?;
        for (&(addr, (seal, _)), read) in group.iter().zip(dev.submit(batch).wait()) {
            let mut bytes = read?;
            let Some(len) = buffer_len(geom, seal, &bytes).filter(|&l| in_volume(geom, addr, l)) else {
                out.lost.insert(addr);
                continue;
            };
            if len != bytes.len() || !is_right(geom, seal, &bytes) {
                bytes = vec![0; len];
                dev.read_at(Kind::Other, addr * SECTOR, &mut bytes)?;
            }
            out.note_damage(geom, addr, seal, &bytes);
            out.buffers.insert(addr, (seal, bytes));
        }
    }
    Ok(())
}

/// Frees extents with a MarkFree but no later UnmarkFree entry, and recounts the free fragments of their AGs: a
/// recovery that crashed may have written some of their blocks already.
fn free_marked(dev: &dyn Device, geom: &Geom, entries: &[Entry<'_>], out: &mut Replay) -> Result<()> {
    let mut marked: BTreeMap<(u64, u32), Location> = BTreeMap::new();
    for e in entries {
        let key = (e.head.addr.get(), e.head.len.get());
        match e.kind {
            EntryType::MarkFree => drop(marked.insert(key, e.location)),
            EntryType::UnmarkFree => drop(marked.remove(&key)),
            _ => {}
        }
    }
    let mut ags: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
    let mut end = 0;
    for ((start, len), location) in marked {
        let bad = |expected| Corrupt::new("log entry", "extent", location, format_args!("{start}+{len}"), expected);
        if !geom.valid_run(Frag(start), len) {
            return Err(bad("a run inside an AG").into());
        }
        if start < end {
            return Err(bad("a run that is marked free once").into());
        }
        end = start + u64::from(len);
        let ag = geom.ag_of(Frag(start));
        ags.entry(ag).or_default().push(((start - geom.ag_start(ag).0) as u32, len));
    }
    for (ag, runs) in ags {
        if is_sound(dev, geom, ag, &runs, out)? {
            free_runs(dev, geom, ag, &runs, out)?;
        } else {
            out.shut.insert(ag);
        }
    }
    for addr in out.watch.keys().copied().collect::<Vec<_>>() {
        out.note_change(addr);
    }
    Ok(())
}

/// Whether the bitmap and the header of an AG can be changed: what the log does not change itself may have been torn by another
/// recovery, and then has its checksum with the runs as they were, or as they will be. Anything else is damage, which a new
/// checksum would hide.
fn is_sound(dev: &dyn Device, geom: &Geom, ag: u32, runs: &[(u32, u32)], out: &mut Replay) -> Result<bool> {
    let maps = (0..geom.bitmap_blocks).map(|n| (geom.bitmap_block(ag, n), Some(n)));
    for (addr, n) in maps.chain([(geom.group_block(ag), None)]) {
        if out.buffers.contains_key(&addr.0) {
            continue;
        }
        let mut bytes = vec![0; geom.block_size()];
        let mut is_right = false;
        for _ in 0..2 {
            if !is_right {
                dev.read_at(Kind::Bitmap, addr.byte(), &mut bytes)?;
                is_right = is_block(&bytes)
                    || n.is_some_and(|n| {
                        [true, false].iter().any(|used| {
                            let mut other = bytes.clone();
                            runs.iter().for_each(|run| set_run(geom, &mut other, n, *run, *used));
                            is_block(&other)
                        })
                    });
            }
        }
        if !is_right {
            return Ok(false);
        }
        out.buffers.insert(addr.0, (Seal::Block, bytes));
    }
    Ok(true)
}

/// Whether a block has its checksum.
fn is_block(bytes: &[u8]) -> bool {
    crc_without(bytes, CRC_AT).is_some_and(|sum| get_u32(bytes, CRC_AT) == Some(sum))
}

/// Whether all of a buffer has its checksums, as far as there are any.
fn is_right(geom: &Geom, seal: Seal, bytes: &[u8]) -> bool {
    match seal {
        Seal::Super => true,
        Seal::Block => is_block(bytes),
        Seal::Inodes => {
            let unused = |inode: &[u8]| get_u32(inode, 0) == Some(0);
            bytes.chunks_exact(geom.inode_size()).all(|inode| unused(inode) || is_block(inode))
        }
    }
}

/// Sets the bits of a run of an AG, as far as they are in bitmap block `n`.
fn set_run(geom: &Geom, block: &mut [u8], n: u32, (start, len): (u32, u32), used: bool) {
    let per = geom.bits_per_bitmap();
    let first = n.saturating_mul(per);
    let (lo, hi) = (start.max(first), start.saturating_add(len).min(first.saturating_add(per)));
    let bits = block.get_mut(HEADER..).unwrap_or_default();
    if lo < hi && used {
        bitmap::set_used(bits, lo - first, hi - lo);
    } else if lo < hi {
        bitmap::set_free(bits, lo - first, hi - lo);
    }
}

fn free_runs(dev: &dyn Device, geom: &Geom, ag: u32, runs: &[(u32, u32)], out: &mut Replay) -> Result<()> {
    let (mut left, mut free) = (geom.ag_len(ag), 0);
    for n in 0..geom.bitmap_blocks {
        let bits = left.min(geom.bits_per_bitmap());
        left -= bits;
        let block = overlay(dev, geom, geom.bitmap_block(ag, n), out)?;
        runs.iter().for_each(|run| set_run(geom, block, n, *run, false));
        let used: u32 = block.get(HEADER..).unwrap_or(&[]).iter().map(|b| b.count_ones()).sum();
        free += geom.bits_per_bitmap().saturating_sub(used);
    }
    let group = overlay(dev, geom, geom.group_block(ag), out)?;
    if let Some(field) = group.get_mut(HEADER..HEADER + 4) {
        field.copy_from_slice(&free.to_le_bytes());
    }
    Ok(())
}

fn overlay<'a>(dev: &dyn Device, geom: &Geom, addr: Daddr, out: &'a mut Replay) -> Result<&'a mut Vec<u8>> {
    if !out.buffers.contains_key(&addr.0) {
        let mut bytes = vec![0; geom.block_size()];
        dev.read_at(Kind::Bitmap, addr.byte(), &mut bytes)?;
        out.note_damage(geom, addr.0, Seal::Block, &bytes);
        out.buffers.insert(addr.0, (Seal::Block, bytes));
    }
    match out.buffers.get_mut(&addr.0) {
        Some(buffer) => Ok(&mut buffer.1),
        None => Err(Error::refused("bug: a buffer vanished during recovery")),
    }
}

/// Writes what was replayed in place and makes it durable. The caller moves the anchor after it.
pub fn write_back(dev: &dyn Device, geom: &Geom, replay: &Replay) -> Result<()> {
    let pieces = replay.sealed(geom).map(|(at, bytes)| (at, Kind::Other, bytes.into()));
    dev.submit(arbor_base::cache::cluster(pieces.collect(), 1 << 20)).wait_all()?;
    dev.flush().map_err(Error::Io)
}
