//! Block maps: which pointer leads to a block of a file.
//!
//! The inode points to the first blocks; the others are in trees of indirect blocks, whose roots are in the inode too
//! (McKusick et al. 1984, section 2). [`Shape`] is the arithmetic, [`BlockMap`] walks maps without changing them. The
//! engines write and truncate them. Called by `blockfile.rs` and the engines.

use crate::inodes::InodeTable;
use crate::machine::Machine;
use arbor_base::cache::FileBlock;
use arbor_base::vfs::{Errno, Error, Result};
use std::sync::Arc;

/// How the map of a file is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks to which the inode itself points.
    pub direct: u64,
    /// Roots of trees in the inode: the first one is an indirect block of level 1, the next one of level 2.
    pub levels: u8,
    /// Pointers in an indirect block.
    pub fanout: u64,
}

/// The place of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// In the inode: that one of those to data.
    Direct(usize),
    /// In the inode: that one of those to indirect blocks.
    Root(usize),
    /// In the inode: the one to the attributes.
    Xattr,
    /// In the first block of the attributes: which pointer in it. Engines whose attributes have one block have none.
    InXattr(usize),
    /// In an indirect block.
    Map {
        /// Its level.
        level: u8,
        /// Its number in the level.
        n: u64,
        /// Which pointer in it.
        slot: usize,
    },
}

impl Shape {
    /// Number of data blocks below an indirect block of that level.
    pub fn reach(self, level: u8) -> u64 {
        (0..level).fold(1, |all: u64, _| all.saturating_mul(self.fanout))
    }

    /// Most data blocks that a file can have.
    pub fn blocks(self) -> u64 {
        (1..=self.levels).fold(self.direct, |all, level| all.saturating_add(self.reach(level)))
    }

    /// The place of the pointer to a block; `None` for a block that no file can have.
    pub fn parent(self, part: FileBlock) -> Option<Parent> {
        let below = |level, at: u64| Parent::Map { level, n: at / self.fanout, slot: (at % self.fanout) as usize };
        match part {
            FileBlock::Xattr(0) => Some(Parent::Xattr),
            FileBlock::Xattr(n) => Some(Parent::InXattr(n as usize - 1)),
            FileBlock::Data(lbn) if lbn < self.direct => Some(Parent::Direct(lbn as usize)),
            FileBlock::Data(lbn) => (lbn < self.blocks()).then(|| below(1, lbn - self.direct)),
            FileBlock::Map { level: 0, .. } => None,
            FileBlock::Map { level, .. } if level > self.levels => None,
            FileBlock::Map { level, n: 0 } => Some(Parent::Root(usize::from(level) - 1)),
            // The pointer to the first one of the level is in the inode.
            FileBlock::Map { level, n } if level < self.levels => {
                (self.first(level, n) < self.blocks()).then(|| below(level + 1, n - 1))
            }
            FileBlock::Map { .. } => None,
        }
    }

    /// The block to which pointer `slot` of an indirect block points.
    pub fn child(self, level: u8, n: u64, slot: u64) -> FileBlock {
        let at = n.saturating_mul(self.fanout).saturating_add(slot);
        match level {
            0 | 1 => FileBlock::Data(self.direct.saturating_add(at)),
            _ => FileBlock::Map { level: level - 1, n: at.saturating_add(1) },
        }
    }

    /// The first data block below an indirect block.
    pub fn first(self, level: u8, n: u64) -> u64 {
        match self.child(level, n, 0) {
            FileBlock::Map { level, n } => self.first(level, n),
            FileBlock::Data(lbn) => lbn,
            FileBlock::Xattr(_) => u64::MAX,
        }
    }

    /// The indirect block of that level above a data block.
    pub fn above(self, lbn: u64, level: u8) -> FileBlock {
        let mut at = FileBlock::Data(lbn);
        for _ in 0..level {
            if let Some(Parent::Map { level, n, .. }) = self.parent(at) {
                at = FileBlock::Map { level, n };
            }
        }
        at
    }
}

/// Which blocks of files there are.
pub trait Mapped: Machine + InodeTable {
    /// Whether a block is no hole.
    fn is_mapped(&mut self, f: &Self::Inode, lbn: u64) -> Result<bool>;

