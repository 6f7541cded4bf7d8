//! The state of a mounted volume in core: its buffers, how blocks are read, what has changed and what is dead.
//!
//! One lock guards everything (`kit::locked`). A call that has not begun to change anything may give up, and restart
//! after the device was read without the lock (`kit::reads`), if other calls are waiting. Writes and changes of names
//! read under the lock.

use crate::format::*;
use crate::heads::LogHeads;
use crate::{options, superblock};
use arbor_base::cache::{Cache, DirtyRef, FileBlock, Name};
use arbor_base::device::{Device, Kind};
use arbor_base::layout::{Corrupt, crc};
use arbor_base::vfs::{Errno, Ino, Result, Time};
use arbor_kit::chunkdir::Hashes;
use arbor_kit::counters::Io;
use arbor_kit::locked::Locked;
use arbor_kit::machine::{Machine, Machinery};
use arbor_kit::segments::{SHARES, Segments};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use zerocopy::IntoBytes;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub io: Io,
    pub groups: u64,
    pub partial_segments: u64,
    pub checkpoints: u64,
    pub cleaned: u64,
    pub clean_read_bytes: u64,
    pub clean_moved_bytes: u64,
    /// Segments that the cleaner had to choose from, by utilisation in twentieths.
    pub found: [u64; SHARES],
}

/// The numbers of the volume's state, beside its files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Inodes that the inode map has entries for.
    pub inodes: u32,
    /// The first free inode, 0 if there is none.
    pub free_ino: u32,
    pub used_inodes: u32,
    /// The sum of the fragments that files count, without the ifile.
    pub file_frags: u64,
    pub orphan: u32,
}

/// A file that differs from the disk, with the lengths that it has there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changed {
    /// Its key in [`Core::order`].
    pub turn: u64,
    pub disk_size: u64,
    pub disk_xattr_len: u32,
}

/// What steps of the cleaner in the background have gained.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gained {
    /// Of which value of [`Core::begun_ms`].
    pub begun_ms: u64,
    /// The most clean segments there have been.
    pub most_clean: u32,
    /// Steps since then, which have gained nothing.
    pub steps: u32,
}

/// Everything in core.
pub(crate) struct Core {
    pub geom: Geom,
    pub dev: Arc<dyn Device>,
    pub opts: options::Mount,
    pub cache: Cache,
    pub state: Totals,
    pub segs: Segments,
    pub log: LogHeads,
    /// The newest checkpoint.
    pub checkpoint: Checkpoint,
    /// The checkpoint region, 0 or 1, that the next one goes to.
    pub place: usize,
    /// Files that differ from the disk, by inode number.
    pub changed: FxHashMap<u64, Changed>,
    /// The same files, by the turn in which they first changed.
    pub order: BTreeMap<u64, u64>,
    /// How many turns were given.
    pub turns: u64,
    /// When users last changed something, milliseconds since the mount.
    pub changed_ms: u64,
    /// Segments that the cleaner could not make clean; it does not choose them again.
    pub stuck: FxHashSet<u32>,
    /// When a file was last changed that no group had since, milliseconds since the mount.
    pub begun_ms: u64,
    /// Blocks are placed and moved, which is no change by users.
    pub is_writing: bool,
    /// Clean segments are short, and the cleaner could not make more.
    pub is_tight: bool,
    /// What the cleaner has gained in the background.
    pub gained: Option<Gained>,
    /// When the oldest change that no group holds was made, milliseconds since the mount.
    pub since: Option<u64>,
    /// Inodes whose map entries differ from what the log says.
    pub remapped: BTreeSet<u64>,
    /// Bytes that have died in each segment since the last group.
    pub dead_bytes: BTreeMap<u32, u32>,
    pub calls: Machinery,
    pub hashes: Hashes,
    /// Files that are read sequentially, each with the next block.
    pub streams: VecDeque<(u64, u64)>,
    pub counters: Counters,
}

/// A mounted volume.
pub(crate) type Volume = Locked<Core>;

