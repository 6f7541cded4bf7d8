//! The ifile: segment usage, descriptors and bitmaps of the groups, the inode map; allocation of inodes.
//!
//! Usage and descriptors are in core as far as they are not zero; their blocks are made when a checkpoint is written.
//! Bitmaps and the inode map are read and changed in the ifile's buffers, which stay in core until a checkpoint. What
//! changes between two checkpoints is in the summaries of the log, too.

use crate::decoded::Inode;
use crate::format::*;
use crate::volume::{Core, State};
use arbor_base::cache::{FileBlock, Name};
use arbor_base::field;
use arbor_base::layout::{Corrupt, Location, put};
use arbor_base::vfs::{Errno, Error, Ino, Result, Time, mode};
use arbor_kit::blockmap::{BlockMap as _, Mapped as _};
use arbor_kit::inodes::InodeStore as _;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// What a part of the ifile that cannot be read holds goes to it.
pub(crate) type Lost<'a> = &'a mut dyn FnMut(Corrupt) -> Result<()>;

impl Core {
    /// Where a field of an inode's entry lies.
    pub fn map_location(&self, ino: Ino, offset: u64) -> Location {
        Location::file(IFILE, MAP_AT.saturating_add(ino.0.saturating_mul(MAP_ENTRY as u64))).plus(offset)
    }

    /// Block of the ifile, and byte in it.
    fn in_ifile(&self, at: u64) -> (u64, usize) {
        (at >> self.geom.block_shift, (at % self.geom.block() as u64) as usize)
    }

    /// Makes an empty ifile in core.
    pub fn new_ifile(&mut self, now: Time) {
        let [ctime, btime] = [Stamp::from(now); 2];
        let (ino, mode) = ((IFILE.0 as u32).into(), (mode::IFREG | 0o600).into());
        let ifile = Dinode { ino, mode, ctime, btime, version: 1.into(), nlink: 1.into(), ..Dinode::default() };
        let ifile = Dinode { fsid: self.geom.fsid.into(), ..ifile };
        self.cache.insert(Name::Inode(IFILE), Arc::new(ifile.as_bytes().to_vec()));
    }

    /// A block of the ifile, as zeros if it is a hole.
    pub fn ifile_page(&mut self, lbn: u64) -> Result<Arc<Vec<u8>>> {
        let i = self.inode(IFILE)?;
        match self.part(&i, FileBlock::Data(lbn))? {
            Some(page) => Ok(page),
            None => {
                let zeros = Arc::new(vec![0; self.geom.block()]);
                self.cache.insert(Name::data(IFILE, lbn), zeros.clone());
                Ok(zeros)
            }
        }
    }

    /// Changes a block of the ifile.
    pub fn ifile_change<R>(&mut self, lbn: u64, f: impl FnOnce(&mut Vec<u8>) -> R) -> Result<R> {
        self.ifile_page(lbn)?;
        let mut i = self.inode(IFILE)?;
        self.mark(IFILE)?;
        self.ensure(&mut i, lbn)?;
        i.d.size = i.size().max((lbn + 1) << self.geom.block_shift).into();
        self.iput(&i)?;
        self.change(&i, FileBlock::Data(lbn), f)
    }

    /// An entry of the inode map. Beyond its end, one of a free inode.
    pub fn map_entry(&mut self, ino: Ino) -> Result<MapEntry> {
        if ino.0 >= u64::from(self.state.inodes) {
            return Ok(MapEntry::default());
        }
        let (lbn, at) = self.in_ifile(MAP_AT + ino.0 * MAP_ENTRY as u64);
        let page = self.ifile_page(lbn)?;
        let entry = page.get(at..at + MAP_ENTRY).and_then(|bytes| MapEntry::read_from_bytes(bytes).ok());
        Ok(entry.ok_or(Errno::EIO)?)
    }

    /// Calls `f` with the entries of the inode map from the root's on, but for those in holes and in blocks that cannot be
    /// read. A damaged volume may claim more inodes than anything holds.
    pub fn each_map_entry(&mut self, f: &mut dyn FnMut(Ino, MapEntry)) -> Result<()> {
        let (i, count) = (self.inode(IFILE)?, self.state.inodes.into());
        self.each_entry(&i, MAP_AT, count, MAP_ENTRY, &mut |_| Ok(()), &mut |_, n, bytes| {
            let entry = MapEntry::read_from_bytes(bytes).ok().filter(|_| u64::from(n) >= ROOT.0);
            entry.into_iter().for_each(|entry| f(Ino(n.into()), entry));
        })
    }

