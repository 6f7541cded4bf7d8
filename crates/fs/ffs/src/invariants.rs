//! The numbered invariants, checked after calls (`kit::invariants`): a function each.
//!
//! Not checked, and why:
//!
//! | number | why it cannot be checked in core |
//! |---|---|
//! | FFS-C7 | core does not remember which data a file had when it took a name; see `tests/cuts.rs`, crash explorer |
//!
//! Of the others this is left to the crash explorer: with `keep=sync` the order of FFS-C1 and FFS-C2, whose writes are
//! over when the call is; of FFS-C3 that bits are on disk in time (checked is that inodes and pointers wait for them);
//! of FFS-C4 the bytes past the end of a file; of FFS-C5 that freed fragments are held at all; of FFS-C6 blocks that
//! were written before a pointer to them and did not wait for it.

use crate::bitmap::{block_bits, count, header};
use crate::buffers::{BlockKind, Dirty};
use crate::dependencies::Freed;
use crate::format::*;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::layout::get_u32;
use arbor_kit::invariants::{Holds, Invariants, ensure};

/// Number of items that the structure of a group, or its held fragments, count as.
const GROUP: usize = 16;

impl Invariants for Core {
    fn extent(&self) -> usize {
        let groups = self.dirty_groups() + self.space.held().0.len();
        self.dirty.len() + self.deps.pending() + GROUP * groups + self.space.len() / GROUP
    }

    fn check_invariants(&self) -> Holds {
        self.check_a1()?;
        self.check_a2()?;
        self.check_b1()?;
        self.check_c1()?;
        self.check_c2()?;
        self.check_c3()?;
        self.check_c4()?;
        self.check_c5()?;
        self.check_c6()?;
        self.check_d1()?;
        self.check_f1()
    }
}

impl Core {
    fn dirty_groups(&self) -> usize {
        self.space.len().min(self.dirty.len())
    }

    fn group(&self, cgx: u32) -> Option<&[u8]> {
        self.cache.peek(self.cg_name(cgx)).map(|bytes| &bytes[..])
    }

    /// Used fragments of a run by the bitmap, as bits; `None` if that is not in core.
    fn used(&self, frag: Frag, frags: u32) -> Option<u32> {
        let n = self.geom.block_frags();
        let cg = self.group(self.geom.cg_of(frag))?;
        let at = frag.0 % self.geom.cg_frags;
        let is_used = |i: &u32| block_bits(&self.geom, cg, i / n) >> (i % n) & 1 == 1;
        Some((at..at + frags).filter(is_used).count() as u32)
    }

    /// FFS-A1: dirty buffers lie in fragments that are used, and no two in the same.
    fn check_a1(&self) -> Holds {
        let is_allocated =
            |d: &&Dirty| matches!(d.kind, BlockKind::Indirect | BlockKind::Xattr | BlockKind::Dir | BlockKind::Data);
        let len = |name: &Name| self.cache.peek(*name).map_or(0, |b| self.geom.frags_for(b.len()));
        let runs = self.dirty.iter().filter(|(_, d)| is_allocated(d)).map(|(name, d)| (d.frag, len(name), *name));
        let mut runs: Vec<(Frag, u32, Name)> = runs.collect();
        runs.sort_unstable();
        for pair in runs.windows(2) {
            let [(a, frags, one), (b, _, two)] = pair else { continue };
            let apart = a.0.checked_add(*frags).is_some_and(|end| end <= b.0);
            ensure(apart, "FFS-A1", || format!("{one:?} at {a:?} and {two:?} at {b:?} overlap"))?;
        }
        for (frag, frags, name) in runs {
            let used = self.used(frag, frags).is_none_or(|n| n == frags);
            ensure(used, "FFS-A1", || format!("{name:?} has {frags} fragments at {frag:?}, some of them free"))?;
        }
        Ok(())
    }

    /// FFS-A2: the counts of changed groups are those of their bitmaps, and those in core.
    fn check_a2(&self) -> Holds {
        for (name, _) in self.dirty.iter().filter(|(_, d)| d.kind == BlockKind::Cg) {
            let Name::Block(at) = name else { continue };
            let cgx = self.geom.cg_of(Frag(*at as u32));
            let Some(cg) = self.group(cgx) else { continue };
            let info = self.space.group(cgx);
            let (h, (sum, runs)) = (header(cg), count(&self.geom, cgx, cg));
            let found = Summary { ndir: h.sum.ndir, ..sum };
            ensure(h.sum == found && h.frsum == runs, "FFS-A2", || {
                format!("group {cgx} says {:?} and {:?}, its bitmaps {found:?} and {runs:?}", h.sum, h.frsum)
            })?;
            ensure(info.summary() == h.sum, "FFS-A2", || {
                format!("group {cgx} says {:?}, core {:?}", h.sum, info.summary())
            })?;
        }
        self.space.check()
    }

