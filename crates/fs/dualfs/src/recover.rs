//! Recovery at the mount: rolls the log forward from the newest checkpoint.
//!
//! The log is followed set by set, as long as sets are complete. The summaries of a set hold all that it made of the inode
//! map, of the segment usage and of the groups, so only summaries are decoded; the blocks after them are read to verify
//! their checksum. The data to which a set leads were durable before it was written (DUALFS-C4). If the newer one of two
//! checkpoints cannot be used, sets of later mounts follow, too.
//!
//! Called by `mount.rs`; nothing is written. `Core::begin` then writes the first checkpoint of the mount.

use crate::format::*;
use crate::plan::LogEnd;
use crate::planted::{Flaw, planted};
use crate::summary::{self, Parsed};
use crate::validate;
use crate::volume::{Core, State};
use arbor_base::cache::Name;
use arbor_base::device::{Device as _, Kind, zeroed};
use arbor_base::field;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Ino, Result};
use arbor_kit::rollforward::{Log, Place, Stop};
use arbor_kit::runs::Runs;

pub(crate) use arbor_kit::rollforward::Start;

/// A set that was found: partial segments, each with its segment.
type Set = Vec<(Seg, Parsed)>;

/// Brings core to the end of the log, if the volume was not unmounted, or if there may be a newer checkpoint.
pub(crate) fn recover(core: &mut Core, from: Start) -> Result<()> {
    let next = core.log.next_seg;
    if core.segs.get(next.0).live != 0 {
        let region = core.geom.checkpoints().get(1 - core.region).copied().unwrap_or(0);
        let (field, offset) = field!(Checkpoint, next_seg);
        return Err(Corrupt::new("checkpoint", field, region + offset, next.0, "a segment without live blocks").into());
    }
    if core.checkpoint.clean.get() != 0 && from == Start::Newest {
        return Ok(());
    }
    core.checkpoint.clean = 0.into();
    let stop = loop {
        let (set, end) = match next_set(core, from)? {
            Next::Set(set, end) => (set, end),
            Next::Stop(at) => break at,
        };
        let is_of_checkpoint = set.last().is_some_and(|(_, p)| p.head.flags.get() & IFILE_ONLY != 0);
        if is_of_checkpoint {
            // Written for a checkpoint that is missing: all of it is dead already.
            set.iter().for_each(|(seg, p)| core.segs.add(seg.0, 0, p.head.time.get()));
        } else {
            apply(core, &set)?;
        }
        core.log = LogEnd { set: end.set + 1, ..end };
        core.log.busy().into_iter().for_each(|seg| {
            core.segs.clean.remove(seg);
        });
    };
    end_is_end(core, &stop, from)
}

/// Fails if the log goes on after the place where it was followed to: a damaged summary looks like its end, but what follows was
/// written when it was durable (DUALFS-C4). `end`: where the partial segment is that should be there.
fn end_is_end(core: &Core, end: &LogEnd, from: Start) -> Result<()> {
    let Some((later, here)) = stop(end).behind(core, from) else { return Ok(()) };
    let (field, offset) = field!(Summary, crc);
    let at = byte(core, here) + offset;
    let expected = format!("set {} of the log, which set {later} follows", core.log.set);
    Err(Corrupt::new("summary", field, at, "others", expected).into())
}

/// Where the log stops.
fn stop(end: &LogEnd) -> Stop {
    Stop { seg: end.seg.0, offset: end.offset, next_seg: end.next_seg.0, fill: end.fill }
}

fn byte(core: &Core, (seg, offset): (u32, u32)) -> u64 {
    core.geom.meta_byte(MetaBlock(core.geom.seg_start(Seg(seg)).0 + offset))
}

impl Log for Core {
    fn segs(&self) -> u32 {
        self.geom.segs
    }

    fn seg_units(&self) -> u32 {
        self.geom.seg_blocks()
    }

    fn clean(&self) -> &Runs {
        &self.segs.clean
    }

    fn next(&self) -> (u64, u64) {
        (self.log.epoch, self.log.set)
    }

