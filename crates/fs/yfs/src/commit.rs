//! The only file that orders writes: transactions, the in-core log, group commit, write-back in
//! place, the bitmap daemon (section 4 of the paper).
//!
//! | transition | function |
//! |---|---|
//! | clean buffer -> changed by the open transaction | [`Core::write`], [`Core::init`] |
//! | transaction -> joined with those before it | [`Core::commit`] |
//! | compound transaction -> in the in-core log, buffers pinned | [`Core::close_tx`] |
//! | committed in core -> on disk, buffers unpinned | [`Volume::flush_log`] |
//! | logged and dirty -> in place, tail moves | [`Volume::checkpoint`] |
//! | marked free -> free in the bitmap | [`Core::bitmap_daemon`] |
//!
//! Invariants:
//!
//! * **YFS-C1** a buffer is written in place only when the record with its last change is durable
//!   (write-ahead).
//! * **YFS-C2** a record counts only if the data that its transactions made reachable is durable
//!   (dependent data blocks): it is written after a flush of the data, or bears witness to them
//!   ([`Core::bear_witness`]). Then one flush makes both durable; replay looks at the witnesses of the last
//!   record, which is the only one whose flush may be missing; and nobody writes over what the last record
//!   bears witness to ([`Volume::part_from_witnesses`]).
//! * **YFS-C3** records become durable in the order of their transactions: a record names its
//!   predecessor, recovery follows the chain.
//! * **YFS-C4** log space is used again only when a durable anchor lies behind it.
//! * **YFS-C5** an extent is allocatable again only when the record that marked it free is durable.

use crate::buffers::{Piece, What, buffer_kind};
use crate::delayed::{DataWrites, Which};
use crate::format::*;
use crate::log::{Changed, Dirty, Item, Rec, SPARE, Tx, Witness};
use crate::planted::{Flaw, planted};
use crate::volume::{Core, Io, Unflushed, Volume, Want};
use crate::{recover, superblock};
use arbor_base::cache::{Name, Place, cluster};
use arbor_base::device::{Buf, Kind, Request};
use arbor_base::layout::{Corrupt, crc};
use arbor_base::vfs::{Error, Ino, Result, Time, TrimRange};
use rustc_hash::FxHashMap;
use std::sync::atomic::Ordering::Relaxed;
use zerocopy::IntoBytes;

impl Core {
    /// Starts a transaction: after it nothing may fail but the device. Asks the caller to make
    /// room first if the log or the cache has none (reservation, 4.3).
    pub fn begin(&mut self) -> Result<()> {
        // The bitmap daemon must find room when nobody else does: the tail waits for it.
        let count = self.marked.len() + self.tx.marked.len();
        let marked = count * MARKED_COST + self.marked_free() as usize / 8;
        let beside = 2 * self.log.max_tx + marked;
        self.begin_beside(beside)
    }

    fn begin_beside(&mut self, beside: usize) -> Result<()> {
        debug_assert!(!self.tx.open, "transactions do not nest");
        if !self.log.has_room(beside + self.tx.bytes) {
            self.want = Some(Want::LogSpace);
            return Err(Error::Restart);
        }
        self.tx.open = true;
        self.blocking = true;
        Ok(())
    }

    fn item(&mut self, addr: Daddr, seal: Seal) -> &mut Item {
        debug_assert!(self.tx.open, "metadata changes only inside a transaction");
        let tx = &mut self.tx;
        let item = tx.items.entry(addr.0).or_default();
        if item.seal.is_none() {
            item.seal = Some(seal);
            item.ranges = tx.spare.pop().unwrap_or_default();
            tx.bytes += LOG_ENTRY;
            tx.order.push(addr.0);
        }
        item
    }

    /// Changes bytes of a metadata buffer that is in the cache. Bytes that stay the same are not
    /// logged, unless another log entry would be longer.
    pub fn write(&mut self, addr: Daddr, seal: Seal, at: usize, bytes: &[u8]) -> Result<()> {
        let bug = || Error::refused(format!("bug: write of {} bytes at {at} of buffer {addr:?}", bytes.len()));
        let place = match self.cache.place(Name::Block(addr.0)) {
            Some(place) => place,
            None => self.reload(addr, seal)?,
        };
        let old = self.cache.at(place).get(at..at + bytes.len()).ok_or_else(bug)?;
        let changed = Changed::between(old, bytes);
        let changed = changed.ranges();
        if changed.is_empty() {
            return Ok(());
        }
        self.cache.modify_at(place, |b| {
            for &(lo, hi) in changed {
                b[at + lo..at + hi].copy_from_slice(&bytes[lo..hi]);
            }
        });
        let item = self.item(addr, seal);
        let mut more = 0;
        for &(lo, hi) in changed {
            let (lo, hi) = (at + lo, at + hi);
            match item.ranges.iter_mut().rev().find(|(a, b)| lo <= *b + LOG_ENTRY && *a <= hi + LOG_ENTRY) {
                Some(r) => {
                    let joined = (r.0.min(lo), r.1.max(hi));
                    more += (joined.1 - joined.0) - (r.1 - r.0);
                    *r = joined;
                }
                None => {
                    more += hi - lo + LOG_ENTRY;
                    item.ranges.push((lo, hi));
                }
            }
        }
        self.tx.bytes += more;
        Ok(())
    }

