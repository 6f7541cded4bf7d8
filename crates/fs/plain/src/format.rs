//! Every on-disk structure of plain, and nothing else. This file is the specification; the tables of
//! `docs/formats/plain.md` are generated from it.
//!
//! All fields are little-endian. Addresses are numbers of blocks of 4 KiB (u32), 0 means none.
//!
//! # Changing the format
//!
//! A change that old code can ignore takes a `compat` bit, one that old code can read past an `ro_compat` bit, anything
//! else an `incompat` bit; a new golden image goes beside the old ones (`tests/golden.rs`), which stay readable.

pub use arbor_base::layout::put_u32;
use arbor_base::layout::{Features, I64, U32, U64, crc_without, hash};
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
pub const SUPER_MAGIC: [u8; 8] = *b"PLN\x00arbo";
/// Format version. A greater one is refused.
pub const VERSION: u32 = 1;
/// Feature bits this code knows.
pub const KNOWN: Features = Features { compat: 0, ro_compat: 0, incompat: 0 };

/// What a bitmap gives away: inodes, or blocks of the data area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Pool {
    /// How many there are.
    pub count: U32,
    /// How many of them are free.
    pub free: U32,
    /// From here on none was ever in use, and what their bitmap and table hold means nothing.
    pub end: U32,
    /// Where the search for a free one begins.
    pub rover: U32,
}

/// Superblock: the first sector of the volume. Its last block begins with a copy, in which `clean` and `orphan` are 0 and the
/// pools are as if nothing had ever been in use.
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
    /// 1 if the volume was unmounted: what the log holds means nothing.
    pub clean: U32,
    /// UUID of the volume. Its SipHash-1-3 with the creation time as the key is the `fsid` of other structures.
    pub uuid: [u8; 16],
    /// Label, padded with NUL.
    pub label: [u8; 64],
    /// Blocks of the volume.
    pub blocks: U32,
    /// Blocks of the log, two equal halves.
    pub log: U32,
    /// Creation time, seconds.
    pub created: I64,
    /// Creation time, nanoseconds.
    pub created_nanos: U32,
    /// First inode of the list of those without names that were in use, 0 if it is empty.
    pub orphan: U32,
    /// Inodes. Number `n` has bit `n`; 0 and 1 are not used.
    pub inodes: Pool,
    /// Blocks of the data area. The first of them has bit 0.
    pub space: Pool,
    /// Zero.
    pub reserved: [u8; 344],
}

arbor_kit::headed!(SuperBlock, "plain", SUPER_MAGIC, VERSION);

/// Head of a block of metadata: of a bitmap, of pointers, of attributes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Head {
    /// `BITMAP_MAGIC`, `INDIRECT_MAGIC` or `XATTR_MAGIC`.
    pub magic: U32,
    /// CRC32C of the block, this field as zero.
    pub crc: U32,
    /// The volume's.
    pub fsid: U64,
    /// Address of the block itself.
    pub block: U32,
    /// Inode that it belongs to; 0 of a bitmap.
    pub owner: U32,
    /// Of attributes, their bytes.
    pub len: U32,
    /// Zero.
    pub reserved: U32,
}

/// Length of [`Head`].
pub const HEAD: usize = size_of::<Head>();
/// Offset of `crc` in a [`Head`].
pub const CRC_AT: usize = 4;
const _: () = assert!(HEAD == 32 && offset_of!(Head, crc) == CRC_AT);

/// Magic of a bitmap: bits follow, 1 for what is in use, from the lowest of the first byte.
pub const BITMAP_MAGIC: u32 = u32::from_le_bytes(*b"pBM1");
/// Magic of an indirect block: pointers (u32) follow.
pub const INDIRECT_MAGIC: u32 = u32::from_le_bytes(*b"pIN1");
/// Magic of extended attributes. Of each the length of the name (u8), zero (u8), the length of the value (u16), name, value.
pub const XATTR_MAGIC: u32 = u32::from_le_bytes(*b"pXA1");

/// Bits of a bitmap block.
pub const BITS: u32 = (BLOCK - HEAD) as u32 * 8;
/// Pointers of an indirect block.
pub const POINTERS: u64 = 1016;
const _: () = assert!(HEAD + POINTERS as usize * 4 == BLOCK);

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
    /// Block of its extended attributes.
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

/// Inode of the root directory.
pub const ROOT: Ino = Ino(2);

