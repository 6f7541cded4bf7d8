//! Every on-disk structure of Evergreen, and nothing else. This file is the specification.
//!
//! All fields are little-endian. Addresses are numbers of blocks of 4 KiB (u32), 0 means none.
//!
//! # Changing the format
//!
//! A change that old code can ignore takes a `compat` bit, one that old code can read past an `ro_compat` bit, anything
//! else an `incompat` bit.

use arbor_base::layout::{Features, I64, U32, U64, crc_without, hash, put_u32};
use arbor_base::vfs::{Ino, mode};
pub use arbor_kit::dirent::DIRBLKSIZ;
pub use arbor_kit::stamp::Stamp;
use std::mem::{offset_of, size_of};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in a sector: what a device writes whole or not at all.
pub const SECTOR: usize = 512;
/// Bytes in a block.
pub const BLOCK: usize = 4096;
/// log2 of [`BLOCK`].
pub const BLOCK_SHIFT: u32 = 12;

/// First bytes of a superblock.
pub const SUPER_MAGIC: [u8; 8] = *b"EVG\x00arbo";
/// Format version. A greater one is refused.
pub const VERSION: u32 = 1;
/// Feature bits this code knows.
pub const KNOWN: Features = Features { compat: 0, ro_compat: 0, incompat: INCOMPAT_XATTR_BLOCKS };
/// Bit of `incompat`: attributes may have more than one block.
pub const INCOMPAT_XATTR_BLOCKS: u32 = 1;

/// Superblock, the paper's partition boot record: the first sector of the volume, and a copy in the last block but one, in
/// which `clean` and `master` are 0. What changes with each commit is in the master blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SuperBlock {
    /// `SUPER_MAGIC`.
    pub magic: [u8; 8],
    /// CRC32C of the 512 bytes, this field as zero.
    pub crc: U32,
    /// `VERSION`.
    pub version: U32,
    /// Features that may be ignored.
    pub compat: U32,
    /// Features that forbid writing if unknown.
    pub ro_compat: U32,
    /// Features that forbid mounting if unknown.
    pub incompat: U32,
    /// `UNMOUNTED`: `master` says where the newest master block is. `IN_USE`, or `UNORDERED`.
    pub clean: U32,
    /// UUID of the volume. Its SipHash-1-3 with the creation time as the key is the `fsid` of other structures.
    pub uuid: [u8; 16],
    /// Label, padded with NUL.
    pub label: [u8; 64],
    /// Blocks of the volume.
    pub blocks: U32,
    /// Every so many blocks one is reserved for master blocks; the first and the last one are, too (the paper's n).
    pub stride: U32,
    /// Creation time, seconds.
    pub created: I64,
    /// Creation time, nanoseconds.
    pub created_nanos: U32,
    /// Of an unmounted volume, where the newest master block is.
    pub master: U32,
    /// Zero.
    pub reserved: [u8; 376],
}

/// The volume is mounted, or was at a crash.
pub const IN_USE: u32 = 0;
/// The volume was unmounted.
pub const UNMOUNTED: u32 = 1;
/// As `IN_USE`, and blocks that the last commit has were overwritten without a redo list: the checker comes before a mount.
pub const UNORDERED: u32 = 2;

arbor_kit::headed!(SuperBlock, "Evergreen", SUPER_MAGIC, VERSION);

/// Head check-point inode: inode 0 of a master block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CheckPoint {
    /// `MASTER_MAGIC`.
    pub magic: U32,
    /// CRC32C of the block, this field as zero.
    pub crc: U32,
    /// The volume's.
    pub fsid: U64,
    /// One more than that of the commit before.
    pub seq: U64,
    /// Address of the block itself.
    pub block: U32,
    /// The block that was written last before it.
    pub last: U32,
    /// When it was written.
    pub time: Stamp,
    /// Blocks in use, without those that are reserved.
    pub used: U32,
    /// Inodes in use, the first 5 and the last of the master block too.
    pub inodes: U32,
    /// From here on no inode was ever in use.
    pub inode_end: U32,
    /// First inode of the list of those without names that were in use, 0 if it is empty.
    pub orphan: U32,
    /// First block of the redo list; 0 if nothing was overwritten.
    pub redo: U32,
    /// Blocks that the redo list names.
    pub redo_count: U32,
    /// Blocks of the volume, as the superblock has them.
    pub blocks: U32,
    /// Distance of the reserved blocks, as the superblock has it.
    pub stride: U32,
    /// Blocks that older commits alone have, from `intact` on.
    pub kept: U32,
    /// The oldest commit whose blocks are all there; this one's number if there is no older one.
    pub intact: U64,
    /// Zero.
    pub reserved: [u8; 168],
}

