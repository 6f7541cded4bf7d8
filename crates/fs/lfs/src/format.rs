//! Every on-disk structure of LFS, and nothing else. This file is the specification; the tables of
//! `docs/formats/lfs.md` are generated from it.
//!
//! All fields are little-endian. Units of address:
//!
//! * **fragment** ([`Frag`]): the unit of address, a power of two of bytes;
//! * **block**: 1 to 8 fragments. A file's block `n` is its *logical block* (`lbn`) `n`. Only the last block of a file
//!   of at most 12 blocks may be shorter than a block, a run of fragments;
//! * **segment** ([`Seg`]): a power of two of blocks, written once, from its start to its end, in *partial segments*.
//!
//! The log has two heads, each with a segment that it fills: one for what users change, one for what the cleaner moves.
//! Groups are numbered, and the next one begins where one of the heads stands.
//!
//! A volume begins with a block that holds the superblock, two that hold the checkpoints, and a copy of the superblock;
//! segments fill the rest. A pointer to a block has the checksum of what it points to ([`Pointer`]), so that every
//! block is verified when it is read.
//!
//! # Changing the format
//!
//! A change that old code can ignore takes a `compat` bit, one that old code can read past an `ro_compat` bit, anything
//! else an `incompat` bit.

pub use arbor_base::cache::FileBlock;
use arbor_base::layout::{Features, I64, U16, U32, U64, crc_without};
use arbor_base::vfs::{Ino, Time, mode};
use arbor_kit::blockmap::Shape;
pub use arbor_kit::dirent::{DIRBLKSIZ, DIRENT_HEAD, DirentHead, dirent_len};
pub use arbor_kit::fragments::Fragments;
pub use arbor_kit::usage::{DIRTY, SegInfo, USAGE, Usage};
use std::mem::{offset_of, size_of};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in a sector: what a device writes whole or not at all.
pub const SECTOR: usize = 512;

/// A fragment's address on the volume; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frag(pub u32);

/// Number of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seg(pub u32);

/// First bytes of a superblock.
pub const SUPER_MAGIC: [u8; 8] = *b"LFS\x00arbo";
/// Format version. A greater one is refused.
pub const VERSION: u32 = 1;
/// Feature bits this code knows.
pub const KNOWN: Features = Features { compat: 0, ro_compat: 0, incompat: INCOMPAT_SALT };
/// `salt` is not 0.
pub const INCOMPAT_SALT: u32 = 1;

/// Superblock: what never changes. At byte 0 of the volume and in its fourth block.
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
    /// log2 of the fragment size in bytes.
    pub frag_shift: U32,
    /// log2 of the segment size in bytes.
    pub seg_shift: U32,
    /// First fragment of segment 0.
    pub first: U32,
    /// Creation time, seconds.
    pub created: I64,
    /// Zero.
    pub reserved: [u8; 376],
}

const _: () = assert!(offset_of!(SuperBlock, crc) == CRC_AT);
arbor_kit::headed!(SuperBlock, "LFS", SUPER_MAGIC, VERSION);

/// Offset of `crc` in a superblock and in a checkpoint.
pub const CRC_AT: usize = 8;

/// No segment.
pub const NO_SEG: u32 = 4294967295;

/// First bytes of a checkpoint.
pub const CHECKPOINT_MAGIC: [u8; 8] = *b"LFS\x00ckpt";