    /// Reads a buffer again that was checked before and evicted since (only a tiny cache does it).
    /// It is about to be changed and sealed, which would make damage look sound.
    fn reload(&mut self, addr: Daddr, seal: Seal) -> Result<Place> {
        let (dev, geom) = (&*self.dev, &self.geom);
        let bytes = match seal {
            Seal::Super => match superblock::read(dev, addr.byte())? {
                Some(sb) => sb.as_bytes().to_vec(),
                None => return Err(Corrupt::new("superblock", "magic", addr.byte(), "another", "that of yFS").into()),
            },
            Seal::Inodes => crate::buffers::read_buffer(dev, geom, addr, geom.chunk_size(), What::Chunk)?,
            Seal::Block => {
                let mut bytes = vec![0; geom.block_size()];
                dev.read_at(Kind::Other, addr.byte(), &mut bytes)?;
                check_any_block(geom, addr, &bytes)?;
                bytes
            }
        };
        if seal == Seal::Inodes {
            self.note_damage(addr, What::Chunk, &bytes);
        }
        Ok(self.cache.insert(Name::Block(addr.0), std::sync::Arc::new(bytes)))
    }

    /// A new metadata buffer of zeros.
    pub fn init(&mut self, addr: Daddr, seal: Seal, len: usize) {
        let name = Name::Block(addr.0);
        self.cache.remove(name);
        self.cache.insert(name, std::sync::Arc::new(vec![0; len]));
        self.cache.modify(name, |_| ());
        if let Some(d) = self.dirty.remove(&addr.0) {
            self.log.sync_list.remove(&(d.first, addr.0));
        }
        let item = self.item(addr, seal);
        item.init = true;
        item.ranges.clear();
    }

    /// A new metadata block with its header.
    pub fn init_block(&mut self, addr: Daddr, kind: BlockType, owner: u64, len: usize) -> Result<()> {
        self.init(addr, Seal::Block, len);
        let head = BlockHeader {
            magic: (kind as u32).into(),
            crc: 0.into(),
            fsid: self.geom.fsid.into(),
            addr: addr.0.into(),
            owner: owner.into(),
            len: (len as u32).into(),
            reserved: 0.into(),
        };
        self.write(addr, Seal::Block, 0, head.as_bytes())
    }

    /// Deletes a metadata buffer; recovery ignores what the log has for it before this.
    pub fn delete_buffer(&mut self, addr: Daddr, len: usize) {
        if let Some(item) = self.tx.items.remove(&addr.0) {
            drop(item);
            self.tx.order.retain(|a| *a != addr.0);
        }
        self.tx.bytes += LOG_ENTRY;
        self.tx.deleted.push((addr.0, len));
    }

    /// Marks an extent free: the bitmap follows when this transaction is on disk (4.4).
    pub fn mark_free(&mut self, mut extent: Extent) {
        if planted(Flaw::ReuseAtOnce) {
            let _ = self.free_now(extent);
            return;
        }
        while extent.len > MARKED_FRAGS {
            self.push_marked(Extent { start: extent.start, len: MARKED_FRAGS });
            extent = Extent { start: Frag(extent.start.0 + u64::from(MARKED_FRAGS)), len: extent.len - MARKED_FRAGS };
        }
        self.push_marked(extent);
    }

    fn push_marked(&mut self, extent: Extent) {
        // The bits that freeing it will log one day.
        self.tx.bytes += LOG_ENTRY + extent.len as usize / 8;
        self.tx.marked_frags += u64::from(extent.len);
        self.tx.marked.push(extent);
    }

    /// Whether something is on its way to be free.
    pub fn is_freeing(&self) -> bool {
        !self.marked.is_empty() || !self.tx.marked.is_empty() || self.lives.inactive() > 0
    }

    /// Fragments that are marked free and not yet free in the bitmap.
    pub fn marked_free(&self) -> u64 {
        self.marked_frags + self.tx.marked_frags
    }

    /// Ends the transaction of a call. Those that follow join it, until they are large together or
    /// somebody needs what they have changed.
    pub fn commit(&mut self, now: Time) {
        self.tx.open = false;
        self.blocking = false;
        if self.tx.is_empty() {
            return;
        }
        self.log.open_since.get_or_insert(now);
        if self.tx.bytes > self.log.compound() {
            self.close_tx();
        }
    }

