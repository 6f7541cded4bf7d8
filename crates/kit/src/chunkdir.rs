//! Directories that are files of chunks ([`dirent`](super::dirent)): finding, adding, removing and walking entries.
//!
//! An engine gives access to the pages of a directory ([`ChunkDirs`]); everything else is here. Larger directories
//! get a hash of their names in core when they are first searched (Dowse and Malone 2002); without it a search is
//! linear. Called by `namespace.rs`, through [`Names`](namespace::Names), and by the engines.

use crate::blockfile::{BlockFile as _, BlockFiles};
use crate::dirent::{DIRBLKSIZ, DOTDOT_AT, Dirent, dirent_len, empty_chunks, entries, entry, put_entry};
use crate::namespace::{self, Lookup, Named, Node, Searched, Walked};
use arbor_base::cache::Name;
use arbor_base::layout::{Corrupt, Location, crc};
use arbor_base::vfs::{Errno, FileType, Ino, Result};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Directories of more bytes get a hash.
const HASH_FROM: u64 = 2560;
/// Longest directory, in bytes.
const MOST_BYTES: u64 = 1 << 32;
/// Approximate memory that a name takes in a hash.
const NAME_BYTES: usize = 40;

/// An entry that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it names.
    pub ino: Ino,
    /// Byte of the directory where it begins.
    pub at: u64,
    /// File type: the mode's type bits, shifted by 12.
    pub kind: u8,
}

/// Room for an entry.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Byte of the directory where the entry begins whose space it takes.
    pub host: u64,
    /// Bytes of it that stay.
    pub keeps: usize,
    /// Length of the host.
    pub reclen: usize,
}

