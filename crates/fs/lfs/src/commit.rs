//! The segment writer and the checkpoints: the order of writes.
//!
//! On a mounted volume all writes are made here but one: `volume.rs` writes the label into the superblock.
//!
//! Changes stay in core until a *group* of partial segments is written. A group holds all changes but those of the
//! ifile, so that the disk always has the state after some call. Blocks get their addresses there, in this order: files
//! in the order in which they first changed; of each, data blocks ascending, the attribute block, then indirect blocks
//! from the lowest level up; then the inodes. A pointer holds the checksum of the block that it points to, so a block
//! must be placed before the block that points to it.
//!
//! The summaries of a group repeat the entries of the inode map that it changes, and the bytes that have died in each
//! segment. So a group need not write the ifile, and roll-forward (`recover.rs`) learns them from the
//! summaries alone.
//!
//! The cleaner's groups hold only what it moves, since it writes the users' changes first. They go to a head of the log
//! of their own (`clean.rs`); with few clean segments, to the same head as users' changes.
//!
//! A *checkpoint* writes what is changed, then the ifile in a group of its own, then the older of the two checkpoint
//! regions. Each mount for writing begins an *epoch*, whose number is in the summaries: the remains of a torn group are
//! not taken for the continuation of the log.
//!
//! Called by `ops.rs`: [`Core::sync`] for fsync and sync, [`Core::run_daemons`] in the background; and by
//! `kit::machine`: [`Core::write_excess`] after a call.
//!
//! # Invariants
//!
//! * **LFS-C1** a fragment is written once while its segment is filled; a segment is filled from its start to its end.
//!   The only exception are the remains of a torn group, to which no checkpoint and no complete group refers: they may
//!   be overwritten.
//! * **LFS-C2** a group counts whole or not at all.
//! * **LFS-C3** a segment is reused only after two consecutive checkpoints have recorded it as clean, so that neither
//!   checkpoint on disk refers to it.
//! * **LFS-C4** a checkpoint is written only after everything it refers to is durable.

use crate::format::*;
use crate::heads::{HOT, LogHeads};
use crate::inode::Inode;
use crate::plan::{Batch, Block, Part, Planner};
use crate::planted::{Flaw, planted};
use crate::summary::Parsed;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name, Write};
use arbor_base::device::{Kind, Request};
use arbor_base::layout::crc;
use arbor_base::vfs::{Errno, Error, Ino, Result, Time, TrimRange};
use arbor_kit::blockmap::{BlockMap as _, Parent};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use zerocopy::{FromBytes, IntoBytes};

/// Smallest number of segments that users cannot fill, so that the cleaner always has room.
const LEAST_RESERVE: u32 = 10;
/// Segments that are never filled: those of the heads and the next ones, and what [`Core::least_clean`] has to find.
const BOUND: u32 = 4 + SPARE + 1;
/// Segments that must stay clean when a group is written: the cleaner needs them to begin.
const SPARE: u32 = 4;
/// Longest time between checkpoints, milliseconds: it bounds roll-forward.
const CHECKPOINT_MS: u64 = 30_000;

impl Core {
    /// Whether there are changes that no group holds yet; changes of the ifile do not count.
    pub fn is_changed(&self) -> bool {
        let files = self.changed.len() - usize::from(self.changed.contains_key(&IFILE.0));
        files > 0 || !self.remapped.is_empty() || !self.dead_bytes.is_empty()
    }

    /// Makes the indirect blocks above a changed block dirty too: users' changes have done so already, the cleaner's
    /// have not.
    fn change_above(&mut self, i: &Inode, mut at: FileBlock, seen: &mut FxHashSet<(u8, u64)>) -> Result<()> {
        while let Some(Parent::Map { level, n, .. }) = self.shape().parent(at) {
            if !seen.insert((level, n)) {
                break;
            }
            self.indirect(i, level, n)?.ok_or(Errno::EIO)?;
            at = FileBlock::Map { level, n };
            if !planted(Flaw::StalePointers) {
                self.make_dirty(Name::File(i.ino, at))?;
            }
        }
        Ok(())
    }