    /// Ends the compound transaction: its changes go to the in-core log, its buffers are pinned by it.
    fn close_tx(&mut self) {
        debug_assert!(!self.tx.open, "a call is not finished");
        if self.tx.is_empty() || self.tx.open {
            return;
        }
        let rec = self.log.open_rec;
        let tid = self.tx.tid;
        let order = std::mem::take(&mut self.tx.order);
        let mut items = std::mem::take(&mut self.tx.items);
        let before = self.log.open.len();
        for addr in &order {
            if let Some(mut item) = items.remove(addr) {
                self.log_item(*addr, &item, tid, rec);
                if self.tx.spare.len() < SPARE {
                    item.ranges.clear();
                    self.tx.spare.push(item.ranges);
                }
            }
        }
        let entry = |kind: EntryType, addr: u64, len: u32| LogEntry {
            kind: kind as u8,
            tid: tid.into(),
            addr: addr.into(),
            len: len.into(),
            ..LogEntry::default()
        };
        for (addr, len) in std::mem::take(&mut self.tx.deleted) {
            self.log.entry(entry(EntryType::Deleted, addr, len as u32), &[]);
            self.log.deleted.push_back((rec, addr));
            // It may hold changes that were not logged: it must not reach its place before the
            // record that deletes it is durable, and then it is forgotten.
            if let Some(d) = self.dirty.get_mut(&addr) {
                d.last = rec;
            }
        }
        // What was freed in the bitmap may have been allocated since, and marked free once more.
        for e in self.tx.unmarked.drain(..) {
            self.log.entry(entry(EntryType::UnmarkFree, e.start.0, e.len), &[]);
        }
        for e in self.tx.marked.drain(..) {
            self.log.entry(entry(EntryType::MarkFree, e.start.0, e.len), &[]);
            self.marked_frags += u64::from(e.len);
            self.marked.push_back((rec, e));
        }
        self.log.entry(entry(EntryType::Commit, 0, 0), &[]);
        self.log.transactions += 1;
        let logged = self.log.open.len() - before;
        debug_assert!(logged <= self.log.max_tx + self.log.compound(), "a transaction logged {logged} bytes");
        self.tx.items = items;
        self.tx.order = order;
        self.tx.order.clear();
        (self.tx.bytes, self.tx.marked_frags) = (0, 0);
        self.tx.tid = tid.wrapping_add(1);
        if self.log.open.len() >= self.log.seal_at {
            self.log.seal();
        }
    }

    fn log_item(&mut self, addr: u64, item: &Item, tid: u32, rec: Rec) {
        let Some(bytes) = self.cache.peek(Name::Block(addr)).cloned() else { return };
        let seal = item.seal.unwrap_or(Seal::Block);
        let entry = |kind: EntryType, at: usize, len: usize| LogEntry {
            kind: kind as u8,
            seal: seal as u8,
            reserved: 0.into(),
            tid: tid.into(),
            addr: addr.into(),
            at: (at as u32).into(),
            len: (len as u32).into(),
        };
        let (mut lo, mut hi) = (usize::MAX, 0);
        if item.init {
            self.log.entry(entry(EntryType::Init, 0, bytes.len()), &[]);
            (lo, hi) = (0, bytes.len());
        }
        for &(a, b) in &item.ranges {
            self.log.entry(entry(EntryType::Update, a, b - a), &bytes[a..b]);
            (lo, hi) = (lo.min(a), hi.max(b));
        }
        if seal == Seal::Block {
            (lo, hi) = (0, bytes.len());
        }
        drop(bytes);
        let kind = buffer_kind(seal, self.cache.peek(Name::Block(addr)));
        let sync_list = &mut self.log.sync_list;
        let d = self.dirty.entry(addr).or_insert_with(|| {
            sync_list.insert((rec, addr));
            Dirty { seal, kind, first: rec, last: rec, lo, hi, again: None }
        });
        d.last = rec;
        (d.lo, d.hi) = (d.lo.min(lo), d.hi.max(hi));
        if let Some((_, a, b)) = &mut d.again {
            (*a, *b) = ((*a).min(lo), (*b).max(hi));
        } else {
            d.again = Some((rec, lo, hi));
        }
    }