/// Called with chunks and where each begins; returns whether to go on.
type Chunks<'a, C> = &'a mut dyn FnMut(&mut C, u64, &[Dirent<'_>]) -> Result<bool>;
/// Called with entries and their names; returns whether to go on.
pub type Walk<'a, C> = &'a mut dyn FnMut(&mut C, Found, &[u8]) -> Result<bool>;

/// Names of one directory.
struct Hash {
    names: FxHashMap<u32, Vec<u64>>,
    count: usize,
    /// Length of the largest free piece of each chunk, divided by 4.
    room: Vec<u8>,
    /// For each amount of free space, in units of 16 bytes, a chunk before which no chunk has as much.
    hints: [u32; 33],
    /// Number of its last use.
    used: u64,
}

impl Hash {
    /// Notes that a chunk has room for an entry of so many bytes.
    fn set_room(&mut self, chunk: usize, room: usize) {
        if let Some(r) = self.room.get_mut(chunk) {
            *r = (room / 4) as u8;
            // A search for no more than this ends here, or earlier.
            for hint in self.hints.iter_mut().take(room.div_ceil(16) + 1) {
                *hint = (*hint).min(chunk as u32);
            }
        }
    }

    /// The first chunk that may have room for an entry.
    fn find_room(&mut self, need: usize) -> Option<u64> {
        let hint = self.hints.get_mut(need.div_ceil(16).min(32))?;
        let from = *hint as usize;
        let found = self.room.iter().skip(from).position(|r| usize::from(*r) * 4 >= need);
        *hint = found.map_or(self.room.len(), |n| from + n) as u32;
        found.map(|n| (from + n) as u64 * DIRBLKSIZ as u64)
    }
}

/// The hashes of the directories searched last, within a limit of memory.
pub struct Hashes {
    all: FxHashMap<u64, Hash>,
    /// Directories by the time of their last use.
    order: BTreeMap<u64, u64>,
    uses: u64,
    names: usize,
    most: usize,
    /// Entries that linear searches have looked at.
    compared: u64,
}

impl Hashes {
    /// No hashes yet; they will take at most about so many bytes of memory.
    pub fn new(bytes: usize) -> Hashes {
        let most = bytes / NAME_BYTES;
        Hashes { all: FxHashMap::default(), order: BTreeMap::new(), uses: 0, names: 0, most, compared: 0 }
    }

    /// Entries whose names were compared because the directory had no hash.
    pub fn compared(&self) -> u64 {
        self.compared
    }

    /// Forgets the hash of a directory.
    pub fn remove(&mut self, dir: Ino) {
        if let Some(hash) = self.all.remove(&dir.0) {
            self.names -= hash.count;
            self.order.remove(&hash.used);
        }
    }

    /// The hash of a directory; counts as a use.
    fn find(&mut self, dir: Ino) -> Option<&mut Hash> {
        let hash = self.all.get_mut(&dir.0)?;
        self.uses += 1;
        self.order.remove(&hash.used);
        self.order.insert(self.uses, dir.0);
        hash.used = self.uses;
        Some(hash)
    }

    /// Adds a hash, unless it alone is too large.
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

    /// Adds a name to the hash of a directory, if it has one.
    fn add(&mut self, dir: Ino, name: &[u8], at: u64) {
        let Some(hash) = self.find(dir) else { return };
        hash.names.entry(hash_of(name)).or_default().push(at);
        hash.count += 1;
        self.names += 1;
        self.trim();
    }

    /// Removes a name from the hash of a directory, if it has one.
    fn drop_name(&mut self, dir: Ino, name: &[u8], at: u64) {
        let Some(hash) = self.all.get_mut(&dir.0) else { return };
        let key = hash_of(name);
        if let Some(list) = hash.names.get_mut(&key) {
            list.retain(|a| *a != at);
            if list.is_empty() {
                hash.names.remove(&key);
            }
        }
        hash.count -= 1;
        self.names -= 1;
    }

    /// Lets the slot of a kept entry, at byte `at` of a directory, be reused.
    pub fn vacate(&mut self, dir: Ino, at: u64) {
        if let Some(hash) = self.all.get_mut(&dir.0) {
            // The next search there finds how much room that makes.
            hash.set_room((at / DIRBLKSIZ as u64) as usize, DIRBLKSIZ);
        }
    }

    /// Notes that a directory has grown to `size` bytes, by empty chunks.
    pub fn grow(&mut self, dir: Ino, size: u64) {
        if let Some(hash) = self.all.get_mut(&dir.0) {
            hash.room.resize((size / DIRBLKSIZ as u64) as usize, (DIRBLKSIZ / 4) as u8);
        }
    }

    /// Removes the hashes used longest ago, until the others fit.
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

fn put_ino(buf: &mut [u8], at: usize, ino: Ino) {
    if let Some(place) = buf.get_mut(at..at + 4) {
        place.copy_from_slice(&(ino.0 as u32).to_le_bytes());
    }
}

/// Damage to the entries at byte `at` of a directory.
fn broken(dir: Ino, at: u64, found: &str, expected: &str) -> Corrupt {
    Corrupt::new("directory", "entries", Location::file(dir, at), found, expected)
}

/// Calls `f` for the pieces of a chunk that hold free space, until it returns `false`: an entry, with the free ones
/// after it that are not kept.
fn each_piece(all: &[Dirent<'_>], held: impl Fn(usize) -> bool, mut f: impl FnMut(Room) -> bool) {
    let mut last: Option<Room> = None;
    for e in all {
        let free = e.ino.0 == 0;
        let is_held = free && held(e.at);
        match &mut last {
            Some(piece) if free && !is_held => piece.reclen += e.reclen,
            _ => {
                if last.take().is_some_and(|piece| !f(piece)) {
                    return;
                }
                last = (!is_held).then_some(Room { host: e.at as u64, keeps: e.used(), reclen: e.reclen });
            }
        }
    }
    last.map(f);
}

/// Largest free piece of a chunk, without kept entries, in bytes.
fn room_of(all: &[Dirent<'_>], held: impl Fn(usize) -> bool) -> usize {
    let mut most = 0;
    each_piece(all, held, |piece| {
        most = most.max(piece.reclen - piece.keeps);
        true
    });
    most
}

/// The pages of directories, and their hashes.
pub trait ChunkDirs: BlockFiles + namespace::Names<Slot = Found, Room = ()> {
    /// The root directory.
    const ROOT: Ino;

    /// A page of a directory.
    fn dir_page(&mut self, dir: &Self::Inode, index: u64) -> Result<Arc<Vec<u8>>>;

    /// The location of the inode of a directory.
    fn inode_location(&self, dir: &Self::Inode) -> Location;

    /// Changes a page, which was read in the same call.
    fn dir_modify(&mut self, dir: &Self::Inode, index: u64, f: &mut dyn FnMut(&mut Vec<u8>)) -> Result<()>;

    /// The hashes.
    fn hashes(&mut self) -> &mut Hashes;

    /// Facts of an inode.
    fn facts(&self, i: &Self::Inode) -> Node;

    /// By how much a directory grows whose next byte is in block `lbn`.
    fn dir_step(&self, lbn: u64) -> usize;

    /// Makes the page of a block that a directory does not have yet.
    fn dir_new_page(&mut self, dir: &Self::Inode, lbn: u64) -> Result<()> {
        self.cache().insert(Name::data(dir.ino(), lbn), Arc::new(Vec::new()));
        Ok(())
    }

    /// Whether the free entry at byte `at` is kept, since a rollback may bring it back.
    fn is_kept(&self, _dir: &Self::Inode, _at: u64) -> bool {
        false
    }

    /// The page that holds byte `at` of a directory, and where in the page.
    fn page_of(&self, at: u64) -> (u64, usize) {
        let index = at >> self.block_shift();
        (index, (at - (index << self.block_shift())) as usize)
    }

    /// The chunk that holds byte `at` of a directory.
    fn chunk_at(&mut self, dir: &Self::Inode, at: u64) -> Result<(Arc<Vec<u8>>, Range<usize>)> {
        let (index, within) = self.page_of(at);
        let page = self.dir_page(dir, index)?;
        let start = within / DIRBLKSIZ * DIRBLKSIZ;
        if start + DIRBLKSIZ > page.len() {
            return Err(Corrupt::new("inode", "size", self.inode_location(dir), dir.size(), "whole chunks").into());
        }
        Ok((page, start..start + DIRBLKSIZ))
    }

    /// Calls `f` for the chunks of a directory from byte `from`, with the offset of each, until it returns `false`.
    fn each_chunk(&mut self, dir: &Self::Inode, from: u64, f: Chunks<'_, Self>) -> Result<()> {
        let mut at = from / DIRBLKSIZ as u64 * DIRBLKSIZ as u64;
        while at < dir.size() {
            let (page, range) = self.chunk_at(dir, at)?;
            let all = entries(page.get(range).unwrap_or(&[]))
                .map_err(|why| broken(dir.ino(), at, why, "a chunk filled with entries"))?;
            if !f(self, at, &all)? {
                return Ok(());
            }
            at += DIRBLKSIZ as u64;
        }
        Ok(())
    }

    /// Makes the hash of a directory, if it is large enough.
    fn build_hash(&mut self, dir: &Self::Inode) -> Result<()> {
        if dir.size() <= HASH_FROM || self.hashes().all.contains_key(&dir.ino().0) {
            return Ok(());
        }
        // At 20 bytes a name at least.
        if dir.size() / 20 > self.hashes().most as u64 * 4 {
            return Ok(());
        }
        let mut hash = Hash { names: FxHashMap::default(), count: 0, room: Vec::new(), hints: [0; 33], used: 0 };
        self.each_chunk(dir, 0, &mut |core, at, all| {
            for e in all.iter().filter(|e| e.ino.0 != 0) {
                hash.names.entry(hash_of(e.name)).or_default().push(at + e.at as u64);
                hash.count += 1;
            }
            hash.room.push((room_of(all, |e| core.is_kept(dir, at + e as u64)) / 4) as u8);
            Ok(true)
        })?;
        self.hashes().insert(dir.ino(), hash);
        Ok(())
    }

    /// The entry `name` of a directory, if there is one.
    fn dir_lookup(&mut self, dir: &Self::Inode, name: &[u8]) -> Result<Option<Found>> {
        self.build_hash(dir)?;
        let Some(hash) = self.hashes().find(dir.ino()) else {
            let mut found = None;
            self.each_chunk(dir, 0, &mut |core, at, all| {
                let here = all.iter().position(|e| e.ino.0 != 0 && e.name == name);
                core.hashes().compared += here.map_or(all.len(), |i| i + 1) as u64;
                let e = here.and_then(|i| all.get(i));
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
    fn dir_find(&mut self, dir: &Self::Inode, name: &[u8]) -> Result<Found> {
        self.dir_lookup(dir, name)?.ok_or_else(|| Errno::ENOENT.into())
    }

    /// The entry that begins at byte `at`.
    fn dir_entry<R>(&mut self, dir: &Self::Inode, at: u64, f: impl FnOnce(&Dirent<'_>) -> R) -> Result<R> {
        let (page, range) = self.chunk_at(dir, at)?;
        let within = (at % DIRBLKSIZ as u64) as usize;
        let chunk = page.get(range).unwrap_or(&[]);
        let e = entry(chunk, within).map_err(|why| broken(dir.ino(), at, why, "an entry"))?;
        Ok(f(&e))
    }

    /// Whether a directory has entries besides its dots.
    fn dir_is_empty(&mut self, dir: &Self::Inode) -> Result<bool> {
        if let Some(hash) = self.hashes().all.get(&dir.ino().0) {
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
    fn parent_of(&mut self, dir: &Self::Inode) -> Result<Ino> {
        self.dir_entry(dir, DOTDOT_AT as u64, |e| e.ino)
    }

    /// Finds room for an entry of `need` bytes in the directory as it is.
    fn find_room(&mut self, dir: &Self::Inode, need: usize) -> Result<Option<Room>> {
        let mut from = 0;
        loop {
            let hash = self.hashes().all.get_mut(&dir.ino().0);
            let hashed = hash.is_some();
            if let Some(hash) = hash {
                match hash.find_room(need) {
                    None => return Ok(None),
                    Some(at) => from = at,
                }
            }
            let mut room = None;
            self.each_chunk(dir, from, &mut |core, at, all| {
                let held = |e: usize| core.is_kept(dir, at + e as u64);
                each_piece(all, held, |piece| {
                    let fits = piece.reclen - piece.keeps >= need;
                    room = fits.then_some(Room { host: at + piece.host, ..piece });
                    !fits
                });
                Ok(room.is_none() && !hashed)
            })?;
            if room.is_some() || !hashed {
                return Ok(room);
            }
            // There was less room than noted.
            self.refresh_room(dir, from)?;
        }
    }

    /// Finds room for a name; grows the directory if there is none.
    fn room_or_grow(&mut self, dir: &mut Self::Inode, name: &[u8]) -> Result<Room> {
        let need = dirent_len(name.len());
        if let Some(room) = self.find_room(dir, need)? {
            return Ok(room);
        }
        self.dir_grow(dir)?;
        let full = Corrupt::new("inode", "size", self.inode_location(dir), dir.size(), "room for an entry");
        self.find_room(dir, need)?.ok_or_else(|| full.into())
    }

    /// Adds empty chunks to a directory.
    fn dir_grow(&mut self, dir: &mut Self::Inode) -> Result<()> {
        let lbn = dir.size() >> self.block_shift();
        let size = dir.size() + self.dir_step(lbn) as u64;
        if size > self.max_size().min(MOST_BYTES) {
            return Err(Errno::ENOSPC.into());
        }
        if dir.size() > lbn << self.block_shift() {
            self.dir_page(dir, lbn)?;
        } else {
            self.dir_new_page(dir, lbn)?;
        }
        self.balloc(dir, lbn, size, &mut |buf, len| {
            let more = len.saturating_sub(buf.len());
            buf.extend_from_slice(&empty_chunks(more));
        })?;
        self.hashes().grow(dir.ino(), size);
        Ok(())
    }

    /// Adds a name where there is room for it; returns its offset.
    fn dir_insert(&mut self, dir: &Self::Inode, room: Room, name: &[u8], ino: Ino, t: FileType) -> Result<u64> {
        let at = room.host + room.keeps as u64;
        let (page, within) = self.page_of(at);
        let (_, host) = self.page_of(room.host);
        self.dir_modify(dir, page, &mut |buf| {
            if room.keeps > 0
                && let Some(len) = buf.get_mut(host + 4..host + 6)
            {
                len.copy_from_slice(&(room.keeps as u16).to_le_bytes());
            }
            if let Some(rest) = buf.get_mut(within..) {
                put_entry(rest, ino, room.reclen - room.keeps, (t.mode() >> 12) as u8, name);
            }
        })?;
        self.hashes().add(dir.ino(), name, at);
        self.refresh_room(dir, at)?;
        Ok(at)
    }

    /// Removes an entry. `keep` leaves its bytes in place, since a rollback may bring it back.
    fn dir_remove(&mut self, dir: &Self::Inode, name: &[u8], at: u64, keep: bool) -> Result<()> {
        let (page, range) = self.chunk_at(dir, at)?;
        let start = range.start;
        let within = (at % DIRBLKSIZ as u64) as usize;
        let all = entries(page.get(range).unwrap_or(&[])).map_err(|_| Errno::EIO)?;
        let i = all.iter().position(|e| e.at == within).ok_or(Errno::EIO)?;
        let len = all.get(i).map_or(0, |e| e.reclen);
        let before =
            if keep { None } else { i.checked_sub(1).and_then(|i| all.get(i)).map(|e| (e.at, e.reclen + len)) };
        let (index, _) = self.page_of(at);
        self.dir_modify(dir, index, &mut |buf| {
            put_ino(buf, start + within, Ino(0));
            if let Some((at, reclen)) = before
                && let Some(b) = buf.get_mut(start + at + 4..start + at + 6)
            {
                b.copy_from_slice(&(reclen as u16).to_le_bytes());
            }
        })?;
        self.hashes().drop_name(dir.ino(), name, at);
        self.refresh_room(dir, at)
    }

    /// Makes an entry name another inode.
    fn dir_replace(&mut self, dir: &Self::Inode, at: u64, ino: Ino, t: FileType) -> Result<()> {
        let (page, within) = self.page_of(at);
        self.chunk_at(dir, at)?;
        self.dir_modify(dir, page, &mut |buf| {
            put_ino(buf, within, ino);
            if let Some(kind) = buf.get_mut(within + 6) {
                *kind = (t.mode() >> 12) as u8;
            }
        })
    }

    /// Notes that the free space of the chunk around byte `at` has changed.
    fn refresh_room(&mut self, dir: &Self::Inode, at: u64) -> Result<()> {
        if !self.hashes().all.contains_key(&dir.ino().0) {
            return Ok(());
        }
        let (page, range) = self.chunk_at(dir, at)?;
        let base = at / DIRBLKSIZ as u64 * DIRBLKSIZ as u64;
        let all = entries(page.get(range).unwrap_or(&[])).map_err(|_| Errno::EIO)?;
        let room = room_of(&all, |e| self.is_kept(dir, base + e as u64));
        let chunk = (at / DIRBLKSIZ as u64) as usize;
        if let Some(hash) = self.hashes().all.get_mut(&dir.ino().0) {
            hash.set_room(chunk, room);
        }
        Ok(())
    }

    /// Calls `f` for the entries of a directory that begin at byte `from` or after it, until it returns `false`.
    fn dir_walk(&mut self, dir: &Self::Inode, from: u64, f: Walk<'_, Self>) -> Result<()> {
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
}

impl<C: ChunkDirs> namespace::Names for C {
    type Slot = Found;
    type Room = ();

    fn root(&self) -> Ino {
        Self::ROOT
    }

    fn node(&mut self, ino: Ino) -> Result<Node> {
        let i = self.iget(ino)?;
        Ok(self.facts(&i))
    }

    fn find(&mut self, dir: Ino, name: &[u8]) -> Result<Searched<C>> {
        let dir = self.iget(dir)?;
        if !dir.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let found = self.dir_lookup(&dir, name)?;
        let found = found.map_or(Lookup::Free(()), |slot| Lookup::Found(Named { ino: slot.ino, slot }));
        Ok((self.facts(&dir), found))
    }

    fn parent(&mut self, dir: Ino) -> Result<Ino> {
        let dir = self.iget(dir)?;
        self.parent_of(&dir)
    }

    fn parent_location(&self, dir: Ino) -> Location {
        Location::file(dir, DOTDOT_AT as u64)
    }

    fn slot_location(&self, dir: Ino, slot: &Found) -> Location {
        Location::file(dir, slot.at)
    }

    fn is_empty(&mut self, dir: Ino) -> Result<bool> {
        let dir = self.iget(dir)?;
        self.dir_is_empty(&dir)
    }

    /// A cookie is the offset of an entry, because entries do not move.
    fn walk(&mut self, dir: Ino, cookie: u64, _plus: bool, f: namespace::Walk<'_, C>) -> Result<()> {
        let dir = self.iget(dir)?;
        self.dir_walk(&dir, cookie, &mut |core, found, name| {
            let file_type = FileType::from_mode(u32::from(found.kind) << 12).unwrap_or(FileType::File);
            f(core, Walked { ino: found.ino, file_type, cookie: found.at + 1 }, name)
        })
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

    /// The text of the option `cache` of FFS and LFS says that a quarter of the cache is for hashes.
    #[test]
    fn a_mebibyte_of_cache_has_room_for_6500_names() {
        let mut all = Hashes::new((1 << 20) / 4);
        [(1, 6500), (2, 6600)].into_iter().for_each(|(dir, names)| all.insert(Ino(dir), hash(names)));
        assert!(all.find(Ino(1)).is_some() && all.find(Ino(2)).is_none());
    }
}
