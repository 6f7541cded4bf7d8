//! Metadata buffers: their kinds, and how they are read from the device and checked.

use crate::format::*;
use crate::validate;
use arbor_base::device::{Buf, Device, Kind, zeroed};
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Error, Ino, Result};
use arbor_kit::reads::what_can_be_read;
use rustc_hash::FxHashMap;
use std::ops::Range;
use zerocopy::FromBytes;

/// A metadata buffer: first sector, length, kind.
pub(crate) type BufferId = (Daddr, usize, What);

/// The kind that a metadata buffer must be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Block(BlockType),
    Chunk,
}

/// Bytes to be written: where, what for, which.
pub(crate) type Piece = (u64, Kind, Buf);

pub(crate) fn kind_of(what: What) -> Kind {
    match what {
        What::Chunk => Kind::Inode,
        What::Block(BlockType::Dir) => Kind::Dir,
        What::Block(BlockType::Bitmap) => Kind::Bitmap,
        What::Block(BlockType::Group | BlockType::Inodes) => Kind::Group,
        What::Block(BlockType::Xattr) => Kind::Xattr,
        What::Block(_) => Kind::Tree,
    }
}

pub(crate) fn buffer_kind(seal: Seal, bytes: Option<&std::sync::Arc<Vec<u8>>>) -> Kind {
    match seal {
        Seal::Inodes => Kind::Inode,
        Seal::Super => Kind::Super,
        Seal::Block => {
            let magic = bytes.and_then(|b| BlockHeader::ref_from_prefix(b).ok()).map_or(0, |(h, _)| h.magic.get());
            [
                (BlockType::Group, Kind::Group),
                (BlockType::Inodes, Kind::Group),
                (BlockType::Bitmap, Kind::Bitmap),
                (BlockType::Dir, Kind::Dir),
                (BlockType::Xattr, Kind::Xattr),
                (BlockType::Symlink, Kind::Other),
            ]
            .into_iter()
            .find(|(t, _)| *t as u32 == magic)
            .map_or(Kind::Tree, |(_, k)| k)
        }
    }
}

/// Reads and checks a metadata buffer; rereads a damaged one: a fault of the transfer must neither fail the call nor
/// stay in the cache.
pub(crate) fn read_buffer(dev: &dyn Device, geom: &Geom, addr: Daddr, len: usize, what: What) -> Result<Vec<u8>> {
    check_buffer(dev, geom, addr, what, None, len)
}

/// Like [`read_buffer`], for bytes that may have been read already.
pub(crate) fn check_buffer(
    dev: &dyn Device,
    geom: &Geom,
    addr: Daddr,
    what: What,
    read: Option<Vec<u8>>,
    len: usize,
) -> Result<Vec<u8>> {
    let kind = kind_of(what);
    let read_once = || {
        let mut bytes = zeroed(len);
        match dev.read_at(kind, addr.byte(), &mut bytes) {
            Err(e) if what == What::Chunk => read_inodes(dev, geom, addr, len).ok_or(Error::Io(e)),
            done => Ok(done.map(|()| bytes)?),
        }
    };
    let mut bytes = read.map_or_else(read_once, Ok)?;
    // Damaged inodes of a chunk are refused one by one, see `Core::note_damage`.
    let check = |bytes: &[u8]| match what {
        What::Chunk => Ok(()),
        What::Block(t) => check_block(geom, t, addr, bytes).and_then(|()| validate::block(t, addr, bytes)),
    };
    if check(&bytes).is_err() || what == What::Chunk && !inodes_of(geom, addr, &bytes).all(is_sound) {
        bytes = read_once()?;
    }
    check(&bytes)?;
    Ok(bytes)
}

/// What stands in place of an inode that cannot be read.
const UNREAD: u8 = 0xff;

/// The inodes of a chunk one by one, if any of them can be read.
fn read_inodes(dev: &dyn Device, geom: &Geom, addr: Daddr, len: usize) -> Option<Vec<u8>> {
    let (mut bytes, size) = (zeroed(len), geom.inode_size());
    let unread = what_can_be_read(dev, kind_of(What::Chunk), addr.byte(), &mut bytes, size);
    let mut inodes: Vec<&mut [u8]> = bytes.chunks_mut(size).collect();
    if unread.len() == inodes.len() {
        return None;
    }
    unread.iter().filter_map(|n| inodes.get_mut(*n).map(|inode| inode.fill(UNREAD))).for_each(drop);
    Some(bytes)
}

