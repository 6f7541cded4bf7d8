//! The mounted volume: its state in core, how calls enter it, mounting and unmounting.
//!
//! # Locks
//!
//! In this order: `io` (the commit lock: who holds it orders writes), `core` (everything in
//! memory), one of the windows of the read-ahead (held while it is read; never taken under `core`). `core` is not held while the device works, except for a metadata block that a running
//! transaction turns out to need, and for those of a call that has met a damaged one and has to
//! know whether it still is the one, and for FITRIM, which discards the free space of an AG.
//!
//! File data are read without any lock. A read notes the file's version where it maps the pages and
//! looks at it again behind: if the file has been written back or lost blocks meanwhile, these may
//! be another file's by now, and it reads once more; in the end with `io` held.
//!
//! A call runs as [`Volume::run`]: look up and check first; if a block is missing from the cache
//! the call gives up, the block is read without any lock, and the call starts again. Then
//! [`Core::begin`] reserves, and from there to [`Core::commit`] nothing fails but the device.

use crate::alloc::Ag;
use crate::commit::{Dirty, Log, Tx};
use crate::dir::Misses;
use crate::file::{Delayed, Which};
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::{options, recover, sound};
use arbor_base::cache::walks::Walks;
use arbor_base::cache::windows::{Streams, Windows};
use arbor_base::cache::{Cache, Name};
use arbor_base::device::{Device, Kind, Request, zeroed};
use arbor_base::field;
use arbor_base::layout::{Corrupt, Features, crc_without};
use arbor_base::sync::{Mutex, MutexGuard, Rank};
use arbor_base::vfs::{Clock, Devices, Errno, Error, Ino, MountOptions, Result, Time};
use arbor_kit::calls::{self, Calls, State};
use arbor_kit::health::Health;
use arbor_kit::lifetimes::Lifetimes;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use zerocopy::{FromBytes, IntoBytes};

/// A metadata buffer: first sector, length, kind.
pub(crate) type BufferId = (Daddr, usize, What);

/// What a call gave up for; the caller provides it and starts again.
#[derive(Clone, Debug)]
pub(crate) enum Want {
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

/// What a metadata buffer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Block(BlockType),
    Chunk,
}

/// State of the commit lock.
#[derive(Default)]
pub(crate) struct Io {
    /// Data that was written since the last flush of the main device.
    pub unflushed: Unflushed,
    pub checkpointed_at: Time,
    /// A holder has panicked.
    pub condemned: bool,
}

/// Data that was written to the device and not flushed.
#[derive(Default)]
pub(crate) enum Unflushed {
    #[default]
    Nothing,
    /// So little that a record of the log can bear witness to it.
    Little(Vec<Witness>),
    Much,
}

/// A piece of a file's data as it was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Witness {
    pub ino: Ino,
    pub page: u64,
    /// Where it lies, in bytes.
    pub offset: u64,
    pub len: u32,
    pub crc: u32,
}

impl Witness {
    pub fn lies_in(&self, offset: u64, len: u64) -> bool {
        self.offset >= offset && self.offset + u64::from(self.len) <= offset + len
    }

    pub fn meets(&self, offset: u64, len: u64) -> bool {
        self.offset < offset + len && offset < self.offset + u64::from(self.len)
    }
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

/// Tells for each file whether its data on disk may be other than they were at some moment.
#[derive(Default)]
pub(crate) struct Versions {
    next: u64,
    /// Files that changed after `before`.
    of: FxHashMap<u64, u64>,
    /// The version of all others.
    before: u64,
}

impl Versions {
    /// Files that are told apart before all of them are taken to have changed.
    const MOST: usize = 4096;

    /// What is on disk of the data of `ino` is about to change, or is not its own any more.
    pub fn change(&mut self, ino: Ino) {
        self.next += 1;
        if self.of.len() >= Self::MOST {
            self.of.clear();
            self.before = self.next;
        }
        self.of.insert(ino.0, self.next);
    }