    /// Clears extents from the bitmap whose "marked free" item is durable (YFS-C5), in one
    /// transaction with the "unmark free" items. At most `count`; returns how many.
    pub fn bitmap_daemon(&mut self, now: Time, count: usize) -> Result<usize> {
        let mut freed = 0;
        let durable = self.log.durable;
        if self.marked.front().is_none_or(|(rec, _)| *rec > durable) {
            return Ok(freed);
        }
        self.begin_beside(0)?;
        let mut budget = self.log.max_tx / 2;
        while let Some(&(rec, e)) = self.marked.front() {
            let cost = 4 * LOG_ENTRY + 16 + e.len as usize / 8;
            if rec > durable || freed >= count || cost > budget && freed > 0 {
                break;
            }
            budget = budget.saturating_sub(cost);
            self.marked.pop_front();
            self.marked_frags -= u64::from(e.len);
            self.free_now(e)?;
            if !planted(Flaw::NoUnmark) {
                self.tx.bytes += LOG_ENTRY;
                self.tx.unmarked.push(e);
            }
            freed += 1;
        }
        self.commit(now);
        Ok(freed)
    }

    /// Whether there is so much dirty metadata that it should go in place.
    pub fn metadata_pressure(&self) -> bool {
        self.cache.dirty_bytes() - self.cache.dirty_page_bytes() > self.cache.dirty_limit() / 2
    }

    fn data_pressure(&self) -> bool {
        self.cache.dirty_page_bytes() > self.cache.dirty_limit() / 2
    }
}

impl Volume {
    /// Group commit: makes every transaction committed so far durable, and the data before it
    /// (YFS-C2). Only the holder of the commit lock `io` orders writes.
    pub(crate) fn flush_log(&self, io: &mut Io) -> Result<()> {
        let (placed, witnesses) = {
            let mut core = self.core.lock();
            core.health.check_alive()?;
            core.health.check_ordered()?;
            core.close_tx();
            core.log.seal();
            let witnesses = core.bear_witness(&io.unflushed);
            let secs = self.clock.now().secs;
            let fsid = core.geom.fsid;
            (core.log.place(fsid, secs), witnesses)
        };
        let (writes, last) = self.or_fail(placed)?;
        if witnesses.is_empty() && !matches!(io.unflushed, Unflushed::Nothing) && !planted(Flaw::NoDataFlush) {
            self.or_fail(self.dev.flush().map_err(Error::Io))?;
            self.counters.flushes.fetch_add(1, Relaxed);
            io.unflushed = Unflushed::Nothing;
        }
        if writes.is_empty() {
            return Ok(());
        }
        let log = self.log_dev();
        let done = log.submit(writes).wait_all();
        let done = if planted(Flaw::NoLogFlush) { done } else { done.and_then(|()| log.flush()) };
        self.or_fail(done.map_err(Error::Io))?;
        self.counters.flushes.fetch_add(1, Relaxed);
        if !witnesses.is_empty() {
            io.unflushed = Unflushed::Nothing;
        }
        let mut core = self.core.lock();
        core.log.witnesses = witnesses;
        core.log.durable = last;
        while let Some(&(rec, addr)) = core.log.deleted.front() {
            if rec > last {
                break;
            }
            core.log.deleted.pop_front();
            // Unless the block was made anew since, its old contents are of no use to anyone.
            if core.dirty.get(&addr).is_none_or(|d| d.last <= rec) {
                core.forget_buffer(addr);
            }
        }
        Ok(())
    }

    /// Makes a record durable behind the one that bears witness to data which are about to be written
    /// over. Nothing else may have been committed whose data is still to be written.
    pub(crate) fn part_from_witnesses(&self, io: &mut Io) -> Result<()> {
        self.flush_log(io)?;
        let mut core = self.core.lock();
        if !core.log.witnesses.is_empty() {
            core.close_tx();
            core.log.seal_anyway();
        }
        drop(core);
        self.flush_log(io)
    }

    /// Writes metadata in place whose log records are durable, and moves the tail. `all` writes
    /// everything; otherwise the oldest, until the log is half empty.
    pub(crate) fn checkpoint(&self, io: &mut Io, all: bool) -> Result<()> {
        // "Unmark free" items must be durable before the tail passes what they unmark.
        if !planted(Flaw::WriteBeforeLog) {
            // What goes in place must not hang on data that might yet change under a witness.
            self.part_from_witnesses(io)?;
        }
        loop {
            let (pieces, names, windows) = {
                let mut core = self.core.lock();
                core.health.check_ordered()?;
                let (pieces, names) = core.collect_metadata(all);
                let windows = core.writes(&pieces);
                (pieces, names, windows)
            };
            if names.is_empty() {
                break;
            }
            let written = self.dev.submit(cluster(pieces, 1 << 20)).wait_all().map_err(Error::Io);
            let ok = written.is_ok();
            let mut core = self.core.lock();
            core.written_to(&windows);
            core.end_metadata(&names, ok);
            drop(core);
            self.or_fail(written)?;
            if !all && names.len() < CHECKPOINT_BATCH {
                break;
            }
        }
        if !planted(Flaw::TailBeforeFlush) {
            self.or_fail(self.dev.flush().map_err(Error::Io))?;
        }
        io.unflushed = Unflushed::Nothing;
        self.counters.flushes.fetch_add(1, Relaxed);
        self.move_tail()
    }

