//! Transactions: the changes of calls are collected in one compound transaction, which then goes to the in-core log.

use super::bitmaps::MARKED_COST;
use crate::buffers::{What, buffer_kind};
use crate::format::*;
use crate::log::{Changed, Item, Rec, Tx};
use crate::superblock;
use crate::volume::{Core, RestartReason};
use arbor_base::cache::{Name, Place};
use arbor_base::device::Kind;
use arbor_base::layout::Corrupt;
use arbor_base::vfs::{Error, Result, Time};
use zerocopy::IntoBytes;

impl Core {
    /// Starts a transaction: once it has changed something, nothing may fail but the device. Asks the caller to make room first if the
    /// log has none (reservation, 4.3).
    pub fn begin(&mut self) -> Result<()> {
        // The bitmap daemon must find room when nobody else does: the tail waits for it.
        let count = self.marked.len() + self.tx.marked().0;
        let marked = count * MARKED_COST + self.marked_free() as usize / 8;
        let beside = 2 * self.log.max_tx + marked;
        self.begin_beside(beside)
    }

    pub(super) fn begin_beside(&mut self, beside: usize) -> Result<()> {
        debug_assert!(!self.tx.open, "transactions do not nest");
        if !self.log.has_room(beside + self.tx.bytes()) {
            return Err(self.attempt.give_up(RestartReason::LogSpace));
        }
        self.tx.begin();
        self.attempt.set_blocking(true);
        Ok(())
    }

    /// Changes bytes of a metadata buffer. Bytes that stay the same are not logged, unless another log entry would be
    /// longer.
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
        let dirty = self.cache.dirtied_at(place);
        self.cache.modify(dirty, |b| {
            for &(lo, hi) in changed {
                b[at + lo..at + hi].copy_from_slice(&bytes[lo..hi]);
            }
        });
        self.tx.change(addr, seal, at, changed);
        Ok(())
    }

    /// Rereads a buffer that was checked before and evicted since (only with a tiny cache), and checks it again: it is
    /// about to be changed and sealed, which would make damage look sound.
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

    /// Changes a buffer that is in the cache; `None` if it is not.
    pub fn modify<R>(&mut self, name: Name, f: impl FnOnce(&mut Vec<u8>) -> R) -> Option<R> {
        let dirty = self.cache.dirtied(name)?;
        Some(self.cache.modify(dirty, f))
    }

    /// Makes a new metadata buffer of zeros.
    pub fn init(&mut self, addr: Daddr, seal: Seal, len: usize) {
        let name = Name::Block(addr.0);
        self.cache.remove(name);
        self.cache.insert(name, std::sync::Arc::new(vec![0; len]));
        self.modify(name, |_| ());
        self.dirty.forget(addr.0);
        self.tx.init(addr, seal);
    }

    /// Makes a new metadata block with its header.
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

    /// Deletes a metadata buffer; replay skips its earlier log entries.
    pub fn delete_buffer(&mut self, addr: Daddr, len: usize) {
        self.tx.delete(addr, len);
    }

    /// Bytes that the compound transaction would log now, roughly.
    pub fn tx_bytes(&self) -> usize {
        self.tx.bytes()
    }

    /// Whether the open transaction should end soon.
    pub fn tx_full(&self) -> bool {
        self.tx_bytes() > self.log.max_tx / 3
    }

    /// Ends the transaction of a call. Later ones join it, until they are large together or somebody needs their
    /// changes.
    pub fn commit(&mut self, now: Time) {
        self.tx.open = false;
        self.attempt.set_blocking(false);
        if self.tx.is_empty() {
            return;
        }
        self.log.note_commit(now);
        if self.tx.bytes() > self.log.compound() || !self.ways.compound {
            self.close_tx();
        }
        self.look();
    }

    /// Gives the transaction up after an error: it cannot be undone, so nothing after it may be written.
    pub fn drop_tx(&mut self) {
        self.tx = Tx::default();
        self.attempt.set_blocking(false);
    }

    /// Ends the compound transaction: its changes go to the in-core log.
    pub(super) fn close_tx(&mut self) {
        debug_assert!(!self.tx.open, "a call is not finished");
        if self.tx.is_empty() || self.tx.open {
            return;
        }
        let rec = self.log.rec();
        let tid = self.tx.tid();
        let order = self.tx.take_order();
        let before = self.log.open_len();
        for addr in &order {
            if let Some(item) = self.tx.take_item(*addr) {
                self.log_item(*addr, &item, tid, rec);
                self.tx.reuse(item);
            }
        }
        let entry = |kind: EntryType, addr: u64, len: u32| LogEntry {
            kind: kind as u8,
            tid: tid.into(),
            addr: addr.into(),
            len: len.into(),
            ..LogEntry::default()
        };
        for (addr, len) in self.tx.take_deleted() {
            self.log.entry(entry(EntryType::Deleted, addr, len as u32), &[]);
            self.log.note_deleted(addr);
            self.dirty.deleted(addr, rec);
        }
        // What was freed in the bitmap may have been allocated since, and marked free once more.
        for e in self.tx.drain_unmarked() {
            self.log.entry(entry(EntryType::UnmarkFree, e.start.0, e.len), &[]);
        }
        for e in self.tx.drain_marked() {
            self.log.entry(entry(EntryType::MarkFree, e.start.0, e.len), &[]);
            self.marked.push(rec, e);
        }
        self.log.entry(entry(EntryType::Commit, 0, 0), &[]);
        let logged = self.log.open_len() - before;
        debug_assert!(logged <= self.log.max_tx + self.log.compound(), "a transaction logged {logged} bytes");
        self.tx.end(order);
        self.log.end_tx();
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
        self.dirty.changed(addr, (seal, kind), rec, (lo, hi));
    }
}
