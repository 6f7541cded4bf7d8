//! The mounted volume: its state in core, and its locks.
//!
//! # Locks
//!
//! In this order: `io` (the commit lock: who holds it orders writes), `core` (everything in memory), one of the windows
//! of the read-ahead (held while it is read; never taken under `core`). `core` is not held while the device works,
//! except for a metadata block that a running transaction turns out to need, and for those of a call that has met a
//! damaged one and has to know whether it still is the one, and for FITRIM, which discards the free space of an AG.
//!
//! File data are read without any lock. A read notes the file's version where it maps the pages and looks at it again
//! afterwards: if the file has been written back or lost blocks meanwhile, these may be another file's by now, and it
//! reads once more; in the end with `io` held.

use crate::buffers::{BufferId, Damaged, What, read_buffer};
use crate::delayed::DelayedWrites;
use crate::format::*;
use crate::log::{DirtyBuffers, Log, Marked, Tx, Witness};
use crate::misses::Misses;
use crate::options;
use crate::space::Space;
use arbor_base::cache::walks::Walks;
use arbor_base::cache::windows::{Streams, Windows};
use arbor_base::cache::{Cache, Name};
use arbor_base::device::Device;
use arbor_base::layout::Corrupt;
use arbor_base::sync::{Mutex, MutexGuard, Rank};
use arbor_base::vfs::{Clock, Error, Ino, Result, Time};
use arbor_kit::health::Health;
use arbor_kit::invariants::Turns;
use arbor_kit::lifetimes::Lifetimes;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use zerocopy::FromBytes;

/// Everything in core, under one lock.
pub(crate) struct Core {
    pub geom: Geom,
    pub sb: SuperBlock,
    pub dev: Arc<dyn Device>,
    pub cache: Cache,
    pub windows: Windows,
    pub streams: Streams,
    pub walks: Walks,
    pub dirty: DirtyBuffers,
    pub tx: Tx,
    pub log: Log,
    pub space: Space,
    pub marked: Marked,
    pub delayed: DelayedWrites,
    pub lives: Lifetimes,
    pub missed: Misses,
    pub versions: Versions,
    /// Counts beginnings and ends of in-place writes of metadata: what was read before one may be out of date.
    pub meta_seq: u64,
    pub attempt: Attempt,
    pub health: Health,
    pub metadata_reads: u64,
    /// Inodes that failed their check when their chunk was read: only these are refused.
    pub damaged: Damaged,
    /// Which calls check the invariants.
    pub turns: Turns,
    /// How changes are made.
    pub ways: options::Ways,
}

impl Core {
    pub fn new(
        geom: Geom,
        sb: SuperBlock,
        dev: Arc<dyn Device>,
        log: Log,
        cache_bytes: usize,
        read_only: bool,
    ) -> Core {
        let space = Space::new(&geom, &sb);
        let size = dev.geometry().size;
        let windows = cache_bytes / 16;
        Core {
            geom,
            sb,
            dev,
            // The rest is for the log and for what is on its way.
            cache: Cache::new(cache_bytes - windows - cache_bytes / 16),
            windows: Windows::new(WINDOW, size, windows),
            streams: Streams::new((windows as u64 / 4).min(MOST_AHEAD)),
            walks: Walks::default(),
            dirty: DirtyBuffers::default(),
            tx: Tx::default(),
            log,
            space,
            marked: Marked::default(),
            delayed: DelayedWrites::default(),
            lives: Lifetimes::default(),
            missed: Misses::default(),
            versions: Versions::default(),
            meta_seq: 0,
            attempt: Attempt::default(),
            health: Health::new(read_only),
            metadata_reads: 0,
            damaged: Damaged::default(),
            turns: Turns::default(),
            ways: options::Ways::default(),
        }
    }

    /// Remembers the damaged inodes of a chunk just read.
    pub fn note_damage(&mut self, addr: Daddr, what: What, bytes: &[u8]) {
        if what == What::Chunk {
            self.damaged.note(&self.geom, addr, bytes);
        }
    }

