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
use arbor_kit::rollforward::{Log, Place, Stop};
use arbor_kit::runs::Runs;

pub(crate) use arbor_kit::rollforward::Start;

/// A partial segment of a group, and its segment.
struct Found {
    seg: Seg,
    parsed: Parsed,
    /// Its blocks have the checksum that its summary records.
    is_whole: bool,
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
    for head in stops {
        if let Some((later, here)) = stop(head).behind(core, from) {
            let (field, offset) = field!(Summary, crc);
            let at = core.geom.byte(frag(core, here)) + offset;
            let expected = format!("group {} of the log, which group {later} follows", core.log.group);
            return Err(Corrupt::new("summary", field, at, "others", expected).into());
        }
    }
    Ok(())
}

/// Where the log stops at a head.
fn stop(head: &Head) -> Stop {
    Stop { seg: head.seg.0, offset: head.offset, next_seg: head.next_seg.0, fill: head.fill }
}

fn frag(core: &Core, (seg, offset): (u32, u32)) -> Frag {
    Frag(core.geom.seg_start(Seg(seg)).0 + offset)
}

impl Log for Core {
    fn segs(&self) -> u32 {
        self.segs.count()
    }

    fn seg_units(&self) -> u32 {
        self.geom.seg_frags()
    }

    fn clean(&self) -> &Runs {
        &self.segs.clean
    }

    fn next(&self) -> (u64, u64) {
        (self.log.epoch, self.log.group)
    }

    fn read(&self, seg: u32, first: u32) -> Option<Vec<u8>> {
        let mut bytes = zeroed(self.geom.bytes_of(self.geom.seg_frags() - first));
        self.dev.read_at(Kind::Log, self.geom.byte(frag(self, (seg, first))), &mut bytes).ok().map(|()| bytes)
    }

    fn summary(&self, bytes: &[u8], at: u32) -> Option<Place> {
        let h = summary::in_bytes(&self.geom, bytes, at)?.head;
        let (epoch, set) = (h.epoch.get(), h.group.get());
        let place = Place { epoch, set, fill: h.fill.get(), next_seg: h.next_seg.get() };
        (epoch.max(set) < validate::MOST).then_some(place)
    }
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
        Some(head) if !is_followed(core, &log)? => is_torn(core, head, from),
        _ => Ok(Next::Group(group, log)),
    }
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
fn is_torn(core: &Core, head: Head, from: Start) -> Result<Next> {
    if from == Start::Only {
        let (field, offset) = field!(Summary, data_crc);
        let expected = "the blocks of the partial segment, since a checkpoint is damaged, too";
        let here = frag(core, stop(&head).place(core.geom.seg_frags()));
        return Err(Corrupt::new("summary", field, core.geom.byte(here) + offset, "others", expected).into());
    }
    Ok(Next::Stop(vec![head]))
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