    /// The changed blocks of a file, in the order in which they are written.
    fn blocks_of(&mut self, ino: Ino) -> Result<Vec<Block>> {
        let i = self.inode(ino)?;
        let dirty_map = |core: &Core| -> Vec<FileBlock> {
            core.cache.dirty_map(ino).map(|(level, n)| FileBlock::Map { level, n }).collect()
        };
        let mut places: Vec<FileBlock> = self.cache.dirty_pages(ino, 0).map(FileBlock::Data).collect();
        let mut seen = FxHashSet::default();
        for p in places.iter().chain(&dirty_map(self)) {
            self.change_above(&i, *p, &mut seen)?;
        }
        if self.cache.is_dirty(Name::File(ino, FileBlock::Xattr(0))) {
            places.push(FileBlock::Xattr(0));
        }
        places.extend(dirty_map(self));
        let mut out = Vec::with_capacity(places.len());
        for place in places {
            let p = self.pointer(&i, place)?;
            let old = (!matches!(p.frag.get(), 0 | UNWRITTEN))
                .then(|| (Frag(p.frag.get()), self.geom.bytes_of(self.disk_frags(ino, place)) as u32));
            let len = self.cache.peek(Name::File(ino, place)).map_or(0, |b| b.len());
            let (version, frags) = (i.d.version.get(), self.geom.frags_for(len));
            if frags == 0 {
                return Err(Error::Io(std::io::Error::other(format!("inode {ino}: {place:?} has no bytes"))));
            }
            out.push(Block { ino, version, place, frags, old, written: None });
        }
        Ok(out)
    }

    /// All changes but those of the ifile.
    pub fn batch(&mut self) -> Result<Batch> {
        let mut batch = Batch { deaths: self.dead_bytes.iter().map(|d| (*d.0, *d.1)).collect(), ..Batch::default() };
        let files: Vec<Ino> = self.order.values().map(|ino| Ino(*ino)).filter(|ino| *ino != IFILE).collect();
        for ino in &files {
            batch.blocks.extend(self.blocks_of(*ino)?);
        }
        for ino in files {
            let frag = self.map_entry(ino)?.frag.get();
            batch.inodes.push((ino, (!matches!(frag, 0 | UNWRITTEN)).then_some(Frag(frag))));
        }
        let written: FxHashSet<u64> = batch.inodes.iter().map(|i| i.0.0).collect();
        batch.entries = self.remapped.iter().filter(|ino| !written.contains(ino)).map(|ino| Ino(*ino)).collect();
        Ok(batch)
    }

    fn plan(&self, batch: &Batch, head: usize) -> Result<(Vec<Part>, LogHeads)> {
        Planner::new(self.geom, &self.segs.clean, self.log, head).run(batch)
    }

    /// Adds what a plan writes to the usage of segments, and subtracts what it leaves dead (LFS-U1).
    fn apply_usage(&mut self, parts: &[Part], log: &LogHeads) {
        for p in parts {
            let blocks: u32 = p.blocks.iter().map(|b| self.geom.bytes_of(b.frags) as u32).sum();
            self.segs.add(p.seg.0, blocks + (p.inodes.len() * INODE) as u32, p.time(self.calls.now().secs));
            p.deaths.iter().for_each(|(seg, bytes)| self.segs.mark_dead(*seg, *bytes));
        }
        for seg in log.busy() {
            self.segs.clean.remove(seg);
        }
    }

    /// Writes all changes in a group, and makes them durable. An error makes the volume read-only.
    pub fn sync(&mut self) -> Result<()> {
        if self.calls.health.has_failed() {
            return Err(Errno::EROFS.into());
        }
        let done = self.write_group();
        done.inspect_err(|e| self.calls.health.fail(e))
    }