    /// The bytes of a metadata buffer, from the cache or (inside a transaction) the device.
    pub fn buffer(&mut self, addr: Daddr, len: usize, what: What) -> Result<&Arc<Vec<u8>>> {
        let name = Name::Block(addr.0);
        let at = match self.cache.find(name) {
            Some(at) => at,
            None if !self.attempt.is_blocking() => {
                return Err(self.attempt.give_up(RestartReason::Buffer(addr, len, what)));
            }
            None => {
                let bytes = read_buffer(&*self.dev, &self.geom, addr, len, what)?;
                self.metadata_reads += 1;
                self.note_damage(addr, what, &bytes);
                self.cache.insert(name, Arc::new(bytes))
            }
        };
        let found = self.cache.at(at);
        if found.len() != len {
            return Err(Corrupt::new("metadata block", "len", addr.byte(), found.len(), len).into());
        }
        Ok(found)
    }

    /// A metadata block of block size and its owner's number checked.
    pub fn block(&mut self, frag: Frag, kind: BlockType, owner: u64) -> Result<&Arc<Vec<u8>>> {
        let (addr, len) = (self.geom.daddr(frag), self.geom.block_size());
        if !self.geom.valid_run(frag, self.geom.block_frags()) {
            return Err(self.geom.leads_out(kind, owner, frag).into());
        }
        let bytes = self.buffer(addr, len, What::Block(kind))?;
        let (magic, found) =
            BlockHeader::ref_from_prefix(bytes).map_or((0, 0), |(h, _)| (h.magic.get(), h.owner.get()));
        if magic != kind as u32 || found != owner {
            return Err(Corrupt::new(kind.name(), "owner", addr.byte(), found, owner).into());
        }
        self.cache.peek(Name::Block(addr.0)).ok_or_else(|| Error::refused("bug: the cache holds nothing"))
    }

    /// A block of an AG's own structures, owner checked.
    pub fn meta_block(&mut self, frag: Frag, kind: BlockType, owner: u64) -> Result<&[u8]> {
        let (addr, len) = (self.geom.daddr(frag), self.geom.block_size());
        let bytes = self.buffer(addr, len, What::Block(kind))?;
        let found = BlockHeader::ref_from_prefix(bytes).map_or(u64::MAX, |(h, _)| h.owner.get());
        if found != owner {
            return Err(Corrupt::new(kind.name(), "owner", addr.byte(), found, owner).into());
        }
        Ok(bytes)
    }
}

impl Core {
    /// The superblock, as it would be written now.
    pub fn current_super(&self) -> SuperBlock {
        SuperBlock { clean: 0.into(), ..self.sb }
    }
}

/// What a call gave up for; the caller provides it and restarts the call.
#[derive(Clone, Debug)]
pub(crate) enum RestartReason {
    /// A metadata buffer.
    Buffer(Daddr, usize, What),
    /// Metadata buffers that a walk is about to need.
    Buffers(Vec<BufferId>),
    /// Pages of a file: first and last.
    Pages(Ino, u64, u64),
    /// Room in the log.
    LogSpace,
    /// Free fragments that are marked free but not yet in the bitmap.
    DiskSpace,
}

/// How a call runs, and what it gave up for.
#[derive(Default)]
pub(crate) struct Attempt {
    want: Option<RestartReason>,
    blocking: bool,
    by_batch: bool,
}

impl Attempt {
    /// `blocking`: misses are read at once, under the lock. `by_batch`: a walk asks for what it is about to need, all at
    /// once.
    pub fn new(blocking: bool, by_batch: bool) -> Attempt {
        Attempt { want: None, blocking, by_batch }
    }

    /// The error with which the call restarts after `want` was provided.
    pub fn give_up(&mut self, want: RestartReason) -> Error {
        self.want = Some(want);
        Error::Restart
    }