    fn move_tail(&self) -> Result<()> {
        let anchor = {
            let mut core = self.core.lock();
            let log = &core.log;
            let mut tail = log.durable + 1;
            tail = tail.min(log.sync_list.first().map_or(tail, |f| f.0));
            if !planted(Flaw::TailPassesMarks) {
                tail = tail.min(core.marked.front().map_or(tail, |m| m.0));
            }
            let log = &mut core.log;
            while log.on_disk.front().is_some_and(|r| r.0 < tail) {
                log.on_disk.pop_front();
            }
            let (lsn, prev) =
                log.on_disk.front().map_or((Lsn::new(log.cycle, log.head), log.prev), |&(_, lsn, prev)| (lsn, prev));
            if lsn == log.anchor_tail {
                return Ok(());
            }
            log.anchor_seq += 1;
            (log.start, core.geom.fsid, core.log.anchor_seq, lsn, prev)
        };
        let (start, fsid, seq, lsn, prev) = anchor;
        let log = self.log_dev();
        self.or_fail(recover::write_anchor(log, start, fsid, seq, lsn, prev, self.clock.now().secs))?;
        self.or_fail(log.flush().map_err(Error::Io))?;
        self.counters.flushes.fetch_add(1, Relaxed);
        self.core.lock().log.anchor_tail = lsn;
        Ok(())
    }

    /// Turns a failed write into a read-only volume: what must follow it is never written.
    pub(crate) fn or_fail<T>(&self, r: Result<T>) -> Result<T> {
        if let Err(e) = &r {
            self.core.lock().health.fail(e);
        }
        r
    }
}

impl Io {
    /// Notes data that is about to be written.
    pub(crate) fn note_data(&mut self, out: &DataWrites) {
        let bytes: usize = out.pieces.iter().map(|p| p.2.len()).sum();
        let mut all = match std::mem::take(&mut self.unflushed) {
            Unflushed::Nothing => Vec::new(),
            Unflushed::Little(all) => all,
            Unflushed::Much => {
                self.unflushed = Unflushed::Much;
                return;
            }
        };
        // What is written over again has its witness with the latest bytes.
        all.retain(|w| !out.pieces.iter().any(|(at, _, buf)| w.lies_in(*at, buf.len() as u64)));
        let before: usize = all.iter().map(|w| w.len as usize).sum();
        let in_part = all.iter().any(|w| out.pieces.iter().any(|(at, _, buf)| w.meets(*at, buf.len() as u64)));
        if in_part || all.len() + out.pieces.len() > WITNESSES || before + bytes > WITNESSED_BYTES {
            self.unflushed = Unflushed::Much;
            return;
        }
        for (&(ino, page), (offset, _, buf)) in out.owners.iter().zip(&out.pieces) {
            all.push(Witness { ino, page, offset: *offset, len: buf.len() as u32, crc: crc(buf.bytes()) });
        }
        self.unflushed = Unflushed::Little(all);
    }
}

impl Core {
    /// Whether the last durable record bears witness to data of a file that have changed since.
    pub fn is_witnessed(&self, ino: Ino) -> bool {
        let changed = |w: &Witness| self.cache.is_dirty(Name::Page { file: ino.0, index: w.page });
        self.log.witnesses.iter().any(|w| w.ino == ino && changed(w))
    }

    /// Whether none of the extents has data that the last durable record bears witness to.
    fn bears_no_witness_to(&self, extents: &[Extent]) -> bool {
        let fs = self.geom.frag_size();
        let meets = |w: &Witness| extents.iter().any(|e| w.meets(e.start.0 * fs, u64::from(e.len) * fs));
        planted(Flaw::WitnessesForgotten) || !self.log.witnesses.iter().any(meets)
    }

    /// Lets the only record that waits to be written bear witness to the data written before it, if they
    /// are few; returns to which. Nothing else may share its flush.
    fn bear_witness(&mut self, unflushed: &Unflushed) -> Vec<Witness> {
        let Unflushed::Little(all) = unflushed else { return Vec::new() };
        let [record] = self.log.active.make_contiguous() else { return Vec::new() };
        if self.sb.incompat.get() & (INCOMPAT_WITNESS | INCOMPAT_EXTERNAL_LOG) != INCOMPAT_WITNESS {
            return Vec::new();
        }
        // What is free again with this record may be discarded, and another's, before there is a next one.
        let (fs, durable) = (self.geom.frag_size(), self.log.durable);
        let freed = self.marked.iter().rev().take_while(|(rec, _)| *rec > durable);
        let freed: Vec<(u64, u64)> = freed.map(|(_, e)| (e.start.0 * fs, u64::from(e.len) * fs)).collect();
        let mut all = all.clone();
        all.retain(|w| !freed.iter().any(|&(at, len)| w.lies_in(at, len)));
        if all.iter().any(|w| freed.iter().any(|&(at, len)| w.meets(at, len))) {
            return Vec::new();
        }
        for w in &all {
            let entry = LogEntry {
                kind: EntryType::Witness as u8,
                addr: (w.offset / SECTOR).into(),
                at: w.crc.into(),
                len: w.len.into(),
                ..LogEntry::default()
            };
            record.entries.extend_from_slice(entry.as_bytes());
            record.count += 1;
        }
        all
    }
}

