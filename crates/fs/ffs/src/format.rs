//! Every on-disk structure of FFS, and nothing else. This file is the specification;
//! the tables of `docs/formats/ffs.md` are generated from it.
//!
//! All fields are little-endian. Units of address:
//!
//! * **fragment** ([`Frag`]): the unit of allocation, a power of two of bytes;
//! * **block**: 1 to 8 fragments, aligned to its own size; a file's block `n` is its *logical
//!   block* (`lbn`) `n`. Only the last block of a file of at most 12 blocks may be a run of fragments
//!   shorter than a block, inside one block.
//!
//! A volume is a row of equal cylinder groups, the last possibly shorter. Each begins with a block that
//! holds a superblock copy, a block with its group structure (a header sector, then sectors of bitmaps),
//! and its inodes. The rest is data. In group 0 the summary area follows; in the middle group
//! the journal, if there is one.
//!
//! # Changing the format
//!
//! A change that old code can ignore takes a `compat` bit, one that old code can read past an
//! `ro_compat` bit, anything else an `incompat` bit; a new golden image goes beside the old ones
//! (`tests/golden.rs`), which stay readable.

pub use arbor_base::layout::put_u32;
use arbor_base::layout::{Features, I64, U16, U32, U64, crc, crc_without, get_u32, hash};
use arbor_base::vfs::{Ino, Time, mode};
use arbor_kit::blockmap::Shape;
pub use arbor_kit::dirent::{DIRBLKSIZ, DIRENT_HEAD, DirentHead, dirent_len};
pub use arbor_kit::fragments::Fragments;
use std::mem::{offset_of, size_of};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in a sector: what a device writes whole or not at all.
pub const SECTOR: usize = 512;

/// A fragment's address on the volume; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frag(pub u32);

/// First bytes of a superblock.
pub const SUPER_MAGIC: [u8; 8] = *b"FFS\x00arbo";
/// Format version. A greater one is refused.
pub const VERSION: u32 = 1;
/// Feature bits this code knows.
pub const KNOWN: Features = Features { compat: 0, ro_compat: 0, incompat: 0 };

/// How metadata is kept: in which order what is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Keeping {
    /// Ordered synchronous writes (the original FFS).
    Sync = 1,
    /// Delayed writes in the order of their dependencies (McKusick and Ganger 1999).
    #[default]
    SoftUpdates = 2,
    /// Delayed writes without order.
    Async = 3,
    /// Compound transactions of whole blocks in a journal, data first (as ext3).
    Journal = 4,
}

impl Keeping {
    /// All of them.
    pub const ALL: [Keeping; 4] = [Keeping::Sync, Keeping::SoftUpdates, Keeping::Async, Keeping::Journal];

    /// From the number in a superblock.
    pub fn from_number(n: u32) -> Option<Keeping> {
        Keeping::ALL.into_iter().find(|k| *k as u32 == n)
    }

    /// As the mount option names it.
    pub fn name(self) -> &'static str {
        match self {
            Keeping::Sync => "sync",
            Keeping::SoftUpdates => "softupdates",
            Keeping::Async => "async",
            Keeping::Journal => "journal",
        }
    }
}

/// `clean` of a volume that was unmounted.
pub const UNMOUNTED: u32 = 1;
/// `clean` of a volume that was unmounted after damage was met: the checker should look at it.
pub const DAMAGE_MET: u32 = 2;

