//! The inode map from the summaries of the log, where the ifile has lost it.
//!
//! Every set names the inodes that it writes or frees, and the cleaner's do so too; so the newest set that counts and names
//! an inode says where it is. The whole metadata area is read for that. A file whose end no summary tells of any more comes
//! back without a name, unless others have its blocks since. Where a summary is damaged, the inodes that it told of are
//! searched for.

use crate::decoded::inodes_in;
use crate::format::*;
use crate::plan::LogEnd;
use crate::summary::{self, Parsed};
use crate::volume::Core;
use crate::{areas, options, superblock, validate};
use arbor_base::device::{Device, Kind, zeroed};
use arbor_base::vfs::{Error, Ino, Options, Result, Time};
use arbor_kit::calls::State as _;
use arbor_kit::ends::{Ends, Part};
use arbor_kit::gaps::{self, Age, State, Strays, Told};
use arbor_kit::reads;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// How many states of one inode are kept.
const STATES: usize = 8;

/// What the summaries say.
#[derive(Default)]
pub(super) struct Log {
    ends: Ends<(Seg, u32)>,
    states: FxHashMap<u32, Vec<State>>,
    strays: Strays,
    /// Epoch and number of the first set that does not count, if a checkpoint led to the volume: it was not rolled forward
    /// over that, and will write where it lies.
    end: Option<(u64, u64)>,
}

impl Log {
    /// Reads the whole metadata area; keeps what concerns the inodes that are wanted, of sets before `end` if there is one.
    pub fn read(core: &Core, end: Option<(u64, u64)>, is_wanted: &dyn Fn(u32) -> bool) -> Result<Log> {
        let (mut log, dev, geom) = (Log { end, ..Log::default() }, &*core.dev, &core.geom);
        let (mut parts, mut unread) = (Vec::new(), Unread::default());
        for seg in (0..geom.segs).map(Seg) {
            for (at, p) in in_segment(core, &mut unread, seg) {
                log.see((seg, at), &p, is_wanted);
                parts.push(part(seg, at, &p));
            }
        }
        log.ends.judge(&mut |&(seg, at)| match summary::read(dev, geom, seg, at)? {
            Some(p) => summary::is_whole(dev, geom, (seg, at), &p),
            None => Ok(false),
        })?;
        let mut gaps = gaps::gaps(&parts, geom.segs, geom.seg_blocks());
        // A set that does not count leaves nothing.
        let counts = |(epoch, set)| log.ends.counts(epoch, set) && end.is_none_or(|end| (epoch, set) < end);
        gaps.retain(|gap| if gap.has_begun { counts(gap.before) } else { end.is_none_or(|end| gap.before <= end) });
        log.strays = gaps::search(&mut Searched { core, unread: &mut unread }, &gaps, &parts, is_wanted);
        let mut one = vec![0; geom.block()];
        unread.check(&mut |block| dev.read_at(Kind::Log, geom.meta_byte(MetaBlock(*block)), &mut one).is_err())?;
        Ok(log)
    }

    fn see(&mut self, at: (Seg, u32), p: &Parsed, is_wanted: &dyn Fn(u32) -> bool) {
        let (h, is_last) = (&p.head, p.head.flags.get() & LAST != 0);
        let (epoch, set, fill) = (h.epoch.get(), h.set.get(), h.fill.get());
        self.ends.see(Part { at, epoch, set, index: h.index.get(), is_last, fill });
        if self.end.is_some_and(|end| (epoch, set) >= end) {
            return;
        }
        for info in p.inodes.iter().filter(|i| is_wanted(i.ino.get())) {
            let list = self.states.entry(info.ino.get()).or_default();
            let (version, place) = (info.entry.version.get(), info.entry.block.get());
            list.push(State { of: (epoch, set), version, place });
            list.sort_by_key(|s| std::cmp::Reverse(s.of));
            list.truncate(STATES);
        }
    }

