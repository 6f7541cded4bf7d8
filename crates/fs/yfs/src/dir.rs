//! Directories (3.5): entries in the order of their hash, in the inode or in directory blocks.
//!
//! The entries of a body (a directory block after its header, or the area of an inline directory) are a linked list in
//! key order, so an insert logs the entry and one pointer. The key is the hash and a number that tells colliding names
//! apart: keys are unique, so no level has to cope with duplicates, and a key is the readdir cookie for as long as its
//! entry lives.
//!
//! Directory blocks are described in a tree keyed by the smallest key a block may hold.

use crate::body;
use crate::btree::Tree;
use crate::buffers::What;
use crate::file::MapStore;
use crate::format::*;
use crate::inode::Inode;
use crate::volume::{Core, RestartReason};
use arbor_base::cache::Name;
use arbor_base::layout::{Corrupt, get_u16};
use arbor_base::vfs::{Errno, FileType, Ino, Result};
use zerocopy::IntoBytes;

/// Directory blocks that a walk asks for at a time.
const WALK_BLOCKS: usize = 16;

type DirTree<'s, 'c> = Tree<'s, MapStore<'c>, DIR_VALUE>;

/// Where a body of entries lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Inline,
    Block(Frag),
}

/// Called with each entry of a walk; returns whether to go on.
pub(crate) type Visit<'a> = dyn FnMut(&mut Core, Found, &[u8]) -> Result<bool> + 'a;

/// An entry that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub ino: Ino,
    pub key: u64,
    pub kind: u8,
    /// Byte of the device where it begins.
    pub byte: u64,
}

/// The result of looking for a name: the entry, or the number that the next entry of its hash would get.
pub(crate) enum Lookup {
    Found(Found),
    Missing { seq: Option<u16> },
}

/// A found entry: body, key of its descriptor, offset of the entry before it, the entry.
type Located = (Place, u64, Option<usize>, Raw);

#[derive(Clone)]
struct Raw {
    at: usize,
    head: DirEnt,
    name: Vec<u8>,
}

impl Raw {
    fn key(&self) -> u64 {
        dir_key(self.head.hash.get(), self.head.seq.get())
    }
    fn len(&self) -> usize {
        DIR_ENT + self.name.len()
    }
}

fn encode(body_len: usize, entries: &[Raw]) -> Vec<u8> {
    let mut out = vec![0; body_len];
    let mut at = DIR_HEAD;
    let live: usize = entries.iter().map(Raw::len).sum();
    for (n, e) in entries.iter().enumerate() {
        let next = if n + 1 < entries.len() { at + e.len() } else { 0 };
        let head = DirEnt { next: (next as u16).into(), ..e.head };
        out[at..at + DIR_ENT].copy_from_slice(head.as_bytes());
        out[at + DIR_ENT..at + e.len()].copy_from_slice(&e.name);
        at += e.len();
    }
    let first = if entries.is_empty() { 0 } else { DIR_HEAD };
    let head = DirHead {
        first: (first as u16).into(),
        end: (at as u16).into(),
        count: (entries.len() as u16).into(),
        live: (live as u16).into(),
    };
    out[..DIR_HEAD].copy_from_slice(head.as_bytes());
    out
}

impl Core {
    fn body<R>(&mut self, i: &Inode, p: Place, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        match p {
            Place::Inline => self.area(i, f),
            Place::Block(b) => Ok(f(self.block(b, BlockType::Dir, i.ino.0)?.get(HEADER..).unwrap_or(&[]))),
        }
    }

    fn body_write(&mut self, i: &Inode, p: Place, at: usize, bytes: &[u8]) -> Result<()> {
        match p {
            Place::Inline => self.area_write(i, at, bytes),
            Place::Block(b) => self.write(self.geom.daddr(b), Seal::Block, HEADER + at, bytes),
        }
    }

    /// Byte of the device where a body begins.
    fn body_byte(&self, i: &Inode, p: Place) -> u64 {
        match p {
            Place::Inline => i.ino.0.saturating_mul(SECTOR).saturating_add(DINODE as u64),
            Place::Block(b) => self.geom.daddr(b).byte().saturating_add(HEADER as u64),
        }
    }

