//! Every on-disk structure of yFS, and nothing else. This file is the specification;
//! the tables of `docs/formats/yfs.md` are generated from it.
//!
//! All fields are little-endian. Three units of address occur:
//!
//! * **sector**: 512 bytes. Inode numbers and the names of metadata buffers ([`Daddr`]);
//! * **fragment**: the unit of allocation ([`Frag`]), a power of two of bytes;
//! * **block**: a run of fragments, starting at any of them; size of tree nodes and directory
//!   blocks.
//!
//! A volume is a row of equal allocation groups (AGs), the last possibly shorter. Each begins
//! with one block each of superblock copy, group block and inode block, then the bitmap blocks,
//! then inode chunks and data. AGs are initialised in order, when first used.
//!
//! # Changing the format
//!
//! A change that old code can ignore takes a `compat` bit, one that old code can read past an
//! `ro_compat` bit, anything else an `incompat` bit; a new golden image goes beside the old ones
//! (`tests/golden.rs`), which stay readable.

use arbor_base::layout::{Corrupt, Features, I64, U16, U32, U64, crc_without};
use arbor_base::vfs::{Ino, Time};
use std::mem::{offset_of, size_of};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in a sector.
pub const SECTOR: u64 = 512;

/// A fragment's address on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frag(pub u64);

/// A sector's address on the volume; metadata buffers are named by their first sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Daddr(pub u64);

impl Daddr {
    /// Byte address.
    pub fn byte(self) -> u64 {
        self.0.saturating_mul(SECTOR)
    }
}

/// Log sequence number: cycle in the upper half, sector of the log area in the lower (4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lsn(pub u64);

impl Lsn {
    /// From its parts.
    pub fn new(cycle: u32, sector: u32) -> Lsn {
        Lsn(u64::from(cycle) << 32 | u64::from(sector))
    }
    /// How often the log has wrapped.
    pub fn cycle(self) -> u32 {
        (self.0 >> 32) as u32
    }
    /// Sector within the log area.
    pub fn sector(self) -> u32 {
        self.0 as u32
    }
}

/// A run of fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// First fragment.
    pub start: Frag,
    /// Number of fragments.
    pub len: u32,
}

/// First bytes of a superblock.
pub const SUPER_MAGIC: [u8; 8] = *b"yFS\x00arbo";
/// Format version. A greater one is refused.
pub const VERSION: u32 = 1;
/// Feature bits this code knows.
pub const KNOWN: Features = Features { compat: 0, ro_compat: 0, incompat: INCOMPAT_EXTERNAL_LOG | INCOMPAT_WITNESS };
/// The log is on another device.
pub const INCOMPAT_EXTERNAL_LOG: u32 = 1;
/// Log records may have witnesses (`EntryType::Witness`).
pub const INCOMPAT_WITNESS: u32 = 2;

/// Superblock: at byte 0 of the volume; copies in the sector after it, at the start of AG 1, and
/// at the start of every initialised AG. The first is changed through the log; `clean` and
/// `mounts` only directly, at mount and unmount, and by the checker.
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
    /// 1 if the volume was unmounted and the log is empty.
    pub clean: U32,
    /// UUID of the volume; its first eight bytes are the `fsid` of every block.
    pub uuid: [u8; 16],
    /// Label, padded with NUL.
    pub label: [u8; 64],
    /// log2 of the fragment size in bytes.
    pub frag_shift: U32,
    /// log2 of the block size in bytes.
    pub block_shift: U32,
    /// log2 of the inode size in bytes.
    pub inode_shift: U32,
    /// Allocation groups.
    pub ag_count: U32,
    /// Fragments of the volume that belong to AGs.
    pub frags: U64,
    /// Fragments of every AG but the last.
    pub ag_frags: U64,
    /// AGs initialised so far: 0 to this, exclusive.
    pub ag_used: U32,
    /// Bitmap blocks of every AG.
    pub bitmap_blocks: U32,
    /// First sector of the log area, on the log device if it is external.
    pub log_start: U64,
    /// Sectors of the log area.
    pub log_sectors: U64,
    /// Inode number of the root directory.
    pub root: U64,
    /// Seed of the directory hash.
    pub hash_seed: U32,
    /// Average file size in bytes, for directory space reservation (3.3).
    pub avg_file_size: U32,
    /// Average number of files in a directory, likewise.
    pub avg_files_per_dir: U32,
    /// Blocks of one file in one AG before it moves to another (3.3).
    pub maxblkpg: U32,
    /// Times mounted for writing.
    pub mounts: U64,
    /// Creation time, seconds.
    pub created: I64,
    /// Zero.
    pub reserved: [u8; 304],
}

