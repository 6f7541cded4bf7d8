//! The order of writes.
//!
//! ```text
//! what the last commit has overwritten, in place; relocated blocks; contents that are overwritten;
//! redo list, and copies of metadata that are overwritten
//!     -> flush -> master block -> flush
//! ```
//!
//! The paper commits by the master block, and says of overwriting only that "logging information" is in its check-point
//! inodes. Here that is a redo list: the master block leads to a copy of each block that was overwritten. In place they are
//! written by the next commit, and durable before its master block is; until then recovery reads the copies. So a commit
//! lasts whole or not at all, whatever is overwritten. Contents of a file need no copies, but with `redo=all`: they are
//! written in place before the master block, and after a crash the file has new bytes where it had old ones, but none
//! behind the end that it had.
//!
//! Called by `kit::machine` at the end of a call ([`Machine::commit`]), by `ops.rs` and `mkfs.rs`. Recovery orders its own
//! writes (`recover.rs`).
//!
//! * **EVERGREEN-C1** a master block is written only after all that it leads to is durable.
//! * **EVERGREEN-C2** no block that the last commit has is written before the next one is durable, but those that its redo
//!   list names, and these only after the commit that names them is durable; and contents that lie before the end that
//!   their file has in the last commit. With `redo=none` any may be, and the superblock says so.
//! * **EVERGREEN-C3** the copies of a redo list stay until the next commit is durable.
//! * **EVERGREEN-C4** two commits in a row do not write the same reserved block.

use crate::format::*;
use crate::planted::{Flaw, planted};
use crate::policy::How;
use crate::volume::{Core, Dirty};
use arbor_base::cache::{Cache, Name, cluster};
use arbor_base::device::{Buf, Kind, Request};
use arbor_base::layout::{crc, put};
use arbor_base::vfs::{Error, Ino, Result};
use arbor_kit::machine::{Machine, Machinery};
use std::collections::BTreeSet;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Largest request.
const MAX_WRITE: u64 = 1 << 20;

/// A dirty block: where it goes, and its bytes.
type Image = (Name, Dirty, Arc<Vec<u8>>);

impl Machine for Core {
    fn calls(&mut self) -> &mut Machinery {
        &mut self.calls
    }

    fn cache(&mut self) -> &mut Cache {
        &mut self.cache
    }

    /// In synchronous mode, or when resources are consumed (paper, IV).
    fn commit(&mut self) -> Result<()> {
        if !self.calls.health.is_writable() {
            return Ok(());
        }
        if self.opts.sync && self.calls.has_changed() || self.is_pressed() {
            return self.write_commit().inspect_err(|e| self.give_up(e));
        }
        Ok(())
    }
}

impl Core {
    /// Whether internal resources are consumed.
    fn is_pressed(&self) -> bool {
        self.cache.dirty_load() > self.cache.dirty_limit() || self.is_short() || !self.has_room()
    }

    /// Whether a call made of steps may take another one before it is committed. The first one after a commit always may.
    pub fn has_room(&self) -> bool {
        if self.undoes {
            return true;
        }
        let few = self.cache.dirty_load() < self.cache.dirty_limit() * 2;
        self.changes.parts.is_empty() || few && self.usable() > 2 * crate::alloc::CASCADE
    }