    /// The first number from `ino` on whose entry of the inode map is in no hole.
    pub fn next_number(&mut self, ino: u64) -> Result<Option<u64>> {
        let (i, count) = (self.inode(IFILE)?, u64::from(self.state.inodes));
        let first = self.in_ifile(MAP_AT + ino * MAP_ENTRY as u64).0;
        let end = self.geom.blocks_for(MAP_AT + count * MAP_ENTRY as u64);
        let found = if first < end { self.next_block(&i, first, end, false)? } else { None };
        let number = |lbn: u64| ino.max(((lbn << self.geom.block_shift) - MAP_AT) / MAP_ENTRY as u64);
        Ok(found.map(number).filter(|n| *n < count))
    }

    /// Changes an entry of the inode map.
    pub fn set_map_entry(&mut self, ino: Ino, entry: MapEntry) -> Result<()> {
        let (lbn, at) = self.in_ifile(MAP_AT + ino.0 * MAP_ENTRY as u64);
        self.ifile_change(lbn, |buf| put(buf, at, entry.as_bytes()))?;
        self.changes.entries.insert(ino.0);
        Ok(())
    }

    /// Brings in what is changed with an entry of the inode map, before anything is.
    pub fn ready_entry(&mut self, ino: Ino) -> Result<()> {
        let (lbn, i) = (self.in_ifile(MAP_AT + ino.0 * MAP_ENTRY as u64).0, self.inode(IFILE)?);
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
        self.need_meta(1)?;
        let free = self.state.free_ino;
        if free == 0 && self.state.inodes >= NO_PLACE - 1 {
            return Err(Errno::ENOSPC.into());
        }
        let ino = Ino(if free == 0 { self.state.inodes } else { free }.into());
        // What may fail comes before the count: a number that is counted is in the map.
        self.ifile_page(self.in_ifile(MAP_AT + ino.0 * MAP_ENTRY as u64).0)?;
        let old = if free == 0 { MapEntry::default() } else { self.map_entry(ino)? };
        let wrong = |(field, offset): (_, u64), found: u32, expected: &str| {
            let at = self.map_location(ino, offset);
            Err(Corrupt::new("inode map", field, at, found, expected).into())
        };
        let next = old.next_free.get();
        if next != 0 && (next >= self.state.inodes || u64::from(next) <= ROOT.0) {
            return wrong(field!(MapEntry, next_free), next, "an inode of the map");
        }
        if old.block.get() != 0 {
            return wrong(field!(MapEntry, block), old.block.get(), "a free inode on the free list");
        }
        let version = old.version.get().wrapping_add(1);
        self.state.inodes += u32::from(free == 0);
        self.set_map_entry(ino, MapEntry { block: NO_PLACE.into(), version: version.into(), ..MapEntry::default() })?;
        self.state.free_ino = next;
        self.state.used_inodes += 1;
        Ok((ino, version))
    }

    /// Frees an inode.
    pub fn forget_inode(&mut self, ino: Ino) -> Result<()> {
        let old = self.map_entry(ino)?;
        if !matches!(old.block.get(), 0 | NO_PLACE) {
            self.mark_dead(MetaBlock(old.block.get()), INODE as u32);
        }
        // The number of the root directory, which only the checker frees, is on no list.
        let listed = ino != ROOT;
        let next_free = if listed { self.state.free_ino } else { 0 };
        self.set_map_entry(ino, MapEntry { block: 0.into(), next_free: next_free.into(), ..old })?;
        self.state.free_ino = if listed { ino.0 as u32 } else { self.state.free_ino };
        self.state.used_inodes = self.state.used_inodes.saturating_sub(1);
        self.cache.remove(Name::Inode(ino));
        self.changes.remove(ino);
        self.read.remove(&ino);
        Ok(())
    }