arbor_kit::headed!(SuperBlock, "yFS", SUPER_MAGIC, VERSION);

/// Structure type of a metadata block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum BlockType {
    /// AG group block: free space.
    Group = u32::from_le_bytes(*b"yGRP"),
    /// AG inode block: counts, recovery list, root of the inode chunk tree.
    Inodes = u32::from_le_bytes(*b"yINO"),
    /// AG bitmap block.
    Bitmap = u32::from_le_bytes(*b"yBMP"),
    /// Node of the tree of inode chunks.
    ChunkNode = u32::from_le_bytes(*b"yCHK"),
    /// Node of the tree of a file's extents.
    ExtentNode = u32::from_le_bytes(*b"yEXT"),
    /// Node of the tree of a directory's block descriptors.
    DirNode = u32::from_le_bytes(*b"yDND"),
    /// Directory block.
    Dir = u32::from_le_bytes(*b"yDIR"),
    /// Extended attributes that do not fit the inode.
    Xattr = u32::from_le_bytes(*b"yXAT"),
    /// Target of a symbolic link that does not fit the inode.
    Symlink = u32::from_le_bytes(*b"ySYM"),
}

impl BlockType {
    /// All of them.
    pub const ALL: [BlockType; 9] = [
        BlockType::Group,
        BlockType::Inodes,
        BlockType::Bitmap,
        BlockType::ChunkNode,
        BlockType::ExtentNode,
        BlockType::DirNode,
        BlockType::Dir,
        BlockType::Xattr,
        BlockType::Symlink,
    ];

    /// Name used in errors.
    pub fn name(self) -> &'static str {
        match self {
            BlockType::Group => "AG group block",
            BlockType::Inodes => "AG inode block",
            BlockType::Bitmap => "AG bitmap block",
            BlockType::ChunkNode => "inode chunk tree node",
            BlockType::ExtentNode => "extent tree node",
            BlockType::DirNode => "directory tree node",
            BlockType::Dir => "directory block",
            BlockType::Xattr => "extended attribute block",
            BlockType::Symlink => "symbolic link block",
        }
    }
}

/// Header of every metadata block (not of superblocks and inodes, which carry their own).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockHeader {
    /// `BlockType`.
    pub magic: U32,
    /// CRC32C of the whole block, this field as zero. Made when the block is written in place.
    pub crc: U32,
    /// First eight bytes of the UUID.
    pub fsid: U64,
    /// Own address, in sectors.
    pub addr: U64,
    /// Inode number of the owner; the number of the AG for AG structures.
    pub owner: U64,
    /// Length of the block in bytes.
    pub len: U32,
    /// Zero.
    pub reserved: U32,
}

/// Length of [`BlockHeader`] in bytes.
pub const HEADER: usize = size_of::<BlockHeader>();
const _: () = assert!(HEADER == 40);

/// Offset of `crc` in [`BlockHeader`] and [`Dinode`].
pub const CRC_AT: usize = 4;
const _: () = assert!(offset_of!(BlockHeader, crc) == CRC_AT && offset_of!(Dinode, crc) == CRC_AT);

/// Body of the AG group block.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct GroupBody {
    /// Free fragments.
    pub free: U32,
    /// Directories in this AG.
    pub dirs: U32,
    /// Fragments of this AG.
    pub frags: U32,
    /// Zero.
    pub reserved: U32,
}

/// Body of the AG inode block; the root node of the chunk tree follows it, to the block's end.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InodesBody {
    /// Inodes that exist, used or free.
    pub total: U32,
    /// Free ones among them.
    pub free: U32,
    /// First inode of the AG inode recovery list (4.4), 0 if it is empty.
    pub recovery: U64,
}

/// Inodes in a chunk.
pub const CHUNK_INODES: u64 = 64;