    /// Commits all changes, durably.
    pub fn write_commit(&mut self) -> Result<()> {
        // What a failed call has left is never made durable.
        self.calls.health.check_ordered()?;
        if !self.changes.master && self.changes.parts.is_empty() {
            return Ok(());
        }
        let images = self.images();
        let again: BTreeSet<u32> = images.iter().map(|(_, dirty, _)| dirty.block).collect();
        let is_logged = |(_, dirty, _): &Image| dirty.how == How::Logged;
        let (logged, now): (Vec<Image>, Vec<Image>) = images.into_iter().partition(is_logged);
        let moved = now.iter().filter(|(_, dirty, _)| dirty.how == How::Moved).count();
        self.counts.commits += 1;
        self.counts.relocated += moved as u64;
        self.counts.overwritten += (logged.len() + now.len() - moved) as u64;
        self.counts.logged += logged.len() as u64;
        let laid = self.laid.iter().filter(|(block, _)| !again.contains(block));
        let laid: Vec<_> = laid.map(|(block, (kind, bytes))| (*block, *kind, bytes.clone())).collect();
        if !planted(Flaw::LaidForgotten) {
            self.write_blocks(laid.into_iter())?;
        }
        self.write_blocks(now.iter().map(|(_, dirty, bytes)| (dirty.block, dirty.kind, bytes.clone())))?;
        let copies = self.write_redo(&logged)?;
        if !planted(Flaw::MasterUnflushed) {
            self.flush()?;
        }
        self.write_master()?;
        self.flush()?;
        self.is_twin = false;
        self.laid = logged.iter().map(|(_, dirty, bytes)| (dirty.block, (dirty.kind, bytes.clone()))).collect();
        logged.iter().chain(&now).for_each(|(name, ..)| self.cache.set_clean(*name));
        self.changes = Default::default();
        self.settle(copies)
    }

    /// Writes what the last commit has overwritten in place, durably.
    pub fn write_laid(&mut self) -> Result<()> {
        if self.laid.is_empty() {
            return Ok(());
        }
        let laid: Vec<_> = self.laid.iter().map(|(block, (kind, bytes))| (*block, *kind, bytes.clone())).collect();
        self.write_blocks(laid.into_iter())?;
        self.flush()?;
        self.laid.clear();
        Ok(())
    }

    /// Commits all changes in place: of what is left no commit has a redo list.
    pub fn write_whole(&mut self) -> Result<()> {
        self.write_commit()?;
        self.write_laid()?;
        if self.master.head.redo.get() != 0 {
            self.commit_again()?;
        }
        Ok(())
    }

    /// Commits all changes in place and twice, so that damage of the last master block costs nothing.
    pub fn write_at_rest(&mut self) -> Result<()> {
        self.write_whole()?;
        if !self.is_twin {
            self.commit_again()?;
        }
        Ok(())
    }

    /// Commits what the last commit has, without a redo list.
    fn commit_again(&mut self) -> Result<()> {
        self.touch_master();
        self.makes_twin = true;
        let done = self.write_commit();
        self.makes_twin = false;
        done?;
        self.is_twin = true;
        Ok(())
    }

    /// All dirty blocks as they are written, in the order of their addresses.
    fn images(&mut self) -> Vec<Image> {
        let mut all: Vec<(Name, Dirty)> = self.changes.parts.iter().map(|(name, dirty)| (*name, *dirty)).collect();
        all.sort_by_key(|(_, dirty)| dirty.block);
        all.into_iter().filter_map(|(name, dirty)| Some((name, dirty, self.image(name, dirty)?))).collect()
    }

    fn image(&mut self, name: Name, dirty: Dirty) -> Option<Arc<Vec<u8>>> {
        if matches!(dirty.kind, Kind::Bitmap | Kind::Tree | Kind::Xattr) {
            let to = self.cache.dirtied(name)?;
            self.cache.modify(to, |bytes| {
                put(bytes, std::mem::offset_of!(Head, block), &dirty.block.to_le_bytes());
                seal(bytes);
            });
        }
        self.cache.peek(name).cloned()
    }

    fn write_blocks(&mut self, blocks: impl Iterator<Item = (u32, Kind, Arc<Vec<u8>>)>) -> Result<()> {
        let pieces = blocks.map(|(block, kind, bytes)| (byte(block), kind, Buf::new(bytes))).collect();
        self.write(cluster(pieces, MAX_WRITE))
    }

