//! Directories: files of chunks (`kit::chunkdir`), whose pages are buffers.
//!
//! A directory grows by fragments, later by blocks, of empty chunks, and does not shrink before it is removed. Called
//! by `ops.rs`, and by `kit::chunkdir` through [`ChunkDirs`].

use crate::buffers::{BlockKind, Slot};
use crate::dependencies::LinkRelease;
use crate::format::*;
use crate::inode::{Inode, LINK_MAX};
use crate::planted::{Flaw, planted};
use crate::validate;
use crate::volume::Core;
use arbor_base::cache::{FileBlock, Name};
use arbor_base::field;
use arbor_base::layout::Location;
use arbor_base::vfs::{Errno, Ino, Result, Time};
use arbor_kit::chunkdir::{ChunkDirs, Hashes, Room};
use arbor_kit::dirent::DOTDOT_AT;
use arbor_kit::namespace::Node;
use std::sync::Arc;

impl ChunkDirs for Core {
    const ROOT: Ino = ROOT;

    fn facts(&self, i: &Inode) -> Node {
        let is_full = i.d.nlink.get() >= LINK_MAX;
        Node { ino: i.ino, mode: i.d.mode.get().into(), gid: i.d.gid.get(), links: self.links(i), is_full }
    }

    fn dir_page(&mut self, dir: &Inode, lbn: u64) -> Result<Arc<Vec<u8>>> {
        let name = Name::data(dir.ino, lbn);
        if let Some(bytes) = self.cache.get(name) {
            return Ok(bytes.clone());
        }
        let frags = self.geom.lbn_frags(dir.size(), lbn);
        let frag = self.bmap(dir, lbn)?;
        let hole = || dir.corrupt(&self.geom, field!(Dinode, db), lbn, "no hole in a directory");
        let frag = frag.ok_or_else(hole)?;
        let bytes = Arc::new(self.read(frag, self.geom.bytes_of(frags), BlockKind::Dir)?);
        validate::dir_block(self.geom.byte(frag), &bytes, lbn == 0)?;
        self.cache.insert(name, bytes.clone());
        Ok(bytes)
    }

    fn inode_location(&self, dir: &Inode) -> Location {
        dir.byte(&self.geom).into()
    }

    fn dir_modify(&mut self, dir: &Inode, index: u64, f: &mut dyn FnMut(&mut Vec<u8>)) -> Result<()> {
        let page = Name::data(dir.ino, index);
        let frag = self.bmap(dir, index)?.ok_or(Errno::EIO)?;
        self.change(page, (frag, BlockKind::Dir, dir.ino.0), f)
    }

    fn dir_step(&self, lbn: u64) -> usize {
        if lbn < NDADDR as u64 { self.geom.frag_size() } else { self.geom.block_size() }
    }

    fn dir_new_page(&mut self, dir: &Inode, lbn: u64) -> Result<()> {
        let name = Name::data(dir.ino, lbn);
        self.drop_buffer(name)?;
        self.cache.insert(name, Arc::new(Vec::new()));
        Ok(())
    }

    fn hashes(&mut self) -> &mut Hashes {
        &mut self.hashes
    }

    fn is_kept(&self, dir: &Inode, at: u64) -> bool {
        let (page, within) = self.dir_place(dir, at);
        self.deps.is_held(page, within)
    }
}

impl Core {
    /// Name of the page that holds byte `at` of a directory, and the offset in the page. Dependencies name an entry by
    /// these, and a walk's cookie by `at`: an entry does not move (FFS-D1).
    fn dir_place(&self, dir: &Inode, at: u64) -> (Name, usize) {
        let lbn = self.geom.lbn(at);
        (Name::data(dir.ino, lbn), (at - (lbn << self.geom.block_shift)) as usize)
    }

    /// Finds room for an entry; grows the directory if there is none.
    pub fn dir_room(&mut self, dir: &mut Inode, name: &[u8]) -> Result<Room> {
        self.build_hash(dir)?;
        if self.deps.is_held_elsewhere(dir.ino, name) {
            // The old entry must be gone from the disk before the new one comes, wherever that is.
            self.flush_file(dir.ino)?;
            *dir = self.iget_dir(dir.ino)?;
        }
        if let Some((Name::File(_, FileBlock::Data(index)), within)) = self.deps.held_name(dir.ino, name) {
            let host = (index << self.geom.block_shift) + within as u64;
            let reclen = self.dir_entry(dir, host, |e| e.reclen)?;
            return Ok(Room { host, keeps: 0, reclen });
        }
        self.room_or_grow(dir, name)
    }

    /// Called when a name was added to `dir`: it must not be on disk before `waits`.
    pub fn note_added(&mut self, dir: &Inode, at: u64, ino: Ino, waits: Vec<u64>) -> Result<u64> {
        let slot = self.dir_place(dir, at);
        self.ordering().entry_added(self, slot, ino, waits)
    }

