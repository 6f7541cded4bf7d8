//! The state of a mounted volume in core: its buffers, what has changed, and how blocks of both areas are read.
//!
//! One lock guards everything (`kit::locked`). A call that has not begun to change anything may give up, and restart
//! after the device was read without the lock (`kit::reads`), if other calls are waiting.

use crate::decoded::Inode;
use crate::format::*;
use crate::groups::Groups;
use crate::plan::LogEnd;
use crate::planted::{Flaw, planted};
use crate::{options, superblock};
use arbor_base::cache::{Cache, DirtyRef, Edit, FileBlock, Name};
use arbor_base::device::{Device, Kind, Request, Ticket};
use arbor_base::layout::{Corrupt, Location, crc};
use arbor_base::vfs::{Errno, Error, Ino, Result, Time};
use arbor_kit::blockmap::{BlockMap as _, Parent};
use arbor_kit::chunkdir::Hashes;
use arbor_kit::counters::Io;
use arbor_kit::locked::Locked;
use arbor_kit::machine::{Machine, Machinery};
use arbor_kit::runs::Runs;
use arbor_kit::segments::Segments;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A mounted volume.
pub(crate) type Volume = Locked<Core>;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub io: Io,
    pub sets: u64,
    pub checkpoints: u64,
    pub data_blocks: u64,
    pub prefetched: u64,
    pub relocated: u64,
    pub cleaned: u64,
    pub moved: u64,
}

/// The numbers of the volume's state, see [`Totals`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub inodes: u32,
    pub free_ino: u32,
    pub used_inodes: u32,
    pub orphan: u32,
    pub data: u32,
    pub meta: u32,
}

impl From<Totals> for State {
    fn from(t: Totals) -> State {
        State {
            inodes: t.inodes.get(),
            free_ino: t.free_ino.get(),
            used_inodes: t.used_inodes.get(),
            orphan: t.orphan.get(),
            data: t.data.get(),
            meta: t.meta.get(),
        }
    }
}

impl From<State> for Totals {
    fn from(s: State) -> Totals {
        Totals {
            inodes: s.inodes.into(),
            free_ino: s.free_ino.into(),
            used_inodes: s.used_inodes.into(),
            orphan: s.orphan.into(),
            data: s.data.into(),
            meta: s.meta.into(),
        }
    }
}

/// What differs from the disk.
#[derive(Default)]
pub(crate) struct Changes {
    /// Files, each with its key in `order` (DUALFS-B1).
    pub files: FxHashMap<u64, u64>,
    /// The same files, by the turn in which they first changed.
    pub order: BTreeMap<u64, u64>,
    /// The least size of each of them since the last set that has it, bytes.
    least: FxHashMap<u64, u64>,
    turns: u64,
    /// Inodes whose entries in the inode map no set holds.
    pub entries: BTreeSet<u64>,
    /// Bytes that have died in each segment since the last set.
    pub dead: BTreeMap<u32, u32>,
    /// Data blocks that were freed, and are given away only after the next set.
    pub freed: Runs,
    /// Dirty pages of regular files.
    pub pages: usize,
    /// When the oldest of the changes was made, milliseconds since the mount.
    pub since: Option<u64>,
}

impl Changes {
    /// Whether there is something that no set holds yet; changes of the ifile alone do not count.
    pub fn is_some(&self) -> bool {
        let files = self.files.len() - usize::from(self.files.contains_key(&IFILE.0));
        files > 0 || !self.entries.is_empty() || !self.dead.is_empty() || !self.freed.is_empty()
    }

    fn add(&mut self, ino: Ino, size: u64) {
        self.turns += 1;
        self.files.insert(ino.0, self.turns);
        self.order.insert(self.turns, ino.0);
        self.least.insert(ino.0, size);
    }

    /// Notes that a file has no more than so many bytes, or none that may wait.
    pub fn shorten(&mut self, ino: Ino, size: u64) {
        self.least.entry(ino.0).and_modify(|least| *least = size.min(*least));
    }

