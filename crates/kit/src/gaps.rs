//! Where a log of segments has lost summaries, and which inode that lies there is newer than what the others tell.
//!
//! Partial segments follow each other without a gap, and each names the segment in which the log goes on. What lies between two
//! that do not follow each other was written by partial segments whose summaries are damaged. Called by the checkers of the
//! log-structured engines where they rebuild the inode map from the summaries.
//!
//! What users have written lies there, too, and may look like an inode: the volume's own image, stored in the volume, has many. A block that a
//! pointer leads to, with its checksum, is no block of inodes ([`search`]); who has written it has written the pointer in the same set.

use arbor_base::layout::{crc, get_u32};
use arbor_base::vfs::{Error, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Numbers of a mount and of a set.
pub type Of = (u64, u64);

/// A partial segment with a sound summary.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its segment.
    pub seg: u32,
    /// The unit of the segment at which it begins.
    pub at: u32,
    /// Its units.
    pub len: u32,
    /// Mount and set.
    pub of: Of,
    /// Place in the set, from 0.
    pub index: u32,
    /// Ordinal number of the filling of the segment.
    pub fill: u64,
    /// The segment in which the log goes on.
    pub next_seg: u32,
}

/// Units of a segment of which no summary tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The segment.
    pub seg: u32,
    /// Its first unit, and the one behind its last.
    pub units: (u32, u32),
    /// The last set before it.
    pub after: Of,
    /// The first set behind it.
    pub before: Of,
    /// That set has begun before: parts of it lie here.
    pub has_begun: bool,
    /// It lies between two partial segments of one filling, so all of it was written between them. Otherwise there may also be
    /// what an earlier filling has left.
    pub is_certain: bool,
}

impl Part {
    fn end(&self) -> u32 {
        self.at.saturating_add(self.len)
    }

    /// Whether `next` is what should come after this one.
    fn is_followed_by(&self, next: &Part) -> bool {
        let same = next.of == self.of && self.index.checked_add(1) == Some(next.index);
        let is_next = self.of.1.checked_add(1) == Some(next.of.1);
        same || next.index == 0 && (is_next || next.of.0 > self.of.0 && next.of.1 <= self.of.1)
    }
}

/// The gaps of a log with these partial segments, in a volume of `segs` segments of `units` units.
pub fn gaps(parts: &[Part], segs: u32, units: u32) -> Vec<Gap> {
    let mut fillings: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
    for part in parts.iter().filter(|part| part.seg < segs) {
        let filling = fillings.entry(part.seg).or_default();
        match filling.first().map(|first| first.fill) {
            Some(fill) if fill > part.fill => continue,
            Some(fill) if fill < part.fill => filling.clear(),
            _ => {}
        }
        filling.push(*part);
    }
    fillings.values_mut().for_each(|filling| filling.sort_by_key(|part| part.at));
    let mut before: BTreeMap<u32, Part> = BTreeMap::new();
    for last in fillings.values().filter_map(|filling| filling.last()) {
        let kept = before.entry(last.next_seg).or_insert(*last);
        *kept = if last.fill > kept.fill { *last } else { *kept };
    }
    let mut all = Vec::new();
    for (seg, filling) in &fillings {
        let Some(first) = filling.first() else { continue };
        let came = before.get(seg).filter(|last| last.fill < first.fill).map_or((0, 0), |last| last.of);
        let (mut end, mut after) = (0, came);
        for part in filling {
            if part.at > end {
                let units = (end, part.at);
                let (before, has_begun) = (part.of, part.index > 0);
                all.push(Gap { seg: *seg, units, after, before, has_begun, is_certain: true });
            }
            (end, after) = (part.end(), part.of);
        }
    }
    let (later, ends) = (Later::of(&fillings), fillings.values().filter_map(|filling| filling.last()));
    ends.for_each(|last| all.extend(behind(last, &fillings, &later, (segs, units))));
    all
}

/// The first set of the fillings from each on, by their ordinal numbers, and its first part there.
struct Later(Vec<(u64, (Of, u32))>);

impl Later {
    fn of(fillings: &BTreeMap<u32, Vec<Part>>) -> Later {
        let firsts = fillings.values().filter_map(|filling| filling.first());
        let mut all: Vec<_> = firsts.map(|first| (first.fill, (first.of, first.index))).collect();
        all.sort_unstable();
        let mut least = ((u64::MAX, u64::MAX), u32::MAX);
        for (_, first) in all.iter_mut().rev() {
            least = least.min(*first);
            *first = least;
        }
        Later(all)
    }

