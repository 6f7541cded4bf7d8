//! Decoded inodes.

use crate::format::*;
use arbor_base::layout::{Corrupt, Location, crc_without, get_u32};
use arbor_base::vfs::Ino;
use zerocopy::FromBytes;

/// An inode, decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inode {
    pub ino: Ino,
    pub d: Dinode,
}

arbor_kit::usual_fields!(Inode);

impl Inode {
    pub fn corrupt(&self, field: &'static str, found: impl std::fmt::Display, expected: &str) -> Corrupt {
        Corrupt::new("inode", field, Location::inode(self.ino), found, expected)
    }

    /// Counts more blocks of either area, or fewer.
    pub fn count(&mut self, data: i32, meta: i32) {
        self.d.data = self.d.data.get().saturating_add_signed(data).into();
        self.d.meta = self.d.meta.get().saturating_add_signed(meta).into();
    }
}

/// The sound inodes of a volume in the bytes of a block, each with its offset.
pub(crate) fn inodes_in<'a>(geom: &'a Geom, block: &'a [u8]) -> impl DoubleEndedIterator<Item = (usize, Dinode)> + 'a {
    let all = block.chunks_exact(INODE).enumerate().filter_map(|(n, bytes)| {
        let is_sound = crc_without(bytes, CRC_AT) == get_u32(bytes, CRC_AT);
        let d = Dinode::read_from_bytes(bytes).ok().filter(|d| is_sound && d.fsid.get() == geom.fsid)?;
        Some((n * INODE, d))
    });
    all.collect::<Vec<_>>().into_iter()
}