/// A checkpoint: where the volume's state begins. There are two, in the second and the third block; the one with the
/// greater `serial` counts. They are the only structures that are written over.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Checkpoint {
    /// `CHECKPOINT_MAGIC`.
    pub magic: [u8; 8],
    /// CRC32C of the 512 bytes, this field as zero.
    pub crc: U32,
    /// 1 if nothing was written after it: the volume was unmounted.
    pub clean: U32,
    /// The volume's, by UUID and `salt`.
    pub fsid: U64,
    /// One more than that of the checkpoint before.
    pub serial: U64,
    /// Number of the mount that wrote it; partial segments of another mount do not follow it.
    pub epoch: U64,
    /// Number of the next group of partial segments.
    pub group: U64,
    /// Segments of the volume.
    pub segs: U32,
    /// Segment that is being filled.
    pub seg: U32,
    /// Fragments of it that are filled.
    pub offset: U32,
    /// The segment after it.
    pub next_seg: U32,
    /// Ordinal number of the filling of `seg`: no two have the same.
    pub fill: U64,
    /// Where the ifile's inode lies.
    pub ifile: U32,
    /// Inodes that the inode map has entries for.
    pub inodes: U32,
    /// First free one among them, 0 if there is none.
    pub free_ino: U32,
    /// Inodes in use.
    pub used_inodes: U32,
    /// Fragments that files count, with their indirect blocks and attributes.
    pub file_frags: U64,
    /// Time, seconds.
    pub time: I64,
    /// First inode of the list of those without names that were in use, 0 if it is empty.
    pub orphan: U32,
    /// Segment that the cleaner fills, `NO_SEG` if it never did.
    pub cold_seg: U32,
    /// Fragments of it that are filled.
    pub cold_offset: U32,
    /// The segment after it.
    pub cold_next: U32,
    /// Ordinal number of the filling of `cold_seg`.
    pub cold_fill: U64,
    /// Zero.
    pub reserved: [u8; 384],
}

const _: () = assert!(size_of::<Checkpoint>() == SECTOR);
const _: () = assert!(offset_of!(Checkpoint, crc) == CRC_AT);

/// Magic of a [`Summary`].
pub const SUMMARY_MAGIC: u32 = u32::from_le_bytes(*b"lSS1");
/// Of [`Summary::flags`]: the last partial segment of its group. A group counts whole or not at all.
pub const LAST: u32 = 1;
/// Of [`Summary::flags`]: its group holds blocks of the ifile for a checkpoint. Without that checkpoint they mean nothing.
pub const IFILE_ONLY: u32 = 2;

/// Head of a partial segment. After it come [`FileInfo`]s, each followed by its [`BlockInfo`]s, then [`InodeInfo`]s, then
/// [`SegInfo`]s; then, from the next fragment on, the blocks in the order of their infos, and the inodes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Summary {
    /// `SUMMARY_MAGIC`.
    pub magic: U32,
    /// CRC32C of the summary's fragments, this field as zero.
    pub crc: U32,
    /// The volume's, by UUID and `salt`.
    pub fsid: U64,
    /// Number of the group.
    pub group: U64,
    /// Number of the mount.
    pub epoch: U64,
    /// Ordinal number of the filling of this segment.
    pub fill: U64,
    /// Place in the group, from 0.
    pub index: U32,
    /// `LAST`, `IFILE_ONLY`.
    pub flags: U32,
    /// Fragments of the summary.
    pub summary_frags: U32,
    /// Fragments of the partial segment, with the summary.
    pub frags: U32,
    /// The segment in which this head of the log goes on when this one is full.
    pub next_seg: U32,
    /// [`FileInfo`]s.
    pub files: U32,
    /// [`InodeInfo`]s.
    pub inodes: U32,
    /// [`SegInfo`]s.
    pub segs: U32,
    /// CRC32C of everything after the summary.
    pub data_crc: U32,
    /// Zero.
    pub reserved: U32,
    /// When the youngest of its blocks was written, seconds (of what the cleaner moves: when users wrote it).
    pub time: I64,
    /// Inodes that the inode map has entries for, when the group is there.
    pub ninodes: U32,
    /// First free one then.
    pub free_ino: U32,
    /// Inodes in use then.
    pub used_inodes: U32,
    /// First inode of the list of those without names.
    pub orphan: U32,
    /// Fragments that files count then.
    pub file_frags: U64,
}

/// Length of [`Summary`].
pub const SUMMARY: usize = size_of::<Summary>();
const _: () = assert!(SUMMARY == 112 && offset_of!(Summary, crc) == 4);

/// Offset of `crc` in a [`Summary`].
pub const SUMMARY_CRC_AT: usize = 4;

/// Blocks of one file in a partial segment (FINFO).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FileInfo {
    /// The file.
    pub ino: U32,
    /// Its version: blocks of another one are dead.
    pub version: U32,
    /// [`BlockInfo`]s that follow.
    pub blocks: U32,
    /// Zero.
    pub reserved: U32,
}

/// A block in a partial segment.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockInfo {
    /// Which block of the file: see [`block_code`].
    pub place: U64,
    /// Its fragments.
    pub frags: U32,
    /// CRC32C of its bytes.
    pub crc: U32,
}