    /// Equal numbers at two moments: nothing has changed between them.
    pub fn of(&self, ino: Ino) -> u64 {
        self.of.get(&ino.0).copied().unwrap_or(self.before)
    }
}

/// Everything in core; behind one lock.
pub(crate) struct Core {
    pub geom: Geom,
    pub sb: SuperBlock,
    pub dev: Arc<dyn Device>,
    pub cache: Cache,
    pub windows: Windows,
    pub streams: Streams,
    pub walks: Walks,
    pub dirty: FxHashMap<u64, Dirty>,
    pub tx: Tx,
    pub log: Log,
    pub ags: Vec<Ag>,
    /// AGs whose bitmap is loaded, oldest first.
    pub loaded: VecDeque<u32>,
    pub free: u64,
    /// Blocks that the free runs are known to hold at least, and the AG where they were found first.
    pub blocks_known: u32,
    pub blocks_at: u32,
    /// Inodes of all AGs in use, and those of them that are free.
    pub inodes: u64,
    pub inodes_free: u64,
    /// Fragments promised to delayed allocations.
    pub reserved: u64,
    /// Dirty pages that have unwritten space.
    pub converting: u64,
    /// Sum of [`Delayed::nodes`].
    pub nodes: u64,
    /// Kept back for tree nodes and the like of delayed allocations.
    pub pool: u64,
    pub marked: VecDeque<(u64, Extent)>,
    pub marked_frags: u64,
    pub delayed: FxHashMap<u64, Delayed>,
    pub delayed_order: BTreeMap<u64, u64>,
    pub delayed_seq: u64,
    pub lives: Lifetimes,
    pub missed: Misses,
    pub versions: Versions,
    /// Counts beginnings and ends of writes of metadata blocks in place: what was read before may be
    /// out of date.
    pub meta_seq: u64,
    /// Misses are read at once, under the lock.
    pub blocking: bool,
    pub want: Option<Want>,
    /// A walk asks for what it is about to need, all at once.
    pub by_batch: bool,
    pub health: Health,
    pub metadata_reads: u64,
    /// Inodes that failed their check when their chunk was read: only these are refused.
    pub damaged: FxHashMap<u64, Corrupt>,
}

/// Order of the locks.
const IO: Rank = Rank(0);
const CORE: Rank = Rank(1);
const WINDOW: Rank = Rank(2);

/// Batches that one call may ask for.
const MOST_BATCHES: u32 = 32;
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
    /// Dirty data that write-back should not wait for the timer with.
    pub pressed: AtomicBool,
    /// So much is dirty that writers must help.
    pub full: AtomicBool,
    /// A walk has a piece to be brought.
    pub walked: AtomicBool,
}

/// Reads and checks the superblock of AG 0, or of `at` (a byte address) for a copy. `None` if
/// there is no magic.
pub(crate) fn read_super(dev: &dyn Device, at: u64) -> Result<Option<SuperBlock>> {
    if dev.geometry().size < at.saturating_add(SECTOR) {
        return Ok(None);
    }
    let mut bytes = vec![0; SECTOR as usize];
    dev.read_at(Kind::Super, at, &mut bytes)?;
    let Ok(sb) = SuperBlock::read_from_bytes(&bytes) else { return Ok(None) };
    if sb.magic != SUPER_MAGIC {
        return Ok(None);
    }
    let crc = crc_without(&bytes, offset_of!(SuperBlock, crc)).unwrap_or(0);
    if sb.crc.get() != crc {
        let (found, expected) = (format!("{:#x}", sb.crc.get()), format!("{crc:#x}"));
        return Err(Corrupt::new("superblock", "crc", at, found, expected).into());
    }
    if sb.version.get() > VERSION {
        return Err(Error::refused(format!(
            "yFS format version {} is newer than this program knows ({VERSION})",
            sb.version.get()
        )));
    }
    Ok(Some(sb))
}