/// Superblock: at byte 0 of the volume, with a copy at the start of every cylinder group. Only the first
/// is changed after the volume was made.
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
    /// `UNMOUNTED`, or `DAMAGE_MET`, if the volume was unmounted; then the summary area is right, and the journal empty. Else 0.
    pub clean: U32,
    /// UUID of the volume; its first eight bytes are the `fsid` of other structures.
    pub uuid: [u8; 16],
    /// Label, padded with NUL.
    pub label: [u8; 64],
    /// log2 of the block size in bytes.
    pub block_shift: U32,
    /// log2 of the fragment size in bytes.
    pub frag_shift: U32,
    /// Cylinder groups.
    pub cg_count: U32,
    /// Fragments of every cylinder group but the last.
    pub cg_frags: U32,
    /// Inodes of every cylinder group.
    pub cg_inodes: U32,
    /// `Keeping` of the last mount for writing: what a crash may have left.
    pub keeping: U32,
    /// Fragments of the volume that belong to cylinder groups.
    pub frags: U64,
    /// First fragment of the summary area.
    pub summary_start: U32,
    /// CRC32C of the summary area, if the volume is clean.
    pub summary_crc: U32,
    /// First fragment of the journal, 0 if there is none.
    pub journal_start: U32,
    /// Fragments of the journal.
    pub journal_frags: U32,
    /// First inode of the list of those without names that were in use, 0 if it is empty. Kept by the
    /// journal only.
    pub orphan: U32,
    /// Average file size in bytes, for the placing of directories.
    pub avg_file_size: U32,
    /// Average number of files in a directory, likewise.
    pub avg_files_per_dir: U32,
    /// Percentage of the data space that ordinary writes leave free.
    pub minfree: U32,
    /// Blocks in a cluster: largest transfer, and length of the runs that are looked for.
    pub maxcontig: U32,
    /// Blocks of one file in a row in one cylinder group.
    pub maxbpg: U32,
    /// Blocks left out between two blocks of a file, for a host that is too slow for the next one.
    pub rotdelay: U32,
    /// Zero.
    pub reserved0: U32,
    /// Times mounted for writing.
    pub mounts: U64,
    /// Creation time, seconds.
    pub created: I64,
    /// Zero.
    pub reserved: [u8; 304],
}

const _: () = assert!(offset_of!(SuperBlock, crc) == SUPER_CRC_AT);
arbor_kit::headed!(SuperBlock, "FFS", SUPER_MAGIC, VERSION);

/// Offset of `crc` in a superblock.
pub const SUPER_CRC_AT: usize = 8;

/// What the summary area holds of each cylinder group, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Summary {
    /// Free blocks.
    pub nbfree: U32,
    /// Free fragments outside of free blocks.
    pub nffree: U32,
    /// Free inodes.
    pub nifree: U32,
    /// Directories.
    pub ndir: U32,
}

const _: () = assert!(size_of::<Summary>() == 16);

/// Magic of a [`CgHeader`].
pub const CG_MAGIC: u32 = u32::from_le_bytes(*b"fCG1");

/// First sector of a cylinder group's structure. After it come the sectors of the inode bitmap, then
/// those of the fragment bitmap; see [`BITMAP_BITS`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CgHeader {
    /// `CG_MAGIC`.
    pub magic: U32,
    /// CRC32C of this sector, this field as zero.
    pub crc: U32,
    /// First eight bytes of the UUID.
    pub fsid: U64,
    /// Number of the cylinder group.
    pub cgx: U32,
    /// Fragments of this cylinder group.
    pub frags: U32,
    /// Free blocks, free fragments outside of them, free inodes, directories.
    pub sum: Summary,
    /// `frsum[n]`: free runs of `n` fragments that are no whole block.
    pub frsum: [U32; 8],
    /// Block of this group where the last search ended, in fragments from its start.
    pub rotor: U32,
    /// Likewise for runs of fragments.
    pub frotor: U32,
    /// Likewise for inodes.
    pub irotor: U32,
    /// Inodes from the start of the table whose blocks have been written; the others are free, and what
    /// their blocks hold means nothing.
    pub initediblk: U32,
    /// Inodes of this cylinder group.
    pub inodes: U32,
    /// Zero.
    pub reserved: [u8; 420],
}

const _: () = assert!(size_of::<CgHeader>() == SECTOR);
const _: () = assert!(offset_of!(CgHeader, crc) == CRC_AT);

/// Offset of `crc` in [`CgHeader`], [`XattrHeader`] and [`JournalHeader`].
pub const CRC_AT: usize = 4;

/// Bits in a sector of a bitmap, 1 for what is in use, from the lowest of the first byte. The last four
/// bytes are the CRC32C of those before. A sector of zeros is valid too.
pub const BITMAP_BITS: u32 = (SECTOR as u32 - 4) * 8;