/// Root area of a node body: record count, level, zeros. See `btree.rs`.
pub const NODE_HEADER: usize = 8;
/// Bytes of an inode chunk record's value: mask of free inodes, bit i for inode i.
pub const CHUNK_VALUE: usize = 8;
/// Bytes of an extent record's value: first fragment (u64), length (u32), flags (u32).
pub const EXTENT_VALUE: usize = 16;
/// Bytes of a directory block descriptor's value: first fragment (u64).
pub const DIR_VALUE: usize = 8;

/// Flag of an extent record: allocated but never written, reads as zeros.
pub const UNWRITTEN: u32 = 1;

/// What the area after the fixed part of an inode holds (3.4, figure 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Format {
    /// The inode is free.
    #[default]
    Free = 0,
    /// The file's data, a directory's entries, or a symbolic link's target.
    Inline = 1,
    /// Root node of level 0: an array of extents or directory block descriptors.
    Extent = 2,
    /// Root node of a B*-tree of them.
    Btree = 3,
}

/// Fixed part of an inode. Its number is its sector address.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, PartialEq)]
#[repr(C)]
pub struct Dinode {
    /// `INODE_MAGIC`, or zero if the inode was never used.
    pub magic: U32,
    /// CRC32C of the whole inode, this field as zero. Made when it is written in place.
    pub crc: U32,
    /// Own number.
    pub ino: U64,
    /// Counts the uses of this inode.
    pub generation: U32,
    /// Type and permissions.
    pub mode: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Names it has; of a directory, 2 and its subdirectories.
    pub nlink: U32,
    /// Device number of device nodes.
    pub rdev: U32,
    /// Size in bytes.
    pub size: U64,
    /// Fragments it owns: data, tree nodes, attributes.
    pub frags: U64,
    /// Last access: seconds.
    pub atime: I64,
    /// Last change of data.
    pub mtime: I64,
    /// Last change of the inode.
    pub ctime: I64,
    /// Creation.
    pub btime: I64,
    /// Nanoseconds of `atime`.
    pub atime_ns: U32,
    /// Nanoseconds of `mtime`.
    pub mtime_ns: U32,
    /// Nanoseconds of `ctime`.
    pub ctime_ns: U32,
    /// Nanoseconds of `btime`.
    pub btime_ns: U32,
    /// Parent of a directory.
    pub parent: U64,
    /// Next inode of the AG inode recovery list, 0 at its end.
    pub next: U64,
    /// First fragment of the attribute block, 0 if there is none.
    pub xattr: U64,
    /// Length of the attribute block in fragments.
    pub xattr_frags: U32,
    /// Bytes of attributes at the end of the area.
    pub xattr_inline: U16,
    /// `Format`.
    pub format: u8,
    /// Zero.
    pub reserved: u8,
}

/// Length of [`Dinode`] in bytes.
pub const DINODE: usize = size_of::<Dinode>();
const _: () = assert!(DINODE == 136);
/// First bytes of an inode.
pub const INODE_MAGIC: u32 = u32::from_le_bytes(*b"yNOD");

impl Dinode {
    /// The format, if it is a known one.
    pub fn format(&self) -> Option<Format> {
        Some(match self.format {
            0 => Format::Free,
            1 => Format::Inline,
            2 => Format::Extent,
            3 => Format::Btree,
            _ => return None,
        })
    }
    /// Last access.
    pub fn atime(&self) -> Time {
        Time { secs: self.atime.get(), nanos: self.atime_ns.get() }
    }
    /// Last change of data.
    pub fn mtime(&self) -> Time {
        Time { secs: self.mtime.get(), nanos: self.mtime_ns.get() }
    }
    /// Last change of the inode.
    pub fn ctime(&self) -> Time {
        Time { secs: self.ctime.get(), nanos: self.ctime_ns.get() }
    }
    /// Creation.
    pub fn btime(&self) -> Time {
        Time { secs: self.btime.get(), nanos: self.btime_ns.get() }
    }
    /// Sets the last access.
    pub fn set_atime(&mut self, t: Time) {
        (self.atime, self.atime_ns) = (t.secs.into(), t.nanos.into());
    }
    /// Sets the last change of data.
    pub fn set_mtime(&mut self, t: Time) {
        (self.mtime, self.mtime_ns) = (t.secs.into(), t.nanos.into());
    }
    /// Sets the last change of the inode.
    pub fn set_ctime(&mut self, t: Time) {
        (self.ctime, self.ctime_ns) = (t.secs.into(), t.nanos.into());
    }
    /// Sets the creation.
    pub fn set_btime(&mut self, t: Time) {
        (self.btime, self.btime_ns) = (t.secs.into(), t.nanos.into());
    }
}

