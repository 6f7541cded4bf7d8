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
use arbor_base::field;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Ino, Result};

/// A set that was found: partial segments, each with its segment.
type Set = Vec<(Seg, Parsed)>;

/// The checkpoint from which the log is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The only one: the other is damaged, and may have been newer. No crash does that, since it is one sector.
    Only,
    /// The newer of two.
    Newest,
    /// The older of two, since the newer one leads to nothing: later mounts may have written what follows.
    Older,
}

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
    while let Some((set, end)) = next_set(core, from)? {
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
    }
    if from == Start::Only { end_is_end(core) } else { Ok(()) }
}

/// Fails if the log goes on after the place where it was followed to: in the rest of its segment, or in the next one. A
/// damaged summary looks like the end of the log.
fn end_is_end(core: &Core) -> Result<()> {
    for (seg, from) in [(core.log.seg, core.log.offset), (core.log.next_seg, 0)] {
        for at in from..core.geom.seg_blocks() {
            let Some(p) = summary::read(&*core.dev, &core.geom, seg, at)? else { continue };
            let (epoch, set) = (p.head.epoch.get(), p.head.set.get());
            if epoch >= core.log.epoch && set > core.log.set && epoch.max(set) < validate::MOST {
                let (field, offset) = field!(Summary, set);
                let byte = core.geom.meta_byte(MetaBlock(core.geom.seg_start(seg).0 + at)) + offset;
                let expected = format!("none after {}, to which the log could be followed", core.log.set);
                return Err(Corrupt::new("summary", field, byte, set, expected).into());
            }
        }
    }
    Ok(())
}

/// The next set, if it is complete (DUALFS-C2), and the end of the log after it.
fn next_set(core: &Core, from: Start) -> Result<Option<(Set, LogEnd)>> {
    let (mut end, mut set) = (core.log, Set::new());
    loop {
        let mut found = partial_segment(core, &end, set.len(), from)?;
        if found.is_none() {
            // Its own next one follows from the summary.
            end = end.advanced(end.next_seg);
            found = partial_segment(core, &end, set.len(), from)?;
        }
        let Some(p) = found else {
            let half = planted(Flaw::HalfSet) && !set.is_empty();
            return Ok(half.then_some((set, core.log)));
        };
        end.epoch = p.head.epoch.get();
        end.offset += p.head.len.get();
        end.next_seg = Seg(p.head.next_seg.get());
        let is_last = p.head.flags.get() & LAST != 0;
        set.push((end.seg, p));
        if is_last {
            return Ok(is_possible(core, &set).then_some((set, end)));
        }
    }
}

/// Whether the numbers of a set are possible. It holds the entry of each inode that is new.
fn is_possible(core: &Core, set: &Set) -> bool {
    let Some(t) = set.last().map(|(_, p)| p.head.totals) else { return false };
    let known = |i: &InodeInfo| (ROOT.0 as u32..t.inodes.get()).contains(&i.ino.get());
    let entries = || set.iter().flat_map(|(_, p)| &p.inodes);
    let most = u64::from(core.state.inodes) + entries().count() as u64;
    validate::totals(&core.geom, &t).is_ok() && u64::from(t.inodes.get()) <= most && entries().all(known)
}

/// The partial segment number `index` of the next set, if it lies at this end of the log.
fn partial_segment(core: &Core, end: &LogEnd, index: usize, from: Start) -> Result<Option<Parsed>> {
    let (dev, geom, later) = (&*core.dev, &core.geom, from != Start::Newest && index == 0);
    let mut torn = false;
    for _ in 0..2 {
        let Some(p) = summary::read(dev, geom, end.seg, end.offset)? else { continue };
        let h = &p.head;
        let follows =
            h.epoch.get() == end.epoch || later && h.epoch.get() > end.epoch && h.epoch.get() < validate::MOST;
        let fits = follows
            && h.set.get() == core.log.set
            && h.fill.get() == end.fill
            && h.index.get() as usize == index
            && goes_on(core, end, h.next_seg.get())
            && has_its_inodes(geom, end, &p);
        if fits && (planted(Flaw::BlocksUnverified) || summary::is_whole(dev, geom, (end.seg, end.offset), &p)?) {
            return Ok(Some(p));
        }
        torn |= fits;
    }
    // Not where a crash has ended the log, as far as one can know.
    if torn && from == Start::Only {
        let (field, offset) = field!(Summary, data_crc);
        let at = geom.meta_byte(MetaBlock(geom.seg_start(end.seg).0 + end.offset));
        let expected = "the blocks of the partial segment, since a checkpoint is damaged, too";
        return Err(Corrupt::new("summary", field, at + offset, "others", expected).into());
    }
    Ok(None)
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