    /// The first block of a file from `lbn` on, and before `end`, that is a hole (`hole`), or is mapped.
    fn next_block(&mut self, f: &Self::Inode, lbn: u64, end: u64, hole: bool) -> Result<Option<u64>>;
}

/// Block maps of the files of a volume.
pub trait BlockMap: Machine + InodeTable {
    /// A pointer to a block.
    type Ptr: Copy;

    /// How maps are built.
    fn shape(&self) -> Shape;

    /// A pointer of the inode; a hole if it has none there.
    fn inode_pointer(&self, f: &Self::Inode, at: Parent) -> Self::Ptr;

    /// An indirect block, if there is one.
    fn indirect(&mut self, f: &Self::Inode, level: u8, n: u64) -> Result<Option<Arc<Vec<u8>>>>;

    /// The first block of the attributes, if it points to others, in the way of an indirect block.
    fn first_of_xattrs(&mut self, _f: &Self::Inode) -> Result<Option<Arc<Vec<u8>>>> {
        Ok(None)
    }

    /// A pointer of an indirect block.
    fn entry(table: &[u8], slot: usize) -> Self::Ptr;

    /// Whether a pointer points to nothing.
    fn is_hole(p: Self::Ptr) -> bool;

    /// Most indirect blocks that a file can have: a walk that meets more is in a loop of a damaged map.
    fn most_indirect(&self, f: &Self::Inode) -> u64;

    /// The error of such a walk.
    fn too_many_indirect(&self, f: &Self::Inode) -> Error;

    /// The pointer to a block of a file.
    fn pointer(&mut self, f: &Self::Inode, part: FileBlock) -> Result<Self::Ptr> {
        match self.shape().parent(part) {
            Some(Parent::Map { level, n, slot }) => {
                let table = self.indirect(f, level, n)?;
                Ok(Self::entry(table.as_ref().map_or(&[], |t| &t[..]), slot))
            }
            Some(Parent::InXattr(slot)) => {
                let first = self.first_of_xattrs(f)?;
                Ok(Self::entry(first.as_ref().map_or(&[], |t| &t[..]), slot))
            }
            Some(at) => Ok(self.inode_pointer(f, at)),
            None => Ok(Self::entry(&[], 0)),
        }
    }

    /// The indirect blocks that a data block needs and that are missing, the highest one first.
    fn missing(&mut self, f: &Self::Inode, lbn: u64) -> Result<Vec<(u8, u64)>> {
        let (mut at, mut missing) = (FileBlock::Data(lbn), Vec::new());
        while let Some(Parent::Map { level, n, .. }) = self.shape().parent(at) {
            if self.indirect(f, level, n)?.is_some() {
                break;
            }
            missing.push((level, n));
            at = FileBlock::Map { level, n };
        }
        missing.reverse();
        Ok(missing)
    }