    fn than(&self, fill: u64) -> Option<(Of, u32)> {
        self.0.get(self.0.partition_point(|first| first.0 <= fill)).map(|first| first.1)
    }
}

/// The gaps behind the last partial segment of a filling.
fn behind(last: &Part, fillings: &BTreeMap<u32, Vec<Part>>, later: &Later, (segs, units): (u32, u32)) -> Vec<Gap> {
    let gap = |seg, units, (before, index): (Of, u32)| {
        let has_begun = index > 0;
        Gap { seg, units, after: last.of, before, has_begun, is_certain: false }
    };
    let tail = |before| (last.end() < units).then(|| gap(last.seg, (last.end(), units), before));
    let next = fillings.get(&last.next_seg).and_then(|filling| filling.first()).filter(|next| next.fill > last.fill);
    match next {
        Some(next) if next.at == 0 && last.is_followed_by(next) => Vec::new(),
        Some(next) => tail((next.of, next.index)).into_iter().collect(),
        None => {
            let Some(before) = later.than(last.fill) else { return Vec::new() };
            let whole =
                (last.next_seg < segs && last.next_seg != last.seg).then(|| gap(last.next_seg, (0, units), before));
            tail(before).into_iter().chain(whole).collect()
        }
    }
}

/// A state of an inode, as far as it tells its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age {
    /// Version of the inode: each time the number is given away, it is one more.
    pub version: u32,
    /// Last change of the inode, seconds and nanoseconds.
    pub changed: (i64, u32),
}

impl Gap {
    fn len(&self) -> u32 {
        self.units.1.saturating_sub(self.units.0)
    }

    /// Whether an inode that lies here is newer than a state of it of which the summary of a set tells; that state has no time if
    /// the inode was free then.
    fn is_newer(&self, here: Age, of: Of, version: u32, changed: Option<(i64, u32)>) -> bool {
        if here.version != version {
            return here.version > version;
        }
        let Some(changed) = changed else { return false };
        of < self.before && (self.is_certain && of <= self.after || here.changed > changed)
    }
}

/// A state of an inode, by the summary of a set.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// Mount and set.
    pub of: Of,
    /// Its version.
    pub version: u32,
    /// Address of its block; 0 if it was free.
    pub place: u32,
}

/// An inode where no summary tells of it.
#[derive(Clone, Copy, Debug)]
struct Stray {
    /// How old it is.
    age: Age,
    /// In which gap it lies.
    gap: Gap,
    /// Address of its block.
    place: u32,
}

/// What is known of an inode.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Mount and set that tell of it; of one that is lost, of its newest state.
    pub of: Of,
    /// Its version.
    pub version: u32,
    /// Address of its block; 0 if it is free or lost.
    pub place: u32,
    /// When the inode that was found was changed; `None` if it is free or lost.
    pub changed: Option<(i64, u32)>,
    /// It is free.
    pub is_free: bool,
}

/// The newest inode of each number of which no summary tells.
#[derive(Debug, Default)]
pub struct Strays {
    /// Of gaps that are certain.
    certain: FxHashMap<u32, Stray>,
    /// Of others.
    others: FxHashMap<u32, Stray>,
}

impl Strays {
    /// Notes an inode.
    fn see(&mut self, ino: u32, stray: Stray) {
        let all = if stray.gap.is_certain { &mut self.certain } else { &mut self.others };
        let kept = all.entry(ino).or_insert(stray);
        // Where an earlier filling has left something, only the time tells.
        let before = |s: &Stray| if s.gap.is_certain { s.gap.before } else { (0, 0) };
        let order = |s: &Stray| (s.age.version, before(s), s.age.changed, s.place);
        *kept = if order(&stray) > order(kept) { stray } else { *kept };
    }

    /// The greatest number that an inode can have: they are given away one after the other, and summaries have `told` of some.
    pub fn last_number(&self, told: impl IntoIterator<Item = u32>) -> u32 {
        told.into_iter().max().unwrap_or(0).saturating_add(self.inos().len() as u32)
    }

    /// Numbers of all of them.
    pub fn inos(&self) -> BTreeSet<u32> {
        self.certain.keys().chain(self.others.keys()).copied().collect()
    }

    /// What summaries tell of an inode, or the stray one if that is newer.
    pub fn or_newer(&self, ino: u32, mut told: Option<Told>) -> Option<Told> {
        for stray in [self.certain.get(&ino), self.others.get(&ino)].into_iter().flatten() {
            if told.is_none_or(|told| told.is_before(stray)) {
                told = Some(Told::stray(stray));
            }
        }
        told
    }
}

