//! Free space as a mounted volume knows it: the AGs, and what all of them hold.

use crate::format::*;
use arbor_kit::buddy::Summary;
use std::collections::BTreeMap;

/// An AG in core.
pub(crate) struct Ag {
    pub used: bool,
    /// Free fragments; of an AG not in use yet, what it will have.
    pub free: u32,
    pub dirs: u32,
    pub inodes: u32,
    pub inodes_free: u32,
    pub recovery: u64,
    pub map: Option<Box<Map>>,
    pub first_free: u32,
    pub last: u32,
    /// Chunks with free inodes and their masks, when loaded.
    pub chunks: Option<BTreeMap<u64, u64>>,
    pub last_chunk: u64,
}

pub(crate) struct Map {
    pub bits: Vec<u8>,
    pub summary: Summary,
}

impl Ag {
    /// An AG that nothing was allocated from yet.
    pub fn unused(geom: &Geom, sb: &SuperBlock, ag: u32) -> Ag {
        let meta = geom.ag_meta_frags() + geom.chunk_frags() + log_run(geom, sb, ag).map_or(0, |r| r.1);
        Ag {
            used: false,
            free: geom.ag_len(ag).saturating_sub(meta),
            dirs: 0,
            inodes: 0,
            inodes_free: 0,
            recovery: 0,
            map: None,
            first_free: 0,
            last: 0,
            chunks: None,
            last_chunk: 0,
        }
    }
}

/// The internal log's run in an AG, if it lies there: first fragment within the AG, length.
pub(crate) fn log_run(geom: &Geom, sb: &SuperBlock, ag: u32) -> Option<(u32, u32)> {
    if sb.incompat.get() & INCOMPAT_EXTERNAL_LOG != 0 {
        return None;
    }
    let start = geom.frag_of(Daddr(sb.log_start.get()));
    let len = (sb.log_sectors.get() / geom.frag_sectors()) as u32;
    (geom.ag_of(start) == ag).then(|| ((start.0 - geom.ag_start(ag).0) as u32, len))
}