    pub fn take_reason(&mut self) -> Option<RestartReason> {
        self.want.take()
    }

    pub fn is_blocking(&self) -> bool {
        self.blocking
    }

    pub fn set_blocking(&mut self, blocking: bool) {
        self.blocking = blocking;
    }

    pub fn may_batch(&self) -> bool {
        self.by_batch && !self.blocking
    }
}

/// Versions of files: whether a file's data on disk may have changed between two moments.
#[derive(Default)]
pub(crate) struct Versions {
    next: u64,
    /// Files that changed after `before`.
    of: FxHashMap<u64, u64>,
    /// The version of all others.
    before: u64,
}

impl Versions {
    /// Files with a version of their own; with more, all are taken to have changed.
    const MOST: usize = 4096;

    /// Notes that the data of `ino` on disk are about to change, or are no longer its own.
    pub fn change(&mut self, ino: Ino) {
        self.next += 1;
        if self.of.len() >= Self::MOST {
            self.of.clear();
            self.before = self.next;
        }
        self.of.insert(ino.0, self.next);
    }

    /// The version of a file: if it is equal at two moments, nothing has changed between them.
    pub fn of(&self, ino: Ino) -> u64 {
        self.of.get(&ino.0).copied().unwrap_or(self.before)
    }
}

/// Read-ahead of a file.
const MOST_AHEAD: u64 = 4 << 20;

/// A mounted volume.
pub(crate) struct Volume {
    pub dev: Arc<dyn Device>,
    pub log: Option<Arc<dyn Device>>,
    pub clock: Arc<dyn Clock>,
    pub io: Mutex<Io>,
    pub core: Mutex<Core>,
    pub counters: Counters,
    pub opts: options::Mount,
    pub root: Ino,
    /// There is so much dirty data that write-back should not wait for the timer.
    pub pressed: AtomicBool,
    /// There is so much dirty data that writers must help.
    pub full: AtomicBool,
    /// A walk has a piece to be read ahead.
    pub walked: AtomicBool,
}

/// Order of the locks.
const IO: Rank = Rank(0);
const CORE: Rank = Rank(1);
const WINDOW: Rank = Rank(2);

/// State of the commit lock.
#[derive(Default)]
pub(crate) struct Io {
    /// Data written since the last flush of the main device.
    pub unflushed: Unflushed,
    pub checkpointed_at: Time,
    /// A holder has panicked.
    pub condemned: bool,
}

/// Data written to the device and not flushed.
#[derive(Default)]
pub(crate) enum Unflushed {
    #[default]
    Nothing,
    /// So little that a record of the log can bear witness to it.
    Little(Vec<Witness>),
    Much,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub flushes: AtomicU64,
    pub data_reads: AtomicU64,
    pub data_writes: AtomicU64,
    pub data_read_bytes: AtomicU64,
    pub data_write_bytes: AtomicU64,
    pub metadata_reads: AtomicU64,
    pub stalls: AtomicU64,
}

impl Volume {
    pub(crate) fn assemble(
        dev: Arc<dyn Device>,
        log: Option<Arc<dyn Device>>,
        clock: Arc<dyn Clock>,
        core: Core,
        opts: options::Mount,
        root: Ino,
    ) -> Volume {
        Volume {
            dev,
            log,
            clock,
            io: Mutex::condemning(IO, Io::default(), |io| io.condemned = true),
            core: Mutex::condemning(CORE, core, |core| core.health.condemn()),
            counters: Counters::default(),
            opts,
            root,
            pressed: AtomicBool::new(false),
            walked: AtomicBool::new(false),
            full: AtomicBool::new(false),
        }
    }

    /// Takes the commit lock.
    pub fn order(&self) -> MutexGuard<'_, Io> {
        let io = self.io.lock();
        if io.condemned {
            self.core.lock().health.condemn();
        }
        io
    }

    pub(crate) fn log_dev(&self) -> &dyn Device {
        self.log.as_deref().unwrap_or(&*self.dev)
    }
}
