//! Directories, their chunks and what the entries name.

use super::issue::{Issue, Node, show};
use super::links::LOST_FOUND;
use super::{Checker, DIR_KIND, Extra, Rec, number, words};
use crate::format::*;
use crate::inode::Inode;
use arbor_base::cache::Name;
use arbor_base::device::Kind;
use arbor_base::vfs::{Ino, Result, is_name, mode};
use arbor_kit::chunkdir::ChunkDirs;
use arbor_kit::dirent::{DOTDOT_AT, Dirent, empty_chunks, entry, first_chunks};
use arbor_kit::inodes::InodeTable as _;
use arbor_kit::mend::{cut_chunk, dots, put_dots, set_ino, set_kind};
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// Names of the directory that is being read.
pub(super) type Names = FxHashSet<Box<[u8]>>;

/// An entry in use.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub offset: u64,
    pub ino: u32,
    pub name: Vec<u8>,
}

impl Checker<'_> {
    /// The root directory is there, or made anew.
    pub(super) fn find_root(&mut self) -> Result<()> {
        let root = ROOT.0 as u32;
        let why = match self.find(root).map(|k| self.at(k)) {
            Some(rec) if rec.is_dir() => return Ok(()),
            Some(_) => "is no directory",
            None => "is not in use",
        };
        self.f.note(Issue::RootLost { why });
        if self.find(root).is_some() {
            self.clear(root)?;
            self.unlist(root)?;
        }
        let version = self.core.map_entry(ROOT)?.version.get().wrapping_add(1);
        self.core
            .set_map_entry(ROOT, MapEntry { frag: UNWRITTEN.into(), version: version.into(), ..MapEntry::default() })?;
        self.core.state.used_inodes += 1;
        self.core.state.inodes = self.core.state.inodes.max(root + 1);
        self.new_dir(ROOT, version, 0o755, ROOT)?;
        self.recs.retain(|r| r.ino != root);
        self.add_rec(root, root);
        Ok(())
    }

    /// Takes an inode off the list of free ones, where it was put just now.
    fn unlist(&mut self, ino: u32) -> Result<()> {
        if self.core.state.free_ino == ino {
            self.core.state.free_ino = self.core.map_entry(number(ino))?.next_free.get();
        }
        Ok(())
    }

    /// Makes the inode and the first chunks of a directory.
    fn new_dir(&mut self, ino: Ino, version: u32, permissions: u32, parent: Ino) -> Result<()> {
        let stamp = Stamp::from(self.core.calls.now());
        let d = Dinode {
            fsid: self.core.geom.fsid.into(),
            ino: (ino.0 as u32).into(),
            version: version.into(),
            mode: (mode::IFDIR | permissions).into(),
            nlink: 2.into(),
            atime: stamp,
            mtime: stamp,
            ctime: stamp,
            btime: stamp,
            ..Dinode::default()
        };
        let empty = Dinode::default();
        self.core.cache.insert(crate::mount::inode_name(ino), Arc::new(zerocopy::IntoBytes::as_bytes(&empty).to_vec()));
        let mut i = Inode { ino, d };
        self.core.iput(&i)?;
        self.core.cache.insert(Name::Page { file: ino.0, index: 0 }, Arc::new(Vec::new()));
        let len = self.core.geom.frag_size() as u64;
        self.core.alloc_block(&mut i, 0, len, &mut |buf, len| *buf = first_chunks(len, ino, parent))
    }

    pub(super) fn add_rec(&mut self, ino: u32, parent: u32) {
        let at = self.recs.partition_point(|r| r.ino < ino);
        let rec =
            Rec { ino, parent, dotdot: parent, nlink: 2, kind: DIR_KIND, flags: Rec::REACHED | Rec::READ, found: 0 };
        // It may be one that was cleared just now.
        match self.recs.get_mut(at).filter(|r| r.ino == ino) {
            Some(old) => *old = rec,
            None => self.recs.insert(at, rec),
        }
    }

    pub(super) fn read_dirs(&mut self) -> Result<()> {
        let dirs = self.dirs();
        for (n, ino) in dirs.iter().enumerate() {
            if n % 64 == 0 {
                (self.progress)(n as u64, dirs.len() as u64, "names");
            }
            // One that was removed is not read any more.
            if !self.listed.contains(ino) {
                self.check_dir(*ino)?;
                self.flag(*ino, Rec::READ, true);
            }
            self.breathe();
        }
        Ok(())
    }

    pub(super) fn check_dir(&mut self, ino: u32) -> Result<()> {
        let mut i = self.core.inode(number(ino))?;
        let geom = self.core.geom;
        let mut names = Names::default();
        let len = i.size().div_ceil(geom.block_size() as u64);
        // One that consists of holes is not worth the space: it ends with the first.
        let fill = len <= 2 * i.d.frags.get().div_ceil(geom.block_frags().into()) + 16;
        for lbn in 0..len {
            let Some(page) = self.dir_bytes(&mut i, lbn, fill || lbn == 0)? else {
                self.core.mark(i.ino)?;
                i.d.size = (lbn << geom.block_shift).into();
                return self.core.iput(&i);
            };
            let mut bytes = page.to_vec();
            self.check_page(&i, lbn, &mut bytes, &mut names);
            if bytes != *page {
                self.put_page(i.ino, lbn, bytes)?;
            }
        }
        Ok(())
    }

    /// Changes a page of a directory that is in the cache.
    fn put_page(&mut self, ino: Ino, lbn: u64, bytes: Vec<u8>) -> Result<()> {
        self.core.mark(ino)?;
        self.core.hashes.remove(ino);
        self.core.cache.modify(Name::Page { file: ino.0, index: lbn }, |buf| *buf = bytes);
        Ok(())
    }

    /// A page of a directory as it is, in the cache from then on. A hole is filled, or `None`.
    fn dir_bytes(&mut self, i: &mut Inode, lbn: u64, fill: bool) -> Result<Option<Arc<Vec<u8>>>> {
        let (geom, node) = (self.core.geom, Node(i.ino.0));
        let name = Name::Page { file: i.ino.0, index: lbn };
        let (p, offset) = (self.core.pointer(i, Place::Data(lbn))?, lbn << geom.block_shift);
        let len = geom.bytes_of(geom.lbn_frags(i.size(), lbn));
        if p.frag.get() == 0 {
            self.f.note(Issue::DirHole { ino: node, offset });
            if !fill {
                return Ok(None);
            }
            self.core.mark(i.ino)?;
            self.core.ensure(i, lbn)?;
            self.core.cache.insert(name, Arc::new(Vec::new()));
            self.put_page(i.ino, lbn, empty_chunks(len))?;
            self.core.count(i, geom.lbn_frags(i.size(), lbn), 0);
            self.core.iput(i)?;
        } else if !self.core.cache.contains(name) {
            let disk = match self.core.changed.contains_key(&i.ino.0) {
                true => self.core.disk_frags(i.ino, Place::Data(lbn)).max(1),
                false => geom.lbn_frags(i.size(), lbn),
            };
            match words(self.core.read_block(p, disk, Kind::Dir))? {
                Ok(bytes) => drop(self.core.cache.insert(name, Arc::new(bytes))),
                Err(_) => {
                    // Chunk by chunk what is sound stays, see `check_chunk`.
                    let at = self.byte(p.frag.get());
                    self.f.note(Issue::DirBlock { ino: node, offset, at });
                    self.core.check_run(Frag(p.frag.get()), disk, "pointer", "frag")?;
                    let bytes = self.core.read_run(Frag(p.frag.get()), disk, Kind::Dir)?;
                    self.core.cache.insert(name, Arc::new(Vec::new()));
                    self.put_page(i.ino, lbn, bytes)?;
                }
            }
        }
        let page = self.core.cache.get(name).cloned().unwrap_or_default();
        if page.len() == len {
            return Ok(Some(page));
        }
        let mut bytes = page.to_vec();
        bytes.truncate(len);
        bytes.extend(empty_chunks(len - bytes.len()));
        self.put_page(i.ino, lbn, bytes)?;
        Ok(self.core.cache.get(name).cloned())
    }

    fn check_page(&mut self, i: &Inode, lbn: u64, bytes: &mut [u8], names: &mut Names) {
        let start = lbn << self.core.geom.block_shift;
        for (k, chunk) in (0u64..).zip(bytes.chunks_exact_mut(DIRBLKSIZ)) {
            let offset = start + k * DIRBLKSIZ as u64;
            if offset < i.size() {
                self.check_chunk(i.ino, offset, chunk, names);
            }
        }
    }

    /// Checks one chunk and mends it.
    fn check_chunk(&mut self, dir: Ino, offset: u64, chunk: &mut [u8], names: &mut Names) {
        if offset == 0 {
            self.check_dots(dir, chunk);
        }
        let (mut at, mut last) = (0, None);
        while at < DIRBLKSIZ {
            let e = match entry(chunk, at) {
                Ok(e) => e,
                Err(why) => {
                    self.f.note(Issue::DirChunk { ino: Node(dir.0), offset: offset + at as u64, why });
                    cut_chunk(chunk, last);
                    return;
                }
            };
            let next = at + e.reclen;
            let is_dot = offset == 0 && at <= DOTDOT_AT;
            if e.ino.0 != 0 && !is_dot {
                match self.check_entry(dir, offset + at as u64, &e, names) {
                    None => set_ino(chunk, at, Ino(0)),
                    Some(kind) => set_kind(chunk, at, kind),
                }
            }
            last = Some(at);
            at = next;
        }
    }

    /// The kind that an entry must have, `None` if it cannot stay.
    fn check_entry(&mut self, dir: Ino, offset: u64, e: &Dirent<'_>, names: &mut Names) -> Option<u8> {
        let (node, ino) = (Node(dir.0), Node(e.ino.0));
        if !is_name(e.name) {
            self.f.note(Issue::EntryName { dir: node, name: show(e.name), offset });
            return None;
        }
        if names.contains(e.name) {
            self.f.note(Issue::DuplicateName { dir: node, name: show(e.name) });
            return None;
        }
        let rec = self.find(e.ino.0 as u32).map(|k| self.at(k));
        let why = match rec {
            None => Some("is not in use"),
            Some(_) if e.ino == ROOT => Some("is the root directory"),
            Some(_) if e.ino == dir => Some("is the directory itself"),
            Some(_) => None,
        };
        if let Some(why) = why {
            self.f.note(Issue::EntryTarget { dir: node, name: show(e.name), ino, why });
            return None;
        }
        let kind = rec.map_or(0, |r| r.kind);
        if e.kind != kind {
            self.f.note(Issue::EntryKind { dir: node, name: show(e.name), ino });
        }
        if dir == ROOT && e.name == LOST_FOUND.as_bytes() && kind == DIR_KIND {
            self.lost_found = e.ino.0 as u32;
        }
        names.insert(e.name.into());
        self.count_name(dir.0 as u32, offset, e.ino.0 as u32);
        Some(kind)
    }

    fn count_name(&mut self, dir: u32, offset: u64, ino: u32) {
        let Some(rec) = self.rec(ino) else { return };
        if !rec.is_dir() {
            rec.found = rec.found.saturating_add(1);
        } else if rec.parent == 0 {
            rec.parent = dir;
        } else {
            self.extras.push(Extra { dir, offset, child: ino });
        }
    }

    /// The first two entries of a directory.
    fn check_dots(&mut self, dir: Ino, chunk: &mut [u8]) {
        let parent = match dots(dir, chunk) {
            Ok(parent) => parent,
            Err(why) => {
                self.f.note(Issue::Dots { ino: Node(dir.0), why });
                put_dots(dir, ROOT, chunk)
            }
        };
        if let Some(rec) = self.rec(dir.0 as u32) {
            rec.dotdot = parent.0 as u32;
        }
    }

    /// The entries in use of a directory that was checked, without its dots.
    pub(super) fn names_in(&mut self, dir: u32) -> Result<Vec<Named>> {
        let i = self.core.inode(number(dir))?;
        let mut all = Vec::new();
        self.core.dir_walk(&i, 0, &mut |_, found, name| {
            if found.at > DOTDOT_AT as u64 {
                all.push(Named { offset: found.at, ino: found.ino.0 as u32, name: name.to_vec() });
            }
            Ok(true)
        })?;
        Ok(all)
    }

    /// Changes the inode of the entry at an offset of a directory; 0 makes it free.
    pub(super) fn put_entry_ino(&mut self, dir: u32, offset: u64, ino: u32) -> Result<()> {
        let i = self.core.inode(number(dir))?;
        let (lbn, within) = self.core.page_of(offset);
        let mut bytes = self.core.whole_page(&i, lbn)?.to_vec();
        set_ino(&mut bytes, within, number(ino));
        self.put_page(i.ino, lbn, bytes)
    }
}
