//! Every on-disk structure of ReiserFS, and nothing else. This file is the specification; the tables of
//! `docs/formats/reiserfs.md` are generated from it.
//!
//! All fields are little-endian. Addresses are numbers of blocks of the size of a node (u32); 0 means none.
//!
//! # Changing the format
//!
//! A change that old code can ignore takes a `compat` bit, one that old code can read past an `ro_compat` bit, anything
//! else an `incompat` bit; a new golden image goes beside the old ones (`tests/golden.rs`), which stay readable.

pub use arbor_base::layout::put_u32;
use arbor_base::layout::{Features, I64, U16, U32, U64, crc_without, hash};
use arbor_base::vfs::{Ino, mode};
pub use arbor_kit::stamp::Stamp;
use std::fmt;
use std::mem::{offset_of, size_of};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in a sector: what a device writes whole or not at all.
pub const SECTOR: usize = 512;

/// Bit of [`SuperBlock::clean`]: nothing has to be recovered.
pub const UNMOUNTED: u32 = 1;
/// Bit of [`SuperBlock::clean`]: damage was met, and no check has mended it since. Only in volumes with `INCOMPAT_DENSE`.
pub const DAMAGED: u32 = 2;

/// First bytes of a superblock.
pub const SUPER_MAGIC: [u8; 8] = *b"RFS\x00arbo";
/// Format version. A greater one is refused.
pub const VERSION: u32 = 1;
/// Feature bits this code knows.
pub const KNOWN: Features = Features { compat: 0, ro_compat: 0, incompat: INCOMPAT_DENSE };
/// Stat data are dense: the numbers of `DENSE` in LEB128.
pub const INCOMPAT_DENSE: u32 = 1;

/// Superblock: the first sector of the volume; a map of object numbers ([`IdMap`]) follows it in its block. The last block
/// of the volume begins with a copy, which knows of no tree: its `root`, `height`, `orphan` and `clean` are 0.
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
    /// `UNMOUNTED` if the volume was unmounted, and nothing was written since, and `DAMAGED`.
    pub clean: U32,
    /// UUID of the volume. Its SipHash-1-3 with the creation time as the key is the `fsid` of other structures.
    pub uuid: [u8; 16],
    /// Label, padded with NUL.
    pub label: [u8; 64],
    /// Bytes of a node, and of a block.
    pub node_size: U32,
    /// Blocks of the volume.
    pub blocks: U32,
    /// Blocks of the log.
    pub log: U32,
    /// Root of the tree.
    pub root: U32,
    /// Levels of the tree; 1 if the root is a formatted node.
    pub height: U32,
    /// Free blocks.
    pub free: U32,
    /// Bitmaps that exist. What those after them cover was never in use.
    pub bitmaps: U32,
    /// Elevator: 0 if nodes are placed at growing addresses now, 1 if at falling ones.
    pub direction: U32,
    /// Creation time, seconds.
    pub created: I64,
    /// Creation time, nanoseconds.
    pub created_nanos: U32,
    /// Counts objects that were freed; a new object takes it as its generation.
    pub freed: U32,
    /// Number of the last transaction.
    pub generation: U64,
    /// First object of the list of those without names that were in use, 0 if it is empty.
    pub orphan: U64,
    /// Bitmap in which a block was found when none was free near by; a hint. 0 in volumes of up to 16 bitmaps.
    pub roomy: U32,
    /// Zero.
    pub reserved: [u8; 332],
}

arbor_kit::headed!(SuperBlock, "ReiserFS", SUPER_MAGIC, VERSION);

/// Head of the map of object numbers, after the superblock. Ranges of numbers in use follow ([`IdRange`]), in order; no two
/// of them touch. A number in none of them is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdMap {
    /// `ID_MAP_MAGIC`.
    pub magic: U32,
    /// CRC32C of the rest of the block from the head on, this field as zero.
    pub crc: U32,
    /// The volume's.
    pub fsid: U64,
    /// Ranges. If there is no room for another one, numbers that are freed stay in use.
    pub count: U32,
    /// Zero.
    pub reserved: U32,
}

/// Magic of an [`IdMap`].
pub const ID_MAP_MAGIC: u32 = u32::from_le_bytes(*b"rID1");
/// Where the [`IdMap`] begins in the block of the superblock.
pub const ID_MAP_AT: usize = 512;
/// Length of an [`IdMap`].
pub const ID_MAP: usize = size_of::<IdMap>();