/// Head of the entries of a directory: of a directory block after its header, or of the area
/// of an inline directory. Offsets count from this head. An area of zeros is an empty directory.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DirHead {
    /// Offset of the entry with the smallest key, 0 if there is none.
    pub first: U16,
    /// Where the next entry goes, 0 for "after this head".
    pub end: U16,
    /// Entries.
    pub count: U16,
    /// Bytes of live entries.
    pub live: U16,
}

/// Directory entry; the name follows it. Entries are linked in the order of (`hash`, `seq`).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DirEnt {
    /// Offset of the next entry, 0 at the end.
    pub next: U16,
    /// Length of the name in bytes.
    pub name_len: u8,
    /// Type as in the upper four bits of a mode.
    pub kind: u8,
    /// Hash of the name.
    pub hash: U32,
    /// Tells entries of one hash apart; never changes while the entry lives.
    pub seq: U16,
    /// Inode number.
    pub ino: U64,
}

/// Length of [`DirHead`] in bytes.
pub const DIR_HEAD: usize = size_of::<DirHead>();
/// Length of [`DirEnt`] in bytes.
pub const DIR_ENT: usize = size_of::<DirEnt>();
const _: () = assert!(DIR_HEAD == 8 && DIR_ENT == 18);

/// The hash of a directory entry's name: left rotation and XOR (3.5).
pub fn name_hash(seed: u32, name: &[u8]) -> u32 {
    name.iter().fold(seed, |h, &b| h.rotate_left(5) ^ u32::from(b))
}

/// Key of an entry: hash, then `seq`.
pub fn dir_key(hash: u32, seq: u16) -> u64 {
    u64::from(hash) << 16 | u64::from(seq)
}

/// Head of an attribute in the inode or the attribute block; name and value follow it. A list of
/// them ends at the end of the area or at a `name_len` of 0.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct XattrHead {
    /// Length of the name in bytes.
    pub name_len: u8,
    /// Zero.
    pub reserved: u8,
    /// Length of the value in bytes.
    pub value_len: U32,
}

/// Length of [`XattrHead`] in bytes.
pub const XATTR_HEAD: usize = size_of::<XattrHead>();
/// Most bytes of attributes of one inode.
pub const XATTR_MAX: usize = 68 * 1024;

/// Log anchor: sectors 0 and 1 of the log area, written in turn (4.3).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LogAnchor {
    /// `ANCHOR_MAGIC`.
    pub magic: U32,
    /// CRC32C of these 64 bytes, this field as zero.
    pub crc: U32,
    /// First eight bytes of the UUID.
    pub fsid: U64,
    /// Counts the anchors written: the greater of two valid ones holds.
    pub seq: U64,
    /// LSN of the first record that may be needed.
    pub tail: U64,
    /// LSN of the record before the tail, as the tail's `prev` must say.
    pub prev: U64,
    /// Time of writing, seconds.
    pub time: I64,
    /// Number of the mount that uses the log, as the superblock has it from then on; 0 if nobody told.
    pub mounts: U64,
    /// Number of the mount that wrote the records, if it is the one before `mounts`: they are in place, and the log is
    /// about to be emptied. Otherwise 0.
    pub records: U64,
}

/// First bytes of an anchor.
pub const ANCHOR_MAGIC: u32 = u32::from_le_bytes(*b"yANC");
/// Sectors of the log area before the records.
pub const LOG_FIRST: u32 = 2;
const _: () = assert!(size_of::<LogAnchor>() == 64);

/// Head of a log record: the contents of one in-core log buffer, rounded up to sectors (4.3).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LogHeader {
    /// `RECORD_MAGIC`.
    pub magic: U32,
    /// CRC32C of the record, this field as zero.
    pub crc: U32,
    /// First eight bytes of the UUID.
    pub fsid: U64,
    /// Own LSN.
    pub lsn: U64,
    /// LSN of the record before.
    pub prev: U64,
    /// Bytes of entries after this head.
    pub len: U32,
    /// Entries.
    pub count: U32,
    /// Time of writing: seconds.
    pub time: I64,
    /// LSN of the last record that was durable when this one was written; 0 if none of this mount was, or nobody told.
    pub settled: U64,
    /// Zero.
    pub reserved: [u8; 8],
}

