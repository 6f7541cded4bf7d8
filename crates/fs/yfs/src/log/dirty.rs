//! Metadata buffers that differ from their places on the device.

use super::Rec;
use crate::format::*;
use arbor_base::device::Kind;

/// What is known of a metadata buffer that differs from its place on the device.
pub(crate) struct Dirty {
    pub seal: Seal,
    pub kind: Kind,
    /// First record with a change that is not in place.
    pub first: Rec,
    /// Last record with a change.
    pub last: Rec,
    pub lo: usize,
    pub hi: usize,
    /// First record with a change made since the write in flight began, and its range.
    pub again: Option<(Rec, usize, usize)>,
}
