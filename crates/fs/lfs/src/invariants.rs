//! The numbered invariants, executed after calls (`kit::invariants`): a function each. What is not executed, and why:
//!
//! | number | why it cannot be seen in core |
//! |---|---|
//! | LFS-C2 | how much of a group is on disk nobody knows before a crash; `tests/crash.rs`, the crash explorer |
//! | LFS-C4 | nor what is durable; the same |
//! | LFS-D1 | where an entry was before a call is forgotten; the tests of walks in `torture::conformance` |
//!
//! Of LFS-U1 core knows the sums, and that no more dies than lives; the checker counts what leads into a segment. Of
//! LFS-F2 it knows files without indirect blocks.

use crate::format::*;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::vfs::Ino;
use arbor_kit::blockmap::Parent;
use arbor_kit::invariants::{Holds, Invariants, ensure};
use zerocopy::FromBytes;

impl Invariants for Core {
    fn extent(&self) -> usize {
        self.cache.dirty_names().len() + self.changed.len() + self.segs.extent()
    }

    fn check_invariants(&self) -> Holds {
        self.check_b1()?;
        self.check_b2()?;
        self.check_c1()?;
        self.check_c3()?;
        self.check_f1()?;
        self.check_f2()?;
        self.check_u1()
    }
}

impl Core {
    /// The inode of a changed file: it is in core.
    fn peek_inode(&self, ino: u64) -> Option<Dinode> {
        self.cache.peek(Name::Inode(Ino(ino))).and_then(|b| Dinode::read_from_bytes(&b[..]).ok())
    }

    /// LFS-B1: changed files are in one order, with their inodes, and nothing else is dirty.
    fn check_b1(&self) -> Holds {
        ensure(self.order.len() == self.changed.len(), "LFS-B1", || {
            format!("{} files are changed, {} in order", self.changed.len(), self.order.len())
        })?;
        for (ino, c) in &self.changed {
            let listed = self.order.get(&c.turn) == Some(ino) && self.cache.is_dirty(Name::Inode(Ino(*ino)));
            ensure(listed, "LFS-B1", || format!("inode {ino}, {c:?}, has no turn, or is clean"))?;
        }
        for name in self.cache.dirty_names() {
            let (Name::Inode(ino) | Name::File(ino, _)) = name else { continue };
            ensure(self.changed.contains_key(&ino.0), "LFS-B1", || format!("{name:?} is dirty, its file unchanged"))?;
        }
        Ok(())
    }

    /// LFS-B2: the indirect blocks above a dirty block are dirty.
    fn check_b2(&self) -> Holds {
        for name in self.cache.dirty_names() {
            let Name::File(ino, place) = name else { continue };
            // Blocks of the ifile that the cleaner has brought in get dirty parents when a checkpoint writes them.
            let Some(Parent::Map { level, n, .. }) = self.geom.shape().parent(place).filter(|_| ino != IFILE) else {
                continue;
            };
            let above = Name::File(ino, FileBlock::Map { level, n });
            ensure(self.cache.is_dirty(above), "LFS-B2", || format!("{name:?} is dirty, {above:?} is not"))?;
        }
        Ok(())
    }

    /// LFS-C1: the heads of the log are in segments of their own, which nobody else may fill, and end in them.
    fn check_c1(&self) -> Holds {
        let mut busy = self.log.busy();
        for seg in &busy {
            ensure(!self.segs.clean.contains(*seg), "LFS-C1", || format!("segment {seg} is filled, and may be"))?;
        }
        busy.sort_unstable();
        ensure(busy.windows(2).all(|w| w[0] != w[1]), "LFS-C1", || format!("heads share segments: {busy:?}"))?;
        for head in self.log.heads.iter().filter(|h| h.is_open()) {
            let inside = head.offset <= self.geom.seg_frags();
            ensure(inside, "LFS-C1", || format!("the log ends after its segment: {head:?}"))?;
        }
        Ok(())
    }

    /// LFS-C3: segments that may be filled are clean, by two checkpoints.
    fn check_c3(&self) -> Holds {
        for (seg, u) in self.segs.said() {
            let may = self.segs.clean.contains(seg);
            ensure(!may || !u.dirty && u.live == 0, "LFS-C3", || format!("segment {seg}, {u:?}, may be filled"))?;
        }
        let early = self.segs.pending_clean.iter().find(|seg| self.segs.clean.contains(**seg));
        ensure(early.is_none(), "LFS-C3", || format!("segment {early:?} may be filled, one checkpoint calls it clean"))
    }

    /// LFS-F1: dirty pages are as long as their file has them.
    fn check_f1(&self) -> Holds {
        for name in self.cache.dirty_names() {
            let Name::File(ino, FileBlock::Data(lbn)) = name else { continue };
            let Some(d) = self.peek_inode(ino.0) else { continue };
            let len = self.cache.peek(name).map_or(0, |b| b.len());
            let should = self.geom.bytes_of(self.geom.lbn_frags(d.size.get(), lbn));
            ensure(len == should, "LFS-F1", || {
                format!("{name:?} has {len} bytes, should have {should} in a file of {}", d.size)
            })?;
        }
        Ok(())
    }

