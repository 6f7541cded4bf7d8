//! First phases: the superblock, or a substitute for it; the journal.

use super::Checker;
use super::issue::Issue;
use super::view::{Reader, Stage, View, check_header};
use crate::format::*;
use crate::log::replay::{Copy, Gap, Held, check_super, holds_super, read_journal, replay};
use crate::log::{is_tail, read_tail, tail_bytes, tail_places, unused_number};
use crate::superblock::{decode, found_at, geometry, is_same};
use arbor_base::device::{Device, Kind, Request};
use arbor_base::layout::crc_without;
use arbor_base::vfs::{Error, Repair, Result, mode};
use arbor_kit::head::{bytes_at, sound, usable};
use std::collections::{BTreeMap, HashSet};
use zerocopy::FromBytes;

/// How far copies are searched for, in bytes, and in which steps: no group is larger, and each begins with a block.
const SEARCH: [(u64, u64); 2] = [(1 << 30, 4 << 10), (40 << 30, 32 << 10)];
/// Number of cylinder groups whose headers are compared with a superblock.
const WITNESSES: u32 = 64;

/// Applies the journal of a volume that was not unmounted. With a repair it is replayed in place and emptied; without,
/// its copies are laid over the view in memory ([`View::lay`](super::view::View::lay)). `lost`: the superblock is a
/// substitute, and does not know how the volume was kept. The superblock of `r` is read again if the replay changed it.
/// Returns whether anything was replayed; a journal without a tail cannot be. One with damaged transactions is not: what is
/// sound is laid over the view, and is written with a repair.
pub(crate) fn journal_view(r: &mut Reader<'_>, repair: Repair, lost: bool) -> Result<(bool, Vec<Issue>)> {
    let kept = lost || r.sb.keeping.get() == Keeping::Journal as u32;
    if !kept || r.sb.clean.get() != 0 || r.sb.journal_frags.get() == 0 {
        return Ok((false, Vec::new()));
    }
    let Some(tail) = read_tail(r.view.dev, &r.sb, &r.geom)? else { return Ok((false, Vec::new())) };
    let Held { mut copies, gaps, .. } = read_journal(r.view.dev, &r.sb, &r.geom, tail)?;
    if copies.iter().any(|copy| copy.is_doubtful) {
        let reused = reused(r, &copies);
        copies.retain(|copy| !copy.is_doubtful || !is_among(&reused, &r.geom, copy));
    }
    if repair != Repair::No && gaps.is_empty() {
        return Ok((replay(r.view.dev, &mut r.sb, &r.geom, tail)?, Vec::new()));
    }
    check_super(r.view.dev, &copies)?;
    for copy in &copies {
        let at = r.geom.byte(copy.frag);
        match repair == Repair::Yes && copy.frag != Frag(0) {
            true => r.view.write(Stage::Blocks, Kind::Other, at, &copy.bytes)?,
            false => r.view.lay(at, &copy.bytes),
        }
    }
    if repair == Repair::Yes {
        r.empty_journal()?;
    }
    let bytes = r.view.read(Kind::Super, 0, SECTOR)?;
    if holds_super(&copies)
        && let Some(found) = decode(&bytes, 0)?
    {
        r.sb = found;
    }
    let issue = |gap: &Gap| Issue::JournalGap { why: gap.corrupt(&r.sb, &r.geom).to_string() };
    Ok((!copies.is_empty(), gaps.iter().map(issue).collect()))
}

/// Runs of fragments by their first ones.
type Runs = BTreeMap<u32, u32>;

/// Where files whose inodes are newer than a damaged transaction have their contents: copies from before it that belong there
/// were revoked by it.
fn reused(r: &Reader<'_>, copies: &[Copy]) -> Runs {
    let mut scratch = Reader { view: View::new(r.view.dev), ..*r };
    copies.iter().for_each(|copy| scratch.view.lay(r.geom.byte(copy.frag), &copy.bytes));
    let of_inodes = |copy: &&Copy| {
        let within = copy.frag.0 % r.geom.cg_frags;
        (2 * r.geom.block_frags()..r.geom.meta_frags()).contains(&within)
    };
    let (mut runs, mut seen) = (Runs::new(), HashSet::new());
    for copy in copies.iter().filter(|copy| !copy.is_doubtful).filter(of_inodes) {
        for d in copy.bytes.chunks_exact(INODE).filter_map(|bytes| Dinode::read_from_bytes(bytes).ok()) {
            if d.in_use() && d.kind() == mode::IFREG {
                // What cannot be read leads nowhere.
                let _ = scratch.walk(&d, &mut |_, piece| {
                    if piece.level == 0 {
                        runs.insert(piece.frag.0, piece.frags);
                    }
                    Ok(piece.level > 0 && seen.insert(piece.frag.0))
                });
            }
        }
    }
    runs
}

fn is_among(runs: &Runs, geom: &Geom, copy: &Copy) -> bool {
    let end = copy.frag.0.saturating_add(geom.frags_for(copy.bytes.len()));
    // A run is no longer than a block.
    let near = runs.range(copy.frag.0.saturating_sub(geom.block_frags())..end);
    near.into_iter().any(|(first, frags)| first.saturating_add(*frags) > copy.frag.0)
}