/// The geometry that the superblock at byte `at` describes, checked against nonsense.
pub(crate) fn geometry(sb: &SuperBlock, at: u64, size: u64) -> Result<Geom> {
    let bad = |f: (_, u64), n: u64, should: &str| Error::from(Corrupt::new("superblock", f.0, at + f.1, n, should));
    let (fs, bs, is) = (sb.frag_shift.get(), sb.block_shift.get(), sb.inode_shift.get());
    if !(9..=14).contains(&fs) {
        return Err(bad(field!(SuperBlock, frag_shift), fs.into(), "9 to 14"));
    }
    if !(10..=16).contains(&bs) || bs < fs {
        return Err(bad(field!(SuperBlock, block_shift), bs.into(), "10 to 16, and not below frag_shift"));
    }
    if !(9..=11).contains(&is) {
        return Err(bad(field!(SuperBlock, inode_shift), is.into(), "9 to 11"));
    }
    let geom = Geom {
        frag_shift: fs,
        block_shift: bs,
        inode_shift: is,
        ag_frags: sb.ag_frags.get(),
        frags: sb.frags.get(),
        ag_count: sb.ag_count.get(),
        bitmap_blocks: sb.bitmap_blocks.get(),
        fsid: fsid(sb),
        hash_seed: sb.hash_seed.get(),
    };
    let chunk = u64::from(geom.chunk_frags());
    if geom.ag_frags == 0 || geom.ag_frags > 1 << 24 || !geom.ag_frags.is_multiple_of(chunk) {
        return Err(bad(field!(SuperBlock, ag_frags), geom.ag_frags, "a multiple of an inode chunk, at most 2^24"));
    }
    if geom.bitmap_blocks != (geom.ag_frags as u32).div_ceil(geom.bits_per_bitmap()) {
        return Err(bad(field!(SuperBlock, bitmap_blocks), geom.bitmap_blocks.into(), "as many as the AG size needs"));
    }
    if geom.frags.div_ceil(geom.ag_frags) != u64::from(geom.ag_count) || geom.ag_count == 0 {
        return Err(bad(field!(SuperBlock, ag_count), geom.ag_count.into(), "the AGs that frags make"));
    }
    let least = u64::from(geom.first_chunk() + geom.chunk_frags());
    if u64::from(geom.ag_len(geom.ag_count - 1)) < least {
        return Err(bad(field!(SuperBlock, frags), geom.frags, "a last AG that holds its own structures"));
    }
    if geom.frags.checked_mul(geom.frag_size()).is_none_or(|b| b > size) {
        return Err(Error::refused(format!(
            "the volume has {} bytes, the device only {size}: truncated image?",
            u128::from(geom.frags) * u128::from(geom.frag_size())
        )));
    }
    if sb.ag_used.get() == 0 || sb.ag_used.get() > geom.ag_count {
        return Err(bad(field!(SuperBlock, ag_used), sb.ag_used.get().into(), "1 to ag_count"));
    }
    check_log_area(sb, at, &geom)?;
    Ok(geom)
}

fn check_log_area(sb: &SuperBlock, at: u64, geom: &Geom) -> Result<()> {
    let bytes = sb.log_sectors.get().saturating_mul(SECTOR);
    let (start, sectors) = (sb.log_start.get(), geom.frag_sectors());
    let inside = if sb.incompat.get() & INCOMPAT_EXTERNAL_LOG != 0 {
        start.checked_add(sb.log_sectors.get()).is_some()
    } else {
        // In one AG, behind its structures and its first chunk.
        let frags = u32::try_from(sb.log_sectors.get().div_ceil(sectors)).unwrap_or(u32::MAX);
        let frag = geom.frag_of(Daddr(start));
        start.is_multiple_of(sectors)
            && geom.valid_run(frag, frags)
            && frag.0 - geom.ag_start(geom.ag_of(frag)).0 >= u64::from(geom.first_chunk() + geom.chunk_frags())
    };
    if bytes < Log::min_bytes(geom) || bytes > 1 << 32 || !inside {
        let (f, found) = (field!(SuperBlock, log_sectors), sb.log_sectors.get());
        return Err(Corrupt::new("superblock", f.0, at + f.1, found, "a log area of sensible size").into());
    }
    Ok(())
}

/// First eight bytes of the UUID.
pub(crate) fn fsid(sb: &SuperBlock) -> u64 {
    u64::from_le_bytes([sb.uuid[0], sb.uuid[1], sb.uuid[2], sb.uuid[3], sb.uuid[4], sb.uuid[5], sb.uuid[6], sb.uuid[7]])
}

/// Writes the superblock with its CRC to byte 0. The caller flushes.
pub(crate) fn write_super(dev: &dyn Device, sb: &SuperBlock) -> Result<()> {
    write_super_at(dev, 0, sb)
}

