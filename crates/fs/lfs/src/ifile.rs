//! The ifile: the segment usage table and the inode map; allocation of inodes.
//!
//! Of the usage table only pages with entries that are not zero are in core ([`Segments`](arbor_kit::segments::Segments));
//! its blocks are made when a checkpoint is written. The inode map is read and changed in the ifile's buffers, which
//! stay in core until a checkpoint. Changes of both between two checkpoints are in the summaries of the log, too.

use crate::format::*;
use crate::inode::Inode;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::device::Kind;
use arbor_base::field;
use arbor_base::layout::{Corrupt, Location, put};
use arbor_base::vfs::{Errno, Error, Ino, Result};
use arbor_kit::blockmap::{BlockMap as _, Mapped as _};
use arbor_kit::inodes::InodeStore as _;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

impl Core {
    /// Where a field of an inode's entry lies.
    pub fn map_location(&self, ino: Ino, offset: u64) -> Location {
        Location::file(IFILE, MAP_AT.saturating_add(ino.0.saturating_mul(MAP_ENTRY as u64))).plus(offset)
    }

    /// Block of the ifile where an inode's entry lies, and byte in it.
    fn map_at(&self, ino: Ino) -> (u64, usize) {
        let at = MAP_AT + ino.0 * MAP_ENTRY as u64;
        (self.geom.lbn(at), (at % self.geom.block_size() as u64) as usize)
    }

    /// The block of the ifile, as zeros if there is none yet.
    pub fn ifile_page(&mut self, lbn: u64) -> Result<Arc<Vec<u8>>> {
        let name = Name::File(IFILE, FileBlock::Data(lbn));
        if let Some(bytes) = self.cache.get(name) {
            return Ok(bytes.clone());
        }
        let i = self.inode(IFILE)?;
        let bytes = match self.pointer(&i, FileBlock::Data(lbn))? {
            p if p.frag.get() == 0 => vec![0; self.geom.block_size()],
            p => self.read_block((&i, FileBlock::Data(lbn)), p, self.geom.block_frags(), Kind::Log)?,
        };
        let bytes = Arc::new(bytes);
        self.cache.insert(name, bytes.clone());
        Ok(bytes)
    }

    /// Changes a block of the ifile.
    pub fn ifile_modify(&mut self, lbn: u64, at: usize, bytes: &[u8]) -> Result<()> {
        self.ifile_page(lbn)?;
        let mut i = self.inode(IFILE)?;
        self.mark(IFILE)?;
        self.ensure(&mut i, lbn)?;
        let end = (lbn + 1) << self.geom.block_shift;
        if i.size() < end {
            i.d.size = end.into();
        }
        self.iput(&i)?;
        self.change(&i, FileBlock::Data(lbn), |buf| put(buf, at, bytes))
    }

    /// An entry of the inode map. Beyond its end, one of a free inode.
    pub fn map_entry(&mut self, ino: Ino) -> Result<MapEntry> {
        if ino.0 >= u64::from(self.state.inodes) {
            return Ok(MapEntry::default());
        }
        let (lbn, at) = self.map_at(ino);
        let page = self.ifile_page(lbn)?;
        let entry = page.get(at..at + MAP_ENTRY).and_then(|b| MapEntry::read_from_bytes(b).ok());
        Ok(entry.ok_or(Errno::EIO)?)
    }

    /// Changes an entry of the inode map.
    pub fn set_map_entry(&mut self, ino: Ino, entry: MapEntry) -> Result<()> {
        let (lbn, at) = self.map_at(ino);
        self.ifile_modify(lbn, at, entry.as_bytes())?;
        self.remapped.insert(ino.0);
        Ok(())
    }

    /// Brings in what is changed with an entry of the inode map, before anything is.
    pub fn ready_entry(&mut self, ino: Ino) -> Result<()> {
        let (lbn, i) = (self.map_at(ino).0, self.inode(IFILE)?);
        self.pointer(&i, FileBlock::Data(lbn))?;
        self.ifile_page(lbn).map(drop)
    }

    /// The same for the next new inode. A list of free ones that cannot be read waits for the checker.
    pub fn ready_number(&mut self) -> Result<()> {
        if self.state.free_ino != 0 {
            let ready = self.ready_entry(Ino(self.state.free_ino.into()));
            if self.calls.health.passes(ready)? {
                return Ok(());
            }
            self.state.free_ino = 0;
        }
        self.ready_entry(Ino(self.state.inodes.into()))
    }

