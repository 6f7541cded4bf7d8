//! The order of writes.
//!
//! ```text
//! unformatted nodes, fresh nodes -> flush -> record in the log -> flush          (a transaction is durable)
//! copies of all records in place -> flush -> head of the log -> flush   (the log is empty again)
//! ```
//!
//! A transaction is *compound*: it takes in what calls change one after the other, until somebody asks for durability, it
//! is some seconds old, or large. Called by `kit::machine` at the end of a call ([`Machine::commit`]) and by `ops.rs`.
//! Mkfs and recovery order their own writes (`mkfs.rs`, `recover.rs`).
//!
//! * **REISER-C1** the data that a record leads to is durable before the record is written.
//! * **REISER-C2** no block of metadata is written over in place before a record that holds it is durable.
//! * **REISER-C3** a record is overwritten only after what it holds is durable in place, and the head of the log, durably,
//!   leads past it.
//! * **REISER-C4** numbers of records grow, by one from record to record and by more over a recovery, so that none counts
//!   that did not count before.
//! * **REISER-C5** the changes of a call are in one transaction.
//! * **REISER-C6** with `ordering=preserve` a node that is on disk moves when items are shifted out of it, and nodes in new
//!   places are durable there before the record that leads to them, which has no copies of them. The place that a node has
//!   left holds what it held until that record is durable (the preserve list of the paper, with REISER-A3).
//! * **REISER-C7** a buffer is clean, and can be evicted, only when what it holds is durable, in place or in the log: a flush
//!   that fails may have forgotten what was written, and what was synced is still to be read.

use crate::format::*;
use crate::node::Block;
use crate::planted::{Flaw, planted};
use crate::recover::record_hash;
use crate::superblock::first_block;
use crate::volume::Core;
use arbor_base::cache::{Cache, Name, cluster};
use arbor_base::device::{Buf, Kind, Request};
use arbor_base::vfs::{Error, Result};
use arbor_kit::machine::{Machine, Machinery};
use std::collections::BTreeMap;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Largest request.
const MAX_WRITE: u64 = 1 << 20;
/// Blocks kept free in a record for what a step of a call may change.
const SPARE: usize = 96;

impl Machine for Core {
    fn calls(&mut self) -> &mut Machinery {
        &mut self.calls
    }

    fn cache(&mut self) -> &mut Cache {
        &mut self.cache
    }

    fn commit(&mut self) -> Result<()> {
        if !self.calls.health.is_writable() {
            return Ok(());
        }
        let is_large = self.log.copied() > self.most_changed() / 3;
        if is_large || self.cache.dirty_load() > self.cache.dirty_limit() {
            return self.commit_transaction();
        }
        Ok(())
    }
}

impl Core {
    /// Most blocks that a transaction can change.
    pub fn most_changed(&self) -> usize {
        let (log, per_head) = (self.geom.log as usize - 1, self.geom.node_size / 4);
        // One is for the superblock.
        log - log.div_ceil(per_head) - 2
    }

    /// Whether a call made of steps may take another one in this transaction (REISER-C5).
    pub fn has_room(&self) -> bool {
        self.log.is_repair || self.log.copied() + SPARE < self.most_changed()
    }

    /// Makes all changes durable.
    pub fn commit_transaction(&mut self) -> Result<()> {
        self.calls.health.check_writable()?;
        self.try_commit().inspect_err(|e| self.give_up(e))
    }

    fn try_commit(&mut self) -> Result<()> {
        self.put_late()?;
        self.compress()?;
        if planted(Flaw::DataAfterRecord) {
            let data = std::mem::take(&mut self.log.data);
            self.write_record()?;
            self.log.data = data;
        }
        if planted(Flaw::FreshAfterRecord) {
            let fresh = std::mem::take(&mut self.log.fresh);
            let changed = fresh.iter().filter_map(|block| Some((*block, self.log.changed.remove(block)?))).collect();
            self.write_record()?;
            (self.log.fresh, self.log.changed) = (fresh, changed);
        }
        let written = self.write_places()?;
        if planted(Flaw::CleanUnflushed) {
            written.iter().for_each(|name| self.cache.set_clean(*name));
        }
        if !written.is_empty() && self.has_metadata() {
            self.flush()?;
        }
        self.write_record()?;
        written.iter().for_each(|name| self.cache.set_clean(*name));
        self.release_freed();
        self.log.since = None;
        Ok(())
    }