    fn read(&self, seg: u32, first: u32) -> Option<Vec<u8>> {
        let mut bytes = zeroed(((self.geom.seg_blocks() - first) as usize) << self.geom.block_shift);
        self.dev.read_at(Kind::Log, byte(self, (seg, first)), &mut bytes).ok().map(|()| bytes)
    }

    fn summary(&self, bytes: &[u8], at: u32) -> Option<Place> {
        let h = summary::in_bytes(&self.geom, bytes, at)?.head;
        let (epoch, set) = (h.epoch.get(), h.set.get());
        let place = Place { epoch, set, fill: h.fill.get(), next_seg: h.next_seg.get() };
        (epoch.max(set) < validate::MOST).then_some(place)
    }
}

/// What is at the end of the log.
enum Next {
    /// A set that counts, and the end of the log after it.
    Set(Set, LogEnd),
    /// None. Its first summary that is not sound would be there.
    Stop(LogEnd),
}

/// The next set, if it is complete (DUALFS-C2). One that others follow was complete when they were written: its blocks are
/// verified as any others when they are read.
fn next_set(core: &Core, from: Start) -> Result<Next> {
    let (mut end, mut set, mut torn) = (core.log, Set::new(), None);
    loop {
        let here = end;
        let counts = |part: &Found| part.is_whole || set.is_empty() || !planted(Flaw::HalfSet);
        let Some(part) = partial_segment(core, &mut end, set.len(), from)?.filter(counts) else {
            let half = planted(Flaw::HalfSet) && !set.is_empty();
            return Ok(if half { Next::Set(set, core.log) } else { Next::Stop(here) });
        };
        if !part.is_whole {
            torn = torn.or(Some(end));
        }
        let p = part.parsed;
        end.epoch = p.head.epoch.get();
        end.offset += p.head.len.get();
        end.next_seg = Seg(p.head.next_seg.get());
        let is_last = p.head.flags.get() & LAST != 0;
        set.push((end.seg, p));
        if is_last {
            break;
        }
    }
    match torn {
        _ if !is_possible(core, &set) => Ok(Next::Stop(core.log)),
        Some(at) if !is_followed(core, end)? => is_torn(core, at, from),
        _ => Ok(Next::Set(set, end)),
    }
}

/// Whether a set of the same mount follows this end of the log.
fn is_followed(core: &Core, end: LogEnd) -> Result<bool> {
    let mut after = LogEnd { set: end.set + 1, ..end };
    Ok(partial_segment(core, &mut after, 0, Start::Newest)?.is_some())
}

/// A crash has ended the log in that partial segment; or damage, if a checkpoint is damaged, too, as far as one can know.
fn is_torn(core: &Core, at: LogEnd, from: Start) -> Result<Next> {
    if from == Start::Only {
        let (field, offset) = field!(Summary, data_crc);
        let expected = "the blocks of the partial segment, since a checkpoint is damaged, too";
        let here = byte(core, stop(&at).place(core.geom.seg_blocks()));
        return Err(Corrupt::new("summary", field, here + offset, "others", expected).into());
    }
    Ok(Next::Stop(at))
}

/// Whether the numbers of a set are possible. It holds the entry of each inode that is new.
fn is_possible(core: &Core, set: &Set) -> bool {
    let Some(t) = set.last().map(|(_, p)| p.head.totals) else { return false };
    let known = |i: &InodeInfo| (ROOT.0 as u32..t.inodes.get()).contains(&i.ino.get());
    let entries = || set.iter().flat_map(|(_, p)| &p.inodes);
    let most = u64::from(core.state.inodes) + entries().count() as u64;
    validate::totals(&core.geom, &t).is_ok() && u64::from(t.inodes.get()) <= most && entries().all(known)
}

/// A partial segment that lies at the end of the log.
struct Found {
    parsed: Parsed,
    /// Its blocks have the checksum that its summary records.
    is_whole: bool,
}