/// Numbers of objects in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdRange {
    /// The first one.
    pub first: U32,
    /// The one after the last.
    pub end: U32,
}

/// Length of an [`IdRange`].
pub const ID_RANGE: usize = size_of::<IdRange>();
const _: () = assert!(ID_MAP == 24 && ID_RANGE == 8 && size_of::<SuperBlock>() == ID_MAP_AT);

/// Head of a bitmap. Bitmap `n` is block `n` times the blocks that one covers; the first one follows the log. After the head
/// come one bit for each block it covers, set if the block is in use, and then one bit for each, set if it holds a node of
/// the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BitmapHead {
    /// `BITMAP_MAGIC`.
    pub magic: U32,
    /// CRC32C of the block, this field as zero.
    pub crc: U32,
    /// The volume's.
    pub fsid: U64,
    /// Address of the block itself.
    pub block: U32,
    /// Zero.
    pub reserved: [u8; 12],
}

/// Magic of a bitmap.
pub const BITMAP_MAGIC: u32 = u32::from_le_bytes(*b"rBM1");
/// Length of [`BitmapHead`].
pub const BITMAP_HEAD: usize = size_of::<BitmapHead>();
const _: () = assert!(BITMAP_HEAD == 32 && offset_of!(BitmapHead, crc) == CRC_AT);

/// Head of the log. There are two, in the first two sectors of its first block, which are written in turn: the one with the
/// greater number counts. Records follow one another from the second block on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LogHead {
    /// `LOG_MAGIC`.
    pub magic: U32,
    /// CRC32C of the head, this field as zero.
    pub crc: U32,
    /// The volume's.
    pub fsid: U64,
    /// Number of the first record that counts. All that came before is in place.
    pub seq: U64,
}

/// Magic of a [`LogHead`].
pub const LOG_MAGIC: u32 = u32::from_le_bytes(*b"rLH1");
/// Length of [`LogHead`].
pub const LOG_HEAD: usize = size_of::<LogHead>();

/// Head of a record: what a transaction has changed. The addresses (u32) of the blocks follow, and from the next block on
/// their copies, in the same order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Record {
    /// `RECORD_MAGIC`.
    pub magic: U32,
    /// Copies.
    pub count: U32,
    /// The volume's.
    pub fsid: U64,
    /// One more than that of the record before.
    pub seq: U64,
    /// SipHash-1-3 of all blocks of the record, this field as zero, with `fsid` and `seq` as the key.
    pub hash: U64,
}

/// Magic of a [`Record`].
pub const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"rLR1");
/// Length of [`Record`].
pub const RECORD: usize = size_of::<Record>();
const _: () = assert!(LOG_HEAD == 24 && RECORD == 32);

/// Greatest length of a log, in bytes.
pub const MOST_LOG_BYTES: usize = 268435456;

/// Least size of a node, in bytes.
pub const LEAST_NODE: usize = 1024;
/// Greatest size of a node, in bytes: offsets in a node have 16 bits.
pub const MOST_NODE: usize = 32768;

/// How a node of the tree begins, formatted or internal. Unformatted nodes hold the bytes of a file and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NodeHead {
    /// `NODE_MAGIC`.
    pub magic: U32,
    /// CRC32C of the node, this field as zero.
    pub crc: U32,
    /// The volume's.
    pub fsid: U64,
    /// Number of the last change of this node; a copy of a node that was moved has a lower one.
    pub generation: U64,
    /// Address of the node itself.
    pub block: U32,
    /// 1 for a formatted node, 2 and more for internal ones.
    pub level: U16,
    /// Items, or children.
    pub count: U16,
}

/// Magic of a node of the tree.
pub const NODE_MAGIC: u32 = u32::from_le_bytes(*b"rTN1");
/// Length of [`NodeHead`].
pub const NODE_HEAD: usize = size_of::<NodeHead>();
/// Offset of `crc` in a [`NodeHead`].
pub const CRC_AT: usize = 4;

/// A key. The order of keys is the layout: what lies together has the same locality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DiskKey {
    /// Packing locality: the number of the directory that the object was made in.
    pub locality: U32,
    /// Number of the object.
    pub object: U32,
    /// Offset in the object, shifted by 4, and the kind of the item in the lower four bits.
    pub offset: U64,
}

/// Head of an item of a formatted node. The heads follow the head of the node; the bodies end at the end of the node, the
/// first item's last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ItemHead {
    /// Its key: that of its first byte, pointer or entry.
    pub key: DiskKey,
    /// Length of the body in bytes.
    pub len: U16,
    /// Where the body begins in the node.
    pub at: U16,
    /// Of an indirect item whose last pointer is the last of its file and leads to a tail, the bytes in use there; else 0.
    pub tail: U16,
    /// Zero.
    pub reserved: U16,
}

