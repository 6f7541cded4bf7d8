//! The numbered invariants, executed at the end of transactions (`kit::invariants`): a function each.
//!
//! Those of which core sees a part only, and where the rest is seen:
//!
//! | number | what is left, and to whom |
//! |---|---|
//! | YFS-A1 | fragments of data and of buffers that are clean: the checker |
//! | YFS-C1 | is looked at when buffers go in place, in the middle of a call |
//! | YFS-C2 | whether data are durable: the crash explorer |
//! | YFS-C3 | that replay stops at a gap: `tests/replay.rs`, the crash explorer |
//! | YFS-C4 | whether what the tail has passed is in place: the crash explorer |
//! | YFS-D1 | order between blocks: the checker |

use crate::body;
use crate::delayed::DataWrites;
use crate::format::*;
use crate::log::{Item, Witness};
use crate::volume::Core;
use arbor_base::cache::Name;
use arbor_base::vfs::{Ino, mode};
use arbor_kit::buddy::bitmap;
use arbor_kit::invariants::{Holds, Invariants, ensure, execute};
use zerocopy::FromBytes;

/// Bytes of a bitmap, or AGs, that are looked at as fast as another item.
const AT_ONCE: usize = 16;
/// Items that a changed buffer counts for.
const CHANGED: usize = 8;

impl Invariants for Core {
    fn extent(&self) -> usize {
        let bytes: usize = self.space.maps().map(|(_, map)| map.bits.len()).sum();
        let buffers = self.dirty.iter().len() + CHANGED * self.tx.changed().len();
        buffers + self.marked.len() + (bytes + self.geom.ag_count as usize) / AT_ONCE
    }

    fn check_invariants(&self) -> Holds {
        self.check_a1()?;
        self.check_a2()?;
        self.check_b1()?;
        self.check_c2()?;
        self.check_c3()?;
        self.check_c4()?;
        self.check_c5()?;
        self.check_d1()?;
        self.check_i1()
    }
}

impl Core {
    /// Checks the invariants, if it is their turn. After a failure half a call may be in core, and damage is no mistake
    /// of the code: then they are skipped.
    pub fn look(&mut self) {
        let mut turns = std::mem::take(&mut self.turns);
        if self.is_whole() && turns.is_due(|| self.extent()) {
            execute(self);
        }
        self.turns = turns;
    }

    fn is_whole(&self) -> bool {
        !self.health.has_failed() && !self.health.has_met_damage()
    }

    /// Checks buffers that are about to be written in place (YFS-C1).
    pub fn look_at_going(&self, addrs: &[u64]) {
        let is_early = |addr: &&u64| self.dirty.last(**addr).is_none_or(|last| last > self.log.durable());
        let early = || addrs.iter().find(is_early);
        self.heed("YFS-C1", || early().map(|addr| format!("{addr} goes in place, its record is not durable")));
    }

    /// Checks extents that are about to be freed and discarded (YFS-C2).
    pub fn look_at_freed(&self, extents: &[Extent]) {
        let met = || !self.bears_no_witness_to(extents);
        self.heed("YFS-C2", || met().then(|| "data with a witness are about to be free".to_string()));
    }

    /// Checks data that are about to be written, in place or elsewhere (YFS-C2).
    pub fn look_at_written(&self, out: &DataWrites) {
        let over = |w: &&Witness| out.pieces.iter().any(|(at, _, bytes)| w.meets(*at, bytes.len() as u64));
        let met = || self.log.witnesses().iter().find(over);
        self.heed("YFS-C2", || met().map(|w| format!("{w:?} is about to be written over")));
    }

    /// Panics if something is broken; it is looked for only where invariants are executed.
    fn heed(&self, number: &str, broken: impl FnOnce() -> Option<String>) {
        if arbor_base::invariants::are_executed()
            && self.is_whole()
            && let Some(what) = broken()
        {
            panic!("{number} does not hold: {what}");
        }
    }