/// First bytes of a record.
pub const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"yREC");
/// Length of [`LogHeader`] in bytes.
pub const RECORD_HEAD: usize = size_of::<LogHeader>();
const _: () = assert!(RECORD_HEAD == 64);

/// Head of a log entry (4.2); `len` bytes of data follow an update, nothing the others.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LogEntry {
    /// `EntryType`.
    pub kind: u8,
    /// How the buffer is sealed: `Seal`.
    pub seal: u8,
    /// Zero.
    pub reserved: U16,
    /// Transaction.
    pub tid: U32,
    /// First sector of the buffer or of the data; first fragment of the extent of a free item.
    pub addr: U64,
    /// Where in the buffer; the checksum of a witness.
    pub at: U32,
    /// Length in bytes; of an extent, in fragments.
    pub len: U32,
}

/// Length of [`LogEntry`] in bytes.
pub const LOG_ENTRY: usize = size_of::<LogEntry>();
const _: () = assert!(LOG_ENTRY == 24);

/// Kinds of log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryType {
    /// `len` bytes of the buffer at `addr` from `at` have these new bytes.
    Update = 1,
    /// The buffer of `len` bytes at `addr` was new: all zeros before what follows.
    Init = 2,
    /// The transaction is complete.
    Commit = 3,
    /// The metadata buffer of `len` bytes at `addr` was deleted: earlier entries for it are void.
    Deleted = 4,
    /// "Marked free": an extent that the bitmap still shows in use is to be freed.
    MarkFree = 5,
    /// "Unmark free": the bitmap shows it free now.
    UnmarkFree = 6,
    /// File data of `len` bytes at sector `addr` that was written together with the record; `at` is its
    /// CRC32C. The last record of a log counts only if the data of all its witnesses are there.
    Witness = 7,
}

/// Most witnesses of a record.
pub const WITNESSES: usize = 16;
/// Most bytes of data that a record bears witness to: computing more checksums costs more than a flush.
pub const WITNESSED_BYTES: usize = 128 * 1024;

impl EntryType {
    /// From its number on disk.
    pub fn from_disk(kind: u8) -> Option<EntryType> {
        use EntryType::*;
        [Update, Init, Commit, Deleted, MarkFree, UnmarkFree, Witness].into_iter().find(|t| *t as u8 == kind)
    }
}

/// How a buffer gets its checksums when it is written in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Seal {
    /// A block with a [`BlockHeader`].
    Block = 0,
    /// An inode chunk: each used inode by itself.
    Inodes = 1,
    /// The superblock.
    Super = 2,
}

impl Seal {
    /// From its number on disk.
    pub fn from_disk(seal: u8) -> Option<Seal> {
        [Seal::Block, Seal::Inodes, Seal::Super].into_iter().find(|s| *s as u8 == seal)
    }

    /// Makes the checksums of `bytes`.
    pub fn seal(self, bytes: &mut [u8], inode_size: usize) {
        match self {
            Seal::Block => seal_at(bytes, CRC_AT),
            Seal::Super => seal_at(bytes, offset_of!(SuperBlock, crc)),
            Seal::Inodes => {
                for inode in bytes.chunks_exact_mut(inode_size) {
                    if inode.get(..4) != Some(&[0; 4]) {
                        seal_at(inode, CRC_AT);
                    }
                }
            }
        }
    }
}

fn seal_at(bytes: &mut [u8], at: usize) {
    if let (Some(crc), Some(field)) = (crc_without(bytes, at), bytes.get_mut(at..at + 4)) {
        field.copy_from_slice(&crc.to_le_bytes());
    }
}

/// Where things lie: constants of a mounted volume, from a checked superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geom {
    /// log2 of the fragment size.
    pub frag_shift: u32,
    /// log2 of the block size.
    pub block_shift: u32,
    /// log2 of the inode size.
    pub inode_shift: u32,
    /// Fragments of every AG but the last.
    pub ag_frags: u64,
    /// Fragments of the volume.
    pub frags: u64,
    /// AGs.
    pub ag_count: u32,
    /// Bitmap blocks an AG has.
    pub bitmap_blocks: u32,
    /// First eight bytes of the UUID.
    pub fsid: u64,
    /// Seed of the directory hash.
    pub hash_seed: u32,
}