/// Bytes of log that freeing one marked extent takes, roughly.
const MARKED_COST: usize = 4 * LOG_ENTRY + 16;
/// Most fragments of one "marked free" item: their bits are logged by one transaction.
const MARKED_FRAGS: u32 = 1 << 18;
const CHECKPOINT_BATCH: usize = 2048;

/// Checksums of damaged inodes of a chunk: they stay wrong until fsck has looked.
fn keep_crcs(
    damaged: &FxHashMap<u64, Corrupt>,
    addr: u64,
    seal: Seal,
    bytes: &[u8],
    inode_size: usize,
) -> Vec<(usize, [u8; 4])> {
    if seal != Seal::Inodes || damaged.is_empty() {
        return Vec::new();
    }
    (0..bytes.len() / inode_size)
        .filter(|n| damaged.contains_key(&(addr + (n * inode_size) as u64 / SECTOR)))
        .filter_map(|n| {
            let at = n * inode_size + CRC_AT;
            Some((at, bytes.get(at..at + 4)?.try_into().ok()?))
        })
        .collect()
}

impl Core {
    fn forget_buffer(&mut self, addr: u64) {
        self.cache.remove(Name::Block(addr));
        if let Some(d) = self.dirty.remove(&addr) {
            self.log.sync_list.remove(&(d.first, addr));
        }
    }

    fn collect_metadata(&mut self, all: bool) -> (Vec<Piece>, Vec<(u64, Rec)>) {
        // YFS-C1 goes for buffers whose last change no record has yet, too.
        self.close_tx();
        let mut addrs = Vec::new();
        let half = self.log.durable.saturating_sub(self.log.on_disk.len() as u64 / 2);
        for &(first, addr) in &self.log.sync_list {
            if addrs.len() >= CHECKPOINT_BATCH || !all && first > half {
                break;
            }
            // YFS-C1
            if self.dirty.get(&addr).is_some_and(|d| d.last <= self.log.durable || planted(Flaw::WriteBeforeLog)) {
                addrs.push(addr);
            }
        }
        let inode_size = self.geom.inode_size();
        let mut pieces = Vec::with_capacity(addrs.len());
        let mut names = Vec::with_capacity(addrs.len());
        for addr in addrs {
            let name = Name::Block(addr);
            let Some(d) = self.dirty.get_mut(&addr) else { continue };
            let (lo, hi) = if d.seal == Seal::Inodes {
                (d.lo / inode_size * inode_size, d.hi.next_multiple_of(inode_size))
            } else {
                (0, usize::MAX)
            };
            d.again = None;
            (d.lo, d.hi) = (usize::MAX, 0);
            let seal = d.seal;
            let damaged = &self.damaged;
            self.cache.modify(name, |b| {
                let hi = hi.min(b.len());
                let kept = keep_crcs(damaged, addr, seal, b, inode_size);
                seal.seal(&mut b[lo..hi], inode_size);
                for (at, crc) in kept {
                    b[at..at + 4].copy_from_slice(&crc);
                }
            });
            let Some(bytes) = self.cache.begin_write(name) else { continue };
            let hi = hi.min(bytes.len());
            pieces.push((addr * SECTOR + lo as u64, d.kind, Buf::slice(bytes, lo, hi - lo)));
            names.push((addr, d.first));
        }
        self.meta_seq += 1;
        (pieces, names)
    }

    /// What was read ahead of the places that are about to be written is not believed any more;
    /// [`Core::written_to`] says the same when they have been written.
    pub fn writes(&mut self, pieces: &[Piece]) -> Vec<u64> {
        let windows = self.windows.numbers(pieces.iter().map(|p| (p.0, p.2.len() as u64)));
        self.written_to(&windows);
        windows
    }

    pub fn written_to(&mut self, windows: &[u64]) {
        if !planted(Flaw::StaleWindows) {
            self.windows.forget(windows);
        }
    }