/// Length of [`ItemHead`].
pub const ITEM_HEAD: usize = size_of::<ItemHead>();

/// A child of an internal node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Child {
    /// First key of the first formatted node below it.
    pub key: DiskKey,
    /// Its address.
    pub block: U32,
}

/// Length of [`Child`].
pub const CHILD: usize = size_of::<Child>();

/// Head of an entry of a directory item; the name follows it. Entries lie one after the other, in the order of their offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EntryHead {
    /// Offset of its key: the hash of the name, shifted by 8, and a number that tells names of the same hash apart.
    pub offset: U64,
    /// Packing locality of what it names.
    pub locality: U32,
    /// Number of what it names.
    pub object: U32,
    /// File type: the mode's type bits, shifted by 12.
    pub kind: u8,
    /// Length of the name.
    pub len: u8,
}

/// Length of [`EntryHead`].
pub const ENTRY_HEAD: usize = size_of::<EntryHead>();

/// The numbers of dense stat data in their order, as unsigned LEB128. Those that are 0 at the end are left out; zeros follow
/// to a length of 40 bytes, or of another multiple of 8. Seconds and the differences of the other times from the last
/// change of data, in nanoseconds, are signed: 0, -1, 1, -2 are written as 0, 1, 2, 3.
pub const DENSE: [&str; 16] = [
    "StatData.mode",
    "StatData.nlink",
    "StatData.uid",
    "StatData.gid",
    "StatData.generation",
    "StatData.size",
    "StatData.tail",
    "StatData.mtime.secs",
    "StatData.mtime.nanos",
    "StatData.ctime",
    "StatData.atime",
    "StatData.btime",
    "StatData.blocks",
    "StatData.xattr",
    "StatData.above",
    "StatData.rdev",
];

/// Stat data: the first item of an object, its attributes; in volumes without `INCOMPAT_DENSE` as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct StatData {
    /// Type and permissions.
    pub mode: U32,
    /// Names it has; of a directory, 2 and its subdirectories.
    pub nlink: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Number of a device node.
    pub rdev: U32,
    /// Tells objects apart that had the same number, one after the other.
    pub generation: U32,
    /// Size in bytes; of a directory, that of its entries.
    pub size: U64,
    /// Of a directory, its parent; of an object on the list of those without names, the next one, 0 if it is the last.
    pub above: U64,
    /// Unformatted nodes it has.
    pub blocks: U32,
    /// Bytes of its direct items: the end of a file that has them, all of a small one.
    pub tail: U32,
    /// Bytes of its extended attributes.
    pub xattr: U32,
    /// Last access.
    pub atime: Stamp,
    /// Last change of data.
    pub mtime: Stamp,
    /// Last change of attributes.
    pub ctime: Stamp,
    /// Creation.
    pub btime: Stamp,
}

/// Length of [`StatData`].
pub const STAT_DATA: usize = size_of::<StatData>();

const _: () = assert!(NODE_HEAD == 32 && ITEM_HEAD == 24 && CHILD == 20 && ENTRY_HEAD == 18 && STAT_DATA == 100);
const _: () = assert!(offset_of!(NodeHead, crc) == CRC_AT);

/// Offset of the first byte of an object's extended attributes: they follow its body. Of each attribute the length of the
/// name (u8), the highest byte of the length of the value (u8), the lower ones (u16), name, value.
pub const XATTR_OFFSET: u64 = 576460752303423488;

/// Least offset of a name; cookies of `.` and `..` are less.
pub const LEAST_NAME: u64 = 256;

/// Object of the root directory. Its locality is 1.
pub const ROOT_OBJECT: u32 = 2;
/// The root directory.
pub const ROOT: Ino = ino_of(1, ROOT_OBJECT);

/// What an item holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Attributes of an object.
    StatData = 0,
    /// Names in a directory.
    Directory = 1,
    /// Pointers to unformatted nodes.
    Indirect = 2,
    /// Bytes of a file.
    Direct = 3,
    /// Bytes of the list of extended attributes.
    Xattr = 4,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 5] = [Kind::StatData, Kind::Directory, Kind::Indirect, Kind::Direct, Kind::Xattr];
}

/// Greatest offset of a key.
pub const MOST_OFFSET: u64 = 1152921504606846975;