    fn broken(&self, i: &Inode, p: Place) -> Corrupt {
        let what = if matches!(p, Place::Inline) { "inode" } else { "directory block" };
        Corrupt::new(what, "entries", self.body_byte(i, p), "a broken list", "entries in the order of their hash")
    }

    /// The first body that may hold keys from `key` on, and the key of its descriptor.
    fn place(&mut self, i: &Inode, key: u64) -> Result<(Place, u64)> {
        if i.format() == Format::Inline {
            return Ok((Place::Inline, 0));
        }
        let mut copy = *i;
        let mut store = MapStore::dir(self, &mut copy);
        let mut tree = DirTree::new(&mut store);
        let found = match tree.last_le(key)? {
            Some(f) => Some(f),
            None => tree.first_ge(0)?,
        };
        let (k, v) = found.ok_or_else(|| i.corrupt("format", "no blocks", "a directory block"))?;
        Ok((Place::Block(Frag(u64::from_le_bytes(v))), k))
    }

    /// The body after the one whose descriptor has `key`.
    fn next_place(&mut self, i: &Inode, key: u64) -> Result<Option<(Place, u64)>> {
        if i.format() == Format::Inline || key == u64::MAX {
            return Ok(None);
        }
        let mut copy = *i;
        let mut store = MapStore::dir(self, &mut copy);
        let found = DirTree::new(&mut store).first_ge(key + 1)?;
        Ok(found.map(|(k, v)| (Place::Block(Frag(u64::from_le_bytes(v))), k)))
    }

    /// Looks up a name. A caller about to make one has often looked it up just before.
    pub fn dir_lookup(&mut self, i: &Inode, name: &[u8]) -> Result<Lookup> {
        if let Some(seq) = self.missed.find(i.ino, name) {
            return Ok(Lookup::Missing { seq });
        }
        let found = self.dir_search(i, name)?;
        if let Lookup::Missing { seq } = found {
            self.missed.note(i.ino, name, seq);
        }
        Ok(found)
    }

    fn dir_search(&mut self, i: &Inode, name: &[u8]) -> Result<Lookup> {
        let hash = name_hash(self.geom.hash_seed, name);
        let (lo, hi) = (dir_key(hash, 0), dir_key(hash, u16::MAX));
        let (mut p, mut key) = self.place(i, lo)?;
        let mut taken: Vec<u16> = Vec::new();
        loop {
            let start = self.body_byte(i, p);
            let (mut found, mut past) = (None, false);
            let done = self.body(i, p, |body| {
                let (_, mut at) = body::seek(body, lo)?;
                while at != 0 {
                    let (e, n) = body::entry_at(body, at)?;
                    let k = dir_key(e.hash.get(), e.seq.get());
                    past = k > hi;
                    if past {
                        break;
                    }
                    if n == name {
                        found = Some(Found { ino: Ino(e.ino.get()), key: k, kind: e.kind, byte: start + at as u64 });
                        break;
                    }
                    if k < lo || taken.last().is_some_and(|t| *t >= e.seq.get()) {
                        return None;
                    }
                    taken.push(e.seq.get());
                    at = usize::from(e.next.get());
                }
                Some(())
            })?;
            done.ok_or_else(|| self.broken(i, p))?;
            if let Some(f) = found {
                return Ok(Lookup::Found(f));
            }
            match if past { None } else { self.next_place(i, key)? } {
                Some((np, k)) if k <= hi => (p, key) = (np, k),
                _ => break,
            }
        }
        // Ascending, so the first gap is where the value differs from the position.
        let seq = match taken.last() {
            None => Some(0),
            Some(&s) if s < u16::MAX => Some(s + 1),
            Some(_) => (0..u16::MAX).zip(&taken).find(|(n, t)| n != *t).map(|(n, _)| n),
        };
        Ok(Lookup::Missing { seq })
    }

    /// The entry of a name; `ENOENT` if there is none.
    pub fn dir_find(&mut self, i: &Inode, name: &[u8]) -> Result<Found> {
        match self.dir_lookup(i, name)? {
            Lookup::Found(f) => Ok(f),
            Lookup::Missing { .. } => Err(Errno::ENOENT.into()),
        }
    }

