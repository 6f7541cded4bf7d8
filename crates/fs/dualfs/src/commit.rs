//! The order of writes: data, then the metadata that lead to them, then checkpoints.
//!
//! On a mounted volume all writes are made here but one: `volume.rs` writes the label into the superblock, and, while it is
//! resized, the border.
//!
//! Changes stay in core until a *set* of partial segments is written, with all of them, so that the disk always has the state
//! after some call. First the dirty pages of regular files get their places and are written, which never go where the state on
//! disk has something, unless it has no checksum: with `modify=overwrite` contents lose theirs when they are first overwritten,
//! and are overwritten where they lie from then on. For an fsync those of other files wait, since no metadata lead to anything
//! new there. Then the metadata go to the log, in the order of section 2.2: the files that changed last first; of each, blocks of
//! directories in inverse order, attributes, then indirect blocks from the lowest level up; then the inodes. A pointer holds the checksum of the block that it leads to, so that a block is
//! placed before the one that leads to it.
//!
//! The summaries of a set repeat what it makes of the inode map, of the segment usage and of the groups. So a set need not
//! write the ifile, and roll-forward (`recover.rs`) learns all of it from the summaries. A *checkpoint* writes what is
//! changed, then the ifile in a set of its own, then the older of the two checkpoint regions. Each mount for writing begins
//! an *epoch*, whose number is in the summaries: the remains of a torn set are not taken for the continuation of the log.
//!
//! Called by `ops.rs`: [`Core::sync`] for fsync and sync, [`Core::run_daemons`] in the background; and by `kit::machine`:
//! [`Core::write_excess`] after a call.
//!
//! # Invariants
//!
//! * **DUALFS-C1** a block of the log is written once while its segment is filled, from its start to its end. The only
//!   exception are the remains of a torn set, to which nothing refers.
//! * **DUALFS-C2** a set counts whole or not at all.
//! * **DUALFS-C3** a segment is reused only after two consecutive checkpoints have recorded it as clean, so that neither
//!   checkpoint on disk refers to it.
//! * **DUALFS-C4** a set is written only after the data to which it leads are durable, a checkpoint only after the sets
//!   before it.
//! * **DUALFS-C5** a data block that was freed is given away only after the set that frees it is durable.

use crate::decoded::Inode;
use crate::format::*;
use crate::plan::{Batch, Block, LogEnd, Part, Planner};
use crate::planted::{Flaw, planted};
use crate::summary::Parsed;
use crate::volume::Core;
use crate::{areas, superblock};
use arbor_base::cache::{Cache, FileBlock, Name, Write, cluster};
use arbor_base::device::{Buf, Kind, Request};
use arbor_base::layout::{crc, hash};
use arbor_base::vfs::{Errno, Error, Ino, Result, Time};
use arbor_kit::blockmap::BlockMap as _;
use arbor_kit::segments::Use;
use std::collections::BTreeSet;
use zerocopy::{FromBytes, IntoBytes};

/// Longest time between checkpoints, milliseconds (section 2.1): it bounds roll-forward.
const CHECKPOINT_MS: u64 = 60_000;
/// Longest request for writing data, bytes.
const REQUEST: u64 = 1 << 20;

/// Pages that are to be written.
#[derive(Default)]
struct Pages {
    pieces: Vec<(u64, Kind, Buf)>,
    written: Vec<Write>,
}

impl Pages {
    /// Adds a page that goes to a data block; returns its checksum.
    fn add(&mut self, cache: &mut Cache, geom: &Geom, (ino, lbn): (Ino, u64), to: DataBlock) -> Result<u32> {
        let write = cache.begin_write(Name::data(ino, lbn)).ok_or(Errno::EIO)?;
        let (bytes, sum) = (write.bytes().clone(), crc(write.bytes()));
        self.pieces.push((geom.data_byte(to), Kind::Data, Buf::new(bytes).of_file(ino.0)));
        self.written.push(write);
        Ok(sum)
    }
}