/// Tail check-point inode: the last inode of a master block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Tail {
    /// That of the head check-point inode.
    pub seq: U64,
    /// Zero.
    pub reserved: [u8; 248],
}

/// Magic of a [`CheckPoint`].
pub const MASTER_MAGIC: u32 = u32::from_le_bytes(*b"eMA1");
const _: () = assert!(size_of::<CheckPoint>() == INODE && size_of::<Tail>() == INODE);

/// Head of a block of metadata: of a bitmap, of pointers, of attributes, of the redo list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Head {
    /// `BITMAP_MAGIC`, `INDIRECT_MAGIC`, `XATTR_MAGIC`, `XATTR_MORE_MAGIC` or `REDO_MAGIC`.
    pub magic: U32,
    /// CRC32C of the block, this field as zero.
    pub crc: U32,
    /// The volume's.
    pub fsid: U64,
    /// Address of the block itself.
    pub block: U32,
    /// Inode that it belongs to; of the redo list, the lower half of the commit's number.
    pub owner: U32,
    /// Which it is: of a bitmap, its number in the file; of pointers, their number in the level; of the redo list, the next
    /// block; of the first block of attributes, how many more there are; of one of these, its number, from 1 on.
    pub index: U32,
    /// Of pointers, their level; of attributes, the bytes of the list in this block; of the redo list, the blocks that this one
    /// names.
    pub len: U32,
}

/// Length of [`Head`].
pub const HEAD: usize = size_of::<Head>();
/// Offset of `crc` in a [`Head`] and in a [`CheckPoint`].
pub const CRC_AT: usize = 4;
const _: () = assert!(HEAD == 32 && offset_of!(Head, crc) == CRC_AT && offset_of!(CheckPoint, crc) == CRC_AT);

/// Magic of a block of the dBitmap or iBitmap file: bits follow, 1 for what is in use, from the lowest of the first byte.
/// Where the file has a hole, only what is reserved is in use.
pub const BITMAP_MAGIC: u32 = u32::from_le_bytes(*b"eBM1");
/// Magic of an indirect block: pointers (u32) follow.
pub const INDIRECT_MAGIC: u32 = u32::from_le_bytes(*b"eIN1");
/// Magic of the first block of extended attributes: pointers (u32) to those that follow, and the beginning of the list. Of each
/// attribute it has the length of the name (u8), the highest byte of the length of the value (u8), the lower ones (u16), name,
/// value.
pub const XATTR_MAGIC: u32 = u32::from_le_bytes(*b"eXA1");
/// Magic of a further block of extended attributes: the list goes on.
pub const XATTR_MORE_MAGIC: u32 = u32::from_le_bytes(*b"eXM1");
/// Magic of a block of the redo list: [`Redo`]s follow.
pub const REDO_MAGIC: u32 = u32::from_le_bytes(*b"eRE1");

/// A block that is overwritten once the commit that names it is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Redo {
    /// Its address.
    pub block: U32,
    /// Where its new contents are.
    pub copy: U32,
    /// CRC32C of its new contents.
    pub crc: U32,
}

/// Blocks that a block of the redo list can name.
pub const REDOS: usize = 338;
const _: () = assert!(REDOS == (BLOCK - HEAD) / size_of::<Redo>());

/// Bits of a bitmap block.
pub const BITS: u32 = (BLOCK - HEAD) as u32 * 8;
/// Pointers of an indirect block.
pub const POINTERS: u64 = 1016;
const _: () = assert!(HEAD + POINTERS as usize * 4 == BLOCK);

/// Most further blocks of attributes: a value of 64 KiB has room.
pub const XATTR_MORE: u32 = 16;