    /// Bytes that a file has had ever since the last set that has it.
    pub fn least(&self, ino: Ino) -> u64 {
        self.least.get(&ino.0).copied().unwrap_or(0)
    }

    pub fn remove(&mut self, ino: Ino) {
        if let Some(turn) = self.files.remove(&ino.0) {
            self.order.remove(&turn);
            self.least.remove(&ino.0);
        }
    }
}

/// Everything in core.
pub(crate) struct Core {
    pub geom: Geom,
    pub dev: Arc<dyn Device>,
    pub opts: options::Mount,
    pub sb: SuperBlock,
    pub cache: Cache,
    pub state: State,
    pub segs: Segments,
    pub groups: Groups,
    pub log: LogEnd,
    /// The newest checkpoint.
    pub checkpoint: Checkpoint,
    /// The region, 0 or 1, that the next one goes to.
    pub region: usize,
    pub changes: Changes,
    /// Files that were read since the last set, whose metadata are to be relocated.
    pub read: BTreeSet<Ino>,
    /// Segments that the cleaner could not make clean; it does not choose them again.
    pub stuck: FxHashSet<u32>,
    /// When the last checkpoint was written, milliseconds since the mount.
    pub checkpointed_ms: u64,
    /// When the cleaner has looked last.
    pub cleaned_ms: u64,
    /// After the last step of cleaning on request: how many sets there were, and the most clean segments.
    pub cleaned_to: (u64, u64),
    /// Cleaning has not gained the segments that are needed: nothing is to grow.
    pub is_tight: bool,
    pub calls: Machinery,
    pub hashes: Hashes,
    pub counters: Counters,
}

impl Core {
    /// An empty volume.
    pub fn new(dev: Arc<dyn Device>, (sb, geom): (SuperBlock, Geom), opts: options::Mount, now: Time) -> Core {
        let mut cache = Cache::new(opts.cache_bytes);
        opts.dirty.limit(&mut cache);
        Core {
            geom,
            dev,
            opts,
            sb,
            cache,
            state: State::default(),
            segs: Segments::new(geom.segs),
            groups: Groups::new(&geom),
            log: LogEnd::default(),
            checkpoint: Checkpoint::default(),
            region: 0,
            changes: Changes::default(),
            read: BTreeSet::new(),
            stuck: FxHashSet::default(),
            checkpointed_ms: 0,
            cleaned_ms: 0,
            cleaned_to: (0, 0),
            is_tight: false,
            calls: Machinery::new(now),
            hashes: Hashes::new(opts.cache_bytes / 4),
            counters: Counters::default(),
        }
    }

    /// Changes the label in the superblock durably, then in its copy.
    pub fn write_label(&mut self, label: [u8; 64]) -> Result<()> {
        self.calls.note_change();
        self.sb.label = label;
        arbor_kit::head::write(&*self.dev, 0, &self.sb)?;
        self.flush()?;
        self.write_copy()
    }

    /// Writes the copy of the superblock durably.
    pub fn write_copy(&mut self) -> Result<()> {
        arbor_kit::head::write(&*self.dev, self.geom.copy_at(), &self.sb)?;
        self.flush()
    }

    pub fn flush(&mut self) -> Result<()> {
        self.counters.io.flushes += 1;
        Ok(self.dev.flush()?)
    }

    /// Submits writes, and counts them.
    pub fn submit(&mut self, requests: Vec<Request>) -> Ticket {
        self.counters.io.writes += requests.len() as u64;
        self.counters.io.write_bytes += requests.iter().map(Request::len).sum::<u64>();
        self.calls.reads.submit(&*self.dev, requests)
    }

    fn read_bytes(&mut self, kind: Kind, at: u64, len: usize) -> Result<Vec<u8>> {
        let bytes = self.calls.reads.read(&*self.dev, kind, at, len)?;
        self.counters.io.count_read(len);
        Ok(bytes)
    }

