//! Free space in core: the AGs, and the sums over all of them.

use crate::format::*;
use arbor_kit::buddy::Summary;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Index, IndexMut};

/// AGs whose bitmap may be in core at one time.
const MAPS: usize = 64;

/// An AG.
pub(crate) struct Ag {
    pub used: bool,
    /// Free fragments; of an unused AG, as many as it will have.
    pub free: u32,
    pub dirs: u32,
    inodes: u32,
    inodes_free: u32,
    pub recovery: u64,
    map: Option<Box<Map>>,
    pub first_free: u32,
    pub last: u32,
    /// Chunks with free inodes and their masks, when loaded.
    pub chunks: Option<BTreeMap<u64, u64>>,
    pub last_chunk: u64,
    /// What says what is free in it is damaged: nothing is given away or freed there.
    shut: bool,
    /// Its headers could not be read at the mount: nothing about it is known.
    pub unknown: bool,
    /// The largest free buddy, as a power of two, when its bitmap was dropped from core; nothing is changed before it is loaded.
    largest: Option<u8>,
}

/// The bitmap of an AG in one piece, and the indexes derived from it.
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
            shut: false,
            unknown: false,
            largest: None,
        }
    }

    /// Fragments that can be given away.
    pub fn free(&self) -> u32 {
        if self.shut { 0 } else { self.free }
    }

    pub fn inodes(&self) -> u32 {
        self.inodes
    }

    /// Inodes that can be given away.
    pub fn inodes_free(&self) -> u32 {
        if self.shut { 0 } else { self.inodes_free }
    }

    /// Free inodes, as its header counts them.
    pub fn inodes_counted(&self) -> u32 {
        self.inodes_free
    }

    pub fn is_shut(&self) -> bool {
        self.shut
    }

    /// Whether no run can be as long as that, as far as is known without its bitmap: a run of 2^(n + 2) holds a buddy of 2^(n + 1).
    pub fn is_too_fragmented(&self, want: u32) -> bool {
        self.largest.is_some_and(|order| u64::from(want) >= 4 << order)
    }

    /// Whether there is no buddy of that order, as far as is known without its bitmap.
    pub fn has_no_buddy(&self, order: u8) -> bool {
        self.largest.is_some_and(|largest| largest < order)
    }
}

/// All AGs, with the sums of what they hold.
pub(crate) struct Space {
    ags: Vec<Ag>,
    /// AGs whose bitmap is loaded, oldest first.
    loaded: VecDeque<u32>,
    free: u64,
    /// Inodes of all AGs in use, and those of them that are free.
    inodes: u64,
    inodes_free: u64,
    /// The pool: fragments kept for tree nodes and the like of delayed allocations.
    pool: u64,
    /// Blocks that the free runs are known to hold at least, and the AG where they were found first.
    blocks_known: u32,
    blocks_at: u32,
    /// The call has passed by an AG that could not be read.
    pub unread: bool,
}

impl Index<u32> for Space {
    type Output = Ag;

    fn index(&self, ag: u32) -> &Ag {
        &self.ags[ag as usize]
    }
}

impl IndexMut<u32> for Space {
    fn index_mut(&mut self, ag: u32) -> &mut Ag {
        &mut self.ags[ag as usize]
    }
}

impl Space {
    /// AGs that nothing was allocated from yet.
    pub fn new(geom: &Geom, sb: &SuperBlock) -> Space {
        let ags: Vec<Ag> = (0..geom.ag_count).map(|ag| Ag::unused(geom, sb, ag)).collect();
        Space {
            free: ags.iter().map(|a| u64::from(a.free)).sum(),
            ags,
            loaded: VecDeque::new(),
            inodes: 0,
            inodes_free: 0,
            pool: (geom.frags / 64).min(u64::from(geom.block_frags()) * 256),
            blocks_known: 0,
            blocks_at: 0,
            unread: false,
        }
    }

    pub fn get(&self, ag: u32) -> Option<&Ag> {
        self.ags.get(ag as usize)
    }

    pub fn ags(&self) -> impl Iterator<Item = &Ag> {
        self.ags.iter()
    }

    /// Free fragments.
    pub fn free(&self) -> u64 {
        self.free
    }

    pub fn pool(&self) -> u64 {
        self.pool
    }

    pub fn inodes_free(&self) -> u64 {
        self.inodes_free
    }

    /// Inodes that exist and are in use.
    pub fn inodes_used(&self) -> u64 {
        self.inodes.saturating_sub(self.inodes_free)
    }

    /// Sets an AG in use from its headers.
    pub fn load(&mut self, ag: u32, group: &GroupBody, inodes: &InodesBody) {
        self.set_free(ag, group.free.get());
        let a = &mut self[ag];
        (a.used, a.dirs) = (true, group.dirs.get());
        (a.inodes, a.inodes_free, a.recovery) = (inodes.total.get(), inodes.free.get(), inodes.recovery.get());
        self.inodes += u64::from(inodes.total.get());
        self.inodes_free += u64::from(inodes.free.get());
    }

    pub fn set_free(&mut self, ag: u32, free: u32) {
        self.free = self.free - u64::from(self[ag].free) + u64::from(free);
        self[ag].free = free;
    }