    /// The same; an error is for the caller to deal with.
    pub fn write_group(&mut self) -> Result<()> {
        if !self.is_changed() {
            return Ok(());
        }
        let batch = self.batch()?;
        self.write_batch(&batch, HOT)?;
        if planted(Flaw::ReuseBeforeCheckpoint) {
            let empty = self.segs.empty(&self.log.busy());
            self.segs.clean.extend(empty);
        }
        Ok(())
    }

    /// Writes a group at one of the heads of the log.
    pub fn write_batch(&mut self, batch: &Batch, head: usize) -> Result<()> {
        self.is_writing = true;
        let done = self.place_batch(batch, head);
        self.is_writing = false;
        done
    }

    fn place_batch(&mut self, batch: &Batch, head: usize) -> Result<()> {
        let (parts, log) = self.plan(batch, head)?;
        self.apply_usage(&parts, &log);
        self.emit(&parts, log, 0)?;
        self.dead_bytes.clear();
        self.remapped.clear();
        self.since = None;
        Ok(())
    }

    /// Writes planned partial segments, and flushes, so that a checkpoint may then refer to them (LFS-C4).
    fn emit(&mut self, parts: &[Part], log: LogHeads, flags: u32) -> Result<()> {
        let (mut requests, mut written) = (Vec::new(), Vec::new());
        for (index, part) in parts.iter().enumerate() {
            let last = if index + 1 == parts.len() { LAST } else { 0 };
            requests.push(self.partial_segment(part, index as u32, flags | last, &mut written)?);
        }
        self.counters.groups += 1;
        self.counters.partial_segments += parts.len() as u64;
        self.counters.io.writes += requests.len() as u64;
        self.counters.io.write_bytes += requests.iter().map(Request::len).sum::<u64>();
        self.calls.reads.submit(&*self.dev, requests).wait_all()?;
        if !(planted(Flaw::CheckpointTooEarly) && flags & IFILE_ONLY != 0) {
            self.flush()?;
        }
        for write in written {
            self.cache.end_write(write, true);
        }
        for ino in parts.iter().flat_map(|p| &p.inodes) {
            if let Some(c) = self.changed.remove(&ino.0) {
                self.order.remove(&c.turn);
            }
        }
        self.log = LogHeads { group: log.group + 1, ..log };
        Ok(())
    }

    pub fn flush(&mut self) -> Result<()> {
        self.counters.io.flushes += 1;
        Ok(self.dev.flush()?)
    }

    fn partial_segment(&mut self, p: &Part, index: u32, flags: u32, written: &mut Vec<Write>) -> Result<Request> {
        let geom = self.geom;
        let start = geom.seg_start(p.seg).0 + p.at;
        let mut at = start + p.summary_frags(&geom);
        let (mut data, mut files): (Vec<u8>, Vec<(FileInfo, Vec<BlockInfo>)>) = (Vec::new(), Vec::new());
        for b in &p.blocks {
            let info = self.write_block_at(b, Frag(at), &mut data, written)?;
            at += b.frags;
            if files.last().is_none_or(|f| u64::from(f.0.ino.get()) != b.ino.0) {
                let file = FileInfo { ino: (b.ino.0 as u32).into(), version: b.version.into(), ..FileInfo::default() };
                files.push((file, Vec::new()));
            }
            if let Some((file, blocks)) = files.last_mut() {
                blocks.push(info);
                file.blocks = (blocks.len() as u32).into();
            }
        }
        let mut inodes = Vec::new();
        for some in p.inodes.chunks(geom.frag_size() / INODE) {
            for ino in some {
                self.write_inode_at(*ino, Frag(at), &mut data, written)?;
                inodes.push(*ino);
            }
            data.resize(data.len().next_multiple_of(geom.frag_size()), 0);
            at += 1;
        }
        inodes.extend(&p.entries);
        let mut infos = Vec::with_capacity(inodes.len());
        for ino in inodes.into_iter().filter(|ino| *ino != IFILE) {
            infos.push(InodeInfo { ino: (ino.0 as u32).into(), entry: self.map_entry(ino)? });
        }
        let segs: Vec<SegInfo> =
            p.deaths.iter().map(|(seg, died)| SegInfo { seg: (*seg).into(), died: (*died).into() }).collect();
        let head = self.head(p, (index, flags), (files.len(), infos.len(), segs.len()), crc(&data));
        let summary = Parsed { head, files, inodes: infos, segs }.encode(&geom);
        Ok(Request::write(Kind::Log, geom.byte(Frag(start)), vec![summary.into(), data.into()]))
    }