/// Whether the checksum of an inode is right. One that was never used has none, only zeros.
fn is_sound((ino, inode): (u64, &[u8])) -> bool {
    let unused = Dinode::ref_from_prefix(inode).is_ok_and(|(d, _)| d.magic.get() == 0);
    if unused { inode.iter().all(|b| *b == 0) } else { check_inode(ino, inode).is_ok() }
}

/// The inodes of a chunk with their numbers.
pub(crate) fn inodes_of<'a>(geom: &Geom, addr: Daddr, chunk: &'a [u8]) -> impl Iterator<Item = (u64, &'a [u8])> {
    let size = geom.inode_size();
    chunk.chunks_exact(size).enumerate().map(move |(n, inode)| (addr.0 + (n * size) as u64 / SECTOR, inode))
}

/// Groups of buffers that are read by one request each: reading the gap between them costs less than another request.
pub(crate) fn neighbours(mut all: Vec<BufferId>) -> Vec<Vec<BufferId>> {
    const GAP: u64 = 64 << 10;
    const MOST: u64 = 1 << 20;
    all.sort_unstable_by_key(|b| b.0);
    let mut groups: Vec<Vec<BufferId>> = Vec::new();
    for one in all {
        let end = one.0.byte() + one.1 as u64;
        match groups.last_mut() {
            Some(g)
                if g.last().is_some_and(|l| one.0.byte() <= l.0.byte() + l.1 as u64 + GAP)
                    && g.first().is_some_and(|f| end - f.0.byte() <= MOST) =>
            {
                g.push(one);
            }
            _ => groups.push(vec![one]),
        }
    }
    groups
}

/// Inodes that failed their check when their chunk was read, or could not be read with it (`None`): only these are refused.
#[derive(Default)]
pub(crate) struct Damaged(FxHashMap<u64, Option<Corrupt>>);

impl Damaged {
    /// Remembers the damaged inodes of a chunk just read.
    pub fn note(&mut self, geom: &Geom, addr: Daddr, chunk: &[u8]) {
        for (ino, inode) in inodes_of(geom, addr, chunk) {
            match validate::inode(geom, ino, inode) {
                Ok(()) => drop(self.0.remove(&ino)),
                Err(_) if inode.iter().all(|b| *b == UNREAD) => drop(self.0.insert(ino, None)),
                Err(c) => drop(self.0.insert(ino, Some(c))),
            }
        }
    }

    /// Why an inode is refused.
    pub fn get(&self, ino: Ino) -> Option<Error> {
        let unread = || Error::Io(std::io::Error::other(format!("inode {ino} cannot be read")));
        self.0.get(&ino.0).map(|damage| damage.clone().map_or_else(unread, Error::from))
    }

    /// The parts of a chunk, from `lo` to `hi`, that have been read: what has not stays on the device as it is.
    pub fn known(&self, addr: u64, (lo, hi): (usize, usize), inode_size: usize) -> Vec<Range<usize>> {
        if self.0.is_empty() {
            return std::iter::once(lo..hi).collect();
        }
        let is_known = |at: &usize| self.0.get(&addr.saturating_add(*at as u64 / SECTOR)).is_none_or(Option::is_some);
        let mut parts: Vec<Range<usize>> = Vec::new();
        for at in (lo..hi).step_by(inode_size).filter(is_known) {
            let end = (at + inode_size).min(hi);
            match parts.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => parts.push(at..end),
            }
        }
        parts
    }

    /// Forgets what was noted for the sectors of a chunk.
    pub fn forget(&mut self, chunk: Range<u64>) {
        self.0.retain(|ino, _| !chunk.contains(ino));
    }

    /// Checksums of damaged inodes of a chunk, and where they are: they stay wrong until fsck has looked.
    pub fn crcs(&self, addr: u64, chunk: &[u8], inode_size: usize) -> Vec<(usize, [u8; 4])> {
        if self.0.is_empty() {
            return Vec::new();
        }
        (0..chunk.len() / inode_size)
            .filter(|n| self.0.contains_key(&(addr + (n * inode_size) as u64 / SECTOR)))
            .filter_map(|n| {
                let at = n * inode_size + CRC_AT;
                Some((at, chunk.get(at..at + 4)?.try_into().ok()?))
            })
            .collect()
    }
}