    /// The first data block past those below the highest indirect block above `lbn` that is missing, or damaged.
    /// (Damage matters to callers that go on past it; `next_block` has failed by then.)
    fn after_missing(&mut self, f: &Self::Inode, lbn: u64) -> Result<u64> {
        let shape = self.shape();
        let (mut at, mut end) = (FileBlock::Data(lbn), lbn.saturating_add(1));
        while let Some(Parent::Map { level, n, .. }) = shape.parent(at) {
            match self.indirect(f, level, n) {
                Ok(Some(_)) => break,
                Ok(None) | Err(Error::Corrupt(_)) => {
                    at = FileBlock::Map { level, n };
                    end = shape.first(level, n).saturating_add(shape.reach(level));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(end)
    }

    /// The number of the last indirect block of level 1 that a file has.
    fn last_indirect(&mut self, f: &Self::Inode) -> Result<Option<u64>> {
        for root in (0..self.shape().levels).rev() {
            if Self::is_hole(self.inode_pointer(f, Parent::Root(root.into()))) {
                continue;
            }
            if let Some(n) = self.last_below(f, root + 1, 0)? {
                return Ok(Some(n));
            }
        }
        Ok(None)
    }

    /// The same, of those below an indirect block.
    fn last_below(&mut self, f: &Self::Inode, level: u8, n: u64) -> Result<Option<u64>> {
        if level <= 1 {
            return Ok(Some(n));
        }
        let (shape, table) = (self.shape(), self.indirect(f, level, n)?.ok_or(Errno::EIO)?);
        let last = (0..shape.fanout).rev().find(|k| !Self::is_hole(Self::entry(&table, *k as usize)));
        match last.map(|k| shape.child(level, n, k)) {
            Some(FileBlock::Map { level, n }) => self.last_below(f, level, n),
            _ => Ok(None),
        }
    }
}

impl<C: BlockMap> Mapped for C {
    fn is_mapped(&mut self, f: &Self::Inode, lbn: u64) -> Result<bool> {
        Ok(!Self::is_hole(self.pointer(f, FileBlock::Data(lbn))?))
    }

    fn next_block(&mut self, f: &Self::Inode, mut lbn: u64, end: u64, hole: bool) -> Result<Option<u64>> {
        let shape = self.shape();
        let (most, mut met) = (self.most_indirect(f), 0);
        while lbn < end {
            let Some(Parent::Map { n, slot, .. }) = shape.parent(FileBlock::Data(lbn)) else {
                if self.is_mapped(f, lbn)? != hole {
                    return Ok(Some(lbn));
                }
                lbn += 1;
                continue;
            };
            let Some(table) = self.indirect(f, 1, n)? else {
                if hole {
                    return Ok(Some(lbn));
                }
                lbn = self.after_missing(f, lbn)?;
                continue;
            };
            met += 1;
            if met > most {
                return Err(self.too_many_indirect(f));
            }
            if !self.calls().has_changed() {
                // The blocks looked at so far are not needed any more.
                self.cache().trim_clean();
            }
            let first = shape.first(1, n);
            match (slot as u64..shape.fanout).find(|k| Self::is_hole(Self::entry(&table, *k as usize)) == hole) {
                Some(k) => return Ok(Some(first + k).filter(|lbn| *lbn < end)),
                None => lbn = first + shape.fanout,
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { direct: 12, levels: 3, fanout: 512 };

    fn map(level: u8, n: u64, slot: usize) -> Option<Parent> {
        Some(Parent::Map { level, n, slot })
    }

    #[test]
    fn pointers_to_blocks() {
        let (n, up, at) = (512, |p| SHAPE.parent(p), |level, n| FileBlock::Map { level, n });
        assert_eq!(up(FileBlock::Data(11)), Some(Parent::Direct(11)));
        assert_eq!(up(FileBlock::Data(12)), map(1, 0, 0));
        assert_eq!(up(FileBlock::Data(12 + n + 3)), map(1, 1, 3));
        assert_eq!(up(at(1, 0)), Some(Parent::Root(0)));
        assert_eq!(up(at(1, 1)), map(2, 0, 0));
        assert_eq!(up(at(1, n)), map(2, 0, 511));
        assert_eq!(up(at(1, n + 1)), map(2, 1, 0));
        assert_eq!(up(at(2, 0)), Some(Parent::Root(1)));
        assert_eq!(up(at(2, 1)), map(3, 0, 0));
        assert_eq!(up(at(3, 0)), Some(Parent::Root(2)));
        assert_eq!(SHAPE.blocks(), 12 + n + n * n + n * n * n);
        for none in [FileBlock::Data(SHAPE.blocks()), at(0, 0), at(3, 1), at(4, 0), at(2, n + 1), at(1, u64::MAX)] {
            assert_eq!(up(none), None, "{none:?}");
        }
        assert_eq!(up(at(2, n)), map(3, 0, 511));
    }

    #[test]
    fn a_child_of_its_parent_and_first_of_what_lies_below() {
        for shape in [SHAPE, Shape { direct: 0, levels: 4, fanout: 3 }, Shape { direct: 2, levels: 1, fanout: 7 }] {
            let all = shape.blocks();
            let some = (0..all.min(200)).chain(all.saturating_sub(50)..all).chain([all / 2, all / 3]);
            for lbn in some {
                let mut at = FileBlock::Data(lbn);
                while let Some(Parent::Map { level, n, slot }) = shape.parent(at) {
                    assert_eq!(shape.child(level, n, slot as u64), at);
                    let first = shape.first(level, n);
                    assert!(first <= lbn && lbn - first < shape.reach(level), "{lbn} {level} {n}");
                    assert_eq!(shape.above(lbn, level), FileBlock::Map { level, n });
                    at = FileBlock::Map { level, n };
                }
                assert!(matches!(shape.parent(at), Some(Parent::Root(_) | Parent::Direct(_))), "{at:?}");
            }
        }
    }
}