impl Geom {
    /// A pointer to a block leads out of the AGs. It stands in the owner, an inode or the block of an AG that its tree of
    /// chunks hangs in, or in a block below that.
    pub fn leads_out(&self, kind: BlockType, owner: u64, frag: Frag) -> Corrupt {
        let at = match (kind, u32::try_from(owner)) {
            (BlockType::ChunkNode, Ok(ag)) => self.inode_block(ag).byte(),
            _ => owner.saturating_mul(SECTOR),
        };
        Corrupt::new(kind.name(), "addr", at, frag.0, "a run inside an AG")
    }

    /// Fragment size in bytes.
    pub fn frag_size(&self) -> u64 {
        1 << self.frag_shift
    }
    /// Block size in bytes.
    pub fn block_size(&self) -> usize {
        1 << self.block_shift
    }
    /// Fragments in a block.
    pub fn block_frags(&self) -> u32 {
        1 << (self.block_shift - self.frag_shift)
    }
    /// Inode size in bytes.
    pub fn inode_size(&self) -> usize {
        1 << self.inode_shift
    }
    /// Bytes of an inode after its fixed part.
    pub fn area(&self) -> usize {
        self.inode_size() - DINODE
    }
    /// Sectors in a fragment.
    pub fn frag_sectors(&self) -> u64 {
        self.frag_size() / SECTOR
    }
    /// Bytes of an inode chunk.
    pub fn chunk_size(&self) -> usize {
        (CHUNK_INODES as usize) << self.inode_shift
    }
    /// Sectors of an inode chunk.
    pub fn chunk_sectors(&self) -> u64 {
        self.chunk_size() as u64 / SECTOR
    }
    /// Fragments of an inode chunk.
    pub fn chunk_frags(&self) -> u32 {
        (self.chunk_size() as u64 >> self.frag_shift) as u32
    }
    /// First sector of a fragment.
    pub fn daddr(&self, f: Frag) -> Daddr {
        Daddr(f.0.saturating_mul(self.frag_sectors()))
    }
    /// Fragment that holds a sector.
    pub fn frag_of(&self, d: Daddr) -> Frag {
        Frag(d.0 / self.frag_sectors())
    }
    /// AG that holds a fragment.
    pub fn ag_of(&self, f: Frag) -> u32 {
        u32::try_from(f.0 / self.ag_frags).unwrap_or(u32::MAX)
    }
    /// First fragment of an AG.
    pub fn ag_start(&self, ag: u32) -> Frag {
        Frag(u64::from(ag) * self.ag_frags)
    }
    /// Fragments of an AG.
    pub fn ag_len(&self, ag: u32) -> u32 {
        self.frags.saturating_sub(self.ag_start(ag).0).min(self.ag_frags) as u32
    }
    /// Byte addresses of the superblock copies that exist before any AG but the first is used.
    pub fn early_copies(&self) -> impl Iterator<Item = u64> + use<> {
        let second = (self.ag_count > 1).then(|| self.daddr(self.ag_start(1)).byte());
        [SECTOR].into_iter().chain(second)
    }
    /// Group block of an AG.
    pub fn group_block(&self, ag: u32) -> Daddr {
        self.daddr(Frag(self.ag_start(ag).0 + u64::from(self.block_frags())))
    }
    /// Inode block of an AG.
    pub fn inode_block(&self, ag: u32) -> Daddr {
        self.daddr(Frag(self.ag_start(ag).0 + 2 * u64::from(self.block_frags())))
    }
    /// Bitmap block `n` of an AG.
    pub fn bitmap_block(&self, ag: u32, n: u32) -> Daddr {
        self.daddr(Frag(self.ag_start(ag).0 + (3 + u64::from(n)) * u64::from(self.block_frags())))
    }
    /// Bits in one bitmap block.
    pub fn bits_per_bitmap(&self) -> u32 {
        (self.block_size() - HEADER) as u32 * 8
    }
    /// Fragments at the start of an AG that hold its own structures.
    pub fn ag_meta_frags(&self) -> u32 {
        (3 + self.bitmap_blocks) * self.block_frags()
    }
    /// Fragment (from the AG's start) of the inode chunk each AG is born with.
    pub fn first_chunk(&self) -> u32 {
        self.ag_meta_frags().next_multiple_of(self.chunk_frags())
    }
    /// Whether the run lies inside the volume and inside one AG, after the AG's own structures.
    pub fn valid_run(&self, start: Frag, len: u32) -> bool {
        let ag = self.ag_of(start);
        if ag >= self.ag_count || len == 0 {
            return false;
        }
        let at = start.0 - self.ag_start(ag).0;
        at >= u64::from(self.ag_meta_frags()) && at + u64::from(len) <= u64::from(self.ag_len(ag))
    }
    /// Chunk that holds an inode, and the inode's byte offset in it; `None` if no inode can be
    /// there.
    pub fn inode_at(&self, ino: Ino) -> Option<(Daddr, usize)> {
        let ag_sectors = self.ag_frags.checked_mul(self.frag_sectors())?;
        let inode_sectors = (self.inode_size() as u64) / SECTOR;
        let (ag, at) = (ino.0 / ag_sectors, ino.0 % ag_sectors);
        let chunk = at - at % self.chunk_sectors();
        let start = Frag((ag * ag_sectors + chunk) / self.frag_sectors());
        let ok = ag < u64::from(self.ag_count)
            && (at - chunk).is_multiple_of(inode_sectors)
            && self.valid_run(start, self.chunk_frags());
        ok.then_some((Daddr(ag * ag_sectors + chunk), ((at - chunk) * SECTOR) as usize))
    }
}

