//! The segment usage of a log as it is stored.

use crate::segments::Use;
use arbor_base::layout::{I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Entry of the segment usage table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Usage {
    /// Live bytes: of blocks as many as they take in the log, of inodes 256 each.
    pub live: U32,
    /// `DIRTY`, or 0: it may be filled.
    pub flags: U32,
    /// When the youngest block in it was written, seconds.
    pub time: I64,
}

/// Of [`Usage::flags`]: the segment holds something, or is being filled.
pub const DIRTY: u32 = 1;
/// Length of [`Usage`].
pub const USAGE: usize = size_of::<Usage>();
const _: () = assert!(USAGE == 16);

/// What is written at once makes of an entry of the segment usage table.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SegInfo {
    /// The segment.
    pub seg: U32,
    /// Bytes that have died there.
    pub died: U32,
}

crate::fields! {
    Usage { live, flags, time }
    SegInfo { seg, died }
}

impl From<Use> for Usage {
    fn from(u: Use) -> Usage {
        Usage { live: u.live.into(), flags: if u.dirty { DIRTY } else { 0 }.into(), time: u.time.into() }
    }
}

impl From<Usage> for Use {
    fn from(u: Usage) -> Use {
        Use { live: u.live.get(), dirty: u.flags.get() & DIRTY != 0, time: u.time.get() }
    }
}
