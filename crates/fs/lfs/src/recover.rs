//! Recovery at the mount: rolls the log forward from the newest checkpoint.
//!
//! The log is followed group by group, as long as groups are complete. A group's summaries hold the entries of the
//! inode map and the segment usage that it changed, so only summaries are decoded; the blocks after them are read to
//! verify their checksum. If the newer one of two checkpoints cannot be used, groups of later mounts follow, too. If one is
//! damaged, a partial segment with wrong blocks is damage, not the end of the log. A group that others follow counts even if
//! its blocks are damaged since.
//!
//! Called by `mount.rs`; nothing is written. `Core::begin` then writes the first checkpoint of the mount.

use crate::format::*;
use crate::heads::{Head, LogHeads};
use crate::planted::{Flaw, planted};
use crate::summary::{self, Parsed};
use crate::validate;
use crate::volume::{Core, Totals};
use arbor_base::cache::Name;
use arbor_base::device::{Device as _, Kind, zeroed};
use arbor_base::field;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Ino, Result};
use rustc_hash::FxHashSet;
use std::cmp::Ordering;

/// A partial segment of a group, and its segment.
struct Found {
    seg: Seg,
    parsed: Parsed,
    /// Its blocks have the checksum that its summary records.
    is_whole: bool,
}

/// The checkpoint from which the log is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The newer of two.
    Newest,
    /// The older of two, since the newer one leads to nothing: later mounts may have written what follows.
    Older,
    /// The only one: the other is damaged, and may have been newer. No crash does that, since it is one sector.
    Only,
}

/// Brings core to the end of the log, if the volume was not unmounted, or if there may be a newer checkpoint.
pub(crate) fn recover(core: &mut Core, from: Start) -> Result<()> {
    let fields = [field!(Checkpoint, next_seg), field!(Checkpoint, cold_next)];
    for (head, (field, offset)) in core.log.heads.iter().zip(fields) {
        if head.is_open() && core.segs.get(head.next_seg.0).live != 0 {
            let at = core.checkpoint_at() + offset;
            return Err(Corrupt::new("checkpoint", field, at, head.next_seg.0, "a segment without live blocks").into());
        }
    }
    if core.checkpoint.clean.get() != 0 && from == Start::Newest {
        return Ok(());
    }
    core.checkpoint.clean = 0.into();
    let stops = roll_forward(core, from)?;
    end_is_end(core, &stops, from)
}

/// Fails if the log goes on after the place where it was followed to: a damaged summary looks like its end, but what follows was
/// written when it was durable (LFS-C4). `stops`: the heads at the partial segments that should be there.
fn end_is_end(core: &Core, stops: &[Head], from: Start) -> Result<()> {
    for stop in stops {
        if let Some((later, here)) = group_behind(core, stop, from) {
            let (field, offset) = field!(Summary, crc);
            let at = core.geom.byte(here) + offset;
            let expected = format!("group {} of the log, which group {later} follows", core.log.group);
            return Err(Corrupt::new("summary", field, at, "others", expected).into());
        }
    }
    Ok(())
}

/// A group behind the one that should come next: in the rest of a segment, in the next one, and in those where other parts of that
/// group say that the log goes on. With a later epoch than the newest checkpoint's comes what a mount has left that was cut off
/// before its own. What cannot be read is no evidence.
/// Also where the summary is missing.
fn group_behind(core: &Core, stop: &Head, from: Start) -> Option<(u64, Frag)> {
    let (geom, mut seen) = (&core.geom, FxHashSet::default());
    // Who has lost the name of the next segment would take the next clean one.
    let clean = &core.segs.clean;
    let guess = clean.after(stop.next_seg.0).next().or_else(|| clean.before(stop.next_seg.0).next()).map(Seg);
    let mut todo = vec![(guess.unwrap_or(stop.seg), 0), (stop.next_seg, 0), (stop.seg, stop.offset)];
    let mut here = place(core, stop);
    while let Some((seg, first)) = todo.pop() {
        if first >= geom.seg_frags() || seg.0 >= core.segs.count() || !seen.insert(seg.0) {
            continue;
        }
        // Nothing was in the two segments where the next part may be.
        if Some(seg) == guess && todo.is_empty() {
            here = geom.seg_start(stop.next_seg);
        }
        let mut bytes = zeroed(geom.bytes_of(geom.seg_frags() - first));
        if core.dev.read_at(Kind::Log, geom.byte(Frag(geom.seg_start(seg).0 + first)), &mut bytes).is_err() {
            continue;
        }
        for at in 0..geom.seg_frags() - first {
            let Some(p) = summary::in_bytes(geom, &bytes, at) else { continue };
            let (epoch, group, fill) = (p.head.epoch.get(), p.head.group.get(), p.head.fill.get());
            let is_same = epoch == core.log.epoch || epoch > core.log.epoch && from != Start::Newest;
            if !is_same || fill < stop.fill || epoch.max(group) >= validate::MOST {
                continue;
            }
            match group.cmp(&core.log.group) {
                Ordering::Greater => return Some((group, here)),
                Ordering::Equal => todo.push((Seg(p.head.next_seg.get()), 0)),
                Ordering::Less => {}
            }
        }
    }
    None
}

