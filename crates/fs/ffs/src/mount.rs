//! The mounted volume: its state in core, its buffers, how calls enter it, mounting and unmounting.
//!
//! One lock holds everything (`kit::locked`). It is not held while the device reads for a call that has changed nothing yet
//! and is not alone.

use crate::alloc::Cg;
use crate::commit::{InFlight, Keep};
use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::{bitmap, options, recover, sound, superblock};
use arbor_base::cache::{Cache, Name};
use arbor_base::device::{Device, Kind};
use arbor_base::layout::{Corrupt, crc};
use arbor_base::vfs::{Clock, Devices, Errno, Error, Ino, MountOptions, Result, Time};
use arbor_kit::chunkdir::Hashes;
use arbor_kit::counters::Io;
use arbor_kit::locked::Locked;
use arbor_kit::machine::{Machine, Machinery};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Super,
    Cg,
    Inodes,
    Indirect,
    Xattr,
    Dir,
    Data,
}

impl What {
    pub fn kind(self) -> Kind {
        match self {
            What::Super => Kind::Super,
            What::Cg => Kind::Bitmap,
            What::Inodes => Kind::Inode,
            What::Indirect => Kind::Tree,
            What::Xattr => Kind::Xattr,
            What::Dir => Kind::Dir,
            What::Data => Kind::Data,
        }
    }
}

/// How long before data other metadata are due, milliseconds.
pub(crate) const EARLIEST_MS: u64 = 2000;

/// A buffer that differs from the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dirty {
    /// When it is due, milliseconds since the mount.
    pub due: u64,
    /// Where it goes.
    pub frag: Frag,
    pub what: What,
    /// The file it belongs to, 0 if to several.
    pub owner: u64,
    /// Its place in [`Core::queue`].
    pub turn: u64,
    /// It was passed over once, since something in it would have been rolled back.
    pub deferred: bool,
}

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
    pub dirty: FxHashMap<Name, Dirty>,
    /// Dirty buffers by the time at which they are due.
    pub ages: BTreeSet<(u64, Name)>,
    /// Dirty buffers in the order of their last change, by a number that counts changes.
    pub queue: BTreeMap<u64, Name>,
    pub turns: u64,
    /// Dirty buffers other than pages, by the file they belong to.
    pub owned: BTreeSet<(u64, Name)>,
    /// Writes of data under way.
    pub in_flight: VecDeque<InFlight>,
    pub cgs: Vec<Cg>,
    pub nbfree: u64,
    pub nffree: u64,
    pub nifree: u64,
    pub ndir: u64,
    /// Fragments that `minfree` keeps back, at least a block.
    pub reserve: u64,
    /// Groups with fragments that are held.
    pub holding: Vec<u32>,
    pub held_frags: u64,
    pub optimize_space: bool,
    /// State of the sequence that spreads directories of the root.
    pub drawn: u64,
    pub keep: Keep,
    pub calls: Machinery,
    /// Creation times of orphans: with a journal their inodes have the list's link in place of it.
    pub btimes: FxHashMap<u64, Stamp>,
    pub hashes: Hashes,
    /// Files read or written one block after another, with the next block.
    pub streams: VecDeque<(u64, u64)>,
    /// Inodes that failed their check when their block was read: only these are refused.
    pub damaged: FxHashMap<u64, Corrupt>,
    /// What is changed now was changed for users before, and what they see waits for it: when that is due.
    pub settling: Option<u64>,
    pub counters: Counters,
}

/// A mounted volume.
pub(crate) type Volume = Locked<Core>;

