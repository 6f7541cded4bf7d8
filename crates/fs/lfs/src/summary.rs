//! Summaries of partial segments: encoding and parsing.
//!
//! Called by `commit.rs` to write them, by `recover.rs`, `clean.rs`, `scrub.rs` and the checker to read them.

use crate::format::*;
use crate::volume::Core;
use arbor_base::device::{Device, Kind, zeroed};
use arbor_base::layout::{crc, crc_without};
use arbor_base::vfs::Result;
use zerocopy::{FromBytes, IntoBytes};

/// A summary that was read.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    pub head: Summary,
    pub files: Vec<(FileInfo, Vec<BlockInfo>)>,
    pub inodes: Vec<InodeInfo>,
    pub segs: Vec<SegInfo>,
}

/// Length of a summary in bytes.
pub(crate) fn length(files: usize, blocks: usize, inodes: usize, segs: usize) -> usize {
    SUMMARY
        + files * size_of::<FileInfo>()
        + blocks * size_of::<BlockInfo>()
        + inodes * size_of::<InodeInfo>()
        + segs * size_of::<SegInfo>()
}

impl Parsed {
    /// The bytes of the summary's fragments, with their checksum.
    pub fn encode(&self, geom: &Geom) -> Vec<u8> {
        let mut bytes = self.head.as_bytes().to_vec();
        for (file, blocks) in &self.files {
            bytes.extend_from_slice(file.as_bytes());
            blocks.iter().for_each(|b| bytes.extend_from_slice(b.as_bytes()));
        }
        self.inodes.iter().for_each(|i| bytes.extend_from_slice(i.as_bytes()));
        self.segs.iter().for_each(|s| bytes.extend_from_slice(s.as_bytes()));
        bytes.resize(geom.bytes_of(self.head.summary_frags.get()), 0);
        let sum = crc_without(&bytes, SUMMARY_CRC_AT).unwrap_or(0);
        if let Some(place) = bytes.get_mut(SUMMARY_CRC_AT..SUMMARY_CRC_AT + 4) {
            place.copy_from_slice(&sum.to_le_bytes());
        }
        bytes
    }

    /// Whether the blocks fit into the partial segment.
    fn fits(&self, geom: &Geom) -> bool {
        let room = self.head.frags.get() - self.head.summary_frags.get();
        let mut blocks = self.files.iter().flat_map(|f| &f.1).map(|b| b.frags.get());
        let sum = blocks.try_fold(0u32, |sum, n| {
            (1..=geom.block_frags()).contains(&n).then(|| sum.saturating_add(n)).filter(|sum| *sum <= room)
        });
        sum.is_some()
    }

    /// The blocks, each with its offset in fragments from the start of the partial segment.
    pub fn blocks(&self) -> impl Iterator<Item = (FileInfo, BlockInfo, u32)> + '_ {
        let mut at = self.head.summary_frags.get();
        let all = self.files.iter().flat_map(|(f, blocks)| blocks.iter().map(|b| (*f, *b)));
        all.map(move |(f, b)| {
            let here = at;
            at = at.saturating_add(b.frags.get());
            (f, b, here)
        })
    }
}

/// The head of a summary in these bytes, if it is one of this volume and possible in a segment with `room` fragments
/// left.
fn head(geom: &Geom, bytes: &[u8], room: u32) -> Option<Summary> {
    let (h, _) = Summary::read_from_prefix(bytes).ok()?;
    let (own, all) = (h.summary_frags.get(), h.frags.get());
    let possible = own > 0 && own <= all && all <= room;
    (h.magic.get() == SUMMARY_MAGIC && h.fsid.get() == geom.fsid && possible).then_some(h)
}

/// The `fsid` of the summary that seems to be at the start of a segment, of whatever volume.
pub(crate) fn fsid_at(dev: &dyn Device, geom: &Geom, seg: Seg) -> Result<Option<u64>> {
    let mut bytes = vec![0; geom.frag_size()];
    dev.read_at(Kind::Log, geom.byte(geom.seg_start(seg)), &mut bytes)?;
    let head = Summary::read_from_prefix(&bytes).ok();
    Ok(head.filter(|(h, _)| h.magic.get() == SUMMARY_MAGIC).map(|(h, _)| h.fsid.get()))
}

