//! Directories: finding, adding, removing and walking entries.
//!
//! A directory is a file whose pages are buffers of chunks (`dirent.rs`). It grows by fragments, later by
//! blocks, of empty chunks, and does not shrink before it is removed. Larger ones get a hash of their
//! names in core when they are first searched (Dowse and Malone 2002); without it a search is linear.

use crate::commit::Drop;
use crate::dirent::{DOTDOT_AT, Dirent, empty_chunks, entries, put_entry};
use crate::format::*;
use crate::inode::Inode;
use crate::mount::{Core, What};
use crate::planted::{Flaw, planted};
use crate::sound;
use arbor_base::cache::Name;
use arbor_base::layout::{Corrupt, crc};
use arbor_base::vfs::{Errno, FileType, Ino, Result, Time};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Directories of more bytes get a hash.
const HASH_FROM: u64 = 2560;
/// Memory that a name takes in a hash, about.
const NAME_BYTES: usize = 40;

/// An entry that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub ino: Ino,
    /// Byte of the directory where it begins.
    pub at: u64,
    pub kind: u8,
}

/// Where an entry can go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Byte of the directory where the entry begins whose space it takes.
    host: u64,
    /// Bytes of it that stay.
    keeps: usize,
    /// Length of the host.
    reclen: usize,
}