    /// Takes the state of the checkpoint, and reads usage and descriptors as far as there are any.
    pub fn load(&mut self, lost: Lost<'_>) -> Result<()> {
        let cp = self.checkpoint;
        self.state = State::from(cp.totals);
        self.log = crate::plan::LogEnd::of(&cp);
        let d = self.read_ifile_inode()?;
        let least = MAP_AT + u64::from(self.state.inodes) * MAP_ENTRY as u64;
        if d.size.get() < least {
            let at = Location::inode(IFILE);
            return Err(Corrupt::new("ifile", "size", at, d.size.get(), format!("{least} or more")).into());
        }
        self.cache.insert(Name::Inode(IFILE), Arc::new(d.as_bytes().to_vec()));
        let i = Inode { ino: IFILE, d };
        let segs = u64::from(self.geom.segs);
        self.each_entry(&i, 0, segs, USAGE, lost, &mut |core, n, bytes| {
            if let Ok(u) = Usage::read_from_bytes(bytes)
                && u.flags.get() & DIRTY != 0
            {
                core.segs.set(n, u.into());
            }
        })?;
        let groups = u64::from(self.geom.groups());
        self.each_entry(&i, GROUPS_AT, groups, GROUP_DESC, lost, &mut |core, n, bytes| {
            if let Ok(desc) = GroupDesc::read_from_bytes(bytes)
                && desc != GroupDesc::default()
            {
                core.groups.set(&core.geom, Group(n), desc);
            }
        })?;
        self.segs.changed.clear();
        self.groups.changed.clear();
        self.groups.unsaved.clear();
        self.log.busy().into_iter().for_each(|seg| {
            self.segs.clean.remove(seg);
        });
        Ok(())
    }

    /// Calls `f` with the entries of a table of the ifile, but for those in holes.
    fn each_entry(
        &mut self,
        i: &Inode,
        table: u64,
        count: u64,
        len: usize,
        lost: Lost<'_>,
        f: &mut dyn FnMut(&mut Core, u32, &[u8]),
    ) -> Result<()> {
        let first = table >> self.geom.block_shift;
        let end = first + self.geom.blocks_for(count * len as u64);
        let (per, mut next) = ((self.geom.block() / len) as u64, first);
        while next < end {
            let lbn = match self.next_block(i, next, end, false) {
                Ok(None) => break,
                Ok(Some(lbn)) => lbn,
                Err(Error::Corrupt(c)) => {
                    lost(*c)?;
                    next = self.after_missing(i, next)?.max(next + 1);
                    continue;
                }
                Err(e) => return Err(e),
            };
            next = lbn + 1;
            let page = match self.ifile_page(lbn) {
                Err(Error::Corrupt(c)) => {
                    lost(*c)?;
                    continue;
                }
                page => page?,
            };
            let numbers = (lbn - first) * per..count;
            numbers.zip(page.chunks_exact(len)).for_each(|(n, bytes)| f(self, n as u32, bytes));
        }
        Ok(())
    }

    /// Stores what has changed of usage and descriptors in the blocks of their tables.
    pub fn store_tables(&mut self) -> Result<()> {
        for seg in std::mem::take(&mut self.segs.changed) {
            let usage = Usage::from(self.segs.get(seg));
            let (lbn, at) = self.in_ifile(u64::from(seg) * USAGE as u64);
            self.ifile_change(lbn, |buf| put(buf, at, usage.as_bytes()))?;
        }
        for group in std::mem::take(&mut self.groups.unsaved) {
            let (lbn, at) = self.in_ifile(GROUPS_AT + u64::from(group) * GROUP_DESC as u64);
            let desc = self.groups.get(Group(group));
            self.ifile_change(lbn, |buf| put(buf, at, desc.as_bytes()))?;
        }
        Ok(())
    }

    /// Makes the block dirty that holds a segment's usage; returns whether it was clean.
    pub fn touch_usage(&mut self, seg: u32) -> Result<bool> {
        let (lbn, _) = self.in_ifile(u64::from(seg) * USAGE as u64);
        let was_clean = !self.cache.is_dirty(Name::data(IFILE, lbn));
        if was_clean {
            self.ifile_change(lbn, |_| ())?;
        }
        Ok(was_clean)
    }
}
