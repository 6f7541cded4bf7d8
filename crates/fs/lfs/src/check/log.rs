//! Recovering inodes and the inode map from the summaries, where the ifile has lost them. Where a summary is damaged, the inodes
//! that it told of are searched for.

use super::words;
use crate::format::*;
use crate::heads::{HOT, LogHeads};
use crate::inode::{Inode, sound_inodes};
use crate::options;
use crate::summary::{self, Parsed};
use crate::superblock;
use crate::validate::{self, MOST};
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::device::{Device, Kind, zeroed};
use arbor_base::layout::{Corrupt, Location, get_u32};
use arbor_base::vfs::{Ino, Options, Result, Time, mode};
use arbor_kit::blockmap::BlockMap as _;
use arbor_kit::ends::{Ends, Part};
use arbor_kit::gaps::{self, Age, State, Strays, Told};
use arbor_kit::reads;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// How many older states of one inode are kept.
const STATES: usize = 4;
/// How much is read at once in search of a summary, bytes.
const PIECE: usize = 256 << 10;

/// The name of a block of the ifile.
pub(super) fn what(geom: &Geom, lbn: u64) -> &'static str {
    if lbn < geom.lbn(MAP_AT) { "of the segment usage table" } else { "of the inode map" }
}

/// Reads all blocks of the ifile; those that cannot be read are cut off and returned. A damaged pointer to a block
/// between the usage table and the map is damage to the inode.
pub(super) fn read_ifile(core: &mut Core) -> Result<Vec<(u64, String)>> {
    let mut lost = Vec::new();
    let usage = u64::from(core.segs.count()).div_ceil((core.geom.block_size() / USAGE) as u64);
    let mut i = core.inode(IFILE)?;
    let mut todo: Vec<FileBlock> = (1..=NIADDR as u8).map(|level| FileBlock::Map { level, n: 0 }).collect();
    todo.extend((0..NDADDR as u64).map(FileBlock::Data));
    while let Some(place) = todo.pop() {
        if core.pointer(&i, place)?.frag.get() == 0 {
            continue;
        }
        let read = match place {
            FileBlock::Map { level, n } => core.indirect(&i, level, n).map(Option::unwrap_or_default),
            FileBlock::Data(lbn) => core.ifile_page(lbn),
            FileBlock::Xattr(_) => continue,
        };
        if let FileBlock::Data(lbn) = place
            && (usage..core.geom.lbn(MAP_AT)).contains(&lbn)
        {
            return Err(
                Corrupt::new("ifile", "db", Location::inode(IFILE), format!("block {lbn}"), "none there").into()
            );
        }
        match (words(read)?, place) {
            (Ok(bytes), FileBlock::Map { level, n }) => {
                let there = |k: &u64| get_u32(&bytes, *k as usize * POINTER).is_some_and(|frag| frag != 0);
                let per = core.geom.nindir();
                todo.extend((0..per).filter(there).map(|k| core.geom.shape().child(level, n, k)));
            }
            (Ok(_), _) => {}
            (Err(why), _) => {
                let lbn = match place {
                    FileBlock::Map { level, n } => core.geom.shape().first(level, n),
                    FileBlock::Data(lbn) => lbn,
                    FileBlock::Xattr(_) => 0,
                };
                lost.push((lbn, why));
                core.set_pointer(&mut i, place, Pointer::default())?;
            }
        }
        core.cache.keep_all(false);
        core.cache.keep_all(true);
    }
    Ok(lost)
}

/// A place of the log that was to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Summary(Seg, u32),
    Fragment(u32),
}

type Unread = gaps::Unread<Place>;

/// Fails unless what could not be read is damaged.
fn check_unread(core: &Core, unread: &Unread) -> Result<()> {
    let mut one = vec![0; core.geom.frag_size()];
    unread.check(&mut |place: &Place| match *place {
        Place::Summary(seg, at) => summary::read(&*core.dev, &core.geom, seg, at).is_err(),
        Place::Fragment(frag) => core.dev.read_at(Kind::Log, core.geom.byte(Frag(frag)), &mut one).is_err(),
    })
}

/// Calls `f` for all summaries that can be found. What cannot be read is none, and noted.
fn each_summary(core: &Core, unread: &mut Unread, f: &mut dyn FnMut(Seg, u32, &Parsed)) {
    for seg in (0..core.segs.count()).map(Seg) {
        let mut at = 0;
        while at < core.geom.seg_frags() {
            let read = summary::read(&*core.dev, &core.geom, seg, at);
            if read.is_err() {
                unread.note(Place::Summary(seg, at));
            }
            match read {
                Ok(Some(p)) => {
                    f(seg, at, &p);
                    at += p.head.frags.get().max(1);
                }
                _ => at = next_magic(core, unread, seg, at + 1),
            }
        }
    }
}