/// Blocks in gaps that look like blocks of inodes.
#[derive(Debug, Default)]
struct Blocks {
    /// Address and checksum of what may be a block of a file, and the addresses of the units that it would take.
    known: FxHashMap<(u32, u32), Vec<u32>>,
    claimed: FxHashSet<u32>,
}

impl Blocks {
    /// Most that are noted: what damage of some summaries leaves is far less.
    const MOST: usize = 1 << 20;

    /// Notes the unit at `place`, number `n` of a piece of units of `unit` bytes, which may be part of any block of up to `most` units.
    /// Returns whether there was room for it.
    fn see(&mut self, place: u32, (bytes, unit): (&[u8], usize), n: usize, most: usize) -> bool {
        if self.known.len() >= Self::MOST {
            return false;
        }
        for first in n.saturating_sub(most.saturating_sub(1))..=n {
            for len in n + 1 - first..=most {
                let Some(block) = bytes.get(first * unit..(first + len) * unit) else { break };
                let address = place.saturating_sub((n - first) as u32);
                self.known.entry((address, crc(block))).or_default().push(place);
            }
        }
        true
    }

    /// Looks for pointers to them in what a log has: an address, and the checksum of what lies there.
    fn look_in(&mut self, bytes: &[u8]) {
        if self.known.is_empty() {
            return;
        }
        for at in (0..bytes.len().saturating_sub(7)).step_by(4) {
            let pointer = get_u32(bytes, at).zip(get_u32(bytes, at + 4));
            if let Some(places) = pointer.and_then(|pointer| self.known.get(&pointer)) {
                self.claimed.extend(places);
            }
        }
    }

    /// Whether a pointer leads to the unit at `place`.
    fn is_claimed(&self, place: u32) -> bool {
        self.claimed.contains(&place)
    }
}

/// A log in which inodes are searched for.
pub trait Log {
    /// Bytes of a unit.
    fn unit(&self) -> usize;

    /// Most units of a block.
    fn most_units(&self) -> usize;

    /// The address of the first unit of a segment.
    fn start(&self, seg: u32) -> u32;

    /// Units from an address on; what cannot be read is zeros.
    fn read(&mut self, first: u32, units: u32) -> Vec<u8>;

    /// The sound inodes in a unit, with their numbers.
    fn inodes(&self, unit: &[u8]) -> Vec<(u32, Age)>;
}

/// The newest inodes that lie in gaps, of those that are wanted. `parts` are all partial segments.
pub fn search(log: &mut impl Log, gaps: &[Gap], parts: &[Part], is_wanted: &dyn Fn(u32) -> bool) -> Strays {
    let (mut found, mut blocks, mut strays) = (Vec::new(), Blocks::default(), Strays::default());
    for gap in gaps {
        let first = log.start(gap.seg) + gap.units.0;
        let (bytes, unit) = (log.read(first, gap.len()), log.unit());
        for (n, one) in bytes.chunks_exact(unit).enumerate() {
            let (place, inodes) = (first + n as u32, log.inodes(one));
            if !inodes.is_empty() && blocks.see(place, (&bytes, unit), n, log.most_units()) {
                found.extend(inodes.into_iter().map(|(ino, age)| (ino, Stray { age, gap: *gap, place })));
            }
        }
    }
    if found.is_empty() {
        return strays;
    }
    let of_gaps = gaps.iter().map(|gap| (gap.seg, gap.units.0, gap.len()));
    let ended: BTreeSet<Of> = gaps.iter().map(|gap| gap.before).collect();
    let of_sets = parts.iter().filter(|part| ended.contains(&part.of)).map(|part| (part.seg, part.at, part.len));
    for (seg, at, len) in of_gaps.chain(of_sets) {
        let first = log.start(seg) + at;
        blocks.look_in(&log.read(first, len));
    }
    found.retain(|(ino, stray)| is_wanted(*ino) && !blocks.is_claimed(stray.place));
    found.into_iter().for_each(|(ino, stray)| strays.see(ino, stray));
    strays
}

/// Places of a log that cannot be read.
#[derive(Debug)]
pub struct Unread<P>(BTreeSet<P>);

impl<P> Default for Unread<P> {
    fn default() -> Unread<P> {
        Unread(BTreeSet::new())
    }
}

impl<P: Ord> Unread<P> {
    /// Most of them: a device of which more cannot be read does not work at present.
    const MOST: usize = 64;

    /// Notes one.
    pub fn note(&mut self, place: P) {
        self.0.insert(place);
    }