/// Writes a superblock or a copy of it, with its CRC. The caller flushes.
pub(crate) fn write_super_at(dev: &dyn Device, at: u64, sb: &SuperBlock) -> Result<()> {
    let mut bytes = sb.as_bytes().to_vec();
    Seal::Super.seal(&mut bytes, 0);
    Ok(dev.write_at(Kind::Super, at, &bytes)?)
}

/// Feature bits of a superblock.
pub(crate) fn features(sb: &SuperBlock) -> Features {
    Features { compat: sb.compat.get(), ro_compat: sb.ro_compat.get(), incompat: sb.incompat.get() }
}

/// Mounts: superblock, recovery, AG headers, recovery lists.
pub(crate) fn mount(mut devices: Devices, options: &MountOptions, clock: Arc<dyn Clock>) -> Result<Arc<Volume>> {
    let opts = options::Mount::parse(&options.options)?;
    let dev: Arc<dyn Device> = devices.main;
    let Some(mut sb) = read_super(&*dev, 0)? else {
        return Err(Error::refused("no yFS superblock"));
    };
    let read_only = arbor_kit::options::read_only(features(&sb), KNOWN, options, &*dev)?;
    let geom = geometry(&sb, 0, dev.geometry().size)?;
    let log = devices.extra.remove("log");
    if (sb.incompat.get() & INCOMPAT_EXTERNAL_LOG != 0) != log.is_some() {
        return Err(Error::refused(if log.is_some() {
            "the volume's log is internal, but option log was given"
        } else {
            "the volume's log is on another device: option log=FILE is needed"
        }));
    }
    let now = clock.now();
    if let Some(log) = &log {
        recover::is_ours(&**log, &sb, &geom)?;
    }
    let log_dev: &dyn Device = log.as_deref().unwrap_or(&*dev);
    let (cycle, anchor_seq) = recover_log(&*dev, log_dev, &mut sb, &geom, read_only, now)?;
    // The log may have held a growth.
    let geom = geometry(&sb, 0, dev.geometry().size)?;
    dev.confine(0..geom.frags.saturating_mul(geom.frag_size()));
    let log_state = Log::new(&geom, &sb, cycle, anchor_seq);
    let mut core = Core::new(geom, sb, dev.clone(), log_state, opts.cache_bytes, read_only);
    opts.dirty_bytes.into_iter().for_each(|bytes| core.cache.set_dirty_limit(bytes));
    let volume = Arc::new(Volume::assemble(dev, log, clock, core, opts, Ino(sb.root.get())));
    volume.order().checkpointed_at = now;
    volume.load_ags()?;
    volume.run(|core| core.iget(Ino(sb.root.get())).map(drop))?;
    if !read_only {
        volume.drain_inactive()?;
    }
    Ok(volume)
}

