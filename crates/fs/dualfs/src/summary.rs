//! Summaries of partial segments: encoding and parsing.
//!
//! Called by `commit.rs` to write them, by `recover.rs`, `clean.rs` and the checker to read them.

use crate::format::*;
use arbor_base::device::{Device, Kind, zeroed};
use arbor_base::layout::{crc, crc_without, put};
use arbor_base::vfs::Result;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A summary that was read, or is to be written.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    pub head: Summary,
    pub blocks: Vec<BlockInfo>,
    pub inodes: Vec<InodeInfo>,
    pub segs: Vec<SegInfo>,
    pub runs: Vec<RunInfo>,
    pub groups: Vec<GroupInfo>,
}

impl Parsed {
    /// The bytes of the summary's blocks, with counts and checksum.
    pub fn encode(&mut self, geom: &Geom) -> Vec<u8> {
        let h = &mut self.head;
        h.blocks = (self.blocks.len() as u32).into();
        h.inodes = (self.inodes.len() as u32).into();
        h.segs = (self.segs.len() as u32).into();
        h.runs = (self.runs.len() as u32).into();
        h.groups = (self.groups.len() as u32).into();
        let mut bytes = self.head.as_bytes().to_vec();
        append(&mut bytes, &self.blocks);
        append(&mut bytes, &self.inodes);
        append(&mut bytes, &self.segs);
        append(&mut bytes, &self.runs);
        append(&mut bytes, &self.groups);
        bytes.resize((self.head.own.get() as usize) << geom.block_shift, 0);
        let sum = crc_without(&bytes, SUMMARY_CRC_AT).unwrap_or(0);
        put(&mut bytes, SUMMARY_CRC_AT, &sum.to_le_bytes());
        bytes
    }

    /// Blocks of inodes, from the start of the partial segment.
    pub fn inode_blocks(&self) -> std::ops::Range<u32> {
        let first = self.head.own.get().saturating_add(self.blocks.len() as u32);
        first..self.head.len.get()
    }

    /// The blocks, each with its place from the start of the partial segment.
    pub fn placed(&self) -> impl Iterator<Item = (u32, &BlockInfo)> {
        (self.head.own.get()..).zip(&self.blocks)
    }
}

fn append<T: IntoBytes + Immutable>(bytes: &mut Vec<u8>, all: &[T]) {
    all.iter().for_each(|one| bytes.extend_from_slice(one.as_bytes()));
}

/// The head of a summary in these bytes, if it is one of this volume and possible in a segment with `room` blocks left.
fn head(geom: &Geom, bytes: &[u8], room: u32) -> Option<Summary> {
    let (h, _) = Summary::read_from_prefix(bytes).ok()?;
    let (own, len) = (h.own.get(), h.len.get());
    let is_possible = own > 0 && own <= len && len <= room;
    (h.magic.get() == SUMMARY_MAGIC && h.fsid.get() == geom.fsid && is_possible).then_some(h)
}

/// Takes `count` structures of one kind off the front of `bytes`.
fn take<T: FromBytes>(bytes: &mut &[u8], count: u32) -> Option<Vec<T>> {
    let need = (count as usize).checked_mul(size_of::<T>())?;
    let (these, rest) = bytes.split_at_checked(need)?;
    *bytes = rest;
    these.chunks_exact(size_of::<T>()).map(|one| T::read_from_bytes(one).ok()).collect()
}

/// The summary in these bytes, if its checksum is right and what it tells of can be.
fn parse(geom: &Geom, bytes: &[u8], room: u32) -> Option<Parsed> {
    let head = head(geom, bytes, room)?;
    if crc_without(bytes, SUMMARY_CRC_AT) != Some(head.crc.get()) {
        return None;
    }
    let mut rest = bytes.get(SUMMARY..)?;
    let blocks = take(&mut rest, head.blocks.get())?;
    let inodes = take(&mut rest, head.inodes.get())?;
    let segs = take(&mut rest, head.segs.get())?;
    let runs: Vec<RunInfo> = take(&mut rest, head.runs.get())?;
    let groups: Vec<GroupInfo> = take(&mut rest, head.groups.get())?;
    let fits = head.blocks.get() <= head.len.get() - head.own.get()
        && runs.iter().all(|run| is_run(geom, run))
        && groups.iter().all(|g| g.group.get() < geom.groups() && g.desc.used.get() <= geom.group_blocks);
    fits.then_some(Parsed { head, blocks, inodes, segs, runs, groups })
}