    /// Makes the changes of a repair durable: as one transaction if the log has room for it, else in pieces, the last of which
    /// has the superblock.
    pub fn commit_repair(&mut self) -> Result<()> {
        self.put_late()?;
        self.compress()?;
        let written = self.write_places()?;
        self.flush()?;
        written.iter().for_each(|name| self.cache.set_clean(*name));
        let most = self.most_changed();
        while self.log.changed.len() > most {
            let later: Vec<Block> = self.log.changed.keys().copied().skip(most).collect();
            let later = later.first().map(|first| self.log.changed.split_off(first)).unwrap_or_default();
            self.write_changed(false)?;
            self.log.changed = later;
        }
        self.write_changed(true)?;
        self.release_freed();
        Ok(())
    }

    fn has_metadata(&self) -> bool {
        self.log.super_changed || !self.log.changed.is_empty()
    }

    /// Writes what goes straight to its place: unformatted nodes that have changed, and fresh ones of the tree. Returns their
    /// names: they are clean when they are durable, not before (REISER-C7).
    fn write_places(&mut self) -> Result<Vec<Name>> {
        let (data, mut fresh) = (std::mem::take(&mut self.log.data), std::mem::take(&mut self.log.fresh));
        if planted(Flaw::WrittenOver) {
            fresh.extend(self.log.changed.iter().filter(|(_, kind)| **kind == Kind::Tree).map(|(block, _)| *block));
        }
        let mut places: BTreeMap<Block, (Kind, Name)> =
            data.iter().map(|(block, name)| (*block, (Kind::Data, *name))).collect();
        for block in &fresh {
            self.image(*block, Kind::Tree);
            places.insert(*block, (Kind::Tree, Name::Block((*block).into())));
        }
        let piece = |(block, (kind, name)): (&Block, &(Kind, Name))| {
            Some((self.geom.byte(*block), *kind, Buf::new(self.cache.peek(*name)?.clone())))
        };
        let pieces: Vec<_> = places.iter().filter_map(piece).collect();
        if let Err(e) = self.write(cluster(pieces, MAX_WRITE)) {
            (self.log.data, self.log.fresh) = (data, fresh);
            return Err(e);
        }
        self.log.changed.retain(|block, _| !fresh.contains(block));
        self.log.fresh_nodes += fresh.len() as u64;
        Ok(places.into_values().map(|(_, name)| name).collect())
    }

    /// Writes a record of all changed metadata, durably.
    fn write_record(&mut self) -> Result<()> {
        if !self.has_metadata() {
            return self.flush();
        }
        let most = self.most_changed();
        if self.log.changed.len() > most {
            let why = format!("a transaction has changed {} blocks, and the log takes {most}", self.log.changed.len());
            return Err(Error::Io(std::io::Error::other(why)));
        }
        self.write_changed(true)
    }

