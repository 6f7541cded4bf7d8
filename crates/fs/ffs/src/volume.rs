//! The mounted volume: its state in core, and how its buffers are read and changed.
//!
//! One lock guards everything (`kit::locked`). It is not held while the device reads for a call that has changed
//! nothing yet, if other calls are under way. Called by all files that touch buffers.

use crate::buffers::{BlockKind, Damaged, DirtyBuffers, Pages, Streams, check_block, is_sound};
use crate::dependencies::Dependencies;
use crate::format::*;
use crate::log::Journal;
use crate::options;
use crate::planted::{Flaw, planted};
use crate::space::Space;
use arbor_base::cache::{Cache, Name};
use arbor_base::device::Device;
use arbor_base::vfs::{Errno, Error, Result, Time};
use arbor_kit::chunkdir::Hashes;
use arbor_kit::counters::Io;
use arbor_kit::locked::Locked;
use arbor_kit::machine::{Machine, Machinery};
use rustc_hash::FxHashMap;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub io: Io,
    pub sync_writes: u64,
    pub rollbacks: u64,
    pub reallocs: u64,
    pub transactions: u64,
    pub journal_bytes: u64,
    pub work_items: u64,
}

/// Everything in core.
pub(crate) struct Core {
    pub geom: Geom,
    pub sb: SuperBlock,
    pub dev: Arc<dyn Device>,
    pub opts: options::Mount,
    pub cache: Cache,
    pub dirty: DirtyBuffers,
    pub pages: Pages,
    pub space: Space,
    /// Dependencies between writes (soft updates; for pointers to data, synchronous writes too).
    pub deps: Dependencies,
    /// The journal, with `keep=journal`.
    pub journal: Option<Journal>,
    pub calls: Machinery,
    /// Creation times of orphans: with a journal their inodes hold the list's link in its place.
    pub btimes: FxHashMap<u64, Stamp>,
    pub hashes: Hashes,
    pub streams: Streams,
    pub damaged: Damaged,
    pub counters: Counters,
}

/// A mounted volume.
pub(crate) type Volume = Locked<Core>;

impl Core {
    pub fn new(
        geom: Geom,
        sb: SuperBlock,
        dev: Arc<dyn Device>,
        opts: options::Mount,
        now: Time,
        summaries: &[Summary],
    ) -> Core {
        let mut cache = Cache::new(opts.cache_bytes);
        opts.dirty.limit(&mut cache);
        Core {
            cache,
            dirty: DirtyBuffers::default(),
            pages: Pages::default(),
            space: Space::new(&geom, &sb, summaries),
            deps: Dependencies::default(),
            journal: None,
            calls: Machinery::new(now),
            btimes: FxHashMap::default(),
            hashes: Hashes::new(if opts.dirhash { opts.cache_bytes / 4 } else { 0 }),
            streams: Streams::default(),
            damaged: Damaged::default(),
            counters: Counters::default(),
            geom,
            sb,
            dev,
            opts,
        }
    }

    /// The metadata block at `frag`.
    pub fn block(&mut self, frag: Frag, kind: BlockKind) -> Result<&Arc<Vec<u8>>> {
        let name = Name::Block(frag.0.into());
        if !self.cache.contains(name) {
            let mut bytes = self.read(frag, self.geom.block_size(), kind)?;
            if !is_sound(&self.geom, frag, kind, &bytes) && !planted(Flaw::NoSecondLook) {
                // The device may have returned wrong bytes once; a write of the block would make that permanent.
                bytes = self.read_again(frag, self.geom.block_size(), kind)?;
            }
            check_block(&self.geom, frag, kind, &bytes)?;
            if kind == BlockKind::Inodes {
                self.damaged.note(&self.geom, frag, &bytes);
            }
            self.cache.insert(name, Arc::new(bytes));
        }
        Ok(self.cache.get(name).ok_or(Errno::EIO)?)
    }

    /// Reads `len` bytes at `frag`.
    pub fn read(&mut self, frag: Frag, len: usize, kind: BlockKind) -> Result<Vec<u8>> {
        let bytes = self.calls.reads.read(&*self.dev, kind.kind(), self.geom.byte(frag), len)?;
        self.counters.io.count_read(len);
        Ok(bytes)
    }

    /// Reads a block again that failed its check.
    fn read_again(&mut self, frag: Frag, len: usize, kind: BlockKind) -> Result<Vec<u8>> {
        let bytes = self.calls.reads.read_now(&*self.dev, kind.kind(), self.geom.byte(frag), len)?;
        self.counters.io.count_read(len);
        Ok(bytes)
    }

    /// Makes a new metadata block; its old contents are not read.
    pub fn make_block(&mut self, frag: Frag, kind: BlockKind, bytes: Vec<u8>) -> Result<()> {
        let name = Name::Block(frag.0.into());
        self.forget(name);
        if kind == BlockKind::Inodes {
            self.damaged.note(&self.geom, frag, &bytes);
        }
        self.cache.insert(name, Arc::new(bytes));
        self.change(name, (frag, kind, 0), |_| ())
    }

    /// Changes a metadata block that was read before in the same call.
    pub fn modify(&mut self, name: Name, f: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let Name::Block(at) = name else { return Err(Errno::EIO.into()) };
        let frag = Frag(at as u32);
        let within = frag.0 % self.geom.cg_frags / self.geom.block_frags();
        let kind = match within {
            0 => BlockKind::Super,
            1 => BlockKind::Cg,
            _ if frag.0 % self.geom.cg_frags < self.geom.meta_frags() => BlockKind::Inodes,
            _ => BlockKind::Indirect,
        };
        let owner = self.dirty.get(name).map_or(0, |d| d.owner);
        self.change(name, (frag, kind, owner), f)
    }

    /// Changes a buffer that is in the cache: the only door from clean to dirty. Notes where it goes, and whose it is.
    pub fn change<R>(
        &mut self,
        name: Name,
        (frag, kind, owner): (Frag, BlockKind, u64),
        f: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Result<R> {
        let dirty = self.cache.dirtied(name).ok_or(Errno::EIO)?;
        let done = self.cache.modify(dirty, f);
        self.touch(name, frag, kind, owner);
        Ok(done)
    }

    /// Notes that a buffer was changed, and where it goes.
    pub fn touch(&mut self, name: Name, frag: Frag, kind: BlockKind, owner: u64) {
        self.calls.note_change();
        self.dirty.touch(name, (frag, kind, owner), self.calls.now_ms(), self.opts.commit_ms);
        self.ordering().buffer_dirtied(self, name, kind);
    }

    /// Drops a buffer whose place on disk no longer belongs to it.
    pub fn forget(&mut self, name: Name) {
        if self.pages.is_in_flight(name) {
            // The place may be reallocated next: this write must not end after the one of the new owner.
            let _ = self.reap(0);
        }
        self.dirty.untouch(name);
        self.pages.forget(name);
        self.ordering().buffer_dropped(self, name);
        self.cache.remove(name);
    }
}

impl Machine for Core {
    fn calls(&mut self) -> &mut Machinery {
        &mut self.calls
    }

    fn cache(&mut self) -> &mut Cache {
        &mut self.cache
    }

    fn throttle(&mut self) {
        self.write_excess();
    }

    fn give_up(&mut self, why: &Error) {
        if !planted(Flaw::FailureForgotten) {
            self.calls.health.fail(why);
        }
    }
}