impl Reader<'_> {
    /// Lets the journal begin anew.
    fn empty_journal(&mut self) -> Result<()> {
        let seq = unused_number(self.view.dev, &self.sb, &self.geom);
        let tail = tail_bytes(&self.geom, seq, 1);
        tail_places(&self.sb).into_iter().try_for_each(|place| {
            let at = self.geom.byte(Frag(self.sb.journal_start.get().saturating_add(place)));
            self.view.write(Stage::Rest, Kind::Log, at, &tail)
        })
    }
}

impl Checker<'_> {
    /// Checks the journal's tail. A lost one is replaced by the tail of an empty journal.
    pub(super) fn check_journal(&mut self) -> Result<()> {
        let Reader { view, sb, geom } = &mut self.r;
        let at = geom.byte(Frag(sb.journal_start.get()));
        let sound = |view: &View<'_>| Ok::<_, Error>(is_tail(geom, &view.read(Kind::Log, at, geom.frag_size())?));
        if sb.journal_frags.get() == 0 || sound(view)? || sound(view)? {
            return Ok(());
        }
        let (issue, tail) = match read_tail(view.dev, sb, geom)? {
            Some((seq, from)) => (Issue::JournalTailCopy { at }, tail_bytes(geom, seq, from)),
            None => (Issue::JournalTail { at }, tail_bytes(geom, unused_number(view.dev, sb, geom), 1)),
        };
        self.f.note(issue);
        view.write(Stage::Rest, Kind::Log, at, &tail)
    }
}

/// A superblock that can be used.
pub(super) struct Found {
    pub sb: SuperBlock,
    pub geom: Geom,
    /// It is not the one at byte 0.
    pub damage: Option<Issue>,
}

/// Finds a superblock, or the reason why there is none.
pub(super) fn superblock(dev: &dyn Device) -> Result<std::result::Result<Found, Issue>> {
    let (why, rank) = match usable::<SuperBlock, _>(dev, 0, found_at(dev, 0))? {
        Ok((sb, geom)) => match witnesses(dev, &geom)? {
            (good, asked) if good * 2 >= asked => match outvoted(dev, &sb, &geom)? {
                Some((at, copy)) => return found(dev, (at, copy), "its copies say otherwise".into(), from_copy(at)),
                None => return Ok(Ok(Found { sb, geom, damage: None })),
            },
            (good, _) => {
                let better = copy(dev, good)?;
                let Some((at, copy)) = better else { return Ok(Ok(Found { sb, geom, damage: None })) };
                return found(dev, (at, copy), "its cylinder groups are not there".into(), from_copy(at));
            }
        },
        Err(why) => (why, 0),
    };
    match substitute(dev, rank)? {
        Some((from, sb)) => found(dev, sb, why, from),
        None => Ok(Err(Issue::SuperLost { why: format!("{why}, and no copy is found") })),
    }
}

fn from_copy(at: u64) -> String {
    format!("the copy at byte {at} is used")
}

/// A substitute, from byte `at`.
fn found(
    dev: &dyn Device,
    (at, sb): (u64, SuperBlock),
    why: String,
    from: String,
) -> Result<std::result::Result<Found, Issue>> {
    let geom = geometry(&sb, at, dev.geometry().size)?;
    Ok(Ok(Found { sb: SuperBlock { clean: 0.into(), ..sb }, geom, damage: Some(Issue::SuperDamaged { why, from }) }))
}

/// A substitute for a damaged superblock: itself with one byte repaired, a copy, or its own fields if the first groups
/// confirm them.
fn substitute(dev: &dyn Device, rank: u32) -> Result<Option<(String, (u64, SuperBlock))>> {
    let Some(bytes) = bytes_at(dev, 0)? else { return Ok(None) };
    if let Some((at, sb)) = put_back(dev, &bytes) {
        return Ok(Some((format!("byte {at} of it is wrong, its checksum tells what it was"), (0, sb))));
    }
    if let Some(copy) = copy(dev, rank)? {
        let (at, sb) = most_agree(dev, copy)?;
        return Ok(Some((from_copy(at), (at, sb))));
    }
    Ok(own_fields(dev, &bytes)?.map(|(from, sb)| (from, (0, sb))))
}

/// Whether a volume of ours seems to lie here although byte 0 does not say so.
pub(crate) fn search(dev: &dyn Device) -> Result<bool> {
    Ok(substitute(dev, 0)?.is_some())
}