impl Core {
    /// Writes all changes in a set, and makes them durable. An error makes the volume read-only.
    pub fn sync(&mut self) -> Result<()> {
        self.unless_failed(Core::write_set)
    }

    /// The same for one file, with all changes of metadata. Blocks of other files that are overwritten where they lie stay in
    /// core: nothing leads to them that was not there before.
    pub fn sync_one(&mut self, ino: Ino) -> Result<()> {
        self.unless_failed(|core| core.write_set_for(Some(ino)))
    }

    /// Writes something, unless a write has failed before; an error makes the volume read-only.
    fn unless_failed(&mut self, write: impl FnOnce(&mut Core) -> Result<()>) -> Result<()> {
        if self.calls.health.has_failed() {
            return Err(Errno::EROFS.into());
        }
        write(self).inspect_err(|e| self.calls.health.fail(e))
    }

    /// The same; an error is for the caller to deal with.
    pub fn write_set(&mut self) -> Result<()> {
        self.write_set_for(None)
    }

    fn write_set_for(&mut self, only: Option<Ino>) -> Result<()> {
        let since = self.changes.since;
        let left = self.write_changes(only)?;
        if left.is_empty() {
            return Ok(());
        }
        self.changes.since = since;
        left.into_iter().try_for_each(|ino| self.mark(ino))
    }

    /// Returns the files of which pages are left in core.
    fn write_changes(&mut self, only: Option<Ino>) -> Result<Vec<Ino>> {
        if !self.changes.is_some() {
            return Ok(Vec::new());
        }
        if planted(Flaw::FreedAtOnce) {
            let runs = self.free_runs()?;
            self.groups.taken.extend(runs);
            self.changes.freed.clear();
        }
        let left = self.write_data(only)?;
        let batch = self.batch()?;
        let (parts, end) = self.plan(batch)?;
        self.apply_usage(&parts, &end);
        self.emit(parts, end, 0)?;
        self.changes.dead.clear();
        self.changes.entries.clear();
        self.changes.freed.clear();
        (self.changes.since, self.changes.pages) = (None, left.iter().map(|(_, pages)| pages).sum());
        self.groups.taken.clear();
        self.groups.changed.clear();
        Ok(left.into_iter().map(|(ino, _)| ino).collect())
    }

    // Data.

    /// Gives the dirty pages of regular files their places, writes them, and makes them durable (DUALFS-C4). If `only` one file
    /// is to be durable, pages of others may stay in core ([`Core::is_left`]): returns how many of which files do.
    fn write_data(&mut self, only: Option<Ino>) -> Result<Vec<(Ino, usize)>> {
        let files: Vec<Ino> = self.changes.order.values().map(|ino| Ino(*ino)).filter(|ino| *ino != IFILE).collect();
        let (mut pages, mut left) = (Pages::default(), Vec::new());
        for ino in files {
            let i = self.inode(ino)?;
            if i.is_file() {
                let some = self.place_pages(i, only.is_some_and(|only| only != ino), &mut pages)?;
                left.extend((some > 0).then_some((ino, some)));
            }
        }
        if pages.pieces.is_empty() {
            return Ok(left);
        }
        self.counters.data_blocks += pages.pieces.len() as u64;
        let requests = cluster(pages.pieces, REQUEST);
        self.submit(requests).wait_all()?;
        if !planted(Flaw::DataUnflushed) {
            self.flush()?;
        }
        for write in pages.written {
            self.cache.end_write(write, true);
        }
        Ok(left)
    }

    /// Whether a page that is overwritten where it lies can wait: all of its bytes have been bytes of the file since the last
    /// set. (Those that were not have to be zeros on disk before a size says that they are.)
    fn is_left(&self, ino: Ino, lbn: u64) -> bool {
        let whole = self.changes.least(ino) >> self.geom.block_shift;
        lbn < whole || planted(Flaw::TailLeft)
    }