/// Size of an inode in bytes.
pub const INODE: usize = 128;
/// Direct block pointers of an inode.
pub const NDADDR: usize = 12;
/// Indirect ones: single, double, triple.
pub const NIADDR: usize = 3;
/// Inode of the root directory. 0 and 1 are not used.
pub const ROOT: Ino = Ino(2);

/// A time: seconds (34 bits, signed from -2^31) and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Stamp {
    /// Lower 32 bits of the seconds, plus 2^31.
    pub secs: U32,
    /// Nanoseconds, shifted by 2; the lowest two bits are those above `secs`.
    pub nanos: U32,
}

/// An inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Dinode {
    /// Type and permissions; 0 if the inode is free.
    pub mode: U16,
    /// Names it has; of a directory, 2 and its subdirectories.
    pub nlink: U16,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Fragments it owns: data, indirect blocks, attributes.
    pub frags: U32,
    /// Size in bytes.
    pub size: U64,
    /// Last access.
    pub atime: Stamp,
    /// Last change of data.
    pub mtime: Stamp,
    /// Last change of the inode.
    pub ctime: Stamp,
    /// Creation; while the inode is on the orphan list, the next one of that list (in `secs`).
    pub btime: Stamp,
    /// Direct blocks. A symbolic link of up to 60 bytes has its target here and in `ib`, a device node
    /// its number in the first.
    pub db: [U32; NDADDR],
    /// Single, double and triple indirect block.
    pub ib: [U32; NIADDR],
    /// Run of fragments with extended attributes.
    pub xattr: U32,
    /// Counts the uses of this inode; kept while it is free.
    pub generation: U32,
    /// CRC32C of `fsid`, own number and the 124 bytes before. An inode of zeros is free and valid too.
    pub crc: U32,
}

const _: () = assert!(size_of::<Dinode>() == INODE);
const _: () = assert!(offset_of!(Dinode, crc) == INODE - 4);

/// Length of a fast symbolic link's target, at most.
pub const FAST_LINK: usize = 4 * (NDADDR + NIADDR);
/// Where it lies in the inode.
pub const FAST_LINK_AT: usize = offset_of!(Dinode, db);

/// Magic of an [`XattrHeader`].
pub const XATTR_MAGIC: u32 = u32::from_le_bytes(*b"fXA1");

/// Head of a run of fragments with extended attributes: at most a block. Entries follow it: length of the
/// name (u8), zero (u8), length of the value (u16), name, value.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct XattrHeader {
    /// `XATTR_MAGIC`.
    pub magic: U32,
    /// CRC32C of all fragments of the run, this field as zero.
    pub crc: U32,
    /// First eight bytes of the UUID.
    pub fsid: U64,
    /// Inode that owns it.
    pub ino: U32,
    /// Fragments of the run.
    pub frags: U32,
    /// Bytes of entries.
    pub len: U32,
    /// Zero.
    pub reserved: U32,
}

/// Length of [`XattrHeader`].
pub const XATTR_HEADER: usize = size_of::<XattrHeader>();
const _: () = assert!(XATTR_HEADER == 32 && offset_of!(XattrHeader, crc) == CRC_AT);

/// Magic of a [`JournalHeader`].
pub const JOURNAL_MAGIC: u32 = u32::from_le_bytes(*b"fJR1");

/// What a fragment of the journal holds, unless it is a copy of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum JournalKind {
    /// First and last fragment of the journal: where replay begins.
    Tail = 1,
    /// Tags of the copies that follow it.
    Descriptor = 2,
    /// End of a transaction.
    Commit = 3,
}

/// Head of a fragment of the journal.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct JournalHeader {
    /// `JOURNAL_MAGIC`.
    pub magic: U32,
    /// CRC32C of the fragment, this field as zero.
    pub crc: U32,
    /// First eight bytes of the UUID.
    pub fsid: U64,
    /// `JournalKind`.
    pub kind: U32,
    /// Number of the transaction; of a tail, the first to be replayed.
    pub seq: U32,
    /// Of a descriptor, its tags; of a tail, the fragment of the journal where that transaction begins; of
    /// a commit, the descriptors of its transaction.
    pub count: U32,
    /// Zero.
    pub reserved: U32,
}

