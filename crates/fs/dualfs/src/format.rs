//! Every on-disk structure of DualFS, and nothing else. This file is the specification; the tables of
//! `docs/formats/dualfs.md` are generated from it.
//!
//! All fields are little-endian. A volume has two areas, both in blocks of one size that are numbered from the beginning of
//! the volume:
//!
//! * **metadata area**: the superblock, two checkpoints, a copy of the superblock, a block each; then **segments** of a
//!   power of two of blocks, each written once from its start to its end, in *partial segments* ([`MetaBlock`]).
//! * **data area**: contents of regular files, in **groups** of blocks ([`DataBlock`]). The first ones belong to the metadata
//!   area once the border was moved ([`INCOMPAT_BORDER`]).
//!
//! Metadata are the inodes, indirect blocks, blocks of directories, of symbolic links and of attributes, and the *ifile*,
//! which holds the segment usage table, the descriptors and bitmaps of the groups, and the inode map. Each has one copy,
//! in the log. A pointer has the checksum of what it points to ([`Pointer`]), so that every block is verified when it is
//! read, but for contents that were overwritten where they lie.
//!
//! # Changing the format
//!
//! A change that old code can ignore takes a `compat` bit, one that old code can read past an `ro_compat` bit, anything
//! else an `incompat` bit.

pub use arbor_base::cache::FileBlock;
use arbor_base::layout::{Features, I64, Location, Role, U32, U64, crc_without};
use arbor_base::vfs::{Ino, mode};
use arbor_kit::blockmap::Shape;
pub use arbor_kit::dirent::{DIRBLKSIZ, DIRENT_HEAD, DirentHead, dirent_len};
pub use arbor_kit::stamp::Stamp;
pub use arbor_kit::usage::{DIRTY, SegInfo, USAGE, Usage};
use std::mem::{offset_of, size_of};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in a sector: what a device writes whole or not at all.
pub const SECTOR: usize = 512;

/// Number of a block of the metadata area; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MetaBlock(pub u32);

/// Number of a block of the data area; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DataBlock(pub u32);

/// Number of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seg(pub u32);

/// Number of a group of data blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group(pub u32);

/// First bytes of a superblock.
pub const SUPER_MAGIC: [u8; 8] = *b"DUALarbo";
/// Format version. A greater one is refused.
pub const VERSION: u32 = 1;
/// Feature bits this code knows.
pub const KNOWN: Features = Features { compat: 0, ro_compat: 0, incompat: INCOMPAT_TWO_DEVICES | INCOMPAT_BORDER };
/// Bit of `incompat`: the data area lies on a device of its own, whose first [`HEADS`] blocks hold a
/// [`DataHead`] each. (Bit 1 was that of volumes with one head, which are not read any more.)
pub const INCOMPAT_TWO_DEVICES: u32 = 2;
/// Bit of `incompat`: the metadata area need not end at `data_at`. On one device it may go on in the first blocks of the data
/// area, which their bitmaps call used; on two it may end before, and the addresses between are nobody's.
pub const INCOMPAT_BORDER: u32 = 4;

/// Superblock: what hardly ever changes. In the first block of the volume and, as a copy, in the fourth.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
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
    /// Tells the volume from those that lay in its place before, perhaps with its UUID.
    pub salt: U32,
    /// UUID of the volume. Its first eight bytes as a number, exclusive or `salt` times 0x9e3779b97f4a7c15 (modulo 2^64),
    /// are the `fsid` of other structures.
    pub uuid: [u8; 16],
    /// Label, padded with NUL.
    pub label: [u8; 64],
    /// log2 of the block size in bytes.
    pub block_shift: U32,
    /// log2 of the segment size in bytes.
    pub seg_shift: U32,
    /// Blocks of a group; a multiple of 8, at most as many as a block has bits.
    pub group_blocks: U32,
    /// Segments that there can be: no checkpoint has more.
    pub segs: U32,
    /// Byte at which the data area begins: where the last segment ends, or did when the volume was made. Addresses count on
    /// there if it has a device of its own.
    pub data_at: U64,
    /// Creation time, seconds.
    pub created: I64,
    /// Zero.
    pub reserved: [u8; 368],
}