/// A key in core: `<locality, object, offset, kind>`, compared in this order.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u128);

impl Key {
    /// The least key.
    pub const LEAST: Key = Key(0);
    /// The greatest key.
    pub const MOST: Key = Key(u128::MAX);

    /// The key of an item; the offset is at most [`MOST_OFFSET`].
    pub fn new(locality: u32, object: u32, offset: u64, kind: Kind) -> Key {
        let low = offset.min(MOST_OFFSET) << 4 | kind as u64;
        Key(u128::from(locality) << 96 | u128::from(object) << 64 | u128::from(low))
    }

    /// The packing locality.
    pub fn locality(self) -> u32 {
        (self.0 >> 96) as u32
    }

    /// The number of the object.
    pub fn object(self) -> u32 {
        (self.0 >> 64) as u32
    }

    /// The offset in the object.
    pub fn offset(self) -> u64 {
        (self.0 as u64) >> 4
    }

    /// The kind of the item; `None` on a damaged disk.
    pub fn kind(self) -> Option<Kind> {
        Kind::ALL.get((self.0 & 15) as usize).copied()
    }

    /// The same with another offset.
    pub fn at(self, offset: u64) -> Key {
        Key(self.0 & !(u128::from(MOST_OFFSET) << 4) | u128::from(offset.min(MOST_OFFSET)) << 4)
    }

    /// The next greater key.
    pub fn next(self) -> Key {
        Key(self.0.saturating_add(1))
    }

    /// The same for another object.
    pub fn of(self, object: u32) -> Key {
        Key(self.0 & !(u128::from(u32::MAX) << 64) | u128::from(object) << 64)
    }

    /// Whether both belong to items of the same kind of one object.
    pub fn is_of_same(self, other: Key) -> bool {
        self.at(0) == other.at(0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} {} {} ", self.locality(), self.object(), self.offset())?;
        match self.kind() {
            Some(kind) => write!(f, "{kind:?}>"),
            None => write!(f, "kind {}>", self.0 & 15),
        }
    }
}

impl From<DiskKey> for Key {
    fn from(k: DiskKey) -> Key {
        Key(u128::from(k.locality.get()) << 96 | u128::from(k.object.get()) << 64 | u128::from(k.offset.get()))
    }
}

impl From<Key> for DiskKey {
    fn from(k: Key) -> DiskKey {
        DiskKey { locality: k.locality().into(), object: k.object().into(), offset: (k.0 as u64).into() }
    }
}

/// The number of an object as users see it: locality and object.
pub const fn ino_of(locality: u32, object: u32) -> Ino {
    Ino((locality as u64) << 32 | object as u64)
}

/// Locality and object of a number.
pub fn key_of(ino: Ino) -> (u32, u32) {
    ((ino.0 >> 32) as u32, ino.0 as u32)
}

impl SuperBlock {
    /// Whether the volume was unmounted.
    pub fn is_unmounted(&self) -> bool {
        self.clean.get() & UNMOUNTED != 0
    }

    /// Whether it is as it should be, as far as is known without a check.
    pub fn is_clean(&self) -> bool {
        self.clean.get() == UNMOUNTED
    }

    /// The same of a volume that is in use, or not any more; damage stays known. One that has no bit for it does not count as
    /// unmounted then.
    pub fn marked(self, is_unmounted: bool, has_met_damage: bool) -> SuperBlock {
        let has_bit = self.incompat.get() & INCOMPAT_DENSE != 0;
        let damaged = if has_bit && has_met_damage { DAMAGED } else { self.clean.get() & DAMAGED };
        let unmounted = if is_unmounted && (has_bit || !has_met_damage) { UNMOUNTED } else { 0 };
        SuperBlock { clean: (damaged | unmounted).into(), ..self }
    }

    /// What its copy holds: nothing that changes, but for the label.
    pub fn copy(self) -> SuperBlock {
        let zero = SuperBlock::default();
        SuperBlock {
            magic: self.magic,
            version: self.version,
            compat: self.compat,
            ro_compat: self.ro_compat,
            incompat: self.incompat,
            uuid: self.uuid,
            label: self.label,
            node_size: self.node_size,
            blocks: self.blocks,
            log: self.log,
            created: self.created,
            created_nanos: self.created_nanos,
            ..zero
        }
    }
}

impl StatData {
    /// Type bits of the mode.
    pub fn kind(&self) -> u32 {
        self.mode.get() & mode::IFMT
    }
}