    /// FFS-B1: dirty buffers and their orders.
    fn check_b1(&self) -> Holds {
        self.dirty.check(&self.cache)
    }

    /// FFS-C1: names wait for their inodes.
    fn check_c1(&self) -> Holds {
        self.deps.names_wait(&self.geom)
    }

    /// FFS-C2: the link counts to be lowered for removed names are counted.
    fn check_c2(&self) -> Holds {
        self.deps.drops_are_counted()
    }

    /// FFS-C3: runs and inodes that wait to be freed are used.
    fn check_c3(&self) -> Holds {
        let soft = &self.deps;
        soft.frees_are_counted()?;
        for freed in soft.frees() {
            let used = match freed {
                Freed::Run(frag, frags) => self.used(frag, frags).is_none_or(|n| n == frags),
                Freed::Inode(ino) => {
                    let at = (ino.0 % u64::from(self.geom.cg_inodes)) as u32;
                    self.group(self.geom.cg_of_inode(ino)).is_none_or(|cg| bit(cg, 1, at))
                }
            };
            ensure(used, "FFS-C3", || format!("{freed:?} waits, and is free already"))?;
        }
        Ok(())
    }

    /// FFS-C4, and FFS-C3 for new inodes and pointers: they wait for blocks and bits.
    fn check_c4(&self) -> Holds {
        let is_group = |name| matches!(name, Name::Block(at) if name == self.cg_name(self.geom.cg_of(Frag(at as u32))));
        self.deps.allocations_wait(self.opts.keeping == Keeping::SoftUpdates, is_group)
    }

    /// FFS-C5: held fragments are free in the bitmap: they were not reallocated.
    fn check_c5(&self) -> Holds {
        let (n, mut sum) = (self.geom.block_frags(), 0);
        let (holding, held_frags) = self.space.held();
        for cgx in holding {
            let held = &self.space.group(*cgx).held[..];
            for b in 0..self.geom.cg_len(*cgx) / n {
                let here = block_bits(&self.geom, held, b);
                sum += u64::from(here.count_ones());
                let taken = self.group(*cgx).filter(|_| here != 0).map_or(0, |cg| block_bits(&self.geom, cg, b));
                ensure(here & taken == 0, "FFS-C5", || {
                    format!("in block {b} of group {cgx} {here:#010b} is held, and {taken:#010b} used")
                })?;
            }
        }
        ensure(sum == held_frags, "FFS-C5", || format!("{held_frags} fragments are held, {sum} by bits"))
    }

    /// FFS-C6: dependencies written before the pointer to their block wait for it.
    fn check_c6(&self) -> Holds {
        self.deps.ways_are_known()
    }

    /// FFS-D1: entries that are not on disk are where they were added.
    fn check_d1(&self) -> Holds {
        for ((page, at), ino) in self.deps.entries() {
            let found = self.cache.peek(page).map(|bytes| get_u32(bytes, at));
            ensure(found.is_none_or(|n| n.map(u64::from) == Some(ino)), "FFS-D1", || {
                format!("the entry of inode {ino} at {at} of {page:?} names {found:?}")
            })?;
        }
        Ok(())
    }

    /// FFS-F1: dirty pages are as long as their file has them.
    fn check_f1(&self) -> Holds {
        for (name, d) in self.dirty.iter() {
            let Name::File(ino, FileBlock::Data(lbn)) = *name else { continue };
            let Some(i) = self.peek_inode(ino).filter(|_| matches!(d.kind, BlockKind::Data | BlockKind::Dir)) else {
                continue;
            };
            let len = self.cache.peek(*name).map_or(0, |b| b.len());
            let should = self.geom.bytes_of(self.geom.lbn_frags(i.size(), lbn));
            ensure(len == should, "FFS-F1", || {
                format!("{name:?} has {len} bytes, should have {should} in a file of {}", i.size())
            })?;
        }
        Ok(())
    }
}
