//! Extended attributes: one list of an inode, in a block and, if it is long, in further ones to which the first one points.
//!
//! A list is written whole. What is in use already keeps its place in the list of blocks, so a change costs as many blocks as
//! the list has.

use crate::decoded::Inode;
use crate::format::*;
use crate::volume::Core;
use arbor_base::cache::FileBlock;
use arbor_base::field;
use arbor_base::layout::{get_u32, put};
use arbor_base::vfs::{Errno, Result};
use arbor_kit::xattr::{self, Xattrs};
use std::mem::offset_of;
use std::ops::Range;

/// Bytes of a list that have room in a further block.
const ROOM: usize = BLOCK - HEAD;

/// How many further blocks a list of so many bytes needs.
pub(crate) fn further(len: usize) -> u32 {
    let room = |more: u32| (BLOCK - entry_at(more as usize)) + more as usize * ROOM;
    (0..XATTR_MORE).find(|more| len <= room(*more)).unwrap_or(XATTR_MORE)
}

/// The bytes of a list in the first block, of how many further ones it tells.
fn first_part(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let more = get_u32(bytes, offset_of!(Head, index))?;
    let len = get_u32(bytes, offset_of!(Head, len))? as usize;
    Some((more, bytes.get(entry_at(more as usize)..)?.get(..len)?))
}

impl Core {
    /// How many blocks the attributes of an inode have.
    pub fn xattr_blocks(&mut self, i: &Inode) -> Result<u32> {
        let first = self.part(i, FileBlock::Xattr(0))?;
        let more = first.map(|first| first_part(&first).map_or(0, |(more, _)| more));
        Ok(more.map_or(0, |more| 1 + more))
    }

    pub fn read_xattrs(&mut self, i: &Inode) -> Result<Xattrs> {
        let wrong = || i.corrupt(field!(Dinode, xattr), i.d.xattr, "a block with attributes");
        let Some(first) = self.part(i, FileBlock::Xattr(0))? else { return Ok(Vec::new()) };
        let (more, list) = first_part(&first).ok_or_else(wrong)?;
        let mut list = list.to_vec();
        for n in 1..=more {
            let next = self.part(i, FileBlock::Xattr(n))?.ok_or_else(wrong)?;
            let len = get_u32(&next, offset_of!(Head, len)).unwrap_or(0) as usize;
            list.extend_from_slice(next.get(HEAD..HEAD + len).unwrap_or(&[]));
        }
        xattr::parse(&list).filter(|list| !list.is_empty()).ok_or_else(|| wrong().into())
    }

    /// `ENOSPC` if a list is longer than any of this volume.
    pub fn has_room_for_xattrs(&self, list: &Xattrs) -> Result<()> {
        let more = if self.sb.incompat.get() & INCOMPAT_XATTR_BLOCKS != 0 { XATTR_MORE } else { 0 } as usize;
        let room = BLOCK - entry_at(more) + more * ROOM;
        if xattr::encoded_len(list) <= room { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    /// Writes a list; `ENOSPC` before anything is changed.
    pub fn write_xattrs(&mut self, i: &mut Inode, list: &Xattrs) -> Result<()> {
        let had = self.xattr_blocks(i)?;
        if list.is_empty() {
            return self.drop_xattrs(i, 0..had);
        }
        let body = xattr::encode(list);
        let more = further(body.len());
        self.need(u64::from((1 + more).saturating_sub(had)))?;
        for n in 1..had {
            self.part(i, FileBlock::Xattr(n))?.ok_or(Errno::EIO)?;
        }
        self.drop_xattrs(i, (1 + more).min(had)..had)?;
        self.write_first(i, &body, more)?;
        let rest = body.get(BLOCK - entry_at(more as usize)..).unwrap_or(&[]);
        for (n, piece) in (1..=more).zip(rest.chunks(ROOM)) {
            let bytes = self.with_list((XATTR_MORE_MAGIC, n), i, HEAD, piece);
            self.put_xattrs(i, n, n < had, bytes)?;
        }
        Ok(())
    }

    /// Writes the first block; the pointers that it has stay.
    fn write_first(&mut self, i: &mut Inode, body: &[u8], more: u32) -> Result<()> {
        let (begin, old) = (entry_at(more as usize), self.part(i, FileBlock::Xattr(0))?);
        let piece = body.get(..body.len().min(BLOCK - begin)).unwrap_or(body);
        let mut bytes = self.with_list((XATTR_MAGIC, more), i, begin, piece);
        if let Some((had, _)) = old.as_deref().and_then(|old| first_part(old)) {
            let kept = HEAD..entry_at(had.min(more) as usize);
            let pointers = old.as_ref().and_then(|old| old.get(kept)).unwrap_or(&[]);
            put(&mut bytes, HEAD, pointers);
        }
        self.put_xattrs(i, 0, old.is_some(), bytes)
    }

    fn with_list(&self, (magic, index): (u32, u32), i: &Inode, begin: usize, piece: &[u8]) -> Vec<u8> {
        let mut bytes = self.headed(magic, i.ino, index.into(), piece.len() as u32);
        put(&mut bytes, begin, piece);
        bytes
    }

    /// Makes a block of attributes, or changes the one that is there.
    fn put_xattrs(&mut self, i: &mut Inode, n: u32, is_there: bool, bytes: Vec<u8>) -> Result<()> {
        if is_there {
            return self.change(i, FileBlock::Xattr(n), |old| *old = bytes);
        }
        i.count(1);
        self.make(i, FileBlock::Xattr(n), bytes)
    }

    /// Drops blocks of attributes, the last one first.
    pub fn drop_xattrs(&mut self, i: &mut Inode, which: Range<u32>) -> Result<()> {
        which.rev().try_for_each(|n| self.drop_part(i, FileBlock::Xattr(n)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_as_many_blocks_as_it_needs() {
        assert_eq!((further(1), further(ROOM), further(ROOM + 1)), (0, 0, 1));
        assert_eq!((further(2 * ROOM - 4), further(2 * ROOM - 3)), (1, 2));
        let longest = 4 + 255 + xattr::VALUE_MAX;
        assert!(further(longest) == XATTR_MORE && longest <= BLOCK - entry_at(16) + 16 * ROOM);
    }
}