/// Checks the CRC and header of a metadata block read from `addr`.
pub fn check_block(geom: &Geom, kind: BlockType, addr: Daddr, bytes: &[u8]) -> Result<(), Corrupt> {
    let bad = |field, found: u64, expected: u64| {
        Corrupt::new(kind.name(), field, addr.byte(), format_args!("{found:#x}"), format_args!("{expected:#x}"))
    };
    let Ok((h, _)) = BlockHeader::ref_from_prefix(bytes) else {
        return Err(bad("len", bytes.len() as u64, HEADER as u64));
    };
    if h.magic.get() != kind as u32 {
        return Err(bad("magic", h.magic.get().into(), (kind as u32).into()));
    }
    let crc = crc_without(bytes, CRC_AT).unwrap_or(0);
    if h.crc.get() != crc {
        return Err(bad("crc", h.crc.get().into(), crc.into()));
    }
    for (field, found, expected) in [
        ("fsid", h.fsid.get(), geom.fsid),
        ("addr", h.addr.get(), addr.0),
        ("len", h.len.get().into(), bytes.len() as u64),
    ] {
        if found != expected {
            return Err(bad(field, found, expected));
        }
    }
    Ok(())
}

/// As [`check_block`], for a block of any kind.
pub fn check_any_block(geom: &Geom, addr: Daddr, bytes: &[u8]) -> Result<(), Corrupt> {
    let magic = BlockHeader::ref_from_prefix(bytes).map_or(0, |(h, _)| h.magic.get());
    let kind = BlockType::ALL.into_iter().find(|t| *t as u32 == magic);
    check_block(geom, kind.unwrap_or(BlockType::Group), addr, bytes)
}

/// Checks one inode read from its place: number, CRC and format. Free inodes pass.
pub fn check_inode(ino: u64, inode: &[u8]) -> Result<(), Corrupt> {
    let bad = |field, found: u64, expected: u64| {
        Corrupt::new("inode", field, ino * SECTOR, format_args!("{found:#x}"), format_args!("{expected:#x}"))
    };
    let Ok((d, _)) = Dinode::ref_from_prefix(inode) else {
        return Err(bad("len", inode.len() as u64, DINODE as u64));
    };
    if d.magic.get() == 0 && d.format == 0 {
        return Ok(());
    }
    let crc = crc_without(inode, CRC_AT).unwrap_or(0);
    if d.magic.get() != INODE_MAGIC {
        return Err(bad("magic", d.magic.get().into(), INODE_MAGIC.into()));
    }
    if d.crc.get() != crc {
        return Err(bad("crc", d.crc.get().into(), crc.into()));
    }
    if d.ino.get() != ino {
        return Err(bad("ino", d.ino.get(), ino));
    }
    if d.format().is_none() {
        return Err(bad("format", d.format.into(), 3));
    }
    Ok(())
}