    fn head(&self, p: &Part, (index, flags): (u32, u32), counts: (usize, usize, usize), data_crc: u32) -> Summary {
        let s = &self.state;
        Summary {
            magic: SUMMARY_MAGIC.into(),
            fsid: self.geom.fsid.into(),
            group: self.log.group.into(),
            epoch: self.log.epoch.into(),
            fill: p.fill.into(),
            index: index.into(),
            flags: flags.into(),
            summary_frags: p.summary_frags(&self.geom).into(),
            frags: p.frags(&self.geom).into(),
            next_seg: p.next_seg.0.into(),
            files: (counts.0 as u32).into(),
            inodes: (counts.1 as u32).into(),
            segs: (counts.2 as u32).into(),
            data_crc: data_crc.into(),
            time: p.time(self.calls.now().secs).into(),
            ninodes: s.inodes.into(),
            free_ino: s.free_ino.into(),
            used_inodes: s.used_inodes.into(),
            orphan: s.orphan.into(),
            file_frags: s.file_frags.into(),
            ..Summary::default()
        }
    }

    /// Appends a block's bytes to `data`, and sets its pointer to its new address.
    fn write_block_at(
        &mut self,
        b: &Block,
        at: Frag,
        data: &mut Vec<u8>,
        written: &mut Vec<Write>,
    ) -> Result<BlockInfo> {
        let name = Name::File(b.ino, b.place);
        let write = self.cache.begin_write(name).ok_or(Errno::EIO)?;
        let bytes = write.bytes().clone();
        written.push(write);
        data.extend_from_slice(&bytes);
        let sum = crc(&bytes);
        let mut i = self.inode(b.ino)?;
        self.set_pointer(&mut i, b.place, Pointer { frag: at.0.into(), crc: sum.into() })?;
        Ok(BlockInfo { place: block_code(b.place).into(), frags: b.frags.into(), crc: sum.into() })
    }

    fn write_inode_at(&mut self, ino: Ino, at: Frag, data: &mut Vec<u8>, written: &mut Vec<Write>) -> Result<()> {
        let name = Name::Inode(ino);
        let write = self.cache.begin_write(name).ok_or(Errno::EIO)?;
        let bytes = write.bytes().clone();
        written.push(write);
        let d = Dinode::read_from_bytes(&bytes[..]).map_err(|_| Errno::EIO)?.sealed();
        data.extend_from_slice(d.as_bytes());
        if ino == IFILE {
            self.checkpoint.ifile = at.0.into();
            return Ok(());
        }
        let entry = MapEntry { frag: at.0.into(), version: d.version, ..MapEntry::default() };
        self.set_map_entry(ino, entry)
    }