/// First block of a record in the log. Copies of blocks follow it, in the order of the addresses that follow the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Record {
    /// `RECORD_MAGIC`.
    pub magic: U32,
    /// Blocks that follow.
    pub count: U32,
    /// The volume's.
    pub fsid: U64,
    /// One more than that of the record before; those of even numbers lie in the first half of the log.
    pub seq: U64,
    /// SipHash-1-3 of this block, this field as zero, and of the copies, with `fsid` and `seq` as the key.
    pub hash: U64,
}

/// Magic of a [`Record`].
pub const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"pLR1");
/// Length of [`Record`].
pub const RECORD: usize = size_of::<Record>();
/// Copies that a record can name.
pub const MOST_COPIES: u32 = 1016;
const _: () = assert!(RECORD + MOST_COPIES as usize * 4 == BLOCK);

impl SuperBlock {
    /// What its copy holds: nothing that changes, but for the label.
    pub fn copy(self) -> SuperBlock {
        let only = |p: Pool| Pool { count: p.count, free: p.count, ..Pool::default() };
        let (inodes, space) = (only(self.inodes), only(self.space));
        SuperBlock { clean: 0.into(), orphan: 0.into(), crc: 0.into(), inodes, space, ..self }
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

/// Where things lie, which follows from the superblock:
/// superblock, log, bitmap of inodes, bitmap of the data area, inodes, data area, copy of the superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Geom {
    /// Blocks of the volume.
    pub blocks: u32,
    /// Blocks of the log.
    pub log: u32,
    /// Inodes.
    pub inodes: u32,
    /// Blocks of the data area.
    pub space: u32,
    /// The volume's number.
    pub fsid: u64,
}

impl Geom {
    /// Of a superblock, which may be anything.
    pub fn of(sb: &SuperBlock) -> Geom {
        let key = (sb.created.get().cast_unsigned(), sb.created_nanos.get().into());
        Geom {
            blocks: sb.blocks.get(),
            log: sb.log.get(),
            inodes: sb.inodes.count.get(),
            space: sb.space.count.get(),
            fsid: hash(key, &sb.uuid),
        }
    }

    /// First block of the bitmap of inodes.
    pub fn inode_bitmap(&self) -> u32 {
        1 + self.log
    }

    /// First block of the bitmap of the data area.
    pub fn space_bitmap(&self) -> u32 {
        self.inode_bitmap() + self.inodes.div_ceil(BITS)
    }

    /// First block of inodes.
    pub fn table(&self) -> u32 {
        self.space_bitmap() + self.space.div_ceil(BITS)
    }

    /// First block of the data area.
    pub fn data(&self) -> u32 {
        self.table() + self.inodes.div_ceil(INODES)
    }

    /// Whether that is what the numbers of the superblock come to.
    pub fn adds_up(&self) -> bool {
        let parts = [1, self.log, self.inodes.div_ceil(BITS), self.space.div_ceil(BITS), self.inodes.div_ceil(INODES)];
        parts.iter().chain(&[self.space, 1]).map(|n| u64::from(*n)).sum::<u64>() == u64::from(self.blocks)
    }

    /// Where the copy of the superblock lies.
    pub fn copy(&self) -> u32 {
        self.blocks - 1
    }

    /// Whether a block belongs to the data area.
    pub fn is_data(&self, block: u32) -> bool {
        (self.data()..self.copy()).contains(&block)
    }

    /// Block of an inode, and where it begins in it; `None` if there is no such inode.
    pub fn inode_at(&self, ino: Ino) -> Option<(u32, usize)> {
        let n = u32::try_from(ino.0).ok().filter(|n| ino >= ROOT && *n < self.inodes)?;
        Some((self.table() + n / INODES, (n % INODES) as usize * INODE))
    }

    /// Half of the log that record `seq` lies in, and how many copies it can have there.
    pub fn half(&self, seq: u64) -> (u32, u32) {
        let half = self.log / 2;
        (1 + if seq.is_multiple_of(2) { 0 } else { half }, (half - 1).min(MOST_COPIES))
    }
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

/// Makes the checksum of a block that begins with a [`Head`].
pub fn seal(bytes: &mut [u8]) {
    let crc = crc_without(bytes, CRC_AT).unwrap_or(0);
    put_u32(bytes, CRC_AT, crc);
}