/// Whether a run lies in one group.
fn is_run(geom: &Geom, run: &RunInfo) -> bool {
    let (first, count) = (run.first.get(), run.count.get() & !FREED);
    let end = first.checked_add(count);
    let inside =
        |end: u32| geom.is_data(end - 1) && geom.group_of(DataBlock(first)) == geom.group_of(DataBlock(end - 1));
    geom.is_data(first) && count > 0 && end.is_some_and(inside)
}

/// Reads the summary at block `at` of a segment, if there is a sound one.
pub(crate) fn read(dev: &dyn Device, geom: &Geom, seg: Seg, at: u32) -> Result<Option<Parsed>> {
    let Some(room) = geom.seg_blocks().checked_sub(at).filter(|room| *room > 0) else { return Ok(None) };
    let byte = geom.meta_byte(MetaBlock(geom.seg_start(seg).0 + at));
    let mut bytes = vec![0; geom.block()];
    dev.read_at(Kind::Log, byte, &mut bytes)?;
    let Some(h) = head(geom, &bytes, room) else { return Ok(None) };
    if h.own.get() > 1 {
        bytes.resize((h.own.get() as usize) << geom.block_shift, 0);
        dev.read_at(Kind::Log, byte, &mut bytes)?;
    }
    Ok(parse(geom, &bytes, room))
}

/// The summary at block `at` of a segment, in the segment's bytes.
pub(crate) fn in_bytes(geom: &Geom, segment: &[u8], at: u32) -> Option<Parsed> {
    let room = geom.seg_blocks().checked_sub(at).filter(|room| *room > 0)?;
    let rest = segment.get((at as usize) << geom.block_shift..)?;
    let own = head(geom, rest, room)?.own.get() as usize;
    parse(geom, rest.get(..own << geom.block_shift)?, room)
}

/// Whether what follows a summary has the checksum that it records.
pub(crate) fn is_whole(dev: &dyn Device, geom: &Geom, (seg, at): (Seg, u32), p: &Parsed) -> Result<bool> {
    let (own, len) = (p.head.own.get(), p.head.len.get());
    let mut bytes = zeroed(((len - own) as usize) << geom.block_shift);
    if !bytes.is_empty() {
        dev.read_at(Kind::Log, geom.meta_byte(MetaBlock(geom.seg_start(seg).0 + at + own)), &mut bytes)?;
    }
    Ok(crc(&bytes) == p.head.data_crc.get())
}

/// The `fsid` of the summary that seems to be at the start of a segment, of whatever volume.
pub(crate) fn fsid_at(dev: &dyn Device, geom: &Geom, seg: Seg) -> Result<Option<u64>> {
    let mut bytes = vec![0; SECTOR];
    dev.read_at(Kind::Log, geom.meta_byte(geom.seg_start(seg)), &mut bytes)?;
    let head = Summary::read_from_prefix(&bytes).ok();
    Ok(head.filter(|(h, _)| h.magic.get() == SUMMARY_MAGIC).map(|(h, _)| h.fsid.get()))
}

/// The summaries of a segment in its bytes, each with its block in the segment. Remains of an earlier filling do not
/// count.
pub(crate) fn all_in(geom: &Geom, segment: &[u8]) -> Vec<(u32, Parsed)> {
    let (mut at, mut all): (u32, Vec<(u32, Parsed)>) = (0, Vec::new());
    while let Some(p) = in_bytes(geom, segment, at) {
        if all.first().is_some_and(|(_, first)| first.head.fill != p.head.fill) {
            break;
        }
        let next = at + p.head.len.get();
        all.push((at, p));
        at = next;
    }
    all
}