    /// Records empty segments as clean, then writes the ifile, in a group that counts only with the checkpoint that
    /// follows.
    fn write_ifile(&mut self) -> Result<()> {
        for seg in self.segs.empty(&self.log.busy()) {
            let clean = arbor_kit::segments::Use { dirty: false, ..self.segs.get(seg) };
            self.segs.set(seg, clean);
            self.segs.pending_clean.push(seg);
        }
        self.store_usage()?;
        if !self.changed.contains_key(&IFILE.0) {
            return Ok(());
        }
        // The usage-table blocks of all segments that the plan touches must be in the plan themselves: repeat until it
        // adds no more.
        let (parts, log) = loop {
            let old = Frag(self.checkpoint.ifile.get());
            let inodes = vec![(IFILE, (old.0 != 0).then_some(old))];
            let batch = Batch { blocks: self.blocks_of(IFILE)?, inodes, ..Batch::default() };
            let (parts, log) = self.plan(&batch, HOT)?;
            if planted(Flaw::TableUncounted) || !self.count_in(&parts, &log)? {
                break (parts, log);
            }
        };
        self.apply_usage(&parts, &log);
        self.mark_taken(&log);
        self.store_usage()?;
        self.emit(&parts, log, IFILE_ONLY)?;
        self.remapped.clear();
        Ok(())
    }

    /// Marks dirty the segments that the log is in, and the ones that it goes to next.
    pub fn mark_taken(&mut self, log: &LogHeads) {
        for seg in log.busy() {
            let s = self.segs.get(seg);
            if !s.dirty {
                self.segs.set(seg, arbor_kit::segments::Use { dirty: true, ..s });
            }
        }
    }

    /// Marks dirty the usage-table blocks of the segments in a plan. Returns whether any was not dirty yet.
    fn count_in(&mut self, parts: &[Part], log: &LogHeads) -> Result<bool> {
        let per = (self.geom.block_size() / USAGE) as u32;
        let mut segs: BTreeSet<u32> = parts.iter().flat_map(|p| p.deaths.keys().copied().chain([p.seg.0])).collect();
        segs.extend(log.busy());
        let mut some = false;
        for lbn in segs.into_iter().map(|seg| u64::from(seg / per)).collect::<BTreeSet<_>>() {
            if !self.cache.is_dirty(Name::File(IFILE, FileBlock::Data(lbn))) {
                self.ifile_modify(lbn, 0, &[])?;
                some = true;
            }
        }
        Ok(some)
    }

    /// Writes a checkpoint; `clean`: it says that the volume was unmounted. An error makes the volume read-only.
    pub fn checkpoint(&mut self, clean: bool) -> Result<()> {
        if self.calls.health.has_failed() {
            return Err(Errno::EROFS.into());
        }
        let done = self.write_checkpoint(clean);
        done.inspect_err(|e| self.calls.health.fail(e))
    }

    /// The same; an error is for the caller to deal with.
    pub fn write_checkpoint(&mut self, clean: bool) -> Result<()> {
        self.write_group()?;
        let settled = std::mem::take(&mut self.segs.pending_clean);
        let log = self.log;
        self.mark_taken(&log);
        self.write_ifile()?;
        let (s, log) = (self.state, self.log);
        let [hot, cold] = log.heads;
        let cp = Checkpoint {
            magic: CHECKPOINT_MAGIC,
            clean: u32::from(clean).into(),
            fsid: self.geom.fsid.into(),
            serial: (self.checkpoint.serial.get() + 1).into(),
            epoch: log.epoch.into(),
            group: log.group.into(),
            segs: self.segs.count().into(),
            seg: hot.seg.0.into(),
            offset: hot.offset.into(),
            next_seg: hot.next_seg.0.into(),
            fill: hot.fill.into(),
            cold_seg: cold.seg.0.into(),
            cold_offset: cold.offset.into(),
            cold_next: cold.next_seg.0.into(),
            cold_fill: cold.fill.into(),
            inodes: s.inodes.into(),
            free_ino: s.free_ino.into(),
            used_inodes: s.used_inodes.into(),
            file_frags: s.file_frags.into(),
            time: self.calls.now().secs.into(),
            orphan: s.orphan.into(),
            ..self.checkpoint
        };
        crate::superblock::write_checkpoint(&*self.dev, &self.geom, self.place, &cp)?;
        self.flush()?;
        self.counters.checkpoints += 1;
        (self.checkpoint, self.place) = (cp, 1 - self.place);
        // LFS-C3: the checkpoint before this one recorded them as clean, too.
        self.segs.clean.extend(settled);
        self.log.checkpointed_ms = self.calls.now_ms();
        Ok(())
    }

