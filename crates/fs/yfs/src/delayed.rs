//! Delayed writes: files whose dirty pages have no place on the device yet, or whose size and times are not logged.

use arbor_base::cache::Name;
use arbor_base::vfs::{Ino, Time};

/// What delayed writes have changed of an inode and its transaction has not logged yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delayed {
    pub size: u64,
    pub mtime: Time,
    pub ctime: Time,
    /// Fragments reserved for its dirty pages.
    pub reserved: u64,
    /// Its dirty pages that have unwritten space: each may cut an extent in three.
    pub converting: u64,
    /// Tree nodes kept for its conversions, beside those that are counted by pages.
    pub nodes: u64,
    pub since: Time,
    pub order: u64,
    /// Extents are wanted even if the data would fit the inode.
    pub no_inline: bool,
}

/// Whose data write-back takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    One(Ino),
    /// What became dirty at or before this number of [`Delayed::order`].
    UpTo(u64),
}

/// Data to be written by one batch of write-back.
#[derive(Default)]
pub(crate) struct DataWrites {
    pub pieces: Vec<crate::buffers::Piece>,
    /// File and page of each piece.
    pub owners: Vec<(Ino, u64)>,
    pub pages: Vec<Name>,
    /// The last record bears witness to data of the next file: another record has to come first.
    pub blocked: bool,
}
