//! Extended attributes: one list of an inode, in a block and, if it is long, in further ones to which the first one points.
//!
//! A list is written whole; blocks that it has already keep their pointers until the next set moves them, like those of
//! any other metadata.

use crate::decoded::Inode;
use crate::format::*;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::layout::put;
use arbor_base::vfs::{Errno, Result};
use arbor_kit::blockmap::BlockMap as _;
use arbor_kit::inodes::InodeStore as _;
use arbor_kit::xattr::{self, Xattrs};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// The longest list: a value of 64 KiB with its name.
const MOST: usize = 4 + 255 + xattr::VALUE_MAX;

/// Byte of the first block where the list begins if there are so many further ones.
pub(crate) fn list_at(more: u32) -> usize {
    XATTR_HEAD + more as usize * POINTER
}

impl Core {
    /// How many further blocks a list of so many bytes needs.
    fn further(&self, len: usize) -> u32 {
        let block = self.geom.block();
        let fits = |more: &u32| len <= block - list_at(*more) + *more as usize * block;
        (0..).find(fits).unwrap_or(0)
    }

    /// How many further blocks the longest list needs.
    pub fn most_further(&self) -> u32 {
        self.further(MOST)
    }

    /// The head of the attributes of an inode, and their first block; `None` if it has none.
    fn xattr_head(&mut self, i: &Inode) -> Result<Option<(XattrHead, Arc<Vec<u8>>)>> {
        let Some(first) = self.part(i, FileBlock::Xattr(0))? else { return Ok(None) };
        let head = XattrHead::read_from_prefix(&first[..]).map_err(|_| Errno::EIO)?.0;
        let is_ours = head.magic.get() == XATTR_MAGIC && u64::from(head.ino.get()) == i.ino.0;
        let len = head.len.get() as usize;
        if is_ours && len <= MOST && self.further(len) == head.more.get() {
            return Ok(Some((head, first)));
        }
        Err(i.corrupt("xattr", "another block", "the first one of its attributes").into())
    }

    /// How many blocks the attributes of an inode have.
    pub fn xattr_blocks(&mut self, i: &Inode) -> Result<u32> {
        Ok(self.xattr_head(i)?.map_or(0, |(head, _)| 1 + head.more.get()))
    }

    pub fn read_xattrs(&mut self, i: &Inode) -> Result<Xattrs> {
        let Some((head, first)) = self.xattr_head(i)? else { return Ok(Vec::new()) };
        let wrong = || i.corrupt("xattr", "a broken list", "names and values");
        let mut list = first.get(list_at(head.more.get())..).unwrap_or(&[]).to_vec();
        for n in 1..=head.more.get() {
            let next = self.part(i, FileBlock::Xattr(n))?.ok_or_else(wrong)?;
            list.extend_from_slice(&next);
        }
        list.truncate(head.len.get() as usize);
        xattr::parse(&list).filter(|list| !list.is_empty()).ok_or_else(|| wrong().into())
    }

    /// `ENOSPC` if a list is longer than any.
    pub fn has_room_for_xattrs(&self, list: &Xattrs) -> Result<()> {
        if xattr::encoded_len(list) <= MOST { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    /// Writes a list; `ENOSPC` before anything is changed.
    pub fn write_xattrs(&mut self, i: &mut Inode, list: &Xattrs) -> Result<()> {
        let had = self.xattr_blocks(i)?;
        if list.is_empty() {
            return self.cut_xattrs(i, 0, had);
        }
        let body = xattr::encode(list);
        let more = self.further(body.len());
        self.need_meta((1 + more).saturating_sub(had))?;
        // All of them in the cache: what may fail comes first.
        for n in 0..had {
            self.part(i, FileBlock::Xattr(n))?.ok_or(Errno::EIO)?;
        }
        self.cut_xattrs(i, 1 + more, had)?;
        let head = XattrHead {
            magic: XATTR_MAGIC.into(),
            ino: (i.ino.0 as u32).into(),
            len: (body.len() as u32).into(),
            more: more.into(),
        };
        let (block, begin) = (self.geom.block(), list_at(more));
        let kept = self.cache.peek(Name::File(i.ino, FileBlock::Xattr(0))).cloned();
        let mut first = vec![0; block];
        let pointers = XATTR_HEAD..list_at(more.min(had.saturating_sub(1)));
        put(&mut first, XATTR_HEAD, kept.as_ref().and_then(|old| old.get(pointers)).unwrap_or(&[]));
        put(&mut first, 0, head.as_bytes());
        let (here, rest) = body.split_at(body.len().min(block - begin));
        put(&mut first, begin, here);
        self.put_xattrs(i, 0, had, first)?;
        for (n, piece) in (1..=more).zip(rest.chunks(block)) {
            let mut bytes = piece.to_vec();
            bytes.resize(block, 0);
            self.put_xattrs(i, n, had, bytes)?;
        }
        Ok(())
    }

    /// Makes a block of attributes, or changes the one that is there.
    fn put_xattrs(&mut self, i: &mut Inode, n: u32, had: u32, bytes: Vec<u8>) -> Result<()> {
        let part = FileBlock::Xattr(n);
        if n >= had {
            self.mark(i.ino)?;
            self.set_pointer(i, part, Pointer { block: NO_PLACE.into(), crc: 0.into() })?;
            self.cache.insert(Name::File(i.ino, part), Arc::new(Vec::new()));
            self.count(i, 0, 1);
            self.iput(i)?;
        }
        self.change(i, part, |buf| *buf = bytes)
    }

    /// Drops the blocks of attributes from number `keep` on.
    fn cut_xattrs(&mut self, i: &mut Inode, keep: u32, had: u32) -> Result<()> {
        for n in (keep..had).rev() {
            self.mark(i.ino)?;
            let p = self.pointer(i, FileBlock::Xattr(n))?;
            self.drop_placed(i, FileBlock::Xattr(n), p);
            self.set_pointer(i, FileBlock::Xattr(n), Pointer::default())?;
            self.cache.remove(Name::File(i.ino, FileBlock::Xattr(n)));
            self.count(i, 0, -1);
            self.iput(i)?;
        }
        Ok(())
    }

    /// Drops all attributes of an inode that is freed.
    pub fn drop_xattrs(&mut self, i: &mut Inode) -> Result<()> {
        let had = self.xattr_blocks(i)?;
        self.cut_xattrs(i, 0, had)
    }
}