    /// Entries of the map by the newest sound state of each inode, those of the youngest sets first.
    fn entries(&self, core: &mut Core) -> Result<Vec<(u32, MapEntry)>> {
        let mut all = Vec::with_capacity(self.states.len());
        let unnamed = self.strays.inos().into_iter().filter(|ino| !self.states.contains_key(ino));
        for ino in self.states.keys().copied().chain(unnamed) {
            let told = self.told(core, ino)?;
            all.extend(self.strays.or_newer(ino, told).map(|told| (told, ino)));
        }
        all.sort_unstable_by_key(|(told, ino)| (std::cmp::Reverse(told.of), *ino));
        let entry = |t: Told| MapEntry { block: t.place.into(), version: t.version.into(), ..MapEntry::default() };
        Ok(all.into_iter().map(|(told, ino)| (ino, entry(told))).collect())
    }

    /// What summaries tell of an inode.
    fn told(&self, core: &mut Core, ino: u32) -> Result<Option<Told>> {
        let list = self.states.get(&ino).into_iter().flatten().copied();
        Told::by(list.filter(|s| self.ends.counts(s.of.0, s.of.1)), |block| {
            match core.read_inode(Ino(ino.into()), MetaBlock(block)) {
                Err(Error::Corrupt(_)) => Ok(None),
                read => read.map(|(_, d)| Some(age(&d))),
            }
        })
    }

    /// Fills the entries that were wanted in the map.
    pub fn fill(&self, core: &mut Core) -> Result<()> {
        let entries = self.entries(core)?;
        enter(core, &entries)
    }
}

/// Enters them into the map, up to its end.
fn enter(core: &mut Core, entries: &[(u32, MapEntry)]) -> Result<()> {
    for (ino, entry) in entries.iter().filter(|e| e.0 < core.state.inodes).copied().collect::<Vec<_>>() {
        core.set_map_entry(Ino(ino.into()), entry)?;
    }
    // The log has these entries already.
    core.changes.entries.clear();
    Ok(())
}

fn age(d: &Dinode) -> Age {
    Age { version: d.version.get(), changed: (d.ctime.secs.get(), d.ctime.nanos.get()) }
}

fn part(seg: Seg, at: u32, p: &Parsed) -> gaps::Part {
    let (h, seg) = (&p.head, seg.0);
    let (of, index, fill) = ((h.epoch.get(), h.set.get()), h.index.get(), h.fill.get());
    gaps::Part { seg, at, len: h.len.get(), of, index, fill, next_seg: h.next_seg.get() }
}

/// Numbers of metadata blocks.
type Unread = gaps::Unread<u32>;

/// Blocks of the log; what cannot be read is zeros, and noted.
fn blocks(core: &Core, unread: &mut Unread, first: u32, blocks: u32) -> Vec<u8> {
    let (geom, mut bytes) = (&core.geom, zeroed((blocks as usize) << core.geom.block_shift));
    let at = geom.meta_byte(MetaBlock(first));
    for n in reads::what_can_be_read(&*core.dev, Kind::Log, at, &mut bytes, geom.block()) {
        unread.note(first.saturating_add(n as u32));
    }
    bytes
}

/// The log as it is searched, a block at a time.
struct Searched<'a> {
    core: &'a Core,
    unread: &'a mut Unread,
}

impl gaps::Log for Searched<'_> {
    fn unit(&self) -> usize {
        self.core.geom.block()
    }

    fn most_units(&self) -> usize {
        1
    }

    fn start(&self, seg: u32) -> u32 {
        self.core.geom.seg_start(Seg(seg)).0
    }

    fn read(&mut self, first: u32, units: u32) -> Vec<u8> {
        blocks(self.core, self.unread, first, units)
    }

    fn inodes(&self, unit: &[u8]) -> Vec<(u32, Age)> {
        inodes_in(&self.core.geom, unit).map(|(_, d)| (d.ino.get(), age(&d))).collect()
    }
}