const _: () = assert!(offset_of!(SuperBlock, crc) == CRC_AT);
arbor_kit::headed!(SuperBlock, "DualFS", SUPER_MAGIC, VERSION);

/// Offset of `crc` in a superblock, a checkpoint, a [`DataHead`] and an inode.
pub const CRC_AT: usize = 8;

/// First bytes of a [`DataHead`].
pub const DATA_MAGIC: [u8; 8] = *b"DUALdata";

/// What a data device begins with, twice, each in a block that belongs to no file.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DataHead {
    /// `DATA_MAGIC`.
    pub magic: [u8; 8],
    /// CRC32C of the 512 bytes, this field as zero.
    pub crc: U32,
    /// Zero.
    pub reserved0: U32,
    /// The volume's, by UUID and `salt`.
    pub fsid: U64,
    /// Number of the last mount for writing, as in the checkpoints: it is written before the first of them.
    pub epoch: U64,
    /// That mount's stamp, and that of the mount before, as in the checkpoints; 0 if nobody told.
    pub stamp: U64,
    /// See `stamp`.
    pub before: U64,
    /// 1 since there is a checkpoint of that mount.
    pub begun: U32,
    /// Zero.
    pub reserved: [u8; 460],
}

const _: () = assert!(size_of::<DataHead>() == SECTOR && offset_of!(DataHead, crc) == CRC_AT);

/// Blocks at the beginning of a data device that hold a [`DataHead`].
pub const HEADS: u32 = 2;

/// Blocks before the first segment: superblock, two checkpoints, copy of the superblock.
pub const FIRST: u32 = 4;

/// The numbers of the volume's state, beside its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Totals {
    /// Inodes that the inode map has entries for.
    pub inodes: U32,
    /// First free one among them, 0 if there is none.
    pub free_ino: U32,
    /// Inodes in use.
    pub used_inodes: U32,
    /// First inode of the list of those without names that were in use, 0 if it is empty.
    pub orphan: U32,
    /// Data blocks that files count, also those that have no place yet.
    pub data: U32,
    /// Metadata blocks that files count: of their maps, directories, targets and attributes.
    pub meta: U32,
}

/// First bytes of a checkpoint.
pub const CHECKPOINT_MAGIC: [u8; 8] = *b"DUALckpt";

/// A checkpoint: where the volume's state begins. There are two, in the second and the third block; the one with the
/// greater `serial` counts. With the label, they are the only metadata that are written over.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Checkpoint {
    /// `CHECKPOINT_MAGIC`.
    pub magic: [u8; 8],
    /// CRC32C of the 512 bytes, this field as zero.
    pub crc: U32,
    /// Blocks of the data area.
    pub data_blocks: U32,
    /// The volume's, by UUID and `salt`.
    pub fsid: U64,
    /// One more than that of the checkpoint before.
    pub serial: U64,
    /// Number of the mount that wrote it; partial segments of another mount do not follow it.
    pub epoch: U64,
    /// Number of the next set of partial segments.
    pub set: U64,
    /// Ordinal number of the filling of `seg`: no two have the same.
    pub fill: U64,
    /// Segment that is being filled.
    pub seg: U32,
    /// Blocks of it that are filled.
    pub offset: U32,
    /// The segment after it.
    pub next_seg: U32,
    /// Metadata block that holds the ifile's inode.
    pub ifile: U32,
    /// 1 if nothing was written after it: the volume was unmounted.
    pub clean: U32,
    /// The numbers of the state.
    pub totals: Totals,
    /// Time, seconds.
    pub time: I64,
    /// Segments, with [`INCOMPAT_BORDER`]; without it 0: those of the superblock.
    pub segs: U32,
    /// Of a volume on two devices: what tells this mount from others of the same number, by its time; 0 if nobody told.
    pub stamp: U64,
    /// Zero.
    pub reserved: [u8; 392],
}

const _: () = assert!(size_of::<Checkpoint>() == SECTOR);
const _: () = assert!(offset_of!(Checkpoint, crc) == CRC_AT);