    /// Returns how many pages are left.
    fn place_pages(&mut self, mut i: Inode, may_wait: bool, placed: &mut Pages) -> Result<usize> {
        let (mut pages, mut left) = (Vec::<u64>::new(), 0);
        for lbn in self.cache.dirty_pages(i.ino, 0).collect::<Vec<_>>() {
            let p = self.pointer(&i, FileBlock::Data(lbn))?;
            let stays = self.stays(&i, FileBlock::Data(lbn), p);
            if stays && may_wait && self.is_left(i.ino, lbn) {
                left += 1;
            } else if stays {
                self.place_of(&i, FileBlock::Data(lbn), p)?;
                placed.add(&mut self.cache, &self.geom, (i.ino, lbn), DataBlock(p.block.get()))?;
            } else {
                pages.push(lbn);
            }
        }
        let mut at = 0;
        while let Some(lbn) = pages.get(at).copied() {
            let run = pages[at..].iter().zip(lbn..).take_while(|(a, b)| **a == *b).count() as u32;
            let goal = self.goal(&i, lbn);
            let (first, blocks) = self.allocate(Group(i.d.group.get()), goal, run)?;
            for n in 0..blocks {
                self.place_page(&mut i, lbn + u64::from(n), DataBlock(first.0 + n), placed)?;
            }
            at += blocks as usize;
        }
        Ok(left)
    }

    /// The data block after that of the logical block before; none if that is not known, which may be damaged.
    fn goal(&mut self, i: &Inode, lbn: u64) -> Option<u32> {
        let p = self.pointer(i, FileBlock::Data(lbn.checked_sub(1)?)).ok()?;
        p.is_placed().then(|| p.block.get().saturating_add(1))
    }

    fn place_page(&mut self, i: &mut Inode, lbn: u64, to: DataBlock, placed: &mut Pages) -> Result<()> {
        let part = FileBlock::Data(lbn);
        let sum = placed.add(&mut self.cache, &self.geom, (i.ino, lbn), to)?;
        let old = self.pointer(i, part)?;
        self.drop_placed(i, part, old);
        let has_sum = !self.opts.overwrite || self.opts.sums && !old.is_placed();
        let crc = if has_sum { sum } else { NO_SUM };
        self.set_pointer(i, part, Pointer { block: to.0.into(), crc: crc.into() })
    }

    // Metadata.

    /// The changed metadata blocks of a file, in the order in which they are written.
    fn blocks_of(&mut self, ino: Ino, out: &mut Vec<Block>) -> Result<()> {
        let i = self.inode(ino)?;
        let mut parts: Vec<FileBlock> = Vec::new();
        if ino == IFILE || !i.is_file() {
            parts.extend(self.cache.dirty_pages(ino, 0).map(FileBlock::Data));
            parts.reverse();
        }
        let xattrs: Vec<FileBlock> = (0..=self.xattrs_in_core(&i)).rev().map(FileBlock::Xattr).collect();
        parts.extend(xattrs.into_iter().filter(|part| self.cache.is_dirty(Name::File(ino, *part))));
        parts.extend(self.cache.dirty_map(ino).map(|(level, n)| FileBlock::Map { level, n }));
        out.extend(parts.into_iter().map(|part| Block { ino, version: i.d.version.get(), part }));
        Ok(())
    }

    /// The greatest number of a further block of attributes that may be in the cache.
    fn xattrs_in_core(&self, i: &Inode) -> u32 {
        let first = self.cache.peek(Name::File(i.ino, FileBlock::Xattr(0)));
        let head = first.and_then(|first| XattrHead::read_from_prefix(&first[..]).ok());
        head.map_or(0, |(head, _)| head.more.get().min(self.most_further()))
    }