    /// Allocates an inode; returns it with its new version.
    pub fn ialloc(&mut self) -> Result<(Ino, u32)> {
        self.need(1)?;
        let free = self.state.free_ino;
        let (ino, next) = match free {
            0 if self.state.inodes == u32::MAX => return Err(Errno::ENOSPC.into()),
            0 => (Ino(self.state.inodes.into()), 0),
            ino => (Ino(ino.into()), self.map_entry(Ino(ino.into()))?.next_free.get()),
        };
        if next >= self.state.inodes || next != 0 && u64::from(next) <= ROOT.0 {
            let (field, offset) = field!(MapEntry, next_free);
            let at = self.map_location(ino, offset);
            return Err(Corrupt::new("inode map", field, at, next, "an inode of the map").into());
        }
        // What may fail comes before the count: a number that is counted is in the map.
        self.ifile_page(self.map_at(ino).0)?;
        self.state.inodes += u32::from(free == 0);
        let old = self.map_entry(ino)?;
        if old.frag.get() != 0 {
            let (at, found) = (self.map_location(ino, field!(MapEntry, frag).1), old.frag);
            return Err(Corrupt::new("inode map", "frag", at, found, "a free inode on the free list").into());
        }
        let version = old.version.get().wrapping_add(1);
        let entry = MapEntry { frag: UNWRITTEN.into(), version: version.into(), ..MapEntry::default() };
        self.set_map_entry(ino, entry)?;
        self.state.free_ino = next;
        self.state.used_inodes += 1;
        Ok((ino, version))
    }

    /// Frees an inode.
    pub fn forget_inode(&mut self, ino: Ino) -> Result<()> {
        let old = self.map_entry(ino)?;
        if !matches!(old.frag.get(), 0 | UNWRITTEN) {
            self.mark_run_dead(Frag(old.frag.get()), INODE as u32);
        }
        let entry = MapEntry { frag: 0.into(), next_free: self.state.free_ino.into(), ..old };
        self.set_map_entry(ino, entry)?;
        self.state.free_ino = ino.0 as u32;
        self.state.used_inodes = self.state.used_inodes.saturating_sub(1);
        self.cache.remove(Name::Inode(ino));
        if let Some(c) = self.changed.remove(&ino.0) {
            self.order.remove(&c.turn);
        }
        Ok(())
    }

    /// Reads the checkpoint's ifile: the usage table as far as there is one. What cannot be read goes to `lost`: a
    /// block of it, or an indirect block with all that lies below.
    pub fn load(&mut self, lost: &mut dyn FnMut(Corrupt) -> Result<()>) -> Result<()> {
        let cp = self.checkpoint;
        self.state = crate::volume::Totals {
            inodes: cp.inodes.get(),
            free_ino: cp.free_ino.get(),
            used_inodes: cp.used_inodes.get(),
            file_frags: cp.file_frags.get(),
            orphan: cp.orphan.get(),
        };
        self.log = crate::heads::LogHeads::new(&cp);
        let d = self.read_ifile_inode()?;
        let least = MAP_AT + u64::from(cp.inodes.get()) * MAP_ENTRY as u64;
        if d.size.get() < least {
            let at = Location::inode(IFILE);
            return Err(Corrupt::new("ifile", "size", at, d.size.get(), format!("{least} or more")).into());
        }
        self.cache.insert(Name::Inode(IFILE), Arc::new(d.as_bytes().to_vec()));
        let per = (self.geom.block_size() / USAGE) as u32;
        let i = Inode { ino: IFILE, d };
        let blocks = i.size().div_ceil(self.geom.block_size() as u64);
        let (mut next, mut skips_holes) = (0, true);
        loop {
            if skips_holes {
                match self.next_block(&i, next, blocks, false) {
                    Ok(found) => next = found.unwrap_or(u64::MAX),
                    // Up to what cannot be read each block is looked at.
                    Err(e) if e.is_damage() => skips_holes = false,
                    Err(e) => return Err(e),
                }
            }
            let Some(lbn) = u32::try_from(next).ok().filter(|lbn| *lbn < self.segs.count().div_ceil(per)) else {
                break;
            };
            next += 1;
            match self.pointer(&i, FileBlock::Data(lbn.into())) {
                Ok(p) if p.frag.get() == 0 => continue,
                Ok(_) => {}
                Err(Error::Corrupt(c)) => {
                    lost(*c)?;
                    (next, skips_holes) = (self.after_missing(&i, lbn.into())?, true);
                    continue;
                }
                Err(e) => return Err(e),
            }
            let page = match self.ifile_page(lbn.into()) {
                Err(Error::Corrupt(c)) => {
                    lost(*c)?;
                    continue;
                }
                page => page?,
            };
            for (n, bytes) in (lbn * per..self.segs.count()).zip(page.chunks_exact(USAGE)) {
                let Ok(u) = Usage::read_from_bytes(bytes) else { continue };
                if u.flags.get() & DIRTY != 0 {
                    self.segs.set(n, u.into());
                }
            }
        }
        self.segs.changed.clear();
        for seg in self.log.busy() {
            self.segs.clean.remove(seg);
        }
        Ok(())
    }

    /// Stores changed segment usage in the blocks of the usage table.
    pub fn store_usage(&mut self) -> Result<()> {
        let per = (self.geom.block_size() / USAGE) as u32;
        for seg in std::mem::take(&mut self.segs.changed) {
            let usage = Usage::from(self.segs.get(seg));
            self.ifile_modify((seg / per).into(), (seg % per) as usize * USAGE, usage.as_bytes())?;
        }
        Ok(())
    }
}