/// Rolls the log forward in core; where it stops at each open head.
fn roll_forward(core: &mut Core, from: Start) -> Result<Vec<Head>> {
    loop {
        let (group, log) = match next_group(core, from)? {
            Next::Group(group, log) => (group, log),
            Next::Stop(stops) => return Ok(stops),
        };
        if group.last().is_some_and(|f| f.parsed.head.flags.get() & IFILE_ONLY == 0) {
            apply(core, &group)?;
        } else {
            // Written for a checkpoint that is missing: all of it is dead already.
            group.iter().for_each(|f| core.segs.add(f.seg.0, 0, f.parsed.head.time.get()));
        }
        core.log = LogHeads { group: log.group + 1, ..log };
        for seg in log.busy() {
            core.segs.clean.remove(seg);
        }
    }
}

/// What is at the ends of the log.
enum Next {
    /// A group that counts, and the end of the log after it.
    Group(Vec<Found>, LogHeads),
    /// None. The heads that are open, where the first summary that is not sound would be.
    Stop(Vec<Head>),
}

fn next_group(core: &Core, from: Start) -> Result<Next> {
    let mut stops = Vec::new();
    for head in (0..core.log.heads.len()).filter(|n| core.log.heads[*n].is_open()) {
        match group_at(core, head, from)? {
            Next::Stop(here) => stops.extend(here),
            found => return Ok(found),
        }
    }
    Ok(Next::Stop(stops))
}

/// The next group, if it begins at this head of the log and is complete (LFS-C2). One that others follow was complete when they
/// were written: its blocks are verified as any others when they are read.
fn group_at(core: &Core, at: usize, from: Start) -> Result<Next> {
    let (mut log, mut group, mut torn) = (core.log, Vec::new(), None);
    loop {
        let here = log.heads[at];
        let counts = |f: &Found| f.is_whole || group.is_empty() || !planted(Flaw::HalfGroup);
        let Some(found) = partial_segment(core, &mut log, at, group.len(), from)?.filter(counts) else {
            let half = planted(Flaw::HalfGroup) && !group.is_empty();
            return Ok(if half { Next::Group(group, core.log) } else { Next::Stop(vec![here]) });
        };
        if !found.is_whole {
            torn = torn.or(Some(log.heads[at]));
        }
        log.epoch = found.parsed.head.epoch.get();
        let head = &mut log.heads[at];
        head.offset += found.parsed.head.frags.get();
        head.next_seg = Seg(found.parsed.head.next_seg.get());
        let is_last = found.parsed.head.flags.get() & LAST != 0;
        group.push(found);
        if is_last {
            break;
        }
    }
    match torn {
        _ if !is_possible(core, &group) => Ok(Next::Stop(vec![core.log.heads[at]])),
        Some(stop) if !is_followed(core, &log)? => is_torn(core, stop, from),
        _ => Ok(Next::Group(group, log)),
    }
}

/// Where a partial segment at this head of the log begins, unless it is too long for the rest of its segment.
fn place(core: &Core, head: &Head) -> Frag {
    let (seg, offset) = if head.offset < core.geom.seg_frags() { (head.seg, head.offset) } else { (head.next_seg, 0) };
    Frag(core.geom.seg_start(seg).0 + offset)
}