/// An inode. One of zeros was never used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Dinode {
    /// CRC32C of the inode, with the lower half of `fsid` in this field.
    pub crc: U32,
    /// Its own number.
    pub ino: U32,
    /// Counts the uses of this inode; kept while it is free.
    pub generation: U32,
    /// Type and permissions; 0 if the inode is free.
    pub mode: U32,
    /// Names it has; of a directory, 2 and its subdirectories.
    pub nlink: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Number of a device node.
    pub rdev: U32,
    /// Size in bytes.
    pub size: U64,
    /// Last access.
    pub atime: Stamp,
    /// Last change of data.
    pub mtime: Stamp,
    /// Last change of the inode.
    pub ctime: Stamp,
    /// Creation.
    pub btime: Stamp,
    /// Blocks it owns: data, indirect blocks, attributes.
    pub blocks: U32,
    /// First block of its extended attributes.
    pub xattr: U32,
    /// The next inode of the list of those without names.
    pub next_orphan: U32,
    /// Blocks of the file: 12 direct ones, then the single, the double and the triple indirect block.
    pub map: [U32; 15],
    /// Target of a symbolic link, if it has room here; then `map` is 0.
    pub target: [u8; 96],
}

/// Size of an inode in bytes.
pub const INODE: usize = 256;
/// Inodes of a block.
pub const INODES: u32 = 16;
const _: () = assert!(INODES as usize * INODE == BLOCK);
/// Direct pointers of an inode.
pub const DIRECT: u64 = 12;
/// Longest target of a symbolic link that is kept in its inode.
pub const FAST_LINK: usize = 96;
const _: () = assert!(size_of::<Dinode>() == INODE && offset_of!(Dinode, target) + FAST_LINK == INODE);

/// The self inode: the ifile, whose first block is the master block.
pub const IFILE: Ino = Ino(1);
/// The root directory.
pub const ROOT: Ino = Ino(2);
/// The dBitmap file: which blocks are in use.
pub const DBITMAP: Ino = Ino(3);
/// The iBitmap file: which inodes are in use.
pub const IBITMAP: Ino = Ino(4);
/// Where the tail check-point inode is.
pub const TAIL: u32 = INODES - 1;

/// A master block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Master {
    /// Inode 0: the head check-point inode.
    pub head: CheckPoint,
    /// Inodes 1 to 14.
    pub inodes: [Dinode; 14],
    /// Inode 15: the tail check-point inode.
    pub tail: Tail,
}

const _: () = assert!(size_of::<Master>() == BLOCK);

impl Master {
    /// An inode of the block.
    pub fn inode(&self, ino: Ino) -> Option<&Dinode> {
        self.inodes.get(usize::try_from(ino.0.checked_sub(1)?).ok()?)
    }

    /// The same, to be changed.
    pub fn inode_mut(&mut self, ino: Ino) -> Option<&mut Dinode> {
        self.inodes.get_mut(usize::try_from(ino.0.checked_sub(1)?).ok()?)
    }
}

impl SuperBlock {
    /// Whether the volume was unmounted.
    pub fn is_clean(&self) -> bool {
        self.clean.get() == UNMOUNTED
    }

    /// What its copy holds.
    pub fn copy(self) -> SuperBlock {
        SuperBlock { clean: 0.into(), master: 0.into(), crc: 0.into(), ..self }
    }
}

impl Default for Master {
    fn default() -> Master {
        Master::new_zeroed()
    }
}

impl Default for Dinode {
    fn default() -> Dinode {
        Dinode::new_zeroed()
    }
}

impl Dinode {
    /// Whether it is in use.
    pub fn in_use(&self) -> bool {
        self.mode.get() != 0
    }

    /// Type bits of the mode.
    pub fn kind(&self) -> u32 {
        self.mode.get() & mode::IFMT
    }

    /// Whether its target is in it.
    pub fn is_fast_link(&self) -> bool {
        self.kind() == mode::IFLNK && self.size.get() <= FAST_LINK as u64
    }

    /// The checksum that it should have.
    pub fn checksum(&self, fsid: u64) -> u32 {
        let d = Dinode { crc: (fsid as u32).into(), ..*self };
        arbor_base::layout::crc(d.as_bytes())
    }
}

/// Where things lie, which follows from the superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Geom {
    /// Blocks of the volume.
    pub blocks: u32,
    /// Distance of the blocks that are reserved for master blocks.
    pub stride: u32,
    /// The volume's number.
    pub fsid: u64,
}

impl Geom {
    /// Of a superblock, which may be anything.
    pub fn of(sb: &SuperBlock) -> Geom {
        let key = (sb.created.get().cast_unsigned(), sb.created_nanos.get().into());
        Geom { blocks: sb.blocks.get(), stride: sb.stride.get().max(1), fsid: hash(key, &sb.uuid) }
    }