    fn end_metadata(&mut self, names: &[(u64, Rec)], ok: bool) {
        // A buffer that was changed meanwhile does not become clean.
        self.close_tx();
        self.meta_seq += 1;
        for &(addr, first) in names {
            let name = Name::Block(addr);
            self.cache.end_write(name, ok);
            let Some(d) = self.dirty.get_mut(&addr) else { continue };
            if !ok || d.first != first {
                continue;
            }
            self.log.sync_list.remove(&(first, addr));
            match d.again.take() {
                None => {
                    self.dirty.remove(&addr);
                    self.cache.set_clean(name);
                }
                Some((rec, lo, hi)) => {
                    (d.first, d.lo, d.hi, d.again) = (rec, lo, hi, Some((rec, lo, hi)));
                    self.log.sync_list.insert((rec, addr));
                }
            }
        }
    }
}

impl Core {
    /// Bytes the compound transaction would log now, roughly.
    pub fn tx_bytes(&self) -> usize {
        self.tx.bytes
    }

    /// Whether the open transaction should end soon.
    pub fn tx_full(&self) -> bool {
        self.tx_bytes() > self.log.max_tx / 3
    }

    fn pressure(&self) -> (bool, bool) {
        let much = self.data_pressure() || self.metadata_pressure();
        let soon = much || self.log.has_full() || self.marked.len() > 1000 || self.lives.inactive() > 256;
        (soon, self.cache.dirty_bytes() > self.cache.dirty_limit() * 2)
    }
}

impl Volume {
    /// Notes after a call whether work has piled up.
    pub(crate) fn note_pressure(&self, core: &Core) {
        let (soon, now) = core.pressure();
        self.pressed.store(soon, Relaxed);
        self.full.store(now, Relaxed);
    }

    /// Lets a writer that outruns the device do some of the writing.
    pub(crate) fn throttle(&self) -> Result<()> {
        if !self.full.load(Relaxed) {
            return Ok(());
        }
        self.counters.stalls.fetch_add(1, Relaxed);
        let mut io = self.order();
        if !self.core.lock().pressure().1 {
            return Ok(());
        }
        let seq = self.core.lock().delayed_seq;
        self.write_back(&mut io, Which::UpTo(seq))?;
        let core = self.core.lock();
        let metadata = core.metadata_pressure();
        drop(core);
        if metadata {
            self.flush_log(&mut io)?;
            self.checkpoint(&mut io, true)?;
        }
        self.note_pressure(&self.core.lock());
        Ok(())
    }

    /// Makes everything durable.
    pub(crate) fn sync_all(&self) -> Result<()> {
        let seq = {
            let core = self.core.lock();
            core.health.check_alive()?;
            core.health.check_ordered()?;
            if core.health.is_read_only() {
                return Ok(());
            }
            core.delayed_seq
        };
        let mut io = self.order();
        self.write_back(&mut io, Which::UpTo(seq))?;
        self.flush_log(&mut io)
    }

    /// Frees in the bitmap what is durably marked free; `all` of it, or one transaction's worth.
    /// Discards go out before the space can be taken again.
    pub(crate) fn run_bitmap_daemon(&self, io: &mut Io, all: bool) -> Result<()> {
        loop {
            let todo: Vec<Extent> = {
                let core = self.core.lock();
                core.health.check_ordered()?;
                let durable = core.log.durable;
                let most = if all { DAEMON_ALL } else { DAEMON_BATCH };
                core.marked.iter().take_while(|m| m.0 <= durable).take(most).map(|m| m.1).collect()
            };
            if todo.is_empty() {
                return Ok(());
            }
            debug_assert!(self.core.lock().bears_no_witness_to(&todo), "YFS-C2");
            self.discard(&todo);
            let mut left = todo.len();
            while left > 0 {
                let freed = self.free_marked(io, left)?;
                left = left.saturating_sub(freed);
                if !all {
                    return Ok(());
                }
            }
        }
    }

    /// One transaction of the bitmap daemon; 0 if it first had to make room in the log.
    fn free_marked(&self, io: &mut Io, count: usize) -> Result<usize> {
        let mut core = self.core.lock();
        match core.bitmap_daemon(self.clock.now(), count) {
            Err(Error::Restart) => {
                core.want = None;
                drop(core);
                self.flush_log(io)?;
                self.checkpoint(io, true)?;
                Ok(0)
            }
            Err(e) => {
                core.health.fail(&e);
                core.tx = Tx::default();
                core.blocking = false;
                Err(e)
            }
            done => done,
        }
    }