    /// Whether a directory has no entries.
    pub fn dir_is_empty(&mut self, i: &Inode) -> Result<bool> {
        let (mut p, mut key) = self.place(i, 0)?;
        loop {
            if self.body(i, p, |b| body::head_of(b).count.get())? > 0 {
                return Ok(false);
            }
            match self.next_place(i, key)? {
                Some((np, k)) => (p, key) = (np, k),
                None => return Ok(true),
            }
        }
    }

    /// Calls `f` with the entries with keys of at least `from`, in order, until it returns `false`. The entries of one
    /// body are collected first, so `f` may use the state in core. With `plus` it is going to use the inodes.
    pub fn dir_walk(&mut self, i: &Inode, from: u64, plus: bool, f: &mut Visit<'_>) -> Result<()> {
        let (mut p, mut key) = self.place(i, from)?;
        loop {
            self.want_bodies(i, p, key)?;
            let (start, entries) = (self.body_byte(i, p), self.entries(i, p)?);
            if plus {
                self.want_inodes(entries.iter().filter(|e| e.key() >= from).map(|e| Ino(e.head.ino.get())))?;
            }
            for e in entries {
                if e.key() < from {
                    continue;
                }
                let found =
                    Found { ino: Ino(e.head.ino.get()), key: e.key(), kind: e.head.kind, byte: start + e.at as u64 };
                if !f(self, found, &e.name)? {
                    return Ok(());
                }
            }
            match self.next_place(i, key)? {
                Some((np, k)) => (p, key) = (np, k),
                None => return Ok(()),
            }
        }
    }

    /// Asks for a body that is not in the cache, together with those after it.
    fn want_bodies(&mut self, i: &Inode, p: Place, mut key: u64) -> Result<()> {
        let is_missing = |core: &Core, p: Place| match p {
            Place::Block(b) => (!core.cache.contains(Name::Block(core.geom.daddr(b).0))).then_some(b),
            Place::Inline => None,
        };
        let Some(first) = is_missing(self, p).filter(|_| self.attempt.may_batch()) else { return Ok(()) };
        let mut missing = vec![first];
        for _ in 1..WALK_BLOCKS {
            // Damage after this body is reported when a walk comes there.
            let Ok(Some((np, k))) = self.next_place(i, key) else { break };
            missing.extend(is_missing(self, np));
            key = k;
        }
        let (geom, len) = (self.geom, self.geom.block_size());
        missing.retain(|b| geom.valid_run(*b, geom.block_frags()));
        let all = missing.into_iter().map(|b| (geom.daddr(b), len, What::Block(BlockType::Dir))).collect();
        Err(self.attempt.give_up(RestartReason::Buffers(all)))
    }

    fn entries(&mut self, i: &Inode, p: Place) -> Result<Vec<Raw>> {
        let mut out = Vec::new();
        let done = self.body(i, p, |body| {
            body::walk(body, |at, e, name| {
                out.push(Raw { at, head: *e, name: name.to_vec() });
                true
            })
        })?;
        done.ok_or_else(|| self.broken(i, p))?;
        Ok(out)
    }

    /// Fragments an insert may need: two blocks and the tree above them.
    pub fn dir_insert_frags(&self) -> u64 {
        8 * u64::from(self.geom.block_frags())
    }

    /// Fails with `ENOSPC` unless the runs that an insert may need are available.
    pub fn dir_insert_fits(&mut self, i: &Inode, name: &[u8]) -> Result<()> {
        let need = DIR_ENT + name.len();
        let key = dir_key(name_hash(self.geom.hash_seed, name), 0);
        let (p, _) = self.place(i, key)?;
        let (len, end) = self.body(i, p, |b| (b.len(), body::used_bytes(b)))?;
        let stays = p != Place::Inline || self.ways.inline;
        if stays && len - end.min(len) >= need {
            return Ok(());
        }
        self.need_space(self.dir_insert_frags())?;
        self.need_runs(6)
    }