/// The next fragment of a segment that begins like a summary.
fn next_magic(core: &Core, unread: &mut Unread, seg: Seg, mut at: u32) -> u32 {
    let (geom, step) = (core.geom, (PIECE >> core.geom.frag_shift).max(1) as u32);
    while at < geom.seg_frags() {
        let n = step.min(geom.seg_frags() - at);
        let bytes = fragments(core, unread, geom.seg_start(seg).0 + at, n);
        let found = bytes.chunks_exact(geom.frag_size()).position(|b| get_u32(b, 0) == Some(SUMMARY_MAGIC));
        if let Some(found) = found {
            return at + found as u32;
        }
        at += n;
    }
    at
}

/// Fragments of the log; what cannot be read is zeros, and noted.
fn fragments(core: &Core, unread: &mut Unread, first: u32, frags: u32) -> Vec<u8> {
    let mut bytes = zeroed(core.geom.bytes_of(frags));
    let (at, unit) = (core.geom.byte(Frag(first)), core.geom.frag_size());
    for n in reads::what_can_be_read(&*core.dev, Kind::Log, at, &mut bytes, unit) {
        unread.note(Place::Fragment(first.saturating_add(n as u32)));
    }
    bytes
}

/// What the summaries tell of the log: its ends, and its partial segments.
type Summaries = (Ends<(Seg, u32)>, Vec<gaps::Part>);

/// Finds the ends of the log, and its partial segments.
fn ends(core: &Core, unread: &mut Unread) -> Result<Summaries> {
    let (mut ends, mut parts) = (Ends::default(), Vec::new());
    each_summary(core, unread, &mut |seg, at, p| {
        let (h, is_last) = (&p.head, p.head.flags.get() & LAST != 0);
        let (epoch, set, fill, index) = (h.epoch.get(), h.group.get(), h.fill.get(), h.index.get());
        let (of, len, next_seg) = ((epoch, set), h.frags.get(), h.next_seg.get());
        if [epoch, set, fill].iter().all(|n| *n < MOST) {
            ends.see(Part { at: (seg, at), epoch, set, index, is_last, fill });
            parts.push(gaps::Part { seg: seg.0, at, len, of, index, fill, next_seg });
        }
    });
    ends.judge(&mut |&(seg, at)| match summary::read(&*core.dev, &core.geom, seg, at)? {
        Some(p) => summary::is_whole(&*core.dev, &core.geom, (seg, at), &p),
        None => Ok(false),
    })?;
    Ok((ends, parts))
}

/// The ordinal number of the last filling that the log has.
pub(super) fn last_fill(core: &Core) -> Result<u64> {
    let mut unread = Unread::default();
    let fill = ends(core, &mut unread)?.0.fill();
    check_unread(core, &unread)?;
    Ok(fill)
}

/// The newest inodes that are wanted of which no summary tells.
fn strays(core: &Core, (ends, parts): &Summaries, unread: &mut Unread, wanted: &dyn Fn(u32) -> bool) -> Strays {
    let (geom, segs) = (core.geom, core.segs.count());
    let mut gaps = gaps::gaps(parts, segs, geom.seg_frags());
    // A set that does not count leaves nothing.
    gaps.retain(|gap| !gap.has_begun || ends.counts(gap.before.0, gap.before.1));
    let most = validate::most_inodes(&geom, segs);
    let wanted = |ino: u32| (ROOT.0..most).contains(&ino.into()) && wanted(ino);
    gaps::search(&mut Searched { core, unread }, &gaps, parts, &wanted)
}

/// The log as it is searched, a fragment at a time.
struct Searched<'a> {
    core: &'a Core,
    unread: &'a mut Unread,
}

impl gaps::Log for Searched<'_> {
    fn unit(&self) -> usize {
        self.core.geom.frag_size()
    }

    fn most_units(&self) -> usize {
        self.core.geom.block_frags() as usize
    }

    fn start(&self, seg: u32) -> u32 {
        self.core.geom.seg_start(Seg(seg)).0
    }

    fn read(&mut self, first: u32, units: u32) -> Vec<u8> {
        fragments(self.core, self.unread, first, units)
    }

    fn inodes(&self, unit: &[u8]) -> Vec<(u32, Age)> {
        sound_inodes(&self.core.geom, unit).map(|(_, d)| (d.ino.get(), age(&d))).collect()
    }
}

fn age(d: &Dinode) -> Age {
    Age { version: d.version.get(), changed: (d.ctime.secs.get(), d.ctime.nanos.get()) }
}