/// Mounts, after recovery if the volume was not unmounted.
pub(crate) fn mount(devices: Devices, options: &MountOptions, clock: Arc<dyn Clock>) -> Result<Arc<Volume>> {
    let opts = options::Mount::parse(&options.options)?;
    let dev: Arc<dyn Device> = devices.main;
    let Some(mut sb) = superblock::read(&*dev, 0)? else {
        return Err(Error::refused("no FFS superblock"));
    };
    let read_only = arbor_kit::options::read_only(superblock::features(&sb), KNOWN, options, &*dev)?;
    let geom = superblock::geometry(&sb, 0, dev.geometry().size)?;
    if opts.keeping == Keeping::Journal && sb.journal_frags.get() == 0 && !read_only {
        return Err(Error::refused("keep=journal needs a volume that was made with a journal"));
    }
    if sb.clean.get() == 0 {
        recover::recover(&dev, &mut sb, &geom, read_only)?;
    }
    dev.confine(0..geom.byte(Frag(geom.frags)));
    let summaries = read_summaries(&*dev, &sb, &geom)?;
    let mut core = Core::new(geom, sb, dev, opts, clock.now(), &summaries);
    core.calls.health.set_read_only(read_only);
    let orphans = core.sb.orphan.get();
    if !read_only {
        if opts.keeping != Keeping::Journal {
            // From now on the checker finds what has no name.
            core.sb.orphan = 0.into();
        }
        core.sb.clean = 0.into();
        core.sb.keeping = (opts.keeping as u32).into();
        core.sb.mounts = core.sb.mounts.get().wrapping_add(1).into();
        superblock::write(&*core.dev, 0, &core.sb)?;
        if !planted(Flaw::MountUnmarked) {
            core.dev.flush()?;
        }
        core.begin_journal()?;
    }
    let dev = core.dev.clone();
    let volume = Volume::new(core, dev, clock);
    if !read_only {
        volume.run_once(|core| core.load_orphans(orphans))?;
        volume.drain_inactive()?;
    }
    Ok(Arc::new(volume))
}

/// What is free in each group: from the summary area, which is right on a volume that is clean.
fn read_summaries(dev: &dyn Device, sb: &SuperBlock, geom: &Geom) -> Result<Vec<Summary>> {
    let len = geom.cg_count as usize * size_of::<Summary>();
    let mut area = vec![0; geom.bytes_of(geom.summary_frags())];
    let at = geom.byte(Frag(sb.summary_start.get()));
    dev.read_at(Kind::Group, at, &mut area)?;
    let bytes = area.get(..len).unwrap_or(&[]);
    if crc(bytes) != sb.summary_crc.get() {
        let (found, should) = (format!("{:#x}", crc(bytes)), format!("{:#x}", sb.summary_crc.get()));
        return Err(Corrupt::new("summary area", "summary_crc", at, found, should).into());
    }
    Ok(bytes.chunks_exact(size_of::<Summary>()).filter_map(|b| Summary::read_from_bytes(b).ok()).collect())
}

impl Core {
    fn new(
        geom: Geom,
        sb: SuperBlock,
        dev: Arc<dyn Device>,
        opts: options::Mount,
        now: Time,
        summaries: &[Summary],
    ) -> Core {
        let total = |f: fn(&Summary) -> u32| summaries.iter().map(|s| u64::from(f(s))).sum();
        let data = u64::from(geom.frags).saturating_sub(u64::from(geom.cg_count) * u64::from(geom.meta_frags()));
        let mut cache = Cache::new(opts.cache_bytes);
        opts.dirty_bytes.into_iter().for_each(|bytes| cache.set_dirty_limit(bytes));
        Core {
            cache,
            dirty: FxHashMap::default(),
            ages: BTreeSet::new(),
            queue: BTreeMap::new(),
            turns: 0,
            owned: BTreeSet::new(),
            in_flight: VecDeque::new(),
            cgs: summaries.iter().map(Cg::new).collect(),
            nbfree: total(|s| s.nbfree.get()),
            nffree: total(|s| s.nffree.get()),
            nifree: total(|s| s.nifree.get()),
            ndir: total(|s| s.ndir.get()),
            reserve: (data * u64::from(sb.minfree.get()) / 100).max(geom.block_frags().into()),
            holding: Vec::new(),
            held_frags: 0,
            optimize_space: false,
            drawn: geom.fsid ^ sb.mounts.get(),
            keep: Keep::new(opts.keeping),
            calls: Machinery::new(now),
            btimes: FxHashMap::default(),
            hashes: Hashes::new(opts.cache_bytes / 4),
            streams: VecDeque::new(),
            damaged: FxHashMap::default(),
            settling: None,
            counters: Counters::default(),
            geom,
            sb,
            dev,
            opts,
        }
    }

    /// Changes the label in the superblock, durably, then in its copies. The journal may hold an older superblock, and
    /// the one in core says what it has not got yet.
    pub fn write_label(&mut self, label: [u8; 64]) -> Result<()> {
        self.calls.note_change();
        self.end_journal()?;
        self.sb.label = label;
        superblock::write(&*self.dev, 0, &self.sb)?;
        self.dev.flush()?;
        let copy = superblock::as_copy(self.sb);
        for cgx in 1..self.geom.cg_count {
            superblock::write(&*self.dev, self.geom.byte(self.geom.cg_start(cgx)), &copy)?;
        }
        Ok(self.dev.flush()?)
    }