    /// Adds an entry whose name is known to be missing; `seq` as returned by [`Core::dir_lookup`].
    pub fn dir_insert(&mut self, i: &mut Inode, name: &[u8], seq: u16, ino: Ino, t: FileType) -> Result<()> {
        self.missed.forget(i.ino);
        let hash = name_hash(self.geom.hash_seed, name);
        let head = DirEnt {
            next: 0.into(),
            name_len: name.len() as u8,
            kind: (t.mode() >> 12) as u8,
            hash: hash.into(),
            seq: seq.into(),
            ino: ino.0.into(),
        };
        let new = Raw { at: 0, head, name: name.to_vec() };
        loop {
            let (p, key) = self.place(i, new.key())?;
            if new.key() < key {
                // A smaller key than any so far: the first block's descriptor covers it now.
                let Place::Block(b) = p else { return Err(self.broken(i, p).into()) };
                self.with_dir_tree(i, |t| t.rekey(key, 0, &b.0.to_le_bytes()))?;
                continue;
            }
            if self.insert_in(i, p, &new)? {
                return Ok(());
            }
            self.split(i, p)?;
        }
    }

    fn with_dir_tree<R>(&mut self, i: &mut Inode, f: impl FnOnce(&mut DirTree<'_, '_>) -> Result<R>) -> Result<R> {
        let mut store = MapStore::dir(self, i);
        let mut tree = DirTree::new(&mut store);
        let r = f(&mut tree)?;
        let height = tree.height()?;
        i.d.format = if height > 1 { Format::Btree } else { Format::Extent } as u8;
        Ok(r)
    }

    /// Puts an entry into a body; returns whether it fitted.
    fn insert_in(&mut self, i: &mut Inode, p: Place, new: &Raw) -> Result<bool> {
        let (len, head, end) = self.body(i, p, |b| (b.len(), body::head_of(b), body::used_bytes(b)))?;
        let (need, live) = (new.len(), usize::from(head.live.get()));
        if p == Place::Inline && !self.ways.inline {
            return Ok(false);
        }
        if end > len || len - end < need {
            let slack = if p == Place::Inline { 0 } else { len / 8 };
            if DIR_HEAD + live + need + slack > len {
                return Ok(false);
            }
            let entries = self.entries(i, p)?;
            let packed = encode(len, &entries);
            self.body_write(i, p, 0, &packed)?;
            return self.insert_in(i, p, new);
        }
        let found = self.body(i, p, |b| body::seek(b, new.key()))?;
        let (before, next) = found.ok_or_else(|| self.broken(i, p))?;
        let entry = DirEnt { next: (next as u16).into(), ..new.head };
        let mut bytes = entry.as_bytes().to_vec();
        bytes.extend_from_slice(&new.name);
        self.body_write(i, p, end, &bytes)?;
        let at = (end as u16).to_le_bytes();
        if let Some(b) = before {
            self.body_write(i, p, b, &at)?;
        }
        let head = DirHead {
            first: if before.is_none() { (end as u16).into() } else { head.first },
            end: ((end + need) as u16).into(),
            count: (head.count.get() + 1).into(),
            live: ((live + need) as u16).into(),
        };
        self.body_write(i, p, 0, head.as_bytes())?;
        if p == Place::Inline {
            i.d.size = ((live + need) as u64).into();
        }
        Ok(true)
    }

    /// Moves an inline directory into its first block, or half of a block into a new one.
    fn split(&mut self, i: &mut Inode, p: Place) -> Result<()> {
        let entries = self.entries(i, p)?;
        let block_len = self.geom.block_size() - HEADER;
        let near = self.inode_ag(i);
        let new = self.alloc_block(near, BlockType::Dir, i.ino.0)?;
        i.d.frags = (i.d.frags.get() + u64::from(self.geom.block_frags())).into();
        if p == Place::Inline {
            self.body_write(i, Place::Block(new), 0, &encode(block_len, &entries))?;
            self.area_clear(i)?;
            i.d.format = Format::Extent as u8;
            i.d.size = (self.geom.block_size() as u64).into();
            return self.with_dir_tree(i, |t| t.insert(0, &new.0.to_le_bytes()));
        }
        let half: usize = entries.iter().map(Raw::len).sum::<usize>() / 2;
        let mut sum = 0;
        let at = entries.iter().position(|e| {
            sum += e.len();
            sum > half
        });
        let at = at.unwrap_or(0).clamp(1, entries.len().saturating_sub(1).max(1));
        let Some(upper) = entries.get(at..).filter(|u| !u.is_empty()) else {
            return Err(self.broken(i, p).into());
        };
        self.body_write(i, Place::Block(new), 0, &encode(block_len, upper))?;
        self.body_write(i, p, 0, &encode(block_len, &entries[..at]))?;
        i.d.size = i.d.size.get().saturating_add(self.geom.block_size() as u64).into();
        let key = upper[0].key();
        self.with_dir_tree(i, |t| t.insert(key, &new.0.to_le_bytes()))
    }