/// Whether a group of the same mount follows this end of the log.
fn is_followed(core: &Core, log: &LogHeads) -> Result<bool> {
    for head in (0..log.heads.len()).filter(|n| log.heads[*n].is_open()) {
        let mut after = LogHeads { group: log.group + 1, ..*log };
        if partial_segment(core, &mut after, head, 0, Start::Newest)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A crash has ended the log in that partial segment; or damage, if a checkpoint is damaged, too, as far as one can know.
fn is_torn(core: &Core, stop: Head, from: Start) -> Result<Next> {
    if from == Start::Only {
        let (field, offset) = field!(Summary, data_crc);
        let expected = "the blocks of the partial segment, since a checkpoint is damaged, too";
        return Err(
            Corrupt::new("summary", field, core.geom.byte(place(core, &stop)) + offset, "others", expected).into()
        );
    }
    Ok(Next::Stop(vec![stop]))
}

/// Whether the numbers of a group are possible.
fn is_possible(core: &Core, group: &[Found]) -> bool {
    let Some(h) = group.last().map(|f| &f.parsed.head) else { return false };
    let numbers = (h.ninodes.get(), h.free_ino.get(), h.used_inodes.get());
    let counts = validate::counts(&core.geom, core.segs.count(), numbers, h.file_frags.get());
    let known = |i: &InodeInfo| (ROOT.0 as u32..h.ninodes.get()).contains(&i.ino.get());
    counts.is_ok() && group.iter().flat_map(|f| &f.parsed.inodes).all(known)
}

/// The partial segment number `index` of the next group, if its summary lies at the end of this head of the log, or else in its
/// next segment, to which the head is moved then.
fn partial_segment(core: &Core, log: &mut LogHeads, at: usize, index: usize, from: Start) -> Result<Option<Found>> {
    let found = found_at(core, log, at, index, from)?;
    if found.is_some() {
        return Ok(found);
    }
    log.heads[at] = Head { seg: log.heads[at].next_seg, offset: 0, fill: log.next_fill(), ..log.heads[at] };
    found_at(core, log, at, index, from)
}

fn found_at(core: &Core, log: &LogHeads, at: usize, index: usize, from: Start) -> Result<Option<Found>> {
    let later = from != Start::Newest && index == 0;
    let (dev, geom, head, mut torn) = (&*core.dev, &core.geom, log.heads[at], None);
    for _ in 0..2 {
        let Some(parsed) = summary::read(dev, geom, head.seg, head.offset)? else { continue };
        let h = &parsed.head;
        let fits = h.group.get() == log.group
            && (h.epoch.get() == log.epoch || later && h.epoch.get() > log.epoch && h.epoch.get() < validate::MOST)
            && h.fill.get() == head.fill
            && h.index.get() as usize == index
            && goes_on(core, &head, h.next_seg.get());
        let seg = head.seg;
        if fits && (planted(Flaw::BlocksUnverified) || summary::is_whole(dev, geom, (seg, head.offset), &parsed)?) {
            return Ok(Some(Found { seg, parsed, is_whole: true }));
        }
        torn = if fits { Some(Found { seg, parsed, is_whole: false }) } else { torn };
    }
    Ok(torn)
}

/// Whether the log may go on in segment `next`: the head's recorded next one, or a clean one. A head that has just
/// entered a segment finds its own there.
fn goes_on(core: &Core, head: &Head, next: u32) -> bool {
    let same = next == head.next_seg.0;
    next != head.seg.0 && (same || next < core.segs.count() && core.segs.clean.contains(next))
}

fn apply(core: &mut Core, group: &[Found]) -> Result<()> {
    if let Some(h) = group.last().map(|f| &f.parsed.head) {
        core.state = Totals {
            inodes: h.ninodes.get(),
            free_ino: h.free_ino.get(),
            used_inodes: h.used_inodes.get(),
            file_frags: h.file_frags.get(),
            orphan: h.orphan.get(),
        };
    }
    for f in group {
        let blocks: u32 = f.parsed.blocks().map(|(_, b, _)| core.geom.bytes_of(b.frags.get()) as u32).sum();
        let here =
            |i: &&InodeInfo| core.geom.seg_of(Frag(i.entry.frag.get())) == Some(f.seg) && i.entry.frag.get() != 0;
        let inodes = f.parsed.inodes.iter().filter(here).count() * INODE;
        core.segs.add(f.seg.0, blocks + inodes as u32, f.parsed.head.time.get());
        for info in &f.parsed.inodes {
            let ino = Ino(info.ino.get().into());
            core.set_map_entry(ino, info.entry)?;
            core.cache.remove(Name::Inode(ino));
        }
    }
    for s in group.iter().flat_map(|f| &f.parsed.segs) {
        if !planted(Flaw::DeathsForgotten) {
            core.segs.mark_dead(s.seg.get(), s.died.get());
        }
    }
    // The log holds these entries already.
    core.remapped.clear();
    Ok(())
}