/// The role of the device for data.
pub const DATA: &str = "data";
/// Magic of a [`Summary`].
pub const SUMMARY_MAGIC: u32 = u32::from_le_bytes(*b"DSS1");
/// Of [`Summary::flags`]: the last partial segment of its set. A set counts whole or not at all.
pub const LAST: u32 = 1;
/// Of [`Summary::flags`]: its set holds blocks of the ifile for a checkpoint. Without that checkpoint they mean nothing.
pub const IFILE_ONLY: u32 = 2;

/// Head of a partial segment. After it come [`BlockInfo`]s, [`InodeInfo`]s, [`SegInfo`]s, [`RunInfo`]s and [`GroupInfo`]s;
/// then, from the next block on, the blocks in the order of their infos, and blocks of inodes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Summary {
    /// `SUMMARY_MAGIC`.
    pub magic: U32,
    /// CRC32C of the summary's blocks, this field as zero.
    pub crc: U32,
    /// The volume's, by UUID and `salt`.
    pub fsid: U64,
    /// Number of the set.
    pub set: U64,
    /// Number of the mount.
    pub epoch: U64,
    /// Ordinal number of the filling of this segment.
    pub fill: U64,
    /// Place in the set, from 0.
    pub index: U32,
    /// `LAST`, `IFILE_ONLY`.
    pub flags: U32,
    /// Blocks of the summary.
    pub own: U32,
    /// Blocks of the partial segment, with the summary.
    pub len: U32,
    /// The segment in which the log goes on when this one is full.
    pub next_seg: U32,
    /// CRC32C of everything after the summary.
    pub data_crc: U32,
    /// [`BlockInfo`]s.
    pub blocks: U32,
    /// [`InodeInfo`]s.
    pub inodes: U32,
    /// [`SegInfo`]s.
    pub segs: U32,
    /// [`RunInfo`]s.
    pub runs: U32,
    /// [`GroupInfo`]s.
    pub groups: U32,
    /// Zero.
    pub reserved: U32,
    /// The numbers of the state, when the set is there.
    pub totals: Totals,
    /// When it was written, seconds.
    pub time: I64,
}

/// Length of [`Summary`].
pub const SUMMARY: usize = size_of::<Summary>();
const _: () = assert!(SUMMARY == 120 && offset_of!(Summary, crc) == SUMMARY_CRC_AT);

/// Offset of `crc` in a [`Summary`].
pub const SUMMARY_CRC_AT: usize = 4;

/// A block in a partial segment.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockInfo {
    /// Its file.
    pub ino: U32,
    /// The file's version: blocks of another one are dead.
    pub version: U32,
    /// Which block of the file: see [`block_code`].
    pub place: U64,
    /// CRC32C of its bytes.
    pub crc: U32,
}

/// Entry of the inode map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MapEntry {
    /// Metadata block that holds the inode, 0 if it is free.
    pub block: U32,
    /// Counts the lives of this number.
    pub version: U32,
    /// Of a free one, the next free one.
    pub next_free: U32,
    /// Zero.
    pub reserved: U32,
}

/// Length of [`MapEntry`].
pub const MAP_ENTRY: usize = size_of::<MapEntry>();

/// Descriptor of a group of data blocks. A table of them is in the ifile; a hole stands for groups that were never used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct GroupDesc {
    /// Data blocks in use.
    pub used: U32,
    /// Directories that have the group.
    pub dirs: U32,
}

/// Length of [`GroupDesc`].
pub const GROUP_DESC: usize = size_of::<GroupDesc>();

/// What a set makes of an entry of the inode map.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InodeInfo {
    /// The inode.
    pub ino: U32,
    /// Its entry.
    pub entry: MapEntry,
}

/// What a set makes of the bitmaps of data blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RunInfo {
    /// The first data block of a run in one group.
    pub first: U32,
    /// How many; with `FREED` if they are free now, in use otherwise.
    pub count: U32,
}

/// Of [`RunInfo::count`]: the blocks were freed.
pub const FREED: u32 = 2147483648;

/// What a set makes of a group's descriptor.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct GroupInfo {
    /// The group.
    pub group: U32,
    /// Its descriptor.
    pub desc: GroupDesc,
}

const _: () = assert!(size_of::<BlockInfo>() == 20 && size_of::<InodeInfo>() == 20 && size_of::<GroupInfo>() == 12);