/// The superblock with one byte changed so that its checksum matches.
fn put_back(dev: &dyn Device, bytes: &[u8]) -> Option<(usize, SuperBlock)> {
    let mut bytes = bytes.to_vec();
    for at in 0..bytes.len() {
        let old = *bytes.get(at)?;
        for byte in 0..=u8::MAX {
            *bytes.get_mut(at)? = byte;
            let stored = bytes.get(SUPER_CRC_AT..SUPER_CRC_AT + 4)?;
            if byte != old && crc_without(&bytes, SUPER_CRC_AT)?.to_le_bytes() == *stored {
                let sb = SuperBlock::read_from_bytes(&bytes).ok()?;
                let usable = sb.magic == SUPER_MAGIC && sb.version.get() <= VERSION;
                return (usable && geometry(&sb, 0, dev.geometry().size).is_ok()).then_some((at, sb));
            }
        }
        *bytes.get_mut(at)? = old;
    }
    None
}

/// The superblock at byte 0 in spite of its checksum, if the first groups confirm it.
fn own_fields(dev: &dyn Device, bytes: &[u8]) -> Result<Option<(String, SuperBlock)>> {
    let Ok(mut sb) = SuperBlock::read_from_bytes(bytes) else { return Ok(None) };
    // Any field may be the damaged one; these few can be found out otherwise.
    (sb.magic, sb.compat, sb.ro_compat, sb.incompat) = (SUPER_MAGIC, 0.into(), 0.into(), 0.into());
    sb.version = sb.version.get().min(VERSION).into();
    let Ok(geom) = geometry(&sb, 0, dev.geometry().size) else { return Ok(None) };
    let (good, asked) = witnesses(dev, &geom)?;
    let from = "no copy is found, its own fields are used as they agree with the cylinder groups".into();
    Ok((good * 2 >= asked).then_some((from, sb)))
}

/// A copy of the superblock, if the first copies agree with each other and not with it.
fn outvoted(dev: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<Option<(u64, SuperBlock)>> {
    let copies = first_copies(dev, geom)?;
    let agree = copies.len() > 1 && copies.windows(2).all(|w| is_same(&w[0].1, &w[1].1));
    Ok(copies.into_iter().next().filter(|(_, first)| agree && !is_same(sb, first)))
}

/// The copies that can be used, of the first groups.
fn first_copies(dev: &dyn Device, geom: &Geom) -> Result<Vec<(u64, SuperBlock)>> {
    let mut copies = Vec::new();
    for cgx in 1..geom.cg_count.min(4) {
        let at = geom.byte(geom.cg_start(cgx));
        copies.extend(sound(found_at(dev, at))?.map(|(copy, _)| (at, copy)));
    }
    Ok(copies)
}

/// This copy, or another one that agrees with more of the first copies.
fn most_agree(dev: &dyn Device, copy: (u64, SuperBlock)) -> Result<(u64, SuperBlock)> {
    let copies = first_copies(dev, &geometry(&copy.1, copy.0, dev.geometry().size)?)?;
    let votes = |sb: &SuperBlock| copies.iter().filter(|(_, other)| is_same(sb, other)).count();
    let best = copies.iter().rev().max_by_key(|(_, sb)| votes(sb)).copied();
    Ok(best.filter(|(_, sb)| votes(sb) > votes(&copy.1)).unwrap_or(copy))
}

/// How many of the first groups have a header that agrees with a geometry, and how many were read.
fn witnesses(dev: &dyn Device, geom: &Geom) -> Result<(u32, u32)> {
    let asked = geom.cg_count.min(WITNESSES);
    let places = (0..asked).map(|cgx| Request::read(Kind::Group, geom.byte(geom.cg_block(cgx)), SECTOR));
    let mut good = 0;
    for (cgx, read) in (0..asked).zip(dev.submit(places.collect()).wait()) {
        good += u32::from(check_header(geom, cgx, &read?).is_ok());
    }
    Ok((good, asked))
}

/// A copy that more groups than `rank` confirm, and its address.
fn copy(dev: &dyn Device, rank: u32) -> Result<Option<(u64, SuperBlock)>> {
    let (mut at, mut spare) = (0, None);
    for (end, step) in SEARCH {
        let end = end.min(dev.geometry().size);
        while at < end {
            let places: Vec<u64> = (0..256).map(|i| at + i * step).filter(|p| *p < end && *p > 0).collect();
            at += 256 * step;
            let batch = places.iter().map(|p| Request::read(Kind::Super, *p, SECTOR)).collect();
            for (place, bytes) in places.into_iter().zip(dev.submit(batch).wait()) {
                let Some((good, sb)) = candidate(dev, place, &bytes?)? else { continue };
                if good > rank {
                    return Ok(Some((place, sb)));
                }
                spare = spare.or(Some((place, sb)));
            }
        }
    }
    // Nothing confirms it, but there is nothing better.
    Ok(spare.filter(|_| rank == 0))
}

fn candidate(dev: &dyn Device, at: u64, bytes: &[u8]) -> Result<Option<(u32, SuperBlock)>> {
    if !bytes.starts_with(&SUPER_MAGIC) {
        return Ok(None);
    }
    let Some((sb, geom)) = sound(found_at(dev, at))? else { return Ok(None) };
    if !at.is_multiple_of(u64::from(geom.cg_frags) << geom.frag_shift) {
        return Ok(None);
    }
    Ok(Some((witnesses(dev, &geom)?.0, sb)))
}