/// Replays the log unless the volume is clean, and starts an empty one.
fn recover_log(
    dev: &dyn Device,
    log: &dyn Device,
    sb: &mut SuperBlock,
    geom: &Geom,
    read_only: bool,
    now: Time,
) -> Result<(u32, u64)> {
    let start = sb.log_start.get() * SECTOR;
    let clean = sb.clean.get() != 0;
    if read_only {
        // It may say so although there is nothing to replay: damage was met, which fsck should look at.
        let recovered = || recover::replay_what_is_there(dev, log, sb, geom).map(|r| r.records == 0 && !r.anchors_lost);
        if !clean && !recovered()? {
            return Err(Error::refused("the volume needs recovery: mount it for writing once, or run fsck"));
        }
        return Ok((1, 0));
    }
    let (cycle, seq) = if clean {
        let anchor = recover::read_anchor(log, start, geom.fsid)?;
        anchor.map_or((1 << 30, 0), |a| (Lsn(a.tail.get()).cycle(), a.seq.get()))
    } else {
        let replay = recover::replay(dev, log, sb, geom)?;
        if replay.anchors_lost {
            return Err(Corrupt::new(
                "log anchor",
                "crc",
                recover::log_location(sb, 0),
                "nothing valid in both copies",
                "a valid anchor (fsck can go on without)",
            )
            .into());
        }
        let at = (replay.cycle, replay.anchor_seq);
        recover::write_back(dev, geom, &replay)?;
        if let Some(now) = read_super(dev, 0)? {
            *sb = now;
        }
        at
    };
    // A cycle that no record on disk has, also none behind a gap that recovery stopped at.
    let skip = if planted(Flaw::CycleKept) { 0 } else { 2 };
    let (cycle, seq) = (cycle.saturating_add(skip), seq.wrapping_add(1));
    recover::write_anchor(log, start, geom.fsid, seq, Lsn::new(cycle, LOG_FIRST), Lsn(0), now.secs)?;
    log.flush()?;
    sb.clean = 0.into();
    sb.mounts = sb.mounts.get().wrapping_add(1).into();
    write_super(dev, sb)?;
    dev.flush()?;
    Ok((cycle, seq))
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
        let ags = (0..geom.ag_count).map(|ag| Ag::unused(&geom, &sb, ag)).collect();
        let (total, size) = (geom.frags, dev.geometry().size);
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
            dirty: FxHashMap::default(),
            tx: Tx::default(),
            log,
            ags,
            loaded: VecDeque::new(),
            free: 0,
            blocks_known: 0,
            blocks_at: 0,
            inodes: 0,
            inodes_free: 0,
            reserved: 0,
            converting: 0,
            nodes: 0,
            pool: (total / 64).min(u64::from(geom.block_frags()) * 256),
            marked: VecDeque::new(),
            marked_frags: 0,
            delayed: FxHashMap::default(),
            delayed_order: BTreeMap::new(),
            delayed_seq: 0,
            lives: Lifetimes::default(),
            missed: Misses::default(),
            versions: Versions::default(),
            meta_seq: 0,
            blocking: false,
            want: None,
            by_batch: false,
            health: Health::new(read_only),
            metadata_reads: 0,
            damaged: FxHashMap::default(),
        }
    }

    /// Remembers the damaged inodes of a chunk just read.
    pub fn note_damage(&mut self, addr: Daddr, what: What, bytes: &[u8]) {
        if what != What::Chunk {
            return;
        }
        for (ino, inode) in inodes_of(&self.geom, addr, bytes) {
            match sound::inode(&self.geom, ino, inode) {
                Ok(()) => drop(self.damaged.remove(&ino)),
                Err(c) => drop(self.damaged.insert(ino, c)),
            }
        }
    }

    /// The bytes of a metadata buffer, from the cache or (inside a transaction) the device.
    pub fn buffer(&mut self, addr: Daddr, len: usize, what: What) -> Result<&Arc<Vec<u8>>> {
        let name = Name::Block(addr.0);
        let at = match self.cache.find(name) {
            Some(at) => at,
            None if !self.blocking => {
                self.want = Some(Want::Buffer(addr, len, what));
                return Err(Error::Restart);
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
}

/// Reads and checks a metadata buffer. What is damaged is read once more: if the fault lay in the
/// transfer, it must neither fail the call nor stay in the cache.
pub(crate) fn read_buffer(dev: &dyn Device, geom: &Geom, addr: Daddr, len: usize, what: What) -> Result<Vec<u8>> {
    check_buffer(dev, geom, addr, what, None, len)
}

fn kind_of(what: What) -> Kind {
    match what {
        What::Chunk => Kind::Inode,
        What::Block(BlockType::Dir) => Kind::Dir,
        What::Block(BlockType::Bitmap) => Kind::Bitmap,
        What::Block(BlockType::Group | BlockType::Inodes) => Kind::Group,
        What::Block(BlockType::Xattr) => Kind::Xattr,
        What::Block(_) => Kind::Tree,
    }
}

/// As [`read_buffer`], for bytes that may have been read already.
fn check_buffer(
    dev: &dyn Device,
    geom: &Geom,
    addr: Daddr,
    what: What,
    read: Option<Vec<u8>>,
    len: usize,
) -> Result<Vec<u8>> {
    let kind = kind_of(what);
    let mut bytes = match read {
        Some(bytes) => bytes,
        None => {
            let mut bytes = zeroed(len);
            dev.read_at(kind, addr.byte(), &mut bytes)?;
            bytes
        }
    };
    // A chunk's inodes are refused each by itself, see `Core::note_damage`.
    let check = |bytes: &[u8]| match what {
        What::Chunk => Ok(()),
        What::Block(t) => check_block(geom, t, addr, bytes).and_then(|()| sound::block(t, addr, bytes)),
    };
    if check(&bytes).is_err() || what == What::Chunk && !inodes_of(geom, addr, &bytes).all(is_sound) {
        dev.read_at(kind, addr.byte(), &mut bytes)?;
    }
    check(&bytes)?;
    Ok(bytes)
}

/// Buffers in groups that are read by one request each: it costs less to read what lies between
/// them than to ask once more.
fn neighbours(mut all: Vec<BufferId>) -> Vec<Vec<BufferId>> {
    const GAP: u64 = 64 << 10;
    const MOST: u64 = 1 << 20;
    all.sort_unstable_by_key(|b| b.0);
    let mut groups: Vec<Vec<BufferId>> = Vec::new();
    for one in all {
        let end = one.0.byte() + one.1 as u64;
        match groups.last_mut() {
            Some(g)
                if g.last().is_some_and(|l| one.0.byte() <= l.0.byte() + l.1 as u64 + GAP)
                    && g.first().is_some_and(|f| end - f.0.byte() <= MOST) =>
            {
                g.push(one);
            }
            _ => groups.push(vec![one]),
        }
    }
    groups
}

/// Whether an inode is as it was written. One that was never used has no checksum, only zeros.
fn is_sound((ino, inode): (u64, &[u8])) -> bool {
    let unused = Dinode::ref_from_prefix(inode).is_ok_and(|(d, _)| d.magic.get() == 0);
    if unused { inode.iter().all(|b| *b == 0) } else { check_inode(ino, inode).is_ok() }
}

/// The inodes of a chunk with their numbers.
fn inodes_of<'a>(geom: &Geom, addr: Daddr, chunk: &'a [u8]) -> impl Iterator<Item = (u64, &'a [u8])> {
    let size = geom.inode_size();
    chunk.chunks_exact(size).enumerate().map(move |(n, inode)| (addr.0 + (n * size) as u64 / SECTOR, inode))
}

/// What was done for a call that has given up.
#[derive(Default)]
pub(crate) struct Tries {
    reclaimed: u32,
    fills: u32,
    batches: u32,
    /// Misses are read at once, under the lock.
    in_place: bool,
    /// What a walk is about to need is asked for one by one.
    singly: bool,
}

impl State for Core {
    type Want = Want;
    type Tries = Tries;

    fn health(&mut self) -> &mut Health {
        &mut self.health
    }

    fn begin_call(&mut self, tries: &mut Tries) {
        self.want = None;
        self.blocking = tries.in_place;
        self.by_batch = !tries.singly;
    }

    fn has_changed(&mut self) -> bool {
        self.tx.open
    }

    /// The transaction cannot be undone, so nothing after it may be written.
    fn is_refusal(&self, _e: &Error) -> bool {
        false
    }

    fn end_call<R>(&mut self, done: &Result<R>) {
        self.blocking = false;
        if done.is_err() && self.tx.open {
            self.tx = Tx::default();
        }
    }

    fn take_want(&mut self) -> Option<Want> {
        self.want.take()
    }
}

impl Calls for Volume {
    type Core = Core;

    fn tries(&self) -> Tries {
        Tries::default()
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    fn note_pressure(&self, core: &mut Core) {
        Volume::note_pressure(self, core);
    }

    fn provide(&self, want: Want, tries: &mut Tries) -> Result<()> {
        match want {
            Want::Buffers(all) => {
                // A small cache may not hold all of them: one by one is slower, and gets on.
                tries.batches += 1;
                tries.singly = !self.fill_buffers(all) || tries.batches >= MOST_BATCHES;
                Ok(())
            }
            Want::Buffer(addr, len, what) => match self.fill_buffer(addr, len, what) {
                // It may have been freed since it was wanted: look again, and read what is
                // still wanted under the lock, where nobody frees or writes it.
                Err(Error::Corrupt(_)) if !tries.in_place && !planted(Flaw::FreedBelieved) => {
                    tries.in_place = true;
                    Ok(())
                }
                filled => filled,
            },
            Want::Pages(ino, first, last) => {
                // Write-backs of the file may come between again and again; then they have to wait.
                tries.fills += 1;
                self.fill_pages(ino, first, last, tries.fills.is_multiple_of(8))
            }
            Want::LogSpace => self.make_log_space(),
            Want::DiskSpace if tries.reclaimed < 2 => {
                tries.reclaimed += 1;
                self.reclaim()
            }
            Want::DiskSpace => Err(Errno::ENOSPC.into()),
        }
    }
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

    /// Reads the headers of all AGs in use, and the inode recovery lists.
    fn load_ags(&self) -> Result<()> {
        let (geom, used) = {
            let core = self.core.lock();
            (core.geom, core.sb.ag_used.get())
        };
        let len = geom.block_size();
        for group in (0..used).collect::<Vec<_>>().chunks(256) {
            let batch =
                group.iter().map(|&ag| Request::read(Kind::Group, geom.group_block(ag).byte(), 2 * len)).collect();
            for (&ag, bytes) in group.iter().zip(self.dev.submit(batch).wait()) {
                let bytes = bytes?;
                let (a, b) = bytes.split_at(len);
                check_block(&geom, BlockType::Group, geom.group_block(ag), a)?;
                check_block(&geom, BlockType::Inodes, geom.inode_block(ag), b)?;
                sound::block(BlockType::Inodes, geom.inode_block(ag), b)?;
                let mut core = self.core.lock();
                core.cache.insert(Name::Block(geom.group_block(ag).0), Arc::new(a.to_vec()));
                core.cache.insert(Name::Block(geom.inode_block(ag).0), Arc::new(b.to_vec()));
                core.blocking = true;
                let r = core.load_ag(ag);
                core.blocking = false;
                r?;
            }
        }
        self.run(|core| {
            core.free = core.ags.iter().map(|a| u64::from(a.free)).sum();
            core.lives.clear_orphans();
            (0..used).try_for_each(|ag| core.load_orphans(ag))
        })
    }

    pub(crate) fn log_dev(&self) -> &dyn Device {
        self.log.as_deref().unwrap_or(&*self.dev)
    }

    /// Runs a call on the state in core; see the module's documentation.
    pub(crate) fn run<R>(&self, f: impl FnMut(&mut Core) -> Result<R>) -> Result<R> {
        calls::run(self, f)
    }

    /// Like [`Volume::run`] for calls that change something.
    pub(crate) fn change<R>(&self, mut f: impl FnMut(&mut Core, Time) -> Result<R>) -> Result<R> {
        let now = self.clock.now();
        self.core.lock().health.check_writable()?;
        self.throttle()?;
        self.run(|core| {
            core.health.check_writable()?;
            f(core, now)
        })
    }

    /// Reads a metadata buffer into the cache without the lock. What was read while others of its
    /// kind were written in place may be torn or out of date, and is read again; in the end with
    /// the commit lock held, which nobody writes without.
    fn fill_buffer(&self, addr: Daddr, len: usize, what: What) -> Result<()> {
        for attempt in 0.. {
            let order = (attempt >= 3).then(|| self.order());
            let (geom, seq, window, ahead) = {
                let mut core = self.core.lock();
                let window = if attempt == 0 { core.windows.find(addr.byte(), len as u64, true) } else { None };
                (core.geom, core.meta_seq, window, core.windows.run_on())
            };
            ahead.iter().for_each(|w| w.start(&*self.dev, kind_of(what)));
            let from_window = window.and_then(|w| {
                let bytes = w.bytes(&*self.dev, kind_of(what))?;
                let at = w.place(addr.byte());
                bytes.get(at..at + len).map(<[u8]>::to_vec)
            });
            let bytes = check_buffer(&*self.dev, &geom, addr, what, from_window, len);
            self.counters.metadata_reads.fetch_add(1, Relaxed);
            let mut core = self.core.lock();
            if core.meta_seq != seq && order.is_none() {
                continue;
            }
            if !core.cache.contains(Name::Block(addr.0)) {
                let bytes = bytes?;
                core.note_damage(addr, what, &bytes);
                core.cache.insert(Name::Block(addr.0), Arc::new(bytes));
            }
            return Ok(());
        }
        Ok(())
    }

    /// Reads metadata buffers into the cache, all at once; those close together with one request.
    /// Says whether all are there now; [`Volume::fill_buffer`] knows more ways.
    fn fill_buffers(&self, all: Vec<BufferId>) -> bool {
        let (geom, seq) = {
            let core = self.core.lock();
            (core.geom, core.meta_seq)
        };
        let names: Vec<Name> = all.iter().map(|b| Name::Block(b.0.0)).collect();
        let groups = neighbours(all);
        let extent = |group: &[BufferId]| {
            let (first, last) = (group.first().map_or(0, |b| b.0.byte()), group.last());
            (first, last.map_or(0, |b| (b.0.byte() - first) as usize + b.1))
        };
        let batch = groups.iter().map(|g| {
            let (at, len) = extent(g);
            Request::read(g.first().map_or(Kind::Other, |b| kind_of(b.2)), at, len)
        });
        let read = self.dev.submit(batch.collect()).wait();
        self.counters.metadata_reads.fetch_add(groups.len() as u64, Relaxed);
        let mut found = Vec::new();
        for (group, bytes) in groups.iter().zip(read) {
            let (Ok(bytes), (first, _)) = (bytes, extent(group)) else { continue };
            for &(addr, len, what) in group {
                let at = (addr.byte() - first) as usize;
                let piece = bytes.get(at..at + len).map(<[u8]>::to_vec);
                if let Ok(sound) = check_buffer(&*self.dev, &geom, addr, what, piece, len) {
                    found.push((addr, what, sound));
                }
            }
        }
        let mut core = self.core.lock();
        if core.meta_seq == seq {
            for (addr, what, bytes) in found {
                if !core.cache.contains(Name::Block(addr.0)) {
                    core.note_damage(addr, what, &bytes);
                    core.cache.insert(Name::Block(addr.0), Arc::new(bytes));
                }
            }
        }
        let there = names.iter().filter(|name| core.cache.contains(**name)).count();
        there == names.len()
    }

    fn make_log_space(&self) -> Result<()> {
        self.counters.stalls.fetch_add(1, Relaxed);
        let mut io = self.order();
        self.core.lock().health.check_writable()?;
        self.flush_log(&mut io)?;
        self.run_bitmap_daemon(&mut io, false)?;
        self.checkpoint(&mut io, true)
    }

    /// Makes fragments that are on their way to be free allocatable.
    fn reclaim(&self) -> Result<()> {
        self.drain_inactive()?;
        let mut io = self.order();
        // Delayed writes have more reserved than they take.
        let seq = self.core.lock().delayed_seq;
        self.write_back(&mut io, Which::UpTo(seq))?;
        self.flush_log(&mut io)?;
        self.run_bitmap_daemon(&mut io, true)?;
        self.flush_log(&mut io)
    }

    /// Frees inodes that have neither names nor users.
    pub(crate) fn drain_inactive(&self) -> Result<()> {
        while self.run(|core| {
            if !core.health.is_writable() {
                return Ok(false);
            }
            core.inactivate(self.clock.now())
        })? {}
        Ok(())
    }

    /// Unmounts: everything durable and in place, the log empty, the superblock clean.
    pub(crate) fn close(&self) -> Result<()> {
        if let Some(done) = self.core.lock().health.begin_unmount() {
            return done;
        }
        let done = self.drain_inactive().and_then(|()| self.sync_all()).and_then(|()| self.settle());
        self.core.lock().health.end_unmount(done)
    }

    /// Brings the log to emptiness and marks the superblock clean.
    fn settle(&self) -> Result<()> {
        let mut io = self.order();
        self.run_bitmap_daemon(&mut io, true)?;
        self.flush_log(&mut io)?;
        if planted(Flaw::CleanTooEarly) {
            let sb = self.core.lock().current_super();
            write_super(&*self.dev, &SuperBlock { clean: 1.into(), ..sb })?;
        }
        self.checkpoint(&mut io, true)?;
        let (mut sb, damaged) = {
            let mut core = self.core.lock();
            // Whoever waits for the commit lock must not write to a volume that is marked clean.
            core.health.unmount();
            (core.current_super(), core.health.has_met_damage())
        };
        sb.clean = u32::from(!damaged).into();
        self.or_fail(write_super(&*self.dev, &sb))?;
        self.or_fail(self.dev.flush().map_err(Error::Io))
    }
}