    /// Writes the redo list of what is overwritten, and the copies; notes it in the check-point. Returns its blocks.
    fn write_redo(&mut self, logged: &[Image]) -> Result<Vec<u32>> {
        let (mut taken, mut writes, mut next) = (Vec::new(), Vec::new(), 0u32);
        let count = if planted(Flaw::NoRedo) { 0 } else { logged.len() };
        for some in logged.get(..count).unwrap_or(&[]).chunks(REDOS) {
            let mut list = self.headed(REDO_MAGIC, Ino(self.master.head.seq.get() + 1), next.into(), some.len() as u32);
            for (n, (_, dirty, bytes)) in some.iter().enumerate() {
                let copy = self.copy_block()?;
                taken.push(copy);
                let redo = Redo { block: dirty.block.into(), copy: copy.into(), crc: crc(bytes).into() };
                put(&mut list, HEAD + n * size_of::<Redo>(), redo.as_bytes());
                writes.push((copy, Kind::Log, bytes.clone()));
            }
            next = self.copy_block()?;
            taken.push(next);
            put(&mut list, std::mem::offset_of!(Head, block), &next.to_le_bytes());
            seal(&mut list);
            writes.push((next, Kind::Log, Arc::new(list)));
        }
        (self.master.head.redo, self.master.head.redo_count) = (next.into(), (count as u32).into());
        writes.sort_by_key(|(block, ..)| *block);
        self.write_blocks(writes.into_iter())?;
        Ok(taken)
    }

    /// Writes the master block to the reserved block nearest to the one written last (paper, III).
    fn write_master(&mut self) -> Result<()> {
        // EVERGREEN-C4.
        let taken = if planted(Flaw::SameReserved) { Vec::new() } else { self.history.masters() };
        let block = self.geom.master_near(self.master.head.last.get(), &taken);
        let seq = self.master.head.seq.get() + 1;
        let (intact, kept) = (self.intact_at(seq), self.kept() + self.space.pending.len() as u64);
        let head = &mut self.master.head;
        (head.magic, head.fsid) = (MASTER_MAGIC.into(), self.geom.fsid.into());
        (head.blocks, head.stride) = (self.geom.blocks.into(), self.geom.stride.into());
        (head.seq, head.block, head.time) = (seq.into(), block.into(), self.calls.now().into());
        (head.intact, head.kept) = (intact.into(), (if intact < seq { kept as u32 } else { 0 }).into());
        self.master.tail.seq = seq.into();
        let d = self.master.inode_mut(IFILE).map(|d| &mut d.map);
        d.into_iter().for_each(|map| map.iter_mut().take(1).for_each(|p| *p = block.into()));
        self.seal_specials();
        let mut bytes = self.master.as_bytes().to_vec();
        seal(&mut bytes);
        self.write(vec![Request::write(Kind::Super, byte(block), vec![bytes.into()])])?;
        self.master_at = block;
        self.space.units.note(block);
        self.history.wrote(seq, block);
        Ok(())
    }

    /// Makes the checksums of the inodes that are only in the master block.
    fn seal_specials(&mut self) {
        let fsid = self.geom.fsid;
        for ino in [IFILE, DBITMAP, IBITMAP] {
            self.master.inode_mut(ino).into_iter().for_each(|d| d.crc = d.checksum(fsid).into());
        }
    }

    /// Writes the superblock, durably.
    pub fn write_super(&mut self) -> Result<()> {
        let bytes = arbor_kit::head::encode(&self.sb);
        self.write(vec![Request::write(Kind::Super, 0, vec![bytes.into()])])?;
        self.flush()
    }

    /// Writes the copy of the superblock, durably.
    pub fn write_super_copy(&mut self) -> Result<()> {
        let bytes = arbor_kit::head::encode(&self.sb.copy());
        self.write(vec![Request::write(Kind::Super, byte(self.geom.copy()), vec![bytes.into()])])?;
        self.flush()
    }

    pub fn write(&mut self, batch: Vec<Request>) -> Result<()> {
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