/// Length of [`JournalHeader`].
pub const JOURNAL_HEADER: usize = size_of::<JournalHeader>();
const _: () = assert!(JOURNAL_HEADER == 32 && offset_of!(JournalHeader, crc) == CRC_AT);

/// What a descriptor says of a copy, or of metadata that is none any more.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct JournalTag {
    /// First fragment on the volume.
    pub frag: U32,
    /// Fragments, 0 for a revocation: copies of this place that stand before it count no more.
    pub frags: U32,
    /// SipHash-1-3 of the copy, with `fsid` and the transaction's number as the key ([`copy_hash`]).
    pub hash: U64,
}

/// Tells whether a copy in the journal is whole. No CRC: inodes and sectors of bitmaps end in their own, and then one
/// of an older transaction could stand for a newer one.
pub fn copy_hash(fsid: u64, seq: u32, copy: &[u8]) -> u64 {
    hash((fsid, seq.into()), copy)
}

/// Length of [`JournalTag`].
pub const JOURNAL_TAG: usize = size_of::<JournalTag>();
const _: () = assert!(JOURNAL_TAG == 16);

/// Largest time that a [`Stamp`] holds, seconds.
const LAST_SEC: i64 = (1 << 34) - (1 << 31) - 1;
/// Smallest one.
const FIRST_SEC: i64 = -(1 << 31);

impl From<Time> for Stamp {
    fn from(t: Time) -> Stamp {
        let secs = (t.secs.clamp(FIRST_SEC, LAST_SEC) - FIRST_SEC) as u64;
        Stamp { secs: (secs as u32).into(), nanos: (t.nanos << 2 | (secs >> 32) as u32).into() }
    }
}

impl From<Stamp> for Time {
    fn from(s: Stamp) -> Time {
        let secs = u64::from(s.nanos.get() & 3) << 32 | u64::from(s.secs.get());
        Time { secs: secs as i64 + FIRST_SEC, nanos: (s.nanos.get() >> 2).min(999_999_999) }
    }
}

impl Default for CgHeader {
    fn default() -> CgHeader {
        CgHeader::new_zeroed()
    }
}

impl Dinode {
    /// Whether it is in use.
    pub fn in_use(&self) -> bool {
        self.mode.get() != 0
    }

    /// Type bits of the mode.
    pub fn kind(&self) -> u32 {
        u32::from(self.mode.get()) & mode::IFMT
    }

    /// Whether the pointers hold a symbolic link's target.
    pub fn is_fast_link(&self) -> bool {
        self.kind() == mode::IFLNK && self.size.get() <= FAST_LINK as u64
    }

    /// Whether the pointers point to blocks.
    pub fn has_blocks(&self) -> bool {
        matches!(self.kind(), mode::IFREG | mode::IFDIR) || self.kind() == mode::IFLNK && !self.is_fast_link()
    }

    /// The same with its checksum made.
    pub fn sealed(mut self, fsid: u64, ino: Ino) -> Dinode {
        self.crc = inode_crc(self.as_bytes(), fsid, ino).into();
        self
    }
}

/// Checksum of an inode's bytes.
pub fn inode_crc(bytes: &[u8], fsid: u64, ino: Ino) -> u32 {
    let mut whole = [0; INODE + 8];
    whole[..8].copy_from_slice(&fsid.to_le_bytes());
    whole[8..12].copy_from_slice(&(ino.0 as u32).to_le_bytes());
    let body = bytes.get(..INODE - 4).unwrap_or(&[]);
    if let Some(place) = whole.get_mut(12..12 + body.len()) {
        place.copy_from_slice(body);
    }
    crc(&whole)
}

/// Sizes and places that follow from the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geom {
    /// log2 of the block size.
    pub block_shift: u32,
    /// log2 of the fragment size.
    pub frag_shift: u32,
    /// Cylinder groups.
    pub cg_count: u32,
    /// Fragments of every group but the last.
    pub cg_frags: u32,
    /// Inodes of every group.
    pub cg_inodes: u32,
    /// Fragments of all groups.
    pub frags: u32,
    /// First eight bytes of the UUID.
    pub fsid: u64,
}

arbor_kit::fragments!(Geom);