/// Entry of the inode map, which begins at byte [`MAP_AT`] of the ifile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MapEntry {
    /// Fragment that holds the inode, 0 if it is free.
    pub frag: U32,
    /// Counts the lives of this number.
    pub version: U32,
    /// Of a free one, the next free one.
    pub next_free: U32,
    /// Zero.
    pub reserved: U32,
}

/// What a group makes of an entry of the inode map.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InodeInfo {
    /// The inode.
    pub ino: U32,
    /// Its entry.
    pub entry: MapEntry,
}

const _: () = assert!(size_of::<FileInfo>() == 16 && size_of::<BlockInfo>() == 16);
const _: () = assert!(size_of::<InodeInfo>() == 20 && size_of::<SegInfo>() == 8);

/// Length of [`MapEntry`].
pub const MAP_ENTRY: usize = size_of::<MapEntry>();
const _: () = assert!(MAP_ENTRY == 16);
/// Byte of the ifile where the inode map begins.
pub const MAP_AT: u64 = 1024 * 1024 * 1024;

/// Inode of the ifile.
pub const IFILE: Ino = Ino(1);
/// Inode of the root directory.
pub const ROOT: Ino = Ino(2);

/// Address of a block that is not on disk yet; never on disk.
pub const UNWRITTEN: u32 = 4294967295;

/// Direct block pointers of an inode.
pub const NDADDR: usize = 12;
/// Indirect ones: single, double, triple.
pub const NIADDR: usize = 3;

/// Pointer to a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Pointer {
    /// Its first fragment, 0 for a hole.
    pub frag: U32,
    /// CRC32C of its bytes.
    pub crc: U32,
}

/// Length of [`Pointer`].
pub const POINTER: usize = size_of::<Pointer>();
const _: () = assert!(POINTER == 8);

/// A time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Stamp {
    /// Seconds since 1970.
    pub secs: I64,
    /// Nanoseconds.
    pub nanos: U32,
}

/// An inode.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
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
    /// Type and permissions.
    pub mode: U32,
    /// Link count.
    pub nlink: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Device number of a device node.
    pub rdev: U32,
    /// Size in bytes.
    pub size: U64,
    /// Fragments of all its blocks, indirect ones and attributes too; of the ifile, of indirect ones only.
    pub frags: U64,
    /// Last access.
    pub atime: Stamp,
    /// Last change of the contents.
    pub mtime: Stamp,
    /// Last change of the inode.
    pub ctime: Stamp,
    /// Creation.
    pub btime: Stamp,
    /// Direct blocks; of a symbolic link of up to 120 bytes these bytes are its target.
    pub db: [Pointer; NDADDR],
    /// Indirect blocks.
    pub ib: [Pointer; NIADDR],
    /// Extended attributes.
    pub xattr: Pointer,
    /// Length of the attributes in bytes, with their head.
    pub xattr_len: U32,
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

/// A block of a file as the number in [`BlockInfo::place`]: the highest byte says what it is (0: a logical block, 1 to 3: an
/// indirect block of that level, 255: the extended attributes), the rest its number among those.
pub fn block_code(part: FileBlock) -> u64 {
    match part {
        FileBlock::Data(lbn) => lbn,
        FileBlock::Map { level, n } => u64::from(level) << 56 | n,
        FileBlock::Xattr(n) => 0xff << 56 | u64::from(n),
    }
}

/// The block of a file that has this number; `None` if it means nothing.
pub fn coded_block(code: u64) -> Option<FileBlock> {
    let n = code & ((1 << 56) - 1);
    match code >> 56 {
        0 => Some(FileBlock::Data(n)),
        level @ 1..=3 => Some(FileBlock::Map { level: level as u8, n }),
        0xff if n == 0 => Some(FileBlock::Xattr(0)),
        _ => None,
    }
}

impl From<Time> for Stamp {
    fn from(t: Time) -> Stamp {
        Stamp { secs: t.secs.into(), nanos: t.nanos.into() }
    }
}

impl From<Stamp> for Time {
    fn from(s: Stamp) -> Time {
        Time { secs: s.secs.get(), nanos: s.nanos.get().min(999_999_999) }
    }
}

impl Dinode {
    /// Type bits of the mode.
    pub fn kind(&self) -> u32 {
        self.mode.get() & mode::IFMT
    }