    /// LFS-F2: changed files without indirect blocks count the fragments of their pointers.
    fn check_f2(&self) -> Holds {
        for (ino, d) in self.changed.keys().filter_map(|ino| Some((*ino, self.peek_inode(*ino)?))) {
            let is_small = d.ib.iter().all(|p| p.frag.get() == 0);
            if ino == IFILE.0 || !is_small || d.is_fast_link() {
                continue;
            }
            let direct = (0..).zip(&d.db).filter(|(_, p)| p.frag.get() != 0);
            let frags: u32 = direct.map(|(lbn, _)| self.geom.lbn_frags(d.size.get(), lbn)).sum();
            let all = frags + self.geom.frags_for(d.xattr_len.get() as usize);
            ensure(d.frags.get() == u64::from(all), "LFS-F2", || {
                format!("inode {ino} counts {} fragments, and has {all}", d.frags)
            })?;
        }
        Ok(())
    }

    /// LFS-U1: the sums of the usage of segments, and that what has died lived there.
    fn check_u1(&self) -> Holds {
        for (seg, died) in &self.dead_bytes {
            let u = self.segs.get(*seg);
            ensure(*died <= u.live, "LFS-U1", || format!("{died} bytes of segment {seg} have died, of {u:?}"))?;
        }
        self.segs.check_sums("LFS-U1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mkfs, mount};
    use arbor_base::device::MemDevice;
    use arbor_base::vfs::{Devices, FormatOptions, ManualClock, MountOptions, Options, Time, mode};
    use arbor_kit::calls::State as _;
    use arbor_kit::chunknames::ChunkNames as _;
    use arbor_kit::inodes::InodeStore as _;
    use std::sync::Arc;

    /// A volume with a file of one indirect block, which was written, and is changed again.
    fn changed() -> Arc<crate::volume::Volume> {
        let device = MemDevice::new(16 << 20);
        let options = Options::parse("segment=128K,block=4K");
        let format = FormatOptions { uuid: [7; 16], options, ..FormatOptions::default() };
        mkfs::format(Devices::single(device.clone()), &format).expect("format");
        let clock = Arc::new(ManualClock::new(Time { secs: 1_000_000, nanos: 0 }));
        let volume = mount::mount(Devices::single(device), &MountOptions::default(), clock).expect("mount");
        {
            let core = &mut *volume.lock();
            core.stay();
            let mut i = core.inew(ROOT, mode::IFREG | 0o600, (0, 0), Time::default()).expect("an inode");
            let size = 20 * core.geom.block_size() as u64;
            for lbn in 0..20 {
                let name = Name::data(i.ino, lbn);
                core.cache.insert(name, Arc::new(Vec::new()));
                core.alloc_block(&mut i, lbn, size, &mut |buf, len| buf.resize(len, 7)).expect("a block");
                if lbn == 10 {
                    assert_eq!(core.check_invariants(), Ok(()));
                }
            }
            core.sync().expect("sync");
            core.change(&i, FileBlock::Data(15), |buf| buf.fill(8)).expect("a block");
            let i = core.iget(i.ino).expect("the inode");
            core.iput(&i).expect("a change");
            let small = core.inew(ROOT, mode::IFREG | 0o600, (0, 0), Time::default()).expect("an inode");
            core.iput(&small).expect("a change");
            assert_eq!(core.check_invariants(), Ok(()));
        }
        volume
    }

    type Break<'a> = &'a dyn Fn(&mut Core);

    /// Each number with what breaks it.
    #[test]
    fn each_number_can_be_broken() {
        let of_map = |core: &Core| {
            core.cache.dirty_names().find(|n| matches!(n, Name::File(ino, FileBlock::Map { .. }) if *ino != IFILE))
        };
        let page = |core: &Core| {
            core.cache.dirty_names().find(|n| matches!(n, Name::File(ino, FileBlock::Data(_)) if *ino != IFILE))
        };
        let all: [(&str, Break<'_>); 10] = [
            ("LFS-B1", &|core| assert!(core.order.pop_first().is_some())),
            ("LFS-B1", &|core| {
                let ino = *core.changed.keys().find(|ino| **ino != IFILE.0).expect("a file");
                core.cache.set_clean(Name::Inode(Ino(ino)));
            }),
            ("LFS-B2", &|core| core.cache.set_clean(of_map(core).expect("an indirect block"))),
            ("LFS-C1", &|core| core.segs.clean.extend(core.log.busy().first().copied())),
            ("LFS-C1", &|core| core.log.heads[0].next_seg = core.log.heads[0].seg),
            ("LFS-C3", &|core| {
                let seg = core.segs.clean.iter().next_back().expect("a clean segment");
                core.segs.pending_clean.push(seg);
            }),
            ("LFS-F1", &|core| {
                let name = page(core).expect("a page");
                core.modify(name, |buf| buf.truncate(512)).expect("a page");
            }),
            ("LFS-F2", &|core| {
                let ino = core.changed.keys().copied().filter(|ino| *ino != IFILE.0).max().expect("a file");
                let mut i = core.iget(Ino(ino)).expect("the inode");
                i.d.frags = 5.into();
                core.iput(&i).expect("a change");
            }),
            ("LFS-U1", &|core| core.segs.live += 1),
            ("LFS-U1", &|core| core.dead_bytes.extend([(0, u32::MAX)])),
        ];
        for (n, (number, damage)) in all.iter().enumerate() {
            let volume = changed();
            let core = &mut *volume.lock();
            damage(core);
            assert_eq!(core.check_invariants().map_err(|b| b.number), Err(*number), "{n}");
        }
    }
}