/// The states of inodes in the log, the newest of each inode first.
pub(super) fn states(core: &Core, wanted: &dyn Fn(u32) -> bool) -> Result<FxHashMap<u32, Vec<State>>> {
    let mut unread = Unread::default();
    let ends = ends(core, &mut unread)?.0;
    let all = collect(core, &ends, &mut unread, wanted);
    check_unread(core, &unread)?;
    Ok(all)
}

fn collect(
    core: &Core,
    ends: &Ends<(Seg, u32)>,
    unread: &mut Unread,
    wanted: &dyn Fn(u32) -> bool,
) -> FxHashMap<u32, Vec<State>> {
    let mut all: FxHashMap<u32, Vec<State>> = FxHashMap::default();
    let most = validate::most_inodes(&core.geom, core.segs.count());
    each_summary(core, unread, &mut |_, _, p| {
        let (epoch, group) = (p.head.epoch.get(), p.head.group.get());
        if !ends.counts(epoch, group) {
            return;
        }
        let possible = |ino: u32| (ROOT.0..most).contains(&ino.into()) && wanted(ino);
        for info in p.inodes.iter().filter(|i| possible(i.ino.get())) {
            let (place, version) = (info.entry.frag.get(), info.entry.version.get());
            let list = all.entry(info.ino.get()).or_default();
            list.push(State { of: (epoch, group), version, place });
            list.sort_by_key(|s| std::cmp::Reverse(s.of));
            list.truncate(STATES);
        }
    });
    all
}

/// Missing blocks of the inode map, by their number in the map.
pub(super) fn missing_map(core: &mut Core) -> Result<BTreeSet<u64>> {
    let per = (core.geom.block_size() / MAP_ENTRY) as u64;
    let i = core.inode(IFILE)?;
    let (first, end) = (core.geom.lbn(MAP_AT), u64::from(core.state.inodes).div_ceil(per));
    let mut missing = BTreeSet::new();
    for n in 0..end {
        if core.pointer(&i, FileBlock::Data(first + n))?.frag.get() == 0 {
            missing.insert(n);
        }
    }
    Ok(missing)
}

/// Fills blocks of the inode map.
pub(super) fn fill_map(core: &mut Core, missing: BTreeSet<u64>) -> Result<()> {
    let per = (core.geom.block_size() / MAP_ENTRY) as u64;
    let first = core.geom.lbn(MAP_AT);
    let wanted = |ino: u32| missing.contains(&(u64::from(ino) / per));
    let (found, strays) = inodes(core, &wanted)?.1;
    // A block without an inode in use is there too.
    for n in missing {
        core.ifile_modify(first + n, 0, &[])?;
    }
    let entries = entries(core, &found, &strays)?;
    enter(core, entries)
}

type Inodes = (FxHashMap<u32, Vec<State>>, Strays);

/// What the log tells of the inodes that are wanted.
fn inodes(core: &Core, wanted: &dyn Fn(u32) -> bool) -> Result<(Ends<(Seg, u32)>, Inodes)> {
    let mut unread = Unread::default();
    let summaries = ends(core, &mut unread)?;
    let found = collect(core, &summaries.0, &mut unread, wanted);
    let strays = strays(core, &summaries, &mut unread, wanted);
    check_unread(core, &unread)?;
    Ok((summaries.0, (found, strays)))
}

/// Entries of the map by the newest sound state of each inode, ascending.
fn entries(core: &mut Core, found: &FxHashMap<u32, Vec<State>>, strays: &Strays) -> Result<Vec<(u32, MapEntry)>> {
    let mut all = Vec::with_capacity(found.len());
    let unnamed = strays.inos().into_iter().filter(|ino| !found.contains_key(ino));
    for ino in found.keys().copied().chain(unnamed) {
        let told = Told::by(found.get(&ino).into_iter().flatten().copied(), |frag| {
            Ok(words(core.read_inode(Ino(ino.into()), Frag(frag)))?.ok().map(|(_, d)| age(&d)))
        })?;
        let entry = |t: Told| MapEntry { frag: t.place.into(), version: t.version.into(), ..MapEntry::default() };
        all.extend(strays.or_newer(ino, told).map(|told| (ino, entry(told))));
    }
    all.sort_unstable_by_key(|e| e.0);
    Ok(all)
}

/// Enters them into the map, up to its end.
fn enter(core: &mut Core, entries: Vec<(u32, MapEntry)>) -> Result<()> {
    let end = core.state.inodes;
    for (ino, entry) in entries.into_iter().filter(|e| e.0 < end) {
        core.set_map_entry(Ino(ino.into()), entry)?;
    }
    // The log has these entries already.
    core.remapped.clear();
    Ok(())
}