    /// Where the copy of the superblock lies.
    pub fn copy(&self) -> u32 {
        self.blocks.saturating_sub(2)
    }

    /// Whether a master block may be written to a block: the first one after the superblock, the last one, every n-th.
    pub fn is_for_master(&self, block: u32) -> bool {
        let is_one = block == 1 || block == self.blocks.saturating_sub(1) || block.is_multiple_of(self.stride);
        is_one && block > 0 && block < self.blocks && block != self.copy()
    }

    /// The blocks that are reserved for master blocks, in their order.
    pub fn masters(&self) -> impl Iterator<Item = u32> + use<> {
        let (geom, stride) = (*self, self.stride);
        let every = (1..=(geom.blocks - 1) / stride).map(move |n| n * stride);
        let first = std::iter::once(1).filter(move |_| stride != 1);
        let last = std::iter::once(geom.blocks - 1).filter(move |last| !last.is_multiple_of(stride));
        first.chain(every).chain(last).filter(move |block| geom.is_for_master(*block))
    }

    /// The reserved block nearest to a block, but for those that are `taken` (paper, III).
    pub fn master_near(&self, block: u32, taken: &[u32]) -> u32 {
        let (at, most) = (block / self.stride, taken.len() as u32 + 2);
        let some = (at.saturating_sub(most)..=at.saturating_add(most)).map(|n| n.saturating_mul(self.stride));
        let some = some.chain([1, self.blocks - 1]).filter(|b| self.is_for_master(*b) && !taken.contains(b));
        some.min_by_key(|b| b.abs_diff(block)).unwrap_or(1)
    }

    /// Whether a block may belong to a file.
    pub fn is_data(&self, block: u32) -> bool {
        block > 1 && block < self.copy() && !self.is_for_master(block)
    }

    /// Blocks that may belong to files.
    pub fn space(&self) -> u32 {
        let between = self.copy().saturating_sub(2);
        // Of the multiples of the stride those from 2 on, before the copy.
        let reserved = self.copy().saturating_sub(1) / self.stride - u32::from(self.stride == 1);
        between.saturating_sub(reserved)
    }
}

/// Offset of a pointer in an indirect block, or in the first block of attributes.
pub fn entry_at(index: usize) -> usize {
    HEAD + index * 4
}

/// Byte address of a block.
pub fn byte(block: u32) -> u64 {
    u64::from(block) << BLOCK_SHIFT
}

/// Blocks of a file of so many bytes.
pub fn blocks_of(size: u64) -> u64 {
    size.div_ceil(BLOCK as u64)
}

/// Blocks of the largest file.
pub const MOST_BLOCKS: u64 = DIRECT + POINTERS + POINTERS * POINTERS + POINTERS * POINTERS * POINTERS;

/// Makes the checksum of a block that begins with a [`Head`] or a [`CheckPoint`].
pub fn seal(bytes: &mut [u8]) {
    let crc = crc_without(bytes, CRC_AT).unwrap_or(0);
    put_u32(bytes, CRC_AT, crc);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the sentences say, for small volumes.
    #[test]
    fn reserved_blocks() {
        for (blocks, stride) in [(64, 8), (65, 8), (66, 8), (67, 8), (100, 1024), (640, 64), (641, 64), (1000, 2)] {
            let geom = Geom { blocks, stride, fsid: 0 };
            let slow: Vec<u32> = (0..blocks).filter(|b| geom.is_for_master(*b)).collect();
            assert_eq!(geom.masters().collect::<Vec<_>>(), slow, "{blocks} {stride}");
            assert!(slow.contains(&1) && slow.contains(&(blocks - 1)));
            assert_eq!((0..blocks).filter(|b| geom.is_data(*b)).count() as u32, geom.space(), "{blocks} {stride}");
            for block in 0..blocks {
                let near = geom.master_near(block, &[]);
                let least = slow.iter().map(|b| b.abs_diff(block)).min().unwrap();
                assert_eq!(near.abs_diff(block), least, "{blocks} {stride} {block}");
                let other = geom.master_near(block, &[near]);
                let next = slow.iter().filter(|b| **b != near).map(|b| b.abs_diff(block)).min().unwrap();
                assert_eq!(other.abs_diff(block), next, "{blocks} {stride} {block}");
            }
        }
    }
}