/// Called with chunks and where each begins; says whether to go on.
type Chunks<'a> = &'a mut dyn FnMut(&mut Core, u64, &[Dirent<'_>]) -> Result<bool>;
/// Called with entries and their names; says whether to go on.
pub(crate) type Walk<'a> = &'a mut dyn FnMut(&mut Core, Found, &[u8]) -> Result<bool>;

/// Names of one directory.
struct Hash {
    names: FxHashMap<u32, Vec<u64>>,
    count: usize,
    /// Free bytes of each chunk in its largest piece, by 4.
    room: Vec<u8>,
    /// For each amount of free space by 16 bytes, a chunk before which there is none.
    hints: [u32; 33],
    /// Number of its last use.
    used: u64,
}

/// The hashes of the directories searched last, within a limit of memory.
pub(crate) struct Hashes {
    all: FxHashMap<u64, Hash>,
    /// Directories by the time of their last use.
    order: BTreeMap<u64, u64>,
    uses: u64,
    names: usize,
    most: usize,
}

impl Hashes {
    pub fn new(bytes: usize) -> Hashes {
        Hashes { all: FxHashMap::default(), order: BTreeMap::new(), uses: 0, names: 0, most: bytes / NAME_BYTES }
    }

    /// Forgets the hash of a directory.
    pub fn remove(&mut self, dir: Ino) {
        if let Some(hash) = self.all.remove(&dir.0) {
            self.names -= hash.count;
            self.order.remove(&hash.used);
        }
    }

    /// The hash of a directory, used now.
    fn find(&mut self, dir: Ino) -> Option<&mut Hash> {
        let hash = self.all.get_mut(&dir.0)?;
        self.uses += 1;
        self.order.remove(&hash.used);
        self.order.insert(self.uses, dir.0);
        hash.used = self.uses;
        Some(hash)
    }

    /// Takes a new hash in, unless it alone is too large.
    fn insert(&mut self, dir: Ino, mut hash: Hash) {
        self.remove(dir);
        if hash.count > self.most {
            return;
        }
        self.uses += 1;
        hash.used = self.uses;
        self.names += hash.count;
        self.order.insert(hash.used, dir.0);
        self.all.insert(dir.0, hash);
        self.trim();
    }

    /// A name has come to a directory that has a hash.
    fn add(&mut self, dir: Ino, name: &[u8], at: u64) {
        let Some(hash) = self.find(dir) else { return };
        hash.names.entry(hash_of(name)).or_default().push(at);
        hash.count += 1;
        self.names += 1;
        self.trim();
    }

    /// Lets go what was not used for longest, until there is room.
    fn trim(&mut self) {
        while self.names > self.most
            && let Some((_, oldest)) = self.order.first_key_value()
        {
            self.remove(Ino(*oldest));
        }
    }
}

fn hash_of(name: &[u8]) -> u32 {
    crc(name)
}

/// Largest free piece of a chunk that nobody holds, in bytes.
fn room_of(all: &[Dirent<'_>], held: impl Fn(usize) -> bool) -> usize {
    all.iter().filter(|e| e.ino.0 != 0 || !held(e.at)).map(|e| e.reclen - e.used()).max().unwrap_or(0)
}

impl Core {
    /// Name of the page that holds byte `at` of a directory, and where in the page.
    fn dir_place(&self, dir: &Inode, at: u64) -> (Name, usize) {
        let lbn = self.geom.lbn(at);
        (Name::Page { file: dir.ino.0, index: lbn }, (at - (lbn << self.geom.block_shift)) as usize)
    }

    /// A page of a directory.
    pub fn dir_page(&mut self, dir: &Inode, lbn: u64) -> Result<Arc<Vec<u8>>> {
        let name = Name::Page { file: dir.ino.0, index: lbn };
        if let Some(bytes) = self.cache.get(name) {
            return Ok(bytes.clone());
        }
        let frags = self.geom.lbn_frags(dir.size(), lbn);
        let frag = self.bmap(dir, lbn)?.ok_or_else(|| dir.corrupt("db", lbn, "no hole in a directory"))?;
        let bytes = Arc::new(self.read(frag, self.geom.bytes_of(frags), What::Dir)?);
        sound::dir_block(self.geom.byte(frag), &bytes, lbn == 0)?;
        self.cache.insert(name, bytes.clone());
        Ok(bytes)
    }

    /// The chunk that holds byte `at` of a directory.
    fn chunk_at(&mut self, dir: &Inode, at: u64) -> Result<(Arc<Vec<u8>>, std::ops::Range<usize>)> {
        let (_, within) = self.dir_place(dir, at);
        let page = self.dir_page(dir, self.geom.lbn(at))?;
        let start = within / DIRBLKSIZ * DIRBLKSIZ;
        if start + DIRBLKSIZ > page.len() {
            return Err(dir.corrupt("size", dir.size(), "whole chunks").into());
        }
        Ok((page, start..start + DIRBLKSIZ))
    }

    /// Calls `f` for the chunks of a directory from byte `from`, with where each begins, until it says `false`.
    fn each_chunk(&mut self, dir: &Inode, from: u64, f: Chunks<'_>) -> Result<()> {
        let mut at = from / DIRBLKSIZ as u64 * DIRBLKSIZ as u64;
        while at < dir.size() {
            let (page, range) = self.chunk_at(dir, at)?;
            let all = entries(page.get(range).unwrap_or(&[]))
                .map_err(|why| Corrupt::new("directory", "entries", at, why, "a chunk filled with entries"))?;
            if !f(self, at, &all)? {
                return Ok(());
            }
            at += DIRBLKSIZ as u64;
        }
        Ok(())
    }

    /// Makes the hash of a directory that is worth one.
    fn build_hash(&mut self, dir: &Inode) -> Result<()> {
        if dir.size() <= HASH_FROM || self.hashes.all.contains_key(&dir.ino.0) {
            return Ok(());
        }
        // At 20 bytes a name at least.
        if dir.size() / 20 > self.hashes.most as u64 * 4 {
            return Ok(());
        }
        let mut hash = Hash { names: FxHashMap::default(), count: 0, room: Vec::new(), hints: [0; 33], used: 0 };
        let ino = dir.ino;
        self.each_chunk(dir, 0, &mut |core, at, all| {
            for e in all.iter().filter(|e| e.ino.0 != 0) {
                hash.names.entry(hash_of(e.name)).or_default().push(at + e.at as u64);
                hash.count += 1;
            }
            let page = core.geom.lbn(at);
            let base = (at - (page << core.geom.block_shift)) as usize;
            let name = Name::Page { file: ino.0, index: page };
            hash.room.push((room_of(all, |e| core.is_held(name, base + e)) / 4) as u8);
            Ok(true)
        })?;
        self.hashes.insert(dir.ino, hash);
        Ok(())
    }

    /// The entry `name` of a directory, if there is one.
    pub fn dir_lookup(&mut self, dir: &Inode, name: &[u8]) -> Result<Option<Found>> {
        self.build_hash(dir)?;
        let Some(hash) = self.hashes.find(dir.ino) else {
            let mut found = None;
            self.each_chunk(dir, 0, &mut |_, at, all| {
                let e = all.iter().find(|e| e.ino.0 != 0 && e.name == name);
                found = e.map(|e| Found { ino: e.ino, at: at + e.at as u64, kind: e.kind });
                Ok(found.is_none())
            })?;
            return Ok(found);
        };
        for at in hash.names.get(&hash_of(name)).cloned().unwrap_or_default() {
            let (e_ino, e_kind, same) = self.dir_entry(dir, at, |e| (e.ino, e.kind, e.name == name))?;
            if same && e_ino.0 != 0 {
                return Ok(Some(Found { ino: e_ino, at, kind: e_kind }));
            }
        }
        Ok(None)
    }

    /// The same; `ENOENT` if there is none.
    pub fn dir_find(&mut self, dir: &Inode, name: &[u8]) -> Result<Found> {
        self.dir_lookup(dir, name)?.ok_or_else(|| Errno::ENOENT.into())
    }

    /// The entry that begins at byte `at`.
    fn dir_entry<R>(&mut self, dir: &Inode, at: u64, f: impl FnOnce(&Dirent<'_>) -> R) -> Result<R> {
        let (page, range) = self.chunk_at(dir, at)?;
        let within = (at % DIRBLKSIZ as u64) as usize;
        let chunk = page.get(range).unwrap_or(&[]);
        let e = crate::dirent::entry(chunk, within)
            .map_err(|why| Corrupt::new("directory", "entries", at, why, "an entry"))?;
        Ok(f(&e))
    }

    /// Whether a directory has entries besides its dots.
    pub fn dir_is_empty(&mut self, dir: &Inode) -> Result<bool> {
        if let Some(hash) = self.hashes.all.get(&dir.ino.0) {
            return Ok(hash.count <= 2);
        }
        let mut empty = true;
        self.each_chunk(dir, 0, &mut |_, at, all| {
            empty = !all.iter().any(|e| e.ino.0 != 0 && at + e.at as u64 > DOTDOT_AT as u64);
            Ok(empty)
        })?;
        Ok(empty)
    }

    /// The directory above.
    pub fn parent_of(&mut self, dir: &Inode) -> Result<Ino> {
        self.dir_entry(dir, DOTDOT_AT as u64, |e| e.ino)
    }

    /// Room for an entry; the directory grows if there is none.
    pub fn dir_room(&mut self, dir: &mut Inode, name: &[u8]) -> Result<Room> {
        let need = dirent_len(name.len());
        self.build_hash(dir)?;
        if let Some((Name::Page { index, .. }, within)) = self.held_name(dir.ino, name) {
            let host = (index << self.geom.block_shift) + within as u64;
            let reclen = self.dir_entry(dir, host, |e| e.reclen)?;
            return Ok(Room { host, keeps: 0, reclen });
        }
        if let Some(room) = self.find_room(dir, need)? {
            return Ok(room);
        }
        self.dir_grow(dir)?;
        self.find_room(dir, need)?.ok_or_else(|| dir.corrupt("size", dir.size(), "room for an entry").into())
    }

    fn find_room(&mut self, dir: &Inode, need: usize) -> Result<Option<Room>> {
        let mut from = 0;
        if let Some(hash) = self.hashes.all.get_mut(&dir.ino.0) {
            let hint = hash.hints[need.div_ceil(16).min(32)];
            let chunk = (hint..hash.room.len() as u32).find(|c| usize::from(hash.room[*c as usize]) * 4 >= need);
            let at = chunk.unwrap_or(hash.room.len() as u32);
            hash.hints[need.div_ceil(16).min(32)] = at.min(hash.room.len() as u32);
            match chunk {
                None => return Ok(None),
                Some(chunk) => from = u64::from(chunk) * DIRBLKSIZ as u64,
            }
        }
        let mut room = None;
        let ino = dir.ino;
        self.each_chunk(dir, from, &mut |core, at, all| {
            let page = core.geom.lbn(at);
            let base = (at - (page << core.geom.block_shift)) as usize;
            let name = Name::Page { file: ino.0, index: page };
            let fits =
                |e: &&Dirent<'_>| e.reclen - e.used() >= need && (e.ino.0 != 0 || !core.is_held(name, base + e.at));
            let host = all.iter().find(fits);
            room = host.map(|e| Room { host: at + e.at as u64, keeps: e.used(), reclen: e.reclen });
            Ok(room.is_none())
        })?;
        Ok(room)
    }

    /// Adds empty chunks: a fragment, behind the direct blocks a block.
    fn dir_grow(&mut self, dir: &mut Inode) -> Result<()> {
        let geom = self.geom;
        let lbn = geom.lbn(dir.size());
        let step = if lbn < NDADDR as u64 { geom.frag_size() } else { geom.block_size() };
        let size = dir.size() + step as u64;
        if size > geom.max_size().min(1 << 32) {
            return Err(Errno::ENOSPC.into());
        }
        let name = Name::Page { file: dir.ino.0, index: lbn };
        if geom.lbn_frags(dir.size(), lbn) > 0 && dir.size() > lbn << geom.block_shift {
            self.dir_page(dir, lbn)?;
        } else {
            self.drop_buffer(name)?;
            self.cache.insert(name, Arc::new(Vec::new()));
        }
        let frag = self.balloc(dir, lbn, size, What::Dir, &mut |buf, len| {
            let more = len.saturating_sub(buf.len());
            buf.extend_from_slice(&empty_chunks(more));
        })?;
        debug_assert!(frag.0 > 0);
        if let Some(hash) = self.hashes.all.get_mut(&dir.ino.0) {
            hash.room.resize((size / DIRBLKSIZ as u64) as usize, (DIRBLKSIZ / 4) as u8);
        }
        Ok(())
    }

    /// Enters a name where there is room for it; says where it is. What the entry has to wait for,
    /// [`Core::entry_added`] is told.
    pub fn dir_insert(&mut self, dir: &Inode, room: Room, name: &[u8], ino: Ino, t: FileType) -> Result<u64> {
        let at = room.host + room.keeps as u64;
        let (page, within) = self.dir_place(dir, at);
        let (_, host) = self.dir_place(dir, room.host);
        self.dir_modify(dir, page, |buf| {
            if room.keeps > 0
                && let Some(len) = buf.get_mut(host + 4..host + 6)
            {
                len.copy_from_slice(&(room.keeps as u16).to_le_bytes());
            }
            if let Some(rest) = buf.get_mut(within..) {
                put_entry(rest, ino, room.reclen - room.keeps, (t.mode() >> 12) as u8, name);
            }
        })?;
        self.hashes.add(dir.ino, name, at);
        self.refresh_room(dir, at)?;
        Ok(at)
    }

    /// Removes an entry. `keep` leaves its space alone, as its name may have to come back for a while.
    pub fn dir_remove(&mut self, dir: &Inode, name: &[u8], at: u64, keep: bool) -> Result<()> {
        let (page, range) = self.chunk_at(dir, at)?;
        let start = range.start;
        let within = (at % DIRBLKSIZ as u64) as usize;
        let all = entries(page.get(range).unwrap_or(&[])).map_err(|_| Errno::EIO)?;
        let i = all.iter().position(|e| e.at == within).ok_or(Errno::EIO)?;
        let len = all.get(i).map_or(0, |e| e.reclen);
        let before =
            if keep { None } else { i.checked_sub(1).and_then(|i| all.get(i)).map(|e| (e.at, e.reclen + len)) };
        let (place, _) = self.dir_place(dir, at);
        self.dir_modify(dir, place, |buf| {
            put_u32(buf, start + within, 0);
            if let Some((at, reclen)) = before
                && let Some(b) = buf.get_mut(start + at + 4..start + at + 6)
            {
                b.copy_from_slice(&(reclen as u16).to_le_bytes());
            }
        })?;
        if let Some(hash) = self.hashes.all.get_mut(&dir.ino.0) {
            let key = hash_of(name);
            if let Some(list) = hash.names.get_mut(&key) {
                list.retain(|a| *a != at);
                if list.is_empty() {
                    hash.names.remove(&key);
                }
            }
            hash.count -= 1;
            self.hashes.names -= 1;
        }
        self.refresh_room(dir, at)
    }

    /// Lets an entry name another inode.
    pub fn dir_replace(&mut self, dir: &Inode, at: u64, ino: Ino, t: FileType) -> Result<()> {
        let (page, within) = self.dir_place(dir, at);
        self.chunk_at(dir, at)?;
        self.dir_modify(dir, page, |buf| {
            put_u32(buf, within, ino.0 as u32);
            if let Some(kind) = buf.get_mut(within + 6) {
                *kind = (t.mode() >> 12) as u8;
            }
        })
    }

    fn dir_modify(&mut self, dir: &Inode, page: Name, f: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let Name::Page { index, .. } = page else { return Err(Errno::EIO.into()) };
        let frag = self.bmap(dir, index)?.ok_or(Errno::EIO)?;
        self.cache.modify(page, f).ok_or(Errno::EIO)?;
        self.touch(page, frag, What::Dir, dir.ino.0);
        Ok(())
    }

    /// The free space of the chunk around byte `at` has changed.
    pub fn refresh_room(&mut self, dir: &Inode, at: u64) -> Result<()> {
        if !self.hashes.all.contains_key(&dir.ino.0) {
            return Ok(());
        }
        let (page, range) = self.chunk_at(dir, at)?;
        let (name, _) = self.dir_place(dir, at);
        let start = range.start;
        let all = entries(page.get(range).unwrap_or(&[])).map_err(|_| Errno::EIO)?;
        let room = room_of(&all, |e| self.is_held(name, start + e));
        let chunk = (at / DIRBLKSIZ as u64) as usize;
        if let Some(hash) = self.hashes.all.get_mut(&dir.ino.0)
            && let Some(r) = hash.room.get_mut(chunk)
        {
            *r = (room / 4) as u8;
            // Who looks for no more than this finds it here, or before.
            for hint in hash.hints.iter_mut().take(room / 16 + 1) {
                *hint = (*hint).min(chunk as u32);
            }
        }
        Ok(())
    }

    /// Calls `f` for the entries of a directory that begin at byte `from` or behind it, until it says `false`.
    pub fn dir_walk(&mut self, dir: &Inode, from: u64, f: Walk<'_>) -> Result<()> {
        self.each_chunk(dir, from, &mut |core, at, all| {
            for e in all.iter().filter(|e| e.ino.0 != 0) {
                let place = at + e.at as u64;
                if place >= from && !f(core, Found { ino: e.ino, at: place, kind: e.kind }, e.name)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// A name was entered in `dir`: it must not be on disk before `waits`.
    pub fn note_added(&mut self, dir: &Inode, at: u64, ino: Ino, waits: Vec<u64>) -> Result<u64> {
        let slot = self.dir_place(dir, at);
        self.entry_added(slot, ino, waits)
    }

    /// A name was removed from `dir`; what that takes from link counts follows when it is on disk, and that is
    /// not before `after` is.
    pub fn note_removed(
        &mut self,
        (dir, at): (&Inode, u64),
        old: ((Ino, u8), &[u8]),
        after: Option<u64>,
        drop: Drop,
    ) -> Result<()> {
        let slot = self.dir_place(dir, at);
        self.entry_removed(slot, old, after, drop)
    }

    /// The entry at byte `at` of `dir` names `new` instead of `old`; see [`Core::note_removed`].
    pub fn note_changed(
        &mut self,
        (dir, at): (&Inode, u64),
        names: ((Ino, u8), Ino),
        waits: Vec<u64>,
        drop: Drop,
    ) -> Result<u64> {
        let slot = self.dir_place(dir, at);
        self.entry_changed(slot, names, waits, drop)
    }

    /// Entries that are about to name another inode while the one that they name lives on are on disk as they are,
    /// with what waits for them: else an older name of it could go before there is a new one.
    pub fn settle_names(&mut self, entries: &[(&Inode, u64)], named: &[Ino]) -> Result<()> {
        let waits = |e: &(&Inode, u64)| {
            let (page, at) = self.dir_place(e.0, e.1);
            self.is_held(page, at)
        };
        if !self.holds_entries() || !entries.iter().any(waits) || planted(Flaw::NamesUnsettled) {
            return Ok(());
        }
        named.iter().try_for_each(|ino| self.sync_file(*ino))
    }

    /// See [`Core::newer_name`], of the entry at byte `at` of `dir`.
    pub fn name_before(&self, dir: &Inode, at: u64, ino: Ino) -> Option<u64> {
        self.newer_name(self.dir_place(dir, at), ino)
    }

    /// A directory was changed now.
    pub fn touch_dir(&mut self, dir: &mut Inode, now: Time) {
        (dir.d.mtime, dir.d.ctime) = (now.into(), now.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(count: usize) -> Hash {
        Hash { names: FxHashMap::default(), count, room: Vec::new(), hints: [0; 33], used: 0 }
    }

    #[test]
    fn what_was_not_used_for_longest_goes() {
        let mut all = Hashes::new(100 * NAME_BYTES);
        (1..=3).for_each(|dir| all.insert(Ino(dir), hash(30)));
        assert!(all.find(Ino(1)).is_some());
        // Growth counts as well.
        (0..11).for_each(|at| all.add(Ino(3), b"name", at));
        let left = |dir: u64| all.all.contains_key(&dir);
        assert_eq!((left(1), left(2), left(3)), (true, false, true));
        assert_eq!((all.names, all.order.len()), (71, 2));
        all.insert(Ino(4), hash(101));
        assert_eq!((all.names, all.all.len(), all.order.len()), (71, 2, 2));
    }
}