    /// Whether there is an AG of which nobody knows what is free, or can read it.
    pub fn shuts(&self) -> bool {
        self.unread || self.ags.iter().any(|a| a.shut)
    }

    /// Counts an AG as full, since what says what is free in it cannot be read. It is in use.
    pub fn shut(&mut self, ag: u32) {
        self.free -= u64::from(self[ag].free());
        self.inodes_free -= u64::from(self[ag].inodes_free());
        let a = &mut self[ag];
        (a.used, a.shut) = (true, true);
    }

    /// Replaces an AG that is not in use yet, or adds one.
    pub fn put_unused(&mut self, ag: u32, unused: Ag) {
        self.free += u64::from(unused.free);
        match self.ags.get_mut(ag as usize) {
            Some(a) => self.free -= u64::from(std::mem::replace(a, unused).free),
            None => self.ags.push(unused),
        }
    }

    /// Counts a run of an AG as used; it lies in at most `blocks` blocks.
    pub fn taken(&mut self, ag: u32, start: u32, len: u32, blocks: u32) {
        self.blocks_known = self.blocks_known.saturating_sub(blocks);
        self.free -= u64::from(len);
        let a = &mut self[ag];
        a.free -= len;
        a.last = start + len;
        if a.first_free >= start && a.first_free < start + len {
            a.first_free = start + len;
        }
    }

    pub fn freed(&mut self, ag: u32, start: u32, len: u32) {
        if !self[ag].shut {
            self.free += u64::from(len);
        }
        let a = &mut self[ag];
        a.free += len;
        a.first_free = a.first_free.min(start);
    }

    pub fn inode_taken(&mut self, ag: u32) {
        self.inodes_free = self.inodes_free.saturating_sub(1);
        self[ag].inodes_free = self[ag].inodes_free.saturating_sub(1);
    }

    pub fn inode_freed(&mut self, ag: u32) {
        self.inodes_free += u64::from(!self[ag].shut);
        self[ag].inodes_free += 1;
    }

    /// Counts a new chunk of free inodes.
    pub fn chunk_made(&mut self, ag: u32) {
        (self.inodes, self.inodes_free) = (self.inodes + CHUNK_INODES, self.inodes_free + CHUNK_INODES);
        self[ag].inodes += CHUNK_INODES as u32;
        self[ag].inodes_free += CHUNK_INODES as u32;
    }

    /// Counts a freed chunk of free inodes.
    pub fn chunk_gone(&mut self, ag: u32) {
        self.inodes -= CHUNK_INODES;
        self.inodes_free -= if self[ag].shut { 0 } else { CHUNK_INODES };
        self[ag].inodes -= CHUNK_INODES as u32;
        self[ag].inodes_free -= CHUNK_INODES as u32;
    }

    /// The bitmap of an AG, if it is loaded.
    pub fn map(&mut self, ag: u32) -> Option<&mut Map> {
        self[ag].map.as_deref_mut()
    }

    /// Bitmaps that are loaded, with their AGs.
    pub fn maps(&self) -> impl Iterator<Item = (u32, &Map)> {
        self.loaded.iter().filter_map(|ag| Some((*ag, self.get(*ag)?.map.as_deref()?)))
    }

    /// The bitmap of an AG as it is, if it is loaded.
    pub fn peek_map(&self, ag: u32) -> Option<&Map> {
        self.get(ag)?.map.as_deref()
    }

    /// Free fragments, inodes and free inodes of all AGs: recounted, and as kept.
    pub fn sums(&self) -> ([u64; 3], [u64; 3]) {
        let counted = self.ags.iter().fold([0; 3], |[a, b, c], ag| {
            [a + u64::from(ag.free()), b + u64::from(ag.inodes), c + u64::from(ag.inodes_free())]
        });
        (counted, [self.free, self.inodes, self.inodes_free])
    }

    /// Keeps a loaded bitmap, in place of the oldest if there are too many.
    pub fn keep_map(&mut self, ag: u32, map: Map) {
        if self.loaded.len() >= MAPS
            && let Some(old) = self.loaded.pop_front()
        {
            let a = &mut self[old];
            // One without free buddies has none of the smallest either.
            a.largest = a.map.take().map(|map| map.summary.largest().unwrap_or(0));
        }
        self.loaded.push_back(ag);
        (self[ag].map, self[ag].largest) = (Some(Box::new(map)), None);
    }

    /// Drops the bitmap of an AG from core.
    pub fn forget_map(&mut self, ag: u32) {
        (self[ag].map, self[ag].largest) = (None, None);
        self.loaded.retain(|a| *a != ag);
    }

    /// Blocks that the free runs hold at least.
    pub fn blocks_known(&self) -> u32 {
        self.blocks_known
    }

    /// Where to count blocks first.
    pub fn blocks_at(&self) -> u32 {
        self.blocks_at
    }

    pub fn set_blocks_known(&mut self, found: u32) {
        self.blocks_known = found;
    }

    pub fn set_blocks_at(&mut self, ag: u32) {
        self.blocks_at = ag;
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