    /// Whether a run is used by the bitmap, or that is not in core.
    fn is_used(&self, frag: Frag, frags: u32) -> bool {
        let ag = self.geom.ag_of(frag);
        let at = frag.0.saturating_sub(self.geom.ag_start(ag).0) as u32;
        self.space.peek_map(ag).is_none_or(|map| bitmap::all_used(&map.bits, at, frags))
    }

    /// YFS-A1: dirty buffers lie in fragments that are used.
    fn check_a1(&self) -> Holds {
        for (addr, _, _) in self.dirty.iter() {
            let len = self.cache.peek(Name::Block(addr)).map_or(0, |b| b.len() as u64);
            let (first, frags) = (self.geom.frag_of(Daddr(addr)), len.div_ceil(self.geom.frag_size()) as u32);
            let used = self.is_used(first, frags);
            ensure(used, "YFS-A1", || format!("buffer {addr} has {frags} fragments, some of them free"))?;
        }
        Ok(())
    }

    /// YFS-A2: free counts are those of the bitmaps, and of all AGs.
    fn check_a2(&self) -> Holds {
        for (ag, map) in self.space.maps() {
            let (free, known) = (bitmap::count_free(&map.bits, self.geom.ag_len(ag)), self.space[ag].free);
            ensure(free == known, "YFS-A2", || format!("AG {ag} has {free} zero bits, and says {known}"))?;
            let block = self.cache.peek(Name::Block(self.geom.group_block(ag).0)).and_then(|b| b.get(HEADER..));
            let body = block.and_then(|b| GroupBody::read_from_prefix(b).ok());
            ensure(body.is_none_or(|(b, _)| b.free.get() == free), "YFS-A2", || {
                format!("AG {ag} has {free} zero bits, its block says {body:?}")
            })?;
        }
        let (counted, known) = self.space.sums();
        ensure(counted == known, "YFS-A2", || format!("the AGs hold {counted:?}, core says {known:?}"))
    }

    /// YFS-B1: buffers with changes, and their order.
    fn check_b1(&self) -> Holds {
        ensure(self.dirty.is_in_order(), "YFS-B1", || "dirty buffers are not in the order of their records")?;
        let all = self.dirty.iter().map(|d| d.0).chain(self.tx.changed().map(|c| c.0));
        for addr in all {
            let name = Name::Block(addr);
            let dirty = self.cache.is_dirty(name) || !self.cache.contains(name);
            ensure(dirty, "YFS-B1", || format!("buffer {addr} has changes, and is clean"))?;
        }
        let last = self.log.rec();
        for (addr, first, to) in self.dirty.iter() {
            let ordered = first <= to && to <= last;
            ensure(ordered, "YFS-B1", || format!("buffer {addr} has changes in records {first} to {to} of {last}"))?;
        }
        Ok(())
    }

    /// YFS-C2: what the last record bears witness to is in use.
    fn check_c2(&self) -> Holds {
        for w in self.log.witnesses() {
            let frag = Frag(w.offset / self.geom.frag_size());
            ensure(self.is_used(frag, 1), "YFS-C2", || format!("{w:?} is free"))?;
        }
        Ok(())
    }

    /// YFS-C3: records follow one another.
    fn check_c3(&self) -> Holds {
        let (mut last, mut placed) = (None, None);
        for (rec, lsn, prev) in self.log.on_disk() {
            let follows = last.is_none_or(|l| l < rec) && placed.is_none_or(|p| p == prev);
            ensure(follows, "YFS-C3", || {
                format!("record {rec} at {lsn:?} names {prev:?} as its predecessor, which is {placed:?}")
            })?;
            (last, placed) = (Some(rec), Some(lsn));
        }
        let ends = placed.is_none_or(|p| p == self.log.last_placed());
        ensure(ends, "YFS-C3", || format!("the last record is at {placed:?}, not {:?}", self.log.last_placed()))?;
        for rec in self.log.waiting() {
            ensure(last.is_none_or(|l| l < rec), "YFS-C3", || format!("record {rec} waits after {last:?}"))?;
            last = Some(rec);
        }
        Ok(())
    }

