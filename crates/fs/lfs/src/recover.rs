//! What mount does after a crash: the log is rolled forward from the newest checkpoint, group by group, as long as
//! groups are whole. A group brings the entries of the inode map and of the segment usage table that it has changed,
//! so that nothing but summaries has to be read, and what they cover to be verified.

use crate::commit::Log;
use crate::format::*;
use crate::mount::{Core, State, inode_name};
use crate::planted::{Flaw, planted};
use crate::summary::{self, Parsed};
use arbor_base::vfs::{Ino, Result};

/// A partial segment of a group, and where it stands.
struct Found {
    seg: Seg,
    parsed: Parsed,
}

/// Rolls the log forward in core.
pub(crate) fn roll_forward(core: &mut Core) -> Result<()> {
    while let Some((group, log)) = next_group(core)? {
        if group.last().is_some_and(|f| f.parsed.head.flags.get() & IFILE_ONLY == 0) {
            apply(core, &group)?;
        } else {
            // Written for a checkpoint that is not there: all of it is dead already.
            group.iter().for_each(|f| core.segs.add(f.seg.0, 0, f.parsed.head.time.get()));
        }
        core.log = Log { group: log.group + 1, ..log };
        for seg in [log.seg.0, log.next_seg.0] {
            core.segs.clean.remove(&seg);
        }
    }
    Ok(())
}

/// The next group, if it is whole, and where the log ends behind it.
fn next_group(core: &Core) -> Result<Option<(Vec<Found>, Log)>> {
    let (mut log, mut group) = (core.log, Vec::new());
    loop {
        let mut parsed = partial_segment(core, &log, group.len())?;
        if parsed.is_none() {
            log = Log { seg: log.next_seg, offset: 0, fill: log.fill + 1, ..log };
            parsed = partial_segment(core, &log, group.len())?;
        }
        let Some(parsed) = parsed else {
            let half = planted(Flaw::HalfGroup) && !group.is_empty();
            return Ok(half.then_some((group, core.log)));
        };
        log.offset += parsed.head.frags.get();
        log.next_seg = Seg(parsed.head.next_seg.get());
        let is_last = parsed.head.flags.get() & LAST != 0;
        group.push(Found { seg: log.seg, parsed });
        if is_last {
            return Ok(Some((group, log)));
        }
    }
}

/// The partial segment with this number in the group that comes next, if it stands where the log ends.
fn partial_segment(core: &Core, log: &Log, index: usize) -> Result<Option<Parsed>> {
    let (dev, geom) = (&*core.dev, &core.geom);
    for _ in 0..2 {
        let Some(p) = summary::read(dev, geom, log.seg, log.offset)? else { continue };
        let h = &p.head;
        let fits = h.group.get() == log.group
            && h.epoch.get() == log.epoch
            && h.fill.get() == log.fill
            && h.index.get() as usize == index
            && h.next_seg.get() < core.segs.count();
        if fits && (planted(Flaw::BlocksUnverified) || summary::is_whole(dev, geom, (log.seg, log.offset), &p)?) {
            return Ok(Some(p));
        }
    }
    Ok(None)
}

fn apply(core: &mut Core, group: &[Found]) -> Result<()> {
    if let Some(h) = group.last().map(|f| &f.parsed.head) {
        core.state = State {
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
            core.cache.remove(inode_name(ino));
        }
    }
    for s in group.iter().flat_map(|f| &f.parsed.segs) {
        if !planted(Flaw::DeathsForgotten) {
            core.segs.bury(s.seg.get(), s.died.get());
        }
    }
    // The log says so already.
    core.remapped.clear();
    Ok(())
}