/// Rebuilds the ifile from the summaries alone. The log goes on in a segment that has nothing live by them.
pub(super) fn rebuild(dev: Arc<dyn Device>, geom: Geom, cp: Option<Checkpoint>, now: Time) -> Result<Core> {
    let most = superblock::segs_in(&geom, dev.geometry().size);
    let known = cp.map(|cp| cp.segs.get()).filter(|n| *n >= superblock::LEAST_SEGS && *n <= most);
    let segs = known.unwrap_or(most);
    let mut core = Core::new(geom, dev, options::Mount::parse(&Options::default())?, now, segs);
    core.dev.confine(0..geom.byte(geom.seg_start(Seg(segs))));
    core.cache.keep_all(true);
    let (ends, (told, strays)) = inodes(&core, &|_| true)?;
    let last = strays.last_number(told.keys().copied());
    let mut found = entries(&mut core, &told, &strays)?;
    found.retain(|(ino, _)| *ino <= last);
    // Nothing supports summaries beyond that, and a map of so many inodes might leave no space for anything else.
    let highest = found.iter().rev().find(|e| e.1.frag.get() != 0).map_or(ROOT.0 as u32, |e| e.0);
    core.state.inodes = highest.saturating_add(1);
    let serial = cp.map(|cp| cp.serial.get()).filter(|n| *n < MOST);
    core.checkpoint.serial = serial.unwrap_or(1).into();
    core.log = LogHeads { epoch: ends.last().0 + 1, group: ends.last().1 + 1, ..LogHeads::default() };
    // No segment yet; see `place_log`.
    core.log.heads[HOT].fill = ends.fill();
    let stamp = Stamp::from(now);
    let ifile = Dinode {
        fsid: geom.fsid.into(),
        ino: (IFILE.0 as u32).into(),
        version: 1.into(),
        mode: (mode::IFREG | 0o600).into(),
        nlink: 1.into(),
        ctime: stamp,
        btime: stamp,
        ..Dinode::default()
    };
    core.cache.insert(Name::Inode(IFILE), Arc::new(ifile.as_bytes().to_vec()));
    // A segment of which nothing is known is not clean; see `check_usage`.
    core.segs.clean.clear();
    let (first, per) = (geom.lbn(MAP_AT), (geom.block_size() / MAP_ENTRY) as u64);
    for n in 0..u64::from(core.state.inodes).div_ceil(per) {
        core.ifile_modify(first + n, 0, &[])?;
    }
    enter(&mut core, found)?;
    let i = core.inode(IFILE)?;
    debug_assert!(core.pointer(&i, FileBlock::Data(first))?.frag.get() != 0);
    core.cache.keep_all(false);
    Ok(core)
}

/// Whether all blocks of an inode have their pointers' checksums.
pub(super) fn is_whole(core: &mut Core, i: &Inode, taken: &dyn Fn(u32, u32) -> bool) -> Result<bool> {
    let whole = walk_whole(core, i, taken);
    core.cache.drop_parts(i.ino, FileBlock::Map { level: 0, n: 0 }..=FileBlock::Map { level: u8::MAX, n: u64::MAX });
    whole
}

fn walk_whole(core: &mut Core, i: &Inode, taken: &dyn Fn(u32, u32) -> bool) -> Result<bool> {
    let mut todo: Vec<FileBlock> = vec![FileBlock::Xattr(0)];
    if i.d.has_blocks() {
        todo.extend((1..=NIADDR as u8).map(|level| FileBlock::Map { level, n: 0 }));
        todo.extend((0..NDADDR as u64).map(FileBlock::Data));
    }
    let mut frags = 0;
    while let Some(place) = todo.pop() {
        let p = core.pointer(i, place)?;
        if p.frag.get() == 0 {
            continue;
        }
        let n = match place {
            FileBlock::Data(lbn) => core.geom.lbn_frags(i.size(), lbn),
            FileBlock::Map { .. } => core.geom.block_frags(),
            FileBlock::Xattr(_) => core.geom.frags_for(i.d.xattr_len.get() as usize),
        };
        frags += u64::from(n);
        if n == 0 || taken(p.frag.get(), n) || frags > i.d.frags.get() {
            return Ok(false);
        }
        let Ok(bytes) = words(core.read_block((i, place), p, n, Kind::Log))? else { return Ok(false) };
        if let FileBlock::Map { level, n: at } = place {
            core.cache.insert(Name::File(i.ino, place), Arc::new(bytes.clone()));
            let there = |k: &u64| get_u32(&bytes, *k as usize * POINTER).is_some_and(|frag| frag != 0);
            todo.extend((0..core.geom.nindir()).filter(there).map(|k| core.geom.shape().child(level, at, k)));
        }
    }
    Ok(frags == i.d.frags.get())
}