    /// YFS-C4: records with changes that are not in place, or extents that are not free yet, are after the tail.
    fn check_c4(&self) -> Holds {
        let tail = self.log.on_disk().map(|r| r.0).chain(self.log.waiting()).next().unwrap_or(0);
        let needed = [self.dirty.first(), self.marked.front().map(|m| m.0)];
        let first = needed.into_iter().flatten().min();
        ensure(first.is_none_or(|f| f >= tail), "YFS-C4", || format!("record {first:?} is needed, the tail is {tail}"))
    }

    /// YFS-C5: what is on its way to be free is used.
    fn check_c5(&self) -> Holds {
        for e in self.tx.going().chain(self.marked.iter().map(|m| m.1)) {
            ensure(self.is_used(e.start, e.len), "YFS-C5", || format!("{e:?} is marked free, and is free"))?;
        }
        for addr in self.tx.deleted().chain(self.log.deleted()) {
            let used = self.is_used(self.geom.frag_of(Daddr(addr)), 1);
            ensure(used, "YFS-C5", || format!("buffer {addr} is deleted by a record to come, and is free"))?;
        }
        Ok(())
    }

    /// Calls `f` with each inode that the transaction which runs has changed.
    fn changed_inodes(&self, f: &mut dyn FnMut(Ino, &Dinode, &[u8]) -> Holds) -> Holds {
        let size = self.geom.inode_size();
        let of_inodes = |(_, item): &(u64, &Item)| item.seal == Some(Seal::Inodes);
        for (addr, item) in self.tx.changed().filter(of_inodes) {
            let Some(chunk) = self.cache.peek(Name::Block(addr)) else { continue };
            for (lo, hi) in &item.ranges {
                for n in lo / size..hi.div_ceil(size) {
                    let bytes = chunk.get(n * size..(n + 1) * size).unwrap_or(&[]);
                    let Ok((d, area)) = Dinode::ref_from_prefix(bytes) else { continue };
                    let ino = Ino(d.ino.get());
                    if d.format().is_some_and(|f| f != Format::Free) && self.damaged.get(ino).is_none() {
                        f(ino, d, area)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// YFS-D1: keys ascend in bodies that have changed.
    fn check_d1(&self) -> Holds {
        let sound = |body: &[u8], of: u64| {
            let damage = body::parse(body).1;
            ensure(damage.is_none(), "YFS-D1", || format!("the directory body at {of}: {}", damage.unwrap_or_default()))
        };
        for (addr, _) in self.tx.changed().filter(|(_, item)| item.seal == Some(Seal::Block)) {
            let Some(bytes) = self.cache.peek(Name::Block(addr)) else { continue };
            let is_dir = BlockHeader::ref_from_prefix(bytes).is_ok_and(|h| h.0.magic.get() == BlockType::Dir as u32);
            if is_dir {
                sound(bytes.get(HEADER..).unwrap_or(&[]), addr)?;
            }
        }
        self.changed_inodes(&mut |ino, d, area| {
            let is_inline = d.mode.get() & mode::IFMT == mode::IFDIR && d.format() == Some(Format::Inline);
            let own = area.len().saturating_sub(d.xattr_inline.get().into());
            if is_inline { sound(area.get(..own).unwrap_or(&[]), ino.0) } else { Ok(()) }
        })
    }

    /// YFS-I1: changed inodes without names are orphans, and the first of these are where recovery looks.
    fn check_i1(&self) -> Holds {
        self.changed_inodes(&mut |ino, d, _| {
            let known = d.nlink.get() > 0 || self.lives.is_orphan(ino);
            ensure(known, "YFS-I1", || format!("inode {ino} has no name, and is no orphan"))
        })?;
        for ino in self.lives.first_orphans() {
            let place = self.geom.inode_at(ino).map(|(chunk, _)| self.geom.ag_of(self.geom.frag_of(chunk)));
            let head = place.and_then(|ag| self.space.get(ag)).map(|a| a.recovery);
            ensure(head == Some(ino.0), "YFS-I1", || format!("orphan {ino} is first, its list begins with {head:?}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::Volume;
    use crate::{mkfs, mount};
    use arbor_base::device::{Kind, MemDevice};
    use arbor_base::vfs::{Cx, Devices, FormatOptions, ManualClock, MountOptions, Options, Time};
    use arbor_kit::served::Served;
    use std::sync::Arc;

    /// A volume with a new file, of which nothing is on disk.
    fn changed() -> (Arc<Volume>, Ino) {
        let device = MemDevice::new(8 << 20);
        let options = Options::parse("block=1K,frag=512");
        let format = FormatOptions { uuid: [7; 16], options, ..FormatOptions::default() };
        mkfs::format(Devices::single(device.clone()), &format).expect("format");
        let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
        let volume = mount::mount(Devices::single(device), &MountOptions::default(), clock).expect("mount");
        let fs = Served::serve(volume.clone());
        let ino = fs.mknod(&Cx::default(), fs.root(), b"x", mode::IFREG | 0o600, 0).expect("mknod").ino;
        fs.write(ino, 0, &[7; 9000]).expect("write");
        fs.symlink(&Cx::default(), fs.root(), b"long", &[b'q'; 900]).expect("symlink");
        (volume, ino)
    }

    /// Changes bytes of an inode, past all rules.
    fn scribble(core: &mut Core, ino: Ino, offset: usize, bytes: &[u8]) {
        let (chunk, at) = core.geom.inode_at(ino).expect("a place");
        let change = |b: &mut Vec<u8>| b[at + offset..][..bytes.len()].copy_from_slice(bytes);
        core.modify(Name::Block(chunk.0), change).expect("a chunk");
    }

    /// The last fragment of the first AG, which is free.
    fn free(core: &Core) -> Extent {
        Extent { start: Frag(core.geom.ag_start(1).0 - 1), len: 1 }
    }

    type Break<'a> = &'a dyn Fn(&mut Core, Ino);

    /// Each number with what breaks it.
    #[test]
    fn each_number_can_be_broken() {
        let root = |core: &Core| Ino(core.sb.root.get());
        let all: [(&str, Break<'_>); 9] = [
            ("YFS-A1", &|core, _| {
                let at = core.geom.daddr(free(core).start);
                core.cache.insert(Name::Block(at.0), Arc::new(vec![0; 512]));
                core.dirty.changed(at.0, (Seal::Block, Kind::Other), 1, (0, 512));
            }),
            ("YFS-A2", &|core, _| core.space.set_free(0, 5)),
            ("YFS-B1", &|core, _| {
                let addr = core.tx.changed().next().expect("a buffer").0;
                core.cache.set_clean(Name::Block(addr));
            }),
            ("YFS-B1", &|core, _| {
                let addr = core.tx.changed().next().expect("a buffer").0;
                core.dirty.changed(addr, (Seal::Block, Kind::Other), 9, (0, 512));
            }),
            ("YFS-C4", &|core, _| core.marked.push(0, Extent { start: Frag(0), len: 1 })),
            ("YFS-C5", &|core, _| core.tx.mark(free(core))),
            ("YFS-C5", &|core, _| core.marked.push(1, free(core))),
            ("YFS-D1", &|core, _| scribble(core, root(core), DINODE + 4, &[9, 9])),
            ("YFS-I1", &|core, ino| scribble(core, ino, std::mem::offset_of!(Dinode, nlink), &[0; 4])),
        ];
        for (n, (number, damage)) in all.iter().enumerate() {
            let (volume, ino) = changed();
            let core = &mut *volume.core.lock();
            assert_eq!(core.check_invariants(), Ok(()));
            damage(core, ino);
            assert_eq!(core.check_invariants().map_err(|b| b.number), Err(*number), "{n}");
        }
    }
}
