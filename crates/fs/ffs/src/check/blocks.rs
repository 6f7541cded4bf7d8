//! The blocks of a file: its pointers and those of its indirect blocks.

use super::view::Reader;
use crate::format::*;
use arbor_base::device::Kind;
use arbor_base::layout::get_u32;
use arbor_base::vfs::Result;
use std::collections::HashSet;

/// The place of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// In the inode, direct.
    Direct(usize),
    /// In the inode, indirect.
    Indirect(usize),
    /// In an indirect block.
    In(Frag, usize),
}

/// A block, or run, to which a pointer points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub slot: Slot,
    /// First logical block that it holds, or that lies below it.
    pub lbn: u64,
    /// 0 for data, else the level of the indirect block.
    pub level: usize,
    pub frag: Frag,
    /// Fragments that it should have, 0 if it lies past the end of the file.
    pub frags: u32,
}

impl Reader<'_> {
    /// Logical blocks under a pointer of an indirect block of that level.
    fn span(&self, level: usize) -> u64 {
        self.geom.shape().reach(level.saturating_sub(1) as u8)
    }

    /// Visits all pointers of an inode that are not 0. `f` returns whether to go into an indirect block: it must not
    /// return `true` twice for one block, so that the walk ends.
    pub fn walk(&self, d: &Dinode, f: &mut dyn FnMut(&Reader<'_>, &Piece) -> Result<bool>) -> Result<()> {
        let size = d.size.get();
        for (i, frag) in d.db.iter().enumerate().filter(|(_, p)| p.get() != 0) {
            let lbn = i as u64;
            let frags = self.geom.lbn_frags(size, lbn);
            f(self, &Piece { slot: Slot::Direct(i), lbn, level: 0, frag: Frag(frag.get()), frags })?;
        }
        let mut lbn = NDADDR as u64;
        for (i, frag) in d.ib.iter().enumerate() {
            let (level, first) = (i + 1, lbn);
            lbn = lbn.saturating_add(self.span(level + 1));
            let piece = self.piece(size, Slot::Indirect(i), first, level, frag.get());
            if frag.get() != 0 && f(self, &piece)? {
                self.walk_below(size, piece, f)?;
            }
        }
        Ok(())
    }

    fn piece(&self, size: u64, slot: Slot, lbn: u64, level: usize, frag: u32) -> Piece {
        let beyond = self.geom.lbn(size.saturating_add(self.geom.block_size() as u64 - 1)) <= lbn;
        let frags = if beyond { 0 } else { self.geom.block_frags() };
        Piece { slot, lbn, level, frag: Frag(frag), frags }
    }

    fn walk_below(&self, size: u64, top: Piece, f: &mut dyn FnMut(&Reader<'_>, &Piece) -> Result<bool>) -> Result<()> {
        let mut stack = vec![top];
        while let Some(p) = stack.pop() {
            let (from, span) = (stack.len(), self.span(p.level));
            for (i, frag) in self.pointers(p.frag)?.into_iter().enumerate().filter(|(_, frag)| *frag != 0) {
                let lbn = p.lbn.saturating_add(span.saturating_mul(i as u64));
                let child = self.piece(size, Slot::In(p.frag, i), lbn, p.level.saturating_sub(1), frag);
                if f(self, &child)? && child.level > 0 {
                    stack.push(child);
                }
            }
            if let Some(children) = stack.get_mut(from..) {
                children.reverse();
            }
        }
        Ok(())
    }

    /// Pointers of an indirect block.
    pub fn pointers(&self, frag: Frag) -> Result<Vec<u32>> {
        let bytes = self.run(Kind::Tree, frag, self.geom.block_frags())?;
        Ok(bytes.chunks_exact(4).map(|b| get_u32(b, 0).unwrap_or(0)).collect())
    }

    /// Visits the pieces of an inode that can be used, in the order of its pointers.
    pub fn pieces(&self, d: &Dinode, f: &mut dyn FnMut(&Piece)) -> Result<()> {
        let mut seen = HashSet::new();
        if !d.has_blocks() {
            return Ok(());
        }
        self.walk(d, &mut |r, p| {
            let good = r.place(p.frag, p.frags) && (p.level == 0 || seen.insert(p.frag));
            if good {
                f(p);
            }
            Ok(good)
        })
    }

    /// Data blocks of a directory by logical number.
    pub fn dir_blocks(&self, d: &Dinode) -> Result<Vec<Piece>> {
        let mut all = Vec::new();
        self.pieces(d, &mut |p| all.extend((p.level == 0).then_some(*p)))?;
        all.sort_by_key(|p| p.lbn);
        Ok(all)
    }
}