/// The sound summaries of the last filling of a segment, each with its block in the segment.
fn in_segment(core: &Core, unread: &mut Unread, seg: Seg) -> Vec<(u32, Parsed)> {
    let geom = &core.geom;
    let bytes = blocks(core, unread, geom.seg_start(seg).0, geom.seg_blocks());
    let (mut all, mut at) = (Vec::new(), 0);
    while at < geom.seg_blocks() {
        let found = summary::in_bytes(geom, &bytes, at);
        let possible = |p: &Parsed| [p.head.epoch, p.head.set, p.head.fill].iter().all(|n| n.get() < validate::MOST);
        match found.filter(possible) {
            Some(p) => {
                let next = at + p.head.len.get();
                all.push((at, p));
                at = next;
            }
            None => at += 1,
        }
    }
    let fill = all.iter().map(|(_, p)| p.head.fill.get()).max();
    all.retain(|(_, p)| Some(p.head.fill.get()) == fill);
    all
}

/// A state that was made from the summaries alone.
pub(super) struct Rebuilt {
    pub core: Core,
    /// Its inodes, those of the youngest sets first: they have what two say is theirs.
    pub order: Vec<u32>,
    /// Where the log can go on, but for the segments.
    pub end: LogEnd,
}

/// Makes the ifile from the summaries alone; `None` if there is no summary of this volume. Sound checkpoints tell what the
/// summaries do not.
pub(super) fn rebuild(
    dev: &Arc<dyn Device>,
    (sb, geom): (SuperBlock, Geom),
    checkpoints: &[(usize, Checkpoint)],
) -> Result<Option<Rebuilt>> {
    let size = dev.geometry().size;
    let known = |(region, cp): &(usize, Checkpoint)| superblock::with_checkpoint(&geom, size, *region, cp).ok();
    let whole = Geom { data_blocks: superblock::data_blocks(&geom, size), ..geom };
    let geom = checkpoints.iter().find_map(known).unwrap_or(whole);
    dev.confine(0..geom.end());
    let opts = options::Mount::parse(&Options::parse(super::start::CACHE))?;
    let mut core = Core::new(dev.clone(), (sb, geom), opts, Time::default());
    core.stay();
    core.cache.keep_all(true);
    let most = geom.max_size().saturating_sub(MAP_AT) / MAP_ENTRY as u64;
    let log = Log::read(&core, None, &|ino| (ROOT.0..most).contains(&ino.into()))?;
    let (epoch, set) = log.ends.last();
    if set == 0 {
        return Ok(None);
    }
    areas::is_of_one_time(&**dev, &geom, areas::Owner { epoch, stamp: 0 }, true)?;
    let serial = checkpoints.iter().map(|(_, cp)| cp.serial.get()).filter(|n| *n < validate::MOST).max();
    core.checkpoint.serial = serial.unwrap_or(1).into();
    core.segs.clean.clear();
    core.new_ifile(Time { secs: core.sb.created.get(), nanos: 0 });
    let last = log.strays.last_number(log.states.keys().copied());
    let mut entries = log.entries(&mut core)?;
    entries.retain(|(ino, _)| *ino <= last);
    // Nothing supports summaries beyond that, and a map of so many inodes might leave no room for anything else.
    let in_use = entries.iter().filter(|(_, e)| e.block.get() != 0).map(|(ino, _)| *ino);
    core.state.inodes = in_use.max().unwrap_or(ROOT.0 as u32).saturating_add(1);
    enter(&mut core, &entries)?;
    let order = entries.into_iter().map(|(ino, _)| ino).filter(|ino| *ino < core.state.inodes).collect();
    core.cache.keep_all(false);
    let end = LogEnd { fill: log.ends.fill() + 1, set: set + 1, epoch, ..LogEnd::default() };
    Ok(Some(Rebuilt { core, order, end }))
}