impl Geom {
    /// Byte address of a fragment.
    pub fn byte(&self, frag: Frag) -> u64 {
        u64::from(frag.0) << self.frag_shift
    }

    /// Group of a fragment.
    pub fn cg_of(&self, frag: Frag) -> u32 {
        frag.0 / self.cg_frags
    }

    /// First fragment of a group.
    pub fn cg_start(&self, cgx: u32) -> Frag {
        Frag(cgx * self.cg_frags)
    }

    /// Fragments of a group.
    pub fn cg_len(&self, cgx: u32) -> u32 {
        self.cg_frags.min(self.frags.saturating_sub(cgx.saturating_mul(self.cg_frags)))
    }

    /// Where the structure of a group lies.
    pub fn cg_block(&self, cgx: u32) -> Frag {
        Frag(cgx * self.cg_frags + self.block_frags())
    }

    /// Inodes of a block.
    pub fn inodes_per_block(&self) -> u32 {
        (self.block_size() / INODE) as u32
    }

    /// Fragments of a group before its data.
    pub fn meta_frags(&self) -> u32 {
        (2 + self.cg_inodes / self.inodes_per_block()) * self.block_frags()
    }

    /// Sectors of the inode bitmap.
    pub fn inode_sectors(&self) -> u32 {
        self.cg_inodes.div_ceil(BITMAP_BITS)
    }

    /// Sectors of the fragment bitmap.
    pub fn frag_sectors(&self) -> u32 {
        self.cg_frags.div_ceil(BITMAP_BITS)
    }

    /// Inodes of the volume.
    pub fn inodes(&self) -> u32 {
        self.cg_inodes.saturating_mul(self.cg_count)
    }

    /// Group of an inode.
    pub fn cg_of_inode(&self, ino: Ino) -> u32 {
        (ino.0 / u64::from(self.cg_inodes)) as u32
    }

    /// Block of an inode, and where it begins in it; `None` if there is no such inode.
    pub fn inode_at(&self, ino: Ino) -> Option<(Frag, usize)> {
        if ino.0 < ROOT.0 || ino.0 >= u64::from(self.inodes()) {
            return None;
        }
        let (cgx, index) = (self.cg_of_inode(ino), (ino.0 % u64::from(self.cg_inodes)) as u32);
        let (block, at) = (index / self.inodes_per_block(), index % self.inodes_per_block());
        let frag = self.cg_start(cgx).0 + (2 + block) * self.block_frags();
        Some((Frag(frag), at as usize * INODE))
    }

    /// First inode of the block of inodes at `frag`.
    pub fn first_inode(&self, frag: Frag) -> Ino {
        let cgx = self.cg_of(frag);
        let block = (frag.0 % self.cg_frags / self.block_frags()).saturating_sub(2);
        Ino(u64::from(cgx) * u64::from(self.cg_inodes) + u64::from(block * self.inodes_per_block()))
    }

    /// Whether a run lies in the data area of one group, and inside one block or on whole ones.
    pub fn is_data(&self, frag: Frag, frags: u32) -> bool {
        let (cgx, at) = (self.cg_of(frag), frag.0 % self.cg_frags);
        let inside = at.checked_add(frags).is_some_and(|end| end <= self.cg_len(cgx));
        frag.0 < self.frags && frags > 0 && at >= self.meta_frags() && inside
    }

    /// Pointers in an indirect block.
    pub fn nindir(&self) -> u64 {
        (self.block_size() / 4) as u64
    }

    /// How the maps of files are built.
    pub fn shape(&self) -> Shape {
        Shape { direct: NDADDR as u64, levels: NIADDR as u8, fanout: self.nindir() }
    }

    /// Largest size of a file in bytes.
    pub fn max_size(&self) -> u64 {
        self.shape().blocks().saturating_mul(self.block_size() as u64).min(i64::MAX as u64)
    }

    /// Fragments that logical block `lbn` has in a file of `size` bytes (`blksize` of BSD), if it is no
    /// hole: a whole block, except for the last of the direct ones (FFS-F1).
    pub fn lbn_frags(&self, size: u64, lbn: u64) -> u32 {
        let start = lbn << self.block_shift;
        if lbn >= NDADDR as u64 || size >= start + self.block_size() as u64 {
            return self.block_frags();
        }
        self.frags_for(size.saturating_sub(start) as usize)
    }