/// Byte of the ifile where the descriptors of the groups begin; before it is the segment usage table.
pub const GROUPS_AT: u64 = 1024 * 1024 * 1024;
/// Byte of the ifile where the bitmaps begin, a block for each group; a bit that is set says that its block is in use.
pub const BITMAPS_AT: u64 = 2 * 1024 * 1024 * 1024;
/// Byte of the ifile where the inode map begins.
pub const MAP_AT: u64 = 64 * 1024 * 1024 * 1024;

/// Inode of the ifile.
pub const IFILE: Ino = Ino(1);
/// Inode of the root directory.
pub const ROOT: Ino = Ino(2);

/// In a [`Pointer`]: a block that is counted and reads as zeros, and has no place. Of metadata never on disk.
pub const NO_PLACE: u32 = 4294967295;

/// Direct block pointers of an inode.
pub const NDADDR: usize = 12;
/// Indirect ones: single, double, triple.
pub const NIADDR: usize = 3;

/// Pointer to a block: of the data area to contents of regular files, of the metadata area to anything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Pointer {
    /// Its number, 0 for a hole.
    pub block: U32,
    /// CRC32C of its bytes; [`NO_SUM`] of contents that were overwritten in place.
    pub crc: U32,
}

/// In a [`Pointer`] to contents: they have no checksum. (Contents whose checksum is 0 are taken for such.)
pub const NO_SUM: u32 = 0;

/// Length of [`Pointer`].
pub const POINTER: usize = size_of::<Pointer>();

/// An inode. Inodes lie in blocks of their own at the end of a partial segment, in the order in which their files do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Dinode {
    /// The volume's, by UUID and `salt`.
    pub fsid: U64,
    /// CRC32C of the inode, this field as zero.
    pub crc: U32,
    /// Its number.
    pub ino: U32,
    /// Its version, as in the inode map.
    pub version: U32,
    /// Group of data blocks where its data go; of a directory, those of the files in it.
    pub group: U32,
    /// Type and permissions.
    pub mode: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Link count.
    pub nlink: U32,
    /// Device number of a device node.
    pub rdev: U32,
    /// Size in bytes.
    pub size: U64,
    /// Data blocks of it, also those that have no place yet.
    pub data: U32,
    /// Metadata blocks of it, without inodes; of the ifile, of indirect ones only.
    pub meta: U32,
    /// Creation.
    pub btime: Stamp,
    /// Last change of the inode.
    pub ctime: Stamp,
    /// Last change of the contents.
    pub mtime: Stamp,
    /// Last access.
    pub atime: Stamp,
    /// Direct blocks; of a symbolic link of up to 120 bytes these bytes are its target.
    pub db: [Pointer; NDADDR],
    /// Indirect blocks.
    pub ib: [Pointer; NIADDR],
    /// First block of the extended attributes.
    pub xattr: Pointer,
    /// Of an inode without names that is in use, the next one.
    pub next_orphan: U32,
    /// Zero.
    pub reserved: [u8; 16],
}

/// Size of an inode in bytes.
pub const INODE: usize = size_of::<Dinode>();
const _: () = assert!(INODE == 256 && offset_of!(Dinode, crc) == CRC_AT);

/// Longest target of a symbolic link that is kept in its inode.
pub const FAST_LINK: usize = (NDADDR + NIADDR) * POINTER;
/// Where it begins there.
pub const FAST_LINK_AT: usize = offset_of!(Dinode, db);

/// Magic of extended attributes.
pub const XATTR_MAGIC: u32 = u32::from_le_bytes(*b"DXA1");

/// Head of the first block of extended attributes. Pointers to the further ones follow it, then the list (a byte of
/// length of the name, the highest byte of the length of the value, its lower two, name, value; and so on), which goes on
/// in the further blocks from their beginning.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct XattrHead {
    /// `XATTR_MAGIC`.
    pub magic: U32,
    /// Inode that owns them.
    pub ino: U32,
    /// Bytes of the list.
    pub len: U32,
    /// Further blocks.
    pub more: U32,
}

/// Length of [`XattrHead`].
pub const XATTR_HEAD: usize = size_of::<XattrHead>();

