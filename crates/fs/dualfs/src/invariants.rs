//! The numbered invariants, executed after calls (`kit::invariants`): a function each. What is not executed, and why:
//!
//! | number | why it cannot be seen in core |
//! |---|---|
//! | DUALFS-C2 | how much of a set is on disk nobody knows before a crash; the crash explorer |
//! | DUALFS-C4 | nor what is durable; the same |
//! | DUALFS-A1 | owners are known by going through all inodes; the checker |
//! | DUALFS-D1 | where an entry was before nobody knows; `conformance::names` |
//!
//! Of DUALFS-U1 core knows the sums, and that no more dies than lives; the checker counts what leads into a segment.

use crate::format::*;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::vfs::{Ino, mode};
use arbor_kit::blockmap::{BlockMap as _, Parent};
use arbor_kit::invariants::{Holds, Invariants, ensure};
use zerocopy::FromBytes as _;

impl Invariants for Core {
    fn extent(&self) -> usize {
        self.cache.dirty_names().len() + self.changes.files.len() + self.segs.extent()
    }

    fn check_invariants(&self) -> Holds {
        self.check_b1()?;
        self.check_b2()?;
        self.check_c1()?;
        self.check_c3()?;
        self.check_c5()?;
        self.check_s1()?;
        self.check_u1()
    }
}

impl Core {
    /// DUALFS-B1: changed files are in one order, with their inodes, and nothing else is dirty.
    fn check_b1(&self) -> Holds {
        let (files, order) = (&self.changes.files, &self.changes.order);
        let listed =
            |(ino, turn): (&u64, &u64)| order.get(turn) == Some(ino) && self.cache.is_dirty(Name::Inode(Ino(*ino)));
        let holds = files.len() == order.len() && files.iter().all(listed);
        ensure(holds, "DUALFS-B1", || format!("changed are {files:?}, in order {order:?}"))?;
        for name in self.cache.dirty_names() {
            let known = matches!(name, Name::Inode(ino) | Name::File(ino, _) if files.contains_key(&ino.0));
            ensure(known, "DUALFS-B1", || format!("{name:?} is dirty, its file unchanged"))?;
        }
        Ok(())
    }

    /// DUALFS-B2: what leads to a dirty block is dirty.
    fn check_b2(&self) -> Holds {
        for name in self.cache.dirty_names() {
            let Name::File(ino, part) = name else { continue };
            let above = match self.geom.shape().parent(part) {
                Some(Parent::Map { level, n, .. }) => FileBlock::Map { level, n },
                Some(Parent::InXattr(_)) => FileBlock::Xattr(0),
                _ => continue,
            };
            let above = Name::File(ino, above);
            let holds = self.cache.is_dirty(above) || self.is_overwritten(above, part);
            ensure(holds, "DUALFS-B2", || format!("{name:?} is dirty, {above:?} is not"))?;
        }
        Ok(())
    }

    /// Whether a page is overwritten where it lies by what leads to it, as far as that is in core.
    fn is_overwritten(&self, above: Name, part: FileBlock) -> bool {
        let Some(Parent::Map { slot, .. }) = self.geom.shape().parent(part) else { return false };
        let FileBlock::Data(_) = part else { return false };
        self.opts.overwrite && self.cache.peek(above).is_none_or(|table| Core::entry(table, slot).has_no_sum())
    }

    /// DUALFS-C1: the log is in a segment that nobody else may fill, and ends in it.
    fn check_c1(&self) -> Holds {
        let log = self.log;
        let taken = log.busy().iter().all(|seg| !self.segs.clean.contains(*seg));
        let holds = taken && log.seg != log.next_seg && log.offset <= self.geom.seg_blocks();
        ensure(holds, "DUALFS-C1", || format!("the log ends at {log:?}"))
    }

    /// DUALFS-C3: segments that may be filled are clean, by two checkpoints.
    fn check_c3(&self) -> Holds {
        for (seg, u) in self.segs.said() {
            let may = self.segs.clean.contains(seg);
            ensure(!may || !u.dirty && u.live == 0, "DUALFS-C3", || format!("segment {seg}, {u:?}, may be filled"))?;
        }
        let early = self.segs.pending_clean.iter().find(|seg| self.segs.clean.contains(**seg));
        ensure(early.is_none(), "DUALFS-C3", || {
            format!("segment {early:?} may be filled, one checkpoint calls it clean")
        })
    }

    /// DUALFS-C5: what was freed since the last set is in use in the bitmaps.
    fn check_c5(&self) -> Holds {
        let early = self.changes.freed.iter().find(|block| self.peek_used(*block) == Some(false));
        ensure(early.is_none(), "DUALFS-C5", || format!("data block {early:?} was freed, and can be given away"))
    }

    /// DUALFS-S1: files count no more data blocks than there are, with those that users cannot have.
    fn check_s1(&self) -> Holds {
        let (counted, there) = (u64::from(self.state.data), u64::from(self.geom.data_blocks));
        let sum = self.groups.sum();
        let is_page = |name: &Name| {
            let Name::File(ino, FileBlock::Data(_)) = name else { return false };
            let d = self.cache.peek(Name::Inode(*ino)).and_then(|bytes| Dinode::read_from_bytes(&bytes[..]).ok());
            *ino != IFILE && d.is_some_and(|d| d.kind() == mode::IFREG)
        };
        let pages = self.cache.dirty_names().filter(is_page).count();
        ensure(pages == self.changes.pages, "DUALFS-S1", || {
            format!("{pages} pages of regular files are dirty, {} are counted", self.changes.pages)
        })?;
        ensure(counted <= there && sum == self.groups.used, "DUALFS-S1", || {
            format!("{counted} blocks counted of {there}, {sum} in use, {} in all groups", self.groups.used)
        })
    }

    /// DUALFS-U1: the sums of the usage of segments, and that what has died lived there.
    fn check_u1(&self) -> Holds {
        for (seg, died) in &self.changes.dead {
            let u = self.segs.get(*seg);
            ensure(*died <= u.live, "DUALFS-U1", || format!("{died} bytes of segment {seg} have died, of {u:?}"))?;
        }
        self.segs.check_sums("DUALFS-U1")
    }
}