    /// Fails unless they are few that cannot be read even now: they are damaged then, and count as such.
    pub fn check(&self, cannot_be_read: &mut dyn FnMut(&P) -> bool) -> Result<()> {
        let n = self.0.len();
        let why = if n > Self::MOST {
            format!("{n} places of the log cannot be read, too many to be damaged: repair a copy of what can be read")
        } else if !self.0.iter().all(cannot_be_read) {
            "what could not be read of the log can be read now: try again".into()
        } else {
            return Ok(());
        };
        Err(Error::Io(io::Error::other(why)))
    }
}

impl Told {
    /// What states tell, the newest first; `read` gives the inode at an address, if it is sound.
    pub fn by(
        states: impl IntoIterator<Item = State>,
        mut read: impl FnMut(u32) -> Result<Option<Age>>,
    ) -> Result<Option<Told>> {
        let mut states = states.into_iter().peekable();
        let Some(newest) = states.peek().copied() else { return Ok(None) };
        let (of, version, is_free) = (newest.of, newest.version, newest.place == 0);
        // An inode whose newest state is free is free; older states count only if of the same version.
        for s in states.take_while(|s| s.place != 0 && s.version == version) {
            if let Some(age) = read(s.place)?.filter(|age| age.version == version) {
                return Ok(Some(Told { of: s.of, version, place: s.place, changed: Some(age.changed), is_free }));
            }
        }
        Ok(Some(Told { of, version, place: 0, changed: None, is_free }))
    }

    fn stray(stray: &Stray) -> Told {
        let (version, place, changed) = (stray.age.version, stray.place, Some(stray.age.changed));
        // What may be of an earlier filling has no blocks that others say are theirs.
        let of = if stray.gap.is_certain { stray.gap.before } else { (0, 0) };
        Told { of, version, place, changed, is_free: false }
    }