/// A block of a file as the number in [`BlockInfo::place`]: the highest byte says what it is (0: a logical block, 1 to 3: an
/// indirect block of that level, 255: extended attributes), the rest its number among those.
pub fn block_code(part: FileBlock) -> u64 {
    let (what, n) = match part {
        FileBlock::Data(lbn) => (0, lbn),
        FileBlock::Map { level, n } => (level, n),
        FileBlock::Xattr(n) => (0xff, n.into()),
    };
    u64::from(what) << 56 | n
}

/// The block of a file that has this number; `None` if it means nothing.
pub fn coded_block(code: u64) -> Option<FileBlock> {
    let (what, n) = ((code >> 56) as u8, code << 8 >> 8);
    match what {
        0 => Some(FileBlock::Data(n)),
        1..=3 => Some(FileBlock::Map { level: what, n }),
        0xff => u32::try_from(n).ok().map(FileBlock::Xattr),
        _ => None,
    }
}

impl Pointer {
    /// Whether it leads to a block on the device.
    pub fn is_placed(self) -> bool {
        !matches!(self.block.get(), 0 | NO_PLACE)
    }

    /// Whether it leads to contents without a checksum.
    pub fn has_no_sum(self) -> bool {
        self.is_placed() && self.crc.get() == NO_SUM
    }
}

impl Dinode {
    /// With the checksum that fits.
    pub fn sealed(self) -> Dinode {
        let crc = crc_without(self.as_bytes(), CRC_AT).unwrap_or(0);
        Dinode { crc: crc.into(), ..self }
    }

    /// Whether its pointers are pointers.
    pub fn has_blocks(&self) -> bool {
        match self.kind() {
            mode::IFREG | mode::IFDIR => true,
            mode::IFLNK => !self.is_fast_link(),
            _ => false,
        }
    }

    /// Whether it is a symbolic link whose target stands in it.
    pub fn is_fast_link(&self) -> bool {
        self.kind() == mode::IFLNK && self.size.get() <= FAST_LINK as u64
    }

    /// Type bits of the mode.
    pub fn kind(&self) -> u32 {
        self.mode.get() & mode::IFMT
    }
}

impl Default for Checkpoint {
    fn default() -> Checkpoint {
        Checkpoint::new_zeroed()
    }
}

/// Sizes and places that follow from the superblock, and those of the areas, which follow from the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geom {
    /// log2 of the block size.
    pub block_shift: u32,
    /// log2 of the segment size.
    pub seg_shift: u32,
    /// Blocks of a group.
    pub group_blocks: u32,
    /// Segments.
    pub segs: u32,
    /// Byte at which the data area begins.
    pub data_at: u64,
    /// Blocks of the data area.
    pub data_blocks: u32,
    /// Those of them, the first ones, that belong to no file.
    pub heads: u32,
    /// The volume's, by UUID and `salt`.
    pub fsid: u64,
}

impl Geom {
    /// Bytes of a block.
    pub fn block(&self) -> usize {
        1 << self.block_shift
    }