    /// The metadata block at `frag`.
    pub fn block(&mut self, frag: Frag, what: What) -> Result<&Arc<Vec<u8>>> {
        let name = Name::Block(frag.0.into());
        if !self.cache.contains(name) {
            let mut bytes = self.read(frag, self.geom.block_size(), what)?;
            if !self.is_sound(frag, what, &bytes) && !planted(Flaw::NoSecondLook) {
                // It may have been read wrong, and what is written back must not make that last.
                bytes = self.read_again(frag, self.geom.block_size(), what)?;
            }
            sound::block(&self.geom, frag, what, &bytes)?;
            if what == What::Inodes {
                self.note_damaged(frag, &bytes);
            }
            self.cache.insert(name, Arc::new(bytes));
        }
        Ok(self.cache.get(name).ok_or(Errno::EIO)?)
    }

    fn is_sound(&self, frag: Frag, what: What, bytes: &[u8]) -> bool {
        if what != What::Inodes {
            return sound::block(&self.geom, frag, what, bytes).is_ok();
        }
        let first = self.geom.first_inode(frag).0;
        let mut all = (first..).zip(bytes.chunks_exact(INODE));
        all.all(|(ino, b)| sound::inode(&self.geom, Ino(ino), b).is_ok())
    }

    fn note_damaged(&mut self, frag: Frag, bytes: &[u8]) {
        let first = self.geom.first_inode(frag).0;
        for (i, inode) in bytes.chunks_exact(INODE).enumerate() {
            let ino = Ino(first + i as u64);
            match sound::inode(&self.geom, ino, inode) {
                Ok(()) => drop(self.damaged.remove(&ino.0)),
                Err(c) => drop(self.damaged.insert(ino.0, c)),
            }
        }
    }

    /// Reads `len` bytes at `frag`.
    pub fn read(&mut self, frag: Frag, len: usize, what: What) -> Result<Vec<u8>> {
        let bytes = self.calls.reads.read(&*self.dev, what.kind(), self.geom.byte(frag), len)?;
        self.counters.io.count_read(len);
        Ok(bytes)
    }

    /// Reads once more what was read wrong.
    fn read_again(&mut self, frag: Frag, len: usize, what: What) -> Result<Vec<u8>> {
        let bytes = self.calls.reads.read_now(&*self.dev, what.kind(), self.geom.byte(frag), len)?;
        self.counters.io.count_read(len);
        Ok(bytes)
    }

    /// A new metadata block; whatever was there means nothing.
    pub fn make_block(&mut self, frag: Frag, what: What, bytes: Vec<u8>) -> Result<()> {
        let name = Name::Block(frag.0.into());
        self.forget(name);
        if what == What::Inodes {
            self.note_damaged(frag, &bytes);
        }
        self.cache.insert(name, Arc::new(bytes));
        self.change(name, (frag, what, 0), |_| ())
    }

    /// Changes a metadata block that was read before in the same call.
    pub fn modify(&mut self, name: Name, f: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let Name::Block(at) = name else { return Err(Errno::EIO.into()) };
        let frag = Frag(at as u32);
        let within = frag.0 % self.geom.cg_frags / self.geom.block_frags();
        let what = match within {
            0 => What::Super,
            1 => What::Cg,
            _ if frag.0 % self.geom.cg_frags < self.geom.meta_frags() => What::Inodes,
            _ => What::Indirect,
        };
        let owner = self.dirty.get(&name).map_or(0, |d| d.owner);
        self.change(name, (frag, what, owner), f)
    }