    /// At a mount for writing: makes what was rolled forward permanent, and starts a new epoch, so that the remains of
    /// a torn group are not taken for its continuation.
    pub fn begin(&mut self) -> Result<()> {
        self.log.epoch += u64::from(!planted(Flaw::EpochStays));
        self.write_checkpoint(false)
    }

    /// Writes the last checkpoint at the unmount; it says that the volume is clean, unless damage was met.
    pub fn end(&mut self) -> Result<()> {
        let clean = !self.calls.health.has_met_damage();
        self.checkpoint(clean)
    }

    // Space.

    /// Segments that users cannot fill. Cleaning `n` segments of the full ones of `count` gains `n * n / count` of them, about, and
    /// costs the ifile, of which all may be dirty then.
    pub fn reserve(&self) -> u32 {
        let count = self.segs.count();
        let map = u64::from(self.state.inodes) * MAP_ENTRY as u64;
        let ifile = map + (self.usage_bytes() + 8 * self.geom.block_size()) as u64;
        let step = ((ifile * u64::from(count)) >> self.geom.seg_shift).isqrt() as u32;
        LEAST_RESERVE.max(count / 12).max(BOUND + step + 1)
    }

    /// Fragments that files can have in all. Summaries take the rest: of a short segment more than one of 16.
    pub fn capacity(&self) -> u64 {
        let (segs, all) = (self.segs.count().saturating_sub(self.reserve()), u64::from(self.geom.seg_frags()));
        u64::from(segs) * (all - (all / 16).max(2))
    }

    /// Fragments that are still available.
    pub fn available(&self) -> u64 {
        let (used, all) = (u64::from(self.state.used_inodes), u64::from(self.state.inodes));
        let bytes = used * (INODE + size_of::<InodeInfo>()) as u64 + all * MAP_ENTRY as u64;
        let usage = u64::from(self.segs.count()) * USAGE as u64;
        let ifile = (bytes + usage).div_ceil(self.geom.frag_size() as u64) + 4 * u64::from(self.geom.block_frags());
        self.capacity().saturating_sub(self.state.file_frags + ifile)
    }