    /// Gives extents back to the device, neighbours together. A refusal only costs space.
    fn discard(&self, extents: &[Extent]) {
        if !self.opts.discard || self.dev.geometry().discard_unit == 0 {
            return;
        }
        let fs = self.core.lock().geom.frag_size();
        let mut sorted: Vec<(u64, u64)> = extents.iter().map(|e| (e.start.0 * fs, u64::from(e.len) * fs)).collect();
        sorted.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (at, len) in sorted {
            match joined.last_mut() {
                Some(l) if l.0 + l.1 == at => l.1 += len,
                _ => joined.push((at, len)),
            }
        }
        let unit = u64::from(self.dev.geometry().discard_unit);
        joined.retain(|d| d.1 >= unit);
        // Each is a call to the host: what a file in many pieces had comes back with the next trim.
        joined.sort_unstable_by_key(|d| (std::cmp::Reverse(d.1), d.0));
        joined.truncate(DISCARDS);
        let batch = joined.into_iter().map(|(at, len)| Request::discard(Kind::Data, at, len)).collect();
        for done in self.dev.submit(batch).wait() {
            drop(done);
        }
    }

    /// Discards the free space of the AGs in use, as far as it is in `range`.
    pub(crate) fn trim_free(&self, range: &TrimRange) -> Result<u64> {
        let geom = self.core.lock().geom;
        let fs = geom.frag_size();
        range.check(geom.frags * fs, fs, u64::from(geom.ag_len(0)) * fs)?;
        let mut io = self.order();
        self.flush_log(&mut io)?;
        self.run_bitmap_daemon(&mut io, true)?;
        self.flush_log(&mut io)?;
        let used = self.core.lock().sb.ag_used.get();
        let mut bytes = 0;
        for ag in 0..used {
            self.go_on()?;
            // Nothing may take the space between the look and the discard.
            let mut core = self.core.lock();
            core.health.check_ordered()?;
            core.blocking = true;
            let runs = core.free_runs(ag);
            core.blocking = false;
            let runs = runs?;
            let parts = runs.iter().filter_map(|e| range.part((e.start.0 * fs, u64::from(e.len) * fs), fs));
            let batch: Vec<Request> = parts.map(|(at, len)| Request::discard(Kind::Data, at, len)).collect();
            bytes += batch.iter().map(Request::len).sum::<u64>();
            self.dev.submit(batch).wait_all()?;
        }
        Ok(bytes)
    }

    /// The daemons' turn: what is due at `now`. Returns when something is due next.
    pub(crate) fn daemon(&self, now: Time) -> Time {
        let later = now.plus_ms(self.opts.commit_ms);
        if !self.core.lock().health.is_writable() || self.drain_inactive().is_err() {
            return later;
        }
        let mut io = self.order();
        // Errors have turned the volume read-only by now; fsync reports them.
        let _ = self.daemon_turn(&mut io, now);
        let core = self.core.lock();
        self.note_pressure(&core);
        let oldest = core.delayed_order.values().next().and_then(|i| core.delayed.get(i)).map(|d| d.since);
        let ms = self.opts.commit_ms;
        [oldest, core.log.open_since].into_iter().flatten().map(|t| t.plus_ms(ms)).fold(later, Time::min)
    }

    fn daemon_turn(&self, io: &mut Io, now: Time) -> Result<()> {
        if planted(Flaw::WriteBeforeLog) {
            self.checkpoint(io, true)?;
        }
        let ms = self.opts.commit_ms;
        let due = |t: Option<Time>| t.is_some_and(|t| t.plus_ms(ms) <= now);
        let (seq, data, log) = {
            let core = self.core.lock();
            let oldest = core.delayed_order.values().next().and_then(|i| core.delayed.get(i)).map(|d| d.since);
            (
                core.delayed_seq,
                due(oldest) || core.data_pressure(),
                due(core.log.open_since) || core.log.has_full() || core.marked.len() > 1000,
            )
        };
        if data {
            self.write_back(io, Which::UpTo(seq))?;
        }
        if data || log {
            self.flush_log(io)?;
        }
        if !planted(Flaw::TailPassesMarks) {
            self.run_bitmap_daemon(io, true)?;
        }
        let checkpoint = {
            let core = self.core.lock();
            let idle = io.checkpointed_at.plus_ms(CHECKPOINT_MS) <= now && !core.dirty.is_empty();
            core.log.used_bytes() > core.log.area_bytes() / 2 || core.metadata_pressure() || idle
        };
        if checkpoint {
            self.flush_log(io)?;
            self.checkpoint(io, true)?;
            io.checkpointed_at = now;
        }
        Ok(())
    }
}

/// Metadata goes in place at the latest after this time, so that recovery is short.
const CHECKPOINT_MS: u64 = 30_000;
/// Extents the bitmap daemon discards and frees at a time; more when all must go, so that pieces
/// which lie side by side become one discard.
const DAEMON_BATCH: usize = 1024;
/// Discards of a batch, the longest first.
const DISCARDS: usize = 256;
const DAEMON_ALL: usize = 1 << 16;