    /// Reads a run of data blocks, with the lock only where nobody else waits.
    pub fn read_data(&mut self, first: DataBlock, blocks: u32) -> Result<Vec<u8>> {
        self.read_bytes(Kind::Data, self.geom.data_byte(first), (blocks as usize) << self.geom.block_shift)
    }

    /// Rereads a block under the lock.
    pub fn read_again(&mut self, kind: Kind, at: u64) -> Result<Vec<u8>> {
        let bytes = self.calls.reads.read_now(&*self.dev, kind, at, self.geom.block())?;
        self.counters.io.count_read(bytes.len());
        Ok(bytes)
    }

    /// The metadata blocks that are read with one: consecutive ones of the log, most of them before it, since those of a
    /// file, and files, lie in the inverse of the order in which they are read (section 2.2).
    fn window(&self, block: MetaBlock) -> (MetaBlock, u32) {
        let (most, end) = (self.opts.prefetch.max(1), self.geom.seg_start(Seg(self.geom.segs)).0);
        let first = block.0.saturating_sub(most / 4 * 3).max(FIRST);
        (MetaBlock(first), most.min(end.saturating_sub(first)))
    }

    /// A metadata block as it is on the device. A read brings its neighbours into the cache, too.
    pub fn read_meta(&mut self, block: MetaBlock, kind: Kind) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = self.cache.get(Name::Block(block.0.into())) {
            return Ok(bytes.clone());
        }
        let ((first, blocks), len) = (self.window(block), self.geom.block());
        let (first, bytes) = match self.read_bytes(kind, self.geom.meta_byte(first), blocks as usize * len) {
            // Nobody has asked for the others.
            Err(Error::Io(_)) if blocks > 1 => (block, self.read_bytes(kind, self.geom.meta_byte(block), len)?),
            found => (first, found?),
        };
        let mut found = None;
        for (n, bytes) in (first.0..).zip(bytes.chunks_exact(len)) {
            let bytes = Arc::new(bytes.to_vec());
            if n == block.0 {
                found = Some(bytes);
            } else {
                self.counters.prefetched += 1;
                self.cache.insert(Name::Block(n.into()), bytes);
            }
        }
        Ok(found.ok_or(Errno::EIO)?)
    }

    /// Forgets metadata blocks as they were on the device: others are written there.
    pub fn forget_read(&mut self, first: MetaBlock, blocks: u32) {
        if planted(Flaw::PrefetchKept) {
            return;
        }
        for block in first.0..first.0.saturating_add(blocks) {
            self.cache.remove(Name::Block(block.into()));
        }
    }

    /// What a block of a file is.
    pub fn kind_of(i: &Inode, part: FileBlock) -> Kind {
        match part {
            FileBlock::Map { .. } => Kind::Tree,
            FileBlock::Xattr(_) => Kind::Xattr,
            FileBlock::Data(_) if i.ino == IFILE => Kind::Bitmap,
            FileBlock::Data(_) if i.is_file() => Kind::Data,
            FileBlock::Data(_) => Kind::Dir,
        }
    }

    /// Whether a block of a file lies in the data area.
    pub fn is_data(i: &Inode, part: FileBlock) -> bool {
        matches!(part, FileBlock::Data(_)) && i.is_file() && i.ino != IFILE
    }

    /// The byte to which a pointer of a file leads; fails if no block of that kind can be there.
    pub fn place_of(&mut self, i: &Inode, part: FileBlock, p: Pointer) -> Result<u64> {
        let block = p.block.get();
        if Self::is_data(i, part) {
            if self.geom.is_data(block) {
                return Ok(self.geom.data_byte(DataBlock(block)));
            }
        } else if self.geom.seg_of(MetaBlock(block)).is_some() {
            return Ok(self.geom.meta_byte(MetaBlock(block)));
        }
        let (at, found) = (self.pointer_location(i, part)?, format!("{block} (inode {}, {part:?})", i.ino));
        let expected = if Self::is_data(i, part) { "a data block" } else { "a block of a segment" };
        Err(Corrupt::new("pointer", "block", at, found, expected).into())
    }

    /// Where the pointer to a block lies.
    fn pointer_location(&mut self, i: &Inode, part: FileBlock) -> Result<Location> {
        let (above, slot) = match self.shape().parent(part) {
            Some(Parent::Map { level, n, slot }) => (FileBlock::Map { level, n }, slot * POINTER),
            Some(Parent::InXattr(slot)) => (FileBlock::Xattr(0), XATTR_HEAD + slot * POINTER),
            _ => return Ok(Location::inode(i.ino)),
        };
        let p = self.pointer(i, above)?;
        let at = if p.is_placed() {
            Location::from(self.geom.meta_byte(MetaBlock(p.block.get())))
        } else {
            Location::inode(i.ino)
        };
        Ok(at.plus(slot as u64))
    }

    /// Fails unless these bytes of `what` have the checksum of the pointer, which leads there.
    pub fn verify(what: &'static str, p: Pointer, at: Location, bytes: &[u8]) -> Result<()> {
        let found = crc(bytes);
        if found == p.crc.get() {
            return Ok(());
        }
        Err(Corrupt::new(what, "crc", at, format!("{found:#x}"), format!("{:#x}", p.crc.get())).into())
    }

    /// A block of metadata of a file, verified, out of the cache or from the device; `None` for a hole.
    pub fn part(&mut self, i: &Inode, part: FileBlock) -> Result<Option<Arc<Vec<u8>>>> {
        let name = Name::File(i.ino, part);
        if let Some(bytes) = self.cache.get(name) {
            return Ok(Some(bytes.clone()));
        }
        let p = self.pointer(i, part)?;
        if p.block.get() == 0 {
            return Ok(None);
        }
        let bytes = self.read_part(i, part, p)?;
        self.cache.insert(name, bytes.clone());
        Ok(Some(bytes))
    }

    /// The metadata block to which a pointer leads, verified.
    fn read_part(&mut self, i: &Inode, part: FileBlock, p: Pointer) -> Result<Arc<Vec<u8>>> {
        let (at, kind, block) = (self.place_of(i, part, p)?, Self::kind_of(i, part), MetaBlock(p.block.get()));
        let bytes = self.read_meta(block, kind)?;
        if Self::verify("block", p, self.geom.location(at), &bytes).is_ok() {
            // Under the name of its file from now on.
            self.cache.remove(Name::Block(block.0.into()));
            return Ok(bytes);
        }
        self.cache.remove(Name::Block(block.0.into()));
        let bytes = self.read_again(kind, at)?;
        Self::verify("block", p, self.geom.location(at), &bytes)?;
        Ok(Arc::new(bytes))
    }

    /// Notes that a file is about to be changed (DUALFS-B1).
    pub fn mark(&mut self, ino: Ino) -> Result<()> {
        if ino != IFILE && !self.changes.files.contains_key(&ino.0) {
            self.ready_entry(ino)?;
        }
        self.calls.note_change();
        if self.changes.files.contains_key(&ino.0) {
            return Ok(());
        }
        let size = self.inode(ino)?.size();
        self.changes.add(ino, size);
        if ino != IFILE {
            self.changes.since.get_or_insert(self.calls.now_ms());
        }
        // Its inode is written with it, and stays in the cache until then.
        self.make_dirty(Name::Inode(ino)).map(drop)
    }

    /// Makes a buffer in the cache dirty, but not the indirect blocks above it.
    pub fn make_dirty(&mut self, name: Name) -> Result<DirtyRef> {
        Ok(self.cache.dirtied(name).ok_or(Errno::EIO)?)
    }

    /// Changes a block of a file in the cache. If it was clean, the blocks that lead to it become dirty first, so that
    /// room for them is counted (DUALFS-B2); they must exist.
    pub fn change<R>(&mut self, i: &Inode, part: FileBlock, f: impl FnOnce(&mut Vec<u8>) -> R) -> Result<R> {
        let dirty = match self.cache.edit(Name::File(i.ino, part)).ok_or(Errno::EIO)? {
            Edit::Dirty(dirty) => dirty,
            Edit::Clean(clean) => {
                self.dirty_above(i, part)?;
                self.cache.make_dirty(clean).ok_or(Errno::EIO)?
            }
        };
        self.calls.note_change();
        Ok(self.cache.modify(dirty, f))
    }

    /// Changes a page of a file, which counts if it becomes dirty. If it `stays` where it lies, what leads to it stays clean.
    pub fn change_page<R>(&mut self, i: &Inode, lbn: u64, stays: bool, f: impl FnOnce(&mut Vec<u8>) -> R) -> Result<R> {
        let (part, name) = (FileBlock::Data(lbn), Name::data(i.ino, lbn));
        let is_new = Self::is_data(i, part) && !self.cache.is_dirty(name);
        let done = if stays {
            let dirty = self.make_dirty(name)?;
            self.cache.modify(dirty, f)
        } else {
            self.change(i, part, f)?
        };
        self.changes.pages += usize::from(is_new);
        Ok(done)
    }

    /// Counts a page of a regular file that is about to be no longer dirty.
    pub fn uncount_page(&mut self, i: &Inode, part: FileBlock) {
        let is_counted = Self::is_data(i, part) && self.cache.is_dirty(Name::File(i.ino, part));
        self.changes.pages = self.changes.pages.saturating_sub(usize::from(is_counted));
    }

    /// Makes the blocks above a block dirty, up to the inode (DUALFS-B2).
    pub fn dirty_above(&mut self, i: &Inode, mut part: FileBlock) -> Result<()> {
        loop {
            part = match self.shape().parent(part) {
                Some(Parent::Map { level, n, .. }) => FileBlock::Map { level, n },
                Some(Parent::InXattr(_)) => FileBlock::Xattr(0),
                _ => return Ok(()),
            };
            self.part(i, part)?.ok_or(Errno::EIO)?;
            match self.cache.edit(Name::File(i.ino, part)).ok_or(Errno::EIO)? {
                Edit::Dirty(_) => return Ok(()),
                Edit::Clean(clean) => drop(self.cache.make_dirty(clean)),
            }
        }
    }

    /// Counts bytes of a metadata block as dead.
    pub fn mark_dead(&mut self, block: MetaBlock, bytes: u32) {
        if let Some(seg) = self.geom.seg_of(block) {
            let died = self.changes.dead.entry(seg.0).or_default();
            *died = died.saturating_add(bytes);
        }
    }

    /// Counts what a pointer of a file led to as dead, or free.
    pub fn drop_placed(&mut self, i: &Inode, part: FileBlock, p: Pointer) {
        if !p.is_placed() {
        } else if Self::is_data(i, part) && !self.geom.is_data(p.block.get()) {
            self.calls.health.note_damage();
        } else if Self::is_data(i, part) {
            self.changes.freed.insert(p.block.get());
        } else {
            self.mark_dead(MetaBlock(p.block.get()), self.geom.block() as u32);
        }
    }

    /// Changes the border in the superblock durably, then in its copy: there can be so many segments.
    pub fn write_border(&mut self, segs: u32) -> Result<()> {
        self.sb.segs = segs.into();
        arbor_kit::head::write(&*self.dev, 0, &self.sb)?;
        self.flush()?;
        self.write_copy()
    }

    /// Whether the copy of the superblock does not say the same as it.
    pub fn copy_differs(&self) -> Result<bool> {
        Ok(self.copy()?.is_none_or(|copy| !superblock::is_equal(&copy, &self.sb)))
    }

    /// The copy of the superblock, if it can be used.
    pub fn copy(&self) -> Result<Option<SuperBlock>> {
        Ok(superblock::read(&*self.dev, self.geom.copy_at()).ok().flatten().map(|found| found.0))
    }
}

impl Machine for Core {
    fn throttle(&mut self) {
        self.write_excess();
    }

    fn cache(&mut self) -> &mut Cache {
        &mut self.cache
    }

    fn calls(&mut self) -> &mut Machinery {
        &mut self.calls
    }
}
