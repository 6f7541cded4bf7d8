//! Recovery at the mount: rolls the log forward from the newest checkpoint.
//!
//! The log is followed group by group, as long as groups are complete. A group's summaries hold the entries of the
//! inode map and the segment usage that it changed, so only summaries are decoded; the blocks after them are read to
//! verify their checksum. If the newer one of two checkpoints cannot be used, groups of later mounts follow, too. If one is
//! damaged, a partial segment with wrong blocks is damage, not the end of the log.
//!
//! Called by `mount.rs`; nothing is written. `Core::begin` then writes the first checkpoint of the mount.

use crate::format::*;
use crate::heads::{Head, LogHeads};
use crate::planted::{Flaw, planted};
use crate::summary::{self, Parsed};
use crate::validate;
use crate::volume::{Core, Totals};
use arbor_base::cache::Name;
use arbor_base::field;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Ino, Result};

/// A partial segment of a group, and its segment.
struct Found {
    seg: Seg,
    parsed: Parsed,
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
    roll_forward(core, from)?;
    if from == Start::Only { end_is_end(core) } else { Ok(()) }
}

/// Fails if the log goes on after the place where it was followed to: in the rest of the segment of a head, or in the next
/// one. A damaged summary looks like the end of the log.
fn end_is_end(core: &Core) -> Result<()> {
    for head in core.log.heads.iter().filter(|h| h.is_open()) {
        for (seg, from) in [(head.seg, head.offset), (head.next_seg, 0)] {
            for offset in from..1 << (core.geom.seg_shift - core.geom.frag_shift) {
                let Some(p) = summary::read(&*core.dev, &core.geom, seg, offset)? else { continue };
                let (epoch, group) = (p.head.epoch.get(), p.head.group.get());
                if epoch >= core.log.epoch && group > core.log.group && epoch.max(group) < validate::MOST {
                    let at = core.geom.byte(Frag(core.geom.seg_start(seg).0 + offset)) + field!(Summary, group).1;
                    let expected = format!("none after {}, to which the log could be followed", core.log.group);
                    return Err(Corrupt::new("summary", "group", at, group, expected).into());
                }
            }
        }
    }
    Ok(())
}

/// Rolls the log forward in core.
fn roll_forward(core: &mut Core, from: Start) -> Result<()> {
    while let Some((group, log)) = next_group(core, from)? {
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
    Ok(())
}

/// The next group, if it is complete, and the end of the log after it.
fn next_group(core: &Core, from: Start) -> Result<Option<(Vec<Found>, LogHeads)>> {
    for head in (0..core.log.heads.len()).filter(|n| core.log.heads[*n].is_open()) {
        let found = group_at(core, head, from)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The next group, if it begins at this head of the log and is complete (LFS-C2).
fn group_at(core: &Core, at: usize, from: Start) -> Result<Option<(Vec<Found>, LogHeads)>> {
    let (mut log, mut group) = (core.log, Vec::new());
    loop {
        let mut parsed = partial_segment(core, &log, at, group.len(), from)?;
        if parsed.is_none() {
            log.heads[at] = Head { seg: log.heads[at].next_seg, offset: 0, fill: log.next_fill(), ..log.heads[at] };
            parsed = partial_segment(core, &log, at, group.len(), from)?;
        }
        let Some(parsed) = parsed else {
            let half = planted(Flaw::HalfGroup) && !group.is_empty();
            return Ok(half.then_some((group, core.log)));
        };
        log.epoch = parsed.head.epoch.get();
        let head = &mut log.heads[at];
        head.offset += parsed.head.frags.get();
        head.next_seg = Seg(parsed.head.next_seg.get());
        let is_last = parsed.head.flags.get() & LAST != 0;
        group.push(Found { seg: head.seg, parsed });
        if is_last {
            return Ok(is_possible(core, &group).then_some((group, log)));
        }
    }
}

/// Whether the numbers of a group are possible.
fn is_possible(core: &Core, group: &[Found]) -> bool {
    let Some(h) = group.last().map(|f| &f.parsed.head) else { return false };
    let numbers = (h.ninodes.get(), h.free_ino.get(), h.used_inodes.get());
    let counts = validate::counts(&core.geom, core.segs.count(), numbers, h.file_frags.get());
    let known = |i: &InodeInfo| (ROOT.0 as u32..h.ninodes.get()).contains(&i.ino.get());
    counts.is_ok() && group.iter().flat_map(|f| &f.parsed.inodes).all(known)
}

/// The partial segment number `index` of the next group, if it lies at the end of this head of the log.
fn partial_segment(core: &Core, log: &LogHeads, at: usize, index: usize, from: Start) -> Result<Option<Parsed>> {
    let later = from != Start::Newest && index == 0;
    let (dev, geom, head, mut torn) = (&*core.dev, &core.geom, log.heads[at], false);
    for _ in 0..2 {
        let Some(p) = summary::read(dev, geom, head.seg, head.offset)? else { continue };
        let h = &p.head;
        let fits = h.group.get() == log.group
            && (h.epoch.get() == log.epoch || later && h.epoch.get() > log.epoch && h.epoch.get() < validate::MOST)
            && h.fill.get() == head.fill
            && h.index.get() as usize == index
            && goes_on(core, &head, h.next_seg.get());
        if fits && (planted(Flaw::BlocksUnverified) || summary::is_whole(dev, geom, (head.seg, head.offset), &p)?) {
            return Ok(Some(p));
        }
        torn |= fits;
    }
    // Not where a crash has ended the log, as far as one can know.
    if torn && from == Start::Only {
        let (field, offset) = field!(Summary, data_crc);
        let at = geom.byte(Frag(geom.seg_start(head.seg).0 + head.offset));
        let expected = "the blocks of the partial segment, since a checkpoint is damaged, too";
        return Err(Corrupt::new("summary", field, at + offset, "others", expected).into());
    }
    Ok(None)
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