    fn locate(&mut self, i: &Inode, key: u64) -> Result<Located> {
        let (p, desc) = self.place(i, key)?;
        let found = self.body(i, p, |b| {
            let (before, at) = body::seek(b, key)?;
            let (e, name) = body::entry_at(b, at)?;
            let is_it = dir_key(e.hash.get(), e.seq.get()) == key;
            is_it.then(|| (before, Raw { at, head: *e, name: name.to_vec() }))
        })?;
        let (before, found) = found.ok_or_else(|| self.broken(i, p))?;
        Ok((p, desc, before, found))
    }

    /// Makes an entry name another inode.
    pub fn dir_replace(&mut self, i: &Inode, key: u64, ino: Ino, t: FileType) -> Result<()> {
        self.missed.forget(i.ino);
        let (p, _, _, e) = self.locate(i, key)?;
        let head = DirEnt { kind: (t.mode() >> 12) as u8, ino: ino.0.into(), ..e.head };
        self.body_write(i, p, e.at, head.as_bytes())
    }

    /// Removes an entry; a block that becomes empty is freed, a small directory moves back into
    /// its inode.
    pub fn dir_remove(&mut self, i: &mut Inode, key: u64) -> Result<()> {
        self.missed.forget(i.ino);
        let (p, desc, before, e) = self.locate(i, key)?;
        let head = self.body(i, p, body::head_of)?;
        let next = e.head.next;
        if let Some(b) = before {
            self.body_write(i, p, b, next.as_bytes())?;
        }
        let live = usize::from(head.live.get()).saturating_sub(e.len());
        let at_end = e.at + e.len() == usize::from(head.end.get());
        let head = DirHead {
            first: if before.is_none() { next } else { head.first },
            end: if at_end { (e.at as u16).into() } else { head.end },
            count: head.count.get().saturating_sub(1).into(),
            live: (live as u16).into(),
        };
        self.body_write(i, p, 0, head.as_bytes())?;
        match p {
            Place::Inline => i.d.size = (live as u64).into(),
            Place::Block(b) => self.shrink(i, b, desc, head.count.get() == 0, live)?,
        }
        Ok(())
    }

    fn shrink(&mut self, i: &mut Inode, block: Frag, desc: u64, empty: bool, live: usize) -> Result<()> {
        let alone = self.area(i, |a| get_u16(a, 0) == Some(1) && a.get(2) == Some(&0))?;
        let fits = alone && self.ways.inline && DIR_HEAD + live <= self.area_len(i) / 2;
        if !fits && (alone || !empty) {
            return Ok(());
        }
        let entries = self.entries(i, Place::Block(block))?;
        let gone = self.with_dir_tree(i, |t| {
            t.remove(desc)?;
            t.is_empty()
        })?;
        self.free_block(block, self.geom.block_frags())?;
        i.d.frags = i.d.frags.get().saturating_sub(u64::from(self.geom.block_frags())).into();
        i.d.size = i.d.size.get().saturating_sub(self.geom.block_size() as u64).into();
        if fits || gone {
            i.d.format = Format::Inline as u8;
            let packed = encode(self.area_len(i), &entries);
            self.area_write(i, 0, &packed)?;
            i.d.size = (live as u64).into();
        }
        Ok(())
    }

    /// Frees the blocks of an empty directory.
    pub fn dir_clear(&mut self, i: &mut Inode) -> Result<()> {
        self.missed.forget(i.ino);
        if i.format() == Format::Inline {
            return Ok(());
        }
        let mut blocks = Vec::new();
        self.with_dir_tree(i, |t| {
            t.for_each(0, &mut |_, v| {
                blocks.push(Frag(u64::from_le_bytes(*v)));
                true
            })?;
            t.clear()
        })?;
        for b in blocks {
            self.free_block(b, self.geom.block_frags())?;
            i.d.frags = i.d.frags.get().saturating_sub(u64::from(self.geom.block_frags())).into();
        }
        self.area_clear(i)?;
        i.d.format = Format::Inline as u8;
        i.d.size = 0.into();
        Ok(())
    }
}