/// The partial segment number `index` of the next set, if its summary lies at this end of the log, or else in the next segment, to
/// which the end is moved then.
fn partial_segment(core: &Core, end: &mut LogEnd, index: usize, from: Start) -> Result<Option<Found>> {
    let found = found_at(core, end, index, from)?;
    // A set begins in the next segment only if not even a summary and a block have room here.
    let has_room = index == 0 && from == Start::Newest && end.offset + 2 <= core.geom.seg_blocks();
    if found.is_some() || has_room {
        return Ok(found);
    }
    // Its own next one follows from the summary.
    *end = end.advanced(end.next_seg);
    found_at(core, end, index, from)
}

fn found_at(core: &Core, end: &LogEnd, index: usize, from: Start) -> Result<Option<Found>> {
    let (dev, geom, later) = (&*core.dev, &core.geom, from != Start::Newest && index == 0);
    let mut torn = None;
    for _ in 0..2 {
        let Some(parsed) = summary::read(dev, geom, end.seg, end.offset)? else { continue };
        let h = &parsed.head;
        let follows =
            h.epoch.get() == end.epoch || later && h.epoch.get() > end.epoch && h.epoch.get() < validate::MOST;
        let fits = follows
            && h.set.get() == end.set
            && h.fill.get() == end.fill
            && h.index.get() as usize == index
            && goes_on(core, end, h.next_seg.get())
            && has_its_inodes(geom, end, &parsed);
        if fits && (planted(Flaw::BlocksUnverified) || summary::is_whole(dev, geom, (end.seg, end.offset), &parsed)?) {
            return Ok(Some(Found { parsed, is_whole: true }));
        }
        torn = if fits { Some(Found { parsed, is_whole: false }) } else { torn };
    }
    Ok(torn)
}

/// Whether the inodes of which a partial segment at this end of the log tells are in it, or free.
fn has_its_inodes(geom: &Geom, end: &LogEnd, p: &Parsed) -> bool {
    let start = geom.seg_start(end.seg).0 + end.offset;
    let inodes = p.inode_blocks();
    p.inodes
        .iter()
        .map(|i| i.entry.block.get())
        .all(|block| block == 0 || block.checked_sub(start).is_some_and(|place| inodes.contains(&place)))
}

/// Whether the log may go on in segment `next`: the recorded next one, or a clean one.
fn goes_on(core: &Core, end: &LogEnd, next: u32) -> bool {
    let is_clean = next < core.geom.segs && core.segs.clean.contains(next);
    next != end.seg.0 && (next == end.next_seg.0 && next != core.log.seg.0 || is_clean)
}

fn apply(core: &mut Core, set: &Set) -> Result<()> {
    if let Some((_, p)) = set.last() {
        core.state = State::from(p.head.totals);
    }
    for (seg, p) in set {
        let here = |i: &&InodeInfo| {
            let block = i.entry.block.get();
            block != 0 && core.geom.seg_of(MetaBlock(block)) == Some(*seg)
        };
        let inodes = p.inodes.iter().filter(here).count() * INODE;
        let live = p.blocks.len() * core.geom.block() + inodes;
        core.segs.add(seg.0, live as u32, p.head.time.get());
        for info in &p.inodes {
            let ino = Ino(info.ino.get().into());
            core.set_map_entry(ino, info.entry)?;
            core.cache.remove(Name::Inode(ino));
        }
    }
    for s in set.iter().flat_map(|(_, p)| &p.segs) {
        if !planted(Flaw::DeathsForgotten) {
            core.segs.mark_dead(s.seg.get(), s.died.get());
        }
    }
    for run in set.iter().flat_map(|(_, p)| &p.runs) {
        if !planted(Flaw::RunsForgotten) {
            core.mark_run(*run)?;
        }
    }
    for g in set.iter().flat_map(|(_, p)| &p.groups) {
        core.groups.set(&core.geom, Group(g.group.get()), g.desc);
    }
    // The log holds these entries already.
    core.changes.entries.clear();
    core.groups.changed.clear();
    Ok(())
}