    /// Changes a buffer that is in the cache: the only door from clean to dirty. Says where it goes, and whose it is.
    pub fn change<R>(
        &mut self,
        name: Name,
        (frag, what, owner): (Frag, What, u64),
        f: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Result<R> {
        let dirty = self.cache.dirtied(name).ok_or(Errno::EIO)?;
        let done = self.cache.modify(dirty, f);
        self.touch(name, frag, what, owner);
        Ok(done)
    }

    /// Notes that a buffer was changed, and where it goes (FFS-B1).
    pub fn touch(&mut self, name: Name, frag: Frag, what: What, owner: u64) {
        self.calls.note_change();
        let early = match what {
            What::Data => 0,
            What::Dir => 1000,
            _ => EARLIEST_MS,
        };
        let wait = self.opts.commit_ms.saturating_sub(early).max(1);
        let due = (self.calls.now_ms() + wait).min(self.settling.unwrap_or(u64::MAX));
        self.turns += 1;
        let d = self.dirty.entry(name).or_insert(Dirty { due, frag, what, owner, turn: 0, deferred: false });
        self.queue.remove(&d.turn);
        self.queue.insert(self.turns, name);
        (d.frag, d.owner, d.turn) = (frag, owner, self.turns);
        self.ages.insert((d.due, name));
        self.lower_due(name, due);
        if owner != 0 && what != What::Data && what != What::Dir {
            self.owned.insert((owner, name));
        }
        self.join_transaction(name, what);
    }

    /// A dirty buffer is due then, unless it is before. Says whether that changed anything.
    pub fn lower_due(&mut self, name: Name, due: u64) -> bool {
        let Some(d) = self.dirty.get_mut(&name).filter(|d| d.due > due) else { return false };
        let old = std::mem::replace(&mut d.due, due);
        self.ages.remove(&(old, name));
        self.ages.insert((due, name));
        true
    }

    /// A buffer is as it is on disk, or nobody wants it any more.
    pub fn untouch(&mut self, name: Name) -> Option<Dirty> {
        let d = self.dirty.remove(&name)?;
        self.ages.remove(&(d.due, name));
        self.queue.remove(&d.turn);
        self.owned.remove(&(d.owner, name));
        Some(d)
    }

    /// Drops a buffer whose place on disk is not its own any more.
    pub fn forget(&mut self, name: Name) {
        if self.in_flight.iter().any(|w| w.writes.iter().any(|w| w.name() == name)) {
            // The place may be somebody else's next, whose write must not be overtaken.
            let _ = self.reap(0);
        }
        self.untouch(name);
        self.leave_transaction(name);
        self.cache.remove(name);
    }

    /// Summary of all groups, as the summary area has it.
    fn summary_bytes(&self) -> Vec<u8> {
        self.cgs.iter().flat_map(|c| c.summary().as_bytes().to_vec()).collect()
    }
}

impl Machine for Core {
    fn calls(&mut self) -> &mut Machinery {
        &mut self.calls
    }

    fn cache(&mut self) -> &mut Cache {
        &mut self.cache
    }

    fn relieve(&mut self) {
        self.write_excess();
    }

    fn give_up(&mut self, why: &Error) {
        if !planted(Flaw::FailureForgotten) {
            self.calls.health.fail(why);
        }
    }
}

impl Core {
    pub fn mark_clean(&mut self) -> Result<()> {
        self.calls.note_change();
        self.end_journal()?;
        let mut sums = self.summary_bytes();
        self.sb.summary_crc = crc(&sums).into();
        sums.resize(self.geom.bytes_of(self.geom.summary_frags()), 0);
        self.dev.write_at(Kind::Group, self.geom.byte(Frag(self.sb.summary_start.get())), &sums)?;
        if !planted(Flaw::CleanTooEarly) {
            self.dev.flush()?;
        }
        self.sb.clean =
            u32::from(!self.calls.health.has_met_damage() && self.dirty.is_empty() && self.keep.owes_nothing()).into();
        superblock::write(&*self.dev, 0, &self.sb)?;
        Ok(self.dev.flush()?)
    }
}

/// Summaries of all groups from the groups themselves, written to the summary area; after recovery.
pub(crate) fn rebuild_summaries(dev: &dyn Device, sb: &mut SuperBlock, geom: &Geom, write: bool) -> Result<()> {
    let mut sums = Vec::new();
    for cgx in 0..geom.cg_count {
        let mut cg = vec![0; geom.block_size()];
        dev.read_at(Kind::Bitmap, geom.byte(geom.cg_block(cgx)), &mut cg)?;
        sound::block(geom, geom.cg_block(cgx), What::Cg, &cg)?;
        sums.extend_from_slice(bitmap::header(&cg).sum.as_bytes());
    }
    sb.summary_crc = crc(&sums).into();
    sums.resize(geom.bytes_of(geom.summary_frags()), 0);
    if write {
        dev.write_at(Kind::Group, geom.byte(Frag(sb.summary_start.get())), &sums)?;
    }
    Ok(())
}