    /// All changes of metadata but those of the ifile; what was freed is free from here on (DUALFS-C5).
    fn batch(&mut self) -> Result<Batch> {
        let mut batch = Batch::default();
        let newest_first: Vec<Ino> = self.changes.order.values().rev().map(|ino| Ino(*ino)).collect();
        batch.inodes = newest_first.into_iter().filter(|ino| *ino != IFILE).collect();
        for ino in &batch.inodes {
            self.blocks_of(*ino, &mut batch.blocks)?;
        }
        batch.runs = std::mem::take(&mut self.groups.taken);
        if !planted(Flaw::FreedForgotten) {
            batch.runs.extend(self.free_runs()?);
        }
        self.note_deaths(&batch.blocks, &batch.inodes)?;
        let of = |(seg, died): (&u32, &u32)| SegInfo { seg: (*seg).into(), died: (*died).into() };
        batch.deaths = self.changes.dead.iter().map(of).collect();
        let of = |n: &u32| GroupInfo { group: (*n).into(), desc: self.groups.get(Group(*n)) };
        batch.groups = self.groups.changed.iter().map(of).collect();
        let written: BTreeSet<u64> = batch.inodes.iter().map(|ino| ino.0).collect();
        batch.entries = self.changes.entries.iter().filter(|ino| !written.contains(ino)).map(|ino| Ino(*ino)).collect();
        Ok(batch)
    }

    /// Counts what blocks and inodes leave behind where they are now.
    fn note_deaths(&mut self, blocks: &[Block], inodes: &[Ino]) -> Result<()> {
        for b in blocks {
            let i = self.inode(b.ino)?;
            let p = self.pointer(&i, b.part)?;
            self.drop_placed(&i, b.part, p);
        }
        for ino in inodes {
            let block = if *ino == IFILE { self.checkpoint.ifile.get() } else { self.map_entry(*ino)?.block.get() };
            if !matches!(block, 0 | NO_PLACE) {
                self.mark_dead(MetaBlock(block), INODE as u32);
            }
        }
        Ok(())
    }

    fn plan(&self, batch: Batch) -> Result<(Vec<Part>, LogEnd)> {
        Planner::new(self.geom, &self.segs.clean, self.log).run(batch)
    }

    /// Adds what a plan writes to the usage of segments, and subtracts what it leaves dead (DUALFS-U1).
    fn apply_usage(&mut self, parts: &[Part], end: &LogEnd) {
        let now = self.calls.now().secs;
        for part in parts {
            self.segs.add(part.seg.0, part.live(&self.geom), now);
            part.batch.deaths.iter().for_each(|d| self.segs.mark_dead(d.seg.get(), d.died.get()));
        }
        self.mark_taken(end);
    }

    /// Marks dirty the segment that the log is in, and the one that it goes to next.
    fn mark_taken(&mut self, end: &LogEnd) {
        for seg in end.busy() {
            self.segs.clean.remove(seg);
            let s = self.segs.get(seg);
            if !s.dirty {
                self.segs.set(seg, Use { dirty: true, ..s });
            }
        }
    }

    /// Writes planned partial segments, and flushes.
    fn emit(&mut self, parts: Vec<Part>, end: LogEnd, flags: u32) -> Result<()> {
        let (mut requests, mut written) = (Vec::new(), Vec::new());
        let count = parts.len();
        let mut inodes = Vec::new();
        for (index, part) in parts.into_iter().enumerate() {
            let last = if index + 1 == count { LAST } else { 0 };
            inodes.extend_from_slice(&part.batch.inodes);
            requests.push(self.partial_segment(part, index as u32, flags | last, &mut written)?);
        }
        self.counters.sets += 1;
        self.submit(requests).wait_all()?;
        if !(planted(Flaw::CheckpointTooEarly) && flags & IFILE_ONLY != 0) {
            self.flush()?;
        }
        for write in written {
            self.cache.end_write(write, true);
        }
        inodes.into_iter().for_each(|ino| self.changes.remove(ino));
        self.log = LogEnd { set: end.set + 1, ..end };
        Ok(())
    }

