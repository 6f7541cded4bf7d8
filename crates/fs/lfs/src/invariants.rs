//! The numbered invariants, executed after calls (`kit::invariants`): a function each. What is not executed, and why:
//!
//! | number | why it cannot be seen in core |
//! |---|---|
//! | LFS-C2 | how much of a group is on disk nobody knows before a crash; `tests/crash.rs`, the crash explorer |
//! | LFS-C4 | nor what is durable; the same |
//! | LFS-D1 | where an entry was before a call is forgotten; the tests of walks in `torture::conformance` |
//!
//! Of LFS-U1 core knows the sums, and that no more dies than lives; the checker counts what leads into a segment. Of LFS-F2 it
//! knows files without indirect blocks.

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

    /// LFS-B2: what is above a dirty block is dirty.
    fn check_b2(&self) -> Holds {
        for name in self.cache.dirty_names() {
            let Name::File(ino, place) = name else { continue };
            // What the cleaner has brought of the ifile gets its way when a checkpoint writes it.
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
            ensure(inside, "LFS-C1", || format!("the log ends behind its segment: {head:?}"))?;
        }
        Ok(())
    }

    /// LFS-C3: segments that may be filled are clean, and two checkpoints have said so.
    fn check_c3(&self) -> Holds {
        for (seg, u) in self.segs.said() {
            let may = self.segs.clean.contains(seg);
            ensure(!may || !u.dirty && u.live == 0, "LFS-C3", || format!("segment {seg}, {u:?}, may be filled"))?;
        }
        let early = self.segs.settling.iter().find(|seg| self.segs.clean.contains(**seg));
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

    /// LFS-F2: changed files without indirect blocks count what their pointers lead to.
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
        let live: u64 = self.segs.said().map(|(_, u)| u64::from(u.live)).sum();
        ensure(live == self.segs.live, "LFS-U1", || format!("{live} bytes live, {} in all", self.segs.live))?;
        for (seg, died) in &self.died {
            let u = self.segs.get(*seg);
            ensure(*died <= u.live, "LFS-U1", || format!("{died} bytes of segment {seg} have died, of {u:?}"))?;
        }
        self.segs.check_hollow()
    }
}