    /// Whether its target stands in the inode.
    pub fn is_fast_link(&self) -> bool {
        self.kind() == mode::IFLNK && self.size.get() <= FAST_LINK as u64
    }

    /// Whether its pointers are pointers.
    pub fn has_blocks(&self) -> bool {
        matches!(self.kind(), mode::IFREG | mode::IFDIR) || self.kind() == mode::IFLNK && !self.is_fast_link()
    }

    /// With the checksum that fits.
    pub fn sealed(mut self) -> Dinode {
        self.crc = crc_without(self.as_bytes(), CRC_AT).unwrap_or(0).into();
        self
    }
}

impl Default for Checkpoint {
    fn default() -> Checkpoint {
        Checkpoint::new_zeroed()
    }
}

/// Sizes and places that follow from the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geom {
    /// log2 of the block size.
    pub block_shift: u32,
    /// log2 of the fragment size.
    pub frag_shift: u32,
    /// log2 of the segment size.
    pub seg_shift: u32,
    /// First fragment of segment 0.
    pub first: u32,
    /// The volume's, by UUID and `salt`.
    pub fsid: u64,
}

arbor_kit::fragments!(Geom);

impl Geom {
    /// Fragments of a segment.
    pub fn seg_frags(&self) -> u32 {
        1 << (self.seg_shift - self.frag_shift)
    }

    /// Byte address of a fragment.
    pub fn byte(&self, frag: Frag) -> u64 {
        u64::from(frag.0) << self.frag_shift
    }

    /// Segment of a fragment; `None` before the first one.
    pub fn seg_of(&self, frag: Frag) -> Option<Seg> {
        frag.0.checked_sub(self.first).map(|at| Seg(at / self.seg_frags()))
    }

    /// First fragment of a segment.
    pub fn seg_start(&self, seg: Seg) -> Frag {
        Frag(self.first.saturating_add(seg.0.saturating_mul(self.seg_frags())))
    }

    /// Fragments of logical block `lbn` in a file of `size` bytes: less than a block only of the last (LFS-F1).
    pub fn lbn_frags(&self, size: u64, lbn: u64) -> u32 {
        let start = lbn << self.block_shift;
        let last = size > start && size - start <= self.block_size() as u64;
        if lbn < NDADDR as u64 && last && self.lbn(size - 1) == lbn {
            self.frags_for((size - start) as usize)
        } else if size > start {
            self.block_frags()
        } else {
            0
        }
    }

    /// What the size of a directory of about `size` bytes is a multiple of: it ends with its last block, or with the
    /// fragments of it.
    pub fn dir_unit(&self, size: u64) -> u64 {
        if self.lbn(size.saturating_sub(1)) < NDADDR as u64 {
            self.frag_size() as u64
        } else {
            self.block_size() as u64
        }
    }

    /// Pointers in an indirect block.
    pub fn nindir(&self) -> u64 {
        (self.block_size() / POINTER) as u64
    }

    /// How the maps of files are built.
    pub fn shape(&self) -> Shape {
        Shape { direct: NDADDR as u64, levels: NIADDR as u8, fanout: self.nindir() }
    }

    /// Greatest size of a file in bytes.
    pub fn max_size(&self) -> u64 {
        (self.shape().blocks() << self.block_shift).min(i64::MAX as u64)
    }

    /// Where the two checkpoints are, byte addresses.
    pub fn checkpoints(&self) -> [u64; 2] {
        [1 << self.block_shift, 2 << self.block_shift]
    }

    /// Where the superblock's copy is, a byte address.
    pub fn copy_at(&self) -> u64 {
        3 << self.block_shift
    }
}

/// Magic of extended attributes.
pub const XATTR_MAGIC: u32 = u32::from_le_bytes(*b"lXA1");

/// Head of the extended attributes of an inode: a run of fragments, at most a block. Entries follow it: length of the
/// name (u8), zero (u8), length of the value (u16), name, value.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct XattrHeader {
    /// `XATTR_MAGIC`.
    pub magic: U32,
    /// Inode that owns it.
    pub ino: U32,
    /// Bytes of entries.
    pub len: U32,
    /// Zero.
    pub reserved: U16,
    /// Zero.
    pub reserved1: U16,
}

/// Length of [`XattrHeader`].
pub const XATTR_HEADER: usize = size_of::<XattrHeader>();
const _: () = assert!(XATTR_HEADER == 16);