    fn partial_segment(&mut self, part: Part, index: u32, flags: u32, written: &mut Vec<Write>) -> Result<Request> {
        let (geom, (own, len)) = (self.geom, part.lens(&self.geom));
        let start = geom.seg_start(part.seg).0 + part.at;
        self.forget_read(MetaBlock(start), len);
        let (mut data, mut at) = (Vec::with_capacity(((len - own) as usize) << geom.block_shift), start + own);
        let mut parsed = Parsed::default();
        for block in &part.batch.blocks {
            let info = self.write_block(block, MetaBlock(at), &mut data, written)?;
            parsed.blocks.push(info);
            at += 1;
        }
        for some in part.batch.inodes.chunks(geom.inodes()) {
            for ino in some {
                self.write_inode(*ino, MetaBlock(at), &mut data, written)?;
            }
            data.resize(data.len().next_multiple_of(geom.block()), 0);
            at += 1;
        }
        let changed = part.batch.inodes.iter().chain(&part.batch.entries).filter(|ino| **ino != IFILE);
        for ino in changed {
            parsed.inodes.push(InodeInfo { ino: (ino.0 as u32).into(), entry: self.map_entry(*ino)? });
        }
        parsed.segs = part.batch.deaths;
        parsed.runs = part.batch.runs;
        parsed.groups = part.batch.groups;
        parsed.head = Summary {
            magic: SUMMARY_MAGIC.into(),
            fsid: geom.fsid.into(),
            set: self.log.set.into(),
            epoch: self.log.epoch.into(),
            fill: part.fill.into(),
            index: index.into(),
            flags: flags.into(),
            own: own.into(),
            len: len.into(),
            next_seg: part.next_seg.0.into(),
            data_crc: crc(&data).into(),
            totals: self.state.into(),
            time: self.calls.now().secs.into(),
            ..Summary::default()
        };
        let summary = parsed.encode(&geom);
        Ok(Request::write(Kind::Log, geom.meta_byte(MetaBlock(start)), vec![summary.into(), data.into()]))
    }

    /// Appends a block's bytes to `data`, and sets its pointer to its new place.
    fn write_block(
        &mut self,
        b: &Block,
        at: MetaBlock,
        data: &mut Vec<u8>,
        written: &mut Vec<Write>,
    ) -> Result<BlockInfo> {
        let write = self.cache.begin_write(Name::File(b.ino, b.part)).ok_or(Errno::EIO)?;
        let sum = crc(write.bytes());
        data.extend_from_slice(write.bytes());
        if write.bytes().len() != self.geom.block() {
            return Err(Error::Io(std::io::Error::other(format!("inode {}: {:?} is no whole block", b.ino, b.part))));
        }
        written.push(write);
        let mut i = self.inode(b.ino)?;
        self.set_pointer(&mut i, b.part, Pointer { block: at.0.into(), crc: sum.into() })?;
        let (ino, place) = ((b.ino.0 as u32).into(), block_code(b.part).into());
        Ok(BlockInfo { ino, version: b.version.into(), place, crc: sum.into() })
    }

    fn write_inode(&mut self, ino: Ino, at: MetaBlock, data: &mut Vec<u8>, written: &mut Vec<Write>) -> Result<()> {
        let write = self.cache.begin_write(Name::Inode(ino)).ok_or(Errno::EIO)?;
        let d = Dinode::read_from_bytes(&write.bytes()[..]).map_err(|_| Errno::EIO)?.sealed();
        written.push(write);
        data.extend_from_slice(d.as_bytes());
        if ino == IFILE {
            self.checkpoint.ifile = at.0.into();
            return Ok(());
        }
        self.set_map_entry(ino, MapEntry { block: at.0.into(), version: d.version, ..MapEntry::default() })
    }

    // Checkpoints.

