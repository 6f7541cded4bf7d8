//! The nodes of the tree as they lie on disk, and nothing else.
//!
//! All fields are little-endian. Addresses are numbers of blocks of the size of a node (u32); 0 means none.

use arbor_base::layout::{U16, U32, U64};
use std::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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

const _: () = assert!(NODE_HEAD == 32 && ITEM_HEAD == 24 && CHILD == 20 && ENTRY_HEAD == 18);

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