    /// See [`MetadataOrdering::entry_alone`](crate::commit::ordering::MetadataOrdering::entry_alone), for the entry at
    /// byte `at` of `dir`.
    pub fn entry_first(&mut self, dir: &Inode, at: u64) -> Result<()> {
        let slot = self.dir_place(dir, at);
        self.ordering().entry_alone(self, slot)
    }

    /// Called when a name was removed from `dir`: the link counts fall only after the removal is on disk, which is not
    /// before `after` is.
    pub fn note_removed(
        &mut self,
        (dir, at): (&Inode, u64),
        old: ((Ino, u8), &[u8]),
        after: Option<u64>,
        release: LinkRelease,
    ) -> Result<()> {
        let slot = self.dir_place(dir, at);
        self.ordering().entry_removed(self, slot, old, after, release)
    }

    /// Called when the entry at byte `at` of `dir` names another inode; see [`Core::note_removed`].
    pub fn note_changed(
        &mut self,
        (dir, at): (&Inode, u64),
        names: ((Ino, u8), Ino),
        waits: Vec<u64>,
        release: LinkRelease,
    ) -> Result<u64> {
        let slot = self.dir_place(dir, at);
        self.ordering().entry_changed(self, slot, names, waits, release)
    }

    /// Makes entries durable, with the changes that wait for them, that are about to name another inode while the inode
    /// they name stays: else an older name of it could be removed from the disk before a new one is there.
    pub fn settle_names(&mut self, entries: &[(&Inode, u64)], named: &[Ino]) -> Result<()> {
        let waits = |e: &(&Inode, u64)| {
            let (page, at) = self.dir_place(e.0, e.1);
            self.deps.is_held(page, at)
        };
        if !self.ordering().keeps_removed_entries() || !entries.iter().any(waits) || planted(Flaw::NamesUnsettled) {
            return Ok(());
        }
        named.iter().try_for_each(|ino| self.flush_file(*ino))
    }

    /// Makes an inode durable under its other names before its name in `dir` is replaced, if an old name waits for that
    /// one.
    pub fn settle_replaced(&mut self, dir: &Inode, at: u64, ino: Ino) -> Result<()> {
        let slot = self.dir_place(dir, at);
        if self.is_awaited(slot, ino) && !planted(Flaw::ReplacedUnnamed) { self.flush_file(ino) } else { Ok(()) }
    }

    /// Called before a directory is removed, or replaced: makes sure that it has no other name on disk, and no entry
    /// that files outside wait for.
    pub fn settle_dir(&mut self, ino: Ino) -> Result<()> {
        let dir = self.iget_dir(ino)?;
        let pages = dir.size().div_ceil(self.geom.block_size() as u64);
        let entangled = self.deps.has_old_names(ino) || self.deps.has_waiting_entries(ino, pages);
        if entangled && !planted(Flaw::DirectoryTakes) { self.sync_dir_names(ino) } else { Ok(()) }
    }

    /// Called before a directory moves into `to`: makes sure that it has one name on disk, and that `to` can be reached
    /// from the root there. Else two directories could lie in each other on disk.
    pub fn settle_move(&mut self, ino: Ino, to: Ino) -> Result<()> {
        if !self.ordering().keeps_removed_entries() || planted(Flaw::WaysUnsettled) {
            return Ok(());
        }
        if self.deps.has_old_names(ino) {
            self.sync_dir_names(ino)?;
        }
        let mut at = to;
        while at != ROOT {
            if self.deps.is_held(Name::data(at, 0), DOTDOT_AT) {
                self.flush_file(at)?;
            }
            let dir = self.iget_dir(at)?;
            at = self.parent_of(&dir)?;
        }
        Ok(())
    }

    /// Lets the slot of a removed entry be reused.
    pub fn slot_vacated(&mut self, (page, within): Slot) {
        if let Name::File(ino, FileBlock::Data(index)) = page {
            self.hashes.vacate(ino, (index << self.geom.block_shift) + within as u64);
        }
    }

    /// Whether the bytes of an entry are kept when it is removed; `after`: the dependency that the removal waits for.
    pub fn is_left(&self, dir: &Inode, at: u64, after: Option<u64>) -> bool {
        self.is_kept_removed(self.dir_place(dir, at), after)
    }

    /// See [`Core::newer_name`], for the entry at byte `at` of `dir`.
    pub fn name_before(&self, dir: &Inode, at: u64, file: Option<Ino>) -> Option<u64> {
        self.newer_name(self.dir_place(dir, at), file)
    }

    /// Sets mtime and ctime of a directory to `now`.
    pub fn touch_dir(&mut self, dir: &mut Inode, now: Time) {
        (dir.d.mtime, dir.d.ctime) = (now.into(), now.into());
    }
}