    /// Blocks that so many bytes need.
    pub fn blocks_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.block() as u64)
    }

    /// Blocks of a segment.
    pub fn seg_blocks(&self) -> u32 {
        1 << (self.seg_shift - self.block_shift)
    }

    /// Inodes in a block.
    pub fn inodes(&self) -> usize {
        self.block() / INODE
    }

    /// Byte of a metadata block.
    pub fn meta_byte(&self, block: MetaBlock) -> u64 {
        u64::from(block.0) << self.block_shift
    }

    /// Byte of a data block.
    pub fn data_byte(&self, block: DataBlock) -> u64 {
        u64::from(block.0) << self.block_shift
    }

    /// A byte as somebody who looks at it finds it: where the data have a device of their own, counted from that one's start.
    pub fn location(&self, byte: u64) -> Location {
        match byte.checked_sub(self.data_at) {
            Some(byte) if self.heads > 0 => Location::on(Role::Extra(DATA), byte),
            _ => byte.into(),
        }
    }

    /// First data block.
    pub fn data_first(&self) -> u32 {
        (self.data_at >> self.block_shift) as u32
    }

    /// With the sizes of the areas that a checkpoint tells, unchecked.
    pub fn told(&self, cp: &Checkpoint) -> Geom {
        let segs = Some(cp.segs.get()).filter(|segs| *segs != 0).unwrap_or(self.segs);
        Geom { data_blocks: cp.data_blocks.get(), segs, ..*self }
    }

    /// The block after the metadata area.
    pub fn meta_end(&self) -> u32 {
        self.seg_start(Seg(self.segs)).0
    }

    /// The first data block that files can have: before it are heads, or what the metadata area has taken.
    pub fn first_of_files(&self) -> u32 {
        self.data_first().saturating_add(self.heads).max(self.meta_end())
    }

    /// Blocks of the data area that files can have.
    pub fn file_blocks(&self) -> u32 {
        self.data_blocks.saturating_sub(self.first_of_files() - self.data_first())
    }

    /// The byte after the last address of the volume.
    pub fn end(&self) -> u64 {
        self.data_at.saturating_add(u64::from(self.data_blocks) << self.block_shift)
    }

    /// Addresses between the areas that are nobody's, bytes: only two devices have some.
    pub fn gap(&self) -> u64 {
        self.data_at.saturating_sub(self.meta_byte(MetaBlock(self.meta_end())))
    }

    /// Bytes of both areas.
    pub fn size(&self) -> u64 {
        self.end() - self.gap()
    }

    /// Bytes of the data area that the metadata area has not taken.
    pub fn data_size(&self) -> u64 {
        self.end().saturating_sub(self.data_at.max(self.meta_byte(MetaBlock(self.meta_end()))))
    }

    /// Segment of a metadata block; `None` outside of the log.
    pub fn seg_of(&self, block: MetaBlock) -> Option<Seg> {
        let seg = block.0.checked_sub(FIRST)? / self.seg_blocks();
        (seg < self.segs).then_some(Seg(seg))
    }

    /// First block of a segment.
    pub fn seg_start(&self, seg: Seg) -> MetaBlock {
        MetaBlock(FIRST.saturating_add(seg.0.saturating_mul(self.seg_blocks())))
    }

    /// Groups of the data area; the last one may be shorter.
    pub fn groups(&self) -> u32 {
        self.data_blocks.div_ceil(self.group_blocks)
    }

    /// Group of a data block.
    pub fn group_of(&self, block: DataBlock) -> Group {
        Group(block.0.saturating_sub(self.data_first()) / self.group_blocks)
    }

    /// First data block of a group.
    pub fn group_start(&self, group: Group) -> u32 {
        self.data_first().saturating_add(group.0.saturating_mul(self.group_blocks))
    }

    /// Blocks of that group.
    pub fn group_len(&self, group: Group) -> u32 {
        self.data_blocks.saturating_sub(group.0.saturating_mul(self.group_blocks)).min(self.group_blocks)
    }

    /// Groups with blocks before those of files.
    pub fn groups_before_files(&self) -> std::ops::Range<u32> {
        let blocks = self.first_of_files() - self.data_first();
        0..blocks.div_ceil(self.group_blocks.max(1)).min(self.groups())
    }

    /// Whether files can have a block.
    pub fn is_data(&self, block: u32) -> bool {
        (self.first_of_files()..self.data_first().saturating_add(self.data_blocks)).contains(&block)
    }

    /// How the maps of files are built.
    pub fn shape(&self) -> Shape {
        Shape { direct: NDADDR as u64, levels: NIADDR as u8, fanout: (self.block() / POINTER) as u64 }
    }

    /// Greatest size of a file in bytes.
    pub fn max_size(&self) -> u64 {
        (self.shape().blocks() << self.block_shift).min(i64::MAX as u64)
    }

    /// Where the two checkpoints are, byte addresses.
    pub fn checkpoints(&self) -> [u64; 2] {
        [1 << self.block_shift, 2 << self.block_shift]
    }

    /// Where the heads of the data device are, byte addresses; none if there is no such device.
    pub fn heads_at(&self) -> impl Iterator<Item = u64> + use<> {
        let geom = *self;
        (0..geom.heads).map(move |n| geom.data_byte(DataBlock(geom.data_first().saturating_add(n))))
    }

    /// Where the superblock's copy is, a byte address.
    pub fn copy_at(&self) -> u64 {
        3 << self.block_shift
    }
}