/// Takes `count` structures of one kind off the front of `bytes`.
fn take<T: FromBytes>(bytes: &mut &[u8], count: u32) -> Option<Vec<T>> {
    let need = (count as usize).checked_mul(size_of::<T>())?;
    let (these, rest) = bytes.split_at_checked(need)?;
    *bytes = rest;
    these.chunks_exact(size_of::<T>()).map(|b| T::read_from_bytes(b).ok()).collect()
}

/// The summary in these bytes, if its checksum is right.
fn parse(geom: &Geom, bytes: &[u8], room: u32) -> Option<Parsed> {
    let head = head(geom, bytes, room)?;
    if crc_without(bytes, SUMMARY_CRC_AT) != Some(head.crc.get()) {
        return None;
    }
    let mut rest = bytes.get(SUMMARY..)?;
    let mut files = Vec::new();
    for _ in 0..head.files.get() {
        let file: FileInfo = take(&mut rest, 1)?.pop()?;
        let blocks = take(&mut rest, file.blocks.get())?;
        files.push((file, blocks));
    }
    let inodes = take(&mut rest, head.inodes.get())?;
    let segs = take(&mut rest, head.segs.get())?;
    let parsed = Parsed { head, files, inodes, segs };
    parsed.fits(geom).then_some(parsed)
}

/// Reads the summary at fragment `at` of a segment, if there is a sound one.
pub(crate) fn read(dev: &dyn Device, geom: &Geom, seg: Seg, at: u32) -> Result<Option<Parsed>> {
    let Some(room) = geom.seg_frags().checked_sub(at).filter(|r| *r > 0) else { return Ok(None) };
    let byte = geom.byte(Frag(geom.seg_start(seg).0 + at));
    let mut bytes = vec![0; geom.frag_size()];
    dev.read_at(Kind::Log, byte, &mut bytes)?;
    let Some(h) = head(geom, &bytes, room) else { return Ok(None) };
    bytes.resize(geom.bytes_of(h.summary_frags.get()), 0);
    dev.read_at(Kind::Log, byte, &mut bytes)?;
    Ok(parse(geom, &bytes, room))
}

/// The summary at fragment `at` of a segment, in the segment's bytes.
pub(crate) fn in_bytes(geom: &Geom, segment: &[u8], at: u32) -> Option<Parsed> {
    let room = geom.seg_frags().checked_sub(at).filter(|r| *r > 0)?;
    let from = geom.bytes_of(at);
    let h = head(geom, segment.get(from..)?, room)?;
    parse(geom, segment.get(from..from + geom.bytes_of(h.summary_frags.get()))?, room)
}

/// Whether the blocks and inodes after a summary have the checksum that it records.
pub(crate) fn is_whole(dev: &dyn Device, geom: &Geom, (seg, at): (Seg, u32), p: &Parsed) -> Result<bool> {
    let (own, all) = (p.head.summary_frags.get(), p.head.frags.get());
    let mut bytes = zeroed(geom.bytes_of(all - own));
    if !bytes.is_empty() {
        dev.read_at(Kind::Log, geom.byte(Frag(geom.seg_start(seg).0 + at + own)), &mut bytes)?;
    }
    Ok(crc(&bytes) == p.head.data_crc.get())
}

impl Core {
    /// The summaries of a segment, each with its fragment in the segment. `bytes` are the segment's, if it was read.
    pub fn summaries(&self, seg: Seg, bytes: Option<&[u8]>) -> Result<Vec<(u32, Parsed)>> {
        let (mut at, mut all): (u32, Vec<(u32, Parsed)>) = (0, Vec::new());
        let next = |at| match bytes {
            Some(bytes) => Ok(in_bytes(&self.geom, bytes, at)),
            None => read(&*self.dev, &self.geom, seg, at),
        };
        while let Some(p) = next(at)? {
            // Remains of an earlier filling do not count.
            if all.first().is_some_and(|(_, first)| first.head.fill != p.head.fill) {
                break;
            }
            let next = at + p.head.frags.get();
            all.push((at, p));
            at = next;
        }
        Ok(all)
    }
}