/// Where things lie, which follows from the superblock: superblock, log, first bitmap; a bitmap at each multiple of the
/// blocks that one covers; copy of the superblock. All other blocks are nodes, or free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Geom {
    /// Bytes of a node.
    pub node_size: usize,
    /// Blocks of the volume.
    pub blocks: u32,
    /// Blocks of the log.
    pub log: u32,
    /// The volume's number.
    pub fsid: u64,
    /// Stat data are dense.
    pub dense: bool,
}

impl Geom {
    /// Of a superblock, which may be anything.
    pub fn of(sb: &SuperBlock) -> Geom {
        let key = (sb.created.get().cast_unsigned(), sb.created_nanos.get().into());
        let fsid = hash(key, &sb.uuid);
        let dense = sb.incompat.get() & INCOMPAT_DENSE != 0;
        Geom { node_size: sb.node_size.get() as usize, blocks: sb.blocks.get(), log: sb.log.get(), fsid, dense }
    }

    /// Byte address of a block, or length of so many blocks.
    pub fn byte(&self, block: u32) -> u64 {
        u64::from(block) * self.node_size as u64
    }

    /// Blocks of a file of so many bytes.
    pub fn blocks_of(&self, size: u64) -> u64 {
        size.div_ceil(self.node_size as u64)
    }

    /// Blocks that a bitmap covers.
    pub fn covered(&self) -> u32 {
        (self.node_size - BITMAP_HEAD) as u32 * 4
    }

    /// Bytes of the bits of one sort in a bitmap.
    pub fn bit_bytes(&self) -> usize {
        (self.node_size - BITMAP_HEAD) / 2
    }

    /// Bitmaps that cover all blocks.
    pub fn bitmaps(&self) -> u32 {
        self.copy().div_ceil(self.covered())
    }

    /// Block of bitmap `n`.
    pub fn bitmap(&self, n: u32) -> u32 {
        if n == 0 { 1 + self.log } else { n * self.covered() }
    }

    /// Where the copy of the superblock lies.
    pub fn copy(&self) -> u32 {
        self.blocks - 1
    }

    /// Whether a block can hold a node, formatted, internal or unformatted.
    pub fn is_node(&self, block: u32) -> bool {
        block > 1 + self.log && block < self.copy() && !block.is_multiple_of(self.covered())
    }

    /// Blocks that can never be nodes: superblock, log, bitmaps, copy of the superblock.
    pub fn own_blocks(&self) -> u32 {
        2 + self.log + self.bitmaps()
    }

    /// Greatest log, in blocks: the first bitmap tells of it, and a mount reads it.
    pub fn most_log(&self) -> u32 {
        (self.covered() / 2).min((MOST_LOG_BYTES / self.node_size) as u32)
    }

    /// Blocks of a record with so many copies.
    pub fn record_blocks(&self, copies: u32) -> u64 {
        self.blocks_of(RECORD as u64 + 4 * u64::from(copies)).saturating_add(copies.into())
    }

    /// Ranges of object numbers that the map has room for.
    pub fn most_ranges(&self) -> usize {
        (self.node_size - ID_MAP_AT - ID_MAP) / ID_RANGE
    }

    /// Longest direct item, alone in its node.
    pub fn most_direct(&self) -> usize {
        self.node_size - NODE_HEAD - 2 * ITEM_HEAD
    }

    /// Longest file, in bytes.
    pub fn most_size(&self) -> u64 {
        XATTR_OFFSET - self.node_size as u64
    }

    /// The offset that a name has in its directory, if no other name has the same one; 255 more can follow. Names that differ
    /// in their last letters lie close together (the hash "r5" of version 3.6); twenty bits of SipHash-1-3, of which nobody
    /// outside knows the key, keep apart what somebody made to fall together.
    pub fn name_offset(&self, name: &[u8]) -> u64 {
        let r5 = name.iter().fold(0u32, |a, b| {
            let b = u32::from(*b);
            a.wrapping_add(b << 4).wrapping_add(b >> 4).wrapping_mul(11)
        });
        let keyed = hash((self.fsid, !self.fsid), name) & 0xf_ffff;
        (u64::from(r5 >> 1) << 28 | keyed << 8).max(LEAST_NAME)
    }
}

/// Makes the checksum of a block that has it at [`CRC_AT`].
pub fn seal(bytes: &mut [u8]) {
    let crc = crc_without(bytes, CRC_AT).unwrap_or(0);
    put_u32(bytes, CRC_AT, crc);
}