    /// Records empty segments as clean, then writes the ifile, in a set that counts only with the checkpoint that follows.
    fn write_ifile(&mut self) -> Result<()> {
        for seg in self.segs.empty(&self.log.busy()) {
            let clean = Use { dirty: false, ..self.segs.get(seg) };
            self.segs.set(seg, clean);
            self.segs.pending_clean.push(seg);
            self.stuck.remove(&seg);
        }
        self.store_tables()?;
        // Also if nothing else of it has changed: no two checkpoints lead to one inode, which may be lost.
        self.mark(IFILE)?;
        // The blocks that hold the usage of the segments that the plan touches must be in the plan themselves: again, until
        // it adds no more.
        let (parts, end) = loop {
            let batch = self.ifile_batch()?;
            let touched: BTreeSet<u32> = batch.deaths.iter().map(|d| d.seg.get()).collect();
            let (parts, end) = self.plan(batch)?;
            let segs = touched.into_iter().chain(parts.iter().map(|p| p.seg.0)).chain(end.busy());
            let mut more = false;
            for seg in segs {
                more |= self.touch_usage(seg)?;
            }
            if !more || planted(Flaw::UsageUncounted) {
                break (parts, end);
            }
        };
        self.apply_usage(&parts, &end);
        self.store_tables()?;
        self.changes.dead.clear();
        self.emit(parts, end, IFILE_ONLY)?;
        self.changes.entries.clear();
        Ok(())
    }

    fn ifile_batch(&mut self) -> Result<Batch> {
        let mut batch = Batch { inodes: vec![IFILE], ..Batch::default() };
        self.blocks_of(IFILE, &mut batch.blocks)?;
        self.changes.dead.clear();
        self.note_deaths(&batch.blocks, &[IFILE])?;
        let of = |(seg, died): (&u32, &u32)| SegInfo { seg: (*seg).into(), died: (*died).into() };
        batch.deaths = self.changes.dead.iter().map(of).collect();
        Ok(batch)
    }

    /// Writes a checkpoint; `clean`: it says that the volume was unmounted. An error makes the volume read-only.
    pub fn checkpoint(&mut self, clean: bool) -> Result<()> {
        self.unless_failed(|core| core.write_checkpoint(clean))
    }

    /// The same; an error is for the caller to deal with.
    pub fn write_checkpoint(&mut self, clean: bool) -> Result<()> {
        self.write_set()?;
        let settled = std::mem::take(&mut self.segs.pending_clean);
        let log = self.log;
        self.mark_taken(&log);
        self.write_ifile()?;
        let has_border = self.sb.incompat.get() & INCOMPAT_BORDER != 0;
        let cp = Checkpoint {
            magic: CHECKPOINT_MAGIC,
            clean: u32::from(clean).into(),
            fsid: self.geom.fsid.into(),
            serial: (self.checkpoint.serial.get() + 1).into(),
            epoch: self.log.epoch.into(),
            set: self.log.set.into(),
            fill: self.log.fill.into(),
            seg: self.log.seg.0.into(),
            offset: self.log.offset.into(),
            next_seg: self.log.next_seg.0.into(),
            data_blocks: self.geom.data_blocks.into(),
            segs: if has_border { self.geom.segs } else { 0 }.into(),
            totals: self.state.into(),
            time: self.calls.now().secs.into(),
            ..self.checkpoint
        };
        superblock::write_checkpoint(&*self.dev, &self.geom, self.region, &cp)?;
        self.flush()?;
        self.counters.checkpoints += 1;
        (self.checkpoint, self.region) = (cp, 1 - self.region);
        // DUALFS-C3: the checkpoint before this one recorded them as clean, too.
        self.segs.clean.extend(settled);
        if planted(Flaw::ReusedEarly) {
            let early = std::mem::take(&mut self.segs.pending_clean);
            self.segs.clean.extend(early);
        }
        self.checkpointed_ms = self.calls.now_ms();
        Ok(())
    }