impl Core {
    /// An empty volume.
    pub fn new(geom: Geom, dev: Arc<dyn Device>, opts: options::Mount, now: Time, segs: u32) -> Core {
        let mut cache = Cache::new(opts.cache_bytes);
        opts.dirty.limit(&mut cache);
        Core {
            geom,
            dev,
            opts,
            cache,
            state: Totals::default(),
            segs: Segments::new(segs),
            log: LogHeads::default(),
            checkpoint: Checkpoint::default(),
            place: 0,
            changed: FxHashMap::default(),
            order: BTreeMap::new(),
            turns: 0,
            changed_ms: 0,
            gained: None,
            begun_ms: 0,
            is_writing: false,
            is_tight: false,
            stuck: FxHashSet::default(),
            since: None,
            remapped: BTreeSet::new(),
            dead_bytes: BTreeMap::new(),
            calls: Machinery::new(now),
            hashes: Hashes::new(opts.cache_bytes / 4),
            streams: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Changes the label in the superblock durably, then in its copy.
    pub fn write_label(&mut self, label: [u8; 64]) -> Result<()> {
        let sb = SuperBlock { label, ..superblock::read_super(&*self.dev)? };
        self.calls.note_change();
        for at in [0, self.geom.copy_at()] {
            self.dev.write_at(Kind::Super, at, &superblock::sealed(sb.as_bytes()))?;
            self.dev.flush()?;
        }
        Ok(())
    }

    /// The byte address of the checkpoint region that was read at the mount, or written last.
    pub fn checkpoint_at(&self) -> u64 {
        let [first, second] = self.geom.checkpoints();
        if self.place == 0 { second } else { first }
    }

    /// Whether a run lies inside one segment.
    pub fn is_run(&self, frag: Frag, frags: u32) -> bool {
        let n = self.geom.seg_frags();
        let inside = self.geom.seg_of(frag).is_some_and(|seg| {
            let at = frag.0 - self.geom.seg_start(seg).0;
            seg.0 < self.segs.count() && at.checked_add(frags).is_some_and(|end| end <= n)
        });
        inside && frags > 0
    }

    /// Reads a run of fragments.
    pub fn read_run(&mut self, frag: Frag, frags: u32, kind: Kind) -> Result<Vec<u8>> {
        let (at, len) = (self.geom.byte(frag), self.geom.bytes_of(frags));
        let bytes = self.calls.reads.read(&*self.dev, kind, at, len)?;
        self.counters.io.count_read(len);
        Ok(bytes)
    }

    /// Rereads a run of fragments whose checksum was wrong, under the lock.
    pub fn read_run_again(&mut self, frag: Frag, frags: u32, kind: Kind) -> Result<Vec<u8>> {
        let (at, len) = (self.geom.byte(frag), self.geom.bytes_of(frags));
        let bytes = self.calls.reads.read_now(&*self.dev, kind, at, len)?;
        self.counters.io.count_read(len);
        Ok(bytes)
    }

    /// Fails unless these bytes have the pointer's checksum.
    pub fn verify(&self, p: Pointer, bytes: &[u8]) -> Result<()> {
        let found = crc(bytes);
        if found == p.crc.get() {
            return Ok(());
        }
        let at = self.geom.byte(Frag(p.frag.get()));
        Err(Corrupt::new("block", "crc", at, format!("{found:#x}"), format!("{:#x}", p.crc.get())).into())
    }

    /// Notes that a file is about to be changed (LFS-B1).
    pub fn mark(&mut self, ino: Ino) -> Result<()> {
        if ino != IFILE && !self.changed.contains_key(&ino.0) {
            self.ready_entry(ino)?;
        }
        self.calls.note_change();
        if ino != IFILE && !self.is_writing {
            self.changed_ms = self.calls.now_ms();
        }
        if self.changed.contains_key(&ino.0) {
            return Ok(());
        }
        let i = self.inode(ino)?;
        self.turns += 1;
        let (disk_size, disk_xattr_len) = (i.size(), i.d.xattr_len.get());
        self.changed.insert(ino.0, Changed { turn: self.turns, disk_size, disk_xattr_len });
        self.order.insert(self.turns, ino.0);
        if ino != IFILE {
            self.since.get_or_insert(self.calls.now_ms());
            self.begun_ms = self.calls.now_ms();
        }
        // Its inode is written with it, and stays in the cache until then.
        self.make_dirty(Name::Inode(ino)).map(drop)
    }

    /// Makes a buffer in the cache dirty, but not the indirect blocks above it.
    pub fn make_dirty(&mut self, name: Name) -> Result<DirtyRef> {
        Ok(self.cache.dirtied(name).ok_or(Errno::EIO)?)
    }

    /// Changes a buffer in the cache, but does not make the indirect blocks above it dirty.
    pub fn modify<R>(&mut self, name: Name, f: impl FnOnce(&mut Vec<u8>) -> R) -> Result<R> {
        let dirty = self.make_dirty(name)?;
        Ok(self.cache.modify(dirty, f))
    }

    /// The fragments that a block of a changed file has on disk, if it has a pointer there.
    pub fn disk_frags(&self, ino: Ino, place: FileBlock) -> u32 {
        let changed = self.changed.get(&ino.0);
        match place {
            FileBlock::Map { .. } => self.geom.block_frags(),
            FileBlock::Data(lbn) => changed.map_or(0, |c| self.geom.lbn_frags(c.disk_size, lbn)),
            FileBlock::Xattr(_) => changed.map_or(0, |c| self.geom.frags_for(c.disk_xattr_len as usize)),
        }
    }

    /// Counts `bytes` bytes at this fragment as dead.
    pub fn mark_run_dead(&mut self, frag: Frag, bytes: u32) {
        if let Some(seg) = self.geom.seg_of(frag) {
            let died = self.dead_bytes.entry(seg.0).or_default();
            *died = died.saturating_add(bytes);
        }
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
}