    /// Writes a record of the changed blocks, and of the first one of the volume if it is `whole`.
    fn write_changed(&mut self, whole: bool) -> Result<()> {
        self.mark_in_use()?;
        let generation = self.sb.generation.get().saturating_add(1);
        self.sb.generation = generation.into();
        let changed = std::mem::take(&mut self.log.changed);
        let first = whole.then(|| (0, Arc::new(first_block(&self.geom, &self.sb, &self.ids))));
        let mut images: Vec<(Block, Arc<Vec<u8>>)> = first.into_iter().collect();
        images.extend(changed.iter().filter_map(|(block, kind)| Some((*block, self.image(*block, *kind)?))));
        let (record, blocks) = self.record(&images);
        if self.log.at + blocks > 1 + self.geom.log {
            self.checkpoint()?;
        }
        self.log.records += 1;
        self.log.bytes += record.len() as u64;
        self.write(vec![Request::write(Kind::Log, self.geom.byte(self.log.at), vec![record.into()])])?;
        if !planted(Flaw::RecordUnflushed) {
            self.flush()?;
        }
        (self.log.seq, self.log.at) = (self.log.seq + 1, self.log.at + blocks);
        self.log.super_changed = false;
        changed.keys().for_each(|block| self.cache.set_clean(Name::Block((*block).into())));
        self.log.copies.extend(images);
        // They take memory beside the cache.
        let is_large = self.log.copies.len() * self.geom.node_size > self.opts.cache_bytes / 4;
        if is_large || planted(Flaw::RecordUnflushed) {
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Before the first record after a mount: says in place that the volume is in use.
    fn mark_in_use(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.log.is_marked, true) {
            return Ok(());
        }
        let sb = match crate::superblock::read(&*self.dev, 0) {
            // A repair makes it anew.
            Ok(None) | Err(Error::Corrupt(_) | Error::Refused(_)) => return Ok(()),
            found => found?.map(|(sb, _)| sb).filter(SuperBlock::is_unmounted),
        };
        if let Some(sb) = sb {
            let bytes = arbor_kit::head::encode(&sb.marked(false, false));
            self.write(vec![Request::write(Kind::Super, 0, vec![bytes.into()])])?;
            self.flush()?;
        }
        Ok(())
    }

    /// The bytes of a changed block as they are written, with their checksum.
    fn image(&mut self, block: Block, kind: Kind) -> Option<Arc<Vec<u8>>> {
        let dirty = self.cache.dirtied(Name::Block(block.into()))?;
        if kind != Kind::Super {
            self.cache.modify(dirty, |buf| seal(buf));
        }
        self.cache.peek(Name::Block(block.into())).cloned()
    }

    /// A record of these copies, and how many blocks it has.
    fn record(&self, images: &[(Block, Arc<Vec<u8>>)]) -> (Vec<u8>, u32) {
        let (fsid, seq, size) = (self.geom.fsid, self.log.seq, self.geom.node_size);
        let (magic, count) = (RECORD_MAGIC.into(), (images.len() as u32).into());
        let head = Record { magic, count, fsid: fsid.into(), seq: seq.into(), hash: 0.into() };
        let list = size_of::<Record>() + size_of::<Block>() * images.len();
        let mut bytes = Vec::with_capacity(list.next_multiple_of(size) + images.len() * size);
        bytes.extend_from_slice(head.as_bytes());
        images.iter().for_each(|(block, _)| bytes.extend(block.to_le_bytes()));
        bytes.resize(bytes.len().next_multiple_of(size), 0);
        images.iter().for_each(|(_, image)| bytes.extend_from_slice(image));
        let hash = record_hash(&self.geom, seq, &mut bytes);
        Record { hash: hash.into(), ..head }.write_to_prefix(&mut bytes).ok();
        let blocks = (bytes.len() / size) as u32;
        (bytes, blocks)
    }

    /// Empties the log.
    pub fn empty_log(&mut self) -> Result<()> {
        self.calls.health.check_writable()?;
        self.checkpoint().inspect_err(|e| self.give_up(e))
    }

    /// Writes what the log holds in place, and empties it.
    fn checkpoint(&mut self) -> Result<()> {
        if self.log.copies.is_empty() {
            return Ok(());
        }
        self.log.checkpoints += 1;
        let geom = self.geom;
        let piece = |(block, copy): (&Block, &Arc<Vec<u8>>)| (geom.byte(*block), Kind::Tree, Buf::new(copy.clone()));
        let pieces = self.log.copies.iter().map(piece).collect();
        self.write(cluster(pieces, MAX_WRITE))?;
        if !planted(Flaw::LogReusedEarly) {
            self.flush()?;
        }
        self.write_log_head()?;
        // Not before: what cannot be written in place is still read here.
        self.log.copies.clear();
        self.log.at = 2;
        self.release_logged();
        Ok(())
    }

    /// Gives the space of the empty log back to the device, so that an image is no larger than what lies in it.
    pub fn discard_log(&mut self) -> Result<()> {
        let (geom, records) = (self.geom, self.geom.log.saturating_sub(1));
        if self.dev.geometry().discard_unit == 0 || !self.log.copies.is_empty() {
            return Ok(());
        }
        // That is advice: the volume is whole whether the device takes it or not.
        let request = Request::discard(Kind::Log, geom.byte(2), geom.byte(records));
        drop(self.calls.reads.submit(&*self.dev, vec![request]).wait_all());
        self.flush()
    }

    /// Says, durably, that records count from the next one on.
    pub fn write_log_head(&mut self) -> Result<()> {
        let head = crate::recover::log_head(&self.geom, self.log.seq);
        let at = crate::recover::head_at(&self.geom, self.log.next_head);
        self.write(vec![Request::write(Kind::Log, at, vec![head.into()])])?;
        self.log.next_head = 1 - self.log.next_head.min(1);
        self.flush()
    }

    fn write(&mut self, batch: Vec<Request>) -> Result<()> {
        self.io.writes += batch.len() as u64;
        self.io.write_bytes += batch.iter().map(Request::len).sum::<u64>();
        Ok(self.calls.reads.submit(&*self.dev, batch).wait_all()?)
    }

    /// Makes all writes durable. After a flush that failed, they may be lost.
    pub fn flush(&mut self) -> Result<()> {
        self.io.flushes += 1;
        self.dev.flush().map_err(Error::Io).inspect_err(|e| self.give_up(e))
    }
}