    /// At a mount for writing: makes what was rolled forward permanent, and starts a new epoch.
    pub fn begin(&mut self) -> Result<()> {
        self.log.epoch += u64::from(!planted(Flaw::EpochStays));
        let before = self.checkpoint.stamp.get();
        if self.geom.heads > 0 {
            self.checkpoint.stamp = self.stamp().into();
        }
        areas::write_heads(&*self.dev, &self.geom, self.owner(), before, false)?;
        self.write_checkpoint(false)?;
        areas::write_heads(&*self.dev, &self.geom, self.owner(), before, true)
    }

    /// Which mount this is.
    pub fn owner(&self) -> areas::Owner {
        areas::Owner { epoch: self.log.epoch, stamp: self.checkpoint.stamp.get() }
    }

    /// What tells this mount from others of the same number: its time.
    fn stamp(&self) -> u64 {
        let now = self.calls.now();
        let time = [now.secs.to_le_bytes(), i64::from(now.nanos).to_le_bytes()].concat();
        hash((self.geom.fsid, self.log.epoch), &time) | 1
    }

    /// Writes the last checkpoint at the unmount; it says that the volume is clean, unless damage was met.
    pub fn end(&mut self) -> Result<()> {
        self.checkpoint(!self.calls.health.has_met_damage())
    }

    /// Makes empty segments clean by writing two checkpoints (DUALFS-C3). Returns whether there were any.
    pub fn settle(&mut self) -> Result<bool> {
        let some = !self.segs.pending_clean.is_empty() || !self.segs.empty(&self.log.busy()).is_empty();
        for _ in 0..if some { 2 } else { 0 } {
            self.write_checkpoint(false)?;
        }
        Ok(some)
    }

    /// Whether there is so much dirty that it should be written in the background.
    pub fn has_much_dirty(&self) -> bool {
        self.cache.dirty_load() > self.cache.dirty_limit() / 4 * 3
    }

    /// After a call: if clean segments or free data blocks run short, makes room; if there is more dirty than the limit, the
    /// caller writes it (throttling).
    pub fn write_excess(&mut self) {
        if !self.calls.health.is_writable() {
            return;
        }
        let few_segs = (self.segs.clean.len() as u32) < self.least_clean();
        let few_blocks = self.slack() < self.data_of_call();
        let much = self.cache.dirty_load() > self.cache.dirty_limit();
        let done = match (few_segs, few_blocks || much) {
            // The call before has tried it, and this one has changed nothing.
            (true, _) if self.is_tight && !self.changes.is_some() => Ok(()),
            (true, _) => self.make_room(),
            (false, true) => self.write_set().and_then(|()| {
                // What is still dirty belongs to the ifile.
                let ifile = self.cache.dirty_load() > self.cache.dirty_limit() / 2;
                let few = self.slack() < self.data_of_call();
                if ifile || few { self.write_checkpoint(false) } else { Ok(()) }
            }),
            _ => Ok(()),
        };
        self.is_tight = few_segs && (self.segs.clean.len() as u32) < self.least_clean();
        if let Err(e) = done {
            self.calls.health.fail(&e);
        }
    }

    /// Does the background work due at `now`; returns the time of the next.
    pub fn run_daemons(&mut self, now: Time) -> Result<Time> {
        let (at, limit) = (self.calls.ms_until(now), self.opts.commit_ms);
        if !self.calls.health.is_writable() {
            return Ok(now.plus_ms(60_000));
        }
        if !self.read.is_empty() {
            self.relocate_read()?;
        }
        if self.changes.since.is_some_and(|since| at >= since + limit) || self.has_much_dirty() {
            self.write_set()?;
        }
        let stale = self.changes.files.contains_key(&IFILE.0) && at >= self.checkpointed_ms + CHECKPOINT_MS;
        if stale || self.has_much_dirty() {
            self.write_checkpoint(false)?;
        }
        self.clean_in_background(at)?;
        let wait = self.changes.since.map_or(limit, |since| (since + limit).saturating_sub(at));
        Ok(now.plus_ms(wait.clamp(1, limit)))
    }
}
