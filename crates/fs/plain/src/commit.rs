//! The order of writes.
//!
//! ```text
//! what a call has changed -> record in one half of the log -> flush -> the same in place
//! ```
//!
//! The next record goes to the other half, and its flush makes the in-place writes of the one before it durable. So a
//! call takes one flush, and two writes of each block.
//!
//! Called by `kit::machine` at the end of a call ([`Machine::commit`]). Mkfs, recovery and the checker order their own
//! writes (`mkfs.rs`, `recover.rs`, `check.rs`).
//!
//! * **PLAIN-C1** nothing is written in place before the record that holds it is durable.
//! * **PLAIN-C2** a record is overwritten only after what it holds is durable in place, and so recovery needs two
//!   records.
//! * **PLAIN-C3** the changes of a call are in one record: it lasts whole or not at all.

use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::recover::record_hash;
use crate::volume::Core;
use arbor_base::cache::{Cache, Name, cluster};
use arbor_base::device::{Buf, Kind, Request};
use arbor_base::vfs::{Error, Result};
use arbor_kit::machine::{Machine, Machinery};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Largest request.
const MAX_WRITE: u64 = 1 << 20;
/// Blocks kept free in a record for what follows the last step of a call.
const SPARE: usize = 24;

/// A changed block: its address, its buffer, its kind.
type Changed = (u32, Name, Kind);

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
        self.write_changes().inspect_err(|e| self.give_up(e))
    }
}

impl Core {
    /// Whether a call made of steps may take another one before it is committed (PLAIN-C3).
    pub fn has_room(&self) -> bool {
        self.log.is_repair || self.log.changed.len() + SPARE < self.geom.half(self.log.seq).1 as usize
    }

    /// Writes all changes. Only a repair may have changed more than a record takes; blocks that point to others come
    /// last then.
    pub fn write_changes(&mut self) -> Result<()> {
        if self.log.super_changed {
            self.put_super(0, self.sb)?;
            self.log.super_changed = false;
        }
        let all = std::mem::take(&mut self.log.changed).into_iter().rev();
        let changed: Vec<Changed> = all.map(|(block, (name, kind))| (block, name, kind)).collect();
        let (blocks, most) = (changed.len(), self.geom.half(self.log.seq).1 as usize);
        if blocks > most && !self.log.is_repair {
            let why = format!("a call has changed {blocks} blocks, and a record takes {most}");
            return Err(Error::Io(std::io::Error::other(why)));
        }
        let most = if planted(Flaw::TwoRecords) { 2 } else { most };
        changed.chunks(most).try_for_each(|part| self.write_record(part))
    }

    /// Writes all changes, and then whether the volume is `clean`, durably. The record with that mark makes the in-place
    /// writes of the one before it durable (PLAIN-C2).
    pub fn write_marked(&mut self, clean: u32) -> Result<()> {
        for clean in [0, clean] {
            self.sb.clean = clean.into();
            self.touch_super();
            self.write_changes()?;
        }
        self.flush()
    }

    /// Changes the block of the superblock, or of its copy.
    pub fn put_super(&mut self, block: u32, sb: SuperBlock) -> Result<()> {
        let mut bytes = arbor_kit::head::encode(&sb);
        bytes.resize(BLOCK, 0);
        self.make_block(block, Kind::Super, bytes)
    }

    fn write_record(&mut self, part: &[Changed]) -> Result<()> {
        let images: Vec<(Changed, Arc<Vec<u8>>)> = part.iter().filter_map(|c| Some((*c, self.image(*c)?))).collect();
        let record = self.record(&images);
        self.log.records += 1;
        self.log.bytes += record.len() as u64;
        let (at, _) = self.geom.half(self.log.seq);
        self.write(vec![Request::write(Kind::Log, byte(at), vec![record.into()])])?;
        // Also makes the blocks of the record before it durable in place (PLAIN-C2).
        if !planted(Flaw::RecordUnflushed) {
            self.flush()?;
        }
        self.log.seq += 1;
        let pieces = images.iter().map(|((block, _, kind), image)| (byte(*block), *kind, Buf::new(image.clone())));
        self.write(cluster(pieces.collect(), MAX_WRITE))?;
        part.iter().for_each(|(_, name, _)| self.cache.set_clean(*name));
        Ok(())
    }

    /// The bytes of a buffer as they are written, with their checksum.
    fn image(&mut self, (_, name, kind): Changed) -> Option<Arc<Vec<u8>>> {
        if matches!(kind, Kind::Bitmap | Kind::Tree | Kind::Xattr) {
            let dirty = self.cache.dirtied(name)?;
            self.cache.modify(dirty, |buf| seal(buf));
        }
        self.cache.peek(name).cloned()
    }

    fn record(&self, images: &[(Changed, Arc<Vec<u8>>)]) -> Vec<u8> {
        let (fsid, seq) = (self.geom.fsid, self.log.seq);
        let (magic, count) = (RECORD_MAGIC.into(), (images.len() as u32).into());
        let head = Record { magic, count, fsid: fsid.into(), seq: seq.into(), hash: 0.into() };
        let mut bytes = head.as_bytes().to_vec();
        images.iter().for_each(|((block, ..), _)| bytes.extend(block.to_le_bytes()));
        bytes.resize(BLOCK, 0);
        images.iter().for_each(|(_, image)| bytes.extend_from_slice(image));
        let hash = record_hash(&self.geom, seq, &mut bytes);
        let head = Record { hash: hash.into(), ..head };
        head.write_to_prefix(&mut bytes).ok();
        bytes
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