    /// What the size of a directory of about `size` bytes is a multiple of: it ends with its last block, or with the
    /// fragments of it.
    pub fn dir_unit(&self, size: u64) -> u64 {
        let direct = self.lbn(size.saturating_sub(1)) < NDADDR as u64;
        if direct { self.frag_size() as u64 } else { self.block_size() as u64 }
    }

    /// Fragments of the summary area.
    pub fn summary_frags(&self) -> u32 {
        self.frags_for(self.cg_count as usize * size_of::<Summary>())
    }
}

/// Bit `i` of the bitmap that begins with sector `first` of a group's structure.
pub fn bit(cg: &[u8], first: u32, i: u32) -> bool {
    let (at, mask) = bit_place(first, i);
    cg.get(at).is_some_and(|b| b & mask != 0)
}

/// Byte and mask of a bit, see [`bit`].
pub fn bit_place(first: u32, i: u32) -> (usize, u8) {
    let sector = (first + i / BITMAP_BITS) as usize;
    let within = i % BITMAP_BITS;
    (sector * SECTOR + (within / 8) as usize, 1 << (within % 8))
}

/// Makes the checksums of a group's structure right.
pub fn seal_cg(cg: &mut [u8]) {
    for (i, sector) in cg.chunks_exact_mut(SECTOR).enumerate() {
        if i == 0 {
            let sum = crc_without(sector, CRC_AT).unwrap_or(0);
            put_u32(sector, CRC_AT, sum);
            continue;
        }
        let Some((body, tail)) = sector.split_at_mut_checked(SECTOR - 4) else { continue };
        let sum = if body.iter().all(|b| *b == 0) { 0 } else { crc(body) };
        tail.copy_from_slice(&sum.to_le_bytes());
    }
}

/// First sector of a group's structure with a wrong checksum.
pub fn unsealed_sector(cg: &[u8]) -> Option<usize> {
    cg.chunks_exact(SECTOR).enumerate().position(|(i, sector)| {
        let (body, tail) = sector.split_at(SECTOR - 4);
        match i {
            0 => crc_without(sector, CRC_AT) != get_u32(sector, CRC_AT),
            _ if sector.iter().all(|b| *b == 0) => false,
            _ => tail != crc(body).to_le_bytes(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_keep_times_from_1901_to_2446() {
        for secs in [FIRST_SEC, -1, 0, 1 << 31, 1 << 32, 9 << 30, LAST_SEC] {
            let t = Time { secs, nanos: 999_999_999 };
            assert_eq!(Time::from(Stamp::from(t)), t);
        }
        assert_eq!(Time::from(Stamp::from(Time { secs: i64::MAX, nanos: 0 })).secs, LAST_SEC);
    }

    #[test]
    fn only_the_last_direct_block_is_short() {
        let geom =
            Geom { block_shift: 14, frag_shift: 11, cg_count: 1, cg_frags: 800, cg_inodes: 128, frags: 800, fsid: 0 };
        assert_eq!((geom.lbn_frags(5000, 0), geom.lbn_frags(16384, 0), geom.lbn_frags(16385, 1)), (3, 8, 1));
        assert_eq!((geom.lbn_frags(12 * 16384 + 1, 12), geom.lbn_frags(16384, 1)), (8, 0));
        assert_eq!(geom.shape().blocks(), 12 + 4096 + (1 << 24) + (1 << 36));
    }

    #[test]
    fn a_changed_bit_breaks_the_seal() {
        let mut cg = vec![0; 8192];
        seal_cg(&mut cg);
        assert_eq!(unsealed_sector(&cg), None);
        let (at, mask) = bit_place(1, BITMAP_BITS + 9);
        assert_eq!((at, mask), (1024 + 1, 2));
        cg[at] |= mask;
        assert!(bit(&cg, 1, BITMAP_BITS + 9) && !bit(&cg, 1, BITMAP_BITS + 8));
        assert_eq!(unsealed_sector(&cg), Some(2));
        seal_cg(&mut cg);
        assert_eq!(unsealed_sector(&cg), None);
    }
}