    /// Fails with `ENOSPC` unless `frags` fragments are available.
    pub fn need(&self, frags: u32) -> Result<()> {
        let has = !self.is_tight && self.available() >= u64::from(frags);
        if frags == 0 || has { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    /// An upper bound of the segments that writing all changes takes. `exactly`: with no allowance for further calls.
    pub fn wanted_segs(&self, exactly: bool) -> u32 {
        let inodes = self.changed.len() * (INODE + 64) + self.remapped.len() * 32;
        // Each inode's map entry may lie in another block.
        let map = (self.changed.len() * self.geom.block_size()).min(self.state.inodes as usize * MAP_ENTRY);
        // An eighth more for summaries.
        let bytes = (self.cache.dirty_bytes() + inodes + map) / 8 * 9;
        let touched = self.segs.changed.len() + self.dead_bytes.len() + bytes / self.geom.frag_size() + 64;
        let most = if exactly { touched * self.geom.block_size() } else { usize::MAX };
        let bytes = bytes + self.usage_bytes().min(most);
        (bytes >> self.geom.seg_shift) as u32 + 2
    }

    /// The most bytes of segment usage that a group and the next checkpoint write: a call may leave dead bytes in every
    /// segment.
    pub fn usage_bytes(&self) -> usize {
        let each = USAGE + size_of::<SegInfo>();
        self.segs.count() as usize * each + self.geom.block_size()
    }

    /// Segments that have to be clean: what writing the changes takes, and what the cleaner needs to begin.
    pub fn least_clean(&self) -> u32 {
        self.wanted_segs(false) + SPARE + 1
    }

    /// After a call: if clean segments run short, makes room; if there is more dirty than the limit, the caller writes
    /// it (throttling).
    pub fn write_excess(&mut self) {
        if !self.calls.health.is_writable() {
            return;
        }
        let short = (self.segs.clean.len() as u32) < self.least_clean();
        let much = self.cache.dirty_load() > self.cache.dirty_limit();
        let done = match (short, much) {
            (true, _) => self.make_room(),
            (false, true) => self.write_group().and_then(|()| {
                // What is still dirty belongs to the ifile.
                let ifile = self.cache.dirty_load() > self.cache.dirty_limit() / 2;
                if ifile { self.write_checkpoint(false) } else { Ok(()) }
            }),
            _ => Ok(()),
        };
        // Where the cleaner gains nothing files do not grow.
        self.is_tight = short && (self.segs.clean.len() as u32) < self.least_clean();
        if let Err(e) = done {
            self.calls.health.fail(&e);
        }
    }

    /// Makes empty segments clean by writing two checkpoints (LFS-C3). Returns whether there were any.
    pub fn settle(&mut self) -> Result<bool> {
        if self.segs.empty(&self.log.busy()).is_empty() && self.segs.pending_clean.is_empty() {
            return Ok(false);
        }
        self.write_checkpoint(false)?;
        self.write_checkpoint(false)?;
        Ok(true)
    }

    /// Whether there is so much dirty that it should be written in the background.
    pub fn has_much_dirty(&self) -> bool {
        self.cache.dirty_load() > self.cache.dirty_limit() / 4 * 3
    }

    /// Does the background work due at `now`; returns the time of the next.
    pub fn run_daemons(&mut self, now: Time) -> Result<Time> {
        let at = self.calls.ms_until(now);
        if !self.calls.health.is_writable() {
            return Ok(now.plus_ms(60_000));
        }
        if self.since.is_some_and(|since| at >= since + self.opts.commit_ms) || self.has_much_dirty() {
            self.write_group()?;
        }
        let stale = self.changed.contains_key(&IFILE.0) && at >= self.log.checkpointed_ms + CHECKPOINT_MS;
        if stale || self.has_much_dirty() {
            self.write_checkpoint(false)?;
        }
        let commit = self.since.map_or(self.opts.commit_ms, |since| (since + self.opts.commit_ms).saturating_sub(at));
        let clean = self.clean_in_background(at)?.unwrap_or(commit);
        Ok(now.plus_ms(commit.min(clean).max(1)))
    }

    /// Discards the clean segments in `range`, adjacent ones as one run; returns the bytes.
    pub fn trim(&mut self, range: &TrimRange) -> Result<u64> {
        let (seg, frag) = (1u64 << self.geom.seg_shift, self.geom.frag_size() as u64);
        let size = self.geom.byte(self.geom.seg_start(Seg(self.segs.count())));
        range.check(size, self.geom.block_size() as u64, size)?;
        if self.dev.geometry().discard_unit == 0 {
            return Ok(0);
        }
        let start = |first: u32| self.geom.byte(self.geom.seg_start(Seg(first)));
        let runs = self.segs.clean.runs().map(|run| (start(*run.start()), run.count() as u64 * seg));
        let parts: Vec<(u64, u64)> = runs.filter_map(|run| range.part(run, frag)).collect();
        let requests = parts.iter().map(|(at, len)| Request::discard(Kind::Data, *at, *len)).collect();
        self.calls.reads.submit(&*self.dev, requests).wait_all()?;
        // The clean segments of the reserve are no free space to users.
        let trimmed: u64 = parts.iter().map(|p| p.1).sum();
        Ok(trimmed.min(self.capacity().saturating_mul(frag)))
    }
}