    fn is_before(&self, stray: &Stray) -> bool {
        let is_lost = !self.is_free && self.changed.is_none();
        is_lost && stray.age.version >= self.version
            || stray.gap.is_newer(stray.age, self.of, self.version, self.changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(seg: u32, at: u32, set: u64, fill: u64) -> Part {
        Part { seg, at, len: 10, of: (1, set), index: 0, fill, next_seg: seg + 1 }
    }

    type Found = (u32, (u32, u32), u64, u64, bool);

    fn found(parts: &[Part]) -> Vec<Found> {
        let all = gaps(parts, 9, 30);
        all.iter().map(|g| (g.seg, g.units, g.after.1, g.before.1, g.is_certain)).collect()
    }

    #[test]
    fn a_log_without_damage_has_no_gap() {
        assert_eq!(found(&[]), []);
        let whole = [part(0, 0, 1, 1), part(0, 10, 2, 1), part(1, 0, 3, 2), part(1, 10, 4, 2), part(2, 0, 5, 3)];
        assert_eq!(found(&whole), []);
        // What an earlier filling has left does not count.
        assert_eq!(found(&[&whole[..], &[part(1, 27, 9, 1)]].concat()), []);
    }

    #[test]
    fn what_no_summary_tells_of_is_a_gap() {
        let all = [part(0, 0, 1, 1), part(0, 10, 2, 1), part(0, 20, 3, 1), part(1, 0, 4, 2), part(1, 10, 5, 2)];
        let without = |n: usize| found(&[&all[..n], &all[n + 1..]].concat());
        assert_eq!(without(0), [(0, (0, 10), 0, 2, true)]);
        assert_eq!(without(1), [(0, (10, 20), 1, 3, true)]);
        assert_eq!(without(2), [(0, (20, 30), 2, 4, false)]);
        assert_eq!(without(3), [(1, (0, 10), 3, 5, true)]);
        assert_eq!(without(4), []);
        // A partial segment that fills a segment alone.
        let all = [part(0, 0, 1, 1), part(0, 10, 2, 1), part(0, 20, 3, 1), part(2, 0, 5, 3)];
        assert_eq!(found(&all), [(1, (0, 30), 3, 5, false)]);
    }

    #[test]
    fn an_inode_of_a_gap_is_newer_than_what_was_before() {
        let gap = Gap { seg: 0, units: (0, 1), after: (1, 5), before: (1, 8), has_begun: false, is_certain: true };
        let age = |version, secs| Age { version, changed: (secs, 0) };
        assert!(gap.is_newer(age(2, 10), (1, 4), 2, Some((20, 0))), "the time does not count");
        assert!(!gap.is_newer(age(2, 10), (1, 8), 2, Some((5, 0))));
        assert!(
            gap.is_newer(age(2, 10), (1, 6), 2, Some((9, 0))) && !gap.is_newer(age(2, 10), (1, 6), 2, Some((10, 0)))
        );
        assert!(!gap.is_newer(age(2, 10), (1, 1), 2, None), "it was removed");
        assert!(gap.is_newer(age(3, 10), (1, 1), 2, None) && !gap.is_newer(age(2, 10), (1, 1), 3, Some((0, 0))));
        let unsure = Gap { is_certain: false, ..gap };
        assert!(!unsure.is_newer(age(2, 10), (1, 4), 2, Some((20, 0))));
        assert!(gap.is_newer(age(2, 10), (1, 5), 2, Some((20, 0))), "what the set before it tells is older");
    }

    #[test]
    fn what_an_earlier_filling_has_left_hides_nothing() {
        let age = |secs| Age { version: 2, changed: (secs, 0) };
        let certain =
            Gap { seg: 0, units: (10, 20), after: (1, 5), before: (1, 8), has_begun: false, is_certain: true };
        let unsure =
            Gap { seg: 3, units: (50, 64), after: (1, 18), before: (1, 20), has_begun: false, is_certain: false };
        let mut strays = Strays::default();
        strays.see(7, Stray { age: age(200), gap: certain, place: 11 });
        strays.see(7, Stray { age: age(50), gap: unsure, place: 222 });
        let found = |changed| Told { of: (1, 4), version: 2, place: 5, changed, is_free: false };
        for told in [Some(found(Some((100, 0)))), Some(found(None)), None] {
            assert_eq!(strays.or_newer(7, told).map(|t| t.place), Some(11), "{told:?}");
        }
        strays.see(7, Stray { age: age(300), gap: unsure, place: 33 });
        assert_eq!(strays.or_newer(7, None).map(|t| t.place), Some(33));
    }

    #[test]
    fn summaries_may_have_any_number_and_be_many() {
        let odd = [Part { index: u32::MAX, ..part(0, 0, u64::MAX, 1) }, part(1, 0, 1, 2)];
        assert_eq!(found(&odd).len(), 1);
        let own = |seg: u32| Part { next_seg: seg, len: 1, ..part(seg, 0, 1 + u64::from(seg), 1 + u64::from(seg)) };
        let many = 300_000;
        assert_eq!(gaps(&(0..many).map(own).collect::<Vec<_>>(), many, 64).len(), many as usize - 1);
    }

    #[test]
    fn a_block_with_a_pointer_to_it_is_none_of_inodes() {
        let (unit, bytes) = (16, (0..128).collect::<Vec<u8>>());
        let pointer = |at: u32, units: std::ops::Range<usize>| {
            [at.to_le_bytes(), crc(&bytes[units.start * unit..units.end * unit]).to_le_bytes()].concat()
        };
        let claimed = |by: &[u8]| {
            let mut blocks = Blocks::default();
            assert!((0..8).all(|n| blocks.see(100 + n as u32, (&bytes, unit), n, 4)));
            blocks.look_in(by);
            (100..108u32).filter(|place| blocks.is_claimed(*place)).collect::<Vec<u32>>()
        };
        assert_eq!(claimed(&[&[7; 12][..], &pointer(102, 2..5)].concat()), [102, 103, 104]);
        assert_eq!(claimed(&pointer(107, 7..8)), [107]);
        assert!(claimed(&pointer(103, 2..5)).is_empty(), "another place");
        assert!(claimed(&pointer(102, 2..7)).is_empty(), "no block is as long");
    }

    #[test]
    fn what_cannot_be_read_is_damaged_if_it_is_little_and_stays_so() {
        let said = |places: usize, still: usize| {
            let mut unread = Unread::default();
            (0..places).for_each(|n| unread.note(n));
            unread.check(&mut |n| *n < still).map_err(|e| e.to_string())
        };
        assert_eq!([said(0, 0), said(3, 3), said(64, 64)], [Ok(()), Ok(()), Ok(())]);
        assert!(said(3, 2).unwrap_err().contains("can be read now: try again"));
        assert!(said(65, 65).unwrap_err().contains("65 places of the log cannot be read"));
    }

    #[test]
    fn an_image_full_of_inodes_does_not_fill_the_memory() {
        let (mut blocks, many) = (Blocks::default(), Blocks::MOST as u32);
        assert!((0..many).all(|place| blocks.see(place, (&[0; 16], 16), 0, 1)));
        assert!(!blocks.see(many, (&[0; 16], 16), 0, 1));
    }
}
